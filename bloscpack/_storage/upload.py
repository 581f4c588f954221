"""New files at URLs, which appear complete or not at all.

Contract: `uploading` yields a file object that can be written and sought like a new
local file. S3 gets the parts while they are made: the object appears with the request
that completes the upload. Other storages get a temporary file in one step at the end.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Any, BinaryIO

from .._engine.forks import Owner
from .._types import Buffer, StorageOptions
from ..exceptions import BloscpackError, StorageError, UsageError
from .file_systems import Location, is_s3
from .paths import public_name
from .urls import scheme_of

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

READ_ONLY = ("http", "https")
# Minimum size in bytes of a part of an upload to S3, except for the last.
PART_SIZE = 8 * 2**20
# S3 takes 10000 parts; later parts are larger, so that a file may have 5 TiB.
PARTS_OF_A_SIZE = 1000


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
    owner = Owner()
    if is_s3(fs):
        parts = PartsFile(fs, path, location)
        try:
            yield parts  # type: ignore[misc]
            owner.check(location.name)
            if exclusive:
                _check_free(fs, path, location)
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
        owner.check(location.name)
        if exclusive:
            _check_free(fs, path, location)
        with location.translating():
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


def _check_free(fs: AbstractFileSystem, path: str, location: Location) -> None:
    """Raise `FileExistsError` if something is stored under a path."""
    with location.translating():
        fs.invalidate_cache()
        exists = fs.exists(path)
    if exists:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), location.name)


class PartsFile(io.RawIOBase):
    """A new object in S3, of which parts are sent while it is written.

    The first part is kept and sent last, because the header and the offset table in it
    are completed at the end. It ends with the end of a write, so that a table is never
    divided. Only bytes in the first part may be overwritten.
    """

    def __init__(self, fs: AbstractFileSystem, path: str, location: Location) -> None:
        self._fs = fs
        self._location = location
        self._bucket, self._key, _ = fs.split_path(path)
        self._first = bytearray()
        self._first_is_full = False
        self._part = bytearray()
        self._sent: list[dict[str, object]] = []
        self._upload_id = ""
        self._position = 0
        self._size = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to another position, in bytes, and return it."""
        bases = {os.SEEK_CUR: self._position, os.SEEK_END: self._size}
        self._position = offset + bases.get(whence, 0)
        return self._position

    def write(self, data: Buffer) -> int:  # type: ignore[override]
        """Write all of `data`; return the number of bytes."""
        count = len(data)
        stop = self._position + count
        if self._position == self._size:
            self._append(data)
            self._size = stop
        elif stop <= len(self._first):
            self._first[self._position : stop] = data
        else:
            raise StorageError(
                errno.ESPIPE,
                "the metadata are too long: bytes behind the first part of an upload "
                "can't be changed",
                self._location.name,
            )
        self._position = stop
        return count

    def insert(self, data: Buffer, offset: int) -> None:
        """Insert bytes at an offset in the first part; all that follows moves."""
        self._first[offset:offset] = data
        self._size += len(data)

    def _append(self, data: Buffer) -> None:
        if not self._first_is_full:
            self._first += data
            self._first_is_full = len(self._first) >= PART_SIZE
            return
        self._part += data
        if len(self._part) >= PART_SIZE * (1 + len(self._sent) // PARTS_OF_A_SIZE):
            self._send(len(self._sent) + 2, self._part)
            self._part = bytearray()

    def complete(self) -> None:
        """Store the object: this is the commit point."""
        if not self._sent and not self._part:
            self._call("put_object", Body=bytes(self._first))
        else:
            if self._part:
                self._send(len(self._sent) + 2, self._part)
            self._send(1, self._first)
            parts = sorted(self._sent, key=itemgetter("PartNumber"))
            self._call(
                "complete_multipart_upload",
                UploadId=self._upload_id,
                MultipartUpload={"Parts": parts},
            )
        self._upload_id = ""
        self._fs.invalidate_cache()

    def abort(self) -> None:
        """Remove the parts that have been sent."""
        if self._upload_id:
            with suppress(BloscpackError):  # the first error is the one to report
                self._call("abort_multipart_upload", UploadId=self._upload_id)

    def _send(self, number: int, data: bytearray) -> None:
        if not self._upload_id:
            self._upload_id = self._call("create_multipart_upload")["UploadId"]
        answer = self._call(
            "upload_part", UploadId=self._upload_id, PartNumber=number, Body=bytes(data)
        )
        self._sent.append({"PartNumber": number, "ETag": answer["ETag"]})

    def _call(self, method: str, **fields: object) -> Any:
        with self._location.translating():
            return self._fs.call_s3(
                method, Bucket=self._bucket, Key=self._key, **fields
            )
