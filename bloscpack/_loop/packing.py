"""Compress all chunks of a plain source into a compressed sink."""

from __future__ import annotations

from .. import log
from .._engine.blosc_settings import own_settings
from .._engine.threads import for_each, run_length
from .._format.chunks import compress, plain_size
from ..abstract_io import compress_chunk, log_digest
from ..abstract_objects import plain_number
from ..args import pack_settings
from ..exceptions import StorageError
from ..headers import BloscpackHeader
from ..pretty import double_pretty_size
from .nthreads import QUICK_CHUNK, RUN_TO_COMPRESS, effective_nthreads, share_threads

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Unpack

    from ..abstract_io import CompressedSink, PlainSource, PlainTask, Progress
    from ..args import (
        AnyBloscArgs,
        AnyBloscpackArgs,
        AnyMetadataArgs,
        BloscArgs,
        BloscpackArgs,
        PackKeywords,
    )


def pack(
    source: PlainSource,
    sink: CompressedSink,
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
    bloscpack_args.check()
    effective_nthreads(nthreads, nchunks)
    if log.enabled(log.DEBUG):
        log.debug(blosc_args.pformat())
        log.debug(bloscpack_args.pformat())
        if metadata is None:
            log.debug("metadata_args will be silently ignored")
        else:
            log.debug(metadata_args.pformat())
    if metadata is not None:
        metadata_args.check()
    sizes = nchunks, chunk_size, last_chunk
    room = bloscpack_args.effective_max_app_chunks(nchunks)
    header = header_for(blosc_args, bloscpack_args, sizes, room, metadata is not None)
    if log.enabled(log.DEBUG):
        log.debug(header.pformat())
    source.configure(chunk_size, last_chunk, nchunks)
    sink.configure(blosc_args, header)
    sink.write_bloscpack_header()
    if metadata is not None:
        sink.write_metadata(metadata, metadata_args)
    sink.init_offsets()
    if source.compress_func is not compress_chunk:
        nthreads = 1  # code written for 0.16 expects a single thread
    with own_settings:
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
    source: PlainSource,
    sink: CompressedSink,
    header: BloscpackHeader,
    blosc_args: BloscArgs,
    nthreads: int,
    progress: Progress | None,
) -> None:
    compress_func = source.compress_func
    concurrent, digesting = source.concurrent, sink.concurrent
    if concurrent:
        tasks = source.tasks()
    elif compress_func is compress_chunk:
        # Copy: the source may use its buffer again for the next chunk.
        tasks = map(bytes, source)
    else:
        tasks = iter(source)
    if compress_func is compress_chunk:
        compress_func = compress  # `pack` has entered the settings
    checksum = header.checksum_impl
    count = 0

    def work(task: PlainTask) -> tuple[bytes, bytes]:
        chunk = source.load(task) if concurrent else task
        compressed = compress_func(chunk, blosc_args)
        return compressed, checksum(compressed) if digesting else b""

    def deliver(result: tuple[bytes, bytes]) -> Callable[[], None] | None:
        nonlocal count
        compressed, digest = result
        nbytes = plain_size(compressed)
        _check_chunk(header, count, nbytes, len(compressed))
        rest = None
        if digesting:
            log_digest(checksum, digest)
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


def _check_chunk(header: BloscpackHeader, i: int, nbytes: int, cbytes: int) -> None:
    """Raise `StorageError` if the header has no such chunk, or one of another size."""
    if header.nchunks != -1:
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
    if log.enabled(log.DEBUG):
        last = " (last)" if i + 1 == header.nchunks else ""
        log.debug("Handle chunk '%d'%s" % (i, last))
        log.debug(
            "chunk handled, in: %s out: %s"
            % (double_pretty_size(nbytes), double_pretty_size(cbytes))
        )
