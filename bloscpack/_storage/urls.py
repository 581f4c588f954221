"""URLs in place of file names: how they are told apart, and how they are shown.

Strategy: every function is pure but for `is_url`, which looks for a local file. Nothing
here imports fsspec, so names of local files cost no time. A URL may contain a password
or a signature: a message contains `public_name` of it, never the URL.
"""

from __future__ import annotations

import os

from ..exceptions import UsageError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import TypeGuard

    from .protocols import Path

MARK = "://"
# Separates the URLs of a chain, such as ``zip://a.blp::http://host/all.zip``.
LINK = "::"
# How the URL of a server of HTTP begins; its path has escapes.
OF_HTTP = ("http" + MARK, "https" + MARK)
# What a message shows in place of a query and a fragment.
HIDDEN = "?..."
# Minimum number of characters of a part of a query that is hidden wherever it appears.
# A shorter text may be a word of a message.
LONG = 8


def is_url(name: object) -> TypeGuard[str]:
    """Return whether a name is a URL, or a chain of URLs, and not a local file."""
    if not isinstance(name, str) or MARK not in name:
        return False
    schemes = name.partition(MARK)[0].split(LINK)
    # One letter is a drive of Windows.
    valid = all(len(scheme) > 1 and _is_scheme(scheme) for scheme in schemes)
    return valid and not os.path.lexists(name)


def _is_scheme(text: str) -> bool:
    rest = text.replace("+", "").replace("-", "").replace(".", "").replace("_", "")
    return text[0].isalpha() and rest.isascii() and rest.isalnum()


def schemes_of(url: str) -> list[str]:
    """Return the schemes of the URLs in a chain, in order."""
    return [part.partition(MARK)[0] for part in _parts(url)]


def local_path(path: Path) -> Path:
    """Return the path in a ``file://`` URL; return other names unchanged."""
    if isinstance(path, str) and MARK in path:
        scheme, _, rest = path.partition(MARK)
        if scheme.lower() in ("file", "local") and is_url(path):
            return rest
    return path


def with_lower_schemes(url: str) -> str:
    """Return a URL, or a chain, with schemes in lower case, as fsspec needs them."""
    found = []
    for part in _parts(url):
        scheme, mark, rest = part.partition(MARK)
        # Only a link like ``simplecache`` has no mark.
        found.append(scheme.lower() + mark + rest)
    return LINK.join(found)


def shown_name(name: Path) -> str:
    """Return the name of a file for messages, without the credentials of a URL."""
    text = os.fsdecode(name)
    return public_name(text) if MARK in text else text


def public_name(url: str) -> str:
    """Return a URL without user name, password, query and fragment.

    The query may be a signature or a token, so no part of it is kept.
    """
    return LINK.join(map(_public_part, _parts(url)))


def _parts(url: str) -> list[str]:
    """Return the URLs of a chain; a ``::`` inside of one, as in a query, stays."""
    parts: list[str] = []
    for part in url.split(LINK):
        if parts and MARK in parts[-1] and MARK not in part:
            parts[-1] += LINK + part
        else:
            parts.append(part)
    return parts


def secrets_in(arguments: list[str]) -> dict[str, str]:
    """Return the secrets in the URLs of a command line, and what is shown instead.

    An argument may contain a URL, like ``--output=https://host``. A message may contain
    an argument as a whole or in parts, and with escapes.
    """
    found: dict[str, str] = {}
    for argument in arguments:
        for part in _parts(argument):
            rest = part.partition(MARK)[2]
            shown = _public_part("x" + MARK + rest).partition(MARK)[2]
            if rest != shown:
                found.update({rest: shown, **_secrets_in_part(rest, shown)})
    for secret, shown in list(found.items()):
        # As a message of Python, and as an argument of the shell.
        found[repr(secret)[1:-1]] = found[secret.replace("'", "'\"'\"'")] = shown
    return dict(sorted(found.items(), key=_by_length))


def _by_length(item: tuple[str, str]) -> int:
    return -len(item[0])


def _secrets_in_part(rest: str, shown: str) -> dict[str, str]:
    """Return the secrets in what follows the scheme of a URL."""
    found: dict[str, str] = {}
    user = rest[: rest.rfind("@") + 1]
    if user not in shown:
        found[user] = ""
        if ":" in user:
            found[user.partition(":")[2]] = ""
    for mark in "?#":
        _, mark, more = rest.partition(mark)
        if more:
            found[mark + more] = HIDDEN
        # For messages about a part of the query.
        parts = [more, more.partition("=")[2], *more.replace("&", "=").split("=")]
        found.update({part: "..." for part in parts if len(part) >= LONG})
    return found


def split_chain(url: str) -> tuple[str, str]:
    """Return the first URL of a chain, and the others; they are empty for one URL."""
    first, *others = _parts(with_lower_schemes(url))
    return first, LINK.join(others)


def _public_part(part: str) -> str:
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


def joined_url(url: str, name: str) -> str:
    """Return the URL of a file in the folder at a URL, which may be a chain.

    The name is added to the path of the first URL, in front of a query. Raises
    `UsageError` if fsspec would take a part of the name for another URL of a chain.
    """
    before, path, after = _first_path(url)
    if before.endswith(OF_HTTP):
        from urllib.parse import quote

        name = quote(name)
    elif LINK in name + after[:1]:
        raise UsageError(
            "the name %.200r can't be used at the URL '%s': '%s' separates the URLs "
            "of a chain" % (name, public_name(url), LINK)
        )
    separator = "" if not path or path.endswith("/") else "/"
    return before + path + separator + name + after


def path_of(url: str) -> str:
    """Return the path of the first URL of a chain, for HTTP after the host."""
    return _first_path(url)[1]


def parent_url(url: str) -> tuple[str, str] | None:
    """Return the URL of the folder around a file or folder, and its name there.

    None if the path has only one part.
    """
    before, path, after = _first_path(url)
    outer, _, name = path.rstrip("/").rpartition("/")
    if before.endswith(OF_HTTP):
        from urllib.parse import unquote

        name = unquote(name)
    return (before + outer + after, name) if outer.strip("/") else None


def scheme_of(url: str) -> str:
    """Return the scheme of the first URL of a chain that has a path."""
    return _first_path(url)[0].removesuffix(MARK).rpartition(LINK)[2]


def _first_path(url: str) -> tuple[str, str, str]:
    """Return the path in the first URL of a chain, with the parts around it.

    The schemes become lower case. A URL of HTTP is the last of its chain, and its query
    does not belong to the path.
    """
    start, mark, rest = with_lower_schemes(url).partition(MARK)
    if (start + mark).endswith(OF_HTTP):
        end = min((at for at in map(rest.find, "?#") if at >= 0), default=len(rest))
    else:
        end = len(rest.partition(LINK)[0])
    return start + mark, rest[:end], rest[end:]


def last_part(url: str) -> str:
    """Return the last part of the path of a URL, under which a copy is stored.

    Raises `UsageError` if the path has no last part.
    """
    from urllib.parse import unquote

    parts = _parts(with_lower_schemes(url))
    first = next((part for part in parts if part.partition(MARK)[2]), "")
    scheme, _, path = first.partition(MARK)
    if scheme in ("http", "https"):
        path = unquote(path.partition("#")[0].partition("?")[0].partition("/")[2])
    else:
        path = path.partition(LINK)[0]
    name = path.rpartition("/")[2]
    if name in ("", ".", "..") or "\0" in name or os.sep in name:
        raise UsageError(
            "the path of '%s' has no last part to name the output after: use --output"
            % public_name(url)
        )
    return name


def size_of_input(path: Path) -> int:
    """Return the size of a local file in bytes; 0 for a URL, which is not opened."""
    return 0 if is_url(path) else os.path.getsize(path)


def without_url(name: object, what: str) -> None:
    """Raise `UsageError` if a name is a URL, where `what` needs a local file."""
    if is_url(name):
        raise UsageError(
            "%s needs a local file, and '%s' is a URL" % (what, public_name(name))
        )
