"""Plan a recovery: decide what the new file will contain, without writing it.

`plan_recovery` takes an `Inspection` and returns a `Plan`: the header, the metadata
section and the chunks of the new file. It changes nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .._format import metadata as metadata_section
from ..args import MetadataArgs
from ..checksums import CHECKSUMS_LOOKUP
from ..constants import BLOSCPACK_HEADER_LENGTH
from ..defaults import DEFAULT_MAX_APP_CHUNKS
from ..exceptions import FormatError
from ..headers import BloscpackHeader
from ..serializers import is_array
from .checks import report_on
from .findings import ANOTHER, ERROR

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .._format.array_metadata import Description
    from ..serializers import Json, JsonObject
    from .findings import Pair, Report
    from .geometry import ChunkGeometry
    from .inspection import Inspection
    from .lenient_sections import MetadataSection
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


@dataclass(frozen=True, repr=False)
class Loss:
    """Adjacent chunks that are lost.

    Attributes
    ----------
    chunks
        Their numbers in the damaged file, as (start, stop).
    span
        The plain bytes that are lost, as (start, stop), None if unknown.
    rows
        The rows of the array that are lost, as (start, stop), None if unknown.
    """

    chunks: Pair
    span: Pair | None
    rows: Pair | None

    def as_dict(self) -> dict[str, list[int] | None]:
        """Return the attributes as values that JSON can hold."""
        pairs = vars(self).items()
        return {name: None if pair is None else list(pair) for name, pair in pairs}

    def __str__(self) -> str:
        first, stop = self.chunks
        text = "chunk %d" % first
        if stop - first > 1:
            text = "chunks %d to %d" % (first, stop - 1)
        if self.span is not None:
            text += ", plain bytes %d to %d" % self.span
        if self.rows is not None:
            text += ", rows %d to %d" % self.rows
        return text

    def __repr__(self) -> str:
        return "<Loss %s>" % self


class Recovery:
    """The result of `recover` for one file.

    Attributes
    ----------
    report
        The `Report` of `verify` on the damaged file.
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
    certain
        Whether it is proven that every copied chunk is in its place, and that the file
        contained nothing else. Otherwise chunks may be at other positions than before.
    doubts
        Sentences that say why the result is not certain.
    decided
        The rule that gave the chunks their numbers: a list of (first, stop, rule).
    """

    def __init__(self, report: Report, inspection: Inspection) -> None:
        proof = inspection.proof
        self.report = report
        self.nsaved = 0
        self.nlost = 0
        self.losses: list[Loss] = []
        self.nchunks = 0
        self.nbytes: int | None = None
        self.metadata = "none"
        self.remarks: list[str] = []
        self.doubts = [*proof.numbers, *proof.others]
        self.certain = not self.doubts
        self.decided: list[tuple[int, int, str]] = [
            (placed.number, placed.stop, placed.rule)
            for placed in inspection.numbering.in_order
        ]

    @property
    def complete(self) -> bool:
        """Whether it is certain that nothing is lost, including a second file."""
        alone = all(finding.kind != ANOTHER for finding in self.report.findings)
        return alone and self.certain and not self.nlost and self.metadata != "lost"

    def as_dict(self) -> JsonObject:
        """Return the attributes as values that JSON can hold."""
        return {
            **vars(self),
            "complete": self.complete,
            "report": self.report.as_dict(),
            "losses": [loss.as_dict() for loss in self.losses],
        }

    def __repr__(self) -> str:
        return "<Recovery: %d chunks saved, %d lost>" % (self.nsaved, self.nlost)


class Part(NamedTuple):
    """Adjacent chunks of the new file: all chunks of ``chain``, or filler chunks.

    ``chain`` is None for filler chunks. ``first`` is the number of the first chunk in
    the damaged file, and ``stop`` the number behind the last one.
    """

    chain: Chain | None
    first: int
    stop: int

    def last_size(self, geometry: ChunkGeometry) -> int:
        """Return the plain size of the last chunk of the part."""
        if self.chain is not None:
            return self.chain.sizes[-1]
        return geometry.size_of(self.stop - 1) or 0

    def sizes(self, geometry: ChunkGeometry) -> Counter[int]:
        """Return the plain sizes of the chunks, with the number of chunks of each."""
        if self.chain is not None:
            return Counter(self.chain.sizes)
        sizes = Counter({geometry.chunk_size or 0: self.stop - 1 - self.first})
        sizes[self.last_size(geometry)] += 1
        return sizes


class Plan(NamedTuple):
    """The contents of the new file: header, metadata section, parts and geometry."""

    recovery: Recovery
    header: BloscpackHeader
    section: bytes
    parts: Sequence[Part]
    geometry: ChunkGeometry


def plan_recovery(inspection: Inspection, drop: bool) -> Plan:
    """Return the plan of the new file.

    With `drop` lost chunks are left out. Raises `FormatError` if no chunk is intact.
    """
    report, geometry = report_on(inspection), inspection.geometry
    recovery = Recovery(report, inspection)
    parts = [*_all_parts(inspection)]
    lost = [part for part in parts if part.chain is None]
    recovery.nsaved = inspection.numbering.nfound
    # A file without chunks is still written if nothing but its metadata is damaged.
    damaged = geometry.nchunks or any(
        f.section != "metadata" and f.severity == ERROR for f in report.findings
    )
    if not recovery.nsaved and damaged:
        raise FormatError("no chunk could be saved", section="chunks")
    for part in lost:
        span = geometry.span(part.first, part.stop)
        loss = Loss((part.first, part.stop), span, geometry.rows(span))
        recovery.losses.append(loss)
        recovery.nlost += part.stop - part.first
    nfilled = 0
    if not drop:
        geometry, nfilled = _plan_filling(lost, inspection, recovery)
    left_out = recovery.losses[nfilled:]
    absent = {loss.chunks[0] for loss in left_out}
    written = [part for part in parts if part.first not in absent]
    sizes: Counter[int] = Counter()
    for part in written:
        sizes.update(part.sizes(geometry))
    recovery.nchunks = sizes.total()
    recovery.nbytes = _nbytes_of(written, geometry)
    last_chunk = written[-1].last_size(geometry) if written else 0
    chunk_size = _plan_chunk_size(sizes, last_chunk, recovery)
    section = _plan_metadata(inspection, left_out, recovery)
    header = _plan_header(
        inspection, recovery.nchunks, chunk_size, last_chunk, bool(section)
    )
    return Plan(recovery, header, section, written, geometry)


def _all_parts(inspection: Inspection) -> Iterator[Part]:
    """Yield all chunks of the damaged file in order, intact and lost ones."""
    number = 0
    for placed in inspection.numbering.in_order:
        if placed.number > number:
            yield Part(None, number, placed.number)
        yield Part(placed.chain, placed.number, placed.stop)
        number = placed.stop
    if number < inspection.numbering.nchunks:
        yield Part(None, number, inspection.numbering.nchunks)


def _plan_filling(
    lost: list[Part], inspection: Inspection, recovery: Recovery
) -> tuple[ChunkGeometry, int]:
    """Return the geometry of the new file, and how many lost parts are filled in.

    No part is filled in if a plain size is unknown. If the parts exceed the limit, the
    chunks behind the last saved one are left out first: a damaged header may state any
    number of them.
    """
    geometry, remarks = inspection.geometry, recovery.remarks
    at_end = bool(lost) and lost[-1].stop == geometry.nchunks
    size = geometry.chunk_size
    if at_end and geometry.last_chunk is None and size is not None:
        remarks.append(
            "the size of the last chunk is not known: '%d' bytes are filled in" % size
        )
        geometry = geometry._replace(last_chunk=size)
    ends = [i for part in lost for i in (part.first, part.stop - 1)]
    if any(geometry.size_of(i) is None for i in ends):
        remarks.append(
            "the sizes of lost chunks are not known: nothing is filled in for them"
        )
        recovery.certain = False
        return geometry, 0
    limit = max(MIN_FILL_LIMIT, FILL_LIMIT_PER_BYTE * inspection.storage.size)
    nbytes = _nbytes_of(lost, geometry)
    if nbytes > limit:
        recovery.certain = False
        if at_end:
            nbytes_at_end = _nbytes_of(lost[-1:], geometry)
            remarks.append(TOO_MUCH % (nbytes_at_end, " at the end"))
            lost, nbytes = lost[:-1], nbytes - nbytes_at_end
    if nbytes > limit:
        remarks.append(TOO_MUCH % (nbytes, ""))
        lost = []
    return geometry, len(lost)


def _nbytes_of(parts: Sequence[Part], geometry: ChunkGeometry) -> int:
    """Return the plain bytes of all chunks of the parts."""
    sizes = [part.sizes(geometry).items() for part in parts]
    return sum(size * count for items in sizes for size, count in items)


# Header and metadata


def _plan_chunk_size(sizes: Counter[int], last: int, recovery: Recovery) -> int:
    """Return the chunk size of the new file, -1 if chunks differ in size."""
    others = [size for size, count in sizes.items() if count > (size == last)]
    chunk_size = others[0] if others else last
    if len(others) > 1 or chunk_size < last:
        recovery.remarks.append(
            "the chunks differ in size: the new file says that their size is unknown"
        )
        return -1
    return chunk_size


def _plan_metadata(
    inspection: Inspection, left_out: list[Loss], recovery: Recovery
) -> bytes:
    """Return the metadata section of the new file; note its state in `recovery`."""
    sections, geometry = inspection.sections, inspection.geometry
    metadata = sections.metadata
    if metadata is None:
        table_first = sections.table.start == BLOSCPACK_HEADER_LENGTH
        if sections.metadata_lost:
            recovery.metadata = "lost"
            recovery.remarks.append("the metadata are lost")
        elif sections.header is None and not table_first:
            recovery.remarks.append("there may have been metadata: none were found")
        return b""
    recovery.metadata = "kept"
    if is_array(metadata.value):
        array, shape = geometry.array, None
        if array is not None:
            shape = _new_shape(array, geometry.row_nbytes, left_out, recovery.nbytes)
        if shape is None or array is None:
            recovery.metadata = "changed"
            recovery.remarks.append(
                "the chunks do not hold the array any more: only plain bytes are "
                "stored, without its metadata"
            )
            return b""
        if shape != list(array.shape):
            recovery.metadata = "changed"
            recovery.remarks.append(
                "the array has the shape %s instead of %s" % (tuple(shape), array.shape)
            )
            return _encode({**metadata.value, "shape": shape}, metadata)
    header, stored = metadata.header, metadata.stored
    room = bytes(header.max_meta_size - len(stored))
    digest = CHECKSUMS_LOOKUP[header.meta_checksum](stored)
    return b"".join((header.encode(), stored, room, digest))


def _new_shape(
    array: Description, row_nbytes: int, left_out: list[Loss], nbytes: int | None
) -> list[int] | None:
    """Return the shape of the array in `nbytes` plain bytes without the lost chunks.

    Return None if what remains is no array.
    """
    shape = list(array.shape)
    if nbytes == array.nbytes:
        return shape
    if not left_out or not row_nbytes:
        return None
    whole_rows = all(
        loss.span is not None
        and loss.span[0] % row_nbytes == 0
        and (loss.span[1] % row_nbytes == 0 or loss.span[1] == array.nbytes)
        for loss in left_out
    )
    if not whole_rows or nbytes is None or nbytes % row_nbytes:
        return None
    return [nbytes // row_nbytes, *shape[1:]]


def _encode(value: Json, old: MetadataSection) -> bytes:
    """Return a metadata section with a new value, and the settings of the old one."""
    header = old.header
    return metadata_section.encode(
        value,
        MetadataArgs(
            magic_format=header.magic_format,
            meta_checksum=header.meta_checksum,
            meta_codec=header.meta_codec,
            meta_level=header.meta_level,
            # A smaller shape has no longer text, but zlib may need more bytes for it.
            max_meta_size=lambda size: max(header.max_meta_size, size),
        ),
    )


def _plan_header(
    inspection: Inspection,
    nchunks: int,
    chunk_size: int,
    last_chunk: int,
    metadata: bool,
) -> BloscpackHeader:
    old, nfree = inspection.sections.header, inspection.sections.table.nfree
    offsets = True
    if old is not None and old.format_version == 3 and old.nchunks != -1:
        offsets = old.offsets
    if nfree is None:
        nfree = DEFAULT_MAX_APP_CHUNKS(nchunks)
    typesize = old.typesize if old is not None else 0
    if not typesize and inspection.numbering.chains:
        typesize = inspection.first_typesize()
    return BloscpackHeader(
        offsets=offsets,
        metadata=metadata,
        checksum=inspection.checksum.name,
        typesize=typesize,
        chunk_size=chunk_size,
        last_chunk=last_chunk,
        nchunks=nchunks,
        max_app_chunks=nfree if offsets else 0,
    )
