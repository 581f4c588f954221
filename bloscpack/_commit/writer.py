"""The right to change a dataset, and one change at a time.

A `Rule` is the right of one program to change a dataset, depending on the store:

* `LockedFolder`: the folder is locked until the writer is closed, dropped, or its
  process ends. The first thing that a writer does is to complete the change of a writer
  that died. A group is locked during each change. Then this program takes over what
  others have changed since its last change.
* `objects.ClaimedObjects` for stores of objects.
* `shared.SharedShards` and `shared.SharedObjects` for several writers of one array.

A change is committed by the rule's kind of `Change`: `change` says what its commit
point is, how a crash is recovered from, and which users are trusted.

Many threads may use a writer: their changes are made one after another. Another process
that has inherited a writer may not use it.
"""

from __future__ import annotations

import errno
import os
from _thread import RLock, get_ident
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, TypeVar

from .._engine.contexts import on_error
from .._engine.forks import OwnLock, renew_after_fork
from .._engine.threads import get_caller
from .._format.committed import STAGING, Root
from .._format.names import folders_of
from .._storage.folder_store import FolderStore
from ..exceptions import StorageError, UsageError
from .change import Change
from .folder_change import FolderChange, naming_dataset, recover
from .locking import FolderLock, waiting
from .states import (
    ALONE,
    CLOSED,
    JOINS,
    NESTED,
    READER,
    TURNS,
    WAITS,
    WRITES,
    Does,
    State,
    ask,
)
from .tree import Tree, TreeState


class Rule:
    """The right of one program to change a dataset."""

    # The state of the dataset while this thread makes no change: ALONE, TURNS or
    # SHARDS. `Writer` sets READER in a child process, and CLOSED.
    state: State
    # Whether a commit was interrupted, and `recover` is to be called before a change.
    has_failed = False
    # Number of seconds that a change waits for those of other writers.
    wait: float
    # The documents of the dataset.
    tree: Tree
    # The document that was found last, before it was claimed; None for the present one.
    found: Root | None = None

    def holding(self) -> AbstractContextManager[bool]:
        """Return a context in which no other writer changes the dataset.

        Its value says whether others may have changed it until now.
        """
        return nullcontext(False)

    def recover(self) -> None:
        """Complete a commit that was interrupted."""

    def claim(self) -> None:
        """Let the changes of others fail that have opened it, if nothing locks it."""

    def changing(self) -> AbstractContextManager[Change]:
        """Return the context of a change, which is committed within the block."""
        raise NotImplementedError

    def release(self) -> None:
        """Let other writers in."""


Result = TypeVar("Result")


class Block:
    """The change that several calls of a thread make together.

    These calls, and the threads that work for them, see what it has staged; all other
    threads see the state before.

    Attributes
    ----------
    change
        The change.
    thread
        The thread that makes it.
    layouts
        The layouts of the datasets that the calls use, by their paths: as the change
        leaves them.
    drafts
        What the calls know of open datasets, by what others know of them (`id`): the
        latter, and the former.
    opened
        The datasets that were opened or created in the block, by their addresses.
    created
        The paths of the latter.
    shrunk
        The arrays that have lost items.
    """

    def __init__(self, change: Change) -> None:
        self.change, self.thread = change, get_ident()
        self.layouts: dict[str, Any] = {}
        self.drafts: dict[int, tuple[Any, Any]] = {}
        self.opened: dict[str, Any] = {}
        self.created: set[str] = set()
        self.shrunk: list[Any] = []

    def has_created(self, path: str) -> bool:
        """Return whether a call has created what is at a path, or something around."""
        return not self.created.isdisjoint(folders_of(path))


# Number of seconds that a change of a group waits for the changes of other writers.
WAIT = 5.0


class Writer(OwnLock):
    """One change at a time, and reads of one state beside it.

    Parameters
    ----------
    path
        The path or the URL of the dataset.
    rule
        The right to change it.
    wait
        Number of seconds that a change waits for another writer; None for the default
        of the rule.

    Attributes
    ----------
    producer
        The thread that produces rows of a change; 0 for none.
    buffers
        What waits in memory, see `write_buffer`, by the path of an array or a table in
        the dataset; each other change writes it first.
    current
        The block that any thread is in, see `block`.
    outer
        The writer of the group, if its document does not commit this dataset.
    check_joined
        Called when an interrupted commit was completed; raises an error if the document
        of a group commits the dataset by now.
    """

    outer: Writer | None = None
    check_joined: Callable[[], object] = bool
    # A change of which it is not known whether it was committed.
    unsettled: Change | None = None
    # What is open of the dataset, and the state that it has between two turns; `renew`
    # takes over what others have changed.
    views: Any = None
    seen: TreeState | None = None

    def __init__(self, path: str, rule: Rule, wait: float | None = None) -> None:
        super().__init__(path)
        self.rule = rule
        if wait is not None:
            rule.wait = wait
        self.renew_locks()
        self.buffers: dict[str, Any] = {}
        self.producer = 0
        self.current: Block | None = None
        renew_after_fork(self)

    def renew_locks(self) -> None:
        """Let a child process read the state that its objects know, as readers do."""
        self._replacing_lock = RLock()
        # The number of disturbing changes; None while the state is replaced.
        self._nchanges: int | None = 0
        if not self.is_here and self.rule.state in (ALONE, TURNS):
            self.rule.state = READER

    @property
    def block(self) -> Block | None:
        """The block that this thread is in, or works for; see `together`."""
        block = self.current
        return block if block and block.thread == get_caller() else None

    def check_outside(self, path: str) -> None:
        """Raise `UsageError` in a change of several calls, also of a group around.

        It can't contain what changes the dataset at `path` at once.
        """
        ask("outside", self, path)
        if self.outer is not None:
            self.outer.check_outside(path)

    @contextmanager
    def turn(self, call: str = "change", *, holds: bool = True) -> Iterator[Does]:
        """Keep the other threads from changing and closing the dataset.

        The value says what `call` does. With `holds`, other writers may not change it
        either, and their changes until now are taken over.

        An error in the block lets the whole change fail that several calls make
        together. An interrupted commit is completed at once, or else by the next turn
        that `holds`. Raises the error of `call` in this state.
        """
        if holds and self.outer is not None:
            self.outer.check_outside(self.path)
        self.check(self.path)
        rule = self.rule
        with self.lock:
            does = ask(call, self, self.path)
            try:
                with rule.holding() if holds else nullcontext(False) as is_new:
                    if is_new or (holds and rule.has_failed):
                        self._recover()
                    seen = rule.tree.state
                    try:
                        yield does
                        seen = rule.tree.state
                    except BaseException:
                        with suppress(Exception):  # the next turn repeats it
                            if holds and rule.has_failed:
                                self.seen = seen
                                self._recover()
                                seen = rule.tree.state
                        raise
                    finally:
                        if is_new:
                            self.seen = seen
            except BaseException as error:
                if self.current is not None:
                    self.current.change.note_failure(error)
                raise

    def _recover(self) -> None:
        """Complete an interrupted commit, while no thread reads; take over the state.

        If this fails, open objects get the state of the documents nevertheless.
        """
        has_failed = self.rule.has_failed
        with self.replacing():
            try:
                if has_failed:
                    self.rule.recover()
                    self.check_joined()
            finally:
                self.renew()
        if has_failed and self.views is not None:
            self.views.join(self)
        self.rule.has_failed = False
        if self.unsettled is not None:
            self._settle(self.unsettled)

    def renew(self) -> None:
        """Let what is open take over the state of the documents."""
        with self.replacing():
            if self.views is not None:
                self.views.renew(self, self.seen)
            self.seen = None

    @contextmanager
    def change(
        self,
        take_over: Callable[[], object] = bool,
        *,
        disturbs: bool = True,
        flushes: bool = True,
        shard: str | None = None,
    ) -> Iterator[Change]:
        """Yield a change, which is committed when the block ends without an error.

        `take_over` is called when the change is committed: the objects of the dataset
        get its new state. Within `together`, it is called at once, and the calls that
        follow see the new state. `disturbs` says that a read that has begun before may
        find new items. `flushes` says that the rows that wait are written first.
        `shard` is the name of the shard that changes, by a rule for shards; if it
        raises `Conflict`, another writer was faster.
        """
        with self.turn("change" if shard is None else "assign") as does:
            if flushes:
                self.flush()
            with self.producing():
                if does is JOINS and self.current is not None:
                    yield self.current.change
                    take_over()
                    return
                with self.rule.changing() as change:
                    if shard is not None:
                        change.lock(shard)
                    yield change
                    self._commit(change, take_over, disturbs)

    @contextmanager
    def producing(self) -> Iterator[None]:
        """Let rows of a change be produced in the block: there can be no other one."""
        self.producer = get_caller()
        try:
            yield
        finally:
            self.producer = 0

    @contextmanager
    def together(self, take_over: Callable[[Block], object]) -> Iterator[Block]:
        """Let all changes in the block be one, which is committed at its end.

        Other threads wait. Raises `UsageError` if one of the changes has failed.
        `take_over` is called with the block when it has ended.
        """
        with self.turn("begin"):
            self.flush()
            with self.rule.changing() as change:
                block = self.current = Block(change)
                change.is_joint, is_done = True, False
                try:
                    try:
                        yield block
                    finally:
                        self.current = None
                    if change.failure:
                        raise UsageError(
                            "nothing of '%s' was changed: one of the changes has "
                            "failed: %s" % (self.path, change.failure)
                        )
                    if not change.is_empty:
                        self._commit(change, partial(take_over, block), True)
                        is_done = True
                finally:
                    if not is_done:
                        take_over(block)

    def settle(self) -> None:
        """Complete a commit that was interrupted, if that has failed until now."""
        if self.rule.has_failed:
            with self.turn():
                pass

    def flush(self) -> None:
        """Write what waits in memory; an error of one dataset does not stop the others.

        The last error is raised, with the others as its context.
        """
        failure = None
        for buffer in list(self.buffers.values()):
            try:
                try:
                    if failure is not None:
                        raise failure  # the next error gets it as its context
                finally:
                    if buffer.count:
                        buffer.check_present()
                        with self.turn():
                            buffer.flush(self)
            except Exception as error:
                failure = error
        if failure is not None:
            raise failure

    def buffer_of(self, path: str) -> Any:
        """Return the buffer of an array or a table; None if it has none.

        That of a table has the rows of its columns.
        """
        return self.buffers.get(path) or self.buffers.get(path.rpartition("/")[0])

    def flush_rows(self, path: str) -> None:
        """Write the appended rows that wait in memory."""
        buffer = self.buffer_of(path)
        if buffer is not None and buffer.count:
            with self.turn():
                buffer.flush_rows(self)

    def buffered(
        self, path: str, put: Callable[[Any], bool], call: str = "buffer"
    ) -> bool:
        """Let a change wait in memory, which `put` puts into the buffer, if it fits.

        Returns False if the change is to be written. `call` says what changes.
        """
        buffer = self.buffer_of(path)
        if buffer is None:
            return False
        with self.turn(call, holds=False) as does:
            return does is WAITS and put(buffer)

    def _commit(
        self, change: Change, take_over: Callable[[], object], disturbs: bool
    ) -> None:
        """Commit a change, and take it over, while no thread reads what it replaces."""
        self.check(self.path)  # the block may have forked
        with (
            self.replacing() if disturbs else nullcontext(),
            on_error(self._complete, change),
        ):
            change.commit()
            with self.replacing(disturbs):
                change.is_committed = True
                take_over()

    def _complete(self, change: Change) -> None:
        """Complete or undo the commit of a change, which was interrupted."""
        if change.is_committing:
            self.rule.has_failed, self.unsettled = True, change
            with suppress(Exception):  # the next turn repeats it
                self._recover()
            with suppress(Exception):
                if self.unsettled is not None:
                    self._settle(change)

    def _settle(self, change: Change) -> None:
        """Find out whether a change was committed, if its document says so, or not."""
        root = self.rule.found or self.rule.tree.state.root
        change.is_complete = not self.rule.has_failed
        change.is_committed = root.with_files({}).content == change.content
        if change.is_committed or change.is_complete:
            self.unsettled = None
        for call in change.settled if change.is_committed else ():
            with suppress(OSError):
                call()

    @contextmanager
    def replacing(self, disturbs: bool = True) -> Iterator[None]:
        """Let no thread read in the block; if it `disturbs`, let them read again."""
        with self._replacing_lock:
            number, self._nchanges = self._nchanges, None
            try:
                yield
            except BaseException:
                disturbs = True
                raise
            finally:  # the outermost block lets them read
                self._nchanges = None if number is None else number + disturbs

    def read(self, function: Callable[[], Result]) -> Result:
        """Return the result of a function that reads items, all of one state.

        It is called again, while nothing is replaced, if a change has disturbed it, or
        may have caused its error.
        """
        number = self._nchanges
        if number is not None:
            try:
                result = function()
            except Exception:
                pass
            else:
                if number == self._nchanges:
                    return result
        with self._replacing_lock:
            return function()

    @contextmanager
    def closing(self, call: str = "close") -> Iterator[None]:
        """Wait for the changes of other threads, and keep them from starting one.

        What waits in memory is written, or forgotten if this writer has lost its right.
        If nothing waits any more, an error of that comes after the block. In a process
        that has inherited the writer, no other thread makes a change.
        """
        if ask(call, self, self.path) is not WRITES:
            yield
            return
        failure = None
        with self.turn(call, holds=False):
            try:
                self.flush()
            except BaseException as error:
                # Another writer may have taken over for good.
                number = getattr(error, "errno", None)
                is_lost = self.rule.state is ALONE and self.rule.has_failed
                if is_lost and number in (errno.EAGAIN, errno.ESTALE):
                    for buffer in self.buffers.values():
                        buffer.clear()
                if any(buffer.count for buffer in self.buffers.values()):
                    raise  # there can be a second attempt
                failure = error
            yield
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Allow no more changes, when those of other threads have been made."""
        with self.closing():
            try:
                if self.is_here:
                    self.rule.release()
            finally:  # a thread that sees it closed may lock the folder
                self.rule.state = CLOSED
        self.seen = self.unsettled = None  # these keep files open


# Folder, process and thread of each turn: the thread can't wait for its end.
_TURNS: set[tuple[str, int, int]] = set()


class LockedFolder(Rule):
    """A folder that one writer has locked; a `shared` one only during each change.

    Parameters
    ----------
    tree
        The documents of the dataset.
    document
        The name of the document.
    sync
        Whether each change is on the disk when it has been made.
    prepare
        Called with the first change; if it is `shared`, with each change.
    tidy
        As for `recover`.
    shared
        Whether other writers may lock it between two changes.
    """

    wait = WAIT  # for those that take turns
    _lock: FolderLock | None = None

    def __init__(
        self,
        tree: Tree,
        document: str,
        sync: bool,
        prepare: Callable[[Change], object],
        tidy: Callable[[Tree], object],
        *,
        shared: bool,
    ) -> None:
        self.tree, self._prepare, self._tidy = tree, prepare, tidy
        # All changes know the folders whose names are on the disk.
        named, store = set[str](), tree.store
        self._new_change = partial(
            FolderChange, store, document, sync, named=named, tree=tree
        )
        self.state = TURNS if shared else ALONE
        if not shared:
            self._take()
        elif tree.store.is_folder(STAGING):  # of a writer that died, or works now
            with suppress(StorageError):
                self._take()
                self._let_go()

    def _take(self) -> None:
        """Lock the folder, and complete the change of a writer that died."""
        assert isinstance(self.tree.store, FolderStore)
        self._lock = FolderLock(self.tree.store)
        with on_error(self._let_go):
            self.recover()

    def recover(self) -> None:
        """Complete a commit that was interrupted."""
        assert isinstance(self.tree.store, FolderStore)
        recover(self.tree.store, self._new_change, self._tidy)
        self.tree.renew()  # the writer before may have changed the document

    @contextmanager
    def holding(self) -> Iterator[bool]:
        """Lock the folder until the outermost of these contexts ends."""
        if self._lock is not None or self.state is ALONE:
            yield False
            return
        turn = self.tree.store.root, os.getpid(), get_ident()
        if turn in _TURNS:
            raise NESTED.error(tree=turn[0])
        try:
            waiting(self._take, self.wait)
            _TURNS.add(turn)
            yield True
        finally:
            _TURNS.discard(turn)
            self._let_go()

    @contextmanager
    def changing(self) -> Iterator[Change]:
        """Yield a change of the locked folder, which is committed within the block."""
        root, change = self.tree.store.root, self._new_change()
        assert self._lock is not None
        self._lock.is_used = True
        with naming_dataset(root):
            # Another program may have changed the document in place.
            with suppress(FileNotFoundError):  # a folder becomes a group
                self.tree.read(change.document)
            self._prepare(change)
            try:
                yield change
            except BaseException:
                self.has_failed = change.is_committing and not change.is_complete
                if not change.is_committing:
                    with suppress(OSError):  # the next writer removes them
                        change.discard()
                    if change.has_moved and change.owner.is_here:
                        self._tidy(self.tree)
                raise
            if self.state is ALONE:
                self._prepare = bool

    def release(self) -> None:
        """Let other writers in, if the folder is not locked during a change only."""
        if self.state is ALONE:
            self._let_go()

    def _let_go(self) -> None:
        """Remove what was not committed, and unlock the folder."""
        lock, self._lock = self._lock, None  # it keeps its folder open
        if lock is None:
            return
        try:
            # If one has failed, the next writer reads the document. In a child process,
            # the parent may be using the files.
            if lock.is_used and lock.is_here and not self.has_failed:
                self.tree.store.remove_tree(STAGING)
        finally:
            lock.close()
