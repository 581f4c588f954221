"""Sources and sinks over buffers in memory, without copies.

The sources yield views of the buffer. The sink lets the threads decompress directly
into the bytes object that it returns.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ._engine.blosc_settings import own_settings
from ._engine.prealloc import BytesUnderConstruction, BytesWriter
from ._format.blosc_header import decode_header
from ._format.chunks import (
    Frame,
    check_digest,
    decompress,
    decompress_into,
    read_frames,
)
from ._format.sections import read_beginning
from ._storage.base import as_bytes_view
from ._storage.protocols import Buffer
from ._storage.stream import Cursor, MemoryCursor
from .abstract_io import CompressedSource, PlainSink, PlainSource, StoringSink
from .args import effective_limits
from .exceptions import DamageError, FormatError

if TYPE_CHECKING:
    from .args import AnyLimits

# Number of plain bytes from which `BytesWriter` is faster than `io.BytesIO`.
WORTH_A_WRITER = 2**20


class SectionsSource(CompressedSource):
    """Reads a file of any layout; the base of the sources over files and buffers.

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
        self._beginning = beginning = read_beginning(cursor, limits)
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
        for frame in read_frames(self._cursor, self.bloscpack_header, self.limits):
            self.chunk_offset = frame.offset
            yield self.load(frame)

    def tasks(self) -> Iterator[Frame]:
        return read_frames(self._cursor, self.bloscpack_header, self.limits)

    def load_verified(self, frame: Frame) -> tuple[Buffer, Buffer]:
        """Return a chunk and its digest, like `load`, once the digest is verified."""
        try:
            compressed, digest = self.load(frame)
            check_digest(compressed, digest, self.bloscpack_header.checksum_impl)
        except FormatError as error:
            error.locate(frame.number, frame.offset)
            raise
        return compressed, digest

    def plain(self, frame: Frame, compressed: Buffer | None = None) -> bytes:
        """Return the plain bytes of a chunk; called by any thread in `own_settings`.

        `compressed` is the chunk if it was loaded already.
        """
        if compressed is None:
            compressed, _ = self.load_verified(frame)
        try:
            return decompress(compressed, frame.header)
        except FormatError as error:
            error.locate(frame.number, frame.offset)
            raise

    def peek_behind(self, size: int) -> bytes:
        """Return up to `size` bytes behind the last chunk, after all were read."""
        data = bytes(self._cursor.peek_behind(size))
        self._cursor.restore()
        return data


class CompressedBytesSource(SectionsSource):
    """Reads a file of any layout from a buffer, which holds the whole file.

    It yields views of the buffer. Parameters, attributes and errors are those of
    `bloscpack.file_io.CompressedFPSource`, except for the buffer.
    """

    concurrent = True
    random_access = True

    def __init__(self, buffer: Buffer, *, limits: AnyLimits | None = None) -> None:
        super().__init__(MemoryCursor(buffer), limits)


class PlainBytesSource(PlainSource):
    """Yields views of a buffer, as plain chunks."""

    concurrent = True

    def __init__(self, buffer: Buffer) -> None:
        self._view = as_bytes_view(buffer)

    def __iter__(self) -> Iterator[memoryview]:
        return (self._view[start:stop] for start, stop in self.spans(self._view.nbytes))


def announced_bytes(size: int, nbytes: int) -> BytesUnderConstruction:
    """Return memory for `size` bytes of a file whose header states `nbytes`."""
    try:
        return BytesUnderConstruction(size)
    except MemoryError as error:
        raise DamageError(
            "the header announces '%d' bytes, for which there is no memory" % nbytes,
            section="header",
        ) from error


class MemorySink(PlainSink):
    """Fills memory of known size; any thread may decompress into its place."""

    concurrent = True
    random_access = True

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self._ends = [0]

    def put(self, compressed: bytes) -> int:
        """Decompress the next chunk; return its plain size in bytes."""
        nbytes = decode_header(compressed).nbytes
        with own_settings:
            decompress_into(compressed, self.room(self._ends[-1], nbytes))
        return nbytes

    def room(self, start: int, nbytes: int) -> memoryview:
        self._ends.append(start + nbytes)
        return self._memory[start : start + nbytes]


class PlainBytesSink(MemorySink):
    """Fills a new bytes object of `nbytes` bytes, which `getvalue` returns."""

    def __init__(self, nbytes: int) -> None:
        self._bytes = announced_bytes(nbytes, nbytes)
        super().__init__(self._bytes.view)

    def getvalue(self) -> bytes:
        """Return the bytes; no other method may be called afterwards."""
        return self._bytes.finish()


class JoinedBytesSink(StoringSink):
    """Joins the plain chunks to a bytes object, which `getvalue` returns.

    For few bytes: nothing is allocated in advance, and a single chunk is not copied.
    """

    concurrent = True

    def __init__(self) -> None:
        self._chunks: list[Buffer] = []

    def store(self, plain: Buffer) -> None:
        self._chunks.append(plain)

    def getvalue(self) -> bytes:
        """Return the bytes."""
        return b"".join(self._chunks)


def bytes_writer(nbytes: int) -> io.BytesIO | BytesWriter:
    """Return a file object in memory for the packed form of `nbytes` plain bytes."""
    if nbytes < WORTH_A_WRITER:
        return io.BytesIO()
    return BytesWriter(nbytes + nbytes // 32)
