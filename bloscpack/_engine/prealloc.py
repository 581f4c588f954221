"""Memory that is filled in place: that of an array, and that of a new bytes object."""

from __future__ import annotations

import ctypes
import io


def memory_at(address: int, nbytes: int, owner: object) -> memoryview:
    """Return memory as a writable view, which keeps `owner` alive."""
    if not nbytes:
        return memoryview(bytearray())
    memory = (ctypes.c_char * nbytes).from_address(address)
    memory.owner = owner  # type: ignore[attr-defined]
    return memoryview(memory).cast("B")


class BytesUnderConstruction:
    """A bytes object that is filled through ``view``, and then returned by `finish`.

    `io.BytesIO` takes the new bytes object, whose memory the system provides when it is
    first written, and returns it at the end, without a copy.
    """

    def __init__(self, nbytes: int) -> None:
        self._owner: io.BytesIO | None = io.BytesIO(bytes(nbytes))
        self.view = self._owner.getbuffer()

    def finish(self) -> bytes:
        """Return the bytes object; nothing else may be called afterwards."""
        owner, self._owner, self.view = self._owner, None, memoryview(b"")
        assert owner is not None
        return owner.getvalue()
