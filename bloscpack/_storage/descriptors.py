"""The file descriptors of the process: some are closed when there are no more.

Contract: a `Reopenable` keeps a folder or a file open, and may be closed while no call
uses it. Its next use opens it again, and raises `StorageError` if another folder or
file has its name then. A descriptor is closed when nothing refers to its `Descriptor`:
a thread that reads keeps it open.

`with_room` makes a system call that needs a descriptor. If the process or the system
has no more, it closes those that were not used for the longest time, and repeats the
call once.
"""

from __future__ import annotations

import errno
import os
from functools import partial
from itertools import count, starmap
from weakref import ref

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    Result = TypeVar("Result")

# Errors of a process, or a system, that has no more descriptors.
NO_MORE = (errno.EMFILE, errno.ENFILE)
# Maximum number of descriptors of a process, where the system does not tell it.
USUAL_LIMIT = 256
# Maximum number of folders and files that are kept open at once.
MOST_KEPT = 1024
# The part of the descriptors of a process that is kept open: the program needs others.
PART_KEPT = 3
# A number of them that is kept without a look at the limit of the process.
FEW_KEPT = 16

# What is open, by `id`.
_open: dict[int, ref[Reopenable]] = {}
# Returns the number of a use, for `Reopenable.last_use`.
next_use = count(1).__next__


class Descriptor:
    """An open file or folder, until nothing refers to it any more.

    ``number`` is None for a folder where the system has no descriptors for folders.

    It is opened by a call of the system, which gets the other arguments.
    """

    # Python raises the error of Ctrl-C between two steps in Python alone. So functions
    # in C open the file and store its number in one step, and close it: a method
    # ``__del__`` in Python would lose the error, here it is an attribute.
    __slots__ = ("__del__", "number")

    def __init__(
        self, call: Callable[..., int] | None, *args: Any, **settings: Any
    ) -> None:
        numbers: list[int] = []
        self.__del__: Callable[[], object] = partial(list, map(os.close, numbers))
        self.number: int | None = None
        if call is not None:
            opened = partial(call, *args, **settings)
            with_room(lambda: numbers.extend(starmap(opened, [()])))
            self.number = numbers[0]

    def fileno(self) -> int:
        """Return the file descriptor."""
        assert self.number is not None
        return self.number

    def close(self) -> None:
        """Close it now, although an error may refer to it."""
        self.__del__()


class Reopenable:
    """What keeps a descriptor, which may be closed while it is not used."""

    last_use = 0
    _held: Any = None

    def hold(self) -> Any:
        """Return the `Descriptor`, open until nothing refers to the result."""
        held = self._held
        if held is not None:
            self.last_use = next_use()
            return held
        held = self._held = self._reopened()
        self.may_close()
        return held

    def _reopened(self) -> Descriptor:
        """Open it; raise `StorageError` if it is another file or folder now."""
        raise NotImplementedError

    def close(self) -> None:
        """Close it. A folder is opened again when it is used; a file is not."""
        _open.pop(id(self), None)
        self._held = None

    def may_close(self) -> None:
        """Let it be closed, from now on, when there are too many."""
        self.last_use = next_use()
        # When it is freed, its entry is removed: `pop` gets the reference as default.
        _open[id(self)] = ref(self, partial(_open.pop, id(self)))
        if len(_open) > min(FEW_KEPT, MOST_KEPT) and len(_open) > _most():
            release()

    def _can_reopen(self) -> bool:
        """Return whether opening it again is likely to succeed."""
        return True


def _most() -> int:
    """Return how many folders and files may be kept open."""
    try:
        import resource
    except ImportError:
        return USUAL_LIMIT // PART_KEPT
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return min(limit // PART_KEPT, MOST_KEPT) if limit >= 0 else MOST_KEPT


def release() -> bool:
    """Close the less recently used half of the pool; return whether any was closed."""
    kept = list(_open.values())
    files = [each for known in kept if (each := known()) is not None]
    files.sort(key=lambda each: each.last_use)
    released = 0
    for each in files:
        if 2 * released >= len(files):
            break
        if each._can_reopen():
            Reopenable.close(each)  # not its own `close`, after which it stays closed
            released += 1
    return released > 0


def with_room(call: Callable[..., Result], *args: Any, **settings: Any) -> Result:
    """Return the result of a system call; close descriptors if it needs one."""
    try:
        return call(*args, **settings)
    except OSError as error:
        if error.errno not in NO_MORE or not release():
            raise
    return call(*args, **settings)


def read_into(number: int, view: memoryview, offset: int, name: object) -> int:
    """Fill `view` from an offset of a file; return the bytes read, fewer at the end.

    An error of the system gets the `name` of the file.
    """
    try:
        done = os.preadv(number, [view], offset)
        while done < len(view):
            nread = os.preadv(number, [view[done:]], offset + done)
            if not nread:
                break
            done += nread
    except OSError as error:
        error.filename = name if isinstance(name, str) else None
        raise
    return done
