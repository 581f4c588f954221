"""Tasks that worker threads do ahead of the thread that needs their results.

Strategy: unlike `for_each`, nothing here drives the work. The caller submits tasks
whenever it likes, keeps them in order, and bounds their number. A thread that waits for
a result works on other tasks, so a single thread gets everything done, and
so does a process whose system has no more threads.
"""

from __future__ import annotations

import sys
import threading
from _thread import allocate_lock
from queue import Empty, SimpleQueue

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


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
