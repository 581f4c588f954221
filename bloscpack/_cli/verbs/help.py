"""``blpk help``: show the help of the command, or of a verb."""

from __future__ import annotations

from argparse import Namespace

from ..args import parse

HELP = "show the help of the command, or of a subcommand"
OPTIONS = "verb <subcommand>  compress, for example"
PROPERTIES = {"verb": {"nargs": "?"}}


def run(args: Namespace) -> None:
    """Show the help, and exit."""
    parse(["--help"] if args.verb is None else [args.verb, "--help"])
