"""Which folders are datasets.

A dataset is a folder: a verb asks `is_dataset` before it takes one for a folder of
files.
"""

from __future__ import annotations

import os

from ..constants import EXTENSION
from .exit_codes import EXIT_COULD_NOT, Refusal


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


def names_dataset(path: str) -> bool:
    """Return whether an input is a dataset, or else a file.

    Raises `Refusal` for any other folder, and `OSError` if it can't be read.
    """
    if is_dataset(path):
        return True
    if not os.path.isdir(path):
        return False
    os.scandir(path).close()  # raises why it can't be read
    from ..dataset.conversion.bigfile_trees import is_tree

    if is_tree(path):
        raise Refusal(
            "'%s' is a BigFile tree: see 'blpk bigfile ls' and 'bigfile verify'" % path,
            EXIT_COULD_NOT,
        )
    raise Refusal(
        "expected a file or a dataset, found a folder without the files of one: '%s'"
        % path,
        EXIT_COULD_NOT,
    )


def has_description(path: str) -> bool:
    """Return whether a folder has the files of a dataset itself."""
    from .. import dataset

    found = dataset.find(path)
    return found is not None and found[0] != "folder"
