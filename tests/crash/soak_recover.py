"""Recover thousands of damaged files, and compare two versions of the package.

::

    soak_recover.py run COUNT RESULT.jsonl [--first SEED] [--kind KIND] [--jobs N]
    soak_recover.py compare BEFORE.jsonl AFTER.jsonl [--seeds N]
    soak_recover.py show SEED [--kind KIND]

The seed determines the file and its damage. The kind of damage is the seed modulo the
number of kinds unless KIND is given. ``run`` writes one line of JSON for each seed;
`check.judge` explains the values. PYTHONPATH chooses the version of the package that
runs. ``compare`` prints a table of both results, and the seeds where one is wrong.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import multiprocessing
import sys
import zlib
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from check.harm import KINDS, damaged_file
from check.judge import EXCUSES, intact_copies, judge, recovered

import bloscpack

COLUMNS = (
    *("files", "intact", "saved before", "saved after", "lost"),
    *("false before", "false after", "refused before", "refused after"),
    *("problems before", "problems after"),
)


def main(arguments=None):
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    run_parser = commands.add_parser("run")
    run_parser.add_argument("count", type=int)
    run_parser.add_argument("result", type=Path)
    run_parser.add_argument("--first", type=int, default=0)
    run_parser.add_argument("--kind", choices=KINDS)
    run_parser.add_argument("--jobs", type=int, default=1)
    run_parser.set_defaults(command=run)
    compare_parser = commands.add_parser("compare")
    compare_parser.add_argument("before", type=Path)
    compare_parser.add_argument("after", type=Path)
    compare_parser.add_argument("--seeds", type=int, default=10)
    compare_parser.set_defaults(command=compare)
    show_parser = commands.add_parser("show")
    show_parser.add_argument("seed", type=int)
    show_parser.add_argument("--kind", choices=KINDS)
    show_parser.set_defaults(command=show)
    options = vars(parser.parse_args(arguments))
    return options.pop("command")(**options)


# Run


def run(count, result, first, kind, jobs):
    """Recover `count` damaged files and write a line for each."""
    print("bloscpack: %s" % Path(bloscpack.__file__).parent, file=sys.stderr)
    seeds = range(first, first + count)
    work = functools.partial(line_of, kind=kind)
    with result.open("w") as fp, multiprocessing.Pool(jobs) as pool:
        for line in pool.imap(work, seeds, chunksize=50):
            fp.write(line + "\n")
            if problems_of(json.loads(line)):
                print(line, file=sys.stderr, flush=True)
    return 0


def line_of(seed, kind=None):
    """Return the outcome of a seed as a line of JSON."""
    kind, damaged = damaged_file(seed, kind)
    outcome = {"seed": seed, "kind": kind, "crc": zlib.crc32(damaged.data)}
    outcome |= {
        "file": damaged.sample.description,
        "changes": repr(damaged.changes)[:300],
    }
    return json.dumps(outcome | judge(damaged))


def problems_of(outcome):
    """Return in a word each what should never happen, whatever the damage."""
    found = [name for name in ("raised", "seconds") if name in outcome]
    return found if outcome.get("sound", True) else [*found, "unsound"]


# Compare


def compare(before, after, seeds):
    """Print a table of two results; return 1 if the second one is worse or wrong."""
    counts = defaultdict(lambda: dict.fromkeys(COLUMNS, 0))
    worse = defaultdict(lambda: defaultdict(list))
    with before.open() as old_fp, after.open() as new_fp:
        for old, new in itertools.zip_longest(
            map(json.loads, old_fp), map(json.loads, new_fp)
        ):
            if old is None or new is None or old["crc"] != new["crc"]:
                raise SystemExit("the results are not of the same damaged files")
            for kind in (new["kind"], "all"):
                count_pair(counts[kind], old, new)
            note_worse(worse[new["kind"]], old, new)
    width = max(map(len, KINDS))
    print(" " * width, *("%15s" % name for name in COLUMNS))
    for kind, columns in counts.items():
        print("%-*s" % (width, kind), *("%15d" % columns[name] for name in COLUMNS))
    for kind, words in worse.items():
        for word, found in sorted(words.items()):
            listed = ", ".join(map(str, found[:seeds]))
            print("%s: %s: %d files, seeds %s" % (kind, word, len(found), listed))
    total = counts["all"]
    return int(bool(total["lost"] or total["false after"] or total["problems after"]))


def count_pair(columns, old, new):
    """Add the outcomes of one damaged file to the counts."""
    columns["files"] += 1
    columns["intact"] += len(new["intact"])
    columns["lost"] += len({*old["saved"]} - {*new["saved"]})
    for name, outcome in (("before", old), ("after", new)):
        columns["saved " + name] += len(outcome["saved"])
        columns["false " + name] += bool(outcome["wrong"])
        columns["refused " + name] += "refused" in outcome
        columns["problems " + name] += bool(problems_of(outcome))


def note_worse(words, old, new):
    """Note under a word each how the outcomes are wrong or worse than before."""
    if {*old["saved"]} - {*new["saved"]}:
        words["lost that were saved before"].append(new["seed"])
    for name, outcome in (("before", old), ("after", new)):
        for word in outcome["wrong"]:
            exit_code = ", exit code 0" * outcome["complete"]
            key = "falsely certain %s (%s%s)" % (name, word, exit_code)
            words[key].append(new["seed"])
        if {*outcome["intact"]} - {*outcome["saved"]}:
            words["intact chunks not saved %s" % name].append(new["seed"])
        for problem in problems_of(outcome):
            words["%s %s" % (problem, name)].append(new["seed"])


# Show


def show(seed, kind):
    """Print a damaged file and its recovery in detail."""
    outcome = json.loads(line_of(seed, kind))
    findings = outcome.pop("findings", [])
    for name, value in outcome.items():
        print("%-9s %s" % (name, value))
    for excuse in outcome["excused"]:
        print("excused: %s: %s" % (excuse, EXCUSES.get(excuse, "")))
    _, damaged = damaged_file(seed, kind)
    sample = damaged.sample
    copies = intact_copies(sample.frames, damaged.origin)
    print(
        "first chunk at %d, table %s, size %d, damaged size %d"
        % (sample.first, sample.table, len(sample.whole), len(damaged.data))
    )
    for i, ((start, stop, plain), found) in enumerate(
        zip(sample.frames, copies, strict=True)
    ):
        print(
            "chunk %d: bytes %d to %d, %d plain bytes, now at %s"
            % (i, start, stop, len(plain), found)
        )
    for finding in findings:
        print(finding)
    if not {"refused", "raised"} & outcome.keys():
        _, _, recovery = recovered(damaged.data)
        print(recovery.losses, recovery.remarks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
