"""Chunks that are read by their numbers.

`ChunkSource` is the base class of everything that stores an array in numbered chunks:
a `.blp` file, the shards of a dataset, the files of the layout bcolz.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from .._format.dtypes import Array
from .._format.grid import Grid
from .._types import Buffer

# Returns the memory for a chunk, which has its plain size; None for any memory.
Room = Callable[[int], memoryview | None]

# Returns the spans (start, stop) of the plain bytes of a chunk that are used.
Needs = Callable[[int], Sequence[tuple[int, int]]]

# The message about a closed array.
CLOSED = "the array is closed"


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
        joined: bool = False,
    ) -> None:
        """Call ``use(number, plain)`` for chunks, on several threads.

        It is not called for chunks that `room` gives memory for.

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
        joined
            Whether ``use`` also takes several chunks at once, without `room`: the
            number of the first one, and the plain bytes of all that follow it.

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

        def room(number: int) -> memoryview | None:
            if size and first < number < last:
                position = number * size - start
                return view[position : position + size]
            begin, after = self.span(number)
            inside = start <= begin and after <= stop
            return view[begin - start : after - start] if inside else None

        def needs(number: int) -> list[tuple[int, int]]:
            begin, after = self.span(number)
            return [(max(begin, start) - begin, min(after, stop) - begin)]

        def use(number: int, plain: memoryview) -> None:
            begin = self.span(number)[0]
            part = plain[max(start - begin, 0) : stop - begin]
            position = max(begin - start, 0)
            view[position : position + len(part)] = part

        self.load(numbers, use, room=room, needs=needs)
        return stop - start
