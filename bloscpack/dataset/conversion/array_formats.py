"""Arrays in files: ``.npy`` and ``.blp``, one array, ``.npz``, a ZIP archive of arrays.

Strategy: the items are read and written in the order of the file, in blocks. Only of an
array in Fortran order whose rows are needed, pieces of all columns are read for each
block; a member of an archive is copied to a temporary file for that. Files are read,
not mapped: another program may shorten them.

ZIP files of other programs are read by the module `zipfile`. Its errors become ours,
with the name of the file. The size that a directory states is compared with the stored
bytes before anything is allocated.
"""

from __future__ import annotations

import math
import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import chain, islice
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import IO, Any

import numpy

from ..._engine.forks import cached_property
from ..._format.dtypes import Array
from ..._format.names import is_safe_part
from ..._format.zarr_metadata import ZARR_JSON
from ..._format.zip_format import MAX_NAME
from ..._storage.base import Storage, naming_errors, read_up_to, write_all
from ..._storage.local import whole_file
from ..._storage.zip_store import check_local, open_zip, opened_member, zip_errors
from ..._types import Json, JsonObject, Writable
from ...abstract_io import PlainSource
from ...args import PACK_SETTINGS, known_settings
from ...constants import MAGIC
from ...defaults import DEFAULT_CHUNK_SIZE
from ...exceptions import DamageError, NotReadable, UsageValueError
from ...file_io import CompressedFPSink
from ...lazy_array import LazyArray, open_ndarray
from ...npy_io import check_size, encode_header, read_header, without_items
from ...numpy_io import pack_items
from ...zip_io import ArrayArchive, loadz
from ..layouts import check_depth
from ..layouts.base import NewArray
from ..rows import RowStream
from .contents import (
    NO_NAMES,
    Content,
    Members,
    Request,
    Rows,
    array_stream,
    nodes_of,
    rows_in_block,
)

# Opens a member of an archive.
Open = Callable[[], AbstractContextManager[IO[bytes]]]
# Number of bytes of whole columns that are read at a time, to take a few rows of them.
COLUMNS_NBYTES = 32 * 2**20
# Pieces of columns of at least this size in bytes are read one by one.
PIECE_NBYTES = 4096
# Maximum number of bytes of a temporary file for each stored byte: that of deflate.
MAX_RATIO = 1032
# The length of an axis that the size of the file tells.
UNKNOWN_LENGTH = -1
# The end of the names of the members of an archive.
SUFFIX = ".npy"
# The name of the attribute for metadata that are no JSON object.
METADATA = "metadata"


BYTE = numpy.dtype("u1")


# Reading


class FileItems:
    """The items of an array behind an offset of a file, read by slices of rows.

    For an array in Fortran order, a slice of the last axis is read in one piece.
    """

    def __init__(
        self, open_: Callable[[], Storage], array: Array, offset: int, name: str
    ) -> None:
        self._open, self._array, self._offset, self._name = open_, array, offset, name

    @cached_property
    def _storage(self) -> Storage:
        return self._open()

    def _fill(self, items: Array, first: int) -> None:
        """Fill a contiguous array with the items from number `first` on."""
        view = plain_bytes(items)
        if view.nbytes:
            offset = self._offset + first * items.itemsize
            _check_room(self._name, view.nbytes, self._storage.read_into(view, offset))

    def __getitem__(self, key: Any) -> Array:
        dtype, shape = self._array.dtype, self._array.shape
        if key is Ellipsis:
            items: Array = numpy.empty(shape, dtype)
            self._fill(items, 0)
            return items
        if isinstance(key, tuple):
            start, stop, _ = key[1].indices(shape[-1])
            items = numpy.empty((*shape[:-1], stop - start), dtype, order="F")
            self._fill(items.T, start * math.prod(shape[:-1]))
            return items
        start, stop, step = key.indices(shape[0])
        row, count = math.prod(shape[1:]), max(0, stop - start)
        if not _is_fortran(self._array):
            items = numpy.empty((count, *shape[1:]), dtype)
            self._fill(items, start * row)
            return items[::step]
        items = numpy.empty((count, *shape[1:]), dtype, order="F")
        columns = items.reshape((count, row), order="F")
        is_whole = count * dtype.itemsize < PIECE_NBYTES
        width = COLUMNS_NBYTES // (shape[0] * dtype.itemsize) if is_whole else 1
        for first in range(0, row, max(1, width)):
            part = columns[:, first : first + max(1, width)]
            if is_whole:
                some: Array = numpy.empty((part.shape[1], shape[0]), dtype)
                self._fill(some, first * shape[0])
                part[...] = some.T[start:stop]
            else:
                self._fill(part.T, first * shape[0] + start)
        return items[::step]


def _is_fortran(array: Array) -> bool:
    return array.flags.f_contiguous and not array.flags.c_contiguous


def _check_room(name: str, expected: int, found: int) -> None:
    """Raise `FormatError` unless a file has the bytes of items."""
    if found < expected:
        raise DamageError(
            "the file ends too early: expected '%d' bytes of items, found '%d'"
            % (expected, found),
            filename=name,
        )


def read_npy(path: str, request: Request) -> Rows:
    """Return the array in a ``.npy`` file."""
    fp = request.resources.enter_context(open(path, "rb"))  # noqa: SIM115
    with naming_errors(path):
        array = read_header(fp)
        check_size(fp, array, os.fstat(fp.fileno()).st_size)
    return _in_file(fp, array, fp.tell(), path)


def _in_file(fp: IO[bytes], array: Array, offset: int, path: str) -> Rows:
    """Return the items behind an offset of an open file."""
    items = FileItems(partial(whole_file, fp), array, offset, path)
    order = "F" if _is_fortran(array) else "C"
    return Rows(array.dtype, array.shape, items, order=order)


def read_raw(path: str, request: Request) -> Rows:
    """Return the items in a file without a header; the request has type and shape."""
    assert request.raw is not None
    dtype, shape = request.raw
    size = os.path.getsize(path)
    row = math.prod(n for n in shape if n != UNKNOWN_LENGTH) * dtype.itemsize
    if max(row, *shape, 0) > sys.maxsize or (UNKNOWN_LENGTH in shape and not row):
        raise UsageValueError(
            "no array of dtype '%s' has the shape %s" % (dtype, shape)
        )
    if UNKNOWN_LENGTH in shape:
        shape = tuple(size // row if n == UNKNOWN_LENGTH else n for n in shape)
    if math.prod(shape) * dtype.itemsize != size:
        raise UsageValueError(
            "'%s': expected %s'%d' bytes for dtype '%s' and shape %s, found '%d'"
            % (
                *(path, "a multiple of " * (UNKNOWN_LENGTH in request.raw[1]), row),
                *(dtype, request.raw[1], size),
            )
        )
    fp = request.resources.enter_context(open(path, "rb"))  # noqa: SIM115
    return _in_file(fp, without_items(dtype, shape, False), 0, path)


def read_npz(path: str, request: Request) -> Members:
    """Return the arrays in a ``.npz`` file; a slash in a name separates groups."""
    archive = request.resources.enter_context(open_zip(path))
    fp = request.resources.enter_context(open(path, "rb"))  # noqa: SIM115
    storage, root = whole_file(fp), Members({})
    for info in archive.infolist():
        if info.filename.endswith("/"):
            continue
        if not request.wants(*info.filename.removesuffix(SUFFIX).split("/")):
            continue
        name = "%s/%s" % (path, info.filename)
        if not info.filename.endswith(SUFFIX):
            raise NotReadable(
                "expected a ZIP file of arrays, whose members end with '%s', found the "
                "member '%s'" % (SUFFIX, info.filename),
                filename=path,
            )
        with zip_errors(name), naming_errors(name):
            check_local(storage, info)
        open_ = partial(_member, archive, info, name)
        with open_() as member, naming_errors(name):
            array = read_header(member)
            check_size(member, array, info.file_size)
            offset = member.tell()
        rows = Rows(array.dtype, array.shape)
        if _is_fortran(array):
            if info.file_size > info.compress_size * MAX_RATIO:
                raise UsageValueError(
                    "'%s': '%d' stored bytes become '%d' bytes of an array in Fortran "
                    "order, which needs a temporary file: expected at most '%d' times "
                    "as many" % (name, info.compress_size, info.file_size, MAX_RATIO)
                )
            copied = partial(_copied, open_, request)
            rows.array, rows.order = FileItems(copied, array, offset, name), "F"
        else:
            read = partial(_items_in_order, open_, offset, name, array)
            rows.array = array_stream(read, rows)
        add_member(root, info.filename.removesuffix(SUFFIX), rows, path)
    return root


@contextmanager
def _member(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str
) -> Iterator[IO[bytes]]:
    """Yield a member of an archive; the errors about its bytes name it."""
    with zip_errors(name), opened_member(archive, info) as fp:
        yield fp


def _copied(open_: Open, request: Request) -> Storage:
    """Return a member of an archive as a temporary file."""
    fp = request.resources.enter_context(TemporaryFile())  # noqa: SIM115
    with open_() as member:
        copyfileobj(member, fp, 2**20)
    fp.flush()
    return whole_file(fp)


def _items_in_order(
    open_: Open, offset: int, name: str, array: Array
) -> Iterator[Array]:
    """Yield blocks of rows, whose items follow one another in a member."""
    dtype, shape = array.dtype, array.shape
    with open_() as fp, naming_errors(name):
        fp.read(offset)  # after a seek, `zipfile` of Python 3.13 checks no CRC
        row = math.prod(shape[1:]) * dtype.itemsize
        length = shape[0] if shape else 1
        step = rows_in_block(row)
        for start in range(0, max(1, length), step):
            count = min(step, length - start)
            data = read_up_to(fp, count * row)
            _check_room(name, count * row, len(data))
            block = (count, *shape[1:]) if shape else ()
            yield numpy.ndarray(block, dtype, data or bytes(1))


def has_own_files(path: str) -> bool:
    """Return whether a ZIP store seems to be an archive of `savez`, perhaps damaged."""
    with open_zip(path) as archive, zip_errors(path):
        for name in archive.namelist():
            if not name.endswith((ZARR_JSON, "/")):
                with opened_member(archive, name) as fp:
                    return fp.read(len(MAGIC)) == MAGIC
    return False


def read_archive(path: str, request: Request) -> Members:
    """Return the arrays in an archive of `savez`; slashes in names separate groups."""
    archive = request.resources.enter_context(loadz(path, nthreads=request.nthreads))
    attrs = archive.metadata
    root = Members({}, attrs if isinstance(attrs, dict) else {})
    names = [name for name in archive.files if request.wants(*name.split("/"))]
    add_arrays(root, archive, names, path)
    return root


def add_arrays(
    root: Members, archive: ArrayArchive, names: list[str], path: str
) -> None:
    """Add some arrays of an archive to a group; they may be lost."""
    for name in names:
        content = content_of(archive[name])
        content.may_be_lost = True
        add_member(root, name, content, path)


def add_member(root: Members, name: str, content: Content, path: str) -> None:
    """Add a member to the group that its name says, which is made if needed."""
    *groups, last = name.split("/")
    check_depth(path, len(groups))
    group = root
    for part in groups:
        inner = group.members.setdefault(part, Members({}))
        if not isinstance(inner, Members):
            raise UsageValueError(
                "'%s': the array '%s' would be in another array" % (path, name)
            )
        group = inner
    if not all(map(is_safe_part, (*groups, last))):
        raise UsageValueError("'%s': the name '%s' can't be used" % (path, name))
    if last in group.members:
        raise UsageValueError("'%s': two members have the name '%s'" % (path, name))
    group.members[last] = content


def read_blp(path: str, request: Request) -> Rows:
    """Return the array in a file, with its metadata as attributes."""
    lazy = open_ndarray(path, nthreads=request.nthreads)
    return content_of(request.resources.enter_context(lazy))


def content_of(lazy: LazyArray) -> Rows:
    """Return an array in a file, with its metadata as attributes."""
    attrs = attributes_of(lazy.metadata)
    return Rows(lazy.dtype, lazy.shape, lazy, attrs, order=lazy.order)


def attributes_of(metadata: Json) -> JsonObject:
    """Return metadata as attributes; `_metadata` is the inverse."""
    if metadata is None:
        return {}
    return metadata if isinstance(metadata, dict) else {METADATA: metadata}


def _metadata(attrs: JsonObject) -> Json:
    """Return the metadata for attributes; `attributes_of` is the inverse."""
    if list(attrs) == [METADATA] and not isinstance(attrs[METADATA], dict):
        return attrs[METADATA]
    return attrs or None


# Writing


def check_name(name: str, kind: str, request: Request) -> None:
    """Accept any name of a field."""


def check_name_npz(name: str, kind: str, request: Request) -> None:
    """Raise `UsageError` for a name that is a path, or no name of a file."""
    if not is_safe_part(name):
        raise UsageValueError(
            "a ZIP file of arrays can't have the name %.200r, in which '/' would "
            "separate folders" % name
        )


def write_npy(content: Rows, request: Request) -> None:
    """Write an array, or a table as an array with fields."""
    with request.new_file() as out_fp:
        _write_array(out_fp, content, request)


def write_npz(content: Content, request: Request) -> None:
    """Write arrays and columns; an array without a name is called ``arr_0``."""
    with request.new_file() as out_fp, zipfile.ZipFile(out_fp, "w") as archive:
        for name, node in nodes_of(content):
            if name and node.kind == "group" and not node.members:
                request.note_loss("the group '%s', which has no members" % name)
            if not isinstance(node, Rows) or node.columns:
                continue
            member_name = (name or NO_NAMES["npz"]) + SUFFIX
            if len(member_name.encode(errors="surrogatepass")) > MAX_NAME:
                raise UsageValueError(
                    "a name in a ZIP file has at most '%d' bytes, found %.100r"
                    % (MAX_NAME, name)
                )
            with archive.open(member_name, "w", force_zip64=True) as member:
                _write_array(member, node, request)


def _write_array(out_fp: Writable, array: Rows, request: Request) -> None:
    """Write header and items to a file object."""
    header = without_items(array.dtype, array.shape, array.fortran)
    write_all(out_fp, encode_header(header))
    for block in request.counted(array.stored()):
        write_all(out_fp, plain_bytes(block))


def plain_bytes(block: Array) -> memoryview:
    """Return the bytes of the items, in C order."""
    if not block.nbytes:
        return memoryview(b"")
    return numpy.ascontiguousarray(block).reshape(-1).view(BYTE).data


class BlocksSource(PlainSource):
    """Yields the bytes of blocks of items, cut into chunks."""

    def __init__(self, blocks: Iterator[Array]) -> None:
        parts = (numpy.frombuffer(plain_bytes(block), BYTE) for block in blocks)
        self._bytes = RowStream(parts, BYTE, ())

    def __iter__(self) -> Iterator[memoryview]:
        for start, stop in self.spans():
            yield self._bytes.take(stop - start).data


def write_blp(content: Rows, request: Request) -> None:
    """Write an array, or a table as an array with fields; attributes are metadata.

    Unless the user gives settings, they fit the first block, as in new datasets.
    """
    blocks = request.counted(content.stored())
    first = list(islice(blocks, 1))
    sample = first[0] if first else None
    new = NewArray(
        content.dtype, content.shape, settings=request.settings, sample=sample
    )
    given = known_settings(new.settings, PACK_SETTINGS)
    fitted = {} if new.data is None else new.usual_settings
    with request.new_file() as out_fp:
        pack_items(
            BlocksSource(chain(first, blocks)),
            CompressedFPSink(out_fp),
            without_items(content.dtype, content.shape, content.fortran),
            DEFAULT_CHUNK_SIZE,
            None,
            None,
            None,
            metadata=_metadata(content.attrs),
            nthreads=request.nthreads,
            **{**fitted, **given},
        )
