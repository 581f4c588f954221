"""``blpk refs``: write references through which Zarr reads the chunks of files."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, Namespace

from ..._storage.paths import without_url
from ...references import references, write_references
from ..console import STREAM, console
from ..exit_codes import Refusal
from ..options import add_options

HELP = """\
write references, in the format of kerchunk, through which Zarr and xarray
read the chunks of files in place and verify their digests; a folder of
bcolz or BLZ, without digests, is an array or a table of them

examples:
  %(prog)s -o all.json *.blp                one array for each file
  %(prog)s -o t.json --concat t-*.blp       one array, joined by rows
  %(prog)s --location https://host/d a.blp  where the file will be read
  %(prog)s -o prices.json prices.bcolz      the columns of a table
"""


OPTIONS = """\
-o --output <file>  write a JSON file, or a folder of Parquet files if the name ends
    in .parq; standard output by default
--concat  join the arrays along the first axis, in the order of the names
--zarr-format  format of the Zarr documents (default: 2)
--flat  make each array one-dimensional
--unverified  accept checksums that no Zarr reader verifies
--name <name>  name of the array, if there is only one
--dims <a,b>  names of the axes, separated by commas
--location <url>  folder or URL where readers find the files
files <file>  file, URL or dataset to be referenced
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    zarr_format = {"type": int, "choices": (2, 3), "default": 2}
    add_options(
        parser,
        OPTIONS,
        output={"default": STREAM},
        zarr_format=zarr_format,
        files={"nargs": "*"},
    )
    parser.set_defaults(refuse=parser.error)


def run(args: Namespace) -> None:
    """Write the references."""
    out = args.output
    without_url(out, "an output of the command")
    if out != STREAM and os.path.lexists(out) and not args.force:
        raise Refusal("output file '%s' exists! Use -f to replace it" % out)
    found = references(
        args.files[0] if len(args.files) == 1 else args.files,
        zarr_format=args.zarr_format,
        concat=args.concat,
        flat=args.flat,
        unverified=args.unverified,
        name=args.name,
        dims=None if args.dims is None else args.dims.split(","),
        location=args.location,
    )
    if out == STREAM:
        console.put(json.dumps(found, separators=(",", ":")) + "\n")
    else:
        write_references(found, out)
