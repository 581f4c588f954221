"""``blpk append``: add plain data to a Bloscpack file, in place, or to a dataset."""

from __future__ import annotations

import errno
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from functools import partial

from ... import log
from ..._commit.locking import waiting
from ..._storage.paths import is_url, without_url
from ..._storage.urls import last_part
from ...args import BloscArgs
from ...constants import EXTENSION
from ...exceptions import StorageError
from .. import target
from ..args import (
    BLOSC_SETTINGS,
    READING,
    READING_PROPERTIES,
    add_blosc_options,
    add_options,
    blosc_settings,
    number_of,
    option_name,
    reading_options,
    refuse_auto,
)
from ..console import STREAM, check_exists, name_of_input, warn_of_loss
from ..exit_codes import WrongUsage
from ..named import NamedFile, named, opened_rows
from ..progress import shown

HELP = """\
add plain data to a file, or rows to a dataset, in one step: if it is
interrupted, there is the old content or all of the new content. Rows are
read as by convert, with its options for that, such as --columns

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
    add_blosc_options(parser, "type size of the file")
    add_options(
        parser,
        OPTIONS + READING,
        **READING_PROPERTIES,
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
        check_exists("original file", name)
        is_missing = False  # another program has made it, or it is in a ZIP file
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
        if isinstance(named(name), NamedFile):
            _append_to_file(args)
        else:
            _append_to_dataset(args)
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
            given = dict(BloscArgs(**blosc_settings(args)["blosc_args"]))
            del given["typesize"]
            given.update(reading_options(args))
            expect = None if bar is None else bar.expect
            done = convert(
                new_file, name, progress=bar, expect=expect, **options, **given
            )
            warn_of_loss(name, done.lost, new_file)
            return
        _check_original_name(args)
        metadata = target.metadata_of_option(args)
        pack: Callable[..., None]
        if args.npy:
            from ...npy_io import pack_npy_to_file

            pack = pack_npy_to_file
        else:
            from ...file_io import pack_file_to_file

            pack = pack_file_to_file
            wrong = target.why_not_plain(new_file, args)
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
            **blosc_settings(args),
            **options,
        )


def _append_to_file(args: Namespace) -> None:
    """Append the content of another file."""
    from ..._format.append_plan import UNCHANGED
    from ...append import append

    original_file, new_file = args.original_file, args.new_file
    _check_original_name(args)
    metadata = target.metadata_of_option(args)
    for option in reading_options(args):
        raise WrongUsage(
            "--%s is for rows of datasets: '%s' is a file"
            % (option_name(option), original_file)
        )
    if original_file == STREAM:
        raise WrongUsage("a file to append to can't be standard input")
    check_exists("original file", original_file)
    check_exists("new file", new_file)
    if os.path.isdir(new_file):
        raise WrongUsage(
            "'%s' is a folder: 'blpk cat DATASET | blpk append FILE -' appends the "
            "rows of a dataset" % new_file
        )
    log.verbose("original file is: '%s'" % original_file)
    log.verbose("new file is: '%s'" % new_file)
    options = {
        **blosc_settings(args, typesize=None),
        "nthreads": args.nthreads,
        "sync": args.sync is not False,
        "grow": args.grow,
        "wait": args.wait,
        "needs_offsets": False,
        "metadata": UNCHANGED if metadata is None else metadata,
    }
    with shown(new_file, None, args.progress) as bar:
        if bar is not None:
            options.update(progress=bar, expect=bar.expect)
        if args.npy:
            from ...npy_io import append_npy

            append_npy(original_file, name_of_input(new_file), **options)
        else:
            wrong = target.why_no_items(new_file, args)
            if wrong and NamedFile(original_file).is_array():
                raise WrongUsage(wrong)
            append(original_file, name_of_input(new_file, seekable=True), **options)
            if target.why_not_plain(new_file, args):
                what = target.other_format(new_file).partition(";")[0]
                texts = new_file, what or "a Bloscpack file"
                log.notice("'%s' is %s; its bytes were appended" % texts)


def _append_to_dataset(args: Namespace) -> None:
    """Append the rows in a file, or in another dataset, in one step.

    The dataset keeps its settings; with --create, those given are for a new one.
    """
    from ...dataset.folder import until_unchanged
    from ..contents import new_rows

    settings = {name for name in BLOSC_SETTINGS if getattr(args, name) is not None}
    for option, given in (
        ("--metadata", args.metadata),
        ("--no-grow", not args.grow),
        ("a setting of Blosc", settings - args.from_defaults and not args.create),
    ):
        if given:
            raise WrongUsage(
                "%s is for files: '%s' is a dataset" % (option, args.original_file)
            )
    refuse_auto(args)

    def append() -> Sequence[str]:
        with (
            opened_rows(
                args.original_file,
                "r+",
                timeout=args.wait,
                sync=args.sync is not False,
            ) as extended,
            new_rows(args, args.new_file, extended) as (rows, lost),
        ):
            extended.append(rows)
        return lost

    warn_of_loss(args.original_file, until_unchanged(append), args.new_file)


def _check_original_name(args: Namespace) -> None:
    """Raise `Refusal` unless the file to append to has the suffix, or needs none."""
    if not args.no_check_extension:
        target.check_extension("original file", args.original_file)
