"""The reasons why a result is not certain: there must be none.

`certain` is a positive proof. Each chunk's number must be proven, and the number of
chunks; then the sizes, the digests and all bytes of the file must agree with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .._format.sections import FREE
from ..constants import BLOSC_HEADER_LENGTH
from .evidence import LARGEST_OVERHEAD, Evidence
from .numbering import Numbering, Piece

if TYPE_CHECKING:
    from .files import Inspection


class Proof(NamedTuple):
    """The doubts about the numbers, and about the rest; each is a sentence.

    ``placed`` says whether all doubts are about the length of the lost end:
    each chunk that was found is at its position. ``first_guessed`` is the first piece
    whose number is not proven, None if all are.
    """

    numbers: Sequence[str]
    others: Sequence[str]
    placed: bool
    first_guessed: Piece | None


# The doubt about a cut-off file of which the table and the chunks prove the rest.
LENGTH_STATED = "only the header states the plain sizes of lost chunks"


class _Gap(NamedTuple):
    """The bytes [start, stop) where `nlost` chunks from `number` on are lost."""

    number: int
    nlost: int
    start: int
    stop: int


def prove(inspection: Inspection) -> Proof:
    """Return the doubts about the results of an inspection."""
    groups = _groups(inspection.numbering.placed)
    gaps = [*_gaps(groups, inspection)]
    guessed = next(_unproven(groups, gaps, inspection), None)
    doubts = [*_doubts_of_count(groups, gaps, inspection)]
    others = [*_other_doubts(gaps, inspection)]
    placed = {*others} <= {LENGTH_STATED} and not doubts and guessed is None
    if guessed is not None:
        text = "only one statement of the file gives the number of chunk %d"
        doubts.append(text % guessed.number)
    return Proof(doubts, others, placed, guessed)


def _groups(placed: Sequence[Piece]) -> Sequence[Sequence[Piece]]:
    """Return runs of pieces that touch each other and have consecutive numbers."""
    groups: list[list[Piece]] = []
    end = None
    for piece in placed:
        if end == (piece.number, piece.chain.start):
            groups[-1].append(piece)
        else:
            groups.append([piece])
        end = piece.stop, piece.chain.stop
    return groups


def _gaps(groups: Sequence[Sequence[Piece]], inspection: Inspection) -> Iterator[_Gap]:
    """Yield the gap in front of each group, and the one behind all."""
    evidence = inspection.evidence
    number, end = 0, evidence.base if evidence.first is None else evidence.first
    for group in groups:
        start = group[0].chain.start
        yield _Gap(number, group[0].number - number, end, start)
        number, end = group[-1].stop, group[-1].chain.stop
    yield _Gap(number, inspection.numbering.nchunks - number, end, evidence.size)


# The numbers of the chunks


def _unproven(
    groups: Sequence[Sequence[Piece]], gaps: Sequence[_Gap], inspection: Inspection
) -> Iterator[Piece]:
    """Yield the pieces whose numbers are not proven.

    A number is proven if the table has the extents of the chunks once. It is also
    proven if the chunks touch each other up to the first chunk or to the last one of
    the file, the table agrees, and no chunk is lost without leaving a byte.
    """
    evidence, numbering = inspection.evidence, inspection.numbering
    exact = any(gap.nlost and not _leaves_bytes(gap, evidence) for gap in gaps)
    # The headers of damaged chunks may count more or fewer than the gap has numbers, or
    # lead across other bytes than the table.
    exact = exact or any(
        group[0].ndamaged not in (None, gap.nlost)
        or (
            group[0].ndamaged == 1
            and evidence.extent(gap.number) not in (None, gap.stop - gap.start)
        )
        for group, gap in zip(groups, gaps, strict=False)
    )
    # The table lacks the extent of the last chunk: it must be found or be marked.
    marked = evidence.last_chunk not in (None, evidence.chunk_size)
    known = marked or numbering.last_size is not None
    for group in groups:
        front = (group[0].number, group[0].chain.start) == (0, evidence.first)
        touches = front or _is_back(group[-1], evidence, numbering)
        for piece in group:
            if touches and not exact:
                proven = _agrees(piece, evidence)
            else:
                proven = known and evidence.count_confirmed
                proven = proven and all(
                    evidence.is_unique(piece.chain, k, piece.number + k)
                    for k in range(piece.nchunks)
                )
            if not proven:
                yield piece


def _is_back(piece: Piece, evidence: Evidence, numbering: Numbering) -> bool:
    """Return whether a piece ends with the file, and with its last chunk."""
    return (piece.stop, piece.chain.stop) == (numbering.nchunks, evidence.size)


def _leaves_bytes(gap: _Gap, evidence: Evidence) -> bool:
    """Return whether lost chunks left all their bytes, or a part of a single one.

    Of several chunks, the offset table must say that all of their bytes are there. More
    bytes than a single chunk has may be those of two.
    """
    if gap.nlost == 1:
        plain = max(evidence.chunk_size or evidence.size, evidence.last_chunk or 0)
        largest = evidence.extent(gap.number) or plain + LARGEST_OVERHEAD
        return 0 < gap.stop - gap.start < largest + BLOSC_HEADER_LENGTH
    ends = evidence.entries[gap.number : gap.number + gap.nlost + 1]
    # `nlost` is negative if a chunk with a higher number is in front of the gap.
    return (
        len(ends) > gap.nlost > 1
        and FREE not in (ends[0], ends[-1])
        and ends[-1] - ends[0] == gap.stop - gap.start
    )


def _agrees(piece: Piece, evidence: Evidence) -> bool:
    """Return whether the table has the extents of a piece, if there is a table."""
    chain, number, last = piece.chain, piece.number, len(evidence.entries) - 1
    stated = evidence.entries[number : piece.stop]
    # Where all offsets agree, only the end of the last chunk is left to compare.
    begin = len(chain) - 1 if [*stated] == [*chain.offsets] else 0
    return all(
        number + k >= last or evidence.matches(chain, k, number + k)
        for k in range(begin, len(chain))
    )


def _doubts_of_count(
    groups: Sequence[Sequence[Piece]], gaps: Sequence[_Gap], inspection: Inspection
) -> Iterator[str]:
    """Yield the doubts about the number of chunks."""
    evidence, numbering = inspection.evidence, inspection.numbering
    header, geometry = inspection.sections.header, inspection.geometry
    pairs = zip(groups, gaps, strict=False)
    # Intact headers of damaged chunks may lead from end to end.
    linked = (
        bool(groups)
        and evidence.first is not None
        and all(group[0].ndamaged == gap.nlost for group, gap in pairs)
        and _is_back(groups[-1][-1], evidence, numbering)
    )
    if numbering.dropped:
        yield "there are intact chunks without a number of their own"
    if not groups:
        # Every writer stores empty data as a chunk: damage erased the number, and all.
        yield "no chunk was found, so the number of chunks is not known"
    if numbering.last_size not in (None, evidence.last_chunk or numbering.last_size):
        yield "the last chunk has not the size in the header: an append may be lost"
    if groups and not (evidence.count_confirmed or linked):
        yield "only one statement gives the number of chunks"
    if header is not None and header.nchunks not in (-1, numbering.nchunks):
        yield "the header states another number of chunks"
    array = geometry.array
    known = evidence.nchunks is not None or array is None
    if not known and array is not None and array.stored_nbytes != geometry.nbytes:
        yield "the array of the metadata may need more chunks"


# Sizes, digests and bytes


def _other_doubts(gaps: Sequence[_Gap], inspection: Inspection) -> Iterator[str]:
    """Yield the doubts about sizes, digests and bytes that belong to no chunk."""
    header, evidence = inspection.sections.header, inspection.evidence
    numbering, geometry = inspection.numbering, inspection.geometry
    findings = inspection.report.findings
    if header is None:
        yield "the header is damaged"
        return
    if inspection.checksum is not header.checksum_impl:
        yield "the chunks have no digests of the checksum in the header"
    elif not evidence.digests and numbering.nfound < numbering.nchunks:
        yield "there are no digests: the chunks beside the damage may be damaged too"
    if inspection.sections.first != inspection.announced_first:
        yield "the sections in front of the chunks do not end where the header says"
    if any(f.section == "metadata" and f.kind == "digest" for f in findings):
        yield "the digest of the metadata does not match"
    if header.format_version >= 2 and not _sizes_agree(inspection):
        yield "the plain sizes of the chunks are not those in the header"
    if not _lost_sizes_known(inspection):
        yield LENGTH_STATED
    if geometry.array is not None and geometry.nbytes != geometry.array.stored_nbytes:
        yield "the chunks do not hold the array of the metadata"
    known = evidence.first is not None
    if any(not g.nlost and g.stop > g.start and (known or g.number) for g in gaps[:-1]):
        yield "there are bytes that belong to no chunk"


def _sizes_agree(inspection: Inspection) -> bool:
    """Return whether all chunks have the plain sizes that the header states."""
    header, numbering = inspection.sections.header, inspection.numbering
    assert header is not None
    for piece in numbering.placed:
        sizes = piece.chain.sizes
        if piece.stop == numbering.nchunks:
            if header.last_chunk not in (-1, sizes[-1]):
                return False
            sizes = sizes[:-1]
        if header.chunk_size != -1 and sizes.count(header.chunk_size) < len(sizes):
            return False
    return True


def _lost_sizes_known(inspection: Inspection) -> bool:
    """Return whether chunks that were found confirm the plain sizes of lost ones."""
    numbering, geometry = inspection.numbering, inspection.geometry
    nlost = numbering.nchunks - numbering.nfound
    array = geometry.array
    if not nlost or (array is not None and array.stored_nbytes == geometry.nbytes):
        return True
    if numbering.last_size is not None:
        return numbering.nfound > 1
    damaged = inspection.damaged[-1:]
    if not damaged or damaged[0].nbytes != geometry.last_chunk:
        return False
    end = damaged[0].stop
    intact = end is not None and end <= inspection.storage.size
    return intact and (numbering.nfound > 0 or nlost == 1)
