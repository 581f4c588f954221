"""The manual page of ``blpk`` in roff, made from the parser of the command line.

``python docs/manpage.py > docs/blpk.1`` writes it. The page is the same on
every machine: defaults that depend on the machine, such as the number of CPUs, are
described in words.
"""

from __future__ import annotations

import sys

from bloscpack._cli import args
from bloscpack._cli.exit_codes import (
    DEFAULTS_VARIABLE,
    EXIT_COULD_NOT,
    EXIT_DAMAGED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    SIGNAL_BASE,
)
from bloscpack.version import __version__

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import Action, ArgumentParser
    from collections.abc import Iterator

NAME = "compress large typed data with Blosc, and read it in parts"
DESCRIPTION = """\
cuts files into chunks, compresses each with Blosc, and stores them with digests, an
offset table and metadata in a file that can be checked, appended to and read in parts.
Arrays of NumPy are stored with dtype and shape. A file appears under its name only when
it is complete; a change in place is made as a whole or not at all. The commands also
read folders of arrays and tables, and convert from and to other formats, such as Zarr,
CSV, Parquet and HDF5."""
EXIT_CODES = (
    (EXIT_OK, "Done."),
    (
        EXIT_COULD_NOT,
        "Failed: a file is missing, exists or is no Bloscpack file; no space.",
    ),
    (EXIT_USAGE, "Wrong usage, or a wrong default option."),
    (EXIT_DAMAGED, "Damaged data found."),
    (EXIT_INTERRUPTED, "Interrupted."),
    (SIGNAL_BASE + 15, "Terminated; likewise for other signals."),
)
EXAMPLES = (
    ("Compress a file, and decompress it:",
     "blpk compress data.bin\nblpk decompress data.bin.blp again.bin"),
    ("In a pipe:", "tar c folder | blpk compress - - > folder.tar.blp"),
    ("Show the contents of a file, and check it:",
     "blpk info data.bin.blp\nblpk verify data.bin.blp"),
    ("Convert an array, and show its first and last rows:",
     "blpk convert array.npy array.zarr\nblpk show array.zarr"),
)  # fmt: skip
SEE_ALSO = ("gzip", "tar", "zstd")
# Texts for defaults and choices that depend on the machine.
DEFAULTS = {"nthreads": "one for each CPU"}
CHOICES = "one of those that the help of the command shows"


# Roff


def escape(text: str) -> str:
    """Return text in which everything that roff would interpret is escaped."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    text = text.replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti")
    return "\n".join(
        "\\&" + line if line.startswith(".") else line for line in text.split("\n")
    )


def bold(text: str) -> str:
    """Return text in bold."""
    return "\\fB%s\\fR" % escape(text)


def italic(text: str) -> str:
    """Return text in italics."""
    return "\\fI%s\\fR" % escape(text)


def _section(title: str) -> str:
    return ".SH %s" % title


def _tagged(tag: str, text: str) -> list[str]:
    return [".TP", tag, _flowing(text) or "\\&"]


def _literal(text: str) -> list[str]:
    """Return indented lines that roff does not fill."""
    lines = [escape(line) or "\\&" for line in text.split("\n")]
    return [".PP", ".nf", ".RS 4", *lines, ".RE", ".fi"]


def _flowing(text: str) -> str:
    """Return text for roff to fill, wrapped at 72 columns."""
    import textwrap

    return escape(textwrap.fill(" ".join(text.split()), 72, break_on_hyphens=False))


# From the parser


def expanded(text: str | None, parser: ArgumentParser, action: Action | None) -> str:
    """Return a text of the parser with its format specifiers expanded."""
    if text is None or (action is None and "%(prog)" not in text):
        return text or ""
    values: dict[str, object] = {"prog": parser.prog}
    if action is not None:
        values = {**vars(action), **values}
        values["default"] = DEFAULTS.get(action.dest, action.default)
        choices = ", ".join(map(str, action.choices or ()))
        values["choices"] = CHOICES if action.dest == "cname" else choices
    return text % values


def metavar(action: Action) -> str:
    """Return the name of the value of an option or argument."""
    found = action.metavar if isinstance(action.metavar, str) else action.dest
    return found.strip("<>")


def _as_argument(action: Action) -> str:
    """Return a positional argument in the notation of a synopsis."""
    name = italic(metavar(action))
    forms = {"?": "[%s]", "*": "[%s ...]", "+": "%s ..."}
    return forms.get(str(action.nargs), "%s") % name


def _as_option(action: Action) -> str:
    names = ", ".join(map(bold, action.option_strings))
    return names if action.nargs == 0 else "%s %s" % (names, italic(metavar(action)))


def listed(parser: ArgumentParser) -> Iterator[Action]:
    """Yield the options and arguments that are no verbs, and are not hidden."""
    for action in parser._actions:
        # The choices of the action for the verbs are a dict of parsers.
        if isinstance(action.choices, dict) or action.help == "==SUPPRESS==":
            continue
        if "--help" not in action.option_strings:
            yield action


def _options(parser: ArgumentParser) -> Iterator[str]:
    for action in listed(parser):
        named = bool(action.option_strings)
        tag = _as_option(action) if named else italic(metavar(action))
        yield from _tagged(tag, expanded(action.help, parser, action))


def _verb(title: str, help_: str, parser: ArgumentParser) -> Iterator[str]:
    yield ".SS %s" % title
    arguments = [a for a in parser._actions if not a.option_strings]
    synopsis = [bold(parser.prog), "[" + italic("option") + " ...]"]
    if parser.usage is None:
        yield " ".join([*synopsis, *map(_as_argument, arguments)])
    else:
        yield escape(parser.usage)
    text = expanded(parser.description, parser, None) or help_
    yield ".PP"
    first, *rest = text.split("\n\n")
    yield _flowing(first[:1].upper() + first[1:].rstrip().removesuffix(".") + ".")
    for paragraph in rest:
        yield ".PP"
        yield _flowing(paragraph)
    yield from _options(parser)
    above, _, examples = expanded(parser.epilog, parser, None).partition("\n")
    if examples:
        yield ".PP"
        yield escape(above[:1].upper() + above[1:])
        lines = examples.rstrip().split("\n")
        yield from _literal("\n".join(line.removeprefix("  ") for line in lines))
    for name, action in args.parsers_in(parser).items():
        yield from _verb("%s %s" % (title, escape(name)), "", action)


# The page


def make() -> str:
    """Return the manual page."""
    return "\n".join((*_head(), *_commands(), *_foot())) + "\n"


def _head() -> Iterator[str]:
    yield '.\\" Generated by docs/manpage.py: change the texts there.'
    yield '.TH BLPK 1 "" "Bloscpack %s" "User Commands"' % escape(__version__)
    yield _section("NAME")
    yield "blpk \\- %s" % escape(NAME)
    yield _section("SYNOPSIS")
    option = "[%s ...]" % italic("option")
    words = bold("blpk"), option, italic("command"), option, italic("file")
    yield "%s %s %s %s [%s ...]" % words
    yield _section("DESCRIPTION")
    yield bold("blpk")
    yield _flowing(DESCRIPTION)


def _commands() -> Iterator[str]:
    parser = args.create_parser()
    yield _section("OPTIONS")
    yield "Global options may stand before the command or behind it."
    yield from _options(parser)
    yield _section("COMMANDS")
    yield "%s shows the help of a command." % (
        bold("blpk ") + italic("command") + bold(" --help")
    )
    verbs = args.parsers_in(parser)
    for verb in args.VERBS:
        title = ", ".join(filter(None, (verb.name, verb.letter)))
        yield from _verb(title, verb.help, verbs[verb.name])


def _foot() -> list[str]:
    lines = [_section("EXIT STATUS")]
    for code, text in EXIT_CODES:
        lines += _tagged(bold(str(code)), text)
    lines += [_section("ENVIRONMENT")]
    lines += _tagged(
        bold(DEFAULTS_VARIABLE),
        "Default options, for example '--auto -n 4'; the command line wins. Options "
        "that the command does not have, but another command has, are left out.",
    )
    lines += [_section("EXAMPLES")]
    for text, commands in EXAMPLES:
        lines += [escape(text), *_literal(commands), ".PP"]
    lines[-1] = _section("SEE ALSO")
    lines.append(", ".join("%s(1)" % bold(name) for name in SEE_ALSO))
    return lines


if __name__ == "__main__":
    sys.stdout.write(make())
