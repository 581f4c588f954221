"""The file systems of fsspec: how they are found, and what their errors become.

Strategy: fsspec is imported when the first URL is used. Its file systems raise any
exception, whose text may contain the URL or a key. `Location` turns it into an error
that names the URL without credentials.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from .._engine.contexts import errors_to
from .._engine.threads import in_thread
from .._types import StorageOptions
from ..exceptions import BloscpackError, StorageError, UsageError, install_hint
from .http_session import Refused, open_session
from .paths import public_name
from .urls import schemes_of, with_lower_schemes

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

# Errors of connections, by name: importing the classes would need their packages.
TEMPORARY = {
    "builtins.ConnectionError",
    "aiohttp.client_exceptions.ClientConnectionError",
    "aiohttp.client_exceptions.ClientPayloadError",
    "botocore.exceptions.HTTPClientError",
    "botocore.exceptions.IncompleteReadError",
}
FINAL = {"aiohttp.client_exceptions.ClientSSLError"}
# The error of a URL without a host, and how the texts about a wrong port begin.
INVALID = "aiohttp.client_exceptions.InvalidURL"
INVALID_PORT = ("Invalid URL", "Port out of range")
# Messages for the errors of aiohttp, whose own texts may come from the server. The
# first class of an error in this table counts.
TEXTS = {
    "aiohttp.client_exceptions." + name: text
    for name, text in (
        ("ClientConnectorCertificateError", "the certificate of the server is invalid"),
        ("ClientSSLError", "the server and TLS do not agree"),
        ("ClientConnectorDNSError", "the host has no address"),
        ("ClientConnectorError", "there is no connection to the host"),
        ("ServerDisconnectedError", "the server closed the connection"),
        ("ClientPayloadError", "the response ends too early, or is no valid HTTP"),
        ("ClientResponseError", "the response is no valid HTTP"),
    )
}
# The cause of the error about a response that can't be parsed.
NO_HTTP = "aiohttp.http_exceptions.HttpProcessingError"
# The statuses of responses for a file that does not exist.
NO_FILE = (404, 410)
# Python's error for a parameter that a function does not have.
UNKNOWN_PARAMETER = re.compile(r"unexpected keyword argument '(\w+)'")

NO_BUCKET = "the bucket does not exist"
# How fsspec begins to say that it has no file system for a scheme.
UNKNOWN_SCHEME = "Protocol not known"
# The text about a server that sends whole files only.
NO_RANGES = (
    "the server ignores ranges and sends the whole file, so no part of it can be read "
    "alone; 'blpk decompress', or whole=True in open and open_ndarray, reads all of "
    "it, and simplecache:: in front of its URL all of an archive"
)
# How fsspec begins to say so, when it opens an archive on such a server.
NO_RANGES_OF_FSSPEC = "The HTTP server doesn't appear to support range requests"


class Temporary(Exception):
    """A request failed in a way that may not happen again: it is repeated."""


class IgnoresRanges(StorageError):
    """The server sends whole files, whatever range is requested."""


class NotFound(StorageError, FileNotFoundError):
    """There is no file at a URL."""


class Location:
    """A URL with the settings for it. The errors about it contain no credentials.

    Parameters
    ----------
    url, storage_options
        The URL, and settings of fsspec; both may contain secrets.

    Attributes
    ----------
    name
        The URL without credentials.
    """

    def __init__(self, url: str, storage_options: StorageOptions | None) -> None:
        self.name = public_name(url)
        self.options = dict(storage_options or {})
        self._url = with_lower_schemes(url)

    def find(self) -> tuple[AbstractFileSystem, str]:
        """Return the file system and the path in it that fsspec has for the URL."""
        with self.translating():
            import fsspec.core

            options = self.options
            for number, scheme in enumerate(schemes_of(self._url)):
                add = SETTINGS.get(scheme)
                if add is not None:
                    # Those of the first URL are not in a dictionary for its scheme.
                    own = add(options.get(scheme, {}) if number else options, scheme)
                    options = {**options, scheme: own} if number else own
            find = in_thread(fsspec.core.url_to_fs)
            pair: tuple[object, str] = find(self._url, **options)
            return pair

    def error(
        self, number: int, text: str, kind: type[StorageError] = StorageError
    ) -> StorageError:
        return kind(number, text, self.name)

    def temporary(self, error: BaseException) -> str | None:
        """Return the text about an error that may not happen again, or None."""
        error = _behind(error)
        if isinstance(error, Temporary):
            return str(error)
        kinds = class_names(error)
        if isinstance(error, (FileNotFoundError, PermissionError)):
            return None
        if (
            isinstance(error, TimeoutError)
            or "asyncio.exceptions.TimeoutError" in kinds
        ):
            return "the server did not answer in time"
        if kinds & TEMPORARY and not kinds & FINAL:
            return "the connection failed: %s" % self._text_of(error)
        status = status_of(error)
        return answered(status) if status >= 500 else None

    def _translated(self, error: BaseException) -> BloscpackError:
        """Return the error of a file system as an error of Bloscpack."""
        error = _behind(error)
        if isinstance(error, Refused):
            return self.error(*error.args)
        if isinstance(error, ImportError):
            return self._missing(self._text_of(error))
        if isinstance(error, FileNotFoundError):
            text = os.strerror(errno.ENOENT)
            if has_no_bucket(error):
                text = NO_BUCKET
            return self.error(errno.ENOENT, text, NotFound)
        if isinstance(error, PermissionError):
            return self.error(errno.EACCES, os.strerror(errno.EACCES))
        if str(error).startswith(NO_RANGES_OF_FSSPEC):
            return self.error(errno.ENOTSUP, NO_RANGES, IgnoresRanges)
        if INVALID in class_names(error) or str(error).startswith(INVALID_PORT):
            return UsageError(
                "'%s' is no valid URL: expected a host, perhaps a port, and a path"
                % self.name
            )
        if str(error).startswith(UNKNOWN_SCHEME):
            schemes = ", ".join(schemes_of(self.name))
            text = "fsspec has no file system for such a URL (%s)" % schemes
            return self.error(errno.EPROTONOSUPPORT, text)
        unknown = UNKNOWN_PARAMETER.search(str(error))
        if unknown is not None and unknown[1] in _names(self.options):
            return UsageError(
                "'%s': the file system of fsspec has no setting '%s', which "
                "storage_options has" % (self.name, unknown[1])
            )
        number = getattr(error, "errno", None)
        number = number if isinstance(number, int) else errno.EIO
        return self.error(number, self._text_of(error))

    def _missing(self, text: str) -> UsageError:
        """Return the error for a package that is not installed, from fsspec's text."""
        schemes = {part.rpartition("::")[2] for part in self.name.split("://")[:-1]}
        message = "'%s' is a URL, and a package to use it is missing (%s)" % (
            self.name,
            text,
        )
        extra = "s3" if schemes & {"s3", "s3a"} else "remote"
        # fsspec names the packages of its other file systems itself.
        if extra == "s3" or schemes <= {"http", "https"} or "fsspec" in text:
            message += ": " + install_hint(extra)
        problem = UsageError(message)
        problem.__cause__ = ImportError(text)
        return problem

    def _text_of(self, error: BaseException) -> str:
        """Return the text of an error, or the name of its class if it may be secret.

        A server may repeat in its texts what was sent to it, so none is shown.
        """
        if status := status_of(error):
            return answered(status)
        for kind, text in TEXTS.items():
            if kind in class_names(error):
                return text
        text = " ".join(str(getattr(error, "strerror", None) or error).split())
        secrets = _secrets(self._url, self.options)
        if not text or "://" in text or any(secret in text for secret in secrets):
            return type(error).__name__
        return text[:200]

    def translating(self) -> errors_to:
        """Raise errors of a file system as errors of Bloscpack."""

        def translate(error: Exception) -> None:  # file systems raise any exception
            if not isinstance(error, BloscpackError):
                problem = self._translated(error)
                # The error of the file system could show the URL.
                raise problem from problem.__cause__

        return errors_to(translate)


def answered(status: int) -> str:
    """Return the text about an answer of a server, with the usual phrase."""
    from http.client import responses

    return ("the server answered %d %s" % (status, responses.get(status, ""))).rstrip()


def status_of(error: BaseException) -> int:
    """Return the status of HTTP behind an error of a file system; 0 if there is none.

    It is an attribute, or, with botocore, an item of the response behind the cause.
    """
    if NO_HTTP in class_names(error.__cause__):
        return 0  # aiohttp gives it the status of a request that is not valid
    response = getattr(error.__cause__, "response", None)
    metadata = response.get("ResponseMetadata", {}) if type(response) is dict else {}
    status = metadata.get("HTTPStatusCode", getattr(error, "status", 0))
    return status if isinstance(status, int) and 400 <= status < 600 else 0


def has_no_bucket(error: BaseException) -> bool:
    """Return whether S3 has answered that there is no such bucket."""
    response = getattr(error.__cause__, "response", None)
    answer = response.get("Error", {}) if type(response) is dict else {}
    return answer.get("Code") == "NoSuchBucket"


def _behind(error: BaseException) -> BaseException:
    """Return the error that fsspec has taken for a file that is not there."""
    cause = error.__cause__
    if isinstance(error, FileNotFoundError) and cause is not None:
        is_http = type(cause).__module__.startswith("aiohttp.")
        if isinstance(cause, Refused) or (is_http and status_of(cause) not in NO_FILE):
            return cause
    return error


def is_s3(fs: object) -> bool:
    """Return whether a file system is that of s3fs."""
    return "s3fs.core.S3FileSystem" in class_names(fs)


def _secrets(url: str, options: StorageOptions) -> set[str]:
    """Return the parts of a URL and of settings that no message may contain."""
    secrets = set(_texts(options))
    for part in url.replace("&", "?").replace("#", "?").split("?")[1:]:
        secrets.add(part.partition("=")[2] or part)
    for part in url.split("://")[1:]:
        user, at, _ = part.rpartition("@")
        secrets.update(user.split(":") if at else ())
    return {text for text in secrets if len(text) > 2}


def class_names(value: object) -> set[str]:
    """Return the names of a class and its bases; importing them may need a package."""
    return {"%s.%s" % (kind.__module__, kind.__name__) for kind in type(value).__mro__}


def _names(value: object) -> Iterator[object]:
    """Yield the names in settings, and in settings inside of them."""
    if hasattr(value, "items"):
        for name, inner in value.items():
            yield name
            yield from _names(inner)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner)
    elif hasattr(value, "values"):
        for inner in value.values():
            yield from _texts(inner)


def _with_session(options: dict[str, Any], scheme: str) -> dict[str, object]:
    """Return settings of HTTP with our session, around the one of the caller."""
    given = options.get("get_client") or options.get(scheme, {}).get("get_client")
    opens = partial(open_session, given) if given else open_session
    return {**options, "get_client": opens}


def _with_settings_for_s3(options: dict[str, Any], scheme: str) -> dict[str, object]:
    """Return settings of s3fs with those for the client that the caller does not give.

    botocore must not check the digest of a whole object: some servers send it with a
    part of the object, and every read would fail.
    """
    import fsspec.config

    try:
        from botocore.config import Config
    except ImportError:
        return options  # fsspec raises the error about the missing package
    name = "config_kwargs"
    given = options.get(name, fsspec.config.conf.get("s3", {}).get(name)) or {}
    own: dict[str, object] = {}
    if "response_checksum_validation" in Config.OPTION_DEFAULTS:
        own["response_checksum_validation"] = "when_required"
    return {**options, name: {**own, **given}}


# What adds our settings to those for a URL of a scheme.
SETTINGS = {
    "http": _with_session,
    "https": _with_session,
    "s3": _with_settings_for_s3,
    "s3a": _with_settings_for_s3,
}
