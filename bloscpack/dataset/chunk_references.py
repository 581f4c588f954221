"""Where the chunks of bcolz and BLZ arrays are in their files, for references.

A file of such an array is a header of 16 bytes and a Blosc chunk, so a reader of Zarr
can decompress the chunk in place. The last chunk may be shorter, or have more rows than
the array: see `chunk_files`. Nothing but the headers of the chunks is read.
"""

from __future__ import annotations

import math
import os
from functools import partial
from typing import TYPE_CHECKING

from .._format.blosc_header import decode_header
from .._format.codecs import read_by
from .._format.dtypes import DType
from .._storage.paths import without_url
from .._storage.protocols import Path
from ..constants import BLOSC_HEADER_LENGTH
from ..exceptions import DamageError, FormatError, UsageError
from .folder import Folder
from .layouts import array_class, detect, table_class
from .layouts.base import ArrayLayout
from .layouts.bcolz import BcolzArray
from .layouts.chunk_files import HEADER, OBJECT, FileChunks

if TYPE_CHECKING:
    from ..serializers import JsonObject

# Layouts that have each chunk in a file of its own.
LAYOUTS = ("bcolz", "blz")
# Why a dataset of another layout needs no references, or can't have them.
REASONS = {
    "zarr": "it is a dataset of Zarr format 3, which any Zarr software reads",
    "folder": "it is a folder of datasets: name the datasets in it",
}
OTHER_LAYOUT = "only bcolz and BLZ have each chunk in a file of its own"


class ArrayInPlace:
    """An array whose chunks stay where they are.

    Attributes
    ----------
    path
        The folder of the array.
    name
        The same from the parent of the dataset on, with slashes.
    dtype, shape, chunk_shape, attributes
        Those of the array.
    chunks
        For each chunk the name of its file in the folder, its offset and its size.
    dims
        Names of the axes, if the array is a column of a table. All columns have the
        same name for the axis of the rows.
    rest
        The plain bytes of a last chunk that is short, which is none of `chunks`.

    Raises
    ------
    UsageError
        If no reader of Zarr can read the chunks.
    FormatError
        If a file is damaged or missing.
    """

    def __init__(self, layout: ArrayLayout, top: str) -> None:
        folder = layout.folder
        self.path = folder.path()
        self.name = "/".join([os.path.basename(top), *folder.prefix.split("/")[:-1]])
        if not isinstance(layout, BcolzArray):
            raise _unfit(self.path, OTHER_LAYOUT)
        if layout.dtype == OBJECT:
            raise _unfit(self.path, "its items are Python objects")
        self.dtype: DType = layout.dtype
        self.shape = layout.shape
        self.chunk_shape = layout.chunks
        self.attributes: JsonObject = layout.read_attributes()
        self.dims: list[str] | None = None
        row = math.prod(self.shape[1:]) * self.dtype.itemsize
        rows = layout.chunks[0]
        nchunks = -(-self.shape[0] // rows)
        find = partial(_extent, layout._source, full=rows * row)
        self.chunks = [
            found for number in range(nchunks) if (found := find(number)) is not None
        ]
        missing = nchunks - len(self.chunks)
        if missing > 1 or (missing and find(nchunks - 1) is not None):
            raise DamageError(
                "a chunk in front of the last one is short",
                section="chunks",
                filename=self.path,
            )
        self.rest = b""
        if missing:
            first = len(self.chunks) * rows
            self.rest = layout.reader.get(slice(first, None)).tobytes()


def _extent(
    source: FileChunks, number: int, *, full: int
) -> tuple[str, int, int] | None:
    """Return file, offset and size of a chunk; None if it has less than `full` bytes.

    Raises `UsageError` if no reader of Zarr can read it.
    """
    path, name = source.path_of(number), source.names(number)
    try:
        chunk = source.read_chunk(number, HEADER.size + BLOSC_HEADER_LENGTH)
        header, size = decode_header(chunk), source.folder.size(name)
        if HEADER.size + header.ctbytes > size or header.nbytes > full:
            raise DamageError(
                "expected a chunk of at most '%d' plain bytes in '%d' bytes, found one "
                "of '%d' in '%d'"
                % (full, size - HEADER.size, header.nbytes, header.ctbytes)
            )
    except FormatError as error:
        error.locate(number, HEADER.size)
        error.filename = path
        raise
    if header.nbytes < full:
        return None
    if header.codec not in read_by("zarr"):
        raise _unfit(path, "no Zarr reader has its codec, " + header.codec)
    return name, HEADER.size, header.ctbytes


def _unfit(path: str, why: str) -> UsageError:
    return UsageError("'%s' can't be referenced: %s" % (path, why))


class DatasetInPlace:
    """The arrays of a dataset by name; an array that is no column has an empty name.

    ``attributes`` are the attributes of a table; None for an array.
    """

    def __init__(self, path: Path) -> None:
        without_url(path, "reading a dataset in place")
        folder = Folder.open(path)
        if folder.pending.files:
            raise _unfit(
                folder.root,
                "a change of it was interrupted: open it with the mode 'r+' once",
            )
        dataset = detect(folder)
        if dataset.layout not in LAYOUTS:
            raise _unfit(folder.root, REASONS.get(dataset.layout, OTHER_LAYOUT))
        self.attributes: JsonObject | None = None
        if dataset.kind != "table":
            found: dict[str, ArrayLayout] = {"": array_class(dataset.layout)(folder)}
        else:
            table = table_class(dataset.layout)(folder)
            found, self.attributes = table.columns, table.read_attributes()
            if len({column.shape[0] for column in found.values()}) > 1:
                raise _unfit(
                    folder.root,
                    "its columns have different lengths: open it with the mode 'r+' "
                    "once",
                )
        self.arrays = {
            name: ArrayInPlace(array, folder.root) for name, array in found.items()
        }
        for name, array in self.arrays.items():
            if self.attributes is not None:
                others = range(1, len(array.shape))
                array.dims = ["row", *("%s_%d" % (name, i) for i in others)]
