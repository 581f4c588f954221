"""``blpk append``: add plain data to a Bloscpack file, in place, or to a dataset."""

from __future__ import annotations

import errno
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from functools import partial

from ... import log
from ..._commit.locking import waiting
from ..._storage.paths import is_url, without_url
from ..._storage.urls import last_part
from ...constants import EXTENSION
from ...defaults import DEFAULT_TYPESIZE
from ...exceptions import StorageError
from ..console import STREAM, check_exists, name_of_input
from ..exit_codes import Refusal, WrongUsage
from ..inputs import why_not_plain
from ..named import check_original_name, named
from ..options import (
    add_auto_option,
    add_blosc_options,
    add_delimiter_option,
    add_options,
    blosc_args,
    blosc_settings,
    metadata_of_option,
    number_of,
    refuse_auto,
)
from ..progress import shown

HELP = """\
add plain data to a file, or rows to a dataset, in one step: if it is
interrupted, there is the old content or all of the new content

examples:
  %(prog)s --auto log.blp today.log
  %(prog)s --npy rows.blp more.npy             rows of an array
  %(prog)s --create --wait 60 log.blp today.log
"""
# The end of the name of a dataset, which --create makes.
DATASET_SUFFIX = ".zarr"
# The errors of a file and of a dataset whose name has been taken meanwhile.
TAKEN = errno.EEXIST, errno.ENOTEMPTY


OPTIONS = """\
original_file <original_file>  file or dataset to append to
new_file <new_file>  file or dataset to append from
-e --no-check-extension  disable checking original file for extension (*.blp)
-m --metadata <metadata>  file containing the metadata, must contain valid JSON
--npy  append the rows of a .npy file to an array
--grow  rewrite the original file with more room if it has no room for the new chunks or
    the metadata (default)
| --no-grow  report an error if there is no room
--create  make the original file if there is none, as compress
    does; if its name ends with .zarr, a dataset
--wait <seconds>  wait up to this many seconds for another writer (default: 0)
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    add_blosc_options(parser, None)
    add_delimiter_option(parser)
    group = parser.add_argument_group(title="settings that fit the data")
    add_auto_option(group.add_mutually_exclusive_group())
    add_options(
        parser,
        OPTIONS,
        grow={"default": True},
        no_grow={"action": "store_false", "dest": "grow"},
        wait={"type": number_of("--wait", float), "default": 0},
    )


def run(args: Namespace) -> None:
    """Append the file."""
    log.verbose("getting ready for append")
    name = args.original_file
    is_missing = name != STREAM and not is_url(name) and not os.path.lexists(name)
    if is_missing and not args.create:
        raise Refusal("original file '%s' does not exist!" % name)
    if is_url(name) and last_part(name).endswith(EXTENSION):
        without_url(name, "appending to a file")
    try:
        if is_missing:
            try:
                waiting(partial(_create, args), args.wait)
                return
            except OSError as error:
                if error.errno not in TAKEN or not os.path.lexists(name):
                    raise
                log.verbose("another program has made '%s' meanwhile" % name)
        named(name).append(args)
    except StorageError as error:
        if error.errno == errno.EAGAIN:
            hint = "--wait SECONDS waits for it"
            if args.wait:
                hint = "it has not ended within %g s" % args.wait
            error.strerror = "%s; %s" % (error.strerror, hint)
        raise


def _create(args: Namespace) -> None:
    """Make the original file, or the dataset, with the content of the new file.

    Raises an `OSError` with a number of `TAKEN` if the name is not free any more.
    """
    name, new_file = args.original_file, args.new_file
    check_exists("new file", new_file)
    options = {"nthreads": args.nthreads, "sync": args.sync is not False}
    with shown(new_file, None, args.progress) as bar:
        if name.rstrip(os.sep).endswith(DATASET_SUFFIX):
            from ...dataset import convert

            if args.metadata is not None or new_file == STREAM:
                raise WrongUsage("a new dataset is made of a file, without --metadata")
            refuse_auto(args)
            keys = "cname", "clevel", "shuffle", "delimiter"
            given = {key: getattr(args, key) for key in keys}
            expect = None if bar is None else bar.expect
            convert(new_file, name, progress=bar, expect=expect, **options, **given)
            return
        check_original_name(args)
        metadata = metadata_of_option(args)
        if not args.auto and args.typesize is None:
            args.typesize = DEFAULT_TYPESIZE
        pack: Callable[..., None]
        if args.npy:
            from ...npy_io import pack_npy_to_file

            pack = pack_npy_to_file
        else:
            from ...file_io import pack_file_to_file

            pack = pack_file_to_file
            wrong = why_not_plain(new_file, args)
            if wrong:
                raise WrongUsage(wrong)
        # An append reads it again if another program makes the file meanwhile.
        args.new_file = name_of_input(new_file, seekable=True)
        pack(
            args.new_file,
            name,
            metadata=metadata,
            progress=bar,
            exclusive=True,
            **blosc_settings(args, blosc_args(args)),
            **options,
        )
