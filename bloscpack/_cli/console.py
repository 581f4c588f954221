"""The standard streams of the command: messages, errors and data.

Messages go to standard output, or to standard error while standard output carries data.
Warnings and errors go to standard error.

A standard stream that fails once is not used again: its file descriptor is connected to
the null device. Otherwise the interpreter would write its buffer again at exit, and end
with exit code 120. A failure therefore has the same result with and without buffering.

The file name ``-`` means a standard stream, which is used from its current position,
and never closed.
"""

from __future__ import annotations

import os
import sys

from .. import log
from .._storage.paths import NOT_THERE, is_url, shown_name
from ..constants import MAGIC
from ..exceptions import FileNotFound, StorageError
from ..log import encodable, printable

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import BinaryIO, TextIO

    from .._types import Seekable

# Begins each message of the command.
PREFIX = "blpk"


class OutputLost(Exception):
    """Standard output has failed or is closed, and the output was needed."""


class Console:
    """What the command knows about its standard streams, and all that it writes there.

    Attributes
    ----------
    owns_streams
        Whether the command is all that this process does: a failed stream may then be
        connected to the null device.
    quiet
        Whether only errors are shown.
    exact
        Whether sizes are shown as numbers of bytes.
    is_data
        Whether standard output carries data: messages then go to standard error.
    is_optional
        Whether the files of the verb matter more than its messages: a failure of
        standard output is then kept in ``lost``, and does not stop the verb.
    is_filter
        Whether the command reads standard input without a verb.
    runs_verb
        Whether a verb was run through the parser.
    is_interrupted
        Whether the user has pressed Ctrl-C.
    lost
        The first failure of standard output. Later output is dropped.
    code_of_lost
        The lowest exit code after such a failure.
    least_code
        The lowest exit code: 1 after a warning that counts as a failure.
    hidden
        What messages show in place of secrets in the arguments, the longest texts
        first.
    erase
        Erases the progress bar, and is called before each line. None without a bar.
    """

    def __init__(self) -> None:
        self.owns_streams = self.quiet = self.is_data = self.is_optional = False
        self.runs_verb = self.exact = self.is_filter = False
        self.is_interrupted = False
        self.lost: Exception | None = None
        self.code_of_lost = 1
        self.least_code = 0
        self.hidden: dict[str, str] = {}
        self.erase: Callable[[], None] | None = None
        # Prefix and level of the library, which the command replaces.
        self._library = log.PREFIX, log.LEVEL

    def begin(self, owns_streams: bool) -> None:
        """Start a command: forget an earlier one, and take the messages of `log`."""
        vars(self).update(vars(Console()))
        self.owns_streams = owns_streams
        self._library = log.PREFIX, log.LEVEL
        log.set_prefix(PREFIX)
        log.set_level(log.NORMAL)
        log.RECEIVER = self

    def finish(self) -> None:
        """Flush both standard streams, dropping failures; give `log` back."""
        self._failure()
        self.put_error("")
        log.RECEIVER = None
        log.PREFIX, log.LEVEL = self._library

    # Standard output

    def need_output(self) -> None:
        """Raise if standard output was closed before the command, or has failed."""
        if self.lost is not None:
            raise self.lost
        if sys.stdout is None:
            raise OutputLost("standard output is closed")

    def reserve_for_data(self) -> None:
        """Write all messages to standard error from now on.

        Earlier messages are flushed, so that they precede the data.

        Raises
        ------
        BrokenPipeError, OutputLost
            If standard output has failed.
        """
        self.flush()
        self.is_data = True

    def put(self, text: str) -> None:
        """Write text to standard output, unchanged.

        Raises
        ------
        BrokenPipeError, OutputLost
            If standard output has failed, unless it is optional.
        """
        if self.erase is not None:
            self.erase()
        try:
            self.need_output()
            self._call_output("write", text)
        except (BrokenPipeError, OutputLost) as error:
            self.lost = error
            if not self.is_optional:
                raise

    def put_bytes(self, data: bytes, flush: bool = False) -> None:
        """Write bytes to standard output, and flush it if more may come much later.

        Raises
        ------
        BrokenPipeError, OutputLost
            If standard output fails.
        """
        from .._storage.base import write_all

        try:
            write_all(sys.stdout.buffer, data)
            if flush:
                sys.stdout.buffer.flush()
        except OSError as error:
            raise _lost_output(error) from error

    def flush(self) -> None:
        """Flush standard output.

        Raises
        ------
        BrokenPipeError, OutputLost
            If any output, now or earlier, was lost.
        """
        if self.lost is not None:
            raise self.lost
        if sys.stdout is not None:
            self._call_output("flush")

    def _call_output(self, method: str, *args: str) -> None:
        try:
            getattr(sys.stdout, method)(*args)
        except OSError as error:
            self.lost = _lost_output(error)
            self._give_up(sys.stdout)
            raise self.lost from error

    def _failure(self) -> Exception | None:
        """Flush standard output; return the exception instead of raising it."""
        try:
            self.flush()
        except (BrokenPipeError, OutputLost) as error:
            return error
        return None

    # Standard error

    def put_error(self, text: str) -> None:
        """Write text to standard error. If that fails, the text is dropped."""
        if self.erase is not None:
            self.erase()
        self.draw(text)

    def draw(self, text: str) -> None:
        """Write text to standard error as `put_error` does, beside the progress bar."""
        if sys.stderr is not None:
            try:
                sys.stderr.write(text)
                sys.stderr.flush()
            except OSError:
                self._give_up(sys.stderr)

    def _give_up(self, stream: TextIO) -> None:
        """Connect a failed stream to the null device, which takes its buffered text."""
        if not self.owns_streams:
            return
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
        except OSError:  # the stream has no file descriptor, or there is no null device
            return

    # Messages

    def say(self, line: str = "") -> None:
        """Write a line to standard output, without a prefix."""
        self.put(encodable(printable(line), sys.stdout) + "\n")

    def say_all(self, lines: Iterable[str]) -> None:
        """Print lines for a person, without a prefix."""
        for line in lines:
            self.say(line)

    def message(self, text: str) -> None:
        """Show a message."""
        if self.quiet:
            return
        if self.is_data:
            self._to_error(text)
        elif sys.stdout is not None:
            self.put(log.lines(self.hide(text), sys.stdout))

    def warning(self, text: str) -> None:
        """Warn the user, on one line of standard error."""
        if not self.quiet:
            self._flush_before_error()
            self._to_error(printable(text))

    def report(self, text: str) -> None:
        """Show an error, and continue."""
        self._flush_before_error()
        self._show_error(text)

    def last_error(self, text: str) -> None:
        """Show the error that ends the command, whatever happens to the messages."""
        self._failure()
        self._show_error(text)

    def hide(self, text: str) -> str:
        """Return text without the secrets of ``hidden``."""
        for secret, shown in self.hidden.items():
            text = text.replace(secret, shown)
        return text

    def _flush_before_error(self) -> None:
        """Flush standard output, so that its messages precede one on standard error."""
        failure = self._failure()
        if failure is not None and not self.is_optional:
            raise failure

    def _show_error(self, text: str) -> None:
        for line in text.split("\n"):
            self._to_error("error: " + line)

    def _to_error(self, text: str) -> None:
        self.put_error(log.lines(self.hide(text), sys.stderr))


def _lost_output(error: OSError) -> Exception:
    """Return the exception to raise after a write to standard output has failed."""
    if isinstance(error, BrokenPipeError):
        return error
    return OutputLost("standard output: %s" % error.strerror)


# A process has one standard output.
console = Console()


STREAM = "-"
INPUT_NAME = "/dev/stdin"
OUTPUT_NAME = "/dev/stdout"
DEVICE = "/dev/fd/%d"
# The names of the temporary files with copies of pipes, and of what. A shell makes
# names like these for its process substitutions.
_spools: dict[str, str] = {}


def standard_input() -> BinaryIO:
    """Return standard input as a binary file; raises `StorageError` if it is closed."""
    if sys.stdin is None:
        raise StorageError("standard input is closed")
    return sys.stdin.buffer


def name_of_input(in_file: str, *, seekable: bool = False) -> str:
    """Return a path that can be opened; for ``-`` the path of standard input.

    Opening a regular file again would begin at its start. If standard input is such a
    file and not at its start, the rest of it is copied to a temporary file. So is a
    pipe if the file must be `seekable`, also one with a name.
    """
    if in_file == STREAM:
        fp = standard_input()
        if not (fp.tell() if fp.seekable() else seekable):
            return INPUT_NAME
        return _spooled(fp, STREAM)
    is_plain = os.path.isfile(in_file) or os.path.isdir(in_file)
    if not seekable or is_plain or not os.path.exists(in_file):
        return in_file
    with open(in_file, "rb") as fp:
        return _spooled(fp, in_file)


def _spooled(fp: BinaryIO, origin: str) -> str:
    """Return the path of a copy, which messages do not show."""
    import shutil
    import tempfile

    with tempfile.TemporaryFile() as spool:
        shutil.copyfileobj(fp, spool)
        spool.seek(0)
        # Its access limits the access to the output; a pipe says nothing about access.
        os.fchmod(
            spool.fileno(),
            os.fstat(fp.fileno()).st_mode & 0o777 if fp.seekable() else 0o666,
        )
        name = DEVICE % os.dup(spool.fileno())  # stays open until the program ends
    _spools[name] = origin
    console.hidden["'%s'" % name] = quoted_input(origin)
    return name


def quoted_input(in_file: str) -> str:
    """Return an input as messages name it."""
    return "standard input" if is_input(in_file) else "'%s'" % shown_name(in_file)


def shown_input(in_file: str) -> str:
    """Return an input as reports name it, without quotation marks."""
    return "standard input" if is_input(in_file) else printable(shown_name(in_file))


def plain_name(in_file: str) -> str:
    """Return an input as programs name it: ``-`` for standard input."""
    return STREAM if is_input(in_file) else shown_name(in_file)


def is_input(name: str) -> bool:
    """Return whether a name is ``-`` or a path that `name_of_input` returns for it."""
    return bool({STREAM, INPUT_NAME} & {name, _spools.get(name)})


def check_exists(role: str, path: str) -> None:
    """Raise `FileNotFound` unless `path` exists, perhaps in a ZIP file.

    Raises the ``OSError`` if that can't be known: a folder may not be entered.
    """
    if path == STREAM or is_url(path):
        return
    try:
        os.stat(path)
        return
    except OSError as error:
        if error.errno not in NOT_THERE:
            raise
    except ValueError:  # no file has such a name
        pass
    from .._storage.zip_store import find_zip

    if find_zip(os.path.abspath(path)) is None:
        raise FileNotFound("%s '%s' %s!" % (role, path, why_missing(path)))


def why_missing(path: str) -> str:
    """Return what follows the name of a path that leads to no file."""
    if os.path.islink(path):
        target = printable(os.readlink(path))
        return "is a link to '%s', which does not exist" % target
    return "does not exist"


def warn_of_rest(in_file: str, behind: bytes, is_left_over: Callable[[], bool]) -> None:
    """Warn the user if bytes that are not read follow a file.

    `behind` are the first of them. Unless `is_left_over` says that an append has left
    them, the exit code is 1, and 2 for a verb for which 1 is an answer.
    """
    is_harmless = False
    if behind == MAGIC:
        text = "behind %s begins another packed file, which is not read"
    elif behind:
        text = "other bytes lie behind %s, and are not read: 'blpk verify' says more"
        is_harmless = is_left_over()
    else:
        return
    if not is_harmless:
        console.least_code = console.code_of_lost
    log.notice(text % quoted_input(in_file))


def is_left_over(fp: Seekable, start_of_file: int = 0) -> bool:
    """Return whether an append has left the bytes behind a file."""
    from ..file_io import CompressedFPSource

    fp.seek(start_of_file)
    source = CompressedFPSource(fp)
    for _ in source.frames():
        pass
    return source.is_left_over()


def warn_of_rest_in(in_file: str, path: str) -> None:
    """Warn as `warn_of_rest` of a file that has been read whole, if it is one."""
    from .._storage.local import begins_with

    if not os.path.isfile(path) or not begins_with(path, MAGIC):
        return
    from ..reader import Reader

    with open(path, "rb") as fp:
        behind = Reader(fp)._peek_behind(len(MAGIC))
        warn_of_rest(in_file, behind, lambda: is_left_over(fp))


def warn_of_loss(target: str, lost: Sequence[str], source: str) -> None:
    """Name the properties of a source that a target can't hold."""
    if lost:
        text = "'%s' can't hold %s of %s"
        log.notice(text % (target, _listed(lost), quoted_input(source)))


def warn_of_unread(source: str, lost: Sequence[str]) -> None:
    """Name the properties of a source that no contents have."""
    if lost:
        log.notice("%s is read without %s" % (quoted_input(source), _listed(lost)))


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def descriptor_of(out_file: str) -> int | None:
    """Return the file descriptor if an output file is a standard stream, or None."""
    if out_file == STREAM:
        return 1
    if not os.path.exists(out_file):
        return None
    from .._storage.stream import standard_stream

    return standard_stream(os.stat(out_file))


def name_of_output(out_file: str) -> str:
    """Return a path that can be opened; for ``-`` the path of standard output."""
    return OUTPUT_NAME if out_file == STREAM else out_file
