"""The plain bytes of the chunks that were used last, up to a number of bytes."""

from __future__ import annotations

from _thread import allocate_lock

from .._engine.forks import renew_after_fork

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Hashable


class ChunkCache:
    """Plain chunks by key; the one that was not used for the longest time goes first.

    ``limit`` is the number of bytes that are kept at most. Many threads may use it.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._chunks: dict[Hashable, bytes] = {}
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        """Replace the lock by a free one, and count the bytes again."""
        self._lock = allocate_lock()
        self._nbytes = sum(map(len, self._chunks.values()))

    def __len__(self) -> int:
        return len(self._chunks)

    def get(self, key: Hashable) -> bytes | None:
        """Return a chunk; None if it is not here."""
        with self._lock:
            plain = self._chunks.pop(key, None)
            if plain is not None:
                self._chunks[key] = plain  # a dictionary keeps the order of insertion
            return plain

    def put(self, key: Hashable, plain: bytes) -> None:
        """Keep a chunk, unless it exceeds the limit alone."""
        if len(plain) > self.limit:
            return
        with self._lock:
            self._nbytes += len(plain) - len(self._chunks.pop(key, b""))
            self._chunks[key] = plain
            while self._nbytes > self.limit:
                oldest = next(iter(self._chunks))
                self._nbytes -= len(self._chunks.pop(oldest))

    def clear(self) -> None:
        """Remove all chunks."""
        with self._lock:
            self._chunks.clear()
            self._nbytes = 0
