"""Writing files so that nothing is lost: all of a file under its name, or none.

`replacing` writes beside the target and renames, so that the name is the commit
point. `Undo` keeps the bytes that are about to be overwritten in a file that is
changed in place, and puts them back when the change fails.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from contextlib import contextmanager, suppress

from .exceptions import StorageError, UsageError
from .ranges import read_up_to

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO

    from .chunks import Buffer

    Path = str | os.PathLike[str]


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def check_distinct(in_file: Path, out_file: Path) -> None:
    """Raise `UsageError` if both names mean the same file."""
    try:
        same = os.path.samefile(in_file, out_file)
    except OSError:
        return
    if same:
        raise UsageError(
            "input '%s' and output '%s' are the same file"
            % (os.fspath(in_file), os.fspath(out_file))
        )


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that takes the place of `path` when the block ends well.

    If the block raises, the new file is removed and `path` stays as it was. A
    symbolic link is followed; permissions are those of the file replaced, or those
    that any new file gets. What is no regular file, like a pipe, is written directly.
    """
    name = os.fspath(path)
    try:
        status = os.stat(name)
    except FileNotFoundError:
        mode = None
    else:
        descriptor = standard_stream(status)
        if descriptor is not None:
            descriptor = os.dup(descriptor)
        if descriptor is not None or not stat.S_ISREG(status.st_mode):
            with _open_stream(path if descriptor is None else descriptor) as stream:
                yield stream
            return
        mode = stat.S_IMODE(status.st_mode)
    target = os.path.realpath(path)
    try:
        temporary, descriptor = _create_beside(target, 0o666 if mode is None else 0o600)
    except OSError as error:
        error.filename = os.fspath(path)  # a name that the caller knows
        raise
    try:
        with open(descriptor, "wb") as fp:
            yield fp
            if mode is not None:
                os.chmod(temporary, mode)
        os.replace(temporary, target)
    except BaseException as error:
        with suppress(FileNotFoundError):  # Ctrl-C just after it was renamed
            os.unlink(temporary)
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            error.filename = name
        raise


class Stream(io.BufferedWriter):
    """A target that is written from front to back, whatever it may be."""

    def seekable(self) -> bool:
        """Return False: what others wrote there must not be sought over."""
        return False


def _open_stream(target: Path | int) -> Stream:
    return Stream(io.FileIO(target, "w"))


def standard_stream(status: os.stat_result) -> int | None:
    """Return the descriptor of standard output or error, if that is the target.

    It may be a regular file, that the shell has opened and goes on to write to.
    """
    for descriptor in (1, 2):
        try:
            if os.path.samestat(status, os.fstat(descriptor)):
                return descriptor
        except OSError:
            continue  # closed
    return None


def _create_beside(target: str, mode: int) -> tuple[str, int]:
    """Return name and descriptor of a new, hidden file in the folder of `target`."""
    folder, name = os.path.split(target)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    number = 0
    while True:
        # Cut so that the name of the new file isn't too long where the target's isn't.
        beside = ".%s.%d-%d.tmp" % (name[:50], os.getpid(), number)
        temporary = os.path.join(folder, beside)
        try:
            return temporary, os.open(temporary, flags, mode)
        except FileExistsError:
            number += 1


def write_all(fp: Any, data: Buffer) -> None:
    """Write all of `data`; raw files and pipes may take a part at a time."""
    written = fp.write(data)
    if written is None and isinstance(fp, io.RawIOBase):
        raise StorageError("the output takes no data now: it must wait for room")
    if written is None or written >= len(data):
        return
    rest = memoryview(data)
    while rest := rest[written:]:
        written = fp.write(rest)
        if not written:
            raise StorageError("the output takes no more data")


def size_of(fp: BinaryIO) -> int | None:
    """Return the bytes of an open file, None where only reading it will tell.

    Pipes have no size, and files that the system makes up as they are read say 0.
    """
    status = os.fstat(fp.fileno())
    if not stat.S_ISREG(status.st_mode):
        return None
    if status.st_size == 0 and fp.peek(1):  # type: ignore[attr-defined]
        return None
    return status.st_size


class Undo:
    """Changes to an open file that are taken back if they can't all be made.

    All changes of the block go through `overwrite` and `truncate`, which keep in
    memory the bytes they destroy. When the block raises, the file gets its old bytes
    and its old length back before the error goes on. This does not cover the end of
    the process or of the machine.
    """

    def __init__(self, fp: Any) -> None:
        self._fp = fp
        self._length = fp.seek(0, os.SEEK_END)
        # What a buffer could not write it would write later, over what was put back.
        self._raw = fp.raw if isinstance(fp, io.BufferedRandom) else fp
        # Everything from here on is kept already.
        self._kept_from = self._length
        self._kept: list[tuple[int, bytes]] = []

    def _keep(self, start: int, stop: int) -> None:
        stop = min(stop, self._kept_from)
        if start < stop:
            self._raw.seek(start)
            self._kept.append((start, read_up_to(self._raw, stop - start)))

    def overwrite(self, offset: int, data: bytes) -> None:
        """Write `data` at `offset`."""
        self._keep(offset, offset + len(data))
        self._raw.seek(offset)
        write_all(self._raw, data)

    def truncate(self, length: int) -> None:
        """Cut the file at `length`."""
        self._keep(length, self._kept_from)
        self._kept_from = min(self._kept_from, length)
        self._raw.truncate(length)

    def __enter__(self) -> Undo:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *rest: object) -> None:
        if error_type is not None:
            self._restore()
        self._raw.flush()
        # The buffer forgets what it has read.
        self._fp.seek(0, os.SEEK_END)

    def _restore(self) -> None:
        if self._raw.seek(0, os.SEEK_END) > self._length:
            self._raw.truncate(self._length)  # first: this may be what makes room
        # Backwards: where two changes met, the first one kept the oldest bytes.
        for offset, data in reversed(self._kept):
            self._raw.seek(offset)
            write_all(self._raw, data)
        self._raw.truncate(self._length)
