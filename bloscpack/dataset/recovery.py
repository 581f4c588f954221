"""Save what is intact in a damaged dataset: ``dataset.recover(damaged, target)``.

The dataset is checked first. Then a new one of the same layout is written from the
intact chunks. Chunks of a damaged superchunk are read where they were found, without
the tables of the file.
"""

from __future__ import annotations

import os

import numpy

from .._engine.blosc_settings import own_settings
from .._format.array_metadata import new_array
from .._format.chunks import decompress
from .._storage.urls import local_path, without_url
from ..exceptions import FormatError, UsageError, UsageValueError
from ..headers import check_range
from .access import limits_in
from .checking import check_dataset, joined_name, open_for_check
from .create import NewName, creating
from .findings import DatasetRecovery, RowLoss, runs_of
from .folder import Folder
from .layouts import (
    array_class,
    detect,
    find_members,
    group_class,
    table_class,
)
from .layouts.base import ArrayLayout, TableLayout
from .layouts.objects import OBJECT
from .row_stream import RowStream, counted

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from .._format.dtypes import Array
    from .._storage.protocols import Path
    from ..abstract_io import Progress
    from ..serializers import JsonObject
    from .file_checks import FileCheck
    from .findings import DatasetReport
    from .layouts import Found
    from .layouts.base import Blocks, NewArray

    # What was found in the damaged files of a part of an array, by the array's name.
    Damage = dict[str, list[FileCheck]]

# The layout of a new dataset for those that can only be read.
INSTEAD = {"folder": "zarr"}


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
        The value of all bytes of lost items, 0 to 255; None for the fill value of the
        array.
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
    """
    if fill is not None:
        check_range("fill", fill, 0, 255)
    without_url(local_path(damaged), "recovering a dataset")
    target = local_path(target)
    without_url(target, "recovering a dataset")
    folder = Folder.open(damaged)
    root = folder.root
    _check_apart(root, os.path.abspath(os.fsdecode(target)))
    damage: Damage = {}

    def keep(name: str, layout: ArrayLayout, part: int, check: FileCheck) -> None:
        if not check.ok:
            damage.setdefault(name, []).append(check)

    report = check_dataset(root, nthreads, progress, keep)
    saver = _Saver(report, damage, fill, drop, sync)
    with own_settings:
        found = detect(folder)
        saver.save(folder, os.fspath(target), "", found.layout, found.kind, mode)
    return saver.recovery


def _check_apart(damaged: str, target: str) -> None:
    """Raise `UsageError` if one folder is inside of the other."""
    first, second = (os.path.join(os.path.realpath(p), "") for p in (damaged, target))
    if first.startswith(second) or second.startswith(first):
        raise UsageValueError(
            "the new dataset '%s' must be neither inside of '%s' nor around it"
            % (target, damaged)
        )


class _Saver:
    """Writes the new dataset; `recovery` has the result."""

    def __init__(
        self,
        report: DatasetReport,
        damage: Damage,
        fill: int | None,
        drop: bool,
        sync: bool,
    ) -> None:
        self.recovery = DatasetRecovery(report)
        self.recovery.nsaved = report.nintact
        self.recovery.nlost = report.nchunks - report.nintact
        self.recovery.certain = all(
            check.certain for checks in damage.values() for check in checks
        )
        self._damage = damage
        self._fill = fill
        self._drop = drop
        self._sync = sync

    def save(
        self,
        folder: Folder,
        target: Path | NewName,
        name: str,
        layout: str,
        kind: str,
        mode: str,
    ) -> None:
        """Write the dataset, or the member of a group, in a folder."""
        node = open_for_check(folder, layout, kind)
        attributes = self._attributes(node, name)
        new_layout = INSTEAD.get(layout, layout)
        if new_layout != layout and kind != "group":
            self._remark("'%s' has the layout '%s'" % (name or ".", new_layout))
        if isinstance(node, ArrayLayout):
            self._save_array(node, target, name, new_layout, mode, attributes)
        elif isinstance(node, TableLayout):
            self._save_table(node, target, name, new_layout, mode, attributes)
        else:
            with creating(target, mode, self._sync, limits_in(folder)) as change:
                group_class(new_layout).create(change, attributes)
                for last, found in find_members(folder):
                    place = NewName(change.folder, last)
                    inner = joined_name(name, last)
                    self._save_member(found, place, inner)

    def _save_member(self, member: Found, target: NewName, name: str) -> None:
        try:
            self.save(member.folder, target, name, member.layout, member.kind, "x")
        except (FormatError, UsageError) as error:
            self.recovery.losses.append(RowLoss(name, None))
            self._remark("'%s' could not be recovered: %s" % (name, error))

    def _remark(self, text: str) -> None:
        self.recovery.remarks.append(text)

    def _attributes(self, node: Any, name: str) -> JsonObject:
        try:
            found: JsonObject = node.read_attributes()
        except FormatError:
            self.recovery.lost_attributes.append(name or ".")
            return {}
        return found

    # Arrays

    def _saved(self, array: ArrayLayout, name: str) -> SavedArray:
        return SavedArray(array, name, self._damage, self._fill)

    def _save_array(
        self,
        array: ArrayLayout,
        target: Path | NewName,
        name: str,
        layout: str,
        mode: str,
        attributes: JsonObject,
    ) -> None:
        saved = self._saved(array, name)
        self._note_losses([saved], name, array.shape[0])
        found = array_class(layout)
        new = saved.new_array(attributes)
        dropped = saved.lost_rows() if self._drop else []
        step = found.block_rows_for(new)
        limits = limits_in(array.folder)
        with creating(target, mode, self._sync, limits) as change:
            blocks = saved.blocks(step, new, array.shape[0], dropped)
            found.create(change, "", new, blocks)

    def _save_table(
        self,
        table: TableLayout,
        target: Path | NewName,
        name: str,
        layout: str,
        mode: str,
        attributes: JsonObject,
    ) -> None:
        if not table.columns:
            raise next(iter((table.unopened or {}).values()))
        for column in table.unopened or ():
            self.recovery.losses.append(RowLoss(joined_name(name, column), None))
            self._remark("the column '%s' could not be recovered" % column)
        saved = {
            column: SavedArray(
                array, joined_name(name, column), self._damage, self._fill
            )
            for column, array in table.columns.items()
        }
        length = min(array.shape[0] for array in table.columns.values())
        self._note_losses(list(saved.values()), name, length)
        dropped: list[tuple[int, int]] = []
        if self._drop:
            lost = (run for part in saved.values() for run in part.lost_rows())
            dropped = merged(lost)
        found = table_class(layout)
        columns = {}
        for column, part in saved.items():
            values = self._attributes(table.columns[column], part.name)
            new = part.new_array(values)
            step = found.array_class.block_rows_for(new)
            columns[column] = new, part.blocks(step, new, length, dropped)
        limits = limits_in(table.folder)
        with creating(target, mode, self._sync, limits) as change:
            found.create(change, columns, attributes)

    def _note_losses(
        self, arrays: Sequence[SavedArray], name: str, length: int
    ) -> None:
        """Note the rows that are lost, and those that not all columns have."""
        for array in arrays:
            for part, rows in array.losses():
                self.recovery.losses.append(RowLoss(part, rows))
            if array.layout.shape[0] > length:
                more = length, array.layout.shape[0]
                self.recovery.losses.append(RowLoss(array.name, more))


class SavedArray:
    """The rows of an array, with fill values in place of those that are lost."""

    def __init__(
        self, layout: ArrayLayout, name: str, damage: Damage, fill: int | None
    ) -> None:
        if layout.dtype == OBJECT:
            raise UsageError(
                "arrays of Python objects can't be recovered: '%s'"
                % layout.folder.path()
            )
        self.layout = layout
        self.name = name
        self._parts = [
            SavedPart(
                layout, fields, source, damage.get(joined_name(name, *fields), [])
            )
            for fields, source in layout.parts()
        ]
        self._chunk_rows = layout.chunks[0]
        if fill is None:
            self._fill = layout.fill_value
        else:
            content = bytes([fill]) * layout.dtype.itemsize
            self._fill = numpy.frombuffer(content, layout.dtype, 1)[0]

    def new_array(self, attributes: JsonObject) -> NewArray:
        """Return what the new array must be."""
        new = self.layout.new_array()
        new.attrs = attributes
        return new

    def losses(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield the name of each part, and the rows that it has lost."""
        for part in self._parts:
            for rows in part.lost_rows():
                yield joined_name(self.name, *part.fields), rows

    def lost_rows(self) -> list[tuple[int, int]]:
        """Return the rows that any part has lost."""
        return merged(rows for part in self._parts for rows in part.lost_rows())

    def blocks(
        self, step: int, new: NewArray, length: int, dropped: list[tuple[int, int]]
    ) -> Blocks:
        """Yield blocks of `step` rows up to row `length`, without those dropped."""
        rows = RowStream(self._pieces(length, dropped), new.dtype, new.shape[1:])
        return counted(rows.blocks(step), step, new)

    def _pieces(self, length: int, dropped: list[tuple[int, int]]) -> Iterator[Array]:
        for number, start in enumerate(range(0, length, self._chunk_rows)):
            stop = min(start + self._chunk_rows, length)
            rows = self._rows(number, start, stop)
            first = start
            for begin, end in dropped:
                begin, end = max(begin, start), min(end, stop)
                if begin < end:
                    if first < begin:
                        yield rows[first - start : begin - start]
                    first = end
            if first < stop:
                yield rows[first - start :]

    def _rows(self, number: int, start: int, stop: int) -> Array:
        layout = self.layout
        items = new_array((stop - start, *layout.shape[1:]), layout.dtype)
        items[...] = self._fill
        for part in self._parts:
            plain = part.read(number)
            if plain is None:
                continue
            target = items
            for name in part.fields:
                target = target[name]
            size = target.size * target.dtype.itemsize
            found: Array = numpy.frombuffer(plain[:size], target.dtype)
            target[...] = found.reshape(target.shape)
        return items


class SavedPart:
    """The chunks of a part of an array."""

    def __init__(
        self,
        layout: ArrayLayout,
        fields: tuple[str, ...],
        source: Any,
        checks: list[FileCheck],
    ) -> None:
        self.fields = fields
        self._layout = layout
        self._source = source
        self._checks = checks
        self._check_of: Mapping[int, FileCheck] = {
            number: check for check in checks for number in check.numbers
        }

    def lost_rows(self) -> list[tuple[int, int]]:
        """Return the rows whose chunks are not intact."""
        lost = sorted(number for check in self._checks for number in check.lost)
        if not lost:
            return []
        rows_of = self._checks[0].rows_of
        return [rows_of(start, stop - 1) for start, stop in runs_of(lost)]

    def read(self, number: int) -> bytes | None:
        """Return the plain bytes of a chunk; None if there are none, or are lost."""
        if number >= self._source.nchunks:  # rows without bytes
            return None
        check = self._check_of.get(number)
        if check is not None and number not in check.intact:
            return None
        if check is not None and number in check.extents:
            offset, size = check.extents[number]
            name = check.file[len(self._layout.folder.prefix) :]
            return decompress(self._layout.folder.storage(name).read_at(offset, size))
        plain: list[bytes] = []
        self._source.load([number], lambda _, view: plain.append(bytes(view)))
        return plain[0]


def merged(runs: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return runs (start, stop) in order, those that touch each other as one."""
    result: list[tuple[int, int]] = []
    for start, stop in sorted(runs):
        if result and start <= result[-1][1]:
            result[-1] = result[-1][0], max(stop, result[-1][1])
        else:
            result.append((start, stop))
    return result
