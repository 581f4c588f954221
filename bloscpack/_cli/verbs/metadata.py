"""``blpk metadata``: show the metadata of a file as JSON, or change them in place.

A change is atomic. The file stays locked between reading the old metadata and writing
the new ones.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from ... import log
from ..._storage.paths import shown_name
from ..._types import Json
from ...exceptions import MetadataSectionTooSmall
from ...serializers import is_array, replaced_metadata, user_metadata
from ..console import console, is_input
from ..exit_codes import Refusal, WrongUsage
from ..named import NamedFile, named
from ..target import metadata_to_set, parse_json
from ..text import finite, json_text

Edit = Callable[[Json, str], Json]


HELP = """\
show the metadata of a file as JSON, or change them in place, within the
space that the file reserves for them; a file without metadata is rewritten.
In an array file the changes are made to the value of the key 'metadata',
beside the description of the array. A dataset has attributes instead.

examples:
  %(prog)s data.blp
  %(prog)s --update 'unit="metre"' --update 'range=[1, 2]' data.blp
  %(prog)s --remove unit data.blp
  %(prog)s --compact a.blp | %(prog)s --set - b.blp
"""


OPTIONS = """\
--compact  show the metadata on a single line
--set <file>  replace the metadata by the JSON in a file, '-' for standard input
--update <key=json>  give a key a value, which is JSON: text needs quotes; may be
    repeated
--remove <key>  remove a key and its value; may be repeated
--grow  rewrite the file if the reserved space is too small
file_ <file>  file or dataset
"""
REPEATED = {"action": "append", "default": []}
PROPERTIES = {"set": {"dest": "set_"}, "update": REPEATED, "remove": REPEATED}


def writes_data(args: Namespace) -> bool:
    """Return whether the metadata are shown, not changed."""
    return args.set_ is None and not args.update and not args.remove


def run(args: Namespace) -> None:
    """Show the metadata or change them."""
    if writes_data(args):
        metadata = _metadata_of(args.file_)
        text = json_text(finite(metadata), args.compact)
        console.put(text + "\n")
        if text != json_text(metadata, args.compact):
            log.notice(
                "JSON has no NaN and no infinities: in '%s' they are null and text"
                % shown_name(args.file_)
            )
        return
    if args.set_ is not None and (args.update or args.remove):
        raise WrongUsage("--set replaces everything: no --update, no --remove")
    if args.compact:
        raise WrongUsage("--compact is for showing, not for changing")
    if is_input(args.file_):
        raise WrongUsage("a file to change can't be standard input")
    edit = _edit(args) if args.set_ is None else _replacement(args.set_)
    is_file = isinstance(named(args.file_), NamedFile)
    change = _change_file if is_file else _change_dataset
    change(args, edit)


def _metadata_of(path: str) -> Json:
    """Return the metadata of a file, or the attributes of a dataset."""
    item = named(path)
    if isinstance(item, NamedFile):
        return item.beginning(needs_metadata=True).metadata
    from ...dataset.group import open_at

    with open_at(path) as node:
        return node.attrs.asdict()


def _replacement(name: str) -> Edit:
    """Return a function that replaces any metadata by those in a file."""
    new = metadata_to_set(name, "; {} can be set")
    return lambda old, noun: new


def _edit(args: Namespace) -> Edit:
    """Return a function that removes and sets keys of a value, named in messages."""
    values = dict(map(_parse_update, args.update))

    def edit(old: Json, noun: str) -> Json:
        if old is None:  # also the value for a file without metadata
            old = {}
        if not isinstance(old, dict):
            raise Refusal(
                "'%s': the %s are no JSON object, so they have no keys"
                % (args.file_, noun)
            )
        missing = [key for key in args.remove if key not in old]
        if missing:
            keys = ", but these: " + ", ".join(sorted(old)) if old else ""
            raise Refusal(
                "'%s': the %s have no key '%s'%s"
                % (args.file_, noun, missing[0], keys or ": there are no keys")
            )
        kept = {key: old[key] for key in old if key not in args.remove}
        return {**kept, **values}

    return edit


def _parse_update(argument: str) -> tuple[str, Json]:
    key, equals, text = argument.partition("=")
    if not equals:
        raise WrongUsage("--update: expected KEY=JSON, found '%s'" % argument)
    hint = "; text needs JSON quotes inside the quotes of the shell: '%s=\"%s\"'"
    hint %= key, text.strip("\"'")
    try:
        return key, parse_json(text, "--update %s" % key)
    except ValueError as error:
        raise WrongUsage(
            "--update %s: '%s' is not valid JSON: %s%s" % (key, text, error, hint)
        ) from error


def _change_file(args: Namespace, edit: Edit) -> None:
    """Replace the metadata of the user in a file by what `edit` returns for them.

    In an array file, the description of the array stays. The second argument of
    `edit` is the name of the metadata in messages.
    """
    from ..._format.append_plan import UNCHANGED
    from ...append import change_metadata

    def changed(old: Json) -> Json:
        noun = "metadata beside the array" if is_array(old) else "metadata"
        new = replaced_metadata(old, edit(user_metadata(old), noun))
        # Compared as text, because 1 and true are not the same in JSON.
        if json_text(new, True, "ascii") == json_text(old, True, "ascii"):
            log.verbose("the metadata are already the same")
            return UNCHANGED
        return new

    grow = args.grow or NamedFile(args.file_).beginning().metadata_header is None
    try:
        change_metadata(args.file_, changed, sync=args.sync is not False, grow=grow)
    except MetadataSectionTooSmall as error:
        error.args = ("%s; --grow rewrites the file with more space" % error.args[0],)
        raise


def _change_dataset(args: Namespace, edit: Edit) -> None:
    """Replace the attributes of a dataset, in one step, by what `edit` returns."""
    from ... import dataset

    with dataset.open(args.file_, "r+", sync=args.sync is not False) as node:
        new = edit(node.attrs.asdict(), "attributes")
        if not isinstance(new, dict):
            raise Refusal("the attributes of '%s' must be a JSON object" % args.file_)
        node.attrs.put(new)
