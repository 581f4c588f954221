"""Names of the formats that files are mistaken for, recognized by their first bytes."""

from __future__ import annotations

from ..constants import BLOSC_HEADER_LENGTH
from ..exceptions import FormatError
from .blosc_header import decode_header

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from .._storage.protocols import Buffer

# The first bytes of a file, and the name of its format.
MARKERS = (
    (b"\x1f\x8b", "a gzip file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"BZh", "a bzip2 file"),
    (b"\xfd7zXZ\x00", "an xz file"),
    (b"\x04\x22\x4d\x18", "an lz4 file"),
    (
        b"PK\x03\x04",
        "a zip file: if savez wrote it, 'blpk verify' checks it, and loadz reads it",
    ),
    (b"\x93NUMPY", "a .npy file"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
)
# A frame of Blosc 2 has this text behind the header of its MessagePack array.
BLOSC2_FRAME = b"b2frame\x00"
BLOSC2_FRAME_AT = 2
# Number of bytes that tell the formats apart.
PREFIX_LENGTH = BLOSC_HEADER_LENGTH


def name_format(prefix: Buffer, size: int | None) -> str | None:
    """Return the name of a format with its article, None if it is unknown.

    `prefix` are the first `PREFIX_LENGTH` bytes of a file of `size` bytes; None for an
    unknown size.
    """
    prefix = bytes(prefix)
    for marker, name in MARKERS:
        if prefix.startswith(marker):
            return name
    if prefix[BLOSC2_FRAME_AT:].startswith(BLOSC2_FRAME):
        return "a frame of Blosc 2"
    try:
        header = decode_header(prefix)
    except FormatError:
        return None
    if size is None or header.ctbytes == size:
        return "a bare Blosc buffer"
    return None
