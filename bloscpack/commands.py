"""What the subcommands of ``blpk`` do, once their arguments have been understood.

Each takes the parsed arguments and talks through `log`; errors leave as exceptions
and become a message and an exit code in `cli`.
"""

from __future__ import annotations

import os
import stat

from . import log
from .constants import BLOSC_HEADER_LENGTH
from .exceptions import FileNotFound, FormatError, StorageError, UsageError
from .outcomes import EXIT_COULD_NOT, Refusal
from .version import __version__

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from .args import BloscArgs
    from .frames import Beginning
    from .headers import BloscpackHeader

OFFSETS_SHOWN = 5
LINE_WIDTH = 90


def keep_out_of_output(out_file: str) -> None:
    """Say everything on standard error if standard output is the output file."""
    from .durable import standard_stream

    if os.path.exists(out_file) and standard_stream(os.stat(out_file)) == 1:
        log.keep_out_of_output()


def check_exists(role: str, path: str) -> None:
    """Raise `FileNotFound` unless `path` exists."""
    if not os.path.exists(path):
        raise FileNotFound("%s '%s' does not exist!" % (role, path))


def check_files(in_file: str, out_file: str, args: Namespace) -> None:
    """Raise unless the input exists and the output may be written."""
    check_exists("input file", in_file)
    if not out_file:
        raise UsageError("the name '%s' leaves none for the output" % in_file)
    if os.path.exists(out_file):
        from .durable import standard_stream

        status = os.stat(out_file)
        streamed = not stat.S_ISREG(status.st_mode) or standard_stream(status)
        if not (streamed or args.force):
            raise StorageError("output file '%s' exists!" % out_file)
        log.verbose("overwriting existing file: '%s'" % out_file)
    log.verbose("input file is: '%s'" % in_file)
    log.verbose("output file is: '%s'" % out_file)


def log_metadata(metadata: Any) -> None:
    """Show metadata, keys sorted."""
    log.normal("Metadata:")
    line = _sorted_repr(metadata)
    if len(line) > LINE_WIDTH:
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
    from .args import BloscpackArgs
    from .file_io import pack_file_to_file

    check_files(in_file, out_file, args)
    pack_file_to_file(
        in_file,
        out_file,
        chunk_size=args.chunk_size,
        metadata=metadata,
        blosc_args=blosc_args,
        bloscpack_args=BloscpackArgs(offsets=args.offsets, checksum=args.checksum),
        nthreads=args.nthreads,
        sync=args.sync,
    )


def decompress(args: Namespace, in_file: str, out_file: str) -> None:
    """Decompress a file."""
    from .file_io import unpack_file_from_file

    check_files(in_file, out_file, args)
    metadata = unpack_file_from_file(
        in_file, out_file, nthreads=args.nthreads, sync=args.sync
    )
    if metadata:
        log_metadata(metadata)


def append(args: Namespace, original_file: str, new_file: str, metadata: Any) -> None:
    """Append the content of a file to a compressed file."""
    from .append import UNCHANGED, append
    from .args import BloscArgs

    check_exists("original file", original_file)
    check_exists("new file", new_file)
    log.verbose("original file is: '%s'" % original_file)
    log.verbose("new file is: '%s'" % new_file)
    append(
        original_file,
        new_file,
        BloscArgs(args.typesize, args.clevel, args.shuffle, args.cname),
        metadata=UNCHANGED if metadata is None else metadata,
        nthreads=args.nthreads,
        sync=args.sync is not False,
    )


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


def info(file_: str) -> None:
    """Show what the sections in front of the chunks and the first chunk say."""
    from .steady import read_steadily

    check_exists("file", file_)
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
