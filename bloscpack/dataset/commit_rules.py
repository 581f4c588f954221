"""Which rule of `_commit` a dataset follows, and what the rules ask about datasets.

The rules do not import layouts: `DATASETS` answers their questions.
"""

from __future__ import annotations

import json
import os
from contextlib import AbstractContextManager

from .._commit import guard, new_folder
from .._commit.new_files import Change, FolderChange
from .._commit.new_folder import IsOld, Limits, NewName
from .._commit.shared import SharedObjects, SharedShards
from .._commit.writer import (
    LockedFolder,
    Prepare,
    Rule,
    SharedFolder,
    Writer,
    check_parent_table,
)
from .._format.zarr_metadata import encode_json
from .._storage.paths import is_url, local_path, without_url
from .._storage.store import Store
from .._types import Path, StorageOptions
from .folder import Folder, store_at
from .layouts import LAYOUTS, check_no_column, find, load
from .layouts.identity import (
    KEY,
    holder_of,
    identified,
    read_identity,
    take_identity,
)


class _Datasets:
    """Answers what the rules of `_commit` ask; see `new_files.Datasets`."""

    def kind_of(self, store: Store) -> str | None:
        found = find(Folder(store))
        return None if found is None else found[1]

    def check_no_column(self, store: Store) -> None:
        check_no_column(Folder(store))

    def names_inside(self, store: Store) -> list[str]:
        return Folder(store).folders()

    def drop_copies(self, store: Store, sync: bool) -> None:
        drop_copies("zarr", Folder(store), sync)

    def claimed(self, content: bytes, start: str = "") -> bytes:
        """Return a document with a new token, which begins with `start`.

        That of another program does not become one of Bloscpack.
        """
        document, stored = take_identity(json.loads(content))
        key, token = holder_of(document), start + os.urandom(8).hex()
        identity, is_own = read_identity(content, stored)
        if identity is not None and is_own:
            return identified(document, identity, encode_json, key=key, token=token)
        document[key][KEY] = "token=%s" % token
        return encode_json(document)


DATASETS = _Datasets()
SHARED = "shared array"
IN_FOLDERS = {"group": SharedFolder, SHARED: SharedShards}


def writer_for(
    folder: Folder, kind: str, sync: bool, prepare: Prepare | None = None
) -> Writer:
    """Return a writer by the rule that fits the store and the kind of a dataset.

    The kind `SHARED` is an array to which other writers may assign at the same time.
    `prepare` is called with the first change; in a store of objects it is called now,
    without one: the guard of a table is not its document.
    """
    rule: Rule
    if folder.store.can_rename:
        if kind in ("array", SHARED):
            check_parent_table(folder.store)
        locked = IN_FOLDERS.get(kind, LockedFolder)
        rule = locked(folder.pending, sync, prepare)
    elif kind == SHARED:
        rule = SharedObjects(folder.pending, DATASETS.claimed)
    else:
        if prepare is not None:
            prepare(None)
        rule = guard.GuardedObjects(folder.pending, kind, DATASETS.claimed)
    folder.forget_doubtful_document()  # another writer may have changed it until now
    return Writer(folder.root, rule)


def drop_copies(
    layout: str, folder: Folder, sync: bool, change: Change | None = None
) -> None:
    """Remove the copies of the document of a dataset that is going to be changed.

    `change` is a change of the dataset itself, if there is one.
    """
    prepare = LAYOUTS[layout].prepare
    if prepare is not None:
        load(prepare)(folder, lambda group: writer_for(group, "group", sync), change)


def new_name(path: Path | NewName) -> NewName:
    """Return where a new dataset is going to be; `path` may not be a URL."""
    if isinstance(path, NewName):
        return path
    without_url(path, "a new dataset")
    return NewName.of(os.path.abspath(os.fsdecode(path)), DATASETS)


def creating(
    path: Path | NewName, mode: str, sync: bool, limits: Limits = None
) -> AbstractContextManager[FolderChange]:
    """Return the context of a change of a new folder, see `new_folder.creating`."""
    return new_folder.creating(new_name(path), mode, sync, limits)


def new_dataset(
    path: Path, layout: str, mode: str, sync: bool, options: StorageOptions | None
) -> AbstractContextManager[Change]:
    """Return the context of a change of a new dataset, at a path or a URL.

    It is there when the block ends. `mode` is that of `new_folder.creating`, `options`
    are settings for fsspec.
    """
    path = local_path(path)
    if not is_url(path) or layout != "zarr":
        return creating(path, mode, sync)
    return guard.creating(store_at(path, options), mode, DATASETS)


def remove_dataset(folder: Folder, name: str, sync: bool) -> None:
    """Remove a dataset in a folder, in one step for all who look for it."""
    if folder.store.can_rename:
        new_folder.remove_dataset(NewName(folder.in_folder, name, DATASETS), sync)
    else:
        guard.remove_dataset(folder.store.subfolder(name))


def building(
    path: Path, mode: str, sync: bool, is_old: IsOld = None, limits: Limits = None
) -> AbstractContextManager[str]:
    """Return the context of a free path, see `new_folder.building`."""
    return new_folder.building(new_name(path), mode, sync, is_old, limits)
