"""The right to change a dataset: one writer at a time has it.

The folder of the dataset is locked until the writer is closed, dropped, or its process
ends. The first thing that a writer does is to complete the change of a writer that
died.
"""

from __future__ import annotations

import errno
import time
from contextlib import contextmanager, suppress

from ..exceptions import StorageError, UsageValueError
from .change import Change, naming_dataset, recover, remove_changes
from .folder import CHANGES

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .folder import Folder

    Prepare = Callable[[Change], object]

# Number of seconds that a change of a group waits for the changes of other writers, and
# between two attempts.
WAIT = 5.0
PAUSE = 0.01


class Writer:
    """A dataset that is open for changes.

    Parameters
    ----------
    folder
        The folder of the dataset.
    sync
        Whether each change is on the disk when it has been made.
    prepare
        Called with the first change.
    """

    # Whether other writers may change the dataset between two changes of this one.
    shared = False

    def __init__(
        self, folder: Folder, sync: bool = True, *, prepare: Prepare | None = None
    ) -> None:
        self._prepare = prepare
        self._folder = folder
        self._sync = sync
        self._failed = False
        self.closed = False
        outer = folder.around()
        if outer is not None and outer[0].has_journal:
            raise StorageError(
                errno.EAGAIN,
                "a change of the table that it belongs to was interrupted: open the "
                "table for writing, which completes the change",
                folder.root,
            )
        self._locks = [folder.lock()]
        try:
            recover(folder, sync)
        except BaseException:
            self.close()
            raise

    def lock(self, folder: Folder) -> None:
        """Keep other writers away from a part of the dataset, too."""
        self._locks.append(folder.lock())

    @contextmanager
    def change(self) -> Iterator[Change]:
        """Yield a change, which is committed when the block ends without an error."""
        if self.closed:
            raise UsageValueError("the dataset is closed: '%s'" % self._folder.root)
        if self._failed:
            raise StorageError(
                errno.EIO,
                "an earlier change failed while it was committed: open it again",
                self._folder.root,
            )
        change = Change(self._folder, self._sync)
        with naming_dataset(self._folder.root):
            if self._prepare is not None:
                self._prepare(change)
            yield change
            try:
                change.commit()
                self._prepare = None
            except BaseException:
                self._failed = True
                raise

    def close(self) -> None:
        """Remove what was not committed, and let other writers in."""
        if self.closed:
            return
        self.closed = True
        try:
            if self._locks and not self._folder.has_journal:
                remove_changes(self._folder)
        finally:
            for lock in self._locks:
                lock.close()


class SharedWriter:
    """A group that is open for changes, which several writers may have open.

    Its folder is locked during each change. Each member has a writer of its own.
    """

    shared = True

    def __init__(
        self, folder: Folder, sync: bool = True, prepare: Prepare | None = None
    ) -> None:
        self._prepare = prepare
        self.closed = False
        self.sync = sync
        self._folder = folder
        if folder.is_folder(CHANGES):  # of a writer that died, or that works now
            with suppress(StorageError):
                self._lock(0).close()

    @contextmanager
    def change(self) -> Iterator[Change]:
        """Yield a change, which is committed when the block ends without an error."""
        if self.closed:
            raise UsageValueError("the group is closed: '%s'" % self._folder.root)
        writer = self._lock(WAIT)
        try:
            with writer.change() as change:
                yield change
        finally:
            writer.close()

    def _lock(self, wait: float) -> Writer:
        """Lock the folder; raise `StorageError` if that fails for `wait` seconds."""
        end = time.monotonic() + wait
        while True:
            try:
                return Writer(self._folder, self.sync, prepare=self._prepare)
            except StorageError as error:
                if error.errno != errno.EAGAIN or time.monotonic() >= end:
                    raise
            time.sleep(PAUSE)

    def close(self) -> None:
        """Allow no more changes."""
        self.closed = True


def checked(writer: Writer | SharedWriter | None, path: str) -> Writer | SharedWriter:
    """Return the writer; raise `UsageError` if there is none, or if it is closed."""
    if writer is None:
        raise UsageValueError("the dataset was opened for reading: '%s'" % path)
    if writer.closed:
        raise UsageValueError("the dataset is closed: '%s'" % path)
    return writer
