"""``blpk info --chunks``: the sizes and the state of every chunk.

All chunks are checked. A damaged or missing chunk has a row without sizes, and errors
outside of the chunks follow the table.
"""

from __future__ import annotations

from .._damage.findings import ERROR, counted
from .._reading.description import ratio_of
from .console import console
from .display import UNKNOWN, size_text
from .exit_codes import EXIT_DAMAGED, EXIT_OK
from .stdio import plain_name, shown_input

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterable

    from .._crashsafe.snapshot import Check
    from .._damage.inspection import Inspection
    from .._storage.protocols import Seekable
    from ..dataset.file_checks import FileCheck
    from ..serializers import JsonObject

# Plain size, compressed size, ratio, number, state.
ROW = "%8s  %8s  %8s  %8s  %s"


class ChunkTable:
    """The chunks of a file or a dataset, and the errors outside of the chunks.

    A row has ``nbytes`` and ``cbytes``, which are None for a damaged or missing chunk.
    """

    def __init__(self) -> None:
        self.rows: list[JsonObject] = []
        self.errors: list[str] = []

    @property
    def ndamaged(self) -> int:
        """Number of damaged or missing chunks."""
        return sum(row["nbytes"] is None for row in self.rows)

    @property
    def code(self) -> int:
        """The exit code."""
        return EXIT_DAMAGED if self.ndamaged or self.errors else EXIT_OK

    def add(
        self,
        numbers: Iterable[int],
        intact: dict[int, tuple[int, int]],
        place: JsonObject,
    ) -> None:
        """Add rows for chunks.

        Parameters
        ----------
        numbers
            The numbers of the chunks.
        intact
            Plain and compressed size of each intact chunk, by number.
        place
            Fields of each row that tell where the chunks are.
        """
        for number in numbers:
            nbytes, cbytes = intact.get(number, (None, None))
            sizes = {"nbytes": nbytes, "cbytes": cbytes}
            self.rows.append({**place, "chunk": number, **sizes})

    def as_dict(self, path: str) -> JsonObject:
        """Return the table as a JSON object."""
        return {
            "file": plain_name(path),
            "nchunks": len(self.rows),
            "ndamaged": self.ndamaged,
            "chunks": self.rows,
            "errors": self.errors,
        }

    def show(self, path: str) -> None:
        """Print the table, a total, and the errors."""
        console.say(ROW % ("plain", "packed", "ratio", "chunk", "state"))
        nbytes = cbytes = 0
        for row in self.rows:
            state = "damaged" if row["nbytes"] is None else "ok"
            if "file" in row:
                state += "  " + row["file"]
            nbytes += row["nbytes"] or 0
            cbytes += row["cbytes"] or 0
            sizes = _sizes(row["nbytes"], row["cbytes"])
            console.say(ROW % (*sizes, row["chunk"], state))
        total = "%s, %d damaged: %s" % (
            counted(len(self.rows), "chunk"),
            self.ndamaged,
            shown_input(path),
        )
        console.say("%8s  %8s  %8s  %s" % (*_sizes(nbytes, cbytes), total))
        for error in self.errors:
            console.say(error)


def _sizes(nbytes: int | None, cbytes: int | None) -> tuple[str, str, str]:
    """Return plain size, compressed size and ratio as texts."""
    if nbytes is None or cbytes is None:
        return UNKNOWN, UNKNOWN, UNKNOWN
    return size_text(nbytes), size_text(cbytes), "%.2f" % ratio_of(nbytes, cbytes)


def of_file(path: str, nthreads: int) -> ChunkTable:
    """Return the chunks of a file after a check of all; damage does not raise."""
    from .._archives.detection import refuse_archive
    from .._crashsafe.snapshot import read_snapshot
    from .._damage.inspection import inspect
    from .._engine.blosc_settings import own_settings
    from .._loop.nthreads import effective_nthreads
    from .._storage.spool import positional

    def read(fp: Seekable, check: Check) -> ChunkTable:
        with positional(fp) as storage:
            refuse_archive(storage)
            inspection = inspect(storage, effective_nthreads(nthreads, None))
            table = _of_inspection(inspection)
        if inspection.sections.header is not None:
            check(inspection.sections.header)
        return table

    with own_settings:
        return read_snapshot(path, read)


def _of_inspection(inspection: Inspection) -> ChunkTable:
    from .._damage.checks import report_on

    intact = {}
    numbering = inspection.numbering
    for first, chain in zip(numbering.numbers, numbering.chains, strict=True):
        for i, offset in enumerate(chain.offsets):
            cbytes = chain.stop_of(i) - offset - inspection.checksum.size
            intact[first + i] = chain.sizes[i], cbytes
    numbers = range(inspection.geometry.nchunks)
    table = ChunkTable()
    table.add(numbers, intact, {})
    damaged = set(numbers) - intact.keys()
    for finding in report_on(inspection).findings:
        has_row = finding.section == "chunks" and finding.chunk in damaged
        if finding.severity == ERROR and not has_row:
            table.errors.append(str(finding))
    return table


def of_dataset(path: str, nthreads: int) -> ChunkTable:
    """Return the chunks of a dataset after a check of all, array by array."""
    from ..dataset.checking import Watcher, check_dataset

    table = ChunkTable()

    class Rows(Watcher):
        def take_file(self, name: str, check: FileCheck) -> None:
            table.add(check.numbers, check.intact, {"file": check.file})

    report = check_dataset(path, nthreads, watcher=Rows())
    table.errors += [str(f) for f in report.findings if f.severity == ERROR]
    return table
