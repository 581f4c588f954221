"""Chunks that are read one by one, and those of bcolz and BLZ, each in its own file.

Such a file is a header of 16 bytes, which readers skip, and a Blosc chunk. The last
chunk may have more rows than the array: an append was not completed, or the array
shrank. Then its first rows count. Sizes are checked before memory is allocated.

In arrays of Python objects, each item is a pickle in its own chunk.
Unpickling runs code that the file names. So nothing is unpickled unless the caller says
that the files are trustworthy.
"""

from __future__ import annotations

import pickle
import struct
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from ..._arrays.source import CLOSED, Needs, Room
from ..._engine.blosc_settings import own_settings
from ..._engine.threads import ordered
from ..._format.blosc_header import chunk_damage, decode_header
from ..._format.chunks import compress, decompress, decompress_into
from ..._format.dtypes import Array, Key
from ..._format.grid import Grid
from ..._types import Buffer
from ...abstract_io import effective_nthreads
from ...args import BloscArgs
from ...constants import BLOSC_HEADER_LENGTH, MAGIC
from ...exceptions import DamageError, FormatError, ObjectDtypeFound, UsageValueError
from ..folder import Folder
from .array_files import ChunkFiles, FileNames
from .base import Blocks

Write = Callable[[str, bytes], object]

HEADER = struct.Struct("<4sB3xq")
# What it has in each file: the version is 1, and there is one chunk.
HEADER_VALUES = MAGIC, 1, 1
DATA = "data"
# The name of the file of a chunk, by its number.
chunk_name = FileNames(DATA, "__", ".blp")


class SingleChunks(ChunkFiles):
    """Chunks that are read one by one, as a whole, and stay in the cache."""

    @abstractmethod
    def plain(self, number: int, target: memoryview | None = None) -> Buffer:
        """Return the plain bytes of a chunk, which are in `target` if that is given.

        Raises the errors of `ChunkSource.load`.
        """

    def load(
        self,
        numbers: Sequence[int],
        use: Callable[[int, memoryview], object],
        *,
        room: Room | None = None,
        needs: Needs | None = None,
        joined: bool = False,
    ) -> None:
        """Call ``use(number, plain)`` for chunks, as `ChunkSource.load` says."""

        def work(run: Sequence[int]) -> None:
            for number in run:
                target = None if room is None else room(number)
                plain = self._cache.get(number)
                if plain is None:
                    plain = self.plain(number, target)
                    if target is None:
                        self._cache.put(number, plain)
                elif target is not None:
                    target[:] = plain
                if target is None:
                    use(number, memoryview(plain))

        if numbers:
            self._work_on(numbers, work, room is not None)


class FileChunks(SingleChunks):
    """The chunks of one state of an array, each in a file of its own.

    A chunk has any size if it is a pickle (`has_objects`).
    """

    def __init__(
        self,
        folder: Folder,
        cut: Grid,
        itemsize: int,
        check: Callable[[], object],
        *,
        has_objects: bool = False,
    ) -> None:
        super().__init__(folder, chunk_name, cut, itemsize, check)
        self._has_objects = has_objects

    def check_files(self) -> None:
        """Raise `FormatError` unless each chunk has a file, of a possible size."""
        count = 0
        for name, size in self.folder.sizes(DATA):
            number = chunk_name.number(name)
            if number is not None and number < self.nchunks:
                count += 1
                start, stop = self.span(number)
                self.check_size(number, size, stop - start)
        if count < self.nchunks:
            raise chunk_damage(
                "the array has '%d' chunks, but there are only '%d' files of them"
                % (self.nchunks, count),
                filename=self.folder.path(DATA),
            )

    def plain(self, number: int, target: memoryview | None = None) -> Buffer:
        """Return the plain bytes of a chunk; raise `FormatError` for damage."""
        start, stop = self.span(number)
        size, is_last = stop - start, number == self.nchunks - 1
        # Blosc makes a chunk longer by at most its header.
        limit = HEADER.size + self.chunk_size + BLOSC_HEADER_LENGTH
        try:
            content = self.folder.read(
                chunk_name(number), None if self._has_objects else limit
            )
            self._check_description()
            chunk = memoryview(content)[HEADER.size :]
            header = decode_header(chunk)
            chunk = chunk[: header.ctbytes]
            if self._has_objects:
                return decompress(chunk, header)
            if not size <= header.nbytes <= (self.chunk_size if is_last else size):
                raise DamageError(
                    "expected a chunk of '%d' plain bytes, found '%d'"
                    % (size, header.nbytes)
                )
            if target is not None and header.nbytes == size:
                decompress_into(chunk, target, header)
                return target
            plain = decompress(chunk, header)[:size]
        except FileNotFoundError as error:
            self._check_description()
            raise chunk_damage(
                "expected the file of a chunk, found none; if a writer has removed "
                "rows meanwhile, open the dataset again",
                chunk=number,
                filename=self.path_of(number),
            ) from error
        except FormatError as error:
            error.locate(number, HEADER.size)
            error.filename = self.path_of(number)
            raise
        if target is not None:
            target[:] = plain
        return plain


def write_chunks(
    blocks: Blocks, args: BloscArgs, full_rows: int, prefix: str, write: Write
) -> int:
    """Compress blocks of rows on several threads, and write each to a file.

    `write` gets the name of a file, after `prefix`, and its content; any thread may
    call it. Returns the size in bytes of the chunks with `full_rows` rows.
    """
    sizes: list[int] = []

    def work(block: tuple[int, Array]) -> int:
        number, rows = block
        plain = numpy.ascontiguousarray(rows).reshape(-1).view("u1").data
        compressed = compress(plain, args)
        write(prefix + chunk_name(number), HEADER.pack(*HEADER_VALUES) + compressed)
        return len(compressed) if len(rows) == full_rows else 0

    with own_settings:
        ordered(blocks, work, sizes.append, effective_nthreads(None, 2**31), quick=True)
    return sum(sizes)


OBJECT = numpy.dtype(object)


@dataclass(eq=False)
class ObjectReader:
    """Reads items that are pickles, if `allowed`; the array has one axis."""

    source: FileChunks
    allowed: bool
    closed: bool = False

    def get(self, key: Key) -> Any:
        """Return the objects that an index selects."""
        if self.closed:
            raise UsageValueError(CLOSED)
        if not self.allowed:
            raise ObjectDtypeFound(
                "the items are Python objects, and reading them may run code that the "
                "files name; allow_pickle=True reads files that you trust",
                section="metadata",
                filename=self.source.folder.path(),
            )
        # NumPy selects among the numbers of the chunks, each of which is an item.
        every: Array = numpy.arange(self.source.nchunks)
        numbers: Array = numpy.asarray(every[key])  # type: ignore[index]
        items: Array = numpy.empty(numbers.shape, object)
        for index, number in numpy.ndenumerate(numbers):
            content = self.source.plain(int(number))
            try:
                items[index] = pickle.loads(content)
            except Exception as error:  # a pickle may raise anything
                raise chunk_damage(
                    "expected a pickle of '%d' bytes, found another content: %s"
                    % (len(content), error),
                    chunk=int(number),
                    filename=self.source.path_of(int(number)),
                ) from error
        return items[()]
