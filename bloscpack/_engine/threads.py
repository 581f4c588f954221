"""Doing the same to many things on several threads, results in order.

The thread of the caller takes the items and delivers the results, so that sources
and sinks need not know of threads; whenever enough is on its way it works like the
others. Errors come in the order of the items, as a single thread would have met
them. Memory is bounded by a window, and no thread outlives the call.
"""

from __future__ import annotations

import threading
from itertools import islice
from time import perf_counter

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    # What has come of a batch, up to what ended it.
    _Results = tuple[list[Any], BaseException | None]
    # What a delivery leaves to be done.
    _Rest = Callable[[], None] | None

# How many items may be on their way, per thread: taken, but not delivered.
WINDOW = 3
# Handing an item to another thread takes longer than work that is done in less
# time, in seconds. One that is slow may have been interrupted, or be the first to touch
# its memory.
WORTH_A_THREAD = 100e-6
SLOW_IN_A_ROW = 4
# Taking the time takes time too.
QUICK_AT_A_TIME = 32


def for_each(
    items: Iterable[Any],
    work: Callable[[Any], Any],
    deliver: Callable[[Any], _Rest],
    nthreads: int,
    batch: int = 1,
    quick: bool = False,
) -> None:
    """Call ``deliver(work(item))`` for each item, `work` on `nthreads` threads.

    Items are taken and results delivered in order, by the thread of the caller. What
    `deliver` leaves to be done in any thread, in any order, it returns as a function.
    The first item, in that order, whose taking, work or delivery raises ends all, and
    its error is raised. Threads get `batch` items at a time. `quick` says that
    the work on an item may be too little for threads to help; that is found out first.
    """
    if nthreads <= 1:
        for item in items:
            _finish(deliver(work(item)))
        return
    taken = _Batches(items, batch)
    if quick and _do_while_quick(taken, work, deliver):
        return
    line = _Line(work, nthreads)
    try:
        line.run(taken, deliver)
    finally:
        line.close()


def _finish(rest: _Rest) -> None:
    if rest is not None:
        rest()


class _Batches:
    """Items, a list at a time; ``error`` is what ended them before their time."""

    def __init__(self, items: Iterable[Any], size: int) -> None:
        self._items = iter(items)
        self._size = size
        self.ended = False
        self.error: Exception | None = None

    def take(self, size: int | None = None) -> list[Any]:
        """Return the next items; once there are less than wanted, it has ended."""
        size = self._size if size is None else size
        taken: list[Any] = []
        try:
            # Not list(islice()), which would lose those in front of an error.
            taken.extend(islice(self._items, size))
        except Exception as error:
            self.error = error
        self.ended = len(taken) < size
        return taken


def _do_while_quick(
    batches: _Batches,
    work: Callable[[Any], Any],
    deliver: Callable[[Any], _Rest],
) -> bool:
    """Do what is not worth a thread here; return whether that was everything."""
    slow = 0
    size = 1
    while not batches.ended:
        items = batches.take(size)
        start = perf_counter()
        for item in items:
            rest = deliver(work(item))
            if rest is not None:
                rest()
        enough = perf_counter() - start > WORTH_A_THREAD * len(items)
        if enough:
            slow, size = slow + 1, 1
        else:
            slow, size = 0, min(2 * size, QUICK_AT_A_TIME)
        if slow == SLOW_IN_A_ROW:
            break
    if batches.error is not None:
        raise batches.error
    return batches.ended


class _Line:
    """The threads of one `for_each` and the two queues between them and the caller."""

    def __init__(self, work: Callable[[Any], Any], nthreads: int) -> None:
        from queue import SimpleQueue

        self._work = work
        self._window = WINDOW * nthreads
        # A batch has a number, what a delivery left to be done has None.
        self._todo: SimpleQueue[tuple[int | None, list[Any]] | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[int | None, _Results]] = SimpleQueue()
        self._waiting: dict[int, _Results] = {}
        self._nleft = 0
        self._helpers: list[threading.Thread] = []
        self._nhelpers = nthreads - 1

    def _help(self) -> None:
        while (job := self._todo.get()) is not None:
            try:
                self._do(*job)
            except BaseException as error:
                self._done.put((job[0], ([], error)))

    def _do(self, number: int | None, items: list[Any]) -> None:
        results: list[Any] = []
        failure = None
        work = _finish if number is None else self._work
        try:
            for item in items:
                results.append(work(item))
        except Exception as error:
            failure = error
        self._done.put((number, (results, failure)))

    def _take_job(self) -> tuple[int | None, list[Any]] | None:
        """Return a job that no helper has taken yet, if there is one."""
        from queue import Empty

        try:
            return self._todo.get_nowait()
        except Empty:
            return None

    def run(self, batches: _Batches, deliver: Callable[[Any], _Rest]) -> None:
        """Take, work and deliver until there are no more items."""
        taken = delivered = 0
        while not batches.ended or delivered < taken or self._nleft:
            if not batches.ended and taken - delivered + self._nleft < self._window:
                self._todo.put((taken, batches.take()))
                self._start_helper()
                taken += 1
            elif delivered not in self._waiting:
                job = self._take_job() if self._done.empty() else None
                if job is not None:
                    self._do(*job)
                self._receive()
            while delivered in self._waiting:
                self._deliver(*self._waiting.pop(delivered), deliver)
                delivered += 1
            while not self._done.empty():
                self._receive()
        # Its turn comes when everything before it has been delivered.
        if batches.error is not None:
            raise batches.error

    def _receive(self) -> None:
        number, found = self._done.get()
        if number is not None:
            self._waiting[number] = found
            return
        self._nleft -= 1
        if found[1] is not None:
            raise found[1]

    def _deliver(
        self,
        results: list[Any],
        failure: BaseException | None,
        deliver: Callable[[Any], _Rest],
    ) -> None:
        for result in results:
            rest = deliver(result)
            if rest is not None:
                self._todo.put((None, [rest]))
                self._nleft += 1
        if failure is not None:
            raise failure

    def _start_helper(self) -> None:
        if len(self._helpers) < self._nhelpers:
            name = "bloscpack-%d" % (len(self._helpers) + 1)
            helper = threading.Thread(target=self._help, name=name, daemon=True)
            # Listed first: Ctrl-C may come while it starts, and it must not be lost.
            self._helpers.append(helper)
            try:
                helper.start()
            except RuntimeError:  # no more threads to be had: go on with these
                self._helpers.pop()
                self._nhelpers = len(self._helpers)

    def close(self) -> None:
        """Forget what no helper has begun, and wait for the helpers to end."""
        interruption = None
        while True:
            try:
                self._end()
                break
            except BaseException as error:  # Ctrl-C again: first let them end
                interruption = error
        if interruption is not None:
            raise interruption

    def _end(self) -> None:
        while self._take_job() is not None:
            pass
        # Each takes one and ends; more than one for each do no harm.
        for _ in self._helpers:
            self._todo.put(None)
        for helper in self._helpers:
            if helper.is_alive():  # Ctrl-C may have come before it was
                helper.join()


class Workspace(threading.local):
    """Memory that each thread uses again and again, so that it stays in its cache."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def view(self, size: int) -> memoryview:
        """Return `size` bytes of any value; they are void after the next call."""
        if len(self._buffer) < size:
            self._buffer = bytearray(size)
        return memoryview(self._buffer)[:size]
