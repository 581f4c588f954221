"""BigFile trees: a block is an array, or a group if it has no rows.

The attribute `RECORD` of an array or a group keeps what Zarr has no field for: the rows
of each data file, the types of items and attributes. With it, the same files come back.
Without it, an array becomes a block with a data file for 32 Mi rows.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from math import isfinite

import numpy

from ..._format.dtypes import Array, DType
from ..._types import Json, JsonObject
from ...bigfile import File, attributes, header
from ...bigfile.attributes import TEXT, Attribute, Attributes, files_of, load
from ...bigfile.column import Column
from ...bigfile.tree import (
    ATTRIBUTES,
    HEADER,
    LEGACY,
    MAX_TEXT,
    UNWRITTEN,
    check_new_name,
    is_data_file,
)
from ...exceptions import FormatError, UsageError, UsageTypeError
from ..commit_rules import building
from ..layouts import MAX_SEARCHED
from .contents import (
    ArrayContent,
    Content,
    GroupContent,
    Request,
    as_table,
    inside,
    is_table,
    rows_in_block,
)

# The name of the attribute.
RECORD = "bigfile"
# Its keys for a block: type of the items, items in a row, rows of each data file.
DTYPE, NMEMB, ROWS = "dtype", "nmemb", "rows"
# Its keys for attributes: the type of each, and the bytes of the files by their name.
TYPES, FILES = "types", "files"
# The beginning of a text that represents another value, a convention of nbodykit.
JSON_TEXT = "json://"


def is_tree(path: str) -> bool:
    """Return whether a folder has a block; the search ends after many folders."""
    found = islice(File(path)._tree.walk(), MAX_SEARCHED)
    return any(is_block for _, is_block in found)


def is_only_tree(path: str) -> bool:
    """Return whether a folder has blocks, and nothing but blocks and groups.

    If so, it may be replaced by another tree.
    """
    has_block = False
    for folder, folders, files in os.walk(path):
        if any(os.path.islink(os.path.join(folder, n)) for n in (*folders, *files)):
            return False
        if HEADER not in files:
            if not {ATTRIBUTES, LEGACY}.issuperset(files):
                return False
            continue
        names = {HEADER, ATTRIBUTES, LEGACY, UNWRITTEN}
        if not all(name in names or is_data_file(name) for name in files):
            return False
        try:
            with open(os.path.join(folder, HEADER), "rb") as fp:
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
            _block(tree, name, request)
            if is_block
            else GroupContent({}, _attributes(tree, name, None))
        )
    return root


def _block(tree: File, name: str, request: Request) -> ArrayContent | GroupContent:
    column = tree.open(name)
    request.resources.callback(column.close)
    layout = column._header
    attrs = _attributes(tree, name, layout)
    if not layout.row_nbytes:
        return GroupContent({}, attrs)
    if column.has_unwritten:
        request.note_loss("which rows of '%s' were never written" % name)
    stored = _stored_dtype(layout)
    shape = (column.size, *stored.shape)
    return ArrayContent(
        stored.base,
        shape,
        partial(_rows, column, stored),
        attrs=attrs,
        array=column if stored.base == layout.dtype else None,
    )


def _stored_dtype(layout: header.Header) -> DType:
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


def _attributes(tree: File, name: str, layout: header.Header | None) -> JsonObject:
    """Return the attributes of a block or a group with the record."""
    folder = tree._tree.folder(name)
    try:
        files = files_of(tree._tree, folder)
        values, more = encode_attributes(files, layout is not None)
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
    members = dict(_blocks_of(content))
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
                _write_block(tree, name, layout, member, request)
            _write_attributes(tree, name, member.attrs, layout is not None)


def _blocks_of(content: Content, name: str = "") -> Iterator[tuple[str, Content]]:
    """Yield all arrays and groups with their names; a table is a group of columns."""
    if isinstance(content, ArrayContent) and is_table(content):
        content = as_table(content)
    yield name, content
    for key, member in content.members.items():
        yield from _blocks_of(member, inside(name, key))


def _plan(name: str, content: Content) -> header.Header | None:
    """Return the layout of a block; None for a group. Nothing has been written yet."""
    if name:
        check_new_name(name)
    layout = _recorded_layout(content.attrs.get(RECORD))
    if not isinstance(content, ArrayContent):
        return layout if layout is not None and not content.members else None
    if layout is not None:
        stored = _stored_dtype(layout)
        if (stored.base, stored.shape) == (content.dtype, content.shape[1:]):
            if layout.size == content.shape[0]:
                return layout
            nfile = max(1, len(layout.rows))
            row = numpy.dtype((layout.dtype, (layout.nmemb,)))
            return header.new_header(row, content.shape[0], nfile)
    if len(content.shape) not in (1, 2) or content.dtype.kind not in header.WIDTHS:
        raise UsageTypeError(
            "'%s': a block of a BigFile tree can't hold an array of the shape %s and "
            "the dtype '%s'" % (name, content.shape, content.dtype)
        )
    header.check_storable(content.dtype)
    nmemb = content.shape[1] if len(content.shape) == 2 else 1
    row = numpy.dtype((content.dtype, (nmemb,)))
    return header.new_header(row, content.shape[0], None)


def _recorded_layout(record: Json) -> header.Header | None:
    """Return the layout in a record; None if it has none, or an impossible one."""
    try:
        name, nmemb, rows = record[DTYPE], record[NMEMB], record[ROWS]
        layout = header.Header(header.block_dtype(name), nmemb, rows, dtype_name=name)
        return header.decode(header.encode(layout))
    except (KeyError, TypeError, ValueError, FormatError):
        return None


def _write_block(
    tree: File, name: str, layout: header.Header, content: Content, request: Request
) -> None:
    def fill(column: Column) -> None:
        row = 0
        blocks = content.rows() if isinstance(content, ArrayContent) else ()
        for rows in request.counted(blocks):
            if rows.dtype != layout.dtype and layout.dtype.itemsize > 8:
                # The bytes of a type that Zarr lacks.
                rows = numpy.ascontiguousarray(rows).view(layout.dtype)
            column.write(row, rows)
            row += len(rows)

    tree.create_filled(name, layout, fill).close()


def _write_attributes(tree: File, name: str, attrs: JsonObject, is_block: bool) -> None:
    values = {key: value for key, value in attrs.items() if key != RECORD}
    record = attrs.get(RECORD)
    found = record if isinstance(record, dict) else {}
    files = decode_attributes(values, found, is_block)
    folder = tree._tree.folder(name)
    for file, content in files.items():
        tree._tree.replace_text(os.path.join(folder, file), content)
    if is_block and ATTRIBUTES not in files:
        os.unlink(os.path.join(folder, ATTRIBUTES))


# Attributes as JSON, and back. A value is a number or a text for a single item, and a
# list for several items. JSON has fewer types than a tree, so the values come with a
# record: the type of each attribute, and the bytes of a file of attributes that could
# not be made again from these values.


def encode_attributes(
    files: Mapping[str, bytes], is_block: bool
) -> tuple[JsonObject, JsonObject]:
    """Return the values of all attributes by name, and the record."""
    found = load(files)
    values, types = _plain(found)
    record: JsonObject = {TYPES: types} if types else {}
    if _files_for(values, types, is_block) != files:
        record[FILES] = {
            name: base64.b64encode(data).decode("ascii") for name, data in files.items()
        }
    return values, record


def decode_attributes(
    values: JsonObject, record: JsonObject, is_block: bool
) -> dict[str, bytes]:
    """Return the files for values and a record, which may not belong to each other.

    Raises `UsageError` for a name that no attribute can have.
    """
    kept = record.get(FILES)
    if isinstance(kept, dict):
        # Somebody may have changed the record.
        with suppress(FormatError, TypeError, ValueError):
            files = {name: base64.b64decode(text) for name, text in kept.items()}
            known = files.keys() <= {LEGACY, ATTRIBUTES}
            if known and _plain(load(files))[0] == values:
                return files
    types = record.get(TYPES)
    return _files_for(values, types if isinstance(types, dict) else {}, is_block)


def _files_for(
    values: JsonObject, types: JsonObject, is_block: bool
) -> dict[str, bytes]:
    found = {
        attributes.encoded_name(name): _attribute(name, value, types.get(name))
        for name, value in values.items()
    }
    return {ATTRIBUTES: attributes.encode(found)} if found or is_block else {}


def _plain(found: Attributes) -> tuple[JsonObject, JsonObject]:
    """Return values and types by name, without names that JSON can't represent."""
    values: JsonObject = {}
    types: JsonObject = {}
    for encoded, attribute in found.items():
        try:
            name = encoded.decode("utf-8")
        except UnicodeDecodeError:
            continue
        values[name], types[name] = plain_value(attribute), attribute.dtype_name
    return values, types


# A value


def plain_value(attribute: Attribute) -> Json:
    """Return the value of an attribute for JSON."""
    dtype = attribute.dtype
    if attribute.is_text or dtype.str[1:] == "S1":
        return attribute.data.rstrip(b"\0").decode("utf-8", "replace")
    if dtype.kind == "S":
        found = attribute.array.tolist()
        return [item.rstrip(b"\0").decode("utf-8", "replace") for item in found]
    if dtype.kind in "mM":
        items = attribute.array.view(dtype.str[0] + "i8").tolist()
    elif dtype.kind == "c":
        items = [[_finite(c.real), _finite(c.imag)] for c in attribute.array.tolist()]
    elif dtype.kind == "f" and dtype.itemsize > 8:
        items = list(map(str, attribute.array))
    else:
        items = list(map(_finite, attribute.array.tolist()))
    return items[0] if len(items) == 1 else items


def _finite(value: Json) -> Json:
    """Return a number, as text if JSON does not have it."""
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value


def _attribute(name: str, value: Json, dtype_name: Json) -> Attribute:
    """Return a value as an attribute of this type, or of another one that fits."""
    if isinstance(dtype_name, str):
        # Somebody may have changed the value.
        with suppress(FormatError, TypeError, ValueError, OverflowError):
            return _typed(value, dtype_name)
    with suppress(UsageError, UnicodeEncodeError):  # half of a surrogate pair
        if _is_simple(value):
            return attributes.attribute_of(name, value)
    return attributes.attribute_of(name, JSON_TEXT + json.dumps(value))


def _is_simple(value: Json) -> bool:
    """Return whether a value is a number, a text, or a list of one of the two."""
    items = value if isinstance(value, list) else [value]
    return all(isinstance(item, (int, float)) for item in items) or all(
        isinstance(item, str) for item in items
    )


def _typed(value: Json, dtype_name: str) -> Attribute:
    dtype = header.attribute_dtype(dtype_name)
    items = value if isinstance(value, list) else [value]
    if dtype_name.lstrip("<>|=")[0] == TEXT or dtype.str[1:] == "S1":
        if not isinstance(value, str):
            raise UsageTypeError("expected a text, found %r" % (value,))
        # C programs store the NUL at the end of a text, too.
        ends = dtype_name.lstrip("<>|=")[0] != TEXT
        data = value.encode("utf-8") + b"\0" * (ends or not value)
        return Attribute(dtype_name, len(data), data)
    if dtype.kind == "S":
        encoded = [str.encode(item, "utf-8") for item in items]
        if max(map(len, encoded)) > dtype.itemsize:
            raise UsageTypeError("a text does not fit the type '%s'" % dtype_name)
        array = numpy.array(encoded, dtype)
    elif dtype.kind in "mM":
        array = numpy.array(items, dtype.str[0] + "i8").view(dtype)
    elif dtype.kind == "c":
        pairs = [float(part) for part in numpy.ravel(numpy.array(items, object))]
        part = numpy.dtype("%sf%d" % (dtype.str[0], dtype.itemsize // 2))
        array = numpy.array(pairs).astype(part).view(dtype)
    elif dtype.kind == "f" and dtype.itemsize <= 8:
        array = numpy.array([float(item) for item in items]).astype(dtype)
    else:
        array = numpy.array(items).astype(dtype)
        if dtype.kind in "iub" and array.tolist() != items:
            raise UsageTypeError("%r does not fit the type '%s'" % (value, dtype_name))
    if not array.size:
        raise UsageTypeError("an attribute can't be empty")
    return Attribute(dtype_name, array.size, array.tobytes())
