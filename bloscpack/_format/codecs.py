"""The codecs and filters of Blosc: everything that this package knows about each.

A new codec of Blosc is a new entry of `CODECS`. Which codecs the installed Blosc has is
known at run time only: `constants.CNAME_AVAIL`.
"""

from __future__ import annotations

from ..constants import MAX_CLEVEL
from ..defaults import DEFAULT_CNAME

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The filters of Blosc, and their names.
NONE, SHUFFLE, BITSHUFFLE = 0, 1, 2
FILTERS = {NONE: "none", SHUFFLE: "shuffle", BITSHUFFLE: "bitshuffle"}
# Speed in bytes per second of the disk that a goal of `--auto` assumes.
GOALS = {"speed": 2e9, "balanced": 1e8, "ratio": 2e6}
DEFAULT_GOAL = "balanced"


class Codec:
    """Facts about a codec.

    Parameters
    ----------
    name
        The name, as in ``cname``.
    number
        The number in the header of a chunk. lz4hc has that of lz4, which decompresses
        its chunks: of two codecs, the first in the table gives such a chunk its name.
    max_ratio
        Maximum number of plain bytes per compressed byte.
    nanoseconds
        Approximate time to compress and decompress a byte of text, for the levels 1 to
        9.
    readers
        Programs that read chunks of the codec, besides Bloscpack: genuine bcolz and
        BLZ, and the readers of Zarr.
    extra
        The extra of the package that decompresses chunks if Blosc lacks the codec.
    levels
        The levels that ``--auto`` tries for a goal.
    levels_for_regular
        The levels that it also tries for very regular data.
    probe
        ``'fast'`` if the codec may compare filters for all goals, ``'slow'`` if it may
        do so for the smallest size.
    long_blocks
        The highest level that finds more in blocks longer than those that Blosc
        chooses; 0 if none does.
    """

    def __init__(
        self,
        name: str,
        number: int,
        max_ratio: int,
        nanoseconds: Sequence[float],
        readers: str,
        *,
        extra: str | None = None,
        levels: Mapping[str, Sequence[int]] | None = None,
        levels_for_regular: Mapping[str, Sequence[int]] | None = None,
        probe: str | None = None,
        long_blocks: int = 0,
    ) -> None:
        self.name = name
        self.number = number
        self.max_ratio = max_ratio
        self.nanoseconds = nanoseconds
        self.readers = readers.split()
        self.extra = extra
        self.levels = levels or {}
        self.levels_for_regular = levels_for_regular or {}
        self.probe = probe
        self.long_blocks = long_blocks


# All codecs, the most promising for most data first.
#
# blosclz and lz4 extend a length by at most 255 per byte, snappy copies 64 bytes with
# three, zlib 258 bytes with two bits, zstd 128 KiB with four bytes.
#
# Levels 1 to 5 and 7 of zstd, 1, 5 and 9 of lz4, 5 and 9 of blosclz, and 5 of zlib and
# lz4hc were measured on programs, CSV files and arrays; the other times are estimates.
CODECS = {
    codec.name: codec
    for codec in (
        Codec(
            "lz4",
            1,
            255,
            (2.9, 2.9, 2.9, 3, 3, 3.2, 3.4, 3.6, 3.8),
            "bcolz zarr",
            levels={"speed": (1, 5, 9), "balanced": (9,)},
            probe="fast",
        ),
        Codec(
            "zstd",
            4,
            2**15,
            (6.3, 8.7, 15, 26, 32, 70, 130, 180, 600),
            "bcolz zarr",
            levels={"speed": (1,), "balanced": (2,), "ratio": (3, 4, 5, 6)},
            levels_for_regular={"balanced": (3,)},
            probe="slow",
            long_blocks=MAX_CLEVEL - 1,
        ),
        Codec(
            "blosclz",
            0,
            255,
            (4.5, 5, 5.5, 6, 6.2, 6.5, 7, 7.2, 7.5),
            "bcolz zarr",
            levels_for_regular={"speed": (9,), "balanced": (9,)},
            probe="fast",
        ),
        Codec(
            "lz4hc",
            1,
            255,
            (15, 18, 22, 25, 28, 35, 45, 60, 80),
            "bcolz zarr",
            levels_for_regular={"ratio": (9,)},
        ),
        Codec("snappy", 2, 22, (3,) * 9, "bcolz", extra="snappy"),
        Codec(
            "zlib",
            3,
            1032,
            (20, 22, 27, 35, 45, 60, 80, 110, 150),
            "bcolz zarr",
            levels_for_regular={"ratio": (6,)},
            probe="slow",
        ),
    )
}
# The codec that reads the chunks with each number.
BY_NUMBER = {codec.number: codec for codec in reversed(CODECS.values())}
# The same as in release 0.16.
CNAME_MAPPING = {number: BY_NUMBER[number].name for number in sorted(BY_NUMBER)}


def codec_named(name: str) -> Codec:
    """Return a codec; the default codec in place of one that is unknown here."""
    return CODECS.get(name, CODECS[DEFAULT_CNAME])


def read_by(program: str) -> tuple[str, ...]:
    """Return the names of the codecs that a program reads."""
    return tuple(sorted(c.name for c in CODECS.values() if program in c.readers))
