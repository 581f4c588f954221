"""``blpk append``: add plain data to a Bloscpack file, in place."""

from __future__ import annotations

import os

from ... import log
from ...constants import NPY_MAGIC
from ...exceptions import BloscpackError
from .. import file_jobs
from ..dataset_folders import names_dataset
from ..exit_codes import EXIT_USAGE, Refusal
from ..options import (
    add_blosc_options,
    add_metadata_option,
    add_npy_option,
    blosc_args,
    process_metadata_args,
)
from ..stdio import STREAM, check_exists, name_of_input, standard_input

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

    from ..._crashsafe.snapshot import Check
    from ..._storage.protocols import Seekable
    from ...serializers import Json


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    add_blosc_options(parser, None)
    parser.add_argument(
        "original_file", metavar="<original_file>", help="file or dataset to append to"
    )
    parser.add_argument(
        "new_file", metavar="<new_file>", help="file or dataset to append from"
    )
    parser.add_argument(
        "-e",
        "--no-check-extension",
        action="store_true",
        help="disable checking original file for extension (*.blp)",
    )
    add_metadata_option(parser)
    add_npy_option(parser, "append the rows of a .npy file to an array")
    parser.add_argument(
        "--grow",
        action="store_true",
        help="rewrite the original file with more room if it has no room for the new "
        "chunks or the metadata",
    )


def run(args: Namespace) -> None:
    """Append the file."""
    log.verbose("getting ready for append")
    if names_dataset(args.original_file):
        _append_to_dataset(args)
        return
    original_file, new_file = process_append_args(args)
    metadata = process_metadata_args(args)
    if original_file == STREAM:
        raise Refusal("a file to append to can't be standard input", EXIT_USAGE)
    check_exists("original file", original_file)
    check_exists("new file", new_file)
    log.verbose("original file is: '%s'" % original_file)
    log.verbose("new file is: '%s'" % new_file)
    try:
        append(args, original_file, new_file, metadata)
    except BloscpackError as error:
        if not args.grow:
            _tell_how_to_grow(error)
        raise


def _append_to_dataset(args: Namespace) -> None:
    """Append rows to a dataset, which keeps its settings."""
    from ..dataset_rows import append

    for option, given in (("--metadata", args.metadata), ("--grow", args.grow)):
        if given:
            raise Refusal(
                "%s is for files: '%s' is a dataset" % (option, args.original_file),
                EXIT_USAGE,
            )
    check_exists("new file", args.new_file)
    append(args, args.original_file, args.new_file)


def _tell_how_to_grow(error: BloscpackError) -> None:
    """Add to the message of an error about missing room how to get room."""
    from ...exceptions import (
        AnotherFileFollows,
        MetadataSectionTooSmall,
        NoMetadataFound,
        NotEnoughSpace,
        OffsetsRequired,
    )

    room = ""
    if isinstance(error, AnotherFileFollows):
        return
    if isinstance(error, (OffsetsRequired, NotEnoughSpace)):
        room = "'blpk repack --max-app-chunks N' makes room for N chunks, and "
    elif not isinstance(error, (NoMetadataFound, MetadataSectionTooSmall)):
        return
    hint = "%s'blpk append --grow' makes room and appends" % room
    error.args = ("%s; %s" % (error.args[0], hint),)


def process_append_args(args: Namespace) -> tuple[str, str]:
    """Return the names of the original file and the new file."""
    if not args.no_check_extension:
        file_jobs.check_extension("original file", args.original_file)
    return args.original_file, args.new_file


def append(
    args: Namespace, original_file: str, new_file: str, metadata: object
) -> None:
    """Append the content of a file to a Bloscpack file."""
    from ..._format.append_plan import UNCHANGED
    from ..._storage.spool import seekable_with_size
    from ...append import append, append_from
    from ..progress import shown

    settings = blosc_args(args)
    options: dict[str, Any] = {
        "nthreads": args.nthreads,
        "sync": args.sync is not False,
        "grow": args.grow,
        "metadata": UNCHANGED if metadata is None else metadata,
    }
    with shown(new_file, None, args.progress) as bar:
        if bar is not None:
            options.update(progress=bar, expect=bar.expect)
        if args.npy:
            from ...npy_io import append_npy

            append_npy(original_file, name_of_input(new_file), settings, **options)
            return
        if new_file == STREAM:
            with seekable_with_size(standard_input()) as (fp, left):
                append_from(original_file, fp, left, settings, **options)
            return
        if not args.force and os.path.isfile(new_file):
            _check_no_npy(original_file, new_file)
        append(original_file, new_file, settings, **options)


def _check_no_npy(original_file: str, new_file: str) -> None:
    """Raise `Refusal` if the header of a .npy file would be appended as rows."""
    with open(new_file, "rb") as fp:
        if fp.read(len(NPY_MAGIC)) != NPY_MAGIC:
            return
    from ..._crashsafe.snapshot import read_snapshot
    from ..._format.sections import read_beginning
    from ..._storage.cursor import Cursor
    from ...serializers import is_array

    def read(fp: Seekable, check: Check) -> Json:
        return read_beginning(Cursor(fp)).metadata

    if is_array(read_snapshot(original_file, read)):
        raise Refusal(
            "'%s' is a .npy file: --npy appends its rows, --force its bytes" % new_file,
            EXIT_USAGE,
        )
