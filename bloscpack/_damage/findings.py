"""What `verify` reports: findings, each with its place in file and data, and the whole.

Records only; nothing here reads a file. A finding is an error, or a note about what is
unusual but harmless.
"""

from __future__ import annotations

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Any

    Pair = tuple[int, int]

ERROR = "error"
NOTE = "note"
# So many findings are kept; the others are only counted.
FINDINGS_KEPT = 1000
# The kind of a finding of a second file, which is no part of the first; always kept.
ANOTHER = "another"


class Finding:
    """Something that is not as it should be.

    ``section`` is ``'header'``, ``'metadata'``, ``'offsets'`` or ``'chunks'``; ``kind``
    a short word that stays the same from release to release; ``severity`` ``'error'``
    or ``'note'``. ``chunk`` is the number of the chunk, ``offset`` a position in the
    file, ``extent`` the bytes of the file that are meant, ``span`` the plain bytes that
    are touched and ``rows`` these rows of an array, each as (start, stop); all may be
    None.
    """

    __slots__ = (
        "chunk",
        "extent",
        "kind",
        "message",
        "offset",
        "rows",
        "section",
        "severity",
        "span",
    )

    def __init__(
        self,
        section: str,
        kind: str,
        message: str,
        *,
        severity: str = ERROR,
        chunk: int | None = None,
        offset: int | None = None,
        extent: Pair | None = None,
        span: Pair | None = None,
        rows: Pair | None = None,
    ) -> None:
        self.section = section
        self.kind = kind
        self.message = message
        self.severity = severity
        self.chunk = chunk
        self.offset = offset
        self.extent = extent
        self.span = span
        self.rows = rows

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, as JSON can hold them."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}

    def __str__(self) -> str:
        place = ["section '%s'" % self.section]
        if self.chunk is not None:
            place.append("chunk %d" % self.chunk)
        if self.offset is not None:
            place.append("byte %d" % self.offset)
        if self.span is not None:
            place.append("plain bytes %d to %d" % self.span)
        if self.rows is not None:
            place.append("rows %d to %d" % self.rows)
        return "%s: %s (%s)" % (self.severity, self.message, ", ".join(place))

    def __repr__(self) -> str:
        return "<Finding %s, %s: %s>" % (self.section, self.kind, self)


class Findings:
    """A list of findings that does not grow without bounds."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self.nerrors = 0
        self.nnotes = 0

    def add(self, section: str, kind: str, message: str, **where: Any) -> Finding:
        """Take a finding, see `Finding`, and return it."""
        finding = Finding(section, kind, message, **where)
        if finding.severity == NOTE:
            self.nnotes += 1
        else:
            self.nerrors += 1
        if len(self.kept) < FINDINGS_KEPT or kind == ANOTHER:
            self.kept.append(finding)
        return finding

    def note(self, section: str, kind: str, message: str, **where: Any) -> Finding:
        """Take a finding that is harmless."""
        return self.add(section, kind, message, severity=NOTE, **where)


class Report:
    """What `verify` found in a file.

    ``findings`` are in the order of the file; ``nerrors`` and ``nnotes`` count also
    those beyond the first thousand, which are not kept. ``nchunks`` is how many chunks
    there should be, ``nintact`` how many are good; ``nbytes`` are the plain bytes that
    all chunks should have, None if nobody can tell; ``cbytes`` are the bytes of the
    file. ``layout`` is 0 to 3, None if the header is lost; ``checksum`` a name.
    """

    def __init__(
        self,
        findings: Findings,
        *,
        filename: str | None = None,
        nchunks: int = 0,
        nintact: int = 0,
        nbytes: int | None = None,
        cbytes: int = 0,
        layout: int | None = None,
        checksum: str = "None",
    ) -> None:
        self.filename = filename
        self.findings = findings.kept
        self.nerrors = findings.nerrors
        self.nnotes = findings.nnotes
        self.nchunks = nchunks
        self.nintact = nintact
        self.nbytes = nbytes
        self.cbytes = cbytes
        self.layout = layout
        self.checksum = checksum

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged; there may be notes."""
        return self.nerrors == 0

    def as_dict(self) -> dict[str, Any]:
        """Return everything, as JSON can hold it."""
        fields = {**vars(self), "ok": self.ok}
        fields["findings"] = [finding.as_dict() for finding in self.findings]
        return fields

    def __repr__(self) -> str:
        return "<Report %s: %d errors, %d notes>" % (
            self.filename or "",
            self.nerrors,
            self.nnotes,
        )
