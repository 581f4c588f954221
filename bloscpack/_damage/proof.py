"""The reasons why a result is not certain: there must be none.

`certain` is a positive proof. Each chunk's number must be proven, and the number of
chunks; then the sizes, the digests and all bytes of the file must agree with them.
"""

from __future__ import annotations

from itertools import pairwise

from .._format.offsets import FREE
from ..abstract_objects import ImmutableObject

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .evidence import Evidence
    from .inspection import Inspection
    from .numbering import Numbering, Placed

    Group = Sequence[Placed]


class Proof(ImmutableObject):
    """The doubts about the numbers, and about the rest; each is a sentence.

    ``first_guessed`` is the first piece whose number is not proven, None if all are.
    """

    __slots__ = ("first_guessed", "numbers", "others")

    def __init__(self, inspection: Inspection) -> None:
        evidence, numbering = inspection.evidence, inspection.numbering
        groups = _groups(numbering.placed)
        guesses = _unproven(groups, evidence, numbering)
        self.first_guessed: Placed | None = next(guesses, None)
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
        self.others = tuple(_other_doubts(inspection, len(groups)))


def _groups(placed: Sequence[Placed]) -> Sequence[Group]:
    """Return runs of pieces that touch each other and have consecutive numbers."""
    groups: list[list[Placed]] = []
    for piece in placed:
        before = groups[-1][-1] if groups else None
        if (
            before is not None
            and before.stop == piece.number
            and before.piece.chain.stop == piece.piece.chain.start
        ):
            groups[-1].append(piece)
        else:
            groups.append([piece])
    return groups


def _is_front(group: Group, evidence: Evidence) -> bool:
    """Return whether a group begins with the file's first chunk, at its offset.

    The headers of damaged chunks may lead from that offset to the group.
    """
    first, link = group[0].number, group[0].piece.link
    if group[0].piece.chain.start == evidence.first:
        return first == 0
    return link is not None and link.from_first and _is_linked(group[0], first)


def _is_linked(placed: Placed, nlost: int) -> bool:
    """Return whether intact headers of `nlost` damaged chunks lead to a piece."""
    link = placed.piece.link
    return link is not None and link.confirmed and link.ndamaged == nlost


def _is_back(group: Group, evidence: Evidence, nchunks: int) -> bool:
    """Return whether a group ends with the file, and with its last chunk."""
    chain = group[-1].piece.chain
    fits = evidence.last_chunk in (None, chain.sizes[-1])
    return group[-1].stop == nchunks and chain.stop == evidence.size and fits


def _unproven(
    groups: Sequence[Group], evidence: Evidence, numbering: Numbering
) -> Iterator[Placed]:
    """Yield the pieces whose numbers are not proven.

    A number is proven if the table has the extents of the chunks once. It is also
    proven if the chunks touch each other up to the first chunk or to the last one of
    the file, and no chunk is lost without leaving a byte.
    """
    exact = _is_cut_exactly(groups, evidence, numbering)
    for group in groups:
        front = _is_front(group, evidence)
        proven = front or _is_back(group, evidence, numbering.nchunks)
        if exact or not proven:
            for placed in group:
                if not _is_unique(placed, evidence, numbering, every=exact):
                    yield placed
        else:
            yield from (p for p in group if not _agrees(p, evidence))


def _is_cut_exactly(
    groups: Sequence[Group], evidence: Evidence, numbering: Numbering
) -> bool:
    """Return whether chunks are out of order, or may be lost with all of their bytes.

    A lost chunk is in its place if it leaves bytes there. Of several, the headers or
    the offset table must say that all of their bytes are there.
    """
    number, end = 0, evidence.base if evidence.first is None else evidence.first
    for group in groups:
        first, start = group[0].number, group[0].piece.chain.start
        nlost = first - number
        linked = _is_linked(group[0], nlost)
        if nlost < 0 or (
            nlost
            and not linked
            and not _leave_bytes(number, nlost, end, start, evidence)
        ):
            return True
        number, end = group[-1].stop, group[-1].piece.chain.stop
    nlost = numbering.nchunks - number
    return nlost > 0 and not _leave_bytes(number, nlost, end, evidence.size, evidence)


def _leave_bytes(
    number: int, nlost: int, start: int, stop: int, evidence: Evidence
) -> bool:
    """Return whether `nlost` chunks left all their bytes, or a part of a single one."""
    entries = evidence.table.entries
    if nlost == 1 or number + nlost >= len(entries):
        return nlost == 1 and start < stop
    begin, end = entries[number], entries[number + nlost]
    return FREE not in (begin, end) and end - begin == stop - start


def _agrees(placed: Placed, evidence: Evidence) -> bool:
    """Return whether the table has the extents of a piece, if there is a table."""
    last = len(evidence.table) - 1
    return all(
        placed.number + k >= last
        or evidence.matches(placed.piece.chain, k, placed.number + k)
        for k in range(len(placed.piece))
    )


def _is_unique(
    placed: Placed, evidence: Evidence, numbering: Numbering, every: bool
) -> bool:
    """Return whether a confirmed table has the extent of a chunk only once.

    With `every` this must be true of each chunk of the piece. The extent of the last
    chunk of the file is known only if that chunk was found or differs in size.
    """
    last_known = evidence.last_chunk not in (None, evidence.chunk_size)
    if not evidence.count_confirmed or not len(evidence.table):
        return False
    if not last_known and numbering.last_size is None:
        return False
    chain = placed.piece.chain
    unique = sum(
        evidence.is_unique(chain, k, placed.number + k) for k in range(len(chain))
    )
    return unique >= (len(chain) if every else 1) and _agrees(placed, evidence)


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
    front = _is_front(groups[0], evidence)
    back = _is_back(groups[-1], evidence, numbering.nchunks)
    if numbering.last_size not in (None, evidence.last_chunk or numbering.last_size):
        yield "the last chunk has not the size in the header: an append may be lost"
    if not evidence.count_confirmed and not (front and back and _linked(groups)):
        yield "only one statement gives the number of chunks"


def _linked(groups: Sequence[Group]) -> bool:
    """Return whether intact headers of damaged chunks lead from group to group."""
    return all(
        _is_linked(group[0], group[0].number - before[-1].stop)
        for before, group in pairwise(groups)
    )


def _other_doubts(inspection: Inspection, ngroups: int) -> Iterator[str]:
    """Yield the doubts about sizes, digests and bytes that belong to no chunk."""
    header, evidence = inspection.sections.header, inspection.evidence
    numbering, geometry = inspection.numbering, inspection.geometry
    complete = ngroups <= 1 and numbering.nfound == numbering.nchunks
    if header is None:
        yield "the header is damaged"
        return
    if inspection.checksum is not header.checksum_impl:
        yield "the chunks have no digests of the checksum in the header"
    elif not evidence.digests and not complete:
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
    """Return whether bytes lie where no chunk is lost, in front of the last chunk.

    Bytes behind the last one are harmless if an append may have left them there.
    """
    evidence, numbering = inspection.evidence, inspection.numbering
    number, end = 0, evidence.first
    for placed in numbering.placed:
        if (
            end is not None
            and placed.number == number
            and placed.piece.chain.start > end
        ):
            return True
        number, end = placed.stop, placed.piece.chain.stop
    behind = number >= numbering.nchunks and end is not None and end < evidence.size
    header = inspection.sections.header
    appendable = header is not None and header.format_version == 3 and header.offsets
    return behind and not (appendable or inspection.has_another(end or 0))
