"""``blpk info``: show the header and metadata of a file, as 0.16 did, or as JSON."""

from __future__ import annotations

import os

from ... import log
from ..._storage.urls import shown_name
from ...describe import describe
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
        "--json", action="store_true", help="print a JSON object with all fields"
    )
    add_packed_files(parser, "file or dataset to show info for, or a folder of files")


def run(args: Namespace) -> int:
    """Show the information about a file, or about several under their names."""
    from .. import file_jobs

    alone = len(args.files) == 1
    if alone and is_dataset(args.files[0]):
        if args.json:
            described = datasets.describe(args.files[0])
            say_json(described)
            return datasets.state_in(described)
        return datasets.info(args.files[0])
    if alone and not os.path.isdir(args.files[0]):
        found = _read(args, args.files[0])
        if args.json:
            say_json(found)
        return EXIT_OK
    several: list[JsonObject | None] = []

    def act(path: str) -> int | None:
        of_dataset = names_dataset(path)
        if not args.json:
            log.normal("'%s':" % log.printable(shown_name(path)))
        if of_dataset:
            if not args.json:
                return datasets.info(path)
            described = datasets.describe(path)
            several.append(described)
            return datasets.state_in(described)
        several.append(_read(args, path))
        return None

    worst = for_each_file(file_jobs.packed_files(args, datasets=True), act)
    if args.json:
        say_json(several)
    return worst


def _read(args: Namespace, path: str) -> JsonObject | None:
    """Return the description of a file for ``--json``, or show the information."""
    check_exists("file", path)
    if args.json:
        return {**describe(path, strict=False), "file": plain_name(path)}
    info(path)
    return None
