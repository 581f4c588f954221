"""Every command line recorded from 0.16, and what `blpk` answers to it now.

``golden/cli/transcript.json`` holds what 0.16 answered. ``differences.json`` has an
entry for each command line that is answered otherwise on purpose, with the reason
under ``why``; what an entry does not name is as it was. All the others must equal
the record, but for one thing: errors go to standard error.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from pathlib import Path

import blosc
import pytest
from golden import content
from support import GOLDEN, sha256

from bloscpack import cli

pty = pytest.importorskip("pty")

CLI = GOLDEN / "cli"
ERROR = "blpk: error: "

RECORD = json.loads((CLI / "transcript.json").read_text("ascii"))
CASES = {case["name"]: case for case in RECORD["cases"]}
DIFFERENCES = json.loads((CLI / "differences.json").read_text("ascii"))

# Another Blosc may compress to other bytes, and then to other sizes.
SAME_BLOSC = RECORD["versions"] == {
    "blosc": blosc.__version__,
    "c-blosc": blosc.BLOSC_VERSION_STRING,
}

REPLACEMENTS = (
    # What depends on the machine or on the Python version.
    (r"using \d+ threads", "using N threads"),
    (r"default: \d+ \(ncores\)", "default: N (ncores)"),
    (r"bloscpack: '.*' python-blosc: '.*' blosc: '.*'", "the versions"),
    # Codecs and checksums that are newer than the record.
    (r"codec number to be 0 to \d+", "codec number to be 0 to N"),
    (r"(?m)^( +crc32c)(,\s+\w+)*$", r"\1"),
    (r", crc32c(, \w+)*\)", ")"),
)


def make_input(source: dict) -> bytes:
    if "content" in source:
        return content.make(source["content"])
    if "file" in source:
        return (CLI / "inputs" / source["file"]).read_bytes()
    return bytes.fromhex(source["hex"]) if "hex" in source else source["text"].encode()


@pytest.fixture
def blpk(tmp_path, monkeypatch, capfdbinary):
    """Run the command in an empty folder; return exit code, output and errors.

    It runs in this process: starting one for every case takes longer than all the rest.
    The transcripts in `test_cmdline` and tests/cli start processes.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    # Without arguments, and with a pipe as standard input, blpk is a filter now.
    leader, follower = pty.openpty()
    terminal = os.fdopen(follower)
    monkeypatch.setattr("sys.stdin", terminal)

    def blpk(arguments):
        code = 0
        try:
            cli.main(arguments)
        except SystemExit as error:
            code = error.code
        return code, *(text.decode() for text in capfdbinary.readouterr())

    yield blpk
    terminal.close()
    os.close(leader)


def normal(text: str) -> str:
    for pattern, replacement in REPLACEMENTS:
        text = re.sub(pattern, replacement, text)
    return text


def words(text: str) -> set[str]:
    """Return the words of a help text; argparse sets them otherwise in 3.13."""
    return {word.strip(",") for word in text.split()}


def is_info(case: dict) -> bool:
    """Return whether a case shows the fields of a file, which have other words now."""
    return bool({"info", "i"} & set(case["args"])) and "--help" not in case["args"]


def expected_answer(case: dict) -> tuple[int, str, str, dict]:
    """Return exit code, standard output, standard error and files of a case."""
    lines = case["stdout"].splitlines(keepends=True)
    errors = [line for line in lines if line.startswith(ERROR)]
    now = DIFFERENCES.get(case["name"], {})
    return (
        now.get("rc", case["rc"]),
        normal("".join(line for line in lines if line not in errors)),
        normal(now.get("stderr", "".join(errors) + case.get("stderr", ""))),
        now.get("files", case["files"]),
    )


def check_stdout(case: dict, expected: str, shown: str) -> None:
    if is_info(case):
        return
    now = DIFFERENCES.get(case["name"], {})
    lines = Counter(expected.splitlines())
    lines.subtract(now.get("stdout_lacks", []))
    lines.update(map(normal, now.get("stdout_adds", [])))
    if case["name"].startswith("help") and sys.version_info >= (3, 13):
        assert words("\n".join(lines.elements())) == words(shown)
    elif "-d" in case["args"]:
        # It shows what -v shows. The other lines of 0.16 are left out.
        assert Counter(shown.splitlines()) <= +lines
    elif lines != Counter(expected.splitlines()):
        assert +lines == Counter(shown.splitlines())
    else:
        assert expected == shown


def check_stderr(expected: str, shown: str) -> None:
    shown = re.sub(r"(?m)^blpk: took: .*\n", "", shown)
    if expected.startswith("usage: "):
        # Which options there are is shown by the help texts.
        assert expected.split("[-h]")[0] == shown.split("[-h]")[0]
        expected, shown = (text.splitlines()[-1] for text in (expected, shown))
        if "(choose from" in expected:
            expected, shown = expected.replace("'", ""), shown.replace("'", "")
            shown = normal(shown)
    assert expected == shown


@pytest.mark.every_case
@pytest.mark.parametrize("name", CASES)
def test_answer(tmp_path: Path, blpk, name: str) -> None:
    case = CASES[name]
    inputs = {n: make_input(source) for n, source in case["inputs"].items()}
    for input_name, data in inputs.items():
        (tmp_path / input_name).write_bytes(data)
    rc, stdout, stderr, files = expected_answer(case)

    code, shown, errors = blpk(case["args"])

    check_stderr(stderr, normal(errors))
    assert rc == code
    found = {}
    for path in tmp_path.iterdir():
        data = path.read_bytes()
        if data == inputs.get(path.name):
            found[path.name] = "same"
        else:
            found[path.name] = {"size": len(data), "sha256": sha256(data)}
    assert set(files) == set(found)
    made = {n: f for n, f in files.items() if f != "same"}
    if SAME_BLOSC:
        assert files == found
    if SAME_BLOSC or not made:
        check_stdout(case, stdout, normal(shown))


def test_every_traceback_is_an_answer_now() -> None:
    assert {n for n, case in CASES.items() if "traceback" in case} <= set(DIFFERENCES)


def test_differences_have_a_reason() -> None:
    assert set(DIFFERENCES) <= set(CASES)
    assert all(entry["why"] for entry in DIFFERENCES.values())
