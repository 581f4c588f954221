"""``blpk completion``: print a script that completes verbs, options and file names."""

from __future__ import annotations

import re
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Iterator, Sequence

from ...checksums import CHECKSUMS_AVAIL
from ...exceptions import install_hint
from ...metacodecs import CODECS_AVAIL
from ..console import console
from ..exit_codes import Refusal
from ..options import add
from ..verb_table import VERBS, find, names

SHELLS = ("bash", "zsh", "fish", "tcsh")
# Metavars of values that are files; those that contain `file` are found too.
FILES = ("<metadata>", "<source>", "<target>")
FOLDERS = ("<folder>", "<tree>")
# Metavars of the compressed files that a verb reads, for verbs that read others too.
PACKED = ("<original_file>", "<damaged>")
# Verbs whose other arguments are compressed files.
READERS = (
    *("decompress", "repack", "info", "list", "cat", "verify", "metadata", "refs"),
)
# What completes the names of compressed files and of folders.
PACKED_FILES = {
    "bash": "_blpk_packed_files",
    "zsh": "_files -g '*.blp'",
    "tcsh": "f:*.blp",
    "fish": (
        "(__fish_complete_path (commandline -ct)"
        r" | string match -r '.*(?:/|[.]blp)(?=\t|\z)')"
    ),
}
BASH_FUNCTION = """\
_blpk_packed_files() {
  compgen -d -- "$1"
  compgen -f -X '!*.blp' -- "$1"
}
"""
# The verbs that Tab does not offer: `completion` would keep it from completing
# ``compress``. It completes the arguments of these verbs all the same.
HIDDEN = ("completion", *(verb.letter for verb in VERBS if verb.letter))
# How the scripts offer a verb, and with which lines.
OFFERS = {
    "bash": r"(?<=\n_shtab_blpk_pos_0_choices=\()(.*)(?=\)\n)",
    "zsh": r"(?m)^    (?:%s):'.*\n",
    "fish": r"(?m)^complete -c blpk .* -a '?(?:%s)'? -d.*\n",
}


HELP = """\
print a script that lets a shell complete verbs, options and file names

examples:
  %(prog)s bash > ~/.local/share/bash-completion/completions/blpk
  %(prog)s zsh > ~/.zfunc/_blpk      with ~/.zfunc in $fpath
  %(prog)s fish > ~/.config/fish/completions/blpk.fish
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
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
    for verb, action in _all_actions(parser):
        if action.help == "==SUPPRESS==":  # a global option behind the verb
            same = shown.get(action.option_strings[0])
            action.help = same.help if same else "the same as --" + action.dest
            action.default = same.default if same else action.default
        values = _values_of(action)
        if values is not None:
            action.choices = values
        elif _names_packed_file(verb, action):
            action.complete = PACKED_FILES  # type: ignore[attr-defined]
        elif _names_file(action):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar in FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    preamble = BASH_FUNCTION if args.shell == "bash" else ""
    script = shtab.complete(parser, args.shell, preamble=preamble)
    console.put(_without_hidden_verbs(script, args.shell) + "\n")


def _without_hidden_verbs(script: str, shell: str) -> str:
    """Return a script that does not offer some verbs."""
    if shell == "bash":
        offered = [name for name in names() if name not in HIDDEN]
        return re.sub(OFFERS[shell], " ".join(offered), script)
    if shell not in OFFERS:
        return script
    return re.sub(OFFERS[shell] % "|".join(map(str, HIDDEN)), "", script)


def _values_of(action: Action) -> Sequence[str] | None:
    """Return the values of an argument that the parser does not check, or None."""
    if action.choices is not None:
        return None
    if action.metavar == "<subcommand>":
        return names()
    if action.metavar == "<format>":
        from ...dataset.conversion import WRITTEN

        return tuple(WRITTEN)
    if "--meta-checksum" in action.option_strings:
        return CHECKSUMS_AVAIL
    return CODECS_AVAIL if "--meta-codec" in action.option_strings else None


def _names_packed_file(verb: str, action: Action) -> bool:
    if action.option_strings or action.choices is not None:
        return False
    return action.metavar in PACKED or (verb in READERS and action.dest != "out_file")


def _all_actions(
    parser: ArgumentParser, verb: str = ""
) -> Iterator[tuple[str, Action]]:
    """Yield verb and action of all actions of a parser and the parsers of its verbs."""
    for action in parser._actions:
        yield verb, action
        # The choices of the action for the verbs are a dict of parsers.
        if isinstance(action.choices, dict):
            for word, inner in action.choices.items():
                record = find(word)
                yield from _all_actions(inner, record.name if record else word)


def _names_file(action: Action) -> bool:
    if action.choices is not None or action.nargs == 0:
        return False
    return (
        not action.option_strings
        or action.metavar in FILES
        or "file" in str(action.metavar)
    )
