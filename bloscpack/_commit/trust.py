"""Decide whether the journal of a dataset is used: one that was planted is refused.

A journal is obeyed only if all users who could have written it may also change its
dataset. `check_in_dataset` applies this to the journal and to the folder that it is in,
and `is_believed` to a folder around a dataset. A journal that breaks a rule is refused
with an error that names journal and rule, by readers and by writers; nothing is
changed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from .._storage.folder_store import FolderStore, Held
from .._storage.store import Store
from ..constants import MAX_DOCUMENT
from ..exceptions import StorageError
from .ownership import acl_of, is_sticky, may_write

REMEDY_OF_DATASETS = (
    "Copy the dataset without the folder '.bloscpack' and verify the copy: if it is "
    "whole, remove that folder"
)
# The folder, inside of a dataset, with the files that are not committed yet.
CHANGES = ".bloscpack"
# The file in it that commits a change of several files.
JOURNAL = CHANGES + "/journal"


def _wrong_owner(status: os.stat_result, dataset: Held, is_folder: bool) -> str | None:
    uid = status.st_uid
    if not hasattr(os, "geteuid") or uid in (0, dataset.status.st_uid):
        return None
    # No other user can have made a folder of this user, whom the user database may not
    # know. A journal must be accepted by other users, too.
    if is_folder and uid == os.geteuid():
        return None
    return None if may_write(uid, dataset) else "the user '%d'" % uid


def _others_write(status: os.stat_result, dataset: Held) -> str | None:
    mode = stat.S_IMODE(status.st_mode)
    if not hasattr(os, "geteuid") or not mode & (stat.S_IWGRP | stat.S_IWOTH):
        return None
    outer = dataset.status
    if not is_sticky(outer):
        # Everybody may change the dataset itself. So it is for all files where the file
        # system has no permission bits.
        if outer.st_mode & stat.S_IWOTH:
            return None
        # The folder of a dataset is shared with a group.
        same_group = outer.st_gid == status.st_gid
        if outer.st_mode & stat.S_IWGRP and same_group and not mode & stat.S_IWOTH:
            return None
    return "the permission bits '%o'" % mode


def _rules(
    status: os.stat_result, dataset: Held, is_folder: bool
) -> Iterator[tuple[str, str | None]]:
    """Yield what is expected of a journal or its folder, and what was found instead.

    A folder has no rules about links and sizes.
    """
    if status.st_nlink != 1 and not is_folder:
        yield "one hard link", "'%d'" % status.st_nlink
    owner = "an owner who may write the folder of the dataset"
    yield owner, _wrong_owner(status, dataset, is_folder)
    yield "no other user who may write it", _others_write(status, dataset)
    if status.st_size > MAX_DOCUMENT and not is_folder:
        yield "at most '%d' bytes" % MAX_DOCUMENT, "'%d' bytes" % status.st_size


def check_in_dataset(
    dataset: FolderStore, status: os.stat_result, *, is_folder: bool = False
) -> None:
    """Raise `StorageError` if the journal of a dataset is refused, by its status.

    If it `is_folder`, this is the status of the folder that the journal is in.
    """
    holder = "a folder '.bloscpack' with " * is_folder
    for expected, found in _rules(status, dataset.hold(), is_folder):
        if found is not None:
            raise StorageError(
                "the journal '%s' is refused: expected %s%s, found %s. %s"
                % (dataset.path(JOURNAL), holder, expected, found, REMEDY_OF_DATASETS)
            )


def folder_of_changes(dataset: FolderStore) -> FolderStore:
    """Return the folder of changes of a dataset.

    Raises `StorageError` if a user who may not change the dataset could write it.
    """
    changes = dataset.subfolder(CHANGES)
    check_in_dataset(dataset, changes.status, is_folder=True)
    return changes


def is_believed(around: Held, dataset: Held) -> bool:
    """Return whether all users that can write a folder can change a dataset in it.

    The folder must have the same owner as the dataset. Another owner is accepted if the
    owner can write the dataset, and if one group can write both. A sticky folder is
    refused: it is for users that do not trust each other.
    """
    if not hasattr(os, "geteuid"):
        return True
    outer, inner = around.status, dataset.status
    if is_sticky(outer):
        return False
    if outer.st_uid != inner.st_uid:
        by_group = outer.st_mode & inner.st_mode & stat.S_IWGRP
        if not by_group or outer.st_mode & stat.S_IWOTH:
            return False
        # No other user can have made a folder of this user.
        if outer.st_uid != os.geteuid() and not may_write(outer.st_uid, dataset):
            return False
    if outer.st_mode & ~inner.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return False
    return not outer.st_mode & stat.S_IWGRP or (
        outer.st_gid == inner.st_gid and acl_of(around) == acl_of(dataset)
    )


def parent_of(store: Store) -> tuple[Store, str] | None:
    """Return the folder around that of a dataset, and the name of the dataset in it.

    None if there is none, or if it is not believed. Nothing in it counts then.
    """
    around = store.parent()
    if around is not None and isinstance(store, FolderStore):
        outer = around[0]
        assert isinstance(outer, FolderStore)
        if not is_believed(outer.hold(), store.hold()):
            return None
    return around
