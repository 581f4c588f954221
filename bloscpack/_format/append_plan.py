"""Plan an append: pure functions, which neither read nor write files.

Input are the sections of the file, the positions of its chunks and the size of the new
data. The plan has the new header, the new metadata, the sizes of the new chunks and
every extent of the file that the append will overwrite.
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
    from ..headers import BloscpackHeader
    from .sections import Beginning

# Default of `metadata`: keep the metadata. None is a valid value of metadata.
UNCHANGED = object()


class Plan:
    """The changes that an append will make; sizes and positions are in bytes.

    ``header`` is the new file header; ``section`` the new metadata section, None to
    keep the old one. Chunks are written at ``write_at``, the first with number
    ``first``. ``sizes`` has the number of bytes of new data in each; if the file has
    chunks, the first is the old last chunk with new data behind its plain bytes. The
    file grows by ``nchunks_new`` chunks, whose offsets are written at ``table_at``.
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
        """Return (start, stop) of each extent to be overwritten, the header first."""
        head = BLOSCPACK_HEADER_LENGTH + len(self.section or b"")
        if not any(self.sizes):
            return [(0, head)]
        table_end = self.table_at + OFFSET_LENGTH * self.nchunks_new
        return [(0, head), (self.table_at, table_end), (self.write_at, file_size)]


def plan_append(
    beginning: Beginning, ends: list[int], new_size: int, metadata: object = UNCHANGED
) -> Plan:
    """Return the plan for appending `new_size` bytes.

    `ends` are the file positions where the first chunk starts and where every chunk
    with its digest ends. Raises `UsageError` if the append is impossible.
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
    """Return the chunk size of the file after the append, when it holds `nbytes`.

    The chunk size of a file with one chunk is the size of its input, which may be very
    small. No other chunk depends on it, so it grows to the chunk size that packing all
    data at once would have used.
    """
    if header.nchunks > 1 or nbytes <= header.chunk_size:
        return header.chunk_size
    default = parse_chunk_size(DEFAULT_CHUNK_SIZE)
    default = max(default - default % itemsize, itemsize)
    return max(header.chunk_size, min(nbytes, default))


def _itemsize(metadata: object) -> int:
    """Return the item size in bytes of an array, 1 for other data.

    Chunks of an array end between items.
    """
    if not is_array(metadata):
        return 1
    from .array_metadata import Description

    return max(Description(metadata).dtype.itemsize, 1)


def new_section(
    beginning: Beginning, header: BloscpackHeader, new_size: int, metadata: object
) -> bytes | None:
    """Return the metadata section after the append; None if it does not change."""
    old_header = beginning.metadata_header
    if metadata is not UNCHANGED and old_header is None:
        raise NoMetadataFound("unable to seek to metadata if it does not exist")
    if old_header is None:
        return None
    if is_array(beginning.metadata) or is_array(metadata):
        # Import late: NumPy is slow to import.
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
