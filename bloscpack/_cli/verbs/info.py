"""``blpk info``: show the facts about a file or a dataset, as lines or as JSON.

With ``--chunks`` all chunks are checked. A damaged or missing chunk has a row without
sizes, and errors outside of the chunks follow the table.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from ..._check.findings import ERROR
from ..._storage.paths import shown_name
from ..._types import JsonObject, Seekable
from ...constants import MAGIC
from ...log import counted, printable
from ..console import check_exists, console, plain_name, shown_input
from ..exit_codes import EXIT_DAMAGED, EXIT_OK, for_each_file
from ..named import Named, NamedFile, code_of, named, named_any, packed_files
from ..text import UNKNOWN, say_json, size_text

if TYPE_CHECKING:
    from ..._commit.snapshot import Check

# The rows of chunks, and the other errors.
Chunks = tuple[list[JsonObject], list[str]]
# Plain size, compressed size, ratio, number, state.
ROW = "%8s  %8s  %8s  %8s  %s"

HELP = """\
show what a file or a dataset is, read from its beginning: sizes, settings,
metadata, and the arrays in it; also of other formats, such as npy and HDF5

examples:
  %(prog)s data.blp
  %(prog)s --chunks data.blp       sizes and state of each chunk
  %(prog)s station.zarr/speed      an array in a group
"""
OPTIONS = """\
--chunks  check all chunks, and show sizes and state of each
--bytes  show sizes in bytes, without suffix
| --json  print a JSON object with all fields
files <file>  file or dataset to show info for, or a folder of files
-r --recursive  include all folders below a folder
"""


def run(args: Namespace) -> int:
    """Show the information about a file, or about several under their names."""
    console.exact = args.bytes
    tables: list[JsonObject] = []
    files = packed_files(args)
    lookup = named if args.chunks else named_any
    if len(files) == 1 and files == args.files:
        code = _show(args, lookup(files[0]), tables)
        if args.json:
            say_json(tables[0])
        return code

    def act(path: str) -> int:
        item = lookup(path)
        if not args.json:
            if path is not files[0]:
                console.say()
            console.say("'%s':" % printable(shown_name(path)))
        return _show(args, item, tables)

    worst = for_each_file(files, act)
    if args.json:
        say_json(tables)
    return worst


def _show(args: Namespace, item: Named, tables: list[JsonObject]) -> int:
    """Show a file or dataset, or add it to a list for JSON; return the exit code."""
    if args.chunks:
        chunks_of = _chunks_of_dataset
        if isinstance(item, NamedFile):
            chunks_of = _chunks_of_file
        rows, errors = chunks_of(item.path, args.nthreads)
        table = {
            "file": plain_name(item.path),
            "nchunks": len(rows),
            "ndamaged": sum(row["nbytes"] is None for row in rows),
            "chunks": rows,
            "errors": errors,
        }
        if args.json:
            tables.append(table)
        else:
            _show_chunks(table, shown_input(item.path))
        return EXIT_DAMAGED if table["ndamaged"] or table["errors"] else EXIT_OK
    if not args.json:
        return item.info()
    described = item.describe()
    tables.append(described)
    return code_of(described)


# The chunks


def _chunks_of_file(path: str, nthreads: int) -> Chunks:
    from ..._check.files import Inspection
    from ..._commit.snapshot import read_snapshot
    from ..._engine.blosc_settings import own_settings
    from ..._file.archive import refuse_archive
    from ..._storage.stream import positional
    from ...abstract_io import effective_nthreads

    check_exists("file", path)

    def read(fp: Seekable, check: Check) -> Chunks:
        with positional(fp) as storage:
            if storage.read_at(0, len(MAGIC)) != MAGIC:
                refuse_archive(storage)
            inspection = Inspection(storage, effective_nthreads(nthreads, None))
            intact = {chunk[0]: chunk[2:] for chunk in inspection.intact_chunks()}
        if inspection.sections.header is not None:
            check(inspection.sections.header)
        numbers = range(inspection.geometry.nchunks)
        damaged = set(numbers) - intact.keys()
        errors = [
            str(finding)
            for finding in inspection.report.findings
            if finding.severity == ERROR
            and not (finding.section == "chunks" and finding.chunk in damaged)
        ]
        return list(_rows(numbers, intact)), errors

    with own_settings:
        return read_snapshot(path, read)


def _chunks_of_dataset(path: str, nthreads: int) -> Chunks:
    from ...dataset.checking import DatasetCheck

    checked = DatasetCheck(path, nthreads, keep_sound=True)
    checked.raise_failure()
    rows: list[JsonObject] = []
    for _, check in checked.files:
        rows.extend(_rows(check.numbers, check.intact, file=check.file))
    return rows, [str(f) for f in checked.report.findings if f.severity == ERROR]


def _rows(
    numbers: Iterable[int], intact: Mapping[int, tuple[int, ...]], **where: str
) -> Iterator[JsonObject]:
    """Yield a row for each chunk; the sizes of damaged chunks are None.

    `where` are more fields of each row.
    """
    for number in numbers:
        nbytes, cbytes = intact.get(number, (None, None))
        yield {**where, "chunk": number, "nbytes": nbytes, "cbytes": cbytes}


def _show_chunks(table: JsonObject, name: str) -> None:
    """Print the table, a total, and the errors."""
    console.say(ROW % ("plain", "packed", "ratio", "chunk", "state"))
    nbytes = cbytes = 0
    for row in table["chunks"]:
        state = "damaged" if row["nbytes"] is None else "ok"
        if "file" in row:
            state += "  " + row["file"]
        nbytes += row["nbytes"] or 0
        cbytes += row["cbytes"] or 0
        console.say(ROW % (*_sizes(row["nbytes"], row["cbytes"]), row["chunk"], state))
    counts = counted(table["nchunks"], "chunk"), table["ndamaged"], name
    total = "%s, %d damaged: %s" % counts
    console.say("%8s  %8s  %8s  %s" % (*_sizes(nbytes, cbytes), total))
    console.say_all(table["errors"])


def _sizes(nbytes: int | None, cbytes: int | None) -> tuple[str, str, str]:
    """Return plain size, compressed size and ratio as texts."""
    if nbytes is None or cbytes is None:
        return UNKNOWN, UNKNOWN, UNKNOWN
    from ...describe import ratio_of

    return size_text(nbytes), size_text(cbytes), "%.2f" % ratio_of(nbytes, cbytes)
