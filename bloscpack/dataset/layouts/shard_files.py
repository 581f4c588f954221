"""Read an array from its shards: files of chunks, each a `.blp` file, too.

Every file of this package is a complete `.blp` file with an offset table, digests
crc32c, the metadata of an array, and the trailer of a shard (docs/format.rst, Shards).

Reading uses the index at the end of a file, as other readers of shards do: a chunk
there always has all its rows, and rows behind the end of the array do not count. So a
file that has got more rows reads as before.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy

from ..._engine.blosc_settings import own_settings
from ..._engine.forks import ForkSafeLock
from ..._engine.threads import Workspace, for_each, run_length
from ..._file.array_reader import Room
from ..._format.grid import Box, Shape, lengths
from ..._loop import effective_nthreads, nthreads_to_read
from ..._storage.base import naming_errors
from ...exceptions import DamageError, FormatError, StorageError
from ..folder import Folder
from .array_files import ChunkFiles, OpenFiles, placed
from .shard_grid import ShardIndex, Sharding, joined

if TYPE_CHECKING:
    from ..._format.dtypes import Array
    from ..._storage.protocols import Buffer

# Maximum number of plain bytes of neighbouring chunks that one thread reads at a time.
RUN_NBYTES = 2 * 2**20
# The same for files at a URL, where each read is a round trip.
REMOTE_RUN_NBYTES = 16 * 2**20
# Maximum number of such files that are read at once.
REMOTE_FILES = 16
# Number of times that a file is opened that is replaced while it is read.
ATTEMPTS = 3


class ShardFiles(ChunkFiles):
    """The chunks of one state of an array.

    A file that is missing, or a chunk in it, reads as the fill value if the array is
    `sparse`. If it is not, all items must be stored: it is an error if a file or chunk
    is missing, or if a file has fewer items. A file that another program has written
    may lack chunks also then, if `is_foreign` allows such files.

    Parameters
    ----------
    folder, sharding
        The folder of the array, and how the array is stored.
    is_foreign
        Whether other programs may write files, too, and leave out what has the fill
        value.
    check_missing
        Called when a file is missing, which is an error if the array has changed.
    check_description
        As for `ChunkFiles`.
    sparse
        Whether items may be missing without being damage.
    """

    def __init__(
        self,
        folder: Folder,
        sharding: Sharding,
        check_missing: Callable[[], object] = bool,
        check_description: Callable[[], object] = bool,
        *,
        is_foreign: bool = False,
        sparse: bool = False,
    ) -> None:
        itemsize = sharding.dtype.itemsize
        super().__init__(
            folder, sharding.names, sharding.grid, itemsize, check_description
        )
        self.sharding = sharding
        self.sparse = sparse
        self._is_foreign = is_foreign
        self._check_missing = check_missing
        self._for_copies = False
        self._open = OpenFiles()
        self._opening = ForkSafeLock()  # threads that need the same file open it once
        self._workspace = Workspace()
        self._plain_workspace = Workspace()

    def close(self) -> None:
        """Forget the open files: they are closed when no thread reads them."""
        self._open.clear()

    def prepare_copies(self) -> None:
        """Compare the place of each file from now on, also of those at a URL."""
        if not self._for_copies:
            self._for_copies = True
            self.close()

    @property
    def chunks_in_run(self) -> int:
        """Number of neighbouring chunks that one thread reads at a time."""
        run_nbytes = REMOTE_RUN_NBYTES if self.folder.is_remote else RUN_NBYTES
        return max(1, run_nbytes // max(1, self.chunk_size))

    def file(self, number: int) -> ShardIndex | None:
        """Return a file; None if it is missing."""
        kept = self._open.get(number)
        if kept is None:
            if self.folder.is_remote:  # the threads wait for answers, side by side
                return self._reopened(number)
            with self._opening:
                kept = self._open.get(number)
                if kept is None:
                    return self._reopened(number)
        found: ShardIndex | None = kept[0]
        return found

    def _reopened(self, number: int) -> ShardIndex | None:
        """Return a file as it is now; None if it is missing."""
        file = self._open_now(number)
        if file is None:
            with naming_errors(self.path_of(number)):
                self._check_missing()
            # A writer may have removed rows, and added others, until now.
            file = self._open_now(number)
        if file is None and not self.sparse:
            raise self._missing("file", number, self.cut.shard_box(number))
        self._open.put(number, (file,))
        return file

    def _missing(self, what: str, number: int, box: Box) -> DamageError:
        """Return the error for a file, or for a chunk in it, that must be there."""
        advice = (
            "if a writer has just removed rows, open the dataset again, else they are "
            "lost: 'blpk recover' saves the others"
        )
        if self._is_foreign:
            advice += (
                "; if another program has left them out because they have the fill "
                "value, assign the fill value to all of them"
            )
        return DamageError(
            "expected the %s with the %s, found none; %s"
            % (what, self.cut.described(box), advice),
            section="chunks",
            filename=self.path_of(number),
        )

    def _open_now(self, number: int) -> ShardIndex | None:
        name = self.names(number)
        try:
            storage = self.folder.storage(name)
        except FileNotFoundError:
            self._check_description()
            return None
        self._check_description()
        # Without the file's path, which takes a third of the time of opening it.
        try:
            is_own = self.sharding.packing.is_own
            if not is_own or (
                storage.is_remote and self._is_foreign and not self._for_copies
            ):
                # One request less: only copying would make a wrong file permanent.
                return ShardIndex(storage, self.sharding)
            check = partial(self._check_front, number)
            return ShardIndex(storage, self.sharding, check)
        except FormatError as error:
            error.filename = error.filename or self.folder.path(name)
            raise

    def _check_front(self, number: int, file: ShardIndex, front: bytes) -> Shape | None:
        """Return the shape of the array in a file; raise `FormatError` if another file
        belongs there.
        """
        if file.foreign and self._is_foreign:
            return None
        found = self.sharding.stated_shape(number, file.storage, front)
        least = self._stored_shape(number)
        if self.sparse or (
            found is not None and not any(map(int.__lt__, found, least))
        ):
            return found
        raise DamageError(
            "expected items of at least the shape %s, found %s; if a writer has "
            "removed rows meanwhile, open the dataset again"
            % (
                least,
                "an unknown number" if found is None else "the shape %s" % (found,),
            ),
            section="metadata",
        )

    def _stored_shape(self, number: int) -> Shape:
        """Return the shape of the part of the array that is in a file."""
        return lengths(self.cut.shard_box(number))

    def check_files(self) -> None:
        """Raise `FormatError` unless each file exists, and can hold its plain bytes."""
        for number in range(self.nfiles):
            name = self.names(number)
            try:
                size = self.folder.size(name)
            except FileNotFoundError:
                self.file(number)  # raises the error, unless a writer was here
                continue
            nbytes = math.prod(self._stored_shape(number))
            self.check_size(number, size, nbytes * self.sharding.dtype.itemsize)

    def load(
        self,
        numbers: Sequence[int],
        use: Callable[[int, memoryview], object],
        *,
        room: Room | None = None,
        joined: bool = False,
    ) -> None:
        """Call ``use(number, plain)`` for chunks, as `ChunkSource.load` says."""

        def work(run: list[int]) -> None:
            self._load_run(run, use, room)

        def deliver(_: None) -> None:
            pass

        batch = 1
        if self.folder.is_remote:  # the threads wait for answers
            limit = self.chunks_in_run
            count = len({number // self.slots for number in numbers})
            count = max(count, -(-len(numbers) // limit))
            nthreads = max(effective_nthreads(None, count), min(count, REMOTE_FILES))
        else:
            nthreads = nthreads_to_read(None, len(numbers), self.chunk_size)
            limit = run_length(len(numbers), self.chunk_size, nthreads, RUN_NBYTES)
            if room is not None:
                count = -(-len(numbers) // limit)
                batch = run_length(count, limit * self.chunk_size, nthreads)
        with own_settings:
            for_each(self._runs(numbers, limit), work, deliver, nthreads, batch)

    def _runs(self, numbers: Sequence[int], limit: int) -> Iterator[list[int]]:
        """Yield the numbers in lists of chunks of one file, which are read together."""
        slots = self.slots
        run: list[int] = []
        for number in numbers:
            if run and (len(run) >= limit or run[0] // slots != number // slots):
                yield run
                run = []
            run.append(number)
        if run:
            yield run

    def _load_run(
        self,
        run: list[int],
        use: Callable[[int, memoryview], object],
        room: Room | None,
    ) -> None:
        wanted = []
        for number in run:
            cached = self._cache.get(number)
            if cached is None:
                wanted.append(number)
                continue
            place = None if room is None else room(number)
            use(number, placed(memoryview(cached), place))
        if not wanted:
            return
        for number, frame in zip(wanted, self._frames(wanted), strict=True):
            place = None if room is None else room(number)
            use(number, self._plain(number, frame, place))

    def _find(
        self, numbers: list[int]
    ) -> tuple[ShardIndex | None, list[tuple[int, int] | None]]:
        """Return the file of chunks, and the extents of these chunks in it."""
        slots = self.slots
        file = self.file(numbers[0] // slots)
        if file is not None and not self._has_items(file, numbers):
            # A writer may have removed rows, and added others, since the file was
            # opened: rows may be missing that this state has, or be in a new file.
            if self._is_foreign:
                self._check_missing()
            file = self._reopened(numbers[0] // slots)
        if file is None:
            return None, [None] * len(numbers)
        extents = [file.extents[n % slots] for n in numbers]
        may_lack = self.sparse or (file.foreign and self._is_foreign)
        if None in extents and not may_lack:
            lost = numbers[extents.index(None)]
            error = self._missing("chunk", lost // slots, self.cut.box(lost))
            self._locate(error, lost)
            raise error
        return file, extents

    def _has_items(self, file: ShardIndex, numbers: list[int]) -> bool:
        """Return whether a file has all items of chunks, apart from padding."""
        if None in (file.extents[n % self.slots] for n in numbers):
            return False
        least = self._stored_shape(numbers[0] // self.slots)
        if file.shape is None or not any(map(int.__lt__, file.shape, least)):
            return True
        corner = self.cut.corner(numbers[0] // self.slots * self.slots)
        return not any(
            each.stop - start > n
            for number in numbers
            for each, start, n in zip(
                self.cut.box(number), corner, file.shape, strict=True
            )
        )

    def _frames(self, numbers: list[int]) -> Iterator[memoryview | None]:
        """Yield the frames of chunks of a file; neighbouring ones are read together."""
        for attempt in range(ATTEMPTS):
            try:
                file, extents = self._find(numbers)
                found = [extent for extent in extents if extent is not None]
                content = memoryview(b"") if file is None else self._read(file, found)
                break
            except StorageError as error:
                # A file at a URL was replaced after it was opened.
                if error.errno != errno.EAGAIN or attempt == ATTEMPTS - 1:
                    raise
                self._open.clear()
        for extent in extents:
            if extent is None:
                yield None
            else:
                yield content[: extent[1]]
                content = content[extent[1] :]

    def stored_chunk(self, number: int) -> Buffer | None:
        """Return a chunk and its digest, valid until the next call in this thread.

        None if it was never written, or is not in a local file.
        """
        return None if self.folder.is_remote else next(self._frames([number]))

    def _read(self, file: ShardIndex, extents: list[tuple[int, int]]) -> memoryview:
        """Return the bytes of several extents, one after the other."""
        storage, runs = file.storage, list(joined(extents))
        if storage.is_remote:
            parts = storage.read_many([(start, start + size) for start, size in runs])
            return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))
        view = self._workspace.view(sum(size for _, size in runs))
        position = 0
        for start, size in runs:
            position += storage.read_into(view[position : position + size], start)
        return view[:position]

    def _plain(
        self, number: int, frame: memoryview | None, place: memoryview | None
    ) -> memoryview:
        """Return the plain bytes of a chunk, in `place` if that is given."""
        start, stop = self.span(number)
        size = stop - start
        if frame is None:
            filled = memoryview(bytearray(size)) if place is None else place
            items: Array = numpy.frombuffer(filled, self.sharding.dtype)
            items[...] = self.sharding.fill_value
            return filled
        target = place
        if target is None or size < self.chunk_size:
            target = self._plain_workspace.view(self.chunk_size)
        try:
            self.sharding.packing.decode(frame, target)
        except FormatError as error:
            self._locate(error, number)
            raise
        if place is None:
            self._cache.put(number, bytes(target[:size]))
        return target if target is place else placed(target[:size], place)

    def _locate(self, error: FormatError, number: int) -> None:
        error.locate(number % self.slots, None)
        error.filename = self.path_of(number // self.slots)

    def is_full(self, number: int) -> bool:
        """Return whether a chunk is in its file, and complete."""
        file = self.file(number // self.slots)
        start, stop = self.span(number)
        is_short = stop - start < self.chunk_size
        return not (
            is_short or file is None or file.extents[number % self.slots] is None
        )

    def items(self, number: int) -> Array:
        """Return the items that the array has in a chunk."""
        shape = lengths(self.cut.box(number))
        stored = shape if self.grid is None else self.cut.chunk
        result = numpy.empty(stored, self.sharding.dtype)

        def use(_: int, plain: memoryview) -> None:
            result.reshape(-1).view("u1")[:] = numpy.frombuffer(plain, "u1")

        self.load([number], use)
        return result[tuple(slice(0, n) for n in shape)]
