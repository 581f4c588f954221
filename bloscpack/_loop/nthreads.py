"""The number of threads, and the sizes from which threads help."""

from __future__ import annotations

from .._engine.blosc_settings import own_settings
from ..abstract_objects import plain_number
from ..constants import MAX_THREADS
from ..defaults import available_cpus
from ..headers import check_range

# Chunk size in bytes below which compressing may take less time than waking a thread.
QUICK_CHUNK = 64 * 2**10
# Plain size in bytes of the chunks from which one more thread helps to decompress them:
# a thread takes the GIL a few times for each chunk, and waits for the other threads.
CHUNK_PER_THREAD = 32 * 2**10
# Maximum number of bytes of adjacent chunks that one thread compresses at a time.
# Smaller than `RUN`, because the results stay in memory until the chunks before them
# have been written.
RUN_TO_COMPRESS = 512 * 2**10
# Chunk size in bytes from which Blosc's own threads can share the blocks of a chunk.
LARGE_CHUNK = 2 * 2**20


def effective_nthreads(nthreads: int | None, nchunks: int | None) -> int:
    """Return the number of threads to use, at most one for each chunk.

    `nthreads` None means all CPUs that this process may use; `nchunks` None or -1 means
    an unknown number of chunks. Raises `UsageError` if `nthreads` is out of range.
    """
    if nthreads is not None:
        check_range("nthreads", nthreads, 1, MAX_THREADS)
        nthreads = plain_number(nthreads)
    if nchunks == 1:
        return 1
    count = min(available_cpus(), MAX_THREADS) if nthreads is None else nthreads
    return count if nchunks in (None, -1) else max(1, min(count, nchunks or 1))


def nthreads_to_read(nthreads: int | None, nchunks: int | None, chunk_size: int) -> int:
    """Return the number of threads to decompress with: small chunks need few of them.

    `chunk_size` is the plain size of a chunk in bytes, 0 or -1 if it is unknown.
    """
    count = effective_nthreads(nthreads, nchunks)
    if nthreads is None and chunk_size > 0:
        return min(count, 1 + chunk_size // CHUNK_PER_THREAD)
    return count


def share_threads(nthreads: int | None, nchunks: int | None, chunk_size: int) -> int:
    """Return the number of chunks to process at a time.

    If the chunks are large and fewer than the threads, the remaining threads go to
    Blosc, which shares the blocks of a chunk among them.
    """
    count = effective_nthreads(nthreads, nchunks)
    if chunk_size >= LARGE_CHUNK:
        wanted = effective_nthreads(nthreads, None)
        if wanted >= 2 * count:
            own_settings.use_threads_of_blosc(wanted // count)
    return count
