"""The loop: plain source → compressed sink, compressed source → plain sink.

The calling thread iterates over the source and writes to the sink, in order. A pool of
threads compresses, decompresses and digests the chunks.

Of the methods of the four abstract classes only ``__iter__`` and ``put`` are abstract.
The other methods do nothing unless a subclass overrides them, and need no
``super().__init__()``. A subclass that sets ``concurrent`` to True also lets the pool
load and store its chunks.
"""

from __future__ import annotations

import abc

from . import log
from ._compat import sibling_names
from ._engine.blosc_settings import own_settings
from ._engine.threads import Workspace, for_each, run_length
from ._format.blosc_header import decode_header
from ._format.chunks import (
    check_digest,
    compress,
    decompress,
    decompress_into,
    plain_size,
)
from ._format.sections import Frame
from .abstract_objects import plain_number
from .args import pack_settings
from .constants import BLOSC_HEADER_LENGTH, MAX_THREADS
from .defaults import available_cpus
from .exceptions import DamageError, FormatError, StorageError
from .headers import BloscpackHeader, check_range
from .pretty import double_pretty_size

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from typing_extensions import Unpack

    from ._storage.protocols import Buffer
    from .args import (
        AnyBloscArgs,
        AnyBloscpackArgs,
        AnyMetadataArgs,
        BloscArgs,
        BloscpackArgs,
        MetadataArgs,
        PackKeywords,
    )
    from .checksums import Hash

    # The `tasks` method of a plain source yields tasks, its `load` method takes them.
    PlainTask = Any
    Progress = Callable[[int], object]


# Chunk size in bytes below which compressing may take less time than waking a thread.
QUICK_CHUNK = 64 * 2**10
# Plain size in bytes of the chunks from which one more thread helps to decompress them:
# a thread takes the GIL a few times for each chunk, and waits for the other threads.
CHUNK_PER_THREAD = 32 * 2**10
# Maximum number of bytes of adjacent chunks that one thread compresses at a time.
# Smaller than `RUN`, because the results stay in memory until the chunks before them
# have been written.
RUN_TO_COMPRESS = 512 * 2**10
# Chunk size in bytes from which Blosc's own threads can share the blocks of a chunk.
LARGE_CHUNK = 2 * 2**20


def compress_chunk(chunk: Buffer, blosc_args: BloscArgs) -> bytes:
    """Return `chunk`, a buffer of bytes, as a Blosc chunk."""
    with own_settings:
        return compress(chunk, blosc_args)


class Endpoint:
    """Base of the four abstract classes."""

    #: Whether other threads may call the methods that allow it, such as ``load``.
    concurrent = False
    # The methods that 0.16 had. The loop does not call them if `concurrent` is set.
    _sequential_methods: tuple[str, ...] = ()

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        # A subclass that overrides a sequential method expects calls to it, even if it
        # inherits from a concurrent class.
        for base in cls.__mro__:
            if "concurrent" in base.__dict__:
                return
            if base.__dict__.keys() & cls._sequential_methods:
                cls.concurrent = False
                return


class PlainSource(Endpoint, abc.ABC):
    """Yields plain chunks.

    `pack` calls `configure` and then iterates. Every chunk must have ``chunk_size``
    bytes, except for the last, which must have ``last_chunk`` bytes. If ``nchunks`` is
    -1, the source determines the number of chunks.

    A subclass defines ``__iter__``.
    """

    _sequential_methods = ("__iter__", "compress_func")

    chunk_size: int
    last_chunk: int
    nchunks: int

    def configure(self, chunk_size: int, last_chunk: int, nchunks: int) -> None:
        """Set the chunk sizes in bytes and the number of chunks, -1 if unknown."""
        self.chunk_size = chunk_size
        self.last_chunk = last_chunk
        self.nchunks = nchunks

    @property
    def compress_func(self) -> Callable[[Buffer, BloscArgs], bytes]:
        """The function of (chunk, blosc_args) that compresses the yielded chunks."""
        return compress_chunk

    @abc.abstractmethod
    def __iter__(self) -> Iterator[Buffer]:
        """Yield the plain chunks in order."""

    def tasks(self) -> Iterator[PlainTask]:
        """Yield the argument of `load` for each chunk, in the calling thread."""
        return iter(self)

    def load(self, task: PlainTask) -> Buffer:
        """Return the plain chunk; called by any thread.

        The buffer is valid until the same thread calls `load` again.
        """
        chunk: Buffer = task
        return chunk

    def spans(self, nbytes: int = 0) -> Iterator[tuple[int, int]]:
        """Yield the span (start, stop) of each chunk in the plain bytes.

        If ``nchunks`` is -1, `nbytes` is the number of plain bytes.
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

    A subclass defines ``__iter__``.
    """

    _sequential_methods = ("__iter__",)

    #: Whether `load` reads the chunks from their positions in the file.
    random_access = False
    #: The checksum that verifies the digests. None: the digests are not verified.
    checksum_impl: Hash | None = None
    #: The file offset in bytes of the chunk that was yielded last. None if unknown.
    chunk_offset: int | None = None

    @abc.abstractmethod
    def __iter__(self) -> Iterator[tuple[Buffer, Buffer]]:
        """Yield (compressed chunk, digest) in order."""

    def tasks(self) -> Iterator[Frame]:
        """Yield the argument of `load` for each chunk, in the calling thread."""
        start = 0
        for number, content in enumerate(self):
            # Copy: the source may use its buffers again for the next chunk.
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
        """Return the compressed chunk and its digest; called by any thread.

        Both buffers are valid until the same thread calls `load` again.
        """
        assert frame.content is not None
        return frame.content


class PlainSink(Endpoint, abc.ABC):
    """Stores the plain bytes of chunks.

    `unpack` calls ``put`` with each compressed chunk, in order. If ``concurrent`` is
    set, it calls `start`, then for each chunk `store`, or with ``random_access`` `room`
    and `store_at`, and last `finalize`.

    A subclass defines ``put``.
    """

    _sequential_methods = ("put",)

    #: Whether any thread may store any chunk at its position, in any order.
    random_access = False

    def start(self) -> None:
        """Prepare for the first chunk."""

    @abc.abstractmethod
    def put(self, chunk: bytes) -> object:
        """Decompress and store the next chunk, which is compressed."""

    def store(self, plain: Buffer) -> None:
        """Store the plain bytes of the next chunk."""

    def room(self, start: int, nbytes: int) -> memoryview | None:
        """Return the memory for `nbytes` plain bytes from position `start` on.

        None if the chunk has to be stored with `store_at`. Called by any thread.
        """
        return None

    def store_at(self, start: int, plain: Buffer) -> None:
        """Store plain bytes at position `start`; called by any thread."""

    def finalize(self) -> None:
        """Complete the output after the last chunk."""


class StoringSink(PlainSink):
    """A sink that stores the chunks one after the other, with `store`."""

    def put(self, compressed: bytes) -> int:
        """Decompress and store the next chunk; return its plain size in bytes."""
        with own_settings:
            plain = decompress(compressed)
        self.store(plain)
        return len(plain)


class CompressedSink(Endpoint, abc.ABC):
    """Stores compressed chunks and their digests.

    `pack` calls the methods in the order of their definition. For each chunk
    it calls ``put``, which computes the digest with `do_checksum`, or, if
    ``concurrent`` is set, `put_digested`.

    A subclass defines ``put``.
    """

    _sequential_methods = ("put", "do_checksum")

    blosc_args: BloscArgs
    bloscpack_header: BloscpackHeader
    checksum_impl: Hash

    def configure(
        self, blosc_args: BloscArgs, bloscpack_header: BloscpackHeader
    ) -> None:
        """Set the compression settings and the file header."""
        self.blosc_args = blosc_args
        self.bloscpack_header = bloscpack_header
        self.checksum_impl = bloscpack_header.checksum_impl

    def write_bloscpack_header(self) -> None:
        """Write the header."""

    def write_metadata(self, metadata: object, metadata_args: MetadataArgs) -> None:
        """Write the metadata section; called only if there is metadata."""

    def init_offsets(self) -> None:
        """Reserve space for the offset table."""

    @abc.abstractmethod
    def put(self, i: int, compressed: bytes) -> object:
        """Store compressed chunk number `i` and its digest."""

    def put_digested(
        self, i: int, compressed: bytes, digest: bytes
    ) -> Callable[[], None] | None:
        """Store compressed chunk number `i` and its given digest.

        May return a function that completes the work and that any thread may call.
        """

    def finalize(self) -> None:
        """Complete the output after the last chunk."""

    def do_checksum(self, compressed: Buffer) -> bytes:
        """Return the digest of a compressed chunk."""
        digest = self.checksum_impl(compressed)
        log_digest(self.checksum_impl, digest)
        return digest


def log_digest(checksum: Hash, digest: bytes) -> None:
    """Log a digest at the level DEBUG."""
    if log.enabled(log.DEBUG):
        name = checksum.name
        log.debug("checksum (%s): %r" % (name, digest) if digest else "no checksum")


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
    cut = nchunks, chunk_size, last_chunk
    pack_with(source, sink, cut, metadata, found, nthreads, progress)


def pack_with(
    source: PlainSource,
    sink: CompressedSink,
    cut: tuple[int, int, int],
    metadata: object,
    settings: tuple[BloscArgs, BloscpackArgs, MetadataArgs],
    nthreads: int | None,
    progress: Progress | None,
) -> None:
    """Compress like `pack`, with settings that `pack_settings` returned.

    `cut` are the number of chunks, the chunk size and the size of the last chunk.
    """
    nchunks, chunk_size, last_chunk = cut
    blosc_args, bloscpack_args, metadata_args = settings
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
        nthreads = 1  # code written for 0.16 expects a single thread
    with own_settings:
        own_settings.use_blocksize(plain_number(blosc_args.blocksize))
        nthreads = share_threads(nthreads, nchunks, chunk_size)
        _compress_all(source, sink, header, blosc_args, nthreads, progress)
    sink.finalize()


def _log_settings(
    blosc_args: BloscArgs,
    bloscpack_args: BloscpackArgs,
    metadata: object,
    metadata_args: MetadataArgs,
) -> None:
    log.debug(blosc_args.pformat())
    log.debug(bloscpack_args.pformat())
    if metadata is None:
        log.debug("metadata_args will be silently ignored")
    else:
        log.debug(metadata_args.pformat())


def effective_nthreads(nthreads: int | None, nchunks: int | None) -> int:
    """Return the number of threads to use, at most one for each chunk.

    `nthreads` None means all CPUs that this process may use; `nchunks` None or -1 means
    an unknown number of chunks. Raises `UsageError` if `nthreads` is out of range.
    """
    if nthreads is not None:
        check_range("nthreads", nthreads, 1, MAX_THREADS)
        nthreads = plain_number(nthreads)
    if nchunks == 1:
        return 1
    count = min(available_cpus(), MAX_THREADS) if nthreads is None else nthreads
    return count if nchunks in (None, -1) else max(1, min(count, nchunks or 1))


def nthreads_to_read(nthreads: int | None, nchunks: int | None, chunk_size: int) -> int:
    """Return the number of threads to decompress with: small chunks need few of them.

    `chunk_size` is the plain size of a chunk in bytes, 0 or -1 if it is unknown.
    """
    count = effective_nthreads(nthreads, nchunks)
    if nthreads is None and chunk_size > 0:
        return min(count, 1 + chunk_size // CHUNK_PER_THREAD)
    return count


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


class _ChunkCheck:
    """Compares the chunks that a source yields with the header."""

    def __init__(self, header: BloscpackHeader) -> None:
        self._header = header
        self.count = 0

    def check(self, compressed: Buffer) -> int:
        """Return the number of the next chunk.

        Raise `StorageError` if the header has fewer chunks, or another chunk size.
        """
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
    progress: Progress | None,
) -> None:
    compress_func = source.compress_func
    if source.concurrent:
        tasks = source.tasks()
    elif compress_func is compress_chunk:
        # Copy: the source may use its buffer again for the next chunk.
        tasks = map(bytes, source)
    else:
        tasks = iter(source)
    load = source.load if source.concurrent else _identity
    if compress_func is compress_chunk:
        compress_func = compress  # `pack` has entered the settings
    checksum = header.checksum_impl
    digesting = sink.concurrent
    check = _ChunkCheck(header)

    def work(task: PlainTask) -> tuple[bytes, bytes]:
        compressed = compress_func(load(task), blosc_args)
        return compressed, checksum(compressed) if digesting else b""

    def deliver(result: tuple[bytes, bytes]) -> Callable[[], None] | None:
        compressed, digest = result
        i = check.check(compressed)
        rest = None
        if digesting:
            rest = sink.put_digested(i, compressed, digest)
        else:
            sink.put(i, compressed)
        if progress is not None:
            progress(plain_size(compressed))
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
    check.finish()


def _identity(task: PlainTask) -> Buffer:
    chunk: Buffer = task
    return chunk


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
    with own_settings:
        most = nthreads_to_read(nthreads, nchunks, chunk_size)
        nthreads = min(most, share_threads(nthreads, nchunks, chunk_size))
        _decompress_all(source, sink, nchunks, chunk_size, nthreads, progress)
    if sink.concurrent:
        sink.finalize()


def _decompress_all(
    source: CompressedSource,
    sink: PlainSink,
    nchunks: int | None,
    chunk_size: int,
    nthreads: int,
    progress: Progress | None,
) -> None:
    tasks = source.tasks() if source.concurrent else CompressedSource.tasks(source)
    run = 1
    if source.concurrent and source.random_access and sink.random_access:
        run = run_length(nchunks or 0, chunk_size, nthreads)
    if sink.concurrent:
        sink.start()
    work = _decompress_function(source, sink, nchunks)
    deliver = _deliver_function(sink, progress)
    quick = 0 < chunk_size < QUICK_CHUNK
    for_each(tasks, work, deliver, nthreads, run, quick)


def _decompress_function(
    source: CompressedSource, sink: PlainSink, nchunks: int | None
) -> Callable[[Frame], tuple[Frame, Buffer | None]]:
    """Return the function that verifies and decompresses a chunk in any thread.

    It returns the chunk for `_deliver_function`, or None if it has stored the chunk.
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


def _deliver_function(
    sink: PlainSink, progress: Progress | None
) -> Callable[[tuple[Frame, Buffer | None]], None]:
    """Return the function that stores the chunks in order in the calling thread."""

    def deliver(result: tuple[Frame, Buffer | None]) -> None:
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

    return deliver


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
    from .headers import decode_blosc_header

    header = decode_blosc_header(bytes(compressed[:BLOSC_HEADER_LENGTH]))
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
