"""Messages of the library.

The library writes nothing at the level NORMAL. `normal`, `verbose` and `debug` write to
standard output, `error` to standard error. Every line begins with the prefix; empty
lines are dropped. While the command ``blpk`` runs, `RECEIVER` takes all messages.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Protocol

    class Receiver(Protocol):
        """Takes the messages of the library while the command runs."""

        def message(self, text: str) -> None:
            """Show a message."""

        def warning(self, text: str) -> None:
            """Warn the user."""


NORMAL = "NORMAL"
VERBOSE = "VERBOSE"
DEBUG = "DEBUG"
VERBOSITY_LEVELS = (NORMAL, VERBOSE, DEBUG)
_RANKS = {level: rank for rank, level in enumerate(VERBOSITY_LEVELS)}

LEVEL = NORMAL
PREFIX = "bloscpack.py"
# None outside the command: messages go to standard output, warnings to `warnings`.
RECEIVER: Receiver | None = None


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


def enabled(level: str) -> bool:
    """Return whether messages of `level` are shown."""
    return _RANKS[level] <= _RANKS[LEVEL]


def counted(count: int, noun: str) -> str:
    """Return a number and a noun in the singular or plural, for a message."""
    nouns = "axes" if noun == "axis" else noun + "s"
    return "%d %s" % (count, noun if count == 1 else nouns)


def printable(text: str) -> str:
    """Return text in which escape sequences replace all unprintable characters.

    Text from a file, or the name of a file, could otherwise move the cursor.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(char: str) -> str:
    """Return the escape sequence of a character, or of a byte that is no text."""
    if "\udc80" <= char <= "\udcff":  # a byte of a file name
        return "\\x%02x" % (ord(char) - 0xDC00)
    return char.encode("unicode_escape").decode()


def encodable(text: str, stream: object) -> str:
    """Return text in which escape sequences replace characters unknown to a stream.

    A file name may contain characters, or bytes, that the encoding of `stream` lacks.
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def lines(message: str, stream: object) -> str:
    """Return the lines of a message as they are written to a stream."""
    return "".join(
        encodable("%s: %s\n" % (PREFIX, printable(line)), stream)
        for line in message.split("\n")
        if line
    )


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
    if not enabled(level):
        return
    if level == VERBOSE:
        message = printable(message)  # a name may contain newlines
    if RECEIVER is not None:
        RECEIVER.message(message)
    elif sys.stdout is not None:
        sys.stdout.write(lines(message, sys.stdout))


def debug(message: str) -> None:
    """Show `message` at the level DEBUG."""
    verbose(message, level=DEBUG)


def normal(message: str) -> None:
    """Show `message` at every level."""
    verbose(message, level=NORMAL)


def notice(message: str) -> None:
    """Warn the user: a RuntimeWarning, unless the command runs."""
    if RECEIVER is not None:
        RECEIVER.warning(message)
        return
    import warnings

    warnings.warn(message, RuntimeWarning, stacklevel=2)


def error(message: str, exit_code: int = 1) -> None:
    """Show `message` as an error on standard error, and exit the program.

    The library calls this nowhere; programs written for 0.16 may.

    Raises
    ------
    SystemExit
        Always, with `exit_code`.
    """
    if sys.stderr is not None:
        for line in message.split("\n"):
            sys.stderr.write(lines("error: " + line, sys.stderr))
    sys.exit(exit_code)
