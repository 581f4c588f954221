"""``blpk completion``: print a script that completes verbs, options and file names."""

from __future__ import annotations

from argparse import Action, ArgumentParser, Namespace
from collections.abc import Iterator

from ...exceptions import install_hint
from ..console import console
from ..exit_codes import Refusal
from ..options import add, set_help
from ..verb_table import names

SHELLS = ("bash", "zsh", "fish", "tcsh")
# Metavars of options whose value is a file; those that contain `file` are found too.
FILES = ("<metadata>", "<out>")
FOLDERS = ("<folder>",)


HELP = """\
print a script that lets a shell complete verbs, options and file names

examples:
  %(prog)s bash > ~/.local/share/bash-completion/completions/blpk
  %(prog)s zsh > ~/.zfunc/_blpk      with ~/.zfunc in $fpath
  %(prog)s fish > ~/.config/fish/completions/blpk.fish
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    set_help(parser, HELP)
    add(parser, "shell <shell>", "one of %(choices)s", choices=SHELLS)


def run(args: Namespace) -> None:
    """Print the script."""
    try:
        import shtab
    except ImportError as error:
        raise Refusal(
            "completion needs the package shtab: " + install_hint("completion")
        ) from error
    if args.shell not in shtab.SUPPORTED_SHELLS:
        raise Refusal(
            "the installed shtab %s knows no %s: pip install -U shtab"
            % (shtab.__version__, args.shell)
        )
    from ..parser import create_parser

    parser = create_parser()
    shown = {name: a for a in parser._actions for name in a.option_strings}
    for action in _all_actions(parser):
        if action.help == "==SUPPRESS==":  # a global option behind the verb
            same = shown[action.option_strings[0]]
            action.help, action.default = same.help, same.default
        if action.metavar == "<subcommand>":
            action.choices = names()
        elif _names_file(action):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar in FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    console.put(shtab.complete(parser, args.shell) + "\n")


def _all_actions(parser: ArgumentParser) -> Iterator[Action]:
    """Yield all actions of a parser and of the parsers of its verbs."""
    for action in parser._actions:
        yield action
        # The choices of the action for the verbs are a dict of parsers.
        if isinstance(action.choices, dict):
            for verb in dict.fromkeys(action.choices.values()):
                yield from _all_actions(verb)


def _names_file(action: Action) -> bool:
    if action.choices is not None or action.nargs == 0:
        return False
    return (
        not action.option_strings
        or action.metavar in FILES
        or "file" in str(action.metavar)
    )
