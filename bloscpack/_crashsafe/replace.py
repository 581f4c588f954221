"""New files that appear whole or not at all, in place of an old one or of none.

`replacing` writes beside the target and renames: the name is the commit point. What is
replaced is first what it was before a change that was interrupted, and nobody else may
change it meanwhile. An old file is only given up for one that is safely on the disk.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, nullcontext, suppress

from .._storage.disk import disk
from .._storage.stream import is_stream, open_stream, standard_stream
from ..exceptions import StorageError, UsageError
from . import journal
from .in_place import NO_ROOM
from .locking import open_locked
from .ownership import copy_ownership

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from .._storage.base import Path


def check_distinct(in_file: Path, out_file: Path) -> None:
    """Raise `UsageError` if both names mean the same file."""
    names = os.fspath(in_file), os.fspath(out_file)  # no descriptors
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
    """Open a new file that takes the place of `path` when the block ends well.

    If the block raises, the new file is removed and `path` stays as it was. A
    symbolic link is followed; permissions are those of the file replaced, or those
    that any new file gets. What is no regular file, like a pipe, is written directly.
    With `sync` the file is on the disk when this returns; None means that it is if it
    replaces another one, which would otherwise be lost without it. `like` is the status
    of a file whose times, and permissions where it replaces none, the new one takes.
    """
    name = os.fsdecode(path)
    if not os.path.exists(name):
        _check_new(name)
        _check_no_journal(name)
        with _new_file(name, None, bool(sync), like) as fp:
            yield fp
        return
    if journal.is_one(os.path.realpath(name)):
        raise StorageError(
            "'%s' is the journal of a file, which would be lost with it" % name
        )
    status = os.stat(name)
    if not is_stream(name):
        # What can't be read, nobody can append to.
        readable = os.access(name, os.R_OK)
        if not readable and os.path.lexists(journal.name_for(name)):
            raise StorageError(
                errno.EACCES,
                "it has a journal, and can't be read to be put right",
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
    """Raise what the system says of a name that no file can have, like ``old/``.

    Its real path may be the name of a file, which it must not replace.
    """
    no_file = os.path.basename(name) in ("", os.curdir)
    if no_file or os.path.lexists(os.path.realpath(name)):
        # A link to nothing is no file yet; a file may have been made meanwhile.
        os.stat(name)


def _check_no_journal(name: str) -> None:
    """Raise `StorageError` if there is the journal of a file that had the name.

    It may only have been moved, and a new file must not be taken for it.
    """
    journal_name = journal.name_for(name)
    if journal.load(journal_name) is not None:
        raise StorageError(
            "'%s' belongs to a file that had the name '%s': move it to where that is "
            "now, or remove it if that is gone" % (journal_name, name)
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
        error.filename = name  # one that the caller knows
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
            _give_free_name(temporary, target)
        else:
            disk.rename(temporary, target)
        if sync:
            disk.sync_folder(target)
    except BaseException as error:
        with suppress(FileNotFoundError):  # Ctrl-C just after it was renamed
            disk.remove(temporary)
        if isinstance(error, OSError) and (
            error.errno in NO_ROOM or error.filename == temporary
        ):
            error.filename, error.filename2 = name, None
        raise


def _give_free_name(temporary: str, target: str) -> None:
    """Rename a new file; raises `StorageError` if somebody has taken the name."""
    try:
        disk.link(temporary, target)
    except FileExistsError as error:
        raise StorageError(
            errno.EEXIST, "another program has made this file meanwhile", target
        ) from error
    except OSError:  # no hard links there; what else is wrong shows here too
        disk.rename(temporary, target)
    else:
        disk.remove(temporary)
