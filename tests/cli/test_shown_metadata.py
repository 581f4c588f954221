"""What is shown of metadata, however many there are."""

import pprint

import pytest

from bloscpack.cli import log_metadata


@pytest.fixture
def shown(capsys):
    """Return a function that shows metadata and returns the lines below the title."""

    def show(metadata):
        log_metadata(metadata)
        title, *lines = capsys.readouterr().out.splitlines()
        assert "bloscpack.py: Metadata:" == title
        return [line.removeprefix("bloscpack.py: ") for line in lines]

    return show


VALUES = [
    # (the line, metadata)
    ("{}", {}),
    ("[]", []),
    ("None", None),
    ("'a'", "a"),
    (
        "{'a': [1, {}], 'b': {'c': None, 'd': []}}",
        {"b": {"d": [], "c": None}, "a": [1, {}]},
    ),
    ("[[], [1.5, True], '']", [[], [1.5, True], ""]),
]


@pytest.mark.parametrize(("line", "metadata"), VALUES)
def test_short(shown, line, metadata):
    assert [line] == shown(metadata)


def test_long(shown):
    metadata = {"key %d" % i: list(range(i)) for i in range(50)}
    assert pprint.pformat(metadata, width=90).splitlines() == shown(metadata)


def test_of_very_many_the_first_part(shown):
    metadata = {"key %06d" % i: i for i in range(20_000)}
    *first, last = shown(metadata)
    assert repr(metadata).startswith(first[0].removesuffix("..."))
    assert "This is the beginning; 'blpk metadata FILE' shows all." == last
