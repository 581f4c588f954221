"""What any function may do with any bytes: give a result, or raise an error of ours."""

from __future__ import annotations

from bloscpack import exceptions

FormatError = exceptions.FormatError
# From what writes.
Allowed = (FormatError, exceptions.UsageError)


class Broken(AssertionError):
    """A promise that was not kept."""


def outcome(function, *args):
    """Return the result of a reader, or the FormatError that it raises."""
    try:
        return function(*args)
    except FormatError as error:
        check_error(error)
        return error


def check_error(error: FormatError) -> None:
    """Raise `Broken` for an error that says nothing or too much."""
    if not error.message or len(str(error)) > 5000:
        raise Broken("the message has %d characters" % len(error.message))
    if error.section not in ("header", "metadata", "offsets", "chunks", None):
        raise Broken("the section is %r" % error.section)
