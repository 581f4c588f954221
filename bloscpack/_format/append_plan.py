"""Plan an append: compute every change to the file without reading or writing.

The input is the decoded beginning of the file, the offsets of its chunks and the number
of bytes to append. The output is an `AppendPlan`: the new header and metadata section,
and the sizes of the chunks to write.
"""

from __future__ import annotations

from typing import NamedTuple

from .._types import Json
from ..args import calculate_nchunks, parse_chunk_size
from ..constants import (
    FORMAT_VERSION,
    OFFSET_LENGTH,
)
from ..defaults import DEFAULT_CHUNK_SIZE
from ..exceptions import (
    FormatVersionMismatch,
    NoMetadataFound,
    NotEnoughSpace,
    UsageError,
)
from ..headers import BloscpackHeader
from ..serializers import is_array, is_grid, replaced_metadata
from .sections import Beginning, Section, encode_again
from .shard import inner_size

# The default value of `metadata` parameters: None is a valid value of metadata.
UNCHANGED: object = object()


class AppendPlan(NamedTuple):
    """The changes that an append makes to a file; all sizes and offsets are bytes.

    Attributes
    ----------
    header
        The new file header.
    section
        The new metadata section, None if it stays unchanged.
    first_chunk
        The number of the first chunk to write. If the file has chunks, this is its last
        chunk, which is filled up and compressed again; in a grid, the first one with
        rows that are not full.
    chunks_offset
        The file offset at which this chunk starts.
    new_sizes
        For each chunk to write, how many of the new bytes it contains. The first chunk
        also contains the plain bytes of the old last chunk, in front of the new bytes.
        For a grid, the plain sizes of these chunks.
    nchunks_added
        The number of chunks that the file gains.
    first_entry, table_offset
        The number of the first entry of the offset table that changes, and its offset
        in the file, if there is a table. The entries of the chunks from there on are
        written: those of added chunks, and in a grid of all that are written.
    inner_nbytes
        The plain size of an inner chunk if the file is a Zarr shard, else None. Such a
        file gets a new trailer behind the last chunk.
    """

    header: BloscpackHeader
    section: Section | None
    first_chunk: int
    chunks_offset: int
    new_sizes: list[int]
    nchunks_added: int
    first_entry: int
    table_offset: int
    inner_nbytes: int | None


class NotInPlace(UsageError):
    """Raised if a file can only be changed in a copy, which replaces it."""


class ChunksDiffer(UsageError):
    """Raised if chunks that differ in size keep a file from being appended to."""


def check_appendable(header: BloscpackHeader) -> None:
    """Raise `FormatError` unless the file has a version that can be appended to."""
    if header.format_version != FORMAT_VERSION:
        raise FormatVersionMismatch(
            "format version of file was not '%d' as expected, but '%d': files of this "
            "version can be read, but not appended to"
            % (FORMAT_VERSION, header.format_version),
            section="header",
        )


def check_in_place(header: BloscpackHeader) -> None:
    """Raise `NotInPlace` if bytes behind the last chunk would be damage.

    A change in place writes there first. Without chunks nothing may follow the sections
    (H8), and the chunks of a file of unknown length end with the file.
    """
    if header.nchunks in (0, -1):
        raise NotInPlace(
            "a file %s can't be changed in place"
            % ("of unknown length" if header.nchunks else "without chunks")
        )


def states_chunks(header: BloscpackHeader) -> bool:
    """Return whether a header states the number and the sizes of all chunks."""
    return -1 not in (header.nchunks, header.chunk_size, header.last_chunk)


def stating_chunks(header: BloscpackHeader, sizes: list[int]) -> BloscpackHeader:
    """Return a header that states the chunks of the file, whose plain sizes are given.

    Raises `ChunksDiffer` if it can't, because there is no single chunk size.
    """
    found = header.copy()
    found.offsets = header.offsets and header.nchunks != -1
    if not found.offsets:
        found.max_app_chunks = 0
    found.nchunks = len(sizes)
    found.chunk_size, found.last_chunk = (sizes[0], sizes[-1]) if sizes else (0, 0)
    if {*sizes[:-1]} - {found.chunk_size} or found.last_chunk > found.chunk_size:
        raise ChunksDiffer(
            "the chunks of the file differ in size, so it can't be appended to in place"
        )
    return found


def plan_append(
    beginning: Beginning,
    boundaries: list[int],
    new_size: int,
    metadata: object = UNCHANGED,
) -> AppendPlan:
    """Return the plan for appending `new_size` bytes and replacing the metadata.

    `boundaries` are file offsets: the start of the first chunk, then the end of each
    chunk with its digest; only the first one and the last two are used. Raises
    `UsageError` if the file can't take the new bytes or the new metadata.
    """
    old = beginning.header
    inner_nbytes = inner_size(beginning.metadata, old)
    in_grid = is_grid(beginning.metadata)
    first_chunk = kept_chunks(beginning.metadata, old)
    fill, nchunks_added, chunk_size, last_chunk = new_chunks(
        old, new_size, beginning.metadata
    )
    if in_grid and new_size and not (old.offsets and beginning.offsets):
        raise NotEnoughSpace(
            "an array in chunks of every axis can't grow in place without an offset "
            "table"
        )
    if old.offsets and nchunks_added > old.max_app_chunks:
        raise NotEnoughSpace(
            "not enough space: '%d' chunks are to be appended, but the offset table "
            "has room for '%d'" % (nchunks_added, old.max_app_chunks)
        )
    header = old.copy()
    header.chunk_size = chunk_size
    header.last_chunk = last_chunk
    header.nchunks = old.nchunks + nchunks_added
    header.max_app_chunks = old.max_app_chunks - nchunks_added if old.offsets else 0
    first_entry = first_chunk if in_grid else old.nchunks
    nfree = old.max_app_chunks + old.nchunks - first_entry
    if in_grid:
        new_sizes = [chunk_size] * (header.nchunks - first_chunk if new_size else 0)
    else:
        # The table has an entry for each of them, so this list is not too long.
        new_sizes = [
            *[fill] * bool(old.nchunks),
            *[chunk_size] * (nchunks_added - 1),
            *[last_chunk] * bool(nchunks_added),
        ]
    return AppendPlan(
        header=header,
        section=plan_metadata(beginning, new_size, metadata),
        first_chunk=first_chunk,
        # There may be no boundaries but the first one and the last two.
        chunks_offset=boundaries[first_chunk - old.nchunks - 1],
        new_sizes=new_sizes,
        nchunks_added=nchunks_added,
        first_entry=first_entry,
        table_offset=boundaries[0] - OFFSET_LENGTH * nfree,
        inner_nbytes=inner_nbytes,
    )


def kept_chunks(metadata: object, header: BloscpackHeader) -> int:
    """Return the number of chunks in front of the first one that an append writes."""
    if not is_grid(metadata):
        return max(header.nchunks - 1, 0)
    from .array_metadata import Description

    grid = Description(metadata).grid
    if grid is None or not grid.shape or grid.nchunks != header.nchunks:
        return header.nchunks
    full, rest = divmod(grid.shape[0], grid.chunk[0])
    return full * (grid.nchunks // (full + bool(rest)))


def new_chunks(
    old: BloscpackHeader, new_size: int, metadata: object
) -> tuple[int, int, int, int]:
    """Return how many of the new bytes fill up the last chunk, and the new geometry.

    The geometry is the number of added chunks, the chunk size and the size of the last
    chunk. The chunk size of a single chunk grows up to that of a large file.
    """
    if is_grid(metadata):
        from .array_metadata import Description, grown_metadata

        before = Description(metadata)
        grown = grown_metadata(metadata, before.stored_nbytes, new_size)
        after, size = Description(grown), before.chunk_nbytes
        return 0, (after.stored_nbytes - before.stored_nbytes) // size, size, size
    largest = _largest_chunk(metadata, old)
    last_nbytes = old.last_chunk if old.nchunks else 0
    chunk_size = _grown_chunk_size(old, last_nbytes + new_size, largest)
    fill = min(chunk_size - last_nbytes, new_size) if old.nchunks else 0
    nchunks_added, last_chunk = 0, last_nbytes + fill
    if new_size > fill:
        nchunks_added, _, last_chunk = calculate_nchunks(new_size - fill, chunk_size)
    return fill, nchunks_added, chunk_size, last_chunk


def _grown_chunk_size(header: BloscpackHeader, nbytes: int, largest: int) -> int:
    """Return the chunk size of a file that will hold `nbytes` plain bytes.

    The chunk size of a file with a single chunk is the size of its input. Appending
    chunks of that size would give many small chunks. No other chunk depends on it, so
    it grows to the chunk size that packing all bytes at once would use.
    """
    if header.nchunks > 1 or nbytes <= header.chunk_size:
        if nbytes and not header.chunk_size:
            raise UsageError(
                "the '%d' chunks of the file are empty, so it can't be appended to"
                % header.nchunks
            )
        return header.chunk_size
    return max(header.chunk_size, min(nbytes, largest))


def _largest_chunk(metadata: object, header: BloscpackHeader) -> int:
    """Return the chunk size that packing a large file at once would use, in bytes.

    It is a multiple of the item size of an array; a shard has its own.
    """
    default = parse_chunk_size(DEFAULT_CHUNK_SIZE)
    if not is_array(metadata):
        return default
    from .array_metadata import Description

    itemsize = max(Description(metadata).dtype.itemsize, 1)
    own = inner_size(metadata, header)
    return own or max(default - default % itemsize, itemsize)


def plan_metadata(
    beginning: Beginning, new_size: int, metadata: object
) -> Section | None:
    """Return the metadata section after an append of `new_size` bytes.

    None if it stays unchanged. The shape of an array grows with its data.
    """
    old_header = beginning.metadata_header
    if metadata is not UNCHANGED and old_header is None:
        raise NoMetadataFound("unable to seek to metadata if it does not exist")
    if old_header is None:
        return None
    old = beginning.metadata
    nbytes = beginning.header.nbytes or 0
    new = updated_metadata(old, nbytes, new_size, metadata)
    if metadata is UNCHANGED and new == old:
        return None
    return encode_again(new, old, old_header)


def updated_metadata(old: Json, nbytes: int, new_size: int, metadata: object) -> Json:
    """Return the metadata of a file of `nbytes` after an append of `new_size` bytes.

    `metadata` are those that the caller gives, UNCHANGED if none; in an array file they
    are stored beside the description of the array (`replaced_metadata`).
    """
    if is_array(metadata):
        from .array_metadata import check_new_description, grown_metadata

        grown = grown_metadata(old, nbytes, new_size) if is_grid(old) else old
        check_new_description(metadata, nbytes + new_size, grown)
        return replaced_metadata(old, metadata)
    if is_array(old):
        from .array_metadata import grown_metadata

        old = grown_metadata(old, nbytes, new_size)
    return old if metadata is UNCHANGED else replaced_metadata(old, metadata)
