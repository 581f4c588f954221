"""The families of errors, and the built-in classes that catch each of them.

The errors of 0.16 for the same files are in `tests/invalid/ERRORS-0.16.json`, which
`tests/invalid/test_invalid.py` compares.
"""

import contextlib
import re
import struct
import zlib
from pathlib import Path

import blosc
import pytest

import bloscpack
from bloscpack import exceptions
from bloscpack.args import BloscpackArgs
from bloscpack.exceptions import BloscpackError, FormatError, StorageError, UsageError

DOCS = Path(__file__).parents[2] / "docs"
# Built-in classes that handlers of programs written for 0.16 name.
HANDLERS = (
    ValueError,
    TypeError,
    LookupError,
    OSError,
    RuntimeError,
    MemoryError,
    ArithmeticError,
    struct.error,
    zlib.error,
    blosc.blosc_extension.error,
    EOFError,
)
# name, family, the only built-in classes that it may be: those that 0.16 raised
CLASSES = [
    ("BloscpackError", BloscpackError, ()),
    ("FormatError", BloscpackError, ()),
    ("UsageError", BloscpackError, ()),
    ("StorageError", BloscpackError, (OSError,)),
    ("NotReadable", FormatError, (ValueError,)),
    ("HeaderError", FormatError, (ValueError,)),
    ("DamageError", FormatError, (RuntimeError,)),
    # Raised by file objects alone, which 0.16 did not have.
    ("NotABloscpackFile", exceptions.NotReadable, (ValueError, OSError)),
    ("EndsTooEarly", exceptions.DamageError, (RuntimeError, EOFError)),
    ("ChecksumLengthMismatch", exceptions.DamageError, (RuntimeError,)),
    ("ChecksumMismatch", exceptions.DamageError, (RuntimeError,)),
    ("Unsupported", FormatError, ()),
    ("FormatVersionMismatch", exceptions.Unsupported, (RuntimeError,)),
    ("NotANumpyArray", exceptions.Unsupported, (RuntimeError,)),
    ("ObjectDtypeFound", FormatError, (RuntimeError,)),
    ("UsageValueError", UsageError, (ValueError,)),
    ("UsageTypeError", UsageError, (TypeError,)),
    ("ChunkSizeTypeSizeMismatch", UsageError, (ValueError,)),
    ("NoSuchChecksum", UsageError, (ValueError,)),
    ("NoSuchCodec", UsageError, (ValueError,)),
    ("NoSuchSerializer", UsageError, (ValueError,)),
    ("ChunkingException", UsageError, ()),
    ("DoesNotFit", UsageError, (RuntimeError,)),
    ("MetadataSectionTooSmall", UsageError, (RuntimeError,)),
    ("NoChangeInMetadata", UsageError, (RuntimeError,)),
    ("NoMetadataFound", UsageError, (RuntimeError,)),
    ("NonUniformTypesize", UsageError, (RuntimeError,)),
    ("NotEnoughSpace", UsageError, (RuntimeError,)),
    ("AnotherFileFollows", UsageError, (RuntimeError,)),
    ("ObjectNumpyArrayRejection", UsageError, (RuntimeError,)),
    ("OffsetsRequired", UsageError, (RuntimeError,)),
    ("FileNotFound", StorageError, (OSError,)),
    ("NoSuchBlock", StorageError, (LookupError, OSError)),
]


@pytest.mark.parametrize(("name", "family", "caught_by"), CLASSES)
def test_handlers_catch_what_they_caught(name, family, caught_by):
    cls = getattr(exceptions, name)
    assert issubclass(cls, family)
    assert caught_by == tuple(base for base in HANDLERS if issubclass(cls, base))
    assert "text" == str(cls("text"))


def test_no_class_is_forgotten():
    found = {
        name
        for name, value in vars(exceptions).items()
        if isinstance(value, type) and issubclass(value, BloscpackError)
    }
    assert {name for name, _, _ in CLASSES} == found


def test_no_class_is_raised_without_the_base_of_its_situation():
    for path in Path(bloscpack.__file__).parent.rglob("*.py"):
        text = path.read_text("utf-8")
        found = re.findall(r"(?:raise|return) (FormatError|BloscpackError)\(", text)
        assert [] == found, path


def test_table_in_the_documentation():
    text = (DOCS / "compatibility.rst").read_text("utf-8")
    table = text[text.index("* - class\n") :]
    listed = {}
    for row in table[: table.index("\n\n")].split("     * - ")[1:]:
        names, base, _ = row.split("\n       - ")
        for name in re.findall(r"``(\w+)``", names):
            listed[name] = tuple(re.findall(r"``(\w+)``", base))
    assert {
        name: tuple(base.__name__ for base in bases) for name, _, bases in CLASSES
    } == listed


# Programs that take a ValueError for bytes that are not compressed


def plain_or_unpacked(data):
    """Return unpacked data, or data that are no Bloscpack file, as many programs do."""
    try:
        return bloscpack.unpack_bytes_from_bytes(data)[0]
    except ValueError:
        return data


def test_bytes_that_are_not_compressed_are_used_as_they_are():
    for data in (b"", b"text", b"x" * 100):
        assert data == plain_or_unpacked(data)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"metadata": {"a": "b" * 100}},
        {"bloscpack_args": BloscpackArgs(offsets=False, checksum="None")},
    ],
)
def test_damaged_bytes_are_never_used_as_they_are(arguments):
    packed = bloscpack.pack_bytes_to_bytes(
        b"0123456789" * 100, chunk_size=400, **arguments
    )
    changes = [packed[:length] for length in range(32, len(packed))]
    for place in range(32, len(packed)):
        for bits in (1, 0x80, 0xFF):
            byte = bytes([packed[place] ^ bits])
            changes.append(packed[:place] + byte + packed[place + 1 :])
    for data in changes:
        with contextlib.suppress(RuntimeError):
            assert data != plain_or_unpacked(data)


@pytest.mark.parametrize(
    ("expected", "place"),
    [
        ("no", {}),
        ("no (file 'a.blp')", {"filename": "a.blp"}),
        ("no (section 'header')", {"section": "header"}),
        ("no (chunk 0)", {"chunk": 0}),
        ("no (byte 0)", {"offset": 0}),
        (
            "no (file 'a.blp', section 'chunks', chunk 3, byte 140)",
            {"filename": "a.blp", "section": "chunks", "chunk": 3, "offset": 140},
        ),
    ],
)
def test_format_error_tells_its_place(expected, place):
    error = FormatError("no", **place)
    assert expected == str(error)
    assert "no" == error.message


@pytest.mark.parametrize(
    ("expected", "error"),
    [
        ((3, 140), FormatError("no")),
        ((3, 7), FormatError("no", offset=7)),
        ((1, None), FormatError("no", chunk=1)),
    ],
)
def test_place_of_a_chunk_that_is_not_known_yet(expected, error):
    error.locate(3, 140)
    assert expected == (error.chunk, error.offset)
