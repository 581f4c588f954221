"""The command line of ``blpk``: what it may say, and what that means.

A verb learns its options when it is called for: knowing all of them would take longer
than ``blpk info`` does.
"""

from __future__ import annotations

import argparse
import os
import sys

from ..constants import MAX_THREADS
from ..defaults import available_cpus
from .exit_codes import EXIT_OK, EXIT_USAGE

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn


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
        return "\n".join(indent + line for line in _wrapped(text, width - len(indent)))

    def _split_lines(self, text: str, width: int) -> list[str]:
        if "\n" in text:
            return text.splitlines()
        return _wrapped(text, width)


def _wrapped(text: str, width: int) -> list[str]:
    """Return text as lines; importing textwrap takes longer than this."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] += " " * bool(lines[-1]) + word
    return lines


class _DefaultNumber(int):
    """A number that nobody has asked for."""


class Verb(argparse.ArgumentParser):
    """The parser of a verb, made when it is first looked at: by `add_arguments`."""

    def __init__(self, add_arguments: Callable[[Any], None], **kwargs: Any) -> None:
        self._unmade = add_arguments, kwargs

    def __getattr__(self, name: str) -> Any:
        # Called only for what is not there, as everything is before it is made.
        if "_unmade" not in self.__dict__:
            raise AttributeError(name)
        add_arguments, kwargs = self.__dict__.pop("_unmade")
        super().__init__(formatter_class=BloscPackCustomFormatter, **kwargs)
        add_arguments(self)
        return getattr(self, name)


class _Version(argparse.Action):
    """Shows the versions of Bloscpack, python-blosc and Blosc."""

    def __call__(self, parser: argparse.ArgumentParser, *args: Any) -> NoReturn:
        from .quick_answers import version

        version()
        parser.exit(EXIT_OK)


# name → letter, if it has one, and help; `verbs` has a module of that name.
VERBS: dict[str, tuple[str | None, str]] = {
    "compress": ("c", "perform compression on file"),
    "decompress": ("d", "perform decompression on file"),
    "append": ("a", "append data to a compressed file"),
    "info": ("i", "print information about a compressed file"),
    "list": ("l", "show a table of compressed files"),
    "cat": (None, "write plain bytes, or rows of an array, to standard output"),
    "map": (None, "draw how well each stretch of a file compresses"),
    "estimate": ("e", "tell what decompressing will take"),
    "tune": ("t", "find good settings for data"),
    "verify": ("v", "check everything in compressed files"),
    "recover": ("r", "save what is intact in a damaged file"),
    "metadata": ("m", "print or change the metadata of a compressed file"),
    "config": (None, "show the settings in force and where they come from"),
    "completion": (None, "print a completion script for a shell"),
}
# Those without defaults that a user may set.
VERBS_WITHOUT_SETTINGS = ("info", "list", "metadata", "config", "completion")
# What the like is called elsewhere.
OTHER_NAMES = {
    "check": "verify",
    "extract": "decompress",
    "help": "--help",
    "ls": "list",
    "pack": "compress",
    "repair": "recover",
    "test": "verify",
    "unpack": "decompress",
    "version": "--version",
}
# Those that take any number of names.
FILE_VERBS = ("compress", "decompress")
VERBS_OF_LETTERS = {letter: verb for verb, (letter, _) in VERBS.items() if letter}


def _arguments_adder(verb: str, with_user_defaults: bool) -> Callable[[Any], None]:
    """Return what teaches a verb its options, perhaps with the user's defaults."""

    def add_arguments(parser: Any) -> None:
        from importlib import import_module

        import_module(".verbs." + verb, __package__).add_arguments(parser)
        if not with_user_defaults or verb in VERBS_WITHOUT_SETTINGS:
            return
        from .settings import as_arguments

        found = as_arguments(verb)
        if "nthreads" in found:
            found["default_nthreads"] = found.pop("nthreads")
        parser.set_defaults(**found)

    return add_arguments


class _Parser(argparse.ArgumentParser):
    """The parser of the command line, which has an idea what a misspelt verb meant."""

    def error(self, message: str) -> NoReturn:
        """Show usage and message, and leave."""
        if "invalid choice" in message:
            from difflib import get_close_matches

            # The list of verbs has no name in the help.
            message = message.replace("argument : ", "argument subcommand: ", 1)
            misspelt = message.partition("invalid choice: ")[2].split("'")[1]
            meant = OTHER_NAMES.get(misspelt)
            for verb in [meant] if meant else get_close_matches(misspelt, VERBS, 1):
                message += ". Did you mean '%s'?" % verb
        super().error(message)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return the arguments, understood. Leaves the program where they are wrong."""
    parser = create_parser(with_user_defaults=True)
    arguments, names = _without_names(arguments)
    args, rest = parser.parse_known_args(arguments)
    if args.subcommand is None:
        if rest:
            _refuse(parser, rest)
        parser.print_help(sys.stderr)
        parser.exit(EXIT_USAGE, "%s: error: too few arguments\n" % parser.prog)
    _apply_user_defaults(args)
    # argparse takes names behind an option for unknown arguments.
    if rest and (not hasattr(args, "more") or any(_is_option(arg) for arg in rest)):
        _refuse(parser, rest)
    if hasattr(args, "more"):
        _take_names(args, rest + names)
    return args


def _refuse(parser: argparse.ArgumentParser, rest: list[str]) -> NoReturn:
    """Leave because of arguments that are not known, at least not where they are."""
    message = "unrecognized arguments: %s" % " ".join(rest)
    misplaced = [arg for arg in rest if arg in parser._option_string_actions]
    if misplaced:
        message += " (%s must stand in front of the subcommand)" % misplaced[0]
    parser.error(message)


def _without_names(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return what stands in front of ``--``, and the names behind it.

    For verbs that take any number of names; the others leave it to argparse.
    """
    verbs = (VERBS_OF_LETTERS.get(argument, argument) for argument in arguments)
    verb = next((verb for verb in verbs if verb in VERBS), None)
    if "--" not in arguments or verb not in FILE_VERBS:
        return arguments, []
    end = arguments.index("--")
    return arguments[:end], arguments[end + 1 :]


def _apply_user_defaults(args: argparse.Namespace) -> None:
    """Give arguments that nobody has given the values that the user has set."""
    given = vars(args)
    # A default of the verb would win over what stands in front of it.
    wanted = given.pop("default_nthreads", None)
    if isinstance(args.nthreads, _DefaultNumber):
        args.nthreads = int(args.nthreads) if wanted is None else wanted
    for name, value in given.items():
        if hasattr(value, "as_argument"):
            given[name] = value.as_argument()


def _take_names(args: argparse.Namespace, names: list[str]) -> None:
    found = [args.in_file, args.out_file, *args.more, *names]
    found = [name for name in found if name is not None]
    args.in_file, args.out_file, *args.more = [*found, None, None][: max(2, len(found))]
    if args.in_file is None and args.files_from is None:
        args.refuse("the following arguments are required: <in_file>")
    del args.refuse


def _is_option(argument: str) -> bool:
    return argument.startswith("-") and argument != "-"


def create_parser(*, with_user_defaults: bool = False) -> argparse.ArgumentParser:
    """Return the parser of the command line, perhaps with the user's defaults."""
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
    _add_levels(parser.add_mutually_exclusive_group())
    _add_global_options(parser.add_argument_group(title="global options"))
    subparsers = parser.add_subparsers(
        title="subcommands", metavar="", dest="subcommand", parser_class=Verb
    )
    for name, (letter, help_) in VERBS.items():
        add_arguments = _arguments_adder(name, with_user_defaults)
        subparsers.add_parser(name, help=help_, add_arguments=add_arguments)
        if letter:
            subparsers.add_parser(
                letter, help="alias for '%s'" % name, add_arguments=add_arguments
            )
    return parser


def _add_levels(group: Any) -> None:
    """Add how much is to be said."""
    group.add_argument(
        "-v", "--verbose", action="store_true", help="be verbose about actions"
    )
    group.add_argument(
        "-d", "--debug", action="store_true", help="print debugging output too"
    )
    group.add_argument(
        "-q", "--quiet", action="store_true", help="say nothing but errors"
    )


def _add_global_options(group: Any) -> None:
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
        default=_DefaultNumber(min(available_cpus(), MAX_THREADS)),
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


# Names kept from 0.16

BloscPackCustomFormatter.__module__ = "bloscpack.cli"
