"""BigFile trees: a block is an array, or a group if it has no rows.

The attribute `RECORD` of an array or a group keeps what Zarr has no place for: the rows
of each data file, the types of items and attributes. With it, the same files come back.
Without it, an array becomes a block with a data file for 32 Mi rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import numpy

from ...bigfile import File, header
from ...bigfile.attributes import files_of
from ...bigfile.column import Column
from ...bigfile.header import WIDTHS, Header, block_dtype, check_storable, new_header
from ...bigfile.json_attributes import decode, encode
from ...bigfile.tree import (
    ATTRIBUTES,
    HEADER,
    LEGACY,
    MAX_TEXT,
    UNWRITTEN,
    check_new_name,
    is_data_file,
)
from ...exceptions import FormatError, UsageTypeError
from ..commit_rules import building
from ..layouts import MAX_SEARCHED
from .contents import (
    ArrayContent,
    GroupContent,
    TableContent,
    as_table,
    is_table,
    rows_in_block,
)

if TYPE_CHECKING:
    from ..._format.dtypes import Array, DType
    from ...serializers import JsonObject
    from .contents import Content, Request

# The name of the attribute.
RECORD = "bigfile"
# Its keys for a block: type of the items, items in a row, rows of each data file.
DTYPE, NMEMB, ROWS = "dtype", "nmemb", "rows"


def is_tree(path: str) -> bool:
    """Return whether a folder has a block; the search ends after many folders."""
    found = islice(File(path)._tree.walk(), MAX_SEARCHED)
    return any(is_block for _, is_block in found)


def is_only_tree(path: str) -> bool:
    """Return whether a folder has blocks, and nothing but blocks and groups.

    If so, it may be replaced by another tree.
    """
    has_block = False
    for place, folders, files in os.walk(path):
        if any(os.path.islink(os.path.join(place, n)) for n in (*folders, *files)):
            return False
        if HEADER not in files:
            if not {ATTRIBUTES, LEGACY}.issuperset(files):
                return False
            continue
        names = {HEADER, ATTRIBUTES, LEGACY, UNWRITTEN}
        if not all(name in names or is_data_file(name) for name in files):
            return False
        try:
            with open(os.path.join(place, HEADER), "rb") as fp:
                header.decode(fp.read(MAX_TEXT))
        except FormatError:
            return False
        has_block = True
    return has_block


# Reading


def read(path: str, request: Request) -> Content:
    """Return the contents of a tree."""
    tree = File(path, nthreads=request.nthreads)
    root = GroupContent({}, _attributes(tree, "", None))
    for name, is_block in sorted(tree._tree.walk()):
        outer, _, last = name.rpartition("/")
        group = root
        for part in filter(None, outer.split("/")):
            group = group.members[part]  # type: ignore[assignment]
        group.members[last] = (
            _block(tree, name, request) if is_block else _group(tree, name)
        )
    return root


def _group(tree: File, name: str) -> GroupContent:
    return GroupContent({}, _attributes(tree, name, None))


def _block(tree: File, name: str, request: Request) -> ArrayContent | GroupContent:
    column = tree.open(name)
    request.resources.callback(column.close)
    layout = column._layout
    attrs = _attributes(tree, name, layout)
    if not layout.row_nbytes:
        return GroupContent({}, attrs)
    if column.has_unwritten:
        request.lose("which rows of '%s' were never written" % name)
    stored = _stored_dtype(layout)
    shape = (column.size, *stored.shape)
    return ArrayContent(stored.base, shape, partial(_rows, column, stored), attrs=attrs)


def _stored_dtype(layout: Header) -> DType:
    """Return the type of a row in the dataset: bytes for a type that Zarr lacks."""
    dtype, nmemb = layout.dtype, layout.nmemb
    if dtype.kind == "f" and dtype.itemsize > 8:
        return numpy.dtype(("u1", (layout.row_nbytes,)))
    return dtype if nmemb == 1 else numpy.dtype((dtype, (nmemb,)))


def _rows(column: Column, stored: DType) -> Iterator[Array]:
    step = rows_in_block(stored.itemsize)
    for start in range(0, column.size, step):
        rows = column.read(start, step)
        if rows.dtype != stored.base:
            rows = rows.reshape(len(rows), -1).view("u1")
        yield rows


def _attributes(tree: File, name: str, layout: Header | None) -> JsonObject:
    """Return the attributes of a block or a group with the record."""
    folder = tree._tree.folder(name)
    try:
        values, more = encode(files_of(tree._tree, folder), layout is not None)
    except FormatError as error:
        error.filename = folder
        raise
    record: JsonObject = {}
    if layout is not None:
        record = {DTYPE: layout.dtype_name, NMEMB: layout.nmemb, ROWS: layout.rows}
    record.update(more)
    return {**values, RECORD: record} if record else values


# Writing


def write(content: Content, request: Request) -> None:
    """Write a tree, which gets its name when it is complete."""
    members = _blocks_of(content)
    plans = {name: _plan(name, member) for name, member in members.items()}
    sync = bool(request.sync)
    mode = "w" if request.force else "x"
    with building(request.target, mode, sync, is_only_tree, request.limits) as path:
        tree = File(path, create=True, nthreads=request.nthreads)
        for name, member in members.items():
            layout = plans[name]
            if layout is None:
                tree._tree.make_folder(name)
            else:
                _write_block(tree, name, layout, member)
            _write_attributes(tree, name, member.attrs, layout is not None)


def _blocks_of(content: Content) -> dict[str, ArrayContent | GroupContent]:
    """Return all arrays and groups by their name; the tree itself is ``""``."""
    found: dict[str, ArrayContent | GroupContent] = {}

    def add(name: str, member: Content) -> None:
        if isinstance(member, ArrayContent) and is_table(member):
            table = as_table(member)
            table.watch(member.progress)  # and not the array, for each column
            member.watch(None)
            member = table
        if isinstance(member, TableContent):
            member = GroupContent(member.members, member.attrs)
        found[name] = member
        if isinstance(member, GroupContent):
            for inner, each in member.members.items():
                add(name + "/" + inner if name else inner, each)

    add("", content)
    return found


def _plan(name: str, content: ArrayContent | GroupContent) -> Header | None:
    """Return the layout of a block; None for a group. Nothing has been written yet."""
    if name:
        check_new_name(name)
    record = _record(content.attrs)
    layout = _recorded_layout(record)
    if isinstance(content, GroupContent):
        return layout if layout is not None and not content.members else None
    if layout is not None:
        stored = _stored_dtype(layout)
        if (stored.base, stored.shape) == (content.dtype, content.shape[1:]):
            if layout.size == content.shape[0]:
                return layout
            nfile = max(1, len(layout.rows))
            row = numpy.dtype((layout.dtype, (layout.nmemb,)))
            return new_header(row, content.shape[0], nfile)
    if len(content.shape) not in (1, 2) or content.dtype.kind not in WIDTHS:
        raise UsageTypeError(
            "'%s': a block of a BigFile tree can't hold an array of the shape %s and "
            "the dtype '%s'" % (name, content.shape, content.dtype)
        )
    check_storable(content.dtype)
    nmemb = content.shape[1] if len(content.shape) == 2 else 1
    return new_header(numpy.dtype((content.dtype, (nmemb,))), content.shape[0], None)


def _record(attrs: JsonObject) -> JsonObject:
    found = attrs.get(RECORD)
    return found if isinstance(found, dict) else {}


def _recorded_layout(record: JsonObject) -> Header | None:
    """Return the layout in a record; None if it has none, or an impossible one."""
    try:
        name, nmemb, rows = record[DTYPE], record[NMEMB], record[ROWS]
        layout = Header(block_dtype(name), nmemb, rows, dtype_name=name)
        return header.decode(header.encode(layout))
    except (KeyError, TypeError, ValueError, FormatError):
        return None


def _write_block(
    tree: File, name: str, layout: Header, content: ArrayContent | GroupContent
) -> None:
    def fill(column: Column) -> None:
        row = 0
        for rows in content.rows() if isinstance(content, ArrayContent) else ():
            items = rows if rows.dtype == layout.dtype else _viewed(rows, layout.dtype)
            column.write(row, items)
            row += len(rows)

    tree.create_filled(name, layout, fill).close()


def _viewed(rows: Array, dtype: DType) -> Array:
    """Return bytes as items of a type that Zarr lacks."""
    return numpy.ascontiguousarray(rows).view(dtype) if dtype.itemsize > 8 else rows


def _write_attributes(tree: File, name: str, attrs: JsonObject, is_block: bool) -> None:
    values = {key: value for key, value in attrs.items() if key != RECORD}
    files = decode(values, _record(attrs), is_block)
    folder = tree._tree.folder(name)
    for file, content in files.items():
        tree._tree.replace_text(os.path.join(folder, file), content)
    if is_block and ATTRIBUTES not in files:
        os.unlink(os.path.join(folder, ATTRIBUTES))
