"""Plain bytes in numbered chunks: the base class of everything that stores an array.

`ChunkCache` keeps the plain bytes of the chunks that were used last.

Runs of chunks that are neighbours in a file: planning them, and reading each once.

From a local file every worker reads its own runs. From a place where each read is a
round trip (`Storage.is_remote`), groups of runs are requested at once; one more thread
requests the next group while the workers decompress. Only the thread of the caller
reads a storage that is not ``concurrent``.
"""

from __future__ import annotations

from _thread import allocate_lock
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

from .._engine.forks import renew_after_fork
from .._engine.threads import Ahead, Task, Workspace
from .._storage.base import Storage
from .._storage.protocols import Buffer

if TYPE_CHECKING:
    from .chunk_reader import Extent

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
        return stop - start


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

    def get(self, key: Hashable, size: int = -1) -> bytes | None:
        """Return a chunk; None if it is not here, or has another size than `size`.

        The last chunk of a file may have grown since it was put here.
        """
        with self._lock:
            plain = self._chunks.pop(key, None)
            if plain is not None:
                self._chunks[key] = plain  # a dictionary keeps the order of insertion
                if size not in (-1, len(plain)):
                    return None
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


# Maximum number of plain bytes in a run of several chunks of a local file: a longer run
# would leave threads without work.
LOCAL_RUN = 512 * 2**10
# Maximum number of bytes of a remote request for several chunks: two chunks of 1 MiB.
# Larger requests are slower, because fewer run at once.
REMOTE_RUN = 5 * 2**19
# Maximum number of bytes between two chunks that are worth one remote request.
REMOTE_GAP = 64 * 2**10
# Maximum number of requests in a group, and about the bytes in their responses.
REQUESTS_AT_A_TIME = 32
BYTES_AT_A_TIME = 16 * 2**20
# Number of groups that are requested while the chunks of another one are decompressed.
GROUPS_AHEAD = 1


class Run:
    """Chunks that one read fetches, or one chunk from the cache.

    ``chunks`` has the number, the file positions and the plain size of each chunk,
    ``offset`` and ``stop`` are file positions. ``content`` is the bytes between them,
    None if a worker is to read them. ``plain`` is the plain bytes of the chunk if they
    come from the cache.
    """

    __slots__ = ("chunks", "content", "offset", "plain", "stop")

    def __init__(self, chunk: Extent) -> None:
        self.chunks = [chunk]
        self.offset = chunk[1]
        self.stop = chunk[2]
        self.content: Buffer | None = None
        self.plain: bytes | None = None


def plan_runs(
    extents: Iterator[Extent],
    cached: Callable[[int, int], bytes | None] | None,
    is_remote: bool,
) -> Iterator[Run]:
    """Yield the runs of chunks, without their content.

    Parameters
    ----------
    extents
        The chunks, in the order of the file.
    cached
        Returns the plain bytes of a chunk by its number and plain size, None if they
        are not in memory; None if no chunk is.
    is_remote
        Whether each read is a round trip.
    """
    gap = REMOTE_GAP if is_remote else 0
    run = None
    nbytes = 0  # the plain bytes of the run
    for chunk in extents:
        number, offset, stop, size = chunk
        plain = cached(number, size) if cached is not None else None
        if run is not None:
            in_all = stop - run.offset if is_remote else nbytes + size
            fits = in_all <= (REMOTE_RUN if is_remote else LOCAL_RUN)
            if plain is None and fits and 0 <= offset - run.stop <= gap:
                run.chunks.append(chunk)
                run.stop, nbytes = stop, nbytes + size
                continue
            yield run
        run, nbytes = Run(chunk), size
        if plain is not None:
            run.plain = plain
            yield run
            run = None
    if run is not None:
        yield run


def _grouped(runs: Iterator[Run]) -> Iterator[list[Run]]:
    """Yield the runs in groups that are requested together."""
    group: list[Run] = []
    nbytes = 0
    for run in runs:
        group.append(run)
        nbytes += run.stop - run.offset
        if len(group) == REQUESTS_AT_A_TIME or nbytes >= BYTES_AT_A_TIME:
            yield group
            group, nbytes = [], 0
    if group:
        yield group


class RunReader:
    """Reads the runs of one storage.

    Attributes
    ----------
    tail
        File position and content of bytes that were read before, and that no read needs
        to fetch again.
    """

    def __init__(self, storage: Storage) -> None:
        self.tail = 0, b""
        self._storage = storage
        self._workspace = Workspace()

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the file; the bytes of the tail come from memory."""
        start, tail = self.tail
        if start <= offset and offset + size <= start + len(tail):
            return tail[offset - start : offset - start + size]
        return self._storage.read_at(offset, size)

    def content(self, run: Run) -> memoryview:
        """Return the bytes of a run, in memory of this thread if it reads them now."""
        if run.content is not None:
            return memoryview(run.content)
        view = self._workspace.view(run.stop - run.offset)
        return view[: self._storage.read_into(view, run.offset)]

    def read_now(self, runs: Iterator[Run]) -> Iterator[Run]:
        """Yield the runs with their bytes, which the thread of the caller reads."""
        for run in runs:
            if run.plain is None:
                run.content = self.read(run.offset, run.stop - run.offset)
            yield run

    def requested(self, runs: Iterator[Run]) -> Iterator[Run]:
        """Yield the runs with their bytes, which are requested before they are due."""
        groups = _grouped(runs)
        first = list(islice(groups, 2))
        if len(first) < 2 or not self._storage.concurrent:
            for group in chain(first, groups):
                yield from self._fetched(group)
            return
        # After an error, and after Ctrl-C, a request may still be under way: it must
        # not delay the error. Its thread ends when `ahead` is deleted.
        ahead = Ahead(1 + GROUPS_AHEAD)
        tasks: list[Task] = []
        for group in chain(first, groups):
            tasks.append(ahead.submit(partial(self._fetched, group)))
            if len(tasks) > GROUPS_AHEAD:
                yield from ahead.result(tasks.pop(0))
        for task in tasks:
            yield from ahead.result(task)
        ahead.close()

    def _fetched(self, group: list[Run]) -> list[Run]:
        start, tail = self.tail
        wanted = []
        for run in group:
            if run.plain is not None:
                continue
            if start <= run.offset and run.stop <= start + len(tail):
                run.content = tail[run.offset - start : run.stop - start]
            else:
                wanted.append(run)
        if wanted:
            extents = [(run.offset, run.stop) for run in wanted]
            contents = self._storage.read_many(extents)
            for run, content in zip(wanted, contents, strict=True):
                run.content = content
        return group
