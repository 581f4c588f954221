"""An array in a folder: `Array`, for every layout."""

from __future__ import annotations

import math

import numpy

from .._reading.array_index import row_blocks
from ..exceptions import UsageValueError
from .attributes import Attributes

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .._format.dtypes import Array as Items
    from .._format.dtypes import DType
    from .layouts.base import ArrayLayout

# Number of bytes that iterating over an array reads at a time.
ITERATION_NBYTES = 4 * 2**20
# Maximum number of characters of an item in the repr of a table.
MAX_SHOWN = 32


class Array:
    """An array in a folder of compressed files; `open_array` makes it.

    Indexing reads the selected items. The result is a new array of NumPy, or a scalar.

    Attributes
    ----------
    path
        The folder.
    layout
        The name of the layout.
    attrs
        The attributes: a mapping of names to values that JSON can represent.
    """

    def __init__(self, layout: ArrayLayout) -> None:
        self._layout = layout
        self.path: str = layout.folder.path()
        self.layout: str = layout.name
        self.attrs = Attributes(layout.read_attributes, self._write_attributes)

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
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of items."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Number of plain bytes of all items."""
        return self.size * self.dtype.itemsize

    @property
    def cbytes(self) -> int:
        """Size in bytes of the files that hold the items."""
        return self._layout.cbytes

    @property
    def chunks(self) -> tuple[int, ...]:
        """The shape of a chunk; the last one may be shorter."""
        return self._layout.chunks

    @property
    def shards(self) -> tuple[int, ...] | None:
        """The shape of the part in one file; None if that is a single chunk."""
        return self._layout.shards

    @property
    def fill_value(self) -> Any:
        """The value of new items when the array is enlarged."""
        return self._layout.fill_value

    def __repr__(self) -> str:
        return "<%sArray '%s' (%s): shape %s, dtype %s, chunks %s>" % (
            "closed " if self._layout.reader.closed else "",
            self.path,
            self.layout,
            self.shape,
            self.dtype,
            self.chunks,
        )

    # Closing

    def close(self) -> None:
        """Close the array; it can't be read any more."""
        self._layout.reader.closed = True

    def __enter__(self) -> Array:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    # Reading

    def __getitem__(self, key: Any) -> Any:
        """Return the selected items as a new array, or a single item as a scalar.

        Parameters
        ----------
        key
            An index of NumPy: integers, slices with any step, ``...`` and ``None``; for
            the first axis also an array of integers, or one of booleans.

        Raises
        ------
        IndexError
            If the index does not fit the array, as NumPy does.
        FormatError
            If a chunk that holds some of the items is damaged or missing.
        """
        return self._layout.reader.get(key)

    def __array__(self, dtype: DType | None = None, copy: bool | None = None) -> Items:
        """Return all items as an array of `dtype`; NumPy calls this."""
        if copy is False:
            raise ValueError("an array in files can't be used without a copy")
        items: Items = self[:]
        return items if dtype is None else items.astype(dtype, copy=False)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        starts = row_blocks(self.shape, self.dtype.itemsize, ITERATION_NBYTES)
        for start in starts:
            yield from self[start : start + starts.step]

    def iter_chunks(self) -> Iterator[Items]:
        """Yield the rows of each chunk, in order, as arrays."""
        step = self.chunks[0]
        for start in range(0, len(self), step):
            yield self[start : start + step]

    # Changing

    def _write_attributes(self, values: Any) -> None:
        raise UsageValueError("the dataset was opened for reading: '%s'" % self.path)


def shown_items(items: Items) -> list[str]:
    """Return short texts of items, for the repr of a table."""
    with numpy.printoptions(threshold=6, edgeitems=2, precision=6):
        texts = [
            " ".join(str(item).split())
            if items.ndim > 1
            else repr(item.item())  # escapes what a terminal would obey
            if items.dtype.kind in "SU"
            else str(item)
            for item in items
        ]
    return [t if len(t) <= MAX_SHOWN else t[: MAX_SHOWN - 3] + "..." for t in texts]
