"""The chunks of an array as blocks of a regular grid, as Zarr and Dask see arrays.

The chunks of a file are equal spans of the bytes of an array, in C or Fortran order.
They form a regular grid if each is a number of rows, or divides a row evenly.
"""

from __future__ import annotations

import math

# Maximum number of chunks in a block of `block_shape`.
MAX_CHUNKS_IN_BLOCK = 8


def block_shape(
    shape: tuple[int, ...], itemsize: int, chunk_size: int, order: str = "C"
) -> tuple[int, ...]:
    """Return the shape of blocks of an array that agree with chunks of `chunk_size`.

    A chunk of whole rows, or of an exact part of a row, is one block. Otherwise, a
    block has the smallest number of rows that fills whole chunks, if at most
    `MAX_CHUNKS_IN_BLOCK` chunks do, or else the rows of about one chunk. `order` is
    that of the array, "C" or "F".
    """
    if order == "F":
        return block_shape(shape[::-1], itemsize, chunk_size)[::-1]
    block = list(shape)
    for axis in range(len(shape)):
        row = math.prod(shape[axis + 1 :]) * itemsize
        if row and chunk_size >= row:
            block[axis] = _rows_of_block(row, chunk_size)
            break
        block[axis] = 1
    return tuple(max(1, min(*pair)) for pair in zip(block, shape, strict=True))


def _rows_of_block(row: int, chunk_size: int) -> int:
    common = math.lcm(row, chunk_size)
    if common <= MAX_CHUNKS_IN_BLOCK * chunk_size:
        return common // row
    return chunk_size // row


def grid_chunk_shape(
    shape: tuple[int, ...], chunk_items: int, order: str = "C"
) -> tuple[int, ...] | None:
    """Return the shape of a chunk in a regular grid; None if the chunks form none.

    Each chunk has `chunk_items` items, only the last one may have fewer.
    """
    block = block_shape(shape, 1, chunk_items, order)
    axes = list(zip(shape, block, strict=True))
    fastest = axes[:-1] if order == "F" else axes[1:]
    is_chunk = math.prod(block) == min(chunk_items, math.prod(shape))
    return block if is_chunk and not any(n % size for n, size in fastest) else None
