"""The owner and the permission bits of new files and folders of a dataset.

Contract: a change keeps the owner of the dataset, and gives no user new access to it. A
new dataset gives no user more access than the dataset that it replaces, and only users
who may read the input may read it; each member, and each column, is read by those who
may read the member of the input. Files get their access before they get their names.

===========================  ======================================================
new                          access
===========================  ======================================================
file that replaces a file    as the file
other file of a dataset      as the nearest file that describes the dataset
folder of a dataset          as the folder around it
file, folder of a new one    as the same part of the replaced dataset, or the part
                             around it there, or else the usual access
member of another user's     as the group; a folder that is sticky, or that others may
group, which root creates    write, counts for nothing
===========================  ======================================================
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from .._format.names import MAX_PARTS, is_safe_part
from .._storage.folder_store import FolderStore, LinkFound
from .._storage.store import too_deep
from .ownership import (
    AccessLimits,
    FileAccess,
    attributes_in,
    copy_attributes,
    limit_access,
    of_another_user,
)

# Files that describe a dataset, or a column, of any layout: at least one of each.
DESCRIPTIONS = ("zarr.json", "meta/storage", "__rootdirs__")
# The same for inputs of `convert`: also those of Zarr format 2, and blocks of BigFile.
INPUT_DESCRIPTIONS = (*DESCRIPTIONS, ".zarray", ".zgroup", "header")


class Access:
    """The access of new files and folders in the folder of a dataset.

    Attributes
    ----------
    limits
        The attributes of the input, which limit the access; None for no input.
    new
        The folders that were made now: nothing in them has an access to be kept.
    """

    limits: AccessLimits | None = None

    def __init__(self, folder: FolderStore) -> None:
        self._folder = folder
        self._models: dict[str, FileAccess | None] = {}
        self.new: set[str] = set()

    def of_file(self, name: str) -> FileAccess | None:
        """Return the access of a new file; None for the usual access."""
        folder = folder_of(name)
        known = None if folder in self.new else attributes_in(self._folder, name)
        return known or self.of_description(folder) or _of_owner(self._folder)

    def of_folder(self, name: str) -> FileAccess | None:
        """Return the access of a new folder; None for the usual access."""
        return attributes_in(self._folder, folder_of(name), only_access=True)

    def of_description(self, name: str = "") -> FileAccess | None:
        """Return the access of the nearest description, from a folder upwards."""
        if name not in self._models:
            model = None
            if name not in self.new:
                model = _first_of(self._folder, DESCRIPTIONS, name)
            if model is None and name:
                model = self.of_description(folder_of(name))
            self._models[name] = model
        return self._models[name]

    def give(
        self, descriptor: int | None, source: FileAccess | None, name: str
    ) -> None:
        """Give access to a new folder, or a file in a folder, which is open.

        `name` is that of the folder.
        """
        if descriptor is None or os.chmod not in os.supports_fd:
            return
        limits = None if self.limits is None else self.limits.at(name)
        if source is not None:
            copy_attributes(descriptor, source, owner=True, limit=limits)
        elif limits is not None:
            limit_access(descriptor, limits)


class Model(NamedTuple):
    """A folder of a replaced dataset, if there is one, and the access to copy."""

    folder: FolderStore | None = None
    of_file: FileAccess | None = None
    of_folder: FileAccess | None = None

    @classmethod
    def of_parent(cls, folder: FolderStore) -> Model:
        """Return the access of a new dataset in a folder, which replaces none.

        Root gives a new member of a group to the owner of the group.
        """
        of_folder = _of_owner(folder)
        of_file = of_folder and _first_of(folder, DESCRIPTIONS)
        if not of_folder or not of_file:
            return cls()
        is_own = of_file.status.st_uid == of_folder.status.st_uid
        return cls(None, of_file, of_folder) if is_own else cls()


class NewAccess(Access):
    """The access of the files and folders of a new dataset.

    Until it is complete, it is in a folder that only its owner can open.

    Parameters
    ----------
    like
        The access of the dataset, with the folder of the one that it replaces.
    limits
        The attributes of the input, if any.
    """

    def __init__(self, like: Model, limits: AccessLimits | None = None) -> None:
        self._like = like
        self.new: set[str] = set()
        self._parts: dict[str, Model] = {}
        self.limits = limits

    def of_file(self, name: str) -> FileAccess | None:
        """Return the access of a new file; None for the usual access."""
        return self.model_of(folder_of(name)).of_file

    def of_folder(self, name: str) -> FileAccess | None:
        """Return the access of a new folder; None for the usual access."""
        return self.model_of(name).of_folder

    def model_of(self, name: str) -> Model:
        """Return what a folder replaces, or else what the folder around it does."""
        if name not in self._parts:
            around, _, last = name.rpartition("/")
            model = self.model_of(around) if name else self._like
            folder = model.folder
            if name and folder is not None:
                folder = folder.subfolder(last) if folder.is_folder(last) else None
            if folder is not None:
                file = Access(folder).of_description() or model.of_file
                file = file or _first(folder)
                model = Model(folder, file, attributes_in(folder, only_access=True))
            self._parts[name] = model._replace(folder=folder)
        return self._parts[name]

    def give_all(self, folder: FolderStore) -> None:
        """Give access to all files and folders in a folder, and to itself."""
        like = self._like
        if self.limits is None and not (like.folder or like.of_folder):
            return
        for name, kind in folder.walk():
            if kind == stat.S_IFDIR:
                held = folder.subfolder(name).hold()
                self.give(held.number, self.of_folder(name), name)
            elif kind == stat.S_IFREG:
                file = folder.open(name)
                self.give(file.descriptor, self.of_file(name), folder_of(name))
                file.close()
        held = folder.hold()
        self.give(held.number, self.of_folder(""), "")


class FolderLimits(AccessLimits):
    """The limits for readers of a copy of a folder; its parts have limits of their own.

    A part of the copy has the limits of the folder of the same name. If nothing
    describes that folder, those of the folder around count, too. Of the files of items,
    the first one counts, where it has a fixed name. If there is no such folder, as
    if the layouts differ, all parts of the folder around count.
    """

    def __init__(
        self, folder: FolderStore, around: Iterable[FileAccess] | None = None
    ) -> None:
        self._folder = folder
        self._parts: dict[str, AccessLimits] = {}
        held = folder.hold()  # what is open has attributes
        description = _first_of(folder, INPUT_DESCRIPTIONS)
        if description is None and around is None:
            description = _first(folder)
        models = [attributes_in(folder), description, _first_items(folder)]
        models += () if description else around or ()
        super().__init__(*(each for each in models if each is not None))
        del held

    def at(self, name: str) -> AccessLimits:
        """Return the limits of a part of the copy; `name` is that of its folder."""
        if not name:
            return self
        first, _, rest = name.partition("/")
        if first not in self._parts:
            self._parts[first] = (
                FolderLimits(self._folder.subfolder(first), self.inputs)
                if self._folder.is_folder(first)
                else self.whole()
            )
        return self._parts[first].at(rest)

    def whole(self, depth: int = 0) -> AccessLimits:
        """Return the limits of a copy that is a single file: those of all parts."""
        if depth >= MAX_PARTS:
            raise too_deep(self._folder.root)
        inputs = list(self.inputs)
        for name, kind in self._folder.entries():
            if kind == stat.S_IFDIR and is_safe_part(name):
                # The copy has no file that can't be read, or that is behind a link.
                with suppress(PermissionError, LinkFound):
                    part = FolderLimits(self._folder.subfolder(name), self.inputs)
                    inputs += part.whole(depth + 1).inputs
        return AccessLimits(*inputs)


def limits_of(path: str) -> AccessLimits | None:
    """Return the attributes that limit the readers of a copy of a file or folder.

    A pipe or a device sets no limit.
    """
    if os.path.isdir(path):
        return FolderLimits(FolderStore(os.path.abspath(path)))
    model = FileAccess(path)
    return AccessLimits(model) if stat.S_ISREG(model.status.st_mode) else None


def _of_owner(folder: FolderStore) -> FileAccess | None:
    """Return the access of a folder of another user in which root makes something."""
    model = attributes_in(folder, only_access=True)
    return model if model is not None and of_another_user(model) else None


def _first_of(
    folder: FolderStore, names: Iterable[str], inside: str = ""
) -> FileAccess | None:
    """Return the access of the first of several files that exists in a folder."""
    for name in names:
        file = inside + "/" + name if inside else name
        model = attributes_in(folder, file, only_access=True)
        if model is not None:
            return model
    return None


def _first_items(folder: FolderStore) -> FileAccess | None:
    """Return the access of the first file of items of a Zarr array or a block."""
    name = "c/0"
    with suppress(LinkFound):  # zarr-python follows it
        while folder.is_folder(name):
            name += "/0"
        return _first_of(folder, (name, "000000"))
    return None


def _first(folder: FolderStore) -> FileAccess | None:
    """Return the access of the first file in a folder, which nothing describes."""
    for name, kind in folder.walk():
        if kind == stat.S_IFREG:
            return attributes_in(folder, name, only_access=True)
    return None


def folder_of(name: str) -> str:
    """Return the name of the folder that a file or folder is in."""
    return name.rpartition("/")[0]
