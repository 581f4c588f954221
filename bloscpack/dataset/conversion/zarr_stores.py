"""Conversion of Zarr stores that others wrote: missing values, and texts.

Texts of variable length get the length of the longest one. An archive of `savez` may
have arrays that are no arrays of Zarr.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from ..._format.zarr_metadata import ZARR_JSON
from ..._storage.paths import shown_name
from ..._storage.zip_store import open_zip
from ...constants import EXTENSION
from ...exceptions import UsageTypeError
from ...zip_io import loadz
from .array_formats import add_member, content_of
from .contents import ArrayContent, GroupContent
from .parquet_files import Lengths, fixed, longest

if TYPE_CHECKING:
    from ..._format.dtypes import Array, DType
    from ...serializers import JsonObject
    from .contents import Request

# The kinds of dtypes of texts of variable length.
TEXT = "OT"


def add_own(group: GroupContent, path: str, request: Request) -> None:
    """Add the arrays of an archive of `savez` that Zarr has no shards of."""
    with open_zip(path, path) as opened:
        names = [name for name in opened.namelist() if name.endswith(EXTENSION)]
    if not names or ZARR_JSON not in opened.namelist():
        return
    archive = request.resources.enter_context(loadz(path, nthreads=request.nthreads))
    for name in (name.removesuffix(EXTENSION) for name in names):
        content = content_of(archive[name])
        content.may_be_lost = True
        add_member(group, name, content, path)


def text_content(found: Any, path: str, attrs: JsonObject) -> ArrayContent:
    """Return texts of variable length as items of the length of the longest one."""
    fill = found.fill_value
    dtype = _measured(found.iter_chunks(), path, fill)
    return ArrayContent(
        dtype,
        found.shape,
        partial(_text_rows, found, path, dtype),
        attrs=attrs,
        fill_value=fill if isinstance(fill, (str, bytes)) else None,
        dims=found.dims,
    )


def _measured(blocks: Iterator[Array], path: str, fill: Any) -> DType:
    """Return the type for text of variable length: that of the longest value."""
    lengths, kind = Lengths(), "U"
    lengths.most = longest([fill] if isinstance(fill, (str, bytes)) else [])
    for block in blocks:
        values = block.ravel().tolist()
        for value in values:
            if not isinstance(value, (str, bytes)):
                raise UsageTypeError(
                    "'%s': an array of Python objects can't be converted, unless all "
                    "are text" % shown_name(path)
                )
        kind = "S" if values and isinstance(values[0], bytes) else kind
        lengths.add(values)
    return lengths.dtype(shown_name(path), kind)


def _text_rows(found: Any, path: str, dtype: DType) -> Iterator[Array]:
    for block in found.iter_chunks():
        yield fixed(block.ravel().tolist(), dtype, path).reshape(block.shape)
