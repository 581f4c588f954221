"""Datasets of every layout: arrays, tables and groups in folders.

Texts of variable length, in Zarr stores that others wrote, get the length of the
longest one. An archive of `savez` may have arrays that are no arrays of Zarr.

An array is written in one step. The rows of a table are appended in blocks of one size
for all columns; a shard of each column has the rows of one block, so that no shard is
written twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from os.path import isfile, join, lexists

import numpy

from ... import dataset
from ..._commit.new_files import Change
from ..._format.dtypes import Array as Items
from ..._format.grid import Shape
from ..._format.zarr_metadata import ZARR_JSON
from ..._storage.paths import shown_name
from ..._storage.zip_store import open_zip
from ...constants import EXTENSION, MAX_BUFFERSIZE
from ...exceptions import NotANumpyArray, UsageError, UsageTypeError, UsageValueError
from ...zip_io import loadz
from ..array import Array
from ..commit_rules import building, creating
from ..folder import BAD_NAME, Folder, is_member_name
from ..group import Group
from ..labels import name_of, stored_dims
from ..layouts import (
    LAYOUTS,
    array_class,
    blp_files,
    find_members,
    layouts_for,
    table_class,
)
from ..layouts.base import NewArray
from ..rows import RowStream
from ..table import Table
from .array_formats import add_member, content_of, read_blp
from .contents import (
    ArrayContent,
    Content,
    GroupContent,
    Request,
    TableContent,
    as_table,
    is_table,
    regrouped,
)
from .parquet_files import Lengths, fixed

Creation = AbstractContextManager[Change]

# The kinds of dtypes of texts of variable length.
TEXT = "OT"
# Number of plain bytes of a block of rows that is appended to a table.
TABLE_NBYTES = 32 * 2**20

# Reading


def read(path: str, request: Request) -> Content:
    """Return the contents of a dataset."""
    content = _content(partial(dataset.open, path), path, request)
    if isfile(path) and isinstance(content, GroupContent):
        _add_own(content, path, request)
    return content


def _content(
    open_: Callable[[], Array | Table | Group], path: str, request: Request
) -> Content:
    """Return the contents of a dataset."""
    found = open_()
    request.resources.enter_context(found)
    if isinstance(found, Array):
        if found.dtype.kind in TEXT and found.layout == "zarr-python":
            return _text_content(found, path)
        return _array_content(found, found.shape)
    if isinstance(found, Table):
        length = len(found)
        columns = {
            key: replace(_array_content(each, (length, *each.shape[1:])), dims=None)
            for key, each in found.columns.items()
        }
        table = TableContent(
            columns, length, lambda: table.parts(range(length)), found.attrs.asdict()
        )
        return table
    # The copy of a group must not lack a member without a word.
    listed = find_members(found._layout.folder, skip_unreadable=False)
    members = {
        name: _content(partial(found.__getitem__, name), join(path, name), request)
        for name, _ in listed
    }
    if found._layout.folder.store.can_rename:
        _add_files(members, found._layout.folder, path, request)
    return GroupContent(members, found.attrs.asdict())


def _add_own(group: GroupContent, path: str, request: Request) -> None:
    """Add the arrays of an archive of `savez` that Zarr has no shards of."""
    with open_zip(path) as opened:
        listed = opened.namelist()
    names = [name for name in listed if name.endswith(EXTENSION)]
    if not names or ZARR_JSON not in listed:
        return
    archive = request.resources.enter_context(loadz(path, nthreads=request.nthreads))
    for name in (name.removesuffix(EXTENSION) for name in names):
        content = content_of(archive[name])
        content.may_be_lost = True
        add_member(group, name, content, path)


def _add_files(
    members: dict[str, Content], folder: Folder, path: str, request: Request
) -> None:
    """Add the arrays in ``.blp`` files, as in the folder of an unzipped archive."""
    for file in blp_files(folder):
        name = file.removesuffix(EXTENSION)
        with suppress(NotANumpyArray):
            if name not in members:
                members[name] = content = read_blp(join(path, file), request)
                content.may_be_lost = True
                continue
        request.note_loss("the file '%s'" % join(path, file))


def _text_content(array: Array, path: str) -> ArrayContent:
    """Return texts of variable length as items of the length of the longest one."""
    fill = array.fill_value if isinstance(array.fill_value, (str, bytes)) else None
    lengths, kind = Lengths(), "U"
    lengths.most = len(fill or "")
    for block in array.iter_chunks():
        values = block.ravel().tolist()
        if not all(isinstance(value, (str, bytes)) for value in values):
            raise UsageTypeError(
                "'%s': an array of Python objects can't be converted, unless all are "
                "text" % shown_name(path)
            )
        kind = "S" if values and isinstance(values[0], bytes) else kind
        lengths.add(values)
    dtype = lengths.dtype(shown_name(path), kind)

    def rows() -> Iterator[Items]:
        for block in array.iter_chunks():
            yield fixed(block.ravel().tolist(), dtype, path).reshape(block.shape)

    attrs = array.attrs.asdict()
    return ArrayContent(dtype, array.shape, rows, attrs, fill, array.dims)


def _array_content(array: Array, shape: tuple[int, ...]) -> ArrayContent:
    """Return an array, or the first rows of it: `shape` says how many."""
    attrs = array.attrs.asdict()
    fill_value, dims = array.fill_value, array.dims
    return ArrayContent(array.dtype, shape, None, attrs, fill_value, dims, array=array)


# Writing


def write(content: Content, request: Request) -> None:
    """Write a dataset, which appears when it is complete."""
    target, sync, limits = request.target, request.sync, request.limits
    mode = "w" if request.force else "x"
    if sync is None:
        sync = lexists(target)
    if isinstance(content, ArrayContent) and not _is_table(content, request.layout):
        creation = creating(target, mode, sync, limits)
        _write_array(content, request, target, creation)
        return
    with building(target, mode, sync, limits=limits) as path:
        _write(content, request, path)


def _is_table(content: Content, layout: str) -> bool:
    """Return whether a layout gets the content as a table.

    An array with fields and one axis becomes a table, which Zarr has, unless the layout
    stores fields in files of their own anyway.
    """
    is_array = isinstance(content, ArrayContent)
    return is_table(content) and not (is_array and array_class(layout).by_field)


def _write(content: Content, request: Request, path: str, inside: str = "") -> None:
    """Write contents to a free path, without syncing; `inside` is the path in it."""
    layout = request.layout
    if isinstance(content, GroupContent):
        group = layout if "group" in LAYOUTS[layout].kinds else "zarr"
        dataset.create_group(path, layout=group, attrs=content.attrs).close()
        for name, member in content.members.items():
            if not is_member_name(name):
                raise UsageValueError(BAD_NAME % ("member", name))
            inner = join(inside, name)
            try:
                _write(member, request, join(path, name), inner)
            except UsageError as error:
                if isinstance(member, GroupContent):  # it has named its member
                    raise
                is_array = isinstance(member, ArrayContent) and member.may_be_lost
                if is_array and not _fits(member, layout):
                    request.note_loss("'%s' (%s)" % (inner, error))
                    continue
                raise type(error)("'%s': %s" % (inner, error)) from error
    elif _is_table(content, layout):
        table = as_table(content)
        if isinstance(content, ArrayContent) and not _same_fill_value(content, table):
            request.note_loss("the fill value")
        _write_table(table, request, path)
    else:
        assert isinstance(content, ArrayContent)
        if inside:
            ndim = len(content.shape)
            chunks = _lengths(request.chunks, ndim)
            shards = _lengths(request.shards, ndim)
            request = replace(request, chunks=chunks, shards=shards)
        _write_array(content, request, path, creating(path, "x", False))


def _fits(content: Content, layout: str) -> bool:
    """Return whether a layout can hold an array, with other chunks perhaps."""
    assert isinstance(content, ArrayContent)
    with suppress(UsageError):
        new = NewArray(content.dtype, content.shape, fill_value=content.fill_value)
        return layout in layouts_for(new, without="")
    return False


def _lengths(given: int | Shape | None, ndim: int) -> int | Shape | None:
    """Return the wanted lengths of chunks, unless they are for other axes."""
    return None if isinstance(given, tuple) and len(given) != ndim else given


def _same_fill_value(array: ArrayContent, table: TableContent) -> bool:
    """Return whether the columns have the fill values of all fields of an array."""
    if not array.has_fill_value:
        return True
    fill = numpy.zeros((), table.dtype)
    for name, column in table.columns.items():
        if column.fill_value is not None:
            fill[name] = column.fill_value
    same: bool = fill.tobytes() == numpy.array(array.fill_value, fill.dtype).tobytes()
    return same


def _write_array(
    array: ArrayContent, request: Request, path: str, creation: Creation
) -> None:
    chunks, shards, source = request.chunks, request.shards, array.array
    if chunks is shards is None and isinstance(source, Array):
        same = source.layout == request.layout == "zarr"
        if same and math.prod(source.chunks) * array.dtype.itemsize <= MAX_BUFFERSIZE:
            chunks, shards = source.chunks, source.shards
    new = NewArray(
        array.dtype,
        array.shape,
        chunks,
        array.fill_value,
        array.attrs,
        request.settings,
        shards,
        dims=stored_dims(name_of(path), len(array.shape), array.dims),
    )
    found = array_class(request.layout)
    found.check_layout()
    stream = RowStream(request.counted(array.rows()), array.dtype, array.shape[1:])
    blocks = stream.blocks(found.grid_for(new))
    with creation as change:
        found.create(change, "", new, blocks)


def _write_table(content: TableContent, request: Request, path: str) -> None:
    found = table_class(request.layout)
    found.check_layout()
    # A power of two, which has many divisors: a shard has whole chunks.
    rows = 2 ** (max(1, TABLE_NBYTES // max(1, content.row_nbytes)).bit_length() - 1)
    new = {}
    for name, column in content.columns.items():
        found.check_column_name(name)
        shards = _lengths(request.shards, len(column.shape))
        array = NewArray(
            column.dtype,
            column.shape,
            _lengths(request.chunks, len(column.shape)),
            column.fill_value,
            column.attrs,
            request.settings,
            shards=rows if shards is None else shards,
        )
        grid = found.array_class.grid_for(array)
        array.chunks, array.shards = grid.chunk, grid.shard
        array.shape = 0, *column.shape[1:]
        new[name] = array, iter(())
    with creating(path, "x", False) as change:
        found.create(change, new, content.attrs)
    with dataset.open_table(path, "r+", sync=False) as table:
        blocks = request.counted(content.read())
        for block in regrouped(blocks, min(rows, content.length or 1)):
            table.append(block)
