"""``blpk convert``: convert arrays and tables between formats of files and folders."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace

from ... import log
from ..._storage.paths import shown_name, without_url
from ...exceptions import StorageError
from ..console import STREAM, check_exists
from ..display import say_json
from ..exit_codes import WrongUsage
from ..options import add, add_codec_options, set_help
from ..outputs import Clock, check_free
from ..progress import shown

HELP = """\
convert an array, a table or a group to another format, in bounded memory:
npy, npz, blp, csv, parquet, and the layouts of datasets, such as zarr and
bcolz; the input may also be any Zarr store

examples:
  %(prog)s data.npy data.zarr                  to a dataset, which is a Zarr array
  %(prog)s -c zstd prices.bcolz prices.parquet
  %(prog)s --dtype day=M8[D] prices.csv prices.zarr
  %(prog)s --to npy data.blp data
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    set_help(parser, HELP)
    add(parser, "--to <format>", "format of the target (default: the end of its name)")
    add(
        parser,
        "--dtype <name>=<type>",
        "type of a column of a CSV file, as NumPy names it:\n"
        "i4, f8, M8[D], U10, U (the longest text)",
        action="append",
        default=[],
    )
    add(parser, "--json", "print an object")
    add_codec_options(parser.add_argument_group(title="blosc settings"))
    add(parser, "source <source>", "file or folder to convert")
    add(parser, "target <target>", "file or folder to be written")


def run(args: Namespace) -> None:
    """Convert the file or folder."""
    from ...dataset import convert

    if STREAM in (args.source, args.target):
        raise WrongUsage("convert needs files or folders, not streams")
    check_exists("input file", args.source)
    without_url(args.target, "an output of the command")
    _check_target(args)
    log.verbose("input file is: '%s'" % shown_name(args.source))
    log.verbose("output file is: '%s'" % args.target)
    clock = Clock()
    with shown(args.source, None, args.progress) as bar:
        done = convert(
            args.source,
            args.target,
            to=args.to,
            force=args.force,
            dtypes=_dtypes(args.dtype),
            nthreads=args.nthreads,
            sync=args.sync,
            progress=bar,
            expect=None if bar is None else bar.expect,
            cname=args.cname,
            clevel=args.clevel,
            shuffle=args.shuffle,
        )
    clock.log(done.nbytes)
    if done.lost:
        log.notice(
            "'%s' can't hold %s of '%s'"
            % (done.target, _listed(done.lost), done.source)
        )
    if args.json:
        say_json(done.as_dict())


def _check_target(args: Namespace) -> None:
    """Raise `StorageError` if there is a target and ``--force`` is not given.

    With that option, the library says whether a folder may be replaced.
    """
    if not os.path.isdir(args.target):
        check_free(args.target, args)
    elif not args.force:
        raise StorageError("output file '%s' exists!" % args.target)


def _dtypes(given: list[str]) -> dict[str, str]:
    """Return the types of columns by name."""
    found = {}
    for text in given:
        name, equals, dtype = text.rpartition("=")
        if not equals or not name or not dtype:
            raise WrongUsage(
                "--dtype must be a name and a type, like day=M8[D], not '%s'" % text
            )
        found[name] = dtype
    return found


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
