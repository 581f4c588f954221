"""How values are shown, and how sizes are read."""

import pytest

from bloscpack._cli import args

SIZES = [
    # (bytes, text)
    (0, "0"),
    (12345, "12345"),
    (1000, "1_000"),
    (7, "7B"),
    (8192, "8K"),
    (8192, "8k"),
    (8192, " 8K"),
    (1572864, "1.5m"),
    (1572864, "1.5MB"),
    (1572864, "1.5MiB"),
    (1572864, "1.5mib"),
    (2048, "2 KB"),
    (7, "7b"),
    (-1024, "-1K"),
    (2**40, "1T"),
]


@pytest.mark.parametrize(("size", "text"), SIZES)
def test_parse_size(size, text):
    assert size == args.parse_size(text)


@pytest.mark.parametrize(
    "text",
    ["", "K", "x", "1Q", "1iB", "1BB", "1KBB", "1Ki", "1KM", "1e3", "0x10", "infK"],
)
def test_what_is_no_size(text):
    with pytest.raises(
        ValueError, match="T like 1.5M, 1.5MB or 1.5MiB, found '%s'" % text
    ):
        args.parse_size(text)
