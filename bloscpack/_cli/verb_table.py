"""The verbs of ``blpk``: one record for each.

The parser, the dispatcher, the man page, the completion scripts and ``blpk config``
read this table. A new verb needs a record here and the module ``verbs/NAME.py``,
nothing else. That module defines ``add_arguments(parser)`` and ``run(args)``. It may
define ``writes_data(args)``, which is called before the first message: whether standard
output carries data, so that messages must go to standard error.
"""

from __future__ import annotations

# Kinds of output of a verb.
FILES = "files"  # files; if standard output fails, they are still written
REPORT = "report"  # text for a person on standard output
ANSWER = "answer"  # the exit code, of which 1 is no failure; text for a person explains
DATA = "data"  # data for a program on standard output, without any messages

# Settings that a user can configure.
ALL_SETTINGS = (
    *("nthreads", "codec", "clevel", "chunk_size", "checksum"),
    *("typesize", "filter", "auto"),
)


class VerbRecord:
    """The properties of a verb that are needed before its module is imported.

    ``inputs`` are the arguments that name input files. The dispatcher replaces ``-`` in
    them by a path of standard input; compress, decompress and append read the stream
    themselves. ``settings`` are the user's settings that become defaults of the verb.
    A verb with ``many_files`` accepts options between its file names, and file names
    after ``--``. ``other_names`` are names from other programs: the error message for
    them suggests this verb.
    """

    def __init__(
        self,
        name: str,
        letter: str | None,
        help_: str,
        *,
        writes: str = REPORT,
        inputs: tuple[str, ...] = (),
        settings: tuple[str, ...] = ("nthreads",),
        many_files: bool = False,
        other_names: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.letter = letter
        self.help = help_
        self.writes = writes
        self.inputs = inputs
        self.settings = settings
        self.many_files = many_files
        self.other_names = other_names


# Settings of the verbs that compress, with settings of their own or of a dataset.
BLOSC = ("nthreads", "codec", "clevel", "filter")
# The argument of the verbs that take several compressed files.
PACKED = ("files",)

# In the order of the help text.
VERBS: list[VerbRecord] = [
    VerbRecord(
        "compress",
        "c",
        "perform compression on file",
        writes=FILES,
        settings=ALL_SETTINGS,
        many_files=True,
        other_names=("pack",),
    ),
    VerbRecord(
        "decompress",
        "d",
        "perform decompression on file",
        writes=FILES,
        many_files=True,
        other_names=(
            *("extract", "unpack", "uncompress", "expand", "gunzip", "unzip", "x"),
        ),
    ),
    VerbRecord(
        "append",
        "a",
        "append data to a compressed file",
        writes=FILES,
        settings=(*BLOSC, "auto"),
        other_names=("concat",),
    ),
    VerbRecord(
        "repack",
        None,
        "rewrite compressed files with other settings",
        writes=FILES,
        many_files=True,
        other_names=("recompress", "rewrite"),
    ),
    VerbRecord(
        "convert",
        None,
        "convert arrays and tables between formats",
        writes=FILES,
        settings=BLOSC,
        other_names=("export", "import"),
    ),
    VerbRecord(
        "info",
        "i",
        "print information about a compressed file",
        inputs=PACKED,
        many_files=True,
    ),
    VerbRecord(
        "list",
        "l",
        "show a table of compressed files",
        inputs=PACKED,
        settings=(),
        many_files=True,
        other_names=("ls",),
    ),
    VerbRecord(
        "cat",
        None,
        "write plain bytes, or rows of an array, to standard output",
        writes=DATA,
        inputs=("file_",),
    ),
    VerbRecord(
        "show",
        None,
        "show shape, sizes, the first and last rows, statistics",
        other_names=("head", "stats", "summary", "dump", "print", "view"),
    ),
    VerbRecord(
        "diff",
        None,
        "compare two files or datasets, item by item",
        writes=ANSWER,
        other_names=("cmp", "compare"),
    ),
    VerbRecord(
        "estimate",
        "e",
        "show the space and memory that decompressing needs",
        inputs=PACKED,
        many_files=True,
    ),
    VerbRecord("tune", "t", "find good settings for data", inputs=("file_",)),
    VerbRecord(
        "verify",
        "v",
        "check everything in compressed files",
        inputs=PACKED,
        many_files=True,
        other_names=("check", "test"),
    ),
    VerbRecord(
        "recover",
        "r",
        "save the intact chunks of a damaged file",
        writes=FILES,
        inputs=("damaged",),
        other_names=("repair", "fix"),
    ),
    VerbRecord(
        "metadata",
        "m",
        "print or change the metadata of a compressed file",
        writes=FILES,
        inputs=("file_",),
        settings=(),
    ),
    VerbRecord(
        "refs",
        None,
        "write references through which Zarr reads files",
        writes=DATA,
        settings=(),
        many_files=True,
        other_names=("references", "kerchunk"),
    ),
    VerbRecord("bigfile", None, "work with a BigFile tree: columns as raw files"),
    VerbRecord(
        "config",
        None,
        "show the settings in force and where they come from",
        settings=(),
    ),
    VerbRecord(
        "completion",
        None,
        "print a completion script for a shell",
        writes=DATA,
        settings=(),
    ),
    VerbRecord("help", None, "show the help of a subcommand, or of all", settings=()),
]


def names() -> list[str]:
    """Return the names of all verbs."""
    return [verb.name for verb in VERBS]


def find(word: str | None) -> VerbRecord | None:
    """Return the verb with this name or letter, None if there is none."""
    if word is None:
        return None
    return next((verb for verb in VERBS if word in (verb.name, verb.letter)), None)
