"""The files of an array: their names, which of them exist, and which are open.

A description may claim any number of files. So callers visit only the stored files, and
compute with the numbers of the others.
"""

from __future__ import annotations

import math
import re
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..._arrays.loader import LEAST_NBYTES, REMOTE_RUN_NBYTES, ChunkLoader
from ..._commit.tree import Draft
from ..._engine.blosc_settings import own_settings
from ..._engine.forks import ForkSafeLock, cached_property
from ..._engine.threads import ordered
from ..._format.array_metadata import new_array
from ..._format.blosc_header import chunk_damage
from ..._format.codecs import CODECS
from ..._format.dtypes import Array, DType
from ..._format.grid import MAX_SLOTS, Grid, Shape, digits
from ..._storage.base import Storage
from ..._storage.folder_store import StaleDataset
from ..._storage.store import too_long
from ..._types import Buffer
from ...abstract_io import effective_nthreads
from ...exceptions import FormatError, Unsupported, UsageError
from ..folder import Folder, Joined

# Errors of a description that is missing, or that belongs to another dataset.
MISSING = FileNotFoundError, NotADirectoryError, StaleDataset
# Maximum number of files that a server which lists no names is asked for.
MAX_ASKED = 10**6
# Maximum number of files at a URL that are read at once.
REMOTE_FILES = 16
# Maximum number of files that are kept, with what was read of them, such as the index.
LIMIT = 128
# Size in bytes from which an array is allocated only if the sizes of the files show
# that they can hold all its chunks.
LARGE = 64 * 2**20
# A number in the name of a file: without leading zeros, and less than `MOST_FILES`.
NUMBER = "0|[1-9][0-9]{0,18}"
MOST_FILES = 10**19
# Maximum number of plain bytes per byte of a file, with the best codec.
MAX_RATIO = max(codec.max_ratio for codec in CODECS.values())


@dataclass(eq=False)
class FileNames:
    """Names that differ in a number, in one folder, or in a tree of folders.

    Attributes
    ----------
    prefix
        The folder, relative to the one of the array; empty for that one.
    before, after
        The text in front of the number, and the text behind it.
    first
        The number in the first name.
    counts
        Number of files along each axis, in C order: a name has a number for each. The
        first one may be any. Without axes there is one file, which has the name of the
        folder.
    """

    prefix: str
    before: str = ""
    after: str = ""
    first: int = 0
    counts: Shape = (0,)

    @cached_property
    def _entry(self) -> re.Pattern[str]:
        """The names of the files, of which the first group is the number."""
        before, after = map(re.escape, (self.before, self.after))
        return re.compile("%s(%s)%s" % (before, NUMBER, after))

    def __call__(self, number: int) -> str:
        """Return the name of a file."""
        parts = [
            "%s%d%s" % (self.before, digit + self.first, self.after)
            for digit in digits(number, self.counts)
        ]
        return "/".join([self.prefix, *parts] if self.prefix else parts)

    def number(self, entry: str) -> int | None:
        """Return the number in a name without its folder; None for other names."""
        match = self._entry.fullmatch(entry)
        number = -1 if match is None else int(match[1]) - self.first
        return number if number >= 0 else None

    def stored(self, folder: Folder, count: int) -> Sequence[int]:
        """Return the numbers below `count` of the files in `folder`, ascending.

        Where names can't be listed, they are all numbers below `count`.
        """
        if not folder.store.lists:
            if count > MAX_ASKED:
                raise UsageError(
                    "the server lists no files, and asking for each of the '%d' files "
                    "of '%s' would take too long" % (count, folder.path())
                )
            return range(count)
        counts = self.counts
        if not counts:
            return [0] if folder.exists(self.prefix) else []
        numbers = self._numbers(folder, self.prefix)
        for axis, n in enumerate(counts[1:], 1):
            if max(counts[axis:]) > 1:
                inner = self._inner(folder, numbers, counts[:axis])
                numbers = [number * n + i for number, i in inner if i < n]
        return sorted({n for n in numbers if n < count})

    def _inner(
        self, folder: Folder, numbers: Iterable[int], counts: Shape
    ) -> Iterator[tuple[int, int]]:
        """Yield numbers of folders, and the numbers of what each of them has."""
        names = FileNames(self.prefix, counts=counts)
        for number in numbers:
            for inner in self._numbers(folder, names(number)):
                yield number, inner

    def _numbers(self, folder: Folder, prefix: str) -> list[int]:
        """Return the numbers that the names in a folder have.

        Pending files of a committed change count; files that it removes do not.
        """
        start = folder.prefix + (prefix + "/" if prefix else "")
        known = folder.tree.state.pending
        names = [
            n for n in folder.names(prefix) if known.get(start + n, "") is not None
        ]
        new = [n[len(start) :] for n, to in known.items() if to and n.startswith(start)]
        names += [name.partition("/")[0] for name in new]
        return [number for number in map(self.number, names) if number is not None]


class ChunkFiles(ChunkLoader):
    """The chunks of one state of an array, and the files that they are in.

    Parameters
    ----------
    folder, names
        The folder, and the names of the files in it.
    cut
        How the array is cut into chunks, and these into files.
    itemsize
        Size of an item in bytes.
    check_description
        Called when a file was opened or is missing: raises `StorageError` if the files
        belong to another array now.

    Attributes
    ----------
    nchunks, slots, nfiles
        Number of chunks of the array, of chunks of a file, and of files, also if some
        are missing.
    """

    cut: Grid

    def __init__(
        self,
        folder: Folder,
        names: FileNames,
        cut: Grid,
        itemsize: int,
        check_description: Callable[[], object],
    ) -> None:
        super().__init__()
        self.folder = folder
        self.is_far = folder.is_remote
        self.names = names
        self.cut = cut
        self.chunk_size = math.prod(cut.chunk) * itemsize
        self.nbytes = math.prod(cut.shape) * itemsize
        self.nchunks = cut.nchunks if itemsize else 0
        self.slots = cut.slots
        self.nfiles = cut.nshards if itemsize else 0
        self._check_description = check_description

    def stored(self) -> Sequence[int]:
        """Return the numbers of the files that exist, ascending."""
        return self.names.stored(self.folder, self.nfiles)

    def span(self, number: int) -> tuple[int, int]:
        """Return start and stop of a chunk in the plain bytes, or among full chunks."""
        start = number * self.chunk_size
        return start, min(start + self.chunk_size, self.nbytes)

    def numbers(self, start: int, stop: int) -> range:
        """Return the numbers of the chunks that hold the span [start, stop)."""
        return range(start // self.chunk_size, -(-stop // self.chunk_size))

    def cached(self, number: int, size: int) -> Buffer | None:
        """Return the plain bytes of a chunk, of this `size`, if they are in memory."""
        return self._cache.get(number)

    def _work_on(
        self,
        numbers: Sequence[int],
        work: Callable[[Sequence[int]], object],
        has_room: bool,
        quick: bool = False,
    ) -> None:
        """Call `work` for chunks of one file, and the next ones, on several threads.

        `quick` says that threads may not help, as of `ordered`.
        """
        count, size, slots = len(numbers), self.chunk_size, self.slots
        with own_settings:
            is_small = count == 1 or count * size <= LEAST_NBYTES
            if is_small and numbers[0] // slots == numbers[-1] // slots:
                work(numbers)
                return
            limit, nthreads, batch = self._plan(count, has_room, None, slots)
            if self.is_far:  # the threads wait for answers
                limit = max(1, REMOTE_RUN_NBYTES // max(1, size))
                nfiles = len({number // slots for number in numbers})
                nruns = max(nfiles, -(-count // limit))
                nthreads = effective_nthreads(None, nruns)
                nthreads, batch = max(nthreads, min(nruns, REMOTE_FILES)), 1
                quick = False
            runs = self._runs(numbers, limit)
            ordered(runs, work, bool, nthreads, batch, quick, waits=self.is_far)

    def _runs(self, numbers: Sequence[int], limit: int) -> Iterator[Sequence[int]]:
        """Yield the numbers in lists of chunks of one file, which are read together."""
        start, count = 0, len(numbers)
        while start < count:
            end = (numbers[start] // self.slots + 1) * self.slots
            stop = bisect_left(numbers, end, start, min(start + limit, count))
            yield numbers[start:stop]
            start = stop

    def close(self) -> None:
        """Forget the open files: they are closed when no thread reads them."""

    def path_of(self, number: int) -> str:
        """Return the path of a file."""
        return self.folder.path(self.names(number))

    def check_size(self, number: int, size: int, nbytes: int) -> None:
        """Raise `FormatError` if a file of `size` bytes can't hold `nbytes` bytes."""
        if nbytes > size * MAX_RATIO:
            raise chunk_damage(
                "expected chunks of '%d' plain bytes, found a file of '%d' bytes"
                % (nbytes, size),
                filename=self.path_of(number),
            )

    def check_files(self) -> None:
        """Raise `FormatError` unless each file exists, and can hold its plain bytes."""
        raise NotImplementedError


def check_whole(storage: Storage, slots: int, most: int, path: str) -> None:
    """Raise an error for a compressed member of a ZIP file that would take much memory.

    It is read whole: a shard with its index of `slots` chunks, of at most `most` bytes.
    """
    if slots > MAX_SLOTS:
        raise Unsupported(
            "the shard is compressed by ZIP itself, and its index of '%d' chunks, more "
            "than '%d', is not read: unzip the file" % (slots, MAX_SLOTS),
            filename=path,
        )
    if storage.size > most:
        raise too_long(most, path, storage.size)


def allocate_checked(
    sources: Sequence[ChunkFiles], shape: tuple[int, ...], dtype: DType
) -> Array:
    """Return a new array; raise `FormatError` if the files can't hold so much."""
    if math.prod(shape) * dtype.itemsize >= LARGE:
        for source in sources:
            source.check_files()
    return new_array(shape, dtype)


# Whether an array is still the one that was opened


def description_check(
    folder: Folder,
    name: str,
    seen: object,
    is_same: Callable[[], object],
) -> Callable[[], None]:
    """Return a function that raises `StorageError` if there is another array now.

    A writer may have removed the array since it was opened, and put one with other
    items under its name; or a group commits it now: then the error is `Joined`. Call
    the function after a file of items is opened, and before the items are decoded: as
    long as the description is the one that was `seen`, a call costs one look at an
    inode.

    Parameters
    ----------
    folder, name
        The file of the description.
    seen
        What `Folder.seen` has returned for it before it was read.
    is_same
        Returns whether the items are stored as before, according to the file.
    """

    is_member = folder.tree.state.is_committed_around

    def check() -> None:
        nonlocal seen
        # At a URL, a look at the file would be a round trip.
        if folder.is_remote or isinstance(folder.tree, Draft):
            return
        now = folder.seen(name)
        if now[0] is not None and now == seen:
            return
        try:
            if is_same():
                seen = now
                return
        except (*MISSING, Unsupported):
            pass
        except FormatError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
        if folder.tree.state.is_committed_around and not is_member:
            raise Joined(folder.path())  # with the table that it is a column of
        raise StaleDataset(folder.path())

    return check


# Open files


# Stands for a file that does not exist.
NO_FILE = object()
# Guards changes of the tables of open files.
_lock = ForkSafeLock()
# The files of all arrays, by identity of the `OpenFiles` and number, in the order in
# which they may be dropped.
_recent: dict[tuple[int, int], weakref.ref[OpenFiles]] = {}


class OpenFiles:
    """The open files of an array, by number. Many threads may use it.

    A table may have hundreds of columns, and each column thousands of files. So files
    are dropped, from whichever array: the one that was put here first, unless it was
    used since it was considered last. A file is closed when no thread uses it any more.

    `NO_FILE` is kept for a file that does not exist.

    Attributes
    ----------
    ndropped
        How often files were dropped because there may be others of their names.
    """

    def __init__(self) -> None:
        self._files: dict[int, Any] = {}
        self._used: set[int] = set()
        self.ndropped = 0

    def get(self, number: int) -> Any:
        """Return a file; None if it is not open."""
        file = self._files.get(number)  # without the lock: each step is atomic
        if file is not None:
            self._used.add(number)
        return file

    def put(self, number: int, file: object, since: int) -> None:
        """Keep a file; `since` was the value of `ndropped` before it was opened.

        If files were dropped meanwhile, it may be an old one.
        """
        with _lock.current:
            if since != self.ndropped:
                return
            self._files[number] = file
            self._used.add(number)
            _recent.pop((id(self), number), None)
            # A dictionary keeps the order of insertion.
            _recent[id(self), number] = weakref.ref(self)
            while len(_recent) > LIMIT:
                key, owner = next(iter(_recent.items()))
                del _recent[key]
                files = owner()
                if files is None:
                    continue
                if key[1] in files._used:
                    files._used.discard(key[1])
                    _recent[key] = owner
                else:
                    files._files.pop(key[1], None)

    def drop(self, numbers: Iterable[int] | None = None) -> None:
        """Drop some files, by default all."""
        with _lock.current:
            self.ndropped += 1
            for number in list(self._files) if numbers is None else numbers:
                _recent.pop((id(self), number), None)
                self._files.pop(number, None)
                self._used.discard(number)
