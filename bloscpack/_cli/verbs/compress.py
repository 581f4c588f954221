"""``blpk compress``: compress plain files to Bloscpack files."""

from __future__ import annotations

import io
import os
import sys
from argparse import ArgumentParser, Namespace, _ActionsContainer
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, BinaryIO

from ... import log
from ..._storage.base import read_up_to
from ..._storage.paths import without_url
from ..._storage.protocols import Readable
from ..._storage.stream import size_of as size_left
from ...args import BloscArgs
from ...constants import MAX_BUFFERSIZE
from ...defaults import (
    DEFAULT_CHECKSUM,
    DEFAULT_CHUNK_SIZE,
    DEFAULT_OFFSETS,
    DEFAULT_TYPESIZE,
)
from ...exceptions import UsageError
from .. import inputs, outputs
from ..console import (
    STREAM,
    console,
    descriptor_of,
    is_input,
    name_of_input,
    name_of_output,
)
from ..display import size_text
from ..exit_codes import WrongUsage
from ..inputs import size_of
from ..options import (
    KEPT,
    METADATA,
    StoreGiven,
    add,
    add_auto_option,
    add_blosc_options,
    add_files,
    blosc_args,
    process_metadata_args,
)
from ..progress import shown

if TYPE_CHECKING:
    from ..._format.automatic import Read, Setting

EXAMPLES = """examples:
  %(prog)s data.bin                     to data.bin.blp
  %(prog)s -c zstd -t 4 data.bin out.blp
  %(prog)s --output-dir packed *.bin    each to packed/NAME.blp
  tar c folder | %(prog)s - - > folder.tar.blp
"""

# ``--auto`` is mentioned if it saves this share of the compressed size, for files of at
# least this size.
WORTH_TELLING = 0.2
LEAST_TO_TELL = 2**17

# Settings of the file, beside those for Blosc.
FILE_SETTINGS = (
    *("offsets", "checksum", "max_app_chunks"),
    *("meta_checksum", "meta_codec", "max_meta_size"),
)


# Options


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    add_blosc_options(parser, DEFAULT_TYPESIZE)
    group = parser.add_argument_group(title="settings that fit the data")
    add_auto_option(group.add_mutually_exclusive_group())
    group = parser.add_argument_group(title="bloscpack settings")
    add_chunk_options(group)
    add(group, *METADATA)
    add(group, "--npy", "the input is a .npy file: store its array")
    add(
        group,
        "--shard",
        "with --npy, make the file a shard of a Zarr v3 array\n"
        "too; its checksum is then crc32c by default",
    )
    add_room_options(group)
    add_files(parser, "compress")
    parser.epilog = EXAMPLES


def add_chunk_options(group: _ActionsContainer, *, kept: bool = False) -> None:
    """Add the options for chunks; with `kept` the file keeps its own values."""
    from ...checksums import CHECKSUMS_AVAIL
    from ...pretty import join_with_eol

    add(
        group,
        "-z --chunk-size <size>",
        "set desired chunk size or 'max' (default: %s)"
        % (KEPT if kept else DEFAULT_CHUNK_SIZE),
        action=StoreGiven,
        type=_chunk_size,
        default=None if kept else DEFAULT_CHUNK_SIZE,
    )
    names = [CHECKSUMS_AVAIL[i : i + 3] for i in range(0, len(CHECKSUMS_AVAIL), 3)]
    add(
        group,
        "-k --checksum <checksum>",
        "set desired checksum:\n%s (default: %s)"
        % ("".join(map(join_with_eol, names)), KEPT if kept else DEFAULT_CHECKSUM),
        action=StoreGiven,
        choices=CHECKSUMS_AVAIL,
        default=None if kept else DEFAULT_CHECKSUM,
    )
    no_offsets = {"action": "store_false", "default": DEFAULT_OFFSETS}
    add(group, "-o --no-offsets", "deactivate offsets", dest="offsets", **no_offsets)


def add_room_options(group: _ActionsContainer, *, kept: bool = False) -> None:
    """Add the options for reserved space; `kept` is that of `add_chunk_options`."""
    default = " (default: %s)" % (KEPT if kept else "10 x")
    chunks = "reserve offsets for n more chunks" + default
    add(group, "--max-app-chunks <n>", chunks, type=int)
    size = "space to reserve for metadata" + default
    add(group, "--max-meta-size <size>", size, type=_meta_size)
    shown = default if kept else ""
    checksum = "checksum for metadata, one of those above" + shown
    add(group, "--meta-codec <codec>", "codec for metadata: zlib or None" + shown)
    add(group, "--meta-checksum <checksum>", checksum)


def _size(option: str, text: str) -> int:
    """Return the number of bytes in the value of an option."""
    from ..display import parse_size

    # argparse would replace the message of a ValueError.
    try:
        return parse_size(text)
    except ValueError as error:
        raise WrongUsage("%s error: %s" % (option, error)) from error


def _meta_size(text: str) -> int:
    return _size("--max-meta-size", text)


def _chunk_size(text: str) -> int:
    from ...args import parse_chunk_size

    if text == "max":
        return MAX_BUFFERSIZE
    size = _size("-z", text)
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
    if inputs.is_classic(args):
        in_file, out_file, settings = process_compression_args(args)
        todo = [(in_file, out_file)]
    else:
        settings = blosc_args(args)
        todo = inputs.plan(args, lambda name: inputs.compressed_name(name, args.suffix))
    metadata = process_metadata_args(args)

    def act(in_file: str, out_file: str) -> None:
        compress(args, in_file, out_file, settings, metadata)

    return inputs.run_jobs(todo, act, size_of, args.progress)


def process_compression_args(args: Namespace) -> tuple[str, str, BloscArgs]:
    """Return input file, output file and blosc arguments of compress."""
    out_file = args.out_file
    if out_file is None:
        out_file = inputs.compressed_name(args.in_file, args.suffix)
    return args.in_file, out_file, blosc_args(args)


def _settings(args: Namespace) -> dict[str, Any]:
    """Return the settings of the file that are not left to the library."""
    given = {name: getattr(args, name) for name in FILE_SETTINGS}
    if args.shard and "checksum" not in getattr(args, "given", ()):
        from ..._format.shard import DEFAULT_SHARD_CHECKSUM

        given["checksum"] = DEFAULT_SHARD_CHECKSUM
    return {name: value for name, value in given.items() if value is not None}


# One file


def compress(
    args: Namespace, in_file: str, out_file: str, settings: BloscArgs, metadata: object
) -> None:
    """Compress a file."""
    without_url(in_file, "the input of compress")
    outputs.check_pair(out_file, args, packs=True)
    outputs.check_files(in_file, out_file, args)
    outputs.log_journal(in_file)
    outputs.check_no_terminal(out_file, args)
    before = outputs.state_of(in_file)
    clock = outputs.Clock()
    if args.npy:
        nbytes = _compress_npy(args, in_file, out_file, settings, metadata)
    else:
        nbytes = _compress_plain(args, in_file, out_file, settings, metadata)
    clock.log(nbytes)
    _tell_of_auto(args, in_file, out_file)
    outputs.remove_input(in_file, before, args)


def _compress_plain(
    args: Namespace, in_file: str, out_file: str, settings: BloscArgs, metadata: object
) -> int:
    """Compress a file of bytes; return its size, 0 if it is unknown."""
    from ...file_io import log_packed, pack_fp_to_fp

    with (
        inputs.opened_input(in_file) as in_fp,
        outputs.opened_output(in_fp, out_file, args) as out_fp,
    ):
        size = os.fstat(in_fp.fileno()).st_size
        source, chunk_size = in_fp, args.chunk_size
        if args.auto:
            source, settings, chunk_size = _chosen(args, in_fp, settings)
        with shown(in_file, size or None, args.progress) as bar:
            pack_fp_to_fp(
                source,
                out_fp,
                chunk_size,
                metadata,
                settings,
                nthreads=args.nthreads,
                progress=bar,
                **_settings(args),
            )
        in_size: int = in_fp.tell() if in_fp.seekable() else 0
    if descriptor_of(out_file) is None:
        log_packed(in_size, out_file)
    return in_size


def _chosen(
    args: Namespace, in_fp: BinaryIO, settings: BloscArgs
) -> tuple[BinaryIO, BloscArgs, int]:
    """Return the input, and the settings and the chunk size that fit its data."""
    settings.check()  # the trials use the values
    source, setting = sampled(args, in_fp)
    return source, settings.of_setting(setting), setting.chunk_size


@contextmanager
def _opened_npy(name: str) -> Iterator[tuple[BinaryIO, int, list[int]]]:
    """Yield a .npy file at the items of its array, and their size and type size."""
    from ...npy_io import read_header
    from ...numpy_io import typesize_of

    with open(name, "rb") as fp:
        array = read_header(fp)
        yield fp, array.nbytes, [typesize_of(array.dtype)]


def _tell_of_auto(args: Namespace, in_file: str, out_file: str) -> None:
    """Tell the user on a terminal, once, if ``--auto`` would save much.

    Only the default settings are compared with those of ``--auto``.
    """
    from ..._format.automatic import FIELDS, Setting, saving

    chosen = {*FIELDS, "auto"} & {*getattr(args, "given", ())}
    if chosen or args.auto is not False or getattr(args, "shard", False):
        return
    if console.quiet or sys.stderr is None or not sys.stderr.isatty():
        return
    if is_input(in_file) or not os.path.isfile(in_file) or not os.path.isfile(out_file):
        return
    size, nbytes = os.path.getsize(out_file), os.path.getsize(in_file)
    if nbytes < LEAST_TO_TELL:
        return
    opened = _opened_npy(in_file) if args.npy else nullcontext(None)
    used = Setting(*[getattr(args, name) for name in FIELDS])
    with opened as npy, open(in_file, "rb") as plain:
        fp, nbytes, typesizes = npy or (plain, nbytes, [])
        if typesizes:
            used = used.but(typesize=typesizes[0])
        saved = saving(_reading(fp), nbytes, used, typesizes)
    if saved > WORTH_TELLING:
        args.auto = None  # the other files need no message
        name = "it" if inputs.is_classic(args) else "'%s'" % in_file
        texts = name, size_text(round(size * (1 - saved))), size_text(size)
        message = "--auto would make %s %s instead of %s" % texts
        console.put_error(log.lines(message, sys.stderr))


def _compress_npy(
    args: Namespace, in_file: str, out_file: str, settings: BloscArgs, metadata: object
) -> int:
    """Compress a .npy file; return its size in bytes, 0 if it is unknown."""
    from ...npy_io import pack_npy_to_file

    size = os.path.getsize(in_file) if in_file != STREAM else 0
    name, chunk_size = name_of_input(in_file, seekable=args.auto), args.chunk_size
    if args.auto:
        settings.check()
        with _opened_npy(name) as (fp, array_size, typesizes):
            setting = chosen_at(args, fp, array_size, typesizes)
        settings, chunk_size = settings.of_setting(setting), setting.chunk_size
    with shown(in_file, size or None, args.progress) as bar:
        pack_npy_to_file(
            name,
            name_of_output(out_file),
            "%dB" % chunk_size,  # a size with a suffix is rounded to whole items
            settings,
            metadata=metadata,
            shard=args.shard,
            nthreads=args.nthreads,
            sync=outputs.sync_for(args),
            preserve=args.preserve and in_file != STREAM,
            progress=bar,
            **_settings(args),
        )
    return size


# The choice of --auto: a regular file is sampled in pieces from its whole length. The
# sample of a pipe is its beginning, which is kept, and compressed with the rest.


class _HeadAndRest(io.RawIOBase):
    """The beginning of a pipe, which has been read, and then the rest of the pipe."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._parts: list[Readable] = [io.BytesIO(head), rest]
        self._rest = rest

    def readable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the descriptor of the pipe."""
        return self._rest.fileno()

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        """Read into a buffer; return the number of bytes."""
        while self._parts:
            data = read_up_to(self._parts[0], len(buffer))
            if data:
                buffer[: len(data)] = data
                return len(data)
            del self._parts[0]
        return 0


def sampled(args: Namespace, in_fp: BinaryIO) -> tuple[BinaryIO, Setting]:
    """Return the setting for an input, and a file object with all its bytes.

    The file object is `in_fp` at its current position, or replaces it.
    """
    from ..._format.automatic import HEAD

    size = size_left(in_fp)
    if size is not None:
        return in_fp, chosen_at(args, in_fp, size)
    head = read_up_to(in_fp, HEAD)
    raw: Any = _HeadAndRest(head, in_fp)
    return io.BufferedReader(raw), chosen_at(args, io.BytesIO(head), len(head))


def chosen_at(
    args: Namespace, fp: BinaryIO, size: int, typesizes: Sequence[int] = ()
) -> Setting:
    """Return the setting for the next `size` bytes of a file that can seek.

    The position remains unchanged. `typesizes` are the type sizes of the data, if they
    are known: they take precedence over the type size of the user.
    """
    from ..._format.automatic import CHUNK_SIZE, FIELDS, choose

    begin = fp.tell()
    given = {*FIELDS} & {*getattr(args, "given", ())}
    if typesizes:
        given.discard("typesize")
    fixed = {name: getattr(args, name) for name in given}
    if getattr(args, "shard", False):
        fixed.setdefault("chunk_size", CHUNK_SIZE)  # the last chunk is stored twice
    setting = choose(_reading(fp), size, args.auto, typesizes, fixed)
    fp.seek(begin)
    log.verbose("settings chosen for the data: %s" % setting)
    return setting


def _reading(fp: BinaryIO) -> Read:
    """Return a function that reads from the current position of a file on."""
    begin = fp.tell()

    def read(start: int, size: int) -> bytes:
        fp.seek(begin + start)
        return fp.read(size)

    return read
