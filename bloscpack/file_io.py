"""Pack files and bytes, and unpack them.

A file object is used from its current position on and stays open. A file that is
written under a path appears there only when it is complete. A count that a file states
is compared with the size of the file before memory is allocated.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from . import log
from ._commit.ownership import attributes_of_input
from ._commit.replacing import check_distinct, replacing
from ._commit.snapshot import attempts_for, read_snapshot
from ._compat import deprecated_alias, sibling_names
from ._engine.prealloc import WORTH_NO_COPY
from ._format.sections import read_metadata
from ._loop import pack, unpack
from ._storage.base import bytes_left
from ._storage.cursor import Cursor
from ._storage.paths import is_url, size_of_input, without_url
from ._storage.stream import sampled, size_of
from ._types import (
    BinaryFile,
    Buffer,
    Json,
    Path,
    Seekable,
    StorageOptions,
    Writable,
)
from .abstract_io import Progress
from .args import (
    AnyBloscArgs,
    AnyBloscpackArgs,
    AnyLimits,
    AnyMetadataArgs,
    AutoKeywords,
    calculate_nchunks,
    fit_settings,
    goal_of,
    parse_chunk_size,
)
from .bytes_io import (
    CompressedBytesSource,
    JoinedBytesSink,
    PlainBytesSink,
    PlainBytesSource,
    bytes_writer,
)
from .constants import MAGIC, MAX_TYPESIZE
from .defaults import CHUNK_SIZE_NOT_GIVEN
from .exceptions import UsageTypeError
from .fp_io import CompressedFPSink as CompressedFPSink
from .fp_io import CompressedFPSource as CompressedFPSource
from .fp_io import PlainFPSink as PlainFPSink
from .fp_io import PlainFPSource as PlainFPSource
from .fp_io import SectionsSource
from .fp_io import is_seekable as is_seekable
from .fp_io import plain_sink as plain_sink
from .headers import BloscpackHeader, MetadataHeader
from .pretty import double_pretty_size, pretty_size

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._commit.snapshot import Check

MakeSink = Callable[[SectionsSource, Writable, int], PlainFPSink]


# Maximum compression ratio for which the stated plain size is used to reserve disk
# space. A higher ratio is rare; the header may be wrong.
LIKELY_RATIO = 1000


def log_packed(in_size: int, out_file: Path) -> None:
    """Log the size of a packed file and its compression ratio."""
    out_size = _size_to_log(out_file)
    if out_size is not None:
        log.verbose("output file size: %s" % double_pretty_size(out_size))
        log.verbose("compression ratio: %f" % (in_size / max(out_size, 1)))


def log_input(in_file: Path, in_size: int) -> None:
    """Log the size of a local input."""
    if not is_url(in_file):
        log.verbose("input file size: %s" % pretty_size(in_size))


def log_unpacked(in_size: int, out_file: Path) -> None:
    """Log the size of an unpacked file, and its ratio unless the input is a URL."""
    out_size = _size_to_log(out_file)
    if out_size is None:
        return
    log.verbose("output file size: %s" % pretty_size(out_size))
    if in_size:
        log.verbose("decompression ratio: %f" % (out_size / max(in_size, 1)))


def _size_to_log(out_file: Path) -> int | None:
    """Return the size of a file; None if it is not logged, or if the file is gone."""
    if not log.enabled(log.VERBOSE):
        return None
    try:
        return os.path.getsize(out_file)
    except OSError:
        return None


def pack_file_to_file(
    in_file: Path,
    out_file: Path,
    chunk_size: int | str = CHUNK_SIZE_NOT_GIVEN,
    metadata: object = None,
    blosc_args: AnyBloscArgs | None = None,
    bloscpack_args: AnyBloscpackArgs | None = None,
    metadata_args: AnyMetadataArgs | None = None,
    *,
    sync: bool | None = None,
    exclusive: bool = False,
    storage_options: StorageOptions | None = None,
    **keywords: Unpack[AutoKeywords],
) -> None:
    """Compress a file into another file.

    Parameters
    ----------
    in_file
        The file to read. A pipe is read to its end and stored without an offset table.
    out_file
        The file to write. It appears under this name only when it is complete.
    chunk_size
        Size of a chunk in bytes, or text like ``'1M'`` or ``'max'``.
    metadata
        Any value that JSON can represent. None: no metadata section.
    blosc_args, bloscpack_args, metadata_args
        The settings; see `BloscArgs`, `BloscpackArgs` and `MetadataArgs`.
    auto
        Whether to choose settings and chunk size that fit the data, by trials on a
        sample: True, or a goal as in `BloscArgs.auto`, such as ``'ratio'``. A setting
        that is given stays as it is, also ``chunk_size='1M'``. The sample of a pipe is
        its beginning.
    nthreads, progress, settings
        As in `bloscpack.abstract_io.pack`; `settings` are fields of the three classes
        as keywords, such as ``clevel=9``.
    storage_options
        Settings of fsspec for a URL, such as keys.
    sync
        Whether to wait until the disk has stored the file, so that it survives a crash
        of the machine. By default only if it replaces another file.
    exclusive
        Whether to raise an `OSError` with the number ``EEXIST`` if there is a file of
        the name `out_file`, now or at the end, rather than replace it.

    Raises
    ------
    UsageError
        An argument is invalid.
    StorageError
        The input became shorter while it was read. Bytes that another program appends
        during the read are not stored.
    """
    check_distinct(in_file, out_file)
    without_url(in_file, "packing a file")
    args = metadata, blosc_args, bloscpack_args, metadata_args
    with (
        open(in_file, "rb") as in_fp,
        replacing(
            out_file,
            sync,
            attributes_of_input(in_fp),
            exclusive=exclusive,
            storage_options=storage_options,
        ) as out_fp,
    ):
        pack_fp_to_fp(in_fp, out_fp, chunk_size, *args, **keywords)
        in_size = in_fp.tell() if in_fp.seekable() else 0
    log_packed(in_size, out_file)


def pack_fp_to_fp(
    in_fp: BinaryIO,
    out_fp: Writable,
    chunk_size: int | str = CHUNK_SIZE_NOT_GIVEN,
    metadata: object = None,
    blosc_args: AnyBloscArgs | None = None,
    bloscpack_args: AnyBloscpackArgs | None = None,
    metadata_args: AnyMetadataArgs | None = None,
    **keywords: Unpack[AutoKeywords],
) -> None:
    """Compress a buffered file object to its end into a new file.

    Both may be pipes. The output has no offset table if the size of the input is
    unknown or the output can't seek. The other parameters and the errors are those of
    `pack_file_to_file`.
    """
    size = size_of(in_fp)
    settings: Any = keywords
    sample = None
    if goal_of(settings.get("auto")):
        in_fp, sample = sampled(in_fp, size)
    chunk_size, blosc_args = fit_settings(settings, chunk_size, blosc_args, sample)
    if size is not None:
        log.verbose("input file size: %s" % double_pretty_size(size))
        sizes = calculate_nchunks(size, chunk_size)
    else:
        sizes = -1, parse_chunk_size(chunk_size), -1
    args = blosc_args, bloscpack_args, metadata_args
    sink = CompressedFPSink(out_fp, new=True)
    pack(PlainFPSource(in_fp), sink, *sizes, metadata, *args, **settings)


def unpack_file_from_file(
    in_file: Path,
    out_file: Path,
    *,
    nthreads: int | None = None,
    sync: bool | None = None,
    limits: AnyLimits | None = None,
    progress: Progress | None = None,
    sparse: bool = True,
    storage_options: StorageOptions | None = None,
) -> Json:
    """Decompress a file into another file and return its metadata.

    The result is None if there is no metadata.

    Parameters
    ----------
    in_file
        The compressed file.
    out_file
        The file to write. It appears under this name only when it is complete.
    nthreads, progress
        As in `bloscpack.abstract_io.pack`. If another process changes `in_file` during
        the read, it is read again and `progress` counts its chunks again.
    sync
        As in `pack_file_to_file`.
    storage_options
        Settings of fsspec for a URL, such as keys.
    limits
        The sizes that the file must not exceed; see `Limits`.
    sparse
        Whether blocks of zero bytes become holes in the output, which take no disk
        space and are read as zeros.

    Raises
    ------
    FormatError
        `in_file` is damaged or exceeds the limits. `out_file` is unchanged.
    """
    return unpack_to_path(
        in_file,
        out_file,
        partial(plain_sink, sparse=sparse),
        sync,
        storage_options,
        nthreads=nthreads,
        limits=limits,
        progress=progress,
    )


def unpack_to_path(
    in_file: Path,
    out_file: Path,
    make_sink: MakeSink,
    sync: bool | None,
    storage_options: StorageOptions | None,
    *,
    preserve: bool = False,
    nthreads: int | None = None,
    limits: AnyLimits | None = None,
    progress: Progress | None = None,
) -> Json:
    """Decompress a file into another file and return its metadata.

    `make_sink` returns the sink, as in `unpack_fp_to_fp`. With `preserve` the output
    gets the times of the input and, if it replaces no file, its permissions. The other
    parameters and the errors are those of `unpack_file_from_file`.
    """
    check_distinct(in_file, out_file)
    in_size = size_of_input(in_file)
    log_input(in_file, in_size)

    def read(in_fp: BinaryFile, check: Check) -> Json:
        with replacing(
            out_file,
            sync,
            attributes_of_input(in_fp),
            access=preserve,
            times=preserve,
            storage_options=storage_options,
        ) as out_fp:
            return unpack_fp_to_fp(
                in_fp,
                out_fp,
                check,
                nthreads=nthreads,
                limits=limits,
                progress=progress,
                behind=bytes,  # accepts any bytes
                make_sink=make_sink,
            )

    metadata = read_snapshot(
        in_file,
        read,
        attempts_for(out_file),
        storage_options=storage_options,
        limits=limits,
    )
    log_unpacked(in_size, out_file)
    return metadata


def unpack_fp_to_fp(
    in_fp: Seekable,
    out_fp: Writable,
    check: Check | None = None,
    *,
    nthreads: int | None = None,
    limits: AnyLimits | None = None,
    progress: Progress | None = None,
    behind: Callable[[bytes], object] | None = None,
    make_sink: MakeSink = plain_sink,
) -> Json:
    """Decompress a file object, from its current position on, into a new file.

    Both may be pipes. `check` is called with the header when the sections in front of
    the chunks have been read, and a second time at the end if the chunks have no
    digests. `behind` is called with up to four bytes that lie behind the last chunk;
    without it, nothing behind the last chunk is read from a pipe. `make_sink`
    returns the sink for a source, a file object and a number of bytes to reserve. The
    other parameters, the result and the errors are those of `unpack_file_from_file`.
    """
    source = CompressedFPSource(in_fp, limits=limits, to_end=behind is not None)
    header = source.bloscpack_header
    if check is not None:
        check(header)
    reserved = likely_nbytes(header, bytes_left(in_fp) or 0)
    sink = make_sink(source, out_fp, reserved)
    unpack(source, sink, nthreads=nthreads, progress=progress)
    # Without digests nothing else detects a mixture of two states of the input, and the
    # output is about to appear under its name.
    if check is not None and not header.checksum_impl.size:
        check(header)
    if behind is not None:
        behind(source.peek_behind(len(MAGIC)))
    return source.metadata


def likely_nbytes(header: BloscpackHeader, in_size: int) -> int:
    """Return the plain size in bytes that the header of a file states.

    0 if it is unknown, or if `in_size` compressed bytes are unlikely to hold so much.
    """
    nbytes = header.nbytes or 0
    return nbytes if nbytes <= in_size * LIKELY_RATIO else 0


def pack_bytes_to_file(
    bytes_: Buffer,
    out_file: Path,
    chunk_size: int | str = CHUNK_SIZE_NOT_GIVEN,
    metadata: object = None,
    blosc_args: AnyBloscArgs | None = None,
    bloscpack_args: AnyBloscpackArgs | None = None,
    metadata_args: AnyMetadataArgs | None = None,
    *,
    sync: bool | None = None,
    storage_options: StorageOptions | None = None,
    **keywords: Unpack[AutoKeywords],
) -> None:
    """Compress a buffer into a file.

    All bytes of the buffer are stored, whatever the size of its items. The other
    parameters and the errors are those of `pack_file_to_file`.

    Examples
    --------
    >>> pack_bytes_to_file(b'abcd' * 1000, 'abcd.blp', metadata={'unit': 'm'})
    >>> plain, metadata = unpack_bytes_from_file('abcd.blp')
    >>> len(plain), metadata
    (4000, {'unit': 'm'})
    """
    args = metadata, blosc_args, bloscpack_args, metadata_args
    with replacing(out_file, sync, storage_options=storage_options) as out_fp:
        sink = CompressedFPSink(out_fp, new=True)
        in_size = _pack_bytes(_view_of(bytes_), sink, chunk_size, *args, **keywords)
    log_packed(in_size, out_file)


def pack_bytes_to_bytes(
    bytes_: Buffer,
    chunk_size: int | str = CHUNK_SIZE_NOT_GIVEN,
    metadata: object = None,
    blosc_args: AnyBloscArgs | None = None,
    bloscpack_args: AnyBloscpackArgs | None = None,
    metadata_args: AnyMetadataArgs | None = None,
    **keywords: Unpack[AutoKeywords],
) -> bytes:
    """Compress a buffer and return the file as bytes.

    The parameters and the errors are those of `pack_file_to_file`.

    Examples
    --------
    >>> packed = pack_bytes_to_bytes(b'blosc' * 1000)
    >>> unpack_bytes_from_bytes(packed) == (b'blosc' * 1000, None)
    True
    """
    args = metadata, blosc_args, bloscpack_args, metadata_args
    view = _view_of(bytes_)
    out_fp = bytes_writer(view.nbytes)
    _pack_bytes(view, CompressedFPSink(out_fp), chunk_size, *args, **keywords)
    return out_fp.getvalue()


def _view_of(bytes_: Buffer) -> memoryview:
    """Return a view of a buffer; raises `UsageTypeError` if it is none."""
    try:
        return memoryview(bytes_)
    except TypeError as error:
        hint = ": encode the text first" if isinstance(bytes_, str) else ""
        raise UsageTypeError(
            "'bytes_' must be bytes or another buffer, not '%s'%s"
            % (type(bytes_).__name__, hint)
        ) from error


def _pack_bytes(
    view: memoryview,
    sink: CompressedFPSink,
    chunk_size: int | str,
    metadata: object,
    blosc_args: AnyBloscArgs | None,
    *args: Any,
    **keywords: Unpack[AutoKeywords],
) -> int:
    """Compress a buffer; return its size in bytes. `args` are arguments of `pack`."""
    source = PlainBytesSource(view)
    settings: Any = keywords
    sizes = (view.itemsize,) if 1 < view.itemsize <= MAX_TYPESIZE else ()
    sample = source.read, view.nbytes
    fitted = fit_settings(settings, chunk_size, blosc_args, sample, sizes)
    chunk_size, blosc_args = fitted
    geometry = calculate_nchunks(view.nbytes, chunk_size)
    pack(source, sink, *geometry, metadata, blosc_args, *args, **settings)
    return view.nbytes


def unpack_bytes_from_file(
    compressed_file: Path,
    *,
    nthreads: int | None = None,
    limits: AnyLimits | None = None,
    progress: Progress | None = None,
    storage_options: StorageOptions | None = None,
) -> tuple[bytes, Json]:
    """Return the plain bytes of a file and its metadata.

    The metadata is None if there is none.

    Parameters
    ----------
    compressed_file
        The compressed file.
    nthreads, progress, limits
        As in `unpack_file_from_file`.
    storage_options
        Settings of fsspec for a URL, such as keys.

    Raises
    ------
    FormatError
        The file is damaged or exceeds the limits.
    """

    def read(fp: Seekable, check: Check) -> tuple[bytes, Json]:
        source = CompressedFPSource(fp, limits=limits, to_end=True)
        check(source.bloscpack_header)
        return _unpack_bytes(source, nthreads, progress)

    return read_snapshot(
        compressed_file, read, storage_options=storage_options, limits=limits
    )


def unpack_bytes_from_bytes(
    bytes_: Buffer,
    *,
    nthreads: int | None = None,
    limits: AnyLimits | None = None,
    progress: Progress | None = None,
) -> tuple[bytes, Json]:
    """Return the plain bytes and the metadata of a file in a buffer.

    The other parameters, the results and the errors are those of
    `unpack_bytes_from_file`.
    """
    source = CompressedBytesSource(bytes_, limits=limits)
    return _unpack_bytes(source, nthreads, progress)


def _unpack_bytes(
    source: SectionsSource, nthreads: int | None, progress: Progress | None
) -> tuple[bytes, Json]:
    nbytes = source.bloscpack_header.nbytes
    if nbytes is None:
        with io.BytesIO() as out_fp:
            unpack(source, PlainFPSink(out_fp), nthreads=nthreads, progress=progress)
            return out_fp.getvalue(), source.metadata
    sink: PlainBytesSink | JoinedBytesSink
    sink = JoinedBytesSink() if nbytes < WORTH_NO_COPY else PlainBytesSink(nbytes)
    unpack(source, sink, nthreads=nthreads, progress=progress)
    return sink.getvalue(), source.metadata


# Names kept from 0.16

pack_file = deprecated_alias("pack_file", pack_file_to_file)
unpack_file = deprecated_alias("unpack_file", unpack_file_from_file)
pack_bytes_file = deprecated_alias("pack_bytes_file", pack_bytes_to_file)
unpack_bytes_file = deprecated_alias("unpack_bytes_file", unpack_bytes_from_file)


def _read_metadata(fp: Seekable) -> tuple[Json, MetadataHeader]:
    return read_metadata(Cursor(fp))


__getattr__ = sibling_names(__name__)
