"""Recover thousands of damaged files, and judge each recovery.

``python tests/crash/soak_recover.py COUNT [FIRST [KIND]]``: the seed, from FIRST on,
determines the file and its damage. The kind of damage is the seed modulo the number of
kinds unless KIND is given. The program prints a line of JSON for each recovery that is
wrong, and for a single one, as `check.judge` explains it; then a table of the counts.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import sys
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from check.harm import damaged_file
from check.judge import judge

COLUMNS = ("files", "intact", "saved", "refused", "excused", "false", "problems")


def outcome_of(seed, kind=None):
    """Return the outcome of a seed."""
    kind, damaged = damaged_file(seed, kind)
    outcome = {"seed": seed, "kind": kind, "file": damaged.sample.description}
    return outcome | {"changes": repr(damaged.changes)[:300]} | judge(damaged)


def problems_of(outcome):
    """Return in a word each what should never happen, whatever the damage."""
    found = [name for name in ("raised", "seconds") if name in outcome]
    return found if outcome.get("sound", True) else [*found, "unsound"]


def counts_of(outcome):
    return {
        "files": 1,
        "intact": len(outcome["intact"]),
        "saved": len(outcome["saved"]),
        "refused": "refused" in outcome,
        "excused": bool(outcome["excused"]),
        "false": bool(outcome["wrong"]),
        "problems": bool(problems_of(outcome)),
    }


def main(count, first=0, kind=None):
    """Recover `count` damaged files; return 1 if a recovery is wrong."""
    counts, seeds = defaultdict(Counter), range(int(first), int(first) + int(count))
    with multiprocessing.Pool() as pool:
        work = functools.partial(outcome_of, kind=kind)
        for outcome in pool.imap(work, seeds, chunksize=50):
            if outcome["wrong"] or problems_of(outcome) or len(seeds) == 1:
                print(json.dumps(outcome), flush=True)
            for name in (outcome["kind"], "all"):
                counts[name].update(counts_of(outcome))
    print("%-18s" % "", *("%9s" % name for name in COLUMNS))
    for name, columns in counts.items():
        print("%-18s" % name, *("%9d" % columns[column] for column in COLUMNS))
    return int(bool(counts["all"]["false"] or counts["all"]["problems"]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
