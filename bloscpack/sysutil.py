"""Kept from 0.16 for benchmarks: flush the caches of the operating system."""

from __future__ import annotations

import os


def drop_caches() -> None:
    """Make Linux drop its page cache, so that files are read from the disk again.

    Raises
    ------
    RuntimeError
        The user is not root.
    """
    if os.geteuid() != 0:
        raise RuntimeError("Need root permission to drop caches")
    with open("/proc/sys/vm/drop_caches", "w") as fp:
        fp.write("3\n")


def sync() -> None:
    """Write all cached data of all file systems to the disks."""
    os.sync()
