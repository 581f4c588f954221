"""Options of every verb, and options that several verbs share, with their values."""

from __future__ import annotations

import re
from argparse import SUPPRESS, Action
from itertools import pairwise

from .. import log
from ..constants import EXTENSION, MAX_CLEVEL, MAX_THREADS, MIN_CLEVEL
from ..defaults import DEFAULT_CLEVEL, DEFAULT_CNAME, DEFAULT_SHUFFLE, available_cpus
from .console import STREAM, check_exists
from .exit_codes import EXIT_OK, Refusal, WrongUsage

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _ActionsContainer
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, NoReturn, TypeVar

    from .._types import Json, JsonObject
    from ..args import BloscArgs

    Number = TypeVar("Number", int, float)


def add(group: _ActionsContainer, names: str, help_: str, **properties: Any) -> None:
    """Add an option or an argument to a parser or a group.

    `names` are the names of the option and of its value, which begins with a bracket:
    ``-o --output <file>``. Without the name of a value the option stores True, unless
    `properties` say otherwise.
    """
    bracket = next((i for i, c in enumerate(names) if c in "<["), len(names))
    strings, value = names[:bracket], names[bracket:]
    if value:
        properties["metavar"] = value
    elif "choices" not in properties:
        properties.setdefault("action", "store_true")
    group.add_argument(*strings.split(), help=help_, **properties)


def add_options(group: _ActionsContainer, text: str, **properties: Any) -> None:
    """Add the options and arguments that a text declares, in the form of the help.

    A line has the names, as `add` takes them, two blanks, and the help. Indented lines
    continue the help. A line that begins with ``|`` excludes the option in front of
    it. `properties` has more properties of an option by its last name.
    """
    target = group
    for declared, following in pairwise([*re.split(r"\n(?! )", text.strip()), ""]):
        if declared[0] != "|":
            has_others = following.startswith("|")
            target = group.add_mutually_exclusive_group() if has_others else group
        names, help_ = declared.removeprefix("| ").split("  ", 1)
        name = re.split(" ?[<[]", names)[0].split()[-1].strip("-").replace("-", "_")
        help_ = help_.replace("\n    ", "\n")
        add(target, names, help_, **properties.get(name, {}))


def set_help(parser: ArgumentParser, text: str) -> None:
    """Set the text above the options of a verb, and the examples below them."""
    above, examples, below = text.rstrip().partition("\n\nexamples:")
    parser.description, parser.epilog = above or None, examples.strip() + below


INFINITE = float("inf")

# The delimiter of CSV


def add_delimiter_option(group: _ActionsContainer) -> None:
    """Add the option with the character between the values of CSV."""
    text = "character between the values of CSV: ';' or tab, say\n(default: a comma)"
    add(group, "--delimiter <character>", text)


def given_delimiter(args: Namespace) -> dict[str, str]:
    """Return the delimiter as a setting, if there is one."""
    return {} if args.delimiter is None else {"delimiter": args.delimiter}


# Options of every verb

# The groups of the global options.
LEVEL = "level"
GLOBAL = "global"
SYNC = "sync"
PROGRESS = "progress"
# The options that select which messages are shown: they exclude each other.
LEVELS = {"verbose": "-v/--verbose", "debug": "-d/--debug", "quiet": "-q/--quiet"}
FORCE_HELP = "disable overwrite checks for existing files\n(use with caution)"
NTHREADS_HELP = "set number of threads, (default: %(default)s (ncores))"
SYNC_HELP = (
    "return only when the output is on the disk (default: where an existing "
    "file is replaced or changed)"
)
PROGRESS_HELP = "show a progress bar (default: on a terminal, after a second)"


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


def size_of_option(name: str, text: str) -> int:
    """Return the number of bytes in the value of an option."""
    from .display import parse_size

    # argparse would replace the message of a ValueError.
    try:
        return parse_size(text)
    except ValueError as error:
        raise WrongUsage("%s %s" % (name, error)) from error


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
    found = lengths_of_option(name, text)
    return found[0] if found is not None and len(found) == 1 else found


class _Version(Action):
    """Show the versions of Bloscpack, python-blosc and Blosc, and exit."""

    def __call__(self, parser: ArgumentParser, *args: object) -> NoReturn:
        from .quick_answers import version

        version()
        parser.exit(EXIT_OK)


def global_options() -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Yield group, names, help and properties of the options of every verb."""
    version = {"action": _Version, "nargs": 0, "dest": SUPPRESS, "default": SUPPRESS}
    yield "", "--version -V", "show program's version number and exit", version
    yield LEVEL, "-v --verbose", "be verbose about actions", {}
    yield LEVEL, "-d --debug", "the same as -v", {}
    yield LEVEL, "-q --quiet", "show only errors", {}
    yield GLOBAL, "-f --force", FORCE_HELP, {}
    number = min(available_cpus(), MAX_THREADS)
    names = "-n --nthreads [1, %d]" % MAX_THREADS
    yield GLOBAL, names, NTHREADS_HELP, {"type": int, "default": number}
    for dest, help_, help_for_no in (
        (SYNC, SYNC_HELP, "do not wait until the output is on the disk"),
        (PROGRESS, PROGRESS_HELP, "show no progress bar"),
    ):
        yield dest, "--" + dest, help_, {"default": None}
        no = {"action": "store_false", "dest": dest}
        yield dest, "--no-" + dest, help_for_no, no


# Options of several verbs

# The options for a compression level, as those of gzip and zstd.
LEVEL_OPTIONS = tuple("-%d" % level for level in range(1, MAX_CLEVEL + 1))
AUTO_HELP = (
    "choose codec, level, filter, type size and chunk\n"
    "size by trials on a sample; options for these win"
)


# Blosc


class StoreGiven(Action):
    """Stores a value of the command line, and its name in ``given``."""

    def __call__(
        self, parser: object, args: Namespace, values: object, option: object = None
    ) -> None:
        """Store the value of the option, or its constant if it has none."""
        self.store(args, self.const if self.nargs == 0 else values)

    def store(self, args: Namespace, value: object) -> None:
        """Store a value as one that the user has given."""
        setattr(args, self.dest, value)
        args.given = [*getattr(args, "given", ()), self.dest]


class _Codecs:
    """The codecs of the installed Blosc; Blosc is imported at the first use."""

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    @staticmethod
    def _names() -> list[str]:
        from ..constants import CNAME_AVAIL

        return CNAME_AVAIL


def _codec_name(text: str) -> str:
    """Return the name of a codec in any case; messages show other text unchanged."""
    return text.lower() if text.isalnum() else text


class _Level(StoreGiven):
    """Stores the compression level that is the name of the option."""

    def __call__(
        self, parser: object, args: Namespace, values: object, option: object = None
    ) -> None:
        """Store the digit of the option."""
        self.store(args, int(str(option)[1:]))


# The default that the help of `repack` shows: it keeps what the file has.
KEPT = "as in the file"


def add_blosc_options(
    parser: ArgumentParser, typesize: int | None, *, kept: bool = False
) -> None:
    """Add the options for Blosc; None as type size means the type size of the file.

    With `kept` all defaults are None, which means the setting of the file.
    """
    shown = "type size of the file" if typesize is None else typesize
    group = parser.add_argument_group(title="blosc settings")
    add(
        group,
        "-t --typesize <bytes>",
        "typesize for blosc (default: %s)" % shown,
        action=StoreGiven,
        default=typesize,
        type=int,
    )
    add_codec_options(group, KEPT if kept else "")


def add_codec_options(group: _ActionsContainer, unset: str) -> None:
    """Add the options for codec, level and filter.

    With `unset`, a text that says where the settings come from, all defaults are None.
    """
    from .._format.codecs import BITSHUFFLE

    number: dict[str, object] = {
        "action": StoreGiven,
        "default": None if unset else DEFAULT_CLEVEL,
        "choices": range(MIN_CLEVEL, MAX_CLEVEL + 1),
        "type": int,
        "dest": "clevel",
    }
    level = unset if unset and unset != KEPT else DEFAULT_CLEVEL
    help_ = "compression level (default: %s)" % level
    add(group, "-l --clevel [0, 9]", help_, **number)
    add(group, "--level [0, 9]", SUPPRESS, **number)
    levels = {"action": _Level, "nargs": 0, "dest": "clevel"}
    add(group, " ".join(LEVEL_OPTIONS), "the same as -l 1 to -l 9", **levels)
    filters = group.add_mutually_exclusive_group()
    default = None if unset else DEFAULT_SHUFFLE
    if unset:
        shuffle = {"action": "store_const", "const": True, "default": default}
        add(filters, "--shuffle", "shuffle bytes", **shuffle)
    other = {"action": StoreGiven, "nargs": 0, "default": default, "dest": "shuffle"}
    add(filters, "-s --no-shuffle", "deactivate shuffle", const=False, **other)
    bits = "shuffle bits instead of bytes"
    add(filters, "--bitshuffle", bits, const=BITSHUFFLE, **other)
    add(
        group,
        "-c --codec <codec>",
        "codec to be used by Blosc: \n%%(choices)s\n (default: %s)"
        % (unset or DEFAULT_CNAME),
        action=StoreGiven,
        type=_codec_name,
        choices=_Codecs(),
        default=None if unset else DEFAULT_CNAME,
        dest="cname",
    )


def add_auto_option(group: _ActionsContainer, *, kept: bool = False) -> None:
    """Add ``--auto``: the settings are chosen for the data.

    With `kept`, ``--no-auto`` is left out: the settings of the file are the default. A
    value must follow ``=``: the word behind ``--auto`` is a file name. Therefore each
    goal is an option of its own.
    """
    from .._format.codecs import DEFAULT_GOAL

    auto = {"action": "store_const", "default": False, "dest": "auto"}
    for goal, names, help_ in (
        (DEFAULT_GOAL, "--auto --auto=" + DEFAULT_GOAL, AUTO_HELP),
        ("speed", "--auto=speed", "the same for the highest speed"),
        ("ratio", "--auto=ratio", "a small file, up to 30 times as slowly"),
        (None, "--no-auto", "use fixed settings (default)"),
    )[: 3 if kept else 4]:
        add(group, names, help_, const=goal, **auto)


def check_goal(parser: ArgumentParser, arguments: Iterable[str]) -> None:
    """Exit with an error if a goal is unknown, or a word behind ``--auto``.

    Such a word may be a file name if there is a file of that name.
    """
    from os.path import lexists

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
        if word == "--auto" and following in GOALS and not lexists(following):
            parser.error("argument --auto: the goal must follow an equals sign")


def chosen(args: Namespace) -> set[str]:
    """Return the names of the options that the user gave, or has among the defaults.

    ``given`` has the options of the command line, ``from_defaults`` the others.
    """
    return {*getattr(args, "given", ()), *getattr(args, "from_defaults", ())}


def check_type_size(args: Namespace) -> None:
    """Raise `Refusal` if options give a type size for an array, which has its own.

    A type size among the defaults of the user is for other files.
    """
    is_array = args.subcommand in ("compress", "c") and args.npy
    if is_array and "typesize" in getattr(args, "given", ()):
        raise WrongUsage("--npy takes the type size from the array; -t can't be given")


def blosc_args(args: Namespace) -> BloscArgs:
    """Return the settings for Blosc."""
    from ..args import BloscArgs

    return BloscArgs(args.typesize, args.clevel, args.shuffle, args.cname)


def blosc_settings(args: Namespace, settings: BloscArgs) -> dict[str, Any]:
    """Return the settings for Blosc as keywords; with ``--auto``, those given stay."""
    if not args.auto:
        return {"blosc_args": settings}
    kept = {name: settings[name] for name in chosen(args) & {*settings}}
    return {"blosc_args": kept, "auto": args.auto}


def refuse_auto(args: Namespace) -> None:
    """Raise `Refusal` if ``--auto`` is given for a dataset; a default is for files."""
    if args.auto and "auto" not in getattr(args, "from_defaults", ()):
        raise WrongUsage("--auto is for files: '%s' is a dataset" % args.original_file)


# Data and metadata


def metadata_of_option(args: Namespace) -> Json:
    """Return the metadata in the file that ``-m`` names, or None without ``-m``."""
    if args.metadata is None:
        return None
    inputs = [getattr(args, name, None) for name in ("in_file", "new_file")]
    if args.metadata == STREAM and STREAM in inputs:
        raise WrongUsage("data and metadata can't both be standard input")
    metadata = read_metadata(args.metadata)
    if metadata is None:
        log.notice("metadata file '%s' is null: it counts as none" % args.metadata)
    return metadata


def read_metadata(name: str) -> Json:
    """Return the JSON value in a file or standard input; raises `Refusal`."""
    from .inputs import opened_input

    check_exists("metadata file", name)
    what = "standard input" if name == STREAM else "metadata file '%s'" % name
    with opened_input(name) as fp:
        raw = fp.read()
    try:
        return parse_json(raw.decode("utf-8-sig"), what)
    except ValueError as error:
        raise Refusal("%s is not valid JSON: %s" % (what, error)) from error


def parse_json(text: str, what: str) -> Json:
    """Return the value of JSON text; raises ValueError.

    As in 0.16, NaN and infinities are accepted, and the last value of a repeated key
    counts. A warning names the repeated key; `what` is the name of the text in it.
    """
    import json

    from ..serializers import SERIALIZERS_LOOKUP

    doubles = []

    def without_doubles(pairs: list[tuple[str, Json]]) -> JsonObject:
        found = dict(pairs)
        if len(found) < len(pairs):
            doubles.extend(sorted(key for key, _ in pairs))
        return found

    try:
        value = json.loads(text.strip(), object_pairs_hook=without_doubles)
        SERIALIZERS_LOOKUP[b"JSON"].dumps(value)  # raises if the value can't be stored
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    for key, after in pairwise(doubles):
        if key == after:
            log.notice("%s: of the values of '%s' only the last counts" % (what, key))
            break
    return value


# Files

FILES = """\
in_file <in_file>  file to be VERBed
out_file <out_file>  file to VERB to
more <file>  with three names or more, all are files to be VERBed
files:
--output <file>  file to VERB to
--output-dir <folder>  put all outputs into a folder
--suffix <text>  end of the names of compressed files (default: %(default)s)
--files-from <file>  names of more inputs, one a line, or ended by zero bytes
-r --recursive  VERB the files in folders and all below
--skip-existing  leave outputs that exist; all names are inputs
--update  replace outputs that are older than their inputs, leave others that exist; all
    names are inputs
--rm  remove an input when its output is safe on the disk
--no-preserve  don't give outputs the times and permissions of inputs
"""


def add_files(parser: ArgumentParser, verb: str) -> None:
    """Add the arguments for inputs and outputs, and the options for them."""
    parser.set_defaults(refuse=parser.error)
    one, several = {"nargs": "?"}, {"nargs": "*"}
    texts = FILES.replace("VERB", verb).split("files:\n")
    add_options(parser, texts[0], in_file=one, out_file=one, more=several)
    add_options(
        parser.add_argument_group(title="files"),
        texts[1],
        suffix={"default": EXTENSION},
        files_from={"action": "append"},
        no_preserve={"action": "store_false", "dest": "preserve"},
    )


def add_packed_files(parser: ArgumentParser, help_: str) -> None:
    """Add the argument for several compressed files or folders, and ``-r``."""
    parser.set_defaults(refuse=parser.error)
    add(parser, "files <file>", help_, nargs="*")
    add(parser, "-r --recursive", "include all folders below a folder")
