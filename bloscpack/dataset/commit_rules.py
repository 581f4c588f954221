"""Which rule of `_commit` a dataset follows, and what the rules ask about datasets.

The rules do not import layouts: `DATASETS` answers their questions.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from .._commit import new_folder, objects
from .._commit.change import Change, check_mode
from .._commit.folder_change import FolderChange
from .._commit.locking import DROPPED_WAIT
from .._commit.new_folder import IsOld, Limits, NewName
from .._commit.shared import SharedObjects, SharedShards
from .._commit.states import SHARDS
from .._commit.tree import Tree
from .._commit.writer import LockedFolder, Rule, Writer
from .._engine.contexts import on_error
from .._format.identity import KEY, holder_of, is_copy, signed, take_identity
from .._format.names import is_checked_name, is_safe_part
from .._format.other_formats import FILE_CALLS
from .._format.zarr_metadata import ZARR_JSON, encode_json
from .._storage.folder_store import FolderStore
from .._storage.paths import check_ending, is_url, local_path, taken_error, without_url
from .._storage.store import Store
from .._types import Path, StorageOptions
from ..constants import MAGIC
from ..exceptions import FormatError, UsageError, UsageValueError
from .folder import Folder, Joined, store_at
from .layouts import Found, committing, find, find_member, find_members, load


def check_new_path(path: object) -> None:
    """Raise `UsageError` for a dataset with the name of a file of another format."""
    check_ending(path, "a dataset is a folder", ".zarr", FILE_CALLS)


class CommitsMembers(UsageValueError):
    """The document of the group around a new dataset commits all that is in it.

    Attributes
    ----------
    path
        The path of the group; None if its document is not to be trusted: another user
        may have made it, to have files removed.
    """

    def __init__(self, folder: Folder) -> None:
        super().__init__(
            "the document of '%s' commits all that is in it: open it for changes, and "
            "create the new member there" % folder.store.root
        )
        self.path = folder.store.root if folder.is_trusted else None


class _Datasets:
    """Answers what the rules of `_commit` ask; see `change.Datasets`."""

    def kind_of(self, store: Store) -> str | None:
        known = find(Folder(store))
        return known[1] or None if known is not None else None

    def check_independent(self, store: Store) -> None:
        folder = Folder(store)
        known = find(folder)
        outer = None
        with suppress(FileNotFoundError):  # the group has removed it
            outer = committing(Found(folder, *known)) if known is not None else None
        around = store.parent()
        if outer is not None and around is not None:
            if find(Folder(around[0])) == ("zarr", "group"):
                raise CommitsMembers(Folder(around[0]))
            raise UsageValueError(
                "'%s' is a column of a table, or a member that its group commits: "
                "remove it from there, and add another one" % store.root
            )

    def names_inside(self, store: Store) -> list[str]:
        return Folder(store).folders()

    def check_group(self, store: Store) -> None:
        if store.is_sticky:  # any user may have made a document in it
            return
        folder, known = Folder(store), None
        if folder.is_trusted:
            drop_copies(folder)
        with suppress(FormatError, OSError):  # it is damaged
            known = find(folder)
        if known is not None and known[1] not in ("group", ""):
            raise UsageValueError(
                "'%s' is the folder of the %s, which can't hold other datasets"
                % (store.root, known[1])
            )
        inner = known is not None and committing(Found(folder, *known)) is not None
        if inner or folder.tree.state.members is not None:
            raise CommitsMembers(folder)

    def claimed(self, content: bytes, start: str = "") -> bytes:
        """Return a document with a new token, which begins with `start`.

        That of another program does not become one of Bloscpack.
        """
        document, token = json.loads(content), start + os.urandom(8).hex()
        claimed = signed(document, content, encode_json, token)
        if token.encode() in claimed:
            return claimed
        document = take_identity(document)[0]
        document[holder_of(document)][KEY] = "token=%s" % token
        return encode_json(document)


class _Released(_Datasets):
    """The same for a dataset in the place of a member, which the group releases."""

    def check_group(self, store: Store) -> None:
        """Return: the writer of the group has called.

        It still commits the member, until the new one is complete.
        """

    check_independent = check_group


DATASETS = _Datasets()
RELEASED = _Released()


def writer_for(
    found: Found, sync: bool, *, shared: bool = False, wait: float | None = None
) -> Writer:
    """Return a writer by the rule that fits the store and the kind of a dataset.

    `shared` says that other writers may assign to the array at the same time, or to the
    arrays of the group. `wait` is the number of seconds that a change waits for other
    writers; None is the default.
    """
    folder, (layout, kind) = found.folder, found[1:]
    tree, store = folder.tree, folder.store
    is_shared = kind == "group"

    def check() -> None:
        """Raise `Joined` if a group has got one writer, which changes this.

        Called when the dataset is locked: until then, another program may do that.
        """
        if layout == "zarr" and committing(found) is not None:
            raise Joined(folder.path())

    def prepare(change: Change) -> None:
        if is_shared:
            check()
        if layout == "zarr":
            load("zarr.prepare")(folder, _group_writer, change)

    rule: Rule
    if shared and not is_shared and store.can_rename:
        rule = SharedShards(tree, sync, check, remove_unused)
    elif shared and not is_shared:
        rule = SharedObjects(tree, DATASETS.claimed)
    elif store.can_rename:
        how = found.node_class.document, sync, prepare, remove_unused
        rule = LockedFolder(tree, *how, shared=is_shared)
    else:
        rule = objects.ClaimedObjects(
            tree, is_shared, DATASETS.claimed, prepare, wait or 0
        )
    tree.ignore_copies()
    with on_error(rule.release):
        if store.can_rename:
            check()
    if shared:
        rule.state = SHARDS
    writer = Writer(folder.store.root, rule, wait)
    writer.check_joined = check
    if is_shared:  # any other dataset has no members that are open beside it
        writer.seen = tree.state
    return writer


def remove_unused(tree: Tree) -> None:
    """Remove the files of items that no document of a dataset has.

    A writer that died has left them. If it fails, they stay: they do not count.
    """

    def remove_in(found: Found) -> None:
        with suppress(FormatError, UsageError, OSError):
            for array in found.open().arrays().values():
                array.remove_unused()
            if found.kind == "group" and tree.state.members is not None:
                for _, inner in find_members(found.folder):
                    if inner.folder.prefix:
                        remove_in(inner)

    folder = Folder(tree.store, "", tree)
    with suppress(FormatError, UsageError, OSError):
        if (known := find(folder)) and known[1]:
            remove_in(Found(folder, *known))


def drop_copies(folder: Folder) -> None:
    """Remove the copies of documents that another program has made in a group."""
    load("zarr.prepare")(folder, _group_writer)


def _group_writer(folder: Folder) -> Writer:
    return writer_for(Found(folder, "zarr", "group"), True)


class Member(os.PathLike[str]):
    """The place of a new member in a group.

    If the document of the group commits it, `add` creates it there and opens it:
    `Group._add` with its name. None means that it is a dataset of its own. `timeout` is
    the group's.
    """

    def __init__(
        self, path: str, add: Callable[..., Any] | None, timeout: float | None = None
    ) -> None:
        self._path, self.add, self.timeout = path, add, timeout

    def __fspath__(self) -> str:
        return self._path


@contextmanager
def creating_member(
    writer: Writer, folder: Folder, name: str, mode: str, close: Callable[[], object]
) -> Iterator[Change]:
    """Yield a change that creates a member of a group whose document commits it.

    `mode` is that of `create_array`. `close` is called before the member replaces
    another one, which may be open.
    """
    check_mode(mode)
    path, full = folder.path(name), folder.full(name)
    if find_member(folder, name) is not None:
        if mode == "x":
            raise taken_error(path)
        close()
    with writer.change() as change:
        if not change.make_room(full):
            _remove_leftover(folder, name)
            change.new_folders.add(full)
        yield change


@contextmanager
def replacing_member(
    writer: Writer,
    folder: Folder,
    name: str,
    mode: str,
    sync: bool,
    wait: float,
    close: Callable[[], object],
) -> Iterator[Change]:
    """Yield a change of a new dataset beside the member that it replaces, if any.

    One of the two has a layout that no group commits. When the new dataset is complete,
    the group releases the member, and `close` is called. Then they exchange their
    names, the commit point.
    """

    def release() -> None:
        with writer.change(close) as change:
            load("zarr.release")(change, folder.child(name))

    around = folder.own_store()
    assert isinstance(around, FolderStore)
    target = NewName(around, name, RELEASED, wait=wait)
    with new_folder.creating(target, mode, sync, ready=release) as change:
        yield change


def _remove_leftover(folder: Folder, name: str) -> None:
    """Remove what is left of a member that was removed, or never committed.

    Raises ``FileExistsError`` if there is anything else.
    """
    left, exists = folder.dataset(name), os.strerror(errno.EEXIST)
    if not folder.is_folder(name):
        if not folder.exists(name):
            return
        raise FileExistsError(errno.EEXIST, exists, folder.path(name))
    folders = [""]
    for prefix in folders:
        for last, kind in left.entries(prefix):
            inner = prefix + last
            if kind == stat.S_IFDIR and is_safe_part(last):
                folders.append(inner + "/")
            elif not (kind == stat.S_IFREG and _is_ours(left, inner)):
                raise FileExistsError(errno.EEXIST, exists, left.path(inner))
    folder.remove_tree(name)


def _is_ours(folder: Folder, name: str) -> bool:
    """Return whether a file is a shard, or a copy of the document of a member."""
    if not is_checked_name(name):
        return False
    if name.rpartition("/")[2] != ZARR_JSON:
        return folder.read(name, len(MAGIC)) == MAGIC
    with suppress(FormatError):
        return is_copy(*folder.read_document(name))
    return False


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
    path: Path,
    layout: str,
    mode: str,
    sync: bool,
    options: StorageOptions | None,
    wait: float = DROPPED_WAIT,
) -> AbstractContextManager[Change]:
    """Return the context of a change of a new dataset, at a path or a URL.

    It is there when the block ends. `mode` is that of `new_folder.creating`, `options`
    are settings for fsspec, and `wait` is that of `NewName`.
    """
    path = local_path(path)
    if is_url(path) and layout == "zarr":
        return objects.creating(store_at(path, options), mode, DATASETS)
    target = new_name(path)
    target.wait = wait
    return creating(target, mode, sync)


def remove_dataset(folder: Folder, name: str, sync: bool) -> None:
    """Remove a dataset in a folder, in one step for all who look for it."""
    around = folder.own_store()
    if isinstance(around, FolderStore):
        new_folder.remove_dataset(NewName(around, name, DATASETS), sync)
    else:
        objects.remove_dataset(folder.own_store(name))


def building(
    path: Path, mode: str, sync: bool, is_old: IsOld = None, limits: Limits = None
) -> AbstractContextManager[str]:
    """Return the context of a free path, see `new_folder.building`."""
    return new_folder.building(new_name(path), mode, sync, is_old, limits)
