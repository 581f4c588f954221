"""Inspect a damaged file: read its sections, find its chunks and number them.

`inspect` runs the steps in order and returns an `Inspection`, a record of the results.
`checks` reports on it, and `rebuild` plans a recovery from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._engine.forks import cached_property
from .._format.blosc_header import unpack_header
from ..constants import BLOSC_HEADER_LENGTH, MAGIC
from ..exceptions import FormatError
from ..headers import FIELD_OFFSETS
from ..serializers import is_array
from .evidence import gather, measure, with_known_entries
from .findings import Report
from .lenient_sections import find_header, find_metadata, read_sections
from .nested import drop_nested_chunks
from .numbering import number_chunks
from .proof import Proof, prove
from .scan_choice import FileScanner
from .trailer import without_trailer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .._format.array_metadata import Description
    from .._storage.base import Storage
    from ..abstract_io import Progress
    from ..checksums import Hash
    from ..headers import BloscpackHeader
    from .evidence import ChunkGeometry, Evidence
    from .findings import Finding
    from .lenient_sections import Sections
    from .numbering import Numbering
    from .scan import Chain, ChunkScan, DamagedChunk

# Maximum number of damaged chunks examined for a report, which keeps 1000 findings.
MAX_DAMAGED_EXAMINED = 1000


@dataclass(frozen=True)
class Inspection:
    """The results of all steps.

    ``whole`` is the file, and ``storage`` the file without the trailer of a shard.
    ``sections`` are the intact parts of the sections, and ``announced_first`` is
    the offset of the first chunk by the header. The numbers follow from ``evidence``;
    ``numbering`` has the chains of intact chunks, and ``geometry`` the count and the
    sizes of all chunks. ``findings`` are about the sections. ``damaged`` are the first
    places where a chunk should begin but no intact one does.
    """

    whole: Storage
    storage: Storage
    sections: Sections
    announced_first: int | None
    scan: ChunkScan
    evidence: Evidence
    numbering: Numbering
    geometry: ChunkGeometry
    findings: Sequence[Finding]
    damaged: Sequence[DamagedChunk]

    @property
    def checksum(self) -> Hash:
        """The checksum of the digests found."""
        return self.scan.checksum

    @cached_property
    def proof(self) -> Proof:
        """The doubts about all of this."""
        return prove(self)

    def first_typesize(self) -> int:
        """Return the type size in the header of the first intact chunk."""
        start = self.numbering.chains[0].start
        return unpack_header(self.storage.read_at(start, BLOSC_HEADER_LENGTH)).typesize

    def has_another(self, offset: int) -> bool:
        """Return whether another packed file begins at `offset`."""
        return self.storage.read_at(offset, len(MAGIC)) == MAGIC

    def find_second_file(self) -> int | None:
        """Return where a packed file begins between or behind the chunks, if any."""
        first, size = self.sections.first, self.whole.size
        for start, stop in _extents_between(self.numbering.chains, first, size):
            # If the end of the sections is unknown, this may be the file's own header.
            found = None if start is None else find_header(self.whole, start, stop)
            if found is not None:
                return found
        return None


def inspect(
    storage: Storage, nthreads: int, progress: Progress | None = None
) -> Inspection:
    """Inspect a file; the caller enters `own_settings` first.

    `progress` is called with the plain bytes of each intact chunk found.

    Raises `NotReadable` or `Unsupported` if the storage holds no Bloscpack file.
    """
    report = Report()
    whole = storage
    sections = read_sections(whole, report)
    storage = without_trailer(whole, sections)
    announced_first = sections.first
    scan = FileScanner(storage, sections, nthreads, progress).scan()
    if sections.header is not None:
        _report_checksum(sections.header, scan.checksum, report)
    if sections.unreadable is not None and not scan.chains:
        raise sections.unreadable
    if scan.chains and sections.first != scan.chains[0].start:
        sections = find_metadata(storage, sections, report)
    sections = with_known_entries(storage, sections, scan.chains)
    array = _describe_array(sections, report)
    evidence = gather(storage, sections, scan, array)
    chains, doubtful = drop_nested_chunks(scan.chains, evidence, scan.damaged_chunks)

    def key_of(start: int, stop: int) -> bytes:
        from hashlib import sha256

        return sha256(storage.read_at(start, stop - start)).digest()

    numbering = number_chunks(chains, evidence, key_of, doubtful=doubtful)
    return Inspection(
        whole,
        storage,
        sections,
        announced_first,
        scan,
        evidence,
        numbering,
        measure(numbering, sections, evidence, array),
        report.findings,
        _examine_damaged(scan, sections.first, numbering),
    )


def _report_checksum(header: BloscpackHeader, found: Hash, report: Report) -> None:
    stated = header.checksum_impl
    # The headers of layouts 0 and 1 do not state a checksum.
    offset = FIELD_OFFSETS[header.format_version].get("checksum", len(MAGIC))
    if found is not stated:
        why = "by the digests" if found.size else "as there are no digests"
        message = "expected the checksum '%s', %s, found '%s'"
        message %= found.name, why, stated.name
        report.add("header", "checksum", message, offset=offset)
    if not found.size:
        message = "there are no digests: damage is found only where Blosc fails"
        offset = offset if header.format_version >= 2 else 0
        report.note("header", "no-checksum", message, offset=offset)


def _describe_array(sections: Sections, report: Report) -> Description | None:
    """Return the array that the metadata describe, None if they describe none."""
    metadata = sections.metadata
    if metadata is None or not is_array(metadata.value):
        return None
    from .._format.array_metadata import Description  # NumPy takes long to import

    try:
        return Description(metadata.value)
    except FormatError as error:
        report.add("metadata", "array", error.message)
        return None


def _extents_between(
    chains: Sequence[Chain], first: int | None, size: int
) -> Iterator[tuple[int | None, int]]:
    """Yield the extent in front of each chain, and the one behind the last.

    The first extent begins at `first`, None if unknown; the last one ends at `size`.
    """
    stops = [first, *(chain.stop for chain in chains)]
    return zip(stops, [*(chain.start for chain in chains), size], strict=True)


def _examine_damaged(
    scan: ChunkScan, first: int | None, numbering: Numbering
) -> list[DamagedChunk]:
    """Return the damaged chunks between the chains, each with its problem."""
    found: list[DamagedChunk] = []
    size = scan.storage.size
    for start, stop in _extents_between(numbering.chains, first, size):
        room = MAX_DAMAGED_EXAMINED - len(found)
        if room and start is not None and start < stop:
            found += map(scan.diagnosed, scan.damaged_chunks(start, stop)[:room])
    return found
