"""Check single chunks of a damaged file: digest, Blosc header and block structure.

Problems are returned, not raised.
"""

from __future__ import annotations

import struct

from .._engine.threads import Workspace
from .._format.blosc_header import decode_block_starts, decode_header
from .._format.chunks import check_digest, decompress_into
from ..checksums import CHECKSUMS
from ..constants import BLOSC_HEADER_LENGTH
from ..exceptions import FormatError, NotReadable

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from .._format.blosc_header import BloscHeader
    from .._storage.base import Storage
    from ..checksums import Hash

    # Where a chunk starts, where it and its digest end, and its header.
    Piece = tuple[int, int, BloscHeader]

# In front of each stream of a block is its length.
STREAM_LENGTH = struct.Struct("<I")


class Examiner:
    """Tells whether a chunk is what it should be.

    Enter `chunks.own_settings` first. ``unread`` is set when a codec is missing.
    """

    def __init__(self, storage: Storage, checksum: Hash) -> None:
        self.storage = storage
        self.checksum = checksum
        self.unread: NotReadable | None = None
        self._stored = Workspace()
        self._plain = Workspace()

    def header_at(self, offset: int) -> BloscHeader:
        """Return the chunk header at `offset`; raises `FormatError`."""
        head = self.storage.read_at(offset, BLOSC_HEADER_LENGTH)
        try:
            return decode_header(head)
        except FormatError as error:
            error.offset = offset
            raise

    def check(self, piece: Piece) -> FormatError | None:
        """Return what is wrong with a chunk, None if nothing is."""
        offset, stop, header = piece
        if stop > self.storage.size:
            return FormatError(
                "the file ends too early: expected a chunk and its digest of '%d' "
                "bytes, found '%d'" % (stop - offset, self.storage.size - offset),
                section="chunks",
                offset=offset,
            )
        view = self._stored.view(stop - offset)
        self.storage.read_into(view, offset)
        compressed, digest = view[: header.ctbytes], view[header.ctbytes :]
        try:
            check_digest(compressed, digest, self.checksum)
            decompress_into(compressed, self._plain.view(header.nbytes), header)
        except NotReadable as error:
            self.unread = error
        except FormatError as error:
            error.offset = offset
            return error
        except MemoryError:
            return FormatError(
                "there is no memory for a chunk of '%d' plain bytes" % header.nbytes,
                section="chunks",
                offset=offset,
            )
        return None

    def fills(self, offset: int, header: BloscHeader) -> bool:
        """Return whether the blocks of a chunk end where its header says.

        Then its size is right, whatever else is damaged in it.
        """
        raw = self.storage.read_at(offset, header.ctbytes)
        if len(raw) < header.ctbytes:
            return False
        if header.is_copy:
            return True  # its size has been compared with the plain size
        starts = decode_block_starts(raw[BLOSC_HEADER_LENGTH : header.table_end])
        ends = [*sorted(starts), header.ctbytes]
        if ends[0] != header.table_end or max(starts) > header.ctbytes:
            return False
        position = header.table_end
        for end in ends[1:]:
            while position + STREAM_LENGTH.size <= end:
                (length,) = STREAM_LENGTH.unpack_from(raw, position)
                position += STREAM_LENGTH.size + length
            if position != end:
                return False
        return True

    def checksum_of(self, offset: int, header: BloscHeader) -> Hash | None:
        """Return the checksum whose digest lies behind a chunk, None if none does."""
        largest = max(checksum.size for checksum in CHECKSUMS)
        raw = memoryview(self.storage.read_at(offset, header.ctbytes + largest))
        compressed, behind = raw[: header.ctbytes], raw[header.ctbytes :]
        for checksum in CHECKSUMS[1:]:
            digest = behind[: checksum.size]
            if len(digest) == checksum.size and checksum(compressed) == digest:
                return checksum
        return None
