"""Owner, group, permission bits, ACL and extended attributes of new files.

Contract: a new file never gives a user more access than the file that it replaces, and
users who can't read the input can't read the output. Everything is set through the
descriptor of the new file, so a file that takes its name is not changed.
This is part of preparing a change; it commits nothing.

==============================  ====================================================
new file                        access
==============================  ====================================================
replaces a file                 owner, group, bits, ACL and attributes of that file
made like its input             group, bits, ACL and attributes of the input
made from an input              the access of any new file
part of a dataset, a block      as above; else owner, group, bits and ACL of the
                                nearest description, or, for a folder, of the folder
                                around it
==============================  ====================================================

In the first and the third row, a class (group or others) that can't read the input has
no bits. Set-user-ID and set-group-ID bits are never copied.
"""

from __future__ import annotations

import io
import os
import stat
from contextlib import suppress
from typing import TypeAlias

from .._storage.folder_store import HAS_OPEN_FOLDERS, FolderStore, Held
from .._storage.paths import is_missing
from .._types import BinaryFile

Limit: TypeAlias = "FileAccess | AccessLimits"

# The access control list, in the form in which the kernel of Linux stores it.
ACL = "system.posix_acl_access"
USER_ATTRIBUTES = "user."
# Attributes that restrict access. Others, like capabilities, must not be copied.
LABELS = ("security.selinux", "security.SMACK64")
# Opens a file that this user may not read, to learn its status.
_STATUS_ONLY = getattr(os, "O_PATH", None)
OWNER_BITS = 0o700
GROUP_BITS = 0o070
OTHER_BITS = 0o007
FILE_BITS = 0o666


class FileAccess:
    """Owner, group, permission bits, ACL and extended attributes of a file.

    `file` is a descriptor, or a name if the file can't be opened. ``acl`` is None
    without an ACL, and empty if there is one that can't be read. With `only_access` the
    extended attributes are left out, which belong to a single file.
    """

    def __init__(self, file: int | str, *, only_access: bool = False) -> None:
        self.status = os.stat(file)
        self.extended: dict[str, bytes] = {}
        self.acl: bytes | None = None
        for name in _attribute_names(file):
            if name == ACL:
                self.acl = b""
            elif only_access or not (
                name.startswith(USER_ATTRIBUTES) or name in LABELS
            ):
                continue
            with suppress(OSError):  # no permission to read it
                value = os.getxattr(file, name)
                if name == ACL:
                    self.acl = value
                else:
                    self.extended[name] = value

    @property
    def mode(self) -> int:
        """The permission bits, without the set-user-ID and set-group-ID bits."""
        return self.status.st_mode & 0o777

    @property
    def access(self) -> tuple[int, int, bytes | None]:
        """The permission bits, the group and the ACL."""
        return self.mode, self.status.st_gid, self.acl

    def limit(self, mode: int, group: int | None) -> int:
        """Return `mode` without the bits of each class that can't read this file.

        `group` is the group of the file that gets the mode; None if the mode will be
        used for another group or an ACL too.
        """
        if self.acl is not None:  # it may deny a user what others may do
            return mode & OWNER_BITS
        others_read = self.mode & stat.S_IROTH
        # The group of the new file may count as others here.
        group_reads = self.mode & stat.S_IRGRP and (
            group == self.status.st_gid or others_read
        )
        return mode & (
            OWNER_BITS
            | (GROUP_BITS if group_reads else 0)
            | (OTHER_BITS if others_read else 0)
        )


class AccessLimits:
    """The attributes of several inputs, all of which limit a new file.

    ``status`` is the status of the first one.
    """

    # No file has the same attributes as all inputs.
    access = None

    def __init__(self, *inputs: FileAccess) -> None:
        self.inputs = list({each.access: each for each in inputs}.values())
        self.status = inputs[0].status

    def limit(self, mode: int, group: int | None) -> int:
        """Return `mode` without the bits of each class that can't read all inputs."""
        for each in self.inputs:
            mode = each.limit(mode, group)
        return mode

    def at(self, name: str) -> AccessLimits:
        """Return the limits of a part of the copy; `name` is the name of its folder."""
        return self

    def whole(self) -> AccessLimits:
        """Return the limits of a copy that is a single file."""
        return self


def attributes_of_input(fp: BinaryFile) -> FileAccess | None:
    """Return the attributes of an input file; None for a pipe, a device or a URL."""
    try:
        descriptor = fp.fileno()
    except io.UnsupportedOperation:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return None
    return FileAccess(descriptor)


def attributes_in(
    folder: FolderStore, name: str = "", *, only_access: bool = False
) -> FileAccess | None:
    """Return owner and access of a file in a folder, or of the folder itself.

    None without a file. `only_access` is that of `FileAccess`.
    """
    try:
        if not name or not HAS_OPEN_FOLDERS:
            held = folder.hold()
            file = held.name(name) if name else held.number or held.path
            return FileAccess(file, only_access=only_access)
        try:
            found = folder.descriptor(name)
        except PermissionError:
            if _STATUS_ONLY is None:
                raise
            found = folder.descriptor(name, _STATUS_ONLY)
    except OSError as error:
        if not is_missing(error):
            raise
        return None
    return FileAccess(found.fileno(), only_access=only_access)


def of_another_user(model: FileAccess) -> bool:
    """Return whether root makes a file in a folder that belongs to another user.

    `model` are the attributes of the folder, or of a file in it. The new file then gets
    this access, and root does not own it. False for a folder or file that any user may
    write, such as ``/tmp``.
    """
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    is_open = model.status.st_mode & (stat.S_IWOTH | stat.S_ISVTX)
    return is_root and model.status.st_uid != 0 and not is_open


def is_new_folder(descriptor: int) -> bool:
    """Return whether an open folder is empty and belongs to this user.

    Another user may have put another folder in the place of a new one.
    """
    return os.fstat(descriptor).st_uid == os.geteuid() and not os.listdir(descriptor)


def copy_attributes(
    target: int | str, source: FileAccess, *, owner: bool, limit: Limit | None = None
) -> None:
    """Give the file `target` the group, permission bits, ACL and attributes of another.

    `target` is a descriptor; a name only where a system can't change the file of a
    descriptor. With `owner` the file also gets the owner and the security labels.
    `limit` are the attributes of the input; see `FileAccess.limit`. If the
    system refuses one of them, the permission bits become stricter instead.
    """
    mode, wanted, status = source.mode, source.status, os.stat(target)
    is_given = False
    if owner and status.st_uid != wanted.st_uid:
        is_given = _chown(target, wanted.st_uid, wanted.st_gid)
        status = os.stat(target)
    if not is_given and status.st_gid != wanted.st_gid:
        if not _chown(target, -1, wanted.st_gid):
            # A member of the old group may now count as others, and the reverse: both
            # get only the bits that both had.
            both = mode >> 3 & mode & OTHER_BITS
            mode = mode & OWNER_BITS | both << 3 | both
        status = os.stat(target)
    if limit is not None and limit.access == source.access:
        limit = None
    if limit is not None:
        mode = limit.limit(mode, status.st_gid)
    if not _copy_acl(target, source, status.st_gid, mode, limit):
        mode &= OWNER_BITS
    for name, value in source.extended.items():
        if name in LABELS and not owner:
            continue  # the system labels a new file by its folder
        if not _set_attribute(target, name, value) and name in LABELS:
            mode &= OWNER_BITS
    if stat.S_ISDIR(status.st_mode):  # files in the folder get its group
        mode |= status.st_mode & stat.S_ISGID
    elif stat.S_ISDIR(source.status.st_mode):
        mode &= FILE_BITS
    os.chmod(target, mode)


def limit_access(target: int | str, limit: AccessLimits) -> None:
    """Take the bits of each class that can't read the input from a new file."""
    present = FileAccess(target)
    group = present.status.st_gid if present.acl is None else None
    mode = limit.limit(present.mode, group)
    if mode != present.mode:
        os.chmod(target, mode)


def _chown(target: int | str, uid: int, gid: int) -> bool:
    """Set owner and group of a file; return False if the system refuses."""
    if not hasattr(os, "chown"):
        return True
    try:
        os.chown(target, uid, gid)
    except OSError:  # no permission, or an owner that the file system can't store
        return False
    return True


def _copy_acl(
    target: int | str, source: FileAccess, group: int, mode: int, limit: Limit | None
) -> bool:
    """Copy the ACL, if any; return False if `mode` would give more access without it.

    `group` is the group of the target. An ACL that the target has got from its folder
    is removed.
    """
    everyone_read_input = limit is None or (
        limit.limit(GROUP_BITS | OTHER_BITS, None) == GROUP_BITS | OTHER_BITS
    )
    if (
        source.acl
        and mode == source.mode
        and group == source.status.st_gid
        and everyone_read_input
        and _set_attribute(target, ACL, source.acl)
    ):
        return True
    try:
        if ACL in _attribute_names(target):
            os.removexattr(target, ACL)
    except OSError:
        return False
    return source.acl is None


def _set_attribute(target: int | str, name: str, value: bytes) -> bool:
    """Set an extended attribute; return False if the system refuses."""
    try:
        if name in os.listxattr(target) and os.getxattr(target, name) == value:
            return True
        os.setxattr(target, name, value)
    except OSError:
        return False
    return True


def _attribute_names(file: int | str) -> list[str]:
    """Return the names of extended attributes; none where there are no attributes."""
    with suppress(AttributeError, OSError):
        return os.listxattr(file)
    return []


# Which users may read a file


def may_read(uid: int, file: BinaryFile | Held) -> bool:
    """Return whether a user may read a file, by its owner and permission bits.

    The bits of the group say nothing where the file has an access control list.
    """
    status = os.fstat(file.fileno())
    if uid in (0, status.st_uid) or status.st_mode & stat.S_IROTH:
        return True
    by_group = bool(status.st_mode & stat.S_IRGRP)
    return by_group and _is_member(uid, status.st_gid) and acl_of(file) is None


def acl_of(file: BinaryFile | Held) -> bytes | None:
    try:
        return os.getxattr(file.fileno(), ACL)
    except (AttributeError, OSError):  # the system or the file has no lists
        return None


def _is_member(uid: int, gid: int) -> bool:
    try:
        import grp
        import pwd

        user = pwd.getpwuid(uid)
        return user.pw_gid == gid or user.pw_name in grp.getgrgid(gid).gr_mem
    except (ImportError, KeyError):  # the system, user or group is unknown
        return False
