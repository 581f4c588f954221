"""The records of fixed size: the file header and the metadata header.

Each record and version has one `struct.Struct`. Decoding checks every rule of
docs/format.rst and raises `FormatError`. A constructor checks the values of the caller
and raises `UsageError`.
"""

from __future__ import annotations

import struct
import sys

from ._compat import sibling_names
from ._format.blosc_header import BLOSC_HEADER, BLOSC_PREFIX
from ._format.blosc_header import decode_blosc_flags as decode_blosc_flags
from ._format.blosc_header import decode_blosc_header as decode_blosc_header
from .abstract_objects import MutableMappingObject, parameters_of
from .checksums import CHECKSUM_NAMES, CHECKSUMS_LOOKUP, Hash, check_valid_checksum
from .constants import (
    BLOSC_HEADER_LENGTH,
    BLOSCPACK_HEADER_LENGTH,
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
    DamageError,
    FormatError,
    FormatVersionMismatch,
    HeaderError,
    NotReadable,
    Unsupported,
    UsageError,
    UsageTypeError,
    UsageValueError,
    metadata_damage,
)
from .metacodecs import CODECS_AVAIL, check_valid_codec

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

HEADER_V0 = struct.Struct("<4sI")
HEADER_V1 = struct.Struct("<4sB3sq")
HEADER_V2_V3 = struct.Struct("<4sBBBBiiqq")
METADATA_HEADER = struct.Struct("<8sBBBBIII8s")

# Size in bytes of the file header, by version.
HEADER_LENGTHS = {
    0: HEADER_V0.size,
    1: HEADER_V1.size,
    2: HEADER_V2_V3.size,
    3: HEADER_V2_V3.size,
}

# Position in bytes of each field of the file header, by version.
_FIELD_OFFSETS_V2_V3 = {
    "format_version": 4,
    "options": 5,
    "checksum": 6,
    "typesize": 7,
    "chunk_size": 8,
    "last_chunk": 12,
    "nchunks": 16,
    "max_app_chunks": 24,
}
FIELD_OFFSETS = {
    0: {"nchunks": 4},
    1: {"format_version": 4, "reserved": 5, "nchunks": 8},
    2: _FIELD_OFFSETS_V2_V3,
    3: _FIELD_OFFSETS_V2_V3,
}

# Bits of `options` in the file header.
OPTION_OFFSETS = 1
OPTION_METADATA = 2
OPTION_UNDO = 4


# Whole numbers


def plain_number(value: Any) -> Any:
    """Return a NumPy scalar as the Python value that it holds, other values unchanged.

    Arithmetic with NumPy integers overflows.
    """
    if type(value) is int:  # the usual case, for speed
        return value
    numpy = sys.modules.get("numpy")  # if it is not imported, there are no scalars
    if numpy is not None and isinstance(value, numpy.generic):
        return value.item()
    return value


def check_range(name: str, value: object, min_: int, max_: int) -> int:
    """Return `value`, a whole number from `min_` to `max_`, as an int.

    Parameters
    ----------
    name
        The name of the argument, for the message.
    value
        The value to check.
    min_, max_
        The smallest and the largest allowed value.

    Raises
    ------
    UsageTypeError
        `value` is neither an int nor a NumPy integer. This is a ``TypeError`` too.
    UsageError
        `value` is out of range. This is a ``ValueError`` too.
    """
    if type(value) is not int:  # the usual case first, for speed
        value = plain_number(value)
        if not isinstance(value, int):
            raise UsageTypeError("'%s' must be of type 'int'" % name)
    if not min_ <= value <= max_:
        raise UsageValueError(
            "'%s' must be in the range %s <= n <= %s, not '%s'"
            % (name, min_, max_, value)
        )
    return value


# Options: a byte of flags as a string of eight binary digits, the highest bit first


def check_options(options: str) -> None:
    """Raise `UsageError` unless `options` is a string of eight zeros and ones.

    Raises `UsageTypeError`, a ``TypeError`` too, if it is no string.
    """
    if not isinstance(options, str):
        raise UsageTypeError(
            "'options' must be of type 'str', not '%s'" % type(options)
        )
    if len(options) != 8 or set(options) - {"0", "1"}:
        raise UsageValueError(
            "'options' must be string of 0s and 1s of length 8, not '%s'" % options
        )


def check_options_zero(options: str, indices: Iterable[int]) -> None:
    """Raise `FormatError` if a digit of `options` at one of the `indices` is not 0."""
    for index in indices:
        if options[index] != "0":
            raise HeaderError(
                "Element %d was non-zero when attempting to decode options: '%s'"
                % (index, options),
                section="header",
                offset=FIELD_OFFSETS[FORMAT_VERSION]["options"],
            )


def create_options(offsets: bool = DEFAULT_OFFSETS, metadata: bool = False) -> str:
    """Return the options of a file header as a string of eight binary digits.

    Parameters
    ----------
    offsets
        The file has an offset table.
    metadata
        The file has a metadata section.
    """
    return format(
        OPTION_OFFSETS * bool(offsets) | OPTION_METADATA * bool(metadata), "08b"
    )


def decode_options(options: str) -> dict[str, bool]:
    """Return the options of a file header, a bool each for offsets and metadata.

    Parameters
    ----------
    options
        A string of eight binary digits.

    Raises
    ------
    FormatError
        A reserved bit is set.
    """
    check_options(options)
    check_options_zero(options, range(6))
    return {"offsets": options[7] == "1", "metadata": options[6] == "1"}


def create_metadata_options() -> str:
    """Return the options of a metadata header: all eight bits are reserved."""
    return "00000000"


def decode_metadata_options(options: str) -> dict[str, bool]:
    """Return an empty dictionary: a metadata header has no options.

    Raises `FormatError` if a bit is set.
    """
    check_options(options)
    check_options_zero(options, range(8))
    return {}


# The file header


class BloscpackHeader(MutableMappingObject):
    """The header of a file of any version (docs/format.rst, Header).

    In ``chunk_size``, ``last_chunk`` and ``nchunks``, -1 means unknown. Versions 0
    and 1 store ``nchunks`` alone.

    Parameters
    ----------
    format_version
        Number of the format version, 0 to 255; releases wrote 0 to 3.
    offsets
        Whether the file has an offset table.
    metadata
        Whether the file has a metadata section.
    checksum
        Name of the checksum of the chunks, ``'None'`` for no checksum.
    typesize
        Item size in bytes with which the first chunks were compressed, 0 to 255.
    chunk_size
        Plain bytes of every chunk but the last, -1 to 2147483631.
    last_chunk
        Plain bytes of the last chunk, -1 to 2147483631.
    nchunks
        Number of chunks, at least -1.
    max_app_chunks
        Number of free entries in the offset table, at least 0.

    Raises
    ------
    UsageError
        A value is out of range, or the values contradict each other.
    UsageTypeError
        A number is no int.
    NoSuchChecksum
        There is no checksum of that name.
    """

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
        check_valid_checksum(checksum)
        self.format_version = check_range(
            "format_version", format_version, 0, MAX_FORMAT_VERSION
        )
        self.offsets = offsets
        self.metadata = metadata
        self.checksum = checksum
        self.typesize = check_range("typesize", typesize, 0, MAX_TYPESIZE)
        self.chunk_size = check_range("chunk_size", chunk_size, -1, MAX_BUFFERSIZE)
        self.last_chunk = check_range("last_chunk", last_chunk, -1, MAX_BUFFERSIZE)
        self.nchunks = check_range("nchunks", nchunks, -1, MAX_CHUNKS)
        self.max_app_chunks = check_range(
            "max_app_chunks", max_app_chunks, 0, MAX_CHUNKS
        )
        # Version 2 stores chunk_size 0 for a single chunk, and of two chunks the last
        # may be the longer one.
        if self.format_version >= 3 and -1 < self.chunk_size < self.last_chunk:
            raise UsageValueError(
                "'last_chunk' (%d) is larger than 'chunk_size' (%d)"
                % (self.last_chunk, self.chunk_size)
            )
        if self.nchunks != -1:
            total = self.nchunks + self.max_app_chunks
            check_range("nchunks + max_app_chunks", total, 0, MAX_CHUNKS)
        elif self.max_app_chunks != 0:
            raise UsageValueError(
                "'max_app_chunks' can not be non '0' if 'nchunks' is '-1'"
            )

    _attributes = parameters_of(__init__)

    @property
    def checksum_impl(self) -> Hash:
        """The checksum of the chunks, a `bloscpack.checksums.Hash`."""
        return CHECKSUMS_LOOKUP[self.checksum]

    @property
    def total_prospective_chunks(self) -> int | None:
        """Number of entries in the offset table, used and free.

        None if the number of chunks is unknown.
        """
        return self.nchunks + self.max_app_chunks if self.nchunks != -1 else None

    @property
    def nbytes(self) -> int | None:
        """Number of plain bytes in all chunks, according to the header.

        None if the header does not store it.
        """
        if self.nchunks == 1:
            return self.last_chunk if self.last_chunk != -1 else None
        if -1 in (self.nchunks, self.chunk_size, self.last_chunk):
            return None
        if self.nchunks == 0:
            return 0
        return (self.nchunks - 1) * self.chunk_size + self.last_chunk

    def expected_nbytes(self, i: int) -> int | None:
        """Return the number of plain bytes in chunk `i`; None if unknown."""
        if self.nchunks == -1:
            return None
        size = self.last_chunk if i == self.nchunks - 1 else self.chunk_size
        return size if size != -1 else None

    def encode(self) -> bytes:
        """Return the bytes of the header: 8, 16 or 32, depending on the version."""
        if self.format_version == 0:
            return HEADER_V0.pack(MAGIC, self.nchunks)
        if self.format_version == 1:
            return HEADER_V1.pack(MAGIC, 1, bytes(3), self.nchunks)
        return HEADER_V2_V3.pack(
            MAGIC,
            self.format_version,
            OPTION_OFFSETS * bool(self.offsets) | OPTION_METADATA * bool(self.metadata),
            CHECKSUM_NAMES.index(self.checksum),
            self.typesize,
            self.chunk_size,
            self.last_chunk,
            self.nchunks,
            self.max_app_chunks,
        )

    @staticmethod
    def decode(buffer_: bytes) -> BloscpackHeader:
        """Return the header of version 2 or 3 that is stored in `buffer_`.

        `decode_header` decodes the other versions too.

        Parameters
        ----------
        buffer_
            The 32 bytes of the header.

        Raises
        ------
        NotReadable
            The magic marker is missing. This is a `FormatError` too.
        FormatError
            The bytes are no valid header. A `HeaderError` is a ``ValueError`` too.
        """
        if len(buffer_) != BLOSCPACK_HEADER_LENGTH:
            raise HeaderError(
                "attempting to decode a bloscpack header of length '%d', not '%d'"
                % (len(buffer_), BLOSCPACK_HEADER_LENGTH),
                section="header",
            )
        fields = HEADER_V2_V3.unpack(buffer_)
        magic, version, options, checksum, typesize, *sizes, max_app_chunks = fields
        if magic != MAGIC:
            check_magic(buffer_)
        if checksum >= len(CHECKSUM_NAMES):
            raise _no_such_number("checksum", checksum, CHECKSUM_NAMES, "header")
        if version == 2:
            # The last eight bytes and the other option bits are reserved. Old readers
            # ignored them.
            options &= OPTION_OFFSETS
            max_app_chunks = 0
        if options > OPTION_OFFSETS | OPTION_METADATA:
            if options & OPTION_UNDO:
                raise Unsupported(
                    "a change of the file was interrupted, and the undo record at its "
                    "end can't be used here: read the file by its path or URL, and "
                    "save what comes from a pipe in a file first",
                    section="header",
                    offset=FIELD_OFFSETS[FORMAT_VERSION]["options"],
                )
            decode_options(format(options, "08b"))  # raises
        chunk_size, last_chunk, nchunks = sizes
        if nchunks == 0 and last_chunk > 0:
            raise DamageError(
                "a file without chunks can't have a last chunk of '%d' bytes"
                % last_chunk,
                section="header",
                offset=FIELD_OFFSETS[FORMAT_VERSION]["nchunks"],
            )
        try:
            return BloscpackHeader(
                version,
                bool(options & OPTION_OFFSETS),
                bool(options & OPTION_METADATA),
                CHECKSUM_NAMES[checksum],
                typesize,
                chunk_size,
                last_chunk,
                nchunks,
                max_app_chunks,
            )
        except UsageError as error:
            raise HeaderError(str(error), section="header", offset=0) from error


def _no_such_number(
    kind: str, number: int, names: Sequence[str], section: str
) -> FormatError:
    """Return the error for the number of something that is not in a table."""
    return DamageError(
        "%s number must be in the range 0 <= n <= %d, not '%d'"
        % (kind, len(names) - 1, number),
        section=section,
        offset=FIELD_OFFSETS[FORMAT_VERSION][kind] if section == "header" else None,
    )


def check_magic(buffer_: bytes, size: int | None = None) -> None:
    """Raise `FormatError` unless `buffer_` starts with the magic marker.

    The message names the format of the file if it is known. `size` is the size of the
    file in bytes, None if it is unknown.
    """
    if bytes(buffer_[:4]) == MAGIC:
        return
    from ._format.other_formats import name_format

    message = "the magic marker %r is missing from the bloscpack header, "
    message += "instead we found: %r"
    message %= MAGIC, bytes(buffer_[:4])
    other = name_format(buffer_, size)
    if other is not None:
        message += "; this is " + other
    raise _not_readable(message, buffer_, size)


def _not_readable(message: str, prefix: bytes, size: int | None) -> NotReadable:
    error = NotReadable(message, section="header", offset=0)
    error.prefix, error.size = bytes(prefix), size
    return error


def find_version(prefix: bytes, size: int | None = None) -> int:
    """Return the number of the version, 0 to 3, of a file that starts with `prefix`.

    Version 0 has no version byte, and its number of chunks may look like a version
    (docs/format.rst, Telling the versions apart).

    Parameters
    ----------
    prefix
        The first 32 bytes of the file, fewer if the file is shorter.
    size
        Size of the file in bytes, None if it is unknown.

    Raises
    ------
    NotReadable, FormatVersionMismatch
        This is no Bloscpack file, or a version that no release wrote.
    """
    length = len(prefix)
    if length >= len(MAGIC) and prefix[: len(MAGIC)] != MAGIC:
        check_magic(prefix, size)
    chunk = prefix[HEADER_V0.size :]
    if length >= HEADER_V0.size + BLOSC_HEADER_LENGTH and chunk[:2] == BLOSC_PREFIX:
        _, _, _, typesize, nbytes, _, ctbytes = BLOSC_HEADER.unpack_from(chunk)
        # At the position of ctbytes the other versions store a part of nchunks, which
        # passes this test only for more chunks than any disk can hold.
        if (
            typesize != 0
            and nbytes <= MAX_BUFFERSIZE
            and BLOSC_HEADER_LENGTH <= ctbytes <= nbytes + BLOSC_HEADER_LENGTH
        ):
            return 0
    if length < BLOSCPACK_HEADER_LENGTH:
        message = "attempting to decode a bloscpack header of length '%d', not '%d'"
        message %= len(prefix), BLOSCPACK_HEADER_LENGTH
        message += ": the file is empty" * (not prefix)
        raise _not_readable(message, prefix, size)
    version = prefix[4]
    # A file of version 0 has no version byte; its first chunk was recognised above.
    if version == 0 or version not in HEADER_LENGTHS:
        raise FormatVersionMismatch(
            "format version of file was not '%d' as expected, but '%d'"
            % (FORMAT_VERSION, version),
            section="header",
            offset=FIELD_OFFSETS[FORMAT_VERSION]["format_version"],
        )
    return version


def has_undo_record(prefix: bytes) -> bool:
    """Return whether a header says that the file ends with an undo record.

    Parameters
    ----------
    prefix
        The first 32 bytes of the file. A file of version 0 has its number of chunks in
        the place of version and options.
    """
    at = _FIELD_OFFSETS_V2_V3["options"]
    return (
        len(prefix) >= BLOSCPACK_HEADER_LENGTH
        and bool(prefix[at] & OPTION_UNDO)
        and prefix[:at] == MAGIC + bytes([FORMAT_VERSION])
        and find_version(prefix) == FORMAT_VERSION
    )


def decode_header(prefix: bytes, size: int | None = None) -> BloscpackHeader:
    """Return the header of a file of any version.

    The header occupies ``HEADER_LENGTHS[header.format_version]`` bytes of `prefix`.

    Parameters
    ----------
    prefix
        The first 32 bytes of the file, fewer if the file is shorter.
    size
        Size of the file in bytes, None if it is unknown.

    Raises
    ------
    NotReadable, FormatVersionMismatch
        This is no Bloscpack file, or a version that no release wrote.
    FormatError
        The bytes are no valid header.
    """
    version = find_version(prefix, size)
    if version == 0:
        return BloscpackHeader(
            format_version=0, nchunks=HEADER_V0.unpack_from(prefix)[1]
        )
    if version == 1:
        _, _, reserved, nchunks = HEADER_V1.unpack_from(prefix)
        if any(reserved):
            raise FormatVersionMismatch(
                "the reserved bytes of a version 1 header must be zero, not %r; this "
                "is a version that no release of Bloscpack wrote" % reserved,
                section="header",
                offset=FIELD_OFFSETS[1]["reserved"],
            )
        if nchunks < -1:
            raise HeaderError(
                "'nchunks' must be in the range -1 <= n <= %d, not '%d'"
                % (MAX_CHUNKS, nchunks),
                section="header",
                offset=FIELD_OFFSETS[1]["nchunks"],
            )
        return BloscpackHeader(format_version=1, nchunks=nchunks)
    return BloscpackHeader.decode(prefix[:BLOSCPACK_HEADER_LENGTH])


# The metadata header


class MetadataHeader(MutableMappingObject):
    """The header of the metadata section (docs/format.rst, Metadata).

    Parameters
    ----------
    magic_format
        Name of the metadata format, at most 8 bytes.
    meta_options
        A string of eight binary digits; all bits are reserved.
    meta_checksum
        Name of the checksum of the stored text, ``'None'`` for no checksum.
    meta_codec
        Name of the codec of the stored text, ``'None'`` for no compression.
    meta_level
        Compression level that the writer asked for, 0 to 9.
    meta_size
        Size in bytes of the text before compression, below 4 GiB.
    max_meta_size
        Size in bytes of the space reserved for the stored text, below 4 GiB.
    meta_comp_size
        Size in bytes of the stored text, below 4 GiB.
    user_codec
        Reserved, at most 8 bytes.

    Raises
    ------
    UsageError
        A value is out of range.
    UsageTypeError
        A value has the wrong type.
    NoSuchChecksum, NoSuchCodec
        There is no checksum or codec of that name.
    """

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
        if meta_options != "00000000":  # all other bits are reserved
            check_options(meta_options)
        check_valid_checksum(meta_checksum)
        check_valid_codec(meta_codec)
        for name, value in (("magic_format", magic_format), ("user_codec", user_codec)):
            if len(value) > 8:
                raise UsageValueError(
                    "'%s' must be at most 8 bytes, not %r" % (name, value)
                )
        self.magic_format = magic_format
        self.meta_options = meta_options
        self.meta_checksum = meta_checksum
        self.meta_codec = meta_codec
        self.meta_level = check_range("meta_level", meta_level, 0, MAX_CLEVEL)
        self.meta_size = check_range("meta_size", meta_size, 0, MAX_META_SIZE)
        self.max_meta_size = check_range(
            "max_meta_size", max_meta_size, 0, MAX_META_SIZE
        )
        self.meta_comp_size = check_range(
            "meta_comp_size", meta_comp_size, 0, MAX_META_SIZE
        )
        self.user_codec = user_codec

    _attributes = parameters_of(__init__)

    def encode(self) -> bytes:
        """Return the 32 bytes of the metadata header."""
        return METADATA_HEADER.pack(
            self.magic_format,
            int(self.meta_options, 2),
            CHECKSUM_NAMES.index(self.meta_checksum),
            CODECS_AVAIL.index(self.meta_codec),
            self.meta_level,
            self.meta_size,
            self.max_meta_size,
            self.meta_comp_size,
            self.user_codec,
        )

    @staticmethod
    def decode(buffer_: bytes) -> MetadataHeader:
        """Return the metadata header that is stored in `buffer_`.

        Parameters
        ----------
        buffer_
            The 32 bytes of the metadata header.

        Raises
        ------
        FormatError
            The bytes are no valid metadata header.
        """
        if len(buffer_) != METADATA_HEADER_LENGTH:
            raise metadata_damage(
                "attempting to decode a bloscpack metadata header of length '%d', "
                "not '%d'" % (len(buffer_), METADATA_HEADER_LENGTH)
            )
        magic_format, options, checksum, codec, *sizes = METADATA_HEADER.unpack(buffer_)
        level, meta_size, max_meta_size, meta_comp_size, user_codec = sizes
        if checksum >= len(CHECKSUM_NAMES):
            raise _no_such_number("checksum", checksum, CHECKSUM_NAMES, "metadata")
        if codec >= len(CODECS_AVAIL):
            raise _no_such_number("codec", codec, CODECS_AVAIL, "metadata")
        try:
            return MetadataHeader(
                magic_format.rstrip(b"\0"),
                format(options, "08b"),
                CHECKSUM_NAMES[checksum],
                CODECS_AVAIL[codec],
                level,
                meta_size,
                max_meta_size,
                meta_comp_size,
                user_codec.rstrip(b"\0"),
            )
        except UsageError as error:
            raise metadata_damage(str(error)) from error


# Names kept from 0.16

PY3 = True


def decode_magic_string(str_: bytes) -> bytes:
    """Return `str_` without the zero bytes at its end."""
    return str_.rstrip(b"\0")


__getattr__ = sibling_names(__name__)
