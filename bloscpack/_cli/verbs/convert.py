"""``blpk convert``: convert arrays and tables between formats of files and folders."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace

from ... import log
from ..._storage.paths import shown_name, without_url
from ...exceptions import StorageError
from ..args import (
    READING,
    READING_PROPERTIES,
    add_auto_option,
    add_codec_options,
    add_options,
    reading_options,
    rows_or_shape,
)
from ..console import (
    check_exists,
    console,
    descriptor_of,
    name_of_input,
    name_of_output,
    plain_name,
    quoted_input,
    warn_of_loss,
    warn_of_rest_in,
)
from ..exit_codes import WrongUsage
from ..jobs import Clock
from ..progress import shown
from ..target import check_free, check_no_terminal
from ..text import say_json

# Maximum number of earlier recoveries that are shown.
RECOVERED_SHOWN = 8
HELP = """\
convert an array, a table or a group to another format, in bounded memory:
npy, npz, blp, csv, parquet, hdf5 (netCDF, too), and the layouts of datasets,
such as zarr and bcolz; the input may also be any Zarr store, or raw items
with --dtype; - is standard input or standard output

examples:
  %(prog)s data.npy data.zarr                  to a dataset of Zarr
  %(prog)s -c zstd prices.bcolz prices.parquet
  %(prog)s --dtype day=M8[D] prices.csv prices.zarr
  %(prog)s --delimiter ';' --decimal , --times prices.csv prices.zarr
  %(prog)s --columns time,speed --rename time=t log.parquet log.h5
  %(prog)s --to npy data.blp data
  %(prog)s climate.nc climate.zarr
  %(prog)s --dtype f4 --shape -1,300 raw.f32 data.zarr
  %(prog)s --to csv data.zarr - | head
"""


OPTIONS = """\
--to <format>  format of the target (default: the end of its name)
--chunks <n>,<n>...  shape of a chunk of a dataset, or its number of rows
--shards <n>,<n>...  the same for a file of chunks
--no-missing  the fill value of Zarr format 2 is a value like others, and
    does not become _FillValue, the value of missing items
--json  print an object
source <source>  file or folder to convert
target <target>  file or folder to be written
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    add_options(
        *(parser, OPTIONS + READING),
        no_missing={"dest": "missing", "action": "store_false"},
        **READING_PROPERTIES,
    )
    group = parser.add_argument_group(title="blosc settings")
    add_codec_options(group, "that of the format")
    add_auto_option(group.add_mutually_exclusive_group(), kept=True)


def writes_data(args: Namespace) -> bool:
    """Return whether the target is standard output."""
    return descriptor_of(args.target) == 1


def run(args: Namespace) -> None:
    """Convert the file or folder."""
    from ...dataset import convert
    from ...dataset.conversion import split_members

    if not split_members(args.source)[1]:
        check_exists("input file", args.source)
    without_url(args.target, "an output of the command")
    _check_target(args)
    settings = {name: getattr(args, name) for name in ("cname", "clevel", "shuffle")}
    settings = {name: settings[name] for name in settings if settings[name] is not None}
    if args.auto:
        settings["auto"] = args.auto
    options = reading_options(args)
    source = name_of_input(args.source, seekable=True)
    log.verbose("input file is: '%s'" % shown_name(args.source))
    log.verbose("output file is: '%s'" % args.target)
    clock = Clock()
    with shown(args.source, None, args.progress) as bar:
        done = convert(
            source,
            name_of_output(args.target),
            to=args.to,
            force=args.force,
            chunks=rows_or_shape("--chunks", args.chunks),
            shards=rows_or_shape("--shards", args.shards),
            missing=args.missing,
            nthreads=args.nthreads,
            sync=args.sync,
            progress=bar,
            expect=None if bar is None else bar.expect,
            **options,
            **settings,
        )
    clock.log(done.nbytes)
    warn_of_loss(done.target, done.lost, args.source)
    warn_of_rest_in(args.source, source)
    for text in (*done.notes, *done.recovered[:RECOVERED_SHOWN]):
        log.notice("%s: %s" % (quoted_input(args.source), text))
    if args.json:
        say_json({**done.as_dict(), "source": plain_name(args.source)})


def _check_target(args: Namespace) -> None:
    """Raise `StorageError` if there is a target and ``--force`` is not given.

    With that option, the library says whether a folder may be replaced.
    """
    if writes_data(args):
        if args.to is None:
            raise WrongUsage("--to must name the format of standard output")
        if args.json:
            raise WrongUsage("--json and the data can't both go to standard output")
        if args.to != "csv":  # a terminal gets text only
            check_no_terminal(args.target, args, "the bytes of '%s'" % args.to)
        console.need_output()
        console.hidden["'%s'" % name_of_output(args.target)] = "standard output"
    elif not os.path.isdir(args.target):
        check_free(args.target, args)
    elif not args.force:
        raise StorageError("output file '%s' exists!" % args.target)
