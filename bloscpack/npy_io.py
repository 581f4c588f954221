"""NumPy's own files: a ``.npy`` file to an array file and back, without loading it.

The items go from file to file chunk by chunk. What either header says is compared with
the bytes there are before anything is written, and pickled objects are refused. The
result is that of packing, or of saving, the array in memory, byte for byte.
"""

from __future__ import annotations

import io
import math
import os
import re
import stat

import numpy
from numpy.lib import format as npy_format
from numpy.lib.stride_tricks import as_strided

from . import _temporary
from ._crashsafe.replace import check_distinct, replacing
from ._crashsafe.snapshot import attempts_for, read_snapshot
from ._format.array_metadata import Description
from ._format.dtypes import encode_dtype
from ._storage.base import read_up_to, write_all
from ._storage.local import opened
from ._storage.spool import size_of, sized
from .append import append_from
from .args import BloscArgs
from .defaults import DEFAULT_CHUNK_SIZE, DEFAULT_DTYPE_LIMIT
from .exceptions import DoesNotFit, FormatError, NotReadable, UsageError
from .file_io import (
    CompressedFPSink,
    CompressedFPSource,
    PlainFPSink,
    PlainFPSource,
    likely_nbytes,
    log_packed,
    log_unpacked,
    unpack_checked,
)
from .numpy_io import pack_items

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Any

    from ._format.array_metadata import Array, DType
    from ._format.chunks import Buffer
    from ._storage.base import Path
    from .args import BloscpackArgs, MetadataArgs


# For each version: the bytes that hold the length of the header, and its encoding.
VERSIONS = {(1, 0): (2, "latin1"), (2, 0): (4, "latin1"), (3, 0): (4, "utf-8")}
KEYS = {"descr", "fortran_order", "shape"}
# A text of Python, or a long of Python 2, as in `(2L,)`.
TEXT_OR_LONG = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|\b([0-9]+)L\b""")
# What a header consists of when its texts are empty, and what it never has: an opening
# bracket right behind a value. Python's own parser overflows its stack on some texts.
PLAIN = re.compile(r"(?:\s|''|\b[0-9]{1,19}\b|\bTrue\b|\bFalse\b|[\[\](){},:])*")
CALL = re.compile(r"[\])}'\w]\s*[\[({]")


# The header


class _HeaderKept(Exception):
    """Stops NumPy before it writes items."""


class _HeaderKeeper(io.RawIOBase):
    """A file object that wants nothing but the header."""

    kept = b""

    def write(self, data: Any) -> int:
        self.kept = bytes(data)
        raise _HeaderKept


def encode_header(array: Array) -> bytes:
    """Return the header that NumPy writes for an array, whose items it never sees."""
    for version in VERSIONS:
        keeper = _HeaderKeeper()
        try:
            npy_format.write_array(keeper, array, version)
        except _HeaderKept:
            return keeper.kept
        except ValueError:
            continue  # too long for this version, or not in its encoding
    raise UsageError(  # pragma: no cover - the last version takes 4 GiB of any text
        "a .npy file can't hold arrays of dtype '%.200s'" % array.dtype
    )


def read_header(fp: Any) -> Array:
    """Read the header of a ``.npy`` file and stop at the first item.

    Returns an array of its dtype, shape and order that has no items: they must not be
    touched. Raises `NotReadable` for what is no ``.npy`` file or is of a version
    nobody knows, `ObjectNumpyArrayRejection` for objects, and another `FormatError`
    for a header that can't be.
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
        fields = _literal(text.decode(encoding))
        dtype, shape, fortran = _checked(fields)
    except Exception as error:  # Python and NumPy raise whatever they stumble over
        raise FormatError(
            "expected the header of a .npy file, found %.200r: %.200s" % (text, error)
        ) from error
    encode_dtype(dtype)  # refuses what can't be stored, such as objects
    return without_items(dtype, shape, fortran)


def _read_exactly(fp: Any, size: int) -> bytes:
    data = read_up_to(fp, size)
    if len(data) < size:
        raise FormatError(
            "the file ends too early: expected a .npy header of '%d' bytes, found '%d'"
            % (size, len(data))
        )
    return data


def _literal(text: str) -> Any:
    """Return the value that a header stands for; raises anything."""
    import ast

    text = TEXT_OR_LONG.sub(r"\1\2", text)
    outline = TEXT_OR_LONG.sub("''", text)
    if not PLAIN.fullmatch(outline) or CALL.search(outline):
        raise ValueError("it has more in it than texts, numbers and brackets")
    return ast.literal_eval(text.strip())


def _checked(fields: Any) -> tuple[DType, tuple[int, ...], bool]:
    """Return dtype, shape and whether the order is Fortran's; raises anything."""
    if not isinstance(fields, dict) or fields.keys() != KEYS:
        raise ValueError("it has no or other keys than %s" % ", ".join(sorted(KEYS)))
    shape, fortran = fields["shape"], fields["fortran_order"]
    if type(shape) is not tuple or any(type(n) is not int or n < 0 for n in shape):
        raise ValueError("its shape is none")
    if type(fortran) is not bool:
        raise ValueError("its order is none")
    dtype = npy_format.descr_to_dtype(fields["descr"])
    if dtype.subdtype is not None:
        raise ValueError("its dtype adds axes to the shape")
    return dtype, shape, fortran


def without_items(dtype: DType, shape: tuple[int, ...], fortran: bool) -> Array:
    """Return an array that knows all but its items, which must not be touched.

    Raises `FormatError` if NumPy can't have such an array.
    """
    axes = range(len(shape))
    inner = [shape[:i] if fortran else shape[i + 1 :] for i in axes]
    strides = [math.prod(axes_inside) * dtype.itemsize for axes_inside in inner]
    try:
        item: Array = numpy.ndarray((), dtype, bytes(max(dtype.itemsize, 1)))
        return as_strided(item, shape, strides)
    except (MemoryError, ValueError, OverflowError) as error:
        raise FormatError(
            "an array of shape %.200s and dtype '%.200s' can't be made: %s"
            % (shape, dtype, error)
        ) from error


def _check_size(fp: Any, array: Array, size: int | None) -> None:
    """Raise `FormatError` unless `fp`, of `size` bytes, holds the items and no more."""
    left = None if size is None else size - fp.tell()
    if left is not None and left < array.nbytes:
        raise FormatError(
            "the file ends too early: expected '%d' bytes for the items of the array, "
            "found '%d'" % (array.nbytes, left)
        )
    if left is not None and left > array.nbytes:
        raise _more_behind(array)


def _more_behind(array: Array) -> NotReadable:
    return NotReadable(
        "expected a .npy file with one array, found more bytes behind the '%d' of it"
        % array.nbytes
    )


def _like(fp: Any, preserve: bool) -> os.stat_result | None:
    """Return the status that a new file takes over; None if it is like any other."""
    status = os.fstat(fp.fileno())
    return status if preserve and stat.S_ISREG(status.st_mode) else None


# .npy → array file


class NpySource(PlainFPSource):
    """Reads the items of an array, behind the header of its ``.npy`` file."""

    def check_complete(self, i: int, size: int, found: int) -> None:
        if found < size:
            raise FormatError(
                "the file ends too early: expected '%d' bytes of items for chunk %d, "
                "found '%d'" % (size, i, found)
            )


@_temporary.hear
def pack_npy_to_file(
    npy_file: Path,
    out_file: Path,
    chunk_size: int | str = DEFAULT_CHUNK_SIZE,
    blosc_args: BloscArgs | None = None,
    bloscpack_args: BloscpackArgs | None = None,
    metadata_args: MetadataArgs | None = None,
    *,
    nthreads: int | None = None,
    sync: bool | None = None,
    preserve: bool = False,
) -> None:
    """Compress the array in a ``.npy`` file, or a pipe, into `out_file`.

    Result and arguments are those of `pack_ndarray_to_file` for the array; memory is
    needed for some chunks only. With `preserve` the new file has the times of the
    input, if that is a file, and its permissions where it replaces none.

    Raises `NotReadable` if the input is no ``.npy`` file or holds more than an array,
    `ObjectNumpyArrayRejection` if it needs pickle, another `FormatError` if it is
    damaged or too short.
    """
    check_distinct(npy_file, out_file)
    with opened(npy_file) as in_fp:
        size = size_of(in_fp)
        array = read_header(in_fp)
        _check_size(in_fp, array, size)
        with replacing(out_file, sync, _like(in_fp, preserve)) as out_fp:
            pack_items(
                NpySource(in_fp),
                CompressedFPSink(out_fp, new=True),
                array,
                chunk_size,
                blosc_args,
                bloscpack_args,
                metadata_args,
                nthreads=nthreads,
            )
            if size is None and in_fp.read(1):
                raise _more_behind(array)
    log_packed(array.nbytes, out_file)


# array file → .npy


class NpySink(PlainFPSink):
    """Writes the items of an array behind the header of its ``.npy`` file.

    Raises `FormatError` at the end unless the chunks were those of the array.
    """

    def __init__(
        self,
        output_fp: Any,
        description: Description,
        header: bytes,
        *,
        reserved: int = 0,
    ) -> None:
        super().__init__(output_fp, reserved=reserved)
        self._description = description
        self._header = header

    def start(self) -> None:
        write_all(self.output_fp, self._header)
        super().start()

    def store(self, plain: Buffer) -> None:
        super().store(plain)
        self._ends.append(self._ends[-1] + len(plain))

    def finalize(self) -> None:
        super().finalize()
        self._description.check_nbytes(max(self._ends))


@_temporary.hear
def unpack_npy_from_file(
    in_file: Path,
    npy_file: Path,
    *,
    nthreads: int | None = None,
    sync: bool | None = None,
    preserve: bool = False,
) -> None:
    """Decompress the array in `in_file` into a ``.npy`` file, or a pipe.

    That is what ``numpy.save`` writes for the array; memory is needed for some chunks
    only. The file appears when it is complete; `sync` and `preserve` are those of
    `pack_npy_to_file`. Raises `NotANumpyArray` if there is none, and another
    `FormatError` if it is damaged; then `npy_file` is as it was.
    """
    check_distinct(in_file, npy_file)
    in_size = os.path.getsize(in_file)

    def read(in_fp: Any, check: Any) -> None:
        source = CompressedFPSource(in_fp)
        check(source.bloscpack_header)
        description = Description(source.metadata)
        nbytes = source.bloscpack_header.nbytes
        if nbytes is not None:
            description.check_nbytes(nbytes)
        fortran = description.order == "F"
        array = without_items(description.dtype, description.shape, fortran)
        header = encode_header(array)
        reserved = likely_nbytes(source.bloscpack_header, in_size)
        with replacing(npy_file, sync, _like(in_fp, preserve)) as out_fp:
            sink = NpySink(out_fp, description, header, reserved=reserved)
            unpack_checked(source, sink, check, nthreads)

    read_snapshot(in_file, read, attempts_for(npy_file))
    log_unpacked(in_size, npy_file)


# .npy → behind an array file


@_temporary.hear
def append_npy(
    orig_file: Path,
    npy_file: Path,
    blosc_args: BloscArgs | None = None,
    *,
    nthreads: int | None = None,
    sync: bool = True,
) -> None:
    """Append the rows of a ``.npy`` file, or a pipe, to the array in `orig_file`.

    The array grows along its first axis. The arguments, and what holds whatever happens
    meanwhile, are those of `append.append`.

    Raises `DoesNotFit`, before anything is changed, unless both arrays agree in dtype,
    byte order and all axes but the first, and both are in C order; `NotANumpyArray` if
    `orig_file` holds none; what `pack_npy_to_file` raises for its input.
    """
    check_distinct(npy_file, orig_file)
    with opened(npy_file) as fp, sized(fp) as (new_fp, size):
        rows = read_header(new_fp)
        _check_size(new_fp, rows, size)
        append_from(
            orig_file,
            new_fp,
            rows.nbytes,
            blosc_args,
            accept=lambda metadata: _check_fits(metadata, rows),
            nthreads=nthreads,
            sync=sync,
        )


def _check_fits(metadata: Any, rows: Array) -> None:
    """Raise `DoesNotFit` unless the array of `metadata` can take these rows."""
    old = Description(metadata)
    old_dtype, new_dtype = encode_dtype(old.dtype), encode_dtype(rows.dtype)
    if old_dtype != new_dtype:
        raise DoesNotFit(
            "items of dtype %s are to be appended to an array of dtype %s"
            % (new_dtype, old_dtype)
        )
    if rows.ndim == 0 or rows.shape[1:] != old.shape[1:]:
        raise DoesNotFit(
            "an array of shape %s is to be appended to one of shape %s, from which it "
            "may differ only in the first axis" % (rows.shape, old.shape)
        )
    if not rows.flags.c_contiguous:
        raise DoesNotFit(
            "the array to be appended is in Fortran order, where rows do not lie one "
            "behind the other: save it as numpy.ascontiguousarray returns it"
        )
    if rows.shape[0] and rows.nbytes == 0:
        raise DoesNotFit(
            "rows of no bytes can't be appended: an array of shape %s" % (rows.shape,)
        )
