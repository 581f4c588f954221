"""Inspect a damaged file: read its sections, find its chunks and number them.

`inspect` runs the steps in order and returns an `Inspection`, a record of the results.
`checks` reports on it, and `rebuild` plans a recovery from it.
"""

from __future__ import annotations

from bisect import bisect_right

from .._format.blosc_header import unpack_header
from .._format.offsets import FREE
from ..abstract_objects import ImmutableObject
from ..checksums import CHECKSUMS
from ..constants import BLOSC_HEADER_LENGTH, BLOSCPACK_HEADER_LENGTH, MAGIC
from ..exceptions import FormatError
from ..headers import FIELD_OFFSETS
from ..serializers import is_array
from .evidence import Evidence
from .findings import ERROR, Findings
from .geometry import expected_sizes, measure, nbytes_of
from .lenient_sections import has_free_entries, read_sections, relocate_sections
from .nested import drop_nested_chunks
from .numbering import number_chunks
from .scan import ChunkScan, find_checksum

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._format.array_metadata import Description
    from .._storage.base import Storage
    from ..abstract_io import Progress
    from ..checksums import Hash
    from ..exceptions import NotReadable
    from ..headers import BloscpackHeader
    from .findings import Finding
    from .geometry import ChunkGeometry
    from .lenient_sections import Sections
    from .numbering import Numbering
    from .scan import Chain, DamagedChunk

# Maximum number of chunks believed without an offset table: always this many, and this
# many per chunk found. A damaged header may state 2**62 chunks, and `recover` would try
# to fill them in.
MIN_NCHUNKS_LIMIT = 2**16
NCHUNKS_LIMIT_PER_CHUNK = 1000
# Number of chunks that touch each other which proves that a file has no digests:
# removed bytes may make two chunks touch by chance.
MIN_TOUCHING = 4
# Maximum number of chains whose first chunk is looked up in an offset table.
MAX_CHAINS_TRIED = 16
# Maximum number of damaged chunks examined for a report, which keeps 1000 findings.
MAX_DAMAGED_EXAMINED = 1000


class Inspection(ImmutableObject):
    """The results of all steps.

    ``sections`` are the intact parts of the sections, and ``announced_first`` is
    the offset of the first chunk by the header. ``checksum`` is the checksum of the
    digests found; ``numbering`` has the chains of intact chunks, and ``geometry`` the
    count and the sizes of all chunks. ``damaged`` are the first places where a chunk
    should begin but no intact one does. ``findings`` are about the sections.
    ``missing_codec`` and ``skipped_at`` are those of `ChunkChecker` and `ChunkScan`.
    """

    __slots__ = (
        "announced_first",
        "checksum",
        "count_is_known",
        "damaged",
        "findings",
        "geometry",
        "missing_codec",
        "numbering",
        "sections",
        "skipped_at",
        "storage",
    )

    def __init__(
        self,
        storage: Storage,
        sections: Sections,
        announced_first: int | None,
        scan: ChunkScan,
        count_is_known: bool,
        numbering: Numbering,
        geometry: ChunkGeometry,
        damaged: Sequence[DamagedChunk],
        findings: Sequence[Finding],
    ) -> None:
        self.storage = storage
        self.sections = sections
        self.announced_first = announced_first
        self.checksum: Hash = scan.checksum
        self.count_is_known = count_is_known
        self.numbering = numbering
        self.geometry = geometry
        self.damaged = tuple(damaged)
        self.findings = tuple(findings)
        self.missing_codec: NotReadable | None = scan.checker.missing_codec
        self.skipped_at: int | None = scan.skipped_at

    def first_typesize(self) -> int:
        """Return the type size in the header of the first intact chunk."""
        start = self.numbering.chains[0].start
        return unpack_header(self.storage.read_at(start, BLOSC_HEADER_LENGTH)).typesize


def inspect(
    storage: Storage, nthreads: int, progress: Progress | None = None
) -> Inspection:
    """Inspect a file; the caller enters `own_settings` first.

    `progress` is called with the plain bytes of each intact chunk found.

    Raises `NotReadable` if the storage holds no Bloscpack file.
    """
    findings = Findings()
    sections = read_sections(storage, findings)
    announced_first = sections.first
    scan = _FileScanner(storage, sections, nthreads, progress).scan()
    if sections.header is not None:
        _report_checksum(sections.header, scan.checksum, findings)
    if sections.unreadable is not None and not scan.chains:
        raise sections.unreadable
    starts = [chain.start for chain in scan.chains[:MAX_CHAINS_TRIED]]
    sections = relocate_sections(storage, sections, starts, findings)
    array = _describe_array(sections, findings)
    header_is_wrong = any(
        f.section == "header" and f.severity == ERROR for f in findings.kept
    )
    sizes = expected_sizes(scan, sections, header_is_wrong)
    evidence = _gather_evidence(storage, sections, scan.chains, sizes, array)
    chains = drop_nested_chunks(
        scan.chains,
        evidence,
        scan.checksum.size,
        scan.damaged_chunks,
        scan.has_right_size,
    )
    ends_mid_chunk = _ends_mid_chunk(scan, chains)
    numbering = number_chunks(chains, evidence, ends_mid_chunk)
    return Inspection(
        storage,
        sections,
        announced_first,
        scan,
        evidence.nchunks is not None,
        numbering,
        measure(numbering, sections, sizes, array),
        _examine_damaged(scan, sections.first, numbering),
        findings.kept,
    )


def _report_checksum(header: BloscpackHeader, found: Hash, findings: Findings) -> None:
    stated = header.checksum_impl
    # The headers of layouts 0 and 1 do not state a checksum.
    offset = FIELD_OFFSETS[header.format_version].get("checksum", len(MAGIC))
    if found is not stated:
        why = "by the digests" if found.size else "as there are no digests"
        findings.add(
            "header",
            "checksum",
            "expected the checksum '%s', %s, found '%s'"
            % (found.name, why, stated.name),
            offset=offset,
        )
    if not found.size:
        findings.note(
            "header",
            "no-checksum",
            "there are no digests: damage is found only where Blosc fails",
            offset=offset if header.format_version >= 2 else 0,
        )


def _describe_array(sections: Sections, findings: Findings) -> Description | None:
    """Return the array that the metadata describe, None if they describe none."""
    metadata = sections.metadata
    if metadata is None or not is_array(metadata.value):
        return None
    from .._format.array_metadata import Description  # NumPy takes long to import

    try:
        return Description(metadata.value)
    except FormatError as error:
        findings.add("metadata", "array", error.message)
        return None


def _ends_mid_chunk(scan: ChunkScan, chains: list[Chain]) -> bool:
    """Return whether the file ends inside a chunk behind the last chain."""
    if not chains:
        return False
    size = scan.storage.size
    damaged = scan.damaged_chunks(chains[-1].stop, size)
    return bool(damaged) and (damaged[-1].stop or 0) > size


def _examine_damaged(
    scan: ChunkScan, first: int | None, numbering: Numbering
) -> list[DamagedChunk]:
    """Return the damaged chunks between the chains, each with its problem."""
    found: list[DamagedChunk] = []
    end = first
    for chain in [*numbering.chains, None]:
        stop = scan.storage.size if chain is None else chain.start
        if end is not None and end < stop:
            room = MAX_DAMAGED_EXAMINED - len(found)
            found += map(scan.diagnosed, scan.damaged_chunks(end, stop)[:room])
        if len(found) == MAX_DAMAGED_EXAMINED:
            break
        end = None if chain is None else chain.stop
    return found


# Evidence


def _gather_evidence(
    storage: Storage,
    sections: Sections,
    chains: list[Chain],
    sizes: tuple[int | None, int | None],
    array: Description | None,
) -> Evidence:
    """Return the statements of the file that the chunks found do not contradict."""
    header, entries = sections.header, sections.table.entries
    nchunks = None
    if header is not None and header.nchunks != -1:
        nchunks = header.nchunks if _is_own_header(header, sections, chains) else None
    # The end of the table confirms the number of its entries.
    starts = [chain.start for chain in chains[:1]]
    count_confirmed = (
        nchunks == len(entries) > 0
        and entries[-1] != FREE
        and (
            sections.table_fits
            or sections.first in starts
            or has_free_entries(storage, sections)
        )
    )
    if entries and sections.first is not None:
        nchunks = len(entries)
    limit = MIN_NCHUNKS_LIMIT + NCHUNKS_LIMIT_PER_CHUNK * sum(map(len, chains))
    refused = nchunks is not None and nchunks > max(limit, len(entries))
    return Evidence(
        entries,
        sections.first,
        None if refused else nchunks,
        sections.base or BLOSCPACK_HEADER_LENGTH,
        storage.size,
        *sizes,
        count_confirmed,
        count_refused=refused,
        count_fits_array=_is_array_size(sections, array),
        array_nbytes=None if array is None else array.nbytes,
    )


def _is_own_header(
    header: BloscpackHeader, sections: Sections, chains: list[Chain]
) -> bool:
    """Return whether the chunks fit the header, which may be of another file."""
    if header.format_version < 2 or not chains or sections.first == chains[0].start:
        return True
    if sections.table_fits:
        return True
    sizes = header.chunk_size, header.last_chunk
    return -1 in sizes or any(chain.sizes[0] in sizes for chain in chains)


def _is_array_size(sections: Sections, array: Description | None) -> bool:
    """Return whether the header states as many plain bytes as the array has."""
    header, last = sections.header, sections.stated_last_chunk
    if array is None or header is None or last is None:
        return False
    if -1 in (header.chunk_size, header.nchunks) or header.nchunks < 1:
        return False
    return nbytes_of(header.nchunks, header.chunk_size, last) == array.nbytes


# The scan, and the choice of the checksum


class _FileScanner:
    """Scans a file for chunks, with and without digests, as the header may be wrong."""

    def __init__(
        self,
        storage: Storage,
        sections: Sections,
        nthreads: int,
        progress: Progress | None,
    ) -> None:
        self._storage = storage
        self._progress = progress
        self._sections = sections
        self._header = sections.header
        self._nthreads = nthreads

    def scan(self) -> ChunkScan:
        """Return the scan that used the checksum of the file."""
        header = self._header
        stated = None if header is None else self._run(header.checksum_impl)
        if stated is not None and self._is_confirmed(stated):
            return stated
        base = self._sections.base if header is None else 0
        found = find_checksum(self._storage, base)
        with_digests = None if found is None else self._run(found)
        without = stated
        if without is None or without.checksum.size:
            without = self._run(CHECKSUMS[0])
        chosen = self._choose(with_digests, without)
        if stated is None:
            states_none = self._sections.states_no_digests
            if chosen is without and not states_none and not self._proven(without):
                # Either there are no digests, or no chunk is intact.
                chosen.chains = []
            return chosen
        if chosen is without and not self._proves_no_digests(without):
            return stated
        return chosen

    def _run(self, checksum: Hash) -> ChunkScan:
        """Return a scan for chunks with digests of a checksum."""
        header, limit, first = self._header, None, self._sections.first
        entries = self._sections.table.entries
        if header is not None and header.nchunks != -1:
            limit = header.nchunks
        if entries and entries[0] not in (first, FREE):
            first = None
        scan = ChunkScan(self._storage, checksum, self._nthreads, self._progress)
        scan.run(first, 0, limit, lambda chain: self._is_complete(chain, scan))
        return scan

    def _is_complete(self, chain: Chain, scan: ChunkScan) -> bool:
        """Return whether a chain of the stated length is all of the file.

        The bytes behind it are then ignored: releases up to 0.16.0 left some there when
        an append made the last chunk shorter.
        """
        header, last = self._header, self._header and self._header.last_chunk
        if chain.stop == self._storage.size:
            return True
        entries = self._sections.table.entries
        if entries:
            if chain.offsets != entries or last not in (-1, chain.sizes[-1]):
                return False
            # If a chunk follows, a chunk of the chain may be at a wrong place.
            return scan.find(chain.stop, chain.stop + 1) is None
        # Files without a table can't have been appended to.
        behind = self._storage.read_at(chain.stop, len(MAGIC))
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
        assert self._header is not None
        first, nchunks = self._sections.first, self._header.nchunks
        count, end = 0, first
        for chain in scan.chains:
            if chain.start == end:
                count, end = count + len(chain), chain.stop
        if end is None or first is None or not 0 < nchunks <= count:
            return False
        if count > 1 or end == self._storage.size:
            return True
        chunk_header = scan.checker.header_at(first)
        return scan.checker.find_checksum(first, chunk_header) is None

    def _proves_no_digests(self, scan: ChunkScan) -> bool:
        """Return whether the chunks prove that the digests in the header do not exist.

        They do if several touch, or if one chain is exactly the file that the header
        describes.
        """
        if any(len(chain) >= MIN_TOUCHING for chain in scan.chains):
            return True
        if len(scan.chains) != 1 or self._header is None:
            return False
        (chain,) = scan.chains
        return (
            chain.start == self._sections.first
            and self._header.nchunks in (-1, len(chain))
            and chain.stop == self._storage.size
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
        if self._header is None or self._header.nchunks in (-1, nfound):
            stops.add(self._storage.size)
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
