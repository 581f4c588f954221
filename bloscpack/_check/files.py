"""Report on an inspected file: compare the chunks found with all other sections.

Damage becomes findings and never raises. A report does not change the inspection.

Inspect a damaged file: read its sections, find its chunks and number them.

`inspect` runs the steps in order and returns an `Inspection`, a record of the results.
`checks` reports on it, and `rebuild` plans a recovery from it.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from .._engine.forks import cached_property
from .._format.array_metadata import Description
from .._format.blosc_header import unpack_header
from .._format.chunks import check_end
from .._format.sections import FREE, read_beginning
from .._storage.base import Storage
from .._storage.stream import StorageCursor
from ..abstract_io import Progress
from ..checksums import Hash
from ..constants import (
    BLOSC_HEADER_LENGTH,
    BLOSCPACK_HEADER_LENGTH,
    MAGIC,
    OFFSET_LENGTH,
)
from ..exceptions import ChecksumMismatch, DamageError, FormatError
from ..headers import FIELD_OFFSETS, BloscpackHeader
from ..serializers import is_array
from .evidence import ChunkGeometry, Evidence, gather, measure, with_known_entries
from .findings import ANOTHER, Finding, Report
from .lenient_sections import (
    Sections,
    find_header,
    find_metadata,
    is_filled,
    read_sections,
)
from .numbering import Numbering, number_chunks
from .proof import Proof, prove
from .scan import Chain, ChunkScan, DamagedChunk, drop_nested_chunks
from .scan_choice import FileScanner
from .trailer import check_trailer, without_trailer

# Maximum number of findings about single wrong entries, for adjacent chunks.
ENTRIES_KEPT = 20


def report_on(inspection: Inspection) -> Report:
    """Return the findings of a file and its counts."""
    return _Checker(inspection).check()


class _Checker:
    """Collects the findings of one inspection."""

    def __init__(self, inspection: Inspection) -> None:
        self.inspection = inspection
        self.geometry = inspection.geometry
        self.chains = inspection.numbering.chains
        self.header = inspection.sections.header
        self.table = inspection.sections.table
        self.report = Report(
            layout=None if self.header is None else self.header.format_version,
            nchunks=self.geometry.nchunks,
            nintact=inspection.numbering.nfound,
            nbytes=self.geometry.nbytes,
            nbytes_intact=sum(sum(c.sizes) for c in self.chains),
            cbytes=inspection.whole.size,
            checksum=inspection.checksum.name,
        )

    def check(self) -> Report:
        """Compare everything; return all findings in the order of the file."""
        for finding in self.inspection.findings:
            self.report.take(finding)
        if self.header is not None:
            self._check_header(self.header)
        self._check_sections()
        self._check_chunks()
        self._check_search()
        self._check_array()
        check_trailer(self.inspection, self.report)
        if self.report.ok:
            self._check_as_reader()
        return self.report

    # Sections

    def _check_header(self, header: BloscpackHeader) -> None:
        nchunks, fields = self.geometry.nchunks, FIELD_OFFSETS[header.format_version]
        if header.nchunks not in (-1, nchunks):
            message = "the header states the number of chunks '%d', but the %s has '%d'"
            source = "offset table" if nchunks == len(self.table.entries) else "file"
            message %= header.nchunks, source, nchunks
            self.report.add("header", "nchunks", message, offset=fields["nchunks"])
        if header.format_version < 2 or not self.chains:
            return
        found = self.inspection.first_typesize()
        if found != header.typesize:
            message = "the first chunk has the type size '%d', but the header '%d'"
            message %= found, header.typesize
            self.report.note("header", "typesize", message, offset=fields["typesize"])

    def _check_sections(self) -> None:
        """Compare the sections in front of the chunks with the chunks found."""
        inspection = self.inspection
        first, announced = inspection.sections.first, inspection.announced_first
        if first is not None and announced is not None and first != announced:
            message = (
                "the sections in front of the chunks should end at byte %d, but they "
                "end at byte %d" % (announced, first)
            )
            self.report.add("header", "sections", message, offset=announced)
        start = self.table.used_stop
        stop = start + OFFSET_LENGTH * (self.table.nfree or 0)
        if not is_filled(inspection.storage, start, stop, b"\xff"):
            message = "expected free entries to be -1"
            self.report.add("offsets", "free-entry", message, extent=(start, stop))

    # Chunks

    def _check_chunks(self) -> None:
        """Check the intact chunks, and the bytes between them, in the file's order."""
        inspection, numbering = self.inspection, self.inspection.numbering
        damaged = deque(inspection.damaged)
        # Chunks are lost between two pieces that follow each other in the file, too.
        before = {b.number: a.stop for a, b in pairwise(numbering.in_order)}
        number, end = 0, inspection.sections.first
        if end is None:
            # A finding reports the damaged sections; don't report their bytes again.
            known = self.chains and numbering.numbers[0] == 0
            end = self.chains[0].start if known else inspection.sections.base
        for placed in numbering.placed:
            chain, first = placed.chain, placed.number
            in_gap = []
            while damaged and damaged[0].start < chain.start:
                in_gap.append(damaged.popleft())
            stop = first if before.get(first, 0) == number else number
            self._check_gap(number, stop, end, chain.start, in_gap)
            self._check_sizes(first, chain)
            self._check_offsets(first, chain)
            number, end = placed.stop, chain.stop
        self._check_end(number, end, [*damaged])

    def _check_gap(
        self, first: int, stop: int, start: int, end: int, damaged: list[DamagedChunk]
    ) -> None:
        """Report chunks [first, stop), lost between the bytes `start` and `end`."""
        if first >= stop and end > start:
            message = "'%d' bytes belong to no chunk" % (end - start)
            self.report.add("chunks", "gap", message, extent=(start, end))
        for chunk in damaged[: max(stop - first, 0)]:
            self._report_damaged_chunk(first, chunk, end)
            first += 1
            if chunk.stop is not None:  # the missing chunks begin behind it
                start = max(start, min(chunk.stop, end))
        if first < stop:
            message = "chunk %d is missing" % first
            if stop - first > 1:
                message = "chunks %d to %d are missing" % (first, stop - 1)
            where = self.geometry.place(first, stop)
            extent = start, max(start, end)
            self.report.add("chunks", "missing", message, extent=extent, **where)

    def _report_damaged_chunk(self, number: int, chunk: DamagedChunk, end: int) -> None:
        stop, kind = chunk.stop, "content"
        if stop is not None and stop > self.inspection.storage.size:
            kind = "truncated"
        elif isinstance(chunk.error, ChecksumMismatch):
            kind = "digest"
        elif stop is None:
            kind = "chunk-header"
        stop = min(end if stop is None else stop, max(end, chunk.start))
        message = "damaged" if chunk.error is None else chunk.error.message
        where = self.geometry.place(number, number + 1)
        self.report.add("chunks", kind, message, extent=(chunk.start, stop), **where)

    def _check_end(self, number: int, end: int, damaged: list[DamagedChunk]) -> None:
        """Report the bytes behind the last intact chunk, which ends at `end`."""
        inspection, header = self.inspection, self.header
        size, nchunks = inspection.storage.size, self.geometry.nchunks
        if nchunks == 0 and header is not None and header.last_chunk > 0:
            last = header.last_chunk
            message = "expected a last chunk of '%d' plain bytes, found none" % last
            where = {"extent": (end, size), "span": (0, last)}
            self.report.add("chunks", "missing", message, **where)
        if number < nchunks or inspection.evidence.nchunks is None:
            self._check_gap(number, nchunks, end, size, damaged)
        elif end < size:
            kind, why = "trailing", ""
            if inspection.has_another(end):
                kind = ANOTHER
                why = ": another packed file begins there, and is not read"
            elif header is not None and header.format_version == 3 and header.offsets:
                why = ", perhaps of an older one, or of an interrupted append"
            message = "'%d' bytes lie behind the last chunk%s" % (size - end, why)
            self.report.note("chunks", kind, message, extent=(end, size))

    def _check_sizes(self, first: int, chain: Chain) -> None:
        """Compare the plain sizes of the chunks with the header."""
        header = self.header
        if header is None or header.format_version < 2:
            return
        last = self.geometry.nchunks - 1 - first
        largest = header.last_chunk
        if largest == header.nchunks == -1 < header.chunk_size and last < len(chain):
            largest = min(header.chunk_size, chain.sizes[last])
        for start, sizes, expected in (
            (0, chain.sizes[:last], header.chunk_size),
            (last, chain.sizes[last:], largest),
        ):
            if expected != -1 and sizes.count(expected) < len(sizes):
                wrong = [i for i, n in enumerate(sizes, start) if n != expected]
                self._report_sizes(first, chain, wrong, expected)

    def _report_sizes(
        self, first: int, chain: Chain, wrong: list[int], expected: int
    ) -> None:
        i = wrong[0]
        found, kind = chain.sizes[i], "size"
        message = "expected a chunk of '%d' plain bytes, found '%d'" % (expected, found)
        if len(wrong) > 1:
            message += "; '%d' more are not as expected" % (len(wrong) - 1)
        described = self.geometry.array
        itemsize = described.dtype.itemsize if described else 0
        if itemsize and found == expected - expected % itemsize != expected:
            kind = "lossy-writer"
            message += (
                ": releases 0.4.0 to 0.7.1 lost the last '%d' bytes of each full chunk "
                "where the item size, here '%d', does not divide the chunk size"
                % (expected % itemsize, itemsize)
            )
        where = self.geometry.place(first + i, first + i + 1)
        extent = chain.offsets[i], chain.stop_of(i)
        self.report.add("chunks", kind, message, extent=extent, **where)

    def _check_offsets(self, first: int, chain: Chain) -> None:
        """Compare the offset table with the offsets of the chunks."""
        entries = array("q", self.table.entries[first : first + len(chain)])
        found = chain.offsets[: len(entries)]
        if entries == found:
            return
        if entries.count(FREE) == len(entries):
            message = "the writer did not finish: it left the table empty"
            self._report_entry(first, "unfilled", message)
            return
        single = []
        number = first
        pairs = zip(found, entries, strict=True)
        for distance, run in groupby(at - entry for at, entry in pairs):
            count = len(list(run))
            if distance and count > 1:
                self._report_moved(number, count, distance)
            elif distance:
                single.append(number)
            number += count
        self._report_single_entries(chain, first, single)

    def _report_moved(self, number: int, count: int, distance: int) -> None:
        side = "behind" if distance > 0 else "in front of"
        message = (
            "the chunks from %d to %d start '%d' bytes %s where the offset table says"
            % (number, number + count - 1, abs(distance), side)
        )
        self._report_entry(number, "moved", message)

    def _report_single_entries(
        self, chain: Chain, first: int, numbers: list[int]
    ) -> None:
        """Report wrong entries; the last finding is about all that have none."""
        message = (
            "the offset table says that chunk %d starts at byte %d, but it starts at "
            "byte %d"
        )
        for count, i in enumerate(numbers[:ENTRIES_KEPT], 1):
            text = message % (i, self.table.entries[i], chain.offsets[i - first])
            more = len(numbers) - count
            if count == ENTRIES_KEPT and more:
                text += "; '%d' more entries up to chunk %d are wrong" % (
                    more,
                    numbers[-1],
                )
            self._report_entry(i, "offset", text)

    def _report_entry(self, i: int, kind: str, message: str) -> None:
        at = self.table.start + OFFSET_LENGTH * i
        extent = at, at + OFFSET_LENGTH
        self.report.add("offsets", kind, message, chunk=i, extent=extent)

    # The whole file

    def _check_search(self) -> None:
        """Report chunks that were not checked, and numbers that are not certain."""
        scan, proof = self.inspection.scan, self.inspection.proof
        missing = scan.missing_codec
        if missing is not None:
            message = missing.message + ": only digests were checked"
            self.report.add("chunks", "codec", message, offset=missing.offset)
        if scan.skipped_at is not None:
            message = (
                "too many bytes look like chunks: some large chunks were not searched "
                "for"
            )
            self.report.add("chunks", "search", message, offset=scan.skipped_at)
        if proof.numbers:
            message = (
                "the numbers of some chunks, or the number of chunks, are not certain: "
                "they follow from the bytes between chunks or from the header alone"
            )
            offset, where, guessed = None, {}, proof.first_guessed
            if guessed is not None:
                offset = guessed.chain.start
                where = self.geometry.place(guessed.number, guessed.number + 1)
            elif self.chains:
                offset = self.chains[-1].stop
            self.report.note("chunks", "guess", message, offset=offset, **where)

    def _check_array(self) -> None:
        """Compare the array in the metadata with the plain size of all chunks."""
        described, nbytes = self.geometry.array, self.geometry.nbytes
        if described is None or nbytes is None or nbytes == described.nbytes:
            return
        message = (
            "an array of shape %s and dtype '%s' has '%d' bytes, but the chunks hold "
            "'%d'" % (described.shape, described.dtype, described.nbytes, nbytes)
        )
        numbering, kind = self.inspection.numbering, "array"
        complete = numbering.nfound == numbering.nchunks
        if nbytes > described.nbytes:
            message += ": appending with releases up to 0.16.0 left the shape unchanged"
        elif complete and not self.inspection.proof.numbers:
            message += (
                ": releases 0.4.0 to 0.7.1 and 0.11.0 to 0.14.0 lost bytes of arrays "
                "whose item size does not divide the chunk size, and 0.7.0 where the "
                "type size asked for was not the item size"
            )
            kind = "lossy-writer"
        self.report.add("metadata", kind, message, offset=BLOSCPACK_HEADER_LENGTH)

    def _check_as_reader(self) -> None:
        """Report why readers refuse the file, although all its chunks are intact.

        They find the first chunk only by the sizes in front of it, and check that the
        last one is the last.
        """
        cursor = StorageCursor(self.inspection.storage)
        try:
            header = read_beginning(cursor).header
            if header.nchunks and self.chains:
                start, stop = self.chains[0].start, self.chains[-1].stop
                if start != cursor.position:
                    raise DamageError(
                        "the first chunk should start at byte %d, but it starts at "
                        "byte %d" % (cursor.position, start),
                        section="header",
                        offset=cursor.position,
                    )
                cursor.skip(stop - start, "chunks", "chunks")
            if header.nchunks != -1:
                check_end(cursor, header)
        except FormatError as error:
            section = error.section or "chunks"
            self.report.add(section, "reader", error.message, offset=error.offset)


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
