"""Collections of Dask as datasets: `from_dask`.

Strategy: the collection is divided into the rows of shards. Each task writes a whole
shard (`parallel`), and a last one commits the dataset. Rows that are appended are such
a dataset, too, which the last task appends to another one (`Addition`). Tasks assign to
a region of an array as writers that share it (`RegionTarget`).
"""

from __future__ import annotations

import math
import operator
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from itertools import accumulate
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy

from .._arrays.selection import ItemSelection
from .._commit.access import NewAccess
from .._engine.contexts import on_error
from .._format.dtypes import Array as Items
from .._format.dtypes import DType
from .._format.grid import Shape
from .._format.text import TEXT, empty_item, encode_text, item_nbytes
from .._storage.paths import check_is_path
from .._types import Path, StorageOptions
from ..exceptions import DoesNotFit, UsageError, UsageTypeError, UsageValueError
from .array import Array
from .columns import all_columns, naming_column
from .commit_rules import check_new_path
from .folder import Folder
from .frames import check_divisions, items_by_name
from .group import open_at, open_node
from .items import check_mask, check_truth, converted, items_of, text_or
from .layouts import Found, array_class, detect, table_class
from .node import import_dask
from .opening import Options, create_array, create_table, open_array_or_table
from .parallel import LOCK_SECONDS, FolderTarget, Target, box_at, target_of
from .rows import joined
from .table import Table

if TYPE_CHECKING:
    from pandas import DataFrame

# The length of a partition, and the dtype of each column.
PartitionTypes = tuple[int, dict[str, DType]]

# About the plain size in bytes of a shard of the widest column of a table.
SHARD_NBYTES = 16 * 2**20


def from_dask(
    path: Path,
    collection: object,
    *,
    layout: str = "zarr",
    chunks: int | tuple[int, ...] | None = None,
    shards: int | tuple[int, ...] | None = None,
    dims: Any = None,
    attrs: Mapping[str, object] | None = None,
    mode: str = "x",
    sync: bool = True,
    storage_options: StorageOptions | None = None,
    compute: bool = True,
    append: bool = False,
    region: object = None,
    **settings: Any,
) -> Any:
    """Write a collection of Dask as a dataset, or to an existing one, in parallel.

    Each task writes whole shards, which no other task writes. The dataset gets
    its name with the last task: until then, there is none, or the one that is to be
    replaced. If writing fails, call this again.

    Parameters
    ----------
    path
        The folder, in a file system that all workers have under the same name; or a
        URL.
    collection
        An array of Dask, whose blocks become shards; or a DataFrame, which becomes a
        table. Lengths of blocks and partitions that Dask does not know are computed
        first, and so are the lengths of text.
    layout
        ``'zarr'`` or ``'superchunk'``; only ``'zarr'`` at a URL.
    chunks, shards, dims, attrs, sync, storage_options, settings
        As in `create_array`. All columns of a table have shards of the same number of
        rows.
    mode
        As in `create_array`. A dataset that is replaced can be read until the last
        task, also by the tasks of the collection. At a URL, it is removed first.
    compute
        Whether to write now. If not, the result is a ``Delayed`` of Dask that writes.
    append
        Whether to append the rows to the dataset at the path, which must have the same
        axes or columns. The last task does this: the dataset gets all rows, or none.
        Until then, they are in a hidden folder beside it. Not at a URL.
    region
        To which part of the array at the path an array is assigned: a slice for each
        axis, or ``...``. Each task replaces parts of shards, beside other programs that
        share the array: see `open`. If one fails, the others stay.

    Returns
    -------
    Array or Table
        The dataset, open for reading.

    Raises
    ------
    UsageError
        If the collection has no rows in an order, if the layout can't hold its items,
        or if Dask is not installed. With `append` or `region`, also if the items can't
        fit, or if there are parameters of a new dataset.
    FileExistsError
        If there is a file or folder of this name.
    FileNotFoundError
        If there is no dataset, with `append` or `region`.
    """
    check_is_path(path, "from_dask(path, collection)")
    check_new_path(path)
    is_array = _is_array(collection)
    options = {"layout": layout, "chunks": chunks, "shards": shards, "attrs": attrs}
    options.update(settings, dims=dims)
    target: Target
    if not append and region is None:
        target = target_of(path, mode, sync, storage_options)
    else:
        usual = {"layout": "zarr", "mode": "x", "region": None if append else region}
        given = {**options, "mode": mode, "region": region}
        wrong = [name for name, value in given.items() if value != usual.get(name)]
        if wrong:
            raise UsageError(
                "append and region change a dataset that exists, and exclude each "
                "other: leave out %s" % ", ".join(wrong)
            )
        found = detect(Folder.open(path, storage_options))
        if found.kind != ("array" if is_array else "table"):
            raise UsageTypeError(
                "'%s' is of the kind '%s', to which no %s can be written"
                % (found.folder.path(), found.kind, type(collection).__name__)
            )
        target = Addition(found, sync) if append else RegionTarget(found, region, sync)
        options = {**target.options}
    plan = _plan_array if is_array else _plan_table
    tasks, length = plan(collection, target, {**options, "sync": sync})
    result = import_dask("dask").delayed(target.finish, pure=False)(length, tasks)
    if not compute:
        return result
    with on_error(target.abandon):
        result.compute()
    return open_at(path, storage_options)


def _is_array(collection: object) -> bool:
    """Return whether a collection is an array; raise `UsageError` for other types."""
    given = type(collection)
    if issubclass(given, import_dask("dask.array").Array):
        return True
    # Only classes: a `Delayed` has all attributes.
    if import_dask("dask").is_dask_collection(collection) and (
        hasattr(given, "divisions") and hasattr(given, "select_dtypes")
    ):
        return False
    advice = ": call to_frame()" * (given.__name__ in ("Series", "Index"))
    raise UsageTypeError(
        "expected an array or a DataFrame of Dask, found the type '%s' of '%s'%s"
        % (given.__name__, given.__module__.partition(".")[0], advice)
    )


class Existing(Target):
    """A dataset whose columns stay what they are."""

    _length: int | None = None  # any length
    _columns: Mapping[str, tuple[DType, Shape]] = {}
    _masks: Mapping[str, str] = {}

    def fitting(self, dtypes: dict[str, DType], shape: Shape) -> dict[str, DType]:
        """Return the dtypes of the columns; raise `UsageError` if items can't fit."""
        count = min(1, shape[0])
        items = {n: numpy.full(count, empty_item(d), d) for n, d in dtypes.items()}
        given = all_columns(items, list(self._columns), self._masks)
        length = shape[0] if self._length is None else self._length
        for name, (dtype, inner) in self._columns.items():
            with naming_column(name or self.root, "column" if name else "array"):
                if shape != (length, *inner):
                    raise DoesNotFit(
                        "expected items of shape %s, found items of shape %s"
                        % ((length, *inner), shape)
                    )
                if name:
                    check_truth(given[name], dtype)
                converted(given[name], dtype)
        return {name: self._columns[name][0] for name in dtypes}


class Addition(Existing, FolderTarget):
    """Rows for a dataset, in a hidden folder beside it until all are written.

    `finish` appends them in one change. A task that is late finds no hidden folder, or
    a dataset that does not end where it did when this was made. Then either the rows
    are there, which the digests of what was written show, or another program has
    changed the dataset, or another call has taken over.

    Attributes
    ----------
    options
        Parameters for the dataset of the rows.
    """

    late = "nothing was appended: the dataset has changed, or another call took over"

    def __init__(self, found: Found, sync: bool) -> None:
        root = found.folder.path()
        if found.folder.is_remote:
            raise UsageError(
                "'%s': from_dask appends in local folders only: open the dataset with "
                "the mode 'r+', and append the collection or its parts" % root
            )
        self._changing = Options(sync=sync, writable=True)
        layout = "superchunk" if found.layout == "superchunk" else "zarr"
        self.options = {**self.options, "layout": layout}
        with open_node(found, self._changing) as dataset:
            assert isinstance(dataset, (Array, Table))
            dataset._check_resizable()
            self._start = len(dataset)
            self._masks = {} if isinstance(dataset, Array) else dataset._masks()
            if isinstance(dataset, Array):
                self.options.update(chunks=dataset.chunks, shards=dataset.shards)
            columns = _columns(dataset).items()
            self._columns = {name: (c.dtype, c.shape[1:]) for name, c in columns}
        super().__init__(os.path.realpath(root), "w", sync=False)

    def _new_access(self) -> NewAccess:
        """Return the access of the rows, from the dataset, which is not replaced."""
        return NewAccess(self.name.model(self.name.folder()))

    def is_finished(self) -> bool:
        """Return True: `finish` finds out whether the rows are there."""
        return True

    def put(self, start: int | Shape, columns: Mapping[str, Items]) -> object:
        """Write the items of shards; return the corner, and the digest of each column.

        They show `finish` whether these items are in the dataset.
        """
        super().put(start, columns)
        return start, {n: (i.shape, _digest(i)) for n, i in columns.items()}

    def finish(self, length: int, written: Sequence[Any] = ()) -> str:
        """Append all rows, unless they are there; remove the hidden folder."""
        found = detect(Folder.open(self.root))
        with open_node(found, self._changing._replace(timeout=LOCK_SECONDS)) as dataset:
            assert isinstance(dataset, (Array, Table))
            if len(dataset) == self._start and self.is_unfinished():
                self.set_length(length)
                rows = open_array_or_table(detect(Folder(self.staged())), Options())
                dataset.append(rows)
                written = ()
            for (start, *corner), digests in written:
                for name, (shape, digest) in digests.items():
                    box = box_at((self._start + start, *corner), shape)
                    if digest != _digest(_columns(dataset)[name][box]):
                        raise self.replaced()
        self.abandon()
        return self.root


def _digest(items: Items) -> int:
    return crc32(encode_text(items) if items.dtype == TEXT else items.tobytes())


def _columns(dataset: Array | Table) -> Mapping[str, Array]:
    """Return the columns of a table; an array is one without a name."""
    return {"": dataset} if isinstance(dataset, Array) else dataset.columns


class RegionTarget(Existing):
    """A region of an array: each task assigns to a part of it.

    Attributes
    ----------
    corner
        The position of its first item.
    """

    def __init__(self, found: Found, region: object, sync: bool) -> None:
        super().__init__(found.folder.path(), "w", sync)
        entries = region if isinstance(region, tuple) else (region,)
        slices = [slice(None) if entry is ... else entry for entry in entries]
        if any(not isinstance(s, slice) or s.step not in (None, 1) for s in slices):
            raise UsageTypeError(
                "region: expected slices of adjacent items, found %.200r" % (region,)
            )
        with open_node(found, Options(sync=sync, writable=True, shared=True)) as array:
            assert isinstance(array, Array)
            if not array.shape:
                raise UsageError("'%s' has no axes, and so no regions" % array.path)
            self._array = copy(array)  # it has a lock only while it is changed
        selection = ItemSelection(region, array.shape)
        axes = [axis for axis in selection.axes if isinstance(axis, range)]
        self.corner = tuple(axis.start for axis in axes)
        self.shard = array.shards or array.chunks
        self._length, *inner = selection.shape
        self._columns = {"": (array.dtype, tuple(inner))}

    def begin(self, create: object) -> None:
        """Return: the array exists."""

    def put(self, start: Any, columns: Mapping[str, Items]) -> None:
        """Assign to a part of the region."""
        self._array[box_at(start, columns[""].shape)] = columns[""]

    def finish(self, length: int, written: object = ()) -> str:
        """Return the path: all items are in the array."""
        return self.root

    def abandon(self) -> None:
        """Return: the items that were assigned stay."""


# What a call of `from_dask` does: the dataset, its tasks, and the number of rows.


def _plan_array(
    array: Any, target: Target, options: dict[str, Any]
) -> tuple[list[object], int]:
    delayed = import_dask("dask").delayed
    if not array.ndim:
        raise UsageError("an array without axes has no parts: compute it first")
    if isinstance(array._meta, numpy.ma.MaskedArray):
        raise UsageError(
            "masked arrays can't be stored, the mask would be lost; store "
            "dask.array.ma.filled(array)"
        )
    if any(math.isnan(length) for length in array.shape):
        array = array.copy()
        array.compute_chunk_sizes()
    length, *inner = shape = tuple(map(int, array.shape))
    dtype = text_or(array.dtype, array_class(options["layout"]).has_text)
    dtype = target.fitting({"": dtype}, shape)[""]
    new = {"shape": (0, *inner), "dtype": dtype, **options}
    target.begin(lambda path: create_array(path, **new))
    corner = target.corner or (0,) * len(shape)
    starts = [
        [i, *range((i // step + 1) * step, i + n, step), i + n]
        for i, step, n in zip(corner, target.shard, shape, strict=True)
    ]
    sizes = tuple(tuple(map(operator.sub, ends[1:], ends)) for ends in starts)
    array = array.rechunk(sizes)
    task = delayed(_write_block, pure=False)
    tasks = [
        task(
            target,
            tuple(each[i] for each, i in zip(starts, index, strict=True)),
            tuple(sizes[i] for sizes, i in zip(array.chunks, index, strict=True)),
            dtype,
            block,
        )
        for index, block in numpy.ndenumerate(array.to_delayed(optimize_graph=False))
        if array.size
    ]
    return tasks, length


def _write_block(
    target: Target, start: Shape, shape: Shape, dtype: DType, block: object
) -> object:
    """Write a shard; raise `UsageError` if the block is not what Dask had expected."""
    check_mask(block)
    rows = converted(block, dtype)
    if rows.shape != shape:
        raise DoesNotFit(
            "Dask expected a block of shape %s in the rows from '%d' on, and it has "
            "the shape %s" % (shape, start[0], rows.shape)
        )
    return target.put(start, {"": rows})


def _plan_table(
    frame: Any, target: Target, options: dict[str, Any]
) -> tuple[list[object], int]:
    dask = import_dask("dask")
    columns = list(frame.columns) + [n for n in frame._meta.index.names if n]
    if not columns:
        raise UsageValueError("a table must have a column")
    for name in columns:
        table_class(options["layout"]).check_column_name(name)
    check_divisions(frame, getattr(target, "_start", 0))
    parts = frame.to_delayed()
    describe = dask.delayed(_describe)
    has_text = array_class(options["layout"]).has_text
    partitions: tuple[PartitionTypes, ...] = dask.compute(
        *(describe(part, has_text) for part in parts)
    )
    lengths = [length for length, _ in partitions]
    # The dtype of each column that can hold the items of all partitions.
    filled = [each for length, each in partitions if length] or [partitions[0][1]]
    dtypes: dict[str, DType] = {}
    for name in filled[0]:
        found = [each[name] for each in filled]
        if len({dtype.kind for dtype in found}) > 1:
            raise UsageTypeError(
                "the column '%s' has items of different types: %s; convert it with "
                "astype()" % (name, ", ".join(sorted(set(map(str, found)))))
            )
        dtypes[name] = numpy.result_type(*found)
    dtypes = target.fitting(dtypes, (sum(lengths),))
    row = numpy.dtype(list(dtypes.items()))
    if options["shards"] is None:
        most = max(map(item_nbytes, dtypes.values()))
        options["shards"] = _shard_rows(most, options["chunks"])
    target.begin(lambda path: create_table(path, dtype=row, **options))
    task = dask.delayed(_write_frames, pure=False)
    tasks = [
        task(
            target, start, dtypes, [(parts[n], lengths[n], a, b) for n, a, b in pieces]
        )
        for start, pieces in _pieces(lengths, target.shard[0])
    ]
    return tasks, sum(lengths)


def _describe(part: DataFrame, has_text: bool) -> PartitionTypes:
    """Return the length of a partition, and the dtypes that its columns need.

    `has_text` says that the layout has text of variable length.
    """
    dtypes = {}
    for name, column in items_by_name(part, any_numbers=True).items():
        if numpy.ma.is_masked(column):
            raise UsageValueError(
                "the column '%s' has missing items, which from_dask can't store: "
                "replace them with fillna()" % name
            )
        with naming_column(name):
            items = items_of(column, keeps_text=has_text)
        if items.dtype.kind == "O" and not has_text:
            usual = (str, bytes, int, float)
            other = [item for item in items.flat if not isinstance(item, usual)]
            raise UsageTypeError(
                "the column '%s' has items that no array can hold, such as %.200r"
                % (name, (other or items.tolist())[0])
            )
        dtypes[name] = items.dtype
    return len(part), dtypes


def _shard_rows(itemsize: int, chunks: int | None) -> int:
    """Return a number of rows of a shard that is right for all columns of a table."""
    if chunks is not None:
        return chunks * max(1, SHARD_NBYTES // max(1, chunks * itemsize))
    # A power of two has chunks of many sizes.
    return int(1 << (max(1, SHARD_NBYTES // itemsize).bit_length() - 1))


def _pieces(
    lengths: list[int], step: int
) -> Iterator[tuple[int, list[tuple[int, int, int]]]]:
    """Yield the first row of each shard, and where its rows are.

    A piece is the number of a partition, and the first row and the end in it.
    """
    ends = [0, *accumulate(lengths)]
    for start in range(0, ends[-1], step):
        stop = min(start + step, ends[-1])
        numbers = range(bisect_right(ends, start) - 1, bisect_left(ends, stop))
        yield (
            start,
            [
                (n, max(start - ends[n], 0), min(stop - ends[n], lengths[n]))
                for n in numbers
                if lengths[n]
            ],
        )


def _write_frames(
    target: Target,
    start: int,
    dtypes: Mapping[str, DType],
    pieces: list[tuple[DataFrame, int, int, int]],
) -> object:
    """Write rows from some partitions to a shard of each column."""
    parts: dict[str, list[Items]] = {name: [] for name in dtypes}
    for part, length, first, stop in pieces:
        if len(part) != length:
            raise DoesNotFit(
                "a partition had '%d' rows when they were counted, and has '%d' now"
                % (length, len(part))
            )
        rows = items_by_name(part.iloc[first:stop], any_numbers=True)
        for name, items in rows.items():
            with naming_column(name):
                parts[name].append(converted(items, dtypes[name]))
    columns = {name: joined(rows, dtypes[name], ()) for name, rows in parts.items()}
    return target.put((start,), columns)
