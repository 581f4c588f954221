"""The sections in front of the chunks: header, metadata and offset table.

`read_beginning` reads all of them through a `Cursor`, and compares every size with the
file before it uses it. Every error names the section and the file position. The other
functions turn bytes into values and back, without files (docs/format.rst, Metadata and
Offsets).
"""

from __future__ import annotations

import struct

from .. import log
from ..checksums import ALL_CHECKSUMS, CHECKSUMS_LOOKUP
from ..constants import (
    BLOSC_HEADER_LENGTH,
    BLOSCPACK_HEADER_LENGTH,
    MAGIC,
    METADATA_HEADER_LENGTH,
    OFFSET_LENGTH,
)
from ..defaults import (
    DEFAULT_META_CODEC,
    DEFAULT_META_LEVEL,
    DEFAULT_METADATA_LIMIT,
    DEFAULT_METADATA_VALUES,
)
from ..exceptions import (
    ChecksumMismatch,
    DamageError,
    FormatError,
    MetadataSectionTooSmall,
    NoChangeInMetadata,
    metadata_damage,
)
from ..headers import (
    FIELD_OFFSETS,
    HEADER_LENGTHS,
    METADATA_HEADER,
    BloscpackHeader,
    MetadataHeader,
    decode_header,
)
from ..metacodecs import CODECS_LOOKUP
from ..serializers import SERIALIZERS_LOOKUP, has_more_values
from .blosc_header import chunk_damage

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .._storage.cursor import Cursor
    from .._types import Json
    from ..args import Limits, MetadataArgs

# Minimum size in bytes of a chunk: an empty chunk has only a header.
SMALLEST_CHUNK = BLOSC_HEADER_LENGTH
# Size in bytes of the pieces in which the room is written: it may have 4 GiB.
ROOM_BLOCK = 2**20
# Value of a free entry, and of every entry in a file whose writer did not finish.
FREE = -1
# Number of entries that are compared at a time: they stay in the cache of the CPU.
AT_A_TIME = 2**14


class Beginning:
    """The sections before the first chunk.

    ``table`` is the used part of the offset table, None if the file has none.
    ``metadata_header`` is None if the file has no metadata section.
    """

    def __init__(self, header: BloscpackHeader) -> None:
        self.header = header
        self.metadata: Json = None
        self.metadata_header: MetadataHeader | None = None
        self.table: bytes | None = None
        self._offsets: list[int] | None = None

    @property
    def offsets(self) -> list[int] | None:
        """One entry per chunk; None if the file has no offset table."""
        if self._offsets is None and self.table is not None:
            self._offsets = decode_offsets(self.table)
        return self._offsets


def read_beginning(cursor: Cursor, limits: Limits | None = None) -> Beginning:
    """Read the sections before the chunks; the cursor stops at the first chunk.

    Raises `FormatError` if they break a rule of docs/format.rst (Header, Metadata,
    Offsets) or exceed the `limits`.
    """
    header = read_header(cursor)
    beginning = Beginning(header)
    nchunks = header.nchunks
    if limits is not None:
        check_limit(limits, header.nbytes or 0, "header", 0)
    if header.metadata:
        beginning.metadata, beginning.metadata_header = read_metadata(cursor, limits)
    # A file of unknown length has no offset table, whatever its options say.
    has_table = header.offsets and nchunks != -1
    used = OFFSET_LENGTH * nchunks if has_table else 0
    free = OFFSET_LENGTH * header.max_app_chunks if has_table else 0
    left = cursor.left()
    if left is not None:
        if left < used + free:
            raise DamageError(
                "the file ends too early: expected an offset table of '%d' bytes, "
                "found '%d'" % (used + free, left),
                section="offsets",
                offset=cursor.position,
            )
        # Check that the chunks can exist before allocating memory for their offsets.
        left -= used + free
        smallest = nchunks * (SMALLEST_CHUNK + header.checksum_impl.size)
        if left < smallest:
            raise chunk_damage(
                "the file ends too early: expected '%d' chunks, which take at least "
                "'%d' bytes, found '%d'" % (nchunks, smallest, left),
                offset=cursor.position + used + free,
            )
    if has_table:
        beginning.table = bytes(cursor.read_exactly(used, "an offset table", "offsets"))
        cursor.skip(free, "the free entries of the offset table", "offsets")
    if nchunks == 0:
        behind = bytes(cursor.peek_behind(1))
        cursor.restore()
        if behind:
            raise DamageError(
                "expected the end of a file without chunks, found more bytes",
                section="header",
                offset=FIELD_OFFSETS[header.format_version]["nchunks"],
            )
    return beginning


def read_header(cursor: Cursor) -> BloscpackHeader:
    """Read the header of a file of any version."""
    prefix = bytes(cursor.peek(BLOSCPACK_HEADER_LENGTH))
    size = cursor.left()
    if prefix[: len(MAGIC)] != MAGIC:  # the error names the format of the file
        from .other_formats import PREFIX_LENGTH

        prefix = bytes(cursor.peek(PREFIX_LENGTH))
    header = decode_header(prefix, size)
    cursor.skip(HEADER_LENGTHS[header.format_version], "a header", "header")
    return header


def check_limit(limits: Limits, nbytes: int, section: str, offset: int) -> None:
    """Raise `FormatError` at a position if a file has more than its limit of bytes."""
    try:
        limits.check_nbytes(nbytes)
    except FormatError as error:
        error.section, error.offset = section, offset
        raise


def read_metadata(
    cursor: Cursor, limits: Limits | None = None
) -> tuple[Json, MetadataHeader]:
    """Read the metadata section."""
    start = cursor.position
    try:
        raw = cursor.read_exactly(
            METADATA_HEADER_LENGTH, "a metadata header", "metadata"
        )
        header = MetadataHeader.decode(bytes(raw))
        size = header.meta_comp_size
        limit = max_values = None
        if limits is not None:
            limit = limits.effective_metadata(size)
            max_values = limits.effective_metadata_values(size)
        check_metadata_header(header, limit)
        stored = bytes(cursor.read_exactly(size, "metadata", "metadata"))
        room = header.max_meta_size - size
        cursor.skip(room, "the room behind the metadata", "metadata")
        size = CHECKSUMS_LOOKUP[header.meta_checksum].size
        digest = cursor.read_exactly(size, "the digest of the metadata", "metadata")
        return decode_metadata(header, stored, bytes(digest), limit, max_values), header
    except FormatError as error:
        error.section = "metadata"
        error.offset = start if error.offset is None else error.offset
        raise


# The metadata section: a JSON value, optionally compressed, with reserved space. It is
# ``header | stored text | rest of the reserved space | digest``; the digest covers the
# stored text only.


class Section:
    """An encoded section, without its room in memory.

    ``front`` is the header and the stored text, ``room`` the number of reserved bytes
    behind them, ``digest`` the digest of the text, and ``value`` the metadata.
    """

    def __init__(self, front: bytes, room: int, digest: bytes, value: object) -> None:
        self.front = front
        self.room = room
        self.digest = digest
        self.value = value

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes of the section; its unused room is filled with zeros.

        The blocks of a large room are one object: a list of all blocks takes little
        memory.
        """
        if self.room <= ROOM_BLOCK:
            yield b"".join((self.front, bytes(self.room), self.digest))
            return
        yield self.front
        zeros = bytes(ROOM_BLOCK)
        for start in range(0, self.room, ROOM_BLOCK):
            yield zeros[: self.room - start]
        yield self.digest


def section_size(header: MetadataHeader) -> int:
    """Return the size of the section in bytes, header and digest included."""
    digest_size = CHECKSUMS_LOOKUP[header.meta_checksum].size
    return METADATA_HEADER_LENGTH + header.max_meta_size + digest_size


def stored_section_size(head: bytes) -> int:
    """Return the size that a metadata header states; 0 for one that is wrong."""
    if len(head) < METADATA_HEADER_LENGTH or head[9] >= len(ALL_CHECKSUMS):
        return 0
    _, _, checksum, _, _, _, room, _, _ = METADATA_HEADER.unpack(head)
    size: int = METADATA_HEADER_LENGTH + room + ALL_CHECKSUMS[checksum].size
    return size


def encode_section(
    metadata: object, metadata_args: MetadataArgs | None = None
) -> Section:
    """Return the section that stores the value `metadata`.

    The text is stored uncompressed if the codec makes it longer. Raises `UsageError` if
    JSON cannot represent the value, and `MetadataSectionTooSmall` if the reserved space
    is smaller than the stored text.
    """
    args = metadata_args
    if args is None:
        from ..args import MetadataArgs  # readers do not need it

        args = MetadataArgs()
    args.check()
    text = SERIALIZERS_LOOKUP[args.magic_format].dumps(metadata).encode("ascii")
    meta_codec, stored = "None", text
    if args.meta_codec != "None":
        shorter = CODECS_LOOKUP[args.meta_codec].compress(text, args.meta_level)
        size = len(shorter)
        # Readers refuse a text that is much longer than what is stored.
        is_readable = len(text) <= DEFAULT_METADATA_LIMIT(size)
        most = DEFAULT_METADATA_VALUES(size)
        if size <= len(text) and is_readable and not has_more_values(text, most):
            meta_codec, stored = args.meta_codec, shorter
    header = MetadataHeader(
        magic_format=args.magic_format,
        meta_checksum=args.meta_checksum,
        meta_codec=meta_codec,
        meta_level=args.meta_level,
        meta_size=len(text),
        max_meta_size=args.effective_max_meta_size(len(text)),
        meta_comp_size=len(stored),
    )
    room = header.max_meta_size - len(stored)
    if room < 0:
        raise MetadataSectionTooSmall(
            "metadata section is too small to contain the metadata "
            "required: %d allocated: %d" % (len(stored), header.max_meta_size)
        )
    digest = CHECKSUMS_LOOKUP[header.meta_checksum](stored)
    return Section(header.encode() + stored, room, digest, metadata)


def check_metadata_header(header: MetadataHeader, limit: int | None = None) -> None:
    """Raise `FormatError` if the header breaks a rule of the format or the limit.

    `limit` is the maximum size in bytes of the decompressed metadata, by default
    `DEFAULT_METADATA_LIMIT` of the stored size.
    """
    limit = DEFAULT_METADATA_LIMIT(header.meta_comp_size) if limit is None else limit
    nbytes = max(header.meta_size, header.meta_comp_size)
    if header.magic_format not in SERIALIZERS_LOOKUP:
        expected = " or ".join(repr(name) for name in SERIALIZERS_LOOKUP)
        problem = "format must be %s, not %r" % (expected, header.magic_format)
    elif header.meta_options != "00000000":
        problem = "options must be '00000000', not '%s'" % header.meta_options
    elif header.user_codec:
        problem = "need the user codec %r, which is not known" % header.user_codec
    elif header.meta_comp_size > header.max_meta_size:
        sizes = header.meta_comp_size, header.max_meta_size
        problem = "take '%d' bytes, but the room for them is '%d'" % sizes
    elif nbytes > limit:
        sizes = limit, nbytes
        problem = "decompress to more than '%d' bytes: their header says '%d'" % sizes
    else:
        return
    raise metadata_damage("the metadata " + problem)


def decode_metadata(
    header: MetadataHeader,
    stored: bytes,
    digest: bytes,
    limit: int | None = None,
    max_values: int | None = None,
) -> Json:
    """Return the value of the text `stored`, after checking its digest.

    Call `check_metadata_header` first. `max_values` is the maximum number of values and
    keys, by default `DEFAULT_METADATA_VALUES` of the stored size.

    Raises `ChecksumMismatch`, or another `FormatError` if the text contradicts the
    header, is not JSON, has too many values, or exceeds `limit`.
    """
    expected = CHECKSUMS_LOOKUP[header.meta_checksum](stored)
    if digest != expected:
        raise ChecksumMismatch(
            "Checksum mismatch detected in metadata expected: %s, received: %s"
            % (digest.hex(), expected.hex()),
            section="metadata",
        )
    limit = DEFAULT_METADATA_LIMIT(len(stored)) if limit is None else limit
    text = CODECS_LOOKUP[header.meta_codec].decompress(stored, limit)
    if len(text) != header.meta_size:
        raise metadata_damage(
            "the metadata have '%d' bytes, but their header says '%d'"
            % (len(text), header.meta_size)
        )
    if log.enabled(log.VERBOSE):
        kind = "uncompressed" if header.meta_codec == "None" else "compressed"
        log.verbose("read %s metadata of size: '%d'" % (kind, len(stored)))
    if max_values is None:
        max_values = DEFAULT_METADATA_VALUES(len(stored))
    return SERIALIZERS_LOOKUP[header.magic_format].loads(text, max_values)


def encode_again(
    metadata: object, old_metadata: object, old_header: MetadataHeader
) -> Section:
    """Return a section of the same size that replaces the section with `old_header`.

    Raises `NoChangeInMetadata` if the values are equal, and `MetadataSectionTooSmall`
    if the reserved space is smaller than the stored text.
    """
    from ..args import MetadataArgs

    dumps = SERIALIZERS_LOOKUP[old_header.magic_format].dumps
    # Compare the texts too: 1 == True in Python.
    if metadata == old_metadata and dumps(metadata) == dumps(old_metadata):
        raise NoChangeInMetadata(
            "you requested to update metadata, but this has not changed"
        )
    args = MetadataArgs(
        magic_format=old_header.magic_format,
        meta_checksum=old_header.meta_checksum,
        meta_codec=DEFAULT_META_CODEC,
        meta_level=DEFAULT_META_LEVEL,
        max_meta_size=old_header.max_meta_size,
    )
    return encode_section(metadata, args)


# The offset table: the file position of every chunk, followed by free entries


def encode_offsets(offsets: Iterable[int]) -> bytes:
    """Return the bytes of a table with these entries, eight bytes per entry."""
    entries = tuple(offsets)
    return struct.pack("<%dq" % len(entries), *entries)


def decode_offsets(table: bytes) -> list[int]:
    """Return the entries in `table`; raises `FormatError` if the last is incomplete."""
    if len(table) % OFFSET_LENGTH:
        raise DamageError(
            "expected an offset table of a multiple of '%d' bytes, found '%d'"
            % (OFFSET_LENGTH, len(table)),
            section="offsets",
        )
    return list(struct.unpack("<%dq" % (len(table) // OFFSET_LENGTH), table))


def free_entries(count: int) -> bytes:
    """Return the bytes of `count` free entries."""
    return b"\xff" * (OFFSET_LENGTH * count)


def is_plausible_table(table: bytes, first: int, stop: int, smallest: int) -> bool:
    """Return whether a table may be that of chunks between `first` and `stop`.

    The first chunk starts at `first`, and every chunk takes at least `smallest` bytes.
    """
    # Blosc has imported NumPy. It compares a million entries in about a millisecond.
    import numpy

    entries = numpy.frombuffer(table, "<i8")
    if entries[0] != first or entries[-1] > stop - smallest:
        return False
    for i in range(0, len(entries), AT_A_TIME):
        some = entries[i : i + AT_A_TIME + 1]
        if some.min() < first or some.max() > stop:
            return False
        # Differences of valid entries do not overflow.
        if (some[1:] - some[:-1] < smallest).any():
            return False
    return True


def check_offsets(offsets: Sequence[int], true_offsets: Sequence[int]) -> None:
    """Raise `FormatError` unless `offsets` has the positions in `true_offsets`."""
    for i, (found, expected) in enumerate(zip(offsets, true_offsets, strict=False)):
        if found != expected:
            raise DamageError(
                "the offset table says that chunk %d starts at byte %d, but it "
                "starts at byte %d" % (i, found, expected),
                section="offsets",
                chunk=i,
            )
