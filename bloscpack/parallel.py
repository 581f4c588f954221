"""Doing the same to many things on several threads, results in order.

At most `window` things are on their way at a time, so memory stays bounded, and
no thread outlives the loop that asked for it, whether that ends well or not.
"""

from __future__ import annotations

import os
from collections import deque

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future
    from typing import TypeVar

    Item = TypeVar("Item")
    Result = TypeVar("Result")


def available_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], nthreads: int
) -> Iterator[Result]:
    """Yield ``function(item)`` for each item, in order, from `nthreads` threads.

    Items are taken, and errors raised, in the thread of the caller; an error ends
    everything that is on its way.
    """
    if nthreads <= 1:
        yield from map(function, items)
        return
    from concurrent.futures import ThreadPoolExecutor

    window = 2 * nthreads
    pending: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(nthreads, thread_name_prefix="bloscpack")
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) > window:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
