"""`pack` and `unpack` move chunks from a source to a sink; their abstract classes.

Only ``__iter__`` of a source and ``put`` of a sink are abstract. The other methods of
the four abstract classes do nothing unless a subclass overrides them, and need no
``super().__init__()``.

A sink may have two more methods, with which several threads work: ``store`` takes what
threads have compressed or decompressed, and ``room`` returns memory into which a thread
decompresses. If a subclass of such a sink overrides ``put``, as code written for 0.16
does, `unpack` and `pack` call ``put``.

Here is also the number of threads, and from which sizes on threads help.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ._compat import sibling_names
from ._engine.blosc_settings import own_settings
from ._engine.threads import Workspace, ordered, run_length
from ._format import chunks
from ._format.block_table import digest_and_row
from ._format.blosc_header import chunk_damage, decode_header, locating_chunk
from ._format.chunks import Frame
from ._format.sections import Section
from ._format.shard import Trailer, check_table, new_trailer
from ._types import Buffer
from .args import (
    AnyBloscArgs,
    AnyBloscpackArgs,
    AnyMetadataArgs,
    BloscArgs,
    BloscpackArgs,
    MetadataArgs,
    PackKeywords,
    settings_of,
)
from .checksums import Hash
from .constants import MAX_THREADS
from .defaults import available_cpus
from .exceptions import FormatError, StorageError
from .headers import BloscpackHeader, check_range
from .serializers import is_shard

if TYPE_CHECKING:
    from typing_extensions import Unpack

Progress = Callable[[int], object]

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


# The abstract classes


def hook(endpoint: object, name: str, *methods: str) -> Any:
    """Return an optional method or attribute of a source or sink.

    None if there is none, or if a subclass of the class that defines it overrides one
    of the `methods`, in whose place it would be used.
    """
    kind: Any = type(endpoint)
    return getattr(endpoint, name) if _uses_hook(kind, name, methods) else None


@lru_cache(maxsize=100)
def _uses_hook(kind: Any, name: str, methods: tuple[str, ...]) -> bool:
    for cls in kind.__mro__:
        if name in cls.__dict__:
            return True
        if not cls.__dict__.keys().isdisjoint(methods):
            return False
    return False


def compress_chunk(chunk: Buffer, blosc_args: BloscArgs) -> bytes:
    """Return `chunk`, a buffer of bytes, as a Blosc chunk."""
    with own_settings:
        return chunks.compress(chunk, blosc_args)


class PlainSource(abc.ABC):
    """Yields plain chunks.

    `pack` calls `configure` and then iterates. Every chunk must have ``chunk_size``
    bytes, except for the last, which must have ``last_chunk`` bytes. If ``nchunks`` is
    -1, the source determines the number of chunks.

    A subclass defines ``__iter__``. It may define ``lasting = True``, which says that a
    yielded buffer keeps its content when the next one is yielded. Other buffers are
    copied if several threads compress.
    """

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


class CompressedSource(abc.ABC):
    """Yields pairs of a compressed chunk and its digest.

    A subclass defines ``__iter__``.
    """

    # Inside the package, a source may have ``frames()``, which yields objects of
    # `Frame`. ``in_place`` says that they take no memory before a thread works on them.
    in_place = False

    #: The checksum that verifies the digests. None: the digests are not verified.
    checksum_impl: Hash | None = None
    #: The file offset in bytes of the chunk that was yielded last. None if unknown.
    chunk_offset: int | None = None

    @abc.abstractmethod
    def __iter__(self) -> Iterator[tuple[Buffer, Buffer]]:
        """Yield (compressed chunk, digest) in order."""


class PlainSink(abc.ABC):
    """Stores the plain bytes of chunks.

    A subclass defines ``put``. It may define ``store(plain)``, which takes the plain
    bytes of the next chunk in place of ``put``, and with it ``room(start, nbytes)``,
    which is called for each chunk in order. It returns writable memory of `nbytes`
    bytes, a `memoryview` or another buffer, for the plain bytes from position `start`
    on, or None if `store` takes them.
    """

    # Inside the package, a sink may have ``placing()``. It returns None, or a function
    # that any thread calls with the position and the plain bytes of a chunk, in any
    # order. ``placed(end)`` is called last: only the bytes before `end` are to stay.

    @abc.abstractmethod
    def put(self, chunk: bytes) -> object:
        """Decompress and store the next chunk, which is compressed."""

    def finalize(self) -> None:
        """Complete the output after the last chunk; called if ``put`` is not."""


class StoringSink(PlainSink):
    """A sink that stores the chunks one after the other, with ``store``."""

    def put(self, compressed: bytes) -> int:
        """Decompress and store the next chunk; return its plain size in bytes."""
        with own_settings:
            plain = chunks.decompress(compressed)
        self.store(plain)
        return len(plain)

    def store(self, plain: Buffer) -> None:
        """Store the plain bytes of the next chunk."""
        raise NotImplementedError


class MemorySink(PlainSink):
    """Fills memory of known size, into which threads decompress."""

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self._end = 0

    def put(self, compressed: bytes) -> int:
        """Decompress the next chunk; return its plain size in bytes."""
        header = decode_header(compressed)
        memory = self.room(self._end, header.nbytes)
        with own_settings:
            if memory is None:
                self.store(chunks.decompress(compressed, header))
            else:
                chunks.decompress_into(compressed, memory, header)
        return header.nbytes

    def room(self, start: int, nbytes: int) -> memoryview | None:
        """Return the memory for the next chunk, or None for `store`."""
        self._end = start + nbytes
        return self._memory[start : self._end]

    def store(self, plain: Buffer) -> None:
        """Store the plain bytes of the next chunk, for which there is no room."""
        raise NotImplementedError


class CompressedSink(abc.ABC):
    """Stores compressed chunks and their digests.

    `pack` calls the methods in the order of their definition, ``put`` for each chunk.
    A subclass defines ``put``, which computes the digest with `do_checksum`. It may
    define ``store(i, compressed, digest)``, which takes the digest, too.
    """

    blosc_args: BloscArgs
    bloscpack_header: BloscpackHeader
    checksum_impl: Hash
    # What follows the last chunk, for a Zarr shard; `pack` sets it.
    trailer: Trailer | None = None

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

    def finalize(self) -> None:
        """Complete the output after the last chunk."""

    def do_checksum(self, compressed: Buffer) -> bytes:
        """Return the digest of a compressed chunk."""
        return self.checksum_impl(compressed)


# Packing and unpacking


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
    blosc_args, bloscpack_args, metadata_args = settings_of(
        blosc_args, bloscpack_args, metadata_args, settings
    )
    blosc_args.check()
    if metadata is not None:
        metadata_args.check()
    effective_nthreads(nthreads, nchunks)  # checks it
    header = header_for(
        blosc_args,
        bloscpack_args,
        (nchunks, chunk_size, last_chunk),
        bloscpack_args.effective_max_app_chunks(nchunks),
        metadata is not None,
    )
    source.configure(chunk_size, last_chunk, nchunks)
    sink.configure(blosc_args, header)
    trailer = sink.trailer = None
    if metadata is not None:
        value = metadata.value if isinstance(metadata, Section) else metadata
        if is_shard(value):
            check_table(value, header)
            trailer = sink.trailer = new_trailer(value, header)
    sink.write_bloscpack_header()
    if metadata is not None:
        sink.write_metadata(metadata, metadata_args)
    sink.init_offsets()

    checksum, compress = header.checksum_impl, source.compress_func
    store = hook(sink, "store", "put", "do_checksum")
    pieces = None
    count = 0

    def work(chunk: Any) -> tuple[bytes, bytes, bytes]:
        compressed = compress(chunk if pieces is None else chunk(), blosc_args)
        if store is None:
            return compressed, b"", b""
        makes_row = trailer is not None and trailer.makes_rows
        return compressed, *digest_and_row(compressed, checksum, makes_row)

    def deliver(result: tuple[bytes, bytes, bytes]) -> None:
        nonlocal count
        compressed, digest, row = result
        nbytes = chunks.plain_size(compressed)
        if nchunks != -1:
            _check_chunk(header, count, nbytes)
        if store is not None:
            if trailer is not None:
                trailer.next_row = row
            store(count, compressed, digest)
        else:
            sink.put(count, compressed)
        count += 1
        if progress is not None:
            progress(nbytes)

    with own_settings:
        if compress is compress_chunk:
            compress = chunks.compress  # the settings hold already
            nthreads = share_threads(nthreads, nchunks, chunk_size)
        else:
            nthreads = 1  # code written for 0.16 expects a single thread
        items: Iterable[Any] | None = None
        if nthreads > 1:  # the thread that compresses a chunk reads it, if it can
            read = hook(source, "pieces", "__iter__")
            items = pieces = read() if read is not None else None
        if items is None:
            lasting = nthreads == 1 or hook(source, "lasting", "__iter__")
            items = source if lasting else map(_lasting, source)
        run = run_length(nchunks, chunk_size, nthreads, RUN_TO_COMPRESS)
        try:
            ordered(items, work, deliver, nthreads, run, chunk_size < QUICK_CHUNK)
        except MemoryError as error:
            raise StorageError(
                "there is no memory to compress chunks of '%d' bytes, '%d' at a time"
                % (chunk_size, nthreads)
            ) from error
    if nchunks not in (-1, count):
        raise StorageError(
            "the source announced '%d' chunks, but yielded '%d'" % (nchunks, count)
        )
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


def _lasting(chunk: Buffer) -> bytes:
    """Return the bytes of a buffer that its source may use again."""
    if type(chunk) is bytes:
        return chunk
    return bytes(memoryview(chunk))  # bytes(10) would be ten zero bytes


def _check_chunk(header: BloscpackHeader, i: int, nbytes: int) -> None:
    """Raise `StorageError` if the header has no such chunk, or one of another size."""
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
        A chunk is damaged. The chunks before it have been stored, and none behind it; a
        sparse file may lack the zeros at their end.
    """
    nchunks = getattr(source, "nchunks", None)
    header = getattr(source, "bloscpack_header", None)
    chunk_size = header.chunk_size if header is not None else -1
    checksum = source.checksum_impl
    store, room = hook(sink, "store", "put"), hook(sink, "room", "put")
    put: Callable[[Any], object] = sink.put if store is None else store
    placing = None if room is not None else hook(sink, "placing", "put", "store")
    place: Callable[[int, Buffer], object] | None = placing() if placing else None
    workspace, end = Workspace() if place is not None else None, 0
    frames = hook(source, "frames", "__iter__")
    items: Iterable[Frame] = _frames_of(source) if frames is None else frames()

    def with_memory(items: Iterable[Frame]) -> Iterator[Frame]:
        for frame in items:
            memory = room(frame.start, frame.header.nbytes)
            frame.memory = None if memory is None else memoryview(memory)
            yield frame

    def work(frame: Frame) -> tuple[Frame, Buffer | None]:
        try:
            compressed, digest = frame.content
            if checksum is not None:
                chunks.check_digest(compressed, digest, checksum)
            if store is None:
                return frame, bytes(compressed)
            if workspace is not None and place is not None:
                plain = workspace.view(frame.header.nbytes)
                chunks.decompress_into(compressed, plain, frame.header)
                place(frame.start, plain)
                return frame, None
            if frame.memory is None:
                return frame, chunks.decompress(compressed, frame.header)
            chunks.decompress_into(compressed, frame.memory, frame.header)
        except FormatError as error:
            error.locate(frame.number, frame.offset)
            raise
        except MemoryError as error:
            raise _no_memory(frame) from error
        return frame, None

    def deliver(result: tuple[Frame, Buffer | None]) -> None:
        nonlocal end
        frame, chunk = result
        if progress is not None:
            progress(frame.header.nbytes)
        end = frame.start + frame.header.nbytes
        if chunk is not None:
            try:
                put(chunk)
            except FormatError as error:
                error.locate(frame.number, frame.offset)
                raise
            except MemoryError as error:
                raise _no_memory(frame) from error

    with own_settings:
        most = nthreads_to_read(nthreads, nchunks, chunk_size)
        nthreads = min(most, share_threads(nthreads, nchunks, chunk_size))
        if room is not None:
            items = with_memory(items)
        run = 1
        if getattr(source, "in_place", False) and (room or place):
            run = run_length(nchunks or 0, chunk_size, nthreads)
        try:
            ordered(items, work, deliver, nthreads, run, 0 < chunk_size < QUICK_CHUNK)
        finally:
            if place is not None:
                sink.placed(end)  # type: ignore[attr-defined]
    if store is not None:
        sink.finalize()


def _frames_of(source: CompressedSource) -> Iterator[Frame]:
    """Yield the chunks of a source that has no ``frames``."""
    start = 0
    for number, content in enumerate(source):
        compressed, digest = map(_lasting, content)
        offset = getattr(source, "chunk_offset", None)
        with locating_chunk(number, offset):
            header = decode_header(compressed)
        frame = Frame(number, offset, start, header)
        frame.content = compressed, digest
        start += header.nbytes
        yield frame


def _no_memory(frame: Frame) -> FormatError:
    return chunk_damage(
        "there is no memory for the '%d' plain bytes up to the end of the chunk"
        % (frame.start + frame.header.nbytes),
        chunk=frame.number,
        offset=frame.offset,
    )


# The number of threads


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


def may_read_at_once(nthreads: int | None, progress: object, limits: object) -> bool:
    """Return whether a short file may be unpacked without threads, for speed."""
    effective_nthreads(nthreads, 1)  # a wrong number is an error
    return progress is None and limits is None


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


# Names kept from 0.16

__getattr__ = sibling_names(__name__)
