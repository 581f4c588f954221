"""Decompress all chunks of a compressed source into a plain sink."""

from __future__ import annotations

from .. import log
from .._engine.blosc_settings import own_settings
from .._engine.threads import Workspace, for_each, run_length
from .._format.blosc_header import decode_blosc_header
from .._format.chunks import check_digest, decompress, decompress_into
from ..abstract_io import CompressedSource
from ..constants import BLOSC_HEADER_LENGTH
from ..exceptions import DamageError, FormatError
from ..pretty import double_pretty_size
from .nthreads import QUICK_CHUNK, nthreads_to_read, share_threads

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable

    from .._format.sections import Frame
    from .._storage.protocols import Buffer
    from ..abstract_io import PlainSink, Progress
    from ..checksums import Hash


def unpack(
    source: CompressedSource,
    sink: PlainSink,
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

    def deliver(result: tuple[Frame, Buffer | None]) -> None:
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
        tasks = source.tasks() if source.concurrent else CompressedSource.tasks(source)
        run = 1
        if source.concurrent and source.random_access and sink.random_access:
            run = run_length(nchunks or 0, chunk_size, nthreads)
        if sink.concurrent:
            sink.start()
        work = _decompress_function(source, sink, nchunks)
        quick = 0 < chunk_size < QUICK_CHUNK
        for_each(tasks, work, deliver, nthreads, run, quick)
    if sink.concurrent:
        sink.finalize()


def _decompress_function(
    source: CompressedSource, sink: PlainSink, nchunks: int | None
) -> Callable[[Frame], tuple[Frame, Buffer | None]]:
    """Return the function that verifies and decompresses a chunk in any thread.

    It returns the frame, and the chunk, or None if it has stored the chunk.
    """
    checksum = source.checksum_impl
    workspace = Workspace() if sink.random_access else None
    debugging = log.enabled(log.DEBUG)

    def work(frame: Frame) -> tuple[Frame, Buffer | None]:
        header = frame.header
        try:
            compressed, digest = source.load(frame)
            if checksum is not None:
                check_digest(compressed, digest, checksum)
            if debugging:
                _log_chunk(frame.number, compressed, digest, checksum, nchunks)
            if not sink.concurrent:
                return frame, bytes(compressed)
            if not sink.random_access:
                return frame, decompress(compressed, header)
            room = sink.room(frame.start, header.nbytes)
            if room is not None:
                decompress_into(compressed, room, header)
                return frame, None
            assert workspace is not None
            plain = workspace.view(header.nbytes)
            decompress_into(compressed, plain, header)
        except FormatError as error:
            error.locate(frame.number, frame.offset)
            raise
        except MemoryError as error:
            raise _no_memory(frame) from error
        sink.store_at(frame.start, plain)
        return frame, None

    return work


def _no_memory(frame: Frame) -> FormatError:
    return DamageError(
        "there is no memory for the '%d' plain bytes up to the end of the chunk"
        % (frame.start + frame.header.nbytes),
        section="chunks",
        chunk=frame.number,
        offset=frame.offset,
    )


def _log_chunk(
    i: int,
    compressed: Buffer,
    digest: Buffer,
    checksum: Hash | None,
    nchunks: int | None,
) -> None:
    header = decode_blosc_header(bytes(compressed[:BLOSC_HEADER_LENGTH]))
    log.debug("blosc_header: OrderedDict(%r)" % list(header.items()))
    log.debug("decompressing chunk '%d'%s" % (i, " (last)" if i + 1 == nchunks else ""))
    if checksum is not None and checksum.size:
        log.debug("checksum OK (%s): %r" % (checksum.name, bytes(digest)))
    log.debug(
        "chunk handled, in: %s out: %s"
        % (double_pretty_size(len(compressed)), double_pretty_size(header["nbytes"]))
    )
