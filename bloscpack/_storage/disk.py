"""What is asked of the system to make, keep and remove files.

Everything that decides whether data survive a crash passes through `disk`, so that a
test can put another in its place, and stop the world after every step.
"""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Any

    from .base import Path

# What systems say whose folders can't be synced, or need not be.
NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM, errno.EBADF)


class Disk:
    """The file system."""

    def open(self, path: Path, mode: str) -> Any:
        """Return a file object."""
        return open(path, mode)

    def create(self, name: str, mode: int) -> Any:
        """Return a file object to write a new file; the name must be free."""

        def opener(path: str, flags: int) -> int:
            return os.open(path, flags, mode)

        return open(name, "xb", opener=opener)

    def create_beside(self, target: str, mode: int) -> tuple[str, Any]:
        """Return the name of a new, hidden file beside `target`, and what writes it."""
        folder, name = os.path.split(target)
        number = 0
        while True:
            # Cut so that the new name isn't too long where the target's isn't.
            beside = ".%s.%d-%d.tmp" % (name[:50], os.getpid(), number)
            temporary = os.path.join(folder, beside)
            number += 1
            if os.path.lexists(temporary):
                continue
            try:
                return temporary, self.create(temporary, mode)
            except FileExistsError:
                continue
            except BaseException:  # Ctrl-C just after it was made
                if os.path.lexists(temporary):
                    self.remove(temporary)
                raise

    def sync(self, fp: Any) -> None:
        """Return once everything in the file object `fp` is on the disk."""
        fp.flush()
        os.fsync(fp.fileno())

    def sync_folder(self, path: str) -> None:
        """Return once the names in the folder of `path` are on the disk."""
        if os.name == "nt":  # where folders can't be opened
            return
        try:
            folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            if error.errno not in NO_FOLDER_SYNC:
                raise

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in place of the file that has it."""
        os.replace(old, new)

    def link(self, old: str, new: str) -> None:
        """Give a file a second name, which must be free."""
        os.link(old, new)

    def has_one_name(self, fp: Any) -> bool:
        """Return whether a file has no hard links beside its name."""
        return os.fstat(fp.fileno()).st_nlink == 1

    def remove(self, name: str) -> None:
        """Remove a file."""
        os.unlink(name)


disk = Disk()
