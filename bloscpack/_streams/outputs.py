"""Where a `BloscpackFile` writes to: a new file, or the end of a file that exists.

Contract: every output here has the same methods. ``write`` takes a view of bytes, which
the caller may change afterwards. ``flush`` stores the chunks that are complete.
``finish`` completes the output: only then does a path refer to the new content.
``abandon`` takes the error that ended the writing; a path then has its old content, and
no temporary file remains.
"""

from __future__ import annotations

import os
from functools import partial

from .._crashsafe.locking import open_locked
from .._crashsafe.replace import replacing
from .._storage.base import bytes_left, naming_errors
from .._storage.local import FileRange
from .._storage.stream import is_stream
from .._storage.urls import local_path, without_url
from ..append import UNCHANGED, append_fp, append_locked, read_locked
from ..args import BloscArgs
from ..exceptions import UsageError
from .writing import KEPT_NBYTES, ChunkWriter, Recipe, insert_bytes

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO, Any

    from .._storage.protocols import Buffer, StorageOptions
    from .writing import Insert


class Settings:
    """The settings of an output, as `BloscpackFile` takes them."""

    def __init__(
        self,
        chunk_size: int | str,
        metadata: object,
        nthreads: int | None,
        sync: bool | None,
        storage_options: StorageOptions | None,
        keywords: dict[str, Any],
    ) -> None:
        self.recipe = Recipe(chunk_size, metadata, keywords)  # type: ignore[arg-type]
        self.metadata = metadata
        self.nthreads = nthreads
        self.sync = sync
        self.storage_options = storage_options
        self.keywords = keywords

    @property
    def append_keywords(self) -> dict[str, Any]:
        """The keywords for `append_fp`: a file that exists keeps the other settings."""
        wanted = {
            name: value
            for name, value in self.keywords.items()
            if name in BloscArgs._attributes
        }
        metadata = UNCHANGED if self.metadata is None else self.metadata
        return {**wanted, "metadata": metadata, "nthreads": self.nthreads}


class Output:
    """The contract of this module.

    ``begins_file`` says whether the first byte that is written begins the plain bytes.
    """

    begins_file = True

    def write(self, view: Buffer) -> None:
        """Write bytes, perhaps later."""
        raise NotImplementedError

    def flush(self) -> None:
        """Store the chunks that are complete."""

    def finish(self) -> None:
        """Complete the output."""
        raise NotImplementedError

    def abandon(self, error: BaseException) -> None:
        """Drop the output because of an error."""
        raise NotImplementedError


class NewFile(Output):
    """A new file, which appears under its name when it is complete.

    With `exclusive`, the name must be free when this is made, and in the end.
    """

    def __init__(self, path: str, settings: Settings, exclusive: bool = False) -> None:
        self._replacing = replacing(
            path,
            settings.sync,
            exclusive=exclusive,
            storage_options=settings.storage_options,
        )
        fp = self._replacing.__enter__()
        try:
            self._writer = ChunkWriter(
                fp, settings.recipe, settings.nthreads, _inserter(fp)
            )
        except BaseException as error:
            self._replacing.__exit__(type(error), error, error.__traceback__)
            raise
        self._fp = fp
        self.write = self._writer.write  # type: ignore[method-assign]

    def flush(self) -> None:
        self._writer.flush()
        self._fp.flush()

    def finish(self) -> None:
        self._writer.finish()
        self._replacing.__exit__(None, None, None)

    def abandon(self, error: BaseException) -> None:
        self._writer.abandon()
        self._replacing.__exit__(type(error), error, error.__traceback__)


def _inserter(fp: Any) -> Insert | None:
    """Return how bytes are inserted into a new file; None if they can't be."""
    if hasattr(fp, "insert"):  # an upload in parts keeps the first one
        return lambda data, start, stop: fp.insert(data, start)
    return partial(insert_bytes, fp) if FileRange.over(fp) is not None else None


class WrittenObject(Output):
    """A file object of the caller, which is written and stays open."""

    def __init__(self, fp: Any, settings: Settings) -> None:
        self._fp = fp
        self._writer = ChunkWriter(fp, settings.recipe, settings.nthreads)
        self.write = self._writer.write  # type: ignore[method-assign]

    def flush(self) -> None:
        self._writer.flush()
        flush = getattr(self._fp, "flush", None)
        if flush is not None:
            flush()

    def finish(self) -> None:
        self._writer.finish()

    def abandon(self, error: BaseException) -> None:
        self._writer.abandon()


class _Spooled(Output):
    """Plain bytes that are kept until all of them are appended in a single change.

    They are in memory, or in a file without a name in `folder` if they are many.
    """

    begins_file = False

    def __init__(self, folder: str | None) -> None:
        from tempfile import SpooledTemporaryFile

        # Closed by `append` or `abandon`.
        self._spool: IO[bytes] = SpooledTemporaryFile(KEPT_NBYTES, dir=folder)  # noqa: SIM115
        self._nbytes = 0

    def write(self, view: Buffer) -> None:
        self._spool.write(view)
        self._nbytes += len(view)

    def append(self, function: Callable[..., object], *args: Any, **how: Any) -> None:
        """Call `function`, which appends the bytes."""
        self._spool.seek(0)
        function(*args, self._spool, self._nbytes, **how)
        self._spool.close()

    def abandon(self, error: BaseException) -> None:
        self._spool.close()


class AppendedFile(_Spooled):
    """The end of a file, which is locked meanwhile and changed in the end."""

    def __init__(self, path: str, settings: Settings) -> None:
        self._path = path
        self._settings = settings
        self._locking = open_locked(path, settings.sync is not False)
        with naming_errors(path):
            self._locked_file = self._locking.__enter__()
            try:
                read_locked(self._locked_file)  # raises if it can't be appended to
                super().__init__(os.path.dirname(self._locked_file.target))
            except BaseException as error:
                self._locking.__exit__(type(error), error, error.__traceback__)
                raise

    def finish(self) -> None:
        keywords = self._settings.append_keywords
        with naming_errors(self._path):
            self.append(append_locked, self._locked_file, grow=True, **keywords)
        self._locking.__exit__(None, None, None)

    def abandon(self, error: BaseException) -> None:
        super().abandon(error)
        self._locking.__exit__(type(error), error, error.__traceback__)


class AppendedObject(_Spooled):
    """The end of the file in a file object of the caller, which stays open."""

    def __init__(self, fp: Any, settings: Settings) -> None:
        super().__init__(None)
        self._fp = fp
        self._settings = settings

    def finish(self) -> None:
        self.append(append_fp, self._fp, **self._settings.append_keywords)


def output_to_path(path: str, kind: str, settings: Settings) -> Output:
    """Return the output for a path or URL; `kind` is the letter of the mode."""
    path = os.fsdecode(local_path(path))
    if kind == "a":
        without_url(path, "appending")
    if kind == "a" and not is_stream(path) and _has_content(path):
        return AppendedFile(path, settings)
    return NewFile(path, settings, exclusive=kind == "x")


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
            return AppendedObject(fp, settings)
    return WrittenObject(fp, settings)
