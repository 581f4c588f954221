"""The files of a block: a header, and data files with rows.

Strategy: a range of rows becomes parts of data files (`Header.parts`), and each part is
read into its position in the result, or written to its position in the file. Data files
are read and written by position, not mapped into memory: where another process shortens
a file, a read returns fewer bytes, which is an error, and a memory map would end this
process. Memory for a result is allocated only when the files are long enough.

Rows need no lock between processes as long as these do not write the same rows; threads
that write the same rows through one object wait for each other. The header is written
by `commit`, under the lock of the folder: it adds the sums of the written bytes to
those in the header, so the order of several writers does not matter. If a row is
written again, its old bytes are subtracted. So a checksum is always the sum of the
bytes in the file.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from _thread import LockType, allocate_lock
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import numpy

from .._engine.forks import renew_after_fork
from .._engine.threads import ordered
from .._format.dtypes import Array
from .._format.rows import Rows, common, text_of, union, without
from .._storage.local import FileRange
from ..defaults import available_cpus
from ..exceptions import DamageError, StorageError, UsageValueError
from ..log import counted
from .header import (
    FILE_NAME,
    PIECE_NBYTES,
    SILENT_CASTS,
    FileRows,
    Header,
    check_convertible,
    split_rows,
)
from .tree import Tree, locked_folder

# The sums of the bytes written to each data file, and the rows.
Written = tuple[Counter[int], Rows]
# The parts of a write that are done, and how each changes the sum of its file.
Done = list[tuple[FileRows, int]]

# Maximum number of data files of a block that stay open: it may have more files than a
# process may open.
MAX_OPEN = 64


def byte_sum(data: Array) -> int:
    """Return the sum of an array of bytes, modulo 2**32."""
    return int(data.sum(dtype="u4"))


@dataclass(eq=False)
class Block:
    """The header and the data files in a folder; reads and writes rows.

    `commits_itself` says that each call of `write` ends with a commit: a copy in
    another process may end without notice. `nthreads` is None for all CPUs.
    """

    tree: Tree
    folder: str
    header: Header
    nthreads: int | None = None
    commits_itself: bool = False

    def __post_init__(self) -> None:
        self._closed = False
        self._files: dict[tuple[int, bool], FileRange] = {}
        # What has been written and not committed: sums by the number of the file, rows.
        self._sums: Counter[int] = Counter()
        self._written: Rows = []
        # Rows that no writer has finished: no checksum counts their bytes; None if they
        # are unknown.
        self._fresh: Rows | None = None
        self.renew_locks(self.commits_itself)
        renew_after_fork(self)

    def renew_locks(self, commits_itself: bool = True) -> None:
        """Begin anew in a child process: its parent commits its own rows."""
        self.commits_itself = commits_itself
        self._lock = threading.RLock()
        self._claiming = allocate_lock()
        # The threads that write now, the rows, and locks, which they hold meanwhile.
        self._busy: list[tuple[int, int, int, LockType]] = []
        self.take()

    # Data files

    def path(self, number: int) -> str:
        """Return the path of a data file."""
        return os.path.join(self.folder, FILE_NAME % number)

    def file(self, number: int, *, write: bool = False) -> FileRange:
        """Return a data file, opened for reading, or for reading and writing."""
        kept = self._files.get((number, write))
        if kept is None:
            flags = os.O_RDWR | os.O_CREAT if write else os.O_RDONLY
            # Closed when no thread uses it any more.
            file = self.tree.open_file(self.path(number), flags)
            mode = "r+b" if write else "rb"
            kept = FileRange(io.FileIO(file.fileno(), mode, closefd=False), file)
            if len(self._files) >= MAX_OPEN:
                self._files.clear()
            self._files[number, write] = kept
        return kept

    def _named(self, error: OSError, number: int) -> OSError:
        """Return an error with the name of the file, which its descriptor lacks."""
        if error.errno is not None and error.filename is None:
            error.filename = self.path(number)
        return error

    def nbytes(self, number: int) -> int:
        """Return the size of a data file; 0 if it does not exist."""
        try:
            return self.file(number).size()
        except FileNotFoundError:
            return 0

    # Reading

    def read(self, start: int, stop: int, out: Array | None = None) -> Array:
        """Return rows [start, stop), in `out` if given, with items of its type."""
        header, row_nbytes = self.header, self.header.row_nbytes
        if (stop - start) * row_nbytes > PIECE_NBYTES:
            self.check_length(start, stop)
        if out is None:
            out = numpy.empty((stop - start, *header.row_shape), header.dtype)
        result, dtype = out, header.dtype
        direct = out.dtype == dtype and out.flags.c_contiguous
        if not direct:
            check_convertible(dtype, out.dtype)

        def work(part: FileRows) -> None:
            first, end = part.row - start, part.row - start + part.stop - part.start
            target = result[first:end]
            piece = target if direct else numpy.empty(target.shape, dtype)
            view, offset = piece.reshape(-1).view("u1").data, part.start * row_nbytes
            try:
                found = self.file(part.number).read_into(view, offset)
            except FileNotFoundError:
                found = 0
            except OSError as error:
                raise self._named(error, part.number) from None
            if found < len(view):
                self.check_length(start + first, start + end)  # names the rows
                text = "the data file became shorter while it was read"
                raise DamageError(text, filename=self.path(part.number))
            if not direct:
                with SILENT_CASTS():
                    target[...] = piece

        self._in_parts(header, start, stop, work)
        return result

    def check_length(self, start: int, stop: int) -> None:
        """Raise `DamageError` if rows are behind the end of their data file."""
        row_nbytes = self.header.row_nbytes
        for part in self.header.parts(start, stop):
            found, needed = self.nbytes(part.number), part.stop * row_nbytes
            if found < needed:
                there, row = max(found // row_nbytes, part.start), part.row - part.start
                rows = text_of([(row + there, row + part.stop)])
                file = FILE_NAME % part.number, counted(found, "byte"), needed
                raise DamageError(
                    "%s missing: data file %s has %s, %d are needed" % (rows, *file),
                    filename=self.path(part.number),
                )

    def _in_parts(
        self, header: Header, start: int, stop: int, work: Callable[[FileRows], None]
    ) -> None:
        """Call `work` for the parts of data files with rows [start, stop)."""
        parts = header.parts(start, stop, header.piece_rows)
        if (stop - start) * header.row_nbytes <= PIECE_NBYTES:
            for part in parts:
                work(part)
        else:
            ordered(parts, work, lambda _: None, self.nthreads or available_cpus())

    # Writing

    @contextmanager
    def _using(self, start: int, stop: int) -> Iterator[None]:
        """Wait until no other thread writes any of the rows."""
        thread, writing = threading.get_ident(), allocate_lock()
        with writing:
            while True:
                with self._claiming:  # Ctrl-C may have left an entry of this thread
                    self._busy = [
                        each
                        for each in self._busy
                        if each[0] != thread and each[-1].locked()
                    ]
                    others = [x for _, a, b, x in self._busy if a < stop and start < b]
                    if not others:
                        self._busy.append((thread, start, stop, writing))
                        break
                with others[0]:  # not a condition, whose lock Ctrl-C may leave locked
                    pass
            yield

    def write(self, start: int, rows: Array) -> None:
        """Write an array of the shape (rows, nmemb), in any convertible type."""
        with self._using(start, start + len(rows)):
            if self._closed:
                raise UsageValueError("the block '%s' is closed" % self.folder)
            with self._lock:
                if self._fresh is None:
                    # Other writers commit, too: look at the rows that they have left.
                    self._fresh = without(self._read_state()[2], self._written)
                fresh = self._fresh
            done: Done = []
            try:
                self._store(self.header, start, rows, fresh, done)
            finally:  # the write of some parts may have failed
                with self._lock:
                    for part, change in done:
                        self._sums[part.number] += change
                    written = union((p.row, p.row + p.stop - p.start) for p, _ in done)
                    self._written = union([*self._written, *written])
                    if self._fresh is not None:  # no other thread has committed
                        self._fresh = without(self._fresh, written)
            if self.commits_itself:
                self.commit()

    def begin_new(self) -> None:
        """Take all rows for new ones: the header is written behind the data."""
        self._fresh = [(0, self.header.size)]

    def _store(
        self, header: Header, start: int, rows: Array, fresh: Rows, done: Done
    ) -> None:
        """Write rows; add each part, and the change of the sum of its file, to `done`.

        No checksum counts the old bytes of `fresh` rows: no writer has finished them.
        """
        dtype, row_nbytes = header.dtype, header.row_nbytes
        overwrites = bool(without([(start, start + len(rows))], fresh))

        def work(part: FileRows) -> None:
            first, count = part.row - start, part.stop - part.start
            with SILENT_CASTS():
                data = numpy.ascontiguousarray(rows[first : first + count], dtype)
            new, offset = data.reshape(-1).view("u1"), part.start * row_nbytes
            old = numpy.zeros(len(new) if overwrites else 0, "u1")
            try:
                file = self.file(part.number, write=True)
                file.read_into(old.data, offset)
                for a, b in common(fresh, [(part.row, part.row + count)]):
                    old[(a - part.row) * row_nbytes : (b - part.row) * row_nbytes] = 0
                try:
                    file.write(new.data, offset)
                except BaseException:  # the checksum still has to be right
                    before = old if overwrites else numpy.zeros(len(new), "u1")
                    with suppress(OSError):
                        file.write(before[: max(0, file.size() - offset)].data, offset)
                    raise
            except OSError as error:
                raise self._named(error, part.number) from None
            done.append((part, byte_sum(new) - byte_sum(old)))

        self._in_parts(header, start, start + len(rows), work)

    def _read_state(self) -> tuple[Header, bytes, Rows]:
        """Return the header in the file, its bytes, and the rows that are unwritten.

        Raises `StorageError` if another block has taken the place of this one.
        """
        header, content, unwritten = self.tree.read_state(self.folder)
        old = self.header
        is_same_type = header.dtype == old.dtype and header.nmemb == old.nmemb
        if not is_same_type or header.rows[: len(old.rows)] != old.rows:
            raise StorageError(
                "block '%s' has been replaced by another one since it was opened"
                % self.folder
            )
        return header, content, unwritten

    def take(self) -> Written:
        """Return what has been written and not committed, and forget it."""
        taken = self._sums, self._written
        self._sums, self._written, self._fresh = Counter(), [], None
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
        with locked_folder(self.folder):
            header, content, unwritten = self._read_state()
            for sums, rows in taken:
                header = header.with_sums(sums)
                unwritten = without(unwritten, rows)
            self.tree.write_state(self.folder, header, unwritten, content)

    def append(self, rows: Array | None, size: int, nfile: int) -> None:
        """Add `nfile` data files for `size` rows, and write the rows if given.

        The header is replaced when the rows are in the files, so a crash leaves the
        block unchanged.
        """
        with (
            self._using(self.header.size, sys.maxsize),
            self._lock,
            locked_folder(self.folder),
        ):
            header, content, unwritten = self._read_state()
            grown = replace(
                header,
                rows=[*header.rows, *split_rows(size, nfile)],
                checksums=[*header.checksums, *[0] * nfile],
                folds=[],
            )
            for number in range(len(header.rows), len(grown.rows)):
                self.tree.create_file(self.path(number))
            new, sums = [(header.size, grown.size)], Counter[int]()
            done: Done = []
            if rows is None:
                unwritten = union([*unwritten, *new])
            else:
                self._store(grown, header.size, rows, new, done)
            for part, change in done:
                sums[part.number] += change
            grown = grown.with_sums(sums)
            self.tree.write_state(self.folder, grown, unwritten, content)
            self.header, self._fresh = grown, None

    def close(self) -> None:
        """Commit what all threads have written, and close the files."""
        with self._using(0, sys.maxsize):
            self._closed = True
            try:
                self.commit()
            finally:
                self._files.clear()
