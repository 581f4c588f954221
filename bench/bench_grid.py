"""Read and change arrays that are cut in every axis, beside zarr, blosc2 and h5py.

All have the same chunk shapes, codec lz4 at level 5 with the byte shuffle (h5py: lzf),
and one thread. This library and zarr keep digests of each chunk, and compare them at
each read; blosc2 and h5py have none. Each cell is CPU time in milliseconds; the numbers
behind it are the multiples that the others need. All in one run, in turns; each
operation is at a place of its own, drawn at random but the same for all.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

import blosc
import blosc2
import h5py
import numpy as np
import zarr

from bloscpack import dataset

CASES = {
    # name: shape, dtype, chunks, shards
    "time, lat, lon": ((1000, 181, 360), "f4", (96, 45, 60), (192, 90, 180)),
    "volume": ((64, 1024, 1024), "u2", (32, 64, 64), (64, 256, 256)),
}
SETTINGS = {"cname": "lz4", "clevel": 5}


def array_of(shape, dtype):
    """Return a smooth array with noise, as measurements are."""
    rng = np.random.default_rng(0)
    waves = sum(np.sin(axis / 40) for axis in np.ogrid[tuple(slice(n) for n in shape)])
    noise = rng.normal(0, 0.3, shape)
    return ((waves * 20 + noise + 300).round(2) * (1 if dtype == "f4" else 10)).astype(
        dtype
    )


def ours(folder, array, chunks, shards):
    return dataset.create_array(
        folder / "ours", array, chunks=chunks, shards=shards, sync=False, **SETTINGS
    )


def of_zarr(folder, array, chunks, shards):
    codec = zarr.codecs.BloscCodec(
        shuffle="shuffle", typesize=array.itemsize, **SETTINGS
    )
    made = zarr.create_array(
        str(folder / "zarr"),
        shape=array.shape,
        dtype=array.dtype,
        chunks=chunks,
        shards=shards,
        compressors=[codec, zarr.codecs.Crc32cCodec()],
    )
    made[...] = array
    return made


def of_blosc2(folder, array, chunks, shards):
    cparams = {"codec": blosc2.Codec.LZ4, "clevel": 5, "nthreads": 1}
    path = str(folder / "b2nd")
    return blosc2.asarray(
        array, chunks=chunks, urlpath=path, cparams=cparams, dparams={"nthreads": 1}
    )


def of_h5py(folder, array, chunks, shards):
    file = h5py.File(folder / "h5", "w")
    return file.create_dataset(
        "a",
        data=array,
        chunks=chunks,
        maxshape=(None, *array.shape[1:]),
        compression="lzf",
        shuffle=True,
    )


MAKERS = {"bloscpack": ours, "zarr": of_zarr, "blosc2": of_blosc2, "h5py": of_h5py}


def box(rng, shape, lengths):
    """Return slices of some lengths at a random place."""
    starts = [
        int(rng.integers(0, n - m + 1)) for n, m in zip(shape, lengths, strict=True)
    ]
    return tuple(slice(i, i + m) for i, m in zip(starts, lengths, strict=True))


def reads(shape):
    """Return a function of a random generator for each kind of read."""
    n, *inner = shape
    return {
        "series": lambda rng: (slice(None), *(int(rng.integers(0, m)) for m in inner)),
        "map": lambda rng: (int(rng.integers(0, n)),),
        "box": lambda rng: box(rng, shape, (min(n, 200), 40, 60)),
        "crop": lambda rng: box(rng, shape, (64, 64, 64)),
        "scan": lambda rng: (slice(None),),
    }


def time_of(function):
    start = time.process_time()
    function()
    return (time.process_time() - start) * 1000


def append(side, made, block):
    """Append rows."""
    if side == "bloscpack":
        made.append(block)
    elif side == "zarr":
        made.append(block, axis=0)
    else:
        length = made.shape[0]
        made.resize((length + len(block), *made.shape[1:]))
        made[length:] = block


def assign(made, index, values):
    made[index] = values


def compare(case, rounds):
    shape, dtype, chunks, shards = CASES[case]
    array = array_of(shape, dtype)
    print("%s: %s %s, chunks %s, shards %s" % (case, shape, dtype, chunks, shards))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        made = {
            side: make(folder, array, chunks, shards) for side, make in MAKERS.items()
        }
        for action, key_of in reads(shape).items():
            found = {side: [] for side in made}
            for number in range(2 if action == "scan" else rounds):
                key = key_of(np.random.default_rng(number))
                for side, each in made.items():
                    found[side].append(time_of(partial(each.__getitem__, key)))
                    assert np.array_equal(each[key], array[key]), (side, action)
            show(action, found)
        found = {side: [] for side in made}
        for number in range(3):
            index = box(
                np.random.default_rng(number), shape, (min(shape[0], 100), 40, 60)
            )
            values = array[index] + 1
            for side, each in made.items():
                found[side].append(time_of(partial(assign, each, index, values)))
        show("assign a region", found)
        found = {side: [] for side in made}
        for _ in range(3):
            for side, each in made.items():
                found[side].append(time_of(partial(append, side, each, array[:1])))
        show("append one step", found)


SHAPES = {
    # name: shape, dtype, and the chunks that are compared; None for the default
    "time, lat, lon": ((1000, 181, 360), "f4", [None, (4, 181, 360), (250, 23, 45)]),
    "image stack": ((200, 1024, 1024), "u2", [None, (1, 1024, 1024), (4, 256, 512)]),
    "image": ((16384, 16384), "u2", [None, (32, 16384), (256, 2048)]),
    "vectors": ((400_000, 128), "f4", [None, (256, 128), (8192, 32)]),
}


def compare_shapes():
    """Print what reads of this library cost with several chunk shapes."""
    for name, (shape, dtype, candidates) in SHAPES.items():
        array = array_of(shape, dtype)
        actions = {
            "series": (slice(None), *(n // 2 for n in shape[1:])),
            "row": (shape[0] // 2,),
            "box": tuple(slice(n // 3, n // 3 + min(n, 64)) for n in shape),
            "scan": (slice(None),),
        }
        for chunks in candidates:
            with tempfile.TemporaryDirectory() as place:
                made = dataset.create_array(Path(place) / "a", array, chunks=chunks)
                made.close()
                cells = []
                for action, key in actions.items():
                    times = []
                    for _ in range(3):
                        with dataset.open(made.path) as each:
                            times.append(time_of(partial(each.__getitem__, key)))
                    cells.append("%s %8.2f ms" % (action, min(times)))
            label = "default %s" % (made.chunks,) if chunks is None else str(chunks)
            print("%-15s %-24s %s" % (name, label, "   ".join(cells)))


def show(action, found):
    middle = {side: statistics.median(times) for side, times in found.items()}
    first = middle["bloscpack"]
    others = ["%s %5.2f" % (side, middle[side] / first) for side in list(middle)[1:]]
    print("  %-16s %8.2f ms   %s" % (action, first, "   ".join(others)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="places of each read")
    parser.add_argument("--shapes", action="store_true", help="compare chunk shapes")
    args = parser.parse_args()
    blosc.set_nthreads(1)
    blosc2.set_nthreads(1)
    zarr.config.set({"threading.max_workers": 1})
    if args.shapes:
        compare_shapes()
        return
    for case in CASES:
        compare(case, args.rounds)


if __name__ == "__main__":
    main()
