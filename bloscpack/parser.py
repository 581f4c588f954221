"""The command line of ``blpk``: what it may say, and what that means.

A verb learns its options when it is called for: knowing all of them would take longer
than ``blpk info`` does.
"""

from __future__ import annotations

import argparse
import os
import sys

from .constants import MAX_BUFFERSIZE, MAX_CLEVEL, MAX_THREADS, MIN_CLEVEL, SUFFIXES
from .defaults import (
    DEFAULT_CHECKSUM,
    DEFAULT_CHUNK_SIZE,
    DEFAULT_CLEVEL,
    DEFAULT_CNAME,
    DEFAULT_OFFSETS,
    DEFAULT_SHUFFLE,
    DEFAULT_TYPESIZE,
    available_cpus,
)
from .exceptions import UsageError
from .outcomes import EXIT_OK, EXIT_USAGE, Refusal

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn

BITSHUFFLE = 2


class BloscPackCustomFormatter(argparse.HelpFormatter):
    """Keeps the line ends that a help text has."""

    def __init__(self, prog: str, **kwargs: Any) -> None:
        # argparse would import shutil for this, long before any help is shown.
        if "width" not in kwargs and not (sys.stdout and sys.stdout.isatty()):
            kwargs["width"] = int(os.environ.get("COLUMNS") or 80) - 2
        super().__init__(prog, **kwargs)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return "".join(indent + line for line in text.splitlines(keepends=True))
        return super()._fill_text(text, width, indent)

    def _split_lines(self, text: str, width: int) -> list[str]:
        if "\n" in text:
            return text.splitlines()
        return super()._split_lines(text, width)


class Verb(argparse.ArgumentParser):
    """The parser of a verb, made when it is first looked at: by `learn`."""

    def __init__(self, learn: Callable[[Any], None], **kwargs: Any) -> None:
        self._unmade = learn, kwargs

    def __getattr__(self, name: str) -> Any:
        # Called only for what is not there, as everything is before it is made.
        if "_unmade" not in self.__dict__:
            raise AttributeError(name)
        learn, kwargs = self.__dict__.pop("_unmade")
        super().__init__(formatter_class=BloscPackCustomFormatter, **kwargs)
        learn(self)
        return getattr(self, name)


class _Codecs:
    """The codecs of the installed Blosc, asked for when they are needed."""

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    @staticmethod
    def _names() -> list[str]:
        from .constants import CNAME_AVAIL

        return CNAME_AVAIL


class _Version(argparse.Action):
    """Shows the versions of Bloscpack, python-blosc and Blosc."""

    def __call__(self, parser: argparse.ArgumentParser, *args: Any) -> NoReturn:
        from .commands import version

        version()
        parser.exit(EXIT_OK)


def _add_blosc_group(parser: argparse.ArgumentParser, typesize: int | None) -> None:
    shown = "that of the file" if typesize is None else typesize
    group = parser.add_argument_group(title="blosc settings")
    group.add_argument(
        "-t",
        "--typesize",
        metavar="<size>",
        default=typesize,
        type=int,
        help="typesize for blosc (default: %s)" % shown,
    )
    group.add_argument(
        "-l",
        "--clevel",
        default=DEFAULT_CLEVEL,
        choices=range(MIN_CLEVEL, MAX_CLEVEL + 1),
        metavar="[0, 9]",
        type=int,
        help="compression level (default: %d)" % DEFAULT_CLEVEL,
    )
    filters = group.add_mutually_exclusive_group()
    filters.add_argument(
        "-s",
        "--no-shuffle",
        action="store_const",
        const=False,
        default=DEFAULT_SHUFFLE,
        dest="shuffle",
        help="deactivate shuffle",
    )
    filters.add_argument(
        "--bitshuffle",
        action="store_const",
        const=BITSHUFFLE,
        default=DEFAULT_SHUFFLE,
        dest="shuffle",
        help="shuffle bits instead of bytes",
    )
    group.add_argument(
        "-c",
        "--codec",
        metavar="<codec>",
        choices=_Codecs(),
        default=DEFAULT_CNAME,
        dest="cname",
        help="codec to be used by Blosc: \n%(choices)s\n (default: %(default)s)",
    )


def _add_metadata_option(group: Any) -> None:
    group.add_argument(
        "-m",
        "--metadata",
        metavar="<metadata>",
        help="file containing the metadata, must contain valid JSON",
    )


def _compress(parser: Any) -> None:
    from .checksums import CHECKSUMS_AVAIL
    from .pretty import join_with_eol

    _add_blosc_group(parser, DEFAULT_TYPESIZE)
    group = parser.add_argument_group(title="bloscpack settings")
    group.add_argument(
        "-z",
        "--chunk-size",
        metavar="<size>",
        type=_chunk_size,
        default=DEFAULT_CHUNK_SIZE,
        help="set desired chunk size or 'max' (default: %s)" % DEFAULT_CHUNK_SIZE,
    )
    names = [CHECKSUMS_AVAIL[i : i + 3] for i in range(0, len(CHECKSUMS_AVAIL), 3)]
    group.add_argument(
        "-k",
        "--checksum",
        metavar="<checksum>",
        choices=CHECKSUMS_AVAIL,
        default=DEFAULT_CHECKSUM,
        help="set desired checksum:\n%s (default: %s)"
        % ("".join(map(join_with_eol, names)), DEFAULT_CHECKSUM),
    )
    group.add_argument(
        "-o",
        "--no-offsets",
        action="store_false",
        default=DEFAULT_OFFSETS,
        dest="offsets",
        help="deactivate offsets",
    )
    _add_metadata_option(group)
    parser.add_argument("in_file", metavar="<in_file>", help="file to be compressed")
    parser.add_argument(
        "out_file",
        metavar="<out_file>",
        nargs="?",
        help="file to compress to",
    )


def _decompress(parser: Any) -> None:
    parser.add_argument(
        "-e",
        "--no-check-extension",
        action="store_true",
        help="disable checking input file for extension (*.blp)\n"
        "(requires use of <out_file>)",
    )
    parser.add_argument("in_file", metavar="<in_file>", help="file to be decompressed")
    parser.add_argument(
        "out_file",
        metavar="<out_file>",
        nargs="?",
        help="file to decompress to",
    )


def _append(parser: Any) -> None:
    _add_blosc_group(parser, None)
    parser.add_argument(
        "original_file", metavar="<original_file>", help="file to append to"
    )
    parser.add_argument("new_file", metavar="<new_file>", help="file to append from")
    parser.add_argument(
        "-e",
        "--no-check-extension",
        action="store_true",
        help="disable checking original file for extension (*.blp)",
    )
    _add_metadata_option(parser)


def _info(parser: Any) -> None:
    parser.add_argument("file_", metavar="<file>", help="file to show info for")


VERBS = {
    "compress": ("perform compression on file", _compress),
    "decompress": ("perform decompression on file", _decompress),
    "append": ("append data to a compressed file", _append),
    "info": ("print information about a compressed file", _info),
}


def create_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="blpk",
        formatter_class=BloscPackCustomFormatter,
        description="command line de/compression with blosc",
        epilog="Additional help for subcommands is available:\n"
        "  %(prog)s 'subcommand' [ -h | --help ]",
    )
    parser.add_argument(
        "--version",
        action=_Version,
        nargs=0,
        dest=argparse.SUPPRESS,
        default=argparse.SUPPRESS,
        help="show program's version number and exit",
    )
    levels = parser.add_mutually_exclusive_group()
    levels.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="be verbose about actions",
    )
    levels.add_argument(
        "-d",
        "--debug",
        action="store_true",
        help="print debugging output too",
    )
    group = parser.add_argument_group(title="global options")
    group.add_argument(
        "-f",
        "--force",
        action="store_true",
        help="disable overwrite checks for existing files\n(use with caution)",
    )
    group.add_argument(
        "-n",
        "--nthreads",
        metavar="[1, %d]" % MAX_THREADS,
        type=int,
        default=min(available_cpus(), MAX_THREADS),
        help="set number of threads, (default: %(default)s (ncores))",
    )
    syncing = group.add_mutually_exclusive_group()
    syncing.add_argument(
        "--sync",
        action="store_true",
        default=None,
        help="return only when the output is on the disk (default: where an existing\n"
        "file is replaced or changed)",
    )
    syncing.add_argument(
        "--no-sync",
        action="store_false",
        dest="sync",
        help="leave it to the system when the output gets to the disk",
    )
    subparsers = parser.add_subparsers(
        title="subcommands", metavar="", dest="subcommand", parser_class=Verb
    )
    for name, (help_, learn) in VERBS.items():
        letter = name[0]
        for called, text in ((name, help_), (letter, "alias for '%s'" % name)):
            subparsers.add_parser(called, help=text, learn=learn)
    return parser


def _chunk_size(text: str) -> int:
    """Return the bytes that ``-z`` asks for: a number, one with a suffix, or 'max'."""
    from .args import parse_chunk_size
    from .pretty import reverse_pretty

    if text == "max":
        return MAX_BUFFERSIZE
    # argparse would hide what a ValueError says.
    try:
        size = reverse_pretty(text) if text[-1:] in SUFFIXES else int(text)
    except ValueError as error:
        raise Refusal("-z error: %s" % error, EXIT_USAGE) from error
    if size <= 0:
        raise Refusal("-z must be > 0", EXIT_USAGE)
    try:
        return parse_chunk_size(size)
    except UsageError as error:
        raise Refusal(str(error), EXIT_USAGE) from error


# Names kept from 0.16

BloscPackCustomFormatter.__module__ = "bloscpack.cli"
