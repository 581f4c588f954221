"""Sources and sinks over buffers in memory, without copies.

The sources yield views of the buffer. The sink lets the threads decompress directly
into the bytes object that it returns.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

from ._commit.undo import settled_bytes
from ._engine.prealloc import BytesUnderConstruction, BytesWriter
from ._storage.base import as_bytes_view
from ._storage.cursor import MemoryCursor
from ._types import Buffer
from .abstract_io import MemorySink, PlainSource, StoringSink
from .args import AnyLimits
from .exceptions import DamageError
from .fp_io import SectionsSource

# Number of plain bytes from which `BytesWriter` is faster than `io.BytesIO`.
WORTH_A_WRITER = 2**20


class CompressedBytesSource(SectionsSource):
    """Reads a file of any version from a buffer, which holds the whole file.

    It yields views of the buffer. Parameters, attributes and errors are those of
    `bloscpack.file_io.CompressedFPSource`, except for the buffer.
    """

    concurrent = True
    random_access = True

    def __init__(self, buffer: Buffer, *, limits: AnyLimits | None = None) -> None:
        super().__init__(MemoryCursor(settled_bytes(buffer)), limits)


class PlainBytesSource(PlainSource):
    """Yields views of a buffer, as plain chunks."""

    concurrent = True

    def __init__(self, buffer: Buffer) -> None:
        self._view = as_bytes_view(buffer)

    def __iter__(self) -> Iterator[memoryview]:
        return (self._view[start:stop] for start, stop in self.spans(self._view.nbytes))

    def read(self, start: int, size: int) -> bytes:
        """Return a part of the buffer."""
        return bytes(self._view[start : start + size])


def announced_bytes(size: int, nbytes: int) -> BytesUnderConstruction:
    """Return memory for `size` bytes of a file whose header states `nbytes`."""
    try:
        return BytesUnderConstruction(size)
    except MemoryError as error:
        raise DamageError(
            "the header announces '%d' bytes, for which there is no memory" % nbytes,
            section="header",
        ) from error


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
