"""What the library tells while it works, for ``blpk -v`` and ``blpk -d``.

Silent at the level NORMAL, which only the command changes. `normal`, `verbose`
and `debug` write to standard output, `error` to standard error; empty lines are
dropped and every line starts with the prefix.

A standard stream that fails once is given up: its file descriptor becomes that of the
null device. Otherwise the interpreter would write its buffer once more as it exits, and
exit with code 120. With and without buffering, a failure therefore has the same result.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

NORMAL = "NORMAL"
VERBOSE = "VERBOSE"
DEBUG = "DEBUG"
VERBOSITY_LEVELS = (NORMAL, VERBOSE, DEBUG)
_RANKS = {level: rank for rank, level in enumerate(VERBOSITY_LEVELS)}

LEVEL = NORMAL
OUTPUT_IS_DATA = False
QUIET = False
# Is called, if there is one, with the plain bytes of every chunk that has been done.
PROGRESS: Callable[[int], object] | None = None
PREFIX = "bloscpack.py"
# True where the files that a command writes matter more than its messages: a failure
# of standard output is then kept in LOST, and does not stop the command.
OUTPUT_IS_OPTIONAL = False
# The first failure of standard output. All that is written there later is dropped.
LOST: Exception | None = None
# The prefix of the command, which speaks to a person.
COMMAND = "blpk"


class OutputLost(Exception):
    """Standard output takes nothing, although something has to be shown there."""


def set_level(level: str) -> None:
    """Let through messages up to `level`, one of VERBOSITY_LEVELS."""
    global LEVEL
    if level not in VERBOSITY_LEVELS:
        raise ValueError(
            "Log level must be one of: %s, not %s" % (VERBOSITY_LEVELS, level)
        )
    LEVEL = level


def set_prefix(prefix: str) -> None:
    """Begin every line with `prefix`."""
    global PREFIX
    PREFIX = prefix


def keep_out_of_output() -> None:
    """Say everything on standard error from now on: standard output is for data.

    Messages written so far come before the data. Raises `OutputLost` if standard
    output is closed, and as `flush` does.
    """
    global OUTPUT_IS_DATA
    need_output()
    flush()
    OUTPUT_IS_DATA = True


def make_output_optional(optional: bool) -> None:
    """Keep a failure of standard output from stopping the command, or let it."""
    global OUTPUT_IS_OPTIONAL
    OUTPUT_IS_OPTIONAL = optional


def be_quiet() -> None:
    """Say nothing from now on but errors."""
    global QUIET
    QUIET = True


def enabled(level: str) -> bool:
    """Return whether a message of `level` is let through."""
    return _RANKS[level] <= _RANKS[LEVEL] and not QUIET


def need_output() -> None:
    """Raise if standard output was closed before the program started, or has failed."""
    if LOST is not None:
        raise LOST
    if sys.stdout is None:
        raise OutputLost("standard output is closed")


def lost(error: OSError) -> Exception:
    """Return what to raise when standard output has not taken something."""
    if isinstance(error, BrokenPipeError):
        return error
    return OutputLost("standard output: %s" % error.strerror)


def _give_up(stream: Any) -> None:
    """Connect a stream that has failed to the null device, with what it still holds."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    except OSError:  # it has no file descriptor, or there is no null device
        return


def _call_output(method: str, *args: str) -> None:
    """Call a method of standard output; raises BrokenPipeError or `OutputLost`."""
    global LOST
    try:
        getattr(sys.stdout, method)(*args)
    except OSError as error:
        LOST = lost(error)
        _give_up(sys.stdout)
        raise LOST from error


def put(text: str) -> None:
    """Write text to standard output as it is.

    Raises BrokenPipeError or `OutputLost`, unless standard output is optional.
    """
    global LOST
    try:
        need_output()
        _call_output("write", text)
    except (BrokenPipeError, OutputLost) as error:
        LOST = error
        if not OUTPUT_IS_OPTIONAL:
            raise


def flush() -> None:
    """Write out what has been said so far.

    Raises BrokenPipeError or `OutputLost` if any of it, now or earlier, was lost.
    """
    if LOST is not None:
        raise LOST
    if sys.stdout is not None:
        _call_output("flush")


def _failure() -> Exception | None:
    """Flush; return the exception instead of raising it."""
    try:
        flush()
    except (BrokenPipeError, OutputLost) as error:
        return error
    return None


def _flush_before_message() -> None:
    """Write out what has been said so far, before a message on standard error."""
    failure = _failure()
    if failure is not None and not OUTPUT_IS_OPTIONAL:
        raise failure


def put_error(text: str) -> None:
    """Write text to standard error; where that takes nothing, drop it."""
    if sys.stderr is not None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            _give_up(sys.stderr)


def finish() -> None:
    """Write out both standard streams; drop what they do not take."""
    _failure()
    put_error("")


def printable(text: str) -> str:
    """Return a text, maybe from a file or its name, that can't move the cursor."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )


def _write(stream: object, message: str) -> None:
    if stream is None:
        return  # closed before the program was started
    for line in message.split("\n"):
        if line:
            text = "%s: %s\n" % (PREFIX, printable(line))
            # A file name may hold bytes that the terminal's encoding can't show.
            encoding = getattr(stream, "encoding", None) or "utf-8"
            shown = text.encode(encoding, "backslashreplace").decode(encoding)
            if stream is sys.stdout:
                put(shown)
            else:
                put_error(shown)


def verbose(message: str, level: str = VERBOSE) -> None:
    """Show `message` if messages of `level` are let through."""
    if level not in VERBOSITY_LEVELS:
        raise TypeError(
            "Desired level '%s' is not one of %s" % (level, VERBOSITY_LEVELS)
        )
    if enabled(level):
        _write(sys.stderr if OUTPUT_IS_DATA else sys.stdout, message)


def debug(message: str, *args: object) -> None:
    """Show `message`, formatted with `args` if anyone looks, at the level DEBUG."""
    if enabled(DEBUG):
        verbose(message % args if args else message, level=DEBUG)


def normal(message: str) -> None:
    """Show `message` always."""
    verbose(message, level=NORMAL)


def notice(message: str) -> None:
    """Tell what nobody asked for but has to know.

    The command says it on standard error; elsewhere it is a RuntimeWarning.
    """
    if QUIET:
        return
    if PREFIX == COMMAND:
        _flush_before_message()
        _write(sys.stderr, message)
        return
    import warnings

    warnings.warn(message, RuntimeWarning, stacklevel=2)


def error(message: str, exit_code: int = 1) -> None:
    """Show `message` on standard error and leave the program."""
    _failure()  # the exit code is that of the error all the same
    _write_error(message)
    sys.exit(exit_code)


def report(message: str) -> None:
    """Show `message` on standard error as an error."""
    _flush_before_message()
    _write_error(message)


def _write_error(message: str) -> None:
    for line in message.split("\n"):
        _write(sys.stderr, "error: %s" % line)
