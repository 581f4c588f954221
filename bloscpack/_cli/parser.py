"""The parser of the command line.

Importing all verbs takes longer than ``blpk info`` as a whole. The parser therefore
imports the module of a verb only when it parses that verb or shows its help.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress

from ..constants import MAX_THREADS
from ..defaults import available_cpus
from ..log import printable
from . import verb_table
from .exit_codes import EXIT_OK, EXIT_USAGE

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import ArgumentParser, _ArgumentGroup
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any, NoReturn

    from .verb_table import VerbRecord


class BloscPackCustomFormatter(argparse.HelpFormatter):
    """Formats help; line ends inside a help text are kept."""

    def __init__(self, prog: str, **kwargs: Any) -> None:
        # argparse would import shutil to find the width, even if no help is shown.
        if "width" not in kwargs and not (sys.stdout and sys.stdout.isatty()):
            columns = os.environ.get("COLUMNS", "")
            kwargs["width"] = int(columns if columns.isdecimal() else 80) - 2
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
    """Return text as lines. Importing textwrap would take longer than this loop."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] += " " * bool(lines[-1]) + word
    return lines


class _DefaultNumber(int):
    """The default number of threads, of another class than a number given with -n."""


class _BaseParser(argparse.ArgumentParser):
    """A parser whose exit code does not depend on whether its messages are written.

    Up to Python 3.11 argparse passes on the error of a closed or full stream. If
    standard error is closed, argparse writes the usage to standard output instead.
    """

    def error(self, message: str) -> NoReturn:
        """Show usage and message on standard error, and exit.

        The message may contain arguments, with any characters.
        """
        super().error(printable(message))

    def print_usage(self, file: Any = None) -> None:
        """Show the usage on standard error, if that is open."""
        if file is not None or sys.stderr is not None:
            super().print_usage(file)

    def _print_message(self, message: str, file: Any = None) -> None:
        with suppress(AttributeError, OSError):  # None has no method `write`
            super()._print_message(message, file)


class _VerbParser(_BaseParser):
    """The parser of a verb; it is initialized at the first access to an attribute."""

    def __init__(
        self, add_arguments: Callable[[ArgumentParser], None], **kwargs: Any
    ) -> None:
        self._postponed = add_arguments, kwargs

    def __getattr__(self, name: str) -> Any:
        # Called for missing attributes only: all of them before the initialization.
        if "_postponed" not in self.__dict__:
            raise AttributeError(name)
        add_arguments, kwargs = self.__dict__.pop("_postponed")
        super().__init__(formatter_class=BloscPackCustomFormatter, **kwargs)
        add_arguments(self)
        return getattr(self, name)


class _Version(argparse.Action):
    """Show the versions of Bloscpack, python-blosc and Blosc, and exit."""

    def __call__(self, parser: argparse.ArgumentParser, *args: object) -> NoReturn:
        from .quick_answers import version

        version()
        parser.exit(EXIT_OK)


def _arguments_adder(
    verb: VerbRecord, with_user_defaults: bool
) -> Callable[[ArgumentParser], None]:
    """Return the function that adds the arguments of a verb to its parser."""

    def add_arguments(parser: ArgumentParser) -> None:
        module_of(verb).add_arguments(parser)
        if not with_user_defaults or not verb.settings:
            return
        from .settings import as_arguments

        found: dict[str, object] = dict(as_arguments(verb.settings))
        if "nthreads" in found:
            found["default_nthreads"] = found.pop("nthreads")
        parser.set_defaults(**found)

    return add_arguments


def module_of(verb: VerbRecord) -> ModuleType:
    """Return the module that implements a verb."""
    from importlib import import_module

    return import_module(".verbs." + verb.name, __package__)


class _Parser(_BaseParser):
    """The parser of the whole command line; it suggests a verb for a misspelt one."""

    def error(self, message: str) -> NoReturn:
        """Show usage and message on standard error, and exit."""
        if "invalid choice" in message:
            # The list of verbs has no metavar, so argparse shows an empty name.
            message = message.replace("argument : ", "argument subcommand: ", 1)
            misspelt = message.partition("invalid choice: ")[2].split("'")[1]
            for suggestion in verb_table.suggestions(misspelt):
                message += ". Did you mean '%s'?" % suggestion
        super().error(message)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return the parsed arguments. Wrong arguments end the program."""
    parser = create_parser(with_user_defaults=True)
    arguments, names = _split_at_double_dash(arguments)
    args, rest = parser.parse_known_args(arguments)
    if args.subcommand is None:
        if rest:
            _refuse(parser, rest)
        if sys.stderr is not None:
            parser.print_help(sys.stderr)
        parser.exit(EXIT_USAGE, "%s: error: too few arguments\n" % parser.prog)
    _apply_user_defaults(args)
    # argparse returns file names that follow an option as unknown arguments.
    if rest and (not hasattr(args, "more") or any(_is_option(arg) for arg in rest)):
        _refuse(parser, rest)
    if hasattr(args, "more"):
        _take_names(args, rest + names)
    return args


def _refuse(parser: argparse.ArgumentParser, rest: list[str]) -> NoReturn:
    """Exit with an error: arguments are unknown, or unknown at their position."""
    message = "unrecognized arguments: %s" % " ".join(rest)
    misplaced = [arg for arg in rest if arg in parser._option_string_actions]
    if misplaced:
        message += " (%s must precede the subcommand)" % misplaced[0]
    parser.error(message)


def _split_at_double_dash(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the arguments before ``--``, and the file names after it.

    Only verbs with ``many_files`` need this. For others argparse handles ``--``.
    """
    if "--" not in arguments:
        return arguments, []
    verb = next(filter(None, map(verb_table.find, arguments)), None)
    if verb is None or not verb.many_files:
        return arguments, []
    end = arguments.index("--")
    return arguments[:end], arguments[end + 1 :]


def _apply_user_defaults(args: argparse.Namespace) -> None:
    """Replace defaults by the settings of the user."""
    given = vars(args)
    # A default of the verb named `nthreads` would overwrite the -n before the verb.
    wanted = given.pop("default_nthreads", None)
    if isinstance(args.nthreads, _DefaultNumber):
        args.nthreads = int(args.nthreads) if wanted is None else wanted
    made = [name for name, value in given.items() if hasattr(value, "as_argument")]
    for name in made:
        given[name] = given[name].as_argument()
    # The attributes that the user has set, by options or otherwise.
    args.given = sorted({*made, *given.get("given", ())})


def _take_names(args: argparse.Namespace, names: list[str]) -> None:
    """Distribute all file names over `in_file`, `out_file` and `more`."""
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
        title="subcommands", metavar="", dest="subcommand", parser_class=_VerbParser
    )
    for verb in verb_table.VERBS:
        add_arguments = _arguments_adder(verb, with_user_defaults)
        subparsers.add_parser(verb.name, help=verb.help, add_arguments=add_arguments)
        if verb.letter:
            subparsers.add_parser(
                verb.letter,
                help="alias for '%s'" % verb.name,
                add_arguments=add_arguments,
            )
    return parser


def _add_levels(group: _ArgumentGroup) -> None:
    """Add the options that select which messages are shown."""
    group.add_argument(
        "-v", "--verbose", action="store_true", help="be verbose about actions"
    )
    group.add_argument(
        "-d", "--debug", action="store_true", help="print debugging output too"
    )
    group.add_argument("-q", "--quiet", action="store_true", help="show only errors")


def _add_global_options(group: _ArgumentGroup) -> None:
    """Add the options that precede the verb."""
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
        help="do not wait until the output is on the disk",
    )
    progress = group.add_mutually_exclusive_group()
    progress.add_argument(
        "--progress",
        action="store_true",
        default=None,
        help="show a progress bar (default: on a terminal, after a second)",
    )
    progress.add_argument(
        "--no-progress",
        action="store_false",
        dest="progress",
        help="show no progress bar",
    )


# Names kept from 0.16

BloscPackCustomFormatter.__module__ = "bloscpack.cli"
