"""Rewrite a file with other settings: a new file replaces it in one step.

``_file/repacking`` plans the new file and writes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ._commit.locking import open_locked
from ._file.repacking import RepackKeywords
from ._file.repacking import Settings as Settings
from ._file.repacking import repack_fp as repack_fp
from ._format.append_plan import UNCHANGED as UNCHANGED
from ._storage.base import naming_errors
from ._types import Path
from .abstract_io import Progress

if TYPE_CHECKING:
    from typing_extensions import Unpack


def repack(
    path: Path,
    *,
    nthreads: int | None = None,
    sync: bool = True,
    progress: Progress | None = None,
    expect: Callable[[int], object] | None = None,
    **settings: Unpack[RepackKeywords],
) -> None:
    """Rewrite a file with other settings.

    What no setting changes stays the same: the plain bytes, the metadata, owner and
    access of the file. A file of an old version gets the current version. Whatever
    interrupts it, the file is either the old one or the new one (docs/durability.rst).

    Parameters
    ----------
    path
        The file to rewrite.
    auto
        True, or a goal: the settings below, and the chunk size, that fit the data are
        chosen by trials on a sample, as `bloscpack.BloscArgs.auto` does; those that are
        given stay.
    typesize, clevel, shuffle, cname
        As in `bloscpack.BloscArgs`. With any of them all chunks are compressed again. A
        file stores no level: by default it is then 7.
    chunk_size
        Plain bytes of a chunk, a number or text such as ``'4M'``.
    chunks
        The length of a chunk along each axis of an array, or a number of rows, as in
        `bloscpack.pack_ndarray_to_file`. By default an array in chunks of every axis
        keeps them.
    checksum, offsets, max_app_chunks
        As in `bloscpack.BloscpackArgs`. A file without an offset table gets one, unless
        ``offsets`` is False. By default there stays room to append as many bytes as
        before.
    metadata
        The new metadata; the file may have none so far. None removes the metadata,
        unlike in functions that pack: without this argument, or with ``UNCHANGED``,
        they stay. In an array file these are the metadata of the user; dtype, shape and
        order of the array stay. A value that is the complete metadata of an array
        replaces all metadata.
    keep_array
        Whether an array file stays an array file, as by default. False drops dtype,
        shape and order: the plain bytes and the metadata of the user stay.
    shard
        True makes an array file a shard of a Zarr v3 array, as
        `bloscpack.pack_ndarray_to_file` does: chunks get whole rows, and the checksum
        is then ``'crc32c'`` by default. False drops the index for Zarr; the checksum
        stays. By default a shard stays one.
    meta_checksum, meta_codec, max_meta_size
        As in `bloscpack.MetadataArgs`, by default as in the file. By default the space
        for metadata grows only if new metadata need more.
    nthreads, progress
        As in `bloscpack.abstract_io.pack`.
    sync, expect
        As in `bloscpack.append.append_from`.

    Raises
    ------
    FormatError
        The file is damaged.
    UsageError
        A setting is unknown or invalid, the new metadata describe an array of another
        size, the array can't be a shard, another file follows, or the file has hard
        links.
    StorageError
        Another writer is changing the file.

    Examples
    --------
    >>> import bloscpack
    >>> bloscpack.pack_bytes_to_file(b'abcd' * 1000, 'abcd.blp')
    >>> repack('abcd.blp', cname='zstd', chunk_size='1K', metadata={'unit': 'm'})
    >>> plain, metadata = bloscpack.unpack_bytes_from_file('abcd.blp')
    >>> len(plain), metadata
    (4000, {'unit': 'm'})
    """
    with (
        naming_errors(path),
        open_locked(path, sync) as locked_file,
        locked_file.replacement() as temporary,
    ):
        repack_fp(
            locked_file.fp,
            temporary.fp,
            nthreads=nthreads,
            progress=progress,
            expect=expect,
            **settings,
        )
