"""How ``blpk`` ends: exit codes, error messages, and signals.

0 done; 1 failed (file missing or existing, not a Bloscpack file, no space, package not
installed); 2 wrong usage; 3 damaged data found; 130 interrupted, 143 terminated. With
several files the command ends with the highest exit code among them.

A thread ends the command on a signal while the main thread can't. Python calls the
handlers of signals in the main thread, between two instructions. They wait while Blosc
works on a chunk, which takes minutes at worst. The system writes the number of each
signal to a pipe at once, and a thread reads the pipe. Usually the main thread ends the
command before this thread does anything.

Half a second after Ctrl-C the thread ends the command, unless the main thread may have
to undo a change or to remove a folder. Then the thread writes that the command waits
for chunks, and ends it after a second signal. It also ends it a few seconds after
SIGTERM or SIGHUP. Temporary files are removed; an undo record stays, and the next
writer of the file restores the old content.
"""

from __future__ import annotations

import errno
import os
import sys

from .. import exceptions
from .._storage.paths import is_url, shown_name
from ..log import printable
from .console import (
    INPUT_NAME,
    OUTPUT_NAME,
    PREFIX,
    STREAM,
    console,
    is_input,
    quoted_input,
    why_missing,
)

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType
    from typing import NoReturn, TypeVar

    Item = TypeVar("Item")

# The environment variable with options that the user wants in every command.
DEFAULTS_VARIABLE = "BLPK_DEFAULTS"

EXIT_OK = 0
EXIT_COULD_NOT = 1
EXIT_USAGE = 2
EXIT_DAMAGED = 3
EXIT_INTERRUPTED = 130
HINT = "This might not be a bloscpack compressed file."
STREAM_NAMES = {INPUT_NAME: "standard input", OUTPUT_NAME: "standard output"}
DATASET = "a dataset"
BIGFILE_TREE = "a BigFile tree"
# What reads a folder that verbs for files refuse.
READ_BY = {DATASET: "blpk convert", BIGFILE_TREE: "blpk bigfile"}
# The message for a name that another command reads.
OTHER_COMMAND = "'%s' is %s, which '%s' reads"
# Advice in messages of the library, and the advice of the command in its place.
ADVICE = {
    "open the dataset again": "'blpk snapshot' makes a copy of one moment",
    "dataset.snapshot makes": "'blpk snapshot' makes",
    "mode='w' or force=True replaces it": "--force replaces it",
    "; 'timeout' waits for it": "",
    "drop=True leaves": "--drop leaves",
}
# The exit code of a program that a signal has ended: this plus the signal number.
SIGNAL_BASE = 128


class Refusal(exceptions.BloscpackError):
    """The command can't do what was asked."""

    exit_code = EXIT_COULD_NOT


class WrongUsage(Refusal):
    """The arguments of the command are wrong."""

    exit_code = EXIT_USAGE


def exit_code(error: BaseException) -> int:
    """Return the exit code for an error."""
    if isinstance(error, Refusal):
        return error.exit_code
    if isinstance(error, exceptions.FormatError) and not isinstance(
        error, (exceptions.NotReadable, exceptions.Unsupported)
    ):
        return EXIT_DAMAGED
    if isinstance(error.__cause__, ImportError):  # a package is not installed
        return EXIT_COULD_NOT
    # Errors that 0.16 raised as RuntimeError concern the file, not the usage.
    if isinstance(error, exceptions.UsageError) and not isinstance(error, RuntimeError):
        return EXIT_USAGE
    return EXIT_COULD_NOT


def message_of(error: BaseException, escaped: Callable[[str], str] = str) -> str:
    """Return the message for an error, in the words of 0.16 where that had the error.

    `escaped` replaces characters in its lines: `printable` those that a terminal can't
    show, newlines in names among them.
    """
    text = _text_of(error)
    filename = getattr(error, "filename", None)
    if isinstance(filename, str) and is_input(filename):
        text = text.replace("(file '%s'" % filename, "(standard input")
    is_wrong_file = (
        isinstance(error, exceptions.FormatError)
        and error.section == "header"
        and not isinstance(error, exceptions.Unsupported)
        and _other_format(error) is None  # the message names it
    )
    return "\n".join(map(escaped, [text, HINT] if is_wrong_file else [text]))


def with_advice(text: str, code: int) -> str:
    """Return the message of a filter on one line, with advice."""
    if code == EXIT_DAMAGED:
        return text + "; 'blpk recover FILE NEW' saves what is intact in a file"
    advice = "; without -d the bytes are packed, and 'blpk convert' reads other formats"
    return text.replace("\n" + HINT, "; " + HINT.lower()[:-1] + advice)


def _of_command(text: str) -> str:
    """Return a text of the library, without names, with the advice of the command."""
    for of_library, of_command in ADVICE.items():
        text = text.replace(of_library, of_command)
    return text


def _text_of(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        name, why = error.filename, _of_command(str(error.strerror))
        if name in STREAM_NAMES:
            return "%s: %s" % (STREAM_NAMES[name], why)
        kind = kind_of_folder(name) if isinstance(error, IsADirectoryError) else None
        if kind is not None:
            return OTHER_COMMAND % (name, kind, READ_BY[kind])
        shown = shown_name(name) if isinstance(name, str) else name
        if error.errno == errno.ENOENT and isinstance(name, str):
            return _text_of_missing(name, shown, why)
        return "'%s': %s" % (shown, why)
    other = _other_format(error)
    if other is not None:
        name = quoted_input(getattr(error, "filename", None) or STREAM)
        return "%s is not a Bloscpack file: it is %s" % (name, other)
    if isinstance(error, MemoryError):
        return "not enough memory"
    text = str(error) or type(error).__name__
    if isinstance(error, exceptions.FormatError):
        text = text.replace(error.message, _of_command(error.message))
    return text


def _text_of_missing(name: str, shown: str, why: str) -> str:
    """Return the message for a missing file, in the words of 0.16."""
    folder = os.path.dirname(name)
    if is_url(name):
        return "file '%s' does not exist! (%s)" % (shown, why)
    if why != os.strerror(errno.ENOENT):
        return "'%s': %s" % (shown, why)
    if folder and not os.path.isdir(folder):
        return "folder '%s' of '%s' does not exist!" % (folder, shown)
    return "file '%s' %s!" % (shown, why_missing(name))


def _other_format(error: BaseException) -> str | None:
    """Return the format of the file that is no Bloscpack file; None if unknown."""
    if not isinstance(error, exceptions.NotReadable) or error.prefix is None:
        return None
    from .._format.other_formats import name_format

    return name_format(error.prefix, error.size)


def kind_of_folder(name: str, *, strict: bool = True) -> str | None:
    """Return what a folder is that verbs for files refuse, or None.

    With `strict`, all of the folder must be a tree; otherwise a tree somewhere in it is
    enough.
    """
    from ..dataset import find
    from ..dataset.conversion.bigfile_trees import is_only_tree, is_tree

    try:
        known = find(name)
        if known is not None and known[0] != "folder":
            return DATASET
        if not os.path.isdir(name):
            return None
        return BIGFILE_TREE if (is_only_tree if strict else is_tree)(name) else None
    except (exceptions.BloscpackError, OSError):
        return None


def refuse_kinds_of_folders(name: str) -> None:
    """Raise `IsADirectoryError` for a dataset or a tree: its message says what to use.

    Another folder is refused elsewhere, for the reason that 0.16 gave.
    """
    if os.path.isdir(name) and kind_of_folder(name) is not None:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)


def report_failure(name: str, error: BaseException) -> None:
    """Show on standard error why a file could not be processed."""
    text = message_of(error, printable)
    if is_input(name):
        console.report("standard input: " + text)
        return
    name = printable(shown_name(name))
    # A message that names the output also shows the input, as its beginning.
    named = "'" + name in text or "/" + name in text
    console.report(text if named else "'%s': %s" % (name, text))


def for_each_file(
    items: Iterable[Item],
    act: Callable[[Item], object],
    name_of: Callable[[Item], str] = str,
    failed: Callable[[str, BaseException], None] = report_failure,
) -> int:
    """Call `act` with each item; return the highest exit code.

    After a failure the next item follows. `act` may return an exit code.
    """
    worst = EXIT_OK
    for item in items:
        try:
            code = act(item)
        except (exceptions.BloscpackError, OSError, MemoryError) as error:
            if isinstance(error, BrokenPipeError) and not console.is_optional:
                raise  # the reader of the output has closed the pipe
            failed(name_of(item), error)
            code = exit_code(error)
        worst = max(worst, code if isinstance(code, int) else EXIT_OK)
    return worst


# Seconds after Ctrl-C until the thread acts: usually the command has ended before.
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


def watch(undoes: bool) -> None:
    """Start the thread, unless the system has no more threads or files.

    `undoes` says whether the verb may have to undo a change. Closed standard streams
    get no thread: the pipe would take their descriptors.
    """
    if os.name != "posix" or None in (sys.stdin, sys.stdout, sys.stderr):
        return
    import signal
    from _thread import start_new_thread

    numbers: set[int] = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    try:
        receiver, sender = os.pipe()
        start_new_thread(_watch, (receiver, numbers, undoes))
    except (OSError, RuntimeError):
        return
    os.set_blocking(sender, False)
    signal.set_wakeup_fd(sender, warn_on_full_buffer=False)


def _watch(receiver: int, numbers: set[int], undoes: bool) -> None:
    import signal

    number = _next(receiver, numbers)
    if number == signal.SIGINT:
        again = _next(receiver, numbers, PATIENCE)
        temporary = _module_of_temporary_files()
        if again is None and undoes and not (temporary and temporary.unfinished):
            if not console.quiet:
                _say(WAITING)
            again = _next(receiver, numbers)
        number = again or number
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


def _module_of_temporary_files() -> ModuleType | None:
    """Return the module `temporary`, which is imported if there is such a file."""
    return sys.modules.get("bloscpack._commit.temporary")


def _end(number: int) -> NoReturn:
    """Remove temporary files and end the process, whatever other threads do.

    It ends by the signal, so that a loop of the shell stops. Only the main thread can
    take back the handler, but a program that replaces this one starts without it. A
    signal does not end the first process of a container: that exits with the code.
    """
    import signal

    temporary = _module_of_temporary_files()
    try:
        if temporary is not None:
            temporary.remove_unfinished()
        _say("error: %s" % ("interrupted" if number == signal.SIGINT else "terminated"))
        script = "kill -%d $$; exit %d" % (number, SIGNAL_BASE + number)
        os.execv("/bin/sh", ["sh", "-c", script])
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
