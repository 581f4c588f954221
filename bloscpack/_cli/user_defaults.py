"""Default options of the user: the environment variable BLPK_DEFAULTS, as XZ_DEFAULTS.

Its options become defaults of the parsers of the command and of the verb, so that the
command line overrides them. Options that only other verbs have are left out. Any other
word is an error, for every verb.
"""

from __future__ import annotations

import os
from argparse import SUPPRESS, ArgumentParser, Namespace
from copy import copy
from shlex import split
from typing import Any, NoReturn

from . import verb_table
from .exit_codes import DEFAULTS_VARIABLE as VARIABLE
from .exit_codes import WrongUsage
from .options import check_goal

# Options that end the command, make a filter decompress, or concern one file.
NOT_ALLOWED = {"-h", "-V", "-d", "--rm", "--output"}


class _OptionsParser(ArgumentParser):
    """A parser of the options of another one, without its arguments and defaults."""

    def __init__(self, parser: ArgumentParser) -> None:
        super().__init__(add_help=False, allow_abbrev=False)
        for action in parser._actions:
            if action.option_strings and not NOT_ALLOWED & {*action.option_strings}:
                option = copy(action)
                option.default = SUPPRESS
                self._add_action(option)

    def error(self, message: str) -> NoReturn:
        raise WrongUsage("%s: %s" % (VARIABLE, message))


def _parsed(
    parser: ArgumentParser, words: list[str]
) -> tuple[dict[str, object], list[str]]:
    """Return the values of the options that a parser has, and the other words."""
    options = _OptionsParser(parser)
    if "--auto" in options._option_string_actions:
        check_goal(options, words)
    args, others = options.parse_known_args(words)
    values = vars(args)
    values.pop("given", None)
    return values, others


class UserDefaults:
    """Makes the options of the variable defaults of the parser, and of one verb."""

    def __init__(self, parser: ArgumentParser, word: str) -> None:
        """Set the defaults; `word` is the name of the verb, or its letter."""
        self._own: list[ArgumentParser] = []
        self._values: dict[str, object] = {}
        self._before: dict[str, object] = {}
        try:
            words = split(os.environ.get(VARIABLE, ""))
        except ValueError as error:
            raise WrongUsage("%s: %s" % (VARIABLE, error)) from error
        assert parser._subparsers is not None
        verbs: Any = parser._subparsers._group_actions[0].choices
        for known in (parser, verbs[word]):
            if words:
                values, words = _parsed(known, words)
                self._own.append(known)
                self._values |= values
                self._before |= {name: known.get_default(name) for name in values}
                known.set_defaults(**values)
        for name in verb_table.names():
            if words:
                _, words = _parsed(verbs[name], words)
        if words:
            raise WrongUsage("%s: '%s' is no option of blpk" % (VARIABLE, words[0]))

    def apply(self, args: Namespace) -> None:
        """Let an option that the user gave win over those that it excludes.

        The names of the options in the variable that hold become
        ``args.from_defaults``.
        """
        same = {n for n, value in self._values.items() if getattr(args, n) == value}
        for parser in self._own:
            for group in parser._mutually_exclusive_groups:
                names = {action.dest for action in group._group_actions}
                if any(getattr(args, n) != parser.get_default(n) for n in names - same):
                    for name in names & same:
                        setattr(args, name, self._before[name])
                    same -= names
        args.from_defaults = same
