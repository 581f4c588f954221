"""The loop: plain source → compressed sink, compressed source → plain sink.

Sources are iterated and sinks written in the thread of the caller, in order;
compressing, decompressing and digests are spread over threads. Of the hooks
only ``__iter__`` and ``put`` are abstract; the others do nothing unless a subclass
says so, and need no ``super().__init__()``.
"""

from __future__ import annotations

import abc

from . import log
from .args import BloscArgs, BloscpackArgs, MetadataArgs
from .chunks import (
    check_digest,
    compress,
    decode_header,
    decompress,
    decompress_into,
    own_settings,
)
from .compat import sibling_names
from .exceptions import StorageError, locating
from .headers import BloscpackHeader
from .parallel import available_cpus, ordered_map
from .pretty import double_pretty_size

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from .checksums import Hash
    from .chunks import Buffer


def compress_chunk(chunk: Buffer, blosc_args: BloscArgs) -> bytes:
    """Return `chunk`, any buffer of bytes, as one Blosc chunk."""
    with own_settings:
        return compress(chunk, blosc_args)


class PlainSource(abc.ABC):
    """Yields plain chunks.

    `pack` calls `configure` and then iterates: every chunk must have
    ``self.chunk_size`` bytes, the last ``self.last_chunk``. With
    ``self.nchunks`` -1 the source decides when it ends.
    """

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


class CompressedSource(abc.ABC):
    """Yields pairs of a compressed chunk and its digest.

    ``checksum_impl``, where it is set, is what the digests are checked with;
    ``chunk_offset`` is the file position of the chunk last yielded, if known.
    """

    checksum_impl: Hash | None = None
    chunk_offset: int | None = None

    @abc.abstractmethod
    def __iter__(self) -> Iterator[tuple[Buffer, Buffer]]:
        """Yield (compressed chunk, digest) in order."""


class PlainSink(abc.ABC):
    """Takes chunks, in order, and keeps their plain bytes.

    A subclass defines ``put``, which gets the chunk compressed. One that also
    defines ``store`` gets plain bytes instead, decompressed on another thread.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # The last word on what happens to a chunk has the class that defines
        # put, also where it inherits store from a sink of ours.
        if "put" in cls.__dict__ and "store" not in cls.__dict__:
            cls.store = None  # type: ignore[method-assign,assignment]

    @abc.abstractmethod
    def put(self, chunk: bytes) -> Any:
        """Decompress and keep a compressed chunk."""

    def store(self, plain: Buffer) -> None:
        """Keep the bytes of a chunk; no-op where `room` gave them a place."""

    def room(self, nbytes: int) -> memoryview | None:
        """Return memory that the next chunk is to be decompressed into, or None."""
        return None

    def finalize(self) -> None:
        """Called when every chunk has been kept."""


class CompressedSink(abc.ABC):
    """Takes compressed chunks, in order, and keeps them.

    ``put`` gets the compressed chunk and computes its digest with `do_checksum`.
    A subclass that also defines ``put_digested`` gets the digest from another thread.
    """

    blosc_args: BloscArgs
    bloscpack_header: BloscpackHeader
    checksum_impl: Hash

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # The last word on what happens to a chunk has the class that defines
        # put, also where it inherits put_digested from a sink of ours.
        if "put" in cls.__dict__ and "put_digested" not in cls.__dict__:
            cls.put_digested = None  # type: ignore[method-assign,assignment]

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

    def put_digested(self, i: int, compressed: bytes, digest: bytes) -> Any:
        """Keep the compressed chunk number `i` and its digest."""
        return self.put(i, compressed)

    def finalize(self) -> None:
        """Called when every chunk has been kept."""

    def do_checksum(self, compressed: Buffer) -> bytes:
        """Return the digest of a compressed chunk."""
        digest = self.checksum_impl(compressed)
        if self.checksum_impl.size:
            log.debug("checksum (%s): %r" % (self.checksum_impl.name, digest))
        else:
            log.debug("no checksum")
        return digest


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
    blosc_args = BloscArgs() if blosc_args is None else blosc_args
    bloscpack_args = BloscpackArgs() if bloscpack_args is None else bloscpack_args
    metadata_args = MetadataArgs() if metadata_args is None else metadata_args
    blosc_args.check()
    bloscpack_args.check()
    if log.enabled(log.DEBUG):
        log.debug(blosc_args.pformat())
        log.debug(bloscpack_args.pformat())
        if metadata is None:
            log.debug("metadata_args will be silently ignored")
        else:
            log.debug(metadata_args.pformat())
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
    log.debug(header.pformat())
    source.configure(chunk_size, last_chunk, nchunks)
    sink.configure(blosc_args, header)
    sink.write_bloscpack_header()
    if metadata is not None:
        sink.write_metadata(metadata, metadata_args)
    sink.init_offsets()
    if source.compress_func is not compress_chunk:
        nthreads = 1  # written for a time when everything ran in one thread
    _pump(source, sink, header, blosc_args, effective_nthreads(nthreads, nchunks))
    sink.finalize()


def effective_nthreads(nthreads: int | None, nchunks: int | None) -> int:
    """Return how many threads to use: no more than there are chunks."""
    count = available_cpus() if nthreads is None else max(1, nthreads)
    return count if nchunks in (None, -1) else max(1, min(count, nchunks or 1))


def _pump(
    source: PlainSource,
    sink: CompressedSink,
    header: BloscpackHeader,
    blosc_args: BloscArgs,
    nthreads: int,
) -> None:
    """Compress and digest on threads what is read and written here."""
    compress_func = source.compress_func
    if compress_func is compress_chunk:
        compress_func = compress  # the settings are entered once, below
    checksum = header.checksum_impl
    put_digested = sink.put_digested
    debugging = log.enabled(log.DEBUG)

    def work(plain: Any) -> tuple[int, bytes, bytes | None]:
        compressed = compress_func(plain, blosc_args)
        digest = checksum(compressed) if put_digested is not None else None
        return decode_header(compressed).nbytes, compressed, digest

    count = 0
    with own_settings:
        for nbytes, compressed, digest in ordered_map(work, iter(source), nthreads):
            last = count == header.nchunks - 1
            _check_announced(header, count, nbytes)
            if debugging:
                log.debug("Handle chunk '%d'%s" % (count, " (last)" if last else ""))
            if digest is None:
                sink.put(count, compressed)
            else:
                put_digested(count, compressed, digest)
            if debugging:
                log.debug(
                    "chunk handled, in: %s out: %s"
                    % (double_pretty_size(nbytes), double_pretty_size(len(compressed)))
                )
            count += 1
    if header.nchunks not in (-1, count):
        raise StorageError(
            "the source announced '%d' chunks, but yielded '%d'"
            % (header.nchunks, count)
        )


def _check_announced(header: BloscpackHeader, i: int, nbytes: int) -> None:
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
    source: CompressedSource, sink: PlainSink, *, nthreads: int | None = None
) -> None:
    """Decompress everything from `source` into `sink`.

    `nthreads` defaults to the CPUs that this process may use. Raises
    `FormatError` at the first chunk that is damaged; the sink then has those before.
    """
    checksum = source.checksum_impl
    keeps_plain = sink.store is not None
    debugging = log.enabled(log.DEBUG)
    nchunks = getattr(source, "nchunks", None)

    def jobs() -> Iterator[tuple[int, int | None, Buffer, Buffer, memoryview | None]]:
        for i, (compressed, digest) in enumerate(source):
            room = None
            if keeps_plain:
                with locating(i, source.chunk_offset):
                    room = sink.room(decode_header(compressed).nbytes)
            yield i, source.chunk_offset, compressed, digest, room

    def work(
        job: tuple[int, int | None, Buffer, Buffer, memoryview | None],
    ) -> tuple[int, Buffer, Buffer, Buffer | None]:
        i, offset, compressed, digest, room = job
        with locating(i, offset):
            if checksum is not None:
                check_digest(compressed, digest, checksum)
            if not keeps_plain:
                return i, compressed, digest, None
            if room is None:
                return i, compressed, digest, decompress(compressed)
            decompress_into(compressed, room)
            return i, compressed, digest, room

    with own_settings:
        results = ordered_map(work, jobs(), effective_nthreads(nthreads, nchunks))
        for i, compressed, digest, plain in results:
            if debugging:
                _tell(i, compressed, digest, checksum, i + 1 == nchunks)
            if plain is None:
                sink.put(bytes(compressed))
            else:
                sink.store(plain)
    sink.finalize()


def _tell(
    i: int, compressed: Buffer, digest: Buffer, checksum: Hash | None, last: bool
) -> None:
    from .headers import decode_blosc_header

    header = decode_blosc_header(bytes(compressed[:16]))
    log.debug("blosc_header: OrderedDict(%r)" % list(header.items()))
    log.debug("decompressing chunk '%d'%s" % (i, " (last)" if last else ""))
    if checksum is not None and checksum.size:
        log.debug("checksum OK (%s): %r" % (checksum.name, bytes(digest)))
    log.debug(
        "chunk handled, in: %s out: %s"
        % (double_pretty_size(len(compressed)), double_pretty_size(header["nbytes"]))
    )


# Names kept from 0.16

__getattr__ = sibling_names(__name__)
