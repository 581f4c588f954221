"""The rows that ``blpk append`` adds to a dataset: of a file, or of another dataset.

They are read as `convert` reads them, in blocks; text and Parquet files for a table,
whose columns grow together, at once. A file without a known format has raw items.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import dataset
from .._storage.paths import is_url
from ..constants import MAGIC, NPY_MAGIC
from ..dataset.conversion import contents
from ..dataset.conversion.array_formats import UNKNOWN_LENGTH
from ..dataset.rows import joined
from .console import name_of_input, quoted_input
from .contents import Opened, describe, opened
from .exit_codes import WrongUsage
from .info_text import short
from .inputs import begins_with, why_no_items
from .options import given_delimiter

# The ends of the names of files that hold tables or archives of arrays.
SUFFIXES = (".csv", ".parquet", ".pq", ".npz", ".zip")


@contextmanager
def rows_of(
    args: Namespace, new_file: str, found: dataset.Array | dataset.Table
) -> Iterator[object]:
    """Yield the rows in a file or another dataset, for the array or table `found`."""
    path = name_of_input(new_file, seekable=True)
    settings: dict[str, object] = {**given_delimiter(args)}
    if not (args.npy or _has_format(path, args)):
        wrong = why_no_items(path, args)
        if found.dtype.hasobject:
            wrong = wrong or "raw items are of one size, and text of any length is not"
        if wrong:
            raise WrongUsage(wrong)
        settings["raw"] = found.dtype, (UNKNOWN_LENGTH, *found.shape[1:])
    elif isinstance(found, dataset.Table):
        settings["dtypes"] = {name: found.dtype[name].base for name in found.names}
    with opened(path, args.nthreads, **settings) as source:
        yield _rows_in(source, found)


def _has_format(path: str, args: Namespace) -> bool:
    """Return whether a path is a folder or a URL, or a file that is not raw items."""
    if is_url(path) or os.path.isdir(path):
        return True
    begins = begins_with(path, MAGIC) or begins_with(path, NPY_MAGIC)
    return not args.force and (begins or path.endswith(SUFFIXES))


def _rows_in(source: Opened, found: Any) -> object:
    """Return the rows for a table, and an iterator of blocks for an array."""
    content = contents.without_group(source.content)
    is_of_table = isinstance(found, dataset.Table)
    if is_of_table and contents.is_table(content):
        table = contents.as_table(content)
        if not isinstance(table.array, contents.Stream):
            return table.columns
        return joined([*table.blocks()], table.dtype, ())
    if not is_of_table and content.kind == "array":
        assert isinstance(content, contents.Rows)
        return contents.with_rows(content).blocks()
    expected = "the fields " + ", ".join(found.names) if is_of_table else "an array"
    texts = quoted_input(source.name), expected, short(describe(source))
    raise WrongUsage("%s: expected %s, found %s" % texts)
