"""Read arrays whose shards are .blp files, with zarr-python, TensorStore and zarrs.

The test runs this script with a Python that has these packages:
``python zarr_programs.py ROOT EXPECTED.npy [FLIPS]``. ROOT holds ``zarr.json`` and the
shards. It prints one JSON object: for each program whether all items are equal, and
those of some slices. With FLIPS, a JSON file of (name, offset, bit), it counts for each
program how often a flipped bit leads to an error, to the right items and to wrong ones.
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
        return "error" if os.environ.get("QUIET") else "error: %r" % error
    # Some programs return another byte order.
    same = [
        array.astype(expected.dtype).tobytes()
        == np.asarray(expected[index], expected.dtype).tobytes()
        for array, index in zip(found, indexes, strict=True)
    ]
    return "right" if all(same) else "wrong"


def main(root: str, expected_file: str, flips_file: str | None = None) -> None:
    expected = np.load(expected_file)
    programs = os.environ.get("PROGRAMS", " ".join(PROGRAMS)).split()
    result: dict[str, object] = {}
    if flips_file is None:
        for name in programs:
            indexes = [..., *slices_of(expected.shape)]
            result[name] = outcome(PROGRAMS[name], root, expected, indexes)
        print(json.dumps(result))
        return
    os.environ["QUIET"] = "1"
    with open(flips_file) as fp:
        flips = json.load(fp)
    for name in programs:
        counts = {"error": 0, "right": 0, "wrong": 0}
        for shard, offset, bit in flips:
            path = os.path.join(root, shard)
            with open(path, "r+b", buffering=0) as fp:
                fp.seek(offset)
                byte = fp.read(1)[0]
                fp.seek(offset)
                fp.write(bytes([byte ^ 1 << bit]))
                counts[outcome(PROGRAMS[name], root, expected, [...])] += 1
                fp.seek(offset)
                fp.write(bytes([byte]))
        result[name] = counts
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
