"""Two properties: a file that verify calls sound can be read; one bit changes no data.

`disagreement` gives a file to `verify` and, if it is ok, to every reader: each has to
return as many bytes as `verify` counted. The inputs are the golden and the invalid
files, small files in which one bit or byte differs, random edits, and damaged files.
"""

from __future__ import annotations

import functools
import io
import random
import sys

import builders
import numpy
import pytest
from check.harm import KINDS, damaged_file
from fuzz import files
from support import BLP, TESTS, ShortReads, golden_files

import bloscpack as bp
from bloscpack import abstract_io, file_io, memory_io
from bloscpack.exceptions import FormatError, NotReadable, Unsupported
from bloscpack.reader import Reader
from bloscpack.serializers import is_array
from bloscpack.verify import verify_fp

INVALID = sorted((TESTS / "invalid").glob("*.blp"))
EDITED_QUICK, EDITED_SLOW = 200, 6000

quick_and_all = functools.partial(pytest.mark.parametrize, ids=["quick", "all"])


def read_bytes(data, path):
    return bp.unpack_bytes_from_bytes(data, nthreads=1)[0]


def read_stream(data, path):
    source = file_io.CompressedFPSource(ShortReads(data))
    sink = memory_io.PlainMemorySink()
    abstract_io.unpack(source, sink, nthreads=1)
    return b"".join(map(bytes, sink.chunks))


def read_file(data, path):
    path.write_bytes(data)
    out = path.with_suffix(".plain")
    bp.unpack_file_from_file(path, out)
    return out.read_bytes()


def read_spans(data, path):
    opened = Reader(io.BytesIO(data))
    middle = opened.nbytes // 2
    return opened.read(0, middle) + opened.read(middle, opened.nbytes)


def read_file_object(data, path):
    path.write_bytes(data)
    with bp.open(path) as fp:
        return fp.read()


READERS = (read_bytes, read_stream, read_file, read_spans, read_file_object)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("offsets", [True, False])
def test_damaged_chunk_without_plain_bytes_is_refused(read, offsets, tmp_path):
    data = builders.packed(b"", offsets=offsets)
    assert read(data, tmp_path / "file.blp") == b""
    for at in (-1, -20):
        damaged = bytearray(data)
        damaged[at] ^= 1
        with pytest.raises(FormatError):
            read(bytes(damaged), tmp_path / "file.blp")


def disagreement(data, path):
    """Return a sentence about readers that contradict verify, None if none does."""
    try:
        report = verify_fp(io.BytesIO(data), nthreads=1)
    except (NotReadable, Unsupported):
        return None
    if not report.ok:
        return None
    for read in READERS:
        try:
            plain = read(data, path)
        except FormatError as error:
            return "%s: %s" % (read.__name__, error)
        if len(plain) != report.nbytes:
            return "%s: %d bytes, not %s" % (read.__name__, len(plain), report.nbytes)
    metadata = bp.unpack_bytes_from_bytes(data, nthreads=1)[1]
    if metadata is not None and is_array(metadata):
        try:
            array = bp.unpack_ndarray_from_bytes(data, nthreads=1)
        except FormatError as error:
            return "as an array: %s" % error
        if array.nbytes != report.nbytes:
            return "as an array: %d bytes, not %d" % (array.nbytes, report.nbytes)
    return None


def disagreements(cases, tmp_path):
    """Return the names of the cases that contradict verify, and how they do."""
    found = ((name, disagreement(data, tmp_path / "x.blp")) for name, data in cases)
    return [(name, sentence) for name, sentence in found if sentence is not None]


# Files that are there


@quick_and_all("step", [30, pytest.param(1, marks=pytest.mark.slow)])
def test_golden_files(step, tmp_path):
    entries = golden_files()[::step]
    cases = ((e["file"], (BLP / e["file"]).read_bytes()) for e in entries)
    assert [] == disagreements(cases, tmp_path)


def test_file_whose_codec_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cramjam", None)
    data = (BLP / "old/0.16.0-codec-snappy.blp").read_bytes()
    assert disagreement(data, tmp_path / "x.blp") is None


def test_invalid_files(tmp_path):
    cases = ((path.name, path.read_bytes()) for path in INVALID)
    assert [] == disagreements(cases, tmp_path)


# Each bit


def small_files():
    """Return small files of different layouts, by name."""
    plain = builders.text(70)
    pieces = [plain[:40], plain[40:]]
    packed = functools.partial(builders.packed, plain, 40, free_entries=1)
    metadata = functools.partial(packed, {"a": 1}, metadata_room=20)
    unknown = bytearray(packed(offsets=False))
    unknown[16:24] = b"\xff" * 8
    array = bp.pack_ndarray_to_bytes(
        numpy.arange(10, dtype="<i4"),
        chunk_size=32,
        bloscpack_args=bp.BloscpackArgs(max_app_chunks=1),
        metadata_args=bp.MetadataArgs(max_meta_size=100),
    )
    return {
        "plain": packed(offsets=False),
        "table": packed(),
        "full chunks": builders.packed(builders.text(120), 40, offsets=False),
        "metadata": metadata(),
        "metadata, plain": metadata(offsets=False, meta_checksum="None"),
        "metadata, table": metadata(meta_checksum="None"),
        "array": array,
        "no digests": packed(checksum="None"),
        "sha256": packed(checksum="sha256", offsets=False),
        "empty": builders.packed(b""),
        "unknown count": bytes(unknown),
        "layout 0": builders.layout(0, pieces),
        "layout 1": builders.layout(1, pieces),
        "layout 2": builders.layout(2, pieces, chunk_size=40, last_chunk=30),
    }


SMALL = small_files()
WITH_DIGESTS = [name for name, data in SMALL.items() if data[4] == 3 and data[6]]


def flips(data, step):
    """Yield the number of a bit and the file in which it is changed."""
    for bit in range(0, 8 * len(data), step):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        yield bit, bytes(changed)


def shifts(data, step):
    """Yield an offset and the file without the byte there, or with one more."""
    for at in range(0, len(data), step):
        yield at, data[:at] + data[at + 1 :]
        yield at, data[:at] + b"\0" + data[at:]


@quick_and_all("step", [37, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SMALL)
def test_each_bit(name, step, tmp_path):
    assert [] == disagreements(flips(SMALL[name], step), tmp_path)


@quick_and_all("step", [7, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SMALL)
def test_each_byte_that_is_missing_or_added(name, step, tmp_path):
    assert [] == disagreements(shifts(SMALL[name], step), tmp_path)


@quick_and_all("step", [7, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", WITH_DIGESTS)
def test_one_bit_changes_no_data(name, step):
    """A reader returns what was packed, or raises."""
    expected = bp.unpack_bytes_from_bytes(SMALL[name])
    wrong = []
    for bit, data in flips(SMALL[name], step):
        try:
            found = bp.unpack_bytes_from_bytes(data, nthreads=1)
        except FormatError:
            continue
        if found[0] != expected[0]:
            wrong.append((bit, len(found[0])))
    assert [] == wrong


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("nchunks", [-1, 2])
@pytest.mark.parametrize("sizes", [(10, 20), (20, 10), (10, 10)])
@pytest.mark.parametrize("last_chunk", [-1, 10, 20])
@pytest.mark.parametrize("chunk_size", [-1, 10, 20])
def test_sizes_are_judged_alike(version, nchunks, sizes, last_chunk, chunk_size):
    """What verify refuses no reader returns, and the other way round."""
    data = builders.layout(
        version,
        [bytes(size) for size in sizes],
        nchunks=nchunks,
        chunk_size=chunk_size,
        last_chunk=last_chunk,
    )
    found = []
    for read in (read_bytes, read_stream, read_spans):
        try:
            found.append(len(read(data, None)))
        except FormatError:
            found.append(None)
    expected = sum(sizes) if verify_fp(io.BytesIO(data), nthreads=1).ok else None
    assert [expected] * 3 == found


# Random edits


@quick_and_all(
    "count", [EDITED_QUICK, pytest.param(EDITED_SLOW, marks=pytest.mark.slow)]
)
def test_edited_files(count, tmp_path):
    made = ((seed, files.made(random.Random(seed), tmp_path)) for seed in range(count))
    assert [] == disagreements(made, tmp_path)


@quick_and_all(
    "count", [EDITED_QUICK, pytest.param(EDITED_SLOW, marks=pytest.mark.slow)]
)
def test_edited_small_files(count, tmp_path):
    def edited(seed):
        pick = random.Random(seed)
        data = pick.choice([*SMALL.values()])
        return files.mutated(data, pick, lambda old: files.change_some_bytes(old, pick))

    made = ((seed, edited(seed)) for seed in range(count))
    assert [] == disagreements(made, tmp_path)


@quick_and_all("count", [3, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files(kind, count, tmp_path):
    made = ((seed, bytes(damaged_file(seed, kind)[1].data)) for seed in range(count))
    assert [] == disagreements(made, tmp_path)
