"""Read plain bytes forward, or at any position, as the raw files that Python buffers.

Strategy: a raw file here decompresses whole chunks, several at once, and serves small
reads from them; `io.BufferedReader` makes lines and small reads fast. `PlainFile` reads
an `OpenedFile` at any position, large reads directly into the memory of the caller.
While the reads follow each other, it decompresses more chunks at a time. `PlainPipe`
reads a file that can't seek.

The bytes in front of a damaged chunk are returned before the error is raised.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator
from functools import partial
from itertools import islice
from typing import Any

from .._engine.blosc_settings import own_settings
from .._engine.threads import Ahead, Task
from .._format.chunks import Frame, plain_of
from .._format.other_formats import PREFIX_LENGTH, name_format
from .._storage.base import RawReader
from .._types import Json, Readable
from ..abstract_io import QUICK_CHUNK, effective_nthreads
from ..args import AnyLimits
from ..constants import BLOSCPACK_HEADER_LENGTH, MAGIC
from ..exceptions import (
    DamageError,
    EndsTooEarly,
    FormatError,
    NotABloscpackFile,
    NotReadable,
    StorageError,
)
from ..file_io import CompressedFPSource
from .opened import OpenedFile

# Number of plain bytes that sequential reads always decompress at a time, also if a
# chunk for each thread has fewer.
MIN_WINDOW = 2**20
# Maximum number of plain bytes that sequential reads decompress at a time, unless one
# chunk has more.
MAX_WINDOW = 64 * 2**20
# How messages of `FormatError` begin if the file has fewer bytes than it should.
TOO_EARLY = "the file ends too early"


class PlainFile(RawReader):
    """The plain bytes of an `OpenedFile`, which stays open."""

    can_seek = True

    def __init__(self, opened: OpenedFile, nthreads: int | None) -> None:
        self._opened = opened
        self._position = 0
        # Decompressed plain bytes, and the position of the first of them.
        self._window, self._window_start = memoryview(b""), 0
        self._memory = bytearray()
        start, stop = opened.span(0) if opened.nchunks else (0, 0)
        chunks = MIN_WINDOW // max(stop - start, 1)
        self._most = max(effective_nthreads(nthreads, None), chunks)
        self._chunks_ahead = 1

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a position in plain bytes, at most the end, and return it."""
        bases = {os.SEEK_CUR: self._position, os.SEEK_END: self._opened.nbytes}
        position = offset + bases.get(whence, 0)
        self._position = max(0, min(position, self._opened.nbytes))
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` from the position on; return the number of bytes read."""
        opened, position = self._opened, self._position
        view = memoryview(buffer).cast("B")[: opened.nbytes - position]
        if not view:
            return 0
        offset = position - self._window_start
        if not 0 <= offset < len(self._window):
            stop = position + len(view)
            numbers = opened.numbers(position, stop)
            (start, end), last = opened.span(numbers[0]), opened.span(numbers[-1])
            if stop >= end:  # up to the last end of a chunk, without a copy
                view = view[: (stop if stop == last[1] else last[0]) - position]
                count = self._fill(view, position, end)
                self._position += count
                return count
            follows = position == self._window_start + len(self._window)
            ahead = min(2 * self._chunks_ahead, self._most) if follows else 1
            self._chunks_ahead = ahead
            numbers = opened.numbers(start, start + MAX_WINDOW)[:ahead]
            size = opened.span(numbers[-1])[1] - start
            # The window is invalid while its memory is overwritten.
            self._window = memoryview(b"")
            if len(self._memory) < size or len(self._memory) > MAX_WINDOW:
                self._memory = bytearray(size)
            window = memoryview(self._memory)[:size]
            self._window = window[: self._fill(window, start, end)]
            self._window_start = start
            offset = position - start
        part = self._window[offset : offset + len(view)]
        view[: len(part)] = part
        self._position += len(part)
        return len(part)

    def _fill(self, view: memoryview, start: int, end: int) -> int:
        """Fill `view`; only up to `end`, the end of a chunk, if another is damaged."""
        try:
            return self._opened.read_into(view, start)
        except FormatError as error:
            if start + len(view) <= end:
                raise stream_error(error) from error
            intact = end - start
            if error.chunk is not None and 0 <= error.chunk < self._opened.nchunks:
                intact = max(intact, self._opened.span(error.chunk)[0] - start)
            if intact >= len(view):
                raise stream_error(error) from error
            return self._fill(view[:intact], start, end)

    def readall(self) -> bytes:
        """Return the plain bytes from the position to the end."""
        try:
            data = self._opened.read(self._position, self._opened.nbytes)
        except FormatError as error:
            raise stream_error(error) from error
        self._position += len(data)
        return data

    def close(self) -> None:
        """Forget the decompressed bytes."""
        self._window, self._memory = memoryview(b""), bytearray()
        super().close()


class PlainPipe(RawReader):
    """The plain bytes of a file object that can't seek, read from front to back.

    Nothing behind the last chunk is read.
    """

    def __init__(
        self, fp: Readable, limits: AnyLimits | None, nthreads: int | None
    ) -> None:
        self._source: CompressedFPSource | None = None
        self._chunks = self._plain_chunks(fp, limits, nthreads)
        self._error: Exception | None = None
        self._plain = memoryview(b"")
        self._position = 0

    def tell(self) -> int:
        """Return the number of plain bytes that were read."""
        return self._position

    @property
    def metadata(self) -> Json:
        """The metadata of the file; reading them reads the beginning of the file."""
        if self._source is None:
            self._next()
        assert self._source is not None
        return self._source.metadata

    def _plain_chunks(
        self, fp: Any, limits: AnyLimits | None, nthreads: int | None
    ) -> Generator[bytes]:
        """Yield no bytes when the beginning of the file is read, then the plain chunks.

        Threads decompress the next chunks, each time more.
        """
        self._source = source = CompressedFPSource(fp, limits=limits)
        yield b""
        chunk_size = source.bloscpack_header.chunk_size
        quick = 0 < chunk_size < QUICK_CHUNK
        nthreads = 1 if quick else effective_nthreads(nthreads, None)
        most = max(1, min(nthreads, MAX_WINDOW // max(chunk_size, 1)))
        frames, wanted, failure = source.frames(), 1, None
        tasks: deque[Task] = deque()
        ahead = Ahead(nthreads)

        def decompress(frame: Frame) -> bytes:
            with own_settings:
                return plain_of(frame, source.checksum_impl)

        try:
            while True:
                if len(tasks) <= wanted // 2:
                    try:
                        for frame in islice(frames, wanted - len(tasks)):
                            tasks.append(ahead.submit(partial(decompress, frame)))
                    except FormatError as error:  # raised behind the intact chunks
                        failure = error
                    wanted = min(2 * wanted, most)
                if not tasks:
                    break
                yield ahead.result(tasks.popleft())
            if failure is not None:
                raise failure
        finally:
            ahead.close()

    def _next(self) -> bytes | None:
        """Return the next plain bytes; None at the end."""
        if self._error is not None:
            raise self._error
        try:
            return next(self._chunks, None)
        except FormatError as error:
            self._error = stream_error(error)
            raise self._error from error
        except BaseException as error:  # no later read may look like the end
            self._error = StorageError("an earlier read has failed: %s" % error)
            raise

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer`, at most to the end of a chunk; return the number of bytes."""
        while not self._plain:
            chunk = self._next()
            if chunk is None:
                return 0
            self._plain = memoryview(chunk)
        view = memoryview(buffer).cast("B")
        part, self._plain = self._plain[: len(view)], self._plain[len(view) :]
        view[: len(part)] = part
        self._position += len(part)
        return len(part)

    def close(self) -> None:
        """Drop the chunks that were read ahead; the file object stays open."""
        self._chunks.close()
        self._plain = memoryview(b"")
        super().close()


def stream_error(error: FormatError) -> FormatError:
    """Return the error that a compressed stream raises in place of a `FormatError`.

    The error for another format names the format and is an `OSError`; the error for a
    file that ends too early is an `EOFError`. The classes of the standard library that
    read compressed files raise these.
    """
    kind: type[FormatError]
    if isinstance(error, NotReadable) and error.prefix is not None:
        prefix = error.prefix
        if prefix[: len(MAGIC)] == MAGIC[: len(prefix)]:
            kind = EndsTooEarly
            message = "%s: expected a header of '%d' bytes, found '%d'" % (
                TOO_EARLY,
                BLOSCPACK_HEADER_LENGTH,
                len(prefix),
            )
        else:
            kind = NotABloscpackFile
            other = name_format(prefix[:PREFIX_LENGTH], error.size)
            message = "expected a Bloscpack file, found %s" % (
                other or "one that begins %r" % prefix[: len(MAGIC)]
            )
    elif isinstance(error, DamageError) and error.message.startswith(TOO_EARLY):
        kind, message = EndsTooEarly, error.message
    else:
        return error
    return kind(
        message,
        section=error.section,
        offset=error.offset,
        chunk=error.chunk,
        filename=error.filename,
    )
