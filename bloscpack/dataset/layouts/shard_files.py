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
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import repeat
from typing import Any

import numpy

from ..._arrays.loader import (
    LEAST_NBYTES,
    REMOTE_RUN_NBYTES,
    Fetched,
    Loading,
    plan_runs,
)
from ..._arrays.source import Needs, Room
from ..._engine.blosc_settings import own_settings
from ..._engine.forks import ForkSafeLock
from ..._format.block_table import blocks_of
from ..._format.blosc_header import chunk_damage, decode_header
from ..._format.chunks import decompress, needs_settings, verified_chunk
from ..._format.dtypes import Array
from ..._format.grid import Box, Shape, lengths
from ..._format.shard import CHECKSUM, index_size
from ..._format.text import least_nbytes
from ..._storage.base import MemoryStorage, Storage, naming_errors
from ..._storage.folder_store import NoFileFound
from ..._types import Buffer
from ...constants import MAX_DOCUMENT
from ...exceptions import DamageError, FormatError, StorageError, metadata_damage
from ..folder import Folder, attempts
from .array_files import NO_FILE, ChunkFiles, OpenFiles, check_whole
from .shard_grid import FRAME_EXTRA, FRONT_NBYTES, ShardIndex, Sharding

# Number of chunks up to which the missing files of a sparse array are looked for one by
# one. For more chunks, the folder is listed.
LISTED_FROM = 64
# Number of times that a file is opened that is replaced while it is read.
ATTEMPTS = 3
# The chunks of an array without changes that wait.
NONE_WAITING: Mapping[int, Array] = {}


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
        Called when a file is missing, or the document has changed: raises an error if
        the array was replaced or has lost rows. Only rows before a shape count.
    check_description
        As for `ChunkFiles`.
    sparse
        Whether items may be missing without being damage.
    waiting
        The items of chunks that are in no file yet, by number. Others may add some.
    """

    def __init__(
        self,
        folder: Folder,
        sharding: Sharding,
        check_missing: Callable[..., object] = bool,
        check_description: Callable[[], object] = bool,
        *,
        is_foreign: bool = False,
        sparse: bool = False,
        waiting: Mapping[int, Array] = NONE_WAITING,
    ) -> None:
        itemsize = sharding.dtype.itemsize
        super().__init__(
            folder, sharding.names, sharding.grid, itemsize, check_description
        )
        # Counts full shards of full chunks, also those behind the end of the array.
        self.nbytes = self.nfiles * self.slots * self.chunk_size
        self.sharding = sharding
        self.decode = sharding.decode_text if sharding.is_text else None
        self.sparse = sparse
        self._waiting = waiting
        self._is_foreign = is_foreign
        self._check_missing = check_missing
        self._for_copies = False
        # The version of the document when the array was opened, and the last version at
        # which no rows were missing.
        self._version = self._checked = folder.tree.state.version
        self._open = OpenFiles()
        self._opening = ForkSafeLock()  # threads that need the same file open it once

    def close(self) -> None:
        """Forget the open files: they are closed when no thread reads them."""
        self._open.drop()

    def prepare_copies(self) -> None:
        """Compare the place of each file from now on, also of those at a URL."""
        if not self._for_copies:
            self._for_copies = True
            self.close()

    # Files

    def file(self, number: int, chunks: Sequence[int] = ()) -> ShardIndex | None:
        """Return a file, of which chunks are needed; None if it is missing."""
        kept = self._open.get(number)
        if not self._has_items(kept, chunks):
            # At a URL the threads wait for answers, side by side.
            with nullcontext() if self.is_far else self._opening.current:
                kept = self._open.get(number)  # another thread may have opened it
                if not self._has_items(kept, chunks):
                    # A writer may have removed rows, and added others, since it was
                    # opened: rows may be missing that this state has, or be in a new
                    # file.
                    if kept is not None and self._is_foreign:
                        self._check_missing()
                    kept = self._open_now(number, chunks)
        return None if kept is NO_FILE else kept

    def _open_now(self, number: int, chunks: Sequence[int]) -> object:
        """Open the present file; return `NO_FILE` if it is missing."""
        name, folder, since = self.names(number), self.folder, self._open.ndropped
        end = index_size(self.slots)
        if folder.is_remote:
            end += self.sharding.table_nbytes
            nchunks = len(self.cut.chunks_of(number))
            # The whole file, in one request; it may have a chunk twice.
            most = self.chunk_size + FRAME_EXTRA
            whole = 2 * (end + FRONT_NBYTES) + (nchunks + 1) * most
            if nchunks <= 2 * len(chunks) and whole <= 2 * REMOTE_RUN_NBYTES:
                end = whole
        tree, known = folder.tree, (self._checked, True)
        for _ in attempts(folder.path(name)):
            try:
                storage: Storage | None = self.storage(name, end)
            except FileNotFoundError:
                storage = None
            except (NotADirectoryError, NoFileFound):
                self._check_present()  # another array has other folders
                raise
            self._check_description()  # which reads the document of this folder again
            is_read = storage is not None and not folder.prefix
            now = (tree.state if is_read else tree.renew()).version, storage is not None
            if now == known:
                break
            # A writer may have removed rows, and added others, until now: the file may
            # have been one of the state in between.
            known, stops = now, [each.stop for each in self.cut.shard_box(number)]
            with naming_errors(folder.path(name)):
                self._check_missing(stops if storage is not None else None)
        tree.note_read(folder.full(name), storage)
        if storage is None:
            if not self.sparse:
                raise self._missing("file", number, self.cut.shard_box(number))
            self._open.put(number, NO_FILE, since)
            return NO_FILE
        check = partial(self._check_front, number)
        is_late = not self._for_copies
        try:
            file = ShardIndex(storage, self.sharding, check, checks_late=is_late)
        except FormatError as error:
            error.filename = error.filename or folder.path(name)
            self._check_present()
            raise
        storage.may_close()
        self._open.put(number, file, since)
        return file

    def _check_present(self) -> None:
        """Raise `StorageError` if a writer is putting another array there."""
        if not self.folder.is_remote:
            self.folder.tree.renew()
            self._check_description()
            self._check_missing()

    def storage(self, name: str, end: int = 0) -> Storage:
        """Open a file; raise `FormatError` if reading it would take too much memory."""
        storage = self.folder.storage(name, end)
        # Such a file is read as a whole. Others may have free space of any size.
        if isinstance(storage, MemoryStorage):
            slots = self.sharding.grid.slots
            most = self.sharding.largest_frame * slots
            most = 2 * (most + index_size(slots)) + MAX_DOCUMENT
            check_whole(storage, slots, most, self.folder.path(name))
        return storage

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
        return chunk_damage(
            "expected the %s with the %s, found none; %s"
            % (what, self.cut.described(box), advice),
            filename=self.path_of(number),
        )

    def _check_front(self, number: int, file: ShardIndex, front: bytes) -> Shape | None:
        """Return the shape of the array in a file; None if it has all items.

        Raises `FormatError` if another file belongs there.
        """
        if file.foreign and self._is_foreign:
            return None
        stated = self.sharding.stated_shape(number, file.storage, front)
        if stated == self.cut.shard:
            return None
        least = lengths(self.cut.shard_box(number))
        if stated is not None and not any(map(int.__lt__, stated, least)):
            return None
        if self.sparse:
            return stated
        self._check_missing()  # a writer may have removed rows
        raise metadata_damage(
            "expected items of at least the shape %s, found %s; if a writer has "
            "removed rows meanwhile, open the dataset again"
            % (
                least,
                "an unknown number" if stated is None else "the shape %s" % (stated,),
            )
        )

    def _has_items(self, file: Any, numbers: Sequence[int]) -> bool:
        """Return whether an open file has all items of chunks, apart from padding."""
        if file is None or file is NO_FILE or not numbers:
            return file is not None
        if 0 in file.extents_of(numbers)[1]:
            return False
        if file.shape is None:
            return True
        corner = self.cut.corner(numbers[0] // self.slots * self.slots)
        return not any(
            each.stop - start > n
            for number in numbers
            for each, start, n in zip(
                self.cut.box(number), corner, file.shape, strict=True
            )
        )

    def check_files(self) -> None:
        """Raise `FormatError` unless each file exists, and can hold its plain bytes."""
        for number in range(self.nfiles):
            try:
                size = self.folder.size(self.names(number))
            except FileNotFoundError:
                self.file(number)  # raises the error, unless a writer was here
                continue
            shape = lengths(self.cut.shard_box(number))
            self.check_size(
                number, size, math.prod(shape) * self.sharding.dtype.itemsize
            )

    # Chunks

    def load(
        self,
        numbers: Sequence[int],
        use: Callable[[int, memoryview], object],
        *,
        room: Room | None = None,
        needs: Needs | None = None,
        joined: bool = False,
    ) -> None:
        """Call ``use(number, plain)`` for chunks, as `ChunkSource.load` says.

        All files had these contents at one time: those that another program replaces
        meanwhile are loaded again, or are an error if the tree has a `Pin`.
        """
        pin = self.folder.tree.pin
        try:
            if numbers:
                self._load(numbers, self._loading(numbers, use, room, needs, joined))
        except (FormatError, StorageError):
            if pin is not None:
                pin.check()  # its error is the reason
            raise
        if pin is not None:
            pin.check()

    def _load(self, numbers: Sequence[int], loading: Loading) -> None:
        """Load chunks again until their files have had these contents at one time."""
        slots, tree = self.slots, self.folder.tree
        used: dict[int, set[object]] = {}  # the versions of each file that were read
        if self._waiting:  # in memory
            waiting = [(number, self._waiting.get(number)) for number in numbers]
            plain = {n: self.sharding.encode(i) for n, i in waiting if i is not None}
            self._use(loading, [*plain], None, plain, [None] * len(plain))
            numbers = [number for number in numbers if number not in plain]
            if not numbers:
                return
        has_room, some = loading.room is not None, loading.needs is not None
        # Blocks of chunks may take less time than a thread.
        quick = self.sharding.has_blocks and some and not has_room
        how = partial(self._load_run, loading, used), has_room, quick
        # One file is of one state; a missing one of a sparse array may be of a later.
        is_one = numbers[0] // slots == numbers[-1] // slots
        if self.is_far or (
            is_one and not (self.sparse and self.folder.store.can_rename)
        ):
            try:
                self._work_on(numbers, *how)
            except FormatError:
                if self.is_far:  # another dataset may have replaced this one
                    self._check_missing()
                raise
            return
        before, wanted, absent = tree.renew(), numbers, set[int]()
        replaced: dict[int, set[object]] = {}  # versions read before a replacement
        for _ in attempts(self.folder.path()):
            if self.sparse and len(wanted) > LISTED_FROM:
                wanted = self._load_missing(wanted, loading, absent)
            if wanted:
                self._work_on(wanted, *how)
            # The document first: after it, no name gets what it has not committed.
            now = tree.renew()
            moved: set[int] = set()
            if now.pending != before.pending:
                full, names = self.folder.full, self.names
                read = used.keys() | absent
                moved = {n for n in read if now.pending.get(full(names(n)))}
            is_new = now.version != self._version
            changed = moved | {
                n
                for n in used.keys() - moved
                if self._is_replaced(n, used[n], is_new and replaced.get(n) != used[n])
            }
            if absent:  # they may be there now
                changed |= absent.intersection(self.stored())
            if not changed:
                if now.version in (self._version, self._checked):
                    return
                self._check_missing()  # a change may have removed rows
                if tree.state.version == now.version:
                    self._checked = now.version
                    return
            before = now
            self._open.drop(changed)
            replaced |= {n: used[n] for n in used.keys() & changed - moved}
            absent -= changed
            for number in changed & used.keys():
                del used[number]
            wanted = [number for number in numbers if number // slots in changed]

    def _is_replaced(self, number: int, versions: set[object], is_new: bool) -> bool:
        """Return whether a file is no longer the one that was read.

        `is_new` says that the document is another one than when the array was opened,
        and that the file was not opened again with the same result.
        """
        now = self.folder.version_of(self.names(number))
        # A file of a dataset that was removed can be read while it is open. But a
        # change may have removed its rows, or given all of them the fill value.
        return versions != {now} and (now is not None or len(versions) > 1 or is_new)

    def _load_missing(
        self, numbers: Sequence[int], loading: Loading, missing: set[int]
    ) -> Sequence[int]:
        """Load the chunks whose files are missing; return the numbers of the others.

        Looking for each file by itself would take much longer. `missing` gets the
        numbers of the files.
        """
        absent = {number // self.slots for number in numbers}
        absent.difference_update(self.stored())
        absent = {n for n in absent if self._open.get(n) in (None, NO_FILE)}
        if not absent:
            return numbers
        # As in `_open_now`: a writer may have removed rows, and added others.
        self._check_description()
        with naming_errors(self.folder.path()):
            self._check_missing()
        absent.difference_update(self.stored())
        self._check_description()
        missing |= absent
        if self.folder.tree.pin is not None:
            for number in absent:
                self.folder.tree.note_read(self.folder.full(self.names(number)), None)
        inside = [number for number in numbers if number // self.slots in absent]
        plain = memoryview(b"")  # of text
        if self.decode is None:
            self._fill(plain := self._cache.memory(self.chunk_size))
        frames = [None] * len(inside)
        self._use(loading, inside, None, dict.fromkeys(inside, plain), frames)
        return [number for number in numbers if number // self.slots not in absent]

    def _load_run(
        self, loading: Loading, used: dict[int, set[object]], run: Sequence[int]
    ) -> None:
        """Load chunks of a file, all from the same version of it."""
        shard = run[0] // self.slots
        for attempts_left in reversed(range(ATTEMPTS)):
            try:
                file = self.file(shard, run)
                version = None if file is None else file.storage.identity
                used.setdefault(shard, set()).add(version)
                if file is not None and loading.needs is not None and file.blocks.raw:
                    run = self._load_blocks(loading, file, version, run)
                    if not run:
                        return
                cached, frames = self._content(file, run)
                break
            except FormatError as error:
                self._open.drop()  # the file may be replaced by the right one
                error.filename = error.filename or self.path_of(shard)
                raise
            except StorageError as error:
                # A file at a URL was replaced after it was opened.
                if error.errno != errno.EAGAIN or not attempts_left:
                    raise
                self._open.drop()
        self._use(loading, run, version, cached, frames)

    def _use(
        self,
        loading: Loading,
        numbers: Sequence[int],
        version: object,
        cached: Mapping[int, Buffer],
        frames: Sequence[memoryview | None],
    ) -> None:
        """Use chunks of a version of a file, as `_content` returns them."""
        if self.decode is None:
            how = repeat(self.chunk_size), frames, cached, version
            self._place(loading, Fetched(numbers, *how, CHECKSUM, self._explain))
            return
        for number, frame in zip(numbers, frames, strict=True):
            plain = cached.get(number)
            try:
                text = plain or (b"" if frame is None else self._text(frame))
                loading.use(number, memoryview(text))  # which decodes it
            except FormatError as error:
                raise self._explain(error, number) from error.__cause__
            if text and plain is None and number >= loading.keep_from:
                self._cache.put((number, version), text)

    def read_into(self, view: memoryview, start: int) -> int:
        """Fill a writable view of bytes, as `ChunkSource.read_into` says."""
        number, low = divmod(start, size := self.chunk_size)
        stop = low + len(view)
        # `load` decompresses a whole chunk where it belongs.
        is_small = low < stop <= LEAST_NBYTES or low < stop <= size != len(view)
        if is_small and self.folder.tree.pin is None:
            try:
                if self._read_few(view, number, low):
                    return len(view)
            except (FormatError, StorageError):  # `load` raises it, or reads them again
                pass
        return super().read_into(view, start)

    def _read_few(self, view: memoryview, number: int, low: int) -> bool:
        """Read from a position in a chunk, in few chunks of a file, into a view.

        This is the usual case, for speed. Return False if `load` has to read them.
        """
        size, stop, slots = self.chunk_size, low + len(view), self.slots
        shard, slot = divmod(number, slots)
        if stop > size and stop > (slots - slot) * size:  # `load` compares the files
            return False
        file = self._open.get(shard)
        if file is None and not self.is_far:
            file = self.file(shard, (number,))
        if file is None or file is NO_FILE:
            return False
        version = file.storage.identity
        while number not in self._waiting:
            if file.shape is not None and not self._has_items(file, (number,)):
                return False
            plain = self._cache.get((number, version), briefly=True)
            if plain is None and not self.is_far:
                plain = self._read_chunk(file, number, low, min(stop, size))
            if plain is None:
                return False
            if stop <= size:
                view[:] = memoryview(plain)[low:stop]
                return True
            view[: size - low] = memoryview(plain)[low:]
            view = view[size - low :]
            number, low, stop = number + 1, 0, stop - size
        return False

    def _read_chunk(
        self, file: ShardIndex, number: int, low: int, high: int
    ) -> memoryview | None:
        """Return memory for a chunk, with at least the plain bytes [`low`, `high`).

        They are valid until this thread reads another one. Return None if they can't be
        read.
        """
        size, key = self.chunk_size, (number, file.storage.identity)
        row = file.row(number) if self.sharding.has_blocks else None
        if row is not None:
            runs = blocks_of([(low, high)], row.header.blocksize, row.header.nblocks)
            if runs and not self._is_read_whole(key, row, runs):
                with own_settings:
                    return self._read_blocks(file.storage, row, runs)
        start, nbytes = file.extent(number)
        frame = self._cache.stored.view(nbytes)
        if not nbytes or file.storage.read_into(frame, start) < nbytes:
            return None
        how = frame, CHECKSUM, size, key if size <= self._cache.limit else None
        if not needs_settings(frame, size):
            return self._plain_of(*how)
        with own_settings:
            return self._plain_of(*how, lambda: [(low, high)])

    def _content(
        self, file: ShardIndex | None, run: Sequence[int]
    ) -> tuple[Mapping[int, Buffer], Sequence[memoryview | None]]:
        """Return the plain bytes of chunks in memory by number, and a frame for each.

        There is no frame for those, and for chunks that are missing. Frames are valid
        until the next call.
        """
        if file is None:
            return {}, [None] * len(run)
        starts, sizes = file.extents_of(run)
        if 0 in sizes and not (self.sparse or (file.foreign and self._is_foreign)):
            lost = run[sizes.index(0)]
            error = self._missing("chunk", lost // self.slots, self.cut.box(lost))
            raise self._explain(error, lost)
        cached = dict[int, Buffer]()
        if self._cache:
            version = file.storage.identity
            kept = [(n, self._cache.get((n, version))) for n in run]
            cached = {n: plain for n, plain in kept if plain is not None}
            for i, number in enumerate(run if cached else ()):
                sizes[i] = 0 if number in cached else sizes[i]
        storage = file.storage
        stops = list(map(int.__add__, starts, sizes))
        if starts[1:] == stops[:-1] and all(sizes) and not storage.is_remote:
            first = starts[0]  # one run: the usual case
            view = self._cache.stored.view(stops[-1] - first)
            view = view[: storage.read_into(view, first)]
            return cached, [
                view[start - first : stop - first]
                for start, stop in zip(starts, stops, strict=True)
            ]
        numbers = [i for i, size in enumerate(sizes) if size]
        numbers.sort(key=starts.__getitem__)
        extents = ((i, starts[i], stops[i], sizes[i]) for i in numbers)
        runs = list(plan_runs(extents, None, storage.is_remote))
        spans = [(each.offset, each.stop) for each in runs]
        fetched = file.read_many(spans) if storage.is_remote else ()
        view = self._cache.stored.view(
            0 if fetched else sum(stop - start for start, stop in spans)
        )
        frames: list[memoryview | None] = [None] * len(starts)
        for number, (first, end) in enumerate(spans):
            if fetched:
                content = memoryview(fetched[number])
            else:
                content, view = view[: end - first], view[end - first :]
                content = content[: storage.read_into(content, first)]
            for i, start, stop, _ in runs[number].chunks:
                frames[i] = content[start - first : stop - first]
        return cached, frames

    def _fill(self, memory: memoryview) -> None:
        items: Array = numpy.frombuffer(memory, self.sharding.dtype)
        items[...] = self.sharding.fill_value

    def _text(self, frame: memoryview) -> bytes:
        """Return the plain bytes of a chunk of text."""
        header = decode_header(frame)
        chunk = verified_chunk(frame, CHECKSUM, header.nbytes)
        least = least_nbytes(math.prod(self.cut.chunk))
        if header.nbytes < least:
            raise chunk_damage(
                "expected a chunk of text with at least '%d' plain bytes, found '%d'"
                % (least, header.nbytes)
            )
        return decompress(chunk, header)

    def _explain(self, error: FormatError, number: int) -> FormatError:
        error.locate(number % self.slots, None)
        error.filename = self.path_of(number // self.slots)
        return error

    def items(self, number: int) -> Array:
        """Return the items that the array has in a chunk."""
        result = numpy.empty(self.cut.chunk, self.sharding.dtype)

        def use(_: int, plain: memoryview) -> None:
            if self.decode is not None:
                result[...] = self.decode(plain)
                return
            result.reshape(-1).view("u1")[:] = numpy.frombuffer(plain, "u1")

        self.load([number], use)
        return result[tuple(slice(0, n) for n in lengths(self.cut.box(number)))]
