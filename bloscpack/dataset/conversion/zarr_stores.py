"""Zarr stores that others wrote: any that the package zarr opens, of format 2 or 3."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import partial

import numpy

from ..._storage.urls import is_url, shown_name
from ...exceptions import BloscpackError, DamageError, UsageTypeError
from ..layouts.zarr_array import OWN_ATTRIBUTES
from .contents import ArrayContent, GroupContent, rows_in_block
from .request import import_package
from .text_columns import fixed, longest, text_dtype

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..._format.dtypes import Array, DType
    from .contents import Content
    from .request import Request

# The file that an array or group of each format has.
MARKERS = ("zarr.json", ".zarray", ".zgroup")


def is_store(path: str) -> bool:
    """Return whether a folder is an array or a group of Zarr; a URL may be one."""
    if is_url(path):
        return True
    return any(os.path.lexists(os.path.join(path, name)) for name in MARKERS)


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Turn the errors of zarr about the bytes into `DamageError` with the name."""
    try:
        yield
    except (BloscpackError, OSError, MemoryError):
        raise
    except Exception as error:  # each codec raises errors of its own
        raise DamageError(
            "zarr can't read it: %s: %s" % (type(error).__name__, error),
            filename=shown_name(path),
        ) from error


def read(path: str, request: Request) -> Content:
    """Return the contents of a store."""
    zarr = import_package("zarr", "zarr", "reading a Zarr store")
    with _named(path):
        store: Any = path
        if os.path.isfile(path):
            storage = import_package("zarr.storage", "zarr", "reading a Zarr store")
            store = storage.ZipStore(path, mode="r")
            request.resources.callback(store.close)
        found = zarr.open(store, mode="r")
        return _content(found, path)


def _content(found: Any, path: str) -> Content:
    # The identity, and the mark of missing shards, are those of the store alone.
    attrs = {k: v for k, v in dict(found.attrs).items() if k not in OWN_ATTRIBUTES}
    if not hasattr(found, "shape"):
        members = {
            name: _content(found[name], "%s/%s" % (path, name))
            for name in sorted(found)
        }
        return GroupContent(members, attrs)
    rows = partial(_rows, found, path)
    dtype = numpy.dtype(found.dtype)
    fill = getattr(found, "fill_value", None)
    if dtype.kind in "OT":
        dtype = _measured(rows(), path, fill)
        rows = partial(_text_rows, found, path, dtype)
    return ArrayContent(
        dtype,
        tuple(found.shape),
        rows,
        attrs=attrs,
        fill_value=fill if _is_item(fill, dtype) else None,
        dims=getattr(getattr(found, "metadata", None), "dimension_names", None),
    )


def _is_item(fill: Any, dtype: DType) -> bool:
    """Return whether a fill value is an item: text may have a number, or None."""
    kinds = {"U": str, "S": bytes}
    return isinstance(fill, kinds.get(dtype.kind, object))


def _rows(found: Any, path: str) -> Iterator[Array]:
    """Yield blocks of rows, of whole chunks if those are small enough."""
    with _named(path):
        if not found.shape:
            yield numpy.asarray(found[...])
            return
        length = found.shape[0]
        row = found.nbytes // max(1, length)
        # A shard is indexed once, and its chunks are read by themselves.
        step = rows_in_block(row, found.chunks[0])
        for start in range(0, length, step):
            yield numpy.asarray(found[start : start + step])


def _measured(blocks: Iterator[Array], path: str, fill: Any) -> DType:
    """Return the type for text of variable length: that of the longest value."""
    most, kind = longest([fill] if isinstance(fill, (str, bytes)) else []), "U"
    for block in blocks:
        values = block.ravel().tolist()
        for value in values:
            if not isinstance(value, (str, bytes)):
                raise UsageTypeError(
                    "'%s': an array of Python objects can't be converted, unless all "
                    "are text" % shown_name(path)
                )
        kind = "S" if values and isinstance(values[0], bytes) else kind
        most = longest(values, most)
    return text_dtype(most, kind)


def _text_rows(found: Any, path: str, dtype: DType) -> Iterator[Array]:
    for block in _rows(found, path):
        yield fixed(block.ravel().tolist(), dtype, path).reshape(block.shape)


def is_zip_store(names: list[str]) -> bool:
    """Return whether an archive with these members is a store."""
    return any(name in MARKERS for name in names)
