"""``blpk help``: show the help of the command, or of a verb."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ..options import add

HELP = "show the help of the command, or of a subcommand"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the argument of the verb."""
    add(parser, "verb <subcommand>", "compress, for example", nargs="?")


def run(args: Namespace) -> None:
    """Show the help, and exit."""
    from ..parser import parse

    parse(["--help"] if args.verb is None else [args.verb, "--help"])
