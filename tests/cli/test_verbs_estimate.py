"""`blpk estimate`: sizes that are exact, and memory that is enough."""

import json

import pytest
from cli.verb_support import assert_help_fits, run_verb
from support import BLP

import bloscpack
from bloscpack import BloscArgs, BloscpackArgs
from bloscpack.headers import BloscpackHeader

NOISE = bytes((i * i * 7 + i // 3) & 0xFF for i in range(100_000))
CHUNK_SIZE = 10_000


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Chunks that are copied: what they take is known.
    args = BloscArgs(clevel=0), BloscpackArgs(offsets=False, checksum="None")
    bloscpack.pack_bytes_to_file(NOISE, "a.blp", CHUNK_SIZE, None, *args)
    return tmp_path


def estimated(capsys, *arguments, **options):
    assert 0 == run_verb("estimate", "--json", *arguments, **options)
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("nthreads", "used", "waiting"), [(1, 1, 1), (2, 2, 7), (3, 3, 10), (64, 10, 10)]
)
def test_memory(folder, capsys, nthreads, used, waiting):
    (found,) = estimated(capsys, "a.blp", nthreads=nthreads)
    assert (100_000, 10, used) == (found["nbytes"], found["nchunks"], found["nthreads"])
    # As stored, and six blocks of Blosc's, which here are as large as the chunk.
    working = used * (CHUNK_SIZE + 16 + 6 * CHUNK_SIZE)
    assert working + used * CHUNK_SIZE == found["memory_to_file"]
    assert working + waiting * CHUNK_SIZE == found["memory_to_pipe"]
    assert working + 100_000 == found["memory_in_memory"]


def test_header_that_does_not_tell(folder, capsys):
    header = BloscpackHeader(chunk_size=CHUNK_SIZE, typesize=8)
    data = (folder / "a.blp").read_bytes()
    (folder / "unknown.blp").write_bytes(header.encode() + data[32:])
    known, walked = estimated(capsys, "a.blp", "unknown.blp")
    assert (False, True) == (known.pop("walked"), walked.pop("walked"))
    assert known | {"file": "unknown.blp"} == walked


@pytest.mark.parametrize(
    ("layout", "release"), [(0, "rc1"), (1, "0.1.1"), (2, "0.2.1"), (3, "0.16.0")]
)
def test_any_layout(layout, release, capsys):
    paths = sorted(BLP.glob("**/%s-*.blp" % release))[:5]
    assert 5 == len(paths)
    for path in paths:
        (found,) = estimated(capsys, path)
        assert (layout < 2) == found["walked"]
        plain, _ = bloscpack.unpack_bytes_from_file(path)
        assert len(plain) == found["nbytes"]


def test_table(folder, capsys):
    assert 1 == run_verb("estimate", "--bytes", "missing", "a.blp")
    said = capsys.readouterr()
    titles, row, total = said.out.splitlines()
    assert titles.split()[:3] == ["unpacked", "chunks", "threads"]
    assert ["100000", "10", "2"] == row.split()[:3]
    assert ["100000", "10", "total", "of", "1", "file"] == total.split()
    assert "'missing'" in said.err
    assert 0 == run_verb("estimate", "a.blp")
    assert "97.66K" == capsys.readouterr().out.splitlines()[1].split()[0]


def test_file_without_plain_bytes(folder, capsys):
    bloscpack.pack_bytes_to_file(b"", "empty.blp")
    (found,) = estimated(capsys, "empty.blp")
    assert (0, 1) == (found["nbytes"], found["nchunks"])


def test_help():
    assert_help_fits("estimate")
