"""The codecs that can compress the metadata (docs/format.rst, Metadata)."""

from __future__ import annotations

import zlib

from .exceptions import NoSuchCodec, metadata_damage

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable


class MetaCodec:
    """A codec for metadata.

    Parameters
    ----------
    name
        Name of the codec, such as ``'zlib'``.
    compress
        Function of the data and a level.
    decompress
        Function of the compressed data and a limit, as in `decompress`.
    """

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
        """Return `data` compressed.

        Parameters
        ----------
        data
            The text of the metadata.
        level
            Compression level, 0 to 9.
        """
        return self._compress(data, level)

    def decompress(self, data: bytes, limit: int | None = None) -> bytes:
        """Return `data` decompressed.

        Parameters
        ----------
        data
            The stored text.
        limit
            Maximum size of the result in bytes; None for no maximum. The codec stops
            there, so that a small text cannot exhaust the memory.

        Raises
        ------
        FormatError
            `data` is damaged, or the result is larger than `limit`.
        """
        return self._decompress(data, limit)

    def __repr__(self) -> str:
        return "<MetaCodec %s>" % self.name


def _restore(data: bytes, limit: int | None = None) -> bytes:
    if limit is not None and len(data) > limit:
        raise metadata_damage("the metadata decompress to more than '%d' bytes" % limit)
    return data


def _inflate(data: bytes, limit: int | None = None) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        # One byte more than the limit shows that the text is too large, and avoids 0,
        # which means no limit to zlib.
        plain = decompressor.decompress(data, 0 if limit is None else limit + 1)
    except zlib.error as error:
        raise metadata_damage(
            "the metadata are no valid zlib stream: %s" % error
        ) from error
    plain = _restore(plain, limit)
    if not decompressor.eof or decompressor.unused_data:
        raise metadata_damage(
            "the zlib stream of the metadata does not end where the metadata end"
        )
    return plain


# All codecs; the index of a codec is its number in a metadata header.
CODECS = [
    MetaCodec("None", lambda data, level: data, _restore),
    MetaCodec("zlib", zlib.compress, _inflate),
]
CODECS_AVAIL = [codec.name for codec in CODECS]
CODECS_LOOKUP = {codec.name: codec for codec in CODECS}


def check_valid_codec(codec: str) -> None:
    """Raise `NoSuchCodec`, a `UsageError`, unless a metadata codec has this name."""
    if codec not in CODECS_LOOKUP:
        raise NoSuchCodec("codec '%s' does not exist" % codec)
