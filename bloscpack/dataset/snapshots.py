"""A copy of the state of a dataset at one moment: `snapshot`.

The files of a dataset are replaced and never changed, so a second name of each file is
a copy of it that takes no room. Names are given until a list of the folder has exactly
the files that have been linked: all of them were there together when that list began.
What was there is a state that a crash could have left, so a change that was committed
is then completed in the copy, and files that were not committed are removed.

Linked are the documents and the shards of Zarr nodes that Bloscpack has written. All
other files are copied: the programs that write them may change them in place.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial

from .._commit.change import PRIVATE, PRIVATE_FOLDER
from .._commit.folder_change import FolderChange, recover
from .._commit.new_folder import LEFTOVER, unfinished
from .._commit.ownership import attributes_in, copy_attributes
from .._commit.replacing import check_apart
from .._commit.tree import Tree
from .._engine.forks import Owner
from .._format.committed import DOCUMENTS, STAGING
from .._format.identity import seems_signed
from .._format.zarr_metadata import ZARR_JSON
from .._storage.folder_store import FolderStore, LinkFound, StaleDataset
from .._storage.paths import is_url, local_path, without_url
from .._types import Path
from ..abstract_io import Progress
from ..constants import MAX_DOCUMENT
from ..exceptions import StorageError, UsageValueError
from .commit_rules import check_new_path, new_name, remove_unused
from .folder import Folder, changes_too_often
from .layouts import committing, detect

# Numbers of errors after which a file is copied instead of linked.
NO_LINK = {
    *(errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EACCES, errno.ENOSYS),
    *(errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL),
}
# Errors of reading the type of a node in a document that has none.
NO_NODE = ValueError, TypeError, KeyError
# By the type of a node of ours, the names in its folder that are replaced and never
# changed in place.
REPLACED = {
    "": set[str](),
    "group": {ZARR_JSON, STAGING},
    "array": {ZARR_JSON, STAGING, "c"},
}
# Number of bytes that are copied at a time.
BLOCK_NBYTES = 2**20
# The `identity` of a file, which changes when it is replaced, or changed in place.
Status = object
# The status of every folder: folders are not compared.
FOLDER: Status = "folder"


def snapshot(
    path: Path,
    target: Path,
    *,
    force: bool = False,
    sync: bool = True,
    timeout: float = 60.0,
    progress: Progress | None = None,
) -> None:
    """Copy the state of a dataset at one moment, also while it is written.

    Where the file system has hard links, the copy takes milliseconds and no room for
    items: both datasets have the same files until one of them is changed. The other one
    keeps its items then. All members of a group have their state of the same moment.

    Parameters
    ----------
    path
        An array, a table or a group in a folder. One at a URL is copied by
        ``dataset.convert``.
    target
        The new folder, which appears when it is complete.
    force
        Whether to replace an existing dataset.
    sync
        Whether the copy is on the disk when this returns.
    timeout
        Number of seconds after which it is an error if writers have changed the dataset
        each time that its files were compared.
    progress
        Called with the number of bytes of each part that is copied, not linked.

    Raises
    ------
    UsageError
        If it is a column of a table, or a member that its group commits; if it is at a
        URL or in a ZIP file; or if one of the two paths is inside of the other.
    FileExistsError
        If there is a dataset at `target`, without `force`.
    StorageError
        If the dataset changes all the time, or has a symbolic link in it, or if what is
        at `target` is no dataset.

    Examples
    --------
    >>> from bloscpack import dataset
    >>> with dataset.create_array('log', [1, 2]) as array:
    ...     dataset.snapshot('log', 'monday')
    ...     array[:] = 7
    >>> dataset.open('monday')[:].tolist()
    [1, 2]
    """
    path = local_path(path)
    if is_url(path):
        raise UsageValueError(
            "a snapshot is made of files in a folder: dataset.convert and 'blpk "
            "convert' copy the dataset at the URL '%s'" % path
        )
    without_url(target, "a snapshot")
    check_new_path(target)
    found = detect(Folder.open(path))
    source = found.folder.store
    if not isinstance(source, FolderStore):
        raise UsageValueError(
            "'%s' is in a ZIP file, which is copied as a file" % source.root
        )
    if committing(found) is not None:
        raise UsageValueError(
            "'%s' is committed by the table or group around it: make a snapshot of that"
            % source.root
        )
    check_apart(source.root, os.fsdecode(target))
    name, mode = new_name(target), "w" if force else "x"
    with unfinished(name, mode, sync, None) as (hidden, _):
        owner = Owner()
        hidden.make_folder(name.name, PRIVATE_FOLDER)
        copy = _Copy(source, hidden.subfolder(name.name), progress or bool)
        copy.take(time.monotonic() + timeout)
        copy.complete(sync)
        owner.check(name.path)  # a thread may have forked


class _Copy:
    """The files of a dataset in another folder, linked or copied."""

    def __init__(
        self, source: FolderStore, target: FolderStore, progress: Progress
    ) -> None:
        self._source, self._target, self._progress = source, target, progress
        self._taken: dict[str, Status] = {}
        # The status of each document, and the type of its node; see `_type_of`.
        self._types: dict[str, tuple[Status, str]] = {}
        # Owner and access of the folders, which are private until all is there.
        self._access = {"": attributes_in(source)}

    def take(self, end: float) -> None:
        """Have the files of one moment; raise `StorageError` after the time `end`."""
        while True:
            try:
                listed = {name: (status, link) for name, status, link in self._listed()}
            except StaleDataset:  # a folder was removed meanwhile
                if self._source.hold().was_removed:
                    raise
                continue
            wanted = {name: status for name, (status, _) in listed.items()}
            if wanted == self._taken:
                return
            if self._taken and time.monotonic() > end:
                raise changes_too_often(self._source.root)
            for name in sorted(self._taken, reverse=True):  # files before their folders
                if self._taken[name] == wanted.get(name):
                    continue
                if self._taken.pop(name) == FOLDER:
                    self._target.remove_folder(name)
                else:
                    self._target.remove(name)
            for name, (status, links) in listed.items():
                if name not in self._taken:
                    with suppress(FileNotFoundError, StaleDataset):  # it was removed
                        self._add(name, status, links)

    def _listed(
        self, outer: str = "", linked: bool = False
    ) -> Iterator[tuple[str, Status, bool]]:
        """Yield name and status of all, and whether a file may be linked.

        A folder comes before what is in it. `linked` says that `outer` is the folder of
        the shards of an array, or one in it.
        """
        store, start = self._source, outer + "/" if outer else ""
        entries = store.entries(outer)
        replaced = set[str]()  # the names in a node of ours
        if (ZARR_JSON, stat.S_IFREG) in entries:
            linked, replaced = False, REPLACED[self._type_of(start + ZARR_JSON)]
        for last, kind in entries:
            name, is_linked = start + last, linked or last in replaced
            if kind == stat.S_IFLNK:
                raise LinkFound(store.path(name))
            if kind == stat.S_IFDIR:
                if not LEFTOVER.fullmatch(last):  # a dataset that is not complete
                    yield name, FOLDER, False
                    yield from self._listed(name, is_linked)
            elif kind == stat.S_IFREG:
                status = store.identity(name)
                if status is not None:  # it was not removed meanwhile
                    yield name, status, is_linked
            else:
                raise StorageError(
                    errno.EINVAL, "it is neither a file nor a folder", store.path(name)
                )

    def _type_of(self, name: str) -> str:
        """Return the type of the node in a document of ours; '' for any other."""
        known = self._types.get(name)
        if known is None or known[0] != self._source.identity(name):
            status, kind = None, ""
            with suppress(FileNotFoundError, StaleDataset, *NO_NODE):
                content, status = self._source.read(name, MAX_DOCUMENT)
                if seems_signed(content):
                    kind = str(json.loads(content)["node_type"])
            self._types[name] = known = status, kind if kind in REPLACED else ""
        return known[1]

    def _add(self, name: str, status: Status, links: bool) -> None:
        """Make a folder, or link or copy a file."""
        if status == FOLDER:
            self._access[name] = attributes_in(self._source, name)
            self._target.make_folder(name, PRIVATE_FOLDER)
        elif links:
            try:
                self._target.link(name, self._source)
            except OSError as error:
                if error.errno not in NO_LINK:
                    raise
                self._copy(name)
        else:
            self._copy(name)
        self._taken[name] = status

    def _copy(self, name: str) -> None:
        like = attributes_in(self._source, name)
        with (
            closing(self._source.open(name)) as file,
            self._target.create(name, PRIVATE) as fp,
        ):
            for offset in range(0, file.size, BLOCK_NBYTES):
                block = file.read_at(offset, BLOCK_NBYTES)
                fp.write(block)
                self._progress(len(block))
            fp.flush()
            if like is not None:
                copy_attributes(fp.fileno(), like, owner=True)

    def complete(self, sync: bool) -> None:
        """Complete the changes that were committed at that moment."""
        folders = [name for name, status in self._taken.items() if status == FOLDER]
        for name in folders:
            around, _, last = name.rpartition("/")
            if last == STAGING:
                dataset = self._target.subfolder(around) if around else self._target
                document = next(filter(dataset.exists, DOCUMENTS), ZARR_JSON)
                how = dataset, document, sync
                change = partial(FolderChange, *how, tree=Tree(dataset))
                recover(dataset, change, remove_unused)
        for name in ("", *filter(self._target.is_folder, folders)):
            like = self._access[name]
            held = (self._target.subfolder(name) if name else self._target).hold()
            if like is not None and held.number is not None:
                copy_attributes(held.number, like, owner=True)
        if sync:
            self._target.sync_tree()
