"""What ``info``, ``list``, ``verify`` and ``recover`` do with a dataset.

`dataset_rows` does what ``cat``, ``append`` and ``metadata`` do.
"""

from __future__ import annotations

import os
import sys

from .. import log
from .._storage.urls import is_url, joined_url, public_name, shown_name
from ..exceptions import BloscpackError
from ..log import printable
from .display import UNKNOWN, array_text, json_text, say, say_json, size_text, table
from .exit_codes import EXIT_COULD_NOT, EXIT_DAMAGED, EXIT_OK, EXIT_USAGE, Refusal
from .progress import shown
from .stdio import STREAM, shown_input

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from ..dataset.findings import DatasetRecovery, DatasetReport
    from ..serializers import JsonObject

# Maximum number of characters of attributes that ``info`` shows.
MOST_SHOWN = 2**16
# Maximum numbers of findings and of losses that ``recover`` shows.
FINDINGS_SHOWN = 20
LOSSES_SHOWN = 1000
# The kinds of notes that ``recover`` shows: they may explain what is missing.
NOTES_SHOWN = ("changed", "missing", "unreached")


def plain_size_of(path: str) -> int | None:
    """Return the plain bytes of a dataset; None if they are unknown."""
    if is_url(path):  # this would take many requests
        return None
    from .. import dataset

    try:
        nbytes: int = dataset.describe(path)["nbytes"]
    except (BloscpackError, OSError):
        return None
    return nbytes


# info and list


def describe(path: str) -> JsonObject:
    """Return the description of a dataset, for ``info --json``."""
    from .. import dataset

    return {"path": shown_name(path), **dataset.describe(path)}


def info(path: str) -> int:
    """Show the description of a dataset; return the exit code."""
    described = describe(path)
    for line in _info_lines(described):
        say(line)
    return state_in(described)


def state_in(described: JsonObject) -> int:
    """Return the exit code for a dataset: some members may not open."""
    own = EXIT_OK
    if "error" in described:
        own = EXIT_DAMAGED if described["damaged"] else EXIT_COULD_NOT
    return max([own, *map(state_in, _inner(described))])


def _inner(described: JsonObject) -> list[JsonObject]:
    return [*described.get("members", ()), *described.get("columns", ())]


def _info_lines(described: JsonObject) -> Iterator[str]:
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    attributes = json_text(described["attributes"], True, encoding)
    if len(attributes) > MOST_SHOWN:
        attributes = attributes[:MOST_SHOWN] + "... ('blpk metadata' shows all)"
    fields = {"kind": described["kind"], "layout": described["layout"]}
    if described["kind"] == "array":
        fields |= {
            "shape": str(tuple(described["shape"])),
            "dtype": described["dtype"],
            "chunks": "%d of shape %s"
            % (described["nchunks"], tuple(described["chunks"])),
            "shards": UNKNOWN
            if described["shards"] is None
            else str(tuple(described["shards"])),
            "fill value": str(described["fill_value"]),
            "codec": "%s, level %s, filter %s"
            % (described["codec"], described["level"], described["filter"]),
            "checksum": described["checksum"],
        }
    elif described["kind"] == "table":
        fields |= {
            "rows": str(described["rows"]),
            "columns": str(len(described["columns"])),
        }
    else:
        fields["members"] = str(len(described["members"]))
    fields |= {
        "plain": "%s (%d bytes)"
        % (size_text(described["nbytes"]), described["nbytes"]),
        "packed": "%s (%d bytes)"
        % (size_text(described["cbytes"]), described["cbytes"]),
        "ratio": "%.2f" % described["ratio"],
        "files": str(described["nfiles"]),
        "attributes": attributes,
    }
    width = max(map(len, fields)) + 1
    for name, value in fields.items():
        yield "%s %s" % ((name + ":").ljust(width), value)
    rows = list(_tree(described, ""))
    if rows:
        yield ""
        yield from table(rows, left=(0,))


def _tree(described: JsonObject, indent: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, ratio and the rest for each member and column."""
    for inner in _inner(described):
        name = indent + inner["name"].rpartition("/")[2]
        yield name, _ratio(inner), _short(inner)
        yield from _tree(inner, indent + "  ")


def _ratio(described: JsonObject) -> str:
    return "%.2f" % described["ratio"] if "ratio" in described else UNKNOWN


def _short(described: JsonObject) -> str:
    """Return what a member is, in short form."""
    if "error" in described:
        return "%s that can't be opened: %s" % (described["kind"], described["error"])
    if described["kind"] == "array":
        return _array_text(described)
    if described["kind"] == "table":
        return "table (%s) of %d rows" % (described["layout"], described["rows"])
    return "group (%s)" % described["layout"]


def _array_text(described: JsonObject) -> str:
    array = {"dtype": described["dtype"], "shape": described["shape"], "order": "C"}
    return "%s %s" % (array_text(array), described["layout"])


def arrays(path: str, found: list[JsonObject]) -> int:
    """Add the descriptions of the arrays in a dataset, for ``list``.

    Return the exit code: an array that can't be opened is reported.
    """
    from ..dataset.description import arrays_of

    code = EXIT_OK
    for described in arrays_of(describe(path)):
        name = described["name"]
        file = shown_name(path) if not name else _member_name(path, name)
        if "error" in described:
            log.report("'%s': %s" % (printable(file), printable(described["error"])))
            code = max(code, state_in(described))
            continue
        fields = {k: v for k, v in described.items() if k != "attributes"}
        found.append({"file": file, **fields})
    return code


def _member_name(path: str, name: str) -> str:
    """Return the path or URL of a member of a dataset."""
    if is_url(path):
        return joined_url(public_name(path), name)
    return os.path.join(path, *name.split("/"))


def list_row(described: JsonObject, exact: bool) -> tuple[str, ...]:
    """Return the cells of an array, in the columns of ``list``."""
    return (
        size_text(described["nbytes"], exact),
        size_text(described["cbytes"], exact),
        "%.2f" % described["ratio"],
        described["codec"],
        str(described["nchunks"]),
        described["checksum"],
        _array_text(described),
        printable(described["file"]),
    )


# verify


def verify(path: str, args: Namespace) -> DatasetReport:
    """Check a dataset, with a progress bar."""
    from .. import dataset

    with shown(path, plain_size_of(path), args.progress) as bar:
        report: DatasetReport = dataset.verify(
            path, nthreads=args.nthreads, progress=bar
        )
    return report


def state_of(report: DatasetReport) -> tuple[int, str]:
    """Return the exit code for a dataset, and its state in words."""
    if report.ok:
        return EXIT_OK, "ok"
    kinds = {finding.kind for finding in report.findings if finding.severity == "error"}
    if kinds == {"codec"}:
        return EXIT_COULD_NOT, "not readable by this Blosc"
    if kinds == {"permission"}:
        return EXIT_COULD_NOT, "not readable by this user"
    return EXIT_DAMAGED, "damaged"


def tell(path: str, report: DatasetReport) -> None:
    """Show a line for the dataset, and a line for each finding."""
    from .._damage.findings import counted

    chunks = counted(report.nchunks, "chunk")
    nbytes = size_text(report.nbytes_intact)
    if not report.ok:
        chunks, nbytes = "%d of %s" % (report.nintact, chunks), nbytes + " good"
    say(
        "%s: %s (%s %s, %s in %s, %s)"
        % (
            shown_input(path),
            state_of(report)[1],
            report.layout,
            report.kind,
            chunks,
            counted(report.nfiles, "file"),
            nbytes,
        )
    )
    for finding in report.findings:
        say("  " + printable(str(finding)))
    more = report.nerrors + report.nnotes - len(report.findings)
    if more:
        say("  and %d more" % more)


# recover


def recover(args: Namespace) -> int:
    """Write a new dataset from a damaged one; return the exit code."""
    from .. import dataset

    if args.target == STREAM:
        raise Refusal(
            "the new dataset is a folder, which can't go to standard output", EXIT_USAGE
        )
    with shown(args.damaged, plain_size_of(args.damaged), args.progress) as bar:
        recovery: DatasetRecovery = dataset.recover(
            args.damaged,
            args.target,
            fill=args.fill,
            drop=args.drop,
            mode="w" if args.force else "x",
            nthreads=args.nthreads,
            sync=args.sync is not False,
            progress=bar,
        )
    if args.json:
        names = {"file": args.damaged, "out_file": args.target}
        say_json({**names, **recovery.as_dict()})
    elif not (args.quiet and recovery.complete):
        _tell_recovery(recovery, args)
    return EXIT_OK if recovery.complete else EXIT_DAMAGED


def _tell_recovery(recovery: DatasetRecovery, args: Namespace) -> None:
    total = recovery.nsaved + recovery.nlost
    plural = "s" * (total != 1)
    names = shown_input(args.damaged), printable(args.target)
    say(
        "%s: %d of %d chunk%s saved to %s"
        % (names[0], recovery.nsaved, total, plural, names[1])
    )
    errors = [
        finding
        for finding in recovery.report.findings
        if finding.severity == "error" or finding.kind in NOTES_SHOWN
    ]
    for finding in errors[:FINDINGS_SHOWN]:
        say("  " + printable(str(finding)))
    if len(errors) > FINDINGS_SHOWN:
        say("  and more damage, which 'blpk verify' shows")
    for loss in recovery.losses[:LOSSES_SHOWN]:
        say("  lost: %s" % printable(str(loss)))
    if len(recovery.losses) > LOSSES_SHOWN:
        say("  and %d more" % (len(recovery.losses) - LOSSES_SHOWN))
    for member in recovery.lost_attributes:
        say("  lost: the attributes of '%s'" % printable(member))
    if not recovery.certain:
        say("  note: the numbers of chunks, or how many there were, are not certain")
    for remark in recovery.remarks:
        say("  note: %s" % printable(remark))
