"""New bytes objects, which are filled in place."""

from __future__ import annotations

import ctypes
import io
import mmap

# Minimum size in bytes of memory that is requested in huge pages: no gain was measured
# below.
HUGE_PAGES_FROM = 4 * 2**20


def _new_bytes(nbytes: int) -> bytes:
    """Return zero bytes in memory of their own, in huge pages if they are many."""
    made = bytes(nbytes)
    if nbytes >= HUGE_PAGES_FROM and hasattr(mmap, "MADV_HUGEPAGE"):
        # The system maps one huge page faster than Blosc fills it, and many small ones
        # more slowly. It may ignore the request.
        start = _address_of(made)
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        madvise = ctypes.CDLL(None).madvise
        madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        madvise(first, start + nbytes - first, mmap.MADV_HUGEPAGE)
    return made


def _address_of(made: bytes) -> int:
    """Return the address of the first byte."""
    address = ctypes.cast(ctypes.c_char_p(made), ctypes.c_void_p).value
    assert address is not None
    return address


def bytes_with_room(nbytes: int) -> io.BytesIO:
    """Return a file object in memory that has `nbytes` zero bytes.

    The system provides the memory when it is first written.
    """
    return io.BytesIO(_new_bytes(nbytes))


class BytesUnderConstruction:
    """A bytes object that is filled through ``view``, and then returned by `finish`.

    Python allows to fill a new bytes object that nothing else refers to. `io.BytesIO`
    would have such a view, too, but Python 3.12.1 crashes if it frees both in a cycle.
    """

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        self._made = _new_bytes(max(nbytes, 2))  # shorter ones have other owners
        memory = (ctypes.c_char * nbytes).from_address(_address_of(self._made))
        memory.owner = self._made  # type: ignore[attr-defined]
        self.view = memoryview(memory).cast("B") if nbytes else memoryview(bytearray())

    def finish(self) -> bytes:
        """Return the bytes object; nothing else may be called afterwards."""
        made, self._made, self.view = self._made, b"", memoryview(b"")
        return made if len(made) == self._nbytes else made[: self._nbytes]
