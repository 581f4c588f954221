"""``.npy`` files: the output equals that for the array in memory, or an error."""

from __future__ import annotations

import io
import itertools
import os
import struct
import threading
import tracemalloc
import warnings
from contextlib import suppress

import numpy as np
import pytest
from crash.watched_disk import WatchedDisk, replaced_disk

import bloscpack
from bloscpack import npy_io
from bloscpack.append import append
from bloscpack.args import BloscArgs, BloscpackArgs, MetadataArgs
from bloscpack.cli import main
from bloscpack.exceptions import (
    ChunkSizeTypeSizeMismatch,
    DamageError,
    DoesNotFit,
    FormatError,
    HeaderError,
    NotANumpyArray,
    NotReadable,
    ObjectNumpyArrayRejection,
    UsageError,
)
from bloscpack.file_io import CompressedFPSink, PlainFPSource, pack_bytes_to_file
from bloscpack.npy_io import append_npy, pack_npy_to_file, unpack_npy_from_file

posix = pytest.mark.skipif(os.name != "posix", reason="POSIX only")

DTYPES = {
    "bool": "?",
    "int8": "i1",
    "big": ">i4",
    "half": "<f2",
    "complex": "<c16",
    "bytes": "S5",
    "long bytes": "S300",
    "text": "<U3",
    "big text": ">U2",
    "long text": "<U100",
    "void": "V7",
    "days": "<M8[D]",
    "25 seconds": "<M8[25s]",
    "no unit": "<m8",
    "structure": [("a", "<i4"), ("b", ">f8")],
    "nested": [("p", [("x", "<i2"), ("y", "<i2")]), ("v", "|u1", (2, 3))],
    "padded": np.dtype([("a", "i1"), ("b", "<f8")], align=True),
    "title": [(("title", "n"), "<f4")],
    "latin": [("é", "<i4")],
    "unicode": [("grün", "<i4"), ("☃ \\'\"", "<f4")],
    "250 fields": [("field%d" % i, "<i2") for i in range(250)],
    "no fields": [],
}
SHAPES = [(), (0,), (1,), (37,), (6, 5), (0, 5), (5, 0), (7, 1), (1, 7), (3, 4, 5)]


def filled(dtype, shape=(37,), order="C"):
    """Return an array with varied bytes, in C or Fortran order."""
    array = np.zeros(shape, dtype, order=order)
    if array.itemsize == 0:
        return np.ndarray(shape, dtype)
    raw = np.resize(np.arange(251, dtype=np.uint8) % 100, array.nbytes)
    if array.dtype.kind == "b":
        raw %= 2
    if array.dtype.kind == "U":
        raw = np.resize(np.arange(32, 90, dtype="<u4"), array.nbytes // 4)
        raw = raw.astype(array.dtype.str[0] + "u4").view("u1")
    filled = np.frombuffer(raw.tobytes(), array.dtype).reshape(shape[::-1])
    return filled.T if order == "F" else filled.reshape(shape)


def saved(array):
    """Return the bytes of the file that NumPy writes."""
    fp = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about the version
        np.lib.format.write_array(fp, array, allow_pickle=True)
    return fp.getvalue()


@pytest.fixture
def npy(tmp_path):
    """Return a function that saves an array, or bytes, under the name x.npy."""

    def save(content):
        path = tmp_path / "x.npy"
        path.write_bytes(content if isinstance(content, bytes) else saved(content))
        return path

    return save


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def small_changes(data):
    """Yield the file cut off before each byte, and with each byte changed."""
    for i in range(len(data)):
        yield data[:i]
        for value in (0, 0x20, 0x28, 0x5B, 0x7B, 0xFF):
            yield data[:i] + bytes([value]) + data[i + 1 :]


# Round trips


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_there_and_back(npy, tmp_path, dtype):
    for order, shape in zip(itertools.cycle("CF"), SHAPES, strict=False):
        array = filled(dtype, shape, order)
        path = npy(array)

        pack_npy_to_file(path, tmp_path / "x.blp")
        bloscpack.pack_ndarray_to_file(array, tmp_path / "y.blp")
        assert (tmp_path / "y.blp").read_bytes() == (tmp_path / "x.blp").read_bytes()

        unpack_npy_from_file(tmp_path / "x.blp", tmp_path / "back.npy")
        assert path.read_bytes() == (tmp_path / "back.npy").read_bytes()


SETTINGS = [
    # (chunk size, further arguments)
    ("1K", {}),
    (999, {}),
    ("1000B", {}),
    ("max", {"nthreads": 1}),
    (3, {"nthreads": 3, "sync": True}),
    ("2K", {"blosc_args": BloscArgs(typesize=2, clevel=1, cname="zstd")}),
    ("2K", {"bloscpack_args": BloscpackArgs(offsets=False, checksum="sha1")}),
    ("2K", {"metadata_args": MetadataArgs(meta_codec=None, max_meta_size=500)}),
]


@pytest.mark.parametrize(("chunk_size", "options"), SETTINGS)
def test_settings_mean_what_they_mean_for_arrays(npy, tmp_path, chunk_size, options):
    array = filled("u1,<u2", (4001,))
    path = npy(array)
    pack_npy_to_file(path, tmp_path / "x.blp", chunk_size, **options)
    bloscpack.pack_ndarray_to_file(array, tmp_path / "y.blp", chunk_size, **options)
    assert (tmp_path / "y.blp").read_bytes() == (tmp_path / "x.blp").read_bytes()

    del_sync = {k: v for k, v in options.items() if k in ("nthreads", "sync")}
    unpack_npy_from_file(tmp_path / "x.blp", tmp_path / "back.npy", **del_sync)
    assert path.read_bytes() == (tmp_path / "back.npy").read_bytes()


def test_a_header_longer_than_version_1_can_have(npy, tmp_path):
    array = filled([("field %d" % i, "u1") for i in range(3000)], (5, 4), "F")
    path = npy(array)
    assert b"\x93NUMPY\x02\x00" == path.read_bytes()[:8]
    pack_npy_to_file(path, tmp_path / "x.blp")
    unpack_npy_from_file(tmp_path / "x.blp", tmp_path / "back.npy")
    assert path.read_bytes() == (tmp_path / "back.npy").read_bytes()


def test_array_files_of_other_origin(tmp_path):
    # Metadata that does not come from a .npy file.
    metadata = {"dtype": "'<i2'", "shape": [6], "order": "F", "container": "numpy"}
    pack_bytes_to_file(b"abcdefghijkl", tmp_path / "x.blp", metadata=metadata)
    unpack_npy_from_file(tmp_path / "x.blp", tmp_path / "back.npy")
    expected = saved(np.frombuffer(b"abcdefghijkl", "<i2"))
    assert expected == (tmp_path / "back.npy").read_bytes()


class Finished(WatchedDisk):
    """Records the status of a new file when it is renamed."""

    def __init__(self):
        self.seen = []

    def do(self, kind, call, *arguments):
        if kind in ("link", "rename"):
            status = os.stat(arguments[0])
            self.seen.append((oct(status.st_mode & 0o777), status.st_mtime_ns))
        return super().do(kind, call, *arguments)


@posix
@pytest.mark.parametrize("preserve", [True, False])
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664])
def test_what_is_private_is_so_from_the_start(npy, tmp_path, mode, preserve):
    path, blp = npy(filled("<i4")), tmp_path / "x.blp"
    steps = [
        lambda: pack_npy_to_file(path, blp, preserve=preserve),
        lambda: unpack_npy_from_file(blp, tmp_path / "new.npy", preserve=preserve),
    ]
    old_mask = os.umask(0o022)
    try:
        with replaced_disk(Finished()) as disk:
            for source, step in zip((path, blp), steps, strict=True):
                source.chmod(mode)
                os.utime(source, ns=(10**18, 10**18 + 5))
                step()
    finally:
        os.umask(old_mask)
    if preserve:
        assert 2 * [(oct(mode), 10**18 + 5)] == disk.seen
    else:
        # A class that can't read the input can't read the output.
        expected = "0o600" if mode == 0o600 else "0o644"
        assert [expected, expected] == [mode for mode, _ in disk.seen]
        assert 10**18 + 5 not in [time for _, time in disk.seen]


@posix
@pytest.mark.parametrize("verb", ["compress", "decompress"])
def test_command_makes_the_output_like_its_input(npy, tmp_path, verb):
    source, target = npy(filled("<i4")), tmp_path / "target"
    if verb == "decompress":
        pack_npy_to_file(source, tmp_path / "x.blp")
        source = tmp_path / "x.blp"
    source.chmod(0o600)
    os.utime(source, ns=(10**18, 10**18 + 5))
    for arguments, mode, expected in (
        ([], 0o600, 0o600),
        (["-f"], 0o640, 0o600),
        (["-f"], 0o700, 0o700),
    ):
        if target.exists():
            target.chmod(mode)
        with replaced_disk(Finished()) as disk:
            main([*arguments, verb, "--npy", str(source), str(target)])
        assert [(oct(expected), 10**18 + 5)] == disk.seen


def test_memory_does_not_grow_with_the_array(npy, tmp_path):
    path = npy(np.zeros(2**22, "<i8"))
    tracemalloc.start()
    try:
        pack_npy_to_file(path, tmp_path / "x.blp", nthreads=2)
        unpack_npy_from_file(tmp_path / "x.blp", tmp_path / "back.npy", nthreads=2)
        append_npy(tmp_path / "x.blp", path, nthreads=2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 16 * 2**20 > peak


# The header


def with_header(text, version=(1, 0), items=b""):
    """Return a .npy file with any header."""
    text = text.encode("utf-8") if isinstance(text, str) else text
    length = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text + items


HEADER = "{'descr': '<i2', 'fortran_order': False, 'shape': (3,)}"
ODD_HEADERS = [
    # (header, version, dtype, shape): as other programs write them
    (HEADER, (1, 0), "<i2", (3,)),
    (HEADER, (2, 0), "<i2", (3,)),
    (HEADER, (3, 0), "<i2", (3,)),
    ('{"shape":(3,),"fortran_order":True,"descr":"<i2"}', (1, 0), "<i2", (3,)),
    (HEADER.replace("(3,)", "(3L,)") + "\n", (1, 0), "<i2", (3,)),
    (
        "{'descr': [('5L,', '<i2')], 'fortran_order': False, 'shape': (1L, 3L)}",
        (1, 0),
        [("5L,", "<i2")],
        (1, 3),
    ),
    (HEADER.replace("'<i2'", "[('é', '<i2')]"), (3, 0), [("é", "<i2")], (3,)),
    (HEADER.replace("<i2", "int16") + " " * 60000, (1, 0), "int16", (3,)),
]


@pytest.mark.parametrize(("text", "version", "dtype", "shape"), ODD_HEADERS)
def test_headers_of_other_programs(npy, tmp_path, text, version, dtype, shape):
    path = npy(with_header(text, version, b"abcdef"))
    pack_npy_to_file(path, tmp_path / "x.blp")
    found = bloscpack.unpack_ndarray_from_file(tmp_path / "x.blp")
    assert np.dtype(dtype) == found.dtype
    assert (shape, b"abcdef") == (found.shape, found.tobytes())


WRONG = {
    # (content, error, exit code, message)
    "empty": (b"", NotReadable, 1, "expected a .npy file, found one that begins b''"),
    "text": (b"1 2 3\n", NotReadable, 1, "expected a .npy file, found one that begins"),
    "archive": (b"PK\x03\x04    ", NotReadable, 1, "expected a .npy file"),
    "version 4": (with_header(HEADER, (4, 0)), NotReadable, 1, "3.0, found 4.0"),
    "version 1.1": (with_header(HEADER, (1, 1)), NotReadable, 1, "found 1.1"),
    "half a version": (b"\x93NUMPY\x01", NotReadable, 1, "found 1"),
    "half a length": (b"\x93NUMPY\x01\0\x76", FormatError, 3, "'2' bytes, found '1'"),
    "half a header": (
        with_header(HEADER)[:30],
        FormatError,
        3,
        "expected a .npy header of '55' bytes, found '20'",
    ),
    "long header": (
        with_header(HEADER + " " * 2**20, (2, 0)),
        NotReadable,
        1,
        "at most '1048576' bytes, found '1048631'",
    ),
    "too short": (
        with_header(HEADER, items=b"abcde"),
        FormatError,
        3,
        "expected '6' bytes for the items of the array, found '5'",
    ),
    "two arrays": (
        with_header(HEADER, items=b"abcdef") * 2,
        NotReadable,
        1,
        "expected a .npy file with one array, found more bytes behind the '6' of it",
    ),
    "huge": (
        with_header(HEADER.replace("3,", "%d," % 2**60)),
        FormatError,
        3,
        "expected '2305843009213693952' bytes for the items",
    ),
    "beyond any memory": (
        with_header(HEADER.replace("3,", "%d,%d" % (2**60, 2**60))),
        FormatError,
        3,
        "can't be made",
    ),
    "objects": (
        saved(np.array([None, 1])),
        ObjectNumpyArrayRejection,
        1,
        "arrays of Python objects",
    ),
    "objects in fields": (
        saved(np.zeros(2, [("a", "O"), ("b", "i4")])),
        ObjectNumpyArrayRejection,
        1,
        "arrays of Python objects",
    ),
}
FIELDS = {
    "no dictionary": "[]",
    "nothing": "",
    "no literal": "{'descr': __import__('os'), 'fortran_order': False, 'shape': ()}",
    "a key missing": "{'descr': '<i2', 'shape': (3,)}",
    "a key too many": HEADER[:-1] + ", 'x': 1}",
    "shape is a list": HEADER.replace("(3,)", "[3]"),
    "shape is a number": HEADER.replace("(3,)", "3"),
    "negative shape": HEADER.replace("(3,)", "(-3,)"),
    "shape of texts": HEADER.replace("(3,)", "('3',)"),
    "shape of truths": HEADER.replace("(3,)", "(True,)"),
    "order is a number": HEADER.replace("False", "0"),
    "no dtype": HEADER.replace("<i2", "nonsense"),
    "dtype is a number": HEADER.replace("'<i2'", "2"),
    "dtype with axes": HEADER.replace("'<i2'", "('<i2', (2,))"),
    "unhashable": "{[]: 1}",
    "deep": "(" * 60000,
    "deep too": "[" * 5000 + "]" * 5000,
    "long sum": "1" + "+1" * 300000,
    "many indices": "1" + "[0]" * 300000,
    "many calls": "''" + "()" * 300000,
    "many attributes": "a" + ".a" * 300000,
    "many nots": "not " * 200000 + "1",
    "a number of many digits": HEADER.replace("3", "3" * 5000),
    "not in its encoding": b"\xff\xfe" + HEADER.encode(),
    "zero bytes": b"\0" * 64,
}
WRONG.update(
    {
        name: (
            with_header(text, (3, 0), b"abcdef"),
            FormatError,
            3,
            "expected the header of a .npy file, found b",
        )
        for name, text in FIELDS.items()
    }
)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")
@pytest.mark.parametrize(
    ("content", "error", "rc", "message"), WRONG.values(), ids=WRONG
)
def test_wrong_input_is_refused(npy, tmp_path, content, error, rc, message):
    path = npy(content)
    (tmp_path / "x.blp").write_bytes(b"precious")
    with pytest.raises(error) as caught:
        pack_npy_to_file(path, tmp_path / "x.blp")
    assert message in str(caught.value)
    assert str(caught.value).endswith("(file '%s')" % path)
    assert (rc == 3) == isinstance(caught.value, (DamageError, HeaderError))
    assert b"precious" == (tmp_path / "x.blp").read_bytes()
    assert ["x.blp", "x.npy"] == names(tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_any_change_gives_a_result_or_a_known_error():
    whole = saved(np.zeros((2, 3), [("é", "<i2")]))
    outcomes = set()
    for data in small_changes(whole[:128]):
        try:
            outcomes.add(npy_io.read_header(io.BytesIO(data)).shape)
        except (FormatError, UsageError) as error:
            outcomes.add(type(error))
    # A field may get another name.
    assert {(2, 3), DamageError, NotReadable} <= outcomes


def test_chunk_size_of_no_whole_items(npy, tmp_path):
    path = npy(filled("<i8"))
    with pytest.raises(ChunkSizeTypeSizeMismatch):
        pack_npy_to_file(path, tmp_path / "x.blp", 13)
    assert ["x.npy"] == names(tmp_path)


def test_input_and_output_the_same(npy, tmp_path):
    path = npy(filled("<i8"))
    before = path.read_bytes()
    for function in (pack_npy_to_file, unpack_npy_from_file, append_npy):
        with pytest.raises(UsageError, match="are the same file"):
            function(path, path)
    assert before == path.read_bytes()


# Pipes


def through_pipe(folder, data, use):
    """Call `use` with the name of a pipe into which a thread writes `data`."""
    pipe = folder / "pipe"
    os.mkfifo(pipe)

    def write():
        # `use` may stop before the end.
        with suppress(BrokenPipeError), open(pipe, "wb") as fp:
            fp.write(data)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        return use(pipe)
    finally:
        writer.join()
        pipe.unlink()


@posix
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("shape", [(), (0, 3), (5, 7), (1000, 300)], ids=str)
def test_a_pipe_gives_the_same_file(tmp_path, shape, order):
    array = filled("<i4", shape, order)
    out = tmp_path / "x.blp"
    through_pipe(
        tmp_path, saved(array), lambda pipe: pack_npy_to_file(pipe, out, "64K")
    )
    assert bloscpack.pack_ndarray_to_bytes(array, "64K") == out.read_bytes()


@posix
@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"x"])
def test_a_pipe_that_ends_too_early_or_late(tmp_path, change):
    data = change(saved(filled("<i4", (1000, 300))))
    out = tmp_path / "x.blp"
    with pytest.raises(FormatError):
        through_pipe(tmp_path, data, lambda pipe: pack_npy_to_file(pipe, out))
    assert [] == names(tmp_path)

    bloscpack.pack_ndarray_to_file(filled("<i4", (10, 300)), out)
    before = out.read_bytes()
    with pytest.raises(FormatError):
        through_pipe(tmp_path, data, lambda pipe: append_npy(out, pipe))
    assert before == out.read_bytes()


@posix
def test_unpacking_into_a_pipe(npy, tmp_path):
    array = filled("<i4", (1000, 300), "F")
    bloscpack.pack_ndarray_to_file(array, tmp_path / "x.blp", "64K")
    os.mkfifo(tmp_path / "pipe")
    found = []
    reader = threading.Thread(
        target=lambda: found.append((tmp_path / "pipe").read_bytes())
    )
    reader.start()
    unpack_npy_from_file(tmp_path / "x.blp", tmp_path / "pipe")
    reader.join()
    assert [saved(array)] == found


# Invalid array files


def unknown_length(path, nbytes, metadata):
    """Write a file whose header does not state its size, as for a pipe."""

    class Pipe(io.BytesIO):
        def seekable(self):
            return False

    fp = Pipe()
    sink = CompressedFPSink(fp)
    source = PlainFPSource(io.BytesIO(b"x" * nbytes))
    bloscpack.abstract_io.pack(source, sink, -1, 100, -1, metadata=metadata)
    path.write_bytes(fp.getvalue())


ARRAY = {"dtype": "'|u1'", "shape": [250], "order": "C", "container": "numpy"}


@pytest.mark.parametrize("nbytes", [0, 100, 249, 250, 251, 1000])
def test_items_of_a_file_of_unknown_length_are_counted(tmp_path, nbytes):
    unknown_length(tmp_path / "x.blp", nbytes, ARRAY)
    if nbytes == 250:
        unpack_npy_from_file(tmp_path / "x.blp", tmp_path / "x.npy")
        expected = saved(np.full(250, ord("x"), "u1"))
        assert expected == (tmp_path / "x.npy").read_bytes()
        return
    with pytest.raises(FormatError, match="has '250' bytes, but the chunks hold"):
        unpack_npy_from_file(tmp_path / "x.blp", tmp_path / "x.npy")
    assert ["x.blp"] == names(tmp_path)


NOT_ARRAYS = [
    # (metadata, error)
    (None, NotANumpyArray),
    ({"a": 1}, NotANumpyArray),
    ({**ARRAY, "shape": [251]}, FormatError),
    ({**ARRAY, "dtype": "'|O'"}, FormatError),
    ({**ARRAY, "shape": [0, 2**62, 2**62]}, FormatError),
    ({**ARRAY, "order": "A"}, FormatError),
]


@pytest.mark.parametrize(("metadata", "error"), NOT_ARRAYS)
def test_what_is_no_array_leaves_the_target_alone(tmp_path, metadata, error):
    nbytes = 0 if metadata and 0 in metadata.get("shape", ()) else 250
    pack_bytes_to_file(bytes(nbytes), tmp_path / "x.blp", metadata=metadata)
    (tmp_path / "x.npy").write_bytes(b"precious")
    with pytest.raises(error) as caught:
        unpack_npy_from_file(tmp_path / "x.blp", tmp_path / "x.npy")
    assert str(tmp_path / "x.blp") in str(caught.value)
    assert b"precious" == (tmp_path / "x.npy").read_bytes()
    assert ["x.blp", "x.npy"] == names(tmp_path)


def test_damage_is_found(npy, tmp_path):
    bloscpack.pack_ndarray_to_file(filled("<i4", (1000,)), tmp_path / "x.blp", "1K")
    data = bytearray((tmp_path / "x.blp").read_bytes())
    data[-20] ^= 1
    (tmp_path / "x.blp").write_bytes(data)
    with pytest.raises(FormatError, match="Checksum"):
        unpack_npy_from_file(tmp_path / "x.blp", tmp_path / "x.npy")
    assert ["x.blp"] == names(tmp_path)


# Appending


FITS = [
    # (shape of the file, shape to append)
    ((3,), (4,)),
    ((0,), (4,)),
    ((3,), (0,)),
    ((3, 4), (1000, 4)),
    ((1000, 4), (3, 4)),
    ((2, 3, 4), (5, 3, 4)),
    ((1, 7), (1, 7)),
    ((3, 0), (0, 0)),
]


@pytest.mark.parametrize("dtype", ["<i4", ">i4", "S5", "<M8[s]", "u1,<f8"])
@pytest.mark.parametrize(("old", "new"), FITS)
def test_append(npy, tmp_path, dtype, old, new):
    first, second = filled(dtype, old), filled(dtype, new)
    path = tmp_path / "x.blp"
    bloscpack.pack_ndarray_to_file(
        first, path, "1K", bloscpack_args=BloscpackArgs(max_app_chunks=100)
    )
    append_npy(path, npy(second))
    found = bloscpack.unpack_ndarray_from_file(path)
    expected = np.concatenate([first, second], dtype=first.dtype)
    assert (expected.dtype, expected.shape) == (found.dtype, found.shape)
    assert expected.tobytes() == found.tobytes()
    unpack_npy_from_file(path, tmp_path / "back.npy")
    assert saved(expected) == (tmp_path / "back.npy").read_bytes()


def test_append_is_that_of_the_bytes(npy, tmp_path):
    rows = filled("<i4", (500, 3))
    for name in ("x.blp", "y.blp"):
        bloscpack.pack_ndarray_to_file(rows, tmp_path / name)
    (tmp_path / "bytes").write_bytes(rows.tobytes())
    settings = BloscArgs(typesize=None, cname="zstd")
    append(tmp_path / "x.blp", tmp_path / "bytes", settings)
    append_npy(tmp_path / "y.blp", npy(rows), settings, nthreads=1, sync=False)
    expected = (tmp_path / "x.blp").read_bytes()
    assert expected == (tmp_path / "y.blp").read_bytes()


@posix
def test_append_from_a_pipe(tmp_path):
    rows = filled("<i4", (500, 3))
    path = tmp_path / "x.blp"
    bloscpack.pack_ndarray_to_file(rows, path)
    through_pipe(tmp_path, saved(rows), lambda pipe: append_npy(path, pipe))
    found = bloscpack.unpack_ndarray_from_file(path)
    assert np.concatenate([rows, rows]).tolist() == found.tolist()


ROWS = filled("<i4", (5, 3))
DO_NOT_FIT = [
    # (array of the file, array to append, message)
    (ROWS, filled(">i4", (2, 3)), "of dtype '>i4' are to be .* an array of dtype '<"),
    (ROWS, filled("<u4", (2, 3)), "dtype '<u4'"),
    (ROWS, filled("<i8", (2, 3)), "dtype '<i8'"),
    (ROWS, filled([("a", "<i4")], (2, 3)), r"dtype \[\('a', '<i4'\)\]"),
    (
        ROWS,
        filled("<i4", (2, 4)),
        r"of shape \(2, 4\) is to be .* to one of shape \(5,",
    ),
    (ROWS, filled("<i4", (3,)), r"shape \(3,\)"),
    (ROWS, filled("<i4", ()), r"shape \(\)"),
    (ROWS, filled("<i4", (2, 3, 1)), r"shape \(2, 3, 1\)"),
    (ROWS, filled("<i4", (2, 3), "F"), "Fortran order"),
    (filled("<i4", (5, 3), "F"), filled("<i4", (2, 3)), "."),
    (filled("<i4", ()), filled("<i4", (2,)), "."),
    (filled("<i4", (5, 0)), filled("<i4", (2, 0)), "."),
    (None, filled("<i4"), "."),
]


@pytest.mark.parametrize(("old", "new", "message"), DO_NOT_FIT)
def test_what_does_not_fit_is_refused(npy, tmp_path, old, new, message):
    path = tmp_path / "x.blp"
    if old is None:
        pack_bytes_to_file(b"plain", path)
    else:
        bloscpack.pack_ndarray_to_file(old, path)
    before = path.read_bytes()
    error = NotANumpyArray if old is None else DoesNotFit
    with pytest.raises(error, match=message) as caught:
        append_npy(path, npy(new))
    assert str(path) == caught.value.filename
    assert before == path.read_bytes()
    assert ["x.blp", "x.npy"] == names(tmp_path)


@pytest.mark.parametrize("name", ["two arrays", "too short", "text", "objects"])
def test_appending_what_is_no_array(npy, tmp_path, name):
    content, error, _, message = WRONG[name]
    path = tmp_path / "x.blp"
    bloscpack.pack_ndarray_to_file(filled("<i2", (5,)), path)
    before = path.read_bytes()
    with pytest.raises(error, match=message.split("(")[0]) as caught:
        append_npy(path, npy(content))
    assert str(tmp_path / "x.npy") == caught.value.filename
    assert before == path.read_bytes()


# Arrays without items


def test_no_items_are_touched():
    array = npy_io.without_items(np.dtype("<f8"), (2**40, 2**15), fortran=True)
    assert 2**58 == array.nbytes
    header = npy_io.encode_header(array)
    expected = "{'descr': '<f8', 'fortran_order': True, 'shape': (%d, %d), }"
    assert expected % array.shape in header.decode("latin1")
