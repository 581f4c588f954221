"""What `recover` will write: planned from what was found, without reading or writing.

The plan is pure: an `Inspection` goes in; out come the header, the metadata section and
the chunks of the new file, and what to tell of it.
"""

from __future__ import annotations

from collections import Counter

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
from .geometry import ChunkGeometry

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .findings import Pair, Report
    from .inspection import Inspection
    from .scan import Chain


# So many plain bytes are always filled in, and so many for each byte of the file: as
# much as a file of usual compression can have lost, if a hundredth of it is left.
FILLED_ALWAYS = 2**28
FILLED_PER_BYTE = 1000


class Loss:
    """Consecutive chunks that are lost; all pairs are (start, stop).

    ``chunks`` are their numbers in the damaged file, ``span`` the plain bytes and
    ``rows`` the rows of the array that are gone, None if nobody can tell.
    """

    __slots__ = ("chunks", "rows", "span")

    def __init__(self, chunks: Pair, span: Pair | None, rows: Pair | None) -> None:
        self.chunks = chunks
        self.span = span
        self.rows = rows

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, as JSON can hold them."""
        return {
            name: None if pair is None else list(pair)
            for name, pair in ((name, getattr(self, name)) for name in self.__slots__)
        }

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
    """What `recover` has saved.

    ``report`` is what `verify` says of the damaged file. ``nsaved`` chunks were copied
    and ``nlost`` were not; ``losses`` tells which. ``nchunks`` and ``nbytes`` are those
    of the new file. ``metadata`` is ``'kept'``, ``'changed'``, ``'lost'`` or
    ``'none'``, and ``remarks`` are sentences on what the new file has otherwise than
    the damaged one. ``certain`` is False if chunks may stand at other places than
    before, because their numbers or sizes had to be guessed.
    """

    def __init__(self, report: Report, certain: bool) -> None:
        self.report = report
        self.nsaved = 0
        self.nlost = 0
        self.losses: list[Loss] = []
        self.nchunks = 0
        self.nbytes: int | None = None
        self.metadata = "none"
        self.remarks: list[str] = []
        self.certain = certain

    @property
    def complete(self) -> bool:
        """Whether it is certain that nothing is lost, nor a second file left out."""
        alone = all(finding.kind != ANOTHER for finding in self.report.findings)
        return alone and self.certain and not self.nlost and self.metadata != "lost"

    def as_dict(self) -> dict[str, Any]:
        """Return everything, as JSON can hold it."""
        return {
            **vars(self),
            "complete": self.complete,
            "report": self.report.as_dict(),
            "losses": [loss.as_dict() for loss in self.losses],
        }

    def __repr__(self) -> str:
        return "<Recovery: %d chunks saved, %d lost>" % (self.nsaved, self.nlost)


class Part:
    """Consecutive chunks of the new file: copied from a chain, or filled in.

    ``start`` and ``stop`` are places in ``chain``; without one, numbers of chunks.
    """

    def __init__(self, chain: Chain | None, start: int, stop: int, first: int) -> None:
        self.chain = chain
        self.start = start
        self.stop = stop
        self.first = first

    def __len__(self) -> int:
        return self.stop - self.start


class Plan:
    """The new file: header, metadata section and chunks, and what to tell about it."""

    def __init__(self, recovery: Recovery, geometry: ChunkGeometry) -> None:
        self.recovery = recovery
        self.geometry = geometry
        self.parts: list[Part] = []
        self.section = b""
        self.header = BloscpackHeader()
        self.sizes: tuple[int, int] = (0, 0)


def plan_recovery(inspection: Inspection, drop: bool) -> Plan:
    """Return what to write; raises `FormatError` if there is nothing to be saved."""
    report = report_on(inspection)
    plan = Plan(Recovery(report, inspection.places.certain), ChunkGeometry(inspection))
    recovery, geometry = plan.recovery, plan.geometry
    parts = list(_parts(inspection, geometry.nchunks))
    plan.parts = [part for part in parts if part.chain is not None]
    recovery.nsaved = sum(map(len, plan.parts))
    # Metadata that are wrong are no reason not to write a file without chunks.
    damaged = geometry.nchunks or any(
        f.section != "metadata" and f.severity == ERROR for f in report.findings
    )
    if not recovery.nsaved and damaged:
        raise FormatError("no chunk could be saved", section="chunks")
    lost = [part for part in parts if part.chain is None]
    for part in lost:
        span = geometry.span(part.first, part.first + len(part))
        numbers = part.first, part.first + len(part)
        recovery.losses.append(Loss(numbers, span, geometry.rows(span)))
        recovery.nlost += len(part)
    if not drop and _can_fill(lost, geometry, recovery):
        plan.parts = _bounded(parts, plan, inspection.storage.size)
    written = {part.first for part in plan.parts}
    left_out = [
        loss
        for part, loss in zip(lost, recovery.losses, strict=True)
        if part.first not in written
    ]
    _plan_sizes(plan)
    _plan_metadata(plan, inspection, left_out)
    _plan_header(plan, inspection)
    return plan


def _parts(inspection: Inspection, nchunks: int) -> Iterator[Part]:
    """Yield all chunks, in order: runs of good ones, and of lost ones between."""
    number = 0
    places = inspection.places
    for first, chain in zip(places.numbers, inspection.survey.chains, strict=True):
        if first > number:
            yield Part(None, number, first, number)
        yield Part(chain, 0, len(chain), first)
        number = first + len(chain)
    if number < nchunks:
        yield Part(None, number, nchunks, number)


def _can_fill(lost: list[Part], geometry: ChunkGeometry, recovery: Recovery) -> bool:
    """Return whether the plain size of every lost chunk is known."""
    for part in lost:
        if (
            part.stop == geometry.nchunks
            and geometry.last is None
            and geometry.full is not None
        ):
            recovery.remarks.append(
                "the size of the last chunk is not known: '%d' bytes are filled in"
                % geometry.full
            )
            geometry.last = geometry.full
        if any(geometry.expected(i) is None for i in (part.start, part.stop - 1)):
            recovery.remarks.append(
                "the sizes of lost chunks are not known: nothing is filled in for them"
            )
            recovery.certain = False
            return False
    return True


def _bounded(parts: list[Part], plan: Plan, size: int) -> list[Part]:
    """Return the parts that are written, without more filling than is sensible.

    What a file of `size` bytes has lost can't be much more than what it holds. A header
    that lies may say so; then the end, behind the last chunk saved, goes first.
    """
    geometry, recovery = plan.geometry, plan.recovery
    most = max(FILLED_ALWAYS, FILLED_PER_BYTE * size)
    filled = sum(_nbytes(part, geometry) for part in parts if part.chain is None)
    last = parts[-1] if parts else None
    if filled > most and last is not None and last.chain is None:
        recovery.remarks.append(
            "chunks are said to be missing at the end, '%d' plain bytes, which is more "
            "than is believed: nothing is filled in for them" % _nbytes(last, geometry)
        )
        recovery.certain = False
        filled -= _nbytes(last, geometry)
        parts = parts[:-1]
    if filled > most:
        recovery.remarks.append(
            "'%d' plain bytes are said to be missing, which is more than is believed: "
            "nothing is filled in for them" % filled
        )
        recovery.certain = False
        parts = plan.parts
    return parts


def _nbytes(part: Part, geometry: ChunkGeometry) -> int:
    """Return the plain bytes that a lost part had."""
    return (len(part) - 1) * (geometry.full or 0) + (
        geometry.expected(part.stop - 1) or 0
    )


def _plan_sizes(plan: Plan) -> None:
    """Set chunk size and last chunk of the new file, and its number of bytes."""
    geometry = plan.geometry
    sizes: dict[int, int] = {}
    last, nbytes = 0, 0
    for part in plan.parts:
        if part.chain is not None:
            found = part.chain.sizes[part.start : part.stop]
            for size, count in Counter(found).items():
                sizes[size] = sizes.get(size, 0) + count
            last, nbytes = found[-1], nbytes + sum(found)
        else:
            last = geometry.expected(part.stop - 1) or 0
            full = geometry.full or 0
            sizes[last] = sizes.get(last, 0) + 1
            if len(part) > 1:
                sizes[full] = sizes.get(full, 0) + len(part) - 1
            nbytes += full * (len(part) - 1) + last
    nchunks = sum(map(len, plan.parts))
    if sizes:
        sizes[last] -= 1
    others = [size for size, count in sizes.items() if count]
    full = others[0] if others else last
    if len(others) > 1 or full < last:
        full = -1
        plan.recovery.remarks.append(
            "the chunks differ in size: the new file says that their size is unknown"
        )
    plan.sizes = full, last
    plan.recovery.nchunks, plan.recovery.nbytes = nchunks, nbytes


def _plan_metadata(plan: Plan, inspection: Inspection, left_out: list[Loss]) -> None:
    """Set the metadata section of the new file."""
    recovery, header = plan.recovery, inspection.metadata_header
    geometry = plan.geometry
    if header is None:
        if inspection.metadata_lost:
            recovery.metadata = "lost"
            recovery.remarks.append("the metadata are lost")
        elif (
            inspection.header is None and inspection.table_at != BLOSCPACK_HEADER_LENGTH
        ):
            recovery.remarks.append("there may have been metadata: none were found")
        return
    recovery.metadata = "kept"
    description, metadata = geometry.description, inspection.metadata
    if is_array(metadata):
        shape = None if description is None else _new_shape(plan, geometry, left_out)
        if shape is None or description is None:
            recovery.metadata = "changed"
            recovery.remarks.append(
                "the chunks are no longer those of the array: only plain bytes are "
                "stored, without its metadata"
            )
            return
        if shape != list(description.shape):
            recovery.metadata = "changed"
            recovery.remarks.append(
                "the array has the shape %s instead of %s"
                % (tuple(shape), description.shape)
            )
            plan.section = _encoded({**metadata, "shape": shape}, inspection)
            return
    stored = inspection.metadata_stored
    room = bytes(header.max_meta_size - len(stored))
    digest = CHECKSUMS_LOOKUP[header.meta_checksum](stored)
    plan.section = b"".join((header.encode(), stored, room, digest))


def _new_shape(
    plan: Plan, geometry: ChunkGeometry, left_out: list[Loss]
) -> list[int] | None:
    """Return the shape that the array will have, None if what is left is none."""
    description, nbytes = geometry.description, plan.recovery.nbytes
    assert description is not None
    shape = list(description.shape)
    if nbytes == description.nbytes:
        return shape
    if not left_out or not geometry.row:
        return None
    spans = [loss.span for loss in left_out]
    whole = all(
        span is not None
        and span[0] % geometry.row == 0
        and (span[1] % geometry.row == 0 or span[1] == description.nbytes)
        for span in spans
    )
    if not whole or nbytes is None or nbytes % geometry.row:
        return None
    return [nbytes // geometry.row, *shape[1:]]


def _encoded(metadata: Any, inspection: Inspection) -> bytes:
    """Return a section for new metadata, with the settings and room of the old."""
    old = inspection.metadata_header
    assert old is not None
    return metadata_section.encode(
        metadata,
        MetadataArgs(
            magic_format=old.magic_format,
            meta_checksum=old.meta_checksum,
            meta_codec=old.meta_codec,
            meta_level=old.meta_level,
            # A shape of fewer rows is no longer, but zlib may make more of it.
            max_meta_size=lambda size: max(old.max_meta_size, size),
        ),
    )


def _plan_header(plan: Plan, inspection: Inspection) -> None:
    old, nchunks = inspection.header, plan.recovery.nchunks
    known = old is not None and old.format_version == 3 and old.nchunks != -1
    offsets = old.offsets if known and old is not None else True
    free = inspection.free
    if free is None:
        free = DEFAULT_MAX_APP_CHUNKS(nchunks)
    typesize = old.typesize if old is not None else 0
    if not typesize and inspection.survey.chains:
        start = inspection.survey.chains[0].start
        typesize = inspection.storage.read_at(start, 4)[3]
    plan.header = BloscpackHeader(
        offsets=offsets,
        metadata=bool(plan.section),
        checksum=inspection.checksum.name,
        typesize=typesize,
        chunk_size=plan.sizes[0],
        last_chunk=plan.sizes[1],
        nchunks=nchunks,
        max_app_chunks=free if offsets else 0,
    )
