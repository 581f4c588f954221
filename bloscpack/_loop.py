"""The loops of `pack` and `unpack`, from a source to a sink, over threads.

Here is also the number of threads, and from which sizes on threads help.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from . import abstract_io
from ._engine.blosc_settings import own_settings
from ._engine.threads import Workspace, for_each, run_length
from ._format import chunks
from ._format.shard import check_table
from ._types import Buffer
from .abstract_io import Progress
from .args import (
    AnyBloscArgs,
    AnyBloscpackArgs,
    AnyMetadataArgs,
    BloscArgs,
    BloscpackArgs,
    PackKeywords,
    pack_settings,
)
from .constants import MAX_THREADS
from .defaults import available_cpus
from .exceptions import DamageError, FormatError, StorageError
from .headers import BloscpackHeader, check_range, plain_number

if TYPE_CHECKING:
    from typing_extensions import Unpack


def pack(
    source: abstract_io.PlainSource,
    sink: abstract_io.CompressedSink,
    nchunks: int,
    chunk_size: int,
    last_chunk: int,
    metadata: object = None,
    blosc_args: AnyBloscArgs | None = None,
    bloscpack_args: AnyBloscpackArgs | None = None,
    metadata_args: AnyMetadataArgs | None = None,
    *,
    nthreads: int | None = None,
    progress: Progress | None = None,
    **settings: Unpack[PackKeywords],
) -> None:
    """Compress all chunks of `source` into `sink`.

    Parameters
    ----------
    source
        Yields the plain chunks.
    sink
        Stores the header, the metadata and the compressed chunks.
    nchunks
        Number of chunks. -1 if only the source knows it; the file then has no offset
        table.
    chunk_size
        Size of every chunk but the last in bytes.
    last_chunk
        Size of the last chunk in bytes.
    metadata
        Any value that JSON can represent. None: no metadata section.
    blosc_args, bloscpack_args, metadata_args
        The settings; see `BloscArgs`, `BloscpackArgs` and `MetadataArgs`. Each may be a
        dictionary of some of its fields.
    nthreads
        Number of threads, by default the number of CPUs that this process may use. The
        written bytes do not depend on it.
    progress
        Called with the number of plain bytes of each finished chunk, by the calling
        thread. Its return value is ignored; an exception stops the work. Every function
        that has this parameter calls it in this way.
    settings
        Fields of the settings as keywords, such as ``clevel=9``. A field that is given
        here must not be given in `blosc_args`, `bloscpack_args` or `metadata_args`.

    Raises
    ------
    UsageError
        A setting is invalid or given twice. Nothing has been written.
    StorageError
        The number or the sizes of the yielded chunks differ from the arguments.
    """
    found = pack_settings(blosc_args, bloscpack_args, metadata_args, settings)
    blosc_args, bloscpack_args, metadata_args = found
    blosc_args.check()
    effective_nthreads(nthreads, nchunks)
    if metadata is not None:
        metadata_args.check()
    sizes = nchunks, chunk_size, last_chunk
    room = bloscpack_args.effective_max_app_chunks(nchunks)
    header = header_for(blosc_args, bloscpack_args, sizes, room, metadata is not None)
    source.configure(chunk_size, last_chunk, nchunks)
    sink.configure(blosc_args, header)
    check_table(metadata, header)
    sink.write_bloscpack_header()
    if metadata is not None:
        sink.write_metadata(metadata, metadata_args)
    sink.init_offsets()
    if source.compress_func is not abstract_io.compress_chunk:
        nthreads = 1  # code written for 0.16 expects a single thread
    with own_settings:
        if blosc_args.blocksize:
            own_settings.use_blocksize(plain_number(blosc_args.blocksize))
        nthreads = share_threads(nthreads, nchunks, chunk_size)
        _compress_all(source, sink, header, blosc_args, nthreads, progress)
    sink.finalize()


def header_for(
    blosc_args: BloscArgs,
    bloscpack_args: BloscpackArgs,
    sizes: tuple[int, int, int],
    max_app_chunks: int,
    metadata: bool,
) -> BloscpackHeader:
    """Return the header of a new file.

    `sizes` are the number of chunks, the chunk size and the size of the last chunk.
    """
    nchunks, chunk_size, last_chunk = sizes
    return BloscpackHeader(
        offsets=bool(bloscpack_args.offsets) and nchunks != -1,
        metadata=metadata,
        checksum=bloscpack_args.checksum,
        typesize=blosc_args.typesize or 0,
        chunk_size=chunk_size,
        last_chunk=last_chunk,
        nchunks=nchunks,
        max_app_chunks=max_app_chunks,
    )


def _compress_all(
    source: abstract_io.PlainSource,
    sink: abstract_io.CompressedSink,
    header: BloscpackHeader,
    blosc_args: BloscArgs,
    nthreads: int,
    progress: Progress | None,
) -> None:
    compress_func = source.compress_func
    concurrent, digesting = source.concurrent, sink.concurrent
    if concurrent:
        tasks = source.tasks()
    elif compress_func is abstract_io.compress_chunk:
        # Copy: the source may use its buffer again for the next chunk.
        tasks = map(bytes, source)
    else:
        tasks = iter(source)
    if compress_func is abstract_io.compress_chunk:
        compress_func = chunks.compress  # `pack` has entered the settings
    checksum = header.checksum_impl
    count = 0

    def work(task: abstract_io.PlainTask) -> tuple[bytes, bytes]:
        chunk = source.load(task) if concurrent else task
        compressed = compress_func(chunk, blosc_args)
        return compressed, checksum(compressed) if digesting else b""

    def deliver(result: tuple[bytes, bytes]) -> Callable[[], None] | None:
        nonlocal count
        compressed, digest = result
        nbytes = chunks.plain_size(compressed)
        _check_chunk(header, count, nbytes)
        rest = None
        if digesting:
            rest = sink.put_digested(count, compressed, digest)
        else:
            sink.put(count, compressed)
        count += 1
        if progress is not None:
            progress(nbytes)
        return rest

    quick = header.chunk_size < QUICK_CHUNK
    run = run_length(header.nchunks, header.chunk_size, nthreads, RUN_TO_COMPRESS)
    try:
        for_each(tasks, work, deliver, nthreads, run, quick)
    except MemoryError as error:
        raise StorageError(
            "there is no memory to compress chunks of '%d' bytes, '%d' at a time"
            % (header.chunk_size, nthreads)
        ) from error
    if header.nchunks not in (-1, count):
        raise StorageError(
            "the source announced '%d' chunks, but yielded '%d'"
            % (header.nchunks, count)
        )


def _check_chunk(header: BloscpackHeader, i: int, nbytes: int) -> None:
    """Raise `StorageError` if the header has no such chunk, or one of another size."""
    if header.nchunks == -1:
        return
    if i >= header.nchunks:
        raise StorageError(
            "the source announced '%d' chunks, but yields more" % header.nchunks
        )
    expected = header.expected_nbytes(i)
    if expected is not None and nbytes != expected:
        raise StorageError(
            "the source announced '%d' bytes for chunk %d, but yielded '%d'"
            % (expected, i, nbytes)
        )


def unpack(
    source: abstract_io.CompressedSource,
    sink: abstract_io.PlainSink,
    *,
    nthreads: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Decompress all chunks of `source` into `sink`.

    Parameters
    ----------
    source
        Yields the compressed chunks and their digests.
    sink
        Stores the plain bytes.
    nthreads, progress
        As in `pack`.

    Raises
    ------
    FormatError
        A chunk is damaged. The chunks before it have been stored.
    """
    nchunks = getattr(source, "nchunks", None)
    header = getattr(source, "bloscpack_header", None)
    chunk_size = header.chunk_size if header is not None else -1

    def deliver(result: tuple[chunks.Frame, Buffer | None]) -> None:
        """Store a chunk in order, in the calling thread."""
        frame, chunk = result
        if progress is not None:
            progress(frame.header.nbytes)
        if chunk is None:
            return
        try:
            if sink.concurrent:
                sink.store(chunk)
            else:
                sink.put(bytes(chunk))
        except FormatError as error:
            error.locate(frame.number, frame.offset)
            raise
        except MemoryError as error:
            raise _no_memory(frame) from error

    with own_settings:
        most = nthreads_to_read(nthreads, nchunks, chunk_size)
        nthreads = min(most, share_threads(nthreads, nchunks, chunk_size))
        tasks = (
            source.tasks()
            if source.concurrent
            else abstract_io.CompressedSource.tasks(source)
        )
        run = 1
        if source.concurrent and source.random_access and sink.random_access:
            run = run_length(nchunks or 0, chunk_size, nthreads)
        if sink.concurrent:
            sink.start()
        work = _decompress_function(source, sink)
        quick = 0 < chunk_size < QUICK_CHUNK
        for_each(tasks, work, deliver, nthreads, run, quick)
    if sink.concurrent:
        sink.finalize()


def _decompress_function(
    source: abstract_io.CompressedSource, sink: abstract_io.PlainSink
) -> Callable[[chunks.Frame], tuple[chunks.Frame, Buffer | None]]:
    """Return the function that verifies and decompresses a chunk in any thread.

    It returns the frame, and the chunk, or None if it has stored the chunk.
    """
    checksum = source.checksum_impl
    workspace = Workspace() if sink.random_access else None

    def work(frame: chunks.Frame) -> tuple[chunks.Frame, Buffer | None]:
        header = frame.header
        try:
            compressed, digest = source.load(frame)
            if checksum is not None:
                chunks.check_digest(compressed, digest, checksum)
            if not sink.concurrent:
                return frame, bytes(compressed)
            if not sink.random_access:
                return frame, chunks.decompress(compressed, header)
            room = sink.room(frame.start, header.nbytes)
            if room is not None:
                chunks.decompress_into(compressed, room, header)
                return frame, None
            assert workspace is not None
            plain = workspace.view(header.nbytes)
            chunks.decompress_into(compressed, plain, header)
        except FormatError as error:
            error.locate(frame.number, frame.offset)
            raise
        except MemoryError as error:
            raise _no_memory(frame) from error
        sink.store_at(frame.start, plain)
        return frame, None

    return work


def _no_memory(frame: chunks.Frame) -> FormatError:
    return DamageError(
        "there is no memory for the '%d' plain bytes up to the end of the chunk"
        % (frame.start + frame.header.nbytes),
        section="chunks",
        chunk=frame.number,
        offset=frame.offset,
    )


# Chunk size in bytes below which compressing may take less time than waking a thread.
QUICK_CHUNK = 64 * 2**10
# Plain size in bytes of the chunks for which one more thread helps to decompress them:
# a thread takes the GIL a few times for each chunk, and waits for the other threads.
# For chunks of 64 KiB, two threads take 1.5 times the time of one, and twice the CPU
# time; for 128 KiB about the same time; for 256 KiB 0.9 times the time.
CHUNK_PER_THREAD = 128 * 2**10
# Minimum number of plain bytes to read with several threads. Half of it takes two
# threads as long as one, and a third more CPU time.
SMALL_READ = 4 * 2**20
# Maximum number of bytes of adjacent chunks that one thread compresses at a time.
# Smaller than `RUN`, because the results stay in memory until the chunks before them
# have been written.
RUN_TO_COMPRESS = 512 * 2**10
# Chunk size in bytes from which Blosc's own threads can share the blocks of a chunk.
LARGE_CHUNK = 2 * 2**20


def effective_nthreads(nthreads: int | None, nchunks: int | None) -> int:
    """Return the number of threads to use, at most one for each chunk.

    `nthreads` None means all CPUs that this process may use; `nchunks` None or -1 means
    an unknown number of chunks. Raises `UsageError` if `nthreads` is out of range.
    """
    if nthreads is not None:
        nthreads = check_range("nthreads", nthreads, 1, MAX_THREADS)
    if nchunks == 1:
        return 1
    count = min(available_cpus(), MAX_THREADS) if nthreads is None else nthreads
    return count if nchunks in (None, -1) else max(1, min(count, nchunks or 1))


def nthreads_to_read(nthreads: int | None, nchunks: int | None, chunk_size: int) -> int:
    """Return the number of threads to decompress with: small chunks need few of them.

    `chunk_size` is the plain size of a chunk in bytes, 0 or -1 if it is unknown. The
    thread of the caller alone does what is small.
    """
    count = effective_nthreads(nthreads, nchunks)
    if nthreads is not None or chunk_size <= 0:
        return count
    if nchunks not in (None, -1) and nchunks * chunk_size < SMALL_READ:
        return 1
    return max(1, min(count, chunk_size // CHUNK_PER_THREAD))


def share_threads(nthreads: int | None, nchunks: int | None, chunk_size: int) -> int:
    """Return the number of chunks to process at a time.

    If the chunks are large and fewer than the threads, the remaining threads go to
    Blosc, which shares the blocks of a chunk among them.
    """
    count = effective_nthreads(nthreads, nchunks)
    if chunk_size >= LARGE_CHUNK:
        wanted = effective_nthreads(nthreads, None)
        if wanted >= 2 * count:
            own_settings.use_threads_of_blosc(wanted // count)
    return count
