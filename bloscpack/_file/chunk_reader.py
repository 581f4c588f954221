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
from typing import TypeVar

from .._engine.blosc_settings import own_settings
from .._engine.forks import ForkSafeLock
from .._engine.threads import Ahead, Task, Workspace, ordered, run_length
from .._format.blosc_header import BloscHeader, check_plain_size, decode_header
from .._format.chunks import (
    check_digest,
    decompress_into,
    frame_behind,
    frames_of,
    starts_with_frame,
)
from .._format.dtypes import Array
from .._format.sections import (
    SMALLEST_CHUNK,
    Beginning,
    is_plausible_table,
    read_beginning,
)
from .._storage.base import Storage, StorageFile
from .._storage.cursor import Cursor, StorageCursor
from .._types import Buffer
from ..abstract_io import nthreads_to_read
from ..args import Limits
from ..constants import BLOSC_HEADER_LENGTH, OFFSET_LENGTH
from ..exceptions import DamageError, FormatError
from .array_reader import ChunkCache, Needs, Room, new_memory

Result = TypeVar("Result")

# Called with the number of a chunk and its plain bytes.
Work = Callable[[int, memoryview], Result]

# Offset and size of the digest of a chunk, or of a chunk without one, and the CRC-32 of
# these bytes.
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
        for i in range(0, len(numbers), MANY):
            some = numbers[i : i + MANY]
            if some[-1] - some[0] + 1 == len(some):
                yield from self._adjacent(some[0], some[-1] + 1)
            else:
                for number in some:
                    yield from self._adjacent(number, number + 1)

    def _adjacent(self, first: int, after: int) -> Iterator[Extent]:
        begins = self._offsets[first : after + 1].tolist()
        sizes = [self.chunk_size] * (after - first)
        if not self.chunk_size:
            spans = map(self.span, range(first, after))
            sizes = [stop - start for start, stop in spans]
        elif after == self.nchunks:
            sizes[-1] = self.nbytes - int(self._starts[-1])
        return zip(range(first, after), begins, [*begins[1:], -1], sizes, strict=False)

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
    ``nbytes`` is the plain size of all. ``offset`` and ``stop`` are file positions.
    ``content`` is the bytes between them, None if a worker is to read them. ``plain``
    is the plain bytes of the chunk if they come from the cache.
    """

    __slots__ = ("chunks", "content", "nbytes", "offset", "plain", "stop")

    def __init__(self, chunk: Extent) -> None:
        self.chunks = [chunk]
        _, self.offset, self.stop, self.nbytes = chunk
        self.content: Buffer | None = None
        self.plain: Buffer | None = None


def plan_runs(
    extents: Iterator[Extent],
    cached: Callable[[int, int], Buffer | None] | None,
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
    for chunk in extents:
        number, offset, stop, size = chunk
        plain = cached(number, size) if cached is not None else None
        if run is not None:
            in_all = stop - run.offset if is_remote else run.nbytes + size
            fits = in_all <= (REMOTE_RUN if is_remote else LOCAL_RUN)
            if plain is None and fits and 0 <= offset - run.stop <= gap:
                run.chunks.append(chunk)
                run.stop, run.nbytes = stop, run.nbytes + size
                continue
            yield run
        run = Run(chunk)
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
        Bytes of one of the chunks that were read and that no append changes; None
        before the first one.
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
        """Return the index that the headers of all chunks give, and set the end.

        Raises `FormatError` if one of them is damaged or if the plain bytes exceed the
        limits.
        """
        import numpy

        size = REMOTE_READ if self.storage.is_remote else io.DEFAULT_BUFFER_SIZE
        offsets, starts, nbytes = [], [], 0
        with io.BufferedReader(StorageFile(self.storage), size) as fp:
            cursor = Cursor(fp)
            cursor.move(self._first)
            for frame in frames_of(cursor, self.header, self._limits):
                offsets.append(frame.offset or 0)
                starts.append(frame.start)
                nbytes = frame.start + frame.header.nbytes
            self._end = cursor.position
        places = numpy.array(offsets, "i8"), numpy.array(starts, "i8")
        return ChunkIndex(*places, nbytes, False)

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
        needs: Needs | None = None,
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
        needs
            Called with the number of a chunk without `room`, in any thread; returns the
            span of its plain bytes that `work` reads. The others may have any value.
        nthreads
            Number of threads; None for the default.

        Raises
        ------
        FormatError
            If a chunk is damaged. `deliver` has been called for all chunks before it.
        """
        if not numbers:
            return
        if self.index.span(numbers[-1])[1] == self.index.nbytes:
            # This may replace the table: no extent of it may be used before. An error
            # is raised again when the last chunk is reached.
            with suppress(FormatError):
                self.check_end()
        keep_from = self._first_kept(numbers)

        def work_on_run(run: Run) -> tuple[list[Result], FormatError | None]:
            results: list[Result] = []
            try:
                for chunk in self._plain_chunks(run, room, joined, needs, keep_from):
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
        # From the first chunk to the last one.
        nbytes = index.span(numbers[-1])[1] - index.span(numbers[0])[0]
        nruns = len(numbers)  # about
        if not is_remote:
            nruns = max(1, min(nruns, -(-nbytes // LOCAL_RUN)))
        with own_settings:
            size = index.chunk_size
            nthreads = min(nruns, nthreads_to_read(nthreads, len(numbers), size))
            batch = 1
            if room is not None and not is_remote:
                batch = run_length(nruns, nbytes // nruns, nthreads)
            ordered(runs, work_on_run, deliver_run, nthreads, batch)

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
        ahead = Ahead(1 + GROUPS_AHEAD, waits=True)
        tasks: list[Task] = []
        try:
            for group in chain(first, groups):
                tasks.append(ahead.submit(partial(self._fetched, group)))
                if len(tasks) > GROUPS_AHEAD:
                    yield from ahead.result(tasks.pop(0))
            for task in tasks:
                yield from ahead.result(task)
        finally:
            # After an error, and after Ctrl-C, a request may still be under way: it
            # must not delay the error.
            ahead.drop()

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
        self,
        run: Run,
        room: Room | None,
        joined: bool,
        needs: Needs | None,
        keep_from: int,
    ) -> Iterator[tuple[int, memoryview]]:
        """Yield the number and the plain bytes of each chunk of a run.

        Those from `keep_from` on are put into the cache.
        """
        if run.plain is not None:
            number = run.chunks[0][0]
            target = room(number) if room is not None else None
            if target is not None:
                target[:] = run.plain
            yield number, memoryview(run.plain) if target is None else target
            return
        content, base = self._content(run), run.offset
        joint = None
        if joined and self._may_join(run, keep_from):
            joint, done = self._plain_workspace.view(run.nbytes), 0
        for chunk in run.chunks:
            number, offset, stop, size = chunk
            frame = content[offset - base : stop - base]
            if joint is not None:
                self._decode(chunk, frame, joint[done : done + size], needs, keep_from)
                done += size
                continue
            target = room(number) if room is not None else None
            wanted = needs if target is None else None
            yield number, self._decode(chunk, frame, target, wanted, keep_from)
        if joint is not None:
            yield run.chunks[0][0], joint

    def _decode(
        self,
        extent: Extent,
        frame: memoryview,
        target: memoryview | None,
        needs: Needs | None,
        keep_from: int,
    ) -> memoryview:
        """Return the plain bytes of a chunk, in `target` if that is given.

        Otherwise they are put into the cache if the chunk is one of those from
        `keep_from` on; the memory is valid until this thread calls the method again.
        Only the bytes that are needed are defined.
        """
        number, offset, stop, size = extent
        part = None
        try:
            header = self._check_frame(number, frame, stop - offset)
            keep = target is None and number >= keep_from
            if target is None:
                check_plain_size(header, size)  # before memory is allocated
                target = new_memory(size) if keep else self._plain_workspace.view(size)
            if (
                needs is not None
                and 2 * header.blocksize <= size
                and (not keep or self._cache.is_first_part(number))
            ):
                part = partial(needs, number)
            is_whole = decompress_into(frame[: header.ctbytes], target, header, part)
        except FormatError as error:
            error.locate(number, offset)
            raise
        if keep and is_whole:
            self._cache.put(number, target.toreadonly())
        return target

    def read_part(self, number: int, start: int, view: memoryview) -> bool:
        """Fill `view` with the plain bytes of a chunk from `start` on.

        Return whether this was possible without a thread or a request: `each` does the
        rest. Raises `FormatError` if the chunk is damaged.
        """
        index, storage, stop = self.index, self.storage, start + len(view)
        is_last = number + 1 == index.nchunks
        if storage.is_remote or (is_last and self._end is None):
            return False
        (extent,) = self.extents((number,))
        content = self._workspace.view(extent[2] - extent[1])
        frame = content[: storage.read_into(content, extent[1])]
        keep_from = self._first_kept((number,))
        with own_settings:
            plain = self._decode(
                extent, frame, None, lambda _: (start, stop), keep_from
            )
        view[:] = plain[start:stop]
        return True

    def _content(self, run: Run) -> memoryview:
        """Return the bytes of a run, which are read unless they are there."""
        if run.content is not None:
            return memoryview(run.content)
        view = self._workspace.view(run.stop - run.offset)
        return view[: self.storage.read_into(view, run.offset)]

    @staticmethod
    def _may_join(run: Run, keep_from: int) -> bool:
        """Return whether a run has several neighbouring chunks, none to be kept."""
        first, last, count = run.chunks[0][0], run.chunks[-1][0], len(run.chunks)
        together = last - first + 1 == count > 1 and run.nbytes <= LOCAL_RUN
        return together and last < keep_from

    def _check_frame(self, number: int, frame: memoryview, size: int) -> BloscHeader:
        """Return the header of a chunk.

        Raises `FormatError` unless the chunk and its digest have `size` bytes, and the
        digest fits.
        """
        header, checksum = decode_header(frame), self.header.checksum_impl
        found = header.ctbytes + checksum.size
        if found == size == len(frame):
            digest = frame[header.ctbytes :]
            check_digest(frame[: header.ctbytes], digest, checksum)
            if self.witness is None and number + 1 < self.index.nchunks:
                proof = digest or frame
                offset = self.index.offset(number) + size - len(proof)
                self.witness = offset, len(proof), zlib.crc32(proof)
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
