"""The texts of a block: header, attributes, rows not written; damaged ones as well."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloscpack.bigfile import attributes, header
from bloscpack.exceptions import DamageError, FormatError, UsageError

HEADER = """\
DTYPE: <f4
NMEMB: 3
NFILE: 2
000000: 5 : 1408 : 1408
000001: 6 : 51000000 : 13770
"""


def decoded(text):
    return header.decode(text.encode())


def test_header():
    found = decoded(HEADER)
    assert (np.dtype("<f4"), 3, [5, 6], 11, 12) == (
        found.dtype,
        found.nmemb,
        found.rows,
        found.size,
        found.row_nbytes,
    )
    assert [1408, 51000000] == found.checksums
    assert HEADER.encode() == header.encode(found)


@pytest.mark.parametrize(
    "text",
    [
        HEADER.replace("\n", "\r\n"),
        HEADER + "\nanything else\n",
        "".join(reversed(HEADER.splitlines(keepends=True))),
        HEADER.rstrip("\n"),
        HEADER.replace("<f4", "=f4"),
        HEADER.replace("<f4", "|f4"),
    ],
)
def test_headers_that_the_original_accepts(text):
    assert HEADER.encode() == header.encode(decoded(text))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("DTYPE: <f4\n", "", "DTYPE is missing"),
        ("NMEMB: 3\n", "", "NMEMB is missing"),
        ("NFILE: 2\n", "", "NFILE is missing"),
        ("<f4", "f4", "expected a type"),
        ("<f4", "<U4", "expected a type"),
        ("<f4", "<M8", "expected a type"),
        ("<f4", "<f17", "type '<f17'"),
        ("<f4", "<i3", "type '<i3'"),
        ("<f4", "<S0", "type '<S0'"),
        ("NMEMB: 3", "NMEMB: -3", "NMEMB: expected"),
        ("NMEMB: 3", "NMEMB: 3\nNMEMB: 4", "two values"),
        ("NMEMB: 3", "NMEMB: 0", "there can't be 11 rows of 0 items"),
        ("NMEMB: 3", "NMEMB: 9999999999999999999", "NMEMB: expected"),
        ("NMEMB: 3", "NMEMB: 999999999999999999", "expected rows of at most"),
        ("NFILE: 2", "NFILE: 3", "NFILE is 3, found 2"),
        ("NFILE: 2", "NFILE: 999999999999", "found 2 data files"),
        ("000001", "000002", "no line for data file 000001"),
        ("000001", "000000", "named twice"),
        ("5 : 1408 : 1408", "5 : 1408", "found 1 data file"),
        (": 6 :", ": 9223372036854775807 :", "there can't be"),
        ("51000000", "4294967296", "32 bits"),
    ],
)
def test_damaged_headers(old, new, message):
    assert old in HEADER
    with pytest.raises(FormatError, match=message):
        decoded(HEADER.replace(old, new))


def test_blank_lines_take_no_memory():
    blank = b" \n" * 2**21
    tracemalloc.start()
    try:
        assert {} == attributes.decode(blank)
        assert [] == header.decode_unwritten(header.UNWRITTEN_TITLE + blank, b"", 1)
        assert 11 == decoded(HEADER.replace("\n", "\n" + blank.decode(), 1)).size
        assert tracemalloc.get_traced_memory()[1] < 8 * len(blank)
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=300))
def test_any_header_is_read_or_refused(data):
    with suppress(FormatError):
        header.decode(data)


@given(st.binary(max_size=300))
def test_any_attributes_are_read_or_refused(data):
    for decode in (attributes.decode, attributes.decode_legacy):
        with suppress(FormatError):
            for attribute in decode(data).values():
                attributes.value_of(attribute)


# Attributes


@pytest.mark.parametrize(
    "value",
    [[], np.zeros((0, 3)), object(), None, {}, [[1], [2, 3]], np.zeros(1, "M8[2D]")],
)
def test_attributes_that_are_refused(value):
    with pytest.raises(UsageError):
        attributes.attribute_of("name", value)


@pytest.mark.parametrize("name", ["", "a b", "a\tb", "a\nb", "\0"])
def test_names_that_are_refused(name):
    with pytest.raises(UsageError, match="name of an attribute"):
        attributes.encoded_name(name)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"a", "line 1: expected name"),
        (b"a <i4 1 00", "in 4 bytes, found 1"),
        (b"a <i4 9999999999999999999 00", "expected a count"),
        (b"a <i4 999999999999999999 00", "found 1"),
        (b"a <i4 -1 00", "expected a count"),
        (b"a <q4 1 00000000", "expected a type"),
        (b"a <S0 1 00", "expected a type"),
        (b"a <i4 1 0000000G", "not hexadecimal"),
    ],
)
def test_damaged_attributes(line, message):
    with pytest.raises(DamageError, match=message):
        attributes.decode(line + b" #HUMANE [ ]\n" if b"<" in line else line)


@pytest.mark.parametrize(
    "text",
    [
        b"a <i4 1 01000000 #HUMANE [ 1 ]",
        b"  a\t<i4  1 01000000\n",
        b"a =i4 1 01000000 \r\n",
        b"a i4 1 01000000 x\n",
        b"\na <i4 1 01000000 x\n\n",
    ],
)
def test_attributes_that_the_original_accepts(text):
    assert [1] == attributes.value_of(attributes.decode(text)[b"a"]).tolist()
