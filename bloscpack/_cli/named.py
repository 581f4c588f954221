"""What the user named: a file, or a dataset in a folder or at a URL.

`named` looks once at what is there. A verb calls the methods of the result, which
`NamedFile` and `NamedDataset` both have; it need not know which of them it has.
"""

from __future__ import annotations

import os

from .exit_codes import BIGFILE_TREE, EXIT_COULD_NOT, Refusal
from .inputs import is_dataset
from .named_file import NamedFile

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import TypeAlias

    from .named_dataset import NamedDataset

    Named: TypeAlias = "NamedFile | NamedDataset"


def named(path: str) -> Named:
    """Return the file or the dataset of a name; a missing file is a file.

    Raises `Refusal` for any other folder, and `OSError` if it can't be read.
    """
    if is_dataset(path):
        from .named_dataset import NamedDataset

        return NamedDataset(path)
    if not os.path.isdir(path):
        return NamedFile(path)
    os.scandir(path).close()  # raises why it can't be read
    from ..dataset.conversion.bigfile_trees import is_tree

    if is_tree(path):
        raise Refusal(BIGFILE_TREE % path, EXIT_COULD_NOT)
    raise Refusal(
        "expected a file or a dataset, found a folder without the files of one: '%s'"
        % path,
        EXIT_COULD_NOT,
    )
