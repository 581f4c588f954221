"""The places inside of the package at which tests stop, delay, count or fail calls.

No public call makes the disk fail, or a thread wait, in the middle of a change. Tests
take these names from here: a move inside of the package changes this module alone.
"""

# ruff: noqa: F401 - the other modules import these names.

from __future__ import annotations

from bloscpack._arrays.reader import PartReader
from bloscpack._commit import locking, ownership, shared
from bloscpack._commit.folder_change import FolderChange
from bloscpack._commit.locking import FolderLock
from bloscpack._commit.objects import Claim, NewObjects, ObjectChange, unfinished
from bloscpack._commit.states import (
    DRAFT,
    FRESH,
    JOINS,
    MADE,
    NEVER,
    NOW,
    OPENED,
    RULES,
    SAME,
    TWIN,
    WAITS,
    WRITES,
    Refused,
    State,
    states_of,
)
from bloscpack._commit.writer import LockedFolder
from bloscpack._engine.forks import Owner
from bloscpack._format import block_table
from bloscpack._format.committed import PENDING, Root
from bloscpack._format.grid import Grid
from bloscpack._storage import descriptors, object_store, remote, remote_files
from bloscpack._storage.base import Storage
from bloscpack._storage.disk import Disk, disk
from bloscpack._storage.folder_store import HAS_OPEN_FOLDERS, FolderStore, OpenFile
from bloscpack._storage.object_store import ObjectStore
from bloscpack._storage.store import Conflict, MemoryStore


def with_pending(content, files):
    """Return the content of a document with another list of files, or without one."""
    return Root(content).with_files(files).content


def checked_bytes(patch, read):
    """Return what `read` returns, and how many bytes it checks."""
    counts, genuine = [], block_table.crc32c

    def counted(data, *arguments):
        counts.append(len(data))
        return genuine(data, *arguments)

    with patch.context() as context:
        for module in ("chunks", "crc32c"):
            context.setattr("bloscpack._format.%s.crc32c" % module, counted)
        found = read()
    return found, sum(counts)


def replace_disk(patch, new):
    """Let datasets use another disk, as long as `patch` is in force."""
    for name in "_storage.folder_store", "_commit.folder_change", "_commit.new_folder":
        patch.setattr("bloscpack.%s.disk" % name, new)
