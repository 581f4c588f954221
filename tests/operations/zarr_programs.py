"""Read arrays whose shards are .blp files, with zarr-python, TensorStore and zarrs.

The tests run this script with a Python that has these packages. Each line of its input
is a request, a JSON object with ``root``, ``expected``, ``programs`` and ``flips``. The
folder `root` holds ``zarr.json`` and the shards, `expected` is the name of a ``.npy``
file. The answer is a line with a JSON object: for each program whether all items are
equal, and those of some slices. With `flips`, a list of (name, offset, bit), it counts
for each program how often a flipped bit leads to an error, to the right items and to
wrong items.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import numpy as np

Index = Any


def read_with_zarr(root: str, index: Index = ...) -> np.ndarray:
    import zarr

    return zarr.open_array(root, mode="r")[index]


def read_with_tensorstore(root: str, index: Index = ...) -> np.ndarray:
    import tensorstore

    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": root + "/"}}
    # No cache: each read sees the files as they are.
    context = tensorstore.Context({"cache_pool": {"total_bytes_limit": 0}})
    opened = tensorstore.open(spec, open=True, context=context).result()
    return opened[index].read().result()


def read_with_zarrs(root: str, index: Index = ...) -> np.ndarray:
    import zarr

    pipeline = {
        "codec_pipeline.path": "zarrs.ZarrsCodecPipeline",
        "codec_pipeline.strict": True,  # never read with zarr-python instead
    }
    with zarr.config.set(pipeline):
        return zarr.open_array(root, mode="r")[index]


PROGRAMS = {
    "zarr": read_with_zarr,
    "tensorstore": read_with_tensorstore,
    "zarrs": read_with_zarrs,
}


def slices_of(shape: tuple[int, ...]) -> list[Index]:
    """Return slices that begin and end within inner chunks, and an item."""
    middle = tuple(slice(n // 3, n // 3 * 2 + 1) for n in shape)
    return [middle, slice(shape[0] - 1, shape[0]), tuple(n // 2 for n in shape)]


def outcome(read, root: str, expected: np.ndarray, indexes: list[Index]) -> str:
    try:
        found = [np.asarray(read(root, index)) for index in indexes]
    except Exception as error:
        return "error: %r" % error
    # Some programs return another byte order.
    same = [
        array.astype(expected.dtype).tobytes()
        == np.asarray(expected[index], expected.dtype).tobytes()
        for array, index in zip(found, indexes, strict=True)
    ]
    return "right" if all(same) else "wrong"


def count(read, root: str, expected: np.ndarray, flips: list) -> dict[str, int]:
    """Return how often a flipped bit leads to each outcome."""
    counts = {"error": 0, "right": 0, "wrong": 0}
    for shard, offset, bit in flips:
        path = os.path.join(root, shard)
        with open(path, "r+b", buffering=0) as fp:
            fp.seek(offset)
            byte = fp.read(1)[0]
            fp.seek(offset)
            fp.write(bytes([byte ^ 1 << bit]))
            found = outcome(read, root, expected, [...])
            counts[found.partition(":")[0]] += 1
            fp.seek(offset)
            fp.write(bytes([byte]))
    return counts


def answer(
    root: str, expected: str, programs: list[str], flips: list
) -> dict[str, object]:
    array = np.load(expected)
    if flips:
        return {name: count(PROGRAMS[name], root, array, flips) for name in programs}
    indexes = [..., *slices_of(array.shape)]
    return {name: outcome(PROGRAMS[name], root, array, indexes) for name in programs}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), flush=True)
