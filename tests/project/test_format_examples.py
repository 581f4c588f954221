"""The examples of the format: the page shows what the package writes and reads."""

from __future__ import annotations

import blosc
import pytest
from format.agreement import read_here
from project import format_examples
from support import DOCS
from valid.make_datasets import write_files

from bloscpack.verify import verify

EXAMPLES = format_examples.examples()
SHOWN = {
    place: content
    for place, content, _ in format_examples.blocks(
        (DOCS / "format-examples.rst").read_text("utf-8")
    )
}
CONTENT = {
    "file": {"bytes": b"abcd" * 8 + b"xyz!" * 2, "metadata": {"unit": "m"}},
    "shard": {"items": bytes(range(5))},
    "undo": {"bytes": b"abcd" * 8 + b"xyz!" * 2, "metadata": {"unit": "m"}},
    "zarr-array": {"items": b"\0\1\2"},
    "superchunk-array": {"items": b"\0\1\2"},
}


def content_of(place):
    example, name = place
    content = SHOWN[place]
    if EXAMPLES[example][name][:1] in b"{":
        return format_examples.document_of(content, EXAMPLES[example][name])
    left_out = {"undo": EXAMPLES["file"]["text.blp"]}
    base = left_out.get(example, EXAMPLES[example][name])
    return format_examples.rebuilt(content, base)


@pytest.mark.skipif(
    not blosc.__version__.startswith("1.11."), reason="another Blosc writes other bytes"
)
@pytest.mark.parametrize("place", SHOWN, ids=" ".join)
def test_what_the_package_writes(place):
    example, name = place
    assert SHOWN[place] == format_examples.shown(name, EXAMPLES[example][name])
    assert EXAMPLES[example][name] == content_of(place)


@pytest.mark.parametrize("example", EXAMPLES)
def test_what_is_shown_can_be_read(example, tmp_path):
    """Files as the page shows them take the place of those that were written."""
    shown = {name: content_of((e, name)) for e, name in SHOWN if e == example}
    files = {**EXAMPLES[example], **shown}
    assert shown
    path = tmp_path / "d"
    write_files(files, path)
    is_file = len(files) == 1
    found = read_here(path / min(files) if is_file else path)
    if not is_file:
        assert [] == [f for f in verify(path).findings if f.kind != "change"]
    for key, value in CONTENT.get(example, {}).items():
        assert value == found[key]
