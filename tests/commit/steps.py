"""A file of an array, and the steps of its change: for tests of changes in place."""

from __future__ import annotations

import io
import os

import numpy as np
from crash.operations import has_undo_record

import bloscpack as bp
from bloscpack.append import append_fp, rewrite_metadata_fp

ARRAY = np.random.default_rng(1).integers(0, 2**31, (130, 10), "<i4")
ROWS = np.random.default_rng(2).integers(0, 2**31, (70, 10), "<i4")
SETTINGS = {"nthreads": 1}


class Stop(BaseException):
    """An interruption, which is no Exception."""


class Steps:
    """Part of a file object that keeps its content after each step.

    Step `fails` raises an error; a write takes `most` bytes at most.
    """

    def begin(self, fails=None, most=2**30, error=None):
        self.states, self.fails, self.most, self.error = [], fails, most, error

    def step(self, call, *arguments):
        if len(self.states) == self.fails:
            self.fails = None
            raise self.error
        result = call(*arguments)
        self.states.append(self.content())
        return result

    def write(self, data):
        return self.step(super().write, memoryview(data)[: self.most])

    def truncate(self, size=None):
        return self.step(super().truncate, size)


class InMemory(Steps, io.BytesIO):
    content = io.BytesIO.getvalue


class OnDisk(Steps, io.FileIO):
    def content(self):
        return os.pread(self.fileno(), 2**20, 0)


def packed(checksum="adler32"):
    """Return a file of an array in six chunks, the last one short."""
    bits = {"checksum": checksum, "clevel": 0, "max_app_chunks": 40}
    return bp.pack_ndarray_to_bytes(ARRAY, 1000, metadata={"a": 1}, **bits)


def grow(fp):
    """Append rows to an array, and replace its metadata."""
    append_fp(fp, io.BytesIO(ROWS.tobytes()), ROWS.nbytes, metadata={"a": 2})


def replace_metadata(fp):
    rewrite_metadata_fp(fp, {"a": 3})


def steps_of(old, change=grow):
    """Return the content of a file before its change, and after each step of it."""
    fp = InMemory(old)
    fp.begin()
    change(fp)
    return [old, *fp.states]


OLD = packed()
STATES = steps_of(OLD)
FLAGGED = [state for state in STATES if has_undo_record(state)]
LAST = FLAGGED[-1]  # all has been overwritten
