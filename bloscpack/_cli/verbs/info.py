"""``blpk info``: show the facts about a file or a dataset, as lines or as JSON.

With ``--chunks`` all chunks are checked. A damaged or missing chunk has a row without
sizes, and errors outside of the chunks follow the table.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from ..._storage.paths import shown_name
from ..._types import JsonObject
from ...log import printable
from ..console import console, plain_name, shown_input
from ..display import say_json
from ..exit_codes import EXIT_DAMAGED, EXIT_OK, for_each_file
from ..info_text import UNKNOWN, size_text
from ..inputs import is_dataset, packed_files
from ..named import named
from ..options import add, add_packed_files

if TYPE_CHECKING:
    from ..named import Named

# Plain size, compressed size, ratio, number, state.
ROW = "%8s  %8s  %8s  %8s  %s"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    add(parser, "--chunks", "check all chunks, and show sizes and state of each")
    add(parser, "--json", "print a JSON object with all fields")
    add_packed_files(parser, "file or dataset to show info for, or a folder of files")


def run(args: Namespace) -> int:
    """Show the information about a file, or about several under their names."""
    found: list[JsonObject] = []
    only = args.files[0] if len(args.files) == 1 else None
    if only is not None and (not os.path.isdir(only) or is_dataset(only)):
        code = _show(args, named(only), found)
        if args.json:
            say_json(found[0])
        return code

    files = packed_files(args)

    def act(path: str) -> int:
        item = named(path)
        if not args.json:
            if path is not files[0]:
                console.say()
            console.say("'%s':" % printable(shown_name(path)))
        return _show(args, item, found)

    worst = for_each_file(files, act)
    if args.json:
        say_json(found)
    return worst


def _show(args: Namespace, item: Named, found: list[JsonObject]) -> int:
    """Show a file or dataset, or add it to a list for JSON; return the exit code."""
    if args.chunks:
        table = _chunk_table(item, args.nthreads)
        if args.json:
            found.append(table)
        else:
            _show_chunks(table, shown_input(item.path))
        return EXIT_DAMAGED if table["ndamaged"] or table["errors"] else EXIT_OK
    if not args.json:
        return item.show()
    described, code = item.describe()
    found.append(described)
    return code


# The chunks


def _chunk_table(item: Named, nthreads: int) -> JsonObject:
    rows, errors = item.chunks(nthreads)
    return {
        "file": plain_name(item.path),
        "nchunks": len(rows),
        "ndamaged": sum(row["nbytes"] is None for row in rows),
        "chunks": rows,
        "errors": errors,
    }


def _show_chunks(table: JsonObject, name: str) -> None:
    """Print the table, a total, and the errors."""
    from ..._check.findings import counted

    console.say(ROW % ("plain", "packed", "ratio", "chunk", "state"))
    nbytes = cbytes = 0
    for row in table["chunks"]:
        state = "damaged" if row["nbytes"] is None else "ok"
        if "file" in row:
            state += "  " + row["file"]
        nbytes += row["nbytes"] or 0
        cbytes += row["cbytes"] or 0
        console.say(ROW % (*_sizes(row["nbytes"], row["cbytes"]), row["chunk"], state))
    counts = counted(table["nchunks"], "chunk"), table["ndamaged"], name
    total = "%s, %d damaged: %s" % counts
    console.say("%8s  %8s  %8s  %s" % (*_sizes(nbytes, cbytes), total))
    console.say_all(table["errors"])


def _sizes(nbytes: int | None, cbytes: int | None) -> tuple[str, str, str]:
    """Return plain size, compressed size and ratio as texts."""
    if nbytes is None or cbytes is None:
        return UNKNOWN, UNKNOWN, UNKNOWN
    from ...describe import ratio_of

    return size_text(nbytes), size_text(cbytes), "%.2f" % ratio_of(nbytes, cbytes)
