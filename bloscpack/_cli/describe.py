"""What can be said of a file without decompressing anything.

`describe` reads the sections in front of the chunks and the header of the first chunk;
all chunk headers are walked only where the file header does not tell the sizes. What
it returns can be written as JSON. NumPy and Blosc are not imported.
"""

from __future__ import annotations

import os
from functools import partial
from itertools import pairwise

from .._crashsafe.snapshot import read_snapshot
from .._format.blosc_header import decode_header
from .._format.sections import SMALLEST_CHUNK, find_frames, read_beginning, skip_frames
from .._storage.cursor import Cursor
from ..constants import BLOSC_HEADER_LENGTH, MAX_NDIM
from ..exceptions import FormatError
from ..serializers import is_array

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .._format.blosc_header import BloscHeader
    from .._format.sections import Beginning
    from .._storage.base import Path
    from ..headers import BloscpackHeader, MetadataHeader


def describe(path: Path, *, strict: bool = True) -> dict[str, Any]:
    """Return everything that the beginning of a file tells; sizes are bytes.

    ``nbytes`` and ``nchunks`` are true also where the file header does not tell them;
    ``walked`` says that all chunk headers were read for that. ``largest_chunk`` and
    ``largest_cbytes`` are the most that a chunk has, plain and as stored: unless all
    were walked, the second is only a bound. ``cbytes`` is the size of the file.

    Raises `FormatError`; where the first chunk has not the size that the file header
    tells, only if it is to be `strict`: old releases have written such files.
    """
    read = partial(_describe, strict=strict)
    return {"file": os.fsdecode(path), **read_snapshot(path, read)}


def _describe(
    fp: Any, check: Callable[[BloscpackHeader], None], strict: bool
) -> dict[str, Any]:
    cursor = Cursor(fp)
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
    # No digest proves what has been read, so it has to be of one state as a whole.
    check(header)
    cbytes = cursor.position if cbytes is None else cbytes
    if not walked:
        sizes.believe(header, cbytes)
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
        "first_chunk": describe_chunk(sizes.first),
    }


def _first_chunk(cursor: Cursor, header: BloscpackHeader, strict: bool) -> BloscHeader:
    if strict:
        return next(find_frames(cursor, header)).header
    try:
        return decode_header(cursor.peek(BLOSC_HEADER_LENGTH))
    except FormatError as error:
        error.locate(0, cursor.position)
        raise


class _Sizes:
    """The sizes of some chunks, added up."""

    def __init__(self) -> None:
        self.nbytes = self.nchunks = self.largest = self.largest_cbytes = 0
        self.first: BloscHeader | None = None

    def add(self, header: BloscHeader) -> None:
        self.first = self.first or header
        self.nchunks += 1
        self.nbytes += header.nbytes
        self.largest = max(self.largest, header.nbytes)
        self.largest_cbytes = max(self.largest_cbytes, header.ctbytes)

    def believe(self, header: BloscpackHeader, cbytes: int) -> None:
        """Take the sizes that the header of a file of `cbytes` tells."""
        self.nchunks = header.nchunks
        self.nbytes = header.nbytes or 0
        if self.nchunks == 1:
            self.largest = self.nbytes
        elif self.nchunks > 1:
            self.largest = max(header.chunk_size, header.last_chunk)
            # Blosc copies what it can't make smaller.
            self.largest_cbytes = min(self.largest + BLOSC_HEADER_LENGTH, cbytes)


def ratio_of(nbytes: int, cbytes: int) -> float:
    """Return how many plain bytes a stored one stands for."""
    return round(nbytes / cbytes, 4) if cbytes else 0.0


def describe_chunk(header: BloscHeader | None) -> dict[str, Any] | None:
    """Return the fields of a chunk header by name, None if there is no chunk."""
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
) -> dict[str, Any] | None:
    """Return what there is to say of the offset table, None if there is none."""
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


def array_of(metadata: Any) -> dict[str, Any] | None:
    """Return shape, dtype and order as the metadata of an array have them.

    They are shown, not believed: nothing is checked but that they can be shown.
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


def _dtype_text(stored: Any) -> str | None:
    match stored:
        case None:
            return None
        case str():
            # The repr of a text, as 0.16 stored it, or the text itself.
            quoted = stored[:1] in ("'", '"') and stored[-1:] == stored[:1]
            return stored[1:-1] if quoted and len(stored) > 1 else stored
        case [["", plain]]:  # 0.4.0 wrote a list also where there are no fields
            return str(plain)
    return str(stored)


def _texts(header: MetadataHeader | None) -> dict[str, Any] | None:
    """Return the fields of a header, texts for bytes, which JSON does not know."""
    if header is None:
        return None
    fields = dict(header)
    for name, value in fields.items():
        if isinstance(value, bytes):
            fields[name] = value.decode("ascii", "backslashreplace")
    return fields
