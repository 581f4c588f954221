"""Sources and sinks over lists of chunks in memory.

They define only the methods that 0.16 had, so `pack` and `unpack` call them from one
thread. A subclass can override any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ._compat import sibling_names
from ._types import Buffer, Json
from .abstract_io import CompressedSink, CompressedSource, PlainSource, StoringSink
from .args import BloscArgs, MetadataArgs
from .headers import BloscpackHeader


class PlainMemorySource(PlainSource):
    """Yields the given plain chunks.

    Parameters
    ----------
    chunks
        The chunks, each of the size that `pack` is told.

    Examples
    --------
    >>> from bloscpack.abstract_io import pack, unpack
    >>> packed = CompressedMemorySink()
    >>> pack(PlainMemorySource([b'abcd', b'ef']), packed, 2, 4, 2)
    >>> plain = PlainMemorySink()
    >>> unpack(CompressedMemorySource(packed), plain)
    >>> plain.chunks
    [b'abcd', b'ef']
    """

    def __init__(self, chunks: Iterable[Buffer]) -> None:
        self.chunks = chunks

    def __iter__(self) -> Iterator[Buffer]:
        return iter(self.chunks)


class CompressedMemorySource(CompressedSource):
    """Yields the chunks and digests that a `CompressedMemorySink` has stored."""

    def __init__(self, compressed_memory_sink: CompressedMemorySink) -> None:
        self.compressed_memory_sink = compressed_memory_sink
        self.checksum_impl = compressed_memory_sink.checksum_impl
        self.checksum = compressed_memory_sink.checksum
        self.nchunks = compressed_memory_sink.nchunks
        self.chunks = compressed_memory_sink.chunks
        self.checksums = compressed_memory_sink.checksums

    @property
    def metadata(self) -> Json:
        """The metadata, None if there is none."""
        return self.compressed_memory_sink.metadata

    def __iter__(self) -> Iterator[tuple[Buffer, Buffer]]:
        return zip(self.chunks, self.checksums, strict=True)


class PlainMemorySink(StoringSink):
    """Stores the plain chunks in the list ``chunks``.

    Parameters
    ----------
    nchunks
        The maximum number of chunks; another chunk raises IndexError. None: no maximum.
    """

    def __init__(self, nchunks: int | None = None) -> None:
        self.have_chunks = nchunks is not None
        self.chunks: list[Buffer | None] = [None] * (nchunks or 0)
        self.i = 0

    def store(self, plain: Buffer) -> None:
        if self.have_chunks:
            self.chunks[self.i] = plain
            self.i += 1
        else:
            self.chunks.append(plain)


class CompressedMemorySink(CompressedSink):
    """Stores the compressed chunks and their digests in two lists.

    The lists are ``chunks`` and ``checksums``. ``metadata`` is None if there is none.
    """

    def configure(
        self, blosc_args: BloscArgs, bloscpack_header: BloscpackHeader
    ) -> None:
        super().configure(blosc_args, bloscpack_header)
        self.checksum = bloscpack_header.checksum
        self.nchunks = bloscpack_header.nchunks
        # `put` replaces every None.
        self.chunks: list[bytes] = [None] * max(self.nchunks, 0)  # type: ignore[list-item]
        self.checksums: list[bytes] = [None] * max(self.nchunks, 0)  # type: ignore[list-item]
        self.metadata: Json = None
        self.metadata_args: MetadataArgs | None = None

    def write_bloscpack_header(self) -> None:
        """Do nothing: ``bloscpack_header`` holds the header."""

    def write_metadata(self, metadata: object, metadata_args: MetadataArgs) -> None:
        self.metadata = metadata
        self.metadata_args = metadata_args

    def init_offsets(self) -> None:
        """Do nothing: chunks in a list need no offsets."""

    def put(self, i: int, compressed: bytes) -> None:
        """Store a compressed chunk and its digest."""
        digest = self.do_checksum(compressed)
        if self.nchunks == -1:
            self.chunks.append(compressed)
            self.checksums.append(digest)
        else:
            self.chunks[i] = compressed
            self.checksums[i] = digest


# Names kept from 0.16

__getattr__ = sibling_names(__name__)
