"""Appending to a file, and replacing its metadata, in place.

`plan_append` decides, without writing, everything that will change; the old bytes
of it are kept until the last write has been done, so that a failure leaves the
file as it was. Nothing is believed unseen: the chunks are walked before the offset
table is trusted, and the last chunk's digest is checked before it is written again.
"""

from __future__ import annotations

import os
from contextlib import contextmanager

from . import log
from . import metadata as metadata_section
from . import offsets as offset_table
from .abstract_io import effective_nthreads, tell_digest
from .args import BloscArgs, calculate_nchunks, parse_chunk_size
from .chunks import check_digest, compress, decompress, own_settings, plain_size
from .compat import sibling_names
from .constants import BLOSCPACK_HEADER_LENGTH, FORMAT_VERSION, OFFSET_LENGTH
from .defaults import DEFAULT_CHUNK_SIZE, DEFAULT_TYPESIZE
from .durable import check_distinct, size_of
from .exceptions import (
    FormatError,
    FormatVersionMismatch,
    NoMetadataFound,
    NotEnoughSpace,
    OffsetsRequired,
    StorageError,
    UsageError,
)
from .frames import read_beginning, walk_chunks
from .headers import BloscpackHeader
from .inplace import Borrowed, claimed
from .parallel import for_each
from .pretty import double_pretty_size
from .ranges import Cursor, named, read_up_to

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from .frames import Beginning
    from .inplace import Change, Claim
    from .ranges import Path

# The default of `metadata`: None is a value that metadata may have.
UNCHANGED: Any = object()


class Plan:
    """What an append will change; sizes and positions are bytes.

    ``header`` is the new file header and ``section`` the new metadata section, None
    if it stays. The chunks from number ``first`` on are written from ``write_at`` on;
    each takes as many bytes of the new data as ``sizes`` says, the first of them
    behind the plain bytes of the old last chunk. ``table_at`` is where the entries of
    the ``nchunks_new`` that the file has more go.
    """

    def __init__(
        self,
        header: BloscpackHeader,
        section: bytes | None,
        first: int,
        write_at: int,
        sizes: list[int],
        table_at: int,
        nchunks_new: int,
    ) -> None:
        self.header = header
        self.section = section
        self.first = first
        self.write_at = write_at
        self.sizes = sizes
        self.table_at = table_at
        self.nchunks_new = nchunks_new

    def extents(self, file_size: int) -> list[tuple[int, int]]:
        """Return (start, stop) of all that may be written over, the header first."""
        head = BLOSCPACK_HEADER_LENGTH + len(self.section or b"")
        table_end = self.table_at + OFFSET_LENGTH * self.nchunks_new
        return [(0, head), (self.table_at, table_end), (self.write_at, file_size)]


def plan_append(
    beginning: Beginning, ends: list[int], new_size: int, metadata: Any = UNCHANGED
) -> Plan:
    """Return what appending `new_size` bytes changes, without reading or writing.

    `ends` are the file positions where the first chunk starts and where every
    chunk, with its digest, ends. Raises `UsageError` if it can't be done.
    """
    old = beginning.header
    last_nbytes = old.last_chunk if old.nchunks else 0
    itemsize = _itemsize(beginning.metadata)
    chunk_size = _grown_chunk_size(old, last_nbytes + new_size, itemsize)
    fill = min(chunk_size - last_nbytes, new_size) if old.nchunks else 0
    sizes = [fill] if old.nchunks else []
    nchunks_new, last_chunk = 0, last_nbytes + fill
    if new_size > fill:
        nchunks_new, full, last_chunk = calculate_nchunks(new_size - fill, chunk_size)
    if nchunks_new > old.max_app_chunks:
        raise NotEnoughSpace(
            "not enough space: '%d' chunks are to be appended, but the offset table "
            "has room for '%d'" % (nchunks_new, old.max_app_chunks)
        )
    if nchunks_new:
        sizes += [full] * (nchunks_new - 1) + [last_chunk]
    header = old.copy()
    header.chunk_size = chunk_size
    header.last_chunk = last_chunk
    header.nchunks = old.nchunks + nchunks_new
    header.max_app_chunks = old.max_app_chunks - nchunks_new
    section = _new_section(beginning, header, new_size, metadata)
    first, write_at = (old.nchunks - 1, ends[-2]) if old.nchunks else (0, ends[0])
    table_at = ends[0] - OFFSET_LENGTH * old.max_app_chunks
    return Plan(header, section, first, write_at, sizes, table_at, nchunks_new)


def _grown_chunk_size(header: BloscpackHeader, nbytes: int, itemsize: int) -> int:
    """Return the chunk size to go on with, when the file will hold `nbytes`.

    A single chunk was cut to the size of its input, which would make many small
    chunks of what follows. As no other chunk depends on it, it may grow to what
    packing everything at once would have taken.
    """
    if header.nchunks > 1 or nbytes <= header.chunk_size:
        return header.chunk_size
    default = parse_chunk_size(DEFAULT_CHUNK_SIZE)
    default = max(default - default % itemsize, itemsize)
    return max(header.chunk_size, min(nbytes, default))


def _itemsize(metadata: Any) -> int:
    """Return the bytes of an item, between which chunks of an array must end."""
    if _container(metadata) != "numpy":
        return 1
    from .arrays import Description

    return max(Description(metadata).dtype.itemsize, 1)


def _new_section(
    beginning: Beginning, header: BloscpackHeader, new_size: int, metadata: Any
) -> bytes | None:
    """Return the metadata section as it has to be after the append; None for as is."""
    old_header = beginning.metadata_header
    if metadata is not UNCHANGED and old_header is None:
        raise NoMetadataFound("unable to seek to metadata if it does not exist")
    if old_header is None:
        return None
    if "numpy" in (_container(beginning.metadata), _container(metadata)):
        # Only here, because NumPy takes long to import.
        from .arrays import appended_metadata

        nbytes = header.nbytes or 0
        metadata = appended_metadata(
            beginning.metadata,
            nbytes - new_size,
            new_size,
            None if metadata is UNCHANGED else metadata,
        )
        if metadata == beginning.metadata:
            return None
    if metadata is UNCHANGED:
        return None
    return metadata_section.encode_again(metadata, beginning.metadata, old_header)


def _container(metadata: Any) -> Any:
    return metadata.get("container") if isinstance(metadata, dict) else None


def append_fp(
    original_fp: Any,
    new_content_fp: Any,
    new_size: int,
    blosc_args: BloscArgs | None = None,
    *,
    metadata: Any = UNCHANGED,
    nthreads: int | None = None,
) -> int:
    """Append `new_size` bytes of one file object to the file in another.

    `original_fp` is read and written from its beginning, wherever it stands, and is
    left at its end. The last chunk is filled up and compressed anew with
    `blosc_args`, by default the usual settings; a type size of None in them means
    that of the file.
    `metadata`, if given, replaces the metadata in the room they have. An array
    file grows along its first axis, and its shape with it.

    Returns the number of chunks that the file has more. If anything fails, the
    file gets its old bytes back before the error is raised: `FormatError` if it
    is damaged, `UsageError` if there is no room, no offset table, or the new
    bytes do not fit the array, `StorageError` if the new content is too short.
    """
    target = Borrowed(original_fp)
    return _append(target, new_content_fp, new_size, blosc_args, metadata, nthreads)


def _append(
    target: Borrowed | Claim,
    new_content_fp: Any,
    new_size: int,
    blosc_args: BloscArgs | None,
    metadata: Any,
    nthreads: int | None,
) -> int:
    original_fp = target.fp
    original_fp.seek(0)
    cursor = Cursor(original_fp)
    beginning = read_beginning(cursor)
    header = beginning.header
    _check_appendable(header)
    ends = walk_chunks(cursor, header)
    offset_table.check(beginning.offsets or [], ends)
    blosc_args = (blosc_args or BloscArgs(typesize=None)).copy()
    if blosc_args.typesize is None:
        blosc_args.typesize = header.typesize or DEFAULT_TYPESIZE
    blosc_args.check()
    plan = plan_append(beginning, ends, new_size, metadata)
    if new_size == 0 and plan.section is None:
        original_fp.seek(0, os.SEEK_END)
        return 0
    kept = _read_last_chunk(original_fp, header, ends) if header.nchunks else b""
    encoded = plan.header.encode()
    extents = plan.extents(original_fp.seek(0, os.SEEK_END))
    with target.change(extents, encoded, (ends[0], plan.write_at)) as change:
        if plan.section is not None:
            change.overwrite(BLOSCPACK_HEADER_LENGTH, plan.section)
        if new_size:
            offsets = ends[: plan.first] + _write_chunks(
                change, plan, kept, new_content_fp, blosc_args, nthreads
            )
            log.debug("raw_bloscpack_header: %r", encoded)
            change.overwrite(0, encoded)
            log.debug("Writing '%d' offsets: '%r'", len(offsets), offsets)
            table = offset_table.encode(offsets[header.nchunks :])
            change.overwrite(plan.table_at, table)
    original_fp.seek(0, os.SEEK_END)
    return plan.nchunks_new


def _check_appendable(header: BloscpackHeader) -> None:
    if header.format_version != FORMAT_VERSION:
        raise FormatVersionMismatch(
            "format version of file was not '%d' as expected, but '%d': files of this "
            "layout can be read, but not appended to"
            % (FORMAT_VERSION, header.format_version),
            section="header",
        )
    if not header.offsets:
        raise OffsetsRequired(
            "Appending to a file without offsets is not yet supported"
        )
    if -1 in (header.nchunks, header.chunk_size, header.last_chunk):
        raise UsageError(
            "appending needs a file whose header tells number and size of its chunks"
        )


def _read_last_chunk(fp: Any, header: BloscpackHeader, ends: list[int]) -> bytes:
    """Return the plain bytes of the last chunk, after its digest has been checked."""
    start, end = ends[-2:]
    fp.seek(start)
    frame = read_up_to(fp, end - start)
    checksum = header.checksum_impl
    digest_at = len(frame) - checksum.size
    compressed, digest = frame[:digest_at], frame[digest_at:]
    try:
        with own_settings:
            check_digest(compressed, digest, checksum)
            return decompress(compressed)
    except FormatError as error:
        error.locate(header.nchunks - 1, start)
        raise


def _write_chunks(
    change: Change,
    plan: Plan,
    kept: bytes,
    new_content_fp: Any,
    blosc_args: BloscArgs,
    nthreads: int | None,
) -> list[int]:
    """Write the chunks over the old end of the file; return where they start."""
    checksum = plan.header.checksum_impl
    offsets: list[int] = []
    end = plan.write_at

    def plain_chunks() -> Iterator[bytes]:
        front = kept
        for size in plan.sizes:
            data = read_up_to(new_content_fp, size)
            if len(data) < size:
                raise StorageError(
                    "the new content ends too early: expected '%d' bytes, found '%d'"
                    % (sum(plan.sizes), sum(plan.sizes) - size + len(data))
                )
            yield front + data
            front = b""

    def work(plain: bytes) -> tuple[bytes, bytes]:
        compressed = compress(plain, blosc_args)
        return compressed, checksum(compressed)

    def deliver(chunk: tuple[bytes, bytes]) -> None:
        nonlocal end
        compressed, digest = chunk
        last = "(last)" if len(offsets) == len(plan.sizes) - 1 else ""
        log.debug("Handle chunk '%d' %s", len(offsets), last)
        tell_digest(checksum, digest)
        offsets.append(end)
        change.overwrite(end, compressed)
        change.overwrite(end + len(compressed), digest)
        end += len(compressed) + len(digest)
        if log.PROGRESS is not None:
            log.PROGRESS(plain_size(compressed))

    with own_settings:
        nthreads = effective_nthreads(nthreads, len(plan.sizes))
        for_each(plain_chunks(), work, deliver, nthreads)
    # The new chunks may be shorter than what they replace: nothing of it stays.
    change.truncate(end)
    return offsets


def rewrite_metadata_fp(fp: Any, metadata: Any) -> None:
    """Replace the metadata of the file in a file object, in the room they have.

    The file is read and written from its beginning. Raises `NoMetadataFound`,
    `NoChangeInMetadata` or `MetadataSectionTooSmall`, and `FormatError` for a new
    shape of an array that is not that of its data.
    """
    _rewrite_metadata(Borrowed(fp), metadata)


def rewrite_metadata(path: Path, metadata: Any, *, sync: bool = True) -> None:
    """Replace the metadata of a file, in the room they have.

    Whatever happens meanwhile, the file has the old metadata or the new ones (see
    docs/durability.rst). Raises what `rewrite_metadata_fp` raises.
    """
    with named(path), claimed(path, sync) as claim:
        _rewrite_metadata(claim, metadata)


def change_metadata(
    path: Path, change: Callable[[Any], Any], *, sync: bool = True
) -> None:
    """Replace the metadata of a file by what `change` returns for those it has.

    Nobody else changes them meanwhile. `change` may raise; UNCHANGED leaves them as
    they are. The rest is as in `rewrite_metadata`.
    """
    with named(path), claimed(path, sync) as claim:
        beginning = _read_beginning(claim)
        if beginning.metadata_header is None:
            raise NoMetadataFound("the file has no metadata section")
        metadata = change(beginning.metadata)
        if metadata is not UNCHANGED:
            _rewrite_metadata(claim, metadata)


def _read_beginning(target: Borrowed | Claim) -> Beginning:
    target.fp.seek(0)
    return read_beginning(Cursor(target.fp))


def _rewrite_metadata(target: Borrowed | Claim, metadata: Any) -> None:
    beginning = _read_beginning(target)
    section = _new_section(beginning, beginning.header, 0, metadata)
    if section is None:
        return
    section_end = BLOSCPACK_HEADER_LENGTH + len(section)
    unchanged = section_end, target.fp.seek(0, os.SEEK_END)
    head = beginning.header.encode()
    with target.change([(0, section_end)], head, unchanged) as change:
        change.overwrite(BLOSCPACK_HEADER_LENGTH, section)


def append(
    orig_file: Path,
    new_file: Path,
    blosc_args: BloscArgs | None = None,
    *,
    metadata: Any = UNCHANGED,
    nthreads: int | None = None,
    sync: bool = True,
) -> None:
    """Append the bytes of the file `new_file` to the compressed file `orig_file`.

    See `append_fp`. Whatever happens meanwhile, `orig_file` is what it was, or has all
    of the new bytes (see docs/durability.rst); with `sync` that holds for the end of
    the machine too. Raises `StorageError` if another writer is changing it.
    """
    check_distinct(new_file, orig_file)
    with open(new_file, "rb") as fp, sized(fp) as (new_fp, size):
        append_from(
            orig_file,
            new_fp,
            size,
            blosc_args,
            metadata=metadata,
            nthreads=nthreads,
            sync=sync,
        )


def append_from(
    orig_file: Path,
    new_content_fp: Any,
    new_size: int,
    blosc_args: BloscArgs | None = None,
    *,
    metadata: Any = UNCHANGED,
    accept: Callable[[Any], None] | None = None,
    nthreads: int | None = None,
    sync: bool = True,
) -> None:
    """Append the next `new_size` bytes of a file object to the file `orig_file`.

    `accept`, if given, gets the metadata of the file before anything is changed, and
    raises if it does not want to go on. The rest is as in `append`.
    """
    with named(orig_file), claimed(orig_file, sync) as claim:
        if accept is not None:
            accept(_read_beginning(claim).metadata)
        old_size = os.fstat(claim.fp.fileno()).st_size
        log.verbose("orig file size before append: %s" % double_pretty_size(old_size))
        log.verbose("new file size: %s" % double_pretty_size(new_size))
        _append(claim, new_content_fp, new_size, blosc_args, metadata, nthreads)
    now = os.path.getsize(orig_file)
    log.verbose("orig file size after append: %s" % double_pretty_size(now))
    ratio = (now - old_size) / max(new_size, 1)
    log.verbose("Approximate compression ratio of appended data: %f" % ratio)


@contextmanager
def sized(fp: Any) -> Iterator[tuple[Any, int]]:
    """Tell the bytes of an open file; a pipe is read to its end first."""
    size = size_of(fp)
    if size is not None:
        yield fp, size
        return
    import shutil
    import tempfile

    with tempfile.TemporaryFile() as spool:
        shutil.copyfileobj(fp, spool)
        size = spool.tell()
        spool.seek(0)
        yield spool, size


# Names kept from 0.16

_rewrite_metadata_fp = rewrite_metadata_fp

__getattr__ = sibling_names(__name__)
