"""Append to a file, ``bloscpack.append(file, new)``, and replace its metadata.

Both change the file in place, in the same steps: read, plan, journal, write, commit.
All checks come before the first write. Their time does not grow with the data: the
entries of the offset table are compared with each other, and the headers of the last
two chunks with the last two entries; the digest of the last chunk is verified. Only if
these contradict each other are the headers of all chunks read, to find the reason. The
plan is a pure function
(`plan_append`); it lists the extents of the file that will change. The old bytes of
these extents are saved in a journal, or in memory for a file object. Removing the
journal commits the change; after a failure the old bytes are restored.
"""

from __future__ import annotations

import io
import os
from itertools import pairwise
from operator import index

from . import log
from ._compat import make_callable, sibling_names
from ._crashsafe.in_place import changeable
from ._crashsafe.locking import LockedFile, open_locked
from ._crashsafe.replace import check_distinct
from ._engine.blosc_settings import own_settings
from ._engine.threads import for_each
from ._format import offsets as offset_table
from ._format.append_plan import UNCHANGED as UNCHANGED
from ._format.append_plan import (
    check_appendable,
    count_added_chunks,
    plan_append,
    plan_metadata,
)
from ._format.chunks import check_digest, compress, decompress, plain_size
from ._format.sections import find_last_chunk, read_beginning, walk_chunks
from ._format.shard import CRC_LENGTH, SEPARATOR, Trailer, count_slots, inner_size
from ._storage.base import MemoryStorage, StorageFile, naming_errors, read_up_to
from ._storage.cursor import Cursor
from ._storage.spool import seekable_with_size
from ._storage.urls import without_url
from .abstract_io import effective_nthreads, log_digest
from .args import BloscArgs, refuse_unknown, settings_from
from .constants import BLOSCPACK_HEADER_LENGTH, FORMAT_VERSION, MAGIC
from .defaults import (
    DEFAULT_MAGIC_FORMAT,
    DEFAULT_MAX_APP_CHUNKS,
    DEFAULT_MAX_META_SIZE,
    DEFAULT_TYPESIZE,
)
from .exceptions import (
    AnotherFileFollows,
    FormatError,
    MetadataSectionTooSmall,
    NoMetadataFound,
    NotEnoughSpace,
    OffsetsRequired,
    StorageError,
    UsageError,
    UsageTypeError,
)
from .headers import BloscpackHeader
from .pretty import double_pretty_size
from .serializers import SERIALIZERS_LOOKUP, replaced_metadata

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Unpack

    from ._crashsafe.in_place import Change, FileObjectTarget
    from ._format.append_plan import Plan
    from ._format.dtypes import Array
    from ._format.metadata import Section
    from ._format.sections import Beginning
    from ._storage.protocols import BinaryFile, Buffer, Path, Readable
    from .abstract_io import Progress
    from .args import AnyBloscArgs, BloscKeywords
    from .headers import BloscpackHeader
    from .repacking import Settings
    from .serializers import Json

    class AppendKeywords(BloscKeywords, total=False):
        """The keywords of `append_from`, which documents them."""

        metadata: object
        nthreads: int | None
        sync: bool
        progress: Progress | None
        expect: Callable[[int], object] | None
        grow: bool


PATH_TYPES = (str, bytes, os.PathLike)
# Minimum number of bytes in new chunks, besides the last chunk that is filled up, for
# which threads are started: starting one takes longer than compressing less.
WORTH_THREADS = 64 * 2**10
# Number of bytes by which the metadata of an array may get longer when its shape grows.
MORE_DIGITS = 20


def append_fp(
    original_fp: BinaryFile,
    new_content_fp: Readable,
    new_size: int,
    blosc_args: AnyBloscArgs | None = None,
    *,
    metadata: object = UNCHANGED,
    nthreads: int | None = None,
    progress: Progress | None = None,
    **settings: Unpack[BloscKeywords],
) -> int:
    """Append bytes of one file object to the compressed file in another.

    The last chunk is filled up and compressed again. An array grows along its first
    axis, and the shape in its metadata with it. The result is the number of chunks that
    the file has gained. After an error the file has its old bytes.

    Parameters
    ----------
    original_fp
        The compressed file, opened for reading and writing. It is used from its
        beginning and left at its end.
    new_content_fp
        The plain bytes, from its current position on.
    new_size
        The number of bytes to append.
    blosc_args
        The settings of the written chunks, or a dictionary of their fields. A type size
        of None, also the default, means the type size of the file.
    metadata
        Replaces the metadata, in the space reserved for it. By default it stays
        unchanged. In an array file these are the metadata of the user, as in
        `rewrite_metadata_fp`.
    nthreads, progress
        As in `bloscpack.abstract_io.pack`.
    settings
        Fields of `BloscArgs` as keywords, such as ``clevel=9``.

    Raises
    ------
    FormatError
        The file is damaged.
    UsageError
        The file has no offset table or no free entry in it, the metadata does not fit,
        the new bytes are not whole rows of the array, or another file follows.
    StorageError
        The new content has fewer than `new_size` bytes.

    Examples
    --------
    >>> import io, bloscpack
    >>> fp = io.BytesIO(bloscpack.pack_bytes_to_bytes(b'abc'))
    >>> append_fp(fp, io.BytesIO(b'def'), 3)
    0
    >>> bloscpack.unpack_bytes_from_bytes(fp.getvalue())
    (b'abcdef', None)
    """
    with changeable(original_fp) as target:
        how = _How(blosc_args, settings, metadata, nthreads, progress)
        return _append(target, new_content_fp, new_size, how)


class _How:
    """The settings of an append; `append_from` documents them."""

    def __init__(
        self,
        blosc_args: AnyBloscArgs | None,
        settings: BloscKeywords,
        metadata: object,
        nthreads: int | None,
        progress: Progress | None,
        expect: Callable[[int], object] | None = None,
    ) -> None:
        self.blosc_args = blosc_args
        self.settings = settings
        self.metadata = metadata
        self.nthreads = nthreads
        self.progress = progress
        self.expect = expect


def _append(
    target: FileObjectTarget | LockedFile,
    new_content_fp: Readable,
    new_size: int,
    how: _How,
) -> int:
    new_size = _checked_size(new_size)
    # Read and check the old file.
    fp = target.fp
    beginning, boundaries = _read_appendable(fp)
    header = beginning.header
    args = _effective_args(how.blosc_args, how.settings, header)
    # Plan, without reading or writing.
    plan = plan_append(beginning, boundaries, new_size, how.metadata)
    if new_size == 0 and plan.section is None:
        fp.seek(0, os.SEEK_END)
        return 0
    trailing = _trailing_nbytes(fp, boundaries[-1], plan) if new_size else 0
    last_chunk = _read_last_chunk(fp, header, boundaries) if header.nchunks else b""
    if how.expect is not None:
        how.expect(len(last_chunk) + new_size if new_size else 0)
    size = fp.seek(0, os.SEEK_END)
    new_header = plan.header.encode()
    # The new beginning and an unchanged extent tell to which file a journal belongs.
    new_beginning = _beginning_blocks(new_header, plan.section)
    unchanged = boundaries[0], plan.chunks_offset if new_size else size
    _log_dropped_bytes(target, trailing)
    trailer = _begin_trailer(plan, beginning)
    # Journal: entering the block saves the old bytes.
    with target.change(plan.extents(size), new_beginning, unchanged) as change:
        # Write.
        if plan.section is not None:
            _overwrite_section(change, plan.section)
        if new_size:
            new_chunks = _plain_chunks(new_content_fp, last_chunk, plan.new_sizes)
            new_offsets = _write_chunks(
                change, plan, new_chunks, args, how, trailer, size
            )
            log.debug("raw_bloscpack_header: %r", new_header)
            if log.enabled(log.DEBUG):
                offsets = (beginning.offsets or [])[: plan.first_chunk] + new_offsets
                log.debug("Writing '%d' offsets: '%r'", len(offsets), offsets)
            added = new_offsets[header.nchunks - plan.first_chunk :]
            change.overwrite(plan.table_offset, offset_table.encode(added))
            # The header is written last: with it the file is complete.
            change.overwrite(0, new_header)
    # Commit: leaving the block has removed the journal.
    fp.seek(0, os.SEEK_END)
    return plan.nchunks_added


def _begin_trailer(plan: Plan, beginning: Beginning) -> Trailer | None:
    """Return the trailer of a shard with the chunks that stay; None for others."""
    if plan.inner_nbytes is None:
        return None
    header, kept = plan.header, (beginning.offsets or [])[: plan.first_chunk]
    trailer = Trailer(plan.inner_nbytes, count_slots(header), header.checksum_impl)
    for start, stop in pairwise([*kept, plan.chunks_offset]):
        trailer.add(start, stop)
    return trailer


def _read_appendable(fp: BinaryFile) -> tuple[Beginning, list[int]]:
    """Return the sections of a file, and boundaries of its chunks: see `plan_append`.

    Raises an error unless the file can be appended to. A wrong entry of the offset
    table, or a damaged chunk before the last two, may remain undetected. In a shard all
    entries are compared with the chunks: the new index gets them.
    """
    fp.seek(0)
    cursor = Cursor(fp)
    beginning = read_beginning(cursor)
    check_appendable(beginning.header)
    first = cursor.position
    left = cursor.left()
    boundaries = None
    if inner_size(beginning.metadata, beginning.header) is None:
        boundaries = find_last_chunk(cursor, beginning, first + (left or 0))
    if boundaries is None:
        cursor.move(first)
        boundaries = walk_chunks(cursor, beginning.header)
        offset_table.check(beginning.offsets or [], boundaries)
    return beginning, boundaries


def _checked_size(new_size: int) -> int:
    """Return the number of bytes to append; raise `UsageError` if it is invalid."""
    try:
        size = index(new_size)
    except TypeError as error:
        raise UsageTypeError(
            "expected a number of bytes to append, found %r" % (new_size,)
        ) from error
    if size < 0:
        raise UsageError("the number of bytes to append can't be '%d'" % size)
    return size


def _trailing_nbytes(fp: BinaryFile, end: int, plan: Plan) -> int:
    """Return the number of bytes behind the last chunk, which ends at `end`.

    It is 0 for the trailer of a shard: another trailer replaces it.

    Raises `AnotherFileFollows` if another bloscpack file starts there.
    """
    fp.seek(end)
    head = read_up_to(fp, len(SEPARATOR))
    if head == SEPARATOR and plan.inner_nbytes is not None:
        return 0
    if head.startswith(MAGIC):
        raise AnotherFileFollows(
            "not enough space: expected the end of the file at byte '%d', found "
            "another bloscpack file, which appending would destroy" % end
        )
    return fp.seek(0, os.SEEK_END) - end


def _log_dropped_bytes(target: FileObjectTarget | LockedFile, nbytes: int) -> None:
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
    given: AnyBloscArgs | None, keywords: BloscKeywords, header: BloscpackHeader
) -> BloscArgs:
    """Return a checked copy of the settings, with the type size of the file."""
    refuse_unknown(keywords, BloscArgs)
    found = settings_from(BloscArgs, "blosc_args", given, keywords, typesize=None)
    args = found.copy()
    if args.typesize is None:
        args.typesize = header.typesize or DEFAULT_TYPESIZE
    args.check()
    return args


def _read_last_chunk(
    fp: BinaryFile, header: BloscpackHeader, boundaries: list[int]
) -> bytes:
    """Return the plain bytes of the last chunk; verify its digest."""
    start, end = boundaries[-2:]
    fp.seek(start)
    frame = read_up_to(fp, end - start)
    checksum = header.checksum_impl
    split = len(frame) - checksum.size
    compressed, digest = frame[:split], frame[split:]
    try:
        with own_settings:
            check_digest(compressed, digest, checksum)
            return decompress(compressed)
    except FormatError as error:
        error.locate(header.nchunks - 1, start)
        raise


def _plain_chunks(fp: Readable, front: bytes, sizes: list[int]) -> Iterator[bytes]:
    """Yield pieces of a file object in these sizes; prepend `front` to the first."""
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
    plain_chunks: Iterator[bytes],
    blosc_args: BloscArgs,
    how: _How,
    trailer: Trailer | None,
    size: int,
) -> list[int]:
    """Write the chunks over the old end of the file; return their offsets.

    The file has `size` bytes; a shard also gets its `trailer`.
    """
    checksum = plan.header.checksum_impl
    offsets: list[int] = []
    end = plan.chunks_offset

    def work(plain: bytes) -> tuple[bytes, bytes]:
        compressed = compress(plain, blosc_args)
        return compressed, checksum(compressed)

    def deliver(chunk: tuple[bytes, bytes]) -> None:
        nonlocal end
        compressed, digest = chunk
        last = "(last)" if len(offsets) == len(plan.new_sizes) - 1 else ""
        log.debug("Handle chunk '%d' %s", len(offsets), last)
        log_digest(checksum, digest)
        offsets.append(end)
        if trailer is not None:
            trailer.add_frame(end, compressed)
        change.overwrite(end, compressed)
        change.overwrite(end + len(compressed), digest)
        end += len(compressed) + len(digest)
        if how.progress is not None:
            how.progress(plain_size(compressed))

    with own_settings:
        nthreads = effective_nthreads(how.nthreads, len(plan.new_sizes))
        if sum(plan.new_sizes[1:]) < WORTH_THREADS:
            nthreads = 1
        for_each(plain_chunks, work, deliver, nthreads)
    if trailer is not None:
        for block in trailer.blocks(end):
            change.overwrite(end, block)
            end += len(block)
        if end < size:
            # If the file is not cut, no program must use the index at its old end.
            wrong = b"\xff" * min(CRC_LENGTH, size - end)
            change.overwrite(size - len(wrong), wrong)
    # The new chunks may take fewer bytes than the old end of the file.
    change.truncate(end)
    return offsets


def rewrite_metadata_fp(fp: BinaryFile, metadata: object) -> None:
    """Replace the metadata of the file in a file object.

    Parameters
    ----------
    fp
        The compressed file, opened for reading and writing. It is used from its
        beginning.
    metadata
        The new metadata: any value that JSON can represent. It is stored in the space
        reserved for metadata; the chunks stay where they are. In an array file these
        are the metadata of the user, which None removes; dtype, shape and order stay. A
        value that is the complete metadata of an array replaces all metadata.

    Raises
    ------
    NoMetadataFound
        The file has no metadata section.
    NoChangeInMetadata
        The new metadata is equal to the old metadata.
    MetadataSectionTooSmall
        The new metadata needs more than the reserved space.
    FormatError
        The file is damaged, or the new shape of an array does not fit its data.
    """
    with changeable(fp) as target:
        _rewrite_metadata(target, metadata)


def rewrite_metadata(
    path: Path, metadata: object, *, sync: bool = True, grow: bool = False
) -> None:
    """Replace the metadata of a file.

    Whatever interrupts it, the file has either the old metadata or the new metadata
    (docs/durability.rst).

    Parameters
    ----------
    path
        The compressed file.
    metadata
        The new metadata, as in `rewrite_metadata_fp`, whose errors are also raised.
        With `grow`, None adds no section to a file without one, and removes a section
        that has too little room for it.
    sync
        As in `append`.
    grow
        Whether to rewrite the whole file, as `bloscpack.repack` does, if it has no
        metadata section or too little room for the new metadata. Otherwise the section
        is changed in place. Without `grow` these two cases are errors.
    """
    with naming_errors(path), open_locked(path, sync) as locked_file:
        _rewrite_or_grow(locked_file, metadata, grow)


def change_metadata(
    path: Path,
    change: Callable[[Json], object],
    *,
    sync: bool = True,
    grow: bool = False,
) -> None:
    """Replace the metadata of a file by the result of a function.

    The file is locked while `change` runs, so that no other writer can change the
    metadata in between.

    Parameters
    ----------
    path
        The compressed file.
    change
        Called with the old metadata, those of an array included; returns the new
        metadata, as in `rewrite_metadata_fp`, or UNCHANGED to leave the file unchanged.
        An error that it raises is passed on.
    sync
        As in `append`. The errors are those of `rewrite_metadata_fp`.
    grow
        Whether to rewrite the file if it has no metadata section, in which case
        `change` is called with None, or too small a one.
    """
    with naming_errors(path), open_locked(path, sync) as locked_file:
        beginning, _ = _read_beginning(locked_file)
        if beginning.metadata_header is None and not grow:
            raise NoMetadataFound("the file has no metadata section")
        metadata = change(beginning.metadata)
        if metadata is not UNCHANGED:
            _rewrite_or_grow(locked_file, metadata, grow)


def _read_beginning(target: FileObjectTarget | LockedFile) -> tuple[Beginning, int]:
    """Return the sections of a file, and the position of its first chunk."""
    target.fp.seek(0)
    cursor = Cursor(target.fp)
    return read_beginning(cursor), cursor.position


def _rewrite_or_grow(locked_file: LockedFile, metadata: object, grow: bool) -> None:
    try:
        _rewrite_metadata(locked_file, metadata)
    except (NoMetadataFound, MetadataSectionTooSmall):
        if not grow:
            raise
        from .repacking import repack_fp

        with locked_file.replacement() as temporary:
            repack_fp(locked_file.fp, temporary.fp, metadata=metadata)


def _beginning_blocks(header: bytes, section: Section | None) -> list[bytes]:
    """Return the bytes before the offset table in blocks: the section may be large."""
    return [header] if section is None else [header, *section.blocks()]


def _overwrite_section(change: Change, section: Section) -> None:
    position = BLOSCPACK_HEADER_LENGTH
    for block in section.blocks():
        change.overwrite(position, block)
        position += len(block)


def _rewrite_metadata(target: FileObjectTarget | LockedFile, metadata: object) -> None:
    beginning, first_chunk = _read_beginning(target)
    section = plan_metadata(beginning, beginning.header, 0, metadata)
    if section is None:
        return
    section_end = BLOSCPACK_HEADER_LENGTH + section.size
    unchanged = first_chunk, target.fp.seek(0, os.SEEK_END)
    new_beginning = _beginning_blocks(beginning.header.encode(), section)
    with target.change([(0, section_end)], new_beginning, unchanged) as change:
        _overwrite_section(change, section)


def append(
    orig_file: Path,
    new_file: Path,
    blosc_args: AnyBloscArgs | None = None,
    **settings: Unpack[AppendKeywords],
) -> None:
    """Append the bytes of a file to a compressed file.

    Whatever interrupts it, `orig_file` has either its old bytes or all of the new bytes
    (docs/durability.rst).

    Parameters
    ----------
    orig_file
        The compressed file.
    new_file
        The file, or pipe, with the plain bytes.
    blosc_args
        As in `append_fp`.
    settings
        The keywords of `append_from`: ``metadata``, ``nthreads``, ``sync``,
        ``progress``, ``expect``, ``grow``, and the fields of `BloscArgs`.

    Raises
    ------
    StorageError
        Another writer is changing `orig_file`. All other errors are those of
        `append_fp`.
    """
    check_distinct(new_file, orig_file)
    without_url(new_file, "appending")
    with open(new_file, "rb") as fp, seekable_with_size(fp) as (new_fp, size):
        append_from(orig_file, new_fp, size, blosc_args, **settings)


def append_from(
    orig_file: Path,
    new_content_fp: Readable,
    new_size: int,
    blosc_args: AnyBloscArgs | None = None,
    *,
    metadata: object = UNCHANGED,
    accept: Callable[[object], None] | None = None,
    nthreads: int | None = None,
    sync: bool = True,
    progress: Progress | None = None,
    expect: Callable[[int], object] | None = None,
    grow: bool = False,
    **settings: Unpack[BloscKeywords],
) -> None:
    """Append bytes of a file object to a compressed file.

    Parameters
    ----------
    orig_file
        The compressed file.
    new_content_fp, new_size, blosc_args, metadata, nthreads, progress, settings
        As in `append_fp`.
    accept
        Called with the metadata of the file before anything is changed. It may raise an
        error to refuse the append.
    sync
        Whether the change also survives a crash of the machine. False saves the time to
        write to the disk.
    expect
        Called before `progress`, with the total of the numbers that `progress` will be
        called with.
    grow
        Whether to rewrite a file that has no room for the new chunks or the metadata: a
        new file with more room, and with the new bytes, replaces it. `progress` is then
        called with the old chunks too.

    Raises
    ------
    StorageError
        Another writer is changing `orig_file`. All other errors are those of
        `append_fp`.
    """
    with naming_errors(orig_file), open_locked(orig_file, sync) as locked_file:
        if accept is not None:
            accept(read_locked(locked_file).metadata)
        append_locked(
            locked_file,
            new_content_fp,
            new_size,
            blosc_args,
            metadata=metadata,
            nthreads=nthreads,
            progress=progress,
            expect=expect,
            grow=grow,
            **settings,
        )


def read_locked(locked_file: LockedFile) -> Beginning:
    """Return the sections in front of the chunks of a file that is locked."""
    return _read_beginning(locked_file)[0]


def append_locked(
    locked_file: LockedFile,
    new_content_fp: Readable,
    new_size: int,
    blosc_args: AnyBloscArgs | None = None,
    *,
    metadata: object = UNCHANGED,
    nthreads: int | None = None,
    progress: Progress | None = None,
    expect: Callable[[int], object] | None = None,
    grow: bool = False,
    **settings: Unpack[BloscKeywords],
) -> None:
    """Append bytes of a file object to a file that is locked.

    The parameters and the errors are those of `append_from`.
    """
    old_size = locked_file.size
    log.verbose("orig file size before append: %s" % double_pretty_size(old_size))
    log.verbose("new file size: %s" % double_pretty_size(new_size))
    how = _How(blosc_args, settings, metadata, nthreads, progress, expect)
    if grow and _lacks_room(locked_file, new_size, metadata):
        _append_to_copy(locked_file, new_content_fp, new_size, how)
    else:
        _append(locked_file, new_content_fp, new_size, how)
    log.verbose(
        "orig file size after append: %s" % double_pretty_size(locked_file.size)
    )
    ratio = (locked_file.size - old_size) / max(new_size, 1)
    log.verbose("Approximate compression ratio of appended data: %f" % ratio)


def append_bytes_to_file(
    bytes_: Buffer,
    out_file: Path,
    blosc_args: AnyBloscArgs | None = None,
    **settings: Unpack[AppendKeywords],
) -> None:
    """Append a buffer to a compressed file.

    All bytes of the buffer are appended, whatever the size of its items. Whatever
    interrupts it, the file has either its old bytes or all of the new bytes
    (docs/durability.rst).

    Parameters
    ----------
    bytes_
        The plain bytes.
    out_file
        The compressed file.
    blosc_args, settings
        As in `append`, and so are the errors.

    Examples
    --------
    >>> import bloscpack
    >>> bloscpack.pack_bytes_to_file(b'abc', 'letters.blp')
    >>> append_bytes_to_file(b'def', 'letters.blp')
    >>> bloscpack.unpack_bytes_from_file('letters.blp')
    (b'abcdef', None)
    """
    usage = "append_bytes_to_file(bytes_, out_file)"
    try:
        content, size = _reader_of(bytes_)
    except TypeError as error:  # it is no buffer
        raise _wrong_type("bytes_", "bytes or another buffer", bytes_, usage) from error
    if not isinstance(out_file, PATH_TYPES):
        raise _wrong_type("out_file", "a path", out_file, usage)
    append_from(out_file, content, size, blosc_args, **settings)


def append_ndarray_to_file(
    ndarray: Array,
    filename: Path,
    blosc_args: AnyBloscArgs | None = None,
    **settings: Unpack[AppendKeywords],
) -> None:
    """Append the rows of an array to an array file.

    The array in the file grows along its first axis. Whatever interrupts it, the file
    has either its old rows or all of the new rows (docs/durability.rst).

    Parameters
    ----------
    ndarray
        The rows. Dtype, byte order and all axes but the first must be those of the
        array in the file.
    filename
        The array file.
    blosc_args, settings
        As in `append`.

    Raises
    ------
    DoesNotFit
        The arrays differ in dtype, byte order or an axis other than the first, or the
        array in the file has several axes in Fortran order. Nothing has been changed.
    NotANumpyArray
        The file holds no array. All other errors are those of `append`.

    Examples
    --------
    >>> import bloscpack, numpy
    >>> bloscpack.pack_ndarray_to_file(numpy.zeros((5, 3)), 'rows.blp')
    >>> append_ndarray_to_file(numpy.ones((2, 3)), 'rows.blp')
    >>> bloscpack.unpack_ndarray_from_file('rows.blp').shape
    (7, 3)
    """
    from ._format.array_metadata import check_rows
    from ._format.dtypes import encode_dtype
    from .numpy_io import storable

    usage = "append_ndarray_to_file(ndarray, filename)"
    if isinstance(ndarray, PATH_TYPES):
        raise _wrong_type("ndarray", "a NumPy array", ndarray, usage)
    if not isinstance(filename, PATH_TYPES):
        raise _wrong_type("filename", "a path", filename, usage)
    if "accept" in settings:
        raise UsageTypeError("append_ndarray_to_file checks the rows: omit 'accept'")
    rows = storable(ndarray, order="C")
    encode_dtype(rows.dtype)  # rejects dtypes that can't be stored, such as objects
    plain = rows.reshape(-1).view("u1").data if rows.nbytes else b""
    content, size = _reader_of(plain)
    append_from(
        filename,
        content,
        size,
        blosc_args,
        accept=lambda metadata: check_rows(metadata, rows),
        **settings,
    )


def _wrong_type(name: str, wanted: str, value: object, usage: str) -> UsageTypeError:
    """Return the error for an argument; `usage` shows the order of the arguments."""
    return UsageTypeError(
        "'%s' must be %s, not '%s': %s" % (name, wanted, type(value).__name__, usage)
    )


def _reader_of(buffer: Buffer) -> tuple[io.BufferedReader, int]:
    """Return a file object that reads a buffer without copying it, and its size."""
    storage = MemoryStorage(buffer)
    return io.BufferedReader(StorageFile(storage)), storage.size


# Appending to a file without room


def _lacks_room(locked_file: LockedFile, new_size: int, metadata: object) -> bool:
    """Return whether only a file with more room can take the bytes or the metadata."""
    beginning, first = _read_beginning(locked_file)
    header = beginning.header
    sizes = header.nchunks, header.chunk_size, header.last_chunk
    if header.format_version != FORMAT_VERSION or -1 in sizes:
        return True
    try:
        check_appendable(header)
        plan_append(beginning, [first] * 3, _checked_size(new_size), metadata)
    except (OffsetsRequired, NotEnoughSpace, NoMetadataFound, MetadataSectionTooSmall):
        return True
    return False


def _append_to_copy(
    locked_file: LockedFile, new_content_fp: Readable, new_size: int, how: _How
) -> None:
    """Replace the file by a copy with more room, to which the bytes are appended."""
    from .repacking import Plan, Survey, write_planned

    old = Survey(locked_file.fp)
    nchunks, chunk_size, last_chunk = old.cut
    sizes = BloscpackHeader(
        chunk_size=chunk_size, last_chunk=last_chunk, nchunks=nchunks
    )
    added = count_added_chunks(sizes, new_size, old.beginning.metadata)
    log.verbose("rewriting the file to make room for '%d' chunks" % added)
    wanted = _metadata_with_room(old.beginning, how.metadata)
    wanted["max_app_chunks"] = added + DEFAULT_MAX_APP_CHUNKS(nchunks + added)
    plan = Plan(old, wanted)
    if how.expect is not None:
        _, _, last_chunk = plan.cut
        how.expect(old.nbytes + last_chunk + new_size)
        how.expect = None
    with locked_file.replacement() as temporary:
        write_planned(
            old, plan, locked_file.fp, temporary.fp, how.nthreads, how.progress
        )
        with temporary.reopened() as fp, changeable(fp) as target:
            _append(target, new_content_fp, new_size, how)


def _metadata_with_room(old: Beginning, new: object) -> Settings:
    """Return the settings of a copy that has room for the metadata of an append."""
    if old.metadata_header is None and new is UNCHANGED:
        return {}
    serializer = SERIALIZERS_LOOKUP[DEFAULT_MAGIC_FORMAT]
    given = old.metadata if new is UNCHANGED else new
    wanted = serializer.dumps(replaced_metadata(old.metadata, given))
    # The shape of an array may get more digits.
    size = max(DEFAULT_MAX_META_SIZE(len(wanted)), len(wanted) + MORE_DIGITS)
    if old.metadata_header is None:
        # Any value; the append replaces it.
        return {"metadata": "" if new != "" else 0, "max_meta_size": size}
    return {"max_meta_size": max(size, old.metadata_header.max_meta_size)}


# Names kept from 0.16

_rewrite_metadata_fp = rewrite_metadata_fp

__getattr__ = sibling_names(__name__)
make_callable(__name__)
