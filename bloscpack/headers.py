"""The fixed-size records: file header, metadata header, Blosc chunk header.

One `struct.Struct` a record and layout. Decoding checks every rule of
docs/format.rst and raises `FormatError`; records made by a caller are checked
when they are made and raise `UsageError`.
"""

from __future__ import annotations

import struct
from collections import OrderedDict

from ._compat import sibling_names
from ._format.blosc_header import (
    BLOSC_FLAG_BITSHUFFLE,
    BLOSC_FLAG_MEMCPY,
    BLOSC_FLAG_SHUFFLE,
    BLOSC_FLAG_SPLIT,
    BLOSC_HEADER,
)
from .abstract_objects import MutableMappingObject
from .checksums import (
    CHECKSUMS,
    CHECKSUMS_AVAIL,
    CHECKSUMS_LOOKUP,
    Hash,
    check_valid_checksum,
)
from .constants import (
    BLOSC_HEADER_LENGTH,
    BLOSCPACK_HEADER_LENGTH,
    CNAME_MAPPING,
    FORMAT_VERSION,
    MAGIC,
    MAX_BUFFERSIZE,
    MAX_CHUNKS,
    MAX_CLEVEL,
    MAX_FORMAT_VERSION,
    MAX_META_SIZE,
    MAX_TYPESIZE,
    METADATA_HEADER_LENGTH,
)
from .defaults import DEFAULT_OFFSETS
from .exceptions import (
    FormatError,
    FormatVersionMismatch,
    NotReadable,
    UsageError,
    UsageTypeError,
)
from .metacodecs import CODECS, CODECS_AVAIL, check_valid_codec

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterable, Sized
    from typing import Any

HEADER_V0 = struct.Struct("<4sI")
HEADER_V1 = struct.Struct("<4sB3sq")
HEADER_V2_V3 = struct.Struct("<4sBBBBiiqq")
METADATA_HEADER = struct.Struct("<8sBBBBIII8s")

HEADER_LENGTHS = {0: HEADER_V0.size, 1: HEADER_V1.size, 2: 32, 3: 32}

OPTION_OFFSETS = 1
OPTION_METADATA = 2


def check_range(name: str, value: Any, min_: int, max_: int) -> None:
    """Raise unless `value` is an int from `min_` to `max_`.

    Raises `UsageTypeError` (a TypeError) or `UsageError` (a ValueError).
    """
    if not isinstance(value, int):
        raise UsageTypeError("'%s' must be of type 'int'" % name)
    if not min_ <= value <= max_:
        raise UsageError(
            "'%s' must be in the range %s <= n <= %s, not '%s'"
            % (name, min_, max_, value)
        )


# Options: shown as a text of eight digits, the highest bit first


def check_options(options: str) -> None:
    """Raise unless `options` is a text of eight zeros and ones."""
    if not isinstance(options, str):
        raise UsageTypeError(
            "'options' must be of type 'str', not '%s'" % type(options)
        )
    if len(options) != 8 or set(options) - {"0", "1"}:
        raise UsageError(
            "'options' must be string of 0s and 1s of length 8, not '%s'" % options
        )


def check_options_zero(options: str, indices: Iterable[int]) -> None:
    """Raise `FormatError` if an option at one of the `indices` is set."""
    for index in indices:
        if options[index] != "0":
            raise FormatError(
                "Element %d was non-zero when attempting to decode options: '%s'"
                % (index, options),
                section="header",
                offset=5,
            )


def create_options(offsets: bool = DEFAULT_OFFSETS, metadata: bool = False) -> str:
    """Return the options of a file header as text."""
    return format(
        OPTION_OFFSETS * bool(offsets) | OPTION_METADATA * bool(metadata), "08b"
    )


def decode_options(options: str) -> dict[str, bool]:
    """Return the options of a file header as a dictionary."""
    check_options(options)
    check_options_zero(options, range(6))
    return {"offsets": options[7] == "1", "metadata": options[6] == "1"}


def create_metadata_options() -> str:
    """Return the options of a metadata header, of which there are none."""
    return "00000000"


def decode_metadata_options(options: str) -> dict[str, bool]:
    """Return the options of a metadata header, of which there are none."""
    check_options(options)
    check_options_zero(options, range(8))
    return {}


# The file header


class BloscpackHeader(MutableMappingObject):
    """The header of a file, all layouts (docs/format.rst, Header).

    Sizes are bytes; -1 in ``chunk_size``, ``last_chunk`` and ``nchunks`` means
    unknown. Layouts 0 and 1 only know ``nchunks``.
    """

    _attributes = (
        "format_version",
        "offsets",
        "metadata",
        "checksum",
        "typesize",
        "chunk_size",
        "last_chunk",
        "nchunks",
        "max_app_chunks",
    )
    _bytes_attributes = ("chunk_size", "last_chunk")

    def __init__(
        self,
        format_version: int = FORMAT_VERSION,
        offsets: bool = False,
        metadata: bool = False,
        checksum: str = "None",
        typesize: int = 0,
        chunk_size: int = -1,
        last_chunk: int = -1,
        nchunks: int = -1,
        max_app_chunks: int = 0,
    ) -> None:
        check_range("format_version", format_version, 0, MAX_FORMAT_VERSION)
        check_valid_checksum(checksum)
        check_range("typesize", typesize, 0, MAX_TYPESIZE)
        _check_sizes(format_version, chunk_size, last_chunk)
        _check_counts(nchunks, max_app_chunks)
        self.format_version = format_version
        self.offsets = offsets
        self.metadata = metadata
        self.checksum = checksum
        self.typesize = typesize
        self.chunk_size = chunk_size
        self.last_chunk = last_chunk
        self.nchunks = nchunks
        self.max_app_chunks = max_app_chunks

    @property
    def checksum_impl(self) -> Hash:
        """The checksum of the chunks."""
        return CHECKSUMS_LOOKUP[self.checksum]

    @property
    def total_prospective_chunks(self) -> int | None:
        """Entries of the offset table, free ones too; None if nchunks is unknown."""
        return self.nchunks + self.max_app_chunks if self.nchunks != -1 else None

    @property
    def nbytes(self) -> int | None:
        """Bytes of plain data that the header announces; None if unknown."""
        if self.nchunks == 1:
            return self.last_chunk if self.last_chunk != -1 else None
        if -1 in (self.nchunks, self.chunk_size, self.last_chunk):
            return None
        if self.nchunks == 0:
            return 0
        return (self.nchunks - 1) * self.chunk_size + self.last_chunk

    def expected_nbytes(self, i: int) -> int | None:
        """Return the plain bytes that chunk `i` has to hold; None if unknown."""
        if self.nchunks == -1:
            return None
        size = self.last_chunk if i == self.nchunks - 1 else self.chunk_size
        return size if size != -1 else None

    def encode(self) -> bytes:
        """Return the header as it lies on disk."""
        if self.format_version == 0:
            return HEADER_V0.pack(MAGIC, self.nchunks)
        if self.format_version == 1:
            return HEADER_V1.pack(MAGIC, 1, bytes(3), self.nchunks)
        return HEADER_V2_V3.pack(
            MAGIC,
            self.format_version,
            int(create_options(self.offsets, self.metadata), 2),
            CHECKSUMS_AVAIL.index(self.checksum),
            self.typesize,
            self.chunk_size,
            self.last_chunk,
            self.nchunks,
            self.max_app_chunks,
        )

    @staticmethod
    def decode(buffer_: bytes) -> BloscpackHeader:
        """Return the header in the 32 bytes of `buffer_`, of layout 2 or later.

        Raises `FormatError` (a ValueError) for anything that is no header.
        """
        if len(buffer_) != BLOSCPACK_HEADER_LENGTH:
            raise FormatError(
                "attempting to decode a bloscpack header of length '%d', not '%d'"
                % (len(buffer_), BLOSCPACK_HEADER_LENGTH),
                section="header",
            )
        check_magic(buffer_)
        _, version, options, checksum, typesize, *sizes = HEADER_V2_V3.unpack(buffer_)
        chunk_size, last_chunk, nchunks, max_app_chunks = sizes
        _check_number("checksum", checksum, CHECKSUMS, "header", 6)
        # Layout 2 keeps its last eight bytes and the other options reserved, and
        # its own reader never looked at them.
        reserved = version == 2
        flags = decode_options(
            format(options & OPTION_OFFSETS if reserved else options, "08b")
        )
        if nchunks == 0 and last_chunk > 0:
            raise FormatError(
                "a file without chunks can't have a last chunk of '%d' bytes"
                % last_chunk,
                section="header",
                offset=16,
            )
        try:
            return BloscpackHeader(
                format_version=version,
                checksum=CHECKSUMS_AVAIL[checksum],
                typesize=typesize,
                chunk_size=chunk_size,
                last_chunk=last_chunk,
                nchunks=nchunks,
                max_app_chunks=0 if reserved else max_app_chunks,
                **flags,
            )
        except UsageError as error:
            raise FormatError(str(error), section="header", offset=0) from error


def _check_sizes(format_version: int, chunk_size: int, last_chunk: int) -> None:
    check_range("chunk_size", chunk_size, -1, MAX_BUFFERSIZE)
    check_range("last_chunk", last_chunk, -1, MAX_BUFFERSIZE)
    # Layout 2 writes a single chunk with chunk_size 0, and the longer half of two
    # last, so this holds from layout 3 on only.
    if format_version >= 3 and -1 < chunk_size < last_chunk:
        raise UsageError(
            "'last_chunk' (%d) is larger than 'chunk_size' (%d)"
            % (last_chunk, chunk_size)
        )


def _check_counts(nchunks: int, max_app_chunks: int) -> None:
    check_range("nchunks", nchunks, -1, MAX_CHUNKS)
    check_range("max_app_chunks", max_app_chunks, 0, MAX_CHUNKS)
    if nchunks != -1:
        total = nchunks + max_app_chunks
        check_range("nchunks + max_app_chunks", total, 0, MAX_CHUNKS)
    elif max_app_chunks != 0:
        raise UsageError("'max_app_chunks' can not be non '0' if 'nchunks' is '-1'")


def _check_number(
    name: str, number: int, table: Sized, section: str, offset: int | None = None
) -> None:
    """Raise `FormatError` for a number that stands for nothing in a table."""
    if number >= len(table):
        raise FormatError(
            "%s number must be in the range 0 <= n <= %d, not '%d'"
            % (name, len(table) - 1, number),
            section=section,
            offset=offset,
        )


def check_magic(buffer_: bytes) -> None:
    """Raise `FormatError` unless `buffer_` starts with the magic marker."""
    if bytes(buffer_[:4]) != MAGIC:
        raise NotReadable(
            "the magic marker %r is missing from the bloscpack header, "
            "instead we found: %r" % (MAGIC, bytes(buffer_[:4])),
            section="header",
            offset=0,
        )


def find_layout(prefix: bytes) -> int:
    """Return the layout of the file that starts with `prefix`, its first 32 bytes.

    Implements "Telling the layouts apart" of docs/format.rst: layout 0 has no
    version byte, so its number of chunks may look like one. Raises
    `FormatVersionMismatch` for layouts that nobody knows.
    """
    if len(prefix) >= len(MAGIC):
        check_magic(prefix)
    if len(prefix) >= HEADER_V0.size + BLOSC_HEADER_LENGTH:
        version, versionlz, _, typesize, nbytes, _, ctbytes = BLOSC_HEADER.unpack_from(
            prefix, HEADER_V0.size
        )
        # Where layout 0 has ctbytes, the others have bits of nchunks or a size that
        # would make these bytes mean more chunks than any disk can hold.
        if (
            (version, versionlz) == (2, 1)
            and typesize != 0
            and nbytes <= MAX_BUFFERSIZE
            and BLOSC_HEADER_LENGTH <= ctbytes <= nbytes + BLOSC_HEADER_LENGTH
        ):
            return 0
    if len(prefix) < BLOSCPACK_HEADER_LENGTH:
        raise NotReadable(
            "attempting to decode a bloscpack header of length '%d', not '%d'"
            % (len(prefix), BLOSCPACK_HEADER_LENGTH),
            section="header",
            offset=0,
        )
    layout = prefix[4]
    # Layout 0 has no such byte, and would have been known by its first chunk.
    if layout == 0 or layout not in HEADER_LENGTHS:
        raise FormatVersionMismatch(
            "format version of file was not '%d' as expected, but '%d'"
            % (FORMAT_VERSION, layout),
            section="header",
            offset=4,
        )
    return layout


def decode_header(prefix: bytes) -> BloscpackHeader:
    """Return the header of any layout; `prefix` is the first 32 bytes of the file.

    The header proper takes ``HEADER_LENGTHS[header.format_version]`` bytes.
    Raises `FormatVersionMismatch` for layouts that no release wrote.
    """
    layout = find_layout(prefix)
    if layout == 0:
        return BloscpackHeader(
            format_version=0, nchunks=HEADER_V0.unpack_from(prefix)[1]
        )
    if layout == 1:
        _, _, reserved, nchunks = HEADER_V1.unpack_from(prefix)
        if any(reserved):
            raise FormatVersionMismatch(
                "the reserved bytes of a layout 1 header must be zero, not %r; this "
                "is a layout that no release of Bloscpack wrote" % reserved,
                section="header",
                offset=5,
            )
        if nchunks < -1:
            raise FormatError(
                "'nchunks' must be in the range -1 <= n <= %d, not '%d'"
                % (MAX_CHUNKS, nchunks),
                section="header",
                offset=8,
            )
        return BloscpackHeader(format_version=1, nchunks=nchunks)
    return BloscpackHeader.decode(prefix[:BLOSCPACK_HEADER_LENGTH])


# The metadata header


class MetadataHeader(MutableMappingObject):
    """The header of the metadata section (docs/format.rst, Metadata).

    ``meta_size`` is the length of the text in bytes, ``meta_comp_size`` its
    length as stored, ``max_meta_size`` the room reserved for it.
    """

    _attributes = (
        "magic_format",
        "meta_options",
        "meta_checksum",
        "meta_codec",
        "meta_level",
        "meta_size",
        "max_meta_size",
        "meta_comp_size",
        "user_codec",
    )
    _bytes_attributes = ("meta_size", "max_meta_size", "meta_comp_size")

    def __init__(
        self,
        magic_format: bytes = b"",
        meta_options: str = "00000000",
        meta_checksum: str = "None",
        meta_codec: str = "None",
        meta_level: int = 0,
        meta_size: int = 0,
        max_meta_size: int = 0,
        meta_comp_size: int = 0,
        user_codec: bytes = b"",
    ) -> None:
        check_options(meta_options)
        check_valid_checksum(meta_checksum)
        check_valid_codec(meta_codec)
        check_range("meta_level", meta_level, 0, MAX_CLEVEL)
        check_range("meta_size", meta_size, 0, MAX_META_SIZE)
        check_range("max_meta_size", max_meta_size, 0, MAX_META_SIZE)
        check_range("meta_comp_size", meta_comp_size, 0, MAX_META_SIZE)
        for name, value in (("magic_format", magic_format), ("user_codec", user_codec)):
            if len(value) > 8:
                raise UsageError("'%s' must be at most 8 bytes, not %r" % (name, value))
        self.magic_format = magic_format
        self.meta_options = meta_options
        self.meta_checksum = meta_checksum
        self.meta_codec = meta_codec
        self.meta_level = meta_level
        self.meta_size = meta_size
        self.max_meta_size = max_meta_size
        self.meta_comp_size = meta_comp_size
        self.user_codec = user_codec

    def encode(self) -> bytes:
        """Return the metadata header as it lies on disk, 32 bytes."""
        return METADATA_HEADER.pack(
            self.magic_format,
            int(self.meta_options, 2),
            CHECKSUMS_AVAIL.index(self.meta_checksum),
            CODECS_AVAIL.index(self.meta_codec),
            self.meta_level,
            self.meta_size,
            self.max_meta_size,
            self.meta_comp_size,
            self.user_codec,
        )

    @staticmethod
    def decode(buffer_: bytes) -> MetadataHeader:
        """Return the metadata header in the 32 bytes of `buffer_`.

        Raises `FormatError` (a ValueError) for anything that is no such header.
        """
        if len(buffer_) != METADATA_HEADER_LENGTH:
            raise FormatError(
                "attempting to decode a bloscpack metadata header of length '%d', "
                "not '%d'" % (len(buffer_), METADATA_HEADER_LENGTH),
                section="metadata",
            )
        magic_format, *numbers, user_codec = METADATA_HEADER.unpack(buffer_)
        options, checksum, codec, level, *sizes = numbers
        meta_size, max_meta_size, meta_comp_size = sizes
        _check_number("checksum", checksum, CHECKSUMS, "metadata")
        _check_number("codec", codec, CODECS, "metadata")
        try:
            return MetadataHeader(
                magic_format=decode_magic_string(magic_format),
                meta_options=format(options, "08b"),
                meta_checksum=CHECKSUMS_AVAIL[checksum],
                meta_codec=CODECS_AVAIL[codec],
                meta_level=level,
                meta_size=meta_size,
                max_meta_size=max_meta_size,
                meta_comp_size=meta_comp_size,
                user_codec=decode_magic_string(user_codec),
            )
        except UsageError as error:
            raise FormatError(str(error), section="metadata") from error


def decode_magic_string(str_: bytes) -> bytes:
    """Return `str_` without the zero bytes behind it."""
    return str_.rstrip(b"\0")


# The header of a Blosc chunk


def decode_blosc_header(buffer_: bytes) -> OrderedDict[str, int]:
    """Return the fields of the first 16 bytes of a Blosc chunk, unchecked.

    Raises `FormatError` if `buffer_` is shorter than that.
    """
    if len(buffer_) < BLOSC_HEADER_LENGTH:
        raise FormatError(
            "a Blosc chunk header has '%d' bytes, but only '%d' are there"
            % (BLOSC_HEADER_LENGTH, len(buffer_)),
            section="chunks",
        )
    names = (
        "version",
        "versionlz",
        "flags",
        "typesize",
        "nbytes",
        "blocksize",
        "ctbytes",
    )
    return OrderedDict(zip(names, BLOSC_HEADER.unpack_from(buffer_), strict=True))


def decode_blosc_flags(byte_: int) -> OrderedDict[str, bool | str]:
    """Return what the flags of a Blosc chunk header say.

    ``split_blocks`` shows the bit as it is: set means that blocks are *not* split.
    """
    codec = byte_ >> 5
    if codec not in CNAME_MAPPING:
        raise FormatError(
            "the codec number of a Blosc chunk must be one of %s, not '%d'"
            % (sorted(CNAME_MAPPING), codec),
            section="chunks",
        )
    return OrderedDict(
        (
            ("byte_shuffle", bool(byte_ & BLOSC_FLAG_SHUFFLE)),
            ("pure_memcpy", bool(byte_ & BLOSC_FLAG_MEMCPY)),
            ("bit_shuffle", bool(byte_ & BLOSC_FLAG_BITSHUFFLE)),
            ("split_blocks", bool(byte_ & BLOSC_FLAG_SPLIT)),
            ("codec", CNAME_MAPPING[codec]),
        )
    )


# Names kept from 0.16

__getattr__ = sibling_names(__name__)
