"""BLPK_DEFAULTS: options in front of those of the command line, which win."""

from __future__ import annotations

import numpy
import pytest

import bloscpack
from bloscpack import dataset
from bloscpack._cli.args import blosc_settings, parse
from bloscpack._cli.exit_codes import EXIT_USAGE, WrongUsage


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bloscpack.pack_bytes_to_file(bytes(10_000), "a.blp")
    (tmp_path / "plain").write_bytes(bytes(10_000))
    return tmp_path


@pytest.fixture
def parsed(monkeypatch):
    """Return a function that returns the arguments of a command line."""

    def parse_with(variable, *arguments):
        monkeypatch.setenv("BLPK_DEFAULTS", variable)
        return parse(list(arguments))

    return parse_with


CASES = [
    # (variable, command line, some of the arguments)
    ("", "compress x", {"auto": False, "clevel": None, "verbose": False}),
    ("--auto", "compress x", {"auto": "balanced"}),
    ("--auto=ratio", "c x", {"auto": "ratio"}),
    ("-c zstd -l 3 -n 4", "append x y", {"cname": "zstd", "clevel": 3, "nthreads": 4}),
    ("--codec=zstd -9", "compress x", {"cname": "zstd", "clevel": 9}),
    ("-z 64K --suffix '.b c'", "compress x", {"chunk_size": 2**16, "suffix": ".b c"}),
    ("--bytes 0:9 -n2", "cat x", {"bytes": "0:9", "nthreads": 2}),
    # The command line wins, wherever the option stands.
    ("-c zstd -l 3", "compress -c lz4 x", {"cname": "lz4", "clevel": 3}),
    ("-l 3", "compress -l 7 x", {"clevel": 7}),
    ("-l 3", "-9 compress x", {"clevel": 9}),
    ("-n 4", "-n 2 compress x", {"nthreads": 2}),
    ("-n 4", "compress -n 2 x", {"nthreads": 2}),
    ("--no-progress", "compress --progress x", {"progress": True}),
    ("--no-progress", "--progress list x", {"progress": True}),
    ("-f", "list x", {"force": True}),
    # So does an option that excludes one of the variable.
    ("-v", "-q compress x", {"verbose": False, "quiet": True}),
    ("-q", "compress -v x", {"verbose": True, "quiet": False}),
    ("-v", "compress -v x", {"verbose": True, "quiet": False}),
    ("--bitshuffle", "compress -s x", {"shuffle": False}),
    ("--json", "list --bytes x", {"json": False, "bytes": True}),
    ("--json", "list x", {"json": True, "bytes": False}),
    ("--auto=speed", "compress --no-auto x", {"auto": None}),
    # These two go together.
    ("--auto", "compress -c zstd x", {"auto": "balanced", "cname": "zstd"}),
    # Options of other verbs are left out.
    ("--auto -c zstd -v", "decompress x", {"verbose": True, "in_file": "x"}),
    ("-c zstd --rows 0:3 -n 3", "list x", {"nthreads": 3, "files": ["x"]}),
    ("-n 3 -f", "bigfile ls tree", {"nthreads": 3, "force": True}),
    ("-c zstd", "help compress", {"verb": "compress"}),
    # The command line adds to a list.
    ("--update 'a=1'", "metadata --update b=2 x", {"update": ["a=1", "b=2"]}),
]


@pytest.mark.parametrize(("variable", "line", "expected"), CASES)
def test_options(parsed, variable, line, expected):
    args = vars(parsed(variable, *line.split()))
    assert expected == {name: args[name] for name in expected}


def test_auto_keeps_the_settings_that_were_given(parsed):
    args = parsed("--auto -t 4", "compress", "-c", "zstd", "x")
    assert {"typesize": 4, "cname": "zstd"} == blosc_settings(args)["blosc_args"]
    args = parsed("-c lz4 -t 4", "compress", "-c", "zstd", "-t", "8", "x")
    assert {"typesize": 8, "cname": "zstd"} == blosc_settings(args)["blosc_args"]


WRONG = [
    # (variable, part of the message)
    ("--nothing", "'--nothing' is no option of blpk"),
    ("-c zstd extra", "'extra' is no option of blpk"),
    ("--auto speed", "the goal must follow an equals sign"),
    ("compress", "'compress' is no option of blpk"),
    ("-d", "'-d' can't be a default"),
    ("--rm", "'--rm' can't be a default"),
    ("--help", "'--help' can't be a default"),
    ("--version", "'--version' can't be a default"),
    ("--verb", "'--verb' is no option of blpk"),  # not even of --verbose
    ("-c", "argument -c/--codec: expected one argument"),
    ("-c nonsense", "argument -c/--codec: invalid choice: 'nonsense'"),
    ("--auto=best", "argument --auto: the goal must be one of"),
    ("-n many", "argument -n/--nthreads: invalid int value: 'many'"),
    ("-c 'zstd", "No closing quotation"),
]


@pytest.mark.parametrize("line", ["compress x", "list x", "cat x", "bigfile ls x"])
@pytest.mark.parametrize(("variable", "message"), WRONG)
def test_wrong_options(parsed, variable, message, line):
    with pytest.raises(WrongUsage) as caught:
        parsed(variable, *line.split())
    assert EXIT_USAGE == caught.value.exit_code
    assert str(caught.value).startswith("BLPK_DEFAULTS: ")
    assert message in str(caught.value)


def test_exit_code(run, monkeypatch):
    monkeypatch.setenv("BLPK_DEFAULTS", "--nothing")
    expected = "blpk: error: BLPK_DEFAULTS: '--nothing' is no option of blpk\n"
    for arguments in (["info", "a.blp"], ["compress", "plain"]):
        assert (2, "", expected) == run(*arguments)
    assert 0 == run("--version")[0]
    assert 0 == run("--help")[0]


def test_info_has_the_defaults(run, monkeypatch):
    assert run("info", "a.blp")[1].startswith("kind: ")
    monkeypatch.setenv("BLPK_DEFAULTS", "--json")
    assert run("info", "a.blp")[1].startswith("{")


def test_help_shows_the_defaults(run, monkeypatch):
    monkeypatch.setenv("BLPK_DEFAULTS", "--suffix .xyz")
    assert "(default: .xyz)" in " ".join(run("compress", "--help")[1].split())


def test_auto_is_for_files_only(run, monkeypatch):
    """On the command line, the option is refused for a dataset."""
    dataset.create_array("a.zarr", [1, 2])
    dataset.create_array("b.zarr", [3])
    monkeypatch.setenv("BLPK_DEFAULTS", "--auto -l 9")
    assert (0, "", "") == run("append", "a.zarr", "b.zarr")
    with dataset.open("a.zarr") as array:
        assert [1, 2, 3] == array[:].tolist()
    code, _, err = run("append", "--auto", "a.zarr", "b.zarr")
    assert (2, True) == (code, "--auto is for files" in err)


def test_the_type_size_is_for_files_without_an_array(run, monkeypatch):
    """On the command line, the option is refused, also with the same value."""
    numpy.save("a.npy", numpy.arange(3))
    monkeypatch.setenv("BLPK_DEFAULTS", "-t 4")
    assert 0 == run("compress", "--npy", "a.npy")[0]
    code, _, err = run("-f", "compress", "--npy", "-t", "4", "a.npy")
    assert (2, True) == (code, "-t can't be given" in err)
