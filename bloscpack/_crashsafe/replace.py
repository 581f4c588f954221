"""New files that appear under their name complete or not at all.

Contract: `replacing` writes a temporary file in the folder of the target and renames
it: the rename is the commit point. An existing target is locked meanwhile, and restored
first if a change was interrupted. By default the new file is synced before it replaces
another file.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, nullcontext, suppress

from .._storage.disk import NO_ROOM, disk
from .._storage.stream import is_stream, open_stream, standard_stream
from ..exceptions import StorageError, UsageError
from . import acceptance, journal
from .locking import open_locked
from .ownership import copy_ownership

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from .._storage.protocols import Path


def check_distinct(in_file: Path, out_file: Path) -> None:
    """Raise `UsageError` if both names belong to the same file."""
    names = os.fspath(in_file), os.fspath(out_file)  # refuses descriptors
    try:
        same = os.path.samefile(*names)
    except FileNotFoundError:
        return
    if same:
        raise UsageError(
            "input '%s' and output '%s' are the same file"
            % (os.fsdecode(in_file), os.fsdecode(out_file))
        )


@contextmanager
def replacing(
    path: Path, sync: bool | None = None, like: os.stat_result | None = None
) -> Iterator[BinaryIO]:
    """Open a new file, and rename it to `path` when the block ends without an error.

    If the block raises an error, the new file is removed and `path` is unchanged. A
    symbolic link is followed. The new file has the permission bits of the file that it
    replaces, or those of any new file. A target that is no regular file, like a pipe,
    is written directly.

    With `sync` the file is on the disk when this returns; None means that it is if it
    replaces another file, whose content could otherwise be lost in a crash. `like` is
    the status of a file whose times the new file gets, and whose permission bits it
    gets if it replaces no file.
    """
    name = os.fsdecode(path)
    if not os.path.exists(name):
        _check_new(name)
        _check_no_journal(name)
        with _new_file(name, None, bool(sync), like) as fp:
            yield fp
        return
    if journal.is_journal(os.path.realpath(name)):
        raise StorageError(
            "'%s' is a journal, without which its file could not be restored" % name
        )
    status = os.stat(name)
    if not is_stream(name):
        # Locking needs read permission. Appending does too, so without it no writer can
        # be appending to the file, but an old journal may exist.
        readable = os.access(name, os.R_OK)
        if not readable and os.path.lexists(journal.name_for(name)):
            raise StorageError(
                errno.EACCES,
                "it has a journal, but no read permission, so it can't be restored",
                name,
            )
        locked_file = open_locked(name, mode="rb") if readable else nullcontext()
        with locked_file, _new_file(name, status, sync is not False, like) as fp:
            yield fp
        return
    descriptor = standard_stream(status)
    target = name if descriptor is None else os.dup(descriptor)
    with open_stream(target, name) as stream:
        yield stream


def _check_new(name: str) -> None:
    """Raise the error of the system for a name that no file can have, like ``old/``.

    The real path of that name, ``old``, may be a file, which must not be replaced.
    """
    no_file = os.path.basename(name) in ("", os.curdir)
    if no_file or os.path.lexists(os.path.realpath(name)):
        # Raises nothing if another program has created the file meanwhile.
        os.stat(name)


def _check_no_journal(name: str) -> None:
    """Raise `StorageError` if there is a journal of a file that had this name.

    That file may have been moved and still need its journal, and the journal must not
    be applied to a new file.
    """
    journal_name = journal.name_for(name)
    if acceptance.belongs_to_missing_file(journal_name):
        raise StorageError(
            "'%s' is the journal of a file that had the name '%s': move the journal to "
            "the new place of that file, or remove it if that file is gone"
            % (journal_name, name)
        )


@contextmanager
def _new_file(
    name: str,
    replaced: os.stat_result | None,
    sync: bool,
    like: os.stat_result | None,
) -> Iterator[BinaryIO]:
    target = os.path.realpath(name)
    try:
        temporary, fp = disk.create_beside(
            target, 0o666 if replaced is like is None else 0o600
        )
    except OSError as error:
        error.filename = name  # the caller does not know the temporary name
        raise
    try:
        with fp:
            yield fp
            fp.flush()
            if replaced is not None:
                copy_ownership(temporary, replaced)
            elif like is not None:
                os.chmod(temporary, like.st_mode & 0o777)
            if like is not None:
                os.utime(temporary, ns=(like.st_atime_ns, like.st_mtime_ns))
            if sync:
                disk.sync(fp)
        if replaced is None:
            _rename_to_free_name(temporary, target)
        else:
            disk.rename(temporary, target)  # commit point
        if sync:
            disk.sync_folder(target)
    except BaseException as error:
        with suppress(FileNotFoundError):  # Ctrl-C right after the rename
            disk.remove(temporary)
        if isinstance(error, OSError) and (
            error.errno in NO_ROOM or error.filename == temporary
        ):
            error.filename, error.filename2 = name, None
        raise


def _rename_to_free_name(temporary: str, target: str) -> None:
    """Rename a new file; raise `StorageError` if another program has taken the name.

    A rename would replace the file of that program, a hard link does not.
    """
    try:
        disk.link(temporary, target)  # commit point
    except FileExistsError as error:
        raise StorageError(
            errno.EEXIST, "another program has made this file meanwhile", target
        ) from error
    except OSError:  # no hard links, or an error that the rename raises again
        disk.rename(temporary, target)  # commit point
    else:
        disk.remove(temporary)
