"""The table of verbs: every reader of it sees a new verb, and messages avoid data."""

from __future__ import annotations

import json
import os
import sys
from types import ModuleType

import pytest
from cli.verb_support import arguments_for, load_manpage

import bloscpack
from bloscpack._check.findings import Report
from bloscpack._cli import args, named
from bloscpack._cli.args import VerbRecord, create_parser, parse
from bloscpack._cli.console import console


def test_names_and_letters_are_unique():
    words = [word for verb in args.VERBS for word in (verb.name, verb.letter)]
    words = [word for word in words if word]
    assert len(words) == len(set(words))


@pytest.mark.parametrize("verb", args.VERBS, ids=lambda verb: verb.name)
def test_the_record_fits_the_arguments(verb):
    parser = args.parsers_in(create_parser())[verb.name]
    found = parse([verb.name, *arguments_for(parser, "x")])
    assert verb.inputs is None or hasattr(found, verb.inputs)
    names = any(hasattr(found, name) for name in ("more", "files", "names"))
    assert verb.many_names == names


def test_info_without_the_parser_is_the_verb_info():
    assert ("info", "i") == (args.find("i").name, args.find("info").letter)


# A verb that no module but its own knows


class Dummy(ModuleType):
    """The module of a verb that copies its input to standard output."""

    OPTIONS = """\
--loudly  with a bang
--codec <codec>  codec of the echo
source <source>  file to be shouted
"""

    def run(self, args):
        with open(args.source, "rb") as fp:
            console.put(fp.read().decode() + "!" * args.loudly)
        console.put(" codec %s\n" % args.codec)
        return 5


@pytest.fixture
def dummy(monkeypatch, tmp_path):
    name = "bloscpack._cli.verbs.shout"
    record = VerbRecord("shout s data source - write a file loudly")
    monkeypatch.setitem(sys.modules, name, Dummy(name))
    monkeypatch.setattr(args, "VERBS", [*args.VERBS, record])
    monkeypatch.setenv("BLPK_DEFAULTS", "--codec lz4")
    (tmp_path / "words").write_text("words")
    return str(tmp_path / "words")


def test_a_new_verb_is_in_the_help(dummy, run):
    code, said, _ = run("--help")
    assert 0 == code
    assert "    shout               write a file loudly\n" in said
    assert "    s                   alias for 'shout'\n" in said
    assert "--loudly" in run("shout", "--help")[1]


@pytest.mark.parametrize("word", ["shout", "s"])
def test_a_new_verb_runs(dummy, run, word):
    assert (5, "words! codec lz4\n", "") == run(word, "--loudly", dummy)
    code, said, errors = run("-v", "-n", "2", word, dummy)
    assert (5, "words codec lz4\n") == (code, said)
    assert "blpk: using 2 threads\nblpk: done\n" == errors


def test_a_new_verb_is_in_the_manual(dummy):
    page = load_manpage().make()
    assert ".SS shout, s\n" in page
    assert "\\fB\\-\\-loudly\\fR\nwith a bang" in page


def test_a_new_verb_is_completed(dummy, run):
    pytest.importorskip("shtab")
    _, script, _ = run("completion", "bash")
    assert "'write a file loudly'" in run("completion", "zsh")[1].replace('"', "'")
    assert "_shtab_blpk_shout_pos_0_COMPGEN=_shtab_compgen_files" in script


def test_a_new_verb_reads_standard_input(dummy, run, monkeypatch):
    monkeypatch.setattr("bloscpack._cli.console.INPUT_NAME", dummy)
    monkeypatch.setattr("sys.stdin", open(0, closefd=False))  # noqa: SIM115
    assert (5, "words codec lz4\n", "") == run("shout", "-")


def test_the_parser_knows_every_verb():
    choices = next(
        action.choices
        for action in create_parser()._actions
        if isinstance(action.choices, dict)
    )
    assert set(choices) == {
        word for verb in args.VERBS for word in (verb.name, verb.letter) if word
    }


# Messages and data


@pytest.fixture
def packed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain").write_bytes(b"plain " * 1000)
    bloscpack.pack_bytes_to_file(b"bytes", tmp_path / "x.blp", metadata={"a": 1})
    return tmp_path


JSON = [
    "list --json x.blp",
    "info --json x.blp",
    "verify --json x.blp",
    "show --json x.blp",
    "diff --json x.blp x.blp",
    "recover --json x.blp new.blp",
    "metadata x.blp",
    "d --metadata-to - x.blp new",
]


@pytest.mark.parametrize("line", JSON)
@pytest.mark.parametrize("option", ["-v", "-d"])
def test_no_messages_in_json(packed, run, line, option):
    code, said, errors = run(option, "-n", "2", *line.split())
    assert 0 == code
    json.loads(said)
    assert "blpk: using 2 threads\n" in errors
    assert errors.endswith("blpk: done\n")


def test_no_messages_in_data(packed, run):
    pytest.importorskip("shtab")
    _, expected, _ = run("completion", "bash")
    code, said, errors = run("-v", "-n", "2", "completion", "bash")
    assert (0, expected) == (code, said)
    assert "blpk: using 2 threads\nblpk: done\n" == errors


def test_messages_stay_with_a_report(packed, run):
    code, said, errors = run("-v", "-n", "2", "list", "x.blp")
    assert (0, "") == (code, errors)
    assert said.startswith("blpk: using 2 threads\n")


@pytest.mark.parametrize(
    "line", ["cat x.blp", "recover x.blp -", "d x.blp -", "c plain -"]
)
def test_no_messages_in_bytes(packed, capfdbinary, line):
    from bloscpack import cli

    def output(*arguments):
        cli.main([*arguments])
        return capfdbinary.readouterr()

    expected = output(*line.split()).out
    assert expected
    said = output("-v", "-n", "2", *line.split())
    assert expected == said.out
    assert b"blpk: using 2 threads\n" in said.err
    assert said.err.endswith(b"blpk: done\n")


# A kind of name that no module but `named` knows


class Stack(named.Named):
    """A folder with a file `stack`."""

    kind, read_by = "a stack", "unstack"

    @classmethod
    def is_at(cls, path):
        return os.path.exists(os.path.join(path, "stack"))

    def describe(self):
        sizes = {"nbytes": 6, "cbytes": 3, "ratio": 2.0}
        return {"format": "stack", "kind": "stack", "file": self.path, **sizes}

    def info(self):
        console.say("a stack of 6 bytes")
        return 0

    def verify(self, nthreads, progress):
        return Report(self.path, nbytes=6)


@pytest.fixture
def stack(monkeypatch, tmp_path):
    monkeypatch.setattr(named, "KINDS", (Stack, *named.KINDS))
    folder = tmp_path / "kept"
    folder.mkdir()
    (folder / "stack").write_text("x")
    return str(folder)


def test_verbs_use_the_methods_of_a_new_kind(stack, run):
    assert (0, "a stack of 6 bytes\n", "") == run("info", stack)
    assert "stack" == json.loads(run("info", "--json", stack)[1])["kind"]
    assert "stack" == json.loads(run("list", "--json", stack)[1])[0]["kind"]
    assert (0, "%s: ok (0 chunks, 6.0B)\n" % stack, "") == run("verify", stack)


@pytest.mark.parametrize(
    "line", ["info --chunks", "cat", "metadata", "metadata --update a=1", "recover"]
)
def test_other_verbs_refuse_a_new_kind(stack, run, line):
    names = [stack, stack + ".new"][: 1 + (line == "recover")]
    code, said, errors = run(*line.split(), *names)
    assert (1, "") == (code, said)
    assert "blpk: error: '%s' is a stack, which 'unstack' reads\n" % stack == errors
