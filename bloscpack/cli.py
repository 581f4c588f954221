"""``blpk``: from the arguments to the command, and from the error to the exit code.

Errors go to standard error; `outcomes` has the exit codes. What is imported while this
module is, is what every command needs: Ctrl-C is answered from then on.
"""

from __future__ import annotations

import os
import sys

from . import log
from ._cli.exit_codes import (
    EXIT_COULD_NOT,
    EXIT_INTERRUPTED,
    EXIT_OK,
    SIGNAL_BASE,
    exit_code,
    message_of,
)
from ._compat import sibling_names
from .exceptions import BloscpackError, UsageError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, NoReturn

# What these leave behind is files; all others are there for what they say.
WRITERS = ("compress", "decompress", "append", "recover", "metadata")
# What verbs call the files that they read.
INPUTS = ("file_", "damaged")


class Terminated(BaseException):
    """The process has been asked to end; everything is left as after Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _handle_termination() -> None:
    """Let SIGTERM and SIGHUP end the program the way that Ctrl-C does."""
    import signal

    def terminate(number: int, frame: object) -> NoReturn:
        raise Terminated(number)

    for name in ("SIGTERM", "SIGHUP"):
        # A program started with nohup goes on.
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, terminate)


def _resend_signal(ignored: Any) -> None:
    """Have a signal come once more whose exception Python could only ignore.

    It ignores what is raised while an object is removed, or as an import ends.
    """
    error = ignored.exc_value
    if not isinstance(error, (KeyboardInterrupt, Terminated)):
        sys.__unraisablehook__(ignored)
        return
    import signal
    from threading import Timer, get_ident

    while True:
        number = error.number if isinstance(error, Terminated) else signal.SIGINT
        try:
            # By then Python has left what ignores.
            timer = Timer(0.05, signal.pthread_kill, (get_ident(), number))
            timer.daemon = True  # the program may have ended
            timer.start()
            return
        except (KeyboardInterrupt, Terminated) as again:  # here it is ignored too
            error = again


def process_nthread_arg(args: Namespace) -> None:
    """Check and tell the number of threads."""
    from .constants import MAX_THREADS

    if not 1 <= args.nthreads <= MAX_THREADS:
        raise UsageError("-n must be 1 <= n <= %d" % MAX_THREADS)
    log.verbose("using %d thread%s" % (args.nthreads, "s" * (args.nthreads > 1)))


def _answer_quickly(arguments: list[str]) -> bool:
    """Do what takes less time than to parse it: ``--version`` and ``info FILE``."""
    asks_info = len(arguments) == 2 and arguments[0] in ("info", "i")
    if arguments != ["--version"] and not (
        asks_info and not arguments[1].startswith("-")
    ):
        return False
    from ._cli import quick_answers as commands

    if asks_info:
        commands.info(arguments[1])
    else:
        commands.version()
    return True


def _run(arguments: list[str], *, alone: bool) -> int:
    """Do what the arguments ask for; return the exit code.

    `alone` says that the process is there for nothing else.
    """
    from ._cli.parser import VERBS_OF_LETTERS, parse

    args = parse(arguments)
    name = VERBS_OF_LETTERS.get(args.subcommand, args.subcommand)
    log.make_output_optional(name in WRITERS)
    _prepare_log(args)
    if alone and name != "info":
        _handle_termination()  # it would only delay `info`, which leaves nothing behind
    if hasattr(args, "out_file"):
        from ._cli.file_jobs import output_is_data

        if output_is_data(args):
            log.keep_out_of_output()
    log.debug("command line argument parsing complete")
    log.debug("command line arguments are: ")
    for argument, value in sorted(vars(args).items()):
        log.debug("    %s: %s" % (argument, value))
    process_nthread_arg(args)
    if name not in WRITERS:
        log.need_output()
    _name_standard_input(args)
    from importlib import import_module

    code = import_module("._cli.verbs." + name, __package__).run(args) or EXIT_OK
    log.verbose("done")
    return int(code)


def _prepare_log(args: Namespace) -> None:
    if args.quiet:
        log.be_quiet()
    log.set_level(
        log.DEBUG if args.debug else log.VERBOSE if args.verbose else log.NORMAL
    )


def _name_standard_input(args: Namespace) -> None:
    """Give standard input, where it is meant, a name that it can be opened by."""
    given = vars(args)
    if not any(name in given for name in (*INPUTS, "files")):
        return
    from ._cli.stdio import name_of_input

    for name in INPUTS:
        if name in given:
            given[name] = name_of_input(given[name])
    if "files" in given:
        args.files = [name_of_input(name) for name in args.files]


def _code_without_output(code: int) -> int:
    """Return the exit code where standard output failed; `code` is that of the verb.

    A verb that needs the output ends at the failure, so its code counts for nothing:
    with buffering it may have gone on for a while.
    """
    return max(code if log.OUTPUT_IS_OPTIONAL else EXIT_OK, EXIT_COULD_NOT)


def main(argv: list[str] | None = None) -> None:
    """Run the command; the exit code is that of SystemExit, 0 if it returns."""
    log.set_prefix(log.COMMAND)
    code = EXIT_OK
    alone = argv is None
    if alone and os.name == "posix":
        sys.unraisablehook = _resend_signal
    try:
        arguments = sys.argv[1:] if argv is None else argv
        try:
            if not _answer_quickly(arguments):
                code = _run(arguments, alone=alone)
        except (BloscpackError, OSError, MemoryError, log.OutputLost):
            # Without buffering, output lost before the error would have come first.
            if not log.OUTPUT_IS_OPTIONAL:
                log.flush()
            raise
        log.flush()
    except BrokenPipeError:
        # The reader of the output does not want any more.
        code = _code_without_output(code)
    except log.OutputLost as error:
        log.error(str(error), _code_without_output(code))
    except Terminated as error:
        log.error("terminated", SIGNAL_BASE + error.number)
    except (BloscpackError, OSError, MemoryError) as error:
        log.error(message_of(error), exit_code(error))
    except KeyboardInterrupt:
        log.error("interrupted", EXIT_INTERRUPTED)
    finally:
        log.finish()
    if code:
        sys.exit(code)


# Names kept from 0.16

__getattr__ = sibling_names(__name__)
