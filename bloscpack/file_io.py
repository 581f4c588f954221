"""Pack files, file objects and bytes, and unpack them.

A file object is used from its current position on and stays open; it may be a pipe. A
file that is written under a path appears there only when it is complete. A count that a
file states is compared with the size of the file before memory is allocated.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from . import log
from ._commit.ownership import attributes_of_input
from ._commit.replacing import check_distinct, replacing
from ._commit.snapshot import attempts_for, read_snapshot
from ._commit.undo import settled_bytes, settled_file
from ._compat import deprecated_alias, sibling_names
from ._engine.blosc_settings import own_settings
from ._engine.prealloc import BytesUnderConstruction, bytes_with_room
from ._engine.threads import Workspace
from ._format import chunks, sections
from ._format.chunks import Frame
from ._format.sections import read_metadata
from ._storage import local
from ._storage.base import as_bytes_view, read_up_to, releasing_views, write_all
from ._storage.cursor import Cursor, MemoryCursor
from ._storage.paths import is_url, size_of_input, without_url
from ._storage.stream import SparseWriter, sampled, size_of
from ._types import BinaryFile, Buffer, Json, Path, Seekable, StorageOptions, Writable
from .abstract_io import (
    CompressedSink,
    CompressedSource,
    MemorySink,
    PlainSource,
    Progress,
    StoringSink,
    may_read_at_once,
    pack,
    unpack,
)
from .args import (
    AnyBloscArgs,
    AnyBloscpackArgs,
    AnyLimits,
    AnyMetadataArgs,
    AutoKeywords,
    BloscArgs,
    MetadataArgs,
    calculate_nchunks,
    effective_limits,
    fit_settings,
    goal_of,
    parse_chunk_size,
)
from .checksums import Hash
from .constants import BLOSCPACK_HEADER_LENGTH, MAGIC, MAX_BUFFERSIZE, MAX_TYPESIZE
from .defaults import CHUNK_SIZE_NOT_GIVEN
from .exceptions import (
    DamageError,
    FormatError,
    StorageError,
    UsageError,
    UsageTypeError,
)
from .headers import BloscpackHeader, MetadataHeader
from .pretty import double_pretty_size, pretty_size
from .serializers import is_shard

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._commit.snapshot import Check

# Size in bytes of a compressed chunk from which a second write takes less time than
# joining the chunk and its digest.
WORTH_A_WRITE = 16 * 2**10
# Number of plain bytes from which memory for their packed form is requested at once.
WORTH_ROOM = 2**20
# Number of plain bytes from which they are decompressed into the memory of the result.
# Fewer are joined.
WORTH_NO_COPY = 64 * 2**10


# Reading compressed files


class SectionsSource(CompressedSource):
    """Reads a file of any version; the base of the sources over files and buffers.

    The constructor reads the sections in front of the chunks and raises `FormatError`
    if they are damaged or exceed the limits.

    Attributes
    ----------
    bloscpack_header
        The header.
    metadata, metadata_header
        The metadata and its header, None if the file has no metadata section.
    offsets
        The file offsets of the chunks, None if the file has no offset table.
    limits
        The `Limits` that the file must not exceed, None for no limits.
    """

    checksum_impl: Hash

    def __init__(self, cursor: Cursor, limits: AnyLimits | None) -> None:
        self.limits = limits = effective_limits(limits)
        self._cursor = cursor
        self._beginning = beginning = sections.read_beginning(cursor, limits)
        self.bloscpack_header = beginning.header
        self.metadata = beginning.metadata
        self.metadata_header = beginning.metadata_header
        self.checksum_impl = beginning.header.checksum_impl
        self.nchunks = beginning.header.nchunks
        self._last: Frame | None = None
        self._is_at_end = False

    @property
    def offsets(self) -> list[int] | None:
        """The file offsets of the chunks, None if the file has no offset table."""
        return self._beginning.offsets

    def __iter__(self) -> Iterator[tuple[Buffer, Buffer]]:
        for frame in self.frames():
            self.chunk_offset = frame.offset
            compressed, digest = frame.content
            yield bytes(compressed), bytes(digest)

    def frames(self) -> Iterator[Frame]:
        """Return the chunks in order, with their digests and where they are."""
        return chunks.frames_of(
            self._cursor, self.bloscpack_header, self.limits, with_content=True
        )

    def peek_behind(self, size: int) -> bytes:
        """Return up to `size` bytes behind the file, after all chunks were read."""
        self.move_to_end()
        data = bytes(self._cursor.peek_behind(size))
        self._cursor.restore()
        return data

    def move_to_end(self) -> None:
        """Move behind the trailer of a shard, after all chunks were read."""
        if not self._is_at_end and is_shard(self.metadata):
            from ._format.shard import skip_trailer

            skip_trailer(self._cursor, self.bloscpack_header, self.metadata)
            self._cursor.restore()
        self._is_at_end = True

    def is_left_over(self) -> bool:
        """Return whether an append has left the bytes behind the file."""
        from ._format.append_plan import is_left_over

        self.move_to_end()
        return is_left_over(self._cursor, self.bloscpack_header, self._last)


class CompressedFPSource(SectionsSource):
    """Reads a file of any version from a file object, which may be a pipe.

    The constructor reads the sections in front of the chunks. After the last chunk the
    file object is positioned at its end, so that another file may follow. It has the
    attributes of `SectionsSource`.

    Parameters
    ----------
    input_fp
        The compressed file, from the current position on.
    limits
        The sizes that the file must not exceed; see `Limits`.
    to_end
        Whether a pipe is to be read beyond the last chunk, where another chunk would be
        an error. By default, another program can read on there.
    cursor
        The position of the file; by default the position of `input_fp`.

    Raises
    ------
    FormatError
        The file is damaged or exceeds the limits.
    """

    def __init__(
        self,
        input_fp: Seekable,
        *,
        limits: AnyLimits | None = None,
        to_end: bool = False,
        cursor: Cursor | None = None,
    ) -> None:
        self.input_fp = input_fp = settled_file(input_fp)
        self._range = local.FileRange.over(input_fp)
        self.in_place = self._range is not None
        self._begin = input_fp.tell() if self._range is not None else 0
        self._workspace = Workspace()
        super().__init__(cursor or Cursor(input_fp, to_end=to_end), limits)

    def following(self) -> CompressedFPSource:
        """Return a source for the file that begins behind this one, which was read."""
        cursor = self._cursor.following()
        return CompressedFPSource(self.input_fp, limits=self.limits, cursor=cursor)

    def frames(self) -> Iterator[Frame]:
        """Yield the chunks in order.

        The thread that needs a chunk reads it, if the file can be read at positions.
        """
        if self._range is None:
            frames = super().frames()
        else:
            frames = chunks.frames_of(self._cursor, self.bloscpack_header, self.limits)
        for frame in frames:
            if self._range is not None:
                frame.read = self._read
            self._last = frame
            yield frame

    def _read(self, frame: Frame) -> tuple[Buffer, Buffer]:
        assert self._range is not None
        assert frame.offset is not None
        size = frame.header.ctbytes + self.checksum_impl.size
        view = self._workspace.view(size)
        found = self._range.read_into(view, self._begin + frame.offset)
        if found < size:
            error = chunks.cut_off(size, found)
            error.locate(frame.number, frame.offset)
            raise error
        return view[: frame.header.ctbytes], view[frame.header.ctbytes :]


class CompressedBytesSource(SectionsSource):
    """Reads a file of any version from a buffer, which holds the whole file.

    It yields views of the buffer. Parameters, attributes and errors are those of
    `CompressedFPSource`, except for the buffer.
    """

    in_place = True

    def __init__(self, buffer: Buffer, *, limits: AnyLimits | None = None) -> None:
        super().__init__(MemoryCursor(settled_bytes(buffer)), limits)


# Writing compressed files


class CompressedFPSink(CompressedSink):
    """Writes a file of version 3 to a file object.

    If the number of chunks is not known at the start, the header is completed at the
    end. A file object that can't seek gets neither that header nor an offset table.

    Parameters
    ----------
    output_fp
        Written from its current position on.
    """

    def __init__(self, output_fp: Writable) -> None:
        # Only `write` is called if it can't seek.
        self.output_fp: BinaryFile = output_fp  # type: ignore[assignment]
        self.meta_total = 0

    def configure(
        self, blosc_args: BloscArgs, bloscpack_header: BloscpackHeader
    ) -> None:
        super().configure(blosc_args, bloscpack_header)
        # The offset table is written last, which needs a file object that can seek.
        self._seekable = is_seekable(self.output_fp)
        if bloscpack_header.offsets and not self._seekable:
            bloscpack_header.offsets = False
            bloscpack_header.max_app_chunks = 0
        self.offsets = bloscpack_header.offsets
        self.offset_storage: list[int] = []
        # Counted here, because `tell` costs a system call.
        self._position = 0
        self._nput = 0
        self._last_nbytes = 0

    def _write(self, data: Buffer) -> None:
        write_all(self.output_fp, data)
        self._position += len(data)

    def write_bloscpack_header(self) -> None:
        self._write(self.bloscpack_header.encode())

    def write_metadata(self, metadata: object, metadata_args: MetadataArgs) -> None:
        if not isinstance(metadata, sections.Section):
            metadata = sections.encode_section(metadata, metadata_args)
        self.metadata_args = metadata_args
        start = self._position
        for block in metadata.blocks():
            self._write(block)
        self.meta_total = self._position - start

    def init_offsets(self) -> None:
        total = self.bloscpack_header.total_prospective_chunks
        if self.offsets and total is not None:
            try:
                entries = sections.free_entries(total)
            except (MemoryError, OverflowError) as error:
                raise UsageError(
                    "there is no memory for an offset table of '%d' entries" % total
                ) from error
            self._write(entries)

    def put(self, i: int, compressed: bytes) -> tuple[int, bytes, bytes]:
        """Write a chunk and its digest; return its offset, the chunk and the digest."""
        offset, digest = self._position, self.do_checksum(compressed)
        CompressedFPSink.store(self, i, compressed, digest)
        return offset, compressed, digest

    def store(self, i: int, compressed: bytes, digest: bytes) -> None:
        """Write a chunk and its digest."""
        if self.offsets:
            self.offset_storage.append(self._position)
        if self.trailer is not None:
            self.trailer.add_frame(self._position, compressed)
        self._last_nbytes = chunks.plain_size(compressed)
        self._nput += 1
        if len(compressed) < WORTH_A_WRITE:
            self._write(b"".join((compressed, digest)))
        else:
            self._write(compressed)
            self._write(digest)

    def finalize(self) -> None:
        if self.trailer is not None:
            for block in self.trailer.blocks(self._position):
                self._write(block)
        end, header = self._position, self.bloscpack_header
        if self.offsets:
            table_at = BLOSCPACK_HEADER_LENGTH + self.meta_total
            encoded = sections.encode_offsets(self.offset_storage)
            self._overwrite(end - table_at, encoded)
        if header.nchunks == -1 and self._seekable:
            header.nchunks, header.last_chunk = self._nput, self._last_nbytes
            if self._nput == 1:
                header.chunk_size = self._last_nbytes
            self._overwrite(end, header.encode())

    def _overwrite(self, back: int, data: bytes) -> None:
        """Overwrite the bytes from `back` bytes before the end, then seek to the end.

        Relative positions, because the file may start anywhere in the file object.
        """
        self.output_fp.seek(-back, os.SEEK_CUR)
        write_all(self.output_fp, data)
        self.output_fp.seek(back - len(data), os.SEEK_CUR)


def is_seekable(fp: BinaryFile) -> bool:
    """Return whether written bytes can be overwritten."""
    if type(fp) is io.BytesIO:
        return True
    from gzip import GzipFile

    if isinstance(fp, GzipFile):
        return False  # it seeks only forward
    try:
        return bool(fp.seekable()) and not local.writes_at_end(fp)
    except AttributeError:
        return hasattr(fp, "seek")


# Plain bytes


class PlainFPSource(PlainSource):
    """Yields plain chunks from a file object.

    If the number of chunks is unknown, it reads to the end of the file or pipe. After
    the last chunk the file object is positioned at its end.

    Parameters
    ----------
    input_fp
        The plain bytes, from the current position on.
    """

    lasting = True

    def __init__(self, input_fp: Seekable) -> None:
        self.input_fp = input_fp

    def __iter__(self) -> Iterator[bytes]:
        if self.nchunks == -1:
            chunk = read_up_to(self.input_fp, self.chunk_size)
            yield chunk
            while len(chunk) == self.chunk_size:
                chunk = read_up_to(self.input_fp, self.chunk_size)
                if chunk:
                    yield chunk
            return
        for i, (start, stop) in enumerate(self.spans()):
            chunk = read_up_to(self.input_fp, stop - start)
            if len(chunk) < stop - start:
                raise self.too_early(i, stop - start, len(chunk))
            yield chunk

    def pieces(self) -> Iterator[Callable[[], Buffer]] | None:
        """Return functions that read the chunks, in any thread.

        None if the file can't be read at positions, or if its size is unknown.
        """
        file_range = local.FileRange.over(self.input_fp)
        if file_range is None or self.nchunks == -1:
            return None
        workspace, begin = Workspace(), self.input_fp.tell()

        def read(i: int, start: int, size: int) -> Buffer:
            view = workspace.view(size)
            found = file_range.read_into(view, begin + start)
            if found < size:
                raise self.too_early(i, size, found)
            return view

        def each() -> Iterator[Callable[[], Buffer]]:
            stop = 0
            for i, (start, stop) in enumerate(self.spans()):
                yield partial(read, i, start, stop - start)
            self.input_fp.seek(begin + stop)

        return each()

    def too_early(self, i: int, size: int, found: int) -> Exception:
        """Return the error for chunk `i`, of which `found` bytes are there."""
        return StorageError(
            "the input ends too early: expected '%d' bytes for chunk %d, found '%d'"
            % (size, i, found)
        )


class PlainBytesSource(PlainSource):
    """Yields views of a buffer, as plain chunks."""

    lasting = True

    def __init__(self, buffer: Buffer) -> None:
        self._view = as_bytes_view(buffer)

    def __iter__(self) -> Iterator[memoryview]:
        return (self._view[start:stop] for start, stop in self.spans(self._view.nbytes))

    def read(self, start: int, size: int) -> bytes:
        """Return a part of the buffer."""
        return bytes(self._view[start : start + size])


class PlainFPSink(StoringSink):
    """Writes plain bytes to a file object.

    Parameters
    ----------
    output_fp
        Written from its current position on.
    nchunks
        Not used; a parameter of 0.16.
    sparse
        Whether blocks of zero bytes become holes, which take no disk space, where a
        regular file has no bytes yet.
    """

    # A subclass need not call the constructor.
    _holes: SparseWriter | None = None
    _sparse = True
    _begin = 0

    def __init__(
        self, output_fp: Writable, nchunks: int | None = None, *, sparse: bool = True
    ) -> None:
        # Only `write` is called if it can't seek.
        self.output_fp: BinaryFile = output_fp  # type: ignore[assignment]
        self.nchunks = nchunks
        self._sparse = sparse

    def put(self, compressed: bytes) -> int:
        """Decompress and write the next chunk; return its plain size in bytes."""
        with own_settings:
            plain = chunks.decompress(compressed)
        write_all(self.output_fp, plain)  # `finalize` may not be called
        return len(plain)

    def store(self, plain: Buffer) -> None:
        """Write the plain bytes of the next chunk; `finalize` completes the file."""
        if self._sparse:
            self._holes = SparseWriter.over(self.output_fp)
            self._sparse = False  # it is known now
        if self._holes is not None:
            self._holes.write(plain)
        else:
            write_all(self.output_fp, plain)

    def placing(self) -> Callable[[int, Buffer], None] | None:
        """Return a function that writes the plain bytes of a chunk at their position.

        None unless the output is a regular file at its end, which may be cut.
        """
        file_range = local.FileRange.over(self.output_fp)
        if file_range is None or self._holes is not None:
            return None
        self._begin = begin = self.output_fp.tell()
        if begin < file_range.size():
            return None
        sparse = self._sparse

        def place(start: int, plain: Buffer) -> None:
            view, offset = memoryview(plain), begin + start
            spans = local.spans_of_data(view, offset) if sparse else [(0, len(view))]
            for first, last in spans:
                file_range.write(view[first:last], offset + first)

        return place

    def placed(self, end: int) -> None:
        """Give the file its length, with `end` plain bytes: it may end in a hole."""
        self.output_fp.seek(self._begin + end)
        self.output_fp.truncate()

    def finalize(self) -> None:
        if self._holes is not None:
            self._holes.finish()


class PlainBytesSink(MemorySink):
    """Fills a new bytes object of `nbytes` bytes, which `getvalue` returns."""

    def __init__(self, nbytes: int) -> None:
        self._bytes = announced_bytes(nbytes, nbytes)
        super().__init__(self._bytes.view)

    def getvalue(self) -> bytes:
        """Return the bytes; no other method may be called afterwards."""
        self._memory = memoryview(b"")
        return self._bytes.finish()


class JoinedBytesSink(StoringSink):
    """Joins the plain chunks to a bytes object, which `getvalue` returns.

    For few bytes, or an unknown number: nothing is allocated in advance, and a single
    chunk is not copied.
    """

    def __init__(self) -> None:
        self._chunks: list[Buffer] = []

    def store(self, plain: Buffer) -> None:
        """Keep the plain bytes of the next chunk."""
        self._chunks.append(plain)

    def getvalue(self) -> bytes:
        """Return the bytes."""
        return b"".join(self._chunks)


def announced_bytes(size: int, nbytes: int) -> BytesUnderConstruction:
    """Return memory for `size` bytes of a file whose header states `nbytes`."""
    try:
        return BytesUnderConstruction(size)
    except MemoryError as error:
        raise DamageError(
            "the header announces '%d' bytes, for which there is no memory" % nbytes,
            section="header",
        ) from error


# The functions on files


MakeSink = Callable[[SectionsSource, Writable], PlainFPSink]


def plain_sink(
    source: SectionsSource, out_fp: Writable, *, sparse: bool = True
) -> PlainFPSink:
    """Return a sink for the plain bytes of a source; see `unpack_fp_to_fp`."""
    return PlainFPSink(out_fp, sparse=sparse)


def log_packed(in_size: int, out_file: Path) -> None:
    """Log the size of a packed file and its compression ratio."""
    out_size = _size_to_log(out_file)
    if out_size is not None:
        log.verbose("output file size: %s" % double_pretty_size(out_size))
        log.verbose("compression ratio: %f" % (in_size / max(out_size, 1)))


def log_input(in_file: Path, in_size: int) -> None:
    """Log the size of a local input."""
    if not is_url(in_file):
        log.verbose("input file size: %s" % pretty_size(in_size))


def log_unpacked(in_size: int, out_file: Path) -> None:
    """Log the size of an unpacked file, and its ratio unless the input is a URL."""
    out_size = _size_to_log(out_file)
    if out_size is None:
        return
    log.verbose("output file size: %s" % pretty_size(out_size))
    if in_size:
        log.verbose("decompression ratio: %f" % (out_size / max(in_size, 1)))


def _size_to_log(out_file: Path) -> int | None:
    """Return the size of a file; None if it is not logged, or if the file is gone."""
    if not log.enabled(log.VERBOSE):
        return None
    try:
        return os.path.getsize(out_file)
    except OSError:
        return None


def pack_file_to_file(
    in_file: Path,
    out_file: Path,
    chunk_size: int | str = CHUNK_SIZE_NOT_GIVEN,
    metadata: object = None,
    blosc_args: AnyBloscArgs | None = None,
    bloscpack_args: AnyBloscpackArgs | None = None,
    metadata_args: AnyMetadataArgs | None = None,
    *,
    sync: bool | None = None,
    exclusive: bool = False,
    storage_options: StorageOptions | None = None,
    **keywords: Unpack[AutoKeywords],
) -> None:
    """Compress a file into another file.

    Parameters
    ----------
    in_file
        The file to read. A pipe is read to its end and stored without an offset table.
    out_file
        The file to write. It appears under this name only when it is complete.
    chunk_size
        Size of a chunk in bytes, or text like ``'1M'`` or ``'max'``.
    metadata
        Any value that JSON can represent. None: no metadata section.
    blosc_args, bloscpack_args, metadata_args
        The settings; see `BloscArgs`, `BloscpackArgs` and `MetadataArgs`.
    auto
        Whether to choose settings and chunk size that fit the data, by trials on a
        sample: True, or a goal as in `BloscArgs.auto`, such as ``'ratio'``. A setting
        that is given stays as it is, also ``chunk_size='1M'``. The sample of a pipe is
        its beginning.
    nthreads, progress, settings
        As in `bloscpack.abstract_io.pack`; `settings` are fields of the three classes
        as keywords, such as ``clevel=9``.
    storage_options
        Settings of fsspec for a URL, such as keys.
    sync
        Whether to wait until the disk has stored the file, so that it survives a crash
        of the machine. By default only if it replaces another file.
    exclusive
        Whether to raise an `OSError` with the number ``EEXIST`` if there is a file of
        the name `out_file`, now or at the end, rather than replace it.

    Raises
    ------
    UsageError
        An argument is invalid.
    StorageError
        The input became shorter while it was read. Bytes that another program appends
        during the read are not stored.
    """
    check_distinct(in_file, out_file)
    without_url(in_file, "packing a file")
    args = metadata, blosc_args, bloscpack_args, metadata_args
    with (
        open(in_file, "rb") as in_fp,
        replacing(
            out_file,
            sync,
            attributes_of_input(in_fp),
            exclusive=exclusive,
            storage_options=storage_options,
        ) as out_fp,
    ):
        pack_fp_to_fp(in_fp, out_fp, chunk_size, *args, **keywords)
        in_size = in_fp.tell() if in_fp.seekable() else 0
    log_packed(in_size, out_file)


def pack_fp_to_fp(
    in_fp: BinaryIO,
    out_fp: Writable,
    chunk_size: int | str = CHUNK_SIZE_NOT_GIVEN,
    metadata: object = None,
    blosc_args: AnyBloscArgs | None = None,
    bloscpack_args: AnyBloscpackArgs | None = None,
    metadata_args: AnyMetadataArgs | None = None,
    **keywords: Unpack[AutoKeywords],
) -> None:
    """Compress a buffered file object to its end into a new file.

    Both may be pipes. The output has no offset table if the size of the input is
    unknown or the output can't seek. The other parameters and the errors are those of
    `pack_file_to_file`.
    """
    size = size_of(in_fp)
    settings: Any = keywords
    sample = None
    if goal_of(settings.get("auto")):
        in_fp, sample = sampled(in_fp, size)
    chunk_size, blosc_args = fit_settings(settings, chunk_size, blosc_args, sample)
    if size is not None:
        log.verbose("input file size: %s" % double_pretty_size(size))
        sizes = calculate_nchunks(size, chunk_size)
    else:
        sizes = -1, parse_chunk_size(chunk_size), -1
    args = blosc_args, bloscpack_args, metadata_args
    sink = CompressedFPSink(out_fp)
    pack(PlainFPSource(in_fp), sink, *sizes, metadata, *args, **settings)


def unpack_file_from_file(
    in_file: Path,
    out_file: Path,
    *,
    nthreads: int | None = None,
    sync: bool | None = None,
    limits: AnyLimits | None = None,
    progress: Progress | None = None,
    sparse: bool = True,
    storage_options: StorageOptions | None = None,
) -> Json:
    """Decompress a file into another file and return its metadata.

    The result is None if there is no metadata.

    Parameters
    ----------
    in_file
        The compressed file.
    out_file
        The file to write. It appears under this name only when it is complete.
    nthreads, progress
        As in `bloscpack.abstract_io.pack`. If another process changes `in_file` during
        the read, it is read again and `progress` counts its chunks again.
    sync
        As in `pack_file_to_file`.
    storage_options
        Settings of fsspec for a URL, such as keys.
    limits
        The sizes that the file must not exceed; see `Limits`.
    sparse
        Whether blocks of zero bytes become holes in the output, which take no disk
        space and are read as zeros.

    Raises
    ------
    FormatError
        `in_file` is damaged or exceeds the limits. `out_file` is unchanged.
    """
    return unpack_to_path(
        in_file,
        out_file,
        partial(plain_sink, sparse=sparse),
        sync,
        storage_options,
        nthreads=nthreads,
        limits=limits,
        progress=progress,
    )


def short_content(fp: BinaryFile) -> bytes | None:
    """Return the content of a short regular file from its beginning on; else None."""
    try:
        status = os.fstat(fp.fileno())
    except (AttributeError, OSError):
        return None
    if not stat.S_ISREG(status.st_mode) or status.st_size >= WORTH_NO_COPY:
        return None
    return fp.read(WORTH_NO_COPY)


def _read_at_once(
    data: bytes, most: int = MAX_BUFFERSIZE
) -> tuple[BloscpackHeader, Json, bytes] | None:
    """Return header, metadata and plain bytes of a file with one chunk, for speed.

    None for every other file, if there are more than `most` plain bytes, and for a
    damaged file: reading it step by step raises the error.
    """
    parts = chunks.only_chunk(data)
    if parts is None:
        return None
    header, section, chunk, known = parts
    if known.nbytes > most:
        return None
    try:
        metadata = read_metadata(MemoryCursor(section))[0] if section else None
        with own_settings:
            return header, metadata, chunks.decompress(chunk, known)
    except FormatError:
        return None


def unpack_to_path(
    in_file: Path,
    out_file: Path,
    make_sink: MakeSink,
    sync: bool | None,
    storage_options: StorageOptions | None,
    *,
    preserve: bool = False,
    nthreads: int | None = None,
    limits: AnyLimits | None = None,
    progress: Progress | None = None,
) -> Json:
    """Decompress a file into another file and return its metadata.

    `make_sink` returns the sink, as in `unpack_fp_to_fp`. With `preserve` the output
    gets the times of the input and, if it replaces no file, its permissions. The other
    parameters and the errors are those of `unpack_file_from_file`.
    """
    check_distinct(in_file, out_file)
    in_size = size_of_input(in_file)
    log_input(in_file, in_size)
    is_usual = may_read_at_once(nthreads, progress, limits)
    is_usual &= getattr(make_sink, "func", None) is plain_sink

    def read(in_fp: BinaryFile, check: Check) -> Json:
        with replacing(
            out_file,
            sync,
            attributes_of_input(in_fp),
            access=preserve,
            times=preserve,
            storage_options=storage_options,
        ) as out_fp:
            if is_usual and (data := short_content(in_fp)) is not None:
                parts = _read_at_once(data, WORTH_NO_COPY)
                if parts is not None:
                    header, metadata, plain = parts
                    check(header)
                    write_all(out_fp, plain)
                    return metadata
                in_fp.seek(0)
            return unpack_fp_to_fp(
                in_fp,
                out_fp,
                check,
                nthreads=nthreads,
                limits=limits,
                progress=progress,
                behind=bytes,  # accepts any bytes
                make_sink=make_sink,
            )

    metadata = read_snapshot(
        in_file,
        read,
        attempts_for(out_file),
        storage_options=storage_options,
        limits=limits,
    )
    log_unpacked(in_size, out_file)
    return metadata


def unpack_fp_to_fp(
    in_fp: Seekable,
    out_fp: Writable,
    check: Check | None = None,
    *,
    nthreads: int | None = None,
    limits: AnyLimits | None = None,
    progress: Progress | None = None,
    behind: Callable[[bytes], object] | None = None,
    make_sink: MakeSink = plain_sink,
    joins: bool = False,
) -> Json:
    """Decompress a file object, from its current position on, into a new file.

    Both may be pipes. `check` is called with the header when the sections in front of
    the chunks have been read, and a second time at the end if the chunks have no
    digests. `behind` is called with up to four bytes that lie behind the last chunk;
    without it, nothing behind the last chunk is read from a pipe. `make_sink`
    returns the sink for a source and a file object. With `joins`, the plain bytes of a
    file that begins behind the last chunk follow the plain bytes of the first file. The
    result is the metadata of the first file. The other parameters and the errors are
    those of `unpack_file_from_file`.
    """
    first = source = CompressedFPSource(in_fp, limits=limits, to_end=behind is not None)
    while True:
        header = source.bloscpack_header
        if check is not None:
            check(header)
        unpack(source, make_sink(source, out_fp), nthreads=nthreads, progress=progress)
        # Without digests nothing else detects a mixture of two states of the input, and
        # the output is about to appear under its name.
        if check is not None and not header.checksum_impl.size:
            check(header)
        if behind is None:
            break
        behind_it = source.peek_behind(len(MAGIC))
        if not joins or behind_it != MAGIC:
            behind(behind_it)
            break
        source = source.following()
    return first.metadata


@releasing_views
def pack_bytes_to_file(
    bytes_: Buffer,
    out_file: Path,
    chunk_size: int | str = CHUNK_SIZE_NOT_GIVEN,
    metadata: object = None,
    blosc_args: AnyBloscArgs | None = None,
    bloscpack_args: AnyBloscpackArgs | None = None,
    metadata_args: AnyMetadataArgs | None = None,
    *,
    sync: bool | None = None,
    storage_options: StorageOptions | None = None,
    **keywords: Unpack[AutoKeywords],
) -> None:
    """Compress a buffer into a file.

    All bytes of the buffer are stored, whatever the size of its items. The other
    parameters and the errors are those of `pack_file_to_file`.

    Examples
    --------
    >>> pack_bytes_to_file(b'abcd' * 1000, 'abcd.blp', metadata={'unit': 'm'})
    >>> plain, metadata = unpack_bytes_from_file('abcd.blp')
    >>> len(plain), metadata
    (4000, {'unit': 'm'})
    """
    args = metadata, blosc_args, bloscpack_args, metadata_args
    with replacing(out_file, sync, storage_options=storage_options) as out_fp:
        in_size = _pack_bytes(_view_of(bytes_), out_fp, chunk_size, *args, **keywords)
    log_packed(in_size, out_file)


@releasing_views
def pack_bytes_to_bytes(
    bytes_: Buffer,
    chunk_size: int | str = CHUNK_SIZE_NOT_GIVEN,
    metadata: object = None,
    blosc_args: AnyBloscArgs | None = None,
    bloscpack_args: AnyBloscpackArgs | None = None,
    metadata_args: AnyMetadataArgs | None = None,
    **keywords: Unpack[AutoKeywords],
) -> bytes:
    """Compress a buffer and return the file as bytes.

    The parameters and the errors are those of `pack_file_to_file`.

    Examples
    --------
    >>> packed = pack_bytes_to_bytes(b'blosc' * 1000)
    >>> unpack_bytes_from_bytes(packed) == (b'blosc' * 1000, None)
    True
    """
    args = metadata, blosc_args, bloscpack_args, metadata_args
    view = _view_of(bytes_)
    out_fp = room_to_pack(view.nbytes)
    _pack_bytes(view, out_fp, chunk_size, *args, **keywords)
    out_fp.truncate()
    return out_fp.getvalue()


def room_to_pack(nbytes: int) -> io.BytesIO:
    """Return a file object in memory with room for `nbytes` plain bytes, compressed.

    The caller truncates it at the end. Small files gain nothing from room.
    """
    return bytes_with_room(nbytes + nbytes // 32 if nbytes >= WORTH_ROOM else 0)


def _view_of(bytes_: Buffer) -> memoryview:
    """Return a view of a buffer; raises `UsageTypeError` if it is none."""
    try:
        return memoryview(bytes_)
    except TypeError as error:
        hint = ": encode the text first" if isinstance(bytes_, str) else ""
        raise UsageTypeError(
            "'bytes_' must be bytes or another buffer, not '%s'%s"
            % (type(bytes_).__name__, hint)
        ) from error


def _pack_bytes(
    view: memoryview,
    out_fp: Writable,
    chunk_size: int | str,
    metadata: object,
    blosc_args: AnyBloscArgs | None,
    *args: Any,
    **keywords: Unpack[AutoKeywords],
) -> int:
    """Compress a buffer; return its size in bytes. `args` are arguments of `pack`."""
    source = PlainBytesSource(view)
    settings: Any = keywords
    if "auto" in settings:
        sizes = (view.itemsize,) if 1 < view.itemsize <= MAX_TYPESIZE else ()
        sample = source.read, view.nbytes
        chunk_size, blosc_args = fit_settings(
            settings, chunk_size, blosc_args, sample, sizes
        )
    geometry = calculate_nchunks(view.nbytes, chunk_size)
    sink = CompressedFPSink(out_fp)
    pack(source, sink, *geometry, metadata, blosc_args, *args, **settings)
    return view.nbytes


def unpack_bytes_from_file(
    compressed_file: Path,
    *,
    nthreads: int | None = None,
    limits: AnyLimits | None = None,
    progress: Progress | None = None,
    storage_options: StorageOptions | None = None,
) -> tuple[bytes, Json]:
    """Return the plain bytes of a file and its metadata.

    The metadata is None if there is none.

    Parameters
    ----------
    compressed_file
        The compressed file.
    nthreads, progress, limits
        As in `unpack_file_from_file`.
    storage_options
        Settings of fsspec for a URL, such as keys.

    Raises
    ------
    FormatError
        The file is damaged or exceeds the limits.
    """

    def read(fp: Seekable, check: Check) -> tuple[bytes, Json]:
        source = CompressedFPSource(fp, limits=limits, to_end=True)
        check(source.bloscpack_header)
        return _unpack_bytes(source, nthreads, progress)

    return read_snapshot(
        compressed_file, read, storage_options=storage_options, limits=limits
    )


@releasing_views
def unpack_bytes_from_bytes(
    bytes_: Buffer,
    *,
    nthreads: int | None = None,
    limits: AnyLimits | None = None,
    progress: Progress | None = None,
) -> tuple[bytes, Json]:
    """Return the plain bytes and the metadata of a file in a buffer.

    The other parameters, the results and the errors are those of
    `unpack_bytes_from_file`.
    """
    limits = effective_limits(limits)
    is_usual = may_read_at_once(nthreads, progress, limits)
    if is_usual and isinstance(bytes_, bytes) and len(bytes_) < WORTH_NO_COPY:
        parts = _read_at_once(bytes_)
        if parts is not None:
            _, metadata, plain = parts
            return plain, metadata
    source = CompressedBytesSource(bytes_, limits=limits)
    return _unpack_bytes(source, nthreads, progress)


def _unpack_bytes(
    source: SectionsSource, nthreads: int | None, progress: Progress | None
) -> tuple[bytes, Json]:
    nbytes = source.bloscpack_header.nbytes
    sink: PlainBytesSink | JoinedBytesSink
    if nbytes is None or nbytes < WORTH_NO_COPY:
        sink = JoinedBytesSink()
    else:
        sink = PlainBytesSink(nbytes)
    unpack(source, sink, nthreads=nthreads, progress=progress)
    return sink.getvalue(), source.metadata


# Names kept from 0.16

pack_file = deprecated_alias("pack_file", pack_file_to_file)
unpack_file = deprecated_alias("unpack_file", unpack_file_from_file)
pack_bytes_file = deprecated_alias("pack_bytes_file", pack_bytes_to_file)
unpack_bytes_file = deprecated_alias("unpack_bytes_file", unpack_bytes_from_file)


def _read_metadata(fp: Seekable) -> tuple[Json, MetadataHeader]:
    return read_metadata(Cursor(fp))


__getattr__ = sibling_names(__name__)
