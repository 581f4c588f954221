"""Random access: any part, from the chunks that hold it and no others."""

import io
import itertools
import tracemalloc

import numpy as np
import pytest
from builders import described, packed
from engine.workers import end_workers

import bloscpack
from bloscpack import FormatError, UsageError
from bloscpack.exceptions import UsageTypeError
from bloscpack.headers import BloscpackHeader, decode_header
from bloscpack.reader import Reader

PLAIN = bytes(range(256)) * 5 + b"tail"
CHUNK_SIZE = 100


class Counting(io.BytesIO):
    """Remembers which bytes were read."""

    def __init__(self, data):
        super().__init__(data)
        self.bytes_read = 0

    def read(self, size=-1):
        data = super().read(size)
        self.bytes_read += len(data)
        return data


def with_unknown_length(data):
    """Return a file without offsets whose header does not tell how long it is."""
    header = BloscpackHeader(chunk_size=CHUNK_SIZE, checksum="adler32", typesize=8)
    return header.encode() + data[32:]


def opened_as(kind, data, tmp_path):
    if kind == "memory":
        return io.BytesIO(data)
    path = tmp_path / "file.blp"
    path.write_bytes(data)
    return open(path, "rb")


SPANS = [
    (0, 0),
    (0, 1),
    (0, 100),
    (99, 101),
    (100, 200),
    (150, 1050),
    (0, None),
    (-4, None),
    (-1000, -900),
    (7, 3),
    (len(PLAIN), None),
    (10**9, 10**10),
]


@pytest.mark.parametrize("kind", ["memory", "file"])
@pytest.mark.parametrize("nthreads", [1, 3])
@pytest.mark.parametrize("checksum", ["None", "adler32", "sha256"])
@pytest.mark.parametrize("offsets", [True, False])
def test_any_span(offsets, checksum, nthreads, kind, tmp_path):
    with opened_as(
        kind, packed(PLAIN, CHUNK_SIZE, checksum=checksum, offsets=offsets), tmp_path
    ) as fp:
        reader = Reader(fp)
        assert len(PLAIN) == reader.nbytes
        for start, stop in SPANS:
            assert PLAIN[start:stop] == reader.read(start, stop, nthreads=nthreads)


def test_file_of_unknown_length():
    reader = Reader(
        io.BytesIO(with_unknown_length(packed(PLAIN, CHUNK_SIZE, offsets=False)))
    )
    assert len(PLAIN) == reader.nbytes
    assert PLAIN[150:1050] == reader.read(150, 1050)


def test_empty_file():
    reader = Reader(io.BytesIO(packed(b"", CHUNK_SIZE)))
    assert 0 == reader.nbytes
    assert b"" == reader.read(0, None)


def test_only_the_chunks_needed_are_read():
    noise = np.random.default_rng(1).bytes(100 * CHUNK_SIZE)
    fp = Counting(packed(noise, CHUNK_SIZE))
    reader = Reader(fp)
    fp.bytes_read = 0
    assert noise[5010:5020] == reader.read(5010, 5020)
    assert fp.bytes_read < 2 * CHUNK_SIZE


def test_table_that_lies():
    data = bytearray(packed(PLAIN, CHUNK_SIZE, checksum="None"))
    first, second = slice(32, 40), slice(40, 48)
    data[second] = data[first]
    assert PLAIN[:300] == Reader(io.BytesIO(data)).read(0, 300)


def test_file_object_stays_open(tmp_path):
    path = tmp_path / "a.blp"
    path.write_bytes(packed(PLAIN, CHUNK_SIZE))
    fp = path.open("rb")
    reader = Reader(fp)
    assert PLAIN[5:305] == reader.read(5, 305)
    del reader
    assert not fp.closed
    fp.close()


def test_too_few_chunks_in_the_header():
    data = packed(PLAIN, CHUNK_SIZE)
    header = decode_header(data[:32])
    header.nchunks -= 1
    header.max_app_chunks += 1
    header.last_chunk = CHUNK_SIZE
    with pytest.raises(FormatError, match="another chunk follows the last one"):
        Reader(io.BytesIO(header.encode() + data[32:]))


@pytest.mark.parametrize("file", ["a.blp", 3])
def test_file_of_the_wrong_type(file):
    with pytest.raises(UsageTypeError, match=r"^expected a file object or bytes"):
        Reader(file)


def test_error_about_an_entry_has_the_place_of_the_entry():
    data = bytearray(packed(PLAIN, CHUNK_SIZE, metadata={"a": 1}))
    reader = Reader(io.BytesIO(data))
    entry = reader._file.state.entry_offset(2)
    assert reader._file.state.offsets[2] == int.from_bytes(
        data[entry : entry + 8], "little"
    )
    data[entry] += 5
    with pytest.raises(FormatError, match="chunk 2 starts at byte") as caught:
        Reader(io.BytesIO(data)).read(0, None)
    error = caught.value
    assert ("offsets", 2, entry) == (error.section, error.chunk, error.offset)


@pytest.mark.parametrize(
    "rows",
    [
        slice(None),
        slice(3, 7),
        slice(-2, None),
        slice(1, 50, 7),
        slice(None, None, 49),
        slice(5, 5),
        slice(9, 2),
        slice(40, 400),
    ],
)
@pytest.mark.parametrize("shape", [(50,), (50, 3), (50, 2, 0), (50, 1, 7)])
@pytest.mark.parametrize(("dtype", "order"), [("f8", "C"), ("f8", "F"), ("i4,S4", "C")])
def test_rows(shape, dtype, order, rows):
    plain = np.arange(np.prod(shape), dtype="f8").reshape(shape)
    array = plain.view(dtype).copy(order)
    reader = Reader(io.BytesIO(bloscpack.pack_ndarray_to_bytes(array, 24)))
    found = reader.read_rows(rows)
    assert (array[rows].shape, array.dtype) == (found.shape, found.dtype)
    assert array[rows].tobytes() == found.tobytes()


@pytest.mark.parametrize(
    ("message", "array", "rows"),
    [
        (r"shape \(\) has no rows", np.array(1.0), slice(None)),
        ("at least 1, not -1", np.ones(3), slice(None, None, -1)),
    ],
)
def test_rows_that_can_not_be_read(message, array, rows):
    reader = Reader(io.BytesIO(bloscpack.pack_ndarray_to_bytes(array)))
    with pytest.raises(UsageError, match=message):
        reader.read_rows(rows)


ROWS = [slice(None), slice(0), slice(1, 2), slice(0, 1), slice(None, None, 2)]


@pytest.mark.parametrize(
    "shape",
    [
        [0, 2**62],
        [2**62, 2**62, 0],
        [2**63 - 1, 0],
        [0, 2**40, 2**40, 2**40],
        [0] * 65,
    ],
    ids=["2", "rows", "rows of nothing", "4", "65"],
)
@pytest.mark.parametrize("rows", ROWS, ids=str)
def test_rows_of_an_array_that_can_not_be_made(rows, shape):
    data = described(b"", "'<i4'", shape)
    with pytest.raises(FormatError) as whole:
        bloscpack.unpack_ndarray_from_bytes(data)
    with pytest.raises(FormatError) as part:
        Reader(io.BytesIO(data)).read_rows(rows)
    assert str(whole.value) == str(part.value)
    assert "metadata" == part.value.section


@pytest.mark.parametrize("dtype", ["'|S0'", "'<U0'", "'|V0'", "[('a', '|S0')]", "[]"])
def test_rows_of_no_bytes(dtype):
    for shape, rows in itertools.product([[3], [0], [2, 3], [2**63 - 1], [5, 0]], ROWS):
        data = described(b"", dtype, shape)
        expected = bloscpack.unpack_ndarray_from_bytes(data)[rows]
        found = Reader(io.BytesIO(data)).read_rows(rows)
        assert (expected.shape, expected.dtype) == (found.shape, found.dtype)
        assert 0 == found.itemsize
        assert b"" == found.tobytes()


def test_rows_of_no_array():
    with pytest.raises(FormatError, match="metadata of an array"):
        Reader(io.BytesIO(packed(PLAIN, CHUNK_SIZE))).read_rows(slice(1))


def test_rows_with_a_step_wherever_chunks_end():
    for chunk_size, size, step, start in itertools.product(
        [1, 7, 10, 24, 1000], [1, 3, 24, 50], [2, 3, 11], [0, 1, 8]
    ):
        array = np.arange(25 * size, dtype="u2").astype("u1").reshape(25, size)
        args = bloscpack.BloscArgs(typesize=1)
        packed_ = bloscpack.pack_ndarray_to_bytes(array, chunk_size, blosc_args=args)
        rows = slice(start, None, step)
        found = Reader(io.BytesIO(packed_)).read_rows(rows)
        assert array[rows].tolist() == found.tolist()


def test_every_other_item_takes_no_memory_for_each():
    array = np.arange(2**22, dtype="u4").astype("u1")
    reader = Reader(io.BytesIO(bloscpack.pack_ndarray_to_bytes(array)))
    tracemalloc.start()
    try:
        found = reader.read_rows(slice(None, None, 2), nthreads=1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (array[::2] == found).all()
    assert peak < 5 * array.nbytes


@pytest.mark.parametrize("nthreads", [0, -5, 10**6])
def test_number_of_threads_is_checked(nthreads):
    with pytest.raises(UsageError, match="nthreads"):
        Reader(io.BytesIO(packed(PLAIN, CHUNK_SIZE))).read(0, 1, nthreads=nthreads)


@pytest.mark.parametrize("size", [1000, 2**20])
def test_small_chunks_need_no_other_thread(size, monkeypatch):
    plain = bytes(2) + bytes(range(250)) * (size // 100)
    reader = Reader(io.BytesIO(packed(plain, size)))

    def fail(self):
        raise AssertionError("a thread was started")

    end_workers()
    monkeypatch.setattr("threading.Thread.start", fail)
    for start, stop in ((0, 1), (10, size), (size, 2 * size), (-9, None), (5, 5)):
        assert plain[start:stop] == reader.read(start, stop, nthreads=4)
    if size == 1000:
        assert plain == reader.read(0, None, nthreads=4)
        return
    with pytest.raises(AssertionError, match="a thread was started"):
        reader.read(size - 1, size + 1, nthreads=4)
