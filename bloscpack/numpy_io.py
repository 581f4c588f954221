"""Pack NumPy arrays into files and bytes, and unpack them.

The plain bytes of an array file are the items in C or Fortran order; dtype, shape and
order are stored as metadata (docs/format.rst, Arrays). Unpacking first checks that the
size of the array equals the number of plain bytes, then allocates the array once and
decompresses into its memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    TypedDict,
    overload,
)  # NumPy imports typing

import numpy

from ._commit.replacing import replacing
from ._commit.snapshot import read_snapshot
from ._compat import deprecated_alias, sibling_names
from ._engine.blosc_settings import own_settings
from ._engine.forks import cached_property
from ._format.array_metadata import Description, grid_for, new_array, with_chunks
from ._format.array_metadata import describe as _ndarray_meta  # the name of 0.16
from ._format.chunks import decompress_into, only_chunk
from ._format.dtypes import Array, DType
from ._format.grid import Box, Grid
from ._format.sections import read_metadata
from ._format.shard import (
    DEFAULT_SHARD_CHECKSUM,
    row_nbytes,
    rows_for,
    shard_of,
    with_rows,
)
from ._storage.base import releasing_views
from ._storage.cursor import MemoryCursor
from ._storage.paths import check_is_path
from ._types import BinaryFile, Buffer, Json, Path, StorageOptions
from .abstract_io import (
    CompressedSink,
    CompressedSource,
    MemorySink,
    PlainSource,
    Progress,
    may_read_at_once,
    pack,
    unpack,
)
from .args import (
    AnyBloscArgs,
    AnyBloscpackArgs,
    AnyLimits,
    AnyMetadataArgs,
    AutoKeywords,
    BloscpackArgs,
    PackKeywords,
    calculate_nchunks,
    effective_limits,
    fit_settings,
    goal_of,
    parse_chunk_size,
    settings_from,
    settings_of,
)
from .constants import MAX_BUFFERSIZE, MAX_TYPESIZE
from .defaults import CHUNK_SIZE_NOT_GIVEN, NotGiven
from .exceptions import (
    ChunkSizeTypeSizeMismatch,
    DoesNotFit,
    FormatError,
    UsageError,
    UsageTypeError,
    UsageValueError,
)
from .file_io import (
    WORTH_NO_COPY,
    CompressedBytesSource,
    CompressedFPSink,
    CompressedFPSource,
    room_to_pack,
    short_content,
)
from .pretty import double_pretty_size
from .serializers import USER_METADATA, user_metadata

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._commit.snapshot import Check

# Maximum size in bytes of a metadata section whose description is kept.
LONGEST_SECTION = 4096
# Size in bytes of arrays from which blocks are chosen that are read alone: the cache of
# an open file has room for all chunks of smaller ones.
LARGE = 32 * 2**20


class ArrayKeywords(AutoKeywords, total=False):
    """The keywords of `pack_ndarray`, which documents them."""

    metadata: object
    shard: bool


class NdarrayKeywords(ArrayKeywords, total=False):
    """The keywords of `pack_ndarray` for arrays in memory."""

    chunks: int | Sequence[int] | None


class UnpackKeywords(TypedDict, total=False):
    """The keywords that all functions that unpack have."""

    nthreads: int | None
    limits: AnyLimits | None
    progress: Progress | None


def memory_of(array: Array) -> memoryview:
    """Return the bytes of an array, whose items lie side by side, without a copy."""
    if not array.nbytes:
        return memoryview(bytearray())
    return array.reshape(-1, order="A").view("u1").data


class PlainNumpySource(PlainSource):
    """Yields views of the memory of an array, or of a copy if it is not contiguous.

    Parameters
    ----------
    ndarray
        The array, or a NumPy scalar.

    Raises
    ------
    ObjectNumpyArrayRejection
        The array contains Python objects.
    UsageError
        The array is masked: its mask would be lost.
    """

    lasting = True

    def __init__(self, ndarray: Array) -> None:
        ndarray = storable(ndarray)
        self.metadata = _ndarray_meta(ndarray)
        self.size = ndarray.nbytes
        if not (ndarray.flags.c_contiguous or ndarray.flags.f_contiguous):
            ndarray = numpy.ascontiguousarray(ndarray)
        self.ndarray = ndarray

    @cached_property
    def ptr(self) -> int:
        """The address of the first item, as in release 0.16."""
        return self.ndarray.ctypes.data

    def __iter__(self) -> Iterator[memoryview]:
        memory = memory_of(self.ndarray)
        return (memory[start:stop] for start, stop in self.spans(self.size))

    def read(self, start: int, size: int) -> bytes:
        """Return a part of the bytes of the items."""
        return bytes(memory_of(self.ndarray)[start : start + size])


class GridSource(PlainSource):
    """Yields the chunks of an array that is cut in every axis, padded with zeros.

    `read` returns the items in a box.
    """

    lasting = True

    def __init__(
        self, read: Callable[[Box], Array], grid: Grid, *, padded: bool = True
    ) -> None:
        self._read, self._grid, self._padded = read, grid, padded

    def __iter__(self) -> Iterator[Buffer]:
        chunk = self._grid.chunk
        for number in range(self._grid.nchunks):
            box = self._grid.box(number)
            items = _raw(numpy.ascontiguousarray(self._read(box)))
            if items.shape != chunk and self._padded:
                padded = numpy.zeros(chunk, items.dtype)
                padded[_inside(box)] = items
                items = padded
            plain: memoryview = items.reshape(-1).view("u1").data
            yield plain


def _raw(array: Array) -> Array:
    """Return an array whose items are copied with the bytes between their fields."""
    is_plain = array.dtype.fields is None
    return array if is_plain else array.view("V%d" % array.dtype.itemsize)


def put_chunk(array: Array, box: Box, plain: Buffer, grid: Grid) -> None:
    """Copy the part of a chunk of a grid that is in a part of an array."""
    items = _raw(array)
    items[box] = numpy.ndarray(grid.chunk, items.dtype, plain)[_inside(box)]


def _inside(box: Box) -> Box:
    """Return the part of a chunk that is in the array."""
    return tuple(slice(0, each.stop - each.start) for each in box)


def storable(ndarray: object, order: Literal["C"] | None = None) -> Array:
    """Return `ndarray`, in this order, or a NumPy scalar as an array of no axes.

    Raises the errors of `PlainNumpySource` for its type and dtype.
    """
    if isinstance(ndarray, numpy.generic):
        ndarray = numpy.asarray(ndarray)
    if not isinstance(ndarray, numpy.ndarray):
        hint = ": savez stores several arrays" if isinstance(ndarray, Mapping) else ""
        raise UsageTypeError(
            "expected a NumPy array, not %r%s" % (type(ndarray).__name__, hint)
        )
    if type(ndarray) is not numpy.ndarray and numpy.ma.is_masked(ndarray):
        raise UsageError(
            "masked arrays can't be stored, the mask would be lost; store "
            ".filled() or .data and .mask"
        )
    # Not a subclass: a view of a masked array whose mask is an array fails.
    return numpy.asarray(ndarray, order=order)


class PlainNumpySink(MemorySink):
    """Fills a new array, the attribute ``ndarray``, with plain bytes.

    Parameters
    ----------
    metadata
        The metadata of an array file: dtype, shape and order of the array.

    Raises
    ------
    NotANumpyArray, ObjectDtypeFound
        The metadata describes no array, or an array of Python objects.
    FormatError
        The metadata is invalid; or, from `finalize`, the chunks do not fill the array.
    """

    def __init__(self, metadata: object) -> None:
        # `unpack_ndarray` has checked the metadata, which takes time.
        if not isinstance(metadata, Description):
            metadata = Description(metadata)
        self._description = metadata
        self.metadata = metadata.metadata
        self.ndarray = new_array(metadata.shape, metadata.dtype, metadata.order)
        self._stored = 0
        super().__init__(memory_of(self.ndarray))

    @cached_property
    def ptr(self) -> int:
        """The address of the first item, as in release 0.16."""
        return self.ndarray.ctypes.data

    def room(self, start: int, nbytes: int) -> memoryview | None:
        """Return the memory for the next chunk; None if the array is cut in a grid."""
        if start + nbytes > self._description.stored_nbytes:
            self._description.check_nbytes(start + nbytes)
        memory = super().room(start, nbytes)
        return memory if self._description.grid is None else None

    def store(self, plain: Buffer) -> None:
        """Copy the part of the next chunk that is in the array."""
        grid = self._description.grid
        assert grid is not None
        number = self._description.chunk_at(self._stored, len(plain))
        put_chunk(self.ndarray, grid.box(number), plain, grid)
        self._stored += len(plain)

    def finalize(self) -> None:
        self._description.check_nbytes(self._end)


# The functions on arrays


def pack_ndarray(
    ndarray: Array,
    sink: CompressedSink,
    chunk_size: int | str = CHUNK_SIZE_NOT_GIVEN,
    blosc_args: AnyBloscArgs | None = None,
    bloscpack_args: AnyBloscpackArgs | None = None,
    metadata_args: AnyMetadataArgs | None = None,
    **keywords: Unpack[NdarrayKeywords],
) -> None:
    """Compress an array into a sink.

    Errors in the arguments are raised before anything is written.

    Parameters
    ----------
    ndarray
        The array. Its dtype, shape and order are stored with it.
    sink
        Stores the compressed chunks.
    chunk_size
        Size of a chunk in bytes. A number must be a multiple of the item size, unless
        one chunk can hold the array; text like ``'1M'`` or ``'max'`` is rounded down to
        whole items.
    chunks
        The length of a chunk along each axis, or a number of rows, in place of
        `chunk_size`. If a chunk has a part of a row, releases up to 0.16.0 find no
        array in the file, and its plain bytes are the padded chunks: see
        docs/format.rst. An array without items is stored without chunks.
    blosc_args, bloscpack_args, metadata_args
        The settings; see `BloscArgs`, `BloscpackArgs` and `MetadataArgs`. The item size
        replaces the type size.
    metadata
        Any value that JSON can represent, to be stored beside the description of the
        array; `unpack_ndarray_from_file` and `Reader` return it. None: no such value.
    shard
        Whether the file is also a Zarr v3 shard, whose inner chunks are the chunks.
        They have whole rows: the chunk size is rounded down to them. The checksum is
        then ``'crc32c'`` by default, which Zarr verifies. `sink` must write a file
        that can seek, with an offset table.
    auto
        As in `bloscpack.file_io.pack_file_to_file`, for the items of the array.
    nthreads, progress, settings
        As in `bloscpack.abstract_io.pack`.

    Raises
    ------
    ObjectNumpyArrayRejection
        The array contains Python objects.
    ChunkSizeTypeSizeMismatch
        `chunk_size` is not a multiple of the item size.
    UsageError
        The array is masked, a setting is invalid, or the array can't be a shard.
    """
    settings: Any = keywords
    grid, chunks = None, settings.pop("chunks", None)
    if chunks is not None:
        ndarray, chunk_size, grid = _cut(ndarray, chunk_size, chunks)
    plain = PlainNumpySource(ndarray)
    if "auto" in settings:
        chunk_size, blosc_args = _fitted(plain, chunk_size, blosc_args, settings)
    array = plain.ndarray
    source = plain if grid is None else GridSource(array.__getitem__, grid)
    args = chunk_size, blosc_args, bloscpack_args, metadata_args
    pack_items(source, sink, array, *args, **settings, grid=grid)


def _cut(
    array: Any, chunk_size: int | str, chunks: object
) -> tuple[Array, int | str, Grid | None]:
    """Return an array, the size of its chunks, and how they divide every axis.

    The grid is None if the chunks are spans of the items in order.
    """
    if not isinstance(chunk_size, NotGiven):
        raise UsageError("give 'chunks' or 'chunk_size', not both")
    array = storable(array, order="C")
    grid = grid_for(array, chunks)
    size = max(1, math.prod(grid.chunk) * array.dtype.itemsize)
    return array, size, None if grid.is_rows or not array.nbytes else grid


def _fitted(
    source: PlainNumpySource, chunk_size: int | str, blosc_args: Any, settings: Any
) -> tuple[int | str, AnyBloscArgs | None]:
    """Return a chunk size and settings that fit an array; see `fit_settings`."""
    sample = source.read, source.size
    typesizes = (typesize_of(source.ndarray.dtype),)
    return fit_settings(
        settings, chunk_size, blosc_args, sample, typesizes, is_array=True
    )


def pack_items(
    source: PlainSource,
    sink: CompressedSink,
    array: Array,
    chunk_size: int | str,
    blosc_args: AnyBloscArgs | None,
    bloscpack_args: AnyBloscpackArgs | None,
    metadata_args: AnyMetadataArgs | None,
    *,
    metadata: object = None,
    shard: bool = False,
    grid: Grid | None = None,
    nthreads: int | None = None,
    progress: Progress | None = None,
    **settings: Unpack[PackKeywords],
) -> None:
    """Compress the items of an array, which `source` yields, into a sink.

    Of `array` only dtype, shape and order are used, not the items. With a `grid`, the
    source yields its chunks. The other parameters are those of `pack_ndarray`.
    """
    described = getattr(source, "metadata", None) or _ndarray_meta(array)
    if metadata is not None:
        described = {**described, USER_METADATA: metadata}
    nbytes = array.nbytes
    if grid is not None:
        size = math.prod(grid.chunk) * array.dtype.itemsize
        nbytes = grid.nchunks * size
        whole = shard_of(array, grid) if shard else None
        described = with_chunks(described, grid.chunk, whole)
    elif shard:
        rows = rows_for(array, described["order"], chunk_size)
        described = with_rows(described, rows)
        size = rows * row_nbytes(array)
    else:
        size = whole_items(chunk_size, array.itemsize, array.nbytes)
    if shard:
        # An object always names a checksum, a dictionary may leave it out.
        chosen = isinstance(bloscpack_args, BloscpackArgs) or (
            settings.get("checksum") is not None
            or (bloscpack_args is not None and "checksum" in bloscpack_args)
        )
        if not chosen:
            settings = {**settings, "checksum": DEFAULT_SHARD_CHECKSUM}
    args = settings_of(blosc_args, bloscpack_args, metadata_args, settings)
    if args[0] is blosc_args:  # the object of the caller stays unchanged
        args = args[0].copy(), *args[1:]
    args[0].typesize = typesize_of(array.dtype)
    sizes = calculate_nchunks(nbytes, size)
    pack(source, sink, *sizes, described, *args, nthreads=nthreads, progress=progress)


def as_shard(
    array: Array, settings: Mapping[str, Any], least: int = 0
) -> tuple[Array, dict[str, Any]]:
    """Return an array and keywords of `pack_ndarray` that make it a shard if it can be.

    A chunk has no more rows than the array: a shard has a second, padded copy of a
    chunk that is shorter than the others. But it has `least` bytes: the rows that are
    appended get chunks of the same size. `settings` are other keywords; the result has
    what ``auto`` has chosen. Then, and with `least`, the last of several chunks is a
    few rows, unless the caller has chosen the chunk size. A shard has an offset table.
    The blocks of a large one can be read alone, if they take little more space.
    """
    fitted, goal = dict(settings), goal_of(settings.get("auto"))
    args = settings_from(
        BloscpackArgs, "bloscpack_args", fitted.get("bloscpack_args"), fitted
    )
    chunk_size = fitted.pop("chunk_size", CHUNK_SIZE_NOT_GIVEN)
    grid, chunks = None, fitted.pop("chunks", None)
    if chunks is not None:
        array, chunk_size, grid = _cut(array, chunk_size, chunks)
    source = PlainNumpySource(array)
    is_given = not isinstance(chunk_size, NotGiven)
    even = not is_given and (least or goal)
    given = fitted.pop("blosc_args", None)
    chunk_size, fitted["blosc_args"] = _fitted(source, chunk_size, given, fitted)
    fitted.update(chunk_size=chunk_size, shard=False)
    nbytes = parse_chunk_size(chunk_size)
    if goal and source.size > LARGE and not fitted["blosc_args"].blocksize:
        from ._format.automatic import Setting, blocksize_for_parts

        chosen, sample = fitted["blosc_args"], (source.read, source.size)
        kind = chosen.cname, chosen.clevel, int(chosen.shuffle), chosen.typesize
        chosen.blocksize = blocksize_for_parts(Setting(*kind, nbytes), nbytes, sample)
    if grid is not None:
        del fitted["chunk_size"]
        fitted["chunks"] = grid.chunk
        with suppress(DoesNotFit):
            fitted["shard"] = args.offsets and bool(shard_of(array, grid))
        return array, fitted
    if not args.offsets:
        return source.ndarray, fitted
    with suppress(DoesNotFit):
        size = row_nbytes(array)
        rows = rows_for(array, source.metadata["order"], chunk_size)
        if even and len(array) > rows:
            rows = len(array) // -(-len(array) // rows)
        rows = max(1, min(rows, max(len(array), least // size)))
        fitted.update(chunk_size=rows * size, shard=True)
    return source.ndarray, fitted


def typesize_of(dtype: DType) -> int:
    """Return the type size for Blosc in bytes: the item size, if Blosc supports it.

    The type size of longer items is 4, the size of a character, if they are text, and 1
    otherwise, as it is for text of variable length.
    """
    if 1 <= dtype.itemsize <= MAX_TYPESIZE and dtype.kind != "O":
        return dtype.itemsize
    return 4 if dtype.kind == "U" else 1


def whole_items(chunk_size: int | str, itemsize: int, nbytes: int) -> int:
    """Return the chunk size in bytes as a multiple of the item size.

    A chunk that holds the whole array of `nbytes` bytes need not be a multiple. Raises
    `ChunkSizeTypeSizeMismatch` if the given number of bytes is not a multiple.
    """
    size = parse_chunk_size(chunk_size)
    if nbytes <= size or size % itemsize == 0:
        return size
    if itemsize > MAX_BUFFERSIZE:
        raise UsageValueError(
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
    chunk_size: int | str = CHUNK_SIZE_NOT_GIVEN,
    blosc_args: AnyBloscArgs | None = None,
    bloscpack_args: AnyBloscpackArgs | None = None,
    metadata_args: AnyMetadataArgs | None = None,
    *,
    sync: bool | None = None,
    storage_options: StorageOptions | None = None,
    **keywords: Unpack[NdarrayKeywords],
) -> None:
    """Compress an array into a file.

    Parameters
    ----------
    ndarray
        The array. Its dtype, shape and order are stored with it.
    filename
        The file to write. It appears under this name only when it is complete.
    chunk_size, blosc_args, bloscpack_args, metadata_args, metadata, shard, auto, chunks
        As in `pack_ndarray`, and so are `nthreads`, `progress`, `settings` and the
        errors.
    sync
        As in `bloscpack.file_io.pack_file_to_file`.
    storage_options
        Settings of fsspec for a URL, such as keys.

    Examples
    --------
    >>> pack_ndarray_to_file(numpy.zeros((1000, 3)), 'zeros.blp', chunk_size='8K')
    >>> unpack_ndarray_from_file('zeros.blp').shape
    (1000, 3)
    """
    check_is_path(filename, "pack_ndarray_to_file(array, filename)")
    args = blosc_args, bloscpack_args, metadata_args
    with replacing(filename, sync, storage_options=storage_options) as fp:
        pack_ndarray(ndarray, CompressedFPSink(fp), chunk_size, *args, **keywords)


def pack_ndarray_to_bytes(
    ndarray: Array,
    chunk_size: int | str = CHUNK_SIZE_NOT_GIVEN,
    blosc_args: AnyBloscArgs | None = None,
    bloscpack_args: AnyBloscpackArgs | None = None,
    metadata_args: AnyMetadataArgs | None = None,
    **keywords: Unpack[NdarrayKeywords],
) -> bytes:
    """Compress an array and return the file as bytes.

    The parameters and errors are those of `pack_ndarray`.

    Examples
    --------
    >>> array = numpy.arange(10)
    >>> bool((unpack_ndarray_from_bytes(pack_ndarray_to_bytes(array)) == array).all())
    True
    """
    args = blosc_args, bloscpack_args, metadata_args
    fp = room_to_pack(getattr(ndarray, "nbytes", 0))
    pack_ndarray(ndarray, CompressedFPSink(fp), chunk_size, *args, **keywords)
    fp.truncate()
    return fp.getvalue()


def unpack_ndarray(
    source: CompressedSource,
    *,
    nthreads: int | None = None,
    progress: Progress | None = None,
) -> Array:
    """Return the array in a source.

    The array is new and writable, and has the stored order.

    Parameters
    ----------
    source
        Yields the compressed chunks; its attribute ``metadata`` describes the array.
    nthreads, progress
        As in `bloscpack.abstract_io.pack`.

    Raises
    ------
    NotANumpyArray
        The source holds no array.
    FormatError
        The source is damaged, or its size is not the size of the array.
    """
    metadata = getattr(source, "metadata", None)
    header = getattr(source, "bloscpack_header", None)
    description = Description(metadata)
    if header is not None and header.nbytes is not None:
        # Checked before the array is allocated: a wrong shape must not cost memory.
        description.check_nbytes(header.nbytes)
    limits = getattr(source, "limits", None)
    if limits is not None:
        limits.check_nbytes(description.nbytes)
    sink = PlainNumpySink(description)
    unpack(source, sink, nthreads=nthreads, progress=progress)
    return sink.ndarray


@overload
def unpack_ndarray_from_file(
    filename: Path,
    *,
    return_metadata: Literal[False] = False,
    storage_options: StorageOptions | None = None,
    **others: Unpack[UnpackKeywords],
) -> Array: ...


@overload
def unpack_ndarray_from_file(
    filename: Path,
    *,
    return_metadata: Literal[True],
    storage_options: StorageOptions | None = None,
    **others: Unpack[UnpackKeywords],
) -> tuple[Array, Json]: ...


def unpack_ndarray_from_file(
    filename: Path,
    *,
    return_metadata: bool = False,
    nthreads: int | None = None,
    limits: AnyLimits | None = None,
    progress: Progress | None = None,
    storage_options: StorageOptions | None = None,
) -> Array | tuple[Array, Json]:
    """Return the array in a file.

    The array is new and writable, and has the stored order.

    Parameters
    ----------
    filename
        The compressed file.
    return_metadata
        Whether to return a pair: the array, and the value that `pack_ndarray` got as
        `metadata`.
    nthreads, progress
        As in `bloscpack.abstract_io.pack`. If another process changes the file during
        the read, it is read again and `progress` counts its chunks again.
    limits
        The sizes that the file must not exceed; see `Limits`.
    storage_options
        Settings of fsspec for a URL, such as keys.

    Raises
    ------
    NotANumpyArray
        The file holds no array.
    FormatError
        The file is damaged or exceeds the limits.

    Examples
    --------
    >>> pack_ndarray_to_file(numpy.arange(3), 'array.blp', metadata={'unit': 'm'})
    >>> unpack_ndarray_from_file('array.blp', return_metadata=True)
    (array([0, 1, 2]), {'unit': 'm'})
    """

    is_usual = may_read_at_once(nthreads, progress, limits)

    def read(fp: BinaryFile, check: Check) -> tuple[Array, Json]:
        if is_usual and not return_metadata:
            data = short_content(fp)
            if data is not None:
                array = _short_array(data, check)
                if array is not None:
                    return array, None
                fp.seek(0)
        source = CompressedFPSource(fp, limits=limits, to_end=True)
        check(source.bloscpack_header)
        ndarray = unpack_ndarray(source, nthreads=nthreads, progress=progress)
        return ndarray, user_metadata(source.metadata)

    pair = read_snapshot(filename, read, storage_options=storage_options, limits=limits)
    return pair if return_metadata else pair[0]


@overload
def unpack_ndarray_from_bytes(
    bytes_: Buffer,
    *,
    return_metadata: Literal[False] = False,
    **others: Unpack[UnpackKeywords],
) -> Array: ...


@overload
def unpack_ndarray_from_bytes(
    bytes_: Buffer, *, return_metadata: Literal[True], **others: Unpack[UnpackKeywords]
) -> tuple[Array, Json]: ...


@releasing_views
def unpack_ndarray_from_bytes(
    bytes_: Buffer,
    *,
    return_metadata: bool = False,
    nthreads: int | None = None,
    limits: AnyLimits | None = None,
    progress: Progress | None = None,
) -> Array | tuple[Array, Json]:
    """Return the array in `bytes_`, the bytes of a file.

    The other parameters, the results and the errors are those of
    `unpack_ndarray_from_file`.
    """
    limits = effective_limits(limits)
    is_usual = may_read_at_once(nthreads, progress, limits)
    if is_usual and type(bytes_) is bytes and len(bytes_) < WORTH_NO_COPY:
        array = None if return_metadata else _short_array(bytes_, lambda _: None)
        if array is not None:
            return array
    source = CompressedBytesSource(bytes_, limits=limits)
    ndarray = unpack_ndarray(source, nthreads=nthreads, progress=progress)
    return (ndarray, user_metadata(source.metadata)) if return_metadata else ndarray


def _short_array(data: bytes, check: Check) -> Array | None:
    """Return the array in a file with one chunk, for speed; None for other files.

    `check` is called with the header.
    """
    parts = only_chunk(data)
    if parts is None or not 0 < len(parts[1]) <= LONGEST_SECTION:
        return None
    check(parts[0])
    _, section, chunk, header = parts
    try:
        description = _description_in(section)
        if description.grid is not None or description.nbytes != header.nbytes:
            return None
        array = new_array(description.shape, description.dtype, description.order)
        with own_settings:
            decompress_into(chunk, memory_of(array), header)
    except FormatError:  # reading it step by step raises the error
        return None
    return array


@lru_cache(64)  # short arrays often share dtype and shape
def _description_in(section: bytes) -> Description:
    return Description(read_metadata(MemoryCursor(section))[0])


# Names kept from 0.16

pack_ndarray_file = deprecated_alias("pack_ndarray_file", pack_ndarray_to_file)
unpack_ndarray_file = deprecated_alias("unpack_ndarray_file", unpack_ndarray_from_file)
pack_ndarray_str = deprecated_alias("pack_ndarray_str", pack_ndarray_to_bytes)
unpack_ndarray_str = deprecated_alias("unpack_ndarray_str", unpack_ndarray_from_bytes)

__getattr__ = sibling_names(__name__)
