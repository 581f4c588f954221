"""The results of checking and of recovering a dataset.

Records only; nothing here reads a file. The files of a dataset have names relative to
its folder, with slashes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .._damage.findings import Finding, Record, Report, counted
from .._format.row_sets import union, without

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .._damage.findings import Pair


# The name of the class for a finding about a dataset.
DatasetFinding = Finding


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
class DatasetReport(Report):
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

    kind: str = ""
    narrays: int = 0
    nfiles: int = 0
    losses: list[RowLoss] = field(default_factory=list)

    @property
    def path(self) -> str:
        """The folder."""
        return self.filename or ""


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

    derived = ("complete",)

    @property
    def complete(self) -> bool:
        """Whether it is certain that nothing is lost."""
        return self.certain and not self.losses and not self.lost_attributes

    def __repr__(self) -> str:
        saved = counted(self.nsaved, "chunk")
        return "<DatasetRecovery: %s saved, %d lost>" % (saved, self.nlost)


def gaps_in(found: Iterable[int], numbers: range) -> list[tuple[int, int]]:
    """Return the numbers that were not found, as runs (start, stop).

    The range may be too long to walk through it.
    """
    runs = union((number, number + 1) for number in found)
    return without([(numbers.start, numbers.stop)], runs)
