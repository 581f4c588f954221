"""Read plain bytes forward, or at any position, as the raw files that Python buffers.

Strategy: a raw file here decompresses whole chunks, several at once, and serves small
reads from them; `io.BufferedReader` makes lines and small reads fast. `PartsReader`
reads at any position. It decompresses large reads directly into the memory of the
caller. While the reads follow each other, it decompresses more chunks at a time.
`PipeReader` reads a file that can't seek.
"""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Generator, Iterator
from functools import partial
from itertools import islice
from typing import Any, NoReturn

from .._engine.blosc_settings import own_settings
from .._engine.threads import Ahead, Task
from .._format.chunks import Frame, plain_of
from .._format.other_formats import PREFIX_LENGTH, name_format
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


class PartsReader(io.RawIOBase):
    """The plain bytes of a file that can seek.

    Attributes
    ----------
    parts
        The `OpenedFile`, which stays open.
    """

    def __init__(self, parts: OpenedFile, nthreads: int | None) -> None:
        self.parts = parts
        self._position = 0
        # Decompressed plain bytes, and the position of the first of them.
        self._window = memoryview(b"")
        self._window_start = 0
        self._memory = bytearray()
        start, stop = parts.span(0) if parts.nchunks else (0, 0)
        chunks = MIN_WINDOW // max(stop - start, 1)
        self._max_chunks = max(effective_nthreads(nthreads, None), chunks)
        self._chunks_ahead = 1

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a position in plain bytes, at most the end, and return it."""
        bases = {os.SEEK_CUR: self._position, os.SEEK_END: self.parts.nbytes}
        position = offset + bases.get(whence, 0)
        self._position = max(0, min(position, self.parts.nbytes))
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` from the position on; return the number of bytes read."""
        view = memoryview(buffer).cast("B")
        position = self._position
        view = view[: self.parts.nbytes - position]
        if not view:
            return 0
        offset = position - self._window_start
        if not 0 <= offset < len(self._window):
            count = self._read_directly(view, position)
            if count:
                self._position += count
                return count
            self._fill_window(position)
            offset = position - self._window_start
        part = self._window[offset : offset + len(view)]
        view[: len(part)] = part
        self._position += len(part)
        return len(part)

    def readall(self) -> bytes:
        """Return the plain bytes from the position to the end."""
        data = self.read_span(self._position, self.parts.nbytes)
        self._position += len(data)
        return data

    def read_span(self, start: int, stop: int) -> bytes:
        """Return the plain bytes of a span; any thread may call this."""
        try:
            return self.parts.read(start, stop)
        except FormatError as error:
            raise stream_error(error) from error

    def _read_directly(self, view: memoryview, position: int) -> int:
        """Fill `view` up to the last end of a chunk; return the number of bytes."""
        stop = position + len(view)
        numbers = self.parts.numbers(position, stop)
        start_of_last, end = self.parts.span(numbers[-1])
        if end > stop:
            stop = start_of_last
        return self._read_intact(view[: max(0, stop - position)], position)

    def _read_intact(self, view: memoryview, position: int) -> int:
        """Fill `view`, or a part of it up to a damaged chunk."""
        if not view:
            return 0
        try:
            return self.parts.read_into(view, position)
        except FormatError as error:
            intact = 0
            if error.chunk is not None and 0 <= error.chunk < self.parts.nchunks:
                intact = self.parts.span(error.chunk)[0] - position
            if not 0 < intact < len(view):
                raise stream_error(error) from error
        # Chunks that another thread has decompressed may precede it.
        return self._read_intact(view[:intact], position)

    def _fill_window(self, position: int) -> None:
        """Decompress the chunk at a position, and the next ones in sequential reads."""
        follows = position == self._window_start + len(self._window)
        self._chunks_ahead = (
            min(2 * self._chunks_ahead, self._max_chunks) if follows else 1
        )
        numbers = self.parts.numbers(position, position + MAX_WINDOW)
        numbers = numbers[: self._chunks_ahead]
        start, stop = self.parts.span(numbers[0])[0], self.parts.span(numbers[-1])[1]
        # The window is invalid while its memory is overwritten.
        self._window = memoryview(b"")
        if len(self._memory) < stop - start or len(self._memory) > MAX_WINDOW:
            self._memory = bytearray(stop - start)
        memory = memoryview(self._memory)[: stop - start]
        count = self._read_intact(memory, start)
        self._window, self._window_start = memory[:count], start

    def close(self) -> None:
        """Forget the decompressed bytes; the parts stay open."""
        self._window, self._memory = memoryview(b""), bytearray()
        super().close()


class PipeReader(io.RawIOBase):
    """The plain bytes of a file object that can't seek, read from front to back.

    Nothing behind the last chunk is read.
    """

    def __init__(
        self, fp: Readable, limits: AnyLimits | None, nthreads: int | None
    ) -> None:
        self._fp = fp
        self._limits = limits
        self._nthreads = nthreads
        self._source: CompressedFPSource | None = None
        self._chunks: Generator[bytes] | None = None
        self._error: Exception | None = None
        self._plain = memoryview(b"")
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the number of plain bytes that were read."""
        return self._position

    @property
    def metadata(self) -> Json:
        """The metadata of the file; reading them reads the beginning of the file."""
        return self._opened().metadata

    def _opened(self) -> CompressedFPSource:
        if self._error is not None:
            raise self._error
        if self._source is None:
            try:
                self._source = CompressedFPSource(self._fp, limits=self._limits)  # type: ignore[arg-type]
            except FormatError as error:
                self._fail(error)
            self._chunks = self._decompressed(self._source)
        return self._source

    def _decompressed(self, source: CompressedFPSource) -> Generator[bytes]:
        """Yield the plain chunks; threads decompress the next ones, each time more."""
        chunk_size = source.bloscpack_header.chunk_size
        quick = 0 < chunk_size < QUICK_CHUNK
        nthreads = 1 if quick else effective_nthreads(self._nthreads, None)
        most = max(1, min(nthreads, MAX_WINDOW // max(chunk_size, 1)))
        frames: Iterator[Frame] = source.frames()
        failure = None
        wanted = 1
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

    def _fail(self, error: FormatError) -> NoReturn:
        """Raise an error, now and in each later read."""
        self._error = stream_error(error)
        raise self._error from error

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer`, at most to the end of a chunk; return the number of bytes."""
        self._opened()
        assert self._chunks is not None
        while not self._plain:
            try:
                chunk = next(self._chunks, None)
            except FormatError as error:
                self._fail(error)
            except BaseException as error:  # no later read may look like the end
                self._error = StorageError("an earlier read has failed: %s" % error)
                raise
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
        if self._chunks is not None:
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
            found = name_format(prefix[:PREFIX_LENGTH], error.size)
            message = "expected a Bloscpack file, found %s" % (
                found or "one that begins %r" % prefix[: len(MAGIC)]
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
