"""Files that are Zarr shards too: what is written, and which arrays are refused."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest

import bloscpack as bp
from bloscpack.args import BloscpackArgs
from bloscpack.checksums import CHECKSUMS_LOOKUP
from bloscpack.exceptions import UsageError

crc32c = CHECKSUMS_LOOKUP["crc32c"]
MISSING = 2**64 - 1
ROWS = np.arange(70, dtype="<i4").reshape(35, 2)


def entries_of(content, nslots):
    """Return the entries of the index at the end of a file."""
    index = content[-4 - 16 * nslots : -4]
    assert crc32c(index) == content[-4:]
    return [*struct.iter_unpack("<QQ", index)]


def packed(array=ROWS, **settings):
    settings = {"chunk_size": 80, "max_app_chunks": 2, **settings}
    return bp.pack_ndarray_to_bytes(array, shard=True, **settings)


def read_as_zarr(content, nslots, row):
    """Return the plain bytes as the rules of Zarr give them."""
    import blosc

    parts = []
    for offset, nbytes in entries_of(content, nslots):
        if offset != MISSING:
            chunk = content[offset : offset + nbytes]
            assert crc32c(chunk[:-4]) == chunk[-4:]
            parts.append(blosc.decompress(chunk[:-4]))
            assert row * 10 == len(parts[-1])
    return b"".join(parts)


@pytest.mark.parametrize("nrows", [1, 9, 10, 11, 20, 35])
def test_index_and_padding(nrows):
    array = ROWS[:nrows]
    content = packed(array)
    nchunks = -(-nrows // 10)
    found = read_as_zarr(content, nchunks + 2, 8)
    assert array.tobytes().ljust(nchunks * 80, b"\0") == found
    assert [(MISSING, MISSING)] * 2 == entries_of(content, nchunks + 2)[nchunks:]
    assert (array == bp.unpack_ndarray_from_bytes(content)).all()
    with_reader = bp.Reader(io.BytesIO(content))
    assert array.tobytes() == with_reader.read(0, array.nbytes)


def test_no_rows():
    content = packed(ROWS[:0])
    assert [(MISSING, MISSING)] * 3 == entries_of(content, 3)
    assert (0, 2) == bp.unpack_ndarray_from_bytes(content).shape


def test_description(tmp_path):
    path = tmp_path / "a.blp"
    bp.pack_ndarray_to_file(ROWS, path, 85, shard=True, metadata={"unit": "m"})
    found = bp.info(path)
    assert (10, 4 + 40, True) == (
        found.shard.rows,
        found.shard.slots,
        found.shard.index,
    )
    assert {"unit": "m"} == found.user_metadata
    assert 80 == found.header.chunk_size
    assert "crc32c" == found.checksum
    bp.pack_ndarray_to_file(ROWS, path)
    assert None is bp.info(path).shard


@pytest.mark.parametrize(
    ("settings", "checksum"),
    [
        ({}, "crc32c"),
        ({"checksum": "None"}, "None"),
        ({"bloscpack_args": {"checksum": "md5"}}, "md5"),
        ({"bloscpack_args": BloscpackArgs()}, "adler32"),
    ],
)
def test_checksum(tmp_path, settings, checksum):
    path = tmp_path / "a.blp"
    bp.pack_ndarray_to_file(ROWS, path, 80, shard=True, **settings)
    assert checksum == bp.info(path).checksum
    assert [] == [f for f in bp.verify(path).findings if f.section == "shard"]


@pytest.mark.parametrize(
    ("chunk_size", "rows"),
    [(1, 1), (8, 1), (15, 1), (16, 2), ("1K", 128), ("max", 35), (2**20, 131072)],
)
def test_whole_rows(tmp_path, chunk_size, rows):
    path = tmp_path / "a.blp"
    bp.pack_ndarray_to_file(ROWS, path, chunk_size, shard=True)
    assert rows == bp.info(path).shard.rows
    assert (ROWS == bp.unpack_ndarray_from_file(path)).all()
    assert [] == bp.verify(path).findings


REFUSED = {
    "no axis": (np.array(5.0), "it has no axis to cut into chunks"),
    "structure": (
        np.zeros(3, "i4,f8"),
        "Zarr has no portable data type for structures",
    ),
    "long double": (np.zeros(3, np.longdouble), "no Zarr reader takes shards of"),
    "raw bytes": (np.zeros(3, "V5"), "no Zarr reader takes shards of this type"),
    "order": (np.asfortranarray(ROWS), "it has several axes in Fortran order"),
    "no bytes": (np.zeros((3, 0)), "its rows have no bytes"),
    "large row": (
        np.broadcast_to(np.int8(0), (1, 2**31)),
        "a row of it has '2147483648' bytes, more than the largest chunk",
    ),
}


@pytest.mark.parametrize(("array", "reason"), REFUSED.values(), ids=REFUSED)
def test_refused(tmp_path, array, reason):
    if array.dtype == np.longdouble and array.itemsize == 8:
        pytest.skip("long double is double here")
    with pytest.raises(UsageError, match="can't be a Zarr shard: " + reason):
        bp.pack_ndarray_to_file(array, tmp_path / "a.blp", shard=True)
    assert [] == [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "dtype",
    ["?", "i1", "<u2", ">i4", "<f2", ">f8", "<c16", "S3", "<U2", "<M8[s]"],
)
def test_dtypes(dtype):
    array = np.zeros((5, 3), dtype)
    content = packed(array)
    assert array.tobytes() == bp.unpack_ndarray_from_bytes(content).tobytes()


def test_npy(tmp_path):
    np.save(tmp_path / "a.npy", ROWS)
    bp.pack_npy_to_file(tmp_path / "a.npy", tmp_path / "a.blp", 80, shard=True)
    bp.pack_ndarray_to_file(ROWS, tmp_path / "b.blp", 80, shard=True)
    assert (tmp_path / "b.blp").read_bytes() == (tmp_path / "a.blp").read_bytes()
