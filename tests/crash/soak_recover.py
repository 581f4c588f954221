"""Recover thousands of randomly damaged files: ``soak_recover.py [SECONDS [SEED]]``.

Prints each failure with the seed that reproduces it, and at the end the number of files
and failures of each kind.
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
    """Recover damaged files for some seconds; return the counts of all outcomes."""
    counts = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        count_outcomes(seed, counts)
        seed += 1
    return counts


def count_outcomes(seed, counts):
    """Recover the file that `seed` determines; print its failures and count them."""
    case = Case(seed, mixed=bool(seed % 2))
    kind = "%s, %s" % (
        "no digests" if case.checksum == "None" else "digests",
        case.content if case.content == "packed" else "plain",
    )
    counts["files"] += 1
    counts[kind] += 1
    try:
        frames = frames_of(case.whole)
        found = list(failures(frames, case.damaged, case.origin, case.checksum))
    except Exception:
        traceback.print_exc()
        found = ["raised"]
    for word in found:
        if word in case.excused():
            counts["%s: %s, as expected" % (kind, word)] += 1
        else:
            counts["%s: %s" % (kind, word)] += 1
            print("%s: %s" % (word, case), flush=True)


if __name__ == "__main__":
    for outcome, count in sorted(main(*map(int, sys.argv[1:])).items()):
        print("%7d %s" % (count, outcome))
