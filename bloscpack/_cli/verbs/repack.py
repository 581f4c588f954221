"""``blpk repack``: rewrite Bloscpack files with other settings, each in one step."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from ... import log
from ..args import add_blosc_options, add_file_options, add_options, rows_or_shape
from ..console import STREAM, check_exists
from ..exit_codes import Refusal, WrongUsage
from ..jobs import run_jobs
from ..named import NamedFile
from ..progress import shown
from ..target import metadata_to_set, plain_size_of

# Arguments that are settings of `repack` under the same name.
SETTINGS = (
    *("auto", "typesize", "clevel", "shuffle", "cname", "checksum", "offsets"),
    *("shard", "max_app_chunks", "meta_checksum", "meta_codec", "max_meta_size"),
)
HELP = """\
rewrite files with other settings; what no option sets stays unchanged

examples:
  %(prog)s --auto data.blp              settings that fit the data
  %(prog)s -c zstd -l 9 data.blp        compress again
  %(prog)s --max-app-chunks 1000 *.blp  make room for append
  %(prog)s -k sha256 data.blp           new digests, copied chunks
  %(prog)s --shard array.blp            make an array a Zarr shard
  %(prog)s --chunks 96,45,60 array.blp  let chunks divide every axis
"""
OPTIONS = """\
--chunks <n>,<n>...  length of a chunk along each axis of an array, or a
    number of rows
-m --metadata <metadata>  file containing the metadata, must contain valid JSON
| --no-metadata  remove the metadata
--shard  make an array file a shard of a Zarr v3 array; its
    checksum is then crc32c by default
| --no-shard  drop the index for Zarr
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    add_blosc_options(parser, "type size of the file", kept=True)
    add_file_options(
        parser,
        OPTIONS,
        kept=True,
        shard={"default": None},
        no_shard={"action": "store_false", "dest": "shard"},
    )
    add_options(parser, "files <file>  file to rewrite")


def run(args: Namespace) -> int:
    """Rewrite the files."""
    if STREAM in args.files:
        raise WrongUsage("a file to rewrite can't be standard input")
    from ...repacking import repack

    settings = _settings(args)

    def act(name: str, _: str) -> None:
        check_exists("file", name)
        if args.no_metadata and not args.force and NamedFile(name).is_array():
            raise Refusal(
                "'%s' holds an array: without metadata its dtype and shape are lost; "
                "--force removes them" % name
            )
        log.verbose("rewriting '%s'" % name)
        with shown(name, None, args.progress) as bar:
            repack(
                name,
                nthreads=args.nthreads,
                sync=args.sync is not False,
                progress=bar,
                expect=None if bar is None else bar.expect,
                **settings,
            )

    jobs = [(name, name) for name in args.files]
    return run_jobs(jobs, act, plain_size_of, args.progress)


def _settings(args: Namespace) -> dict[str, Any]:
    """Return the settings that are to change."""
    settings: dict[str, Any] = {name: getattr(args, name) for name in SETTINGS}
    if args.chunk_size is not None:
        # A size with a suffix is rounded to whole items of an array.
        settings["chunk_size"] = "%dB" % args.chunk_size
    settings["chunks"] = rows_or_shape("--chunks", args.chunks)
    if args.no_metadata and args.shard:
        raise WrongUsage(
            "--shard needs the metadata of an array, which --no-metadata removes"
        )
    if args.no_metadata:
        settings["metadata"] = None
        settings["keep_array"] = False
    elif args.metadata is not None:
        hint = ": --no-metadata removes the metadata"
        settings["metadata"] = metadata_to_set(args.metadata, hint)
    return settings
