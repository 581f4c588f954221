"""New files at URLs, which appear complete or not at all.

Contract: `uploading` yields a file object that can be written and sought like a new
local file. S3 gets the parts while they are made: the object appears with the request
that completes the upload. Other places get a temporary file in one step at the end.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager

from ..exceptions import UsageError
from .file_systems import ErrorNames, find_file_system
from .urls import MARK

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO

    from .protocols import StorageOptions

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
    if url.partition(MARK)[0].lower() in READ_ONLY:
        raise UsageError("'%s' can't be written: HTTP is for reading" % names.name)
    fs, path = find_file_system(url, dict(storage_options or {}), names)
    if exclusive:
        _check_free(fs, path, names)
    if any(_name_of(kind) == "s3fs.core.S3FileSystem" for kind in type(fs).__mro__):
        from .s3 import PartsFile

        parts = PartsFile(fs, path, names)
        try:
            yield parts  # type: ignore[misc]
            if exclusive:
                _check_free(fs, path, names)
            parts.complete()
        except BaseException:
            parts.abort()
            raise
        return
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "new")
        with open(name, "w+b") as spool:
            yield spool
        if exclusive:
            _check_free(fs, path, names)
        with names.translating():
            fs.put_file(name, path)


def _check_free(fs: Any, path: str, names: ErrorNames) -> None:
    """Raise `FileExistsError` if something is stored under a path."""
    with names.translating():
        fs.invalidate_cache()
        exists = fs.exists(path)
    if exists:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), names.name)


def _name_of(kind: type) -> str:
    return "%s.%s" % (kind.__module__, kind.__name__)
