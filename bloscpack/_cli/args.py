"""The verbs of ``blpk``, their options, and how a command line is parsed.

`TABLE` has a row for each verb. The module of a verb, ``verbs/NAME.py``, defines
``HELP``, the text above its options and the examples below them, ``OPTIONS``, which
declares its arguments as `add_options` reads them, and ``run(args)``. It may define

``PROPERTIES``
    more properties of the arguments in ``OPTIONS``;
``add_arguments(parser)``
    in place of ``OPTIONS``, for arguments that other verbs have too;
``writes_data(args)``
    called before the first message: whether standard output carries data, so that
    messages must go to standard error.

Importing all verbs takes longer than ``blpk info`` as a whole. The module of a verb is
imported only when its arguments are parsed or its help is shown.

The global options are options of every verb as well, hidden from its help, so that
they are accepted in any position. Without a verb, and with standard input not a
terminal, ``blpk`` is a filter: it compresses standard input to standard output, or
decompresses it if ``-d`` is given.

The environment variable BLPK_DEFAULTS has options of the user, as XZ_DEFAULTS. They
become defaults of the parsers, so that the command line overrides them. Those that only
other verbs have are left out. Any other word is an error, for every verb.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace, _ActionsContainer
from functools import partial
from itertools import pairwise

from .. import defaults
from ..constants import (
    EXTENSION,
    MAX_BUFFERSIZE,
    MAX_CLEVEL,
    MAX_THREADS,
    MIN_CLEVEL,
    SUFFIXES,
)
from ..log import printable
from .console import STREAM, console
from .exit_codes import DEFAULTS_VARIABLE, EXIT_OK, EXIT_USAGE, WrongUsage
from .text import columns, version

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType
    from typing import Any, NoReturn, TypeVar

    from _typeshed import SupportsWrite

    Number = TypeVar("Number", int, float)

# The verbs

# Kinds of output of a verb.
FILES = "files"  # files; if standard output fails, they are still written
REPORT = "report"  # text for a person on standard output
ANSWER = "answer"  # the exit code, of which 1 is no failure; text for a person explains
DATA = "data"  # data for a program on standard output, without any messages

# The verbs that may change a file in place, or make a folder: Ctrl-C undoes that.
UNDOING = (
    *("append", "bigfile", "convert", "metadata", "recover", "repack", "snapshot"),
)

# Name, letter, kind of output, the argument that names inputs, `+` where there may be
# many names, and the help; `-` means none. In the order of the help text.
#
# The dispatcher replaces ``-`` in the inputs by a path of standard input; compress,
# decompress and append read the stream themselves. A verb with many names accepts
# options between them, and names after ``--``.
TABLE = """\
compress   c files  -       + perform compression on file
decompress d files  -       + perform decompression on file
append     a files  -       - append data to a compressed file
repack     - files  -       + rewrite compressed files with other settings
convert    - files  -       - convert arrays and tables between formats
info       i report files   + print information about a compressed file
list       l report files   + show a table of files and datasets
cat        - data   file_   - write plain bytes, or rows of an array, to standard output
show       - report -       - show shape, sizes, the first and last rows, statistics
diff       - answer -       - compare two files or datasets, item by item
verify     v report files   + check everything in files and datasets
recover    r files  damaged - save the intact part of a damaged file or dataset
snapshot   - files  -       - copy the state of a dataset at one moment
metadata   m files  file_   - show or change the metadata of a file or dataset
refs       - data   -       - write references through which Zarr reads files
bigfile    - report -       + work with a BigFile tree: columns as raw files
completion - data   -       - print a completion script for a shell
help       - report -       - show the help of a subcommand, or of all
"""


class VerbRecord:
    """The properties of a verb that are needed before its module is imported."""

    def __init__(self, line: str) -> None:
        name, letter, writes, argument, many, help_ = line.split(maxsplit=5)
        self.name, self.writes, self.help = name, writes, help_
        self.letter = None if letter == "-" else letter
        self.inputs = None if argument == "-" else argument
        self.many_names = many == "+"


VERBS = [VerbRecord(line) for line in TABLE.splitlines()]


# What other programs call a verb.
OTHER_WORDS = {
    **dict.fromkeys(("ls", "dir"), "list"),
    **dict.fromkeys(("test", "check", "fsck", "validate"), "verify"),
    **dict.fromkeys(("pack", "zip", "gzip", "add"), "compress"),
    **dict.fromkeys(("unpack", "extract", "uncompress", "unzip"), "decompress"),
    **dict.fromkeys(("repair", "fix", "salvage"), "recover"),
    **dict.fromkeys(("head", "print", "dump", "stat"), "show"),
    **dict.fromkeys(("cmp", "compare"), "diff"),
    "cp": "snapshot",
    "meta": "metadata",
    "optimize": "repack",
    "to": "convert",
}
# The options of gzip and zstd that replace a verb, by their long names.
GZIP_OPTIONS = {
    **dict.fromkeys(("stdout", "to-stdout"), "c"),
    **dict.fromkeys(("decompress", "uncompress"), "d"),
    **{name: name[0] for name in ("force", "keep", "list", "quiet", "recursive")},
    **{name: name[0] for name in ("test", "verbose")},
    "fast": "1",
    "best": "9",
}


def find(word: str | None) -> VerbRecord | None:
    """Return the verb with this name or letter, None if there is none."""
    matching = (verb for verb in VERBS if word in (verb.name, verb.letter))
    return None if word is None else next(matching, None)


def module_of(verb: VerbRecord) -> ModuleType:
    """Return the module that implements a verb."""
    from importlib import import_module

    return import_module(".verbs." + verb.name, __package__)


# Values of options

INFINITE = float("inf")


def number_of(
    option: str, kind: Callable[[str], Number], most: float = INFINITE
) -> Callable[[str], Number]:
    """Return what reads the number of an option, from 0 to `most`."""

    def read(text: str) -> Number:
        try:
            number = kind(text)
            if 0 <= number <= most:  # false for NaN
                return number
        except ValueError:
            pass  # it is no number
        end = "on" if most == INFINITE else "to %d" % most
        raise WrongUsage(
            "%s must be a number from 0 %s, not '%s'" % (option, end, text)
        )

    return read


def parse_size(text: str) -> int:
    """Return the number of bytes for a text such as 1.5M, 1.5MB or 1.5MiB.

    Small letters are accepted too. Raises ValueError.
    """
    from ..pretty import reverse_pretty

    try:
        if text[-1:].isalpha():
            return reverse_pretty(text.upper().replace("IB", "iB"))
        return int(text)
    except ValueError as error:
        raise ValueError(
            "expected a number of bytes, or one with a suffix from %s like 1.5M, "
            "1.5MB or 1.5MiB, found '%s'" % (" ".join(SUFFIXES), text)
        ) from error


def _size_of_option(name: str, text: str) -> int:
    """Return the number of bytes in the value of an option."""
    # argparse would replace the message of a ValueError.
    try:
        return parse_size(text)
    except ValueError as error:
        raise WrongUsage("%s %s" % (name, error)) from error


def _chunk_size(text: str) -> int:
    if text == "max":
        return MAX_BUFFERSIZE
    size = _size_of_option("-z error:", text)
    if size <= 0:
        raise WrongUsage("-z must be > 0")
    from ..headers import check_range

    try:
        return check_range("chunk_size", size, 1, MAX_BUFFERSIZE)
    except ValueError as error:
        raise WrongUsage(str(error)) from error


def lengths_of_option(name: str, text: str | None) -> tuple[int, ...] | None:
    """Return the numbers in the value of an option; None if it was not given."""
    try:
        return None if text is None else tuple(map(int, text.split(",")))
    except ValueError as error:
        raise WrongUsage(
            "%s must be whole numbers with commas, like 1000,300, not '%s'"
            % (name, text)
        ) from error


def rows_or_shape(name: str, text: str | None) -> int | tuple[int, ...] | None:
    """Return the numbers of an option; a single one is a number of rows."""
    lengths = lengths_of_option(name, text)
    return lengths[0] if lengths is not None and len(lengths) == 1 else lengths


# Options

# The options that select which messages are shown: they exclude each other.
LEVELS = {"verbose": "-v/--verbose", "debug": "-d/--debug", "quiet": "-q/--quiet"}
# The options for a compression level, as those of gzip and zstd.
CLEVEL_OPTIONS = tuple("-%d" % level for level in range(1, MAX_CLEVEL + 1))
MESSAGES = """\
--version -V  show program's version number and exit
-v --verbose  be verbose about actions
| -d --debug  the same as -v
| -q --quiet  show only errors
"""
GLOBAL = """\
global options:
-f --force  disable overwrite checks for existing files
    (use with caution)
-n --nthreads [1, %d]  set number of threads, (default: %%(default)s (ncores))
--sync  return only when the output is on the disk (default: where an existing \
file is replaced or changed)
| --no-sync  do not wait until the output is on the disk
--progress  show a progress bar (default: on a terminal, after a second)
| --no-progress  show no progress bar
"""
# The default that the help of `repack` shows: it keeps what the file has.
KEPT = "as in the file"
CODEC = """\
-l --clevel [0, 9]  compression level (default: {clevel})
--level [0, 9]  hidden: the same as --clevel
{levels}  the same as -l 1 to -l 9
{shuffle}-s --no-shuffle  deactivate shuffle
| --bitshuffle  shuffle bits instead of bytes
-c --codec <codec>  codec to be used by Blosc:\x20
    %(choices)s
     (default: {cname})
"""
SHUFFLE = "--shuffle  shuffle bytes\n| "
# A value must follow `=`: the word behind ``--auto`` is a file name. Therefore each
# goal is an option of its own.
AUTO = """\
--auto --auto=balanced  choose codec, level, filter, type size and chunk
    size by trials on a sample; options for these win
--auto=speed  the same for the highest speed
--auto=ratio  a small file, up to 30 times as slowly
"""
NO_AUTO = "--no-auto  use fixed settings (default)"
# The options that say how the verbs that read any format read a file.
READING = """\
--dtype [<name>=]<type>  type of a column of CSV or Parquet, as NumPy names it:
    i4, f8, M8[D], U10, U (the longest text); without a
    name, of the items in a file without a header
--shape <n>,<n>...  shape of the array in such a file; one number may
    be -1 (default: -1, one axis)
--delimiter <character>  character between the values of CSV: ';' or tab, say
    (default: a comma)
--decimal <character>  character before the fraction of a number of CSV: , or .
--encoding <name>  encoding of CSV: cp1252 or utf-16, say (default: utf-8)
--skip-lines <n>  lines in front of the names in a CSV file
--times  columns of ISO dates and times in CSV become times
--columns <a,b>  only these columns of a table, or members of a group
--exclude <a,b>  all but these
--rename <old>=<new>  another name for a column or a member
"""
READING_PROPERTIES: dict[str, Any] = {
    "dtype": {"action": "append", "default": []},
    "skip_lines": {"type": number_of("--skip-lines", int)},
    **{name: {"action": "append"} for name in ("columns", "exclude", "rename")},
}
# The names of these options as attributes.
READING_NAMES = [
    option.replace("-", "_") for option in re.findall("(?m)^--([a-z-]+)", READING)
]
CHUNKS = """\
-z --chunk-size <size>  set desired chunk size or 'max' (default: {size})
-k --checksum <checksum>  set desired checksum:
    {checksums} (default: {checksum})
-o --no-offsets  deactivate offsets
"""
ROOM = """\
--max-app-chunks <n>  reserve offsets for n more chunks (default: {room})
--max-meta-size <size>  space to reserve for metadata (default: {room})
--meta-codec <codec>  codec for metadata: zlib or None{kept}
--meta-checksum <checksum>  checksum for metadata, one of those above{kept}
"""
FILE_NAMES = """\
in_file <in_file>  file to be {verb}ed
out_file <out_file>  file to {verb} to
more <file>  with three names or more, all are files to be {verb}ed
files:
--output <file>  file to {verb} to
--output-dir <folder>  put all outputs into a folder
--suffix <text>  end of the names of compressed files (default: %(default)s)
--files-from <file>  names of more inputs, one a line, or ended by zero bytes
-r --recursive  {verb} the files in folders and all below
--skip-existing  leave outputs that exist; all names are inputs
--update  replace outputs that are older than their inputs, leave others that exist; all
    names are inputs
--rm  remove an input when its output is safe on the disk
--no-preserve  don't give outputs the times and permissions of inputs
"""
# Properties of arguments that several verbs have.
COMMON: dict[str, dict[str, Any]] = {
    "in_file": {"nargs": "?"},
    "out_file": {"nargs": "?"},
    "more": {"nargs": "*"},
    "files": {"nargs": "*"},
}


class _Version(argparse.Action):
    """Show the versions of Bloscpack, python-blosc and Blosc, and exit."""

    def __call__(self, parser: ArgumentParser, *args: object) -> NoReturn:
        version()
        parser.exit(EXIT_OK)


class _Level(argparse.Action):
    """Stores the compression level that is the name of the option."""

    def __call__(
        self, parser: object, args: Namespace, values: object, option: object = None
    ) -> None:
        """Store the digit of the option."""
        setattr(args, self.dest, int(str(option)[1:]))


class _Codecs:
    """The codecs of the installed Blosc; Blosc is imported at the first use."""

    def __iter__(self) -> Iterator[str]:
        from ..constants import CNAME_AVAIL

        return iter(CNAME_AVAIL)


def _no(name: str, default: object = None) -> dict[str, object]:
    """Return the properties of the option that excludes another."""
    return {"action": "store_false", "dest": name, "default": default}


def _global_properties() -> dict[str, dict[str, Any]]:
    threads = min(defaults.available_cpus(), MAX_THREADS)
    return {
        "V": {"action": _Version, "nargs": 0, "dest": SUPPRESS, "default": SUPPRESS},
        "nthreads": {"type": int, "default": threads},
        "sync": {"default": None},
        "no_sync": _no("sync"),
        "progress": {"default": None},
        "no_progress": _no("progress"),
    }


def _declared(
    parser: _ActionsContainer, text: str, properties: dict[str, dict[str, Any]]
) -> Iterator[tuple[_ActionsContainer, list[str], dict[str, Any]]]:
    """Yield group, names and properties of each option of a text: see `add_options`."""
    group = target = parser
    for line, following in pairwise([*re.split(r"\n(?! )", text.strip()), ""]):
        if line.endswith(":") and "  " not in line:
            group = parser.add_argument_group(title=line[:-1])
            continue
        if not line.startswith("| "):
            has_others = following.startswith("| ")
            target = group.add_mutually_exclusive_group() if has_others else group
        declared, help_ = line.removeprefix("| ").split("  ", 1)
        start = re.search("[<[]|$", declared)
        assert start is not None
        names = declared[: start.start()].split()
        key = names[-1].strip("-").replace("-", "_")
        keywords = {"help": help_.replace("\n    ", "\n"), **properties.get(key, {})}
        if start.group():
            keywords["metavar"] = declared[start.start() :]
        elif "choices" not in keywords:
            keywords.setdefault("action", "store_true")
        yield target, names, keywords


def add_options(group: _ActionsContainer, text: str, **properties: Any) -> None:
    """Add the options and arguments that a text declares, in the form of the help.

    A line has the names of an option and of its value, which begins with a bracket, two
    blanks, and the help. Indented lines continue the help. A line that begins with
    ``|`` excludes the option in front of it. A line that ends with a colon begins a
    group. `properties` has more properties of an option by its last name. An option
    without a value stores True, unless its properties say otherwise.
    """
    for target, names, keywords in _declared(group, text, {**COMMON, **properties}):
        target.add_argument(*names, **keywords)


def add_blosc_options(
    parser: ArgumentParser, typesize: object, *, kept: bool = False
) -> None:
    """Add the options for Blosc, and ``--auto``. `typesize` is shown as its default.

    With `kept` the file keeps its own settings, so ``--no-auto`` is left out.
    """
    group = parser.add_argument_group(title="blosc settings")
    text = "-t --typesize <bytes>  typesize for blosc (default: %s)"
    add_options(group, text % typesize, typesize={"type": int})
    add_codec_options(group, KEPT if kept else "")
    group = parser.add_argument_group(title="settings that fit the data")
    add_auto_option(group.add_mutually_exclusive_group(), kept=kept)


def add_codec_options(group: _ActionsContainer, unset: str) -> None:
    """Add the options for codec, level and filter: all defaults are None.

    `unset` says where the settings come from then; empty for the library.
    """
    from .._format.codecs import BITSHUFFLE

    text = CODEC.format(
        clevel=defaults.DEFAULT_CLEVEL if unset in ("", KEPT) else unset,
        cname=unset or defaults.DEFAULT_CNAME,
        levels=" ".join(CLEVEL_OPTIONS),
        shuffle=SHUFFLE if unset else "",
    )
    levels = range(MIN_CLEVEL, MAX_CLEVEL + 1)
    level = {"type": int, "choices": levels, "dest": "clevel"}
    stored = {"action": "store_const", "dest": "shuffle"}
    add_options(
        group,
        text,
        clevel=level,
        level={**level, "help": SUPPRESS},
        shuffle={**stored, "const": True},
        no_shuffle={**stored, "const": False},
        bitshuffle={**stored, "const": BITSHUFFLE},
        codec={"type": _codec_name, "choices": _Codecs(), "dest": "cname"},
        **{"9": {"action": _Level, "nargs": 0, "dest": "clevel"}},
    )


def _codec_name(text: str) -> str:
    """Return the name of a codec in any case; messages show other text unchanged."""
    return text.lower() if text.isalnum() else text


def add_auto_option(group: _ActionsContainer, *, kept: bool = False) -> None:
    """Add ``--auto``: the settings are chosen for the data; with `kept` no more."""
    from .._format.codecs import GOALS

    auto = {"action": "store_const", "const": None, "default": False, "dest": "auto"}
    goals = {"auto=" + goal: {**auto, "const": goal} for goal in GOALS}
    add_options(group, AUTO + NO_AUTO * (not kept), no_auto=auto, **goals)


def _check_goal(parser: ArgumentParser, arguments: list[str]) -> None:
    """Exit with an error if a goal is unknown, or a word behind ``--auto``.

    Such a word may be a file name if there is a file of that name.
    """
    from .._format.codecs import GOALS

    for word, following in pairwise((*arguments, "")):
        name, equals, goal = word.partition("=")
        if word == "--":
            return
        if name == "--auto" and equals and goal not in GOALS:
            parser.error(
                "argument --auto: the goal must be one of %s, not '%s'"
                % (", ".join(GOALS), goal)
            )
        if word == "--auto" and following in GOALS and not os.path.lexists(following):
            parser.error("argument --auto: the goal must follow an equals sign")


def add_file_options(
    parser: ArgumentParser, own: str, *, kept: bool = False, **properties: Any
) -> None:
    """Add the options for chunks and reserved space, and between them `own` ones.

    With `kept` the file keeps its own settings.
    """
    from ..checksums import CHECKSUM_NAMES
    from ..pretty import join_with_eol

    rows = [CHECKSUM_NAMES[i : i + 3] for i in range(0, len(CHECKSUM_NAMES), 3)]
    text = (CHUNKS + own + ROOM).format(
        checksums="".join(map(join_with_eol, rows)).replace("\n", "\n    "),
        size=KEPT if kept else defaults.DEFAULT_CHUNK_SIZE,
        checksum=KEPT if kept else defaults.DEFAULT_CHECKSUM,
        room=KEPT if kept else "10 x",
        kept=" (default: %s)" % KEPT if kept else "",
    )
    add_options(
        parser.add_argument_group(title="bloscpack settings"),
        text,
        chunk_size={"type": _chunk_size},
        checksum={"choices": CHECKSUM_NAMES},
        no_offsets=_no("offsets", defaults.DEFAULT_OFFSETS),
        max_app_chunks={"type": int},
        max_meta_size={"type": partial(_size_of_option, "--max-meta-size error:")},
        **properties,
    )


def add_files(parser: ArgumentParser, verb: str) -> None:
    """Add the arguments for inputs and outputs, and the options for them."""
    add_options(
        parser,
        FILE_NAMES.format(verb=verb),
        suffix={"default": EXTENSION},
        files_from={"action": "append"},
        no_preserve=_no("preserve", True),
    )


# What the options say

BLOSC_SETTINGS = ("typesize", "clevel", "shuffle", "cname")


def blosc_settings(args: Namespace, **unset: object) -> dict[str, Any]:
    """Return the settings for Blosc as keywords, those given only.

    `unset` are others, which ``--auto`` chooses if that is given.
    """
    values = {name: getattr(args, name) for name in BLOSC_SETTINGS}
    given = {name: value for name, value in values.items() if value is not None}
    if args.auto:
        return {"blosc_args": given, "auto": args.auto}
    return {"blosc_args": {**unset, **given}}


def option_name(keyword: str) -> str:
    """Return the name of the option for a keyword of `convert`."""
    return "dtype" if keyword == "dtypes" else keyword.replace("_", "-")


def reading_options(args: Namespace) -> dict[str, Any]:
    """Return how a file is read, as keywords of `convert`, those given only."""
    given = {name: getattr(args, name) or None for name in READING_NAMES}
    dtypes, given["dtype"] = _types(args.dtype)
    given["dtypes"] = dtypes or None
    given["shape"] = lengths_of_option("--shape", args.shape)
    for option in ("columns", "exclude"):
        texts = getattr(args, option)
        given[option] = None if texts is None else _names(texts)
    if args.rename is not None:
        given["rename"] = dict(map(_new_name, args.rename))
    return {name: value for name, value in given.items() if value is not None}


def _names(texts: list[str]) -> tuple[str, ...]:
    """Return the names in the values of an option: a line of CSV in each."""
    from csv import reader

    return tuple(name for text in texts for name in next(reader([text]), None) or [""])


def _new_name(text: str) -> tuple[str, str]:
    """Return the old and the new name in a value of ``--rename``."""
    old, mark, new = text.rpartition("=")
    names = _names([old]) if old.startswith('"') else (old,)  # as for --columns
    if not mark or len(names) != 1:
        raise WrongUsage("--rename must be old=new, not '%s'" % text)
    return names[0], new


def _types(given: list[str]) -> tuple[dict[str, str], str | None]:
    """Return the types of columns by name, and the type of raw items."""
    columns, raw = {}, []
    for text in given:
        name, _, dtype = text.rpartition("=")
        if name and not dtype:
            raise WrongUsage(
                "--dtype must be a type, or a name and a type, like day=M8[D], not '%s'"
                % text
            )
        if name:
            columns[name] = dtype
        else:  # "=f4" is a type of the byte order of the machine
            raw.append(text)
    if len(raw) > 1 or (raw and columns):
        raise WrongUsage("--dtype names one type, or the types of columns: %s" % given)
    return columns, raw[0] if raw else None


def refuse_auto(args: Namespace) -> None:
    """Raise `Refusal` if ``--auto`` is given for a dataset; a default is for files."""
    if args.auto and "auto" not in args.from_defaults:
        raise WrongUsage("--auto is for files: '%s' is a dataset" % args.original_file)


# The parsers

# Maximum number of lines of the usage in front of an error.
SHORT = 1
REQUIRED = "the following arguments are required: <%s>"
# Options whose values may begin with a hyphen.
MAY_BE_NEGATIVE = (
    *("--bytes", "--rows", "--shape", "--wait"),
    *("-t", "--typesize", "-l", "--clevel", "--level"),
)
EPILOG = """Without a subcommand, standard input is compressed to standard output, or
decompressed with -d: tar -I 'blpk --auto' -cf folder.tar.blp folder

Additional help for subcommands is available:
  %(prog)s 'subcommand' [ -h | --help ]"""
# At the end of the help of each verb.
GLOBAL_OPTIONS_TEXT = "'blpk --help' shows the options of all subcommands: -f, -n, ..."
# An abbreviation of an option of 0.16 means that option, whatever was added later.
OPTIONS_OF_016 = (
    *("--help", "--version", "--verbose", "--debug", "--force", "--nthreads"),
    *("--typesize", "--clevel", "--no-shuffle", "--codec", "--chunk-size"),
    *("--checksum", "--no-offsets", "--metadata", "--no-check-extension"),
)
# The smallest width of the help, in columns.
LEAST_WIDTH = 20


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Formats help in the width of the terminal; lines that fit keep their line end."""

    def __init__(self, prog: str, **kwargs: Any) -> None:
        # argparse would import shutil to find the width, even if no help is shown.
        super().__init__(prog, **{"width": max(LEAST_WIDTH, columns() - 2), **kwargs})

    def _format_usage(self, *args: Any) -> str:
        # argparse leaves blanks in place of a group of hidden options.
        return re.sub(r"(?<=\S) {2,}(?=\S)", " ", super()._format_usage(*args))

    def _split_lines(self, text: str, width: int) -> list[str]:
        lines = text.splitlines()
        fit = all(len(line) <= width for line in lines)
        return lines if fit else super()._split_lines(text, width)


class Parser(argparse.ArgumentParser):
    """The parser of the command, of a verb, or of an action.

    That of a verb is initialized at the first access to an attribute; `add_arguments`
    adds what it has, and the global options are added behind that.

    Its exit code does not depend on whether its messages are written. Up to Python 3.11
    argparse passes on the error of a closed or full stream. If standard error is
    closed, argparse writes the usage to standard output instead.
    """

    # The arguments that are parsed, for messages.
    arguments: Sequence[str] = ()
    # The names of the global options of a verb's parser; None for the command's.
    inherited: frozenset[str] | None = None

    def __init__(
        self, add_arguments: Callable[[ArgumentParser], None] | None, **kwargs: object
    ) -> None:
        if add_arguments is None:
            super().__init__(formatter_class=HelpFormatter, **kwargs)  # type: ignore[arg-type]
        else:
            self._postponed = add_arguments, kwargs

    def __getattr__(self, name: str) -> object:
        # Called for missing attributes only: all of them before the initialization.
        if "_postponed" not in self.__dict__:
            raise AttributeError(name)
        add_arguments, kwargs = self.__dict__.pop("_postponed")
        Parser.__init__(self, None, **kwargs)
        add_arguments(self)
        self._inherit_global_options()
        return getattr(self, name)

    def _inherit_global_options(self) -> None:
        """Add the global options, without help and defaults, that are no own ones."""
        taken = set(self._option_string_actions)
        if self._subparsers is not None:
            taken.add("-n")  # actions of a verb may give it another meaning
        inherited: list[str] = []
        text = MESSAGES.replace("| ", "") + GLOBAL % MAX_THREADS
        for target, names, keywords in _declared(self, text, _global_properties()):
            free = [name for name in names if name not in taken]
            if free:
                keywords |= {"default": SUPPRESS, "help": SUPPRESS}
                target.add_argument(*free, **keywords)
                inherited += free
        self.inherited = frozenset(inherited)

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
            advice = _advice(str(value), self.arguments)
            self.error("there is no subcommand '%s'; %s" % (value, advice))
        super()._check_value(action, value)

    def refuse_unknown(self, words: list[str], own: Parser | None = None) -> NoReturn:
        """Exit with an error about unknown arguments; `own` is the verb's parser."""
        from ..args import similar

        text = "unrecognized arguments: %s" % " ".join(words)
        known = (own or self)._option_string_actions
        if words[0].partition("=")[0] in known:
            self.error("%s; %s" % (text, _verb_in_front(self.arguments)))
        near = similar(words[0], (o for o in known if o.startswith("--")))
        if near and words[0].startswith("--"):
            text += "; did you mean '%s'?" % near
        elif own is None:
            text += "; 'blpk compress --help' shows the options of a filter"
        self.error(text)

    def _get_option_tuples(self, option_string: str) -> list[Any]:
        """Return the options that an abbreviation may mean: those of 0.16 first."""
        matches = super()._get_option_tuples(option_string)
        if not option_string.startswith("--"):
            return matches
        own = [match for match in matches if match[1] not in (self.inherited or ())]
        return [match for match in own if match[1] in OPTIONS_OF_016] or own or matches

    def may_be_negative(self, option: str) -> bool:
        """Return whether the value of an option, or of its abbreviation, may be."""
        if option.startswith("--") and "=" not in option:
            matches = self._get_option_tuples(option)
            option = matches[0][1] if len(matches) == 1 else option
        return option in MAY_BE_NEGATIVE

    def format_help(self) -> str:
        """Return the help, for a verb with where to find the global options."""
        text = super().format_help()
        return text if self.inherited is None else text + "\n%s\n" % GLOBAL_OPTIONS_TEXT

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


def _advice(word: str, arguments: Sequence[str]) -> str:
    """Return what to do, as `word` in the arguments is no verb."""
    from ..args import similar

    verb = OTHER_WORDS.get(word.lower())
    has_options = any(argument.startswith("-") for argument in arguments[:1])
    if verb is None and (has_options or os.path.exists(word)):
        return _verb_in_front(arguments)
    verb = verb or similar(word.lower(), (verb.name for verb in VERBS))
    return "did you mean '%s'?" % verb if verb else "--help shows all"


def _verb_in_front(arguments: Sequence[str]) -> str:
    """Return the advice to name the verb first: the given one, or the usual one."""
    usual = "decompress" if "-d" in arguments else "compress"
    word = next(filter(find, arguments), usual)
    rest = " ".join(each for each in arguments if each not in (word, "-d"))
    return "name the subcommand in front: 'blpk %s %s'" % (word, rest)


def create_parser() -> Parser:
    """Return the parser of the command line."""
    parser = Parser(
        None,
        prog="blpk",
        description="command line de/compression with blosc",
        epilog=EPILOG,
    )
    add_options(parser, MESSAGES + GLOBAL % MAX_THREADS, **_global_properties())
    subparsers: Any = parser.add_subparsers(
        title="subcommands", metavar="", dest="subcommand", parser_class=Parser
    )
    for verb in VERBS:
        add = partial(add_arguments, verb)
        subparsers.add_parser(verb.name, help=verb.help, add_arguments=add)
        if verb.letter:
            alias = "alias for '%s'" % verb.name
            subparsers.add_parser(verb.letter, help=alias, add_arguments=add)
    return parser


def parsers_in(parser: ArgumentParser) -> dict[str, Any]:
    """Return the parsers of verbs or actions by their names."""
    choices = [a.choices for a in parser._actions if isinstance(a.choices, dict)]
    return choices[0] if choices else {}


def add_arguments(verb: VerbRecord, parser: ArgumentParser) -> None:
    """Add the arguments of a verb to its parser."""
    module = module_of(verb)
    text = getattr(module, "HELP", "").rstrip()
    above, examples, below = text.partition("\n\nexamples:")
    parser.description, parser.epilog = above or None, examples.strip() + below
    add = getattr(module, "add_arguments", None)
    if add is not None:
        add(parser)
    else:
        add_options(parser, module.OPTIONS, **getattr(module, "PROPERTIES", {}))


# The options of the user

# Options that end the command, make a filter decompress, or concern one file.
NOT_ALLOWED = {"-h", "--help", "-V", "--version", "-d", "--debug", "--rm", "--output"}


class _OptionsParser(argparse.ArgumentParser):
    """A parser of the options of another one, without its arguments and defaults."""

    def __init__(self, parser: ArgumentParser) -> None:
        from copy import copy

        super().__init__(add_help=False, allow_abbrev=False)
        for action in parser._actions:
            if action.option_strings and not NOT_ALLOWED & {*action.option_strings}:
                option = copy(action)
                option.default = SUPPRESS
                self._add_action(option)

    def error(self, message: str) -> NoReturn:
        raise WrongUsage("%s: %s" % (DEFAULTS_VARIABLE, message))


class _UserDefault:
    """A default of the user; an option in the command line replaces it."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __str__(self) -> str:
        return str(self.value)  # in the help


def _set_user_defaults(
    parser: ArgumentParser, word: str | None
) -> Callable[[Namespace], None]:
    """Make the options of the variable defaults of the command, and of a verb.

    The result is to be called with the parsed arguments. It lets an option that the
    user gave win over those that it excludes, and sets ``from_defaults``: the names of
    the options in the variable that hold.
    """
    verbs = parsers_in(parser)
    own, before, words = [], dict[str, object](), list[str]()
    try:
        # A user who has set the variable wrongly needs the help.
        text = "" if word in (None, "help") else os.environ.get(DEFAULTS_VARIABLE)
        if text:
            from shlex import split

            words = split(text)
    except ValueError as error:
        raise WrongUsage("%s: %s" % (DEFAULTS_VARIABLE, error)) from error
    for known in (parser, verbs.get(word or ""), *(verbs[v.name] for v in VERBS)):
        if not words or known is None:
            break
        options = _OptionsParser(known)
        if "--auto" in options._option_string_actions:
            _check_goal(options, words)
        known_values, words = options.parse_known_args(words)
        if known in (parser, verbs[str(word)]):
            own.append(known)
            before |= {name: known.get_default(name) for name in vars(known_values)}
            for name, value in vars(known_values).items():
                # The command line adds to a list.
                is_list = isinstance(value, list)
                known.set_defaults(**{name: value if is_list else _UserDefault(value)})
    if words:
        is_known = words[0] in NOT_ALLOWED
        fault = "can't be a default" if is_known else "is no option of blpk"
        raise WrongUsage("%s: '%s' %s" % (DEFAULTS_VARIABLE, words[0], fault))

    def apply(args: Namespace) -> None:
        given = vars(args)
        kept = {name for name in given if isinstance(given[name], _UserDefault)}
        given.update({name: given[name].value for name in kept})
        for known in own:
            for group in known._mutually_exclusive_groups:
                names = {action.dest for action in group._group_actions}
                if any(getattr(args, n) != known.get_default(n) for n in names - kept):
                    for name in names & kept:
                        setattr(args, name, before[name])
                    kept -= names
        args.from_defaults = kept

    return apply


# The command line


def parse(arguments: list[str]) -> Namespace:
    """Return the parsed arguments. Wrong arguments end the program."""
    parser = create_parser()
    parser.arguments = arguments
    parsed = _parse_like_gzip(parser, arguments)
    if parsed is None and may_be_filter(arguments):
        parsed = _parse_filter(parser, arguments)
    if parsed is not None:
        return parsed
    arguments = _with_levels_behind_verb(arguments)
    word = next(filter(find, arguments), None)
    verb, names = find(word), list[str]()
    if verb is not None and verb.many_names and "--" in arguments:
        end = arguments.index("--")  # for other verbs argparse handles it
        arguments, names = arguments[:end], arguments[end + 1 :]
    args, rest = _parsed(parser, word, arguments)
    if args.subcommand is None:
        if rest:
            parser.refuse_unknown(rest)
        if sys.stderr is not None:
            parser.print_help(sys.stderr)
        parser.exit(EXIT_USAGE, "%s: error: too few arguments\n" % parser.prog)
    given = [shown for name, shown in LEVELS.items() if getattr(args, name)]
    if len(given) > 1:  # global options may stand before and behind the verb
        parser.error("argument %s: not allowed with argument %s" % (given[1], given[0]))
    # argparse returns names that follow an option as unknown arguments.
    takes_names = verb is not None and verb.many_names
    if rest and not (takes_names and all(arg == "-" or arg[:1] != "-" for arg in rest)):
        parser.refuse_unknown(rest, parsers_in(parser)[args.subcommand])
    if takes_names:
        missing = _take_names(args, rest + names)
        if missing:
            parsers_in(parser)[args.subcommand].error(REQUIRED % missing)
    return args


def _parsed(
    parser: ArgumentParser, word: str | None, arguments: list[str]
) -> tuple[Namespace, list[str]]:
    """Return the arguments of the verb `word`, and those that are unknown."""
    apply = _set_user_defaults(parser, word)
    if word is not None:
        verb_parser = parsers_in(parser)[word]
        arguments = _joined(verb_parser, arguments)
        if "--auto" in verb_parser._option_string_actions:
            _check_goal(verb_parser, arguments)
        levels = arguments[: (*arguments, "--").index("--")]
        for argument in levels if "-1" in verb_parser._option_string_actions else ():
            # argparse reads a level such as ``-19`` as two.
            if re.fullmatch(r"-\d+", argument) and argument not in CLEVEL_OPTIONS:
                text = "the level must be from -1 to -9, not '%s'"
                verb_parser.error(text % argument)
    args, rest = parser.parse_known_args(arguments)
    if args.subcommand is not None:
        apply(args)
    return args, rest


def _joined(parser: Parser, arguments: list[str]) -> list[str]:
    """Return arguments; a value like ``-1`` or ``-5:`` is joined to its option.

    argparse reads such a value as an option: ``-1`` to ``-9`` are options of some
    verbs.
    """
    words: list[str] = []
    for argument in arguments:
        is_negative = bool(words) and re.match(r"-\d", argument)
        if is_negative and parser.may_be_negative(words[-1]):
            words[-1] += "=" * words[-1].startswith("--") + argument
        else:
            words.append(argument)
    return words


def _with_levels_behind_verb(arguments: list[str]) -> list[str]:
    """Return the arguments with ``-1`` to ``-9`` moved from before the verb behind it.

    They are options of some verbs only.
    """
    verb = next((i for i, word in enumerate(arguments) if find(word)), 0)
    moved = [
        i
        for i in range(verb)
        if arguments[i] in CLEVEL_OPTIONS
        and arguments[i - 1] not in ("-n", "--nthreads")
    ]
    before = [arguments[i] for i in range(verb) if i not in moved]
    levels = [arguments[i] for i in moved]
    return [*before, *arguments[verb : verb + 1], *levels, *arguments[verb + 1 :]]


def may_be_filter(arguments: list[str]) -> bool:
    """Return whether the command line may have no verb and no file names."""
    if sys.stdin is None or sys.stdin.isatty():
        return False
    if arguments and not arguments[0].startswith("-"):
        return False
    other = ("-h", "-V", "--h", "--vers")
    return not any(find(word) or word.startswith(other) for word in arguments)


def _parse_filter(parser: ArgumentParser, arguments: list[str]) -> Namespace | None:
    """Return the arguments of the verb to be run on the standard streams.

    None means that there is a file name or an unknown option. The options are those of
    compress. With ``-d`` the verb is decompress, and options for compressing are
    ignored: tar adds ``-d`` to the options that it gives for both directions.
    """
    args, rest = _parsed(parser, "compress", ["compress", *arguments])
    if rest or args.more or not {args.in_file, args.out_file} <= {None, STREAM}:
        return None
    if args.debug and not any(argument.startswith("--d") for argument in arguments):
        given = vars(args)
        args, _ = _parsed(parser, "decompress", ["decompress"])
        own = {"debug", "subcommand", "from_defaults"}
        for name in vars(args).keys() & given.keys() - own:
            setattr(args, name, given[name])
    args.in_file, args.out_file = STREAM, None
    console.is_filter = True
    return args


def _may_be_value(word: str) -> bool:
    """Return whether a word may be the value of an option such as ``-t`` or ``-k``."""
    from .._format.codecs import CODECS
    from ..checksums import CHECKSUM_NAMES

    return word.isdecimal() or word in (STREAM, *CHECKSUM_NAMES, *CODECS)


def _parse_like_gzip(parser: Parser, arguments: list[str]) -> Namespace | None:
    """Return the arguments of the verb that options of gzip mean.

    None if the meaning is not clear: if there is a verb or another option, if a name is
    no file, or for ``-c`` without ``-d``, which names the codec elsewhere. All names
    are inputs, as in gzip, and no input is removed. Without names, ``-dc`` is ``-d``.
    """
    if not arguments or not arguments[0].startswith("-") or any(map(find, arguments)):
        return None
    letters, names = "", list[str]()
    for i, word in enumerate(arguments):
        if word == "--":
            names += arguments[i + 1 :]
            break
        if word.startswith("-") and word != STREAM:
            letters += GZIP_OPTIONS.get(word[2:], word[1:])
        else:
            names.append(word)
    given = {*letters}
    verb = {"t": "verify", "l": "list", "d": "decompress"}
    name = next((verb[letter] for letter in verb if letter in given), "compress")
    levels = [letter for letter in letters if letter in "123456789"]
    if {*"cd"} <= given <= {*"cdkfqv"} and names in ([], [STREAM]):
        words = ["-" + letter for letter in letters if letter in "dfqv"]
        return _parse_filter(parser, words) if may_be_filter(words) else None
    if (
        not names
        or any(_may_be_value(word) or not os.path.lexists(word) for word in names)
        or not given <= {*"cdklrtfqv", *levels}
        or len(levels) > (name == "compress")
        or ("c" in given and name != "decompress")
    ):
        return None
    words = ["-" + letter for letter in letters if letter in {*"fqvr", *levels}]
    args, _ = _parsed(parser, name, [name, *words])
    if hasattr(args, "files"):
        args.files = names
    else:
        args.more = names
        args.output = STREAM if "c" in given else args.output
    return args


def _take_names(args: Namespace, names: list[str]) -> str:
    """Put names into `names`, `files`, or `in_file`, `out_file` and `more`.

    The result is the name of a missing argument, or empty.
    """
    if hasattr(args, "names"):
        args.names = [*args.names, *names]
        return ""
    if hasattr(args, "files"):
        args.files = [*args.files, *names]
        return "" if args.files else "file"
    given = [args.in_file, args.out_file, *args.more, *names]
    given = [name for name in given if name is not None]
    args.in_file, args.out_file, *args.more = [*given, None, None][: max(2, len(given))]
    return "" if given or args.files_from is not None else "in_file"
