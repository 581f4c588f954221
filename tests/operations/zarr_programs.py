"""Read arrays whose shards are .blp files, with zarr-python and TensorStore.

The tests run this script with a Python that has these packages. Each line of its input
is a request, a JSON object with ``root``, ``expected``, ``programs`` and ``flips``. The
folder `root` holds ``zarr.json`` and the shards, `expected` is the name of a ``.npy``
file. The answer is a line with a JSON object: for each program whether all items are
equal. With `flips`, a list of (name, offset, bit), it counts for each program how often
a flipped bit leads to an error, to the right items and to wrong items.
"""

from __future__ import annotations

import json
import os
import sys

import numpy as np


def read_with_zarr(root: str) -> np.ndarray:
    import zarr

    return zarr.open_array(root, mode="r")[...]


def read_with_tensorstore(root: str) -> np.ndarray:
    import tensorstore

    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": root + "/"}}
    # No cache: each read sees the files as they are.
    context = tensorstore.Context({"cache_pool": {"total_bytes_limit": 0}})
    return tensorstore.open(spec, open=True, context=context).result().read().result()


PROGRAMS = {"zarr": read_with_zarr, "tensorstore": read_with_tensorstore}


def outcome(read, root: str, expected: np.ndarray) -> str:
    try:
        found = np.asarray(read(root))
    except Exception as error:
        return "error: %r" % error
    # Some programs return another byte order.
    same = found.astype(expected.dtype).tobytes() == expected.tobytes()
    return "right" if same else "wrong"


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
            counts[outcome(read, root, expected).partition(":")[0]] += 1
            fp.seek(offset)
            fp.write(bytes([byte]))
    return counts


def answer(
    root: str, expected: str, programs: list[str], flips: list
) -> dict[str, object]:
    array = np.load(expected)
    arguments = (root, array, flips) if flips else (root, array)
    act = count if flips else outcome
    return {name: act(PROGRAMS[name], *arguments) for name in programs}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), flush=True)
