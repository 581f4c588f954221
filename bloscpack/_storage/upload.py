"""New files at URLs, which appear complete or not at all.

Contract: `uploading` yields a temporary file, which is sent when it is complete. S3
gets a large file in parts: the object appears with the request that completes them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from .._engine.forks import Owner
from .._engine.threads import in_thread
from .._types import StorageOptions
from ..exceptions import UsageError
from .file_systems import Location
from .paths import public_name, taken_error
from .urls import scheme_of

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

READ_ONLY = ("http", "https")


@contextmanager
def uploading(
    url: str, storage_options: StorageOptions | None = None, exclusive: bool = False
) -> Iterator[BinaryIO]:
    """Yield a file object whose content is stored at a URL when the block ends.

    If the block raises an error, nothing is stored, and an object that was there
    before is unchanged. With `exclusive`, nothing may be at the URL, now and at the end
    of the block; a program that stores an object just then is not noticed.
    """
    location = Location(url, storage_options)
    check_writable(url)
    fs, path = location.find()
    if exclusive:
        _check_free(fs, path, location)
    import shutil
    import tempfile

    owner = Owner()
    # No `TemporaryDirectory`: a child process would remove it when it ends.
    folder = tempfile.mkdtemp()
    try:
        spool = open(os.path.join(folder, "new"), "w+b")  # noqa: SIM115
        try:
            yield spool
        finally:
            owner.close_file(spool)
        owner.check(location.name)
        if exclusive:
            _check_free(fs, path, location)
        with location.translating():
            in_thread(fs.put_file)(spool.name, path)
    finally:
        if owner.is_here:
            shutil.rmtree(folder, ignore_errors=True)


def check_writable(url: str) -> None:
    """Raise `UsageError` if nothing can be stored at a URL."""
    if scheme_of(url) in READ_ONLY:
        raise UsageError(
            "'%s' can't be written: HTTP is for reading" % public_name(url)
        )


def _check_free(fs: AbstractFileSystem, path: str, location: Location) -> None:
    """Raise `FileExistsError` if something is stored under a path."""
    with location.translating():
        fs.invalidate_cache()
        exists = in_thread(fs.exists)(path)
    if exists:
        raise taken_error(location.name)
