"""``blpk info --chunks``: the sizes and the state of every chunk.

All chunks are checked. A damaged or missing chunk has a row without sizes, and errors
outside of the chunks follow the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from .._check.findings import ERROR, counted
from .._storage.protocols import Seekable
from ..describe import ratio_of
from .console import console, plain_name, shown_input
from .display import UNKNOWN, size_text
from .exit_codes import EXIT_DAMAGED, EXIT_OK

if TYPE_CHECKING:
    from .._check.files import Inspection
    from .._commit.snapshot import Check
    from ..serializers import JsonObject

# Plain size, compressed size, ratio, number, state.
ROW = "%8s  %8s  %8s  %8s  %s"


class ChunkTable:
    """The chunks of a file or a dataset, and the errors outside of the chunks.

    A row has the number ``chunk``, and ``nbytes`` and ``cbytes``, which are None for a
    damaged or missing chunk; in a dataset also the name of the ``file``.
    """

    def __init__(self, rows: list[JsonObject], errors: list[str]) -> None:
        self.rows = rows
        self.errors = errors
        self.ndamaged = sum(row["nbytes"] is None for row in rows)
        self.code = EXIT_DAMAGED if self.ndamaged or errors else EXIT_OK

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


def rows_of(
    numbers: Iterable[int], intact: Mapping[int, tuple[int, int]], **place: str
) -> Iterator[JsonObject]:
    """Yield the rows of the chunks with some numbers.

    `intact` has plain and compressed size of each intact chunk. `place` are more fields
    of each row.
    """
    for number in numbers:
        nbytes, cbytes = intact.get(number, (None, None))
        yield {**place, "chunk": number, "nbytes": nbytes, "cbytes": cbytes}


def _sizes(nbytes: int | None, cbytes: int | None) -> tuple[str, str, str]:
    """Return plain size, compressed size and ratio as texts."""
    if nbytes is None or cbytes is None:
        return UNKNOWN, UNKNOWN, UNKNOWN
    return size_text(nbytes), size_text(cbytes), "%.2f" % ratio_of(nbytes, cbytes)


def of_file(path: str, nthreads: int) -> ChunkTable:
    """Return the chunks of a file after a check of all; damage does not raise."""
    from .._check.files import Inspection
    from .._commit.snapshot import read_snapshot
    from .._engine.blosc_settings import own_settings
    from .._file.archive_reading import refuse_archive
    from .._loop import effective_nthreads
    from .._storage.stream import positional

    def read(fp: Seekable, check: Check) -> ChunkTable:
        with positional(fp) as storage:
            refuse_archive(storage)
            inspection = Inspection(storage, effective_nthreads(nthreads, None))
            table = _of_inspection(inspection)
        if inspection.sections.header is not None:
            check(inspection.sections.header)
        return table

    with own_settings:
        return read_snapshot(path, read)


def _of_inspection(inspection: Inspection) -> ChunkTable:
    intact = {
        number: (nbytes, cbytes)
        for number, _, nbytes, cbytes in inspection.intact_chunks()
    }
    numbers = range(inspection.geometry.nchunks)
    damaged = set(numbers) - intact.keys()
    errors = [
        str(finding)
        for finding in inspection.report.findings
        if finding.severity == ERROR
        and not (finding.section == "chunks" and finding.chunk in damaged)
    ]
    return ChunkTable(list(rows_of(numbers, intact)), errors)


def of_dataset(path: str, nthreads: int) -> ChunkTable:
    """Return the chunks of a dataset after a check of all, array by array."""
    from ..dataset.checking import DatasetCheck

    found = DatasetCheck(path, nthreads, keep_sound=True)
    rows: list[JsonObject] = []
    for _, check in found.files:
        rows.extend(rows_of(check.numbers, check.intact, file=check.file))
    errors = [str(f) for f in found.report.findings if f.severity == ERROR]
    return ChunkTable(rows, errors)
