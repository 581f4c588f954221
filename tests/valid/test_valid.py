"""The valid files: every reader returns what `valid/MANIFEST.json` says.

They are unusual files that the rules of docs/format.rst allow. `valid/make.py` writes
them.
"""

from __future__ import annotations

import io
import itertools
import json
import struct

import numpy
import pytest
import samples
from support import TESTS, ShortReads, sha256
from valid import make

import bloscpack as bp
from bloscpack import abstract_io, cli, file_io, log, memory_io
from bloscpack.append import append_fp, append_from
from bloscpack.exceptions import DoesNotFit, FormatError, UsageError
from bloscpack.reader import Reader
from bloscpack.recover import recover
from bloscpack.repacking import repack
from bloscpack.verify import verify, verify_fp

VALID = TESTS / "valid"
MANIFEST = json.loads((VALID / "MANIFEST.json").read_text("ascii"))
# NumPy 1 has at most 32 axes.
NAMES = [
    name
    for name in MANIFEST
    if name != "shape-64" or numpy.lib.NumpyVersion(numpy.__version__) >= "2.0.0"
]

each_file = pytest.mark.parametrize("name", NAMES)
each_array = pytest.mark.parametrize(
    "name", [name for name in NAMES if MANIFEST[name]["array"]]
)


@pytest.fixture
def path(tmp_path, name):
    """Return the path of a copy of the file, alone in its folder."""
    path = tmp_path / "a.blp"
    path.write_bytes((VALID / (name + ".blp")).read_bytes())
    return path


def read_bytes(path):
    return bp.unpack_bytes_from_bytes(path.read_bytes(), nthreads=1)


def read_bytes_from_file(path):
    return bp.unpack_bytes_from_file(path, nthreads=2)


def read_file(path):
    out = path.with_suffix(".out")
    return out, bp.unpack_file_from_file(path, out)


def read_stream(path):
    source = file_io.CompressedFPSource(ShortReads(path.read_bytes()))
    sink = memory_io.PlainMemorySink()
    abstract_io.unpack(source, sink, nthreads=1)
    return b"".join(map(bytes, sink.chunks)), source.metadata


def read_spans(path):
    with path.open("rb") as fp:
        opened = Reader(fp)
        middle = opened.nbytes // 2
        first, rest = opened.read(0, middle), opened.read(middle, opened.nbytes)
        return first + rest, opened.metadata


READERS = (read_bytes, read_bytes_from_file, read_file, read_stream, read_spans)


def expected_metadata(entry):
    text = entry["metadata"]
    return None if text is None else json.loads(text)


def check_plain(entry, plain):
    assert entry["plain"] == {"size": len(plain), "sha256": sha256(plain)}


def check_array(entry, array):
    expected = entry["array"]
    descr = expected["dtype"]
    if isinstance(descr, list):
        descr = [fields_of(field) for field in descr]
    assert numpy.lib.format.descr_to_dtype(descr) == array.dtype
    assert tuple(expected["shape"]) == array.shape
    flags = array.flags
    assert flags.f_contiguous if expected["order"] == "F" else flags.c_contiguous
    check_plain(entry, array.tobytes(expected["order"]))


def fields_of(field):
    name, descr, *shape = field
    if isinstance(descr, list):
        descr = [fields_of(inner) for inner in descr]
    name = tuple(name) if isinstance(name, list) else name
    return (name, descr, *map(tuple, shape))


@each_file
@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_read(path, name, read):
    entry = MANIFEST[name]
    if read is read_stream and "X1" in entry["rules"]:
        with pytest.raises(FormatError, match="can't be used here"):
            read(path)
        return
    plain, metadata = read(path)
    check_plain(entry, plain if isinstance(plain, bytes) else plain.read_bytes())
    # As text: NaN is not equal to NaN, and 1 is equal to True.
    assert json.dumps(expected_metadata(entry)) == json.dumps(metadata)


@each_array
def test_read_as_array(path, name):
    entry = MANIFEST[name]
    check_array(entry, bp.unpack_ndarray_from_bytes(path.read_bytes()))
    check_array(entry, bp.unpack_ndarray_from_file(path))


@pytest.mark.every_case
@each_file
def test_verify(path, name):
    entry = MANIFEST[name]
    report = verify(path)
    check_findings(entry, report)
    assert entry["plain"]["size"] == report.nbytes == report.nbytes_intact
    assert report.nchunks == report.nintact
    check_findings(entry, verify_fp(ShortReads(path.read_bytes())))


def check_findings(entry, report):
    errors = [f for f in report.findings if f.severity == "error"]
    assert entry["errors"] == ["%s %s" % (f.section, f.kind) for f in errors]
    if not errors:
        assert entry["notes"] == [f.kind for f in report.findings]


@each_file
def test_recover(path, name):
    entry = MANIFEST[name]
    out = path.with_suffix(".recovered")
    recovery = recover(path, out)
    complete = "another" not in entry["notes"]
    # A file without chunks may be one whose chunks were lost: that is never certain.
    certain = recovery.nchunks > 0
    assert (complete and certain, certain) == (recovery.complete, recovery.certain)
    plain, metadata = read_bytes(out)
    check_plain(entry, plain)
    assert json.dumps(expected_metadata(entry)) == json.dumps(metadata)
    if entry["array"]:
        check_array(entry, bp.unpack_ndarray_from_file(out))
    assert verify(out).ok


@each_file
def test_command(path, name, capsys, monkeypatch):
    monkeypatch.setattr(log, "PREFIX", log.PREFIX)
    entry = MANIFEST[name]
    # The command looks at the file behind, too, of which only the magic is there.
    behind = 3 if name == "tail-magic" else 0
    found = 3 if entry["errors"] else behind or int("trailing" in entry["notes"])
    codes = {"info": behind, "list": 0, "verify": found}
    for verb, code in codes.items():
        try:
            found = cli.main([verb, str(path)]) or 0
        except SystemExit as left:
            found = left.code or 0
        out, err = capsys.readouterr()
        assert (verb, code) == (verb, found), out + err
        assert "" == err


# Append


def append(data):
    """Return a file to which the plain bytes of the blank file have been appended."""
    fp = io.BytesIO(data)
    try:
        append_fp(fp, io.BytesIO(make.PLAIN), len(make.PLAIN), nthreads=1)
    except (FormatError, UsageError):
        assert data == fp.getvalue()
        raise
    return fp.getvalue()


@pytest.mark.parametrize(
    "name",
    [
        *("sound", "nchunks-0", "free-entry-0", "free-entry-position"),
        *("room-not-zero", "typesize-other", "json-nan", "dtype-fields", "keys-more"),
    ],
)
def test_append(path, name):
    """Rules O5, P2, P6 and P7: free entries, a file without chunks, and the shape."""
    old_plain, old_metadata = read_bytes(path)
    path.write_bytes(append(path.read_bytes()))
    plain, metadata = read_bytes(path)
    assert old_plain + make.PLAIN == plain
    if MANIFEST[name]["array"]:
        shape = [old_metadata["shape"][0] + 10]
        old_metadata["shape"] = shape
        assert shape == [*bp.unpack_ndarray_from_file(path).shape]
    assert json.dumps(old_metadata) == json.dumps(metadata)
    report = verify(path)
    assert report.ok
    entry = struct.unpack_from(
        "<%dq" % report.nchunks, path.read_bytes(), table_at(path)
    )
    assert report.nchunks == len(set(entry))


def table_at(path):
    with path.open("rb") as fp:
        header = file_io.CompressedFPSource(fp).bloscpack_header
        return fp.tell() - 8 * (header.nchunks + header.max_app_chunks)


def test_first_chunk_of_a_file_without_chunks(tmp_path):
    path = tmp_path / "a.blp"
    old = (VALID / "nchunks-0.blp").read_bytes()
    new = append(old)
    path.write_bytes(new)
    sizes = struct.unpack_from("<iiqq", new, 8)
    # The chunk size grows, the table loses a free entry, and the chunk is behind it.
    assert (40, 40, 1, 2) == sizes
    assert (len(old), -1, -1) == struct.unpack_from("<3q", new, table_at(path))


@pytest.mark.parametrize("name", ["table-swapped", "table-zero", "layout-3-two-l"])
def test_append_refuses_what_readers_do_not_need(path, name):
    with pytest.raises((FormatError, UsageError)):
        append(path.read_bytes())


@pytest.mark.filterwarnings("ignore:.*a change was interrupted:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:.*dropping:RuntimeWarning")
@pytest.mark.parametrize("name", [name for name in MANIFEST if name.startswith("undo")])
def test_writers_restore_and_drop(path, name):
    """Rules X7 and X8: the record is gone, and so are bytes behind the last chunk."""
    old_plain, _ = read_bytes(path)
    append_from(path, io.BytesIO(make.PLAIN), len(make.PLAIN), needs_offsets=False)
    plain, _ = read_bytes(path)
    assert plain.startswith(old_plain)
    assert [] == verify(path).findings


# Shards that lack their trailer


@pytest.mark.parametrize(
    "name", [name for name in MANIFEST if "no-trailer" in MANIFEST[name]["notes"]]
)
def test_repack_makes_a_shard_again(path, name):
    """And if that is impossible, an ordinary file."""
    if name == "shard-order-f":
        with pytest.raises(DoesNotFit, match="Fortran order"):
            repack(path, shard=True)
    else:
        repack(path, shard=True)
        assert bp.info(path).shard.index
        assert [] == verify(path).findings
        check_array(MANIFEST[name], bp.unpack_ndarray_from_file(path))
    repack(path, shard=False)
    assert None is bp.info(path).shard
    assert [] == verify(path).findings
    check_array(MANIFEST[name], bp.unpack_ndarray_from_file(path))


# What writers of streams state


class Unseekable(io.BytesIO):
    """A file object that can't go back, like a pipe."""

    def seekable(self):
        return False

    def seek(self, *arguments):
        raise io.UnsupportedOperation("seek")


@pytest.mark.parametrize(
    ("size", "true_sizes"), [(0, (0, 0, 1)), (30, (30, 30, 1)), (250, (100, 50, 3))]
)
def test_sizes_that_a_writer_states(size, true_sizes):
    """Rules U4 and U5: a single chunk or none makes no difference to a stream."""
    for out, expected in ((Unseekable(), (100, -1, -1)), (io.BytesIO(), true_sizes)):
        source = file_io.PlainFPSource(ShortReads(bytes(size)))
        sink = file_io.CompressedFPSink(out)
        abstract_io.pack(source, sink, nchunks=-1, chunk_size=100, last_chunk=-1)
        data = out.getvalue()
        assert expected == struct.unpack_from("<iiq", data, 8)
        assert bytes(size) == bp.unpack_bytes_from_bytes(data)[0]
        assert verify_fp(io.BytesIO(data)).ok


# The files and the manifest


def test_every_file_is_listed():
    assert {*MANIFEST} == {path.stem for path in VALID.glob("*.blp")}
    assert {*MANIFEST} == {*make.FILES}


def test_files_and_manifest_are_made_again():
    assert (VALID / "MANIFEST.json").read_text("ascii") == make.manifest()
    for name, case in make.FILES.items():
        assert (VALID / (name + ".blp")).read_bytes() == case.content


def test_rules_exist():
    rules = samples.rules(samples.text())
    named = {rule for entry in MANIFEST.values() for rule in entry["rules"]}
    assert set() == named - {*rules}


def test_every_combination_of_unknown_sizes_is_there():
    found = set()
    for name, case in make.FILES.items():
        if name.startswith(("layout-2-", "layout-3-")):
            sizes = struct.unpack_from("<iiq", case.content, 8)
            count = name.split("-")[2]
            found.add((case.content[4], count, *(size == -1 for size in sizes)))
    for layout, count in itertools.product((2, 3), ("none", "one", "two")):
        for unknown in itertools.product((True, False), repeat=3):
            if any(unknown):
                assert (layout, count, *unknown) in found


def test_files_are_small():
    assert {
        path.stem for path in VALID.glob("*.blp") if path.stat().st_size > 2000
    } == {
        "json-digits",
        "json-fraction",
        "json-digits-text",
        "layout-1-258-chunks",
        "layout-0-1027-chunks",
    }
