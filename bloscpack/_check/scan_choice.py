"""Scan a file with and without digests, and choose the scan whose chunks are its own.

The header may state the wrong checksum. The chunks show whether there are digests, and
of which checksum.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from .._format.sections import FREE
from .._storage.base import Storage
from ..abstract_io import Progress
from ..checksums import CHECKSUMS, Hash
from ..constants import MAGIC
from ..headers import BloscpackHeader
from .lenient_sections import Sections
from .scan import Chain, ChunkScan

# Number of chunks that touch each other which proves that a file has no digests:
# removed bytes may make two chunks touch by chance.
MIN_TOUCHING = 4


class FileScanner(NamedTuple):
    """Scans of one file; `scan` chooses between them."""

    storage: Storage
    sections: Sections
    nthreads: int
    progress: Progress | None

    @property
    def header(self) -> BloscpackHeader | None:
        """The header of the file, None if it is damaged."""
        return self.sections.header

    def scan(self) -> ChunkScan:
        """Return the scan that used the checksum of the file."""
        header = self.header
        stated = None if header is None else self._run(header.checksum_impl)
        if stated is not None and self._is_confirmed(stated):
            return stated
        base = self.sections.base if header is None else 0
        found = ChunkScan(self.storage, CHECKSUMS[0], 1).find_checksum(base)
        with_digests = None if found is None else self._run(found)
        without = stated
        if without is None or without.checksum.size:
            without = self._run(CHECKSUMS[0])
        chosen = self._choose(with_digests, without)
        if stated is None:
            states_none = self.sections.states_no_digests
            if chosen is without and not states_none and not self._proven(without):
                # Either there are no digests, or no chunk is intact.
                chosen.chains = []
            return chosen
        if chosen is without and not self._proves_no_digests(without):
            return stated
        return chosen

    def _run(self, checksum: Hash) -> ChunkScan:
        """Return a scan for chunks with digests of a checksum."""
        header, limit, first = self.header, None, self.sections.first
        entries = self.sections.table.entries
        if header is not None and header.nchunks != -1:
            limit = header.nchunks
        if entries and entries[0] not in (first, FREE):
            first = None
        scan = ChunkScan(self.storage, checksum, self.nthreads, self.progress)
        scan.run(first, limit, lambda chain: self._is_complete(chain, scan))
        return scan

    def _is_complete(self, chain: Chain, scan: ChunkScan) -> bool:
        """Return whether a chain of the stated length is all of the file.

        The bytes behind it are then ignored: releases up to 0.16.0 left some there when
        an append made the last chunk shorter.
        """
        header, last = self.header, self.header and self.header.last_chunk
        if chain.stop == self.storage.size:
            return True
        entries = self.sections.table.entries
        if entries:
            if chain.offsets != entries or last not in (-1, chain.sizes[-1]):
                return False
            # If a chunk follows, a chunk of the chain may be at a wrong place.
            return scan.find(chain.stop, chain.stop + 1) is None
        # Files without a table can't have been appended to.
        behind = self.storage.read_at(chain.stop, len(MAGIC))
        return header is not None and behind == MAGIC

    def _is_confirmed(self, scan: ChunkScan) -> bool:
        """Return whether the chunks confirm the checksum that the header states."""
        if scan.checksum.size:
            return bool(scan.chains)
        if self._has_all_without_digests(scan):
            return True
        proven = sum(chain.stop - chain.start for chain in self._proven(scan))
        return 2 * proven > sum(chain.stop - chain.start for chain in scan.chains)

    def _has_all_without_digests(self, scan: ChunkScan) -> bool:
        """Return whether all chunks are there, and no digest follows the first one."""
        assert self.header is not None
        first, nchunks = self.sections.first, self.header.nchunks
        count, end = 0, first
        for chain in scan.chains:
            if chain.start == end:
                count, end = count + len(chain), chain.stop
        if end is None or first is None or not 0 < nchunks <= count:
            return False
        if count > 1 or end == self.storage.size:
            return True
        header = scan.header_at(first)
        return scan.checksum_behind((first, first, header)) is None

    def _proves_no_digests(self, scan: ChunkScan) -> bool:
        """Return whether the chunks prove that the digests in the header do not exist.

        They do if several touch, or if one chain is exactly the file that the header
        describes.
        """
        if any(len(chain) >= MIN_TOUCHING for chain in scan.chains):
            return True
        if len(scan.chains) != 1 or self.header is None:
            return False
        (chain,) = scan.chains
        return (
            chain.start == self.sections.first
            and self.header.nchunks in (-1, len(chain))
            and chain.stop == self.storage.size
        )

    def _proven(self, scan: ChunkScan) -> list[Chain]:
        """Return the chains that have no digests.

        Their chunks touch each other, or the next chain. A chain that ends with the
        file counts only if no chunk is missing: otherwise the file may have been cut
        off before a digest.
        """
        chains = scan.chains
        stops = {chain.start for chain in chains}
        nfound = sum(map(len, chains))
        if self.header is None or self.header.nchunks in (-1, nfound):
            stops.add(self.storage.size)
        return [chain for chain in chains if len(chain) > 1 or chain.stop in stops]

    def _choose(self, with_digests: ChunkScan | None, without: ChunkScan) -> ChunkScan:
        """Return the scan whose chunks lie outside the chunks of the other one.

        Chunks inside them belong to a packed file that was packed.
        """
        if with_digests is None:
            return without
        digested, bare = with_digests.chains, self._proven(without)
        if _nbytes_outside(bare, digested) > _nbytes_outside(digested, bare):
            return without
        return with_digests


def _nbytes_outside(chains: list[Chain], others: list[Chain]) -> int:
    """Return the bytes of all chains that do not lie inside one of the others."""
    starts = [other.start for other in others]
    total = 0
    for chain in chains:
        i = bisect_right(starts, chain.start) - 1
        if i < 0 or others[i].stop < chain.stop:
            total += chain.stop - chain.start
    return total
