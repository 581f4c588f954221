"""``blpk verify``: whether files are as they should be, and what is not."""

from __future__ import annotations

from ..exceptions import BloscpackError
from ..outcomes import EXIT_DAMAGED, EXIT_OK, exit_code, message_of
from ..pretty import pretty_size
from ..verify import verify
from .describe import report_failure, say, say_json, shown

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from ..findings import Report


def learn(parser: Any) -> None:
    """Add the options of the verb."""
    parser.description = (
        "check everything in files: header, metadata, offset table, every chunk with\n"
        "its digest, and what lies in between; 0 if all is well, 3 if not"
    )
    parser.epilog = (
        "examples:\n"
        "  %(prog)s *.blp              a line for each file, and what is wrong\n"
        "  %(prog)s --json data.blp    a list of objects, for programs"
    )
    parser.add_argument(
        "files", metavar="<file>", nargs="+", help="files to be checked, of any layout"
    )
    parser.add_argument("--json", action="store_true", help="print a list of objects")


def run(args: Namespace) -> int:
    """Check the files; return the worst exit code."""
    worst = EXIT_OK
    reports: list[dict[str, Any]] = []
    for path in args.files:
        try:
            report = verify(path, nthreads=args.nthreads)
        except (BloscpackError, OSError) as error:
            worst = max(worst, exit_code(error))
            report_failure(path, error)
            failure = {"filename": path, "ok": False, "error": message_of(error)}
            reports.append(failure)
            continue
        if not report.ok:
            worst = max(worst, EXIT_DAMAGED)
        if args.json:
            reports.append(report.as_dict())
        elif not (args.quiet and report.ok):
            tell(report)
    if args.json:
        say_json(reports)
    return worst


def tell(report: Report) -> None:
    """Show in a line how a file is, and what was found in lines below."""
    counts = "%d chunks" % report.nchunks
    if report.nchunks == 1:
        counts = "1 chunk"
    if report.nbytes is not None:
        counts += ", %s" % pretty_size(report.nbytes)
    state = "ok (%s)" % counts
    if not report.ok:
        state = "damaged (%d of %s good)" % (report.nintact, counts)
    say("%s: %s" % (shown(report.filename or ""), state))
    for finding in report.findings:
        say("  " + shown(str(finding)))
    more = report.nerrors + report.nnotes - len(report.findings)
    if more:
        say("  and %d more" % more)
