"""Which folders and URLs are datasets.

A dataset is a folder: `is_dataset` tells it from a folder of files, and the URL of a
dataset from the URL of a file.
"""

from __future__ import annotations

import errno
import os

from .._storage.urls import is_url, local_path, path_of
from ..constants import EXTENSION, MAGIC

# Errors of a URL that is no file, and may be the URL of a folder.
NO_FILE = (errno.ENOENT, errno.EISDIR, errno.EACCES, errno.ENOTSUP)


def is_dataset(path: str) -> bool:
    """Return whether a path is the folder of a dataset.

    A plain folder with datasets inside of it is one, too, unless it has `.blp` files.
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
