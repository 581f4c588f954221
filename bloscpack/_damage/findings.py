"""Findings and reports: the results of `verify`.

Records only; nothing here reads a file. A finding is an error, or a note about
something unusual but harmless.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ..serializers import JsonObject

    # An extent, a span or a range of rows: (start, stop).
    Pair = tuple[int, int]

ERROR = "error"
NOTE = "note"
# Maximum number of findings in a report; the others are only counted. A file may have
# millions of damaged chunks.
FINDINGS_KEPT = 1000
# The kind of the finding of a second file behind the first one. Such a finding is
# always kept, because `Recovery.complete` depends on it.
ANOTHER = "another"


class Record:
    """A result whose attributes can be written as JSON."""

    def as_dict(self) -> JsonObject:
        """Return the attributes as values that JSON can hold."""
        return {name: _as_json(value) for name, value in vars(self).items()}


def _as_json(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_as_json(item) for item in value]
    return value.as_dict() if isinstance(value, Record) else value


@dataclass(frozen=True, repr=False)
class Finding(Record):
    """A difference between a file and the format.

    Attributes
    ----------
    section
        ``'header'``, ``'metadata'``, ``'offsets'``, ``'chunks'`` or ``'shard'``, or
        ``'archive'``, the ZIP file of `savez`.
    kind
        A short word that stays the same from release to release; see the tables in
        ``docs/damage.rst``.
    message
        A sentence for people.
    severity
        ``'error'`` or ``'note'``.
    chunk
        The number of the chunk, None if the finding is not about a chunk.
    offset
        A position in the file in bytes, or None.
    extent
        The bytes of the file concerned, as (start, stop), or None.
    span, rows
        The plain bytes concerned, and the rows of the array that they touch, as (start,
        stop), or None.
    member
        The name of the member of an archive, None in another file.
    """

    section: str
    kind: str
    message: str
    severity: str = ERROR
    chunk: int | None = None
    offset: int | None = None
    extent: Pair | None = None
    span: Pair | None = None
    rows: Pair | None = None
    member: str | None = None

    def __str__(self) -> str:
        place = [] if self.member is None else ["member '%s'" % self.member]
        place += place_in_file(self.section, self.chunk, self.offset)
        place += plain_place(self.span, self.rows)
        return "%s: %s (%s)" % (self.severity, self.message, ", ".join(place))

    def __repr__(self) -> str:
        return "<Finding %s, %s: %s>" % (self.section, self.kind, self)


def counted(count: int, noun: str) -> str:
    """Return a number and a noun in the singular or plural."""
    return "%d %s%s" % (count, noun, "s" * (count != 1))


def place_in_file(section: str, chunk: int | None, offset: int | None) -> list[str]:
    """Return section, chunk and byte as texts, if they are known."""
    place = ["section '%s'" % section]
    if chunk is not None:
        place.append("chunk %d" % chunk)
    if offset is not None:
        place.append("byte %d" % offset)
    return place


def plain_place(span: Pair | None, rows: Pair | None) -> list[str]:
    """Return the plain bytes and the rows concerned as texts, if they are known."""
    places = ("plain bytes", span), ("rows", rows)
    return ["%s %d to %d" % (name, *pair) for name, pair in places if pair is not None]


class Findings:
    """A list of findings of limited length, and the counts of all of them."""

    def __init__(self, findings: Iterable[Finding] = ()) -> None:
        self.kept: list[Finding] = []
        self.nerrors = 0
        self.nnotes = 0
        for finding in findings:
            self._take(finding)

    def add(self, section: str, kind: str, message: str, **where: Any) -> None:
        """Add a finding; the arguments are those of `Finding`.

        If its place is an extent, ``offset`` is the start of it.
        """
        if "extent" in where:
            where.setdefault("offset", where["extent"][0])
        self._take(Finding(section, kind, message, **where))

    def note(self, section: str, kind: str, message: str, **where: Any) -> None:
        """Add a finding that is harmless."""
        self.add(section, kind, message, severity=NOTE, **where)

    def join(self, report: Report, member: str, start: int) -> None:
        """Add the findings on the member of an archive that begins at `start`."""
        for finding in report.findings:
            at, extent = finding.offset, finding.extent
            self._take(
                replace(
                    finding,
                    member=member,
                    offset=None if at is None else start + at,
                    extent=extent and (start + extent[0], start + extent[1]),
                )
            )
        # Those that the report has only counted.
        kept = Findings(report.findings)
        self.nerrors += report.nerrors - kept.nerrors
        self.nnotes += report.nnotes - kept.nnotes

    def _take(self, finding: Finding) -> None:
        self.nnotes += finding.severity == NOTE
        self.nerrors += finding.severity == ERROR
        if len(self.kept) < FINDINGS_KEPT or finding.kind == ANOTHER:
            self.kept.append(finding)


@dataclass(repr=False)
class Report(Record):
    """The result of `verify` for one file.

    Attributes
    ----------
    filename
        The path of the file, None for a file object.
    findings
        The first thousand findings, in the order of the file.
    nerrors, nnotes
        The numbers of all errors and of all notes.
    nchunks, nintact
        The number of chunks that the file should have, and of those that are intact.
    nbytes, nbytes_intact
        The plain bytes of all chunks, None if unknown, and of the intact ones.
    cbytes
        The size of the file in bytes.
    layout
        The layout of the file, 0 to 3, None if the header is damaged, and for an
        archive.
    checksum
        The name of the checksum; for an archive ``'crc32'``, that of all members.
    """

    findings: list[Finding]
    nerrors: int
    nnotes: int
    nchunks: int
    nintact: int
    nbytes: int | None
    nbytes_intact: int
    cbytes: int
    layout: int | None
    checksum: str
    filename: str | None = None

    @property
    def ok(self) -> bool:
        """Whether there are no errors; there may be notes."""
        return self.nerrors == 0

    def as_dict(self) -> JsonObject:
        """Return the attributes and ``ok`` as values that JSON can hold."""
        return {**super().as_dict(), "ok": self.ok}

    def __repr__(self) -> str:
        counts = counted(self.nerrors, ERROR), counted(self.nnotes, NOTE)
        return "<Report %s: %s>" % (self.filename or "", ", ".join(counts))
