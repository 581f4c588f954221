"""What the command shows of files and datasets: lines, tables, JSON, sizes, versions.

Contract: no control character, and no mark that changes the direction of text, reaches
the terminal from a file name, an option or a file. `say` and the functions of `log`
replace unprintable characters by escape sequences (`printable`), and so characters that
the encoding of the terminal lacks. `json_text` and `say_json` use the escape sequences
of JSON, so that their output stays valid JSON.

`FACTS` is the table of all lines of ``blpk info``, in order. A description of a file is
brought into the form of one of a dataset, so that both are drawn by the same table.

`cli` calls `version` and `info` without the parser if the command line is simple
enough: they have to be fast, so argparse, NumPy and Blosc are not imported.
"""

from __future__ import annotations

import os
import sys

from .. import log
from ..log import counted, printable
from ..pretty import pretty_size
from ..version import __version__
from .console import console
from .exit_codes import Refusal

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from .._types import Json, JsonObject
    from ..describe import FileInfo

UNKNOWN = "-"
# Number of blanks in front of each level of JSON.
INDENT = 2
# Maximum number of characters of metadata or attributes that are shown.
MOST_SHOWN = 2**16
# Maximum number of characters of a line of metadata.
LINE_WIDTH = 90


# The command


def version() -> None:
    """Show the versions of Bloscpack, python-blosc and Blosc."""
    console.put(
        "bloscpack: '%s' python-blosc: '%s' blosc: '%s'\n"
        % (__version__, *_blosc_versions())
    )
    console.flush()  # the parser exits next


def _blosc_versions() -> tuple[str, str]:
    """Return the versions of python-blosc and Blosc.

    Importing the whole package takes longer than everything else in
    ``blpk --version``: load only the two modules that contain the versions.
    """
    from importlib.machinery import PathFinder
    from importlib.util import find_spec, module_from_spec

    package = find_spec("blosc")
    if package is None or not package.submodule_search_locations:
        raise Refusal("python-blosc is not installed")
    versions = []
    for module, name in (
        ("version", "__version__"),
        ("blosc_extension", "BLOSC_VERSION_STRING"),
    ):
        spec = PathFinder.find_spec(module, list(package.submodule_search_locations))
        assert spec is not None
        loaded = module_from_spec(spec)
        spec.loader.exec_module(loaded)  # type: ignore[union-attr]
        versions.append(str(getattr(loaded, name)))
    return versions[0], versions[1]


def log_metadata(metadata: object) -> None:
    """Show metadata with sorted keys; only the beginning if they are very long."""
    log.normal("Metadata:")
    text = repr(metadata)
    if len(text) > MOST_SHOWN:
        end = "...\nThis is the beginning; 'blpk metadata FILE' shows all."
        log.normal(text[:MOST_SHOWN] + end)
        return
    from pprint import pformat

    log.normal(pformat(metadata, width=LINE_WIDTH))


# JSON


def say_json(value: object) -> None:
    """Print a value as JSON in ASCII, with `finite` numbers."""
    console.put(_plain_json(value) + "\n")


def say_json_list(pieces: Iterable[list[object]]) -> None:
    """Print several lists as one, as `say_json` does, one piece after the other."""
    before = "["
    for piece in filter(None, pieces):
        # Without the brackets around the items, and the line end before the last one.
        console.put(before + _plain_json(piece)[1:-2])
        before = ","
    console.put("[]\n" if before == "[" else "\n]\n")


def _plain_json(value: object) -> str:
    import json

    try:
        return json.dumps(value, indent=INDENT, allow_nan=False)
    except ValueError:
        return json.dumps(finite(value), indent=INDENT)


def finite(value: object) -> Json:
    """Return a value with null for NaN, and text for infinities, as Zarr has it."""
    from math import isinf

    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(inner) for inner in value]
    if isinstance(value, float) and isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value if value == value else None


def json_text(value: object, compact: bool, encoding: str = "") -> str:
    """Return a value as JSON with sorted keys, on one line if `compact`.

    Unprintable characters are escaped, and all beyond ASCII if `encoding` lacks one: by
    default that of standard output.
    """
    import json

    encoding = encoding or getattr(sys.stdout, "encoding", None) or "ascii"

    def dumped(ascii_only: bool) -> str:
        return json.dumps(
            value,
            indent=None if compact else INDENT,
            separators=(",", ":") if compact else None,
            sort_keys=True,
            ensure_ascii=ascii_only,
        )

    text = dumped(ascii_only=False)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return dumped(ascii_only=True)
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == "\n" else json.dumps(c).strip('"') for c in text
    )


# Words and tables


def columns() -> int:
    """Return the columns of the terminal on standard output, or 80."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (AttributeError, OSError, ValueError):
        return 80


def size_text(size: int) -> str:
    """Return a size in bytes with a suffix, or as a number with ``--bytes``."""
    return str(size) if console.exact else str(pretty_size(size))


def part_text(described: JsonObject) -> str:
    """Return what follows the name of a file that stands behind others."""
    start = described.get("start")
    return ", from byte %d on" % start if start else ""


def array_text(array: JsonObject | None) -> str:
    """Return dtype and shape in short form: ``<f8 (100, 3)``."""
    if array is None:
        return UNKNOWN
    shape = "(?)" if array["shape"] is None else str(tuple(array["shape"]))
    order = " F" if array["order"] == "F" else ""
    dtype = shorten(str(array["dtype"]), 24)
    return printable(shorten("%s %s%s" % (dtype, shape, order), 60))


def shorten(text: str, length: int) -> str:
    """Return a text of at most `length` characters; a cut text ends with ``...``."""
    return text if len(text) <= length else text[: length - 3] + "..."


def table(rows: Sequence[Sequence[str]], left: Sequence[int] = ()) -> list[str]:
    """Return rows of cells as lines; columns are right-aligned, those in `left` not.

    The last column is left-aligned and may have any width.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row[:-1], widths, strict=False))
        ]
        lines.append("  ".join([*cells, row[-1]]).rstrip())
    return lines


# The values of a description as text


def _size(nbytes: int) -> str:
    if nbytes < 1024 or console.exact:
        return counted(nbytes, "byte")
    return "%s (%d bytes)" % (size_text(nbytes), nbytes)


def _shape(shape: list[int] | None) -> str:
    return UNKNOWN if shape is None else str(tuple(shape))


def _text(value: object) -> str:
    return UNKNOWN if value is None else _first_part(str(value))


def _attributes(value: Json) -> str:
    return _first_part(json_text(value, True))


def _first_part(text: str) -> str:
    if len(text) <= MOST_SHOWN:
        return text
    return text[:MOST_SHOWN] + "... ('blpk metadata' shows all)"


def _chunk_size(nbytes: int, last: int, nchunks: int) -> str:
    if nchunks < 2 or last < 1:
        return _size(nbytes)
    return "%s, the last chunk %s" % (_size(nbytes), _size(last))


def _blocks(nbytes: int, split: bool) -> str:
    how = "split by the bytes of the items" if split else "not split"
    return "%s, %s" % (_size(nbytes), how)


def _codec(codec: str, filter_: str, copied: bool) -> str:
    stored = ", the first chunk stored uncompressed" if copied else ""
    return "%s, filter %s%s" % (codec, filter_, stored)


def _codec_text(codec: str | None, level: int | None, filter_: str) -> str:
    of_level = "" if level is None else ", level %d" % level
    return "%s%s, filter %s" % (codec or "none", of_level, filter_)


def _shard(shard: JsonObject) -> str:
    states = {True: "with an index", False: "without an index", None: "index unknown"}
    rows, slots = counted(shard["rows"], "row"), counted(shard["slots"], "slot")
    return "%s in a chunk, %s, %s" % (rows, slots, states[shard["index"]])


def _axes(dims: Sequence[str | None]) -> str:
    return _first_part(printable(", ".join(name or UNKNOWN for name in dims)))


# Label, the keys of the description that the line needs, and their values as text. A
# line whose keys the description lacks is left out.
FACTS: tuple[tuple[str, tuple[str, ...], Callable[..., str]], ...] = (
    ("kind", ("kind",), str),
    ("format", ("format",), str),
    ("layout", ("layout",), str),
    ("shape", ("shape",), _shape),
    ("axes", ("dims",), _axes),
    ("dtype", ("dtype",), _text),
    ("order", ("order",), _text),
    ("rows", ("rows",), str),
    ("columns", ("columns",), lambda found: str(len(found))),
    ("members", ("members",), lambda found: str(len(found))),
    ("nchunks", ("nchunks",), str),
    ("chunk shape", ("chunks",), _shape),
    ("chunk size", ("chunk_size", "last_chunk", "nchunks"), _chunk_size),
    ("block size", ("blocksize", "split"), _blocks),
    ("shards", ("shards",), _shape),
    ("shard", ("shard",), _shard),
    ("fill value", ("fill_value",), str),
    ("typesize", ("typesize",), str),
    ("codec", ("codec", "level", "filter"), _codec_text),
    ("codec", ("codec", "filter", "copied"), _codec),
    ("checksum", ("checksum",), str),
    ("room", ("room",), str),
    ("plain", ("nbytes",), _size),
    ("packed", ("cbytes",), _size),
    ("ratio", ("ratio",), "{:.2f}".format),
    ("files", ("nfiles",), str),
    ("attributes", ("attributes",), _attributes),
    ("metadata", ("metadata",), _attributes),
    ("damaged", ("damage",), str),
)


def info_lines(described: JsonObject) -> Iterator[str]:
    """Yield the lines for a dataset, or for what `facts_of_file` returns."""
    fields = {
        label: text(*(described[key] for key in keys))
        for label, keys, text in FACTS
        if described.keys() >= set(keys)
    }
    width = max(map(len, fields)) + 1
    for name, value in fields.items():
        yield "%s %s" % ((name + ":").ljust(width), value)
    members = member_lines(described)
    if members:
        yield ""
        yield from members


def facts_of_file(info: FileInfo, damage: Exception | None = None) -> JsonObject:
    """Return the facts about a file as a description like that of a dataset.

    `damage` is the error of its chunks. If the header does not state the sizes,
    they are not known then.
    """
    array, chunk, shard = info.array, info.first_chunk, info.shard
    facts: dict[str, object] = {
        "kind": "bytes" if array is None else "array",
        "format": "blp %d" % info.format_version,
        "nchunks": info.nchunks,
        "checksum": info.checksum,
        "room": _room(info),
        "nbytes": info.nbytes,
        "cbytes": info.cbytes,
        "ratio": info.ratio,
    }
    if array is not None:
        facts.update(shape=array.shape, dtype=array.dtype)
        if array.chunks is not None:
            facts["chunks"] = array.chunks
        if array.order != "C":
            facts["order"] = array.order
    if shard is not None:
        facts["shard"] = shard.as_dict()
    if chunk is not None:
        facts.update(chunk.as_dict(), nbytes=info.nbytes, cbytes=info.cbytes)
        facts.update(chunk_size=info.largest_chunk, last_chunk=info.header.last_chunk)
    if info.metadata_header is not None and info.user_metadata is not None:
        facts["metadata"] = info.user_metadata
    if damage is not None:
        for key in ("nchunks", "nbytes", "ratio") if info.walked else ():
            del facts[key]
        facts["damage"] = str(damage)
    return facts


def _room(info: FileInfo) -> str:
    if info.offsets is None:
        return "none: there is no offset table"
    metadata = info.metadata_header
    text = "for " + counted(info.offsets.free, "more chunk")
    if metadata is not None:
        free = metadata.max_meta_size - metadata.meta_comp_size
        text += ", and %s of metadata" % counted(free, "more byte")
    if not info.offsets.plausible:
        text += "; the offsets are wrong: see 'blpk verify'"
    return text


# What is inside of a dataset


def inner(described: JsonObject) -> list[JsonObject]:
    """Return the descriptions of the members and columns."""
    return [*described.get("members", ()), *described.get("columns", ())]


def member_lines(described: JsonObject) -> list[str]:
    """Return a line for each member and column, none without any."""
    rows = list(_tree(described, ""))
    return table(rows, left=(0,)) if rows else []


def _tree(described: JsonObject, indent: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, ratio and the rest for each member and column."""
    for member in inner(described):
        name = indent + member["name"].rpartition("/")[2]
        ratio = "%.2f" % member["ratio"] if "ratio" in member else UNKNOWN
        yield name, ratio, short(member)
        yield from _tree(member, indent + "  ")


def short(described: JsonObject) -> str:
    """Return what a dataset or a member is, in short form."""
    if "error" in described:
        return "%s that can't be opened: %s" % (described["kind"], described["error"])
    form = described.get("format") or described["layout"]
    if described["kind"] == "array":
        return "%s %s" % (array_text({"order": "C", **described}), form)
    if described["kind"] == "table":
        return "table (%s) of %s" % (form, counted(described["rows"], "row"))
    return "%s (%s)" % (described["kind"], form)
