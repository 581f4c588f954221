"""Consistent reads of a file that a writer may be changing, without a lock.

Contract: `read_snapshot` returns a result of the state before a change or after it,
never of a mixture. While the file has an undo record, the reader puts the old bytes
over the bytes of the file (`undo.UndoneStorage`). A change that begins or ends during
the read is detected by the status of the file; the read then starts again, unless the
digests of the chunks prove that all chunks belong to one state.
"""

from __future__ import annotations

import errno
import io
import os

from .._storage.base import naming_errors, status_of
from .._storage.disk import disk
from .._storage.paths import is_url, local_path, shown_name
from ..exceptions import FormatError, StorageError
from ..headers import BloscpackHeader, has_undo_record

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO, TypeVar

    from .._types import BinaryFile, Path, StorageOptions
    from ..args import AnyLimits

    Result = TypeVar("Result")
    # Called with the header of a file that another process may change meanwhile. Raises
    # if the bytes read so far may come from two states of the file.
    Check = Callable[[BloscpackHeader], object]

# Maximum number of times that the chunks of a file are read while writers change it.
ATTEMPTS = 10
# Maximum number of times that the sections in front of the chunks are read, which costs
# little, while writers change the file.
BEGINNING_ATTEMPTS = 100


def attempts_for(output: Path) -> int:
    """Return how often the chunks of a file may be read that is written to `output`."""
    from .._storage.stream import is_stream

    # Bytes that were written to a pipe can't be taken back.
    return 1 if is_stream(output) else ATTEMPTS


class FileChanged(Exception):
    """The file has been changed or replaced since it was opened."""


def always_changed(name: Path | None) -> StorageError:
    """Return the error for a file that was changed during each attempt to read it."""
    why = "the file was changed each time it was read"
    return StorageError(errno.EAGAIN, why, shown_name(name or ""))


class Snapshot:
    """An open file and its state when it was opened.

    ``fp`` reads the file as it was before a change that is under way or was
    interrupted. ``beginning_read`` says whether the sections in front of the chunks
    have been read and accepted, ``digested`` whether digests prove that the chunks
    belong to the same state.
    """

    def __init__(self, path: Path, fp: BinaryIO) -> None:
        self._path = path
        self._real_fp = fp
        self._status = status_of(fp)
        self.fp: BinaryIO | io.BufferedReader = fp
        self.beginning_read = False
        self.digested = False

    def undo(self) -> None:
        """If the file ends with an undo record, let ``fp`` read the old content.

        Raises `FormatError` if the undo record is damaged, which may be because the
        change has ended.
        """
        if self._status is not None:
            header = self._status[2]
            if has_undo_record(header) or not header:
                from .undo import settled_file  # rarely needed: `info` must start fast

                self.fp = settled_file(self._real_fp)

    def is_current(self) -> bool:
        """Return whether the file has been neither changed nor replaced since."""
        if self._status != status_of(self._real_fp):
            return False
        try:
            status = os.stat(self._path)
        except OSError:
            return True
        return os.path.samestat(status, os.fstat(self._real_fp.fileno()))

    def check(self, header: BloscpackHeader | None) -> None:
        """Raise `FileChanged` if the bytes read so far may be of two states.

        Readers call it when they have read the sections in front of the chunks, and
        again before they commit an output. `header` is the file header. With a checksum
        in it later checks are unnecessary. None says that the header is damaged, so
        digests prove nothing.
        """
        if not self.digested:
            self.digested = header is not None and bool(header.checksum_impl.size)
            if not self.is_current():
                raise FileChanged
            self.beginning_read = True


def read_snapshot(
    path: Path,
    read: Callable[[BinaryFile, Callable[[BloscpackHeader | None], None]], Result],
    attempts: int = ATTEMPTS,
    *,
    parts: bool = False,
    storage_options: StorageOptions | None = None,
    limits: AnyLimits | None = None,
    undo: bool = True,
) -> Result:
    """Return the result of ``read(fp, check)`` for one state of a file.

    `read` calls `check`, which is `Snapshot.check`. If the file changes meanwhile
    `read` is called again, so it must undo its effects when it raises an error.
    `attempts` is the maximum number of calls that get beyond their first `check`.

    `path` may be a URL, for which `storage_options` are settings of fsspec. `parts`
    says that `read` needs only some bytes, and `limits` are those that it checks.
    Every response is checked to be of the same version of the file, so `check` does
    nothing. Without `undo` an undo record is not applied.

    Raises `StorageError` if the file changed during every attempt, or, at a URL, at
    all.
    """
    path = local_path(os.fspath(path))  # refuses a descriptor, which would be closed
    if is_url(path):
        from .._storage.remote import opened_remote
        from .undo import settled_file

        with opened_remote(
            path, parts=parts, storage_options=storage_options, limits=limits
        ) as fp:
            return read(settled_file(fp) if undo else fp, lambda header: None)
    for _ in range(BEGINNING_ATTEMPTS):
        if not attempts:
            break
        with naming_errors(path), disk.open(path, "rb") as fp:
            snapshot = Snapshot(path, fp)
            try:
                if undo:
                    snapshot.undo()
                result = read(snapshot.fp, snapshot.check)
                snapshot.beginning_read = True
                if snapshot.digested or snapshot.is_current():
                    return result
            except FileChanged:
                pass
            except (FormatError, StorageError):
                if snapshot.is_current():
                    raise
            attempts -= snapshot.beginning_read
    raise always_changed(path)
