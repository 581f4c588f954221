"""The loop: plain source → compressed sink, compressed source → plain sink.

Sources are iterated and sinks written in the thread of the caller, in order;
compressing, decompressing and digests are spread over threads. Of the hooks of the
four classes only ``__iter__`` and ``put`` are abstract; the others do nothing unless a
subclass says so, and need no ``super().__init__()``. An endpoint that declares itself
``concurrent`` also lets the threads load and store their chunk themselves.
"""

from __future__ import annotations

import abc

from . import _temporary
from . import log
from ._compat import sibling_names
from ._engine.blosc_settings import own_settings
from ._engine.threads import Workspace, for_each
from ._format.blosc_header import decode_header
from ._format.chunks import (
    check_digest,
    compress,
    decompress,
    decompress_into,
    plain_size,
)
from ._format.sections import Frame
from .args import BloscArgs, BloscpackArgs, MetadataArgs, check_settings
from .constants import MAX_THREADS
from .defaults import available_cpus
from .exceptions import FormatError, StorageError
from .headers import BloscpackHeader, check_range
from .pretty import double_pretty_size

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ._format.chunks import Buffer
    from .checksums import Hash


# Chunks below this many bytes may be done before another thread has woken up.
QUICK_CHUNK = 64 * 2**10
# Consecutive chunks go to the same thread, so many bytes of them, where none need be
# held: the system gives out memory in huge pages, and two threads that are the first
# to touch the same one wait for each other.
RUN = 8 * 2**20
# What is compressed is handed over in smaller runs: it is held until its turn comes.
RUN_TO_COMPRESS = 512 * 2**10
# Threads that have many runs each end at about the same time.
RUNS_PER_THREAD = 4
# Chunks from this many bytes on have enough blocks to be shared.
LARGE_CHUNK = 2 * 2**20


def compress_chunk(chunk: Buffer, blosc_args: BloscArgs) -> bytes:
    """Return `chunk`, any buffer of bytes, as one Blosc chunk."""
    with own_settings:
        return compress(chunk, blosc_args)


class Endpoint:
    """What the four classes have in common."""

    #: Whether the hooks that run in other threads may be used.
    concurrent = False
    _hooks_of_one_thread: tuple[str, ...] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # A class that defines one of these hooks means it to be called, also where it
        # inherits those that are used instead from an endpoint of ours.
        for base in cls.__mro__:
            if "concurrent" in base.__dict__:
                return
            if base.__dict__.keys() & cls._hooks_of_one_thread:
                cls.concurrent = False
                return


class PlainSource(Endpoint, abc.ABC):
    """Yields plain chunks.

    `pack` calls `configure` and then iterates: every chunk must have
    ``self.chunk_size`` bytes, the last ``self.last_chunk``. With
    ``self.nchunks`` -1 the source decides when it ends.
    """

    _hooks_of_one_thread = ("__iter__", "compress_func")

    chunk_size: int
    last_chunk: int
    nchunks: int

    def configure(self, chunk_size: int, last_chunk: int, nchunks: int) -> None:
        """Take the sizes, in bytes, of the chunks to yield and their number."""
        self.chunk_size = chunk_size
        self.last_chunk = last_chunk
        self.nchunks = nchunks

    @property
    def compress_func(self) -> Callable[[Any, BloscArgs], bytes]:
        """The function of (chunk, blosc_args) that compresses what is yielded."""
        return compress_chunk

    @abc.abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """Yield the plain chunks in order."""

    def tasks(self) -> Iterator[Any]:
        """Yield for each chunk what `load` needs, in the thread of the caller."""
        return iter(self)

    def load(self, task: Any) -> Buffer:
        """Return the plain chunk, in any thread; valid until that calls again."""
        chunk: Buffer = task
        return chunk

    def spans(self, nbytes: int = 0) -> Iterator[tuple[int, int]]:
        """Yield where each chunk starts and stops in the plain bytes.

        `nbytes` is how many there are, for where the number of chunks is not given.
        """
        if self.nchunks == -1:
            yield 0, min(self.chunk_size, nbytes)
            for start in range(self.chunk_size, nbytes, self.chunk_size):
                yield start, min(start + self.chunk_size, nbytes)
        for i in range(self.nchunks):
            start = i * self.chunk_size
            last = i == self.nchunks - 1
            yield start, start + (self.last_chunk if last else self.chunk_size)


class CompressedSource(Endpoint, abc.ABC):
    """Yields pairs of a compressed chunk and its digest.

    ``checksum_impl``, where it is set, is what the digests are checked with;
    ``chunk_offset`` is the file position of the chunk last yielded, if known.
    """

    _hooks_of_one_thread = ("__iter__",)

    #: Whether `load` fetches the chunks, so that tasks hold none.
    random_access = False
    checksum_impl: Hash | None = None
    chunk_offset: int | None = None

    @abc.abstractmethod
    def __iter__(self) -> Iterator[tuple[Buffer, Buffer]]:
        """Yield (compressed chunk, digest) in order."""

    def tasks(self) -> Iterator[Frame]:
        """Yield for each chunk what `load` needs, in the thread of the caller."""
        start = 0
        for number, content in enumerate(self):
            # It may use its buffers again for the next chunk.
            compressed, digest = map(bytes, content)
            try:
                header = decode_header(compressed)
            except FormatError as error:
                error.locate(number, self.chunk_offset)
                raise
            frame = Frame(number, self.chunk_offset, start, header)
            frame.content = compressed, digest
            start += header.nbytes
            yield frame

    def load(self, frame: Frame) -> tuple[Buffer, Buffer]:
        """Return chunk and digest, in any thread; valid until that calls again."""
        assert frame.content is not None
        return frame.content


class PlainSink(Endpoint, abc.ABC):
    """Takes chunks, in order, and keeps their plain bytes.

    A subclass defines ``put``, which gets the chunk compressed.
    """

    _hooks_of_one_thread = ("put",)

    #: Whether chunks may be stored in any order, each where it belongs.
    random_access = False

    def start(self) -> None:
        """Called before the first chunk."""

    @abc.abstractmethod
    def put(self, chunk: bytes) -> Any:
        """Decompress and keep a compressed chunk."""

    def store(self, plain: Buffer) -> None:
        """Keep the plain bytes of the next chunk."""

    def room(self, start: int, nbytes: int) -> memoryview | None:
        """Return memory for the plain bytes from `start` on; None: use `store_at`."""
        return None

    def store_at(self, start: int, plain: Buffer) -> None:
        """Keep plain bytes that start at `start`; with `random_access`, any thread."""

    def finalize(self) -> None:
        """Called when every chunk has been kept."""


class CompressedSink(Endpoint, abc.ABC):
    """Takes compressed chunks, in order, and keeps them.

    ``put`` gets the compressed chunk and computes its digest with `do_checksum`.
    """

    _hooks_of_one_thread = ("put", "do_checksum")

    blosc_args: BloscArgs
    bloscpack_header: BloscpackHeader
    checksum_impl: Hash

    def configure(
        self, blosc_args: BloscArgs, bloscpack_header: BloscpackHeader
    ) -> None:
        """Take the settings and the header of what is to come."""
        self.blosc_args = blosc_args
        self.bloscpack_header = bloscpack_header
        self.checksum_impl = bloscpack_header.checksum_impl

    def write_bloscpack_header(self) -> None:
        """Keep the header."""

    def write_metadata(self, metadata: Any, metadata_args: MetadataArgs) -> None:
        """Keep the metadata; only called if there are any."""

    def init_offsets(self) -> None:
        """Make room for the offset table."""

    @abc.abstractmethod
    def put(self, i: int, compressed: bytes) -> Any:
        """Keep the compressed chunk number `i`."""

    def put_digested(
        self, i: int, compressed: bytes, digest: bytes
    ) -> Callable[[], None] | None:
        """Keep the compressed chunk number `i`, and its digest, which is known.

        May return what is left to do: a function, to be called in any thread.
        """

    def finalize(self) -> None:
        """Called when every chunk has been kept."""

    def do_checksum(self, compressed: Buffer) -> bytes:
        """Return the digest of a compressed chunk."""
        digest = self.checksum_impl(compressed)
        log_digest(self.checksum_impl, digest)
        return digest


def log_digest(checksum: Hash, digest: bytes) -> None:
    """Show a digest at the level DEBUG."""
    if log.enabled(log.DEBUG):
        name = checksum.name
        log.debug("checksum (%s): %r" % (name, digest) if digest else "no checksum")


def pack(
    source: PlainSource,
    sink: CompressedSink,
    nchunks: int,
    chunk_size: int,
    last_chunk: int,
    metadata: Any = None,
    blosc_args: BloscArgs | None = None,
    bloscpack_args: BloscpackArgs | None = None,
    metadata_args: MetadataArgs | None = None,
    *,
    nthreads: int | None = None,
) -> None:
    """Compress everything from `source` into `sink`.

    Sizes are bytes. `nchunks` -1 means that only the source knows where it
    ends; then there is no offset table. `nthreads` defaults to the CPUs that this
    process may use; the bytes written don't depend on it.

    Raises `UsageError` for settings that can't be, before anything is
    written, and `StorageError` if the source does not yield what was announced.
    """
    check_settings(blosc_args, bloscpack_args, metadata_args)
    blosc_args = BloscArgs() if blosc_args is None else blosc_args
    bloscpack_args = BloscpackArgs() if bloscpack_args is None else bloscpack_args
    metadata_args = MetadataArgs() if metadata_args is None else metadata_args
    blosc_args.check()
    bloscpack_args.check()
    effective_nthreads(nthreads, nchunks)
    if log.enabled(log.DEBUG):
        _log_settings(blosc_args, bloscpack_args, metadata, metadata_args)
    if metadata is not None:
        metadata_args.check()
    header = BloscpackHeader(
        offsets=bool(bloscpack_args.offsets) and nchunks != -1,
        metadata=metadata is not None,
        checksum=bloscpack_args.checksum,
        typesize=blosc_args.typesize or 0,
        chunk_size=chunk_size,
        last_chunk=last_chunk,
        nchunks=nchunks,
        max_app_chunks=bloscpack_args.effective_max_app_chunks(nchunks),
    )
    if log.enabled(log.DEBUG):
        log.debug(header.pformat())
    source.configure(chunk_size, last_chunk, nchunks)
    sink.configure(blosc_args, header)
    sink.write_bloscpack_header()
    if metadata is not None:
        sink.write_metadata(metadata, metadata_args)
    sink.init_offsets()
    if source.compress_func is not compress_chunk:
        nthreads = 1  # written for a time when all of this was done by one thread
    with own_settings:
        nthreads = share_threads(nthreads, nchunks, chunk_size)
        _compress_all(source, sink, header, blosc_args, nthreads)
    sink.finalize()


def _log_settings(
    blosc_args: BloscArgs,
    bloscpack_args: BloscpackArgs,
    metadata: Any,
    metadata_args: MetadataArgs,
) -> None:
    log.debug(blosc_args.pformat())
    log.debug(bloscpack_args.pformat())
    if metadata is None:
        log.debug("metadata_args will be silently ignored")
    else:
        log.debug(metadata_args.pformat())


def effective_nthreads(nthreads: int | None, nchunks: int | None) -> int:
    """Return how many threads to use: no more than there are chunks."""
    if nthreads is not None:
        check_range("nthreads", nthreads, 1, MAX_THREADS)
    if nchunks == 1:
        return 1
    count = min(available_cpus(), MAX_THREADS) if nthreads is None else nthreads
    return count if nchunks in (None, -1) else max(1, min(count, nchunks or 1))


def share_threads(nthreads: int | None, nchunks: int | None, chunk_size: int) -> int:
    """Return how many chunks to work on at a time.

    Where there are fewer chunks than threads, and they are large, Blosc gets the
    other threads, to share the blocks of a chunk among them.
    """
    count = effective_nthreads(nthreads, nchunks)
    if chunk_size >= LARGE_CHUNK:
        wanted = effective_nthreads(nthreads, None)
        if wanted >= 2 * count:
            own_settings.use_threads_of_blosc(wanted // count)
    return count


class _Announced:
    """Compares the chunks that a source yields with what was announced."""

    def __init__(self, header: BloscpackHeader) -> None:
        self._header = header
        self.count = 0

    def check(self, compressed: Buffer) -> int:
        """Return the number of the next chunk; raises `StorageError`."""
        i, self.count = self.count, self.count + 1
        nbytes = plain_size(compressed)
        if self._header.nchunks != -1:
            if i >= self._header.nchunks:
                raise StorageError(
                    "the source announced '%d' chunks, but yields more"
                    % self._header.nchunks
                )
            expected = self._header.expected_nbytes(i)
            if expected is not None and nbytes != expected:
                raise StorageError(
                    "the source announced '%d' bytes for chunk %d, but yielded '%d'"
                    % (expected, i, nbytes)
                )
        if log.enabled(log.DEBUG):
            last = " (last)" if self.count == self._header.nchunks else ""
            log.debug("Handle chunk '%d'%s" % (i, last))
            log.debug(
                "chunk handled, in: %s out: %s"
                % (double_pretty_size(nbytes), double_pretty_size(len(compressed)))
            )
        return i

    def finish(self) -> None:
        """Raise `StorageError` if there were too few chunks."""
        if self._header.nchunks not in (-1, self.count):
            raise StorageError(
                "the source announced '%d' chunks, but yielded '%d'"
                % (self._header.nchunks, self.count)
            )


def _compress_all(
    source: PlainSource,
    sink: CompressedSink,
    header: BloscpackHeader,
    blosc_args: BloscArgs,
    nthreads: int,
) -> None:
    compress_func = source.compress_func
    if source.concurrent:
        tasks = source.tasks()
    elif compress_func is compress_chunk:
        tasks = map(bytes, source)  # it may use its buffer again for the next chunk
    else:
        tasks = iter(source)
    load = source.load if source.concurrent else _as_it_is
    if compress_func is compress_chunk:
        compress_func = compress  # the settings have been entered
    checksum = header.checksum_impl
    digesting = sink.concurrent
    announced = _Announced(header)

    def work(task: Any) -> tuple[bytes, bytes]:
        compressed = compress_func(load(task), blosc_args)
        return compressed, checksum(compressed) if digesting else b""

    def deliver(result: tuple[bytes, bytes]) -> Callable[[], None] | None:
        compressed, digest = result
        i = announced.check(compressed)
        rest = None
        if digesting:
            rest = sink.put_digested(i, compressed, digest)
        else:
            sink.put(i, compressed)
        if _temporary.PROGRESS is not None:
            _temporary.PROGRESS(plain_size(compressed))
        return rest

    quick = header.chunk_size < QUICK_CHUNK
    run = _run_length(RUN_TO_COMPRESS, header.nchunks, header.chunk_size, nthreads)
    try:
        for_each(tasks, work, deliver, nthreads, run, quick)
    except MemoryError as error:
        raise StorageError(
            "there is no memory to compress chunks of '%d' bytes, '%d' at a time"
            % (header.chunk_size, nthreads)
        ) from error
    announced.finish()


def _as_it_is(chunk: Any) -> Any:
    return chunk


def unpack(
    source: CompressedSource, sink: PlainSink, *, nthreads: int | None = None
) -> None:
    """Decompress everything from `source` into `sink`.

    `nthreads` defaults to the CPUs that this process may use. Raises
    `FormatError` at the first chunk that is damaged.
    """
    nchunks = getattr(source, "nchunks", None)
    header = getattr(source, "bloscpack_header", None)
    chunk_size = header.chunk_size if header is not None else -1
    with own_settings:
        nthreads = share_threads(nthreads, nchunks, chunk_size)
        _decompress_all(source, sink, nchunks, chunk_size, nthreads)
    if sink.concurrent:
        sink.finalize()


def _decompress_all(
    source: CompressedSource,
    sink: PlainSink,
    nchunks: int | None,
    chunk_size: int,
    nthreads: int,
) -> None:
    tasks = source.tasks() if source.concurrent else CompressedSource.tasks(source)
    checksum = source.checksum_impl
    workspace = Workspace()
    run = 1
    if source.concurrent and source.random_access and sink.random_access:
        run = _run_length(RUN, nchunks or 0, chunk_size, nthreads)
    telling = log.enabled(log.DEBUG)
    if sink.concurrent:
        sink.start()

    def work(frame: Frame) -> tuple[Frame, Buffer | None]:
        header = frame.header
        try:
            compressed, digest = source.load(frame)
            if checksum is not None:
                check_digest(compressed, digest, checksum)
            if telling:
                _tell(frame.number, compressed, digest, checksum, nchunks)
            if not sink.concurrent:
                return frame, bytes(compressed)
            if not sink.random_access:
                return frame, decompress(compressed, header)
            room = sink.room(frame.start, header.nbytes)
            if room is not None:
                decompress_into(compressed, room, header)
                return frame, None
            plain = workspace.view(header.nbytes)
            decompress_into(compressed, plain, header)
        except FormatError as error:
            error.locate(frame.number, frame.offset)
            raise
        except MemoryError as error:
            raise _no_memory(frame) from error
        sink.store_at(frame.start, plain)
        return frame, None

    def deliver(result: tuple[Frame, Buffer | None]) -> None:
        frame, chunk = result
        if _temporary.PROGRESS is not None:
            _temporary.PROGRESS(frame.header.nbytes)
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

    quick = 0 < chunk_size < QUICK_CHUNK
    for_each(tasks, work, deliver, nthreads, run, quick)


def _no_memory(frame: Frame) -> FormatError:
    return FormatError(
        "there is no memory for the '%d' plain bytes up to the end of the chunk"
        % (frame.start + frame.header.nbytes),
        section="chunks",
        chunk=frame.number,
        offset=frame.offset,
    )


def _run_length(size: int, nchunks: int, chunk_size: int, nthreads: int) -> int:
    """Return how many consecutive chunks a thread gets, no more than `size` bytes.

    What is below 1 is unknown.
    """
    fair = nchunks // (nthreads * RUNS_PER_THREAD)
    return max(1, min(size // chunk_size, fair)) if chunk_size > 0 else 1


def _tell(
    i: int,
    compressed: Buffer,
    digest: Buffer,
    checksum: Hash | None,
    nchunks: int | None,
) -> None:
    from .headers import decode_blosc_header

    header = decode_blosc_header(bytes(compressed[:16]))
    log.debug("blosc_header: OrderedDict(%r)" % list(header.items()))
    log.debug("decompressing chunk '%d'%s" % (i, " (last)" if i + 1 == nchunks else ""))
    if checksum is not None and checksum.size:
        log.debug("checksum OK (%s): %r" % (checksum.name, bytes(digest)))
    log.debug(
        "chunk handled, in: %s out: %s"
        % (double_pretty_size(len(compressed)), double_pretty_size(header["nbytes"]))
    )


# Names kept from 0.16

__getattr__ = sibling_names(__name__)
