"""What the subcommands of ``blpk`` do, once their arguments have been understood.

Each takes the parsed arguments and talks through `log`; errors leave as exceptions
and become a message and an exit code in `cli`.
"""

from __future__ import annotations

import os
import sys

from . import log
from .constants import BLOSC_HEADER_LENGTH
from .exceptions import FormatError, StorageError
from .jobs import STREAM, check_exists
from .outcomes import EXIT_COULD_NOT, EXIT_USAGE, Refusal
from .version import __version__

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from .args import BloscArgs, BloscpackArgs, MetadataArgs
    from .frames import Beginning
    from .headers import BloscpackHeader

OFFSETS_SHOWN = 5
LINE_WIDTH = 90
MOST_SHOWN = 2**16


def log_metadata(metadata: Any) -> None:
    """Show metadata, keys sorted."""
    log.normal("Metadata:")
    line = _sorted_repr(metadata)
    if len(line) > MOST_SHOWN:
        # To lay out so much would take minutes.
        line = "%s... (%d characters)" % (line[:MOST_SHOWN], len(line))
    elif len(line) > LINE_WIDTH:
        # Importing this takes as long as everything else in `blpk info`.
        import pprint

        line = pprint.pformat(metadata, width=LINE_WIDTH)
    log.normal(line)


def _sorted_repr(value: Any) -> str:
    """Return the repr of a value from JSON, the keys of its dictionaries sorted."""
    if isinstance(value, dict):
        items = ("%r: %s" % (key, _sorted_repr(value[key])) for key in sorted(value))
        return "{%s}" % ", ".join(items)
    if isinstance(value, list):
        return "[%s]" % ", ".join(map(_sorted_repr, value))
    return repr(value)


def compress(
    args: Namespace,
    in_file: str,
    out_file: str,
    blosc_args: BloscArgs,
    metadata: Any,
) -> None:
    """Compress a file."""
    from .file_io import pack_fp_to_fp, tell_packed
    from .progress import shown
    from .streams import (
        Clock,
        check_files,
        descriptor_of,
        opened_input,
        opened_output,
        remove_input,
        state_of,
    )

    check_files(in_file, out_file, args)
    descriptor = descriptor_of(out_file)
    if descriptor is not None and os.isatty(descriptor) and not args.force:
        raise Refusal("compressed bytes are not for a terminal; -f does it", EXIT_USAGE)
    before = state_of(in_file)
    clock = Clock()
    if args.npy:
        _compress_npy(args, in_file, out_file, blosc_args, metadata)
        clock.tell(os.path.getsize(in_file) if in_file != STREAM else 0)
        remove_input(in_file, before, args)
        return
    with opened_input(in_file) as in_fp, opened_output(in_fp, out_file, args) as out_fp:
        size = os.fstat(in_fp.fileno()).st_size
        with shown(in_file, size or None, args.progress):
            pack_fp_to_fp(
                in_fp,
                out_fp,
                args.chunk_size,
                metadata,
                blosc_args,
                _bloscpack_args(args),
                _metadata_args(args),
                nthreads=args.nthreads,
            )
        in_size = in_fp.tell() if in_fp.seekable() else 0
    if descriptor is None:
        tell_packed(in_size, out_file)
    clock.tell(in_size)
    remove_input(in_file, before, args)


def _compress_npy(
    args: Namespace, in_file: str, out_file: str, blosc_args: BloscArgs, metadata: Any
) -> None:
    from .npy_io import pack_npy_to_file
    from .streams import device_of, make_alike

    if metadata is not None:
        raise Refusal("--npy stores metadata of its own; -m can't be given", EXIT_USAGE)
    size = args.chunk_size
    replaced = os.path.exists(out_file)
    pack_npy_to_file(
        device_of(in_file, 0),
        device_of(out_file, 1),
        size if isinstance(size, str) else "%dB" % size,
        blosc_args,
        _bloscpack_args(args),
        _metadata_args(args),
        nthreads=args.nthreads,
        sync=True if args.rm else args.sync,
    )
    make_alike(in_file, out_file, args, replaced)


def _decompress_npy(args: Namespace, in_file: str, out_file: str) -> None:
    from .npy_io import unpack_npy_from_file
    from .streams import device_of, make_alike

    replaced = os.path.exists(out_file)
    unpack_npy_from_file(
        device_of(in_file, 0),
        device_of(out_file, 1),
        nthreads=args.nthreads,
        sync=True if args.rm else args.sync,
    )
    make_alike(in_file, out_file, args, replaced)


def _given(**values: Any) -> dict[str, Any]:
    """Return those that are not None: the others keep their defaults."""
    return {name: value for name, value in values.items() if value is not None}


def _bloscpack_args(args: Namespace) -> BloscpackArgs:
    from .args import BloscpackArgs

    return BloscpackArgs(
        offsets=args.offsets,
        checksum=args.checksum,
        **_given(max_app_chunks=args.max_app_chunks),
    )


def _metadata_args(args: Namespace) -> MetadataArgs:
    from .args import MetadataArgs

    return MetadataArgs(
        **_given(
            meta_checksum=args.meta_checksum,
            meta_codec=args.meta_codec,
            max_meta_size=args.max_meta_size,
        )
    )


def decompress(args: Namespace, in_file: str, out_file: str) -> None:
    """Decompress a file."""
    from .durable import is_stream
    from .file_io import tell_unpacked, unpack_fp_to_fp
    from .pretty import pretty_size
    from .progress import shown
    from .steady import ATTEMPTS, read_steadily
    from .streams import (
        Clock,
        check_files,
        opened_output,
        remove_input,
        standard_input,
        state_of,
    )

    check_files(in_file, out_file, args)
    _check_metadata_to(args, in_file, out_file)
    before = state_of(in_file)
    clock = Clock()
    if args.npy:
        _decompress_npy(args, in_file, out_file)
        clock.tell(os.path.getsize(out_file) if out_file != STREAM else 0)
        remove_input(in_file, before, args)
        return
    nbytes: int | None = None

    def read(in_fp: Any, check: Any) -> Any:
        def begin(header: BloscpackHeader) -> None:
            nonlocal nbytes
            nbytes = header.nbytes
            check(header)

        output = opened_output(in_fp, out_file, args)
        with output as out_fp, shown(in_file, None, args.progress):
            return unpack_fp_to_fp(in_fp, out_fp, begin, nthreads=args.nthreads)

    if in_file == STREAM:
        metadata = read(standard_input(), lambda header: None)
    else:
        in_size = os.path.getsize(in_file)
        log.verbose("input file size: %s" % pretty_size(in_size))
        # What a stream has been given can't be taken back.
        streamed = out_file == STREAM or is_stream(out_file)
        metadata = read_steadily(in_file, read, 1 if streamed else ATTEMPTS)
        if not streamed:
            tell_unpacked(in_size, out_file)
    clock.tell(nbytes or 0)
    _keep_metadata(metadata, args)
    remove_input(in_file, before, args)


def _check_metadata_to(args: Namespace, *others: str) -> None:
    """Raise unless the file for metadata is free, and neither input nor output."""
    name = args.metadata_to
    if name is None:
        return
    if any(os.path.realpath(name) == os.path.realpath(other) for other in others):
        raise Refusal("metadata and data can't both be '%s'" % name, EXIT_USAGE)
    if name != STREAM and os.path.exists(name) and not args.force:
        raise StorageError("output file '%s' exists!" % name)


def _keep_metadata(metadata: Any, args: Namespace) -> None:
    """Show the metadata, or write them to the file that is wanted."""
    if args.metadata_to is None:
        if metadata:
            log_metadata(metadata)
        return
    import json

    text = json.dumps(metadata, indent=1) + "\n"
    if args.metadata_to == STREAM:
        sys.stdout.write(text)
        return
    from .durable import replacing

    with replacing(args.metadata_to, args.sync) as fp:
        fp.write(text.encode("ascii"))


def append(args: Namespace, original_file: str, new_file: str, metadata: Any) -> None:
    """Append the content of a file to a compressed file."""
    from .append import UNCHANGED, append, append_from, sized
    from .args import BloscArgs
    from .progress import shown
    from .streams import device_of, standard_input

    if original_file == STREAM:
        raise Refusal("a file to append to can't be standard input", EXIT_USAGE)
    check_exists("original file", original_file)
    check_exists("new file", new_file)
    log.verbose("original file is: '%s'" % original_file)
    log.verbose("new file is: '%s'" % new_file)
    blosc_args = BloscArgs(args.typesize, args.clevel, args.shuffle, args.cname)
    options: dict[str, Any] = {
        "nthreads": args.nthreads,
        "sync": args.sync is not False,
    }
    with shown(new_file, None, args.progress):
        if args.npy:
            from .npy_io import append_npy

            new_file = device_of(new_file, 0)
            append_npy(original_file, new_file, blosc_args, **options)
            return
        options["metadata"] = UNCHANGED if metadata is None else metadata
        if new_file == STREAM:
            with sized(standard_input()) as (fp, size):
                append_from(original_file, fp, size, blosc_args, **options)
            return
        append(original_file, new_file, blosc_args, **options)


def version() -> None:
    """Show the versions of Bloscpack, python-blosc and Blosc."""
    log.flush()
    print(
        "bloscpack: '%s' python-blosc: '%s' blosc: '%s'"
        % (__version__, *_blosc_versions())
    )


def _blosc_versions() -> tuple[str, str]:
    """Return the versions of python-blosc and Blosc.

    Importing python-blosc as a whole takes longer than everything else in
    ``blpk --version``, so only its two modules that know are loaded.
    """
    from importlib.machinery import PathFinder
    from importlib.util import find_spec, module_from_spec

    package = find_spec("blosc")
    if package is None or not package.submodule_search_locations:
        raise Refusal("python-blosc is not installed", EXIT_COULD_NOT)
    versions = []
    for module, name in (
        ("version", "__version__"),
        ("blosc_extension", "BLOSC_VERSION_STRING"),
    ):
        spec = PathFinder.find_spec(module, list(package.submodule_search_locations))
        assert spec is not None
        loaded = module_from_spec(spec)
        spec.loader.exec_module(loaded)  # type: ignore[union-attr]
        versions.append(str(getattr(loaded, name)))
    return versions[0], versions[1]


def info(file_: str, as_json: bool = False) -> None:
    """Show what the sections in front of the chunks and the first chunk say."""
    from .steady import read_steadily

    check_exists("file", file_)
    if as_json:
        import json

        from .verbs.describe import describe

        log.flush()
        print(json.dumps(describe(file_, strict=False), indent=1))
        return
    if file_ == STREAM:
        from .streams import standard_input

        beginning, head = _read_info(standard_input(), lambda header: None)
    else:
        beginning, head = read_steadily(file_, _read_info)
    _log_beginning(beginning)
    if head:
        _log_chunk_header(head)


def _read_info(fp: Any, check: Any) -> tuple[Beginning, bytes]:
    """Return what lies in front of the chunks, and the header of the first chunk."""
    from .frames import read_beginning
    from .ranges import Cursor

    cursor = Cursor(fp)
    beginning = read_beginning(cursor)
    head = _first_chunk_header(cursor, beginning.header)
    check(beginning.header)
    return beginning, head


def _first_chunk_header(cursor: Any, header: BloscpackHeader) -> bytes:
    """Return the header of the first chunk, checked; nothing if there is no chunk."""
    from .chunks import decode_header

    head: bytes = cursor.peek(BLOSC_HEADER_LENGTH)
    if header.nchunks == 0 or (header.nchunks == -1 and not head):
        return b""
    try:
        decode_header(head)
    except FormatError as error:
        error.chunk, error.offset = 0, cursor.position
        raise
    return head


def _log_beginning(beginning: Beginning) -> None:
    log.normal(beginning.header.pformat())
    if beginning.offsets is not None:
        log.normal("'offsets':")
        shown = "".join("%d," % offset for offset in beginning.offsets[:OFFSETS_SHOWN])
        log.normal("[%s...]" % shown)
    if beginning.metadata_header is not None:
        log_metadata(beginning.metadata)
        log.normal(beginning.metadata_header.pformat())


def _log_chunk_header(head: bytes) -> None:
    from .headers import decode_blosc_flags, decode_blosc_header

    fields = decode_blosc_header(head)
    # The repr of an OrderedDict is another in every other Python.
    log.normal("First chunk blosc header:")
    log.normal("OrderedDict(%r)" % list(fields.items()))
    log.normal("First chunk blosc flags: ")
    log.normal("OrderedDict(%r)" % list(decode_blosc_flags(fields["flags"]).items()))
