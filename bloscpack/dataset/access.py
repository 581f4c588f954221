"""The owner and the permission bits of new files and folders of a dataset.

Contract: a change keeps the owner of the dataset, and gives no user new access to it. A
new dataset gives no user more access than the dataset that it replaces, and only users
who may read the input may read it. If the input of `convert` is a group, the access of
the group itself counts, not that of its members. Files get their access before they
get their names.

===========================  ======================================================
new                          access
===========================  ======================================================
file that replaces a file    as the file
other file of a dataset      as the nearest file that describes the dataset
folder of a dataset          as the folder around it
file, folder of a new one    as the same part of the replaced dataset, or the part
                             around it there, or else the usual access
===========================  ======================================================
"""

from __future__ import annotations

import os
import stat

from .._crashsafe.ownership import (
    Attributes,
    Limits,
    copy_attributes,
    limit_access,
)

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from .folder import Folder

# Files that describe a dataset, or a column, of any layout.
DESCRIPTIONS = ("zarr.json", "meta/storage", "__rootdirs__")


class Access:
    """The access of new files and folders in the folder of a dataset.

    Attributes
    ----------
    limits
        The attributes of the input, which limit the access; None for no input.
    """

    limits: Limits | None = None

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._models: dict[str, Attributes | None] = {}

    def of_file(self, name: str) -> Attributes | None:
        """Return the access of a new file; None for the usual access."""
        return self._folder.attributes(name) or self.of_description(_around(name))

    def of_folder(self, name: str) -> Attributes | None:
        """Return the access of a new folder; None for the usual access."""
        return _only_access(self._folder.attributes(_around(name)))

    def of_description(self, name: str = "") -> Attributes | None:
        """Return the access of the nearest description, from a folder upwards."""
        if name not in self._models:
            found = None
            for last in DESCRIPTIONS:
                found = found or self._folder.attributes(
                    name + "/" + last if name else last
                )
            if found is None and name:
                found = self.of_description(_around(name))
            self._models[name] = _only_access(found)
        return self._models[name]

    def give(self, descriptor: int | None, source: Attributes | None) -> None:
        """Give access to a new file or folder, which is open."""
        if descriptor is None or os.chmod not in os.supports_fd:
            return
        if source is not None:
            copy_attributes(descriptor, source, owner=True, limit=self.limits)
        elif self.limits is not None:
            limit_access(descriptor, self.limits)


class Model:
    """A folder of a replaced dataset, if there is one, and the access to copy."""

    def __init__(
        self,
        folder: Folder | None,
        of_file: Attributes | None,
        of_folder: Attributes | None,
    ) -> None:
        self.folder = folder
        self.of_file = of_file
        self.of_folder = of_folder


class NewAccess(Access):
    """The access of the files and folders of a new dataset.

    Until it is complete, it is in a folder that only its owner can open.

    Parameters
    ----------
    replaced
        The folder of the dataset that it replaces; None if there is none.
    limits
        The attributes of the input, if any.
    """

    def __init__(self, replaced: Folder | None, limits: Limits | None = None) -> None:
        self._replaced = replaced
        self._parts: dict[str, Model] = {}
        self.limits = limits

    def of_file(self, name: str) -> Attributes | None:
        """Return the access of a new file; None for the usual access."""
        return self._model_of(_around(name)).of_file

    def of_folder(self, name: str) -> Attributes | None:
        """Return the access of a new folder; None for the usual access."""
        return self._model_of(name).of_folder

    def replaced_at(self, name: str) -> Folder | None:
        """Return the part of the replaced dataset that a new dataset inside replaces.

        If the replaced dataset has no part of this name, return all of it.
        """
        return self._model_of(name).folder or self._replaced

    def _model_of(self, name: str) -> Model:
        """Return what a folder replaces, or else what the folder around it does."""
        if name not in self._parts:
            around, _, last = name.rpartition("/")
            model, folder = Model(None, None, None), self._replaced
            if name:
                model = self._model_of(around)
                folder = model.folder
                if folder is not None:
                    folder = folder.subfolder(last) if folder.is_folder(last) else None
            if folder is not None:
                file = Access(folder).of_description() or model.of_file
                file = file or _first(folder)
                model = Model(folder, file, _only_access(folder.attributes()))
            else:
                model = Model(None, model.of_file, model.of_folder)
            self._parts[name] = model
        return self._parts[name]

    def give_all(self, folder: Folder) -> None:
        """Give access to all files and folders in a folder, and to itself."""
        if self._replaced is None and self.limits is None:
            return
        for name, kind in folder.walk():
            if kind == stat.S_IFDIR:
                held = folder.subfolder(name).hold()
                self.give(held.number, self.of_folder(name))
            elif kind == stat.S_IFREG:
                file = folder.open_file(name)
                self.give(file.descriptor, self.of_file(name))
                file.close()
        held = folder.hold()
        self.give(held.number, self.of_folder(""))


def limits_of(path: str) -> Limits | None:
    """Return the attributes that limit the readers of a copy of a file or folder.

    A pipe or a device sets no limit.
    """
    from .folder import Folder

    if os.path.isdir(path):
        return limits_in(Folder(os.path.abspath(path)))
    found = Attributes(path)
    return Limits(found) if stat.S_ISREG(found.status.st_mode) else None


def limits_in(folder: Folder) -> Limits | None:
    """Return the limits for readers of a copy: folder and description of a dataset."""
    found = folder.attributes(), Access(folder).of_description() or _first(folder)
    inputs = [each for each in found if each is not None]
    return Limits(*inputs) if inputs else None


def _first(folder: Folder) -> Attributes | None:
    """Return the access of the first file in a folder, which nothing describes."""
    for name, kind in folder.walk():
        if kind == stat.S_IFREG:
            return _only_access(folder.attributes(name))
    return None


def _around(name: str) -> str:
    """Return the name of the folder that a name is in."""
    return name.rpartition("/")[0]


def _only_access(found: Attributes | None) -> Attributes | None:
    """Return attributes without those that belong to a single file."""
    if found is not None:
        found.extended = {}
    return found
