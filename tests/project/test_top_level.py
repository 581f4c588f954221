"""The top level of the package: its names, its help, and modules that are functions."""

from __future__ import annotations

import importlib
import inspect
import itertools
import pickle
import pydoc
import re
from types import ModuleType

import numpy as np
import pytest
from support import ROOT, run_python

import bloscpack as bp

PATHS = ("append", "recover", "references", "verify")
DEPRECATED = {
    "pack_file",
    "unpack_file",
    "pack_bytes_file",
    "unpack_bytes_file",
    "pack_ndarray_file",
    "unpack_ndarray_file",
    "pack_ndarray_str",
    "unpack_ndarray_str",
}


def run(code, *args):
    """Run a program in another process and return what it prints."""
    done = run_python("-c", code, *args, text=True)
    assert 0 == done.returncode, done.stderr
    return done.stdout


# Names


def test_dir_is_all():
    # ``from bloscpack import *`` keeps the function `open` of Python.
    assert "open" not in bp.__all__
    assert sorted([*bp.__all__, "open"]) == dir(bp)
    for name in bp.__all__:
        assert hasattr(bp, name)


def test_dir_of_dataset_is_what_is_documented():
    from bloscpack import dataset

    text = (ROOT / "docs" / "api.rst").read_text("utf-8")
    text = text.partition(".. currentmodule:: bloscpack.dataset")[2]
    text = text.partition("Several arrays in one file")[0]
    pattern = r"^\.\. auto(?:function|class):: (?:bloscpack\.dataset\.)?(\w+)(?:\(\))?$"
    assert sorted(re.findall(pattern, text, re.MULTILINE)) == dir(dataset)
    for name in dir(dataset):
        assert callable(getattr(dataset, name))


def test_star():
    names = {}
    exec("from bloscpack import *", names)
    assert {*bp.__all__} == {*names} - {"__builtins__"}


def test_all_is_a_copy():
    bp.__all__.append("other")
    assert "other" not in bp.__all__
    assert "other" not in dir(bp)


def test_modules_are_there_but_not_listed():
    folder = ROOT / "bloscpack"
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    files |= {path.parent.name for path in folder.glob("*/__init__.py")}
    modules = {name for name in files if not name.startswith("_")}
    assert {*PATHS} == modules & {*dir(bp)}
    for name in modules:
        assert isinstance(getattr(bp, name), ModuleType)


def test_type_checkers_see_the_same_names():
    text = (ROOT / "bloscpack" / "__init__.py").read_text("utf-8")
    block = text.partition("if TYPE_CHECKING:\n")[2].partition("\n# ")[0]
    seen = re.findall(r"import (\w+) as (\w+)\n", block)
    assert all(name == public for name, public in seen)
    assert {*dir(bp)} - {"__version__"} == {name for name, _ in seen}


# Help


def test_help_begins_with_all_names_on_a_screen():
    text = pydoc.plain(run("import bloscpack; help(bloscpack)"))
    shown = text.partition("PACKAGE CONTENTS")[0]
    assert 60 >= len(shown.splitlines())
    for line in (bp.__doc__ or "").splitlines():
        assert line in shown
        assert 88 >= len(line)


def test_docstring_names_what_is_public():
    words = set(re.findall(r"\w+", bp.__doc__ or ""))
    assert {*dir(bp)} - {"__version__"} <= words
    deprecated = (bp.__doc__ or "").partition("Deprecated names")[2]
    assert DEPRECATED == set(re.findall(r"\w+", deprecated))


@pytest.mark.parametrize("name", PATHS)
def test_help_of_a_module_that_is_a_function(name):
    text = pydoc.plain(pydoc.render_doc(getattr(bp, name)))
    assert "bloscpack.%s(" % name in text.partition("DESCRIPTION")[0]
    assert "\n    %s(" % name in text


# Modules that are functions


@pytest.mark.parametrize("name", PATHS)
def test_signature_is_that_of_the_function(name):
    module = importlib.import_module("bloscpack." + name)
    assert getattr(bp, name) is module
    assert callable(module)
    assert "<function and module 'bloscpack.%s'>" % name == repr(module)
    function = getattr(module, name)
    assert inspect.isfunction(function)
    assert inspect.signature(function) == inspect.signature(module)


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_module_that_is_a_function_can_be_pickled(name, protocol):
    module = getattr(bp, name)
    assert module is pickle.loads(pickle.dumps(module, protocol))
    code = (
        "import pickle, sys; print(pickle.loads(bytes.fromhex(sys.argv[1])).__name__)"
    )
    data = pickle.dumps(module, protocol).hex()
    assert "bloscpack.%s\n" % name == run(code, data) if protocol == 2 else True


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.blp"
    bp.pack_bytes_to_file(b"abc" * 100, path)
    return path


def test_call_the_modules(path, tmp_path):
    (tmp_path / "new").write_bytes(b"def")
    assert bp.append(path, tmp_path / "new", clevel=9) is None
    assert (b"abc" * 100 + b"def", None) == bp.unpack_bytes_from_file(path)
    report = bp.verify(path, nthreads=1)
    assert isinstance(report, bp.verify.Report)
    assert (1, []) == (report.nintact, report.findings)
    recovery = bp.recover(path, tmp_path / "out.blp")
    assert isinstance(recovery, bp.recover.Recovery)
    assert path.read_bytes() == (tmp_path / "out.blp").read_bytes()
    with pytest.raises(TypeError, match=r"verify\(\) missing 1 required"):
        bp.verify()


FORMS = (
    "import bloscpack.append",
    "from bloscpack.append import append, append_fp",
    "from bloscpack import append as module",
    "import bloscpack.append as dotted",
    "import bloscpack.verify, bloscpack.recover, bloscpack.cli",
    "from bloscpack import *",
    "bloscpack.append",
)
CHECK = """
import sys
import bloscpack
%s
import bloscpack.append as dotted
from bloscpack import append as module
from bloscpack.append import append, append_fp
assert bloscpack.append is module is dotted is sys.modules["bloscpack.append"]
assert append is bloscpack.append.append is module.append
assert append_fp is bloscpack.append.append_fp
assert callable(bloscpack.append) and callable(bloscpack.verify)
bloscpack.pack_bytes_to_file(b"abc", sys.argv[1])
bloscpack.pack_bytes_to_file(b"def", sys.argv[2])
for function in (bloscpack.append, bloscpack.append.append, append):
    function(sys.argv[1], sys.argv[2])
print(len(bloscpack.unpack_bytes_from_file(sys.argv[1])[0]) > 3)
"""


@pytest.mark.parametrize("forms", [*list(itertools.permutations(FORMS[:4], 2)), *FORMS])
def test_imports_in_any_order(forms, tmp_path):
    forms = [forms] if isinstance(forms, str) else forms
    code = CHECK % "\n".join(forms)
    assert "True\n" == run(code, str(tmp_path / "a.blp"), str(tmp_path / "new"))


def test_module_can_be_patched(monkeypatch):
    monkeypatch.setattr("bloscpack.verify.verify", lambda path: ("patched", path))
    assert ("patched", "a") == bp.verify("a")


def test_reload():
    again = importlib.reload(bp.recover)
    assert again is bp.recover
    assert callable(again)


# info


def test_info_of_a_file(path):
    found = bp.info(path)
    assert isinstance(found, bp.FileInfo)
    assert (300, 1, 3, "adler32") == (
        found.nbytes,
        found.nchunks,
        found.format_version,
        found.checksum,
    )
    assert path.stat().st_size == found.cbytes
    assert str(path) == found.file
    assert "blosclz" == found.first_chunk.codec
    assert 10 == found.offsets.free
    assert 300 == found.header.last_chunk
    assert None is found.array is found.metadata is found.metadata_header
    assert None is found.user_metadata


def test_info_of_an_array(path):
    array = np.zeros((10, 3), order="F")
    bp.pack_ndarray_to_file(array, path, metadata={"unit": "m"}, cname="zstd")
    found = bp.info(path)
    assert ((10, 3), "<f8", "F") == (
        found.array.shape,
        found.array.dtype,
        found.array.order,
    )
    assert {"unit": "m"} == found.user_metadata == found.metadata["metadata"]
    assert "JSON" == found.metadata_header.magic_format
    assert "zstd" == found.first_chunk.codec


def test_info_is_what_the_command_shows(path):
    bp.pack_ndarray_to_file(np.zeros((10, 3)), path, metadata={"unit": "m"})
    import json

    shown = json.loads(run(COMMAND, "info", "--json", str(path)))
    assert shown == json.loads(json.dumps(bp.info(path).as_dict()))
    assert list(shown) == list(bp.FileInfo.__annotations__)


COMMAND = "import sys; from bloscpack.cli import main; sys.argv[0] = 'blpk'; main()"


def test_info_is_a_record(path):
    found = bp.info(path)
    for record in (found, found.header, found.offsets, found.first_chunk):
        name = next(iter(record.as_dict()))
        with pytest.raises(AttributeError, match="can't be changed"):
            setattr(record, name, 1)
        with pytest.raises(AttributeError, match="can't be deleted"):
            delattr(record, name)
        with pytest.raises(AttributeError):
            record.other = 1
        assert record == pickle.loads(pickle.dumps(record))
        assert type(record).__name__ + "(" in repr(record)
        lines = str(record).splitlines()
        assert [*record.as_dict()] == [line.partition(":")[0] for line in lines]
    assert found == bp.info(path)
    assert found != bp.info(path).header
    assert found != 1
    assert "nbytes: 300" in str(found).splitlines()


def test_info_documents_its_fields(path):
    found = bp.info(path)
    bp.pack_ndarray_to_file(np.zeros(3), path)
    for record in (found, bp.info(path).array, found.offsets, found.first_chunk):
        documented = inspect.getdoc(type(record)).partition("----------\n")[2]
        names = re.findall(r"^(\w+(?:, \w+)*)$", documented, re.M)
        assert [*record.as_dict()] == ", ".join(names).split(", ")


def test_info_of_a_damaged_file(path):
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(bp.FormatError):
        bp.info(path)
