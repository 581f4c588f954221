"""The choice of settings: what data get, and what the choice costs."""

import numpy as np
import pytest
from builders import prose as text

from bloscpack import (
    BloscArgs,
    append_bytes_to_file,
    pack_bytes_to_bytes,
    pack_bytes_to_file,
    repack,
    unpack_bytes_from_bytes,
)
from bloscpack.constants import MAX_BUFFERSIZE
from bloscpack.exceptions import UsageError, UsageTypeError, UsageValueError
from bloscpack.headers import decode_blosc_header

MIB = 2**20
NONE, SHUFFLE, BITSHUFFLE = range(3)
GOALS = "speed", "balanced", "ratio"


def numbers(nbytes=MIB, dtype="f8"):
    """Return numbers that grow slowly, and whose last bits are noise."""
    rng = np.random.default_rng(1)
    count = nbytes // np.dtype(dtype).itemsize
    return np.cumsum(rng.integers(0, 1000, count)).astype(dtype)


def rows(nbytes=MIB):
    """Return lines of numbers as text, whose digits repeat over short distances."""
    table = np.random.default_rng(1).normal(20, 5, (nbytes // 30 + 1, 3)).tolist()
    lines = ["%d,%.6f,%.6f,%.6f\n" % (i, *row) for i, row in enumerate(table)]
    return "".join(lines).encode()[:nbytes]


def noise(nbytes=MIB):
    return np.random.default_rng(1).bytes(nbytes)


def chosen(data, goal="balanced"):
    return BloscArgs.auto(data, goal)


def packed_size(data, goal):
    return len(pack_bytes_to_bytes(data, auto=goal))


# What data get


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_text_gets_no_filter_and_long_blocks(kind):
    found = chosen(kind(text(MIB)))
    expected = {"typesize": 1, "clevel": 2, "shuffle": NONE, "cname": "zstd"}
    assert (expected, 2 * MIB) == (dict(found), found.blocksize)
    found.check()


@pytest.mark.parametrize("make", [text, rows])
def test_the_block_size_is_the_better_one(make):
    data = make(4 * MIB)
    found = chosen(data)
    assert ("zstd", NONE) == (found.cname, found.shuffle)
    args = found.copy()
    sizes = {}
    for blocksize, chunk_size in ((0, "1M"), (2 * MIB, "2M")):
        args.blocksize = blocksize
        packed = pack_bytes_to_bytes(data, blosc_args=args, chunk_size=chunk_size)
        sizes[blocksize] = len(packed)
    assert min(sizes, key=sizes.get) == found.blocksize
    assert (0 if make is rows else 2 * MIB) == found.blocksize


def test_numbers_get_a_filter():
    for dtype, size in (("i8", 8), ("i4", 4)):
        found = chosen(numbers(2 * MIB, dtype).tobytes())
        assert found.shuffle in (SHUFFLE, BITSHUFFLE)
        assert size == found.typesize


def test_noise_gets_a_fast_codec():
    assert ("lz4", NONE) == (chosen(noise()).cname, chosen(noise()).shuffle)


@pytest.mark.parametrize("make", [text, numbers])
def test_goals(make):
    data = bytes(make(MIB))
    sizes = {goal: packed_size(data, goal) for goal in GOALS}
    assert sizes["ratio"] <= sizes["balanced"] <= sizes["speed"]
    assert sizes["ratio"] < sizes["speed"] < len(pack_bytes_to_bytes(noise()))


def lines(nbytes):
    """Return the numbers from 1 on as text."""
    return b"".join(b"%d\n" % (i + 1) for i in range(nbytes // 2))[:nbytes]


def smooth(nbytes):
    return np.linspace(0, 1, nbytes // 8).tobytes()


def mixed(nbytes):
    """Return text, numbers and noise behind each other."""
    third = nbytes // 3
    return text(third) + bytes(numbers(third)) + noise(third)


SLOW = pytest.mark.slow


@pytest.mark.parametrize("make", [text, rows, lines, smooth, numbers, noise, mixed])
@pytest.mark.parametrize(
    "size", [100, 30_000, *(pytest.param(n, marks=SLOW) for n in (100_000, MIB))]
)
def test_ratio_is_never_larger_than_balanced(make, size):
    data = bytes(make(size))
    sizes = {goal: packed_size(data, goal) for goal in ("balanced", "ratio")}
    assert sizes["ratio"] <= sizes["balanced"]


def test_ratio_of_lines_is_as_good_as_a_filter_for_two_bytes():
    data = lines(277_946)
    by_hand = BloscArgs(typesize=2, clevel=6, cname="zstd")
    packed = pack_bytes_to_bytes(data, blosc_args=BloscArgs.auto(data, "ratio"))
    assert len(packed) <= len(pack_bytes_to_bytes(data, blosc_args=by_hand))


def repetitive(nbytes):
    """Return lines that zstd 9 compresses at 0.2 MB/s in blocks of 8 MiB."""
    count = nbytes // 16
    rows = ["%d,%.3f,%s\n" % (i, 0.7 * i, "ab" * (i % 3)) for i in range(count)]
    return "".join(rows).encode()[:nbytes]


@pytest.mark.parametrize("make", [repetitive, text, rows, smooth, numbers])
def test_ratio_stops_at_a_level_that_pays(make):
    found = chosen(bytes(make(3 * MIB)), "ratio")
    assert ("zstd", True) == (found.cname, found.clevel <= 6)


def test_short_data_get_the_defaults():
    """A choice would take longer than everything else, and save less."""
    array = np.zeros(500, "i4")
    assert BloscArgs(typesize=4) == BloscArgs.auto(array)
    assert BloscArgs() != BloscArgs.auto(array, "ratio")
    assert BloscArgs() == BloscArgs.auto(b"")


def test_codecs_that_blosc_lacks(monkeypatch):
    monkeypatch.setattr("bloscpack.constants.CNAME_AVAIL", ["blosclz"], raising=False)
    for goal in GOALS:
        assert "blosclz" == chosen(text(1000), goal).cname


# In the library


@pytest.mark.parametrize(
    ("array", "typesize"),
    [
        (numbers(dtype="f4"), 4),
        (numbers().reshape(-1, 2)[:, ::-1], 8),
        (numbers().astype("M8[s]"), 8),
        (np.zeros(10**4, [("a", "u1"), ("b", "f8")]), 9),
        (np.array(7), 8),
        (np.zeros(0, "i4"), 4),
    ],
)
def test_sample_of_an_array(array, typesize):
    assert typesize == BloscArgs.auto(array).typesize


def test_sample_that_is_not_contiguous():
    array = numbers(2 * MIB, "f4").reshape(-1, 4)
    for sample in (array[::2], array[:, ::-1], array[:, 1:3], array.T[::2]):
        whole = BloscArgs.auto(sample.copy())
        assert whole == BloscArgs.auto(sample)
        assert 4 == whole.typesize
        assert whole == BloscArgs.auto(memoryview(sample))
    assert BloscArgs.auto(array) == BloscArgs.auto(np.asfortranarray(array.T))
    data = text(MIB)
    assert BloscArgs.auto(data[::-1]) == BloscArgs.auto(memoryview(data)[::-1])
    assert BloscArgs.auto(b"") == BloscArgs.auto(memoryview(np.zeros((0, 3), "u1")))


def test_large_strided_sample_is_not_copied():
    array = np.broadcast_to(np.float32(1), (10**6, 10**6))
    assert 4 == BloscArgs.auto(array).typesize


@pytest.mark.parametrize("dtype", ["f8", [("a", "i4"), ("b", "f8")]])
def test_masked_array_is_no_sample(dtype):
    array = np.ma.masked_array(np.zeros(100, dtype))
    with pytest.raises(UsageTypeError, match="masked array, which can't be stored"):
        BloscArgs.auto(array)
    BloscArgs.auto(array.data)


@pytest.mark.parametrize("sample", [3, "text", None, np.array([None, 1])])
def test_sample_of_something_else(sample):
    with pytest.raises(UsageTypeError, match="a sample must be bytes or an array"):
        BloscArgs.auto(sample)


def test_unknown_goal():
    with pytest.raises(UsageError, match="ratio, not 'best'") as caught:
        BloscArgs.auto(b"", "best")
    assert isinstance(caught.value, ValueError)


def test_long_blocks():
    data = text(3 * MIB)
    args = BloscArgs.auto(data)
    packed = pack_bytes_to_bytes(data, blosc_args=args, chunk_size="2M")
    start = int.from_bytes(packed[32:40], "little")  # the first offset
    header = decode_blosc_header(packed[start : start + 16])
    assert 2 * MIB == header["nbytes"] == header["blocksize"]
    assert data == unpack_bytes_from_bytes(packed)[0]
    without = BloscArgs(**args)
    assert 0 == without.blocksize
    other = pack_bytes_to_bytes(data, blosc_args=without, chunk_size="2M")
    assert len(packed) < 0.98 * len(other)
    assert data == unpack_bytes_from_bytes(other)[0]
    assert args.blocksize == args.copy().blocksize


def test_long_blocks_do_not_depend_on_threads():
    data = text(9 * MIB // 2)
    args = BloscArgs.auto(data)
    packed = {
        pack_bytes_to_bytes(data, blosc_args=args, chunk_size="1M", nthreads=n)
        for n in (1, 2, 3)
    }
    assert 1 == len(packed)


# The block size


@pytest.mark.parametrize(
    ("size", "error"),
    [
        ("x", UsageTypeError),
        (1.5, UsageTypeError),
        (None, UsageTypeError),
        (-1, UsageValueError),
        (2**31, UsageValueError),
    ],
)
def test_invalid_block_size(size, error):
    args = BloscArgs()
    args.blocksize = size
    for call in (args.check, lambda: pack_bytes_to_bytes(b"abc", blosc_args=args)):
        with pytest.raises(error, match="'blocksize' must be"):
            call()


@pytest.mark.parametrize("size", [1, 2**16, np.int64(2**16), MAX_BUFFERSIZE])
def test_valid_block_size(size):
    args = BloscArgs(cname="zstd", shuffle=0)
    args.blocksize = size
    data = text(2**17)
    packed = pack_bytes_to_bytes(data, blosc_args=args)
    assert data == unpack_bytes_from_bytes(packed)[0]


def test_block_size_is_compared():
    args, other = BloscArgs(), BloscArgs()
    other.blocksize = 2**16
    assert args == BloscArgs() == dict(args)
    assert args != other
    assert other != dict(other)
    assert other == other.copy()
    assert args != 5


def test_append_and_repack_ignore_the_block_size(tmp_path):
    data = text(MIB)
    args = BloscArgs(cname="zstd", shuffle=0)
    other = args.copy()
    other.blocksize = 2**12
    contents = set()
    for i, used in enumerate((args, other)):
        path = tmp_path / str(i)
        pack_bytes_to_file(data, path, blosc_args=args)
        append_bytes_to_file(data, path, blosc_args=used)
        repack(path, cname="zstd", clevel=3)
        contents.add(path.read_bytes())
    assert 1 == len(contents)
