"""A change of a dataset in a folder, and its completion after its writer has died.

New contents are files in the folder ``.bloscpack`` until they are renamed. See `change`
for the commit point.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from .._format.committed import STAGING
from .._format.names import is_within
from .._format.zarr_metadata import ZARR_JSON
from .._storage.disk import NO_ROOM, disk
from .._storage.folder_store import FolderStore, LinkFound, identity_of
from .._storage.store import Store
from ..exceptions import StorageError, UsageError
from .access import Access, Model, NewAccess, folder_of
from .change import GONE, PRIVATE, PRIVATE_FOLDER, SAME_NAME, Change, UnfinishedFile
from .ownership import is_new_folder
from .tree import Tree, member_of


class FolderChange(Change):
    """New files in a folder.

    `access` is that of new files and folders. `named` has the folders whose names are
    on the disk, as the writer knows from its earlier changes. `has_moved` says that a
    file has got its name.
    """

    has_moved = False

    def __init__(
        self,
        store: Store,
        document: str,
        sync: bool = True,
        access: Access | None = None,
        named: set[str] | None = None,
        tree: Tree | None = None,
    ) -> None:
        super().__init__(store, document, tree)
        assert isinstance(store, FolderStore)
        self.store: FolderStore = store
        self._does_sync = sync
        self._access = Access(self.store) if access is None else access
        self._folders: set[str] = set()  # with names that are not on the disk yet
        self._named: set[str] = set() if named is None else named
        self._inodes: dict[int, str] = {}  # and the names of the folders in use
        self._in_use: set[str] = set()  # of which `make_folder` has returned
        self._staging: FolderStore | None = None  # the folder of changes, held open

    def model_of(self, name: str) -> Model | None:
        """Return the access of a dataset inside of a new one."""
        access = self._access
        return access.model_of(name) if isinstance(access, NewAccess) else None

    def make_folder(self, name: str) -> None:
        """Make a folder, unless there is one.

        A change that failed, or a writer that died, may have made it.
        """
        if name in self._in_use:
            return
        status = self.store.status_of(name)
        is_there = status is not None and stat.S_ISDIR(status.st_mode)
        if not is_there and self._is_replaced(name):
            with suppress(*GONE, FileExistsError):
                self._make_folder(name)
                self._folders.add(folder_of(name))
            return  # a file has the name, which is removed by `_complete`
        # One that was removed, as with a member, may have been on the disk before.
        if not is_there or name not in self._named:
            self._folders.add(folder_of(name))
        if not is_there:
            status = self._make_folder(name)
        if status is not None:
            first = self._inodes.setdefault(status.st_ino, name)
            other = None if first == name else self.store.status_of(first)
            if other is not None and os.path.samestat(status, other):
                raise UsageError(SAME_NAME % (first, name))
        self._in_use.add(name)

    def _make_folder(self, name: str) -> os.stat_result:
        """Make a folder, and return its status."""
        like = self._access.of_folder(name)
        self.store.make_folder(name, 0o777 if like is None else PRIVATE_FOLDER)
        made = self.store.subfolder(name).hold()
        if made.number is None or is_new_folder(made.number):
            self._access.give(made.number, like, name)
            self._access.new.add(name)
        return made.status

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
        root = self._root().changed({}, self.token)
        version = self._replace(root.content)
        assert self.tree is not None
        self.tree.committed(self.document, root, {}, version)

    def _sync_files(self) -> None:
        files = self._files
        if self.is_joint and self._does_sync:
            self.store.sync_files(filter(None, files.values()))
        for name in list(files):  # in the order in which they were written
            if name in self._early:
                self._move(files.pop(name), name)
        self._early.clear()

    def _close(self, file: UnfinishedFile, sync: bool) -> object:
        """Close a complete file; return its identity."""
        with file.fp:
            self._access.give(file.fp.fileno(), file.like, folder_of(file.name))
            if sync:
                disk.sync(file.fp)
            return identity_of(os.fstat(file.fp.fileno()))

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
        for staged in filter(None, self._files.values()):
            self._drop(staged)
        for name in sorted(self.new_folders):
            self.store.remove_tree(name)

    def _stage_all(self) -> None:
        if self._does_sync and self._staging is not None:
            self.store.sync_folder(STAGING)

    def _move(self, staged: str | None, name: str) -> None:
        self.has_moved = True
        if staged is None:
            self.store.remove(name)
        else:
            self._rename(staged, name)
        self._folders.add(folder_of(name))

    def _rename(self, staged: str, name: str) -> None:
        source = self._staging or self.store.subfolder(STAGING)
        last = staged.rpartition("/")[2]
        try:
            self.store.rename(last, name, source)
        except OSError:
            if not self.store.exists(staged):
                raise
            # A member of another kind had other folders.
            self._prune(name)
            self.make_folders(name)
            self._sync()  # a file must not be in a folder that may be lost
            self.store.rename(last, name, source)

    def _remove_tree(self, folder: str) -> None:
        super()._remove_tree(folder)
        for known in self._folders, self._named, self._in_use:
            known.difference_update([n for n in known if is_within(n, folder)])
        inodes = self._inodes.items()
        self._inodes = {i: n for i, n in inodes if not is_within(n, folder)}

    def _prune(self, name: str) -> None:
        self._in_use.clear()
        inside = [n for n, kind in self.store.walk(name) if kind == stat.S_IFDIR]
        for folder in [*reversed(inside), name]:
            with suppress(OSError):
                self.store.remove_folder(folder)
                self._folders.discard(folder)

    def _replace(self, content: bytes, name: str = "") -> object:
        file = self._begin_with(name or self.document, content)
        version = self._close(file, self._does_sync)
        self._move(file.staged, file.name)
        return version

    def _copy(self, copies: Mapping[str, bytes]) -> None:
        for name, content in copies.items():
            file = self._begin_with(name, content)
            identity = self._close(file, sync=False)
            self._rename(file.staged, name)
            if self.tree is not None:
                self.tree.note_copy(member_of(name), identity)

    def _sync(self) -> None:
        if self._does_sync:
            self.store.sync_folders(self._folders)
            self._named |= self._in_use
        self._folders.clear()


def recover(
    store: FolderStore,
    new_change: Callable[[], FolderChange],
    tidy: Callable[[Tree], object],
) -> None:
    """Complete the change of a writer that died; remove what it had not committed.

    `new_change` returns a new one of the dataset in `store`. `tidy` removes the files
    of items that no document has: other programs would find them when they add items.
    """
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
    change = new_change()
    assert change.tree is not None
    with suppress(FileNotFoundError):
        state = change.tree.read(change.document)
        change.complete()
        change.tree.compare_again()
        for path, member in (state.members or {}).items():
            name = "%s/%s" % (path, ZARR_JSON)
            change.tree.document(name)
            if change.tree.is_stale(path):
                change._copy({name: state.root.in_own_file(path, member)})
        tidy(change.tree)
    store.remove_tree(STAGING)


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
