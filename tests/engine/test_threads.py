"""The ordered parallel map: order of results, memory bounds, errors, interruptions."""

import gc
import os
import signal
import sys
import threading
import time
import weakref
from contextlib import nullcontext

import pytest
from engine.workers import at_work, end_workers, listed_starts, workers
from support import run_python, run_silently

from bloscpack._engine.threads import WINDOW, Ahead, Line, in_thread, ordered


def double(number):
    return 2 * number


def nothing(result):
    """Take a result and forget it."""


def results_of(items, work, nthreads):
    """Return what is delivered."""
    results = []
    ordered(items, work, results.append, nthreads)
    return results


@pytest.fixture(autouse=True)
def workers_of_other_tests():
    """Wait for what the tests before have left to the workers, as to read ahead."""
    while at_work():
        time.sleep(0.01)


@pytest.fixture
def starts(monkeypatch):
    """There is no worker. Each thread that starts is listed."""
    return listed_starts(monkeypatch)


THREADS = pytest.mark.parametrize("nthreads", [0, 1, 2, 3, 8])


@THREADS
@pytest.mark.parametrize("count", [0, 1, 2, 7, 100])
def test_results_in_order(nthreads, count):
    assert [2 * i for i in range(count)] == results_of(range(count), double, nthreads)
    assert [] == at_work()


def test_order_does_not_depend_on_who_is_first():
    # The first is not done before the second is.
    second_done = threading.Event()

    def work(number):
        if number == 0:
            assert second_done.wait(120)
        if number == 1:
            second_done.set()
        return number

    assert [0, 1, 2, 3] == results_of(range(4), work, 2)


@pytest.mark.parametrize("nthreads", [2, 5])
def test_threads_work_at_the_same_time(nthreads):
    barrier = threading.Barrier(nthreads, timeout=120)

    def work(number):
        barrier.wait()
        return threading.get_ident()

    idents = results_of(range(nthreads), work, nthreads)
    assert nthreads == len(set(idents))
    assert threading.get_ident() in idents


@pytest.mark.parametrize("nthreads", [0, 1])
def test_one_thread_is_that_of_the_caller(nthreads):
    idents = results_of(range(3), lambda number: threading.get_ident(), nthreads)
    assert {threading.get_ident()} == set(idents)


class Alone:
    """Notices when two threads are inside at the same time."""

    def __init__(self):
        self._lock = threading.Lock()
        self.violated = False

    def __enter__(self):
        if not self._lock.acquire(blocking=False):
            self.violated = True
            self._lock.acquire()

    def __exit__(self, *exc_info):
        self._lock.release()


@THREADS
def test_items_and_results_are_handed_over_one_at_a_time(nthreads):
    taking, giving = Alone(), Alone()

    def items():
        for i in range(500):
            with taking:
                yield_this = i
            yield yield_this

    results = []

    def deliver(result):
        with giving:
            results.append(result)

    ordered(items(), double, deliver, nthreads)
    assert [2 * i for i in range(500)] == results
    assert not taking.violated
    assert not giving.violated


@THREADS
def test_few_items_are_on_their_way(nthreads):
    taken = given = most = 0

    def items():
        nonlocal taken, most
        for i in range(1000):
            taken += 1
            most = max(most, taken - given)
            yield i

    def deliver(result):
        nonlocal given
        given += 1

    ordered(items(), double, deliver, nthreads)
    assert 1000 == taken == given
    # Every thread may hold one item beyond the window.
    assert 1 <= most <= (WINDOW + 1) * max(nthreads, 1) + 1


@THREADS
def test_a_slow_first_item_stops_the_others(nthreads):
    """Threads work at most one window ahead of the oldest item."""
    taken = 0
    enough = threading.Event()

    def items():
        nonlocal taken
        for i in range(1000):
            taken += 1
            yield i

    def work(number):
        if number == 0:
            # Until the others stand still, or for a moment.
            enough.wait(0.2)
            return taken
        return 0

    first = results_of(items(), work, nthreads)[0]
    assert 1 <= first <= (WINDOW + 1) * max(nthreads, 1)


# Errors


@THREADS
@pytest.mark.parametrize("where", ["items", "work", "deliver"])
@pytest.mark.parametrize("bad", [0, 3, 9])
def test_errors(nthreads, where, bad):
    """The first in order is raised, as a single thread would have met it."""

    def fail(place, number):
        if place == where and number >= bad:
            raise KeyError(number)
        return number

    results = []
    with pytest.raises(KeyError) as raised:
        ordered(
            (fail("items", number) for number in range(10)),
            lambda number: fail("work", number),
            lambda number: results.append(fail("deliver", number)),
            nthreads,
        )
    assert (bad,) == raised.value.args
    assert list(range(bad)) == results
    assert [] == at_work()


@THREADS
def test_a_line_delivers_in_order_what_is_put_into_it(nthreads):
    results = []
    line = Line(lambda number: 2 * number, results.append, nthreads)
    for start in range(0, 90, 3):
        line.put(range(start, start + 3))
    line.finish()
    line.close()
    assert list(range(0, 180, 2)) == results
    assert [] == at_work()


@THREADS
def test_a_line_that_is_closed_early_leaves_nothing_at_work(nthreads):
    line = Line(lambda _: time.sleep(0.01), nothing, nthreads)
    for _ in range(20):
        line.put([1])
    line.close()
    assert [] == at_work()


@THREADS
def test_an_older_item_fails_after_a_younger_one(nthreads):
    younger_failed = threading.Event()

    def work(number):
        if number == 0:
            if nthreads > 1:
                assert younger_failed.wait(120)
            raise KeyError(number)
        younger_failed.set()
        raise KeyError(number)

    with pytest.raises(KeyError) as raised:
        ordered(range(100), work, nothing, nthreads)
    assert (0,) == raised.value.args


@THREADS
def test_an_error_ends_everything(nthreads):
    taken = 0

    def items():
        nonlocal taken
        for i in range(10**6):
            taken += 1
            yield i

    def work(number):
        if number == 5:
            raise KeyError(number)

    with pytest.raises(KeyError):
        ordered(items(), work, nothing, nthreads)
    assert 5 < taken <= 6 + (WINDOW + 1) * max(nthreads, 1)
    assert [] == at_work()


class Interruption(BaseException):
    """What Ctrl-C raises, in the thread of the caller."""


@THREADS
@pytest.mark.parametrize("where", ["items", "work", "deliver"])
def test_interruption(nthreads, where):
    """It reaches the caller at once, and no thread is left at work."""
    caller = threading.get_ident()

    def interrupt(place):
        # As a signal does: only the thread of the caller is interrupted.
        if place == where and threading.get_ident() == caller:
            raise Interruption

    def items():
        for i in range(10**5):
            interrupt("items")
            yield i

    def work(number):
        interrupt("work")
        return number

    with pytest.raises(Interruption):
        ordered(items(), work, lambda result: interrupt("deliver"), nthreads)
    assert [] == at_work()


def test_interrupted_again_and_again_while_it_ends(monkeypatch):
    """Whatever Ctrl-C hits on the way out, no thread is left at work."""
    left = iter(range(2 * sys.getrecursionlimit()))
    drop = Ahead.drop

    def interrupted(ahead):
        if next(left, None) is not None:
            raise Interruption
        drop(ahead)

    def deliver(result):
        monkeypatch.setattr(Ahead, "drop", interrupted)
        raise Interruption

    with pytest.raises(Interruption):
        ordered(range(1000), double, deliver, 4)
    assert None is next(left, None)
    assert [] == at_work()


def test_interruption_of_another_thread():
    """Any error of a thread reaches the caller, which does not wait forever."""
    caught = []

    def call():
        caller = threading.get_ident()

        def work(number):
            if threading.get_ident() != caller:
                raise Interruption
            return number

        try:
            ordered(range(10**5), work, nothing, 3)
        except Interruption as error:
            caught.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(120)
    assert 1 == len(caught)


def test_no_more_threads_to_be_had(monkeypatch):
    end_workers()
    start = threading.Thread.start
    started = []

    def limited(thread):
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    assert [2 * i for i in range(100)] == results_of(range(100), double, 4)
    assert 1 == len(started)
    assert [] == at_work()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of other libraries
def test_child_of_fork():
    assert [0, 2, 4] == results_of(range(3), double, 2)
    child = os.fork()
    if not child:
        good = False
        try:
            good = [0, 2, 4] == results_of(range(3), double, 2)
        finally:
            os._exit(0 if good else 1)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# The pool


@pytest.mark.parametrize("count", [0, 1])
def test_a_single_item_needs_no_worker(count, starts):
    assert [2 * i for i in range(count)] == results_of(range(count), double, 8)
    assert [] == starts


def together(count):
    """Return work that `count` threads do at the same time."""
    barrier = threading.Barrier(count, timeout=120)
    return lambda number: barrier.wait()


def test_workers_start_once(starts):
    for count in (3, 2, 3, 3, 2):
        ordered(range(count), together(count), nothing, count)
    assert 2 == len(starts)
    ordered(range(5), together(5), nothing, 5)
    assert 4 == len(starts) == len(workers())


def test_callers_share_the_workers(starts):
    """Several calls at the same time have no more workers than the widest."""
    found = []

    def call():
        found.append(results_of(range(300), double, 3))

    callers = [threading.Thread(target=call) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert [[2 * i for i in range(300)]] * 8 == found
    assert len(starts) <= 8 + 2


def test_a_call_needs_no_free_worker(starts):
    """A long call does not keep the others from their results."""
    entered, end = threading.Event(), threading.Event()
    caller = threading.get_ident()
    outer = []

    def hold(number):
        if threading.get_ident() != caller:
            entered.set()
            assert end.wait(120)
            return
        assert entered.wait(120)
        outer.append(results_of(range(100), double, 2))
        end.set()

    ordered(range(2), hold, nothing, 2)
    assert [[2 * i for i in range(100)]] == outer
    assert 1 == len(starts)


@THREADS
def test_nested_calls(nthreads):
    def work(number):
        inner = results_of(range(number, number + 20), double, nthreads)
        return sum(results_of(inner, lambda i: sum([i, *inner]), nthreads))

    expected = results_of(range(30), work, 1)
    assert expected == results_of(range(30), work, nthreads)
    assert [] == at_work()


def test_tasks_that_wait_leave_workers_to_the_others(starts):
    entered, end = threading.Event(), threading.Event()

    def wait():
        entered.set()
        assert end.wait(120)

    ahead = Ahead(2, waits=True)
    task = ahead.submit(wait)
    assert entered.wait(120)
    ordered(range(2), together(2), nothing, 2)
    end.set()
    ahead.result(task)
    ahead.close()
    assert 2 == len(starts)


def test_a_worker_may_close_the_tasks_that_it_works_on():
    """The garbage collector may run a finalizer in any thread."""
    ahead, closed = Ahead(2), threading.Event()
    ahead.submit(lambda: (ahead.close(), closed.set()))
    assert closed.wait(120)
    ahead.close()


class Item:
    """It can be referred to weakly."""

    def __init__(self, number=0):
        self.number = number


@pytest.mark.parametrize("fails", [False, True])
def test_a_call_keeps_no_items_and_results(fails):
    kept = []
    barrier = threading.Barrier(2, timeout=120)

    def items():
        for number in range(50):
            kept.append(weakref.ref(item := Item(number)))
            yield item
            del item

    def work(item):
        if len(kept) == 2 * WINDOW:  # the first ones are begun together
            barrier.wait()
        if fails and item.number == 2:
            raise KeyError("third")
        kept.append(weakref.ref(result := Item()))
        return result

    with pytest.raises(KeyError) if fails else nullcontext():
        ordered(items(), work, nothing, 2)
    gc.collect()  # the error refers to frames
    assert [] == [ref for ref in kept if ref() is not None]


PROGRAM = """
import os, signal, sys, threading
from bloscpack._engine.threads import Ahead, ordered
barrier = threading.Barrier(3, timeout=120)
def work(number):
    if number < 3:
        barrier.wait()
def nothing(result):
    pass
def large(count=20):
    ordered(range(count), work, nothing, 3)
large()
large()
assert 3 == threading.active_count()
"""
ENDS = {
    "end": "",
    "exit": "sys.exit(0)",
    "exit at once": "os._exit(0)",
    "in a thread": "threading.Thread(target=large).start()",
    "in a daemon thread": "threading.Thread(target=large, daemon=True).start()",
    "at exit": "import atexit; atexit.register(large)",
    "in a finalizer": """
class Late:
    def __del__(self, call=ordered, work=abs, nothing=nothing):
        call(range(20), work, nothing, 3)
late = Late()
""",
    "a task is under way": """
ahead, begun = Ahead(2), threading.Event()
ahead.submit(lambda: begun.set() or threading.Event().wait())
begun.wait()
""",
    "forks": """
for _ in range(20):
    if not (child := os.fork()):
        assert 1 == threading.active_count()
        signal.alarm(20)
        large()
        large()
        os._exit(3 != threading.active_count())
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    large()
""",
    "forks in a call": """
def fork(number):
    if number != 10:
        return
    child = os.fork()
    if not child:
        signal.alarm(20)
        raise KeyError("child")
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
try:
    ordered(range(20), lambda number: number, fork, 3)
except KeyError:
    os._exit(0)
""",
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_program_with_idle_workers_ends_silently(end):
    if "fork" in end and not hasattr(os, "fork"):
        pytest.skip("needs fork")
    run_silently("-X", "dev", "-W", "error", "-c", PROGRAM + end, timeout=60)


ERRORS = {
    "error": (1, "raise KeyError('end')"),
    "interruption": (
        -signal.SIGINT,
        """
def interrupt(result):
    if result == 10:
        os.kill(os.getpid(), signal.SIGINT)
ordered(iter(int, 1), lambda number: 10, interrupt, 3)
""",
    ),
}


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize(("code", "end"), ERRORS.values(), ids=ERRORS)
def test_a_program_that_an_error_ends(code, end):
    """It prints one traceback, and does not hang."""
    done = run_python("-X", "dev", "-W", "error", "-c", PROGRAM + end, text=True)
    assert code == done.returncode
    assert 1 == done.stderr.count("Traceback")
    assert done.stderr.splitlines()[-1] in ("KeyError: 'end'", "KeyboardInterrupt")


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize("signals", [1, 2])
def test_interrupted_calls_that_must_end(signals):
    """The first interrupt waits for the end; after a second one, the next call does."""
    may_end, ended = threading.Event(), []

    def change():
        may_end.wait(30)
        ended.append(1)

    def interrupt():
        for _ in range(signals):
            time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        if signals == 1:
            may_end.set()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        in_thread(change, must_end=True)()
    assert ended == [1] * (signals == 1)
    thread.join()
    threading.Timer(0.1, may_end.set).start()
    assert in_thread(ended.copy)() == [1]
