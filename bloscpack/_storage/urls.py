"""The parts of URLs and of chains of URLs, as fsspec takes them.

Strategy: every function is pure, and nothing here imports fsspec.
"""

from __future__ import annotations

import os

from ..exceptions import UsageError
from .paths import HIDDEN, LINK, MARK, parts_of, public_name, public_part

# How the URL of a server of HTTP begins; its path has escapes.
OF_HTTP = ("http" + MARK, "https" + MARK)
# Minimum number of characters of a part of a query that is hidden wherever it appears.
# A shorter text may be a word of a message.
LONG = 8


def schemes_of(url: str) -> list[str]:
    """Return the schemes of the URLs in a chain, in order."""
    return [part.partition(MARK)[0] for part in parts_of(url)]


def with_lower_schemes(url: str) -> str:
    """Return a URL, or a chain, with schemes in lower case, as fsspec needs them."""
    links = []
    for part in parts_of(url):
        scheme, mark, rest = part.partition(MARK)
        # Only a link like ``simplecache`` has no mark.
        links.append(scheme.lower() + mark + rest)
    return LINK.join(links)


def secrets_in(arguments: list[str]) -> dict[str, str]:
    """Return the secrets in the URLs of a command line, and what is shown instead.

    An argument may contain a URL, like ``--output=https://host``. A message may contain
    an argument as a whole or in parts, and with escapes.
    """
    secrets: dict[str, str] = {}
    for argument in arguments:
        for part in parts_of(argument):
            rest = part.partition(MARK)[2]
            shown = public_part("x" + MARK + rest).partition(MARK)[2]
            if rest != shown:
                secrets.update({rest: shown, **_secrets_in_part(rest, shown)})
    for secret, shown in list(secrets.items()):
        # As a message of Python, and as an argument of the shell.
        secrets[repr(secret)[1:-1]] = secrets[secret.replace("'", "'\"'\"'")] = shown
    return dict(sorted(secrets.items(), key=lambda item: -len(item[0])))


def _secrets_in_part(rest: str, shown: str) -> dict[str, str]:
    """Return the secrets in what follows the scheme of a URL."""
    secrets: dict[str, str] = {}
    user = rest[: rest.rfind("@") + 1]
    if user not in shown:
        secrets[user] = ""
        if ":" in user:
            secrets[user.partition(":")[2]] = ""
    for mark in "?#":
        _, mark, more = rest.partition(mark)
        if more:
            secrets[mark + more] = HIDDEN
        # For messages about a part of the query.
        parts = [more, more.partition("=")[2], *more.replace("&", "=").split("=")]
        secrets.update({part: "..." for part in parts if len(part) >= LONG})
    return secrets


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

    before, path, _ = _first_path(url)
    if before.endswith(OF_HTTP):
        path = unquote(path.partition("/")[2])
    name = path.rpartition("/")[2]
    if name in ("", ".", "..") or "\0" in name or os.sep in name:
        raise UsageError(
            "the path of '%s' has no last part to name the output after: use --output"
            % public_name(url)
        )
    return name
