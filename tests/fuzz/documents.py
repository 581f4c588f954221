"""Fuzzing of datasets: any documents, names and links in folders of every layout.

An input is a folder as JSON: name → content. Everything that takes datasets is called
with it, and must return a result or raise an error of ours, in bounded time and memory.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import io
import json
import logging
import os
import random
import re
import shutil
import tempfile
import warnings
import zlib
from pathlib import Path

import numpy as np
from dataset import documents
from dataset.golden_directories import extract
from dataset.layouts import LAYOUTS
from fuzz import parts
from fuzz.outcomes import Broken
from support import TESTS, reset_log

from bloscpack import bigfile, cli, dataset, exceptions

Refusal = (exceptions.BloscpackError, OSError)
# Maximum growth of the memory of the process in bytes, in one case.
MEMORY = 512 * 2**20
# Arrays that claim to be larger are not written to another format.
MOST_CONVERTED = 2**22
TARGETS = (*LAYOUTS, "npz", "npy", "blp", "bigfile")
COMMANDS = ("info", "list", "verify", "metadata")
# The files of JSON in all layouts.
JSON = ("zarr.json", "storage", "sizes", "attributes", "columns", "__attrs__")
JSON = (*JSON, "__rootdirs__")
TEXTS = ("header", "attr-v2", ".unwritten", "a.csv")


# Running


def import_all() -> None:
    """Import what is imported when it is needed."""
    # zarr-python leaves tasks that have failed, about which asyncio writes to stderr.
    logging.getLogger("asyncio").disabled = True
    with tempfile.TemporaryDirectory() as folder:
        for entries in seeds():
            run(json.dumps(entries).encode(), Path(folder))


def run(data: bytes, folder: Path) -> object:
    """Call everything with the folder `data`; return the first result."""
    entries = json.loads(data)
    path = folder / "d"
    before = peak()
    try:
        build(entries, path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = run_all(path, folder, zlib.crc32(data))
        if peak() > max(before, 128 * 2**20) + MEMORY:
            raise Broken("%d MiB of memory" % (peak() // 2**20))
        return found
    finally:
        for name in os.listdir(folder):
            remove(folder / name)


def peak() -> int:
    """Return the largest size of the process in memory until now, in bytes."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def build(entries: dict, path: Path) -> None:
    """Make the folder; an entry that has no place is left out."""
    path.mkdir()
    for name, entry in entries.items():
        try:
            place = os.path.join(os.fsencode(path), os.fsencode(name))
            os.makedirs(os.path.dirname(place), exist_ok=True)
            make_entry(place, entry)
        except (OSError, ValueError):
            pass


def make_entry(place: bytes, entry: dict) -> None:
    kind, value = next(iter(entry.items()))
    if kind == "folder":
        os.mkdir(place)
    elif kind == "fifo":
        os.mkfifo(place)
    elif kind == "link":
        os.symlink(os.fsencode(value), place)
    else:
        content = base64.b64decode(value) if kind == "bytes" else value.encode()
        with open(place, "xb") as fp:
            fp.write(content)
            if "size" in entry:
                fp.truncate(entry["size"])


def attempt(function, *args, **kwargs):
    """Return the result, or the error if it is one of ours."""
    try:
        return function(*args, **kwargs)
    except Refusal as error:
        str(error)
        return error


def run_all(path: Path, folder: Path, draw: int) -> object:
    """Call everything that takes datasets and trees."""
    name = str(path)
    described = attempt(dataset.describe, name)
    json.dumps(repr(described))
    opened = attempt(read_all, name)
    attempt(dataset.find, name)
    report = attempt(dataset.verify, name, nthreads=1)
    if not isinstance(report, Exception):
        json.dumps(report.as_dict())
    saved = folder / "saved"
    recovery = attempt(dataset.recover, name, saved, nthreads=1, drop=draw % 2 == 0)
    if not isinstance(recovery, Exception):
        json.dumps(recovery.as_dict())
        dataset.verify(saved)
    run_tree(name)
    for table_path in filter(Path.is_file, path.glob("*.csv")):
        csv = str(table_path), folder / "table"
        attempt(dataset.convert, *csv, to="zarr", nthreads=1, sync=False)
    small = isinstance(described, Exception) or described["nbytes"] < MOST_CONVERTED
    if small and not isinstance(opened, Exception):
        to = TARGETS[draw % len(TARGETS)]
        attempt(dataset.convert, name, folder / "out", to=to, nthreads=1, sync=False)
    run_command([COMMANDS[draw % len(COMMANDS)], name])
    attempt(change_all, name, draw)
    attempt(read_all, name)
    return opened


def run_command(arguments: list[str]) -> None:
    """Run a command, whose output must fit any terminal."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    reset_log()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main(arguments)
        except SystemExit as error:
            if error.code not in (1, 2, 3):
                raise Broken("exit code %r" % error.code) from None
        finally:
            reset_log()
        out.flush()
        err.flush()


def read_all(name: str) -> object:
    """Open a dataset, and read some of everything in it."""
    with dataset.open(name) as found:
        return read_node(found, 0)


def read_node(node, depth: int) -> object:
    repr(node)
    repr(dict(node.attrs))
    if isinstance(node, dataset.Group):
        for name in list(node)[:20]:
            if depth < 4:
                inner = attempt(lambda name=name: node[name])
                if not isinstance(inner, Exception):
                    attempt(read_node, inner, depth + 1)
        return "group"
    row = node.dtype.itemsize * int(np.prod(node.shape[1:], dtype=float))
    node.cbytes  # noqa: B018
    if not len(node) or row > 2**24:
        return "empty"
    attempt(node.__getitem__, slice(0, 3))
    attempt(node.__getitem__, slice(-3, None))
    attempt(node.__getitem__, len(node) // 2)
    return "rows"


def change_all(name: str, draw: int) -> None:
    """Change what a dataset has."""
    with dataset.open(name, "r+", sync=False) as found:
        attempt(found.attrs.update, {"fuzz": draw})
        if isinstance(found, dataset.Group):
            attempt(found.create_array, "new", [1, 2, 3])
            for member in list(found)[:3]:
                attempt(lambda member=member: found[member].attrs.update({"a": 1}))
            return
        row = found.dtype.itemsize * int(np.prod(found.shape[1:], dtype=float))
        if row > 2**20 or found.dtype.hasobject:
            return
        rows = np.zeros((2, *found.shape[1:]), found.dtype)
        attempt(found.append, rows)
        if isinstance(found, dataset.Array) and len(found):
            attempt(found.__setitem__, 0, rows[0])
        attempt(found.resize, len(found) - min(len(found), draw % 8))


def run_tree(name: str) -> None:
    """Read a folder as a BigFile tree."""
    report = attempt(bigfile.verify, name, nthreads=1)
    if not isinstance(report, Exception):
        json.dumps(report.as_dict())
    tree = attempt(bigfile.File, name, nthreads=1)
    if isinstance(tree, Exception):
        return
    names = attempt(lambda: tree.blocks)
    repr(attempt(lambda: dict(tree.attrs)))
    for block in [] if isinstance(names, Exception) else names[:10]:
        attempt(read_block, tree, block)
    if names:
        run_command(["bigfile", "ls", name])


def read_block(tree, block: str) -> None:
    column = tree[block]
    repr(column)
    repr(dict(column.attrs))
    if column.nbytes // max(1, column.size) < 2**24:
        attempt(column.read, 0, 3)
        attempt(lambda: column[-1:])


# The folders


def made(rng: random.Random, folder: Path) -> bytes:
    """Return a folder of a dataset that was changed."""
    entries = dict(rng.choice(seeds()))
    for _ in range(1 + rng.randrange(3)):
        CHANGES[rng.randrange(len(CHANGES))](entries, rng)
    return json.dumps(entries).encode()


def change_value(entries: dict, rng: random.Random) -> None:
    """Replace, remove or repeat a value in a document."""
    name = chosen(entries, rng, JSON)
    if name is None:
        return change_text(entries, rng)
    try:
        document = json.loads(entries[name]["text"])
    except (ValueError, RecursionError):
        return None
    places = list(places_in(document))
    if not places:
        return None
    outer, key = rng.choice(places)
    kind = rng.randrange(6)
    if kind == 0:
        del outer[key]
    elif kind == 1 and isinstance(outer, list):
        outer.insert(key, outer[key])
    elif kind == 2 and isinstance(outer, dict):
        other = rng.choice([*NAMES, *outer])
        outer[other] = outer.pop(key)
    elif kind == 3:
        one, two = rng.choice(places)
        with contextlib.suppress(KeyError, IndexError):
            outer[key] = one[two]
    else:
        outer[key] = other_value(outer[key], rng)
    with contextlib.suppress(ValueError, RecursionError):  # a value inside of itself
        text = json.dumps(document)
        if rng.randrange(20) == 0:  # a key twice
            text = text[:-1] + ", " + text[1:]
        entries[name] = {"text": text}
    return None


def places_in(value: object):
    """Yield the lists and dictionaries in a value, each with each key."""
    keys = list(value) if isinstance(value, dict) else []
    for key in range(len(value)) if isinstance(value, list) else keys:
        yield value, key
        if isinstance(value[key], (list, dict)):
            yield from places_in(value[key])


def other_value(old: object, rng: random.Random) -> object:
    """Return another value, often one of the same type."""
    kind = rng.randrange(4)
    if kind == 0 and isinstance(old, int):
        return parts.other_number(old, 63, rng.randrange)
    if kind == 1 and isinstance(old, str):
        return parts.changed_text(old.encode("utf-8", "replace"), rng.randrange).decode(
            "latin-1"
        )
    if kind == 2 and isinstance(old, list):
        return [*old, *old] if rng.randrange(2) else old[1:]
    return rng.choice(VALUES)


def change_text(entries: dict, rng: random.Random) -> None:
    """Change a word or some bytes of any text."""
    name = chosen(entries, rng, (*JSON, *TEXTS))
    if name is None:
        return
    text = entries[name]["text"]
    if rng.randrange(2):
        changed = parts.changed_text(text.encode(), rng.randrange)
        entries[name] = {"bytes": base64.b64encode(changed).decode()}
        return
    words = re.split("([ ,:\n]+)", text)
    words[rng.randrange(len(words))] = str(rng.choice(VALUES))
    entries[name] = {"text": "".join(words).encode("utf-8", "replace").decode()}


def change_bytes(entries: dict, rng: random.Random) -> None:
    """Change, cut or lengthen a file that is no text."""
    names = [name for name in entries if "bytes" in entries[name]]
    if not names:
        return
    name = rng.choice(names)
    content = base64.b64decode(entries[name]["bytes"])
    changed = parts.changed_text(content, rng.randrange)
    entries[name] = {"bytes": base64.b64encode(changed).decode()}
    if rng.randrange(4) == 0:
        entries[name]["size"] = rng.choice((10**7, 10**8, 10**9))


def change_name(entries: dict, rng: random.Random) -> None:
    """Rename, copy or remove a file or a folder."""
    if not entries:
        return
    name = rng.choice(list(entries))
    outer, _, last = name.rpartition("/")
    new = "/".join(filter(None, (outer, rng.choice((*NAMES, last + "0", last[:-1])))))
    kind = rng.randrange(4)
    if kind == 0:
        del entries[name]
    elif kind == 1:
        folder = rng.choice(("m\udc80", *NAMES))
        for inner in [n for n in entries if outer and n.startswith(outer + "/")]:
            place = outer.rpartition("/")[0]
            moved = filter(None, (place, folder, inner[len(outer) + 1 :]))
            entries["/".join(moved)] = entries.pop(inner)
    elif kind == 2:
        entries[new] = entries[name]
    else:
        entries[new] = entries.pop(name)


def change_kind(entries: dict, rng: random.Random) -> None:
    """Put a link, a folder, a pipe or a large file in the place of a name."""
    if not entries:
        return
    name = rng.choice(list(entries))
    if rng.randrange(2) and "/" in name:
        name = name.rpartition("/")[0]
        for inner in [n for n in entries if n.startswith(name + "/")]:
            del entries[inner]
    entries[name] = rng.choice(
        (
            *({"link": target} for target in LINKS * 3),
            {"folder": 1},
            {"folder": 1},
            {"fifo": 1},
            {"text": "", "size": 2**31},
            {"text": ""},
            {"text": "{}"},
            {"text": "[" * 100000},
        )
    )


def plant(entries: dict, rng: random.Random) -> None:
    """Add a document of another layout."""
    other = rng.choice(seeds())
    name = rng.choice(list(other))
    place = rng.choice(("", *(n.rpartition("/")[0] + "/" for n in entries)))
    entries[place.lstrip("/") + name.rpartition("/")[2]] = other[name]


def change_commit(entries: dict, rng: random.Random) -> None:
    """Let a document list files of a change, or copies of documents, with digests."""
    name = chosen(entries, rng, ("zarr.json", "sizes", "__rootdirs__"))
    try:
        document = json.loads(entries[name]["text"]) if name else None
    except (ValueError, RecursionError):
        return
    if not isinstance(document, dict):
        return
    holder = document.get("attributes") if "zarr_format" in document else document
    names = [*entries, *NAMES, "../x", "a\udcff"]
    listed = {rng.choice(names): rng.choice((None, *names)) for _ in range(3)}
    copies = document.get("consolidated_metadata")
    members = copies.get("metadata") if isinstance(copies, dict) else None
    if isinstance(members, dict) and rng.randrange(2):
        # A right digest makes the copies count.
        others = [*members.values(), *VALUES, {}]
        members[rng.choice((*members, *NAMES))] = rng.choice(others)
        if rng.randrange(8) == 0:
            copies["metadata"] = rng.choice(VALUES)
    elif isinstance(holder, dict):
        files = listed if rng.randrange(8) else rng.choice(VALUES)
        text = json.dumps(files, sort_keys=True).encode()
        stored = {"files": files, "crc32": "%08x" % zlib.crc32(text)}
        holder["bloscpack-pending"] = stored if rng.randrange(8) else rng.choice(VALUES)
        for staged in filter(None, listed.values()):
            if rng.randrange(2):
                entries.setdefault(".bloscpack/" + staged, entries[name])
    with contextlib.suppress(ValueError, RecursionError):
        entries[name] = {"text": documents.signed(document).decode()}


def chosen(entries: dict, rng: random.Random, last: tuple[str, ...]) -> str | None:
    names = [
        name
        for name, entry in entries.items()
        if name.rpartition("/")[2] in last and "text" in entry
    ]
    return rng.choice(names) if names else None


CHANGES = (
    *[change_value] * 8,
    change_text,
    change_text,
    change_bytes,
    change_name,
    change_kind,
    *[change_commit] * 2,
    plant,
)
NAMES = (
    *("header", "zarr.json", "c", "0", "meta", "data", "a", "", ".", "..", "..."),
    *("\udcff", "\ud800", "é", "a\nb", "x" * 300, "__attrs__", ".bloscpack", "1f-0"),
    *("storage", "attr-v2", "000000", "name", "shape", "columns", "a/b", "a\\b", "%"),
    *("column-order", "missing-shards", "names", "dirs", "bloscpack-unfinished"),
    *("bloscpack-pending", "consolidated_metadata", "files", "crc32"),
)
LINKS = (
    ".",
    "..",
    "/dev/zero",
    "/etc/passwd",
    "d",
    "nowhere",
    "zarr.json",
    "../d",
    "/",
)
VALUES = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 255, 256, 2**15, 2**16, 2**24, 10**6),
    *(2**31 - 17, 2**31 - 1, 2**31, 2**32, 10**12, 2**53, 2**62, 2**63 - 1, 2**63),
    *(2**64, 10**30, 10**400, -(2**63), 0.5, -0.0, 1e308, 1e-300),
    *(float("nan"), float("inf"), -float("inf"), 1e16),
    *("", "0", "a", "\ud800", "a\udcff", "\0", "\x1b[31m", "\u202e", "x" * 5000, "é"),
    *("NaN", "NaT", "-Infinity", "0x7fc00000", "AAAA", "!", "|V2147483647", "|O"),
    *("<f8", ">i4", "|S5", "<U300", "<M8[25s]", "i4,f8", "[('a', '<i4')]", "object"),
    *("int8", "float64", "complex128", "bool", "zarr", "group", "array", "table"),
    *("zstd", "lz4", "snappy", "bitshuffle", "little", "big", "../..", "/etc/passwd"),
    *([], [[]], {}, {"": {}}, [0], [1], [2**53], [10**12], [0, 2**62], [10, 10**10]),
    *([1] * 40, ["a"], ["a", "a"], [None], {"a": 1}, {"name": "bytes"}, [[["a"]]]),
    *({"name": "null_terminated_bytes", "configuration": {"length_bytes": 2**31 - 1}},),
    *({"name": "fixed_length_utf32", "configuration": {"length_bytes": 2**30}},),
    *({"name": "numpy.datetime64", "configuration": {"unit": "s"}},),
    *({"name": "regular", "configuration": {"chunk_shape": [10**12]}},),
)


@functools.cache
def seeds() -> list[dict]:
    """Return sound folders of every layout."""
    with tempfile.TemporaryDirectory() as folder:
        for name, make in SEEDS.items():
            make(os.path.join(folder, name))
        return [taken(os.path.join(folder, name)) for name in SEEDS]


def taken(path: str) -> dict:
    """Return a folder as an input."""
    entries: dict = {}
    for outer, _, names in sorted(os.walk(path)):
        for name in sorted(names):
            place = os.path.join(outer, name)
            content = Path(place).read_bytes()
            if name in (*JSON, *TEXTS):
                entry = {"text": content.decode()}
            else:
                entry = {"bytes": base64.b64encode(content).decode()}
            entries[os.path.relpath(place, path)] = entry
    return entries


def array(layout: str, data=None, **more):
    if layout in ("zarr", "superchunk"):
        more = {"chunks": 4, "shards": 8, **more}
    values = np.arange(20) if data is None else data
    return lambda path: dataset.create_array(
        path, values, layout=layout, attrs={"a": [1, {"b": None}]}, **more
    ).close()


def table(layout: str):
    columns = {"x": np.arange(9), "y": np.arange(9.0), "z": np.array(["ab"] * 9)}

    def make(path):
        with dataset.create_table(path, columns, layout=layout) as made_here:
            made_here["x"].attrs["unit"] = "m"

    return make


def sparse(path: str) -> None:
    more = {"chunks": 4, "shards": 8, "fill_value": 7}
    with dataset.create_array(path, shape=(1000, 2), dtype="f4", **more) as found:
        found[90:95] = 1


def group(path: str) -> None:
    with dataset.create_group(path, attrs={"a": 1}) as found:
        found.create_array("a/b", np.arange(5))
        found.create_table("t", {"x": [1, 2], "y": [1.5, 2.5]})
        found.create_group("g")


def of_blz(name: str):
    """Return a function that writes a golden dataset of BLZ."""
    return lambda path: extract("blz/" + name, Path(path))


def plain_folder(path: str) -> None:
    os.mkdir(path)
    array("bcolz")(os.path.join(path, "b"))
    array("superchunk")(os.path.join(path, "s"))
    of_blz("btable_mixed")(os.path.join(path, "t"))


def tree(path: str) -> None:
    with bigfile.File(path, create=True) as found:
        found.attrs["a"] = 1.5
        column = found.create_from_array("0/Position", np.arange(12.0).reshape(4, 3))
        column.attrs.update({"unit": "kpc/h", "n": [1, 2], "t": np.array(["a", "bc"])})
        found.create_from_array("0/ID", np.arange(4), Nfile=2)
        found.create("new", "f4", 10)


def csv_file(path: str) -> None:
    os.mkdir(path)
    lines = ["a,b,c,d", "1,2.5,x,2020-01-01", '-7,nan,"y, z",', "007,1e300,,"] * 3
    Path(path, "a.csv").write_text("\n".join(lines))


def of_tree(path: str) -> None:
    """Make a group that has the record of a tree in its attributes."""
    tree(path + ".tree")
    shutil.rmtree(path + ".tree/new")  # its rows were never written
    dataset.convert(path + ".tree", path, to="zarr", sync=False)


def pending(name: str):
    """Return a function that writes a sample whose change is not complete."""
    return lambda path: shutil.copytree(TESTS / "valid/datasets" / name, path)


PENDING = (
    *("pending", "pending-table", "pending-column-removed"),
    *("pending-superchunk", "pending-superchunk-column", "group-unfinished"),
)
NESTED = np.zeros(10, [("a", "i4"), ("b", [("x", "f8"), ("y", "U2")])])
SEEDS = {
    "zarr": array("zarr"),
    "zarr-2": array("zarr", np.arange(24.0).reshape(12, 2), fill_value=float("nan")),
    "zarr-text": array("zarr", np.array(["a", "bcd"] * 5)),
    "zarr-times": array("zarr", np.arange(10).astype("M8[s]")),
    "sparse": sparse,
    "zarr-table": table("zarr"),
    "group": group,
    "superchunk": array("superchunk"),
    "fields": array("superchunk", NESTED),
    "superchunk-table": table("superchunk"),
    "bcolz": array("bcolz"),
    "bcolz-table": table("bcolz"),
    "blz": of_blz("num_i4"),
    "blz-table": of_blz("btable_mixed"),
    "folder": plain_folder,
    "tree": tree,
    "of-tree": of_tree,
    "csv": csv_file,
    **{name: pending(name) for name in PENDING},
}
