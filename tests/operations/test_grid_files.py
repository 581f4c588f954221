"""Files of arrays whose chunks divide every axis (docs/format.rst, Grids).

Each test packs, changes or damages a small file and looks at the array in it.
"""

import itertools
import math
import struct

import numpy as np
import pytest

import bloscpack as bp
from bloscpack import pack_ndarray_to_bytes, pack_ndarray_to_file
from bloscpack.exceptions import (
    DoesNotFit,
    FormatError,
    NotEnoughSpace,
    UsageError,
)
from bloscpack.reader import Reader

SHAPE = (11, 6, 7)
# Padded along no, some and all axes; longer than the array along the first one.
CHUNKS = [(4, 3, 5), (1, 6, 5), (11, 3, 7), (20, 2, 2), (3, 5, 7)]


def values(shape=SHAPE, dtype="<f4"):
    return np.arange(1, 1 + math.prod(shape)).reshape(shape).astype(dtype)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "grid.blp")


def stored_chunks(content):
    """Return the plain chunks of a file, in order."""
    return bp.unpack_bytes_from_bytes(content)[0]


def expected_plain(array, chunk):
    """Return the plain bytes of a file, as the specification says."""
    counts = [-(-n // size) for n, size in zip(array.shape, chunk, strict=True)]
    found = []
    for place in itertools.product(*map(range, counts)):
        items = np.zeros(chunk, array.dtype)
        box = tuple(
            slice(i * size, (i + 1) * size)
            for i, size in zip(place, chunk, strict=True)
        )
        part = array[box]
        items[tuple(map(slice, part.shape))] = part
        found.append(items.tobytes())
    return b"".join(found)


# Writing and reading


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("dtype", ["<f4", ">i2", "<U3", "M8[s]", "V3"])
def test_chunks_come_back(chunks, dtype):
    array = (
        values().astype("<u4").astype(dtype)
        if dtype != "V3"
        else values((*SHAPE, 3), "u1").view("V3")[..., 0]
    )
    content = pack_ndarray_to_bytes(array, chunks=chunks, metadata={"unit": "m"})
    found, metadata = bp.unpack_ndarray_from_bytes(content, return_metadata=True)
    assert (array.tobytes(), {"unit": "m"}) == (found.tobytes(), metadata)
    assert expected_plain(array, chunks) == stored_chunks(content)
    with bp.open_ndarray(content) as lazy:
        assert chunks == lazy.chunks
        assert array.tobytes() == lazy.read().tobytes()
        out = np.empty_like(array)
        assert array.tobytes() == lazy.read(out=out).tobytes()
        for rows, row in zip(array, lazy, strict=True):
            assert rows.tobytes() == row.tobytes()
        for key in np.s_[3, 2:, ::-2], np.s_[-1], np.s_[[7, 1, 7]], np.s_[5, 5, 6]:
            assert array[key].tobytes() == lazy[key].tobytes()


@pytest.mark.parametrize("chunks", CHUNKS)
def test_a_file_without_an_offset_table_is_read_in_parts(chunks, path):
    pack_ndarray_to_file(values(), path, chunks=chunks, offsets=False)
    with bp.open_ndarray(path) as lazy:
        assert chunks == lazy.chunks
        for key in np.s_[3, 2:, ::-2], np.s_[-1], np.s_[[7, 1, 7]], np.s_[5, 5, 6]:
            assert values()[key].tobytes() == lazy[key].tobytes()
    bp.repack(path, chunks=(2, 2, 2))
    assert (values() == bp.load(path)).all()


def test_header_and_metadata_are_those_of_the_specification(path):
    pack_ndarray_to_file(values((5, 4), "<i2"), path, chunks=(2, 3))
    info = bp.info(path)
    assert (6, 12, 12) == (
        info.header.nchunks,
        info.header.chunk_size,
        info.header.last_chunk,
    )
    assert info.metadata == {
        "dtype": "'<i2'",
        "shape": [5, 4],
        "order": "C",
        "container": "grid",  # release 0.16 finds no array: it takes only "numpy"
        "chunks": [2, 3],
    }
    assert (2, 3) == info.array.chunks


def test_other_memory_orders_and_structures_are_stored():
    fields = np.zeros((5, 4), [("a", "i1"), ("b", "<f8")])
    fields["b"] = values((5, 4))
    for array in np.asfortranarray(values()), values()[::2, :, ::-1], fields:
        chunks = (2,) * array.ndim
        found = bp.load(pack_ndarray_to_bytes(array, chunks=chunks))
        assert (array == found).all()


@pytest.mark.parametrize("chunks", [4, (4, 6, 7), (4, 99, 7)])
def test_whole_rows_are_an_ordinary_file(chunks):
    expected = pack_ndarray_to_bytes(values(), chunk_size=4 * 6 * 7 * 4)
    assert expected == pack_ndarray_to_bytes(values(), chunks=chunks)


def test_an_array_without_items_is_an_ordinary_file():
    empty = np.zeros((0, 3))
    assert pack_ndarray_to_bytes(empty) == pack_ndarray_to_bytes(empty, chunks=(2, 2))


def test_without_chunks_nothing_changes():
    array = values()
    assert pack_ndarray_to_bytes(array) == pack_ndarray_to_bytes(array, chunks=None)


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        (0, "chunks: expected a number of rows"),
        ((4, 3), "the 3 axes of the array"),
        ((4, 3, 0), "chunks: expected"),
        ((4, 3, -1), "chunks: expected"),
        ("4M", "chunks: expected"),
        (2.5, "chunks: expected"),
        ((2**40, 3, 5), "the largest chunk has"),
    ],
)
def test_chunks_that_are_none(chunks, message):
    with pytest.raises(UsageError, match=message):
        pack_ndarray_to_bytes(values(), chunks=chunks)


def test_chunks_and_chunk_size():
    with pytest.raises(UsageError, match="'chunks' or 'chunk_size'"):
        pack_ndarray_to_bytes(values(), chunks=3, chunk_size="1K")


def test_save_and_savez(path, tmp_path):
    bp.save(path, values(), chunks=(4, 3, 5))
    assert [12, 6, 10] == bp.info(path).metadata["shard"]
    assert (values() == bp.load(path)).all()
    archive = tmp_path / "two.zip"
    bp.savez(archive, a=values(), settings={"chunks": (4, 3, 5)})
    with bp.loadz(archive) as found:
        assert (4, 3, 5) == found["a"].chunks
        assert (values() == found["a"][:]).all()
    assert bp.verify(archive).ok


# Bad files


def metadata(**changes):
    found = {
        "dtype": "'<f4'",
        "shape": [11, 6, 7],
        "order": "C",
        "container": "grid",
        "chunks": [4, 3, 5],
    }
    return {**found, **changes}


@pytest.mark.parametrize(
    "changes",
    [
        {"chunks": None},
        {"chunks": 4},
        {"chunks": [4, 3]},
        {"chunks": [4, 3, 0]},
        {"chunks": [4, 3, -5]},
        {"chunks": [4, 3, 5.0]},
        {"chunks": [4, 3, True]},
        {"chunks": [2**31, 3, 5]},
        {"chunks": [2**62, 2**62, 2**62]},
        {"chunks": [4, 5, 3]},  # as large, but not as many
        {"chunks": [2, 3, 5]},  # as many bytes, but not as many chunks
        {"order": "F"},
        {"shape": [0, 6, 7]},
        {"shape": [2**62, 6, 7]},
        {"shape": [11, 6, 7, 1]},
        {"dtype": "'|S0'"},
        {"shard": None},
        {"shard": [12, 6]},
        {"shard": [12, 6, 9]},  # no whole chunks
        {"shard": [8, 6, 10]},  # smaller than the array
        {"shard": [4 * 2**40, 6, 10]},
    ],
)
def test_wrong_metadata_are_an_error(path, changes):
    plain = expected_plain(values(), (4, 3, 5))
    bp.pack_bytes_to_file(plain, path, chunk_size=240, metadata=metadata())
    assert (values() == bp.load(path)).all()
    bp.pack_bytes_to_file(plain, path, chunk_size=240, metadata=metadata(**changes))
    for read in bp.load, bp.open_ndarray, bp.unpack_ndarray_from_file:
        with pytest.raises(FormatError) as caught:
            read(path)
        assert caught.value.section in ("metadata", "chunks")
    assert not bp.verify(path).ok
    bp.info(path)  # what it shows is not checked
    assert plain == bp.unpack_bytes_from_file(path)[0]


@pytest.mark.parametrize("chunk_size", [120, 480, 2880])
def test_chunks_of_another_size_are_an_error(path, chunk_size):
    plain = expected_plain(values(), (4, 3, 5))
    bp.pack_bytes_to_file(plain, path, chunk_size=chunk_size, metadata=metadata())
    for read in bp.load, bp.open_ndarray:
        with pytest.raises(FormatError, match="chunks of shape"):
            read(path)
    (finding,) = bp.verify(path).findings
    assert ("metadata", "array") == (finding.section, finding.kind)


# Checking and recovering


def flipped(path, number):
    """Flip a bit in a chunk."""
    with bp.open_ndarray(path) as lazy:
        start, stop = lazy._parts.extents()[number]
    with open(path, "r+b") as fp:
        fp.seek((start + stop) // 2)
        byte = fp.read(1)[0]
        fp.seek(-1, 1)
        fp.write(bytes([byte ^ 1]))


def test_a_read_loads_only_the_chunks_of_its_region(path):
    pack_ndarray_to_file(values(), path, chunks=(4, 3, 5))
    flipped(path, 7)  # [4:8, 3:6, 5:7]
    with bp.open_ndarray(path) as lazy:
        for key in np.s_[:, 2, 6], np.s_[4:8, 3:6, :5], np.s_[[8, 3]], np.s_[5, 5, 4]:
            assert values()[key].tobytes() == lazy[key].tobytes()
        with pytest.raises(FormatError, match="chunk 7"):
            lazy[::5, 5, 6]


def test_a_finding_names_the_region(path):
    pack_ndarray_to_file(values(), path, chunks=(4, 3, 5))
    flipped(path, 7)
    (finding,) = bp.verify(path).findings
    assert ((4, 8), (3, 6), (5, 7)) == finding.region
    assert "items [4:8, 3:6, 5:7]" in str(finding)
    assert [[4, 8], [3, 6], [5, 7]] == finding.as_dict()["region"]


@pytest.mark.parametrize("shard", [False, True])
def test_recover_fills_lost_chunks(path, tmp_path, shard):
    pack_ndarray_to_file(values(), path, chunks=(4, 3, 5), shard=shard)
    flipped(path, 2)
    flipped(path, 3)
    saved = tmp_path / "saved.blp"
    recovery = bp.recover(path, saved)
    assert recovery.certain
    (loss,) = recovery.losses
    assert ((0, 4), (3, 6), (0, 7)) == loss.region
    expected = values()
    expected[0:4, 3:6] = 0
    assert (expected == bp.load(saved)).all()
    assert [] == [f for f in bp.verify(saved).findings if f.kind != "recovered"]
    with pytest.raises(UsageError, match="can't be left out"):
        bp.recover(path, saved, drop=True)


# Shards


def index_of(content, nslots):
    """Return the entries of the index at the end of a file."""
    return list(struct.iter_unpack("<QQ", content[-4 - 16 * nslots : -4]))


def test_the_index_has_the_chunks_of_the_whole_shard(path):
    # A file with a part of a shard, as a dataset has it at the end of an array.
    part = values((3, 5))
    plain = expected_plain(part, (2, 2))
    described = {
        "dtype": "'<f4'",
        "shape": [3, 5],
        "order": "C",
        "container": "grid",
        "chunks": [2, 2],
        "shard": [4, 8],
    }
    bp.pack_bytes_to_file(plain, path, chunk_size=16, metadata=described)
    assert (part == bp.load(path)).all()
    assert [] == bp.verify(path).findings
    with open(path, "rb") as fp:
        content = fp.read()
    with bp.open_ndarray(path) as lazy:
        extents = lazy._parts.extents()
    missing = 2**64 - 1, 2**64 - 1
    frames = [(start, stop - start) for start, stop in extents]
    assert [*frames[:3], missing, *frames[3:], missing] == index_of(content, 8)
    assert 8 == bp.info(path).shard.slots
    damaged = bytearray(content)
    damaged[-4 - 16 * 4] ^= 1
    with open(path, "wb") as fp:
        fp.write(damaged)
    assert {"trailer"} == {finding.kind for finding in bp.verify(path).findings}


def test_info_about_a_grid_without_axes(path):
    described = {"dtype": "'<f4'", "shape": [], "order": "C", "container": "grid"}
    described.update(chunks=[], shard=[])
    bp.pack_bytes_to_file(bytes(4), path, metadata=described)
    assert ((), ()) == (bp.info(path).array.shape, bp.info(path).array.chunks)
    assert 1 == bp.info(path).shard.rows


def test_what_can_be_no_shard():
    with pytest.raises(DoesNotFit, match="Zarr shard"):
        pack_ndarray_to_bytes(
            np.zeros((5, 4), [("a", "i1")]), chunks=(2, 2), shard=True
        )


# Appending


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("shard", [False, True])
def test_append(path, chunks, shard):
    expected = values()
    pack_ndarray_to_file(expected, path, chunks=chunks, shard=shard)
    for count in 1, 0, 4, 30:
        rows = values((count, *SHAPE[1:])) + 1000
        bp.append_ndarray_to_file(rows, path)
        expected = np.concatenate([expected, rows])
        assert (expected == bp.load(path)).all()
        assert [] == bp.verify(path).findings
    plain, _ = bp.unpack_bytes_from_file(path)
    assert expected_plain(expected, chunks) == plain


def test_an_append_that_does_not_fit(path):
    pack_ndarray_to_file(values(), path, chunks=(4, 3, 5), offsets=False)
    with pytest.raises(NotEnoughSpace, match="offset table"):
        bp.append_ndarray_to_file(values(), path, grow=False)
    for rows in values((2, 5, 7)), values(dtype="<f8"):
        with pytest.raises(DoesNotFit):
            bp.append_ndarray_to_file(rows, path)
    assert (values() == bp.load(path)).all()


# Repacking


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("before", [None, 3, (4, 3, 5)])
@pytest.mark.parametrize("after", [None, 2, (3, 2, 2)])
@pytest.mark.parametrize("shard", [None, True, False])
def test_repack(path, order, before, after, shard):
    array = np.asarray(values(), order=order)
    pack_ndarray_to_file(array, path, chunks=before, metadata={"unit": "m"})
    if shard and before is after is None and order == "F":
        return  # its rows do not lie together
    bp.repack(path, chunks=after, shard=shard, checksum="crc32c")
    found, user = bp.load(path, return_metadata=True)
    assert (array == found).all()
    assert {"unit": "m"} == user
    assert [] == bp.verify(path).findings
    wanted = before if after is None else after
    assert isinstance(wanted, tuple) == (bp.info(path).array.chunks is not None)
    assert bool(shard) == ("shard" in bp.info(path).metadata)


@pytest.mark.parametrize("shape", [(0,), (0, 16), (3, 0, 2)])
@pytest.mark.parametrize("shard", [None, False])
def test_repack_of_an_array_without_items(path, shape, shard):
    pack_ndarray_to_file(np.zeros(shape, "<i2"), path, metadata={"unit": "m"})
    bp.repack(path, chunks=(2,) * len(shape), shard=shard)
    found, user = bp.load(path, return_metadata=True)
    assert ((shape, "<i2"), {"unit": "m"}) == ((found.shape, found.dtype.str), user)
    assert [] == bp.verify(path).findings


@pytest.mark.parametrize(
    "settings",
    [
        {"chunk_size": 1000},
        {"chunk_size": 1000, "chunks": 3},
        {"keep_array": False},
        {"metadata": {"dtype": "'<f4'", "shape": [720], "container": "numpy"}},
    ],
)
def test_a_repack_that_would_lose_the_array(path, settings):
    pack_ndarray_to_file(values(), path, chunks=(4, 3, 5))
    with pytest.raises(UsageError):
        bp.repack(path, **settings)
    assert (values() == bp.load(path)).all()


# Other readers


def test_reader_assembles_rows(path):
    pack_ndarray_to_file(values(), path, chunks=(4, 3, 5))
    with open(path, "rb") as fp:
        reader = Reader(fp)
        for rows in slice(None), slice(2, 11, 3), slice(5, 2), slice(-1, None):
            found = reader.read_rows(rows)
            assert values()[rows].tobytes() == found.tobytes()
            assert values()[rows].shape == found.shape


@pytest.mark.parametrize("chunks", CHUNKS)
def test_npy(path, tmp_path, chunks):
    pack_ndarray_to_file(values(), path, chunks=chunks)
    bp.unpack_npy_from_file(path, tmp_path / "a.npy")
    found = np.load(tmp_path / "a.npy")
    assert values().tobytes() == found.tobytes()
    assert SHAPE == found.shape


def test_references(path):
    pack_ndarray_to_file(values(), path, chunks=(4, 3, 5), checksum="crc32c")
    refs = bp.references(path, zarr_format=3, name="a")["refs"]
    assert 12 == sum("c/" in key for key in refs)
    with bp.open_ndarray(path) as lazy:
        start, stop = lazy._parts.extents()[7]
    assert [path, start, stop - start] == refs["a/c/1/1/1"]
