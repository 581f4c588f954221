"""A ZIP file as a store, which can only be read; and what its errors mean.

ZIP files of other programs are read by the module `zipfile`. Its errors become ours,
with the name of the file. The size that a directory states is compared with the stored
bytes before anything is allocated. A member that is stored without compression is read
at any position; any other one is decompressed as a whole, when it is read first.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import finalize

from .._engine.forks import cached_property
from .._format.zip_format import (
    ENCRYPTED,
    EXTRA_DIGEST,
    LOCAL,
    LOCAL_SIGNATURE,
    extra_fields,
    read_directory,
)
from ..constants import MAX_BUFFERSIZE
from ..exceptions import BloscpackError, DamageError, NotReadable
from .base import MemoryStorage, PartStorage, Storage, naming_errors
from .local import whole_file
from .paths import is_safe_name
from .store import NestedStore, too_long

try:
    from lzma import LZMAError
except ImportError:  # Python was built without it
    LZMAError = zipfile.BadZipFile  # type: ignore

# Maximum number of plain bytes for each stored byte of a member, by its method. Deflate
# reaches 1032 at most. The other methods have no limit of their own: `OTHER_RATIO`
# bounds the sizes that a member may claim.
MAX_RATIOS = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}
OTHER_RATIO = 2**20
# Maximum number of parts of a name: each folder around a member takes memory.
MAX_PARTS = 250
# A message about wrong bytes, with the error of `zipfile`.
DAMAGED = "the ZIP file is damaged: %s"
# The errors that `zipfile` and the modules that it uses raise for wrong bytes.
WRONG_BYTES = (
    *(zipfile.BadZipFile, zlib.error, LZMAError, struct.error),
    *(EOFError, ValueError, OverflowError, LookupError),
)


@contextmanager
def zip_errors(name: str) -> Iterator[None]:
    """Turn the errors about the bytes of a ZIP file into `FormatError`."""
    try:
        yield
    except BloscpackError:
        raise
    except Exception as error:
        if _is_damage(error):
            raise DamageError(DAMAGED % error, filename=name) from error
        if isinstance(error, RuntimeError):  # encrypted, or an unknown method
            text = "this ZIP file is not supported: %s" % error
            raise NotReadable(text, filename=name) from error
        raise


def _is_damage(error: Exception) -> bool:
    """Return whether an error is about wrong bytes."""
    # The module `bz2` raises an OSError without a number, and so does a seek to a
    # negative offset, or one with the number EINVAL.
    return isinstance(error, WRONG_BYTES) or (
        isinstance(error, OSError) and error.errno in (None, errno.EINVAL)
    )


def is_zip(path: str, begin: bytes) -> bool:
    """Return whether a file is a ZIP file; `begin` are its first bytes.

    Raises `FormatError` if only its end is missing.
    """
    with zip_errors(path):
        if begin.startswith(b"PK") and zipfile.is_zipfile(path):
            return True
    if begin.startswith(LOCAL_SIGNATURE):
        text = DAMAGED % "expected an end record, found none: the file was cut off"
        raise DamageError(text, filename=path)
    return False


def open_zip(name: str) -> zipfile.ZipFile:
    """Open a ZIP file; raise `FormatError` if a member can't have the stated size."""
    with zip_errors(name):
        archive = zipfile.ZipFile(name)
    assert archive.fp is not None
    size = archive.fp.seek(0, os.SEEK_END)
    for info in archive.infolist():
        ratio = MAX_RATIOS.get(info.compress_type, OTHER_RATIO)
        if info.compress_size > size or info.file_size > info.compress_size * ratio:
            archive.close()
            raise DamageError(
                "the member %.200r can't have '%d' bytes, which '%d' stored bytes in a "
                "file of '%d' hold"
                % (info.filename, info.file_size, info.compress_size, size),
                filename=name,
            )
    return archive


# The store


class OpenZip:
    """An open ZIP file, which is closed when no store uses it any more."""

    def __init__(self, path: str) -> None:
        self.archive = open_zip(path)
        # Without a buffer: a fork may copy the locked lock of one.
        self._fp = open(path, "rb", buffering=0)  # noqa: SIM115
        status = os.fstat(self._fp.fileno())
        self.version = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
        self.storage = whole_file(self._fp)
        # Not by `__del__`: in a cycle, the files might be freed first.
        finalize(self, self.archive.close)
        finalize(self, self._fp.close)
        if any(_has_digest(info) for info in self.archive.infolist()):
            # `zipfile` would open a damaged archive without the members that it lost.
            try:
                with naming_errors(path):
                    read_directory(self.storage)
            except BaseException:
                self.archive.close()
                self._fp.close()
                raise


def _has_digest(info: zipfile.ZipInfo) -> bool:
    """Return whether an entry of a directory has a digest, as those of `savez`."""
    return any(kind == EXTRA_DIGEST for kind, _ in extra_fields(info.extra))


class CompressedMember(MemoryStorage):
    """A member that is decompressed when it is read first: check its size before."""

    def __init__(self, size: int, read: Callable[[], bytes]) -> None:
        self.size, self._read = size, read

    @cached_property
    def _view(self) -> memoryview:  # type: ignore[override]
        return memoryview(self._read())


class ZipStore(NestedStore):
    """The members of a ZIP file, or those in a folder of it."""

    is_writable = False

    def __init__(self, path: str) -> None:
        self.root = path
        self._zip = OpenZip(path)
        self._members: dict[str, zipfile.ZipInfo] = {}
        self._folders: dict[str, dict[str, int]] = {"": {}}
        for info in self._zip.archive.infolist():
            if is_safe_name(info.filename) and info.filename.count("/") < MAX_PARTS:
                self._members[info.filename] = info
                self._add(info.filename, stat.S_IFREG)

    def _add(self, name: str, kind: int) -> None:
        folder, _, last = name.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = {}
            self._add(folder, stat.S_IFDIR)
        self._folders[folder][last] = kind

    def _member(self, name: str) -> zipfile.ZipInfo:
        member = self._members.get(self._prefix + name)
        if member is None:
            raise self._missing(name)
        return member

    def open(self, name: str) -> Storage:
        member = self._member(name)
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & ENCRYPTED:
            return CompressedMember(member.file_size, lambda: self.read(name)[0])
        start = member.header_offset
        with zip_errors(self.path(name)):
            header = self._zip.storage.read_at(start, LOCAL.size)
        if len(header) < LOCAL.size or not header.startswith(LOCAL_SIGNATURE):
            text = DAMAGED % "expected the header of a member, found none"
            raise DamageError(text, filename=self.path(name))
        start += LOCAL.size + sum(LOCAL.unpack(header)[-2:])
        return PartStorage(self._zip.storage, start, start + member.file_size, self)

    def read(
        self, name: str, limit: int | None = None, *, whole: bool = False
    ) -> tuple[bytes, object]:
        member = self._member(name)
        most = MAX_BUFFERSIZE if limit is None else limit
        if member.file_size > most and (whole or limit is None):
            raise too_long(most, self.path(name), member.file_size)
        with zip_errors(self.path(name)), self._zip.archive.open(member) as fp:
            return fp.read(most), self.identity(name)

    def exists(self, name: str) -> bool:
        full = self._prefix + name
        return full in self._members or full in self._folders

    def is_folder(self, name: str) -> bool:
        return self._prefix + name in self._folders

    def identity(self, name: str) -> object:
        return self._zip.version, self._prefix + name

    def size(self, name: str) -> int:
        return self._member(name).file_size

    def total_size(self, names: list[str]) -> int:
        found = (self._members.get(self._prefix + name) for name in names)
        return sum(member.file_size for member in found if member is not None)

    def entries(self, name: str = "") -> list[tuple[str, int]]:
        return sorted(self._folders.get((self._prefix + name).rstrip("/"), {}).items())

    def content_version(self) -> object:
        return self._zip.version


def find_zip(path: str) -> tuple[str, str] | None:
    """Return the ZIP file that a path is in or names, and the name in it."""
    name = ""
    while path and not os.path.isdir(path):
        if os.path.isfile(path):
            with open(path, "rb") as fp:
                found = fp.read(len(LOCAL_SIGNATURE)) == LOCAL_SIGNATURE
            return (path, name) if found and is_zip(path, LOCAL_SIGNATURE) else None
        path, _, last = path.rpartition(os.sep)
        name = last + "/" + name if name else last
    return None
