"""Owner and permission bits of a file, copied to the file that replaces it."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    pass


def copy_ownership(temporary: str, replaced: os.stat_result) -> None:
    """Give a file the owner and the permissions of the one that it stands for.

    Where the system does not allow that, nobody may do more than before.
    """
    uid, gid, mode = replaced.st_uid, replaced.st_gid, stat.S_IMODE(replaced.st_mode)
    if not _chown(temporary, uid, gid):
        mode &= ~stat.S_ISUID
        if not _chown(temporary, -1, gid):
            # Who was of the group may now be one of the others, and the reverse.
            both = mode >> 3 & mode & stat.S_IRWXO
            mode = mode & stat.S_IRWXU | both << 3 | both
    os.chmod(temporary, mode)


def _chown(name: str, uid: int, gid: int) -> bool:
    """Return whether the system allows a file to have that owner and group."""
    if not hasattr(os, "chown"):
        return True
    try:
        os.chown(name, uid, gid)
    except PermissionError:
        return False
    return True
