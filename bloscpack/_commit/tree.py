"""The documents of a tree: a dataset with all that its document commits.

A `TreeState` is one state of them, which is never changed. A `Tree` has the present
one, and a `Draft` the one that a change is going to commit. All documents are read
here: readers take over what another program has committed, and a writer makes the next
state from its change without reading it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from .. import log
from .._engine.forks import ForkSafeLock
from .._format.committed import DOCUMENTS, Root, decode_members, decode_pending
from .._format.identity import (
    CONSOLIDATED,
    as_member,
    belongs_to,
    is_copy,
    is_copy_of,
    is_of_other,
    is_outdated,
    says_committed,
    says_same,
    stated_identity,
)
from .._format.names import folders_of, is_within
from .._format.zarr_metadata import ZARR_JSON, encode_copied
from .._storage.base import Storage
from .._storage.folder_store import HAS_OPEN_FOLDERS, FolderStore, StaleDataset
from .._storage.store import Store
from .._types import Json
from ..constants import MAX_DOCUMENT
from ..exceptions import FormatError, metadata_damage
from ..serializers import parse_json
from .pin import Pin

Result = TypeVar("Result")
# A document, and the value in it.
Document = tuple[bytes, Json]
# Number of documents, and maximum size in bytes of one, that stay decoded: those of few
# datasets, which are opened again and again.
KEPT, MAX_KEPT = 32, 2**14


def decode_json(text: bytes, path: str) -> Json:
    """Return the value in a file of JSON; raise `FormatError` if it has none."""
    try:
        return parse_json(text)
    except ValueError as error:
        raise metadata_damage(
            "expected a value in JSON, found '%d' bytes: %s" % (len(text), error),
            filename=path,
        ) from error


# The document of a dataset that was not read.
NO_DOCUMENT = Root(b"null")
# The version of a document of which a copy was read, in the document of a group around.
COPY = object()
# What is known of the own document of a member that was not compared with its copy.
NOT_COMPARED = None, False
# The notice about such a document of a member.
OUTDATED = (
    "'%s': another program has written this document over an older state: the last "
    "change counts, and only the attributes of this document were taken over"
)


class TreeState:
    """One state of the documents of a tree; it is never changed.

    Raises `FormatError` if the document has a wrong list of files or of members.

    Attributes
    ----------
    name
        The name of the document of the dataset; empty if it was not read.
    version
        The `Store.identity` of the document; None if it is not known, as at a URL, and
        `COPY` for a copy in the document of a group around.
    root
        The document. The value in it lacks the documents of members if this process has
        committed it.
    pending
        The files that a change replaces, and where their new content is until they have
        it; None for a file that it removes, and that may not be removed yet, so that a
        name is looked up with another default.
    members
        The documents of members that the document commits, as values; None if it
        commits none.
    copies
        The copies of documents in the document, whoever has written it, by path; None
        for one of which only the path is known.
    """

    def __init__(
        self,
        name: str = "",
        content: bytes = b"",
        value: Json = None,
        version: object = None,
        copies: Mapping[str, Json] | None = None,
    ) -> None:
        self.pending: Mapping[str, str | None] = decode_pending(value, content)
        self.name, self.version, self._file = name, version, None
        self.root = Root(content, value) if content else NO_DOCUMENT
        self.members = decode_members(value, content)
        stored = value.get(CONSOLIDATED) if isinstance(value, dict) else None
        inside = stored.get("metadata") if isinstance(stored, dict) else None
        inside = inside if isinstance(inside, dict) else {}
        self.copies: Mapping[str, Json] = copies or {**inside}

    @property
    def is_committed_around(self) -> bool:
        """Whether the document says that the one of a group around commits it."""
        return " column=" in self.root.epoch

    def again(self, version: object, file: object) -> TreeState:
        """Return the same state, after the same document was read from another file.

        As long as this `file` is open, no other one gets its inode: a file of the same
        `version` is the same file.
        """
        state = TreeState.__new__(TreeState)
        vars(state).update(vars(self), version=version, _file=file)
        return state

    def outdates(self, path: str, own: Json) -> bool:
        """Return whether a member's own document was written over an older one."""
        is_replaced = any(is_within(name, path) for name in self.pending)
        copy = (self.members or {}).get(path)
        return is_outdated(own, copy, is_replaced=is_replaced)

    def inner(self, path: str) -> TreeState:
        """Return what the copies say about a dataset inside, which is no member."""
        start, value = path + "/", self.copies.get(path)
        copies = {
            inside[len(start) :]: copy
            for inside, copy in self.copies.items()
            if inside.startswith(start)
        }
        with suppress(FormatError):  # its own document tells
            if value and isinstance(value, dict):
                content = encode_copied(value)
                return TreeState(ZARR_JSON, content, value, COPY, copies=copies)
        return TreeState(copies=copies)


# The state of a tree whose document was not read yet.
NOT_READ = TreeState()


def _decode(name: str, content: bytes) -> TreeState:
    """Return the state with a document, of no file; errors have no path."""
    return TreeState(name, content, decode_json(content, name))


_decode_short = lru_cache(KEPT)(_decode)


class Tree:
    """The present state of the documents of a tree, in a store.

    Any thread may use it.

    Attributes
    ----------
    state
        The present state, as far as it was read.
    uses_copies
        Whether copies of documents count that any program has made in a group, as
        ``zarr.consolidate_metadata`` does. At a URL they count instead of the documents
        themselves, as for other readers of Zarr: the document of the group tells all
        about its members. A writer, and a check, read the documents themselves.
    pin
        Notes the files that are read, for `dataset.open` with ``pinned=True``; else
        None.
    replacing
        Held while what is open for reading gets the present state: of two threads, the
        later one has the later state.
    """

    pin: Pin | None = None

    def __init__(self, store: Store, around: tuple[Tree, str] | None = None) -> None:
        self.store = store
        self.uses_copies = store.is_remote
        self.state = NOT_READ
        # By path, the own documents of members that were compared with their copies:
        # the version, None for a lost one, and whether it is an older copy; or, if
        # another program has written it, the copy that has taken it over.
        self._compared: dict[str, tuple[object, Json]] = {}
        # Other documents, but for those of members, with versions and open files.
        self._others: dict[str, tuple[Document, object, object]] = {}
        self._lock, self.replacing = ForkSafeLock(), ForkSafeLock()
        if around is not None:
            self.uses_copies, self.pin = around[0].uses_copies, around[0].pin
            if store.is_remote:  # in a folder, the copies count for nothing
                self.state = inner = around[0].state.inner(around[1])
                if not self.uses_copies:  # a server of HTTP has no other list of names
                    self.state = TreeState(copies=dict.fromkeys(inner.copies))

    def close(self) -> None:
        """Close the file of the document, which stays known."""
        with self._lock.current:
            self._others = {}
            self.state = self.state.again(self.state.version, None)

    def attach_pin(self, pin: Pin) -> None:
        """Note each file that is read from now on, and the documents read before."""
        self.pin, known = pin, self.state
        read = {name: version for name, (_, version, _) in self._others.items()}
        if known.name:
            read[known.name] = known.version
        for path, (version, _) in self._compared.items():
            read["%s/%s" % (path, ZARR_JSON)] = version
        for name, version in read.items():
            if version is not None:
                pin.note(self.store, name, version)

    def forget(self) -> None:
        """Keep no documents in a folder: they are read again when they are used."""
        if self.store.is_remote:
            return
        with self._lock.current:
            state = self.state.again(None, None)
            state.root = NO_DOCUMENT
            self._others, self.state = {}, state

    def ignore_copies(self) -> None:
        """Let the documents themselves count from now on, also those of members."""
        self.uses_copies = False
        self.store.prepare(())
        if self.state.version is COPY:
            self.state = TreeState()

    # The document of the dataset

    def read(self, name: str = "") -> TreeState:
        """Read the document again, or for the first time; return the present state.

        If another thread has taken over a state meanwhile, it is read once more: it may
        be the one before.
        """
        while True:
            before = self.state
            if before.name or not name:
                self._others = {}
                self.store.prepare(())
            state = self._read(name or before.name, before)
            with self._lock.current:
                if self.state is before:
                    self.state = state
                    return state

    def _read(self, name: str, before: TreeState) -> TreeState:
        if not name:
            return TreeState()
        content, version, file = self._load(name)
        is_same = (name, content) == (before.name, before.root.content)
        is_known = before.root is not NO_DOCUMENT and before.version is not COPY
        if is_same and is_known:
            return before.again(version, file)
        decode = _decode_short if len(content) <= MAX_KEPT else _decode
        try:
            state = decode(name, content).again(version, file)
        except FormatError as error:
            error.filename = self.store.path(name)
            raise
        if not before.name and before.copies:
            state.copies = before.copies
        return state

    def _load(self, name: str) -> tuple[bytes, object, object]:
        """Return the content of a document, its version, and the open file."""
        store, file = self.store, None
        version: object
        if HAS_OPEN_FOLDERS and isinstance(store, FolderStore):
            file = store.open(name)
            content, version = file.read_whole(MAX_DOCUMENT), file.identity
            file.may_close()
        else:
            content, version = store.read(name, MAX_DOCUMENT, whole=True)
        if self.pin is not None:
            self.pin.note(store, name, version)
        return content, version, file

    def renew(self) -> TreeState:
        """Read the document again if another program has replaced it.

        Returns the present state. At a URL, `read` does so.
        """
        known = self.state
        with suppress(FileNotFoundError, StaleDataset):  # other reads say so
            return self.now(known.name) if known.name else known
        return known

    def now(self, name: str) -> TreeState:
        """Return the state with the document `name` as it is now.

        At a URL it is the one that was read.
        """
        known, store = self.state, self.store
        is_same = store.is_remote or store.has_identity(name, known.version)
        return known if known.name == name and is_same else self.read(name)

    def committed(
        self, name: str, root: Root, members: Mapping[str, Json], version: object = None
    ) -> None:
        """Take over the state after a change, whose document is `root`.

        `members` has the documents that have changed; None for one that was removed.
        """
        with self._lock.current:
            # Another thread may have read the list of this change, which is complete.
            known, content = self.state, root.content
            state = known.again(version, None)
            state.name, state.root, state.pending = name, root, {}
            if known.members is None and CONSOLIDATED in root.document:
                state = TreeState(name, content, parse_json(content), version)
            elif known.members is not None and members:
                after = {**known.members, **members}
                state.members = {n: value for n, value in after.items() if value}
            self.state = state

    # All documents

    def document(self, name: str) -> Document:
        """Return a document as it is now, at a URL as it was read, and its value.

        The value must not be changed.
        """
        if name in DOCUMENTS:
            state = self.now(name)
            return state.root.content, state.root.document
        copied, known, path = self.copy(name), self.state, member_of(name)
        if copied is not None:
            return copied
        if path in (known.members or ()):
            return self._member(path, name)
        others = self._others  # another thread may replace it
        kept = None if path or known.pending.get(name) else others.get(name)
        if kept is not None:
            document, version, _ = kept
            if self.store.is_remote or self.store.identity(name) == version:
                return document
        content, version, file = self.located(name, self._load)
        document = content, decode_json(content, self.store.path(name))
        if not path:
            others[name] = document, version, file
        return document

    def copy(self, name: str) -> Document | None:
        """Return a document and its value, of which a copy counts at a URL."""
        path, known = member_of(name), self.state
        if not path or not self.store.is_remote:
            return None
        if known.members and path in known.members:
            member = known.members[path]
            return known.root.in_own_file(path, member), member
        copied = known.copies.get(path) if self.uses_copies else None
        if not copied or not isinstance(copied, dict):
            return None
        return encode_copied(copied), copied

    def _member(self, path: str, name: str) -> Document:
        """Return the document of a member.

        The copy in the document of its group counts, unless another program has
        replaced the own document of the member.
        """
        version, taken = self._compared.get(path, NOT_COMPARED)
        is_copied = isinstance(taken, bool) and self.store.has_identity(name, version)
        read = None
        if not is_copied:
            with suppress(FileNotFoundError, FormatError):  # it was lost in a crash
                content, identity, _ = self.located(name, self._load)
                read = content, decode_json(content, self.store.path(name)), identity
        # The document around it may have changed, or be gone, too.
        state = self.now(self.state.name) if read is None else self.renew()
        known = state.members or {}
        if read is not None and not self._compare(path, *read):
            content, own, _ = read
            if state.outdates(path, own):
                content = as_member(content, own, known[path], is_old=True)
                own = parse_json(content)
            return content, own
        if path not in known:
            raise missing(self.store.path(name))
        if read is None and not is_copied:
            self._compared[path] = None, True
        return state.root.in_own_file(path, known[path]), known[path]

    def _compare(self, path: str, content: bytes, own: Json, identity: object) -> bool:
        """Return whether the own document of a member is a copy, perhaps an older one.

        Then its file, which has the `identity`, need not be read again.
        """
        member = (self.state.members or {}).get(path)
        if is_copy_of(content, own, member):
            self._compared[path] = identity, own != member
            return True
        self._compared.pop(path, None)
        return False

    def has_older_document(self, path: str) -> bool:
        """Return whether the own document of a member is from before an open change.

        It is of one that the member has replaced, or the same but for copies in it.
        Others stay: another program may have written one since the change.
        """
        own, copy = self._own(path)[1], (self.state.members or {})[path]
        if is_of_other(own, copy):
            return is_outdated(own, copy, is_replaced=True)
        has_copies = bool(stated_identity(own)) and CONSOLIDATED in own
        return has_copies and says_same(own, copy)

    def belongs(self, path: str, content: bytes, own: Json) -> bool:
        """Return whether the dataset commits a member, which has an own document.

        Another program may have taken the identity out of the document of a dataset
        that somebody has put in the place of the member, and that commits what is in
        it: then the documents there are copies, and none is one of a member here. What
        is left of a removed member tells nothing.
        """
        known, members = self.state, self.state.members or {}
        if not belongs_to(content, own, members.get(path)):
            return False
        if known.pending or self.store.is_remote:
            return True
        around = path.rpartition("/")[0]
        if stated_identity(own):
            is_moved = is_of_other(own, members.get(path)) and around in members
            outer = self._own(around) if is_moved else (b"", None)
            return not outer[0] or self.belongs(around, *outer)
        inside = [p for p in members if p.rpartition("/")[0] == path]
        entries = self.store.entries(path) if inside else ()
        folders = ["%s/%s" % (path, n) for n, kind in entries if kind == stat.S_IFDIR]
        found = {folder: self._own(folder) for folder in folders}
        copies = {p: found[p][1] for p in found if is_copy(*found[p])}
        is_here = (not is_of_other(copies[p], members.get(p)) for p in copies)
        return not copies or any(is_here)

    def _own(self, path: str) -> Document:
        """Read the own document of a member; return an empty one if there is none."""
        name = "%s/%s" % (path, ZARR_JSON)
        with suppress(FileNotFoundError, NotADirectoryError, FormatError):
            content = self.store.read(name, MAX_DOCUMENT)[0]
            return content, decode_json(content, self.store.path(name))
        return b"", None

    def compare_again(self) -> None:
        """Compare the own documents of all members again: a commit was interrupted."""
        self._compared.clear()

    def note_copy(self, path: str, identity: object) -> None:
        """Note the file of a member's own document, which a change has written."""
        self._compared[path] = identity, False

    def is_stale(self, path: str) -> bool:
        """Return whether the own document of a member was found to be an old copy."""
        return self._compared.get(path, NOT_COMPARED)[1] is True

    def compare_all(
        self, changed: Container[str]
    ) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """Compare the own documents of members with their copies.

        Returns the documents that other programs have replaced, by path, and those that
        are to be written again, by name. A file that is a copy is not read again, nor
        one that was copied, unless the member is to be `changed`.
        """
        replaced, stale = dict[str, bytes](), dict[str, bytes]()
        store, known = self.store, self.state
        members = known.members or {}
        if store.is_remote:  # each look at another one is a request
            members = {path: members[path] for path in filter(self.is_stale, members)}
        if members:
            _ = known.root.texts  # of all members in one step, for `in_own_file`
        for path, own in members.items():
            name, value = "%s/%s" % (path, ZARR_JSON), own
            seen, taken = self._compared.get(path, NOT_COMPARED)
            is_known = isinstance(taken, bool) or (own == taken and path not in changed)
            if not (is_known and store.has_identity(name, seen)):
                with suppress(FileNotFoundError, FormatError):  # it was lost in a crash
                    content, identity = store.read(name, MAX_DOCUMENT)
                    if content != known.root.in_own_file(path, own):
                        value = decode_json(content, store.path(name))
                    is_copied = self._compare(path, content, value, identity)
                    if not is_copied and isinstance(value, dict):
                        is_old = known.outdates(path, value)
                        new = content
                        if self.belongs(path, content, value):
                            new = as_member(content, value, own, is_old=is_old)
                        replaced[path] = new
                        self._compared[path] = identity, (taken := Root(new).document)
                        if is_old:
                            stale[name] = new
                            if not says_same(value, taken):
                                log.notice(OUTDATED % store.path(name))
            if self.is_stale(path):
                stale[name] = known.root.in_own_file(path, own)
        if stale:  # a dataset in the place of a member has other documents in it
            now = {**members, **{p: Root(new).document for p, new in replaced.items()}}
            outer = {p for p in now if not says_committed(now[p])}
            stale = {n: stale[n] for n in stale if outer.isdisjoint(folders_of(n)[2:])}
        return replaced, stale

    def take_paths(self, paths: Iterable[str]) -> None:
        """Note that there are members at some paths."""
        with self._lock.current:
            known = self.state
            state = known.again(known.version, known._file)
            state.copies = {**dict.fromkeys(paths), **known.copies}
            self.state = state

    # Other files

    def note_read(self, name: str, file: Storage | None) -> None:
        """Note, for the `pin`, a file that was opened; None if there is none."""
        if self.pin is None:
            return
        staged, identity = self.state.pending.get(name, ""), None
        if file is not None:
            identity = file.identity
            if staged and self.store.has_identity(staged, identity):
                name = staged
        elif staged is None:  # it may still be there
            return
        self.pin.note(self.store, name, identity)

    def will_have(self, folder: str) -> bool:
        """Return whether a change that is not complete may make a folder."""
        known = self.state
        new = [name for name, staged in known.pending.items() if staged]
        inside = (*new, *(known.members or ())) if known.pending else ()
        return any(is_within(name, folder) for name in inside)

    def located(self, name: str, call: Callable[[str], Result]) -> Result:
        """Return the result of a call with the name that has the content of a file."""
        staged = self.state.pending.get(name, "")
        if staged is None:
            raise missing(self.store.path(name))
        if staged:
            # The file has got its name meanwhile, and its folder may be gone, too.
            with suppress(FileNotFoundError, StaleDataset):
                return call(staged)
        return call(name)


@dataclass(eq=False)
class Draft(Tree):
    """The documents and files as a change leaves them that is not committed yet.

    Only those who make the change see it. The rest is read from the present state.

    Parameters
    ----------
    before
        The tree with the present state; also an attribute.
    documents
        The documents that the change has staged, by name; None for one that it removes.
    files
        As `TreeState.pending`.
    staged
        By folder: the names of these inside of it. The change adds to all three.
    """

    before: Tree
    documents: Mapping[str, bytes | None]
    files: Mapping[str, str | None]
    staged: Mapping[str, set[str]]

    def __post_init__(self) -> None:
        self.store, self.uses_copies = self.before.store, self.before.uses_copies
        self._values: dict[str, Json] = {}
        known = self.before.state
        # The members of the state before; by folder, and None until they are used.
        self._before = known.members or {}
        self._members: dict[str, list[str]] | None = None
        self.state = state = known.again(known.version, None)
        # The only state that changes: no other object refers to it.
        state.pending = self.files
        state.members = None if known.members is None else {**known.members}
        for name in self.documents:
            self.take(name)

    def close(self) -> None:
        """Do nothing: no file is kept open."""

    forget = close

    def read(self, name: str = "") -> TreeState:
        """Return the draft: no other program changes the dataset meanwhile."""
        return self.state

    renew = now = read

    def inside(self, folder: str) -> set[str]:
        """Return the staged names, and the old members, that are in a folder."""
        if self._members is None:
            members: dict[str, list[str]] = {}
            for path in self._before:
                for around in folders_of(path):
                    members.setdefault(around, []).append(path)
            self._members = members  # complete, for other threads
        return {*self.staged.get(folder, ()), *self._members.get(folder, ())}

    def will_have(self, folder: str) -> bool:
        """Return whether the change may make a folder, or it belongs to a member."""
        known, names = self.state, self.inside(folder)
        return any(known.pending.get(n) or n in (known.members or ()) for n in names)

    def take(self, name: str) -> None:
        """Take over a document that the change has staged."""
        self._values.pop(name, None)
        path, members = member_of(name), self.state.members
        if path and members is not None:
            if self.documents.get(name) is None:
                members.pop(path, None)
            else:
                members[path] = self.document(name)[1]

    def document(self, name: str) -> Document:
        """Return a document as the change leaves it, and its value."""
        if name not in self.documents:
            if name in self.files:
                content = self.located(name, self._load)[0]
                return content, decode_json(content, self.store.path(name))
            return self.before.document(name)
        staged = self.documents[name]
        if staged is None:
            raise missing(self.store.path(name))
        if name not in self._values:
            self._values[name] = decode_json(staged, self.store.path(name))
        return staged, self._values[name]

    def located(self, name: str, call: Callable[[str], Result]) -> Result:
        """Return the result of a call with the name that has the content of a file."""
        staged = self.files.get(name, "")
        if staged is None:
            raise missing(self.store.path(name))
        return call(staged) if staged else self.before.located(name, call)


def member_of(name: str) -> str:
    """Return the path of the member whose document has a name; '' for other names."""
    path, _, last = name.rpartition("/")
    return path if last == ZARR_JSON else ""


def missing(path: str) -> FileNotFoundError:
    """Return the error about a file that does not exist."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
