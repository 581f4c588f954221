"""Check what is at a path, ``bloscpack.verify(path)``: report every rule it breaks.

A file is an array file, any other Bloscpack file, or an archive of `savez`. A folder is
a dataset or a BigFile tree. Damage never raises an error. A file of another format, or
one that can't be read, does.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from ._check.files import Inspection
from ._check.findings import ANOTHER, Finding, Report
from ._commit.snapshot import read_snapshot
from ._compat import make_callable
from ._engine.blosc_settings import own_settings
from ._storage.base import PartStorage, Storage
from ._storage.paths import is_url, local_path, shown_name
from ._storage.stream import positional
from ._storage.urls import path_of
from ._types import Path, Readable, StorageOptions
from .abstract_io import Progress, effective_nthreads
from .constants import EXTENSION, MAGIC
from .exceptions import FormatError, StorageError

# Errors of a URL that names no file, but perhaps a folder.
NO_FILE = (errno.ENOENT, errno.EISDIR, errno.EACCES, errno.ENOTSUP)

__all__ = ["Finding", "Report", "verify", "verify_fp"]


def verify_fp(
    fp: Readable | Storage,
    *,
    nthreads: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Check a file of any version or an archive from the position of a file object on.

    All bytes are read, and every chunk is decompressed. After a damaged chunk, the
    check goes on at the next intact one. Packed files that follow behind the last chunk
    are checked too: see `Report.following`. The file object is left at its end. One
    that can't seek, like a pipe, is copied to a temporary file first.

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
        The bytes are not a Bloscpack file, or have an unknown version.
    UsageError
        They are an archive whose members another program has compressed or encrypted.
    """
    count = effective_nthreads(nthreads, None)
    with positional(fp) as storage, own_settings:
        if storage.read_at(0, len(MAGIC)) != MAGIC:
            from ._file.archive import is_archive

            if is_archive(storage):
                from ._check.archives import report_on_archive

                return report_on_archive(storage, count, progress)
        report = Inspection(storage, count, progress).report
        part, following = report, []
        while (start := _start_behind(part)) is not None:
            rest = PartStorage(storage, start, storage.size)
            part = Inspection(rest, count, progress).report
            part.start = start
            part.findings = [finding.moved(start) for finding in part.findings]
            following.append(part)
        report.following = following or None
        return report


def _start_behind(report: Report) -> int | None:
    """Return where another packed file begins behind the last chunk, if any."""
    return next((f.offset for f in report.findings if f.kind == ANOTHER), None)


def checker_of_folder(
    path: Path, storage_options: StorageOptions | None = None
) -> Callable[..., Report] | None:
    """Return the function that checks the folder `path`, None if it is no folder.

    A URL is a folder if it names a dataset.
    """
    name = local_path(os.fspath(path))
    if not (
        is_dataset_at(name, storage_options) if is_url(name) else os.path.isdir(name)
    ):
        return None
    from . import bigfile, dataset
    from .dataset.conversion.bigfile_trees import is_tree

    if is_url(name) or dataset.find(path) is not None:
        return dataset.verify
    return bigfile.verify if is_tree(os.fsdecode(name)) else dataset.verify


def is_dataset_at(url: str, storage_options: StorageOptions | None = None) -> bool:
    """Return whether a URL names a dataset, and not a file.

    A server may send the same bytes for any name: a `.blp` file is recognized first. If
    the server does not answer, opening the URL as a file raises the error.
    """
    if path_of(url).endswith(EXTENSION):
        return False
    from ._storage.remote import RemoteStorage

    try:
        with RemoteStorage(url, storage_options=storage_options) as storage:
            if storage.read_at(0, len(MAGIC)) == MAGIC:
                return False
    except StorageError as error:
        if error.errno not in NO_FILE:
            return False
    from . import dataset

    try:
        return dataset.find(url, storage_options=storage_options) is not None
    except (FormatError, StorageError):
        return False


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

    The folder or URL of a dataset is checked by `bloscpack.dataset.verify`, and a
    BigFile tree by `bloscpack.bigfile.verify`. They return reports with more
    attributes.
    """
    checker = checker_of_folder(path, storage_options)
    if checker is not None:
        remote = {"storage_options": storage_options} if is_url(path) else {}
        return checker(path, nthreads=nthreads, progress=progress, **remote)

    report = read_snapshot(
        path,
        lambda fp, _: verify_fp(fp, nthreads=nthreads, progress=progress),
        storage_options=storage_options,
        undo=False,  # a damaged undo record is a finding
    )
    report.filename = shown_name(path)
    return report


make_callable(__name__)
