"""The results of checking and of recovering a dataset.

Records only; nothing here reads a file. The files of a dataset have names relative to
its folder, with slashes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .._damage.findings import (
    ERROR,
    FINDINGS_KEPT,
    NOTE,
    Record,
    counted,
    place_in_file,
)
from .._format.row_sets import union, without

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .._damage.findings import Pair
    from ..serializers import JsonObject


# The numbers of a report that are sums over its parts.
SUMS = (
    *("nerrors", "nnotes", "narrays", "nfiles", "nchunks", "nintact"),
    *("nbytes", "nbytes_intact", "cbytes"),
)


@dataclass(frozen=True, repr=False)
class DatasetFinding(Record):
    """A difference between a dataset and its layout.

    Attributes
    ----------
    file
        The name of the file or folder; ``'.'`` for the folder of the dataset.
    section
        ``'metadata'`` for descriptions, ``'chunks'``, ``'files'`` for the files that
        are there; for a superchunk also the sections of `bloscpack.verify.Finding`.
    kind
        A short word that stays the same from release to release.
    message
        A sentence for people.
    severity
        ``'error'`` or ``'note'``.
    chunk
        The number of the chunk in its file, or None.
    offset
        A position in the file in bytes, or None.
    rows
        The rows of the array that are concerned, as (start, stop), or None.
    """

    file: str
    section: str
    kind: str
    message: str
    severity: str = ERROR
    chunk: int | None = None
    offset: int | None = None
    rows: Pair | None = None

    def __str__(self) -> str:
        place = place_in_file(self.section, self.chunk, self.offset)
        if self.rows is not None:
            place.append("rows %d to %d" % self.rows)
        text = self.severity, self.file, self.message, ", ".join(place)
        return "%s: '%s': %s (%s)" % text

    def __repr__(self) -> str:
        return "<DatasetFinding %s, %s: %s>" % (self.section, self.kind, self)


@dataclass(frozen=True, repr=False)
class RowLoss(Record):
    """Adjacent rows that are lost.

    Attributes
    ----------
    member
        The array: names with slashes, of members, columns and fields. Empty for the
        dataset itself.
    rows
        The rows, as (start, stop); None if nothing of the array can be read.
    """

    member: str
    rows: Pair | None

    def __str__(self) -> str:
        text = "all of it" if self.rows is None else "rows %d to %d" % self.rows
        return "'%s': %s" % (self.member, text) if self.member else text

    def __repr__(self) -> str:
        return "<RowLoss %s>" % self


@dataclass(eq=False, repr=False)
class DatasetReport(Record):
    """The result of checking a dataset.

    Attributes
    ----------
    path, layout, kind
        The folder, the name of its layout, and ``'array'``, ``'table'`` or ``'group'``.
    findings
        The first thousand findings.
    nerrors, nnotes
        The numbers of all errors and of all notes.
    narrays
        The number of arrays, columns included.
    nfiles
        The number of files with chunks that the dataset should have.
    nchunks, nintact
        The number of chunks that it should have, and of those that are intact.
    nbytes, nbytes_intact
        The plain bytes of all arrays, and of the intact chunks.
    cbytes
        The size in bytes of the files that were found.
    losses
        A `RowLoss` for each run of rows that are not intact.
    """

    path: str
    layout: str
    kind: str
    findings: list[DatasetFinding] = field(default_factory=list)
    nerrors: int = 0
    nnotes: int = 0
    narrays: int = 0
    nfiles: int = 0
    nchunks: int = 0
    nintact: int = 0
    nbytes: int = 0
    nbytes_intact: int = 0
    cbytes: int = 0
    losses: list[RowLoss] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether there are no errors; there may be notes."""
        return self.nerrors == 0

    def add(self, finding: DatasetFinding) -> None:
        """Add a finding."""
        self.nerrors += finding.severity == ERROR
        self.nnotes += finding.severity == NOTE
        if len(self.findings) < FINDINGS_KEPT:
            self.findings.append(finding)

    def include(self, part: DatasetReport) -> None:
        """Add the findings and the numbers of a part of the dataset."""
        room = FINDINGS_KEPT - len(self.findings)
        self.findings += part.findings[:room]
        self.losses += part.losses
        for name in SUMS:
            setattr(self, name, getattr(self, name) + getattr(part, name))

    def error(self, file: str, section: str, kind: str, message: str) -> None:
        """Add an error."""
        self.add(DatasetFinding(file, section, kind, message))

    def note(self, file: str, section: str, kind: str, message: str) -> None:
        """Add a note."""
        self.add(DatasetFinding(file, section, kind, message, severity=NOTE))

    def as_dict(self) -> JsonObject:
        """Return the attributes and ``ok`` as values that JSON can hold."""
        return {**super().as_dict(), "ok": self.ok}

    def __repr__(self) -> str:
        return "<DatasetReport: %s, %s>" % (
            counted(self.nerrors, "error"),
            counted(self.nnotes, "note"),
        )


@dataclass(eq=False, repr=False)
class DatasetRecovery(Record):
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
        Whether it is proven that all chunks are in their places.
    """

    report: DatasetReport
    losses: list[RowLoss] = field(default_factory=list)
    nsaved: int = 0
    nlost: int = 0
    lost_attributes: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    certain: bool = True

    @property
    def complete(self) -> bool:
        """Whether it is certain that nothing is lost."""
        return self.certain and not self.losses and not self.lost_attributes

    def as_dict(self) -> JsonObject:
        """Return the attributes and ``complete`` as values that JSON can hold."""
        return {**super().as_dict(), "complete": self.complete}

    def __repr__(self) -> str:
        saved = counted(self.nsaved, "chunk")
        return "<DatasetRecovery: %s saved, %d lost>" % (saved, self.nlost)


def gaps_in(found: Iterable[int], numbers: range) -> list[tuple[int, int]]:
    """Return the numbers that were not found, as runs (start, stop).

    The range may be too long to walk through it.
    """
    runs = union((number, number + 1) for number in found)
    return without([(numbers.start, numbers.stop)], runs)
