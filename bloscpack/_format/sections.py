"""Read a file from start to end: header, metadata and offsets, then chunk by chunk.

All functions read through a `Cursor` and compare every size with the file before they
use it. Every error names the section, the chunk and the file position.
"""

from __future__ import annotations

from .. import log
from ..checksums import CHECKSUMS_LOOKUP
from ..constants import (
    BLOSC_HEADER_LENGTH,
    BLOSCPACK_HEADER_LENGTH,
    METADATA_HEADER_LENGTH,
    OFFSET_LENGTH,
)
from ..exceptions import DamageError, FormatError
from ..headers import (
    FIELD_OFFSETS,
    HEADER_LENGTHS,
    BloscpackHeader,
    MetadataHeader,
    decode_header,
)
from ..serializers import shard_rows
from . import offsets as offset_table
from .blosc_header import check_plain_size
from .blosc_header import decode_header as decode_chunk_header

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .._storage.protocols import Buffer
    from .._storage.stream import Cursor
    from ..args import Limits
    from ..serializers import Json
    from .blosc_header import BloscHeader

# Minimum size in bytes of a chunk: an empty chunk has only a header.
SMALLEST_CHUNK = BLOSC_HEADER_LENGTH


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
            self._offsets = offset_table.decode(self.table)
        return self._offsets


def read_beginning(cursor: Cursor, limits: Limits | None = None) -> Beginning:
    """Read the sections before the chunks; the cursor stops at the first chunk.

    Raises `FormatError` if they break a rule of docs/format.rst (Header, Metadata,
    Offsets) or exceed the `limits`.
    """
    beginning = Beginning(read_header(cursor))
    header = beginning.header
    if limits is not None:
        _check_limit(limits, header.nbytes or 0, "header", 0)
    if header.metadata:
        beginning.metadata, beginning.metadata_header = read_metadata(cursor, limits)
    # A file of unknown length has no offset table, whatever its options say.
    if header.offsets and header.nchunks != -1:
        beginning.table = _read_offsets(cursor, header)
        if log.enabled(log.DEBUG):
            log.debug("Offsets: %r", beginning.offsets)
    else:
        _check_nchunks(cursor, header)
    if header.nchunks == 0:
        _check_empty(cursor, header)
    return beginning


def read_header(cursor: Cursor) -> BloscpackHeader:
    """Read the header of a file of any layout."""
    prefix = bytes(cursor.peek(BLOSCPACK_HEADER_LENGTH))
    debugging = log.enabled(log.DEBUG)  # asked once: small files are read often
    if debugging:
        log.debug("reading bloscpack header")
        log.debug("bloscpack_header_raw: %r", prefix)
    header = decode_header(prefix, cursor.left())
    cursor.read_exactly(HEADER_LENGTHS[header.format_version], "a header", "header")
    if debugging:
        log.debug("bloscpack header: %r", header)
    return header


def _check_limit(limits: Limits, nbytes: int, section: str, offset: int) -> None:
    try:
        limits.check_nbytes(nbytes)
    except FormatError as error:
        error.section, error.offset = section, offset
        raise


def read_metadata(
    cursor: Cursor, limits: Limits | None = None
) -> tuple[Json, MetadataHeader]:
    """Read the metadata section."""
    from . import metadata as metadata_section  # most files have none

    start = cursor.position
    raw = bytes(
        cursor.read_exactly(METADATA_HEADER_LENGTH, "a metadata header", "metadata")
    )
    log.debug("raw metadata header: %r", raw)
    try:
        header = MetadataHeader.decode(raw)
        if log.enabled(log.DEBUG):
            log.debug(header.pformat())
        limit = max_values = None
        if limits is not None:
            limit = limits.effective_metadata(header.meta_comp_size)
            max_values = limits.effective_metadata_values(header.meta_comp_size)
        metadata_section.check_header(header, limit)
        stored = bytes(
            cursor.read_exactly(header.meta_comp_size, "metadata", "metadata")
        )
        room = header.max_meta_size - header.meta_comp_size
        cursor.skip(room, "the room behind the metadata", "metadata")
        size = CHECKSUMS_LOOKUP[header.meta_checksum].size
        digest = bytes(
            cursor.read_exactly(size, "the digest of the metadata", "metadata")
        )
        value = metadata_section.decode(header, stored, digest, limit, max_values)
        return value, header
    except FormatError as error:
        error.section = "metadata"
        error.offset = start if error.offset is None else error.offset
        raise


def _read_offsets(cursor: Cursor, header: BloscpackHeader) -> bytes:
    used = OFFSET_LENGTH * header.nchunks
    free = OFFSET_LENGTH * header.max_app_chunks
    left = cursor.left()
    if left is not None and left < used + free:
        raise DamageError(
            "the file ends too early: expected an offset table of '%d' bytes, "
            "found '%d'" % (used + free, left),
            section="offsets",
            offset=cursor.position,
        )
    # Check that the chunks can exist before allocating memory for their offsets.
    _check_nchunks(cursor, header, used + free)
    raw = bytes(cursor.read_exactly(used, "an offset table", "offsets"))
    cursor.skip(free, "the free entries of the offset table", "offsets")
    if log.enabled(log.DEBUG):
        log.debug("Read raw offsets: %r", raw)
    return raw


def _check_nchunks(cursor: Cursor, header: BloscpackHeader, ahead: int = 0) -> None:
    """Raise `FormatError` if the file is too short for its chunks, `ahead` bytes on."""
    left = cursor.left()
    left = None if left is None else left - ahead
    smallest = header.nchunks * (SMALLEST_CHUNK + header.checksum_impl.size)
    if left is not None and left < smallest:
        raise DamageError(
            "the file ends too early: expected '%d' chunks, which take at least '%d' "
            "bytes, found '%d'" % (header.nchunks, smallest, left),
            section="chunks",
            offset=cursor.position + ahead,
        )


def _check_empty(cursor: Cursor, header: BloscpackHeader) -> None:
    """Raise `FormatError` if bytes follow the sections of a file without chunks."""
    behind = bytes(cursor.peek_behind(1))
    cursor.restore()
    if behind:
        raise DamageError(
            "expected the end of a file without chunks, found more bytes",
            section="header",
            offset=FIELD_OFFSETS[header.format_version]["nchunks"],
        )


class Frame:
    """A chunk and its digest.

    ``number`` counts from 0. ``offset`` is the position of the chunk in the file,
    ``start`` the position of its plain bytes in the plain data of the file, ``header``
    its Blosc header. ``content`` is chunk and digest, None unless they were read.
    """

    __slots__ = ("content", "header", "number", "offset", "start")

    def __init__(
        self, number: int, offset: int | None, start: int, header: BloscHeader
    ) -> None:
        self.number = number
        self.offset = offset
        self.start = start
        self.header = header
        self.content: tuple[Buffer, Buffer] | None = None


def skip_frames(
    cursor: Cursor, header: BloscpackHeader, limits: Limits | None = None
) -> Iterator[Frame]:
    """Yield all frames in order; only the headers of the chunks are read.

    Raises `FormatError` if the size of a chunk contradicts the file header or exceeds
    the `limits`, and as `check_end` does.
    """
    return _each_frame(cursor, header, limits, with_content=False)


def read_frames(
    cursor: Cursor, header: BloscpackHeader, limits: Limits | None = None
) -> Iterator[Frame]:
    """Yield all frames in order, with content; the digests are not checked."""
    return _each_frame(cursor, header, limits, with_content=True)


def _each_frame(
    cursor: Cursor,
    header: BloscpackHeader,
    limits: Limits | None,
    *,
    with_content: bool,
) -> Iterator[Frame]:
    number = start = 0
    nbytes = None
    size = header.checksum_impl.size
    while number != header.nchunks:
        if header.nchunks == -1 and _ends(cursor, header, number, nbytes):
            return
        offset = cursor.position
        try:
            chunk = read_chunk_header(cursor, header, number)
            if limits is not None:
                _check_limit(limits, start + chunk.nbytes, "chunks", offset)
            frame = Frame(number, offset, start, chunk)
            if with_content:
                frame.content = (
                    cursor.read_exactly(chunk.ctbytes, "a chunk", "chunks"),
                    cursor.read_exactly(size, "a digest", "chunks"),
                )
            else:
                cursor.skip(chunk.ctbytes, "a chunk", "chunks")
                cursor.skip(size, "a digest", "chunks")
        except FormatError as error:
            error.locate(number, offset)
            raise
        yield frame
        nbytes = chunk.nbytes
        number += 1
        start += nbytes
    check_end(cursor, header, limits, start)


def _ends(
    cursor: Cursor, header: BloscpackHeader, number: int, nbytes: int | None
) -> bool:
    """Return whether a file of unknown length ends where chunk `number` would start.

    `nbytes` is the plain size of the previous chunk, None if there is none. Raises
    `FormatError` if a last chunk, or another than the last, must not have this size.
    """
    try:
        if not cursor.peek(1):
            _check_last(header, nbytes)
            return True
        if nbytes is not None:
            _check_full(header, nbytes)
    except FormatError as error:
        error.locate(max(number - 1, 0), None)
        raise
    return False


def check_end(
    cursor: Cursor,
    header: BloscpackHeader,
    limits: Limits | None = None,
    nbytes: int = 0,
) -> None:
    """Raise `FormatError` if a complete frame lies behind the last chunk (rule C7).

    The number of chunks in the header is then wrong. The cursor has passed the last
    chunk, and stays there. The chunks have `nbytes` plain bytes; another one must not
    exceed the `limits` if only decompressing it shows whether it is complete.
    """
    if cursor.left() == 0:
        return
    try:
        if limits is not None and not header.checksum_impl.size:
            _check_limit_behind(cursor, limits, nbytes)
        if starts_with_frame(cursor.peek_behind, header):
            raise frame_behind(header, cursor.position)
    finally:
        cursor.restore()


def _check_limit_behind(cursor: Cursor, limits: Limits, nbytes: int) -> None:
    try:
        chunk = decode_chunk_header(cursor.peek_behind(BLOSC_HEADER_LENGTH))
    except FormatError:
        return
    if len(cursor.peek_behind(chunk.ctbytes)) == chunk.ctbytes:
        _check_limit(limits, nbytes + chunk.nbytes, "chunks", cursor.position)


def starts_with_frame(peek: Callable[[int], Buffer], header: BloscpackHeader) -> bool:
    """Return whether a complete chunk with the right digest begins at a position.

    ``peek(size)`` returns `size` bytes from there on, fewer at the end of the file.
    """
    from .chunks import is_intact

    try:
        chunk = decode_chunk_header(peek(BLOSC_HEADER_LENGTH))
        content = peek(chunk.ctbytes + header.checksum_impl.size)
        return is_intact(content, chunk, header.checksum_impl)
    except (FormatError, MemoryError):
        return False


def frame_behind(header: BloscpackHeader, offset: int) -> FormatError:
    """Return the error for a complete frame at `offset`, behind the last chunk."""
    return DamageError(
        "the header states the number of chunks '%d', but another chunk follows the "
        "last one" % header.nchunks,
        section="chunks",
        chunk=header.nchunks,
        offset=offset,
    )


def find_last_chunk(
    cursor: Cursor, beginning: Beginning, size: int
) -> list[int] | None:
    """Return the start of the first chunk, and start and end of the last one.

    The cursor is at the first chunk of a file of `size` bytes. Only the headers of the
    last two chunks are read. Returns None if they contradict the offset table or the
    size of the file: then `walk_chunks` finds the reason.
    """
    header = beginning.header
    first = cursor.position
    if not header.nchunks:
        return [first]
    table = beginning.table or b""
    digest = header.checksum_impl.size
    smallest = SMALLEST_CHUNK + digest
    if not offset_table.is_plausible(table, first, size, smallest):
        return None
    numbers = range(max(header.nchunks - 2, 0), header.nchunks)
    starts = offset_table.decode(table[numbers[0] * OFFSET_LENGTH :])
    ends = []
    for number, start in zip(numbers, starts, strict=True):
        cursor.move(start)
        try:
            chunk = read_chunk_header(cursor, header, number)
        except FormatError:
            return None
        ends.append(start + chunk.ctbytes + digest)
    if ends[:-1] != starts[1:]:
        return None
    # The trailer of a shard begins where the last frame ends, as does nothing else.
    if ends[-1] != size and not _starts_trailer(cursor, beginning, ends[-1]):
        return None
    return [first, ends[-1]] if header.nchunks == 1 else [first, starts[-1], ends[-1]]


def _starts_trailer(cursor: Cursor, beginning: Beginning, end: int) -> bool:
    from .shard import SEPARATOR

    cursor.move(end)
    if shard_rows(beginning.metadata) is None:
        return False
    return bytes(cursor.peek(len(SEPARATOR))) == SEPARATOR


def walk_chunks(cursor: Cursor, header: BloscpackHeader) -> list[int]:
    """Return where the first chunk starts and where each chunk with digest ends."""
    ends = [cursor.position]
    ends += (cursor.position for _ in skip_frames(cursor, header))
    return ends


def read_chunk_header(cursor: Cursor, header: BloscpackHeader, i: int) -> BloscHeader:
    """Return the header of chunk `i`, which starts at the cursor, without moving."""
    head = cursor.peek(BLOSC_HEADER_LENGTH)
    if len(head) < BLOSC_HEADER_LENGTH:
        cursor.read_exactly(BLOSC_HEADER_LENGTH, "a chunk header", "chunks")
    chunk = decode_chunk_header(head)
    expected = header.expected_nbytes(i)
    if expected is not None:
        check_plain_size(chunk, expected)
    return chunk


def _check_full(header: BloscpackHeader, nbytes: int) -> None:
    if header.chunk_size != -1 and nbytes != header.chunk_size:
        raise DamageError(
            "expected a chunk of '%d' plain bytes with others behind it, found '%d'"
            % (header.chunk_size, nbytes),
            section="chunks",
        )


def _check_last(header: BloscpackHeader, nbytes: int | None) -> None:
    found = 0 if nbytes is None else nbytes
    if header.last_chunk not in (-1, found):
        raise DamageError(
            "expected a last chunk of '%d' plain bytes, found '%d'"
            % (header.last_chunk, found),
            section="chunks",
        )
    # A last chunk of known size may be longer than the others in layout 2.
    if header.last_chunk == -1 and -1 < header.chunk_size < found:
        raise DamageError(
            "expected a chunk of at most '%d' plain bytes, found '%d'"
            % (header.chunk_size, found),
            section="chunks",
        )
