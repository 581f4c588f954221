"""``blpk decompress``: decompress Bloscpack files to plain files."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from functools import partial
from typing import TYPE_CHECKING

from ... import log
from ..._commit.ownership import FileAccess, attributes_of_input
from ..._storage.paths import is_url, shown_name, size_of_input
from ..._storage.urls import last_part
from ..._types import BinaryFile, Json, Seekable, Writable
from ...exceptions import UsageError
from ...serializers import USER_METADATA, is_array, user_metadata
from .. import jobs
from ..args import add_files, add_options
from ..console import STREAM, console, descriptor_of, standard_input, warn_of_rest
from ..exit_codes import Refusal, WrongUsage
from ..progress import shown
from ..target import check_extension, check_free, plain_size_of
from ..text import log_metadata

if TYPE_CHECKING:
    from ..._commit.snapshot import Check
    from ...file_io import PlainFPSink, SectionsSource

HELP = """\
get the plain file back, by default IN.blp into IN; an array becomes a .npy
file if the name of the output ends so; folders with -r

examples:
  %(prog)s data.bin.blp                  to data.bin
  %(prog)s data.bin.blp other.bin
  %(prog)s --rm --output-dir . *.blp     each here; remove the inputs
  %(prog)s - - < folder.tar.blp | tar x
"""

# Metadata keys of an array that the header of a .npy file also contains.
IN_NPY = frozenset(("dtype", "shape", "order", "container", "chunks", "shard"))

OPTIONS = """\
-e --no-check-extension  disable checking input file for extension (*.blp)
    (requires use of <out_file>)
--metadata-to <file>  write the metadata to a file, as JSON
--npy  write the array as a .npy file
| --raw  write the bytes of an array, also to *.npy
--no-sparse  write blocks of zeros too; by default they become holes, which take no disk
    space
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    no_sparse = {"action": "store_false", "dest": "sparse"}
    add_options(parser, OPTIONS, no_sparse=no_sparse)
    add_files(parser, "decompress")


def writes_data(args: Namespace) -> bool:
    """Return whether data or metadata go to standard output."""
    of_metadata = args.metadata_to is not None and descriptor_of(args.metadata_to) == 1
    return jobs.writes_data(args) or of_metadata


def run(args: Namespace) -> int:
    """Decompress the files."""
    log.verbose("getting ready for decompression")
    todo = jobs.plan(args, partial(_plain_name, args))
    one_output = jobs.is_classic(args) or args.output is not None
    if one_output and not args.no_check_extension:
        for name, _ in todo:
            check_extension("input file", name, args.suffix)
    if args.metadata_to is not None and len(todo) > 1:
        raise WrongUsage("--metadata-to is for one input")
    return jobs.run(args, todo, partial(_decompress, args), plain_size_of)


def _plain_name(args: Namespace, name: str) -> str:
    """Return the name of the plain file for an input."""
    if args.no_check_extension and jobs.is_classic(args):
        raise UsageError("--no-check-extension requires use of <out_file>")
    if not args.no_check_extension or name.endswith(args.suffix):
        return jobs.plain_name(name, args.suffix)
    if args.output_dir is None:
        raise UsageError(
            "'%s' does not end with '%s': --no-check-extension requires use of "
            "--output or --output-dir" % (shown_name(name), args.suffix)
        )
    return last_part(name) if is_url(name) else name


# One file


def _decompress(args: Namespace, in_file: str, out_file: str) -> int:
    """Decompress to bytes or to a .npy file; return the number of plain bytes."""
    from ..._commit.snapshot import ATTEMPTS, read_snapshot
    from ...file_io import log_input, log_unpacked, plain_sink, unpack_fp_to_fp

    is_npy = args.npy or (out_file.endswith(".npy") and not args.raw)
    _check_metadata_to(args, in_file, out_file)
    if args.rm:
        _check_no_loss(args, in_file, is_npy)
    make_sink = plain_sink
    if is_npy:
        from ...npy_io import npy_sink, sink_by_content

        make_sink = npy_sink if args.npy else sink_by_content

    def read(in_fp: BinaryFile, check: Check) -> tuple[int, Json, FileAccess | None]:
        nbytes = 0
        like = attributes_of_input(in_fp)
        last: SectionsSource

        def begin(source: SectionsSource, out_fp: Writable) -> PlainFPSink:
            nonlocal nbytes, last
            last = source
            plain = source.bloscpack_header.nbytes
            nbytes += plain or 0
            if bar is not None:
                bar.expect(None if plain is None else nbytes)
            return make_sink(source, out_fp, sparse=args.sparse)

        output = jobs.opened_output(in_fp, out_file, args)
        with output as out_fp, shown(in_file, None, args.progress) as bar:
            metadata = unpack_fp_to_fp(
                in_fp,
                out_fp,
                check,
                nthreads=args.nthreads,
                progress=bar,
                behind=lambda result: warn_of_rest(in_file, result, last.is_left_over),
                make_sink=begin,
                joins=not is_npy,
            )
        return nbytes, metadata, like

    streamed = jobs.is_streamed(out_file)
    if in_file == STREAM:
        nbytes, metadata, like = read(standard_input(), lambda header: None)
    else:
        in_size = size_of_input(in_file)
        log_input(in_file, in_size)
        result = read_snapshot(in_file, read, 1 if streamed else ATTEMPTS)
        nbytes, metadata, like = result
        if not streamed:
            log_unpacked(in_size, out_file)
    # A .npy file has the description of the array.
    _keep_metadata(user_metadata(metadata) if is_npy else metadata, args, like)
    return nbytes


# The metadata


def _check_metadata_to(args: Namespace, in_file: str, out_file: str) -> None:
    """Raise if the file for metadata exists, or is the input or the output."""
    name = args.metadata_to
    if name is None:
        return
    same = os.path.realpath(name) in map(os.path.realpath, (in_file, out_file))
    descriptor = descriptor_of(name)
    if same or (descriptor is not None and descriptor == descriptor_of(out_file)):
        raise WrongUsage("metadata and data can't both be '%s'" % name)
    if name != STREAM:
        check_free(name, args)


def _check_no_loss(args: Namespace, in_file: str, npy: bool) -> None:
    """Raise `Refusal` if removing the input would lose bytes or metadata.

    With `npy` an array is written as a .npy file.
    """
    from ..._commit.snapshot import read_snapshot
    from ..._format.chunks import frames_of
    from ..._format.sections import read_beginning
    from ..._storage.base import bytes_left
    from ..._storage.cursor import Cursor
    from ...describe import describe_shard

    def read(fp: Seekable, check: Check) -> tuple[Json, int]:
        cursor = Cursor(fp)
        beginning = read_beginning(cursor)
        first = cursor.position
        for _ in frames_of(cursor, beginning.header):
            pass
        shard = describe_shard(fp, beginning, first, cursor.left())
        if shard is not None and shard.index:
            return beginning.metadata, 0
        fp.seek(cursor.position)
        return beginning.metadata, bytes_left(fp) or 0

    metadata, behind = read_snapshot(in_file, read)
    if behind:
        raise Refusal(
            "'%s' has '%d' bytes behind the last chunk, which --rm would lose"
            % (in_file, behind)
        )
    if npy and (args.npy or is_array(metadata)):
        # Without an array, --npy fails later.
        more = set(metadata) - IN_NPY if is_array(metadata) else set()
        if args.metadata_to is not None:
            more.discard(USER_METADATA)
        if more:
            hint = "; --metadata-to FILE keeps them" if more == {USER_METADATA} else ""
            raise Refusal(
                "'%s' has metadata that a .npy file can't have, and --rm would lose: "
                "%s%s" % (in_file, ", ".join(sorted(more)), hint)
            )
    elif metadata is not None and args.metadata_to is None:
        raise Refusal(
            "'%s' has metadata, which --rm would lose: --metadata-to FILE keeps them"
            % in_file
        )


def _keep_metadata(metadata: object, args: Namespace, like: FileAccess | None) -> None:
    """Show the metadata, or write them to the file of ``--metadata-to``.

    `like` are the attributes of the input.
    """
    if args.metadata_to is None:
        if metadata:
            log_metadata(metadata)
        return
    import json

    text = json.dumps(metadata, indent=1) + "\n"
    if descriptor_of(args.metadata_to) == 1:
        console.put(text)
        console.flush()  # before the input is removed
        return
    from ..._commit.replacing import replacing

    sync = True if args.rm else args.sync
    with replacing(args.metadata_to, sync, like, access=args.preserve) as fp:
        fp.write(text.encode("ascii"))
