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

A file that is replaced under its name changes nothing here: the old file stays open.
"""

from __future__ import annotations

import errno
import io
import math
import os
import zlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from itertools import chain, islice
from typing import Any, BinaryIO

import numpy

from .._arrays.reader import Reader
from .._arrays.source import (
    CACHE_NBYTES,
    ChunkCache,
    ChunkSource,
    ChunkSpans,
    Needs,
    Room,
)
from .._commit.snapshot import BEGINNING_ATTEMPTS
from .._commit.undo import settled
from .._engine.blosc_settings import own_settings
from .._engine.forks import ForkSafeLock
from .._engine.threads import Ahead, Task, Workspace, ordered, run_length
from .._format.array_metadata import Description
from .._format.blosc_header import check_plain_size, decode_header
from .._format.chunks import (
    check_digest,
    cut_off,
    decompress_into,
    frame_behind,
    frames_of,
    starts_with_frame,
)
from .._format.dtypes import Array
from .._format.grid import Grid
from .._format.sections import SMALLEST_CHUNK, is_plausible_table, read_beginning
from .._storage.base import (
    Closing,
    MemoryStorage,
    Storage,
    StorageFile,
    naming_errors,
    refuse_text,
)
from .._storage.cursor import Cursor, StorageCursor
from .._storage.disk import disk
from .._storage.local import whole_file
from .._storage.paths import is_url, local_path, shown_name
from .._types import Buffer, Path, Seekable, StorageOptions
from ..abstract_io import nthreads_to_read
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

# Number, offset, next offset and plain size of a chunk.
Extent = tuple[int, int, int, int]

# Maximum number of bytes that are looked up as the name of a file; Linux takes no more.
LONGEST_NAME = 4096
# Number of bytes at the beginning of a local file that are read at once: the sections
# in front of the chunks of most files.
FRONT_NBYTES = 4096
# Size of the reads of a remote file, when its chunk headers are read.
REMOTE_READ = 2**20
# Any size that an entry of an offset table can state.
MAX_FILE_SIZE = 2**63 - 1
# Maximum number of bytes by which Blosc makes a chunk longer.
BLOSC_OVERHEAD = BLOSC_HEADER_LENGTH
# Number of chunks whose extents are in memory at a time.
MANY = 4096
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
    _from_table = False

    def __init__(
        self,
        storage: Storage,
        limits: Limits | None,
        lock: ForkSafeLock,
        head: bytes = b"",
    ) -> None:
        self.storage = storage
        self._limits = limits
        self._lock = lock
        self._end: int | None = None
        # Position and content of bytes that were read before, and are not read again.
        self._tail = 0, b""
        self.is_cut = self.replaced_table = False
        # Exact reads: the sections in front of the chunks are few and small.
        cursor = StorageCursor(storage, head)
        self.beginning = read_beginning(cursor, limits)
        self.header = self.beginning.header
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
        self.offsets: Array = numpy.frombuffer(table, "<i8")
        self.nchunks, self.nbytes = len(self.offsets), header.nbytes
        # A header with a single chunk need not state the chunk size.
        self.chunk_size = max(0, header.chunk_size)
        self.starts = [] if self.chunk_size else [0] * self.nchunks
        self._from_table = True
        return True

    def _read_headers(self) -> None:
        """Take the positions from the headers of all chunks, and set the end.

        Raises `FormatError` if one of them is damaged or if the plain bytes exceed the
        limits.
        """
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
        self.offsets = numpy.array(offsets, "i8")
        self.starts: Sequence[int] | Array = numpy.array(starts, "i8")
        self.nchunks, self.nbytes = len(offsets), nbytes
        self._from_table, self.chunk_size = False, 0

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
        with self._lock:
            if self._end is not None:
                return self._end
            offset = int(self.offsets[-1])
            start, stop = self.span(self.nchunks - 1)
            digest_size = self.header.checksum_impl.size
            if self.storage.is_remote:
                most = stop - start + BLOSC_OVERHEAD + digest_size + BLOSC_HEADER_LENGTH
                self._tail = offset, self.storage.read_at(offset, most)
            try:
                last = decode_header(self.read(offset, BLOSC_HEADER_LENGTH))
            except FormatError:
                last = None
            if last is None or last.nbytes != stop - start:
                self.replaced_table = True
                self._read_headers()
                return self._end or 0
            end = offset + last.ctbytes + digest_size
            if end < self.storage.size and starts_with_frame(
                partial(self.read, end), self.header
            ):
                raise frame_behind(self.header, end)
            self._end = end
            return end

    def extents(self, numbers: Sequence[int]) -> Iterator[Extent]:
        """Yield number, start, end and plain size of chunks; the end is in the file.

        The extent includes the digest. It is at most one byte longer than a chunk and
        its digest can be: a table that states a longer one is wrong, and the rest is
        not read. Raises `FormatError` at the last chunk if the end is damaged.
        """
        most = BLOSC_OVERHEAD + self.header.checksum_impl.size + 1
        last = self.nchunks - 1
        for i in range(0, len(numbers), MANY):
            some = numbers[i : i + MANY]
            spans = [(n, n + 1) for n in some]
            if some[-1] - some[0] + 1 == len(some):
                spans = [(some[0], some[-1] + 1)]
            for first, after in spans:
                begins = self.offsets[first : after + 1].tolist()
                sizes = [self.chunk_size] * (after - first)
                if not self.chunk_size or after > last:
                    found = map(self.span, range(first, after))
                    sizes = [stop - start for start, stop in found]
                for number in range(first, after):
                    offset, size = begins[number - first], sizes[number - first]
                    if number == last:
                        yield number, offset, self.check_end(), size
                    else:
                        end = min(begins[number - first + 1], offset + size + most)
                        yield number, offset, end, size

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the file; the bytes of the tail come from memory."""
        start, tail = self._tail
        if start <= offset and offset + size <= start + len(tail):
            return tail[offset - start : offset - start + size]
        return self.storage.read_at(offset, size)

    def with_content(self, runs: Iterator[Run]) -> Iterator[Run]:
        """Yield runs with their bytes, which are requested before they are due."""
        if not self.storage.is_remote:
            for run in runs:
                if run.plain is None:
                    run.content = self.read(run.offset, run.stop - run.offset)
                yield run
            return

        def groups() -> Iterator[list[Run]]:
            """Yield the runs in groups that are requested together."""
            group, nbytes = [], 0
            for run in runs:
                group.append(run)
                nbytes += run.stop - run.offset
                if len(group) == REQUESTS_AT_A_TIME or nbytes >= BYTES_AT_A_TIME:
                    yield group
                    group, nbytes = [], 0
            if group:
                yield group

        def fetch(group: list[Run]) -> list[Run]:
            wanted = []
            start, tail = self._tail
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

        remaining = groups()
        first = list(islice(remaining, 2))
        if len(first) < 2 or not self.storage.concurrent:
            for group in chain(first, remaining):
                yield from fetch(group)
            return
        ahead = Ahead(1 + GROUPS_AHEAD, waits=True)
        tasks: list[Task] = []
        try:
            for group in chain(first, remaining):
                tasks.append(ahead.submit(partial(fetch, group)))
                if len(tasks) > GROUPS_AHEAD:
                    yield from ahead.result(tasks.pop(0))
            for task in tasks:
                yield from ahead.result(task)
        finally:
            # After an error, and after Ctrl-C, a request may still be under way: it
            # must not delay the error.
            ahead.drop()

    def wrong_size(self, number: int, expected: int, found: int) -> DamageError:
        """Return the error for a chunk and its digest of another size than `expected`.

        `found` is the number of bytes that were read for them.
        """
        behind = number + 1
        if self._from_table and behind < self.nchunks:
            entry, end = int(self.offsets[behind]), int(self.offsets[number]) + expected
            if entry != end:
                return DamageError(
                    "the offset table says that chunk %d starts at byte %d, but the "
                    "one in front of it ends at byte %d" % (behind, entry, end),
                    section="offsets",
                    chunk=behind,
                    offset=self.entry_offset(behind),
                )
        return cut_off(expected, found)


class OpenedFile(Closing, ChunkSource):
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
        self._cache = ChunkCache(cache_nbytes)
        self._workspace, self._plain_workspace = Workspace(), Workspace()
        self._lock = ForkSafeLock()
        # A chunk that was read before the file changed.
        self._witness: tuple[int, int, int] | None = None
        remote = {"whole": None if whole else False, "limits": limits}
        options = {**remote, "storage_options": storage_options}
        self._source, self.name = open_source(file, **options)
        self.name = self.name or name
        self._naming_errors: AbstractContextManager[None] = (
            nullcontext() if self.name is None else naming_errors(self.name)
        )
        try:
            with self._naming_errors:
                self._first = self.state = state = self._read_state()
        except BaseException:
            self.close()
            raise
        self.header = state.header
        self.metadata = state.beginning.metadata
        self.user_metadata = user_metadata(self.metadata)
        self.nchunks, self.nbytes = state.nchunks, state.nbytes
        self.chunk_size, self.starts = state.chunk_size, state.starts
        self._offsets = state.offsets  # stay, also if headers replace the table
        self.cbytes = state.storage.size
        self.identity: Hashable = state.storage.identity
        self._version: Hashable = state.storage.version

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

    def _status(
        self, storage: Storage, nbytes: int = BLOSCPACK_HEADER_LENGTH
    ) -> tuple[int, int, bytes]:
        """Return values that change when the local file changes.

        They are its size, the time of its last change, and `nbytes` at its beginning.
        The clock of a file system may be too coarse to tell two steps of a change
        apart. The header does: its bit is set between them.
        """
        assert not isinstance(self._source, Storage)
        status = os.fstat(self._source.fileno())
        # Past the buffer of the file object, if the system can do that.
        head = storage.read_at(0, nbytes) if storage.concurrent else b""
        return status.st_size, status.st_mtime_ns, head

    def _read_state(self) -> FileState:
        """Read the present state of the file, through its undo record if it has one."""
        source, how = self._source, (self._limits, self._lock)
        if isinstance(source, Storage):
            return FileState(settled(source), *how)
        for _ in range(BEGINNING_ATTEMPTS):
            self._whole = whole = whole_file(source)
            size, time, head = self._status(whole, FRONT_NBYTES)
            if whole.concurrent and whole.size != size:
                continue  # it has changed between the two calls
            status = size, time, head[:BLOSCPACK_HEADER_LENGTH]
            try:
                if has_undo_record(head) or not head:
                    state = FileState(settled(whole), *how)
                else:
                    state = FileState(whole, *how, head)
            except (FormatError, StorageError):
                if status == self._status(whole):
                    raise
            else:
                state.status = status
                if status == self._status(whole):
                    return state
        raise self._always_changed()

    def _has_changed(self, state: FileState) -> bool:
        """Return whether the file has changed since `state`; if so, read it again.

        Raises `StorageError` if it was changed by more than an append: that moves no
        chunk, and only adds to the plain bytes.
        """
        if state.status is None or state.status == self._status(self._whole):
            return False
        with self._lock:
            if self.state is not state:  # another thread has read it
                return True
            new, last = self._read_state(), self.nchunks - 1
            continues = new.nchunks > last and new.nbytes >= self.nbytes
            continues = continues and bool(
                (new.offsets[: last + 1] == self._offsets).all()
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

    def _read_consistently(
        self, read: Callable[[FileState], object], *, again: bool = True
    ) -> None:
        """Call `read` with the state of the file; again, if the file has changed.

        With `again` False, what was read can't be taken back: unless digests prove that
        it was right, the change is an error.
        """
        with self._naming_errors:
            for _ in range(BEGINNING_ATTEMPTS):
                state = self.state
                digested = state.header.checksum_impl.size
                try:
                    read(state)
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
                if not (again or digested):
                    break
        raise self._always_changed()

    def _always_changed(self) -> StorageError:
        name = shown_name(self.name or "")
        why = "the file was changed each time it was read"
        return StorageError(errno.EAGAIN, why, name)

    # Reading

    def load(
        self,
        numbers: Sequence[int],
        use: Callable[[int, memoryview], object],
        *,
        room: Room | None = None,
        needs: Needs | None = None,
    ) -> None:
        """Call ``use(number, plain)`` for chunks, as `ChunkSource.load` says."""
        how = use, None, room, needs, self._nthreads
        self._read_consistently(lambda state: self._load(state, numbers, *how))

    def ordered(
        self,
        numbers: Sequence[int],
        work: Callable[[int, memoryview], Any],
        deliver: Callable[[Any], object],
        *,
        nthreads: int | None = None,
    ) -> None:
        """Call ``deliver(work(number, plain))`` for chunks.

        Parameters
        ----------
        numbers
            The numbers of the chunks, ascending.
        work
            Called in any thread and in any order. The bytes are valid during the call.
        deliver
            Called in the thread of the caller and in order.
        nthreads
            Number of threads; None for the number that the opened file has.

        Raises
        ------
        FormatError
            If a chunk is damaged. `deliver` has been called for all chunks before it.
        StorageError
            If the file has changed meanwhile, and has no digests.
        """
        done = 0

        def deliver_next(result: object) -> None:
            nonlocal done
            done += 1
            deliver(result)

        count = self._nthreads if nthreads is None else nthreads
        how = None, None, count
        self._read_consistently(
            lambda state: self._load(state, numbers[done:], work, deliver_next, *how),
            again=False,
        )

    def _load(
        self,
        state: FileState,
        numbers: Sequence[int],
        work: Callable[[int, memoryview], Any],
        deliver: Callable[[Any], object] | None,
        room: Room | None,
        needs: Needs | None,
        nthreads: int | None,
    ) -> None:
        """Call `work` and `deliver` for chunks of a state, as `load` and `ordered`."""
        if not numbers:
            return
        is_remote, storage = state.storage.is_remote, state.storage
        if numbers[-1] + 1 == state.nchunks:
            # This may replace the table: no extent of it may be used before. An error
            # is raised again when the last chunk is reached.
            with suppress(FormatError):
                state.check_end()
        # If the cache has no room for all chunks, each would be removed before it is
        # used again, and decompressing into memory that is in use already is faster.
        # Only the last chunk is kept then, where the next read may go on.
        size, limit = self.chunk_size or self.nbytes // self.nchunks, self._cache.limit
        keep_from = numbers[0 if len(numbers) * size <= limit else -1]
        # The last chunk may have grown since the file was opened: it is not kept.
        last = self.nchunks - 1
        grown = numbers[-1] == last and state.span(last) != self.span(last)
        if size > limit or grown:
            keep_from = self.nchunks
        decode = partial(self._decode, state, keep_from)

        def work_on(run: Run) -> tuple[list[Any], FormatError | None]:
            """Return the results for the chunks, and the error that ended the run."""
            if run.plain is not None:
                first = run.chunks[0][0]
                plain = memoryview(run.plain)
                target = room(first) if room is not None else None
                if target is not None:
                    target[:] = plain
                    plain = target
                return [work(first, plain)], None
            content = run.content
            if content is None:
                content = self._workspace.view(run.stop - run.offset)
                content = content[: storage.read_into(content, run.offset)]
            content, results = memoryview(content), []
            try:
                for chunk in run.chunks:
                    number, offset, stop, _ = chunk
                    frame = content[offset - run.offset : stop - run.offset]
                    target = room(number) if room is not None else None
                    if grown and number == last:
                        start, end = self.span(last)
                        plain = decode(chunk, frame)[: end - start]
                        if target is not None:
                            target[:] = plain
                            plain = target
                    else:
                        part = needs if target is None else None
                        plain = decode(chunk, frame, target, part)
                    results.append(work(number, plain))
            except FormatError as error:
                return results, error
            return results, None

        def deliver_run(done: tuple[list[Any], FormatError | None]) -> None:
            results, error = done
            if deliver is not None:
                for result in results:
                    deliver(result)
            if error is not None:
                raise error

        # An empty cache has no chunk.
        cached = self._cache.get if self._cache else None
        runs = plan_runs(state.extents(numbers), cached, is_remote)
        if is_remote or not storage.concurrent:
            runs = state.with_content(runs)
        # From the first chunk to the last one.
        nbytes = state.span(numbers[-1])[1] - state.span(numbers[0])[0]
        nruns = len(numbers)  # about
        if not is_remote:
            nruns = max(1, min(nruns, -(-nbytes // LOCAL_RUN)))
        with own_settings:
            nthreads = nthreads_to_read(nthreads, len(numbers), self.chunk_size)
            nthreads = min(nruns, nthreads)
            batch = 1
            if room is not None and not is_remote:
                batch = run_length(nruns, nbytes // nruns, nthreads)
            ordered(runs, work_on, deliver_run, nthreads, batch)

    def read_part(self, number: int, start: int, view: memoryview) -> None:
        """Fill `view` with plain bytes of a chunk, as `ChunkSource.read_part` says."""
        if self._first.storage.is_remote:
            super().read_part(number, start, view)
            return
        stop = start + len(view)

        def read(state: FileState) -> None:
            """Do without the threads, which take longer than a block."""
            if number + 1 == state.nchunks:
                state.check_end()
            (extent,) = state.extents((number,))
            frame = self._workspace.view(extent[2] - extent[1])
            frame = frame[: state.storage.read_into(frame, extent[1])]
            # A last chunk that has grown since the file was opened is not kept.
            begin, end = self.span(number)
            keep = extent[3] == end - begin <= self._cache.limit
            with own_settings:
                keep_from = number if keep else number + 1
                part = start, stop
                plain = self._decode(
                    state, keep_from, extent, frame, needs=lambda _: part
                )
            view[:] = plain[start:stop]

        self._read_consistently(read)

    def _decode(
        self,
        state: FileState,
        keep_from: int,
        extent: Extent,
        frame: memoryview,
        target: memoryview | None = None,
        needs: Needs | None = None,
    ) -> memoryview:
        """Return the plain bytes of a chunk, in `target` if that is given.

        Otherwise they are put into the cache if the chunk is one of those from
        `keep_from` on; the memory is valid until this thread calls the method again.
        Only the bytes that are needed are defined. Raises `FormatError` unless chunk
        and digest fill the extent, and the digest fits.
        """
        number, offset, stop, size = extent
        checksum, part = state.header.checksum_impl, None
        keep = target is None and number >= keep_from
        try:
            header = decode_header(frame)
            end = header.ctbytes
            if not end + checksum.size == stop - offset == len(frame):
                raise state.wrong_size(number, end + checksum.size, len(frame))
            check_digest(frame[:end], frame[end:], checksum)
            if state.witness is None and number + 1 < state.nchunks:
                proof = frame[end:] or frame
                state.witness = stop - len(proof), len(proof), zlib.crc32(proof)
            if target is None:
                check_plain_size(header, size)  # before memory is allocated
                if keep:  # new memory, which is not filled with zeros
                    items: Any = numpy.empty(size, "u1")
                    target = memoryview(items)
                else:
                    target = self._plain_workspace.view(size)
            if (
                needs is not None
                and 2 * header.blocksize <= size
                and (not keep or self._cache.is_first_part(number))
            ):
                part = partial(needs, number)
            is_whole = decompress_into(frame[:end], target, header, part)
        except FormatError as error:
            error.locate(number, offset)
            raise
        if keep and is_whole:
            self._cache.put(number, target.toreadonly())
        return target

    def cached(self, number: int, size: int) -> Buffer | None:
        """Return the plain bytes of a chunk, of this `size`, if they are in memory."""
        return self._cache.get(number, size)

    def read(self, start: int, stop: int) -> bytes:
        """Return the plain bytes of the span [start, stop), fewer at the end."""
        size = max(0, min(stop, self.nbytes) - start)
        result = announced_bytes(size, self.nbytes)
        self.read_into(result.view, start)
        return result.finish()


def reader_of(opened: OpenedFile, description: Description | None = None) -> Reader:
    """Return a reader of the array in a file.

    Raises `FormatError` unless the chunks agree with `description`, by default the
    description in the file.
    """
    if description is None:
        description = Description(opened.metadata)
    description.check_source(opened)
    shape, order, size = description.shape, description.order, opened.chunk_size
    opened.cut = description.grid
    row = math.prod(shape[1:]) * description.dtype.itemsize
    if opened.nchunks == 1:
        size = max(row, opened.nbytes)
    is_cut = bool(row and size and not size % row)
    if opened.cut is None and order == "C" and shape and is_cut:
        start, stop = opened.span(opened.nchunks - 1)
        if stop - start <= size:  # chunks of whole rows
            opened.cut = Grid.of_rows(shape, size // row)
    return Reader(opened, description.dtype, shape, order)


def open_source(
    file: Path | Seekable | Buffer | Storage, **remote: Any
) -> tuple[Storage | BinaryIO, str | None]:
    """Open what has a name; return it, and the name: None for anything else.

    A local file is a file object, all else a storage. `remote` are keywords of
    `RemoteStorage`.
    """
    if is_url(file) and local_path(file) == file:
        from .._storage.remote import RemoteStorage

        return RemoteStorage(file, **remote), file
    if isinstance(file, (str, os.PathLike)):
        name = os.fsdecode(local_path(file))
        return disk.open(name, "rb"), name
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
