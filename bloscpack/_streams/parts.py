"""The parts of an open file, read by a `Reader`."""

from __future__ import annotations

from bisect import bisect_right
from _thread import allocate_lock

from .._storage.disk import disk
from .._storage.base import naming_errors
from ..reader import Reader
import os
from contextlib import nullcontext


class Parts:
    def __init__(self, file, nthreads, limits):
        self.name = None
        self._fp = None
        if isinstance(file, (str, os.PathLike)):
            self.name = os.fsdecode(file)
            self._fp = file = disk.open(self.name, "rb")
        try:
            with self._naming():
                self._reader = Reader(file)
        except BaseException:
            self.close()
            raise
        self._nthreads = nthreads
        self.header = self._reader.header
        self.metadata = self._reader.metadata
        self.user_metadata = self._reader.user_metadata
        self.nbytes = self._reader.nbytes
        self.nchunks = len(self._reader._starts)

    def _naming(self):
        return naming_errors(self.name) if self.name else nullcontext()

    def span(self, number):
        return self._reader._span(number)

    def numbers(self, start, stop):
        starts = self._reader._starts
        first = bisect_right(starts, start) - 1
        after = first
        while after < len(starts) and starts[after] < stop:
            after += 1
        return range(first, after)

    def read(self, start, stop):
        with self._naming():
            return self._reader.read(start, stop, nthreads=self._nthreads)

    def read_into(self, view, start):
        data = self.read(start, start + len(view))
        view[: len(data)] = data
        return len(data)

    def close(self):
        if self._fp is not None:
            self._fp.close()


def open_parts(file, *, nthreads=None, limits=None, storage_options=None):
    return Parts(file, nthreads, limits)
