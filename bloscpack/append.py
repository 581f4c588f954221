"""Appending to a file, and replacing its metadata, in place.

`plan_append` decides, without writing, everything that will change; the old bytes
of it are kept until the last write has been done, so that a failure leaves the
file as it was. Nothing is believed unseen: the chunks are walked before the offset
table is trusted, and the last chunk's digest is checked before it is written again.
"""

from __future__ import annotations

import os
from operator import index

from . import _temporary
from . import log
from ._compat import sibling_names
from ._crashsafe.in_place import borrowed
from ._crashsafe.locking import LockedFile, open_locked
from ._crashsafe.replace import check_distinct
from ._engine.blosc_settings import own_settings
from ._engine.threads import for_each
from ._format import offsets as offset_table
from ._format.append_plan import UNCHANGED as UNCHANGED
from ._format.append_plan import new_section, plan_append
from ._format.chunks import check_digest, compress, decompress, plain_size
from ._format.sections import read_beginning, walk_chunks
from ._storage.base import named, read_up_to
from ._storage.cursor import Cursor
from ._storage.spool import sized
from .abstract_io import effective_nthreads, log_digest
from .args import BloscArgs, check_settings
from .constants import BLOSCPACK_HEADER_LENGTH, FORMAT_VERSION, MAGIC
from .defaults import DEFAULT_TYPESIZE
from .exceptions import (
    FormatError,
    FormatVersionMismatch,
    NoMetadataFound,
    NotEnoughSpace,
    OffsetsRequired,
    StorageError,
    UsageError,
    UsageTypeError,
)
from .pretty import double_pretty_size

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ._crashsafe.in_place import Borrowed, Change
    from ._format.append_plan import Plan
    from ._format.sections import Beginning
    from ._storage.base import Path
    from .headers import BloscpackHeader


def append_fp(
    original_fp: Any,
    new_content_fp: Any,
    new_size: int,
    blosc_args: BloscArgs | dict[str, Any] | None = None,
    *,
    metadata: Any = UNCHANGED,
    nthreads: int | None = None,
) -> int:
    """Append `new_size` bytes of one file object to the file in another.

    `original_fp` is read and written from its beginning, wherever it stands, and is
    left at its end. The last chunk is filled up and compressed anew with
    `blosc_args`, or a dictionary of their fields, by default the usual settings; a
    type size of None in them means that of the file.
    `metadata`, if given, replaces the metadata in the room they have. An array
    file grows along its first axis, and its shape with it.

    Returns the number of chunks that the file has more. If anything fails, the
    file gets its old bytes back before the error is raised: `FormatError` if it
    is damaged, `UsageError` if there is no room, no offset table, the new bytes do
    not fit the array, or another file lies behind this one, `StorageError` if the
    new content is too short.
    """
    with borrowed(original_fp) as target:
        return _append(target, new_content_fp, new_size, blosc_args, metadata, nthreads)


def _append(
    target: Borrowed | LockedFile,
    new_content_fp: Any,
    new_size: int,
    blosc_args: BloscArgs | dict[str, Any] | None,
    metadata: Any,
    nthreads: int | None,
) -> int:
    new_size = _checked_size(new_size)
    original_fp = target.fp
    original_fp.seek(0)
    cursor = Cursor(original_fp)
    beginning = read_beginning(cursor)
    header = beginning.header
    _check_appendable(header)
    ends = walk_chunks(cursor, header)
    offset_table.check(beginning.offsets or [], ends)
    args = _effective_args(blosc_args, header)
    plan = plan_append(beginning, ends, new_size, metadata)
    if new_size == 0 and plan.section is None:
        original_fp.seek(0, os.SEEK_END)
        return 0
    behind = _bytes_behind(original_fp, ends[-1]) if new_size else 0
    kept = _read_last_chunk(original_fp, header, ends) if header.nchunks else b""
    encoded = plan.header.encode()
    size = original_fp.seek(0, os.SEEK_END)
    unchanged = ends[0], plan.write_at if new_size else size
    new_head = encoded + (plan.section or b"")
    _log_dropped_bytes(target, behind)
    with target.change(plan.extents(size), new_head, unchanged) as change:
        if plan.section is not None:
            change.overwrite(BLOSCPACK_HEADER_LENGTH, plan.section)
        if new_size:
            offsets = ends[: plan.first] + _write_chunks(
                change, plan, kept, new_content_fp, args, nthreads
            )
            log.debug("raw_bloscpack_header: %r", encoded)
            log.debug("Writing '%d' offsets: '%r'", len(offsets), offsets)
            table = offset_table.encode(offsets[header.nchunks :])
            change.overwrite(plan.table_at, table)
            # Last: with the new header the file is whole.
            change.overwrite(0, encoded)
    original_fp.seek(0, os.SEEK_END)
    return plan.nchunks_new


def _checked_size(new_size: Any) -> int:
    """Return how many bytes to append; raises `UsageError` for no such number."""
    try:
        size = index(new_size)
    except TypeError as error:
        raise UsageTypeError(
            "expected a number of bytes to append, found %r" % (new_size,)
        ) from error
    if size < 0:
        raise UsageError("the number of bytes to append can't be '%d'" % size)
    return size


def _bytes_behind(fp: Any, end: int) -> int:
    """Return how many bytes lie behind the last chunk, which ends at `end`.

    Raises `NotEnoughSpace` if they are another file, and no mere remains.
    """
    fp.seek(end)
    if read_up_to(fp, len(MAGIC)) == MAGIC:
        raise NotEnoughSpace(
            "not enough space: expected the end of the file at byte '%d', found "
            "another bloscpack file, which appending would destroy" % end
        )
    size: int = fp.seek(0, os.SEEK_END)
    return size - end


def _log_dropped_bytes(target: Borrowed | LockedFile, nbytes: int) -> None:
    if nbytes:
        name = (
            "'%s': " % os.fsdecode(target.path)
            if isinstance(target, LockedFile)
            else ""
        )
        log.notice(
            "%sdropping '%d' bytes behind the last chunk, which belong to none"
            % (name, nbytes)
        )


def _effective_args(
    given: BloscArgs | dict[str, Any] | None, header: BloscpackHeader
) -> BloscArgs:
    """Return the settings for Blosc, checked; those given stay as they are."""
    if isinstance(given, dict):  # 0.16 took that, here alone
        try:
            args = BloscArgs(**{"typesize": None, **given})
        except TypeError as error:
            raise UsageTypeError("'blosc_args': %s" % error) from error
    else:
        check_settings(given)
        args = BloscArgs(typesize=None) if given is None else given.copy()
    if args.typesize is None:
        args.typesize = header.typesize or DEFAULT_TYPESIZE
    args.check()
    return args


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


def _plain_chunks(fp: Any, front: bytes, sizes: list[int]) -> Iterator[bytes]:
    """Yield so many bytes of a file object at a time, the first behind `front`."""
    for size in sizes:
        data = read_up_to(fp, size)
        if len(data) < size:
            raise StorageError(
                "the new content ends too early: expected '%d' bytes, found '%d'"
                % (sum(sizes), sum(sizes) - size + len(data))
            )
        yield front + data
        front = b""


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

    def work(plain: bytes) -> tuple[bytes, bytes]:
        compressed = compress(plain, blosc_args)
        return compressed, checksum(compressed)

    def deliver(chunk: tuple[bytes, bytes]) -> None:
        nonlocal end
        compressed, digest = chunk
        last = "(last)" if len(offsets) == len(plan.sizes) - 1 else ""
        log.debug("Handle chunk '%d' %s", len(offsets), last)
        log_digest(checksum, digest)
        offsets.append(end)
        change.overwrite(end, compressed)
        change.overwrite(end + len(compressed), digest)
        end += len(compressed) + len(digest)
        if _temporary.PROGRESS is not None:
            _temporary.PROGRESS(plain_size(compressed))

    with own_settings:
        nthreads = effective_nthreads(nthreads, len(plan.sizes))
        plain_chunks = _plain_chunks(new_content_fp, kept, plan.sizes)
        for_each(plain_chunks, work, deliver, nthreads)
    # The new chunks may be shorter than what they replace: nothing of it stays.
    change.truncate(end)
    return offsets


def rewrite_metadata_fp(fp: Any, metadata: Any) -> None:
    """Replace the metadata of the file in a file object, in the room they have.

    The file is read and written from its beginning. Raises `NoMetadataFound`,
    `NoChangeInMetadata` or `MetadataSectionTooSmall`, and `FormatError` for a new
    shape of an array that is not that of its data.
    """
    with borrowed(fp) as target:
        _rewrite_metadata(target, metadata)


def rewrite_metadata(path: Path, metadata: Any, *, sync: bool = True) -> None:
    """Replace the metadata of a file, in the room they have.

    Whatever happens meanwhile, the file has the old metadata or the new ones (see
    docs/durability.rst). Raises what `rewrite_metadata_fp` raises.
    """
    with named(path), open_locked(path, sync) as locked_file:
        _rewrite_metadata(locked_file, metadata)


def change_metadata(
    path: Path, change: Callable[[Any], Any], *, sync: bool = True
) -> None:
    """Replace the metadata of a file by what `change` returns for those it has.

    Nobody else changes them meanwhile. `change` may raise; UNCHANGED leaves them as
    they are. The rest is as in `rewrite_metadata`.
    """
    with named(path), open_locked(path, sync) as locked_file:
        beginning = _read_beginning(locked_file)
        if beginning.metadata_header is None:
            raise NoMetadataFound("the file has no metadata section")
        metadata = change(beginning.metadata)
        if metadata is not UNCHANGED:
            _rewrite_metadata(locked_file, metadata)


def _read_beginning(target: Borrowed | LockedFile) -> Beginning:
    target.fp.seek(0)
    return read_beginning(Cursor(target.fp))


def _rewrite_metadata(target: Borrowed | LockedFile, metadata: Any) -> None:
    beginning = _read_beginning(target)
    section = new_section(beginning, beginning.header, 0, metadata)
    if section is None:
        return
    section_end = BLOSCPACK_HEADER_LENGTH + len(section)
    unchanged = section_end, target.fp.seek(0, os.SEEK_END)
    new_head = beginning.header.encode() + section
    with target.change([(0, section_end)], new_head, unchanged) as change:
        change.overwrite(BLOSCPACK_HEADER_LENGTH, section)


@_temporary.hear
def append(
    orig_file: Path,
    new_file: Path,
    blosc_args: BloscArgs | dict[str, Any] | None = None,
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


@_temporary.hear
def append_from(
    orig_file: Path,
    new_content_fp: Any,
    new_size: int,
    blosc_args: BloscArgs | dict[str, Any] | None = None,
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
    with named(orig_file), open_locked(orig_file, sync) as locked_file:
        if accept is not None:
            accept(_read_beginning(locked_file).metadata)
        old_size = locked_file.size
        log.verbose("orig file size before append: %s" % double_pretty_size(old_size))
        log.verbose("new file size: %s" % double_pretty_size(new_size))
        _append(locked_file, new_content_fp, new_size, blosc_args, metadata, nthreads)
    log.verbose(
        "orig file size after append: %s" % double_pretty_size(locked_file.size)
    )
    ratio = (locked_file.size - old_size) / max(new_size, 1)
    log.verbose("Approximate compression ratio of appended data: %f" % ratio)


# Names kept from 0.16

_rewrite_metadata_fp = rewrite_metadata_fp

__getattr__ = sibling_names(__name__)
