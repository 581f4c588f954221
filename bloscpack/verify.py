"""Verify: every check that the format allows, each failure as a finding.

The sections are read by `Inspection`, which also finds the chunks; here the chunks are
compared with what header, offset table and array say of them. Damage never raises: only
what is no Bloscpack file, or can't be read at all, does.
"""

from __future__ import annotations

import os
from array import array

from .abstract_io import effective_nthreads
from .chunks import own_settings
from .constants import OFFSET_LENGTH
from .exceptions import (
    ChecksumMismatch,
    FormatError,
    NotReadable,
)
from .findings import Finding, Report
from .inspection import Inspection
from .offsets import FREE
from .salvage import Content, seekable
from .steady import read_steadily

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .arrays import Description
    from .findings import Pair
    from .ranges import Path
    from .salvage import Broken, Chain

__all__ = ["Finding", "Report", "verify", "verify_fp"]


class Cut:
    """How the plain bytes are cut into chunks, and what array they are.

    ``full`` and ``last`` are the plain sizes of the chunks, None where chunks differ
    or nobody knows.
    """

    def __init__(self, inspection: Inspection) -> None:
        self.nchunks = inspection.places.nchunks
        self.full, self.last = _sizes(inspection)
        self.description = self._describe(inspection)
        if self.last is None and self.full and self.description:
            rest = self.description.nbytes - (self.nchunks - 1) * self.full
            self.last = rest if 0 < rest <= self.full else None
        shape = self.description.shape if self.description else ()
        self.row = 0
        if self.description and shape:
            nrows = max(shape[0], 1)
            in_c_order = self.description.order == "C" or len(shape) == 1
            self.row = self.description.nbytes // nrows if in_c_order else 0

    @staticmethod
    def _describe(inspection: Inspection) -> Description | None:
        metadata = inspection.metadata
        if not isinstance(metadata, dict) or metadata.get("container") != "numpy":
            return None
        from .arrays import Description  # NumPy takes long to import

        try:
            return Description(metadata)
        except FormatError as error:
            inspection.findings.add("metadata", "array", error.message)
            return None

    def expected(self, i: int) -> int | None:
        """Return the plain bytes that chunk `i` should have, None if unknown."""
        return self.last if i == self.nchunks - 1 else self.full

    @property
    def nbytes(self) -> int | None:
        """The plain bytes of all chunks, None if nobody can tell."""
        if self.nchunks == 0:
            return 0
        if self.last is None or (self.full is None and self.nchunks > 1):
            return None
        return (self.nchunks - 1) * (self.full or 0) + self.last

    def span(self, first: int, stop: int) -> Pair | None:
        """Return the plain bytes of the chunks from `first` up to `stop`."""
        if first and self.full is None:
            return None
        size = self.expected(stop - 1)
        if size is None or (stop - first > 1 and self.full is None):
            return None
        full = self.full or 0
        return first * full, (stop - 1) * full + size

    def rows(self, span: Pair | None) -> Pair | None:
        """Return the rows of the array that a span touches."""
        if span is None or not self.row or self.description is None:
            return None
        start, stop = span
        nrows = self.description.shape[0]
        return min(start // self.row, nrows), min(-(-stop // self.row), nrows)


def _sizes(inspection: Inspection) -> tuple[int | None, int | None]:
    """Return the plain sizes of all chunks but the last, and of that."""
    header, places = inspection.header, inspection.places
    chains = inspection.survey.chains
    last_found = None
    if chains and places.numbers[-1] + len(chains[-1]) == places.nchunks:
        last_found = chains[-1].sizes[-1]
    # What most of the first chunks have, should the header be wrong.
    some = [size for chain in chains for size in chain.sizes[:100]][:100]
    if last_found is not None and len(some) == sum(map(len, chains)):
        some.pop()
    usual = max(set(some), key=some.count) if some else None
    full = last = -1
    if header is not None and header.format_version >= 2:
        full, last = header.chunk_size, header.last_chunk
        if places.nchunks != header.nchunks != -1 and usual is not None:
            last = -1
        if full not in some and usual is not None and places.nchunks > 1:
            full = usual
    if full == -1 and usual is not None:
        full = usual
        sizes = [size for chain in chains for size in chain.sizes]
        if last_found is not None:
            sizes.pop()
        if any(size != full for size in sizes):
            return None, last_found
    if last == -1:
        return (None if full == -1 else full), last_found
    return (None if full == -1 else full), last


def verify_fp(fp: Any, *, nthreads: int | None = None) -> Report:
    """Check a file of any layout in a file object, from where it stands.

    All is read once: sections, offset table, every chunk with its digest, and what
    lies in between; each chunk is also decompressed. Where a chunk is damaged, checking
    goes on at the next one that is not. The file object is left at its end. What can't
    seek, like a pipe, is copied to a temporary file first.

    Raises `NotReadable` for what is no Bloscpack file or has a layout nobody knows.
    """
    count = effective_nthreads(nthreads, None)
    with seekable(fp) as copy, own_settings:
        inspection = Inspection(Content(copy), count)
        report = report_on(inspection)
        copy.seek(0, os.SEEK_END)
    return report


def verify(path: Path, *, nthreads: int | None = None) -> Report:
    """Check the file `path`; see `verify_fp`.

    If something is being appended to it, or an append was broken off, what was there
    before is checked.
    """

    def read(fp: Any, check: Any) -> Report:
        return verify_fp(fp, nthreads=nthreads)

    report = read_steadily(path, read)
    report.filename = os.fspath(path)
    return report


def report_on(inspection: Inspection) -> Report:
    """Return what there is to say of a file."""
    checker = _Checker(inspection)
    checker.check()
    header = inspection.header
    chains = inspection.survey.chains
    return Report(
        inspection.findings,
        nchunks=inspection.places.nchunks,
        nintact=sum(len(chain) - len(chain.bad) for chain in chains),
        nbytes=checker.cut.nbytes,
        cbytes=inspection.content.size,
        layout=None if header is None else header.format_version,
        checksum=inspection.checksum.name,
    )


class _Checker:
    """Compares the chunks with everything else that the file says."""

    def __init__(self, inspection: Inspection) -> None:
        self.inspection = inspection
        self.findings = inspection.findings
        self.cut = Cut(inspection)
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
        broken = list(inspection.survey.broken)
        for first, chain in zip(places.numbers, chains, strict=True):
            here = [b for b in broken if b.start < chain.start]
            broken = broken[len(here) :]
            self._check_gap(number, first, end, chain.start, here)
            self._check_chain(first, chain)
            number, end = first + len(chain), chain.stop
        self._check_end(number, end, broken)
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
            head = inspection.content.read(survey.chains[0].start, 4)
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
        span = self.cut.span(first, stop)
        return {"chunk": first, "span": span, "rows": self.cut.rows(span)}

    # Where there are no good chunks

    def _check_gap(
        self, first: int, stop: int, start: int, end: int, broken: Sequence[Broken]
    ) -> None:
        """Tell of the chunks from `first` up to `stop`, lost from `start` to `end`."""
        nothing_lost = first >= stop
        for place in broken:
            if first >= stop:
                break
            self._tell_broken(first, place, end)
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

    def _tell_broken(self, number: int, place: Broken, end: int) -> None:
        stop = min(end if place.stop is None else place.stop, max(end, place.start))
        self.findings.add(
            "chunks",
            _kind(place.error, self.inspection.content.size, place.stop),
            "damaged" if place.error is None else place.error.message,
            offset=place.start,
            extent=(place.start, stop),
            **self._touched(number, number + 1),
        )

    def _check_end(self, number: int, end: int, broken: Sequence[Broken]) -> None:
        """Tell of what lies behind the last good chunk, which ends at `end`."""
        inspection = self.inspection
        size, nchunks = inspection.content.size, inspection.places.nchunks
        if number < nchunks or inspection.known.nchunks is None:
            self._check_gap(number, nchunks, end, size, broken)
        elif end < size:
            why = ""
            header = inspection.header
            if header is not None and header.format_version == 3 and header.offsets:
                why = (
                    ": releases up to 0.16.0 left the end of a longer last chunk there"
                )
            self.findings.note(
                "chunks",
                "trailing",
                "'%d' bytes lie behind the last chunk%s" % (size - end, why),
                offset=end,
                extent=(end, size),
            )

    # Where there are

    def _check_chain(self, first: int, chain: Chain) -> None:
        for i, error in sorted(chain.bad.items()):
            stop = chain.stop_of(i)
            self.findings.add(
                "chunks",
                _kind(error, self.inspection.content.size, stop),
                "damaged" if error is None else error.message,
                offset=chain.offsets[i],
                extent=(chain.offsets[i], stop),
                **self._touched(first + i, first + i + 1),
            )
        self._check_sizes(first, chain)
        self._check_offsets(first, chain)

    def _check_sizes(self, first: int, chain: Chain) -> None:
        """Compare the plain sizes of the chunks with the header."""
        header = self.inspection.header
        if header is None or header.format_version < 2:
            return
        nchunks = self.cut.nchunks
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
            self._tell_sizes(first, chain, wrong, expected)

    def _tell_sizes(
        self, first: int, chain: Chain, wrong: list[int], expected: int
    ) -> None:
        i = wrong[0]
        found = chain.sizes[i]
        message = "expected a chunk of '%d' plain bytes, found '%d'" % (expected, found)
        if len(wrong) > 1:
            message += "; '%d' more are not as expected" % (len(wrong) - 1)
        kind = "size"
        description = self.cut.description
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
            chunk=first + i,
            offset=chain.offsets[i],
            extent=(chain.offsets[i], chain.stop_of(i)),
        )

    def _check_offsets(self, first: int, chain: Chain) -> None:
        """Compare the offset table with where the chunks are."""
        entries = array("q", self._table[first : first + len(chain)])
        found = chain.offsets[: len(entries)]
        if entries == found:
            return
        if entries.count(FREE) == len(entries):
            self._tell_entry(
                first, "unfilled", "the writer did not finish: it left the table empty"
            )
            return
        moved = {place - entry for place, entry in zip(found, entries, strict=True)}
        if len(moved) == 1 and len(entries) > 1:
            (distance,) = moved
            self._tell_entry(
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
                self._tell_entry(
                    i,
                    "offset",
                    "the offset table says that chunk %d starts at byte %d, but it "
                    "starts at byte %d" % (i, entry, place),
                )

    def _tell_entry(self, i: int, kind: str, message: str) -> None:
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
                "chunks", "codec", unread.message + ": only digests were checked"
            )
        if survey.gave_up:
            self.findings.add(
                "chunks",
                "search",
                "there are too many places that look like chunks: some large ones "
                "were not tried",
            )
        if not places.certain:
            self.findings.note(
                "chunks",
                "guess",
                "the numbers of some chunks, or how many there were, are guessed from "
                "the bytes between them",
            )
        description, nbytes = self.cut.description, self.cut.nbytes
        whole = sum(map(len, survey.chains)) == places.nchunks
        if whole and description is not None:
            nbytes = sum(sum(chain.sizes) for chain in survey.chains)
        if description is not None and nbytes not in (None, description.nbytes):
            self._tell_array(description, nbytes or 0)

    def _tell_array(self, description: Description, nbytes: int) -> None:
        message = (
            "an array of shape %s and dtype '%s' has '%d' bytes, but the chunks hold "
            "'%d'" % (description.shape, description.dtype, description.nbytes, nbytes)
        )
        if nbytes < description.nbytes:
            message += (
                ": releases 0.4.0 to 0.7.1 and 0.11.0 to 0.14.0 lost bytes of arrays "
                "whose item size does not divide the chunk size, and 0.7.0 where the "
                "type size asked for was not the item size"
            )
            kind = "lossy-writer"
        else:
            message += ": appending with releases up to 0.16.0 left the shape as it was"
            kind = "array"
        self.findings.add("metadata", kind, message)


def _kind(error: FormatError | None, size: int, stop: int | None) -> str:
    """Return the kind of damage: in the header, the digest or the rest of a chunk."""
    if stop is not None and stop > size:
        return "truncated"
    if isinstance(error, ChecksumMismatch):
        return "digest"
    if isinstance(error, NotReadable):
        return "codec"
    return "chunk-header" if stop is None else "content"
