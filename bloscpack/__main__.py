"""The entry point of the command ``blpk``, also by ``python -m bloscpack``.

While modules are imported, Ctrl-C ends the process as it ends other programs: Python
would print a traceback, and some packages turn the interrupt into another error. The
command ends in the same way after it has cleaned up, so that a loop of the shell stops.
"""

import _signal  # type: ignore[import-not-found] # `signal` imports more
import os

POSIX = os.name == "posix"
# The exit code of the command after a signal: this plus the number of the signal.
SIGNAL_BASE = 128


def main() -> None:
    """Run the command, and end the process."""
    handler = _signal.getsignal(_signal.SIGINT)
    if POSIX and handler is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    from .cli import main

    try:
        main()
    except SystemExit as error:
        number = error.code - SIGNAL_BASE if isinstance(error.code, int) else 0
        if POSIX and number > 0:
            _signal.signal(number, _signal.SIG_DFL)
            os.kill(os.getpid(), number)
        raise


if __name__ == "__main__":
    main()
