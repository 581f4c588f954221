"""Plain bytes in numbered chunks: the base class of everything that stores an array.

`ChunkCache` keeps the plain bytes of the chunks that were used last.
"""

from __future__ import annotations

from _thread import allocate_lock
from abc import ABC, abstractmethod

from .._engine.forks import renew_after_fork

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    # Returns the memory for a chunk, which has its plain size; None for any memory.
    Room = Callable[[int], memoryview | None]


class ChunkSource(ABC):
    """Chunks that are read by their numbers, by many threads at once.

    Attributes
    ----------
    nbytes
        Number of plain bytes of all chunks.
    chunk_size
        The plain size of all chunks but the last one; 0 if they have several.
    """

    nbytes: int
    chunk_size: int

    @abstractmethod
    def span(self, number: int) -> tuple[int, int]:
        """Return start and stop of a chunk in the plain bytes."""

    @abstractmethod
    def numbers(self, start: int, stop: int) -> range:
        """Return the numbers of the chunks that hold the span [start, stop)."""

    @abstractmethod
    def load(
        self,
        numbers: Sequence[int],
        use: Callable[[int, memoryview], object],
        *,
        room: Room | None = None,
        joined: bool = False,
    ) -> None:
        """Call ``use(number, plain)`` for chunks, on several threads.

        Parameters
        ----------
        numbers
            The numbers of the chunks, ascending.
        use
            Called with the number and the plain bytes of each chunk, in any thread and
            in any order. If the file changes during the read, it is called again for
            the same chunk. The bytes are valid during the call.
        room
            Called with the number of a chunk; returns writable memory of the size of
            its span, into which it is decompressed, or None. Chunks that are
            decompressed there are not kept in the cache.
        joined
            Whether ``use`` may be called for neighbouring chunks together, with the
            number of the first one.

        Raises
        ------
        FormatError
            If a chunk is damaged or missing.
        StorageError
            If the file was replaced by other content.
        """

    def cached(self, number: int, size: int) -> bytes | None:
        """Return the plain bytes of a chunk, of this `size`, if they are in memory."""
        return None

    def read_into(self, view: memoryview, start: int) -> int:
        """Fill a writable view of bytes from a plain position; return how many.

        Raises the errors of `load`.
        """
        stop = min(start + len(view), self.nbytes)
        if start >= stop:
            return 0

        numbers = self.numbers(start, stop)
        if len(numbers) == 1:
            first, after = self.span(numbers[0])
            plain = self.cached(numbers[0], after - first)
            if plain is not None:
                view[: stop - start] = plain[start - first : stop - first]
                return stop - start
        self._load_into(view, start, stop, numbers)
        return stop - start

    def _load_into(
        self, view: memoryview, start: int, stop: int, numbers: Sequence[int]
    ) -> None:
        """Fill a view from the span [start, stop), which is in chunks."""

        def room(number: int) -> memoryview | None:
            first, after = self.span(number)
            inside = start <= first and after <= stop
            return view[first - start : after - start] if inside else None

        def use(number: int, plain: memoryview) -> None:
            first, after = self.span(number)
            if start <= first and after <= stop:
                return  # it was decompressed there
            begin, end = max(first, start), min(after, stop)
            view[begin - start : end - start] = plain[begin - first : end - first]

        self.load(numbers, use, room=room)


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
