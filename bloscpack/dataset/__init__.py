"""Datasets: arrays, tables and groups of them in folders of compressed files.

>>> import numpy
>>> from bloscpack import dataset
>>> with dataset.create_array('a', range(5)) as array:
...     array.append([5, 6])
>>> dataset.open('a')[2:].tolist()
[2, 3, 4, 5, 6]

`open` finds out which layout a folder has: ``zarr``, ``superchunk``, ``bcolz``,
``blz``, or ``zarr-python`` for Zarr arrays and groups of other programs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from .._format.names import listed
from .._storage.paths import is_url, local_path
from .._storage.upload import check_writable
from .._types import Path, StorageOptions
from ..args import known_settings
from ..constants import EXTENSION
from ..exceptions import UsageTypeError, UsageValueError
from ..log import notice
from .array import Array as Array
from .dask_write import from_dask as from_dask
from .folder import Folder, store_at
from .group import NOT_BUFFERED, make_group, open_at
from .group import Group as Group
from .group import create_group as create_group
from .layouts import find_any
from .node import Attributes as Attributes
from .node import Node
from .opening import Options
from .opening import create_array as create_array
from .opening import create_table as create_table
from .table import Table as Table

if TYPE_CHECKING:
    from .checking import verify as verify
    from .conversion import convert as convert
    from .description import describe as describe
    from .recovery import recover as recover
    from .snapshots import snapshot as snapshot
    from .xarray_data import from_xarray as from_xarray

Kind = TypeVar("Kind", bound=Node)

# The names that a user needs.
PUBLIC = (
    *("Array", "Attributes", "Group", "Table"),
    *("open", "open_array", "open_group", "open_table"),
    *("create_array", "create_group", "create_table", "from_dask", "from_xarray"),
    *("convert", "describe", "find", "recover", "snapshot", "verify"),
)
MODES = ("r", "r+", "a", "w", "x")
# Parameters of what creates a dataset; an existing one is opened without them.
CREATION = {"data", "cname", "clevel", "shuffle", "typesize", "spare", "auto"}.union(
    *(make.__kwdefaults__ or () for make in (create_array, create_table, create_group))
)
# Parameters of what opens a dataset.
OPENING = {*Options._fields} - {"writable"}


def open(
    path: Path,
    mode: str = "r",
    *,
    allow_pickle: bool = False,
    sync: bool = True,
    shared: bool = False,
    timeout: float | None = None,
    buffered: bool = False,
    pinned: bool = False,
    storage_options: StorageOptions | None = None,
    **creation: object,
) -> Array | Table | Group:
    """Open an array, a table or a group.

    Parameters
    ----------
    path
        The folder, or its URL. A folder without the files of a dataset, but with
        datasets inside of it, is a group that can only be read. At a URL, only datasets
        of the layout ``zarr`` can be changed, and not over HTTP.
    mode
        ``'r'`` for reading, ``'r+'`` for reading and changes, ``'x'`` to create one,
        ``'w'`` to create one or replace a dataset, ``'a'`` for ``'r+'`` if there is a
        dataset, and for ``'x'`` otherwise. One writer at a time can open an array or a
        table; readers do not see rows that are appended after they opened it.
    allow_pickle
        Whether items that are Python objects may be read. This may run code that the
        files name: use it only for files that you trust.
    sync
        Whether each change is on the disk when it has been made. Without this, changes
        survive the end of the process, but not of the machine.
    shared
        With ``'r+'``, whether several writers may assign to the items of an array of
        the layout ``zarr`` at the same time. In a crash, each shard has its old items
        or its new ones. Nothing else can be changed. The arrays of a group are opened
        so, too, unless it commits its members. At a URL, this needs S3.
    timeout
        Number of seconds to wait while another writer has opened the dataset; by
        default an error is raised at once, with `shared`, and for a change of a group,
        after 5 seconds. With `shared`, it is also the time that an assignment waits for
        another one to the same shard, by default 60 seconds.
    buffered
        Whether appended rows, and in the layout ``'zarr'`` also assigned items, wait in
        memory until a file is full, and are written at once; or until `flush`, `close`,
        or any other change, or the end of the program. Only then rows can be read, and
        count in ``len``; assigned items are read by this object before. A crash loses
        what was not written; an object that is dropped without `close` loses it with a
        ``ResourceWarning``. Not with `shared`, and not for groups; in a group that
        commits its members, assigned items do not wait.
    pinned
        With ``'r'``, whether all items that this process reads must be of one state,
        also those of several members of a group. After another program has changed what
        was read, reading items is a ``StorageError``: open the dataset again. In a
        group that commits its members, each change of a member counts. Each read looks
        at all files that were read before. For the layouts ``'zarr'`` and
        ``'superchunk'`` in folders.
    storage_options
        Settings for fsspec to open a URL, such as keys.
    creation
        Parameters of `create_array` for a new one. Without ``data`` and ``shape``, a
        new one is a group.

    Raises
    ------
    FormatError
        If the folder holds no dataset, or one whose description is damaged:
        `Unsupported` if this library does not read its structure.
    UsageError
        If the layout can only be read.
    OSError
        If there is no such folder, or if another writer has opened it.
    """
    is_array = "data" in creation or "shape" in creation
    create: Callable[..., Array | Group] = create_array if is_array else create_group
    options = Options(
        *(allow_pickle, sync, mode != "r", shared, timeout, buffered, pinned)
    )
    return _open(None, create, path, mode, options, storage_options, creation)


def open_array(path: Path, mode: str = "r", **options: Any) -> Array:
    """Open an array; `open` describes the parameters that are not described here.

    Parameters
    ----------
    options
        Those of `open`, and parameters of `create_array` for a new one.

    Raises
    ------
    UsageError
        If it is a table or a group.
    """
    return _open(Array, create_array, path, mode, *_sorted(mode, options))


def open_table(path: Path, mode: str = "r", **options: Any) -> Table:
    """Open a table; `open` describes the parameters that are not described here.

    Parameters
    ----------
    options
        Those of `open`, and parameters of `create_table` for a new one.

    Raises
    ------
    UsageError
        If it is an array or a group.
    """
    return _open(Table, create_table, path, mode, *_sorted(mode, options))


def open_group(path: Path, mode: str = "r", **options: Any) -> Group:
    """Open a group; `open` describes the parameters that are not described here.

    Parameters
    ----------
    mode
        As for `open`. ``'a'`` also makes a folder a group that is empty, or that has
        datasets inside of it.
    options
        Those of `open`, and parameters of `create_group` for a new one.

    Raises
    ------
    UsageError
        If it is an array or a table.
    """
    storage_options = options.get("storage_options")
    if mode == "a" and _has_files(path, storage_options):
        folder = Folder.open(path, storage_options)
        make_group(folder, options.get("attrs"), options.get("sync", True))
    return _open(Group, create_group, path, mode, *_sorted(mode, options))


# What is imported when it is first used.
_LAZY = {
    "convert": "conversion",
    "describe": "description",
    "from_xarray": "xarray_data",
    "recover": "recovery",
    "snapshot": "snapshots",
    "verify": "checking",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    from importlib import import_module

    value = getattr(import_module("." + _LAZY[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(PUBLIC)


def find(
    path: Path, *, storage_options: StorageOptions | None = None
) -> tuple[str, str] | None:
    """Return layout and kind of the dataset in a folder or at a URL.

    Return None if there is none.

    A folder without the files of a dataset, but with datasets inside of it, has the
    layout ``'folder'`` and the kind ``'group'``.

    Examples
    --------
    >>> from bloscpack import dataset
    >>> dataset.create_array('d', [1, 2]).close()
    >>> dataset.find('d')
    ('zarr', 'array')
    """
    path = local_path(path)
    store = store_at(path, storage_options)
    if store.can_rename and not os.path.isdir(path):
        return None
    found = find_any(Folder(store))
    return None if found is None else (found.layout, found.kind)


def _has_files(path: Path, storage_options: StorageOptions | None) -> bool:
    """Return whether there is something at a path where a dataset can be created."""
    path = local_path(path)
    if not is_url(path):
        return os.path.lexists(path)
    check_writable(path)
    folder = Folder(store_at(path, storage_options))
    return bool(folder.names("")) and not folder.is_leftover


def _sorted(
    mode: str, given: dict[str, Any]
) -> tuple[Options, StorageOptions | None, dict[str, Any]]:
    """Return what opens a dataset, settings for fsspec, and what creates a dataset."""
    opening = {n: given.pop(n) for n in OPENING & given.keys()}
    options = Options(**opening, writable=mode != "r")
    return options, given.pop("storage_options", None), given


def _open(
    wanted: type[Kind] | None,
    create: Callable[..., Kind],
    path: Path,
    mode: str,
    options: Options,
    storage_options: StorageOptions | None,
    creation: dict[str, Any],
) -> Kind:
    """Open or create a dataset; `wanted` is its class, or None for any."""
    if mode not in MODES:
        raise UsageValueError(
            "mode must be one of %s, not %r" % (", ".join(map(repr, MODES)), mode)
        )
    known_settings(creation, CREATION, others=("shared", "timeout", "allow_pickle"))
    if options.shared and mode != "r+":
        raise UsageValueError("shared=True needs the mode 'r+', not %r" % mode)
    if options.pinned and mode != "r":
        raise UsageValueError("pinned=True needs the mode 'r', not %r" % mode)
    if options.buffered and (options.shared or mode == "r"):
        raise UsageValueError(
            "buffered=True is for a single writer: expected another mode than 'r', and "
            "shared=False"
        )
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise UsageTypeError(
            "expected a path or a URL, found %r: zarr.open reads a store object, such "
            "as that of a session of Icechunk, and create_array(path, array) copies an "
            "array that it returns" % type(path).__name__
        )
    path = local_path(path)
    if mode in ("w", "x") or (mode == "a" and not _has_files(path, storage_options)):
        if options.buffered and create is create_group:
            raise UsageValueError(NOT_BUFFERED)
        creation |= {"mode": "w" if mode == "w" else "x", "sync": options.sync}
        creation |= {"buffered": True} if options.buffered else {}
        return create(path, storage_options=storage_options, **creation)
    node: Any = open_at(path, storage_options, options)
    if wanted is not None and not isinstance(node, wanted):
        node.close()
        name = type(node).__name__.lower()
        raise UsageTypeError(
            "'%s' is %s %s; open_%s opens it"
            % (node.path, "an" if name == "array" else "a", name, name)
        )
    if isinstance(node, Group):
        _tell_left_out(node)
    opened: Kind = node
    return opened


def _tell_left_out(group: Group) -> None:
    """Warn of arrays in an archive that are no members: Zarr has no shards of them."""
    store = group._layout.folder.store
    if group.layout != "zarr" or store.is_remote or store.can_rename:
        return
    from .._storage.zip_store import ZipStore

    files = store.names_ending(EXTENSION) if isinstance(store, ZipStore) else []
    arrays = [name.removesuffix(EXTENSION) for name in files]
    # Names of arrays don't begin so, and those of the chunks of bcolz do.
    if arrays := [name for name in arrays if name.rpartition("/")[2][:2] != "__"]:
        notice(
            "'%s': the group has no members for %s, of which Zarr has no shards: "
            "bloscpack.load and loadz open all arrays of an archive"
            % (group.path, listed(arrays))
        )
