"""The rule 'one document': several files of a dataset change at once.

New contents are written to files in the folder ``.bloscpack`` of the dataset, or in a
store of objects to temporary files. A content that does not disturb the old state
(`Change.write`) gets its name at once. The others (`Change.stage`) get their names in
`Change.commit`. The documents of members are part of the document of the dataset. Who
makes the change reads what it has staged in its `Draft`: so it may change the same
files several times.

Commit point
    One file is replaced: the document of the dataset, or the only staged file, before
    which the document may get another token (`Change.renews_token`). If more files are
    staged, the new document lists them as pending (see `_format.committed`). They get
    their names after it, and then the document is replaced by one without the list.
    With `sync`, all contents and the names of their folders are on the disk before the
    commit point.
Recovery
    Readers read the pending files where they are, see `tree`. The next writer gives
    them their names (`complete`), and removes what a writer left in ``.bloscpack``.
Trust
    A user with write access to the document may change the dataset. Nothing else is
    believed.

A folder is renamed into in one step, and locked (`FolderLock`). A store of objects has
no locks: each object is stored if it has the version that the change has found, and a
writer begins by giving the document a new token, after which the changes of all other
writers fail (`Conflict`).
"""

from __future__ import annotations

import errno
import os
import stat
from _thread import allocate_lock
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import BinaryIO, Protocol

from .._engine.contexts import on_error
from .._engine.forks import Owner
from .._format.committed import STAGING, Root
from .._format.dtypes import shown
from .._format.identity import as_copy
from .._format.names import folders_of, is_within
from .._format.zarr_metadata import ZARR_JSON
from .._storage.store import Store
from ..exceptions import StorageError, UsageValueError, metadata_damage
from .ownership import FileAccess
from .tree import Draft, Tree, member_of

# The message about names of folders that differ only in case, for example.
SAME_NAME = "the file system can't tell the names %.200r and %.200r apart: change one"
# The folder of the shards of an array of Zarr.
SHARDS = "c"
# Errors about a file that is not there, of which another one has the name.
GONE = FileNotFoundError, NotADirectoryError, IsADirectoryError
# Permission bits of a file and a folder until they get the access of others.
PRIVATE = 0o600
PRIVATE_FOLDER = 0o700


class Datasets(Protocol):
    """What the rules ask about datasets, whose files they do not know."""

    def kind_of(self, store: Store) -> str | None:
        """Return ``'array'``, ``'table'`` or ``'group'``; None for no dataset."""

    def check_independent(self, store: Store) -> None:
        """Raise `UsageError` if the document of a dataset is committed by another."""

    def names_inside(self, store: Store) -> list[str]:
        """Return the names of the folders inside that can be datasets."""

    def check_group(self, store: Store) -> None:
        """Prepare a group for a new member; raise `UsageError` if it can't get one."""


@dataclass(eq=False)
class UnfinishedFile:
    """A new file for the name `name`, which is open, and still has the name `staged`.

    It gets the access `like`, or the usual access.
    """

    name: str
    staged: str
    fp: BinaryIO
    like: FileAccess | None = None


class Change:
    """New contents of files in a dataset; `commit` applies them, all or none.

    Names are relative to the dataset. Any thread may write and stage.

    Attributes
    ----------
    store
        The files of the dataset.
    document
        The name of its document.
    is_committing
        Whether `commit` was called: if it fails, the state is not known.
    is_committed
        Whether a writer has committed it.
    is_complete
        Whether its commit was interrupted, and was then completed or undone.
    is_joint
        Whether several calls make it together.
    content
        The document after the commit, when that has begun; empty if the document stays
        unchanged.
    settled
        Called when it is found out that an interrupted commit was made.
    failure
        The error of the first of these calls that has failed, so that nothing is
        committed; empty if none has.
    token
        A random text in the names of staged files: a reader that has seen the list of
        another change must not take a file of this one for one of that.
    new_folders
        The folders of new members, whose first files have their names at once.
    disturbed
        The folders of arrays of which the change has replaced or removed items: no more
        of their files get their names at once.
    outdated
        The documents of inner groups with copies, which are older after the change. Its
        list has them, without files: the next writer replaces them if this one dies.
    tree
        What has the documents before the change, and takes over those after it; None
        for a new dataset.
    renews_token
        Whether that is always a new one. In a folder, it shows readers of several
        columns that one of them changes, or loses rows.
    removes_shards
        Whether shards may be removed, which needs the document.
    """

    renews_token = False
    removes_shards = True
    failure = ""
    is_committed = False
    is_complete = False
    is_joint = False
    content = b""

    def __init__(self, store: Store, document: str, tree: Tree | None = None) -> None:
        self.store = store
        self.document = document
        self.tree = tree
        self.owner = Owner()
        self.is_committing = False
        self._lock = allocate_lock()
        self._numbers = count()
        # Documents of the dataset and of members, by their names; None to remove one.
        self._documents: dict[str, bytes | None] = {}
        # By name: the name of the new content, or None to remove the file.
        self._files: dict[str, str | None] = {}
        self._draft: Draft | None = None
        # The names of files that get their names before the commit.
        self._early: set[str] = set()
        self.token = os.urandom(8).hex()
        self.new_folders: set[str] = set()
        self.disturbed: set[str] = set()
        self.outdated: list[str] = []
        self.settled: list[Callable[[], object]] = []
        # By folder: the names that it has staged inside.
        self._staged: dict[str, set[str]] = {}
        # The folders whose files the change replaces, and those that are gone after it.
        self._replaced: set[str] = set()
        self._dropped: list[str] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing was staged, nor written at once."""
        return not (self._documents or self._files)

    def draft_of(self, tree: Tree) -> Draft:
        """Return the documents and files of a tree as the change leaves them."""
        if isinstance(tree, Draft):
            return tree
        with self._lock:
            if self._draft is None:
                known = self._documents, self._files, self._staged
                self._draft = Draft(tree, *known)
        return self._draft

    def _note(self, name: str) -> None:
        """Note where a file, a document or a member is."""
        for folder in folders_of(name):
            self._staged.setdefault(folder, set()).add(name)

    def write(self, name: str, content: bytes) -> None:
        """Write a file at once: the old state can be read with its new content."""
        self.finish(self._begin_with(name, content), at_once=True)

    def stage(self, name: str, content: bytes) -> None:
        """Write the content that a file gets when the change is committed.

        Of the contents of a document, the last one counts.
        """
        if name == self.document or member_of(name):
            self._stage_document(name, content)
        else:
            self.finish(self._begin_with(name, content), at_once=False)

    def _begin_with(self, name: str, content: bytes) -> UnfinishedFile:
        file = self.begin(name)
        with on_error(self.abandon, file):
            file.fp.write(content)
            file.fp.flush()
        return file

    def _staged_name(self) -> str:
        return "%s/%s-%d" % (STAGING, self.token, next(self._numbers))

    def remove(self, name: str) -> None:
        """Remove a file when the change is committed."""
        self._take(name, None, is_early=False)
        self._files[name] = None
        if member_of(name):
            self._stage_document(name, None)

    def _stage_document(self, name: str, content: bytes | None) -> None:
        self._documents[name] = content
        self._note(name)
        if content is not None and self._files.get(name, "") is None:
            del self._files[name]
        if self._draft is not None:
            self._draft.take(name)

    def note_failure(self, error: BaseException) -> None:
        """Note that a call has failed: nothing is committed."""
        self.failure = self.failure or "%s: %s" % (type(error).__name__, error)

    def drop(self, folder: str) -> None:
        """Remove a folder and all in it when the change was committed."""
        self._dropped.append(folder)

    def remove_member(self, path: str) -> None:
        """Remove a member, with all that is in it.

        The documents inside come first: a crash leaves nothing that looks complete.
        """
        was_new = self._is_new(path)
        had = self._forget(path) or ([] if was_new else [path])
        for inner in sorted(had, reverse=True):
            self.remove("%s/%s" % (inner, ZARR_JSON))

    def release_member(self, path: str, content: bytes | None) -> None:
        """Let the own document of a member commit it, with all that is in it.

        That gets the `content` at once, and counts from then on; None for no other.
        """
        assert self.tree is not None
        if content is not None:
            self.write("%s/%s" % (path, ZARR_JSON), content)
        for inner in self.tree.state.members or {}:
            if is_within(inner, path):
                self._stage_document("%s/%s" % (inner, ZARR_JSON), None)

    def make_room(self, path: str) -> bool:
        """Let a new member be at a path; return whether the old state has one there.

        Then the files of that are removed when the change is committed, and all of the
        new one are staged.
        """
        had = self._forget(path)
        for inner in had:
            self.remove("%s/%s" % (inner, ZARR_JSON))
            for name in self._shards(inner):
                self.remove(name)
        self._note(path)
        if had:
            self._replaced.add(path)
        return self._is_replaced(path)

    def _forget(self, path: str) -> list[str]:
        """Forget what is staged at a path; return the members of the old state."""
        assert self.tree is not None  # a new dataset has no members
        draft = self.draft_of(self.tree)
        inside = sorted(draft.inside(path))
        for name in inside:
            if self._files.get(name):
                self._take(name, None, is_early=False)
            if name in self._documents:
                del self._documents[name]
                draft.take(name)
        if self._is_new(path):
            self._remove_tree(path)
        for folder in self.new_folders.intersection(inside):
            self.new_folders.remove(folder)
            self._remove_tree(folder)
        members = self.tree.state.members or {}
        return [inner for inner in inside if inner in members]

    def _is_new(self, path: str) -> bool:
        """Return whether the old state has nothing at a path."""
        return not self.new_folders.isdisjoint(folders_of(path))

    def _shards(self, path: str) -> Iterator[str]:
        """Yield the names of the shards of an array, if one is at a path."""
        folders = [path + "/" + SHARDS]
        if (SHARDS, stat.S_IFREG) in self.store.entries(path):
            yield folders[0]
        for folder in folders:
            for name, kind in self.store.entries(folder):
                if name.isdecimal() and kind == stat.S_IFDIR:
                    folders.append(folder + "/" + name)
                elif name.isdecimal():
                    yield folder + "/" + name

    def _can_move(self, name: str) -> bool:
        """Return whether the old state has the file under its name, or none.

        It is not if the list of the change will have it.
        """
        is_staged = name in self._files and name not in self._early
        return not (is_staged or self._is_replaced(name))

    def _is_replaced(self, name: str) -> bool:
        """Return whether the old state has something at a name, or around it."""
        return not self._replaced.isdisjoint(folders_of(name))

    def _take(self, name: str, staged: str | None, *, is_early: bool) -> None:
        """Note where the new content of a file is; None if it has its name."""
        older = self._files.pop(name, None)
        if staged is not None:
            self._files[name] = staged
            self._note(name)
        (self._early.add if is_early else self._early.discard)(name)
        if older is not None:
            self._drop(older)

    def _drop(self, staged: str) -> None:
        """Remove a content that another one has replaced, before it got its name."""

    def lock(self, name: str) -> None:
        """Let no other writer of shards change a file before this change ends.

        If another one changes it, `commit` raises `Conflict`.
        """
        raise NotImplementedError

    def make_folder(self, name: str) -> None:
        """Make a folder, unless there is one; a store of objects has none."""
        self.store.path(name)  # raises the errors of the name

    def make_folders(self, name: str) -> None:
        """Make the folders that a file is in."""
        for folder in reversed(folders_of(name)[1:]):
            self.make_folder(folder)

    def begin(self, name: str) -> UnfinishedFile:
        """Return a new file, whose content is written in pieces.

        `finish` or `abandon` must follow.
        """
        raise NotImplementedError

    def finish(self, file: UnfinishedFile, *, at_once: bool) -> None:
        """Give a file its name, `at_once` like `write`, or else like `stage`."""
        raise NotImplementedError

    def abandon(self, *files: UnfinishedFile) -> None:
        """Close files, whose content is lost."""
        for file in files:
            with suppress(OSError):  # closing writes the buffer: the disk may be full
                self.owner.close_file(file.fp)

    def close(self) -> None:
        """Release what was not committed."""

    def commit(self) -> None:
        """Give the staged contents their names, all of them or none.

        Sets `is_committing` when the document is known to be valid: not too long, say.
        """
        self.owner.check(self.store.root)
        self._sync_files()
        self.is_joint = False
        documents = {**self._documents}
        removed = sorted(name for name, staged in self._files.items() if not staged)
        files = {**dict.fromkeys(removed), **self._files}
        staged = documents.pop(self.document, None)
        if (
            staged is None
            and not documents
            and len(files) < 2
            and None not in files.values()
        ):
            self.is_committing = True
            if files and self.renews_token:
                self._renew_token()
            self._sync()
            for name, new_file in files.items():
                self._move(new_file, name)  # commit point
            self._sync()
            self._files.clear()
            return
        tree, texts = self.tree, None
        if staged is not None and tree is not None and tree.state.members is not None:
            texts = tree.state.root.texts
        root = self._root() if staged is None else Root(staged, texts=texts)
        # Other programs read the copies alone.
        members = {member_of(name): new for name, new in documents.items()}
        replaced, stale = ({}, {}) if tree is None else tree.compare_all(members)
        own = [n for n in documents if documents[n] and member_of(n) in replaced]
        if own:
            # These files count in place of their copies. So the copies first take over
            # what is in them. Then they get a right digest: from now on the copies
            # count, and the document of the group commits all members in one step. To
            # other programs, which may write them again, they say the same until then.
            same = {name: as_copy(replaced[member_of(name)]) for name in own}
            replaced |= {member_of(n): copy for n, copy in same.items() if copy}
            self._replace(self._root().changed(replaced).content)
            self._sync()
            for name in own:
                self._replace(same[name] or documents[name] or b"", name)
        members = {**replaced, **members}
        token = self.token if files or self.renews_token else ""
        if not token and tree is not None:  # the present one stays
            token = tree.state.root.epoch.partition(" token=")[2]
        if members or token or texts is not None:
            root = root.changed(members, token)
        listed = {**{name: self._staged_name() for name in self.outdated}, **files}
        new = root.with_files(listed) if listed else root
        before = b"" if tree is None else tree.state.root.content
        self.content = b"" if root.content == before else root.content
        self.is_committing = True
        if files:
            self._stage_all()
        self._sync()
        version = self._replace(new.content)  # commit point
        self._sync()
        # Copies for readers of a member alone. Those of one that replaces another come
        # with its files.
        copies = {n: new for n, new in {**stale, **documents}.items() if new}
        late = {n: copies.pop(n) for n in [*copies] if files and self._is_replaced(n)}
        self._copy(copies)
        if listed:
            version = self._complete(files, root.content, late)
        if tree is not None:
            values = {path: new and Root(new).document for path, new in members.items()}
            tree.committed(self.document, root, values, version)
        self._clean([*files, *documents])

    def complete(self) -> None:
        """Give the pending files in the document their names."""
        assert self.tree is not None  # the one that lists them
        known = self.tree.state
        if known.pending:
            files = dict[str, str | None]()
            # A document can list more names than there are files.
            there = {*self.store.names(STAGING)}
            for name, staged in known.pending.items():
                last = None if staged is None else staged.rpartition("/")[2]
                if last is None or last in there:
                    there.discard(last)
                    files[name] = staged
            root = known.root.with_files({})
            copies = {
                "%s/%s" % (path, ZARR_JSON): root.in_own_file(path, member)
                for path, member in (known.members or {}).items()
                if any(is_within(name, path) for name in known.pending)
                and self.tree.has_older_document(path)
            }
            version = self._complete(files, root.content, copies)
            self.tree.committed(self.document, root, {}, version)

    def _complete(
        self, files: Mapping[str, str | None], root: bytes, copies: Mapping[str, bytes]
    ) -> object:
        """Give files their names, and store the document without their list.

        Before, the `copies` are written of new members in the place of others.
        The folders of members that the list removes are removed before: later, nothing
        tells a writer that completes the change. Returns what `_replace` returns.
        """
        removed = [name for name, staged in files.items() if staged is None]
        for name in removed:  # a folder, or a file, may get the name
            with suppress(*GONE):  # it is removed already
                self._move(None, name)
        for name, staged in files.items():
            if staged is not None:
                with suppress(FileNotFoundError):  # it has its name already
                    self._move(staged, name)
        self._sync()
        gone = {*map(member_of, removed)} - {""}
        members = () if self.tree is None else self.tree.state.members or ()
        staged_now = (name for name, new in self._documents.items() if new)
        kept = *filter(files.get, files), *staged_now, *({*members} - gone)
        for folder in gone.difference(*map(folders_of, kept)):
            self._remove_tree(folder)
        self._copy(copies)
        version = self._replace(root)
        self._sync()
        return version

    def _clean(self, names: Iterable[str]) -> None:
        """Remove the folders that are gone after the change, or empty.

        `names` are those of files that it has or has removed.
        """
        kept = (name for name in names if self._files.get(name, "") is not None)
        used = {folder for name in kept for folder in folders_of(name)}
        for folder in self._dropped:
            if folder not in used:
                self._remove_tree(folder)
        for folder in sorted(self._replaced):
            self._prune(folder)

    # What differs between stores

    def _remove_tree(self, folder: str) -> None:
        """Remove a folder and all in it, if there is one."""
        self.store.remove_tree(folder)

    def _prune(self, name: str) -> None:
        """Remove the empty folders in a folder, and then that; objects have none."""

    def _root(self) -> Root:
        """Return the document that is there; raise `FormatError` if it is no object."""
        assert self.tree is not None  # a new dataset has a document
        root = self.tree.now(self.document).root
        if not isinstance(root.document, dict):
            raise metadata_damage(
                "expected an object in JSON, found %s" % shown(root.document),
                filename=self.store.path(self.document),
            )
        return root

    def _renew_token(self) -> None:
        """Give the document a new token, before a file without a document changes.

        A reader that has old files of other columns open does not use them with this
        one. Readers in a store of objects do not look at the token.
        """

    def _sync_files(self) -> None:
        """Wait until all contents are on the disk that several calls have written."""

    def _stage_all(self) -> None:
        """Let all staged contents be where their list says."""

    def _move(self, staged: str | None, name: str) -> None:
        """Give a staged file its name; remove the file if there is none."""
        raise NotImplementedError

    def _replace(self, content: bytes, name: str = "") -> object:
        """Replace a document; return the `TreeState.version` of the new one."""
        raise NotImplementedError

    def _copy(self, copies: Mapping[str, bytes]) -> None:
        """Write the own documents of members, which may be lost in a crash."""
        raise NotImplementedError

    def _sync(self) -> None:
        """Wait until all names are on the disk."""


# What a new dataset may replace


def check_mode(mode: str) -> None:
    """Raise `UsageError` if a dataset can't be created with a mode."""
    if mode not in ("x", "w"):
        raise UsageValueError("mode must be 'x' or 'w' to create, not %r" % (mode,))


def not_replaced(path: str) -> StorageError:
    """Return the error for a folder that is no dataset, where one is to be created."""
    text = "it is not a dataset, and is not replaced by one"
    return StorageError(errno.EEXIST, text, path)
