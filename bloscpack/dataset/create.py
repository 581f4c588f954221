"""New datasets: written beside their name, and renamed when they are complete.

The rename is the commit point. A dataset that is replaced stays under its name until
then; where the system can't exchange two folders, it has no name for a moment, and its
folder begins with a dot.
"""

from __future__ import annotations

import errno
import os
import re
from contextlib import contextmanager, suppress
from functools import partial

from .._crashsafe.locking import FolderLock
from .._storage.disk import disk, remove_tree
from .._storage.urls import without_url
from ..exceptions import FormatError, StorageError, UsageValueError
from .change import Change, naming_dataset, remove_changes
from .folder import Folder
from .layouts import find, prepare_change, table_around
from .writer import SharedWriter

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .._storage.protocols import Path

# How the name of a folder begins that is not complete, or that was replaced.
TEMPORARY = ".%s.bloscpack-"
LEFTOVER = re.compile(r"\..+\.bloscpack-[0-9]+")


@contextmanager
def creating(path: Path, mode: str, sync: bool) -> Iterator[Change]:
    """Yield a change of a new folder, which gets its name when the block ends.

    `mode` is ``'x'`` for a name that must be free, or ``'w'`` to replace a dataset.
    """
    with _unfinished(path, mode) as (target, temporary, put_mode):
        disk.make_folder(temporary)
        change = Change(Folder(temporary), sync)
        yield change
        change.commit()
        remove_changes(Folder(temporary))
        put(temporary, target, sync, put_mode)


@contextmanager
def building(
    path: Path, mode: str, sync: bool, is_old: Callable[[str], bool] | None = None
) -> Iterator[str]:
    """Yield a free path, for a dataset that gets its name when the block ends.

    The block may write the dataset in many steps, and need not sync any. `mode` and
    `sync` are those of `creating`. `is_old` says whether a folder that is no dataset
    may be replaced, too.
    """
    with _unfinished(path, mode, is_old) as (target, temporary, put_mode):
        yield temporary
        if sync:
            _sync_tree(temporary)
        put(temporary, target, sync, put_mode)


@contextmanager
def _unfinished(
    path: Path, mode: str, is_old: Callable[[str], bool] | None = None
) -> Iterator[tuple[str, str, str | None]]:
    """Yield the full name for a path, a free path on the same file system, and a mode.

    The dataset that is to be replaced is locked, and the mode is None. If there is
    none, the mode is the one for `put`: another program may create one meanwhile.
    """
    without_url(path, "a new dataset")
    target = os.path.abspath(os.fsdecode(path))
    lock = check_target(target, mode, is_old)
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        start = start_of(target)
        remove_leftovers(*start)
        with naming_dataset(target, os.path.join(*start)), beside(target) as temporary:
            yield target, temporary, mode if lock is None else None
    finally:
        if lock is not None:
            lock.close()


def _sync_tree(path: str) -> None:
    for folder, _, names in os.walk(path):
        for name in names:
            with disk.open(os.path.join(folder, name), "r+b") as fp:
                disk.sync(fp)
        disk.sync_folder(os.path.join(folder, os.curdir))


def remove_dataset(path: str, sync: bool) -> None:
    """Remove a dataset, in one step for all who look for its name.

    Raises `StorageError` if a writer has opened it, or a member of it.
    """
    lock = FolderLock(path)
    try:
        _check_no_writer(path)
        with beside(path) as other:
            disk.rename(path, other)  # commit point
            if sync:
                disk.sync_folder(path)
    finally:
        lock.close()


def check_mode(mode: str) -> None:
    """Raise `UsageError` if a dataset can't be created with a mode."""
    if mode not in ("x", "w"):
        raise UsageValueError("mode must be 'x' or 'w' to create, not %r" % (mode,))


def check_target(
    target: str, mode: str, is_old: Callable[[str], bool] | None = None
) -> FolderLock | None:
    """Return a lock of the dataset that is to be replaced, if any.

    `is_old` is that of `building`.
    """
    check_mode(mode)
    if not os.path.lexists(target):
        _check_around(os.path.dirname(target), target)
        return None
    if mode == "x":
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
    if os.path.islink(target) or not os.path.isdir(target):
        raise StorageError(errno.EEXIST, "it is not a folder", target)
    is_other = bool(os.listdir(target)) and find(Folder(target)) is None
    if is_other and (is_old is None or not is_old(target)):
        raise StorageError(
            errno.EEXIST, "it is not a dataset, and is not replaced by one", target
        )
    if table_around(Folder(target)) is not None:
        raise UsageValueError(
            "'%s' is a column of a table: remove the column from the table, and add "
            "another one" % target
        )
    lock = FolderLock(target)
    try:
        _check_no_writer(target)
    except BaseException:
        lock.close()
        raise
    return lock


def _check_around(folder: str, target: str) -> None:
    """Raise `UsageError` if a new dataset would be inside of an array or a table."""
    while True:
        try:
            found = find(Folder(folder))
        except (FormatError, OSError):
            return
        if found is not None and found[1] != "group":
            raise UsageValueError(
                "'%s' is inside of the %s '%s', which can't hold other datasets"
                % (target, found[1], folder)
            )
        outer = os.path.dirname(folder)
        if found is not None or outer == folder:
            return
        folder = outer


def _check_no_writer(path: str) -> None:
    """Raise `StorageError` if a member of a group or table is open for writing."""
    folder = Folder(path)
    found = find(folder)
    if found is None or found[1] != "array":
        for name in folder.folders():
            if find(folder.dataset(name)) is not None:
                FolderLock(folder.path(name)).close()
            _check_no_writer(folder.path(name))


@contextmanager
def beside(target: str) -> Iterator[str]:
    """Yield a path for a folder beside `target`, in a folder that is then removed.

    The folder that contains it is no dataset. So other programs do not take a dataset
    that is not complete, or that was removed, for a member of a group.
    """
    folder, lock = _make_beside(target)
    try:
        yield os.path.join(folder, os.path.basename(target))
    finally:
        lock.close()
        if lock.is_here:
            with suppress(OSError):  # the next writer of the name removes it
                remove_tree(folder)


def start_of(target: str) -> tuple[str, str]:
    """Return the folder of `target`, and how names of temporary folders begin there."""
    folder, name = os.path.split(target)
    return folder, TEMPORARY % name[:100]


def _make_beside(target: str) -> tuple[str, FolderLock]:
    """Make a temporary folder beside `target`; return its path and a lock of it."""
    folder, start = start_of(target)
    while True:
        number = int.from_bytes(os.urandom(8), "big")
        path = os.path.join(folder, "%s%d" % (start, number))
        try:
            disk.make_folder(path)
        except FileExistsError:
            continue
        # Until it is locked, another writer may remove it as the folder of a dead one.
        with suppress(FileNotFoundError, StorageError):
            lock = FolderLock(path)
            if os.path.isdir(path):
                return path, lock
            lock.close()


def remove_leftovers(folder: str, start: str = "") -> None:
    """Remove the temporary folders in a folder that writers left when they died.

    `start` is how the names of those of one dataset begin, as `start_of` returns it.
    """
    for name in os.listdir(folder):
        if name.startswith(start) and LEFTOVER.fullmatch(name):
            path = os.path.join(folder, name)
            # Another writer may be writing it, or has removed it meanwhile.
            with suppress(OSError):
                if remove_link(path):
                    continue
                lock = FolderLock(path)
                try:
                    remove_tree(path)
                finally:
                    lock.close()


def remove_link(path: str) -> bool:
    """Remove a symbolic link; return whether there was one.

    No writer makes a link with the name of a temporary folder. What it points to is
    neither locked nor changed.
    """
    found = os.path.islink(path)
    if found:
        disk.remove(path)
    return found


def put(temporary: str, target: str, sync: bool, mode: str | None) -> None:
    """Give a complete folder its name; take the name from the one that had it.

    `mode` is None if the caller has checked and locked the folder that had the name.
    """
    around = Folder(os.path.dirname(target))
    prepare_change("zarr", around, partial(SharedWriter, sync=sync))
    lock = None if mode is None else check_target(target, mode)
    try:
        if not os.path.lexists(target):
            disk.rename(temporary, target)  # commit point
        elif not disk.exchange(temporary, target):  # commit point
            with beside(target) as old:
                disk.rename(target, old)
                disk.rename(temporary, target)  # commit point
    finally:
        if lock is not None:
            lock.close()
    if sync:
        disk.sync_folder(target)
