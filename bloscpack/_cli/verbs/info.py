"""``blpk info``: show the header and metadata of a file, as 0.16 did, or as JSON."""

from __future__ import annotations

import os

from ... import log
from ..._reading.description import describe
from ..._storage.urls import shown_name
from ...log import printable
from .. import datasets
from ..dataset_folders import is_dataset, names_dataset
from ..display import say_json
from ..exit_codes import EXIT_OK, for_each_file
from ..options import add_packed_files
from ..quick_answers import info
from ..stdio import check_exists, plain_name

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from ...serializers import JsonObject


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument(
        "--chunks",
        action="store_true",
        help="check all chunks, and show sizes and state of each",
    )
    parser.add_argument(
        "--json", action="store_true", help="print a JSON object with all fields"
    )
    add_packed_files(parser, "file or dataset to show info for, or a folder of files")


def run(args: Namespace) -> int:
    """Show the information about a file, or about several under their names."""
    from .. import file_jobs

    found: list[JsonObject] = []
    only = args.files[0] if len(args.files) == 1 else None
    if only is not None and (is_dataset(only) or not os.path.isdir(only)):
        code = _show(args, only, found)
        if args.json:
            say_json(found[0])
        return code

    def act(path: str) -> int:
        names_dataset(path)  # raises for a folder that is none
        if not args.json:
            log.normal("'%s':" % printable(shown_name(path)))
        return _show(args, path, found)

    worst = for_each_file(file_jobs.packed_files(args, datasets=True), act)
    if args.json:
        say_json(found)
    return worst


def _show(args: Namespace, path: str, found: list[JsonObject]) -> int:
    """Show the information about a file or dataset, or add it to a list for JSON.

    Return the exit code.
    """
    check_exists("file", path)
    of_dataset = is_dataset(path)
    if args.chunks:
        from .. import chunk_table

        of = chunk_table.of_dataset if of_dataset else chunk_table.of_file
        table = of(path, args.nthreads)
        if args.json:
            found.append(table.as_dict(path))
        else:
            table.show(path)
        return table.code
    if of_dataset:
        if not args.json:
            return datasets.info(path)
        found.append(datasets.describe(path))
        return datasets.state_in(found[-1])
    if args.json:
        found.append({**describe(path, strict=False), "file": plain_name(path)})
    else:
        info(path)
    return EXIT_OK
