"""``blpk estimate``: show the space and memory that decompressing a file needs.

Nothing is decompressed. Sizes are exact. Memory is an upper bound for the buffers of
all threads, without the memory of the interpreter.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from ..._check.findings import counted
from ..._engine.threads import WINDOW
from ..._loop import effective_nthreads
from ...describe import describe
from ...log import printable
from ..display import show_files
from ..exit_codes import EXIT_OK
from ..info_text import size_text
from ..options import add_table_options

if TYPE_CHECKING:
    from ...serializers import JsonObject

TITLES = ("unpacked", "chunks", "threads", "to file", "to pipe", "in memory", "name")
# Number of blocks in memory per thread: Blosc allocates three buffers to decompress a
# block, and the allocator may keep as many that were freed.
BLOCKS_OF_BLOSC = 6
# Fields of the description of a file that an estimate has, too.
DESCRIBED = ("file", "nbytes", "cbytes", "nchunks", "walked")
SIZES = ("memory_to_file", "memory_to_pipe", "memory_in_memory")


HELP = """\
show the exact size of files after decompression, and an upper bound for the
memory that decompressing needs beside the program itself: to a file, to a
pipe, and as a whole in memory; with the number of threads that -n sets

examples:
  %(prog)s data.blp           one line
  %(prog)s --bytes *.blp      exact sizes, and a total
  blpk -n 1 estimate *.blp         memory with a single thread
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    add_table_options(parser, "files to be decompressed, or folders of them")


def run(args: Namespace) -> int:
    """Show the estimates for the files."""

    def read(path: str) -> tuple[list[JsonObject], int]:
        return [estimate(describe(path), args.nthreads)], EXIT_OK

    return show_files(args, read, TITLES, _row, _total)


def estimate(description: JsonObject, nthreads: int) -> JsonObject:
    """Return the needs of the file of a `description` from `describe`, in bytes."""
    nthreads = effective_nthreads(nthreads, description["nchunks"])
    plain = description["largest_chunk"]
    packed = description["largest_cbytes"]
    chunk = description["first_chunk"]
    blocks = BLOCKS_OF_BLOSC * chunk["blocksize"] if chunk else 0
    # Each thread holds one compressed chunk and the buffers of Blosc.
    working = nthreads * (packed + blocks)
    # A pipe takes chunks in order: later ones wait as plain bytes.
    waiting = min(description["nchunks"], WINDOW * nthreads + 1) if nthreads > 1 else 1
    return {
        **{key: description[key] for key in DESCRIBED},
        "nthreads": nthreads,
        "memory_to_file": working + nthreads * plain,
        "memory_to_pipe": working + waiting * plain,
        "memory_in_memory": working + description["nbytes"],
    }


def _row(values: JsonObject, exact: bool) -> tuple[str, ...]:
    counts = str(values["nchunks"]), str(values["nthreads"])
    memory = [size_text(values[key], exact) for key in SIZES]
    name = printable(values["file"])
    return size_text(values["nbytes"], exact), *counts, *memory, name


def _total(found: list[JsonObject], exact: bool) -> tuple[str, ...]:
    nbytes = sum(values["nbytes"] for values in found)
    nchunks = sum(values["nchunks"] for values in found)
    name = "total of " + counted(len(found), "file")
    return size_text(nbytes, exact), str(nchunks), "", "", "", "", name
