"""What an append will change, decided without reading or writing.

From the sections of a file, where its chunks end and how much is to be added follow
the new header, the new metadata, the cut of the new bytes and every place that will be
written over.
"""

from __future__ import annotations

from ..args import calculate_nchunks, parse_chunk_size
from ..constants import BLOSCPACK_HEADER_LENGTH, OFFSET_LENGTH
from ..defaults import DEFAULT_CHUNK_SIZE
from ..exceptions import NoMetadataFound, NotEnoughSpace
from ..serializers import is_array
from . import metadata as metadata_section

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Any

    from ..headers import BloscpackHeader
    from .sections import Beginning

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
        if not any(self.sizes):
            return [(0, head)]
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
    section = new_section(beginning, header, new_size, metadata)
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
    if not is_array(metadata):
        return 1
    from .array_metadata import Description

    return max(Description(metadata).dtype.itemsize, 1)


def new_section(
    beginning: Beginning, header: BloscpackHeader, new_size: int, metadata: Any
) -> bytes | None:
    """Return the metadata section as it has to be after the append; None for as is."""
    old_header = beginning.metadata_header
    if metadata is not UNCHANGED and old_header is None:
        raise NoMetadataFound("unable to seek to metadata if it does not exist")
    if old_header is None:
        return None
    if is_array(beginning.metadata) or is_array(metadata):
        # Only here, because NumPy takes long to import.
        from .array_metadata import appended_metadata

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
