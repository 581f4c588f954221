"""``blpk config``: show the settings in force and their sources."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from .. import settings
from ..console import console
from ..display import say_json
from ..options import add


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    variables = [settings.variable_for(name) for name in settings.CHECKS]
    parser.description = (
        "show the settings in force and where each comes from: an environment\n"
        "variable, the configuration file, or the defaults. An option on the command\n"
        "line wins over all of these.\n\n"
        "variables: %s; %s names another configuration file\n\n"
        "keys of the file: %s"
        % (" ".join(variables), settings.CONFIG_VARIABLE, " ".join(settings.CHECKS))
    )
    parser.epilog = (
        "examples:\n"
        "  %(prog)s\n"
        "  BLPK_CODEC=zstd %(prog)s\n"
        '  $EDITOR "$(%(prog)s --path)"'
    )
    how = parser.add_mutually_exclusive_group()
    add(how, "--path", "show the name of the configuration file")
    add(how, "--json", "show everything as JSON")


def writes_data(args: Namespace) -> bool:
    """Return whether a program is to read the path."""
    return bool(args.path)


def run(args: Namespace) -> None:
    """Show the settings, or the path of the configuration file."""
    if args.path:
        console.put_line(settings.path())
        return
    found = settings.in_force()
    if args.json:
        shown = {
            name: {"value": value, "source": source}
            for name, (value, source) in found.items()
        }
        say_json({"file": settings.path(), "settings": shown})
        return
    width = max(map(len, found))
    texts = {name: _text(value) for name, (value, _) in found.items()}
    values = max(map(len, texts.values()))
    for name, (_, source) in found.items():
        console.say("%-*s  %-*s  %s" % (width, name, values, texts[name], source))


def _text(value: object) -> str:
    """Return the spelling of a value in the configuration file."""
    return str(value).lower() if isinstance(value, bool) else str(value)
