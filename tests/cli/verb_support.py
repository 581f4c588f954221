"""What the tests of the verbs have in common: calling one on its own, and its errors.

The names of the command that several tests need are imported here alone.
"""

import argparse
import importlib
import importlib.util
from types import ModuleType

from support import DOCS

from bloscpack._cli.args import VERBS as VERBS
from bloscpack._cli.args import HelpFormatter, add_arguments, find
from bloscpack._cli.args import create_parser as create_parser
from bloscpack._cli.args import parsers_in as parsers_in
from bloscpack._cli.console import console as console
from bloscpack._cli.exit_codes import Refusal as Refusal
from bloscpack._cli.exit_codes import exit_code as exit_code
from bloscpack._cli.exit_codes import message_of as message_of


def load_manpage() -> ModuleType:
    """Return the program that writes the manual page."""
    spec = importlib.util.spec_from_file_location("manpage", DOCS / "manpage.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def arguments_for(parser, value):
    """Return the fewest arguments for a parser, with `value` wherever it can be."""
    found = []
    for action in parser._actions:
        if action.option_strings or action.nargs in ("?", "*"):
            continue
        word = value if action.choices is None else next(iter(action.choices))
        found.append(word)
        if isinstance(action.choices, dict):
            found += arguments_for(action.choices[word], value)
    return found or [value]


def parser_of(name):
    """Return a parser that has learned a verb."""
    verb = importlib.import_module("bloscpack._cli.verbs." + name)
    parser = argparse.ArgumentParser(prog="blpk " + name, formatter_class=HelpFormatter)
    add_arguments(find(name), parser)
    return parser, verb.run


def run_verb(name, *arguments, **settings):
    """Run a verb and return its exit code."""
    parser, run = parser_of(name)
    flags = dict.fromkeys(["force", "quiet", "verbose", "debug"], False)
    unset = dict.fromkeys(["progress", "sync", "subcommand"])
    usual = {"nthreads": 2, "from_defaults": set(), **flags, **unset}
    parser.set_defaults(**usual | settings)
    return run(parser.parse_args([str(argument) for argument in arguments])) or 0
