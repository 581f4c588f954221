"""Memory of arrays and of new bytes objects, which is filled in place."""

from __future__ import annotations

import ctypes
import io
import mmap
from contextlib import suppress

# Minimum size in bytes of memory that is requested in huge pages: no gain was measured
# below.
HUGE_PAGES_FROM = 4 * 2**20


def memory_at(address: int, nbytes: int, owner: object) -> memoryview:
    """Return memory as a writable view, which keeps `owner` alive."""
    if not nbytes:
        return memoryview(bytearray())
    memory = (ctypes.c_char * nbytes).from_address(address)
    memory.owner = owner  # type: ignore[attr-defined]
    return memoryview(memory).cast("B")


class _Room(io.BytesIO):
    def close(self) -> None:
        """Close the file object.

        The garbage collector calls this, also while there is a view of the memory.
        """
        with suppress(BufferError):
            super().close()


def bytes_with_room(nbytes: int) -> io.BytesIO:
    """Return a file object in memory that has `nbytes` zero bytes.

    The system provides the memory when it is first written.
    """
    fp = _Room(bytes(nbytes))
    if nbytes >= HUGE_PAGES_FROM and hasattr(mmap, "MADV_HUGEPAGE"):
        # The system maps one huge page faster than Blosc fills it, and many small ones
        # more slowly. It may ignore the request.
        with fp.getbuffer() as view:
            start = ctypes.addressof(ctypes.c_char.from_buffer(view))
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        madvise = ctypes.CDLL(None).madvise
        madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        madvise(first, start + nbytes - first, mmap.MADV_HUGEPAGE)
    return fp


class BytesUnderConstruction:
    """A bytes object that is filled through ``view``, and then returned by `finish`.

    `io.BytesIO` takes the new bytes object and returns it at the end, without a copy.
    """

    def __init__(self, nbytes: int) -> None:
        self._owner: io.BytesIO | None = bytes_with_room(nbytes)
        self.view = self._owner.getbuffer()

    def finish(self) -> bytes:
        """Return the bytes object; nothing else may be called afterwards."""
        owner, self._owner, self.view = self._owner, None, memoryview(b"")
        assert owner is not None
        return owner.getvalue()
