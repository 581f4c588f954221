"""What is shown of metadata, however many there are."""

import pprint

import pytest

from bloscpack._cli import quick_answers as commands
from bloscpack._cli.console import console


@pytest.fixture
def shown(capsys):
    """Return a function that shows metadata and returns the lines below the title."""
    console.begin(owns_streams=False)

    def show(metadata, *size):
        commands.log_metadata(metadata, *size)
        title, *lines = capsys.readouterr().out.splitlines()
        assert "blpk: Metadata:" == title
        return [line.removeprefix("blpk: ") for line in lines]

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


@pytest.mark.parametrize(
    ("told", "size"),
    [
        ("This is the beginning; 'blpk metadata FILE' shows all.", ()),
        ("This is the beginning of 99 bytes; 'blpk metadata FILE' shows all.", (99,)),
    ],
)
def test_of_very_many_the_first_part(shown, told, size):
    metadata = {"key %06d" % i: i for i in range(20_000)}
    *first, last = shown(metadata, *size)
    assert [repr(metadata)[: commands.MOST_SHOWN] + "..."] == first
    assert told == last


def test_what_is_not_shown_is_not_looked_at(shown):
    class Unseen(str):
        def __repr__(self):
            raise AssertionError

    assert 2 == len(shown(["x" * 1000] * 100 + [Unseen("y")]))
