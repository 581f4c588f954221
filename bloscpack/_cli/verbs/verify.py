"""``blpk verify``: check files, and show what is damaged."""

from __future__ import annotations

from ..._crashsafe.journal import SUFFIX, is_journal
from ..._damage.findings import ERROR
from ...log import printable
from ...pretty import pretty_size
from ...verify import verify
from .. import datasets, file_jobs
from ..console import console
from ..dataset_folders import is_dataset, names_dataset
from ..display import say_json
from ..exit_codes import (
    EXIT_COULD_NOT,
    EXIT_DAMAGED,
    EXIT_OK,
    Refusal,
    for_each_file,
    message_of,
    report_failure,
)
from ..options import add_packed_files
from ..progress import shown, shown_for_run
from ..stdio import plain_name, shown_input

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from ..._damage.findings import Report
    from ...serializers import JsonObject


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.description = (
        "check everything in files: header, metadata, offset table, every chunk with\n"
        "its digest, and the bytes in between; in datasets all files, and what else\n"
        "is there; exit code 0 if intact, 3 if damaged, 1 if a file is no Bloscpack\n"
        "file or can't be read, or if Blosc lacks its codec"
    )
    parser.epilog = (
        "examples:\n"
        "  %(prog)s *.blp              a line for each file, and its damage\n"
        "  %(prog)s -r folder          all *.blp in a folder and below\n"
        "  %(prog)s --json data.blp    a list of objects, for programs"
    )
    add_packed_files(parser, "files of any layout, datasets, or folders of them")
    parser.add_argument("--json", action="store_true", help="print a list of objects")


# The state of a damaged file, in words.
DAMAGED = "damaged"


def run(args: Namespace) -> int:
    """Check the files; return the worst exit code."""
    reports: list[JsonObject] = []

    def act(path: str) -> int:
        if is_journal(path):
            raise Refusal(_about_journal(path), EXIT_COULD_NOT)
        if names_dataset(path):
            found = datasets.verify(path, args)
            if args.json:
                reports.append({"file": plain_name(path), **found.as_dict()})
            elif not (args.quiet and found.ok):
                datasets.tell(path, found)
            return datasets.state_of(found)[0]
        total = file_jobs.plain_size_of(path)
        with shown(path, total, args.progress) as bar:
            report = verify(path, nthreads=args.nthreads, progress=bar)
        if args.json:
            names = {"file": plain_name(path), "filename": plain_name(path)}
            reports.append({**names, **report.as_dict(), **names})
        elif not (args.quiet and report.ok):
            tell(report)
        return state_of(report)[0]

    def failed(path: str, error: BaseException) -> None:
        report_failure(path, error)
        names = {"file": plain_name(path), "filename": plain_name(path)}
        reports.append({**names, "ok": False, "error": message_of(error)})

    def size_of(path: str) -> int | None:
        if is_dataset(path):
            return datasets.plain_size_of(path)
        return file_jobs.plain_size_of(path)

    files = file_jobs.packed_files(args, datasets=True)
    with shown_for_run(files, size_of, args.progress):
        worst = for_each_file(files, act, failed=failed)
    if args.json:
        say_json(reports)
    return worst


def _about_journal(path: str) -> str:
    """Return a message about a journal whose name was given."""
    name = path.removesuffix(SUFFIX)
    return (
        "'%s' is the journal of '%s', and has %s: keep it beside that file; "
        "'blpk verify %s' checks both, and the next writer of the file removes it"
        % (path, name, "the bytes that an interrupted change replaced", name)
    )


def state_of(report: Report) -> tuple[int, str]:
    """Return the exit code for a file, and its state in words."""
    if report.ok:
        return EXIT_OK, "ok"
    kinds = {finding.kind for finding in report.findings if finding.severity == ERROR}
    if kinds == {"codec"}:
        return EXIT_COULD_NOT, "not readable by this Blosc"
    return EXIT_DAMAGED, DAMAGED


def tell(report: Report) -> None:
    """Show a line for the file, and a line for each finding."""
    _, state = state_of(report)
    counts = "%d chunk%s" % (report.nchunks, "s" * (report.nchunks != 1))
    if state == DAMAGED:
        nbytes = pretty_size(report.nbytes_intact)
        counts = "%d of %s, %s good" % (report.nintact, counts, nbytes)
    elif report.nbytes is not None:
        counts += ", %s" % pretty_size(report.nbytes)
    console.say("%s: %s (%s)" % (shown_input(report.filename or ""), state, counts))
    for finding in report.findings:
        console.say("  " + printable(str(finding)))
    more = report.nerrors + report.nnotes - len(report.findings)
    if more:
        console.say("  and %d more" % more)
