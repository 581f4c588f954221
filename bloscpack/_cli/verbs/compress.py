"""``blpk compress``: compress plain files to Bloscpack files."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from typing import Any

from ... import defaults, log
from ...constants import MAGIC
from .. import jobs, target
from ..args import (
    BLOSC_SETTINGS,
    add_blosc_options,
    add_file_options,
    add_files,
    blosc_settings,
)
from ..console import STREAM, descriptor_of, name_of_input, name_of_output
from ..exit_codes import WrongUsage
from ..progress import shown
from ..text import size_text

HELP = """\
compress files, or with --npy the arrays of .npy files, into .blp files: by
default IN into IN.blp; folders with -r, standard input with -

examples:
  %(prog)s data.bin                     to data.bin.blp
  %(prog)s -c zstd -t 4 data.bin out.blp
  %(prog)s --output-dir packed *.bin    each to packed/NAME.blp
  tar c folder | %(prog)s - - > folder.tar.blp
"""
OPTIONS = """\
-m --metadata <metadata>  file containing the metadata, must contain valid JSON
--npy  the input is a .npy file: store its array
--shard  with --npy, make the file a shard of a Zarr v3 array
    too; its checksum is then crc32c by default
"""
# Size of an input in bytes, and how many times as large the default leaves it, from
# which ``--auto`` is recommended.
WORTH_A_TIP = 2**20
MUCH_LARGER = 1.5
# Settings of the file, beside those for Blosc.
FILE_SETTINGS = (
    *("offsets", "checksum", "max_app_chunks"),
    *("meta_checksum", "meta_codec", "max_meta_size"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    add_blosc_options(parser, defaults.DEFAULT_TYPESIZE)
    add_file_options(parser, OPTIONS)
    add_files(parser, "compress")


writes_data = jobs.writes_data  # the dispatcher calls it


def run(args: Namespace) -> int:
    """Compress the files."""
    if args.shard and not args.npy:
        raise WrongUsage("--shard needs --npy: a shard holds an array")
    # A type size among the defaults of the user is for other files.
    if args.npy and args.typesize is not None and "typesize" not in args.from_defaults:
        raise WrongUsage("--npy takes the type size from the array; -t can't be given")
    log.verbose("getting ready for compression")
    todo = jobs.plan(args, lambda name: jobs.compressed_name(name, args.suffix))
    settings = _settings(args)
    for name, _ in todo if not args.force else ():
        is_readable = name != STREAM and os.access(name, os.R_OK)
        if is_readable and target.begins_with(name, MAGIC):
            log.notice(
                "'%s' is a Bloscpack file already, and is compressed again" % name
            )
    compress = _compress_npy if args.npy else _compress_plain

    def act(in_file: str, out_file: str) -> int:
        target.check_no_terminal(out_file, args)
        return compress(args, in_file, out_file, settings)

    code = jobs.run(args, todo, act, target.size_of)
    if todo and sys.stderr is not None and sys.stderr.isatty() and not args.npy:
        _tell_of_auto(args, *todo[0])
    return code


def _tell_of_auto(args: Namespace, in_file: str, out_file: str) -> None:
    """Say how small ``--auto`` makes a file, if the default leaves it much larger."""
    chosen = args.auto, *(getattr(args, name) for name in BLOSC_SETTINGS)
    is_default = chosen == (False, None, None, None, None)
    if not is_default or not (os.path.isfile(in_file) and os.path.isfile(out_file)):
        return
    nbytes, cbytes = os.path.getsize(in_file), os.path.getsize(out_file)
    if nbytes < WORTH_A_TIP:
        return
    from ..._format.automatic import growth_by_default
    from ..._storage.stream import sampled

    with open(in_file, "rb") as fp:
        growth = growth_by_default(*sampled(fp, nbytes)[1])
    if growth > MUCH_LARGER:
        sizes = size_text(cbytes), size_text(round(cbytes / growth))
        text = "tip: '%s' has %s; --auto would make that about %s, by a sample"
        log.notice(text % (out_file, *sizes))


def _settings(args: Namespace) -> dict[str, Any]:
    """Return the settings that are not left to the library."""
    values = {name: getattr(args, name) for name in FILE_SETTINGS}
    if args.shard and args.checksum is None:
        from ..._format.shard import DEFAULT_SHARD_CHECKSUM

        values["checksum"] = DEFAULT_SHARD_CHECKSUM
    settings = {name: value for name, value in values.items() if value is not None}
    if args.chunk_size is not None:
        # A size with a suffix is rounded to whole items.
        settings["chunk_size"] = "%dB" % args.chunk_size
    settings.update(metadata=target.metadata_of_option(args), nthreads=args.nthreads)
    return {**settings, **blosc_settings(args)}


def _compress_plain(
    args: Namespace, in_file: str, out_file: str, settings: dict[str, Any]
) -> int:
    """Compress a file of bytes; return its size, 0 if it is unknown."""
    from ...file_io import log_packed, pack_fp_to_fp

    exclusive = jobs.is_exclusive(out_file, args)
    with (
        target.opened_input(in_file) as in_fp,
        jobs.opened_output(in_fp, out_file, args, exclusive=exclusive) as out_fp,
    ):
        size = os.fstat(in_fp.fileno()).st_size
        with shown(in_file, size or None, args.progress) as bar:
            pack_fp_to_fp(in_fp, out_fp, progress=bar, **settings)
        in_size: int = in_fp.tell() if in_fp.seekable() else 0
    if descriptor_of(out_file) is None:
        log_packed(in_size, out_file)
    return in_size


def _compress_npy(
    args: Namespace, in_file: str, out_file: str, settings: dict[str, Any]
) -> int:
    """Compress a .npy file; return its size in bytes, 0 if it is unknown."""
    from ...npy_io import pack_npy_to_file

    size = os.path.getsize(in_file) if in_file != STREAM else 0
    with shown(in_file, size or None, args.progress) as bar:
        pack_npy_to_file(
            name_of_input(in_file),
            name_of_output(out_file),
            shard=args.shard,
            sync=args.sync,
            preserve=args.preserve and in_file != STREAM,
            exclusive=jobs.is_exclusive(out_file, args),
            progress=bar,
            **settings,
        )
    return size
