"""The right to change a dataset: one writer at a time has it.

The folder of the dataset is locked until the writer is closed, dropped, or its process
ends. The first thing that a writer does is to complete the change of a writer that
died.

Many threads may use a writer: their changes are made one after another. Another process
that has inherited a writer may not use it.
"""

from __future__ import annotations

import errno
import time
from _thread import RLock
from contextlib import contextmanager, suppress

from .._engine.forks import OwnLock, renew_after_fork
from ..exceptions import StorageError, UsageError, UsageValueError
from .change import Change, naming_dataset, recover, remove_changes
from .folder import CHANGES

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    from .folder import Folder

    Prepare = Callable[[Change], object]
    Result = TypeVar("Result")

# Number of seconds that a change of a group waits for the changes of other writers, and
# between two attempts.
WAIT = 5.0
PAUSE = 0.01


class SerialWriter:
    """One change at a time, and reads of one state beside it.

    A subclass applies its changes in the context `_replacing`.
    """

    # Whether other writers may change the dataset between two changes of this one.
    shared = False

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self.closed = False
        self.owner = OwnLock(folder.root)
        self._changing = False
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        """Let a child process read the state that its objects know."""
        self._replacing_lock = RLock()
        # The number of disturbing changes; None while the state is replaced.
        self._state: int | None = 0

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Keep the other threads from changing and closing the dataset.

        Raises `UsageError` in another process, and within a change of this thread.
        """
        with self.owner:
            if self._changing:
                raise UsageError(
                    "'%s' can't be changed or closed while rows for a change of it are "
                    "produced" % self._folder.root
                )
            yield

    @contextmanager
    def change(
        self, take_over: Callable[[], object] = bool, *, disturbs: bool = True
    ) -> Iterator[Change]:
        """Yield a change, which is committed when the block ends without an error.

        `take_over` is called when the change is committed: the objects of the dataset
        get its new state. `disturbs` says that a read that has begun before may find
        new items.
        """
        with self.turn():
            if self.closed:
                raise UsageValueError("the dataset is closed: '%s'" % self._folder.root)
            self._changing = True
            try:
                with self._changed(take_over, disturbs) as change:
                    yield change
            finally:
                self._changing = False

    @contextmanager
    def _changed(
        self, take_over: Callable[[], object], disturbs: bool
    ) -> Iterator[Change]:
        """Yield a change, and commit it."""
        raise NotImplementedError
        yield

    def _commit(
        self, change: Change, take_over: Callable[[], object], disturbs: bool
    ) -> None:
        """Commit a change, and take it over, while no thread reads what it replaces."""
        self.owner.check(self._folder.root)  # the block may have forked
        if not disturbs:
            change.commit()
        with self._replacing_lock:
            number, self._state = self._state, None
            try:
                if disturbs:
                    number = (number or 0) + 1
                    change.commit()
                take_over()
            finally:
                self._state = number

    def read(self, function: Callable[[], Result]) -> Result:
        """Return the result of a function that reads items, all of one state.

        It is called again, while nothing is replaced, if a change has disturbed it, or
        may have caused its error.
        """
        state = self._state
        if state is not None:
            try:
                result = function()
            except Exception:
                pass
            else:
                if state == self._state:
                    return result
        with self._replacing_lock:
            return function()

    def close(self) -> None:
        """Allow no more changes, when those of other threads have been made."""
        if self.owner.is_here:
            with self.turn():
                if not self.closed:
                    self.closed = True
                    self._release()
        self.closed = True

    def _release(self) -> None:
        """Let other writers in."""


class Writer(SerialWriter):
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

    def __init__(
        self, folder: Folder, sync: bool = True, *, prepare: Prepare | None = None
    ) -> None:
        super().__init__(folder)
        self._prepare = prepare
        self._sync = sync
        self._failed = False
        self._named: set[str] = set()
        outer = folder.parent_dataset()
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
    def _changed(
        self, take_over: Callable[[], object], disturbs: bool
    ) -> Iterator[Change]:
        if self._failed:
            raise StorageError(
                errno.EIO,
                "an earlier change failed while it was committed: open it again",
                self._folder.root,
            )
        change = Change(self._folder, self._sync, named=self._named)
        with naming_dataset(self._folder.root):
            if self._prepare is not None:
                self._prepare(change)
            yield change
            try:
                self._commit(change, take_over, disturbs)
                self._prepare = None
            except BaseException:
                self._failed = True
                raise

    def _release(self) -> None:
        """Remove what was not committed, and let other writers in."""
        try:
            if self._locks and not self._folder.has_journal:
                remove_changes(self._folder)
        finally:
            for lock in self._locks:
                lock.close()


class SharedWriter(SerialWriter):
    """A group that is open for changes, which several writers may have open.

    Its folder is locked during each change. Each member has a writer of its own.
    """

    shared = True

    def __init__(
        self, folder: Folder, sync: bool = True, prepare: Prepare | None = None
    ) -> None:
        super().__init__(folder)
        self._prepare = prepare
        self.sync = sync
        if folder.is_folder(CHANGES):  # of a writer that died, or that works now
            with suppress(StorageError):
                self._lock(0).close()

    @contextmanager
    def _changed(
        self, take_over: Callable[[], object], disturbs: bool
    ) -> Iterator[Change]:
        writer = self._lock(WAIT)
        try:
            with writer.change(take_over, disturbs=disturbs) as change:
                yield change
        finally:
            writer.close()

    def _lock(self, wait: float) -> Writer:
        """Lock the folder; raise `StorageError` if that fails for `wait` seconds."""
        return waiting(
            lambda: Writer(self._folder, self.sync, prepare=self._prepare), wait
        )


def waiting(open_it: Callable[[], Result], seconds: float) -> Result:
    """Return what a function opens; wait as long as another writer has locked it."""
    end = time.monotonic() + seconds
    while True:
        try:
            return open_it()
        except StorageError as error:
            if error.errno != errno.EAGAIN or time.monotonic() >= end:
                raise
        time.sleep(PAUSE)


def checked(writer: Writer | SharedWriter | None, path: str) -> Writer | SharedWriter:
    """Return the writer; raise `UsageError` if there is none, or if it is closed."""
    if writer is None:
        raise UsageValueError(
            "the dataset was opened for reading (a copied or pickled object is always "
            "for reading): '%s'" % path
        )
    writer.owner.check(path)
    if writer.closed:
        raise UsageValueError("the dataset is closed: '%s'" % path)
    return writer
