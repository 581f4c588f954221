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
import tempfile
from _thread import allocate_lock
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, BinaryIO, Protocol

from .._engine.forks import Owner
from .._format.committed import (
    STAGING,
    Root,
)
from .._format.dtypes import shown
from .._format.identity import is_copy
from .._format.names import is_within
from .._format.zarr_metadata import ZARR_JSON
from .._storage.disk import NO_ROOM, disk
from .._storage.folder_store import FolderStore, LinkFound
from .._storage.store import Conflict, Store
from .._types import Json
from ..constants import MAX_DOCUMENT
from ..exceptions import DamageError, StorageError, UsageError, UsageValueError
from ..serializers import encode_document, parse_json
from .access import Access, Model, NewAccess, folder_of
from .ownership import FileAccess, is_new_folder
from .tree import Draft, Tree

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


class UnfinishedFile:
    """A new file for the name `name`, which is open, and still has the name `staged`.

    It gets the access `like`, or the usual access.
    """

    def __init__(
        self, name: str, staged: str, fp: BinaryIO, like: FileAccess | None = None
    ) -> None:
        self.name = name
        self.staged = staged
        self.fp = fp
        self.like = like


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
    wait
        Number of seconds to wait for another writer of a file that is locked.
    is_joint
        Whether several calls make it together.
    has_failed_call
        Whether one of these calls has failed, so that nothing is committed.
    new_folders
        The folders of new members, whose first files have their names at once.
    disturbed
        The folders of arrays of which the change has replaced or removed items: no more
        of their files get their names at once.
    tree
        What has the documents before the change, and takes over those after it; None
        for a new dataset.
    renews_token
        Whether that is always a new one. In a folder, it shows readers of several
        columns that one of them changes, or loses rows.
    removes_shards
        Whether shards may be removed, which needs the document.
    """

    wait = 0.0
    renews_token = False
    removes_shards = True
    has_failed_call = False
    is_joint = False
    tree: Tree | None = None

    def __init__(self, store: Store, document: str) -> None:
        self.store = store
        self.document = document
        self.owner = Owner()
        self.is_committing = False
        self._lock = allocate_lock()
        self._numbers = count()
        # Documents of the dataset and of members, by their names; None to remove one.
        self._documents: dict[str, bytes | None] = {}
        self._files: dict[str, str] = {}  # name → name of its new content
        self._removed: set[str] = set()
        self._draft: Draft | None = None
        # The names of files that get their names before the commit.
        self._early: set[str] = set()
        # A reader that has seen the list of another change must not take a file of
        # this one for a file of that change.
        self._token = os.urandom(8).hex()
        self.new_folders: list[str] = []
        self.disturbed: set[str] = set()
        # The folders whose files the change replaces, and those that are gone after it.
        self._replaced: list[str] = []
        self._dropped: list[str] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing was staged, nor written at once."""
        return not (self._documents or self._files or self._removed)

    def draft_of(self, tree: Tree) -> Draft:
        """Return the documents and files of a tree as the change leaves them."""
        if tree.is_draft:
            return tree  # type: ignore[return-value]
        with self._lock:
            if self._draft is None:
                known = self._documents, self._files, self._removed
                self._draft = Draft(tree, *known)
        return self._draft

    def write(self, name: str, content: bytes) -> None:
        """Write a file at once: the old state can be read with its new content."""
        self.finish(self._begin_with(name, content), at_once=True)

    def stage(self, name: str, content: bytes) -> None:
        """Write the content that a file gets when the change is committed.

        Of the contents of a document, the last one counts.
        """
        if name == self.document or self._member_of(name):
            self._stage_document(name, content)
        else:
            self.finish(self._begin_with(name, content), at_once=False)

    def _member_of(self, name: str) -> str:
        """Return the name of the member whose document has this name; '' for others."""
        is_member = self.document == ZARR_JSON and name.endswith("/" + ZARR_JSON)
        return name.removesuffix("/" + ZARR_JSON) if is_member else ""

    def _begin_with(self, name: str, content: bytes) -> UnfinishedFile:
        file = self.begin(name)
        try:
            file.fp.write(content)
            file.fp.flush()
        except BaseException:
            self.abandon(file)
            raise
        return file

    def _staged_name(self) -> str:
        return "%s/%s-%d" % (STAGING, self._token, next(self._numbers))

    def remove(self, name: str) -> None:
        """Remove a file when the change is committed."""
        self._take(name, None, is_early=False)
        self._removed.add(name)
        if self._member_of(name):
            self._stage_document(name, None)

    def _stage_document(self, name: str, content: bytes | None) -> None:
        self._documents[name] = content
        if content is not None:
            self._removed.discard(name)
        if self._draft is not None:
            self._draft.take(name)

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
            self.drop(inner)

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
            if inner != path:
                self.drop(inner)
        if had:
            self._replaced.append(path)
        return self._is_replaced(path)

    def _forget(self, path: str) -> list[str]:
        """Forget what is staged at a path; return the members of the old state."""
        start = path + "/"
        for name in [n for n in self._files if n.startswith(start)]:
            self._take(name, None, is_early=False)
        for name in [n for n in self._documents if n.startswith(start)]:
            del self._documents[name]
            if self._draft is not None:
                self._draft.take(name)
        if self._is_new(path):
            self._remove_tree(path)
        for folder in [n for n in self.new_folders if is_within(n, path)]:
            self.new_folders.remove(folder)
            self._remove_tree(folder)
        members = (self.tree and self.tree.snapshot.members) or {}
        return [inner for inner in members if is_within(inner, path)]

    def _is_new(self, path: str) -> bool:
        """Return whether the old state has nothing at a path."""
        return any(is_within(path, name) for name in self.new_folders)

    def _shards(self, path: str) -> Iterator[str]:
        """Yield the names of the shards of an array, if one is at a path."""
        folders = [path + "/" + SHARDS]
        if self._is_file(folders[0]):
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
        is_late = self._is_replaced(name) or name in self._removed
        return not (is_staged or is_late)

    def _is_replaced(self, name: str) -> bool:
        """Return whether the old state has something at a name, or around it."""
        return any(is_within(name, folder) for folder in self._replaced)

    def _take(self, name: str, staged: str | None, *, is_early: bool) -> None:
        """Note where the new content of a file is; None if it has its name."""
        older = self._files.pop(name, None)
        if staged is not None:
            self._files[name] = staged
        self._removed.discard(name)
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

        It sets `is_committing`, but not before an error about the document: that it
        would be too long, say.
        """
        self.owner.check(self.store.root)
        self._sync_files()
        self.is_joint = False
        documents = {**self._documents}
        files = {**dict.fromkeys(sorted(self._removed)), **self._files}
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
        root = self._root(staged)
        members: dict[str, bytes | None] = {}
        if self.tree is not None:  # other programs read the copies alone
            members.update(self.tree.replaced_documents())
        members.update((self._member_of(n), new) for n, new in documents.items())
        token = self._token if files or self.renews_token else ""
        if not token and self.tree is not None:
            token = self.tree.snapshot.token
        if members or token or not root.is_whole:
            root = root.changed(members, token)
        new = root.with_files(files) if files else root
        stale = {} if self.tree is None else self.tree.stale_documents()
        self.is_committing = True
        if files:
            self._stage_all()
        self._sync()
        version = self._replace(new.content)  # commit point
        self._sync()
        # Copies for readers of a member alone. Those of one that replaces another come
        # with its files.
        copies = {n: new for n, new in {**stale, **documents}.items() if new}
        late = {name for name in copies if self._is_replaced(name)}
        for name in copies.keys() - late:
            self._copy(name, copies[name])
        if files:
            version = self._complete(files, root.content)
        for name in late:
            self._copy(name, copies[name])
        if self.tree is not None:
            document = self.draft_of(self.tree).document
            values = {
                path: None if new is None else document(path + "/" + ZARR_JSON)[1]
                for path, new in members.items()
            }
            self.tree.committed(self.document, root, values, version)
            self.tree.stale -= {*members, *map(self._member_of, stale)}
        self._clean([*files, *documents])

    def complete(self, tree: Tree) -> None:
        """Give the pending files in the document their names."""
        known = tree.snapshot
        if known.root is not None and known.is_pending:
            files: dict[str, str | None] = dict.fromkeys(sorted(known.removed))
            # A document can list more names than there are files.
            there = {*self.store.names(STAGING)}
            for name, staged in known.files.items():
                if (last := staged.rpartition("/")[2]) in there:
                    there.remove(last)
                    files[name] = staged
            root = known.root.with_files({})
            version = self._complete(files, root.content)
            tree.committed(self.document, root, {}, version)

    def _complete(self, files: Mapping[str, str | None], root: bytes) -> object:
        """Give files their names, and store the document without their list.

        Returns what `_replace` returns.
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
        version = self._replace(root)
        self._sync()
        return version

    def _clean(self, names: Iterable[str]) -> None:
        """Remove the folders that are gone after the change.

        `names` are those of files that it has or has removed.
        """
        used = [name for name in names if name not in self._removed]
        for folder in self._dropped:
            if not any(is_within(name, folder) for name in used):
                self._remove_tree(folder)

    # What differs between stores

    def _is_file(self, name: str) -> bool:
        """Return whether there is a file of this name, and no folder."""
        raise NotImplementedError

    def _remove_tree(self, folder: str) -> None:
        """Remove a folder and all in it, if there is one."""
        self.store.remove_tree(folder)

    def _root(self, staged: bytes | None = None) -> Root:
        """Return the document: the `staged` one, or the one that is there now.

        Raises `FormatError` if it is no object.
        """
        if staged is not None:
            before = self.tree and self.tree.snapshot
            commits = before and before.members is not None and before.root
            return Root(staged, texts=commits.texts if commits else None)
        assert self.tree is not None  # a new dataset has a document
        found = self.tree.now(self.document)
        if found.root is None:
            raise DamageError(
                "expected an object in JSON, found %s" % shown(found.value),
                section="metadata",
                filename=self.store.path(self.document),
            )
        return found.root

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

    def _replace(self, content: bytes) -> object:
        """Replace the document; return the `Snapshot.version` of the new one."""
        raise NotImplementedError

    def _copy(self, name: str, content: bytes) -> None:
        """Write the own document of a member, which may be lost in a crash."""
        raise NotImplementedError

    def _sync(self) -> None:
        """Wait until all names are on the disk."""


class FolderChange(Change):
    """New files in a folder.

    `access` is that of new files and folders. `named` has the folders whose names are
    on the disk, as the writer knows from its earlier changes.
    """

    def __init__(
        self,
        store: Store,
        document: str,
        sync: bool = True,
        access: Access | None = None,
        named: set[str] | None = None,
    ) -> None:
        super().__init__(store, document)
        assert isinstance(store, FolderStore)
        self.store: FolderStore = store
        self._does_sync = sync
        self._access = Access(self.store) if access is None else access
        self._folders: set[str] = set()  # with names that are not on the disk yet
        self._named: set[str] = set() if named is None else named
        self._unnamed: set[str] = set()  # folders in use that are not in `_named`
        self._inodes: dict[int, str] = {}  # and the names of the folders in use
        self._staging: FolderStore | None = None  # the folder of changes, held open

    def model_of(self, name: str) -> Model | None:
        """Return the access of a dataset inside of a new one."""
        access = self._access
        return access.model_of(name) if isinstance(access, NewAccess) else None

    def make_folder(self, name: str) -> None:
        """Make a folder, unless there is one.

        A change that failed, or a writer that died, may have made it.
        """
        is_there = self.store.is_folder(name)
        if not is_there and self._is_replaced(name):
            with suppress(*GONE, FileExistsError):
                self._make_folder(name)
            return  # a file has the name, which is removed by `_complete`
        # One that was removed, as with a member, may have been on the disk before.
        if not is_there or name not in self._named:
            self._unnamed.add(name)
            self._folders.add(folder_of(name))
        if not is_there:
            self._make_folder(name)
        first = self._first_name(name)
        if first != name:
            raise UsageError(SAME_NAME % (first, name))

    def _first_name(self, name: str) -> str:
        """Return the first name of this change that is a name of the same folder."""
        status = self.store.status_of(name)
        if status is None:  # another program has removed it
            return name
        first = self._inodes.setdefault(status.st_ino, name)
        other = status if first == name else self.store.status_of(first)
        return first if other and os.path.samestat(status, other) else name

    def _make_folder(self, name: str) -> None:
        like = self._access.of_folder(name)
        self.store.make_folder(name, 0o777 if like is None else PRIVATE_FOLDER)
        made = self.store.subfolder(name).hold()
        if made.number is None or is_new_folder(made.number):
            self._access.give(made.number, like, name)
            self._access.note_new(name)

    def begin(self, name: str) -> UnfinishedFile:
        """Return a new file, whose content is written in pieces.

        `finish` or `abandon` must follow.
        """
        with self._lock:
            if self._staging is None:
                self._staging = self._open_staging()
        staged = self._staged_name()
        like = self._access.of_file(name)
        mode = 0o666 if like is None else PRIVATE
        fp = self._staging.create(staged.rpartition("/")[2], mode)
        return UnfinishedFile(name, staged, fp, like)

    def _is_file(self, name: str) -> bool:
        return self.store.exists(name) and not self.store.is_folder(name)

    def _open_staging(self) -> FolderStore:
        """Return the folder of changes; raise `StorageError` if it is not safe.

        In a folder for users who do not trust each other, another user may have made
        it, and may exchange the files in it.
        """
        try:
            self.make_folder(STAGING)
        except PermissionError as error:  # it concerns the dataset
            raise type(error)(error.errno, error.strerror, self.store.root) from error
        staging, outer = self.store.subfolder(STAGING), self.store.status
        owners = outer.st_uid, getattr(os, "geteuid", int)(), 0
        if self.store.is_sticky and staging.status.st_uid not in owners:
            text = "another user has made this folder"
            raise StorageError(errno.EPERM, text, staging.root)
        return staging

    def finish(self, file: UnfinishedFile, *, at_once: bool) -> None:
        """Give a file its name, `at_once` like `write`, or else like `stage`.

        If several calls make the change, their files are synced together.
        """
        is_late, name = self.is_joint and self._does_sync, file.name
        self._close(file, self._does_sync and not is_late)
        with self._lock:
            at_once = at_once and self._can_move(name)
            if at_once and not is_late:
                self._move(file.staged, name)
                self._take(name, None, is_early=False)
            else:
                self._take(name, file.staged, is_early=at_once)

    def _drop(self, staged: str) -> None:
        with suppress(FileNotFoundError):
            self.store.remove(staged)

    def _renew_token(self) -> None:
        root = self._root().changed({}, self._token)
        version = self._replace(root.content)
        assert self.tree is not None
        self.tree.committed(self.document, root, {}, version)

    def _sync_files(self) -> None:
        files = self._files
        if self.is_joint and self._does_sync:
            self.store.sync_files(files.values())
        for name in list(files):  # in the order in which they were written
            if name in self._early:
                self._move(files.pop(name), name)
        self._early.clear()

    def _close(self, file: UnfinishedFile, sync: bool) -> None:
        with file.fp:
            self._access.give(file.fp.fileno(), file.like, folder_of(file.name))
            if sync:
                disk.sync(file.fp)

    def abandon(self, *files: UnfinishedFile) -> None:
        """Close and remove files."""
        super().abandon(*files)
        for file in files if self.owner.is_here else ():
            assert self._staging is not None  # `begin` has opened it
            with suppress(FileNotFoundError):  # it had got its name when an error came
                self._staging.remove(file.staged.rpartition("/")[2])

    def discard(self) -> None:
        """Remove the files that have not got their names, and the new members.

        The list in the document must not have them.
        """
        if not self.owner.is_here:
            return
        for staged in self._files.values():
            self._drop(staged)
        for name in self.new_folders:
            self.store.remove_tree(name)

    def _stage_all(self) -> None:
        if self._does_sync and self._staging is not None:
            self.store.sync_folder(STAGING)

    def _move(self, staged: str | None, name: str) -> None:
        if staged is None:
            self.store.remove(name)
        else:
            self._rename(staged, name)
        self._folders.add(folder_of(name))

    def _rename(self, staged: str, name: str) -> None:
        try:
            self.store.rename(staged, name)
        except OSError:
            if not self.store.exists(staged):
                raise
            # A member of another kind had other folders.
            self._prune(name)
            parts = name.split("/")[:-1]
            for count in range(1, len(parts) + 1):
                self.make_folder("/".join(parts[:count]))
            self.store.rename(staged, name)

    def _remove_tree(self, folder: str) -> None:
        super()._remove_tree(folder)
        for known in self._folders, self._unnamed, self._named:
            known.difference_update([n for n in known if is_within(n, folder)])
        inodes = self._inodes.items()
        self._inodes = {i: n for i, n in inodes if not is_within(n, folder)}

    def _prune(self, name: str) -> None:
        """Remove the empty folders in a folder, and then that."""
        found = [n for n, kind in self.store.walk(name) if kind == stat.S_IFDIR]
        for folder in [*reversed(found), name]:
            with suppress(OSError):
                self.store.remove_folder(folder)
                self._folders.discard(folder)

    def _clean(self, names: Iterable[str]) -> None:
        super()._clean(names)
        for folder in self._replaced:
            self._prune(folder)

    def _replace(self, content: bytes) -> object:
        file = self._begin_with(self.document, content)
        self._close(file, self._does_sync)
        version = self.store.identity(file.staged)
        self._move(file.staged, self.document)
        return version

    def copy_again(self, name: str, document: Json) -> None:
        """Write the own document of a member if it is an older copy, or was lost."""
        content, own = encode_document(document, 2), b""
        with suppress(FileNotFoundError, ValueError):
            own = self.store.read(name, MAX_DOCUMENT)[0]
            if own == content or not is_copy(own, parse_json(own)):
                return
        self._copy(name, content)

    def _copy(self, name: str, content: bytes) -> None:
        file = self._begin_with(name, content)
        self._close(file, sync=False)
        self._rename(file.staged, name)

    def _sync(self) -> None:
        if self._does_sync:
            self.store.sync_folders(self._folders)
            self._named |= self._unnamed
        self._folders.clear()
        self._unnamed.clear()


def recover(tree: Tree, document: str, sync: bool = True) -> None:
    """Complete the change of a writer that died; remove what it had not committed."""
    store = tree.store
    assert isinstance(store, FolderStore)
    status = store.status_of(STAGING)
    if status is None:
        return
    if stat.S_ISLNK(status.st_mode):
        raise LinkFound(store.path(STAGING))
    if not stat.S_ISDIR(status.st_mode):
        raise StorageError(
            errno.ENOTDIR,
            "expected the folder of changes, found something else",
            store.path(STAGING),
        )
    change = FolderChange(store, document, sync)
    with suppress(FileNotFoundError):
        members = tree.read(document).members or {}
        change.complete(tree)
        for name, member in members.items():
            change.copy_again("%s/%s" % (name, ZARR_JSON), member)
    store.remove_tree(STAGING)


class ObjectChange(Change):
    """New objects of a dataset; `version` is the version of its document.

    The token of the change begins with `token`.

    A new content is spooled until `commit`: a value that does not fit must be found
    before the first object is stored. A store may take the content of an object for its
    version, so no content of the document comes back.
    """

    renews_token = True

    def __init__(
        self, store: Store, document: str, version: str, token: str = ""
    ) -> None:
        super().__init__(store, document)
        self._token = token + self._token
        self._versions = {document: version}
        # The staged files that are objects, and not only in one temporary file.
        self._stored: set[str] = set()
        # The extents of all of them there.
        self._extents: dict[str, tuple[int, int]] = {}
        self._spool: BinaryIO | None = None

    @property
    def version(self) -> str:
        """The version of the document now."""
        return self._versions[self.document]

    def lock(self, name: str) -> None:
        """Let `commit` raise `Conflict` if another writer changes an object."""
        if name not in self._versions:
            self._versions[name] = self.store.object_version(name)
            # After the version is known: a later writer must not have stored it.
            self.store.check_version(self.document, self.version)

    def begin(self, name: str) -> UnfinishedFile:
        """Return a temporary file for a new object."""
        self.lock(name)
        return UnfinishedFile(name, name, temporary_file())

    def finish(self, file: UnfinishedFile, *, at_once: bool) -> None:
        """Store an object, or let `commit` do it."""
        with file.fp as fp:
            fp.seek(0)
            content = fp.read()
        if at_once and self._can_move(file.name):
            self._put(file.name, content)
            self._take(file.name, None, is_early=False)
            return
        staged = self._staged_name()
        with self._lock:
            if self._spool is None:
                self._spool = temporary_file()
            offset = self._spool.seek(0, os.SEEK_END)
            self._spool.write(content)
            self._extents[staged] = offset, len(content)
        if self.is_joint:  # the next calls read it
            self._store(staged)
        self._take(file.name, staged, is_early=False)

    def _is_file(self, name: str) -> bool:
        return bool(self.store.object_version(name))

    def _store(self, staged: str) -> None:
        self.store.put(staged, self._content(staged), "")
        self._stored.add(staged)

    def _drop(self, staged: str) -> None:
        if staged in self._stored:
            self._stored.discard(staged)
            self.store.remove(staged)

    def _put(self, name: str, content: bytes) -> None:
        self._versions[name] = self.store.put(name, content, self._versions[name])

    def _content(self, staged: str) -> bytes:
        if staged not in self._extents:  # of a change that another writer has committed
            return self.store.read(staged)[0]
        assert self._spool is not None
        offset, size = self._extents[staged]
        with self._lock:
            self._spool.seek(offset)
            return self._spool.read(size)

    def discard(self) -> None:
        """Remove the objects that have not got their names."""
        for staged in [*self._stored]:
            self._drop(staged)

    def close(self) -> None:
        """Release what was not stored."""
        if self._spool is not None:
            self._spool.close()

    def _stage_all(self) -> None:
        for staged in self._files.values():
            if staged not in self._stored:
                self._store(staged)

    def _move(self, staged: str | None, name: str) -> None:
        if staged is None:
            # Before the check: a later writer may store the object again.
            version = self.store.object_version(name)
            self.store.check_version(self.document, self.version)
            self.store.remove(name, version)
            return
        content = self._content(staged)
        if name not in self._versions:
            self.lock(name)
        self._put(name, content)
        if staged in self._stored or staged not in self._extents:
            self.store.remove(staged)
            self._stored.discard(staged)

    def _complete(self, files: Mapping[str, str | None], root: bytes) -> object:
        try:
            return super()._complete(files, root)
        except Conflict:
            if self.store.object_version(self.document) == self.version:
                raise
            # A writer that has opened the dataset meanwhile has completed the change.
            return None

    def _replace(self, content: bytes) -> object:
        self._put(self.document, content)
        return None

    def _copy(self, name: str, content: bytes) -> None:
        with suppress(Conflict):
            self.store.put(name, content, None)


def recover_objects(tree: Tree, document: str) -> str:
    """Complete the change of a writer that died; return the version of the document."""
    version = tree.store.object_version(document)
    change = ObjectChange(tree.store, document, version)
    tree.read(document)  # after its version is known
    change.complete(tree)
    return change.version


def temporary_file() -> BinaryIO:
    """Return a file without a name, which the caller closes."""
    file: Any = tempfile.TemporaryFile()  # noqa: SIM115
    return file  # type: ignore[no-any-return]


@contextmanager
def naming_dataset(path: str, unfinished: str | None = None) -> Iterator[None]:
    """Let errors name the dataset if the disk is full, or a temporary folder fails.

    `unfinished` is how the path of a temporary folder begins.
    """
    try:
        yield
    except OSError as error:
        name = error.filename
        is_inside = unfinished is not None and str(name).startswith(unfinished)
        if is_inside or (name is None and error.errno in NO_ROOM):
            error.filename = path
            del error.filename2  # None would be shown
        raise


# What a new dataset may replace


def check_mode(mode: str) -> None:
    """Raise `UsageError` if a dataset can't be created with a mode."""
    if mode not in ("x", "w"):
        raise UsageValueError("mode must be 'x' or 'w' to create, not %r" % (mode,))


def not_replaced(path: str) -> StorageError:
    """Return the error for a folder that is no dataset, where one is to be created."""
    text = "it is not a dataset, and is not replaced by one"
    return StorageError(errno.EEXIST, text, path)
