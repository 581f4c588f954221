"""Report on an inspected file: compare the chunks found with all other sections.

Damage becomes findings and never raises. A report does not change the inspection.
"""

from __future__ import annotations

from array import array
from itertools import pairwise

from .._format.offsets import FREE
from .._format.sections import check_end, read_beginning
from .._storage.base import StorageFile
from .._storage.cursor import Cursor
from ..constants import BLOSCPACK_HEADER_LENGTH, MAGIC, OFFSET_LENGTH
from ..exceptions import ChecksumMismatch, FormatError, NotReadable
from ..headers import FIELD_OFFSETS
from .findings import ANOTHER, Findings, Report
from .lenient_sections import is_filled

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .._format.array_metadata import Description
    from .findings import Pair
    from .inspection import Inspection
    from .scan import Chain, DamagedChunk


def report_on(inspection: Inspection) -> Report:
    """Return the findings of a file and its counts."""
    header, geometry = inspection.sections.header, inspection.geometry
    return Report(
        _Checker(inspection).check(),
        nchunks=geometry.nchunks,
        nintact=inspection.numbering.nfound,
        nbytes=geometry.nbytes,
        nbytes_intact=sum(sum(c.sizes) for c in inspection.numbering.chains),
        cbytes=inspection.storage.size,
        layout=None if header is None else header.format_version,
        checksum=inspection.checksum.name,
    )


class _Checker:
    """Collects the findings of one inspection."""

    def __init__(self, inspection: Inspection) -> None:
        self.inspection = inspection
        self.findings = Findings(inspection.findings)
        self.geometry = inspection.geometry
        self._header = inspection.sections.header
        self._table = inspection.sections.table

    def check(self) -> Findings:
        """Compare everything; return all findings in the order of the file."""
        inspection, numbering = self.inspection, self.inspection.numbering
        chains = numbering.chains
        self._check_sections()
        end = inspection.sections.first
        if end is None:
            # A finding reports the damaged sections; don't report their bytes again.
            known_from = chains and numbering.numbers[0] == 0
            end = chains[0].start if known_from else inspection.sections.base
        number = 0
        damaged, nreported = inspection.damaged, 0
        for placed, stop in zip(numbering.placed, self._lost_before(), strict=True):
            first, chain = placed.number, placed.piece.chain
            begin = nreported
            while nreported < len(damaged) and damaged[nreported].start < chain.start:
                nreported += 1
            in_gap = damaged[begin:nreported]
            self._check_gap(number, stop, end, chain.start, in_gap)
            self._check_sizes(first, chain)
            self._check_offsets(first, chain)
            number, end = placed.stop, chain.stop
        self._check_end(number, end, damaged[nreported:])
        self._check_search()
        self._check_array()
        if not self.findings.nerrors:
            self._check_as_reader()
        return self.findings

    def _lost_before(self) -> Iterator[int]:
        """Yield for each piece the number up to which chunks before it are lost.

        Where the pieces are out of order, no chunk is lost between them.
        """
        numbering = self.inspection.numbering
        order = numbering.in_order
        free = {b.number: a.stop for a, b in pairwise(order)}
        number = 0
        for placed in numbering.placed:
            before = free.get(placed.number, 0)
            yield placed.number if before == number else number
            number = placed.stop

    # Sections

    def _check_sections(self) -> None:
        """Compare header and offset table with the chunks that were found."""
        inspection, header = self.inspection, self._header
        nchunks, chains = self.geometry.nchunks, inspection.numbering.chains
        if header is not None and header.nchunks not in (-1, nchunks):
            self.findings.add(
                "header",
                "nchunks",
                "expected '%d' chunks, as in the offset table or in the file, found "
                "'%d'" % (nchunks, header.nchunks),
                offset=FIELD_OFFSETS[header.format_version]["nchunks"],
            )
        if header is not None and header.format_version >= 2 and chains:
            typesize = inspection.first_typesize()
            if typesize != header.typesize:
                self.findings.note(
                    "header",
                    "typesize",
                    "the first chunk has the type size '%d', but the header '%d'"
                    % (typesize, header.typesize),
                    offset=FIELD_OFFSETS[header.format_version]["typesize"],
                )
        first, announced = inspection.sections.first, inspection.announced_first
        if first is not None and announced is not None and first != announced:
            self.findings.add(
                "header",
                "sections",
                "the sections in front of the chunks should end at byte %d, but they "
                "end at byte %d" % (announced, first),
                offset=announced,
            )
        if self._table.nfree:
            start = self._table.used_stop
            stop = start + OFFSET_LENGTH * self._table.nfree
            if not is_filled(inspection.storage, start, stop, b"\xff"):
                self.findings.add(
                    "offsets",
                    "free-entry",
                    "expected free entries to be -1",
                    offset=start,
                    extent=(start, stop),
                )

    def _place_of(self, first: int, stop: int) -> dict[str, int | Pair | None]:
        """Return number, span and rows of chunks, as arguments of a finding."""
        span = self.geometry.span(first, stop)
        return {"chunk": first, "span": span, "rows": self.geometry.rows(span)}

    # Between the intact chunks

    def _check_gap(
        self,
        first: int,
        stop: int,
        start: int,
        end: int,
        damaged: Sequence[DamagedChunk],
    ) -> None:
        """Report chunks [first, stop), lost between the bytes `start` and `end`."""
        nothing_lost = first >= stop
        for chunk in damaged:
            if first >= stop:
                break
            self._report_damaged_chunk(first, chunk, end)
            first += 1
            if chunk.stop is not None:  # the missing chunks begin behind it
                start = max(start, min(chunk.stop, end))
        if first < stop:
            several = "chunks %d to %d are" % (first, stop - 1)
            one = "chunk %d is" % first
            self.findings.add(
                "chunks",
                "missing",
                "%s missing" % (several if stop - first > 1 else one),
                offset=start,
                extent=(start, max(start, end)),
                **self._place_of(first, stop),
            )
        elif nothing_lost and end > start:
            self.findings.add(
                "chunks",
                "gap",
                "'%d' bytes belong to no chunk" % (end - start),
                offset=start,
                extent=(start, end),
            )

    def _report_damaged_chunk(self, number: int, chunk: DamagedChunk, end: int) -> None:
        stop = min(end if chunk.stop is None else chunk.stop, max(end, chunk.start))
        self.findings.add(
            "chunks",
            _kind(chunk.error, self.inspection.storage.size, chunk.stop),
            "damaged" if chunk.error is None else chunk.error.message,
            offset=chunk.start,
            extent=(chunk.start, stop),
            **self._place_of(number, number + 1),
        )

    def _check_end(
        self, number: int, end: int, damaged: Sequence[DamagedChunk]
    ) -> None:
        """Report the bytes behind the last intact chunk, which ends at `end`."""
        inspection = self.inspection
        size, nchunks = inspection.storage.size, self.geometry.nchunks
        header = self._header
        if nchunks == 0 and header is not None and header.last_chunk > 0:
            self.findings.add(
                "chunks",
                "missing",
                "expected a last chunk of '%d' plain bytes, found none"
                % header.last_chunk,
                offset=end,
                extent=(end, size),
                span=(0, header.last_chunk),
            )
        if number < nchunks or inspection.evidence.nchunks is None:
            self._check_gap(number, nchunks, end, size, damaged)
        elif end < size:
            kind, why = "trailing", ""
            if inspection.storage.read_at(end, len(MAGIC)) == MAGIC:
                kind = ANOTHER
                why = ": another packed file begins there, and is not read"
            elif header is not None and header.format_version == 3 and header.offsets:
                why = (
                    ": releases up to 0.16.0 left the end of a longer last chunk there"
                )
            self.findings.note(
                "chunks",
                kind,
                "'%d' bytes lie behind the last chunk%s" % (size - end, why),
                offset=end,
                extent=(end, size),
            )

    # Intact chunks

    def _check_sizes(self, first: int, chain: Chain) -> None:
        """Compare the plain sizes of the chunks with the header."""
        header = self._header
        if header is None or header.format_version < 2:
            return
        nchunks = self.geometry.nchunks
        for last in (False, True):
            expected = header.last_chunk if last else header.chunk_size
            stop = len(chain) if last else min(len(chain), nchunks - 1 - first)
            start = max(0, nchunks - 1 - first) if last else 0
            sizes = chain.sizes[start:stop]
            unknown = header.nchunks == expected == -1
            if unknown and last and header.chunk_size != -1 and sizes:
                expected = min(header.chunk_size, sizes[0])
            if expected == -1 or sizes.count(expected) == len(sizes):
                continue
            wrong = [i for i, size in enumerate(sizes, start) if size != expected]
            self._report_sizes(first, chain, wrong, expected)

    def _report_sizes(
        self, first: int, chain: Chain, wrong: list[int], expected: int
    ) -> None:
        i = wrong[0]
        found = chain.sizes[i]
        message = "expected a chunk of '%d' plain bytes, found '%d'" % (expected, found)
        if len(wrong) > 1:
            message += "; '%d' more are not as expected" % (len(wrong) - 1)
        kind = "size"
        described = self.geometry.array
        itemsize = described.dtype.itemsize if described else 0
        if itemsize and found == expected - expected % itemsize != expected:
            kind = "lossy-writer"
            message += (
                ": releases 0.4.0 to 0.7.1 lost the last '%d' bytes of each full chunk "
                "where the item size, here '%d', does not divide the chunk size"
                % (expected % itemsize, itemsize)
            )
        self.findings.add(
            "chunks",
            kind,
            message,
            offset=chain.offsets[i],
            extent=(chain.offsets[i], chain.stop_of(i)),
            **self._place_of(first + i, first + i + 1),
        )

    def _check_offsets(self, first: int, chain: Chain) -> None:
        """Compare the offset table with the offsets of the chunks."""
        entries = array("q", self._table.entries[first : first + len(chain)])
        found = chain.offsets[: len(entries)]
        if entries == found:
            return
        if entries.count(FREE) == len(entries):
            self._report_entry(
                first, "unfilled", "the writer did not finish: it left the table empty"
            )
            return
        distances = {at - entry for at, entry in zip(found, entries, strict=True)}
        if len(distances) == 1 and len(entries) > 1:
            (distance,) = distances
            self._report_entry(
                first,
                "moved",
                "the chunks from %d to %d start '%d' bytes %s where the offset table "
                "says"
                % (
                    first,
                    first + len(found) - 1,
                    abs(distance),
                    "behind" if distance > 0 else "in front of",
                ),
            )
            return
        for i, (offset, entry) in enumerate(zip(found, entries, strict=True), first):
            if offset != entry:
                self._report_entry(
                    i,
                    "offset",
                    "the offset table says that chunk %d starts at byte %d, but it "
                    "starts at byte %d" % (i, entry, offset),
                )

    def _report_entry(self, i: int, kind: str, message: str) -> None:
        at = self._table.start + OFFSET_LENGTH * i
        self.findings.add(
            "offsets",
            kind,
            message,
            chunk=i,
            offset=at,
            extent=(at, at + OFFSET_LENGTH),
        )

    # The whole file

    def _check_search(self) -> None:
        """Report chunks that were not checked, and numbers that are not certain."""
        inspection = self.inspection
        missing = inspection.missing_codec
        if missing is not None:
            self.findings.add(
                "chunks",
                "codec",
                missing.message + ": only digests were checked",
                offset=missing.offset,
            )
        if inspection.skipped_at is not None:
            self.findings.add(
                "chunks",
                "search",
                "too many bytes look like chunks: some large chunks were not searched "
                "for",
                offset=inspection.skipped_at,
            )
        if inspection.proof.numbers:
            self.findings.note(
                "chunks",
                "guess",
                "the numbers of some chunks, or the number of chunks, are not certain: "
                "they follow from the bytes between chunks or from the header alone",
                **self._place_of_guess(),
            )

    def _place_of_guess(self) -> dict[str, int | Pair | None]:
        """Return the place of the first chunk with a guessed number."""
        guessed, chains = (
            self.inspection.proof.first_guessed,
            self.inspection.numbering.chains,
        )
        if guessed is None:
            return {"offset": chains[-1].stop} if chains else {}
        number = guessed.number
        offset = guessed.piece.chain.start
        return {"offset": offset, **self._place_of(number, number + 1)}

    def _check_as_reader(self) -> None:
        """Report why readers refuse the file, although all its chunks are intact.

        They find the first chunk by the sizes in front of it alone, and check that the
        last one is the last.
        """
        cursor = Cursor(StorageFile(self.inspection.storage))
        try:
            header = read_beginning(cursor).header
            chains = self.inspection.numbering.chains if header.nchunks else ()
            if chains and chains[0].start != cursor.position:
                raise FormatError(
                    "the first chunk should start at byte %d, but it starts at byte %d"
                    % (cursor.position, chains[0].start),
                    section="header",
                    offset=cursor.position,
                )
            if chains:
                stop = chains[-1].stop
                cursor.skip(stop - cursor.position, "chunks", "chunks")
            if header.nchunks != -1:
                check_end(cursor, header)
        except FormatError as error:
            section = error.section or "chunks"
            self.findings.add(section, "reader", error.message, offset=error.offset)

    def _check_array(self) -> None:
        described, nbytes = self.geometry.array, self.geometry.nbytes
        if described is not None and nbytes not in (None, described.nbytes):
            self._report_array(described, nbytes or 0)

    def _report_array(self, described: Description, nbytes: int) -> None:
        message = (
            "an array of shape %s and dtype '%s' has '%d' bytes, but the chunks hold "
            "'%d'" % (described.shape, described.dtype, described.nbytes, nbytes)
        )
        numbering, kind = self.inspection.numbering, "array"
        all_there = (
            numbering.nfound == numbering.nchunks and not self.inspection.proof.numbers
        )
        if nbytes < described.nbytes and all_there:
            message += (
                ": releases 0.4.0 to 0.7.1 and 0.11.0 to 0.14.0 lost bytes of arrays "
                "whose item size does not divide the chunk size, and 0.7.0 where the "
                "type size asked for was not the item size"
            )
            kind = "lossy-writer"
        if nbytes > described.nbytes:
            message += ": appending with releases up to 0.16.0 left the shape unchanged"
        self.findings.add("metadata", kind, message, offset=BLOSCPACK_HEADER_LENGTH)


def _kind(error: FormatError | None, size: int, stop: int | None) -> str:
    """Return the kind of a finding about a damaged chunk."""
    if stop is not None and stop > size:
        return "truncated"
    if isinstance(error, ChecksumMismatch):
        return "digest"
    if isinstance(error, NotReadable):
        return "codec"
    return "chunk-header" if stop is None else "content"
