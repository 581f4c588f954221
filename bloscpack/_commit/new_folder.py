"""The rule 'a hidden folder renamed at the end': a dataset is new, or is removed.

A new dataset is written in a temporary folder beside its name. All names are those in
the folder around, which is held open.

Commit point
    The rename of the dataset. A dataset that is replaced stays under its name until
    then; where the system can't exchange two folders, it has no name for a moment, and
    its folder begins with a dot. A dataset that is removed is first renamed, too.
Recovery
    The next writer in the folder removes the temporary folders whose writers have died.
    A temporary folder is locked first, and then it gets the file `MARK`, which is
    removed last. Somebody may have given the name of one to another folder: a folder
    without the file stays, unless it is empty.
Trust
    Until it is complete, only its owner can open the folder that a new dataset is in. A
    writer removes only temporary folders of its user or of the owner of the folder
    around, and no folder that is locked.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass

from .._engine.contexts import on_error
from .._engine.forks import Owner
from .._format.committed import STAGING
from .._format.zarr_metadata import ZARR_JSON
from .._storage.disk import NAME_PART, disk
from .._storage.folder_store import FolderStore, LinkFound, NoFileFound, StaleDataset
from .._storage.paths import taken_error
from ..exceptions import StorageError, UsageValueError
from .access import Model, NewAccess
from .change import PRIVATE, PRIVATE_FOLDER, Datasets, check_mode, not_replaced
from .folder_change import FolderChange, naming_dataset
from .locking import DROPPED_WAIT, FolderLock, waiting
from .ownership import AccessLimits

# Says whether a folder that is no dataset may be replaced. The attributes of an input.
# The folder that is replaced, if there is one.
IsOld = Callable[[str], bool] | None
Limits = AccessLimits | None
Replaced = FolderStore | None
# How the name of a folder begins that is not complete, or that was replaced.
TEMPORARY = ".%s.bloscpack-"
LEFTOVER = re.compile(r"\..+\.bloscpack-[0-9]+")
# The file in a temporary folder that shows that a writer made the folder.
MARK = ".bloscpack-new"
# Number of temporary folders after which an error of locking one is not that another
# writer has removed it.
MAX_SIBLINGS = 16


@dataclass(eq=False)
class NewName:
    """The name `name` of a new dataset, in the open folder `parent`.

    `datasets` says what is in other folders. If it replaces no dataset, it gets the
    access `like`, or else see `Model.of_parent`. `wait` is the number of seconds to
    wait for the writer of the dataset that it replaces.
    """

    parent: FolderStore
    name: str
    datasets: Datasets
    like: Model | None = None
    wait: float = DROPPED_WAIT

    @property
    def start(self) -> str:
        """How the names of temporary folders for it begin."""
        return TEMPORARY % self.name[:NAME_PART]

    @classmethod
    def of(cls, path: str, datasets: Datasets) -> NewName:
        """Return the last part of a full path."""
        around, name = os.path.split(path)
        return cls(FolderStore(around), name, datasets)

    @property
    def path(self) -> str:
        """The path of the dataset."""
        return os.path.join(self.parent.root, self.name)

    def model(self, replaces: FolderStore | None) -> Model:
        """Return the access of the new dataset."""
        if replaces is not None:
            return Model(replaces)
        return self.like or Model.of_parent(self.parent)

    def folder(self) -> FolderStore:
        """Return the folder that has the name."""
        return self.parent.subfolder(self.name)


@contextmanager
def creating(
    target: NewName,
    mode: str,
    sync: bool,
    limits: Limits = None,
    ready: Callable[[], object] = bool,
) -> Iterator[FolderChange]:
    """Yield a change of a new folder, which gets its name when the block ends.

    `mode` is ``'x'`` for a name that must be free, or ``'w'`` to replace a dataset.
    `limits` are the attributes of the input, if any. `ready` is called before the
    folder gets its name, when it is complete.
    """
    with unfinished(target, mode, sync, limits) as (hidden, access):
        hidden.make_folder(target.name)
        folder = hidden.subfolder(target.name)
        held = folder.hold()
        access.give(held.number, access.of_folder(""), "")
        change = FolderChange(folder, ZARR_JSON, sync, access)
        yield change
        change.commit()
        folder.remove_tree(STAGING)
        ready()


@contextmanager
def building(
    target: NewName, mode: str, sync: bool, is_old: IsOld = None, limits: Limits = None
) -> Iterator[str]:
    """Yield a free path, for a dataset that gets its name when the block ends.

    The block may write the dataset in many steps, and need not sync any. `mode`, `sync`
    and `limits` are those of `creating`. `is_old` says whether a folder that is no
    dataset may be replaced, too.
    """
    with unfinished(target, mode, sync, limits, is_old) as (hidden, access):
        owner = Owner()
        yield hidden.path(target.name)
        owner.check(target.path)  # the block may have forked
        built = hidden.subfolder(target.name)
        access.give_all(built)
        if sync:
            built.sync_tree()


@contextmanager
def creating_inside(path: str) -> Iterator[FolderChange]:
    """Yield a change of a new folder at the path of `building`, or below it.

    Only its writer knows the path, so the folder needs no other name until it is
    complete, and no access of its own: `building` gives all folders theirs.
    """
    disk.make_folder(path)
    folder = FolderStore(path)
    change = FolderChange(folder, ZARR_JSON, False, NewAccess(Model()))
    yield change
    change.commit()
    folder.remove_tree(STAGING)


@contextmanager
def unfinished(
    target: NewName, mode: str, sync: bool, limits: Limits, is_old: IsOld = None
) -> Iterator[tuple[FolderStore, NewAccess]]:
    """Yield a folder in which the name of the target is free, and its access.

    The block makes the dataset there, which gets its name when the block ends; the one
    that it replaces is locked until then.
    """
    lock = waiting(lambda: check_target(target, mode, is_old), target.wait)
    with nullcontext() if lock is None else closing(lock):
        if lock is None:
            os.makedirs(target.parent.root, exist_ok=True)
        replaces = None if lock is None else lock.folder
        access = NewAccess(target.model(replaces), limits)
        remove_leftovers(target.parent, target.start)
        start = os.path.join(target.parent.root, target.start)
        with naming_dataset(target.path, start), sibling_folder(target) as hidden:
            yield hidden, access
            put(hidden, target, sync, mode, replaces)


def remove_dataset(target: NewName, sync: bool) -> None:
    """Remove a dataset, in one step for all who look for its name.

    Raises `StorageError` if a writer has opened it, or a member of it.
    """
    folder = target.folder()
    with closing(FolderLock(folder)):
        target.datasets.check_independent(folder)
        _check_no_writer(folder, target.datasets)
        with sibling_folder(target) as hidden:
            _take_away(target.parent, target.name, folder, hidden)  # commit point
            if sync:
                target.parent.sync_folder()


def check_target(target: NewName, mode: str, is_old: IsOld = None) -> FolderLock | None:
    """Return a lock of the dataset that is to be replaced, if any.

    `is_old` is that of `building`.
    """
    check_mode(mode)
    if target.name == MARK or LEFTOVER.fullmatch(target.name):
        raise UsageValueError(
            "'%s' has a name that is reserved for temporary folders" % target.path
        )
    if not target.parent.exists(target.name):
        target.datasets.check_group(target.parent)
        return None
    if mode == "x":
        raise taken_error(target.path)
    if not target.parent.is_folder(target.name):
        what = "a symbolic link" if os.path.islink(target.path) else "not a folder"
        text = "it is %s, and is not replaced by a dataset" % what
        raise StorageError(errno.EEXIST, text, target.path)
    folder = target.folder()
    target.datasets.check_independent(folder)
    target.datasets.check_group(target.parent)  # whose writer may be making the folder
    is_other = bool(folder.names()) and target.datasets.kind_of(folder) is None
    if is_other and (is_old is None or not is_old(target.path)):
        raise not_replaced(target.path)
    lock = FolderLock(folder)
    with on_error(lock.close):
        _check_no_writer(folder, target.datasets)
    return lock


def _check_no_writer(
    folder: FolderStore, datasets: Datasets, *, is_member: bool = False
) -> None:
    """Raise `StorageError` if a member of a group or table is open for writing."""
    try:
        kind = datasets.kind_of(folder)
    except LinkFound:
        raise
    except NoFileFound:  # a column's folder may have the name of a document
        kind = None
    if kind is not None and is_member:
        FolderLock(folder).close()
    if kind != "array":
        for name in datasets.names_inside(folder):
            _check_no_writer(folder.subfolder(name), datasets, is_member=True)


@contextmanager
def sibling_folder(target: NewName) -> Iterator[FolderStore]:
    """Yield a folder beside `target`, which is then removed.

    It is no dataset. So other programs do not take a dataset in it, which is not
    complete, or was removed, for a member of a group.
    """
    owner = Owner()
    made: list[FolderStore] = []
    # A signal raises its exception once, perhaps during the removal.
    with on_error(_remove_sibling, target, made, owner):
        try:
            with closing(_make_sibling(target, made)):
                yield made[-1]
        finally:
            _remove_sibling(target, made, owner)


def _make_sibling(target: NewName, made: list[FolderStore]) -> FolderLock:
    """Make a temporary folder beside `target`, the last of `made`; return its lock."""
    while True:
        number = int.from_bytes(os.urandom(8), "big")
        name = "%s%d" % (target.start, number)
        # Before the folder is made: a signal may follow at once.
        made.append(target.parent.subfolder(name))
        try:
            target.parent.make_folder(name, PRIVATE_FOLDER)
        except FileExistsError:
            made.pop()
            continue
        # Until it is locked, another writer may remove it as the folder of a dead one.
        try:
            lock = FolderLock(made[-1])
            mark(made[-1])
            return lock
        except (FileNotFoundError, StorageError):
            if len(made) >= MAX_SIBLINGS:
                raise


def mark(folder: FolderStore) -> None:
    """Note in a new temporary folder that a writer made it."""
    folder.create(MARK, PRIVATE).close()


def _remove_sibling(target: NewName, made: list[FolderStore], owner: Owner) -> None:
    """Remove temporary folders, unless the process is a child of their writer."""
    while made and owner.is_here:
        with suppress(OSError):  # the next writer of the name removes it
            made[-1].clear(MARK)
            target.parent.remove_folder(os.path.basename(made[-1].root))
        made.pop()


def remove_leftovers(folder: FolderStore, start: str = "") -> None:
    """Remove the temporary folders in a folder that writers left when they died.

    `start` is how the names of those of one dataset begin.
    """
    for name in folder.names():
        if name.startswith(start) and LEFTOVER.fullmatch(name):
            remove_leftover(folder, name)


def remove_leftover(
    folder: FolderStore, name: str, sink: NewName | None = None
) -> None:
    """Remove a temporary folder that a writer left.

    The folders of other users stay, and so does a folder that a writer has locked, or
    that no writer has made. With `sink` the folder is first renamed into a hidden
    folder beside that name: processes that use its old name see it complete, or not at
    all.
    """
    with suppress(OSError):  # another writer may have removed it
        status = folder.status_of(name)
        owners = folder.status.st_uid, getattr(os, "geteuid", int)()
        if status is None or status.st_uid not in owners:
            return
        left = folder.subfolder(name)
        with closing(FolderLock(left)):
            is_ours = left.exists(MARK)
            if is_ours and sink is not None:
                with sibling_folder(sink) as hidden:
                    _take_away(folder, name, left, hidden, sink.name)
            elif folder.has(name, left) and left.status.st_uid in owners:
                if is_ours:
                    left.clear(MARK)
                folder.remove_folder(name)  # fails unless it is empty


def _take_away(
    around: FolderStore,
    name: str,
    found: FolderStore,
    hidden: FolderStore,
    new: str = "",
) -> None:
    """Move the folder `found` with a name to the folder `hidden`, by a name `new`.

    Another folder that has got the name meanwhile goes back.
    """
    new = new or name
    hidden.rename(name, new, around)
    if not hidden.has(new, found):
        around.rename(new, name, hidden)
        raise StaleDataset(around.path(name))


def put(
    hidden: FolderStore, target: NewName, sync: bool, mode: str, old: Replaced = None
) -> None:
    """Give a complete folder its name; take the name from the one that had it.

    The folder has the name in `hidden`. `old` is the folder that had the name, if the
    caller has checked and locked it.
    """
    around, name = target.parent, target.name
    lock = check_target(target, mode) if old is None else None
    with nullcontext() if lock is None else closing(lock):
        replaces = old if lock is None else lock.folder
        if replaces is None:
            around.rename(name, name, hidden)  # commit point
        elif around.exchange(name, name, hidden):  # commit point
            if not hidden.has(name, replaces):  # it would be removed
                around.exchange(name, name, hidden)
                raise StaleDataset(target.path)
        else:
            with sibling_folder(target) as other:
                _take_away(around, name, replaces, other)
                around.rename(name, name, hidden)  # commit point
    if sync:
        around.sync_folder()
