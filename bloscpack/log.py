"""What the library tells while it works, for ``blpk -v`` and ``blpk -d``.

Silent at the level NORMAL, which only the command changes. `normal`, `verbose`
and `debug` write to standard output, `error` to standard error; empty lines are
dropped and every line starts with the prefix.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable

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

    Raises `OutputLost` if it is closed.
    """
    global OUTPUT_IS_DATA
    need_output()
    OUTPUT_IS_DATA = True


def be_quiet() -> None:
    """Say nothing from now on but errors."""
    global QUIET
    QUIET = True


def enabled(level: str) -> bool:
    """Return whether a message of `level` is let through."""
    return _RANKS[level] <= _RANKS[LEVEL] and not QUIET


def need_output() -> None:
    """Raise `OutputLost` if standard output was closed before the program started."""
    if sys.stdout is None:
        raise OutputLost("standard output is closed")


def lost(error: OSError) -> Exception:
    """Return what to raise when standard output has not taken something."""
    if isinstance(error, BrokenPipeError):
        return error
    return OutputLost("standard output: %s" % error.strerror)


def put(text: str) -> None:
    """Write text to standard output as it is; raises `OutputLost`."""
    need_output()
    try:
        sys.stdout.write(text)
    except OSError as error:
        raise lost(error) from error


def flush() -> None:
    """Write out what has been said so far; raises `OutputLost`."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError as error:
        raise lost(error) from error


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
                continue
            # What comes of the files must not depend on who hears of it.
            try:
                stream.write(shown)  # type: ignore[attr-defined]
            except OSError:
                return


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
        flush()
        _write(sys.stderr, message)
        return
    import warnings

    warnings.warn(message, RuntimeWarning, stacklevel=2)


def error(message: str, exit_code: int = 1) -> None:
    """Show `message` on standard error and leave the program."""
    report(message)
    sys.exit(exit_code)


def report(message: str) -> None:
    """Show `message` on standard error as an error."""
    flush()
    for line in message.split("\n"):
        _write(sys.stderr, "error: %s" % line)
