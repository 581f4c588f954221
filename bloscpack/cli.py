"""``blpk``: from the arguments to the command, and from the error to the exit code.

Errors go to standard error; `outcomes` has the exit codes.
"""

from __future__ import annotations

import os
import sys

from . import commands, log
from .compat import sibling_names
from .constants import EXTENSION, MAX_THREADS
from .exceptions import BloscpackError, FileNotFound, UsageError
from .outcomes import (
    EXIT_COULD_NOT,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    SIGNAL_BASE,
    Refusal,
    exit_code,
    message_of,
)

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, NoReturn


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


def process_nthread_arg(args: Namespace) -> None:
    """Check and tell the number of threads."""
    if not 1 <= args.nthreads <= MAX_THREADS:
        raise UsageError("-n must be 1 <= n <= %d" % MAX_THREADS)
    log.verbose("using %d thread%s" % (args.nthreads, "s" * (args.nthreads > 1)))


def process_compression_args(args: Namespace) -> tuple[str, str, Any]:
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


def process_decompression_args(args: Namespace) -> tuple[str, str]:
    """Return input file and output file of decompress."""
    if args.no_check_extension:
        if args.out_file is None:
            raise UsageError("--no-check-extension requires use of <out_file>")
        return args.in_file, args.out_file
    _check_extension("input file", args.in_file)
    if args.out_file is not None:
        return args.in_file, args.out_file
    return args.in_file, args.in_file[: -len(EXTENSION)]


def process_append_args(args: Namespace) -> tuple[str, str]:
    """Return original file and new file of append."""
    if not args.no_check_extension:
        _check_extension("original file", args.original_file)
    return args.original_file, args.new_file


def _check_extension(role: str, name: str) -> None:
    if not name.endswith(EXTENSION):
        raise Refusal(
            "%s '%s' does not end with '%s'" % (role, name, EXTENSION), EXIT_COULD_NOT
        )


def process_metadata_args(args: Namespace) -> Any:
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


def _run(args: Namespace) -> None:
    """Do what the arguments ask for."""
    if getattr(args, "out_file", None):
        commands.keep_out_of_output(args.out_file)
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
        commands.info(args.file_)
    log.verbose("done")


def _done_unparsed(arguments: list[str]) -> bool:
    """Do what takes less time than to parse it: ``--version`` and ``info FILE``."""
    if arguments == ["--version"]:
        commands.version()
    elif (
        len(arguments) == 2
        and arguments[0] in ("info", "i")
        and not arguments[1].startswith("-")
    ):
        commands.info(arguments[1])
    else:
        return False
    return True


def _parse(arguments: list[str]) -> Namespace:
    from .parser import create_parser

    parser = create_parser()
    args = parser.parse_args(arguments)
    if args.subcommand is None:
        parser.error("too few arguments")
    return args


def main(argv: list[str] | None = None) -> None:
    """Run the command; the exit code is that of SystemExit, 0 if it returns."""
    log.set_prefix(log.COMMAND)
    args = None
    try:
        arguments = sys.argv[1:] if argv is None else argv
        if _done_unparsed(arguments):
            log.flush()
            return
        args = _parse(arguments)
        log.set_level(
            log.DEBUG if args.debug else log.VERBOSE if args.verbose else log.NORMAL
        )
        if argv is None and args.subcommand not in ("info", "i"):
            _end_in_order()  # nothing is left behind by what writes nothing
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
        log.error(message_of(error), exit_code(error))
    except KeyboardInterrupt:
        log.error("interrupted", EXIT_INTERRUPTED)


# Names kept from 0.16

__getattr__ = sibling_names(__name__)
