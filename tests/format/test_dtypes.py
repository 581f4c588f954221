"""The dtype of an array: what is written is read again, or refused with its field."""

import io
import random

import numpy
import pytest
from builders import described
from format import independent_reader

import bloscpack as bp
from bloscpack import dataset
from bloscpack.exceptions import FormatError, UsageError, UsageTypeError
from bloscpack.npy_io import read_header

EMPTY = numpy.dtype([])
BYTES = numpy.dtype("V3")
PAIR = numpy.dtype(("<i4", (2,)))


def fields(*pairs, **more):
    """Return a structure whose fields may have any name."""
    names, formats = zip(*pairs, strict=True)
    return numpy.dtype({"names": list(names), "formats": list(formats), **more})


STORED = [
    EMPTY,
    fields(("a", EMPTY), ("b", "u1")),
    fields(("a", (EMPTY, (3,))), ("b", "u1")),
    fields(("a", numpy.dtype({"names": [], "formats": [], "itemsize": 8}))),
    fields(("", "<i4"), ("b", "u1")),
    fields(("", fields(("x", "<i4"))), ("b", "u1")),
    fields(("a", "S0"), ("b", "U0"), ("c", "V0"), ("d", (">f8", (0, 2)))),
    fields(("a", "u1"), ("b", "<M8[7D]"), offsets=[1, 3], itemsize=20),
    fields(("b", "<i2"), titles=["a title"]),
    fields(("a'\"\\\n\0", "<i2"), ("\ud800", ">c16")),
]
REFUSED = [
    (fields(("", BYTES), ("a", "u1")), "the field '' would be lost or changed"),
    (fields(("", PAIR), ("a", "u1")), "the field '' would be lost or changed"),
    (fields(("", "<i4")), "the field '' would be lost or changed"),
    (fields(("x", fields(("", BYTES), ("a", "u1")))), "the field 'x.' would be lost"),
    (numpy.dtype({"names": [], "formats": [], "itemsize": 8}), "would be read as"),
    (fields(("x", fields(("b", (PAIR, (3,)))))), "of arrays in the field 'x.b'"),
    (fields(("a", "u1"), titles=[3]), "title of the field 'a' must be text, not 3"),
    (fields(("a", "u1"), titles=[""]), "title of the field 'a' must be text, not ''"),
    (fields(("b", "u1"), ("a", "u1"), offsets=[1, 0]), "the field 'a' begins before"),
    (
        fields(("x", fields(("b", "<i4"), ("a", "u1"), offsets=[0, 3]))),
        "the field 'x.a' begins before another ends",
    ),
]


@pytest.mark.parametrize("dtype", STORED, ids=str)
def test_stored(dtype):
    packed = bp.pack_ndarray_to_bytes(numpy.zeros(0, dtype))
    found = bp.unpack_ndarray_from_bytes(packed).dtype
    assert (dtype, dtype.fields) == (found, found.fields)


WRITERS = [
    lambda array, folder: bp.save(folder / "a.blp", array),
    lambda array, folder: bp.savez(folder / "a.zip", a=array),
    lambda array, folder: bp.pack_ndarray_to_bytes(array),
    lambda array, folder: dataset.create_array(
        folder / "a", array, layout="superchunk"
    ),
]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize(("dtype", "message"), REFUSED)
def test_refused(dtype, message, write, tmp_path):
    with pytest.raises(UsageError, match=message):
        write(numpy.ndarray(2, dtype), tmp_path)
    assert [] == list(tmp_path.iterdir())


def test_an_npy_file_of_a_field_that_is_no_padding():
    array = numpy.zeros(2, fields(("", "<i4"), ("f0", "u1")))
    array["f0"] = 7
    fp = io.BytesIO()
    numpy.save(fp, array)
    fp.seek(0)
    found = read_header(fp)
    assert (array.dtype, array.shape) == (found.dtype, found.shape)


def described_dtype(stored):
    """Return the dtype of an array file whose metadata say `stored`."""
    return bp.unpack_ndarray_from_bytes(described(b"", stored, (0,))).dtype


def test_spellings_of_old_releases():
    nested = described_dtype("[('a', ('<i4', (2,)), (3,))]")
    assert (3, 2) == numpy.zeros((), nested)["a"].shape
    listed = described_dtype(
        [["a", "<i4"], [["t", "b"], [["x", "<f8"]], [3]], ["d", []]]
    )
    assert {"a", "b", "t", "d"} == {*listed.fields}


@pytest.mark.parametrize(
    "text", ["[(3, 'a')]", "[((3, 'a'), '<i4')]", "[('a',)]", "('<i4',)", "[['a']]"]
)
def test_what_is_no_type(text):
    with pytest.raises(FormatError, match="expected a dtype"):
        described_dtype(text)


# Random dtypes

KINDS = ["?", "i1", "<i2", ">u4", "<i8", ">f4", "<c16", "S0", "S3", "U0", "<U2", "V2"]
KINDS += ["<M8[D]", ">m8[25us]", "<M8", "V0", "g"]
NAMES = ["a", "b", "x y", "", "q'", "\u4e2d", "a.b", "a/b", "..", "f0", "\0", "L" * 300]


def random_dtype(pick, depth=0):
    if depth == 3 or pick.random() < 0.4:
        return numpy.dtype(pick.choice(KINDS))
    names = pick.sample(NAMES, pick.randrange(4))
    formats = [random_dtype(pick, depth + 1) for _ in names]
    for number, kind in enumerate(formats):
        shape = tuple(pick.choice([0, 1, 2]) for _ in range(pick.randrange(3)))
        if pick.random() < 0.3 and kind.itemsize:
            formats[number] = numpy.dtype((kind, shape))
    found = {"names": names, "formats": formats}
    if pick.random() < 0.3:
        gaps = [pick.choice([0, 1, 4]) for _ in names]
        ends = [sum(kind.itemsize for kind in formats[:i]) for i in range(len(names))]
        found["offsets"] = [end + sum(gaps[: i + 1]) for i, end in enumerate(ends)]
    if names and pick.random() < 0.2:
        found["titles"] = [
            pick.choice([None, "title %d" % i]) for i in range(len(names))
        ]
    return numpy.dtype(found, align=pick.random() < 0.3 and "offsets" not in found)


def leaves(array, path=()):
    """Yield the parts of the items without fields: their names, type and bytes."""
    if array.dtype.names is None:
        size = array.dtype.itemsize  # NumPy copies items of no bytes as one byte
        yield path, array.dtype, array.shape, array.tobytes() if size else b""
    for name in array.dtype.names or ():
        yield from leaves(array[name], (*path, name))


def readers(path):
    """Yield the array in a file as each call returns it."""
    yield bp.load(path)
    yield bp.unpack_ndarray_from_bytes(path.read_bytes())
    with bp.open_ndarray(path) as lazy:
        yield lazy[...]
        yield numpy.asarray(lazy)


@pytest.mark.parametrize("seed", range(60))
def test_random_dtypes(seed, tmp_path):
    pick = random.Random(seed)
    dtype, shape = random_dtype(pick), pick.choice([(), (0,), (3,), (2, 2)])
    array = numpy.ndarray(shape, dtype)
    if array.nbytes:
        array = numpy.frombuffer(bytes(array.nbytes), dtype).reshape(shape)
    refused = ""
    try:
        bp.save(tmp_path / "a.blp", array)
    except UsageError as error:
        refused = str(error)
    if refused:
        assert "field" in refused
    else:
        for found in readers(tmp_path / "a.blp"):
            assert (dtype, [*leaves(array)]) == (found.dtype, [*leaves(found)])
        other = independent_reader.read_array((tmp_path / "a.blp").read_bytes())
        assert list(shape) == other["shape"]
    try:
        dataset.create_array(tmp_path / "a", array, layout="superchunk")
    except UsageError:
        return
    with dataset.open(tmp_path / "a") as opened:
        assert [*leaves(array)] == [*leaves(opened[...])]


# Text


@pytest.mark.parametrize("layout", ["zarr", "superchunk", "bcolz"])
@pytest.mark.parametrize("count", [2, 1])
def test_numbers_that_are_no_characters(tmp_path, layout, count):
    array = numpy.full(count, 0x110000, "<u4").view("<U1")
    bp.save(tmp_path / "a.blp", array)
    dataset.create_array(tmp_path / "a", array, layout=layout).close()
    with (
        dataset.open(tmp_path / "a") as opened,
        bp.open_ndarray(tmp_path / "a.blp") as lazy,
    ):
        arrays = [*readers(tmp_path / "a.blp"), opened[...], opened[:count], lazy[:]]
        assert [array.tobytes()] * 7 == [found.tobytes() for found in arrays]
        for found in (opened, lazy):
            with pytest.raises(FormatError, match="no character"):
                found[0]


def test_an_item_that_is_no_text(tmp_path):
    item = numpy.array(0x110000, "<u4").view("<U1")
    dataset.create_array(tmp_path / "a", item).close()
    with dataset.open(tmp_path / "a") as opened:
        assert item.tobytes() == opened[...].tobytes()


# Lists and lengths


RAGGED = [[1], [2, 3]]
CALLS = [
    lambda path: bp.save(path, RAGGED),
    lambda path: bp.savez(path, b=RAGGED),
    lambda path: dataset.create_array(path, RAGGED),
    lambda path: dataset.create_array(path, [1], fill_value=RAGGED),
    lambda path: dataset.create_table(path, {"a": [1, 2], "b": RAGGED}),
    lambda path: dataset.create_table(path, {"b": [1, 2]}).append({"b": RAGGED}),
]


@pytest.mark.parametrize("call", CALLS)
def test_lists_of_different_lengths(call, tmp_path):
    with pytest.raises(UsageError, match="expected items of one shape") as info:
        call(tmp_path / "a.blp")
    assert "'b'" in str(info.value) or "b" not in call.__code__.co_consts


@pytest.mark.parametrize("layout", ["zarr", "superchunk", "bcolz"])
def test_a_shape_without_axes_is_a_number(tmp_path, layout):
    shape = numpy.array(5)
    made = dataset.create_array(tmp_path / "a", shape=shape, dtype="i4", layout=layout)
    assert (5,) == made.shape
    with pytest.raises(UsageTypeError, match="shape: expected lengths"):
        dataset.create_array(tmp_path / "b", shape=numpy.array(5.0), dtype="i4")
