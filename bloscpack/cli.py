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
    _prepare_log(args)
    name = VERBS_OF_LETTERS.get(args.subcommand, args.subcommand)
    if alone and name != "info":
        _handle_termination()  # it would only delay `info`, which leaves nothing behind
    log.debug("command line argument parsing complete")
    log.debug("command line arguments are: ")
    for argument, value in sorted(vars(args).items()):
        log.debug("    %s: %s" % (argument, value))
    if hasattr(args, "out_file"):
        from ._cli.file_jobs import output_is_data

        if output_is_data(args):
            log.keep_out_of_output()
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


def _fail(message: str, code: int) -> NoReturn:
    """Show what went wrong, and leave."""
    try:
        log.flush()
    except (OSError, log.OutputLost):
        _abandon_output()
    log.error(message, code)
    raise AssertionError  # pragma: no cover - log.error has left


def _abandon_output() -> None:
    """Let go what standard output has not taken."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def main(argv: list[str] | None = None) -> None:
    """Run the command; the exit code is that of SystemExit, 0 if it returns."""
    log.set_prefix(log.COMMAND)
    code = EXIT_OK
    alone = argv is None
    if alone and os.name == "posix":
        sys.unraisablehook = _resend_signal
    try:
        arguments = sys.argv[1:] if argv is None else argv
        if not _answer_quickly(arguments):
            code = _run(arguments, alone=alone)
        log.flush()
    except BrokenPipeError:
        # Whoever read what was written has seen enough.
        _abandon_output()
        sys.exit(EXIT_COULD_NOT)
    except log.OutputLost as error:
        _fail(str(error), EXIT_COULD_NOT)
    except Terminated as error:
        _fail("terminated", SIGNAL_BASE + error.number)
    except (BloscpackError, OSError, MemoryError) as error:
        _fail(message_of(error), exit_code(error))
    except KeyboardInterrupt:
        _fail("interrupted", EXIT_INTERRUPTED)
    if code:
        sys.exit(code)


# Names kept from 0.16

__getattr__ = sibling_names(__name__)
