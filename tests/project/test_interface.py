"""Every public name of 0.16: where it is, how it is called, what its value is.

``golden/interface.json`` was taken from 0.16.0 by asking it: per module its classes,
functions and values, and per home the names that it had from a sibling module.
``golden/names.json`` lists all names of its modules, also internal and imported ones.
Ours may take more arguments, behind those of 0.16 and never needed.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import copy
import importlib
import inspect
import io
import json
import pickle
import re
from types import SimpleNamespace

import numpy
import pytest
from support import ROOT, TESTS, run_python

import bloscpack
from bloscpack import append, cli, exceptions, file_io, memory_io, numpy_io
from bloscpack.abstract_io import pack, unpack
from bloscpack.args import BloscArgs, BloscpackArgs, MetadataArgs
from bloscpack.headers import BloscpackHeader, MetadataHeader

GOLDEN = json.loads((TESTS / "golden" / "interface.json").read_text())
ALL_NAMES = json.loads((TESTS / "golden" / "names.json").read_text())


def module_of(name):
    return importlib.import_module("bloscpack" + ("." + name if name else ""))


def cases(kind):
    return [
        pytest.param(module, name, expected, id="%s.%s" % (module, name))
        for module, kinds in GOLDEN.items()
        for name, expected in kinds.get(kind, {}).items()
    ]


def members(kind):
    return [
        pytest.param(module, name, member, expected, id="%s.%s" % (name, member))
        for module, kinds in GOLDEN.items()
        for name, entry in kinds.get("classes", {}).items()
        for member, expected in entry.get(kind, {}).items()
    ]


def same_call(expected, function):
    """Assert that `function` takes the arguments of 0.16 and needs no other."""
    shown, optional = [], []
    for parameter in inspect.signature(function).parameters.values():
        default = parameter.default
        text = parameter.name
        if callable(default) and default is not inspect.Parameter.empty:
            assert 70 == default(7)
            text += "=10 * x"
        elif default is not inspect.Parameter.empty:
            text += "=%r" % (default,)
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            shown.append(text)
        else:
            assert parameter.kind is not parameter.POSITIONAL_ONLY
        starred = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        optional.append(starred or default is not inspect.Parameter.empty)
    names = expected.split(", ") if expected else []
    assert names == shown[: len(names)]
    assert all(optional[len(names) :])


# The names of 0.16


@pytest.mark.parametrize(("module", "name", "entry"), cases("classes"))
def test_class(module, name, entry):
    cls = getattr(module_of(module), name)
    assert inspect.isclass(cls)
    assert "bloscpack." + module == cls.__module__
    mro = [base.__name__ for base in cls.__mro__]
    for base in entry["bases"]:
        # ChunkingException had escaped every `except Exception`.
        assert ("Exception" if base == "BaseException" else base) in mro


@pytest.mark.parametrize(
    ("module", "name", "member", "expected"), members("methods") + members("static")
)
def test_method(module, name, member, expected):
    same_call(expected, getattr(getattr(module_of(module), name), member))


def test_static_methods():
    for cls in (BloscpackHeader, MetadataHeader):
        assert isinstance(vars(cls)["decode"], staticmethod)


@pytest.mark.parametrize(
    ("module", "name", "member"),
    [
        pytest.param(module, name, member, id="%s.%s" % (name, member))
        for module, kinds in GOLDEN.items()
        for name, entry in kinds.get("classes", {}).items()
        for member in entry.get("properties", [])
    ],
)
def test_property(module, name, member):
    found = inspect.getattr_static(getattr(module_of(module), name), member)
    assert isinstance(found, property)


@pytest.mark.parametrize(("module", "name", "expected"), cases("functions"))
def test_function(module, name, expected):
    same_call(expected, getattr(module_of(module), name))


@pytest.mark.parametrize(("module", "name", "expected"), cases("values"))
def test_value(module, name, expected):
    value = getattr(module_of(module), name)
    if expected is None:  # what there is depends on the installed Blosc
        import blosc

        assert blosc.compressor_list() == value
    elif isinstance(expected, str):
        old = ast.literal_eval(expected)
        if isinstance(value, dict):  # a table may have grown
            value = {key: value[key] for key in old}
        assert old == value
        assert type(old) is type(value) or isinstance(value, dict)
    elif "keys" in expected:
        old = ast.literal_eval(expected["keys"])
        assert old == list(value)[: len(old)]
        assert list(value) == [entry.name for entry in value.values()]
    elif "names" in expected:
        old = ast.literal_eval(expected["names"])
        assert old == [entry.name for entry in value]
    else:
        for key, default in ast.literal_eval(expected["text"]).items():
            if default == "10 * x":
                assert 70 == value[key](7)
            else:
                assert default == value[key]


@pytest.mark.parametrize(("module", "home", "names"), cases("siblings"))
def test_name_from_a_sibling(module, home, names):
    missing = [
        name
        for name in names.split()
        if getattr(module_of(module), name, None)
        is not (getattr(module_of(home), name) if home else module_of(name))
    ]
    assert [] == missing


def missing_names():
    """Return the names of 0.16 that do not exist, by module; None for a module."""
    missing = {}
    for name, kinds in ALL_NAMES.items():
        try:
            module = module_of(name)
        except ImportError:
            missing[name] = None
            continue
        for kind, names in kinds.items():
            found = {n for n in names.split() if not hasattr(module, n)}
            missing.setdefault(name, {})[kind] = found
    return missing


def documented_as_missing():
    """Return the rows of the table in docs/compatibility.rst, by module."""
    text = (ROOT / "docs" / "compatibility.rst").read_text("utf-8")
    table = text.partition(":name: names-that-do-not-exist\n")[2].split("\n\n\n")[0]
    rows = {}
    for row in table.split("   * - ")[2:]:
        module, _, names = row.partition("\n     - ")
        name = module.strip("`").replace("top level", "")
        rows[name] = (
            None if names.strip() == "the module" else set(re.findall(r"\w+", names))
        )
    return rows


def test_names_that_do_not_exist_are_documented():
    documented = documented_as_missing()
    for module, missing in missing_names().items():
        if missing is None:
            assert documented.pop(module) is None
            continue
        # Names of Python and of other packages may exist or not, as our imports change.
        listed = documented.pop(module, set())
        imported = set(ALL_NAMES[module]["imported"].split())
        assert (module, missing["own"]) == (module, listed - imported)
    assert {} == documented


@pytest.mark.parametrize(
    "module",
    [
        *("abstract_io", "append", "args", "constants", "file_io", "headers"),
        *("memory_io", "numpy_io"),
    ],
)
def test_blosc_is_where_programs_look_for_it(module):
    import blosc

    assert blosc is module_of(module).blosc


def test_compat_util():
    from bloscpack.compat_util import OrderedDict, StringIO

    assert io.BytesIO is StringIO
    assert [("a", 1)] == list(OrderedDict(a=1).items())


def test_sysutil(monkeypatch):
    import os

    from bloscpack import sysutil

    sysutil.sync()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(RuntimeError, match="Need root permission to drop caches"):
        sysutil.drop_caches()


def test_names_that_never_were():
    for module in GOLDEN:
        with pytest.raises(AttributeError, match="no_such_name"):
            _ = module_of(module).no_such_name


def returncode_of(code):
    return run_python("-c", code).returncode


@pytest.mark.parametrize(
    "name",
    [
        "file_io.CompressedFPSource",
        "args.BloscArgs",
        "numpy_io.pack_ndarray",
        "append.append_fp",
        "memory_io.PlainMemorySink",
        "abstract_io.pack",
        "headers.decode_blosc_header",
        "exceptions.NotEnoughSpace",
        "args.DEFAULT_TYPESIZE",
        "headers.MAX_CHUNKS",
        "pack_ndarray_to_bytes",
    ],
)
def test_dotted_name_after_a_bare_import(name):
    code = "import bloscpack as bp; bp.%s" % name
    assert 0 == returncode_of(code)


def test_every_submodule_after_a_bare_import():
    names = [name for name in GOLDEN if name]
    code = "import bloscpack\n" + "".join("bloscpack.%s\n" % name for name in names)
    assert 0 == returncode_of(code)


# Names kept from 0.16: the aliases

ALIASES = [
    ("file_io", "pack_file", "pack_file_to_file"),
    ("file_io", "unpack_file", "unpack_file_from_file"),
    ("file_io", "pack_bytes_file", "pack_bytes_to_file"),
    ("file_io", "unpack_bytes_file", "unpack_bytes_from_file"),
    ("numpy_io", "pack_ndarray_file", "pack_ndarray_to_file"),
    ("numpy_io", "unpack_ndarray_file", "unpack_ndarray_from_file"),
    ("numpy_io", "pack_ndarray_str", "pack_ndarray_to_bytes"),
    ("numpy_io", "unpack_ndarray_str", "unpack_ndarray_from_bytes"),
]


@pytest.mark.parametrize(("module", "old", "new"), ALIASES)
def test_alias_is_the_new_function_under_its_old_name(module, old, new):
    alias = getattr(module_of(module), old)
    assert alias is getattr(bloscpack, old)
    assert old == alias.__name__
    assert inspect.signature(getattr(bloscpack, new)) == inspect.signature(alias)


def warned(old, *args, **kwargs):
    """Call the alias `old`, which must warn, naming this file and the new name."""
    new = {name: successor for _, name, successor in ALIASES}[old]
    with pytest.warns(DeprecationWarning, match=new) as caught:
        result = getattr(bloscpack, old)(*args, **kwargs)
    assert [__file__] == [warning.filename for warning in caught]
    return result


def test_aliases_of_files_work(tmp_path):
    (tmp_path / "in").write_bytes(b"plain" * 100)
    warned("pack_file", tmp_path / "in", tmp_path / "a.blp", "1K", metadata={"a": 1})
    assert {"a": 1} == warned("unpack_file", tmp_path / "a.blp", tmp_path / "out")
    assert b"plain" * 100 == (tmp_path / "out").read_bytes()


def test_aliases_of_bytes_work(tmp_path):
    warned("pack_bytes_file", b"plain" * 100, tmp_path / "a.blp", chunk_size=100)
    assert (b"plain" * 100, None) == warned("unpack_bytes_file", tmp_path / "a.blp")


def test_aliases_of_arrays_work(tmp_path):
    array = numpy.arange(100)
    warned("pack_ndarray_file", array, tmp_path / "a.blp")
    numpy.testing.assert_array_equal(
        array, warned("unpack_ndarray_file", tmp_path / "a.blp")
    )
    packed = warned("pack_ndarray_str", array)
    numpy.testing.assert_array_equal(array, warned("unpack_ndarray_str", packed))


# Names kept from 0.16: underscored, used by others


def test_read_metadata_of_a_file_object():
    fp = io.BytesIO(bloscpack.pack_bytes_to_bytes(b"plain", metadata={"a": [1, 2]}))
    fp.seek(32)
    metadata, header = file_io._read_metadata(fp)
    assert {"a": [1, 2]} == metadata
    assert (b"JSON", "adler32", 11, 110) == (
        header["magic_format"],
        header["meta_checksum"],
        header["meta_size"],
        header["max_meta_size"],
    )
    assert 32 + 32 + 110 + 4 == fp.tell()


def test_rewrite_metadata_of_a_file_object():
    fp = io.BytesIO(bloscpack.pack_bytes_to_bytes(b"plain", metadata={"a": [1, 2]}))
    size = len(fp.getvalue())
    append._rewrite_metadata_fp(fp, {"b": "new"})
    assert size == len(fp.getvalue())
    expected = (b"plain", {"b": "new"})
    assert expected == bloscpack.unpack_bytes_from_bytes(fp.getvalue())


@pytest.mark.parametrize("metadata", [None, {"of": "user"}])
@pytest.mark.parametrize("pack_array", ["pack_ndarray_to_bytes", "pack_ndarray_str"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_metadata_of_arrays_can_be_replaced(monkeypatch, pack_array, metadata):
    array = numpy.array([(b"a", 1), (b"b", 2)], [("a", "S1"), ("b", "<f8")])

    def as_before_0_4(ndarray):
        old = {"shape": ndarray.shape, "order": "C", "container": "numpy"}
        return {**old, "dtype": ndarray.dtype.descr}

    monkeypatch.setattr(numpy_io, "_ndarray_meta", as_before_0_4)
    more = {} if metadata is None else {"metadata": metadata}
    packed = getattr(numpy_io, pack_array)(array, **more)
    stored = file_io.CompressedFPSource(io.BytesIO(packed)).metadata
    assert [["a", "|S1"], ["b", "<f8"]] == stored["dtype"]
    assert metadata == stored.get("metadata")
    assert array.tolist() == numpy_io.unpack_ndarray_from_bytes(packed).tolist()


# Names kept from 0.16: the steps of the command, with what 0.16.0 returned


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").write_bytes(b"plain")
    (tmp_path / "y.blp").write_bytes(b"packed")
    (tmp_path / "m.json").write_text('{"a": 1}')


SETTINGS = "-t 4 -l 3 -s -c lz4 -m m.json"
STEPS = [
    # (function, command line, result; text is an error)
    ("compression", "c x", ("x", "x.blp", BloscArgs())),
    ("compression", "c x z", ("x", "z", BloscArgs())),
    ("compression", "c %s x" % SETTINGS, ("x", "x.blp", BloscArgs(4, 3, False, "lz4"))),
    ("decompression", "d y.blp", ("y.blp", "y")),
    ("decompression", "d y.blp q", ("y.blp", "q")),
    ("decompression", "d -e x out", ("x", "out")),
    ("decompression", "d x", "input file 'x' does not end with '.blp'"),
    ("decompression", "d -e x", "--no-check-extension requires use of <out_file>"),
    ("append", "a y.blp x", ("y.blp", "x")),
    ("append", "a -e x y.blp", ("x", "y.blp")),
    ("append", "a x y.blp", "original file 'x' does not end with '.blp'"),
    ("metadata", "c -m m.json x", {"a": 1}),
    ("metadata", "a y.blp x", None),
]


@pytest.mark.parametrize(("step", "line", "expected"), STEPS)
def test_steps_of_the_command(inputs, capsys, step, line, expected):
    args = cli.create_parser().parse_args(line.split())
    process = getattr(cli, "process_%s_args" % step)
    if not isinstance(expected, str):
        assert expected == process(args)
        return
    with pytest.raises(SystemExit) as info:
        process(args)
    assert 1 == info.value.code
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["compress", "c", "append", "a"])
def test_parser_has_values_as_defaults(verb):
    args = cli.create_parser().parse_args([verb, "x", "y"])
    assert BloscArgs() == BloscArgs(
        args.typesize, args.clevel, args.shuffle, args.cname
    )
    if verb in ("compress", "c"):
        assert BloscpackArgs() == BloscpackArgs(args.offsets, args.checksum)
        assert 2**20 == args.chunk_size


FILES = [
    # (input, output, force, error)
    ("x", "new", False, None),
    ("x", "y.blp", True, None),
    ("x", "y.blp", False, "output file 'y.blp' exists!"),
    ("missing", "new", True, "input file 'missing' does not exist!"),
]


@pytest.mark.parametrize(("in_file", "out_file", "force", "expected"), FILES)
def test_check_files(inputs, in_file, out_file, force, expected):
    args = SimpleNamespace(force=force)
    if expected is None:
        cli.check_files(in_file, out_file, args)
        return
    with pytest.raises(exceptions.FileNotFound, match=re.escape(expected)):
        cli.check_files(in_file, out_file, args)


def test_other_names_of_the_command(capsys):
    cli.process_nthread_arg(SimpleNamespace(nthreads=2))
    with pytest.raises(exceptions.UsageError, match="-n must be 1 <= n <= 256"):
        cli.process_nthread_arg(SimpleNamespace(nthreads=0))
    cli.log_metadata({"a": 1})
    assert "Metadata:" in capsys.readouterr().out
    parser = argparse.ArgumentParser(formatter_class=cli.BloscPackCustomFormatter)
    assert "usage" in parser.format_help()


# Records

RECORDS = [
    # (record, what it shows, the fields that are sizes)
    (
        BloscArgs(),
        "BloscArgs(typesize=8, clevel=7, shuffle=True, cname='blosclz')",
        [],
    ),
    (
        BloscpackArgs(max_app_chunks=5),
        "BloscpackArgs(offsets=True, checksum='adler32', max_app_chunks=5)",
        [],
    ),
    (
        MetadataArgs(max_meta_size=7),
        (
            "MetadataArgs(magic_format=b'JSON', meta_checksum='adler32', "
            "meta_codec='zlib', meta_level=6, max_meta_size=7)"
        ),
        [],
    ),
    (
        BloscpackHeader(nchunks=1, chunk_size=8192),
        (
            "BloscpackHeader(format_version=3, offsets=False, metadata=False, "
            "checksum='None', typesize=0, chunk_size=8192, last_chunk=-1, nchunks=1, "
            "max_app_chunks=0)"
        ),
        ["chunk_size", "last_chunk"],
    ),
    (
        MetadataHeader(magic_format=b"JSON"),
        (
            "MetadataHeader(magic_format=b'JSON', meta_options='00000000', "
            "meta_checksum='None', meta_codec='None', meta_level=0, meta_size=0, "
            "max_meta_size=0, meta_comp_size=0, user_codec=b'')"
        ),
        ["meta_size", "max_meta_size", "meta_comp_size"],
    ),
]
each_record = pytest.mark.parametrize(
    ("record", "shown", "keys", "sizes"),
    [(r, shown, re.findall(r"(\w+)=", shown), sizes) for r, shown, sizes in RECORDS],
    ids=[type(entry[0]).__name__ for entry in RECORDS],
)


@each_record
def test_record_is_a_mapping(record, shown, keys, sizes):
    assert keys == list(record) == list(record.keys()) == record.attributes
    assert sizes == record.bytes_attributes
    assert len(keys) == len(record)
    assert {key: getattr(record, key) for key in keys} == dict(record)
    assert [record[key] for key in keys] == list(record.values())
    assert keys[0] in record
    assert "other" not in record
    assert "default" == record.get("other", "default")


@each_record
def test_record_shows_itself(record, shown, keys, sizes):
    assert shown == repr(record)
    assert dict(record) == ast.literal_eval(str(record))
    lines = record.pformat(indent=2).split("\n")
    assert type(record).__name__ + ":" == lines[0]
    assert ["  %s" % key for key in keys] == [line.split(":")[0] for line in lines[1:]]


def test_record_shows_sizes_for_people():
    lines = BloscpackHeader(nchunks=1, chunk_size=8192).pformat().split("\n")
    assert "    chunk_size: 8.0K (8192B)" in lines
    assert "    last_chunk: -1" in lines
    assert "    checksum: 'None'" in lines


@each_record
@pytest.mark.parametrize(
    "duplicate",
    [
        lambda record: record.copy(),
        copy.copy,
        copy.deepcopy,
        lambda record: pickle.loads(pickle.dumps(record)),
        lambda record: type(record)(**record),
        lambda record: type(record)(*record.values()),
    ],
    ids=["method", "copy", "deepcopy", "pickle", "keywords", "positions"],
)
def test_record_copies_are_equal_and_apart(duplicate, record, shown, keys, sizes):
    other = duplicate(record)
    assert record == other
    assert type(record) is type(other)
    other[keys[0]] = "changed"
    assert record != other
    assert shown == repr(record)


@each_record
def test_record_equals_by_value(record, shown, keys, sizes):
    assert record == dict(record)
    assert record != {**record, keys[0]: "changed"}
    assert record != 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(record)


@each_record
def test_record_keys_are_fixed(record, shown, keys, sizes):
    with pytest.raises(KeyError, match="not in %s" % type(record).__name__):
        _ = record["other"]
    with pytest.raises(KeyError, match="not in %s" % type(record).__name__):
        record["other"] = 1
    with pytest.raises(NotImplementedError, match="__delitem__"):
        del record[keys[0]]
    assert keys == list(record)


def test_record_items_are_attributes():
    args = BloscArgs()
    args["clevel"] = 3
    args.typesize = 4
    args.update(cname="zstd")
    assert BloscArgs(4, 3, True, "zstd") == args


def test_defaults_with_functions_are_equal_and_can_be_pickled():
    for cls in (BloscpackArgs, MetadataArgs):
        assert cls() == cls()
        assert cls() == pickle.loads(pickle.dumps(cls()))


def test_none_means_no_checksum_and_no_codec():
    assert "None" == BloscpackArgs(checksum=None)["checksum"]
    args = MetadataArgs()
    assert args.should_compress
    assert ("zlib", "zlib") == (args.meta_codec_name, args.meta_codec_impl.name)
    args.nullify_codec()
    assert not args.should_compress
    assert ("None", "None") == (args.meta_codec_name, args.meta_codec_impl.name)


@pytest.mark.parametrize(("room", "expected"), [(100, 100), (lambda n: 3 * n, 30)])
def test_effective_max_meta_size(room, expected):
    assert expected == MetadataArgs(max_meta_size=room).effective_max_meta_size(10)


# Attributes of the sources and sinks


def packed():
    fp = io.BytesIO()
    source = file_io.PlainFPSource(io.BytesIO(b"a" * 100))
    sink = file_io.CompressedFPSink(fp)
    pack(source, sink, 2, 60, 40, metadata={"a": 1})
    fp.seek(0)
    return source, sink, fp


def kept():
    source = memory_io.PlainMemorySource([b"a" * 60, b"b" * 40])
    sink = memory_io.CompressedMemorySink()
    pack(source, sink, 2, 60, 40)
    return source, sink


ATTRIBUTES = [
    (lambda: packed()[0], "input_fp chunk_size last_chunk nchunks"),
    (
        lambda: packed()[1],
        (
            "output_fp meta_total blosc_args bloscpack_header checksum_impl offsets "
            "offset_storage"
        ),
    ),
    (
        lambda: file_io.CompressedFPSource(packed()[2]),
        (
            "input_fp bloscpack_header checksum_impl metadata metadata_header nchunks "
            "offsets"
        ),
    ),
    (lambda: file_io.PlainFPSink(io.BytesIO(), 2), "output_fp nchunks"),
    (lambda: kept()[0], "chunks chunk_size last_chunk nchunks"),
    (
        lambda: kept()[1],
        (
            "blosc_args bloscpack_header checksum checksum_impl checksums chunks "
            "metadata metadata_args nchunks"
        ),
    ),
    (
        lambda: memory_io.CompressedMemorySource(kept()[1]),
        (
            "checksum checksum_impl checksums chunks compressed_memory_sink nchunks "
            "metadata"
        ),
    ),
    (lambda: memory_io.PlainMemorySink(2), "chunks have_chunks i"),
    (
        lambda: numpy_io.PlainNumpySource(numpy.arange(3)),
        "metadata ndarray ptr size",
    ),
    (
        lambda: numpy_io.PlainNumpySink(
            numpy_io.PlainNumpySource(numpy.arange(3)).metadata
        ),
        "metadata ndarray ptr",
    ),
]


@pytest.mark.parametrize(("make", "names"), ATTRIBUTES)
def test_endpoint_attributes(make, names):
    endpoint = make()
    assert [] == [name for name in names.split() if not hasattr(endpoint, name)]


def test_endpoint_attributes_have_the_values_of_016():
    source, sink, fp = packed()
    assert (60, 40, 2) == (source.chunk_size, source.last_chunk, source.nchunks)
    compressed = file_io.CompressedFPSource(fp)
    assert [314, 394] == compressed.offsets == sink.offset_storage
    assert {"a": 1} == compressed.metadata
    assert 2 == compressed.nchunks == compressed.bloscpack_header["nchunks"]
    assert "adler32" == compressed.checksum_impl.name
    plain = memory_io.PlainMemorySink()
    unpack(compressed, plain)
    assert [b"a" * 60, b"a" * 40] == plain.chunks


# Errors


def old_exceptions():
    return sorted(GOLDEN["exceptions"]["classes"].items())


@pytest.mark.parametrize(("name", "entry"), old_exceptions())
def test_exception_is_one_of_the_family_and_its_old_self(name, entry):
    cls = getattr(exceptions, name)
    assert issubclass(cls, exceptions.BloscpackError)
    assert issubclass(cls, Exception)
    assert issubclass(
        cls, (exceptions.FormatError, exceptions.UsageError, exceptions.StorageError)
    )
    assert issubclass(cls, getattr(builtins, entry["bases"][0]))


@pytest.mark.parametrize(("name", "entry"), old_exceptions())
def test_exception_takes_a_message_and_can_be_pickled(name, entry):
    error = getattr(exceptions, name)("what happened")
    assert "what happened" == str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (type(error), "what happened") == (type(again), str(again))


@pytest.mark.parametrize(
    ("call", "old_base"),
    [
        (lambda: bloscpack.unpack_bytes_from_bytes(b"none of it" * 10), ValueError),
        (lambda: bloscpack.unpack_bytes_from_bytes(b""), ValueError),
        (lambda: bloscpack.pack_bytes_to_bytes(b"a", chunk_size=0), ValueError),
        (lambda: bloscpack.pack_bytes_to_bytes(b"a", chunk_size=1.5), TypeError),
        (lambda: BloscpackHeader(nchunks="1"), TypeError),
        (lambda: BloscpackHeader(nchunks=-2), ValueError),
        (lambda: BloscpackHeader.decode(b"blpk"), ValueError),
        (lambda: append.append_fp(io.BytesIO(), io.BytesIO(), 0), ValueError),
        (
            lambda: append.append_fp(
                io.BytesIO(
                    bloscpack.pack_bytes_to_bytes(
                        b"a", bloscpack_args=BloscpackArgs(offsets=False)
                    )
                ),
                io.BytesIO(b"b"),
                1,
            ),
            RuntimeError,
        ),
    ],
)
def test_error_keeps_the_class_that_016_raised(call, old_base):
    with pytest.raises(old_base) as caught:
        call()
    assert isinstance(caught.value, exceptions.BloscpackError)
