"""Arrays that are cut into chunks and shards along every axis: values and files."""

from __future__ import annotations

import json
import pickle
import tracemalloc

import numpy as np
import pytest
from dataset import documents
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import bloscpack as bp
from bloscpack import dataset
from bloscpack.dataset.layouts.base import NewItems
from bloscpack.describe import info
from bloscpack.exceptions import FormatError, UsageError

ITEMS = np.arange(6 * 10, dtype="<i4").reshape(6, 10)
# Four chunks of six items in a shard; nine shards, of which five are at an end.
CUT = {"chunks": (1, 2), "shards": (2, 4)}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a"


@pytest.fixture
def made(path):
    """An array of nine shards, in whose place no value is read."""
    fill = NewItems(-1)
    dataset.create_array(path, ITEMS, **CUT, fill_value=fill, sync=False).close()
    return path


def files_of(path):
    """Return the names of the shards of an array."""
    top = path / "c"
    return sorted(
        file.relative_to(top).as_posix() for file in top.rglob("*") if file.is_file()
    )


def same(expected, found):
    """Compare values, shapes, dtypes and the types of scalars."""
    assert type(expected) is type(found)
    assert expected.dtype == found.dtype
    np.testing.assert_array_equal(expected, found)


@pytest.fixture(scope="module")
def cube(tmp_path_factory):
    """An open array of three axes, its items, and others of the same shape."""
    items = np.random.default_rng(1).integers(0, 9999, (5, 7, 6)).astype("<u2")
    path = tmp_path_factory.mktemp("cube") / "a"
    cut = {"chunks": (2, 3, 2), "shards": (4, 3, 4)}
    with dataset.create_array(path, items, **cut, sync=False) as array:
        yield array, items


@given(data=st.data())
@settings(max_examples=60)
def test_outer_and_pointwise_indexes(cube, data):
    array, items = cube
    entries, outer = [], []
    for n in items.shape:
        numbers = st.lists(st.integers(-n, n - 1), max_size=5)
        entry = data.draw(numbers | hnp.arrays("?", n) | st.slices(n))
        entries.append(entry)
        is_list = isinstance(entry, list)
        entry = np.array(entry, int) if is_list else np.arange(n)[entry]
        outer.append(entry)
    np.testing.assert_array_equal(items[np.ix_(*outer)], array.oindex[tuple(entries)])
    count = data.draw(st.integers(0, 6))
    points = tuple(
        data.draw(hnp.arrays(int, count, elements=st.integers(0, n - 1)))
        for n in items.shape
    )
    np.testing.assert_array_equal(items[points], array.vindex[points])


def test_assignments_by_outer_and_pointwise_indexes(made):
    expected = ITEMS.copy()
    with dataset.open(made, "r+") as array:
        array.oindex[[0, 5], [9, 2, 3]] = np.arange(6).reshape(2, 3)
        expected[np.ix_([0, 5], [9, 2, 3])] = np.arange(6).reshape(2, 3)
        array.vindex[[0, 4, 2], [1, 7, 7]] = [50, 60, 70]
        expected[[0, 4, 2], [1, 7, 7]] = [50, 60, 70]
        array[expected % 7 == 0] = -7
        expected[expected % 7 == 0] = -7
        same(expected, array[:])
        same(expected[expected < 20], array[array[:] < 20])
    assert dataset.verify(made).ok


# What is in the files


def test_the_document(made):
    document = json.loads((made / "zarr.json").read_text())
    assert [6, 10] == document["shape"]
    grid = {"name": "regular", "configuration": {"chunk_shape": [2, 4]}}
    assert grid == document["chunk_grid"]
    [sharding] = document["codecs"]
    assert "sharding_indexed" == sharding["name"]
    assert [1, 2] == sharding["configuration"]["chunk_shape"]
    array = dataset.open(made)
    assert ((1, 2), (2, 4)) == (array.chunks, array.shards)


def test_names_of_shards(made):
    names = ["%d/%d" % (i, j) for i in range(4) for j in range(4)]
    assert [name for name in names if "3" not in name] == files_of(made)
    with dataset.open(made, "r+") as array:
        array.resize((7, 13))
    assert names == files_of(made)
    shape = made.with_name("shape")
    cut = {"chunks": (1, 2), "shards": (2, 4), "dtype": "i4"}
    with dataset.create_array(shape, shape=(6, 10), **cut) as array:
        array.resize((7, 13))
        array[6, 12] = 1
    assert ["3/3"] == files_of(shape)  # others have the fill value only


def test_a_shard_is_a_file_with_a_part_of_the_array(made):
    for i, j in np.ndindex(3, 3):
        file = str(made / "c" / str(i) / str(j))
        part = ITEMS[2 * i : 2 * i + 2, 4 * j : 4 * j + 4]
        same(part, bp.unpack_ndarray_from_file(file))
        with bp.open_ndarray(file) as lazy:
            assert part.shape == lazy.shape
            same(part[1, ::-1], lazy[1, ::-1])
        assert bp.verify(file).ok
        # At the end, there are only chunks with items.
        assert part.size // 2 == info(file).nchunks
        _, metadata = bp.unpack_bytes_from_file(file)
        assert "grid" == metadata["container"]
        assert [list(part.shape), [1, 2], [2, 4]] == [
            metadata[name] for name in ("shape", "chunks", "shard")
        ]
        assert metadata["place"].endswith("/c/%d/%d" % (i, j))


def test_chunks_are_padded_with_the_fill_value(path):
    items = np.arange(5 * 3, dtype="i2").reshape(5, 3)
    cut = {"chunks": (4, 2), "shards": (8, 4)}
    dataset.create_array(path, items, **cut, fill_value=-3).close()
    plain, _ = bp.unpack_bytes_from_file(str(path / "c/0/0"))
    chunks = np.frombuffer(plain, "i2").reshape(4, 4, 2)
    padded = np.full((8, 4), -3, "i2")
    padded[:5, :3] = items
    expected = padded.reshape(2, 4, 2, 2).swapaxes(1, 2).reshape(4, 4, 2)
    same(expected, chunks.copy())


# How new arrays are cut


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"chunks": (2,)},
            ["chunks", "a positive length for each axis", "for 2 axes", "(2,)"],
        ),
        (
            {"chunks": (2, 2, 2)},
            ["chunks", "a positive length for each axis", "for 2 axes"],
        ),
        ({"chunks": (0, 2)}, ["chunks", "positive"]),
        ({"chunks": (-1, 2)}, ["chunks", "positive"]),
        ({"chunks": ()}, ["chunks", "a positive length for each axis", "for 2 axes"]),
        ({"chunks": (2, 2.5)}, ["chunks", "(2, 2.5)"]),
        ({"chunks": (2, True)}, ["chunks"]),
        ({"chunks": "2"}, ["chunks", "'2'"]),
        ({"chunks": (2, 3), "shards": (4, 4)}, ["multiple", "(2, 3)", "(4, 4)"]),
        ({"chunks": (2, 3), "shards": (1, 3)}, ["multiple"]),
        ({"chunks": (2, 3), "shards": 3}, ["multiple"]),
        ({"shards": (0, 4)}, ["shards", "positive"]),
        ({"chunks": (2**16, 2**16)}, ["chunk", "largest"]),
        ({"chunks": (10**30, 1)}, ["chunk", "largest"]),
        ({"chunks": (1, 1), "shards": (2**20, 2**20)}, ["can't be written"]),
    ],
)
def test_wrong_sizes_are_refused(path, arguments, words):
    with pytest.raises(UsageError) as caught:
        dataset.create_array(path, ITEMS, **arguments)
    for word in words:
        assert word in str(caught.value)
    assert not path.exists()


def test_files_and_datasets_have_shards_of_as_many_chunks(path):
    wide = np.zeros((1, 2**20 + 1), "?")
    with pytest.raises(UsageError, match="at most '1048576'"):
        bp.pack_ndarray_to_file(wide, path, chunks=(1, 1), shard=True)
    with pytest.raises(UsageError, match="at most '1048576'"):
        dataset.create_array(path, wide, chunks=(1, 1), shards=wide.shape)


@pytest.mark.parametrize("layout", ["superchunk", "bcolz"])
def test_other_layouts_are_cut_along_rows(path, layout):
    with pytest.raises(UsageError, match="first axis") as caught:
        dataset.create_array(path, ITEMS, layout=layout, chunks=(2, 3))
    assert "layout '%s'" % layout in str(caught.value)
    assert str(caught.value).endswith("a number of rows, found chunks=(2, 3)")
    assert not path.exists()
    with dataset.create_array(path, ITEMS, layout=layout, chunks=(2, 10)) as array:
        assert (2, 10) == array.chunks


def test_a_shape_of_whole_rows_is_a_number_of_rows(path):
    dataset.create_array(path, ITEMS, chunks=(2, 10), shards=(4, 10)).close()
    dataset.create_array(path.with_name("b"), ITEMS, chunks=2, shards=4).close()
    for name in ("c/0/0", "c/1/0"):
        _, one = bp.unpack_bytes_from_file(str(path / name))
        _, other = bp.unpack_bytes_from_file(str(path.with_name("b") / name))
        assert "grid" == one["container"]
        assert one.pop("place") != other.pop("place")
        assert one == other


@pytest.mark.parametrize("cut", [CUT, {"chunks": 2}, {"chunks": (3, 4)}, {}])
def test_the_chunks_of_an_array_are_those_of_another_one(path, cut):
    array = dataset.create_array(path, ITEMS, **cut)
    sizes = {"chunks": array.chunks, "shards": array.shards}
    other = dataset.create_array(path.with_name("b"), ITEMS, **sizes)
    assert sizes == {"chunks": other.chunks, "shards": other.shards}
    assert files_of(path) == files_of(path.with_name("b"))


def test_a_row_that_is_larger_than_the_largest_chunk_is_divided(path):
    shape = 3, 2**20, 2**10
    array = dataset.create_array(path, shape=shape, dtype="u2", chunks=1)
    assert 1 == array.chunks[0]
    assert np.prod(array.chunks) * 2 <= 2**31 - 2**10
    array[1, 2**19, 5:7] = 9
    assert [0, 9, 9, 0] == array[1, 2**19, 4:8].tolist()
    assert 1 == len(files_of(path))


# Arrays without axes


def test_an_array_without_axes(path):
    with dataset.create_array(path, 7.5, attrs={"unit": "m"}, fill_value=1) as array:
        assert ((), 0, 1, 8) == (array.shape, array.ndim, array.size, array.nbytes)
        assert array[()] == 7.5
        same(np.array(7.5), array[...])
        array[()] = 3
        array.attrs["b"] = 1
        for wrong in (len, list, lambda a: [*a.iter_chunks()]):
            with pytest.raises(TypeError):
                wrong(array)
        for wrong in (
            lambda: array.append([1]),
            lambda: array.resize(3),
        ):
            with pytest.raises(UsageError, match="without axes"):
                wrong()
        assert 3.0 == pickle.loads(pickle.dumps(array))[()]
    array = dataset.open(path)
    assert 3.0 == array[()]
    assert {"unit": "m", "b": 1} == dict(array.attrs)
    assert (path / "c").is_file()
    same(np.array(3.0), bp.unpack_ndarray_from_file(str(path / "c")))
    assert dataset.verify(path).ok


@pytest.mark.parametrize("name", ["b.npy", "b.blp", "b.zarr"])
def test_convert_an_array_without_axes(path, name):
    dataset.create_array(path, np.float32(7.5), attrs={"unit": "m"}).close()
    dataset.convert(path, path.with_name(name))
    dataset.convert(path.with_name(name), path.with_name("d"), to="zarr")
    same(np.array(7.5, "f4"), dataset.open(path.with_name("d"))[...])


def test_recover_an_array_without_axes(path):
    dataset.create_array(path, np.array("ab"), fill_value="x").close()
    recovery = dataset.recover(path, path.with_name("b"))
    assert recovery.complete
    same(np.array("ab"), dataset.open(path.with_name("b"))[...])
    content = bytearray((path / "c").read_bytes())
    content[len(content) // 2] ^= 1
    (path / "c").write_bytes(content)
    assert not dataset.verify(path).ok
    with pytest.raises(FormatError):
        dataset.open(path)[()]


# Data from elsewhere


class Foreign:
    """An array that is not in memory, and counts what is read at a time."""

    dtype = ITEMS.dtype

    def __init__(self, items):
        self._items = items
        self.shape = items.shape
        self.boxes = []

    def __getitem__(self, key):
        found = self._items[key]
        self.boxes.append(found.shape)
        return found

    def __array__(self, dtype=None, copy=None):
        raise AssertionError("all of it is read")

    def __len__(self):
        return len(self._items)


def test_an_array_elsewhere_is_read_in_boxes_of_a_shard(path):
    foreign = Foreign(ITEMS)
    with dataset.create_array(path, foreign, **CUT) as array:
        assert 9 == len(foreign.boxes)
        assert all(rows <= 2 and columns <= 4 for rows, columns in foreign.boxes)
        same(ITEMS, array[:])
        array.append(Foreign(ITEMS))
        array.append(foreign := Foreign(np.concatenate([ITEMS, ITEMS])), axis=1)
        assert all(rows <= 2 and columns <= 4 for rows, columns in foreign.boxes)
        same(np.tile(ITEMS, (2, 2)), array[:])


def test_rows_of_an_iterator(path):
    counts = 1, 0, 4, 2, 3
    items = np.arange(10 * 9).reshape(10, 9)
    blocks = np.split(items, np.cumsum(counts)[:-1])
    array = dataset.create_array(path, iter(blocks), chunks=(2, 4), shards=(4, 4))
    same(items, array[:])
    array.append(iter(blocks))
    same(np.concatenate([items, items]), array[:])
    array.close()
    assert dataset.verify(path).ok


# Damage


def reads(path):
    """Return all items, or None if reading them is an error."""
    try:
        return dataset.open(path)[:]
    except FormatError:
        return None


@pytest.mark.full
def test_every_flipped_bit_is_an_error_or_found(path):
    items = np.random.default_rng(0).integers(0, 2**40, (3, 4))
    dataset.create_array(path, items, chunks=(2, 2), shards=(2, 4)).close()
    for name in files_of(path):
        file = path / "c" / name
        content = file.read_bytes()
        for offset in range(len(content)):
            damaged = bytearray(content)
            damaged[offset] ^= 1 << offset % 8
            file.write_bytes(damaged)
            found = reads(path)
            if found is not None:
                np.testing.assert_array_equal(items, found)
                assert dataset.verify(path).findings, (name, offset)
        file.write_bytes(content)
    assert dataset.verify(path).ok


@pytest.mark.parametrize("names", [("0/0", "0/1"), ("1/0", "0/1"), ("2/2", "2/1")])
def test_exchanged_shards(made, names):
    one, other = (made / "c" / name for name in names)
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    with pytest.raises(FormatError, match="the file"):
        dataset.open(made)[:]
    assert not dataset.verify(made).ok
    recovery = dataset.recover(made, made.with_name("b"))
    same(ITEMS, dataset.open(made.with_name("b"))[:])
    assert [] == recovery.losses


LOST = (slice(2, 4), slice(4, 8))


@pytest.mark.parametrize("damage", ["missing", "truncated", "empty", "overwritten"])
def test_a_lost_shard(made, damage):
    file = made / "c/1/1"
    if damage == "missing":
        file.unlink()
    else:
        content = file.read_bytes()
        new = {"truncated": content[:100], "empty": b"", "overwritten": b"x" * 999}
        file.write_bytes(new[damage])
    array = dataset.open(made)
    with pytest.raises(FormatError):
        array[3, 4]
    same(ITEMS[:2], array[:2])
    same(ITEMS[:, 8:], array[:, 8:])
    report = dataset.verify(made)
    assert not report.ok
    assert ["items [2:4, 4:8]"] == [str(loss) for loss in report.losses]
    recovery = dataset.recover(made, made.with_name("b"))
    assert [(2, 4)] == [loss.rows for loss in recovery.losses]
    assert ["items [2:4, 4:8]"] == [str(loss) for loss in recovery.losses]
    expected = ITEMS.copy()
    expected[LOST] = -1
    same(expected, dataset.open(made.with_name("b"))[:])
    recovery = dataset.recover(made, made.with_name("d"), drop=True)
    assert ["rows 2 to 4"] == [str(loss) for loss in recovery.losses]
    same(np.delete(ITEMS, [2, 3], 0), dataset.open(made.with_name("d"))[:])
    assert dataset.verify(made.with_name("d")).ok


@pytest.mark.parametrize(
    ("numbers", "described"),
    [
        ([1, 2], ["items [0:8, 8:16]", "items [8:16, 0:8]"]),
        ([2, 3], ["rows 8 to 16"]),
        ([0, 1, 2, 3], ["rows 0 to 16"]),
        ([0, 3], ["items [0:8, 0:8]", "items [8:16, 8:16]"]),
    ],
)
def test_adjacent_files_that_are_missing(numbers, described, tmp_path):
    cut = {"chunks": (4, 4), "shards": (8, 8)}
    dataset.create_array(tmp_path / "a", np.ones((16, 16), "i2"), **cut).close()
    for number in numbers:
        (tmp_path / ("a/c/%d/%d" % divmod(number, 2))).unlink()
    report = dataset.verify(tmp_path / "a")
    assert described == [str(loss) for loss in report.losses]
    if len(numbers) < 4:
        recovery = dataset.recover(tmp_path / "a", tmp_path / "b", fill=0)
        assert described == [str(loss) for loss in recovery.losses]
        assert 256 - 64 * len(numbers) == dataset.open(tmp_path / "b")[:].sum()


@pytest.mark.parametrize("start", range(0, 24, 5))
def test_a_run_of_missing_files(start, tmp_path):
    """The reported boxes are the items that are lost, no others."""
    items = np.ones((5, 8, 3), "i2")
    dataset.create_array(tmp_path / "a", items, shards=(2, 2, 2)).close()
    lost = np.zeros(items.shape, bool)
    files = sorted((tmp_path / "a/c").glob("*/*/*"))
    assert 24 == len(files)
    for file in files[start : start + 11]:
        a, b, c = (2 * int(part) for part in file.parts[-3:])
        lost[a : a + 2, b : b + 2, c : c + 2] = True
        file.unlink()
    report = dataset.verify(tmp_path / "a")
    assert 1 <= len(report.losses) <= 5
    counts = np.zeros(items.shape, int)
    for loss in report.losses:
        counts[tuple(slice(*pair) for pair in loss.region or [loss.rows])] += 1
    np.testing.assert_array_equal(lost, counts)


def test_a_lost_chunk_is_reported_with_its_place(made):
    file = made / "c/1/2"  # two chunks, of rows 2 and 3, in columns 8 and 9
    content = bytearray(file.read_bytes())
    index = np.frombuffer(content[-68:-4], "<u8").reshape(4, 2)
    content[int(index[2, 0]) + 20] ^= 8
    file.write_bytes(content)
    same(ITEMS[2], dataset.open(made)[2])
    with pytest.raises(FormatError) as caught:
        dataset.open(made)[3, 8]
    assert "c/1/2" in str(caught.value)
    report = dataset.verify(made)
    assert ["items [3:4, 8:10]"] == [str(loss) for loss in report.losses]
    assert any("items [3:4, 8:10]" in str(f) for f in report.findings)
    dataset.recover(made, made.with_name("b"))
    expected = ITEMS.copy()
    expected[3, 8:] = -1
    same(expected, dataset.open(made.with_name("b"))[:])


def verified(path):
    """Check an array; raise the first finding as an error."""
    for finding in dataset.verify(path).findings:
        raise FormatError(str(finding))


@pytest.mark.parametrize(
    ("shape", "shard", "chunk"),
    [
        ([6, 10], [2, 4, 1], [1, 2]),
        ([2**62, 2**62], [2, 4], [1, 2]),
        ([6, 10], [2**20, 2**20], [2**20, 2**20]),
        ([2**20, 2**20], [2**40, 2**40], [1, 1]),
    ],
)
def test_wrong_sizes_take_no_memory(made, shape, shard, chunk):
    document = json.loads((made / "zarr.json").read_text())
    document["shape"] = shape
    document["chunk_grid"]["configuration"]["chunk_shape"] = shard
    document["codecs"][0]["configuration"]["chunk_shape"] = chunk
    (made / "zarr.json").write_bytes(documents.signed(document))
    tracemalloc.start()
    try:
        for read in (lambda: dataset.open(made)[0, 0], lambda: verified(made)):
            with pytest.raises((FormatError, UsageError)) as caught:
                read()
            assert "zarr.json" in str(caught.value)
            assert len(str(caught.value)) < 600
        assert tracemalloc.get_traced_memory()[1] < 8e6
    finally:
        tracemalloc.stop()


def test_many_chunks(path):
    """No table is made of all chunks or shards."""
    shape = 10**6, 10**6, 10**6
    cut = {"chunks": (1, 1, 1), "shards": (2, 2, 2), "sync": False}
    tracemalloc.start()
    try:
        with dataset.create_array(path, shape=shape, dtype="u1", **cut) as array:
            array[5, 10**5, 7:9] = 1, 2
            array.resize((3 * 10**5, *shape[1:]))
            assert [0, 1, 2, 0] == array[5, 10**5, 6:10].tolist()
            assert [1, 0] == array[[5, 2 * 10**5], [10**5, 5], [7, 8]].tolist()
        report = dataset.verify(path)
        assert report.ok
        assert tracemalloc.get_traced_memory()[1] < 8e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("wide", [12, 15, 31])
def test_an_array_of_rows_gets_longer_rows(path, wide):
    """Its shards state rows of the old length until they change."""
    expected = np.zeros((6, wide), "i4")
    expected[:, :10] = ITEMS
    with dataset.create_array(path, ITEMS, chunks=2, shards=4) as array:
        array.resize((6, wide))
        same(expected, array[:])
        assert dataset.verify(path).ok
        array[3, 9] = expected[3, 9] = -5
        array.append(expected)
        expected = np.concatenate([expected, expected])
        array.append(expected[:, :7], axis=1)
        expected = np.concatenate([expected, expected[:, :7]], axis=1)
    same(expected, dataset.open(path)[:])
    assert [] == dataset.verify(path).findings
    with dataset.open(path, "r+") as array:
        array.resize((12, 10))
        array[1] = expected[1, :10] = 7
        same(expected[:, :10], array[:])
    same(expected[:, :10], dataset.open(path)[:])
    recovery = dataset.recover(path, path.with_name("b"))
    assert recovery.complete
    same(expected[:, :10], dataset.open(path.with_name("b"))[:])


def test_a_folder_without_shards_is_no_shard(path):
    """Shards of a folder were removed: those that it gets later are missing."""
    cut = {"chunks": (2, 2), "shards": (2, 4)}
    with dataset.create_array(path, ITEMS, **cut) as array:
        array.resize((2, 10))
        assert [] == [*(path / "c/2").rglob("*")]
        array.resize((6, 4))
        expected = np.zeros((6, 4), "i4")
        expected[:2] = ITEMS[:2, :4]
        same(expected, array[:])
    same(expected, dataset.open(path)[:])


def test_a_shard_of_rows_that_ends_in_a_chunk(path):
    """It stays as it was when the array gets longer rows."""
    with dataset.create_array(path, ITEMS[:5], chunks=4, shards=8) as array:
        array.append(ITEMS[:5, :3], axis=1)
    expected = np.concatenate([ITEMS[:5], ITEMS[:5, :3]], axis=1)
    assert [] == dataset.verify(path).findings
    assert dataset.recover(path, path.with_name("b")).complete
    same(expected, dataset.open(path.with_name("b"))[:])
    # Of a damaged file, the chunks are found without the index.
    file = path / "c/0/0"
    file.write_bytes(file.read_bytes()[:-1])
    report = dataset.verify(path)
    assert not report.ok
    recovery = dataset.recover(path, path.with_name("d"))
    assert [] == recovery.losses
    same(expected, dataset.open(path.with_name("d"))[:])
