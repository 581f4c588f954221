"""Save what is intact in a damaged dataset: ``dataset.recover(damaged, target)``.

The dataset is checked first. Then a new one of the same layout is written from the
intact chunks. Chunks of a damaged superchunk are read where they were found, without
the tables of the file.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy

from .._arrays.selection import ItemSelection
from .._check.findings import Pair
from .._check.note import with_note
from .._commit.access import FolderLimits, limits_of
from .._commit.new_folder import NewName
from .._commit.ownership import AccessLimits
from .._commit.pin import ReadChanged
from .._commit.replacing import check_apart
from .._engine.blosc_settings import own_settings
from .._engine.contexts import errors_to
from .._format.array_metadata import new_array
from .._format.chunks import decompress
from .._format.dtypes import Array
from .._format.grid import Grid, lengths
from .._format.rows import Rows, common, count, union, without
from .._format.text import empty_item
from .._storage.folder_store import FolderStore, StaleDataset
from .._storage.paths import local_path, without_url
from .._storage.zip_store import find_zip
from .._types import JsonObject, Path
from ..abstract_io import Progress
from ..exceptions import DamageError, FormatError, UsageError
from ..headers import check_range
from .changed_blocks import blocks_of
from .checking import DatasetCheck, joined_name, losses_of, lost_rows
from .commit_rules import DATASETS, creating
from .file_checks import DatasetRecovery, FileCheck, RowLoss
from .folder import Folder, until_unchanged
from .layouts import (
    LAYOUTS,
    array_class,
    blp_files,
    group_class,
    missing_members,
    table_class,
)
from .layouts.array_files import ChunkFiles
from .layouts.base import ArrayLayout, Blocks, NewArray, NodeLayout, TableLayout
from .layouts.chunk_files import OBJECT
from .rows import joined

Damage = dict[str, list[FileCheck]]
HasRows = ArrayLayout | TableLayout

# Fill values replace lost rows up to this size in bytes, or up to this multiple of the
# size of the stored rows. A damaged shape may claim any number of rows.
MAX_FILLED = 2**27
MAX_TIMES_FILLED = 16


def recover(
    damaged: Path,
    target: Path,
    *,
    fill: int | None = None,
    drop: bool = False,
    mode: str = "x",
    nthreads: int | None = None,
    sync: bool = True,
    progress: Progress | None = None,
) -> DatasetRecovery:
    """Write a new dataset with all intact chunks of a damaged one.

    The new one has the same layout. The damaged one is not changed. Rows that not all
    columns of a table have are left out.

    Parameters
    ----------
    damaged
        The folder of an array, a table or a group.
    target
        The folder of the new dataset, which appears when it is complete.
    fill
        The value of all bytes of lost items, 0 to 255; None for the fill value that was
        asked for, and in place of zero, in an array of Zarr that was made of data, for
        one that data do not have.
    drop
        Leave lost rows out instead; in a table, all columns of these rows.
    mode
        ``'x'`` if `target` must not exist, ``'w'`` to replace a dataset.
    nthreads, progress
        As in `verify`.
    sync
        Whether the new dataset is on the disk when this returns.

    Raises
    ------
    FormatError
        If nothing can be recovered, because the description is damaged.
    UsageError
        If the items are Python objects, or if `target` is inside of `damaged`.
    FileExistsError
        If `target` exists.
    OSError
        If a file can't be read: no fill values take the place of its rows.
    """
    if fill is not None:
        check_range("fill", fill, 0, 255)
    without_url(local_path(damaged), "recovering a dataset")
    target = local_path(target)
    without_url(target, "recovering a dataset")
    root = Folder.open(damaged).store.root
    check_apart(root, os.path.abspath(os.fsdecode(target)))

    def tell(error: Any) -> None:
        is_missing = isinstance(error, (StaleDataset, FileNotFoundError))
        if is_missing and str(error.filename).startswith(root + os.sep):
            raise ReadChanged(root) from error

    def save() -> DatasetRecovery:
        with errors_to(tell):
            check = DatasetCheck(root, nthreads, progress)
            check.raise_failure()
            saver = _Saver(check, fill, drop, sync)
            with own_settings:
                saver.save("", os.fspath(target), mode)
            return saver.recovery

    return until_unchanged(save)


class _Saver:
    """Writes the new dataset; `recovery` has the result."""

    def __init__(
        self, check: DatasetCheck, fill: int | None, drop: bool, sync: bool
    ) -> None:
        report = check.report
        self.recovery = DatasetRecovery(
            report,
            check.unreached,
            nsaved=report.nintact,
            nlost=report.nchunks - report.nintact,
            certain=all(file.certain for _, file in check.files),
        )
        self._nodes = check.nodes
        # The checks of the damaged files, by the name of the array.
        self._damage: Damage = {}
        for array, file in check.files:
            self._damage.setdefault(array, []).append(file)
        self._fill = fill
        self._drop = drop
        self._sync = sync

    def save(self, name: str, target: Path | NewName, mode: str) -> None:
        """Write the dataset, or the member of a group, in the state of the check."""
        node = self._nodes[name]
        if isinstance(node, Exception):
            raise node
        layout = LAYOUTS[node.name].instead or node.name
        if isinstance(node, (ArrayLayout, TableLayout)):
            if layout != node.name:
                self._remark("'%s' has the layout '%s'" % (name or ".", layout))
            self._save_rows(node, target, name, layout, mode)
            return
        attributes = self._noted(self._attributes(node, name), name, [], (0, 0), "")
        for file in blp_files(node.folder):
            why = "is a file by itself: recover it separately"
            self._lose(joined_name(name, file), why)
        for lost in missing_members(node.folder):
            self._lose(joined_name(name, lost), "is lost: its folder is missing")
        with creating(target, mode, self._sync, _limits_of(node.folder)) as change:
            group_class(layout).create(change, attributes)
            for inner in self._members(name):
                last = inner.rpartition("/")[2]
                new_name = NewName(change.store, last, DATASETS, change.model_of(last))
                try:
                    self.save(inner, new_name, "x")
                except (FormatError, UsageError) as error:
                    self._lose(inner, "could not be recovered: %s" % error)

    def _members(self, name: str) -> list[str]:
        """Return the names of the members of a group."""
        return [n for n in self._nodes if n and n.rpartition("/")[0] == name]

    def _is_part(self, name: str) -> bool:
        """Return whether the document of a member says that a group commits it."""
        node = self._nodes[name]
        return (
            isinstance(node, NodeLayout) and node.folder.tree.state.is_committed_around
        )

    def _lose(self, member: str, why: str) -> None:
        """Note a member of which nothing is saved."""
        self.recovery.losses.append(RowLoss(member, None))
        self._remark("'%s' %s" % (member, why))

    def _remark(self, text: str) -> None:
        self.recovery.remarks.append(text)

    def _attributes(self, node: NodeLayout, name: str) -> JsonObject:
        with suppress(FormatError):
            attributes: JsonObject = node.read_attributes()
            # A folder without a document has none; this one is damaged, or was lost.
            if node.name != "folder" or not (
                node.description_files or any(map(self._is_part, self._members(name)))
            ):
                return attributes
        self.recovery.lost_attributes.append(name or ".")
        return {}

    # Arrays

    def _save_rows(
        self, node: HasRows, target: Path | NewName, name: str, layout: str, mode: str
    ) -> None:
        """Write an array or a table: an array is saved like the column of a table."""
        attributes = self._attributes(node, name)
        if isinstance(node, ArrayLayout):
            arrays, array_layout = {"": node}, array_class(layout)
        else:
            unopened = node.unopened or {}
            if not node.columns:
                for error in unopened.values():
                    raise error
                path = node.folder.path()
                raise DamageError("the table has no columns", filename=path)
            for column in unopened:
                self.recovery.losses.append(RowLoss(joined_name(name, column), None))
                self._remark("the column '%s' could not be recovered" % column)
            arrays = node.columns
            array_layout = table_class(layout).array_class
        saved = {
            inner: SavedArray(a, joined_name(name, inner), self._damage, self._fill)
            for inner, a in arrays.items()
        }
        lengths = [part.length for part in saved.values()]
        length, most = min(lengths), max(lengths)
        for part in saved.values():
            self.recovery.losses += part.losses(length, drop=self._drop)
        lost = {inner: part.lost_rows() for inner, part in saved.items()}
        all_lost = union(run for runs in lost.values() for run in runs)
        dropped = all_lost if self._drop else []
        value = saved[""].value if "" in saved else ""
        attributes = self._noted(attributes, name, all_lost, (length, most), value)
        columns = {}
        for column, part in saved.items():
            new = part.layout.new_array()
            new.attrs = attributes
            if column:
                own = self._attributes(part.layout, part.name)
                behind = length, part.length
                how = lost[column], behind, part.value
                new.attrs = self._noted(own, part.name, *how)
            if lost[column] and not self._drop:
                which = part.name or "the array"
                self._remark("lost rows of %s are filled with %s" % (which, part.value))
            columns[column] = new, part.blocks(array_layout, new, length, dropped)
        with creating(target, mode, self._sync, _limits_of(node.folder)) as change:
            if isinstance(node, ArrayLayout):
                array_layout.create(change, "", *columns[""])
            else:
                table_class(layout).create(change, columns, attributes)

    def _noted(
        self, attributes: JsonObject, name: str, lost: Rows, behind: Pair, value: str
    ) -> JsonObject:
        """Return attributes with a note of the rows that are lost, if there are any.

        The rows `behind` the last one of all columns are left out, and the others are
        filled with `value`.
        """
        cut = [behind] * (behind[0] < behind[1])
        no_attributes = (name or ".") in self.recovery.lost_attributes
        if not lost and not cut and not no_attributes:
            return attributes
        filled = [] if self._drop else without(lost, cut)
        left_out = union([*lost, *cut]) if self._drop else cut
        return with_note(
            attributes,
            "rows",
            filled,
            left_out,
            self._fill,
            certain=self.recovery.certain,
            lost=no_attributes,
            value=value,
        )


class SavedArray:
    """The rows of an array, with fill values in place of those that are lost."""

    def __init__(
        self, layout: ArrayLayout, name: str, damage: Damage, fill: int | None
    ) -> None:
        if layout.dtype == OBJECT and not layout.has_text:
            raise UsageError(
                "arrays of Python objects can't be recovered: '%s'"
                % layout.folder.path()
            )
        self.layout = layout
        self.name = name
        self._parts = [
            SavedPart(fields, source, damage.get(joined_name(name, *fields), []))
            for fields, source in layout.parts()
        ]
        self._inner = layout.shape[1:]
        # An item without axes is like a row.
        self.length = layout.shape[0] if layout.shape else 1
        self._row_nbytes = math.prod(self._inner) * layout.dtype.itemsize
        # A sparse array gets the rows that are lost only if they have a value.
        self._writes_lost = fill is not None
        if fill is None or layout.dtype == OBJECT:
            asked = layout.fill_value
            is_usual = numpy.all(asked == empty_item(layout.dtype))
            self._fill = layout.missing_value if is_usual else asked
        else:
            content = bytes([fill]) * layout.dtype.itemsize
            self._fill = numpy.frombuffer(content, layout.dtype, 1)[0]

    @property
    def value(self) -> str:
        """The item in place of those that are lost, as text."""
        return str(self._fill) or "''"

    def losses(self, length: int, *, drop: bool) -> Iterator[RowLoss]:
        """Yield what each part has lost, and the rows behind row `length`.

        With `drop`, all of a row is lost with an item of it.
        """
        for part in self._parts:
            name = joined_name(self.name, *part.fields)
            dropped = (RowLoss(name, rows) for rows in lost_rows(part.checks))
            yield from dropped if drop else losses_of(name, part.checks)
        if self.length > length:
            yield RowLoss(self.name, (length, self.length))

    def lost_rows(self) -> Rows:
        """Return the rows that any part has lost."""
        return union(rows for part in self._parts for rows in lost_rows(part.checks))

    def blocks(
        self, target: type[ArrayLayout], new: NewArray, length: int, dropped: Rows
    ) -> Blocks:
        """Return the blocks up to row `length`, without the rows `dropped`.

        Files that the damaged array lacks, because they were never written, are left
        out if the layout `target` allows that. The length of `new` is set. Raises
        `FormatError` if most of many rows would be fill values.
        """
        kept = without([(0, length)], dropped)
        total = count(kept)
        if new.shape:
            new.shape = (total, *new.shape[1:])
        grid = target.grid_for(new)
        written = [(0, total)] if self._row_nbytes else []
        if self.layout.may_lack_files and self.layout.leaves_out and grid.shape:
            new.sparse = target.sparse
        if new.sparse:
            lost = self.lost_rows() if self._writes_lost else ()
            rows = union([*self._stored(), *lost])
            written = whole_files(moved(kept, rows), grid.shard[0], total)
        nrows, row, stored = count(written), self._row_nbytes, count(self._stored())
        if (nrows - stored) * row > max(MAX_FILLED, MAX_TIMES_FILLED * stored * row):
            raise self.layout.folder.damage(
                "only '%d' of '%d' rows are stored, and the others would be fill "
                "values; drop=True leaves lost rows out" % (stored, nrows)
            )
        return self._blocks(kept, written, grid)

    def _stored(self) -> Rows:
        return union(run for part in self._parts for run in part.stored_rows())

    def _blocks(self, kept: Rows, written: Rows, grid: Grid) -> Blocks:
        """Yield the chunks of new rows that are in `written`."""
        if not grid.shape:
            yield from ((0, self._rows(0, 1)) for _ in written)
            return
        step = grid.chunk[0] if grid.is_rows else grid.shard[0]
        for first, last in written:
            for start in range(first, last, step):
                stop = min(start + step, last)
                pieces = [self._rows(*old) for old in rows_before(kept, start, stop)]
                rows = joined(pieces, self.layout.dtype, self._inner)
                yield from blocks_of(rows, grid, start)

    def _rows(self, start: int, stop: int) -> Array:
        """Return rows of the damaged array."""
        grid = self.layout.grid
        selection = ItemSelection(slice(start, stop) if grid.shape else (), grid.shape)
        items = new_array(selection.counts, self.layout.dtype)
        items[...] = self._fill
        for number, target, source in selection.parts(grid):
            shape = lengths(grid.box(number)) if grid.is_rows else grid.chunk
            for part in self._parts:
                plain = part.read(number)
                if plain is None:
                    continue
                room = items[(*target, ...)]
                for name in part.fields:
                    room = room[name]
                decode = part.source.decode
                if decode is not None:
                    text = decode(memoryview(plain))
                    room[...] = text[tuple(map(slice, shape))][source]
                    continue
                shape_of_part = (*shape, *room.shape[len(shape) :])
                size = math.prod(shape_of_part) * room.dtype.itemsize
                plain = plain[:size].ljust(size, b"\0")  # an end may be short
                decoded: Array = numpy.frombuffer(plain, room.dtype)
                room[...] = decoded.reshape(shape_of_part)[source]
        return items


@dataclass(eq=False)
class SavedPart:
    """The chunks of a part of an array, and the checks of its damaged files."""

    fields: tuple[str, ...]
    source: ChunkFiles
    checks: list[FileCheck]

    def stored_rows(self) -> Rows:
        """Return the rows in files that exist, apart from those that are lost."""
        boxes = map(self.source.cut.shard_box, self.source.stored())
        stored = union((box[0].start, box[0].stop) if box else (0, 1) for box in boxes)
        return without(stored, lost_rows(self.checks))

    def read(self, number: int) -> bytes | None:
        """Return the plain bytes of a chunk; None if there are none, or are lost."""
        if number // self.source.slots >= self.source.nfiles:  # rows without bytes
            return None
        # The check of the file, if it is damaged.
        index = bisect_right(self.checks, number, key=lambda c: c.numbers[0]) - 1
        check = self.checks[index] if index >= 0 else None
        if check is not None and number not in check.numbers:
            check = None
        if check is not None and number not in check.intact:
            return None
        if check is not None and number in check.extents:
            offset, size = check.extents[number]
            folder = self.source.folder
            storage = folder.storage(check.source.removeprefix(folder.prefix))
            return decompress(storage.read_at(offset, size))
        plain: list[bytes] = []
        self.source.load([number], lambda _, view: plain.append(bytes(view)))
        return plain[0]


def moved(kept: Rows, rows: Rows) -> Rows:
    """Return the positions of `rows` in an array that has the rows `kept` only."""
    ranges, position = [], 0
    for start, stop in kept:
        part = common(rows, [(start, stop)])
        ranges += [(a - start + position, b - start + position) for a, b in part]
        position += stop - start
    return union(ranges)


def rows_before(kept: Rows, start: int, stop: int) -> Rows:
    """Return where new rows, [start, stop), were before all but `kept` was removed."""
    ranges, position = [], 0
    for first, last in kept:
        low, high = max(start, position), min(stop, position + last - first)
        if low < high:
            ranges.append((low - position + first, high - position + first))
        position += last - first
    return ranges


def whole_files(rows: Rows, size: int, length: int) -> Rows:
    """Return all rows of the files of `size` rows that have some of `rows`."""
    return union((a - a % size, min(-(-b // size) * size, length)) for a, b in rows)


def _limits_of(folder: Folder) -> AccessLimits | None:
    """Return the limits for readers of a copy of a dataset, or of one in a ZIP."""
    if isinstance(folder.store, FolderStore):
        return FolderLimits(folder.store)
    archive = find_zip(folder.store.root)
    return None if archive is None else limits_of(archive[0])
