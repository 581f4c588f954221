"""Indexes of arrays in folders: what NumPy selects, `oindex`, `vindex` and fields."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from dataset.layouts import LAYOUTS
from dataset.shard_index import ENTRY, index_size
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from indexes import indexes

import bloscpack as bp
from bloscpack import dataset
from bloscpack._arrays.loader import ChunkCache
from bloscpack.exceptions import FormatError, UsageError

SHAPE = (5, 3, 4)
ITEMS = np.arange(60, dtype="i4").reshape(SHAPE)
TICK = np.dtype([("price", "f8"), ("pair", "i2", (2,)), ("side", "S1")])
few = settings(max_examples=25, suppress_health_check=[*HealthCheck])


def ticks_of(shape):
    items = np.zeros(shape, TICK)
    count = items.size
    items["price"] = np.arange(count).reshape(shape)
    items["pair"] = np.arange(2 * count).reshape(*shape, 2)
    items["side"] = (np.arange(count) % 10).astype("S1").reshape(shape)
    return items


@pytest.fixture(params=[*LAYOUTS, "grid"])
def array(request, tmp_path):
    options = {"layout": request.param, "chunks": 2}
    if request.param == "grid":
        options = {"chunks": (2, 1, 2), "shards": (4, 2, 4)}
    with dataset.create_array(tmp_path / "a", ITEMS, **options) as found:
        yield found


@pytest.fixture
def ticks(tmp_path):
    options = {"layout": "superchunk", "chunks": 2, "shards": 4}
    with dataset.create_array(tmp_path / "t", ticks_of((9, 2)), **options) as found:
        yield found


def assert_same(expected, found):
    assert type(expected) is type(found)
    assert (expected.shape, expected.dtype) == (found.shape, found.dtype)
    np.testing.assert_array_equal(expected, found)


def outcome(array, index):
    """Return what an index selects, or the message of its error."""
    try:
        return array[index]
    except IndexError as error:
        return str(error)


# Indexes of NumPy


@few
@given(data=st.data())
def test_every_index_gives_what_numpy_gives(data, array):
    index = data.draw(indexes(SHAPE))
    expected, found = outcome(ITEMS, index), outcome(array, index)
    if isinstance(expected, str):
        assert expected == found
    else:
        assert_same(expected, found)


@pytest.mark.parametrize("key", [np.s_[:, 3:5], np.s_[7:95, 1], np.s_[4:71, ::2]])
def test_parts_of_more_rows_than_the_cache_has_room_for(key, tmp_path, monkeypatch):
    """Chunks that follow each other are decompressed at once, and each is verified."""
    items = np.arange(1000).reshape(100, 10)
    limit = property(lambda _: 300, lambda *_: None)
    monkeypatch.setattr(ChunkCache, "limit", limit, raising=False)
    with dataset.create_array(tmp_path / "a", items, chunks=3, shards=30) as array:
        assert_same(items[key], array[key])
    path = tmp_path / "a" / "c" / "1" / "0"
    content = bytearray(path.read_bytes())
    start, _ = ENTRY.unpack_from(
        content, len(content) - index_size(10) + 4 * ENTRY.size
    )
    content[start + 20] ^= 1
    path.write_bytes(content)
    with pytest.raises(FormatError, match="mismatch") as caught:
        dataset.open(tmp_path / "a")[key]
    assert (str(path), 4) == (caught.value.filename, caught.value.chunk)


@few
@given(data=st.data())
def test_every_index_of_items_with_fields_gives_what_numpy_gives(data, ticks):
    index = data.draw(indexes((9, 2)))
    expected, found = outcome(ticks_of((9, 2)), index), outcome(ticks, index)
    if isinstance(expected, str):
        assert expected == found
    else:
        assert_same(expected, found)


@few
@given(data=st.data())
def test_every_assignment_has_the_effect_that_it_has_in_numpy(data, array):
    index = data.draw(indexes(SHAPE))
    expected = array[:]
    selected = outcome(expected, index)
    if isinstance(selected, str):
        with pytest.raises(IndexError):
            array[index] = 0
        return
    values = np.arange(100, 100 + selected.size).reshape(selected.shape)
    if values.ndim and data.draw(st.booleans()):
        values = values[:1]  # which is broadcast
    if data.draw(st.booleans()):
        values = values[np.newaxis]  # which is dropped
    try:
        expected[index] = values
    except (TypeError, ValueError):
        # NumPy lets a single mask drop no axes, and since 2.4 a single item neither.
        return
    array[index] = values
    assert_same(expected, array[:])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_mask_of_the_whole_array_takes_memory_for_its_positions_only(
    layout, tmp_path
):
    items = np.zeros((1000, 500), "u1")
    with dataset.create_array(tmp_path / "a", items, layout=layout) as array:
        mask = np.random.default_rng(1).random(items.shape) < 0.5
        tracemalloc.start()
        try:
            found = array[mask]
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert mask.sum() == found.size
    assert peak < 40 * mask.nbytes


@pytest.mark.parametrize(
    "key",
    [([0, 1], [1, 2]), (slice(2), 0, 0), ITEMS < 2],
    ids=["points", "rows", "mask"],
)
def test_values_of_another_shape_are_refused(key, array):
    with pytest.raises(ValueError, match=r"could not broadcast .* shape \(3,\) into"):
        array[key] = [1, 2, 3]
    assert_same(ITEMS, array[:])


def test_assigning_the_same_item_twice_keeps_the_last_value(array):
    array[[1, 0, 1], [2, 0, 2], 3] = [5, 6, 7]
    assert (7, 6) == (array[1, 2, 3], array[0, 0, 3])


# oindex and vindex


def test_oindex_takes_an_ellipsis_and_a_single_entry(array):
    assert_same(ITEMS[[3, 1]], array.oindex[[3, 1]])
    assert_same(ITEMS[[3, 1]][..., [2, 2]], array.oindex[[3, 1], ..., [2, 2]])
    values = np.arange(24).reshape(2, 3, 4)
    array.oindex[[3, 1]] = values
    assert_same(values.astype("i4"), array[[3, 1]])


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (([0], [3]), "index 3 is out of bounds for axis 1 with size 3"),
        (([[0]],), "each array of an outer index must have one axis, not 2"),
        ((0, 0, 0, 0), "too many indices"),
        (
            (0, [True]),
            "boolean index did not match indexed array along (axis|dimension) 1",
        ),
        ((True,), "must have one axis, not 0"),
        (([0.5],), "must be of integer"),
    ],
    ids=repr,
)
def test_an_outer_index_that_does_not_fit_is_refused(key, message, array):
    with pytest.raises(IndexError, match=message):
        array.oindex[key]


@pytest.mark.parametrize(
    "key",
    [
        ([0, 4], [2, 1], [3, 0]),
        ([[0, 4], [1, 2]], 1, [3, -1]),
        (1, 2, 3),
        ITEMS % 7 == 0,
        (np.arange(5) > 2, [0, 1], 2),
    ],
    ids=["points", "broadcast", "numbers", "mask", "mixed"],
)
def test_vindex_selects_items_one_by_one(key, array):
    expected = ITEMS.copy()
    assert_same(expected[key], array.vindex[key])
    array.vindex[key] = expected[key] = -1
    assert_same(expected, array[:])


@pytest.mark.parametrize(
    "key", [0, ([0], [1]), (slice(1), [0], [0]), ..., (None, 0, 0)]
)
def test_vindex_refuses_anything_but_items(key, array):
    with pytest.raises(IndexError, match=r"^vindex: expected an array of integers"):
        array.vindex[key]


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_in_files_have_oindex_and_vindex(order):
    file = bp.pack_ndarray_to_bytes(np.asarray(ITEMS, order=order), chunk_size=20)
    with bp.open_ndarray(file) as lazy:
        assert_same(
            ITEMS[np.ix_([3, 0], [1, 1], [2])], lazy.oindex[[3, 0], [1, 1], [2]]
        )
        assert_same(ITEMS[[3, 0], [1, 1], 2], lazy.vindex[[3, 0], [1, 1], 2])


# Fields of some items


FIELDS = [
    *(("price", slice(5, 8)), (slice(5, 8), "price"), ("price", 3, 1), ("price",)),
    *(("pair", 3, 1), (slice(None, None, -3), "pair", 0), ([4, 2], ["side", "price"])),
    *((["pair"], 3), ("side", [1, 2], [0, 1]), ("pair", [8, 1, 8], slice(1))),
    ("side", ..., None, 1),
]


@pytest.mark.parametrize("key", FIELDS, ids=repr)
@pytest.mark.parametrize("kind", ["dataset", "C", "F"])
def test_fields_of_some_items(key, kind, ticks):
    items = ticks_of((9, 2))
    array = ticks
    if kind != "dataset":
        file = bp.pack_ndarray_to_bytes(np.asarray(items, order=kind), chunk_size=39)
        array = bp.open_ndarray(file)
    names = [e for e in key if isinstance(e, str) or is_name_list(e)]
    rest = tuple(e for e in key if not (isinstance(e, str) or is_name_list(e)))
    assert_same(items[names[0]][rest or ...], array[key])


def is_name_list(entry):
    return isinstance(entry, list) and isinstance(entry[0], str)


def test_only_the_asked_rows_of_a_field_are_read(tmp_path):
    items = ticks_of((4000,))
    dataset.create_array(
        tmp_path / "t", items, layout="superchunk", chunks=100, shards=1000
    ).close()
    # Damage in all other files and rows is not noticed.
    for name in ("pair", "side"):
        for file in (tmp_path / "t" / "data" / name).iterdir():
            file.write_bytes(b"no file")
    for number in (1, 3, 4):
        (tmp_path / "t" / "data" / "price" / ("__%d__.bin" % number)).write_bytes(b"no")
    array = dataset.open(tmp_path / "t")
    assert_same(items["price"][1500:1503], array["price", 1500:1503])
    assert_same(items["price"][1500:1503], array[1500:1503, "price"])


def test_fields_of_some_items_are_assigned(ticks):
    expected = ticks_of((9, 2))
    for names, rest, values in (
        *[("price", slice(5, 8), 0.5), ("pair", (3, 1), [7, 8])],
        *[("side", ([1, 2], [0, 1]), [b"x", b"y"]), ("price", (0, 0), 3)],
        (["side", "price"], (slice(2), 1), (b"z", 9.5)),
    ):
        key = (names, *(rest if isinstance(rest, tuple) else (rest,)))
        ticks[key] = values
        expected[names][rest] = values
        assert expected.tobytes() == ticks[:].tobytes()
    ticks[8, "side"] = expected["side"][8] = [b"p", b"q"]
    assert expected.tobytes() == ticks[:].tobytes()
    with pytest.raises(UsageError):
        ticks["pair", 0] = 2**20
    with pytest.raises(ValueError, match="broadcast"):
        ticks["price", :3] = [1, 2, 3, 4]
    assert expected.tobytes() == ticks[:].tobytes()


@pytest.mark.parametrize(
    "key", [("no", 1), (1, ["price", "no"]), ("price", "side"), ("price", 9)], ids=repr
)
def test_fields_that_do_not_fit_are_refused(key, ticks):
    with pytest.raises((IndexError, ValueError, KeyError)):
        ticks[key]
