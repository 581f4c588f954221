"""Thousands of damaged files, each recovered: ``soak_recover.py [SECONDS [SEED]]``.

Prints what fails, with the seed that makes it again, and how often what happened.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from damage.cases import Case, failures, frames_of


def main(seconds=60, seed=0):
    """Recover damaged files for so long; return what was found how often."""
    counts = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        case = Case(seed, mixed=bool(seed % 2))
        seed += 1
        counts["files"] += 1
        kind = "%s, %s" % (
            "no digests" if case.checksum == "None" else "digests",
            case.content if case.content == "packed" else "plain",
        )
        counts[kind] += 1
        try:
            found = list(
                failures(
                    frames_of(case.whole), case.damaged, case.origin, case.checksum
                )
            )
        except Exception:
            traceback.print_exc()
            found = ["raised"]
        for word in found:
            if word in case.excused():
                counts["%s: %s, which can't be helped" % (kind, word)] += 1
                continue
            counts["%s: %s" % (kind, word)] += 1
            print("%s: %s" % (word, case), flush=True)
    return counts


if __name__ == "__main__":
    for what, count in sorted(main(*map(int, sys.argv[1:])).items()):
        print("%7d %s" % (count, what))
