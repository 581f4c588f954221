"""Collections of Dask as datasets: `from_dask`.

Strategy: the collection is divided into the rows of shards. Each task writes a whole
shard (`parallel`), and a last one commits the dataset.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy

from .._format.dtypes import DType
from .._format.grid import Shape
from .._storage.paths import check_place
from .._storage.protocols import Path, StorageOptions
from ..exceptions import DoesNotFit, UsageError, UsageTypeError, UsageValueError
from .folder import Folder
from .frames import items_by_name
from .layouts import detect, table_class
from .node import import_dask
from .opening import Options, create_array, create_table, open_array_or_table
from .parallel import Target, commit, target_of, write
from .rows import check_mask, converted, items_of, joined, naming_column

if TYPE_CHECKING:
    from .._format.dtypes import Array as Items

# The length of a partition, and the dtype of each column.
Description = tuple[int, dict[str, DType]]

# About the plain size in bytes of a shard of the widest column of a table.
SHARD_NBYTES = 16 * 2**20


def from_dask(
    path: Path,
    collection: Any,
    *,
    layout: str = "zarr",
    chunks: int | tuple[int, ...] | None = None,
    shards: int | tuple[int, ...] | None = None,
    dims: Any = None,
    attrs: Mapping[str, Any] | None = None,
    mode: str = "x",
    sync: bool = True,
    storage_options: StorageOptions | None = None,
    compute: bool = True,
    **settings: Any,
) -> Any:
    """Write a collection of Dask as a dataset, in parallel.

    Each task writes one shard, which no other task writes. The dataset gets
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

    Returns
    -------
    Array or Table
        The dataset, open for reading.

    Raises
    ------
    UsageError
        If the collection has no rows in an order, if the layout can't hold its items,
        or if Dask is not installed.
    FileExistsError
        If there is a file or folder of this name.
    """
    check_place(path, "from_dask(path, collection)")
    is_array = _is_array(collection)
    target = target_of(path, mode, sync, storage_options)
    options = {"layout": layout, "chunks": chunks, "attrs": attrs, "sync": sync}
    options.update(settings, dims=dims)
    plan = _plan_array if is_array else _plan_table
    tasks, length = plan(collection, target, shards, options)
    delayed = import_dask("dask").delayed
    result = delayed(_commit, pure=False)(target, length, tasks)
    if not compute:
        return result
    try:
        result.compute()
    except BaseException:
        target.abandon()
        raise
    found = detect(Folder.open(path, storage_options))
    return open_array_or_table(found, Options())


def _is_array(collection: Any) -> bool:
    """Return whether a collection is an array; raise `UsageError` for other types."""
    found = type(collection)
    if issubclass(found, import_dask("dask.array").Array):
        return True
    # Only classes: a `Delayed` has all attributes.
    if import_dask("dask").is_dask_collection(collection) and (
        hasattr(found, "divisions") and hasattr(found, "select_dtypes")
    ):
        return False
    raise UsageTypeError(
        "expected an array or a DataFrame of Dask, found the type '%s' of '%s'%s"
        % (
            found.__name__,
            found.__module__.partition(".")[0],
            ": call to_frame()" if found.__name__ in ("Series", "Index") else "",
        )
    )


def _commit(target: Target, length: int, tasks: list[None]) -> str:
    """Commit the dataset when all `tasks` are done; return the path."""
    commit(target, length)
    return target.root


# What a call of `from_dask` does: the dataset, its tasks, and the number of rows.


def _plan_array(
    array: Any, target: Target, shards: Any, options: dict[str, Any]
) -> tuple[list[Any], int]:
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
    length, *inner = map(int, array.shape)
    target.begin(
        lambda path: create_array(
            path, shape=(0, *inner), dtype=array.dtype, shards=shards, **options
        )
    )
    pairs = zip(target.shard, array.shape, strict=True)
    array = array.rechunk(tuple(max(1, min(pair)) for pair in pairs))
    task = delayed(_write_block, pure=False)
    starts = [[0, *accumulate(sizes)] for sizes in array.chunks]
    tasks = [
        task(
            target,
            tuple(each[i] for each, i in zip(starts, place, strict=True)),
            tuple(sizes[i] for sizes, i in zip(array.chunks, place, strict=True)),
            array.dtype,
            block,
        )
        for place, block in numpy.ndenumerate(array.to_delayed())
        if array.size
    ]
    return tasks, length


def _write_block(
    target: Target, start: Shape, shape: Shape, dtype: DType, block: Any
) -> None:
    """Write a shard; raise `UsageError` if the block is not what Dask had expected."""
    check_mask(block)
    rows = converted(block, dtype)
    if rows.shape != shape:
        raise DoesNotFit(
            "Dask expected a block of shape %s in the rows from '%d' on, and it has "
            "the shape %s" % (shape, start[0], rows.shape)
        )
    write(target, start, {"": rows})


def _plan_table(
    frame: Any, target: Target, shards: Any, options: dict[str, Any]
) -> tuple[list[Any], int]:
    dask = import_dask("dask")
    columns = list(frame.columns) + [n for n in frame._meta.index.names if n]
    if not columns:
        raise UsageValueError("a table must have a column")
    for name in columns:
        table_class(options["layout"]).check_column_name(name)
    parts = frame.to_delayed()
    describe = dask.delayed(_describe)
    found: tuple[Description, ...] = dask.compute(*map(describe, parts))
    lengths = [length for length, _ in found]
    dtypes = _common_dtypes(
        [dtypes for length, dtypes in found if length] or [found[0][1]]
    )
    row = numpy.dtype(list(dtypes.items()))
    if shards is None:
        shards = _shard_rows(
            max(t.itemsize for t in dtypes.values()), options["chunks"]
        )
    target.begin(lambda path: create_table(path, dtype=row, shards=shards, **options))
    task = dask.delayed(_write_frames, pure=False)
    tasks = [
        task(
            target, start, dtypes, [(parts[n], lengths[n], a, b) for n, a, b in pieces]
        )
        for start, pieces in _pieces(lengths, target.shard_rows)
    ]
    return tasks, sum(lengths)


def _describe(part: Any) -> Description:
    """Return the length of a partition, and the dtypes that its columns need."""
    dtypes = {}
    for name, column in items_by_name(part, any_numbers=True).items():
        if numpy.ma.is_masked(column):
            raise UsageValueError(
                "the column '%s' has missing items, which from_dask can't store: "
                "replace them with fillna()" % name
            )
        with naming_column(name):
            items = items_of(column)
        if items.dtype.kind == "O":
            usual = (str, bytes, int, float)
            other = [item for item in items.flat if not isinstance(item, usual)]
            raise UsageTypeError(
                "the column '%s' has items that no array can hold, such as %.200r"
                % (name, (other or items.tolist())[0])
            )
        dtypes[name] = items.dtype
    return len(part), dtypes


def _common_dtypes(found: list[dict[str, DType]]) -> dict[str, DType]:
    """Return the dtype of each column that can hold the items of all partitions."""
    result = {}
    for name in found[0]:
        dtypes = [dtypes[name] for dtypes in found]
        if len({dtype.kind for dtype in dtypes}) > 1:
            raise UsageTypeError(
                "the column '%s' has items of different types: %s; convert it with "
                "astype()" % (name, ", ".join(sorted(set(map(str, dtypes)))))
            )
        result[name] = numpy.result_type(*dtypes)
    return result


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
    total = sum(lengths)
    number = used = 0
    for start in range(0, total, step):
        missing, pieces = min(step, total - start), []
        while missing:
            count = min(missing, lengths[number] - used)
            if count:
                pieces.append((number, used, used + count))
            missing -= count
            used += count
            if used == lengths[number]:
                number, used = number + 1, 0
        yield start, pieces


def _write_frames(
    target: Target,
    start: int,
    dtypes: Mapping[str, DType],
    pieces: list[tuple[Any, int, int, int]],
) -> None:
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
            parts[name].append(converted(items, dtypes[name]))
    write(target, start, {n: joined(p, dtypes[n], ()) for n, p in parts.items()})
