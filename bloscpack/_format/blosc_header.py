"""The 16-byte header of a Blosc chunk, and the table of block starts behind it.

Bytes to records and back, no files. `decode_header` accepts only headers that Blosc 1
can write, so that a reader may trust the sizes (docs/format.rst, Chunks).
"""

from __future__ import annotations

import struct
from collections import OrderedDict

from .._engine.contexts import errors_to
from ..constants import BLOSC_HEADER_LENGTH, MAX_BUFFERSIZE
from ..exceptions import DamageError, FormatError
from .codecs import BITSHUFFLE, BY_NUMBER, CNAME_MAPPING, FILTERS, NONE, SHUFFLE

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .._types import Buffer

BLOSC_HEADER = struct.Struct("<BBBBIII")
# The field `nbytes` alone.
PLAIN_SIZE = struct.Struct("<4xI")
# The field `blocksize`.
BLOCK_SIZE = struct.Struct("<8xI")
# All fields but `ctbytes`, as bytes, and `ctbytes`.
BEGIN_AND_SIZE = struct.Struct("<12sI")
FIELDS = (
    *("version", "versionlz", "flags", "typesize", "nbytes", "blocksize"),
    "ctbytes",
)
# Numbers of the chunk format and of the codec format that Blosc 1 writes.
BLOSC_VERSION_FORMAT = 2
BLOSC_VERSION_CODEC = 1
# The first bytes of every chunk.
BLOSC_PREFIX = bytes((BLOSC_VERSION_FORMAT, BLOSC_VERSION_CODEC))
# Bits of `flags`. The codec number is in the three highest bits.
BLOSC_FLAG_SHUFFLE = 1
BLOSC_FLAG_MEMCPY = 2
BLOSC_FLAG_BITSHUFFLE = 4
BLOSC_FLAG_RESERVED = 8
BLOSC_FLAG_SPLIT = 16
BLOSC_CODEC_SHIFT = 5
# Blosc compresses each byte position of the items as a stream of its own only if the
# items have at most this many bytes, and if a block has at least this many items.
MAX_SPLITS = 16
MIN_ITEMS_TO_SPLIT = 128
# Size in bytes of an entry of the block table.
BLOCK_START_LENGTH = 4

_unpack = BLOSC_HEADER.unpack
# The first bytes of the last valid header, all but `ctbytes`; the values that this may
# have behind them, as most chunks of a file differ in nothing else; and `nbytes`.
_last_valid: tuple[bytes, range, int] = (b"", range(0), -1)


def chunk_damage(message: str, **where: Any) -> DamageError:
    """Return the error about damaged chunks; `where` are its other attributes."""
    return DamageError(message, section="chunks", **where)


def locating_chunk(number: int, offset: int | None) -> errors_to:
    """Add the number and the offset of a chunk to a `FormatError` about it."""

    def locate(error: Exception) -> None:
        if isinstance(error, FormatError):
            error.locate(number, offset)

    return errors_to(locate)


class BloscHeader:
    """The fields of a chunk header, named as in docs/format.rst; sizes are bytes.

    ``raw`` is the 16 bytes from which the header was decoded.
    """

    __slots__ = ("raw", *FIELDS)
    version: int
    versionlz: int
    flags: int
    typesize: int
    nbytes: int
    blocksize: int
    ctbytes: int

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        (
            self.version,
            self.versionlz,
            self.flags,
            self.typesize,
            self.nbytes,
            self.blocksize,
            self.ctbytes,
        ) = _unpack(raw)

    @property
    def codec(self) -> str:
        """The name of the codec; raises `KeyError` if the number has none."""
        return CNAME_MAPPING[self.flags >> BLOSC_CODEC_SHIFT]

    @property
    def is_copy(self) -> bool:
        """Whether the chunk holds the plain bytes uncompressed, without block table."""
        return bool(self.flags & BLOSC_FLAG_MEMCPY)

    @property
    def shuffle(self) -> int:
        """The number of the filter, as in the settings of Blosc."""
        if self.flags & BLOSC_FLAG_BITSHUFFLE:
            return BITSHUFFLE
        return SHUFFLE if self.flags & BLOSC_FLAG_SHUFFLE else NONE

    @property
    def filter(self) -> str:
        """The name of the filter: ``'none'``, ``'shuffle'`` or ``'bitshuffle'``."""
        return FILTERS[self.shuffle]

    @property
    def can_split(self) -> bool:
        """Whether the items are small enough for streams of their own."""
        nitems = self.blocksize // self.typesize
        return self.typesize <= MAX_SPLITS and nitems >= MIN_ITEMS_TO_SPLIT

    @property
    def splits(self) -> bool:
        """Whether each byte of the items is compressed in a stream of its own."""
        stored = self.flags & (BLOSC_FLAG_MEMCPY | BLOSC_FLAG_SPLIT)
        return not stored and self.typesize > 1 and self.can_split

    @property
    def nblocks(self) -> int:
        """The number of blocks; `blocksize` must not be 0."""
        return -(-self.nbytes // self.blocksize)

    @property
    def table_end(self) -> int:
        """Offset in the chunk at which the table of block starts ends."""
        return BLOSC_HEADER_LENGTH + BLOCK_START_LENGTH * self.nblocks


def unpack_header(head: Buffer) -> BloscHeader:
    """Return the header in the first 16 bytes of `head`, without any check."""
    return BloscHeader(bytes(head[:BLOSC_HEADER_LENGTH]))


def decode_header(head: Buffer) -> BloscHeader:
    """Return the header in the first 16 bytes of `head`, checked.

    Raises `FormatError` unless Blosc 1 can have written every field.
    """
    global _last_valid
    if len(head) < BLOSC_HEADER_LENGTH:
        raise chunk_damage(
            "expected a Blosc chunk header of '%d' bytes, found '%d'"
            % (BLOSC_HEADER_LENGTH, len(head))
        )
    raw = bytes(head[:BLOSC_HEADER_LENGTH])
    header = BloscHeader(raw)
    begin, sizes, _ = _last_valid
    if raw[:-4] == begin and header.ctbytes in sizes:
        return header
    problem = find_problem(header)
    if problem is not None:
        raise chunk_damage(
            "not a Blosc chunk: expected %s to be %s, found %d" % problem
        )
    largest = header.nbytes + BLOSC_HEADER_LENGTH
    _last_valid = raw[:-4], range(header.ctbytes, largest + 1), header.nbytes
    return header


def is_like_last(chunk: Buffer, nbytes: int) -> bool:
    """Return whether a whole chunk has the header of one of `nbytes` plain bytes.

    False also if it has, but not the same as the last one that was decoded.
    """
    begin, sizes, known = _last_valid
    size = len(chunk)
    is_like = nbytes == known and size in sizes
    return is_like and BEGIN_AND_SIZE.unpack_from(chunk) == (begin, size)


def find_problem(header: BloscHeader) -> tuple[str, object, int] | None:
    """Return name, expected value and found value of the first invalid field."""
    flags, nbytes = header.flags, header.nbytes
    blocksize, ctbytes = header.blocksize, header.ctbytes
    codec = flags >> BLOSC_CODEC_SHIFT
    if header.version != BLOSC_VERSION_FORMAT:
        return "version", BLOSC_VERSION_FORMAT, header.version
    if header.versionlz != BLOSC_VERSION_CODEC:
        return "codec version", BLOSC_VERSION_CODEC, header.versionlz
    if flags & BLOSC_FLAG_RESERVED:
        return "reserved flag", 0, 1
    if flags & BLOSC_FLAG_SHUFFLE and flags & BLOSC_FLAG_BITSHUFFLE:
        # Blosc 1 never writes both, and Blosc 2 gives them another meaning.
        return "number of filters", "0 or 1", 2
    if codec not in BY_NUMBER:
        return "codec number", "0 to %d" % max(BY_NUMBER), codec
    if header.typesize == 0:
        return "typesize", "1 to 255", 0
    if nbytes > MAX_BUFFERSIZE:
        return "nbytes", "at most %d" % MAX_BUFFERSIZE, nbytes
    if not 1 <= blocksize <= (nbytes or 1):
        allowed = "1 to nbytes = %d" % nbytes if nbytes > 1 else 1
        return "blocksize", allowed, blocksize
    largest = smallest = nbytes + BLOSC_HEADER_LENGTH
    if not flags & BLOSC_FLAG_MEMCPY:  # a copy has no block table
        # The same as `table_end`, without the cost of a call.
        smallest = BLOSC_HEADER_LENGTH - BLOCK_START_LENGTH * (-nbytes // blocksize)
    if not smallest <= ctbytes <= largest:
        allowed = "%d to %d" % (smallest, largest) if smallest < largest else largest
        return "ctbytes", allowed, ctbytes
    # Refuse a header that promises more than its codec can decompress from `ctbytes`,
    # before anything allocates memory for it.
    most = BY_NUMBER[codec].max_ratio * ctbytes
    if nbytes > most:
        return "nbytes", "at most %d in '%d' bytes" % (most, ctbytes), nbytes
    return None


def check_plain_size(header: BloscHeader, size: int) -> None:
    """Raise `FormatError` unless a chunk has `size` plain bytes."""
    if header.nbytes != size:
        raise chunk_damage(
            "expected a chunk of '%d' plain bytes, found '%d'" % (size, header.nbytes)
        )


# The block table: where each block starts, in bytes from the start of the chunk


def encode_block_starts(starts: Sequence[int]) -> bytes:
    """Return the block table with these entries."""
    return struct.pack("<%dI" % len(starts), *starts)


def decode_block_starts(table: Buffer) -> tuple[int, ...]:
    """Return the entries in `table`, the whole block table or the first part of it."""
    return struct.unpack_from("<%dI" % (len(table) // BLOCK_START_LENGTH), table)


# The header as a dictionary: names of 0.16, which `bloscpack.headers` also has


def decode_blosc_header(buffer_: bytes) -> OrderedDict[str, int]:
    """Return the fields of the header of a Blosc chunk, unchecked.

    Parameters
    ----------
    buffer_
        The chunk, or at least its first 16 bytes.

    Raises
    ------
    FormatError
        `buffer_` has fewer than 16 bytes.
    """
    if len(buffer_) < BLOSC_HEADER_LENGTH:
        raise chunk_damage(
            "a Blosc chunk header has '%d' bytes, but only '%d' are there"
            % (BLOSC_HEADER_LENGTH, len(buffer_))
        )
    header = unpack_header(buffer_)
    return OrderedDict((name, getattr(header, name)) for name in FIELDS)


def decode_blosc_flags(byte_: int) -> OrderedDict[str, bool | str]:
    """Return the flags of the header of a Blosc chunk, and the name of its codec.

    ``split_blocks`` is the value of the bit: True means that blocks are *not* split.

    Parameters
    ----------
    byte_
        The field ``flags`` of the header, 0 to 255.

    Raises
    ------
    FormatError
        The codec number has no codec.
    """
    codec = byte_ >> BLOSC_CODEC_SHIFT
    if codec not in CNAME_MAPPING:
        raise chunk_damage(
            "the codec number of a Blosc chunk must be one of %s, not '%d'"
            % (sorted(CNAME_MAPPING), codec)
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
