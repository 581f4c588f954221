"""Bytes objects that are filled in place, instead of being joined at the end.

Python has no way to make ``bytes`` of a known size and then write into them, so this
asks CPython itself (PyBytes_FromStringAndSize, _PyBytes_Resize), as its C extensions
do; other Pythons get a bytearray and one copy. Large memory is asked for in huge
pages where the system has them: giving out small ones takes longer than Blosc does.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable

    from .._format.chunks import Buffer

# Below this, small pages cost nothing that could be measured.
HUGE_PAGES_FROM = 4 * 2**20
HUGE_PAGE = 2 * 2**20
# Below this, copying costs less than asking CPython.
WORTH_NO_COPY = 16 * 2**10
# The bytes of a bytes object lie behind its header, and end with a zero byte.
BYTES_HEADER = bytes.__basicsize__ - 1

CPYTHON = sys.implementation.name == "cpython"
if CPYTHON:
    _new = ctypes.pythonapi.PyBytes_FromStringAndSize
    _new.restype = ctypes.c_void_p
    _new.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t]
    _resize = ctypes.pythonapi._PyBytes_Resize
    _resize.restype = ctypes.c_int
    _resize.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t]
    _release = ctypes.pythonapi.Py_DecRef
    _release.restype = None
    _release.argtypes = [ctypes.c_void_p]


def memory_at(address: int, nbytes: int, owner: object) -> memoryview:
    """Return the memory at an address as writable bytes; `owner` lives as long."""
    if not nbytes:
        return memoryview(bytearray())
    memory = (ctypes.c_char * nbytes).from_address(address)
    memory.owner = owner  # type: ignore[attr-defined]
    return memoryview(memory).cast("B")


def advise_huge_pages(address: int, nbytes: int) -> None:
    """Ask for huge pages in fresh memory; it is advice, so failure does not matter."""
    if nbytes < HUGE_PAGES_FROM or not hasattr(mmap, "MADV_HUGEPAGE"):
        return
    start = -(-address // HUGE_PAGE) * HUGE_PAGE
    length = (address + nbytes - start) // HUGE_PAGE * HUGE_PAGE
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    madvise(start, length, mmap.MADV_HUGEPAGE)


class BytesUnderConstruction:
    """Memory that becomes a bytes object; `finish` must be the last thing called."""

    def __init__(self, nbytes: int) -> None:
        self._owner: ctypes.c_void_p | bytearray
        self._allocate(nbytes)

    def _allocate(self, nbytes: int) -> None:
        if CPYTHON and nbytes >= WORTH_NO_COPY:
            pointer = _new(None, nbytes)
            self._owner = ctypes.c_void_p(pointer)
            advise_huge_pages(pointer + BYTES_HEADER, nbytes)
            self.view = memory_at(pointer + BYTES_HEADER, nbytes, None)
        else:
            self._owner = bytearray(nbytes)
            self.view = memoryview(self._owner)

    def put(self, start: int, data: Buffer) -> None:
        """Copy `data` to `start`; other threads go on meanwhile if that takes long."""
        size = len(data)
        view = self.view[start : start + size]
        if size >= WORTH_NO_COPY and isinstance(data, bytes) and len(view) == size:
            # Assigning to a view would keep the other threads waiting.
            address = ctypes.addressof(ctypes.c_char.from_buffer(view))
            ctypes.memmove(address, data, size)
        else:
            view[:] = data

    def resize(self, nbytes: int) -> None:
        """Make room for another number of bytes; views taken before are void."""
        self.view = memoryview(b"")
        if isinstance(self._owner, bytearray):
            self._owner[:] = self._owner[:nbytes].ljust(nbytes, b"\0")
            self.view = memoryview(self._owner)
            return
        _resize(ctypes.byref(self._owner), nbytes)
        pointer = self._owner.value or 0
        self.view = memory_at(pointer + BYTES_HEADER, nbytes, None)

    def finish(self) -> bytes:
        """Return the bytes."""
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
    """A file object, as far as writing a file needs one, over bytes in the making.

    `capacity` is a guess, in bytes; memory that is not written to costs nothing.
    """

    def __init__(self, capacity: int) -> None:
        self._user_settings = BytesUnderConstruction(capacity)
        self._capacity = capacity
        self._position = 0
        self._size = 0

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to `offset` from the start, or from where it stands."""
        self._position = offset + (self._position if whence == os.SEEK_CUR else 0)
        return self._position

    def reserve(self, nbytes: int) -> None:
        """Make room for `nbytes` more; while they are written, nothing moves."""
        end = self._position + nbytes
        if end > self._capacity:
            self._capacity = end
            self._user_settings.resize(end)

    def write(self, data: Buffer) -> int:
        """Write all of `data`."""
        end = self._position + len(data)
        if end > self._capacity:
            self.reserve(len(data) + end // 8)
        self._user_settings.put(self._position, data)
        self._position = end
        self._size = max(self._size, end)
        return len(data)

    def write_later(self, *pieces: Buffer) -> Callable[[], None]:
        """Move on behind `pieces`; return what writes them, to be called in any thread.

        Room must have been reserved.
        """
        start = self._position
        self._position += sum(map(len, pieces))
        self._size = max(self._size, self._position)

        def write() -> None:
            position = start
            for piece in pieces:
                self._user_settings.put(position, piece)
                position += len(piece)

        return write

    def getvalue(self) -> bytes:
        """Return what was written, as the last thing done."""
        self._user_settings.resize(self._size)
        return self._user_settings.finish()
