"""Checks a tree: headers, attributes, data files, checksums, rows never written.

Each failed check yields a finding; nothing raises except a tree that is not there. A
finding names the rows that it affects.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy

from .._check.findings import Finding, Pair, Report, counted
from .._engine.threads import ordered
from .._format.rows import Rows, common, text_of, union, without
from .._types import Path
from ..defaults import available_cpus
from ..exceptions import FormatError, NoSuchBlock
from .attributes import AttributeSet
from .file import File
from .header import FILE_NAME, MODULUS, PIECE_NBYTES, Header, folded
from .tree import Tree, is_data_file
from .writing import DataFiles, byte_sum, read_state

Progress = Callable[[int], object]

# Where a name is used that no block can have: the finding is about the whole tree.
ROOT = "."


@dataclass(frozen=True, repr=False)
class TreeFinding(Finding):
    """A difference between a tree and the format.

    The other attributes are those of `bloscpack.verify.Finding`.

    Attributes
    ----------
    section
        ``'header'``, ``'attributes'`` or ``'files'``, the data files.
    kind
        ``'header'``, ``'attributes'``, ``'short'``, ``'unwritten'``, ``'hole'``,
        ``'checksum'``, ``'fold'``, ``'orphan'`` or ``'file'``.
    block
        The name of the block or group, ``.`` for the tree itself.
    file
        The name of the data file, or None.
    rows
        The affected rows of the block, as pairs (start, stop).
    """

    block: str = ROOT
    rows: tuple[Pair, ...] = ()  # type: ignore[assignment]

    def __str__(self) -> str:
        where = self.block if self.file is None else self.block + "/" + self.file
        return "%s: %s: %s" % (self.severity, where, self.message)


@dataclass(eq=False, repr=False)
class TreeReport(Report):
    """The result of `verify`.

    Attributes
    ----------
    filename
        The path of the tree.
    nblocks, nfiles, nbytes
        The number of blocks, data files, and bytes in them that were checked.
    findings
        The first thousand findings, block by block.
    nerrors, nnotes
        The numbers of all errors and of all notes.
    """

    nbytes: int = 0
    nblocks: int = 0
    nfiles: int = 0

    def add(self, section: str, kind: str, message: str, **where: Any) -> None:
        """Add a finding; the arguments are those of `TreeFinding`."""
        self.take(TreeFinding(section, kind, message, **where))


def verify(
    tree: File | Path,
    *,
    blocks: list[str] | None = None,
    nthreads: int | None = None,
    progress: Progress | None = None,
    follow_links: bool = False,
) -> TreeReport:
    """Check all blocks of a tree, or those named, and return a report.

    Parameters
    ----------
    tree
        A `File`, or the path of a tree.
    progress
        Called with the number of bytes of each piece that has been checked.

    Raises
    ------
    NoSuchBlock
        If the tree, or a block that was named, does not exist, or if the folder has
        neither blocks nor attributes.
    """
    file = tree if isinstance(tree, File) else File(tree, follow_links=follow_links)
    report = TreeReport(file.basename)
    checker = TreeChecker(report, file._tree, nthreads or available_cpus(), progress)
    for name in file.blocks if blocks is None else blocks:
        full = file._full(name)
        if not file._tree.is_block(full):
            raise NoSuchBlock("'%s' has no block '%s'" % (file.basename, name))
        checker.check_block(full)
    if blocks is None:
        for group in file._tree.groups(file._group):
            checker.check_group(file._full(group), group or ROOT)
        if not (report.nblocks or report.findings or checker.nattributes):
            text = "'%s' has no block and no attributes, so it is no BigFile tree"
            raise NoSuchBlock(text % file.basename)
    return report


@dataclass(eq=False)
class TreeChecker:
    """Adds the findings of blocks and groups to a report."""

    _report: TreeReport
    _tree: Tree
    _nthreads: int
    _progress: Progress | None
    nattributes: int = 0

    def check_attributes(self, name: str, shown: str) -> None:
        """Check that the attributes of a block or group can be read."""
        try:
            attributes = AttributeSet(self._tree, self._tree.folder(name))
            for key in attributes:
                attributes[key]
                self.nattributes += 1
        except (FormatError, OSError) as error:
            self._report.add("attributes", "attributes", _text(error), block=shown)

    def check_group(self, name: str, shown: str) -> None:
        """Check the folder of a group, which may be an unfinished block."""
        self.check_attributes(name, shown)
        files = sorted(filter(is_data_file, os.listdir(self._tree.folder(name))))
        if files:
            text = "data files without a header: the block was never finished: "
            self._report.add("header", "header", text + _some(files), block=shown)

    def check_block(self, name: str) -> None:
        """Check everything in the folder of a block."""
        self._report.nblocks += 1
        self.check_attributes(name, name)
        try:
            folder = self._tree.folder(name)
            header, _, unwritten = read_state(self._tree, folder)
        except (FormatError, OSError) as error:
            self._report.add("header", "header", _text(error), block=name)
            return
        files = DataFiles(self._tree, folder)
        holes: Rows = []
        try:
            for number in range(len(header.rows)):
                file = _FileCheck(self._report, name, header, files, number)
                short = file.check(self._nthreads, self._progress)
                file.add_unwritten(without(unwritten, short))
                holes += file.holes
        finally:
            files.close()
        suspect = without(union(holes), unwritten)
        if suspect:
            message = "%s in a hole of the file: zeros, or never written"
            message %= text_of(suspect)
            self._report.note("files", "hole", message, block=name, rows=tuple(suspect))
        named = {FILE_NAME % number for number in range(len(header.rows))}
        orphans = sorted({*filter(is_data_file, os.listdir(folder))} - named)
        if orphans:
            message = "%s not named in the header: %s"
            message %= counted(len(orphans), "data file"), _some(orphans)
            self._report.note("files", "orphan", message, block=name)


@dataclass(eq=False)
class _FileCheck:
    """The check of a data file; ``holes`` are the rows whose bytes lie in holes."""

    _report: TreeReport
    _block: str
    _header: Header
    _files: DataFiles
    _number: int

    def __post_init__(self) -> None:
        start = self._header.starts[self._number]
        self._rows = start, start + self._header.rows[self._number]
        self.holes: Rows = []

    def _add(self, section: str, kind: str, message: str, rows: Rows) -> None:
        file = FILE_NAME % self._number
        where = {"block": self._block, "file": file, "rows": tuple(rows)}
        self._report.add(section, kind, message, **where)

    def add_unwritten(self, rows: Rows) -> None:
        """Report rows of the file that no writer has finished."""
        left = common(rows, [self._rows])
        if left:
            message = "no writer has finished %s" % text_of(left)
            self._add("files", "unwritten", message, left)

    def check(self, nthreads: int, progress: Progress | None) -> Rows:
        """Check the file; return the rows that are missing."""
        (first, stop), row_nbytes = self._rows, self._header.row_nbytes
        expected = (stop - first) * row_nbytes
        try:
            found = self._files.nbytes(self._number)
        except OSError as error:
            all_rows = [self._rows] if first < stop else []
            self._add("files", "file", error.strerror or str(error), all_rows)
            return all_rows
        self._report.nfiles += 1
        short: Rows = []
        if found < expected:
            short = [(first + found // row_nbytes, stop)]
            text = "the file has %d bytes, expected %d" % (found, expected)
            if not (found or os.path.exists(self._files.path(self._number))):
                text = "there is no file, expected %d bytes" % expected
            message = "%s missing: %s" % (text_of(short), text)
            self._add("files", "short", message, short)
        size = min(found, expected)
        if size:
            self._check_sum(size, nthreads, progress)
            for start, end in self._files.holes(self._number, size):
                low, high = -(-start // row_nbytes), end // row_nbytes
                if low < high:
                    self.holes.append((first + low, first + high))
        return short

    def _check_sum(self, size: int, nthreads: int, progress: Progress | None) -> None:
        header, number = self._header, self._number
        checksum = header.checksums[number]
        try:
            total = self._sum(size, nthreads, progress)
        except OSError as error:
            self._add("files", "file", error.strerror or str(error), [])
            return
        if total != checksum:
            rows = [self._rows]
            message = (
                "the bytes add up to %d, the header says %d: %s have changed, or were "
                "written twice or not counted"
            )
            message %= total, checksum, text_of(rows)
            self._add("files", "checksum", message, rows)
        elif header.folds[number] != folded(checksum):
            message = "the folded checksum is %d, expected %d"
            message %= header.folds[number], folded(checksum)
            self._add("header", "fold", message, [])

    def _sum(self, size: int, nthreads: int, progress: Progress | None) -> int:
        total = 0

        def work(offset: int) -> tuple[int, int]:
            piece = numpy.empty(min(PIECE_NBYTES, size - offset), "u1")
            with self._files.opened(self._number) as file:
                done = file.read_into(piece.data, offset)
            return byte_sum(piece[:done]), done

        def deliver(result: tuple[int, int]) -> None:
            nonlocal total
            total = (total + result[0]) % MODULUS
            self._report.nbytes += result[1]
            if progress is not None:
                progress(result[1])

        nthreads = nthreads if size > PIECE_NBYTES else 1
        ordered(range(0, size, PIECE_NBYTES), work, deliver, nthreads)
        return total


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + ", ..." * (len(names) > 4)


def _text(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return "%s: %s" % (os.path.basename(str(error.filename)), error.strerror)
    return str(error)
