"""Measure files, and reads and small changes of datasets, against another checkout.

Each side reads the files and datasets that it has written itself. Each round starts one
process for each side, in alternating order. An action is repeated, and its result is
the least CPU time: other programs on the machine make an action slower, never faster.
That of files with several chunks is the least wall time, because two threads read,
compress and write them: the machine should be quiet. Changes are made without sync.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

import contest

LAYOUTS = ("file", "zarr", "superchunk")

WRITE = """
import sys, numpy
from bloscpack import dataset
folder, layout = sys.argv[1:]
items = numpy.arange(2_000_000).reshape(-1, 4)
options = {"layout": layout, "sync": False}
dataset.create_array(folder + "/array", items, chunks=4096, shards=65536, **options)
few = items[:40_000]
dataset.create_array(folder + "/shards", few, chunks=100, shards=400, **options)
columns = {"c%d" % i: items[:100_000, i % 4] for i in range(10)}
dataset.create_table(folder + "/table", columns, chunks=1000, **options)
if layout == "zarr":
    with dataset.create_group(folder + "/group", sync=False) as group:
        with group.change():
            for i in range(200):
                group.create_array("v%d" % i, items[:50, 0], attrs={"units": "m"})
"""

WRITE_FILES = """
import sys, numpy
import bloscpack as bp
folder = sys.argv[1]
steps = numpy.random.default_rng(1).normal(size=8_000_000)
for name, items in {"walk": steps.cumsum(), "line": numpy.arange(8e6)}.items():
    items.tofile(folder + "/" + name)
    bp.pack_file_to_file(folder + "/" + name, folder + "/" + name + ".blp", typesize=8)
"""

# In a process: action → seconds of a call. `calls` calls are timed together.
MEASURE = """
import json, os, shutil, sys, time, numpy
folder, target, seconds = sys.argv[1], sys.argv[2], {}

def measure(action, call, calls, repeat, clock=time.process_time):
    found = []
    for _ in range(repeat):
        start = clock()
        for i in range(calls):
            call(i)
        found.append((clock() - start) / calls)
    seconds[action] = min(found)
"""

FILES = """
import bloscpack as bp

def of_files(function, name, target, **options):
    def call(i):
        if os.path.exists(target):
            os.remove(target)
        function(folder + "/" + name, target, nthreads=2, **options)
    return call

out, wall = target + "/out", time.perf_counter
for name in ("walk", "line"):
    pack = of_files(bp.pack_file_to_file, name, out, typesize=8)
    measure("pack_file_to_file, " + name, pack, 1, 3, wall)
    unpack = of_files(bp.unpack_file_from_file, name + ".blp", out)
    measure("unpack_file_from_file, " + name, unpack, 1, 3, wall)
plain, array = bytes(range(256)) * 4, numpy.arange(128.0)
packed, packed_array = bp.pack_bytes_to_bytes(plain), bp.pack_ndarray_to_bytes(array)
measure("pack 1 KB", lambda i: bp.pack_bytes_to_bytes(plain), 500, 10)
measure("unpack 1 KB", lambda i: bp.unpack_bytes_from_bytes(packed), 500, 10)
measure("pack an array of 1 KB", lambda i: bp.pack_ndarray_to_bytes(array), 500, 10)
unpack = bp.unpack_ndarray_from_bytes
measure("unpack an array of 1 KB", lambda i: unpack(packed_array), 500, 10)
few = {"v%d" % i: array[: i % 20] for i in range(1000)}
measure("savez of 1000 short arrays", lambda i: bp.savez(out, **few), 1, 5)
shutil.rmtree(target)
print(json.dumps(seconds))
"""

DATASETS = """
from bloscpack import dataset

def opened(name, key):
    def call(i):
        with dataset.open(folder + name) as found:
            found[key]
    return call

def copied(name):
    shutil.copytree(folder + name, target + name)
    return dataset.open(target + name, "r+", sync=False)

def one_in_each_shard(i):
    with dataset.open(folder + "/shards") as found:
        for row in range(0, 40_000, 400):
            found[row, 1]

measure("open, one item", opened("/array", (1000, 2)), 20, 30)
measure("open, one row of a table", opened("/table", 1000), 5, 30)
measure("open, all items", opened("/array", slice(None)), 1, 20)
measure("open, all of 100 shards", opened("/shards", slice(None)), 1, 20)
measure("open, one item of each shard", one_in_each_shard, 1, 20)
array, table = dataset.open(folder + "/array"), dataset.open(folder + "/table")
array[0], table[0]
measure("an item", lambda i: array[i, 1], 1000, 30)
measure("slices", lambda i: array[i * 500 : i * 500 + 10], 200, 30)
measure("rows of a table", lambda i: table[i * 500 : i * 500 + 10], 50, 30)
with copied("/array") as array, copied("/table") as table:
    array[0]
    measure("an item, r+", lambda i: array[i, 1], 1000, 30)
    measure("slices, r+", lambda i: array[i * 500 : i * 500 + 10], 200, 30)
    measure("append 100 rows", lambda i: array.append(array[:100]), 1, 40)
    measure("assign a row", lambda i: array.__setitem__(i, 1), 1, 40)
    measure("set an attribute", lambda i: array.attrs.update(a=i), 5, 20)
    rows = table[:100]
    measure("append 100 rows to a table", lambda i: table.append(rows), 1, 20)

def in_group(change, count):
    def call(i):
        with dataset.open(target + "/group", "r+", sync=False) as group:
            for number in range(count):
                change(group["v7"], number)
    return call

if os.path.exists(folder + "/group"):  # its document has those of 200 members
    copied("/group").close()
    append = in_group(lambda array, _: array.append([1]), 3)
    measure("open a group, 3 appends", append, 1, 5)
    change = in_group(lambda array, number: array.attrs.update(k=number), 5)
    measure("open a group, 5 attributes", change, 1, 5)
    measure("open a group, one item", opened("/group", "v100"), 1, 20)
shutil.rmtree(target)
print(json.dumps(seconds))
"""


def parse() -> argparse.Namespace:
    parser = contest.options(__doc__, "before", rounds=9)
    parser.add_argument("before", help="folder of another checkout to compare with")
    parser.add_argument("--layouts", nargs="*", default=LAYOUTS)
    return parser.parse_args()


def run(checkout: str, script: str, *args: str) -> str:
    """Run a script with the package of a checkout; return its output."""
    done = subprocess.run(
        [sys.executable, "-c", script, *args],
        check=True,
        env={**os.environ, "PYTHONPATH": os.path.abspath(checkout)},
        cwd=args[0],
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


def measure(sides: dict[str, str], layout: str, folder: str, count: int) -> list[dict]:
    """Measure all actions in alternating rounds; print and return the rows."""
    write, actions = (WRITE_FILES, FILES) if layout == "file" else (WRITE, DATASETS)
    inputs = {side: os.path.join(folder, "%s-%s" % (layout, side)) for side in sides}
    target = os.path.join(folder, "copy")
    for side, path in inputs.items():
        os.mkdir(path)
        run(sides[side], write, path, layout)
    best: dict[str, dict[str, float]] = {side: {} for side in sides}
    for number in range(count):
        for side in sorted(sides, reverse=number % 2 == 0):
            os.mkdir(target)
            printed = run(sides[side], MEASURE + actions, inputs[side], target)
            found = json.loads(printed)
            for action, seconds in found.items():
                best[side][action] = min(best[side].get(action, seconds), seconds)
    rows = []
    for action, before in best["before"].items():
        row = {"layout": layout, "action": action, "before": before}
        row["this"] = best["this"][action]
        rows.append(row)
        print(
            "%-11s %-29s before: %10.1f us  this: %10.1f us  %6.3f"
            % (layout, action, 1e6 * before, 1e6 * row["this"], row["this"] / before),
            flush=True,
        )
    return rows


def main() -> None:
    """Run the benchmark, print the table and write the results."""
    args = parse()
    sides = {"before": args.before, "this": str(contest.HERE.parent)}
    with contest.scratch(args.folder) as folder:
        rows = [
            row
            for layout in args.layouts
            for row in measure(sides, layout, folder, args.rounds)
        ]
    contest.write(args.json, rows=rows)


if __name__ == "__main__":
    main()
