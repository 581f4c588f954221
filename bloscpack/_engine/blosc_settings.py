"""Blosc's process-wide settings, held while Bloscpack calls Blosc."""

from __future__ import annotations

import os
from _thread import allocate_lock
from types import ModuleType


class _OwnSettings:
    """A context manager: the settings of Blosc that Bloscpack needs hold inside.

    They are one thread (unless `use_threads_of_blosc` sets more), a released GIL and
    automatic block sizes (unless a chunk needs others: `use_blocksize`). With the GIL
    released, Blosc also ignores the environment variables BLOSC_*. The settings belong
    to the process, and several threads may be inside: the first one to enter saves the
    settings of the application, and the last one to leave restores them.

    ``disordered`` says whether Blosc may store the blocks of a chunk in the order in
    which its threads finish them, ``blocksize`` is the block size that is set.
    """

    # Imported by the first thread that enters. They are stored because an import
    # statement takes noticeable time compared with a small chunk.
    blosc: ModuleType = None  # type: ignore[assignment]
    # The module of C functions inside, which takes half the time for a small call.
    functions: ModuleType = None  # type: ignore[assignment]
    ctypes: ModuleType = None  # type: ignore[assignment]

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._inside = 0
        self._saved: tuple[bool, int, int] | None = None
        self.disordered = False
        self.blocksize = 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def __enter__(self) -> None:
        functions = self.functions
        if functions is None:
            import ctypes

            import blosc

            self.ctypes, self.blosc = ctypes, blosc
            self.functions = functions = blosc.blosc_extension
        with self._lock:
            if self._inside == 0:
                blocksize = functions.get_blocksize()
                nthreads = functions.set_nthreads(1)
                self._saved = functions.set_releasegil(True), nthreads, blocksize
                if blocksize:
                    functions.set_blocksize(0)
            elif self.disordered:  # only a single thread may use several of Blosc
                functions.set_nthreads(1)
            self._inside += 1

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            # A child process may leave a block that its parent entered before the fork.
            self._inside -= self._inside > 0
            if self._inside or self._saved is None:
                return
            releasegil, nthreads, blocksize = self._saved
            self._saved, self.disordered, functions = None, False, self.functions
            functions.set_releasegil(releasegil)
            functions.set_nthreads(nthreads)
            if blocksize or self.blocksize:
                self.blocksize = 0
                functions.set_blocksize(blocksize)

    def use_threads_of_blosc(self, nthreads: int) -> None:
        """Let Blosc use `nthreads` threads for a chunk if no other thread is inside."""
        with self._lock:
            if self._inside == 1:
                self.disordered = True
                self.functions.set_nthreads(nthreads)

    def use_blocksize(self, size: int) -> None:
        """Let Blosc use blocks of `size` bytes from now on; 0 lets Blosc choose it.

        Each chunk sets the size that it needs. While threads compress chunks with
        different sizes at the same time, one of them may set the size just before the
        chunk of another thread, which is as valid with these blocks.
        """
        with self._lock:
            self.blocksize = size
            self.functions.set_blocksize(size)

    def _reset(self) -> None:
        # A child process has none of the threads that were inside before the fork.
        self._lock = allocate_lock()
        self._inside = 0
        self.__exit__()


#: Calls of Blosc are inside ``with own_settings`` (but see `chunks.needs_settings`).
own_settings = _OwnSettings()
