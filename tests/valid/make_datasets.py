"""Writes valid archives and datasets: folders and files of all layouts, small ones.

``python tests/valid/make_datasets.py`` writes them and their manifest again, byte for
byte: chunks are copies, and identities and times are fixed. `SAMPLES` has, by name, the
rules of docs/format.rst that a sample is about, and the function that makes its files.
Those of `OLD` stay as they are.
"""

from __future__ import annotations

import copy
import io
import itertools
import json
import shutil
import struct
import sys
import tempfile
import zipfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest import mock
from zlib import crc32

import numpy as np

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

from dataset import documents  # noqa: E402
from format.independent_reader import crc32c  # noqa: E402
from format.undo_records import states  # noqa: E402
from fuzz.parts import take_apart  # noqa: E402

import bloscpack as bp  # noqa: E402
from bloscpack import dataset  # noqa: E402
from bloscpack._commit import tree  # noqa: E402
from bloscpack.metacodecs import CODECS_LOOKUP  # noqa: E402

OPTIONS = {"chunks": 4, "shards": 8, "clevel": 0}
NUMBERS = np.arange(20, dtype="i4")
FIELDS = np.zeros(6, [("x", "<i4"), ("p", [("u", ">f4", (2,))])])
FIELDS["x"] = FIELDS["p"]["u"][:, 1] = np.arange(6)


# The files of a sample, by name


def files_of(path):
    """Return the content of all files in a folder, or of a file."""
    if path.is_file():
        return {path.name: path.read_bytes()}
    return {
        str(each.relative_to(path)): each.read_bytes()
        for each in sorted(path.rglob("*"))
        if each.is_file()
    }


def write_files(files, path):
    """Write files to a folder."""
    path.mkdir()
    for name, content in files.items():
        place = path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


@contextmanager
def fixed():
    """Let identities be 1, 2, 3 …, and metadata be stored without zlib."""
    numbers = itertools.count(1)
    tree._decode_short.cache_clear()  # a document that is kept needs fewer of them
    with (
        mock.patch("os.urandom", lambda size: next(numbers).to_bytes(size, "big")),
        mock.patch.object(CODECS_LOOKUP["zlib"], "compress", lambda text, _: text * 2),
    ):
        yield


def made(write, name="sample"):
    """Return the files that a function writes to a path; see `fixed`."""
    with tempfile.TemporaryDirectory() as folder, fixed():
        path = Path(folder) / name
        write(path)
        return files_of(path)


def array(items, **options):
    """Return the files of an array in the layout zarr, or another one."""
    settings = {**OPTIONS, "attrs": {"unit": "m"}, **options}
    return made(lambda path: dataset.create_array(path, items, **settings).close())


def table(**options):
    columns = {"x": np.arange(6, dtype="i2"), "y": np.arange(12.0).reshape(6, 2)}
    settings = {**OPTIONS, "attrs": {"a": 1}, **options}
    return made(lambda path: dataset.create_table(path, columns, **settings).close())


def _group(path):
    with dataset.create_group(path, attrs={"a": 1}) as group:
        group.create_array("a", np.arange(5, dtype="u1"), **OPTIONS)
        columns = {"x": np.arange(3, dtype="u1")}
        group.create_table("in/t", columns, **OPTIONS)


def group():
    return made(_group)


def copies_not_sorted():
    """Return a group whose members have copies in the order in which they were made."""

    def write(path):
        with dataset.create_group(path) as group, group.change():
            for name in ("b", "a"):
                group.create_group(name)
        with dataset.open(path, "r+") as group:
            for name in ("b/t", "a/t", "a/new"):
                group.create_array(name, np.arange(3, dtype="u1"), **OPTIONS)

    def unsort(document):
        copies = copies_in(document)
        names = ("b", "a", "a/t", "b/t", "a/new")
        document["consolidated_metadata"]["metadata"] = {n: copies[n] for n in names}

    return edited(made(write), "zarr.json", unsort)


def united(**columns):
    """Return a group that commits its members: ``a`` with ``t``, and a table."""

    def write(path):
        with dataset.create_group(path) as opened, opened.change():
            opened.create_group("a")
        with dataset.open(path, "r+") as opened:
            opened.create_array("a/t", NUMBERS[:3].astype("u1"), **OPTIONS)
            opened.create_table("b", {"x": NUMBERS[:3]}, **OPTIONS)

    return made(write)


def inside(files, name):
    """Return the files in a folder of a sample."""
    return {n[len(name) + 1 :]: files[n] for n in files if n.startswith(name + "/")}


def resized():
    def write(path):
        shape = {"shape": 20, "dtype": "i4", "fill_value": 7}
        with dataset.create_array(path, **shape, **OPTIONS) as opened:
            opened[:] = NUMBERS
            opened.resize(40)
            opened[36:] = 1

    return made(write)


def superchunk(items=NUMBERS, **options):
    return array(items, layout="superchunk", **options)


# Changes of files


def edited(files, name, change, *, sign=True):
    """Return files of which a document has been changed, and signed again."""
    value = json.loads(files[name])
    found = change(value)
    text = json.dumps(value if found is None else found).encode()
    if sign and documents.VALUE.search(text):
        text = documents.signed_again(text)
    return {**files, name: text}


def with_keys(files, name, *path, **changes):
    """Return files with other values of keys in a document; None removes a key."""

    def change(value):
        for part in path:
            value = value[part]
        for key, new in changes.items():
            value.pop(key, None)
            if new is not REMOVED:
                value[key] = new

    return edited(files, name, change)


REMOVED = object()


def unsigned(files, name="zarr.json"):
    """Return files as another program writes them: without an identity."""

    def change(value):
        value.pop("bloscpack", None)
        for key in ("attributes", "consolidated_metadata"):
            value.get(key, {}).pop(documents.KEY, None)

    return edited(files, name, change)


def with_member(files, name, change):
    """Return a table with another document of a column."""
    value = json.loads(files[name + "/zarr.json"])
    change(value)
    text = documents.signed_again(json.dumps(value, indent=2).encode() + b"\n")
    copy = {name: json.loads(text)}
    files = {**files, name + "/zarr.json": text}
    return edited(files, "zarr.json", lambda d: copies_in(d).update(copy))


def copies_in(document):
    return document["consolidated_metadata"]["metadata"]


def without(files, *names):
    return {
        name: content
        for name, content in files.items()
        if not any(name == each or name.startswith(each + "/") for each in names)
    }


def swapped(files, one, other):
    """Return files of which two have exchanged their places."""

    def place(name):
        for old, new in ((one, other), (other, one)):
            if name == old or name.startswith(old + "/"):
                return new + name[len(old) :]
        return name

    return {place(name): content for name, content in files.items()}


def patched(files, name, at, new):
    """Return files with other bytes at a position of one; negative from its end."""
    content = bytearray(files[name])
    at += len(content) * (at < 0)
    content[at : at + len(new)] = new
    return {**files, name: bytes(content)}


def index_at(files, name):
    """Return where the index of a shard of two chunks begins."""
    return len(files[name]) - 2 * 16 - 4


def with_entry(files, name, number, entry):
    """Return files with another entry in the index of a shard, and a right digest."""
    at = index_at(files, name) + 16 * number
    files = patched(files, name, at, entry)
    index = files[name][index_at(files, name) : -4]
    return patched(files, name, -4, struct.pack("<I", crc32c(index)))


def in_shard(files, name, change):
    """Return files with other metadata in a file of chunks, of the same length."""
    parts = take_apart(files[name])
    old = parts.stored
    value = json.loads(old)
    change(value)
    parts.stored = json.dumps(value, separators=(",", ":")).encode().ljust(len(old))
    return {**files, name: parts.join()}


# Archives


class Zip:
    """A ZIP file whose members and entries can be changed one by one.

    ``members`` has for each member its name, its bytes, and changes of numbers in its
    local header and in its entry.
    """

    LOCAL = "<4s5H3I2H"
    ENTRY = "<4s6H3I5H2I"

    def __init__(self, members):
        self.members = [
            {"name": name, "data": data, "local": {}, "entry": {}, "digest": True}
            for name, data in members.items()
        ]
        self.front = self.comment = b""
        self.end = {}
        self.zip64 = False

    def __getitem__(self, name):
        return next(member for member in self.members if member["name"] == name)

    def join(self):
        content, entries = self.front, b""
        for member in self.members:
            start = len(content) - len(self.front)
            name, data = member["name"].encode(), member["data"]
            local = {"method": 0, "flags": 0x800, "name": name, "crc": crc32(data)}
            local.update(size=len(data))
            entry = {**local, "offset": start, "stored": len(data), **member["entry"]}
            local.update(member["local"])
            more = local.get("more", b"")
            content += struct.pack(
                self.LOCAL, b"PK\3\4", 45, local["flags"], local["method"], 0, 33,
                local["crc"], local.get("stored", local["size"]), local["size"],
                len(local["name"]), len(more),
            ) + local["name"] + more + data  # fmt: skip
            digested = struct.pack(
                "<2HIQ", *(entry[k] for k in ("flags", "method", "crc", "size"))
            )
            digest = crc32(digested + entry["name"])
            extra = struct.pack("<2sHI", b"Bp", 4, digest)
            extra = extra * member["digest"] + entry.get("more", b"")
            entries += struct.pack(
                self.ENTRY, b"PK\1\2", 45, entry.get("needed", 45),
                entry["flags"], entry["method"], 0, 33,
                entry["crc"], entry["stored"], entry["size"], len(entry["name"]),
                len(extra), 0, entry.get("disk", 0), 0, 0, entry["offset"],
            ) + entry["name"] + extra  # fmt: skip
        count = len(self.members)
        start = len(content) - len(self.front)
        end = {"disk": 0, "count": count, "nbytes": len(entries), "start": start}
        end.update(self.end)
        numbers = [*[end["disk"]] * 2, *[end["count"]] * 2, end["nbytes"], end["start"]]
        content += entries
        if self.zip64:
            at = len(content) - len(self.front)
            content += struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, *numbers)
            content += struct.pack("<4sIQI", b"PK\6\7", 0, at, 1)
            numbers = [0, 0, *[0xFFFF] * 2, *[0xFFFFFFFF] * 2]
        size = len(self.comment)
        return (
            content + struct.pack("<4s4H2IH", b"PK\5\6", *numbers, size) + self.comment
        )


def archive(change=lambda zipped: None, listed=False, **more):
    """Return the file of an archive of two or more arrays after a change.

    If its members are not `listed`, the document of the group is in front, as other
    programs write it.
    """

    def write(path):
        arrays = {"x": np.arange(5, dtype="u1"), "in/y": NUMBERS.reshape(5, 4)}
        bp.savez(path, **arrays, **more)

    content = made(write, "sample.zip")["sample.zip"]
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        members = {name: opened.read(name) for name in opened.namelist()}
    if not listed:
        group = json.loads(members.pop("zarr.json"))
        del group["attributes"]["bloscpack-members"]
        content = json.dumps(group, indent=2).encode() + b"\n"
        members = {"zarr.json": content, **members}
    zipped = Zip(members)
    change(zipped)
    return {"sample.zip": zipped.join()}


def set_document(zipped, name, **changes):
    """Change values in a document of an archive."""
    value = json.loads(zipped[name]["data"])
    for key, new in changes.items():
        value[key] = new
    zipped[name]["data"] = json.dumps(value).encode()


# Commits


def with_list(files, listed, document="zarr.json", change=lambda stored: None):
    """Return files whose document lists files of a change."""
    digest = "%08x" % crc32(json.dumps(listed, sort_keys=True).encode())
    stored = {"files": listed, "crc32": digest}
    stored = change(stored) or stored

    def put(value):
        holder = value["attributes"] if "zarr_format" in value else value
        holder["bloscpack-pending"] = stored

    return edited(files, document, put)


def changed_by_others(files, name):
    """Change the attributes in a document as another program does."""
    return edited(files, name, lambda d: d["attributes"].update(unit="s"), sign=False)


def pending(more=(), *, applied=False, change=lambda stored: None):
    """Return an array that is being changed; a new file may have its name.

    `more` is more of the list.
    """
    old, new = array(NUMBERS), array(NUMBERS + 100)
    files = edited(old, "zarr.json", lambda d: d["attributes"].update(unit="s"))
    files["c/0" if applied else ".bloscpack/1f-0"] = new["c/0"]
    files[".bloscpack/1f-1"] = new["c/1"]
    listed = {"c/0": "1f-0", "c/1": "1f-1", "c/7": None, **dict(more)}
    return with_list(files, listed, change=change)


def shorter():
    """Return an array of which two of three files are being removed."""
    files = {**array(NUMBERS), "zarr.json": array(NUMBERS[:8])["zarr.json"]}
    return with_list(files, {"c/1": None, "c/2": None})


def pending_table():
    """Return a table with new files of both columns, and old documents in them."""
    new = made(
        lambda path: dataset.create_table(
            path, {"x": np.arange(6, dtype="i2") + 7, "y": np.ones((6, 2))}, **OPTIONS
        ).close()
    )
    old = {
        **table(),
        ".bloscpack/1f-0": new["x/c/0"],
        ".bloscpack/1f-1": new["y/c/0/0"],
    }
    files = with_member(old, "x", lambda d: d["attributes"].update(unit="s"))
    files = with_list(files, {"x/c/0": "1f-0", "y/c/0/0": "1f-1"})
    return {**files, "x/zarr.json": old["x/zarr.json"]}


def column_removed():
    """Return a table of which a column is being removed."""

    def change(document):
        document["attributes"]["column-order"] = ["x"]
        del copies_in(document)["y"]

    return with_list(edited(table(), "zarr.json", change), {"y/zarr.json": None})


def pending_superchunk():
    """Return superchunks of which one is replaced, and the attributes with it."""
    files, new = superchunk(), superchunk(NUMBERS + 100, attrs={"unit": "s"})
    names = {"data/__1__.bin": "1f-0", "meta/attributes": "1f-1"}
    files |= {".bloscpack/" + staged: new[name] for name, staged in names.items()}
    return with_list(files, names, "meta/sizes")


def superchunk_column_added():
    """Return a table in superchunks that is getting a column, which is in place."""

    def two(path):
        columns = {"x": np.arange(6, dtype="i2")}
        with dataset.create_table(
            path, columns, layout="superchunk", **OPTIONS
        ) as made:
            made.add_column("y", np.arange(6.0))

    def one(path):
        columns = {"x": np.arange(6, dtype="i2")}
        dataset.create_table(path, columns, layout="superchunk", **OPTIONS).close()

    new, files = made(two), made(one)
    names = {"meta/storage": "1f-0", "meta/columns": "1f-1"}
    staged = {".bloscpack/" + names[name]: new[name] for name in names}
    added = {name: new[name] for name in new if name.startswith("data/y")}
    return with_list({**files, **staged, **added}, names, "meta/sizes")


UNFINISHED = {
    "zarr_format": 3,
    "node_type": "group",
    "attributes": {"bloscpack-unfinished": "0" * 16},
}


# Arrays of other programs


def foreign(chunks):
    """Return an array of another program, which is not read, with these chunks."""
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [3, 4],
        "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 4]}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 9,
        "codecs": [{"name": "bytes"}],
    }
    return {"zarr.json": json.dumps(document).encode(), **chunks}


LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}


def other_chunks():
    return foreign({"c/0/0": bytes(8), "c/1/0": bytes(8)})


def of_ours_without_header():
    """Return a shard that begins with a chunk, as other programs write it."""
    return without_header(unsigned(array(np.arange(8, dtype="i4"))), "c/0", 2)


def without_header(files, name, count=1):
    """Return files of which a shard of full chunks has only these and its index."""
    shard = files[name]
    entries = [*struct.iter_unpack("<QQ", shard[-16 * count - 4 : -4])]
    content = b"".join(shard[start : start + size] for start, size in entries)
    ends = itertools.accumulate(size for _, size in entries)
    places = zip(ends, (size for _, size in entries), strict=True)
    index = b"".join(struct.pack("<QQ", end - size, size) for end, size in places)
    content += index + struct.pack("<I", crc32c(index))
    return {**files, name: content}


def more_rows():
    """Return superchunks of 20 rows, of which an append has not changed the sizes."""
    new, old = superchunk(NUMBERS), superchunk(NUMBERS[:18])
    return {**new, "meta/sizes": old["meta/sizes"]}


def in_attributes(document):
    """Move the identity of an array to the attributes, where old versions wrote it."""
    document["attributes"][documents.KEY] = document["bloscpack"].pop(documents.KEY)


def late(change):
    """Return an archive of which another program has written the chunks later."""

    def put(zipped):
        change_member(zipped, "x/c/0", change)

    return archive(put, listed=True)


def grid_file(path):
    bp.pack_ndarray_to_file(NUMBERS.reshape(5, 4), path, chunks=(2, 3), clevel=0)


def sparse(items, fill_value):
    """Return an array of nine items, the last of which is the fill value."""

    def change(document):
        document.update(shape=[9], fill_value=fill_value)
        own = {"must_understand": False, "missing-shards": "fill_value"}
        document["bloscpack"] = {**own, **document["bloscpack"]}

    return edited(array(items), "zarr.json", change)


def reworded(document, change):
    """Change the value of the identity of an array."""
    own = document["bloscpack"]
    own[documents.KEY] = change(own[documents.KEY])


def with_copy(document):
    """Return a document with the value of the identity in it twice."""
    value = document["bloscpack"][documents.KEY]
    return {**document, "attributes": {"copy": value}}


def no_place(files, name):
    """Return files of which a file of chunks does not state its place."""
    return in_shard(files, name, lambda value: value.pop("place"))


def table_of_names(path):
    columns = dict.fromkeys(("a/b", "%", ".", "é*"), NUMBERS[:2])
    dataset.create_table(path, columns, layout="superchunk", **OPTIONS).close()


def code_page(zipped):
    """Rename an array, with names that are not in UTF-8."""
    for member in zipped.members:
        if member["name"].startswith("x/"):
            name = b"caf\x82" + member["name"][1:].encode()
            for header in (member["local"], member["entry"]):
                header.update(name=name, flags=0)


def sizes_behind(zipped):
    """Leave checksums and sizes out of the local headers."""
    for member in zipped.members:
        member["local"].update(flags=0x808, crc=0, size=0)
        member["entry"].update(flags=0x808)


def with_large_sizes(zipped, **changes):
    """Put the sizes of a member into a field of Zip64, and change its local header."""
    member, large = zipped["x/c/0"], 2**32 - 1
    sizes = [len(member["data"])] * 2
    more = struct.pack("<2H2Q", 1, 16, *sizes)
    member["local"].update({"size": large, "stored": large, "more": more, **changes})


def change_member(zipped, name, change):
    """Change the bytes of a member, and its sizes and checksums."""
    member = zipped[name]
    member["data"] = data = change({name: member["data"]}, name)[name]
    for header in (member["local"], member["entry"]):
        header.update(crc=crc32(data), size=len(data), stored=len(data))


def without_trailer(files, name):
    """Return files of which a shard lacks its trailer."""
    parts = take_apart(files[name])
    parts.tail = b""
    return {**files, name: parts.join()}


def changing(files, name):
    """Return files of which a change has overwritten one, but for a byte of it."""
    content = files[name]
    after = content[:32] + bytes(len(content) - 33) + content[-1:]
    return {**files, name: states(content, after, [(0, len(content))])[2]}


def with_others(zipped):
    """Add members that the list lacks: an array, and a file."""
    data = zipped["x/c/0"]["data"]
    zipped.members += Zip({"o.blp": data, "README": b"read me"}).members


def respelled(zipped):
    """Write the document of the group again, with sizes that are wrong."""
    document = json.loads(zipped["zarr.json"]["data"])
    document["attributes"]["bloscpack-members"]["sizes"] = {"z.blp": 7}
    zipped["zarr.json"]["data"] = json.dumps(document).encode()


def not_listed(zipped):
    """Add the document of an array of another program, without chunks."""
    document = foreign({})["zarr.json"]
    zipped.members += Zip({"o/zarr.json": document}).members


def with_document(zipped):
    """Add a document beside an array that is no shard."""
    document = zipped["x/zarr.json"]["data"]
    zipped.members += Zip({"s/zarr.json": document}).members


# Datasets whose shards have the container "numpy", and a short last chunk, and tables
# without copies. Nothing writes them any more: they are copied from the samples.
OLD = {
    "rows-zarr-array": "V10 S5",
    "rows-zarr-two-axes": "V10 S5",
    "rows-zarr-resized": "V10 I17",
    "rows-zarr-table": "V10 V2",
    "rows-superchunk-array": "D8 S5",
    "rows-superchunk-fields": "D8 S5",
    "rows-superchunk-more-rows": "D13 I20",
    "table-without-copies": "J5",
}

# Samples that are opened inside: the folder of a part.
OPENED = {
    "part-pending": "x",
    "part-lost-document": "x",
    "part-damaged-document": "x",
    "part-of-group": "a/t",
    "part-of-lost-group": "a/t",
}
SAMPLES = {
    **{
        name: (rules, partial(dict, files_of(FOLDER / "datasets" / name)))
        for name, rules in OLD.items()
    },
    # The layout zarr
    "zarr-array": ("V1 V4 V10 V21", lambda: array(NUMBERS, fill_value=7)),
    "zarr-two-axes": ("V4", lambda: array(NUMBERS.reshape(10, 2).astype(">f8"))),
    "zarr-grid": (
        "V10 G7 V17",
        lambda: array(NUMBERS.reshape(5, 4), chunks=(2, 3), shards=(4, 3)),
    ),
    "zarr-scalar": ("V7", lambda: array(np.float32(1.5), chunks=None, shards=None)),
    "zarr-empty": ("V10", lambda: array(NUMBERS[:0])),
    "zarr-text": ("V5", lambda: array(np.array(["a", "\u00e9", "\U0001f600"]))),
    "zarr-bytes": ("V5 V8", lambda: array(np.array([b"a", b"bcd"]), fill_value=b"x")),
    "zarr-times": ("V5 V8", lambda: array(np.arange(5).astype("M8[25s]"))),
    "zarr-fill-nan": ("V8", lambda: array(np.arange(3.0), fill_value=np.nan)),
    "zarr-names": ("V15", lambda: array(NUMBERS, dims=["t"])),
    "zarr-resized": ("I17 V11", resized),
    "zarr-table": ("V2", table),
    "zarr-group": ("V13", group),
    "group-without-document": ("V13", lambda: without(group(), "zarr.json")),
    "zarr-no-attributes": (
        "V1",
        lambda: with_keys(unsigned(array(NUMBERS)), "zarr.json", attributes=REMOVED),
    ),
    "zarr-understood": (
        "V3",
        lambda: with_keys(
            array(NUMBERS), "zarr.json", other={"must_understand": False}
        ),
    ),
    "zarr-column-order": (
        "V2",
        lambda: edited(
            table(), "zarr.json", lambda d: d["attributes"]["column-order"].reverse()
        ),
    ),
    "zarr-unsigned": ("I4 I23", lambda: unsigned(array(NUMBERS))),
    "zarr-changed-by-others": (
        "I4 I23",
        lambda: changed_by_others(array(NUMBERS), "zarr.json"),
    ),
    "zarr-missing-shard-unsigned": (
        "I17",
        lambda: without(unsigned(array(NUMBERS, fill_value=7)), "c/1"),
    ),
    "zarr-missing-shard-of-fill-values": (
        "I17",
        lambda: without(array(NUMBERS, fill_value=7), "c/1"),
    ),
    "zarr-shard-from-others": ("I18 V9", of_ours_without_header),
    "zarr-more-shards": (
        "V10",
        lambda: {**array(NUMBERS[:8]), "c/1": array(NUMBERS)["c/1"]},
    ),
    "zarr-index-defaults": (
        "V6",
        lambda: with_keys(
            array(NUMBERS[:8]),
            *("zarr.json", "codecs", 0, "configuration"),
            index_codecs=REMOVED,
            index_location=REMOVED,
        ),
    ),
    "zarr-separator-default": (
        "V7",
        lambda: with_keys(
            array(NUMBERS[:8]), "zarr.json", chunk_key_encoding="default"
        ),
    ),
    "zarr-fill-digits": (
        "V8",
        lambda: sparse(np.arange(8.0), "0x7ff8000000000001"),
    ),
    "zarr-fill-complex": (
        "V8",
        lambda: sparse(np.arange(8) * 1j, ["-Infinity", "0x7ff8000000000001"]),
    ),
    "zarr-consolidated": (
        "V19",
        lambda: with_keys(group(), "zarr.json", consolidated_metadata={"metadata": 1}),
    ),
    "zarr-table-and-folder": (
        "V2",
        lambda: {
            **table(),
            **{"z/" + name: content for name, content in array(NUMBERS[:3]).items()},
        },
    ),
    "zarr-words": (
        "I2",
        lambda: edited(
            array(NUMBERS[:8]),
            "zarr.json",
            lambda d: reworded(d, lambda value: value.replace(" crc32", " x=0f crc32")),
        ),
    ),
    "zarr-value-twice": (
        "I3",
        lambda: edited(
            array(NUMBERS[:8]),
            "zarr.json",
            with_copy,
        ),
    ),
    "zarr-data-type-object": (
        "V20",
        lambda: with_keys(
            array(NUMBERS[:8]), "zarr.json", data_type={"name": "int32", "other": 1}
        ),
    ),
    "zarr-index-codec-text": (
        "V20",
        lambda: with_keys(
            array(NUMBERS[:8]),
            *("zarr.json", "codecs", 0, "configuration"),
            index_codecs=[LITTLE, "crc32c"],
        ),
    ),
    "zarr-string": (
        "V5 G9",
        lambda: array(np.array(["a", "\u00e9", "", "\U0001f600"], object)),
    ),
    "identity-in-attributes": (
        "I10 I15",
        lambda: edited(array(NUMBERS), "zarr.json", in_attributes),
    ),
    "zarr-no-place": ("I6", lambda: no_place(array(NUMBERS), "c/1")),
    # Superchunks
    "superchunk-array": ("D2 D4 D7", superchunk),
    "superchunk-two-axes": (
        "D4",
        lambda: superchunk(np.arange(20.0).reshape(10, 2)),
    ),
    "superchunk-fields": ("D5 D6", lambda: superchunk(FIELDS)),
    "superchunk-empty": ("D7", lambda: superchunk(NUMBERS[:0])),
    "superchunk-table": ("D3", lambda: table(layout="superchunk")),
    "superchunk-fill-value": ("D4", lambda: superchunk(NUMBERS, fill_value=7)),
    "superchunk-more-rows": ("D13 I20", more_rows),
    "superchunk-behind": (
        "D13",
        lambda: {
            **superchunk(NUMBERS[:8]),
            "data/__2__.bin": superchunk()["data/__2__.bin"],
        },
    ),
    "superchunk-unknown-keys": (
        "D10",
        lambda: with_keys(superchunk(), "meta/storage", other=[1]),
    ),
    "superchunk-names": ("D6", lambda: made(table_of_names)),
    "superchunk-no-place": ("I6", lambda: no_place(superchunk(), "data/__2__.bin")),
    # Archives
    "archive": ("Z1 Z3 Z4", lambda: archive(scalar=np.int16(7), fields=FIELDS)),
    "archive-list": ("Z7 Z23", lambda: archive(listed=True, scalar=np.int16(7))),
    "archive-list-and-others": ("Z7 Z21", lambda: archive(with_others, listed=True)),
    "archive-list-of-others": ("Z7", lambda: archive(respelled, listed=True)),
    "archive-without-digests": (
        "Z14",
        lambda: archive(lambda z: [m.update(digest=False) for m in z.members]),
    ),
    "archive-bytes-in-front": (
        "Z2",
        lambda: archive(lambda z: setattr(z, "front", b"#!/bin/sh\n")),
    ),
    "archive-other-member": (
        "Z6",
        lambda: archive(
            lambda z: z.members.extend(Zip({"README": b"read me"}).members)
        ),
    ),
    "archive-equal-names": (
        "Z15",
        lambda: archive(lambda z: z.members.append(copy.deepcopy(z.members[0]))),
    ),
    "archive-another-array": (
        "Z8",
        lambda: archive(
            lambda z: z.members.extend(
                Zip(
                    {"o/" + name: content for name, content in other_chunks().items()}
                ).members
            )
        ),
    ),
    "archive-two-digests": (
        "Z14",
        lambda: archive(
            lambda z: z["x/c/0"]["entry"].update(more=struct.pack("<2sHI", b"Bp", 4, 1))
        ),
    ),
    "archive-zip64": ("Z2", lambda: archive(lambda z: setattr(z, "zip64", True))),
    "archive-comment": (
        "Z2",
        lambda: archive(lambda z: setattr(z, "comment", b"PK\5\6, a comment")),
    ),
    "archive-folder-names": (
        "Z15",
        lambda: archive(lambda z: z.members.extend(Zip({"x/": b""}).members)),
    ),
    "archive-code-page": ("Z15", lambda: archive(code_page)),
    "archive-sizes-behind": ("Z1", lambda: archive(sizes_behind)),
    "archive-sizes-large": ("Z1", lambda: archive(with_large_sizes)),
    "archive-no-trailer": (
        "S11 Z3",
        lambda: archive(lambda z: change_member(z, "x/c/0", without_trailer)),
    ),
    "archive-late-chunks": ("Z20", lambda: late(without_trailer)),
    "archive-not-listed": ("Z8", lambda: archive(not_listed)),
    "archive-document-of-others": ("Z8", lambda: archive(with_document, s=np.int16(7))),
    "archive-undo": (
        "X1",
        lambda: archive(lambda z: change_member(z, "x/c/0", changing)),
    ),
    # Commits
    "pending": ("J1 J2 J3", pending),
    "pending-half-applied": ("J3 J18", lambda: pending(applied=True)),
    "pending-other-key": (
        "J2",
        lambda: pending(change=lambda stored: stored.update(other=1)),
    ),
    "pending-changed-by-others": (
        "J2 J4",
        lambda: edited(
            pending(),
            "zarr.json",
            lambda d: d["attributes"].update(unit="km"),
            sign=False,
        ),
    ),
    "pending-shorter": ("J3", shorter),
    "pending-shard-removed": (
        "J3 I17",
        lambda: with_list(sparse(NUMBERS[:8], 5), {"c/0": None}),
    ),
    "pending-table": ("J3 J7 J9", pending_table),
    "pending-column-removed": ("J3", column_removed),
    "pending-superchunk": ("J2 J3", pending_superchunk),
    "pending-superchunk-column": ("J2 J3", superchunk_column_added),
    "copy-without-document": ("J9", lambda: without(table(), "x/zarr.json")),
    "copy-and-damaged-document": (
        "J9",
        lambda: {**table(), "x/zarr.json": b"{"},
    ),
    "copy-and-document-of-others": (
        "J9 I23",
        lambda: changed_by_others(table(), "x/zarr.json"),
    ),
    "copies": ("J5 J10 J13", united),
    "copy-without-folder": ("J11 J18", lambda: without(united(), "a")),
    "member-without-document": ("J9", lambda: without(united(), "a/t/zarr.json")),
    "member-document-of-others": (
        "J9 I23",
        lambda: changed_by_others(united(), "a/t/zarr.json"),
    ),
    "member-removed": (
        "J9",
        lambda: edited(
            united(), "zarr.json", lambda d: copies_in(d).pop("a/t") and None
        ),
    ),
    "member-of-others": (
        "J9",
        lambda: {
            **united(),
            **{"a/new/" + name: c for name, c in array(NUMBERS[:3]).items()},
        },
    ),
    "list-in-column": (
        "J7",
        lambda: with_list(table(), {"c/0": "1f-0"}, "x/zarr.json"),
    ),
    "list-in-copy": (
        "J7",
        lambda: with_member(
            table(), "x", lambda d: d["attributes"].update({"bloscpack-pending": 1})
        ),
    ),
    "part-alone": ("J9 J17 J15", lambda: inside(table(), "x")),
    "part-pending": ("J9 J3", pending_table),
    "part-lost-document": ("J9", lambda: without(table(), "x/zarr.json")),
    "part-damaged-document": ("J9", lambda: {**table(), "x/zarr.json": b"{"}),
    "part-of-group": ("J9", lambda: without(united(), "a/t/zarr.json")),
    "part-of-lost-group": ("J9", lambda: without(united(), "a/zarr.json")),
    "copies-of-others": (
        "J5",
        lambda: with_keys(
            unsigned(table()), "zarr.json", consolidated_metadata={"metadata": {}}
        ),
    ),
    "copies-not-sorted": ("J16", copies_not_sorted),
    "group-unfinished": (
        "J6",
        lambda: {
            **group(),
            "new/zarr.json": json.dumps(UNFINISHED).encode(),
            "new/c/0": array(NUMBERS[:3])["c/0"],
        },
    ),
    "group-unfinished-false": (
        "J6",
        lambda: {
            **group(),
            "new/zarr.json": json.dumps(UNFINISHED)
            .replace('"%s"' % ("0" * 16), "false")
            .encode(),
        },
    ),
    "group-unfinished-members": (
        "J6",
        lambda: {
            **group(),
            "new/zarr.json": json.dumps(UNFINISHED).encode(),
            **{"new/x/" + name: c for name, c in array(NUMBERS[:3]).items()},
        },
    ),
    "dataset-uncommitted": (
        "J3 J18",
        lambda: {**array(NUMBERS), ".bloscpack/1f-0": b"half of a new sha"},
    ),
    # Files
    "grid": ("G1 G2 G3 G8", lambda: made(grid_file, "sample.blp")),
    "text-shard": (
        "G10 G11",
        lambda: {"sample.blp": array(np.array(["a", "bc"], object))["c/0"]},
    ),
}


def name_of(files):
    """Return what follows the name of a sample: a suffix, or nothing for a folder."""
    return {"sample.zip": ".zip", "sample.blp": ".blp"}.get(min(files), "")


def write_sample(folder, name, files):
    """Write a sample to a folder; return its path."""
    suffix = name_of(files)
    if suffix:
        (content,) = files.values()
        (folder / (name + suffix)).write_bytes(content)
    else:
        write_files(files, folder / name)
    return folder / (name + suffix)


def path_of(name, path):
    """Return the path of what is opened of a sample, relative to the folder of all."""
    return "/".join(filter(None, (path.name, OPENED.get(name))))


def kinds_of(report, severity):
    """Return the kinds of the findings of one severity."""
    return sorted({each.kind for each in report.findings if severity == each.severity})


def main() -> None:
    """Write all samples and the manifest."""
    from format.agreement import read_here, summary

    folder = FOLDER / "datasets"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    entries = {}
    for name, (rules, make) in SAMPLES.items():
        path = write_sample(folder, name, make())
        place = path_of(name, path)
        path = folder / place
        report = bp.verify(path)
        entries[name] = {
            "rules": rules.split(),
            "path": place,
            "content": summary(read_here(path)),
            "notes": kinds_of(report, "note"),
        }
        if not report.ok:
            entries[name]["errors"] = kinds_of(report, "error")
    text = json.dumps(entries, indent=1)
    (folder / "MANIFEST.json").write_text(text + "\n", "ascii")


if __name__ == "__main__":
    main()
