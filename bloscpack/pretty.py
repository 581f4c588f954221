"""Sizes with a suffix for humans, such as ``23.44K``, and back."""

from __future__ import annotations

from ._compat import sibling_names
from .constants import SUFFIXES
from .exceptions import UsageValueError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterable


def pretty_size(size_in_bytes: int) -> str | None:
    """Return a size with the largest suffix that fits; None if it is negative.

    Parameters
    ----------
    size_in_bytes
        The size.

    Examples
    --------
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
    """Return a size with a suffix and, in brackets, in bytes.

    Parameters
    ----------
    size_in_bytes
        The size.

    Examples
    --------
    >>> double_pretty_size(24000)
    '23.44K (24000B)'
    """
    return "%s (%dB)" % (pretty_size(size_in_bytes), size_in_bytes)


def reverse_pretty(readable: str) -> int:
    """Return the number of bytes of a size with a suffix.

    Parameters
    ----------
    readable
        A number and one of the suffixes B, K, M, G, T, which are powers of 1024. KB
        and KiB, for example, mean the same as K.

    Raises
    ------
    UsageError
        The text is no number with a suffix. This is a ``ValueError`` too.

    Examples
    --------
    >>> reverse_pretty('1.5K'), reverse_pretty('1.5KiB')
    (1536, 1536)
    """
    for unit in ("iB", "B"):
        shorter = readable.removesuffix(unit)
        if shorter != readable and shorter[-1:] in SUFFIXES and shorter[-1] != "B":
            readable = shorter
            break
    suffix = readable[-1:]
    if suffix not in SUFFIXES:
        raise UsageValueError(
            "'%s' is not a valid prefix multiplier, use one of: '%s'"
            % (suffix, ", ".join(SUFFIXES))
        )
    try:
        return int(float(readable[:-1]) * SUFFIXES[suffix])
    except (ValueError, OverflowError) as error:
        raise UsageValueError(str(error)) from error


def join_with_eol(items: Iterable[str]) -> str:
    """Return the items joined by commas, with a line feed at the end."""
    return ", ".join(items) + "\n"


# Names kept from 0.16

__getattr__ = sibling_names(__name__)
