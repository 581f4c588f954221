"""The checksums, in the order of their numbers on disk (docs/format.rst, Checksums)."""

from __future__ import annotations

import zlib

from .exceptions import NoSuchChecksum

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Hash:
    """A checksum: its name, the bytes of its digest, and the function that yields it.

    Calling it with a buffer returns the digest as it lies on disk.
    """

    def __init__(self, name: str, size: int, function: Callable[[Any], bytes]) -> None:
        self.name = name
        self.size = size
        self._function = function

    def __call__(self, data: Any) -> bytes:
        return self._function(data)

    def __repr__(self) -> str:
        return "<Hash %s>" % self.name


def zlib_hash(func: Callable[[Any], int]) -> tuple[int, Callable[[Any], bytes]]:
    """Return digest size and digest function of a 32-bit checksum of zlib."""

    def hash_(data: Any) -> bytes:
        return (func(data) & 0xFFFFFFFF).to_bytes(4, "little")

    return 4, hash_


def hashlib_hash(func: Callable[..., Any]) -> tuple[int, Callable[[Any], bytes]]:
    """Return digest size and digest function of a hash of hashlib."""

    def hash_(data: Any) -> bytes:
        digest: bytes = func(data).digest()
        return digest

    return int(func().digest_size), hash_


def _named_hash(name: str, size: int) -> Hash:
    # hashlib takes longer to import than the rest of what `blpk info` needs.
    def hash_(data: Any) -> bytes:
        import hashlib

        return hashlib.new(name, data, usedforsecurity=False).digest()

    return Hash(name, size, hash_)


CHECKSUMS = [
    Hash("None", 0, lambda data: b""),
    Hash("adler32", *zlib_hash(zlib.adler32)),
    Hash("crc32", *zlib_hash(zlib.crc32)),
    _named_hash("md5", 16),
    _named_hash("sha1", 20),
    _named_hash("sha224", 28),
    _named_hash("sha256", 32),
    _named_hash("sha384", 48),
    _named_hash("sha512", 64),
]
CHECKSUMS_AVAIL = [checksum.name for checksum in CHECKSUMS]
CHECKSUMS_LOOKUP = {checksum.name: checksum for checksum in CHECKSUMS}


def check_valid_checksum(checksum: str) -> None:
    """Raise `NoSuchChecksum` unless `checksum` is the name of one."""
    if checksum not in CHECKSUMS_LOOKUP:
        raise NoSuchChecksum("checksum '%s' does not exist" % checksum)
