"""The chunks of an array as a regular grid, as Zarr and Dask see arrays.

The chunks of a file are equal spans of the bytes of an array in C order. They form a
regular grid if each is a number of rows, or divides a row evenly.
"""

from __future__ import annotations

import math

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Sequence


def grid_chunk_shape(
    shape: Sequence[int], chunk_items: int, order: str = "C"
) -> tuple[int, ...] | None:
    """Return the shape of a chunk in a regular grid; None if the chunks form none.

    Each chunk has `chunk_items` items, only the last one may have fewer. `order` is
    that of the array, "C" or "F".
    """
    if not shape:
        return ()
    if order == "F":
        found = grid_chunk_shape(shape[::-1], chunk_items)
        return None if found is None else found[::-1]
    for axis in range(len(shape)):
        inner = math.prod(shape[axis + 1 :])
        if not inner or chunk_items % inner:
            continue
        count = min(chunk_items // inner, max(shape[axis], 1))
        full = chunk_items // inner == count
        if axis and (not full or shape[axis] % count):
            return None
        return (*[1] * axis, count, *shape[axis + 1 :])
    return None
