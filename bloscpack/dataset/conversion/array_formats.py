"""Arrays in files: ``.npy`` and ``.blp``, one array, ``.npz``, a ZIP archive of arrays.

The items are read and written in the order of the file, in blocks. Only an array in
Fortran order whose rows are needed is read in another order: through a memory map of
small parts, so that little of it is in memory at a time. A member of an archive is
copied to a temporary file for that.

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
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import partial
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import IO, Any

import numpy

from ..._file.archive import ArchiveFile
from ..._format.dtypes import Array, DType
from ..._format.zarr_metadata import ZARR_JSON, group_document
from ..._storage.base import naming_errors, read_up_to, write_all
from ..._storage.disk import disk
from ..._storage.paths import is_safe_part
from ..._storage.zip_store import open_zip, zip_errors
from ..._types import Json, JsonObject, Writable
from ...abstract_io import PlainSource
from ...constants import EXTENSION, MAGIC
from ...defaults import DEFAULT_CHUNK_SIZE
from ...exceptions import BloscpackError, DamageError, NotReadable, UsageValueError
from ...file_io import CompressedFPSink
from ...lazy_array import LazyArray, open_ndarray
from ...npy_io import check_size, encode_header, read_header, without_items
from ...numpy_io import pack_items
from ...zip_io import loadz
from .contents import (
    FORTRAN_FACTOR,
    ArrayContent,
    Content,
    GroupContent,
    Request,
    as_array,
    cut_rows,
    named_arrays,
    rows_in_block,
)

# Opens a file, or a member of an archive.
Open = Callable[[], AbstractContextManager[IO[bytes]]]
# Number of bytes of a memory map at a time.
MAP_NBYTES = 32 * 2**20
# The length of an axis that the size of the file tells.
UNKNOWN_LENGTH = -1
# The end of the names of the members of an archive.
SUFFIX = ".npy"
# The name of the attribute for metadata that are no JSON object.
METADATA = "metadata"


# Reading


def read_npy(path: str, request: Request) -> Content:
    """Return the array in a ``.npy`` file."""
    with naming_errors(path), open(path, "rb") as fp:
        array = read_header(fp)
        check_size(fp, array, os.fstat(fp.fileno()).st_size)
        offset = fp.tell()

    return _mapped(path, array, offset)


class Mapped:
    """The items in a file, mapped for each read: any index reads a part."""

    def __init__(self, path: str, array: Array, offset: int) -> None:
        self._path, self._array, self._offset = path, array, offset

    @property
    def items(self) -> Array:
        """All items, which the system reads when they are needed."""
        items = self._array
        if not items.nbytes:
            return items
        order: Any = "F" if items.flags.fnc else "C"
        shape, dtype = items.shape, items.dtype
        return numpy.memmap(self._path, dtype, "r", self._offset, shape, order)

    def __getitem__(self, key: Any) -> Array:
        return numpy.array(self.items[key])


def read_raw(path: str, request: Request) -> ArrayContent:
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
        length = size // row
        shape = tuple(length if n == UNKNOWN_LENGTH else n for n in shape)
    if math.prod(shape) * dtype.itemsize != size:
        raise UsageValueError(
            "'%s': expected %s'%d' bytes for dtype '%s' and shape %s, found '%d'"
            % (
                *(path, "a multiple of " * (UNKNOWN_LENGTH in request.raw[1]), row),
                *(dtype, request.raw[1], size),
            )
        )
    return _mapped(path, without_items(dtype, shape, False), 0)


def _mapped(path: str, array: Array, offset: int) -> ArrayContent:
    """Return the items behind an offset, which can be read by an index."""
    content = _content(partial(disk.open, path, "rb"), array, offset, path)
    content.array = Mapped(path, array, offset)
    return content


def read_npz(path: str, request: Request) -> Content:
    """Return the arrays in a ``.npz`` file; a slash in a name separates groups."""
    archive = request.resources.enter_context(open_zip(path))
    root = GroupContent({})
    for info in archive.infolist():
        if info.filename.endswith("/"):
            continue
        name = "%s/%s" % (path, info.filename)
        if not info.filename.endswith(SUFFIX):
            raise NotReadable(
                "expected a ZIP file of arrays, whose members end with '%s', found the "
                "member '%s'" % (SUFFIX, info.filename),
                filename=path,
            )
        open_ = partial(_member, archive, info, name)
        with open_() as fp, naming_errors(name):
            array = read_header(fp)
            check_size(fp, array, info.file_size)
            offset = fp.tell()
        content = _content(open_, array, offset, name)
        add_member(root, info.filename.removesuffix(SUFFIX), content, path)
    return root


def is_own_archive(path: str) -> bool:
    """Return whether `savez` has written all that is in a ZIP store of Zarr.

    Each array is in one `.blp` file, perhaps damaged, and only the outermost group has
    attributes.
    """
    try:
        with closing(ArchiveFile(path)) as file:
            for chunks in file.arrays.values():
                ((start, *_),) = file.extents(file.member(chunks))
                if file.storage.read_at(start, len(MAGIC)) != MAGIC:
                    return False
            documents = {
                name.removesuffix(ZARR_JSON).rstrip("/"): file.json(name)
                for name in file.members
                if name.endswith(ZARR_JSON)
            }
            return all(
                not document.get("attributes")
                if name in file.arrays
                else document
                == group_document(None if name else document.get("attributes"))
                for name, document in documents.items()
            )
    except BloscpackError:
        return False


def has_own_files(path: str) -> bool:
    """Return whether a ZIP store seems to be an archive of `savez`, perhaps damaged."""
    with open_zip(path) as archive, zip_errors(path):
        for name in archive.namelist():
            if not name.endswith((ZARR_JSON, "/")):
                with archive.open(name) as fp:
                    return fp.read(len(MAGIC)) == MAGIC
    return False


def read_archive(path: str, request: Request) -> Content:
    """Return the arrays in an archive of `savez`; slashes in names separate groups."""
    archive = request.resources.enter_context(loadz(path, nthreads=request.nthreads))
    with closing(ArchiveFile(path)) as file:
        members = dict(file.arrays)
    attrs = archive.metadata
    root = GroupContent({}, attrs if isinstance(attrs, dict) else {})
    for name, member in members.items():
        content = content_of(archive[name])
        content.may_be_lost = member.endswith(EXTENSION)
        add_member(root, name, content, path)
    return root


def add_member(root: GroupContent, name: str, content: Content, path: str) -> None:
    """Add a member to the group that its name says, which is made if needed."""
    *groups, last = name.split("/")
    group = root
    for part in groups:
        found = group.members.setdefault(part, GroupContent({}))
        if not isinstance(found, GroupContent):
            raise UsageValueError(
                "'%s': the array '%s' would be in another array" % (path, name)
            )
        group = found
    if not all(map(is_safe_part, (*groups, last))):
        raise UsageValueError("'%s': the name '%s' can't be used" % (path, name))
    if last in group.members:
        raise UsageValueError("'%s': two members have the name '%s'" % (path, name))
    group.members[last] = content


@contextmanager
def _member(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str
) -> Iterator[IO[bytes]]:
    """Yield a member of an archive; the errors about its bytes name it."""
    with zip_errors(name), archive.open(info) as fp:
        yield fp


def _content(open_: Open, array: Array, offset: int, name: str) -> ArrayContent:
    """Return the items behind an offset; `array` has their type, shape and order."""
    dtype, shape = array.dtype, array.shape
    in_order = partial(_items_in_order, open_, offset, name, dtype)
    flags = array.flags
    if flags.c_contiguous or not flags.f_contiguous:
        return ArrayContent(dtype, shape, partial(in_order, shape))
    return ArrayContent(
        dtype,
        shape,
        partial(_rows_of_fortran, open_, offset, dtype, shape),
        read_stored=partial(in_order, shape[::-1]),
    )


def _items_in_order(
    open_: Open, offset: int, name: str, dtype: DType, shape: tuple[int, ...]
) -> Iterator[Array]:
    """Yield blocks of rows of `shape`, whose items follow one another in the file."""
    with open_() as fp, naming_errors(name):
        fp.read(offset)  # after a seek, `zipfile` of Python 3.13 checks no CRC
        row = math.prod(shape[1:]) * dtype.itemsize
        rows = range(shape[0]) if shape else range(1)
        for part in cut_rows(rows, rows_in_block(row)) if row else [rows]:
            found = read_up_to(fp, len(part) * row)
            _check_room(len(part) * row, len(found))
            block = (len(part), *shape[1:]) if shape else ()
            yield numpy.ndarray(block, dtype, found or bytes(1))


def _rows_of_fortran(
    open_: Open, offset: int, dtype: DType, shape: tuple[int, ...]
) -> Iterator[Array]:
    """Yield blocks of rows of an array whose items are in Fortran order."""
    with open_() as fp, ExitStack() as stack:
        file: Any = fp
        if isinstance(fp, zipfile.ZipExtFile):
            file = stack.enter_context(TemporaryFile())
            copyfileobj(fp, file, 2**20)
            file.flush()
        columns = math.prod(shape[1:])
        step = rows_in_block(columns * dtype.itemsize, factor=FORTRAN_FACTOR)
        at_a_time = max(1, MAP_NBYTES // (shape[0] * dtype.itemsize))
        for part in cut_rows(range(shape[0]), step):
            block: Array = numpy.empty((len(part), *shape[1:]), dtype, order="F")
            flat = block.reshape((len(part), columns), order="F")
            for first in range(0, columns, at_a_time):
                # The map of each part is removed, and its pages with it.
                position = offset + first * shape[0] * dtype.itemsize
                size = shape[0], min(at_a_time, columns - first)
                some = numpy.memmap(file, dtype, "r", position, size, "F")
                flat[:, first : first + at_a_time] = some[part.start : part.stop]
                del some
            yield block


def read_blp(path: str, request: Request) -> ArrayContent:
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
        attrs=attributes_of(lazy.metadata),
        read_stored=partial(_rows_of_transpose, lazy) if fortran else None,
        array=lazy,
    )


def _rows_of_transpose(lazy: LazyArray) -> Iterator[Array]:
    """Yield blocks of rows of the transpose of an array."""
    length = lazy.shape[-1]
    step = rows_in_block(lazy.nbytes // max(1, length))
    for start in range(0, length, step):
        yield lazy[..., start : start + step].T


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


def _check_room(expected: int, found: int) -> None:
    """Raise `FormatError` unless a file has the bytes of items."""
    if found < expected:
        raise DamageError(
            "the file ends too early: expected '%d' bytes of items, found '%d'"
            % (expected, found)
        )


# Writing


def write_npy(content: Content, request: Request) -> None:
    """Write an array, or a table as an array with fields."""
    with request.new_file() as out_fp:
        _write_array(out_fp, as_array(content), request)


def _write_array(out_fp: Writable, array: ArrayContent, request: Request) -> None:
    """Write header and items to a file object."""
    header = without_items(array.dtype, array.shape, array.fortran)
    write_all(out_fp, encode_header(header))
    for block in request.counted(array.stored()):
        write_all(out_fp, plain_bytes(block))


def plain_bytes(block: Array) -> memoryview:
    """Return the bytes of the items, in C order."""
    if not block.nbytes:
        return memoryview(b"")
    items: Any = numpy.ascontiguousarray(block).reshape(-1).view("u1")
    return memoryview(items)


def write_npz(content: Content, request: Request) -> None:
    """Write arrays and columns; an array without a name is called ``arr_0``."""
    with request.new_file() as out_fp, zipfile.ZipFile(out_fp, "w") as archive:
        for name, array in named_arrays(content):
            member_name = (name or "arr_0") + SUFFIX
            with archive.open(member_name, "w", force_zip64=True) as member:
                _write_array(member, array, request)


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


def write_blp(content: Content, request: Request) -> None:
    """Write an array, or a table as an array with fields; attributes are metadata."""
    array = as_array(content)
    with request.new_file() as out_fp:
        pack_items(
            BlocksSource(request.counted(array.stored())),
            CompressedFPSink(out_fp),
            without_items(array.dtype, array.shape, array.fortran),
            DEFAULT_CHUNK_SIZE,
            None,
            None,
            None,
            metadata=_metadata(array.attrs),
            nthreads=request.nthreads,
            **request.settings,
        )
