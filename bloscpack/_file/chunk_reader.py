"""Chunks of one state of a file: where each one is, and how to load them in parallel.

Flow: chunk numbers → runs of chunks that are neighbours in the file → one read for each
run → verify each digest → decompress → hand the plain bytes to the caller.

The offset table gives the positions in one read; its entries are only compared with
each other, and each chunk that is loaded is compared with its entry and the next one.
Without a table that can be true, the headers of all chunks are read, once.

From a local file every worker reads its own runs. From a place where each read is a
round trip (`Storage.is_remote`), groups of runs are requested at once; one more thread
requests the next group while the workers decompress. Only the thread of the caller
reads a storage that is not ``concurrent``.
"""

from __future__ import annotations

import io
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar

from .._engine.blosc_settings import own_settings
from .._engine.forks import ForkSafeLock
from .._engine.threads import Ahead, Task, Workspace, for_each, run_length
from .._format.blosc_header import BloscHeader, check_plain_size, decode_header
from .._format.chunks import (
    check_digest,
    decompress,
    decompress_into,
    frame_behind,
    skip_frames,
    starts_with_frame,
)
from .._format.sections import (
    SMALLEST_CHUNK,
    Beginning,
    is_plausible_table,
    read_beginning,
)
from .._loop import nthreads_to_read
from .._storage.base import Storage, StorageFile
from .._storage.protocols import Buffer
from .._storage.stream import Cursor, StorageCursor
from ..args import Limits
from ..constants import BLOSC_HEADER_LENGTH, OFFSET_LENGTH
from ..exceptions import DamageError, FormatError
from .array_reader import ChunkCache, Room

if TYPE_CHECKING:
    from .._format.dtypes import Array

Result = TypeVar("Result")

# Called with the number of a chunk and its plain bytes.
Work = Callable[[int, memoryview], Result]

# Offset and size of a chunk with its digest, and the CRC-32 of these bytes.
Witness = tuple[int, int, int]

# Number, offset, next offset and plain size of a chunk.
Extent = tuple[int, int, int, int]

# Size of the reads of a remote file, when its chunk headers are read.
REMOTE_READ = 2**20
# Any size that an entry of an offset table can state.
MAX_FILE_SIZE = 2**63 - 1
# Maximum number of bytes by which Blosc makes a chunk longer.
BLOSC_OVERHEAD = BLOSC_HEADER_LENGTH


# Positions of chunks

# Number of chunks below which single steps are faster than NumPy.
FEW = 4
# Number of chunks whose extents are in memory at a time.
MANY = 4096


class ChunkIndex:
    """The positions of the chunks of a file.

    ``nchunks`` is their number and ``nbytes`` the number of plain bytes. ``chunk_size``
    is the plain size of all chunks but the last one; 0 if they have several.
    ``from_table`` says that the offsets are those of the offset table.
    """

    def __init__(
        self,
        offsets: Array,
        starts: Sequence[int] | Array,
        nbytes: int,
        from_table: bool,
    ) -> None:
        """`starts` is where the plain bytes of each chunk start.

        It is a range if all chunks but the last have the same size.
        """
        self._offsets = offsets
        self._starts = starts
        self.chunk_size = starts.step if isinstance(starts, range) else 0
        self.nchunks = len(offsets)
        self.nbytes = nbytes
        self.from_table = from_table

    def offset(self, number: int) -> int:
        """Return where a chunk starts in the file."""
        return int(self._offsets[number])

    def extents(self, numbers: Sequence[int]) -> Iterator[Extent]:
        """Yield the extents of chunks; the next offset of the last one is -1."""
        if len(numbers) < FEW:
            for number in numbers:
                start, stop = self.span(number)
                pair = self._offsets[number : number + 2].tolist()
                yield number, pair[0], pair[1] if len(pair) == 2 else -1, stop - start
            return
        import numpy

        for first in range(0, len(numbers), MANY):
            some = numpy.asarray(numbers[first : first + MANY])
            following = numpy.minimum(some + 1, self.nchunks - 1)
            begins, ends = self._offsets[some], self._offsets[following]
            ends[following == some] = -1
            if isinstance(self._starts, numpy.ndarray):
                sizes = self._starts[following] - self._starts[some]
            else:
                sizes = numpy.full(len(some), self.chunk_size)
            if some[-1] + 1 == self.nchunks:
                sizes[-1] = self.nbytes - self._starts[-1]
            columns = some, begins, ends, sizes
            yield from zip(*(column.tolist() for column in columns), strict=True)

    def begins_like(self, other: ChunkIndex) -> bool:
        """Return whether the chunks of `other` start at the same places in the file."""
        offsets = self._offsets[: other.nchunks]
        return bool((offsets == other._offsets).all())

    def span(self, number: int) -> tuple[int, int]:
        """Return start and stop of a chunk in the plain bytes."""
        last = number + 1 == self.nchunks
        stop = self.nbytes if last else int(self._starts[number + 1])
        return int(self._starts[number]), stop

    def numbers(self, start: int, stop: int) -> range:
        """Return the numbers of the chunks that hold the span [start, stop)."""
        if start >= min(stop, self.nbytes):
            return range(0)
        if size := self.chunk_size:  # the last chunk may be longer
            first = min(start // size, self.nchunks - 1)
            after = min(-(-stop // size), self.nchunks)
        else:
            first = bisect_right(self._starts, start) - 1
            after = bisect_left(self._starts, stop)
        # Chunks without plain bytes may be the last ones.
        return range(first, self.nchunks if stop >= self.nbytes else after)


def index_from_table(
    beginning: Beginning, first: int, file_size: int
) -> ChunkIndex | None:
    """Return the index that the offset table gives; None if it can't be true.

    The first chunk starts at `first` in a file of `file_size` bytes.
    """
    header, table = beginning.header, beginning.table
    if not table or header.nbytes is None:
        return None
    smallest = SMALLEST_CHUNK + header.checksum_impl.size
    if not is_plausible_table(table, first, file_size, smallest):
        return None
    import numpy  # `is_plausible_table` has imported it

    offsets = numpy.frombuffer(table, "<i8")
    # A header with a single chunk need not state the chunk size.
    size = header.chunk_size
    starts = range(0, len(offsets) * size, size) if size > 0 else [0] * len(offsets)
    return ChunkIndex(offsets, starts, header.nbytes, True)


def index_from_headers(
    cursor: Cursor, beginning: Beginning, limits: Limits | None = None
) -> ChunkIndex:
    """Return the index that the headers of all chunks give.

    The cursor is at the first chunk. Raises `FormatError` if one of them is damaged or
    if the plain bytes exceed the `limits`.
    """
    import numpy

    offsets, starts, nbytes = [], [], 0
    for frame in skip_frames(cursor, beginning.header, limits):
        offsets.append(frame.offset or 0)
        starts.append(frame.start)
        nbytes = frame.start + frame.header.nbytes
    return ChunkIndex(
        numpy.array(offsets, "i8"), numpy.array(starts, "i8"), nbytes, False
    )


# Runs of chunks

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


# Chunks


class ChunkReader:
    """One state of a file, from which chunks are loaded.

    Parameters
    ----------
    storage
        The file.
    cache
        Keeps plain chunks for later calls; None for no cache.
    limits
        Maximum sizes of the file; see `Limits`.

    Attributes
    ----------
    beginning, header, metadata
        The sections in front of the chunks; the header and the metadata in them.
    index
        Where each chunk is.
    witness
        Offset, size and CRC-32 of one of the chunks that were read and that no append
        changes; None before the first one.
    replaced_table
        Whether the last chunk contradicted the offset table, so that the headers of all
        chunks replaced it. The table is wrong, or the file has changed.
    """

    def __init__(
        self,
        storage: Storage,
        cache: ChunkCache | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.storage = storage
        self._cache = ChunkCache(0) if cache is None else cache
        self._limits = limits
        self._workspace = Workspace()
        self._plain_workspace = Workspace()
        # Position and content of bytes that were read before, and are not read again.
        self._tail = 0, b""
        self._end_lock = ForkSafeLock()
        self._end: int | None = None
        self.replaced_table = False
        self.witness: Witness | None = None
        # Exact reads: the sections in front of the chunks are few and small.
        cursor = StorageCursor(storage)
        self.beginning = read_beginning(cursor, limits)
        self.header = self.beginning.header
        self.metadata = self.beginning.metadata
        self._first = cursor.position
        #: Whether the end of the file is missing, and its last chunks with it.
        self.is_cut = False
        index = index_from_table(self.beginning, self._first, storage.size)
        self.index: ChunkIndex = self._index_without_end() if index is None else index

    def _index_without_end(self) -> ChunkIndex:
        """Return the index from the headers of the chunks.

        If they can't all be read, an offset table that points behind the end of the
        file is used: it may be the end of the file that is missing.
        """
        try:
            return self._read_headers()
        except FormatError:
            index = index_from_table(self.beginning, self._first, MAX_FILE_SIZE)
            if index is None:
                raise
            self.is_cut = True
            return index

    def _read_headers(self) -> ChunkIndex:
        size = REMOTE_READ if self.storage.is_remote else io.DEFAULT_BUFFER_SIZE
        with io.BufferedReader(StorageFile(self.storage), size) as fp:
            cursor = Cursor(fp)
            cursor.move(self._first)
            index = index_from_headers(cursor, self.beginning, self._limits)
            self._end = cursor.position
            return index

    # The end of the chunks

    def check_end(self) -> int:
        """Return where the chunks end in the file.

        The last chunk has no next entry in the offset table that tells its size. If its
        header contradicts the table, the headers of all chunks replace the table.
        Raises `FormatError` if a frame follows the last chunk (rule C7).
        """
        with self._end_lock:
            if self._end is None:
                self._end = self._find_end()
            return self._end

    def _find_end(self) -> int:
        number = self.index.nchunks - 1
        offset = self.index.offset(number)
        start, stop = self.index.span(number)
        digest_size = self.header.checksum_impl.size
        if self.storage.is_remote:
            most = stop - start + BLOSC_OVERHEAD + digest_size + BLOSC_HEADER_LENGTH
            self._tail = offset, self.storage.read_at(offset, most)
        try:
            last = decode_header(self._read(offset, BLOSC_HEADER_LENGTH))
        except FormatError:
            last = None
        if last is None or last.nbytes != stop - start:
            self.replaced_table = True
            self.index = self._read_headers()
            return self._end or 0
        end = offset + last.ctbytes + digest_size
        if end < self.storage.size and starts_with_frame(
            partial(self._read, end), self.header
        ):
            raise frame_behind(self.header, end)
        return end

    # Loading

    def each(
        self,
        numbers: Sequence[int],
        work: Work[Result],
        deliver: Callable[[Result], object] | None = None,
        *,
        room: Room | None = None,
        joined: bool = False,
        nthreads: int | None = None,
    ) -> None:
        """Call `work` for chunks, on several threads.

        Parameters
        ----------
        numbers
            The numbers of the chunks, ascending.
        work
            Called with the number and the plain bytes of a chunk, in any thread and in
            any order. The bytes are valid during the call.
        deliver
            Called with the results of `work`, in the thread of the caller and in order.
        room
            Called with the number of a chunk, in any thread; returns writable memory of
            the plain size of the chunk, into which it is decompressed, or None. Chunks
            that are decompressed there are not put into the cache.
        joined
            Whether `work` may be called for neighbouring chunks together, with the
            number of the first one and without `room`.
        nthreads
            Number of threads; None for the default.

        Raises
        ------
        FormatError
            If a chunk is damaged. `deliver` has been called for all chunks before it.
        """

        if numbers and self.index.span(numbers[-1])[1] == self.index.nbytes:
            # This may replace the table: no extent of it may be used before. An error
            # is raised again when the last chunk is reached.
            with suppress(FormatError):
                self.check_end()
        keep_from = self._first_kept(numbers)

        def work_on_run(run: Run) -> tuple[list[Result], FormatError | None]:
            results: list[Result] = []
            try:
                if joined and self._may_join(run, keep_from):
                    results.append(work(run.chunks[0][0], self._plain_run(run)))
                    return results, None
                for chunk in self._plain_chunks(run, room, keep_from):
                    results.append(work(*chunk))
            except FormatError as error:
                return results, error
            return results, None

        def deliver_run(done: tuple[list[Result], FormatError | None]) -> None:
            results, error = done
            if deliver is not None:
                for result in results:
                    deliver(result)
            if error is not None:
                raise error

        # An empty cache has no chunk.
        cached = self._cache.get if self._cache else None
        is_remote, index = self.storage.is_remote, self.index
        runs = plan_runs(self.extents(numbers), cached, is_remote)
        if is_remote:
            runs = self._requested(runs)
        elif not self.storage.concurrent:
            runs = self._read_now(runs)
        nbytes = 0  # from the first chunk to the last one
        if numbers:
            nbytes = index.span(numbers[-1])[1] - index.span(numbers[0])[0]
        # About the number of runs.
        nruns = (
            len(numbers) if is_remote else min(len(numbers), -(-nbytes // LOCAL_RUN))
        )
        nruns = max(1, nruns)
        with own_settings:
            nthreads = nthreads_to_read(nthreads, nruns, index.chunk_size)
            batch = 1
            if room is not None and not is_remote:
                batch = run_length(nruns, nbytes // nruns, nthreads)
            for_each(runs, work_on_run, deliver_run, nthreads, batch)

    def _read(self, offset: int, size: int) -> bytes:
        """Return bytes of the file; the bytes of the tail come from memory."""
        start, tail = self._tail
        if start <= offset and offset + size <= start + len(tail):
            return tail[offset - start : offset - start + size]
        return self.storage.read_at(offset, size)

    def _read_now(self, runs: Iterator[Run]) -> Iterator[Run]:
        """Yield the runs with their bytes, which the thread of the caller reads."""
        for run in runs:
            if run.plain is None:
                run.content = self._read(run.offset, run.stop - run.offset)
            yield run

    def _requested(self, runs: Iterator[Run]) -> Iterator[Run]:
        """Yield the runs with their bytes, which are requested before they are due."""
        groups = _grouped(runs)
        first = list(islice(groups, 2))
        if len(first) < 2 or not self.storage.concurrent:
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
        start, tail = self._tail
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
            contents = self.storage.read_many(extents)
            for run, content in zip(wanted, contents, strict=True):
                run.content = content
        return group

    def _first_kept(self, numbers: Sequence[int]) -> int:
        """Return the number of the first chunk that is put into the cache.

        If the cache has no room for all chunks, each would be removed before it is used
        again, and decompressing into memory that is in use already is faster. Only the
        last chunk is kept then, where the next read may go on.
        """
        index, limit = self.index, self._cache.limit
        size = index.chunk_size or index.nbytes // max(1, index.nchunks)
        if not numbers or size > limit:
            return index.nchunks
        return numbers[0] if len(numbers) * size <= limit else numbers[-1]

    def extents(self, numbers: Sequence[int]) -> Iterator[Extent]:
        """Yield number, start, end and plain size of chunks; the end is in the file.

        The extent includes the digest. It is at most one byte longer than a chunk and
        its digest can be: a table that states a longer one is wrong, and the rest is
        not read. Raises `FormatError` at the last chunk if the end is damaged.
        """
        index = self.index
        most = BLOSC_OVERHEAD + self.header.checksum_impl.size + 1
        for number, offset, stop, size in index.extents(numbers):
            if stop < 0:
                yield number, offset, self.check_end(), size
            else:
                yield number, offset, min(stop, offset + size + most), size

    def _plain_chunks(
        self, run: Run, room: Room | None, keep_from: int
    ) -> Iterator[tuple[int, memoryview]]:
        """Yield the number and the plain bytes of each chunk of a run.

        Those from `keep_from` on are put into the cache.
        """
        if run.plain is not None:
            number = run.chunks[0][0]
            place = None if room is None else room(number)
            if place is not None:
                place[:] = run.plain
            yield number, memoryview(run.plain) if place is None else place
            return
        if run.content is None:
            view = self._workspace.view(run.stop - run.offset)
            content = view[: self.storage.read_into(view, run.offset)]
        else:
            content = memoryview(run.content)
        for number, offset, stop, size in run.chunks:
            frame = content[offset - run.offset : stop - run.offset]
            place = None if room is None else room(number)
            try:
                header = self._check_frame(number, frame, stop - offset)
                chunk = frame[: header.ctbytes]
                if place is None:
                    check_plain_size(header, size)
                if place is None and number >= keep_from:
                    plain = decompress(chunk, header)
                    self._cache.put(number, plain)
                    place = memoryview(plain)
                else:
                    if place is None:
                        place = self._plain_workspace.view(size)
                    decompress_into(chunk, place, header)
            except FormatError as error:
                error.locate(number, offset)
                raise
            yield number, place

    @staticmethod
    def _may_join(run: Run, keep_from: int) -> bool:
        """Return whether a run has several neighbouring chunks, none to be kept."""
        first, last, count = run.chunks[0][0], run.chunks[-1][0], len(run.chunks)
        size = sum(chunk[3] for chunk in run.chunks)
        together = last - first + 1 == count > 1 and size <= LOCAL_RUN
        return together and last < keep_from

    def _plain_run(self, run: Run) -> memoryview:
        """Return the plain bytes of all chunks of a run, joined."""
        plain = self._plain_workspace.view(sum(chunk[3] for chunk in run.chunks))
        places, position = {}, 0
        for number, _, _, size in run.chunks:
            places[number] = plain[position : position + size]
            position += size
        for _ in self._plain_chunks(run, places.get, self.index.nchunks):
            pass
        return plain

    def _check_frame(self, number: int, frame: memoryview, size: int) -> BloscHeader:
        """Return the header of a chunk.

        Raises `FormatError` unless the chunk and its digest have `size` bytes, and the
        digest fits.
        """
        header, checksum = decode_header(frame), self.header.checksum_impl
        found = header.ctbytes + checksum.size
        if found == size == len(frame):
            check_digest(frame[: header.ctbytes], frame[header.ctbytes :], checksum)
            if self.witness is None and number + 1 < self.index.nchunks:
                self.witness = self.index.offset(number), size, zlib.crc32(frame)
            return header
        if found != size and self.index.from_table and number + 1 < self.index.nchunks:
            end = self.index.offset(number) + found
            raise DamageError(
                "the offset table says that chunk %d starts at byte %d, but the one in "
                "front of it ends at byte %d"
                % (number + 1, self.index.offset(number + 1), end),
                section="offsets",
                chunk=number + 1,
                offset=self.entry_offset(number + 1),
            )
        raise DamageError(
            "the file ends too early: expected a chunk and its digest of '%d' bytes, "
            "found '%d'" % (found, len(frame)),
            section="chunks",
        )

    def entry_offset(self, number: int) -> int:
        """Return the file position of an entry of the offset table."""
        nentries = self.header.nchunks + self.header.max_app_chunks
        return self._first - OFFSET_LENGTH * (nentries - number)
