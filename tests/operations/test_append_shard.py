"""Append to Zarr shards, and rewrite them: the index always belongs to the chunks."""

from __future__ import annotations

import io
import os
import tracemalloc
from functools import partial

import numpy as np
import pytest
from crash.watched_disk import WatchedDisk, replaced_disk
from support import BLP

import bloscpack as bp
from bloscpack.append import append_fp, append_ndarray_to_file, rewrite_metadata
from bloscpack.exceptions import (
    DoesNotFit,
    FormatError,
    NotANumpyArray,
    StorageError,
    UsageError,
)
from bloscpack.file_io import CompressedFPSource
from bloscpack.repacking import repack

SEPARATOR = b"shard\0\0\0"
ROWS = np.arange(400, dtype="<i4").reshape(200, 2)
SETTINGS = {"chunk_size": 80, "max_app_chunks": 20, "nthreads": 1}


def pack(path, nrows, **settings):
    bp.pack_ndarray_to_file(ROWS[:nrows], path, shard=True, **{**SETTINGS, **settings})


def check(path, nrows, rows=10):
    """Check that a file is an intact shard of `nrows` rows."""
    assert (ROWS[:nrows] == bp.unpack_ndarray_from_file(path)).all()
    assert [] == bp.verify(path).findings
    assert (rows, True) == (bp.info(path).shard.rows, bp.info(path).shard.index)


@pytest.mark.parametrize("before", [0, 3, 10, 35, 40])
@pytest.mark.parametrize("added", [1, 4, 5, 10, 57])
def test_append(tmp_path, before, added):
    path = tmp_path / "a.blp"
    pack(path, before)
    slots = bp.info(path).shard.slots
    append_ndarray_to_file(ROWS[before : before + added], path, nthreads=1)
    check(path, before + added)
    assert slots == bp.info(path).shard.slots


def test_append_says_nothing_about_the_old_trailer(tmp_path, capsys):
    pack(tmp_path / "a.blp", 35)
    append_ndarray_to_file(ROWS[35:40], tmp_path / "a.blp")
    assert "dropping" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("nrows", [35, 40])
def test_another_file_behind_the_trailer_is_not_destroyed(tmp_path, nrows):
    path = tmp_path / "a.blp"
    with open(path, "wb") as fp:
        for rows in (ROWS[:nrows], ROWS[:7]):
            bp.save(fp, rows, **SETTINGS)
    content = path.read_bytes()
    for change in (partial(append_ndarray_to_file, ROWS[40:50]), repack):
        with pytest.raises(UsageError, match="another bloscpack file"):
            change(path)
        assert content == path.read_bytes()
    with open(path, "r+b") as fp:
        new = io.BytesIO(ROWS[40:50].tobytes())
        with pytest.raises(UsageError, match="appending would destroy"):
            append_fp(fp, new, 80)
    assert content == path.read_bytes()


def test_a_failed_append_drops_only_what_is_behind_the_trailer(tmp_path):
    path = tmp_path / "a.blp"
    pack(path, 35)
    size = path.stat().st_size
    os.truncate(path, size + 20 * 2**20)
    with (
        open(path, "r+b") as fp,
        pytest.warns(RuntimeWarning, match="dropping"),
        pytest.raises(StorageError, match="ends too early"),
    ):
        append_fp(fp, io.BytesIO(b"12345"), 8)
    assert size == path.stat().st_size
    check(path, 35)


def test_append_to_a_file_object():
    content = bp.pack_ndarray_to_bytes(ROWS[:35], shard=True, **SETTINGS)
    fp = io.BytesIO(content)
    append_fp(fp, io.BytesIO(ROWS[35:70].tobytes()), 35 * 8)
    assert [] == bp.verify.verify_fp(io.BytesIO(fp.getvalue())).findings


def test_grow(tmp_path):
    path = tmp_path / "a.blp"
    pack(path, 35, max_app_chunks=0)
    append_ndarray_to_file(ROWS[35:130], path, grow=True)
    check(path, 130, 130)


@pytest.mark.parametrize("settings", [{}, {"offsets": False, "chunk_size": 80}])
def test_a_file_without_room_gets_larger_chunks(tmp_path, settings):
    rows = np.arange(500_000.0).reshape(-1, 5)
    bp.save(tmp_path / "a.blp", rows[:10], **settings)
    if settings:
        repack(tmp_path / "a.blp", offsets=True, max_app_chunks=0)
    append_ndarray_to_file(rows[10:], tmp_path / "a.blp")
    found = bp.info(tmp_path / "a.blp")
    assert 4 == found.nchunks
    assert found.header.max_app_chunks >= 40
    assert (rows == bp.load(tmp_path / "a.blp")).all()
    assert [] == bp.verify(tmp_path / "a.blp").findings


def test_a_file_without_room_keeps_large_chunks(tmp_path):
    bp.save(tmp_path / "a.blp", np.zeros(20_000), chunk_size="64K", max_app_chunks=0)
    append_ndarray_to_file(np.zeros(100_000), tmp_path / "a.blp")
    assert 2**16 == bp.info(tmp_path / "a.blp").header.chunk_size


def test_append_restores_a_lost_trailer(tmp_path):
    path = tmp_path / "a.blp"
    pack(path, 35)
    content = path.read_bytes()
    path.write_bytes(content[: content.index(SEPARATOR)])
    assert False is bp.info(path).shard.index
    append_ndarray_to_file(ROWS[35:37], path)
    check(path, 37)


@pytest.mark.parametrize("entry", [0, 1, 2])
@pytest.mark.parametrize("by", [-3, 1, 30])
def test_a_wrong_table_never_gives_a_wrong_index(tmp_path, entry, by):
    path = tmp_path / "a.blp"
    pack(path, 95)
    content = bytearray(path.read_bytes())
    starts = [*bp.references(path, zarr_format=3)["refs"].values()]
    starts = [value[1] for value in starts if isinstance(value, list)]
    at = content.index(starts[entry].to_bytes(8, "little"))
    content[at : at + 8] = (starts[entry] + by).to_bytes(8, "little")
    path.write_bytes(content)
    with pytest.raises(bp.FormatError, match="offset"):
        append_ndarray_to_file(ROWS[95:97], path)
    assert bytes(content) == path.read_bytes()


@pytest.mark.parametrize("grow", [False, True])
def test_metadata_of_the_user(tmp_path, grow):
    path = tmp_path / "a.blp"
    pack(path, 35)
    metadata = bp.info(path).metadata
    room = ["much"] * (500 if grow else 1)
    new = {**metadata, "metadata": room}
    del new["shard"]
    rewrite_metadata(path, new, grow=grow)
    check(path, 35)
    assert room == bp.info(path).user_metadata


@pytest.mark.parametrize(
    ("settings", "rows"),
    [
        ({"cname": "zstd"}, 10),
        ({"checksum": "adler32"}, 10),
        ({"max_app_chunks": 0}, 10),
        ({"chunk_size": 100}, 12),
        ({"chunk_size": "max"}, 35),
        ({"chunk_size": 1}, 1),
        ({"chunk_size": 12, "cname": "lz4"}, 1),
        ({"max_meta_size": 5000}, 10),
    ],
)
def test_repack(tmp_path, settings, rows):
    path = tmp_path / "a.blp"
    pack(path, 35)
    repack(path, **settings)
    check(path, 35, rows)


def test_a_shard_needs_an_offset_table(tmp_path):
    path = tmp_path / "a.blp"
    pack(path, 35)
    before = path.read_bytes()
    for change in partial(pack, path, 35), partial(repack, path):
        with pytest.raises(UsageError, match="needs an offset table"):
            change(offsets=False)
    assert before == path.read_bytes()
    repack(path, offsets=False, shard=False)
    assert bp.info(path).shard is None


def test_repack_of_a_single_chunk(tmp_path):
    path = tmp_path / "a.blp"
    pack(path, 5)
    repack(path, chunk_size=160)
    check(path, 5, 20)
    append_ndarray_to_file(ROWS[5:50], path)
    check(path, 50, 20)


def test_without_metadata_a_file_is_no_shard(tmp_path):
    path = tmp_path / "a.blp"
    pack(path, 35)
    repack(path, keep_array=False)
    assert [] == bp.verify(path).findings
    assert SEPARATOR not in path.read_bytes()


def test_an_interrupted_cut_leaves_no_old_index(tmp_path):
    """If the file becomes shorter, no index at its old end is intact."""
    path = tmp_path / "a.blp"
    noise = np.random.default_rng(1).integers(0, 2**31, (20, 100), "<i4")
    bp.pack_ndarray_to_file(noise[:15], path, 4000, shard=True, clevel=0)
    before = os.path.getsize(path)

    class Uncut(WatchedDisk):
        def do(self, kind, call, *arguments):
            if kind == "truncate":
                raise OSError("as after a crash in front of the cut")
            return super().do(kind, call, *arguments)

    with replaced_disk(Uncut()):
        append_ndarray_to_file(
            np.zeros((1, 100), "<i4"), path, clevel=9, cname="zstd", shuffle=2
        )
    assert before < os.path.getsize(path)
    assert ["left-over"] == [finding.kind for finding in bp.verify(path).findings]
    assert 16 == len(bp.unpack_ndarray_from_file(path))
    with pytest.warns(RuntimeWarning, match="dropping"):
        append_ndarray_to_file(noise[:1], path)
    assert [] == bp.verify(path).findings


# Files that become shards, and shards that become ordinary files


@pytest.mark.parametrize(
    ("nrows", "chunk_size", "settings", "rows", "copied"),
    [
        (35, 80, {}, 10, True),  # chunks are whole rows already
        (35, 80, {"cname": "zstd"}, 10, False),
        (35, 80, {"chunk_size": 160}, 20, False),
        (35, 80, {"chunk_size": "max"}, 35, False),
        (35, 84, {}, 10, False),  # chunks end within a row
        (35, 4, {}, 1, False),  # a chunk is less than a row
        (35, "1M", {}, 131072, True),  # a single chunk has no chunk size of its own
        (35, "1M", {"chunk_size": 80}, 10, False),
        (0, "1M", {}, 131072, True),
    ],
)
def test_repack_to_shard(tmp_path, nrows, chunk_size, settings, rows, copied):
    path = tmp_path / "a.blp"
    bp.pack_ndarray_to_file(ROWS[:nrows], path, chunk_size, metadata=["mine"])
    before = path.read_bytes()
    first = CompressedFPSource(io.BytesIO(before)).offsets[0]
    chunk = before[first : min(first + 30, len(before) - 4)]
    repack(path, shard=True, **settings)
    check(path, nrows, rows)
    found = bp.info(path)
    assert ("crc32c", ["mine"]) == (found.checksum, found.user_metadata)
    assert copied == (chunk in path.read_bytes())
    once = path.read_bytes()
    repack(path, shard=True)
    assert once == path.read_bytes()


@pytest.mark.parametrize("checksum", ["adler32", "None"])
def test_checksum_of_a_new_shard(tmp_path, checksum):
    path = tmp_path / "a.blp"
    bp.pack_ndarray_to_file(ROWS, path, 80, checksum="sha256")
    repack(path, shard=True, checksum=checksum)
    assert checksum == bp.info(path).checksum
    assert [] == [f for f in bp.verify(path).findings if f.section == "shard"]


def test_a_file_without_chunks_becomes_a_shard(tmp_path):
    path = tmp_path / "a.blp"
    path.write_bytes(_without_chunks())
    repack(path, shard=True)
    check(path, 0, 131072)


def _without_chunks():
    """Return an array file of no rows whose header says that it has no chunks."""
    whole = bytearray(bp.pack_ndarray_to_bytes(ROWS[:0], offsets=False))
    whole[16:24] = bytes(8)
    return bytes(whole[: len(whole) - 16 - 4])


def test_repack_keeps_a_file_without_chunks(tmp_path):
    path = tmp_path / "a.blp"
    path.write_bytes(_without_chunks())
    repack(path)
    assert 0 == bp.info(path).nchunks


@pytest.mark.parametrize("settings", [{}, {"checksum": "adler32"}, {"cname": "lz4"}])
def test_repack_to_an_ordinary_file(tmp_path, settings):
    path = tmp_path / "a.blp"
    pack(path, 35, metadata=["mine"])
    repack(path, shard=False, **settings)
    assert (ROWS[:35] == bp.unpack_ndarray_from_file(path)).all()
    assert [] == bp.verify(path).findings
    found = bp.info(path)
    assert None is found.shard
    assert ("shard" in found.metadata, ["mine"]) == (False, found.user_metadata)
    assert settings.get("checksum", "crc32c") == found.checksum
    assert SEPARATOR not in path.read_bytes()
    append_ndarray_to_file(ROWS[35:57], path)
    assert None is bp.info(path).shard
    repack(path, shard=False)
    assert (ROWS[:57] == bp.unpack_ndarray_from_file(path)).all()


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.array(5.0), "it has no axis to cut into chunks"),
        (np.zeros((3, 0)), "its rows have no bytes"),
        (np.asfortranarray(ROWS), "it has several axes in Fortran order"),
        (np.zeros(3, "i4,f8"), "Zarr has no portable data type for structures"),
    ],
)
def test_arrays_that_do_not_become_shards(tmp_path, array, reason):
    path = tmp_path / "a.blp"
    bp.pack_ndarray_to_file(array, path)
    before = path.read_bytes()
    with pytest.raises(DoesNotFit, match=reason) as caught:
        repack(path, shard=True)
    assert str(path) == caught.value.filename
    repack(path, shard=False)
    assert before == path.read_bytes()


@pytest.mark.parametrize("settings", [{}, {"metadata": {"shard": 3}}])
def test_bytes_do_not_become_a_shard(tmp_path, settings):
    path = tmp_path / "a.blp"
    bp.pack_bytes_to_file(b"abc", path)
    reason = "expected the metadata of an array, found .*: the file contains bytes"
    with pytest.raises(NotANumpyArray, match=reason):
        repack(path, shard=True, **settings)
    with pytest.raises(NotANumpyArray, match="unpack_bytes_from_file read them"):
        bp.open_ndarray(path)


def test_an_array_that_is_dropped_does_not_become_a_shard(tmp_path):
    pack(tmp_path / "a.blp", 35)
    with pytest.raises(NotANumpyArray, match="expected the metadata of an array"):
        repack(tmp_path / "a.blp", shard=True, keep_array=False)


def test_new_rows_have_new_inner_chunks(tmp_path):
    """The metadata of an array of another shape are given: its rows count."""
    path = tmp_path / "a.blp"
    pack(path, 36)
    new = {**bp.info(path).metadata, "shape": [12, 6]}
    repack(path, metadata=new)
    assert (ROWS[:36].reshape(12, 6) == bp.unpack_ndarray_from_file(path)).all()
    assert [] == bp.verify(path).findings
    assert (10, True) == (bp.info(path).shard.rows, bp.info(path).shard.index)


def test_a_chunk_of_a_codec_that_blosc_lacks(tmp_path):
    """The padded copy has another codec."""
    pytest.importorskip("cramjam")
    path = tmp_path / "a.blp"
    path.write_bytes((BLP / "old" / "0.16.0-codec-snappy.blp").read_bytes())
    plain, _ = bp.unpack_bytes_from_file(path)
    array = np.frombuffer(plain, "u1")
    described = {"dtype": "'|u1'", "shape": [len(plain)], "order": "C"}
    repack(path, metadata={**described, "container": "numpy"}, shard=True)
    assert "snappy" == bp.info(path).first_chunk.codec
    assert (array == bp.unpack_ndarray_from_file(path)).all()
    assert [] == bp.verify(path).findings


def test_many_free_entries_take_little_memory():
    """An index of a million entries, mostly free ones."""
    tracemalloc.start()
    try:
        content = bp.pack_ndarray_to_bytes(ROWS, 80, shard=True, max_app_chunks=10**6)
        before = tracemalloc.get_traced_memory()[1]
        assert [] == bp.verify.verify_fp(io.BytesIO(content)).findings
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert max(before, peak) < 8 * len(content)


def test_metadata_of_a_shard_make_bytes_a_shard(tmp_path):
    path = tmp_path / "a.blp"
    pack(path, 35)
    metadata = bp.info(path).metadata
    bp.pack_bytes_to_file(ROWS[:35].tobytes(), path)
    repack(path, metadata=metadata)
    check(path, 35)


@pytest.mark.parametrize("rows", [0, -1, "10", True, 2.0, 2**31, 10**30])
def test_other_values_of_the_key_are_kept_and_mean_nothing(tmp_path, rows):
    path = tmp_path / "a.blp"
    bp.pack_ndarray_to_file(ROWS, path, 84)
    metadata = {**bp.info(path).metadata, "shard": rows}
    rewrite_metadata(path, metadata)
    repack(path, cname="zstd")
    assert metadata == bp.info(path).metadata
    assert 84 == bp.info(path).header.chunk_size
    assert SEPARATOR not in path.read_bytes()
    repack(path, shard=True)
    check(path, 200)


def test_a_shape_that_contradicts_the_chunks(tmp_path):
    path = tmp_path / "a.blp"
    content = bp.pack_ndarray_to_bytes(
        ROWS, 80, meta_checksum="None", meta_codec="None"
    )
    wrong = content.replace(b'"shape":[200,2]', b'"shape":[100,2]')
    assert content != wrong
    path.write_bytes(wrong)
    with pytest.raises(FormatError, match="but the chunks hold '1600'"):
        repack(path, shard=True)
    assert wrong == path.read_bytes()
