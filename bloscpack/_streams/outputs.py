"""Where a `BloscpackFile` writes to: a new file, or the end of a file that exists.

Contract: every output here has the same methods. ``write`` takes a view of bytes, which
the caller may change afterwards. ``flush`` stores the chunks that are complete.
``finish`` completes the output: only then does a path refer to the new content.
``abandon`` takes the error that ended the writing; a path then has its old content, and
no temporary file remains.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial

from .._appending.chunks import read_sections
from .._crashsafe.locking import open_locked
from .._crashsafe.replace import replacing
from .._storage.base import bytes_left, naming_errors
from .._storage.local import FileRange
from .._storage.stream import is_stream
from .._storage.urls import local_path, without_url
from ..append import append_fp, append_locked
from ..exceptions import StorageError, UsageError
from .writing import KEPT_NBYTES, ChunkWriter, insert_bytes

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from typing import IO, Any

    from .._crashsafe.locking import LockedFile
    from .._storage.protocols import Buffer
    from .writing import Insert, Settings


class Output:
    """The contract of this module.

    `opened` is what has to be left at the end: with the error of `abandon`, or without
    an error. ``begins_file`` says whether the first byte that is written begins the
    plain bytes.
    """

    begins_file = True

    def __init__(self, opened: ExitStack) -> None:
        self._opened = opened

    def write(self, view: Buffer) -> None:
        """Write bytes, perhaps later."""
        raise NotImplementedError

    def flush(self) -> None:
        """Store the chunks that are complete."""

    def finish(self) -> None:
        """Complete the output."""
        self._opened.close()

    def abandon(self, error: BaseException) -> None:
        """Drop the output because of an error."""
        self._opened.__exit__(type(error), error, error.__traceback__)

    def leave(self) -> None:
        """Close the files in a process that has inherited the output.

        Otherwise the order in which Python drops them at the end of the process decides
        what happens to the buffers and the file positions of the owner.
        """
        Output.abandon(self, StorageError("the output belongs to another process"))


class Written(Output):
    """A new file, or a file object of the caller: chunks are written as they come."""

    def __init__(
        self,
        opening: AbstractContextManager[Any],
        settings: Settings,
        insert_into: Callable[[Any], Insert | None],
    ) -> None:
        with ExitStack() as stack:
            self._fp = stack.enter_context(opening)
            self._writer = ChunkWriter(self._fp, settings, insert_into(self._fp))
            super().__init__(stack.pop_all())
        self.write = self._writer.write  # type: ignore[method-assign]

    def flush(self) -> None:
        self._writer.flush()
        if hasattr(self._fp, "flush"):
            self._fp.flush()

    def finish(self) -> None:
        self._writer.finish()
        super().finish()

    def abandon(self, error: BaseException) -> None:
        self._writer.abandon()
        super().abandon(error)


def _inserter(fp: Any) -> Insert | None:
    """Return how bytes are inserted into a new file; None if they can't be."""
    if hasattr(fp, "insert"):  # an upload in parts keeps the first one
        return lambda data, start, stop: fp.insert(data, start)
    return partial(insert_bytes, fp) if FileRange.over(fp) is not None else None


class Appended(Output):
    """Plain bytes that are kept until all of them are appended in a single change.

    They are in memory, or in a file without a name in `folder` if they are many.
    `append` is called with what `opening` yields, a file object and its size.
    """

    begins_file = False

    def __init__(
        self,
        opening: AbstractContextManager[Any],
        folder: str | None,
        append: Callable[..., object],
    ) -> None:
        from tempfile import SpooledTemporaryFile

        with ExitStack() as stack:
            self._target = stack.enter_context(opening)
            spool = SpooledTemporaryFile(KEPT_NBYTES, dir=folder)  # noqa: SIM115
            self._spool: IO[bytes] = stack.enter_context(spool)
            super().__init__(stack.pop_all())
        self._append = append
        self._nbytes = 0

    def write(self, view: Buffer) -> None:
        self._spool.write(view)
        self._nbytes += len(view)

    def finish(self) -> None:
        self._spool.seek(0)
        self._append(self._target, self._spool, self._nbytes)
        super().finish()


@contextmanager
def _locked(path: str, sync: bool) -> Iterator[LockedFile]:
    """Lock a file; raise an error if it can't be appended to."""
    with naming_errors(path), open_locked(path, sync) as locked_file:
        read_sections(locked_file)
        yield locked_file


def output_to_path(path: str, kind: str, settings: Settings) -> Output:
    """Return the output for a path or URL; `kind` is the letter of the mode."""
    path = os.fsdecode(local_path(path))
    if kind == "a":
        without_url(path, "appending")
    if kind == "a" and not is_stream(path) and _has_content(path):
        append = partial(append_locked, grow=True, **settings.append_keywords)
        folder = os.path.dirname(os.path.realpath(path))
        return Appended(_locked(path, settings.sync is not False), folder, append)
    opening = replacing(
        path,
        settings.sync,
        exclusive=kind == "x",
        storage_options=settings.storage_options,
    )
    return Written(opening, settings, _inserter)


def _has_content(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except FileNotFoundError:
        return False


def output_to_object(fp: Any, kind: str, settings: Settings) -> Output:
    """Return the output for a file object; `kind` is the letter of the mode."""
    if kind == "a":
        if not (hasattr(fp, "read") and hasattr(fp, "seek")) or not fp.seekable():
            raise UsageError(
                "appending needs a file object that can seek and that was opened for "
                "reading and writing"
            )
        fp.seek(0)
        if bytes_left(fp):
            append = partial(append_fp, **settings.append_keywords)
            return Appended(nullcontext(fp), None, append)
    return Written(nullcontext(fp), settings, lambda fp: None)
