"""``.blp`` files with an array."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from ...abstract_io import PlainSource
from ...defaults import DEFAULT_CHUNK_SIZE
from ...fp_io import CompressedFPSink
from ...lazy_array import LazyArray, open_ndarray
from ...npy_io import without_items
from ...numpy_io import pack_items
from .contents import FORTRAN_FACTOR, ArrayContent, as_array, rows_in_block
from .npy import plain_bytes

if TYPE_CHECKING:
    from ..._format.dtypes import Array
    from ...serializers import Json, JsonObject
    from .contents import Content, Request

# The name of the attribute for metadata that are no JSON object.
METADATA = "metadata"


def read(path: str, request: Request) -> ArrayContent:
    """Return the array in a file, with its metadata as attributes."""
    lazy = open_ndarray(path, nthreads=request.nthreads)
    request.resources.enter_context(lazy)
    return content_of(lazy)


def content_of(lazy: LazyArray) -> ArrayContent:
    """Return an array in a file, with its metadata as attributes."""
    fortran = lazy.order == "F" and lazy.ndim > 1
    return ArrayContent(
        lazy.dtype,
        lazy.shape,
        partial(_rows, lazy),
        _attributes(lazy.metadata),
        read_stored=partial(_rows, lazy, transposed=True) if fortran else None,
    )


def _rows(lazy: LazyArray, *, transposed: bool = False) -> Iterator[Array]:
    """Yield blocks of rows of the array, or of its transpose."""
    if not lazy.shape:
        yield lazy[...]
        return
    length = lazy.shape[-1 if transposed else 0]
    reads_all = lazy.order == "F" and not transposed
    factor = FORTRAN_FACTOR if reads_all else 1
    step = rows_in_block(lazy.nbytes // max(1, length), factor=factor)
    for start in range(0, length, step):
        part = slice(start, start + step)
        yield lazy[..., part].T if transposed else lazy[part]


def _attributes(metadata: Json) -> JsonObject:
    if metadata is None:
        return {}
    return metadata if isinstance(metadata, dict) else {METADATA: metadata}


def _metadata(attrs: JsonObject) -> Json:
    """Return the metadata for attributes; `_attributes` is the inverse."""
    if list(attrs) == [METADATA] and not isinstance(attrs[METADATA], dict):
        return attrs[METADATA]
    return attrs or None


class BlocksSource(PlainSource):
    """Yields the bytes of blocks of items, cut into chunks."""

    def __init__(self, blocks: Iterator[Array]) -> None:
        self._blocks = blocks

    def __iter__(self) -> Iterator[bytearray]:
        rest = memoryview(b"")
        for start, stop in self.spans():
            chunk, filled = bytearray(stop - start), 0
            while filled < len(chunk):
                if not rest:
                    rest = plain_bytes(next(self._blocks))
                    continue
                part = rest[: len(chunk) - filled]
                chunk[filled : filled + len(part)] = part
                filled += len(part)
                rest = rest[len(part) :]
            yield chunk


def write(content: Content, request: Request) -> None:
    """Write an array, or a table as an array with fields; attributes are metadata."""
    array = as_array(content)
    with request.new_file() as out_fp:
        pack_items(
            BlocksSource(request.counted(array.stored())),
            CompressedFPSink(out_fp, new=True),
            without_items(array.dtype, array.shape, array.fortran),
            DEFAULT_CHUNK_SIZE,
            None,
            None,
            None,
            metadata=_metadata(array.attrs),
            nthreads=request.nthreads,
            **request.settings,
        )
