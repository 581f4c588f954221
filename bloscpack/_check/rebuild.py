"""Plan a recovery: decide what the new file will contain, without writing it.

A `RecoveryPlan` has the header, the metadata section and the chunks of the new file.
Making it changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from .._format.sections import Section, encode_section
from .._types import Json
from ..args import MetadataArgs
from ..checksums import CHECKSUMS_LOOKUP
from ..constants import BLOSCPACK_HEADER_LENGTH
from ..defaults import DEFAULT_MAX_APP_CHUNKS
from ..exceptions import DamageError, UsageValueError
from ..headers import BloscpackHeader
from ..log import counted
from ..serializers import is_array, is_grid, replaced_metadata, user_metadata
from .evidence import ChunkGeometry
from .files import Inspection
from .findings import ANOTHER, ERROR, Pair, Record, Report, plain_position
from .note import with_note
from .scan import Chain

# Maximum number of plain bytes that are filled in: always this many, and this many per
# byte of the damaged file. A damaged header may state any number of chunks; at a usual
# compression ratio, a file that has lost more has lost over 99 % of its bytes.
MIN_FILL_LIMIT = 2**28
FILL_LIMIT_PER_BYTE = 1000
TOO_MUCH = (
    "chunks of '%d' plain bytes seem to be missing%s, which is more than the limit: "
    "nothing is filled in for them"
)

SECOND_FILE = (
    "a second packed file, which begins at byte %d, was not saved: write the bytes "
    "from there on to a file of their own, as with 'tail -c +%d', and recover that file"
)


def fill_limit(size: int) -> int:
    """Return how many plain bytes may be filled in for a file of `size` bytes."""
    return max(MIN_FILL_LIMIT, FILL_LIMIT_PER_BYTE * size)


@dataclass(frozen=True, repr=False)
class Loss(Record):
    """Adjacent chunks that are lost.

    Attributes
    ----------
    chunks
        Their numbers in the damaged file, as (start, stop).
    span, rows
        The plain bytes and the rows of the array that are lost, as (start, stop), None
        if unknown.
    region
        The part of the array that has these chunks, as in a `Finding`.
    member
        The name of the member of an archive, None in another file.
    """

    chunks: Pair
    span: Pair | None
    rows: Pair | None
    region: tuple[Pair, ...] | None = None
    member: str | None = None

    optional = ("region", "member")

    def __str__(self) -> str:
        first, last = self.chunks[0], self.chunks[1] - 1
        text = "chunks %d to %d" % (first, last) if first < last else "chunk %d" % first
        if self.member is not None:
            text = "'%s': %s" % (self.member, text)
        return ", ".join([text, *plain_position(self.span, self.rows, self.region)])


@dataclass(eq=False, repr=False)
class Recovery(Record):
    """The result of `recover` for one file.

    Attributes
    ----------
    report
        The `Report` of `verify` on the damaged file.
    doubts
        Sentences that say why the result is not certain.
    decided
        The rule that gave the chunks their numbers: a list of (first, stop, rule).
    certain
        Whether it is proven that every copied chunk is at its position, and that the
        file contained nothing else. Otherwise see ``placed``.
    placed
        Whether it is proven that every copied chunk is at its position. If the result
        is not certain all the same, the length of the lost end may be wrong.
    nsaved, nlost
        The number of chunks that were copied, and of those that are lost.
    losses
        A `Loss` for each run of lost chunks.
    nchunks, nbytes
        The number of chunks of the new file, and its plain bytes.
    metadata
        ``'kept'``, ``'changed'``, ``'lost'`` or ``'none'``.
    remarks
        Sentences about other differences between the new and the damaged file.
    """

    report: Report
    doubts: list[str]
    decided: list[tuple[int, int, str]]
    certain: bool
    placed: bool
    nsaved: int
    nlost: int = 0
    losses: list[Loss] = field(default_factory=list)
    nchunks: int = 0
    nbytes: int = 0
    metadata: str = "none"
    remarks: list[str] = field(default_factory=list)

    derived = ("complete",)

    @property
    def complete(self) -> bool:
        """Whether it is certain that nothing is lost, including a second file."""
        single = all(finding.kind != ANOTHER for finding in self.report.findings)
        return single and self.certain and not self.nlost and self.metadata != "lost"

    def __repr__(self) -> str:
        saved = counted(self.nsaved, "chunk")
        return "<Recovery: %s saved, %d lost>" % (saved, self.nlost)


@dataclass(eq=False, repr=False)
class ArchiveRecovery(Recovery):
    """The result of `recover` for an archive: the sums over its arrays.

    Attributes
    ----------
    narrays
        The number of arrays in the new archive.
    lost_members
        The names of members of the damaged archive that the new one lacks.
    """

    narrays: int = 0
    lost_members: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return super().complete and not self.lost_members

    def include(self, part: Recovery, member: str, start: int) -> None:
        """Add the recovery of a member, which begins at `start`."""
        self.report.include(part.report, member, start)
        self.certain = self.certain and part.certain
        self.placed = self.placed and part.placed
        self.doubts += ["'%s': %s" % (member, doubt) for doubt in part.doubts]
        self.nsaved += part.nsaved
        self.nlost += part.nlost
        self.losses += [replace(loss, member=member) for loss in part.losses]
        self.nchunks += part.nchunks
        self.nbytes += part.nbytes
        self.remarks += ["'%s': %s" % (member, remark) for remark in part.remarks]


class ChunkSpan(NamedTuple):
    """The chunks [first, stop) of the damaged file, all of ``chain``; None if lost."""

    first: int
    stop: int
    chain: Chain | None = None


class RecoveryPlan:
    """The contents of the new file: header, metadata section, parts and geometry.

    ``metadata`` is the value in the section. Filler chunks of the sizes in ``geometry``
    replace the parts that are lost; with `drop` they are left out. `most` plain bytes
    may be filled in, by default `fill_limit`. Raises `FormatError` if no chunk is
    intact.
    """

    def __init__(
        self, inspection: Inspection, drop: bool, fill: int = 0, most: int | None = None
    ) -> None:
        self._inspection = inspection
        self._fill = fill
        self._most = fill_limit(inspection.storage.size) if most is None else most
        self.geometry = inspection.geometry
        parts = [*_all_parts(inspection)]
        lost = [part for part in parts if part.chain is None]
        array = self.geometry.array
        if drop and lost and array is not None and array.grid is not None:
            raise UsageValueError(
                "lost chunks can't be left out of an array in chunks of shape %s, "
                "which divide every axis: without 'drop' they are filled in"
                % (array.grid.chunk,)
            )
        self.recovery = recovery = self._begin(lost)
        nfilled = 0 if drop else self._count_filled(lost)
        if nfilled:
            recovery.remarks.append("lost chunks are filled with bytes %d" % fill)
        absent = {part.first for part in lost[nfilled:]}
        self.parts = [part for part in parts if part.first not in absent]
        sizes = _sizes_of(self.parts, self.geometry)
        recovery.nchunks, recovery.nbytes = sizes.total(), _nbytes_of(sizes)
        self.header = self._plan_header(sizes)
        self.section = self._plan_metadata(nfilled)
        self.header.metadata = self.section is not None
        self.metadata: Json = self.section.value if self.section else None

    def _begin(self, lost: list[ChunkSpan]) -> Recovery:
        """Return a recovery that does not describe the new file yet."""
        inspection, geometry = self._inspection, self.geometry
        report, proof = inspection.report, inspection.proof
        numbering = inspection.numbering
        errors = {f.section for f in report.findings if f.severity == ERROR}
        # A file without chunks is still written if nothing but its metadata is damaged.
        if not numbering.nfound and (geometry.nchunks or errors - {"metadata"}):
            raise DamageError("no chunk could be saved", section="chunks")
        recovery = Recovery(
            report,
            doubts=[*proof.numbers, *proof.others],
            decided=[(p.number, p.stop, p.rule) for p in numbering.in_order],
            certain=not (proof.numbers or proof.others),
            placed=proof.placed,
            nsaved=numbering.nfound,
            nlost=sum(part.stop - part.first for part in lost),
        )
        for first, stop, _ in lost:
            span = geometry.span(first, stop)
            rows, region = geometry.rows(span), geometry.region(first, stop)
            recovery.losses.append(Loss((first, stop), span, rows, region))
        second = inspection.find_second_file()
        if second is not None:
            recovery.remarks.append(SECOND_FILE % (second, second + 1))
        return recovery

    def _count_filled(self, lost: list[ChunkSpan]) -> int:
        """Return how many of the lost parts are filled in.

        No part is filled in if a plain size is unknown. If the parts exceed the limit,
        the chunks behind the last saved one are left out first: a damaged header may
        state any number of them. If the size of the last chunk is unknown, ``geometry``
        gets one.
        """
        geometry, remarks = self.geometry, self.recovery.remarks
        at_end = bool(lost) and lost[-1].stop == geometry.nchunks
        size = geometry.chunk_size
        if at_end and geometry.last_chunk is None and size is not None:
            remarks.append(
                "the size of the last chunk is not known: '%d' bytes are filled in"
                % size
            )
            self.geometry = geometry = geometry._replace(last_chunk=size)
        ends = [i for part in lost for i in (part.first, part.stop - 1)]
        if any(geometry.size_of(i) is None for i in ends):
            remarks.append(
                "the sizes of lost chunks are not known: nothing is filled in for them"
            )
            self.recovery.certain = False
            return 0
        nbytes = _nbytes_of(_sizes_of(lost, geometry))
        if nbytes > self._most:
            self.recovery.certain = False
            if at_end:
                nbytes_at_end = _nbytes_of(_sizes_of(lost[-1:], geometry))
                remarks.append(TOO_MUCH % (nbytes_at_end, " at the end"))
                lost, nbytes = lost[:-1], nbytes - nbytes_at_end
        if nbytes > self._most:
            remarks.append(TOO_MUCH % (nbytes, ""))
            lost = []
        return len(lost)

    # Header and metadata

    def _plan_header(self, sizes: Counter[int]) -> BloscpackHeader:
        """Return the header of the new file; its chunks have the `sizes`."""
        inspection, last_chunk = self._inspection, 0
        if self.parts:
            _, stop, chain = self.parts[-1]
            size = chain.sizes[-1] if chain else self.geometry.size_of(stop - 1)
            last_chunk = size or 0
        old, nfree = inspection.sections.header, inspection.sections.table.nfree
        others = [size for size, count in sizes.items() if count > (size == last_chunk)]
        chunk_size = others[0] if others else last_chunk
        if len(others) > 1 or chunk_size < last_chunk:
            self.recovery.remarks.append(
                "the chunks differ in size: the new file says that their size is "
                "unknown"
            )
            chunk_size = -1
        offsets = True
        if old is not None and old.format_version == 3 and old.nchunks != -1:
            offsets = old.offsets
        if nfree is None:
            nfree = DEFAULT_MAX_APP_CHUNKS(self.recovery.nchunks)
        typesize = old.typesize if old is not None else 0
        chains = inspection.numbering.chains
        if not typesize and chains:
            typesize = inspection.scan.header_at(chains[0].start).typesize
        return BloscpackHeader(
            offsets=offsets,
            checksum=inspection.checksum.name,
            typesize=typesize,
            chunk_size=chunk_size,
            last_chunk=last_chunk,
            nchunks=self.recovery.nchunks,
            max_app_chunks=nfree if offsets else 0,
        )

    def _plan_metadata(self, nfilled: int) -> Section | None:
        """Return the metadata section of the new file, None if it has none.

        The first `nfilled` losses are filled in. A note in the metadata of the user
        lists the losses.
        """
        old = self._inspection.sections.metadata
        kept = self._kept_metadata(self.recovery.losses[nfilled:])
        new = self._noted(kept, nfilled)
        if old is None or kept is None:
            return None if new is None else encode_section(new)
        header, value, stored = old
        if new is value:
            room = header.max_meta_size - len(stored)
            digest = CHECKSUMS_LOOKUP[header.meta_checksum](stored)
            return Section(header.encode() + stored, room, digest, value)
        settings = MetadataArgs(
            header.magic_format,
            header.meta_checksum,
            header.meta_codec,
            header.meta_level,
            # Even if the text is not longer, zlib may need more bytes for it.
            max_meta_size=lambda size: max(header.max_meta_size, size),
        )
        return encode_section(new, settings)

    def _noted(self, metadata: Json, nfilled: int) -> Json:
        """Return the metadata of the new file with a note of the losses, if any."""
        recovery, losses = self.recovery, self.recovery.losses
        lost = recovery.metadata == "lost"
        if not losses and not lost:
            return metadata
        user = user_metadata(metadata)
        if user is not None and not isinstance(user, dict):
            recovery.remarks.append(
                "the metadata are not a JSON object, so they have no note of the loss"
            )
            return metadata
        unit, ranges = "chunks", [loss.chunks for loss in losses]
        spans = [loss.span for loss in losses if loss.span is not None]
        if len(spans) == len(losses) and not is_grid(metadata):
            unit, ranges = "bytes", spans
        rows = [loss.rows for loss in losses if loss.rows is not None]
        if len(rows) == len(losses) and is_array(metadata):
            unit, ranges = "rows", rows
        noted = with_note(
            user,
            unit,
            ranges[:nfilled],
            ranges[nfilled:],
            self._fill,
            certain=recovery.certain,
            lost=lost,
        )
        return replaced_metadata(metadata, noted)

    def _kept_metadata(self, left_out: list[Loss]) -> Json:
        """Return the metadata of the damaged file that the new file keeps.

        The state of the metadata is noted in the recovery.
        """
        sections, array = self._inspection.sections, self.geometry.array
        recovery = self.recovery
        metadata = sections.metadata
        if metadata is None:
            table_first = sections.table.start == BLOSCPACK_HEADER_LENGTH
            if sections.metadata_lost:
                recovery.metadata = "lost"
                recovery.remarks.append("the metadata are lost")
            elif sections.header is None and not table_first:
                recovery.remarks.append("there may have been metadata: none were found")
            return None
        value = metadata.value
        recovery.metadata = "kept"
        if is_array(value):
            shape = self._new_shape(left_out)
            if shape is None or array is None:
                recovery.metadata = "changed"
                recovery.remarks.append(
                    "the chunks do not hold the array any more: only plain bytes are "
                    "stored, without its metadata"
                )
                return None
            if shape != [*array.shape]:
                recovery.metadata = "changed"
                recovery.remarks.append(
                    "the array has the shape %s instead of %s"
                    % (tuple(shape), array.shape)
                )
                return {**value, "shape": shape}
        return value

    def _new_shape(self, left_out: list[Loss]) -> list[int] | None:
        """Return the shape of the array in the new file, without the lost chunks.

        Return None if the remaining bytes are not an array.
        """
        array, row_nbytes = self.geometry.array, self.geometry.row_nbytes
        nbytes = self.recovery.nbytes
        if array is not None and nbytes == array.stored_nbytes:
            return [*array.shape]
        if array is None or not left_out or not row_nbytes or nbytes % row_nbytes:
            return None
        for loss in left_out:
            start, stop = loss.span or (1, 1)
            if start % row_nbytes or (stop % row_nbytes and stop != array.nbytes):
                return None
        return [nbytes // row_nbytes, *array.shape[1:]]


def _all_parts(inspection: Inspection) -> Iterator[ChunkSpan]:
    """Yield all chunks of the damaged file in order, intact and lost ones."""
    number = 0
    for placed in inspection.numbering.in_order:
        if placed.number > number:
            yield ChunkSpan(number, placed.number)
        yield ChunkSpan(placed.number, placed.stop, placed.chain)
        number = placed.stop
    if number < inspection.numbering.nchunks:
        yield ChunkSpan(number, inspection.numbering.nchunks)


def _sizes_of(parts: Sequence[ChunkSpan], geometry: ChunkGeometry) -> Counter[int]:
    """Return how many chunks of each plain size the parts have in the new file."""
    sizes: Counter[int] = Counter()
    for first, stop, chain in parts:
        if chain is not None:
            sizes.update(chain.sizes)
        else:
            sizes[geometry.chunk_size or 0] += stop - 1 - first
            sizes[geometry.size_of(stop - 1) or 0] += 1
    return sizes


def _nbytes_of(sizes: Counter[int]) -> int:
    return sum(size * count for size, count in sizes.items())
