"""The data files of a block: positional reads and writes, safe from several threads.

A few files stay open; the others are opened for each access, since a block may have
more files than a process may open.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from .._engine.forks import renew_after_fork
from .._storage.local import FileRange
from .header import FILE_NAME

if TYPE_CHECKING:
    from .tree import Tree

# Maximum number of data files of a block that stay open.
MAX_OPEN = 32


class OpenFile(io.FileIO):
    """A data file, which is closed when no thread uses it any more."""

    def __del__(self) -> None:
        self.close()


class DataFiles:
    """The data files in the folder of a block, opened when they are first used."""

    def __init__(self, tree: Tree, folder: str) -> None:
        self._tree = tree
        self._folder = folder
        self._kept: dict[tuple[int, bool], FileRange] = {}
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        """Replace the lock by a free one."""
        self._lock = threading.Lock()

    def path(self, number: int) -> str:
        """Return the path of a data file."""
        return os.path.join(self._folder, FILE_NAME % number)

    @contextmanager
    def opened(self, number: int, *, write: bool = False) -> Iterator[FileRange]:
        """Yield a data file that is open for reading, or for reading and writing."""
        kept = self._kept.get((number, write))
        if kept is None:
            with self._lock:
                kept = self._kept.get((number, write))
                if kept is None and len(self._kept) < MAX_OPEN:
                    kept = FileRange(self._open(number, write))
                    self._kept[number, write] = kept
        try:
            if kept is not None:
                yield kept
                return
            with self._open(number, write) as raw:
                yield FileRange(raw)
        except OSError as error:
            # Reads and writes of a file descriptor do not know the name of the file.
            if error.errno is not None and error.filename is None:
                error.filename = self.path(number)
            raise

    def _open(self, number: int, write: bool) -> OpenFile:
        flags = os.O_RDWR | os.O_CREAT if write else os.O_RDONLY
        descriptor = self._tree.open_file(self.path(number), flags)
        return OpenFile(descriptor, "r+b" if write else "rb")

    def nbytes(self, number: int) -> int:
        """Return the size of a data file; 0 if it does not exist."""
        try:
            with self.opened(number) as file:
                return file.size()
        except FileNotFoundError:
            return 0

    def holes(self, number: int, size: int) -> list[tuple[int, int]]:
        """Return the holes of a data file up to `size`; none if the system can't tell.

        They begin and end at blocks of the file system.
        """
        found: list[tuple[int, int]] = []
        with self._open(number, write=False) as raw, suppress(AttributeError, OSError):
            stop = 0
            while stop < size:
                start = os.lseek(raw.fileno(), stop, os.SEEK_HOLE)
                if start >= size:
                    break
                stop = size
                with suppress(OSError):  # there are no data behind the hole
                    stop = min(size, os.lseek(raw.fileno(), start, os.SEEK_DATA))
                found.append((start, stop))
        return found

    def create(self, number: int) -> None:
        """Create an empty data file; an existing one loses its bytes."""
        if self._tree.limits is not None:
            # A user who had opened the old file would read the new rows in it.
            self._tree.replace_text(self.path(number), b"")
            return
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
        os.close(self._tree.open_file(self.path(number), flags))

    def close(self) -> None:
        """Forget all files: they are closed when no thread reads or writes them."""
        with self._lock:
            self._kept.clear()
