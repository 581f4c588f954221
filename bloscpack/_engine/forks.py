"""Locks that are free in a child process after a fork, and owners of open files.

A fork copies a lock that another thread holds, but not that thread: nothing would ever
release the lock in the child process. A `ForkSafeLock` is renewed there when it is used
first. Objects that repair what their locks guard are listed here, and do so before any
other code runs in the child.

A fork also copies the files that the process has opened for changes. Two processes
would overwrite what the other one writes: the files belong to the process that opened
them, see `Owner`.
"""

from __future__ import annotations

import os
from _thread import LockType, RLock, allocate_lock
from functools import partial
from weakref import ref

from ..exceptions import UsageError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Any, Protocol

    class Renewable(Protocol):
        """An object with locks."""

        def renew_locks(self) -> None:
            """Replace the locks by new ones, and repair what they guard."""


class WeakValues:
    """A dictionary of objects, each as long as something else refers to it.

    Freeing an object calls no function in Python, which would lose the error of Ctrl-C.
    """

    def __init__(self) -> None:
        self._refs: dict[Any, ref[Any]] = {}

    def __setitem__(self, key: object, value: object) -> None:
        self._refs[key] = ref(value, partial(self._refs.pop, key))

    def get(self, key: object) -> Any:
        """Return an object; None if there is none."""
        known = self._refs.get(key)
        return known and known()

    def items(self) -> list[tuple[Any, Any]]:
        """Return the keys and the objects."""
        values = [(key, known()) for key, known in list(self._refs.items())]
        return [(key, value) for key, value in values if value is not None]


# The objects that exist, by `id`.
_owners = WeakValues()
_adding = RLock()
# The number of forks between this process and the first one.
_nforks = 0
# The error of a change in a process that has inherited an open file or dataset.
OTHER_PROCESS = (
    "'%(path)s' was opened for changes by the process %(owner)d, and this is the "
    "process %(here)d: close it there, and open it here"
)


def renew_after_fork(owner: Renewable) -> None:
    """Let a child process call ``owner.renew_locks()`` when it starts."""
    _owners[id(owner)] = owner


def _renew_all() -> None:
    global _adding, _nforks
    _adding = RLock()
    _nforks += 1
    for _, owner in _owners.items():
        owner.renew_locks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)


if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property:
        """A property that is computed once, without a lock.

        `functools.cached_property` of Python 3.10 and 3.11 has a lock for all objects
        of a class, which a child process may inherit locked.
        """

        def __init__(self, function):
            self._function = function
            self.__doc__ = function.__doc__

        def __set_name__(self, owner, name):
            self._name = name

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            value = self._function(instance)
            # Looking up any attribute takes longer once `__dict__` has been used.
            object.__setattr__(instance, self._name, value)
            return value


class ForkSafeLock:
    """A lock that is free in a child process after a fork: ``with lock.current``.

    The statement gets a lock of Python. Ctrl-C would come between a method that takes
    the lock and the block, and the lock would never be released.
    """

    def __init__(self) -> None:
        self._lock, self._nforks = allocate_lock(), _nforks

    @property
    def current(self) -> LockType:
        """The lock of this process."""
        if self._nforks != _nforks:
            with _adding:  # another thread of this process may have renewed it
                if self._nforks != _nforks:
                    self._lock, self._nforks = allocate_lock(), _nforks
        return self._lock


class NamedLocks:
    """A lock for each name, which the same thread may take several times."""

    def __init__(self) -> None:
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        """Forget all locks: no thread has one."""
        self._adding, self._locks = allocate_lock(), WeakValues()

    def at(self, name: str) -> RLock:
        """Return the lock of a name, which exists as long as somebody has it."""
        with self._adding:
            lock: RLock = self._locks.get(name) or RLock()
            self._locks[name] = lock
        return lock


class Owner:
    """The process that opened a file or a dataset for changes.

    In other processes a change is an error, and nothing is unlocked or removed.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether the calling process is the owner."""
        return self.pid == os.getpid()

    def check(self, name: str) -> None:
        """Raise `UsageError` in another process; `name` is the opened path."""
        if not self.is_here:
            values = {"path": name, "owner": self.pid, "here": os.getpid()}
            raise UsageError(OTHER_PROCESS % values)

    def close_file(self, fp: Any) -> None:
        """Close a file that is written.

        In another process the bytes in its buffer are dropped: the owner writes them.
        Closing the file below the buffer needs no lock of the buffer, which another
        thread may have held at the time of the fork. Nor does Python when it frees a
        buffer whose file is closed.
        """
        (fp if self.is_here else getattr(fp, "raw", fp)).close()


class OwnLock(Owner):
    """A lock for the threads of one process, which a thread may take several times.

    In another process it would never be free if a thread held it at the time of the
    fork.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self.lock = RLock()

    def checked(self) -> RLock:
        """Return the lock; raise `UsageError` in another process."""
        self.check(self.path)
        return self.lock
