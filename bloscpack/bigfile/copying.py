"""Copies of blocks and trees: the same rows, perhaps in another number of files.

A copy is read and written in pieces. Its checksums are those of its own bytes, and its
attributes keep their types. Rows that no writer has finished are not copied; the copy
lists them as unfinished, too. Only users who can read a block can read its copy.
"""

from __future__ import annotations

import numpy

from ..exceptions import UsageValueError
from .dtypes import check_convertible

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .._format.row_sets import Rows
    from .column import Column
    from .dtypes import Array, DType
    from .file import File

    Progress = Callable[[int], object]


class Watched:
    """Rows to be copied: a column or another table. It reports the bytes it reads.

    `dtype` is the type that the copy has.
    """

    def __init__(
        self, table: Any, dtype: DType | None = None, progress: Progress | None = None
    ) -> None:
        self._table = table
        self._progress = progress
        self.dtype = table.dtype if dtype is None else dtype
        self.shape = table.shape
        # Where pieces should end; see `file.pieces_of`.
        self.chunks = getattr(table, "chunks", None)

    def __getitem__(self, index: slice) -> Array:
        rows: Array = self._table[index]
        if self._progress is not None:
            self._progress(rows.nbytes)
        return rows


def repartition(
    file: File,
    block: str,
    new_block: str,
    Nfile: int,
    *,
    dtype: Any = None,
    progress: Progress | None = None,
) -> Column:
    """Copy a block of a tree to a new block with another number of data files.

    Parameters
    ----------
    dtype
        Another type for the items; they are converted.
    progress
        Called with the number of bytes of each piece that has been read.
    """
    return copy(
        file, block, file, new_block, Nfile=Nfile, dtype=dtype, progress=progress
    )


def copy(
    source: File,
    block: str,
    target: File,
    new_block: str | None = None,
    *,
    Nfile: int | None = None,
    dtype: Any = None,
    progress: Progress | None = None,
) -> Column:
    """Copy a block with its attributes, to another name or to another tree.

    Parameters
    ----------
    new_block
        The name of the copy; by default that of the block.
    Nfile
        The number of data files; by default that of the block.
    dtype, progress
        See `repartition`.
    """
    new_block = block if new_block is None else new_block
    old = source.open(block)
    new_folder = target._tree.folder(target._full(new_block))
    # Two names may lead to one folder, through links or the tree of a group.
    if old._folder == new_folder:
        raise UsageValueError("'%s' would be copied over itself" % block)
    dtype = old.dtype if dtype is None else numpy.dtype(dtype)
    check_convertible(old.dtype, dtype)
    limited = target._limited(source._tree.limits_of(old._folder, new_folder))
    if not old.nmemb:
        new = limited.create(new_block)
    else:
        nfile = old.nfile if Nfile is None else Nfile
        watched = Watched(old, dtype, progress)
        unwritten = old._unwritten()
        if unwritten:
            new = _copy_in_part(watched, limited, new_block, nfile, unwritten)
        else:
            new = limited.create_from_array(new_block, watched, nfile)
    target.refresh()
    if len(old.attrs):
        new.attrs.copy_from(old.attrs)
    return new


def _copy_in_part(
    rows: Watched, target: File, new_block: str, nfile: int, unwritten: Rows
) -> Column:
    """Create a block with the rows that are not `unwritten`, and note the others."""
    from .file import new_header, row_dtype, store

    return target.create_filled(
        target._full(new_block),
        new_header(row_dtype(rows), rows.shape[0], nfile),
        lambda column: store(rows, column, 0, unwritten),
        unwritten,
    )
