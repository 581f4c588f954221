"""``blpk repack``: which settings the options change."""

from __future__ import annotations

import numpy as np
import pytest
from cli.verb_support import Refusal, parser_of

import bloscpack
from bloscpack.cli import main
from bloscpack.exceptions import UsageError
from bloscpack.headers import decode_header


def blpk(*arguments, force=False):
    parser, run = parser_of("repack")
    parser.set_defaults(nthreads=2, force=force, sync=None, progress=False)
    return run(parser.parse_args([str(argument) for argument in arguments]))


@pytest.fixture
def path(tmp_path):
    """Return the name of an array file."""
    path = tmp_path / "array.blp"
    bloscpack.pack_ndarray_to_file(np.arange(999.0), path, 800)
    return path


@pytest.mark.parametrize(
    ("options", "field", "expected"),
    [
        (["-z", "1001"], "chunk_size", 1000),
        (["-z", "max"], "chunk_size", 7992),
        (["-t", "4"], "typesize", 4),
        (["-k", "md5"], "checksum", "md5"),
        (["-o"], "offsets", False),
        (["--max-app-chunks", "3"], "max_app_chunks", 3),
        (["-c", "zstd", "-l", "9", "--bitshuffle"], "checksum", "adler32"),
        (["--shuffle"], "chunk_size", 800),
    ],
)
def test_options(path, options, field, expected):
    assert blpk(*options, path) == 0
    assert expected == decode_header(path.read_bytes()[:32])[field]
    assert (np.arange(999.0) == bloscpack.unpack_ndarray_from_file(path)).all()


@pytest.mark.parametrize("goal", ["", "=ratio"])
@pytest.mark.parametrize("options", [[], ["-c", "zlib"], ["-z", "64K"]])
def test_auto_chooses_what_compress_chooses_for_the_array(tmp_path, goal, options):
    cents = np.round(np.random.default_rng(1).normal(100, 20, 60_000), 2)
    np.save(tmp_path / "cents.npy", cents)
    packed, expected = tmp_path / "cents.blp", tmp_path / "expected.blp"
    bloscpack.pack_ndarray_to_file(cents, packed, 8000)
    options = ["--auto" + goal, "--max-app-chunks", "10", *options]
    main(["-q", "c", "--npy", *options, str(tmp_path / "cents.npy"), str(expected)])
    assert blpk(*options, packed) == 0
    assert expected.read_bytes() == packed.read_bytes()


def test_auto_in_python(path):
    bloscpack.repack(path, auto=True)
    assert (np.arange(999.0) == bloscpack.unpack_ndarray_from_file(path)).all()
    with pytest.raises(UsageError, match="ratio, not 'best'"):
        bloscpack.repack(path, auto="best")
    for value in (None, False):
        before = path.read_bytes()
        bloscpack.repack(path, auto=value)
        assert before == path.read_bytes()


def test_auto_keeps_the_chunks_of_a_shard_short(tmp_path):
    words = np.frombuffer(b"some words and more words " * 99_000, "u1")
    bloscpack.pack_ndarray_to_file(words, tmp_path / "words", 4000, shard=True)
    bloscpack.repack(tmp_path / "words", auto="ratio")
    assert 2**20 == bloscpack.info(tmp_path / "words").header.chunk_size


def test_the_metadata_of_an_array_are_not_removed_by_accident(path):
    before = path.read_bytes()
    with pytest.raises(Refusal, match="holds an array") as caught:
        blpk("--no-metadata", path)
    assert 1 == caught.value.exit_code
    assert before == path.read_bytes()
    assert blpk("--no-metadata", path, force=True) == 0
    plain = np.arange(999.0).tobytes()
    assert (plain, None) == bloscpack.unpack_bytes_from_file(path)


def test_null_is_no_metadata(path, tmp_path):
    (tmp_path / "null").write_text("null")
    with pytest.raises(Refusal, match="--no-metadata removes") as caught:
        blpk("-m", tmp_path / "null", path)
    assert 2 == caught.value.exit_code


def test_other_files_are_rewritten_after_a_failure(path, tmp_path, capsys):
    (tmp_path / "text.blp").write_text("no packed file")
    assert 1 == blpk("-k", "md5", tmp_path / "text.blp", path)
    assert decode_header(path.read_bytes()[:32]).checksum == "md5"
    assert (tmp_path / "text.blp").read_text() == "no packed file"
    assert "text.blp" in capsys.readouterr().err


def test_names_behind_options_and_a_double_dash(path, run):
    other = path.with_name("-other.blp")
    other.write_bytes(path.read_bytes())
    option = ["-c", "zstd"]
    for names in (
        [path, *option, other],
        [path, *option, "--", other],
        [*option, "--", path, other],
    ):
        bloscpack.pack_ndarray_to_file(np.arange(9.0), other)
        before = other.read_bytes()
        code, _, err = run("-f", "repack", *map(str, names))
        assert (0, "") == (code, err)
        assert before != other.read_bytes()
    code, _, err = run("repack", *option)
    assert 2 == code
    assert "required: <file>" in err


def test_chunks(tmp_path):
    path = tmp_path / "grid.blp"
    array = np.arange(600.0).reshape(20, 30)
    bloscpack.pack_ndarray_to_file(array, path)
    assert 0 == blpk("--chunks", "8, 7", path)
    assert (8, 7) == bloscpack.info(path).array.chunks
    assert 0 == blpk("--shard", path)
    assert [24, 35] == bloscpack.info(path).metadata["shard"]
    assert 0 == blpk("--chunks", "5", path)
    assert bloscpack.info(path).array.chunks is None
    assert 5 == bloscpack.info(path).shard.rows
    assert (array == bloscpack.load(path)).all()


@pytest.mark.parametrize("text", ["8,", "a", "1.5", "", "1,,2"])
def test_chunks_that_are_none(path, text):
    with pytest.raises(Refusal, match="--chunks must be whole numbers"):
        blpk("--chunks=" + text, path)
