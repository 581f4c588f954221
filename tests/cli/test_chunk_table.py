"""`blpk info --chunks`: the sizes and the state of each chunk."""

import json
import os
import threading

import numpy as np
import pytest
from cli.verb_support import run_verb

import bloscpack
from bloscpack import BloscArgs
from bloscpack.exceptions import NotReadable

CHUNK_SIZE = 4096
# Zeros, noise, and again.
KINDS = [0] * 5 + [1] * 10 + [0] * 5 + [1] * 30


def plain_of(kinds):
    noise = np.random.default_rng(1)
    return b"".join(
        noise.bytes(CHUNK_SIZE) if kind else bytes(CHUNK_SIZE) for kind in kinds
    )


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    args = BloscArgs(typesize=1, cname="lz4")
    bloscpack.pack_bytes_to_file(plain_of(KINDS), "a.blp", CHUNK_SIZE, None, args)
    return tmp_path


def damage(path, chunks):
    """Change a byte within some chunks."""
    from bloscpack.reader import Reader

    data = bytearray(path.read_bytes())
    with open(path, "rb") as fp:
        for number in chunks:
            data[int(Reader(fp)._file.state.offsets[number]) + 20] ^= 1
    path.write_bytes(data)


def table(capsys, *names, code=0, nthreads=2):
    """Return the lines of the table, without its title."""
    assert code == run_verb("info", "--chunks", *names, nthreads=nthreads)
    return capsys.readouterr().out.splitlines()[1:]


def in_json(capsys, *names, code=0):
    assert code == run_verb("info", "--chunks", "--json", *names)
    return json.loads(capsys.readouterr().out)


def damaged(lines):
    """Return the numbers of the damaged chunks in a table."""
    return [int(line.split()[3]) for line in lines if line.endswith("  damaged")]


@pytest.mark.parametrize("nthreads", [1, 2])
def test_one_row_for_each_chunk(capsys, nthreads):
    *rows, total = table(capsys, "a.blp", nthreads=nthreads)
    assert list(range(len(KINDS))) == [int(row.split()[3]) for row in rows]
    for kind, row in zip(KINDS, rows, strict=True):
        plain, _, ratio, _, state = row.split()
        assert ("4.0K", "ok") == (plain, state)
        assert (float(ratio) < 1.1) == bool(kind)
    assert total.split()[0] == "200.0K"
    assert total.endswith("50 chunks, 0 damaged: a.blp")


def test_json(capsys, folder):
    found = in_json(capsys, "a.blp")
    assert ("a.blp", 50, 0, []) == tuple(
        found[key] for key in ("file", "nchunks", "ndamaged", "errors")
    )
    assert list(range(50)) == [row["chunk"] for row in found["chunks"]]
    assert 50 * CHUNK_SIZE == sum(row["nbytes"] for row in found["chunks"])
    described = bloscpack.info("a.blp")
    digests = 4 * 50
    before = described.cbytes - digests - sum(r["cbytes"] for r in found["chunks"])
    assert 50 * 8 < before < 5000  # header and offset table
    damage(folder / "a.blp", [7])
    found = in_json(capsys, "a.blp", "a.blp", code=3)
    lost = {"chunk": 7, "nbytes": None, "cbytes": None}
    assert [lost, lost] == [entry["chunks"][7] for entry in found]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipe(folder, capsys):
    expected = table(capsys, "a.blp")
    os.mkfifo("pipe")
    data = (folder / "a.blp").read_bytes()
    writer = threading.Thread(target=(folder / "pipe").write_bytes, args=(data,))
    writer.start()
    found = table(capsys, "pipe")
    writer.join()
    assert expected == [line.replace("pipe", "a.blp") for line in found]


def test_damaged_chunks(folder, capsys):
    damage(folder / "a.blp", [3, 7, 8, 9, 49])
    lines = table(capsys, "a.blp", code=3)
    assert [3, 7, 8, 9, 49] == damaged(lines)
    assert lines[-1].endswith("50 chunks, 5 damaged: a.blp")


def test_missing_chunks(folder, capsys):
    data = (folder / "a.blp").read_bytes()
    (folder / "a.blp").write_bytes(data[:-10_000])
    assert [47, 48, 49] == damaged(table(capsys, "a.blp", code=3))


def test_damage_in_front_of_the_chunks(folder, capsys):
    array = np.arange(1000.0)
    bloscpack.pack_ndarray_to_file(array, "b.blp", "2K")
    data = bytearray((folder / "b.blp").read_bytes())
    data[70] ^= 1
    (folder / "b.blp").write_bytes(data)
    lines = table(capsys, "b.blp", code=3)
    assert [] == damaged(lines)
    total = next(i for i, line in enumerate(lines) if ", 0 damaged: b.blp" in line)
    assert all("section 'metadata'" in error for error in lines[total + 1 :])


def test_what_is_no_bloscpack_file(folder):
    (folder / "plain").write_bytes(bytes(1000))
    with pytest.raises(NotReadable, match="magic marker"):
        run_verb("info", "--chunks", "plain")
    with pytest.raises(OSError, match="does not exist"):
        run_verb("info", "--chunks", "missing")


def test_file_of_one_empty_chunk(capsys):
    bloscpack.pack_bytes_to_file(b"", "empty.blp")
    row, total = table(capsys, "empty.blp")
    assert ["0B", "16.0B", "0.00", "0", "ok"] == row.split()
    assert total.endswith("1 chunk, 0 damaged: empty.blp")
