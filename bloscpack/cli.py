"""``blpk``: from the arguments to the command, and from the error to the exit code.

Errors go to standard error; `outcomes` has the exit codes.
"""

from __future__ import annotations

import os
import sys

from . import commands, jobs, log
from .compat import sibling_names
from .constants import MAX_THREADS
from .exceptions import BloscpackError, FileNotFound, UsageError
from .outcomes import (
    EXIT_COULD_NOT,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    SIGNAL_BASE,
    Refusal,
    exit_code,
    message_of,
)

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable
    from typing import Any, NoReturn


STANDARD_INPUT = "/dev/stdin"


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
    return args.in_file, jobs.compressed_name(args.in_file, args.suffix), blosc_args


def process_decompression_args(args: Namespace) -> tuple[str, str]:
    """Return input file and output file of decompress."""
    if args.no_check_extension:
        if args.out_file is None:
            raise UsageError("--no-check-extension requires use of <out_file>")
        return args.in_file, args.out_file
    jobs.check_extension("input file", args.in_file, args.suffix)
    if args.out_file is not None:
        return args.in_file, args.out_file
    return args.in_file, jobs.plain_name(args.in_file, args.suffix)


def process_append_args(args: Namespace) -> tuple[str, str]:
    """Return original file and new file of append."""
    if not args.no_check_extension:
        jobs.check_extension("original file", args.original_file)
    return args.original_file, args.new_file


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


def _run(args: Namespace) -> int:
    """Do what the arguments ask for; return the exit code."""
    from .parser import VERBS_OF_LETTERS

    if hasattr(args, "out_file"):
        _keep_out_of_output(args)
    process_nthread_arg(args)
    name = VERBS_OF_LETTERS.get(args.subcommand, args.subcommand)
    code = EXIT_OK
    if name == "compress":
        log.verbose("getting ready for compression")
        code = _compress(args)
    elif name == "decompress":
        log.verbose("getting ready for decompression")
        code = _decompress(args)
    elif name == "append":
        log.verbose("getting ready for append")
        files = process_append_args(args)
        commands.append(args, *files, process_metadata_args(args))
    elif name == "info":
        commands.info(args.file_, args.json)
    else:
        from importlib import import_module

        _name_standard_input(args)
        code = import_module(".verbs." + name, __package__).run(args) or EXIT_OK
    log.verbose("done")
    return code


def _name_standard_input(args: Namespace) -> None:
    """Give standard input, where it is meant, a name that it can be opened by."""
    for name in ("file_", "damaged"):
        if getattr(args, name, None) == jobs.STREAM:
            setattr(args, name, STANDARD_INPUT)
    if hasattr(args, "files"):
        args.files = [
            STANDARD_INPUT if name == jobs.STREAM else name for name in args.files
        ]


def _keep_out_of_output(args: Namespace) -> None:
    """Leave standard output to the data, if that is where they go."""
    from .streams import keep_out_of_output

    out_file = args.out_file if args.output is None else args.output
    many = not jobs.is_classic(args)
    names = (args.in_file, args.out_file, *args.more)
    to_streams = (many or out_file is None) and args.output is None
    if to_streams and jobs.STREAM in names:
        out_file = jobs.STREAM
    if out_file is not None:
        keep_out_of_output(out_file)


def _compress(args: Namespace) -> int:
    from .args import BloscArgs

    if jobs.is_classic(args):
        in_file, out_file, blosc_args = process_compression_args(args)
        todo = [(in_file, out_file)]
    else:
        blosc_args = BloscArgs(args.typesize, args.clevel, args.shuffle, args.cname)
        todo = jobs.plan(args, lambda name: jobs.compressed_name(name, args.suffix))
    metadata = process_metadata_args(args)

    def one(in_file: str, out_file: str) -> None:
        commands.compress(args, in_file, out_file, blosc_args, metadata)

    return _each(todo, one)


def _decompress(args: Namespace) -> int:
    if jobs.is_classic(args):
        todo = [process_decompression_args(args)]
    else:
        todo = jobs.plan(args, lambda name: jobs.plain_name(name, args.suffix))
    if args.metadata_to is not None and len(todo) > 1:
        raise Refusal("--metadata-to is for one input", EXIT_USAGE)
    return _each(todo, lambda *files: commands.decompress(args, *files))


def _each(todo: list[tuple[str, str]], do: Callable[[str, str], None]) -> int:
    """Do the same for every (input, output); a failure does not stop the others.

    Return the worst exit code: damaged data, then wrong usage, then everything else.
    """
    if len(todo) == 1:
        in_file, out_file = todo[0]
        do(in_file, out_file)
        return EXIT_OK
    worst = EXIT_OK
    for in_file, out_file in todo:
        try:
            do(in_file, out_file)
        except BrokenPipeError:
            raise
        except (BloscpackError, OSError) as error:
            log.report(_with_name(message_of(error), in_file))
            worst = max(worst, exit_code(error))
    return worst


def _with_name(message: str, name: str) -> str:
    return message if name in message else "'%s': %s" % (name, message)


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


def main(argv: list[str] | None = None) -> None:
    """Run the command; the exit code is that of SystemExit, 0 if it returns."""
    log.set_prefix(log.COMMAND)
    code = EXIT_OK
    try:
        arguments = sys.argv[1:] if argv is None else argv
        if _done_unparsed(arguments):
            log.flush()
            return
        from .parser import parse  # not needed by what is done unparsed

        args = parse(arguments)
        if args.quiet:
            log.be_quiet()
        log.set_level(
            log.DEBUG if args.debug else log.VERBOSE if args.verbose else log.NORMAL
        )
        if argv is None and args.subcommand not in ("info", "i"):
            _end_in_order()  # nothing is left behind by what writes nothing
        log.debug("command line argument parsing complete")
        log.debug("command line arguments are: ")
        for name, value in sorted(vars(args).items()):
            log.debug("    %s: %s" % (name, value))
        code = _run(args)
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
    if code:
        sys.exit(code)


# Names kept from 0.16

__getattr__ = sibling_names(__name__)
