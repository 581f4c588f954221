"""Random access: read part of the plain bytes, or of the rows of an array.

Strategy: positions become chunk numbers. `OpenedFile` loads them on all threads; each
is trimmed, and the caller gets the parts in order. `open_ndarray` reads rows.
"""

from __future__ import annotations

from collections.abc import Callable

from ._file.opened import OpenedFile, storage_from
from ._format.dtypes import Array
from ._format.shard import skip_trailer
from ._storage.base import Storage
from ._storage.cursor import StorageCursor
from ._types import Seekable
from .exceptions import UsageError
from .lazy_array import LazyArray, open_ndarray
from .serializers import is_shard


class Reader:
    """Random access to the plain bytes of a file, and to the rows of its array.

    Every digest is verified. The file must not change while the reader is used.

    Parameters
    ----------
    fp
        A file object that can seek, with the file from byte 0 on; it stays open, and
        only the reader may use it meanwhile. Regular files are read by all threads,
        other file objects by the thread of the caller. A `Storage` serves as well.

    Attributes
    ----------
    nbytes
        Number of plain bytes.
    metadata
        The metadata; None if the file has none. In an array file they describe the
        array.
    user_metadata
        The metadata of the user, which an array file stores beside the description of
        the array; in another file the same as `metadata`.
    header
        The `BloscpackHeader`.

    Raises
    ------
    FormatError
        If the file header, the metadata or the offset table is damaged, or if a chunk
        follows the last one (a file at a URL is checked for it when the last chunk is
        read); `read` and `read_rows` raise it for the chunks that they need.
    """

    def __init__(self, fp: Seekable | Storage) -> None:
        self._file = file = OpenedFile(storage_from(fp), cache_nbytes=0)
        if not (file.state.storage.is_remote or file.state.is_cut):
            file.state.check_end()  # `nbytes` is right if no frame follows
        self.header = file.header
        self.metadata = file.metadata
        self.user_metadata = file.user_metadata
        self.nbytes = file.state.nbytes

    def _peek_behind(self, count: int) -> bytes:
        """Return up to `count` bytes that lie behind the file."""
        return self._file.state.storage.read_at(self._end(), count)

    def _end(self) -> int:
        """Return where the file ends, with the trailer of a shard."""
        state = self._file.state
        end = state.check_end()
        if is_shard(self.metadata):
            cursor = StorageCursor(state.storage)
            cursor.move(end)
            skip_trailer(cursor, self.header, self.metadata)
            end = cursor.position
        return end

    def read(
        self, start: int, stop: int | None, *, nthreads: int | None = None
    ) -> bytes:
        """Return the plain bytes from `start` to `stop`.

        Parameters
        ----------
        start, stop
            Positions in plain bytes, with the meaning that they have in slices of
            Python: negative ones count from the end, too large ones mean the end.
        nthreads
            Number of threads; None for the default.

        Raises
        ------
        FormatError
            If a chunk that holds some of the bytes is damaged.
        """
        parts: list[bytes] = []
        start, stop, _ = slice(start, stop).indices(self.nbytes)
        self._deliver(start, stop, parts.append, nthreads)
        return b"".join(parts)

    def _deliver(
        self,
        start: int,
        stop: int,
        deliver: Callable[[bytes], object],
        nthreads: int | None,
    ) -> None:
        """Call `deliver` with the bytes of a span, a part at a time, in order.

        If a chunk is damaged, `deliver` has been called for all chunks before it.
        """
        file = self._file

        def cut(number: int, plain: memoryview) -> bytes:
            begin = file.span(number)[0]
            return bytes(plain[max(0, start - begin) : max(0, stop - begin)])

        numbers = file.numbers(start, stop) if start < stop else range(0)
        file.load(numbers, cut, deliver=deliver, nthreads=nthreads)

    # Arrays

    def read_rows(self, rows: slice, *, nthreads: int | None = None) -> Array:
        """Return some rows of the array, its items along axis 0, as an array.

        Parameters
        ----------
        rows
            A slice of row numbers with a step of 1 or more.
        nthreads
            Number of threads; None for the default.

        Raises
        ------
        NotANumpyArray
            If the metadata do not describe an array.
        UsageError
            If the array has no axis, or if the step is below 1.
        FormatError
            If a chunk that holds some of the rows is damaged.
        """
        if rows.step is not None and rows.step < 1:
            raise UsageError(
                "the step between rows must be at least 1, not %d" % rows.step
            )
        with self._array(nthreads) as array:
            items: Array = array[rows]
            return items

    def _array(self, nthreads: int | None) -> LazyArray:
        """Return the array in the file; raise `UsageError` if it has no rows."""
        storage = self._file.state.storage
        lazy = open_ndarray(storage, cache_nbytes=0, nthreads=nthreads)
        if not lazy.shape:
            raise UsageError("an array of shape () has no rows")
        return lazy
