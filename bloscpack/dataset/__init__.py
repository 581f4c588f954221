"""Datasets: arrays and tables in folders of compressed files.

>>> from bloscpack import dataset
>>> with dataset.create_array('a', numpy.arange(5), layout='bcolz') as array:
...     array.append([5, 6])
>>> dataset.open('a')[2:].tolist()
[2, 3, 4, 5, 6]

`open` finds out which layout a folder has: that of bcolz 1.x or that of BLZ.
"""

from __future__ import annotations

import os

import numpy

from ..exceptions import UsageTypeError, UsageValueError
from .array import Array as Array
from .attributes import Attributes as Attributes
from .create import creating
from .folder import Folder
from .layouts import array_class, detect, table_class
from .layouts.base import NewArray
from .rows import blocks_of, check_same_length, converted, filled_rows, named_columns
from .table import Table as Table
from .writer import Writer

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from .._format.dtypes import Array as Items
    from .._storage.protocols import Path
    from ..abstract_io import Progress
    from .conversion import Conversion

MODES = ("r", "r+")


def open(
    path: Path, mode: str = "r", *, allow_pickle: bool = False, sync: bool = True
) -> Array | Table:
    """Open an array or a table.

    Parameters
    ----------
    path
        The folder.
    mode
        ``'r'`` for reading, ``'r+'`` for reading and changes. One writer at a time can
        open a dataset; readers do not see rows that are appended after they opened it.
    allow_pickle
        Whether items that are Python objects may be read. This may run code that the
        files name: use it only for files that you trust.
    sync
        Whether each change is on the disk when it has been made. Without this, changes
        survive the end of the process, but not of the machine.

    Raises
    ------
    FormatError
        If the folder holds no dataset, or one whose description is damaged.
    UsageError
        If the layout can only be read.
    OSError
        If there is no such folder, or if another writer has opened it.
    """
    if mode not in MODES:
        raise UsageValueError(
            "mode must be one of %s, not %r" % (", ".join(map(repr, MODES)), mode)
        )
    folder = Folder.open(path)
    writer = Writer(folder, sync) if mode == "r+" else None
    try:
        layout, kind = detect(folder)
        if kind == "table":
            return _open_table(folder, layout, allow_pickle, writer)
        found = array_class(layout)(folder, allow_pickle=allow_pickle)
        if writer is not None:
            found.check_writable()
        return Array(found, writer)
    except BaseException:
        if writer is not None:
            writer.close()
        raise


def _open_table(
    folder: Folder, layout: str, allow_pickle: bool, writer: Writer | None
) -> Table:
    found = table_class(layout)(folder, allow_pickle=allow_pickle)
    if writer is None:
        for _ in range(ATTEMPTS):  # a writer may be changing the lengths
            if len({column.shape[0] for column in found.columns.values()}) < 2:
                break
            folder.read_journal()
            found = table_class(layout)(folder, allow_pickle=allow_pickle)
        return Table(found)
    found.check_layout()
    for column in found.columns.values():
        column.check_writable()
        writer.lock(column.folder)
    table = Table(found, writer)
    table.make_equal()
    return table


# Number of times that a table is opened again whose columns have different lengths.
ATTEMPTS = 3


def open_array(
    path: Path,
    mode: str = "r",
    *,
    allow_pickle: bool = False,
    sync: bool = True,
    **creation: Any,
) -> Array:
    """Open an array; `open` describes the parameters that are not described here.

    Parameters
    ----------
    mode
        ``'r'`` and ``'r+'`` as for `open`; ``'x'`` and ``'w'`` as for `create_array`;
        ``'a'`` for ``'r+'`` if there is a dataset, and for ``'x'`` otherwise.
    creation
        Parameters of `create_array` for a new one.

    Raises
    ------
    UsageError
        If it is a table.
    """
    if mode in ("w", "x") or (mode == "a" and not os.path.lexists(path)):
        new = "x" if mode == "a" else mode
        return create_array(path, mode=new, sync=sync, **creation)
    mode = "r+" if mode == "a" else mode
    found = open(path, mode, allow_pickle=allow_pickle, sync=sync)
    if not isinstance(found, Array):
        found.close()
        raise UsageTypeError("'%s' is a table; open_table opens it" % found.path)
    return found


def open_table(
    path: Path,
    mode: str = "r",
    *,
    allow_pickle: bool = False,
    sync: bool = True,
    **creation: Any,
) -> Table:
    """Open a table; `open` describes the parameters that are not described here.

    Parameters
    ----------
    mode
        ``'r'`` and ``'r+'`` as for `open`; ``'x'`` and ``'w'`` as for `create_table`;
        ``'a'`` for ``'r+'`` if there is a dataset, and for ``'x'`` otherwise.
    creation
        Parameters of `create_table` for a new one.

    Raises
    ------
    UsageError
        If it is an array.
    """
    if mode in ("w", "x") or (mode == "a" and not os.path.lexists(path)):
        new = "x" if mode == "a" else mode
        return create_table(path, mode=new, sync=sync, **creation)
    mode = "r+" if mode == "a" else mode
    found = open(path, mode, allow_pickle=allow_pickle, sync=sync)
    if not isinstance(found, Table):
        found.close()
        raise UsageTypeError("'%s' is an array; open_array opens it" % found.path)
    return found


def create_array(
    path: Path,
    data: Any = None,
    *,
    shape: int | tuple[int, ...] | None = None,
    dtype: Any = None,
    layout: str = "zarr",
    chunks: int | None = None,
    shards: int | None = None,
    fill_value: Any = None,
    attrs: Mapping[str, Any] | None = None,
    mode: str = "x",
    sync: bool = True,
    **settings: Any,
) -> Array:
    """Create an array, and return it open for changes.

    Parameters
    ----------
    path
        The folder, which appears when the array is complete.
    data
        The items; None for an array of `shape` and `dtype` that holds `fill_value`.
    shape, dtype
        Those of the array; by default those of `data`.
    layout
        ``'zarr'``, which any Zarr software reads, or ``'bcolz'``, that of bcolz 1.x.
    chunks
        Number of rows in a chunk.
    shards
        Number of rows in a file, a multiple of `chunks`, for layouts whose files have
        several chunks.
    fill_value
        The value of new items when the array is enlarged, by default zero.
    attrs
        The attributes.
    mode
        ``'x'`` if there must be no such file or folder, ``'w'`` to replace a dataset.
    sync
        As in `open`.
    settings
        Settings of Blosc: ``cname``, ``clevel``, ``shuffle``.

    Raises
    ------
    UsageError
        If the layout can't hold the items; the message says what can.
    FileExistsError
        If there is a file or folder of this name.

    Examples
    --------
    >>> from bloscpack import dataset
    >>> with dataset.create_array('b', [1.5, 2.5], layout='bcolz') as array:
    ...     array.resize(3)
    ...     array[:2] = 7
    >>> dataset.open('b')[:].tolist()
    [7.0, 7.0, 0.0]
    """
    rows = _new_rows(data, shape, dtype, fill_value)
    attributes = _plain(attrs)
    new = NewArray(
        rows.dtype, rows.shape, chunks, fill_value, attributes, settings, shards=shards
    )
    found = array_class(layout)
    found.check_layout()
    step = found.block_rows_for(new)
    with creating(path, mode, sync) as change:
        found.create(change, "", new, blocks_of(rows, step))
    return open_array(path, "r+", sync=sync)


def create_table(
    path: Path,
    data: Any = None,
    *,
    layout: str,
    dtype: Any = None,
    names: Sequence[str] | None = None,
    chunks: int | None = None,
    attrs: Mapping[str, Any] | None = None,
    mode: str = "x",
    sync: bool = True,
    **settings: Any,
) -> Table:
    """Create a table, and return it open for changes.

    Parameters
    ----------
    path
        The folder, which appears when the table is complete.
    data
        The rows: a structured array, a dictionary of columns, a DataFrame, or a
        sequence of columns with `names`. None for no rows.
    layout
        ``'bcolz'``, that of bcolz 1.x.
    dtype
        The type of a row, with a field for each column; by default that of `data`.
    names
        Names of the columns if `data` is a sequence of columns.
    chunks, attrs, mode, sync, settings
        As in `create_array`.

    Raises
    ------
    UsageError
        If the columns have different lengths, or if the layout can't hold them.
    FileExistsError
        If there is a file or folder of this name.

    Examples
    --------
    >>> from bloscpack import dataset
    >>> columns = {'a': [1, 2], 'b': [0.5, 1]}
    >>> with dataset.create_table('c', columns, layout='bcolz') as table:
    ...     table.append({'a': [3], 'b': [1.5]})
    >>> dataset.open('c')[1:].tolist()
    [(2, 1.0), (3, 1.5)]
    """
    columns = _new_columns(data, dtype, names)
    found = table_class(layout)
    found.check_layout()
    new = {}
    for name, rows in columns.items():
        found.check_column_name(name)
        array = NewArray(rows.dtype, rows.shape, chunks, settings=settings)
        step = found.column_class().block_rows_for(array)
        new[name] = array, blocks_of(rows, step)
    with creating(path, mode, sync) as change:
        found.create(change, new, _plain(attrs))
    return open_table(path, "r+", sync=sync)


def convert(
    source: Path,
    target: Path,
    *,
    to: str | None = None,
    force: bool = False,
    dtypes: Mapping[str, Any] | None = None,
    nthreads: int | None = None,
    sync: bool | None = None,
    progress: Progress | None = None,
    expect: Callable[[int], object] | None = None,
    **settings: Any,
) -> Conversion:
    """Convert a file or folder to another format, in bounded memory.

    The formats are ``npy``, ``npz``, ``blp``, ``csv``, ``parquet`` and the layouts of
    datasets. Any Zarr store can be read, too.

    Parameters
    ----------
    source
        The file or folder. Its content says which format it has.
    target
        The file or folder to write, which appears when it is complete.
    to
        The format of `target`; by default the end of its name says which.
    force
        Whether to replace an existing file, or an existing dataset.
    dtypes
        Types of the columns of a CSV file, by name. The others are found in the file.
    nthreads
        Number of threads for ``.blp`` files; None for the default.
    sync
        Whether the result is on the disk when this returns; None means that it is if it
        replaces another one.
    progress
        Called with the number of plain bytes of each block of rows.
    expect
        Called once, with the number of all plain bytes.
    settings
        Settings of Blosc: ``cname``, ``clevel``, ``shuffle``.

    Returns
    -------
    Conversion
        What was converted; its attribute ``lost`` lists what `target` can't hold.

    Raises
    ------
    FormatError
        If the source is damaged, or has no known format.
    UsageError
        If the target can't hold the values, or if a package is missing.
    FileExistsError
        If there is a target.

    Examples
    --------
    >>> from bloscpack import dataset
    >>> numpy.save('n.npy', numpy.arange(4))
    >>> done = dataset.convert('n.npy', 'n.bcolz', clevel=9)
    >>> done.kind, done.lost, dataset.open('n.bcolz')[:].tolist()
    ('array', [], [0, 1, 2, 3])
    """
    from .conversion import convert

    return convert(
        source,
        target,
        to=to,
        force=force,
        dtypes=dtypes,
        nthreads=nthreads,
        sync=sync,
        progress=progress,
        expect=expect,
        settings=settings,
    )


def _plain(attrs: Mapping[str, Any] | None) -> dict[str, Any]:
    return {} if attrs is None else dict(attrs)


def _new_rows(
    data: Any, shape: int | tuple[int, ...] | None, dtype: Any, fill_value: Any
) -> Items:
    """Return the items of a new array."""
    if data is None:
        if shape is None or dtype is None:
            raise UsageValueError("expected data, or shape and dtype")
        length, *inner = (shape,) if isinstance(shape, int) else shape
        wanted = numpy.dtype(dtype)
        fill = numpy.zeros((), wanted) if fill_value is None else fill_value
        return filled_rows(length, tuple(inner), fill, wanted)
    rows: Items = numpy.asarray(data)
    if dtype is not None:
        rows = converted(rows, numpy.dtype(dtype))
    if shape is not None and rows.shape != (
        (shape,) if isinstance(shape, int) else shape
    ):
        raise UsageValueError(
            "expected data of shape %s, found an array of shape %s"
            % (shape, rows.shape)
        )
    return rows


def _new_columns(
    data: Any, dtype: Any, names: Sequence[str] | None
) -> dict[str, Items]:
    """Return the columns of a new table."""
    wanted = None if dtype is None else numpy.dtype(dtype)
    if wanted is not None and wanted.names is None:
        raise UsageValueError("expected a dtype with fields, found '%s'" % wanted)
    if data is None:
        if wanted is None:
            raise UsageValueError("expected data or a dtype")
        data = numpy.empty(0, wanted)
    if names is None:
        names = [] if wanted is None else list(wanted.names or ())
    columns = {}
    for name, column in named_columns(data, list(names)).items():
        rows = numpy.asarray(column)
        if rows.dtype.kind == "O":  # text of a DataFrame
            rows = numpy.asarray(rows.tolist())
        if wanted is not None and wanted.fields is not None:
            if name not in wanted.fields:
                raise UsageValueError("the dtype has no field '%s'" % name)
            rows = converted(rows, wanted.fields[name][0].base)
        columns[name] = rows
    if not columns:
        raise UsageValueError("a table must have a column")
    if any(rows.ndim == 0 for rows in columns.values()):
        raise UsageValueError("expected columns of rows, found a single value")
    check_same_length(columns)
    return columns
