"""Reads that all show one state of a dataset: `Pin`.

The files of a dataset are replaced and never changed in place. So all that was read is
of one state as long as each document and each shard still is the file that was read.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from .._storage.folder_store import identity_of
from .._storage.store import Store
from ..exceptions import StorageError


class Changed(StorageError):
    """A dataset has changed since it was opened with ``pinned=True``."""

    def __init__(self, path: str) -> None:
        super().__init__(
            errno.ESTALE,
            "it has changed since it was opened with pinned=True: open it again",
            path,
        )

    def __reduce__(self) -> tuple[object, ...]:
        return Changed, (self.filename,)


class Pin:
    """The files that were read since a dataset was opened. Any thread may use it.

    A group, and the members that are opened through it, have the same one.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        # By path: the identity of a file; None if there was none.
        self._seen: dict[str, object] = {}

    def note(self, store: Store, name: str, identity: object) -> None:
        """Note a file that is read; raise `Changed` if another one was read before."""
        if self._seen.setdefault(store.path(name), identity) != identity:
            raise Changed(self._path)

    def check(self) -> None:
        """Raise `Changed` unless all files are still those that were read."""
        for path, identity in [*self._seen.items()]:
            now = None
            with suppress(FileNotFoundError, NotADirectoryError):
                now = identity_of(os.lstat(path))
            if now != identity:
                raise Changed(self._path)
