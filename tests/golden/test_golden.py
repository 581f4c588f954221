"""The golden files: all are read as they must be, and those of 0.16.0 made again."""

from __future__ import annotations

import io
import json
import zlib
from contextlib import suppress
from importlib.util import find_spec

import blosc
import numpy
import pytest
from golden import content
from support import BLP, ShortReads, golden_files, golden_input, manifest, sha256

import bloscpack as bp
from bloscpack import cli
from bloscpack.append import append_fp, rewrite_metadata_fp
from bloscpack.exceptions import FormatError, Unsupported
from bloscpack.file_io import CompressedFPSource, PlainFPSink
from bloscpack.headers import has_undo_record
from bloscpack.numpy_io import unpack_ndarray
from bloscpack.reader import Reader

FILES = golden_files()
ENVIRONMENT = manifest()["environment"]
NTHREADS = (1, 4)

# How the demands begin; the rest of each is an explanation.
EQUAL = "equal"
NEEDS_CODEC = "equal if that codec is there"
UNRELEASED = "refuse or equal"
OTHER_ITEMS = "an array of that shape and dtype whose bytes are stored_plain"
TOO_SHORT = "error for the array"
DEMANDS = {
    EQUAL: [e for e in FILES if e["demand"] == EQUAL],
    **{
        start: [e for e in FILES if e["demand"].startswith(start)]
        for start in (NEEDS_CODEC, UNRELEASED, OTHER_ITEMS, TOO_SHORT)
    },
}


def is_array(entry):
    return entry["expected"]["kind"] == "ndarray"


ARRAYS = [e for e in FILES if is_array(e)]


def for_each(entries):
    """Run a test for each of the entries, under the name of its file."""
    return pytest.mark.parametrize(
        "entry", [pytest.param(e, id=e["file"]) for e in entries]
    )


def as_json(metadata):
    """Return a text to compare: True, 1 and 1.0 are equal to Python, but not here."""
    return json.dumps(metadata, sort_keys=True)


def seen_bytes(plain, metadata):
    return sha256(plain), as_json(metadata)


def seen_array(array):
    order = "C" if array.flags.c_contiguous else "F"
    return array.dtype, list(array.shape), order, sha256(array.tobytes(order))


def expected_bytes(entry):
    expected = entry["expected"]
    plain = entry.get("stored_plain") or expected.get("plain")
    digest = plain["sha256"] if plain else expected["data_sha256"]
    return digest, as_json(expected["metadata"])


def expected_array(entry):
    expected = entry["expected"]
    dtype = numpy.load(BLP / expected["npy"], allow_pickle=False).dtype
    stored = entry.get("stored_plain", {"sha256": expected["data_sha256"]})
    return dtype, expected["shape"], expected["order"], stored["sha256"]


def outcome(read, *args, **kwargs):
    """Return what reading gives, or how it fails."""
    try:
        result = read(*args, **kwargs)
    except FormatError as error:
        return type(error), error.message
    return seen_bytes(*result) if isinstance(result, tuple) else seen_array(result)


def is_refusal(seen):
    return isinstance(seen[0], type)


# The files are all there, and as they were written


def test_files_are_unchanged():
    expected = {e["file"]: (e["size"], e["sha256"]) for e in FILES}
    found = {
        path.relative_to(BLP).as_posix(): (path.stat().st_size, sha256_of(path))
        for path in BLP.rglob("*.blp")
    }
    assert expected == found


def test_arrays_are_unchanged():
    expected = {e["expected"]["npy"]: e["expected"]["npy_sha256"] for e in ARRAYS}
    found = {
        path.relative_to(BLP).as_posix(): sha256_of(path) for path in BLP.rglob("*.npy")
    }
    assert expected == found


def sha256_of(path):
    return sha256(path.read_bytes())


def test_inputs_are_made_from_their_specs():
    for entry in FILES:
        if not is_array(entry):
            made = golden_input(entry)
            known = entry.get("original_input", entry["expected"]["plain"])
            expected = known["size"], known["sha256"]
            assert expected == (len(made), sha256(made)), entry["file"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("zeros:3", b"\0\0\0"),
        ("rand:2:a", b"\xd7\xe9"),
        ("ramp:1:4:100", b"\0\x64\xc8\x2c"),
        ("ramp:3:2:65537", b"\0\0\0\x01\0\x01"),
        ("ramp:9:2:255", b"\0" * 9 + b"\xff" + b"\0" * 8),
        ("dbl:3:2", b"\0" * 14 + b"\xe0\x3f" + b"\0" * 8),
        ("lin:2", b"\0" * 14 + b"\x50\x3f"),
        ("text:12:a", b"size\ncodec c"),
        ("mix:8:a", b"\0\0\0\0\x03\0\0\0"),
        ("lit:00ff", b"\0\xff"),
        ("cat:zeros:1|lit:01", b"\0\x01"),
    ],
)
def test_content(spec, expected):
    assert expected == content.make(spec)


def test_content_refuses_wide_numbers_that_it_would_cut():
    with pytest.raises(ValueError, match="64 bits"):
        content.make("ramp:9:2:%d" % 2**63)


# Every file meets its demand


def test_every_demand_is_known():
    expected = sorted(e["file"] for e in FILES)
    found = sorted(e["file"] for entries in DEMANDS.values() for e in entries)
    assert expected == found
    assert all(DEMANDS.values())


def read_file(path, out):
    metadata = bp.unpack_file_from_file(path, out, nthreads=4)
    return out.read_bytes(), metadata


def read_short_reads(path, out):
    source = CompressedFPSource(ShortReads(path.read_bytes()))
    out_fp = io.BytesIO()
    bp.abstract_io.unpack(source, PlainFPSink(out_fp))
    return out_fp.getvalue(), source.metadata


def read_by_position(path):
    with open(path, "rb") as fp:
        reader = Reader(fp)
        return reader.read(0, None, nthreads=1), reader.metadata


READ_BYTES = {
    "bytes from a file": lambda path, out: bp.unpack_bytes_from_file(path),
    "bytes from bytes": lambda path, out: bp.unpack_bytes_from_bytes(
        path.read_bytes(), nthreads=1
    ),
    "file from a file": read_file,
    "short reads": read_short_reads,
}
READ_ARRAY = {
    "array from a file": lambda path, out: bp.unpack_ndarray_from_file(path),
    "array from bytes": lambda path, out: bp.unpack_ndarray_from_bytes(
        path.read_bytes(), nthreads=1
    ),
    "short reads": lambda path, out: unpack_ndarray(
        CompressedFPSource(ShortReads(path.read_bytes())), nthreads=4
    ),
}


def same_outcome(readers, path, out):
    """Return the outcome of reading a file, which no reader may see differently."""
    if has_undo_record(path.read_bytes()[:32]):  # a reader that can't seek says so
        readers = {
            name: read for name, read in readers.items() if name != "short reads"
        }
    seen = {name: outcome(read, path, out) for name, read in readers.items()}
    first = next(iter(seen.values()))
    assert dict.fromkeys(readers, first) == seen
    return first


def check_bytes(entry, seen):
    """Check the outcome of reading bytes against the demand of the manifest."""
    demand = entry["demand"]
    if demand.startswith(NEEDS_CODEC) and is_missing(entry["needs_codec"]):
        assert is_refusal(seen)
        assert issubclass(seen[0], Unsupported)
        assert "'%s'" % entry["needs_codec"] in seen[1]
    elif demand.startswith(UNRELEASED) and is_refusal(seen):
        pass
    elif demand.startswith(TOO_SHORT) and is_refusal(seen):
        assert "chunk" in seen[1]
    else:
        assert expected_bytes(entry) == seen


def check_array(entry, seen):
    """Check the outcome of reading an array against the demand of the manifest."""
    demand = entry["demand"]
    if demand.startswith(TOO_SHORT):
        assert is_refusal(seen)
        assert "bytes" in seen[1]
    elif not (demand.startswith(UNRELEASED) and is_refusal(seen)):
        assert expected_array(entry) == seen


def is_missing(codec):
    if codec == "snappy" and find_spec("cramjam") is not None:
        return False
    return codec not in blosc.compressor_list()


@for_each(FILES)
def test_every_reader_returns_the_same_bytes(entry, tmp_path):
    path = BLP / entry["file"]
    check_bytes(entry, same_outcome(READ_BYTES, path, tmp_path / "out"))
    # Reading by position may meet a different error first.
    check_bytes(entry, outcome(read_by_position, path))


@for_each(ARRAYS)
def test_every_reader_returns_the_same_array(entry, tmp_path):
    seen = same_outcome(READ_ARRAY, BLP / entry["file"], tmp_path / "out")
    check_array(entry, seen)


def test_array_equals_the_one_that_was_packed():
    # The test above compares with digests; this one with the values themselves.
    for entry in DEMANDS[EQUAL]:
        if is_array(entry):
            array = bp.unpack_ndarray_from_file(BLP / entry["file"], nthreads=1)
            packed = numpy.load(BLP / entry["expected"]["npy"], allow_pickle=False)
            numpy.testing.assert_array_equal(packed, array, entry["file"])


HEADER_FIELDS = (
    "nchunks",
    "chunk_size",
    "last_chunk",
    "max_app_chunks",
    "typesize",
    "checksum",
    "offsets",
    "metadata",
)


def test_header():
    for entry in FILES:
        if "header" not in entry:
            continue
        known = entry["header"]
        expected = {name: known[name] for name in HEADER_FIELDS if name in known}
        with open(BLP / entry["file"], "rb") as fp:
            source = CompressedFPSource(fp)
            header, position = source.bloscpack_header, fp.tell()
            with suppress(FormatError):
                next(iter(source), None)
            position = source.chunk_offset or position
        found = {name: getattr(header, name) for name in expected}
        assert expected == found, entry["file"]
        assert entry["format_version"] == header.format_version, entry["file"]
        assert known["first_chunk_at"] == position, entry["file"]


def test_info_shows_every_file(capsys):
    for entry in FILES:
        try:
            cli.main(["info", str(BLP / entry["file"])])
        except SystemExit:
            assert entry["demand"].startswith(UNRELEASED), entry["file"]
        else:
            assert "nchunks" in capsys.readouterr().out, entry["file"]


# What 0.16.0 wrote is made again, byte for byte


def blosc_environment(names):
    return {
        "python_blosc": blosc.__version__,
        "c_blosc": blosc.BLOSC_VERSION_STRING,
        "codecs": {
            name: list(blosc.clib_info(name))
            for name in blosc.compressor_list()
            if name in names
        },
    }


FOUND = blosc_environment(ENVIRONMENT["codecs"])
OTHER_BLOSC = [
    "%s %s" % item for item in FOUND.items() if item not in ENVIRONMENT.items()
]
OTHER_ZLIB = ENVIRONMENT["zlib_runtime"] != zlib.ZLIB_RUNTIME_VERSION
same_blosc = pytest.mark.skipif(
    bool(OTHER_BLOSC),
    reason="the golden files were written by another Blosc than the one here, with "
    + ", ".join(OTHER_BLOSC),
)


def has_compressed_metadata(entry):
    header = entry["header"].get("metadata_header")
    if header is None:
        return entry["expected"]["metadata"] is not None
    return header["meta_codec"] == "zlib"


def made_again(entries):
    """Run a test for each of the entries, unless another zlib makes other bytes."""
    reason = "metadata compressed by zlib %s, here is %s" % (
        ENVIRONMENT["zlib_runtime"],
        zlib.ZLIB_RUNTIME_VERSION,
    )
    cases = []
    for entry in entries:
        skipped = OTHER_ZLIB and has_compressed_metadata(entry)
        marks = [pytest.mark.skip(reason=reason)] if skipped else []
        cases.append(pytest.param(entry, id=entry["file"], marks=marks))

    def decorate(test):
        return same_blosc(pytest.mark.parametrize("entry", cases)(test))

    return decorate


def times_ten(n):
    return 10 * n


def settings(cls, recipe):
    """Return an object of settings as a recipe describes it."""
    if recipe is None:
        return None
    recipe = {
        name: times_ten if isinstance(value, str) and value.startswith("10*") else value
        for name, value in recipe.items()
    }
    if "magic_format" in recipe:
        recipe["magic_format"] = recipe["magic_format"].encode("ascii")
    return cls(**recipe)


def all_settings(recipe):
    return (
        settings(bp.BloscArgs, recipe["blosc_args"]),
        settings(bp.BloscpackArgs, recipe["bloscpack_args"]),
        settings(bp.MetadataArgs, recipe["metadata_args"]),
    )


def packed_bytes(recipe, nthreads):
    return bp.pack_bytes_to_bytes(
        content.make(recipe["content"]),
        recipe["chunk_size"],
        recipe["metadata"] if recipe["has_metadata"] else None,
        *all_settings(recipe),
        nthreads=nthreads,
    )


def recipes(kind):
    return [
        e
        for e in FILES
        if e["byte_identical"] and e.get("recipe", {}).get("kind") == kind
    ]


@made_again(recipes("bytes"))
def test_bytes_are_packed_as_by_0_16(entry):
    expected = (BLP / entry["file"]).read_bytes()
    for nthreads in NTHREADS:
        assert expected == packed_bytes(entry["recipe"], nthreads)


@made_again(recipes("ndarray"))
def test_arrays_are_packed_as_by_0_16(entry):
    recipe = entry["recipe"]
    array = numpy.load(BLP / recipe["npy"], allow_pickle=False)
    for nthreads in NTHREADS:
        packed = bp.pack_ndarray_to_bytes(
            array, recipe["chunk_size"], *all_settings(recipe), nthreads=nthreads
        )
        assert (BLP / entry["file"]).read_bytes() == packed


@made_again(recipes("append"))
def test_bytes_are_appended_as_by_0_16(entry):
    expected = (BLP / entry["file"]).read_bytes()
    for nthreads in NTHREADS:
        found = appended_bytes(entry["recipe"], nthreads)
        assert expected[: end_of_chunks(expected)] == found


def appended_bytes(recipe, nthreads):
    fp = io.BytesIO(packed_bytes(recipe["base"], nthreads))
    for appended in recipe["appends"]:
        new = content.make(appended["content"])
        blosc_args = settings(bp.BloscArgs, appended["blosc_args"])
        append_fp(fp, io.BytesIO(new), len(new), blosc_args, nthreads=nthreads)
    if recipe["metadata_rewrite"] is not None:
        rewrite_metadata_fp(fp, recipe["metadata_rewrite"])
    return fp.getvalue()


def end_of_chunks(packed):
    """Return where the last chunk ends: 0.16.0 let old bytes stay behind it."""
    fp = io.BytesIO(packed)
    for _ in CompressedFPSource(fp):
        pass
    return fp.tell()


def test_bytes_behind_the_last_chunk_are_read_over():
    expected = {"v3/H-leftover-tail-long.blp": 738}
    found = {}
    for entry in recipes("append"):
        packed = (BLP / entry["file"]).read_bytes()
        if trailing := len(packed) - end_of_chunks(packed):
            found[entry["file"]] = trailing
    assert expected == found


@made_again(e for e in FILES if e["byte_identical"] and "cli" in e)
def test_files_are_compressed_as_by_the_old_command(entry, tmp_path):
    plain, metadata, packed = tmp_path / "in", tmp_path / "META", tmp_path / "out.blp"
    plain.write_bytes(golden_input(entry))
    if entry["cli_metadata_file"] is not None:
        metadata.write_text(entry["cli_metadata_file"], encoding="ascii")
    options = [str(metadata) if text == "META" else text for text in entry["cli"]]
    for nthreads in NTHREADS:
        options[1] = str(nthreads)  # behind -n
        cli.main([*options, str(plain), str(packed)])
        assert (BLP / entry["file"]).read_bytes() == packed.read_bytes()
        packed.unlink()


def test_every_file_that_can_be_made_again_is():
    made = [*recipes("bytes"), *recipes("ndarray"), *recipes("append")]
    made += [e for e in FILES if "cli" in e]
    assert sum(e["byte_identical"] for e in FILES) == len(made)
