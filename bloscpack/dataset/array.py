"""An array in a folder: `Array`, for every layout."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy
from numpy.lib.mixins import NDArrayOperatorsMixin

from .._arrays.reader import PartReader, check_out
from .._arrays.selection import ItemSelection, split_names
from .._arrays.stored import StoredArray
from .._commit.change import Change
from .._commit.states import EACH, TWIN
from .._commit.writer import Writer
from .._format.dtypes import Array as Items
from .._format.dtypes import DType, Key
from .._format.grid import Shape, lengths, part
from .._storage.store import Conflict
from ..exceptions import (
    BloscpackError,
    DoesNotFit,
    UsageError,
    UsageTypeError,
    UsageValueError,
)
from ..log import counted
from .changed_blocks import NewState, changed_blocks
from .folder import Joined, rows_removed
from .items import (
    check_mask,
    check_nbytes,
    checked_shape,
    converted,
    is_array,
    items_of,
    with_fields,
)
from .layouts.base import ArrayLayout, Blocks, NewColumn
from .node import ItemsNode, Node, import_dask, one_call
from .rows import append_rows, stream_of


class Array(StoredArray, ItemsNode):
    """An array in a folder of compressed files; `open_array` makes it.

    Indexing reads the selected items. The result is a new array of NumPy, or a scalar.

    Attributes
    ----------
    path
        The folder.
    layout
        The name of the layout.
    """

    # Operators of NumPy arrays leave it to `_refuse`; functions of NumPy convert it.
    __array_priority__ = 1000

    if TYPE_CHECKING:
        _layout: ArrayLayout

    def __init__(
        self, layout: ArrayLayout, writer: Writer | None = None, is_column: bool = False
    ) -> None:
        super().__init__(layout, writer)
        self.is_column = is_column
        # The value of `__reduce__` for an array opened with ``shared=True``; else None.
        self.reopens: tuple[object, ...] | None = None

    def _detached(self, owner: Node) -> Array:
        """Return an array that keeps its table in memory, and the locks.

        The table itself has another object for the array: a cycle would keep the locks.
        """
        array = Array.__new__(Array)
        vars(array).update(vars(self), _around=owner)
        return array

    # Description

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of items along each axis."""
        return self._layout.shape

    @property
    def dtype(self) -> DType:
        """The type of the items."""
        return self._layout.dtype

    @property
    def cbytes(self) -> int:
        """Size in bytes of the files that hold the items."""
        return self._read(lambda: self._layout.cbytes, "info")

    @property
    def chunks(self) -> tuple[int, ...]:
        """The shape of a chunk; the last one may be shorter."""
        return self._layout.chunks

    @property
    def shards(self) -> tuple[int, ...] | None:
        """The shape of the part in one file; None if that is a single chunk."""
        return self._layout.shards

    @property
    def dims(self) -> tuple[str | None, ...] | None:
        """The name of each axis, or None for one without; None if none has a name."""
        return self._layout.dims

    @property
    def fill_value(self) -> Any:
        """The value of new items when the array is enlarged."""
        return self._layout.fill_value

    @property
    def nchunks(self) -> int:
        """Number of chunks; of an item whose fields have files, those of all fields."""
        return sum(source.nchunks for _, source in self._layout.parts())

    @property
    def codec(self) -> str | None:
        """The name of the codec that compresses new chunks."""
        cname = self._read(lambda: self._layout.codec_settings, "info").get("cname")
        return None if cname is None else str(cname)

    def __repr__(self) -> str:
        facts = self._title(), self.shape, self.dtype, self.chunks
        return "<%s: shape %s, dtype %s, chunks %s>" % facts

    # Closing and opening again

    def __reduce__(self) -> tuple[object, ...]:
        """Return what opens it again: for reading, or beside other writers."""
        if self._ask("pickle") is TWIN and self.reopens is not None:
            return self.reopens
        return super().__reduce__()

    def _take_layout(self, layout: ArrayLayout, writer: Writer | None = None) -> None:
        old = self._layout
        super()._take_layout(layout, writer)
        old.close_files()

    # Reading

    @property
    def _has_parts(self) -> bool:
        return self._layout.by_field and len(self._layout.parts()) > 1

    def _check_rows(self) -> None:
        now: Any = None
        with suppress(BloscpackError, OSError):  # reading raises a better error
            now = self._reopened()
        if now is not None and now.shape[:1] < self.shape[:1]:
            raise rows_removed(self.path)

    @property
    def _is_read_with_others(self) -> bool:
        """Whether a read may need its files together with those of other arrays."""
        return self.is_column or self._has_parts

    def __getitem__(self, key: Key) -> Any:
        """Return the selected items as a new array, or a single item as a scalar.

        Parameters
        ----------
        key
            Any index of NumPy, such as integers, slices, lists and masks. For items
            with fields, one entry may be the name of a field, or a list of names.

        Raises
        ------
        IndexError
            If the index does not fit the array, as NumPy does.
        FormatError
            If a chunk that holds some of the items is damaged or missing.
        """
        opened = self._opened
        view = opened.view
        if view.writer is None and not (opened.closed or view.layout.by_field):
            # Reading one array of files compares them: no `_read`, for speed.
            try:  # `suppress` takes longer
                return view.layout.reader.get(key)
            except Joined:
                pass
        return self._read(lambda: self._layout.reader.get(key))

    def read(self, out: Items | None = None) -> Items:
        """Return all items, in a new array or in `out`.

        `out` is an array of NumPy with the same shape and dtype.
        """
        if out is None:
            return numpy.asarray(self[...])
        check_out(out, self.shape, self.dtype)

        def fill() -> Items:
            reader = self._layout.reader
            if isinstance(reader, PartReader):
                return reader.read(out)
            out[...] = reader.get(...)
            return out

        return self._read(fill)

    def iter_chunks(self) -> Iterator[Items]:
        """Yield the rows of each chunk, in order, as arrays."""
        for start in range(0, len(self), self.chunks[0]):
            yield self[start : start + self.chunks[0]]

    def to_dask(self, chunks: object = None) -> Any:
        """Return the array as an array of Dask, of which each block is read separately.

        Parameters
        ----------
        chunks
            The chunks of the result, as `dask.array.from_array` takes them; by default
            one for each shard.

        Raises
        ------
        UsageError
            If Dask is not installed, or within a block of ``group.change()``.
        """
        da = import_dask("dask.array")
        blocks = (self.shards or self.chunks) if chunks is None else chunks
        return self._read(lambda: da.from_array(self, chunks=blocks), "tasks")

    # Changing

    def _check_resizable(self) -> Writer:
        writer = self._check_writer()
        if self.is_column:
            raise UsageError(
                "the columns of a table have the same length: append to the table, or "
                "resize it"
            )
        if not self.shape:
            raise UsageError("an array without axes can't get another shape")
        return writer

    @one_call
    def append(self, values: object, axis: int = 0) -> None:
        """Append rows. When this returns, they are in the files.

        In an array opened with ``buffered=True``, they may wait in memory. Until they
        are written, the array does not have them.

        Parameters
        ----------
        values
            Rows, or a single row, that NumPy can convert to the type of the items
            without a loss; only floats are rounded, to other floats. An array that is
            not in memory is read in slices. An iterator yields blocks of rows.
        axis
            The axis that becomes longer, which all layouts but ``'zarr'`` only have
            for 0. For any other, `values` is an array, as long along the other axes.

        Raises
        ------
        UsageError
            If the rows don't fit, or if the array was opened for reading.
        """
        writer, layout = self._check_resizable(), self._layout
        if not -self.ndim <= operator.index(axis) < self.ndim:
            raise UsageValueError(
                "axis %d is out of bounds for an array of %s"
                % (axis, counted(self.ndim, "axis"))
            )
        axis %= self.ndim
        if axis == 0:
            rows = stream_of(values, self.dtype, self.shape[1:])
            if rows.length == 0:
                return
            new, part = {layout: rows}, self._part
            if not writer.buffered(part, lambda waits: waits.put(writer, new)):
                append_rows(writer, new)
            return
        check_mask(values)
        items = values if is_array(values) else items_of(values)
        writer.flush()
        old, given = self.shape, tuple(items.shape)
        before, after = old[:axis], old[axis + 1 :]
        if len(given) != len(old) or given != (*before, given[axis], *after):
            raise DoesNotFit(
                "expected items of the shape %s apart from axis %d, found an array "
                "of shape %s" % (old, axis, given)
            )
        shape = self._checked_shape((*before, old[axis] + given[axis], *after))
        check_nbytes(shape, self.dtype)
        grid, read = layout.grid.resized(shape), layout.reader.get
        added = ItemSelection((*map(slice, before), slice(old[axis], None)), shape)
        blocks = changed_blocks(grid, added, items, read, old, self.dtype)
        with writer.change(lambda: layout.committed(shape)) as change:
            layout.stage(change, NewState(grid, blocks, extends=True))

    @one_call
    def resize(self, shape: int | tuple[int, ...]) -> None:
        """Set the shape: remove the last items, or add items of `fill_value`.

        Parameters
        ----------
        shape
            The number of rows, or the shape. In layouts other than ``'zarr'``, only
            the first axis can change.

        Raises
        ------
        UsageError
            If the shape has another number of axes, or the layout can't hold it.
        """
        writer = self._check_resizable()
        is_shape = isinstance(shape, (tuple, list))
        new = self._checked_shape(shape if is_shape else (shape, *self.shape[1:]))
        with writer.change(lambda: self._resized(new)) as change:
            self._stage_resize(change, new)

    def __setitem__(self, key: Key, values: object) -> None:
        """Assign to the selected items. In a crash, all of them change, or none.

        Beside other writers (``shared=True``), each shard changes as a whole. In an
        array opened with ``buffered=True``, the items may wait in memory, where this
        object reads them.

        Parameters
        ----------
        key
            An index, as for reading.
        values
            Values that NumPy can broadcast to the selected items, and convert to their
            type without a loss; only floats are rounded to other floats.
        """
        writer, layout = self._check_writer("assign"), self._layout
        if self._ask("assign") is not EACH:
            with self._turn("assign") as writer:
                layout, part = self._layout, self._part
                writer.flush_rows(part)
                given = self._selected(key, values)
                new = {layout: given}
                if writer.buffered(
                    part, lambda waits: waits.assign(writer, new), "keep"
                ):
                    return
                with writer.change(lambda: layout.committed(self.shape)) as change:
                    self._stage_items(change, *given)
            return
        selection, grid = ItemSelection(key, self.shape), layout.grid
        items = selection.spread(converted(values, self.dtype))
        by_shard = groupby(selection.parts(grid), lambda part: part[0] // grid.slots)
        for shard, of_shard in by_shard:
            name, parts, is_done = layout.shard_name(shard), list(of_shard), False
            while not is_done:
                # Another writer may have been faster.
                with suppress(Conflict):
                    with writer.change(layout.renew, shard=name) as change:
                        layout.renew()  # the shard is locked now
                        blocks = changed_blocks(
                            grid, selection, items, layout.reader.get, parts=parts
                        )
                        layout.stage(change, NewState(grid, blocks, extends=False))
                    is_done = True

    # Parts of a change, for tables and groups

    def _copied(self) -> NewColumn:
        """Return what a copy of the array is, and its rows."""
        if self._writer is not None:
            self._writer.flush()
        new = self._layout.new_array()
        new.attrs, new.dims = self.attrs.asdict(), self.dims
        rows = stream_of(self, new.dtype, self.shape[1:])
        return new, rows.blocks(self._layout.grid_for(new))

    def _stage_resize(self, change: Change, shape: Shape) -> None:
        """Let `change` set the shape. New items get the fill value."""
        check_nbytes(shape, self.dtype)
        layout, old = self._layout, self.shape
        if shape == old:
            return
        if self._is_read_with_others and any(map(operator.lt, shape, old)):
            change.renews_token = True  # later rows in their place are others
        grid = layout.grid.resized(shape)
        if grows := any(map(operator.gt, shape, old)):
            # Readers of the old state need the items that another axis loses.
            grid = grid.resized(tuple(map(max, shape, old)))

        def blocks() -> Blocks:
            fill = numpy.array(self.fill_value, self.dtype)
            for shard in layout.shards_to_fill(grid) if grows else ():
                ends = list(zip(grid.shard_box(shard), old, shape, strict=True))
                has_new = any(s.stop > before for s, before, _ in ends)
                if not has_new or any(s.start >= after for s, _, after in ends):
                    continue
                for number in grid.chunks_of(shard):
                    kept = part(grid.corner(number), grid.chunk, old)
                    box, count = lengths(grid.box(number)), lengths(kept)
                    if box == count:
                        continue
                    block: Items = numpy.broadcast_to(fill, box)
                    if math.prod(count):
                        block = block.copy()
                        block[tuple(map(slice, count))] = layout.reader.get(kept)
                    yield number, block

        layout.stage(change, NewState(grid, blocks(), True, lambda: shape))

    def _resized(self, shape: Shape) -> None:
        """Take over the shape of a change that was committed."""
        shrinks = any(map(operator.lt, shape, self.shape))
        self._layout.committed(shape)
        if shrinks and self._block is not None:
            self._block.shrunk.append(self._layout)
        elif shrinks:
            self._layout.remove_unused()

    def _selected(self, key: Key, values: object) -> tuple[ItemSelection, Items]:
        """Return what an index selects, and the items that are assigned to it."""
        names, key = split_names(key, self.dtype)
        if names is None:
            items = converted(values, self.dtype)
        elif key is ...:  # the files of other fields stay
            items = with_fields(names, values, self.dtype)
        else:
            items = numpy.array(self[key])
            items[names] = converted(values, items[names].dtype)
        selection = ItemSelection(key, self.shape)
        return selection, selection.spread(items)

    def _stage_items(
        self, change: Change, selection: ItemSelection, items: Items
    ) -> None:
        """Let `change` assign to the selected items."""
        change.renews_token = change.renews_token or self._is_read_with_others
        layout = self._layout
        grid = layout.grid
        blocks = changed_blocks(grid, selection, items, layout.reader.get)
        layout.stage(change, NewState(grid, blocks, extends=False))

    def _checked_shape(self, shape: object) -> Shape:
        new, old = checked_shape(shape), self.shape
        why = "it has '%d' axes" % len(old)
        if not self._layout.cuts_all_axes and new[1:] != old[1:]:
            why = "only the first axis can change"
        elif len(new) == len(old):
            return new
        raise UsageValueError(
            "an array of shape %s can't get the shape %s: %s" % (old, shape, why)
        )


def _refuse(*operands: object) -> object:
    """Raise `UsageError`: `==`, for one, would compare objects and not items."""
    raise UsageTypeError(
        "an array in files can't be compared or computed with: read its items first, "
        "with array[:] or an index of some of them"
    )


for _name, _operator in vars(NDArrayOperatorsMixin).items():
    if isinstance(_operator, FunctionType):
        setattr(Array, _name, _refuse)
