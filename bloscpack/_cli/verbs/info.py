"""``blpk info``: show the header and metadata of a file, as 0.16 did, or as JSON."""

from __future__ import annotations

from ..quick_answers import info
from ..stdio import check_exists

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument(
        "--json", action="store_true", help="print a JSON object with all fields"
    )
    parser.add_argument("file_", metavar="<file>", help="file to show info for")


def run(args: Namespace) -> None:
    """Show the information."""
    if not args.json:
        info(args.file_)
        return
    from ...describe import describe
    from ..display import say_json

    check_exists("file", args.file_)
    say_json(describe(args.file_, strict=False))
