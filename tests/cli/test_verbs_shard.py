"""Shards of Zarr arrays at the command line."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

import bloscpack
from bloscpack import cli


@pytest.fixture
def blpk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.arange(3000.0).reshape(300, 10))

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["blpk", *arguments])
        try:
            return cli.main() or 0
        except SystemExit as exit_:
            return exit_.code or 0

    return run


@pytest.mark.parametrize(
    ("options", "rows", "checksum"),
    [
        ([], 13107, "crc32c"),
        (["-z", "10K"], 128, "crc32c"),
        (["-z", "max"], 300, "crc32c"),
        (["-k", "adler32"], 13107, "adler32"),
    ],
)
def test_compress(blpk, options, rows, checksum):
    assert 0 == blpk("compress", "--npy", "--shard", *options, "a.npy", "a.blp")
    found = bloscpack.info("a.blp")
    assert (rows, True) == (found.shard.rows, found.shard.index)
    assert checksum == found.checksum
    assert 0 == blpk("decompress", "--npy", "a.blp", "b.npy")
    with open("a.npy", "rb") as old, open("b.npy", "rb") as new:
        assert old.read() == new.read()


def test_checksum_of_the_user(blpk, monkeypatch):
    monkeypatch.setenv("BLPK_DEFAULTS", "-k sha256")
    blpk("compress", "--npy", "--shard", "a.npy", "a.blp")
    assert "sha256" == bloscpack.info("a.blp").checksum


def test_needs_npy(blpk, capsys):
    assert 2 == blpk("compress", "--shard", "a.npy", "a.blp")
    assert "--shard needs --npy" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["-o", "a.npy", "a.blp"], ["a.npy", "-"]])
def test_needs_a_table(blpk, capfdbinary, options):
    read, write = os.pipe()
    os.dup2(write, 1)
    assert 2 == blpk("compress", "--npy", "--shard", *options)
    assert b"a Zarr shard needs an offset table" in capfdbinary.readouterr().err
    os.close(read)
    os.close(write)
    assert not os.path.exists("a.blp")


def test_shown(blpk, capsys):
    blpk("compress", "--npy", "--shard", "-z", "10K", "a.npy", "a.blp")
    capsys.readouterr()
    assert 0 == blpk("info", "a.blp")
    line = "shard:      128 rows in a chunk, 33 slots, with an index\n"
    assert line in capsys.readouterr().out
    assert 0 == blpk("info", "--json", "a.blp")
    found = json.loads(capsys.readouterr().out)["shard"]
    assert {"rows": 128, "slots": 33, "index": True} == found
    assert 0 == blpk("list", "a.blp")
    assert "<f8 (300, 10) shard  a.blp" in capsys.readouterr().out


def test_verify(blpk, capsys):
    blpk("compress", "--npy", "--shard", "a.npy", "a.blp")
    with open("a.blp", "r+b") as fp:
        content = fp.read()
        fp.seek(len(content) - 1)
        fp.write(bytes([content[-1] ^ 1]))
    assert 3 == blpk("verify", "a.blp")
    assert "the checksum of the shard index is" in capsys.readouterr().out
    assert 3 == blpk("info", "--chunks", "a.blp")
    assert 0 == blpk("recover", "a.blp", "b.blp")
    with open("b.blp", "rb") as fp:
        assert content == fp.read()
    with open("a.blp", "r+b") as fp:
        fp.truncate(content.index(b"shard\0\0\0"))
    capsys.readouterr()
    assert 0 == blpk("verify", "a.blp")
    assert "no shard index follows the chunks" in capsys.readouterr().out


def test_repack(blpk):
    assert 0 == blpk("compress", "--npy", "-z", "10K", "a.npy", "a.blp")
    assert 0 == blpk("repack", "--shard", "a.blp")
    found = bloscpack.info("a.blp")
    assert (128, True, "crc32c") == (
        found.shard.rows,
        found.shard.index,
        found.checksum,
    )
    assert 0 == blpk("repack", "-z", "20K", "a.blp")
    assert 256 == bloscpack.info("a.blp").shard.rows
    assert 0 == blpk("repack", "--no-shard", "-k", "adler32", "a.blp")
    found = bloscpack.info("a.blp")
    assert (None, "adler32") == (found.shard, found.checksum)
    assert 0 == blpk("repack", "--shard", "-k", "crc32", "a.blp")
    assert "crc32" == bloscpack.info("a.blp").checksum
    assert 0 == blpk("decompress", "--npy", "a.blp", "b.npy")
    with open("a.npy", "rb") as old, open("b.npy", "rb") as new:
        assert old.read() == new.read()


@pytest.mark.parametrize("options", [["--no-shard"], ["--no-metadata"]])
def test_repack_options_that_contradict_each_other(blpk, capsys, options):
    blpk("compress", "--npy", "a.npy", "a.blp")
    assert 2 == blpk("repack", "--shard", *options, "a.blp")
    assert "--shard" in capsys.readouterr().err


def test_rm_takes_the_trailer_for_known_bytes(blpk, tmp_path):
    blpk("compress", "--npy", "--shard", "a.npy", "a.blp")
    assert 0 == blpk("decompress", "--npy", "--rm", "--output", "b.npy", "a.blp")
    assert ["a.npy", "b.npy"] == sorted(path.name for path in tmp_path.iterdir())
