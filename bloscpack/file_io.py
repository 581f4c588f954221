"""Files: the sources and sinks over file objects; the functions on files and bytes.

File objects stay open and are used from where they stand; what is written under a
path appears there complete or not at all. Every count that a file states is
compared with the file before memory is asked for.
"""

from __future__ import annotations

import io
import os

from . import _temporary
from . import log
from ._compat import deprecated_alias, sibling_names
from ._crashsafe.replace import check_distinct, replacing
from ._crashsafe.snapshot import attempts_for, read_snapshot
from ._engine.blosc_settings import own_settings
from ._engine.prealloc import BytesWriter
from ._engine.threads import Workspace
from ._format import metadata as metadata_section
from ._format import offsets as offset_table
from ._format.chunks import decompress, plain_size
from ._format.sections import read_metadata, skip_frames
from ._storage.base import as_bytes_view, bytes_left, read_up_to, write_all
from ._storage.cursor import Cursor
from ._storage.local import FileRange, writes_at_end
from ._storage.spool import size_of
from .abstract_io import (
    CompressedSink,
    PlainSink,
    PlainSource,
    log_digest,
    pack,
    unpack,
)
from .args import (
    BloscArgs,
    BloscpackArgs,
    MetadataArgs,
    calculate_nchunks,
    parse_chunk_size,
)
from .bytes_io import (
    CompressedBytesSource,
    PlainBytesSink,
    PlainBytesSource,
    SectionsSource,
    bytes_writer,
)
from .constants import BLOSC_HEADER_LENGTH, BLOSCPACK_HEADER_LENGTH
from .defaults import DEFAULT_CHUNK_SIZE
from .exceptions import FormatError, StorageError, UsageError
from .pretty import double_pretty_size, pretty_size

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ._format.chunks import Buffer
    from ._format.sections import Frame
    from ._storage.base import Path
    from .args import Limits
    from .headers import BloscpackHeader, MetadataHeader


# Room on disk is asked for in such steps, in bytes.
RESERVED_AT_A_TIME = 32 * 2**20
# Few data compress better; those that do are written without asking for room.
LIKELY_RATIO = 1000
# Below this, joining chunk and digest takes less time than another write.
WORTH_A_WRITE = 16 * 2**10
# Copying fewer bytes is done sooner than another thread has begun.
WORTH_ANOTHER_THREAD = 64 * 2**10


# Reading


class CompressedFPSource(SectionsSource):
    """Reads a file of any layout from a file object, which may be a pipe.

    The sections in front of the chunks are read at once. After the last chunk has
    been yielded the file object stands right behind it. `limits` are what the file may
    ask for.
    """

    concurrent = True

    def __init__(self, input_fp: Any, *, limits: Limits | None = None) -> None:
        self.input_fp = input_fp
        self._range = FileRange.over(input_fp)
        self.random_access = self._range is not None
        self._range_start = input_fp.tell() if self._range else 0
        self._workspace = Workspace()
        super().__init__(Cursor(input_fp), limits)

    def tasks(self) -> Iterator[Frame]:
        if self._range is None:
            return super().tasks()
        return skip_frames(self._cursor, self.bloscpack_header, self.limits)

    def load(self, frame: Frame) -> tuple[Buffer, Buffer]:
        if self._range is None or frame.content is not None:
            return super().load(frame)
        size = frame.header.ctbytes + self.bloscpack_header.checksum_impl.size
        view = self._workspace.view(size)
        offset = self._range_start + (frame.offset or 0)
        found = self._range.read_into(view, offset)
        if found < size:
            raise FormatError(
                "the file ends too early: expected a chunk and its digest of '%d' "
                "bytes, found '%d'" % (size, found),
                section="chunks",
                chunk=frame.number,
                offset=frame.offset,
            )
        return view[: frame.header.ctbytes], view[frame.header.ctbytes :]


# Writing


class CompressedFPSink(CompressedSink):
    """Writes layout 3 to a file object, from where it stands.

    If the number of chunks was not known at the start, the header is completed at
    the end, as long as the file object can seek. For a file that is `new`, room on
    disk is asked for ahead of writing; what is left over is cut off at the end.
    """

    concurrent = True

    def __init__(self, output_fp: Any, *, new: bool = False) -> None:
        self.output_fp = output_fp
        self.meta_total = 0
        self._range = FileRange.over(output_fp) if new else None
        self._begin = output_fp.tell() if self._range is not None else 0
        self._write_later: Callable[..., Callable[[], None]] | None = None

    def configure(
        self, blosc_args: BloscArgs, bloscpack_header: BloscpackHeader
    ) -> None:
        super().configure(blosc_args, bloscpack_header)
        # The table is written last: where that can't be, there is none.
        if bloscpack_header.offsets and not _is_seekable(self.output_fp):
            bloscpack_header.offsets = False
            bloscpack_header.max_app_chunks = 0
        self.offsets = bloscpack_header.offsets
        self.offset_storage: list[int] = []
        # Where the next chunk goes is counted here: telling a file costs a system call.
        self._position = 0
        self._reserved = RESERVED_AT_A_TIME
        self._nput = 0
        self._last_nbytes = 0

    def _write(self, data: Buffer) -> None:
        end = self._position + len(data)
        # Small files are not worth it.
        if self._range is not None and end > self._reserved:
            self._range.reserve(self._begin + self._reserved, RESERVED_AT_A_TIME)
            self._reserved += RESERVED_AT_A_TIME
        write_all(self.output_fp, data)
        self._position = end

    def write_bloscpack_header(self) -> None:
        encoded = self.bloscpack_header.encode()
        log.debug("raw_bloscpack_header: %r", encoded)
        self._write(encoded)

    def write_metadata(self, metadata: Any, metadata_args: MetadataArgs) -> None:
        section = metadata_section.encode(metadata, metadata_args)
        self.meta_total = len(section)
        self._write(section)

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
        """Write a chunk and its digest; return file offset, chunk and digest."""
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
        end = self._position
        if self.offsets:
            table_at = BLOSCPACK_HEADER_LENGTH + self.meta_total
            self._overwrite(end - table_at, self._encoded_offsets())
        if self.bloscpack_header.nchunks == -1 and _is_seekable(self.output_fp):
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
        """Write `data` at `back` bytes before the end and return there.

        Relative, because a file object need not have been at its start.
        """
        self.output_fp.seek(-back, os.SEEK_CUR)
        write_all(self.output_fp, data)
        self.output_fp.seek(back - len(data), os.SEEK_CUR)


def _is_seekable(fp: Any) -> bool:
    """Return whether what has been written can be written over."""
    try:
        return bool(fp.seekable()) and not writes_at_end(fp)
    except AttributeError:
        return hasattr(fp, "seek")


class PlainFPSource(PlainSource):
    """Reads plain chunks from a file object, from where it stands.

    With ``nchunks`` -1 it reads to the end, which may be that of a pipe. After the
    last chunk has been yielded the file object stands right behind it.
    """

    concurrent = True

    def __init__(self, input_fp: Any) -> None:
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

    def tasks(self) -> Iterator[Any]:
        self._range = FileRange.over(self.input_fp)
        if self._range is None or self.nchunks == -1:
            yield from self
            return
        self._workspace = Workspace()
        begin, stop = self.input_fp.tell(), 0
        for i, (start, stop) in enumerate(self.spans()):
            yield i, begin + start, stop - start
        self.input_fp.seek(begin + stop)

    def load(self, task: Any) -> Buffer:
        if not isinstance(task, tuple):
            chunk: bytes = task
            return chunk
        assert self._range is not None
        i, offset, size = task
        view = self._workspace.view(size)
        self.check_complete(i, size, self._range.read_into(view, offset))
        return view

    def check_complete(self, i: int, size: int, found: int) -> None:
        """Raise an error if less than a whole chunk was found."""
        if found < size:
            raise StorageError(
                "the input ends too early: expected '%d' bytes for chunk %d, found '%d'"
                % (size, i, found)
            )


class PlainFPSink(PlainSink):
    """Writes plain bytes to a file object, from where it stands.

    For a new file, room on disk is asked for at once: `reserved` bytes, which must
    be no more than there will be.
    """

    concurrent = True

    def __init__(
        self, output_fp: Any, nchunks: int | None = None, *, reserved: int = 0
    ) -> None:
        self.output_fp = output_fp
        self.nchunks = nchunks
        self._reserved = reserved

    def start(self) -> None:
        self._range = FileRange.over(self.output_fp)
        self.random_access = self.concurrent and self._range is not None
        self._ends = [0]
        if self._range is not None:
            self._begin = self.output_fp.tell()
            if self._reserved:
                self._range.reserve(self._begin, self._reserved)

    def put(self, compressed: bytes) -> int:
        """Decompress and write a chunk; return its plain size in bytes."""
        with own_settings:
            plain = decompress(compressed)
        self.store(plain)
        return len(plain)

    def store(self, plain: Buffer) -> None:
        write_all(self.output_fp, plain)

    def store_at(self, start: int, plain: Buffer) -> None:
        assert self._range is not None
        self._range.write(plain, self._begin + start)
        self._ends.append(start + len(plain))

    def finalize(self) -> None:
        if self.random_access:
            self.output_fp.seek(self._begin + max(self._ends))


# The functions on files and bytes


def log_packed(in_size: int, out_file: Path) -> None:
    """Show what packing `in_size` bytes has come to."""
    out_size = _size_to_tell(out_file)
    if out_size is not None:
        log.verbose("output file size: %s" % double_pretty_size(out_size))
        log.verbose("compression ratio: %f" % (in_size / max(out_size, 1)))


def log_unpacked(in_size: int, out_file: Path) -> None:
    """Show what unpacking `in_size` bytes has come to."""
    out_size = _size_to_tell(out_file)
    if out_size is not None:
        log.verbose("output file size: %s" % pretty_size(out_size))
        log.verbose("decompression ratio: %f" % (out_size / max(in_size, 1)))


def _size_to_tell(out_file: Path) -> int | None:
    """Return the size of a file; None if nobody looks, or somebody has moved it."""
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
    metadata: Any = None,
    blosc_args: BloscArgs | None = None,
    bloscpack_args: BloscpackArgs | None = None,
    metadata_args: MetadataArgs | None = None,
    *,
    nthreads: int | None = None,
    sync: bool | None = None,
) -> None:
    """Compress the file `in_file` into `out_file`, which appears when it is complete.

    `chunk_size` is bytes or text like ``'1M'`` or ``'max'``; `metadata` is any value
    that JSON can hold, None for none. What is no regular file, like a pipe, is read
    to its end and stored without an offset table. With `sync` the file is on the disk
    when this returns; by default that is so if it replaces another one.

    Raises `UsageError` for arguments that can't be and `StorageError` if the input
    gets shorter while it is read; what is added to it meanwhile is not stored.
    """
    check_distinct(in_file, out_file)
    with open(in_file, "rb") as in_fp, replacing(out_file, sync) as out_fp:
        pack_fp_to_fp(
            in_fp,
            out_fp,
            chunk_size,
            metadata,
            blosc_args,
            bloscpack_args,
            metadata_args,
            nthreads=nthreads,
        )
        in_size = in_fp.tell() if in_fp.seekable() else 0
    log_packed(in_size, out_file)


@_temporary.hear
def pack_fp_to_fp(
    in_fp: Any,
    out_fp: Any,
    chunk_size: int | str = DEFAULT_CHUNK_SIZE,
    metadata: Any = None,
    blosc_args: BloscArgs | None = None,
    bloscpack_args: BloscpackArgs | None = None,
    metadata_args: MetadataArgs | None = None,
    *,
    nthreads: int | None = None,
) -> None:
    """Compress a buffered file, from where it stands to its end, into a new file.

    Both may be pipes: what has no size is stored without an offset table, and so is
    what goes to where nothing can be sought. Else as `pack_file_to_file`.
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
    )


def unpack_file_from_file(
    in_file: Path,
    out_file: Path,
    *,
    nthreads: int | None = None,
    sync: bool | None = None,
    limits: Limits | None = None,
) -> Any:
    """Decompress `in_file` into `out_file`, which appears when it is complete.

    Returns the metadata, None if there are none. Raises `FormatError` if the file
    is damaged; then `out_file` is as it was. `sync` is that of `pack_file_to_file`.
    """
    check_distinct(in_file, out_file)
    in_size = os.path.getsize(in_file)
    log.verbose("input file size: %s" % pretty_size(in_size))

    def read(in_fp: Any, check: Any) -> Any:
        with replacing(out_file, sync) as out_fp:
            return unpack_fp_to_fp(
                in_fp, out_fp, check, nthreads=nthreads, limits=limits
            )

    metadata = read_snapshot(in_file, read, attempts_for(out_file))
    log_unpacked(in_size, out_file)
    return metadata


@_temporary.hear
def unpack_fp_to_fp(
    in_fp: Any,
    out_fp: Any,
    check: Callable[[BloscpackHeader], Any] | None = None,
    *,
    nthreads: int | None = None,
    limits: Limits | None = None,
) -> Any:
    """Decompress a file object, from where it stands, into a new file.

    Both may be pipes. Returns the metadata. `check` is called with the header once all
    that lies in front of the chunks has been read, and without digests once more at the
    end. Else as `unpack_file_from_file`.
    """
    source = CompressedFPSource(in_fp, limits=limits)
    header = source.bloscpack_header
    if check is not None:
        check(header)
    reserved = likely_nbytes(header, bytes_left(in_fp) or 0)
    sink = PlainFPSink(out_fp, source.nchunks, reserved=reserved)
    unpack_checked(source, sink, check, nthreads)
    return source.metadata


def unpack_checked(
    source: SectionsSource,
    sink: PlainSink,
    check: Callable[[BloscpackHeader], Any] | None,
    nthreads: int | None,
) -> None:
    """Decompress into a sink; without digests call `check` with the header at the end.

    Nothing else tells a mixture of two states, and the output is about to appear.
    """
    unpack(source, sink, nthreads=nthreads)
    header = source.bloscpack_header
    if check is not None and not header.checksum_impl.size:
        check(header)


def likely_nbytes(header: BloscpackHeader, in_size: int) -> int:
    """Return the plain bytes that a file of `in_size` bytes announces, to ask for room.

    They are believed as far as its chunks could hold them, and are 0 otherwise.
    """
    nbytes = header.nbytes or 0
    return nbytes if nbytes <= in_size * LIKELY_RATIO else 0


def pack_bytes_to_file(
    bytes_: Any,
    out_file: Path,
    chunk_size: int | str = DEFAULT_CHUNK_SIZE,
    metadata: Any = None,
    blosc_args: BloscArgs | None = None,
    bloscpack_args: BloscpackArgs | None = None,
    metadata_args: MetadataArgs | None = None,
    *,
    nthreads: int | None = None,
    sync: bool | None = None,
) -> None:
    """Compress any buffer into `out_file`, which appears when it is complete.

    All bytes of the buffer are stored, whatever the size of its items. The other
    arguments are those of `pack_file_to_file`.
    """
    with replacing(out_file, sync) as out_fp:
        in_size = _pack_bytes(
            bytes_,
            out_fp,
            chunk_size,
            metadata,
            blosc_args,
            bloscpack_args,
            metadata_args,
            nthreads,
            new=True,
        )
    log_packed(in_size, out_file)


def pack_bytes_to_bytes(
    bytes_: Any,
    chunk_size: int | str = DEFAULT_CHUNK_SIZE,
    metadata: Any = None,
    blosc_args: BloscArgs | None = None,
    bloscpack_args: BloscpackArgs | None = None,
    metadata_args: MetadataArgs | None = None,
    *,
    nthreads: int | None = None,
) -> bytes:
    """Return any buffer compressed, as the bytes of a file.

    The arguments are those of `pack_file_to_file`.

    >>> packed = pack_bytes_to_bytes(b'blosc' * 1000)
    >>> unpack_bytes_from_bytes(packed) == (b'blosc' * 1000, None)
    True
    """
    out_fp = bytes_writer(memoryview(bytes_).nbytes)
    _pack_bytes(
        bytes_,
        out_fp,
        chunk_size,
        metadata,
        blosc_args,
        bloscpack_args,
        metadata_args,
        nthreads,
    )
    return out_fp.getvalue()


def _pack_bytes(
    bytes_: Any,
    out_fp: Any,
    chunk_size: int | str,
    metadata: Any,
    blosc_args: BloscArgs | None,
    bloscpack_args: BloscpackArgs | None,
    metadata_args: MetadataArgs | None,
    nthreads: int | None,
    new: bool = False,
) -> int:
    view = as_bytes_view(bytes_)
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
    )
    return view.nbytes


def unpack_bytes_from_file(
    compressed_file: Path,
    *,
    nthreads: int | None = None,
    limits: Limits | None = None,
) -> tuple[bytes, Any]:
    """Return the plain bytes of a file and its metadata, None if there are none.

    Raises `FormatError` if the file is damaged, or asks for more than the `limits`.
    """

    def read(fp: Any, check: Any) -> tuple[bytes, Any]:
        source = CompressedFPSource(fp, limits=limits)
        check(source.bloscpack_header)
        return _unpack_bytes(source, nthreads)

    return read_snapshot(compressed_file, read)


def unpack_bytes_from_bytes(
    bytes_: Any, *, nthreads: int | None = None, limits: Limits | None = None
) -> tuple[bytes, Any]:
    """Return plain bytes and metadata of what `pack_bytes_to_bytes` returned.

    Raises `FormatError` if the bytes are damaged, or ask for more than the `limits`.
    """
    return _unpack_bytes(CompressedBytesSource(bytes_, limits=limits), nthreads)


def _unpack_bytes(source: SectionsSource, nthreads: int | None) -> tuple[bytes, Any]:
    nbytes = source.bloscpack_header.nbytes
    sink: PlainBytesSink | PlainFPSink
    if nbytes is not None:
        try:
            sink = PlainBytesSink(nbytes)
        except MemoryError as error:
            raise FormatError(
                "the header announces '%d' bytes, for which there is no memory"
                % nbytes,
                section="header",
            ) from error
        unpack(source, sink, nthreads=nthreads)
        return sink.getvalue(), source.metadata
    with io.BytesIO() as out_fp:
        unpack(source, PlainFPSink(out_fp), nthreads=nthreads)
        return out_fp.getvalue(), source.metadata


# Names kept from 0.16

pack_file = deprecated_alias("pack_file", pack_file_to_file)
unpack_file = deprecated_alias("unpack_file", unpack_file_from_file)
pack_bytes_file = deprecated_alias("pack_bytes_file", pack_bytes_to_file)
unpack_bytes_file = deprecated_alias("unpack_bytes_file", unpack_bytes_from_file)


def _read_metadata(fp: Any) -> tuple[Any, MetadataHeader]:
    return read_metadata(Cursor(fp))


__getattr__ = sibling_names(__name__)
