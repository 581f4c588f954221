"""``blpk completion``: print a script of shtab that completes verbs, options, files."""

from __future__ import annotations

from argparse import Namespace

from ...exceptions import install_hint
from ..console import console
from ..exit_codes import Refusal

SHELLS = ("bash", "zsh", "fish", "tcsh")

HELP = """\
print a script that lets a shell complete verbs, options and file names; it
needs the package shtab: pip install '.[completion]' in a clone

examples:
  %(prog)s bash > ~/.local/share/bash-completion/completions/blpk
  %(prog)s zsh > ~/.zfunc/_blpk      with ~/.zfunc in $fpath
  %(prog)s fish > ~/.config/fish/completions/blpk.fish
"""
OPTIONS = "shell <shell>  one of %(choices)s"
PROPERTIES = {"shell": {"choices": SHELLS}}


def run(args: Namespace) -> None:
    """Print the script."""
    try:
        import shtab
    except ImportError as error:
        raise Refusal(
            "completion needs the package shtab: " + install_hint("completion")
        ) from error
    from ..args import create_parser

    parsers = [create_parser()]
    for parser in parsers:
        for action in parser._actions:
            if isinstance(action.choices, dict):  # the parsers of verbs or actions
                parsers += action.choices.values()
            elif action.choices is None and action.nargs != 0:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    console.put(shtab.complete(parsers[0], args.shell) + "\n")
