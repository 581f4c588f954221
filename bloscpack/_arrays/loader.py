"""The loader of chunks in files: they are verified, decompressed, and perhaps kept.

Flow: chunk numbers → runs of chunks that are neighbours in a file → one read for each
run → `ChunkLoader._place`, which verifies each digest, decompresses into memory of the
caller or of the thread, and keeps chunks that are read again.

A file with many chunks (`_file.opened`) and the files of a dataset (`dataset.layouts`)
find the position of each chunk, and translate errors. This module decides how much is
read at once, by how many threads, and which chunks are kept.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy

from .._engine.forks import cached_property, renew_after_fork
from .._engine.threads import Workspace, run_length
from .._format.block_table import BlockRow, blocks_of
from .._format.chunks import decompress_verified, read_blocks, verified_chunk
from .._storage.base import Storage
from .._types import Buffer
from ..abstract_io import nthreads_to_read
from ..checksums import Hash
from ..exceptions import FormatError, StorageError
from .source import ChunkSource, Needs, Room

if TYPE_CHECKING:
    from .._format.chunks import Part

# Default number of plain bytes that a source keeps of the chunks used last.
CACHE_NBYTES = 32 * 2**20
# Number of chunks whose reads are counted: the maximum, and for chunks of this size or
# more, of which a part can be read at much less cost.
MAX_NOTED, FEW_NOTED = 2**16, 8
LONG_NBYTES = 2**18
# Number of reads of blocks of a chunk, lately, from which the whole chunk is read and
# kept; at a URL, where each read is a round trip. Reading and keeping a chunk takes as
# long as about 8 blocks.
READS_OF_BLOCKS, REMOTE_READS_OF_BLOCKS = 8, 2
# Maximum number of sequential reads that are followed for each thread.
FOLLOWED = 8
# Maximum number of plain bytes of neighbouring chunks that one thread reads at a time,
# and about the least number for which another thread is of use.
RUN_NBYTES = 2**20
LEAST_NBYTES = 256 * 2**10
# The same for storages where each read is a round trip: plain bytes that are requested
# at a time. A request for several chunks has at most `REMOTE_REQUEST` bytes, for two
# chunks of 1 MiB: larger requests are slower, because fewer run at once.
REMOTE_RUN_NBYTES = 16 * 2**20
REMOTE_REQUEST = 5 * 2**19
# Maximum number of bytes between two chunks that are worth one remote request.
REMOTE_GAP = 64 * 2**10
# Minimum size in bytes of each of several chunks from which it takes less time to find
# out which part of them is needed than to decompress the rest.
PART_NBYTES = 128 * 2**10

# Number, offset, next offset and plain size of a chunk.
Extent = tuple[int, int, int, int]


# Reads


class Run:
    """Chunks that one read fetches, or one chunk from the cache.

    ``chunks`` has the number, the file positions and the plain size of each chunk,
    ``nbytes`` is the plain size of all. ``offset`` and ``stop`` are file positions.
    ``content`` is the bytes between them, None if a worker is to read them. ``plain``
    is the plain bytes of the chunk if they come from the cache.
    """

    __slots__ = ("chunks", "content", "nbytes", "offset", "plain", "stop")

    def __init__(self, chunk: Extent, plain: Buffer | None = None) -> None:
        self.chunks = [chunk]
        _, self.offset, self.stop, self.nbytes = chunk
        self.content: Buffer | None = None
        self.plain = plain

    def frames(
        self, content: memoryview
    ) -> tuple[list[memoryview], list[int], list[int]]:
        """Return chunks and digests in the content, with their numbers and sizes."""
        begin, frames, numbers, sizes = self.offset, [], [], []
        for number, offset, stop, size in self.chunks:
            frames.append(content[offset - begin : stop - begin])
            numbers.append(number)
            sizes.append(size)
        return frames, numbers, sizes


def plan_runs(
    extents: Iterator[Extent],
    cached: Callable[[int, int], Buffer | None] | None,
    is_remote: bool,
    most: int = RUN_NBYTES,
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
    most
        Maximum number of plain bytes of a run of several chunks, if it is not.
    """
    gap, most = (REMOTE_GAP, REMOTE_REQUEST) if is_remote else (0, most)
    run = None
    for chunk in extents:
        number, offset, stop, size = chunk
        plain = cached(number, size) if cached is not None else None
        if run is not None:
            in_all = stop - run.offset if is_remote else run.nbytes + size
            is_near = in_all <= most and 0 <= offset - run.stop <= gap
            if is_near and plain is None and run.plain is None:
                run.chunks.append(chunk)
                run.stop, run.nbytes = stop, run.nbytes + size
                continue
            yield run
        run = Run(chunk, plain)
    if run is not None:
        yield run


# Loading


class Loading(NamedTuple):
    """What a call of `ChunkSource.load` does with its chunks.

    Chunks from the number `keep_from` on are kept if they are read again.
    """

    use: Callable[[int, memoryview], object]
    room: Room | None
    needs: Needs | None
    keep_from: int
    joined: bool


class Fetched(NamedTuple):
    """Chunks of one state of a file, in memory.

    Attributes
    ----------
    numbers, sizes
        Their numbers and plain sizes.
    frames
        Each chunk and its digest; None if it is missing, or `cached`. They are not used
        when other chunks are fetched.
    cached
        The plain bytes of chunks that the cache has.
    version
        With the number, the key of a chunk in the cache.
    checksum
        That of the digests.
    explain
        Gets an error and the number of its chunk; returns the error to be raised.
    """

    numbers: Sequence[int]
    sizes: Iterable[int]
    frames: Sequence[memoryview | None]
    cached: Mapping[int, Buffer]
    version: Hashable
    checksum: Hash
    explain: Callable[[FormatError, int], FormatError]


class BlockFile(Protocol):
    """A file that has, for chunks, rows of a table of blocks."""

    storage: Storage

    def row(self, number: int) -> BlockRow | None:
        """Return the row of a chunk; None if it has none."""

    def read_many(self, extents: list[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of extents (start, stop), which are requested at once."""


# The number of a chunk, its row, and the runs of its blocks that are needed.
BlockPlan = tuple[int, BlockRow, list[tuple[int, int]]]
# Bytes of a chunk that were read, by their position in the chunk.
BlockBytes = dict[int, bytes]


class ChunkLoader(ChunkSource):
    """Chunks in files, which are verified, decompressed, and perhaps kept."""

    is_far: bool = False

    def __init__(self, cache_nbytes: int = CACHE_NBYTES) -> None:
        self._cache_nbytes = cache_nbytes

    @cached_property
    def _cache(self) -> ChunkCache:
        return ChunkCache(self._cache_nbytes)

    def _loading(
        self,
        numbers: Sequence[int],
        use: Callable[[int, memoryview], object],
        room: Room | None,
        needs: Needs | None,
        joined: bool = False,
    ) -> Loading:
        """Return what to do with chunks; there is at least one."""
        count, size, most = len(numbers), self._usual_size, self._cache.limit
        # If the cache has no room for all chunks, each would be removed before it is
        # used again, and decompressing into memory that is in use already is faster.
        # Only the last chunk is kept then, where the next read may go on.
        keep_from = numbers[0 if count * size <= most else -1] + (size > most)
        is_part = count == 1 or size >= PART_NBYTES
        needs = needs if is_part else None
        joined = joined and needs is None and not self.is_far  # runs from afar are long
        return Loading(use, room, needs, keep_from, joined)

    @property
    def _usual_size(self) -> int:
        """The plain size of most chunks, or the average."""
        return max(1, self.chunk_size or self.nbytes // self.nchunks)

    def _plan(
        self, count: int, has_room: bool, nthreads: int | None, most: int
    ) -> tuple[int, int, int]:
        """Return how to read chunks of which a read has at most `most`.

        They are the number of chunks of a read, of threads, and of reads that a thread
        does one after the other.
        """
        size = self._usual_size
        nthreads = nthreads_to_read(nthreads, count, size)
        limit = run_length(count, size, nthreads, RUN_NBYTES)
        limit = min(max(limit, LEAST_NBYTES // size), most)
        nruns = -(-count // limit)
        batch = run_length(nruns, limit * size, nthreads) if has_room else 1
        return limit, min(nthreads, nruns), batch

    def _fill(self, memory: memoryview) -> None:
        """Write the plain bytes of a chunk that is missing."""
        raise NotImplementedError

    def _place(self, loading: Loading, fetched: Fetched) -> None:
        """Verify and decompress chunks to where they belong.

        Raises `FormatError` for the first one that is damaged.
        """
        use, room, needs, keep_from, joined = loading
        numbers, sizes, frames, cached, version, checksum, explain = fetched
        last, count, joint = self.nchunks - 1, len(numbers), None
        follow = count > 1 and numbers[-1] - numbers[0] < count and None not in frames
        if joined and follow and not cached and numbers[-1] < min(keep_from, last):
            begin, step = numbers[0], self.chunk_size
            joint = self._cache.memory(count * step)

            def room(number: int) -> memoryview:
                return joint[(number - begin) * step : (number - begin + 1) * step]

        for number, size, frame in zip(numbers, sizes, frames, strict=False):
            target = None if room is None else room(number)
            plain = cached.get(number) if cached else None
            if plain is not None:
                if target is None:
                    use(number, memoryview(plain))
                else:
                    target[:] = plain
                continue
            wanted = size
            if number >= last:  # it may have grown: then it is not kept
                start, stop = self.span(number)
                wanted = stop - start
            memory = target if wanted == size else None
            try:
                if frame is None:
                    memory = self._cache.memory(size) if memory is None else memory
                    self._fill(memory)
                elif memory is not None:
                    decompress_verified(verified_chunk(frame, checksum, size), memory)
                else:
                    keeps = target is None and wanted == size and number >= keep_from
                    key = (number, version) if keeps else None
                    part = None
                    if needs is not None and target is None:
                        part = partial(needs, number)
                    memory = self._plain_of(frame, checksum, size, key, part)
            except FormatError as error:
                raise explain(error, number) from error.__cause__
            if target is None:
                use(number, memory if wanted == size else memory[:wanted])
            elif wanted != size:
                target[:] = memory[:wanted]
        if joint is not None:
            use(numbers[0], joint)

    def _plain_of(
        self,
        frame: memoryview,
        checksum: Hash,
        size: int,
        key: Hashable = None,
        part: Part | None = None,
    ) -> memoryview:
        """Return the plain bytes of a chunk, until this thread reads another one.

        If it has a `key`, it is kept if it is read again. Otherwise, only the `part`
        that is needed may have its bytes; None for all. Raises `FormatError`.
        """
        chunk = verified_chunk(frame, checksum, size)  # before memory is allocated
        cache, latest = self._cache, self._cache.latest
        # Reading it again from afar would take a request.
        if key is not None and (self.is_far or cache.count_read(key, size) > 1):
            memory = cache.memory(size, is_new=True)
            decompress_verified(chunk, memory)
            cache.put(key, memory.toreadonly())
            return memory
        memory = cache.memory(size)
        if decompress_verified(chunk, memory, None if key == latest.wanted else part):
            latest.key, latest.size = key, size  # it is found there again
        return memory

    # Blocks of chunks

    def _load_blocks(
        self, loading: Loading, file: BlockFile, version: Hashable, run: Sequence[int]
    ) -> Sequence[int]:
        """Load chunks of which few blocks are needed; return the numbers of the others.

        Reading the others gives the reason if a block can't be read. `version` stands
        for the file in the keys of the cache.
        """
        use, room, needs, keep_from, _ = loading
        assert needs is not None
        is_far, left = file.storage.is_remote, []
        plans: list[BlockPlan] = []
        whole = False  # whether chunks are read as a whole
        for number in run:
            row, key, runs = None, (number, version), []
            has_target = room is not None and room(number) is not None
            is_kept = bool(self._cache) and self._cache.get(key) is not None
            if not (has_target or is_kept):  # others are not read in blocks
                row = file.row(number)
            if row is not None:
                header, keeps = row.header, number >= keep_from
                runs = blocks_of(needs(number), header.blocksize, header.nblocks)
                if is_far and runs and self._use_kept(use, key, row, runs):
                    continue
                if runs and keeps and self._is_read_whole(key, row, runs):
                    runs = []
            if row is None or not runs:
                left.append(number)
                whole = whole or not is_kept
            else:
                plans.append((number, row, runs))
        fetched: dict[int, BlockBytes] = {}
        if plans and is_far:
            with suppress(FormatError, StorageError):
                fetched = {} if whole else _fetch_blocks(file, plans)
            if not fetched:
                return sorted([*left, *(number for number, _, _ in plans)])
        for number, row, runs in plans:
            memory = self._read_blocks(file.storage, row, runs, fetched.get(number))
            if memory is None:
                left.append(number)
                continue
            for first, after in runs if is_far and number >= keep_from else ():
                size = row.header.blocksize
                plain = bytes(memory[first * size : after * size])
                self._cache.put((number, version, first, after), plain)
            use(number, memory)
        return sorted(left)

    def _is_read_whole(
        self, key: tuple[int, Hashable], row: BlockRow, runs: Sequence[tuple[int, int]]
    ) -> bool:
        """Return whether to read all of a chunk of which blocks are needed.

        Blocks of it were read several times lately; or this thread reads on, a few
        blocks at a time, and the chunk is short: these reads would take longer.
        """
        size, count, cache = row.header.nbytes, len(row.ends), self._cache
        latest, number = cache.latest, key[0]
        before, reads = number * count, {**latest.reads}
        first, after = before + runs[0][0], before + runs[-1][1]
        around = [n for n in (number, number - 1, number + 1) if n in reads]
        low, high, follows = reads.pop(around[0]) if around else (-1, -1, 0)
        is_near = low <= after and first <= high and 4 * (after - first) <= count
        follows = follows + 1 if is_near else 0
        is_whole = follows >= READS_OF_BLOCKS > count // 8 and not self.is_far
        if is_whole:
            latest.wanted = key
            if latest.key is not None and abs(number - latest.key[0]) > 1:
                # Another sequential read uses the memory of the thread.
                cache.count_read(key, size)
        else:
            most = REMOTE_READS_OF_BLOCKS if self.is_far else READS_OF_BLOCKS
            is_whole = cache.count_read(key, size) >= most
        if is_whole:
            first, after = before, before + count
        reads[number] = first, after, follows
        if len(reads) > FOLLOWED:
            del reads[next(iter(reads))]
        latest.reads = reads
        return is_whole and size <= cache.limit

    def _read_blocks(
        self,
        storage: Storage,
        row: BlockRow,
        runs: Sequence[tuple[int, int]],
        fetched: BlockBytes | None = None,
    ) -> memoryview | None:
        """Return memory for a chunk, with runs of its blocks; None if that fails.

        `fetched` has the bytes that are needed, if they were read before.
        """

        def read(view: memoryview, position: int) -> int:
            if fetched is None:
                return storage.read_into(view, row.at + position)
            content = fetched[position][: len(view)]
            view[: len(content)] = content
            return len(content)

        memory = self._cache.memory(row.header.nbytes)
        done = read_blocks(read, self._cache.stored.view, row, runs, memory)
        return memory if done else None

    def _use_kept(
        self,
        use: Callable[[int, memoryview], object],
        key: tuple[int, Hashable],
        row: BlockRow,
        runs: Sequence[tuple[int, int]],
    ) -> bool:
        """Use runs of blocks in memory; return whether all of them are there."""
        kept = [self._cache.get((*key, *run)) for run in runs]
        memory = self._cache.memory(row.header.nbytes)
        for (first, _), plain in zip(runs, kept, strict=True):
            if plain is None:
                return False
            start = first * row.header.blocksize
            memory[start : start + len(plain)] = plain
        use(key[0], memory)
        return True


def _fetch_blocks(file: BlockFile, plans: Sequence[BlockPlan]) -> dict[int, BlockBytes]:
    """Return the bytes of blocks of chunks, by number.

    Return none if that takes more requests than reading the chunks.
    """
    keys: list[tuple[int, int]] = []
    extents: list[tuple[int, int, int, int]] = []
    for number, row, runs in plans:
        for first, after in runs:
            low, end = row.ends[first - 1] if first else 0, row.ends[after - 1]
            keys.append((number, low))
            extents.append((len(extents), row.at + low, row.at + end, end - low))
    in_order = sorted(extents, key=lambda extent: extent[1])
    requests = [*plan_runs(iter(in_order), None, True)]
    spans = sorted((row.at, row.at + row.header.ctbytes) for _, row, _ in plans)
    chunks = ((0, start, stop, stop - start) for start, stop in spans)
    if len(requests) > sum(1 for _ in plan_runs(chunks, None, True)):
        return {}
    fetched: dict[int, BlockBytes] = {}
    contents = file.read_many([(run.offset, run.stop) for run in requests])
    for run, content in zip(requests, contents, strict=True):
        for i, start, stop, _ in run.chunks:
            number, low = keys[i]
            part = content[start - run.offset : stop - run.offset]
            fetched.setdefault(number, {})[low] = part
    return fetched


# The cache


class _Latest(Workspace):
    """The memory of a thread for chunks, and the key of the chunk that is in it."""

    key: Any = None
    size = 0
    # By number of chunk: first block and end of the last read there, counted from chunk
    # 0 on, and the number of sequential reads so far, each in or next to that before.
    reads: Mapping[int, tuple[int, int, int]] = {}
    # The key of the chunk that is read as a whole because the thread reads on.
    wanted: Hashable = ()


class ChunkCache:
    """Plain chunks by key; the one that was not used for the longest time goes first.

    ``limit`` is the number of bytes that are kept at most, ``stored`` memory for bytes
    that were read. Many threads may use it.

    The first time that a chunk is read, it is decompressed into `memory`, where it is
    found again until the thread reads another chunk. New memory would cost more than
    decompressing it once more: only a chunk that is read again gets some.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._chunks: dict[Hashable, Buffer] = {}
        self._counts: dict[Hashable, int] = {}  # how often others were read lately
        self.latest, self.stored = _Latest(), Workspace()
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        """Replace the lock by a free one, and count the bytes again."""
        self._lock = allocate_lock()
        self._nbytes = sum(map(len, self._chunks.values()))

    def __bool__(self) -> bool:
        return bool(self._chunks) or self.latest.key is not None

    def get(
        self, key: Hashable, size: int = -1, *, briefly: bool = False
    ) -> Buffer | None:
        """Return a chunk; None if it is not here, or has another size than `size`.

        The last chunk of a file may have grown since it was put here. Bytes that are
        returned `briefly` are valid until this thread reads another chunk.
        """
        if key in self._chunks:  # without the lock: most are not here
            with self._lock:
                plain = self._chunks.pop(key, None)
                if plain is not None:
                    self._chunks[key] = plain  # a dictionary keeps the order
                    return plain if size in (-1, len(plain)) else None
        latest = self.latest
        if latest.key != key or size not in (-1, latest.size):
            return None
        part = latest.view(latest.size)
        if briefly:
            return part
        plain = bytes(part)
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
        most = FEW_NOTED if size >= LONG_NBYTES else self.limit // (size or 1)
        counts = self._counts
        with self._lock:
            count = counts[key] = counts.pop(key, 0) + 1
            if len(counts) > most or len(counts) > MAX_NOTED:
                del counts[next(iter(counts))]
        return count

    def memory(self, size: int, *, is_new: bool = False) -> memoryview:
        """Return memory of any value for a chunk, until this thread calls this again.

        If it `is_new`, it is for a chunk that is kept: nothing else uses it.
        """
        if is_new:
            memory: Any = numpy.empty(size, "u1")  # which is not filled with zeros
            return memoryview(memory)
        latest = self.latest
        latest.key = None
        return latest.view(size)
