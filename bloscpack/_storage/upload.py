"""New files at URLs, which appear complete or not at all.

Contract: `uploading` yields a file object that can be written and sought like a new
local file. S3 gets the parts while they are made: the object appears with the request
that completes the upload. Other places get a temporary file in one step at the end.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from .._engine.forks import Owner
from ..exceptions import UsageError
from .file_systems import ErrorNames, find_file_system, is_s3
from .paths import public_name
from .protocols import StorageOptions
from .urls import scheme_of

READ_ONLY = ("http", "https")


@contextmanager
def uploading(
    url: str,
    storage_options: StorageOptions | None = None,
    exclusive: bool = False,
) -> Iterator[BinaryIO]:
    """Yield a file object whose content is stored at a URL when the block ends.

    If the block raises an error, nothing is stored, and an object that was there
    before is unchanged. With `exclusive`, nothing may be at the URL, now and at the end
    of the block; a program that stores an object just then is not noticed.
    """
    names = ErrorNames(url, storage_options)
    check_writable(url)
    fs, path = find_file_system(url, dict(storage_options or {}), names)
    if exclusive:
        _check_free(fs, path, names)
    owner = Owner()
    if is_s3(fs):
        from .s3 import PartsFile

        parts = PartsFile(fs, path, names)
        try:
            yield parts  # type: ignore[misc]
            owner.check(names.name)
            if exclusive:
                _check_free(fs, path, names)
            parts.complete()
        except BaseException:
            if owner.is_here:
                parts.abort()
            raise
        return
    import shutil
    import tempfile

    # No `TemporaryDirectory`: a child process would remove it when it ends.
    folder = tempfile.mkdtemp()
    try:
        spool = open(os.path.join(folder, "new"), "w+b")  # noqa: SIM115
        try:
            yield spool
        finally:
            owner.close_file(spool)
        owner.check(names.name)
        if exclusive:
            _check_free(fs, path, names)
        with names.translating():
            fs.put_file(spool.name, path)
    finally:
        if owner.is_here:
            shutil.rmtree(folder, ignore_errors=True)


def check_writable(url: str) -> None:
    """Raise `UsageError` if nothing can be stored at a URL."""
    if scheme_of(url) in READ_ONLY:
        raise UsageError(
            "'%s' can't be written: HTTP is for reading" % public_name(url)
        )


def _check_free(fs: Any, path: str, names: ErrorNames) -> None:
    """Raise `FileExistsError` if something is stored under a path."""
    with names.translating():
        fs.invalidate_cache()
        exists = fs.exists(path)
    if exists:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), names.name)
