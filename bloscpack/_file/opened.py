"""A file that stays open while parts of it are read, again and again.

A file that was opened by its name may grow while it is open: an append overwrites the
last chunk, the header and free entries of the offset table. The opened file keeps the
plain bytes that it had: they stay the beginning of the plain bytes. When a read meets
the change, the sections in front of the chunks are read again, through the undo record
if there is one, and the read starts again. Digests prove that a chunk was read whole;
without digests the read starts again if the state of the file has changed. After a
change, a chunk that was read before shows whether this is still the same file.

A file that is replaced under its name changes nothing here: the old file stays open.
"""

from __future__ import annotations

import errno
import math
import os
import zlib
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, BinaryIO

from .._commit.snapshot import BEGINNING_ATTEMPTS, Snapshot
from .._commit.undo import settled
from .._engine.forks import ForkSafeLock
from .._format.array_metadata import Description
from .._storage.base import (
    Closing,
    MemoryStorage,
    Storage,
    naming_errors,
    refuse_text,
)
from .._storage.disk import disk
from .._storage.local import whole_file
from .._storage.paths import is_url, local_path, shown_name
from .._types import Buffer, Path, Seekable, StorageOptions
from ..args import AnyLimits, Limits, effective_limits
from ..constants import MAGIC, MAX_THREADS
from ..exceptions import FormatError, StorageError, UsageTypeError, UsageValueError
from ..file_io import announced_bytes
from ..headers import check_range
from ..serializers import user_metadata
from .array_reader import (
    CACHE_NBYTES,
    ArrayReader,
    ChunkCache,
    ChunkSource,
    Needs,
    Room,
)
from .chunk_reader import MAX_FILE_SIZE, ChunkReader, Witness

# Maximum number of bytes that are looked up as the name of a file; Linux takes no more.
LONGEST_NAME = 4096


def _always_changed(path: Path) -> StorageError:
    return StorageError(
        errno.EAGAIN, "the file was changed each time it was read", shown_name(path)
    )


class OpenedFile(Closing, ChunkSource):
    """A file whose parts are read; `open_parts` makes it. Many threads may use it.

    Attributes
    ----------
    header, metadata, user_metadata
        Header and metadata as they were when the file was opened.
    nbytes, cbytes
        Number of plain bytes, and size of the file, when it was opened.
    nchunks
        Number of chunks when the file was opened.
    chunk_size
        The plain size of all chunks but the last one; 0 if they have several.
    name
        Path or URL of the file; None for file objects and buffers.
    identity
        A value that differs for two files, or two states of a file, with different
        content; None if unknown.
    """

    def __init__(
        self,
        source: Storage | BinaryIO,
        cache: ChunkCache,
        limits: Limits | None,
        name: str | None,
        nthreads: int | None,
    ) -> None:
        self.name = name
        # A file has the `name`, and may change.
        self._source = source
        self._cache = cache
        self._limits = limits
        self._nthreads = nthreads
        self._naming_errors: AbstractContextManager[None] = (
            nullcontext() if name is None else naming_errors(name)
        )
        self._refreshing = ForkSafeLock()
        # A chunk that was read while the file was as it was opened.
        self._witness: Witness | None = None
        # The last state of a changed file in which it was found.
        self._accepted: object = None
        with self._naming_errors:
            reader, self._snapshot = self._read_beginning()
        self._reader = reader
        self._beginning = reader.beginning
        self._index = reader.index  # stays: later ones have the same spans, and more
        self.header = reader.header
        self.metadata = reader.metadata
        self.user_metadata = user_metadata(reader.metadata)
        self.nbytes = reader.index.nbytes
        self.nchunks = reader.index.nchunks
        self.chunk_size = reader.index.chunk_size
        self.cbytes = reader.storage.size
        self.identity: Hashable = reader.storage.identity
        self._version: Hashable = reader.storage.version

    def _read_beginning(self) -> tuple[ChunkReader, Snapshot | None]:
        """Return a reader of the present state, and this state if it may change."""
        source, how = self._source, (self._cache, self._limits)
        if isinstance(source, Storage):
            return ChunkReader(settled(source), *how), None
        name = self.name or ""
        for _ in range(BEGINNING_ATTEMPTS):
            snapshot = Snapshot(name, source)
            try:
                snapshot.undo()
                reader = ChunkReader(whole_file(snapshot.fp), *how)
            except (FormatError, StorageError):
                if snapshot.is_settled():
                    raise
            else:
                if snapshot.is_settled():
                    return reader, snapshot
        raise _always_changed(name)

    def close(self) -> None:
        """Close the file, unless the caller opened it."""
        if self.name is not None:
            self._source.close()

    def version(self) -> tuple[object, ...]:
        """Return a value that differs for other content, the same on each machine."""
        from hashlib import sha256

        beginning = self._beginning
        digest = sha256(beginning.header.encode())
        digest.update(repr(beginning.metadata).encode("utf-8", "surrogatepass"))
        digest.update(beginning.table or b"")
        return self._version, self.cbytes, digest.hexdigest()

    # Positions

    def span(self, number: int) -> tuple[int, int]:
        """Return start and stop of a chunk in the plain bytes."""
        return self._index.span(number)

    def numbers(self, start: int, stop: int) -> range:
        """Return the numbers of the chunks that hold the span [start, stop)."""
        return self._index.numbers(start, stop)

    def extents(self) -> list[tuple[int, int]]:
        """Return where each chunk starts in the file, and where its digest ends.

        Raises `FormatError` if the last chunk is damaged.
        """
        reader = self._reader
        with self._naming_errors:
            end = reader.check_end()
        starts = [reader.index.offset(i) for i in range(self.nchunks)]
        return list(zip(starts, [*starts[1:], end], strict=True)) if starts else []

    # Reading

    def load(
        self,
        numbers: Sequence[int],
        use: Callable[[int, memoryview], object],
        *,
        room: Room | None = None,
        joined: bool = False,
        needs: Needs | None = None,
    ) -> None:
        """Call ``use(number, plain)`` for chunks, as `ChunkSource.load` says."""

        def read(reader: ChunkReader) -> None:
            if reader.index is self._index:
                reader.each(
                    numbers,
                    use,
                    room=room,
                    joined=joined,
                    needs=needs,
                    nthreads=self._nthreads,
                )
            else:
                self._load_as_opened(reader, numbers, use, room)

        self._read_consistently(read)

    def read_part(self, number: int, start: int, view: memoryview) -> None:
        """Fill `view` with plain bytes of a chunk, as `ChunkSource.read_part` says."""

        def read(reader: ChunkReader) -> None:
            is_same = reader.index is self._index
            if not (is_same and reader.read_part(number, start, view)):
                super(OpenedFile, self).read_part(number, start, view)

        self._read_consistently(read)

    def _read_consistently(self, read: Callable[[ChunkReader], None]) -> None:
        """Read by a reader of the present state; again, if the file has changed."""
        with self._naming_errors:
            for _ in range(BEGINNING_ATTEMPTS):
                reader, snapshot = self._reader, self._snapshot
                try:
                    read(reader)
                except (FormatError, StorageError):
                    if not self._refresh(reader):
                        raise
                else:
                    if snapshot is None:
                        return
                    digested = reader.header.checksum_impl.size
                    proven = digested and not reader.replaced_table
                    if snapshot.is_unchanged():
                        self._witness = self._witness or reader.witness
                        return
                    if proven:
                        self._check_witness(reader, snapshot)
                        return
                    self._refresh(reader)
        raise _always_changed(self.name or "")

    def _check_witness(self, reader: ChunkReader, snapshot: Snapshot) -> None:
        """Raise `StorageError` if the file was changed by more than an append.

        Digests prove that a chunk was read whole, not that it is a chunk of the file
        that was opened.
        """
        state = snapshot.current_state()
        if state != self._accepted:
            if not self._has_witness(reader):
                raise self._changed()
            self._accepted = state

    def _has_witness(self, reader: ChunkReader) -> bool:
        """Return whether a chunk that was read before is still in its place."""
        if self._witness is None:
            return True
        offset, size, crc = self._witness
        return zlib.crc32(reader.storage.read_at(offset, size)) == crc

    def _changed(self) -> StorageError:
        return StorageError(
            errno.EIO,
            "the file was changed by more than an append since it was opened",
            self.name,
        )

    def _load_as_opened(
        self,
        reader: ChunkReader,
        numbers: Sequence[int],
        use: Callable[[int, memoryview], object],
        room: Room | None,
    ) -> None:
        """Load chunks of a later state; the last one may have grown since."""

        def room_of_size(number: int) -> memoryview | None:
            fits = reader.index.span(number) == self.span(number)
            return room(number) if room is not None and fits else None

        def use_part(number: int, plain: memoryview) -> None:
            start, stop = self.span(number)
            part = plain[: stop - start]
            if room is not None and len(part) < len(plain):
                target = room(number)
                if target is not None:
                    target[:] = part
                    part = target
            use(number, part)

        reader.each(numbers, use_part, room=room_of_size, nthreads=self._nthreads)

    def _refresh(self, reader: ChunkReader) -> bool:
        """Read the sections again if the file has changed since `reader` was made.

        Return whether it has.
        """
        with self._refreshing:
            if self._reader is not reader:  # another thread has done it
                return True
            if self._snapshot is None or self._snapshot.is_unchanged():
                return False
            reader, snapshot = self._read_beginning()
            if not (self._continues(reader) and self._has_witness(reader)):
                raise self._changed()
            self._reader, self._snapshot = reader, snapshot
            return True

    def _continues(self, reader: ChunkReader) -> bool:
        """Return whether an append can have made the state of `reader` of this file.

        An append moves no chunk. Chunks elsewhere show that a program has written
        another file over this one.
        """
        new, old = reader.index, self._index
        if new.nchunks < old.nchunks or new.nbytes < old.nbytes:
            return False
        if not new.begins_like(old):
            return False
        # All chunks but the last had the same size, and it does not change.
        last = old.nchunks - 1
        return last < 0 or new.span(last)[0] == old.span(last)[0]

    def cached(self, number: int, size: int) -> Buffer | None:
        """Return the plain bytes of a chunk, of this `size`, if they are in memory."""
        return self._cache.get(number, size)

    def read(self, start: int, stop: int) -> bytes:
        """Return the plain bytes of the span [start, stop), fewer at the end."""
        size = max(0, min(stop, self.nbytes) - start)
        result = announced_bytes(size, self.nbytes)
        self.read_into(result.view, start)
        return result.finish()


def reader_of(parts: OpenedFile, description: Description | None = None) -> ArrayReader:
    """Return a reader of the array in a file.

    Raises `FormatError` unless the chunks agree with `description`, by default the
    description in the file.
    """
    if description is None:
        description = Description(parts.metadata)
    description.check_source(parts)
    parts.grid = description.grid
    return ArrayReader(
        parts,
        description.dtype,
        description.shape,
        description.order,
        unit=_common_unit(parts, description.dtype.itemsize),
    )


def _common_unit(parts: OpenedFile, itemsize: int) -> int:
    """Return the size of the largest part of an item in which no chunk ends."""
    if parts.nchunks < 2:
        return itemsize
    # All chunks have this size, except that the last one may be shorter.
    size = parts.header.chunk_size
    if size != -1:
        return math.gcd(itemsize, size)
    return math.gcd(itemsize, *(parts.span(i)[0] for i in range(parts.nchunks)))


def open_parts(
    file: Path | Seekable | Buffer | Storage,
    *,
    cache_nbytes: int = CACHE_NBYTES,
    nthreads: int | None = None,
    limits: AnyLimits | None = None,
    whole: bool = False,
    storage_options: StorageOptions | None = None,
) -> OpenedFile:
    """Open a file whose parts are to be read.

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
    """
    check_range("cache_nbytes", cache_nbytes, 0, MAX_FILE_SIZE)
    if nthreads is not None:
        check_range("nthreads", nthreads, 1, MAX_THREADS)
    checked = effective_limits(limits)
    source, name = open_source(
        file,
        storage_options=storage_options,
        whole=None if whole else False,
        limits=limits,
    )
    try:
        return OpenedFile(source, ChunkCache(cache_nbytes), checked, name, nthreads)
    except BaseException:
        if name is not None:
            source.close()
        raise


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
    if isinstance(file, bytes) and _is_name(file):
        raise UsageValueError(
            "expected the bytes of a Bloscpack file, found the name of a file, %r: "
            "pass the name as text, os.fsdecode(name)" % file
        )
    try:
        return MemoryStorage(file)
    except TypeError as error:
        raise UsageTypeError("expected %s, found %r" % (wanted, file)) from error


def _is_name(content: bytes) -> bool:
    """Return whether bytes are no Bloscpack file, but the name of a local file."""
    if len(content) > LONGEST_NAME or content.startswith(MAGIC) or b"\0" in content:
        return False
    return os.path.lexists(content)
