"""Read the sections of the old file and the headers of its chunks."""

from __future__ import annotations

import os

from .. import log
from .._format import offsets as offset_table
from .._format.metadata import Section
from .._format.sections import read_beginning, skip_frames
from .._format.shard import SEPARATOR
from .._storage.base import read_up_to
from .._storage.cursor import Cursor
from ..checksums import CHECKSUMS_LOOKUP
from ..constants import BLOSCPACK_HEADER_LENGTH, MAGIC, METADATA_HEADER_LENGTH
from ..exceptions import AnotherFileFollows
from ..serializers import shard_rows

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from .._format.blosc_header import BloscHeader
    from .._format.sections import Beginning
    from .._storage.protocols import BinaryFile

    # Number of chunks, chunk size and size of the last chunk.
    Cut = tuple[int, int, int]


class Survey:
    """The sections of a file of any layout, and the sizes of its chunks.

    ``cut`` are the number of chunks, the chunk size and the size of the last chunk;
    ``regular`` says whether all chunks have these sizes. ``first`` is the header of the
    first chunk, None without chunks. ``section`` is the metadata section with the text
    as stored, None without metadata.

    Raises `FormatError` if the sections, a chunk header or the offset table is wrong,
    and `AnotherFileFollows` if another file follows.
    """

    def __init__(self, fp: BinaryFile) -> None:
        fp.seek(0)
        cursor = Cursor(fp)
        self.beginning: Beginning = read_beginning(cursor)
        self.header = self.beginning.header
        self.first: BloscHeader | None = None
        self._read_chunks(cursor)
        self._check_end(fp, cursor.position)
        self.section = self._read_section(fp)

    def _read_chunks(self, cursor: Cursor) -> None:
        offsets, sizes = [], set()
        nbytes = last = 0
        for frame in skip_frames(cursor, self.header):
            if self.first is None:
                self.first = frame.header
            else:
                sizes.add(last)
            last = frame.header.nbytes
            nbytes += last
            offsets.append(frame.offset or 0)
        offset_table.check(self.beginning.offsets or [], offsets)
        self.nbytes = nbytes
        chunk_size = max(sizes, default=last)
        self.regular = len(sizes) <= 1 and last <= chunk_size
        if self.header.nchunks in (0, 1):  # it may be larger than the only chunk
            chunk_size = max(chunk_size, self.header.chunk_size)
        self.cut: Cut = len(offsets), max(chunk_size, last), last

    def _check_end(self, fp: BinaryFile, end: int) -> None:
        fp.seek(end)
        if read_up_to(fp, len(MAGIC)) == MAGIC:
            raise AnotherFileFollows(
                "expected the end of the file at byte '%d', found another bloscpack "
                "file, which would be lost" % end
            )
        fp.seek(end)
        shard = shard_rows(self.beginning.metadata) is not None
        if shard and read_up_to(fp, len(SEPARATOR)) == SEPARATOR:
            return  # the trailer, which is written again
        trailing = fp.seek(0, os.SEEK_END) - end
        if trailing:
            log.notice(
                "dropping '%d' bytes behind the last chunk, which belong to none"
                % trailing
            )

    def _read_section(self, fp: BinaryFile) -> Section | None:
        header = self.beginning.metadata_header
        if header is None:
            return None
        fp.seek(BLOSCPACK_HEADER_LENGTH)
        front = read_up_to(fp, METADATA_HEADER_LENGTH + header.meta_comp_size)
        room = header.max_meta_size - header.meta_comp_size
        fp.seek(room, os.SEEK_CUR)
        digest_size = CHECKSUMS_LOOKUP[header.meta_checksum].size
        digest = read_up_to(fp, digest_size)
        return Section(front, room, digest, self.beginning.metadata)
