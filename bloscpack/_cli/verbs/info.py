"""``blpk info``: show the header and metadata of a file, as 0.16 did, or as JSON."""

from __future__ import annotations

import os

from ... import log
from ..._storage.urls import shown_name
from ...log import printable
from ..display import say_json
from ..exit_codes import for_each_file
from ..inputs import is_dataset, packed_files
from ..named import named
from ..options import add, add_packed_files

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from ...serializers import JsonObject
    from ..named import Named


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

    def act(path: str) -> int:
        item = named(path)
        if not args.json:
            log.normal("'%s':" % printable(shown_name(path)))
        return _show(args, item, found)

    worst = for_each_file(packed_files(args, datasets=True), act)
    if args.json:
        say_json(found)
    return worst


def _show(args: Namespace, item: Named, found: list[JsonObject]) -> int:
    """Show a file or dataset, or add it to a list for JSON; return the exit code."""
    if args.chunks:
        chunks = item.chunks(args.nthreads)
        if args.json:
            found.append(chunks.as_dict(item.path))
        else:
            chunks.show(item.path)
        return chunks.code
    if not args.json:
        return item.show()
    described, code = item.describe()
    found.append(described)
    return code
