"""The families of errors, and the old base of every old class."""

import pytest

from bloscpack import exceptions
from bloscpack.exceptions import BloscpackError, FormatError, StorageError, UsageError

# name, family, base class in 0.16
CLASSES = [
    ("ChecksumLengthMismatch", FormatError, RuntimeError),
    ("ChecksumMismatch", FormatError, RuntimeError),
    ("ChunkSizeTypeSizeMismatch", UsageError, ValueError),
    ("ChunkingException", UsageError, BaseException),
    ("FileNotFound", StorageError, OSError),
    ("FormatVersionMismatch", FormatError, RuntimeError),
    ("MetadataSectionTooSmall", UsageError, RuntimeError),
    ("NoChangeInMetadata", UsageError, RuntimeError),
    ("NoMetadataFound", UsageError, RuntimeError),
    ("NoSuchChecksum", UsageError, ValueError),
    ("NoSuchCodec", UsageError, ValueError),
    ("NoSuchSerializer", UsageError, ValueError),
    ("NonUniformTypesize", UsageError, RuntimeError),
    ("NotANumpyArray", FormatError, RuntimeError),
    ("NotEnoughSpace", UsageError, RuntimeError),
    ("ObjectNumpyArrayRejection", UsageError, RuntimeError),
    # Classes that 0.16 did not have.
    ("FormatError", BloscpackError, ValueError),
    ("UsageError", BloscpackError, ValueError),
    ("StorageError", BloscpackError, OSError),
    ("UsageTypeError", UsageError, TypeError),
    ("NotReadable", FormatError, ValueError),
    ("DoesNotFit", UsageError, RuntimeError),
    ("OffsetsRequired", UsageError, RuntimeError),
    ("ObjectDtypeFound", FormatError, exceptions.ObjectNumpyArrayRejection),
]


@pytest.mark.parametrize(("name", "family", "old_base"), CLASSES)
def test_families(name, family, old_base):
    cls = getattr(exceptions, name)
    error = cls("text")
    assert isinstance(error, family)
    assert isinstance(error, old_base)
    assert isinstance(error, BloscpackError)
    assert "text" == str(error)


def test_no_class_is_forgotten():
    found = {
        name
        for name, value in vars(exceptions).items()
        if isinstance(value, type) and issubclass(value, BloscpackError)
    }
    assert {"BloscpackError", *(name for name, _, _ in CLASSES)} == found


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
