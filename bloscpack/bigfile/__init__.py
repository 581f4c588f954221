"""BigFile trees: columns of numbers as raw files in folders, with headers of text.

>>> from bloscpack import bigfile
>>> tree = bigfile.File('snapshot', create=True)
>>> column = tree.create_from_array('0/Position', [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
>>> column.attrs['unit'] = 'kpc/h'
>>> tree['0/Position'][1]
array([4., 5., 6.])
>>> bigfile.verify('snapshot').ok
True

The names are those of the package ``bigfile``, so that scripts carry over: `File`,
`Column`, `Dataset`, ``Error``. The trees are equal, too. ``docs/bigfile.rst`` is a
tutorial.
"""

from __future__ import annotations

from ..exceptions import BloscpackError as Error
from .attributes import AttributeSet
from .checking import TreeFinding, TreeReport, verify
from .column import Column, ColumnClosedError, Dataset
from .file import File, copy, repartition
from .mpi import ColumnMPI, FileMPI

# Names of older scripts.
BigFile = File
BigData = Dataset
BigFileMPI = FileMPI

__all__ = [
    "AttributeSet",
    "BigData",
    "BigFile",
    "BigFileMPI",
    "Column",
    "ColumnClosedError",
    "ColumnMPI",
    "Dataset",
    "Error",
    "File",
    "FileMPI",
    "TreeFinding",
    "TreeReport",
    "copy",
    "repartition",
    "verify",
]
