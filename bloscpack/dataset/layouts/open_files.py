"""Files that arrays keep open, up to a number for the whole process.

A table may have hundreds of columns, and each column thousands of files. An array has
its own `OpenFiles`; those that were not used for the longest time are dropped first,
from whichever array. A file is closed when no thread uses it any more.
"""

from __future__ import annotations

import weakref

from ..._engine.forks import ForkSafeLock

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Any

# Maximum number of files that are kept open: some systems allow a process only 256.
LIMIT = 128


# The lock of all that is open here.
_lock = ForkSafeLock()
# The files of all arrays, by identity of the `OpenFiles` and number; the one that was
# not used for the longest time is first.
_recent: dict[tuple[int, int], weakref.ref[OpenFiles]] = {}


class OpenFiles:
    """The open files of an array, by number. Many threads may use it.

    A file is a tuple of one item, which is None for a file that does not exist.
    """

    def __init__(self) -> None:
        self._files: dict[int, tuple[Any]] = {}

    def get(self, number: int) -> tuple[Any] | None:
        """Return a file; None if it is not open."""
        with _lock:
            file = self._files.get(number)
            if file is not None:
                self._use(number)
            return file

    def put(self, number: int, file: tuple[Any]) -> None:
        """Keep a file."""
        with _lock:
            self._files[number] = file
            self._use(number)
            while len(_recent) > LIMIT:
                key, owner = next(iter(_recent.items()))
                del _recent[key]
                files = owner()
                if files is not None:
                    files._files.pop(key[1], None)

    def _use(self, number: int) -> None:
        key = id(self), number
        _recent.pop(key, None)
        _recent[key] = weakref.ref(self)  # a dictionary keeps the order of insertion

    def clear(self) -> None:
        """Drop all files."""
        with _lock:
            for number in self._files:
                _recent.pop((id(self), number), None)
            self._files.clear()
