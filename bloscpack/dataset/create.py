"""New datasets: written beside their name, and renamed when they are complete.

The rename is the commit point. A dataset that is replaced stays under its name until
then; where the system can't exchange two folders, it has no name for a moment, and its
folder begins with a dot.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress

from .._crashsafe.locking import FolderLock
from .._storage.disk import disk
from ..exceptions import StorageError, UsageValueError
from .change import Change, remove_changes, remove_tree
from .folder import Folder
from .layouts import find

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .._storage.protocols import Path

# How the name of a folder begins that is not complete, or that was replaced.
TEMPORARY = ".%s.bloscpack-"


@contextmanager
def creating(path: Path, mode: str, sync: bool) -> Iterator[Change]:
    """Yield a change of a new folder, which gets its name when the block ends.

    `mode` is ``'x'`` for a name that must be free, or ``'w'`` to replace a dataset.
    """
    with _unfinished(path, mode) as (target, temporary):
        change = Change(Folder(temporary), sync)
        yield change
        change.commit()
        remove_changes(Folder(temporary))
        _put(temporary, target, sync)


@contextmanager
def building(path: Path, mode: str, sync: bool) -> Iterator[str]:
    """Yield a free path, for a dataset that gets its name when the block ends.

    The block may write the dataset in many steps, and need not sync any. `mode` and
    `sync` are those of `creating`.
    """
    with _unfinished(path, mode) as (target, temporary):
        built = os.path.join(temporary, os.path.basename(target))
        yield built
        if sync:
            _sync_tree(built)
        _put(built, target, sync)


@contextmanager
def _unfinished(path: Path, mode: str) -> Iterator[tuple[str, str]]:
    """Yield the full name for a path, and a folder beside it for unfinished files.

    Locks that folder, and the dataset that is to be replaced; removes the folder.
    """
    if mode not in ("x", "w"):
        raise UsageValueError("mode must be 'x' or 'w' to create, not %r" % (mode,))
    target = os.path.abspath(os.fsdecode(path))
    lock = _check_target(target, mode)
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        _remove_leftovers(target)
        temporary = _make_beside(target)
        own_lock = FolderLock(temporary)
        try:
            yield target, temporary
        finally:
            own_lock.close()
            with suppress(OSError):  # the next writer of the name removes it
                if os.path.isdir(temporary):
                    remove_tree(temporary)
    finally:
        if lock is not None:
            lock.close()


def _sync_tree(path: str) -> None:
    for folder, _, names in os.walk(path):
        for name in names:
            with disk.open(os.path.join(folder, name), "r+b") as fp:
                disk.sync(fp)
        disk.sync_folder(os.path.join(folder, os.curdir))


def _check_target(target: str, mode: str) -> FolderLock | None:
    """Return a lock of the dataset that is to be replaced, if any."""
    if not os.path.lexists(target):
        return None
    if mode == "x":
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
    if os.path.islink(target) or not os.path.isdir(target):
        raise StorageError(errno.EEXIST, "it is not a folder", target)
    if os.listdir(target) and find(Folder(target)) is None:
        raise StorageError(
            errno.EEXIST, "it is not a dataset, and is not replaced by one", target
        )
    return FolderLock(target)


def _start(target: str) -> tuple[str, str]:
    """Return the folder of `target`, and how names of temporary folders begin there."""
    folder, name = os.path.split(target)
    return folder, TEMPORARY % name[:100]


def _make_beside(target: str) -> str:
    folder, start = _start(target)
    while True:
        number = int.from_bytes(os.urandom(8), "big")
        path = os.path.join(folder, "%s%d" % (start, number))
        with suppress(FileExistsError):
            disk.make_folder(path)
            return path


def _remove_leftovers(target: str) -> None:
    """Remove the folders that writers of `target` left when they died."""
    folder, start = _start(target)
    for name in os.listdir(folder):
        if name.startswith(start) and name[len(start) :].isdigit():
            path = os.path.join(folder, name)
            # Another writer may be writing it, or has removed it meanwhile.
            with suppress(OSError):
                lock = FolderLock(path)
                try:
                    remove_tree(path)
                finally:
                    lock.close()


def _put(temporary: str, target: str, sync: bool) -> None:
    """Give a complete folder its name; remove the one that had the name."""
    old = None
    if not os.path.lexists(target):
        disk.rename(temporary, target)  # commit point
    elif disk.exchange(temporary, target):  # commit point
        old = temporary
    else:
        old = _make_beside(target)
        disk.rename(target, old)
        disk.rename(temporary, target)  # commit point
    if sync:
        disk.sync_folder(target)
    if old is not None:
        remove_tree(old)
