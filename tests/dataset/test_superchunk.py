"""The layout 'superchunk': the rules D1 to D13 of docs/format-appendix.rst."""

import json
import os
import weakref

import blosc
import numpy as np
import pytest
from dataset import documents
from dataset.shard_index import crc_of

import bloscpack as bp
from bloscpack import dataset
from bloscpack.dataset.layouts import shard_writer, superchunk
from bloscpack.dataset.layouts.superchunk import leaves_of
from bloscpack.exceptions import FormatError, StorageError, Unsupported, UsageError

NESTED = np.dtype(
    [("x", "<i4"), ("p", [("u", ">f8", (2,)), ("s", "S3")], (2,)), ("l", "g")]
)


@pytest.mark.parametrize("name", ["zarr.json", "__rootdirs__", "meta"])
def test_a_column_with_the_name_of_a_document_can_be_replaced(tmp_path, name):
    with (
        dataset.create_table(tmp_path / "t", {name: [1]}, layout="superchunk"),
        pytest.raises(StorageError, match="another writer"),
    ):
        dataset.create_table(tmp_path / "t", {"x": [2]}, mode="w")
    new = {"x": [2]}
    dataset.create_table(tmp_path / "t", new, layout="superchunk", mode="w").close()
    assert [(2,)] == dataset.open(tmp_path / "t")[:].tolist()


def items_of(dtype, shape):
    """Return items with different bytes."""
    dtype = np.dtype(dtype)
    items = np.zeros(shape, dtype)
    numbers = np.arange(items.size * 7).reshape(-1, 7)[:, 0].reshape(shape)
    for fields, base, inner in leaves_of(dtype):
        part = items
        for name in fields:
            part = part[name]
        kind = base.kind
        wanted = numbers.reshape(*shape, *(1 for _ in inner)) % 100
        if kind == "b":
            wanted = wanted % 2
        elif kind in "SU":
            wanted = wanted.astype("U")
        elif kind == "V":
            wanted = np.zeros((), base)
        elif kind in "mM":
            wanted = wanted.astype("i8").astype(base)
        part[...] = wanted
    return items


def files(path):
    """Return the names of the files in a folder."""
    return sorted(
        os.path.relpath(os.path.join(place, name), path).replace(os.sep, "/")
        for place, _, names in os.walk(path)
        for name in names
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "d"


def test_fields_are_read_alone(path):
    items = items_of(NESTED, (9,))
    with dataset.create_array(path, items, layout="superchunk") as array:
        assert items["p"].tobytes() == array["p"].tobytes()
        assert items[["x", "l"]].tolist() == array[["x", "l"]].tolist()
        with pytest.raises(KeyError):
            array[["x", "nope"]]
    (path / "data/x/__1__.bin").unlink()
    with dataset.open(path) as array:
        assert items["l"].tobytes() == array["l"].tobytes()
        with pytest.raises(FormatError, match="expected the file with the rows"):
            array[0]


def test_tuples_are_items_with_fields(path):
    dtype = np.dtype([("x", "u1"), ("p", [("u", ">f4", (2,)), ("s", "S3")])])
    options = {"layout": "superchunk", "shape": (0,), "dtype": dtype}
    rows = [(1, ([2, 3], b"abc")), (4, ([5, 6], b"d"))]
    with dataset.create_array(path, **options) as array:
        array.append(rows)
        array.append(rows[0])
        array[1] = (7, (8, b"e"))
        expected = np.array([rows[0], (7, ([8, 8], b"e")), rows[0]], dtype)
        assert expected.tobytes() == array[:].tobytes()
        for wrong in ((1,), (1, 2, 3), (300, ([1, 2], b"")), (1, ([1, 2], b"long"))):
            with pytest.raises(UsageError):
                array.append([wrong])
        with pytest.raises(UsageError, match="field 'u'"):
            array.append([(1, ([1, 2, 3], b""))])
        assert 3 == len(array)


def test_fields_are_assigned(path):
    dtype = [("x", "<i4"), ("p", [("u", ">f8", (2,)), ("s", "S3")], (2,)), ("l", "f4")]
    expected = items_of(dtype, (9,))
    options = {"layout": "superchunk", "chunks": 2}
    with dataset.create_array(path, expected, **options) as array:
        wide = np.arange(100, 109, dtype="i4")
        for key, value in (
            *[("x", 5), ("x", wide), ("l", [0.5] * 9)],
            *[(["x", "l"], (3, 4.5)), ("p", expected["p"][::-1].copy())],
        ):
            array[key] = expected[key] = value
            assert expected.tobytes() == array[:].tobytes()
        for key, value, error in (
            *[("x", 2**40, UsageError), ("x", [1, 2], ValueError)],
            *[("no", 1, ValueError), (["x", "no"], 1, KeyError)],
        ):
            with pytest.raises(error):
                array[key] = value
        assert expected.tobytes() == array[:].tobytes()


def test_only_the_files_of_assigned_fields_are_written(path):
    dtype = [("x", "i4"), ("p", [("u", "f8"), ("s", "S3")]), ("l", "f4")]
    items = items_of(dtype, (9,))

    def versions():  # a new file may get the inode of one that was removed
        found = {name: (path / name).stat() for name in files(path)}
        return {(name, s.st_ino, s.st_mtime_ns) for name, s in found.items()}

    with dataset.create_array(path, items, layout="superchunk", chunks=2) as array:
        old = versions()
        array["p"] = items["p"][::-1].copy()
        array[["l"]] = (1.5,)
    changed = {name for name, *_ in versions() - old}
    assert {"data/p/u", "data/p/s", "data/l", "meta"} == {
        os.path.dirname(n) for n in changed
    }
    items["p"], items["l"] = items["p"][::-1].copy(), 1.5
    assert items.tobytes() == dataset.open(path)[:].tobytes()
    assert dataset.verify(path).ok


def test_folder_of_the_rules(path):
    items = items_of(NESTED, (10,))
    options = {"layout": "superchunk", "chunks": 2, "shards": 6}
    dataset.create_array(path, items, attrs={"unit": "m"}, **options).close()
    leaves = ["l", "p/s", "p/u", "x"]
    superchunks = ["data/%s/__%d__.bin" % (p, k) for p in leaves for k in (1, 2)]
    meta = ["meta/attributes", "meta/sizes", "meta/storage"]
    assert [*superchunks, *meta] == files(path)
    assert {"attributes": {"unit": "m"}} == documents.read(path / "meta/attributes")
    sizes = documents.read(path / "meta/sizes")
    cbytes = sum((path / name).stat().st_size for name in superchunks)
    expected = {"shape": [10], "nbytes": items.nbytes, "cbytes": cbytes}
    assert expected == sizes
    storage = json.loads((path / "meta/storage").read_text())
    assert (1, "array", 2, 6) == tuple(
        storage[key] for key in ("superchunk", "kind", "chunklen", "superchunklen")
    )
    # A superchunk is a file of its own.
    last = bp.unpack_ndarray_from_file(path / "data/p/u/__2__.bin")
    assert items["p"]["u"][6:].tolist() == last.tolist()
    for name in superchunks:
        assert bp.verify(path / name).ok


def test_table_with_nested_columns_and_strange_names(path):
    columns = {
        "a/b": np.arange(50),
        "..": items_of(NESTED, (50,)),
        "wide": np.arange(150.0).reshape(50, 3),
    }
    with dataset.create_table(path, columns, layout="superchunk") as table:
        table.append({name: rows[:7] for name, rows in columns.items()})
        table.add_column("new", np.arange(57), position=0, attrs={"k": [1]})
        table.remove_column("a/b")
        table["wide"].attrs["unit"] = "m"
        table.attrs["note"] = 5
        table[3:5] = table[10:12]
    assert not (path / "data/a%2Fb").exists()
    with dataset.open(path) as table:
        assert ["new", "..", "wide"] == table.names
        attrs = table["new"].attrs, table["wide"].attrs, table.attrs
        assert ({"k": [1]}, {"unit": "m"}, {"note": 5}) == tuple(map(dict, attrs))
        for name in ("..", "wide"):
            rows = columns[name]
            expected = np.concatenate([rows, rows[:7]]).astype(rows.dtype)
            expected[3:5] = expected[10:12]
            assert expected.tobytes() == table[name][:].tobytes()
    sizes = documents.read(path / "meta/sizes")
    assert {"shape": [57], "nbytes": table.nbytes, "cbytes": table.cbytes} == sizes


def test_rows_behind_the_end_and_other_files_are_ignored(path):
    options = {"layout": "superchunk", "chunks": 2, "shards": 4}
    with dataset.create_array(path, np.arange(20), **options) as array:
        array.append(np.arange(20, 23))
    sizes = json.loads((path / "meta/sizes").read_text())
    documents.write(path / "meta/sizes", {**sizes, "shape": [5], "later": 1})
    (path / "data/readme").write_text("no superchunk")
    with dataset.open(path, "r+") as array:
        assert [0, 1, 2, 3, 4] == array[:].tolist()
        array.append([7])
        assert [0, 1, 2, 3, 4, 7] == array[:].tolist()


def test_fill_value(path):
    fill = np.array((1, [([2, 3], b"x"), ([4, 5], b"y")], 6), NESTED)[()]
    options = {"layout": "superchunk", "chunks": 3}
    rows = np.zeros(2, NESTED)
    with dataset.create_array(path, rows, fill_value=fill, **options) as array:
        array.resize(7)
    with dataset.open(path) as array:
        assert fill == array.fill_value
        assert 5 * fill.tobytes() == array[2:].tobytes()


@pytest.mark.parametrize("spare", [1, 100, 10**6])
def test_spare_room(path, spare):
    items = np.arange(10000)
    options = {"layout": "superchunk", "chunks": 2000, "spare": spare}
    dataset.create_array(path, items, **options).close()
    sizes = []
    source = bp.file_io.CompressedBytesSource((path / "data/__1__.bin").read_bytes())
    for number, (chunk, _) in enumerate(source):
        sizes.append(int.from_bytes(chunk[12:16], "little"))
        plain = items[2000 * number :][:2000].tobytes()
        assert plain == blosc.decompress(bytes(chunk))
    assert all(size <= 16016 for size in sizes)
    if spare == 10**6:
        assert [16016] * 5 == sizes
    with dataset.open(path, "r+") as array:
        array[5] = -1
        assert -1 == array[:][5]


# A type whose arrays have one more axis.
TWICE = "[('x', '<i4', (2,))]"


# The samples of tests/invalid have the others.
@pytest.mark.parametrize(
    ("name", "change", "error", "message"),
    [
        ("meta/storage", {"superchunk": 1.0}, Unsupported, "found '1.0'"),
        (
            "meta/storage",
            {"inner": [1] * 63, "dtype": TWICE},
            FormatError,
            "'inner' to",
        ),
        ("meta/sizes", {"shape": [4.0, 1]}, FormatError, "'shape' to be"),
        ("meta/sizes", {"shape": [4, True]}, FormatError, "'shape' to be"),
        ("meta/sizes", {"shape": [2**62, 1]}, FormatError, "most"),
        ("meta/sizes", {"shape": [2**70, 1]}, FormatError, "'shape' to be"),
    ],
)
def test_wrong_descriptions(path, name, change, error, message):
    dataset.create_array(path, np.ones((4, 1)), layout="superchunk").close()
    stored = json.loads((path / name).read_text())
    documents.write(path / name, {**stored, **change})
    with pytest.raises(error, match=message):
        dataset.open(path)


def test_rows_that_no_file_has(path):
    options = {"layout": "superchunk", "chunks": 2, "shards": 4}
    dataset.create_array(path, np.arange(4), **options).close()
    sizes = json.loads((path / "meta/sizes").read_text())
    documents.write(path / "meta/sizes", {**sizes, "shape": [10**12]})
    with dataset.open(path) as array:
        assert 3 == array[3]
        with pytest.raises(FormatError, match="expected the file with the rows"):
            array[:]


def test_a_chunk_that_is_not_in_the_index(path):
    options = {"layout": "superchunk", "chunks": 2, "shards": 8}
    dataset.create_array(path, np.arange(8), **options).close()
    name = path / "data/__1__.bin"
    content = bytearray(name.read_bytes())
    index = content[-68:-4]
    index[16:32] = b"\xff" * 16
    content[-68:] = index + crc_of(bytes(index))
    name.write_bytes(content)
    with dataset.open(path) as array:
        assert [0, 1] == array[:2].tolist()
        with pytest.raises(FormatError, match=r"found none.*__1__.bin.*chunk 1"):
            array[2]


def test_a_flipped_bit_is_an_error_or_harmless(path):
    items = items_of([("x", "<i4"), ("y", "S3")], (20,))
    options = {"layout": "superchunk", "chunks": 4, "shards": 8}
    dataset.create_array(path, items, **options).close()
    name = path / "data/x/__1__.bin"
    content = name.read_bytes()
    errors = set()
    for position in range(0, len(content), 3):
        flipped = bytearray(content)
        flipped[position] ^= 1 << position % 8
        name.write_bytes(flipped)
        with dataset.open(path) as array:
            try:
                assert items.tobytes() == array[:].tobytes()
            except FormatError as error:
                errors.add(str(error.filename))
    assert {str(name)} == errors


@pytest.mark.parametrize("name", ["data", "data/x", "data/p", "data/p/u", "meta"])
@pytest.mark.parametrize("kind", ["array", "table"])
def test_links_that_lead_out(path, tmp_path, name, kind):
    items = items_of([("x", "<i4"), ("p", [("u", "S3")])], (20,))
    if kind == "array":
        dataset.create_array(path, items, layout="superchunk").close()
    else:
        columns = {"x": items["x"], "p": items["p"]}
        dataset.create_table(path, columns, layout="superchunk").close()
    (path / name).rename(tmp_path / "outside")
    (path / name).symlink_to(tmp_path / "outside")
    with pytest.raises(StorageError, match="symbolic link") as caught:
        dataset.open(path)[:]
    assert str(path / name) == caught.value.filename


def test_blocks_are_dropped_when_all_leaves_have_them(path):
    dtype = [("x", "<i4"), ("p", [("u", "S3")])]
    alive = []

    def blocks():
        for _ in range(300):
            items = items_of(dtype, (5,))
            # Of 300: one leaf may be a shard ahead, and threads have a few in work.
            assert sum(rows() is not None for rows in alive) <= 60
            alive.append(weakref.ref(items))
            yield items
            del items

    options = {"layout": "superchunk", "chunks": 5, "shards": 50, "dtype": dtype}
    with dataset.create_array(path, blocks(), **options) as array:
        assert 1500 == len(array)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (np.array([{}]), {}, "Python objects"),
        (np.zeros(()), {}, "at least one axis"),
        (np.zeros((1,) * 64, [("x", "<i4", (2,))]), {}, "on 64 axes"),
        (np.arange(3), {"typesize": 1}, "has no setting 'typesize'"),
        (np.arange(3), {"spare": -1}, "spare must be"),
        (np.arange(3), {"chunks": 0}, "a chunk must have"),
        (np.arange(3), {"chunks": 2, "shards": 3}, "a multiple of"),
    ],
)
def test_refused(path, rows, options, message):
    with pytest.raises(UsageError, match=message):
        dataset.create_array(path, rows, layout="superchunk", **options)
    assert not path.exists()


@pytest.mark.parametrize("waiting", [1, 3000, 2**20])
def test_frames_that_wait(tmp_path, monkeypatch, waiting):
    """How many frames are written together does not change a byte."""
    data = np.random.default_rng(0).random(5000)
    settings = {"chunks": 100, "shards": 1000, "layout": "superchunk", "sync": False}
    same = superchunk.Identity("0123456789abcdef")
    monkeypatch.setattr(superchunk, "Identity", lambda *_: same)
    dataset.create_array(tmp_path / "expected", data, **settings).close()
    monkeypatch.setattr(shard_writer, "WAITING_NBYTES", waiting)
    monkeypatch.setattr(shard_writer, "FILES_WAITING", waiting % 2)
    with dataset.create_array(tmp_path / "d", data[:1950], **settings) as array:
        array.append(data[1950:])
    for name in files(tmp_path / "d"):
        assert (tmp_path / "d" / name).read_bytes() == (
            tmp_path / "expected" / name
        ).read_bytes()
