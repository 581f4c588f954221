"""Open arrays and tables, for reading or for changes, and create new ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import numpy

from .._commit.change import Change
from .._commit.locking import DROPPED_WAIT, waiting
from .._commit.writer import WAIT
from .._engine.contexts import on_error
from .._format.dtypes import Array as Items
from .._storage.folder_store import FolderStore
from .._storage.paths import check_is_path, shown_name
from .._storage.upload import check_writable
from .._types import Json, JsonObject, Path, StorageOptions
from ..exceptions import UsageError, UsageTypeError, UsageValueError
from .array import Array
from .changed_blocks import NewState
from .columns import named_columns, naming_column, with_masks
from .commit_rules import (
    CommitsMembers,
    Member,
    check_new_path,
    new_dataset,
    writer_for,
)
from .folder import Folder
from .frames import columns_of
from .items import check_truth, converted, items_of, text_or
from .labels import Dims, array_dims, column_dims, given_attrs, labels_of
from .layouts import LAYOUTS, Found, array_class, detect, table_class
from .layouts.base import ArrayLayout, Blocks, NewArray, plain_fill
from .layouts.shard_files import ShardFiles
from .rows import check_same_length, counted, new_rows
from .table import Table, new_column


class Options(NamedTuple):
    """How a dataset is opened.

    Attributes
    ----------
    allow_pickle
        Whether items that are Python objects may be read.
    sync
        Whether each change is on the disk when it has been made.
    writable
        Whether it may be changed.
    shared
        Whether other writers may assign to an array at the same time.
    timeout
        Number of seconds to wait for another writer. None is 60 for one of the same
        shard, 5 for one of the same group, and 0 for any other.
    buffered
        Whether appended rows and assigned items wait in memory.
    pinned
        Whether all that is read must be of the state that was opened.
    """

    allow_pickle: bool = False
    sync: bool = True
    writable: bool = False
    shared: bool = False
    timeout: float | None = None
    buffered: bool = False
    pinned: bool = False

    def wait(self, usual: float) -> float:
        """Return the number of seconds to wait for another writer."""
        return usual if self.timeout is None else self.timeout


def open_array_or_table(found: Found, options: Options) -> Array | Table:
    """Return the array or table that was found; a column as a part of its table."""
    if not options.writable:
        layout = found.open(options.allow_pickle)
        if options.pinned:
            _check_pinned(layout)
        return Array(layout) if found.kind == "array" else Table(layout)
    # The first of several writers gives the array of another program an identity: for
    # that it is a single writer for a moment.
    wait = options.wait(WAIT if options.shared else 0.0)
    return waiting(lambda: _open_for_changes(found, options), wait)


def _open_for_changes(found: Found, options: Options) -> Array | Table:
    folder = found.folder
    check_changeable(found)
    if options.buffered and isinstance(folder.store, FolderStore):
        folder.store.check_permission()  # before anything waits
    if options.shared:
        _check_shareable(found)
    wait = options.timeout
    writer = writer_for(found, options.sync, shared=options.shared, wait=wait)
    with on_error(writer.close):
        layout = found.open(options.allow_pickle)
        for part in (layout, *layout.arrays().values()):
            part.check_writable()
        opened: Array | Table
        if found.kind == "table":
            opened = Table(layout, writer)
            opened._make_equal()
        else:
            opened = Array(layout, writer)
            if options.shared:
                opened.reopens = partial(_open_again, options), folder.address_of()
        if options.buffered:
            opened._let_wait()
        return opened


def _check_pinned(layout: Any) -> None:
    """Raise `UsageError` unless files of items are replaced, never changed in place."""
    for array in layout.arrays().values():
        for _, source in array.parts():
            if not isinstance(source, ShardFiles):
                raise UsageError(
                    "'%s' has the layout '%s', whose files other programs may "
                    "change in place: 'pinned=True' and 'read' of a group need "
                    "the layout 'superchunk', or 'zarr' with shards"
                    % (array.folder.path(), array.name)
                )


def _check_shareable(found: Found) -> None:
    """Let an array have several writers; raise `UsageError` for other datasets.

    Shared writers never write the document. So give it an identity now, if another
    program has written it.
    """
    if (found.layout, found.kind) != ("zarr", "array"):
        raise UsageError(
            "'%s' has the layout '%s' and the kind '%s', which have one writer at a "
            "time: shared=True is for arrays of the layout 'zarr'"
            % (found.folder.path(), found.layout, found.kind)
        )
    layout = found.open()
    if not layout.changed_elsewhere:
        return
    layout.check_writable()
    # If another writer has just done it, and has it open, the caller repeats this.
    with open_array_or_table(found, Options(writable=True)) as array:
        assert isinstance(array, Array)
        with array._check_writer().change() as change:
            array._layout.stage(change, NewState(layout.grid, (), extends=True))


def _open_again(options: Options, *address: Any) -> Array | Table:
    """Return an array that was pickled while it had several writers.

    A library may keep such a copy for long: it is locked only while it is changed.
    """
    found = open_array_or_table(detect(Folder.open(*address)), options)
    found._check_writer("assign").rule.release()
    return found


def check_changeable(found: Found) -> None:
    """Raise `UsageError` if a dataset can only be read where it is."""
    if not found.folder.store.is_writable:
        raise UsageError(
            "'%s' is in a ZIP file, which is written once and can only be read: 'blpk "
            "convert' copies it into a folder, and savez replaces an archive as a whole"
            % found.folder.path()
        )
    if isinstance(found.folder.store, FolderStore):
        found.folder.store.check_writable()
        return
    check_writable(found.folder.store.root)
    if not LAYOUTS[found.layout].changes_at_urls:
        raise UsageError(
            "'%s' can only be read: at a URL, datasets of the layout 'zarr' can be "
            "changed, no others" % found.folder.path()
        )


def create_array(
    path: Path,
    data: object = None,
    *,
    layout: str = "zarr",
    shape: int | tuple[int, ...] | None = None,
    dtype: Any = None,
    chunks: int | tuple[int, ...] | None = None,
    shards: int | tuple[int, ...] | None = None,
    fill_value: object = None,
    dims: Sequence[str | None] | None = None,
    attrs: Mapping[str, Json] | None = None,
    mode: str = "x",
    sync: bool = True,
    storage_options: StorageOptions | None = None,
    buffered: bool = False,
    **settings: object,
) -> Array:
    """Create an array, and return it open for changes.

    Parameters
    ----------
    path
        The folder, which appears when the array is complete; or a URL.
    data
        The items: an array, one that is read in slices, such as an array of Zarr or
        HDF5, or an iterator of blocks of rows; None for an array of `shape` and `dtype`
        that holds `fill_value`.
    layout
        ``'zarr'``, which any Zarr software reads; ``'superchunk'``; or ``'bcolz'``,
        that of bcolz 1.x.
    shape, dtype
        Those of the array; by default those of `data`.
    chunks
        Number of rows in a chunk; in the layout ``'zarr'`` also the shape of a chunk.
        By default a chunk has about 1 MiB, or the length of a shorter array.
    shards
        The same for a file, a multiple of `chunks`, for layouts whose files have
        several chunks.
    fill_value
        The value of new items when the array is enlarged, by default zero. If it is
        given, other programs have it, too, and in the layout ``'zarr'`` the items of a
        file that is lost read as it: `verify` notes that.
    dims
        A name or None for each axis, in the layout ``'zarr'``; by default those of
        `data`, if it is an array of xarray, Zarr or HDF5.
    attrs
        The attributes; by default those of `data`, if it is such an array.
    mode
        ``'x'`` if there must be no such file or folder, ``'w'`` to replace a dataset.
    sync, storage_options, buffered
        As in `open`.
    settings
        Settings of Blosc: ``cname``, ``clevel``, ``shuffle``. Without any, those that
        fit the items are chosen, if `data` is an array of at least 128 KiB, and lz4 at
        level 5 otherwise, or with ``auto=False``. With ``auto=True``, or a goal as in
        `BloscArgs.auto`, those that are not given fit the items, of which an array is
        needed. Each column of a table gets its own.

    Raises
    ------
    UsageError
        If the layout can't hold the items; the message says what can.
    FileExistsError
        If there is a file or folder of this name.

    Examples
    --------
    >>> from bloscpack import dataset
    >>> with dataset.create_array('b', [1.5, 2.5]) as array:
    ...     array.resize(3)
    ...     array[:2] = 7
    >>> dataset.open('b')[:].tolist()
    [7.0, 7.0, 0.0]
    """
    check_is_path(path, "create_array(path, data)")
    check_new_path(path)
    with naming_column(shown_name(path), "array"):
        target, new, blocks = new_array(
            path,
            data,
            layout,
            shape,
            dtype,
            chunks=chunks,
            shards=shards,
            fill_value=fill_value,
            dims=dims,
            attrs=attrs,
            **settings,
        )

    options = Options(writable=True, sync=sync, buffered=buffered)
    created: Array = created_at(
        *(path, layout, mode, options, storage_options),
        lambda change, prefix: target.create(change, prefix, new, blocks),
    )
    return created


def created_at(
    path: Path | Member,
    layout: str,
    mode: str,
    options: Options,
    storage_options: StorageOptions | None,
    create: Callable[[Change, str], object],
) -> Any:
    """Return a new dataset, open for changes, which `create` writes.

    If the document of the group around it commits its members, it is one of them; for
    a member of an open group that does so by now, the error is `CommitsMembers`.
    """
    is_member = isinstance(path, Member)
    if isinstance(path, Member):
        if path.add is not None:
            return path.add(layout, mode, create, options.buffered)
        options = options._replace(timeout=path.timeout)
        path = os.fspath(path)
    wait = options.wait(DROPPED_WAIT)
    group: Any = import_module(__package__ + ".group")  # which imports this module
    try:
        how = layout, mode, options.sync, storage_options, wait
        with new_dataset(path, *how) as change:
            create(change, "")
    except CommitsMembers as error:
        if is_member or error.path is None:
            raise
        around = detect(Folder.open(error.path, storage_options))
        name = os.path.basename(os.fsdecode(path).rstrip("/" + os.sep))
        return group.with_owner(
            around,
            options,
            lambda owner: owner._add(name, layout, mode, create, options.buffered),
        )
    return waiting(partial(group.open_at, path, storage_options, options), wait)


def new_array(
    path: Path,
    data: object,
    layout: str = "zarr",
    shape: int | tuple[int, ...] | None = None,
    dtype: Any = None,
    *,
    chunks: int | tuple[int, ...] | None = None,
    shards: int | tuple[int, ...] | None = None,
    fill_value: object = None,
    dims: Sequence[str | None] | None = None,
    attrs: Mapping[str, Json] | None = None,
    **settings: object,
) -> tuple[type[ArrayLayout], NewArray, Blocks]:
    """Return a new array and its items, which are read when they are written.

    The parameters are those of `create_array`.
    """
    target = array_class(layout)
    target.check_layout()
    rows = new_rows(data, shape, dtype, plain_fill(fill_value), target.has_text)
    of_data, attributes = labels_of(data, told=attrs is None)
    names = of_data if dims is None else dims
    new = NewArray(
        rows.dtype,
        rows.shape,
        chunks,
        fill_value,
        attributes if attrs is None else given_attrs(attrs),
        settings,
        shards=shards,
        dims=array_dims(target, path, len(rows.shape), names),
        sample=data,
        sparse=data is None and 0 not in rows.shape,
    )
    grid = target.grid_for(new)
    blocks: Blocks = ()
    if data is not None or not target.sparse:
        blocks = counted(rows, new, grid)
    return target, new, blocks


def create_table(
    path: Path,
    data: object = None,
    *,
    layout: str = "zarr",
    dtype: object = None,
    names: Sequence[str] | None = None,
    chunks: object = None,
    shards: object = None,
    dims: Mapping[str, Sequence[str | None]] | None = None,
    attrs: Mapping[str, Json] | None = None,
    mode: str = "x",
    sync: bool = True,
    storage_options: StorageOptions | None = None,
    buffered: bool = False,
    **settings: object,
) -> Table:
    """Create a table, and return it open for changes.

    Parameters
    ----------
    path
        The folder, which appears when the table is complete; or a URL.
    data
        The rows: a structured array, a dictionary of columns, a DataFrame, or a
        sequence of columns with `names`. None for no rows. If the index of a DataFrame
        has a name, it becomes the first column, and so does each level of several. An
        index without a name is left out if it is 0, 1, 2 and so on.
    layout
        As in `create_array`.
    dtype
        The type of a row, with a field for each column; by default that of `data`.
    names
        Names of the columns if `data` is a sequence of columns.
    dims
        The names of the axes of columns, by the name of the column. The first one is
        the same for all columns, by default ``'row'``.
    chunks, shards
        As in `create_array`, for all columns; or a dictionary by the names of columns.
    attrs, mode, sync, storage_options, buffered, settings
        As in `create_array`.

    Raises
    ------
    UsageError
        If the columns have different lengths, or if no array of the layout can hold
        one: a column of a DataFrame with a time zone or with categories, for example.
    FileExistsError
        If there is a file or folder of this name.

    Examples
    --------
    >>> from bloscpack import dataset
    >>> columns = {'a': [1, 2], 'b': [0.5, 1]}
    >>> with dataset.create_table('c', columns) as table:
    ...     table.append({'a': [3], 'b': [1.5]})
    >>> dataset.open('c')[1:].tolist()
    [(2, 1.0), (3, 1.5)]
    """
    check_is_path(path, "create_table(path, data)")
    check_new_path(path)
    target = table_class(layout)
    target.check_layout()
    with naming_column(shown_name(path), "table"):
        columns, labels = _new_columns(data, dtype, names, target.array_class.has_text)
    new = {}
    stored = column_dims(
        target.array_class,
        {name: rows.ndim for name, rows in columns.items()},
        {n: taken for n, (taken, _) in labels.items()} if dims is None else dims,
    )
    for name, rows in columns.items():
        target.check_column_name(name)
        new[name] = new_column(
            *(target, name, rows, labels[name][1]),
            chunks=_of_column(chunks, name, columns),
            settings=settings,
            shards=_of_column(shards, name, columns),
            dims=stored[name],
        )
    attributes = given_attrs(labels_of(data)[1] if attrs is None else attrs)

    def write(change: Change, prefix: str) -> None:
        create_table: Any = target.create
        create_table(change, new, attributes, *([prefix] if prefix else []))

    options = Options(writable=True, sync=sync, buffered=buffered)
    created: Table = created_at(path, layout, mode, options, storage_options, write)
    return created


def _of_column(given: object, name: str, columns: Mapping[str, object]) -> object:
    """Return what a column gets: of all, or of a dictionary by their names."""
    if not isinstance(given, Mapping):
        return given
    for other in given.keys() - columns.keys():
        raise UsageValueError("chunks and shards: there is no column '%s'" % other)
    return given.get(name)


def _new_columns(
    data: object, dtype: Any, names: Sequence[str] | None, has_text: bool
) -> tuple[dict[str, Items], dict[str, tuple[Dims, JsonObject]]]:
    """Return the columns of a new table, and their labels."""
    try:
        wanted = None if dtype is None else numpy.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise UsageValueError(
            "expected a dtype with fields, found %.200r" % (dtype,)
        ) from error
    if wanted is not None and wanted.names is None:
        raise UsageValueError("expected a dtype with fields, found '%s'" % wanted)
    if data is None:
        if wanted is None:
            raise UsageValueError("expected data or a dtype")
        data = numpy.empty(0, wanted)
    if names is None:
        names = [] if wanted is None else list(wanted.names or ())
    elif hasattr(data, "keys") or getattr(data, "dtype", None) is not None:
        raise UsageTypeError(
            "names are for a sequence of columns: the columns of %s have names"
            % type(data).__name__
        )
    columns, labels = {}, {}
    given = named_columns(columns_of(data), list(names))
    for name, (column, of_mask) in with_masks(given).items():
        typed = wanted if name in given else None  # masks are booleans
        if typed is not None and name not in (typed.fields or ()):
            raise UsageValueError("the dtype has no field '%s'" % name)
        with naming_column(name):
            rows = items_of(column, keeps_text=has_text)
            named, attrs = labels_of(column, told=True)
            if typed is not None:
                check_truth(rows, typed[name].base)
                rows = converted(rows, text_or(typed[name].base, has_text))
        columns[name], labels[name] = rows, (named, {**attrs, **of_mask})
    if not columns:
        raise UsageValueError("a table must have a column")
    if any(rows.ndim == 0 for rows in columns.values()):
        raise UsageValueError("expected columns of rows, found a single value")
    check_same_length(columns)
    return columns, labels
