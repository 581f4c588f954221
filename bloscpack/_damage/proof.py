"""The reasons why a result is not certain: there must be none.

`certain` is a positive proof. Each chunk's number must be proven, and the number of
chunks; then the sizes, the digests and all bytes of the file must agree with them.
"""

from __future__ import annotations

from .._format.offsets import FREE
from ..abstract_objects import ImmutableObject

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .evidence import Evidence
    from .inspection import Inspection
    from .nested import Piece
    from .numbering import Numbering

    Group = Sequence[Piece]


class Proof(ImmutableObject):
    """The doubts about the numbers, and about the rest; each is a sentence.

    ``first_guessed`` is the first piece whose number is not proven, None if all are.
    """

    __slots__ = ("first_guessed", "numbers", "others")

    def __init__(self, inspection: Inspection) -> None:
        evidence, numbering = inspection.evidence, inspection.numbering
        groups = _groups(numbering.placed)
        guesses = _unproven(groups, evidence, numbering)
        self.first_guessed: Piece | None = next(guesses, None)
        header = inspection.sections.header
        doubts = [*_doubts_of_count(groups, evidence, numbering)]
        if header is not None and header.nchunks not in (-1, numbering.nchunks):
            doubts.append("the header states another number of chunks")
        array, nbytes = inspection.geometry.array, inspection.geometry.nbytes
        if evidence.nchunks is None and array is not None and array.nbytes != nbytes:
            doubts.append("the array of the metadata may need more chunks")
        if self.first_guessed is not None:
            doubts.append("the number of a chunk follows from a single source")
        self.numbers = tuple(doubts)
        self.others = tuple(_other_doubts(inspection))


def _groups(placed: Sequence[Piece]) -> Sequence[Group]:
    """Return runs of pieces that touch each other and have consecutive numbers."""
    groups: list[list[Piece]] = []
    for piece in placed:
        before = groups[-1][-1] if groups else None
        if (
            before is not None
            and before.stop == piece.number
            and before.chain.stop == piece.chain.start
        ):
            groups[-1].append(piece)
        else:
            groups.append([piece])
    return groups


def _is_front(group: Group, evidence: Evidence) -> bool:
    """Return whether a group begins with the file's first chunk, at its offset."""
    return group[0].number == 0 and group[0].chain.start == evidence.first


def _is_back(group: Group, evidence: Evidence, nchunks: int) -> bool:
    """Return whether a group ends with the file, and with its last chunk."""
    return group[-1].stop == nchunks and group[-1].chain.stop == evidence.size


def _unproven(
    groups: Sequence[Group], evidence: Evidence, numbering: Numbering
) -> Iterator[Piece]:
    """Yield the pieces whose numbers are not proven.

    A number is proven if the table has the extents of the chunks once. It is also
    proven if the chunks touch each other up to the first chunk or to the last one of
    the file, the table agrees, and no chunk is lost without leaving a byte.
    """
    exact = _is_cut_exactly(groups, evidence, numbering)
    # The table lacks the extent of the last chunk: it must be found or be marked.
    marked = evidence.last_chunk not in (None, evidence.chunk_size)
    known = marked or numbering.last_size is not None
    is_unique = _is_unique if known else lambda placed, evidence: False
    for group in groups:
        front = _is_front(group, evidence)
        touches = front or _is_back(group, evidence, numbering.nchunks)
        proven = _agrees if touches and not exact else is_unique
        yield from (placed for placed in group if not proven(placed, evidence))


def _is_cut_exactly(
    groups: Sequence[Group], evidence: Evidence, numbering: Numbering
) -> bool:
    """Return whether chunks are out of order, or may be lost with all of their bytes.

    A lost chunk is in its place if it leaves bytes there. Of several, the offset table
    must say that all of their bytes are there.
    """
    number, end = 0, evidence.base if evidence.first is None else evidence.first
    for group in groups:
        nlost, start = group[0].number - number, group[0].chain.start
        if nlost and not _leave_bytes(number, nlost, end, start, evidence):
            return True
        number, end = group[-1].stop, group[-1].chain.stop
    nlost = numbering.nchunks - number
    return nlost > 0 and not _leave_bytes(number, nlost, end, evidence.size, evidence)


def _leave_bytes(
    number: int, nlost: int, start: int, stop: int, evidence: Evidence
) -> bool:
    """Return whether `nlost` chunks left all their bytes, or a part of a single one."""
    entries = evidence.entries
    if nlost < 2 or number + nlost >= len(entries):
        return nlost == 1 and start < stop
    begin, end = entries[number], entries[number + nlost]
    return FREE not in (begin, end) and end - begin == stop - start


def _agrees(placed: Piece, evidence: Evidence) -> bool:
    """Return whether the table has the extents of a piece, if there is a table."""
    chain, number, last = placed.chain, placed.number, len(evidence.entries) - 1
    stated = evidence.entries[number : number + len(chain)]
    # Where all offsets agree, only the end of the last chunk is left to compare.
    begin = len(chain) - 1 if [*stated] == [*chain.offsets] else 0
    return all(
        number + k >= last or evidence.matches(chain, k, number + k)
        for k in range(begin, len(chain))
    )


def _is_unique(placed: Piece, evidence: Evidence) -> bool:
    """Return whether a confirmed table has each extent of a piece only once."""
    chain = placed.chain
    return evidence.count_confirmed and all(
        evidence.is_unique(chain, k, placed.number + k) for k in range(len(chain))
    )


def _doubts_of_count(
    groups: Sequence[Group], evidence: Evidence, numbering: Numbering
) -> Iterator[str]:
    """Yield the doubts about the number of chunks."""
    nchunks = evidence.nchunks
    if numbering.dropped:
        yield "there are intact chunks without a number of their own"
    if not groups:
        if nchunks is None and evidence.first != evidence.size:
            yield "the number of chunks is not known"
        return
    if numbering.last_size not in (None, evidence.last_chunk or numbering.last_size):
        yield "the last chunk has not the size in the header: an append may be lost"
    if not (evidence.count_confirmed or _are_linked(groups, evidence, numbering)):
        yield "only one statement gives the number of chunks"


def _are_linked(
    groups: Sequence[Group], evidence: Evidence, numbering: Numbering
) -> bool:
    """Return whether intact headers of damaged chunks lead from end to end."""
    number = 0
    for group in groups:
        if evidence.first is None or group[0].ndamaged != group[0].number - number:
            return False
        number = group[-1].stop
    return _is_back(groups[-1], evidence, numbering.nchunks)


def _other_doubts(inspection: Inspection) -> Iterator[str]:
    """Yield the doubts about sizes, digests and bytes that belong to no chunk."""
    header, evidence = inspection.sections.header, inspection.evidence
    numbering, geometry = inspection.numbering, inspection.geometry
    if header is None:
        yield "the header is damaged"
        return
    if inspection.checksum is not header.checksum_impl:
        yield "the chunks have no digests of the checksum in the header"
    elif not evidence.digests and numbering.nfound < numbering.nchunks:
        yield "there are no digests: the chunks beside the damage may be damaged too"
    if inspection.sections.first != inspection.announced_first:
        yield "the sections in front of the chunks do not end where the header says"
    if any(f.section == "metadata" and f.kind == "digest" for f in inspection.findings):
        yield "the digest of the metadata does not match"
    if not _sizes_agree(inspection):
        yield "the plain sizes of the chunks are not those in the header"
    if not _lost_sizes_known(inspection):
        yield "only the header states the plain sizes of lost chunks"
    array = geometry.array
    if array is not None and geometry.nbytes != array.nbytes:
        yield "the chunks do not hold the array of the metadata"
    if _has_strays(inspection):
        yield "there are bytes that belong to no chunk"


def _sizes_agree(inspection: Inspection) -> bool:
    """Return whether all chunks have the plain sizes that the header states."""
    header, numbering = inspection.sections.header, inspection.numbering
    if header is None or header.format_version < 2:
        return True
    for chain, first in zip(numbering.chains, numbering.numbers, strict=True):
        sizes = chain.sizes
        if first + len(chain) == numbering.nchunks:
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
    if not nlost or (array is not None and array.nbytes == geometry.nbytes):
        return True
    found_last = numbering.last_size is not None
    if not found_last:
        damaged = inspection.damaged[-1:]
        if not damaged or damaged[0].nbytes != geometry.last_chunk:
            return False
        end = damaged[0].stop
        if end is None or end > inspection.storage.size:
            return False
    return numbering.nfound > found_last or nlost == (not found_last)


def _has_strays(inspection: Inspection) -> bool:
    """Return whether bytes lie where no chunk is lost, in front of the last chunk."""
    evidence, numbering = inspection.evidence, inspection.numbering
    number, end = 0, evidence.first
    for placed in numbering.placed:
        if end is not None and placed.number == number and placed.chain.start > end:
            return True
        number, end = placed.stop, placed.chain.stop
    return False
