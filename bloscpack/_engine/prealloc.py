"""Bytes objects that are allocated first and then filled in place, without a copy.

Strategy: Python code can't write into ``bytes``, so on CPython the functions of its C
interface allocate and resize them (PyBytes_FromStringAndSize, _PyBytes_Resize). Other
interpreters get a bytearray, which is copied once. Large memory is requested in huge
pages where the system has them: mapping small pages takes longer than Blosc needs to
decompress into them.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Callable

from .._types import Buffer

# Minimum size in bytes of memory that is requested in huge pages: no gain was measured
# below.
HUGE_PAGES_FROM = 4 * 2**20
# Size in bytes of a huge page of x86 and ARM.
HUGE_PAGE = 2 * 2**20
# Minimum size in bytes of an object that is filled in place: below, the calls into
# CPython take longer than a copy.
WORTH_NO_COPY = 16 * 2**10
# Offset of the content in a bytes object: its size without the zero byte at the end.
BYTES_HEADER = bytes.__basicsize__ - 1

CPYTHON = sys.implementation.name == "cpython"
if CPYTHON:
    # Attributes of `ctypes.pythonapi` are shared by all packages, which give them other
    # types of arguments and results. These are our own.
    _api = ctypes.pythonapi
    _new = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ssize_t)(
        ("PyBytes_FromStringAndSize", _api)
    )
    _resize = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_ssize_t)(
        ("_PyBytes_Resize", _api)
    )
    _release = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("Py_DecRef", _api))


def memory_at(address: int, nbytes: int, owner: object) -> memoryview:
    """Return memory as a writable view, which keeps `owner` alive."""
    if not nbytes:
        return memoryview(bytearray())
    memory = (ctypes.c_char * nbytes).from_address(address)
    memory.owner = owner  # type: ignore[attr-defined]
    return memoryview(memory).cast("B")


def advise_huge_pages(address: int, nbytes: int) -> None:
    """Request huge pages for new memory; the system may ignore the request."""
    if nbytes < HUGE_PAGES_FROM or not hasattr(mmap, "MADV_HUGEPAGE"):
        return
    start = -(-address // HUGE_PAGE) * HUGE_PAGE
    length = (address + nbytes - start) // HUGE_PAGE * HUGE_PAGE
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    madvise(start, length, mmap.MADV_HUGEPAGE)


class BytesUnderConstruction:
    """A bytes object that is filled through ``view``, and then returned by `finish`."""

    def __init__(self, nbytes: int) -> None:
        self._owner: ctypes.c_void_p | bytearray
        if CPYTHON and nbytes >= WORTH_NO_COPY:
            pointer = _new(None, nbytes)
            self._owner = ctypes.c_void_p(pointer)
            advise_huge_pages(pointer + BYTES_HEADER, nbytes)
            self.view = memory_at(pointer + BYTES_HEADER, nbytes, None)
        else:
            self._owner = bytearray(nbytes)
            self.view = memoryview(self._owner)

    def put(self, start: int, data: Buffer) -> None:
        """Copy `data` to the offset `start`; long copies release the GIL."""
        size = len(data)
        view = self.view[start : start + size]
        if size >= WORTH_NO_COPY and isinstance(data, bytes) and len(view) == size:
            # Assignment to a view holds the GIL, `memmove` of ctypes does not.
            address = ctypes.addressof(ctypes.c_char.from_buffer(view))
            ctypes.memmove(address, data, size)
        else:
            view[:] = data

    def resize(self, nbytes: int) -> None:
        """Change the size; views that were taken before are invalid."""
        self.view = memoryview(b"")
        if isinstance(self._owner, bytearray):
            self._owner[:] = self._owner[:nbytes].ljust(nbytes, b"\0")
            self.view = memoryview(self._owner)
            return
        _resize(ctypes.byref(self._owner), nbytes)
        pointer = self._owner.value or 0
        self.view = memory_at(pointer + BYTES_HEADER, nbytes, None)

    def finish(self) -> bytes:
        """Return the bytes object; nothing else may be called afterwards."""
        self.view = memoryview(b"")
        if isinstance(self._owner, bytearray):
            return bytes(self._owner)
        value: bytes = ctypes.cast(self._owner, ctypes.py_object).value
        return value

    def __del__(self) -> None:
        owner = getattr(self, "_owner", None)
        if CPYTHON and isinstance(owner, ctypes.c_void_p) and owner.value:
            _release(owner)


class BytesWriter:
    """A file object for writing whose content becomes a bytes object.

    `capacity` is the expected size in bytes. Too large a value costs only address
    space: the system provides memory when it is written to.
    """

    def __init__(self, capacity: int) -> None:
        self._content = BytesUnderConstruction(capacity)
        self._capacity = capacity
        self._position = 0
        self._size = 0

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to `offset`, from the start or from the position, and return it."""
        self._position = offset + (self._position if whence == os.SEEK_CUR else 0)
        return self._position

    def reserve(self, nbytes: int) -> None:
        """Allocate `nbytes` behind the position; writing them moves no memory."""
        end = self._position + nbytes
        if end > self._capacity:
            self._capacity = end
            self._content.resize(end)

    def write(self, data: Buffer) -> int:
        """Write all of `data` and return its length."""
        end = self._position + len(data)
        if end > self._capacity:
            self.reserve(len(data) + end // 8)
        self._content.put(self._position, data)
        self._position = end
        self._size = max(self._size, end)
        return len(data)

    def write_later(self, *pieces: Buffer) -> Callable[[], None]:
        """Move behind `pieces`; return a function that writes them, for any thread.

        `reserve` must have allocated the memory.
        """
        start = self._position
        self._position += sum(map(len, pieces))
        self._size = max(self._size, self._position)

        def write() -> None:
            position = start
            for piece in pieces:
                self._content.put(position, piece)
                position += len(piece)

        return write

    def getvalue(self) -> bytes:
        """Return the bytes written; nothing else may be called afterwards."""
        self._content.resize(self._size)
        return self._content.finish()
