"""Owner, group and permission bits, copied from a file to the file that replaces it.

Contract: the new file never gives anybody more access than the old one. This is part of
preparing a change; it commits nothing.
"""

from __future__ import annotations

import os
import stat


def copy_ownership(temporary: str | int, replaced: os.stat_result) -> None:
    """Give the file `temporary` the owner, group and permission bits of another file.

    `temporary` is its name or its descriptor. If the system refuses the owner or the
    group, permission bits are removed so that no user has more access than before.
    """
    uid, gid, mode = replaced.st_uid, replaced.st_gid, stat.S_IMODE(replaced.st_mode)
    if not _chown(temporary, uid, gid):
        mode &= ~stat.S_ISUID
        if not _chown(temporary, -1, gid):
            # A member of the old group may now count as "others", and the reverse:
            # both get only the bits that both had.
            both = mode >> 3 & mode & stat.S_IRWXO
            mode = mode & stat.S_IRWXU | both << 3 | both
    os.chmod(temporary, mode)


def _chown(name: str | int, uid: int, gid: int) -> bool:
    """Set owner and group of a file; return False if the system refuses."""
    if not hasattr(os, "chown"):
        return True
    try:
        os.chown(name, uid, gid)
    except PermissionError:
        return False
    return True
