"""Writes the tables of docs/format-examples.rst: the bytes of small files, explained.

``python tests/project/format_examples.py`` makes each file with the package, and
replaces the tables of the page. A line has a position, bytes, and what they are; text
is in quotes, and ``00 x 16`` stands for 16 equal bytes. `rebuilt` undoes a table, and
`document_of` the compact form of a document.
"""

from __future__ import annotations

import ast
import io
import json
import re
import struct
import sys
import textwrap
from pathlib import Path

import numpy as np

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))

from format.independent_reader import digest_of  # noqa: E402
from format.undo_records import states  # noqa: E402
from valid.make_datasets import fixed, made, pending  # noqa: E402

import bloscpack as bp  # noqa: E402
from bloscpack import dataset  # noqa: E402
from bloscpack.append import append_fp  # noqa: E402

PAGE = TESTS.parent / "docs" / "format-examples.rst"
# Codes of `struct` and names of the fields of each record, as docs/format.rst has them.
HEADER = """4s magic, B version, B options, B checksum, B typesize, i chunk_size,
    i last_chunk, q nchunks, q max_app_chunks"""
METADATA = """8s magic_format, B meta_options, B meta_checksum, B meta_codec,
    B meta_level, I meta_size, I max_meta_size, I meta_comp_size, 8s user_codec"""
CHUNK = """B version, B versionlz, B flags, B typesize, I nbytes, I blocksize,
    I ctbytes"""
LOCAL = """4s signature, H version, H flags, H method, H time, H date, I crc32,
    I stored, I size, H name, H extra"""
ENTRY = """4s signature, H made by, H version, H flags, H method, H time, H date,
    I crc32, I stored, I size, H name, H extra, H comment, H disk, H internal,
    I external, I offset"""
END = """4s signature, H disk, H directory disk, H entries here, H entries,
    I directory size, I directory offset, H comment"""
UNDO = "8s magic, q old length, q extents"
ACROSS = 16


class Table:
    """Takes the bytes of a file in order, and explains them line by line."""

    def __init__(self, data):
        self.data = data
        self.at = 0
        self.lines = []

    def _line(self, size, shown, meaning):
        line = "%-5d %-35s  %s" % (self.at, shown, meaning)
        self.lines.append(line.rstrip())
        self.at += size

    def section(self, name):
        self.lines.append(name)

    def record(self, fields):
        """Take a record, in lines of up to 16 bytes; return its values by name."""
        values, line, size = {}, [], 0
        for field in re.split(r",\s+", fields):
            code, _, name = field.partition(" ")
            width = struct.calcsize("<" + code)
            if size + width > ACROSS:
                self._line(size, self._hex(size), ", ".join(line))
                line, size = [], 0
            (value,) = struct.unpack_from("<" + code, self.data, self.at + size)
            size += width
            text = repr(value.rstrip(b"\0"))[1:] if type(value) is bytes else value
            line.append("%s %s" % (name, "-1" if value == 2**64 - 1 else text))
            values[name] = value
        self._line(size, self._hex(size), ", ".join(line))
        return values

    def _hex(self, size):
        return self.data[self.at : self.at + size].hex(" ", -4)

    def raw(self, size, meaning):
        """Take bytes; equal ones are counted."""
        part = self.data[self.at : self.at + size]
        if size > ACROSS and len(set(part)) == 1:
            self._line(size, "%02x x %d" % (part[0], size), meaning)
            return
        for start in range(0, size, ACROSS):
            width = min(ACROSS, size - start)
            self._line(width, self._hex(width), meaning)

    def text(self, size, meaning):
        """Take text in ASCII."""
        stop = self.at + size
        while self.at < stop:
            piece = self.data[self.at : min(self.at + 60, stop)]
            size = piece.find(b"\n") + 1 or len(piece)
            self._line(size, repr(piece[:size].decode("ascii")), meaning)

    def digest(self, checksum):
        self.raw(len(digest_of(checksum, b"")), "digest")

    # Files

    def file(self):
        """Take a file of layout 3."""
        end = len(self.data)
        header = self.sections()
        checksum = header["checksum"]
        nchunks, free = header["nchunks"], header["max_app_chunks"]
        if self.at < end:
            self.section("trailer")
            self.record("8s separator")
            if self.at + 16 * (nchunks + free) + 4 < end:
                self.frame(checksum)
            for number in range(nchunks + free):
                self.record("Q entry %d: offset, Q size" % number)
            self.raw(4, "crc32c")

    def sections(self):
        """Take header, metadata, offsets and chunks; return the header."""
        header = self.record(HEADER)
        if header["options"] & 2:
            self.section("metadata")
            found = self.record(METADATA)
            self.text(found["meta_comp_size"], "")
            self.raw(found["max_meta_size"] - found["meta_comp_size"], "room")
            self.digest(found["meta_checksum"])
        nchunks, free = header["nchunks"], header["max_app_chunks"]
        if header["options"] & 1:
            self.section("offsets")
            for number in range(nchunks):
                self.record("q chunk %d" % number)
            self.raw(8 * free, "free: -1")
        for number in range(nchunks):
            self.section("chunk %d" % number)
            self.frame(header["checksum"])
        return header

    def frame(self, checksum):
        self.raw(self.record(CHUNK)["ctbytes"] - 16, "plain bytes")
        self.digest(checksum)

    def archive(self):
        while self.data.startswith(b"PK\3\4", self.at):
            self.section("member")
            size = self.record(LOCAL)["name"]
            name = self.data[self.at : self.at + size]
            self.text(size, "")
            size = self.record("H extra, H length, Q size, Q stored")["size"]
            if b"/" in name:  # a shard and its document are left out
                self.at += size
            else:
                self.text(size, "")
        while self.data.startswith(b"PK\1\2", self.at):
            self.section("entry of the directory")
            self.text(self.record(ENTRY)["name"], "")
        self.section("end record")
        self.record(END)

    def changed(self):
        """Take a file of layout 3 in which a change was interrupted.

        Lines with the bytes of the file `plain` are left out.
        """
        size = struct.unpack_from("<q", self.data, len(self.data) - 48)[0]
        at = len(self.data) - 48 - size
        self.record(HEADER)
        self.at = len(plain()) - 28
        self.section("chunk 1")
        self.frame(1)
        self.section("undo record")
        self.raw(at - self.at, "zero bytes")
        count = self.record(UNDO)["extents"]
        extents = [self.record("q start, q length") for _ in range(count)]
        for number, extent in enumerate(extents):
            self.raw(extent["length"], "old bytes of extent %d" % number)
        self.record("q length of the record")
        self.raw(32, "BLAKE2b")
        self.record("8s magic")


def table(data, take):
    """Return the table of a file; `take` is the method for files of its kind."""
    found = Table(data)
    take(found)
    assert found.at == len(data)
    return "\n".join(found.lines)


def rebuilt(text, base=b""):
    """Return the bytes that a table shows, after a look at its positions.

    Bytes that it leaves out are those of `base`.
    """
    data = b""
    pattern = r"(\d+) +('.*?[^\\]'|\w\w x \d+|[0-9a-f]+(?: [0-9a-f]+)*)(?:  |$)"
    shown = re.compile(pattern)
    for line in text.splitlines():
        found = shown.match(line.strip())
        if found is None:
            assert not line.strip()[:1].isdigit(), line
            continue
        data += base[len(data) : int(found[1])]
        assert len(data) == int(found[1]), line
        byte, _, count = found[2].partition(" x ")
        if byte[0] == "'":
            data += ast.literal_eval(byte).encode("ascii")
        else:
            data += bytes.fromhex(byte) * int(count or 1)
    return data


# The examples


def array(*shape, **options):
    """Return an array of bytes as a file, with metadata that zlib has not seen."""
    items = np.arange(np.prod(shape), dtype="u1").reshape(shape)
    room = bp.MetadataArgs(max_meta_size=100)
    with fixed():
        return bp.pack_ndarray_to_bytes(items, metadata_args=room, **options)


def small(make, items, **options):
    """Return a dataset in chunks of two rows and files of four."""
    options = {"chunks": 2, "shards": 4, **options}
    return made(lambda path: make(path, items, **options).close())


def group(path):
    with dataset.create_group(path) as opened:
        opened.create_array("in/a", ROWS, chunks=2, shards=4)


def archive():
    file = io.BytesIO()
    with fixed():
        bp.savez(file, x=ROWS)
    return file.getvalue()


def changed():
    """Return a file of which an append has overwritten all but the options."""
    before, more = plain(), b"XYZ!"
    file = io.BytesIO(before)
    append_fp(file, io.BytesIO(more), len(more), nthreads=1)
    after = file.getvalue()
    last = 16 + 8 + 4  # bytes of the last chunk and its digest
    return states(before, after, [(0, 32), (len(before) - last, last)])[2]


def plain():
    return bp.pack_bytes_to_bytes(
        b"abcd" * 8 + b"xyz!" * 2,
        chunk_size=32,
        metadata={"unit": "m"},
        blosc_args=bp.BloscArgs(typesize=4),
        bloscpack_args=bp.BloscpackArgs(max_app_chunks=1),
        metadata_args=bp.MetadataArgs(max_meta_size=16),
    )


ROWS = np.arange(3, dtype="u1")
COLUMNS = {"x": ROWS}


def examples():
    """Return the files of each example by name; the page shows some of them."""
    shard = array(5, chunk_size=3, shard=True, max_app_chunks=1)
    return {
        "file": {"text.blp": plain()},
        "shard": {"shard.blp": shard},
        "archive": {"arrays.zip": archive()},
        "zarr-array": small(dataset.create_array, ROWS),
        "zarr-table": small(dataset.create_table, COLUMNS),
        "zarr-group": made(group),
        "superchunk-array": small(dataset.create_array, ROWS, layout="superchunk"),
        "superchunk-table": small(dataset.create_table, COLUMNS, layout="superchunk"),
        "undo": {"changed.blp": changed()},
        "pending": pending(),
    }


def shown(name, content):
    """Return what the page shows of a file."""
    if name == "changed.blp":
        return table(content, Table.changed)
    if content[:4] == b"blpk":
        return table(content, Table.file)
    if content[:4] == b"PK\3\4":
        return table(content, Table.archive)
    text = json.dumps(json.loads(content), separators=(",", ":"))
    assert document_of(text, content) == content
    words = text.replace(" ", "\0").replace(",", ", ")
    lines = textwrap.wrap(words, 110, break_on_hyphens=False, break_long_words=False)
    return "\n".join(lines).replace(", ", ",").replace("\0", " ")


def document_of(text, content):
    """Return the bytes of a document that is shown, in the form that `content` has."""
    value = json.loads(text)
    if content.startswith(b"{\n"):
        return json.dumps(value, indent=2).encode() + b"\n"
    return json.dumps(value).encode() + content[len(content.rstrip()) :]


def blocks(text):
    """Yield the blocks of a page: example and file, content, and their extent."""
    pattern = r"   :name: example ([\w-]+) (\S+)\n\n((?:    .*\n|\n)+?)(?=\n*(?:\S|\Z))"
    for found in re.finditer(pattern, text):
        lines = [line[4:] for line in found[3].rstrip("\n").split("\n")]
        yield (found[1], found[2]), "\n".join(lines), found.span(3)


def main() -> None:
    """Write the blocks of the page again."""
    text, files = PAGE.read_text("utf-8"), examples()
    for (example, name), _, (start, stop) in reversed([*blocks(text)]):
        lines = shown(name, files[example][name]).split("\n")
        indented = "".join("    %s\n" % line if line else "\n" for line in lines)
        text = text[:start] + indented + text[stop:]
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
