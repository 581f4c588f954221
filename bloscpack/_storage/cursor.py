"""Cursors, which read a file forward.

Strategy: a count in a file may be any number, so it is compared with the number of
bytes left before memory is allocated. Where that number is unknown, as in a pipe,
memory grows with the bytes that arrive.
"""

from __future__ import annotations

import os

from ..exceptions import DamageError, FormatError
from .base import READ_SIZE, Storage, bytes_left, read_up_to

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from .._types import Buffer, Seekable


# Number of bytes that take longer to copy than it takes to read a few bytes again.
WORTH_SEEKING = 16 * 2**10


class Cursor:
    """A position in a file object, and methods that read forward from there.

    ``position`` counts the bytes read since the cursor was made.

    Parameters
    ----------
    fp
        The file object.
    to_end
        Whether the bytes of a pipe up to its end belong to the file. Otherwise nothing
        behind the last chunk is read from a pipe: another program may use it.
    """

    def __init__(self, fp: Seekable, *, to_end: bool = False) -> None:
        self.fp = fp
        self._to_end = to_end
        self.position = 0
        self._total = bytes_left(fp)
        self._peeked = b""

    def following(self) -> Cursor:
        """Return a cursor for the bytes behind this position, which it counts from."""
        cursor = Cursor(self.fp, to_end=self._to_end)
        if self._total is None:
            cursor._peeked = self._peeked
        return cursor

    def left(self) -> int | None:
        """Return the number of bytes left; None if it is unknown."""
        return None if self._total is None else self._total - self.position

    def move(self, position: int) -> None:
        """Move to a position of a file that can seek."""
        self.fp.seek(position - self.position - len(self._peeked), os.SEEK_CUR)
        self.position, self._peeked = position, b""

    def peek(self, size: int) -> Buffer:
        """Return the next `size` bytes, fewer at the end, without moving."""
        missing = size - len(self._peeked)
        if missing > 0 and self._total is not None:
            if missing > WORTH_SEEKING and self._peeked:
                self.restore()
                missing = size
            self._peeked += read_up_to(self.fp, missing)
        elif missing > 0:
            # `size` may be larger than the file, and then must not cost memory.
            blocks = [self._peeked]
            while missing > 0:
                blocks.append(read_up_to(self.fp, min(missing, READ_SIZE)))
                missing -= READ_SIZE
                if len(blocks[-1]) < READ_SIZE:
                    break
            self._peeked = b"".join(blocks)
        return self._peeked[:size]

    def peek_behind(self, size: int) -> Buffer:
        """Return up to `size` bytes behind the last section, without moving.

        Return no bytes of a pipe, unless the file extends to its end. Call `restore`
        afterwards.
        """
        left = self.left()
        if left is None and not self._to_end:
            return b""
        return self.peek(size if left is None else min(size, left))

    def restore(self) -> None:
        """Move a file object that can seek back to the position of the cursor."""
        if self._total is not None and self._peeked:
            self.fp.seek(-len(self._peeked), os.SEEK_CUR)
            self._peeked = b""

    def read(self, size: int) -> Buffer:
        """Return the next `size` bytes, fewer at the end, and move behind them."""
        data = self.peek(size)
        self._peeked = self._peeked[size:]
        self.position += len(data)
        return data

    def read_exactly(self, size: int, what: str, section: str) -> Buffer:
        """Return the next `size` bytes; raise `FormatError` if there are fewer.

        The error calls the bytes `what` and locates them in `section`.
        """
        start = self.position
        if self._total is not None and self._total - start < size:
            raise self._too_short(size, self._total - start, what, section)
        try:
            data = self.read(size)
        except MemoryError as error:
            raise DamageError(
                "there is no memory for %s of '%d' bytes" % (what, size),
                section=section,
                offset=start,
            ) from error
        if len(data) < size:
            self.position = start
            raise self._too_short(size, len(data), what, section)
        return data

    def skip(self, size: int, what: str, section: str) -> None:
        """Move forward by `size` bytes; raise `FormatError` if there are fewer."""
        start, found = self.position, self.left()
        if found is None:  # a file that can't seek is read
            found = 0
            while found < size and (data := self.read(min(size - found, READ_SIZE))):
                found += len(data)
            self.position = start
        elif found >= size:
            peeked = len(self._peeked)
            self._peeked = self._peeked[size:]
            if size > peeked:
                self.fp.seek(size - peeked, os.SEEK_CUR)
        if found < size:
            raise self._too_short(size, found, what, section)
        self.position = start + size

    def _too_short(self, size: int, found: int, what: str, section: str) -> FormatError:
        return DamageError(
            "the file ends too early: expected %s of '%d' bytes, found '%d'"
            % (what, size, found),
            section=section,
            offset=self.position,
        )


class StorageCursor(Cursor):
    """A position in a storage, which knows its size.

    `head` has the first bytes, which are not read again. At least `ahead` bytes are
    read at a time.
    """

    def __init__(self, storage: Storage, head: bytes = b"", ahead: int = 0) -> None:
        self._storage = storage
        self._ahead = ahead
        self.position = 0
        self._total = storage.size
        # The bytes that were read last, and where they start: a header that was looked
        # at is read next, and each read may be a request to a server.
        self._start, self._known = 0, head

    def move(self, position: int) -> None:
        self.position = position

    def peek(self, size: int) -> Buffer:
        first = self.position - self._start
        known = self._known[first : first + size] if first >= 0 else b""
        if len(known) < size:
            known = self._storage.read_at(self.position, max(size, self._ahead))
            self._start, self._known = self.position, known
        return known[:size]

    peek_behind = peek

    def restore(self) -> None:
        """Do nothing: no other reader shares the position."""

    def read(self, size: int) -> Buffer:
        data = self.peek(size)
        self.position += len(data)
        return data

    def skip(self, size: int, what: str, section: str) -> None:
        left = self.left()
        if left is not None and left < size:
            raise self._too_short(size, left, what, section)
        self.position += size


class MemoryCursor(StorageCursor):
    """A position in a flat buffer of bytes; the methods return views of it."""

    def __init__(self, buffer: Buffer) -> None:
        self._view = memoryview(buffer)
        self.position = 0
        self._total = len(buffer)

    def peek(self, size: int) -> Buffer:
        return self._view[self.position : self.position + size]

    peek_behind = peek

    def read_exactly(self, size: int, what: str, section: str) -> Buffer:
        start, stop = self.position, self.position + size
        if stop > len(self._view):
            raise self._too_short(size, len(self._view) - start, what, section)
        self.position = stop
        return self._view[start:stop]
