"""Measure the actions that are requested on standard input.

This script runs under bloscpack 0.16.0 and under this version. A line of JSON names an
action, a data set, a codec and sizes; the answer is a line of JSON with the seconds.

The actions ``limit_pack`` and ``limit_unpack`` run Blosc and adler32 alone, on the same
chunks and the same number of threads, from memory to memory. Other actions measure
further bounds: ``limit_pack_read`` is ``limit_pack`` on chunks read from a file;
``fill_new_array`` and ``write_new_file`` only write the same number of bytes.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
import warnings
import zlib

import blosc
import data
import numpy as np

import bloscpack

warnings.simplefilter("ignore")
OLD = bloscpack.__version__.startswith("0.")


def threads(nthreads: int) -> dict:
    """Return the keyword argument for the number of threads; 0.16 sets it in Blosc."""
    if OLD:
        blosc.set_nthreads(nthreads)
        return {}
    return {"nthreads": nthreads}


def on_threads(function, count: int, nthreads: int) -> list:
    """Return the results of function(i), computed by threads that share a counter."""
    results = [None] * count
    numbers = itertools.count()

    def run() -> None:
        while (i := next(numbers)) < count:
            results[i] = function(i)

    helpers = [threading.Thread(target=run) for _ in range(nthreads - 1)]
    for helper in helpers:
        helper.start()
    run()
    for helper in helpers:
        helper.join()
    return results


class Contest:
    """The inputs of one data set and codec, created when they are first used."""

    def __init__(self, job: dict) -> None:
        self.job = job
        self.array = data.make(job["data"], job["nbytes"])
        self.view = memoryview(self.array).cast("B")
        self.chunk_size = min(job["chunk_size"], len(self.view))
        self.nthreads = job["nthreads"]
        self.folder = job["folder"]
        self._packed = None

    def blosc_args(self):
        return bloscpack.BloscArgs(
            typesize=self.array.itemsize, cname=self.job["codec"]
        )

    def pack_options(self) -> dict:
        return {
            "chunk_size": self.chunk_size,
            "blosc_args": self.blosc_args(),
            **threads(self.nthreads),
        }

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def new(self, name: str) -> str:
        path = self.path(name)
        if os.path.exists(path):
            os.unlink(path)
        return path

    @property
    def packed(self) -> bytes:
        if self._packed is None:
            self._packed = bloscpack.pack_ndarray_to_bytes(
                self.array, **self.pack_options()
            )
        return self._packed

    def file(self, name: str, content) -> str:
        path = self.path(name)
        if not os.path.exists(path):
            with open(path, "wb") as fp:
                fp.write(content)
        return path

    # Each action returns a function. The call of this function is measured.

    def pack_ndarray_to_bytes(self):
        options = self.pack_options()
        return lambda: bloscpack.pack_ndarray_to_bytes(self.array, **options)

    def pack_bytes_to_bytes(self):
        options = self.pack_options()
        return lambda: bloscpack.pack_bytes_to_bytes(self.view, **options)

    def unpack_ndarray_from_bytes(self):
        packed, keywords = self.packed, threads(self.nthreads)
        return lambda: bloscpack.unpack_ndarray_from_bytes(packed, **keywords)

    def unpack_bytes_from_bytes(self):
        packed, keywords = self.packed, threads(self.nthreads)
        return lambda: bloscpack.unpack_bytes_from_bytes(packed, **keywords)

    def pack_file_to_file(self):
        source = self.file("plain-%s" % self.job["data"], self.view)
        target, options = self.new("out.blp"), self.pack_options()
        return lambda: bloscpack.pack_file_to_file(source, target, **options)

    def pack_ndarray_to_file(self):
        target, options = self.new("out.blp"), self.pack_options()
        return lambda: bloscpack.pack_ndarray_to_file(self.array, target, **options)

    def unpack_file_from_file(self):
        name = "packed-%(data)s-%(codec)s-%(chunk_size)d.blp" % self.job
        source, target = self.file(name, self.packed), self.new("out.dat")
        keywords = threads(self.nthreads)
        return lambda: bloscpack.unpack_file_from_file(source, target, **keywords)

    def unpack_ndarray_from_file(self):
        name = "packed-%(data)s-%(codec)s-%(chunk_size)d.blp" % self.job
        source, keywords = self.file(name, self.packed), threads(self.nthreads)
        return lambda: bloscpack.unpack_ndarray_from_file(source, **keywords)

    def fill_new_array(self):
        def fill() -> None:
            array = np.empty(self.array.nbytes, "u1")
            parts = np.array_split(array, 16 * self.nthreads)
            on_threads(lambda i: parts[i].fill(1), len(parts), self.nthreads)

        return fill

    def save(self):
        target = self.new("out.npy")
        return lambda: np.save(target, self.array)

    def write_new_file(self):
        target = self.new("out.raw")

        def write() -> None:
            with open(target, "wb", buffering=0) as fp:
                os.posix_fallocate(fp.fileno(), 0, len(self.view))
                for _ in range(self.nchunks):
                    fp.write(self.view[: self.chunk_size])

        return write

    @property
    def nchunks(self) -> int:
        return -(-len(self.view) // self.chunk_size)

    def limit_of_chunk(self, chunk) -> bytes:
        compressed = blosc.compress(
            chunk,
            typesize=self.array.itemsize,
            clevel=7,
            shuffle=1,
            cname=self.job["codec"],
        )
        zlib.adler32(compressed)
        return compressed

    def limit_pack(self):
        size = self.chunk_size

        def pack(i: int) -> bytes:
            return self.limit_of_chunk(self.view[i * size : (i + 1) * size])

        return lambda: on_threads(pack, self.nchunks, self.nthreads)

    def limit_pack_read(self):
        source = self.file("plain-%s" % self.job["data"], self.view)
        size, memory = self.chunk_size, threading.local()

        def run() -> None:
            with open(source, "rb", buffering=0) as fp:

                def pack(i: int) -> bytes:
                    if not hasattr(memory, "chunk"):
                        memory.chunk = bytearray(size)
                    os.preadv(fp.fileno(), [memory.chunk], i * size)
                    return self.limit_of_chunk(memory.chunk)

                on_threads(pack, self.nchunks, self.nthreads)

        return run

    def limit_unpack(self):
        released = blosc.set_releasegil(True)
        chunks = self.limit_pack()()
        blosc.set_releasegil(released)

        def unpack(i: int) -> bytes:
            zlib.adler32(chunks[i])
            return blosc.decompress(chunks[i])

        return lambda: on_threads(unpack, len(chunks), self.nthreads)

    def time(self, action: str) -> float:
        """Return the duration of an action in seconds."""
        run = getattr(self, action)()
        if action.startswith("limit"):
            blosc.set_releasegil(True)
            blosc.set_nthreads(1)
        repeat = self.job.get("repeat", 1)
        start = time.perf_counter()
        for _ in range(repeat):
            run()
        seconds = (time.perf_counter() - start) / repeat
        if action.startswith("limit"):
            blosc.set_releasegil(False)
        return seconds


def main() -> None:
    """Answer each line until standard input ends."""
    contest = None
    for line in sys.stdin:
        job = json.loads(line)
        action = job.pop("action")
        if contest is None or contest.job != job:
            contest = Contest(job)
        answer = {
            "seconds": contest.time(action),
            "packed": len(contest.packed),
            "bloscpack": bloscpack.__version__,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
