"""The command ``blpk``: dispatches to the verbs and turns errors into exit codes.

`_cli.exit_codes` defines the exit codes; all errors go to standard error. This module
imports only modules that every verb needs, so that it handles Ctrl-C early.
"""

from __future__ import annotations

import os
import sys

from . import log
from ._cli import exit_codes
from ._cli.console import OutputLost, console, name_of_input
from ._compat import sibling_names
from ._storage.paths import MARK
from .constants import EXTENSION, MAX_THREADS
from .exceptions import BloscpackError, FileNotFound, UsageError
from .log import printable

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from types import FrameType
    from typing import NoReturn

    from ._types import Json
    from .args import BloscArgs


class Terminated(BaseException):
    """The process has received SIGTERM or SIGHUP; cleanup is the same as for Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _note_interrupts(runs_verb: bool) -> None:
    """Note Ctrl-C: NumPy, for one, raises another error if it is being imported.

    The entry point lets it end the process until a verb runs, which may have to clean
    up.
    """
    import signal

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        console.is_interrupted = True
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    ends_process = before == signal.SIG_DFL
    if ends_process if runs_verb else before is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)


def _handle_termination(undoes: bool) -> None:
    """Raise `Terminated` on SIGTERM and SIGHUP, so that files are cleaned up.

    A thread ends the command if the main thread is too busy to do it; see `watch` for
    `undoes`.
    """
    import signal

    _note_interrupts(runs_verb=True)

    def terminate(number: int, frame: FrameType | None) -> NoReturn:
        raise Terminated(number)

    for name in ("SIGTERM", "SIGHUP"):
        # nohup ignores SIGHUP on purpose: keep it ignored.
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, terminate)
    exit_codes.watch(undoes)


def _resend_signal(ignored: sys.UnraisableHookArgs) -> None:
    """Send a signal again if Python has ignored the exception of its handler.

    Python ignores exceptions that are raised in ``__del__`` or at the end of an import.
    """
    error = ignored.exc_value
    if not isinstance(error, (KeyboardInterrupt, Terminated)):
        sys.__unraisablehook__(ignored)
        return
    import signal
    from threading import Timer, get_ident

    while True:
        number = error.number if isinstance(error, Terminated) else signal.SIGINT
        exit_codes.expect_own_signal()
        try:
            # After 50 ms Python has left the code that ignores exceptions.
            timer = Timer(0.05, signal.pthread_kill, (get_ident(), number))
            timer.daemon = True  # do not keep a finished program alive
            timer.start()
            return
        except (KeyboardInterrupt, Terminated) as again:  # another signal
            error = again


def _answer_quickly(arguments: list[str]) -> int | None:
    """Run ``-V`` or ``info FILE`` without the parser; return the exit code.

    None for other arguments, and for ``info`` with defaults of the user.

    Importing argparse takes longer than these commands.
    """
    if arguments in (["--version"], ["-V"]):
        from ._cli.text import version

        version()
        return exit_codes.EXIT_OK
    asks_info = len(arguments) == 2 and arguments[0] in ("info", "i")
    if not asks_info or os.environ.get(exit_codes.DEFAULTS_VARIABLE):
        return None
    name = arguments[1]
    if name.startswith("-") or not os.path.isfile(name):
        return None
    from ._cli.file_info import info

    return info(name)


def _run(arguments: list[str], *, owns_process: bool) -> int:
    """Run the verb that the arguments name; return the exit code.

    If the command `owns_process`, nothing else runs in the process: it handles signals.
    """
    from ._cli.args import ANSWER, DATA, FILES, UNDOING, find, module_of, parse

    if owns_process:
        _note_interrupts(runs_verb=False)
    args = parse(arguments)
    verb = find(args.subcommand)
    assert verb is not None  # the parser accepts no other
    module = module_of(verb)
    console.runs_verb = True
    console.is_optional = verb.writes in (FILES, ANSWER)
    if verb.writes == ANSWER:
        console.code_of_lost = exit_codes.EXIT_USAGE
    console.quiet = args.quiet
    log.set_level(log.VERBOSE if args.verbose or args.debug else log.NORMAL)
    if owns_process and verb.name != "info":  # `info` has nothing to clean up
        _handle_termination(verb.name in UNDOING)
    writes_data = getattr(module, "writes_data", lambda args: False)
    of_data = verb.writes == DATA or getattr(args, "json", False)
    if of_data or writes_data(args):
        console.reserve_for_data()
    process_nthread_arg(args)
    if not console.is_optional:
        console.need_output()
    if verb.inputs is not None:
        given = getattr(args, verb.inputs)  # `-` becomes a path that can be opened
        is_list = isinstance(given, list)
        named = [*map(name_of_input, given)] if is_list else name_of_input(given)
        setattr(args, verb.inputs, named)
    code = module.run(args) or exit_codes.EXIT_OK
    log.verbose("done")
    return int(code)


def _code_without_output(code: int) -> int:
    """Return the exit code after standard output has failed; `code` is the verb's.

    A verb that needs the output ends at the failure. With buffering it ends later, so
    its own code would depend on the buffering and is not used.
    """
    return max(
        code if console.is_optional else exit_codes.EXIT_OK, console.code_of_lost
    )


def _end_as_filter(arguments: list[str]) -> None:
    """End the process with SIGPIPE if it is a filter whose reader has ended.

    tar reads only the beginning of an archive if it needs no more. It reports every
    other end of its filter as an error.
    """
    import signal

    from ._cli.args import may_be_filter

    if hasattr(signal, "SIGPIPE") and may_be_filter(arguments):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)


def main(argv: list[str] | None = None) -> None:
    """Run the command ``blpk``.

    Parameters
    ----------
    argv
        The arguments after the program name; by default ``sys.argv[1:]``.

    Raises
    ------
    SystemExit
        With the exit code, unless it is 0.
    """
    code = exit_codes.EXIT_OK
    owns_process = argv is None
    console.begin(owns_streams=owns_process)
    if owns_process:
        # The threads that OpenBLAS starts when NumPy is imported would never be used.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if owns_process and os.name == "posix":
        sys.unraisablehook = _resend_signal
    try:
        arguments = sys.argv[1:] if argv is None else argv
        if any(MARK in argument for argument in arguments):
            from ._storage.urls import secrets_in

            console.hidden = secrets_in(arguments)
        try:
            quick = _answer_quickly(arguments)
            if quick is None:
                quick = _run(arguments, owns_process=owns_process)
            code = max(quick, console.least_code)
        except (BloscpackError, OSError, MemoryError, OutputLost):
            # An unbuffered stream would have failed before this error: report that.
            if not console.is_optional:
                console.flush()
            raise
        console.flush()
    except BrokenPipeError:
        # The reader has closed the pipe: end without a message.
        code = _code_without_output(code)
        if owns_process:
            _end_as_filter(arguments)
    except OutputLost as error:
        code = _code_without_output(code)
        console.last_error(printable(str(error)))
    except Terminated as error:
        code = exit_codes.SIGNAL_BASE + error.number
        console.last_error("terminated")
    except (Exception, KeyboardInterrupt) as error:
        if console.is_interrupted or isinstance(error, KeyboardInterrupt):
            code, text = exit_codes.EXIT_INTERRUPTED, "interrupted"
        elif isinstance(error, (BloscpackError, OSError, MemoryError)):
            code = exit_codes.exit_code(error)
            text = exit_codes.message_of(error, printable)
            if console.is_filter:
                text = exit_codes.with_advice(text, code)
        else:
            raise
        variable = exit_codes.DEFAULTS_VARIABLE
        defaults = os.environ.get(variable, "")
        if code == exit_codes.EXIT_USAGE and defaults and variable not in text:
            text += " (%s: '%s')" % (variable, printable(defaults))
        console.last_error(text)
    finally:
        console.finish()
        if owns_process and not console.runs_verb:
            import gc

            # Python ends without another collection, which takes 1.5 ms: a tenth of the
            # time of `info FILE`, help and versions.
            gc.freeze()
    if code:
        sys.exit(code)


# Names kept from 0.16: the steps of its command, for programs that call them


def create_parser() -> ArgumentParser:
    """Return the parser of the command line; the default of each option is a value."""
    from . import defaults
    from ._cli.args import BLOSC_SETTINGS, create_parser, parsers_in

    parser = create_parser()
    of_file = ("chunk_size", "checksum")
    for verb, others in (("compress", of_file), ("append", ())):
        for name in (verb, verb[0]):
            for option in BLOSC_SETTINGS + others:
                value = getattr(defaults, "DEFAULT_" + option.upper())
                parsers_in(parser)[name].set_defaults(**{option: value})
    return parser


def check_files(in_file: str, out_file: str, args: Namespace) -> None:
    """Raise `FileNotFound` if the input is missing, or the output exists without -f."""
    if not os.path.exists(in_file):
        raise FileNotFound("input file '%s' does not exist!" % in_file)
    if os.path.exists(out_file):
        if not args.force:
            raise FileNotFound("output file '%s' exists!" % out_file)
        log.verbose("overwriting existing file: '%s'" % out_file)
    log.verbose("input file is: '%s'" % in_file)
    log.verbose("output file is: '%s'" % out_file)


def process_nthread_arg(args: Namespace) -> None:
    """Raise `UsageError` unless the number of threads is possible."""
    if not 1 <= args.nthreads <= MAX_THREADS:
        raise UsageError("-n must be 1 <= n <= %d" % MAX_THREADS)
    log.verbose("using %d thread%s" % (args.nthreads, "s" * (args.nthreads > 1)))


def process_compression_args(args: Namespace) -> tuple[str, str, BloscArgs]:
    """Return the names of the input and the output, and the settings for Blosc."""
    from ._cli.args import BLOSC_SETTINGS
    from .args import BloscArgs

    settings = BloscArgs(*(getattr(args, name) for name in BLOSC_SETTINGS))
    return args.in_file, args.out_file or args.in_file + EXTENSION, settings


def process_decompression_args(args: Namespace) -> tuple[str, str]:
    """Return the names of the input and the output, or exit with an error."""
    if args.no_check_extension and args.out_file is None:
        log.error("--no-check-extension requires use of <out_file>")
    _check_extension("input", args.in_file, args)
    return args.in_file, args.out_file or args.in_file.removesuffix(EXTENSION)


def process_append_args(args: Namespace) -> tuple[str, str]:
    """Return the names of the file to append to and the new one, or exit."""
    _check_extension("original", args.original_file, args)
    return args.original_file, args.new_file


def _check_extension(role: str, name: str, args: Namespace) -> None:
    if not args.no_check_extension and not name.endswith(EXTENSION):
        log.error("%s file '%s' does not end with '%s'" % (role, name, EXTENSION))


def process_metadata_args(args: Namespace) -> Json:
    """Return the metadata in the file of ``-m``, None without it."""
    from ._cli.target import metadata_of_option

    return metadata_of_option(args)


def log_metadata(metadata: object) -> None:
    """Show metadata with sorted keys."""
    from ._cli.text import log_metadata

    log_metadata(metadata)


def __getattr__(name: str) -> object:
    if name != "BloscPackCustomFormatter":
        return sibling_names(__name__)(name)
    from ._cli.args import HelpFormatter

    return globals().setdefault(
        name, type(name, (HelpFormatter,), {"__module__": __name__})
    )


if __name__ == "__main__":
    main()
