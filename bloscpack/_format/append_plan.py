"""Plan an append: the new chunks and metadata, without reading or writing.

`is_left_over` knows what an append may leave behind the last chunk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._engine.blosc_settings import own_settings
from .._types import Json
from ..args import calculate_nchunks, parse_chunk_size
from ..constants import BLOSC_HEADER_LENGTH, FORMAT_VERSION, RECORD_MAGIC
from ..defaults import DEFAULT_CHUNK_SIZE
from ..exceptions import NoMetadataFound, UsageError
from ..headers import BloscpackHeader
from ..serializers import is_array, is_grid, replaced_metadata
from .chunks import Frame, plain_of
from .sections import Beginning, Section, encode_again
from .shard import inner_size

if TYPE_CHECKING:
    from .._storage.cursor import Cursor

# Maximum number of bytes of a stream, the part of a block that a codec compresses.
MAX_STREAM = 2**21
# How many bytes `begins_left_over` looks at.
LEFT_OVER_HEAD = BLOSC_HEADER_LENGTH + len(RECORD_MAGIC)
# The default value of `metadata` parameters: None is a valid value of metadata.
UNCHANGED: object = object()


class NotInPlace(UsageError):
    """Raised if a file can only be changed in a copy, which replaces it."""


class ChunksDiffer(UsageError):
    """Raised if chunks that differ in size keep a file from being appended to."""


def stating_chunks(header: BloscpackHeader, sizes: list[int]) -> BloscpackHeader:
    """Return a header that states the chunks of the file, whose plain sizes are given.

    Raises `ChunksDiffer` if it can't, because there is no single chunk size.
    """
    new = header.copy()
    new.offsets = header.offsets and header.nchunks != -1
    if not new.offsets:
        new.max_app_chunks = 0
    new.nchunks = len(sizes)
    new.chunk_size, new.last_chunk = (sizes[0], sizes[-1]) if sizes else (0, 0)
    if {*sizes[:-1]} - {new.chunk_size} or new.last_chunk > new.chunk_size:
        raise ChunksDiffer(
            "the chunks of the file differ in size, so it can't be appended to in place"
        )
    return new


def grown_header(
    old: BloscpackHeader, metadata: Json, new_size: int
) -> tuple[BloscpackHeader, int]:
    """Return the header after an append, and the number of the first chunk to write.

    That is the last chunk, which is filled up and compressed again; in a grid, the
    first one with rows that are not full. The chunk size of a single chunk is the size
    of its input: it grows to the chunk size that packing all bytes at once would use,
    because appending chunks of that size would give many small ones. The number of free
    entries stays unchanged.
    """
    header = old.copy()
    if is_grid(metadata):
        from .array_metadata import Description, grown_metadata

        before = Description(metadata)
        after = Description(grown_metadata(metadata, before.stored_nbytes, new_size))
        grid, first = before.grid, old.nchunks
        if grid is not None and grid.shape and grid.nchunks == old.nchunks:
            full, rest = divmod(grid.shape[0], grid.chunk[0])
            first = full * (grid.nchunks // (full + bool(rest)))
        header.chunk_size = header.last_chunk = before.chunk_nbytes
        added = (after.stored_nbytes - before.stored_nbytes) // before.chunk_nbytes
    else:
        first = max(old.nchunks - 1, 0)
        last_chunk = old.last_chunk if old.nchunks else 0
        nbytes = last_chunk + new_size
        if old.nchunks <= 1 and nbytes > old.chunk_size:
            largest = parse_chunk_size(DEFAULT_CHUNK_SIZE)
            if is_array(metadata):
                from .array_metadata import Description

                itemsize = max(Description(metadata).dtype.itemsize, 1)
                largest = max(largest - largest % itemsize, itemsize)
            largest = inner_size(metadata, old) or largest
            header.chunk_size = max(old.chunk_size, min(nbytes, largest))
        elif nbytes and not old.chunk_size:
            raise UsageError(
                "the '%d' chunks of the file are empty, so it can't be appended to"
                % old.nchunks
            )
        added, header.last_chunk = 0, nbytes
        if nbytes > header.chunk_size or (new_size and not old.nchunks):
            rest = nbytes - header.chunk_size * bool(old.nchunks)
            added, _, header.last_chunk = calculate_nchunks(rest, header.chunk_size)
    header.nchunks = old.nchunks + added
    return header, first


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
    new = updated_metadata(old, beginning.header.nbytes or 0, new_size, metadata)
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


def begins_left_over(tail: bytes) -> bool:
    """Return whether bytes begin as those that a change in place leaves."""
    head = tail[:LEFT_OVER_HEAD].lstrip(b"\0")
    return not any(tail[:BLOSC_HEADER_LENGTH]) or head.startswith(RECORD_MAGIC)


def is_left_over(cursor: Cursor, header: BloscpackHeader, last: Frame | None) -> bool:
    """Return whether an append has left the bytes at a cursor, behind the last chunk.

    A change in place leaves zeros or its undo record (rule X7). Releases up to
    0.16.0 left the end of the old last chunk if the new one is shorter. It is known by
    the plain bytes, if these were stored, or else by the length of its last stream.
    """
    if header.format_version < FORMAT_VERSION or last is None:
        return False
    digest = header.checksum_impl.size
    longest = header.chunk_size + BLOSC_HEADER_LENGTH - last.header.ctbytes
    tail = bytes(cursor.peek_behind(max(longest + 1, LEFT_OVER_HEAD)))
    cursor.restore()
    if begins_left_over(tail):
        return True
    old = tail[: len(tail) - digest]
    if not header.offsets or not old or len(tail) > longest:
        return False
    with own_settings:
        plain = plain_of(last, header.checksum_impl)
    if plain.startswith(old, last.header.ctbytes + digest - BLOSC_HEADER_LENGTH):
        return True
    sizes = range(1, min(len(old) - 3, MAX_STREAM))
    return any(old.startswith(n.to_bytes(4, "little"), len(old) - n - 4) for n in sizes)
