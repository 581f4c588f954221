"""Read forward through a file or a buffer without trusting any count."""

from __future__ import annotations

import os

from ..exceptions import FormatError
from .base import PIECE, as_bytes_view, bytes_left, read_up_to

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Any

    Path = str | os.PathLike[str]

    Buffer = bytes | bytearray | memoryview


class Cursor:
    """Reads a file object forward, from where it stands."""

    def __init__(self, fp: Any) -> None:
        self.fp = fp
        self.position = 0
        self._left = bytes_left(fp)
        self._peeked = b""

    def left(self) -> int | None:
        """Return the bytes that are left; None if nobody knows."""
        return None if self._left is None else self._left - self.position

    def _fetch(self, size: int) -> bytes:
        """Return up to `size` bytes; fewer only at the end of the file."""
        if self._left is not None:
            return read_up_to(self.fp, size)
        # What is not there must not cost memory either.
        pieces = [read_up_to(self.fp, min(size, PIECE))]
        while len(pieces[-1]) == PIECE and (size := size - PIECE):
            pieces.append(read_up_to(self.fp, min(size, PIECE)))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def peek(self, size: int) -> Buffer:
        """Return the next `size` bytes, fewer at the end, and stay where we are."""
        if len(self._peeked) < size:
            self._peeked += self._fetch(size - len(self._peeked))
        return self._peeked[:size]

    def read(self, size: int) -> Buffer:
        """Return the next `size` bytes, fewer at the end."""
        if self._peeked:
            data, self._peeked = self._peeked[:size], self._peeked[size:]
            if len(data) < size:
                data += self._fetch(size - len(data))
        else:
            data = self._fetch(size)
        self.position += len(data)
        return data

    def read_exactly(self, size: int, what: str, section: str) -> Buffer:
        """Return the next `size` bytes; raises `FormatError` if they aren't there."""
        left = self.left()
        if left is not None and left < size:
            raise self._short(size, left, what, section)
        start = self.position
        try:
            data = self.read(size)
        except MemoryError as error:
            raise FormatError(
                "there is no memory for %s of '%d' bytes" % (what, size),
                section=section,
                offset=start,
            ) from error
        if len(data) < size:
            self.position = start
            raise self._short(size, len(data), what, section)
        return data

    def skip(self, size: int, what: str, section: str) -> None:
        """Move `size` bytes on; raises `FormatError` if they aren't there."""
        left = self.left()
        if left is None:
            start, skipped = self.position, 0
            while skipped < size and (data := self.read(min(size - skipped, PIECE))):
                skipped += len(data)
            left, self.position = skipped, start
        if left < size:
            raise self._short(size, left, what, section)
        if self._left is None:
            self.position += size
            return
        peeked = min(size, len(self._peeked))
        self._peeked = self._peeked[peeked:]
        if size > peeked:
            self.fp.seek(size - peeked, os.SEEK_CUR)
        self.position += size

    def _short(self, size: int, found: int, what: str, section: str) -> FormatError:
        return FormatError(
            "the file ends too early: expected %s of '%d' bytes, found '%d'"
            % (what, size, found),
            section=section,
            offset=self.position,
        )


class MemoryCursor(Cursor):
    """Reads a buffer forward; what it returns are views of it, never copies."""

    def __init__(self, buffer: Any) -> None:
        super().__init__(None)
        self._view = as_bytes_view(buffer)
        self._left = self._view.nbytes

    def peek(self, size: int) -> Buffer:
        return self._view[self.position : self.position + size]

    def read(self, size: int) -> Buffer:
        data = self.peek(size)
        self.position += len(data)
        return data

    def read_exactly(self, size: int, what: str, section: str) -> Buffer:
        start, end = self.position, self.position + size
        if end > self._view.nbytes:
            raise self._short(size, self._view.nbytes - start, what, section)
        self.position = end
        return self._view[start:end]

    def skip(self, size: int, what: str, section: str) -> None:
        self.read_exactly(size, what, section)
