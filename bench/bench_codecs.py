"""Compare settings of Blosc that may be the default of datasets, on kinds of data.

Run ``python bench/bench_codecs.py``. Each cell has the compressed size as a part of the
plain size, and the CPU time of compressing and of decompressing 16 MB, divided by the
CPU time with the first setting. One thread, chunks of 1 MiB, all in one run.
"""

from __future__ import annotations

import time

import blosc
import numpy as np

NITEMS = 2_000_000
SETTINGS = (
    ("blosclz", 7, 1),
    ("lz4", 5, 1),
    ("lz4", 9, 1),
    ("lz4", 5, 2),
    ("zstd", 1, 1),
)


def kinds():
    """Return data by name."""
    rng = np.random.default_rng(0)
    days, lat, lon = np.ogrid[:60, -90:91, :360]
    grid = 280 + 20 * np.cos(np.radians(lat)) + 3 * np.sin(lon / 60 + days / 9)
    y, x = np.ogrid[:2048, :2048]
    image = 2000 + 300 * np.sin(y / 30) + 300 * np.cos(x / 50)
    return {
        "f4 grid, 2 decimals": (grid + rng.normal(0, 0.3, grid.shape))
        .round(2)
        .astype("f4"),
        "f8 series, 2 decimals": np.cumsum(rng.normal(0, 1, NITEMS)).round(2),
        "i8 below 1000": rng.integers(0, 1000, NITEMS),
        "u2 image": (image + rng.normal(0, 20, image.shape)).astype("u2"),
        "i8 identifiers": np.arange(NITEMS) + rng.integers(0, 3, NITEMS),
        "f8 noise": rng.normal(size=NITEMS),
        "f4 vectors": rng.normal(size=2 * NITEMS).astype("f4"),
        "f8 smooth": np.sin(np.linspace(0, 99, NITEMS)),
        "bool": rng.random(8 * NITEMS) < 0.1,
    }


def measure(chunks, itemsize, setting):
    """Return compressed size, and CPU seconds of compressing and decompressing."""
    cname, clevel, shuffle = setting
    start = time.process_time()
    stored = [blosc.compress(c, itemsize, clevel, shuffle, cname) for c in chunks]
    middle = time.process_time()
    for each in stored:
        blosc.decompress(each)
    return sum(map(len, stored)), middle - start, time.process_time() - middle


def main():
    blosc.set_nthreads(1)
    print(
        "%-22s" % ""
        + "".join("%-19s" % ("%s %d %s" % (*s[:2], "-sb"[s[2]])) for s in SETTINGS)
    )
    for name, array in kinds().items():
        content = array.tobytes()
        chunks = [content[i : i + 2**20] for i in range(0, len(content), 2**20)]
        first = measure(chunks, array.itemsize, SETTINGS[0])
        cells = []
        for setting in SETTINGS:
            runs = [measure(chunks, array.itemsize, setting) for _ in range(3)]
            size, *seconds = map(min, *runs)
            ratios = [a / b for a, b in zip(seconds, first[1:], strict=True)]
            cells.append("%.2f %5.2f %5.2f" % (size / len(content), *ratios))
        print("%-22s" % name + "".join("%-19s" % cell for cell in cells))


if __name__ == "__main__":
    main()
