"""The checksums that a file can have (docs/format.rst, Checksums)."""

from __future__ import annotations

import zlib

from .exceptions import NoSuchChecksum

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from hashlib import _Hash

    from ._types import Buffer


class Hash:
    """A checksum: calling it with a buffer returns the digest, as stored in a file.

    Parameters
    ----------
    name
        Name of the checksum, such as ``'adler32'``.
    size
        Size of the digest in bytes.
    function
        Function that returns the digest of a buffer.
    """

    def __init__(
        self, name: str, size: int, function: Callable[[Buffer], bytes]
    ) -> None:
        self.name = name
        self.size = size
        self.function = function

    def __call__(self, data: Buffer) -> bytes:
        return self.function(data)

    def __repr__(self) -> str:
        return "<Hash %s>" % self.name


def zlib_hash(func: Callable[[Buffer], int]) -> tuple[int, Callable[[Buffer], bytes]]:
    """Return digest size in bytes and digest function for a 32-bit checksum of zlib.

    Parameters
    ----------
    func
        ``zlib.adler32`` or ``zlib.crc32``.
    """

    def hash_(data: Buffer) -> bytes:
        return (func(data) & 0xFFFFFFFF).to_bytes(4, "little")

    return 4, hash_


def hashlib_hash(func: Callable[..., _Hash]) -> tuple[int, Callable[[Buffer], bytes]]:
    """Return digest size in bytes and digest function for a hash of hashlib.

    Parameters
    ----------
    func
        Constructor such as ``hashlib.sha256``.
    """

    def hash_(data: Buffer) -> bytes:
        return func(data).digest()

    return func().digest_size, hash_


def _named_hash(name: str, size: int) -> Hash:
    # Import hashlib late: it takes longer than everything that `blpk info` imports.
    def hash_(data: Buffer) -> bytes:
        import hashlib

        return hashlib.new(name, data, usedforsecurity=False).digest()

    return Hash(name, size, hash_)


def _crc32c(data: Buffer) -> bytes:
    from ._format.crc32c import digest  # its tables and packages are rarely needed

    CHECKSUMS_LOOKUP["crc32c"].function = digest  # later calls do not import it
    return digest(data)


# All checksums; the index of a checksum is its number in a file header.
ALL_CHECKSUMS = [
    Hash("None", 0, lambda data: b""),
    Hash("adler32", *zlib_hash(zlib.adler32)),
    Hash("crc32", *zlib_hash(zlib.crc32)),
    _named_hash("md5", 16),
    _named_hash("sha1", 20),
    _named_hash("sha224", 28),
    _named_hash("sha256", 32),
    _named_hash("sha384", 48),
    _named_hash("sha512", 64),
    Hash("crc32c", 4, _crc32c),
]
CHECKSUMS_LOOKUP = {checksum.name: checksum for checksum in ALL_CHECKSUMS}
CHECKSUM_NAMES = list(CHECKSUMS_LOOKUP)


def check_valid_checksum(checksum: str) -> None:
    """Raise `NoSuchChecksum`, a `UsageError`, unless a checksum has this name."""
    if checksum not in CHECKSUMS_LOOKUP:
        raise NoSuchChecksum("checksum '%s' does not exist" % checksum)


# Names kept from 0.16: the checksums that it had

CHECKSUMS = ALL_CHECKSUMS[:9]
CHECKSUMS_AVAIL = CHECKSUM_NAMES[:9]
