"""``blpk config``: show the settings in force and their sources, and change them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from .. import settings
from ..console import console
from ..display import say_json
from ..exit_codes import WrongUsage
from ..options import add

HELP = """\
show the settings in force and where each comes from: an environment
variable, the configuration file, or the defaults. An option on the command
line wins over all of these. With settings, change the file first.

variables: %s; %s names the file

keys of the file: %s

examples:
  %%(prog)s auto=true          compress with --auto from now on
  %%(prog)s --unset auto       as before
  $EDITOR "$(%%(prog)s --path)"
""" % (
    " ".join(map(settings.variable_for, settings.CHECKS)).replace(
        " BLPK_CHECKSUM", "\nBLPK_CHECKSUM"
    ),
    settings.CONFIG_VARIABLE,
    " ".join(settings.CHECKS),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    how = parser.add_mutually_exclusive_group()
    add(how, "--path", "show the name of the configuration file")
    add(how, "--json", "show everything as JSON")
    add(how, "--unset <name>", "remove a setting from the file", action="append")
    add(parser, "changes <name=value>", "settings for the file", nargs="*")


def writes_data(args: Namespace) -> bool:
    """Return whether a program is to read the path."""
    return bool(args.path)


def run(args: Namespace) -> None:
    """Show the settings, or the path of the configuration file."""
    changes: dict[str, str | None] = dict(map(_change, args.changes))
    unset = dict.fromkeys(args.unset or ())
    for name in changes.keys() & unset:
        raise WrongUsage("'%s' can't be set and unset" % name)
    changes |= unset
    if args.path:
        if changes:
            raise WrongUsage("--path can't be combined with a change")
        console.put_line(settings.path())
        return
    if changes:
        settings.change(changes)
    found = settings.in_force()
    if changes:
        found = {name: found[name] for name in found if name in changes}
    if args.json:
        shown = {
            name: {"value": value, "source": source}
            for name, (value, source) in found.items()
        }
        say_json({"file": settings.path(), "settings": shown})
        return
    width = max(map(len, found), default=0)
    texts = {name: _text(value) for name, (value, _) in found.items()}
    values = max(map(len, texts.values()), default=0)
    for name, (_, source) in found.items():
        console.say("%-*s  %-*s  %s" % (width, name, values, texts[name], source))


def _change(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise WrongUsage("expected a setting such as auto=true, found '%s'" % text)
    return name, value


def _text(value: object) -> str:
    """Return the spelling of a value in the configuration file."""
    return str(value).lower() if isinstance(value, bool) else str(value)
