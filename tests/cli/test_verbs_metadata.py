"""blpk metadata: what it shows, what it changes, and that it refuses the rest."""

from __future__ import annotations

import functools
import io
import json
import sys

import numpy as np
import pytest
from cli.verb_support import Refusal, exit_code, run_verb
from support import another_writer

import bloscpack
from bloscpack.args import MetadataArgs
from bloscpack.exceptions import (
    DoesNotFit,
    FormatError,
    MetadataSectionTooSmall,
    NoMetadataFound,
    StorageError,
)
from bloscpack.file_io import pack_bytes_to_file, unpack_bytes_from_file
from bloscpack.log import printable

PLAIN = bytes(range(256)) * 100


blpk = functools.partial(run_verb, "metadata")


@pytest.fixture
def packed(tmp_path):
    """Return a function that packs a file with some metadata."""

    def pack(metadata, room=1000):
        path = tmp_path / "x.blp"
        args = MetadataArgs(max_meta_size=room)
        pack_bytes_to_file(
            PLAIN, path, "4K", metadata=metadata, metadata_args=args, nthreads=1
        )
        return path

    return pack


def content(path):
    """Return the metadata, after checking that the data are what they were."""
    plain, metadata = unpack_bytes_from_file(path)
    assert plain == PLAIN
    return metadata


SHOWN = [
    # (metadata, text, compact text)
    (
        {"b": [1, 2.5], "a": {"y": True}},
        '{\n  "a": {\n    "y": true\n  },\n  "b": [\n    1,\n    2.5\n  ]\n}\n',
        '{"a":{"y":true},"b":[1,2.5]}\n',
    ),
    ({}, "{}\n", "{}\n"),
    ([], "[]\n", "[]\n"),
    ("text", '"text"\n', '"text"\n'),
    ({"☃": "é\n"}, '{\n  "☃": "é\\n"\n}\n', '{"☃":"é\\n"}\n'),
    ({"x": "\ud800"}, '{\n  "x": "\\ud800"\n}\n', '{"x":"\\ud800"}\n'),
]


@pytest.mark.parametrize(("metadata", "text", "compact"), SHOWN)
def test_show(packed, capsys, metadata, text, compact):
    path = packed(metadata)
    before = path.read_bytes()
    assert 0 == blpk(path)
    assert text == capsys.readouterr().out
    blpk("--compact", path)
    assert compact == capsys.readouterr().out
    assert metadata == json.loads(compact)
    assert before == path.read_bytes()


def test_what_the_output_can_not_show_is_escaped(packed, monkeypatch):
    output = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", output)
    blpk("--compact", packed({"☃": 1}))
    output.flush()
    assert b'{"\\u2603":1}\n' == output.buffer.getvalue()


CHANGES = [
    # (arguments, metadata afterwards)
    (["--update", "a=2"], {"a": 2, "b": "text"}),
    (["--update", 'a="t=u"'], {"a": "t=u", "b": "text"}),
    (["--update", " a =null"], {"a": 1, "b": "text", " a ": None}),
    (["--update", "c=[1, {}]", "--update", "d=1.5"], None),
    (["--update", "c=1", "--update", "c=2"], {"a": 1, "b": "text", "c": 2}),
    (["--update", "=1"], {"a": 1, "b": "text", "": 1}),
    (["--remove", "a"], {"b": "text"}),
    (["--remove", "a", "--remove", "b"], {}),
    (["--remove", "a", "--remove", "a"], {"b": "text"}),
    (["--remove", "a", "--update", "a=5"], {"a": 5, "b": "text"}),
    (["--update", 'b="\\u2603☃"'], {"a": 1, "b": "☃☃"}),
]


@pytest.mark.parametrize(("arguments", "expected"), CHANGES)
def test_change(packed, capsys, arguments, expected):
    path = packed({"a": 1, "b": "text"})
    size = path.stat().st_size
    if expected is None:
        expected = {"a": 1, "b": "text", "c": [1, {}], "d": 1.5}
    assert 0 == blpk(*arguments, path)
    assert expected == content(path)
    assert size == path.stat().st_size
    assert ("", "") == capsys.readouterr()
    assert [path] == list(path.parent.iterdir())


@pytest.mark.parametrize("value", [{"x": [1]}, [], "text", 0, False])
def test_replace(packed, tmp_path, monkeypatch, value):
    path = packed({"a": 1})
    text = json.dumps(value)
    (tmp_path / "new").write_text("  %s\n" % text)
    blpk("--set", tmp_path / "new", path, sync=False)
    assert value == content(path)

    path = packed({"a": 1})
    stdin = io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbf" + text.encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    blpk("--set", "-", path, sync=True)
    assert value == content(path)


def test_null_replaces_nothing(packed, tmp_path):
    path = packed({"a": 1})
    (tmp_path / "new").write_text("null")
    with pytest.raises(Refusal, match="is null, which counts as none"):
        blpk("--set", tmp_path / "new", path)
    assert {"a": 1} == content(path)


def test_no_change_is_no_failure(packed, tmp_path):
    path = packed({"a": 1, "b": [True]})
    before = path.read_bytes()
    (tmp_path / "same").write_text('{"b": [true], "a": 1}')
    blpk("--update", "a=1", path)
    blpk("--set", tmp_path / "same", path)
    assert before == path.read_bytes()


USAGE = [
    # (arguments, exit code, message)
    (["--update", "a"], 2, "--update: expected KEY=JSON, found 'a'"),
    (
        ["--update", "a=metre"],
        2,
        "inside the quotes of the shell: 'a=\"metre\"'",
    ),
    (["--update", "a='metre'"], 2, "--update a: ''metre'' is not valid"),
    (["--update", "a="], 2, "not valid JSON: Expecting value"),
    (["--update", "a=" + "[" * 101 + "]" * 101], 2, "levels deep"),
    (["--set", "x", "--update", "a=1"], 2, "--set replaces everything"),
    (["--set", "x", "--remove", "a"], 2, "--set replaces everything"),
    (["--compact", "--remove", "a"], 2, "--compact is for showing"),
    (["--remove", "c"], 1, "have no key 'c', but these: a, b"),
]


@pytest.mark.parametrize(("arguments", "rc", "message"), USAGE)
def test_refused(packed, arguments, rc, message):
    path = packed({"a": 1, "b": 2})
    before = path.read_bytes()
    with pytest.raises(Refusal) as caught:
        blpk(*arguments, path)
    assert message in str(caught.value)
    assert rc == exit_code(caught.value)
    assert before == path.read_bytes()


@pytest.mark.parametrize("metadata", [[], "text", 1])
@pytest.mark.parametrize("arguments", [("--update", "a=1"), ("--remove", "a")])
def test_only_objects_have_keys(packed, metadata, arguments):
    with pytest.raises(Refusal, match="no JSON object") as caught:
        blpk(*arguments, packed(metadata))
    assert 1 == exit_code(caught.value)


BAD_JSON = [
    # (content of the file, message)
    (b"{", "Expecting property name"),
    (b"", "Expecting value"),
    (b"\xff", "'utf-8' codec can't decode"),
    (b"[" * 200 + b"]" * 200, "levels deep"),
    (b"[" * 200000, ""),
]


@pytest.mark.parametrize(("text", "message"), BAD_JSON)
def test_files_that_hold_no_json(packed, run, tmp_path, text, message):
    path = packed({"a": 1})
    (tmp_path / "new").write_bytes(text)
    with pytest.raises(Refusal) as caught:
        blpk("--set", tmp_path / "new", path)
    shown = "metadata file '%s' is not valid JSON: " % (tmp_path / "new")
    assert str(caught.value).startswith(shown)
    assert message in str(caught.value)
    assert 1 == exit_code(caught.value)
    assert {"a": 1} == content(path)
    # ``-m`` reads them alike.
    (tmp_path / "plain").write_bytes(b"")
    code, _, errors = run("compress", "-m", tmp_path / "new", tmp_path / "plain")
    assert (1, "blpk: error: %s\n" % printable(str(caught.value))) == (code, errors)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["", "byte order mark"])
def test_what_both_ways_of_reading_take(packed, run, tmp_path, mark):
    path = packed({"a": 1})
    (tmp_path / "new").write_bytes(mark + b'{"b": [NaN, "\xc3\xa9"]}\n')
    blpk("--set", tmp_path / "new", path)
    (tmp_path / "plain").write_bytes(b"")
    assert 0 == run("compress", "-m", tmp_path / "new", tmp_path / "plain")[0]
    read = unpack_bytes_from_file(tmp_path / "plain.blp")[1]
    assert repr(content(path)) == repr(read)


def test_no_standard_input(packed, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(StorageError, match="standard input is closed"):
        blpk("--set", "-", packed({"a": 1}))


def test_a_file_that_is_missing(packed, tmp_path):
    path = packed({"a": 1})
    for arguments, message in (
        ((tmp_path / "no",), "No such file"),
        (("--set", tmp_path / "no", path), "metadata file '.*no' does not exist!"),
    ):
        with pytest.raises(OSError, match=message) as caught:
            blpk(*arguments)
        assert str(tmp_path / "no") in str(caught.value)
        assert 1 == exit_code(caught.value)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--update", "a=1"), {"a": 1}),
        (("--set", "-"), {}),
        (("--grow", "--set", "-"), {}),
    ],
)
def test_a_file_without_metadata_gets_some(packed, monkeypatch, arguments, expected):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{}")))
    path = packed(None)
    before = bloscpack.unpack_bytes_from_file(path)[0]
    blpk(*arguments, path)
    assert (before, expected) == bloscpack.unpack_bytes_from_file(path)


def test_no_metadata_section(packed):
    path = packed(None)
    with pytest.raises(Refusal, match="have no key 'x': there are no keys"):
        blpk("--remove", "x", path)
    with pytest.raises(NoMetadataFound) as caught:
        blpk(path)
    assert "the file has no metadata section (file '%s')" % path == str(caught.value)
    assert 1 == exit_code(caught.value)


def test_too_little_room(packed):
    path = packed({"a": 1}, room=20)
    before = path.read_bytes()
    with pytest.raises(MetadataSectionTooSmall) as caught:
        blpk("--update", 'b="%s"' % "".join(map(chr, range(40, 90))), path)
    assert "required: " in str(caught.value)
    assert "; --grow rewrites the file with more space" in str(caught.value)
    assert "allocated: 20" in str(caught.value)
    assert str(path) in str(caught.value)
    assert before == path.read_bytes()


@pytest.fixture
def array_file(tmp_path):
    """Return the name of a file of an array without metadata of the user."""
    path = tmp_path / "x.blp"
    bloscpack.pack_ndarray_to_file(np.arange(6), path)
    return path


def user_metadata(path):
    """Return the metadata of the user, after checking the array."""
    array, metadata = bloscpack.unpack_ndarray_from_file(path, return_metadata=True)
    assert [0, 1, 2, 3, 4, 5] == array.tolist()
    return metadata


def test_keys_of_an_array_file_are_those_of_the_user(array_file, capsys):
    description = bloscpack.info(array_file).metadata
    blpk("--update", 'unit="m"', "--update", "shape=[7]", array_file)
    assert {"unit": "m", "shape": [7]} == user_metadata(array_file)
    blpk(array_file)
    shown = json.loads(capsys.readouterr().out)
    assert {**description, "metadata": {"unit": "m", "shape": [7]}} == shown
    blpk("--remove", "shape", array_file)
    assert {"unit": "m"} == user_metadata(array_file)
    blpk("--remove", "unit", array_file)
    assert {} == user_metadata(array_file)


@pytest.mark.parametrize("key", ["dtype", "shape", "order", "container", "metadata"])
def test_the_description_of_an_array_is_not_removed(array_file, key):
    before = array_file.read_bytes()
    with pytest.raises(Refusal) as caught:
        blpk("--remove", key, array_file)
    assert str(caught.value) == (
        "'%s': the metadata beside the array have no key '%s': there are no keys"
        % (array_file, key)
    )
    assert before == array_file.read_bytes()


def test_set_keeps_the_description_of_an_array(array_file, tmp_path, capsys):
    (tmp_path / "new").write_text('["a"]')
    blpk("--set", tmp_path / "new", array_file)
    assert ["a"] == user_metadata(array_file)
    with pytest.raises(Refusal, match="beside the array are no JSON object"):
        blpk("--update", "a=1", array_file)


def test_all_metadata_of_an_array_file_go_to_another(array_file, tmp_path, capsys):
    other = tmp_path / "other.blp"
    bloscpack.pack_ndarray_to_file(np.arange(6), other, metadata={"unit": "m"})
    blpk("--compact", other)
    (tmp_path / "new").write_text(capsys.readouterr().out)
    blpk("--set", tmp_path / "new", array_file)
    assert {"unit": "m"} == user_metadata(array_file)
    bloscpack.pack_ndarray_to_file(np.arange(5), array_file)
    with pytest.raises(DoesNotFit):
        blpk("--set", tmp_path / "new", array_file)


def test_damaged_metadata(packed):
    path = packed({"a": 1})
    data = bytearray(path.read_bytes())
    data[64] ^= 0xFF
    path.write_bytes(data)
    for arguments in ((), ("--update", "a=2")):
        with pytest.raises(FormatError) as caught:
            blpk(*arguments, path)
        assert ("metadata", str(path)) == (caught.value.section, caught.value.filename)
        assert data == path.read_bytes()


def test_one_writer_at_a_time(packed):
    pytest.importorskip("fcntl")
    path = packed({"a": 1})
    with another_writer(path), pytest.raises(StorageError, match="another writer"):
        blpk("--update", "a=2", path)
    assert {"a": 1} == content(path)


def test_numbers_that_json_lacks(run, tmp_path):
    path = tmp_path / "a.blp"
    values = {"a": float("nan"), "b": [float("inf"), 1.5]}
    pack_bytes_to_file(b"abc", path, metadata=values)

    def refuse(name):
        raise AssertionError(name)

    for arguments in [path], ["--compact", path]:
        _, said, errors = run("metadata", *arguments)
        found = json.loads(said, parse_constant=refuse)
        assert {"a": None, "b": ["Infinity", 1.5]} == found
        assert "no infinities" in errors
