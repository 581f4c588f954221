"""Describe a dataset, without reading its items: ``dataset.describe(path)``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from .._check.findings import failure_kind
from .._format.dtypes import DType, encode_dtype
from .._format.text import TEXT
from .._types import Json, JsonObject, Path, StorageOptions
from ..describe import ratio_of
from ..exceptions import BloscpackError, FormatError, Unsupported
from ..log import printable
from .checking import joined_name
from .folder import Folder
from .layouts import detect, find_members, missing_members
from .layouts.base import ArrayLayout, NodeLayout, TableLayout

# Names of the filters of Blosc, by number.
FILTERS = ("none", "shuffle", "bitshuffle")
# Fields of a dataset that are sums over its members.
SUMS = ("nbytes", "cbytes", "nchunks", "nfiles")


def describe(
    path: Path, *, storage_options: StorageOptions | None = None
) -> JsonObject:
    """Return the description of a dataset, as values that JSON can hold.

    No chunk is read. A table has the key ``columns`` and a group the key ``members``:
    lists of descriptions. One that can't be opened has the key ``error``, and
    ``damaged``: whether bytes are wrong or missing. ``missing`` names members whose
    folders another program has renamed, moved or removed. A field ``fill_value`` that
    is no number is text. An array has the key ``dims`` if an axis has a name.

    Parameters
    ----------
    path
        The folder of an array, a table or a group, or its URL.
    storage_options
        Settings for fsspec to open a URL, such as keys.

    Raises
    ------
    FormatError
        If the folder holds no dataset, or one whose description is damaged.
    OSError
        If there is no such folder.

    Examples
    --------
    >>> from bloscpack import dataset
    >>> dataset.create_array('i', [1.5, 2.5]).close()
    >>> found = dataset.describe('i')
    >>> found['layout'], found['shape'], found['dtype'], found['nbytes']
    ('zarr', [2], '<f8', 16)
    """
    return _describe("", detect(Folder.open(path, storage_options)).open_damaged())


class DatasetInfo(dict[str, "Json"]):
    """What `describe` returns, with a line for each field as its repr."""

    def __repr__(self) -> str:
        width = max(map(len, self), default=0)
        lines = []
        for key, value in self.items():
            if key in ("columns", "members"):  # their names
                value = ", ".join(each["name"].rpartition("/")[2] for each in value)
            lines.append("%s  %s" % (key.ljust(width), printable(str(value))))
        return "\n".join(lines)


def describe_open(name: str, layout: NodeLayout) -> DatasetInfo:
    """Return the description of a dataset that is open."""
    return DatasetInfo(_describe(name, layout))


def arrays_of(described: JsonObject) -> Iterator[JsonObject]:
    """Yield the descriptions of all arrays in a dataset, columns included.

    Those of members that can't be opened are included.
    """
    if described["kind"] == "array" or "error" in described:
        yield described
    for inner in [*described.get("members", ()), *described.get("columns", ())]:
        yield from arrays_of(inner)


def _describe(name: str, node: NodeLayout) -> JsonObject:
    result = {**_head(name, node.name, node.kind), "attributes": node.read_attributes()}
    if isinstance(node, ArrayLayout):
        return {**result, **_describe_array(node)}
    # Name, layout and kind of each part, and the function that opens it.
    parts: Iterable[tuple[str, str, str, Callable[[], NodeLayout]]]
    if isinstance(node, TableLayout):
        inner, columns, unopened = "columns", node.columns, node.unopened or {}

        def opened(column: str) -> NodeLayout:
            if column in unopened:
                raise unopened[column]
            return columns[column]

        listed = (*columns, *unopened)
        parts = [(n, node.name, "array", partial(opened, n)) for n in listed]
    else:
        inner, entries = "members", find_members(node.folder)
        if missing := missing_members(node.folder):
            result["missing"] = missing
        parts = ((n, *f[1:], f.open_damaged) for n, f in entries)
    members: list[JsonObject] = []
    for part, layout, kind, open_node in parts:
        full = joined_name(name, part)
        try:
            members.append(_describe(full, open_node()))
        except (BloscpackError, OSError) as error:
            damage = isinstance(error, (FormatError, OSError))
            is_unread = isinstance(error, Unsupported) or failure_kind(error)
            why = {"error": str(error), "damaged": damage and not is_unread}
            members.append({**_head(full, layout, kind), **why})
    if isinstance(node, TableLayout):
        lengths = (column["shape"][0] for column in members if "shape" in column)
        result["rows"] = min(lengths, default=0)
    for key in SUMS:
        result[key] = sum(member.get(key, 0) for member in members)
    result["ratio"] = ratio_of(result["nbytes"], result["cbytes"])
    return {**result, inner: members}


def _head(name: str, layout: str, kind: str) -> JsonObject:
    return {"name": name, "layout": layout, "kind": kind}


def _describe_array(layout: ArrayLayout) -> JsonObject:
    parts = layout.parts()
    nbytes, cbytes = math.prod(layout.shape) * layout.dtype.itemsize, layout.cbytes
    settings = layout.codec_settings
    is_text = layout.has_text and layout.dtype == TEXT
    value: Any = layout.fill_value
    item = value.item() if hasattr(value, "item") else value
    named: JsonObject = {"dims": list(layout.dims)} if layout.dims else {}
    return named | {
        "shape": list(layout.shape),
        "dtype": "text" if is_text else dtype_text(layout.dtype),
        "chunks": list(layout.chunks),
        "shards": None if layout.shards is None else list(layout.shards),
        "fill_value": item if isinstance(item, (bool, int, float)) else str(value),
        "codec": settings.get("cname"),
        "level": settings.get("clevel"),
        "filter": FILTERS[int(settings.get("shuffle", 0))],
        "checksum": "crc32c" if layout.has_digests else "None",
        "nbytes": nbytes,
        "cbytes": cbytes,
        "ratio": ratio_of(nbytes, cbytes),
        "nchunks": sum(source.nchunks for _, source in parts),
        "nfiles": sum(source.nfiles for _, source in parts),
    }


def dtype_text(dtype: DType) -> str:
    """Return a dtype as `.blp` files store it, without quotation marks."""
    if dtype.kind == "T":
        return "text"
    return "object" if dtype.hasobject else encode_dtype(dtype).strip("'")
