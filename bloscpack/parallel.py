"""Doing the same to many things on several threads, results in order.

Every thread, that of the caller among them, takes the next item, works on it, and
hands its result over; nobody only coordinates. Items are taken one at a time and in
order, results are delivered one at a time and in order, so that an error is the one
that a single thread would have met. Memory is bounded by a window, and no thread
outlives the call, however it ends.
"""

from __future__ import annotations

import os
import threading

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

# How far ahead of the oldest unfinished item a thread may be, per thread.
WINDOW = 2


def available_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def for_each(
    items: Iterable[Any],
    work: Callable[[Any], Any],
    deliver: Callable[[Any], None],
    nthreads: int,
) -> None:
    """Call ``deliver(work(item))`` for each item, `work` on `nthreads` threads.

    Items are taken and results delivered in order and one at a time, though not
    always by the same thread. The first item, in that order, whose taking, work or
    delivery raises ends everything, and its error is raised.
    """
    if nthreads <= 1:
        for item in items:
            deliver(work(item))
        return
    line = _Line(items, work, deliver, WINDOW * nthreads)
    helpers = [
        threading.Thread(target=line.run, name="bloscpack-%d" % i, daemon=True)
        for i in range(1, nthreads)
    ]
    try:
        for helper in helpers:
            helper.start()
        line.run()
    except BaseException as error:
        # Ctrl-C, or no more threads to be had: the others only finish their item.
        line.stop(error)
        raise
    finally:
        for helper in helpers:
            if helper.ident is not None:
                helper.join()
    if line.error is not None:
        raise line.error


class _Line:
    """The state that the threads of one `for_each` share."""

    def __init__(
        self,
        items: Iterable[Any],
        work: Callable[[Any], Any],
        deliver: Callable[[Any], None],
        window: int,
    ) -> None:
        self.error: BaseException | None = None
        self._items = iter(items)
        self._work = work
        self._deliver = deliver
        self._window = window
        self._taking = threading.Lock()
        self._taken = 0
        self._stopped = False
        # Guards the results that wait for an older one, and who delivers them.
        self._giving = threading.Condition()
        self._results: dict[int, tuple[Any, BaseException | None]] = {}
        self._delivered = 0
        self._delivering = False

    def stop(self, error: BaseException) -> None:
        """Let no thread take another item or deliver another result."""
        with self._giving:
            self.error = error
            self._stopped = True
            self._giving.notify_all()

    def run(self) -> None:
        """Take, work and hand over until there are no more items."""
        while True:
            result, error = None, None
            with self._taking:
                if self._stopped:
                    return
                number = self._taken
                try:
                    item = next(self._items)
                except StopIteration:
                    self._stopped = True
                    return
                except Exception as raised:
                    self._stopped = True
                    error = raised
                self._taken += 1
            if error is None:
                try:
                    result = self._work(item)
                except Exception as raised:
                    self._stopped = True
                    error = raised
            self._hand_over(number, result, error)

    def _hand_over(self, number: int, result: Any, error: BaseException | None) -> None:
        with self._giving:
            self._results[number] = result, error
            while number - self._delivered >= self._window and self.error is None:
                self._giving.wait()
            if self._delivering:
                return  # whoever delivers finds this result too
            self._delivering = True
        while True:
            with self._giving:
                if self._delivered not in self._results or self.error is not None:
                    self._delivering = False
                    return
                result, error = self._results.pop(self._delivered)
                self._delivered += 1
                self._giving.notify_all()
            if error is None:
                try:
                    self._deliver(result)
                except Exception as raised:
                    error = raised
            if error is not None:
                self.stop(error)
