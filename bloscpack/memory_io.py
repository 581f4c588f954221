"""Sources and sinks that keep their chunks in lists."""

from __future__ import annotations

from ._compat import sibling_names
from ._engine.blosc_settings import own_settings
from ._format.chunks import decompress
from .abstract_io import CompressedSink, CompressedSource, PlainSink, PlainSource

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from ._format.chunks import Buffer
    from .args import BloscArgs, MetadataArgs
    from .headers import BloscpackHeader


class PlainMemorySource(PlainSource):
    """Yields the plain chunks it is given."""

    def __init__(self, chunks: Iterable[Buffer]) -> None:
        self.chunks = chunks

    def __iter__(self) -> Iterator[Buffer]:
        return iter(self.chunks)


class CompressedMemorySource(CompressedSource):
    """Yields what a `CompressedMemorySink` has kept."""

    def __init__(self, compressed_memory_sink: CompressedMemorySink) -> None:
        self.compressed_memory_sink = compressed_memory_sink
        self.checksum_impl = compressed_memory_sink.checksum_impl
        self.checksum = compressed_memory_sink.checksum
        self.nchunks = compressed_memory_sink.nchunks
        self.chunks = compressed_memory_sink.chunks
        self.checksums = compressed_memory_sink.checksums

    @property
    def metadata(self) -> Any:
        """The metadata, None if there are none."""
        return self.compressed_memory_sink.metadata

    def __iter__(self) -> Iterator[tuple[Buffer, Buffer]]:
        return zip(self.chunks, self.checksums, strict=True)


class PlainMemorySink(PlainSink):
    """Keeps the plain chunks in the list ``chunks``.

    With `nchunks` it takes that many; one more raises IndexError.
    """

    def __init__(self, nchunks: int | None = None) -> None:
        self.have_chunks = nchunks is not None
        self.chunks: list[Any] = [None] * (nchunks or 0)
        self.i = 0

    def put(self, compressed: bytes) -> int:
        """Decompress and keep a chunk; return its plain size in bytes."""
        with own_settings:
            plain = decompress(compressed)
        self.store(plain)
        return len(plain)

    def store(self, plain: Buffer) -> None:
        if self.have_chunks:
            self.chunks[self.i] = plain
            self.i += 1
        else:
            self.chunks.append(plain)


class CompressedMemorySink(CompressedSink):
    """Keeps the compressed chunks and their digests in two lists."""

    def configure(
        self, blosc_args: BloscArgs, bloscpack_header: BloscpackHeader
    ) -> None:
        super().configure(blosc_args, bloscpack_header)
        self.checksum = bloscpack_header.checksum
        self.nchunks = bloscpack_header.nchunks
        self.chunks: list[Any] = [None] * max(self.nchunks, 0)
        self.checksums: list[Any] = [None] * max(self.nchunks, 0)
        self.metadata: Any = None
        self.metadata_args: MetadataArgs | None = None

    def write_bloscpack_header(self) -> None:
        """Nothing to do: the header is kept as an object."""

    def write_metadata(self, metadata: Any, metadata_args: MetadataArgs) -> None:
        self.metadata = metadata
        self.metadata_args = metadata_args

    def init_offsets(self) -> None:
        """Nothing to do: chunks in a list need no offsets."""

    def put(self, i: int, compressed: bytes) -> None:
        """Keep a compressed chunk and its digest."""
        digest = self.do_checksum(compressed)
        if self.nchunks == -1:
            self.chunks.append(compressed)
            self.checksums.append(digest)
        else:
            self.chunks[i] = compressed
            self.checksums[i] = digest


# Names kept from 0.16

__getattr__ = sibling_names(__name__)
