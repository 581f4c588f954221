"""Bytes in memory: the sources and sinks over buffers, which hold all of a file.

Sources yield views of the buffer, and the sink lets threads decompress straight into
the bytes that it is going to return: nothing is copied.
"""

from __future__ import annotations

import io

from ._engine.blosc_settings import own_settings
from ._engine.prealloc import BytesUnderConstruction, BytesWriter
from ._format.blosc_header import decode_header
from ._format.chunks import decompress_into
from ._format.sections import read_beginning, read_frames
from ._storage.base import as_bytes_view
from ._storage.cursor import MemoryCursor
from .abstract_io import CompressedSource, PlainSink, PlainSource
from .args import check_settings

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ._format.chunks import Buffer
    from ._format.sections import Frame
    from ._storage.cursor import Cursor
    from .args import Limits

# Below this, joining bytes takes no time that could be measured.
WORTH_A_WRITER = 2**20


class SectionsSource(CompressedSource):
    """Reads a file of any layout, the sections in front of the chunks at once.

    They are ``bloscpack_header``, ``metadata`` with ``metadata_header``, and
    ``offsets``; the last three are None where the file has none.
    """

    concurrent = True

    def __init__(self, cursor: Cursor, limits: Limits | None) -> None:
        check_settings(limits=limits)
        if limits is not None:
            limits.check()
        self.limits = limits
        self._cursor = cursor
        beginning = read_beginning(cursor, limits)
        self.bloscpack_header = beginning.header
        self.metadata = beginning.metadata
        self.metadata_header = beginning.metadata_header
        self.offsets = beginning.offsets
        self.checksum_impl = beginning.header.checksum_impl
        self.nchunks = beginning.header.nchunks

    def __iter__(self) -> Iterator[tuple[Buffer, Buffer]]:
        for frame in read_frames(self._cursor, self.bloscpack_header, self.limits):
            self.chunk_offset = frame.offset
            yield self.load(frame)

    def tasks(self) -> Iterator[Frame]:
        return read_frames(self._cursor, self.bloscpack_header, self.limits)


class CompressedBytesSource(SectionsSource):
    """Reads a file of any layout that lies in memory; yields views, not copies."""

    concurrent = True
    random_access = True

    def __init__(self, buffer: Any, *, limits: Limits | None = None) -> None:
        super().__init__(MemoryCursor(buffer), limits)


class PlainBytesSource(PlainSource):
    """Yields views of a buffer that lies in memory."""

    concurrent = True

    def __init__(self, buffer: Any) -> None:
        self._view = as_bytes_view(buffer)

    def __iter__(self) -> Iterator[memoryview]:
        return (self._view[start:stop] for start, stop in self.spans(self._view.nbytes))


class PlainBytesSink(PlainSink):
    """Fills a bytes object of a known size, which `getvalue` returns."""

    concurrent = True
    random_access = True

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        self._user_settings = BytesUnderConstruction(nbytes)
        self._filled = 0

    def put(self, compressed: bytes) -> int:
        """Decompress a chunk behind the last one; return its plain size in bytes."""
        nbytes = decode_header(compressed).nbytes
        with own_settings:
            decompress_into(compressed, self.room(self._filled, nbytes))
        self._filled += nbytes
        return nbytes

    def room(self, start: int, nbytes: int) -> memoryview:
        return self._user_settings.view[start : start + nbytes]

    def getvalue(self) -> bytes:
        """Return the bytes, as the last thing done."""
        return self._user_settings.finish()


def bytes_writer(nbytes: int) -> io.BytesIO | BytesWriter:
    """Return a file object in memory for what `nbytes` take when packed."""
    if nbytes < WORTH_A_WRITER:
        return io.BytesIO()
    return BytesWriter(nbytes + nbytes // 32)
