"""Several arrays in one file: what is stored, read and refused."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from storage.servers import serving
from support import output_of

import bloscpack as bp
from bloscpack import dataset
from bloscpack._file import archive as archive_file
from bloscpack._format.zip_format import MAX_DIRECTORY
from bloscpack.exceptions import (
    DamageError,
    FormatError,
    NotReadable,
    ObjectNumpyArrayRejection,
    UsageError,
)

ROWS = np.arange(100_000, dtype="<i4").reshape(1000, 100)
# By name: an array, and whether it is a shard.
ARRAYS = {
    "rows": (ROWS, True),
    "every_other": (ROWS[::2, ::3], True),
    "big_endian": (np.arange(9, dtype=">i8"), True),
    "half": (np.ones((4, 3, 2), "f2"), True),
    "complex": (np.array([1j, 2]), True),
    "booleans": (np.array([True, False]), True),
    "text": (np.array(["a", "über"]), True),
    "raw_text": (np.array([b"a", b"bc"]), True),
    "days": (np.array(["2020-01-01", "NaT"], "M8[D]"), True),
    "seconds": (np.array([1, 2], "m8[s]"), True),
    "no_rows": (np.zeros((0, 3)), True),
    "no_columns": (np.zeros((3, 0)), False),
    "scalar": (np.array(2.5), False),
    "structure": (np.array([(1, b"x")], [("n", "<i2"), ("s", "S3")]), False),
    "fortran": (np.asfortranarray(ROWS), False),
    "long_double": (np.ones(3, np.longdouble), False),
    "group/inside/deep": (np.arange(3), True),
    "group/other": (np.array(1), False),
    "Größe": (np.arange(4), True),
}
VALUES = {name: array for name, (array, _) in ARRAYS.items()}


def check_equal(expected, found):
    expected = np.asanyarray(expected)
    assert (expected.shape, expected.dtype) == (found.shape, found.dtype)
    assert (expected == found).all() or expected.dtype.kind == "M"
    assert expected.tobytes() == found.tobytes()


@pytest.fixture
def path(tmp_path):
    bp.savez(tmp_path / "a.zip", **VALUES, settings={"chunk_size": "8K"})
    return tmp_path / "a.zip"


def test_values(path):
    with bp.loadz(path) as archive:
        assert [*VALUES] == archive.files == [*archive] == [*archive.keys()]
        assert len(VALUES) == len(archive)
        for name, array in VALUES.items():
            assert name in archive
            check_equal(array, archive[name].read())
            check_equal(
                array[:1] if array.ndim else array,
                archive[name][:1, ...] if array.ndim else archive[name][()],
            )
        assert archive["fortran"].read().flags.f_contiguous
        assert "nothing" not in archive
        with pytest.raises(KeyError):
            archive["nothing"]
        check_equal(ROWS, dict(archive.items())["rows"][...])


@pytest.mark.parametrize("name", ARRAYS)
def test_members(path, name):
    """Each array is a complete .blp file, a shard if Zarr takes it."""
    array, is_shard = ARRAYS[name]
    with zipfile.ZipFile(path) as file:
        shard = name + "/c" + "/0" * array.ndim
        assert is_shard == (shard in file.namelist())
        content = file.read(shard if is_shard else name + ".blp")
        if is_shard:
            document = json.loads(file.read(name + "/zarr.json"))
            assert [*array.shape] == document["shape"]
    check_equal(array, bp.unpack_ndarray_from_bytes(content))


@pytest.mark.parametrize(
    "settings", [{}, {"auto": True}, {"max_app_chunks": 2, "cname": "zstd"}]
)
def test_members_do_not_depend_on_the_arrays_before_them(settings):
    """Short arrays of one dtype and shape are packed in fewer steps."""
    chance = np.random.default_rng(1)
    arrays = {}
    for dtype in ("<f4", ">f4", "i2", "?", "U2", "S3", "M8[s]", "M8[D]", "u1,f8"):
        for shape in ((), (0,), (1,), (5,), (3, 4), (4, 3), (2, 1, 2)):
            for order in "CCF":
                items = chance.integers(0, 2, shape).astype(dtype).copy(order)
                arrays["a%d" % len(arrays)] = items
                arrays["a%d" % len(arrays)] = items[..., ::-1] if shape else items
    together = io.BytesIO()
    bp.savez(together, **arrays, settings=settings)
    with zipfile.ZipFile(together) as file:
        for name, array in arrays.items():
            alone = io.BytesIO()
            bp.savez(alone, **{name: array}, settings=settings)
            with zipfile.ZipFile(alone) as other:
                for member in set(other.namelist()) - {"zarr.json"}:
                    assert other.read(member) == file.read(member), member
    together.seek(0)
    assert [] == bp.verify.verify_fp(together).findings


def test_zip_programs(path):
    with zipfile.ZipFile(path) as file:
        assert None is file.testzip()
        assert {zipfile.ZIP_STORED} == {info.compress_type for info in file.infolist()}


@pytest.mark.skipif(os.name == "nt", reason="needs unzip")
def test_unzip(path):
    try:
        said = subprocess.run(
            ["unzip", "-tq", path], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("needs unzip")
    assert 0 == said.returncode, said.stdout


def test_names_of_arrays_without_names(tmp_path):
    bp.savez(tmp_path / "a", [1, 2], 3.0, more=range(4))
    with bp.loadz(tmp_path / "a") as archive:
        assert ["arr_0", "arr_1", "more"] == archive.files
        assert 3.0 == archive["arr_1"][()]
        assert [0, 1, 2, 3] == archive["more"][:].tolist()
    with np.load(_numpy_file(tmp_path)) as by_numpy:
        assert set(by_numpy.files) == set(archive.files)


def _numpy_file(folder):
    np.savez(folder / "a.npz", [1, 2], 3.0, more=range(4))
    return folder / "a.npz"


def test_any_name_but_one_is_a_keyword(tmp_path):
    names = ("file", "self", "mode", "allow_pickle", "chunk_size", "arrays", "named")
    bp.savez(tmp_path / "a", **dict.fromkeys(names, 1))
    with bp.loadz(tmp_path / "a") as archive:
        assert [*names] == archive.files
    with pytest.raises(TypeError, match=r"save\(file, {'settings': array}\) stores"):
        bp.savez(tmp_path / "a", settings=ROWS)
    bp.save(tmp_path / "a", {"settings": ROWS})
    check_equal(ROWS, bp.loadz(tmp_path / "a")["settings"].read())


def test_the_same_arrays_make_the_same_file(tmp_path):
    for name in "ab":
        bp.savez(tmp_path / name, **VALUES)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_no_arrays(tmp_path):
    bp.savez(tmp_path / "a")
    with bp.loadz(tmp_path / "a") as archive:
        assert [] == archive.files
        assert "no arrays" in repr(archive)


def test_settings(tmp_path):
    settings = {
        "cname": "zstd",
        "clevel": 9,
        "chunk_size": 4000,
        "nthreads": 1,
        "sync": True,
        "max_app_chunks": 3,
    }
    bp.savez(tmp_path / "a", rows=ROWS, scalar=1, settings=settings)
    (tmp_path / "c").write_bytes(zipfile.ZipFile(tmp_path / "a").read("rows/c/0/0"))
    found = bp.info(tmp_path / "c")
    assert (4000, 3, 10) == (
        found.header.chunk_size,
        found.header.max_app_chunks,
        found.shard.rows,
    )
    assert "crc32c" == found.checksum
    assert [] == bp.verify(tmp_path / "c").findings


def test_a_short_array_is_stored_once(tmp_path):
    array = np.random.default_rng(1).integers(0, 255, 100_000, "u1")
    bp.savez(tmp_path / "a", array)
    assert (tmp_path / "a").stat().st_size < 103_000


@pytest.mark.parametrize("kind", ["path", "file", "raw", "memory", "bytes", "behind"])
def test_files_and_file_objects(tmp_path, kind):
    name = str(tmp_path / "a.zip")
    if kind in ("memory", "bytes"):
        source = io.BytesIO()
        bp.savez(source, **VALUES)
        source = source if kind == "memory" else source.getvalue()
    elif kind == "path":
        bp.savez(name, **VALUES)
        source = name
    else:
        with open(name, "wb", buffering=0 if kind == "raw" else -1) as fp:
            if kind == "behind":
                fp.write(b"in front")
            bp.savez(fp, **VALUES)
        source = open(name, "rb")  # noqa: SIM115
    with bp.loadz(source) as archive:
        for key, array in VALUES.items():
            check_equal(array, archive[key].read())
    if hasattr(source, "close"):
        assert not source.closed
        source.close()


def test_outputs_that_cannot_seek(tmp_path):
    received = []

    class Pipe:
        def write(self, data):
            received.append(bytes(data))
            return len(data)

        def seekable(self):
            return False

    bp.savez(Pipe(), **VALUES)
    with open(tmp_path / "appended", "ab") as fp:
        bp.savez(fp, **VALUES)
    for source in (b"".join(received), tmp_path / "appended"):
        check_equal(ROWS, bp.loadz(source)["rows"].read())


def test_url(path):
    pytest.importorskip("aiohttp", reason="the extra 'remote' is not installed")
    with serving(path.read_bytes()) as web, bp.loadz(web.url) as archive:
        check_equal(ROWS[500:502], archive["rows"][500:502])
        check_equal(VALUES["structure"], archive["structure"].read())


def test_requests(tmp_path):
    """The end; the beginning of the chunks, and the document; a chunk."""
    pytest.importorskip("aiohttp", reason="the extra 'remote' is not installed")
    arrays = {n: np.random.default_rng(n).bytes(2**20) for n in range(3)}
    arrays = {"a%d" % n: np.frombuffer(data, "u1") for n, data in arrays.items()}
    bp.savez(tmp_path / "a", settings={"chunk_size": 2**18}, **arrays)
    with serving((tmp_path / "a").read_bytes()) as web, bp.loadz(web.url) as archive:
        assert 1 == len(web.requests)
        assert arrays["a0"][600_000] == archive["a0"][600_000]
        assert 4 == len(web.requests)


def test_requests_for_members_of_other_programs(tmp_path):
    """Their local headers are read together."""
    pytest.importorskip("aiohttp", reason="the extra 'remote' is not installed")
    path = tmp_path / "a.zip"
    bp.savez(path, **VALUES)
    with zipfile.ZipFile(path, "a") as archive:
        for n in range(300):
            archive.writestr("%d.txt" % n, bytes(3000))
    with serving(path.read_bytes()) as web, bp.loadz(web.url) as archive:
        assert {*VALUES} == {*archive}
        assert len(web.requests) < 5


def test_url_of_any_file_system(tmp_path):
    fsspec = pytest.importorskip("fsspec", reason="the extra 'remote' is missing")
    bp.savez("memory://folder/a.zip", **VALUES)
    with bp.loadz("memory://folder/a.zip") as archive:
        check_equal(ROWS, archive["rows"].read())
    fsspec.filesystem("memory").rm("/folder", recursive=True)


def test_only_some_bytes_are_read(tmp_path):
    large = np.random.default_rng(1).random((1000, 1000))
    bp.savez(tmp_path / "a", large=large, settings={"chunk_size": "64K"})
    count = 0

    class Counted(io.BytesIO):
        def read(self, size=-1):
            nonlocal count
            data = super().read(size)
            count += len(data)
            return data

    with bp.loadz(Counted((tmp_path / "a").read_bytes())) as archive:
        check_equal(large[500], archive["large"][500])
    assert count < 300_000


def test_no_copy_of_the_arrays_is_in_memory(tmp_path):
    rows = np.zeros((64, 2**17))
    bp.savez(tmp_path / "a", a=rows)  # what stays in memory
    tracemalloc.start()
    bp.savez(tmp_path / "a", a=rows, b=rows, settings={"nthreads": 1})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < rows.nbytes / 4


# Lifetime


def test_closing(path):
    archive = bp.loadz(path)
    rows = archive["rows"]
    assert repr(path.name) not in repr(archive)
    assert "rows, every_other, big_endian, half, complex, ..." in repr(archive)
    assert "a.zip/rows" in repr(rows)
    archive.close()
    assert "closed" in repr(archive)
    for use in (lambda: rows[0], lambda: archive["rows"], lambda: archive.get("rows")):
        with pytest.raises(UsageError, match="is closed"):
            use()


def test_an_array_outlives_its_archive(path):
    rows = bp.loadz(path)["rows"]
    check_equal(ROWS[7], rows[7])


def test_pickle(path):
    with bp.loadz(path) as archive:
        data = pickle.dumps(archive["rows"])
    with pickle.loads(data) as rows:
        check_equal(ROWS, rows.read())
        assert pickle.dumps(rows) == data
    bp.savez(path, rows=ROWS + 1)
    with pytest.raises(bp.StorageError, match="has changed since"):
        pickle.loads(data)
    with pytest.raises(UsageError, match="can be pickled only if"):
        pickle.dumps(bp.loadz(path.read_bytes())["rows"])


def test_an_archive_is_replaced_as_a_whole(path):
    with bp.loadz(path) as archive:
        old = archive["rows"]
        bp.savez(path, rows=ROWS[:7])
        check_equal(ROWS, old.read())
        check_equal(ROWS, archive["rows"].read())
    with bp.loadz(path) as archive:
        assert ["rows"] == archive.files
        check_equal(ROWS[:7], archive["rows"].read())
    with pytest.raises(UsageError, match="savez replaces an archive as a whole"):
        dataset.open(path, "r+")
    assert [path.name] == os.listdir(path.parent)


def test_an_error_leaves_the_old_file(path):
    content = path.read_bytes()
    with pytest.raises(ObjectNumpyArrayRejection):
        bp.savez(path, a=ROWS, b=[{}])
    assert content == path.read_bytes()
    assert [path.name] == os.listdir(path.parent)


# Refused


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "/a", "a/", "a//b", "../a", "zarr.json", "a/zarr.json"),
        *("a\\b", "a\0", "__a", "x/__a", "a.blp"),
    ],
)
def test_refused_names(tmp_path, name):
    with pytest.raises(UsageError, match="an array can't have the name"):
        bp.savez(tmp_path / "a", **{name: 1})
    assert [] == os.listdir(tmp_path)


@pytest.mark.parametrize("name", ["../a", "/a", "a//b", "a\\b"])
def test_names_that_lead_out_of_a_folder_are_not_read(tmp_path, name, monkeypatch):
    # Another program may write them.
    monkeypatch.setattr(archive_file, "_is_part", lambda part: True)
    bp.savez(tmp_path / "a.zip", **{name: [1], "b": [2]})
    for read in (bp.load, bp.loadz):
        with pytest.raises(FormatError, match=r"no array can have the name.*a\.zip"):
            read(tmp_path / "a.zip")
    assert not bp.verify(tmp_path / "a.zip").ok
    bp.recover(tmp_path / "a.zip", tmp_path / "b.zip")
    assert ["b"] == [*bp.load(tmp_path / "b.zip")]
    lost = dataset.convert(tmp_path / "a.zip", tmp_path / "c.zarr").lost
    assert "names are no paths" in lost[0]


def test_refused_arguments(tmp_path):
    for arguments, named, message in [
        ([1], {"arr_0": 2}, "the name 'arr_0' was given"),
        ([], {"a": 1, "a/b": 2}, "'a' can't be an array and a group"),
        ([], {"a": 1, "settings": {"shard": False}}, "'shard' is no setting"),
        ([], {"a": 1, "settings": {"metadata": 1}}, "'metadata' is no setting"),
        ([], {"a": 1, "settings": {"no": 1}}, "no"),
        ([], {"a": 1, "settings": {"chunk_size": 0}}, "chunk_size"),
        ([], {"a": [1], "settings": {"checksum": "md5"}}, "is 'crc32c', which Zarr"),
        ([np.ma.masked_equal([1, 2], 1)], {}, "'arr_0': masked arrays can't be"),
        ([], {"x": [{}]}, "array 'x': arrays of Python objects"),
    ]:
        with pytest.raises(UsageError, match=message):
            bp.savez(tmp_path / "a", *arguments, **named)
    assert [] == os.listdir(tmp_path)


def test_dictionary_instead_of_an_array(tmp_path):
    with pytest.raises(UsageError, match="not 'dict': savez stores several arrays"):
        bp.pack_ndarray_to_file({"a": ROWS}, tmp_path / "a")


def test_other_zip_files(tmp_path):
    np.savez(tmp_path / "a.npz", a=ROWS)
    with pytest.raises(NotReadable, match=r"numpy.load reads it.*a\.npz"):
        bp.loadz(tmp_path / "a.npz")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as file:
        file.writestr("a.txt", "a")
    with pytest.raises(NotReadable, match="expected a ZIP file of savez"):
        bp.loadz(tmp_path / "b.zip")
    (tmp_path / "c").write_bytes(b"")
    with pytest.raises(NotReadable, match="expected a ZIP file"):
        bp.loadz(tmp_path / "c")
    with pytest.raises(FileNotFoundError):
        bp.loadz(tmp_path / "d")


def rewritten(path, changes, compression=zipfile.ZIP_STORED):
    """Write an archive with other members, as another program would."""
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    members |= changes
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in members.items():
            if content is not None:
                file.writestr(name, content)


DOCUMENT = b'{"zarr_format": 3, "node_type": "array", "shape": [3]}'
FOREIGN = {
    "large": (
        {"rows/zarr.json": bytes(2**26 + 1)},
        "expected at most '67108864' bytes",
    ),
    "no JSON": ({"rows/zarr.json": b"{"}, "expected JSON in 'rows/zarr.json'"),
    "no object": ({"rows/zarr.json": b"[]"}, "expected the document of a Zarr array"),
    "other array": ({"rows/zarr.json": DOCUMENT}, "."),
    "no shard": ({"rows/c/0/0": b"x" * 100}, "."),
    "empty shard": ({"rows/c/0/0": b""}, "."),
}


@pytest.mark.parametrize(("changes", "message"), FOREIGN.values(), ids=FOREIGN)
def test_changed_by_another_program(path, changes, message):
    rewritten(path, changes)
    with bp.loadz(path) as archive:
        with pytest.raises((FormatError, UsageError), match=message) as caught:
            archive["rows"]
        assert "a.zip/rows" in str(caught.value)
        check_equal(VALUES["half"], archive["half"].read())


def test_another_shape_in_the_document(path):
    text = zipfile.ZipFile(path).read("rows/zarr.json").replace(b"1000", b"1001", 1)
    rewritten(path, {"rows/zarr.json": text})
    with pytest.raises(DamageError, match=r"shape \(1001, 100\).*has changed it"):
        bp.loadz(path)["rows"]


def test_a_shard_of_another_number_of_axes(path):
    shard = zipfile.ZipFile(path).read("rows/c/0/0")
    rewritten(path, {"rows/c/0/0": None, "rows/c/0": shard})
    with pytest.raises(DamageError, match="but 'rows/c/0' has one of"):
        bp.loadz(path)["rows"]


def test_arrays_of_several_shards_are_not_listed(path):
    shard = zipfile.ZipFile(path).read("rows/c/0/0")
    rewritten(path, {"rows/c/1/0": shard})
    with bp.loadz(path) as archive:
        assert "rows" not in archive


def test_two_members_for_an_array(path):
    rewritten(path, {"rows.blp": bp.pack_ndarray_to_bytes(ROWS)})
    with pytest.raises(DamageError, match="are the same array"):
        bp.loadz(path)


def test_changed_bytes(path):
    """Every flipped bit is an error, or has no effect on the values."""
    bp.savez(path, a=np.arange(50), s=np.array(1.5))
    data = path.read_bytes()
    for at in range(len(data)):
        other = bytearray(data)
        other[at] ^= 1 << at % 8
        try:
            with bp.loadz(bytes(other)) as archive:
                found = {name: array.read() for name, array in archive.items()}
        except (FormatError, UsageError):
            continue
        for name, array in found.items():
            if name in ("a", "s"):
                assert (array == (np.arange(50) if name == "a" else 1.5)).all(), at


@pytest.mark.slow
def test_hostile_directory_takes_limited_memory():
    script = """
import resource, struct
import bloscpack, numpy
name = b"a.blp"
entry = struct.pack("<4s6H3I5H2I", b"PK\\1\\2", *[0] * 9, len(name), *[0] * 6) + name
count = %d // len(entry)
size = count * len(entry)
end = struct.pack("<4sQ2H2I4Q", b"PK\\6\\6", 44, 45, 45, 0, 0, count, count, size, 0)
end += struct.pack("<4sIQI", b"PK\\6\\7", 0, size, 1)
end += struct.pack("<4s4H2IH", b"PK\\5\\6", 0, 0, 65535, 65535, *[2**32 - 1] * 2, 0)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
data = entry * count + end
try:
    bloscpack.loadz(data)
except bloscpack.FormatError:
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    said = output_of(script % MAX_DIRECTORY)
    assert int(said) < 20 * MAX_DIRECTORY >> 20


def test_paths_of_all_kinds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("text.zip", Path("path.zip"), b"bytes.zip"):
        bp.savez(name, a=[1])
        assert os.path.exists(name)
    check_equal(np.array([1]), bp.loadz(Path("path.zip"))["a"].read())


@pytest.mark.parametrize("save", [bp.save, lambda file, a: bp.savez(file, **a)])
def test_short_arrays_take_little_more_than_in_npz(save):
    arrays = {"array_%03d" % i: np.arange(i, i + 100) for i in range(200)}
    packed, npz = io.BytesIO(), io.BytesIO()
    save(packed, arrays)
    np.savez(npz, **arrays)
    assert len(packed.getvalue()) < 1.25 * len(npz.getvalue())
    found = bp.load(packed.getvalue())
    for name, array in arrays.items():
        check_equal(array, found[name])


def test_threads_that_load_the_last_array(tmp_path):
    """The file is closed when it was read, and not while it is."""
    bp.savez(tmp_path / "a.zip", a=np.arange(100_000))
    for _ in range(30):
        found = bp.load(tmp_path / "a.zip")
        with ThreadPoolExecutor(3) as pool:
            sums = [*pool.map(lambda _, found=found: int(found["a"].sum()), range(3))]
        assert [4999950000] * 3 == sums


@pytest.mark.parametrize("room", [0, 5])
@pytest.mark.parametrize("chunks", [4, (4, 3), (3, 6)])
def test_verify_of_chunks_and_room(tmp_path, chunks, room):
    given = np.arange(60.0).reshape(10, 6)
    settings = {"chunks": chunks, "max_app_chunks": room}
    bp.savez(tmp_path / "a.zip", settings=settings, a=given)
    assert bp.verify(tmp_path / "a.zip").ok
    assert given.tolist() == bp.loadz(tmp_path / "a.zip")["a"][:].tolist()
