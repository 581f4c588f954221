"""A disk that can be looked at, and that can be made to fail.

`WatchedDisk` does what the real one does, and passes every call by a method that a
subclass may replace. Its files are buffered like others, over a `WatchedFile`.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys

from bloscpack._commit import undo  # noqa: F401 - tests change a number of it
from bloscpack._storage.disk import Disk
from bloscpack._storage.local import FileRange


class WatchedFile(io.FileIO):
    """A raw file, all of whose calls pass through the disk that has opened it."""

    def __init__(self, disk, path, mode):
        super().__init__(path, mode)
        self._disk = disk

    def write(self, data):
        return self._disk.do_write(self, data, super().write, self.tell())

    def truncate(self, size=None):
        length = self.tell() if size is None else size
        return self._disk.do("truncate", super().truncate, self, length)

    def readinto(self, buffer):
        return self._disk.do_read(self, memoryview(buffer), super().readinto)

    def read(self, size=-1):
        if size < 0:
            return super().read(size)
        buffer = bytearray(size)
        return bytes(buffer[: self.readinto(buffer)])


class WatchedRange(FileRange):
    """What is read and written at any place of a `WatchedFile`."""

    def __init__(self, raw):
        super().__init__(raw)
        self._raw, self._disk = raw, raw._disk

    def read_into(self, view, offset):
        done = 0
        while done < len(view):
            at = offset + done
            count = self._disk.do_read(
                self._raw,
                view[done:],
                lambda v, at=at: os.preadv(self._raw.fileno(), [v], at),
            )
            if count == 0:
                break
            done += count
        return done

    def write(self, data, offset):
        view = memoryview(data).cast("B")
        while view:
            count = self._disk.do_write(
                self._raw,
                view,
                lambda v, at=offset: os.pwrite(self._raw.fileno(), v, at),
                offset,
            )
            view = view[count:]
            offset += count


class WatchedDisk(Disk):
    """The disk; subclasses learn of every call in `do`, `do_write` and `do_read`."""

    def do(self, kind, call, *arguments):
        """Make a call that is not about bytes; `arguments` may begin with a file."""
        given = arguments[1:] if kind == "truncate" else arguments
        return call(*given)

    def do_write(self, raw, data, call, offset):
        return call(data)

    def do_read(self, raw, view, call):
        return call(view)

    def open(self, path, mode):
        raw = self.do("open", lambda *given: WatchedFile(self, *given), path, mode)
        if "+" in mode:
            return io.BufferedRandom(raw)
        return io.BufferedReader(raw) if "r" in mode else io.BufferedWriter(raw)

    def create(self, name, mode):
        with self.do("create", super().create, name, mode) as fp:
            return io.BufferedRandom(WatchedFile(self, os.dup(fp.fileno()), "r+"))

    def sync(self, fp):
        fp.flush()
        return self.do("sync", super().sync, fp)

    def sync_folder(self, path):
        return self.do("sync_folder", super().sync_folder, path)

    def rename(self, old, new):
        return self.do("rename", super().rename, old, new)

    def rename_to_free_name(self, old, new):
        return self.do("rename", super().rename_to_free_name, old, new)

    def link(self, old, new):
        return self.do("link", super().link, old, new)

    def remove(self, name):
        return self.do("remove", super().remove, name)


@contextlib.contextmanager
def replaced_disk(disk):
    """Let everything go through `disk`."""
    modules = [
        module
        for name, module in sys.modules.items()
        if name.startswith("bloscpack.") and isinstance(vars(module).get("disk"), Disk)
    ]
    genuine = [module.disk for module in modules]
    for module in modules:
        module.disk = disk
    over = FileRange.over
    FileRange.over = staticmethod(lambda fp: _range_over(fp) or over(fp))
    try:
        yield disk
    finally:
        FileRange.over = staticmethod(over)
        for module, its_own in zip(modules, genuine, strict=True):
            module.disk = its_own


def _range_over(fp):
    raw = getattr(fp, "raw", fp)
    if not isinstance(raw, WatchedFile):
        return None
    fp.flush()
    return WatchedRange(raw)
