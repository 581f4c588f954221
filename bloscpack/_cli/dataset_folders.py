"""Which folders are datasets.

A dataset is a folder: a verb asks `is_dataset` before it takes one for a folder of
files.
"""

from __future__ import annotations

import os

from ..constants import EXTENSION


def is_dataset(path: str) -> bool:
    """Return whether a path is the folder of a dataset.

    A plain folder with datasets inside of it is one, too, unless it has `.blp` files.
    """
    if not os.path.isdir(path):
        return False
    from .. import dataset

    found = dataset.find(path)
    if found is None or found[0] != "folder":
        return found is not None
    return not any(name.endswith(EXTENSION) for name in os.listdir(path))


def has_description(path: str) -> bool:
    """Return whether a folder has the files of a dataset itself."""
    from .. import dataset

    found = dataset.find(path)
    return found is not None and found[0] != "folder"
