"""``blpk list``: show one line for each file, from its beginning."""

from __future__ import annotations

from ...describe import ratio_of
from ...log import counted, printable
from ..console import console
from ..exit_codes import for_each_file
from ..named import named_any, packed_files
from ..text import UNKNOWN, array_text, part_text, say_json, short, size_text, table

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import Namespace

    from ..._types import JsonObject

# Fields that are left out: their size is not limited, or only `info` shows them.
LEFT_OUT = (
    *("metadata", "metadata_header", "header", "offsets", "largest_cbytes"),
    "attributes",
)
TITLES = ("plain", "packed", "ratio", "codec", "chunks", "checksum", "array", "name")
SET_LEFT = (3, 5, 6)


HELP = """\
show size, ratio, codec and array of each file, read from its beginning

examples:
  %(prog)s *.blp              a table, with a total
  %(prog)s -r folder          all *.blp and archives in a folder and below
  %(prog)s --bytes *.blp      exact sizes
  %(prog)s --json data.blp    a list of objects, for programs
"""
OPTIONS = """\
files <file>  files of any version, datasets, or folders
-r --recursive  include all folders below a folder
--bytes  show sizes in bytes, without suffix
| --json  print a list of objects
"""


def run(args: Namespace) -> int:
    """List the files and the arrays of datasets."""
    console.exact = args.bytes
    files = packed_files(args)
    listed: list[JsonObject] = []

    def act(path: str) -> int:
        entries, code = named_any(path).entries()
        listed.extend(
            {key: entry[key] for key in entry if key not in LEFT_OUT}
            for entry in entries
        )
        return code

    worst = for_each_file(files, act)
    if args.json:
        say_json(listed)
    elif listed:
        rows = [TITLES, *(_row(entry) for entry in listed)]
        if max(len(files), len(listed)) > 1:
            rows.append(_total(listed))
        console.say_all(table(rows, SET_LEFT))
    return worst


def _row(entry: JsonObject) -> tuple[str, ...]:
    if "kind" in entry:  # an array of a dataset, or a file of another format
        codec, array = entry.get("codec", UNKNOWN) or "none", short(entry)
    else:
        chunk = entry["first_chunk"]
        codec = chunk["codec"] if chunk else UNKNOWN
        array = array_text(entry["array"]) + (" shard" if entry["shard"] else "")
    return (
        size_text(entry["nbytes"]),
        size_text(entry["cbytes"]),
        "%.2f" % entry["ratio"],
        codec,
        str(entry.get("nchunks", UNKNOWN)),
        entry.get("checksum", UNKNOWN),
        array,
        printable(entry["file"]) + part_text(entry),
    )


def _total(entries: list[JsonObject]) -> tuple[str, ...]:
    nbytes = sum(description["nbytes"] for description in entries)
    cbytes = sum(description["cbytes"] for description in entries)
    sizes = size_text(nbytes), size_text(cbytes)
    ratio = "%.2f" % ratio_of(nbytes, cbytes)
    nchunks = str(sum(description.get("nchunks", 0) for description in entries))
    narrays = sum({"kind", "codec"} <= description.keys() for description in entries)
    counts = {"file": len(entries) - narrays, "array": narrays}
    words = [counted(n, what) for what, n in counts.items() if n]
    return *sizes, ratio, "", nchunks, "", "", "total of " + " and ".join(words)
