"""The codecs of the metadata section, in the order of their numbers on disk."""

from __future__ import annotations

import zlib

from .exceptions import FormatError, NoSuchCodec

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable


class MetaCodec:
    """A codec for metadata: its name and its two functions."""

    def __init__(
        self,
        name: str,
        compress: Callable[[bytes, int], bytes],
        decompress: Callable[..., bytes],
    ) -> None:
        self.name = name
        self._compress = compress
        self._decompress = decompress

    def compress(self, data: bytes, level: int) -> bytes:
        """Return `data` compressed with `level` from 0 to 9."""
        return self._compress(data, level)

    def decompress(self, data: bytes, limit: int | None = None) -> bytes:
        """Return `data` decompressed.

        Raises `FormatError` if the codec can't read it, or if it would yield
        more than `limit` bytes; no more than that are ever produced.
        """
        return self._decompress(data, limit)

    def __repr__(self) -> str:
        return "<MetaCodec %s>" % self.name


def _store(data: bytes, level: int) -> bytes:
    return data


def _check_limit(nbytes: int, limit: int | None) -> None:
    if limit is not None and nbytes > limit:
        raise FormatError(
            "the metadata decompress to more than '%d' bytes" % limit,
            section="metadata",
        )


def _restore(data: bytes, limit: int | None = None) -> bytes:
    _check_limit(len(data), limit)
    return data


def _inflate(data: bytes, limit: int | None = None) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        # max_length 0 means no limit to zlib, hence always one byte of room.
        plain = decompressor.decompress(data, 0 if limit is None else limit + 1)
    except zlib.error as error:
        raise FormatError(
            "the metadata are no valid zlib stream: %s" % error, section="metadata"
        ) from error
    _check_limit(len(plain), limit)
    if not decompressor.eof or decompressor.unused_data:
        raise FormatError(
            "the zlib stream of the metadata does not end where the metadata end",
            section="metadata",
        )
    return plain


CODECS = [
    MetaCodec("None", _store, _restore),
    MetaCodec("zlib", zlib.compress, _inflate),
]
CODECS_AVAIL = [codec.name for codec in CODECS]
CODECS_LOOKUP = {codec.name: codec for codec in CODECS}


def check_valid_codec(codec: str) -> None:
    """Raise `NoSuchCodec` unless `codec` is the name of one."""
    if codec not in CODECS_LOOKUP:
        raise NoSuchCodec("codec '%s' does not exist" % codec)
