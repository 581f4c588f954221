"""The 16-byte header of a Blosc chunk, and the table of its blocks.

Every field is checked against what Blosc 1 can write before anything is allocated
(docs/format.rst, Chunks).
"""

from __future__ import annotations

import struct

from ..constants import BLOSC_HEADER_LENGTH, CNAME_MAPPING, MAX_BUFFERSIZE
from ..exceptions import FormatError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    Buffer = bytes | bytearray | memoryview

BLOSC_HEADER = struct.Struct("<BBBBIII")
BLOSC_VERSION_FORMAT = 2
BLOSC_VERSION_CODEC = 1
BLOSC_FLAG_SHUFFLE = 1
BLOSC_FLAG_MEMCPY = 2
BLOSC_FLAG_BITSHUFFLE = 4
BLOSC_FLAG_RESERVED = 8
BLOSC_FLAG_SPLIT = 16
# Maximum plain bytes that one compressed byte of each codec, by number, can stand for:
# blosclz and lz4 encode lengths of 255 in a byte, snappy 64 in three bytes, zlib 258 in
# two bits, zstd 128 KiB in four bytes.
MAX_RATIOS = {0: 255, 1: 255, 2: 22, 3: 1032, 4: 2**15}
# The block table behind the header has one 4-byte start for each block.
BLOCK_START_LENGTH = 4


class ChunkHeader:
    """The header of a chunk, checked: plain and compressed size in bytes.

    ``raw`` is what it was decoded from.
    """

    __slots__ = ("ctbytes", "nbytes", "raw")

    def __init__(self, nbytes: int, ctbytes: int, raw: bytes) -> None:
        self.nbytes = nbytes
        self.ctbytes = ctbytes
        self.raw = raw

    @property
    def codec(self) -> str:
        """The name of the codec that is needed to decompress."""
        return CNAME_MAPPING[self.raw[2] >> 5]


def decode_header(head: Buffer) -> ChunkHeader:
    """Return the chunk header in the first 16 bytes of `head`.

    Every field is checked against what Blosc 1 can write; raises `FormatError`.
    """
    if len(head) < BLOSC_HEADER_LENGTH:
        raise FormatError(
            "expected a Blosc chunk header of '%d' bytes, found '%d'"
            % (BLOSC_HEADER_LENGTH, len(head)),
            section="chunks",
        )
    raw = bytes(head[:BLOSC_HEADER_LENGTH])
    fields = BLOSC_HEADER.unpack(raw)
    problem = _problem_with(*fields)
    if problem is not None:
        raise FormatError(
            "not a Blosc chunk: expected %s to be %s, found %d" % problem,
            section="chunks",
        )
    _, _, _, _, nbytes, _, ctbytes = fields
    return ChunkHeader(nbytes, ctbytes, raw)


def _problem_with(
    version: int,
    versionlz: int,
    flags: int,
    typesize: int,
    nbytes: int,
    blocksize: int,
    ctbytes: int,
) -> tuple[str, object, int] | None:
    """Return the first field that can't be: its name, what was expected, what it is."""
    codec = flags >> 5
    if version != BLOSC_VERSION_FORMAT:
        return "version", BLOSC_VERSION_FORMAT, version
    if versionlz != BLOSC_VERSION_CODEC:
        return "codec version", BLOSC_VERSION_CODEC, versionlz
    if flags & BLOSC_FLAG_RESERVED:
        return "reserved flag", 0, 1
    if codec not in CNAME_MAPPING:
        return "codec number", "0 to %d" % max(CNAME_MAPPING), codec
    if typesize == 0:
        return "typesize", "1 to 255", 0
    if nbytes > MAX_BUFFERSIZE:
        return "nbytes", "at most %d" % MAX_BUFFERSIZE, nbytes
    if not 1 <= blocksize <= (nbytes or 1):
        return "blocksize", "1 to nbytes = %d" % nbytes, blocksize
    # A copy of the plain bytes has no block starts.
    largest = nbytes + BLOSC_HEADER_LENGTH
    copied = flags & BLOSC_FLAG_MEMCPY
    smallest = largest if copied else smallest_ctbytes(nbytes, blocksize)
    if not smallest <= ctbytes <= largest:
        return "ctbytes", "%d to %d" % (smallest, largest), ctbytes
    # Before memory is asked for: no codec can make so much of so little.
    most = MAX_RATIOS[codec] * ctbytes
    if nbytes > most:
        return "nbytes", "at most %d in '%d' bytes" % (most, ctbytes), nbytes
    return None


def smallest_ctbytes(nbytes: int, blocksize: int) -> int:
    """Return the least bytes that a chunk of `nbytes` in such blocks can take."""
    nblocks = -(-nbytes // blocksize)
    return BLOSC_HEADER_LENGTH + BLOCK_START_LENGTH * nblocks
