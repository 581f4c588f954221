"""Documents of Zarr format 3: what is encoded is decoded, and the rest is refused."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from bloscpack._format import zarr_metadata as zm
from bloscpack._format.grid import Grid
from bloscpack.exceptions import DamageError, Unsupported, UsageError

NAN_WITH_PAYLOAD = np.array(0x7FF8000000000001, "u8").view("f8")[()]
ITEMS = [
    ("<f8", 0.0, 0.0),
    (">f4", math.nan, "NaN"),
    ("<f2", -math.inf, "-Infinity"),
    ("<f8", NAN_WITH_PAYLOAD, "0x7ff8000000000001"),
    ("<c8", 1 + 2j, [1.0, 2.0]),
    (">c16", complex(math.nan, math.inf), ["NaN", "Infinity"]),
    ("?", True, True),
    ("<i8", -(2**63), -(2**63)),
    ("<u8", 2**64 - 1, 2**64 - 1),
    ("S5", b"a\xff", "Yf8="),
    ("<U3", "\u00e9\U0001f600", "\u00e9\U0001f600"),
    (">U3", "", ""),
    ("<M8[D]", np.datetime64(3, "D"), 3),
    ("<M8[s]", np.datetime64("NaT", "s"), "NaT"),
    (">m8[25us]", np.timedelta64(7, "25us"), 7),
    ("<M8", None, "NaT"),
]


@pytest.mark.filterwarnings("ignore:The 'generic' unit:DeprecationWarning")
@pytest.mark.parametrize(("code", "fill", "stored"), ITEMS)
def test_arrays(code, fill, stored):
    dtype = np.dtype(code)
    document = zm.ArrayDocument(
        dtype,
        Grid((10, 0, 3), (4, 1, 2), (5, 2, 1)),
        fill_value=fill,
        attributes={"a": [1]},
        dimension_names=["x", None, "z"],
        blosc={"cname": "zstd", "clevel": 9, "shuffle": 2},
        others={"more": {"must_understand": False}},
    )
    text = zm.encode_json(document.document())
    assert stored == json.loads(text)["fill_value"]
    found = zm.decode_array(json.loads(text))
    assert text == zm.encode_json(found.document())
    assert dtype == found.dtype
    assert (10, 0, 3) == found.grid.shape
    assert ((4, 1, 2), (5, 2, 1)) == (found.grid.chunk, found.grid.per_shard)
    assert (
        np.array(fill, dtype).tobytes() == np.array(found.fill_value, dtype).tobytes()
    )
    assert "zstd" == found.blosc["cname"]


@pytest.mark.parametrize("code", ["V4", "f4,i4", "g"])
def test_dtypes_without_a_data_type(code):
    with pytest.raises(UsageError, match="no data type"):
        zm.encode_data_type(np.dtype(code))


def test_attribute_whose_keys_have_the_same_name():
    with pytest.raises(UsageError, match="'b' must be JSON: the keys 1 and '1' have"):
        zm.encode_attributes({"a": 1, "b": [{1: 2, "1": 3}]})


def test_attributes_that_are_no_json():
    for value in ({1, 2}, b""):
        with pytest.raises(UsageError, match="must be JSON"):
            zm.encode_json(zm.group_document({"a": value}))
    with pytest.raises(UsageError, match="must be text"):
        zm.encode_json(zm.group_document({1: 2}))


def document(**changes):
    grid = Grid((10, 2), (4, 2), (5, 1))
    return zm.ArrayDocument(np.dtype("<i4"), grid).document() | changes


SHARDING = document()["codecs"][0]["configuration"]


def sharding(**changes):
    codec = {"name": "sharding_indexed", "configuration": SHARDING | changes}
    return document(codecs=[codec])


def grid(*shape):
    chunk_shape = {"chunk_shape": list(shape)}
    return document(chunk_grid={"name": "regular", "configuration": chunk_shape})


OTHERS = {
    "storage transformers": document(storage_transformers=[1]),
    "the key 'x'": document(x=1),
    "grid is not regular": document(chunk_grid={"name": "rectangular"}),
    "other names than 'c/0/0'": document(chunk_key_encoding={"name": "v2"}),
    "other names": document(
        chunk_key_encoding={"name": "default", "configuration": {"separator": "."}}
    ),
    "codecs than 'sharding_indexed'": document(codecs=SHARDING["codecs"]),
    "other codecs than": document(codecs=[*document()["codecs"], {"name": "gzip"}]),
    "have the codecs ''": sharding(codecs=[]),
    "have the codecs 'bytes, blosc'": sharding(codecs=SHARDING["codecs"][:2]),
    "have the codecs 'transpose, bytes, blosc, crc32c'": sharding(
        codecs=[{"name": "transpose"}, *SHARDING["codecs"]]
    ),
    "have the codecs 'bytes, zstd, crc32c'": sharding(
        codecs=[{"name": "bytes"}, {"name": "zstd"}, {"name": "crc32c"}]
    ),
    "have the byte order 'middle'": sharding(
        codecs=[
            {"name": "bytes", "configuration": {"endian": "middle"}},
            *SHARDING["codecs"][1:],
        ]
    ),
    "index of its shards": sharding(index_codecs=[{"name": "bytes"}]),
    "index of its .* form": sharding(index_codecs=SHARDING["index_codecs"][:1]),
    "index of .* form": sharding(index_location="start"),
    "no multiple of": grid(21, 2),
    "its data type is 'r8'": document(data_type="r8"),
}


@pytest.mark.parametrize("reason", OTHERS)
def test_arrays_of_other_structure(reason):
    with pytest.raises(Unsupported, match=reason) as caught:
        zm.decode_array(OTHERS[reason])
    assert "zarr-python" in str(caught.value)


DAMAGED = {
    "of format 3": document(zarr_format=2),
    "'shape' to be": document(shape=[-1, 2]),
    "'chunk_shape' to be": grid(0, 2),
    "at most": document(shape=[2**62, 2]),
    "'fill_value' to be": document(fill_value="x"),
    "of 1 axis": document(shape=[5]),
    "for 2 axes": document(dimension_names=["x"]),
    "'dimension_names'": document(dimension_names=["x", {}]),
    "'attributes' to be": document(attributes=[]),
}


@pytest.mark.parametrize("reason", DAMAGED)
def test_damaged_documents(reason):
    with pytest.raises(DamageError, match=reason):
        zm.decode_array(DAMAGED[reason])


def test_equal_values_of_other_types_are_not_taken_for_each_other():
    document = zm.ArrayDocument(np.dtype("i8"), Grid.of_rows((9,), 3)).document()
    assert 1 == zm.decode_array({**document, "fill_value": 1}).fill_value
    for wrong in (True, 1.0, "1"):
        with pytest.raises(DamageError, match="fill_value"):
            zm.decode_array({**document, "fill_value": wrong})
    found = zm.decode_array({**document, "fill_value": 1})
    found.blosc["clevel"] = 99
    assert 99 != zm.decode_array({**document, "fill_value": 1}).blosc.get("clevel")


def test_settings_that_are_nested_deeply():
    nested = []
    for _ in range(5000):
        nested = [nested]
    document = zm.ArrayDocument(np.dtype("i8"), Grid.of_rows((9,), 3)).document()
    with pytest.raises((DamageError, Unsupported)):
        zm.decode_array({**document, "codecs": nested})
