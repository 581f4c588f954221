"""Names of files: how a path is told from a URL, and what messages show of a name.

Strategy: every function is pure but for `is_url`, which looks for a local file. A URL
may contain a password or a signature: a message contains `public_name` of it, never the
URL.
"""

from __future__ import annotations

import errno
import os

from ..exceptions import UsageError, UsageTypeError, UsageValueError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeGuard

    from .._types import Path

MARK = "://"
# Separates the URLs of a chain, such as ``zip://a.blp::http://host/all.zip``.
LINK = "::"
# Removes the marks that a scheme may contain behind its first letter.
WITHOUT_MARKS = str.maketrans("", "", "+-._")
# What a message shows in place of a query and a fragment.
HIDDEN = "?..."
# Errors for a name that does not exist. No file has a name that is too long.
NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)


def taken_error(path: str) -> FileExistsError:
    """Return the error for a name under which something new can't be written."""
    text = os.strerror(errno.EEXIST) + "; mode='w' or force=True replaces it"
    return FileExistsError(errno.EEXIST, text, path)


def is_url(name: object) -> TypeGuard[str]:
    """Return whether a name is a URL, or a chain of URLs, and not a local file."""
    if not isinstance(name, str) or MARK not in name:
        return False
    for scheme in name.partition(MARK)[0].split(LINK):
        rest = scheme.translate(WITHOUT_MARKS)
        # One letter is a drive of Windows.
        if len(scheme) < 2 or not scheme[0].isalpha():
            return False
        if not (rest.isascii() and rest.isalnum()):
            return False
    return not os.path.lexists(name)


def local_path(path: Path) -> Path:
    """Return the path in a ``file://`` URL; return other names unchanged.

    Raises `UsageTypeError` for what is no name.
    """
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise UsageTypeError("expected a path or a URL, found %r" % type(path).__name__)
    if isinstance(path, str) and MARK in path:
        scheme, _, rest = path.partition(MARK)
        if scheme.lower() in ("file", "local") and is_url(path):
            return rest
    return path


def shown_name(name: Path) -> str:
    """Return the name of a file for messages, without the credentials of a URL."""
    text = os.fsdecode(name)
    return public_name(text) if MARK in text else text


def public_name(url: str) -> str:
    """Return a URL without user name, password, query and fragment.

    The query may be a signature or a token, so no part of it is kept.
    """
    return LINK.join(map(public_part, parts_of(url)))


def parts_of(url: str) -> list[str]:
    """Return the URLs of a chain; a ``::`` inside of one, as in a query, stays."""
    parts: list[str] = []
    for part in url.split(LINK):
        if parts and MARK in parts[-1] and MARK not in part:
            parts[-1] += LINK + part
        else:
            parts.append(part)
    return parts


def public_part(part: str) -> str:
    """Return one URL of a chain without its credentials."""
    scheme, mark, rest = part.partition(MARK)
    if not mark:
        return part
    hidden = min((at for at in map(rest.find, "?#") if at >= 0), default=len(rest))
    rest, more = rest[:hidden], rest[hidden:]
    host, slash, path = rest.partition("/")
    if "@" in more and _is_cut_password(host if slash else rest):
        return scheme + mark + HIDDEN
    if "@" in host:
        host = host.rpartition("@")[2]
    elif "@" in path and _is_cut_password(host):
        host, slash, path = path.rpartition("@")[2].partition("/")
    return scheme + mark + host + slash + path + (HIDDEN if more else "")


def _is_cut_password(host: str) -> bool:
    """Return whether a host is the start of ``user:password`` with a ``/`` in it."""
    _, colon, port = host.rpartition(":")
    return bool(colon) and not port.isdigit() and not host.endswith("]")


def size_of_input(path: Path) -> int:
    """Return the size of a local file in bytes; 0 for a URL, which is not opened."""
    return 0 if is_url(path) else os.path.getsize(path)


def without_url(name: object, what: str) -> None:
    """Raise `UsageError` if a name is a URL, where `what` needs a local file."""
    if is_url(name):
        raise UsageError(
            "%s needs a local file, and '%s' is a URL" % (what, public_name(name))
        )


def check_is_path(file: object, call: str, *, or_object: bool = False) -> None:
    """Raise `UsageTypeError` unless a caller gave a path, perhaps a file object.

    `call` shows the order of the arguments.
    """
    if isinstance(file, (str, bytes, os.PathLike)):
        return
    if not (or_object and hasattr(file, "write")):
        other = ", a URL or a file object to save in" if or_object else " or a URL"
        raise UsageTypeError(
            "expected a path%s, found %r: the order is %s"
            % (other, type(file).__name__, call)
        )


def check_ending(file: object, made: str, end: str, calls: Mapping[str, str]) -> None:
    """Raise `UsageValueError` if a new file has a name that another format has.

    The message begins with `made`; `end` is the usual end of a name. `calls` has the
    call that writes a format, by the end of the names of its files.
    """
    if not isinstance(file, (str, bytes, os.PathLike)):
        return
    path = os.fsdecode(file)
    path = shown_name(path.partition("?")[0] if is_url(path) else path)
    stem, ending = os.path.splitext(path.rstrip("/"))
    if ending.lower() in calls:
        raise UsageValueError(
            "%s: name it '%s', not '%s'; %s writes the format of that name"
            % (made, stem + end, path, calls[ending.lower()])
        )


# Names inside of a dataset


def is_missing(error: OSError) -> bool:
    """Return whether an error says that there is no file or folder of a name."""
    return error.errno in NOT_THERE
