"""Objects in a store with the interface of S3: single requests, and uploads in parts.

Strategy: the client of s3fs makes the requests, and repeats those that the store
refuses for a time. Every response is compared with the version of the object, because
some stores ignore conditions.
"""

from __future__ import annotations

import errno
import io
import os
from contextlib import suppress
from typing import Any

from ..exceptions import BloscpackError, StorageError
from .file_systems import ErrorNames, status_of
from .http_session import MAX_UNANNOUNCED
from .places import Place
from .protocols import Buffer

# Minimum size in bytes of a part of an upload to S3, except for the last.
PART_SIZE = 8 * 2**20
# Memory in bytes for a name in a listing, besides its characters.
ENTRY_SIZE = 512
# What a page of a listing counts for, so that empty pages have an end, too.
PAGE_SIZE = 2**18
# S3 takes 10000 parts; later parts are larger, so that a file may have 5 TiB.
PARTS_OF_A_SIZE = 1000


class S3Place(Place):
    """An object in a store with the interface of S3, by the client of s3fs."""

    _etag = ""

    async def _probe(self) -> tuple[int, tuple[str, ...]]:
        info = await self.fs._info(self.path, refresh=True)
        self._etag = info.get("ETag") or ""
        return self._judge_info(info)

    async def fetch(self, start: int, stop: int) -> bytes:
        bucket, key, version_id = self.fs.split_path(self.path)
        settings = {"Range": "bytes=%d-%d" % (start, stop - 1)}
        if self._etag:
            settings["IfMatch"] = self._etag
        if version_id:
            settings["VersionId"] = version_id
        try:
            response = await self.fs._call_s3(
                "get_object", Bucket=bucket, Key=key, **settings
            )
        except OSError as error:
            if status_of(error) in (412, 416):
                changed = True
            else:
                raise
        else:
            changed = bool(self._etag) and response.get("ETag") != self._etag
        if changed:
            raise self._changed()
        body = response["Body"]
        try:
            if response.get("ContentLength", 0) > stop - start:
                raise self._ignores_ranges()
            data = bytearray()
            # Without a length the body may have no end: one byte too many is enough.
            while block := await body.read(stop - start + 1 - len(data)):
                data += block
                if len(data) > stop - start:
                    raise self._ignores_ranges()
        finally:
            body.close()
        self._check_length(len(data), stop - start)
        return bytes(data)


async def list_objects(
    fs: Any, path: str, recursive: bool, names: ErrorNames
) -> list[dict[str, Any]]:
    """Return what is below a path: objects, and folders unless it is `recursive`.

    Raises `StorageError` if the listing needs more memory than the longest may: it has
    no end then.
    """
    bucket, key, _ = fs.split_path(path)
    prefix = key.strip("/") + "/" if key.strip("/") else ""
    settings = {"Bucket": bucket, "Prefix": prefix, **fs.req_kw}
    if not recursive:
        settings["Delimiter"] = "/"
    found: list[dict[str, Any]] = []
    size = 0
    while True:
        begin = len(found)
        page = await fs._call_s3("list_objects_v2", **settings)
        for folder in page.get("CommonPrefixes", ()):
            found.append(_entry(bucket, folder["Prefix"][:-1], "directory", {}))
        for item in page.get("Contents", ()):
            found.append(_entry(bucket, item["Key"], "file", item))
        size += PAGE_SIZE + sum(ENTRY_SIZE + len(e["name"]) for e in found[begin:])
        if not page.get("IsTruncated"):
            return found
        token = page.get("NextContinuationToken")
        if token in (None, settings.get("ContinuationToken")):
            text = "the server sends the same part of a listing again and again"
            raise names.error(errno.EIO, text)
        if size > MAX_UNANNOUNCED:
            text = "the server lists more than '%d' names, and more follow"
            raise names.error(errno.EFBIG, text % len(found))
        settings["ContinuationToken"] = token


def _entry(bucket: str, key: str, kind: str, item: dict[str, Any]) -> dict[str, Any]:
    """Return an object or a folder as fsspec describes it."""
    kept: dict[str, Any] = {
        name: item[name] for name in ("ETag", "LastModified") if name in item
    }
    name = "%s/%s" % (bucket, key)
    return {"name": name, "type": kind, "size": item.get("Size", 0), **kept}


class PartsFile(io.RawIOBase):
    """A new object in S3, of which parts are sent while it is written.

    The first part is kept and sent last, because the header and the offset table in it
    are completed at the end. It ends with the end of a write, so that a table is never
    divided. Only bytes in the first part may be overwritten.
    """

    def __init__(self, fs: Any, path: str, names: ErrorNames) -> None:
        self._fs = fs
        self._names = names
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

    def tell(self) -> int:
        """Return the position."""
        return self._position

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
                self._names.name,
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
            parts = sorted(
                self._sent, key=lambda part: str(part["PartNumber"]).zfill(6)
            )
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
            "upload_part",
            UploadId=self._upload_id,
            PartNumber=number,
            Body=bytes(data),
        )
        self._sent.append({"PartNumber": number, "ETag": answer["ETag"]})

    def _call(self, method: str, **fields: object) -> Any:
        with self._names.translating():
            return self._fs.call_s3(
                method, Bucket=self._bucket, Key=self._key, **fields
            )
