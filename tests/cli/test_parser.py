"""What the command line may say: what argparse alone would get wrong."""

import io
import os

import pytest

from bloscpack._cli.args import VERBS, parse

NAMES = [
    # (input, output, more, arguments)
    ("a", None, [], ["a"]),
    ("a", "b", [], ["a", "b"]),
    ("a", "b", ["c"], ["a", "b", "c"]),
    ("a", "b", ["c"], ["a", "--rm", "b", "c"]),
    ("a", "-x", [], ["a", "--rm", "--", "-x"]),
    ("-x", "--", [], ["--", "-x", "--"]),
    ("a", "-x", ["b"], ["-r", "a", "--", "-x", "b"]),
    ("-", "-", [], ["-", "--rm", "-"]),
]


@pytest.mark.parametrize("verb", ["compress", "d"])
@pytest.mark.parametrize(("in_file", "out_file", "more", "arguments"), NAMES)
def test_names(verb, in_file, out_file, more, arguments):
    args = parse(["-n", "2", verb, *arguments])
    assert (in_file, out_file, more) == (args.in_file, args.out_file, args.more)


def test_names_of_other_verbs():
    assert ["-x", "compress"] == parse(["list", "--", "-x", "compress"]).files


ANYWHERE = [
    # (arguments, the values that they set)
    (["compress", "-f", "-q", "-n", "2", "x"], {"force": True, "quiet": True}),
    (["compress", "x", "-fn2"], {"force": True, "nthreads": 2, "clevel": None}),
    (["-n", "3", "c", "x"], {"nthreads": 3, "force": False}),
    (["-n", "3", "c", "x", "-n", "4"], {"nthreads": 4}),
    (["-f", "d", "x", "--no-sync"], {"force": True, "sync": False}),
    (["list", "a", "-v", "b"], {"verbose": True, "files": ["a", "b"]}),
    (
        ["verify", "a", "-d", "b", "--", "-c"],
        {"debug": True, "files": ["a", "b", "-c"]},
    ),
    (["append", "a", "--no-progress", "b"], {"progress": False, "new_file": "b"}),
    (["info", "a", "--json", "-q"], {"quiet": True, "files": ["a"]}),
    (["cat", "-f", "a"], {"force": True}),
    (["cat", "--bytes", "-5:", "a"], {"bytes": "-5:", "file_": "a"}),
    (["cat", "--rows", "-5:-1:2", "a"], {"rows": "-5:-1:2"}),
    (["cat", "--byt", "-5:", "a"], {"bytes": "-5:", "file_": "a"}),
    (["cat", "--r", "-5:", "a"], {"rows": "-5:", "file_": "a"}),
    (["convert", "--dtype=f4", "--shap", "-1", "x", "y"], {"shape": "-1"}),
    (["compress", "--shard", "-1", "x"], {"shard": True, "clevel": 1}),
    (["compress", "--suf=.b", "-1", "x"], {"suffix": ".b", "clevel": 1}),
    # Levels
    (["compress", "-9", "x"], {"clevel": 9}),
    (["compress", "x", "-f1"], {"clevel": 1, "force": True}),
    (["-3", "compress", "x"], {"clevel": 3}),
    (["-n", "2", "-3", "c", "x"], {"clevel": 3, "nthreads": 2}),
    (["append", "-5", "a", "b"], {"clevel": 5}),
    (["compress", "-3", "-l", "4", "x"], {"clevel": 4}),
    # Numbers below zero are values of options for which they make sense
    (["convert", "--shape", "-1", "x", "y"], {"shape": "-1", "clevel": None}),
    (["convert", "--shape", "-1,3", "-2", "x", "y"], {"shape": "-1,3", "clevel": 2}),
    (["compress", "-t", "-1", "x"], {"typesize": -1, "clevel": None}),
    (["compress", "--typesize", "-12", "x"], {"typesize": -12, "in_file": "x"}),
    (["-n", "-1", "compress", "x"], {"nthreads": -1, "clevel": None}),
    (["compress", "--", "-1"], {"in_file": "-1", "clevel": None}),
    (["list", "-1"], {"files": ["-1"]}),
    # Abbreviations of 0.16, which later options do not make ambiguous
    (["compress", "--no-s", "x"], {"shuffle": False, "sync": None}),
    (["compress", "--meta", "m", "x"], {"metadata": "m"}),
    (["decompress", "--n", "x"], {"no_check_extension": True}),
    (["--n", "2", "compress", "x"], {"nthreads": 2}),
    (["--f", "c", "x"], {"force": True}),
    (["compress", "--no-p", "x"], {"preserve": False, "progress": None}),
]


@pytest.mark.parametrize(("arguments", "expected"), ANYWHERE, ids=lambda v: str(v))
def test_options_in_any_position(arguments, expected):
    found = vars(parse(arguments))
    assert expected == {name: found[name] for name in expected}


FILTERS = [
    # (verb, arguments, the values that they set)
    ("compress", [], {"clevel": None, "cname": None}),
    ("compress", ["-9"], {"clevel": 9}),
    ("compress", ["-c", "zstd", "-v", "-n", "2"], {"cname": "zstd", "nthreads": 2}),
    ("compress", ["--debug"], {"debug": True}),
    ("compress", ["-"], {}),
    ("decompress", ["-d"], {"debug": False}),
    ("decompress", ["-d", "-v"], {"debug": False, "verbose": True}),
    ("decompress", ["-9", "-c", "zstd", "-n", "2", "-d"], {"nthreads": 2}),
    ("decompress", ["-d", "--output", "x"], {"output": "x"}),
]


@pytest.mark.parametrize(("verb", "arguments", "expected"), FILTERS)
def test_filter(monkeypatch, verb, arguments, expected):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    found = vars(parse(arguments))
    assert (verb, "-", None) == (
        found["subcommand"],
        found["in_file"],
        found["out_file"],
    )
    assert expected == {name: found[name] for name in expected}


@pytest.mark.parametrize("arguments", [["compres"], ["-v", "x"], ["--nothing"], ["-n"]])
def test_no_filter(monkeypatch, capsys, arguments):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(SystemExit) as caught:
        parse(arguments)
    assert 2 == caught.value.code


WRONG = [
    # (part of the last line, arguments)
    ("too few arguments", []),
    ("blpk: error: there is no subcommand 'x'", ["x"]),
    ("there is no subcommand 'uncompress'", ["uncompress", "x.blp"]),
    ("there is no subcommand 'a.blp'", ["-d", "a.blp"]),
    ("blpk: error: ", ["-dc", "a.blp"]),
    ("blpk: error: ", ["--clevel", "3", "c", "a"]),
    (": error: ", ["compress", "-oa.blp", "a"]),
    ("-c/--codec: invalid choice: 'zst'", ["compress", "-c", "zst", "a"]),
    ("unrecognized arguments: -X", ["-X"]),
    ("unrecognized arguments: --nope", ["verify", "--nope", "a"]),
    ("unrecognized arguments: b", ["cat", "a", "b"]),
    ("unrecognized arguments: -o", ["decompress", "-o", "a", "a.blp"]),
    ("unrecognized arguments: --json", ["--json", "info", "a"]),
    ("unrecognized arguments: --nothing", ["compress", "a", "--nothing"]),
    ("unrecognized arguments: --nothing", ["compress", "a", "--nothing", "--", "b"]),
    ("the level must be from -1 to -9, not '-19'", ["compress", "-19", "a"]),
    ("-l/--clevel: invalid choice: -1", ["compress", "-l", "-1", "a"]),
    ("-d/--debug: not allowed with argument -v", ["-v", "compress", "a", "-d"]),
    ("-q/--quiet: not allowed with argument -v", ["list", "-q", "a", "-v"]),
    ("not allowed with argument --sync", ["compress", "--sync", "--no-sync", "a"]),
    ("arguments are required: <in_file>", ["compress"]),
    ("arguments are required: <in_file>", ["compress", "--rm", "--"]),
]


@pytest.fixture
def terminal(monkeypatch):
    """Make standard input a terminal: otherwise blpk without a verb is a filter."""
    pty = pytest.importorskip("pty")
    leader, follower = pty.openpty()
    with os.fdopen(follower) as stream, os.fdopen(leader):
        monkeypatch.setattr("sys.stdin", stream)
        yield


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(("message", "arguments"), WRONG, ids=lambda value: str(value))
def test_wrong_usage(capsys, message, arguments):
    with pytest.raises(SystemExit) as caught:
        parse(arguments)
    said = capsys.readouterr()
    assert 2 == caught.value.code
    assert "" == said.out
    lines = said.err.splitlines()
    assert message in lines[-1]
    assert "\\n" not in said.err
    assert not arguments or len(lines) <= 2


def test_codecs_in_any_case():
    assert "zlib" == parse(["compress", "--codec", "ZLib", "a"]).cname


@pytest.mark.usefixtures("terminal")
def test_wrong_usage_shows_the_usage_of_the_verb(capsys):
    usage = "usage: blpk compress [-h] [options] [<in_file>] [<out_file>] [<file> ...]"
    for arguments in (["compress", "a", "-t"], ["compress", "-c", "x", "a"]):
        with pytest.raises(SystemExit):
            parse(arguments)
        assert usage == capsys.readouterr().err.splitlines()[0]


@pytest.mark.usefixtures("terminal")
def test_no_argument_shows_all_verbs(capsys):
    with pytest.raises(SystemExit):
        parse([])
    shown = [line.split()[:1] for line in capsys.readouterr().err.splitlines()]
    words = [word for verb in VERBS for word in (verb.name, verb.letter) if word]
    assert [] == [word for word in words if [word] not in shown]


LEVELS = [
    ["compress", "a"],
    ["append", "a.blp", "a"],
    ["repack", "a.blp"],
    ["convert", "a.npy", "a.zarr"],
]


@pytest.mark.parametrize("arguments", LEVELS, ids=lambda arguments: arguments[0])
@pytest.mark.parametrize("option", ["--level=3", "--leve=3", "--clevel=3", "-l3"])
def test_level_is_another_name_of_clevel(arguments, option):
    assert 3 == parse([*arguments, option]).clevel


SECONDS = ["-1", "nan", "soon"]


@pytest.mark.parametrize("text", SECONDS)
def test_seconds_that_can_not_be(text):
    from bloscpack._cli.exit_codes import Refusal

    with pytest.raises(Refusal, match="--wait must be a number from 0 on"):
        parse(["append", "--wait=" + text, "x", "y"])
