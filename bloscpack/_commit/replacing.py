"""The rule 'rename one file': a new file appears under its name complete or not at all.

`replacing` writes a temporary file in the folder of the target (see `temporary`), and
renames it. An existing target is locked until then.

Commit point
    The rename. By default a new file is on the disk before it replaces another one.
Recovery
    The next writer of the name removes the temporary files of writers that have died.
Trust
    Only the file that was created gets the name: another user who can write to the
    folder may have put another file, or a link, in the place of the temporary file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import BinaryIO

from .._storage.disk import NO_ROOM, disk
from .._storage.paths import is_url, local_path, shown_name, taken_error
from .._storage.stream import is_stream, open_stream, standard_stream
from .._types import Path, StorageOptions
from ..exceptions import UsageError, UsageValueError
from .locking import open_locked
from .ownership import AccessLimits, FileAccess, copy_attributes
from .temporary import TemporaryFile, remove_leftovers

# Why a target may not contain the source.
APART = ": neither may be inside of the other"


def check_distinct(in_file: Path, out_file: Path) -> None:
    """Raise `UsageError` if both names belong to the same file."""
    names = os.fspath(in_file), os.fspath(out_file)  # refuses descriptors
    try:
        same = names[0] == names[1] if is_url(names[0]) else os.path.samefile(*names)
    except FileNotFoundError:
        return
    if same:
        raise UsageError(
            "input '%s' and output '%s' are the same file"
            % (shown_name(in_file), shown_name(out_file))
        )


def check_apart(source: str, target: str) -> None:
    """Raise `UsageError` if one of two names is inside of the folder of the other.

    A target inside of the source would become a part of it; a target around the source
    would replace it.
    """
    if is_url(source):
        return
    paths = [os.path.join(os.path.realpath(name), "") for name in (source, target)]
    for path, inner, relation in (
        (paths[0], paths[1], "the target '%s' is the source '%s', or inside of it"),
        (paths[1], paths[0], "the target '%s' contains the source '%s'" + APART),
    ):
        if inner.startswith(path) and os.path.isdir(path):
            raise UsageValueError(relation % (target, source))


@contextmanager
def replacing(
    path: Path,
    sync: bool | None = None,
    like: FileAccess | AccessLimits | None = None,
    *,
    access: bool = False,
    times: bool = False,
    exclusive: bool = False,
    model: FileAccess | None = None,
    storage_options: StorageOptions | None = None,
) -> Iterator[BinaryIO]:
    """Open a new file, and rename it to `path` when the block ends without an error.

    If the block raises an error, the new file is removed and `path` is unchanged. A
    symbolic link is followed. The new file has the owner and permissions of the file
    that it replaces, or those of any new file. A target that is no regular file, like a
    pipe, is written directly. A URL is stored in one step at the end; `storage_options`
    are settings of fsspec for it, and the other arguments are for local files.

    With `sync` the file is on the disk when this returns; None means that it is if it
    replaces another file, whose content could otherwise be lost in a crash. `like` are
    the attributes of the input, which limit who may read the new file. It gets the
    access of the input with `access`, if it replaces no file, and the times with
    `times`. See `ownership`. With `exclusive` the name must be free, now and in the
    end. If it replaces no file, the new file has owner and access of `model`, if any.
    """
    path = local_path(path)
    if is_url(path):
        from .._storage.upload import uploading

        with uploading(path, storage_options, exclusive) as stored:
            yield stored
        return
    name = os.fsdecode(path)
    if exclusive and os.path.lexists(name):
        raise taken_error(name)
    real = os.path.realpath(name)
    # With `exclusive` a file that has been made since then is not replaced either.
    is_new = exclusive or not os.path.exists(name)
    if is_new:
        # No file can have a name like ``old/``: its real path, ``old``, may be a file,
        # which must not be replaced.
        no_file = os.path.basename(name) in ("", os.curdir)
        if no_file or os.path.lexists(real):
            # Raises nothing if another program has created the file meanwhile.
            os.stat(name)
        remove_leftovers(real)
    elif is_stream(name):
        descriptor = standard_stream(os.stat(name))
        target = name if descriptor is None else os.dup(descriptor)
        with open_stream(target, name) as stream:
            yield stream
        return
    with nullcontext() if is_new else _replaced(name, real) as replaced:
        sync = replaced is not None if sync is None else sync
        source = replaced or model
        if source is None and access and isinstance(like, FileAccess):
            source = like
        try:
            if source is None and like is not None:
                temporary = _with_usual_access(real, like)
            else:
                temporary = TemporaryFile(real, 0o666 if source is None else 0o600)
        except OSError as error:
            error.filename = name  # the caller does not know the temporary name
            raise
        try:
            fp = temporary.fp
            yield fp
            fp.flush()
            if source is not None:
                limit = None if source is like else like
                owner = source is not like
                copy_attributes(temporary.handle, source, owner=owner, limit=limit)
            if like is not None and times:
                status = like.status
                ns = status.st_atime_ns, status.st_mtime_ns
                os.utime(temporary.handle, ns=ns)
            if sync:
                disk.sync(fp)
            temporary.rename(real, exclusive=replaced is None)
            if sync:
                disk.sync_folder(real)
        except BaseException as error:
            temporary.discard()
            if isinstance(error, OSError) and (
                error.errno in NO_ROOM or error.filename == temporary.name
            ):
                error.filename = name
                del error.filename2  # None would appear in the message as '-> None'
            raise


@contextmanager
def _replaced(name: str, real: str) -> Iterator[FileAccess]:
    """Lock the file that is going to be replaced; yield its attributes.

    Temporary files of `real`, its real path, are removed if their writers have died.
    Locking needs read permission. Appending does too, so without it no writer can be
    appending to the file.
    """
    if os.access(name, os.R_OK):
        with open_locked(name, mode="rb") as locked_file:
            yield FileAccess(locked_file.fp.fileno())
    else:
        remove_leftovers(real)
        yield FileAccess(name)


def _with_usual_access(target: str, limit: FileAccess | AccessLimits) -> TemporaryFile:
    """Return a temporary file with the access of any new file.

    It has no bits for a class that can't read the input, whose attributes are `limit`.
    """
    mode = 0o666
    wanted = limit.limit(mode, limit.status.st_gid)
    temporary = TemporaryFile(target, wanted)
    present = FileAccess(temporary.handle)
    strict = limit.limit(mode, None)
    if wanted == strict or (
        present.acl is None and present.status.st_gid == limit.status.st_gid
    ):
        return temporary
    # The folder has given the file another group, or an ACL.
    temporary.discard()
    return TemporaryFile(target, strict)
