"""The offset table: the file position of every chunk, followed by free entries.

Bytes to numbers and back, no files (docs/format.rst, Offsets).
"""

from __future__ import annotations

import struct

from ..constants import OFFSET_LENGTH
from ..exceptions import DamageError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Value of a free entry, and of every entry in a file whose writer did not finish.
FREE = -1
# Number of entries that are compared at a time: they stay in the cache of the CPU.
AT_A_TIME = 2**14


def encode(offsets: Iterable[int]) -> bytes:
    """Return the bytes of a table with these entries, eight bytes per entry."""
    entries = tuple(offsets)
    return struct.pack("<%dq" % len(entries), *entries)


def decode(table: bytes) -> list[int]:
    """Return the entries in `table`; raises `FormatError` if the last is incomplete."""
    if len(table) % OFFSET_LENGTH:
        raise DamageError(
            "expected an offset table of a multiple of '%d' bytes, found '%d'"
            % (OFFSET_LENGTH, len(table)),
            section="offsets",
        )
    return list(struct.unpack("<%dq" % (len(table) // OFFSET_LENGTH), table))


def free_entries(count: int) -> bytes:
    """Return the bytes of `count` free entries."""
    return b"\xff" * (OFFSET_LENGTH * count)


def is_plausible(table: bytes, first: int, stop: int, smallest: int) -> bool:
    """Return whether a table may be that of chunks between `first` and `stop`.

    The first chunk starts at `first`, and every chunk takes at least `smallest` bytes.
    """
    # Blosc has imported NumPy. It compares a million entries in about a millisecond.
    import numpy

    entries = numpy.frombuffer(table, "<i8")
    if entries[0] != first or entries[-1] > stop - smallest:
        return False
    for i in range(0, len(entries), AT_A_TIME):
        some = entries[i : i + AT_A_TIME + 1]
        if some.min() < first or some.max() > stop:
            return False
        # Differences of valid entries do not overflow.
        if (numpy.diff(some) < smallest).any():
            return False
    return True


def check(offsets: Sequence[int], true_offsets: Sequence[int]) -> None:
    """Raise `FormatError` unless `offsets` has the positions in `true_offsets`."""
    for i, (found, expected) in enumerate(zip(offsets, true_offsets, strict=False)):
        if found != expected:
            raise DamageError(
                "the offset table says that chunk %d starts at byte %d, but it "
                "starts at byte %d" % (i, found, expected),
                section="offsets",
                chunk=i,
            )
