"""Another reader, written from docs/format.rst alone, returns and refuses the same."""

from __future__ import annotations

import ast
import io
import itertools
import json
import random
import re
import tokenize

import builders
import numpy
import pytest
from format import independent_reader
from format.agreement import refusal_of
from fuzz.parts import change, take_apart
from support import BLP, TESTS, golden_files, sha256

import bloscpack as bp
from bloscpack.exceptions import FormatError
from bloscpack.reader import Reader
from bloscpack.serializers import is_array, shard_rows
from bloscpack.verify import verify_fp

REFUSED = "refused"
VERDICTS = ("damage", "unsupported")
SNAPPY = "a codec that only the package has"
SMALL_FILES = sorted((TESTS / "valid").glob("*.blp"))
SMALL_FILES += sorted((TESTS / "invalid").glob("*.blp"))
GOLDEN = [BLP / entry["file"] for entry in golden_files()]


def read_here(data):
    """Return plain bytes and metadata, and the array, or verdicts, of the package."""
    try:
        plain, metadata = bp.unpack_bytes_from_bytes(data, nthreads=1)
    except FormatError as error:
        return refusal_of(error).verdict, None
    content = sha256(plain), json.dumps(metadata)
    if not is_array(metadata):
        return content, None
    try:
        array = bp.unpack_ndarray_from_bytes(data, nthreads=1)
    except FormatError as error:
        return content, refusal_of(error).verdict
    return content, (list(array.shape), sha256(array.tobytes()))


def read_there(data):
    """Return the same, by the other reader."""
    try:
        plain, metadata = independent_reader.read(data)
    except independent_reader.Refused as error:
        verdict = refusal_of(error).verdict
        return SNAPPY if str(error) == "C11" else verdict, None
    content = sha256(plain), json.dumps(metadata)
    if not is_array(metadata):
        return content, None
    try:
        array = independent_reader.read_array(data)
    except independent_reader.Refused as error:
        return content, refusal_of(error).verdict
    return content, (array["shape"], sha256(array["items"]))


@pytest.mark.skipif(
    numpy.lib.NumpyVersion(numpy.__version__) < "2.0.0", reason="NumPy 1 has 32 axes"
)
@pytest.mark.parametrize("path", SMALL_FILES, ids=lambda path: path.stem)
def test_small_files(path):
    data = path.read_bytes()
    assert read_here(data) == read_there(data)


@pytest.mark.parametrize("step", [20, pytest.param(1, marks=pytest.mark.slow)])
def test_golden_files(step):
    for path in GOLDEN[::step]:
        data = path.read_bytes()
        found = read_there(data)
        assert found[0] == SNAPPY or read_here(data) == found, path


def test_both_outcomes_are_among_the_files():
    outcomes = {read_there(path.read_bytes())[0] for path in SMALL_FILES}
    assert {*VERDICTS} < outcomes


def test_the_other_reader_shares_nothing_with_the_package():
    sources = [*(TESTS / "format").glob("independent_*.py")]
    texts = [source.read_text("utf-8") for source in sources]
    assert not any(re.search("(import|from) bloscpack", text) for text in texts)
    assert sum(map(lines_of_code, texts)) <= 1150


def lines_of_code(text):
    """Return the number of lines without blank ones, comments and docstrings."""
    tree, lines = ast.parse(text), set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.string.strip() and token.type != tokenize.COMMENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        has_text = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        if has_text and ast.get_docstring(node):
            text = node.body[0]
            lines -= {*range(text.lineno, text.end_lineno + 1)}
    return len(lines)


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_changed_files(count):
    """Both readers give the same verdicts, and the same content of the other files."""
    generator = random.Random(1)
    originals = [path.read_bytes() for path in SMALL_FILES if "layout-3" in path.name]
    originals += [(TESTS / "valid" / "sound.blp").read_bytes()]
    outcomes = set()
    for number in range(count):
        changed = take_apart(generator.choice(originals))
        for _ in range(generator.randrange(1, 3)):
            change(changed, generator.randrange)
        data = changed.join()
        expected, found = read_here(data)[0], read_there(data)[0]
        assert found == SNAPPY or (number, expected) == (number, found)
        outcomes.add(expected)
    assert {*VERDICTS} < outcomes


# Shards


def shard_here(data):
    """Return REFUSED if verify calls the trailer wrong or missing, None without one."""
    findings = verify_fp(io.BytesIO(data), nthreads=1).findings
    kinds = [f.kind for f in findings if f.section == "shard"]
    metadata = bp.unpack_bytes_from_bytes(data, nthreads=1)[1]
    if "trailer" in kinds:
        return REFUSED
    is_shard = shard_rows(metadata) is not None and "no-trailer" not in kinds
    return "shard" if is_shard else None


def shard_there(data):
    """Return the same, by the other reader; check the items that a shard leads to."""
    try:
        plain = independent_reader.read_shard(data)
    except independent_reader.Refused:
        file = independent_reader.read_chunks(data, independent_reader.read_front(data))
        # Nothing behind the chunks is no error for this format (S11).
        return None if file.extents[-1][1] == len(data) else REFUSED
    if plain is None:
        return None
    expected, _ = independent_reader.read(data)
    assert expected.ljust(len(plain), b"\0") == plain
    return "shard"


SHARDS = [path for path in SMALL_FILES if path.stem.startswith("shard")]


@pytest.mark.parametrize("path", SHARDS, ids=lambda path: path.stem)
def test_small_shards(path):
    data = path.read_bytes()
    assert shard_here(data) == shard_there(data)


MANIFEST = json.loads((TESTS / "invalid" / "MANIFEST.json").read_text("ascii"))
# What only a program that appends refuses, and tables, which readers do not use.
FOR_WRITERS = ("A10", "O1", "O2", "O3", "O4", "P1")


@pytest.mark.parametrize("name", MANIFEST)
def test_first_rule(name):
    """The first rule that each file breaks, in the order of checks."""
    data = (TESTS / "invalid" / (name + ".blp")).read_bytes()
    rule, found = MANIFEST[name]["rules"][0], None
    try:
        independent_reader.read(data)
        independent_reader.read_array(data)
        independent_reader.read_shard(data)
    except independent_reader.Refused as error:
        found = str(error)
    assert found == rule or (found is None and rule in FOR_WRITERS)


@pytest.mark.parametrize("nrows", [0, 1, 7, 8, 9, 24, 30])
@pytest.mark.parametrize(
    "settings",
    [{}, {"checksum": "adler32"}, {"checksum": "None"},
     {"max_app_chunks": 0}, {"cname": "zstd", "shuffle": 2}],
    ids=str,
)  # fmt: skip
def test_written_shards(nrows, settings):
    rows = numpy.arange(nrows * 3, dtype="<i4").reshape(nrows, 3)
    data = bp.pack_ndarray_to_bytes(rows, 8 * 12, shard=True, **settings)
    assert "shard" == shard_here(data) == shard_there(data)


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_changed_shards(count):
    """Both find the same shards right, wrong and missing, whatever has changed."""
    generator = random.Random(1)
    originals = [path.read_bytes() for path in SHARDS]
    outcomes = set()
    for number in range(count):
        data = bytearray(generator.choice(originals))
        for _ in range(generator.randrange(1, 3)):
            # Mostly in the trailer, but also in header and metadata.
            at = generator.choice([generator.randrange(len(data)), len(data) - 1])
            at = max(0, at - generator.randrange(100))
            kind = generator.randrange(4)
            if kind == 0:
                del data[at : at + generator.randrange(1, 20)]
            elif kind == 1:
                data[at:at] = generator.randbytes(generator.randrange(1, 20))
            else:
                data[at] ^= 1 << generator.randrange(8)
        data = bytes(data)
        if read_here(data)[0] in VERDICTS:
            continue
        findings = verify_fp(io.BytesIO(data), nthreads=1).findings
        if any(f.severity == "error" and f.section != "shard" for f in findings):
            continue  # where the trailer begins may be uncertain
        found = shard_here(data)
        assert (number, found) == (number, shard_there(data))
        outcomes.add(found)
    assert {None, REFUSED} <= outcomes


def outcome(read, data):
    """Return the size of the plain bytes, and REFUSED if there is an error."""
    try:
        return read(data)
    except (FormatError, independent_reader.Refused):
        return REFUSED


def verified_size(data):
    report = verify_fp(io.BytesIO(data), nthreads=1)
    return report.nbytes if report.ok else REFUSED


def read_size(data):
    opened = Reader(io.BytesIO(data))
    return len(opened.read(0, opened.nbytes))


@pytest.mark.parametrize("layout", [2, 3])
def test_all_agree_on_unknown_sizes(layout):
    """Rule U3, with H1, H8 and L1: all sizes, stated, unknown, right and wrong."""
    readers = (
        lambda data: len(bp.unpack_bytes_from_bytes(data, nthreads=1)[0]),
        lambda data: len(independent_reader.read(data)[0]),
        read_size,
        verified_size,
    )
    found = set()
    for sizes in [(), (10,), (20,), (10, 20), (20, 10), (10, 10), (20, 0)]:
        chunks = [bytes(size) for size in sizes]
        numbers = [(-1, 10, 20), (-1, 0, 10, 20), (-1, len(sizes), len(sizes) - 1)]
        for chunk_size, last_chunk, nchunks in itertools.product(*numbers):
            stated = {"chunk_size": chunk_size, "last_chunk": last_chunk}
            data = builders.layout(layout, chunks, nchunks=nchunks, **stated)
            outcomes = {outcome(read, data) for read in readers}
            assert 1 == len(outcomes), (sizes, stated, nchunks)
            found |= outcomes
    assert {REFUSED, 0, 10, 20, 30} == found
