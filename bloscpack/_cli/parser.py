"""The parser of the command line.

Importing all verbs takes longer than ``blpk info`` as a whole. The parser therefore
imports the module of a verb only when it parses that verb or shows its help.

The global options are options of every verb as well, hidden from its help, so that
they are accepted in any position. Without a verb, and with standard input not a
terminal, ``blpk`` is a filter: it compresses standard input to standard output, or
decompresses it if ``-d`` is given.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial

from ..log import printable
from . import options, verb_table
from .console import STREAM, console
from .display import HelpFormatter
from .exit_codes import DEFAULTS_VARIABLE, EXIT_USAGE

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import ArgumentParser, _ActionsContainer
    from collections.abc import Callable, Iterator
    from types import ModuleType
    from typing import Any, NoReturn

    from _typeshed import SupportsWrite

    from .user_defaults import UserDefaults
    from .verb_table import VerbRecord


# Maximum number of lines of the usage in front of an error.
SHORT = 1
UNKNOWN = "unrecognized arguments: %s"
# Names of a command line without a verb: none, or ``-``.
FILTERED: tuple[tuple[object, ...], ...] = (
    (None, None, []),
    (STREAM, None, []),
    (STREAM, STREAM, []),
)
EPILOG = """Without a subcommand, standard input is compressed to standard output, or
decompressed with -d: tar -I 'blpk --auto' -cf folder.tar.blp folder

Additional help for subcommands is available:
  %(prog)s 'subcommand' [ -h | --help ]"""
# At the end of the help of each verb.
GLOBAL_OPTIONS_TEXT = "'blpk --help' shows the options of all subcommands: -f, -n, ..."
# An abbreviation of an option of 0.16 means that option, whatever was added later.
OPTIONS_OF_016 = frozenset(
    (
        *("--help", "--version", "--verbose", "--debug", "--force", "--nthreads"),
        *("--typesize", "--clevel", "--no-shuffle", "--codec", "--chunk-size"),
        *("--checksum", "--no-offsets", "--metadata", "--no-check-extension"),
    )
)


class _BaseParser(argparse.ArgumentParser):
    """A parser whose exit code does not depend on whether its messages are written.

    Up to Python 3.11 argparse passes on the error of a closed or full stream. If
    standard error is closed, argparse writes the usage to standard output instead.
    """

    # The names of the global options of a verb's parser.
    inherited: frozenset[str] = frozenset()

    def error(self, message: str) -> NoReturn:
        """Show usage and message on standard error, and exit.

        The message may contain arguments, with any characters.
        """
        if sys.stderr is not None:
            self._print_message(self._short_usage(), sys.stderr)
        self.exit(EXIT_USAGE, "%s: error: %s\n" % (self.prog, printable(message)))

    def _short_usage(self) -> str:
        """Return the usage, without the options if it has more than a line."""
        usage = self.format_usage()
        if usage.count("\n") <= SHORT:
            return usage
        formatter = self._get_formatter()
        formatter.add_usage(None, self._get_positional_actions(), ())
        begin, line = "usage: %s " % self.prog, formatter.format_help().rstrip("\n")
        names = line.removeprefix(begin).strip()
        if self._subparsers is not None:
            names = "SUBCOMMAND ..."
        return "%s[-h] [options] %s\n" % (begin, names)

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Check that a value is one of the choices."""
        if action.dest == "subcommand" and value not in (action.choices or ()):
            self.error("there is no subcommand '%s'; --help shows all" % value)
        super()._check_value(action, value)

    def _get_option_tuples(self, option_string: str) -> list[Any]:
        """Return the options that an abbreviation may mean: those of 0.16 first."""
        found = super()._get_option_tuples(option_string)
        if not option_string.startswith("--"):
            return found
        own = [match for match in found if match[1] not in self.inherited]
        return [match for match in own if match[1] in OPTIONS_OF_016] or own or found

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Show the help; raises `OutputLost` if standard output fails."""
        if file is not None or sys.stdout is None:
            super().print_help(file)
            return
        try:
            console.put(self.format_help())
            console.flush()
        except BrokenPipeError:
            pass  # a pager may end at any time

    def _print_message(
        self, message: str, file: SupportsWrite[str] | None = None
    ) -> None:
        try:
            super()._print_message(console.hide(message), file)
        except (AttributeError, OSError):  # None has no method `write`
            return


class _VerbParser(_BaseParser):
    """The parser of a verb; it is initialized at the first access to an attribute."""

    def __init__(
        self, add_arguments: Callable[[ArgumentParser], None], **kwargs: object
    ) -> None:
        self._postponed = add_arguments, kwargs

    def __getattr__(self, name: str) -> object:
        # Called for missing attributes only: all of them before the initialization.
        if "_postponed" not in self.__dict__:
            raise AttributeError(name)
        add_arguments, kwargs = self.__dict__.pop("_postponed")
        super().__init__(formatter_class=HelpFormatter, **kwargs)
        add_arguments(self)
        _inherit_global_options(self)
        return getattr(self, name)

    def format_help(self) -> str:
        """Return the help of the verb, and where to find the global options."""
        return "%s\n%s\n" % (super().format_help(), GLOBAL_OPTIONS_TEXT)

    def parse_known_args(self, args: Any = None, namespace: object = None) -> Any:
        """Return the arguments of the verb, added to the global arguments."""
        if "--auto" in self._option_string_actions:
            options.check_goal(self, args)
        args = list(self._without_negative_values(args))
        return super().parse_known_args(args, namespace)

    def _without_negative_values(self, arguments: list[str]) -> Iterator[str]:
        """Yield arguments; a value like ``-1`` or ``-5:`` is joined to its option.

        argparse reads such a value as an option: ``-1`` to ``-9`` are options of some
        verbs.
        """
        has_levels = "-1" in self._option_string_actions
        end = arguments.index("--") if "--" in arguments else len(arguments)
        waiting: str | None = None
        for argument in arguments[:end]:
            is_number = argument[:1] == "-" and argument[1:].isdecimal()
            if waiting is not None:
                if argument[:1] == "-" and argument[1:2].isdecimal():
                    yield waiting + "=" * waiting.startswith("--") + argument
                    waiting = None
                    continue
                yield waiting
                waiting = None
            elif has_levels and is_number and argument not in options.LEVEL_OPTIONS:
                self.error("the level must be from -1 to -9, not '%s'" % argument)
            if self._takes_value(argument):
                waiting = argument
            else:
                yield argument
        if waiting is not None:
            yield waiting
        yield from arguments[end:]

    def _takes_value(self, argument: str) -> bool:
        """Return whether an argument is an option whose value comes next."""
        action = self._option_string_actions.get(argument)
        if action is None and argument.startswith("--"):
            found = self._get_option_tuples(argument)
            if len(found) == 1 and found[0][-1] is None:
                action = found[0][0]
        return action is not None and action.nargs is None


def _add_arguments(verb: VerbRecord, parser: ArgumentParser) -> None:
    """Add the arguments of a verb to its parser."""
    module = module_of(verb)
    options.set_help(parser, getattr(module, "HELP", ""))
    module.add_arguments(parser)


def module_of(verb: VerbRecord) -> ModuleType:
    """Return the module that implements a verb."""
    from importlib import import_module

    return import_module(".verbs." + verb.name, __package__)


# The command line


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return the parsed arguments. Wrong arguments end the program."""
    parser = create_parser()
    arguments = _with_levels_behind_verb(arguments)
    if may_be_filter(arguments):
        filter_args = _parse_filter(parser, arguments)
        if filter_args is not None:
            return filter_args
    arguments, names = _split_at_double_dash(arguments)
    word = next(filter(verb_table.find, arguments), None)
    defaults = _user_defaults(parser, word)
    args: argparse.Namespace
    args, rest = parser.parse_known_args(arguments)
    if args.subcommand is None:
        if rest:
            parser.error(UNKNOWN % " ".join(rest))
        if sys.stderr is not None:
            parser.print_help(sys.stderr)
        parser.exit(EXIT_USAGE, "%s: error: too few arguments\n" % parser.prog)
    options.check_type_size(args)
    if defaults is not None:
        defaults.apply(args)
    given = [shown for name, shown in options.LEVELS.items() if getattr(args, name)]
    if len(given) > 1:  # global options may stand before and behind the verb
        parser.error("argument %s: not allowed with argument %s" % (given[1], given[0]))
    # argparse returns file names that follow an option as unknown arguments.
    takes_names = hasattr(args, "refuse")
    if rest and not (takes_names and all(arg == "-" or arg[:1] != "-" for arg in rest)):
        parser.error(UNKNOWN % " ".join(rest))
    if takes_names:
        _take_names(args, rest + names)
    return args


def _user_defaults(parser: ArgumentParser, word: str | None) -> UserDefaults | None:
    """Set the defaults of the user for a verb; return None if there are none."""
    # A user who has set the variable wrongly needs the help.
    if word in (None, "help") or not os.environ.get(DEFAULTS_VARIABLE):
        return None
    from .user_defaults import UserDefaults

    return UserDefaults(parser, word)


def _with_levels_behind_verb(arguments: list[str]) -> list[str]:
    """Return the arguments with ``-1`` to ``-9`` moved from before the verb behind it.

    They are options of some verbs only.
    """
    verb = next((i for i, word in enumerate(arguments) if verb_table.find(word)), 0)
    moved = [
        i
        for i, argument in enumerate(arguments[:verb])
        if argument in options.LEVEL_OPTIONS
        and not (i and arguments[i - 1] in ("-n", "--nthreads"))
    ]
    if not moved:
        return arguments
    before = [arguments[i] for i in range(verb) if i not in moved]
    levels = [arguments[i] for i in moved]
    return [*before, arguments[verb], *levels, *arguments[verb + 1 :]]


# Without a verb


def may_be_filter(arguments: list[str]) -> bool:
    """Return whether the command line may have no verb and no file names."""
    if sys.stdin is None or sys.stdin.isatty():
        return False
    if arguments and not arguments[0].startswith("-"):
        return False
    other = ("-h", "-V", "--h", "--vers")
    return not any(
        verb_table.find(argument) or argument.startswith(other)
        for argument in arguments
    )


def _parse_filter(
    parser: argparse.ArgumentParser, arguments: list[str]
) -> argparse.Namespace | None:
    """Return the arguments of the verb to be run on the standard streams.

    None means that there is a file name or an unknown option. The options are those of
    compress. With ``-d`` the verb is decompress, and options for compressing are
    ignored: tar adds ``-d`` to the options that it gives for both directions.
    """
    defaults = _user_defaults(parser, "compress")
    args, rest = parser.parse_known_args(["compress", *arguments])
    if rest or (args.in_file, args.out_file, args.more) not in FILTERED:
        return None
    args.in_file = STREAM
    if args.debug and not any(arg.startswith("--d") for arg in arguments):
        given = vars(args)
        defaults = _user_defaults(parser, "decompress")
        args = parser.parse_args(["decompress", STREAM])
        own = {"debug", "refuse", "subcommand"}
        for name in vars(args).keys() & given.keys() - own:
            setattr(args, name, given[name])
    options.check_type_size(args)
    if defaults is not None:
        defaults.apply(args)
    del args.refuse
    return args


# File names


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


def _take_names(args: argparse.Namespace, names: list[str]) -> None:
    """Put names into `names`, `files`, or `in_file`, `out_file` and `more`."""
    if hasattr(args, "names"):
        args.names = [*args.names, *names]
    elif hasattr(args, "files"):
        args.files = [*args.files, *names]
        if not args.files:
            args.refuse("the following arguments are required: <file>")
    else:
        found = [args.in_file, args.out_file, *args.more, *names]
        found = [name for name in found if name is not None]
        padded = [*found, None, None][: max(2, len(found))]
        args.in_file, args.out_file, *args.more = padded
        if args.in_file is None and args.files_from is None:
            args.refuse("the following arguments are required: <in_file>")
    del args.refuse


# The parser of the whole command line


def create_parser() -> ArgumentParser:
    """Return the parser of the command line."""
    parser = _BaseParser(
        prog="blpk",
        formatter_class=HelpFormatter,
        description="command line de/compression with blosc",
        epilog=EPILOG,
    )
    groups = {"": parser, options.LEVEL: parser.add_mutually_exclusive_group()}
    groups[options.GLOBAL] = parser.add_argument_group(title="global options")
    for name in (options.SYNC, options.PROGRESS):
        groups[name] = groups[options.GLOBAL].add_mutually_exclusive_group()
    for group, names, help_, properties in options.global_options():
        options.add(groups[group], names, help_, **properties)
    subparsers = parser.add_subparsers(
        title="subcommands", metavar="", dest="subcommand", parser_class=_VerbParser
    )
    for verb in verb_table.VERBS:
        add_arguments = partial(_add_arguments, verb)
        subparsers.add_parser(verb.name, help=verb.help, add_arguments=add_arguments)
        if verb.letter:
            alias = "alias for '%s'" % verb.name
            subparsers.add_parser(verb.letter, help=alias, add_arguments=add_arguments)
    return parser


def _inherit_global_options(parser: ArgumentParser) -> None:
    """Add the global options to the parser of a verb, without help and defaults."""
    inherited: list[str] = []
    groups: dict[str, _ActionsContainer] = {}
    for group, names, _, properties in options.global_options():
        own = set(parser._option_string_actions)
        if parser._subparsers is not None:
            own.add("-n")  # actions of a verb may give it another meaning
        free = [name for name in names.split() if name not in own]
        if not free[:1] or free[0][:1] != "-":  # nothing, or only the name of a value
            continue
        if group in (options.SYNC, options.PROGRESS) and group not in groups:
            groups[group] = parser.add_mutually_exclusive_group()
        properties |= {"default": argparse.SUPPRESS}
        options.add(
            groups.get(group, parser), " ".join(free), argparse.SUPPRESS, **properties
        )
        inherited += [name for name in free if name[:1] == "-"]
    parser.inherited = frozenset(inherited)  # type: ignore[attr-defined]
