"""No text from outside controls the terminal: every verb on a pseudo-terminal.

Names of files, options, settings and the content of files contain control characters,
C1 characters, marks that change the direction of text, and bytes that are no UTF-8. The
output may contain line ends.
"""

import json
import os
import re
import select
import shlex
import subprocess
import sys
import unicodedata

import numpy
import pytest
from cli.verb_support import VERBS, arguments_for, create_parser, parsers_in
from support import environment, run_command

from bloscpack import pack_bytes_to_file, pack_ndarray_to_file

pty = pytest.importorskip("pty")
tty = pytest.importorskip("tty")

CHARACTERS = (
    "\x1b[31m \x07 \x08 \t \r \x7f \x80 \x85 \x90 \x9b2J \x9f \xad \u061c \u200b "
    "\u200e \u200f \u2028 \u202a \u202e \u2066 \u2069 \ufeff \U000e0041"
)
# Bytes of a name that are no UTF-8 are lone surrogates in Python.
HOSTILE = CHARACTERS + "\udc9b\udcff\nforged"
PACKED = HOSTILE + ".blp"
BROKEN = "broken" + HOSTILE + ".blp"
ARRAY = "array" + HOSTILE + ".blp"
SURROGATES = "surrogates" + HOSTILE + ".blp"
JSON = HOSTILE + ".json"
# A line that a newline in a name has begun.
FORGED_LINE = re.compile("^(blpk: )?(error: )?forged", re.MULTILINE)
FORBIDDEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")

CASES = {
    "bigfile": [
        ["bigfile", "ls", HOSTILE],
        ["bigfile", HOSTILE, "tree"],
        ["bigfile", "cat", ".", HOSTILE],
        ["bigfile", "verify", "."],
    ],
    "compress": [
        ["compress", HOSTILE],
        ["-v", "compress", HOSTILE, "out" + HOSTILE],
        ["-f", "-d", "compress", HOSTILE],
        ["compress", HOSTILE, "link" + HOSTILE],
        ["compress", "missing" + HOSTILE],
        ["-f", "compress", "-m", JSON, HOSTILE],
        ["-f", "compress", "-m", BROKEN, HOSTILE],
        *(["compress", option, HOSTILE, "in"] for option in ("-z", "-c", "-t", "-k")),
        ["compress", "--max-meta-size", HOSTILE, "in"],
        ["-f", "compress", "--meta-codec", HOSTILE, "-m", JSON, HOSTILE],
        ["compress", "--" + HOSTILE, "in"],
        ["compress", "--files-from", HOSTILE],
        ["-f", "-v", "compress", "-r", "."],
    ],
    "decompress": [
        ["-f", "decompress", PACKED],
        ["-f", "-v", "decompress", PACKED, "out"],
        ["-f", "decompress", BROKEN, "out"],
        ["-f", "decompress", PACKED, "out", "--metadata-to", "-"],
        ["decompress", HOSTILE],
        ["-f", "decompress", "--npy", PACKED, "out"],
        ["-f", "decompress", "--npy", "--rm", ARRAY, "out"],
    ],
    "append": [
        ["append", PACKED, HOSTILE],
        ["-v", "append", PACKED, HOSTILE],
        ["append", BROKEN, HOSTILE],
        ["append", HOSTILE, PACKED],
    ],
    "repack": [
        ["-v", "repack", PACKED],
        ["repack", BROKEN, HOSTILE, "missing" + HOSTILE],
        ["repack", "-m", BROKEN, PACKED],
    ],
    "info": [
        ["info", PACKED],
        ["info", ARRAY],
        ["info", SURROGATES],
        ["info", HOSTILE],
        ["info", "--json", PACKED],
        ["info", "--" + HOSTILE, PACKED],
        ["info", "missing" + HOSTILE],
        ["info", "--chunks", BROKEN],
    ],
    "list": [["list", PACKED, ARRAY, BROKEN, HOSTILE], ["list", "--json", PACKED]],
    "cat": [
        ["cat", PACKED],
        ["cat", "--bytes", HOSTILE, PACKED],
        ["cat", "--rows", HOSTILE, PACKED],
    ],
    "show": [
        ["show", PACKED],
        ["show", ARRAY],
        ["show", "--stats", ARRAY],
        ["show", "--json", ARRAY],
        ["show", ARRAY + "/" + HOSTILE],
        ["show", HOSTILE],
        ["show", "--fields", HOSTILE, ARRAY],
        ["show", "."],
    ],
    "diff": [
        ["diff", PACKED, ARRAY],
        ["diff", ARRAY, HOSTILE],
        ["diff", PACKED, BROKEN],
        ["diff", "--json", PACKED, ARRAY],
        ["diff", "missing" + HOSTILE, ARRAY],
    ],
    "verify": [
        ["verify", PACKED, BROKEN, HOSTILE],
        ["verify", "--json", BROKEN],
        ["verify", "."],
    ],
    "recover": [
        ["recover", BROKEN, "out" + HOSTILE],
        ["recover", HOSTILE, "out" + HOSTILE],
        ["-f", "recover", "--json", BROKEN, "out" + HOSTILE],
        ["recover", "--fill", HOSTILE, BROKEN, "out"],
    ],
    "snapshot": [
        ["snapshot", PACKED, "out" + HOSTILE],
        ["snapshot", HOSTILE, "out" + HOSTILE],
        ["snapshot", "--timeout", HOSTILE, PACKED, "out"],
    ],
    "metadata": [
        ["metadata", PACKED],
        ["metadata", "--compact", PACKED],
        ["metadata", SURROGATES],
        ["metadata", ARRAY],
        ["metadata", "--update", HOSTILE, PACKED],
        ["metadata", "--update", HOSTILE + "=" + HOSTILE, PACKED],
        ["metadata", "--remove", "x" + HOSTILE, PACKED],
        ["metadata", "--set", BROKEN, PACKED],
        ["metadata", "--set", JSON, PACKED],
    ],
    "convert": [
        ["convert", ARRAY, "out" + HOSTILE],
        ["convert", HOSTILE, "out.npy"],
        ["convert", ARRAY, "out" + HOSTILE + ".npy"],
        ["-v", "convert", ARRAY, "out" + HOSTILE + ".npz"],
        ["convert", ARRAY, "out" + HOSTILE + ".npy"],
        ["convert", "--to", HOSTILE, ARRAY, "out"],
        ["convert", "--dtype", "x=" + HOSTILE, ARRAY, "out"],
        ["convert", "--json", ARRAY, "out" + HOSTILE + ".zarr"],
    ],
    "refs": [
        ["refs", ARRAY],
        ["refs", "-o", "out" + HOSTILE, ARRAY],
        ["refs", HOSTILE],
    ],
    "completion": [["completion", HOSTILE]],
    "help": [["help"], ["help", HOSTILE]],
}


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """Return a folder of hostile files, which the tests copy."""
    folder = tmp_path_factory.mktemp("content")
    metadata = {CHARACTERS: [CHARACTERS]}
    lone = {"\ud800": "\udfff" + CHARACTERS}
    try:
        (folder / HOSTILE).write_bytes(b"some bytes" * 100)
    except OSError:
        pytest.skip("the file system does not take such names")
    pack_bytes_to_file(b"some bytes" * 100, folder / PACKED, metadata=metadata)
    pack_bytes_to_file(b"", folder / SURROGATES, metadata=lone)
    packed = bytearray((folder / PACKED).read_bytes())
    packed[-5] ^= 1
    (folder / BROKEN).write_bytes(packed)
    dtype = numpy.dtype([("a" + CHARACTERS, "<i4")])
    pack_ndarray_to_file(numpy.zeros(100, dtype), folder / ARRAY)
    (folder / JSON).write_text(json.dumps({CHARACTERS: 1}))
    return folder


@pytest.fixture
def folder(content, tmp_path):
    for path in content.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / ("link" + HOSTILE)).symlink_to("nothing" + HOSTILE)
    return tmp_path


def shown(folder, arguments, **variables):
    """Return what a command writes to its terminal."""
    ours, its = pty.openpty()
    tty.setraw(its)  # no character is changed on its way
    process = subprocess.Popen(
        [sys.executable, "-m", "bloscpack", *arguments],
        cwd=folder,
        env=environment(**{"TERM": "xterm", "LC_ALL": "C.UTF-8", **variables}),
        stdin=its,
        stdout=its,
        stderr=its,
    )
    os.close(its)
    output = b""
    try:
        while select.select([ours], [], [], 60)[0]:
            try:
                part = os.read(ours, 2**16)
            except OSError:  # Linux says so when the terminal has been closed
                break
            if not part:
                break
            output += part
    finally:
        os.close(ours)
        process.wait(60)
    return output.decode("utf-8", "surrogateescape")


def assert_harmless(text, allowed="\n"):
    assert text
    found = {
        c
        for c in text
        if c not in allowed and unicodedata.category(c).startswith(FORBIDDEN)
    }
    assert found == set(), text
    assert FORGED_LINE.search(text) is None, text


@pytest.mark.full
@pytest.mark.parametrize("verb", [verb.name for verb in VERBS])
def test_verb(folder, verb):
    parser = parsers_in(create_parser())[verb]
    cases = CASES.get(verb) or [[verb, *arguments_for(parser, HOSTILE)]]
    silent = ("compress", "decompress", "append", "metadata", "repack", "refs")
    silent += ("convert",)
    for arguments in cases:
        # On a slow machine there would be a progress bar.
        text = shown(folder, ["--no-progress", *arguments])
        if text or (verb in CASES and verb not in silent):
            assert_harmless(text)
        assert "Traceback" not in text


def test_escapes_are_shown(folder):
    """The text is still there: nothing is dropped."""
    text = shown(folder, ["metadata", "--compact", PACKED])
    assert "\\u202e" in text
    assert "\\u009b2J" in text
    assert "\\u007f" in text
    assert json.loads(text) == {CHARACTERS: [CHARACTERS]}
    assert "\\x9b2J" in shown(folder, ["compress", "--" + HOSTILE, "in"])
    assert "\\u202e" in shown(folder, ["list", PACKED])


@pytest.mark.parametrize(
    "arguments", [[HOSTILE], ["--" + HOSTILE], ["-n", HOSTILE, "info", "x"], []]
)
def test_wrong_usage(folder, arguments):
    assert_harmless(shown(folder, arguments))


@pytest.mark.full
@pytest.mark.parametrize("option", ["", "-c ", "--checksum=", "-z ", "--auto=", "-n "])
def test_variable(folder, option):
    variable = option + shlex.quote(HOSTILE)
    for arguments in (["compress", HOSTILE], ["compress", "--help"], ["list", PACKED]):
        assert_harmless(shown(folder, arguments, BLPK_DEFAULTS=variable))


def test_progress(folder):
    pytest.importorskip("tqdm")
    text = shown(folder, ["-f", "--progress", "compress", HOSTILE])
    assert "\r" in text
    assert_harmless(text, "\n\r")


def test_metadata_on_a_pipe_are_valid_json(folder):
    command = [sys.executable, "-m", "bloscpack", "metadata", PACKED]
    for encoding in ("utf-8", "latin-1", "ascii"):
        done = run_command(
            *command, env=environment(PYTHONIOENCODING=encoding), cwd=folder, check=True
        )
        text = done.stdout.decode(encoding)
        assert CHARACTERS in json.loads(text)
        assert_harmless(text)
