"""Rewrite a file with other settings: a new file replaces it in one step.

The headers of all chunks are read first, which shows the sizes of the chunks and finds
most damage before anything is written. If chunks of the same size with the same
compression are wanted, they are copied byte by byte. Otherwise they are decompressed
and cut again. Either way every digest is verified, and the work is done by all threads,
a few chunks at a time. A file without digests is decompressed to find damage.
"""

from __future__ import annotations

import os
from collections import deque

from . import log
from ._crashsafe.locking import open_locked
from ._engine.blosc_settings import own_settings
from ._engine.threads import for_each
from ._format import offsets as offset_table
from ._format.append_plan import UNCHANGED as UNCHANGED
from ._format.append_plan import updated_metadata
from ._format.chunks import check_digest, decompress
from ._format.metadata import Section, encode_section
from ._format.sections import read_beginning, skip_frames
from ._format.shard import (
    DEFAULT_SHARD_CHECKSUM,
    SEPARATOR,
    SHARD,
    has_inner_chunks,
    row_nbytes,
    rows_for,
    rows_in,
    with_rows,
)
from ._format.tuning import FILTERS
from ._storage.base import naming_errors, read_up_to
from ._storage.cursor import Cursor
from .abstract_io import (
    QUICK_CHUNK,
    RUN_TO_COMPRESS,
    PlainSource,
    effective_nthreads,
    pack,
)
from .abstract_objects import plain_number
from .args import (
    BLOSC_ARGS,
    BLOSCPACK_ARGS,
    BloscArgs,
    BloscpackArgs,
    MetadataArgs,
    calculate_nchunks,
    parse_chunk_size,
    refuse_all_but,
)
from .checksums import CHECKSUMS_LOOKUP, check_valid_checksum
from .constants import (
    BLOSCPACK_HEADER_LENGTH,
    CNAME_MAPPING,
    FORMAT_VERSION,
    MAGIC,
    METADATA_HEADER_LENGTH,
)
from .defaults import (
    DEFAULT_CHUNK_SIZE,
    DEFAULT_CLEVEL,
    DEFAULT_CNAME,
    DEFAULT_MAX_APP_CHUNKS,
    DEFAULT_MAX_META_SIZE,
    DEFAULT_SHUFFLE,
    DEFAULT_TYPESIZE,
)
from .exceptions import (
    AnotherFileFollows,
    FormatError,
    MetadataSectionTooSmall,
)
from .fp_io import CompressedFPSink, CompressedFPSource
from .headers import BloscpackHeader, MetadataHeader
from .pretty import double_pretty_size
from .serializers import is_array, shard_rows, user_metadata

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypedDict

    from typing_extensions import Unpack

    from ._format.array_metadata import Description
    from ._format.blosc_header import BloscHeader
    from ._format.sections import Beginning, Frame
    from ._storage.protocols import BinaryFile, Buffer, Path, Writable
    from .abstract_io import Progress
    from .serializers import Json

    class Settings(TypedDict, total=False):
        """The settings of `repack`, which documents them."""

        typesize: int | None
        clevel: int | None
        shuffle: bool | int | None
        cname: str | None
        chunk_size: int | str | None
        checksum: str | None
        offsets: bool | None
        max_app_chunks: int | Callable[[int], int] | None
        metadata: object
        keep_array: bool
        shard: bool | None
        meta_checksum: str | None
        meta_codec: str | None
        max_meta_size: int | Callable[[int], int] | None

    # Number of chunks, chunk size and size of the last chunk.
    Cut = tuple[int, int, int]
    # The first byte of a span of plain bytes, its end, and the old chunks in it.
    Span = tuple[int, int, list["_OldChunk"]]

__all__ = ["UNCHANGED", "repack", "repack_fp"]

META_SETTINGS = ("meta_checksum", "meta_codec", "max_meta_size")
SETTINGS = (
    *BLOSC_ARGS,
    "chunk_size",
    *BLOSCPACK_ARGS,
    "metadata",
    "keep_array",
    "shard",
    *META_SETTINGS,
)
SHUFFLES = {name: number for number, name in FILTERS.items()}


def repack(
    path: Path,
    *,
    nthreads: int | None = None,
    sync: bool = True,
    progress: Progress | None = None,
    expect: Callable[[int], object] | None = None,
    **settings: Unpack[Settings],
) -> None:
    """Rewrite a file with other settings.

    What no setting changes stays the same: the plain bytes, the metadata, owner and
    access of the file. A file of an old layout gets the current layout. Whatever
    interrupts it, the file is either the old one or the new one (docs/durability.rst).

    Parameters
    ----------
    path
        The file to rewrite.
    typesize, clevel, shuffle, cname
        As in `bloscpack.BloscArgs`. With any of them all chunks are compressed again. A
        file stores no level: by default it is then 7.
    chunk_size
        Plain bytes of a chunk, a number or text such as ``'4M'``.
    checksum, offsets, max_app_chunks
        As in `bloscpack.BloscpackArgs`. A file without an offset table gets one, unless
        ``offsets`` is False. By default there stays room to append as many bytes as
        before.
    metadata
        The new metadata; the file may have none so far. None removes the metadata,
        unlike in functions that pack: without this argument, or with ``UNCHANGED``,
        they stay. In an array file these are the metadata of the user; dtype, shape and
        order of the array stay. A value that is the complete metadata of an array
        replaces all metadata.
    keep_array
        Whether an array file stays an array file, as by default. False drops dtype,
        shape and order: the plain bytes and the metadata of the user stay.
    shard
        True makes an array file a shard of a Zarr v3 array, as
        `bloscpack.pack_ndarray_to_file` does: chunks get whole rows, and the checksum
        is then ``'crc32c'`` by default. False drops the index for Zarr; the checksum
        stays. By default a shard stays one.
    meta_checksum, meta_codec, max_meta_size
        As in `bloscpack.MetadataArgs`, by default as in the file. By default the space
        for metadata grows only if new metadata need more.
    nthreads, progress
        As in `bloscpack.abstract_io.pack`.
    sync, expect
        As in `bloscpack.append.append_from`.

    Raises
    ------
    FormatError
        The file is damaged.
    UsageError
        A setting is unknown or invalid, the new metadata describe an array of another
        size, the array can't be a shard, another file follows, or the file has hard
        links.
    StorageError
        Another writer is changing the file.

    Examples
    --------
    >>> import bloscpack
    >>> bloscpack.pack_bytes_to_file(b'abcd' * 1000, 'abcd.blp')
    >>> repack('abcd.blp', cname='zstd', chunk_size='1K', metadata={'unit': 'm'})
    >>> plain, metadata = bloscpack.unpack_bytes_from_file('abcd.blp')
    >>> len(plain), metadata
    (4000, {'unit': 'm'})
    """
    with naming_errors(path), open_locked(path, sync) as locked_file:
        old_size = locked_file.size
        with locked_file.replacement() as temporary:
            repack_fp(
                locked_file.fp,
                temporary.fp,
                nthreads=nthreads,
                progress=progress,
                expect=expect,
                **settings,
            )
        log.verbose("size before: %s" % double_pretty_size(old_size))
        log.verbose("size after: %s" % double_pretty_size(locked_file.size))


def repack_fp(
    in_fp: BinaryFile,
    out_fp: Writable,
    *,
    nthreads: int | None = None,
    progress: Progress | None = None,
    expect: Callable[[int], object] | None = None,
    **settings: Unpack[Settings],
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
    refuse_all_but(SETTINGS, settings)
    old = Survey(in_fp)
    plan = Plan(old, _with_plain_numbers(settings))
    if expect is not None:
        expect(old.nbytes)
    write_planned(old, plan, in_fp, out_fp, nthreads, progress)


def write_planned(
    old: Survey,
    plan: Plan,
    in_fp: BinaryFile,
    out_fp: Writable,
    nthreads: int | None,
    progress: Progress | None,
) -> None:
    """Write the new file of a plan. The arguments are those of `repack_fp`."""
    count = effective_nthreads(nthreads, None)
    in_fp.seek(0)
    source = CompressedFPSource(in_fp)
    sink = _Sink(out_fp, plan.section, plan.metadata)
    if plan.blosc_args is None:
        _copy(
            source, sink, plan.header, effective_nthreads(count, old.cut[0]), progress
        )
        return
    pack(
        _Recut(source, old.nbytes),
        sink,
        *plan.cut,
        metadata=plan.section,
        blosc_args=plan.blosc_args,
        bloscpack_args=BloscpackArgs(
            plan.header.offsets, plan.header.checksum, plan.header.max_app_chunks
        ),
        nthreads=count,
        progress=progress,
    )


def _with_plain_numbers(settings: Settings) -> Settings:
    """Return settings without NumPy scalars; the metadata stay as they are."""
    plain = {
        name: value if name == "metadata" else plain_number(value)
        for name, value in settings.items()
    }
    return plain  # type: ignore[return-value]


# The old file


class Survey:
    """The sections of a file of any layout, and the sizes of its chunks.

    ``cut`` are the number of chunks, the chunk size and the size of the last chunk;
    ``regular`` says whether all chunks have these sizes. ``first`` is the header of the
    first chunk, None without chunks. ``section`` is the metadata section with the text
    as stored, None without metadata.

    Raises `FormatError` if the sections, a chunk header or the offset table is wrong,
    and `AnotherFileFollows` if another file follows.
    """

    def __init__(self, fp: BinaryFile) -> None:
        fp.seek(0)
        cursor = Cursor(fp)
        self.beginning: Beginning = read_beginning(cursor)
        self.header = self.beginning.header
        self.first: BloscHeader | None = None
        self._read_chunks(cursor)
        self._check_end(fp, cursor.position)
        self.section = self._read_section(fp)

    def _read_chunks(self, cursor: Cursor) -> None:
        offsets, sizes = [], set()
        nbytes = last = 0
        for frame in skip_frames(cursor, self.header):
            if self.first is None:
                self.first = frame.header
            else:
                sizes.add(last)
            last = frame.header.nbytes
            nbytes += last
            offsets.append(frame.offset or 0)
        offset_table.check(self.beginning.offsets or [], offsets)
        self.nbytes = nbytes
        chunk_size = max(sizes, default=last)
        self.regular = len(sizes) <= 1 and last <= chunk_size
        if self.header.nchunks in (0, 1):  # it may be larger than the only chunk
            chunk_size = max(chunk_size, self.header.chunk_size)
        self.cut: Cut = len(offsets), max(chunk_size, last), last

    def _check_end(self, fp: BinaryFile, end: int) -> None:
        fp.seek(end)
        if read_up_to(fp, len(MAGIC)) == MAGIC:
            raise AnotherFileFollows(
                "expected the end of the file at byte '%d', found another bloscpack "
                "file, which would be lost" % end
            )
        fp.seek(end)
        shard = shard_rows(self.beginning.metadata) is not None
        if shard and read_up_to(fp, len(SEPARATOR)) == SEPARATOR:
            return  # the trailer, which is written again
        trailing = fp.seek(0, os.SEEK_END) - end
        if trailing:
            log.notice(
                "dropping '%d' bytes behind the last chunk, which belong to none"
                % trailing
            )

    def _read_section(self, fp: BinaryFile) -> Section | None:
        header = self.beginning.metadata_header
        if header is None:
            return None
        fp.seek(BLOSCPACK_HEADER_LENGTH)
        front = read_up_to(fp, METADATA_HEADER_LENGTH + header.meta_comp_size)
        room = header.max_meta_size - header.meta_comp_size
        fp.seek(room, os.SEEK_CUR)
        digest_size = CHECKSUMS_LOOKUP[header.meta_checksum].size
        return Section(front, room, read_up_to(fp, digest_size))


# The new file


class Plan:
    """The new file: ``header``, ``cut``, ``section`` and ``blosc_args``.

    ``section`` is the encoded metadata section, None without metadata. ``blosc_args``
    are the settings to compress with, None if the chunks are copied.
    """

    def __init__(self, old: Survey, settings: Settings) -> None:
        given = {name: value for name, value in settings.items() if value is not None}
        self._old = old
        # The constructors below check the values.
        self.metadata = self._new_metadata(settings)
        # The plain size of an inner chunk if the new file is a shard, else None.
        self._inner_nbytes: int | None = None
        self._choose_inner_chunks(settings)
        self.section = self._encode_section(settings)
        self.cut = self._new_cut(settings.get("chunk_size"))
        compress = given.keys() & {*BLOSC_ARGS}
        self.blosc_args: BloscArgs | None = None
        typesize = old.header.typesize
        if old.header.format_version < 2 and old.first is not None:
            typesize = old.first.typesize  # these layouts store none in the header
        if compress or self.cut != old.cut or not old.regular:
            self.blosc_args = self._complete(settings, typesize)
            self.blosc_args.check()
            typesize = self.blosc_args.typesize or 0
        usual = DEFAULT_SHARD_CHECKSUM if settings.get("shard") else old.header.checksum
        checksum = settings.get("checksum")
        checksum = usual if checksum is None else checksum
        check_valid_checksum(checksum)
        offsets = settings.get("offsets")
        args = BloscpackArgs(
            offsets is None or bool(offsets), checksum, self._room(settings)
        )
        self.header = BloscpackHeader(
            offsets=args.offsets,
            metadata=self.section is not None,
            checksum=checksum,
            typesize=typesize,
            chunk_size=self.cut[1],
            last_chunk=self.cut[2],
            nchunks=self.cut[0],
            max_app_chunks=args.effective_max_app_chunks(self.cut[0]),
        )

    def _new_metadata(self, settings: Settings) -> Json:
        """Return the new metadata, still with the old rows of inner chunks."""
        old = self._old.beginning.metadata
        kept = old if settings.get("keep_array", True) else user_metadata(old)
        new = settings.get("metadata", UNCHANGED)
        if new is UNCHANGED:
            return kept
        return updated_metadata(kept, self._old.nbytes, 0, new)

    def _choose_inner_chunks(self, settings: Settings) -> None:
        """Set the size of inner chunks, and their rows in the metadata."""
        metadata, wanted = self.metadata, settings.get("shard")
        if wanted is False:
            if is_array(metadata) and SHARD in metadata:
                self.metadata = with_rows(metadata, None)
            return
        rows = shard_rows(metadata)
        if rows is None and not wanted:
            return
        from ._format.array_metadata import Description

        described = Description(metadata)
        new_rows = self._new_rows(described, rows, settings)
        if new_rows is None:
            return
        if new_rows != rows:
            described.check_nbytes(self._old.nbytes)
            self.metadata = with_rows(described.metadata, new_rows)
        self._inner_nbytes = new_rows * row_nbytes(described)

    def _new_rows(
        self, described: Description, old_rows: int | None, settings: Settings
    ) -> int | None:
        """Return the rows of an inner chunk; None if the file does not become a shard.

        `old_rows` are those in the metadata.
        """
        size = settings.get("chunk_size")
        fits = old_rows is not None and has_inner_chunks(described, old_rows)
        if size is None and fits:
            return old_rows
        if settings.get("shard"):
            size = self._usual_chunk_size() if size is None else size
            return rows_for(described, described.order, size)
        if size is None or old_rows is None or not has_inner_chunks(described, 1):
            return None
        return rows_in(size, row_nbytes(described), described.shape[0])

    def _usual_chunk_size(self) -> int:
        """Return the chunk size of a new shard, in bytes, for which none is given."""
        nchunks, chunk_size, _ = self._old.cut
        if nchunks > 1:
            return chunk_size
        # A single chunk was cut to its own size; the next one need not be as small.
        return max(chunk_size, parse_chunk_size(DEFAULT_CHUNK_SIZE))

    def _new_cut(self, chunk_size: int | str | None) -> Cut:
        old = self._old
        if self._inner_nbytes is not None:
            cut = calculate_nchunks(old.nbytes, self._inner_nbytes)
            return old.cut if old.regular and cut[0] == old.cut[0] == 1 else cut
        if old.cut[0] == 0:
            return old.cut
        if chunk_size is None and old.regular:
            return old.cut
        size = "%dB" % old.cut[1] if chunk_size is None else chunk_size
        if is_array(self.metadata):
            from ._format.array_metadata import Description
            from .numpy_io import whole_items

            itemsize = Description(self.metadata).dtype.itemsize
            size = whole_items(size, max(itemsize, 1), old.nbytes)
        cut = calculate_nchunks(old.nbytes, size)
        # The chunk size of a single chunk may be larger than the chunk.
        same = old.regular and cut[0] == old.cut[0] == 1
        return old.cut if same else cut

    def _complete(self, settings: Settings, typesize: int) -> BloscArgs:
        """Return the settings of Blosc, by default those of the first chunk."""
        first = self._old.first
        cname, shuffle = DEFAULT_CNAME, int(DEFAULT_SHUFFLE)
        if first is not None:
            cname = CNAME_MAPPING.get(first.codec_number, DEFAULT_CNAME)
            shuffle = SHUFFLES[first.filter]
            typesize = typesize or first.typesize
        args = BloscArgs(typesize or DEFAULT_TYPESIZE, DEFAULT_CLEVEL, shuffle, cname)
        for name in args:
            value = settings.get(name)
            if value is not None:
                args[name] = value
        return args

    def _room(self, settings: Settings) -> int | Callable[[int], int]:
        """Return the number of free entries of the offset table."""
        given = settings.get("max_app_chunks")
        if given is not None:
            return given
        old = self._old.header
        if not old.offsets or old.format_version != FORMAT_VERSION:
            return DEFAULT_MAX_APP_CHUNKS
        before, after = self._old.cut[1], self.cut[1]
        if before == after:
            return old.max_app_chunks
        return -(-old.max_app_chunks * before // max(after, 1))

    def _encode_section(self, settings: Settings) -> Section | None:
        """Return the new metadata section."""
        old = self._old.beginning
        given = {
            name: value
            for name, value in settings.items()
            if name in META_SETTINGS and value is not None
        }
        new = settings.get("metadata", UNCHANGED)
        if new is UNCHANGED and self.metadata is old.metadata:
            if not given or old.metadata_header is None:
                return self._old.section
        elif self.metadata is None:
            return None
        return _encode_like(old.metadata_header, self.metadata, given)


def _encode_like(
    old: MetadataHeader | None, metadata: object, given: dict[str, object]
) -> Section:
    """Return a section with the settings of the old one, except those that are given.

    The room grows only if the metadata need more.
    """
    kept: dict[str, object] = {}
    if old is not None:
        kept["meta_checksum"] = old.meta_checksum
        kept["meta_codec"] = old.meta_codec
        if old.meta_codec != "None":
            kept["meta_level"] = old.meta_level
        kept["max_meta_size"] = old.max_meta_size
    args = MetadataArgs()
    args.update({**kept, **given})
    try:
        return encode_section(metadata, args)
    except MetadataSectionTooSmall:
        if old is None or "max_meta_size" in given:
            raise
    args.max_meta_size = DEFAULT_MAX_META_SIZE
    return encode_section(metadata, args)


class _Sink(CompressedFPSink):
    """A sink that writes an encoded metadata section, whose value is `metadata`."""

    def __init__(
        self, out_fp: Writable, section: Section | None, metadata: object
    ) -> None:
        super().__init__(out_fp, new=True)
        self._section = section
        self._metadata = metadata

    def write_metadata(self, metadata: object, metadata_args: MetadataArgs) -> None:
        assert self._section is not None
        self.write_section(self._section.blocks())
        self.begin_trailer(self._metadata)


# Copying chunks


def _copy(
    source: CompressedFPSource,
    sink: _Sink,
    header: BloscpackHeader,
    nthreads: int,
    progress: Progress | None,
) -> None:
    """Copy the chunks, and the digests too if the checksum is the same."""
    old, new = source.bloscpack_header.checksum_impl, header.checksum_impl
    sink.configure(BloscArgs(), header)
    sink.write_bloscpack_header()
    if header.metadata:
        sink.write_metadata(None, MetadataArgs())
    sink.init_offsets()

    def work(frame: Frame) -> tuple[bytes, bytes, int]:
        compressed, digest = load_checked(source, frame)
        if not old.size:
            _plain(frame, compressed)  # raises if the chunk is damaged
        if new is not old:
            digest = new(compressed)
        return compressed, digest, frame.header.nbytes

    def deliver(chunk: tuple[bytes, bytes, int]) -> None:
        compressed, digest, nbytes = chunk
        sink.put_digested(0, compressed, digest)
        if progress is not None:
            progress(nbytes)

    size = max(header.chunk_size, 1)
    batch = max(1, RUN_TO_COMPRESS // size)
    with own_settings:
        for_each(source.tasks(), work, deliver, nthreads, batch, size < QUICK_CHUNK)
    sink.finalize()


def load_checked(source: CompressedFPSource, frame: Frame) -> tuple[bytes, bytes]:
    """Return a chunk and its digest; raise `FormatError` unless they fit."""
    try:
        compressed, digest = map(bytes, source.load(frame))
        check_digest(compressed, digest, source.bloscpack_header.checksum_impl)
    except FormatError as error:
        error.locate(frame.number, frame.offset)
        raise
    return compressed, digest


def _plain(frame: Frame, compressed: bytes) -> bytes:
    try:
        return decompress(compressed, frame.header)
    except FormatError as error:
        error.locate(frame.number, frame.offset)
        raise


# Cutting chunks again


class _OldChunk:
    """A chunk that is decompressed once, for all new chunks that overlap it.

    `uses` is the number of these chunks; after as many calls of `take` the plain bytes
    are forgotten.
    """

    def __init__(self, source: CompressedFPSource, frame: Frame, uses: int) -> None:
        from threading import Lock

        self._source = source
        self._frame = frame
        self._uses = uses
        self._plain: bytes | None = None
        self._lock = Lock()
        self.start = frame.start
        self.stop = frame.start + frame.header.nbytes

    def take(self) -> bytes:
        """Return the plain bytes; the first thread that calls this decompresses."""
        with self._lock:
            if self._plain is None:
                compressed, _ = load_checked(self._source, self._frame)
                self._plain = _plain(self._frame, compressed)
            plain = self._plain
            self._uses -= 1
            if not self._uses:
                self._plain = None
        return plain


class _Recut(PlainSource):
    """Yields the plain bytes of a compressed source in chunks of another size."""

    concurrent = True

    def __init__(self, source: CompressedFPSource, nbytes: int) -> None:
        self._source = source
        self._nbytes = nbytes

    def __iter__(self) -> Iterator[Buffer]:
        return map(self.load, self.tasks())

    def tasks(self) -> Iterator[Span]:
        frames = self._source.tasks()
        chunks: deque[_OldChunk] = deque()
        read = 0
        for start, stop in self.spans():
            while chunks and chunks[0].stop <= start:
                chunks.popleft()
            # The chunks of the last span include empty ones at the end.
            while read < stop or stop == self._nbytes:
                frame = next(frames, None)
                if frame is None:
                    break
                chunks.append(_OldChunk(self._source, frame, self._uses(frame)))
                read = chunks[-1].stop
            yield start, stop, list(chunks)

    def _uses(self, frame: Frame) -> int:
        """Return the number of new chunks that overlap an old chunk."""
        size = max(self.chunk_size, 1)
        last = max(frame.header.nbytes - 1, 0)
        return (frame.start + last) // size - frame.start // size + 1

    def load(self, task: Span) -> Buffer:
        start, stop, chunks = task
        pieces = []
        for chunk in chunks:
            plain = chunk.take()
            if chunk.start >= start and chunk.stop <= stop:
                pieces.append(plain)
            else:
                view = memoryview(plain)
                pieces.append(
                    bytes(view[max(start - chunk.start, 0) : stop - chunk.start])
                )
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
