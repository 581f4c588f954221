"""Reading a file that a writer may be changing: the state before, or the one after.

Where there is a journal, it is laid over the file, which then reads as it was before
the change. A change that begins or ends meanwhile shows in the file's status; what was
read is then thrown away and read anew, unless its digests prove it to be of one piece.
"""

from __future__ import annotations

import errno
import io
import os
import stat

from .. import log
from .._storage.local import opened
from ..exceptions import FormatError, StorageError
from . import journal

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from .._storage.base import Path
    from ..headers import BloscpackHeader

    Result = TypeVar("Result")

ATTEMPTS = 10
# How often to begin, which costs little, beside a writer that never rests.
BEGINNINGS = 100


def attempts_for(output: Path) -> int:
    """Return how often a file may be read that is written to `output` meanwhile."""
    from .._storage.stream import is_stream

    # What a stream has been given can't be taken back.
    return 1 if is_stream(output) else ATTEMPTS


class FileChanged(Exception):
    """The file is no longer what it was when it was opened."""


class RolledBackView(io.RawIOBase):
    """A file as its journal says that it was."""

    def __init__(self, fp: Any, kept: journal.Journal) -> None:
        self._fp = fp
        self._kept = kept
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the descriptor of the file as it is now."""
        descriptor: int = self._fp.fileno()
        return descriptor

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to another position."""
        bases = {os.SEEK_CUR: self._position, os.SEEK_END: self._kept.length}
        self._position = offset + bases.get(whence, 0)
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer`, less at the end of the file as it was."""
        left = max(0, self._kept.length - self._position)
        view = memoryview(buffer).cast("B")[:left]
        self._fp.seek(self._position)
        found = self._fp.readinto(view)
        # What has been cut off lies in the journal.
        view[found:] = bytes(len(view) - found)
        self._kept.overlay(self._position, view)
        self._position += len(view)
        return len(view)


class Snapshot:
    """An open file and the state that it was in."""

    def __init__(self, path: Path, fp: Any) -> None:
        self._path = path
        self._journal_name = journal.name_for(os.fsdecode(path))
        self._real_fp = fp
        self._regular = stat.S_ISREG(os.fstat(fp.fileno()).st_mode)
        self._patched = False
        self._state = self._now()
        self.fp = fp
        #: Whether all that lies in front of the chunks has been read and accepted.
        self.begun = False
        #: Whether digests tell what belongs together.
        self.digested = False

    def apply_journal(self) -> None:
        """Let ``fp`` read what was before the change that is under way, if one is."""
        kept = journal.load(self._journal_name) if self._regular else None
        if kept is None:
            return
        kept.check_belongs_to(self._real_fp)
        log.verbose("a change is under way: reading what was before")
        self.fp = io.BufferedReader(RolledBackView(self._real_fp, kept))
        # As long as the journal is there, it makes up for whatever is written.
        self._patched = True
        self._state = (), self._state[1]

    def _now(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return what tells states apart: of the file, and of its journal."""
        of_file: tuple[int, ...] = ()
        if not self._regular:
            return of_file, ()
        if not self._patched:
            status = os.fstat(self._real_fp.fileno())
            of_file = status.st_size, status.st_mtime_ns
        try:
            status = os.stat(self._journal_name)
        except OSError:
            return of_file, ()
        return of_file, (status.st_ino, status.st_mtime_ns, status.st_size)

    def is_current(self) -> bool:
        """Return whether nobody has changed or replaced the file since."""
        return self._state == self._now() and not self._is_replaced()

    def _is_replaced(self) -> bool:
        try:
            status = os.stat(self._path)
        except OSError:
            return False
        return not os.path.samestat(status, os.fstat(self._real_fp.fileno()))

    def check(self, header: BloscpackHeader | None) -> None:
        """Accept what has been read; raises `FileChanged` if it may be mixed.

        To be called once all that lies in front of the chunks has been read, and at
        the end by what is going to leave something behind; without a header, if that
        is lost, nothing is taken on trust.
        """
        if not self.digested:
            self.digested = header is not None and bool(header.checksum_impl.size)
            if not self.is_current():
                raise FileChanged
            self.begun = True


def read_snapshot(
    path: Path,
    read: Callable[[Any, Callable[[BloscpackHeader | None], None]], Result],
    attempts: int = ATTEMPTS,
) -> Result:
    """Return what ``read(fp, check)`` returns for a file, before or after a change.

    It is called again if the file was changed meanwhile, so it must leave nothing
    behind when it raises; it calls `check` with the header, as `Snapshot.check` says.
    `attempts` is how often it may go on once `check` has returned.
    """
    path = os.fspath(path)  # no descriptor, which would be closed
    for _ in range(BEGINNINGS):
        if not attempts:
            break
        with opened(path) as fp:
            snapshot = Snapshot(path, fp)
            try:
                snapshot.apply_journal()
                result = read(snapshot.fp, snapshot.check)
                snapshot.begun = True
                if snapshot.digested or snapshot.is_current():
                    return result
            except FileChanged:
                pass
            except (FormatError, StorageError):
                if snapshot.is_current():
                    raise
            attempts -= snapshot.begun
    raise StorageError(
        errno.EAGAIN, "the file was changed each time it was read", os.fsdecode(path)
    )
