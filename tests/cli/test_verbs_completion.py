"""blpk completion: the scripts are ones, and complete what they should."""

from __future__ import annotations

import functools
import shutil
import sys

import pytest
from cli.verb_support import Refusal, run_verb
from support import run_command

blpk = functools.partial(run_verb, "completion")


@pytest.fixture
def script(capsys):
    """Return a function that returns the script for a shell."""
    pytest.importorskip("shtab")

    def make(shell):
        assert 0 == blpk(shell)
        return capsys.readouterr().out

    return make


def installed(shell):
    path = shutil.which(shell)
    if path is None:
        pytest.skip("%s is not installed" % shell)
    return path


def output_of(*command, **options):
    done = run_command(*command, text=True, **options)
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_understands_it(script, tmp_path, shell):
    path = tmp_path / "script"
    path.write_text(script(shell))
    assert "" == output_of(installed(shell), "-n", str(path))


CASES = [
    # (words, some of what they may become)
    (["blpk", "com"], {"compress", "completion"}),
    (["blpk", "inf"], {"info"}),
    (["blpk", "--ver"], {"--version", "--verbose"}),
    (["blpk", "compress", "--cod"], {"--codec"}),
    (["blpk", "compress", "-c", "lz4"], {"lz4", "lz4hc"}),
    (["blpk", "-n", "2", "c", "--checksum", "sha2"], {"sha224", "sha256"}),
    (["blpk", "compress", "dat"], {"data.bin", "data.blp", "data.zarr"}),
    (["blpk", "decompress", "data.blp", "data.bi"], {"data.bin"}),
    (["blpk", "completion", "b"], {"bash"}),
    (["blpk", "compress", "--clevel", "9"], {"9"}),
    (["blpk", "list", "data.blp", "dat"], {"data.bin", "data.blp", "data.zarr"}),
    (["blpk", "append", "data.blp", "data.b"], {"data.bin", "data.blp"}),
    (["blpk", "compress", "-m", "data.bi"], {"data.bin"}),
    (["blpk", "compress", "--output-dir", "fol"], {"folder"}),
]


@pytest.fixture
def folder(tmp_path):
    """Return a folder with files and folders in it."""
    for name in ("data.bin", "data.blp", "compress", "completed.blp"):
        (tmp_path / name).touch()
    for name in ("data.zarr", "folder", "compressed"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.mark.parametrize(("words", "expected"), CASES)
def test_bash_completes(script, folder, words, expected):
    bash = installed("bash")
    (folder / "script").write_text(script("bash"))
    ask = (
        "source ./script; COMP_WORDS=(%s); COMP_CWORD=%d; COMP_TYPE=9; "
        "$(complete -p blpk | sed 's/.*-F \\([^ ]*\\).*/\\1/') blpk '%s' '%s'; "
        'printf "%%s\\n" "${COMPREPLY[@]}"'
    )
    line = ask % (" ".join(words), len(words) - 1, words[-1], words[-2])
    found = output_of(bash, "--norc", "-c", line, cwd=folder).split()
    assert expected == {word.rstrip("/") for word in found}


@pytest.mark.parametrize(("words", "expected"), CASES)
def test_fish_completes(script, folder, words, expected):
    fish = installed("fish")
    (folder / "script").write_text(script("fish"))
    line = "source ./script; complete -C '%s'" % " ".join(words)
    env = {"HOME": str(folder), "PATH": "/usr/bin:/bin"}
    found = output_of(fish, "--no-config", "-c", line, cwd=folder, env=env)
    words_found = {line.split("\t")[0].rstrip("/") for line in found.splitlines()}
    assert expected <= words_found
    assert ("data.bin" in words_found) == ("data.bin" in expected)


def test_zsh_completes(script, folder):
    """Ask a real shell at a terminal that is not there."""
    zsh = installed("zsh")
    (folder / "_blpk").write_text(script("zsh"))
    # The answer must not be in the question, which the terminal shows too.
    (folder / "ask").write_text(
        "zmodload zsh/zpty\n"
        "zpty shell %s -f -i\n"
        "zpty -w shell 'PS1=; unsetopt zle_bracketed_paste; fpath=($PWD $fpath); "
        "autoload -U compinit; compinit -D -u; echo is$((1 + 1))ready'\n"
        "zpty -r -m shell out '*is2ready*'\n"
        "zpty -w -n shell $'blpk compr\\t--outp\\t'\n"
        "zpty -r -m shell out '*compress*--output*'\n"
        "print found\n" % zsh
    )
    assert "found\n" == output_of(zsh, "-f", "ask", cwd=folder)


def test_an_unknown_shell(capsys):
    with pytest.raises(SystemExit) as caught:
        blpk("sh")
    assert 2 == caught.value.code
    assert "invalid choice: 'sh'" in capsys.readouterr().err


def test_without_shtab(monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(Refusal, match="needs the package shtab") as caught:
        blpk("bash")
    assert 1 == caught.value.exit_code
