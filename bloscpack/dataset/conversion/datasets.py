"""Datasets of every layout: arrays, tables and groups in folders.

An array is written in one step. The rows of a table are appended in blocks of one size
for all columns; a shard of each column has the rows of one block, so that no shard is
written twice.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from os.path import isfile, join, lexists
from typing import TYPE_CHECKING

import numpy

from ... import dataset
from ..._commit.new_files import Change
from ...constants import EXTENSION
from ...exceptions import NotANumpyArray, UsageError, UsageValueError
from ..array import Array
from ..commit_rules import building, creating
from ..folder import BAD_NAME, Folder, is_member_name
from ..group import Group
from ..labels import name_of, stored_dims
from ..layouts import LAYOUTS, array_class, blp_files, find_members, table_class
from ..layouts.base import NewArray
from ..rows import RowStream
from ..table import Table
from . import zarr_stores
from .array_formats import read_blp
from .contents import (
    ArrayContent,
    GroupContent,
    TableContent,
    as_table,
    is_table,
    regrouped,
)

if TYPE_CHECKING:
    from .contents import Content, Request

# Number of plain bytes of a block of rows that is appended to a table.
TABLE_NBYTES = 32 * 2**20

# Reading


def read(path: str, request: Request) -> Content:
    """Return the contents of a dataset."""
    content = _content(partial(dataset.open, path), path, request)
    if isfile(path) and isinstance(content, GroupContent):
        zarr_stores.add_own(content, path, request)
    return content


def _content(
    open_: Callable[[], Array | Table | Group], path: str, request: Request
) -> Content:
    """Return the contents of a dataset."""
    found = open_()
    request.resources.enter_context(found)
    if isinstance(found, Array):
        if found.dtype.kind in zarr_stores.TEXT and found.layout == "zarr-python":
            return zarr_stores.text_content(found, path, found.attrs.asdict())
        return _array_content(found, found.shape)
    if isinstance(found, Table):
        return _table_content(found)
    # The copy of a group must not lack a member without a word.
    listed = find_members(found._layout.folder, skip_unreadable=False)
    members = {
        name: _content(partial(found.__getitem__, name), join(path, name), request)
        for name, _ in listed
    }
    if found._layout.folder.store.can_rename:
        _add_files(members, found._layout.folder, path, request)
    return GroupContent(members, found.attrs.asdict())


def _add_files(
    members: dict[str, Content], folder: Folder, path: str, request: Request
) -> None:
    """Add the arrays in ``.blp`` files, as in the folder of an unzipped archive."""
    for file in blp_files(folder):
        name = file.removesuffix(EXTENSION)
        try:
            if name not in members:
                members[name] = content = read_blp(join(path, file), request)
                content.may_be_lost = True
                continue
        except NotANumpyArray:
            pass
        request.note_loss("the file '%s'" % join(path, file))


def _array_content(array: Array, shape: tuple[int, ...]) -> ArrayContent:
    """Return an array, or the first rows of it: `shape` says how many."""
    parts = array._layout.parts()
    return ArrayContent(
        array.dtype,
        shape,
        None,
        array.attrs.asdict(),
        array.fill_value,
        array.dims,
        array=array,
        # The fields of an item may have files of their own.
        chunks=parts[0][1] if [names for names, _ in parts] == [()] else None,
    )


def _table_content(table: Table) -> TableContent:
    length = len(table)
    columns = {
        name: replace(_array_content(column, (length, *column.shape[1:])), dims=None)
        for name, column in table.columns.items()
    }
    attrs = table.attrs.asdict()
    content = TableContent(columns, length, lambda: content.parts(range(length)), attrs)
    return content


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


def _write(content: Content, request: Request, path: str, place: str = "") -> None:
    """Write contents to a free path, without syncing; `place` is that in the target."""
    layout = request.layout
    if isinstance(content, GroupContent):
        group = layout if "group" in LAYOUTS[layout].kinds else "zarr"
        dataset.create_group(path, layout=group, attrs=content.attrs).close()
        for name, member in content.members.items():
            if not is_member_name(name):
                raise UsageValueError(BAD_NAME % ("member", name))
            inner = join(place, name)
            try:
                _write(member, request, join(path, name), inner)
            except UsageError as error:
                if isinstance(member, GroupContent):  # it has named its member
                    raise
                if isinstance(member, ArrayContent) and member.may_be_lost:
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
        _write_array(content, request, path, creating(path, "x", False))


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
    array: ArrayContent,
    request: Request,
    path: str,
    creation: AbstractContextManager[Change],
) -> None:
    new = NewArray(
        array.dtype,
        array.shape,
        request.chunks,
        array.fill_value,
        array.attrs,
        request.settings,
        request.shards,
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
        array = NewArray(
            column.dtype,
            column.shape,
            request.chunks,
            column.fill_value,
            column.attrs,
            request.settings,
            shards=rows if request.shards is None else request.shards,
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
