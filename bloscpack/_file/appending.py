"""Append chunks to a file and replace its metadata: read, plan, write, commit.

All checks come before the first write. Their time does not grow with the data: the
entries of the offset table are compared with each other, and the headers of the last
two chunks with the last two entries; the digest of the last chunk is verified. Only if
these contradict each other are the headers of all chunks read, to find the reason. All
writes belong to one `undo.FileChange`: after a failure the file has its old bytes.

In a file without an offset table, or whose header does not state its chunks, the chunks
are found by their headers, and the new header states them.

If a file has no room for the new chunks or the new metadata, a copy with more room
replaces it. The new chunks are appended to the copy before the copy replaces the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from operator import index
from typing import TYPE_CHECKING, Any

from .. import log
from .._commit.locking import LockedFile
from .._commit.undo import FileChange, FileObjectTarget, changeable
from .._engine.blosc_settings import own_settings
from .._engine.threads import ordered
from .._format.append_plan import (
    UNCHANGED,
    ChunksDiffer,
    NotInPlace,
    grown_header,
    plan_metadata,
    stating_chunks,
)
from .._format.array_metadata import Description, new_array
from .._format.block_table import BlockRow, raw_row
from .._format.blosc_header import locating_chunk
from .._format.chunks import (
    check_digest,
    compress,
    decompress,
    frames_of,
    plain_size,
    read_chunk_header,
)
from .._format.grid import Grid
from .._format.sections import (
    SMALLEST_CHUNK,
    Beginning,
    Section,
    check_offsets,
    decode_offsets,
    encode_offsets,
    is_plausible_table,
    read_beginning,
)
from .._format.shard import Trailer, find_table, inner_size, row_nbytes, trailer_of
from .._storage.base import bytes_left, read_up_to
from .._storage.cursor import Cursor, StorageCursor
from .._storage.local import whole_file
from .._storage.stream import sampled
from .._types import BinaryFile, Buffer, Json, Readable
from ..abstract_io import Progress, effective_nthreads
from ..args import (
    BLOSC_ARGS,
    AnyBloscArgs,
    BloscArgs,
    BloscKeywords,
    fit_settings,
    goal_of,
    known_settings,
    parse_chunk_size,
    settings_from,
)
from ..checksums import Hash
from ..constants import BLOSCPACK_HEADER_LENGTH, FORMAT_VERSION, OFFSET_LENGTH
from ..defaults import (
    DEFAULT_CHUNK_SIZE,
    DEFAULT_MAGIC_FORMAT,
    DEFAULT_MAX_APP_CHUNKS,
    DEFAULT_MAX_META_SIZE,
    DEFAULT_TYPESIZE,
)
from ..exceptions import (
    FormatError,
    FormatVersionMismatch,
    MetadataSectionTooSmall,
    NoMetadataFound,
    NotEnoughSpace,
    OffsetsRequired,
    StorageError,
    UsageError,
    UsageTypeError,
)
from ..headers import BloscpackHeader
from ..pretty import double_pretty_size
from ..serializers import (
    SERIALIZERS_LOOKUP,
    is_array,
    is_grid,
    is_shard,
    replaced_metadata,
)
from .repacking import (
    Settings,
    Survey,
    bytes_behind,
    check_no_text,
    log_dropped,
    repack_fp,
    rewrite,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

# What a copy of the file with more room makes possible.
NO_ROOM = (
    ChunksDiffer,
    FormatVersionMismatch,
    MetadataSectionTooSmall,
    NoMetadataFound,
    NotEnoughSpace,
    NotInPlace,
)
# A file that is changed in place.
Target = FileObjectTarget | LockedFile

# Number of bytes by which the metadata of an array may get longer when its shape grows.
MORE_DIGITS = 20
# Size in bytes of small chunks. A file that began with a few rows has them; a copy with
# more room gets larger ones.
SMALL_CHUNK = 64 * 2**10
# Number of unused bytes behind the last chunk from which they are cut off before a
# change: a change keeps in memory what it writes over them.
MAX_UNUSED = 16 * 2**20
# Minimum number of bytes in new chunks, besides the last chunk that is filled up, for
# which threads are started: starting one takes longer than compressing less.
WORTH_THREADS = 64 * 2**10


class AppendSettings:
    """The settings of an append; `bloscpack.append.append_from` documents them."""

    def __init__(
        self,
        blosc_args: AnyBloscArgs | None,
        *,
        accept: Callable[[Json], object] | None = None,
        auto: bool | str = False,
        metadata: object = UNCHANGED,
        nthreads: int | None = None,
        progress: Progress | None = None,
        expect: Callable[[int], object] | None = None,
        needs_offsets: bool = False,
        **settings: Unpack[BloscKeywords],
    ) -> None:
        self.blosc_args = blosc_args
        self.accept = accept
        self.settings: dict[str, object] = {**settings, "auto": auto}
        self.metadata = metadata
        self.nthreads = nthreads
        self.progress = progress
        self.expect = expect
        self.needs_offsets = needs_offsets


# Chunks


def append_locked(
    locked_file: LockedFile,
    new_content_fp: Readable,
    new_size: int,
    how: AppendSettings,
    grow: bool,
) -> None:
    """Append bytes of a file object to a file that is locked.

    With `grow`, a copy with more room replaces a file that has no room for them.
    """
    old_size = locked_file.size
    log.verbose("orig file size before append: %s" % double_pretty_size(old_size))
    log.verbose("new file size: %s" % double_pretty_size(new_size))
    try:
        append_chunks(locked_file, new_content_fp, new_size, how)
    except NO_ROOM as error:  # nothing has been read of the new content
        if not grow and not isinstance(error, NotInPlace):
            raise
        _append_to_copy(locked_file, new_content_fp, new_size, how)
    size = locked_file.size
    log.verbose("orig file size after append: %s" % double_pretty_size(size))
    ratio = (size - old_size) / max(new_size, 1)
    log.verbose("Approximate compression ratio of appended data: %f" % ratio)


def append_chunks(
    target: Target, new_content_fp: Readable, new_size: int, how: AppendSettings
) -> int:
    """Append bytes of a file object; return by how many chunks the file has grown."""
    new_size, fp = checked_size(new_size), target.fp
    # Read and check the old file.
    beginning, boundaries, rows = _read_appendable(target, how)
    old, metadata = beginning.header, beginning.metadata
    args = _effective_args(how, old, new_content_fp, new_size)
    # Plan, without reading or writing.
    inner_nbytes = inner_size(metadata, old)
    header, first = grown_header(old, metadata, new_size)
    added = header.nchunks - old.nchunks
    if is_grid(metadata) and new_size and not (old.offsets and beginning.table):
        raise NotEnoughSpace(
            "an array in chunks of every axis can't grow in place without an offset "
            "table"
        )
    if old.offsets and added > old.max_app_chunks:
        raise NotEnoughSpace(
            "not enough space: '%d' chunks are to be appended, but the offset table "
            "has room for '%d'" % (added, old.max_app_chunks)
        )
    header.max_app_chunks = old.max_app_chunks - added if old.offsets else 0
    section = plan_metadata(beginning, new_size, how.metadata)
    new_metadata = metadata if section is None else section.value
    nentries = old.nchunks + old.max_app_chunks - first
    table_offset = boundaries[0] - OFFSET_LENGTH * nentries
    # There may be no boundaries but the first one and the last two.
    chunks_offset = boundaries[first - old.nchunks - 1]
    # Read the chunks that are not full.
    total = unused = 0
    chunks: Iterator[Buffer] = iter(())
    if new_size:
        what = "appending would destroy"
        unused = bytes_behind(fp, boundaries[-1], old, metadata, what)
        numbers = range(first, old.nchunks)
        old_chunks = [_read_chunk(fp, old, boundaries, i) for i in numbers]
        if is_grid(metadata):
            total = (header.nchunks - first) * header.chunk_size
            described = Description(metadata), Description(new_metadata)
            chunks = _grid_chunks(new_content_fp, old_chunks, *described)
        else:
            front = b"".join(old_chunks)
            total = len(front) + new_size
            chunks = _plain_chunks(new_content_fp, front, total, header.chunk_size)
    elif section is None:
        fp.seek(0, os.SEEK_END)
        return 0
    if how.expect is not None:
        how.expect(total)
    encoded, trailer = header.encode(), None
    log_dropped(unused, getattr(target, "path", None))
    if unused > MAX_UNUSED:
        fp.truncate(fp.seek(-unused, os.SEEK_END))
    if inner_nbytes is not None:
        trailer = trailer_of(inner_nbytes, header, new_metadata)
        trailer.makes_rows = False  # new chunks may have other blocks than the table
        for number, (start, stop) in enumerate(pairwise(boundaries[: first + 1])):
            trailer.add(start, stop, rows.get(number, b""))
    # Write.
    with target.change() as change:
        if section is not None:
            overwrite_section(change, section)
        if new_size:
            nthreads = effective_nthreads(how.nthreads, header.nchunks - first)
            if total - header.chunk_size < WORTH_THREADS:
                nthreads = 1
            work = partial(_compressed, args, header.checksum_impl)
            offsets = _write_chunks(
                change, chunks_offset, chunks, work, nthreads, how.progress, trailer
            )
            if header.offsets:
                change.overwrite(table_offset, encode_offsets(offsets))
            change.overwrite(0, encoded)
    # Leaving the block has committed the change.
    fp.seek(0, os.SEEK_END)
    return added


def _read_appendable(
    target: Target, how: AppendSettings
) -> tuple[Beginning, list[int], dict[int, bytes]]:
    """Return the sections of a file, boundaries and rows of its chunks.

    These are the start of the first chunk, then the end of each chunk with its digest;
    of them only the last two are certain to be there. The header states the chunks.
    The rows come from the table of blocks in a shard, by the number of their chunk.
    Raises an error unless the file can be appended to. A wrong entry of the offset
    table, or a damaged chunk before the last two, may remain undetected. In a shard all
    entries are compared with the chunks: the new index gets them.
    """
    target.fp.seek(0)
    cursor = Cursor(target.fp)
    beginning = read_beginning(cursor)
    check_no_text(beginning.metadata)
    if how.accept is not None:
        how.accept(beginning.metadata)
    header, metadata, first = beginning.header, beginning.metadata, cursor.position
    if header.format_version != FORMAT_VERSION:
        raise FormatVersionMismatch(
            "format version of file was not '%d' as expected, but '%d': files of this "
            "version can be read, but not appended to"
            % (FORMAT_VERSION, header.format_version),
            section="header",
        )
    if how.needs_offsets and beginning.table is None:
        raise OffsetsRequired(
            "Appending to a file without offsets is not yet supported"
        )
    boundaries, rows = None, dict[int, bytes]()
    is_stated = -1 not in (header.nchunks, header.chunk_size, header.last_chunk)
    is_trusted = header.offsets and is_stated and not is_grid(metadata)
    if is_trusted and inner_size(metadata, header) is None:
        boundaries = _find_last_chunk(cursor, beginning, first + (cursor.left() or 0))
    if boundaries is None:
        file, digest_size = whole_file(target.fp), header.checksum_impl.size
        table, slots = find_table(file, header, metadata)
        target.fp.seek(0)
        cursor = Cursor(target.fp)
        if table:  # one read for a digest and the header behind it
            cursor = StorageCursor(file, ahead=digest_size + SMALLEST_CHUNK)
        cursor.move(first)
        boundaries, sizes = [first], []
        for frame in frames_of(cursor, header):
            boundaries.append(cursor.position)
            sizes.append(frame.header.nbytes)
            if table:
                cursor.move(cursor.position - digest_size)
                proof = frame.header.raw + bytes(cursor.read(digest_size))
                row = raw_row(table, slots[frame.number], proof)
                of_chunk = frame.header.nbytes, frame.header.ctbytes
                if row and BlockRow.decode(row, *of_chunk):  # as readers check it
                    rows[frame.number] = row
        check_offsets(beginning.offsets or [], boundaries)
        if not is_stated:
            beginning.header = stating_chunks(header, sizes)
    _check_in_place(target, header)
    return beginning, boundaries, rows


def _check_in_place(target: Target, header: BloscpackHeader) -> None:
    """Raise `NotInPlace` if bytes behind the last chunk would be damage.

    A change in place writes there first. Without chunks nothing may follow the sections
    (H8), and the chunks of a file of unknown length end with the file. A change of a
    file object of the caller is not protected from crashes.
    """
    if isinstance(target, LockedFile) and header.nchunks in (0, -1):
        raise NotInPlace(
            "a file %s can't be changed in place"
            % ("of unknown length" if header.nchunks else "without chunks")
        )


def _find_last_chunk(
    cursor: Cursor, beginning: Beginning, size: int
) -> list[int] | None:
    """Return the start of the first chunk, and start and end of the last one.

    The cursor is at the first chunk of a file of `size` bytes. Only the headers of the
    last two chunks are read. Returns None if they contradict the offset table or the
    size of the file: then following all chunks finds the reason.
    """
    header = beginning.header
    first = cursor.position
    if not header.nchunks:
        return [first]
    table = beginning.table or b""
    digest = header.checksum_impl.size
    if not is_plausible_table(table, first, size, SMALLEST_CHUNK + digest):
        return None
    numbers = range(max(header.nchunks - 2, 0), header.nchunks)
    starts = decode_offsets(table[numbers[0] * OFFSET_LENGTH :])
    ends = []
    for number, start in zip(numbers, starts, strict=True):
        cursor.move(start)
        try:
            chunk = read_chunk_header(cursor, header, number)
        except FormatError:
            return None
        ends.append(start + chunk.ctbytes + digest)
    if [*starts[1:], size] != ends:
        return None
    return [first, ends[-1]] if header.nchunks == 1 else [first, starts[-1], ends[-1]]


def checked_size(new_size: int) -> int:
    """Return the number of bytes to append; raise `UsageError` if it is invalid."""
    try:
        size = index(new_size)
    except TypeError as error:
        raise UsageTypeError(
            "expected a number of bytes to append, found %r" % (new_size,)
        ) from error
    if size < 0:
        raise UsageError("the number of bytes to append can't be '%d'" % size)
    return size


def _effective_args(
    how: AppendSettings, header: BloscpackHeader, content_fp: Any, size: int
) -> BloscArgs:
    """Return a checked copy of the settings, with the type size of the file.

    With ``auto`` they fit the next `size` bytes of the content, which must be able to
    seek.
    """
    keywords, given, sample = dict(how.settings), how.blosc_args, None
    typesizes = (header.typesize,) if header.typesize else ()
    if goal_of(keywords["auto"]):
        if bytes_left(content_fp) is None:
            raise UsageError("'auto' needs new content that can seek")
        _, sample = sampled(content_fp, size)
    chunk_size = max(header.chunk_size, 1)
    _, given = fit_settings(keywords, chunk_size, given, sample, typesizes)
    fields = known_settings(keywords, BLOSC_ARGS)
    args = settings_from(BloscArgs, "blosc_args", given, fields, typesize=None).copy()
    if args.typesize is None:
        args.typesize = header.typesize or DEFAULT_TYPESIZE
    args.check()
    return args


def _read_chunk(
    fp: BinaryFile, header: BloscpackHeader, boundaries: list[int], number: int
) -> bytes:
    """Return the plain bytes of a chunk; verify its digest."""
    at = number - header.nchunks - 1
    start, end = boundaries[at], boundaries[at + 1]
    fp.seek(start)
    frame = read_up_to(fp, end - start)
    checksum = header.checksum_impl
    split = len(frame) - checksum.size
    compressed, digest = frame[:split], frame[split:]
    with own_settings, locating_chunk(number, start):
        check_digest(compressed, digest, checksum)
        return decompress(compressed)


def _plain_chunks(fp: Readable, front: bytes, total: int, size: int) -> Iterator[bytes]:
    """Yield `front` and the new content, `total` bytes in chunks of `size` bytes."""
    for start in range(0, total, size):
        yield front + _read_new(fp, min(size, total - start) - len(front))
        front = b""


def _read_new(fp: Readable, size: int) -> bytes:
    """Return the next bytes of the new content."""
    data = read_up_to(fp, size)
    if len(data) < size:
        raise StorageError(
            "the new content ends too early: '%d' bytes are missing"
            % (size - len(data))
        )
    return data


def _grid_chunks(
    fp: Readable, old_chunks: list[bytes], old: Description, new: Description
) -> Iterator[Buffer]:
    """Yield the chunks of a grid from the first one that has new rows on.

    `fp` has the new rows, `old_chunks` are the chunks whose rows are not full.
    """
    import numpy

    from ..numpy_io import GridSource, put_chunk

    assert old.grid is not None
    assert new.grid is not None
    (nrows, *inner), length = new.shape, new.grid.chunk[0]
    first = old.grid.nchunks - len(old_chunks)
    done = old.shape[0]
    for start in range(done - done % length, nrows, length):
        stop = min(start + length, nrows)
        rows = new_array((stop - start, *inner), new.dtype)
        for i, plain in enumerate(old_chunks, first):
            low, *others = old.grid.box(i)
            box = slice(0, low.stop - low.start), *others
            put_chunk(rows, box, plain, old.grid)
        fresh = rows[done - start :]
        data = numpy.frombuffer(_read_new(fp, fresh.nbytes), fresh.dtype)
        fresh[...] = data.reshape(fresh.shape)
        yield from GridSource(
            rows.__getitem__, Grid(rows.shape, new.grid.chunk, new.grid.per_shard)
        )
        old_chunks, done = [], stop


def _compressed(args: BloscArgs, checksum: Hash, plain: Buffer) -> tuple[bytes, bytes]:
    compressed = compress(plain, args)
    return compressed, checksum(compressed)


def _write_chunks(
    change: FileChange,
    end: int,
    chunks: Iterator[Buffer],
    work: Callable[[Buffer], tuple[bytes, bytes]],
    nthreads: int,
    progress: Progress | None,
    trailer: Trailer | None,
) -> list[int]:
    """Write the chunks over the old end of the file, from `end` on.

    Return their offsets. A shard also gets its `trailer`.
    """
    offsets: list[int] = []

    def deliver(chunk: tuple[bytes, bytes]) -> None:
        nonlocal end
        compressed, digest = chunk
        offsets.append(end)
        if trailer is not None:
            trailer.add_frame(end, compressed)
        change.overwrite(end, compressed)
        change.overwrite(end + len(compressed), digest)
        end += len(compressed) + len(digest)
        if progress is not None:
            progress(plain_size(compressed))

    with own_settings:
        ordered(chunks, work, deliver, nthreads)
    if trailer is not None:
        for block in trailer.blocks(end):
            change.overwrite(end, block)
            end += len(block)
    # The new chunks may take fewer bytes than the old end of the file.
    change.truncate(end)
    return offsets


# Metadata


def read_sections(target: Target) -> Beginning:
    """Return the sections of a file in front of its first chunk."""
    target.fp.seek(0)
    return read_beginning(Cursor(target.fp))


def replace_metadata(target: Target, metadata: object) -> None:
    """Replace the metadata in the space reserved for them."""
    beginning = read_sections(target)
    section = plan_metadata(beginning, 0, metadata)
    if section is None:
        return
    _check_in_place(target, beginning.header)
    with target.change() as change:
        overwrite_section(change, section)


def overwrite_section(change: FileChange, section: Section) -> None:
    """Write a metadata section over the one in the file."""
    position = BLOSCPACK_HEADER_LENGTH
    for block in section.blocks():
        change.overwrite(position, block)
        position += len(block)


def rewrite_or_grow(locked_file: LockedFile, metadata: object, grow: bool) -> None:
    """Replace the metadata; with `grow`, rewrite the file if there is no room."""
    try:
        replace_metadata(locked_file, metadata)
    except (NoMetadataFound, MetadataSectionTooSmall, NotInPlace) as error:
        if not grow and not isinstance(error, NotInPlace):
            raise
        with locked_file.replacement() as temporary:
            repack_fp(locked_file.fp, temporary.fp, metadata=metadata)


# Room


def _append_to_copy(
    locked_file: LockedFile,
    new_content_fp: Readable,
    new_size: int,
    how: AppendSettings,
) -> None:
    """Replace the file by a copy with more room, to which the bytes are appended.

    If there are too many chunks for the offset table, small ones become larger: the
    usual chunk size, or one chunk of all bytes.
    """
    old = Survey(locked_file.fp)
    header, metadata = old.header.copy(), old.metadata
    header.nchunks, header.chunk_size, header.last_chunk = old.geometry
    header.offsets = True
    wanted = _metadata_with_room(old.beginning, how.metadata)
    before, nbytes = header.nchunks, old.nbytes + new_size
    nchunks = grown_header(header, metadata, new_size)[0].nchunks
    is_full = nchunks - before > header.max_app_chunks
    size = inner_size(metadata, header) or header.chunk_size
    if is_full and 0 < size < min(SMALL_CHUNK, nbytes) and not is_grid(metadata):
        unit = 1
        if is_array(metadata):
            array = Description(metadata)
            unit = row_nbytes(array) if is_shard(metadata) else array.dtype.itemsize
        size = min(parse_chunk_size(DEFAULT_CHUNK_SIZE), nbytes) // unit * unit
        wanted["chunk_size"] = size
        before, nchunks = (-(-count // size) for count in (old.nbytes, nbytes))
    added = nchunks - before
    wanted["max_app_chunks"] = added + DEFAULT_MAX_APP_CHUNKS(nchunks)

    def planned(header: BloscpackHeader) -> None:
        if how.expect is not None:
            how.expect(old.nbytes + header.last_chunk + new_size)
            how.expect = None

    how.accept = None
    with locked_file.replacement() as temporary:
        rewrite(old, temporary.fp, wanted, planned, how.nthreads, how.progress)
        with changeable(temporary.fp) as target:
            append_chunks(target, new_content_fp, new_size, how)


def _metadata_with_room(old: Beginning, new: object) -> Settings:
    """Return the settings of a copy that has room for the metadata of an append."""
    if old.metadata_header is None and new is UNCHANGED:
        return {}
    serializer = SERIALIZERS_LOOKUP[DEFAULT_MAGIC_FORMAT]
    given = old.metadata if new is UNCHANGED else new
    wanted = serializer.dumps(replaced_metadata(old.metadata, given))
    # The shape of an array may get more digits.
    size = max(DEFAULT_MAX_META_SIZE(len(wanted)), len(wanted) + MORE_DIGITS)
    if old.metadata_header is None:
        # Any value; the append replaces it.
        return {"metadata": "" if new != "" else 0, "max_meta_size": size}
    return {"max_meta_size": max(size, old.metadata_header.max_meta_size)}
