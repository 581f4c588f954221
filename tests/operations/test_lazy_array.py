"""A lazy array: every index gives what NumPy gives, from the chunks that it needs."""

from __future__ import annotations

import copy
import gc
import io
import os
import pickle
import shutil

import numpy
import pytest
from builders import packed
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from indexes import indexes
from support import BLP, TESTS, run_python

import bloscpack
from bloscpack import (
    BloscpackError,
    FormatError,
    LazyArray,
    StorageError,
    UsageError,
    open_ndarray,
)
from bloscpack.exceptions import NotANumpyArray
from bloscpack.file_io import CompressedBytesSource

NESTED = numpy.dtype(
    [("a", "u1"), ("b", ">f8", (2, 3)), ("c", [("d", "<i4"), ("e", "S3")]), ("z", "S0")]
)
PADDED = numpy.dtype(
    {"names": ["x", "y"], "formats": ["<i2", "<f8"], "offsets": [1, 6], "itemsize": 17}
)
DTYPES = [
    *("<f8", ">f8", "?", "<i2", ">u4", "u1", "<c16", ">c8", "<f2", "<g"),
    *("S3", "<U5", ">U2", "S0", "V7", "V16", "<M8[ns]", ">m8[s]"),
    NESTED,
    PADDED,
    "V40",
]


def filled(shape: tuple[int, ...], dtype: object, order: str = "C") -> numpy.ndarray:
    """Return an array whose bytes differ."""
    dtype = numpy.dtype(dtype)
    nbytes = int(numpy.prod(shape, dtype=int)) * dtype.itemsize
    if dtype.kind == "b":
        raw = (numpy.arange(nbytes) % 3 == 0).tobytes()
    elif dtype.kind == "U":
        raw = (numpy.arange(nbytes // 4) % 999).astype(dtype.str[0] + "u4").tobytes()
    else:
        raw = (numpy.arange(nbytes) * 7 % 251).astype("u1").tobytes()
    return numpy.ndarray(shape, dtype, bytearray(raw), order=order)


def file_of(array: numpy.ndarray, chunk_size: int) -> bytes:
    """Return the file of an array; a chunk may end inside an item."""
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    metadata = {
        "dtype": array.dtype.str if array.dtype.names is None else array.dtype.descr,
        "shape": array.shape,
        "order": "F" if fortran else "C",
        "container": "numpy",
    }
    if array.dtype.names is not None:
        real = bloscpack.pack_ndarray_to_bytes(array)
        metadata = bloscpack.Reader(io.BytesIO(real)).metadata
    return packed(array.tobytes("A"), chunk_size, metadata)


def content(value: object) -> object:
    """Return the bytes of an array or a scalar, field by field, without padding."""
    if not value.dtype.itemsize:  # a contiguous copy would have one byte per item
        return b""
    if value.dtype.names is None:
        # NumPy 2.2 takes the bytes of more axes only if they are contiguous.
        return (value.reshape(-1) if value.ndim > 32 else value).tobytes()
    return [content(value[name]) for name in value.dtype.names]


def assert_same(expected: object, found: object) -> None:
    """Compare type, dtype, shape and items."""
    assert type(expected) is type(found)
    assert expected.dtype == found.dtype
    assert expected.shape == found.shape
    assert content(expected) == content(found)


@st.composite
def arrays(draw: st.DrawFn, min_dims: int = 0) -> tuple[numpy.ndarray, LazyArray]:
    """Return an array and the lazy array of its file."""
    shape = draw(st.lists(st.integers(0, 5), min_size=min_dims, max_size=4).map(tuple))
    array = filled(shape, draw(st.sampled_from(DTYPES)), draw(st.sampled_from("CF")))
    chunk_size = draw(st.integers(0, 60) | st.just(1000))
    chunk_size += max(1, array.nbytes // 50)
    options = draw(st.sampled_from([{"nthreads": 1}, {"cache_nbytes": 0}]))
    return array, open_ndarray(file_of(array, chunk_size), **options)


# Indexing


@given(st.data())
def test_every_basic_index_gives_what_numpy_gives(data):
    array, lazy = data.draw(arrays())
    assert array.shape == lazy.shape
    for _ in range(3):
        index = data.draw(
            hnp.basic_indices(array.shape, allow_newaxis=True, allow_ellipsis=True)
        )
        assert_same(array[index], lazy[index])


def outcome(array: object, index: object) -> object:
    """Return what an index selects, or the message of its error."""
    try:
        return array[index]
    except IndexError as error:
        return str(error)


@pytest.mark.filterwarnings("ignore:Out of bound index found")
@given(st.data())
def test_every_index_gives_what_numpy_gives(data):
    array, lazy = data.draw(arrays())
    if not array.itemsize:  # NumPy makes these strings one character long
        return
    index = data.draw(indexes(array.shape))
    expected, found = outcome(array, index), outcome(lazy, index)
    if isinstance(expected, str):
        assert expected == found
    else:
        assert_same(expected, found)


@given(st.data())
def test_fields_have_the_items_that_numpy_gives(data):
    shape = data.draw(st.lists(st.integers(0, 5), max_size=3).map(tuple))
    dtype = data.draw(st.sampled_from([NESTED, PADDED]))
    array = filled(shape, dtype, data.draw(st.sampled_from("CF")))
    lazy = open_ndarray(file_of(array, data.draw(st.integers(1, 300))))
    for name in dtype.names:
        assert_same(array[name], lazy[name])
    names = data.draw(st.lists(st.sampled_from(dtype.names), unique=True, min_size=1))
    assert array[names].dtype == lazy[names].dtype
    for name in names:
        assert_same(array[names][name], lazy[names][name])


WRONG = [
    numpy.s_[4],
    numpy.s_[-5],
    numpy.s_[0, 5],
    numpy.s_[0, 0, 0],
    numpy.s_[0, 0, 0, ...],
    numpy.s_[..., ...],
    numpy.s_[1.5],
    numpy.s_["a"],
    numpy.s_["a", 0],
    numpy.s_[0, "a"],
    numpy.s_[::0],
    numpy.s_["a":"b"],
    numpy.s_[[4]],
    numpy.s_[[0, -5]],
    numpy.s_[[0.5]],
    numpy.s_[[True]],
    numpy.s_[numpy.zeros(5, "?")],
    numpy.s_[numpy.zeros(0)],
    numpy.s_[[0], 0, 0],
    numpy.s_[:, [0, 5]],
    numpy.s_[[0, 1], [0, 1, 2]],
    numpy.s_[[0], 1.5],
    numpy.s_[numpy.zeros((4, 4), "?")],
    numpy.s_[numpy.zeros((4, 5), "?"), 0],
    numpy.s_[True, False, [0, 1]],
]


@pytest.mark.parametrize("index", WRONG, ids=repr)
def test_a_wrong_index_raises_the_error_of_numpy(index):
    array = filled((4, 5), "<i4")
    with pytest.raises((IndexError, TypeError, ValueError)) as expected:
        array[index]
    with pytest.raises(expected.type) as found:
        open_ndarray(file_of(array, 40))[index]
    assert str(expected.value) == str(found.value)


@pytest.mark.parametrize("name", ["q", ["a", "q"]])
def test_an_unknown_field_raises_the_error_of_numpy(name):
    array = filled((4,), NESTED)
    with pytest.raises((KeyError, ValueError)) as expected:
        array[name]
    with pytest.raises(expected.type) as found:
        open_ndarray(file_of(array, 40))[name]
    assert str(expected.value) == str(found.value)


def test_the_result_is_a_copy():
    lazy = open_ndarray(file_of(filled((4, 5), "<i4"), 40))
    for index in (..., 1, numpy.s_[1:3], [0, 1]):
        before = lazy[index].tobytes()
        lazy[index][...] = 0
        assert before == lazy[index].tobytes()


# All items


@given(arrays())
def test_read_array_and_iteration_give_all_items(pair):
    array, lazy = pair
    assert_same(array, lazy.read())
    assert_same(array, numpy.asarray(lazy))
    assert lazy.read().flags.f_contiguous == array.flags.f_contiguous
    if not array.shape:
        for function in (len, iter):
            with pytest.raises(TypeError) as expected:
                function(array)
            with pytest.raises(TypeError) as found:
                function(lazy)
            assert str(expected.value) == str(found.value)
        return
    assert len(array) == len(lazy)
    expected = list(array)
    found = list(lazy)
    assert len(expected) == len(found)
    for one, other in zip(expected, found, strict=True):
        assert_same(one, other)


@given(arrays(), st.sampled_from("CFS"))
def test_read_fills_a_given_array(pair, memory):
    array, lazy = pair
    if memory == "S" and array.ndim:  # every second item
        base = numpy.ndarray((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        out = base[..., ::2]
    else:
        out = numpy.ndarray(array.shape, array.dtype, order=memory.replace("S", "C"))
    assert out is lazy.read(out=out)
    assert_same(array, out)


@pytest.mark.parametrize(
    "out",
    [
        numpy.zeros((4, 4), "<i4"),
        numpy.zeros((4, 5), ">i4"),
        numpy.broadcast_to(numpy.zeros((), "<i4"), (4, 5)),
        bytearray(80),
    ],
    ids=["shape", "dtype", "read-only", "no-array"],
)
def test_read_refuses_another_kind_of_array(out):
    with pytest.raises(UsageError, match=r"^out: expected a"):
        open_ndarray(file_of(filled((4, 5), "<i4"), 40)).read(out=out)


def test_array_converts_and_copies():
    lazy = open_ndarray(file_of(filled((4, 5), "<i4"), 40))
    assert "float64" == numpy.asarray(lazy, dtype="f8").dtype
    assert "float64" == lazy.__array__("f8").dtype
    with pytest.raises(ValueError, match="without a copy"):
        lazy.__array__(copy=False)


# Attributes


def test_attributes_are_those_of_the_array(tmp_path):
    array = filled((4, 5, 2), ">f4")
    path = tmp_path / "a.blp"
    bloscpack.pack_ndarray_to_file(array, path, chunk_size=80, metadata={"unit": "m"})
    with open_ndarray(path) as lazy:
        for name in ("shape", "dtype", "ndim", "size", "nbytes"):
            assert getattr(array, name) == getattr(lazy, name)
        assert path.stat().st_size == lazy.cbytes
        assert {"unit": "m"} == lazy.metadata
        assert (2, 5, 2) == lazy.chunks
        text = "<LazyArray %r: shape (4, 5, 2), dtype >f4, chunks (2, 5, 2)>"
        assert text % str(path) == repr(lazy)
    assert repr(lazy).startswith("<closed LazyArray")
    with pytest.raises(UsageError, match="the array is closed"):
        lazy[0]


@pytest.mark.parametrize(
    ("shape", "chunk_size", "order", "chunks"),
    [
        ((100, 4), 64, "C", (2, 4)),  # rows of 32 bytes
        ((100, 4), 16, "C", (1, 2)),
        ((100, 4), 48, "C", (3, 4)),  # two chunks
        ((1000, 4), 1000, "C", (125, 4)),
        ((1000, 4), 1003, "C", (31, 4)),
        ((100, 4), 5, "C", (1, 1)),
        ((100, 4), 10**6, "C", (100, 4)),
        ((100, 4), 800, "F", (100, 1)),
        ((100, 4), 400, "F", (50, 1)),
        ((6, 5, 4), 160, "C", (1, 5, 4)),
        ((6, 5, 4), 32, "C", (1, 1, 4)),
        ((), 8, "C", ()),
        ((0, 4), 8, "C", (1, 1)),
    ],
)
def test_chunks_are_blocks_that_agree_with_the_chunks_of_the_file(
    shape, chunk_size, order, chunks
):
    array = numpy.ones(shape, order=order)
    assert chunks == open_ndarray(file_of(array, chunk_size)).chunks


# What is read


class Counting(io.BytesIO):
    """Counts reads and their bytes."""

    reads = nbytes = 0

    def readinto(self, view):
        self.reads += 1
        self.nbytes += len(view)
        return super().readinto(view)

    def read(self, size=-1):
        found = super().read(size)
        self.reads += 1
        self.nbytes += len(found)
        return found


def counting(array: numpy.ndarray, chunk_size: int) -> tuple[LazyArray, Counting]:
    storage = Counting(file_of(array, chunk_size))
    return open_ndarray(storage, cache_nbytes=0, nthreads=1), storage


@pytest.mark.parametrize(
    ("index", "nchunks"),
    [
        (numpy.s_[0], 1),
        (numpy.s_[57, 3], 1),
        (numpy.s_[10:20], 1),
        (numpy.s_[15:25], 2),
        (numpy.s_[:, 0], 100),
        (numpy.s_[::20], 50),
        (numpy.s_[::-50, 1:3], 20),
        (numpy.s_[[0, 999, 0, 5]], 2),
        (numpy.s_[0:0], 0),
        (numpy.s_[...], 100),
    ],
    ids=repr,
)
def test_only_the_chunks_with_selected_items_are_read(index, nchunks):
    array = numpy.arange(10000.0).reshape(1000, 10)
    lazy, storage = counting(array, 800)
    storage.nbytes = 0
    assert_same(array[index], lazy[index])
    average = len(storage.getvalue()) / 100
    assert storage.nbytes <= 1.5 * average * nchunks + 100


@pytest.mark.parametrize("cache_nbytes", [0, 2**20])
def test_a_damaged_chunk_affects_only_reads_that_need_it(cache_nbytes):
    array = numpy.arange(10000.0).reshape(1000, 10)
    data = bytearray(file_of(array, 800))
    data[CompressedBytesSource(bytes(data)).offsets[50] + 30] ^= 1
    lazy = open_ndarray(bytes(data), cache_nbytes=cache_nbytes)
    assert_same(array[:500], lazy[:500])
    assert_same(array[510:], lazy[510:])
    for index in (505, numpy.s_[:], numpy.s_[::-1, 3], [1, 509]):
        with pytest.raises(FormatError) as caught:
            lazy[index]
        assert 50 == caught.value.chunk


def test_files_that_hold_no_array(tmp_path):
    path = tmp_path / "plain.blp"
    path.write_bytes(packed(b"text"))
    with pytest.raises(NotANumpyArray) as caught:
        open_ndarray(path)
    assert str(path) in str(caught.value)
    del caught
    gc.collect()  # a file left open warns, and warnings are errors
    with pytest.raises(NotANumpyArray):
        open_ndarray(packed(b"text"))


def test_an_array_larger_than_memory_is_opened_but_not_read():
    array = numpy.zeros(2**20, "u1")
    metadata = {"dtype": "|u1", "shape": [2**20], "order": "C", "container": "numpy"}
    lazy = open_ndarray(packed(array.tobytes(), 2**20, metadata))
    lazy._reader.shape = (2**62,)  # as if the file had that many chunks
    with pytest.raises(FormatError, match="can't be made"):
        lazy.read()


@pytest.mark.parametrize(
    "settings",
    [
        *({"cache_nbytes": value} for value in (-1, 1.5, None, "1M")),
        *({"nthreads": value} for value in (0, -1, 1.5, "2", 10**6)),
    ],
    ids=str,
)
def test_wrong_settings(settings, tmp_path):
    bloscpack.pack_ndarray_to_file(numpy.arange(5), tmp_path / "x.blp")
    with pytest.raises(UsageError, match="'%s' must be " % next(iter(settings))):
        open_ndarray(tmp_path / "x.blp", **settings)


def test_bytes_are_content_and_no_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = bloscpack.pack_ndarray_to_bytes(numpy.arange(5))
    (tmp_path / "x.blp").write_bytes(content)
    with open_ndarray(content) as lazy:
        assert 5 == len(lazy)
    for read in (open_ndarray, bloscpack.Reader):
        with pytest.raises(bloscpack.UsageError, match=r"found the name .* b'x\.blp'"):
            read(b"x.blp")
        with pytest.raises(bloscpack.FormatError, match="magic marker"):
            read(b"no-such-file.blp")


FILES = [*(TESTS / "valid").glob("*.blp"), *(TESTS / "invalid").glob("*.blp")]
FILES += BLP.rglob("N-*.blp")


@pytest.mark.parametrize("path", sorted(FILES), ids=lambda path: path.stem)
def test_a_file_is_read_or_refused_as_unpack_does(path):
    try:
        expected = bloscpack.unpack_ndarray_from_file(path)
    except BloscpackError:
        with pytest.raises(BloscpackError), open_ndarray(path) as lazy:
            lazy.read()
        return
    with open_ndarray(path) as lazy:
        assert expected.flags.f_contiguous == lazy.read().flags.f_contiguous
        for index in (..., numpy.s_[::-1] if expected.ndim else ()):
            assert_same(expected[index], lazy[index])


# Pickle and Dask


def test_pickle_opens_the_file_again_in_another_process(tmp_path):
    array = filled((40, 5), "<i4")
    path = tmp_path / "a.blp"
    bloscpack.pack_ndarray_to_file(array, path, chunk_size=80)
    with open_ndarray(path, cache_nbytes=100) as lazy:
        code = "import pickle, sys; x = pickle.load(sys.stdin.buffer); print(x[3, 4])"
        done = run_python(
            "-c", code, cwd=tmp_path.parent, input=pickle.dumps(lazy), check=True
        )
        assert str(array[3, 4]) == done.stdout.decode().strip()
        with copy.copy(lazy) as other:
            assert_same(array[::3], other[::3])


def test_pickle_of_a_relative_name(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    bloscpack.pack_ndarray_to_file(numpy.arange(3), "a.blp")
    with open_ndarray("a.blp") as lazy:
        monkeypatch.chdir(tmp_path / "elsewhere")
        with pickle.loads(pickle.dumps(lazy)) as other:
            assert [0, 1, 2] == other[:].tolist()


def test_pickle_refuses_another_file(tmp_path):
    path = tmp_path / "a.blp"
    bloscpack.pack_ndarray_to_file(numpy.arange(3), path)
    with open_ndarray(path) as lazy:
        pickled = pickle.dumps(lazy)
        os.utime(path, ns=(0, 0))
        with pytest.raises(StorageError, match="has changed since"):
            pickle.loads(pickled)
        path.unlink()
        with pytest.raises(FileNotFoundError):
            pickle.loads(pickled)


def test_pickle_is_read_where_the_file_has_other_numbers(tmp_path):
    """On another machine the file has another device, and perhaps another inode."""
    path = tmp_path / "a.blp"
    array = numpy.random.default_rng(1).bytes(500)
    bloscpack.pack_ndarray_to_file(numpy.frombuffer(array, "u1"), path)
    with open_ndarray(path) as lazy:
        pickled, status = pickle.dumps(lazy), path.stat()
    shutil.copy2(path, tmp_path / "copy")
    os.rename(tmp_path / "copy", path)
    assert status.st_ino != path.stat().st_ino
    with pickle.loads(pickled) as same:
        assert array == same[:].tobytes()


def test_pickle_refuses_other_sections_with_the_same_size_and_time(tmp_path):
    path = tmp_path / "a.blp"
    pickled, sizes = [], set()
    for number in (1, 2):
        array = numpy.arange(10)
        bloscpack.pack_ndarray_to_file(array, path, metadata={"number": number})
        os.utime(path, ns=(0, 0))
        sizes.add(path.stat().st_size)
        with open_ndarray(path) as lazy:
            pickled.append(pickle.dumps(lazy))
    assert 1 == len(sizes)
    with pytest.raises(StorageError, match="has changed since"):
        pickle.loads(pickled[0])
    pickle.loads(pickled[1]).close()


def test_pickle_needs_a_name():
    lazy = open_ndarray(file_of(numpy.arange(3), 8))
    with pytest.raises(TypeError, match="opened by name") as caught:
        pickle.dumps(lazy)
    assert isinstance(caught.value, BloscpackError)


def test_dask_token_tells_files_apart(tmp_path):
    paths = [tmp_path / "a.blp", tmp_path / "b.blp"]
    for path in paths:
        bloscpack.pack_ndarray_to_file(numpy.arange(3), path)
    with (
        open_ndarray(paths[0]) as a,
        open_ndarray(paths[0]) as same,
        open_ndarray(paths[1]) as b,
    ):
        assert a.__dask_tokenize__() == same.__dask_tokenize__()
        assert a.__dask_tokenize__() != b.__dask_tokenize__()
    data = file_of(numpy.arange(3), 8)
    first, second = open_ndarray(data), open_ndarray(data)
    assert first.__dask_tokenize__() == first.__dask_tokenize__()
    assert first.__dask_tokenize__() != second.__dask_tokenize__()
