"""``blpk list``: show one line for each file, from its beginning."""

from __future__ import annotations

from ...describe import describe, ratio_of
from ...log import printable
from .. import datasets
from ..display import UNKNOWN, array_text, show_files, size_text
from ..options import add_table_options
from ..stdio import plain_name

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from ...serializers import JsonObject

TITLES = (
    "plain",
    "packed",
    "ratio",
    "codec",
    "chunks",
    "checksum",
    "array",
    "name",
)
SET_LEFT = (3, 5, 6)
# Fields that are not shown: their size is not limited, or they serve `estimate` alone.
LEFT_OUT = ("metadata", "metadata_header", "header", "offsets", "largest_cbytes")


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.description = (
        "show size, ratio, codec and array of each file, read from its beginning"
    )
    parser.epilog = (
        "examples:\n"
        "  %(prog)s *.blp              a table, with a total\n"
        "  %(prog)s -r folder          all *.blp in a folder and below\n"
        "  %(prog)s --bytes *.blp      exact sizes\n"
        "  %(prog)s --json data.blp    a list of objects, for programs"
    )
    add_table_options(parser, "files of any layout, datasets, or folders")


def run(args: Namespace) -> int:
    """List the files."""
    return show_files(
        args, _read, TITLES, _row, _total, SET_LEFT, several=datasets.arrays
    )


def _read(path: str) -> JsonObject:
    """Return the fields of a file whose size is limited."""
    found = {k: v for k, v in describe(path).items() if k not in LEFT_OUT}
    return {**found, "file": plain_name(path)}


def _row(description: JsonObject, exact: bool) -> tuple[str, ...]:
    if "kind" in description:
        return datasets.list_row(description, exact)
    chunk = description["first_chunk"]
    return (
        size_text(description["nbytes"], exact),
        size_text(description["cbytes"], exact),
        "%.2f" % description["ratio"],
        chunk["codec"] if chunk else UNKNOWN,
        str(description["nchunks"]),
        description["checksum"],
        array_text(description["array"]) + (" shard" if description["shard"] else ""),
        printable(description["file"]),
    )


def _counted(found: list[JsonObject]) -> str:
    narrays = sum("kind" in description for description in found)
    nfiles = len(found) - narrays
    counts = [(nfiles, "file")] if nfiles or not narrays else []
    counts += [(narrays, "array")] if narrays else []
    return " and ".join("%d %s%s" % (n, noun, "s" * (n != 1)) for n, noun in counts)


def _total(found: list[JsonObject], exact: bool) -> tuple[str, ...]:
    nbytes = sum(description["nbytes"] for description in found)
    cbytes = sum(description["cbytes"] for description in found)
    return (
        size_text(nbytes, exact),
        size_text(cbytes, exact),
        "%.2f" % ratio_of(nbytes, cbytes),
        "",
        str(sum(description["nchunks"] for description in found)),
        "",
        "",
        "total of %s" % _counted(found),
    )
