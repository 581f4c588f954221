"""Write superchunks: files of chunks, each a Zarr shard (see `superchunk_files`).

Strategy: a file is never changed in place. For each file that changes, the chunks are
put together in order: new ones are compressed on all threads, and the frames of chunks
that stay are copied as bytes. Their digests are copied with them, and prove them to
later readers.
"""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice, zip_longest

import numpy

from ..._engine.blosc_settings import own_settings
from ..._engine.threads import for_each
from ..._format import offsets as offset_table
from ..._format.chunks import compress
from ..._format.metadata import encode_section
from ..._format.shard import Trailer
from ..._loop.nthreads import QUICK_CHUNK, effective_nthreads
from ..._storage.base import write_all, write_blocks
from ...args import MetadataArgs
from ...constants import (
    BLOSCPACK_HEADER_LENGTH,
    METADATA_HEADER_LENGTH,
    OFFSET_LENGTH,
)
from ...exceptions import DamageError, UsageError
from ...headers import BloscpackHeader
from .shard_index import CHECKSUM, joined

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, BinaryIO

    from ..._format.dtypes import Array
    from ..._format.metadata import Section
    from ..._storage.base import Storage
    from ...args import BloscArgs
    from ..change import Change, UnfinishedFile
    from .base import Blocks
    from .shard_index import Cut, ShardIndex
    from .shard_place import ShardPlaces
    from .superchunk_files import NameOf, SuperchunkFiles

    # What a writer puts into a file: the frames of chunks that stay, by number, or a
    # number and a new frame.
    Piece = range | tuple[int, bytes, bytes]
    # The same, before compression.
    Pieces = Iterator[tuple[int, Array] | range]
    # A folder, its pieces, and the files that it has now.
    Part = tuple["ShardFolder", Pieces, SuperchunkFiles | None]

# A number that no file has: sections have room for each smaller one.
LAST_FILE = 2**63
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


class MetadataSections:
    """The metadata sections of the files of an array, all of the same size."""

    def __init__(self, cut: Cut, places: ShardPlaces) -> None:
        self._places = places
        self._room = 0
        self._room = len(self.of(LAST_FILE, cut.chunk_rows * cut.slots).front)
        self._room -= METADATA_HEADER_LENGTH
        self.size = self.of(0, 0).size

    def of(self, number: int, nrows: int) -> Section:
        """Return the section of a file that has `nrows` rows."""
        args = MetadataArgs(meta_codec=None, max_meta_size=lambda n: max(n, self._room))
        return encode_section(self._places.metadata(number, nrows), args)


class ShardWriter:
    """A file that is being written: frames in order, then `finish`.

    The sections in front of the chunks are written last, when the number of rows is
    known. Their size does not depend on it. Frames wait in memory for each other: every
    call of the system releases the GIL, and may wait for it.
    """

    def __init__(
        self,
        fp: BinaryIO,
        number: int,
        cut: Cut,
        typesize: int,
        metadata: MetadataSections,
    ) -> None:
        self._fp = fp
        self._number = number
        self._cut = cut
        self._typesize = typesize
        self._metadata = metadata
        self._offsets: list[int] = []
        self._last_nbytes = 0
        table = BLOSCPACK_HEADER_LENGTH + metadata.size
        self._position = table + OFFSET_LENGTH * cut.slots
        self._trailer = Trailer(cut.chunk_nbytes, cut.slots, CHECKSUM)
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
        self._last_nbytes = self._cut.chunk_nbytes

    def finish(self) -> int:
        """Write the trailer and the sections in front; return the size in bytes."""
        trailer = self._trailer.blocks(self._position)
        cut, nchunks = self._cut, len(self._offsets)
        nbytes = (nchunks - 1) * cut.chunk_nbytes + self._last_nbytes
        header = BloscpackHeader(
            offsets=True,
            metadata=True,
            checksum=CHECKSUM.name,
            typesize=self._typesize,
            chunk_size=min(nbytes, cut.chunk_nbytes),
            last_chunk=self._last_nbytes,
            nchunks=nchunks,
            max_app_chunks=cut.slots - nchunks,
        )
        table = offset_table.encode(self._offsets)
        table += offset_table.free_entries(cut.slots - nchunks)
        section = self._metadata.of(self._number, nbytes // cut.row_nbytes)
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


class ShardFolder:
    """Writes the files of an array for a change.

    Parameters
    ----------
    change
        The change.
    name_of
        The names of the files, relative to the dataset.
    cut
        How the array is cut.
    args
        Settings of Blosc.
    places
        The metadata of the files, by which a reader knows their places.
    at_once
        Whether a file gets its name when it is complete: the old state of the array can
        be read with it.
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
        name_of: NameOf,
        cut: Cut,
        args: BloscArgs,
        places: ShardPlaces,
        *,
        at_once: bool,
        finish_chunk: Callable[[bytes], bytes] = bytes,
    ) -> None:
        if cut.slots > MAX_SLOTS:
            raise UsageError(
                "a file with room for '%d' chunks can't be written: the tables in it "
                "have room for at most '%d'" % (cut.slots, MAX_SLOTS)
            )
        self.sizes: dict[str, int] = {}
        self._finish_chunk = finish_chunk
        self._change = change
        self._name_of = name_of
        self._cut = cut
        self._args = args
        self._places = places
        self._at_once = at_once
        self._metadata: MetadataSections | None = None  # until there is a file
        self._number = -1
        self._current: tuple[UnfinishedFile, ShardWriter] | None = None
        self._unfinished: set[UnfinishedFile] = set()

    def write(self, blocks: Blocks, old: SuperchunkFiles | None = None) -> None:
        """Write blocks of rows, on several threads; `pieces` has the parameters."""
        write_folders([(self, self.pieces(blocks, old), old)])

    def pieces(self, blocks: Blocks, old: SuperchunkFiles | None) -> Pieces:
        """Return what `write_folders` writes.

        Parameters
        ----------
        blocks
            Numbers of chunks, ascending, and their rows.
        old
            The array now; its other chunks in the same files are kept.
        """
        if not self._cut.row_nbytes:  # there is nothing to store
            for _ in blocks:
                pass
            return iter(())
        return iter(blocks) if old is None else kept_and_new(blocks, old)

    def compress(self, piece: tuple[int, Array] | range) -> Piece:
        """Return what is written for a piece; any thread may call this."""
        if isinstance(piece, range):
            return piece
        number, rows = piece
        plain: Any = numpy.ascontiguousarray(rows).reshape(-1).view("u1")
        chunk = self._finish_chunk(compress(plain, self._args))
        return number, chunk, CHECKSUM(chunk)

    def deliver(
        self, old: SuperchunkFiles | None, piece: Piece
    ) -> Callable[[], object] | None:
        """Write a piece; return a function that finishes the file in front of it."""
        first = piece[0]
        finish = None
        if first // self._cut.slots != self._number:
            if self._current is not None:
                finish = partial(self._finish, *self._current)
                if len(self._unfinished) > FILES_WAITING:
                    self._current[1].flush()
            self._begin(first // self._cut.slots)
        assert self._current is not None
        writer = self._current[1]
        if isinstance(piece, range):
            assert old is not None
            file = old.file(self._number)
            assert file is not None
            start = self._number * self._cut.slots
            writer.copy(file, range(first - start, piece.stop - start))
        else:
            writer.put(*piece[1:])
        return finish

    def _begin(self, number: int) -> None:
        name = self._name_of(number)
        parts = name.split("/")[:-1]
        for count in range(1, len(parts) + 1):
            self._change.make_folder("/".join(parts[:count]))
        file = self._change.begin(name)
        self._unfinished.add(file)
        self._number = number
        if self._metadata is None:
            self._metadata = MetadataSections(self._cut, self._places)
        typesize = self._args.typesize or 0
        writer = ShardWriter(file.fp, number, self._cut, typesize, self._metadata)
        self._current = file, writer

    @property
    def chunk_nbytes(self) -> int:
        """Plain size of a chunk in bytes."""
        return self._cut.chunk_nbytes

    def close(self) -> None:
        """Finish the last file."""
        if self._current is not None:
            self._finish(*self._current)

    def abandon(self) -> None:
        """Remove the files that are not complete."""
        self._change.abandon(*self._unfinished)

    def _finish(self, file: UnfinishedFile, writer: ShardWriter) -> None:
        self.sizes[file.name] = writer.finish()
        self._change.finish(file, at_once=self._at_once)
        self._unfinished.discard(file)


def write_folders(parts: Sequence[Part]) -> None:
    """Write the pieces of several folders side by side, on several threads."""

    def work(item: tuple[int, tuple[int, Array] | range]) -> tuple[int, Piece]:
        return item[0], parts[item[0]][0].compress(item[1])

    def deliver(done: tuple[int, Piece]) -> Callable[[], object] | None:
        folder, _, old = parts[done[0]]
        return folder.deliver(old, done[1])

    quick = all(folder.chunk_nbytes < QUICK_CHUNK for folder, _, _ in parts)
    try:
        with own_settings:
            nthreads = effective_nthreads(None, None)
            items = _in_turn([pieces for _, pieces, _ in parts])
            first: list[tuple[int, tuple[int, Array] | range]] = []
            try:
                first.extend(islice(items, FEW_PIECES))
            except Exception as error:  # raised after the pieces in front of it
                items = _failing(error)
            nblocks = sum(isinstance(piece, tuple) for _, piece in first)
            if len(first) < FEW_PIECES and nblocks < 2:
                nthreads = 1
            for_each(chain(first, items), work, deliver, nthreads, quick=quick)
            for folder, _, _ in parts:
                folder.close()
    except BaseException:
        with ExitStack() as stack:  # an error of one folder does not keep the others
            for folder, _, _ in parts:
                stack.callback(folder.abandon)
        raise


def _failing(error: Exception) -> Iterator[Any]:
    """Raise an error when the first item is taken."""
    raise error
    yield


def _in_turn(parts: list[Pieces]) -> Iterator[tuple[int, tuple[int, Array] | range]]:
    """Yield the next piece of each part, with the number of the part, until all end."""
    for pieces in zip_longest(*parts):
        for number, piece in enumerate(pieces):
            if piece is not None:
                yield number, piece


def kept_and_new(
    blocks: Blocks, old: SuperchunkFiles
) -> Iterator[tuple[int, Array] | range]:
    """Yield the chunks of all files that change, in order.

    A range has the numbers of full chunks that are copied. The others are `blocks`, and
    chunks of the old array that are not stored in full.
    """
    slots = old.cut.slots
    place = 0  # number of the next chunk
    for number, rows in blocks:
        start = number // slots * slots
        if place < start:
            yield from _kept_to_end(old, place)
            place = start
        yield from _kept(old, place, number)
        yield number, rows
        place = number + 1
    yield from _kept_to_end(old, place)


def _kept_to_end(
    old: SuperchunkFiles, place: int
) -> Iterator[tuple[int, Array] | range]:
    """Yield the chunks from `place` to the end of the file that it is in."""
    end = -(-place // old.cut.slots) * old.cut.slots
    yield from _kept(old, place, min(end, old.nchunks))


def _kept(
    old: SuperchunkFiles, start: int, stop: int
) -> Iterator[tuple[int, Array] | range]:
    """Yield chunks of the old array, all in one file."""
    if start >= stop:
        return
    cut = old.cut
    file = old.file(start // cut.slots)
    full = old.nrows // cut.chunk_rows
    first = start
    for number in range(start, stop):
        if file is None or number >= full or not file.extents[number % cut.slots]:
            if first < number:
                yield range(first, number)
            first = number + 1
            end = min((number + 1) * cut.chunk_rows, old.nrows)
            yield number, old.rows(number * cut.chunk_rows, end)
    if first < stop:
        yield range(first, stop)
