"""Rewrite a file with other settings: survey the old one, plan, write the new one.

`Survey` reads the sections of the old file and the headers of all chunks: this finds
most damage before anything is written. If chunks of the same sizes with the same
compression are wanted, they are copied byte by byte; a file without digests is also
decompressed, to find damage. Otherwise the plain bytes are cut and compressed again.
Either way every digest is verified, and all threads work, on a few chunks at a time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from .. import defaults, log
from .._arrays.loader import CACHE_NBYTES
from .._commit.undo import settled_file
from .._engine.blosc_settings import own_settings
from .._engine.threads import RUN, ordered
from .._format.append_plan import UNCHANGED, updated_metadata
from .._format.array_metadata import Description, grid_for, with_chunks
from .._format.blosc_header import BloscHeader
from .._format.chunks import Frame, frames_of, plain_of, verified
from .._format.grid import Grid
from .._format.sections import Section, check_offsets, encode_section, read_beginning
from .._format.shard import (
    DEFAULT_SHARD_CHECKSUM,
    SEPARATOR,
    check_table,
    has_inner_chunks,
    new_trailer,
    row_nbytes,
    rows_for,
    rows_in,
    shard_of,
    trailer_nbytes,
    with_rows,
)
from .._storage.base import read_up_to
from .._storage.cursor import Cursor
from .._types import BinaryFile, Buffer, Json, Path, Writable
from ..abstract_io import (
    QUICK_CHUNK,
    RUN_TO_COMPRESS,
    PlainSource,
    Progress,
    effective_nthreads,
    header_for,
    pack,
)
from ..args import (
    BLOSC_ARGS,
    BloscArgs,
    BloscpackArgs,
    MetadataArgs,
    calculate_nchunks,
    fit_settings,
    goal_of,
    known_settings,
    parse_chunk_size,
)
from ..checksums import CHECKSUMS_LOOKUP, check_valid_checksum
from ..constants import (
    BLOSCPACK_HEADER_LENGTH,
    FORMAT_VERSION,
    MAGIC,
    METADATA_HEADER_LENGTH,
)
from ..exceptions import (
    AnotherFileFollows,
    FormatError,
    MetadataSectionTooSmall,
    UsageValueError,
)
from ..file_io import CompressedFPSink, CompressedFPSource
from ..headers import BloscpackHeader, plain_number
from ..numpy_io import GridSource, typesize_of, whole_items
from ..serializers import (
    CHUNKS,
    CONTAINER,
    SHARD,
    is_array,
    is_grid,
    is_shard,
    is_text,
    shard_rows,
    user_metadata,
)
from .opened import OpenedFile, reader_of

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Settings(TypedDict, total=False):
    """The settings of `repack`, which documents them."""

    auto: bool | str | None
    typesize: int | None
    clevel: int | None
    shuffle: bool | int | None
    cname: str | None
    chunk_size: int | str | None
    chunks: int | Sequence[int] | None
    checksum: str | None
    offsets: bool | None
    max_app_chunks: int | Callable[[int], int] | None
    metadata: object
    keep_array: bool
    shard: bool | None
    meta_checksum: str | None
    meta_codec: str | None
    max_meta_size: int | Callable[[int], int] | None


class RepackKeywords(Settings, total=False):
    """The settings with their other names."""

    codec: str | None
    level: int | None


META_SETTINGS = ("meta_checksum", "meta_codec", "max_meta_size")


# The old file


class Survey:
    """The sections of a file of any version, and the sizes of its chunks.

    ``geometry`` is the number of chunks, the chunk size and the size of the last one;
    ``regular`` says whether all chunks have these sizes. ``first`` is the header of the
    first chunk, None without chunks. ``section`` is the metadata section with the text
    as stored, None without metadata.

    Raises `FormatError` if the sections, a chunk header or the offset table is wrong,
    and `AnotherFileFollows` if another file follows.
    """

    def __init__(self, fp: BinaryFile) -> None:
        self.fp = fp
        fp.seek(0)
        cursor = Cursor(fp)
        self.beginning = beginning = read_beginning(cursor)
        self.header, self.metadata = header, metadata = (
            beginning.header,
            beginning.metadata,
        )
        self.first: BloscHeader | None = None
        offsets, sizes = [], []
        for frame in frames_of(cursor, header):
            self.first = self.first or frame.header
            offsets.append(frame.offset or 0)
            sizes.append(frame.header.nbytes)
        check_offsets(beginning.offsets or [], offsets)
        log_dropped(
            bytes_behind(fp, cursor.position, header, metadata, "would be lost")
        )
        self.nbytes = sum(sizes)
        last = sizes.pop() if sizes else 0
        chunk_size = max(sizes, default=last)
        self.regular = len({*sizes}) <= 1 and last <= chunk_size
        if header.nchunks in (0, 1):  # it may be larger than the only chunk
            chunk_size = max(chunk_size, header.chunk_size)
        self.geometry = len(offsets), max(chunk_size, last), last
        self.section: Section | None = None
        meta = beginning.metadata_header
        if meta is not None:
            fp.seek(BLOSCPACK_HEADER_LENGTH)
            front = read_up_to(fp, METADATA_HEADER_LENGTH + meta.meta_comp_size)
            room = meta.max_meta_size - meta.meta_comp_size
            fp.seek(room, os.SEEK_CUR)
            digest = read_up_to(fp, CHECKSUMS_LOOKUP[meta.meta_checksum].size)
            self.section = Section(front, room, digest, metadata)


def bytes_behind(
    fp: BinaryFile, end: int, header: BloscpackHeader, metadata: Json, what: str
) -> int:
    """Return the number of unused bytes at the end of a file.

    The last chunk ends at `end`; a shard has its trailer there, which is written again.
    Raises `AnotherFileFollows` if another file starts behind it; `what` happens to it.
    """

    def read(at: int, nbytes: int) -> bytes:
        fp.seek(end + at)
        return read_up_to(fp, nbytes)

    head = read(0, len(SEPARATOR))
    if is_shard(metadata) and head == SEPARATOR:
        with suppress(FormatError):  # a damaged trailer may have any size
            size = trailer_nbytes(header, metadata, read)
            if not size:  # there is no offset table, so it counts as none
                return 0
            end += size
        if fp.seek(0, os.SEEK_END) <= end:  # it was cut off
            return 0
        fp.seek(end)
        head = read_up_to(fp, len(MAGIC))
    if head.startswith(MAGIC):
        raise AnotherFileFollows(
            "expected the end of the file at byte '%d', found "
            "another bloscpack file, which %s" % (end, what)
        )
    return fp.seek(0, os.SEEK_END) - end


def check_no_text(metadata: Json) -> None:
    """Raise `UsageError` for a shard of text: only a dataset can change its chunks."""
    if is_text(metadata):
        raise UsageValueError(
            "the file is a shard of text, which changes with its dataset: append to "
            "the dataset, or copy it with other settings"
        )


def log_dropped(nbytes: int, path: Path | None = None) -> None:
    """Tell the user that bytes behind the last chunk are not kept."""
    if nbytes:
        name = "" if path is None else "'%s': " % os.fsdecode(path)
        log.notice(
            "%sdropping '%d' bytes behind the last chunk, which belong to none: an "
            "interrupted append may have left them" % (name, nbytes)
        )


# The plan


def _cut_again(
    old: Survey, metadata: Json, settings: Settings
) -> tuple[Json, Grid | None, int | str | None]:
    """Return the metadata, the grid and the chunk size of the new file.

    The metadata say how an array is cut: into chunks of every axis, or the inner chunks
    of a shard. The grid is that of new chunks, None if they have the plain bytes as
    they are. The chunk size is None if the chunks stay.
    """
    chunk_size, chunks = settings.get("chunk_size"), settings.get("chunks")
    shard, nchunks = settings.get("shard"), old.geometry[0]
    check_no_text(old.metadata)
    if is_grid(old.metadata) and not is_grid(metadata):
        raise UsageValueError(
            "the plain bytes of an array in chunks of every axis are padded: "
            "repack it with 'chunks' of whole rows before it becomes bytes"
        )
    if chunk_size is not None and (chunks is not None or is_grid(old.metadata)):
        raise UsageValueError(
            "give 'chunks', the length of a chunk along each axis, and no 'chunk_size'"
        )
    if chunks is not None:
        array = Description(metadata)
        array.check_nbytes(old.nbytes)
        grid = grid_for(array, chunks)
        nbytes = math.prod(grid.chunk) * array.dtype.itemsize
        in_shard = is_shard(metadata) if shard is None else shard
        kept = {key: metadata[key] for key in metadata if key not in (CHUNKS, SHARD)}
        kept.update(order="C", container=CONTAINER)
        if grid.is_rows or 0 in grid.shape:
            rows = rows_for(array, "C", nbytes) if in_shard else None
            # Without items, there is one empty chunk.
            new_grid = None if 0 in grid.shape else grid
            return with_rows(kept, rows), new_grid, max(1, nbytes)
        whole = shard_of(array, grid) if in_shard else None
        return with_chunks(kept, grid.chunk, whole), grid, nbytes
    rows = shard_rows(metadata)
    if shard is False:
        if is_array(metadata) and SHARD in metadata:
            metadata = with_rows(metadata, None)
    elif is_grid(metadata):
        array = Description(metadata)
        if shard and array.grid is not None and array.shard is None:
            whole = shard_of(array, array.grid)
            metadata = with_chunks(metadata, array.grid.chunk, whole)
    elif shard or rows is not None:
        array, row = Description(metadata), row_nbytes(Description(metadata))
        fits, new_rows = rows is not None and has_inner_chunks(array, rows), None
        if fits and chunk_size is None:
            new_rows = rows
        elif shard:
            size = old.geometry[1] if chunk_size is None else chunk_size
            if chunk_size is None and nchunks <= 1:
                # A single chunk was cut to its own size; the next one need not be as
                # small.
                size = max(size, parse_chunk_size(defaults.DEFAULT_CHUNK_SIZE))
            new_rows = rows_for(array, array.order, size)
        elif chunk_size is not None and has_inner_chunks(array, 1):
            new_rows = rows_in(chunk_size, row, array.shape[0])
        if new_rows is not None:
            if new_rows != rows:
                array.check_nbytes(old.nbytes)
                metadata = with_rows(array.metadata, new_rows)
            return metadata, None, new_rows * row
    if nchunks == 0 or (chunk_size is None and old.regular):
        return metadata, None, None
    size = "%dB" % old.geometry[1] if chunk_size is None else chunk_size
    if is_array(metadata):
        itemsize = Description(metadata).dtype.itemsize
        size = whole_items(size, max(itemsize, 1), old.nbytes)
    return metadata, None, size


def _new_section(old: Survey, metadata: Json, settings: Settings) -> Section | None:
    """Return a section with the settings of the old one, except those that are given.

    It is the old one if nothing changes. The room grows only if the metadata need more.
    """
    header = old.beginning.metadata_header
    given: dict[str, object] = {
        name: value
        for name, value in settings.items()
        if name in META_SETTINGS and value is not None
    }
    if settings.get("metadata", UNCHANGED) is UNCHANGED and metadata is old.metadata:
        if not given or header is None:
            return old.section
    elif metadata is None:
        return None
    args = MetadataArgs()
    if header is not None:
        args.update({name: getattr(header, name) for name in META_SETTINGS})
        if header.meta_codec != "None":
            args.meta_level = header.meta_level
    args.update(given)
    try:
        return encode_section(metadata, args)
    except MetadataSectionTooSmall:
        if header is None or "max_meta_size" in given:
            raise
    args.max_meta_size = defaults.DEFAULT_MAX_META_SIZE
    return encode_section(metadata, args)


# The new file


def repack_fp(
    in_fp: BinaryFile,
    out_fp: Writable,
    *,
    nthreads: int | None = None,
    progress: Progress | None = None,
    expect: Callable[[int], object] | None = None,
    **settings: Unpack[RepackKeywords],
) -> None:
    """Write the file in one file object with other settings into another.

    Parameters
    ----------
    in_fp
        The file, used from its beginning. It must be able to seek.
    out_fp
        A new file, which is written.
    settings, nthreads, progress, expect
        As in `repack`, and so are the errors.
    """
    given: Any = known_settings(settings, Settings.__annotations__)
    in_fp.seek(0)
    old = Survey(settled_file(in_fp))
    # The metadata may be any value, which stays unchanged.
    given |= {k: plain_number(v) for k, v in given.items() if k != "metadata"}
    blocksize = _choose(given, old) if goal_of(given.get("auto")) else 0

    def planned(header: BloscpackHeader) -> None:
        if expect is not None:
            expect(header.nbytes or 0)

    rewrite(old, out_fp, given, planned, nthreads, progress, blocksize)


def _choose(settings: dict[str, Any], old: Survey) -> int:
    """Add the settings that fit the plain bytes; return the block size."""
    given = {name: value for name, value in settings.items() if value is not None}
    keywords = {name: given[name] for name in ("auto", *BLOSC_ARGS) if name in given}
    is_known = is_array(old.metadata)
    keywords["shard"] = given.get("shard", is_known and SHARD in old.metadata)
    typesizes = [typesize_of(Description(old.metadata).dtype)] if is_known else []
    chunk_size = given.get("chunk_size", defaults.CHUNK_SIZE_NOT_GIVEN)
    in_grid = is_grid(old.metadata) or "chunks" in given
    if in_grid:
        chunk_size = max(1, old.geometry[1])
    # Every piece of the sample may be in the same chunk.
    cache_nbytes = max(old.geometry[1], CACHE_NBYTES)
    old.fp.seek(0)
    with OpenedFile(old.fp, cache_nbytes=cache_nbytes) as parts:
        sample = (lambda start, size: parts.read(start, start + size)), old.nbytes
        chunk_size, chosen = fit_settings(keywords, chunk_size, None, sample, typesizes)
    assert isinstance(chosen, BloscArgs)
    settings.update(chosen)
    if not in_grid:
        settings["chunk_size"] = chunk_size
    return chosen.blocksize


def rewrite(
    old: Survey,
    out_fp: Writable,
    settings: Settings,
    planned: Callable[[BloscpackHeader], object],
    nthreads: int | None = None,
    progress: Progress | None = None,
    blocksize: int = 0,
) -> None:
    """Write the surveyed file with other settings into a new file.

    ``planned(header)`` is called before anything is written.
    """
    metadata = old.metadata
    if not settings.get("keep_array", True):
        metadata = user_metadata(metadata)
    new = settings.get("metadata", UNCHANGED)
    if new is not UNCHANGED:
        metadata = updated_metadata(metadata, old.nbytes, 0, new)
    metadata, grid, chunk_size = _cut_again(old, metadata, settings)
    section = _new_section(old, metadata, settings)
    geometry = old.geometry
    if chunk_size is not None:
        nbytes = old.nbytes if grid is None else Description(metadata).stored_nbytes
        geometry = calculate_nchunks(nbytes, chunk_size)
        # The chunk size of a single chunk may be larger than the chunk.
        if grid is None and old.regular and geometry[0] == old.geometry[0] == 1:
            geometry = old.geometry
    typesize, blosc_args = old.header.typesize, None
    if old.header.format_version < 2 and old.first is not None:
        typesize = old.first.typesize  # these versions store none in the header
    if (
        grid is not None
        or geometry != old.geometry
        or not old.regular
        or any(settings.get(name) is not None for name in BLOSC_ARGS)
    ):
        blosc_args = BloscArgs(typesize=typesize or defaults.DEFAULT_TYPESIZE)
        if old.first is not None:  # by default the settings of the first chunk
            blosc_args.typesize = typesize or old.first.typesize or blosc_args.typesize
            blosc_args.shuffle, blosc_args.cname = old.first.shuffle, old.first.codec
        given = {n: v for n in blosc_args if (v := settings.get(n)) is not None}
        blosc_args.update(given)
        blosc_args.check()
        blosc_args.blocksize = blocksize
        typesize = blosc_args.typesize or 0
    checksum = settings.get("checksum")
    if checksum is None:
        in_shard = settings.get("shard")
        checksum = DEFAULT_SHARD_CHECKSUM if in_shard else old.header.checksum
    check_valid_checksum(checksum)
    offsets, free = settings.get("offsets"), settings.get("max_app_chunks")
    if free is None:
        # Room to append as many bytes as before.
        free = defaults.DEFAULT_MAX_APP_CHUNKS
        if old.header.offsets and old.header.format_version == FORMAT_VERSION:
            before, after = old.geometry[1], geometry[1]
            free = old.header.max_app_chunks
            if before != after:
                free = -(-free * before // max(after, 1))
    args = BloscpackArgs(offsets is None or bool(offsets), checksum, free)
    room = args.effective_max_app_chunks(geometry[0])
    header = header_for(
        BloscArgs(typesize), args, geometry, room, metadata=section is not None
    )
    check_table(metadata, header)
    planned(header)
    count = effective_nthreads(nthreads, None)
    sink = CompressedFPSink(out_fp)
    if blosc_args is None:
        _copy(old, sink, header, section, count, progress)
        return
    args.max_app_chunks = room
    old.fp.seek(0)
    plain: PlainSource
    if grid is None:
        plain = _Recut(CompressedFPSource(old.fp), count)
    else:
        read = reader_of(OpenedFile(old.fp, nthreads=nthreads)).get
        plain = GridSource(read, grid, padded=is_grid(metadata))
    pack(
        plain,
        sink,
        *geometry,
        metadata=section,
        blosc_args=blosc_args,
        bloscpack_args=args,
        nthreads=count,
        progress=progress,
    )


class _Recut(PlainSource):
    """Yields the plain bytes of a source in chunks of another size."""

    lasting = True

    def __init__(self, source: CompressedFPSource, nthreads: int) -> None:
        self._source, self._nthreads = source, nthreads

    def __iter__(self) -> Iterator[Buffer]:
        frames, block, begin = self._source.frames(), memoryview(b""), 0
        work = partial(plain_of, checksum=self._source.bloscpack_header.checksum_impl)
        for start, stop in self.spans():
            if stop > begin + len(block):
                # The threads share the chunks of a run.
                rest = block[start - begin :]
                pieces: list[Buffer] = [rest] if len(rest) else []
                run = _at_least(frames, max(RUN, stop - start))
                ordered(run, work, pieces.append, self._nthreads)
                joined = pieces[0] if len(pieces) == 1 else b"".join(pieces)
                block, begin = memoryview(joined), start
            yield block[start - begin : stop - begin]
        for frame in frames:  # empty ones
            work(frame)


def _at_least(frames: Iterator[Frame], nbytes: int) -> Iterator[Frame]:
    """Yield the next chunks, which have `nbytes` plain bytes, if there are as many."""
    while nbytes > 0 and (frame := next(frames, None)) is not None:
        nbytes -= frame.header.nbytes
        yield frame


def _copy(
    old: Survey,
    sink: CompressedFPSink,
    header: BloscpackHeader,
    section: Section | None,
    nthreads: int,
    progress: Progress | None,
) -> None:
    """Copy the chunks, and the digests too if the checksum is the same."""
    before, checksum = old.header.checksum_impl, header.checksum_impl
    sink.configure(BloscArgs(), header)
    sink.write_bloscpack_header()
    if section is not None:
        sink.write_metadata(section, MetadataArgs())
        sink.trailer = new_trailer(section.value, header)
    sink.init_offsets()

    def work(frame: Frame) -> tuple[bytes, bytes, int]:
        compressed, digest = map(bytes, verified(frame, before))
        if not before.size:
            plain_of(frame, before, compressed)  # raises if the chunk is damaged
        if checksum is not before:
            digest = checksum(compressed)
        return compressed, digest, frame.header.nbytes

    def deliver(chunk: tuple[bytes, bytes, int]) -> None:
        compressed, digest, nbytes = chunk
        sink.store(0, compressed, digest)
        if progress is not None:
            progress(nbytes)

    size = max(header.chunk_size, 1)
    batch = max(1, RUN_TO_COMPRESS // size)
    nthreads = effective_nthreads(nthreads, old.geometry[0])
    old.fp.seek(0)
    frames = CompressedFPSource(old.fp).frames()
    with own_settings:
        ordered(frames, work, deliver, nthreads, batch, size < QUICK_CHUNK)
    sink.finalize()
