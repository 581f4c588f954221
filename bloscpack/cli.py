"""``blpk``: its arguments, its messages and its exit codes.

Exit codes: 0 done; 1 could not (missing, exists, not a Bloscpack file, no space);
2 wrong usage; 3 damaged data found; 130 interrupted, 143 terminated. Errors go to
standard error.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib.machinery import PathFinder

from . import commands, log
from .args import available_cpus, parse_chunk_size
from .checksums import CHECKSUMS_AVAIL
from .compat import sibling_names
from .constants import EXTENSION, MAX_BUFFERSIZE, MAX_CLEVEL, MIN_CLEVEL, SUFFIXES
from .defaults import (
    DEFAULT_CHECKSUM,
    DEFAULT_CHUNK_SIZE,
    DEFAULT_CLEVEL,
    DEFAULT_CNAME,
    DEFAULT_OFFSETS,
    DEFAULT_SHUFFLE,
    DEFAULT_TYPESIZE,
)
from .durable import standard_stream
from .exceptions import (
    BloscpackError,
    FileNotFound,
    FormatError,
    FormatVersionMismatch,
    NotReadable,
    UsageError,
)
from .pretty import join_with_eol, reverse_pretty
from .version import __version__

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, NoReturn

EXIT_OK = 0
EXIT_COULD_NOT = 1
EXIT_USAGE = 2
EXIT_DAMAGED = 3
EXIT_INTERRUPTED = 130
# Shells add the number of the signal that ended a program.
SIGNAL_BASE = 128

MAX_THREADS = 256
BITSHUFFLE = 2


class Refusal(BloscpackError):
    """What `blpk` won't do, with the exit code that says of which kind it is."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Terminated(BaseException):
    """The process has been asked to end; everything is left as after Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _end_in_order() -> None:
    """Let SIGTERM and SIGHUP end the program the way that Ctrl-C does."""
    import signal

    def terminate(number: int, frame: object) -> NoReturn:
        raise Terminated(number)

    for name in ("SIGTERM", "SIGHUP"):
        # A program started with nohup goes on.
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, terminate)


class BloscPackCustomFormatter(argparse.HelpFormatter):
    """Keeps the line ends that a help text has."""

    def __init__(self, prog: str, **kwargs: Any) -> None:
        # argparse would import shutil for this, long before any help is shown.
        if "width" not in kwargs and not (sys.stdout and sys.stdout.isatty()):
            kwargs["width"] = int(os.environ.get("COLUMNS") or 80) - 2
        super().__init__(prog, **kwargs)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return "".join(indent + line for line in text.splitlines(keepends=True))
        return super()._fill_text(text, width, indent)

    def _split_lines(self, text: str, width: int) -> list[str]:
        if "\n" in text:
            return text.splitlines()
        return super()._split_lines(text, width)


class _Codecs:
    """The codecs of the installed Blosc, asked for when they are needed."""

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    @staticmethod
    def _names() -> list[str]:
        from .constants import CNAME_AVAIL

        return CNAME_AVAIL


class _Version(argparse.Action):
    """Shows the versions of Bloscpack, python-blosc and Blosc."""

    def __call__(self, parser: argparse.ArgumentParser, *args: Any) -> NoReturn:
        print(
            "bloscpack: '%s' python-blosc: '%s' blosc: '%s'"
            % (__version__, *_blosc_versions())
        )
        parser.exit(EXIT_OK)


def _blosc_versions() -> tuple[str, str]:
    """Return the versions of python-blosc and Blosc.

    Importing python-blosc as a whole takes longer than everything else in
    ``blpk --version``, so only its two modules that know are loaded.
    """
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


def _add_blosc_group(parser: argparse.ArgumentParser, typesize: int | None) -> None:
    shown = "that of the file" if typesize is None else typesize
    group = parser.add_argument_group(title="blosc settings")
    group.add_argument(
        "-t",
        "--typesize",
        metavar="<size>",
        default=typesize,
        type=int,
        help="typesize for blosc (default: %s)" % shown,
    )
    group.add_argument(
        "-l",
        "--clevel",
        default=DEFAULT_CLEVEL,
        choices=range(MIN_CLEVEL, MAX_CLEVEL + 1),
        metavar="[0, 9]",
        type=int,
        help="compression level (default: %d)" % DEFAULT_CLEVEL,
    )
    filters = group.add_mutually_exclusive_group()
    filters.add_argument(
        "-s",
        "--no-shuffle",
        action="store_const",
        const=False,
        default=DEFAULT_SHUFFLE,
        dest="shuffle",
        help="deactivate shuffle",
    )
    filters.add_argument(
        "--bitshuffle",
        action="store_const",
        const=BITSHUFFLE,
        default=DEFAULT_SHUFFLE,
        dest="shuffle",
        help="shuffle bits instead of bytes",
    )
    group.add_argument(
        "-c",
        "--codec",
        metavar="<codec>",
        choices=_Codecs(),
        default=DEFAULT_CNAME,
        dest="cname",
        help="codec to be used by Blosc: \n%(choices)s\n (default: %(default)s)",
    )


def _add_metadata_option(group: Any) -> None:
    group.add_argument(
        "-m",
        "--metadata",
        metavar="<metadata>",
        help="file containing the metadata, must contain valid JSON",
    )


def _add_compress(subparsers: Any) -> None:
    for name, help_ in (
        ("compress", "perform compression on file"),
        ("c", "alias for 'compress'"),
    ):
        parser = subparsers.add_parser(
            name, formatter_class=BloscPackCustomFormatter, help=help_
        )
        _add_blosc_group(parser, DEFAULT_TYPESIZE)
        group = parser.add_argument_group(title="bloscpack settings")
        group.add_argument(
            "-z",
            "--chunk-size",
            metavar="<size>",
            type=_chunk_size,
            default=DEFAULT_CHUNK_SIZE,
            help="set desired chunk size or 'max' (default: %s)" % DEFAULT_CHUNK_SIZE,
        )
        names = [CHECKSUMS_AVAIL[i : i + 3] for i in range(0, len(CHECKSUMS_AVAIL), 3)]
        group.add_argument(
            "-k",
            "--checksum",
            metavar="<checksum>",
            choices=CHECKSUMS_AVAIL,
            default=DEFAULT_CHECKSUM,
            help="set desired checksum:\n%s (default: %s)"
            % ("".join(map(join_with_eol, names)), DEFAULT_CHECKSUM),
        )
        group.add_argument(
            "-o",
            "--no-offsets",
            action="store_false",
            default=DEFAULT_OFFSETS,
            dest="offsets",
            help="deactivate offsets",
        )
        _add_metadata_option(group)
        parser.add_argument(
            "in_file", metavar="<in_file>", help="file to be compressed"
        )
        parser.add_argument(
            "out_file",
            metavar="<out_file>",
            nargs="?",
            help="file to compress to",
        )


def _add_decompress(subparsers: Any) -> None:
    for name, help_ in (
        ("decompress", "perform decompression on file"),
        ("d", "alias for 'decompress'"),
    ):
        parser = subparsers.add_parser(
            name, formatter_class=BloscPackCustomFormatter, help=help_
        )
        parser.add_argument(
            "-e",
            "--no-check-extension",
            action="store_true",
            help="disable checking input file for extension (*.blp)\n"
            "(requires use of <out_file>)",
        )
        parser.add_argument(
            "in_file", metavar="<in_file>", help="file to be decompressed"
        )
        parser.add_argument(
            "out_file",
            metavar="<out_file>",
            nargs="?",
            help="file to decompress to",
        )


def _add_append(subparsers: Any) -> None:
    for name, help_ in (
        ("append", "append data to a compressed file"),
        ("a", "alias for 'append'"),
    ):
        parser = subparsers.add_parser(
            name, formatter_class=BloscPackCustomFormatter, help=help_
        )
        _add_blosc_group(parser, None)
        parser.add_argument(
            "original_file", metavar="<original_file>", help="file to append to"
        )
        parser.add_argument(
            "new_file", metavar="<new_file>", help="file to append from"
        )
        parser.add_argument(
            "-e",
            "--no-check-extension",
            action="store_true",
            help="disable checking original file for extension (*.blp)",
        )
        _add_metadata_option(parser)


def _add_info(subparsers: Any) -> None:
    for name, help_ in (
        ("info", "print information about a compressed file"),
        ("i", "alias for 'info'"),
    ):
        parser = subparsers.add_parser(
            name, formatter_class=BloscPackCustomFormatter, help=help_
        )
        parser.add_argument("file_", metavar="<file>", help="file to show info for")


def create_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="blpk",
        formatter_class=BloscPackCustomFormatter,
        description="command line de/compression with blosc",
        epilog="Additional help for subcommands is available:\n"
        "  %(prog)s 'subcommand' [ -h | --help ]",
    )
    parser.add_argument(
        "--version",
        action=_Version,
        nargs=0,
        dest=argparse.SUPPRESS,
        default=argparse.SUPPRESS,
        help="show program's version number and exit",
    )
    levels = parser.add_mutually_exclusive_group()
    levels.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="be verbose about actions",
    )
    levels.add_argument(
        "-d",
        "--debug",
        action="store_true",
        help="print debugging output too",
    )
    group = parser.add_argument_group(title="global options")
    group.add_argument(
        "-f",
        "--force",
        action="store_true",
        help="disable overwrite checks for existing files\n(use with caution)",
    )
    group.add_argument(
        "-n",
        "--nthreads",
        metavar="[1, %d]" % MAX_THREADS,
        type=int,
        default=min(available_cpus(), MAX_THREADS),
        help="set number of threads, (default: %(default)s (ncores))",
    )
    subparsers = parser.add_subparsers(
        title="subcommands", metavar="", dest="subcommand"
    )
    _add_compress(subparsers)
    _add_decompress(subparsers)
    _add_append(subparsers)
    _add_info(subparsers)
    return parser


def _chunk_size(text: str) -> int:
    """Return the bytes that ``-z`` asks for: a number, one with a suffix, or 'max'."""
    if text == "max":
        return MAX_BUFFERSIZE
    # argparse would hide what a ValueError says.
    try:
        size = reverse_pretty(text) if text[-1:] in SUFFIXES else int(text)
    except ValueError as error:
        raise Refusal("-z error: %s" % error, EXIT_USAGE) from error
    if size <= 0:
        raise Refusal("-z must be > 0", EXIT_USAGE)
    try:
        return parse_chunk_size(size)
    except UsageError as error:
        raise Refusal(str(error), EXIT_USAGE) from error


def process_nthread_arg(args: argparse.Namespace) -> None:
    """Check and tell the number of threads."""
    if not 1 <= args.nthreads <= MAX_THREADS:
        raise UsageError("-n must be 1 <= n <= %d" % MAX_THREADS)
    log.verbose("using %d thread%s" % (args.nthreads, "s" * (args.nthreads > 1)))


def process_compression_args(args: argparse.Namespace) -> tuple[str, str, Any]:
    """Return input file, output file and blosc arguments of compress."""
    from .args import BloscArgs

    blosc_args = BloscArgs(args.typesize, args.clevel, args.shuffle, args.cname)
    if args.out_file is not None:
        return args.in_file, args.out_file, blosc_args
    if os.path.exists(args.in_file) and not (
        os.path.isfile(args.in_file) or os.path.isdir(args.in_file)
    ):
        raise Refusal(
            "input '%s' is no regular file, so <out_file> must be given" % args.in_file,
            EXIT_USAGE,
        )
    return args.in_file, args.in_file + EXTENSION, blosc_args


def process_decompression_args(args: argparse.Namespace) -> tuple[str, str]:
    """Return input file and output file of decompress."""
    if args.no_check_extension:
        if args.out_file is None:
            raise UsageError("--no-check-extension requires use of <out_file>")
        return args.in_file, args.out_file
    _check_extension("input file", args.in_file)
    if args.out_file is not None:
        return args.in_file, args.out_file
    return args.in_file, args.in_file[: -len(EXTENSION)]


def process_append_args(args: argparse.Namespace) -> tuple[str, str]:
    """Return original file and new file of append."""
    if not args.no_check_extension:
        _check_extension("original file", args.original_file)
    return args.original_file, args.new_file


def _check_extension(role: str, name: str) -> None:
    if not name.endswith(EXTENSION):
        raise Refusal(
            "%s '%s' does not end with '%s'" % (role, name, EXTENSION), EXIT_COULD_NOT
        )


def process_metadata_args(args: argparse.Namespace) -> Any:
    """Return the metadata in the file that ``-m`` names, None without one."""
    if args.metadata is None:
        return None
    if not os.path.exists(args.metadata):
        raise FileNotFound("metadata file '%s' does not exist!" % args.metadata)
    import json

    with open(args.metadata, encoding="utf-8") as fp:
        try:
            return json.loads(fp.read().strip())
        except (ValueError, RecursionError) as error:
            raise Refusal(
                "metadata file '%s' is no valid JSON: %s" % (args.metadata, error),
                EXIT_COULD_NOT,
            ) from error


def _run(args: argparse.Namespace) -> None:
    """Do what the arguments ask for."""
    out_file = getattr(args, "out_file", None)
    if (
        out_file
        and os.path.exists(out_file)
        and standard_stream(os.stat(out_file)) == 1
    ):
        log.keep_out_of_output()
    process_nthread_arg(args)
    if args.subcommand in ("compress", "c"):
        log.verbose("getting ready for compression")
        files_and_blosc_args = process_compression_args(args)
        commands.compress(args, *files_and_blosc_args, process_metadata_args(args))
    elif args.subcommand in ("decompress", "d"):
        log.verbose("getting ready for decompression")
        commands.decompress(args, *process_decompression_args(args))
    elif args.subcommand in ("append", "a"):
        log.verbose("getting ready for append")
        files = process_append_args(args)
        commands.append(args, *files, process_metadata_args(args))
    else:
        commands.info(args)
    log.verbose("done")


def _exit_code(error: BaseException) -> int:
    if isinstance(error, Refusal):
        return error.exit_code
    if isinstance(error, FormatError) and not isinstance(error, NotReadable):
        return EXIT_DAMAGED
    # What 0.16 called a RuntimeError is refused because of what the file is.
    if isinstance(error, UsageError) and not isinstance(error, RuntimeError):
        return EXIT_USAGE
    return EXIT_COULD_NOT


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return "'%s': %s" % (error.filename, error.strerror)
    text = str(error) or type(error).__name__
    if (
        isinstance(error, FormatError)
        and error.section == "header"
        and not isinstance(error, FormatVersionMismatch)
    ):
        text += "\nThis might not be a bloscpack compressed file."
    return text


def main(argv: list[str] | None = None) -> None:
    """Run the command; the exit code is that of SystemExit, 0 if it returns."""
    log.set_prefix("blpk")
    args = None
    try:
        parser = create_parser()
        args = parser.parse_args(argv)
        if args.subcommand is None:
            parser.error("too few arguments")
        log.set_level(
            log.DEBUG if args.debug else log.VERBOSE if args.verbose else log.NORMAL
        )
        if argv is None:
            _end_in_order()
        log.debug("command line argument parsing complete")
        log.debug("command line arguments are: ")
        for name, value in sorted(vars(args).items()):
            log.debug("    %s: %s" % (name, value))
        _run(args)
        log.flush()
    except BrokenPipeError:
        # Whoever read what was written has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(EXIT_COULD_NOT)
    except Terminated as error:
        log.error("terminated", SIGNAL_BASE + error.number)
    except (BloscpackError, OSError) as error:
        log.error(_message(error), _exit_code(error))
    except KeyboardInterrupt:
        log.error("interrupted", EXIT_INTERRUPTED)


# Names kept from 0.16

__getattr__ = sibling_names(__name__)
