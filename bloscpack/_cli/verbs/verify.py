"""``blpk verify``: check files, and show what is damaged."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter

from ..._check.findings import (
    ERROR,
    PERMISSION,
    TRAILING,
    UNREADABLE,
    Finding,
    Report,
    plain_position,
)
from ..._types import JsonObject
from ...dataset.file_checks import DatasetReport
from ...exceptions import BloscpackError
from ...log import counted, printable
from .. import exit_codes
from ..console import console, plain_name, shown_input
from ..named import named_any, packed_files
from ..progress import shown, shown_for_run
from ..text import part_text, say_json, size_text

# Number of files from which a summary follows the lines about them: they fill a screen.
MANY = 20
# The state of a damaged file, in words.
DAMAGED = "damaged"
# The state for errors of kinds that are no damage: of the last one that was found.
NO_DAMAGE = {
    PERMISSION: "not readable by this user",
    "codec": "not readable by this Blosc",
    "lengths": "not of one length",
    UNREADABLE: "could not be read",
}


HELP = """\
check everything in files: header, metadata, offset table, every chunk with
its digest, and the bytes in between; in datasets all files, and what else
is there; exit code 0 if intact, 3 if damaged, 1 if a file is no Bloscpack
file or can't be read, or if Blosc lacks its codec

examples:
  %(prog)s *.blp              a line for each file, and its damage
  %(prog)s -r folder          all *.blp and archives in a folder and below
  %(prog)s --json data.blp    a list of objects, for programs
"""
OPTIONS = """\
files <file>  files of any version, datasets, or folders of them
-r --recursive  include all folders below a folder
--json  print a list of objects
"""


def run(args: Namespace) -> int:
    """Check the files and datasets; return the worst exit code."""
    reports: list[JsonObject] = []
    nfiles: Counter[str] = Counter()

    def add(path: str, report: Report, **more: object) -> None:
        fields = {"file": plain_name(path), **report.as_dict(), "error": None}
        reports.append({**fields, **more})

    def act(path: str) -> int:
        item = named_any(path)
        with shown(path, item.plain_size, args.progress) as bar:
            report = item.verify(args.nthreads, bar)
        code = max(state_of(part)[0] for part in (report, *(report.following or ())))
        if args.json:
            add(path, report)
        elif not (args.quiet and report.ok):
            for part in (report, *(report.following or ())):
                state = state_of(part)[1]
                name = shown_input(path) + part_text(vars(part))
                console.say("%s: %s (%s)" % (name, state, counts(part, state)))
                tell(part)
        nfiles[state_of(report)[1]] += 1
        return code

    def failed(path: str, error: BaseException) -> None:
        nfiles["not readable"] += 1
        exit_codes.report_failure(path, error)
        unread = Report(plain_name(path), nbytes=None)
        add(path, unread, ok=False, error=exit_codes.message_of(error))

    def size_of(path: str) -> int | None:
        try:
            return named_any(path).plain_size()
        except (BloscpackError, OSError):
            return 0  # the error is shown later

    files = packed_files(args)
    with shown_for_run(files, size_of, args.progress):
        worst = exit_codes.for_each_file(files, act, failed=failed)
    if args.json:
        say_json(reports)
    elif len(files) > MANY and (worst or not args.quiet):
        states = ", ".join("%d %s" % (nfiles[state], state) for state in sorted(nfiles))
        console.say("%d inputs: %s" % (len(files), states))
    return worst


def state_of(report: Report | DatasetReport) -> tuple[int, str]:
    """Return the exit code for a report, and the state in words."""
    if not report.nerrors:
        if any(finding.kind == TRAILING for finding in report.findings):
            return exit_codes.EXIT_COULD_NOT, "followed by other bytes"
        return exit_codes.EXIT_OK, "ok"
    kinds = {finding.kind for finding in report.findings if finding.severity == ERROR}
    if kinds <= NO_DAMAGE.keys():
        states = [state for kind, state in NO_DAMAGE.items() if kind in kinds]
        return exit_codes.EXIT_COULD_NOT, states[-1]
    return exit_codes.EXIT_DAMAGED, DAMAGED


def counts(report: Report | DatasetReport, state: str) -> str:
    """Return what a report has counted, in words."""
    nblocks = getattr(report, "nblocks", None)
    if nblocks is not None:  # of a BigFile tree
        files = counted(getattr(report, "nfiles", 0), "data file")
        nbytes = counted(report.nbytes or 0, "byte")
        return "%s, %s, %s" % (counted(nblocks, "block"), files, nbytes)
    damaged = state == DAMAGED
    chunks, nbytes = counted(report.nchunks, "chunk"), size_text(report.nbytes_intact)
    if isinstance(report, DatasetReport):
        if not report.ok:
            chunks, nbytes = "%d of %s" % (report.nintact, chunks), nbytes + " good"
        texts = report.layout, report.kind, chunks, counted(report.nfiles, "file")
        return "%s %s, %s in %s, %s" % (*texts, nbytes)
    if damaged and not report.nchunks:
        return "no chunk was checked: 'blpk recover' may find some"
    if damaged:
        return "%d of %s, %s good" % (report.nintact, chunks, nbytes)
    if report.nbytes is None:
        return chunks
    return "%s, %s" % (chunks, size_text(report.nbytes))


def tell(report: Report | DatasetReport) -> None:
    """Show a line for each cause: of files with the same finding, the first one.

    If a file ends too early, the line names the chunks that are missing for this.
    """
    findings = report.findings
    cut = next((f for f in findings if f.kind == "truncated" and f.file is None), None)
    lost = [
        finding
        for finding in findings
        if cut is not None
        and finding.member == cut.member
        and finding.kind in ("missing", "guess")
    ]
    causes: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        if finding in lost:
            continue
        where = finding.chunk, finding.offset if finding.file is None else None
        causes.setdefault((finding.severity, finding.message, *where), []).append(
            finding
        )
    for first, *others in causes.values():
        also = ", and %s" % counted(len(others), "more file") if others else ""
        for finding in lost if first is cut else ():
            if finding.kind == "missing":
                also += "; " + finding.message
                place = ", ".join(plain_position(finding.span, finding.rows))
                also += " (%s)" % place if place else ""
        console.say("  " + printable(str(first) + also))
    more = report.nerrors + report.nnotes - len(findings)
    if more:
        console.say("  and %d more" % more)
