"""The verbs of ``blpk``: one record for each.

The parser, the dispatcher and the man page read this table. A
new verb needs a row here and the module ``verbs/NAME.py``, nothing else. That module
defines ``HELP``, ``add_arguments(parser)`` and ``run(args)``. It may define
``writes_data(args)``, which is called before the first message: whether standard output
carries data, so that messages must go to standard error.
"""

from __future__ import annotations

# Kinds of output of a verb.
FILES = "files"  # files; if standard output fails, they are still written
REPORT = "report"  # text for a person on standard output
ANSWER = "answer"  # the exit code, of which 1 is no failure; text for a person explains
DATA = "data"  # data for a program on standard output, without any messages

# The verbs that may change a file in place, or make a folder: Ctrl-C undoes that.
UNDOING = ("append", "bigfile", "convert", "metadata", "recover", "repack")


class VerbRecord:
    """The properties of a verb that are needed before its module is imported.

    ``inputs`` are the arguments that name input files. The dispatcher replaces ``-`` in
    them by a path of standard input; compress, decompress and append read the stream
    themselves. A verb with ``many_files`` accepts options between its file names, and
    file names after ``--``.
    """

    writes: str = REPORT
    inputs: tuple[str, ...] = ()
    many_files: bool = False

    def __init__(
        self, name: str, letter: str | None, help_: str, **properties: object
    ) -> None:
        self.name, self.letter, self.help = name, letter, help_
        vars(self).update(properties)


# Name, letter, kind of output, the argument that names inputs, `+` where there may be
# many files, and the help; `-` means none. In the order of the help text.
TABLE = """\
compress   c files  -       + perform compression on file
decompress d files  -       + perform decompression on file
append     a files  -       - append data to a compressed file
repack     - files  -       + rewrite compressed files with other settings
convert    - files  -       - convert arrays and tables between formats
info       i report files   + print information about a compressed file
list       l report files   + show a table of compressed files
cat        - data   file_   - write plain bytes, or rows of an array, to standard output
show       - report -       - show shape, sizes, the first and last rows, statistics
diff       - answer -       - compare two files or datasets, item by item
verify     v report files   + check everything in compressed files
recover    r files  damaged - save the intact chunks of a damaged file
metadata   m files  file_   - print or change the metadata of a compressed file
refs       - data   -       - write references through which Zarr reads files
bigfile    - report -       - work with a BigFile tree: columns as raw files
completion - data   -       - print a completion script for a shell
help       - report -       - show the help of a subcommand, or of all
"""


def _record(line: str) -> VerbRecord:
    """Return the record for a line of the table."""
    name, letter, writes, argument, many, help_ = line.split(maxsplit=5)
    verb = VerbRecord(name, None if letter == "-" else letter, help_, writes=writes)
    verb.inputs = () if argument == "-" else (argument,)
    verb.many_files = many == "+"
    return verb


VERBS = [_record(line) for line in TABLE.splitlines()]


def names() -> list[str]:
    """Return the names of all verbs."""
    return [verb.name for verb in VERBS]


def find(word: str | None) -> VerbRecord | None:
    """Return the verb with this name or letter, None if there is none."""
    if word is None:
        return None
    return next((verb for verb in VERBS if word in (verb.name, verb.letter)), None)
