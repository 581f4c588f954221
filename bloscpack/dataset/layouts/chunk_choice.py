"""How a new array is cut into chunks and shards.

The user's wishes come first. Otherwise a chunk has about 1 MiB of plain bytes, and a
shard 16 MiB:

* Rows of up to 16 KiB stay whole. An array that is shorter than a chunk gets chunks of
  its own length, or of 64 KiB if it is still shorter: it may grow.
* Two or three axes are cut into about as many parts along the first axis, such as a
  series of times, as along all others together, such as a map.
* With four or more axes, the last two are planes, such as images: a chunk has one
  plane, or a part of it, or some neighbouring planes if they are small. An array that
  is created from a shape is written plane by plane, and each assignment replaces a
  shard: a shard has a single plane, or a single chunk of small ones.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..._format.grid import Grid, Shape, cut
from ..._format.text import item_nbytes
from ...constants import MAX_BUFFERSIZE
from ...exceptions import UsageValueError
from ...log import counted

if TYPE_CHECKING:
    from .base import NewArray

# About the plain size of a chunk, and of a shard, in bytes.
CHUNK_NBYTES = 2**20
FILE_NBYTES = 16 * 2**20
# The plain size in bytes of a chunk of small planes, and the least size of a chunk of a
# short array.
PLANES_NBYTES = 2**18
SHORT_NBYTES = 2**16
# Maximum number of chunks of a shard, unless a user wants more: each takes 24 bytes of
# the tables of a shard, also if it is not there yet.
SLOTS = 256
# The same for short arrays: most of them stay short.
SHORT_SLOTS = 64
# Size in bytes of a row from which the other axes are cut, too, unless a user wants
# other chunks.
ROW_NBYTES = 16 * 2**10
# Number of rows that an array is supposed to get which has none yet.
USUAL_ROWS = 1024
# Number of axes from which the last two are planes.
AXES_OF_PLANES = 4


def new_grid(new: NewArray, row_nbytes: int | None = None, layout: str = "") -> Grid:
    """Return how a new array is cut; raise `UsageError` if that is impossible.

    Parameters
    ----------
    new
        The array, with the chunks and shards that the user wants.
    row_nbytes
        Size of a row in the largest chunks in bytes, if only the first axis can be cut.
    layout
        The name of such a layout.
    """
    inner = tuple(max(1, n) for n in new.shape[1:])
    chunks = _rows_of(new.chunks, new.shape, "chunks")
    shards = _rows_of(new.shards, new.shape, "shards")
    if not new.shape:
        chunks = shards = None
    row = new.row_nbytes if row_nbytes is None else row_nbytes
    most = ROW_NBYTES if chunks is shards is None else MAX_BUFFERSIZE
    if isinstance(chunks, tuple) or isinstance(shards, tuple):
        if row_nbytes is not None:
            given = (("chunks", new.chunks), ("shards", new.shards))
            texts = ["%s=%s" % (name, n) for name, n in given if n is not None]
            raise UsageValueError(
                "the layout '%s' is cut along the first axis only: expected a number "
                "of rows, found %s" % (layout, ", ".join(texts))
            )
    elif new.shape and (row <= most or row_nbytes is not None):
        # An array without items may get some.
        row = row or math.prod(inner) * max(1, item_nbytes(new.dtype))
        rows, slots = _rows_and_slots(chunks, shards, row, new.shape[0])
        return Grid.of_rows(new.shape, rows, slots)
    if new.shape and isinstance(new.shards, tuple):
        shards = new.shards  # no length of it is made another one
    itemsize = max(1, item_nbytes(new.dtype))
    if not isinstance(chunks, tuple):
        first = (chunks or new.shape[0] or USUAL_ROWS,) if new.shape else ()
        wanted = chunks
        chunks = divided((*first, *inner), itemsize, 0 if chunks is None else 1)
        if isinstance(shards, tuple):
            chunks = tuple(map(_divisor, shards, chunks))
            chunks = (wanted or chunks[0], *chunks[1:])
    nbytes = math.prod(chunks) * itemsize
    if nbytes > MAX_BUFFERSIZE:
        raise UsageValueError(
            "a chunk of shape %s has '%d' bytes, and the largest one has '%d'"
            % (chunks, nbytes, MAX_BUFFERSIZE)
        )
    if shards is None:
        most = FILE_NBYTES
        if new.sample is None and len(new.shape) >= AXES_OF_PLANES:
            most = min(most, math.prod(new.shape[-2:]) * itemsize)
        return Grid(new.shape, chunks, _per_shard(new.shape, chunks, most // nbytes))
    if isinstance(shards, int):
        shards = (
            shards,
            *(-(-n // m) * m for n, m in zip(inner, chunks[1:], strict=True)),
        )
    if any(n % m for n, m in zip(shards, chunks, strict=True)):
        raise UsageValueError(
            "a shard must have a multiple of the chunk shape %s, not the shape %s"
            % (chunks, shards)
        )
    per_shard = (n // m for n, m in zip(shards, chunks, strict=True))
    return Grid(new.shape, chunks, tuple(per_shard))


def _rows_of(wanted: int | Shape | None, shape: Shape, name: str) -> int | Shape | None:
    """Return the number of rows if the other axes of a wanted shape are whole."""
    if not isinstance(wanted, tuple):
        return wanted
    if len(wanted) != len(shape) or min(wanted, default=1) < 1:
        raise UsageValueError(
            "%s: expected a positive length for each axis, found %s for %s"
            % (name, wanted, counted(len(shape), "axis"))
        )
    is_rows = wanted[1:] == tuple(max(1, n) for n in shape[1:])
    return next(iter(wanted), None) if is_rows else wanted


def divided(
    shape: Shape, itemsize: int, first: int = 0, nbytes: int = CHUNK_NBYTES
) -> Shape:
    """Return the shape of a chunk of about `nbytes` bytes.

    Axes in front of `first` are not divided. The others get equal sides, apart from
    what the beginning of this module says.
    """
    parts, sides, most = [1] * len(shape), list(shape), nbytes
    has_planes = not first and len(shape) >= AXES_OF_PLANES
    if has_planes:
        plane = math.prod(shape[-2:]) * itemsize
        most = max(PLANES_NBYTES, min(plane, nbytes))
    while math.prod(sides) * itemsize > most and max(sides[first:]) > 1:
        inner = max(sides[1:], default=1)
        if has_planes:
            outer = (i for i, n in enumerate(sides[:-2]) if n > 1)
            axis = next(outer, sides.index(max(sides[-2:]), -2))
        elif not first and sides[0] > 1 and parts[0] <= math.prod(parts[1:]):
            axis = 0
        else:
            axis = 0 if inner == 1 else sides.index(inner, 1)
        parts[axis] *= 2
        sides[axis] = -(-shape[axis] // parts[axis])
    return tuple(sides)


def _per_shard(shape: Shape, chunk: Shape, most: int) -> Shape:
    """Return the number of chunks of a shard along each axis, of at most `most`.

    A shard of planes has whole planes if they fit into it.
    """
    per_shard = [1] * len(chunk)
    while chunk and 2 * math.prod(per_shard) <= min(SLOTS, most):
        counts = cut(shape, tuple(map(int.__mul__, chunk, per_shard)))
        # Any array may get more rows.
        axis = counts.index(max(counts)) if max(counts) > 1 else 0
        if len(chunk) >= AXES_OF_PLANES:
            axis = max((i for i, count in enumerate(counts) if count > 1), default=0)
        per_shard[axis] *= 2
    return tuple(per_shard)


def _rows_and_slots(
    chunks: int | None, shards: int | None, row: int, length: int
) -> tuple[int, int]:
    """Return the number of rows of a chunk, and of chunks of a file.

    `row` is the size of a row in the chunks in bytes, `length` the number of rows.
    """
    most = MAX_BUFFERSIZE // row
    if not most:
        raise UsageValueError(
            "a row has '%d' bytes, more than the largest chunk of '%d' bytes"
            % (row, MAX_BUFFERSIZE)
        )
    if chunks is not None and not 1 <= chunks <= most:
        raise UsageValueError(
            "a chunk must have 1 to %d rows here, not %d" % (most, chunks)
        )
    rows, slots = chunks or max(1, CHUNK_NBYTES // row), SLOTS
    if chunks is None and 0 < length < rows:
        rows, slots = min(rows, max(length, SHORT_NBYTES // row)), SHORT_SLOTS
    if shards is None:
        return rows, min(max(1, FILE_NBYTES // (rows * row)), slots)
    if shards < 1:
        raise UsageValueError("a shard must have at least one row, not %d" % shards)
    if chunks is None:
        rows = _divisor(shards, rows)
    if shards % rows:
        raise UsageValueError(
            "a shard must have a multiple of the %d rows of a chunk, not %d"
            % (rows, shards)
        )
    return rows, shards // rows


def _divisor(number: int, most: int) -> int:
    """Return the largest divisor up to `most`, if it is not much smaller than that."""
    for divisor in range(min(number, most), most // 8, -1):
        if number % divisor == 0:
            return divisor
    return min(number, most)
