"""``blpk refs``: write references through which Zarr reads the chunks of a file."""

from __future__ import annotations

import json
import os
from argparse import Namespace

from ..._commit.replacing import check_distinct
from ..._storage.paths import without_url
from ...references import references, write_references
from ..console import STREAM, console
from ..exit_codes import Refusal

HELP = """\
write references, in the format of kerchunk, through which Zarr and xarray
read the chunks of a file in place and verify their digests

examples:
  %(prog)s -o a.json a.blp                  a file for fsspec and xarray
  %(prog)s --location https://host/d a.blp  where a.blp will be read
"""
OPTIONS = """\
-o --output <file>  write a JSON file; standard output by default
--zarr-format  format of the Zarr documents (default: 2)
--name <name>  name of the array; by default that of the file
--dims <a,b>  names of the axes, separated by commas
--location <url>  folder or URL where readers find the file
file_ <file>  file or URL to be referenced
"""
PROPERTIES = {
    "output": {"default": STREAM},
    "zarr_format": {"type": int, "choices": (2, 3), "default": 2},
}


def run(args: Namespace) -> None:
    """Write the references."""
    out = args.output
    without_url(out, "an output of the command")
    if out != STREAM:
        check_distinct(args.file_, out)
        if os.path.lexists(out) and not args.force:
            raise Refusal("output file '%s' exists! Use -f to replace it" % out)
    document = references(
        args.file_,
        zarr_format=args.zarr_format,
        name=args.name,
        dims=None if args.dims is None else args.dims.split(","),
        location=args.location,
    )
    if out == STREAM:
        console.put(json.dumps(document, separators=(",", ":")) + "\n")
    else:
        write_references(document, out)
