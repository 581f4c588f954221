"""Describe a file as a dictionary, from its beginning.

The sections in front of the chunks and the header of the first chunk are read. All
chunk headers are read only if the file header does not contain the sizes. Nothing but
the metadata is decompressed. NumPy and Blosc are not imported.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from .._crashsafe.snapshot import read_snapshot
from .._format.blosc_header import decode_header
from .._format.sections import (
    SMALLEST_CHUNK,
    read_beginning,
    read_chunk_header,
    skip_frames,
)
from .._storage.cursor import Cursor
from .._storage.urls import shown_name
from ..constants import BLOSC_HEADER_LENGTH, MAX_NDIM
from ..exceptions import FormatError
from ..serializers import is_array, shard_rows

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from .._crashsafe.snapshot import Check
    from .._format.blosc_header import BloscHeader
    from .._format.sections import Beginning
    from .._storage.protocols import Path, Seekable, StorageOptions
    from ..headers import BloscpackHeader, MetadataHeader
    from ..serializers import JsonObject


def describe(
    path: Path,
    *,
    strict: bool = True,
    storage_options: StorageOptions | None = None,
) -> JsonObject:
    """Return a description of a file from its beginning; sizes are in bytes.

    ``nbytes`` and ``nchunks`` are also correct if the file header does not contain
    them; ``walked`` is then True: all chunk headers were read. ``largest_chunk`` and
    ``largest_cbytes`` are the size of the largest chunk, plain and compressed; without
    a walk the second is an upper bound. ``cbytes`` is the size of the file.

    Raises `FormatError`. If `strict` is False, a first chunk whose size differs from
    the size in the file header is accepted: old releases wrote files like that.
    """
    read = partial(_describe, strict=strict)
    found = read_snapshot(path, read, parts=True, storage_options=storage_options)
    return {"file": shown_name(path), **found}


def _describe(fp: Seekable, check: Check, strict: bool) -> JsonObject:
    cursor = Cursor(fp, to_end=True)
    cbytes = cursor.left()
    beginning = read_beginning(cursor)
    header, first_at = beginning.header, cursor.position
    walked = header.nbytes is None or cbytes is None
    sizes = _Sizes()
    if walked:
        for frame in skip_frames(cursor, header):
            sizes.add(frame.header)
    elif header.nchunks:
        sizes.add(_first_chunk(cursor, header, strict))
    shard = describe_shard(fp, beginning, first_at, cbytes)
    # No digest covers these bytes: check that no writer changed the file meanwhile.
    check(header)
    cbytes = cursor.position if cbytes is None else cbytes
    if not walked:
        sizes.take_from_header(header, cbytes)
    return {
        "layout": header.format_version,
        "nbytes": sizes.nbytes,
        "cbytes": cbytes,
        "ratio": ratio_of(sizes.nbytes, cbytes),
        "nchunks": sizes.nchunks,
        "largest_chunk": sizes.largest,
        "largest_cbytes": sizes.largest_cbytes,
        "walked": walked,
        "checksum": header.checksum,
        "header": dict(header),
        "array": array_of(beginning.metadata),
        "metadata": beginning.metadata,
        "metadata_header": _texts(beginning.metadata_header),
        "offsets": _describe_offsets(beginning, first_at, cbytes),
        "shard": shard,
        "first_chunk": describe_chunk(sizes.first),
    }


def _first_chunk(cursor: Cursor, header: BloscpackHeader, strict: bool) -> BloscHeader:
    try:
        if strict:
            return read_chunk_header(cursor, header, 0)
        return decode_header(cursor.peek(BLOSC_HEADER_LENGTH))
    except FormatError as error:
        error.locate(0, cursor.position)
        raise


class _Sizes:
    """Sums and maxima of chunk sizes."""

    def __init__(self) -> None:
        self.nbytes = self.nchunks = self.largest = self.largest_cbytes = 0
        self.first: BloscHeader | None = None

    def add(self, header: BloscHeader) -> None:
        self.first = self.first or header
        self.nchunks += 1
        self.nbytes += header.nbytes
        self.largest = max(self.largest, header.nbytes)
        self.largest_cbytes = max(self.largest_cbytes, header.ctbytes)

    def take_from_header(self, header: BloscpackHeader, cbytes: int) -> None:
        """Use the sizes in the header of a file of `cbytes` bytes."""
        self.nchunks = header.nchunks
        self.nbytes = header.nbytes or 0
        if self.nchunks == 1:
            self.largest = self.nbytes
        elif self.nchunks > 1:
            self.largest = max(header.chunk_size, header.last_chunk)
            # Blosc stores incompressible bytes unchanged, after its header.
            self.largest_cbytes = min(self.largest + BLOSC_HEADER_LENGTH, cbytes)


def ratio_of(nbytes: int, cbytes: int) -> float:
    """Return the compression ratio: plain bytes divided by compressed bytes."""
    return round(nbytes / cbytes, 4) if cbytes else 0.0


def describe_chunk(header: BloscHeader | None) -> JsonObject | None:
    """Return the fields of a chunk header by name; None without a chunk."""
    if header is None:
        return None
    return {
        "codec": header.codec,
        "filter": header.filter,
        "copied": header.is_copy,
        "typesize": header.typesize,
        "blocksize": header.blocksize,
        "nbytes": header.nbytes,
        "cbytes": header.ctbytes,
    }


def _describe_offsets(
    beginning: Beginning, first_at: int, size: int
) -> JsonObject | None:
    """Return a description of the offset table; None if the file has none."""
    offsets = beginning.offsets
    if offsets is None:
        return None
    smallest = SMALLEST_CHUNK + beginning.header.checksum_impl.size
    plausible = (
        offsets[:1] in ([], [first_at])
        and all(after - at >= smallest for at, after in pairwise(offsets))
        and (not offsets or offsets[-1] + smallest <= size)
    )
    return {
        "count": len(offsets),
        "free": beginning.header.max_app_chunks,
        "plausible": plausible,
    }


def describe_shard(
    fp: Seekable, beginning: Beginning, first_at: int, size: int | None
) -> JsonObject | None:
    """Return a description of the shard that a file is; None if it is none.

    `size` is None for a file that can't seek.
    """
    rows = shard_rows(beginning.metadata)
    if rows is None or beginning.header.nchunks < 1:
        return None
    from .._format.shard import count_slots, has_trailer
    from .._storage.local import storage_of

    index = None
    if size is not None:
        position = fp.tell()
        fp.seek(0)
        index = has_trailer(storage_of(fp), beginning.header, first_at)
        fp.seek(position)
    return {"rows": rows, "slots": count_slots(beginning.header), "index": index}


def array_of(metadata: object) -> JsonObject | None:
    """Return shape, dtype and order from the metadata of an array.

    The values are for display: they are checked only as far as JSON needs it.
    """
    if not is_array(metadata):
        return None
    shape = metadata.get("shape")
    if type(shape) is int:
        shape = [shape]
    is_shape = (
        isinstance(shape, (list, tuple))
        and len(shape) <= MAX_NDIM
        and all(type(n) is int for n in shape)
    )
    return {
        "shape": list(shape) if is_shape and shape is not None else None,
        "dtype": _dtype_text(metadata.get("dtype")),
        "order": metadata.get("order", "C"),
    }


def _dtype_text(stored: object) -> str | None:
    match stored:
        case None:
            return None
        case str():
            # 0.16 stored the repr of a string; now it is the string itself.
            quoted = stored[:1] in ("'", '"') and stored[-1:] == stored[:1]
            return stored[1:-1] if quoted and len(stored) > 1 else stored
        case [["", plain]]:  # 0.4.0 wrote a list even for a dtype without fields
            return str(plain)
    return str(stored)


def _texts(header: MetadataHeader | None) -> JsonObject | None:
    """Return the fields of a header, with strings for bytes, which JSON lacks."""
    if header is None:
        return None
    fields = dict(header)
    for name, value in fields.items():
        if isinstance(value, bytes):
            fields[name] = value.decode("ascii", "backslashreplace")
    return fields
