"""Rewrite a file with other settings: a new file replaces it in one step.

The headers of all chunks are read first, which shows the sizes of the chunks and finds
most damage before anything is written. If chunks of the same size with the same
compression are wanted, they are copied byte by byte. Otherwise they are decompressed
and cut again. Either way every digest is verified, and the work is done by all threads,
a few chunks at a time. A file without digests is decompressed to find damage.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from . import log
from ._commit.locking import open_locked
from ._engine.blosc_settings import own_settings
from ._engine.threads import for_each
from ._file.repack_plan import SETTINGS, Plan, Survey
from ._file.repack_plan import Settings as Settings
from ._format.append_plan import UNCHANGED as UNCHANGED
from ._format.chunks import Frame
from ._loop import QUICK_CHUNK, RUN_TO_COMPRESS, effective_nthreads, pack
from ._storage.base import naming_errors
from ._storage.protocols import BinaryFile, Buffer, Path, Writable
from .abstract_io import PlainSource, Progress
from .args import BloscArgs, BloscpackArgs, MetadataArgs, refuse_all_but
from .fp_io import CompressedFPSink, CompressedFPSource
from .headers import plain_numbers
from .pretty import double_pretty_size

if TYPE_CHECKING:
    from typing_extensions import Unpack

    # The first byte of a span of plain bytes, its end, and the old chunks in it.
    Span = tuple[int, int, list["_OldChunk"]]

__all__ = ["UNCHANGED", "repack", "repack_fp"]


def repack(
    path: Path,
    *,
    nthreads: int | None = None,
    sync: bool = True,
    progress: Progress | None = None,
    expect: Callable[[int], object] | None = None,
    **settings: Unpack[Settings],
) -> None:
    """Rewrite a file with other settings.

    What no setting changes stays the same: the plain bytes, the metadata, owner and
    access of the file. A file of an old layout gets the current layout. Whatever
    interrupts it, the file is either the old one or the new one (docs/durability.rst).

    Parameters
    ----------
    path
        The file to rewrite.
    typesize, clevel, shuffle, cname
        As in `bloscpack.BloscArgs`. With any of them all chunks are compressed again. A
        file stores no level: by default it is then 7.
    chunk_size
        Plain bytes of a chunk, a number or text such as ``'4M'``.
    checksum, offsets, max_app_chunks
        As in `bloscpack.BloscpackArgs`. A file without an offset table gets one, unless
        ``offsets`` is False. By default there stays room to append as many bytes as
        before.
    metadata
        The new metadata; the file may have none so far. None removes the metadata,
        unlike in functions that pack: without this argument, or with ``UNCHANGED``,
        they stay. In an array file these are the metadata of the user; dtype, shape and
        order of the array stay. A value that is the complete metadata of an array
        replaces all metadata.
    keep_array
        Whether an array file stays an array file, as by default. False drops dtype,
        shape and order: the plain bytes and the metadata of the user stay.
    shard
        True makes an array file a shard of a Zarr v3 array, as
        `bloscpack.pack_ndarray_to_file` does: chunks get whole rows, and the checksum
        is then ``'crc32c'`` by default. False drops the index for Zarr; the checksum
        stays. By default a shard stays one.
    meta_checksum, meta_codec, max_meta_size
        As in `bloscpack.MetadataArgs`, by default as in the file. By default the space
        for metadata grows only if new metadata need more.
    nthreads, progress
        As in `bloscpack.abstract_io.pack`.
    sync, expect
        As in `bloscpack.append.append_from`.

    Raises
    ------
    FormatError
        The file is damaged.
    UsageError
        A setting is unknown or invalid, the new metadata describe an array of another
        size, the array can't be a shard, another file follows, or the file has hard
        links.
    StorageError
        Another writer is changing the file.

    Examples
    --------
    >>> import bloscpack
    >>> bloscpack.pack_bytes_to_file(b'abcd' * 1000, 'abcd.blp')
    >>> repack('abcd.blp', cname='zstd', chunk_size='1K', metadata={'unit': 'm'})
    >>> plain, metadata = bloscpack.unpack_bytes_from_file('abcd.blp')
    >>> len(plain), metadata
    (4000, {'unit': 'm'})
    """
    with naming_errors(path), open_locked(path, sync) as locked_file:
        old_size = locked_file.size
        with locked_file.replacement() as temporary:
            repack_fp(
                locked_file.fp,
                temporary.fp,
                nthreads=nthreads,
                progress=progress,
                expect=expect,
                **settings,
            )
        log.verbose("size before: %s" % double_pretty_size(old_size))
        log.verbose("size after: %s" % double_pretty_size(locked_file.size))


def repack_fp(
    in_fp: BinaryFile,
    out_fp: Writable,
    *,
    nthreads: int | None = None,
    progress: Progress | None = None,
    expect: Callable[[int], object] | None = None,
    **settings: Unpack[Settings],
) -> None:
    """Write the file in one file object with other settings into another.

    Parameters
    ----------
    in_fp
        The file, used from its beginning. It must be able to seek.
    out_fp
        A new file, which is written.
    settings, nthreads, progress, expect
        As in `repack`, and so are the errors.
    """
    refuse_all_but(SETTINGS, settings)
    old = Survey(in_fp)
    # The metadata may be any value, which stays as it is.
    numbers = plain_numbers(item for item in settings.items() if item[0] != "metadata")
    settings.update(numbers)  # type: ignore[typeddict-item]
    plan = Plan(old, settings)
    if expect is not None:
        expect(old.nbytes)
    write_planned(old, plan, in_fp, out_fp, nthreads, progress)


# Writing the new file


def write_planned(
    old: Survey,
    plan: Plan,
    in_fp: BinaryFile,
    out_fp: Writable,
    nthreads: int | None,
    progress: Progress | None,
) -> None:
    """Write the new file of a plan. The arguments are those of `repack_fp`."""
    count = effective_nthreads(nthreads, None)
    in_fp.seek(0)
    source = CompressedFPSource(in_fp)
    sink = CompressedFPSink(out_fp, new=True)
    if plan.blosc_args is None:
        _copy(source, sink, plan, effective_nthreads(count, old.geometry[0]), progress)
        return
    pack(
        _Recut(source, old.nbytes),
        sink,
        *plan.geometry,
        metadata=plan.section,
        blosc_args=plan.blosc_args,
        bloscpack_args=BloscpackArgs(
            plan.header.offsets, plan.header.checksum, plan.header.max_app_chunks
        ),
        nthreads=count,
        progress=progress,
    )


# Copying chunks


def _copy(
    source: CompressedFPSource,
    sink: CompressedFPSink,
    plan: Plan,
    nthreads: int,
    progress: Progress | None,
) -> None:
    """Copy the chunks, and the digests too if the checksum is the same."""
    header = plan.header
    old, new = source.bloscpack_header.checksum_impl, header.checksum_impl
    sink.configure(BloscArgs(), header)
    sink.write_bloscpack_header()
    if plan.section is not None:
        sink.write_metadata(plan.section, MetadataArgs())
    sink.init_offsets()

    def work(frame: Frame) -> tuple[bytes, bytes, int]:
        compressed, digest = map(bytes, source.load_verified(frame))
        if not old.size:
            source.plain(frame, compressed)  # raises if the chunk is damaged
        if new is not old:
            digest = new(compressed)
        return compressed, digest, frame.header.nbytes

    def deliver(chunk: tuple[bytes, bytes, int]) -> None:
        compressed, digest, nbytes = chunk
        sink.put_digested(0, compressed, digest)
        if progress is not None:
            progress(nbytes)

    size = max(header.chunk_size, 1)
    batch = max(1, RUN_TO_COMPRESS // size)
    with own_settings:
        for_each(source.tasks(), work, deliver, nthreads, batch, size < QUICK_CHUNK)
    sink.finalize()


# Cutting chunks again


class _OldChunk:
    """A chunk that is decompressed once, for all new chunks that overlap it.

    `uses` is the number of these chunks; after as many calls of `take` the plain bytes
    are forgotten.
    """

    def __init__(self, source: CompressedFPSource, frame: Frame, uses: int) -> None:
        from threading import Lock

        self._source = source
        self._frame = frame
        self._uses = uses
        self._plain: bytes | None = None
        self._lock = Lock()
        self.start = frame.start
        self.stop = frame.start + frame.header.nbytes

    def take(self) -> bytes:
        """Return the plain bytes; the first thread that calls this decompresses."""
        with self._lock:
            if self._plain is None:
                self._plain = self._source.plain(self._frame)
            plain = self._plain
            self._uses -= 1
            if not self._uses:
                self._plain = None
        return plain


class _Recut(PlainSource):
    """Yields the plain bytes of a compressed source in chunks of another size."""

    concurrent = True

    def __init__(self, source: CompressedFPSource, nbytes: int) -> None:
        self._source = source
        self._nbytes = nbytes

    def __iter__(self) -> Iterator[Buffer]:
        return map(self.load, self.tasks())

    def tasks(self) -> Iterator[Span]:
        frames = self._source.tasks()
        chunks: deque[_OldChunk] = deque()
        read = 0
        for start, stop in self.spans():
            while chunks and chunks[0].stop <= start:
                chunks.popleft()
            # The chunks of the last span include empty ones at the end.
            while read < stop or stop == self._nbytes:
                frame = next(frames, None)
                if frame is None:
                    break
                chunks.append(_OldChunk(self._source, frame, self._uses(frame)))
                read = chunks[-1].stop
            yield start, stop, list(chunks)

    def _uses(self, frame: Frame) -> int:
        """Return the number of new chunks that overlap an old chunk."""
        size = max(self.chunk_size, 1)
        last = max(frame.header.nbytes - 1, 0)
        return (frame.start + last) // size - frame.start // size + 1

    def load(self, task: Span) -> Buffer:
        start, stop, chunks = task
        pieces = []
        for chunk in chunks:
            plain = chunk.take()
            if chunk.start >= start and chunk.stop <= stop:
                pieces.append(plain)
            else:
                view = memoryview(plain)
                pieces.append(
                    bytes(view[max(start - chunk.start, 0) : stop - chunk.start])
                )
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
