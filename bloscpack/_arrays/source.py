"""Chunks that are read by their numbers, and the cache of those that were used last.

`ChunkSource` is the base class of everything that stores an array in numbered chunks:
a `.blp` file, the shards of a dataset, the files of the layout bcolz.
"""

from __future__ import annotations

from _thread import allocate_lock
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from .._engine.forks import renew_after_fork
from .._engine.threads import Workspace
from .._format.dtypes import Array
from .._format.grid import Grid
from .._types import Buffer

# Returns the memory for a chunk, which has its plain size; None for any memory.
Room = Callable[[int], memoryview | None]

# Returns the spans (start, stop) of the plain bytes of a chunk that are used.
Needs = Callable[[int], Sequence[tuple[int, int]]]

# Default number of plain bytes that a source keeps of the chunks used last.
CACHE_NBYTES = 32 * 2**20
# Number of chunks whose reads are counted: the maximum, and for chunks of this size or
# more, of which a part can be read at much less cost.
MAX_NOTED, FEW_NOTED = 2**16, 8
LONG_NBYTES = 2**18


class ChunkSpans:
    """Where chunks are in the plain bytes.

    Attributes
    ----------
    nchunks, nbytes
        Number of chunks, and of the plain bytes of all.
    chunk_size
        The plain size of all chunks but the last one; 0 if they have several.
    starts
        Where each chunk starts; needed only if they have several sizes.
    """

    nchunks: int
    nbytes: int
    chunk_size: int
    starts: Sequence[int] | Array

    def span(self, number: int) -> tuple[int, int]:
        """Return start and stop of a chunk in the plain bytes."""
        is_last, size = number + 1 == self.nchunks, self.chunk_size
        if size:
            start = number * size
            return start, self.nbytes if is_last else start + size
        stop = self.nbytes if is_last else int(self.starts[number + 1])
        return int(self.starts[number]), stop

    def numbers(self, start: int, stop: int) -> range:
        """Return the numbers of the chunks that hold the span [start, stop)."""
        if start >= min(stop, self.nbytes):
            return range(0)
        if size := self.chunk_size:  # the last chunk may be longer
            first = min(start // size, self.nchunks - 1)
            after = min(-(-stop // size), self.nchunks)
        else:
            first = bisect_right(self.starts, start) - 1
            after = bisect_left(self.starts, stop)
        # Chunks without plain bytes may be the last ones.
        return range(first, self.nchunks if stop >= self.nbytes else after)


class ChunkSource(ChunkSpans, ABC):
    """Chunks that are read by their numbers, by many threads at once.

    Attributes
    ----------
    cut
        How chunks divide the axes of the array; None if they end anywhere.
    decode
        Returns the items of a chunk from its plain bytes, of items that have different
        sizes; None for all others.
    """

    cut: Grid | None = None
    decode: Callable[[memoryview], Array] | None = None

    @property
    def in_order(self) -> bool:
        """Whether the plain bytes are the items in order: chunks are spans of them."""
        return self.decode is None and (self.cut is None or self.cut.is_rows)

    @abstractmethod
    def load(
        self,
        numbers: Sequence[int],
        use: Callable[[int, memoryview], object],
        *,
        room: Room | None = None,
        needs: Needs | None = None,
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
        needs
            Called with the number of a chunk without `room`; returns the spans of its
            plain bytes that ``use`` reads. The others may then have any value.

        Raises
        ------
        FormatError
            If a chunk is damaged or missing.
        StorageError
            If the file was replaced by other content.
        """

    def cached(self, number: int, size: int) -> Buffer | None:
        """Return the plain bytes of a chunk, of this `size`, if they are in memory.

        They are valid until this thread reads another chunk.
        """
        return None

    def read_into(self, view: memoryview, start: int) -> int:
        """Fill a writable view of bytes from a plain position; return how many.

        Raises the errors of `load`.
        """
        stop = min(start + len(view), self.nbytes)
        if start >= stop:
            return 0

        numbers, size = self.numbers(start, stop), self.chunk_size
        first, last = numbers[0], numbers[-1]
        if first == last:
            begin, after = self.span(first)
            plain = self.cached(first, after - begin)
            if plain is not None:
                view[: stop - start] = memoryview(plain)[start - begin : stop - begin]
                return stop - start

        def needed(number: int) -> tuple[int, int]:
            begin, after = self.span(number)
            return max(begin, start) - begin, min(after, stop) - begin

        def room(number: int) -> memoryview | None:
            if size and first < number < last:
                position = number * size - start
                return view[position : position + size]
            begin, after = self.span(number)
            inside = start <= begin and after <= stop
            return view[begin - start : after - start] if inside else None

        def use(number: int, plain: memoryview) -> None:
            if first < number < last:
                return  # it was decompressed there
            begin, after = needed(number)
            if after - begin < len(plain):
                position = self.span(number)[0] + begin - start
                view[position : position + after - begin] = plain[begin:after]

        self.load(numbers, use, room=room, needs=lambda number: [needed(number)])
        return stop - start


class _Latest(Workspace):
    """The memory of a thread for chunks, and the key of the chunk that is in it."""

    key: Hashable = None
    size = 0


class ChunkCache:
    """Plain chunks by key; the one that was not used for the longest time goes first.

    ``limit`` is the number of bytes that are kept at most. Many threads may use it.

    The first time that a chunk is read, it is decompressed into `memory`, where it is
    found again until the thread reads another chunk. New memory would cost more than
    decompressing it once more: only a chunk that is read again gets some.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._chunks: dict[Hashable, Buffer] = {}
        self._counts: dict[Hashable, int] = {}  # how often others were read lately
        self._latest = _Latest()
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        """Replace the lock by a free one, and count the bytes again."""
        self._lock = allocate_lock()
        self._nbytes = sum(map(len, self._chunks.values()))

    def __bool__(self) -> bool:
        return bool(self._chunks) or self._latest.key is not None

    def get(
        self, key: Hashable, size: int = -1, *, briefly: bool = False
    ) -> Buffer | None:
        """Return a chunk; None if it is not here, or has another size than `size`.

        The last chunk of a file may have grown since it was put here. Bytes that are
        returned `briefly` are valid until this thread reads another chunk.
        """
        with self._lock:
            plain = self._chunks.pop(key, None)
            if plain is not None:
                self._chunks[key] = plain  # a dictionary keeps the order of insertion
                if size not in (-1, len(plain)):
                    return None
                return plain
        latest = self._latest
        if latest.key != key or size not in (-1, latest.size):
            return None
        found = latest.view(latest.size)
        if briefly:
            return found
        plain = bytes(found)
        self.put(key, plain)
        return plain

    def put(self, key: Hashable, plain: Buffer) -> None:
        """Keep a chunk, unless it exceeds the limit alone."""
        if len(plain) > self.limit:
            return
        with self._lock:
            self._counts.pop(key, None)
            self._nbytes += len(plain) - len(self._chunks.pop(key, b""))
            self._chunks[key] = plain
            while self._nbytes > self.limit:
                oldest = next(iter(self._chunks))
                self._nbytes -= len(self._chunks.pop(oldest))

    def count_read(self, key: Hashable, size: int) -> int:
        """Count a read of a chunk of a size; return how many there were lately."""
        most = FEW_NOTED if size >= LONG_NBYTES else self.limit // max(size, 1)
        with self._lock:
            count = self._counts[key] = self._counts.pop(key, 0) + 1
            if len(self._counts) > min(most, MAX_NOTED):
                del self._counts[next(iter(self._counts))]
        return count

    def memory(self, size: int, *, is_new: bool = False) -> memoryview:
        """Return memory of any value for a chunk, until this thread calls this again.

        If it `is_new`, it is for a chunk that is kept: nothing else uses it.
        """
        if is_new:
            import numpy

            memory: Any = numpy.empty(size, "u1")  # which is not filled with zeros
            return memoryview(memory)
        self._latest.key = None
        return self._latest.view(size)

    def note(self, key: Hashable, size: int) -> None:
        """Note that a whole chunk is in the `memory` of this thread."""
        self._latest.key, self._latest.size = key, size
