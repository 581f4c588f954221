"""Check what is at a path, ``bloscpack.verify(path)``: report every rule it breaks.

A file is an array file, any other Bloscpack file, or an archive of `savez`. A folder is
a dataset or a BigFile tree. Damage never raises an error. A file of another format, or
one that can't be read, does.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from ._check.files import Inspection
from ._check.findings import Finding, Report
from ._commit.snapshot import read_snapshot
from ._compat import make_callable
from ._engine.blosc_settings import own_settings
from ._file.archive_reading import is_archive
from ._loop import effective_nthreads
from ._storage.base import Storage
from ._storage.paths import is_url, local_path, shown_name
from ._storage.protocols import Path, Readable, StorageOptions
from ._storage.stream import positional
from .abstract_io import Progress

__all__ = ["Finding", "Report", "verify", "verify_fp"]


def verify_fp(
    fp: Readable | Storage,
    *,
    nthreads: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Check a file of any layout, or an archive, from the position of a file object on.

    All bytes are read, and every chunk is decompressed. After a damaged chunk, the
    check goes on at the next intact one. The file object is left at its end. One that
    can't seek, like a pipe, is copied to a temporary file first.

    Parameters
    ----------
    fp
        A file object open for reading, or a `Storage` such as `Reader` takes.
    nthreads
        The number of threads, None for the default; see `bloscpack.abstract_io.pack`.
    progress
        Called, as in `bloscpack.abstract_io.pack`, with the plain bytes of each intact
        chunk found. A damaged file may be searched more than once.

    Raises
    ------
    NotReadable, Unsupported
        The bytes are not a Bloscpack file, or have an unknown layout.
    UsageError
        They are an archive whose members another program has compressed or encrypted.
    """
    count = effective_nthreads(nthreads, None)
    with positional(fp) as storage, own_settings:
        if is_archive(storage):
            from ._check.archives import report_on_archive

            return report_on_archive(storage, count, progress)
        return Inspection(storage, count, progress).report


def checker_of_folder(path: Path) -> Callable[..., Report] | None:
    """Return the function that checks the folder `path`, None if it is no folder."""
    name = local_path(os.fspath(path))
    if is_url(name) or not os.path.isdir(name):
        return None
    from . import bigfile, dataset
    from .dataset.conversion.bigfile_trees import is_tree

    if dataset.find(path) is None and is_tree(os.fsdecode(name)):
        return bigfile.verify
    return dataset.verify


def verify(
    path: Path,
    *,
    nthreads: int | None = None,
    progress: Progress | None = None,
    storage_options: StorageOptions | None = None,
) -> Report:
    """Check the file `path`; see `verify_fp` for the settings and the errors.

    If an append to the file is in progress or was interrupted, the file is checked as
    it was before that append. `storage_options` are settings of fsspec for a URL, such
    as keys.

    The folder of a dataset is checked by `bloscpack.dataset.verify`, and a BigFile tree
    by `bloscpack.bigfile.verify`. They return reports with more attributes.
    """
    checker = checker_of_folder(path)
    if checker is not None:
        return checker(path, nthreads=nthreads, progress=progress)
    report = read_snapshot(
        path,
        lambda fp, _: verify_fp(fp, nthreads=nthreads, progress=progress),
        storage_options=storage_options,
    )
    report.filename = shown_name(path)
    return report


make_callable(__name__)
