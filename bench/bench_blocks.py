"""Measure ratio, speed and the time to read an element, by block size of a chunk.

A read of an element decompresses one block. The times are of the CPU, in memory,
without reading and digests. Blosc multiplies the size that it is told by the size of
an item for some codecs: the table shows the size of the blocks that it makes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import contest
import data

from bloscpack._engine.blosc_settings import own_settings
from bloscpack._format.blosc_header import decode_header
from bloscpack._format.chunks import compress, decompress_into
from bloscpack.args import BloscArgs

KIB = 2**10
CODECS = {"lz4 5": ("lz4", 5), "lz4 7": ("lz4", 7), "zstd 3": ("zstd", 3)}
# Sizes in KiB that Blosc is told; 0 for automatic sizes, which come first.
SIZES = (0, 8, 16, 32, 64, 128, 256)


def parse() -> argparse.Namespace:
    parser = contest.options(__doc__, "blocks")
    parser.add_argument("--mib", type=int, default=16, help="MiB of a data set")
    parser.add_argument("--chunk", type=int, default=1024, help="KiB of a chunk")
    parser.add_argument("--data", nargs="*", default=["walk", "stamps", "linspace"])
    parser.add_argument("--codecs", nargs="*", default=list(CODECS), choices=CODECS)
    return parser.parse_args()


def best(action: Callable[[], object], rounds: int) -> float:
    """Return the least CPU time of an action in seconds."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)


def measure(plain: list[bytes], blosc_args: BloscArgs, size: int, rounds: int) -> dict:
    """Return the figures for one block size; times are seconds for a chunk."""
    blosc_args.blocksize = size
    own_settings.use_blocksize(size)
    chunks = [compress(each, blosc_args) for each in plain]
    packing = best(lambda: [compress(each, blosc_args) for each in plain], rounds)
    out = memoryview(bytearray(len(plain[0])))
    middle = len(out) // 2
    whole = best(lambda: [decompress_into(each, out) for each in chunks], rounds)

    def part() -> list[tuple[int, int]]:
        return [(middle, middle + 8)]

    element = best(
        lambda: [decompress_into(each, out, part=part) for each in chunks], rounds
    )
    return {
        "block": decode_header(chunks[0]).blocksize,
        "ratio": sum(map(len, plain)) / sum(map(len, chunks)),
        "compress": packing / len(plain),
        "decompress": whole / len(plain),
        "element": element / len(plain),
    }


def run(args: argparse.Namespace) -> list[dict]:
    """Measure each codec, data set and block size; return the rows."""
    rows = []
    titles = ("block KiB", "ratio", "compress", "decompress", "element us")
    print(("%-8s%-10s" + "%12s" * 5) % ("codec", "data", *titles))
    for codec in args.codecs:
        cname, clevel = CODECS[codec]
        for name in args.data:
            array = data.make(name, args.mib * data.MIB)
            blosc_args = BloscArgs(array.itemsize, clevel, True, cname)
            raw, step = array.tobytes(), args.chunk * KIB
            plain = [raw[i : i + step] for i in range(0, len(raw), step)]
            automatic: dict = {}
            for size in SIZES:
                with own_settings:
                    row = measure(plain, blosc_args, size * KIB, args.rounds)
                automatic = automatic or row
                rows.append({"codec": codec, "data": name, "told": size, **row})
                relative = [
                    row[key] / automatic[key]
                    for key in ("ratio", "compress", "decompress")
                ]
                print("%-8s%-10s%12d" % (codec, name, row["block"] // KIB), end="")
                figures = (*relative, 1e6 * row["element"])
                print("%12.2f%12.2f%12.2f%12.0f" % figures, flush=True)
    return rows


def main() -> None:
    """Run the benchmark, print the table and write the results."""
    args = parse()
    contest.write(args.json, rows=run(args))


if __name__ == "__main__":
    main()
