"""NumPy arrays: their metadata, and the source and sink over their memory.

An array is stored as its items, in C or Fortran order, and its dtype, shape and
order as metadata (docs/format.rst, Arrays). Reading allocates the array once,
after dtype, shape and chunks have been found to agree, and fills it in place.
"""

from __future__ import annotations

import numpy

from ._compat import deprecated_alias, sibling_names
from ._crashsafe.replace import replacing
from ._crashsafe.snapshot import read_snapshot
from ._engine.blosc_settings import own_settings
from ._engine.prealloc import memory_at
from ._format.array_metadata import Description, describe
from ._format.blosc_header import decode_header
from ._format.chunks import decompress_into
from .abstract_io import PlainSink, PlainSource, pack, unpack
from .args import (
    BloscArgs,
    BloscpackArgs,
    MetadataArgs,
    calculate_nchunks,
    check_settings,
    parse_chunk_size,
)
from .bytes_io import CompressedBytesSource, bytes_writer
from .constants import MAX_BUFFERSIZE, MAX_TYPESIZE
from .defaults import DEFAULT_CHUNK_SIZE
from .exceptions import (
    ChunkSizeTypeSizeMismatch,
    UsageError,
    UsageTypeError,
)
from .file_io import CompressedFPSink, CompressedFPSource
from .pretty import double_pretty_size

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ._format.array_metadata import Array, DType
    from ._storage.base import Path
    from .abstract_io import CompressedSink, CompressedSource
    from .args import Limits


def _address(ndarray: Array) -> int:
    return int(ndarray.__array_interface__["data"][0])


class PlainNumpySource(PlainSource):
    """Yields the memory of an array, without a copy where it is contiguous.

    Raises `ObjectNumpyArrayRejection` for arrays of objects, and `UsageError` for
    masked arrays, whose mask would be lost.
    """

    concurrent = True

    def __init__(self, ndarray: Array) -> None:
        ndarray = _storable(ndarray)
        self.metadata = describe(ndarray)
        self.size = ndarray.nbytes
        if not (ndarray.flags.c_contiguous or ndarray.flags.f_contiguous):
            ndarray = numpy.ascontiguousarray(ndarray)
        self.ndarray = ndarray
        self.ptr = _address(ndarray)

    def __iter__(self) -> Iterator[memoryview]:
        memory = memory_at(self.ptr, self.size, self.ndarray)
        return (memory[start:stop] for start, stop in self.spans(self.size))


def _storable(ndarray: Any) -> Array:
    """Return the array, or the scalar of NumPy as one; raises `UsageError`."""
    if isinstance(ndarray, numpy.generic):
        ndarray = numpy.asarray(ndarray)
    if not isinstance(ndarray, numpy.ndarray):
        raise UsageTypeError("expected a NumPy array, not %r" % type(ndarray).__name__)
    if numpy.ma.is_masked(ndarray):
        raise UsageError(
            "masked arrays can't be stored, the mask would be lost; store "
            ".filled() or .data and .mask"
        )
    return ndarray


class PlainNumpySink(PlainSink):
    """Fills a new array, ``ndarray``, made from the metadata of a file.

    Raises `NotANumpyArray`, `ObjectDtypeFound` or another `FormatError` for metadata
    that are not those of an array, and later for chunks that do not fill it exactly.
    """

    concurrent = True
    random_access = True

    def __init__(self, metadata: Any) -> None:
        self.metadata = metadata
        self._description = Description(metadata)
        self.ndarray = self._description.allocate()
        self.ptr = _address(self.ndarray)
        self._memory = memory_at(self.ptr, self._description.nbytes, self.ndarray)
        self._ends = [0]

    def put(self, compressed: bytes) -> int:
        """Decompress a chunk behind the last one; return its plain size in bytes."""
        nbytes = decode_header(compressed).nbytes
        with own_settings:
            decompress_into(compressed, self.room(self._ends[-1], nbytes))
        return nbytes

    def room(self, start: int, nbytes: int) -> memoryview:
        end = start + nbytes
        if end > self._memory.nbytes:
            self._description.check_nbytes(end)
        self._ends.append(end)
        return self._memory[start:end]

    def finalize(self) -> None:
        self._description.check_nbytes(max(self._ends))


# The functions on arrays


def pack_ndarray(
    ndarray: Array,
    sink: CompressedSink,
    chunk_size: int | str = DEFAULT_CHUNK_SIZE,
    blosc_args: BloscArgs | None = None,
    bloscpack_args: BloscpackArgs | None = None,
    metadata_args: MetadataArgs | None = None,
    *,
    nthreads: int | None = None,
) -> None:
    """Compress an array into a sink.

    `chunk_size` is bytes, a multiple of the item size unless the array fits one
    chunk, or text like ``'1M'``, which is rounded down to whole items. The type size
    in `blosc_args` is replaced by the item size.

    Raises `ObjectNumpyArrayRejection`, `ChunkSizeTypeSizeMismatch` or another
    `UsageError` before anything is written.
    """
    source = PlainNumpySource(ndarray)
    pack_items(
        source,
        sink,
        source.ndarray,
        chunk_size,
        blosc_args,
        bloscpack_args,
        metadata_args,
        nthreads=nthreads,
    )


def pack_items(
    source: PlainSource,
    sink: CompressedSink,
    array: Array,
    chunk_size: int | str,
    blosc_args: BloscArgs | None,
    bloscpack_args: BloscpackArgs | None,
    metadata_args: MetadataArgs | None,
    *,
    nthreads: int | None = None,
) -> None:
    """Compress the items of an array, which `source` yields, into a sink.

    Only dtype, shape and order are asked of `array`; the rest is as in `pack_ndarray`.
    """
    check_settings(blosc_args, bloscpack_args, metadata_args)
    blosc_args = (BloscArgs() if blosc_args is None else blosc_args).copy()
    blosc_args.typesize = typesize_of(array.dtype)
    size = whole_items(chunk_size, array.itemsize, array.nbytes)
    pack(
        source,
        sink,
        *calculate_nchunks(array.nbytes, size),
        metadata=describe(array),
        blosc_args=blosc_args,
        bloscpack_args=bloscpack_args,
        metadata_args=metadata_args,
        nthreads=nthreads,
    )


def typesize_of(dtype: DType) -> int:
    """Return the type size for Blosc, in bytes: the item size, if it fits one byte.

    Longer items are text, where each character takes four bytes, or anything else,
    where only single bytes are sure to mean the same.
    """
    if 1 <= dtype.itemsize <= MAX_TYPESIZE:
        return dtype.itemsize
    return 4 if dtype.kind == "U" else 1


def whole_items(chunk_size: int | str, itemsize: int, nbytes: int) -> int:
    """Return a chunk size in bytes that ends between two items."""
    size = parse_chunk_size(chunk_size)
    if nbytes <= size or size % itemsize == 0:
        return size
    if itemsize > MAX_BUFFERSIZE:
        raise UsageError(
            "items of '%d' bytes are larger than the largest chunk of '%d' bytes"
            % (itemsize, MAX_BUFFERSIZE)
        )
    if isinstance(chunk_size, str):
        return max(size - size % itemsize, itemsize)
    raise ChunkSizeTypeSizeMismatch(
        "chunk_size: '%s' is not divisible by typesize: '%d'"
        % (double_pretty_size(size), itemsize)
    )


def pack_ndarray_to_file(
    ndarray: Array,
    filename: Path,
    chunk_size: int | str = DEFAULT_CHUNK_SIZE,
    blosc_args: BloscArgs | None = None,
    bloscpack_args: BloscpackArgs | None = None,
    metadata_args: MetadataArgs | None = None,
    *,
    nthreads: int | None = None,
    sync: bool | None = None,
) -> None:
    """Compress an array into a file, which appears when it is complete.

    The arguments are those of `pack_ndarray`. With `sync` the file is on the disk when
    this returns; by default that is so if it replaces another one.
    """
    with replacing(filename, sync) as fp:
        pack_ndarray(
            ndarray,
            CompressedFPSink(fp, new=True),
            chunk_size,
            blosc_args,
            bloscpack_args,
            metadata_args,
            nthreads=nthreads,
        )


def pack_ndarray_to_bytes(
    ndarray: Array,
    chunk_size: int | str = DEFAULT_CHUNK_SIZE,
    blosc_args: BloscArgs | None = None,
    bloscpack_args: BloscpackArgs | None = None,
    metadata_args: MetadataArgs | None = None,
    *,
    nthreads: int | None = None,
) -> bytes:
    """Return an array compressed, as the bytes of a file.

    The arguments are those of `pack_ndarray`.

    >>> array = numpy.arange(10)
    >>> bool((unpack_ndarray_from_bytes(pack_ndarray_to_bytes(array)) == array).all())
    True
    """
    fp = bytes_writer(getattr(ndarray, "nbytes", 0))
    pack_ndarray(
        ndarray,
        CompressedFPSink(fp),
        chunk_size,
        blosc_args,
        bloscpack_args,
        metadata_args,
        nthreads=nthreads,
    )
    return fp.getvalue()


def unpack_ndarray(source: CompressedSource, *, nthreads: int | None = None) -> Array:
    """Return the array that a source holds, writable and in its order.

    Raises `NotANumpyArray` if it holds none, another `FormatError` if it is damaged or
    does not hold the bytes that dtype and shape need.
    """
    metadata = getattr(source, "metadata", None)
    header = getattr(source, "bloscpack_header", None)
    if header is not None and header.nbytes is not None:
        # Before the array is made: a shape that lies must not cost memory.
        Description(metadata).check_nbytes(header.nbytes)
    limits = getattr(source, "limits", None)
    if limits is not None:
        limits.check_nbytes(Description(metadata).nbytes)
    sink = PlainNumpySink(metadata)
    unpack(source, sink, nthreads=nthreads)
    return sink.ndarray


def unpack_ndarray_from_file(
    filename: Path, *, nthreads: int | None = None, limits: Limits | None = None
) -> Array:
    """Return the array in a file. Raises what `unpack_ndarray` raises."""

    def read(fp: Any, check: Any) -> Array:
        source = CompressedFPSource(fp, limits=limits)
        check(source.bloscpack_header)
        return unpack_ndarray(source, nthreads=nthreads)

    return read_snapshot(filename, read)


def unpack_ndarray_from_bytes(
    bytes_: Any, *, nthreads: int | None = None, limits: Limits | None = None
) -> Array:
    """Return the array in the bytes of a file. Raises what `unpack_ndarray` raises."""
    source = CompressedBytesSource(bytes_, limits=limits)
    return unpack_ndarray(source, nthreads=nthreads)


# Names kept from 0.16

pack_ndarray_file = deprecated_alias("pack_ndarray_file", pack_ndarray_to_file)
unpack_ndarray_file = deprecated_alias("unpack_ndarray_file", unpack_ndarray_from_file)
pack_ndarray_str = deprecated_alias("pack_ndarray_str", pack_ndarray_to_bytes)
unpack_ndarray_str = deprecated_alias("unpack_ndarray_str", unpack_ndarray_from_bytes)

__getattr__ = sibling_names(__name__)
