"""The layouts of datasets, and which one a folder has.

To add a layout, add a module and one entry of `LAYOUTS`, which other modules ask what
the layout can do.
"""

from __future__ import annotations

import errno
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from ..._format.committed import STAGING
from ..._format.identity import (
    read_identity,
    says_committed,
    stated_identity,
)
from ..._format.names import is_safe_name
from ..._format.other_formats import name_folder
from ..._format.zarr_metadata import ZARR_JSON
from ..._storage.folder_store import NoFileFound, StaleDataset
from ...constants import EXTENSION
from ...exceptions import FormatError, NotReadable, UsageError, UsageValueError
from ..folder import Folder, is_member_name

if TYPE_CHECKING:
    from ..._commit.tree import Tree
    from .base import ArrayLayout, GroupLayout, NewArray, NodeLayout, TableLayout


@dataclass(frozen=True)
class Layout:
    """Where the code of a layout is, and what the layout can do.

    Attributes
    ----------
    kinds
        The class for ``'array'``, ``'table'`` and ``'group'``: module and name.
    detect
        The function that returns the kind of a folder, and an empty text if no layout
        has a dataset in it; None if `find` does not ask.
    instead
        The layout in which a dataset is written that can only be read in this one.
    fits_groups
        Whether a group is converted to this layout, with its arrays and tables.
    changes_at_urls
        Whether datasets at a URL can be changed.
    """

    kinds: Mapping[str, str]
    detect: str | None = None
    instead: str | None = None
    fits_groups: bool = False
    changes_at_urls: bool = False


# What a folder without a dataset is called.
NO_DATASET = "a folder without the files of one ('zarr.json' or 'meta/storage')"
# By name. The first layout that detects a folder wins.
LAYOUTS = {
    "zarr": Layout(
        {
            "array": "zarr.ZarrArray",
            "table": "zarr.ZarrTable",
            "group": "zarr.ZarrGroup",
        },
        "zarr.detect",
        fits_groups=True,
        changes_at_urls=True,
    ),
    "superchunk": Layout(
        {"array": "superchunk.SuperchunkArray", "table": "superchunk.SuperchunkTable"},
        "superchunk.detect",
        fits_groups=True,
    ),
    "blz": Layout(
        {"array": "bcolz.BlzArray", "table": "bcolz.BlzTable"},
        "bcolz.detect_blz",
        instead="bcolz",
    ),
    "bcolz": Layout(
        {"array": "bcolz.BcolzArray", "table": "bcolz.BcolzTable"},
        "bcolz.detect",
    ),
    "zarr-python": Layout(
        {"array": "zarr_python.OtherArray", "group": "zarr_python.OtherGroup"},
        "zarr_python.detect",
        instead="zarr",
        changes_at_urls=True,
    ),
    "folder": Layout(
        {"group": "base.PlainFolder"}, instead="zarr", changes_at_urls=True
    ),
}
# Maximum number of folders that are searched for a dataset, to tell a group of datasets
# from any other folder.
MAX_SEARCHED = 10000
# How often a member is looked up again that is replaced at the same time.
MAX_REPLACED = 10
# What is said of a folder that no document around it has.
NO_MEMBER = "no member of the group around it: it was removed, or is not complete"
# A warning about members that only the document of a group has.
NO_FOLDERS = (
    "'%s' is read without the members %s, which are in the document of the group: "
    "their folders were renamed, moved or removed by another program"
)
# The files that tell layouts other than Zarr format 3. At a URL they are looked for at
# the same time.
OTHER_DOCUMENTS = ("meta/storage", "meta/sizes", "__rootdirs__", ".zarray", ".zgroup")
# Maximum depth of nested groups: functions that visit all members recurse.
MAX_DEPTH = 100


@lru_cache
def load(dotted: str) -> Any:
    """Return what an entry of `LAYOUTS` names."""
    module, name = dotted.split(".")
    return getattr(import_module("." + module, __name__), name)


def _class(layout: str, kind: str) -> type[Any]:
    """Return the class of a layout for a kind; raise `UsageError` if there is none."""
    dotted = LAYOUTS[layout].kinds.get(kind) if layout in LAYOUTS else None
    if dotted is None:
        having = [name for name, each in LAYOUTS.items() if kind in each.kinds]
        raise UsageValueError(
            "there is no layout '%s' of %ss; the layouts are %s"
            % (layout, kind, ", ".join(map("'%s'".__mod__, having)))
        )
    loaded: type[Any] = load(dotted)
    return loaded


def array_class(name: str) -> type[ArrayLayout]:
    """Return the class for the arrays of a layout."""
    return _class(name, "array")


def layouts_for(new: NewArray, *, without: str) -> list[str]:
    """Return the names of the layouts that can hold an array, apart from one."""
    names = []
    writable = (name for name, known in LAYOUTS.items() if not known.instead)
    for name in (name for name in writable if name != without):
        with suppress(UsageError):
            array_class(name).grid_for(new)
            names.append(name)
    return names


def table_class(name: str) -> type[TableLayout]:
    """Return the class for the tables of a layout."""
    return _class(name, "table")


def group_class(name: str) -> type[GroupLayout]:
    """Return the class for the groups of a layout."""
    return _class(name, "group")


def find(folder: Folder, *, is_member: bool = False) -> tuple[str, str] | None:
    """Return layout and kind of a folder; None if it has no dataset.

    The kind is ``'array'``, ``'table'`` or ``'group'``, or an empty text: then nothing
    in the folder is a dataset. A member of a group is an array, of which opening it
    raises the error, if a link or a folder is in the place of its description.
    """
    for number, (name, layout) in enumerate(LAYOUTS.items()):
        kind = None
        if number == 1:
            folder.prepare(OTHER_DOCUMENTS)
        try:
            kind = None if layout.detect is None else load(layout.detect)(folder)
        except NoFileFound:
            if not is_member:
                raise
            kind = "array"
        if name == "zarr-python" and kind and (late := load("zarr.detect")(folder)):
            return "zarr", late  # another program has just written the document
        if kind is not None:
            return name, kind
    folder.prepare(())
    return None


class Found(NamedTuple):
    """A dataset that was found in a folder, and not opened yet."""

    folder: Folder
    layout: str
    kind: str

    @property
    def node_class(self) -> type[NodeLayout]:
        """The class of its layout."""
        return _class(self.layout, self.kind)

    def open(self, allow_pickle: bool = False) -> Any:
        """Return its layout, which reads the description; see `NodeLayout`."""
        return self.node_class.read(self.folder, allow_pickle)

    def open_damaged(self) -> NodeLayout:
        """Return its layout, opened; some columns may be missing."""
        if self.kind == "table":
            return table_class(self.layout).open_damaged(self.folder)
        node: NodeLayout = self.open()
        return node


def find_any(
    folder: Folder, *, skip_unreadable: bool = True, is_member: bool = False
) -> Found | None:
    """Return the dataset in a folder; a folder of datasets is a group.

    None if there is no dataset in the folder or in the folders inside of it.
    `skip_unreadable` says that folders inside of it that this user may not read do not
    count; otherwise they raise ``PermissionError``. See `find` for `is_member`.
    """
    skipped = (PermissionError,) if skip_unreadable else ()
    found = find(folder, is_member=is_member)
    if found is not None:
        return Found(folder, *found) if found[1] else None
    if not folder.store.lists:
        return None
    candidates = [folder]
    for searched, candidate in enumerate(candidates):
        if searched == MAX_SEARCHED:
            break
        with suppress(*skipped):
            for name in candidate.folders():
                inner = candidate.dataset(name)
                with suppress(*skipped, NoFileFound):
                    found = find(inner)
                    if found is not None and found[1]:
                        return Found(folder, "folder", "group")
                    if found is not None:
                        continue
                candidates.append(inner)
    return None


def find_member(
    folder: Folder, name: str, *, is_there: bool = False, **options: bool
) -> Found | None:
    """Return the member of a group; None if there is none of this name.

    `is_there` says that its folder was just seen. A writer may remove or replace it
    meanwhile.
    """
    left = MAX_REPLACED
    while is_there or (is_member_name(name) and folder.is_folder(name)):
        try:
            return _member(folder, name, **options)
        except StaleDataset:
            if not left:
                raise
            left, is_there = left - 1, False
    return None


def _member(folder: Folder, name: str, **options: bool) -> Found | None:
    """Return what is in a folder of a group, which may commit it."""
    options["is_member"] = True
    members = folder.tree.state.members
    copy = None if members is None else members.get(folder.full(name))
    inner = folder.child(name)
    if copy is not None and _belongs_to(inner, folder.tree, folder.full(name)):
        try:
            kind = load("zarr.detect")(inner)
        except NoFileFound:
            kind = "array"
        if kind:
            return Found(inner, "zarr", kind)
    elif folder.tree.state.pending.get(inner.full(ZARR_JSON), "") is None:
        # A change removes it, which was not complete.
        is_same = folder.tree.renew().members is members
        return None if is_same else _member(folder, name, **options)
    # Another program may have replaced it by an array of its own.
    inner = folder.dataset(name)
    found = find_any(inner, **options)
    if found is None:
        inner.check_name()
        return None
    is_part = found.folder.tree.state.is_committed_around
    # The group may have begun to commit its members since it was opened.
    if members is None and is_part and folder.tree.renew().members is not None:
        return _member(folder, name, **options)
    if members is None or copy is not None:
        return found
    if found.layout != "folder" and not all(_stated_commit(found.folder)):
        return found
    # The rest of a removed member is no member, but this may be a new one.
    is_same = folder.tree.renew().members is members
    return None if is_same else _member(folder, name, **options)


def member_names(folder: Folder) -> list[str]:
    """Return the names of the folders that can be members of a group, sorted."""
    check_depth(folder.path(), folder.depth)
    return folder.folders()


def check_depth(path: str, depth: int) -> None:
    """Raise `UsageError` if too many groups are inside of one another."""
    if depth > MAX_DEPTH:
        raise UsageError(
            "'%s': expected at most '%d' groups inside of one another"
            % (path, MAX_DEPTH)
        )


def find_members(
    folder: Folder, *, skip_unreadable: bool = True
) -> Iterator[tuple[str, Found]]:
    """Yield the members of a group, sorted by name.

    Those that this user may not read are left out, or raise ``PermissionError``.
    """
    skipped = (PermissionError,) if skip_unreadable else ()
    how = {"is_there": True, "skip_unreadable": skip_unreadable}
    for name in member_names(folder):
        found = None
        with suppress(*skipped):
            found = find_member(folder, name, **how)
        if found is not None:
            yield name, found
            if not found.folder.prefix:  # the caller may keep all members
                found.folder.tree.forget()


def missing_members(folder: Folder) -> list[str]:
    """Return the members that only the document of a group has, without folders.

    At a URL no folder is known to be missing.
    """
    inside = (full.rpartition("/") for full in folder.tree.state.members or ())
    names = sorted(name for outer, _, name in inside if outer == folder.prefix[:-1])
    return [name for name in names if not folder.is_folder(name)]


def is_left(folder: Folder, name: str) -> bool:
    """Return whether a folder is no member, and its document a copy in a group."""
    copies = folder.tree.state.members
    return copies is not None and all(_stated_commit(folder.dataset(name)))


def blp_files(folder: Folder) -> list[str]:
    """Return the names of the ``.blp`` files in a group.

    They are the arrays of an unzipped archive that Zarr has no shards of.
    """
    return [
        name
        for name, kind in folder.entries()
        if kind == stat.S_IFREG and name.endswith(EXTENSION)
    ]


def committing(found: Found) -> tuple[Found, str] | None:
    """Return the table or group that commits a dataset, and the name in it.

    The document of a dataset of Zarr says so itself. If another program has written it
    again, the table or group must know the dataset, too. An array of bcolz is a column
    if the list of columns in the folder around it names it. In a folder like ``/tmp``,
    no document counts. Raises `FormatError` if there is no such table or group, and
    ``PermissionError`` if its document is not to be trusted (`Folder.is_trusted`):
    nothing may be changed then.
    """
    folder, names = found.folder, []
    if folder.prefix:  # `detect` has found it there
        whole = Folder(folder.store)
        return Found(whole, *(find(whole) or ("zarr", "group"))), folder.prefix[:-1]
    outer = None
    if found.layout in ("bcolz", "blz"):
        outer = folder.around()
        columns = table_class(found.layout).document
        if outer is None or outer[0].store.is_sticky or found.kind == "table":
            return None
        if not (outer[0].exists(columns) and _has_column(found.layout, *outer)):
            return None
        if not outer[0].is_trusted:
            raise _not_trusted(folder, outer[0])
        return Found(outer[0], *(find(outer[0]) or ("bcolz", "table"))), outer[1]
    if found.layout != "zarr":
        return None
    says_so, is_own = _stated_commit(folder)
    is_copied = says_so and is_own
    united = _united_around(folder, says_so, is_silent=is_own and not says_so)
    if united is not None or not says_so:
        return united
    is_trusted, around = True, folder
    while says_so:
        outer = around.around()
        if outer is None or outer[0].store.is_sticky:
            outer = None
            break
        around = outer[0]
        names.append(outer[1])
        is_trusted = is_trusted and around.is_trusted
        says_so, _ = _stated_commit(around)
    kind = None if outer is None else find(around)
    known, path = around.tree.state.members, "/".join(names[::-1])
    if known is None and kind == ("zarr", "table"):  # an older one, without copies
        attributes = around.read_object(ZARR_JSON).get("attributes", {})
        order = attributes.get(load("zarr.COLUMN_ORDER"))
        known = dict.fromkeys(order if isinstance(order, list) else ())
    if kind is not None and path in (known or ()):
        if not is_trusted:
            raise _not_trusted(folder, around)
        return Found(around, *kind), path
    if not is_copied or (kind is not None and kind[1] == "group" and known is None):
        return None  # another program has written this document, or the group's
    wanted = "the document that commits it in a folder around it"
    if kind is not None and kind[1] not in ("array", ""):
        wanted = "a copy of its document in that of '%s' around it" % around.path()
    raise folder.damage(
        "expected %s, found none: it is a copy of a column, or of a member of a group"
        % wanted
    )


def _has_column(layout: str, folder: Folder, name: str) -> bool:
    """Return whether a list of columns names a folder; True if it is damaged."""
    table: Any = table_class(layout)
    stored = folder.read_object(table.document)
    with suppress(FormatError, KeyError, TypeError):
        return name in table.column_folders(stored).values()
    return True


def _not_trusted(folder: Folder, outer: Folder) -> PermissionError:
    return PermissionError(
        errno.EPERM,
        "the document around it, in '%s', is said to commit it, and belongs to another "
        "user: open that one, if you trust it" % outer.path(),
        folder.path(),
    )


def as_part(found: Found) -> Found:
    """Return a dataset as a part of the one that commits it, whose pending files count.

    It is returned unchanged if no dataset commits it, or if that dataset can't be
    read; also if it was found in a group at a URL, which knows about its members.
    """
    folder = found.folder
    if found.layout != "zarr":
        if folder.depth:
            return found
    elif folder.is_remote and folder.depth:
        return found
    elif not folder.tree.state.is_committed_around:
        # Another program may have written the document of a table, not its columns.
        is_usual = folder.is_remote or found.kind != "table"
        if is_usual or load("zarr.read_node")(folder).is_own:
            return found
    with suppress(FormatError, PermissionError):
        whole = Folder(folder.store, tree=folder.tree)
        outer = committing(found._replace(folder=whole))
        if outer is not None and is_safe_name(outer[1]):
            path = (outer[1] + "/" + folder.prefix).rstrip("/")
            part = outer[0].folder.child(path)
            part.node = folder.node
            kind = load("zarr.detect")(part)  # its own document may be an older copy
            return found._replace(folder=part, kind=kind or found.kind)
    return found


def _stated_commit(folder: Folder) -> tuple[bool, bool]:
    """Return whether a document says that another commits it, and has a right digest.

    If both are true, it is a copy there: no other program has changed it since.
    """
    try:
        content, document = folder.read_document(ZARR_JSON)
    except (FormatError, FileNotFoundError, NotADirectoryError):
        return False, False
    is_own = read_identity(content, stated_identity(document))[1]
    return says_committed(document), is_own


def _united_around(
    folder: Folder, is_part: bool, *, is_silent: bool
) -> tuple[Found, str] | None:
    """Return the group that commits a dataset, also if its own document `is_silent`.

    A writer has died, or is still working, that let the group commit its members; or
    another program has written the document again. The copy in the group decides.
    """
    found = _uniting(folder, is_part, is_silent=is_silent)
    outer, path, has_copy = found or (folder, "", False)
    known = outer.tree.state
    if known.pending.get("%s/%s" % (path, ZARR_JSON), "") is None:
        raise FileNotFoundError(errno.ENOENT, NO_MEMBER, folder.path())
    if not (has_copy and _belongs_to(folder, outer.tree, path)):
        return None
    united = _united_around(outer, False, is_silent=_stated_commit(outer)[1])
    if united is not None:  # since then
        joined = "%s/%s" % (united[1], path)
        if joined in (united[0].folder.tree.state.members or ()):
            return united[0], joined
    return Found(outer, *(find(outer) or ("zarr", "group"))), path


def _belongs_to(folder: Folder, tree: Tree, path: str) -> bool:
    """Return whether a group commits the member in a folder, of which it has a copy."""
    with suppress(FormatError, OSError):
        return tree.belongs(path, *folder.read_document(ZARR_JSON))
    return says_committed((tree.state.members or {}).get(path))


def _uniting(
    folder: Folder, is_part: bool, *, is_silent: bool = False
) -> tuple[Folder, str, bool] | None:
    """Return the folder around a dataset whose document commits all that is in it.

    Also the path of the dataset in that folder, and whether the document has it: then
    it is the innermost that does. The own document of a member or a column is written
    after the commit, and is not on the disk for certain: a crash may lose it. If the
    dataset says that it `is_part`, the documents of the groups in between may be lost,
    too. Otherwise nothing is looked for where the folder around has no document. If its
    own document, written here, does not (`is_silent`), only a group in whose folder a
    change is under way may commit it: no other document is read.
    """
    around, names, found = folder, list[str](), None
    while (outer := around.around()) is not None:
        around = outer[0]
        names.insert(0, outer[1])
        # Most often there is no document, and no owner has to be looked up.
        is_there = around.is_remote or around.exists(ZARR_JSON)
        if not (is_there or is_part):
            break
        if is_silent and not (around.is_remote or around.is_folder(STAGING)):
            continue
        if not around.is_trusted:
            break
        try:
            is_part = says_committed(around.read_document(ZARR_JSON)[1]) or is_part
        except (FormatError, OSError):
            if not is_part:
                break
        path, members = "/".join(names), around.tree.state.members
        if members is not None and is_safe_name(path):
            found = around, path, path in members
            if path in members:
                break
    return found


def detect(folder: Folder) -> Found:
    """Return the dataset in a folder.

    It is a part of a table or group if only the document of that describes it. Raises
    `FormatError` if the folder has none, and ``FileNotFoundError`` if there is no
    object at a URL.
    """
    found = find_any(folder)
    is_lost = found is None or (
        found.layout in ("zarr", "folder") and folder.tree.state.root.document is None
    )
    around = None if folder.is_remote or not is_lost else _uniting(folder, False)
    if around is not None and around[2]:
        part = around[0].child(around[1])
        if kind := load("zarr.detect")(part):
            return Found(part, "zarr", kind)
    if found is None:
        folder.check_name()
        if around is not None:
            raise FileNotFoundError(errno.ENOENT, NO_MEMBER, folder.path())
        if folder.is_remote and not (folder.store.lists and folder.names("")):
            raise folder.store.no_dataset()
        known = name_folder(folder.names("") if folder.store.lists else ())
        if not (folder.is_remote or folder.store.can_rename):
            known = (
                "a ZIP file without 'zarr.json': dataset.convert reads those of NumPy"
            )
        missing = "expected a dataset, found %s" % (known or NO_DATASET)
        if folder.is_leftover:
            missing = (
                "expected a dataset, found the beginning of one: it is being written, "
                "or its writer has died"
            )
        elif folder.is_folder("c"):
            missing = (
                "the document 'zarr.json' is missing, and there is a folder 'c', as of "
                "the shards of an array: put the document back from a copy"
            )
        raise NotReadable(missing, filename=folder.path())
    return found
