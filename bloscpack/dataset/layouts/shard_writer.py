"""Write the shards of an array (see `shard_files`).

Strategy: a file is never changed in place. For each file that changes, the chunks are
put together in order: new ones are compressed on all threads, and the frames of chunks
that stay are copied as bytes. Their digests are copied with them, and prove them to
later readers.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy

from ..._commit.new_files import Change, UnfinishedFile
from ..._engine.blosc_settings import own_settings
from ..._engine.threads import for_each
from ..._format.chunks import compress
from ..._format.sections import encode_offsets, free_entries
from ..._format.shard import Trailer
from ..._loop import QUICK_CHUNK, effective_nthreads
from ..._storage.base import Storage, write_all, write_blocks
from ...args import BloscArgs
from ...constants import BLOSCPACK_HEADER_LENGTH, OFFSET_LENGTH
from ...exceptions import DamageError, UsageError
from ...headers import BloscpackHeader
from .shard_files import ShardFiles
from .shard_grid import CHECKSUM, ShardGrid, ShardIndex, joined

if TYPE_CHECKING:
    from ..._format.dtypes import Array
    from .base import Blocks

    # The number of a chunk and its rows, or the numbers of full chunks that are copied.
    Piece = tuple[int, Array] | range

# The same, with the frame of the chunk, compressed: chunk and digest.
Written = tuple[int, bytes, bytes] | range

# Maximum number of chunks of a file: its tables of 24 bytes for each are in memory.
MAX_SLOTS = 2**24
# Number of bytes of frames that wait in memory to be written together.
WAITING_NBYTES = 8 * 2**20
# Number of files that may wait for another thread with all these bytes.
FILES_WAITING = 4
# A change with fewer pieces, of which only one is compressed, needs no other thread:
# that takes longer to start.
FEW_PIECES = 4
# Number of bytes that are copied at a time where the system can't copy extents.
COPIED_AT_A_TIME = 4 * 2**20
# Errors of systems and file systems that can't copy extents.
NO_COPY = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF)


class NewShard:
    """A shard that is being written: frames in order, then `finish`.

    The sections in front of the chunks are written last, when the number of rows is
    known. Their size does not depend on it. Frames wait in memory for each other: every
    call of the system releases the GIL, and may wait for it.
    """

    def __init__(
        self, file: UnfinishedFile, number: int, grid: ShardGrid, typesize: int
    ) -> None:
        self.file = file
        self.number = number
        self._fp = file.fp
        self._grid = grid
        self._typesize = typesize
        self._offsets: list[int] = []
        self._last_nbytes = 0
        table = BLOSCPACK_HEADER_LENGTH + grid.section_size
        self._position = table + OFFSET_LENGTH * grid.slots
        self._trailer = Trailer(grid.chunk_nbytes, grid.slots, CHECKSUM)
        self._written = self._position  # the frames behind it wait
        self._waiting: list[bytes] = []

    def put(self, chunk: bytes, digest: bytes) -> None:
        """Write the next chunk and its digest, now or later."""
        self._last_nbytes = self._trailer.add_frame(self._position, chunk)
        self._offsets.append(self._position)
        self._waiting += chunk, digest
        self._position += len(chunk) + len(digest)
        if self._position - self._written >= WAITING_NBYTES:
            self.flush()

    def flush(self) -> None:
        """Write the frames that wait."""
        write_blocks(self._fp, self._waiting, self._written)
        self._waiting.clear()
        self._written = self._position

    def copy(self, file: ShardIndex, slots: range) -> None:
        """Copy the frames of full chunks from another file."""
        self.flush()
        extents = [extent for slot in slots if (extent := file.extents[slot])]
        for offset, nbytes in joined(extents):
            copy_extent(file.storage, offset, nbytes, self._fp, self._position)
            self._position += nbytes
        position = self._position - sum(nbytes for _, nbytes in extents)
        for _, nbytes in extents:
            self._offsets.append(position)
            self._trailer.add(position, position + nbytes)
            position += nbytes
        self._written = self._position
        self._last_nbytes = self._grid.chunk_nbytes

    def finish(self) -> int:
        """Write the trailer and the sections in front; return the size in bytes."""
        trailer = self._trailer.blocks(self._position)
        grid, nchunks = self._grid, len(self._offsets)
        nbytes = (nchunks - 1) * grid.chunk_nbytes + self._last_nbytes
        header = BloscpackHeader(
            offsets=True,
            metadata=True,
            checksum=CHECKSUM.name,
            typesize=self._typesize,
            chunk_size=min(nbytes, grid.chunk_nbytes),
            last_chunk=self._last_nbytes,
            nchunks=nchunks,
            max_app_chunks=grid.slots - nchunks,
        )
        table = encode_offsets(self._offsets)
        table += free_entries(grid.slots - nchunks)
        section = grid.section(self.number, nbytes // grid.row_nbytes)
        front = b"".join((header.encode(), *section.blocks(), table))
        if self._written == len(front):  # no frame has been written yet
            write_blocks(self._fp, [front, *self._waiting, *trailer], 0)
        else:
            write_blocks(self._fp, [*self._waiting, *trailer], self._written)
            write_blocks(self._fp, [front], 0)
        self._waiting.clear()
        return self._position + sum(map(len, trailer))


def copy_extent(
    storage: Storage, offset: int, nbytes: int, fp: BinaryIO, target: int
) -> None:
    """Copy bytes of a storage to the position `target` of a file, which moves on.

    The system copies them, if it can: some file systems only share them.
    """
    descriptor = getattr(storage, "descriptor", None)
    done = 0
    if descriptor is not None and hasattr(os, "copy_file_range"):
        fp.flush()
        try:
            while done < nbytes:
                count = os.copy_file_range(
                    descriptor, fp.fileno(), nbytes - done, offset + done, target + done
                )
                if not count:
                    break
                done += count
        except OSError as error:
            if error.errno not in NO_COPY:
                raise
    fp.seek(target + done)
    while done < nbytes:
        block = storage.read_at(offset + done, min(nbytes - done, COPIED_AT_A_TIME))
        if not block:
            raise DamageError("the file ends in a chunk", section="chunks")
        write_all(fp, block)
        done += len(block)
    fp.flush()


class ShardWriter:
    """Writes blocks of rows to the shards of an array, for a change.

    Parameters
    ----------
    change
        The change.
    prefix
        The folder of the array, relative to the dataset.
    grid, args
        How the array is cut, and the settings of Blosc.
    old
        The array now; its other chunks in the same shards are kept.
    at_once
        Whether a file gets its name when it is complete: the old state of the array can
        be read with it.
    part_of
        Returns the part of rows that this array has; None for all of them.
    finish_chunk
        Returns a new chunk as it is stored.

    Attributes
    ----------
    sizes
        The sizes of the written files in bytes, by name.
    """

    def __init__(
        self,
        change: Change,
        prefix: str,
        grid: ShardGrid,
        args: BloscArgs,
        old: ShardFiles | None = None,
        *,
        at_once: bool = True,
        part_of: Callable[[Array], Array] | None = None,
        finish_chunk: Callable[[bytes], bytes] = bytes,
    ) -> None:
        if grid.slots > MAX_SLOTS:
            raise UsageError(
                "a file with room for '%d' chunks can't be written: the tables in it "
                "have room for at most '%d'" % (grid.slots, MAX_SLOTS)
            )
        self.sizes: dict[str, int] = {}
        self.grid = grid
        self._finish_chunk = finish_chunk
        self._change = change
        self._prefix = prefix
        self._args = args
        self._part_of = part_of
        self._old = old
        self._at_once = at_once
        self._next = 0  # number of the chunk behind the last piece
        self._current: NewShard | None = None
        self._unfinished: set[UnfinishedFile] = set()

    def pieces(self, number: int, rows: Array) -> Iterator[Piece]:
        """Yield what is written for a chunk, with the kept chunks in front of it."""
        if not self.grid.row_nbytes:  # there is nothing to store
            return
        start = number // self.grid.slots * self.grid.slots
        if self._next < start:
            yield from self.rest()
            self._next = start
        yield from self._kept(self._next, number)
        self._next = number + 1
        yield number, rows if self._part_of is None else self._part_of(rows)

    def rest(self) -> Iterator[Piece]:
        """Yield the kept chunks behind the last piece, up to the end of its file."""
        slots, start = self.grid.slots, self._next
        yield from self._kept(start, -(-start // slots) * slots)

    def _kept(self, start: int, stop: int) -> Iterator[Piece]:
        """Yield the chunks of the old array in a span, which is in one file.

        A range has the numbers of full chunks that are copied. The rows of chunks that
        are not stored in full are read.
        """
        old, grid = self._old, self.grid
        if old is None or start >= min(stop, old.nchunks):
            return
        file = old.file(start // grid.slots)
        full = old.nrows // grid.chunk_rows
        first, stop = start, min(stop, old.nchunks)
        for number in range(start, stop):
            if file is None or number >= full or not file.extents[number % grid.slots]:
                if first < number:
                    yield range(first, number)
                first = number + 1
                end = min(first * grid.chunk_rows, old.nrows)
                yield number, old.rows(number * grid.chunk_rows, end)
        if first < stop:
            yield range(first, stop)

    def compress(self, piece: Piece) -> Written:
        """Return what is written for a piece; any thread may call this."""
        if isinstance(piece, range):
            return piece
        number, rows = piece
        plain: Any = numpy.ascontiguousarray(rows).reshape(-1).view("u1")
        chunk = self._finish_chunk(compress(plain, self._args))
        return number, chunk, CHECKSUM(chunk)

    def deliver(self, piece: Written) -> Callable[[], object] | None:
        """Write a piece; return a function that finishes the file in front of it."""
        slots = self.grid.slots
        number, shard, finish = piece[0] // slots, self._current, None
        if shard is None or shard.number != number:
            if shard is not None:
                finish = partial(self._finish, shard)
                if len(self._unfinished) > FILES_WAITING:
                    shard.flush()
            self._current = shard = self._begin(number)
        if isinstance(piece, range):
            assert self._old is not None
            file = self._old.file(number)
            assert file is not None
            start = number * slots
            shard.copy(file, range(piece.start - start, piece.stop - start))
        else:
            shard.put(*piece[1:])
        return finish

    def _begin(self, number: int) -> NewShard:
        name = self._prefix + self.grid.names(number)
        parts = name.split("/")[:-1]
        for count in range(1, len(parts) + 1):
            self._change.make_folder("/".join(parts[:count]))
        file = self._change.begin(name)
        self._unfinished.add(file)
        return NewShard(file, number, self.grid, self._args.typesize or 0)

    def close(self) -> None:
        """Finish the last file."""
        if self._current is not None:
            self._finish(self._current)

    def abandon(self) -> None:
        """Remove the files that are not complete."""
        self._change.abandon(*self._unfinished)

    def _finish(self, shard: NewShard) -> None:
        self.sizes[shard.file.name] = shard.finish()
        self._change.finish(shard.file, at_once=self._at_once)
        self._unfinished.discard(shard.file)


def write_shards(writers: Sequence[ShardWriter], blocks: Blocks) -> None:
    """Write blocks of rows to the shards of several arrays, on several threads.

    `blocks` are numbers of chunks, ascending, and their rows.
    """

    def work(item: tuple[int, Piece]) -> tuple[int, Written]:
        return item[0], writers[item[0]].compress(item[1])

    def deliver(done: tuple[int, Written]) -> Callable[[], object] | None:
        return writers[done[0]].deliver(done[1])

    quick = all(writer.grid.chunk_nbytes < QUICK_CHUNK for writer in writers)
    try:
        with own_settings:
            nthreads = effective_nthreads(None, None)
            items = _pieces(writers, blocks)
            first = list(islice(items, FEW_PIECES))
            nblocks = sum(isinstance(piece, tuple) for _, piece in first)
            if len(first) < FEW_PIECES and nblocks < 2:
                nthreads = 1
            for_each(chain(first, items), work, deliver, nthreads, quick=quick)
            for writer in writers:
                writer.close()
    except BaseException:
        with ExitStack() as stack:  # an error of one array does not keep the others
            for writer in writers:
                stack.callback(writer.abandon)
        raise


def _pieces(
    writers: Sequence[ShardWriter], blocks: Blocks
) -> Iterator[tuple[int, Piece]]:
    """Yield what all writers write, each piece with the number of its writer."""
    for chunk, rows in blocks:
        for number, writer in enumerate(writers):
            yield from zip(repeat(number), writer.pieces(chunk, rows), strict=False)
        del rows  # the next block needs the memory
    for number, writer in enumerate(writers):
        yield from zip(repeat(number), writer.rest(), strict=False)
