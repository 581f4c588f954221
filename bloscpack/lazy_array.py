"""An array in a file, of which only the selected items are read.

Strategy: an index becomes positions on each axis (`ArrayIndex`); these become the
numbers of the chunks that hold selected bytes; each chunk is read, verified and
decompressed once, in parallel, into its place in the result. A chunk that is selected
as a whole is decompressed right there.
"""

from __future__ import annotations

import math
import os

import numpy

from ._format.array_metadata import Description, new_array
from ._reading.array_index import ArrayIndex, chunk_grid, row_blocks
from ._reading.boxes import Filling, Region, Steps, needed_chunks
from ._reading.opened import CACHE_NBYTES, open_parts
from ._storage.base import Storage, naming_errors
from ._storage.urls import is_url, local_path, shown_name
from .exceptions import StorageError, UsageTypeError, UsageValueError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence
    from typing import Any

    from ._format.dtypes import Array, DType
    from ._reading.boxes import Picks
    from ._reading.opened import OpenedFile
    from ._storage.protocols import Buffer, Path, Seekable, StorageOptions
    from .args import AnyLimits
    from .serializers import Json

    # The file and the options for opening it again.
    Origin = tuple[str, dict[str, Any]]

# Number of bytes that iterating over an array reads at a time.
ITERATION_NBYTES = 4 * 2**20


class LazyArray:
    """An array in a file; `open_ndarray` makes it. Indexing reads the selected items.

    Any number of threads may use it. It can be pickled if it was opened by name: the
    file is opened again, perhaps on another machine, and must be the same. The pickled
    array contains the URL and ``storage_options``, so it may contain credentials. The
    result of an index is a new array, or a scalar, and equals what NumPy would return.

    Attributes
    ----------
    shape, dtype, ndim, size, nbytes
        As of a NumPy array.
    cbytes
        Size of the file in bytes.
    chunks
        The shape of blocks that agree with the chunks of the file. A chunk of whole
        rows, or of an exact part of a row, is one block. Otherwise, a block is a few
        whole chunks, or rows of about one chunk. The blocks at the ends may be shorter.
    order
        ``"C"`` or ``"F"``, the order of the items in the file.
    metadata
        The metadata that `pack_ndarray_to_file` got; None without any.
    """

    def __init__(self, parts: OpenedFile, origin: Origin | None = None) -> None:
        description = Description(parts.metadata)
        description.check_nbytes(parts.nbytes)
        self._parts = parts
        self._origin = origin
        self._closed = False
        self.dtype: DType = description.dtype
        self.shape: tuple[int, ...] = description.shape
        self.order: str = description.order
        self.metadata: Json = parts.user_metadata
        self.nbytes: int = description.nbytes
        self.cbytes: int = parts.cbytes
        self._unit = _common_unit(parts, self.dtype.itemsize)
        self._token: Hashable = parts.identity

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of items."""
        return math.prod(self.shape)

    @property
    def chunks(self) -> tuple[int, ...]:
        """The shape of blocks that agree with the chunks of the file."""
        span = self._parts.span(0) if self._parts.nchunks else (0, 0)
        grid = chunk_grid(
            self._in_order(self.shape), self.dtype.itemsize, span[1] - span[0]
        )
        return tuple(self._in_order(grid))

    def _in_order(self, axes: Sequence[Any]) -> Any:
        """Return the axes from the slowest to the fastest one, or the reverse."""
        return axes[::-1] if self.order == "F" else axes

    def __repr__(self) -> str:
        name = self._parts.name
        name = "" if name is None else " %r" % shown_name(name)
        return "<%sLazyArray%s: shape %s, dtype %s, chunks %s>" % (
            "closed " if self._closed else "",
            name,
            self.shape,
            self.dtype,
            self.chunks,
        )

    # Closing

    def close(self) -> None:
        """Close the file. A file object that the caller opened stays open."""
        self._closed = True
        self._parts.close()

    def _check_open(self) -> None:
        if self._closed:
            raise UsageValueError("the array is closed")

    def __enter__(self) -> LazyArray:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Without a warning: an array in a task of Dask can't be closed by its user.
        if hasattr(self, "_closed"):
            self.close()

    # Reading

    def __getitem__(self, key: Any) -> Any:
        """Return the selected items as a new array, or a single item as a scalar.

        Parameters
        ----------
        key
            An index of NumPy: integers, slices with any step, ``...`` and ``None``; the
            name of a field, or a list of names; for the first axis also an array of
            integers, or one of booleans.

        Raises
        ------
        IndexError
            If the index does not fit the array, as NumPy does.
        FormatError
            If a chunk that holds some of the items is damaged.
        """
        if isinstance(key, str) and self.dtype.names is not None:
            return self._read_field(key)
        if _is_names(key) and self.dtype.names is not None:
            numpy.empty(0, self.dtype)[key]  # raises the error for an unknown name
            return self.read()[key]
        position = self._position(key)
        if position is not None:
            return self._read_item(position)
        index = ArrayIndex(key, self.shape)
        return index.finish(self._read_items(index.axes))

    def read_outer(self, key: Sequence[Any]) -> Array:
        """Return the items that each axis selects by itself, as `numpy.ix_` does.

        Parameters
        ----------
        key
            For each axis an integer, a slice, or a list or array of integers.

        Raises
        ------
        IndexError
            If the key has another length, or a number is outside of its axis.
        FormatError
            If a chunk that holds some of the items is damaged.
        """
        if len(key) != self.ndim:
            raise IndexError(
                "expected one entry for each of %d axes, found %d"
                % (self.ndim, len(key))
            )
        indexes = [
            ArrayIndex(entry, (n,)) for entry, n in zip(key, self.shape, strict=True)
        ]
        items = self._read_items([index.axes[0] for index in indexes])
        return items[tuple(0 if index.is_number else slice(None) for index in indexes)]

    def _position(self, key: Any) -> int | None:
        """Return the position in the file of the item that integers select.

        Return None for every other key, and for integers that are out of range.
        """
        entries = key if isinstance(key, tuple) else (key,)
        if len(entries) != len(self.shape):
            return None
        position = 0
        # Horner's scheme, from the slowest axis to the fastest one.
        for i, n in zip(
            self._in_order(entries), self._in_order(self.shape), strict=True
        ):
            if not isinstance(i, (int, numpy.integer)) or isinstance(i, bool):
                return None
            if not -n <= i < n:
                return None
            position = position * n + (int(i) if i >= 0 else int(i) + n)
        return position

    def _read_item(self, position: int) -> Any:
        """Return an item as a scalar."""
        self._check_open()
        size = self.dtype.itemsize
        buffer = bytearray(size)
        self._parts.read_into(memoryview(buffer), position * size)
        return numpy.ndarray((), self.dtype, buffer)[()]

    def _full(self) -> list[Steps | Picks]:
        return [Steps(n, 0, 1, n) for n in self.shape]

    def _read_field(self, name: str) -> Array:
        if self.dtype.fields is None or name not in self.dtype.fields:
            raise ValueError("no field of name %s" % name)
        dtype, offset = self.dtype.fields[name][:2]
        return self._read_items(self._full(), dtype, offset)

    def _read_items(
        self, axes: list[Steps | Picks], dtype: DType | None = None, offset: int = 0
    ) -> Array:
        """Return items as a new array, or the field of `dtype` at `offset` in them."""
        base, subshape = self.dtype, ()
        if dtype is not None:
            base, subshape = dtype.base, dtype.shape
        shape = self._in_order([axis.count for axis in axes])
        result = new_array((*shape, *subshape), base)
        self._fill(result, axes, offset)
        if self.order == "F":
            ndim = self.ndim
            others = range(ndim, result.ndim)
            result = result.transpose(*reversed(range(ndim)), *others)
        return result

    def _fill(self, result: Array, axes: list[Steps | Picks], offset: int = 0) -> None:
        """Read the selected items, or a field at `offset` in them, into `result`.

        The array is contiguous and has the axes in the order of the file.
        """
        self._check_open()
        if not result.nbytes:
            return
        itemsize = self.dtype.itemsize
        size = result.nbytes // math.prod(axis.count for axis in axes)
        cell, part = self._unit, (offset, size)
        cell_axes = list(self._in_order(axes))
        if cell != itemsize:  # a chunk may end inside an item
            cell = math.gcd(cell, offset, size)
            last = Steps(itemsize // cell, offset // cell, 1, size // cell)
            cell_axes, part = [*cell_axes, last], (0, cell)
        region = Region(cell_axes)
        span = self._parts.span
        flat: Any = result.reshape(-1).view("u1")
        memory = memoryview(flat)
        start = region.start
        if start is not None and size == itemsize:
            self._parts.read_into(memory, start * cell)
            return
        filling = Filling(region, memory, span, cell, part)
        numbers = needed_chunks(
            region, cell, span, self._parts.numbers, self._parts.chunk_size
        )
        if filling.longest < self._parts.chunk_size:
            self._parts.load(numbers, filling.copy, joined=True)
        else:
            self._parts.load(numbers, filling.copy, room=filling.room)

    def read(self, *, out: Array | None = None) -> Array:
        """Return all items, as a new array that has the order of the file.

        Parameters
        ----------
        out
            An array of the same shape and dtype, into which the items are read and
            which is returned. It needs no further memory if it is contiguous in the
            order of the file. After an error it may hold any items.

        Raises
        ------
        FormatError
            If a chunk is damaged.
        UsageError
            If `out` is not such an array.
        """
        if out is None:
            return self._read_items(self._full())
        self._check_out(out)
        ordered = numpy.asarray(out)
        if self.order == "F":
            ordered = ordered.T
        if ordered.flags.c_contiguous:
            self._fill(ordered, self._full())
        else:
            out[...] = self.read()
        return out

    def _check_out(self, out: Array) -> None:
        if not isinstance(out, numpy.ndarray):
            raise UsageTypeError("out: expected an array of NumPy, found %.200r" % out)
        if out.shape != self.shape or out.dtype != self.dtype:
            raise UsageValueError(
                "out: expected an array of shape %s and dtype '%s', found one of "
                "shape %s and dtype '%s'"
                % (self.shape, self.dtype, out.shape, out.dtype)
            )
        if not out.flags.writeable:
            raise UsageValueError("out: expected a writable array")

    def __array__(self, dtype: DType | None = None, copy: bool | None = None) -> Array:
        """Return all items as an array of `dtype`; NumPy calls this."""
        if copy is False:
            raise ValueError("an array in a file can't be used without a copy")
        array = self.read()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return self._rows()

    def _rows(self) -> Iterator[Any]:
        starts = row_blocks(self.shape, self.dtype.itemsize, ITERATION_NBYTES)
        for start in starts:
            yield from self[start : start + starts.step]

    # Pickle and Dask

    def __reduce__(self) -> tuple[object, ...]:
        if self._origin is None:
            raise UsageTypeError(
                "an array can be pickled only if its file was opened by name"
            )
        return _reopen, (*self._origin, self._state())

    def _state(self) -> tuple[object, ...]:
        """Return a value that differs for arrays with different content."""
        return *self._parts.version(), self.shape, self.dtype.str, self.order

    def __dask_tokenize__(self) -> tuple[object, ...]:
        """Return a value that is the same for the same array in the same file."""
        if self._token is None:
            from uuid import uuid4

            self._token = uuid4().hex
        name = self._parts.name
        token_name = None if name is None else _token_name(name)
        return "bloscpack.LazyArray", self._token, token_name, self._state()


def _is_names(key: object) -> bool:
    return isinstance(key, list) and bool(key) and all(isinstance(k, str) for k in key)


def _common_unit(parts: OpenedFile, itemsize: int) -> int:
    """Return the largest part of an item such that no chunk ends inside of it."""
    if parts.nchunks < 2:
        return itemsize
    # All chunks have this size, except that the last one may be shorter.
    size = parts.header.chunk_size
    if size != -1:
        return math.gcd(itemsize, size)
    return math.gcd(itemsize, *(parts.span(i)[0] for i in range(parts.nchunks)))


def open_ndarray(
    file: Path | Seekable | Buffer | Storage,
    *,
    cache_nbytes: int = CACHE_NBYTES,
    nthreads: int | None = None,
    limits: AnyLimits | None = None,
    whole: bool = False,
    storage_options: StorageOptions | None = None,
) -> LazyArray:
    """Open an array file; indexing the result reads only the chunks that it needs.

    If the array grows meanwhile, the result remains the array as it was when the file
    was opened.

    Parameters
    ----------
    file
        A path, a URL, a binary file object that can seek, or a buffer with the bytes of
        the file. A file object stays open, and only the result may use it meanwhile.
    cache_nbytes
        Maximum number of plain bytes of recently used chunks that are kept; 0 for none.
    nthreads
        Number of threads for each read; None for the default.
    limits
        The sizes that the file must not exceed; see `Limits`.
    whole
        Whether a file may be read as a whole from a server that can't send a part.
    storage_options
        Settings of fsspec for a URL, such as keys.

    Raises
    ------
    NotANumpyArray
        The file holds no array.
    FormatError
        The header, the metadata or the offset table is damaged, or exceeds the limits.

    Examples
    --------
    >>> import bloscpack
    >>> array = numpy.arange(12).reshape(4, 3)
    >>> bloscpack.pack_ndarray_to_file(array, 'twelve.blp')
    >>> with open_ndarray('twelve.blp') as lazy:
    ...     lazy.shape, lazy[::-2, 1].tolist()
    ((4, 3), [10, 4])
    """
    options: dict[str, Any] = {
        "cache_nbytes": cache_nbytes,
        "nthreads": nthreads,
        "limits": limits,
        "whole": whole,
        "storage_options": storage_options,
    }
    origin = None
    if isinstance(file, (str, os.PathLike)):
        origin = _full_name(os.fsdecode(file)), options
    parts = open_parts(file, **options)
    try:
        with naming_errors(parts.name or ""):
            return LazyArray(parts, origin)
    except BaseException:
        parts.close()
        raise


def _full_name(name: str) -> str:
    """Return a name that means the same in another folder."""
    return name if is_url(name) else os.path.abspath(os.fsdecode(local_path(name)))


def _token_name(name: str) -> tuple[str, str]:
    """Return what tells names apart, without the credentials of a URL."""
    from hashlib import sha256

    # The query may name the file, or be a signature.
    query = name.partition("?")[2] if is_url(name) else ""
    return shown_name(_full_name(name)), sha256(query.encode()).hexdigest()


def _reopen(name: str, options: dict[str, Any], state: tuple[object, ...]) -> LazyArray:
    """Return an array that was pickled; raise `StorageError` if its file differs."""
    array = open_ndarray(name, **options)
    if array._state() != state:
        array.close()
        raise StorageError(
            "the file has changed since the array in it was pickled: '%s'"
            % shown_name(name)
        )
    return array
