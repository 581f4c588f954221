"""Write the shards of an array (see `shard_files`).

Strategy: a file is never changed in place. For each file that changes, the chunks are
put together in order: new ones are compressed on all threads, and the frames of chunks
that stay are copied as bytes. Their digests are copied with them, and prove them to
later readers.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import BinaryIO, NamedTuple

import numpy

from ..._commit.change import Change, UnfinishedFile
from ..._engine.blosc_settings import own_settings
from ..._engine.forks import cached_property
from ..._engine.threads import Line, ordered
from ..._format.automatic import READ_NBYTES
from ..._format.block_table import (
    LEAST_BLOCKS,
    LEAST_COMPRESSED,
    digest_and_row,
    row_of,
)
from ..._format.blosc_header import decode_header
from ..._format.chunks import check_digest, compress
from ..._format.dtypes import Array
from ..._format.grid import MAX_SLOTS, Grid, Shape, lengths
from ..._format.sections import encode_offsets, free_entries
from ..._format.shard import CHECKSUM, Trailer
from ..._storage.base import Storage, write_all, write_blocks
from ..._storage.folder_store import OpenFile
from ..._types import Buffer
from ...abstract_io import QUICK_CHUNK, RUN_TO_COMPRESS, effective_nthreads
from ...args import BloscArgs
from ...constants import BLOSC_HEADER_LENGTH, CNAME_AVAIL, OFFSET_LENGTH
from ...exceptions import DamageError, FormatError, UsageError
from .base import Blocks
from .shard_files import ShardFiles
from .shard_grid import ShardIndex, Sharding, joined


class Kept(NamedTuple):
    """Chunks that are copied to a shard.

    Attributes
    ----------
    shard
        The number of the shard.
    numbers
        The numbers of the chunks in the old array.
    """

    shard: int
    numbers: list[int]


# The number of a chunk and its items, None if all of them have the fill value.
Piece = tuple[int, Array | None] | Kept
# The number of a chunk, the shape of its items, the chunk, its digest, and its row in
# the table of blocks.
Written = tuple[int, Shape, bytes, bytes, bytes] | Kept

# Number of bytes of frames that wait in memory to be written together.
WAITING_NBYTES = 8 * 2**20
# Number of files that may wait for another thread with all these bytes.
FILES_WAITING = 1
# Number of bytes that are copied at a time where the system can't copy extents.
COPIED_AT_A_TIME = 4 * 2**20
# The codec of chunks of fill values: it makes them shorter than the others do.
CODEC_OF_FILL = "zstd"
# Errors of systems and file systems that can't copy extents.
NO_COPY = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF)


class NewShard:
    """A shard that is being written: frames in order, then `finish`.

    The sections in front of the chunks are written last, when the number of rows is
    known. Their size does not depend on it. Frames wait in memory for each other: every
    call of the system releases the GIL, and may wait for it.
    """

    def __init__(
        self, file: UnfinishedFile, number: int, sharding: Sharding, typesize: int
    ) -> None:
        self.file = file
        self.number = number
        self._fp = file.fp
        self._sharding = sharding
        self._slots = sharding.grid.slots
        self._shape: Shape = (0,) * len(sharding.grid.shape)
        self._typesize = typesize
        self._offsets: list[int] = []
        self._used: list[int] = []  # the slots of the chunks
        self._position = sharding.table_start + OFFSET_LENGTH * self._slots
        self._trailer = Trailer(
            sharding.chunk_nbytes, self._slots, CHECKSUM, self._used
        )
        self._written = self._position  # the frames behind it wait
        self._waiting: list[bytes] = []

    def put(
        self, number: int, shape: Shape, chunk: bytes, digest: bytes, row: bytes
    ) -> None:
        """Write the next chunk and its digest, now or later.

        It has items of `shape`, apart from padding, and `row` in the table of blocks.
        """
        self._cover(number, shape)
        stop = self._position + len(chunk) + len(digest)
        self._trailer.add(self._position, stop, row)
        self._used.append(number % self._slots)
        self._offsets.append(self._position)
        self._waiting += chunk, digest
        self._position = stop
        if self._position - self._written >= WAITING_NBYTES:
            self.flush()

    def flush(self) -> None:
        """Write the frames that wait."""
        write_blocks(self._fp, self._waiting, self._written)
        self._waiting.clear()
        self._written = self._position

    def _cover(self, number: int, shape: Shape) -> None:
        """Note that the chunk in the slot of a number has items of a shape."""
        corner = self._sharding.grid.corner(number % self._slots)
        ends = map(int.__add__, corner, shape)
        self._shape = tuple(map(max, self._shape, ends))

    def copy(self, file: ShardIndex, old: Grid, numbers: Sequence[int]) -> None:
        """Copy the frames of chunks from another file of a grid."""
        self.flush()
        for number in numbers[-1:] if old.is_rows else numbers:
            self._cover(number, lengths(old.box(number)))
        self._used += [number % self._slots for number in numbers]
        pairs = zip(*file.extents_of(numbers), strict=True)
        extents = [pair for pair in pairs if pair[1]]
        # File systems share whole blocks at the same offsets of both files. So copy the
        # front, too, which `finish` replaces.
        is_first = not self._offsets
        for offset, nbytes in joined(extents):
            front = offset if is_first and offset == self._position else 0
            first, size = offset - front, nbytes + front
            copy_extent(file.storage, first, size, self._fp, self._position - front)
            self._position, is_first = self._position + nbytes, False
        position = self._position - sum(nbytes for _, nbytes in extents)
        for number, (_, nbytes) in zip(numbers, extents, strict=True):
            self._offsets.append(position)
            stop = position + nbytes
            self._trailer.add(position, stop, self._row(file, number))
            position = stop
        self._written = self._position

    def _row(self, file: ShardIndex, number: int) -> bytes:
        """Return the row of a chunk that is copied, also from a file without rows."""
        row = file.row(number)
        if row is not None:
            return row.raw
        offset, size = file.extent(number)
        is_known = file.blocks.raw or not (size and self._sharding.has_blocks)
        if is_known or file.storage.is_remote:
            return b""
        try:
            head = decode_header(file.storage.read_at(offset, BLOSC_HEADER_LENGTH))
            if head.nblocks < LEAST_BLOCKS or head.ctbytes < LEAST_COMPRESSED:
                return b""
            frame = memoryview(file.storage.read_at(offset, size))
            chunk, digest = frame[: head.ctbytes], frame[head.ctbytes :]
            check_digest(chunk, digest, CHECKSUM)
        except FormatError:  # a read of the chunk gives the reason
            return b""
        return row_of(chunk)

    def finish(self) -> int:
        """Write the trailer and the sections in front; return the size in bytes."""
        trailer, nchunks = self._trailer.blocks(self._position), len(self._offsets)
        how = self.number, self._shape, nchunks, self._typesize
        front = self._sharding.front(*how) + encode_offsets(self._offsets)
        front += free_entries(self._slots - nchunks)
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
    done = 0
    if isinstance(storage, OpenFile) and hasattr(os, "copy_file_range"):
        source, copied = storage.hold(), fp.fileno()
        fp.flush()
        try:
            while done < nbytes:
                count = os.copy_file_range(
                    *(source.fileno(), copied),
                    *(nbytes - done, offset + done, target + done),
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


@dataclass(eq=False)
class ShardWriter:
    """Writes chunks to the shards of an array, for a change.

    Parameters
    ----------
    change
        The change.
    prefix
        The folder of the array, relative to the dataset.
    sharding, args
        How the array is stored after the change, and the settings of Blosc.
    old
        The array now; its other chunks in the same shards are kept.
    at_once
        Whether a file gets its name when it is complete: the old state of the array can
        be read with it.
    fields
        The names of the fields that lead to the part of an item that this array has;
        blocks without this part are ignored.
    finish_chunk
        Returns a new chunk as it is stored.
    leaves_out
        Whether a shard in which all items have the fill value has no file.

    Attributes
    ----------
    sizes
        The sizes of the written files in bytes, by name.
    """

    change: Change
    prefix: str
    sharding: Sharding
    args: BloscArgs
    old: ShardFiles | None = None
    at_once: bool = True
    fields: Sequence[str] = ()
    finish_chunk: Callable[[bytes], bytes] = bytes
    leaves_out: bool = False

    def __post_init__(self) -> None:
        self.grid = self.sharding.grid
        if self.grid.slots > MAX_SLOTS:
            raise UsageError(
                "a file with room for '%d' chunks can't be written: the tables in it "
                "have room for at most '%d'" % (self.grid.slots, MAX_SLOTS)
            )
        self.sizes: dict[str, int] = {}
        # The shard whose chunks arrive, and those of fill values that it begins with.
        self._arriving = -1
        self._held: list[tuple[int, Shape, bytes, bytes, bytes]] = []
        # The shard that is being written, and the chunks that it may keep: their
        # numbers now and in the old array.
        self._shard = -1
        self._may_keep: Iterator[tuple[int, int]] = iter(())
        self._first_kept: tuple[int, int] | None = None
        self._current: NewShard | None = None
        self._unfinished: set[UnfinishedFile] = set()

    def pieces(self, number: int, items: Array) -> Iterator[Piece]:
        """Yield what is written for a chunk, with the kept chunks in front of it."""
        for name in self.fields:
            if name not in (items.dtype.names or ()):
                return
            items = items[name]
        if not items.size or not self.sharding.dtype.itemsize:  # nothing to store
            return
        shard = number // self.grid.slots
        if shard != self._shard:
            yield from self.kept()
            self._shard = shard
            self._may_keep = self._old_chunks(shard)
            self._first_kept = next(self._may_keep, None)
        yield from self.kept(number)
        if self._first_kept is not None and self._first_kept[0] == number:
            self._first_kept = next(self._may_keep, None)
        yield number, items

    def _old_chunks(self, shard: int) -> Iterator[tuple[int, int]]:
        """Yield the numbers of the chunks that a shard has in the old array.

        Each one is behind the number that it has in the new array.
        """
        old, first = self.old, shard * self.grid.slots
        corner = self.grid.corner(first)
        if old is None or not all(map(int.__lt__, corner, old.cut.shape)):
            return
        before, shape = old.cut.number(corner), self.grid.shape
        has_shrunk = any(map(int.__lt__, shape, old.cut.shape))
        for number in old.cut.chunks_of(before // self.grid.slots):
            new = first + number - before
            if has_shrunk and any(map(int.__ge__, self.grid.corner(new), shape)):
                continue
            yield new, number

    def kept(self, stop: int | None = None) -> Iterator[Piece]:
        """Yield the chunks in front of the number `stop` that the shard keeps.

        Without a number, they are all that are left. A chunk that the file lacks has
        the fill value, and so has one of these alone.
        """
        old, first, run = self.old, self._first_kept, Kept(self._shard, [])
        stop = (self._shard + 1) * self.grid.slots if stop is None else stop
        if old is None or first is None or first[0] >= stop:
            return  # the file may be lost
        file = old.file(first[1] // old.slots)  # that of all of them
        fill = b"".join(self._fill_frame[:2]) if self.leaves_out else b""
        while self._first_kept is not None and self._first_kept[0] < stop:
            number, before = self._first_kept
            self._first_kept = next(self._may_keep, None)
            size = 0
            if file is not None:
                start, size = file.extent(before)
                if self.leaves_out and size == len(fill):
                    is_fill = bytes(file.storage.read_at(start, size)) == fill
                    size = 0 if is_fill else size
            if size:
                run.numbers.append(before)
                continue
            if run.numbers:
                yield run
                run = Kept(self._shard, [])
            yield number, None if self.leaves_out else old.items(before)
        if run.numbers:
            yield run

    # Chunks of fill values

    @cached_property
    def _fill(self) -> bytes:
        """The plain bytes of an item that has the fill value; of text, of a chunk."""
        sharding = self.sharding
        shape = sharding.grid.chunk if sharding.is_text else ()
        fill = numpy.broadcast_to(
            numpy.array(sharding.fill_value, sharding.dtype), shape
        )
        return bytes(sharding.encode(fill))

    def _has_fill_only(self, plain: Buffer) -> bool:
        """Return whether all items in a chunk have the fill value."""
        fill, size = self._fill, len(self._fill)
        if self.sharding.is_text:
            return plain == fill
        items = numpy.frombuffer(plain, "u1")
        ends = items[:size].tobytes(), items[-size:].tobytes()
        return ends == (fill, fill) and bool((items[size:] == items[:-size]).all())

    @cached_property
    def _fill_frame(self) -> tuple[bytes, bytes, bytes]:
        """A chunk of which all items have the fill value, its digest, and its row."""
        args = copy(self.args)
        if CODEC_OF_FILL in CNAME_AVAIL:
            args.cname, args.clevel = CODEC_OF_FILL, 1
            if args.blocksize:  # that of a codec for which Blosc multiplies it
                args.blocksize = max(args.blocksize, READ_NBYTES)
        count = 1 if self.sharding.is_text else math.prod(self.grid.chunk)
        chunk = self.finish_chunk(compress(self._fill * count, args))
        return chunk, *digest_and_row(chunk, CHECKSUM, self.sharding.has_blocks)

    def compress(self, piece: Piece) -> Written:
        """Return what is written for a piece; any thread may call this."""
        if isinstance(piece, Kept):
            return piece
        number, items = piece
        grid = self.grid
        if items is None:
            return number, lengths(grid.box(number)), *self._fill_frame
        shape = items.shape
        if shape != grid.chunk:
            padded = numpy.zeros(grid.chunk, items.dtype)
            if self.sharding.fill_value is not None:
                padded[...] = self.sharding.fill_value
            padded[tuple(slice(0, n) for n in shape)] = items
            items = padded
        plain = self.sharding.encode(items)
        if self.leaves_out and self._has_fill_only(plain):
            return number, shape, *self._fill_frame
        chunk = self.finish_chunk(compress(plain, self.args))
        digests = digest_and_row(chunk, CHECKSUM, self.sharding.has_blocks)
        return number, shape, chunk, *digests

    def deliver(self, piece: Written, finishing: Line) -> None:
        """Write a piece; put a function that finishes the file in front of it."""
        number = piece.shard if isinstance(piece, Kept) else piece[0] // self.grid.slots
        if self._arriving != number:
            self._leave_out()
            shard = self._current
            if shard is not None:
                if len(self._unfinished) > FILES_WAITING:
                    shard.flush()
                finishing.put([partial(self._finish, shard)])
            self._current, self._arriving = None, number
        if self._current is None:
            is_new = self.leaves_out and not isinstance(piece, Kept)
            if is_new and piece[2:] == self._fill_frame:
                self._held.append(piece)  # type: ignore[arg-type]
                return
            self._begin()
        shard = self._current
        assert shard is not None
        if isinstance(piece, Kept):
            assert self.old is not None
            file = self.old.file(piece.numbers[0] // self.grid.slots)
            assert file is not None
            shard.copy(file, self.old.cut, piece.numbers)
        else:
            shard.put(*piece)

    def _begin(self) -> None:
        """Begin the file of the shard whose chunks arrive."""
        number, typesize = self._arriving, self.args.typesize or 0
        name = self.prefix + self.sharding.names(number)
        self.change.make_folders(name)
        file = self.change.begin(name)
        self._unfinished.add(file)
        self._current = NewShard(file, number, self.sharding, typesize)
        for piece in self._held:
            self._current.put(*piece)
        self._held.clear()

    def _leave_out(self) -> None:
        """Remove the file of a shard, all items of which have the fill value."""
        if not self._held:
            return
        name, old = self.sharding.names(self._arriving), self.old
        if old is not None and old.folder.exists(name):  # perhaps a leftover
            if not self.change.removes_shards:
                self._begin()
                return
            self.change.remove(self.prefix + name)
        self._held.clear()

    def close(self) -> None:
        """Finish the last file."""
        self._leave_out()
        if self._current is not None:
            self._finish(self._current)

    def abandon(self) -> None:
        """Remove the files that are not complete."""
        self.change.abandon(*self._unfinished)

    def _finish(self, shard: NewShard) -> None:
        self.sizes[shard.file.name] = shard.finish()
        self.change.finish(shard.file, at_once=self.at_once)
        self._unfinished.discard(shard.file)


def write_shards(writers: Sequence[ShardWriter], blocks: Blocks) -> None:
    """Write chunks to the shards of several arrays, on several threads.

    `blocks` are numbers of chunks, ascending, and their items.
    """
    quick = all(writer.sharding.chunk_nbytes < QUICK_CHUNK for writer in writers)
    nthreads = effective_nthreads(None, None)
    # Finishing a file waits for the disk.
    finishing = Line(lambda finish: finish(), lambda _: None, nthreads)
    try:
        with own_settings:
            size = max(1, *(writer.sharding.chunk_nbytes for writer in writers))
            run = max(1, RUN_TO_COMPRESS // size)
            ordered(
                _pieces(writers, blocks),
                lambda item: (item[0], item[0].compress(item[1])),
                lambda done: done[0].deliver(done[1], finishing),
                *(nthreads, run, quick),
            )
            finishing.finish()
            for writer in writers:
                writer.close()
    except BaseException:
        finishing.close()
        with ExitStack() as stack:  # an error of one array does not stop the others
            for writer in writers:
                stack.callback(writer.abandon)
        raise


def _pieces(
    writers: Sequence[ShardWriter], blocks: Blocks
) -> Iterator[tuple[ShardWriter, Piece]]:
    """Yield what all writers write, each piece with its writer."""
    for chunk, rows in blocks:
        for writer in writers:
            yield from zip(repeat(writer), writer.pieces(chunk, rows), strict=False)
        del rows  # the next block needs the memory
    for writer in writers:
        yield from zip(repeat(writer), writer.kept(), strict=False)
