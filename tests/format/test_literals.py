"""The parser of Python literals."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bloscpack._format.dtypes import parse_literal
from bloscpack.constants import MAX_LITERAL_NESTING

# Literals that Python 3 reads as the parser does.
SAME = [
    "0",
    "17",
    "True",
    "False",
    "''",
    "'text'",
    '"it\'s"',
    "u'text'",
    r"'\\ \' \" \n \r \t \a \b \f \v \xf6 \u20ac \U0001f600'",
    "'€ \\x41 \\u20ac'",
    "()",
    "(1)",
    "(1,)",
    "((('a')))",
    "(1, 'b')",
    "(1, 'b',)",
    "[]",
    "[[], [()], ]",
    "[('a', '<i4', (2, 3)), (('title', 'b'), [('c', '|u1')])]",
    "{}",
    "{'a': 1, 'b': (2,), }",
    "{(1, 2): {'x': [True]}}",
    " \t\n[ 1 ,\n\f2\r\n] \n",
    "9" * 19,
]


@pytest.mark.parametrize("text", SAME)
def test_value_is_that_of_python(text):
    expected = ast.literal_eval(text.strip())
    found = parse_literal(text)
    assert (expected, type(expected)) == (found, type(found))


@pytest.mark.parametrize(
    ("expected", "text"),
    [(2, "2L"), ((2, 0), "(2L, 0L)"), (["a"], "[U'a']"), ({"a": 3}, "{u'a': 3L}")],
)
def test_value_of_python_2(expected, text):
    assert expected == parse_literal(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "None",
        "name",
        "Truely",
        "TrueFalse",
        "-1",
        "+1",
        "1.5",
        "1j",
        "1_000",
        "0x10",
        "007",
        "9" * 20,
        "2LL",
        "2 L",
        "1 2",
        "1,",
        "1, 2",
        "'a' 'b'",
        "b'a'",
        "f'a'",
        "r'a'",
        "'''a'''",
        "'a",
        "a'",
        "'\n'",
        "'\\\n'",
        "'\0'",
        r"'\d'",
        r"'\N{DIGIT ONE}'",
        r"'\777'",
        r"'\xf'",
        r"'\u20a'",
        r"'\U00110000'",
        "[",
        "]",
        "[)",
        "(]",
        "{)",
        "[1",
        "[1]]",
        "[,]",
        "(,)",
        "{,}",
        "[1,,]",
        "[1 2]",
        "[1: 2]",
        "(1: 2)",
        "{1}",
        "{1, 2}",
        "{1: 2: 3}",
        "{1: }",
        "{1:}",
        "{: 1}",
        "{1: 2, 3}",
        "{[]: 1}",
        "{{}: 1}",
        "{**{}}",
        "[*()]",
        "()()",
        "[0][0]",
        "''()",
        "().a",
        "1 + 1",
        "not 1",
        "# comment",
        "[1] # comment",
        "[x for x in ()]",
        "__import__('os')",
        "\u00a0[]",
        "[\u00a0]",
    ],
)
def test_what_is_refused(text):
    with pytest.raises(ValueError, match=r"expected|not a dictionary|can't decode"):
        parse_literal(text)


def test_nesting_is_limited():
    most = MAX_LITERAL_NESTING
    value = parse_literal("[" * most + "]" * most)
    for _ in range(most - 1):
        (value,) = value
    assert [] == value
    with pytest.raises(ValueError, match="more than '200' open brackets"):
        parse_literal("[" * (most + 1) + "]" * (most + 1))


def test_brackets_side_by_side_are_not_nesting():
    assert [[]] * 1000 == parse_literal("[%s]" % ("[]," * 1000))


def test_length_is_limited():
    assert 2**20 - 2 == len(parse_literal("'%s'" % ("x" * (2**20 - 2))))
    with pytest.raises(ValueError, match="longer than '1048576' characters"):
        parse_literal("'%s'" % ("x" * (2**20 - 1)))


literals = st.recursive(
    st.booleans() | st.integers(0, 10**19 - 1) | st.text(),
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(st.text() | st.integers(0, 9), inner),
    ),
    max_leaves=20,
)


@pytest.mark.full
@given(literals)
@settings(max_examples=30)
def test_every_repr_is_read(value):
    assert repr(value) == repr(parse_literal(repr(value)))


@given(st.text("'\"[](){},:uUL01Tru\\xn \t", max_size=12))
def test_any_text_is_refused_or_means_the_same_to_python(text):
    try:
        value = parse_literal(text)
    except ValueError:
        return
    if "L" not in text:
        assert value == ast.literal_eval(text.strip())
