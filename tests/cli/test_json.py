"""`--json`: standard output is one JSON value, whatever happens to one of the files."""

import json
import subprocess

import pytest
from support import run_blpk

import bloscpack

# Files in the middle of others, of which none can be shown or all have a fault.
IN_THE_MIDDLE = [
    *("missing.blp", "plain", "empty", "damaged.blp", "cut.blp", "later-layout.blp"),
    *("folder", "line\nbreak \u202e \x1b[31m"),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    packed = bloscpack.pack_bytes_to_bytes(b"plain bytes " * 1000, 4096)
    for name in ("a.blp", "b.blp"):
        (tmp_path / name).write_bytes(packed)
    (tmp_path / "damaged.blp").write_bytes(packed[:-1] + b"?")
    (tmp_path / "cut.blp").write_bytes(packed[:-100])
    (tmp_path / "later-layout.blp").write_bytes(b"blpk\x63" + packed[5:])
    (tmp_path / "plain").write_bytes(b"plain bytes " * 10)
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    return tmp_path


def blpk(*arguments):
    done = run_blpk(*arguments, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("option", ["--no-progress", "-v", "-d"])
@pytest.mark.parametrize("verb", ["info", "list", "verify"])
def test_errors_in_the_middle(verb, option):
    code, said, errors = blpk(verb, "--json", option, "a.blp", *IN_THE_MIDDLE, "b.blp")
    names = [entry["file"] for entry in json.loads(said)]
    assert ("a.blp", "b.blp") == (names[0], names[-1])
    assert 3 == code
    assert "Traceback" not in errors
    # A file without an entry has its message on standard error.
    without = [name for name in IN_THE_MIDDLE if name not in names]
    assert len(without) - 1 <= errors.count("blpk: error: ")
    assert verb != "verify" or not without


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (0, ["info", "a.blp"]),
        (0, ["recover", "a.blp", "new.blp"]),
        (3, ["recover", "damaged.blp", "new.blp"]),
        (0, ["metadata", "array.blp"]),
        (0, ["metadata", "--compact", "array.blp"]),
        (1, ["list", "missing"]),
        (1, ["list", "folder"]),
    ],
    ids=str,
)
def test_one_value(folder, code, arguments):
    np = pytest.importorskip("numpy")
    bloscpack.pack_ndarray_to_file(np.arange(5), folder / "array.blp")
    option = [] if arguments[0] == "metadata" else ["--json"]
    found, said, _ = blpk(*arguments, *option)
    json.loads(said)
    assert code == found


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "arguments",
    [
        ["info", "missing"],
        ["recover", "plain", "new.blp"],
        ["recover", "a.blp", "b.blp"],
        ["info", "--chunks", "missing"],
    ],
    ids=str,
)
def test_nothing_or_one_value(arguments):
    code, said, errors = blpk(*arguments, "--json")
    assert 0 != code
    assert b"" == said
    assert "error: " in errors


def test_infinity_in_metadata(run, folder):
    """JSON has no such numbers: they are shown as Zarr spells them."""
    values = [float("inf"), {"a": -float("inf")}, float("nan"), 1.5]
    bloscpack.pack_bytes_to_file(b"", folder / "x.blp", metadata=values)
    code, said, _ = run("info", "--json", folder / "x.blp")
    found = json.loads(said)["metadata"]
    assert (0, ["Infinity", {"a": "-Infinity"}, None, 1.5]) == (code, found)
