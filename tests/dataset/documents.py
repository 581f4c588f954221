"""Documents with a right digest, computed without the library (docs/format.rst)."""

from __future__ import annotations

import json
import pathlib
import re
from zlib import crc32

VALUE = re.compile(rb"id=[0-9a-f]{16}(?: [a-z]+=[0-9a-f]+)* crc32=([0-9a-f]{8})")
KEY = "bloscpack-id"


def signed(value):
    """Return the text of a document with its right digest."""
    text = json.dumps(value).encode()
    return signed_again(text) if VALUE.search(text) else text


def write(path, value):
    path.write_bytes(signed(value))


def is_signed(text):
    """Return whether a document has an identity and the right digest."""
    return b"crc32=" in text and signed_again(text) == text


def signed_again(text):
    found = list(VALUE.finditer(text))[-1]
    start, stop = found.span(1)
    digest = b"%08x" % crc32(text[:start] + b"00000000" + text[stop:])
    return text[:start] + digest + text[stop:]


def read(path):
    """Return a document without its identity."""
    value = json.loads(path.read_text())
    value.pop("bloscpack", None)
    for holder in (value, *value.values()):
        if isinstance(holder, dict):
            holder.pop(KEY, None)
    return value


def assert_encoded_whole(folder):
    """Compare the documents in a local folder with a full encoding of their values.

    The names of copies are sorted level by level.
    """
    for path in pathlib.Path(folder).rglob("zarr.json"):
        text = path.read_bytes()
        if not is_signed(text):
            continue
        value = json.loads(text)
        copies = (value.get("consolidated_metadata") or {}).get("metadata") or {}
        names = sorted(copies, key=lambda name: (name.count("/"), name))
        if copies:
            sorted_copies = {name: copies[name] for name in names}
            value["consolidated_metadata"]["metadata"] = sorted_copies
        assert json.dumps(value, indent=2).encode() + b"\n" == text
