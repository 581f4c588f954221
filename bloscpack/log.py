"""Messages of the library and of the command.

The library writes nothing at the level NORMAL; only ``blpk -v`` and ``blpk -d`` change
the level. `normal`, `verbose` and `debug` write to standard output, `error` and
`report` to standard error. Every line begins with the prefix; empty lines are dropped.

A standard stream that fails once is not used again: its file descriptor is connected to
the null device. Otherwise the interpreter would write its buffer again at exit, and end
with exit code 120. A failure therefore has the same result with and without buffering.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

NORMAL = "NORMAL"
VERBOSE = "VERBOSE"
DEBUG = "DEBUG"
VERBOSITY_LEVELS = (NORMAL, VERBOSE, DEBUG)
_RANKS = {level: rank for rank, level in enumerate(VERBOSITY_LEVELS)}

LEVEL = NORMAL
# True while standard output carries data: messages then go to standard error.
OUTPUT_IS_DATA = False
# True while only errors are shown.
QUIET = False
PREFIX = "bloscpack.py"
# True while a verb runs whose files matter more than its messages: a failure of
# standard output is then kept in LOST, and does not stop the verb.
OUTPUT_IS_OPTIONAL = False
# The first failure of standard output. Later output is dropped.
LOST: Exception | None = None
# True if the command is all that this process does: its streams are ours to close.
OWNS_STREAMS = False
# Called before each line of output: erases the progress bar. None without a bar.
ERASE: Callable[[], None] | None = None
# What the messages of the command show in place of secrets in its arguments. The
# longest texts come first.
HIDDEN: dict[str, str] = {}
# The prefix of the command. With it, warnings go to standard error.
COMMAND = "blpk"


class OutputLost(Exception):
    """Standard output has failed or is closed, and the output was needed."""


def set_level(level: str) -> None:
    """Show messages up to a level.

    Parameters
    ----------
    level
        One of `VERBOSITY_LEVELS`.

    Raises
    ------
    ValueError
        For any other level.
    """
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


def begin_command(owns_streams: bool) -> None:
    """Start a command: forget what an earlier one in this process has set.

    Parameters
    ----------
    owns_streams
        Whether a failed standard stream may be connected to the null device, because
        nothing else in this process writes to it.
    """
    global LEVEL, LOST, OUTPUT_IS_DATA, OUTPUT_IS_OPTIONAL, OWNS_STREAMS, PREFIX, QUIET
    global HIDDEN
    LEVEL, PREFIX, LOST, HIDDEN = NORMAL, COMMAND, None, {}
    QUIET = OUTPUT_IS_DATA = OUTPUT_IS_OPTIONAL = False
    OWNS_STREAMS = owns_streams


def keep_out_of_output() -> None:
    """Write all messages to standard error from now on: standard output carries data.

    Earlier messages are flushed, so that they precede the data.

    Raises
    ------
    BrokenPipeError, OutputLost
        If standard output has failed.
    """
    global OUTPUT_IS_DATA
    flush()
    OUTPUT_IS_DATA = True


def make_output_optional(optional: bool) -> None:
    """Set whether work continues after standard output has failed."""
    global OUTPUT_IS_OPTIONAL
    OUTPUT_IS_OPTIONAL = optional


def be_quiet() -> None:
    """Show only errors from now on."""
    global QUIET
    QUIET = True


def before_message(erase: Callable[[], None] | None) -> None:
    """Call `erase` before each line of output from now on; None ends this."""
    global ERASE
    ERASE = erase


def enabled(level: str) -> bool:
    """Return whether messages of `level` are shown."""
    return _RANKS[level] <= _RANKS[LEVEL] and not QUIET


def need_output() -> None:
    """Raise if standard output was closed before the program started, or has failed."""
    if LOST is not None:
        raise LOST
    if sys.stdout is None:
        raise OutputLost("standard output is closed")


def lost(error: OSError) -> Exception:
    """Return the exception to raise after a write to standard output has failed."""
    if isinstance(error, BrokenPipeError):
        return error
    return OutputLost("standard output: %s" % error.strerror)


def _give_up(stream: TextIO) -> None:
    """Connect a failed stream to the null device, which takes its buffered text."""
    if not OWNS_STREAMS:
        return
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    except OSError:  # the stream has no file descriptor, or there is no null device
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
    """Write text to standard output, unchanged.

    Raises
    ------
    BrokenPipeError, OutputLost
        If standard output has failed, unless it is optional.
    """
    global LOST
    if ERASE is not None:
        ERASE()
    try:
        need_output()
        _call_output("write", text)
    except (BrokenPipeError, OutputLost) as error:
        LOST = error
        if not OUTPUT_IS_OPTIONAL:
            raise


def flush() -> None:
    """Flush standard output.

    Raises
    ------
    BrokenPipeError, OutputLost
        If any output, now or earlier, was lost.
    """
    if LOST is not None:
        raise LOST
    if sys.stdout is not None:
        _call_output("flush")


def _failure() -> Exception | None:
    """Flush standard output; return the exception instead of raising it."""
    try:
        flush()
    except (BrokenPipeError, OutputLost) as error:
        return error
    return None


def _flush_before_message() -> None:
    """Flush standard output, so that its messages precede one on standard error."""
    failure = _failure()
    if failure is not None and not OUTPUT_IS_OPTIONAL:
        raise failure


def put_error(text: str) -> None:
    """Write text to standard error. If that fails, the text is dropped."""
    if ERASE is not None:
        ERASE()
    draw(text)


def draw(text: str) -> None:
    """Write text to standard error as `put_error` does, beside the progress bar."""
    if sys.stderr is not None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            _give_up(sys.stderr)


def finish() -> None:
    """Flush both standard streams; failures are dropped."""
    _failure()
    put_error("")


def printable(text: str) -> str:
    """Return text in which escape sequences replace all unprintable characters.

    Text from a file, or the name of a file, could otherwise move the cursor.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )


def encodable(text: str, stream: object) -> str:
    """Return text in which escape sequences replace characters unknown to a stream.

    A file name may contain characters, or bytes, that the encoding of `stream` lacks.
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def hide(text: str) -> str:
    """Return text without the secrets of `HIDDEN`."""
    for secret, shown in HIDDEN.items():
        text = text.replace(secret, shown)
    return text


def _write(stream: TextIO | None, message: str) -> None:
    if stream is None:
        return  # closed before the program started
    for line in hide(message).split("\n"):
        if line:
            text = encodable("%s: %s\n" % (PREFIX, printable(line)), stream)
            if stream is sys.stdout:
                put(text)
            else:
                put_error(text)


def verbose(message: str, level: str = VERBOSE) -> None:
    """Show `message` if messages of `level` are shown.

    Raises
    ------
    TypeError
        If `level` is not one of `VERBOSITY_LEVELS`.
    """
    if level not in VERBOSITY_LEVELS:
        raise TypeError(
            "Desired level '%s' is not one of %s" % (level, VERBOSITY_LEVELS)
        )
    if enabled(level):
        if level == VERBOSE:
            message = printable(message)  # a name may contain newlines
        _write(sys.stderr if OUTPUT_IS_DATA else sys.stdout, message)


def debug(message: str, *args: object) -> None:
    """Show ``message % args`` at the level DEBUG; at other levels do not format it."""
    if enabled(DEBUG):
        verbose(message % args if args else message, level=DEBUG)


def normal(message: str) -> None:
    """Show `message` at every level."""
    verbose(message, level=NORMAL)


def notice(message: str) -> None:
    """Warn the user.

    The command writes the message to standard error. In other programs it is a
    RuntimeWarning.
    """
    if QUIET:
        return
    if PREFIX == COMMAND:
        _flush_before_message()
        _write(sys.stderr, printable(message))
        return
    import warnings

    warnings.warn(message, RuntimeWarning, stacklevel=2)


def error(message: str, exit_code: int = 1) -> None:
    """Show `message` as an error on standard error, and exit the program.

    Raises
    ------
    SystemExit
        Always, with `exit_code`.
    """
    _failure()  # a failure of standard output does not change the exit code
    _write_error(message)
    sys.exit(exit_code)


def report(message: str) -> None:
    """Show `message` as an error on standard error."""
    _flush_before_message()
    _write_error(message)


def _write_error(message: str) -> None:
    for line in message.split("\n"):
        _write(sys.stderr, "error: %s" % line)
