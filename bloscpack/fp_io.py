"""Sources and sinks over file objects, which may be pipes.

A file object is used from its current position on and stays open. The classes are
found in `bloscpack.file_io` too, where release 0.16 had them; their ``__module__`` and
thus pickled references to them name that module.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

from . import abstract_io
from ._commit.undo import settled_file
from ._engine.prealloc import BytesWriter
from ._engine.threads import Workspace
from ._format import chunks, sections
from ._format.shard import Trailer
from ._storage import local
from ._storage.base import read_up_to, write_all
from ._storage.cursor import Cursor
from ._storage.stream import SparseStream
from ._types import BinaryFile, Buffer, Seekable, Writable
from .args import AnyLimits, BloscArgs, MetadataArgs, effective_limits
from .constants import BLOSC_HEADER_LENGTH, BLOSCPACK_HEADER_LENGTH
from .exceptions import DamageError, FormatError, StorageError, UsageError
from .headers import BloscpackHeader

# The module of the classes in 0.16.
_HOME = "bloscpack.file_io"
# Number of bytes of disk space that a sink reserves at a time.
RESERVED_AT_A_TIME = 32 * 2**20
# Size in bytes of a compressed chunk from which a second write takes less time than
# joining the chunk and its digest.
WORTH_A_WRITE = 16 * 2**10
# Number of bytes from which another thread copies them sooner than this thread would.
WORTH_ANOTHER_THREAD = 64 * 2**10


# Reading


class SectionsSource(abstract_io.CompressedSource):
    """Reads a file of any version; the base of the sources over files and buffers.

    The constructor reads the sections in front of the chunks and raises `FormatError`
    if they are damaged or exceed the limits.

    Attributes
    ----------
    bloscpack_header
        The header.
    metadata, metadata_header
        The metadata and its header, None if the file has no metadata section.
    limits
        The `Limits` that the file must not exceed, None for no limits.
    """

    concurrent = True

    def __init__(self, cursor: Cursor, limits: AnyLimits | None) -> None:
        self.limits = limits = effective_limits(limits)
        self._cursor = cursor
        self._beginning = beginning = sections.read_beginning(cursor, limits)
        self.bloscpack_header = beginning.header
        self.metadata = beginning.metadata
        self.metadata_header = beginning.metadata_header
        self.checksum_impl = beginning.header.checksum_impl
        self.nchunks = beginning.header.nchunks

    @property
    def offsets(self) -> list[int] | None:
        """The file offsets of the chunks, None if the file has no offset table."""
        return self._beginning.offsets

    def __iter__(self) -> Iterator[tuple[Buffer, Buffer]]:
        for frame in chunks.frames_of(
            self._cursor, self.bloscpack_header, self.limits, with_content=True
        ):
            self.chunk_offset = frame.offset
            yield self.load(frame)

    def tasks(self) -> Iterator[chunks.Frame]:
        return chunks.frames_of(
            self._cursor, self.bloscpack_header, self.limits, with_content=True
        )

    def load_verified(self, frame: chunks.Frame) -> tuple[Buffer, Buffer]:
        """Return a chunk and its digest, like `load`, once the digest is verified."""
        try:
            compressed, digest = self.load(frame)
            chunks.check_digest(compressed, digest, self.bloscpack_header.checksum_impl)
        except FormatError as error:
            error.locate(frame.number, frame.offset)
            raise
        return compressed, digest

    def plain(self, frame: chunks.Frame, compressed: Buffer | None = None) -> bytes:
        """Return the plain bytes of a chunk; called by any thread in `own_settings`.

        `compressed` is the chunk if it was loaded already.
        """
        if compressed is None:
            compressed, _ = self.load_verified(frame)
        try:
            return chunks.decompress(compressed, frame.header)
        except FormatError as error:
            error.locate(frame.number, frame.offset)
            raise

    def peek_behind(self, size: int) -> bytes:
        """Return up to `size` bytes behind the last chunk, after all were read."""
        data = bytes(self._cursor.peek_behind(size))
        self._cursor.restore()
        return data


class CompressedFPSource(SectionsSource):
    """Reads a file of any version from a file object, which may be a pipe.

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

    __module__ = _HOME
    concurrent = True

    def __init__(
        self,
        input_fp: Seekable,
        *,
        limits: AnyLimits | None = None,
        to_end: bool = False,
    ) -> None:
        self.input_fp = input_fp = settled_file(input_fp)
        self._storage = local.concurrent_storage(input_fp)
        self.random_access = self._storage is not None
        self._workspace = Workspace()
        super().__init__(Cursor(input_fp, to_end=to_end), limits)

    def tasks(self) -> Iterator[chunks.Frame]:
        if self._storage is None:
            return super().tasks()
        return chunks.frames_of(self._cursor, self.bloscpack_header, self.limits)

    def load(self, frame: chunks.Frame) -> tuple[Buffer, Buffer]:
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


class CompressedFPSink(abstract_io.CompressedSink):
    """Writes a file of version 3 to a file object.

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

    __module__ = _HOME
    concurrent = True

    def __init__(self, output_fp: Writable, *, new: bool = False) -> None:
        # Only `write` is called if it can't seek.
        self.output_fp: BinaryFile = output_fp  # type: ignore[assignment]
        self.meta_total = 0
        self._range = local.FileRange.over(output_fp) if new else None
        self._begin = self.output_fp.tell() if self._range is not None else 0
        self._write_later: Callable[..., Callable[[], None]] | None = None
        self._trailer: Trailer | None = None

    def configure(
        self, blosc_args: BloscArgs, bloscpack_header: BloscpackHeader
    ) -> None:
        super().configure(blosc_args, bloscpack_header)
        # The offset table is written last, which needs a file object that can seek.
        self._seekable = self._range is not None or is_seekable(self.output_fp)
        if bloscpack_header.offsets and not self._seekable:
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
        self._write(self.bloscpack_header.encode())

    def write_metadata(self, metadata: object, metadata_args: MetadataArgs) -> None:
        if not isinstance(metadata, sections.Section):
            metadata = sections.encode_section(metadata, metadata_args)
        self.write_section(metadata.blocks())
        self.begin_trailer(metadata.value)

    def begin_trailer(self, metadata: object) -> None:
        """Write a trailer behind the last chunk if the metadata say so."""
        if not isinstance(metadata, dict) or "shard" not in metadata:
            return
        from ._format.shard import inner_size, trailer_of

        size = inner_size(metadata, self.bloscpack_header)
        if size is not None:
            self._trailer = trailer_of(size, self.bloscpack_header, metadata)

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
                entries = sections.free_entries(total)
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
        rest = CompressedFPSink.put_digested(self, i, compressed, digest)
        if rest is not None:
            rest()
        return offset, compressed, digest

    def put_digested(
        self, i: int, compressed: bytes, digest: bytes
    ) -> Callable[[], None] | None:
        if self.offsets:
            self.offset_storage.append(self._position)
        if self._trailer is not None:
            self._trailer.add_frame(self._position, compressed)
        self._last_nbytes = chunks.plain_size(compressed)
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
            encoded = sections.encode_offsets(self.offset_storage)
            self._overwrite(end - table_at, encoded)
        if self.bloscpack_header.nchunks == -1 and self._seekable:
            last_chunk = self._last_nbytes
            self.bloscpack_header.nchunks = self._nput
            self.bloscpack_header.last_chunk = last_chunk
            if self._nput == 1:
                self.bloscpack_header.chunk_size = last_chunk
            self._overwrite(end, self.bloscpack_header.encode())
        if self._range is not None:
            self.output_fp.truncate(self._begin + end)

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
        return bool(fp.seekable()) and not local.writes_at_end(fp)
    except AttributeError:
        return hasattr(fp, "seek")


class PlainFPSource(abstract_io.PlainSource):
    """Yields plain chunks from a file object.

    If the number of chunks is unknown, it reads to the end of the file or pipe. After
    the last chunk the file object is positioned at its end.

    Parameters
    ----------
    input_fp
        The plain bytes, from the current position on.
    """

    __module__ = _HOME
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

    def tasks(self) -> Iterator[abstract_io.PlainTask]:
        self._storage = local.concurrent_storage(self.input_fp)
        if self._storage is None or self.nchunks == -1:
            yield from self
            return
        self._workspace = Workspace()
        begin, stop = self.input_fp.tell(), 0
        for i, (start, stop) in enumerate(self.spans()):
            yield i, start, stop - start
        self.input_fp.seek(begin + stop)

    def load(self, task: abstract_io.PlainTask) -> Buffer:
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


class PlainFPSink(abstract_io.StoringSink):
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

    __module__ = _HOME
    concurrent = True
    _range: local.FileRange | None = None
    _holes: local.SparseRange | None = None
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
        self._range = local.FileRange.over(self.output_fp)
        self.random_access = self.concurrent and self._range is not None
        self._ends = [0]
        if self._range is None:
            self._stream = SparseStream.over(self.output_fp) if self._sparse else None
            return
        self._begin = self.output_fp.tell()
        if self._sparse and self.random_access:
            self._holes = local.sparse_range(
                self.output_fp, self._range, self._reserved
            )
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
