"""Check one chunk of a damaged file: its header, its digest and its content.

`ChunkChecker` returns the first problem of a chunk instead of raising it.
"""

from __future__ import annotations

from .._engine.threads import Workspace
from .._format.blosc_header import decode_header
from .._format.chunks import check_digest, decompress_into
from ..checksums import CHECKSUMS
from ..constants import BLOSC_HEADER_LENGTH
from ..exceptions import DamageError, FormatError, Unsupported

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from .._format.blosc_header import BloscHeader
    from .._storage.base import Storage
    from ..checksums import Hash

    # The offset of a chunk, the end of its digest, and the chunk's header.
    Candidate = tuple[int, int, BloscHeader]


class ChunkChecker:
    """Checks chunks of one storage. The caller enters `own_settings` first.

    ``missing_codec`` is the error of a chunk whose codec this Blosc library lacks, else
    None. Only the digest of such a chunk was checked.
    """

    def __init__(self, storage: Storage, checksum: Hash) -> None:
        self.storage = storage
        self.checksum = checksum
        self.missing_codec: Unsupported | None = None
        self._stored = Workspace()
        self._plain = Workspace()

    def header_at(self, offset: int) -> BloscHeader:
        """Return the chunk header at `offset`; raises `FormatError`."""
        try:
            return decode_header(self.storage.read_at(offset, BLOSC_HEADER_LENGTH))
        except FormatError as error:
            error.offset = offset
            raise

    def check(self, candidate: Candidate) -> FormatError | None:
        """Return the first problem of a chunk, None if the chunk is intact."""
        offset, stop, header = candidate
        found = self.storage.size - offset
        if stop - offset > found:
            message = (
                "the file ends too early: expected a chunk and its digest of '%d' "
                "bytes, found '%d'" % (stop - offset, found)
            )
            return DamageError(message, section="chunks", offset=offset)
        view = self._stored.view(stop - offset)
        self.storage.read_into(view, offset)
        compressed, digest = view[: header.ctbytes], view[header.ctbytes :]
        try:
            check_digest(compressed, digest, self.checksum)
            decompress_into(compressed, self._plain.view(header.nbytes), header)
        except Unsupported as error:
            self.missing_codec = error
        except FormatError as error:
            error.offset = offset
            return error
        except MemoryError:
            message = "there is no memory for a chunk of '%d' plain bytes"
            message %= header.nbytes
            return DamageError(message, section="chunks", offset=offset)
        return None

    def find_checksum(self, candidate: Candidate) -> Hash | None:
        """Return the checksum whose digest follows a chunk, None if none does."""
        offset, _, header = candidate
        largest = max(checksum.size for checksum in CHECKSUMS)
        raw = memoryview(self.storage.read_at(offset, header.ctbytes + largest))
        compressed, behind = raw[: header.ctbytes], raw[header.ctbytes :]
        for checksum in CHECKSUMS[1:]:
            digest = behind[: checksum.size]
            if len(digest) == checksum.size and checksum(compressed) == digest:
                return checksum
        return None
