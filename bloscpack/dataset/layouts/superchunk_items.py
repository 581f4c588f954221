"""Items with fields, read from the files of their leaves (see `superchunk`)."""

from __future__ import annotations

import numpy

from ..._engine.blosc_settings import own_settings
from ..._engine.threads import for_each
from ..._loop.nthreads import effective_nthreads
from ..._reading.array_index import ArrayIndex
from ..._reading.boxes import Steps
from ...exceptions import UsageValueError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from ..._format.dtypes import DType
    from ..._reading.array_reader import Allocate, ArrayReader
    from ..._reading.boxes import PositionList
    from .superchunk_storage import Leaf

    # Rows of the result and their positions; a leaf, its reader and its further axes.
    Task = tuple[
        tuple[slice, Steps | PositionList], tuple[Leaf, ArrayReader, Sequence[Steps]]
    ]


class ItemParts:
    """Reads items whose leaves are in different files.

    Parameters
    ----------
    dtype, shape
        Those of the array.
    parts
        The leaves and their readers.
    allocate
        Returns the array for a result; it may refuse a size that comes from a file.
    block_rows
        Number of rows of all leaves that a thread reads at a time.
    """

    def __init__(
        self,
        dtype: DType,
        shape: tuple[int, ...],
        parts: list[tuple[Leaf, ArrayReader]],
        allocate: Allocate,
        block_rows: int,
    ) -> None:
        self._allocate = allocate
        self._block_rows = block_rows
        self.closed = False
        self._dtype = dtype
        self._shape = shape
        self._parts = parts

    def get(self, key: Any) -> Any:
        """Return the items that an index selects, or fields of all items.

        Only the files of the leaves that are needed are read.
        """
        if self.closed:
            raise UsageValueError("the array is closed")
        names = [key] if isinstance(key, str) else key
        if isinstance(names, list) and names and isinstance(names[0], str):
            numpy.empty(0, self._dtype)[key]  # raises the error for an unknown name
            return self._read(ArrayIndex(..., self._shape), set(names))[key]
        return self._read(ArrayIndex(key, self._shape), None)

    def _read(self, index: ArrayIndex, names: set[str] | None) -> Any:
        counts = tuple(axis.count for axis in index.axes)
        items = self._allocate(counts, self._dtype)
        first, *others = index.axes
        parts = [
            (
                leaf,
                reader,
                [Steps(n, 0, 1, n) for n in reader.shape[len(self._shape) :]],
            )
            for leaf, reader in self._parts
            if names is None or leaf.fields[0] in names
        ]
        tasks = ((block, part) for block in self._blocks(first) for part in parts)

        def work(task: Task) -> None:
            (rows, axis), (leaf, reader, rest) = task
            leaf.of(items[rows])[...] = reader.read_axes([axis, *others, *rest])

        def deliver(_: None) -> None:
            pass

        nthreads = effective_nthreads(None, None)
        with own_settings:
            for_each(tasks, work, deliver, nthreads, quick=True)
        return index.finish(items)

    def _blocks(
        self, axis: Steps | PositionList
    ) -> Iterator[tuple[slice, Steps | PositionList]]:
        """Yield parts of the first axis that are read together, and their rows.

        All leaves of a block are put into the items while these are in the cache of
        the processor.
        """
        if not isinstance(axis, Steps) or axis.reversed:
            yield slice(0, axis.count), axis
            return
        start = 0
        while start < axis.count:
            end = (axis.at(start) // self._block_rows + 1) * self._block_rows
            stop = axis.count_before(end)
            position = axis.at(start)
            yield (
                slice(start, stop),
                Steps(axis.size, position, axis.step, stop - start),
            )
            start = stop
