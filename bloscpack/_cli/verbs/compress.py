"""``blpk compress``: compress plain files to Bloscpack files."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace, _ActionsContainer
from functools import partial
from typing import Any

from ... import defaults, log
from ..._storage.paths import without_url
from ...args import BloscArgs
from ...constants import MAGIC, MAX_BUFFERSIZE
from ...exceptions import UsageError
from .. import inputs, options, outputs
from ..console import STREAM, descriptor_of, name_of_input, name_of_output
from ..exit_codes import WrongUsage
from ..inputs import size_of
from ..progress import shown

HELP = """

examples:
  %(prog)s data.bin                     to data.bin.blp
  %(prog)s -c zstd -t 4 data.bin out.blp
  %(prog)s --output-dir packed *.bin    each to packed/NAME.blp
  tar c folder | %(prog)s - - > folder.tar.blp
"""

# Settings of the file, beside those for Blosc.
FILE_SETTINGS = (
    *("offsets", "checksum", "max_app_chunks"),
    *("meta_checksum", "meta_codec", "max_meta_size"),
)


# Options

OPTIONS = """\
-m --metadata <metadata>  file containing the metadata, must contain valid JSON
--npy  the input is a .npy file: store its array
--shard  with --npy, make the file a shard of a Zarr v3 array
    too; its checksum is then crc32c by default
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    options.add_blosc_options(parser, defaults.DEFAULT_TYPESIZE)
    group = parser.add_argument_group(title="settings that fit the data")
    options.add_auto_option(group.add_mutually_exclusive_group())
    group = parser.add_argument_group(title="bloscpack settings")
    add_chunk_options(group)
    options.add_options(group, OPTIONS)
    add_room_options(group)
    options.add_files(parser, "compress")


CHUNK_OPTIONS = """\
-z --chunk-size <size>  set desired chunk size or 'max' (default: %s)
-k --checksum <checksum>  set desired checksum:
    %s (default: %s)
-o --no-offsets  deactivate offsets
"""
ROOM_OPTIONS = """\
--max-app-chunks <n>  reserve offsets for n more chunks (default: %s)
--max-meta-size <size>  space to reserve for metadata (default: %s)
--meta-codec <codec>  codec for metadata: zlib or None%s
--meta-checksum <checksum>  checksum for metadata, one of those above%s
"""


def add_chunk_options(group: _ActionsContainer, *, kept: bool = False) -> None:
    """Add the options for chunks; with `kept` the file keeps its own values."""
    from ...checksums import CHECKSUMS_AVAIL
    from ...pretty import join_with_eol

    rows = [CHECKSUMS_AVAIL[i : i + 3] for i in range(0, len(CHECKSUMS_AVAIL), 3)]
    names = "".join(map(join_with_eol, rows)).replace("\n", "\n    ")
    size = None if kept else defaults.DEFAULT_CHUNK_SIZE
    checksum = None if kept else defaults.DEFAULT_CHECKSUM
    stored = {"action": options.StoreGiven}
    options.add_options(
        group,
        CHUNK_OPTIONS % (size or options.KEPT, names, checksum or options.KEPT),
        chunk_size={**stored, "type": _chunk_size, "default": size},
        checksum={**stored, "choices": CHECKSUMS_AVAIL, "default": checksum},
        no_offsets={
            "action": "store_false",
            "dest": "offsets",
            "default": defaults.DEFAULT_OFFSETS,
        },
    )


def add_room_options(group: _ActionsContainer, *, kept: bool = False) -> None:
    """Add the options for reserved space; `kept` is that of `add_chunk_options`."""
    room = options.KEPT if kept else "10 x"
    others = " (default: %s)" % options.KEPT if kept else ""
    size = partial(options.size_of_option, "--max-meta-size error:")
    options.add_options(
        group,
        ROOM_OPTIONS % (room, room, others, others),
        max_app_chunks={"type": int},
        max_meta_size={"type": size},
    )


def _chunk_size(text: str) -> int:
    from ...args import parse_chunk_size

    if text == "max":
        return MAX_BUFFERSIZE
    size = options.size_of_option("-z error:", text)
    if size <= 0:
        raise WrongUsage("-z must be > 0")
    try:
        return parse_chunk_size(size)
    except UsageError as error:
        raise WrongUsage(str(error)) from error


# All files


writes_data = inputs.writes_data  # the dispatcher calls it


def run(args: Namespace) -> int:
    """Compress the files."""
    if args.shard and not args.npy:
        raise WrongUsage("--shard needs --npy: a shard holds an array")
    log.verbose("getting ready for compression")
    settings = options.blosc_args(args)
    if inputs.is_classic(args):
        out_file = args.out_file
        if out_file is None:
            out_file = inputs.compressed_name(args.in_file, args.suffix)
        todo = [(args.in_file, out_file)]
    else:
        todo = inputs.plan(args, lambda name: inputs.compressed_name(name, args.suffix))
    metadata = options.metadata_of_option(args)
    for name, _ in todo:
        _warn_of_packed_input(name, args)

    removals = outputs.Removals(args)

    def act(in_file: str, out_file: str) -> None:
        before = compress(args, in_file, out_file, settings, metadata)
        removals.add(in_file, before, out_file)

    code = inputs.run_jobs(todo, act, size_of, args.progress)
    return max(code, removals.finish())


def _warn_of_packed_input(in_file: str, args: Namespace) -> None:
    """Warn the user if an input is a Bloscpack file: it is compressed, as in 0.16."""
    if args.force or in_file == STREAM or not os.access(in_file, os.R_OK):
        return
    if inputs.begins_with(in_file, MAGIC):
        log.notice(
            "'%s' is a Bloscpack file already, and is compressed again" % in_file
        )


def _settings(args: Namespace, settings: BloscArgs) -> dict[str, Any]:
    """Return the settings that are not left to the library."""
    values = {name: getattr(args, name) for name in FILE_SETTINGS}
    chosen = options.chosen(args)
    if args.shard and "checksum" not in chosen:
        from ..._format.shard import DEFAULT_SHARD_CHECKSUM

        values["checksum"] = DEFAULT_SHARD_CHECKSUM
    found = {name: value for name, value in values.items() if value is not None}
    if not args.auto or "chunk_size" in chosen:
        # A size with a suffix is rounded to whole items.
        found["chunk_size"] = "%dB" % args.chunk_size
    return {**found, **options.blosc_settings(args, settings)}


# One file


def compress(
    args: Namespace, in_file: str, out_file: str, settings: BloscArgs, metadata: object
) -> tuple[int, ...] | None:
    """Compress a file; return the `state_of` the input before."""
    without_url(in_file, "the input of compress")
    outputs.check_pair(out_file, args, packs=True)
    outputs.check_files(in_file, out_file, args)
    outputs.check_no_terminal(out_file, args)
    before = outputs.state_of(in_file)
    clock = outputs.Clock()
    if args.npy:
        nbytes = _compress_npy(args, in_file, out_file, settings, metadata)
    else:
        nbytes = _compress_plain(args, in_file, out_file, settings, metadata)
    clock.log(nbytes)
    return before


def _compress_plain(
    args: Namespace, in_file: str, out_file: str, settings: BloscArgs, metadata: object
) -> int:
    """Compress a file of bytes; return its size, 0 if it is unknown."""
    from ...file_io import log_packed, pack_fp_to_fp

    exclusive = outputs.is_exclusive(out_file, args)
    with (
        inputs.opened_input(in_file) as in_fp,
        outputs.opened_output(in_fp, out_file, args, exclusive=exclusive) as out_fp,
    ):
        size = os.fstat(in_fp.fileno()).st_size
        with shown(in_file, size or None, args.progress) as bar:
            pack_fp_to_fp(
                in_fp,
                out_fp,
                metadata=metadata,
                nthreads=args.nthreads,
                progress=bar,
                **_settings(args, settings),
            )
        in_size: int = in_fp.tell() if in_fp.seekable() else 0
    if descriptor_of(out_file) is None:
        log_packed(in_size, out_file)
    return in_size


def _compress_npy(
    args: Namespace, in_file: str, out_file: str, settings: BloscArgs, metadata: object
) -> int:
    """Compress a .npy file; return its size in bytes, 0 if it is unknown."""
    from ...npy_io import pack_npy_to_file

    size = os.path.getsize(in_file) if in_file != STREAM else 0
    with shown(in_file, size or None, args.progress) as bar:
        pack_npy_to_file(
            name_of_input(in_file),
            name_of_output(out_file),
            metadata=metadata,
            shard=args.shard,
            nthreads=args.nthreads,
            sync=args.sync,
            preserve=args.preserve and in_file != STREAM,
            exclusive=outputs.is_exclusive(out_file, args),
            progress=bar,
            **_settings(args, settings),
        )
    return size
