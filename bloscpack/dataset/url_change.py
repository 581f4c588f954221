"""A change of a dataset at a URL: whole objects, and a commit with a single object.

Strategy: a store can't rename objects, and has no locks. Each object is stored in one
request, if it still has the version that the change has found. The commit point is one
object, the *guard*:

* of an array or a group, ``zarr.json``;
* of a table, ``.bloscpack/journal``, which gets the new documents of all columns.
  Readers that see the journal read these. Then the documents are stored under their
  names, and the journal becomes empty. If the program dies meanwhile, the next writer
  does the rest.

All new objects of data are stored before. Two writers at once can't damage the dataset
if the store compares versions while it stores, as S3 does: a writer stores the guard
with a new token before its first change, and each change of another writer then fails.
With other stores, only one program may write.
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress

from .._format.zarr_metadata import ZARR_JSON, encode_json
from .._storage.upload import Conflict
from .change import Change, UnfinishedFile
from .folder import JOURNAL
from .folder import encode_json as encode_line
from .layouts.identity import KEY, identified, read_identity

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Any, BinaryIO

    from .url_folder import UrlFolder


class UrlChange(Change):
    """New objects of a dataset at a URL, whose guard is ``zarr.json``.

    Parameters
    ----------
    folder
        The folder of the dataset.
    version
        The version of the guard.
    """

    guard = ZARR_JSON

    def __init__(self, folder: UrlFolder, version: str) -> None:
        super().__init__(folder)
        self._at = folder
        self._versions = {self.guard: version}
        self._contents: dict[str, bytes] = {}
        # The shards that are stored by `commit`: their extents in one temporary file. A
        # value that does not fit must be found before the first one is stored.
        self._shards: dict[str, tuple[int, int]] = {}
        self._spool: BinaryIO | None = None

    def make_folder(self, name: str) -> None:
        """Do nothing but check the name: a store has no folders."""
        self._at.path(name)

    def _find_version(self, name: str) -> None:
        """Note the version that an object has before it is stored."""
        if name not in self._versions:
            self._versions[name] = self._at.object_version(name)

    def begin(self, name: str) -> UnfinishedFile:
        """Return a temporary file for a new object."""
        self._find_version(name)
        # After the version is known: a later writer must not have stored the object.
        self._at.check_version(self.guard, self._versions[self.guard])
        return UnfinishedFile(name, name, _temporary_file())

    def finish(self, file: UnfinishedFile, *, at_once: bool) -> None:
        """Store an object, or let `commit` do it."""
        with file.fp as fp:
            fp.seek(0)
            content = fp.read()
        if at_once:
            self._put(file.name, content)
            return
        with self._lock:
            if self._spool is None:
                self._spool = _temporary_file()
            offset = self._spool.seek(0, os.SEEK_END)
            self._spool.write(content)
            self._shards[file.name] = offset, len(content)

    def abandon(self, *files: UnfinishedFile) -> None:
        """Close files."""
        for file in files:
            with suppress(OSError):
                file.fp.close()

    def stage(self, name: str, content: bytes) -> None:
        """Store an object when the change is committed."""
        self._find_version(name)
        self._contents[name] = content

    def write(self, name: str, content: bytes) -> None:
        """Store an object at once."""
        self._find_version(name)
        self._put(name, content)

    def _put(self, name: str, content: bytes) -> None:
        self._versions[name] = self._at.put(name, content, self._versions[name])

    def _put_shards(self) -> None:
        """Store the shards that `finish` has kept."""
        for name, (offset, size) in self._shards.items():
            assert self._spool is not None
            self._spool.seek(offset)
            self._put(name, self._spool.read(size))
        self._shards.clear()

    def close(self) -> None:
        """Release the shards that were not stored."""
        if self._spool is not None:
            self._spool.close()

    def commit(self) -> None:
        """Store the staged objects, and the guard last."""
        assert not self._removed
        self._put_shards()
        for name, content in self._contents.items():
            self._put(name, content)  # commit point: there is only one document
        self._contents.clear()

    @property
    def version(self) -> str:
        """The version of the guard now."""
        return self._versions[self.guard]


class ArrayChange(UrlChange):
    """New objects of an array, whose ``zarr.json`` has a token of the writer."""

    def stage(self, name: str, content: bytes) -> None:
        """Store an object when the change is committed."""
        super().stage(name, with_claim(content) if name == ZARR_JSON else content)


class TableChange(UrlChange):
    """New objects of a table, whose guard is a journal."""

    guard = JOURNAL

    def commit(self) -> None:
        """Store the staged objects; readers of the table see all of them or none."""
        self._put_shards()
        if not self._contents and not self._removed:
            return
        self._put(JOURNAL, journal_of(self._contents, self._removed))  # commit point
        try:
            for name, content in self._contents.items():
                self._put(name, content)
            for name in self._removed:
                self._at.check_version(JOURNAL, self.version)
                self._at.remove(name)
            self._put(JOURNAL, journal_of({}, []))
        except Conflict:
            if self._at.object_version(JOURNAL) == self.version:
                raise
            # A writer that has opened the table meanwhile has completed the change.
        self._contents.clear()


def _temporary_file() -> BinaryIO:
    """Return a file without a name; who gets it closes it."""
    file: Any = tempfile.TemporaryFile()  # noqa: SIM115
    return file  # type: ignore[no-any-return]


def with_claim(content: bytes) -> bytes:
    """Return a document with a new token: it has another version than before.

    That of another program does not become one of Bloscpack.
    """
    document, token = json.loads(content), os.urandom(8).hex()
    attributes = document.setdefault("attributes", {})
    identity, is_own = read_identity(content, attributes.get(KEY))
    if identity is not None and is_own:
        settings = {"key": "attributes", "token": token}
        return identified(document, identity, encode_json, **settings)
    attributes[KEY] = "token=%s" % token
    return encode_json(document)


def journal_of(contents: dict[str, bytes], removed: list[str]) -> bytes:
    """Return a journal with the new contents of documents, and a new token."""
    documents = {name: json.loads(content) for name, content in contents.items()}
    journal = {"files": {}, "removed": removed, "documents": documents}
    return encode_line({**journal, "token": os.urandom(8).hex()})


def complete(folder: UrlFolder) -> bool:
    """Store the objects of a change that was committed, and is not complete.

    Return whether there was one: then its journal is left to be replaced.
    """
    version = folder.object_version(JOURNAL)
    removed = folder.read_journal()
    names = *folder.pending, *folder.documents
    if not names and not removed:
        return False
    contents = {name: folder.read(name) for name in names}
    for name, content in contents.items():
        found = folder.object_version(name)
        folder.check_version(JOURNAL, version)  # after it: see `UrlChange.begin`
        folder.put(name, content, found)
    for name in (*removed, *folder.pending.values()):
        folder.check_version(JOURNAL, version)
        folder.remove(name)
    folder.pending.clear()
    folder.documents.clear()
    return True
