"""``blpk diff``: equal or not, of any two formats."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from support import run_command

import bloscpack as bp
from bloscpack import dataset
from bloscpack.dataset.conversion.comparison import Items
from bloscpack.dataset.frames import shown_items
from bloscpack.file_io import CompressedBytesSource

pytestmark = pytest.mark.usefixtures("folder")

COUNT = 3000
ROWS = np.zeros(COUNT, [("day", "M8[D]"), ("price", "f8"), ("name", "S3")])
ROWS["day"] = np.datetime64("2026-01-01") + np.arange(COUNT)
ROWS["price"] = np.arange(COUNT) / 8
ROWS["price"][7] = np.nan
ROWS["name"] = b"x"


def pack(name, array, *args, **kwargs):
    bp.pack_ndarray_to_file(np.asarray(array), name, *args, **kwargs)
    return name


def differences(run, a, b, code=1):
    found, said, errors = run("diff", "--json", a, b)
    assert (code, "") == (found, errors)
    return json.loads(said)


HOLE = 2**40
FORMATS = ["r.blp", "r.npy", "r.zarr", "r.superchunk", "r.bcolz", "r.npz", "r.zip"]


def make(name, rows):
    if name.endswith(".zip"):
        bp.savez(name, rows)
        return name
    pack("source.blp", rows, "8K")
    if name != "source.blp":
        dataset.convert("source.blp", name, force=True)
    return name


@pytest.mark.parametrize("b", FORMATS)
@pytest.mark.parametrize("a", ["source.blp", "r.zarr", "r.npz"])
def test_any_two_formats(run, a, b):
    make(a, ROWS)
    os.rename(a, "first-" + a)
    assert (0, "", "") == run("diff", "first-" + a, make(b, ROWS))
    changed = ROWS.copy()
    changed["price"][2000] = 0
    changed["name"][5] = b"yy"
    os.rename(b, "old") if os.path.exists(b) else None
    code, said, errors = run("diff", "first-" + a, make("new-" + b, changed))
    assert (1, "") == (code, errors)
    assert said.count("1 of 3000 items differs") == 2
    assert ["[2000]", "250.0", "0.0"] in [line.split() for line in said.splitlines()]
    assert ["[5]", "b'x'", "b'yy'"] in [line.split() for line in said.splitlines()]


def test_the_files_of_a_tree_are_no_difference(run):
    with dataset.create_group("a.zarr", attrs={"k": 1}) as group:
        group.create_array("b", [1, 2], attrs={"unit": "m"}).close()
    dataset.convert("a.zarr", "a.bigfile")
    assert (0, "", "") == run("diff", "a.zarr", "a.bigfile")
    dataset.convert("a.bigfile", "b.zarr")
    with dataset.open("b.zarr", "r+") as group:
        group.attrs["k"] = 2
    assert 1 == run("diff", "a.bigfile", "b.zarr")[0]


def test_equal_files_say_nothing(run):
    pack("a.blp", [1.5, np.nan])
    shutil.copy("a.blp", "b.blp")
    assert (0, "", "") == run("diff", "a.blp", "b.blp")
    assert differences(run, "a.blp", "b.blp", 0)["equal"]


def test_the_first_differing_items(run):
    a = np.zeros((100, 3))
    b = a.copy()
    b[::4, 1] = 0.5
    b[96, 2] = -8
    b[97] = np.nan
    (found,) = differences(run, pack("a.blp", a), pack("b.blp", b))["items"]
    assert (300, 29) == (found["compared"], found["differing"])
    assert {"index": [0, 1], "a": 0.0, "b": 0.5} == found["first"][0]
    assert 10 == len(found["first"])
    said = run("diff", "a.blp", "b.blp")[1].splitlines()
    assert "29 of 300 items differ" == said[0]
    assert "  ..." == said[-1]


@pytest.mark.parametrize("order", "CF")
def test_indexes_in_either_order(run, order):
    a = np.arange(60000.0).reshape(300, 200).copy(order)
    b = a.copy(order)
    b[250, 3] = -1
    pack("a.blp", a, "10K")
    (found,) = differences(run, "a.blp", pack("b.blp", b, "10K"))["items"]
    assert [{"index": [250, 3], "a": 50003.0, "b": -1.0}] == found["first"]
    other = "F" if order == "C" else "C"
    assert 0 == run("diff", "a.blp", pack("c.blp", a.copy(other), "10K"))[0]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (np.array([2**63 - 1]), np.array([-(2**63)])),
        (np.array([2**53 + 1]), np.array([2**53])),
        (np.array([1, 2], "u1"), np.array([255, 2], "u1")),
        (np.array([np.inf, 1]), np.array([1, 1])),
        (np.array([1 + 1j]), np.array([1 - 1j])),
        (np.array([True]), np.array([False])),
        (np.array(["a"]), np.array(["b"])),
        (
            np.array(["2026-01-01"], "M8[D]"),
            np.array(["2026-01-03"], "M8[D]"),
        ),
        (np.array(["NaT"], "M8[D]"), np.array(["2026-01-03"], "M8[D]")),
        (np.array([-(2**62)], "M8[s]"), np.array([2**62 + 1], "M8[s]")),
        (np.array([b"ab"], "V2"), np.array([b"cd"], "V2")),
    ],
    ids=lambda value: str(getattr(value, "dtype", "")),
)
def test_types(run, a, b):
    (found,) = differences(run, pack("a.blp", a), pack("b.blp", b))["items"]
    assert 1 == found["differing"]
    assert 0 == run("diff", "a.blp", pack("c.blp", a))[0]


def test_other_types_and_shapes(run):
    pack("a.blp", np.arange(10))
    found = differences(run, "a.blp", pack("b.blp", np.arange(10.0)))
    assert ["dtype"] == [note["what"] for note in found["differences"]]
    assert [0] == [items["differing"] for items in found["items"]]
    found = differences(run, "a.blp", pack("c.blp", np.arange(12)))
    assert [("shape", [10], [12])] == [
        (note["what"], note["a"], note["b"]) for note in found["differences"]
    ]
    said = run("diff", "a.blp", pack("d.blp", np.eye(3)))[1]
    assert "dtype: <i8 and <f8\nshape: [10] and [3,3]\n" == said


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (np.array([2**53 + 1]), np.array([2.0**53])),
        (np.array([2**63 - 1]), np.array([2**63 + 0j])),
        (np.array([2**64 - 1], "u8"), np.array([2.0**64], "f4")),
        (np.array([-1]), np.array([2**64 - 1], "u8")),
        (np.array([1], "M8[M]"), np.array([32], "M8[D]")),
        # As a number of nanoseconds modulo 2**64, both are the same.
        (np.array([2**51], "m8[s]"), np.array([10**9 * 2**51 % 2**64], "m8[ns]")),
    ],
    ids=lambda value: str(getattr(value, "dtype", "")),
)
def test_values_of_two_types_are_compared_exactly(run, a, b):
    pack("a.blp", a)
    pack("b.blp", b)
    for first, second in (("a.blp", "b.blp"), ("b.blp", "a.blp")):
        (found,) = differences(run, first, second)["items"]
        assert 1 == found["differing"]
        shown = run("diff", first, second)[1].splitlines()[-1].strip()
        _, left, right = re.split("  +", shown)
        assert left != right


@pytest.mark.parametrize(
    ("a", "b"), [("m8[Y]", "m8[s]"), ("M8[Y]", "M8[as]"), ("U1", "S1")]
)
def test_types_without_common_values(run, a, b):
    pack("a.blp", np.array([1, 2]).astype(a))
    found = differences(run, "a.blp", pack("b.blp", np.array([1, 2]).astype(b)))
    assert ["dtype"] == [note["what"] for note in found["differences"]]
    assert [] == found["items"]


def test_shapes_of_fields_differ(run):
    for length in (2, 3):
        rows = np.zeros(3, [("x", "f8", (length,)), ("i", "i8")])
        np.save("%d.npy" % length, rows)
    assert (1, "x: shape: [3,2] and [3,3]\n", "") == run("diff", "2.npy", "3.npy")


def test_fortran_arrays_of_other_shapes(run):
    a = np.zeros((10, 500), order="F")
    b = np.zeros((12, 500), order="F")
    b[5, 400:] = 7
    pack("a.blp", a, "4K")
    (found,) = differences(run, "a.blp", pack("b.blp", b, "4K"))["items"]
    assert (5000, 100) == (found["compared"], found["differing"])
    assert [5, 400] == found["first"][0]["index"]


def test_many_differing_items_need_little_memory():
    a, b = (np.full((2**5, 2**8, 2**7), fill, "u1") for fill in (0, 1))
    found = Items("", a.size)
    tracemalloc.start()
    try:
        found.add(a, b, 0, False)
        assert tracemalloc.get_traced_memory()[1] < 10 * a.nbytes
    finally:
        tracemalloc.stop()
    assert a.size == found.differing
    assert [(0, 0, n) for n in range(10)] == [index for index, _, _ in found.first]


DIFFERENT = {
    "text": (np.array(["a", "same"], object), np.array(["b\0", "same"], object)),
    "text and fixed text": (np.array(["a"], object), np.array(["b"])),
    "bytes": (np.array([b"a"]), np.array([b"b"])),
    "complex": (np.array([1j]), np.array([2j])),
    "complex NaN": (np.array([complex(1, np.nan)]), np.array([complex(2, np.nan)])),
    "time": (np.array(["NaT"], "M8[D]"), np.array(["2026-01-01"], "M8[D]")),
    "truth": (np.array([True]), np.array([False])),
}


@pytest.mark.parametrize("kind", ["array", "table", "group"])
@pytest.mark.parametrize("type_", DIFFERENT)
def test_items_of_every_type_are_shown(run, type_, kind):
    for name, items in zip("ab", DIFFERENT[type_], strict=True):
        if kind == "table":
            dataset.create_table(name, {"x": items}).close()
        else:
            if kind == "group":
                dataset.create_group(name).close()
            where = name + "/x" if kind == "group" else name
            dataset.create_array(where, items).close()
    code, said, errors = run("diff", "a", "b")
    assert (1, "") == (code, errors)
    *_, differ, header, items = said.splitlines()
    assert "1 of %d item" % len(DIFFERENT[type_][0]) in differ
    assert ["index", "first", "second"] == header.split()
    assert ["[0]", *map(text_of, DIFFERENT[type_])] == items.split(maxsplit=2)
    (found,) = differences(run, "a", "b")["items"]
    assert 1 == found["differing"]
    assert [0] == found["first"][0]["index"]


def text_of(items):
    """Return how the first item is shown."""
    return repr(items[0]) if items.dtype == object else shown_items(items)[0]


def test_attributes_and_members(run):
    for name, unit in (("a.zarr", "m"), ("b.zarr", "cm")):
        with dataset.create_group(name, attrs={"v": 1}) as group:
            group.create_array("x", np.arange(5), attrs={"unit": unit}).close()
            group.create_array("only-" + unit, np.arange(5)).close()
    said = run("diff", "a.zarr", "b.zarr")[1].splitlines()
    assert [
        "members only in 'a.zarr': only-m",
        "members only in 'b.zarr': only-cm",
        "x: attribute 'unit': m and cm",
    ] == said


def test_a_format_without_attributes_lacks_none(run):
    pack("a.blp", [1, 2], metadata={"unit": "m"})
    np.save("a.npy", [1, 2])
    assert 0 == run("diff", "a.blp", "a.npy")[0]
    assert 1 == run("diff", "a.blp", pack("b.blp", [1, 2]))[0]
    bp.pack_bytes_to_file(b"x", "c.blp", metadata={"unit": float("nan")})
    bp.pack_bytes_to_file(b"x", "d.blp")
    with open("x", "wb") as fp:
        fp.write(b"x")
    assert 1 == run("diff", "c.blp", "d.blp")[0]
    assert 0 == run("diff", "c.blp", "c.blp")[0]
    assert 0 == run("diff", "c.blp", "x")[0]


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (True, 1, False),
        ([{"x": False}], [{"x": 0}], False),
        ([1, 2], [1, 2, 3], False),
        (1, 1.0, True),
        ({"x": float("nan"), "y": [1]}, {"y": [1], "x": float("nan")}, True),
    ],
)
def test_values_of_attributes(run, a, b, equal):
    pack("a.blp", [1], metadata={"v": a})
    pack("b.blp", [1], metadata={"v": b})
    assert equal == differences(run, "a.blp", "b.blp", int(not equal))["equal"]


@pytest.mark.parametrize(("behind", "code"), [(b"other", (2, 1)), (bytes(9), (0, 0))])
def test_bytes_behind_a_file_are_named(run, behind, code):
    pack("a.blp", ROWS)
    Path("longer.blp").write_bytes(Path("a.blp").read_bytes() + behind)
    calls = ("diff", "longer.blp", "a.blp"), ("convert", "longer.blp", "longer.npy")
    for arguments, expected in zip(calls, code, strict=True):
        found, _, errors = run(*arguments)
        assert expected == found
        assert "other bytes lie behind 'longer.blp'" in errors


def test_a_file_and_its_plain_bytes(run):
    pytest.importorskip("pyarrow")
    with open("words.csv", "w") as fp:
        fp.write("a,b\n1,2\n" * 500)
    assert 0 == run("compress", "words.csv")[0]
    assert (0, "", "") == run("diff", "words.csv", "words.csv.blp")
    with open("words.csv", "r+") as fp:
        fp.write("x")
    code, said, _ = run("diff", "words.csv", "words.csv.blp")
    assert 1 == code
    assert said.startswith("1 of 4000 items differs")


# Chunks


@pytest.mark.parametrize("layout", ["bcolz", "superchunk"])
def test_chunks_of_other_layouts(run, layout):
    numbers = np.arange(50_000)
    dataset.create_array("a", numbers, layout=layout).close()
    numbers[49_999] = 0
    dataset.create_array("b", numbers, layout=layout).close()
    assert (0, "", "") == run("diff", "a", "a")
    said = run("diff", "a", "b")[1]
    assert said.startswith("1 of 50000 items differs\n")


@pytest.mark.parametrize("make", ["blp", "zarr"])
def test_chunks_that_are_cut_in_several_axes(run, make):
    old, new = np.arange(12.0).reshape(4, 3), np.arange(12.0).reshape(4, 3)
    new[0, 2] = new[3, 1] = -1
    for name, array in (("a", old), ("b", new)):
        if make == "blp":
            pack(name, array, chunks=(2, 2))
        else:
            cut = {"chunks": (2, 1), "shards": (4, 2)}
            dataset.create_array(name, array, **cut).close()
    assert (0, "", "") == run("diff", "a", "a")
    (found,) = differences(run, "a", "b")["items"]
    assert 2 == found["differing"]


@pytest.mark.parametrize("chunk_size", [800, 808, 8, 12344])
def test_rows_in_two_chunks_are_compared_once(run, chunk_size):
    a = np.arange(3000).reshape(1000, 3)
    pack("a.blp", a, chunk_size)
    (found,) = differences(run, "a.blp", pack("b.blp", -a, chunk_size))["items"]
    assert (3000, 2999) == (found["compared"], found["differing"])


def test_a_table_that_states_a_huge_chunk(run):
    """The last chunk is behind a hole, which is not read."""
    packed = bp.pack_ndarray_to_bytes(np.arange(300), 800)
    start = CompressedBytesSource(packed).offsets[-1]
    packed = packed.replace(struct.pack("<q", start), struct.pack("<q", start + HOLE))
    for name in ("a.blp", "b.blp"):
        with open(name, "wb") as fp:
            fp.write(packed[:start])
            fp.seek(start + HOLE)
            fp.write(packed[start:])
    assert 3 == run("diff", "a.blp", "b.blp")[0]


# Exit codes


def test_quiet(run):
    pack("a.blp", [1])
    pack("b.blp", [2])
    assert (1, "", "") == run("-q", "diff", "a.blp", "b.blp")
    assert (0, "", "") == run("-q", "diff", "a.blp", "a.blp")


@pytest.mark.full
@pytest.mark.parametrize("b", ["a.blp", "b.blp"])
def test_closed_output(b):
    pack("a.blp", [1])
    pack("b.blp", [2])
    differ = b == "b.blp"
    for quiet, code in (([], 2), (["-q"], 1)):
        command = [sys.executable, "-m", "bloscpack", *quiet, "diff", "a.blp", b]
        found = run_command("/bin/sh", "-c", 'exec "$@" >&-', "sh", *command)
        assert code * differ == found.returncode
        assert (b"is closed" in found.stderr) == (differ and not quiet)


def test_trouble_has_another_exit_code_than_a_difference(run):
    pack("a.blp", [1])
    code, said, errors = run("diff", "a.blp", "missing.blp")
    assert (2, "") == (code, said)
    assert "'missing.blp' does not exist" in errors
    assert 2 == run("diff", "-", "-")[0]


def test_damage(run):
    packed = bytearray(bp.pack_ndarray_to_bytes(np.arange(5000), 8000))
    for name in ("a.blp", "b.blp"):
        with open(name, "wb") as fp:
            fp.write(packed)
        packed[-20] ^= 1
    assert 3 == run("diff", "a.blp", "b.blp")[0]
    assert 3 == run("diff", "b.blp", "b.blp")[0]


def test_options_are_for_the_files_that_they_fit(run):
    np.arange(3, dtype="f4").tofile("a.raw")
    np.save("a.npy", np.arange(3, dtype="f4"))
    assert 0 == run("diff", "--dtype", "f4", "a.raw", "a.npy")[0]
    assert 0 == run("diff", "--dtype", "f4", "a.npy", "a.raw")[0]
    assert 2 == run("diff", "--dtype", "f4", "a.npy", "a.npy")[0]
    pytest.importorskip("pyarrow")
    with open("a.csv", "w") as fp:
        fp.write("x;y\n1;2\n")
    np.save("b.npy", np.array([(1, 2)], [("x", "i2"), ("y", "i8")]))
    options = "--delimiter", ";", "--dtype", "x=i2"
    assert 0 == run("diff", *options, "a.csv", "b.npy")[0]
    assert 1 == run("diff", *options[:2], "a.csv", "b.npy")[0]
