"""Checks a tree: headers, attributes, data files, checksums, rows never written.

Each failed check yields a finding; nothing raises except a tree that is not there. A
finding names the rows that it affects.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy

from .._check.findings import Finding, Pair, Report, failure_kind
from .._engine.threads import ordered
from .._format.rows import Rows, common, text_of, union, without
from .._types import Path
from ..defaults import available_cpus
from ..exceptions import FormatError, NoSuchBlock
from ..log import counted
from .attributes import AttributeSet
from .block import Block, byte_sum
from .file import File, Progress
from .header import FILE_NAME, MODULUS, PIECE_NBYTES, folded
from .tree import Tree, is_data_file

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
        ``'checksum'``, ``'fold'``, ``'orphan'`` or ``'file'``; ``'permission'`` or
        ``'unreadable'`` if the system could not read a file, which may be intact.
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
    report, has_attributes = TreeReport(file.basename), False
    blocks, groups = (file.blocks, [""]) if blocks is None else (blocks, [])
    if groups:
        walk = file._tree.walk(file._group)
        groups += sorted(name for name, is_block in walk if not is_block)
    for name in [*blocks, *groups]:
        full = file._full(name)
        folder, shown = file._tree.folder(full), full or ROOT
        is_block = file._tree.is_block(full)
        if not is_block and name in blocks:
            raise NoSuchBlock("'%s' has no block '%s'" % (file.basename, name))
        try:
            has_attributes |= bool(dict(AttributeSet(file._tree, folder)))
        except (FormatError, OSError) as error:
            kind = failure_kind(error) or "attributes"
            report.add("attributes", kind, _text(error), block=shown)
        if is_block:
            _check_block(
                report, file._tree, full, nthreads or available_cpus(), progress
            )
        elif files := _data_files(folder):
            text = "data files without a header: the block was never finished: "
            report.add("header", "header", text + _some(files), block=shown)
    if groups and not (report.nblocks or report.findings or has_attributes):
        text = "'%s' has no block and no attributes, so it is no BigFile tree"
        raise NoSuchBlock(text % file.basename)
    return report


def _check_block(
    report: TreeReport, tree: Tree, name: str, nthreads: int, progress: Progress | None
) -> None:
    """Check the header and the data files of a block."""
    report.nblocks += 1
    folder, name = tree.folder(name), name or ROOT
    try:
        header, _, unwritten = tree.read_state(folder)
    except (FormatError, OSError) as error:
        kind = failure_kind(error) or "header"
        report.add("header", kind, _text(error), block=name)
        return
    block, row_nbytes = Block(tree, folder, header), header.row_nbytes
    holes: Rows = []

    def count(nbytes: int) -> None:
        report.nbytes += nbytes
        if progress is not None:
            progress(nbytes)

    for number, (first, stop) in enumerate(pairwise(header.starts)):
        add = partial(report.add, block=name, file=FILE_NAME % number)
        expected, rows = (stop - first) * row_nbytes, ((first, stop),)
        try:
            found = block.nbytes(number)
            report.nfiles += 1
            size = min(found, expected)
            total = _sum(block, number, size, nthreads, count)
            in_holes = _holes(tree, block.path(number), size) if size else []
        except OSError as error:
            text = error.strerror or str(error)
            kind = failure_kind(error) or "file"
            add("files", kind, text, rows=rows if first < stop else ())
            continue
        missing: Rows = []
        if found < expected:
            missing = [(first + found // row_nbytes, stop)]
            text = "the file has %s, expected %d" % (counted(found, "byte"), expected)
            if not (found or os.path.exists(block.path(number))):
                text = "there is no file, expected " + counted(expected, "byte")
            text = "%s missing: %s" % (text_of(missing), text)
            add("files", "short", text, rows=tuple(missing))
        checksum, fold = header.checksums[number], header.folds[number]
        if size and total != checksum:
            text = (
                "the bytes add up to %d, the header says %d: a change of %s was not "
                "counted, or made twice"
            )
            text %= total, checksum, text_of([(first, stop)])
            add("files", "checksum", text, rows=rows)
        elif size and fold != folded(checksum):
            text = "the folded checksum is %d, expected %d" % (fold, folded(checksum))
            add("header", "fold", text)
        left = common(without(unwritten, missing), [(first, stop)])
        if left:
            text = "no writer has finished %s" % text_of(left)
            add("files", "unwritten", text, rows=tuple(left))
        for start, end in in_holes:
            holes.append((first - (-start // row_nbytes), first + end // row_nbytes))
    block.close()
    suspect = without(union(holes), unwritten)
    if suspect:
        text = "%s in a hole of the file: zeros, or never written" % text_of(suspect)
        report.note("files", "hole", text, block=name, rows=tuple(suspect))
    named = {FILE_NAME % number for number in range(len(header.rows))}
    orphans = [file for file in _data_files(folder) if file not in named]
    if orphans:
        text = "%s not named in the header: " % counted(len(orphans), "data file")
        report.note("files", "orphan", text + _some(orphans), block=name)


def _sum(block: Block, number: int, size: int, nthreads: int, count: Progress) -> int:
    """Return the sum of the first `size` bytes of a data file, which are counted."""
    total = 0

    def work(offset: int) -> tuple[int, int]:
        piece = numpy.empty(min(PIECE_NBYTES, size - offset), "u1")
        done = block.file(number).read_into(piece.data, offset)
        return byte_sum(piece[:done]), done

    def deliver(result: tuple[int, int]) -> None:
        nonlocal total
        total = (total + result[0]) % MODULUS
        count(result[1])

    nthreads = nthreads if size > PIECE_NBYTES else 1
    ordered(range(0, size, PIECE_NBYTES), work, deliver, nthreads)
    return total


def _holes(tree: Tree, path: str, size: int) -> list[tuple[int, int]]:
    """Return the holes of a data file up to `size`; none if the system can't tell.

    They begin and end at blocks of the file system.
    """
    holes: list[tuple[int, int]] = []
    file = tree.open_file(path, os.O_RDONLY)
    with suppress(AttributeError, OSError):
        descriptor, stop = file.fileno(), 0
        while stop < size:
            start = os.lseek(descriptor, stop, os.SEEK_HOLE)
            if start >= size:
                break
            stop = size
            with suppress(OSError):  # there are no data behind the hole
                stop = min(size, os.lseek(descriptor, start, os.SEEK_DATA))
            holes.append((start, stop))
    return holes


def _data_files(folder: str) -> list[str]:
    return sorted(filter(is_data_file, os.listdir(folder)))


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + ", ..." * (len(names) > 4)


def _text(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return "%s: %s" % (os.path.basename(str(error.filename)), error.strerror)
    return str(error)
