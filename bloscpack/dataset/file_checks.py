"""Check one file of a dataset: which of its chunks are intact, and what is wrong.

A shard is inspected as `bloscpack.verify` does, so that intact chunks are found
also if the tables in the file are damaged. Then it is compared with the array that it
belongs to. All other chunks are read as a reader reads them: bcolz and BLZ store no
digests. Damage becomes findings and never raises. The results of checking and of
recovering a dataset are here, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from .._check import findings
from .._check.files import Inspection
from .._check.findings import failure_kind
from .._format.array_metadata import describe_shard
from .._format.grid import lengths, part
from .._format.rows import union, without
from .._format.sections import read_beginning
from .._format.shard import CHECKSUM, DEFAULT_SHARD_CHECKSUM, count_slots
from .._format.text import least_nbytes
from .._storage.base import Storage
from .._storage.cursor import StorageCursor
from .._storage.folder_store import LinkFound
from ..constants import MAGIC, MAX_BUFFERSIZE
from ..exceptions import FormatError, NotReadable, Unsupported
from ..log import counted
from .layouts.array_files import ChunkFiles
from .layouts.base import ArrayLayout
from .layouts.shard_files import ShardFiles
from .layouts.shard_grid import ShardIndex, place_of

# The name of a property, its value in an array, and another value in a file.
Difference = tuple[str, object, object]

MISSING = "missing"
SHORT = "short"
# The kind of the finding about items that only the padding of a chunk has.
PADDING = "padding"
# The kind of the finding about a shard without the header of a `.blp` file.
FOREIGN = "other-program"
OTHER_PROGRAM = "another program has written this, so it has no digest of its content"
LINK = "link"
# The kind of the finding about a folder or a pipe in the place of a file.
NO_FILE = "no-file"


class FileCheck(findings.Report):
    """The report on a file of an array, or on adjacent files that are all missing.

    Attributes
    ----------
    file
        The name of the file in the dataset, with slashes.
    numbers
        The numbers of the chunks that it should have.
    intact
        Number → plain size and compressed size of the intact ones.
    extents
        Number → offset and size of the intact ones in a damaged superchunk, found
        without its tables.
    claimed
        The name that the file states, if another file of the array has this name.
    source
        The name of the file with the extents: another one, if it states this place.
    grid
        How the array is cut.
    certain
        Whether it is proven that the intact chunks have these numbers.
    failure
        The error of the system because of which the file could not be read.
    nfiles
        The number of files.
    """

    def __init__(self, file: str, numbers: Sequence[int], layout: ArrayLayout) -> None:
        super().__init__()
        self.file = file
        self.numbers = numbers
        self.intact: dict[int, tuple[int, int]] = {}
        self.extents: dict[int, tuple[int, int]] = {}
        self.claimed: str | None = None
        self.source = file
        self.certain = True
        self.failure: OSError | None = None
        self.nfiles = 1
        self.grid = layout.grid
        self._may_lack_rows = layout.may_lack_files

    @property
    def lost(self) -> list[tuple[int, int]]:
        """The numbers of the chunks that are not intact, as runs (start, stop)."""
        return gaps_in(self.intact, self.numbers)

    def rows_of(self, first: int, last: int | None = None) -> tuple[int, int]:
        """Return the rows that have items in chunks, as (start, stop)."""
        grid, last = self.grid, first if last is None else last
        if not grid.shape:
            return 0, 1
        return grid.box(first)[0].start, grid.box(last)[0].stop

    def region_of(self, first: int, last: int) -> tuple[findings.Pair, ...] | None:
        """Return the items in a chunk, or in a box of shards; None if these are rows.

        `first` and `last` are the chunks in the corners.
        """
        grid = self.grid
        pairs = zip(grid.box(first), grid.box(last), strict=True)
        region = tuple((a.start, b.stop) for a, b in pairs)
        return None if region[1:] == tuple((0, n) for n in grid.shape[1:]) else region

    @property
    def all_rows(self) -> tuple[int, int]:
        """The rows of the array that are in the file."""
        return self.rows_of(self.numbers[0], self.numbers[-1])

    def add(self, section: str, kind: str, message: str, **where: Any) -> None:
        """Add a finding; a note if readers take missing rows for fill values."""
        if self._may_lack_rows and kind in (MISSING, SHORT):
            message += ": the rows have the fill value"
            where["severity"] = findings.NOTE
        number = where.pop("number", None)
        if number is not None:
            where["rows"] = self.rows_of(number)
            where["region"] = self.region_of(number, number)
        super().add(section, kind, message, file=self.file, **where)

    def add_of_file(self, finding: findings.Finding) -> None:
        """Add a finding about the file; its chunks and rows count from the file on."""
        at: dict[str, object] = {"chunk": finding.chunk, "offset": finding.offset}
        if finding.rows is not None:
            start, stop = self.all_rows
            first, last = (min(start + row, stop) for row in finding.rows)
            at["rows"] = (first, last) if first < last else None
        elif finding.chunk is not None and finding.chunk < len(self.numbers):
            at["number"] = self.numbers[finding.chunk]
        severity = finding.severity
        self.add(
            finding.section, finding.kind, finding.message, severity=severity, **at
        )

    def count(self) -> None:
        """Set the counts of the report."""
        # Other programs leave out chunks, which are not damaged.
        self.nchunks = len(self.numbers)
        self.nintact = self.nchunks if self.ok else len(self.intact)
        self.nbytes_intact = sum(nbytes for nbytes, _ in self.intact.values())


def missing_files(
    layout: ArrayLayout, source: ChunkFiles, files: tuple[int, int]
) -> FileCheck:
    """Return the finding about files, [start, stop), that do not exist."""
    start, stop = files
    full, names = source.folder.full, source.names
    numbers = source.cut.chunks_of(start)
    if stop - start > 1:
        numbers = range(numbers[0], source.cut.chunks_of(stop - 1)[-1] + 1)
    check = FileCheck(full(names(start)), numbers, layout)
    message = "the file is missing"
    if stop - start > 1:
        last = full(names(stop - 1))
        message = "%d files are missing, up to '%s'" % (stop - start, last)
    check.nfiles = stop - start
    check.add("files", MISSING, message, rows=check.all_rows)
    return check


def move_claimed(
    checks: list[FileCheck], layout: ArrayLayout, source: ChunkFiles, nthreads: int
) -> None:
    """Let the checks of lost files take the chunks of the files that claim their place.

    Nothing is taken if the place has intact chunks, or if two files claim it.
    """
    claims: dict[str, list[str]] = {}
    for check in checks:
        if check.claimed is not None:
            claims.setdefault(check.claimed, []).append(check.file)
    prefix = source.folder.prefix
    for check in checks if claims else ():
        files = claims.get(check.file.removeprefix(prefix), ())
        if len(files) != 1 or check.intact or check.nfiles > 1:
            continue
        number, name = check.numbers[0] // source.slots, files[0]
        name = name.removeprefix(prefix)
        moved = check_file(layout, source, number, nthreads, name)
        check.failure = moved.failure
        if moved.certain:
            check.source, check.extents = moved.file, moved.extents
            check.intact = moved.intact


def check_file(
    layout: ArrayLayout, source: ChunkFiles, number: int, nthreads: int, name: str = ""
) -> FileCheck:
    """Check a file of an array, or the file `name` in its place.

    Enter `own_settings` first.
    """
    folder, name = source.folder, name or source.names(number)
    check = FileCheck(folder.full(name), source.cut.chunks_of(number), layout)
    try:
        check.cbytes = folder.size(name)
        if isinstance(source, ShardFiles):
            _check_shard(check, source.storage(name), source, nthreads)
        else:
            _check_by_reading(check, source)
    except FileNotFoundError:
        check.add("files", MISSING, "the file is missing", rows=check.all_rows)
    except FormatError as error:
        check.add("chunks", "damaged", error.message, rows=check.all_rows)
    except OSError as error:
        kind = failure_kind(error)
        if kind is None:
            kind = LINK if isinstance(error, LinkFound) else NO_FILE
        else:
            check.failure = error
        check.add("files", kind, error.strerror or str(error), rows=check.all_rows)
    return check


def plain_nbytes(source: ChunkFiles, number: int) -> int:
    """Return the number of plain bytes of a chunk without padding."""
    nitems = math.prod(lengths(source.cut.box(number)))
    return source.chunk_size * nitems // math.prod(source.cut.chunk)


# Chunks that are read as a reader reads them


def _check_by_reading(
    check: FileCheck, source: ChunkFiles, sizes: list[int] | None = None
) -> None:
    """Check chunks without a search; `sizes` has the size of each frame in a shard."""
    for slot, number in enumerate(check.numbers):
        try:
            source.load([number], lambda _, plain: (source.decode or len)(plain))
        except FormatError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                check.add("files", MISSING, "the file is missing", number=number)
                continue
            kind = "codec" if isinstance(error, Unsupported) else "damaged"
            check.add("chunks", kind, error.message, chunk=slot, number=number)
            continue
        cbytes = check.cbytes
        if sizes is not None:
            size = sizes[number % source.slots]
            cbytes = size and size - CHECKSUM.size
        check.intact[number] = plain_nbytes(source, number), cbytes


# Shards


def _check_shard(
    check: FileCheck, storage: Storage, source: ShardFiles, nthreads: int
) -> None:
    if bytes(storage.read_at(0, len(MAGIC))) != MAGIC:
        with suppress(FormatError):
            index = ShardIndex(storage, source.sharding)
            if index.foreign:
                check.note("header", FOREIGN, OTHER_PROGRAM)
                _, sizes = index.extents_of(range(source.slots))
                _check_by_reading(check, source, sizes)
                return
    try:
        inspection = Inspection(storage, nthreads)
    except (NotReadable, Unsupported) as error:
        check.add("header", "not-superchunk", error.message, rows=check.all_rows)
        return
    for finding in inspection.report.findings:
        check.add_of_file(finding)
    _take_chunks(check, inspection, source)
    states_place = True
    if inspection.report.ok:
        _compare(check, storage, source)
        if check.ok and source.decode is not None:
            _check_texts(check, source)
    else:
        states_place = _compare_damaged(check, inspection, source)
    if not (inspection.report.ok and check.ok):
        check.certain = states_place and not inspection.proof.numbers


def _check_texts(check: FileCheck, source: ShardFiles) -> None:
    """Check the texts in the intact chunks, which digests do not describe."""
    for number in [*check.intact]:
        try:
            source.load([number], lambda _, plain: (source.decode or len)(plain))
        except FormatError as error:
            del check.intact[number]
            check.add("chunks", "damaged", error.message, number=number)


def _take_chunks(check: FileCheck, inspection: Inspection, source: ShardFiles) -> None:
    """Note the intact chunks that have as many bytes as the array needs.

    The file may have more items than the array along some axes.
    """
    numbers, described = check.numbers, inspection.geometry.array
    metadata, most = inspection.sections.metadata, source.chunk_size
    if source.decode is not None and metadata is not None:
        most = MAX_BUFFERSIZE
        with suppress(FormatError):
            described = describe_shard(metadata.value)
    if described is not None and len(described.shape) == len(source.cut.shape):
        numbers = source.cut.chunks_of(numbers[0] // source.slots, described.shape)
    expected = set(check.numbers)
    for i, offset, nbytes, cbytes in inspection.intact_chunks():
        if i >= len(numbers) or numbers[i] not in expected:
            continue
        number = numbers[i]
        box = source.cut.box(number)
        shape, least = lengths(box), source.chunk_size
        if source.decode is not None:
            least = least_nbytes(math.prod(source.cut.chunk))
        if described is not None and box and len(described.shape) == len(box):
            corner = source.cut.corner(number // source.slots * source.slots)
            inside = part(corner, described.shape, source.cut.shape)
            pairs = zip(box, inside, strict=True)
            there = [max(0, min(a.stop, b.stop) - a.start) for a, b in pairs]
            if described.grid is None:
                # It states rows, the last of which may be in a short chunk.
                least = there[0] * (source.chunk_size // source.cut.chunk[0])
            if any(map(int.__lt__, there, shape)):
                if not source.sparse:
                    message = "expected items of shape %s in the chunk, found %s"
                    message %= shape, tuple(there)
                    check.add("chunks", "size", message, chunk=i, number=number)
                    continue
                message = (
                    "items of shape %s were written to the chunk, and others are there "
                    "since another program made the array longer: they have its padding"
                )
                message %= (tuple(there),)
                check.note("chunks", PADDING, message, chunk=i, number=number)
        if least <= nbytes <= most:
            check.intact[number] = plain_nbytes(source, number), cbytes
            check.extents[number] = offset, cbytes
            continue
        message = "expected a chunk of '%d' plain bytes, found '%d'"
        message %= most if source.decode is None else least, nbytes
        check.add("chunks", "size", message, chunk=i, number=number)


def _compare(check: FileCheck, storage: Storage, source: ShardFiles) -> None:
    """Compare an intact file with its array."""
    beginning = read_beginning(StorageCursor(storage))
    metadata, header, sharding = beginning.metadata, beginning.header, source.sharding
    differences: list[Difference] = [
        ("chunks in a file", source.slots, count_slots(header, metadata)),
        ("the checksum", DEFAULT_SHARD_CHECKSUM, header.checksum),
    ]
    differences = [each for each in differences if each[1] != each[2]]
    differences += sharding.differences(check.numbers[0] // source.slots, metadata)
    if differences:
        _refuse(check, source, differences, "the file is intact, and")
    if not check.ok:
        return
    if check.lost:
        rows = check.rows_of(check.lost[0][0], check.numbers[-1])
        message = "expected chunks up to row %d, found them up to row %d"
        check.add("chunks", SHORT, message % (rows[1], rows[0]), rows=rows)
    _check_index(check, storage, source)
    if place_of(metadata) is None and sharding.identity is not None:
        message = "it does not state its array: another program wrote the file"
        check.note("metadata", FOREIGN, message)
    has = describe_shard(metadata).shape
    least = lengths(source.cut.shard_box(check.numbers[0] // source.slots))
    if check.ok and any(map(int.__gt__, has, least)):
        message = (
            "the file has items of shape %s, and the array %s of them: a resize, or an "
            "append that was interrupted, has left the others there" % (has, least)
        )
        check.note("metadata", "more-rows", message)


def _compare_damaged(
    check: FileCheck, inspection: Inspection, source: ShardFiles
) -> bool:
    """Compare the metadata of a damaged file with its array, if they are intact.

    Returns whether they are: without them, the file may belong to another place.
    """
    metadata, report = inspection.sections.metadata, inspection.report
    damaged = {f.section for f in report.findings if f.severity == findings.ERROR}
    if metadata is None or "metadata" in damaged:
        return not source.sharding.identity
    number = check.numbers[0] // source.slots
    differences = [*source.sharding.differences(number, metadata.value)]
    if differences:
        _refuse(check, source, differences, "the file is damaged, and")
    return True


def _refuse(
    check: FileCheck, source: ShardFiles, differences: Sequence[Difference], state: str
) -> None:
    """Report how a file differs from its array: its chunks belong elsewhere."""
    if [name for name, *_ in differences] == ["the file"] and source.sharding.identity:
        check.claimed = str(differences[0][2])
    for difference in differences:
        message = "expected %s: %s, found %s" % difference
        if check.claimed is not None:
            message = "%s states that it is '%s'" % (state, check.claimed)
        check.add("metadata", "array", message, rows=check.all_rows)
    check.intact.clear()
    check.extents.clear()


def _check_index(check: FileCheck, storage: Storage, source: ShardFiles) -> None:
    """Check that the index, through which arrays are read, has the chunks."""
    slots = source.slots
    try:
        _, sizes = ShardIndex(storage, source.sharding).extents_of(range(slots))
    except FormatError as error:
        check.add("shard", "index", error.message)
        return
    missing = [n for n in check.intact if not sizes[n % slots]]
    if missing:
        message = "the index of the shard lacks %d of its chunks" % len(missing)
        check.add("shard", "index", message, number=missing[0])


@dataclass(frozen=True, repr=False)
class RowLoss(findings.Record):
    """Adjacent rows that are lost.

    Attributes
    ----------
    member
        The array: names with slashes, of members, columns and fields. Empty for the
        dataset itself.
    rows
        The rows, as (start, stop); None if nothing of the array can be read.
    region
        Start and stop along each axis of the items that are lost, if they are only a
        part of these rows; else None.
    """

    member: str
    rows: findings.Pair | None
    region: tuple[findings.Pair, ...] | None = None

    optional = ("region",)

    def __str__(self) -> str:
        text = (
            ", ".join(findings.plain_position(None, self.rows, self.region))
            or "all of it"
        )
        return "'%s': %s" % (self.member, text) if self.member else text


@dataclass(eq=False, repr=False)
class DatasetReport(findings.Report):
    """The result of checking a dataset.

    The other attributes are those of `bloscpack.verify.Report`.

    Attributes
    ----------
    filename, layout, kind
        The folder, the name of its layout, and ``'array'``, ``'table'`` or ``'group'``.
    narrays
        The number of arrays, columns included.
    nfiles
        The number of files with chunks that the dataset should have.
    cbytes
        The size in bytes of the files that were found.
    losses
        A `RowLoss` for each run of rows that are not intact.
    """

    layout: str = ""
    kind: str = ""
    narrays: int = 0
    nfiles: int = 0
    losses: list[RowLoss] = field(default_factory=list)

    @property
    def path(self) -> str:
        """The folder."""
        return self.filename or ""


@dataclass(eq=False, repr=False)
class DatasetRecovery(findings.Record):
    """The result of recovering a dataset.

    Attributes
    ----------
    report
        The `DatasetReport` on the damaged dataset.
    losses
        A `RowLoss` for each run of rows that the new dataset does not have, or that
        have fill values.
    nsaved, nlost
        The number of chunks that were copied, and of those that are lost.
    lost_attributes
        The members and columns whose attributes are lost; ``'.'`` for the dataset.
    remarks
        Sentences about other differences between the new and the damaged dataset.
    certain
        Whether it is proven that all chunks are at their positions.
    """

    report: DatasetReport
    losses: list[RowLoss] = field(default_factory=list)
    nsaved: int = 0
    nlost: int = 0
    lost_attributes: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    certain: bool = True

    derived = ("complete",)

    @property
    def complete(self) -> bool:
        """Whether it is certain that nothing is lost."""
        return self.certain and not self.losses and not self.lost_attributes

    def __repr__(self) -> str:
        saved = counted(self.nsaved, "chunk")
        complete = "" if self.complete else ", not complete"
        return "<DatasetRecovery: %s saved, %d lost%s>" % (saved, self.nlost, complete)


def gaps_in(present: Iterable[int], numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the numbers that were not found, as runs (start, stop).

    The range may be too long to walk through it.
    """
    runs = union((number, number + 1) for number in present)
    if isinstance(numbers, range):
        return without([(numbers.start, numbers.stop)], runs)
    return without(union((number, number + 1) for number in numbers), runs)
