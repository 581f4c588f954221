"""References, ``bloscpack.references(path)``: let Zarr read the chunks in place.

A reference file maps the keys of a Zarr store to extents of other files, in the format
of kerchunk, which fsspec reads. A chunk of a `.blp` file is what the Blosc codec of
Zarr reads, and the digest behind it is what its checksum codecs expect. So each chunk
becomes one reference, and Zarr verifies it. Nothing is copied but a short last chunk,
which Zarr wants in full size: it is stored in the references, padded with zeros.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

from ._compat import make_callable
from ._file.opened import OpenedFile, reader_of
from ._format.array_metadata import Description, Labels, default_dims
from ._format.chunks import compress
from ._format.dtypes import DType, decode_dtype
from ._format.rows import grid_chunk_shape
from ._format.zarr_metadata import (
    CRC32C,
    DATA_TYPES,
    ZARR_JSON,
    array_document,
    blosc_codec,
    bytes_codec,
    encode_fill_value,
    group_document,
)
from ._storage.paths import MARK, is_url, local_path, shown_name
from ._storage.urls import last_part, with_lower_schemes
from ._types import Json, JsonObject, Path, StorageOptions
from .constants import MAX_TYPESIZE
from .exceptions import UsageError, UsageValueError
from .log import counted
from .serializers import is_array

# The checksums whose digests a codec of Zarr verifies.
VERIFIED = ("adler32", "crc32", "crc32c")
# The codec of the chunks in format 2: its settings have no effect on readers.
BLOSC = {"id": "blosc", "cname": "lz4", "clevel": 7, "shuffle": 1, "blocksize": 0}
# Characters of dtypes whose size depends on the machine.
LONG_DOUBLES = "gG"
# Maximum size in bytes of a short last chunk with its padding, which is made in memory
# and stored in the references.
MAX_PADDED = 256 * 2**20


def references(
    path: Path,
    *,
    zarr_format: int = 2,
    name: str | None = None,
    dims: Sequence[str] | None = None,
    location: str | None = None,
    storage_options: StorageOptions | None = None,
) -> JsonObject:
    """Return references through which Zarr and xarray read the chunks of a file.

    The result is a dictionary in the format of kerchunk, ready for ``json.dump``. Its
    references make up a Zarr group with one array. A file without an array is an array
    of bytes.

    Parameters
    ----------
    path
        Path or URL of the file.
    zarr_format
        2 or 3.
    name
        Name of the array. By default, that of the file without folder and extension. An
        empty name makes the array the root of the store.
    dims
        Names of the axes for xarray; by default those in the metadata, or ``dim_0`` and
        so on.
    location
        Folder or URL to be written in front of the file name, instead of the folder
        where the file is now. A URL is written with its user name, password and query.
    storage_options
        Settings of fsspec for reading a URL, such as keys; the references don't contain
        them.

    Raises
    ------
    UsageError
        If the file does not qualify; the message says why. See docs/integrations.rst.
    FormatError
        If the file is damaged.
    """
    if zarr_format not in (2, 3):
        raise UsageValueError("zarr_format must be 2 or 3, not %r" % (zarr_format,))
    file = os.fsdecode(local_path(os.fsdecode(path)))
    if not is_url(file) and os.path.isdir(file):
        raise _unfit(
            file,
            "it is a folder, and references are for one '.blp' file: Zarr software "
            "reads a dataset of the layout zarr as it is, and 'blpk convert' makes one "
            "of others",
        )
    base = last_part(file) if is_url(file) else os.path.basename(file)
    if name is None:
        name = base.removesuffix(".blp").removesuffix(".npy") or "data"
    if location is not None:
        address = location.rstrip("/") + "/" + base
    else:
        address = file if is_url(file) else os.path.abspath(file)
    if MARK in address:
        address = with_lower_schemes(address)
    with OpenedFile(file, cache_nbytes=0, storage_options=storage_options) as opened:
        array = _array_of(opened, shown_name(file))
        chunks = _chunks_of(opened, array, address)
        labels = Labels(opened.user_metadata, len(array.shape))
    if dims is None:
        dims = labels.dims or default_dims(len(array.shape))
    if len(dims) != len(array.shape):
        raise _unfit(
            array.file,
            "dims: expected %s, found %d"
            % (counted(len(array.shape), "name"), len(dims)),
        )
    front = name + "/" if name else ""
    if zarr_format == 2:
        refs = _documents_2(array, front, [*dims], labels.attrs)
        keys = [front + (".".join(map(str, i)) or "0") for i in array.indexes()]
    else:
        refs = _documents_3(array, front, [*dims], labels.attrs)
        keys = ["/".join((front + "c", *map(str, i))) for i in array.indexes()]
    refs.update(zip(keys, chunks, strict=True))
    return {"version": 1, "refs": refs}


def write_references(
    refs: JsonObject, out: Path, *, storage_options: StorageOptions | None = None
) -> None:
    """Write references to a JSON file, for ``reference::`` of fsspec.

    Parameters
    ----------
    refs
        What `references` returned.
    out
        Path or URL of the output.
    storage_options
        Settings of fsspec for a URL.
    """
    from ._commit.replacing import replacing

    with replacing(out, None, storage_options=storage_options) as fp:
        fp.write(json.dumps(refs, separators=(",", ":")).encode())


def _unfit(file: str, why: str) -> UsageError:
    """Return the error that a file does not qualify."""
    return UsageError("'%s' can't be referenced: %s" % (file, why))


@dataclass
class _Array:
    """The array in a file, as Zarr describes it; `file` is its name for messages."""

    file: str
    dtype: DType
    shape: tuple[int, ...]
    order: str
    chunk_shape: tuple[int, ...]
    checksum: str

    def indexes(self) -> list[tuple[int, ...]]:
        """Return the position of each chunk in the grid, in the order of the file."""
        counts = [
            -(-n // size) for n, size in zip(self.shape, self.chunk_shape, strict=True)
        ]
        if self.order == "F":
            return [p[::-1] for p in itertools.product(*map(range, counts[::-1]))]
        return list(itertools.product(*map(range, counts)))


def _array_of(opened: OpenedFile, file: str) -> _Array:
    """Return the array in a file; raise `UsageError` if Zarr can't read its chunks."""
    dtype, order, grid = decode_dtype("|u1"), "C", None
    shape: tuple[int, ...] = (opened.nbytes,)
    if is_array(opened.metadata):
        stored = Description(opened.metadata)
        reader_of(opened, stored)  # checks the chunks
        dtype, shape, grid = stored.dtype, stored.shape, stored.grid
        order = stored.order if len(shape) > 1 else "C"
    fields = [(dtype,)] if dtype.fields is None else dtype.fields.values()
    # Zarr has no long doubles, and no fields that are arrays or structures, or that
    # have titles.
    if not dtype.itemsize or any(
        field.char in LONG_DOUBLES or field.shape or field.names or len(more) > 1
        for field, *more in fields
    ):
        raise _unfit(file, "Zarr has no data type for the dtype %s" % dtype)
    checksum = opened.header.checksum
    if checksum not in ("None", *VERIFIED):
        raise _unfit(
            file,
            "no Zarr reader verifies digests of type '%s': repack it with adler32, "
            "crc32 or crc32c" % checksum,
        )
    if grid is not None:
        return _Array(file, dtype, shape, order, grid.chunk, checksum)
    chunk_size = opened.span(0)[1] if opened.nchunks else 0
    sizes = [stop - start for start, stop in map(opened.span, range(opened.nchunks))]
    sizes = sizes[: _nchunks(opened)]
    if any(n != chunk_size for n in sizes[:-1]) or max(sizes, default=0) > chunk_size:
        raise _unfit(file, "its chunks have different sizes")
    chunk_shape: tuple[int, ...] | None = tuple(max(1, n) for n in shape)
    if opened.nbytes:
        if chunk_size % dtype.itemsize:
            raise _unfit(
                file,
                "its chunks of %s end within items of %d bytes: repack it with a "
                "multiple as chunk size"
                % (counted(chunk_size, "byte"), dtype.itemsize),
            )
        chunk_shape = grid_chunk_shape(shape, chunk_size // dtype.itemsize, order)
    if chunk_shape is None:
        row = opened.nbytes // shape[-1 if order == "F" else 0]
        raise _unfit(
            file,
            "its chunks of %d items form no regular grid in the shape %s: repack it "
            "with whole rows as chunk size, a multiple of %d bytes"
            % (chunk_size // dtype.itemsize, shape, row),
        )
    return _Array(file, dtype, shape, order, chunk_shape, checksum)


def _nchunks(opened: OpenedFile) -> int:
    """Return the number of chunks without an empty last one, as 0.2 wrote it."""
    last = opened.nchunks - 1
    return last + (last < 0 or len({*opened.span(last)}) > 1)


def _chunks_of(opened: OpenedFile, array: _Array, address: str) -> list[Json]:
    """Return a reference for each chunk with its digest, in the order of the file."""
    if not opened.nbytes:
        return []
    chunks: list[Json] = [
        [address, start, stop - start] for start, stop in opened.extents()
    ]
    chunks = chunks[: _nchunks(opened)]
    full = math.prod(array.chunk_shape) * array.dtype.itemsize
    start, stop = opened.span(len(chunks) - 1)
    if stop - start == full:
        return chunks
    if full > MAX_PADDED:
        raise _unfit(
            array.file,
            "its last chunk is short and would be padded to '%d' bytes, but at most "
            "'%d' are: repack it with smaller chunks" % (full, MAX_PADDED),
        )
    from ._engine.blosc_settings import own_settings
    from .args import BloscArgs

    plain = opened.read(start, stop).ljust(full, b"\0")
    with own_settings:
        typesize = min(array.dtype.itemsize, MAX_TYPESIZE)
        chunk = compress(plain, BloscArgs(typesize=typesize))
    digest = opened.header.checksum_impl(chunk)
    chunks[-1] = "base64:" + base64.b64encode(chunk + digest).decode("ascii")
    return chunks


# The documents of a group with one array; `front` is its name with a slash.


def _documents_2(
    array: _Array, front: str, dims: list[str], attrs: JsonObject
) -> JsonObject:
    has_digests = array.checksum != "None"
    digest = {"id": array.checksum, "location": "end"}
    document = {
        "zarr_format": 2,
        "shape": array.shape,
        "chunks": array.chunk_shape,
        "dtype": array.dtype.str if array.dtype.names is None else array.dtype.descr,
        # Decoding starts with the compressor: it verifies and removes the digest.
        "compressor": digest if has_digests else BLOSC,
        "filters": [BLOSC] if has_digests else None,
        "fill_value": None,
        "order": array.order,
    }
    return {
        ".zgroup": json.dumps({"zarr_format": 2}),
        front + ".zarray": json.dumps(document),
        front + ".zattrs": json.dumps({**attrs, "_ARRAY_DIMENSIONS": dims}),
    }


def _documents_3(
    array: _Array, front: str, dims: list[str], attrs: JsonObject
) -> JsonObject:
    dtype = array.dtype
    data_type = DATA_TYPES.get((dtype.kind, dtype.itemsize))
    if data_type is None:
        raise _unfit(
            array.file,
            "Zarr format 3 has no stable data type for the dtype %s: use format 2"
            % dtype,
        )
    codecs: list[JsonObject] = []
    if array.order == "F":
        axes = list(range(len(array.shape)))[::-1]
        codecs.append({"name": "transpose", "configuration": {"order": axes}})
    codecs += [bytes_codec(dtype), blosc_codec(dtype.itemsize, "lz4", 7, 1)]
    if array.checksum == "crc32c":
        codecs.append(CRC32C)
    elif array.checksum != "None":
        name = "numcodecs." + array.checksum
        codecs.append({"name": name, "configuration": {"location": "end"}})
    fill_value = encode_fill_value(dtype, 0)
    document = array_document(
        array.shape, data_type, array.chunk_shape, fill_value, codecs, attrs, dims
    )
    # An array that is the root replaces the group.
    return {
        ZARR_JSON: json.dumps(group_document()),
        front + ZARR_JSON: json.dumps(document),
    }


make_callable(__name__)
