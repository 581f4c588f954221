"""``blpk recover``: write an intact file from the good chunks of a damaged one."""

from __future__ import annotations

import os
from argparse import Namespace
from collections import Counter, defaultdict
from functools import partial
from typing import TYPE_CHECKING

from ... import log
from ..._check.findings import ANOTHER, ERROR, TRAILING
from ..._storage.paths import shown_name
from ..._types import JsonObject
from ...dataset.file_checks import DatasetRecovery
from ...log import counted, printable
from ...recover import ArchiveRecovery, Recovery
from ..args import number_of
from ..console import console, descriptor_of, shown_input
from ..exit_codes import EXIT_DAMAGED, EXIT_OK, WrongUsage, for_each_file
from ..named import NamedFile, named_any
from ..progress import shown, shown_for_run
from ..target import packed_inside, report
from ..text import say_json

if TYPE_CHECKING:
    from ..target import LeftOut

# Maximum numbers of findings and of losses shown.
FINDINGS_SHOWN = 20
LOSSES_SHOWN = 1000
# Maximum number of reasons shown why a recovery is not certain.
DOUBTS_SHOWN = 4
# Kinds of notes that are shown beside all errors: they may explain what is missing.
NOTES_ON_FILE = ("no-checksum", "left-over", TRAILING, ANOTHER)
NOTES_ON_DATASET = ("changed", "missing", "unreached", "no-document", "no-table")


HELP = """\
write an intact file from the good chunks of a damaged one, which is not
changed; exit code 0 if it is certain that nothing is lost, 3 if data are or
may be lost, also if a second file follows or no chunk is intact, 1 if the
file is no Bloscpack file or can't be read, or if the new one can't be written

examples:
  %(prog)s bad.blp good.blp              lost chunks become zero bytes
  %(prog)s --fill 255 bad.blp good.blp   lost chunks become bytes 255
  %(prog)s --drop bad.blp good.blp       lost chunks are left out
  %(prog)s -r folder new                 all files in a folder and below
"""


OPTIONS = """\
damaged <damaged>  file, archive or dataset to be recovered; a folder of such
target <out_file>  file to be written, '-' for standard output; the folder
    of the new dataset, or of the new files
-r --recursive  include all folders below a folder
--fill <byte>  value of the bytes of lost chunks, 0 to 255 (default: 0;
    in a dataset the fill value of each array)
| --drop  leave lost chunks out
--json  print an object
"""
PROPERTIES = {"fill": {"type": number_of("--fill", partial(int, base=0), 255)}}


def writes_data(args: Namespace) -> bool:
    """Return whether the new file goes to standard output."""
    return descriptor_of(args.target) == 1


def run(args: Namespace) -> int:
    """Recover the file or the dataset, or each of those in a folder."""
    done: list[JsonObject] = []
    left_out: LeftOut = defaultdict(list)
    paths = packed_inside(args.damaged, args.recursive, left_out)
    if not paths:
        code = _recover(args, done)
        if args.json:
            say_json(done[0])
        return code
    if writes_data(args):
        raise WrongUsage("the new files need a folder, and '-' is standard output")
    report(left_out)
    codes: Counter[int] = Counter()

    def act(path: str) -> int:
        target = os.path.join(args.target, os.path.relpath(path, args.damaged))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        own = {**vars(args), "damaged": path, "target": target}
        code = _recover(Namespace(**own), done)
        codes[code] += 1
        return code

    with shown_for_run(paths, lambda path: named_any(path).plain_size(), args.progress):
        worst = for_each_file(paths, act)
    if args.json:
        say_json(done)
    elif worst or not args.quiet:
        counts = codes[EXIT_OK], codes[EXIT_DAMAGED], len(paths) - codes.total()
        text = "%s: %d complete, %d with losses, %d not saved"
        console.say(text % (counted(len(paths), "input"), *counts))
    return worst


def _recover(args: Namespace, done: list[JsonObject]) -> int:
    """Recover a file or a dataset; the result is shown, or added to a list for JSON."""
    damaged = named_any(args.damaged)
    with shown(args.damaged, damaged.plain_size, args.progress) as bar:
        recovery = damaged.recover(args, bar)
    if args.json:
        names = {"file": shown_name(args.damaged), "out_file": args.target}
        done.append({**names, **recovery.as_dict()})
    elif not (args.quiet and recovery.complete):
        of_file = isinstance(damaged, NamedFile)
        _tell(recovery, args, NOTES_ON_FILE if of_file else NOTES_ON_DATASET)
    return EXIT_OK if recovery.complete else EXIT_DAMAGED


def _tell(
    recovery: Recovery | DatasetRecovery, args: Namespace, notes: tuple[str, ...]
) -> None:
    """Show the number of saved chunks, the losses, all errors and some notes."""
    line = log.normal if console.is_data else console.say
    chunks = counted(recovery.nsaved + recovery.nlost, "chunk")
    names = shown_input(args.damaged), printable(args.target)
    saved = "%d of %s" % (recovery.nsaved, chunks)
    if isinstance(recovery, ArchiveRecovery):
        saved = "%s, %s" % (counted(recovery.narrays, "array"), saved)
    line("%s: %s saved to %s" % (names[0], saved, names[1]))
    findings = [
        finding
        for finding in recovery.report.findings
        if finding.severity == ERROR or finding.kind in notes
    ]
    for finding in findings[:FINDINGS_SHOWN]:
        line("  " + printable(str(finding)))
    if len(findings) > FINDINGS_SHOWN:
        line("  and more damage, which 'blpk verify' shows")
    lost_members = getattr(recovery, "lost_members", ())
    for losses in (recovery.losses, ["the member '%s'" % n for n in lost_members]):
        for loss in losses[:LOSSES_SHOWN]:
            line("  lost: %s" % printable(str(loss)))
        if len(losses) > LOSSES_SHOWN:
            line("  and %d more" % (len(losses) - LOSSES_SHOWN))
    for member in getattr(recovery, "lost_attributes", ()):
        line("  lost: the attributes of '%s'" % printable(member))
    if not recovery.certain:
        line("  note: " + _uncertain(recovery))
    for remark in recovery.remarks:
        line("  note: %s" % printable(remark))


def _uncertain(recovery: Recovery | DatasetRecovery) -> str:
    """Return what is not certain about a recovery, and why."""
    if isinstance(recovery, DatasetRecovery):
        return "the numbers of chunks, or how many there were, are not certain"
    text = "the positions of saved data are not certain"
    if recovery.placed:
        text = "all that was saved is in its place; "
        text += "the length of the lost end is not certain"
    doubts = [*dict.fromkeys(recovery.doubts)]
    more = "; and " + counted(len(doubts) - DOUBTS_SHOWN, "more reason")
    shown = "; ".join(doubts[:DOUBTS_SHOWN]) + more * (len(doubts) > DOUBTS_SHOWN)
    return printable("%s: %s" % (text, shown) if doubts else text)
