"""An open archive: its members, and which of them are arrays."""

from __future__ import annotations

import json
import os
from zlib import crc32

from .._format.zarr_metadata import ZARR_JSON, ArrayDocument, decode_array
from .._format.zip_format import (
    TAIL_LENGTH,
    Directory,
    decode_directory,
    decode_local,
    local_length,
)
from .._reading.opened import storage_from
from .._storage.base import PartStorage, naming_errors
from .._storage.disk import disk
from .._storage.local import whole_file
from .._storage.urls import is_url, local_path, shown_name
from ..exceptions import DamageError, NotReadable, UsageError
from .names import BLP, document_name

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from .._format.zip_format import Member
    from .._storage.base import Storage
    from .._storage.protocols import Buffer, Path, Seekable, StorageOptions

# Maximum size of a ``zarr.json`` in bytes: it is read into memory as a whole.
MAX_DOCUMENT = 16 * 2**20


class ArchiveFile:
    """An open archive: its storage, its members by name, and its arrays.

    ``arrays`` has, by the name of each array, the name of the member with its chunks.
    """

    def __init__(
        self,
        file: Path | Seekable | Buffer | Storage,
        storage_options: StorageOptions | None = None,
    ) -> None:
        self._close: Callable[[], None] | None = None
        self.name: str | None = None
        self.storage = self._open(file, storage_options)
        try:
            with naming_errors(self.name or ""):
                self.members = _read_directory(self.storage)
                self.arrays = _find_arrays(self.members)
        except BaseException:
            self.close()
            raise

    def _open(self, file: Any, storage_options: StorageOptions | None) -> Storage:
        file = local_path(file)
        if is_url(file):
            from .._storage.remote import RemoteStorage

            remote = RemoteStorage(file, storage_options=storage_options)
            self.name, self._close = file, remote.close
            return remote
        if isinstance(file, (str, os.PathLike)):
            fp = disk.open(file, "rb")
            # The file below the buffer: a fork may copy the locked lock of a buffer.
            close = getattr(fp, "raw", fp).close
            self.name, self._close = os.fsdecode(file), close
            return whole_file(fp)
        return storage_from(file, "a path, a URL, a file object or bytes")

    def close(self) -> None:
        """Close the file, unless the caller opened it."""
        if self._close is not None:
            self._close()

    def __del__(self) -> None:
        if hasattr(self, "_close"):
            self.close()

    def label(self, name: str) -> str:
        """Return the name of an array with the name of the file, for messages."""
        return name if self.name is None else "%s/%s" % (self.name, name)

    def content(self, member: Member) -> PartStorage:
        """Return the bytes of a member."""
        length = local_length(member)
        start = decode_local(self.storage.read_at(member.offset, length), member)
        return PartStorage(self.storage, start, start + member.size, self)

    def document(self, name: str) -> ArrayDocument:
        """Return what ``zarr.json`` says about an array."""
        member = self.members[document_name(name)]
        content = self.content(member)
        if content.size > MAX_DOCUMENT:
            raise DamageError(
                "expected at most '%d' bytes in %.200r, found '%d'"
                % (MAX_DOCUMENT, member.name, content.size)
            )
        text = content.read_at(0, content.size)
        if crc32(text) != member.crc:
            raise DamageError("the crc32 of %.200r does not match" % member.name)
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DamageError(
                "expected JSON in %.200r: %.200s" % (member.name, error)
            ) from error
        try:
            return decode_array(document if isinstance(document, dict) else {})
        except UsageError as error:
            error.filename = shown_name(self.label(name))
            raise


def _read_directory(storage: Storage) -> dict[str, Member]:
    """Return the members by name; of several with a name the last one, as Zarr does."""
    length = min(storage.size, TAIL_LENGTH)
    tail = storage.read_at(storage.size - length, length)
    directory = Directory(tail, storage.size)
    data = storage.read_at(directory.start, directory.stop - directory.start)
    members = decode_directory(data, directory)
    return {m.name: m for m in members if not m.name.endswith("/")}


def _find_arrays(members: Mapping[str, Member]) -> dict[str, str]:
    """Return the name of the member with the chunks of each array.

    Raises `FormatError` if `savez` can't have written the file.
    """
    if ZARR_JSON not in members:
        npy = any(name.endswith(".npy") for name in members)
        raise NotReadable(
            "expected a ZIP file of savez, with the member '%s', found %s"
            % (
                ZARR_JSON,
                "arrays of NumPy: numpy.load reads it" if npy else "none",
            )
        )
    arrays: dict[str, str] = {}
    others = set()
    for name in members:
        array, mark, chunk = name.rpartition("/c/")
        if name.endswith(BLP):
            array = name.removesuffix(BLP)
        elif not mark or document_name(array) not in members:
            continue
        elif set(chunk.split("/")) != {"0"}:
            others.add(array)
            continue
        if array in arrays:
            raise DamageError(
                "the members %.200r and %.200r are the same array"
                % (arrays[array], name)
            )
        arrays[array] = name
    return {name: member for name, member in arrays.items() if name not in others}
