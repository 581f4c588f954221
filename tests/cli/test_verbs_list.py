"""`blpk list`, and the description of a file that other verbs show too."""

import io
import json
import os
import sys

import numpy as np
import pytest
from cli.verb_support import console, run_verb

import bloscpack
from bloscpack import BloscArgs, BloscpackArgs, FormatError
from bloscpack.describe import describe
from bloscpack.headers import BloscpackHeader
from bloscpack.log import printable

PLAIN = bytes(range(256)) * 100
CHUNK_SIZE = 10_000


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    console.begin(owns_streams=False)
    args = BloscArgs(typesize=2, clevel=9, shuffle=2, cname="lz4")
    bloscpack.pack_bytes_to_file(PLAIN, "a.blp", CHUNK_SIZE, {"k": 1}, args)
    array = np.arange(3000.0).reshape(1000, 3)
    bloscpack.pack_ndarray_to_file(array, "b.blp", "8K")
    return tmp_path


def without_sizes(data, checksum="adler32"):
    """Return a file without offsets whose header tells no sizes."""
    header = BloscpackHeader(chunk_size=CHUNK_SIZE, checksum=checksum, typesize=8)
    return header.encode() + data[32:]


# describe


def test_description(folder):
    found = describe("a.blp")
    size = os.path.getsize("a.blp")
    assert (3, 25_600, size, 3) == tuple(
        found[name] for name in ("format_version", "nbytes", "cbytes", "nchunks")
    )
    assert round(25_600 / size, 4) == found["ratio"]
    assert {"k": 1} == found["metadata"]
    assert "JSON" == found["metadata_header"]["magic_format"]
    assert {"count": 3, "free": 30, "plausible": True} == found["offsets"]
    assert "adler32" == found["checksum"] == found["header"]["checksum"]
    assert None is found["array"]
    chunk = found["first_chunk"]
    assert ("lz4", "bitshuffle", False, 2, CHUNK_SIZE) == tuple(
        chunk[name] for name in ("codec", "filter", "copied", "typesize", "nbytes")
    )
    assert found == json.loads(json.dumps(found))


def test_only_the_beginning_is_read(folder):
    data = (folder / "a.blp").read_bytes()
    first_at = data.index(b"\x02\x01", 32 + 32)
    (folder / "cut.blp").write_bytes(data[: first_at + 16] + bytes(CHUNK_SIZE))
    found = describe("cut.blp")
    assert (25_600, 3, False) == (found["nbytes"], found["nchunks"], found["walked"])


@pytest.mark.parametrize("length", [0, 1, 9_999, 10_000, 10_001, 25_600])
def test_sizes_that_the_header_does_not_tell(folder, length):
    packed = bloscpack.pack_bytes_to_bytes(
        PLAIN[:length], CHUNK_SIZE, bloscpack_args=BloscpackArgs(offsets=False)
    )
    (folder / "file.blp").write_bytes(packed)
    (folder / "unknown.blp").write_bytes(without_sizes(packed))
    known, found = describe("file.blp"), describe("unknown.blp")
    assert (False, True) == (known["walked"], found["walked"])
    names = ("nbytes", "nchunks", "cbytes", "largest_chunk", "first_chunk")
    assert [known[name] for name in names] == [found[name] for name in names]
    # A bound where the chunks were not all looked at.
    assert known["largest_cbytes"] >= found["largest_cbytes"]


@pytest.mark.parametrize("entry", [-1, 0, 2**62])
def test_table_that_can_not_be_true(folder, entry, run):
    data = bytearray((folder / "b.blp").read_bytes())
    count = describe("b.blp")["offsets"]["count"]
    first_at = data.index(b"\x02\x01", 100)
    second = first_at - 8 * 11 * count + 8
    data[second : second + 8] = entry.to_bytes(8, "little", signed=True)
    (folder / "b.blp").write_bytes(data)
    assert not describe("b.blp")["offsets"]["plausible"]
    code, out, _ = run("info", "b.blp")
    assert (0, True) == (code, "the offsets are wrong: see 'blpk verify'" in out)


def test_first_chunk_that_is_not_what_the_header_says(folder):
    data = bytearray((folder / "b.blp").read_bytes())
    data[8:12] = (9000).to_bytes(4, "little")
    (folder / "b.blp").write_bytes(data)
    with pytest.raises(FormatError, match=r"'9000' plain bytes, found '8192'.*b\.blp"):
        describe("b.blp")
    found = describe("b.blp", strict=False)
    assert (9000, 8192) == (found["largest_chunk"], found["first_chunk"]["nbytes"])


def test_text_that_would_move_the_cursor():
    assert "caf\xe9 \\x1b[2J\\n\\x80" == printable("caf\xe9 \x1b[2J\n\udc80")


# list


def columns(text):
    return [line.split() for line in text.splitlines()]


def test_list(folder, capsys):
    assert 0 == run_verb("list", "a.blp", "b.blp")
    titles, first, second, total = columns(capsys.readouterr().out)
    assert "plain packed ratio codec chunks checksum array name" == " ".join(titles)
    assert ["25.0K", "lz4", "3", "adler32", "-", "a.blp"] == [first[0], *first[3:]]
    assert [
        "23.44K", "blosclz", "3", "adler32", "<f8", "(1000,", "3)", "b.blp",
    ] == [second[0], *second[3:]]  # fmt: skip
    assert ["48.44K", "6", "total", "of", "2", "files"] == [total[0], *total[3:]]


def test_one_file_has_no_total(folder, capsys):
    assert 0 == run_verb("list", "a.blp")
    assert 2 == len(columns(capsys.readouterr().out))


def test_exact_sizes(folder, capsys):
    assert 0 == run_verb("list", "--bytes", "a.blp")
    row = columns(capsys.readouterr().out)[1]
    assert ["25600", str(os.path.getsize("a.blp"))] == row[:2]


def test_json(folder, capsys):
    assert 0 == run_verb("list", "--json", "a.blp", "b.blp")
    first, second = json.loads(capsys.readouterr().out)
    assert ("a.blp", 25_600, None) == (first["file"], first["nbytes"], first["array"])
    array = {"shape": [1000, 3], "dtype": "<f8", "order": "C", "chunks": None}
    assert array == second["array"]


def test_files_that_can_not_be_listed(folder, capsys):
    (folder / "plain").write_bytes(PLAIN)
    data = bytearray((folder / "a.blp").read_bytes())
    data[64] ^= 1
    (folder / "bad.blp").write_bytes(data)
    assert 1 == run_verb("list", "missing", "a.blp", "plain")
    said = capsys.readouterr()
    assert ["a.blp", "total of 1 file"] == [
        line[-len(end) :]
        for line, end in zip(
            said.out.splitlines()[1:], ("a.blp", "total of 1 file"), strict=True
        )
    ]
    missing, plain, hint = said.err.splitlines()
    assert "blpk: error: file 'missing' does not exist!" == missing
    assert "'plain'" in plain
    assert "magic marker" in plain
    assert "might not be a bloscpack" in hint
    assert 3 == run_verb("list", "bad.blp", "missing")
    said = capsys.readouterr()
    assert "" == said.out
    assert "'bad.blp', section 'metadata'" in said.err


def test_terminal_that_shows_little(folder, monkeypatch):
    os.rename("a.blp", "caf\xe9.blp")
    shown_ = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", shown_)
    assert 0 == run_verb("list", "caf\xe9.blp")
    shown_.flush()
    assert b"  caf\\xe9.blp\n" in shown_.buffer.getvalue()


@pytest.mark.parametrize(
    ("shown", "changes"),
    [
        ("<i4 (2, 2)", {"dtype": [["", "<i4"]]}),  # as 0.4.0 wrote it
        ("<i4 (2, 2)", {"dtype": "'<i4'"}),  # as 0.16 wrote it
        ("None (2, 2)", {}),
        ("<i4 (?)", {"dtype": "<i4", "shape": ["x"]}),
        ("\\x1b[2J (2, 2) F", {"dtype": "\x1b[2J", "order": "F"}),
        ("%s... (2, 2)" % ("x" * 21), {"dtype": "x" * 99}),
    ],
)
def test_arrays_in_words(folder, capsys, shown, changes):
    metadata = {"container": "numpy", "shape": [2, 2], **changes}
    bloscpack.pack_bytes_to_file(b"", folder / "x.blp", metadata=metadata)
    run_verb("list", "x.blp")
    assert shown in capsys.readouterr().out
