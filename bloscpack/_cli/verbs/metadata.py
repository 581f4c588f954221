"""``blpk metadata``: show the metadata of a file as JSON, or change them in place.

A change is atomic. The file stays locked between reading the old metadata and writing
the new ones.
"""

from __future__ import annotations

import sys

from ... import log
from ...exceptions import MetadataSectionTooSmall, NoMetadataFound
from ..console import console
from ..dataset_folders import names_dataset
from ..display import json_text
from ..exit_codes import EXIT_COULD_NOT, EXIT_USAGE, Refusal
from ..options import parse_json, read_metadata
from ..stdio import is_input

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

    from ..._crashsafe.snapshot import Check
    from ..._storage.protocols import Seekable
    from ...serializers import Json

    Change = Callable[[Json], Json]


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.description = (
        "show the metadata of a file as JSON, or change them in place, within the\n"
        "space that the file reserves for them; a file without metadata is rewritten.\n"
        "In an array file the changes are made to the value of the key 'metadata',\n"
        "beside the description of the array. A dataset has attributes instead."
    )
    parser.epilog = (
        "examples:\n"
        "  %(prog)s data.blp\n"
        "  %(prog)s --update 'unit=\"metre\"' --update 'range=[1, 2]' data.blp\n"
        "  %(prog)s --remove unit data.blp\n"
        "  %(prog)s --compact a.blp | %(prog)s --set - b.blp"
    )
    parser.add_argument(
        "--compact", action="store_true", help="show the metadata on a single line"
    )
    parser.add_argument(
        "--set",
        metavar="<file>",
        dest="set_",
        help="replace the metadata by the JSON in a file, '-' for standard input",
    )
    parser.add_argument(
        "--update",
        metavar="<key=json>",
        action="append",
        default=[],
        help="give a key a value, which is JSON: text needs quotes; may be repeated",
    )
    parser.add_argument(
        "--remove",
        metavar="<key>",
        action="append",
        default=[],
        help="remove a key and its value; may be repeated",
    )
    parser.add_argument(
        "--grow",
        action="store_true",
        help="rewrite the file if the reserved space is too small",
    )
    parser.add_argument("file_", metavar="<file>", help="file or dataset")


def writes_data(args: Namespace) -> bool:
    """Return whether the metadata are shown, not changed."""
    return args.set_ is None and not args.update and not args.remove


def run(args: Namespace) -> None:
    """Show the metadata or change them."""
    of_dataset = names_dataset(args.file_)
    if writes_data(args):
        if of_dataset:
            from ..dataset_rows import attributes

            console.put(_as_text(attributes(args.file_), args.compact) + "\n")
            return
        console.put(_as_text(_read(args.file_), args.compact) + "\n")
        return
    if args.set_ is not None and (args.update or args.remove):
        raise Refusal("--set replaces everything: no --update, no --remove", EXIT_USAGE)
    if args.compact:
        raise Refusal("--compact is for showing, not for changing", EXIT_USAGE)
    if is_input(args.file_):
        raise Refusal("a file to change can't be standard input", EXIT_USAGE)
    if of_dataset:
        _change_attributes(args)
        return
    change = _update(args) if args.set_ is None else _replacement(args.set_)
    from ..._format.append_plan import UNCHANGED
    from ...append import change_metadata
    from ...serializers import replaced_metadata

    grow = args.grow or not _has_section(args.file_)

    def changed(old: Json) -> Json:
        new = replaced_metadata(old, change(old))
        # Compared as text, because 1 and true are not the same in JSON.
        if _as_text(new, compact=True) == _as_text(old, compact=True):
            log.verbose("the metadata are already the same")
            return UNCHANGED
        return new

    try:
        change_metadata(args.file_, changed, sync=args.sync is not False, grow=grow)
    except MetadataSectionTooSmall as error:
        error.args = ("%s; --grow rewrites the file with more space" % error.args[0],)
        raise


def _change_attributes(args: Namespace) -> None:
    """Change the attributes of a dataset."""
    from ..dataset_rows import change_attributes

    if args.set_ is not None:
        change = _replacement(args.set_)
    else:
        edit = _edit(args)

        def change(old: Json) -> Json:
            return edit(old, "attributes")

    change_attributes(args.file_, change, args.sync is not False)


def _has_section(path: str) -> bool:
    try:
        _read(path)
    except NoMetadataFound:
        return False
    return True


def _read(path: str) -> Json:
    from ..._crashsafe.snapshot import read_snapshot
    from ..._format.sections import read_beginning
    from ..._storage.cursor import Cursor

    def read(fp: Seekable, check: Check) -> Json:
        beginning = read_beginning(Cursor(fp))
        check(beginning.header)
        if beginning.metadata_header is None:
            raise NoMetadataFound("the file has no metadata section")
        return beginning.metadata

    return read_snapshot(path, read, parts=True)


def _as_text(value: object, compact: bool) -> str:
    return json_text(value, compact, getattr(sys.stdout, "encoding", None) or "ascii")


def _replacement(name: str) -> Change:
    """Return a function that replaces any metadata by those in a file."""
    new = read_metadata(name)
    if new is None:
        raise Refusal(
            "metadata file '%s' is null, which counts as none; {} can be set" % name,
            EXIT_USAGE,
        )
    return lambda old: new


def _update(args: Namespace) -> Change:
    """Return a function that removes keys of the user and then sets keys."""
    from ...serializers import is_array, user_metadata

    edit = _edit(args)

    def change(old: Json) -> Json:
        beside = "metadata beside the array" if is_array(old) else "metadata"
        return edit(user_metadata(old), beside)

    return change


def _edit(args: Namespace) -> Callable[[Json, str], Json]:
    """Return a function that removes and sets keys of a value, named in messages."""
    values = dict(map(_parse_update, args.update))

    def edit(old: Json, noun: str) -> Json:
        if old is None:  # also the value for a file without metadata
            old = {}
        if not isinstance(old, dict):
            raise Refusal(
                "'%s': the %s are no JSON object, so they have no keys"
                % (args.file_, noun),
                EXIT_COULD_NOT,
            )
        missing = [key for key in args.remove if key not in old]
        if missing:
            raise Refusal(
                "'%s': the %s have no key '%s'%s"
                % (
                    args.file_,
                    noun,
                    missing[0],
                    ", but these: " + ", ".join(sorted(old))
                    if old
                    else ": there are no keys",
                ),
                EXIT_COULD_NOT,
            )
        kept = {key: old[key] for key in old if key not in args.remove}
        return {**kept, **values}

    return edit


def _parse_update(argument: str) -> tuple[str, Json]:
    key, equals, text = argument.partition("=")
    if not equals:
        raise Refusal("--update: expected KEY=JSON, found '%s'" % argument, EXIT_USAGE)
    hint = "; text needs JSON quotes inside the quotes of the shell: '%s=\"%s\"'" % (
        key,
        text.strip("\"'"),
    )
    try:
        return key, parse_json(text, "--update %s" % key)
    except ValueError as error:
        raise Refusal(
            "--update %s: '%s' is not valid JSON: %s%s" % (key, text, error, hint),
            EXIT_USAGE,
        ) from error
