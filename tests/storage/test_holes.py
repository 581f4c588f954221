"""Holes: blocks of zero bytes are not written, and the file reads the same."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys

import blosc
import numpy as np
import pytest
from support import environment

import bloscpack
from bloscpack.file_io import PlainFPSink, unpack_fp_to_fp
from bloscpack.npy_io import unpack_npy_from_file

MB = 2**20
NOISE = random.Random(1).randbytes(3 * MB)


def has_holes(folder):
    """Return whether the file system of a folder stores holes."""
    path = folder / "probe"
    with open(path, "wb") as fp:
        fp.truncate(MB)
    return os.stat(path).st_blocks == 0


@pytest.fixture(autouse=True)
def _needs_holes(tmp_path):
    if not hasattr(os, "preadv") or not has_holes(tmp_path):
        pytest.skip("the file system has no holes")


def used(path):
    """Return the bytes that a file takes on the disk."""
    return os.stat(path).st_blocks * 512


# Files

PLAIN = {
    "zeros": bytes(20 * MB),
    "zeros at the end": NOISE + bytes(9 * MB + 5),
    "zeros at the start": bytes(9 * MB + 5) + NOISE,
    "zeros between": (NOISE[:MB] + bytes(8 * MB)) * 3,
    "one byte": bytes(5 * MB) + b"x",
}


@pytest.mark.parametrize("chunk_size", ["1M", "100000B", "9M"])
@pytest.mark.parametrize("name", PLAIN)
def test_decompress_leaves_holes(tmp_path, name, chunk_size):
    plain = PLAIN[name]
    packed, out = tmp_path / "x.blp", tmp_path / "x"
    bloscpack.pack_bytes_to_file(plain, packed, chunk_size)
    bloscpack.unpack_file_from_file(packed, out)
    assert plain == out.read_bytes()
    assert used(out) < len(plain) - plain.count(0) + len(plain) // 10
    bloscpack.unpack_file_from_file(packed, out, sparse=False)
    assert plain == out.read_bytes()
    assert len(plain) <= used(out)


def test_an_empty_file(tmp_path):
    bloscpack.pack_bytes_to_file(b"", tmp_path / "x.blp")
    bloscpack.unpack_file_from_file(tmp_path / "x.blp", tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == b""


def test_an_array(tmp_path):
    array = np.zeros(2 * MB)
    array[5:100] = 1
    bloscpack.pack_ndarray_to_file(array, tmp_path / "x.blp")
    unpack_npy_from_file(tmp_path / "x.blp", tmp_path / "x.npy")
    assert (np.load(tmp_path / "x.npy") == array).all()
    assert used(tmp_path / "x.npy") < MB


def test_old_bytes_are_overwritten_with_zeros(tmp_path):
    """A hole is no way to write zeros over bytes that a file has."""
    packed = bloscpack.pack_bytes_to_bytes(bytes(MB))
    path = tmp_path / "x"
    path.write_bytes(b"x" * 2 * MB)
    with open(path, "r+b") as fp:
        unpack_fp_to_fp(io.BytesIO(packed), fp)
        assert fp.tell() == MB
    assert bytes(MB) + b"x" * MB == path.read_bytes()
    with open(path, "ab") as fp:
        unpack_fp_to_fp(io.BytesIO(packed), fp)
    assert bytes(MB) + b"x" * MB + bytes(MB) == path.read_bytes()


def test_a_sink_of_which_nothing_but_put_is_called(tmp_path):
    """As code written for 0.16 does."""
    with open(tmp_path / "x", "wb") as fp:
        PlainFPSink(fp).put(blosc.compress(bytes(MB), 8))
    assert (tmp_path / "x").read_bytes() == bytes(MB)


# The command


def blpk(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "bloscpack", *map(str, arguments)],
        env=environment(),
        check=True,
        timeout=300,
        **options,
    )


@pytest.mark.parametrize("options", [(), ("--no-sparse",)])
@pytest.mark.parametrize("way", ["name", "--output -", "/dev/stdout", "link"])
def test_every_way_to_a_regular_file(tmp_path, way, options):
    plain = NOISE[:100000] + bytes(9 * MB) + NOISE[:100000] + bytes(3 * MB + 1)
    packed, out = tmp_path / "x.blp", tmp_path / "out"
    bloscpack.pack_bytes_to_file(plain, packed)
    if way == "name":
        blpk("decompress", *options, packed, out)
    elif way == "link":
        out.write_bytes(b"old")
        (tmp_path / "link").symlink_to(out)
        blpk("-f", "decompress", *options, packed, tmp_path / "link")
    else:
        with open(out, "wb") as fp:
            blpk("decompress", *options, packed, *way.split(), stdout=fp)
    assert plain == out.read_bytes()
    assert (used(out) < MB) is (not options)


def test_standard_output_behind_other_bytes(tmp_path):
    bloscpack.pack_bytes_to_file(bytes(MB), tmp_path / "x.blp")
    with open(tmp_path / "out", "wb") as fp:
        fp.write(b"before")
        fp.flush()
        for _ in range(2):
            blpk("decompress", tmp_path / "x.blp", "-", stdout=fp)
        os.write(fp.fileno(), b"after")
    content = b"before" + bytes(2 * MB) + b"after"
    assert content == (tmp_path / "out").read_bytes()
    assert used(tmp_path / "out") < MB


def test_standard_output_is_never_sought_otherwise(tmp_path):
    """In a pipe, for appending, and over old bytes, all zeros are written."""
    bloscpack.pack_bytes_to_file(bytes(MB), tmp_path / "x.blp")
    piped = blpk("decompress", tmp_path / "x.blp", "-", stdout=subprocess.PIPE)
    assert bytes(MB) == piped.stdout
    for mode in ("ab", "r+b"):
        (tmp_path / "out").write_bytes(b"x" * 2 * MB)
        with open(tmp_path / "out", mode) as fp:
            blpk("decompress", tmp_path / "x.blp", "-", stdout=fp)
        rest = bytes(MB) + b"x" * MB if mode == "r+b" else b"x" * 2 * MB + bytes(MB)
        assert rest == (tmp_path / "out").read_bytes()
