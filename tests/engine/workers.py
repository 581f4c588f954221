"""The threads of the pool that a test has started, and what they do."""

import threading
import traceback
from sys import _current_frames

from bloscpack._engine import threads


def workers():
    """Return the threads of the pool."""
    return [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith("bloscpack")
    ]


def other_threads():
    """Return the number of threads outside of the pool."""
    return threading.active_count() - len(workers())


def at_work():
    """Return the workers that are inside of a function of a caller."""
    frames = _current_frames()
    engine = threads.__file__, threading.__file__
    return [
        worker
        for worker in workers()
        # One that is just starting has no frame; walk_stack(None) would walk our own.
        if worker.ident in frames
        and any(
            frame.f_code.co_filename not in engine
            for frame, _ in traceback.walk_stack(frames[worker.ident])
        )
    ]


def end_workers():
    """End all workers, which must not be at work."""
    while workers():  # one may just be going to wait
        threads._end_workers()


def listed_starts(monkeypatch):
    """End all workers; return a list that gets each thread that starts from now on."""
    end_workers()
    started = []
    start = threading.Thread.start

    def counted(thread):
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", counted)
    return started
