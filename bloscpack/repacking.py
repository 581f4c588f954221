"""Rewrite a file with other settings: a new file replaces it in one step.

The headers of all chunks are read first, which shows the sizes of the chunks and finds
most damage before anything is written. If chunks of the same size with the same
compression are wanted, they are copied byte by byte. Otherwise they are decompressed
and cut again. Either way every digest is verified, and the work is done by all threads,
a few chunks at a time. A file without digests is decompressed to find damage.
"""

from __future__ import annotations

from . import log
from ._crashsafe.locking import open_locked
from ._format.append_plan import UNCHANGED as UNCHANGED
from ._repacking.plan import SETTINGS, Plan, Survey
from ._repacking.writing import write_planned
from ._storage.base import naming_errors
from .abstract_objects import plain_numbers
from .args import refuse_all_but
from .pretty import double_pretty_size

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Unpack

    from ._repacking.plan import Settings as Settings
    from ._storage.protocols import BinaryFile, Path, Writable
    from .abstract_io import Progress

__all__ = ["UNCHANGED", "repack", "repack_fp"]


def repack(
    path: Path,
    *,
    nthreads: int | None = None,
    sync: bool = True,
    progress: Progress | None = None,
    expect: Callable[[int], object] | None = None,
    **settings: Unpack[Settings],
) -> None:
    """Rewrite a file with other settings.

    What no setting changes stays the same: the plain bytes, the metadata, owner and
    access of the file. A file of an old layout gets the current layout. Whatever
    interrupts it, the file is either the old one or the new one (docs/durability.rst).

    Parameters
    ----------
    path
        The file to rewrite.
    typesize, clevel, shuffle, cname
        As in `bloscpack.BloscArgs`. With any of them all chunks are compressed again. A
        file stores no level: by default it is then 7.
    chunk_size
        Plain bytes of a chunk, a number or text such as ``'4M'``.
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
    with naming_errors(path), open_locked(path, sync) as locked_file:
        old_size = locked_file.size
        with locked_file.replacement() as temporary:
            repack_fp(
                locked_file.fp,
                temporary.fp,
                nthreads=nthreads,
                progress=progress,
                expect=expect,
                **settings,
            )
        log.verbose("size before: %s" % double_pretty_size(old_size))
        log.verbose("size after: %s" % double_pretty_size(locked_file.size))


def repack_fp(
    in_fp: BinaryFile,
    out_fp: Writable,
    *,
    nthreads: int | None = None,
    progress: Progress | None = None,
    expect: Callable[[int], object] | None = None,
    **settings: Unpack[Settings],
) -> None:
    """Write the file in one file object with other settings into another.

    Parameters
    ----------
    in_fp
        The file, used from its beginning. It must be able to seek.
    out_fp
        A new file, which is written.
    settings, nthreads, progress, expect
        As in `repack`, and so are the errors.
    """
    refuse_all_but(SETTINGS, settings)
    old = Survey(in_fp)
    # The metadata may be any value, which stays as it is.
    numbers = plain_numbers(item for item in settings.items() if item[0] != "metadata")
    settings.update(numbers)  # type: ignore[typeddict-item]
    plan = Plan(old, settings)
    if expect is not None:
        expect(old.nbytes)
    write_planned(old, plan, in_fp, out_fp, nthreads, progress)
