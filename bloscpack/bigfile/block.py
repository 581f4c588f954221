"""The files of a block: a header, and data files with rows.

Strategy: a range of rows becomes parts of data files (`Header.parts`), and each part is
read into its position in the result, or written to its position in the file. Data files
are read and written by position, not mapped into memory: where another process shortens
a file, a read returns fewer bytes, which is an error, and a memory map would end this
process. Memory for a result is allocated only when the files are long enough.

Rows need no lock between processes as long as these do not write the same rows. Threads
that write through one object take turns; the parts of a write are written by several
threads. The header is written by `commit`, under the lock of the folder: it adds the
sums of the written bytes to those in the header, so the order of several writers does
not matter. If a row is written again, its old bytes are subtracted. So a checksum is
always the sum of the bytes in the file.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import numpy

from .._engine.forks import renew_after_fork
from .._engine.threads import ordered
from .._format.dtypes import Array
from .._format.rows import Rows, common, text_of, union, without
from .._storage.local import FileRange
from ..defaults import available_cpus
from ..exceptions import DamageError, StorageError, UsageValueError
from .header import (
    FILE_NAME,
    MODULUS,
    PIECE_NBYTES,
    SILENT_CASTS,
    FileRows,
    Header,
    check_convertible,
    split_rows,
)
from .tree import Tree, locked_folder

# The sums of the bytes written to each data file, and the rows.
Written = tuple[dict[int, int], Rows]

# Maximum number of data files of a block that stay open: it may have more files than a
# process may open.
MAX_OPEN = 64


def byte_sum(data: Array) -> int:
    """Return the sum of an array of bytes, modulo 2**32."""
    return int(data.sum(dtype="u4"))


class DataFile(io.FileIO):
    """A data file, which is closed when no thread uses it any more."""

    def __del__(self) -> None:
        self.close()


class Block:
    """The header and the data files in a folder; reads and writes rows.

    `commits_itself` says that each call of `write` ends with a commit: a copy in
    another process may end without notice. `nthreads` is None for all CPUs.
    """

    def __init__(
        self,
        tree: Tree,
        folder: str,
        header: Header,
        nthreads: int | None = None,
        commits_itself: bool = False,
    ) -> None:
        self._tree = tree
        self._folder = folder
        self.header = header
        self._nthreads = nthreads
        self._commits_itself = commits_itself
        self._closed = False
        self._files: dict[tuple[int, bool], FileRange] = {}
        self._lock = threading.RLock()
        # What has been written and not committed: sums by the number of the file, rows.
        self._sums: dict[int, int] = {}
        self._written: Rows = []
        # Rows that nobody has finished, so their bytes do not count; None if unknown.
        self._fresh: Rows | None = None
        renew_after_fork(self)

    def renew_locks(self) -> None:
        """Begin anew in a child process: its parent commits its own rows."""
        self._lock = threading.RLock()
        self._commits_itself = True
        self.take()

    # Data files

    def path(self, number: int) -> str:
        """Return the path of a data file."""
        return os.path.join(self._folder, FILE_NAME % number)

    @contextmanager
    def opened(self, number: int, *, write: bool = False) -> Iterator[FileRange]:
        """Yield a data file, opened for reading, or for reading and writing."""
        path, kept = self.path(number), self._files.get((number, write))
        try:
            if kept is None:
                if write and not os.path.lexists(path):
                    with suppress(FileExistsError, StorageError):
                        self._tree.replace_text(path, b"", sync=False, new=True)
                flags = os.O_RDWR if write else os.O_RDONLY
                descriptor = self._tree.open_file(path, flags)
                kept = FileRange(DataFile(descriptor, "r+b" if write else "rb"))
                if len(self._files) >= MAX_OPEN:
                    self._files.clear()
                self._files[number, write] = kept
            yield kept
        except OSError as error:
            # Reads and writes of a descriptor do not know the name of the file.
            if error.errno is not None and error.filename is None:
                error.filename = path
            raise

    def nbytes(self, number: int) -> int:
        """Return the size of a data file; 0 if it does not exist."""
        try:
            with self.opened(number) as file:
                return file.size()
        except FileNotFoundError:
            return 0

    # Reading

    def read(self, start: int, stop: int, out: Array | None = None) -> Array:
        """Return rows [start, stop), in `out` if given, with items of its type."""
        header = self.header
        self.check_length(start, stop)
        if out is None:
            out = numpy.empty((stop - start, *header.row_shape), header.dtype)
        result, dtype = out, header.dtype
        direct = out.dtype == dtype and out.flags.c_contiguous
        if not direct:
            check_convertible(dtype, out.dtype)

        def work(part: FileRows) -> None:
            first = part.row - start
            target = result[first : first + part.stop - part.start]
            piece = target if direct else numpy.empty(target.shape, dtype)
            self.read_part(part, piece)
            if not direct:
                with SILENT_CASTS():
                    target[...] = piece

        self._in_parts(header, start, stop, work)
        return result

    def read_part(self, part: FileRows, piece: Array) -> None:
        """Read rows of one data file into an array for them."""
        view = piece.reshape(-1).view("u1").data
        with self.opened(part.number) as file:
            found = file.read_into(view, part.start * self.header.row_nbytes)
        if found < len(view):
            text = "the data file became shorter while it was read"
            raise DamageError(text, filename=self.path(part.number))

    def check_length(self, start: int, stop: int) -> None:
        """Raise `DamageError` if rows are behind the end of their data file."""
        row_nbytes = self.header.row_nbytes
        for part in self.header.parts(start, stop):
            found, needed = self.nbytes(part.number), part.stop * row_nbytes
            if found < needed:
                there, row = max(found // row_nbytes, part.start), part.row - part.start
                rows = text_of([(row + there, row + part.stop)])
                file = FILE_NAME % part.number, found, needed
                raise DamageError(
                    "%s missing: data file %s has %d bytes, %d are needed"
                    % (rows, *file),
                    filename=self.path(part.number),
                )

    def _in_parts(
        self, header: Header, start: int, stop: int, work: Callable[[FileRows], None]
    ) -> None:
        """Call `work` for the parts of data files with rows [start, stop)."""
        small = (stop - start) * header.row_nbytes <= PIECE_NBYTES
        nthreads = 1 if small else self._nthreads or available_cpus()
        parts = header.parts(start, stop, header.piece_rows)
        ordered(parts, work, lambda _: None, nthreads)

    # Writing

    def write(self, start: int, rows: Array) -> None:
        """Write an array of the shape (rows, nmemb), in any convertible type."""
        with self._lock:
            if self._closed:
                raise UsageValueError("the block '%s' is closed" % self._folder)
            if self._fresh is None:
                # Other writers commit, too: look at the rows that they have left.
                found, _, unwritten = self._tree.read_state(self._folder)
                self._check_header(found)
                self._fresh = without(unwritten, self._written)
            self._store(self.header, start, rows)
            if self._commits_itself:
                self.commit()

    def begin_new(self) -> None:
        """Take all rows for new ones: the header is written behind the data."""
        self._fresh = [(0, self.header.size)]

    def _store(self, header: Header, start: int, rows: Array) -> None:
        """Write rows, and add them and the changes of the sums to what is written.

        The old bytes of rows in `_fresh` do not count: nobody has finished them.
        """
        fresh = self._fresh or []
        overwrites = bool(without([(start, start + len(rows))], fresh))
        done: list[tuple[FileRows, int]] = []

        def work(part: FileRows) -> None:
            first, count = part.row - start, part.stop - part.start
            with SILENT_CASTS():
                data = numpy.ascontiguousarray(rows[first : first + count], dtype)
            new, offset = data.reshape(-1).view("u1"), part.start * row_nbytes
            old = numpy.zeros(len(new) if overwrites else 0, "u1")
            with self.opened(part.number, write=True) as file:
                file.read_into(old.data, offset)
                for a, b in common(fresh, [(part.row, part.row + count)]):
                    old[(a - part.row) * row_nbytes : (b - part.row) * row_nbytes] = 0
                try:
                    file.write(new.data, offset)
                except BaseException:  # the sum stays that of the bytes
                    before = old if overwrites else numpy.zeros(len(new), "u1")
                    with suppress(OSError):
                        file.write(before[: max(0, file.size() - offset)].data, offset)
                    raise
            done.append((part, byte_sum(new) - byte_sum(old)))

        dtype, row_nbytes = header.dtype, header.row_nbytes
        try:
            self._in_parts(header, start, start + len(rows), work)
        finally:  # the write of another part may have failed
            written = [(p.row, p.row + p.stop - p.start) for p, _ in done]
            self._written = union([*self._written, *written])
            self._fresh = without(fresh, union(written))
            for part, change in done:
                total = self._sums.get(part.number, 0) + change
                self._sums[part.number] = total % MODULUS

    def _check_header(self, found: Header) -> None:
        """Raise `StorageError` if another block has taken the place of this one."""
        old = self.header
        is_same_type = found.dtype == old.dtype and found.nmemb == old.nmemb
        if not is_same_type or found.rows[: len(old.rows)] != old.rows:
            raise StorageError(
                "block '%s' has been replaced by another one since it was opened"
                % self._folder
            )

    def take(self) -> Written:
        """Return what has been written and not committed, and forget it."""
        taken = self._sums, self._written
        self._sums, self._written, self._fresh = {}, [], None
        return taken

    def commit(self) -> None:
        """Add the sums of the written bytes to the header.

        If that fails, the next commit adds them.
        """
        with self._lock:
            self.commit_all([(self._sums, self._written)])
            self.take()

    def commit_all(self, taken: Iterable[Written]) -> None:
        """Add the sums of several writers of this block to the header in one step."""
        taken = [(sums, rows) for sums, rows in taken if rows]
        if not taken:
            return
        with locked_folder(self._folder):
            found, content, unwritten = self._tree.read_state(self._folder)
            self._check_header(found)
            for sums, rows in taken:
                found = found.with_sums(sums)
                unwritten = without(unwritten, rows)
            self._tree.write_state(self._folder, found, unwritten, content)

    def append(self, rows: Array | None, size: int, nfile: int) -> None:
        """Add `nfile` data files for `size` rows, and write the rows if given.

        The header is replaced when the rows are in the files, so a crash leaves the
        block as it was.
        """
        with self._lock:
            self.commit()
            with locked_folder(self._folder):
                found, content, unwritten = self._tree.read_state(self._folder)
                self._check_header(found)
                grown = replace(
                    found,
                    rows=[*found.rows, *split_rows(size, nfile)],
                    checksums=[*found.checksums, *[0] * nfile],
                    folds=[],
                )
                for number in range(len(found.rows), len(grown.rows)):
                    self._tree.replace_text(self.path(number), b"", sync=False)
                if rows is None:
                    unwritten = union([*unwritten, (found.size, grown.size)])
                else:
                    self._fresh = [(found.size, grown.size)]
                    try:
                        self._store(grown, found.size, rows)
                    finally:
                        sums, _ = self.take()
                    grown = grown.with_sums(sums)
                self._tree.write_state(self._folder, grown, unwritten, content)
                self.header = grown

    def close(self) -> None:
        """Commit what all threads have written, and close the files."""
        with self._lock:
            self._closed = True
            try:
                self.commit()
            finally:
                self._files.clear()
