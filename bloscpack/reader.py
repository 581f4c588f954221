"""Random access: read part of the plain bytes, or of the rows of an array.

Strategy: positions become chunk numbers. `OpenedFile` loads them on all threads; each
is trimmed, and the caller gets the parts in order.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence

import numpy

from ._engine.blosc_settings import own_settings
from ._file.opened import OpenedFile, storage_from
from ._format.array_metadata import Description
from ._format.chunks import plain_of
from ._format.dtypes import Array
from ._storage.base import Storage
from ._types import Seekable
from .abstract_io import effective_nthreads
from .exceptions import UsageError
from .file_io import CompressedFPSource
from .serializers import user_metadata


class SpacedPieces:
    """Equally spaced pieces of the plain bytes, which do not overlap.

    Parameters
    ----------
    start
        Position of the first piece, in plain bytes.
    size
        Length of each piece, in bytes.
    pitch
        Distance between the starts of two neighbouring pieces, in bytes.
    count
        Number of pieces.
    """

    def __init__(self, start: int, size: int, pitch: int = 1, count: int = 1) -> None:
        self.start = start
        self.size = size
        self.pitch = pitch
        self.count = count if size else 0

    @property
    def stop(self) -> int:
        """The position behind the last piece, in plain bytes."""
        if not self.count:
            return self.start
        return self.start + (self.count - 1) * self.pitch + self.size

    def within(self, start: int, stop: int) -> range:
        """Return the numbers of the pieces that have bytes in the span [start, stop).

        Parameters
        ----------
        start, stop
            Positions in plain bytes.
        """
        first = (start - self.start - self.size) // self.pitch + 1
        after = -((self.start - stop) // self.pitch)
        return range(max(first, 0), min(after, self.count))

    def cut(self, plain: memoryview, start: int) -> bytes:
        """Return the bytes of `plain` that belong to the pieces, joined.

        Parameters
        ----------
        plain
            The plain bytes of a chunk.
        start
            The position of the first of them.
        """
        numbers = self.within(start, start + len(plain))
        position = self.start + numbers.start * self.pitch - start
        count = len(numbers)
        parts = []
        if position < 0:  # the first piece starts in the chunk before
            parts.append(bytes(plain[: position + self.size]))
            position, count = position + self.pitch, count - 1
        complete = min(count, (len(plain) - position - self.size) // self.pitch + 1)
        if complete > 0:
            shape, strides = (complete, self.size), (self.pitch, 1)
            pieces = numpy.ndarray(shape, "u1", plain, position, strides)
            parts.append(pieces.tobytes())
            position, count = position + complete * self.pitch, count - complete
        if count > 0:  # the last piece ends in the chunk after
            parts.append(bytes(plain[position:]))
        return b"".join(parts)


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
        read); `read`, `deliver` and `read_rows` raise it for the chunks
        that they need.
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
        """Return up to `count` bytes that lie behind the last chunk."""
        state = self._file.state
        return state.storage.read_at(state.check_end(), count)

    def read(self, start: int, stop: int, *, nthreads: int | None = None) -> bytes:
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
        selection = self.select(slice(start, stop))
        self.deliver(selection, parts.append, nthreads=nthreads)
        return b"".join(parts)

    def deliver(
        self,
        selection: SpacedPieces,
        deliver: Callable[[bytes], object],
        *,
        nthreads: int | None = None,
    ) -> None:
        """Call `deliver` with the selected bytes, a part at a time, in order.

        Parameters
        ----------
        selection
            What `select` or `select_rows` returned.
        deliver
            Called in the thread of the caller, once for each chunk that is needed; what
            it returns is ignored.
        nthreads
            Number of threads; None for the default.

        Raises
        ------
        FormatError
            If a chunk that holds some of the bytes is damaged; `deliver` has been
            called for all chunks before it.
        """
        span = self._file.span

        def cut(number: int, plain: memoryview) -> bytes:
            return selection.cut(plain, span(number)[0])

        numbers = self._numbers(selection)
        self._file.load(numbers, cut, deliver=deliver, nthreads=nthreads)

    def select(self, span: slice) -> SpacedPieces:
        """Return the selection of a span of plain bytes; the step is ignored.

        Parameters
        ----------
        span
            A slice with positions in plain bytes.
        """
        start, stop, _ = slice(span.start, span.stop).indices(self.nbytes)
        return SpacedPieces(start, max(0, stop - start))

    def _numbers(self, selection: SpacedPieces) -> Sequence[int]:
        """Return the numbers of the chunks with selected bytes."""
        file = self._file
        if selection.stop >= self.nbytes <= selection.start:
            # Nothing is selected; chunks without plain bytes may be damaged, though.
            return range(max(0, file.nchunks - 1), file.nchunks)
        numbers = file.numbers(selection.start, selection.stop)
        if selection.count == 1 or selection.pitch == selection.size:
            return numbers
        return [i for i in numbers if selection.within(*file.span(i))]

    # Arrays

    def describe(self) -> Description:
        """Return dtype, shape and order of the array in the file.

        Raises
        ------
        NotANumpyArray
            If the metadata do not describe an array.
        """
        description = Description(self.metadata)
        description.check_nbytes(self.nbytes)
        return description

    def select_rows(self, rows: slice) -> SpacedPieces:
        """Return the selection of some rows of the array, its items along axis 0.

        Parameters
        ----------
        rows
            A slice of row numbers with a step of 1 or more.

        Raises
        ------
        UsageError
            If the array has no axis, if it has several in Fortran order, where the
            bytes of a row are scattered, or chunks of every axis, or if the step is
            below 1.
        """
        array = self.describe()
        if array.grid is not None:
            raise UsageError(
                "an array in chunks of shape %s has no rows in its plain bytes: "
                "read_rows and open_ndarray read them" % (array.grid.chunk,)
            )
        if not array.shape or (array.order == "F" and len(array.shape) > 1):
            raise UsageError(
                "an array of shape %s and order '%s' can't be read by rows"
                % (array.shape, array.order)
            )
        if rows.step is not None and rows.step < 1:
            raise UsageError(
                "the step between rows must be at least 1, not %d" % rows.step
            )
        start, stop, step = rows.indices(array.shape[0])
        size = array.nbytes // array.shape[0] if array.shape[0] else 0
        if step == 1 or not size:
            return SpacedPieces(start * size, max(0, stop - start) * size)
        count = len(range(start, stop, step))
        return SpacedPieces(start * size, size, step * size, count)

    def read_rows(self, rows: slice, *, nthreads: int | None = None) -> Array:
        """Return some rows of the array as an array.

        Parameters
        ----------
        rows
            A slice of row numbers with a step of 1 or more.
        nthreads
            Number of threads; None for the default.

        Raises
        ------
        NotANumpyArray, UsageError
            As `describe` and `select_rows`.
        FormatError
            If a chunk that holds some of the rows is damaged.
        """
        array = self.describe()
        if array.grid is not None:
            empty = numpy.empty((0, *array.shape[1:]), array.dtype)
            return numpy.concatenate([empty, *self._row_blocks(rows, nthreads)])
        parts: list[bytes] = []
        self.deliver(self.select_rows(rows), parts.append, nthreads=nthreads)
        count = len(range(*rows.indices(array.shape[0])))
        shape = (count, *array.shape[1:])
        return numpy.ndarray(shape, array.dtype, buffer=bytearray(b"".join(parts)))

    def _row_blocks(self, rows: slice, nthreads: int | None) -> Iterator[Array]:
        """Yield the selected rows of an array in chunks of every axis, in blocks."""
        from .lazy_array import open_ndarray

        with open_ndarray(self._file.state.storage, nthreads=nthreads) as lazy:
            if not lazy.shape or (rows.step or 1) < 1:
                raise UsageError("expected rows with a step of at least 1")
            numbers = range(*rows.indices(len(lazy)))
            while numbers:
                end = (numbers[0] // lazy.chunks[0] + 1) * lazy.chunks[0]
                count = -(-(end - numbers[0]) // numbers.step)
                block, numbers = numbers[:count], numbers[count:]
                yield lazy[block.start : block[-1] + 1 : block.step]


class StreamReader(Reader):
    """Delivers one selection from a file object that can't seek, in constant memory.

    The chunks in front of the selection are read and verified too.

    Parameters
    ----------
    fp
        The file object, with the file from its current position on.
    """

    def __init__(self, fp: Seekable) -> None:
        self._source = CompressedFPSource(fp, to_end=True)
        self.header = self._source.bloscpack_header
        self.metadata = self._source.metadata
        self.user_metadata = user_metadata(self.metadata)
        nbytes = self.header.nbytes
        self._has_size = nbytes is not None
        self.nbytes = sys.maxsize if nbytes is None else nbytes

    def select(self, span: slice) -> SpacedPieces:
        """Return the selection of a span of plain bytes; see `Reader.select`."""
        if min(span.start or 0, span.stop or 0) < 0:
            self._need_size("positions from the end")
        return super().select(span)

    def select_rows(self, rows: slice) -> SpacedPieces:
        """Return the selection of some rows; see `Reader.select_rows`."""
        self._need_size("rows")
        return super().select_rows(rows)

    def _need_size(self, what: str) -> None:
        if not self._has_size:
            raise UsageError(
                "%s can't be read from a pipe if the header of the file does not "
                "contain its size" % what
            )

    def _peek_behind(self, count: int) -> bytes:
        return bytes(self._source.peek_behind(count))

    def deliver(
        self,
        selection: SpacedPieces,
        deliver: Callable[[bytes], object],
        *,
        nthreads: int | None = None,
    ) -> None:
        """Call `deliver` with the selected bytes; see `Reader.deliver`.

        No chunk is read before the bytes of the one in front of it are delivered, so
        Blosc shares the blocks of each chunk among the threads.
        """
        source = self._source
        to_end = selection.stop == self.nbytes  # what follows has to be checked
        with own_settings:
            own_settings.use_threads_of_blosc(effective_nthreads(nthreads, None))
            for frame in source.frames():
                plain = memoryview(plain_of(frame, source.checksum_impl))
                stop = frame.start + plain.nbytes
                if selection.within(frame.start, stop):
                    deliver(selection.cut(plain, frame.start))
                if stop >= selection.stop and not to_end:
                    break
