"""Inspect a file: find its intact chunks, number them, and report what is wrong.

Damage becomes findings and never raises. `recover` plans the new file from an
`Inspection`, too.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import groupby, pairwise

from .._commit.undo import EXTENT, HEAD, MAX_EXTENTS, OPTIONS, settled
from .._engine.forks import cached_property
from .._format.append_plan import is_left_over
from .._format.array_metadata import Description
from .._format.blosc_header import decode_header
from .._format.chunks import Frame, frames_of
from .._format.other_formats import PREFIX_LENGTH, ZIP, is_of_other_format
from .._format.sections import FREE, read_beginning
from .._storage.base import PartStorage, Storage
from .._storage.cursor import StorageCursor
from .._storage.zip_store import Directory
from ..abstract_io import Progress
from ..constants import (
    BLOSC_HEADER_LENGTH,
    BLOSCPACK_HEADER_LENGTH,
    MAGIC,
    OFFSET_LENGTH,
    RECORD_MAGIC,
)
from ..exceptions import ChecksumMismatch, FormatError
from ..headers import FIELD_OFFSETS, BloscpackHeader
from ..serializers import is_array, user_metadata
from .evidence import gather, with_known_entries
from .findings import ANOTHER, TRAILING, Report
from .lenient_sections import (
    Sections,
    find_header,
    find_metadata,
    is_filled,
    read_sections,
)
from .note import told
from .numbering import Numbering, drop_nested_chunks, in_order, measure, number_chunks
from .proof import Proof, prove
from .scan import Chain, DamagedChunk, scan_file
from .trailer import check_trailer, end_before_append, without_trailer

# Maximum number of findings about single wrong entries, for adjacent chunks.
ENTRIES_KEPT = 20
# Maximum number of bytes of an undo record in front of the old header.
MAX_RECORD_HEAD = HEAD.size + MAX_EXTENTS * EXTENT.size
# Maximum number of damaged chunks examined for a report, which keeps 1000 findings.
MAX_DAMAGED_EXAMINED = 1000


class Inspection:
    """A file, its intact chunks with their numbers, and the report on it.

    The caller enters `own_settings` first. `progress` is called with the plain bytes of
    each intact chunk found. Raises `NotReadable` or `Unsupported` if the storage holds
    no Bloscpack file.

    Attributes
    ----------
    whole, storage
        The file, and the file without the trailer of a shard.
    report
        All findings, and the counts.
    sections, announced_first
        The intact parts of the sections, and the offset of the first chunk by the
        header.
    scan, checksum
        The scan for intact chunks, and the checksum of the digests found.
    evidence, numbering, geometry
        The statements of the file about its chunks, the chains of intact chunks with
        the numbers that follow from these, and the count and the sizes of all chunks.
    damaged
        The first offsets where a chunk should begin but no intact one does.
    """

    def __init__(
        self, storage: Storage, nthreads: int, progress: Progress | None = None
    ) -> None:
        self.report = report = Report(cbytes=storage.size)
        try:
            undone = settled(storage)
            if undone is not storage:
                message = (
                    "a change of the file was interrupted, or is in progress: the "
                    "state before it is checked, and the next writer restores it"
                )
                report.note("header", "interrupted", message, offset=OPTIONS)
            storage = undone
            report.cbytes = storage.size
        except FormatError as error:
            report.add("header", "undo-record", error.message, offset=OPTIONS)
        self.whole = self._all = storage
        sections = read_sections(storage, report)
        if sections.unreadable is not None and (
            is_of_other_format(storage.read_at(0, PREFIX_LENGTH)) or _is_zip(storage)
        ):
            raise sections.unreadable
        self.storage = storage = without_trailer(storage, sections)
        self.announced_first = sections.first
        self.scan = scan = scan_file(storage, sections, nthreads, progress)
        self.checksum = scan.checksum
        end = end_before_append(self.whole, storage.size, sections)
        end = end or _end_before_append(storage, sections, scan.chains)
        if end is not None:
            size = self.whole.size
            message = (
                "'%d' bytes lie behind the last chunk, of an append that was "
                "interrupted, or is in progress" % (size - end)
            )
            report.note("chunks", "left-over", message, extent=(end, size))
            self.whole = PartStorage(self.whole, 0, end)
            self.storage = storage = PartStorage(storage, 0, min(end, storage.size))
            scan.chains = [chain for chain in scan.chains if chain.stop <= end]
        if sections.header is not None:
            self._check_checksum(sections.header)
        if sections.unreadable is not None and not scan.chains:
            raise sections.unreadable
        if scan.chains and sections.first != scan.chains[0].start:
            sections = find_metadata(storage, sections, report)
        self.sections = with_known_entries(storage, sections, scan.chains)
        described = self._describe_array()
        self.evidence = gather(storage, self.sections, scan, described)
        numbering = in_order(scan.chains, self.evidence)
        self._is_in_order = numbering is not None
        self.numbering = numbering or self._number_chunks()
        self.geometry = measure(self.numbering, self.sections, self.evidence, described)
        self.damaged = [] if self._is_in_order else self._examine_damaged()
        self._check()

    def _check_checksum(self, header: BloscpackHeader) -> None:
        used, stated = self.checksum, header.checksum_impl
        # The headers of versions 0 and 1 do not state a checksum.
        offset = FIELD_OFFSETS[header.format_version].get("checksum", len(MAGIC))
        if used is not stated:
            why = "by the digests" if used.size else "as there are no digests"
            message = "expected the checksum '%s', %s, found '%s'"
            message %= used.name, why, stated.name
            self.report.add("header", "checksum", message, offset=offset)
        if not used.size:
            message = "there are no digests: damage is found only where Blosc fails"
            offset = offset if header.format_version >= 2 else 0
            self.report.note("header", "no-checksum", message, offset=offset)

    def _describe_array(self) -> Description | None:
        """Return the array that the metadata describe, None if they describe none."""
        metadata = self.sections.metadata
        recovered = told(user_metadata(metadata.value)) if metadata else ""
        if recovered:
            self.report.note("metadata", "recovered", recovered)
        if metadata is None or not is_array(metadata.value):
            return None
        try:
            return Description(metadata.value)
        except FormatError as error:
            self.report.add("metadata", "array", error.message)
            return None

    def _number_chunks(self) -> Numbering:
        """Return the numbers of the chunks of a file that is damaged or unusual."""

        def key_of(start: int, stop: int) -> bytes:
            return sha256(self.storage.read_at(start, stop - start)).digest()

        scan, evidence = self.scan, self.evidence
        remaining = drop_nested_chunks(scan.chains, evidence, scan.damaged_chunks)
        return number_chunks(remaining[0], evidence, key_of, doubtful=remaining[1])

    def _extents_between(self, size: int) -> Iterator[tuple[int | None, int]]:
        """Yield the extent in front of each chain, and the one behind the last.

        The first one begins at None if the end of the sections is unknown, and the last
        one ends at `size`.
        """
        chains = self.numbering.chains
        stops = [self.sections.first, *(chain.stop for chain in chains)]
        return zip(stops, [*(chain.start for chain in chains), size], strict=True)

    def _examine_damaged(self) -> list[DamagedChunk]:
        """Return the damaged chunks between the chains, each with its problem."""
        examined: list[DamagedChunk] = []
        for start, stop in self._extents_between(self.storage.size):
            room = MAX_DAMAGED_EXAMINED - len(examined)
            if room and start is not None and start < stop:
                damaged = self.scan.damaged_chunks(start, stop)[:room]
                examined += map(self.scan.diagnosed, damaged)
        return examined

    @cached_property
    def proof(self) -> Proof:
        """The doubts about all of this."""
        return prove(self)

    def intact_chunks(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield number, offset, plain size and compressed size of the intact chunks."""
        for piece in self.numbering.placed:
            chain = piece.chain
            for i, offset in enumerate(chain.offsets):
                cbytes = chain.extent_of(i) - self.checksum.size
                yield piece.number + i, offset, chain.sizes[i], cbytes

    def find_second_file(self) -> int | None:
        """Return where a packed file begins between or behind the chunks, if any."""
        for start, stop in self._extents_between(self._all.size):
            # If the end of the sections is unknown, this may be the file's own header.
            second = None if start is None else find_header(self._all, start, stop)
            while second is not None:
                before = max(0, second - MAX_RECORD_HEAD)
                if RECORD_MAGIC not in self._all.read_at(before, second - before):
                    return second
                second = find_header(self._all, second + 1, stop)
        return None

    # The report: all findings, in the order of the file

    def _check(self) -> None:
        """Compare all sections with the chunks found."""
        report, header, numbering = self.report, self.sections.header, self.numbering
        report.nchunks, report.nintact = self.geometry.nchunks, numbering.nfound
        report.nbytes = self.geometry.nbytes
        report.nbytes_intact = sum(sum(chain.sizes) for chain in numbering.chains)
        report.checksum = self.checksum.name
        if header is not None:
            report.format_version = header.format_version
            self._check_header(header)
        self._check_sections()
        self._check_chunks()
        # If all sections agree, there is no doubt about the numbers of the chunks.
        searched = self.scan.skipped_at is not None or self.scan.missing_codec
        if report.findings or searched:
            self._check_search()
        self._check_array()
        check_trailer(self)
        # Readers agree on a file whose only chain is all that the header states.
        if report.ok and header is not None and not self._is_in_order:
            self._check_as_reader()

    def _check_header(self, header: BloscpackHeader) -> None:
        nchunks, fields = self.geometry.nchunks, FIELD_OFFSETS[header.format_version]
        chains = self.numbering.chains
        if header.nchunks not in (-1, nchunks):
            message = "the header states the number of chunks '%d', but the %s has '%d'"
            in_table = nchunks == len(self.sections.table.entries)
            source = "offset table" if in_table else "file"
            message %= header.nchunks, source, nchunks
            self.report.add("header", "nchunks", message, offset=fields["nchunks"])
        if header.format_version < 2 or not chains:
            return
        found = self.scan.header_at(chains[0].start).typesize
        if found != header.typesize:
            message = "the first chunk has the type size '%d', but the header '%d'"
            message %= found, header.typesize
            self.report.note("header", "typesize", message, offset=fields["typesize"])

    def _check_sections(self) -> None:
        """Compare the sections in front of the chunks with the chunks found."""
        table = self.sections.table
        first, announced = self.sections.first, self.announced_first
        if first is not None and announced is not None and first != announced:
            message = (
                "the sections in front of the chunks should end at byte %d, but they "
                "end at byte %d" % (announced, first)
            )
            self.report.add("header", "sections", message, offset=announced)
        start = table.start + OFFSET_LENGTH * len(table.entries)
        stop = start + OFFSET_LENGTH * (table.nfree or 0)
        if not is_filled(self.storage, start, stop, b"\xff"):
            message = "expected free entries to be -1"
            self.report.add("offsets", "free-entry", message, extent=(start, stop))

    # Chunks

    def _check_chunks(self) -> None:
        """Check the intact chunks, and the bytes between them, in the file's order."""
        numbering, chains = self.numbering, self.numbering.chains
        damaged = deque(self.damaged)
        # Chunks are lost between two pieces that follow each other in the file, too.
        before = {b.number: a.stop for a, b in pairwise(numbering.in_order)}
        number, end = 0, self.sections.first
        if end is None:
            # A finding reports the damaged sections; don't report their bytes again.
            known = chains and numbering.placed[0].number == 0
            end = chains[0].start if known else self.sections.base
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
            where = self.geometry.location(first, stop)
            extent = start, max(start, end)
            self.report.add("chunks", "missing", message, extent=extent, **where)

    def _report_damaged_chunk(self, number: int, chunk: DamagedChunk, end: int) -> None:
        stop, kind = chunk.stop, "content"
        if stop is not None and stop > self.storage.size:
            kind = "truncated"
        elif isinstance(chunk.error, ChecksumMismatch):
            kind = "digest"
        elif stop is None:
            kind = "chunk-header"
        stop = min(end if stop is None else stop, max(end, chunk.start))
        message = "damaged" if chunk.error is None else chunk.error.message
        where = self.geometry.location(number, number + 1)
        self.report.add("chunks", kind, message, extent=(chunk.start, stop), **where)

    def _check_end(self, number: int, end: int, damaged: list[DamagedChunk]) -> None:
        """Report the bytes behind the last intact chunk, which ends at `end`."""
        header, size = self.sections.header, self.storage.size
        nchunks = self.geometry.nchunks
        if nchunks == 0 and header is not None and header.last_chunk > 0:
            last = header.last_chunk
            message = "expected a last chunk of '%d' plain bytes, found none" % last
            where = {"extent": (end, size), "span": (0, last)}
            self.report.add("chunks", "missing", message, **where)
        if number < nchunks or self.evidence.nchunks is None:
            self._check_gap(number, nchunks, end, size, damaged)
        elif end < size:
            kind, why = TRAILING, ""
            if self.storage.read_at(end, len(MAGIC)) == MAGIC:
                kind = ANOTHER
                why = ": another packed file begins there"
            elif header is not None and self._is_left_over(header, end):
                kind = "left-over"
                why = ", of an older one, or of an interrupted append"
            message = "'%d' bytes lie behind the last chunk%s" % (size - end, why)
            self.report.note("chunks", kind, message, extent=(end, size))

    def _is_left_over(self, header: BloscpackHeader, end: int) -> bool:
        """Return whether an append has left the bytes behind the last chunk."""
        if not self.numbering.chains:
            return False
        start = self.numbering.chains[-1].offsets[-1]
        cursor = StorageCursor(self.storage)
        cursor.move(start)
        last = Frame(0, start, 0, decode_header(cursor.peek(BLOSC_HEADER_LENGTH)))
        compressed = cursor.read(last.header.ctbytes)
        last.content = compressed, cursor.read(self.checksum.size)
        return is_left_over(cursor, header, last)

    def _check_sizes(self, first: int, chain: Chain) -> None:
        """Compare the plain sizes of the chunks with the header."""
        header = self.sections.header
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
            if expected == -1 or sizes.count(expected) == len(sizes):
                continue
            i, *others = (i for i, n in enumerate(sizes, start) if n != expected)
            found, kind = chain.sizes[i], "size"
            message = "expected a chunk of '%d' plain bytes, found '%d'"
            message %= expected, found
            if others:
                message += "; '%d' more are not as expected" % len(others)
            described = self.geometry.array
            itemsize = described.dtype.itemsize if described else 0
            if itemsize and found == expected - expected % itemsize != expected:
                kind = "lossy-writer"
                message += (
                    ": releases 0.4.0 to 0.7.1 lost the last '%d' bytes of each full "
                    "chunk where the item size, here '%d', does not divide the chunk "
                    "size" % (expected % itemsize, itemsize)
                )
            where = self.geometry.location(first + i, first + i + 1)
            extent = chain.offsets[i], chain.stop_of(i)
            self.report.add("chunks", kind, message, extent=extent, **where)

    def _check_offsets(self, first: int, chain: Chain) -> None:
        """Compare the offset table with the offsets of the chunks."""
        entries = array("q", self.sections.table.entries[first : first + len(chain)])
        true_offsets = chain.offsets[: len(entries)]
        if entries == true_offsets:
            return
        if entries.count(FREE) == len(entries):
            message = "the writer did not finish: it left the table empty"
            self._report_entry(first, "unfilled", message)
            return
        single = []
        number = first
        pairs = zip(true_offsets, entries, strict=True)
        for distance, run in groupby(at - entry for at, entry in pairs):
            count = len(list(run))
            if distance and count > 1:
                side = "behind" if distance > 0 else "in front of"
                message = (
                    "the chunks from %d to %d start '%d' bytes %s where the offset "
                    "table says" % (number, number + count - 1, abs(distance), side)
                )
                self._report_entry(number, "moved", message)
            elif distance:
                single.append(number)
            number += count
        for count, i in enumerate(single[:ENTRIES_KEPT], 1):
            message = (
                "the offset table says that chunk %d starts at byte %d, but it starts "
                "at byte %d" % (i, entries[i - first], true_offsets[i - first])
            )
            more = len(single) - count
            if count == ENTRIES_KEPT and more:  # the last finding is about all others
                others = "; '%d' more entries up to chunk %d are wrong"
                message += others % (more, single[-1])
            self._report_entry(i, "offset", message)

    def _report_entry(self, i: int, kind: str, message: str) -> None:
        at = self.sections.table.start + OFFSET_LENGTH * i
        extent = at, at + OFFSET_LENGTH
        self.report.add("offsets", kind, message, chunk=i, extent=extent)

    # The whole file

    def _check_search(self) -> None:
        """Report chunks that were not checked, and numbers that are not certain."""
        scan, proof = self.scan, self.proof
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
        if proof.numbers and (self.numbering.chains or self.damaged):
            message = (
                "the numbers of some chunks, or the number of chunks, are not certain: "
                "they follow from the bytes between chunks or from the header alone"
            )
            offset, where, guessed = None, {}, proof.first_guessed
            if guessed is not None:
                offset = guessed.chain.start
                where = self.geometry.location(guessed.number, guessed.number + 1)
            elif self.numbering.chains:
                offset = self.numbering.chains[-1].stop
            self.report.note("chunks", "guess", message, offset=offset, **where)

    def _check_array(self) -> None:
        """Compare the array in the metadata with the plain size of all chunks."""
        described, nbytes = self.geometry.array, self.geometry.nbytes
        if described is None or nbytes is None:
            return
        sizes = {self.geometry.size_of(i) for i in (0, self.geometry.nchunks - 1)}
        expected, size = described.stored_nbytes, described.chunk_nbytes
        if nbytes == expected and (not size or sizes <= {size, None}):
            return
        message = described.differs_from(nbytes)
        numbering, kind = self.numbering, "array"
        complete = numbering.nfound == numbering.nchunks
        if size:
            message += " in chunks of '%s'" % "' and '".join(map(str, sizes))
        elif nbytes > expected:
            message += ": appending with releases up to 0.16.0 left the shape unchanged"
        elif complete and not self.proof.numbers:
            message += (
                ": releases 0.4.0 to 0.7.1 and 0.11.0 to 0.14.0 lost bytes of arrays "
                "whose item size does not divide the chunk size, and 0.7.0 where the "
                "type size asked for was not the item size"
            )
            kind = "lossy-writer"
        self.report.add("metadata", kind, message, offset=BLOSCPACK_HEADER_LENGTH)

    def _check_as_reader(self) -> None:
        """Report why readers refuse the file, although all its chunks are intact."""
        cursor = StorageCursor(self.whole)
        try:
            for _ in frames_of(cursor, read_beginning(cursor).header):
                pass
        except FormatError as error:
            section, at = error.section or "chunks", error.offset
            self.report.add(section, "reader", error.message, offset=at)


def _is_zip(storage: Storage) -> bool:
    """Return whether a file is an intact ZIP file of another program."""
    try:
        return storage.read_at(0, len(ZIP)) == ZIP and Directory(storage).shift == 0
    except FormatError:
        return False


def _end_before_append(
    storage: Storage, sections: Sections, chains: Sequence[Chain]
) -> int | None:
    """Return the end of the chunks in front of those that an append has begun to add.

    Without an offset table, only the header tells them apart. They are adjacent, have
    its number and sizes, and 16 zero bytes follow (docs/format.rst, Undo record).
    """
    header, end = sections.header, sections.first
    if header is None or header.format_version < 3 or header.offsets:
        return None
    own: list[Chain] = []
    nchunks = 0
    for chain in chains:
        if chain.start != end or nchunks >= header.nchunks:
            break
        own.append(chain)
        nchunks, end = nchunks + len(chain), chain.stop
    if end is None or not own or nchunks != header.nchunks:
        return None
    if storage.read_at(end, 16) != bytes(16):  # usually the file ends here
        return None
    expected = [header.chunk_size] * (nchunks - 1) + [header.last_chunk]
    return end if [n for chain in own for n in chain.sizes] == expected else None
