"""Threads: `for_each`, an ordered parallel map in bounded memory, and tasks ahead.

`for_each` takes the items and delivers the results in the thread of the caller, in
order, so sources and sinks need no locks. While enough items are under way, that thread
does work like the other ones. An error is raised in the order of the items, as if a
single thread had done all work. No thread outlives the call.

In `Ahead`, worker threads do tasks ahead of the thread that needs their results. Unlike
`for_each`, it does not drive the work. The caller submits tasks at any time, keeps them
in order, and bounds their number. A thread that waits for a result works on other
tasks, so a single thread gets everything done, and so does a process whose system has
no more threads.
"""

from __future__ import annotations

import sys
import threading
from _thread import allocate_lock
from collections.abc import Callable, Iterable
from itertools import islice
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, TypeVar

Item = TypeVar("Item")

Result = TypeVar("Result")

# A function that `deliver` returns, to be called in any thread; None for nothing.
Deferred = Callable[[], object] | None

# The classes below do not depend on the types of items and results.
_Work = Callable[[Any], object]

_Deliver = Callable[[Any], Deferred]

# A batch of items with its number, or a list of one deferred function with None.
_Job = tuple[int | None, list[object]]

# The results of the items of a batch, and the error that ended it early.
_Results = tuple[list[object], BaseException | None]

# Maximum number of batches under way per thread: taken from the source, but not
# delivered. It bounds the memory for items and results.
WINDOW = 3
# Maximum number of plain bytes of adjacent chunks that one thread gets at a time, where
# it stores the results itself. The system allocates memory in huge pages: two threads
# that are the first to touch the same page wait for each other.
RUN = 8 * 2**20
# Minimum number of runs for each thread: all threads then end at about the same time.
RUNS_PER_THREAD = 4
# Minimum time in seconds that an item must take before threads help: handing an item to
# another thread takes about as long.
WORTH_A_THREAD = 100e-6
# Number of slow batches in a row that start the threads. A single one may be slow
# because the system interrupted it, or because it touched new memory.
SLOW_IN_A_ROW = 4
# Maximum number of items timed together: `perf_counter` has a cost.
QUICK_AT_A_TIME = 32


def for_each(
    items: Iterable[Item],
    work: Callable[[Item], Result],
    deliver: Callable[[Result], Deferred],
    nthreads: int,
    batch: int = 1,
    quick: bool = False,
) -> None:
    """Call ``deliver(work(item))`` for each item, with `work` on `nthreads` threads.

    The thread of the caller takes the items and calls `deliver`, both in order.
    `deliver` may return a function, which is then called in any thread and in any
    order: it finishes the delivery, for example by writing at a position.

    `batch` is the number of items that a thread gets at a time. `quick` says that the
    work on an item may be too short for threads to help; then the caller works alone
    until it has measured that the work is long enough.

    Raises the error of the first item, in order, whose taking, work or delivery fails.
    """
    if nthreads <= 1:
        for item in items:
            deferred = deliver(work(item))
            if deferred is not None:
                deferred()
        return
    batches = _BatchSource(items, batch)
    if quick and _work_while_quick(batches, work, deliver):
        return
    pool = _WorkerPool(work, nthreads)
    try:
        pool.run(batches, deliver)
    finally:
        pool.close()


def run_length(nitems: int, item_nbytes: int, nthreads: int, most: int = RUN) -> int:
    """Return the number of adjacent items that a thread gets: `batch` of `for_each`.

    An item has `item_nbytes` plain bytes, a run at most about `most`. Numbers below 1
    mean an unknown value.
    """
    fair = nitems // (nthreads * RUNS_PER_THREAD)
    return max(1, min(most // item_nbytes, fair)) if item_nbytes > 0 else 1


def _call(deferred: Deferred) -> None:
    if deferred is not None:
        deferred()


class _BatchSource:
    """Items in lists; ``error`` is the exception that ended the items early."""

    def __init__(self, items: Iterable[object], size: int) -> None:
        self._items = iter(items)
        self._size = size
        self.ended = False
        self.error: Exception | None = None

    def take(self, size: int | None = None) -> list[object]:
        """Return the next items; set ``ended`` if there are fewer than `size`."""
        size = self._size if size is None else size
        taken: list[object] = []
        try:
            # extend() keeps the items before an error; list(islice()) would lose them.
            taken.extend(islice(self._items, size))
        except Exception as error:
            self.error = error
        self.ended = len(taken) < size
        return taken


def _work_while_quick(batches: _BatchSource, work: _Work, deliver: _Deliver) -> bool:
    """Work in this thread while items are quick; return whether all items are done."""
    slow = 0
    size = 1
    while not batches.ended:
        items = batches.take(size)
        start = perf_counter()
        for item in items:
            deferred = deliver(work(item))
            if deferred is not None:
                deferred()
        is_slow = perf_counter() - start > WORTH_A_THREAD * len(items)
        if is_slow:
            slow, size = slow + 1, 1
        else:
            slow, size = 0, min(2 * size, QUICK_AT_A_TIME)
        if slow == SLOW_IN_A_ROW:
            break
    if batches.error is not None:
        raise batches.error
    return batches.ended


class _WorkerPool:
    """The worker threads of one `for_each`, and the queues to and from them."""

    def __init__(self, work: _Work, nthreads: int) -> None:
        from queue import SimpleQueue

        self._work = work
        self._window = WINDOW * nthreads
        # None ends a worker.
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[int | None, _Results]] = SimpleQueue()
        # Results of batches that are done before an earlier one is.
        self._early: dict[int, _Results] = {}
        self._ndeferred = 0
        self._workers: list[threading.Thread] = []
        self._max_workers = nthreads - 1  # and the thread of the caller

    def _work_until_closed(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                self._do(*job)
            except BaseException as error:
                self._done.put((job[0], ([], error)))

    def _do(self, number: int | None, items: list[object]) -> None:
        results: list[object] = []
        failure = None
        work: _Work = _call if number is None else self._work
        try:
            for item in items:
                results.append(work(item))
        except Exception as error:
            failure = error
        self._done.put((number, (results, failure)))

    def _take_job(self) -> _Job | None:
        """Return a job that no worker has taken; None if there is none."""
        from queue import Empty

        try:
            return self._jobs.get_nowait()
        except Empty:
            return None

    def run(self, batches: _BatchSource, deliver: _Deliver) -> None:
        """Take, work and deliver until there are no more items."""
        taken = delivered = 0
        while not batches.ended or delivered < taken or self._ndeferred:
            under_way = taken - delivered + self._ndeferred
            if not batches.ended and under_way < self._window:
                items = batches.take()
                if not items:
                    continue
                self._jobs.put((taken, items))
                self._start_worker()
                taken += 1
            elif delivered not in self._early:
                job = self._take_job() if self._done.empty() else None
                if job is not None:
                    self._do(*job)
                self._receive()
            while delivered in self._early:
                self._deliver(*self._early.pop(delivered), deliver)
                delivered += 1
            while not self._done.empty():
                self._receive()
        # All items before the error have been delivered.
        if batches.error is not None:
            raise batches.error

    def _receive(self) -> None:
        """Wait for a job that is done; raise the error of a deferred function."""
        number, results = self._done.get()
        if number is not None:
            self._early[number] = results
            return
        self._ndeferred -= 1
        if results[1] is not None:
            raise results[1]

    def _deliver(
        self, results: list[object], failure: BaseException | None, deliver: _Deliver
    ) -> None:
        for result in results:
            deferred = deliver(result)
            if deferred is not None:
                self._jobs.put((None, [deferred]))
                self._ndeferred += 1
        if failure is not None:
            raise failure

    def _start_worker(self) -> None:
        if len(self._workers) < self._max_workers:
            name = "bloscpack-%d" % (len(self._workers) + 1)
            worker = threading.Thread(
                target=self._work_until_closed, name=name, daemon=True
            )
            # Listed before it starts: Ctrl-C may come during the start, and `close`
            # must wait for the thread then.
            self._workers.append(worker)
            try:
                worker.start()
            except RuntimeError:  # the system has no more threads: use those there are
                self._workers.pop()
                self._max_workers = len(self._workers)

    def close(self) -> None:
        """Drop the jobs that no worker has begun, and wait for the workers to end."""
        interruption = None
        while True:
            try:
                self._end()
                break
            except BaseException as error:  # Ctrl-C again: raised when all have ended
                interruption = error
        if interruption is not None:
            raise interruption

    def _end(self) -> None:
        while self._take_job() is not None:
            pass
        # One for each worker. A second call of this method puts more, which does no
        # harm.
        for _ in self._workers:
            self._jobs.put(None)
        for worker in self._workers:
            if worker.is_alive():  # Ctrl-C may have come before it started
                worker.join()


class Workspace(threading.local):
    """A buffer for each thread, reused for each item so that it stays in the cache."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def view(self, size: int) -> memoryview:
        """Return `size` bytes of any value, valid until the thread calls this again."""
        if len(self._buffer) < size:
            self._buffer = bytearray(size)
        return memoryview(self._buffer)[:size]


class Task:
    """A call of a function in any thread; `Ahead.result` returns its result."""

    __slots__ = ("_call", "_claimed", "_done", "_error", "_result")

    def __init__(self, call: Callable[[], object]) -> None:
        self._call: Callable[[], object] | None = call
        self._claimed = allocate_lock()
        self._done = allocate_lock()
        self._done.acquire()
        self._error: BaseException | None = None
        self._result: object = None

    def run(self) -> None:
        """Call the function, unless another thread does or has done so."""
        call = self._call
        if call is None or not self._claimed.acquire(blocking=False):
            return
        try:
            self._result = call()
        except BaseException as error:
            self._error = error
        finally:
            self._call = None  # frees the item
            self._done.release()

    @property
    def is_done(self) -> bool:
        """Whether the function has returned or raised an error."""
        return not self._done.locked()

    def wait(self) -> Any:
        """Return the result, or raise the error, of a task that a thread works on."""
        with self._done:
            pass
        if self._error is not None:
            raise self._error
        return self._result


class Ahead:
    """Worker threads, which start with the first tasks and end with `close`.

    `nthreads` counts the thread of the caller: with 1 there is no worker, and each task
    is done when its result is needed.
    """

    def __init__(self, nthreads: int) -> None:
        # None ends a worker.
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._workers: list[threading.Thread] = []
        self._max_workers = nthreads - 1

    def submit(self, call: Callable[[], object]) -> Task:
        """Let a thread call a function soon; return the task."""
        task = Task(call)
        if self._max_workers > 0:
            self._tasks.put(task)
            self._start_worker()
        return task

    def result(self, task: Task) -> Any:
        """Return the result of a task, or raise its error; work on it if none does."""
        task.run()
        while not task.is_done and (other := self._take()) is not None:
            other.run()
        return task.wait()

    def _take(self) -> Task | None:
        """Return a task that no worker has taken; None if there is none."""
        try:
            return self._tasks.get_nowait()
        except Empty:
            return None

    def _start_worker(self) -> None:
        if len(self._workers) >= self._max_workers:
            return
        # It must not refer to this object, which would then never be collected.
        worker = threading.Thread(
            target=_work,
            args=(self._tasks,),
            name="bloscpack-ahead-%d" % (len(self._workers) + 1),
            daemon=True,
        )
        try:
            worker.start()
        except RuntimeError:  # the system has no more threads, or Python ends
            self._max_workers = len(self._workers)
        else:
            self._workers.append(worker)

    def close(self) -> None:
        """Drop the tasks that no thread has begun, and wait for the workers to end."""
        self._end()
        if not sys.is_finalizing():  # daemon threads do not run any more then
            for worker in self._workers:
                worker.join()
        self._workers = []

    def _end(self) -> None:
        while self._take() is not None:
            pass
        for _ in self._workers:
            self._tasks.put(None)

    def __del__(self) -> None:
        self._end()


def _work(tasks: SimpleQueue[Task | None]) -> None:
    while (task := tasks.get()) is not None:
        task.run()
        del task  # a thread that waits for the next task keeps no result
