"""``blpk append``: add plain data to a Bloscpack file, in place."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ... import log
from ..named import named
from ..options import METADATA, add, add_blosc_options


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    add_blosc_options(parser, None)
    add(parser, "original_file <original_file>", "file or dataset to append to")
    add(parser, "new_file <new_file>", "file or dataset to append from")
    add(
        parser,
        "-e --no-check-extension",
        "disable checking original file for extension (*.blp)",
    )
    add(parser, *METADATA)
    add(parser, "--npy", "append the rows of a .npy file to an array")
    add(
        parser,
        "--grow",
        "rewrite the original file with more room if it has no room for the new "
        "chunks or the metadata",
    )


def run(args: Namespace) -> None:
    """Append the file."""
    log.verbose("getting ready for append")
    named(args.original_file).append(args)
