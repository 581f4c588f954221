"""Append to Zarr shards, and rewrite them: the index always belongs to the chunks."""

from __future__ import annotations

import io
import os

import numpy as np
import pytest

import bloscpack as bp
from bloscpack._crashsafe.in_place import JournaledChange
from bloscpack._format.shard import SEPARATOR
from bloscpack.append import append_fp, append_ndarray_to_file, rewrite_metadata
from bloscpack.repacking import repack

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


def test_append_to_a_file_object():
    content = bp.pack_ndarray_to_bytes(ROWS[:35], shard=True, **SETTINGS)
    fp = io.BytesIO(content)
    append_fp(fp, io.BytesIO(ROWS[35:70].tobytes()), 35 * 8)
    assert [] == bp.verify.verify_fp(io.BytesIO(fp.getvalue())).findings


def test_grow(tmp_path):
    path = tmp_path / "a.blp"
    pack(path, 35, max_app_chunks=0)
    append_ndarray_to_file(ROWS[35:130], path, grow=True)
    check(path, 130)


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
        ({"offsets": False}, 10),
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


def test_an_interrupted_cut_leaves_no_old_index(tmp_path, monkeypatch):
    """If the file becomes shorter, no index at its old end is intact."""
    path = tmp_path / "a.blp"
    noise = np.random.default_rng(1).integers(0, 2**31, (20, 100), "<i4")
    bp.pack_ndarray_to_file(noise[:15], path, 4000, shard=True, clevel=0)
    before = os.path.getsize(path)
    cut = JournaledChange._commit

    def commit(self):
        self._cut = None  # as after a crash in front of the cut
        cut(self)

    monkeypatch.setattr(JournaledChange, "_commit", commit)
    append_ndarray_to_file(
        np.zeros((1, 100), "<i4"), path, clevel=9, cname="zstd", shuffle=2
    )
    assert before == os.path.getsize(path), "the case needs a file that gets shorter"
    assert not bp.verify(path).ok
    assert 16 == len(bp.unpack_ndarray_from_file(path))
    monkeypatch.undo()
    append_ndarray_to_file(noise[:1], path)
    assert [] == bp.verify(path).findings
