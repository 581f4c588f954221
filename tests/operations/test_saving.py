"""``bp.save`` and ``bp.load``: what comes back, and how the file is made."""

from __future__ import annotations

import gzip
import io
import mmap
import os
import pickle
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
from storage.servers import serving
from support import output_of

import bloscpack as bp
from bloscpack.exceptions import DamageError, NotReadable

pytestmark = pytest.mark.usefixtures("folder")

SAMPLES = Path(__file__).parents[1] / "valid/datasets"
ROUNDED = np.round(np.random.default_rng(1).normal(20, 5, 50_000), 2)
ARRAYS = [
    ROUNDED,
    ROUNDED.reshape(500, 100),
    np.asfortranarray(ROUNDED.reshape(500, 100)),
    ROUNDED[::3],
    np.arange(10, dtype=">i2"),
    np.array(["one", "three"]),
    np.array([True, False]),
    np.zeros(3, [("a", "i4"), ("b", "f8")]),
    np.zeros((0, 3)),
    np.float32(7),
    5,
    [[1, 2], [3, 4]],
    "text",
    np.ones((2, 2**20 + 1)),  # rows that are too long for a shard
]


def same(expected, found):
    expected = np.asanyarray(expected)
    np.testing.assert_array_equal(expected, found)
    assert type(found) is np.ndarray
    assert expected.dtype == found.dtype
    assert found.flags.writeable
    if expected.flags.contiguous:
        assert expected.flags.c_contiguous == found.flags.c_contiguous


# What was saved


@pytest.mark.parametrize("array", ARRAYS, ids=range(len(ARRAYS)))
def test_array(array):
    bp.save("a.blp", array)
    same(array, bp.load("a.blp"))
    assert bp.load("a.blp", return_metadata=True)[1] is None
    bp.save("a.blp", array, metadata=["any", None])
    found, metadata = bp.load("a.blp", return_metadata=True)
    same(array, found)
    assert ["any", None] == metadata == bp.info("a.blp").user_metadata
    assert [] == bp.verify("a.blp").findings
    assert ["a.blp"] == os.listdir()


def all_of(found):
    """Return an array, or a dictionary of the arrays of an archive."""
    return found if isinstance(found, np.ndarray) else dict(found)


def test_arrays_by_name():
    arrays = {"group/%d" % i: array for i, array in enumerate(ARRAYS)}
    bp.save("all.zip", arrays, metadata={"unit": "m"})
    found, metadata = bp.load("all.zip", return_metadata=True)
    assert [*arrays] == [*found]
    for name, array in arrays.items():
        same(array, found[name])
    assert {"unit": "m"} == metadata
    assert [] == bp.verify("all.zip").findings


@pytest.mark.parametrize("open_", [Path, Path.read_bytes, lambda path: path.open("rb")])
def test_an_array_of_an_archive_is_read_when_it_is_used(open_):
    bp.save("a.zip", {"a": ROUNDED, "b": ROUNDED[:9]})
    content = bytearray(Path("a.zip").read_bytes())
    content[content.index(b"blpk") + 2000] ^= 1
    Path("bad.zip").write_bytes(content)
    file = open_(Path("bad.zip"))
    with bp.load(file) as found:
        assert (["a", "b"], True, False) == ([*found], "a" in found, "c" in found)
        same(ROUNDED[:9], found["b"])
        assert found["b"] is found["b"]
        found["b"][0] = 0  # it is the caller's
        for _ in range(2):
            with pytest.raises(bp.FormatError, match="a"):
                found["a"]
        with pytest.raises(KeyError):
            found["c"]
    assert 0 == found["b"][0]
    if isinstance(file, Path):
        with pytest.raises(bp.UsageError, match="closed"):
            found["a"]
    elif not isinstance(file, bytes):
        file.close()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
@pytest.mark.parametrize("end", ["all", "close", "delete"])
def test_a_loaded_archive_is_closed(end):
    bp.save("a.zip", {"a": ROUNDED, "b": ROUNDED[:9]})
    before = os.listdir("/proc/self/fd")
    found = bp.load("a.zip")
    assert before != os.listdir("/proc/self/fd")
    same(ROUNDED, found["a"])
    if end == "all":
        same(ROUNDED[:9], found["b"])
        assert {"a", "b"} == {*pickle.loads(pickle.dumps(found))}
    elif end == "close":
        found.close()
    else:
        del found
    assert before == os.listdir("/proc/self/fd")


def test_an_archive_is_saved_again_with_more():
    bp.save("a.zip", {"a": ROUNDED})
    bp.save("a.zip", {**bp.load("a.zip"), "b": ROUNDED[:9]})
    found = bp.load("a.zip")
    bp.save("a.zip", found)  # reads what it replaces
    bp.save("a.zip", {"c": ROUNDED})
    same(ROUNDED[:9], found["b"])
    assert ["c"] == [*bp.load("a.zip")]


def test_metadata_of_an_archive():
    bp.save("a.zip", {"x": [1], "y": [2]}, metadata={"unit": "m"})
    with bp.loadz("a.zip") as archive:
        assert {"unit": "m"} == archive.metadata
    bp.savez("b.zip", x=[1])
    with bp.loadz("b.zip") as archive:
        assert archive.metadata is None
    with pytest.raises(bp.UsageError, match="closed"):
        _ = archive.metadata


@pytest.mark.parametrize("content", [ROUNDED, {"a": ROUNDED, "b": ROUNDED[:9]}])
def test_file_objects_and_buffers(content):
    fp = io.BytesIO()
    bp.save(fp, content)
    fp.seek(0)
    for file in (fp, fp.getvalue(), memoryview(fp.getvalue())):
        found = bp.load(file)
        np.testing.assert_equal(found, content)
    assert not fp.closed
    bp.save("other", content)
    with open("other", "rb") as opened:
        np.testing.assert_equal(bp.load(opened), content)
        assert not opened.closed


@pytest.mark.parametrize(
    ("dtype", "settings"),
    [
        ("f8", {}),
        ("f8", {"chunk_size": "4K"}),  # a shard, whose last chunk is stored twice
        ("f8", {"chunks": (10, 30)}),
        ("c32", {}),  # no shard
    ],
)
def test_arrays_one_after_the_other_in_a_file_object(dtype, settings):
    """As `numpy.save` and `numpy.load` do it."""
    fp = io.BytesIO(b"in front")
    fp.seek(8)
    arrays = [np.arange(n).reshape(-1, 50).astype(dtype) for n in (2000, 50, 4950)]
    for array in arrays:
        bp.save(fp, array, **settings)
    fp.seek(8)
    for array in arrays:
        np.testing.assert_equal(bp.load(fp), array)
    assert len(fp.getvalue()) == fp.tell()
    with pytest.raises(bp.FormatError):
        bp.load(fp)


@pytest.mark.parametrize("content", [ROUNDED, {"a": ROUNDED, "b": ROUNDED[:9]}])
def test_url(content):
    fp = io.BytesIO()
    bp.save(fp, content, metadata={"unit": "m"})
    pytest.importorskip("aiohttp", reason="the extra 'remote' is not installed")
    with serving(fp.getvalue()) as web:
        found, metadata = bp.load(web.url, return_metadata=True)
        found = all_of(found)
    np.testing.assert_equal(found, content)
    assert {"unit": "m"} == metadata


# How the file is made


@pytest.mark.parametrize(
    "settings", [{"offsets": False}, {"bloscpack_args": {"offsets": False}}]
)
@pytest.mark.parametrize("content", [ROUNDED, {"a": ROUNDED}])
def test_without_an_offset_table_an_array_is_no_shard(content, settings):
    bp.save("a", content, **settings)
    np.testing.assert_equal(all_of(bp.load("a")), content)


def test_settings_fit():
    bp.pack_ndarray_to_file(ROUNDED, "default.blp")
    sizes = [os.path.getsize("default.blp")]
    for auto in (False, "speed", True, "ratio"):
        bp.save("a.blp", ROUNDED, auto=auto)
        sizes.append(os.path.getsize("a.blp"))
        same(ROUNDED, bp.load("a.blp"))
    default, unfitted, speed, balanced, ratio = sizes
    assert ratio < balanced < 0.7 * default
    assert balanced <= speed < unfitted
    bp.save("a.zip", {"a": ROUNDED})
    assert os.path.getsize("a.zip") < 0.7 * default


def test_given_settings_stay():
    given = {"codec": "zlib", "level": 1, "chunk_size": "8K", "checksum": "crc32"}
    bp.save("a.blp", ROUNDED, **given)
    found = bp.info("a.blp")
    assert ("zlib", 8192) == (found.first_chunk.codec, found.header.chunk_size)
    assert "crc32" == found.checksum
    del given["checksum"]
    bp.save("a.zip", {"a": ROUNDED}, **given)
    with bp.loadz("a.zip") as archive:
        assert (1024,) == archive["a"].chunks


def test_file_is_a_shard_that_can_grow():
    bp.save("a.blp", ROUNDED.reshape(-1, 4), chunk_size="32K")
    found = bp.info("a.blp")
    assert (1024, True) == (found.shard.rows, found.shard.index)
    assert "crc32c" == found.checksum
    bp.append_ndarray_to_file(np.ones((5000, 4)), "a.blp")
    assert (17_500, 4) == bp.load("a.blp").shape
    assert bp.info("a.blp").shard.index
    for array in (np.float64(1), np.ones((2, 2**20 + 1))):
        bp.save("a.blp", array)
        assert bp.info("a.blp").shard is None


def test_short_array_can_grow():
    bp.save("a.blp", ROUNDED[:3])
    bp.append_ndarray_to_file(ROUNDED[3:5000], "a.blp")
    same(ROUNDED[:5000], bp.load("a.blp"))
    assert [] == bp.verify("a.blp").findings
    found = bp.info("a.blp")
    assert (10, 512, True) == (found.nchunks, found.shard.rows, found.shard.index)


@pytest.mark.parametrize("count", [262_145, 300_000])
def test_short_last_chunk_costs_little(count):
    array = np.round(np.random.default_rng(1).normal(20, 5, count), 2)
    bp.pack_ndarray_to_file(array, "plain.blp", auto=True)
    bp.save("a.blp", array)
    bp.save("a.zip", {"a": array})
    assert bp.info("a.blp").shard.rows == count // 2
    for name in ("a.blp", "a.zip"):
        assert os.path.getsize(name) < 1.02 * os.path.getsize("plain.blp")
    same(array, bp.load("a.blp"))
    assert [] == bp.verify("a.blp").findings
    bp.append_ndarray_to_file(array, "a.blp")
    same(np.tile(array, 2), bp.load("a.blp"))


def test_zarr_reads_the_metadata_of_an_archive():
    zarr = pytest.importorskip("zarr", "3")
    bp.save("a.zip", {"a": ROUNDED}, metadata={"unit": "m"})
    with zarr.storage.ZipStore("a.zip", mode="r") as store:
        group = zarr.open_group(store, mode="r")
        assert ["unit", "bloscpack-members"] == [*group.attrs]
        assert "m" == group.attrs["unit"]
        np.testing.assert_array_equal(ROUNDED, group["a"][:])


def test_progress_and_threads():
    done = []
    bp.save("a.blp", ROUNDED, nthreads=1, progress=done.append)
    assert ROUNDED.nbytes == sum(done)


# What is refused


@pytest.mark.parametrize(
    ("message", "arguments", "given"),
    [
        (r"the order is save\(file, array\)", (ROUNDED, "a.blp"), {}),
        ("arrays of Python objects", ("a.blp", [None]), {}),
        ("inhomogeneous.*several arrays need names", ("a.blp", [[1], [1, 2]]), {}),
        ("masked", ("a.blp", np.ma.masked_equal([1, 2], 1)), {}),
        ("did you mean 'clevel'", ("a.blp", ROUNDED), {"clevl": 9}),
        ("array 'a': .*did you mean 'clevel'", ("a.zip", {"a": 1}), {"clevl": 9}),
        (r"'a\.blp', not 'a\.npy'; numpy\.save", ("a.npy", ROUNDED), {}),
        (r"'a\.blp', not 'a\.CSV'; .*\.convert\(", ("a.CSV", ROUNDED), {}),
        (r"'a\.blp', not 'a\.zarr/'; .*\.create_array\(", ("a.zarr/", ROUNDED), {}),
        (r"'a\.blp', not 'a\.zip'; bloscpack\.save", ("a.zip", ROUNDED), {}),
        (r"'a\.zip', not 'a\.npz'; numpy\.savez", ("a.npz", {"a": ROUNDED}), {}),
        (r"'http://h/a\.zip'", ("http://u:p@h/a.npy?k=v", {"a": [1]}), {}),
        ("names with slashes, such as 'a/NAME'", ("a.zip", {"a": {"b": [1]}}), {}),
        (
            "settings are .*clevel.* codec, level, auto, chunk_size, metadata",
            ("a.blp", ROUNDED),
            {"compression": "gzip"},
        ),
        ("'auto' must be True, False or one of", ("a.blp", ROUNDED), {"auto": 2}),
        ("the goal must be one of", ("a.blp", ROUNDED), {"auto": "best"}),
        ("'shard' is no setting", ("a.blp", ROUNDED), {"shard": False}),
        ("must be a dictionary, not 'list'", ("a.zip", {"a": 1}), {"metadata": [1]}),
        ("the name 1:", ("a.zip", {1: 1}), {}),
    ],
)
def test_wrong_arguments(message, arguments, given):
    with pytest.raises(bp.UsageError, match=message):
        bp.save(*arguments, **given)
    assert [] == os.listdir()


def test_names_of_all_other_formats_are_refused():
    from bloscpack.dataset.conversion import WRITTEN

    ends = {end for found in WRITTEN.values() for end in found.suffixes} - {".blp"}
    for end in ends:
        for call in (bp.save, bp.savez):
            with pytest.raises(bp.UsageError, match="not 'a%s'" % re.escape(end)):
                call("a" + end, ROUNDED)
        bp.pack_ndarray_to_file(ROUNDED, "a" + end)  # as in 0.16


@pytest.mark.parametrize("end", [".csv", ".parquet", ".h5"])
def test_a_folder_with_the_name_of_a_file_is_refused(end):
    name, message = "a" + end, r"a dataset is a folder: name it 'a\.zarr', not"
    with pytest.raises(bp.UsageError, match=message):
        bp.dataset.create_array(name, ROUNDED)
    with pytest.raises(bp.UsageError, match=message):
        bp.dataset.create_table(name, {"a": [1]})
    with pytest.raises(bp.UsageError, match=message):
        bp.dataset.create_group(name)


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        (bp.save, (ROUNDED, "a")),
        (bp.savez, ({"a": ROUNDED}, "a")),
        (bp.pack_ndarray_to_file, ("a", ROUNDED)),
        (bp.dataset.create_array, (np.zeros(3), "a")),
        (bp.dataset.create_table, ({"a": np.zeros(3)}, "a")),
    ],
)
def test_arguments_in_the_wrong_order(call, arguments):
    with pytest.raises(bp.UsageError, match=r"the order is %s\(" % call.__name__):
        call(*arguments)
    assert [] == os.listdir()


def test_files_that_hold_no_arrays(tmp_path):
    bp.pack_bytes_to_file(b"abc", "bytes.blp")
    with pytest.raises(bp.FormatError, match="bytes and no array"):
        bp.load("bytes.blp")
    np.savez("a.npz", a=ROUNDED)
    with pytest.raises(bp.FormatError, match="zip"):
        bp.load("a.npz")
    with pytest.raises(FileNotFoundError, match="missing"):
        bp.load("missing")
    with pytest.raises(IsADirectoryError, match=r"dataset\.open reads"):
        bp.load(tmp_path)


@pytest.mark.parametrize("content", [ROUNDED, {"a": ROUNDED}])
def test_limits_and_damage(content):
    bp.save("a", content)
    with pytest.raises(bp.FormatError, match="the limit is '1000'"):
        all_of(bp.load("a", limits={"nbytes": 1000}))
    with open("a", "r+b") as fp:
        fp.seek(5000)
        fp.write(b"damaged")
    with pytest.raises(bp.FormatError):
        all_of(bp.load("a"))


def test_a_damaged_directory_is_no_store(tmp_path):
    from bloscpack import dataset

    path = tmp_path / "a.zip"
    bp.save(path, {"day": np.arange(1, 9)})
    content = path.read_bytes()
    at = content.rindex(b"day/c/0")
    for changed in (b"day/b/0", b"dax/c/0"):
        path.write_bytes(content[:at] + changed + content[at + 7 :])
        with pytest.raises(
            bp.FormatError, match="local header of the member '%s'" % changed.decode()
        ):
            dataset.open(path)


def test_bytes_behind_an_archive_are_damage(tmp_path):
    from bloscpack import dataset

    path = tmp_path / "a.zip"
    bp.save(path, {"day": np.arange(1, 9)})
    path.write_bytes(path.read_bytes() + bytes(10))
    for read in (bp.loadz, dataset.open):
        with pytest.raises(DamageError, match="no end record"):
            read(path)
    assert not bp.verify(path).ok


def test_a_zip_file_of_others_may_state_a_wrong_start(tmp_path):
    """Without digests it is opened; its members would begin in front of the file."""
    from bloscpack import dataset

    path = tmp_path / "a.zip"
    content = bytearray((SAMPLES / "archive-without-digests.zip").read_bytes())
    dataset.open(SAMPLES / "archive-without-digests.zip")["x"][:]
    content[-6:-2] = (2**20).to_bytes(4, "little")  # where the directory starts
    path.write_bytes(content)
    with pytest.raises(bp.FormatError, match="damaged"):
        dataset.open(path)["x"][:]


def written_to_pipe(path):
    ends = os.pipe()
    with open(ends[1], "wb") as fp:
        yield fp
    with open(ends[0], "rb") as fp:
        yield fp


def written_to_gzip(path):
    for mode in "wb", "rb":
        with gzip.open(path, mode) as fp:
            yield fp


def written_to_zip(path):
    for mode in "w", "r":
        with zipfile.ZipFile(path, mode) as archive, archive.open("a", mode) as fp:
            yield fp


def written_to_the_end(path):
    for mode in "ab", "rb":
        with open(path, mode) as fp:
            yield fp


@pytest.mark.parametrize(
    "stream", [written_to_pipe, written_to_gzip, written_to_zip, written_to_the_end]
)
@pytest.mark.parametrize("dtype", ["f8", "i4,f4"])
def test_streams(tmp_path, stream, dtype):
    arrays = [np.arange(n).astype(dtype) for n in (10, 0, 5)]
    ends = stream(tmp_path / "stream")
    fp = next(ends)
    for array in arrays:
        bp.save(fp, array)
    fp = next(ends)
    for array in arrays:
        np.testing.assert_equal(bp.load(fp), array)


def test_an_archive_in_gzip(tmp_path):
    with gzip.open(tmp_path / "a.gz", "wb") as fp:
        bp.save(fp, {"a": ROUNDED})
    with gzip.open(tmp_path / "a.gz") as fp:
        np.testing.assert_equal(bp.load(fp), {"a": ROUNDED})


def test_loads_end_behind_an_archive(tmp_path):
    with open(tmp_path / "both", "w+b") as fp:
        bp.save(fp, np.arange(3))
        bp.save(fp, {"a": np.arange(4)})
        fp.seek(0)
        assert [0, 1, 2] == bp.load(fp).tolist()
        assert [0, 1, 2, 3] == bp.load(fp)["a"].tolist()
        assert os.path.getsize(tmp_path / "both") == fp.tell()
        with pytest.raises(bp.FormatError):
            bp.load(fp)


def test_two_archives_in_a_file_object():
    """The last one is not returned in place of the first one."""
    fp = io.BytesIO()
    for name in "ab":
        start = fp.tell()
        bp.save(fp, {name: np.arange(3)})
    fp.seek(0)
    message = "one archive from byte '0' .* the last one begins at '%d'" % start
    with pytest.raises(NotReadable, match=message):
        bp.load(fp)
    with pytest.raises(NotReadable, match=message):
        bp.load(fp.getvalue())
    fp.seek(start)
    assert ["b"] == [*bp.load(fp)]
    assert ["b"] == bp.loadz(fp).files


# Calls that fail with any bytes.
FAILING = {
    "load": bp.load,
    "loadz": bp.loadz,
    "open_ndarray": bp.open_ndarray,
    "unpack_bytes_from_bytes": bp.unpack_bytes_from_bytes,
    "unpack_ndarray_from_bytes": bp.unpack_ndarray_from_bytes,
    "pack_bytes_to_bytes": lambda data: bp.pack_bytes_to_bytes(data, clevel=10),
    "pack_bytes_to_file": lambda data: bp.pack_bytes_to_file(data, "no/folder"),
    "append_bytes_to_file": lambda data: bp.append_bytes_to_file(data, "nothing"),
}


@pytest.mark.parametrize("call", FAILING.values(), ids=FAILING)
def test_mapped_memory_can_be_closed_after_an_error(call):
    """The error is raised, and not the ``BufferError`` of ``mmap.close``."""
    content = bytearray(bp.pack_bytes_to_bytes(bytes(range(250)) * 5000))
    content[-20] ^= 1  # in the last chunk
    for data in (content, content[:9], b"no file" * 10):
        mapped = mmap.mmap(-1, len(data))
        mapped[:] = bytes(data)
        with pytest.raises((bp.BloscpackError, FileNotFoundError)), mapped:
            call(mapped)


def test_a_mapped_file_is_a_buffer(tmp_path):
    bp.save(tmp_path / "a.blp", np.arange(1000))
    with (
        open(tmp_path / "a.blp", "rb") as fp,
        mmap.mmap(fp.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
    ):
        for _ in range(2):
            assert (np.arange(1000) == bp.load(mapped)).all()


@pytest.mark.parametrize("name", ["undo-append", "undo-shard", "undo-shorter"])
def test_the_position_behind_an_interrupted_change(name):
    path = SAMPLES.parent / (name + ".blp")
    with open(path, "rb") as fp:
        assert bp.load(path).tolist() == bp.load(fp).tolist()
        assert os.path.getsize(path) == fp.tell()


def test_modules_of_archives_are_imported_late():
    """Single arrays need none of them."""
    names = "zipfile", "tempfile", "lzma", "bz2"
    program = (
        "import io, sys, numpy\n"
        "before = {*sys.modules}\n"  # NumPy 1 imports some of them
        "from bloscpack import load, save\n"
        "fp = io.BytesIO()\n"
        "save(fp, numpy.arange(3))\n"
        "fp.seek(0)\n"
        "load(fp)\n"
        "print([name for name in %r if name in {*sys.modules} - before])\n" % (names,)
    )
    assert "[]" == output_of(program).strip()


def test_blocks_of_a_large_array_are_read_alone(tmp_path):
    """Blosc makes one block of a chunk of lz4; 0.6 % more space is worth it."""
    large = np.random.default_rng(1).normal(size=(5 * 2**20 - 7))
    for name, array in {"large": large, "small": large[: 2**20]}.items():
        bp.save(tmp_path / name, array)
        content = (tmp_path / name).read_bytes()
        assert (b"blocks\0\xff" in content) == (array is large)
        assert [] == bp.verify(tmp_path / name).findings
        with bp.open_ndarray(tmp_path / name) as lazy:
            assert lazy[700_000] == array[700_000]
