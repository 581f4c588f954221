"""Names of the formats that files are mistaken for, recognized by their first bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .._types import Buffer
from ..constants import BLOSC_HEADER_LENGTH
from ..exceptions import FormatError
from .blosc_header import decode_header

ZIP = b"PK\x03\x04"
PARQUET = b"PAR1"
# The name of the document of a Zarr array or group.
ZARR_JSON = "zarr.json"
# The local header that `savez` writes: version 4.5, not compressed, 1 January 1980,
# sizes in a field of Zip64; and a name for the first member.
OWN_HEADER = re.compile(
    rb"PK\x03\x04-\x00..\x00\x00\x00\x00!\x00.{4}\xff{8}", re.DOTALL
)
OWN_NAME = re.compile(rb"(.*/)?(zarr\.json|c(/0)+)|.+\.blp", re.DOTALL)
ARCHIVE = (
    "an archive of several arrays; 'blpk show', 'diff', 'convert' and 'verify' read "
    "it, in Python load and loadz"
)
# The name of a format with its article, and the bytes at the start of its files. The
# part behind a semicolon says what reads such a file.
MARKERS = (
    ("a gzip file", b"\x1f\x8b"),
    ("a zstd file", b"\x28\xb5\x2f\xfd"),
    ("a bzip2 file", b"BZh"),
    ("an xz file", b"\xfd7zXZ\x00"),
    ("an lz4 file", b"\x04\x22\x4d\x18"),
    ("a zip file; 'blpk convert' reads arrays in it, loadz those of savez", ZIP),
    ("a .npy file; 'blpk compress --npy' packs its array", b"\x93NUMPY"),
    ("a Parquet file; 'blpk convert' reads it", PARQUET),
    ("an HDF5 file; 'blpk convert' reads it", b"\x89HDF\r\n\x1a\n"),
    (
        "a netCDF file of format 3; 'nccopy -k nc4' makes one of format 4",
        b"CDF\x01",
        b"CDF\x02",
        b"CDF\x05",
    ),
    ("an Arrow file", b"ARROW1"),
    ("a PNG image", b"\x89PNG\r\n\x1a\n"),
    ("a TIFF image", b"II*\x00", b"MM\x00*"),
    ("a PDF file", b"%PDF-"),
)
# Those of which `convert` reads more than their bytes.
CONVERTED = "a .npy file", "a Parquet file", "an HDF5 file"
# The ends of the names of files and folders of other formats, and the calls that write
# them.
_CONVERT = "bloscpack.dataset.convert(source, file)"
FILE_CALLS = {
    ".npy": "numpy.save(file, array)",
    ".npz": "numpy.savez(file, name=array)",
    **dict.fromkeys((".csv", ".parquet", ".pq", ".h5", ".hdf5", ".nc"), _CONVERT),
    ".nc4": _CONVERT,
}
_CREATE = "bloscpack.dataset.create_array(file, array)"
CALLS = {
    **FILE_CALLS,
    ".bigfile": _CONVERT,
    **dict.fromkeys((".zarr", ".superchunk", ".bcolz"), _CREATE),
}
# Formats whose data are in a folder, and the names that are in such a folder.
FOLDERS = (
    ("N5 data", "attributes.json"),
    ("a TileDB array", "__schema"),
    ("a TileDB array", "__array_schema.tdb"),
    ("a TileDB group", "__group"),
    ("a TileDB group", "__tiledb_group.tdb"),
    ("an array of Zarr format 1", "meta", "attrs"),
    ("an Icechunk repository", "snapshots", "manifests"),
    ("a Delta table", "_delta_log"),
    ("a Hudi table", ".hoodie"),
    ("a frame of Blosc 2", "chunks.b2frame"),
)
# A frame of Blosc 2 has this text behind the header of its MessagePack array.
BLOSC2_FRAME = b"b2frame\x00"
BLOSC2_FRAME_AT = 2
TAR = b"ustar"
TAR_AT = 257
# Number of bytes that tell the formats apart.
PREFIX_LENGTH = TAR_AT + len(TAR)


def name_format(prefix: Buffer, size: int | None) -> str | None:
    """Return the name of a format with its article, None if it is unknown.

    `prefix` are the first `PREFIX_LENGTH` bytes of a file of `size` bytes; None for an
    unknown size.
    """
    prefix = bytes(prefix)
    if begins_as_archive(prefix):
        return ARCHIVE
    for name, *markers in MARKERS:
        if prefix.startswith(tuple(markers)):
            return name
    if prefix[TAR_AT:].startswith(TAR):
        return "a tar archive"
    if prefix[BLOSC2_FRAME_AT:].startswith(BLOSC2_FRAME):
        return "a frame of Blosc 2"
    try:
        header = decode_header(prefix[:BLOSC_HEADER_LENGTH])
    except FormatError:
        return None
    if size is None or header.ctbytes == size:
        return "a bare Blosc buffer"
    return None


def is_of_other_format(prefix: Buffer) -> bool:
    """Return whether a file certainly has another format, whatever chunks are in it.

    HDF5 stores chunks of Blosc, and a tar archive Bloscpack files. A damaged header may
    begin with a short marker by chance, and Bloscpack files are rescued from a damaged
    ZIP file.
    """
    markers = [each for _, *some in MARKERS for each in some if len(each) > len(ZIP)]
    is_tar = bytes(prefix[TAR_AT:]).startswith(TAR)
    return is_tar or bytes(prefix).startswith(tuple(markers))


def name_folder(names: Iterable[str]) -> str | None:
    """Return what a folder with these names is, with an article; None if unknown."""
    files = set(names)
    return next((name for name, *inside in FOLDERS if files.issuperset(inside)), None)


def begins_as_archive(prefix: bytes) -> bool:
    """Return whether a file may be an archive: `prefix` is in its first local header.

    Other programs write the document of the group first.
    """
    is_group = prefix.startswith(ZIP) and prefix.startswith(b"zarr.json", 30)
    return is_group or begins_as_own(prefix)


def begins_as_own(prefix: bytes) -> bool:
    """Return whether a file begins with the local header that `savez` writes."""
    name = prefix[30 : 30 + int.from_bytes(prefix[26:28], "little")]
    return bool(OWN_HEADER.match(prefix) and OWN_NAME.fullmatch(name))
