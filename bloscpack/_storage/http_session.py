"""The session of aiohttp that makes every request of HTTP.

Strategy: a response that is longer than requested or announced is not read further.
fsspec opens its session with `open_session`, for a URL and for a chain of URLs alike.
A `Session` follows redirects itself: credentials stay with the origin (scheme, host,
port) that they were given for. It refuses encoded responses.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession, StreamReader
    from yarl import URL

# Maximum number of redirects that are followed for one request.
MAX_REDIRECTS = 10
# Maximum number of bytes of a response whose length neither the request nor the server
# states: such a response may have no end.
MAX_UNANNOUNCED = 2**30
# Seconds without a byte from the server after which a request has timed out.
STALL_SECONDS = 30.0
# Seconds for a request as a whole, to which those for the bytes that are sent and
# received are added, at the slowest speed in bytes per second that is accepted.
REQUEST_SECONDS = 120.0
MIN_SPEED = 1000
# Maximum number of bytes of a response that reports an error.
MAX_OF_ERROR = 2**16
# Size in bytes of the blocks in which a response is read into memory.
BLOCK_SIZE = 2**20
REDIRECTS = (301, 302, 303, 307, 308)
# Largest size of a file: offsets are signed numbers of 64 bits.
MAX_SIZE = 2**63 - 1
# The headers and settings that are also used for other origins than the origin of the
# URL. All others may contain credentials.
PUBLIC_HEADERS = {"accept-encoding", "range", "if-match", "user-agent"}
PUBLIC_SETTINGS = {
    *("timeout", "proxy", "proxy_auth", "proxy_headers", "trust_env", "version"),
    *("ssl", "ssl_context", "verify_ssl", "fingerprint", "read_bufsize"),
    *("max_line_size", "max_field_size", "max_headers", "auto_decompress"),
}


class Refused(Exception):
    """The response to a request is not accepted: an error number, and our own text."""


class TooLong(Refused):
    """A response is longer than requested or announced."""


async def open_session(
    get_client: Callable[..., Coroutine[object, object, ClientSession]] | None = None,
    **settings: object,
) -> Session:
    """Return a session for fsspec, with the settings `client_kwargs` of the caller.

    `get_client` is the caller's function that opens a session of aiohttp.
    """
    # The bytes of a file are those that are sent: there is nothing to decompress.
    settings["auto_decompress"] = False
    from fsspec.implementations import http

    return Session(await (get_client or http.get_client)(**settings), settings)


class Session:
    """A session that sends the credentials of the caller only where they belong."""

    def __init__(self, own: ClientSession, settings: Mapping[str, object]) -> None:
        self._own = own
        self._settings = settings
        self._foreign: ClientSession | None = None
        # By this name fsspec closes the connections after the end of its thread.
        self._connector = getattr(own, "connector", None)

    def get(
        self, url: str | URL, bound: int | None = None, **settings: object
    ) -> HttpRequest:
        """Request a file, of which `bound` is the maximum number of bytes, if given."""
        return HttpRequest(self._follow("get", url, bound, settings))

    def head(self, url: str | URL, **settings: object) -> HttpRequest:
        """Request the headers of a file."""
        return HttpRequest(self._follow("head", url, None, settings))

    async def close(self) -> None:
        """Close all connections."""
        if self._foreign is not None:
            await self._foreign.close()
        await self._own.close()

    async def _follow(
        self, method: str, url: str | URL, bound: int | None, settings: dict[str, Any]
    ) -> ClientResponse:
        """Return the response to a request, after its redirects."""
        from yarl import URL

        settings = {**settings, "allow_redirects": False}
        # A response with another encoding has no ranges and no length of the file.
        given = dict(settings.pop("headers", None) or {}).items()
        headers = {name: v for name, v in given if name.lower() != "accept-encoding"}
        headers["Accept-Encoding"] = "identity"
        session, url = self._own, URL(url)
        for _ in range(MAX_REDIRECTS + 1):
            send = getattr(session, method)
            response: ClientResponse = await send(url, headers=headers, **settings)
            location = response.headers.get("Location", "")
            if response.status not in REDIRECTS or not location:
                if method == "get":
                    _refuse_encoding(response)
                    _bound_response(response, headers.get("Range", ""), bound)
                return response
            response.close()
            target = self._target(url, location)
            settings.pop("params", None)  # they belong to the first URL
            if _origin(target) != _origin(url):
                session = self._foreign_session()
                headers = _public(headers, PUBLIC_HEADERS)
                settings = _public(settings, PUBLIC_SETTINGS | {"allow_redirects"})
            elif target.user is None and url.user is not None:
                target = target.with_user(url.user).with_password(url.password)
            url = target
        message = "the server redirects more than %d times" % MAX_REDIRECTS
        raise Refused(errno.ELOOP, message)

    def _target(self, url: URL, location: str) -> URL:
        """Return the URL that a server redirects to."""
        from yarl import URL

        quoted = not self._settings.get("requote_redirect_url", True)
        try:
            target = url.join(URL(location, encoded=quoted))
            valid = target.scheme in ("http", "https") and target.host and target.port
        except ValueError:
            valid = False
        if not valid:
            raise Refused(errno.EIO, "the server redirects to no valid URL of HTTP")
        return target

    def _foreign_session(self) -> ClientSession:
        """Return a session without credentials, over the same connections."""
        if self._foreign is None:
            from aiohttp import ClientSession

            public = _public(self._settings, PUBLIC_SETTINGS)
            if self._connector is not None:
                public.update(connector=self._connector, connector_owner=False)
            self._foreign = ClientSession(**public)
        return self._foreign


class HttpRequest:
    """A request, which can be awaited or be used with ``async with``."""

    def __init__(self, answer: Coroutine[object, None, ClientResponse]) -> None:
        self._answer = answer

    def __await__(self) -> Generator[object, None, ClientResponse]:
        return self._answer.__await__()

    async def __aenter__(self) -> ClientResponse:
        self._response = await self._answer
        return self._response

    async def __aexit__(self, *error: object) -> None:
        self._response.release()


class BoundedContent:
    """The content of a response, of which at most some bytes are read."""

    def __init__(self, content: StreamReader, bound: int) -> None:
        self._content = content
        self._left = bound

    def __getattr__(self, name: str) -> object:
        return getattr(self._content, name)

    async def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, or all; b'' at the end."""
        if size < 0:
            return b"".join([block async for block in self.iter_chunked(BLOCK_SIZE)])
        # One byte too many is enough to see that there are more.
        data: bytes = await self._content.read(min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise TooLong(errno.EFBIG, "the response is longer than it may be")
        return data

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield all bytes in blocks of up to `size` bytes."""
        while block := await self.read(size):
            yield block


def _refuse_encoding(response: ClientResponse) -> None:
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        response.close()
        raise Refused(
            errno.EIO,
            "the server sends an encoded response (Content-Encoding), where the bytes "
            "of the file were requested",
        )


def _bound_response(response: Any, range_: str, bound: int | None) -> None:
    """Limit the length of a response."""
    if response.status not in (200, 206):
        bound = MAX_OF_ERROR
    if bound is None:
        announced = size_in(response.headers.get("Content-Length", ""))
        wanted = _size_of(range_) if response.status == 206 else -1
        bound = next((n for n in (wanted, announced) if n >= 0), MAX_UNANNOUNCED)
    response.content = BoundedContent(response.content, bound)


def _size_of(range_: str) -> int:
    """Return the number of bytes that a header requests; -1 if it does not say it."""
    first, _, last = range_.removeprefix("bytes=").partition("-")
    ends = size_in(first), size_in(last)
    return ends[1] + 1 - ends[0] if min(ends) >= 0 else -1


def size_in(text: str) -> int:
    """Return the number in a header; -1 if it is no size of a file."""
    is_number = text.isascii() and text.isdigit() and len(text) < 20
    return int(text) if is_number and int(text) <= MAX_SIZE else -1


def _origin(url: URL) -> tuple[str, str | None, int | None]:
    return url.scheme, url.host, url.port


def _public(given: Mapping[str, object], names: set[str]) -> dict[str, Any]:
    return {name: given[name] for name in given if name.lower() in names}
