"""Append to a file, ``bloscpack.append(file, new)``, and replace its metadata.

Each function opens and locks its file, or takes a file object, and hands it to
``_file/appending``, which changes it: after a failure the file has its old bytes.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from ._commit.locking import open_locked
from ._commit.replacing import check_distinct
from ._commit.undo import changeable
from ._compat import make_callable, sibling_names
from ._file import appending
from ._format.append_plan import UNCHANGED as UNCHANGED
from ._format.dtypes import Array
from ._storage.base import MemoryStorage, StorageFile, naming_errors, releasing_views
from ._storage.paths import without_url
from ._storage.stream import seekable_with_size
from ._types import BinaryFile, Buffer, Json, Path, Readable
from .abstract_io import Progress
from .args import AnyBloscArgs, BloscKeywords
from .constants import NPY_MAGIC
from .exceptions import NoMetadataFound, UsageError, UsageTypeError
from .serializers import is_array

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ContentKeywords(BloscKeywords, total=False):
    """The keywords of `append_fp`; `append_from` documents them."""

    auto: bool | str
    metadata: object
    nthreads: int | None
    progress: Progress | None
    expect: Callable[[int], object] | None
    needs_offsets: bool


class AppendKeywords(ContentKeywords, total=False):
    """The keywords of the functions that append to a file with a name."""

    grow: bool
    sync: bool
    wait: float


PATH_TYPES = (str, bytes, os.PathLike)


def append_fp(
    original_fp: BinaryFile,
    new_content_fp: Readable,
    new_size: int,
    blosc_args: AnyBloscArgs | None = None,
    **keywords: Unpack[ContentKeywords],
) -> int:
    """Append bytes of one file object to the compressed file in another.

    The last chunk is filled up and compressed again. An array grows along its first
    axis, and the shape in its metadata with it. The result is the number of chunks that
    the file has gained. After an error the file has its old bytes.

    Parameters
    ----------
    original_fp
        The compressed file, opened for reading and writing. It is used from its
        beginning and left at its end.
    new_content_fp
        The plain bytes, from its current position on.
    new_size
        The number of bytes to append.
    blosc_args
        The settings of the written chunks, or a dictionary of their fields. A type size
        of None, also the default, means the type size of the file.
    metadata
        Replaces the metadata, in the space reserved for it. By default it stays
        unchanged. In an array file these are the metadata of the user, as in
        `rewrite_metadata_fp`.
    nthreads, progress
        As in `bloscpack.abstract_io.pack`.
    expect
        As in `append_from`.
    needs_offsets
        Whether to refuse a file without an offset table, as release 0.16 did. With
        False, such a file is appended to as well.
    settings
        Fields of `BloscArgs` as keywords, such as ``clevel=9``; and ``auto``, as in
        `bloscpack.file_io.pack_file_to_file`, with the new content as the sample.

    Raises
    ------
    FormatError
        The file is damaged.
    UsageError
        The file has no offset table or no free entry in it, the metadata does not fit,
        the new bytes are not whole rows of the array, or another file follows.
    StorageError
        The new content has fewer than `new_size` bytes.

    Examples
    --------
    >>> import io, bloscpack
    >>> fp = io.BytesIO(bloscpack.pack_bytes_to_bytes(b'abc'))
    >>> append_fp(fp, io.BytesIO(b'def'), 3)
    0
    >>> bloscpack.unpack_bytes_from_bytes(fp.getvalue())
    (b'abcdef', None)
    """
    with changeable(original_fp) as target:
        keywords.setdefault("needs_offsets", True)
        how = appending.AppendSettings(blosc_args, **keywords)
        return appending.append_chunks(target, new_content_fp, new_size, how)


def rewrite_metadata_fp(fp: BinaryFile, metadata: object) -> None:
    """Replace the metadata of the file in a file object.

    Parameters
    ----------
    fp
        The compressed file, opened for reading and writing. It is used from its
        beginning.
    metadata
        The new metadata: any value that JSON can represent. It is stored in the space
        reserved for metadata; the chunks stay where they are. In an array file these
        are the metadata of the user, which None removes; dtype, shape and order stay. A
        value that is the complete metadata of an array replaces all metadata.

    Raises
    ------
    NoMetadataFound
        The file has no metadata section.
    NoChangeInMetadata
        The new metadata is equal to the old metadata.
    MetadataSectionTooSmall
        The new metadata needs more than the reserved space.
    FormatError
        The file is damaged, or the new shape of an array does not fit its data.
    """
    with changeable(fp) as target:
        appending.replace_metadata(target, metadata)


def rewrite_metadata(
    path: Path, metadata: object, *, sync: bool = True, grow: bool = False
) -> None:
    """Replace the metadata of a file.

    Whatever interrupts it, the file has either the old metadata or the new metadata
    (docs/durability.rst).

    Parameters
    ----------
    path
        The compressed file.
    metadata
        The new metadata, as in `rewrite_metadata_fp`, whose errors are also raised.
        With `grow`, None adds no section to a file without one, and removes a section
        that has too little room for it.
    sync
        As in `append`.
    grow
        Whether to rewrite the whole file, as `bloscpack.repack` does, if it has no
        metadata section or too little room for the new metadata. Otherwise the section
        is changed in place. Without `grow` these two cases are errors.
    """
    with naming_errors(path), open_locked(path, sync) as locked_file:
        appending.rewrite_or_grow(locked_file, metadata, grow)


def change_metadata(
    path: Path,
    change: Callable[[Json], object],
    *,
    sync: bool = True,
    grow: bool = False,
) -> None:
    """Replace the metadata of a file by the result of a function.

    The file is locked while `change` runs, so that no other writer can change the
    metadata in between.

    Parameters
    ----------
    path
        The compressed file.
    change
        Called with the old metadata, which include the description of an array;
        returns the new metadata, as in `rewrite_metadata_fp`, or UNCHANGED to leave the
        file unchanged. An error that it raises is passed on.
    sync
        As in `append`. The errors are those of `rewrite_metadata_fp`.
    grow
        Whether to rewrite the file if it has no metadata section, in which case
        `change` is called with None, or too small a one.
    """
    with naming_errors(path), open_locked(path, sync) as locked_file:
        beginning = appending.read_sections(locked_file)
        if beginning.metadata_header is None and not grow:
            raise NoMetadataFound("the file has no metadata section")
        metadata = change(beginning.metadata)
        if metadata is not UNCHANGED:
            appending.rewrite_or_grow(locked_file, metadata, grow)


def append(
    orig_file: Path,
    new_file: Path,
    blosc_args: AnyBloscArgs | None = None,
    **settings: Unpack[AppendKeywords],
) -> None:
    """Append the bytes of a file to a compressed file.

    Whatever interrupts it, `orig_file` has either its old bytes or all of the new bytes
    (docs/durability.rst).

    Parameters
    ----------
    orig_file
        The compressed file.
    new_file
        The file, or pipe, with the plain bytes.
    blosc_args
        As in `append_fp`.
    settings
        The keywords of `append_from`: ``metadata``, ``nthreads``, ``sync``, ``wait``,
        ``progress``, ``expect``, ``grow``, ``needs_offsets``, and the fields of
        `BloscArgs`. As in release 0.16, the default of ``grow`` is False, and without
        it a file needs an offset table. The other functions that append to a file with
        a name grow it by default.

    Raises
    ------
    StorageError
        Another writer is changing `orig_file`. All other errors are those of
        `append_fp`.
    """
    settings.setdefault("grow", False)
    settings.setdefault("needs_offsets", not settings["grow"])
    check_distinct(new_file, orig_file)
    without_url(new_file, "appending")
    with open(new_file, "rb") as fp, seekable_with_size(fp) as (new_fp, size):
        start = new_fp.tell()
        is_npy = new_fp.read(len(NPY_MAGIC)) == NPY_MAGIC
        new_fp.seek(start)

        def accept(metadata: Json) -> None:
            if is_npy and is_array(metadata):
                error = UsageError(
                    "it is a .npy file, whose bytes are no items of the array in '%s': "
                    "append_ndarray_to_file(numpy.load(...), ...) appends its rows"
                    % os.fsdecode(orig_file)
                )
                error.filename = os.fsdecode(new_file)
                raise error

        append_from(orig_file, new_fp, size, blosc_args, accept=accept, **settings)


def append_from(
    orig_file: Path,
    new_content_fp: Readable,
    new_size: int,
    blosc_args: AnyBloscArgs | None = None,
    *,
    accept: Callable[[Json], object] | None = None,
    sync: bool = True,
    grow: bool = True,
    wait: float = 0,
    **keywords: Unpack[ContentKeywords],
) -> None:
    """Append bytes of a file object to a compressed file.

    Parameters
    ----------
    orig_file
        The compressed file.
    new_content_fp, new_size, blosc_args, metadata, nthreads, progress, settings
        As in `append_fp`.
    needs_offsets
        As in `append_fp`; the default is False.
    accept
        Called with the metadata of the file before anything is changed. It may raise an
        error to refuse the append.
    sync
        Whether the change also survives a crash of the machine. False saves the time to
        write to the disk.
    expect
        Called before `progress`, with the total of the numbers that `progress` will be
        called with.
    grow
        Whether to rewrite a file that has no room for the new chunks or the metadata: a
        new file with more room, and with the new bytes, replaces it. If the offset
        table is too short, chunks of less than 64 KiB become larger then, unless the
        array has chunks of every axis. `progress` is then called with the old chunks
        too.
    wait
        For how many seconds to wait while another writer is changing the file.

    Raises
    ------
    StorageError
        Another writer is changing `orig_file`. All other errors are those of
        `append_fp`.
    """
    locking = open_locked(orig_file, sync, wait=wait)
    with naming_errors(orig_file), locking as locked_file:
        how = appending.AppendSettings(blosc_args, accept=accept, **keywords)
        appending.append_locked(locked_file, new_content_fp, new_size, how, grow)


@releasing_views
def append_bytes_to_file(
    bytes_: Buffer,
    out_file: Path,
    blosc_args: AnyBloscArgs | None = None,
    **settings: Unpack[AppendKeywords],
) -> None:
    """Append a buffer to a compressed file.

    All bytes of the buffer are appended, whatever the size of its items. Whatever
    interrupts it, the file has either its old bytes or all of the new bytes
    (docs/durability.rst).

    Parameters
    ----------
    bytes_
        The plain bytes.
    out_file
        The compressed file.
    blosc_args, settings
        As in `append`, and so are the errors.

    Examples
    --------
    >>> import bloscpack
    >>> bloscpack.pack_bytes_to_file(b'abc', 'letters.blp')
    >>> append_bytes_to_file(b'def', 'letters.blp')
    >>> bloscpack.unpack_bytes_from_file('letters.blp')
    (b'abcdef', None)
    """
    usage = "append_bytes_to_file(bytes_, out_file)"
    try:
        content, size = _reader_of(bytes_)
    except TypeError as error:  # it is no buffer
        raise _wrong_type("bytes_", "bytes or another buffer", bytes_, usage) from error
    if not isinstance(out_file, PATH_TYPES):
        raise _wrong_type("out_file", "a path", out_file, usage)
    append_from(out_file, content, size, blosc_args, **settings)


def append_ndarray_to_file(
    ndarray: Array,
    filename: Path,
    blosc_args: AnyBloscArgs | None = None,
    **settings: Unpack[AppendKeywords],
) -> None:
    """Append the rows of an array to an array file.

    The array in the file grows along its first axis. Whatever interrupts it, the file
    has either its old rows or all of the new rows (docs/durability.rst).

    Parameters
    ----------
    ndarray
        The rows. Dtype, byte order and all axes but the first must be those of the
        array in the file.
    filename
        The array file.
    blosc_args, settings
        As in `append`.

    Raises
    ------
    DoesNotFit
        The arrays differ in dtype, byte order or an axis other than the first, or the
        array in the file has several axes in Fortran order. Nothing has been changed.
    NotANumpyArray
        The file holds no array. All other errors are those of `append`.

    Examples
    --------
    >>> import bloscpack, numpy
    >>> bloscpack.pack_ndarray_to_file(numpy.zeros((5, 3)), 'rows.blp')
    >>> append_ndarray_to_file(numpy.ones((2, 3)), 'rows.blp')
    >>> bloscpack.unpack_ndarray_from_file('rows.blp').shape
    (7, 3)
    """
    from ._format.array_metadata import check_rows
    from ._format.dtypes import encode_dtype
    from .numpy_io import storable

    usage = "append_ndarray_to_file(ndarray, filename)"
    if isinstance(ndarray, PATH_TYPES):
        raise _wrong_type("ndarray", "a NumPy array", ndarray, usage)
    if not isinstance(filename, PATH_TYPES):
        raise _wrong_type("filename", "a path", filename, usage)
    if "accept" in settings:
        raise UsageTypeError("append_ndarray_to_file checks the rows: omit 'accept'")
    rows = storable(ndarray, order="C")
    encode_dtype(rows.dtype)  # rejects dtypes that can't be stored, such as objects
    plain = rows.reshape(-1).view("u1").data if rows.nbytes else b""
    content, size = _reader_of(plain)
    append_from(
        filename,
        content,
        size,
        blosc_args,
        accept=lambda metadata: check_rows(metadata, rows),
        **settings,
    )


def _wrong_type(name: str, wanted: str, value: object, usage: str) -> UsageTypeError:
    """Return the error for an argument; `usage` shows the order of the arguments."""
    return UsageTypeError(
        "'%s' must be %s, not '%s': %s" % (name, wanted, type(value).__name__, usage)
    )


def _reader_of(buffer: Buffer) -> tuple[io.BufferedReader, int]:
    """Return a file object that reads a buffer without copying it, and its size."""
    storage = MemoryStorage(buffer)
    return io.BufferedReader(StorageFile(storage)), storage.size


# Names kept from 0.16

_rewrite_metadata_fp = rewrite_metadata_fp

__getattr__ = sibling_names(__name__)
make_callable(__name__)
