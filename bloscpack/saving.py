"""Save arrays with settings that fit them, and load them: ``save`` and ``load``.

One array becomes an array file, several an archive of `savez`. `load` reads both, and
returns what was saved.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Literal, overload

from numpy.typing import ArrayLike

from ._commit.replacing import replacing
from ._file.archive import ArchiveSettings
from ._format.dtypes import exact_array
from ._format.other_formats import CALLS, ZIP
from ._format.shard import row_nbytes
from ._storage.base import Storage, refuse_text, releasing_views
from ._storage.paths import check_ending, check_is_path
from ._types import Buffer, Json, Path, Seekable, StorageOptions, Writable
from .args import AnyLimits, LoopKeywords
from .constants import EXTENSION
from .exceptions import NotReadable, UsageTypeError, UsageValueError
from .file_io import CompressedFPSink, CompressedFPSource, is_seekable
from .lazy_array import open_ndarray
from .numpy_io import (
    as_shard,
    pack_ndarray,
    storable,
    unpack_ndarray,
    unpack_ndarray_from_file,
)
from .serializers import user_metadata
from .zip_io import load_arrays, loadz, write_arrays

if TYPE_CHECKING:
    from typing_extensions import Unpack


class SaveKeywords(LoopKeywords, total=False):
    """The settings of `save`."""

    chunk_size: int | str
    chunks: int | Sequence[int]


# The size in bytes of a row from which an array is no shard, whose chunks are whole
# rows: such chunks would be longer than the longest that `auto` chooses.
LONG_ROW = 8 * 2**20
# The least size in bytes of a chunk, for arrays that begin with a few rows and grow.
SHORTEST_CHUNK = 4 * 2**10


def save(
    file: Path | Writable,
    arrays: ArrayLike | Mapping[str, ArrayLike],
    *,
    metadata: object = None,
    auto: bool | str = True,
    sync: bool | None = None,
    storage_options: StorageOptions | None = None,
    **settings: Unpack[SaveKeywords],
) -> None:
    """Save an array, or several by name, with settings that fit the data.

    `load` returns what was saved. The file of one array is an array file, and a shard
    of Zarr if the array can be one. The file of a dictionary of arrays is an archive,
    which `loadz` opens without reading all arrays, and Zarr as a group.

    Parameters
    ----------
    file
        The file to write: a path, a URL, or a binary file object. A path appears when
        the file is complete. No extension is added to the name: ``.blp`` is usual for
        one array, and ``.zip`` for several. Extensions of other formats are refused,
        such as ``.npy``. One array in a pipe or another file object that can't seek is
        no shard.
    arrays
        An array, or anything that `numpy.asanyarray` makes one of; or a dictionary of
        arrays by name.
    metadata
        Any value that JSON can represent; for several arrays a dictionary.
    auto
        The goal of the settings, ``'speed'``, ``'balanced'`` or ``'ratio'``, as in
        `BloscArgs.auto`. True means ``'balanced'``, and False the default settings.
    sync
        As in `pack_file_to_file`.
    storage_options
        Settings of fsspec for a URL, such as keys.
    settings
        Settings that stay as they are: keywords of `pack_ndarray_to_file` such as
        ``clevel``, ``chunks``, ``nthreads`` or ``progress``. The checksum is
        ``'crc32c'`` for a shard, which releases up to 0.16.0 can't read.

    Raises
    ------
    ObjectNumpyArrayRejection
        An array contains Python objects.
    UsageError
        An array is masked, a name can't be used, or a setting is invalid.

    Examples
    --------
    >>> import numpy
    >>> prices = numpy.round(numpy.linspace(20, 30, 10_000), 2)
    >>> save('prices.blp', prices, metadata={'unit': 'EUR'})
    >>> bool((load('prices.blp') == prices).all())
    True
    >>> save('two.zip', {'prices': prices, 'days': numpy.arange(10_000)})
    >>> sorted(load('two.zip'))
    ['days', 'prices']
    """
    check_is_path(file, "save(file, array)", or_object=True)
    how: dict[str, Any] = {"sync": sync, "storage_options": storage_options}
    checked = ArchiveSettings({**settings, **how, "auto": auto})
    if isinstance(arrays, Mapping):
        if metadata is not None and not isinstance(metadata, dict):
            raise UsageTypeError(
                "the metadata of several arrays must be a dictionary, not %r"
                % type(metadata).__name__
            )
        write_arrays(file, arrays, checked, metadata)
        return
    calls = CALLS | {".zip": "bloscpack.save(file, {'name': array})"}
    check_ending(file, "save writes a Bloscpack file", EXTENSION, calls)
    try:
        array = exact_array(arrays)
    except UsageValueError as error:
        if not isinstance(arrays, (list, tuple)):
            raise
        raise UsageValueError("%s; several arrays need names: {...}" % error) from error
    array, packing = storable(array), checked.packing
    opened: AbstractContextManager[Any] = nullcontext(file)
    if isinstance(file, (str, bytes, os.PathLike)):
        opened = replacing(file, **how)
    with opened as fp:
        # A shard has an offset table, which is written at the end.
        if is_seekable(fp) and (row_nbytes(array) < LONG_ROW or "chunks" in packing):
            array, packing = as_shard(array, packing, SHORTEST_CHUNK)
        pack_ndarray(array, CompressedFPSink(fp), metadata=metadata, **packing)


@overload
def load(
    file: Path | Seekable | Buffer | Storage,
    *,
    return_metadata: Literal[False] = False,
    nthreads: int | None = None,
    limits: AnyLimits | None = None,
    storage_options: StorageOptions | None = None,
) -> Any: ...


@overload
def load(
    file: Path | Seekable | Buffer | Storage,
    *,
    return_metadata: Literal[True],
    nthreads: int | None = None,
    limits: AnyLimits | None = None,
    storage_options: StorageOptions | None = None,
) -> tuple[Any, Json]: ...


@releasing_views
def load(
    file: Path | Seekable | Buffer | Storage,
    *,
    return_metadata: bool = False,
    nthreads: int | None = None,
    limits: AnyLimits | None = None,
    storage_options: StorageOptions | None = None,
) -> Any:
    """Return the array in a file, or a mapping of the arrays in an archive.

    The arrays are new and writable. `open_ndarray` and `loadz` read parts of arrays.

    An array in an archive is read when it is first used, and damage is found then. The
    archive is closed when all arrays have been read, by ``close``, and when nothing
    refers to the mapping. From a file object or a buffer, all arrays are read at once,
    into a dictionary unless one is damaged.

    Parameters
    ----------
    file
        A path, a URL, a binary file object that can seek, or a buffer with the bytes of
        the file. A file object stays open. An array is read from its position on, which
        is behind the array afterwards: several that were saved one after the other are
        loaded in the same order. One archive may follow them; it ends the file.
    return_metadata
        Whether to return a pair: the array or arrays, and the metadata of the file,
        None if it has none.
    nthreads
        Number of threads, by default the number of CPUs that this process may use.
    limits
        The sizes that the file, or each array of an archive, must not exceed; see
        `Limits`.
    storage_options
        Settings of fsspec for a URL, such as keys.

    Raises
    ------
    NotANumpyArray
        The file holds bytes and no array.
    FormatError
        The file is damaged, exceeds the limits, or has another format.

    Examples
    --------
    >>> import numpy
    >>> save('seconds.blp', numpy.arange(3), metadata={'unit': 's'})
    >>> load('seconds.blp', return_metadata=True)
    (array([0, 1, 2]), {'unit': 's'})
    """
    options: dict[str, Any] = {
        "nthreads": nthreads,
        "limits": limits,
        "storage_options": storage_options,
    }
    fp: Any = file if hasattr(file, "read") and not _is_buffer(file) else None
    begin = fp.tell() if fp is not None and is_seekable(fp) else 0
    try:
        pair: tuple[Any, Json]
        if fp is not None:
            refuse_text(fp)
            source = CompressedFPSource(fp, limits=limits)
            array = unpack_ndarray(source, nthreads=nthreads)
            if source.input_fp is not fp:  # an undo record ends the file
                fp.seek(0, os.SEEK_END)
            else:
                source.move_to_end()
            pair = array, user_metadata(source.metadata)
        elif isinstance(file, (str, os.PathLike)):
            pair = unpack_ndarray_from_file(file, return_metadata=True, **options)
        else:
            with open_ndarray(file, cache_nbytes=0, whole=True, **options) as lazy:
                pair = lazy.read(), lazy.metadata
    except IsADirectoryError as error:
        error.strerror = "It is a folder: bloscpack.dataset.open reads a dataset"
        raise
    except NotReadable as error:
        if fp is not None and not (error.prefix or b"").startswith(ZIP[:2]):
            raise  # loadz finds an archive from the end of the file, at any position
        archive = None
        with suppress(NotReadable):
            archive = loadz(file, **options)
        if archive is None:
            raise
        metadata = archive.metadata  # loading all arrays may close the archive
        pair = load_arrays(archive, begin), metadata
        if fp is not None:
            fp.seek(0, os.SEEK_END)
    return pair if return_metadata else pair[0]


def _is_buffer(file: object) -> bool:
    """Return whether the bytes of an object are in memory, as those of `mmap`."""
    try:
        memoryview(file)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True
