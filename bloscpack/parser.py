"""The command line of ``blpk``: what it may say, and what that means.

A verb learns its options when it is called for: knowing all of them would take longer
than ``blpk info`` does.
"""

from __future__ import annotations

import argparse
import os
import sys

from .constants import (
    EXTENSION,
    MAX_BUFFERSIZE,
    MAX_CLEVEL,
    MAX_THREADS,
    MIN_CLEVEL,
    SUFFIXES,
)
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

COMPRESS_EXAMPLES = """examples:
  %(prog)s data.bin                     to data.bin.blp
  %(prog)s -c zstd -t 4 data.bin out.blp
  %(prog)s --output-dir packed *.bin    each to packed/NAME.blp
  tar c folder | %(prog)s - - > folder.tar.blp
"""
DECOMPRESS_EXAMPLES = """examples:
  %(prog)s data.bin.blp                 to data.bin
  %(prog)s data.bin.blp other.bin
  %(prog)s --rm *.blp x.blp y.blp       each beside it, and remove it
  %(prog)s - - < folder.tar.blp | tar x
"""


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


class _Usual(int):
    """A number that nobody has asked for."""


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


def _add_npy_option(group: Any, help_: str) -> None:
    group.add_argument("--npy", action="store_true", help=help_)


def _add_metadata_option(group: Any) -> None:
    group.add_argument(
        "-m",
        "--metadata",
        metavar="<metadata>",
        help="file containing the metadata, must contain valid JSON",
    )


def _add_files(parser: Any, verb: str) -> None:
    """Add the names of inputs and outputs, and what is said about them."""
    parser.set_defaults(refuse=parser.error)
    parser.add_argument(
        "in_file", metavar="<in_file>", nargs="?", help="file to be %sed" % verb
    )
    parser.add_argument(
        "out_file", metavar="<out_file>", nargs="?", help="file to %s to" % verb
    )
    parser.add_argument(
        "more",
        metavar="<file>",
        nargs="*",
        help="with three names or more, all are files to be %sed" % verb,
    )
    group = parser.add_argument_group(title="files")
    group.add_argument("--output", metavar="<file>", help="file to %s to" % verb)
    group.add_argument(
        "--output-dir", metavar="<folder>", help="put all outputs into a folder"
    )
    group.add_argument(
        "--suffix",
        metavar="<text>",
        default=EXTENSION,
        help="end of the names of compressed files (default: %s)" % EXTENSION,
    )
    group.add_argument(
        "--files-from",
        metavar="<file>",
        help="names of more inputs, one a line, or ended by zero bytes",
    )
    group.add_argument(
        "-r",
        "--recursive",
        action="store_true",
        help="%s the files in folders and all below" % verb,
    )
    group.add_argument(
        "--rm",
        action="store_true",
        help="remove an input when its output is safe on the disk",
    )
    group.add_argument(
        "--no-preserve",
        action="store_false",
        dest="preserve",
        help="don't give outputs the times and permissions of inputs",
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
    _add_npy_option(group, "the input is a .npy file: store its array")
    group.add_argument(
        "--max-app-chunks",
        metavar="<n>",
        type=int,
        help="leave room in the offset table for so many chunks (default: 10 x)",
    )
    group.add_argument(
        "--max-meta-size",
        metavar="<size>",
        type=_size,
        help="leave so much room for metadata (default: 10 x)",
    )
    group.add_argument(
        "--meta-codec", metavar="<codec>", help="codec for metadata: zlib or None"
    )
    group.add_argument(
        "--meta-checksum",
        metavar="<checksum>",
        help="checksum for metadata, one of those above",
    )
    _add_files(parser, "compress")
    parser.epilog = COMPRESS_EXAMPLES


def _decompress(parser: Any) -> None:
    parser.add_argument(
        "-e",
        "--no-check-extension",
        action="store_true",
        help="disable checking input file for extension (*.blp)\n"
        "(requires use of <out_file>)",
    )
    parser.add_argument(
        "--metadata-to",
        metavar="<file>",
        help="write the metadata to a file, as JSON",
    )
    _add_npy_option(parser, "write the array as a .npy file")
    _add_files(parser, "decompress")
    parser.epilog = DECOMPRESS_EXAMPLES


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
    _add_npy_option(parser, "append the rows of a .npy file to an array")


def _info(parser: Any) -> None:
    parser.add_argument(
        "--json", action="store_true", help="print an object with all that is known"
    )
    parser.add_argument("file_", metavar="<file>", help="file to show info for")


def _with_settings(verb: str, learn: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return what teaches a verb its options, with the defaults that a user has set."""

    def learn_all(parser: Any) -> None:
        from .settings import as_arguments

        learn(parser)
        found = as_arguments(verb)
        if "nthreads" in found:
            found["usual_nthreads"] = found.pop("nthreads")
        parser.set_defaults(**found)

    return learn_all


def _learn_from_module(name: str) -> Callable[[Any], None]:
    """Return what teaches a verb its options that has a module of its own."""

    def learn(parser: Any) -> None:
        from importlib import import_module

        import_module(".verbs." + name, __package__).learn(parser)

    return learn


# name → letter, if it has one, help, and what teaches it its options: by default the
# module of that name in `verbs`.
VERBS: dict[str, tuple[str | None, str, Callable[[Any], None] | None]] = {
    "compress": (
        "c",
        "perform compression on file",
        _compress,
    ),
    "decompress": (
        "d",
        "perform decompression on file",
        _decompress,
    ),
    "append": (
        "a",
        "append data to a compressed file",
        _append,
    ),
    "info": ("i", "print information about a compressed file", _info),
    "list": ("l", "show a table of compressed files", None),
    "cat": (None, "write plain bytes, or rows of an array, to standard output", None),
    "map": (None, "draw how well each stretch of a file compresses", None),
    "estimate": ("e", "tell what decompressing will take", None),
    "tune": ("t", "find good settings for data", None),
    "verify": ("v", "check everything in compressed files", None),
    "recover": ("r", "save what is intact in a damaged file", None),
    "metadata": ("m", "print or change the metadata of a compressed file", None),
    "config": (None, "show the settings in force and where they come from", None),
    "completion": (None, "print a completion script for a shell", None),
}
# Those without defaults that a user may set.
UNSETTLED_VERBS = ("info", "list", "metadata", "config", "completion")
VERBS_OF_LETTERS = {letter: name for name, (letter, *_) in VERBS.items() if letter}


class _Parser(argparse.ArgumentParser):
    """The parser of the command line, which has an idea what a misspelt verb meant."""

    def error(self, message: str) -> NoReturn:
        """Show usage and message, and leave."""
        if "invalid choice" in message:
            from difflib import get_close_matches

            misspelt = message.partition("invalid choice: ")[2].split("'")[1]
            for verb in get_close_matches(misspelt, VERBS, 1):
                message += ". Did you mean '%s'?" % verb
        super().error(message)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return the arguments, understood. Leaves the program where they are wrong."""
    parser = create_parser(settled=True)
    args, rest = parser.parse_known_args(arguments)
    if args.subcommand is None:
        parser.error("too few arguments")
    # A default of the verb would win over what stands in front of it.
    wanted = getattr(args, "usual_nthreads", None)
    if isinstance(args.nthreads, _Usual):
        args.nthreads = int(args.nthreads) if wanted is None else wanted
    args.__dict__.pop("usual_nthreads", None)
    # argparse takes names behind an option for unknown arguments.
    if rest and (not hasattr(args, "more") or any(_is_option(arg) for arg in rest)):
        parser.error("unrecognized arguments: %s" % " ".join(rest))
    if hasattr(args, "more"):
        if args.out_file is None and rest:
            args.out_file = rest.pop(0)
        args.more += rest
        if args.in_file is None and args.files_from is None:
            args.refuse("the following arguments are required: <in_file>")
        del args.refuse
    return args


def _is_option(argument: str) -> bool:
    return argument.startswith("-") and argument != "-"


def create_parser(*, settled: bool = False) -> argparse.ArgumentParser:
    """Return the parser of the command line; `settled`: with the user's defaults."""
    parser = _Parser(
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
    levels.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="say nothing but errors",
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
        default=_Usual(min(available_cpus(), MAX_THREADS)),
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
    progress = group.add_mutually_exclusive_group()
    progress.add_argument(
        "--progress",
        action="store_true",
        default=None,
        help="show a progress bar (default: on a terminal, after a second)",
    )
    progress.add_argument(
        "--no-progress", action="store_false", dest="progress", help="show none"
    )
    subparsers = parser.add_subparsers(
        title="subcommands", metavar="", dest="subcommand", parser_class=Verb
    )
    for name, (letter, help_, learn) in VERBS.items():
        learn = learn or _learn_from_module(name)
        if settled and name not in UNSETTLED_VERBS:
            learn = _with_settings(name, learn)
        subparsers.add_parser(name, help=help_, learn=learn)
        if letter:
            subparsers.add_parser(letter, help="alias for '%s'" % name, learn=learn)
    return parser


def _size(text: str) -> int:
    """Return the bytes of a number that may have a suffix."""
    from .pretty import reverse_pretty

    try:
        return reverse_pretty(text) if text[-1:] in SUFFIXES else int(text)
    except ValueError as error:
        raise Refusal(str(error), EXIT_USAGE) from error


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
