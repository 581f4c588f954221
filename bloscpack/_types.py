"""Types of annotations: what callers pass, and values of JSON.

This module imports ``typing``, which costs start-up time. So a module that ``blpk info
FILE`` or ``import bloscpack`` loads imports it under ``TYPE_CHECKING`` only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]
# Settings of fsspec for the file system of a URL.
StorageOptions = Mapping[str, Any]
Buffer = bytes | bytearray | memoryview
# A value of JSON, such as metadata or a document, and one that is an object.
Json = Any
JsonObject = dict[str, Json]


class Readable(Protocol):
    """A binary file object that can be read, like a pipe."""

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes; b'' at the end."""
        ...


class Seekable(Readable, Protocol):
    """A binary file object that can be read at any position."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move to a position in bytes and return it."""
        ...

    def tell(self) -> int:
        """Return the position in bytes."""
        ...

    def seekable(self) -> bool:
        """Return whether `seek` works."""
        ...


class Writable(Protocol):
    """A binary file object that can be written, like a pipe."""

    def write(self, data: Buffer, /) -> int | None:
        """Write `data`; return the number of bytes written."""
        ...


class BinaryFile(Seekable, Writable, Protocol):
    """A binary file object that can be read and written, and has a file descriptor."""

    def fileno(self) -> int:
        """Return the file descriptor."""
        ...

    def flush(self) -> None:
        """Write what is buffered."""
        ...

    def truncate(self, size: int | None = None, /) -> int:
        """Cut or extend the file to `size` bytes."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...
