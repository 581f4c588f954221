"""How ``blpk`` ends: its exit codes, and what it says of an error.

0 done; 1 could not (missing, exists, not a Bloscpack file, no space); 2 wrong usage;
3 damaged data found; 130 interrupted, 143 terminated.
"""

from __future__ import annotations

from .exceptions import (
    BloscpackError,
    FormatError,
    FormatVersionMismatch,
    NotReadable,
    UsageError,
)

EXIT_OK = 0
EXIT_COULD_NOT = 1
EXIT_USAGE = 2
EXIT_DAMAGED = 3
EXIT_INTERRUPTED = 130
# Shells add the number of the signal that ended a program.
SIGNAL_BASE = 128


class Refusal(BloscpackError):
    """What `blpk` won't do, with the exit code that says of which kind it is."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def exit_code(error: BaseException) -> int:
    """Return the exit code for an error."""
    if isinstance(error, Refusal):
        return error.exit_code
    if isinstance(error, FormatError) and not isinstance(error, NotReadable):
        return EXIT_DAMAGED
    # What 0.16 called a RuntimeError is refused because of what the file is.
    if isinstance(error, UsageError) and not isinstance(error, RuntimeError):
        return EXIT_USAGE
    return EXIT_COULD_NOT


def message_of(error: BaseException) -> str:
    """Return what is said of an error."""
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
