"""Datasets of every layout: arrays, tables and groups in folders.

Texts of variable length get the length of the longest one for formats without such
text. An archive of `savez` may have arrays that are no arrays of Zarr.

The rows of a table are appended in blocks of one size for all columns; a shard of each
column has the rows of one block, so that no shard is written twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import accumulate, chain, islice
from os.path import isfile, join, lexists
from stat import S_IFDIR
from typing import Any

import numpy

from ... import dataset, log
from ..._commit.new_folder import creating_inside
from ..._commit.pin import Pin, ReadChanged
from ..._format.dtypes import Array as Items
from ..._format.grid import Shape
from ..._format.names import is_safe_name
from ..._format.names import listed as shown
from ..._format.text import TEXT as VARIABLE
from ..._format.zarr_metadata import MASK, ZARR_JSON
from ..._storage.paths import is_url, shown_name
from ..._storage.zip_store import open_zip
from ...constants import EXTENSION, MAX_BUFFERSIZE
from ...exceptions import NotANumpyArray, UsageError, UsageTypeError, UsageValueError
from ...zip_io import loadz
from ..array import Array
from ..columns import MASK_OF
from ..commit_rules import building
from ..folder import check_member_name
from ..group import Group, open_at
from ..labels import name_of, stored_dims
from ..layouts import (
    LAYOUTS,
    NO_FOLDERS,
    array_class,
    blp_files,
    find_members,
    group_class,
    layouts_for,
    missing_members,
    table_class,
)
from ..layouts.base import NewArray, wanted_fill
from ..rows import RowStream
from ..table import Table, new_column
from .array_formats import add_arrays, read_blp
from .contents import (
    Content,
    Members,
    Request,
    Rows,
    array_stream,
    as_table,
    inside,
    is_table,
    naming_file,
    new_table,
    nodes_of,
)
from .parquet_files import Lengths, fixed

# The kinds of dtypes of texts of variable length.
TEXT = "OT"
# Number of plain bytes of a block of rows that is appended to a table.
TABLE_NBYTES = 32 * 2**20


# Reading


def read(path: str, request: Request) -> Content:
    """Return the contents of a dataset."""
    source = open_at(path)
    if not is_url(path):
        request.pin = Pin(shown_name(path), ReadChanged)
        source._layout.folder.tree.attach_pin(request.pin)
    content: Content = _content(source, path, request)
    if not isfile(path) or not isinstance(content, Members):
        return content
    # An archive of `savez` has arrays that Zarr has no shards of.
    with open_zip(path) as opened:
        listed = opened.namelist()
    wrong = [name for name in listed if not is_safe_name(name.rstrip("/"))]
    if wrong:
        request.note_loss("the members %s, whose names are no paths" % shown(wrong))
    names = [n.removesuffix(EXTENSION) for n in listed if n.endswith(EXTENSION)]
    names = [name for name in names if request.wants(*name.split("/"))]
    if names and ZARR_JSON in listed:
        archive = loadz(path, nthreads=request.nthreads)
        add_arrays(content, request.resources.enter_context(archive), names, path)
    # The members follow one another as their chunks do in the file.
    places: dict[str, int] = {}
    listed.sort(key=lambda name: name.endswith(ZARR_JSON))
    for number, name in enumerate(listed):
        for part in accumulate(name.removesuffix(EXTENSION).split("/"), inside):
            places.setdefault(part, number)
    for name, node in nodes_of(content):
        if isinstance(node, Members):
            in_order = sorted(node.members, key=lambda n: places[inside(name, n)])
            node.members = {inner: node.members[inner] for inner in in_order}
    return content


def _content(
    opened: Array | Table | Group, path: str, request: Request, *where: str
) -> Any:
    """Return the contents of an open dataset, and close it in the end.

    `where` are the names of the groups around it, and its own.
    """
    request.resources.enter_context(opened)
    attrs = opened.attrs.asdict()
    if isinstance(opened, Array):
        is_fixed = request.fixed_text and opened.layout == "zarr"
        if opened.dtype.kind in TEXT and (is_fixed or opened.layout == "zarr-python"):
            return _text_content(opened, path, request.fixed_text)
        fill, dims = opened.fill_value, opened.dims
        if opened._layout.masks_fill_value and fill == fill:
            if request.missing:
                request.masked.append(path)
            else:
                del attrs[MASK]
        rows = Rows(opened.dtype, opened.shape, opened, attrs, fill, dims)
        rows.asks_fill = opened._layout.asks_fill
        return rows
    if isinstance(opened, Table):
        columns, length = {}, len(opened)
        if not where:
            with naming_file(shown_name(path)):
                request.wanted_columns(opened.names)
        for name, column in opened.columns.items():
            if not request.wants(*where, name) and MASK_OF not in column.attrs:
                continue
            columns[name] = _content(column, path, request)
            # An interrupted writer of bcolz leaves columns of different lengths.
            columns[name].shape, columns[name].dims = (length, *column.shape[1:]), None
        return new_table(columns, length, None, attrs)
    # The copy of a group must not lack a member without a word.
    folder = opened._layout.folder
    group = Members({}, attrs)
    for name, _ in find_members(folder, skip_unreadable=False):
        if request.wants(*where, name):
            inner = join(path, name)
            group.members[name] = _content(opened[name], inner, request, *where, name)
    lost = [n for n in missing_members(folder) if request.wants(*where, n)]
    if lost:
        log.notice(NO_FOLDERS % (path, shown(lost)))
    entries = folder.entries() if folder.store.lists else []
    wrong = [n for n, kind in entries if kind == S_IFDIR and not n.isprintable()]
    if wrong := [name for name in wrong if request.wants(*where, name)]:
        request.note_loss("the folders %s of '%s'" % (shown(wrong), path))
    # An unzipped archive of `savez` has such arrays as files.
    for file in blp_files(folder) if folder.store.can_rename else ():
        name = file.removesuffix(EXTENSION)
        if not request.wants(*where, name):
            continue
        with suppress(NotANumpyArray):
            if name not in group.members:
                group.members[name] = content = read_blp(join(path, file), request)
                content.may_be_lost = True
                continue
        request.note_loss("the file '%s'" % join(path, file))
    return group


def _text_content(array: Array, path: str, is_fixed: bool) -> Rows:
    """Return texts of variable length, or bytes, of any program.

    Bytes have the length of the longest one; with `is_fixed`, texts do so, too.
    """
    fill = array.fill_value if isinstance(array.fill_value, (str, bytes)) else None
    lengths, kind = Lengths(), "U"
    lengths.most = len(fill or "")

    def blocks() -> Iterable[Items]:
        return array.iter_chunks() if array.shape else [numpy.array(array[...], "O")]

    for block in blocks():
        values = block.ravel().tolist()
        if not all(isinstance(value, (str, bytes)) for value in values):
            raise UsageTypeError(
                "'%s': an array of Python objects can't be converted, unless all are "
                "text" % shown_name(path)
            )
        kind = "S" if values and isinstance(values[0], bytes) else kind
        lengths.add(values)
    is_fixed = is_fixed or kind == "S"
    dtype = lengths.dtype(shown_name(path), kind) if is_fixed else VARIABLE

    def rows() -> Iterator[Items]:
        for block in blocks():
            if is_fixed:
                yield fixed(block.ravel().tolist(), dtype, path).reshape(block.shape)
            else:
                yield block.astype(dtype)

    texts = Rows(dtype, array.shape, None, array.attrs.asdict(), fill, array.dims)
    texts.text_nbytes = 0 if is_fixed else lengths.text_nbytes
    texts.array = array_stream(rows, texts)
    return texts


# Writing


def check_name(name: str, kind: str, request: Request) -> None:
    """Raise `UsageError` for a name that no column or member of a dataset can have."""
    if kind == "table":
        table_class(request.layout).check_column_name(name)
    else:
        check_member_name("member", name)


def write(content: Content, request: Request) -> None:
    """Write a dataset, which appears when it is complete."""
    mode, sync = "w" if request.force else "x", request.syncs_folder
    target = building(request.target, mode, sync, limits=request.limits)
    with request.compared(target) as path:
        _write(content, request, path)


def _write(content: Content, request: Request, path: str, where: str = "") -> None:
    """Write contents to a free path, without syncing; `where` is the path in it."""
    layout = request.layout
    given: dict[str, Any] = {"chunks": request.chunks, "shards": request.shards}
    if isinstance(content, Members):
        group = layout if "group" in LAYOUTS[layout].kinds else "zarr"
        with creating_inside(path) as change:
            group_class(group).create(change, content.attrs)
        for name, member in content.members.items():
            inner = join(where, name)
            if lexists(join(path, name)):  # as on a disk that ignores case
                text = "the file system takes the name '%s' for that of another member"
                raise UsageValueError(text % inner)
            try:
                _write(member, request, join(path, name), inner)
            except UsageError as error:
                if isinstance(member, Members):  # it has named its member
                    raise
                if member.may_be_lost and not _fits(member, layout):
                    request.note_loss("'%s' (%s)" % (inner, error))
                    continue
                raise type(error)("'%s': %s" % (inner, error)) from error
    elif is_table(content) and (content.columns or not array_class(layout).by_field):
        # Zarr has tables, and no arrays with fields.
        table = as_table(content)
        wrong = {
            name: column
            for name, column in table.columns.items()
            if content.may_be_lost and not _fits(column, layout)
        }
        if 0 < len(wrong) < len(table.columns):
            for name, column in wrong.items():
                row = column.shape[1:]
                of_shape = " and shape %s of each row" % (row,) if row else ""
                request.note_loss(
                    "the column '%s', of dtype '%s'%s, of '%s'"
                    % (name, column.dtype, of_shape, where)
                )
            table = table.only(n for n in table.columns if n not in wrong)
        _write_table(table, request, path)
    else:
        ndim, source = len(content.shape), content.array
        if where:
            given = {key: _lengths(value, ndim) for key, value in given.items()}
        if not any(given.values()) and isinstance(source, Array):
            same = source.layout == layout == "zarr"
            nbytes = math.prod(source.chunks) * content.dtype.itemsize
            if same and nbytes <= MAX_BUFFERSIZE:
                given = {"chunks": source.chunks, "shards": source.shards}
        target = array_class(layout)
        target.check_layout()
        blocks = request.counted(content.blocks())
        first = list(islice(blocks, 1))
        new = NewArray(
            content.dtype,
            content.shape,
            **given,
            fill_value=wanted_fill(content),
            attrs=content.attrs,
            settings=request.settings,
            dims=stored_dims(name_of(path), ndim, content.dims),
            sample=first[0] if first else None,
        )
        stream = RowStream(chain(first, blocks), content.dtype, content.shape[1:])
        with creating_inside(path) as change:
            target.create(change, "", new, stream.blocks(target.grid_for(new)))


def _fits(content: Rows, layout: str) -> bool:
    """Return whether a layout can hold an array, with other chunks perhaps."""
    with suppress(UsageError):
        new = NewArray(content.dtype, content.shape, fill_value=content.fill_value)
        return layout in layouts_for(new, without="")
    return False


def _lengths(given: int | Shape | None, ndim: int) -> int | Shape | None:
    """Return the wanted lengths of chunks, unless they are for other axes."""
    return None if isinstance(given, tuple) and len(given) != ndim else given


def _write_table(table: Rows, request: Request, path: str) -> None:
    """Write a table with its first rows, and append the others."""
    target = table_class(request.layout)
    target.check_layout()
    # A power of two, which has many divisors: a shard has whole chunks.
    count = 2 ** (max(1, TABLE_NBYTES // max(1, table.row_nbytes)).bit_length() - 1)
    blocks = request.counted(table.read(count))
    rows: Any = next(blocks, numpy.empty(0, table.dtype))
    new = {}
    for name, column in table.columns.items():
        target.check_column_name(name)
        fill = column.fill_value
        if numpy.ndim(fill):  # type: ignore[arg-type]
            if column.has_fill_value:  # of a field of arrays
                request.note_loss("the fill value")
            fill = None
        shards = _lengths(request.shards, len(column.shape))
        new[name] = new_column(
            *(target, name, rows[name], column.attrs),
            chunks=_lengths(request.chunks, len(column.shape)),
            shards=count if shards is None else shards,
            fill_value=None if fill is None else wanted_fill(column),
            settings=request.settings,
        )
    with creating_inside(path) as change:
        target.create(change, new, table.attrs)
    others = list(islice(blocks, 1))
    if others:
        with dataset.open_table(path, "r+", sync=False) as opened:
            for rows in chain(others, blocks):
                opened.append(rows)
