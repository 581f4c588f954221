"""ZIP files, read by the module `zipfile`: the directory of an archive, and a store.

Strategy: errors of `zipfile` become ours, with the name of the file. The size that a
directory states is compared with the stored bytes before anything is allocated. A
member that is stored without compression is read in place, at any position; any other
one is decompressed as a whole, when it is read first. What the document of the group
lists (docs/format.rst, Several arrays in one file) is compared with the directory.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import IO, TYPE_CHECKING, Any
from weakref import finalize

from .._engine.contexts import errors_to, on_error
from .._engine.forks import cached_property
from .._format.names import is_safe_name
from .._format.other_formats import (
    PREFIX_LENGTH,
    ZARR_JSON,
    begins_as_archive,
    begins_as_own,
)
from .._format.zip_format import (
    BZIP2,
    DEFLATED,
    ENCRYPTED,
    END_SIGNATURE,
    LOCAL,
    LOCAL_SIGNATURE,
    MAX_NAME,
    STORED,
    TAIL_LENGTH,
    begins_one,
    checked_local,
    damaged_zip,
    decode_end,
    decode_local,
    decode_sizes,
    document_name,
    find_local,
    has_own_numbers,
    local_extent,
    raw_name,
    read_local,
    wrong_local,
)
from ..constants import MAX_BUFFERSIZE, MAX_DOCUMENT
from ..exceptions import BloscpackError, DamageError, NotReadable, Unsupported
from .base import (
    MemoryStorage,
    PartStorage,
    RawReader,
    Storage,
    StorageFile,
    naming_errors,
)
from .local import whole_file
from .store import NestedStore, too_long

if TYPE_CHECKING:
    from zipfile import ZipExtFile, ZipFile, ZipInfo

# Maximum number of plain bytes for each stored byte of a member, by its method. Deflate
# reaches 1032 at most. A block of bzip2 has 900,000 bytes, of which 5 stand for up to
# 259, and takes at least 25 bytes: below 2**21. The other methods get the ratio of zstd
# in chunks of Blosc.
MAX_RATIOS = {STORED: 1, DEFLATED: 1032, BZIP2: 2**21}
OTHER_RATIO = 2**15
# Number of stored bytes that `zipfile` decompresses at a time, unless by deflate: it
# keeps all plain bytes of them. They hold a single block of bzip2.
PIECE_NBYTES = 32
HEADER_OFFSET = attrgetter("header_offset")
# Local headers at a URL are requested together if at most so many bytes are between
# them, and all take at most so many; and so many requests are made at once.
NEAR_NBYTES = 2**16
TOGETHER_NBYTES = 2**20
TOGETHER_COUNT = 16
# The names of members that programs for arrays write first.
OF_ARRAYS = re.compile(
    r"(.*/)?(zarr\.json|\.z(array|attrs|group|metadata)|(c[./])?\d+([./]\d+)*|c)"
    r"|.+\.(npy|blp|zarr/)"
)
# A message about wrong bytes, with the error of `zipfile`.
DAMAGED = "the ZIP file is damaged: %s"
# The errors that `zipfile` and the modules that it uses raise for wrong bytes, beside
# errors of their own.
WRONG_BYTES = (
    *(zlib.error, struct.error),
    *(EOFError, ValueError, OverflowError, LookupError),
)


def zip_errors(name: str | None) -> errors_to:
    """Turn the errors about the bytes of a ZIP file into `FormatError`."""

    def translate(error: Exception) -> None:
        if isinstance(error, BloscpackError):
            return
        # `zipfile` says that a file is no ZIP file if the end could not be read.
        cause = error.__context__
        if isinstance(cause, OSError) and not _is_damage(cause):
            raise cause from None
        if _is_damage(error):
            raise DamageError(DAMAGED % error, filename=name) from error
        if isinstance(error, RuntimeError):  # encrypted, or an unknown method
            text = "this ZIP file is not supported: %s" % error
            raise NotReadable(text, filename=name) from error

    return errors_to(translate)


def _is_damage(error: Exception) -> bool:
    """Return whether an error is about wrong bytes."""
    from zipfile import BadZipFile

    try:
        from lzma import LZMAError
    except ImportError:  # Python was built without it
        LZMAError = BadZipFile  # type: ignore
    # The module `bz2` raises an OSError without a number, and so does a seek to a
    # negative offset, or one with the number EINVAL.
    return isinstance(error, (*WRONG_BYTES, BadZipFile, LZMAError)) or (
        isinstance(error, OSError) and error.errno in (None, errno.EINVAL)
    )


def is_zip(path: str, begin: bytes) -> bool:
    """Return whether a file is a ZIP file; `begin` are its first bytes.

    Raises `FormatError` if its end is missing: `DamageError` if arrays are in it.
    """
    if not begin.startswith(b"PK"):
        return False
    with open(path, "rb") as fp:
        start = fp.read(LOCAL.size + MAX_NAME)
        fp.seek(max(0, os.fstat(fp.fileno()).st_size - TAIL_LENGTH))
        if END_SIGNATURE in fp.read():
            return True
    if not start.startswith(LOCAL_SIGNATURE):
        return False
    member = find_local(start, 0)
    if member is not None and OF_ARRAYS.fullmatch(member[0]):
        text = DAMAGED % "expected an end record, found none: the file was cut off"
        raise DamageError(text, filename=path)
    first = "no member" if member is None else "a first member '%.200s'" % member[0]
    text = "expected a ZIP file of arrays, found one without an end, with %s" % first
    raise NotReadable(text, filename=path)


def open_zip(name: str) -> ZipFile:
    """Open a ZIP file; raise `FormatError` if a member can't have the stated size."""
    from zipfile import ZipFile

    with zip_errors(name):
        archive = ZipFile(name)
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


def check_local(storage: Storage, info: ZipInfo) -> None:
    """Raise `FormatError` unless the local header agrees with the directory."""
    start, stop = local_extent(info)
    checked_local(read_local(storage.read_at(start, stop - start), info), info)


class SmallPieces(RawReader):
    """A member that `zipfile` decompresses in small pieces, whatever is read of it."""

    def __init__(self, fp: ZipExtFile) -> None:
        self._fp = fp
        fp.MIN_READ_SIZE = PIECE_NBYTES

    def tell(self) -> int:
        return self._fp.tell()

    def readinto(self, buffer: Any) -> int:
        # `peek` decompresses only if there is nothing left.
        piece = self._fp.read(min(len(buffer), len(self._fp.peek(1))))
        buffer[: len(piece)] = piece
        return len(piece)


@contextmanager
def opened_member(archive: ZipFile, member: str | ZipInfo) -> Iterator[IO[bytes]]:
    """Open a member; memory grows only with the bytes that are read."""
    info = archive.getinfo(member) if isinstance(member, str) else member
    with archive.open(info) as fp:
        has_limit = info.compress_type in (STORED, DEFLATED)
        yield fp if has_limit else io.BufferedReader(SmallPieces(fp))  # type: ignore[arg-type]


class Directory:
    """The directory of an archive, and its members, which are read in place.

    Raises `FormatError` unless the members are in front of it and apart from each
    other.

    Attributes
    ----------
    storage
        The bytes of the file.
    entries
        All members in the order of the directory.
    members
        Those that count, by name: of several with a name the last one, which Zarr
        reads.
    sizes
        The sizes of members by name that the document of the group lists, after
        `read_list`.
    listed
        The names of these members, and of the documents of the shards among them.
    limits
        Where the next part of the file begins, by the offset of each local header.
    start
        Where the directory begins.
    shift
        Number of bytes in front of the ZIP file.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        tail = storage.read_at(max(0, storage.size - TAIL_LENGTH), TAIL_LENGTH)
        try:
            end, self.start, self.shift, count = decode_end(tail, storage.size)
        except NotReadable as error:
            if begins_as_archive(storage.read_at(0, PREFIX_LENGTH)):
                raise DamageError(error.message) from error
            raise
        from zipfile import ZipFile

        # In a comment, `zipfile` would look for another end record.
        fp = io.BufferedReader(StorageFile(PartStorage(storage, 0, end)))
        try:
            with zip_errors(None), ZipFile(fp) as archive:
                self.entries = archive.infolist()
        except NotReadable as error:  # of a later version of ZIP
            raise Unsupported(error.message) from error
        if len(self.entries) != count:
            raise damaged_zip(
                "expected '%d' members, found '%d'" % (count, len(self.entries))
            )
        self.limits: dict[int, int] = {}
        limit = self.start
        for info in sorted(self.entries, key=HEADER_OFFSET, reverse=True):
            name, at, size = info.orig_filename, info.header_offset, info.compress_size
            if info.volume:
                raise damaged_zip("the entry %.200r is of another disk" % name)
            if size != info.file_size and info.compress_type == STORED:
                raise damaged_zip(
                    "the stored member %.200r has two sizes, '%d' and '%d'"
                    % (name, size, info.file_size)
                )
            length = len(name) if name.isascii() else len(raw_name(info))
            if at + LOCAL.size + length + size > limit:
                raise damaged_zip(
                    "the member %.200r at '%d' of '%d' bytes overlaps what follows at "
                    "'%d'" % (name, at, size, limit)
                )
            self.limits[at] = limit
            limit = at
        self.members = {
            info.orig_filename: info
            for info in self.entries
            if info.orig_filename[-1:] != "/"
        }
        self.sizes: dict[str, int] = {}
        self.listed: dict[str, None] = {}

    def read_list(self) -> None:
        """Read the list of members in the document of the group; compare their names.

        Raises `FormatError` if the document is damaged, or if a member that is not
        listed has another name in its local header. Nothing else matters of these: any
        program may have added them, also compressed.
        """
        group = self.members.get(ZARR_JSON)
        if (
            group is None
            or group.file_size > MAX_DOCUMENT
            or group.compress_type != STORED
            or group.flag_bits & ENCRYPTED
        ):
            return
        self.sizes = sizes = decode_sizes(self.read(group))
        arrays = filter(None, (name.rpartition("/c/")[0] for name in sizes))
        self.listed = dict.fromkeys([*sizes, *map(document_name, arrays)])
        others = self.members.keys() - {ZARR_JSON, *self.listed}
        if sizes and others:
            # A wrong name of a listed member is noticed when that member is read.
            listed, end = sorted(sizes), "/" + ZARR_JSON
            self._compare_names(
                [
                    self.members[name]
                    for name in others
                    if not name.endswith(end)
                    or not begins_one(name.removesuffix(end), listed)
                ]
            )

    def _compare_names(self, infos: list[ZipInfo]) -> None:
        """Raise `FormatError` if a member has another name in its local header.

        At a URL, headers near to each other are requested together.
        """
        near = NEAR_NBYTES if self.storage.is_remote else 0
        groups: list[tuple[int, int, list[ZipInfo]]] = []
        for info in sorted(infos, key=HEADER_OFFSET):
            start, stop = local_extent(info)
            if groups and start - groups[-1][1] <= near:
                first, _, members = groups[-1]
                if stop - first <= TOGETHER_NBYTES:
                    members.append(info)
                    groups[-1] = first, stop, members
                    continue
            groups.append((start, stop, [info]))
        for at in range(0, len(groups), TOGETHER_COUNT):
            some = groups[at : at + TOGETHER_COUNT]
            heads = self.storage.read_many([(first, stop) for first, stop, _ in some])
            for (first, _, members), data in zip(some, heads, strict=True):
                for info in members:
                    start, stop = local_extent(info)
                    header = read_local(data[start - first : stop - first], info)
                    if header is None or not header.is_named:
                        raise wrong_local(info)

    def member(self, name: str) -> ZipInfo:
        """Return a member; raise `FormatError` if it is missing or not as listed.

        A member of another size counts if its local header says so, too: a program that
        knows only Zarr has written it later.
        """
        info = self.members.get(name)
        if info is not None:
            listed_size = self.sizes.get(name, info.file_size)
            if info.file_size == listed_size or self.is_later(name):
                return info
        if name not in self.sizes:
            raise DamageError("the member %.200r of the archive is missing" % name)
        raise DamageError(
            "expected the member %.200r of '%d' bytes, which the document of the group "
            "lists, found %s in the directory of the ZIP file"
            % (name, self.sizes[name], "none" if not info else "'%d'" % info.file_size),
            section="archive",
        )

    def is_later(self, name: str) -> bool:
        """Return whether a listed member was written later, with another size."""
        info = self.members.get(name)
        if info is None or self.sizes.get(name, info.file_size) == info.file_size:
            return False
        start, stop = local_extent(info)
        return has_own_numbers(self.storage.read_at(start, stop - start), info)

    def extents(self, *infos: ZipInfo, most: int = 0) -> list[tuple[int, int, bytes]]:
        """Return start and stop of the bytes of members, and the first of these bytes.

        At least `most` bytes are read of each member with its local header.
        """
        headers = [local_extent(info) for info in infos]
        spans = [
            (start, stop + min(most, info.file_size))
            for (start, stop), info in zip(headers, infos, strict=True)
        ]
        extents = []
        for info, (begin, stop), data in zip(
            infos, headers, self.storage.read_many(spans), strict=True
        ):
            limit = self.limits[info.header_offset]
            start = decode_local(data[: stop - begin], info, limit)
            head = data[start - begin :][: info.file_size]
            extents.append((start, start + info.file_size, head))
        return extents

    def read(self, info: ZipInfo, content: Storage | None = None) -> bytes:
        """Return the bytes of a small member, which may be open already."""
        if info.file_size > MAX_DOCUMENT:
            raise DamageError(
                "expected at most '%d' bytes in %.200r, found '%d'"
                % (MAX_DOCUMENT, info.orig_filename, info.file_size)
            )
        if content is None:
            ((start, stop, head),) = self.extents(info, most=info.file_size)
            content = PartStorage(self.storage, start, stop, head=head)
        text = content.read_at(0, content.size)
        if zlib.crc32(text) != info.CRC:
            raise DamageError("the crc32 of %.200r does not match" % info.orig_filename)
        return text


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
        # That of an archive with a list. `zipfile` would open a damaged one without the
        # members that it lost.
        self.directory: Directory | None = None
        content, info = b"", self.archive.NameToInfo.get(ZARR_JSON)
        with (
            on_error(self._fp.close),
            on_error(self.archive.close),
            naming_errors(path),
        ):
            if info is not None and info.file_size <= MAX_DOCUMENT:
                with zip_errors(path), opened_member(self.archive, info) as fp:
                    content = fp.read()
            is_own = begins_as_own(self.storage.read_at(0, PREFIX_LENGTH))
            if is_own or decode_sizes(content):
                self.directory = Directory(self.storage)
                if ZARR_JSON not in self.directory.members:
                    text = "its directory lacks the member '%s'"
                    raise damaged_zip(text % ZARR_JSON)
                self.directory.read_list()


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
        # An array that has lost listed members is there, and reading it is an error.
        self._listed = self._zip.directory.listed if self._zip.directory else {}
        self._members: dict[str, ZipInfo | None] = {}
        self._folders: dict[str, dict[str, int]] = {"": {}}
        infos = {info.filename: info for info in self._zip.archive.infolist()}
        for name in (*infos, *self._listed):
            if is_safe_name(name):
                self._members[name] = infos.get(name)
                self._add(name, stat.S_IFREG)

    def _add(self, name: str, kind: int) -> None:
        folder, _, last = name.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = {}
            self._add(folder, stat.S_IFDIR)
        self._folders[folder][last] = kind

    def _member(self, name: str) -> ZipInfo:
        full = self._prefix + name
        if self._zip.directory is not None and full in self._listed:
            with naming_errors(self.path(name)):
                return self._zip.directory.member(full)
        member = self._members.get(full)
        if member is None:
            raise self._missing(name)
        return member

    def open(self, name: str, end: int = 0) -> Storage:
        member = self._member(name)
        content: Storage
        if member.compress_type != STORED or member.flag_bits & ENCRYPTED:
            content = CompressedMember(member.file_size, lambda: self.read(name)[0])
            content.identity = self.identity(name)
            return content
        storage, (begin, stop) = self._zip.storage, local_extent(member)
        path = self.path(name)
        with naming_errors(path), zip_errors(path):
            header = storage.read_at(begin, stop - begin)
            start = decode_local(header, member, storage.size)
        content = PartStorage(storage, start, start + member.file_size, self)
        content.identity = self.identity(name)
        return content

    def read(
        self, name: str, limit: int | None = None, *, whole: bool = False
    ) -> tuple[bytes, object]:
        member = self._member(name)
        most = MAX_BUFFERSIZE if limit is None else limit
        if member.file_size > most and (whole or limit is None):
            raise too_long(most, self.path(name), member.file_size)
        path = self.path(name)
        with naming_errors(path), zip_errors(path):
            check_local(self._zip.storage, member)
            with opened_member(self._zip.archive, member) as fp:
                return fp.read(most), self.identity(name)

    def exists(self, name: str) -> bool:
        full = self._prefix + name
        return full in self._members or full in self._folders

    def is_folder(self, name: str) -> bool:
        return self._prefix + name in self._folders

    def identity(self, name: str) -> object:
        full = self._prefix + name
        return (self._zip.version, full) if full in self._members else None

    def size(self, name: str) -> int:
        return self._member(name).file_size

    def total_size(self, names: list[str]) -> int:
        members = (self._members.get(self._prefix + name) for name in names)
        return sum(member.file_size for member in members if member is not None)

    def entries(self, name: str = "") -> list[tuple[str, int]]:
        return sorted(self._folders.get((self._prefix + name).rstrip("/"), {}).items())

    def names_ending(self, end: str) -> list[str]:
        """Return the names of all files, in any folder, that end with a text."""
        start = len(self._prefix)
        inside = (n for n in self._members if n.startswith(self._prefix))
        return sorted(n[start:] for n in inside if n.endswith(end))

    def content_version(self) -> object:
        return self._zip.version


def find_zip(path: str) -> tuple[str, str] | None:
    """Return the ZIP file that a path is in or names, and the name in it."""
    name = ""
    while path and not os.path.isdir(path):
        if os.path.isfile(path):
            with open(path, "rb") as fp:
                begin = fp.read(len(LOCAL_SIGNATURE))
            return (path, name) if is_zip(path, begin) else None
        path, _, last = path.rpartition(os.sep)
        name = last + "/" + name if name else last
    return None
