"""Sizes as people write them, in both directions."""

import pytest

from bloscpack import pretty
from bloscpack.exceptions import UsageError


@pytest.mark.parametrize(
    ("expected", "size"),
    [
        ("0B", 0),
        ("1.0B", 1),
        ("512.0B", 512),
        ("1023.0B", 1023),
        ("1.0K", 1024),
        ("1.0K", 1025),
        ("1.5K", 1536),
        ("23.44K", 24000),
        ("1024.0K", 2**20 - 1),
        ("1.0M", 2**20),
        ("1.0G", 2**30),
        ("1.0T", 2**40),
        ("1.5T", 3 * 2**39),
        ("1024.0T", 2**50),
        (None, -1),
    ],
)
def test_pretty_size(expected, size):
    assert expected == pretty.pretty_size(size)
    assert "%s (%dB)" % (expected, size) == pretty.double_pretty_size(size)


@pytest.mark.parametrize(
    ("expected", "readable"),
    [
        (0, "0B"),
        (8, "8B"),
        (8192, "8K"),
        (8192, " 8K"),
        (1536, "1.5K"),
        (1, "1.9B"),
        (1000, "1e3B"),
        (2**20, "1M"),
        (2 * 2**30, "2G"),
        (3 * 2**40, "3T"),
        (-1024, "-1K"),
    ],
)
def test_reverse_pretty(expected, readable):
    assert expected == pretty.reverse_pretty(readable)


@pytest.mark.parametrize(
    ("message", "readable"),
    [
        ("'8' is not a valid prefix multiplier, use one of: 'B, K, M, G, T'", "8"),
        ("'k' is not a valid prefix multiplier, use one of: 'B, K, M, G, T'", "8k"),
        ("'X' is not a valid prefix multiplier, use one of: 'B, K, M, G, T'", "8X"),
        ("'' is not a valid prefix multiplier, use one of: 'B, K, M, G, T'", ""),
        ("could not convert string to float: ''", "K"),
        ("could not convert string to float: 'x'", "xK"),
        ("cannot convert float infinity to integer", "infK"),
        ("cannot convert float NaN to integer", "nanK"),
    ],
)
def test_reverse_pretty_refuses(message, readable):
    with pytest.raises(UsageError) as raised:
        pretty.reverse_pretty(readable)
    assert message == str(raised.value)
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize(
    ("expected", "items"), [("\n", []), ("a\n", ["a"]), ("a, b\n", ["a", "b"])]
)
def test_join_with_eol(expected, items):
    assert expected == pretty.join_with_eol(items)


def test_names_of_siblings():
    from bloscpack import constants

    assert constants.SUFFIXES is pretty.SUFFIXES
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        pretty.nothing  # noqa: B018
