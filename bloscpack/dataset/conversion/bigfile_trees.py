"""BigFile trees: a block is an array, or a group if it has no rows.

The attribute `RECORD` of an array or a group keeps what Zarr has no field for: the type
of the items, the rows of each data file, and the files of the attributes. With it, the
same files come back. Without it, an array becomes a block with a data file for 32 Mi
rows.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from math import isfinite

import numpy

from ..._format.dtypes import Array, DType
from ..._format.names import is_safe_part, is_too_long
from ..._format.zarr_metadata import ZARR_JSON
from ..._types import Json, JsonObject
from ...bigfile import File, attributes, header
from ...bigfile.attributes import Attribute, Attributes, files_of, load
from ...bigfile.column import Column
from ...bigfile.file import row_dtype
from ...bigfile.tree import (
    ATTRIBUTES,
    HEADER,
    LEGACY,
    MAX_TEXT,
    UNWRITTEN,
    check_new_name,
    is_data_file,
)
from ...exceptions import FormatError, UsageError, UsageTypeError, UsageValueError
from ...serializers import parse_json
from ..commit_rules import building
from ..layouts import MAX_SEARCHED, bcolz
from .contents import (
    LIST,
    RECORD,
    ByFunction,
    Content,
    Members,
    Request,
    Rows,
    is_same_json,
    nodes_of,
)

# Its keys for a block: type of the items, items in a row, rows of each data file.
DTYPE, NMEMB, ROWS = "dtype", "nmemb", "rows"
# Its key for attributes: the bytes of the files that have them, by their names.
FILES = "files"
# The beginning of a text that represents another value, a convention of nbodykit.
JSON_TEXT = "json://"


def is_tree(path: str) -> bool:
    """Return whether a folder has a block; the search ends after many folders."""
    entries = islice(File(path)._tree.walk(), MAX_SEARCHED)
    return any(is_block for _, is_block in entries)


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
    root = Members({}, _attributes(tree, "", {}))
    for name, is_block in sorted(tree._tree.walk()):
        if not request.wants(*name.split("/")):
            continue
        outer, _, last = name.rpartition("/")
        group: Content = root
        for part in filter(None, outer.split("/")):
            group = group.members[part]
        assert isinstance(group, Members)
        if is_block:
            group.members[last] = _block(tree, name, request)
        else:
            group.members[last] = Members({}, _attributes(tree, name, {}))
    return root


def _block(tree: File, name: str, request: Request) -> Rows | Members:
    column = request.resources.enter_context(tree.open(name))
    layout = column._header
    record = {DTYPE: layout.dtype_name, NMEMB: layout.nmemb, ROWS: layout.rows}
    attrs = _attributes(tree, name, record)
    if not layout.row_nbytes:
        return Members({}, attrs)
    if column._unwritten():
        request.note_loss("which rows of '%s' were never written" % name)
    stored = _stored_dtype(layout)

    def get(key: slice) -> Array:
        rows: Array = column[key]
        if rows.dtype != stored.base:
            rows = rows.reshape(len(rows), -1).view("u1")
        return rows

    return Rows(stored.base, (column.size, *stored.shape), ByFunction(get), attrs)


def _stored_dtype(layout: header.Header) -> DType:
    """Return the type of a row in the dataset: bytes for a type that Zarr lacks."""
    dtype, nmemb = layout.dtype, layout.nmemb
    if dtype.kind == "f" and dtype.itemsize > 8:
        return numpy.dtype(("u1", (layout.row_nbytes,)))
    return dtype if nmemb == 1 else numpy.dtype((dtype, (nmemb,)))


def _attributes(tree: File, name: str, record: JsonObject) -> JsonObject:
    """Return the attributes of a block or a group with the record."""
    folder = tree._tree.folder(name)
    try:
        return encode_attributes(files_of(tree._tree, folder), record)
    except FormatError as error:
        error.filename = folder
        raise


# Writing


def check_name(name: str, kind: str, request: Request) -> None:
    """Raise `UsageError` for a name that no block or group of a tree can have."""
    if not is_safe_part(name) or is_too_long(name):
        raise UsageValueError("no folder of a tree can have the name %.200r" % name)
    check_new_name(name)
    if name in (ZARR_JSON, bcolz.ATTRIBUTES, bcolz.COLUMNS):
        raise UsageValueError("a folder with '%s' is a dataset, and no tree" % name)


def write(content: Content, request: Request) -> None:
    """Write a tree, which gets its name when it is complete."""
    members = dict(nodes_of(content, splits=True))
    plans = {name: _plan(name, member) for name, member in members.items()}
    mode, sync = "w" if request.force else "x", request.syncs_folder
    target = building(request.target, mode, sync, is_only_tree, request.limits)
    with request.compared(target) as path:
        tree = File(path, create=True, nthreads=request.nthreads)
        for name, member in members.items():
            layout, folder = plans[name], tree._tree.folder(name)
            if layout is None:
                tree._tree.make_folder(name)
            else:
                blocks = member.blocks() if isinstance(member, Rows) else ()
                fill = partial(_fill, request.counted(blocks), layout.dtype)
                tree.create_filled(name, layout, fill).close()
            for key, value in member.attrs.items():
                is_single = isinstance(value, list) and len(value) == 1
                if is_single and isinstance(value[0], (int, float, str)):
                    request.note_loss(LIST % (key, name or "/"))
            files = decode_attributes(member.attrs, layout is not None)
            for file, text in files.items():
                tree._tree.replace_text(os.path.join(folder, file), text)
            if layout is not None and ATTRIBUTES not in files:
                os.unlink(os.path.join(folder, ATTRIBUTES))


def _plan(name: str, content: Content) -> header.Header | None:
    """Return the layout of a block; None for a group. Nothing has been written yet."""
    layout = _recorded_layout(content.attrs.get(RECORD))
    if not isinstance(content, Rows) or content.columns:
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
    return header.new_header(row_dtype(content), content.shape[0], None)


def _recorded_layout(record: Json) -> header.Header | None:
    """Return the layout in a record; None if it has none, or an impossible one."""
    try:
        name, nmemb, rows = record[DTYPE], record[NMEMB], record[ROWS]
        layout = header.Header(header.block_dtype(name), nmemb, rows, dtype_name=name)
        return header.decode(header.encode(layout))
    except (KeyError, TypeError, ValueError, FormatError):
        return None


def _fill(blocks: Iterable[Array], dtype: DType, column: Column) -> None:
    """Write rows to a new block."""
    row = 0
    for rows in blocks:
        if rows.dtype != dtype and dtype.itemsize > 8:
            rows = numpy.ascontiguousarray(rows).view(dtype)  # bytes of an `f16`
        column.write(row, rows)
        row += len(rows)


# Attributes as JSON, and back. A value is a number or a text for a single item, and a
# list for several items. JSON has fewer types than a tree, so the record has the files,
# too: a value that is still the same comes back from there.


def encode_attributes(files: Mapping[str, bytes], record: JsonObject) -> JsonObject:
    """Return the values of all attributes by name, and the record."""
    if files or record:
        kept = {name: base64.b64encode(data) for name, data in files.items()}
        record = {**record, FILES: {name: kept[name].decode("ascii") for name in kept}}
    values = _plain_values(load(files))
    return {**values, RECORD: record} if record else values


def decode_attributes(attrs: JsonObject, is_block: bool) -> dict[str, bytes]:
    """Return the files for attributes and a record, which may not fit them any more.

    Raises `UsageError` for a name that no attribute can have.
    """
    values = {key: value for key, value in attrs.items() if key != RECORD}
    kept: Attributes = {}
    # Somebody may have changed the record.
    with suppress(FormatError, LookupError, TypeError, ValueError, AttributeError):
        texts = attrs[RECORD][FILES]
        files = {name: base64.b64decode(text) for name, text in texts.items()}
        if files.keys() <= {LEGACY, ATTRIBUTES}:
            kept = load(files)
            if _plain_values(kept) == values:
                return files
    by_name: Attributes = {}
    for name, value in values.items():
        encoded = attributes.encoded_name(name)
        old = kept.get(encoded)
        same = old is not None and plain_value(old) == value
        by_name[encoded] = old if same and old else _attribute(name, value)
    return {ATTRIBUTES: attributes.encode(by_name)} if by_name or is_block else {}


def _plain_values(stored: Attributes) -> JsonObject:
    """Return the values by name, without names that JSON can't represent."""
    values: JsonObject = {}
    for encoded, attribute in stored.items():
        with suppress(UnicodeDecodeError):
            values[encoded.decode("utf-8")] = plain_value(attribute)
    return values


def plain_value(attribute: Attribute) -> Json:
    """Return the value of an attribute for JSON."""
    dtype = attribute.dtype
    if attribute.is_text or dtype.str[1:] == "S1":
        text = attribute.data.rstrip(b"\0").decode("utf-8", "replace")
        with suppress(ValueError):
            if text.startswith(JSON_TEXT):
                return parse_json(text.removeprefix(JSON_TEXT).encode())
        return text
    if dtype.kind == "S":
        values = attribute.array.tolist()
        return [item.rstrip(b"\0").decode("utf-8", "replace") for item in values]
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


def _attribute(name: str, value: Json) -> Attribute:
    """Return a value as an attribute: a number, a text, a list of one, or JSON."""
    items = value if isinstance(value, list) else [value]
    if isinstance(value, str) and (value.startswith(JSON_TEXT) or value[-1:] == "\0"):
        items = [None]  # it would come back as another value
    with suppress(UsageError, UnicodeEncodeError):  # half of a surrogate pair
        for kinds in ((int, float), str):
            if all(isinstance(item, kinds) for item in items):
                encoded = attributes.attribute_of(name, value)
                if items[1:] and encoded.dtype.str[1:] == "S1":
                    # Items of one byte are the characters of one text.
                    return attributes.attribute_of(name, encoded.array.astype("S2"))
                if kinds is not str and not is_same_json(encoded.array.tolist(), items):
                    break  # such as a truth value among numbers
                return encoded
    return attributes.attribute_of(name, JSON_TEXT + json.dumps(value))
