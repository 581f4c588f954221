"""The abstract sources and sinks, between which `pack` and `unpack` move chunks.

Of the methods of the four abstract classes only ``__iter__`` and ``put`` are abstract.
The other methods do nothing unless a subclass overrides them, and need no
``super().__init__()``. A subclass that sets ``concurrent`` to True also lets the pool
load and store its chunks.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ._compat import sibling_names
from ._engine.blosc_settings import own_settings
from ._format.blosc_header import decode_header
from ._format.chunks import Frame, compress, decompress, decompress_into
from ._types import Buffer
from .args import BloscArgs, MetadataArgs
from .checksums import Hash
from .exceptions import FormatError
from .headers import BloscpackHeader

if TYPE_CHECKING:
    from ._loop import pack as pack
    from ._loop import unpack as unpack

# The `tasks` method of a plain source yields tasks, its `load` method takes them.
PlainTask = Any

Progress = Callable[[int], object]

__all__ = [
    "CompressedSink",
    "CompressedSource",
    "PlainSink",
    "PlainSource",
    "StoringSink",
    "pack",
    "unpack",
]


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


class MemorySink(PlainSink):
    """Fills memory of known size; any thread may decompress into its place."""

    concurrent = True
    random_access = True

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self._ends = [0]

    def put(self, compressed: bytes) -> int:
        """Decompress the next chunk; return its plain size in bytes."""
        nbytes, start = decode_header(compressed).nbytes, self._ends[-1]
        room = self.room(start, nbytes)
        with own_settings:
            if room is None:
                self.store_at(start, decompress(compressed))
            else:
                decompress_into(compressed, room)
        return nbytes

    def room(self, start: int, nbytes: int) -> memoryview | None:
        self._ends.append(start + nbytes)
        return self._memory[start : start + nbytes]


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
        return self.checksum_impl(compressed)


# Names kept from 0.16

__getattr__ = sibling_names(__name__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
