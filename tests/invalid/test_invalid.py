"""The invalid files: for every rule of the format, files that break it and no other.

Each is refused by every reader that has to see it, and with the same words.
`invalid/MANIFEST.json` says which, and `invalid/make.py` how the files were made.
"""

from __future__ import annotations

import io
import json
import re
from contextlib import suppress

import pytest
from format import independent_reader
from invalid import make
from support import TESTS

import bloscpack as bp
from bloscpack import cli, log
from bloscpack.append import append_fp, rewrite_metadata_fp
from bloscpack.describe import inspect_files
from bloscpack.exceptions import (
    FormatError,
    HeaderError,
    NotReadable,
    Unsupported,
    UsageError,
)
from bloscpack.recover import recover
from bloscpack.verify import verify

INVALID = TESTS / "invalid"
MANIFEST = json.loads((INVALID / "MANIFEST.json").read_text("ascii"))
ERRORS_OF_016 = json.loads((INVALID / "ERRORS-0.16.json").read_text("ascii"))


def read_bytes(path):
    return bp.unpack_bytes_from_bytes(path.read_bytes(), nthreads=1)


def read_file(path):
    return bp.unpack_file_from_file(path, path.with_suffix(".out"), nthreads=1)


def read_array(path):
    return bp.unpack_ndarray_from_bytes(path.read_bytes(), nthreads=1)


def unchanged(data):
    """Return what a failed change leaves: the content by a valid undo record (X8)."""
    try:
        return independent_reader.content_of(data)
    except independent_reader.Refused:
        return data


def append(path):
    """Append a file that fits; the file that it is appended to is left in memory."""
    old = path.read_bytes()
    fp = io.BytesIO(old)
    try:
        new = io.BytesIO(make.PLAIN)
        append_fp(fp, new, len(make.PLAIN), needs_offsets=False, nthreads=1)
    except Exception:
        assert unchanged(old) == fp.getvalue()
        raise


def info(path):
    return [*inspect_files(str(path), lenient=True)]


READERS = {
    "bytes": read_bytes,
    "file": read_file,
    "array": read_array,
    "append": append,
    "info": info,
}


@pytest.fixture
def path(tmp_path, name):
    """Return the path of a copy of the file, alone in its folder."""
    path = tmp_path / "a.blp"
    path.write_bytes((INVALID / (name + ".blp")).read_bytes())
    return path


each_file = pytest.mark.parametrize("name", MANIFEST)


@pytest.mark.parametrize("name", ["sound"])
def test_the_blank_is_sound(path):
    for read in READERS.values():
        read(path)


# Append drops what it does not take for a trailer, and says so.
@pytest.mark.every_case
@pytest.mark.filterwarnings("ignore:dropping:RuntimeWarning")
@each_file
def test_refused(path, name):
    entry = MANIFEST[name]
    for reader in READERS:
        if reader in entry["accepted by"]:
            READERS[reader](path)
            path.with_suffix(".out").unlink(missing_ok=True)
            continue
        with pytest.raises((FormatError, UsageError)) as raised:
            READERS[reader](path)
        assert [path] == list(path.parent.iterdir())
        error = raised.value
        otherwise = entry.get("otherwise", {})
        message = otherwise.get(reader, entry["message"])
        assert re.match(message, getattr(error, "message", str(error)))
        if reader not in otherwise and isinstance(error, FormatError):
            expected = [entry.get(key) for key in ("section", "offset", "chunk")]
            assert expected == [error.section, error.offset, error.chunk]


@pytest.mark.parametrize("name", [n for n in MANIFEST if "findings" in MANIFEST[n]])
def test_findings(path, name):
    """A wrong trailer of a shard: every reader ignores it, and verify reports it."""
    entry, report = MANIFEST[name], verify(path)
    assert not report.ok
    assert entry["findings"] == sorted(
        {"%s %s" % (f.section, f.kind) for f in report.findings}
    )
    assert report.nchunks == report.nintact
    recover(path, path.with_suffix(".new"))
    assert [] == verify(path.with_suffix(".new")).findings


@each_file
def test_command(path, name, capsys, monkeypatch):
    monkeypatch.setattr(log, "PREFIX", log.PREFIX)
    entry = MANIFEST[name]
    if "info" in entry["accepted by"]:
        with suppress(SystemExit):  # with code 3 if there is a line 'damaged:'
            cli.main(["info", str(path)])
        assert "" == capsys.readouterr().err
        return
    with pytest.raises(SystemExit) as raised:
        cli.main(["info", str(path)])
    assert raised.value.code in (1, 3)
    told, error = capsys.readouterr()
    assert "" == told
    assert re.match("blpk: error: " + entry["message"], error)
    assert "file '%s', section '%s'" % (path, entry["section"]) in error


def test_metadata_are_replaced_or_stay():
    for name in MANIFEST:
        old = (INVALID / (name + ".blp")).read_bytes()
        fp = io.BytesIO(old)
        try:
            rewrite_metadata_fp(fp, {"a": 1})
        except (FormatError, UsageError):
            assert unchanged(old) == fp.getvalue()
        else:
            # As far as the metadata, all is well with it.
            assert len(unchanged(old)) == len(fp.getvalue())
            assert MANIFEST[name].get("section") in (
                "metadata",
                "offsets",
                "chunks",
                None,
            )


@pytest.mark.parametrize("name", ["append-full", "append-no-axis", "append-order-f"])
def test_what_only_append_refuses_is_sound(name):
    """The files break one rule, and that one is about what is to be appended."""
    assert [] == verify(INVALID / (name + ".blp")).findings


def test_what_is_none_of_ours_is_not_called_damaged():
    for name in ("empty", "magic", "version-4"):
        with pytest.raises((NotReadable, Unsupported)):
            READERS["bytes"](INVALID / (name + ".blp"))


# The errors of release 0.16

BUILT_IN = {
    "ValueError": ValueError,
    "TypeError": TypeError,
    "LookupError": LookupError,
    "OSError": OSError,
    "MemoryError": MemoryError,
}


@pytest.mark.parametrize("name", sorted(ERRORS_OF_016))
@pytest.mark.parametrize("reader", ["bytes", "array"])
def test_handlers_of_old_programs_catch_no_more(name, reader):
    old = ERRORS_OF_016[name][reader]
    error = None
    try:
        READERS[reader](INVALID / (name + ".blp"))
    except (FormatError, UsageError) as caught:
        error = caught
    for text, handler in BUILT_IN.items():
        assert text in old or not isinstance(error, handler)
    if isinstance(error, (NotReadable, HeaderError)):
        assert "ValueError" in old  # the header, by itself, is impossible
        assert not isinstance(error, RuntimeError)
    elif error is not None and "RuntimeError" in old:
        assert isinstance(error, RuntimeError)


# The files and the rules


def test_every_file_is_listed():
    listed = {"sound", *MANIFEST}
    assert listed == {path.stem for path in INVALID.glob("*.blp")}
    assert listed == {"sound", *make.FILES}


def test_files_are_made_again():
    for name in ["sound", *make.FILES]:
        assert (INVALID / (name + ".blp")).read_bytes() == make.made(name)


def test_manifest_names_the_rules():
    for name in MANIFEST:
        assert make.FILES[name][0].split() == MANIFEST[name]["rules"]


def test_files_are_small():
    sizes = {path.stem: path.stat().st_size for path in INVALID.glob("*.blp")}
    assert {"meta-nested-deep", "meta-digits", "shape-digits"} == {
        name for name, size in sizes.items() if size > 2000
    }
