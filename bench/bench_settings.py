"""Compare settings of Blosc on a sample of a plain file, in ratio and speed.

First filters and type sizes are compared with two codecs, then all codecs and levels
with the best of them. Sorted by the CPU time per byte to compress, to write and read at
the speed of ``--disk``, and to decompress, with four threads.
"""

from __future__ import annotations

import argparse
import os
import time

import bloscpack
from bloscpack.constants import CNAME_AVAIL

MIB = 2**20
THREADS = 4
TYPESIZES = (1, 2, 3, 4, 6, 8, 12, 16)
FILTERS = {"-s": False, "--shuffle": True, "--bitshuffle": 2}
PROBES = (("lz4", 5), ("zstd", 3))
LEVELS = (1, 2, 3, 5, 7, 9)
FILTERS_KEPT = 2


def sample_of(path: str, size: int) -> bytes:
    """Return pieces of 1 MiB at regular intervals, about `size` bytes in total."""
    nbytes = os.path.getsize(path)
    step = max(MIB, nbytes * MIB // max(size, MIB))
    with open(path, "rb") as fp:
        return b"".join(os.pread(fp.fileno(), MIB, i) for i in range(0, nbytes, step))


def trial(sample: bytes, cname: str, clevel: int, name: str, typesize: int) -> dict:
    """Return the ratio and the speeds of a setting, in plain bytes per second."""
    settings = bloscpack.BloscArgs(typesize, clevel, FILTERS[name], cname)
    times = []
    for _ in range(3):
        start = time.process_time()
        packed = bloscpack.pack_bytes_to_bytes(
            sample, blosc_args=settings, chunk_size=MIB, nthreads=1
        )
        middle = time.process_time()
        bloscpack.unpack_bytes_from_bytes(packed, nthreads=1)
        times.append((middle - start, time.process_time() - middle))
    pack, unpack = map(min, zip(*times, strict=True))
    return {
        "options": "-c %s -l %d -t %d %s" % (cname, clevel, typesize, name),
        "filter": (name, typesize),
        "ratio": len(sample) / len(packed),
        "pack": len(sample) / max(pack, 1e-9),
        "unpack": len(sample) / max(unpack, 1e-9),
    }


def cost(row: dict, disk: float) -> float:
    """Return the seconds per byte to write it to a disk and to read it back."""
    return (1 / row["pack"] + 1 / row["unpack"]) / THREADS + 2 / (row["ratio"] * disk)


def compare(sample: bytes, typesizes: tuple[int, ...], disk: float) -> list[dict]:
    """Return the rows of all trials, the lowest cost first."""
    plain = ("-s", typesizes[0])
    others = [(name, n) for name in ("--shuffle", "--bitshuffle") for n in typesizes]
    filters = [plain, *others[typesizes[0] == 1 :]]  # bytes can't be shuffled
    rows = [trial(sample, *probe, *pair) for probe in PROBES for pair in filters]
    best = sorted(rows, key=lambda row: row["ratio"], reverse=True)
    kept = {plain, *[row["filter"] for row in best[: 2 * FILTERS_KEPT]]}
    levels = [(c, n) for c in CNAME_AVAIL for n in LEVELS if (c, n) not in PROBES]
    rows += [trial(sample, *level, *pair) for level in levels for pair in kept]
    return sorted(rows, key=lambda row: cost(row, disk))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--typesize", type=int, help="try only this type size")
    parser.add_argument("--sample", type=int, default=2, help="MiB (default: 2)")
    parser.add_argument("--disk", type=float, default=100, help="MB/s (default: 100)")
    args = parser.parse_args()
    sizes = (args.typesize,) if args.typesize else TYPESIZES
    print("ratio  pack MB/s  unpack MB/s  options of blpk repack")
    for row in compare(sample_of(args.file, args.sample * MIB), sizes, 1e6 * args.disk):
        speeds = row["ratio"], row["pack"] / 1e6, row["unpack"] / 1e6
        print("%5.2f %10.0f %12.0f  %s" % (*speeds, row["options"]))
