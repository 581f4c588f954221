"""Findings and reports: the results of `verify`.

Records only; nothing here reads a file. A finding is an error, or a note about
something unusual but harmless.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field, replace
from typing import Any

from .._storage.folder_store import NoFileFound
from .._storage.paths import is_missing
from .._types import JsonObject
from ..exceptions import FormatError
from ..log import counted

# An extent, a span or a range of rows: (start, stop).
Pair = tuple[int, int]

ERROR = "error"
NOTE = "note"
# Maximum number of findings in a report; the others are only counted. A file may have
# millions of damaged chunks.
FINDINGS_KEPT = 1000
# The numbers of a report that are sums over its parts.
SUMS = {
    *("nerrors", "nnotes", "narrays", "nfiles", "nchunks", "nintact"),
    *("nbytes", "nbytes_intact", "cbytes"),
}
# The kind of the finding of a second file behind the first one. Such a finding is
# always kept, because `Recovery.complete` depends on it.
ANOTHER = "another"
# The kind of the finding of other bytes behind the last chunk.
TRAILING = "trailing"
# The kinds of findings about data that could not be read, which may be intact.
PERMISSION = "permission"
UNREADABLE = "unreadable"


def failure_kind(error: BaseException) -> str | None:
    """Return the kind of the finding for an error that is no damage; None for damage.

    A missing file is damage, and so is a link, a folder or a pipe in its place. After
    any other error of the system, the next attempt may read intact data.
    """
    if isinstance(error, (FormatError, NoFileFound)) or not isinstance(error, OSError):
        return None
    if is_missing(error) or error.errno == errno.EISDIR:
        return None
    return PERMISSION if error.errno in (errno.EACCES, errno.EPERM) else UNREADABLE


class Record:
    """A result whose attributes can be written as JSON."""

    # Names of properties that are written, too.
    derived: tuple[str, ...] = ()
    # Names of attributes that are written only if they are not None.
    optional: tuple[str, ...] = ()

    def as_dict(self) -> JsonObject:
        """Return the attributes as values that JSON can hold."""
        values = {name: getattr(self, name) for name in (*vars(self), *self.derived)}
        return {
            name: _as_json(value)
            for name, value in values.items()
            if value is not None or name not in self.optional
        }

    def __repr__(self) -> str:
        return "<%s %s>" % (type(self).__name__, self)


def _as_json(value: object) -> Any:
    if isinstance(value, (list, tuple)):
        return [_as_json(item) for item in value]
    return value.as_dict() if isinstance(value, Record) else value


@dataclass(frozen=True, repr=False)
class Finding(Record):
    """A difference between a file or a dataset and its format.

    Attributes
    ----------
    section
        ``'header'``, ``'metadata'``, ``'offsets'``, ``'chunks'`` or ``'shard'``, or
        ``'archive'``, the ZIP file of `savez`. For a dataset ``'metadata'`` is a
        description, and ``'files'`` are the files that are there.
    kind
        A short word that stays the same from release to release; see the tables in
        ``docs/damage.rst``.
    message
        A sentence for people.
    severity
        ``'error'`` or ``'note'``.
    chunk
        The number of the chunk in its file, None if the finding is not about a chunk.
    offset
        A position in the file in bytes, or None.
    extent
        The bytes of the file concerned, as (start, stop), or None.
    span, rows
        The plain bytes concerned, and the rows of the array that they touch, as (start,
        stop), or None.
    region
        The part of the array concerned, as (start, stop) for each axis, if chunks
        divide every axis; None for others.
    member
        The name of the member of an archive, None in another file.
    file
        The name of the file or folder in a dataset, with slashes; ``'.'`` for the
        folder of the dataset, None for a file that is not checked as part of a dataset.
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
    file: str | None = None
    region: tuple[Pair, ...] | None = None

    optional = ("region",)

    def moved(self, start: int) -> Finding:
        """Return the finding in a file where these bytes begin at `start`."""
        at, extent = self.offset, self.extent
        return replace(
            self,
            offset=None if at is None else start + at,
            extent=extent and (start + extent[0], start + extent[1]),
        )

    def __str__(self) -> str:
        parts = [] if self.member is None else ["member '%s'" % self.member]
        parts.append("section '%s'" % self.section)
        if self.chunk is not None:
            parts.append("chunk %d" % self.chunk)
        if self.offset is not None:
            parts.append("byte %d" % self.offset)
        parts += plain_position(self.span, self.rows, self.region)
        file = "" if self.file is None else "'%s': " % self.file
        text = self.severity, file, self.message, ", ".join(parts)
        return "%s: %s%s (%s)" % text

    def __repr__(self) -> str:
        return "<Finding %s, %s: %s>" % (self.section, self.kind, self)


def plain_position(
    span: Pair | None, rows: Pair | None, region: tuple[Pair, ...] | None = None
) -> list[str]:
    """Return the plain bytes and the items concerned as texts, if they are known."""
    if region is not None:
        axes = ", ".join("%d:%d" % pair for pair in region)
        return [*plain_position(span, None), "items [%s]" % axes]
    ranges = ("plain bytes", span), ("rows", rows)
    return ["%s %d to %d" % (name, *pair) for name, pair in ranges if pair is not None]


@dataclass(eq=False, repr=False)
class Report(Record):
    """The result of `verify` for a file.

    Attributes
    ----------
    filename
        The path of the file, None for a file object.
    format_version
        The version of the format, 0 to 3, None if the header is damaged, and for an
        archive.
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
    checksum
        The name of the checksum; for an archive ``'crc32'``, that of all members.
    start
        Where the file begins, if it stands behind other packed files; else 0.
    following
        The reports on the files that stand behind this one; None if there are none.
    """

    filename: str | None = None
    format_version: int | None = None
    findings: list[Finding] = field(default_factory=list)
    nerrors: int = 0
    nnotes: int = 0
    nchunks: int = 0
    nintact: int = 0
    nbytes: int | None = 0
    nbytes_intact: int = 0
    cbytes: int = 0
    checksum: str | None = None
    start: int = 0
    following: list[Report] | None = None

    derived = ("ok",)
    optional = ("following",)

    @property
    def ok(self) -> bool:
        """Whether there are no errors, here and behind; there may be notes."""
        return self.nerrors == 0 and all(part.ok for part in self.following or ())

    def add(self, section: str, kind: str, message: str, **where: Any) -> None:
        """Add a finding; the arguments are those of `Finding`.

        If it concerns an extent, ``offset`` is the start of it.
        """
        if "extent" in where:
            where.setdefault("offset", where["extent"][0])
        self.take(Finding(section, kind, message, **where))

    def note(self, section: str, kind: str, message: str, **where: Any) -> None:
        """Add a finding that is harmless."""
        self.add(section, kind, message, severity=NOTE, **where)

    def take(self, finding: Finding) -> None:
        """Add a finding; if there are many, only count it."""
        self.nnotes += finding.severity == NOTE
        self.nerrors += finding.severity == ERROR
        self._keep(finding)

    def _keep(self, finding: Finding) -> None:
        if len(self.findings) < FINDINGS_KEPT or finding.kind == ANOTHER:
            self.findings.append(finding)

    def include(self, part: Report, member: str | None = None, start: int = 0) -> None:
        """Add the findings and the numbers of a part.

        `member` is the name of the part in an archive, where it begins at `start`.
        """
        for finding in part.findings:
            if member is not None:
                finding = replace(finding.moved(start), member=member)
            self._keep(finding)
        # The size of an archive is known.
        excluded = set() if member is None else {"cbytes"}
        for name in SUMS & vars(self).keys() - excluded:
            total = (getattr(self, name) or 0) + (getattr(part, name, 0) or 0)
            setattr(self, name, total)

    def __repr__(self) -> str:
        counts = counted(self.nerrors, ERROR), counted(self.nnotes, NOTE)
        name = " " + (self.filename or "") if type(self) is Report else ""
        return "<%s%s: %s>" % (type(self).__name__, name, ", ".join(counts))
