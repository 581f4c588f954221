"""Checks: what was found in a file, compared with all that it says, as findings.

The sections are read by `Inspection`, which also finds the chunks; here these are
compared with header, offset table and array. Damage never raises.
"""

from __future__ import annotations

from array import array

from .._format.offsets import FREE
from ..constants import BLOSCPACK_HEADER_LENGTH, MAGIC, OFFSET_LENGTH
from ..exceptions import ChecksumMismatch, FormatError, NotReadable
from .findings import ANOTHER, Report
from .geometry import ChunkGeometry

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .._format.array_metadata import Description
    from .inspection import Inspection
    from .scan import Chain, DamagedChunk


def report_on(inspection: Inspection) -> Report:
    """Return what there is to say of a file."""
    checker = Checker(inspection)
    checker.check()
    header = inspection.header
    chains = inspection.survey.chains
    return Report(
        inspection.findings,
        nchunks=inspection.places.nchunks,
        nintact=sum(map(len, chains)),
        nbytes=checker.geometry.nbytes,
        cbytes=inspection.storage.size,
        layout=None if header is None else header.format_version,
        checksum=inspection.checksum.name,
    )


class Checker:
    """Compares the chunks with everything else that the file says."""

    def __init__(self, inspection: Inspection) -> None:
        self.inspection = inspection
        self.findings = inspection.findings
        self.geometry = ChunkGeometry(inspection)
        self._table = inspection.table

    def check(self) -> None:
        inspection = self.inspection
        places, chains = inspection.places, inspection.survey.chains
        self._check_sections()
        end = inspection.first
        if end is None:
            # Sections that are lost have been told of.
            known_from = chains and places.numbers[0] == 0
            end = chains[0].start if known_from else inspection.base
        number = 0
        damaged, told = inspection.damaged, 0
        for first, chain in zip(places.numbers, chains, strict=True):
            here = told
            while told < len(damaged) and damaged[told].start < chain.start:
                told += 1
            self._check_gap(number, first, end, chain.start, damaged[here:told])
            self._check_chain(first, chain)
            number, end = first + len(chain), chain.stop
        self._check_end(number, end, damaged[told:])
        self._check_rest()

    def _check_sections(self) -> None:
        """Compare the header with the chunks that were found."""
        inspection, header = self.inspection, self.inspection.header
        nchunks, survey = inspection.places.nchunks, inspection.survey
        if header is not None and header.nchunks not in (-1, nchunks):
            self.findings.add(
                "header",
                "nchunks",
                "expected '%d' chunks, which are there or in the offset table, found "
                "'%d'" % (nchunks, header.nchunks),
                offset=16 if header.format_version >= 2 else 8,
            )
        if header is not None and header.format_version >= 2 and survey.chains:
            head = inspection.storage.read_at(survey.chains[0].start, 4)
            if head[3] != header.typesize:
                self.findings.note(
                    "header",
                    "typesize",
                    "the first chunk has the type size '%d', but the header '%d'"
                    % (head[3], header.typesize),
                    offset=7,
                )
        first, announced = inspection.first, inspection.announced
        if None not in (first, announced) and first != announced:
            self.findings.add(
                "header",
                "sections",
                "the sections in front of the chunks should end at byte %d, but they "
                "end at byte %d" % (announced or 0, first or 0),
                offset=announced,
            )
        if inspection.free:
            start = inspection.table_at + OFFSET_LENGTH * len(self._table)
            stop = start + OFFSET_LENGTH * inspection.free
            if not inspection.is_filled(start, stop, b"\xff"):
                self.findings.add(
                    "offsets",
                    "free-entry",
                    "expected free entries to be -1",
                    offset=start,
                    extent=(start, stop),
                )

    def _touched(self, first: int, stop: int) -> dict[str, Any]:
        span = self.geometry.span(first, stop)
        return {"chunk": first, "span": span, "rows": self.geometry.rows(span)}

    # Where there are no good chunks

    def _check_gap(
        self,
        first: int,
        stop: int,
        start: int,
        end: int,
        damaged: Sequence[DamagedChunk],
    ) -> None:
        """Tell of the chunks from `first` up to `stop`, lost from `start` to `end`."""
        nothing_lost = first >= stop
        for place in damaged:
            if first >= stop:
                break
            self._report_damaged_chunk(first, place, end)
            first += 1
        if first < stop:
            several = "chunks %d to %d are" % (first, stop - 1)
            one = "chunk %d is" % first
            self.findings.add(
                "chunks",
                "missing",
                "%s not there" % (several if stop - first > 1 else one),
                offset=start,
                extent=(start, max(start, end)),
                **self._touched(first, stop),
            )
        elif nothing_lost and end > start:
            self.findings.add(
                "chunks",
                "gap",
                "'%d' bytes belong to no chunk" % (end - start),
                offset=start,
                extent=(start, end),
            )

    def _report_damaged_chunk(self, number: int, place: DamagedChunk, end: int) -> None:
        stop = min(end if place.stop is None else place.stop, max(end, place.start))
        self.findings.add(
            "chunks",
            _kind(place.error, self.inspection.storage.size, place.stop),
            "damaged" if place.error is None else place.error.message,
            offset=place.start,
            extent=(place.start, stop),
            **self._touched(number, number + 1),
        )

    def _check_end(
        self, number: int, end: int, damaged: Sequence[DamagedChunk]
    ) -> None:
        """Tell of what lies behind the last good chunk, which ends at `end`."""
        inspection = self.inspection
        size, nchunks = inspection.storage.size, inspection.places.nchunks
        header = inspection.header
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
            if self.inspection.storage.read_at(end, len(MAGIC)) == MAGIC:
                kind = ANOTHER
                why = ": another packed file begins there, which nobody reads"
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

    # Where there are

    def _check_chain(self, first: int, chain: Chain) -> None:
        self._check_sizes(first, chain)
        self._check_offsets(first, chain)

    def _check_sizes(self, first: int, chain: Chain) -> None:
        """Compare the plain sizes of the chunks with the header."""
        header = self.inspection.header
        if header is None or header.format_version < 2:
            return
        nchunks = self.geometry.nchunks
        for last in (False, True):
            expected = header.last_chunk if last else header.chunk_size
            stop = len(chain) if last else min(len(chain), nchunks - 1 - first)
            start = max(0, nchunks - 1 - first) if last else 0
            sizes = chain.sizes[start:stop]
            if expected == -1 and last and header.chunk_size != -1 and sizes:
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
        description = self.geometry.description
        itemsize = description.dtype.itemsize if description else 0
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
            **self._touched(first + i, first + i + 1),
        )

    def _check_offsets(self, first: int, chain: Chain) -> None:
        """Compare the offset table with where the chunks are."""
        entries = array("q", self._table[first : first + len(chain)])
        found = chain.offsets[: len(entries)]
        if entries == found:
            return
        if entries.count(FREE) == len(entries):
            self._report_entry(
                first, "unfilled", "the writer did not finish: it left the table empty"
            )
            return
        moved = {place - entry for place, entry in zip(found, entries, strict=True)}
        if len(moved) == 1 and len(entries) > 1:
            (distance,) = moved
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
        for i, (place, entry) in enumerate(zip(found, entries, strict=True), first):
            if place != entry:
                self._report_entry(
                    i,
                    "offset",
                    "the offset table says that chunk %d starts at byte %d, but it "
                    "starts at byte %d" % (i, entry, place),
                )

    def _report_entry(self, i: int, kind: str, message: str) -> None:
        at = self.inspection.table_at + OFFSET_LENGTH * i
        self.findings.add(
            "offsets",
            kind,
            message,
            chunk=i,
            offset=at,
            extent=(at, at + OFFSET_LENGTH),
        )

    # All together

    def _check_rest(self) -> None:
        survey, places = self.inspection.survey, self.inspection.places
        unread = survey.examiner.unread
        if unread is not None:
            self.findings.note(
                "chunks",
                "codec",
                unread.message + ": only digests were checked",
                offset=unread.offset,
            )
        if survey.gave_up is not None:
            self.findings.add(
                "chunks",
                "search",
                "there are too many places that look like chunks: some large ones "
                "were not tried",
                offset=survey.gave_up,
            )
        if not places.certain:
            self.findings.note(
                "chunks",
                "guess",
                "the numbers of some chunks, or how many there were, are guessed from "
                "the bytes between them, or told by the header alone",
                **self._guessed(),
            )
        description, nbytes = self.geometry.description, self.geometry.nbytes
        whole = sum(map(len, survey.chains)) == places.nchunks
        if whole and description is not None:
            nbytes = sum(sum(chain.sizes) for chain in survey.chains)
        if description is not None and nbytes not in (None, description.nbytes):
            self._report_array(description, nbytes or 0)

    def _guessed(self) -> dict[str, Any]:
        """Return where the first chunk is whose number is guessed."""
        places, chains = self.inspection.places, self.inspection.survey.chains
        if places.unsure is None:
            return {"offset": chains[-1].stop} if chains else {}
        start = chains[places.unsure].start
        number = places.numbers[places.unsure]
        return {"offset": start, **self._touched(number, number + 1)}

    def _report_array(self, description: Description, nbytes: int) -> None:
        message = (
            "an array of shape %s and dtype '%s' has '%d' bytes, but the chunks hold "
            "'%d'" % (description.shape, description.dtype, description.nbytes, nbytes)
        )
        chains, places = self.inspection.survey.chains, self.inspection.places
        all_there = sum(map(len, chains)) == places.nchunks and places.certain
        if nbytes < description.nbytes and all_there:
            message += (
                ": releases 0.4.0 to 0.7.1 and 0.11.0 to 0.14.0 lost bytes of arrays "
                "whose item size does not divide the chunk size, and 0.7.0 where the "
                "type size asked for was not the item size"
            )
            kind = "lossy-writer"
        else:
            kind = "array"
        if nbytes > description.nbytes:
            message += ": appending with releases up to 0.16.0 left the shape as it was"
        start = BLOSCPACK_HEADER_LENGTH
        self.findings.add("metadata", kind, message, offset=start)


def _kind(error: FormatError | None, size: int, stop: int | None) -> str:
    """Return the kind of damage: in the header, the digest or the rest of a chunk."""
    if stop is not None and stop > size:
        return "truncated"
    if isinstance(error, ChecksumMismatch):
        return "digest"
    if isinstance(error, NotReadable):
        return "codec"
    return "chunk-header" if stop is None else "content"
