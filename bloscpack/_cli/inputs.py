"""Find the inputs of a command: the files and datasets that its arguments name.

An argument names a file, a dataset or a folder of files. A line for each reason reports
the files in a folder that are left out. The sizes of inputs are for the progress bar.
"""

from __future__ import annotations

import errno
import os
import re
import stat

from .. import log
from .._commit import journal
from .._storage.urls import is_url, local_path, path_of
from ..constants import EXTENSION, MAGIC
from ..exceptions import BloscpackError
from .console import STREAM

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator

# Names of unfinished outputs: see `disk.create_beside`.
LEFT_OVER = re.compile(r"\..*\.\d+-\d+\.tmp", re.DOTALL)
# Errors of a URL that names no file, but perhaps a folder.
NO_FILE = (errno.ENOENT, errno.EISDIR, errno.EACCES, errno.ENOTSUP)


def is_dataset(path: str) -> bool:
    """Return whether a path is the folder of a dataset.

    A plain folder that contains datasets is one, too, unless it contains `.blp` files.
    """
    place = os.fsdecode(local_path(path))
    if is_url(place):
        return _is_dataset_at(place)
    if not os.path.isdir(place):
        return False
    from .. import dataset

    found = dataset.find(place)
    if found is None or found[0] != "folder":
        return found is not None
    return not any(name.endswith(EXTENSION) for name in os.listdir(place))


def _is_dataset_at(url: str) -> bool:
    """Return whether a URL names a dataset, and not a file.

    A server may send the same bytes for any name: a `.blp` file is recognized first. If
    the server does not answer, opening the URL as a file raises the error.
    """
    if path_of(url).endswith(EXTENSION):
        return False
    from .._storage.remote import RemoteStorage
    from ..exceptions import FormatError, StorageError

    try:
        with RemoteStorage(url) as storage:
            if storage.read_at(0, len(MAGIC)) == MAGIC:
                return False
    except StorageError as error:
        if error.errno not in NO_FILE:
            return False
    from .. import dataset

    try:
        return dataset.find(url) is not None
    except (FormatError, StorageError):
        return False


def has_description(path: str) -> bool:
    """Return whether a folder has the files of a dataset itself."""
    from .. import dataset

    found = dataset.find(path)
    return found is not None and found[0] != "folder"


# Files in folders


def packed_files(args: Namespace, datasets: bool = False) -> list[str]:
    """Return the names in `args.files`, with the compressed files in place of a folder.

    Files in folders below it are included with ``--recursive``. With `datasets`, the
    result has the folder of a dataset, not the files in it, and also each folder
    without datasets and compressed files: `named` refuses that one.
    """
    left_out = LeftOut()
    found: list[str] = []
    is_item = has_description if datasets else None
    for name in args.files:
        # A URL is not tested here: that would take requests.
        if not os.path.isdir(name) or (datasets and is_dataset(name)):
            found.append(name)
            continue
        inside = walk(name, args.recursive, True, EXTENSION, left_out, is_item)
        found += list(inside) or [name] * datasets
    left_out.report()
    if not found:
        log.notice("nothing to do: there are no inputs")
    return found


def walk(
    name: str,
    recursive: bool,
    packed: bool,
    suffix: str,
    left_out: LeftOut,
    is_item: Callable[[str], bool] | None = None,
) -> Iterator[str]:
    """Yield the files in a folder that end with the suffix, or that do not.

    `packed` says which of them; `left_out` notes the others. Folders below for which
    `is_item` returns True are yielded, and not entered. Folders that can't be read
    come last: as inputs they fail with the error of the system, after the others.
    """
    unreadable: list[str] = []
    for folder, folders, files in os.walk(
        name, onerror=lambda error: unreadable.append(str(error.filename))
    ):
        folders.sort()
        for inner in folders[:]:
            path = os.path.join(folder, inner)
            if recursive and is_item is not None and not os.path.islink(path):
                if is_item(path):
                    folders.remove(inner)
                    yield path
            elif not recursive:
                left_out.add("a folder below, which needs -r", path)
            elif os.path.islink(path):
                left_out.add("a symbolic link to a folder", path)
        if not recursive:
            folders.clear()
        for file in sorted(files):
            path = os.path.join(folder, file)
            reason = _reason_against(path, packed, suffix)
            if reason is None:
                yield path
            else:
                left_out.add(reason, path)
    yield from unreadable


def _reason_against(path: str, packed: bool, suffix: str) -> str | None:
    """Return why a file in a folder is not an input; None if it is one."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        return "no regular file"
    if path.endswith(suffix) != packed:
        return "its name %s with '%s'" % (
            "does not end" if packed else "already ends",
            suffix,
        )
    if _is_left_over(path):
        return "a journal or an unfinished file"
    return None


class LeftOut:
    """Files and folders that ``--recursive`` does not include, by reason."""

    def __init__(self) -> None:
        self._paths: dict[str, list[str]] = {}

    def add(self, reason: str, path: str) -> None:
        """Note that a file is not an input."""
        self._paths.setdefault(reason, []).append(path)

    def report(self) -> None:
        """Show a line for each reason, or for each file with ``-v``."""
        for reason, paths in self._paths.items():
            if log.enabled(log.VERBOSE):
                for path in paths:
                    log.notice("skipped '%s': %s" % (path, reason))
            elif len(paths) == 1:
                log.notice("skipped '%s': %s" % (paths[0], reason))
            else:
                more = len(paths) - 1
                log.notice("skipped '%s' and %d more: %s" % (paths[0], more, reason))


def _is_left_over(path: str) -> bool:
    """Return whether a file is a journal or an unfinished output."""
    return bool(LEFT_OVER.fullmatch(os.path.basename(path))) or journal.is_journal(path)


# Sizes


def size_of(name: str) -> int | None:
    """Return the size of a file in bytes; 0 for a missing file, None for a stream."""
    try:
        status = os.stat(name)
    except OSError:
        return None if name == STREAM or is_url(name) else 0
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def plain_size_of(name: str) -> int | None:
    """Return the plain bytes of a file from its header; None if it has none.

    0 if the file can't be read: its error is shown later.
    """
    from .._format.sections import read_header
    from .._storage.stream import Cursor

    if not os.path.isfile(name):
        no_size = os.path.exists(name) or name == STREAM or is_url(name)
        return None if no_size else 0
    try:
        with open(name, "rb") as fp:
            return read_header(Cursor(fp)).nbytes
    except (BloscpackError, OSError):
        return 0
