"""A compressed file as a file object, ``bloscpack.open(file)``, like gzip and bz2.

Strategy: `BloscpackFile` checks the mode and the state of the file. Reads go through an
`io.BufferedReader` over a raw file of ``_file/stream_reading``, writes to an output of
``_file/stream_writing``, which decides when a change takes effect. An error in the
content of the file is raised by the first method that needs the content, as in bz2.
"""

from __future__ import annotations

import io
import os
import stat
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from ._engine.forks import OwnLock
from ._file.opened import OpenedFile
from ._file.stream_reading import PlainFile, PlainPipe, stream_error
from ._file.stream_writing import (
    Output,
    OutputSettings,
    output_to_object,
    output_to_path,
)
from ._storage.base import Storage, as_bytes_view, bytes_left, refuse_text
from ._storage.disk import disk
from ._storage.local import storage_of
from ._storage.paths import is_url, local_path, shown_name
from ._types import Json, Path, StorageOptions
from .args import PACK_SETTINGS, AnyLimits, PackKeywords, known_settings
from .constants import MAX_THREADS
from .defaults import DEFAULT_CHUNK_SIZE
from .exceptions import FormatError, StorageError, UsageTypeError, UsageValueError
from .headers import check_range

if TYPE_CHECKING:
    from typing_extensions import Unpack

# The mode of a file for each text that is accepted in its place.
MODES = {text: mode for mode in ("rb", "wb", "xb", "ab") for text in (mode, mode[0])}
MODES[""] = "rb"
# Number of plain bytes that are buffered for small reads.
BUFFER_NBYTES = 128 * 2**10
# Number of bytes from which a view of a written bytes object is faster than copies.
WORTH_A_VIEW = 8 * 2**10


class BloscpackFile(io.BufferedIOBase):
    """A file object over a compressed file: its methods use the plain bytes.

    Parameters
    ----------
    file
        A path, a URL, or a file object, which is used from its current position on (in
        mode ``'ab'`` from its start) and stays open. If a file object to be read can't
        seek, neither can this one.
    mode
        ``'rb'`` reads; ``'wb'`` writes a new file; ``'xb'`` does so if no file has that
        name; ``'ab'`` appends, or writes a new file. The ``b`` may be omitted.
    compresslevel
        Another name of ``clevel``, for functions that take a class of the standard
        library: a number from 1 to 9. As in bz2, mode ``'rb'`` ignores it.
    chunk_size, metadata
        For writing, as in `bloscpack.pack_file_to_file`. In mode ``'ab'`` a file that
        exists keeps its chunk size, and its metadata if `metadata` is None.
    nthreads
        Number of threads; None for the default.
    sync
        For writing, as in `bloscpack.pack_file_to_file`.
    limits
        The sizes that a file to be read must not exceed; see `Limits`.
    whole
        Whether a file to be read may be read as a whole from a server that can't send
        a part.
    storage_options
        Settings of fsspec for a URL, such as keys.
    settings
        For writing: fields of `BloscArgs`, `BloscpackArgs` and `MetadataArgs`. In mode
        ``'ab'`` a file that exists uses those of `BloscArgs` for the new chunks.

    Raises
    ------
    UsageError
        An argument is invalid.
    FormatError
        The file is damaged; the methods that read raise it. It is an ``EOFError`` if
        the end of the file is missing, and an ``OSError`` if the file has another
        format.

    Notes
    -----
    A path that is written refers to the new content when `close` has returned, or the
    ``with`` block has ended without an error. Until then, and after an error, it has
    its old content. An object that is deleted without `close` changes nothing. So does
    a URL; mode ``'ab'`` needs a local file.
    """

    def __init__(
        self,
        file: Path | Any,
        mode: str = "rb",
        *,
        compresslevel: int | None = None,
        chunk_size: int | str = DEFAULT_CHUNK_SIZE,
        metadata: object = None,
        nthreads: int | None = None,
        sync: bool | None = None,
        limits: AnyLimits | None = None,
        whole: bool = False,
        storage_options: StorageOptions | None = None,
        **settings: Unpack[PackKeywords],
    ) -> None:
        self._buffer: io.BufferedReader | None = None
        self._parts: OpenedFile | None = None
        self._opened: Any = None  # a file object that this object closes
        self._output: Output | None = None
        self._written = 0
        self._failure: BaseException | None = None
        # Set while `io.TextIOWrapper` finds out whether new text needs a byte order
        # mark: it needs one at position 0 of a file that can seek.
        self._begins_text = False
        self._closed = True  # until it is open
        if mode not in MODES:
            raise UsageValueError("invalid mode: %r" % (mode,))
        self._kind = MODES[mode][0]
        others: Any = known_settings(settings, PACK_SETTINGS)
        if compresslevel is not None:
            if "clevel" in others:
                raise UsageTypeError("'compresslevel' is another name of 'clevel'")
            check_range("compresslevel", compresslevel, 1, 9)
        if nthreads is not None:
            check_range("nthreads", nthreads, 1, MAX_THREADS)
        # The name as the caller wrote it, None for a file object.
        is_path = isinstance(file, (str, bytes, os.PathLike))
        self._name = os.fspath(file) if is_path else None
        self._file: Any = file if self._name is None else os.fsdecode(self._name)
        refuse_text(file)
        self._label = shown_name(self._name or repr(file))
        self._owner = OwnLock(self._label)
        self._pid = os.getpid()
        if self._kind == "r":
            _refuse(
                "a mode for writing, like 'wb'",
                chunk_size=chunk_size != DEFAULT_CHUNK_SIZE,
                metadata=metadata is not None,
                sync=sync is not None,
                **dict.fromkeys(others, True),
            )
            how = {"limits": limits, "whole": whole, "storage_options": storage_options}
            self._open_input(nthreads, how)
        else:
            _refuse("the mode 'rb'", limits=limits is not None, whole=whole)
            if compresslevel is not None:
                others["clevel"] = compresslevel
            args = chunk_size, metadata, nthreads, sync, storage_options
            how_to_write = OutputSettings(*args, others)
            if isinstance(self._file, str):
                self._output = output_to_path(self._file, self._kind, how_to_write)
            elif hasattr(file, "write"):
                self._output = output_to_object(file, self._kind, how_to_write)
            else:
                raise _no_file(file)
        self._closed = False

    def _open_input(self, nthreads: int | None, how: dict[str, Any]) -> None:
        """Open the file; `how` has other keywords of `OpenedFile`."""
        file: Any = self._file
        if isinstance(file, str):
            file = local_path(file)
            if not is_url(file) and not stat.S_ISREG(os.stat(file).st_mode):
                file = self._opened = disk.open(file, "rb")
        elif not isinstance(file, Storage) and not hasattr(file, "read"):
            raise _no_file(file)
        if hasattr(file, "read"):
            if bytes_left(file) is None:
                pipe = PlainPipe(file, how["limits"], nthreads)
                self._buffer = io.BufferedReader(pipe, BUFFER_NBYTES)
                return
            file = storage_of(file)
        try:
            self._parts = OpenedFile(file, nthreads=nthreads, **how)
        except FormatError as error:
            self._failure = stream_error(error)
            return
        raw = PlainFile(self._parts, nthreads)
        self._buffer = io.BufferedReader(raw, BUFFER_NBYTES)

    # State

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return self._closed

    @property
    def name(self) -> str | bytes:
        """The path, or the URL without credentials; of a file object, its ``name``."""
        self._check_open()
        if self._name is None:
            return self._file.name  # type: ignore[no-any-return]
        return shown_name(self._name) if is_url(self._name) else self._name

    @property
    def mode(self) -> str:
        """``'rb'`` for a file that is read, ``'wb'`` for one that is written."""
        return "rb" if self._kind == "r" else "wb"

    @property
    def metadata(self) -> Json:
        """The metadata of a file that is read; None if it has none."""
        self._find_buffer()
        if self._parts is not None:
            return self._parts.metadata
        return self._buffer.raw.metadata  # type: ignore[union-attr]

    def readable(self) -> bool:
        """Return whether the file was opened for reading."""
        self._check_open()
        return self._kind == "r"

    def writable(self) -> bool:
        """Return whether the file was opened for writing."""
        self._check_open()
        return self._kind != "r"

    def seekable(self) -> bool:
        """Return whether `seek` works: for reading, except from a pipe."""
        self._check_open()
        if self._kind != "r":
            return self._begins_text
        return self._buffer is None or self._buffer.seekable()

    def fileno(self) -> NoReturn:
        """Raise `io.UnsupportedOperation`: the descriptor has the compressed bytes."""
        self._check_open()
        raise io.UnsupportedOperation("a BloscpackFile has no file descriptor")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("cannot pickle '%s' object: it is open" % type(self).__name__)

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("I/O operation on closed file")

    def _find_buffer(self) -> io.BufferedReader:
        """Return the buffer, or raise the error that explains why there is none."""
        self._check_open()
        if self._failure is not None and self._kind == "r":
            raise self._failure
        if self._buffer is None:
            raise io.UnsupportedOperation("the file is not open for reading")
        return self._buffer

    # Reading

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to `size` plain bytes; all that are left if it is negative or None.

        Fewer are returned only at the end of the file.
        """
        return (self._buffer or self._find_buffer()).read(size)

    def read1(self, size: int = -1, /) -> bytes:
        """Return up to `size` plain bytes; if it is negative, as many as are handy."""
        buffer = self._buffer or self._find_buffer()
        return buffer.read1(BUFFER_NBYTES if size < 0 else size)

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer with plain bytes; return their number."""
        return (self._buffer or self._find_buffer()).readinto(buffer)

    def readinto1(self, buffer: Any, /) -> int:
        """Fill a buffer with plain bytes that are handy; return their number."""
        return (self._buffer or self._find_buffer()).readinto1(buffer)

    def readline(self, size: int = -1, /) -> bytes:  # type: ignore[override]
        """Return the bytes up to the end of a line, at most `size` if not negative."""
        if size is None:
            raise TypeError("expected a number of bytes, found None")
        return (self._buffer or self._find_buffer()).readline(size)

    def readlines(self, hint: int = -1, /) -> list[bytes]:
        """Return the lines that are left; stop when they have `hint` bytes or more."""
        if hint is None:
            raise TypeError("expected a number of bytes, found None")
        return (self._buffer or self._find_buffer()).readlines(hint)

    def __next__(self) -> bytes:
        return (self._buffer or self._find_buffer()).__next__()

    def peek(self, size: int = 0, /) -> bytes:
        """Return some of the next plain bytes without moving; b'' only at the end."""
        return (self._buffer or self._find_buffer()).peek(size)

    def pread(self, size: int, offset: int, /) -> bytes:
        """Return up to `size` plain bytes from position `offset` on.

        The position of the file is neither used nor changed, so many threads may call
        this at once. Fewer bytes are returned only at the end of the file; a negative
        `size` means all up to the end.
        """
        self._find_buffer()
        if self._parts is None:
            raise io.UnsupportedOperation("the file can't seek")
        if offset < 0:
            raise ValueError("the offset %d is negative" % offset)
        stop = self._parts.nbytes if size < 0 else offset + size
        try:
            return self._parts.read(offset, stop)
        except FormatError as error:
            raise stream_error(error) from error

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to a position in the plain bytes and return it.

        A position before the start means the start, and one behind the end the end.
        """
        buffer = self._buffer or self._find_buffer()
        if not buffer.seekable():
            raise io.UnsupportedOperation("the file can't seek")
        return buffer.seek(offset, whence)

    def tell(self) -> int:
        """Return the position: the number of plain bytes before it."""
        self._check_open()
        if self._begins_text and self._output is not None:
            return 0 if self._output.begins_file else 1
        return self._written if self._kind != "r" else self._find_buffer().tell()

    # Writing

    def write(self, data: Any, /) -> int:
        """Compress bytes, perhaps later; return their number.

        Any contiguous or other buffer is accepted. An error may concern bytes that were
        written before; after it, nothing more can be written.
        """
        if type(data) is not bytes or len(data) > WORTH_A_VIEW:
            data = as_bytes_view(data)
        # In another process, `checked` raises the error.
        owner = self._owner
        with owner.lock if self._pid == os.getpid() else owner.checked():
            output = self._find_output()
            try:
                output.write(data)
            except BaseException as error:
                self._failure = error
                raise
            self._written += len(data)
        return len(data)

    def flush(self) -> None:
        """Store the complete chunks; the last bytes may stay in memory."""
        self._check_open()
        if self._kind == "r":
            return
        with self._owner.checked():
            output = self._find_output()
            try:
                output.flush()
            except BaseException as error:
                self._failure = error
                raise

    def _find_output(self) -> Output:
        """Return the output, or raise the error that explains why there is none."""
        output = self._output
        if output is None or self._failure is not None:
            self._check_open()
            if output is None:
                raise io.UnsupportedOperation("the file is not open for writing")
            raise StorageError(
                "nothing more can be written after an error: %s" % self._failure
            ) from self._failure
        return output

    # Closing

    def close(self) -> None:
        """Close the file. A file that was written is now complete.

        The second call does nothing. After an error of an earlier `write`, the output
        is abandoned, and this raises `StorageError`. In a process that has inherited
        a file that is written, it raises `UsageError`, and changes nothing.
        """
        is_inherited = self._output is not None and not self._owner.is_here
        self._end(None)
        if is_inherited:
            self._owner.check(self._label)

    def _end(self, error: BaseException | None) -> None:
        """Close the file; one that is written fails if there is an error."""
        if not self._owner.is_here:
            if self._output is not None:
                _OF_PARENT.append(self._output)
                self._output.leave()
            self._release()
            return
        with self._owner.checked():
            output = self._output
            try:
                if output is not None and error is None:
                    self._find_output().finish()
            except BaseException as failure:
                error = failure
                raise
            finally:
                try:
                    if output is not None and error is not None:
                        output.abandon(error)
                finally:
                    self._release()

    def _release(self) -> None:
        buffer, self._buffer = self._buffer, None
        parts, self._parts = self._parts, None
        opened, self._opened = self._opened, None
        self._output, self._closed = None, True
        for part in (buffer, parts, opened):
            if part is not None:
                part.close()

    def __exit__(self, *error: Any) -> None:
        if error[1] is not None:
            self._end(error[1])
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_closed", True):
            return
        if self._output is None:
            self.close()
            return
        self._end(StorageError("the file was not closed"))
        if self._owner.is_here:
            warnings.warn(
                "the file %r was not closed, so nothing was written" % self._label,
                ResourceWarning,
                source=self,
                stacklevel=2,
            )


# Outputs that a child process has inherited: their threads exist only in the owner, so
# they must not be collected.
_OF_PARENT: list[object] = []


class _TextFile(io.TextIOWrapper):
    """Text over a `BloscpackFile`; an exception in a ``with`` block abandons both."""

    buffer: BloscpackFile

    def __exit__(self, *error: Any) -> None:
        if error[1] is not None:
            self.buffer._end(error[1])
        self.close()

    def __del__(self) -> None:
        # The finalizer of the base class would complete the output.
        with suppress(ValueError, AttributeError):  # it is detached, or was never made
            self.buffer.__del__()


def open(
    file: Path | Any,
    mode: str = "rb",
    *,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    **settings: Any,
) -> BloscpackFile | io.TextIOWrapper:
    """Open a compressed file in binary or text mode.

    Parameters
    ----------
    file
        A path, a URL or a file object; see `BloscpackFile`.
    mode
        A mode of `BloscpackFile`, or one with ``t`` in place of ``b`` for text:
        ``'rt'``, ``'wt'``, ``'xt'`` or ``'at'``.
    encoding, errors, newline
        As in the function ``open`` of Python; for text modes only.
    settings
        The other parameters of `BloscpackFile`.

    Examples
    --------
    >>> with open('lines.blp', 'wt', encoding='utf-8') as file:
    ...     _ = file.write('first\\nsecond\\n')
    >>> with open('lines.blp') as file:
    ...     file.readlines()
    [b'first\\n', b'second\\n']
    """
    if not isinstance(mode, str):
        raise UsageTypeError("'mode' must be of type 'str', not %r" % (mode,))
    text = "t" in mode
    if text and "b" in mode:
        raise UsageValueError("invalid mode: %r" % (mode,))
    given = {"encoding": encoding, "errors": errors, "newline": newline}
    for name, value in given.items():
        if value is not None and not text:
            raise UsageValueError("'%s' needs a text mode, like 'rt'" % name)
    binary = BloscpackFile(file, mode.replace("t", "", 1), **settings)
    if not text:
        return binary
    try:
        binary._begins_text = True
        return _TextFile(binary, io.text_encoding(encoding), errors, newline)
    except BaseException as error:
        binary._end(error)
        raise
    finally:
        binary._begins_text = False


def _refuse(needed: str, **given: bool) -> None:
    """Raise `UsageError` if an argument is given that needs another mode."""
    for name, is_given in given.items():
        if is_given:
            raise UsageValueError("'%s' needs %s" % (name, needed))


def _no_file(file: object) -> UsageTypeError:
    return UsageTypeError("expected a path, a URL or a file object, found %r" % (file,))
