"""References to the chunks of bcolz and BLZ arrays in place."""

from __future__ import annotations

import base64
import json

import blosc
import numpy as np
import pytest
from dataset.golden_directories import attributes, entries, extract, values

import bloscpack as bp
from bloscpack import dataset
from bloscpack.exceptions import DamageError, UsageError

ROWS = np.arange(250, dtype="<i4").reshape(50, 5)


@pytest.fixture
def folder(tmp_path):
    """An array of bcolz in chunks of 20 rows, the last one of 10."""
    path = tmp_path / "rows"
    new = {"layout": "bcolz", "chunks": 20, "attrs": {"unit": "m"}}
    dataset.create_array(path, ROWS, **new).close()
    return path


@pytest.fixture
def table(tmp_path):
    columns = {"a": np.arange(50), "b": ROWS.astype("<f8")}
    dataset.create_table(tmp_path / "t", columns, layout="bcolz").close()
    return tmp_path / "t"


def plain_of(reference):
    """Return the plain bytes of a chunk."""
    if isinstance(reference, str):
        chunk = base64.b64decode(reference.removeprefix("base64:"))
    else:
        path, offset, size = reference
        with open(path, "rb") as fp:
            fp.seek(offset)
            chunk = fp.read(size)
        assert size == len(chunk)
    return blosc.decompress(chunk)


def read(refs, name):
    """Return an array by the rules of Zarr, format 2; its chunks divide the rows."""
    front = name + "/" if name else ""
    document = json.loads(refs["refs"][front + ".zarray"])
    zeros = ".0" * (len(document["shape"]) - 1)
    rows = document["shape"][0]
    parts = [
        plain_of(refs["refs"]["%s%d%s" % (front, i, zeros)])
        for i in range(-(-rows // document["chunks"][0]))
    ]
    descr = document["dtype"]
    if isinstance(descr, list):
        descr = [tuple(field) for field in descr]
    items = np.frombuffer(b"".join(parts), descr)
    return items.reshape(-1, *document["shape"][1:])[:rows]


def test_array(folder):
    refs = bp.references(folder)
    assert (ROWS == read(refs, "rows")).all()
    chunks = [refs["refs"]["rows/%d.0" % i] for i in range(3)]
    assert [str(folder / "data" / ("__%d.blp" % i)) for i in range(2)] == [
        path for path, *_ in chunks[:2]
    ]
    assert chunks[2].startswith("base64:")
    stored = json.loads(refs["refs"]["rows/.zattrs"])
    assert {"unit": "m", "_ARRAY_DIMENSIONS": ["dim_0", "dim_1"]} == stored


def test_flat_and_format_3(folder):
    assert (ROWS.ravel() == read(bp.references(folder, flat=True), "rows")).all()
    refs = bp.references(folder, zarr_format=3, dims=["y", "x"], name="z")["refs"]
    document = json.loads(refs["z/zarr.json"])
    assert ["bytes", "blosc"] == [codec["name"] for codec in document["codecs"]]
    assert ([50, 5], ["y", "x"]) == (document["shape"], document["dimension_names"])
    assert {"z/c/%d/0" % i for i in range(3)} < set(refs)


def test_location(folder, table):
    refs = bp.references([folder, table], location="https://host/d/")["refs"]
    assert "https://host/d/rows/data/__0.blp" == refs["rows/0.0"][0]
    dataset.create_table(
        table.parent / "u", {"a": np.arange(9)}, layout="bcolz", chunks=3
    ).close()
    refs = bp.references(table.parent / "u", location="s3://b")["refs"]
    assert "s3://b/u/a/data/__2.blp" == refs["a/2"][0]


def test_table(table):
    with dataset.open(table, "r+") as opened:
        opened.attrs["source"] = "here"
    refs = bp.references(table)
    assert {"source": "here"} == json.loads(refs["refs"][".zattrs"])
    assert (np.arange(50) == read(refs, "a")).all()
    assert (read(refs, "b") == ROWS).all()
    for name, dims in [("a", ["row"]), ("b", ["row", "b_1"])]:
        stored = json.loads(refs["refs"][name + "/.zattrs"])
        assert dims == stored["_ARRAY_DIMENSIONS"]


def test_several(table, folder, tmp_path):
    bp.pack_ndarray_to_file(ROWS, tmp_path / "file.blp")
    refs = bp.references([table, folder, tmp_path / "file.blp"])
    assert (read(refs, "t/a") == np.arange(50)).all()
    assert (read(refs, "rows") == ROWS).all()
    assert {"t/.zgroup", ".zgroup", "file/.zarray"} < set(refs["refs"])
    refs = bp.references({"x/y": table})
    assert (read(refs, "x/y/b") == ROWS).all()
    refs = bp.references(table, name="z")
    assert (read(refs, "z/b") == ROWS).all()
    with pytest.raises(UsageError, match="two arrays have the name 'rows'"):
        bp.references([folder, folder])


def test_joined(folder, table, tmp_path):
    first = tmp_path / "first"
    dataset.create_array(first, ROWS[:40], layout="bcolz", chunks=20).close()
    refs = bp.references([first, folder], concat=True)
    assert (read(refs, "first") == np.concatenate([ROWS[:40], ROWS])).all()
    with pytest.raises(UsageError, match="last chunk is shorter"):
        bp.references([folder, first], concat=True)
    with pytest.raises(UsageError, match="is a table, and only arrays"):
        bp.references([table, table], concat=True)


# Files that are not what sizes and chunk length say


def chunk_file(folder, number):
    return folder / "data" / ("__%d.blp" % number)


def test_stale_chunks_are_ignored(folder):
    chunk_file(folder, 3).write_bytes(b"stale")
    assert (ROWS == read(bp.references(folder), "rows")).all()
    sizes = folder / "meta" / "sizes"
    sizes.write_text(sizes.read_text().replace("[50,", "[40,"))
    refs = bp.references(folder)
    assert (ROWS[:40] == read(refs, "rows")).all()
    assert "rows/2.0" not in refs["refs"]


@pytest.mark.parametrize("rows", [33, 40])
def test_an_append_that_was_not_flushed(folder, rows):
    """The last chunk has more rows than the array."""
    sizes = folder / "meta" / "sizes"
    sizes.write_text(sizes.read_text().replace("[50,", "[%d," % rows))
    assert (ROWS[:rows] == read(bp.references(folder), "rows")).all()
    sizes.write_text(sizes.read_text().replace("[%d," % rows, "[45,"))
    assert (ROWS[:45] == read(bp.references(folder), "rows")).all()


def test_bytes_behind_a_chunk(folder):
    with chunk_file(folder, 1).open("ab") as fp:
        fp.write(b"behind")
    assert (ROWS == read(bp.references(folder), "rows")).all()


def test_no_rows(tmp_path):
    dataset.create_array(
        tmp_path / "a", shape=(0, 3), dtype="f8", layout="bcolz"
    ).close()
    refs = bp.references(tmp_path / "a")["refs"]
    assert {".zgroup", "a/.zarray", "a/.zattrs"} == set(refs)


def snappy(content):
    return content[:18] + bytes([content[18] & 0x1F | 2 << 5]) + content[19:]


DAMAGED = {
    "missing": (None, DamageError, "found none"),
    "empty": (lambda content: b"", DamageError, "."),
    "cut": (lambda content: content[:-1], DamageError, "at most '400' plain bytes in"),
    "no chunk": (lambda content: content[:16] + bytes(16), DamageError, "."),
    "snappy": (snappy, UsageError, "no Zarr reader has its codec, snappy"),
}


@pytest.mark.parametrize(("change", "kind", "message"), DAMAGED.values(), ids=DAMAGED)
def test_files_that_do_not_qualify(folder, change, kind, message):
    path = chunk_file(folder, 1)
    content = path.read_bytes()
    path.unlink()
    if change is not None:
        path.write_bytes(change(content))
    with pytest.raises(kind, match=message) as caught:
        bp.references(folder)
    assert str(path) in str(caught.value)


def test_an_interrupted_change(folder):
    (folder / ".bloscpack").mkdir()
    change = {"files": {"1": "meta/sizes"}}
    (folder / ".bloscpack" / "journal").write_text(json.dumps(change))
    with pytest.raises(UsageError, match="a change of it was interrupted"):
        bp.references(folder)


def test_a_short_chunk_in_the_middle(folder):
    chunk_file(folder, 0).write_bytes(chunk_file(folder, 2).read_bytes())
    with pytest.raises(DamageError, match="in front of the last one is short"):
        bp.references(folder)


def test_other_folders(tmp_path, table):
    with pytest.raises(UsageError, match="name the datasets in it"):
        bp.references(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(bp.FormatError, match="expected a dataset"):
        bp.references(tmp_path / "empty")
    sizes = table / "a" / "meta" / "sizes"
    sizes.write_text(sizes.read_text().replace("[50]", "[49]"))
    with pytest.raises(UsageError, match="columns have different lengths"):
        bp.references(table)


def test_command(run, table):
    code, out, err = run("refs", table)
    assert (0, "") == (code, err)
    assert (read(json.loads(out), "b") == ROWS).all()


@pytest.mark.parametrize("name", entries())
def test_golden_directories(name, tmp_path):
    entry = entries()[name]
    if entry["format"].startswith("bigfile"):
        pytest.skip("no dataset")
    extract(name, tmp_path / "d")
    try:
        refs = bp.references(tmp_path / "d")
    except UsageError as error:
        text = str(error)
        reasons = ("snappy", "Python objects", "Zarr has no", "different lengths")
        assert any(reason in text for reason in reasons), text
        assert str(tmp_path / "d") in text
        return
    expected = values(name)
    if entry["kind"] in ("carray", "barray") and isinstance(expected, dict):
        found = read(refs, "d")
        assert all((found[key] == array).all() for key, array in expected.items())
        return
    if isinstance(expected, dict):
        assert attributes(name)["table"] == json.loads(
            refs["refs"].get(".zattrs", "{}")
        )
        expected = {key: np.asarray(array) for key, array in expected.items()}
    else:
        expected = {"d": np.asarray(expected)}
    for key, array in expected.items():
        found = read(refs, key)
        assert array.shape == found.shape
        assert array.tobytes() == found.tobytes()


def test_a_last_chunk_that_would_be_padded_too_much(tmp_path, monkeypatch):
    new = {"layout": "bcolz", "chunks": 1000}
    dataset.create_array(tmp_path / "a", ROWS, **new).close()
    bp.references(tmp_path / "a")
    monkeypatch.setattr("bloscpack.references.MAX_PADDED", 19_999)
    with pytest.raises(UsageError, match="would be padded to '20000' bytes"):
        bp.references(tmp_path / "a")
