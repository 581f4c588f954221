"""``blpk help``: show the help of the command, or of a verb."""

from __future__ import annotations

from ..options import add

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    """Add the argument of the verb."""
    parser.description = "show the help of the command, or of a subcommand"
    add(parser, "verb <subcommand>", "compress, for example", nargs="?")


def run(args: Namespace) -> None:
    """Show the help, and exit."""
    from ..parser import parse

    parse(["--help"] if args.verb is None else [args.verb, "--help"])
