"""Changes of an array at a URL: whole objects, and ``zarr.json`` last.

Strategy: a change begins with a claim: ``zarr.json`` is stored again, with a new token,
if it is still the one that was read. Then each shard is stored if it is still the one
that the change found, and at the end ``zarr.json``, if it still has the token. So two
writers at once can't damage the array: the second claim ends the first change. This
needs a store that compares versions, such as S3. With others, only one program may
write.
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
from contextlib import contextmanager, suppress

from .._format.zarr_metadata import ZARR_JSON, encode_json
from .._storage.upload import check_writable
from ..exceptions import StorageError, UsageError, UsageValueError
from .change import Change, UnfinishedFile
from .url_folder import UrlFolder
from .writer import Writer

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .._storage.protocols import StorageOptions

# The key of ``zarr.json`` with the token of the last writer, which readers ignore.
CLAIM = "bloscpack_writer"


class UrlChange(Change):
    """New objects of an array at a URL.

    Parameters
    ----------
    folder
        The folder of the array.
    version
        The version of ``zarr.json``; '' for a new array.
    """

    def __init__(self, folder: UrlFolder, version: str) -> None:
        super().__init__(folder)
        self._at = folder
        self._versions = {ZARR_JSON: version}
        self._contents: dict[str, bytes] = {}

    def make_folder(self, name: str) -> None:
        """Do nothing: a store has no folders."""

    def begin(self, name: str) -> UnfinishedFile:
        """Return a temporary file for a new object."""
        self._versions[name] = self._at.object_version(name)
        # The file is closed by `finish` or `abandon`.
        fp: Any = tempfile.TemporaryFile()  # noqa: SIM115
        return UnfinishedFile(name, name, fp)

    def finish(self, file: UnfinishedFile, *, at_once: bool) -> None:
        """Store an object, or let `commit` do it."""
        with file.fp as fp:
            fp.seek(0)
            content = fp.read()
        if at_once:
            self._put(file.name, content)
        else:
            self._contents[file.name] = content

    def abandon(self, *files: UnfinishedFile) -> None:
        """Close files."""
        for file in files:
            with suppress(OSError):
                file.fp.close()

    def stage(self, name: str, content: bytes) -> None:
        """Store an object when the change is committed."""
        if name != ZARR_JSON:
            self._versions[name] = self._at.object_version(name)
        self._contents[name] = content

    def write(self, name: str, content: bytes) -> None:
        """Store an object at once."""
        self._versions[name] = self._at.object_version(name)
        self._put(name, content)

    def remove(self, name: str) -> None:
        """Refuse: arrays only replace objects."""
        raise NotImplementedError

    def _put(self, name: str, content: bytes) -> None:
        self._versions[name] = self._at.put(name, content, self._versions[name])

    def commit(self) -> None:
        """Store the staged objects, and ``zarr.json`` last."""
        document = self._contents.pop(ZARR_JSON, None)
        for name, content in self._contents.items():
            self._put(name, content)
        self._contents.clear()
        if document is not None:
            self._put(ZARR_JSON, with_claim(document))  # commit point

    @property
    def version(self) -> str:
        """The version of ``zarr.json`` now."""
        return self._versions[ZARR_JSON]


def with_claim(content: bytes) -> bytes:
    """Return a document with a new token: it has another version than before."""
    document = json.loads(content)
    document[CLAIM] = {"must_understand": False, "token": os.urandom(8).hex()}
    return encode_json(document)


class UrlWriter(Writer):
    """An array at a URL that is open for changes."""

    _folder: UrlFolder

    def __init__(self, folder: UrlFolder) -> None:
        check_writable(folder.root)
        self._folder = folder
        self._failed = self.closed = False
        self._locks = []
        self._version = folder.object_version(ZARR_JSON)

    @contextmanager
    def change(self) -> Iterator[Change]:
        """Yield a change, which is committed when the block ends without an error."""
        folder = self._folder
        if self.closed:
            raise UsageValueError("the dataset is closed: '%s'" % folder.root)
        if self._failed:
            raise StorageError(
                errno.EIO, "an earlier change failed: open it again", folder.root
            )
        self._failed = True
        claim = with_claim(folder.read(ZARR_JSON))
        self._version = folder.put(ZARR_JSON, claim, self._version)
        change = UrlChange(folder, self._version)
        try:
            yield change
        except (UsageError, ValueError, TypeError):  # the values do not fit
            self._failed = False
            raise
        change.commit()
        self._version = change.version
        self._failed = False

    def close(self) -> None:
        """Allow no more changes."""
        self.closed = True


@contextmanager
def creating_at_url(
    url: str, mode: str, storage_options: StorageOptions | None
) -> Iterator[Change]:
    """Yield a change that creates an array, which is there when the block ends."""
    check_writable(url)
    folder = UrlFolder(url, storage_options=storage_options)
    if mode != "x":
        raise UsageValueError(
            "an array at a URL can't be replaced: remove '%s' first" % folder.root
        )
    if folder.object_version(ZARR_JSON):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), folder.root)
    change = UrlChange(folder, "")
    yield change
    change.commit()
