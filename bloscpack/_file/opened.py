"""A file that stays open while its chunks are read, again and again, by many threads.

Flow: chunk numbers → runs of chunks that are neighbours in the file → one read for each
run → verify each digest → decompress into the memory of the caller → the caller.

`FileState` says where the chunks of one state of a file are. The offset table gives the
positions in one read; its entries are only compared with each other, and each chunk
that is loaded is compared with its entry and the next one. Without a table that can be
true, the headers of all chunks are read, once.

From a local file every worker reads its own runs. From a storage where each read is a
round trip (`Storage.is_remote`), groups of runs are requested at once; one more thread
requests the next group while the workers decompress. Only the thread of the caller
reads a storage that is not ``concurrent``.

A file that was opened by its name may grow while it is open: an append overwrites the
last chunk, the header and free entries of the offset table. The opened file keeps the
plain bytes that it had: they stay the beginning of the plain bytes. After each read,
and after an error, the status of the file shows whether it has changed. Then its
sections are read again, through the undo record if there is one. They must continue the
ones before, and a chunk that was read before must still be there. Digests prove that
the chunks were read whole; without digests the read starts again.

A file that is replaced under its name changes nothing here: the old file stays open,
unless it was closed before, because the process has too many open files: then reading
more of it raises `StorageError`.
"""

from __future__ import annotations

import errno
import math
import os
import zlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, BinaryIO

import numpy

from .._arrays.loader import (
    CACHE_NBYTES,
    REMOTE_RUN_NBYTES,
    ChunkLoader,
    Extent,
    Fetched,
    Loading,
    Run,
    plan_runs,
)
from .._arrays.reader import PartReader
from .._arrays.source import ChunkSpans, Needs, Room
from .._commit.snapshot import BEGINNING_ATTEMPTS, always_changed
from .._commit.undo import settled
from .._engine.blosc_settings import own_settings
from .._engine.contexts import on_error
from .._engine.forks import ForkSafeLock, cached_property
from .._engine.threads import Ahead, Task, ordered
from .._format.array_metadata import Description
from .._format.block_table import BlockRow, BlockTable
from .._format.blosc_header import decode_header
from .._format.chunks import cut_off, frame_behind, frames_of, starts_with_frame
from .._format.dtypes import Array
from .._format.grid import Grid
from .._format.sections import SMALLEST_CHUNK, is_plausible_table, read_beginning
from .._format.shard import find_table
from .._storage.base import (
    Closing,
    MemoryStorage,
    Storage,
    naming_errors,
    refuse_text,
    status_of,
)
from .._storage.cursor import StorageCursor
from .._storage.local import NamedFile, open_named, whole_file
from .._storage.paths import is_url, local_path
from .._types import Buffer, Path, Seekable, StorageOptions
from ..args import AnyLimits, Limits, effective_limits
from ..constants import (
    BLOSC_HEADER_LENGTH,
    BLOSCPACK_HEADER_LENGTH,
    MAGIC,
    MAX_THREADS,
    OFFSET_LENGTH,
)
from ..exceptions import (
    DamageError,
    FormatError,
    StorageError,
    UsageTypeError,
    UsageValueError,
)
from ..file_io import announced_bytes
from ..headers import check_range, has_undo_record
from ..serializers import user_metadata

# Maximum number of bytes that are looked up as the name of a file; Linux takes no more.
LONGEST_NAME = 4096
# Number of bytes of a local file that are read at once at its beginning, where most
# files have the sections in front of the chunks, and for the header of each chunk.
FRONT_NBYTES = 4096
# Size of the reads of a remote file, when its chunk headers are read.
REMOTE_READ = 2**20
# Any size that an entry of an offset table can state.
MAX_FILE_SIZE = 2**63 - 1
# Maximum number of bytes by which Blosc makes a chunk longer.
BLOSC_OVERHEAD = BLOSC_HEADER_LENGTH
# Maximum number of requests in a group.
REQUESTS_AT_A_TIME = 32
# Number of groups that are requested while the chunks of another one are decompressed.
GROUPS_AHEAD = 1


class FileState(ChunkSpans):
    """The sections of a file in one state, and where each chunk is.

    Parameters
    ----------
    storage
        The file.
    limits
        Maximum sizes of the file; see `Limits`.
    lock
        Guards the search for the end.
    head
        The first bytes of the file, if they were read before.

    Attributes
    ----------
    beginning, header
        The sections in front of the chunks; the header in them.
    offsets
        Where each chunk starts in the file.
    is_cut
        Whether the end of the file is missing, and its last chunks with it.
    replaced_table
        Whether the last chunk contradicted the offset table, so that the headers of all
        chunks replaced it. The table is wrong, or the file has changed.
    status
        What showed the file system when the state was read; None for a file that does
        not change.
    witness
        Offset, size and CRC-32 of a digest, or of a chunk without one, that was read
        and that no append changes; None before the first one.
    """

    status: tuple[int, int, bytes] | None = None
    witness: tuple[int, int, int] | None = None

    def __init__(
        self,
        storage: Storage,
        limits: Limits | None,
        lock: ForkSafeLock,
        head: bytes = b"",
    ) -> None:
        self.storage = storage
        self.read_many = storage.read_many
        self._limits = limits
        self._lock = lock
        self._end: int | None = None
        # Position and content of bytes at the end that are not read again.
        self._tail = 0, b""
        self.is_cut = self.replaced_table = False
        # Exact reads: the sections in front of the chunks are few and small.
        cursor = StorageCursor(storage, head)
        self.beginning = read_beginning(cursor, limits)
        self.header = self.beginning.header
        # The maximum of it: an extent may be too long by one byte.
        self._overhead = BLOSC_OVERHEAD + self.header.checksum_impl.size + 1
        self._first = cursor.position
        if self._take_table(storage.size):
            return
        try:
            self._read_headers()
        except FormatError:
            # The table may be right, and the end of the file missing.
            if not self._take_table(MAX_FILE_SIZE):
                raise
            self.is_cut = True

    def _take_table(self, file_size: int) -> bool:
        """Use the offset table, unless no file of that size can have it."""
        header, table = self.header, self.beginning.table
        if not table or header.nbytes is None:
            return False
        smallest = SMALLEST_CHUNK + header.checksum_impl.size
        if not is_plausible_table(table, self._first, file_size, smallest):
            return False
        self._has_table = True
        self.offsets: Array = numpy.frombuffer(table, "<i8")
        self.nchunks, self.nbytes = len(self.offsets), header.nbytes
        # A header with a single chunk need not state the chunk size.
        self.chunk_size = max(0, header.chunk_size)
        self.starts = [] if self.chunk_size else [0] * self.nchunks
        return True

    def _read_headers(self) -> None:
        """Take the positions from the headers of all chunks, and set the end.

        Raises `FormatError` if one of them is damaged or if the plain bytes exceed the
        limits.
        """
        ahead = REMOTE_READ if self.storage.is_remote else FRONT_NBYTES
        offsets, starts, nbytes = [], [], 0
        cursor = StorageCursor(self.storage, ahead=ahead)
        cursor.move(self._first)
        for frame in frames_of(cursor, self.header, self._limits):
            offsets.append(frame.offset or 0)
            starts.append(frame.start)
            nbytes = frame.start + frame.header.nbytes
        self._end = cursor.position
        self.offsets = numpy.array(offsets, "i8")
        self.starts: Sequence[int] | Array = numpy.array(starts, "i8")
        self.nchunks, self.nbytes = len(offsets), nbytes
        sizes = numpy.diff(self.starts)
        is_regular = len(sizes) > 0 and (sizes == sizes[0]).all()
        self.chunk_size = int(sizes[0]) if is_regular else 0
        self._has_table = False

    def entry_offset(self, number: int) -> int:
        """Return the file position of an entry of the offset table."""
        nentries = self.header.nchunks + self.header.max_app_chunks
        return self._first - OFFSET_LENGTH * (nentries - number)

    def check_end(self) -> int:
        """Return where the chunks end in the file.

        The last chunk has no next entry in the offset table that tells its size. If its
        header contradicts the table, the headers of all chunks replace the table.
        Raises `FormatError` if a frame follows the last chunk (rule C7).
        """
        with self._lock.current:
            if self._end is not None:
                return self._end
            offset = int(self.offsets[-1])
            start, stop = self.span(self.nchunks - 1)
            digest_size = self.header.checksum_impl.size
            cursor = StorageCursor(self.storage)
            cursor.move(offset)
            if self.storage.is_remote:
                most = stop - start + BLOSC_OVERHEAD + digest_size + BLOSC_HEADER_LENGTH
                self._tail = offset, bytes(cursor.peek(most))
            try:
                last = decode_header(cursor.peek(BLOSC_HEADER_LENGTH))
            except FormatError:
                last = None
            if last is None or last.nbytes != stop - start:
                self.replaced_table = True
                self._read_headers()
                return self._end or 0
            end = offset + last.ctbytes + digest_size
            cursor.move(end)
            if end < self.storage.size and starts_with_frame(cursor.peek, self.header):
                raise frame_behind(self.header, end)
            self._end = end
            return end

    def extent(self, number: int) -> Extent:
        """Return number, start, end and plain size of a chunk; the end is in the file.

        The extent includes the digest. It is at most one byte longer than a chunk and
        its digest can be: a table that states a longer one is wrong, and the rest is
        not read. Raises `FormatError` for the last chunk if the end is damaged.
        """
        start, stop = self.span(number)
        offset, size = self.offsets.item(number), stop - start
        if number + 1 == self.nchunks:
            return number, offset, self.check_end(), size
        most = offset + size + self._overhead
        return number, offset, min(self.offsets.item(number + 1), most), size

    # For `ChunkLoader`, a `BlockFile`

    @cached_property
    def blocks(self) -> BlockTable:
        """The table of blocks; the first use reads it."""
        metadata, nbytes = self.beginning.metadata, self.chunk_size or self.nbytes
        table, self._slots = find_table(self.storage, self.header, metadata)
        return BlockTable(table, nbytes, self.storage)

    def row(self, number: int) -> BlockRow | None:
        """Return the row of a chunk; None if it has none."""
        chunk = _, start, stop, _ = self.extent(number)
        size = stop - start - self.header.checksum_impl.size
        row = self.blocks.row(self._slots[number], start, size)
        if row is not None and self.witness is None:
            self.set_witness(chunk, row.raw)  # which ends with the digest
        return row

    def with_content(self, runs: Iterator[Run]) -> Iterator[Run]:
        """Yield runs with their bytes, which are requested in groups.

        The next group is requested before it is due, by one more thread, unless only
        the thread of the caller may read.
        """
        storage = self.storage
        most = REQUESTS_AT_A_TIME if storage.is_remote else 1
        nahead = GROUPS_AHEAD if storage.is_remote and storage.concurrent else 0

        def fetch(group: list[Run]) -> list[Run]:
            start, tail = self._tail
            wanted = []
            for run in group:
                if start <= run.offset and run.stop <= start + len(tail):
                    run.content = tail[run.offset - start : run.stop - start]
                elif run.plain is None:
                    wanted.append(run)
            if wanted:
                contents = storage.read_many([(run.offset, run.stop) for run in wanted])
                for run, content in zip(wanted, contents, strict=True):
                    run.content = content
            return group

        ahead = Ahead(1 + nahead, waits=True)
        tasks: list[Task] = []
        group, nbytes = [], 0
        try:
            for run in runs:
                group.append(run)
                nbytes += run.stop - run.offset
                if len(group) == most or nbytes >= REMOTE_RUN_NBYTES:
                    tasks.append(ahead.submit(partial(fetch, group)))
                    group, nbytes = [], 0
                if len(tasks) > nahead:
                    yield from ahead.result(tasks.pop(0))
            if not tasks:  # a single group needs no other thread
                yield from fetch(group)
                return
            tasks.append(ahead.submit(partial(fetch, group)))
            for task in tasks:
                yield from ahead.result(task)
        finally:
            # After an error, and after Ctrl-C, a request may still be under way: it
            # must not delay the error.
            ahead.drop()

    def set_witness(self, chunk: Extent, frame: Buffer) -> None:
        """Note the digest at the end of a chunk that was read, or all of it without."""
        number, _, stop, _ = chunk
        if number + 1 < self.nchunks:
            proof = frame[-self.header.checksum_impl.size :]
            self.witness = stop - len(proof), len(proof), zlib.crc32(proof)

    def explain(
        self, run: Run, frames: Sequence[memoryview], error: FormatError, number: int
    ) -> FormatError:
        """Return the error for a damaged chunk of a run: its extent may be wrong."""
        i = next(i for i, chunk in enumerate(run.chunks) if chunk[0] == number)
        offset, stop = run.chunks[i][1:3]
        try:
            size = decode_header(frames[i]).ctbytes + self.header.checksum_impl.size
            if not size == stop - offset == len(frames[i]):
                error, behind = cut_off(size, len(frames[i])), number + 1
                has_next = self._has_table and behind < self.nchunks
                entry = int(self.offsets[behind]) if has_next else offset + size
                if entry != offset + size:
                    error = DamageError(
                        "the offset table says that chunk %d starts at byte %d, but "
                        "the one in front of it ends at byte %d"
                        % (behind, entry, offset + size),
                        section="offsets",
                        chunk=behind,
                        offset=self.entry_offset(behind),
                    )
        except FormatError as problem:
            error = problem
        error.locate(number, offset)
        return error


class OpenedFile(Closing, ChunkLoader):
    """A file whose chunks are read. Many threads may use it.

    Parameters
    ----------
    file
        A path, a URL, a binary file object that can seek, a buffer with the bytes of
        the file, or a `Storage`.
    cache_nbytes
        Number of plain bytes that are kept of the chunks used last.
    nthreads, limits
        As in `unpack_file_from_file`.
    whole
        Whether a file that a server can't send in parts may be read as a whole.
    storage_options
        Options of the file system of a URL.
    name
        What errors call a `Storage`, which is closed with the opened file then.

    Attributes
    ----------
    header, metadata, user_metadata
        Header and metadata as they were when the file was opened.
    nbytes, cbytes
        Number of plain bytes, and size of the file, when it was opened.
    nchunks
        Number of chunks when the file was opened.
    name
        Path or URL of the file; None for file objects and buffers.
    identity
        A value that differs for two files, or two states of a file, with different
        content; None if unknown.
    state
        The `FileState` that was read last.
    """

    def __init__(
        self,
        file: Path | Seekable | Buffer | Storage,
        *,
        cache_nbytes: int = CACHE_NBYTES,
        nthreads: int | None = None,
        limits: AnyLimits | None = None,
        whole: bool = False,
        storage_options: StorageOptions | None = None,
        name: str | None = None,
    ) -> None:
        check_range("cache_nbytes", cache_nbytes, 0, MAX_FILE_SIZE)
        if nthreads is not None:
            check_range("nthreads", nthreads, 1, MAX_THREADS)
        self._nthreads = nthreads
        self._limits = effective_limits(limits)
        super().__init__(cache_nbytes)
        self._lock = ForkSafeLock()
        # A chunk that was read before the file changed.
        self._witness: tuple[int, int, int] | None = None
        self._source, self.name = open_source(
            file,
            whole=None if whole else False,
            limits=limits,
            storage_options=storage_options,
        )
        self.name = self.name or name
        self._naming_errors = naming_errors(self.name)
        with on_error(self.close), self._naming_errors:
            self._first = self.state = state = self._read_state()
        self.header = state.header
        self.metadata = state.beginning.metadata
        self.user_metadata = user_metadata(self.metadata)
        self.nchunks, self.nbytes = state.nchunks, state.nbytes
        self.chunk_size, self.starts = state.chunk_size, state.starts
        self._offsets = state.offsets  # stay, also if headers replace the table
        self.cbytes = state.storage.size
        self.is_far = state.storage.is_remote
        self.identity: Hashable = state.storage.identity
        self._version: Hashable = state.storage.version
        if not self.nbytes:  # no later read needs the chunks
            with on_error(self.close):
                self.load(range(self.nchunks), lambda number, plain: None)

    def close(self) -> None:
        """Close the file, unless the caller opened it."""
        if self.name is not None:
            self._source.close()

    def version(self) -> tuple[object, ...]:
        """Return a value that differs for other content, the same on each machine."""
        from hashlib import sha256

        beginning = self._first.beginning
        digest = sha256(beginning.header.encode())
        digest.update(repr(beginning.metadata).encode("utf-8", "surrogatepass"))
        digest.update(beginning.table or b"")
        return self._version, self.cbytes, digest.hexdigest()

    def extents(self) -> list[tuple[int, int]]:
        """Return where each chunk starts in the file, and where its digest ends.

        Raises `FormatError` if the last chunk is damaged.
        """
        with self._naming_errors:
            end = self._first.check_end()
        starts = self._first.offsets[: self.nchunks].tolist()
        return list(zip(starts, [*starts[1:], end], strict=True)) if starts else []

    # States

    def _read_state(self) -> FileState:
        """Read the present state of the file, through its undo record if it has one."""
        source, how = self._source, (self._limits, self._lock)
        if isinstance(source, Storage):
            return FileState(settled(source), *how)
        for _ in range(BEGINNING_ATTEMPTS):
            status, storage = status_of(source, FRONT_NBYTES), whole_file(source)
            if status is None:
                return FileState(settled(storage), *how)
            size, time, head = status
            status = size, time, head[:BLOSCPACK_HEADER_LENGTH]
            try:
                if has_undo_record(head) or not head:
                    storage, head = settled(storage), b""
                state = FileState(storage, *how, head)
            except (FormatError, StorageError):
                if status == status_of(source):
                    raise
            else:
                state.status = status
                if status == status_of(source):
                    return state
        raise always_changed(self.name)

    def _has_changed(self, state: FileState) -> bool:
        """Return whether the file has changed since `state`; if so, read it again.

        Raises `StorageError` if it was changed by more than an append: that moves no
        chunk, and only adds to the plain bytes.
        """
        if state.status is None:
            return False
        assert not isinstance(self._source, Storage)
        if state.status == status_of(self._source):
            return False
        with self._lock.current:
            if self.state is not state:  # another thread has read it
                return True
            new, last = self._read_state(), self.nchunks - 1
            continues = (
                new.nchunks > last
                and new.nbytes >= self.nbytes
                and bool((new.offsets[: last + 1] == self._offsets).all())
                # All chunks but the last had the same size, and it does not change.
                and (last < 0 or new.span(last)[0] == self.span(last)[0])
            )
            if continues and self._witness is not None:
                offset, size, crc = self._witness
                continues = zlib.crc32(new.storage.read_at(offset, size)) == crc
            if not continues:
                raise StorageError(
                    errno.EIO,
                    "the file was changed by more than an append since it was opened",
                    self.name,
                )
            self.state = new
        return True

    # Reading

    def load(
        self,
        numbers: Sequence[int],
        use: Callable[[int, memoryview], Any],
        *,
        room: Room | None = None,
        needs: Needs | None = None,
        joined: bool = False,
        deliver: Callable[[Any], object] | None = None,
        nthreads: int | None = None,
    ) -> None:
        """Call ``use(number, plain)`` for chunks, as `ChunkSource.load` says.

        Parameters
        ----------
        deliver
            Called with what ``use`` returns, in the thread of the caller and in order;
            also for all chunks in front of a damaged one. It is called once for each
            chunk: if the file changes, and has no digests, this raises `StorageError`.
        nthreads
            Number of threads; None for the number that the opened file has.
        """
        done = 0

        def deliver_run(outcome: tuple[list[Any], FormatError | None]) -> None:
            nonlocal done
            results, error = outcome
            if deliver is not None:
                for result in results:
                    done += 1
                    deliver(result)
            if error is not None:
                raise error

        with self._naming_errors:
            for _ in range(BEGINNING_ATTEMPTS):
                state, left = self.state, numbers[done:] if done else numbers
                digested = state.header.checksum_impl.size
                try:
                    if left:
                        loading = self._loading(left, use, room, needs)
                        collects = deliver is not None
                        self._load(
                            state, left, loading, deliver_run, collects, nthreads
                        )
                except (FormatError, StorageError):
                    if not self._has_changed(state):
                        raise
                else:
                    if not self._has_changed(state):
                        self._witness = self._witness or state.witness
                        return
                    # Digests prove that a chunk was read whole, and the witness that
                    # it is a chunk of the file that was opened.
                    if digested and not state.replaced_table:
                        return
                if deliver is not None and not digested:
                    break
        raise always_changed(self.name)

    def _load(
        self,
        state: FileState,
        numbers: Sequence[int],
        loading: Loading,
        deliver: Callable[[tuple[list[Any], FormatError | None]], None],
        collects: bool,
        nthreads: int | None,
    ) -> None:
        """Do the work of `load` in one state of the file.

        `deliver` gets the results for the chunks of a run, none unless it `collects`
        them, and the error that ended it.
        """
        storage, first, last = state.storage, numbers[0], numbers[-1]
        checksum = state.header.checksum_impl
        if last + 1 == state.nchunks:
            # This may replace the table: no extent of it may be used before. An error
            # is raised again when the last chunk is reached.
            with suppress(FormatError):
                state.check_end()
        by_caller = storage.is_remote or not storage.concurrent
        # At a URL the table would take another request.
        is_part = loading.needs is not None and not (collects or by_caller)
        # The last chunk may have grown.
        by_blocks = is_part and state.span(last) == self.span(last)

        def use_run(run: Run) -> tuple[list[Any], FormatError | None]:
            """Return the results for the chunks, and the error that ended the run."""
            nonlocal by_blocks
            content, cached, how = run.content, {}, loading
            results: list[Any] = []
            if collects:
                how = loading._replace(use=lambda *of: results.append(loading.use(*of)))
            if by_blocks and run.plain is content is None and state.blocks.raw:
                in_run = [chunk[0] for chunk in run.chunks]
                left = self._load_blocks(loading, state, None, in_run)
                by_blocks = not left  # other chunks need no fewer blocks, usually
                run.chunks = [chunk for chunk in run.chunks if chunk[0] in left]
                if not left:
                    return results, None
            if run.plain is not None:
                cached[run.chunks[0][0]] = run.plain
            elif content is None:
                content = self._cache.stored.view(run.stop - run.offset)
                content = content[: storage.read_into(content, run.offset)]
            frames, numbers, sizes = run.frames(memoryview(content or b""))
            explain = partial(state.explain, run, frames)
            fetched = Fetched(numbers, sizes, frames, cached, None, checksum, explain)
            try:
                self._place(how, fetched)
            except FormatError as error:
                return results, error
            if state.witness is None and not cached:
                state.set_witness(run.chunks[0], frames[0])
            return results, None

        if len(numbers) == 1 and not by_caller and nthreads is None:
            # The plan and the threads would take longer than a block.
            chunk = state.extent(first)
            with own_settings:
                deliver(use_run(Run(chunk, self._kept(first, chunk[3]))))
            return
        with own_settings:
            count, has_room = len(numbers), loading.room is not None
            nthreads = self._nthreads if nthreads is None else nthreads
            most = 1 if storage.is_remote else count
            limit, nthreads, batch = self._plan(count, has_room, nthreads, most)
            # An empty cache has no chunk.
            kept, nbytes = self._kept if self._cache else None, limit * self._usual_size
            extents = map(state.extent, numbers)
            runs = plan_runs(extents, kept, storage.is_remote, nbytes)
            if by_caller:
                runs = state.with_content(runs)
            ordered(runs, use_run, deliver, nthreads, 1 if by_caller else batch)

    def _kept(self, number: int, size: int) -> Buffer | None:
        return self._cache.get((number, None), size)

    def cached(self, number: int, size: int) -> Buffer | None:
        """Return the plain bytes of a chunk, of this `size`, if they are in memory.

        They are valid until this thread reads another chunk.
        """
        return self._cache.get((number, None), size, briefly=True)

    def read(self, start: int, stop: int) -> bytes:
        """Return the plain bytes of the span [start, stop), fewer at the end."""
        size = max(0, min(stop, self.nbytes) - start)
        result = announced_bytes(size, self.nbytes)
        self.read_into(result.view, start)
        return result.finish()


def reader_of(opened: OpenedFile, description: Description | None = None) -> PartReader:
    """Return a reader of the array in a file.

    Raises `FormatError` unless the chunks agree with `description`, by default the
    description in the file.
    """
    if description is None:
        description = Description(opened.metadata)
    description.check_nbytes(opened.nbytes)
    shape, order = description.shape, description.order
    size = opened.chunk_size if opened.nchunks > 1 else opened.nbytes
    opened.cut = description.grid
    if opened.cut is not None:
        description.chunk_at(0, size)  # raises
    elif shape and order == "C":
        row = math.prod(shape[1:]) * description.dtype.itemsize
        if opened.nchunks == 1:
            size = max(row, size)
        if row and size and not size % row:
            start, stop = opened.span(opened.nchunks - 1)
            if stop - start <= size:  # chunks of whole rows
                opened.cut = Grid.of_rows(shape, size // row)
    return PartReader(opened, description.dtype, shape, order)


def open_source(
    file: Path | Seekable | Buffer | Storage, **remote: Any
) -> tuple[Storage | NamedFile | BinaryIO, str | None]:
    """Open what has a name; return it, and the name: None for anything else.

    A local file may change, so it is no storage; all else is. `remote` are keywords of
    `RemoteStorage`.
    """
    if is_url(file) and local_path(file) == file:
        from .._storage.remote import RemoteStorage

        return RemoteStorage(file, **remote), file
    if isinstance(file, (str, os.PathLike)):
        name = os.fsdecode(local_path(file))
        return open_named(name), name
    return storage_from(file, "a path, a URL, a file object or bytes"), None


def storage_from(
    file: Seekable | Buffer | Storage, wanted: str = "a file object or bytes"
) -> Storage:
    """Return a file object, a buffer or a storage as a storage.

    The message for anything else says what is `wanted`.
    """
    if isinstance(file, Storage):
        return file
    refuse_text(file)
    if hasattr(file, "read"):
        return whole_file(file)  # type: ignore[arg-type]
    could_be_name = isinstance(file, bytes) and not (
        len(file) > LONGEST_NAME or file.startswith(MAGIC) or b"\0" in file
    )
    if could_be_name and os.path.lexists(file):  # type: ignore[arg-type]
        raise UsageValueError(
            "expected the bytes of a Bloscpack file, found the name of a file, %r: "
            "pass the name as text, os.fsdecode(name)" % (file,)
        )
    try:
        return MemoryStorage(file)
    except TypeError as error:
        raise UsageTypeError("expected %s, found %r" % (wanted, file)) from error
