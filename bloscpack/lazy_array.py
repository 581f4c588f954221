"""An array in a file, of which only the selected items are read.

`OpenedFile` loads chunks of the file, and `PartReader` turns an index into chunks and
chunks into items. `LazyArray` adds the file: its name, closing, pickling.
"""

from __future__ import annotations

import os
from collections.abc import Hashable
from functools import partial
from typing import Any

from ._arrays.loader import CACHE_NBYTES
from ._arrays.stored import StoredArray
from ._engine.contexts import on_error
from ._file.opened import OpenedFile, reader_of
from ._format.array_metadata import Description
from ._format.dtypes import Array, DType, Key
from ._format.rows import block_shape
from ._storage.base import Closing, Storage, naming_errors, releasing_views
from ._storage.paths import is_url, local_path, shown_name
from ._types import Buffer, Json, Path, Seekable, StorageOptions
from .args import AnyLimits
from .exceptions import StorageError, UsageTypeError

Origin = partial["LazyArray"]


class LazyArray(StoredArray, Closing):
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
        The shape of blocks that agree with the chunks of the file, which is that of
        the chunks if they were given as ``chunks``. Otherwise, a chunk of whole
        rows, or of an exact part of a row, is one block. Otherwise, a block is a few
        whole chunks, or rows of about one chunk. The blocks at the ends may be shorter.
    order
        ``"C"`` or ``"F"``, the order of the items in the file.
    metadata
        The metadata that `pack_ndarray_to_file` got; None without any.
    """

    shape: tuple[int, ...]
    dtype: DType

    def __init__(self, parts: OpenedFile, origin: Origin | None = None) -> None:
        description = Description(parts.metadata)
        self._parts = parts
        self._origin = origin
        self.dtype = description.dtype
        self.shape = description.shape
        self.order: str = description.order
        self._grid = description.grid
        self.metadata: Json = parts.user_metadata
        self.cbytes: int = parts.cbytes
        self._reader = reader_of(parts, description)
        self._token: Hashable = parts.identity

    @property
    def chunks(self) -> tuple[int, ...]:
        """The shape of blocks that agree with the chunks of the file."""
        if self._grid is not None:
            return self._grid.chunk
        start, stop = self._parts.span(0) if self._parts.nchunks else (0, 0)
        return block_shape(self.shape, self.dtype.itemsize, stop - start, self.order)

    def __repr__(self) -> str:
        name = self._parts.name
        name = "" if name is None else " %r" % shown_name(name)
        return "<%sLazyArray%s: shape %s, dtype %s, chunks %s>" % (
            "closed " if self._reader.closed else "",
            name,
            self.shape,
            self.dtype,
            self.chunks,
        )

    # Closing

    def close(self) -> None:
        """Close the file. A file object that the caller opened stays open."""
        self._reader.closed = True
        self._parts.close()

    def __del__(self) -> None:
        # Without a warning: an array in a task of Dask can't be closed by its user.
        if hasattr(self, "_reader"):
            self.close()

    # Reading

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
            If a chunk that holds some of the items is damaged.
        """
        return self._reader.get(key)

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
        return self._reader.read(out)

    # Pickle and Dask

    def __reduce__(self) -> tuple[object, ...]:
        if self._origin is None:
            raise UsageTypeError(
                "an array can be pickled only if its file was opened by name"
            )
        return _reopen, (self._origin, self._state())

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


@releasing_views
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
        the file. A file object is used from byte 0 on, whatever its position; it stays
        open, and only the result may use it meanwhile.
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
    >>> import bloscpack, numpy
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
        origin = partial(open_ndarray, full_name(os.fsdecode(file)), **options)
    parts = OpenedFile(file, **options)
    with on_error(parts.close), naming_errors(parts.name):
        return LazyArray(parts, origin)


def full_name(name: str) -> str:
    """Return a name that means the same in another folder."""
    return name if is_url(name) else os.path.abspath(os.fsdecode(local_path(name)))


def _token_name(name: str) -> tuple[str, str]:
    """Return what tells names apart, without the credentials of a URL."""
    from hashlib import sha256

    # The query may name the file, or be a signature.
    query = name.partition("?")[2] if is_url(name) else ""
    return shown_name(full_name(name)), sha256(query.encode()).hexdigest()


def _reopen(origin: Origin, state: tuple[object, ...]) -> LazyArray:
    """Return an array that was pickled; raise `StorageError` if its file differs."""
    array = origin()
    if array._state() != state:
        array.close()
        raise StorageError(
            "the file has changed since the array in it was pickled: '%s'"
            % shown_name(origin.args[0])
        )
    return array
