"""What the command line may say: what argparse alone would get wrong."""

import pytest

from bloscpack._cli.parser import parse
from bloscpack._cli.verb_table import VERBS

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


WRONG = [
    # (the last line, arguments)
    ("too few arguments", []),
    ("argument subcommand: invalid choice: 'x'", ["x"]),
    ("Did you mean 'recover'?", ["recovr"]),
    ("Did you mean 'verify'?", ["test", "x.blp"]),
    ("Did you mean '--help'?", ["help"]),
    ("unrecognized arguments: -V", ["-V"]),
    ("-f must precede the subcommand", ["compress", "a", "-f"]),
    ("-n must precede the subcommand", ["list", "-n", "2", "a"]),
    ("unrecognized arguments: --nothing", ["compress", "a", "--nothing"]),
    ("unrecognized arguments: --nothing", ["compress", "a", "--nothing", "--", "b"]),
    ("arguments are required: <in_file>", ["compress"]),
    ("arguments are required: <in_file>", ["compress", "--rm", "--"]),
]


@pytest.mark.parametrize(("message", "arguments"), WRONG, ids=lambda value: str(value))
def test_wrong_usage(capsys, message, arguments):
    with pytest.raises(SystemExit) as caught:
        parse(arguments)
    said = capsys.readouterr()
    assert 2 == caught.value.code
    assert "" == said.out
    assert message in said.err.splitlines()[-1]


def test_no_argument_shows_all_verbs(capsys):
    with pytest.raises(SystemExit):
        parse([])
    shown = [line.split()[:1] for line in capsys.readouterr().err.splitlines()]
    words = [word for verb in VERBS for word in (verb.name, verb.letter) if word]
    assert [] == [word for word in words if [word] not in shown]


SECONDS = ["-1", "nan", "soon"]


@pytest.mark.parametrize("text", SECONDS)
def test_seconds_that_can_not_be(text):
    from bloscpack._cli.exit_codes import Refusal

    with pytest.raises(Refusal, match="--seconds must be a number from 0 on"):
        parse(["tune", "--seconds=" + text, "x"])
