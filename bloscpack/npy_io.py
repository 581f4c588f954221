"""Convert NumPy's ``.npy`` files to array files and back, chunk by chunk.

The whole array is never in memory. The size that a header states is compared with the
size of the file before anything is written. Arrays of Python objects are rejected: they
need pickle. The output is equal to the output of `pack_ndarray_to_file`, or of
``numpy.save``, for the array in memory.
"""

from __future__ import annotations

import io
import math
from functools import partial
from typing import IO, TYPE_CHECKING, Any, BinaryIO

import numpy
from numpy.lib import format as npy_format
from numpy.lib.stride_tricks import as_strided

from ._commit.ownership import attributes_of_input
from ._commit.replacing import check_distinct, replacing
from ._format.array_metadata import Description, check_rows, new_array
from ._format.dtypes import Array, DType, check_unit, encode_dtype, parse_literal
from ._format.grid import lengths
from ._storage.base import naming_errors, read_up_to, write_all
from ._storage.paths import without_url
from ._storage.stream import sampled, seekable_with_size, size_of
from ._types import Buffer, Path, Readable, StorageOptions, Writable
from .abstract_io import Progress
from .append import AppendKeywords, append_from
from .args import AnyBloscArgs, AnyBloscpackArgs, AnyMetadataArgs, fit_settings, goal_of
from .defaults import CHUNK_SIZE_NOT_GIVEN, DEFAULT_DTYPE_LIMIT
from .exceptions import DamageError, NotReadable, UsageError
from .file_io import (
    CompressedFPSink,
    PlainFPSink,
    PlainFPSource,
    SectionsSource,
    log_packed,
    plain_sink,
    unpack_to_path,
)
from .numpy_io import ArrayKeywords, pack_items, put_chunk, typesize_of
from .serializers import is_array

if TYPE_CHECKING:
    from typing_extensions import Unpack


# For each version: the size in bytes of the length field, and the encoding of the text.
VERSIONS = {(1, 0): (2, "latin1"), (2, 0): (4, "latin1"), (3, 0): (4, "utf-8")}
KEYS = {"descr", "fortran_order", "shape"}


# The header


class _HeaderWritten(Exception):
    """Raised to stop NumPy before it writes items."""


class _HeaderWriter(io.RawIOBase):
    """A file object that stores the first write, the header, and stops NumPy."""

    header = b""

    def write(self, data: Buffer) -> int:  # type: ignore[override]
        self.header = bytes(data)
        raise _HeaderWritten


def encode_header(array: Array) -> bytes:
    """Return the header that NumPy writes for an array; the items are not accessed."""
    for version in VERSIONS:
        writer = _HeaderWriter()
        try:
            npy_format.write_array(writer, array, version)
        except _HeaderWritten:
            return writer.header
        except ValueError:
            continue  # too long for this version, or not in its encoding
    raise UsageError(  # pragma: no cover - the last version takes 4 GiB of any text
        "a .npy file can't hold arrays of dtype '%.200s'" % array.dtype
    )


def read_header(fp: Readable) -> Array:
    """Return an array for the header of a ``.npy`` file; stop at the first item.

    The array has the dtype, shape and order of the header, but no memory for its items:
    they must not be accessed.

    Parameters
    ----------
    fp
        The ``.npy`` file, from the current position on.

    Raises
    ------
    NotReadable
        The file is not a ``.npy`` file or has an unknown version.
    ObjectNumpyArrayRejection
        The array contains Python objects.
    FormatError
        The header is invalid.
    """
    magic = read_up_to(fp, npy_format.MAGIC_LEN)
    if not magic.startswith(npy_format.MAGIC_PREFIX):
        raise NotReadable("expected a .npy file, found one that begins %r" % magic)
    version = tuple(magic[len(npy_format.MAGIC_PREFIX) :])
    if version not in VERSIONS:
        raise NotReadable(
            "expected a .npy file of version 1.0, 2.0 or 3.0, found %s"
            % ".".join(map(str, version))
        )
    length_size, encoding = VERSIONS[version]
    length = int.from_bytes(_read_exactly(fp, length_size), "little")
    if length > DEFAULT_DTYPE_LIMIT:
        raise NotReadable(
            "expected a .npy header of at most '%d' bytes, found '%d'"
            % (DEFAULT_DTYPE_LIMIT, length)
        )
    text = _read_exactly(fp, length)
    try:
        fields: Any = parse_literal(text.decode(encoding))
        if not isinstance(fields, dict) or fields.keys() != KEYS:
            raise ValueError("its keys are not %s" % ", ".join(sorted(KEYS)))
        shape, fortran = fields["shape"], fields["fortran_order"]
        if type(shape) is not tuple or any(type(n) is not int or n < 0 for n in shape):
            raise ValueError("its shape is not a tuple of sizes")
        if type(fortran) is not bool:
            raise ValueError("its 'fortran_order' is neither True nor False")
        check_unit(str(fields["descr"]))
        dtype = npy_format.descr_to_dtype(fields["descr"])
        if dtype.subdtype is not None:
            raise ValueError("its dtype adds axes to the shape")
    except Exception as error:  # `ast` and NumPy may raise any exception
        raise DamageError(
            "expected the header of a .npy file, found %.200r: %.200s" % (text, error)
        ) from error
    encode_dtype(dtype)  # rejects dtypes that can't be stored, such as objects
    return without_items(dtype, shape, fortran)


def _read_exactly(fp: Readable, size: int) -> bytes:
    data = read_up_to(fp, size)
    if len(data) < size:
        raise DamageError(
            "the file ends too early: expected a .npy header of '%d' bytes, found '%d'"
            % (size, len(data))
        )
    return data


def without_items(dtype: DType, shape: tuple[int, ...], fortran: bool) -> Array:
    """Return an array without memory for its items, which must not be accessed.

    `fortran` selects Fortran order. Raises `FormatError` if NumPy can't represent the
    array.
    """
    axes = range(len(shape))
    inner = [shape[:i] if fortran else shape[i + 1 :] for i in axes]
    strides = [math.prod(axes_inside) * dtype.itemsize for axes_inside in inner]
    try:
        # NumPy would rename a field without a name on the way to other strides.
        raw = numpy.dtype("V%d" % dtype.itemsize) if dtype.names else dtype
        item: Array = numpy.ndarray((), raw, bytes(max(dtype.itemsize, 1)))
        return as_strided(item, shape, strides).view(dtype)
    except (MemoryError, ValueError, OverflowError) as error:
        raise DamageError(
            "an array of shape %.200s and dtype '%.200s' can't be made: %s"
            % (shape, dtype, error)
        ) from error


def check_size(fp: IO[bytes], array: Array, size: int | None) -> None:
    """Raise `FormatError` unless exactly the items follow in `fp`, of `size` bytes."""
    left = None if size is None else size - fp.tell()
    if left is not None and left < array.nbytes:
        raise DamageError(
            "the file ends too early: expected '%d' bytes for the items of the array, "
            "found '%d'" % (array.nbytes, left)
        )
    if left is not None and left > array.nbytes:
        raise _trailing_bytes(array)


def _trailing_bytes(array: Array) -> NotReadable:
    return NotReadable(
        "expected a .npy file with one array, found more bytes behind the '%d' of it"
        % array.nbytes
    )


# .npy → array file


class NpySource(PlainFPSource):
    """Yields the items of an array, which follow the header of its ``.npy`` file."""

    def too_early(self, i: int, size: int, found: int) -> Exception:
        return DamageError(
            "the file ends too early: expected '%d' bytes of items for chunk %d, "
            "found '%d'" % (size, i, found)
        )


def pack_npy_to_file(
    npy_file: Path,
    out_file: Path,
    chunk_size: int | str = CHUNK_SIZE_NOT_GIVEN,
    blosc_args: AnyBloscArgs | None = None,
    bloscpack_args: AnyBloscpackArgs | None = None,
    metadata_args: AnyMetadataArgs | None = None,
    *,
    sync: bool | None = None,
    preserve: bool = False,
    exclusive: bool = False,
    storage_options: StorageOptions | None = None,
    **keywords: Unpack[ArrayKeywords],
) -> None:
    """Compress the array in a ``.npy`` file into an array file.

    The output is the same as that of `pack_ndarray_to_file`, but only some chunks are
    in memory at a time.

    Parameters
    ----------
    npy_file
        The ``.npy`` file, or a pipe.
    out_file
        The file to write. It appears under this name only when it is complete.
    chunk_size, blosc_args, bloscpack_args, metadata_args, metadata, shard, auto
        As in `bloscpack.numpy_io.pack_ndarray`, and so are `nthreads`, `progress` and
        `settings`.
    sync, exclusive
        As in `bloscpack.file_io.pack_file_to_file`.
    storage_options
        Settings of fsspec for a URL, such as keys.
    preserve
        Whether the output gets the times of the input and, if it replaces no file, its
        permissions. A pipe has neither.

    Raises
    ------
    NotReadable
        The input is not a ``.npy`` file, or more bytes follow the array.
    ObjectNumpyArrayRejection
        The array contains Python objects.
    FormatError
        The input is damaged or too short.

    Examples
    --------
    >>> numpy.save('numbers.npy', numpy.arange(10))
    >>> pack_npy_to_file('numbers.npy', 'numbers.blp')
    >>> unpack_npy_from_file('numbers.blp', 'same.npy')
    >>> numpy.load('same.npy').tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    args = bloscpack_args, metadata_args
    check_distinct(npy_file, out_file)
    without_url(npy_file, "packing a file")
    with naming_errors(npy_file), open(npy_file, "rb") as in_fp:
        size = size_of(in_fp)
        array = read_header(in_fp)
        check_size(in_fp, array, size)
        items_fp: BinaryIO = in_fp
        sample = None
        settings: Any = keywords
        if goal_of(settings.get("auto")):
            items_fp, sample = sampled(in_fp, None if size is None else array.nbytes)
        typesizes = (typesize_of(array.dtype),)
        fitted = fit_settings(
            settings, chunk_size, blosc_args, sample, typesizes, is_array=True
        )
        with replacing(
            out_file,
            sync,
            attributes_of_input(in_fp),
            access=preserve,
            times=preserve,
            exclusive=exclusive,
            storage_options=storage_options,
        ) as out_fp:
            source, sink = NpySource(items_fp), CompressedFPSink(out_fp)
            pack_items(source, sink, array, *fitted, *args, **settings)
            if size is None and items_fp.read(1):
                raise _trailing_bytes(array)
    log_packed(array.nbytes, out_file)


# array file → .npy


class NpySink(PlainFPSink):
    """Writes a ``.npy`` file: the header, then the items of the array.

    `finalize` raises `FormatError` if the number of written bytes is not the size of
    the array.
    """

    def __init__(
        self,
        output_fp: Writable,
        description: Description,
        header: bytes,
        *,
        sparse: bool = True,
    ) -> None:
        super().__init__(output_fp, sparse=sparse)
        self._description = description
        self._nbytes = 0
        write_all(self.output_fp, header)

    def store(self, plain: Buffer) -> None:
        super().store(plain)
        self._nbytes += len(plain)

    placing = PlainFPSink.placing  # which goes with this `store`

    def placed(self, end: int) -> None:
        super().placed(end)
        self._nbytes = end

    def finalize(self) -> None:
        super().finalize()
        self._description.check_nbytes(self._nbytes)


class GridNpySink(NpySink):
    """Writes a ``.npy`` file from chunks of every axis, one band of rows at a time."""

    _band: Array | None = None

    def store(self, plain: Buffer) -> None:
        grid = self._description.grid
        assert grid is not None
        number = self._description.chunk_at(self._nbytes, len(plain))
        box = grid.box(number)
        if self._band is None:
            shape = *lengths(box[:1]), *grid.shape[1:]
            self._band = new_array(shape, self._description.dtype)
        rows = slice(0, len(self._band))
        put_chunk(self._band, (rows, *box[1:]), plain, grid)
        if number + 1 == grid.nchunks or grid.box(number + 1)[:1] != box[:1]:
            PlainFPSink.store(self, self._band.reshape(-1).view("u1").data)
            self._band = None
        self._nbytes += len(plain)


def npy_sink(
    source: SectionsSource, out_fp: Writable, *, sparse: bool = True
) -> NpySink:
    """Return a sink for a ``.npy`` file; see `bloscpack.file_io.unpack_fp_to_fp`.

    Raises `NotANumpyArray` if `source` holds no array.
    """
    description = Description(source.metadata)
    nbytes = source.bloscpack_header.nbytes
    if nbytes is not None:
        description.check_nbytes(nbytes)
    fortran = description.order == "F"
    header = encode_header(without_items(description.dtype, description.shape, fortran))
    make = NpySink if description.grid is None else GridNpySink
    return make(out_fp, description, header, sparse=sparse)


def sink_by_content(
    source: SectionsSource, out_fp: Writable, *, sparse: bool = True
) -> PlainFPSink:
    """Return a sink for a ``.npy`` file, or for bytes if `source` holds no array."""
    make_sink = npy_sink if is_array(source.metadata) else plain_sink
    return make_sink(source, out_fp, sparse=sparse)


def unpack_npy_from_file(
    in_file: Path,
    npy_file: Path,
    *,
    nthreads: int | None = None,
    sync: bool | None = None,
    preserve: bool = False,
    progress: Progress | None = None,
    sparse: bool = True,
    storage_options: StorageOptions | None = None,
) -> None:
    """Decompress an array file into a ``.npy`` file.

    The output is the same as that of ``numpy.save``, but only some chunks are in memory
    at a time.

    Parameters
    ----------
    in_file
        The array file.
    npy_file
        The file to write, or a pipe. A file appears under this name only when it is
        complete.
    nthreads, progress, sparse
        As in `bloscpack.file_io.unpack_file_from_file`.
    sync, preserve
        As in `pack_npy_to_file`.
    storage_options
        Settings of fsspec for a URL, such as keys.

    Raises
    ------
    NotANumpyArray
        `in_file` holds no array.
    FormatError
        `in_file` is damaged. `npy_file` is unchanged.
    """
    unpack_to_path(
        in_file,
        npy_file,
        partial(npy_sink, sparse=sparse),
        sync,
        storage_options,
        preserve=preserve,
        nthreads=nthreads,
        progress=progress,
    )


# .npy → behind an array file


def append_npy(
    orig_file: Path,
    npy_file: Path,
    blosc_args: AnyBloscArgs | None = None,
    **settings: Unpack[AppendKeywords],
) -> None:
    """Append the rows of a ``.npy`` file to an array file.

    The array grows along its first axis. Whatever interrupts it, the file has either
    its old rows or all of the new rows (docs/durability.rst).

    Parameters
    ----------
    orig_file
        The array file.
    npy_file
        The ``.npy`` file, or a pipe, with the new rows.
    blosc_args, settings
        As in `bloscpack.append.append`.

    Raises
    ------
    DoesNotFit
        The arrays differ in dtype, byte order or an axis other than the first, or one
        of them is not in C order. Nothing has been changed.
    NotANumpyArray
        `orig_file` holds no array.
    FormatError, StorageError
        As in `bloscpack.append.append` for `orig_file` and `pack_npy_to_file` for
        `npy_file`.
    """
    check_distinct(npy_file, orig_file)
    without_url(npy_file, "appending")
    with (
        naming_errors(npy_file),
        open(npy_file, "rb") as fp,
        seekable_with_size(fp) as (new_fp, size),
    ):
        rows = read_header(new_fp)
        check_size(new_fp, rows, size)
        append_from(
            orig_file,
            new_fp,
            rows.nbytes,
            blosc_args,
            accept=lambda metadata: check_rows(metadata, rows),
            **settings,
        )
