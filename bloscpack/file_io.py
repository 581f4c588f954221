"""Pack files and bytes, unpack them, and the sources and sinks over file objects.

A file object is used from its current position on and stays open. A file that is
written under a path appears there only when it is complete. A count that a file states
is compared with the size of the file before memory is allocated.
"""

from __future__ import annotations

import io
import os
from functools import partial

from . import log
from ._compat import deprecated_alias, sibling_names
from ._crashsafe.ownership import attributes_of_input
from ._crashsafe.replace import check_distinct, replacing
from ._crashsafe.snapshot import attempts_for, read_snapshot
from ._engine.prealloc import WORTH_NO_COPY, BytesWriter
from ._engine.threads import Workspace
from ._format import metadata as metadata_section
from ._format import offsets as offset_table
from ._format.chunks import plain_size
from ._format.sections import read_metadata, skip_frames
from ._storage.base import as_bytes_view, bytes_left, read_up_to, write_all
from ._storage.cursor import Cursor
from ._storage.holes import SparseRange, SparseStream, sparse_range
from ._storage.local import FileRange, concurrent_storage, writes_at_end
from ._storage.spool import size_of
from ._storage.urls import is_url, size_of_input, without_url
from .abstract_io import (
    CompressedSink,
    PlainSink,
    PlainSource,
    StoringSink,
    log_digest,
    pack,
    unpack,
)
from .args import calculate_nchunks, parse_chunk_size
from .bytes_io import (
    CompressedBytesSource,
    JoinedBytesSink,
    PlainBytesSink,
    PlainBytesSource,
    SectionsSource,
    bytes_writer,
)
from .constants import BLOSC_HEADER_LENGTH, BLOSCPACK_HEADER_LENGTH, MAGIC
from .defaults import DEFAULT_CHUNK_SIZE
from .exceptions import DamageError, StorageError, UsageError, UsageTypeError
from .pretty import double_pretty_size, pretty_size

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO

    from typing_extensions import Unpack

    from ._crashsafe.snapshot import Check
    from ._format.sections import Frame
    from ._format.shard import Trailer
    from ._storage.protocols import (
        BinaryFile,
        Buffer,
        Path,
        Seekable,
        StorageOptions,
        Writable,
    )
    from .abstract_io import PlainTask, Progress
    from .args import (
        AnyBloscArgs,
        AnyBloscpackArgs,
        AnyLimits,
        AnyMetadataArgs,
        BloscArgs,
        MetadataArgs,
        PackKeywords,
    )
    from .headers import BloscpackHeader, MetadataHeader
    from .serializers import Json


# Number of bytes of disk space that a sink reserves at a time.
RESERVED_AT_A_TIME = 32 * 2**20
# Maximum compression ratio for which the stated plain size is used to reserve disk
# space. A higher ratio is rare; the header may be wrong.
LIKELY_RATIO = 1000
# Size in bytes of a compressed chunk from which a second write takes less time than
# joining the chunk and its digest.
WORTH_A_WRITE = 16 * 2**10
# Number of bytes from which another thread copies them sooner than this thread would.
WORTH_ANOTHER_THREAD = 64 * 2**10


# Reading


class CompressedFPSource(SectionsSource):
    """Reads a file of any layout from a file object, which may be a pipe.

    The constructor reads the sections in front of the chunks. After the last chunk the
    file object is positioned at its end, so that another file may follow.

    Parameters
    ----------
    input_fp
        The compressed file, from the current position on.
    limits
        The sizes that the file must not exceed; see `Limits`.
    to_end
        Whether a pipe is to be read beyond the last chunk, where another chunk would be
        an error. By default, another program can read on there.

    Attributes
    ----------
    bloscpack_header
        The header.
    metadata, metadata_header
        The metadata and its header, None if the file has no metadata section.
    offsets
        The file offsets of the chunks, None if the file has no offset table.

    Raises
    ------
    FormatError
        The file is damaged or exceeds the limits.
    """

    concurrent = True

    def __init__(
        self,
        input_fp: Seekable,
        *,
        limits: AnyLimits | None = None,
        to_end: bool = False,
    ) -> None:
        self.input_fp = input_fp
        self._storage = concurrent_storage(input_fp)
        self.random_access = self._storage is not None
        self._workspace = Workspace()
        super().__init__(Cursor(input_fp, to_end=to_end), limits)

    def tasks(self) -> Iterator[Frame]:
        if self._storage is None:
            return super().tasks()
        return skip_frames(self._cursor, self.bloscpack_header, self.limits)

    def load(self, frame: Frame) -> tuple[Buffer, Buffer]:
        if self._storage is None or frame.content is not None:
            return super().load(frame)
        size = frame.header.ctbytes + self.bloscpack_header.checksum_impl.size
        view = self._workspace.view(size)
        found = self._storage.read_into(view, frame.offset or 0)
        if found < size:
            raise DamageError(
                "the file ends too early: expected a chunk and its digest of '%d' "
                "bytes, found '%d'" % (size, found),
                section="chunks",
                chunk=frame.number,
                offset=frame.offset,
            )
        return view[: frame.header.ctbytes], view[frame.header.ctbytes :]


# Writing


class CompressedFPSink(CompressedSink):
    """Writes a file of layout 3 to a file object.

    If the number of chunks is not known at the start, the header is completed at the
    end. A file object that can't seek gets neither that header nor an offset table.

    Parameters
    ----------
    output_fp
        Written from its current position on.
    new
        Whether the file object is a new file, whose disk space may be reserved before
        it is written. The unused part is cut off at the end.
    """

    concurrent = True

    def __init__(self, output_fp: Writable, *, new: bool = False) -> None:
        # Only `write` is called if it can't seek.
        self.output_fp: BinaryFile = output_fp  # type: ignore[assignment]
        self.meta_total = 0
        self._range = FileRange.over(output_fp) if new else None
        self._begin = self.output_fp.tell() if self._range is not None else 0
        self._write_later: Callable[..., Callable[[], None]] | None = None
        self._trailer: Trailer | None = None

    def configure(
        self, blosc_args: BloscArgs, bloscpack_header: BloscpackHeader
    ) -> None:
        super().configure(blosc_args, bloscpack_header)
        # The offset table is written last, which needs a file object that can seek.
        if bloscpack_header.offsets and not is_seekable(self.output_fp):
            bloscpack_header.offsets = False
            bloscpack_header.max_app_chunks = 0
        self.offsets = bloscpack_header.offsets
        self.offset_storage: list[int] = []
        # Counted here, because `tell` costs a system call.
        self._position = 0
        self._reserved = RESERVED_AT_A_TIME
        self._nput = 0
        self._last_nbytes = 0

    def _write(self, data: Buffer) -> None:
        end = self._position + len(data)
        # Small files gain nothing.
        if self._range is not None and end > self._reserved:
            self._range.reserve(self._begin + self._reserved, RESERVED_AT_A_TIME)
            self._reserved += RESERVED_AT_A_TIME
        write_all(self.output_fp, data)
        self._position = end

    def write_bloscpack_header(self) -> None:
        encoded = self.bloscpack_header.encode()
        log.debug("raw_bloscpack_header: %r", encoded)
        self._write(encoded)

    def write_metadata(self, metadata: object, metadata_args: MetadataArgs) -> None:
        section = metadata_section.encode_section(metadata, metadata_args)
        self.write_section(section.blocks())
        self.begin_trailer(metadata)

    def begin_trailer(self, metadata: object) -> None:
        """Write a trailer behind the last chunk if the metadata say so."""
        if not isinstance(metadata, dict) or "shard" not in metadata:
            return
        from ._format.shard import Trailer, count_slots, inner_size

        size = inner_size(metadata, self.bloscpack_header)
        if size is not None:
            nslots = count_slots(self.bloscpack_header)
            self._trailer = Trailer(size, nslots, self.checksum_impl)

    def write_section(self, blocks: Iterable[bytes]) -> None:
        """Write an encoded metadata section, which is given in blocks."""
        start = self._position
        for block in blocks:
            self._write(block)
        self.meta_total = self._position - start

    def init_offsets(self) -> None:
        total = self.bloscpack_header.total_prospective_chunks
        if self.offsets and total is not None:
            try:
                entries = offset_table.free_entries(total)
            except (MemoryError, OverflowError) as error:
                raise UsageError(
                    "there is no memory for an offset table of '%d' entries" % total
                ) from error
            self._write(entries)
        header = self.bloscpack_header
        if (
            isinstance(self.output_fp, BytesWriter)
            and header.nbytes is not None
            and header.chunk_size >= WORTH_ANOTHER_THREAD
        ):
            overhead = BLOSC_HEADER_LENGTH + self.checksum_impl.size
            self.output_fp.reserve(header.nbytes + header.nchunks * overhead)
            self._write_later = self.output_fp.write_later

    def put(self, i: int, compressed: bytes) -> tuple[int, bytes, bytes]:
        """Write a chunk and its digest; return its offset, the chunk and the digest."""
        offset, digest = self._position, self.do_checksum(compressed)
        rest = self._put(compressed, digest)
        if rest is not None:
            rest()
        return offset, compressed, digest

    def put_digested(
        self, i: int, compressed: bytes, digest: bytes
    ) -> Callable[[], None] | None:
        log_digest(self.checksum_impl, digest)
        return self._put(compressed, digest)

    def _put(self, compressed: bytes, digest: bytes) -> Callable[[], None] | None:
        if self.offsets:
            self.offset_storage.append(self._position)
        if self._trailer is not None:
            self._trailer.add_frame(self._position, compressed)
        self._last_nbytes = plain_size(compressed)
        self._nput += 1
        if self._write_later is not None and len(compressed) >= WORTH_ANOTHER_THREAD:
            self._position += len(compressed) + len(digest)
            return self._write_later(compressed, digest)
        if len(compressed) < WORTH_A_WRITE:
            self._write(b"".join((compressed, digest)))
        else:
            self._write(compressed)
            self._write(digest)
        return None

    def finalize(self) -> None:
        if self._trailer is not None:
            for block in self._trailer.blocks(self._position):
                self._write(block)
        end = self._position
        if self.offsets:
            table_at = BLOSCPACK_HEADER_LENGTH + self.meta_total
            self._overwrite(end - table_at, self._encoded_offsets())
        if self.bloscpack_header.nchunks == -1 and is_seekable(self.output_fp):
            last_chunk = self._last_nbytes
            self.bloscpack_header.nchunks = self._nput
            self.bloscpack_header.last_chunk = last_chunk
            if self._nput == 1:
                self.bloscpack_header.chunk_size = last_chunk
            self._overwrite(end, self.bloscpack_header.encode())
        if self._range is not None:
            self.output_fp.truncate(self._begin + end)

    def _encoded_offsets(self) -> bytes:
        log.debug(
            "Writing '%d' offsets: '%r'"
            % (len(self.offset_storage), self.offset_storage)
        )
        encoded = offset_table.encode(self.offset_storage)
        log.debug("Raw offsets: %r", encoded)
        return encoded

    def _overwrite(self, back: int, data: bytes) -> None:
        """Overwrite the bytes from `back` bytes before the end, then seek to the end.

        Relative positions, because the file may start anywhere in the file object.
        """
        self.output_fp.seek(-back, os.SEEK_CUR)
        write_all(self.output_fp, data)
        self.output_fp.seek(back - len(data), os.SEEK_CUR)


def is_seekable(fp: BinaryFile) -> bool:
    """Return whether written bytes can be overwritten."""
    try:
        return bool(fp.seekable()) and not writes_at_end(fp)
    except AttributeError:
        return hasattr(fp, "seek")


class PlainFPSource(PlainSource):
    """Yields plain chunks from a file object.

    If the number of chunks is unknown, it reads to the end of the file or pipe. After
    the last chunk the file object is positioned at its end.

    Parameters
    ----------
    input_fp
        The plain bytes, from the current position on.
    """

    concurrent = True

    def __init__(self, input_fp: Seekable) -> None:
        self.input_fp = input_fp

    def __iter__(self) -> Iterator[bytes]:
        if self.nchunks == -1:
            yield from self._read_to_end()
            return
        for i, (start, stop) in enumerate(self.spans()):
            chunk = read_up_to(self.input_fp, stop - start)
            self.check_complete(i, stop - start, len(chunk))
            yield chunk

    def _read_to_end(self) -> Iterator[bytes]:
        chunk = read_up_to(self.input_fp, self.chunk_size)
        yield chunk
        while len(chunk) == self.chunk_size:
            chunk = read_up_to(self.input_fp, self.chunk_size)
            if chunk:
                yield chunk

    def tasks(self) -> Iterator[PlainTask]:
        self._storage = concurrent_storage(self.input_fp)
        if self._storage is None or self.nchunks == -1:
            yield from self
            return
        self._workspace = Workspace()
        begin, stop = self.input_fp.tell(), 0
        for i, (start, stop) in enumerate(self.spans()):
            yield i, start, stop - start
        self.input_fp.seek(begin + stop)

    def load(self, task: PlainTask) -> Buffer:
        if not isinstance(task, tuple):
            chunk: bytes = task
            return chunk
        assert self._storage is not None
        i, offset, size = task
        view = self._workspace.view(size)
        self.check_complete(i, size, self._storage.read_into(view, offset))
        return view

    def check_complete(self, i: int, size: int, found: int) -> None:
        """Raise `StorageError` if fewer than `size` bytes of chunk `i` were found."""
        if found < size:
            raise StorageError(
                "the input ends too early: expected '%d' bytes for chunk %d, found '%d'"
                % (size, i, found)
            )


class PlainFPSink(StoringSink):
    """Writes plain bytes to a file object.

    Parameters
    ----------
    output_fp
        Written from its current position on.
    nchunks
        Not used; a parameter of 0.16.
    reserved
        Number of bytes of disk space to reserve for a new file, at most the number of
        bytes that will be written.
    sparse
        Whether blocks of zero bytes become holes, which take no disk space, where a
        regular file has no bytes yet.
    """

    concurrent = True
    _range: FileRange | None = None
    _holes: SparseRange | None = None
    _stream: SparseStream | None = None

    def __init__(
        self,
        output_fp: Writable,
        nchunks: int | None = None,
        *,
        reserved: int = 0,
        sparse: bool = True,
    ) -> None:
        # Only `write` is called if it can't seek.
        self.output_fp: BinaryFile = output_fp  # type: ignore[assignment]
        self.nchunks = nchunks
        self._reserved = reserved
        self._sparse = sparse

    def start(self) -> None:
        self._range = FileRange.over(self.output_fp)
        self.random_access = self.concurrent and self._range is not None
        self._ends = [0]
        if self._range is None:
            self._stream = SparseStream.over(self.output_fp) if self._sparse else None
            return
        self._begin = self.output_fp.tell()
        if self._sparse and self.random_access:
            self._holes = sparse_range(self.output_fp, self._range, self._reserved)
        if self._holes is None and self._reserved:
            self._range.reserve(self._begin, self._reserved)

    def store(self, plain: Buffer) -> None:
        if self._stream is not None:
            self._stream.write(plain)
        else:
            write_all(self.output_fp, plain)

    def store_at(self, start: int, plain: Buffer) -> None:
        assert self._range is not None
        (self._holes or self._range).write(plain, self._begin + start)
        self._ends.append(start + len(plain))

    def finalize(self) -> None:
        if self._stream is not None:
            self._stream.finish()
        if self.random_access:
            assert self._range is not None
            end = self._begin + max(self._ends)
            self.output_fp.seek(end)
            if self._range.size() < end:  # it ends in a hole
                self.output_fp.truncate(end)


def plain_sink(
    source: SectionsSource, out_fp: Writable, reserved: int, *, sparse: bool = True
) -> PlainFPSink:
    """Return a sink for the plain bytes of a source; see `unpack_fp_to_fp`."""
    return PlainFPSink(out_fp, source.nchunks, reserved=reserved, sparse=sparse)


# The functions on files and bytes


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
    if out_size is not None:
        log.verbose("output file size: %s" % pretty_size(out_size))
    if out_size is not None and in_size:
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
    chunk_size: int | str = DEFAULT_CHUNK_SIZE,
    metadata: object = None,
    blosc_args: AnyBloscArgs | None = None,
    bloscpack_args: AnyBloscpackArgs | None = None,
    metadata_args: AnyMetadataArgs | None = None,
    *,
    nthreads: int | None = None,
    sync: bool | None = None,
    progress: Progress | None = None,
    storage_options: StorageOptions | None = None,
    **settings: Unpack[PackKeywords],
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
    nthreads, progress, settings
        As in `bloscpack.abstract_io.pack`; `settings` are fields of the three classes
        as keywords, such as ``clevel=9``.
    storage_options
        Settings of fsspec for a URL, such as keys.
    sync
        Whether to wait until the disk has stored the file, so that it survives a crash
        of the machine. By default only if it replaces another file.

    Raises
    ------
    UsageError
        An argument is invalid.
    StorageError
        The input became shorter while it was read. Bytes that were added meanwhile are
        not stored.
    """
    check_distinct(in_file, out_file)
    without_url(in_file, "packing a file")
    with (
        open(in_file, "rb") as in_fp,
        replacing(
            out_file, sync, attributes_of_input(in_fp), storage_options=storage_options
        ) as out_fp,
    ):
        pack_fp_to_fp(
            in_fp,
            out_fp,
            chunk_size,
            metadata,
            blosc_args,
            bloscpack_args,
            metadata_args,
            nthreads=nthreads,
            progress=progress,
            **settings,
        )
        in_size = in_fp.tell() if in_fp.seekable() else 0
    log_packed(in_size, out_file)


def pack_fp_to_fp(
    in_fp: BinaryIO,
    out_fp: Writable,
    chunk_size: int | str = DEFAULT_CHUNK_SIZE,
    metadata: object = None,
    blosc_args: AnyBloscArgs | None = None,
    bloscpack_args: AnyBloscpackArgs | None = None,
    metadata_args: AnyMetadataArgs | None = None,
    *,
    nthreads: int | None = None,
    progress: Progress | None = None,
    **settings: Unpack[PackKeywords],
) -> None:
    """Compress a buffered file object to its end into a new file.

    Both may be pipes. The output has no offset table if the size of the input is
    unknown or the output can't seek. The other parameters and the errors are those of
    `pack_file_to_file`.
    """
    size = size_of(in_fp)
    if size is not None:
        log.verbose("input file size: %s" % double_pretty_size(size))
        cut = calculate_nchunks(size, chunk_size)
    else:
        cut = -1, parse_chunk_size(chunk_size), -1
    pack(
        PlainFPSource(in_fp),
        CompressedFPSink(out_fp, new=True),
        *cut,
        metadata=metadata,
        blosc_args=blosc_args,
        bloscpack_args=bloscpack_args,
        metadata_args=metadata_args,
        nthreads=nthreads,
        progress=progress,
        **settings,
    )


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
        As in `bloscpack.abstract_io.pack`. If another process changes `in_file`
        meanwhile, it is read again and `progress` counts its chunks again.
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
    check_distinct(in_file, out_file)
    in_size = size_of_input(in_file)
    log_input(in_file, in_size)

    def read(in_fp: BinaryFile, check: Check) -> Json:
        with replacing(
            out_file, sync, attributes_of_input(in_fp), storage_options=storage_options
        ) as out_fp:
            return unpack_fp_to_fp(
                in_fp,
                out_fp,
                check,
                nthreads=nthreads,
                limits=limits,
                progress=progress,
                behind=_ignore,
                make_sink=partial(plain_sink, sparse=sparse),
            )

    metadata = read_snapshot(
        in_file, read, attempts_for(out_file), storage_options=storage_options
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
    make_sink: Callable[[SectionsSource, Writable, int], PlainFPSink] = plain_sink,
) -> Json:
    """Decompress a file object, from its current position on, into a new file.

    Both may be pipes. `check` is called with the header when the sections in front of
    the chunks have been read, and a second time at the end if the chunks have no
    digests. `behind` is called with up to four bytes that lie behind the last chunk;
    without it, nothing behind the last chunk is read from a pipe. `make_sink`
    returns the sink for a source, a file object and a number of bytes to reserve. The
    other parameters, the result and the errors are those of `unpack_file_from_file`.
    """
    source = CompressedFPSource(in_fp, limits=limits, to_end=behind is not None)
    header = source.bloscpack_header
    if check is not None:
        check(header)
    reserved = likely_nbytes(header, bytes_left(in_fp) or 0)
    unpack_checked(
        source, make_sink(source, out_fp, reserved), check, nthreads, progress
    )
    if behind is not None:
        behind(source.peek_behind(len(MAGIC)))
    return source.metadata


def _ignore(behind: bytes) -> None:
    """Accept any bytes behind the last chunk."""


def unpack_checked(
    source: SectionsSource,
    sink: PlainSink,
    check: Check | None,
    nthreads: int | None,
    progress: Progress | None = None,
) -> None:
    """Decompress into a sink, then call `check` if the chunks have no digests.

    Without digests nothing else detects a mixture of two states of the input, and the
    output is about to appear under its name.
    """
    unpack(source, sink, nthreads=nthreads, progress=progress)
    header = source.bloscpack_header
    if check is not None and not header.checksum_impl.size:
        check(header)


def likely_nbytes(header: BloscpackHeader, in_size: int) -> int:
    """Return the plain size in bytes that the header of a file states.

    0 if it is unknown, or if `in_size` compressed bytes are unlikely to hold so much.
    """
    nbytes = header.nbytes or 0
    return nbytes if nbytes <= in_size * LIKELY_RATIO else 0


def pack_bytes_to_file(
    bytes_: Buffer,
    out_file: Path,
    chunk_size: int | str = DEFAULT_CHUNK_SIZE,
    metadata: object = None,
    blosc_args: AnyBloscArgs | None = None,
    bloscpack_args: AnyBloscpackArgs | None = None,
    metadata_args: AnyMetadataArgs | None = None,
    *,
    nthreads: int | None = None,
    sync: bool | None = None,
    progress: Progress | None = None,
    storage_options: StorageOptions | None = None,
    **settings: Unpack[PackKeywords],
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
    with replacing(out_file, sync, storage_options=storage_options) as out_fp:
        in_size = _pack_bytes(
            bytes_,
            out_fp,
            chunk_size,
            metadata,
            blosc_args,
            bloscpack_args,
            metadata_args,
            nthreads,
            progress,
            settings,
            new=True,
        )
    log_packed(in_size, out_file)


def pack_bytes_to_bytes(
    bytes_: Buffer,
    chunk_size: int | str = DEFAULT_CHUNK_SIZE,
    metadata: object = None,
    blosc_args: AnyBloscArgs | None = None,
    bloscpack_args: AnyBloscpackArgs | None = None,
    metadata_args: AnyMetadataArgs | None = None,
    *,
    nthreads: int | None = None,
    progress: Progress | None = None,
    **settings: Unpack[PackKeywords],
) -> bytes:
    """Compress a buffer and return the file as bytes.

    The parameters and the errors are those of `pack_file_to_file`.

    Examples
    --------
    >>> packed = pack_bytes_to_bytes(b'blosc' * 1000)
    >>> unpack_bytes_from_bytes(packed) == (b'blosc' * 1000, None)
    True
    """
    out_fp = bytes_writer(_view_of(bytes_).nbytes)
    _pack_bytes(
        bytes_,
        out_fp,
        chunk_size,
        metadata,
        blosc_args,
        bloscpack_args,
        metadata_args,
        nthreads,
        progress,
        settings,
    )
    return out_fp.getvalue()


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
    bytes_: Buffer,
    out_fp: Writable,
    chunk_size: int | str,
    metadata: object,
    blosc_args: AnyBloscArgs | None,
    bloscpack_args: AnyBloscpackArgs | None,
    metadata_args: AnyMetadataArgs | None,
    nthreads: int | None,
    progress: Progress | None,
    settings: PackKeywords,
    new: bool = False,
) -> int:
    view = as_bytes_view(_view_of(bytes_))
    if log.enabled(log.VERBOSE):
        log.verbose("input bytes size: %s" % double_pretty_size(view.nbytes))
    pack(
        PlainBytesSource(view),
        CompressedFPSink(out_fp, new=new),
        *calculate_nchunks(view.nbytes, chunk_size),
        metadata=metadata,
        blosc_args=blosc_args,
        bloscpack_args=bloscpack_args,
        metadata_args=metadata_args,
        nthreads=nthreads,
        progress=progress,
        **settings,
    )
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

    return read_snapshot(compressed_file, read, storage_options=storage_options)


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
    source = CompressedBytesSource(bytes_, limits=limits)
    return _unpack_bytes(source, nthreads, progress)


def _unpack_bytes(
    source: SectionsSource, nthreads: int | None, progress: Progress | None
) -> tuple[bytes, Json]:
    nbytes = source.bloscpack_header.nbytes
    if nbytes is None:
        with io.BytesIO() as out_fp:
            unpack(source, PlainFPSink(out_fp), nthreads=nthreads, progress=progress)
            return out_fp.getvalue(), source.metadata
    sink: PlainBytesSink | JoinedBytesSink
    if nbytes < WORTH_NO_COPY:
        sink = JoinedBytesSink()
    else:
        try:
            sink = PlainBytesSink(nbytes)
        except MemoryError as error:
            raise DamageError(
                "the header announces '%d' bytes, for which there is no memory"
                % nbytes,
                section="header",
            ) from error
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
