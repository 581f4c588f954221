"""Chunks of Blosc 1: compressed, decompressed, and read from start to end of a file.

This is the only module that calls Blosc. Every size is checked before that. The calls
happen inside `own_settings`, so that the compressed bytes do not depend on the number
of threads or on the settings that the process gave to Blosc; decompressing some chunks
does not need them (`needs_settings`).

A *frame* is a chunk with the digest behind it (docs/format.rst, Chunks). Frames are
read through a `Cursor`; errors name the chunk and its position in the file.
"""

from __future__ import annotations

from .._engine.blosc_settings import own_settings
from ..constants import (
    BLOSC_HEADER_LENGTH,
    BLOSCPACK_HEADER_LENGTH,
    MAX_BUFFERSIZE,
    METADATA_HEADER_LENGTH,
    OFFSET_LENGTH,
)
from ..exceptions import (
    ChecksumLengthMismatch,
    ChecksumMismatch,
    DamageError,
    FormatError,
    Unsupported,
    install_hint,
)
from ..headers import decode_header as decode_file_header
from .block_table import BlockRow, blocks_of
from .blosc_header import (
    BLOCK_SIZE,
    BLOCK_START_LENGTH,
    BLOSC_CODEC_SHIFT,
    BLOSC_FLAG_SPLIT,
    BLOSC_HEADER,
    PLAIN_SIZE,
    BloscHeader,
    check_plain_size,
    chunk_damage,
    decode_block_starts,
    decode_header,
    encode_block_starts,
    is_like_last,
    locating_chunk,
    unpack_header,
)
from .codecs import CODECS
from .crc32c import crc32c
from .sections import check_limit, stored_section_size

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from .._storage.cursor import Cursor
    from .._types import Buffer
    from ..args import BloscArgs, Limits
    from ..checksums import Hash
    from ..headers import BloscpackHeader
    from .automatic import Setting

    # Returns the spans of those plain bytes of a chunk that are needed, ascending.
    Part = Callable[[], Iterable[tuple[int, int]]]


# Maximum plain size in bytes of a chunk that may need no settings.
MAX_QUICK = 2**16
# Settings that Blosc has checked. It checks all arguments again for each chunk, which
# takes a part of the time of a small one; its C functions check none, and may crash.
_accepted: set[tuple[object, ...]] = set()


def plain_size(compressed: Buffer) -> int:
    """Return the number of plain bytes that a chunk states."""
    nbytes: int = PLAIN_SIZE.unpack_from(compressed)[0]
    return nbytes


def check_digest(compressed: Buffer, digest: Buffer, checksum: Hash) -> None:
    """Check that `digest` is the digest of the chunk `compressed`.

    Raises `ChecksumLengthMismatch` or `ChecksumMismatch`.
    """
    expected = checksum(compressed)
    if len(digest) != len(expected):
        raise ChecksumLengthMismatch(
            "expected a digest of '%d' bytes (%s), found '%d'"
            % (checksum.size, checksum.name, len(digest)),
            section="chunks",
        )
    if expected != digest:
        raise ChecksumMismatch(
            "Checksum mismatch detected in chunk, expected: %s, received: %s"
            % (bytes(digest).hex(), expected.hex()),
            section="chunks",
        )


def verified_chunk(frame: memoryview, checksum: Hash, nbytes: int) -> memoryview:
    """Return the chunk of `nbytes` plain bytes in a frame.

    Raises `FormatError` unless its digest and its header are right.
    """
    chunk, size = frame, checksum.size
    if size:
        chunk, digest = frame[:-size], frame[-size:]
        if checksum.function(chunk) != digest:
            check_digest(chunk, digest, checksum)
    if not is_like_last(chunk, nbytes):
        check_plain_size(_check_whole(chunk, None), nbytes)
    return chunk


def cut_off(expected: int, found: int) -> DamageError:
    """Return the error for a chunk and its digest of which `found` bytes are there."""
    return chunk_damage(
        "the file ends too early: expected a chunk and its digest of '%d' bytes, "
        "found '%d'" % (expected, found)
    )


def is_intact(content: Buffer, header: BloscHeader, checksum: Hash) -> bool:
    """Return whether `content` is a chunk and its digest, without damage.

    Without digests, a chunk counts as intact if Blosc decompresses it. `header` is the
    decoded header of the chunk.
    """
    if len(content) != header.ctbytes + checksum.size:
        return False
    compressed, digest = content[: header.ctbytes], content[header.ctbytes :]
    if checksum.size:
        return checksum(compressed) == digest
    try:
        with own_settings:
            decompress(compressed, header)
    except FormatError:
        return False
    return True


def compress(plain: Buffer, blosc_args: BloscArgs | Setting) -> bytes:
    """Return `plain` compressed to one chunk. Enter `own_settings` first."""
    settings = (
        blosc_args.typesize,
        blosc_args.clevel,
        int(blosc_args.shuffle),
        blosc_args.cname,
    )
    if own_settings.blocksize != blosc_args.blocksize:
        own_settings.use_blocksize(int(blosc_args.blocksize))
    compressed: bytes
    if settings in _accepted and len(plain) <= MAX_BUFFERSIZE:
        compressed = own_settings.functions.compress(plain, *settings)
    else:
        compressed = own_settings.blosc.compress(plain, *settings)
        _accepted.add(settings)
    return in_block_order(compressed) if own_settings.disordered else compressed


def in_block_order(compressed: bytes) -> bytes:
    """Return the chunk with its blocks in the order in which one thread writes them.

    Several threads of Blosc write the blocks in any order. Every block ends where
    another block, or the chunk, ends: the block table has only the starts.
    """
    header = unpack_header(compressed)
    if header.is_copy or header.nblocks <= 1:
        return compressed
    view = memoryview(compressed)
    starts = decode_block_starts(view[BLOSC_HEADER_LENGTH : header.table_end])
    ordered = sorted(starts)
    if list(starts) == ordered:
        return compressed
    ends = dict(zip(ordered, [*ordered[1:], header.ctbytes], strict=True))
    position = header.table_end
    new_starts, blocks = [], []
    for start in starts:
        blocks.append(view[start : ends[start]])
        new_starts.append(position)
        position += ends[start] - start
    return b"".join((header.raw, encode_block_starts(new_starts), *blocks))


def _check_whole(compressed: Buffer, known: BloscHeader | None) -> BloscHeader:
    # The file may have changed between reading the header and reading the chunk.
    if known is not None and compressed[:BLOSC_HEADER_LENGTH] == known.raw:
        header = known
    else:
        header = decode_header(compressed)
        if known is not None:  # its size has been checked
            check_plain_size(header, known.nbytes)
    if header.ctbytes != len(compressed):
        raise chunk_damage(
            "expected a Blosc chunk of '%d' bytes, found '%d'"
            % (header.ctbytes, len(compressed))
        )
    return header


def decompress(compressed: Buffer, known: BloscHeader | None = None) -> bytes:
    """Return the plain bytes of a chunk. Enter `own_settings` first.

    `known` is its header, if it was decoded before. Raises `FormatError` if
    the chunk is damaged or its codec is missing.
    """
    header = _check_whole(compressed, known)
    try:
        plain: bytes = own_settings.functions.decompress(compressed, False)
    except Exception as error:  # Blosc raises its own error, ValueError or MemoryError
        return _decompress_without_blosc(compressed, None, header, error)
    return plain


def decompress_into(
    compressed: Buffer, destination: memoryview, known: BloscHeader | None = None
) -> None:
    """Write the plain bytes of a chunk to `destination`. Enter `own_settings` first.

    `known` is its header, if it was decoded before. Raises `FormatError` if the chunk
    is damaged, its codec is missing, or its plain size is not that of `destination`,
    whose content is then undefined.
    """
    check_plain_size(_check_whole(compressed, known), destination.nbytes)
    decompress_verified(compressed, destination)


def needs_settings(chunk: Buffer, nbytes: int) -> bool:
    """Return whether to enter `own_settings` to decompress a chunk of `nbytes` bytes.

    One thread decompresses a single block, whatever the settings. If it is short, and
    the codec fast, releasing the GIL for it would be of no use.
    """
    is_single = nbytes <= MAX_QUICK and BLOCK_SIZE.unpack_from(chunk)[0] >= nbytes
    is_fast = chunk[2] < 2 << BLOSC_CODEC_SHIFT  # blosclz and lz4
    return not (is_single and is_fast) or own_settings.functions is None


def decompress_verified(
    compressed: Buffer, destination: memoryview, part: Part | None = None
) -> bool:
    """Write the plain bytes of a chunk whose header and sizes were checked.

    `part` returns the spans of the bytes that are needed: if they are in at most half
    of the blocks, Blosc gets chunks of these blocks alone, and the other bytes are
    undefined. These chunks are made in `compressed` during the call, if that is
    writable: no other thread may use it.

    Return whether all bytes were written. Enter `own_settings` first, if the chunk
    `needs_settings`. Raises `FormatError` if the chunk is damaged, or its codec is
    missing; the content of `destination` is undefined then.
    """
    if not len(destination):
        return True
    if (
        part is not None
        and BLOCK_SIZE.unpack_from(compressed)[0] < len(destination)
        and _decompress_part(compressed, destination, part)
    ):
        return False
    ctypes = own_settings.ctypes
    try:
        own_settings.functions.decompress_ptr(
            compressed, ctypes.addressof(ctypes.c_char.from_buffer(destination))
        )
    except Exception as error:  # Blosc raises its own error, ValueError or MemoryError
        header = unpack_header(compressed)
        _decompress_without_blosc(compressed, destination, header, error)
    return True


def _decompress_part(compressed: Buffer, destination: memoryview, part: Part) -> bool:
    """Write the plain bytes in spans of a chunk to their positions in `destination`.

    Return whether this was possible, and worth it.
    """
    header = unpack_header(compressed)
    runs = blocks_of(part(), header.blocksize, header.nblocks)
    if not runs:
        return False
    if header.is_copy:
        for first, after in runs:
            start = first * header.blocksize
            stop = min(after * header.blocksize, header.nbytes)
            stored = memoryview(compressed)[BLOSC_HEADER_LENGTH:]
            destination[start:stop] = stored[start:stop]
        return True
    return all(
        _decompress_blocks(memoryview(compressed), destination, header, first, after)
        for first, after in runs
    )


def _decompress_blocks(
    chunk: memoryview,
    destination: memoryview,
    header: BloscHeader,
    first: int,
    after: int,
) -> bool:
    """Decompress the blocks [first, after) of a chunk; return whether it can be done.

    They may be in any order; each one ends where another block starts, or the chunk
    ends.
    """
    table_end = header.table_end
    table = BLOSC_HEADER_LENGTH + BLOCK_START_LENGTH * first
    table_stop = BLOSC_HEADER_LENGTH + BLOCK_START_LENGTH * (after + 1)
    starts = decode_block_starts(chunk[table : min(table_stop, table_end)])
    wanted = starts[: after - first]
    low, end = min(wanted), header.ctbytes
    if max(wanted) < starts[-1]:
        end = starts[-1]
    if not table_end <= low < end <= header.ctbytes:
        return False
    head = _head_of_blocks(header, first, wanted, low, end)
    if chunk.readonly:
        blocks = memoryview(b"".join((head, chunk[low:end])))
        return _decompress_to(blocks, destination, first * header.blocksize)
    # The blocks stay where they are: copying them may take longer.
    begin = chunk[low - len(head) : low]
    saved = bytes(begin)
    begin[:] = head
    try:
        blocks = chunk[low - len(head) : end]
        return _decompress_to(blocks, destination, first * header.blocksize)
    finally:
        begin[:] = saved


def _head_of_blocks(
    header: BloscHeader, first: int, starts: Sequence[int], low: int, end: int
) -> bytes:
    """Return header and block table of a chunk of blocks of another chunk.

    They start there, from block `first` on, and are in the bytes [low, end) of it.
    """
    after = first + len(starts)
    nbytes = min(after * header.blocksize, header.nbytes) - first * header.blocksize
    # A last block that is shorter than the others is never split.
    is_short = nbytes < header.blocksize
    moved = BLOSC_HEADER_LENGTH + BLOCK_START_LENGTH * len(starts)
    head = BLOSC_HEADER.pack(
        header.version,
        header.versionlz,
        header.flags | (BLOSC_FLAG_SPLIT if is_short else 0),
        header.typesize,
        nbytes,
        min(header.blocksize, nbytes),
        moved + end - low,
    )
    return head + encode_block_starts([start - low + moved for start in starts])


def _decompress_to(chunk: memoryview, destination: memoryview, position: int) -> bool:
    """Decompress a chunk to a position; return False if Blosc refuses it.

    The plain bytes that its header states must have room there.
    """
    ctypes = own_settings.ctypes
    address = ctypes.addressof(ctypes.c_char.from_buffer(destination, position))
    try:
        own_settings.functions.decompress_ptr(chunk, address)
    except Exception:  # decompressing the whole chunk gives the reason
        return False
    return True


def read_blocks(
    read: Callable[[memoryview, int], int],
    room: Callable[[int], memoryview],
    row: BlockRow,
    runs: Sequence[tuple[int, int]],
    destination: memoryview,
) -> bool:
    """Read, verify and decompress runs of blocks of a chunk.

    `row` is the row of the chunk in the table of blocks. `read` fills memory from a
    position in the chunk, and returns the number of bytes; `room` returns memory of a
    size. The plain bytes go to their positions in `destination`, which has the plain
    size of the chunk.
    Enter `own_settings` first.

    Return whether it was done: if not, reading the whole chunk gives the reason.
    """
    header, ends, digests = row.header, row.ends, row.digests
    size = header.blocksize
    for first, after in runs:
        # The digest of block 0 covers the header and the block table in front of it.
        low, crc, skip = 0, 0, row.start
        if first:
            low, crc, skip = ends[first - 1], digests[first - 1], 0
        end, spare = ends[after - 1], row.start  # for another header in front
        memory = room(spare + end - low)
        view = memory[spare:]
        if read(view, low) < end - low or crc32c(view, crc) != digests[after - 1]:
            return False
        begin = spare + skip
        if header.is_copy:
            stop = min(after * size, header.nbytes)
            destination[first * size : stop] = memory[begin:]
            continue
        starts = low + skip, *ends[first : after - 1]
        head = _head_of_blocks(header, first, starts, low + skip, end)
        memory[begin - len(head) : begin] = head
        if not _decompress_to(memory[begin - len(head) :], destination, first * size):
            return False
    return True


def _decompress_without_blosc(
    compressed: Buffer,
    destination: memoryview | None,
    header: BloscHeader,
    refusal: Exception,
) -> bytes:
    """Decompress a chunk that Blosc refused, with the extra that knows its codec.

    Return the plain bytes, none if they were written to `destination`. Raises
    `FormatError` if there is no such extra, or if the chunk is damaged.
    """
    from .._engine.prealloc import BytesUnderConstruction
    from ..constants import CNAME_AVAIL
    from . import snappy

    cause = refusal
    if header.codec not in CNAME_AVAIL:
        extra = CODECS[header.codec].extra
        library = snappy.find_codec() if extra == "snappy" else None
        if library is None:
            hint = "" if extra is None else "; %s" % install_hint(extra)
            raise Unsupported(
                "the chunk needs the codec '%s', which this Blosc lacks (it has %s)%s"
                % (header.codec, ", ".join(CNAME_AVAIL), hint),
                section="chunks",
            ) from refusal
        if not isinstance(refusal, MemoryError):
            try:
                if destination is not None:
                    snappy.decompress_into(compressed, destination, header, library)
                    return b""
                made = BytesUnderConstruction(header.nbytes)
                snappy.decompress_into(compressed, made.view, header, library)
                return made.finish()
            except (ValueError, MemoryError) as error:
                cause = error
    message = "Blosc can't decompress the chunk: %s" % cause
    if isinstance(cause, MemoryError):
        message = "there is no memory for the chunk's '%d' plain bytes" % header.nbytes
    raise chunk_damage(message) from cause


# Frames


class Frame:
    """A chunk and its digest.

    ``number`` counts from 0. ``offset`` is the position of the chunk in the file,
    ``start`` the position of its plain bytes in the plain data of the file, ``header``
    its Blosc header. ``content`` is chunk and digest; ``read(frame)`` returns them if
    the thread that needs them reads them. ``memory`` is where the plain bytes belong,
    None if that is not known.
    """

    __slots__ = ("_content", "header", "memory", "number", "offset", "read", "start")

    def __init__(
        self, number: int, offset: int | None, start: int, header: BloscHeader
    ) -> None:
        self.number = number
        self.offset = offset
        self.start = start
        self.header = header
        self.memory: memoryview | None = None
        self.read: Callable[[Frame], tuple[Buffer, Buffer]] | None = None
        self._content: tuple[Buffer, Buffer] = b"", b""

    @property
    def content(self) -> tuple[Buffer, Buffer]:
        """Chunk and digest, valid until the same thread needs another chunk."""
        return self._content if self.read is None else self.read(self)

    @content.setter
    def content(self, content: tuple[Buffer, Buffer]) -> None:
        self._content = content


def verified(frame: Frame, checksum: Hash) -> tuple[Buffer, Buffer]:
    """Return a chunk and its digest; raise `FormatError` if they don't fit."""
    with locating_chunk(frame.number, frame.offset):
        content = frame.content
        check_digest(*content, checksum)
    return content


def plain_of(frame: Frame, checksum: Hash, compressed: Buffer | None = None) -> bytes:
    """Return the plain bytes of a chunk, once it is verified.

    `compressed` is the chunk if it was verified before. Enter `own_settings` first.
    Raises `FormatError` if the chunk is damaged.
    """
    if compressed is None:
        compressed, _ = verified(frame, checksum)
    with locating_chunk(frame.number, frame.offset):
        return decompress(compressed, frame.header)


def only_chunk(data: bytes) -> tuple[BloscpackHeader, bytes, bytes, BloscHeader] | None:
    """Return the parts of a file with one chunk, which is verified, for speed.

    They are the header, the metadata section, which is empty if there is none, the
    chunk, and its header. None for every other file, and for a damaged one: reading it
    step by step raises the error.
    """
    try:
        header = decode_file_header(data[:BLOSCPACK_HEADER_LENGTH], len(data))
        checksum, start = header.checksum_impl, BLOSCPACK_HEADER_LENGTH
        if header.metadata:
            size = stored_section_size(data[start : start + METADATA_HEADER_LENGTH])
            if not size:
                return None
            start += size
        section = data[BLOSCPACK_HEADER_LENGTH:start]
        if header.offsets:
            start += OFFSET_LENGTH * (1 + header.max_app_chunks)
        end = len(data) - checksum.size
        if header.nchunks != 1 or start >= end:
            return None
        chunk = data[start:end]
        known = decode_header(chunk)
        if known.nbytes != header.nbytes or known.ctbytes != end - start:
            return None
        check_digest(chunk, data[end:], checksum)
        return header, section, chunk, known
    except FormatError:
        return None


def frames_of(
    cursor: Cursor,
    header: BloscpackHeader,
    limits: Limits | None = None,
    *,
    with_content: bool = False,
) -> Iterator[Frame]:
    """Yield all frames in order; only the headers of the chunks are read, by default.

    The digests of the content are not checked. Raises `FormatError` if the size of a
    chunk contradicts the file header or exceeds the `limits`, and as `check_end` does.
    """
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
                check_limit(limits, start + chunk.nbytes, "chunks", offset)
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
    is_last = not cursor.peek(1)
    chunk_size, last_chunk = header.chunk_size, header.last_chunk
    found = nbytes or 0
    if is_last and last_chunk not in (-1, found):
        problem = "expected a last chunk of '%d' plain bytes, found '%d'"
        problem %= last_chunk, found
    # A last chunk of known size may be longer than the others in version 2.
    elif is_last and last_chunk == -1 and -1 < chunk_size < found:
        problem = "expected a chunk of at most '%d' plain bytes, found '%d'"
        problem %= chunk_size, found
    elif not is_last and nbytes is not None and chunk_size not in (-1, nbytes):
        problem = (
            "expected a chunk of '%d' plain bytes with others behind it, found '%d'"
            % (chunk_size, nbytes)
        )
    else:
        return is_last
    raise chunk_damage(problem, chunk=max(number - 1, 0))


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
        chunk = decode_header(cursor.peek_behind(BLOSC_HEADER_LENGTH))
    except FormatError:
        return
    if len(cursor.peek_behind(chunk.ctbytes)) == chunk.ctbytes:
        check_limit(limits, nbytes + chunk.nbytes, "chunks", cursor.position)


def starts_with_frame(peek: Callable[[int], Buffer], header: BloscpackHeader) -> bool:
    """Return whether a complete chunk with the right digest begins at a position.

    ``peek(size)`` returns `size` bytes from there on, fewer at the end of the file.
    """
    try:
        chunk = decode_header(peek(BLOSC_HEADER_LENGTH))
        content = peek(chunk.ctbytes + header.checksum_impl.size)
        return is_intact(content, chunk, header.checksum_impl)
    except (FormatError, MemoryError):
        return False


def frame_behind(header: BloscpackHeader, offset: int) -> FormatError:
    """Return the error for a complete frame at `offset`, behind the last chunk."""
    return chunk_damage(
        "the header states the number of chunks '%d', but another chunk follows the "
        "last one" % header.nchunks,
        chunk=header.nchunks,
        offset=offset,
    )


def read_chunk_header(cursor: Cursor, header: BloscpackHeader, i: int) -> BloscHeader:
    """Return the header of chunk `i`, which starts at the cursor, without moving."""
    head = cursor.peek(BLOSC_HEADER_LENGTH)
    if len(head) < BLOSC_HEADER_LENGTH:
        cursor.read_exactly(BLOSC_HEADER_LENGTH, "a chunk header", "chunks")
    chunk = decode_header(head)
    expected = header.expected_nbytes(i)
    if expected is not None and expected != chunk.nbytes:
        check_plain_size(chunk, expected)  # raises
    return chunk
