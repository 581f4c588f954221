"""Blosc's process-wide settings, held while Bloscpack calls Blosc."""

from __future__ import annotations

import os
from _thread import allocate_lock

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Any

    Buffer = bytes | bytearray | memoryview


class _OwnSettings:
    """Blosc as Bloscpack needs it, for as long as any thread is inside.

    One thread of Blosc's own unless asked for more, the GIL released and automatic
    block sizes; released, Blosc also leaves the environment variables BLOSC_* aside.
    These settings belong to the process, so the first to enter remembers them and the
    last puts them back.
    """

    # Loaded by the first to enter: for a small chunk, even `import` takes its time.
    blosc: Any = None
    ctypes: Any = None

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._inside = 0
        self._saved: tuple[bool, int, int] | None = None
        #: Whether Blosc may lay blocks down in the order in which they are done.
        self.disordered = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def __enter__(self) -> None:
        if self.blosc is None:
            import ctypes

            import blosc

            self.ctypes, self.blosc = ctypes, blosc
        blosc = self.blosc
        with self._lock:
            if self._inside == 0:
                blocksize = blosc.get_blocksize()
                self._saved = (
                    blosc.set_releasegil(True),
                    blosc.set_nthreads(1),
                    blocksize,
                )
                if blocksize:
                    blosc.set_blocksize(0)
            elif self.disordered:
                blosc.set_nthreads(1)  # meant for the other, who was alone
            self._inside += 1

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            # A child of fork may leave what its parent has entered.
            self._inside = max(self._inside - 1, 0)
            if self._inside == 0:
                self._restore()

    def use_threads_of_blosc(self, nthreads: int) -> None:
        """Let Blosc share a chunk among threads, if nobody else is inside."""
        with self._lock:
            if self._inside == 1:
                self.disordered = True
                self.blosc.set_nthreads(nthreads)

    def _restore(self) -> None:
        self.disordered = False
        if self._saved is not None:
            releasegil, nthreads, blocksize = self._saved
            self._saved = None
            self.blosc.set_releasegil(releasegil)
            self.blosc.set_nthreads(nthreads)
            if blocksize:
                self.blosc.set_blocksize(blocksize)

    def _reset(self) -> None:
        # A child of fork has none of the threads that were inside.
        self._lock = allocate_lock()
        self._inside = 0
        self._restore()


own_settings = _OwnSettings()
