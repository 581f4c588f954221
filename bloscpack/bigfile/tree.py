"""The folders and files of a tree: names, symbolic links, and safe access.

Contract: nothing outside the folder of the tree is read or written. A name with ``..``
is refused, and so is a symbolic link that leads out, unless the user allows links. A
data file must be a regular file; a pipe is not even opened for long. Small files are
replaced as a whole, and a change that depends on the old content holds the lock of the
block's folder. Data files need no lock. A new file of a block has owner and access of
its header, and what root makes in the tree of another user belongs to that user,
unless any user may write the folder. Only users who can read a block can read its copy.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .._commit.ownership import (
    AccessLimits,
    FileAccess,
    copy_attributes,
    is_new_folder,
    of_another_user,
)
from .._commit.replacing import replacing
from .._engine.forks import NamedLocks, Owner
from .._format.rows import Rows
from .._storage.base import naming_errors
from .._storage.descriptors import Descriptor
from .._storage.folder_store import NoFileFound
from ..exceptions import DamageError, NoSuchBlock, StorageError, UsageValueError
from . import header
from .header import Header

HEADER = "header"
ATTRIBUTES = "attr-v2"
LEGACY = "attr"
# The rows of a new block that have not been written yet; see `header`.
UNWRITTEN = ".unwritten"
# Maximum size in bytes of a header or a file of attributes: millions of lines.
MAX_TEXT = 2**26
# Maximum number of folders inside each other; a deeper one is refused.
MAX_DEPTH = 100
_DATA_FILE = re.compile("[0-9A-F]{6,}")
# The folders that a thread of this process changes: not all systems have file locks.
_FOLDERS = NamedLocks()
_BAD_NAME = re.compile("[\x00-\x20\x7f]")
_FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_OPEN_FLAGS = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


def clean_name(name: str) -> str:
    """Return the name of a block or a group with single slashes; ``""`` is the root.

    Raises `UsageValueError` for a name that leads out of the tree.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise UsageValueError("'%s' is not the name of a block in this tree" % name)
    if len(parts) > MAX_DEPTH:
        raise UsageValueError("the name of a block has %d parts" % len(parts))
    return "/".join(parts)


def check_new_name(name: str) -> None:
    """Raise `UsageValueError` for a name that the original could not open again."""
    if _BAD_NAME.search(name):
        raise UsageValueError(
            "the name of a block can't contain blanks or control characters, like %r"
            % name
        )
    for part in name.split("/"):
        if part.startswith("."):
            raise UsageValueError("'%s': names with a dot are not listed" % name)
        if part in (HEADER, ATTRIBUTES, LEGACY) or _DATA_FILE.fullmatch(part):
            raise UsageValueError("'%s' is the name of a file of a block" % part)


def is_data_file(name: str) -> bool:
    """Return whether a file of a block has the name of a data file."""
    return _DATA_FILE.fullmatch(name) is not None


class Tree:
    """The folder of a BigFile tree.

    With `follow_links` links may lead out of it. New blocks and their files are read by
    users whom `limits` allow; None for no limits.
    """

    limits: AccessLimits | None = None

    def __init__(self, path: str, follow_links: bool = False) -> None:
        self.path = path
        self.root = os.path.realpath(path)
        self.follow_links = follow_links

    def folder(self, name: str) -> str:
        """Return the path of the folder of a block or a group."""
        return self.checked(os.path.join(self.root, *name.split("/")))

    def checked(self, path: str) -> str:
        """Return the real path of a file of the tree; raises `StorageError`."""
        real = os.path.realpath(path)
        inside = real == self.root or real.startswith(os.path.join(self.root, ""))
        if inside or self.follow_links:
            return real
        text = "a symbolic link leads out of the tree; it is not followed"
        raise NoFileFound(errno.EPERM, text, path)

    def is_block(self, name: str) -> bool:
        """Return whether a folder has a header, which no link out of the tree is."""
        try:
            return os.path.isfile(self.folder(name + "/" + HEADER))
        except StorageError:
            return False

    def is_group(self, name: str) -> bool:
        """Return whether there is a folder of this name, a block or not."""
        try:
            return os.path.isdir(self.folder(name))
        except StorageError:
            return False

    def require(self, name: str) -> None:
        """Raise `NoSuchBlock` if there is no folder of this name."""
        if not self.is_group(name):
            raise NoSuchBlock("'%s' has no block or group '%s'" % (self.path, name))

    def blocks(self, group: str = "") -> list[str]:
        """Return the names of all blocks in a group, relative to it, sorted."""
        return sorted(name for name, is_block in self.walk(group) if is_block)

    def walk(
        self, group: str = "", seen: dict[str, None] | None = None, depth: int = 0
    ) -> Iterator[tuple[str, bool]]:
        """Yield the names of all blocks and groups, and whether each is a block.

        The contents of a group are listed once, by the names of its folders if there
        are links to them: these may give it very many names. `seen` has the folders
        that were listed, the first one first; `depth` is the number of folders around.
        """
        seen, folder = {} if seen is None else seen, self.folder(group)
        seen[folder] = None
        top = os.path.join(next(iter(seen)), "")
        with os.scandir(folder) as entries:
            names = sorted(
                (e.is_symlink(), e.name)
                for e in entries
                if not e.is_file(follow_symlinks=False)
            )
        for is_link, name in names:
            full = os.path.join(group, name)
            try:
                path = self.folder(full)
            except StorageError:  # a link that is not followed
                continue
            hidden = name.startswith(".") or path in seen or depth >= MAX_DEPTH
            if hidden or not os.path.isdir(path):
                continue
            is_block = self.is_block(full)
            yield name, is_block
            if not is_block and not (is_link and path.startswith(top)):
                for last, is_inner_block in self.walk(full, seen, depth + 1):
                    yield name + "/" + last, is_inner_block

    # Files

    def open_file(self, path: str, flags: int) -> Descriptor:
        """Open a regular file of the tree; raises `OSError`."""
        is_new = bool(flags & os.O_CREAT) and not os.path.lexists(path)
        model = self._access(os.path.dirname(path)) if is_new else None
        mode = 0o666 if self.limits is None else self.limits.limit(0o666, None)
        mode, flags = mode if model is None else 0o600, flags | _OPEN_FLAGS
        try:
            file = Descriptor(os.open, path, flags, mode)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EMLINK):
                raise
            file = Descriptor(os.open, self.checked(path), flags, mode)
        try:
            number = file.fileno()
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise NoFileFound(errno.EINVAL, "it is not a regular file", path)
            if model is not None:
                copy_attributes(number, model, owner=True, limit=self.limits)
        except BaseException:
            if is_new:
                os.unlink(path)
            raise
        return file

    def remove_file(self, path: str) -> None:
        """Remove a file, if there is one."""
        with suppress(FileNotFoundError):
            os.unlink(path)

    def create_file(self, path: str) -> None:
        """Create an empty data file, in place of an old one.

        Other users may have opened the old file, and would read the new rows; or it may
        be a hard link to a file that is none of the tree.
        """
        self.remove_file(path)
        self.open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def read_text(self, path: str) -> bytes:
        """Return the content of a header or a file of attributes."""
        file = self.open_file(path, os.O_RDONLY)
        with open(file.fileno(), "rb", closefd=False) as fp:
            size = os.fstat(fp.fileno()).st_size
            if size > MAX_TEXT:
                text = "a text of %d bytes is too long" % size
                raise DamageError(text, filename=path)
            return fp.read(MAX_TEXT)

    def replace_text(self, path: str, content: bytes) -> None:
        """Replace a header or a file of attributes as a whole, or create it."""
        path = self.checked(path)
        model = None if os.path.exists(path) else self._access(os.path.dirname(path))
        with replacing(path, like=self.limits, model=model) as fp:
            fp.write(content)

    def _access(self, folder: str) -> FileAccess | None:
        """Return the access of a new file of a block; None for the usual access.

        It is the access of the header, or of the attributes. If there are none, root
        takes the access of the folder.
        """
        for name in (HEADER, ATTRIBUTES, LEGACY):
            with suppress(FileNotFoundError):
                file = self.checked(os.path.join(folder, name))
                return FileAccess(file, only_access=True)
        access = FileAccess(folder, only_access=True)
        return access if of_another_user(access) else None

    def limits_of(self, folder: str, copy: str) -> AccessLimits:
        """Return the limits for readers of a copy of a block: only its readers.

        All files of the block count, and all folders of the tree that are around the
        block and not around the copy. `folder` and `copy` are real paths.
        """
        with os.scandir(folder) as entries:
            paths = [e.path for e in entries if e.is_file(follow_symlinks=False)]
        for around in (Path(folder), *Path(folder).parents):
            if Path(copy).is_relative_to(around):
                break
            paths.append(str(around))
            if str(around) == self.root:
                break
        models = [FileAccess(path, only_access=True) for path in paths or [folder]]
        return AccessLimits(*models)

    def make_folder(self, name: str) -> str:
        """Create the folder of a block and those above it; return its path.

        What root creates in a folder of another user belongs to that user.
        """
        path, parts = self.root, [part for part in name.split("/") if part]
        for number, part in enumerate(parts, 1):
            around = FileAccess(path, only_access=True)
            path = os.path.join(path, part)
            limits = self.limits if number == len(parts) else None
            with suppress(FileExistsError):
                os.mkdir(path, 0o777 if limits is None else limits.limit(0o777, None))
                if of_another_user(around):
                    found = Descriptor(os.open, path, _FOLDER_FLAGS | _OPEN_FLAGS)
                    made = found.fileno()
                    # That user may have put another folder in its place.
                    if is_new_folder(made):
                        copy_attributes(made, around, owner=True, limit=limits)
            path = self.checked(path)
            if not os.path.isdir(path):
                raise StorageError(errno.ENOTDIR, "it is not a folder", path)
        return path

    # The header of a block, and the rows that have not been written yet

    def read_state(self, folder: str) -> tuple[Header, bytes, Rows]:
        """Return a header, its bytes, and the rows known to be unwritten."""
        path = os.path.join(folder, HEADER)
        content, text = self.read_text(path), b""
        with naming_errors(path):
            state = header.decode(content)
        with suppress(FileNotFoundError):
            text = self.read_text(os.path.join(folder, UNWRITTEN))
        return state, content, header.decode_unwritten(text, content, state.size)

    def write_state(
        self, folder: str, new: Header, unwritten: Rows, old: bytes = b""
    ) -> None:
        """Replace the header, after what is still unwritten has been noted.

        `old` are the bytes of the header that belongs to the rows; none for a new
        block.
        """
        content = header.encode(new)
        path = os.path.join(folder, UNWRITTEN)
        if unwritten:
            headers = (old, content) if old else (content,)
            self.replace_text(path, header.encode_unwritten(unwritten, headers))
        if content != old:
            self.replace_text(os.path.join(folder, HEADER), content)
        if not unwritten:
            self.remove_file(path)


@contextmanager
def locked_folder(path: str) -> Iterator[None]:
    """Lock a folder against the other writers of its small files.

    Some file systems have no locks; there, two processes must not change the header or
    the attributes of a block at the same time.
    """
    with _FOLDERS.at(path):
        try:
            import fcntl
        except ImportError:
            yield
            return
        folder, owner = Descriptor(os.open, path, _FOLDER_FLAGS), Owner()
        try:
            with suppress(OSError):
                fcntl.flock(folder.fileno(), fcntl.LOCK_EX)
            yield
        finally:
            if owner.is_here:  # closing is not enough if the process has forked
                with suppress(OSError):
                    fcntl.flock(folder.fileno(), fcntl.LOCK_UN)
