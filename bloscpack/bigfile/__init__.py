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
from ..version import __version__ as __version__
from .attributes import AttributeSet
from .checking import TreeFinding, TreeReport, verify
from .column import Column, ColumnClosedError, FileClosedError
from .file import File, copy, repartition
from .mpi import ColumnMPI, FileMPI, check_unique
from .records import Dataset, isstr, isstrlist

# Other names that the package ``bigfile`` has for these.
BigFile = FileBase = FileLowLevelAPI = File
BigBlock = ColumnLowLevelAPI = Column
BigFileMPI, BigBlockMPI = FileMPI, ColumnMPI
BigData = Dataset
BigFileError = Error
BigFileClosedError, BigBlockClosedError = FileClosedError, ColumnClosedError


def set_buffer_size(bytes: int) -> None:
    """Do nothing: rows are read and written without a buffer of a fixed size."""


__all__ = [
    "AttributeSet",
    "BigBlock",
    "BigBlockClosedError",
    "BigBlockMPI",
    "BigData",
    "BigFile",
    "BigFileClosedError",
    "BigFileError",
    "BigFileMPI",
    "Column",
    "ColumnClosedError",
    "ColumnLowLevelAPI",
    "ColumnMPI",
    "Dataset",
    "Error",
    "File",
    "FileBase",
    "FileClosedError",
    "FileLowLevelAPI",
    "FileMPI",
    "TreeFinding",
    "TreeReport",
    "check_unique",
    "copy",
    "isstr",
    "isstrlist",
    "repartition",
    "set_buffer_size",
    "verify",
]
