"""Threads: `ordered`, a parallel map in order and bounded memory, and tasks ahead.

`ordered` takes the items and delivers the results in the thread of the caller, in
order, so sources and sinks need no locks. While enough items are under way, that thread
does work like the other ones. An error is raised in the order of the items, as if a
single thread had done all work.

The other threads are workers of a pool that lives as long as the process. They start
when they are needed, never more than the widest call asks for, and are shared by all
calls. A call does its own work and gets the help of the workers that are free, so it
depends on none of them: calls may be nested, and a process whose system has no more
threads gets everything done. When a call returns or raises an error, no worker works on
its items or keeps them.

In `Ahead`, workers do tasks ahead of the thread that needs their results. It does not
drive the work: `ordered` does, or another caller. The caller submits tasks at any
time, keeps them in order, and bounds their number. A thread that waits for a result
works on other tasks.
"""

from __future__ import annotations

import os
import sys
import threading
from _thread import RLock, allocate_lock, get_ident, start_new_thread
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial, wraps
from itertools import islice
from queue import SimpleQueue
from time import perf_counter, sleep
from typing import Any, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Item = TypeVar("Item")

Result = TypeVar("Result")

# The results of the items of a batch, and the error that ended it early.
_Results = tuple[list[Any], Exception | None]

# Maximum number of batches under way per thread: taken from the source, but not
# delivered. It bounds the memory for items and results.
WINDOW = 2
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


def ordered(
    items: Iterable[Item],
    work: Callable[[Item], Result],
    deliver: Callable[[Result], object],
    nthreads: int,
    batch: int = 1,
    quick: bool = False,
    waits: bool = False,
) -> None:
    """Call ``deliver(work(item))`` for each item, with `work` on `nthreads` threads.

    The thread of the caller takes the items and calls `deliver`, both in order.

    `batch` is the number of items that a thread gets at a time. `quick` says that the
    work on an item may be too short for threads to help; then the caller works alone
    until it has measured that the work is long enough. `waits` says that the work waits
    for another machine.

    Raises the error of the first item, in order, whose taking, work or delivery fails.
    """
    items = iter(items)
    if nthreads > 1 and quick:
        nthreads = _work_while_quick(items, work, deliver, nthreads)
    if nthreads <= 1:
        for item in items:
            deliver(work(item))
        return
    line = Line(work, deliver, nthreads, waits=waits)
    failure = None
    try:
        while failure is None:
            taken: list[Item] = []
            try:
                # extend() keeps the items before an error; list(islice()) loses them.
                taken.extend(islice(items, batch))
            except Exception as error:
                failure = error
            if not taken:
                break
            line.put(taken)
        line.finish()
        if failure is not None:
            raise failure
    finally:
        failure = None  # a frame that keeps its own error keeps all memory of the call
        line.close()


def _work_while_quick(
    items: Iterator[Item],
    work: Callable[[Item], Result],
    deliver: Callable[[Result], object],
    nthreads: int,
) -> int:
    """Work in this thread while items are quick.

    Return the number of threads for the items that are left.
    """
    slow, size = 0, 1
    while slow < SLOW_IN_A_ROW:
        count, start = 0, perf_counter()
        for item in islice(items, size):
            deliver(work(item))
            count += 1
        if count < size:
            return 1
        if perf_counter() - start > WORTH_A_THREAD * count:
            slow, size = slow + 1, 1
        else:
            slow, size = 0, min(2 * size, QUICK_AT_A_TIME)
    return nthreads


class Line:
    """Batches of items on their way through `work`, on several threads, to `deliver`.

    `ordered` puts all items of a source into a line. A caller whose items arrive one by
    one puts them itself, then calls `finish`, and always `close`. `deliver` is called
    by the thread that puts.
    """

    def __init__(
        self,
        work: Callable[[Any], object],
        deliver: Callable[[Any], object],
        nthreads: int,
        *,
        waits: bool = False,
    ) -> None:
        self._work, self._deliver = work, deliver
        self._ahead = Ahead(nthreads, spare=1, waits=waits)
        self._most = WINDOW * max(nthreads, 1)
        self._under_way: deque[Task] = deque()

    def put(self, batch: Sequence[Any]) -> None:
        """Let a thread work on items, and deliver what is due.

        Raises the error of the work on an item, or of its delivery, when it is due.
        """
        self._under_way.append(self._ahead.submit(partial(self._work_on, batch)))
        self.finish(self._most - 1)

    def finish(self, most: int = 0) -> None:
        """Deliver everything but the last `most` batches, and these as far as done."""
        waiting = self._under_way
        while waiting and (len(waiting) > most or waiting[0].is_done):
            self._deliver_next()

    def close(self) -> None:
        """Drop what was not delivered, and wait for the threads."""
        self._ahead.close()
        while self._under_way:
            self._under_way.pop().forget()

    def _work_on(self, batch: Sequence[Any]) -> _Results:
        results: list[Any] = []
        try:
            for item in batch:
                results.append(self._work(item))
        except Exception as error:
            return results, error
        return results, None

    def _deliver_next(self) -> None:
        results, failure = self._ahead.result(self._under_way.popleft())
        for result in results:
            self._deliver(result)
        if failure is not None:
            try:
                raise failure
            finally:
                # A frame that keeps its own error would keep all memory of the call.
                failure = None


def run_length(nitems: int, item_nbytes: int, nthreads: int, most: int = RUN) -> int:
    """Return the number of adjacent items that a thread gets: `batch` of `ordered`.

    An item has `item_nbytes` plain bytes, a run at most about `most`. Numbers below 1
    mean an unknown value.
    """
    fair = nitems // (nthreads * RUNS_PER_THREAD)
    return max(1, min(most // item_nbytes, fair)) if item_nbytes > 0 else 1


# In a worker, ``buffers`` lists those that it has, and drops when it waits; ``caller``
# is the thread that it works for.
_kept = threading.local()


def get_caller() -> int:
    """Return the number of this thread; in a worker, of the thread that it works for.

    A thread that works on the task of another call while it waits goes on as itself.
    """
    return getattr(_kept, "caller", 0) or threading.get_ident()


class Workspace(threading.local):
    """A buffer for each thread, reused for each item so that it stays in the cache."""

    _buffer = memoryview(b"")

    def view(self, size: int) -> memoryview:
        """Return `size` bytes of any value, valid until the thread calls this again."""
        buffer = self._buffer
        if len(buffer) < size:
            import numpy

            memory: Any = numpy.empty(size, "u1")  # which is not filled with zeros
            buffer = self._buffer = memoryview(memory)
            getattr(_kept, "buffers", []).append(self.__dict__)
        return buffer[:size]


class Task:
    """A call of a function in any thread; `Ahead.result` returns its result."""

    __slots__ = ("_call", "_claimed", "_done", "_error", "_result", "thread")

    def __init__(self, call: Callable[[], object]) -> None:
        self._call: Callable[[], object] | None = call
        self._claimed = allocate_lock()
        self._done = allocate_lock()
        self._done.acquire()
        self._error: BaseException | None = None
        self._result: object = None
        self.thread = 0  # the thread that works on it

    def run(self) -> None:
        """Call the function, unless another thread does or has done so."""
        call = self._call
        if call is None or not self._claimed.acquire(blocking=False):
            return
        self.thread = get_ident()
        try:
            self._result = call()
        except BaseException as error:
            self._error = error
            if not isinstance(error, Exception):  # Ctrl-C does not wait for its turn
                raise
        finally:
            self._call = None  # frees the item
            self._done.release()

    def cancel(self) -> bool:
        """Let no thread begin; return False if one has begun already."""
        return self._claimed.acquire(blocking=False)

    def forget(self) -> None:
        """Drop the result: an error refers to the frame of `run`, and that to this."""
        self._result = self._error = None

    @property
    def is_done(self) -> bool:
        """Whether the function has returned or raised an error."""
        return self._call is None

    def join(self) -> None:
        """Wait for a task that a thread works on."""
        while not self.is_done:
            if self._done.acquire(timeout=1):  # without, Windows handles no Ctrl-C
                self._done.release()

    def wait(self) -> Any:
        """Return the result, or raise the error, of a task that a thread works on."""
        self.join()
        if self._error is not None:
            raise self._error
        result, self._result = self._result, None  # a worker may have the task still
        return result


# The calls that go on after a second Ctrl-C, and that all later ones wait for.
_going_on: list[Task] = []


def in_thread(
    function: Callable[Arguments, Result], *, must_end: bool = False
) -> Callable[Arguments, Result]:
    """Return a function that does the same in a thread which gets no Ctrl-C.

    Ctrl-C may leave a lock locked, for which the threads of a library wait for ever.
    Here it is raised in the caller only, and the function goes on. If it `must_end`, as
    it changes what others read, Ctrl-C is raised when it has ended. A second one is
    raised at once, and the next calls wait.
    """

    @wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        for task in tuple(_going_on):
            if task.thread != get_ident():  # it makes this call itself
                task.join()
                with suppress(ValueError):  # another thread has waited, too
                    _going_on.remove(task)
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or sys.is_finalizing():  # when Python ends, no thread runs
            return function(*args, **kwargs)
        task = Task(partial(function, *args, **kwargs))

        def run() -> None:
            with suppress(BaseException):  # raised by `wait`
                task.run()

        try:
            try:
                start_new_thread(run, ())
            except RuntimeError:  # the system has no more threads
                run()
            result: Result = task.wait()
        except BaseException:
            if not task.cancel() and must_end:
                try:
                    task.join()
                except BaseException:
                    _going_on.append(task)
            raise
        finally:
            task.forget()
        return result

    return call


class Ahead:
    """Tasks that workers of the pool do ahead of the thread that needs the results.

    `nthreads` counts the thread of the caller: with 1 no worker helps, and each task is
    done when its result is needed. No worker is woken for `spare` tasks, because the
    caller works, too. `waits` says that the tasks wait for another machine: they have
    workers of their own.
    """

    def __init__(self, nthreads: int, *, spare: int = 0, waits: bool = False) -> None:
        self._pool = _pools[waits]
        self._caller = get_caller()
        self._tasks: deque[Task] = deque()
        self._max_workers = nthreads - 1
        self._spare = spare
        # An entry for each worker that may be asked for help.
        self._unasked = [None] * self._max_workers
        # A lock for each worker that works here, which holds it.
        self._working: list[RLock] = []

    def submit(self, call: Callable[[], object]) -> Task:
        """Let a thread call a function soon; return the task."""
        task = Task(call)
        if self._max_workers > 0:
            self._tasks.append(task)
            if self._unasked and len(self._tasks) > self._spare:
                self._ask()
        return task

    def result(self, task: Task) -> Any:
        """Return the result of a task, or raise its error; work on it if none does."""
        task.run()
        while not task.is_done and (other := self._take()) is not None:
            other.run()
        return task.wait()

    def help(self) -> None:
        """Work on the tasks, in a worker, until there are none or others want help."""
        working = RLock()
        with working:
            _kept.caller = self._caller
            self._working.append(working)
            while (task := self._take()) is not None:
                with suppress(BaseException):  # raised where the result is needed
                    task.run()
                del task  # a worker that waits keeps no result
                if not self._pool.asked.empty():
                    break
            self._working.remove(working)
            _kept.caller = 0
        self._unasked.append(None)
        if self._tasks:
            self._ask()

    def drop(self) -> None:
        """Drop the tasks that no thread has begun."""
        self._tasks.clear()

    def close(self) -> None:
        """Drop the tasks that no thread has begun, and wait for the other ones."""
        failure = None
        while True:
            try:
                self.drop()
                # A child process has no workers of its parent. At the end of Python,
                # daemon threads do not run any more. A finalizer may close in a worker.
                if self._pool in _pools and not sys.is_finalizing():
                    for working in tuple(self._working):
                        with working:
                            pass
                break
            except BaseException as error:  # Ctrl-C: raised when all have ended
                failure = error
        try:
            if failure is not None:
                raise failure
        finally:
            failure = None  # see `ordered`

    def _ask(self) -> None:
        with suppress(IndexError):  # another thread has just asked the last worker
            self._unasked.pop()
            self._pool.ask(self, self._max_workers)

    def _take(self) -> Task | None:
        """Return a task that no worker has taken; None if there is none."""
        try:
            return self._tasks.popleft()
        except IndexError:
            return None


class _Pool:
    """Worker threads, which start when they are needed, and then wait for more work.

    A caller never waits for a worker to be free. No state needs a lock, which a child
    process might inherit, or an error of a signal handler leave locked.
    """

    def __init__(self) -> None:
        # The calls that want a worker, each once for a worker; None ends a worker.
        self.asked: SimpleQueue[Ahead | None] = SimpleQueue()
        self._workers: list[threading.Thread] = []
        # An entry for each worker that waits, and for each request it has not got. A
        # worker removes the first entry first: there is never too little help.
        self._idle: list[None] = []
        self._unserved: list[None] = []
        self._starting = RLock()  # a finalizer may ask while a worker starts

    def ask(self, ahead: Ahead, most: int) -> None:
        """Let a worker help; start one if none waits and fewer than `most` exist."""
        self._unserved.append(None)
        self.asked.put(ahead)
        # At the end of Python, a thread would never start. Without a thread of the
        # system, the caller works alone.
        if len(self._unserved) <= len(self._idle) or sys.is_finalizing():
            return
        with self._starting, suppress(RuntimeError):
            self._workers = [each for each in self._workers if each.is_alive()]
            if len(self._workers) < most:
                name = "bloscpack-worker"
                worker = threading.Thread(target=self._work, name=name, daemon=True)
                # Listed before it starts: Ctrl-C may come during the start.
                self._workers.append(worker)
                worker.start()

    def _work(self) -> None:
        buffers: list[dict[str, object]] = []
        _kept.buffers = buffers
        while True:
            self._idle.append(None)
            ahead = self.asked.get()
            self._idle.pop()
            if ahead is None:
                return
            self._unserved.pop()
            ahead.help()
            del ahead
            while buffers:
                buffers.pop().clear()

    def end_workers(self) -> None:
        """End the workers if all of them wait: Python warns if threads fork."""
        workers = [each for each in self._workers if each.is_alive()]
        if not _soon(lambda: len(self._idle) >= len(workers) and self.asked.empty()):
            return
        for _ in workers:
            self.asked.put(None)
        for worker in workers:
            worker.join(0.1)  # another thread may have just given it work
        # `join` of Python 3.12 returns while the thread ends.
        paths = ["/proc/self/task/%s" % each.native_id for each in workers]
        _soon(lambda: not any(map(os.path.exists, paths)))


def _soon(holds: Callable[[], bool]) -> bool:
    """Return whether a condition holds, now or while other threads go on."""
    for _ in range(1000):
        if holds():
            return True
        sleep(0)
    return False


# For tasks that compute, and for tasks that wait for another machine.
_pools = _Pool(), _Pool()


def _end_workers() -> None:
    for pool in _pools:
        pool.end_workers()


def _renew_pools() -> None:
    global _pools
    _pools = _Pool(), _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_end_workers, after_in_child=_renew_pools)
