"""The entry for file(1) and the MIME type: both are shipped and know every version."""

from __future__ import annotations

import re
import shutil
import subprocess
from xml.etree import ElementTree

import pytest
from support import BLP, DOCS, TESTS, golden_files

from bloscpack.checksums import CHECKSUM_NAMES

MAGIC = DOCS / "bloscpack.magic"
MIME = DOCS / "bloscpack-mime.xml"

needs_file = pytest.mark.skipif(
    shutil.which("file") is None, reason="file(1) is not installed"
)


def told(*arguments):
    """Return the lines that file(1) prints."""
    done = subprocess.run(
        ["file", "-b", "-m", str(MAGIC), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "" == done.stderr
    return done.stdout.splitlines()


@needs_file
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sound", ", version 3, 2 chunks of 32 bytes, adler32, with metadata"),
        ("layout-3-two-cln", ", version 3, unknown number of chunks, adler32"),
        (
            "layout-2-two-n",
            ", version 2, unknown number of chunks of 32 bytes, adler32",
        ),
        ("layout-1-stream", ", version 1, unknown number of chunks"),
        ("layout-1-258-chunks", ", version 1, 258 chunks"),
        ("layout-0-three", ", version 0, 3 chunks"),
    ],
)
def test_what_file_tells(name, expected):
    (line,) = told(TESTS / "valid" / (name + ".blp"))
    assert "Bloscpack compressed data" + expected == line


@needs_file
def test_file_tells_version_and_chunks_of_golden_files():
    entries = [entry for entry in golden_files() if "header" in entry]
    lines = told(*(BLP / entry["file"] for entry in entries))
    for entry, line in zip(entries, lines, strict=True):
        expected = ", version %d, %d chunks" % (
            entry["format_version"],
            entry["header"]["nchunks"],
        )
        assert expected in line, entry["file"]


def test_every_checksum_has_a_line():
    lines = re.findall(r"^>>>6\tubyte\t(\d+)\t\\b, (\w+)$", MAGIC.read_text(), re.M)
    expected = [(str(i), name) for i, name in enumerate(CHECKSUM_NAMES) if i]
    assert expected == lines, "docs/bloscpack.magic needs a line for each checksum"


@needs_file
def test_other_files_are_not_named():
    assert ["data"] == told(TESTS / "invalid" / "magic.blp")


@needs_file
def test_mime_type_of_both_entries():
    (found,) = told("--mime-type", TESTS / "valid" / "sound.blp")
    text = MIME.read_text("utf-8")
    root = ElementTree.fromstring(text)
    (declared,) = (child for child in root if child.tag.endswith("mime-type"))
    assert declared.get("type") == found
    assert found in (DOCS / "format.rst").read_text("utf-8")
    assert re.findall('value="(.*)"', text) == ["blpk"]
