"""Sizes as people write them: ``23.44K``, ``1.0M``."""

from __future__ import annotations

from ._compat import sibling_names
from .constants import SUFFIXES
from .exceptions import UsageError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterable


def pretty_size(size_in_bytes: int) -> str | None:
    """Return the size with the largest suffix that fits; None if it is negative.

    >>> pretty_size(24000)
    '23.44K'
    """
    if size_in_bytes == 0:
        return "0B"
    for suffix, factor in reversed(SUFFIXES.items()):
        if size_in_bytes >= factor:
            return "%s%s" % (round(size_in_bytes / factor, 2), suffix)
    return None


def double_pretty_size(size_in_bytes: int) -> str:
    """Return the size with a suffix and, in brackets, in bytes.

    >>> double_pretty_size(24000)
    '23.44K (24000B)'
    """
    return "%s (%dB)" % (pretty_size(size_in_bytes), size_in_bytes)


def reverse_pretty(readable: str) -> int:
    """Return the bytes of a number with a suffix: one of B K M G T, powers of 1024.

    Raises `UsageError` (a ValueError) for anything else.

    >>> reverse_pretty('1.5K')
    1536
    """
    suffix = readable[-1:]
    if suffix not in SUFFIXES:
        raise UsageError(
            "'%s' is not a valid prefix multiplier, use one of: '%s'"
            % (suffix, ", ".join(SUFFIXES))
        )
    try:
        return int(float(readable[:-1]) * SUFFIXES[suffix])
    except (ValueError, OverflowError) as error:
        raise UsageError(str(error)) from error


def join_with_eol(items: Iterable[str]) -> str:
    """Return the items with commas between them and a line end behind."""
    return ", ".join(items) + "\n"


# Names kept from 0.16

__getattr__ = sibling_names(__name__)
