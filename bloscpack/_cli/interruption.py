"""A thread that ends the command on a signal while the main thread can't.

Python calls the handlers of signals in the main thread, between two instructions. They
wait while Blosc works on a chunk, which takes minutes at worst. The system writes the
number of each signal to a pipe at once, and a thread reads the pipe. Usually the main
thread ends the command before this thread does anything.

After the first Ctrl-C the thread writes that the command waits for chunks. It ends the
command after a second signal, and a few seconds after SIGTERM or SIGHUP. Temporary
files are removed; a journal stays, and the next writer of the file restores the old
content.
"""

from __future__ import annotations

import os
import sys

from .console import PREFIX, console
from .exit_codes import SIGNAL_BASE

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import NoReturn

# Seconds after Ctrl-C until the message: usually the command has ended before.
PATIENCE = 0.5
# Maximum seconds from SIGTERM or SIGHUP to the end of the process. Service managers
# send SIGKILL after 10 seconds or more.
LIMIT = 5.0
WAITING = (
    "stopping: waiting for the chunks that are being processed; press Ctrl-C again to "
    "stop at once"
)

# The number of signals that the command has sent to itself.
_own_signals = 0


def expect_own_signal() -> None:
    """Do not count the next signal: the command sends the last one once more."""
    global _own_signals
    _own_signals += 1


def watch() -> None:
    """Start the thread, unless the system has no more threads or files.

    Closed standard streams get no thread: the pipe would take their descriptors.
    """
    if os.name != "posix" or None in (sys.stdin, sys.stdout, sys.stderr):
        return
    import signal
    from _thread import start_new_thread

    numbers: set[int] = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    try:
        receiver, sender = os.pipe()
        start_new_thread(_watch, (receiver, numbers))
    except (OSError, RuntimeError):
        return
    os.set_blocking(sender, False)
    signal.set_wakeup_fd(sender, warn_on_full_buffer=False)


def _watch(receiver: int, numbers: set[int]) -> None:
    import signal

    number = _next(receiver, numbers)
    if number == signal.SIGINT:
        again = _next(receiver, numbers, PATIENCE)
        if again is None and not console.quiet:
            _say(WAITING)
        number = again or _next(receiver, numbers)
    else:
        number = _next(receiver, numbers, LIMIT) or number
    assert number is not None  # only a wait with a limit returns None
    _end(number)


def _next(receiver: int, numbers: set[int], seconds: float | None = None) -> int | None:
    """Wait for a signal with one of the numbers; return None if there is none."""
    global _own_signals
    import select

    while select.select([receiver], [], [], seconds)[0]:
        number = os.read(receiver, 1)[0]
        if number not in numbers:
            continue
        if not _own_signals:
            return number
        _own_signals -= 1
    return None


def _end(number: int) -> NoReturn:
    """Remove temporary files and end the process, whatever other threads do."""
    import signal

    # Imported already if there is a temporary file.
    temporary = sys.modules.get("bloscpack._crashsafe.temporary")
    try:
        if temporary is not None:
            temporary.remove_unfinished()
        _say("error: %s" % ("interrupted" if number == signal.SIGINT else "terminated"))
    finally:
        os._exit(SIGNAL_BASE + number)


def _say(message: str) -> None:
    """Write a line to standard error, unless the reader of a full pipe is stuck.

    The main thread may hold the lock of `sys.stderr`.
    """
    import select

    newline = "\n" * (console.erase is not None)  # a progress bar has the line
    text = "%s%s: %s\n" % (newline, PREFIX, message)
    try:
        if select.select([], [2], [], 0)[1]:
            os.write(2, text.encode())
    except OSError:
        return
