"""Datasets in a store of objects: the right to change one, changes, new ones, removal.

Such a store can't rename objects, and has no locks. Each object is stored in one
request, if it still has the version that the change has found. `change` has the commit
point of a change.

The document of the dataset has a token. A writer stores it with a new one before its
first change: then each change of another writer fails with a `Conflict`, if the store
compares versions while it stores, as S3 does. With other stores, only one program may
write.

Writers with a `wait` take turns: the token of one begins with `HELD_TOKEN` until it is
closed. Another one waits, and takes over from a writer that has died.

While a dataset is created or removed, its document is that of `unfinished`, which no
reader takes for a dataset, and all that is in the folder belongs to the call that has
stored it. A call that finds the document of another call has lost the folder. The
commit point is the real document. The next call that creates a dataset removes what
such a call has left.
"""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

from .._engine.contexts import on_error
from .._engine.forks import Owner
from .._format.committed import STAGING, Root
from .._format.zarr_metadata import ZARR_JSON, encode_json, group_document
from .._storage.paths import taken_error
from .._storage.store import Conflict, Store, conflict
from .._storage.upload import check_writable
from ..exceptions import StorageError
from .change import Change, Datasets, UnfinishedFile, check_mode, not_replaced
from .locking import waiting
from .states import ALONE, TURNS
from .tree import Tree
from .writer import Rule

# Maximum number of times that a copy of a document is stored: a slow writer may store
# an older one just before.
COPY_ATTEMPTS = 3
# How the token of a document begins while a writer, for which others wait, has it.
HELD_TOKEN = "ffffffff"
# The attribute of a document in the place of one that is not there yet.
UNFINISHED = "bloscpack-unfinished"


def unfinished() -> bytes:
    """Return the document of a dataset that is not complete, with a new token."""
    return encode_json(group_document({UNFINISHED: os.urandom(8).hex()}))


def is_leftover(store: Store) -> bool:
    """Return whether all in a folder is of a dataset that is not complete."""
    with suppress(FileNotFoundError):
        # The document of a dataset is longer.
        return UNFINISHED.encode() in store.read(ZARR_JSON, len(unfinished()))[0]
    return False


class ObjectChange(Change):
    """New objects of a dataset; `version` is the version of its document.

    The token of the change begins with `token`.

    A new content is spooled until `commit`: a value that does not fit must be found
    before the first object is stored. A store may take the content of an object for its
    version, so no content of the document comes back.
    """

    renews_token = True

    def __init__(
        self, store: Store, version: str, tree: Tree | None = None, token: str = ""
    ) -> None:
        super().__init__(store, ZARR_JSON, tree)
        self.token = token + self.token
        self._versions = {ZARR_JSON: version}
        # The staged files that are objects, and not only in one temporary file.
        self._stored: set[str] = set()
        # The extents of all of them there.
        self._extents: dict[str, tuple[int, int]] = {}
        self._spool: BinaryIO | None = None

    @property
    def version(self) -> str:
        """The version of the document now."""
        return self._versions[ZARR_JSON]

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
        """Remove the objects that have not got their names; not in another process."""
        for staged in [*self._stored] if self.owner.is_here else ():
            self._drop(staged)

    def close(self) -> None:
        """Release what was not stored."""
        if self._spool is not None:
            self._spool.close()

    def _stage_all(self) -> None:
        for staged in filter(None, self._files.values()):
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
        self.lock(name)
        self._put(name, content)
        if staged in self._stored or staged not in self._extents:
            self.store.remove(staged)
            self._stored.discard(staged)

    def _complete(
        self, files: Mapping[str, str | None], root: bytes, copies: Mapping[str, bytes]
    ) -> object:
        try:
            return super()._complete(files, root, copies)
        except Conflict:
            if self.store.object_version(self.document) == self.version:
                raise
            # A writer that has opened the dataset meanwhile has completed the change.
            return None

    def _remove_tree(self, folder: str) -> None:
        # The objects are listed first: what a later writer stores stays.
        check = partial(self.store.check_version, self.document, self.version)
        self.store.remove_listed(folder, check)

    def _clean(self, names: Iterable[str]) -> None:
        with suppress(Conflict):  # the change is committed
            super()._clean(names)

    def _replace(self, content: bytes, name: str = "") -> object:
        self._put(name or self.document, content)
        return None

    def _copy(self, copies: Mapping[str, bytes]) -> None:
        store, left, attempts = self.store, {**copies}, COPY_ATTEMPTS
        with suppress(Conflict):
            while left and attempts:
                attempts -= 1
                versions = dict(zip(left, store.object_versions(left), strict=True))
                # After the versions are known: a later writer must not have stored one.
                store.check_version(self.document, self.version)
                for name, version in versions.items():
                    with suppress(Conflict):
                        store.put(name, left[name], version)
                        del left[name]


def recover_objects(tree: Tree, check: Callable[[str], object] = bool) -> str:
    """Complete the change of a writer that died; return the version of the document.

    `check` is called with the version before, and raises an error if the writer works.
    """
    version = tree.store.object_version(ZARR_JSON)
    change = ObjectChange(tree.store, version, tree)
    tree.read(ZARR_JSON)  # after its version is known
    check(version)
    change.complete()
    return change.version


def store_root(tree: Tree, content: bytes, version: str) -> str:
    """Store a document with another token, if it has a version; return the new one."""
    version = tree.store.put(ZARR_JSON, content, version)
    tree.committed(ZARR_JSON, Root(content), {})
    return version


def temporary_file() -> BinaryIO:
    """Return a file without a name, which the caller closes."""
    file: Any = tempfile.TemporaryFile()  # noqa: SIM115
    return file  # type: ignore[no-any-return]


@dataclass(eq=False)
class ClaimedObjects(Rule):
    """The right to change a dataset: its document has a token of this writer.

    Any program may change a group: a change claims it if another program has changed it
    since the last change, and raises `Conflict` if another one claims it meanwhile.

    Parameters
    ----------
    tree
        The documents of the dataset.
    is_shared
        Whether other writers may change the dataset between two changes.
    claimed
        A function that returns the document with a new token.
    prepare
        Called with the first change, or with each change if the dataset `is_shared`.
    wait
        Number of seconds to wait for another writer with a `wait`; 0 ends its right at
        once. A writer that completes no change in this time loses its right.
    """

    tree: Tree
    is_shared: bool
    claimed: Callable[[bytes, str], bytes]
    prepare: Callable[[Change], object]
    wait: float

    _holds = False
    # How the token begins that this writer has stored.
    _token = ""
    # A text that no document has but one that this writer has stored, or was going to
    # store; empty if it has to claim the dataset.
    _written = b""
    # That of a shared one is found by its first change.
    _version = ""

    def __post_init__(self) -> None:
        self._store, self._owner = self.tree.store, Owner()
        self.state = TURNS if self.is_shared else ALONE
        if not self.is_shared:
            self._take_turn()

    def _take_turn(self) -> None:
        """Find the version of the document; claim it if there is a time to wait.

        Raises `StorageError` if another writer still has the dataset, and works.
        """
        end, versions = time.monotonic() + self.wait, set[str]()

        def check(version: str) -> None:
            content = self.tree.state.root.content
            if self.wait and b" token=" + HELD_TOKEN.encode() in content:
                versions.add(version)
                if time.monotonic() < end or len(versions) > 1:
                    raise StorageError(
                        errno.EAGAIN,
                        "another writer has opened this dataset",
                        self._store.root,
                    )

        def take() -> None:
            self._find(check)
            if self.wait:
                with on_error(self.release):
                    self._claim(HELD_TOKEN)

        waiting(take, self.wait)

    def _claim(self, token: str = "") -> None:
        """Store the document with a new token, before the first change.

        Raises `Conflict` if another writer has changed the dataset since it was read.
        """
        # Of writers whose changes fail from now on, and not of later ones.
        left = self._store.names(STAGING)
        self._store_token(token)
        for name in left:
            self._store.remove("%s/%s" % (STAGING, name))

    def _store_token(self, token: str) -> None:
        """Store the document with a new token that begins with `token`."""
        self._written = self.claimed(self.tree.state.root.content, token)
        self._version = store_root(self.tree, self._written, self._version)
        self._token = token

    def recover(self) -> None:
        """Complete a commit that was interrupted.

        Raises `Conflict` if another writer has changed the dataset.
        """

        def check(version: str) -> None:
            content = self.tree.state.root.content
            known = self._written and self._written in content
            if not (known or version == self._version):
                raise conflict(self._store.root)

        self._find(check)
        self._written = b""

    def _find(self, check: Callable[[str], object] = bool) -> None:
        """Complete an interrupted commit, and find the version of the document."""
        self._version = recover_objects(self.tree, check)
        self.found = self.tree.state.root

    def claim(self) -> None:
        """Let the changes of other writers fail from now on, if it is not a group."""
        if self.state is ALONE and not (self._written or self.has_failed):
            with on_error(setattr, self, "has_failed", True):
                self._claim(self._token)

    @contextmanager
    def holding(self) -> Iterator[bool]:
        """Let the changes of all other writers fail, if they have changed a group.

        A group that does not commit its members is not claimed.
        """
        if self.state is ALONE or self._holds:
            yield False
            return
        if self.tree.state.members is not None and self.wait:
            self._take_turn()
        elif not self._version or self._version != self._store.object_version(
            ZARR_JSON
        ):
            with suppress(FileNotFoundError):  # a folder becomes a group
                self._find()
                if self.tree.state.members is not None:
                    with on_error(setattr, self, "_version", ""):
                        self._claim()
        self._holds = True
        try:
            yield True
        except BaseException:
            self.release()
            self._version = ""  # it is found again
            raise
        finally:
            self._holds = False
            self.release()

    @contextmanager
    def changing(self) -> Iterator[Change]:
        """Yield a change, which is committed within the block."""
        with self.holding():
            self.claim()
            is_alone, tree, token = self.state is ALONE, self.tree, self._token
            change = ObjectChange(self._store, self._version, tree, token)
            self._written = change.token.encode()
            try:
                self.prepare(change)
                yield change
                if is_alone:
                    self.prepare = bool
            except BaseException as error:
                if not change.is_complete:  # and another one may have changed it
                    is_unknown = isinstance(error, StorageError)
                    self.has_failed = is_unknown or change.is_committing
                if not change.is_committing:
                    with suppress(StorageError):
                        change.discard()
                raise
            finally:
                change.close()
            self._version = change.version

    def release(self) -> None:
        """Store a token for which no other writer waits."""
        if self._token and self._owner.is_here:
            with suppress(StorageError):  # another writer has taken over
                self._store_token("")
            self._token = ""


# New datasets, and those that are removed


class Claim:
    """The right to create a dataset in a folder; `version` is its document's.

    Raises an error if there is something that must stay.

    `replaces` says whether there is another one, which is removed when it is taken.
    """

    def __init__(self, store: Store, mode: str, datasets: Datasets) -> None:
        self._store = store
        self._mode = mode
        self._datasets = datasets
        self.version = ""
        self.replaces = False
        self.check_free()

    def check_free(self) -> str:
        """Return the version of the document, which `take` is going to replace.

        Raises an error if there is something that must stay.
        """
        store = self._store
        check_writable(store.root)
        check_mode(self._mode)
        version = store.object_version(ZARR_JSON)
        if (version or store.names()) and not is_leftover(store):
            if self._mode == "x":
                raise taken_error(store.root)
            if self._datasets.kind_of(store) is None:
                raise not_replaced(store.root)
            self._datasets.check_independent(store)
            self.replaces = True
        around = store.parent()
        if around is not None:
            self._datasets.check_group(around[0])
        return version

    def take(self) -> None:
        """Remove what is in the folder, which belongs to this call from now on."""
        self.version = make_empty(self._store, self.check_free())

    def empty(self) -> bool:
        """Remove all but the document; return whether that has succeeded.

        It fails if another call has taken the folder.
        """
        if not self.version:
            return False
        try:
            self.version = make_empty(self._store, self.version)
        except StorageError:
            return False
        return True


def make_empty(store: Store, version: str | None = None) -> str:
    """Remove a dataset but for a document that says so; return its version.

    Raises `Conflict` if the document has not the expected `version`, if that is given.
    """
    version = store.put(ZARR_JSON, unfinished(), version)  # commit point: it is gone
    store.remove_all(partial(store.check_version, ZARR_JSON, version), but=ZARR_JSON)
    return version


def remove_dataset(store: Store) -> None:
    """Remove a dataset, in one step for all who look for it."""
    store.remove(ZARR_JSON, make_empty(store))


@contextmanager
def creating(store: Store, mode: str, datasets: Datasets) -> Iterator[Change]:
    """Yield a change of a new dataset, which is there when the block ends.

    The folder is taken when the first object is going to be stored, which is at the end
    if there is a dataset: a wrong call, or an error of a source, must not remove that.
    """
    claim = Claim(store, mode, datasets)
    change = NewObjects(store, claim)
    try:
        yield change
        change.commit()
    except BaseException:
        with suppress(StorageError):
            if change.owner.is_here and is_leftover(store) and claim.empty():
                # Behind all others: it says whose these are.
                store.remove(ZARR_JSON, claim.version)
        raise
    finally:
        change.close()


class NewObjects(ObjectChange):
    """The objects of a new dataset, which `claim` gives the folder."""

    def __init__(self, store: Store, claim: Claim) -> None:
        super().__init__(store, "")
        self._claim = claim

    def lock(self, name: str) -> None:
        """Take the folder before the first object is stored; there are no others.

        If it has a dataset, `commit` takes it: until then, the source of the new one
        may fail.
        """
        self._versions.setdefault(name, "")
        if not (self._claim.replaces or self._claim.version):
            self._take_folder()

    def _take_folder(self) -> None:
        self._claim.take()
        self._versions[ZARR_JSON] = self._claim.version

    def _can_move(self, name: str) -> bool:
        return not self._claim.replaces and super()._can_move(name)

    def commit(self) -> None:
        """Store the staged objects, and the document last."""
        if not self._claim.version:
            self._take_folder()
        for name, staged in self._files.items():
            assert staged is not None  # a new dataset removes no file
            self._put(name, self._content(staged))
        self._files.clear()
        super().commit()
