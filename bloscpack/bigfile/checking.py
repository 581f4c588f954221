"""Checks a tree: headers, attributes, data files, checksums, rows never written.

Each failed check yields a finding; nothing raises except a tree that is not there. A
finding names the rows that it affects.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy

from .._check.findings import ERROR, NOTE, Record
from .._engine.threads import for_each
from .._format.rows import common, text_of, union, without
from .._storage.protocols import Path
from ..defaults import available_cpus
from ..exceptions import FormatError, NoSuchBlock
from .attributes import AttributeSet
from .file import File
from .header import FILE_NAME, MODULUS, PIECE_NBYTES, Header, folded
from .tree import is_data_file
from .writing import DataFiles, byte_sum, read_state

if TYPE_CHECKING:
    from .._format.rows import Rows
    from .tree import Tree

Progress = Callable[[int], object]

# Where a name is used that no block can have: the finding is about the whole tree.
ROOT = "."


@dataclass(frozen=True)
class TreeFinding(Record):
    """A difference between a tree and the format.

    Attributes
    ----------
    block
        The name of the block or group, ``.`` for the tree itself.
    kind
        ``'header'``, ``'attributes'``, ``'short'``, ``'unwritten'``, ``'hole'``,
        ``'checksum'``, ``'fold'``, ``'orphan'`` or ``'file'``.
    message
        A sentence for people.
    severity
        ``'error'`` or ``'note'``.
    file
        The name of the data file, or None.
    rows
        The affected rows of the block, as pairs (start, stop).
    """

    block: str
    kind: str
    message: str
    severity: str = ERROR
    file: str | None = None
    rows: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        place = self.block if self.file is None else self.block + "/" + self.file
        return "%s: %s: %s" % (self.severity, place, self.message)


@dataclass(frozen=True)
class TreeReport(Record):
    """The result of `verify`.

    Attributes
    ----------
    filename
        The path of the tree.
    nblocks, nfiles, nbytes
        The number of blocks, data files, and bytes in them that were checked.
    findings
        All findings, block by block.
    """

    filename: str
    nblocks: int
    nfiles: int
    nbytes: int
    findings: tuple[TreeFinding, ...]

    derived = ("ok",)

    @property
    def ok(self) -> bool:
        """Whether there is no error; notes do not count."""
        return not any(finding.severity == ERROR for finding in self.findings)


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
    checker = _Checker(file._tree, nthreads or available_cpus(), progress)
    for name in file.blocks if blocks is None else blocks:
        full = file._full(name)
        if not file._tree.is_block(full):
            raise NoSuchBlock("'%s' has no block '%s'" % (file.basename, name))
        checker.check_block(full)
    if blocks is None:
        for group in file._tree.groups(file._group):
            checker.check_group(file._full(group), group or ROOT)
        if not (checker.nblocks or checker.findings or checker.nattributes):
            text = "'%s' has no block and no attributes, so it is no BigFile tree"
            raise NoSuchBlock(text % file.basename)
    return TreeReport(
        file.basename,
        checker.nblocks,
        checker.nfiles,
        checker.nbytes,
        tuple(checker.findings),
    )


class _Checker:
    """Collects the findings of the blocks that it checks."""

    def __init__(self, tree: Tree, nthreads: int, progress: Progress | None) -> None:
        self._tree = tree
        self.nthreads = nthreads
        self._progress = progress
        self.findings: list[TreeFinding] = []
        self.nblocks = self.nfiles = self.nbytes = self.nattributes = 0

    def check_attributes(self, name: str, shown: str) -> None:
        """Check that the attributes of a block or group can be read."""
        try:
            attributes = AttributeSet(self._tree, self._tree.folder(name))
            for key in attributes:
                attributes[key]
                self.nattributes += 1
        except (FormatError, OSError) as error:
            self.findings.append(TreeFinding(shown, "attributes", _text(error)))

    def check_group(self, name: str, shown: str) -> None:
        """Check the folder of a group, which may be an unfinished block."""
        self.check_attributes(name, shown)
        files = sorted(filter(is_data_file, os.listdir(self._tree.folder(name))))
        if files:
            text = "data files without a header: the block was never finished: "
            self.findings.append(TreeFinding(shown, "header", text + _some(files)))

    def check_block(self, name: str) -> None:
        """Check everything in the folder of a block."""
        self.nblocks += 1
        self.check_attributes(name, name)
        try:
            folder = self._tree.folder(name)
            header, _, unwritten = read_state(self._tree, folder)
        except (FormatError, OSError) as error:
            self.findings.append(TreeFinding(name, "header", _text(error)))
            return
        _BlockCheck(self, name, header, DataFiles(self._tree, folder)).run(
            folder, unwritten
        )

    def add_progress(self, nbytes: int) -> None:
        """Count bytes that have been checked."""
        self.nbytes += nbytes
        if self._progress is not None:
            self._progress(nbytes)


class _BlockCheck:
    """The check of the data files of a block."""

    def __init__(
        self, checker: _Checker, name: str, header: Header, files: DataFiles
    ) -> None:
        self._checker = checker
        self._name = name
        self._header = header
        self._files = files

    def run(self, folder: str, unwritten: Rows) -> None:
        """Check all data files; `unwritten` are rows known to be unwritten."""
        holes: Rows = []
        try:
            for number in range(len(self._header.rows)):
                short, file_holes = self._check_file(number)
                self._note_unwritten(number, without(unwritten, short))
                holes += file_holes
        finally:
            self._files.close()
        suspect = without(union(holes), unwritten)
        if suspect:
            self._add(
                "hole",
                "%s in a hole of the file: zeros, or never written" % text_of(suspect),
                severity=NOTE,
                rows=suspect,
            )
        self._check_orphans(folder)

    def _note_unwritten(self, number: int, rows: Rows) -> None:
        """Add a finding for rows that are unwritten, and read as zeros or old bytes."""
        start, stop = self._header.starts[number : number + 2]
        left = common(rows, [(start, stop)])
        if left:
            text = "no writer has finished %s" % text_of(left)
            self._add("unwritten", text, number=number, rows=left)

    def _add(
        self,
        kind: str,
        message: str,
        *,
        severity: str = ERROR,
        number: int | None = None,
        rows: Rows = (),  # type: ignore[assignment]
    ) -> None:
        file = None if number is None else FILE_NAME % number
        self._checker.findings.append(
            TreeFinding(self._name, kind, message, severity, file, tuple(rows))
        )

    def _check_file(self, number: int) -> tuple[Rows, Rows]:
        """Check a data file; return the rows that are missing, and those in holes."""
        header = self._header
        first, rows = header.starts[number], header.rows[number]
        expected = rows * header.row_nbytes
        try:
            found = self._files.nbytes(number)
        except OSError as error:
            all_rows = [(first, first + rows)] if rows else []
            self._add(
                "file", error.strerror or str(error), number=number, rows=all_rows
            )
            return all_rows, []
        self._checker.nfiles += 1
        short: Rows = []
        if found < expected:
            whole = found // header.row_nbytes
            short = [(first + whole, first + rows)]
            self._add(
                "short",
                "%s missing: %s"
                % (text_of(short), self._size_text(number, found, expected)),
                number=number,
                rows=short,
            )
        size = min(found, expected)
        if size:
            self._check_sum(number, size)
        holes = self._holes(number, size) if size else []
        return short, holes

    def _size_text(self, number: int, found: int, expected: int) -> str:
        if found or os.path.exists(self._files.path(number)):
            return "the file has %d bytes, expected %d" % (found, expected)
        return "there is no file, expected %d bytes" % expected

    def _check_sum(self, number: int, size: int) -> None:
        header = self._header
        checksum = header.checksums[number]
        try:
            total = self._sum(number, size)
        except OSError as error:
            self._add("file", error.strerror or str(error), number=number)
            return
        if total != checksum:
            first = header.starts[number]
            rows = [(first, first + header.rows[number])]
            self._add(
                "checksum",
                "the bytes add up to %d, the header says %d: %s have changed, or were "
                "written twice or not counted" % (total, checksum, text_of(rows)),
                number=number,
                rows=rows,
            )
        elif header.folds[number] != folded(checksum):
            self._add(
                "fold",
                "the folded checksum is %d, expected %d"
                % (header.folds[number], folded(checksum)),
                number=number,
            )

    def _sum(self, number: int, size: int) -> int:
        total = 0

        def work(offset: int) -> tuple[int, int]:
            piece = numpy.empty(min(PIECE_NBYTES, size - offset), "u1")
            with self._files.opened(number) as file:
                done = file.read_into(piece.data, offset)
            return byte_sum(piece[:done]), done

        def deliver(result: tuple[int, int]) -> None:
            nonlocal total
            total = (total + result[0]) % MODULUS
            self._checker.add_progress(result[1])

        nthreads = self._checker.nthreads if size > PIECE_NBYTES else 1
        for_each(range(0, size, PIECE_NBYTES), work, deliver, nthreads)
        return total

    def _holes(self, number: int, size: int) -> Rows:
        """Return the rows whose bytes all lie in holes of a data file."""
        row_nbytes, first = self._header.row_nbytes, self._header.starts[number]
        found = []
        for start, stop in self._files.holes(number, size):
            low, high = -(-start // row_nbytes), stop // row_nbytes
            if low < high:
                found.append((first + low, first + high))
        return found

    def _check_orphans(self, folder: str) -> None:
        number = len(self._header.rows)
        expected = {FILE_NAME % i for i in range(number)}
        names = [entry for entry in os.listdir(folder) if is_data_file(entry)]
        orphans = sorted(set(names) - expected)
        if orphans:
            self._add(
                "orphan",
                "%d data file%s not named in the header: %s"
                % (len(orphans), "s" * (len(orphans) != 1), _some(orphans)),
                severity=NOTE,
            )


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + ", ..." * (len(names) > 4)


def _text(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return "%s: %s" % (os.path.basename(str(error.filename)), error.strerror)
    return str(error)
