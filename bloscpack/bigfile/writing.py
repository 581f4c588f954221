"""The writer of a block: data files, the sums of their bytes, and the header.

A few data files stay open; the others are opened for each access, since a block may
have more files than a process may open.

Strategy: rows are written straight to their place in the data files, by any number of
threads and processes at a time, and need no lock as long as these do not write the same
rows. Threads that write the same rows through one writer wait for each other. The
header is written once, by `ColumnWriter.commit`, under the lock of the folder: the
writer adds the sums of its bytes to those in the header, so the order of several
writers does not matter. If a row is written again, its old bytes are subtracted. So a
checksum is always the sum of the bytes in the file.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace

import numpy

from .._engine.forks import ForkSafeLock, renew_after_fork
from .._engine.threads import ordered
from .._format.rows import Range, Rows, union, without
from .._storage.base import naming_errors
from .._storage.local import FileRange
from ..defaults import available_cpus
from ..exceptions import StorageError, UsageValueError
from . import header
from .header import (
    FILE_NAME,
    MODULUS,
    PIECE_NBYTES,
    SILENT_CASTS,
    Array,
    FileRows,
    Header,
)
from .tree import ATTRIBUTES, HEADER, UNWRITTEN, Tree, is_data_file, locked_folder

# The sums of the bytes written to each data file, and the rows.
Written = tuple[dict[int, int], "Rows"]

# Maximum number of data files of a block that stay open.
MAX_OPEN = 32


def threads_for(nbytes: int, nthreads: int | None) -> int:
    """Return the number of threads for rows; `nthreads` is None for all CPUs."""
    if nbytes <= PIECE_NBYTES:
        return 1
    return available_cpus() if nthreads is None else nthreads


def byte_sum(data: Array) -> int:
    """Return the sum of the bytes of a contiguous array modulo 2**32."""
    if not data.nbytes:
        return 0
    return int(data.reshape(-1).view("u1").sum(dtype="u4"))


def read_header(tree: Tree, folder: str) -> tuple[Header, bytes]:
    """Return the header of a block, and its bytes."""
    path = os.path.join(folder, HEADER)
    content = tree.read_text(path)
    with naming_errors(path):
        return header.decode(content), content


def read_state(tree: Tree, folder: str) -> tuple[Header, bytes, Rows]:
    """Return the header of a block, its bytes, and the rows known to be unwritten."""
    found, content = read_header(tree, folder)
    unwritten: Rows = []
    with suppress(FileNotFoundError):
        text = tree.read_text(os.path.join(folder, UNWRITTEN))
        unwritten = header.decode_unwritten(text, content, found.size)
    return found, content, unwritten


def write_header(
    tree: Tree, folder: str, new: Header, unwritten: Rows, old: bytes = b""
) -> None:
    """Replace the header, after what is still unwritten has been noted.

    `old` are the bytes of the header that belongs to the rows; none for a new block.
    """
    content = header.encode(new)
    path = os.path.join(folder, UNWRITTEN)
    if unwritten:
        headers = (old, content) if old else (content,)
        tree.replace_text(path, header.encode_unwritten(unwritten, headers))
    if content != old:
        tree.replace_text(os.path.join(folder, HEADER), content)
    if not unwritten:
        with suppress(FileNotFoundError):
            os.unlink(path)


def make_block(tree: Tree, name: str, new: Header) -> str:
    """Create or empty the data files and attributes of a block; return its folder.

    The header is not written: until then, an existing block keeps its old one, and a
    new one does not exist.
    """
    folder = tree.make_folder(name)
    files = DataFiles(tree, folder)
    for number in range(len(new.rows)):
        files.create(number)
    stale_names = [UNWRITTEN, "attr"]
    if tree.limits is not None:  # rows that are appended would be as public as these
        names = {FILE_NAME % number for number in range(len(new.rows))}
        stale_names += sorted(set(filter(is_data_file, os.listdir(folder))) - names)
    for stale in stale_names:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, stale))
    tree.replace_text(os.path.join(folder, ATTRIBUTES), b"")
    return folder


def finish_block(
    tree: Tree, name: str, new: Header, taken: Iterable[Written], unwritten: Rows
) -> None:
    """Write the header of a new block, with the sums of all that was written."""
    sums, _ = added(taken)
    write_header(tree, tree.folder(name), new.with_sums(sums), unwritten)


class DataFile(io.FileIO):
    """A data file, which is closed when no thread uses it any more."""

    def __del__(self) -> None:
        self.close()


class DataFiles:
    """The data files in the folder of a block, opened when they are first used."""

    def __init__(self, tree: Tree, folder: str) -> None:
        self._tree = tree
        self._folder = folder
        self._kept: dict[tuple[int, bool], FileRange] = {}
        self._lock = ForkSafeLock()

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

    def _open(self, number: int, write: bool) -> DataFile:
        flags = os.O_RDWR | os.O_CREAT if write else os.O_RDONLY
        descriptor = self._tree.open_file(self.path(number), flags)
        return DataFile(descriptor, "r+b" if write else "rb")

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


class ColumnWriter:
    """Writes rows of a block, and keeps what its header has to be told.

    `commits_itself` says that each call of `write` ends with a commit: a copy in
    another process may end without notice.
    """

    def __init__(
        self, tree: Tree, folder: str, header: Header, commits_itself: bool = False
    ) -> None:
        self._tree = tree
        self._folder = folder
        self.header = header
        self.files = DataFiles(tree, folder)
        self._commits_itself = commits_itself
        self._closed = False
        self._begin()
        renew_after_fork(self)

    def _begin(self) -> None:
        """Forget what was written, and which threads write."""
        self._lock = threading.Lock()
        self._free = threading.Condition()
        self._busy: list[Range] = []  # the rows that threads write now
        # Held while the header is replaced: its rows are not fresh any more.
        self._committing = threading.RLock()
        self._sums: dict[int, int] = {}
        self._rows: list[Range] = []
        # Rows whose old bytes need not be subtracted; None before the first write.
        self._fresh: Rows | None = None

    def renew_locks(self) -> None:
        """Begin anew in a child process: its parent commits its own rows."""
        self._commits_itself = True
        self._begin()

    @contextmanager
    def _using(self, start: int, stop: int, *, closes: bool = False) -> Iterator[None]:
        """Wait until no other thread writes any of the rows."""
        rows = start, stop
        with self._free:
            while self._busy and any(a < stop and start < b for a, b in self._busy):
                self._free.wait()
            if self._closed and not closes:
                raise UsageValueError("the block '%s' is closed" % self._folder)
            self._closed = self._closed or closes
            self._busy.append(rows)
        try:
            yield
        finally:
            with self._free:
                self._busy.remove(rows)
                self._free.notify_all()

    def write(self, start: int, rows: Array, nthreads: int = 1) -> None:
        """Write an array of the shape (rows, nmemb), in any convertible type."""
        stop = start + len(rows)
        with self._using(start, stop):
            old = without([(start, stop)], self._known_fresh())

            def work(part: FileRows) -> None:
                first = part.row - start
                piece = rows[first : first + part.stop - part.start]
                change = self._write_part(part, piece, bool(old))
                # At once: the write of another part may fail.
                done = part.row, part.row + len(piece)
                self._add({part.number: change}, [done])

            parts = self.header.parts(start, stop, self.header.piece_rows)
            ordered(parts, work, lambda _: None, nthreads)
            if self._commits_itself:
                self.commit()

    def _add(self, sums: Mapping[int, int], rows: Rows) -> None:
        """Keep what has been written until the next commit."""
        with self._lock:
            for number, change in sums.items():
                self._sums[number] = (self._sums.get(number, 0) + change) % MODULUS
            self._rows = union([*self._rows, *rows])
            if self._fresh is not None:  # no other thread has committed meanwhile
                self._fresh = without(self._fresh, rows)

    def begin_new(self) -> None:
        """Take all rows for new ones: the header is written behind the data."""
        self._fresh = [(0, self.header.size)]

    def _known_fresh(self) -> Rows:
        """Return the rows that neither this writer nor another one has written."""
        with self._committing, self._lock:
            if self._fresh is None:
                found, _, unwritten = read_state(self._tree, self._folder)
                self._check_header(found)
                self._fresh = without(unwritten, self._rows)
            return self._fresh

    def _write_part(self, part: FileRows, rows: Array, overwrites: bool) -> int:
        """Write rows of one data file; return the change of the sum of its bytes."""
        with SILENT_CASTS():
            data = numpy.ascontiguousarray(rows, dtype=self.header.dtype)
        offset = part.start * self.header.row_nbytes
        view = data.reshape(-1).view("u1").data
        with self.files.opened(part.number, write=True) as file:
            old = None
            if overwrites:
                old = numpy.zeros(len(view), "u1")
                file.read_into(old.data, offset)
            try:
                file.write(view, offset)
            except BaseException:
                _undo(file, old, offset, len(view))
                raise
        return byte_sum(data) - (0 if old is None else byte_sum(old))

    def _check_header(self, found: Header) -> None:
        if not found.describes_rows_like(self.header):
            raise StorageError(
                "block '%s' has been replaced by another one since it was opened"
                % self._folder
            )

    def take(self) -> Written:
        """Return what has been written and not committed, and forget it."""
        with self._lock:
            taken = self._sums, self._rows
            # Other writers commit, too: the next write has to look at their rows.
            self._sums, self._rows, self._fresh = {}, [], None
        return taken

    def commit(self) -> None:
        """Add the sums of the written bytes to the header.

        If that fails, the next commit adds them.
        """
        with self._committing:
            taken = self.take()
            try:
                self.commit_all([taken])
            except BaseException:
                self._add(*taken)
                raise

    def commit_all(self, taken: Iterable[Written]) -> None:
        """Add the sums of several writers of this block to the header in one step."""
        total, rows = added(taken)
        if not rows:
            return
        with locked_folder(self._folder):
            found, content, unwritten = read_state(self._tree, self._folder)
            self._check_header(found)
            left = without(unwritten, rows)
            write_header(
                self._tree, self._folder, found.with_sums(total), left, content
            )

    def append(self, rows: Array | None, size: int, nfile: int, nthreads: int) -> None:
        """Add `nfile` data files for `size` rows, and write the rows if given.

        The header is replaced when the rows are in the files, so a crash leaves the
        block as it was.
        """
        with self._using(self.header.size, sys.maxsize):
            self.commit()
            with self._committing, locked_folder(self._folder):
                found, content, unwritten = read_state(self._tree, self._folder)
                self._check_header(found)
                counts = header.split_rows(size, nfile) if nfile else []
                grown = replace(
                    found,
                    rows=[*found.rows, *counts],
                    checksums=[*found.checksums, *[0] * nfile],
                    folds=[],
                )
                for number in range(len(found.rows), len(grown.rows)):
                    self.files.create(number)
                if rows is not None:
                    new = ColumnWriter(self._tree, self._folder, grown)
                    new.files = self.files
                    new.begin_new()
                    new.write(found.size, rows, nthreads)
                    grown = grown.with_sums(new.take()[0])
                elif size:
                    unwritten = union([*unwritten, (found.size, grown.size)])
                write_header(self._tree, self._folder, grown, unwritten, content)
                self.adopt(grown)

    def adopt(self, header: Header) -> None:
        """Use a header that another writer has given the block by appending rows."""
        self.header, self._fresh = header, None

    def close(self) -> None:
        """Commit what all threads have written, and close the files."""
        with self._using(0, sys.maxsize, closes=True):
            try:
                self.commit()
            finally:
                self.files.close()


def added(taken: Iterable[Written]) -> Written:
    """Return what several writers have written as if one had written it."""
    total: dict[int, int] = {}
    rows: list[Range] = []
    for sums, written in taken:
        rows += written
        for number, change in sums.items():
            total[number] = (total.get(number, 0) + change) % MODULUS
    return total, union(rows)


def _undo(file: FileRange, old: Array | None, offset: int, nbytes: int) -> None:
    """Put back the bytes of rows whose write failed; None for rows without any."""
    there = max(0, min(file.size() - offset, nbytes))
    before = numpy.zeros(there, "u1") if old is None else old[:there]
    with suppress(OSError):
        file.write(before.data, offset)
