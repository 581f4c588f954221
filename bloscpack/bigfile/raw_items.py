"""A file of raw items as a table that is read in pieces."""

from __future__ import annotations

import numpy

from ..exceptions import StorageError, UsageValueError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import BinaryIO

    from .dtypes import Array, DType


class RawItems:
    """Rows of a file object that can seek, for `File.create_from_array`.

    Parameters
    ----------
    file
        Its position is the beginning of the first row.
    nbytes
        The number of bytes from there to the end.
    row
        The type of a row: that of an item, and the number of items.
    """

    def __init__(self, file: BinaryIO, nbytes: int, row: DType) -> None:
        if not row.itemsize or nbytes % row.itemsize:
            raise UsageValueError(
                "%d bytes are no rows of %d bytes" % (nbytes, row.itemsize)
            )
        self._file = file
        self._start = file.tell()
        self._row_nbytes = row.itemsize
        self.dtype = row.base
        self.shape = (nbytes // row.itemsize, *row.shape)

    def __getitem__(self, rows: slice) -> Array:
        start, stop, _ = rows.indices(self.shape[0])
        found = numpy.empty((stop - start, *self.shape[1:]), self.dtype)
        view = found.reshape(-1).view("u1").data
        self._file.seek(self._start + start * self._row_nbytes)
        done = 0
        while done < len(view):
            count = self._file.readinto(view[done:])  # type: ignore[attr-defined]
            if not count:
                raise StorageError("the input became shorter while it was read")
            done += count
        return found
