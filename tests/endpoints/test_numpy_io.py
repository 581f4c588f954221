"""Arrays: every dtype and layout is restored, or rejected before it is stored."""

from __future__ import annotations

import itertools
import os
import random
import struct

import numpy as np
import pytest
from builders import described
from support import ShortReads, run_python

import bloscpack
from bloscpack import numpy_io
from bloscpack.args import BloscArgs, BloscpackArgs, MetadataArgs
from bloscpack.exceptions import (
    ChunkSizeTypeSizeMismatch,
    FormatError,
    NotANumpyArray,
    ObjectNumpyArrayRejection,
    UsageError,
)
from bloscpack.memory_io import CompressedMemorySink

pack = bloscpack.pack_ndarray_to_bytes
unpack = bloscpack.unpack_ndarray_from_bytes


def header_of(packed):
    from bloscpack.headers import decode_header

    return decode_header(packed[:32])


def same_array(expected, found):
    """Assert that two arrays are equal in every property and every byte."""
    assert expected.dtype == found.dtype
    assert expected.dtype.str == found.dtype.str
    assert expected.dtype.fields == found.dtype.fields
    assert expected.shape == found.shape
    assert expected.tobytes() == found.tobytes()
    fortran = expected.flags.f_contiguous and not expected.flags.c_contiguous
    assert fortran == (found.flags.f_contiguous and not found.flags.c_contiguous)
    assert found.flags.writeable
    assert type(found) is np.ndarray


def filled(dtype, shape=(37,)):
    """Return an array of any dtype with varied bytes."""
    dtype = np.dtype(dtype)
    # The axes of a subarray dtype become axes of the array.
    array = np.zeros(shape, dtype)
    size = array.nbytes
    raw = (np.arange(size, dtype=np.uint64) * 2654435761 >> 7).astype(np.uint8)
    if array.dtype.kind == "U":
        text = np.array([chr(0x20AC + i % 50) for i in range(size // 4)] or [""])
        text = np.resize(text, size // 4).astype("U1")
        return text.view(array.dtype).reshape(array.shape)
    if array.dtype.kind == "b":
        raw &= 1
    return raw.view(array.dtype).reshape(array.shape) if size else array


# Round trips: dtypes

PLAIN_DTYPES = [
    "?",
    *("%s%d" % (kind, size) for kind in "iu" for size in (1, 2, 4, 8)),
    *["f2", "f4", "f8", "c8", "c16", "S1", "S5", "S20", "U1", "U3", "V1", "V5", "V16"],
    *["M8[D]", "M8[ns]", "M8[25s]", "M8[Y]", "M8", "m8[h]", "m8[us]", "m8[7D]", "m8"],
    np.dtype(np.longdouble).str,
    np.dtype(np.clongdouble).str,
]
STRUCTURES = {
    "simple": [("a", "<i4"), ("b", "<f8")],
    "nested": [("p", [("x", "<i2"), ("y", "<i2")]), ("v", "|u1", (3,))],
    "nested twice": [("a", [("b", [("c", "<i4"), ("d", "S3")])]), ("e", "?")],
    "subarray": [("m", "<f4", (2, 3)), ("n", "<i2", (1,))],
    "subarray of structures": [("m", [("x", "<i4"), ("y", "<u1")], (2, 2))],
    "titles": [(("the title", "name"), "<i4"), (("other", "b"), "<f8")],
    "nested titles": [("p", [(("t", "x"), "<i2")]), ("q", "<i2")],
    "names beyond ASCII": [("größe", "<i4"), ("長さ", "<f8"), ("a b", "u1")],
    "quotes in names": [("it's", "<i4"), ('"', "<i2"), ("\\", "i1"), ("2L", "i1")],
    "texts": [("s", "S7"), ("u", "U5"), ("when", "M8[s]"), ("span", "m8[D]")],
    "big-endian": [("a", ">i4"), ("b", ">f8"), ("c", ">U2"), ("d", ">c16")],
    "mixed orders": [("a", ">i4"), ("b", "<i4")],
    "void": [("v", "V3"), ("i", "<i2")],
    "one field": [("only", "<f8")],
    "one field f0": [("f0", "<f8")],
    "default names": "i4,f8,S3",
    "long double": [("g", np.dtype(np.longdouble).str), ("i", "<i1")],
}
PADDED = {
    "aligned": np.dtype([("a", "u1"), ("b", "<f8"), ("c", "<i2")], align=True),
    "offsets": np.dtype(
        {"names": ["a", "b"], "formats": ["<i4", "<f8"], "offsets": [4, 16]}
    ),
    "item size": np.dtype({"names": ["a"], "formats": ["<i4"], "itemsize": 12}),
    "aligned nested": np.dtype(
        [("p", np.dtype([("x", "u1"), ("y", "<i8")], align=True)), ("z", "u1")],
        align=True,
    ),
    "aligned titles": np.dtype([(("t", "a"), "u1"), ("b", "<f8")], align=True),
    "a field named f1": np.dtype([("f1", "u1"), ("f2", "<f8")], align=True),
}


@pytest.mark.parametrize("dtype", PLAIN_DTYPES)
def test_plain_dtype(dtype):
    for order in "<>":
        array = filled(np.dtype(dtype).newbyteorder(order))
        same_array(array, unpack(pack(array)))


@pytest.mark.parametrize("dtype", STRUCTURES.values(), ids=STRUCTURES)
def test_structure(dtype):
    array = filled(dtype)
    same_array(array, unpack(pack(array)))


@pytest.mark.parametrize("dtype", PADDED.values(), ids=PADDED)
def test_padded_structure(dtype):
    array = np.zeros(37, dtype)
    for name in dtype.names:
        array[name] = filled(dtype[name])
    found = unpack(pack(array))
    assert dtype.names == found.dtype.names
    assert dtype.fields == found.dtype.fields
    assert dtype.itemsize == found.dtype.itemsize
    assert array.tobytes() == found.tobytes()


@pytest.mark.parametrize("dtype", ["f8", "S3", "U2", "M8[s]", STRUCTURES["nested"]])
@pytest.mark.parametrize("nbytes", [0, 1, 10])
def test_subarray_dtype(dtype, nbytes):
    array = filled((dtype, (2, 3)), nbytes)
    same_array(array, unpack(pack(array)))


@pytest.mark.parametrize("itemsize", [3, 7, 12, 20, 24, 255, 256, 300, 1000, 70000])
def test_item_size_that_does_not_divide_a_megabyte(itemsize):
    array = filled("V%d" % itemsize, 2_300_000 // itemsize)
    packed = pack(array)
    header = header_of(packed)
    assert header.nchunks == 3
    assert 0 == header.chunk_size % itemsize
    assert 2**20 - itemsize < header.chunk_size <= 2**20
    same_array(array, unpack(packed))


def test_item_larger_than_a_megabyte():
    array = filled("V1500000", 3)
    packed = pack(array)
    assert (3, 1_500_000) == (header_of(packed).nchunks, header_of(packed).chunk_size)
    same_array(array, unpack(packed))


@pytest.mark.parametrize(
    ("dtype", "typesize"),
    [
        ("<f8", 8),
        ("V255", 255),
        ("V256", 1),
        ("S1000", 1),
        ("U1", 4),
        ("U63", 252),
        ("U64", 4),
        ([("a", "U64"), ("b", "i4")], 1),
        ("?", 1),
    ],
)
def test_typesize(dtype, typesize):
    array = filled(dtype, 10)
    packed = pack(array, blosc_args=BloscArgs(typesize=3))
    assert typesize == header_of(packed).typesize
    same_array(array, unpack(packed))


NO_BYTES = ["V0", "S0", "U0", ">U0", [], [("a", "S0"), ("b", "V0")], [("a", "U0")]]


@pytest.mark.parametrize("dtype", NO_BYTES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3)])
def test_items_of_no_bytes_stay_so(dtype, shape):
    # `numpy.zeros` would make texts one character long.
    array = np.ndarray(shape, dtype)
    assert 0 == array.itemsize
    same_array(array, unpack(pack(array)))
    fortran = np.ndarray(shape, dtype, order="F")
    same_array(fortran, unpack(pack(fortran)))


# Round trips: layouts

BASE = np.arange(2 * 3 * 4 * 5, dtype="<f8").reshape(2, 3, 4, 5)
LAYOUTS = {
    "0-d": np.array(3.5),
    "0-d structure": filled(STRUCTURES["nested"], ()),
    "scalar axis": np.array([3.5]),
    "empty": np.zeros(0),
    "empty rows": np.zeros((3, 0, 2), "<i4"),
    "empty F": np.zeros((3, 0, 2), "<i4", order="F"),
    "C": BASE,
    "F": np.asfortranarray(BASE),
    "F of texts": np.asfortranarray(filled("U3", (4, 5))),
    "transposed": BASE.T,
    "both C and F": np.arange(10).reshape(1, 10, 1),
    "sliced": BASE[:, ::2, 1:, ::3],
    "column": BASE[..., 1],
    "F sliced": np.asfortranarray(BASE)[:, :2],
    "negative strides": BASE[::-1, :, ::-1],
    "reversed": np.arange(100)[::-1],
    "swapped axes": BASE.swapaxes(1, 2),
    "broadcast": np.broadcast_to(np.arange(5.0), (4, 5)),
    "broadcast scalar": np.broadcast_to(np.int16(7), (3, 4)),
    "32 axes": np.arange(4).reshape((2, 2) + (1,) * 30),
    "32 axes F": np.asfortranarray(np.arange(4).reshape((2,) + (1,) * 30 + (2,))),
    "field of a structure": filled(STRUCTURES["simple"])["b"],
    "read-only": np.frombuffer(b"0123456789abcdef", "<i4"),
    "unaligned": np.frombuffer(b"0123456789abcdef", "u1")[1:13].view("<i4"),
    "NaN": np.array([np.nan, -0.0, np.inf, -np.inf]),
    "NaT": np.array(["NaT", "2020-01-01"], "M8[D]"),
}


@pytest.mark.parametrize("array", LAYOUTS.values(), ids=LAYOUTS)
def test_layout(array):
    expected = array
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        expected = np.ascontiguousarray(array)
    same_array(expected, unpack(pack(array)))
    assert array.tobytes() == unpack(pack(array)).tobytes()


@pytest.mark.parametrize("array", LAYOUTS.values(), ids=LAYOUTS)
def test_layout_in_many_chunks(array):
    packed = pack(array, chunk_size=array.itemsize)
    assert max(1, array.size) == header_of(packed).nchunks
    assert array.tobytes() == unpack(packed).tobytes()


def test_the_array_stays_as_it_is():
    array = BASE[::-1, :, ::2].copy(order="K")
    before = array.copy()
    pack(array)
    np.testing.assert_array_equal(before, array)
    assert array.flags.writeable


def test_subclasses_come_back_as_array():
    class Mine(np.ndarray):
        pass

    array = np.arange(6).reshape(2, 3).view(Mine)
    same_array(np.asarray(array), unpack(pack(array)))
    records = np.rec.array([(1, 2.5), (3, 4.5)], dtype=STRUCTURES["simple"])
    found = unpack(pack(records))
    assert records.tobytes() == found.tobytes()
    assert ("a", "b") == found.dtype.names


def test_memmap(tmp_path):
    array = np.memmap(tmp_path / "a", "<i4", "w+", shape=(100, 7))
    array[:] = np.arange(700).reshape(100, 7)
    same_array(np.asarray(array), unpack(pack(array)))
    same_array(np.ascontiguousarray(array[::3]), unpack(pack(array[::3])))
    array._mmap.close()


# The functions


def test_settings_are_used():
    packed = pack(
        np.arange(1000),
        "2K",
        BloscArgs(cname="zlib", clevel=1),
        BloscpackArgs(offsets=False, checksum="sha1"),
        MetadataArgs(meta_codec=None),
    )
    header = header_of(packed)
    assert (False, "sha1", 2048, 4) == (
        header.offsets,
        header.checksum,
        header.chunk_size,
        header.nchunks,
    )
    assert b'"container":"numpy"' in packed
    same_array(np.arange(1000), unpack(packed))


def test_metadata_are_those_of_016():
    array = np.asfortranarray(np.zeros((2, 3), [("a", "<i4"), ("b", "S3", (2,))]))
    _, metadata = bloscpack.unpack_bytes_from_bytes(pack(array))
    expected = {
        "dtype": "[('a', '<i4'), ('b', '|S3', (2,))]",
        "shape": [2, 3],
        "order": "F",
        "container": "numpy",
    }
    assert expected == metadata
    assert list(expected) == list(metadata)
    assert "'<f8'" == bloscpack.unpack_bytes_from_bytes(pack(np.zeros(2)))[1]["dtype"]


@pytest.mark.parametrize(
    ("chunk_size", "expected"),
    [("100B", 96), ("1K", 1020), (24, 24), ("5B", 12), ("max", 1200), (4096, 1200)],
)
def test_chunk_size_is_whole_items(chunk_size, expected):
    array = filled("V12", 100)
    packed = pack(array, chunk_size=chunk_size)
    assert expected == header_of(packed).chunk_size
    same_array(array, unpack(packed))


def test_chunk_size_that_splits_items_is_refused():
    with pytest.raises(ChunkSizeTypeSizeMismatch, match="not divisible by typesize"):
        pack(filled("V12", 100), chunk_size=100)


# Rejected when packing


@pytest.mark.parametrize(
    "array",
    [
        np.array([None, 1, "a"]),
        np.array([{}], dtype=object).reshape(()),
        np.zeros(3, [("a", "i4"), ("b", "O")]),
        np.zeros(3, [("a", [("b", "O", (2,))])]),
        np.zeros(0, object),
    ],
)
def test_objects_are_refused(array):
    with pytest.raises(
        ObjectNumpyArrayRejection, match=r"dtype '.*(object|'O')"
    ) as caught:
        pack(array)
    assert isinstance(caught.value, RuntimeError)
    assert ".astype('U')" in str(caught.value)


@pytest.mark.skipif(
    not hasattr(np.dtypes if hasattr(np, "dtypes") else None, "StringDType"),
    reason="NumPy 2 has StringDType",
)
def test_strings_of_any_length_are_refused():
    array = np.array(["a", "longer"], dtype=np.dtypes.StringDType())
    with pytest.raises(
        ObjectNumpyArrayRejection, match=r"StringDType.*numpy.array\(array.tolist"
    ):
        pack(array)
    same_array(np.array(["a", "longer"]), unpack(pack(np.array(array.tolist()))))


@pytest.mark.parametrize("mask", [np.ma.nomask, False, [False] * 3])
def test_masked_array_without_a_masked_item_is_its_data(mask):
    array = np.ma.array([1, 2, 3], mask=mask)
    same_array(np.array([1, 2, 3]), unpack(pack(array)))


@pytest.mark.parametrize("code", [*np.typecodes["AllInteger"], [("a", "q")]])
def test_all_integers_of_c(code):
    """Those of NumPy that have the same size are equal, and not the same type."""
    array = np.ones(3, code)
    same_array(array, unpack(pack(array)))


def test_large_integer():
    """NumPy makes it an ``unsigned long long``."""
    array = np.array([2**64 - 1])
    same_array(array, unpack(pack(array)))


def test_overlapping_fields_are_refused():
    dtype = np.dtype({"names": "ab", "formats": ["<i4", "<i2"], "offsets": [0, 2]})
    with pytest.raises(UsageError, match="can't be stored"):
        pack(np.zeros(3, dtype))


@pytest.mark.parametrize("value", [[1, 2], b"bytes", None, 3, memoryview(b"abc")])
def test_what_is_no_array_is_refused(value):
    with pytest.raises(TypeError, match="expected a NumPy array"):
        pack(value)


def test_refusals_come_before_the_file(tmp_path):
    (tmp_path / "a.blp").write_bytes(b"old content")
    for array, options in (
        (np.array([None]), {}),
        (filled("V12", 100), {"chunk_size": 100}),
        (np.zeros(3), {"blosc_args": BloscArgs(cname="none such")}),
        (np.zeros(3), {"bloscpack_args": BloscpackArgs(checksum="none such")}),
    ):
        with pytest.raises((UsageError, RuntimeError)):
            bloscpack.pack_ndarray_to_file(array, tmp_path / "a.blp", **options)
    assert b"old content" == (tmp_path / "a.blp").read_bytes()
    assert ["a.blp"] == os.listdir(tmp_path)


# Spellings of dtypes in old files


SPELLINGS = [
    # 0.4.1 to 0.7.1: a plain type as text
    ("<f8", "<f8"),
    ("|S5", "S5"),
    ("<U3", "<U3"),
    (">i2", ">i2"),
    ("<M8[25s]", "<M8[25s]"),
    ("|b1", "?"),
    # 0.7.2 on: the repr
    ("'<f8'", "<f8"),
    ("u'<f8'", "<f8"),
    ('"<f8"', "<f8"),
    ("'|V5'", "V5"),
    ("[('a', '<i4'), ('b', '<f8')]", [("a", "<i4"), ("b", "<f8")]),
    ("[(u'a', u'<i4')]", [("a", "<i4")]),
    (
        "[('p', [('x', '<i2')]), ('v', '|u1', (3,))]",
        [("p", [("x", "<i2")]), ("v", "|u1", (3,))],
    ),
    (
        "[('v', '|u1', (3L,)), ('w', '<i2', (2L, 1L))]",
        [("v", "u1", (3,)), ("w", "<i2", (2, 1))],
    ),
    ("[('2L', '<i2', (2L,))]", [("2L", "<i2", (2,))]),
    ('[("it\'s 3L", "<i2", (2L,))]', [("it's 3L", "<i2", (2,))]),
    ("[(('title', 'a'), '<i4')]", [(("title", "a"), "<i4")]),
    ("[('a', '<i4', 3)]", [("a", "<i4", 3)]),
    ("[('gr\\xf6\\xdfe', '<i4')]", [("größe", "<i4")]),
    # 0.4.0: the descr list of JSON, without fields too
    ([["", "<f8"]], "<f8"),
    ([["", "|S5"]], "S5"),
    ([["a", "<i4"], ["b", "<f8"]], [("a", "<i4"), ("b", "<f8")]),
    (
        [["p", [["x", "<i2"], ["y", "<i2"]]], ["v", "|u1", [3]]],
        [("p", [("x", "<i2"), ("y", "<i2")]), ("v", "|u1", (3,))],
    ),
    ([["m", [["x", "<i2"]], [2, 2]]], [("m", [("x", "<i2")], (2, 2))]),
    ([[["title", "a"], "<i4"]], [(("title", "a"), "<i4")]),
    # Other spellings that 0.16.0 passed to NumPy
    ("float64", "f8"),
    ("int16", "i2"),
    ("bool", "?"),
    ("i4,f8", "i4,f8"),
    ("i4, f8", "i4,f8"),
    ("f8", "f8"),
]


def stored_dtype(spelling):
    """Return the dtype of an array file whose metadata say `spelling`."""
    limits = bloscpack.Limits(metadata=2**30)
    return unpack(described(b"", spelling, (0,)), limits=limits).dtype


@pytest.mark.parametrize(("spelling", "dtype"), SPELLINGS)
def test_spelling(spelling, dtype):
    expected = np.dtype(dtype)
    found = unpack(described(bytes(2 * expected.itemsize), spelling))
    assert (expected, (2,)) == (found.dtype, found.shape)


@pytest.mark.parametrize(
    "spelling",
    [
        "[('a', '|u1'), ('', '|V7'), ('b', '<f8')]",
        [["a", "|u1"], ["", "|V7"], ["b", "<f8"]],
    ],
)
def test_padding_is_no_field(spelling):
    dtype = stored_dtype(spelling)
    assert ("a", "b") == dtype.names
    assert (16, 8) == (dtype.itemsize, dtype.fields["b"][1])


def nested_dtype(depth):
    dtype = np.dtype("<i4")
    for _ in range(depth):
        dtype = np.dtype([("a", dtype)])
    return dtype


@pytest.mark.parametrize("depth", [33, 99])
def test_deeply_nested_dtype(depth):
    array = np.zeros(3, nested_dtype(depth))
    same_array(array, unpack(pack(array)))


@pytest.mark.parametrize(
    ("dtype", "why"),
    [
        (nested_dtype(101), "more than '200' open brackets"),
        (
            np.dtype([("a long name for field %d" % i, "u1") for i in range(40_000)]),
            "longer than '1048576' bytes",
        ),
        (np.dtype([((1.5, "a"), "<i4")]), "the title of the field 'a' must be text"),
    ],
    ids=["deep", "long", "title"],
)
def test_dtype_that_readers_would_refuse_is_not_written(dtype, why):
    with pytest.raises(UsageError, match=why) as caught:
        pack(np.zeros(3, dtype))
    assert len(str(caught.value)) < 1000


# Rejected when unpacking

HOSTILE = [
    "",
    " ",
    "None",
    "''",
    "[",
    "[]" * 3,
    "[('a',)]",
    "[('a', '<i4', -1)]",
    "[('a', '<i4', (1.5,))]",
    "[('a', '<i4', ('x',))]",
    "[('a', '<i4'), ('a', '<i4')]",
    "[('a', '<nonsense')]",
    "[['a', ['O', 0], '<f8']]",  # NumPy accepts it and reports no objects
    "[('a', '<i4', (2,), 'more')]",
    "[1, 2]",
    "{'names': ['a'], 'formats': ['<i4'], 'offsets': [99], 'itemsize': 4}",
    "{'a': ('<i4', 0)}",
    "1",
    "1.5",
    "True",
    "b'<f8'",
    "__import__('os').system('true')",
    "().__class__",
    "[x for x in (1,)]",
    "lambda: 0",
    "'a' + 'b'",
    "<q99",
    "<f8\n",
    "S-1",
    "S99999999999999999999",
    "M8[nonsense]",
    "'%s'" % ("i4," * 1000),
    "-" * 50_000,
    "(" * 50_000,
    "[" * 2_000 + "]" * 2_000,
    "9" * 10_000,
    "x" * 2_000_000,
    "\0",
    "'<f8\0'",
    "\ud800",
    "[('a', '<i4', (2147483647, 2147483647, 2147483647))]",
    "[('a', '<i4', (99999999999999999999,))]",
    [],
    [[]],
    [[""]],
    ["<f8"],
    [["a"]],
    [["a", "<i4", "x"]],
    [["a", "<i4", [-1]]],
    [["a", None]],
    [["a", 3]],
    [[3, "<i4"]],
    [[["a"], "<i4"]],
    [[["a", "b", "c"], "<i4"]],
    [["a", "<i4"], ["a", "<i4"]],
    [["a", {"b": 1}]],
    [["a", {}]],
    [["a", {"names": ["x", "y"], "formats": ["<i4", "<i4"], "offsets": [0, 0]}]],
    [["a", True]],
    [["a", "<i4", 1.5]],
    [[[["title", True], "name"], "<i4"]],
    3,
    None,
    True,
    1.5,
    {"names": ["a"], "formats": ["O"]},
    {"a": ["<i4", 0]},
    *("T", "|T16", "'|T16'", "StringDType()", [["a", "|T16"]]),
]


@pytest.mark.parametrize("dtype", HOSTILE, ids=lambda dtype: repr(dtype)[:30])
def test_hostile_dtype_is_refused(dtype):
    with pytest.raises(FormatError) as caught:
        unpack(described(bytes(16), dtype))
    assert "metadata" == caught.value.section
    assert len(str(caught.value)) < 10_000


OBJECTS = [
    "O",
    "|O",
    "|O8",
    "'O'",
    "'|O8'",
    "object",
    "[('a', 'O')]",
    "[('a', '<i4'), ('b', '|O')]",
    "[('p', [('x', '|O')])]",
    "[('m', '|O', (2,))]",
    "i4,O",
    [["", "|O8"]],
    [["a", "O"]],
    [["p", [["x", "|O8"]]]],
]


@pytest.mark.parametrize("dtype", OBJECTS, ids=str)
def test_objects_in_a_file_are_refused(dtype):
    with pytest.raises(ObjectNumpyArrayRejection) as caught:
        unpack(described(bytes(16), dtype))
    assert isinstance(caught.value, FormatError)
    assert "metadata" == caught.value.section


LONG = {
    "digits": "'9' * 500_000",
    "longs": "'9L' * 250_000",
    "escaped quotes": "(chr(92) + chr(39)) * 250_000",
    "open quotes": "chr(39) + chr(34) * 500_000",
    "fields": "'i4,' * 4_000_000 + 'i4'",
    "signs": "'-' * 1_000_000",
    "brackets": "'[' * 1_000_000",
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_long_text_takes_no_time(text):
    """Run in a separate process, which can be ended."""
    code = (
        "import bloscpack as bp\n"
        "metadata = {'container': 'numpy', 'order': 'C', 'shape': [0], 'dtype': %s}\n"
        "packed = bp.pack_bytes_to_bytes(b'', metadata=metadata)\n"
        "limits = {'metadata': 2**30}\n"
        "try: bp.unpack_ndarray_from_bytes(packed, limits=limits)\n"
        "except bp.FormatError as error: assert len(str(error)) < 10_000" % text
    )
    done = run_python("-c", code, timeout=120)
    assert 0 == done.returncode, done.stderr


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [-1]},
        {"shape": [1.0]},
        {"shape": ["2"]},
        {"shape": [True]},
        {"shape": [None]},
        {"shape": None},
        {"shape": "2"},
        {"shape": {"0": 2}},
        {"shape": [[2]]},
        {"shape": [2**63]},
        {"shape": [2**32, 2**32]},
        {"shape": [0, 2**70]},
        {"shape": [1] * 65},
        {"shape": ...},
        {"order": "A"},
        {"order": None},
        {"order": ["C"]},
        {"order": 1},
        {"dtype": ...},
        {"container": ...},
        {"container": "pandas"},
        {"container": None},
    ],
    ids=str,
)
def test_hostile_description_is_refused(changes):
    with pytest.raises(FormatError) as caught:
        unpack(described(bytes(0), **{"dtype": "<f8", "nbytes": 16, **changes}))
    assert "metadata" == caught.value.section


@pytest.mark.parametrize("metadata", [None, {}, [], 0, "", "numpy", {"a": 1}])
def test_file_without_an_array(metadata):
    packed = bloscpack.pack_bytes_to_bytes(bytes(16), metadata=metadata)
    with pytest.raises(NotANumpyArray) as caught:
        unpack(packed)
    assert isinstance(caught.value, RuntimeError)
    assert isinstance(caught.value, FormatError)


@pytest.mark.parametrize("changes", [{"shape": 2}, {"order": ...}])
def test_descriptions_of_other_programs(changes):
    """One number is a shape of one axis, and the order may be missing."""
    assert (2,) == unpack(described(bytes(16), "<f8", **changes)).shape


def test_a_shape_that_lies_costs_no_memory():
    import tracemalloc

    packed = described(bytes(16), "|u1", shape=[2**40])
    tracemalloc.start()
    with pytest.raises(FormatError, match="but the chunks hold '16'"):
        unpack(packed)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20


def test_chunks_that_do_not_fill_the_array_where_the_header_knows_nothing():
    for shape in ([3], [1]):
        packed = bytearray(described(bytes(16), "<f8", shape=shape))
        packed[8:32] = struct.pack("<iiqq", -1, -1, -1, 0)
        packed[5] = 2  # no offsets
        # Remove the offset table: 11 entries behind the metadata.
        size = struct.unpack_from("<I", packed, 48)[0]
        table = 64 + size + 4
        del packed[table : table + 88]
        with pytest.raises(FormatError, match="but the chunks hold"):
            unpack(bytes(packed))


def test_sink_refuses_more_than_it_has_room_for():
    sink = CompressedMemorySink()
    numpy_io.pack_ndarray(np.arange(10), sink)
    metadata = {**sink.metadata, "shape": [9]}
    target = numpy_io.PlainNumpySink(metadata)
    with pytest.raises(FormatError, match="but the chunks hold '80'"):
        target.put(sink.chunks[0])
    target = numpy_io.PlainNumpySink({**metadata, "shape": [11]})
    assert 80 == target.put(sink.chunks[0])
    with pytest.raises(FormatError, match="but the chunks hold '80'"):
        target.finalize()


def test_damage_is_told_with_the_name_of_the_file(tmp_path):
    packed = bytearray(pack(np.arange(1000)))
    packed[-20] ^= 1
    (tmp_path / "a.blp").write_bytes(packed)
    with pytest.raises(FormatError) as caught:
        bloscpack.unpack_ndarray_from_file(tmp_path / "a.blp")
    assert str(tmp_path / "a.blp") == caught.value.filename
    assert 0 == caught.value.chunk


def test_hostile_text_runs_no_code(tmp_path):
    """Run in a separate process, which a crash would end."""
    packed = described(bytes(16), "__import__('pathlib').Path('ran').touch()")
    (tmp_path / "a.blp").write_bytes(packed)
    code = (
        "import bloscpack\n"
        "try: bloscpack.unpack_ndarray_from_file('a.blp')\n"
        "except bloscpack.FormatError: print('refused')\n"
    )
    done = run_python("-c", code, cwd=tmp_path)
    assert (0, b"refused") == (done.returncode, done.stdout.strip())
    assert ["a.blp"] == os.listdir(tmp_path)


def test_pipe_like_input():
    array = np.arange(1000)
    source = bloscpack.file_io.CompressedFPSource(ShortReads(pack(array)))
    same_array(array, numpy_io.unpack_ndarray(source))


# Bugs found in reviews


def test_chunks_outlive_their_source():
    array = np.arange(300_000)
    expected = array.tobytes()
    source = numpy_io.PlainNumpySource(array)
    source.configure(800_000, 800_000, 3)
    chunks = list(source)
    del source, array
    assert expected == b"".join(chunks)


@pytest.mark.parametrize("dtype", ["|S0", "<U0", "|V0", [["a", "|S0"]]], ids=str)
@pytest.mark.parametrize("count", [2_000_000_000, 2**63 - 1])
def test_many_items_of_no_bytes_cost_no_memory(dtype, count):
    packed = described(bytes(0), dtype, shape=[count])
    array = unpack(packed, limits=bloscpack.Limits(nbytes=1000))
    assert (0, (count,)) == (array.nbytes, array.shape)
    assert b"" == array.tobytes()


@pytest.mark.parametrize("dtype", ["|u1", "<i4", "|S3", "|S0", [["a", "<f8"]]], ids=str)
def test_arrays_without_items_are_refused_where_numpy_does(dtype):
    for order, length, others in itertools.product(
        "CF", [2**31, 2**60, 2**61, 2**62, 2**63 - 1], [[], [1], [2], [0], [2**31]]
    ):
        shape = [0, length, *others]
        packed = described(bytes(0), dtype, shape=shape, order=order)
        try:
            expected = np.ndarray(shape, stored_dtype(dtype), order=order)
        except ValueError:
            expected = None
        if expected is not None:
            same_array(expected, unpack(packed))
            continue
        with pytest.raises(FormatError, match="can't be made") as caught:
            unpack(packed)
        assert "metadata" == caught.value.section


@pytest.mark.parametrize("dtype", ["|u1", "|S0"])
def test_as_many_axes_as_numpy_has(dtype):
    most = 64
    try:
        np.ndarray((0,) * most, dtype)
    except ValueError:  # NumPy 1
        most = 32
    same_array(
        np.ndarray((0,) * most, dtype),
        unpack(described(bytes(0), dtype, shape=[0] * most)),
    )
    with pytest.raises(FormatError, match="expected a shape"):
        unpack(described(bytes(0), dtype, shape=[0] * (most + 1)))


@pytest.mark.parametrize("settings", [{}, {"checksum": "None"}, {"offsets": False}])
def test_short_arrays_in_memory_are_read_as_all_others(settings):
    """Bytes are unpacked in one step, any other buffer step by step."""
    chance = random.Random(4)
    arrays = np.arange(99.0), np.ones((4, 6), ">i2", "F"), np.array(3), np.arange(0)
    for array in arrays:
        packed = pack(array, **settings)
        same_array(array, unpack(packed))
        for _ in range(500):
            data = bytearray(packed[: chance.choice([None, None, -1, len(packed) - 9])])
            data[chance.randrange(min(len(data), chance.choice([40, 120, 9999])))] ^= 8
            found = []
            for kind in (bytes, memoryview):
                try:
                    result = unpack(kind(data))
                    found.append((result.dtype, result.shape, result.tobytes()))
                except FormatError as error:
                    found.append((type(error), str(error)))
            assert found[0] == found[1]
