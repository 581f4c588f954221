"""Write plain bytes of unknown length, to a new file or to the end of an old one.

Strategy: `Written` cuts the bytes into chunks. Worker threads compress them while
the caller produces the next bytes; the thread of the caller stores them. The first
compressed chunks stay in memory. If the caller closes the file by then, the number of
chunks is known before anything is written, and the file is the one that `pack` writes.
Otherwise the rest is stored in one of three ways:

- In a new file, space for a large offset table is reserved in front of the
  chunks. If there are even more chunks, all of them are moved at the end.
- In a file object that can seek, there is no offset table, and the header is completed
  at the end.
- In a pipe there is no offset table, and the header says that the length is unknown.
  The chunks are not kept in memory.

Contract: every output here has the same methods. ``write`` takes a view of bytes, which
the caller may change afterwards. ``flush`` stores the chunks that are complete.
``finish`` completes the output: only then does a path refer to the new content.
``abandon`` takes the error that ended the writing; a path then has its old content, and
no temporary file remains.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import IO, Any

from .._commit.locking import LockedFile, open_locked
from .._commit.replacing import replacing
from .._commit.undo import changeable
from .._engine.blosc_settings import own_settings
from .._engine.threads import Line
from .._format.append_plan import UNCHANGED
from .._format.chunks import compress
from .._format.sections import Section, encode_section, free_entries
from .._storage.base import bytes_left, naming_errors
from .._storage.local import FileRange
from .._storage.paths import local_path, without_url
from .._storage.stream import is_stream
from .._types import Buffer, StorageOptions, Writable
from ..abstract_io import RUN_TO_COMPRESS, effective_nthreads, header_for
from ..args import (
    BLOSC_ARGS,
    MetadataArgs,
    PackKeywords,
    calculate_nchunks,
    parse_chunk_size,
    settings_of,
)
from ..checksums import CHECKSUMS_LOOKUP
from ..exceptions import StorageError, UsageError
from ..file_io import CompressedFPSink, is_seekable
from ..headers import plain_number
from .appending import AppendSettings, append_chunks, append_locked, read_sections

# Inserts bytes at a position of the output; the bytes from there to another
# position move.
Insert = Callable[[bytes, int, int], None]

# Compressed chunks, each with its digest.
Frames = list[tuple[bytes, bytes]]

# Number of compressed bytes that are kept in memory until the length of the file is
# known. The reserved offset table must be short compared with them.
KEPT_NBYTES = 32 * 2**20
# Minimum number of entries of a reserved offset table: 512 KiB, which are enough for
# 64 GiB in chunks of the default size.
RESERVED_ENTRIES = 2**16
# The table also has entries for this many times the chunks that were kept, like the
# tables that `pack` writes.
GROWTH = 11
# Number of bytes that are moved at a time.
MOVED_AT_A_TIME = 4 * 2**20


class OutputSettings:
    """The checked settings of a `BloscpackFile`, and its encoded metadata."""

    def __init__(
        self,
        chunk_size: int | str,
        metadata: object,
        nthreads: int | None,
        sync: bool | None,
        storage_options: StorageOptions | None,
        keywords: PackKeywords,
    ) -> None:
        self.nthreads = nthreads
        self.sync = sync
        self.storage_options = storage_options
        self.blosc_args, self.bloscpack_args, metadata_args = settings_of(
            None, None, None, keywords
        )
        self.blosc_args.check()
        self.bloscpack_args.check()
        self.bloscpack_args.effective_max_app_chunks(1)
        self.chunk_size = parse_chunk_size(chunk_size)
        self.section: Section | None = None
        if metadata is not None:
            self.section = encode_section(metadata, metadata_args)
        # A file that exists keeps the other settings.
        of_blosc: Any = {k: v for k, v in keywords.items() if k in BLOSC_ARGS}
        new_metadata = UNCHANGED if metadata is None else metadata
        self.appending = AppendSettings(
            None, metadata=new_metadata, nthreads=nthreads, **of_blosc
        )


class _Sink(CompressedFPSink):
    """A sink for chunks whose number is known at the end.

    With `insert`, the number of chunks in the header is preliminary. At the end header
    and offset table are written again, the latter with at least `free` free entries.
    """

    def __init__(self, out_fp: Writable, insert: Insert | None, free: int) -> None:
        super().__init__(out_fp)
        self._insert = insert
        self._free = free

    def finalize(self) -> None:
        if self._insert is None:
            super().finalize()
            return
        header = self.bloscpack_header
        room = header.nchunks + header.max_app_chunks
        missing = self._nput + self._free - room
        if missing > 0:
            entries = free_entries(missing)  # all chunks move behind them
            self._insert(entries, self.offset_storage[0], self._position)
            distance = len(entries)
            self.offset_storage = [offset + distance for offset in self.offset_storage]
            self._position += distance
            self.output_fp.seek(distance, os.SEEK_CUR)
            room += missing
        header.nchunks, header.last_chunk = self._nput, self._last_nbytes
        header.max_app_chunks = room - self._nput
        super().finalize()
        self._overwrite(self._position, header.encode())


class Output:
    """The contract of this module.

    `opened` is what has to be left at the end: with the error of `abandon`, or without
    an error. ``begins_file`` says whether the first byte that is written begins the
    plain bytes.
    """

    begins_file = True

    def __init__(self, opened: ExitStack) -> None:
        self._opened = opened

    def write(self, view: Buffer) -> None:
        """Write bytes, perhaps later."""
        raise NotImplementedError

    def flush(self) -> None:
        """Store the chunks that are complete."""

    def finish(self) -> None:
        """Complete the output."""
        self._opened.close()

    def abandon(self, error: BaseException) -> None:
        """Drop the output because of an error."""
        self._opened.__exit__(type(error), error, error.__traceback__)

    def leave(self) -> None:
        """Close the files in a process that has inherited the output.

        Otherwise the order in which Python drops them at the end of the process decides
        what happens to the buffers and the file positions of the owner.
        """
        Output.abandon(self, StorageError("the output belongs to another process"))


class Written(Output):
    """A new file, or a file object of the caller: chunks are written as they come.

    All methods must be called by one thread at a time. After an error nothing more can
    be written.

    Parameters
    ----------
    opening
        Yields the output, which is used from its current position on.
    settings
        The settings.
    insert_into
        Returns how bytes are inserted into the output, if it is a new file that no
        other program uses.
    """

    def __init__(
        self,
        opening: AbstractContextManager[Any],
        settings: OutputSettings,
        insert_into: Callable[[Any], Insert | None],
    ) -> None:
        self._settings = settings
        self._checksum = CHECKSUMS_LOOKUP[settings.bloscpack_args.checksum]
        self._sink: _Sink | None = None
        self._kept: Frames = []
        self._kept_nbytes = 0
        self._nbytes = 0
        # Plain bytes that do not fill a batch yet.
        self._batch = bytearray()
        chunk_size = settings.chunk_size
        self._batch_nbytes = chunk_size * max(1, RUN_TO_COMPRESS // chunk_size)
        nthreads = effective_nthreads(settings.nthreads, None)
        self._line = Line(self._compress, self._deliver, nthreads)
        with ExitStack() as stack:
            self._fp = stack.enter_context(opening)
            self._insert = insert_into(self._fp)
            self._can_seek = is_seekable(self._fp)
            super().__init__(stack.pop_all())

    def write(self, view: Buffer) -> None:
        """Write bytes; the caller may change `view` afterwards."""
        self._nbytes += len(view)
        room = self._batch_nbytes - len(self._batch)
        if len(view) < room:
            self._batch += view
            return
        if self._batch:
            self._batch += view[:room]
            batch, self._batch = self._batch, bytearray()
            self._line.put([batch])
            view = view[room:]
        while len(view) >= self._batch_nbytes:
            self._line.put([bytes(view[: self._batch_nbytes])])
            view = view[self._batch_nbytes :]
        self._batch += view

    def flush(self) -> None:
        """Store all chunks that are complete."""
        size = self._settings.chunk_size
        complete = len(self._batch) // size * size
        if complete:
            self._line.put([self._batch[:complete]])
            self._batch = self._batch[complete:]
        self._line.finish()
        if hasattr(self._fp, "flush"):
            self._fp.flush()

    def finish(self) -> None:
        """Store the rest, and complete the output; nothing can be written any more."""
        if self._batch or not self._nbytes:  # an empty file has an empty chunk
            self._line.put([self._batch])
            self._batch = bytearray()
        self._line.finish()
        if self._sink is None:  # all chunks are in memory
            args = self._settings.bloscpack_args
            sizes = calculate_nchunks(self._nbytes, self._settings.chunk_size)
            self._begin(sizes, args.effective_max_app_chunks(sizes[0]), None)
        assert self._sink is not None
        self._sink.finalize()
        self._line.close()
        super().finish()

    def abandon(self, error: BaseException) -> None:
        """Drop everything that has not been stored."""
        self._line.close()
        super().abandon(error)

    def _compress(self, batch: bytes | bytearray) -> Frames:
        """Return the compressed chunks of a batch, with digests."""
        view, size = memoryview(batch), self._settings.chunk_size
        frames = []
        with own_settings:
            for start in range(0, len(view) or 1, size):
                try:
                    chunk = view[start : start + size]
                    compressed = compress(chunk, self._settings.blosc_args)
                except MemoryError as error:
                    raise StorageError(
                        "there is no memory to compress chunks of '%d' bytes" % size
                    ) from error
                frames.append((compressed, self._checksum(compressed)))
        return frames

    def _deliver(self, frames: Frames) -> None:
        """Store the chunks of a batch, or keep them."""
        if self._sink is not None:
            for compressed, digest in frames:
                self._sink.store(0, compressed, digest)
            return
        self._kept += frames
        self._kept_nbytes += sum(len(compressed) for compressed, _ in frames)
        if self._kept_nbytes <= KEPT_NBYTES and self._can_seek:
            return
        # Write the chunks that were kept in memory, with more to come.
        args, size = self._settings.bloscpack_args, self._settings.chunk_size
        kept = len(self._kept)
        if self._insert is None or not args.offsets:
            self._begin((-1, size, -1), 0, None)
            return
        entries = max(RESERVED_ENTRIES, GROWTH * kept)
        wanted = args.max_app_chunks
        free = 0 if callable(wanted) else plain_number(wanted)
        self._begin((kept, size, size), entries - kept, self._insert, free)

    def _begin(
        self,
        sizes: tuple[int, int, int],
        max_app_chunks: int,
        insert: Insert | None,
        free: int = 0,
    ) -> None:
        settings = self._settings
        self._sink = _Sink(self._fp, insert, free)
        header = header_for(
            settings.blosc_args,
            settings.bloscpack_args,
            sizes,
            max_app_chunks,
            settings.section is not None,
        )
        self._sink.configure(settings.blosc_args, header)
        self._sink.write_bloscpack_header()
        if settings.section is not None:
            self._sink.write_metadata(settings.section, MetadataArgs())
        self._sink.init_offsets()
        kept, self._kept = self._kept, []
        for compressed, digest in kept:
            self._sink.store(0, compressed, digest)


def _inserter(fp: Any) -> Insert | None:
    """Return how bytes are inserted into a new file; None if they can't be."""
    file = FileRange.over(fp)
    if file is None:
        return None

    def insert(data: bytes, start: int, stop: int) -> None:
        fp.flush()
        block = memoryview(bytearray(min(MOVED_AT_A_TIME, stop - start)))
        while stop > start:
            part = block[: stop - start]
            stop -= len(part)
            file.read_into(part, stop)
            file.write(part, stop + len(data))
        file.write(data, start)

    return insert


class Appended(Output):
    """Plain bytes that are kept until all of them are appended in a single change.

    They are in memory, or in a file without a name in `folder` if they are many.
    `append` is called with the target that `opening` yields, a file object and its
    size.
    """

    begins_file = False

    def __init__(
        self,
        opening: AbstractContextManager[object],
        folder: str | None,
        append: Callable[..., object],
    ) -> None:
        from tempfile import SpooledTemporaryFile

        with ExitStack() as stack:
            self._target = stack.enter_context(opening)
            spool = SpooledTemporaryFile(KEPT_NBYTES, dir=folder)  # noqa: SIM115
            self._spool: IO[bytes] = stack.enter_context(spool)
            super().__init__(stack.pop_all())
        self._append = append
        self._nbytes = 0

    def write(self, view: Buffer) -> None:
        self._spool.write(view)
        self._nbytes += len(view)

    def finish(self) -> None:
        self._spool.seek(0)
        self._append(self._target, self._spool, self._nbytes)
        super().finish()


@contextmanager
def _locked(path: str, sync: bool) -> Iterator[LockedFile]:
    """Lock a file; raise an error if it can't be appended to."""
    with naming_errors(path), open_locked(path, sync) as locked_file:
        read_sections(locked_file)
        yield locked_file


def output_to_path(path: str, kind: str, settings: OutputSettings) -> Output:
    """Return the output for a path or URL; `kind` is the letter of the mode."""
    path = os.fsdecode(local_path(path))
    if kind == "a":
        without_url(path, "appending")
    if kind == "a" and not is_stream(path) and _has_content(path):
        append = partial(append_locked, how=settings.appending, grow=True)
        folder = os.path.dirname(os.path.realpath(path))
        return Appended(_locked(path, settings.sync is not False), folder, append)
    opening = replacing(
        path,
        settings.sync,
        # In mode 'a', another program may make the file until now.
        exclusive=kind == "x" or (kind == "a" and not os.path.lexists(path)),
        storage_options=settings.storage_options,
    )
    return Written(opening, settings, _inserter)


def _has_content(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except FileNotFoundError:
        return False


def output_to_object(fp: Any, kind: str, settings: OutputSettings) -> Output:
    """Return the output for a file object; `kind` is the letter of the mode."""
    if kind == "a":
        if not (hasattr(fp, "read") and hasattr(fp, "seek")) or not fp.seekable():
            raise UsageError(
                "appending needs a file object that can seek and that was opened for "
                "reading and writing"
            )
        fp.seek(0)
        if bytes_left(fp):
            append = partial(append_chunks, how=settings.appending)
            return Appended(changeable(fp), None, append)
    return Written(nullcontext(fp), settings, lambda fp: None)
