"""Choose how many rows a chunk has, and how many chunks a file of chunks has."""

from __future__ import annotations

from ...constants import MAX_BUFFERSIZE
from ...exceptions import UsageValueError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from .base import NewArray

# About the plain size of a chunk, and of a file, in bytes.
CHUNK_NBYTES = 2**20
FILE_NBYTES = 16 * 2**20
# Maximum number of chunks of a file, unless a user wants more: each takes 24 bytes of
# the tables of a file, also if it is not there yet.
SLOTS = 256


def rows_and_slots(new: NewArray, row_nbytes: int) -> tuple[int, int]:
    """Return the number of rows of a chunk, and of chunks of a file.

    Parameters
    ----------
    new
        The array; `UsageError` is raised for impossible numbers of rows in it.
    row_nbytes
        Size of a row in the chunks in bytes; the largest one if chunks differ.
    """
    row = max(1, row_nbytes)
    most = MAX_BUFFERSIZE // row
    if not most:
        raise UsageValueError(
            "a row has '%d' bytes, more than the largest chunk of '%d' bytes"
            % (row, MAX_BUFFERSIZE)
        )
    if new.chunks is not None and not 1 <= new.chunks <= most:
        raise UsageValueError(
            "a chunk must have 1 to %d rows here, not %d" % (most, new.chunks)
        )
    rows = new.chunks or max(1, CHUNK_NBYTES // row)
    if new.shards is None:
        return rows, min(max(1, FILE_NBYTES // (rows * row)), SLOTS)
    if new.shards < 1:
        raise UsageValueError("a shard must have at least one row, not %d" % new.shards)
    if new.chunks is None:
        rows = _divisor(new.shards, rows)
    if new.shards % rows:
        raise UsageValueError(
            "a shard must have a multiple of the %d rows of a chunk, not %d"
            % (rows, new.shards)
        )
    return rows, new.shards // rows


def _divisor(number: int, most: int) -> int:
    """Return the largest divisor up to `most`, if it is not much smaller than that."""
    for divisor in range(min(number, most), most // 8, -1):
        if number % divisor == 0:
            return divisor
    return min(number, most)
