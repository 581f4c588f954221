"""Settings of the user: which wins, and that a wrong one names its source."""

from __future__ import annotations

import builtins
import os
import sys

import pytest

from bloscpack._cli import settings, verb_table
from bloscpack._cli.exit_codes import EXIT_COULD_NOT, EXIT_USAGE, Refusal
from bloscpack._cli.parser import parse
from bloscpack.args import BloscArgs, BloscpackArgs

NAMES = [
    *("nthreads", "codec", "clevel", "chunk_size", "checksum"),
    *("typesize", "filter", "auto"),
]


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Return a function that writes the configuration file and returns its name."""
    for name in list(os.environ):
        if name.startswith("BLPK_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")

    def write(content):
        path = tmp_path / "bloscpack" / "config.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


needs_toml = pytest.mark.skipif(sys.version_info < (3, 11), reason="needs tomllib")


def test_nothing_set(config):
    assert {} == settings.load()
    assert {} == settings.as_arguments(verb_table.ALL_SETTINGS)
    in_force = settings.in_force()
    assert NAMES == list(in_force)
    assert {"default"} == {source for _, source in in_force.values()}
    args = BloscArgs()
    assert (args.cname, args.clevel) == (in_force["codec"][0], in_force["clevel"][0])
    assert (args.typesize, "shuffle") == (
        in_force["typesize"][0],
        in_force["filter"][0],
    )
    assert BloscpackArgs().checksum == in_force["checksum"][0]


@needs_toml
def test_variable_over_file_over_default(config, monkeypatch):
    path = config('codec = "zstd"\nclevel = 3\nchunk_size = "4M"\n')
    monkeypatch.setenv("BLPK_CODEC", "lz4")
    monkeypatch.setenv("BLPK_NTHREADS", "2")
    monkeypatch.setenv("BLPK_CHUNK_SIZE", "")
    expected = {
        "nthreads": (2, "BLPK_NTHREADS"),
        "codec": ("lz4", "BLPK_CODEC"),
        "clevel": (3, path),
        "chunk_size": ("4M", path),
    }
    assert expected == settings.load()
    rest = {"checksum": "adler32", "typesize": 8, "filter": "shuffle", "auto": False}
    expected.update({name: (value, "default") for name, value in rest.items()})
    assert expected == settings.in_force()


@needs_toml
def test_verbs_take_what_they_need(config, monkeypatch):
    config(
        'clevel = 3\nchunk_size = 4096\nchecksum = "None"\nnthreads = 1\n'
        'typesize = 4\nfilter = "none"\nauto = true'
    )
    monkeypatch.setenv("BLPK_CODEC", "nonsense")
    assert {"nthreads": 1} == arguments("decompress")
    assert {} == arguments("list")
    monkeypatch.setenv("BLPK_CODEC", "lz4hc")
    common = {"nthreads": 1, "cname": "lz4hc", "clevel": 3, "shuffle": False}
    assert {**common, "auto": "balanced"} == arguments("append")
    expected = {**common, "chunk_size": 4096, "checksum": "None"}
    expected.update(typesize=4, auto="balanced")
    assert expected == arguments("compress")


def arguments(verb):
    """Return what the parser gets for a verb."""
    found = settings.as_arguments(verb_table.find(verb).settings).items()
    return {name: made.as_argument() for name, made in found}


def test_only_values_in_force_are_checked(config, monkeypatch):
    monkeypatch.setenv("BLPK_CODEC", "nonsense")
    monkeypatch.setenv("BLPK_CHUNK_SIZE", "64k")
    monkeypatch.setenv("BLPK_NTHREADS", "many")
    args = parse(["-n", "3", "compress", "-c", "lz4", "x"])
    assert (3, "lz4", 65536) == (args.nthreads, args.cname, args.chunk_size)
    for rest, variable in ((["-n", "3"], "CODEC"), ([], "NTHREADS")):
        with pytest.raises(Refusal, match="BLPK_%s: expected" % variable):
            parse([*rest, "append", "-l", "1", "x.blp", "y"])


GOOD = [
    # (name, text, value)
    ("nthreads", "1", 1),
    ("nthreads", "256", 256),
    ("codec", "blosclz", "blosclz"),
    ("clevel", "0", 0),
    ("clevel", "9", 9),
    ("chunk_size", "1.5K", "1.5K"),
    ("chunk_size", "64k", "64k"),
    ("chunk_size", "12345", 12345),
    ("chunk_size", "max", "max"),
    ("checksum", "sha512", "sha512"),
    ("typesize", "255", 255),
    ("filter", "none", "none"),
    ("filter", "bitshuffle", "bitshuffle"),
    ("auto", "true", "balanced"),
    ("auto", "false", False),
    ("auto", "ratio", "ratio"),
]


@pytest.mark.parametrize(("name", "text", "value"), GOOD)
def test_values(config, monkeypatch, name, text, value):
    variable = settings.variable_for(name)
    monkeypatch.setenv(variable, text)
    assert {name: (value, variable)} == settings.load()


@needs_toml
@pytest.mark.parametrize(("name", "text", "value"), GOOD)
def test_values_in_the_file(config, name, text, value):
    for shown in ('"%s"' % text, text if text.isdigit() else "'%s'" % text):
        path = config("%s = %s\n" % (name, shown))
        assert {name: (value, path)} == settings.load()


BAD = [
    # (name, text, message)
    ("nthreads", "0", "expected a number from 1 to 256, found '0'"),
    ("nthreads", "257", "expected a number from 1 to 256"),
    ("nthreads", "two", "expected a number from 1 to 256, found 'two'"),
    ("codec", "gzip", "expected one of blosclz,"),
    ("clevel", "-1", "expected a number from 0 to 9, found '-1'"),
    ("clevel", "10", "expected a number from 0 to 9"),
    ("clevel", "1.5", "expected a number from 0 to 9"),
    ("chunk_size", "0", "expected a chunk size, found 0"),
    ("chunk_size", "3G", "expected a chunk size, found '3G'"),
    ("chunk_size", "1q", "expected a chunk size, found '1q'"),
    ("chunk_size", "xM", "expected a chunk size, found 'xM'"),
    ("chunk_size", "²", "expected a chunk size, found '²'"),
    ("nthreads", "²", "expected a number from 1 to 256, found '²'"),
    ("checksum", "none", "expected one of None, adler32"),
    ("typesize", "0", "expected a number from 1 to 255, found '0'"),
    ("typesize", "256", "expected a number from 1 to 255, found '256'"),
    ("filter", "1", "expected one of none, shuffle, bitshuffle, found '1'"),
    ("auto", "yes", "expected one of true, false, speed, balanced, ratio, found 'yes'"),
]


@pytest.mark.parametrize(("name", "text", "message"), BAD)
def test_a_bad_variable(config, monkeypatch, name, text, message):
    monkeypatch.setenv(settings.variable_for(name), text)
    with pytest.raises(Refusal) as caught:
        settings.load()
    assert str(caught.value).startswith("BLPK_%s: %s" % (name.upper(), message))
    assert EXIT_USAGE == caught.value.exit_code


BAD_FILES = [
    # (content, message behind the name of the file)
    ("clevel = 11", ": clevel: expected a number from 0 to 9, found 11"),
    ("clevel = true", ": clevel: expected a number from 0 to 9, found True"),
    ("clevel = 1.0", ": clevel: expected a number"),
    ("codec = 1", ": codec: expected one of blosclz,"),
    ("codec = ['zstd']", ": codec: expected one of blosclz,"),
    ("checksum = {}", ": checksum: expected one of None,"),
    ("chunk_size = ''", ": chunk_size: expected a chunk size, found ''"),
    ("chunk_size = 1.5", ": chunk_size: expected a chunk size, found 1.5"),
    ("chunk_size = false", ": chunk_size: expected a chunk size, found False"),
    ("chunk_size = true", ": chunk_size: expected a chunk size, found True"),
    ("type_size = 4", ": unknown setting 'type_size', expected one of nthreads, codec"),
    ("typesize = true", ": typesize: expected a number from 1 to 255, found True"),
    ("filter = true", ": filter: expected one of none, shuffle"),
    ("auto = 1", ": auto: expected one of true, false"),
    ("[compress]\nclevel = 1", ": unknown setting 'compress'"),
    ("clevel = ", " is not valid TOML: "),
    ("clevel = 1\nclevel = 2", " is not valid TOML: "),
    (b"codec = '\xff'", " is not valid TOML: "),
    ("x = " + "[" * 100000, " is not valid TOML: "),
]


@needs_toml
@pytest.mark.parametrize(("content", "message"), BAD_FILES)
def test_a_bad_file(config, content, message):
    path = config(content)
    with pytest.raises(Refusal) as caught:
        settings.load()
    assert str(caught.value).startswith("'%s'%s" % (path, message))
    assert EXIT_USAGE == caught.value.exit_code


@needs_toml
def test_another_file(config, tmp_path, monkeypatch):
    config("clevel = 1")
    (tmp_path / "other").write_text("clevel = 2")
    monkeypatch.setenv("BLPK_CONFIG", str(tmp_path / "other"))
    assert str(tmp_path / "other") == settings.path()
    assert {"clevel": (2, str(tmp_path / "other"))} == settings.load()
    monkeypatch.setenv("BLPK_CONFIG", os.devnull)
    assert {} == settings.load()
    monkeypatch.setenv("BLPK_CONFIG", str(tmp_path / "none"))
    with pytest.raises(Refusal, match=r"BLPK_CONFIG: .*none': No such file") as caught:
        settings.load()
    assert EXIT_USAGE == caught.value.exit_code


def test_a_file_that_can_not_be_read(config, tmp_path):
    (tmp_path / "bloscpack" / "config.toml").mkdir(parents=True)
    with pytest.raises(OSError, match=r"directory|denied") as caught:
        settings.load()
    assert settings.path() == caught.value.filename


def test_no_folder_to_look_into(config, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert {} == settings.load()


def test_where_the_file_is(config, tmp_path, monkeypatch):
    expected = os.path.join(str(tmp_path), "bloscpack", "config.toml")
    assert expected == settings.path()
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    expected = os.path.join(str(tmp_path), ".config", "bloscpack", "config.toml")
    assert expected == settings.path()


def test_platformdirs_agrees(config):
    platformdirs = pytest.importorskip("platformdirs")
    if os.name == "posix":
        expected = platformdirs.unix.Unix("bloscpack", appauthor=False).user_config_dir
        assert os.path.join(expected, "config.toml") == settings.path()


def test_platformdirs_says_where_it_is_on_other_systems(config, monkeypatch):
    platformdirs = pytest.importorskip("platformdirs")
    monkeypatch.setattr(sys, "platform", "darwin")
    expected = platformdirs.user_config_dir("bloscpack", appauthor=False)
    assert os.path.join(expected, "config.toml") == settings.path()


def without(monkeypatch, *missing):
    """Make some modules impossible to import."""
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)


def test_without_platformdirs(config, tmp_path, monkeypatch):
    without(monkeypatch, "platformdirs")
    monkeypatch.setattr(sys, "platform", "darwin")
    expected = os.path.join(str(tmp_path), "bloscpack", "config.toml")
    assert expected == settings.path()


def test_without_a_toml_parser(config, monkeypatch):
    without(monkeypatch, "tomllib", "tomli")
    assert {} == settings.load()
    path = config("clevel = 1")
    with pytest.raises(Refusal) as caught:
        settings.load()
    assert str(caught.value).startswith("'%s' can't be read without" % path)
    assert EXIT_COULD_NOT == caught.value.exit_code


def test_one_look_at_the_disk(config, monkeypatch):
    looked = []
    stat = os.stat

    def counted(name, *args, **kwargs):
        looked.append(name)
        return stat(name, *args, **kwargs)

    def refused(name, *args, **kwargs):
        raise AssertionError("%s was looked at" % name)

    monkeypatch.setattr(os, "stat", counted)
    monkeypatch.setattr(builtins, "open", refused)
    monkeypatch.setattr(builtins, "__import__", refused)
    try:
        assert {} == settings.load()
    finally:
        monkeypatch.undo()
    assert 1 == len(looked)


@pytest.mark.parametrize(
    ("name", "shuffle"), [("none", False), ("shuffle", True), ("bitshuffle", 2)]
)
def test_type_size_and_filter_of_the_user(config, monkeypatch, name, shuffle):
    monkeypatch.setenv("BLPK_TYPESIZE", "4")
    monkeypatch.setenv("BLPK_FILTER", name)
    args = parse(["compress", "x"])
    assert (4, shuffle) == (args.typesize, args.shuffle)
    args = parse(["compress", "-t", "2", "--bitshuffle", "x"])
    assert (2, 2) == (args.typesize, args.shuffle)
    args = parse(["append", "x.blp", "y"])  # the type size is that of the file
    assert (None, shuffle) == (args.typesize, args.shuffle)


@needs_toml
@pytest.mark.parametrize(
    ("configured", "option", "auto"),
    [
        ("", [], False),
        ("", ["--auto"], "balanced"),
        ("", ["--auto=balanced"], "balanced"),
        ("", ["--auto=speed"], "speed"),
        ("auto = true", [], "balanced"),
        ("auto = 'ratio'", [], "ratio"),
        ("auto = 'ratio'", ["--auto"], "balanced"),
        ("auto = 'ratio'", ["--no-auto"], None),
    ],
)
def test_auto_of_the_user(config, configured, option, auto):
    config(configured)
    args = parse(["compress", *option, "x"])
    assert ("x", auto) == (args.in_file, args.auto)


def test_settings_that_are_given(config, monkeypatch):
    assert [] == parse(["compress", "x"]).given
    monkeypatch.setenv("BLPK_CODEC", "lz4")
    args = parse(["compress", "-t", "8", "-z", "1M", "--auto", "-s", "x"])
    assert ["chunk_size", "cname", "shuffle", "typesize"] == args.given
