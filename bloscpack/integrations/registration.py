"""Functions that make the compression "blp" known to other libraries.

Strategy: each library calls `BloscpackFile` with a file object and a mode. Each
function may be called any number of times, and replaces what an earlier call has
registered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._compat import import_extra
from ..constants import MAGIC
from ..file_object import BloscpackFile

# Name of the compression, and the extension of files that have it.
NAME = "blp"
MISSING = "the Python package '%s' is not installed"


class RegisteredName(str):
    """The name of a compression; a process that unpickles it registers it."""

    _register: Callable[[], str]

    def __new__(cls, register: Callable[[], str]) -> RegisteredName:
        self = super().__new__(cls, NAME)
        self._register = register
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return self._register, ()


def register_fsspec() -> str:
    """Register the compression ``"blp"`` of fsspec, and return its name.

    ``fsspec.open(..., compression="infer")`` then uses it for names that end with
    ``.blp``, and so do programs that open files through fsspec, such as Dask.

    A process that unpickles the result, or a file of fsspec whose compression was
    inferred, registers it. So does each process that imports Dask.

    Raises
    ------
    UsageError
        If fsspec is not installed.
    """
    compression: Any = import_extra("fsspec.compression", "remote", MISSING)
    name = RegisteredName(register_fsspec)
    compression.register_compression(name, BloscpackFile, NAME, force=True)
    return name


def register_in_dask(sizeof: object) -> None:
    """Register the compression in a process of Dask, which calls this when it starts.

    Dask calls this through the entry points of the group ``dask.sizeof``. No other hook
    runs in each worker, and a worker that doesn't know a compression fails.
    """
    register_fsspec()


def register_joblib() -> str:
    """Register the compression ``"blp"`` of joblib, and return its name.

    ``joblib.dump(value, file, compress=("blp", 3))`` then writes a `.blp` file, and
    ``joblib.load(file)`` reads it. A process that unpickles the result registers it.

    Raises
    ------
    UsageError
        If joblib is not installed.
    """
    joblib: Any = import_extra("joblib", "joblib", MISSING)
    new = import_extra("joblib.compressor", "joblib").CompressorWrapper
    wrapper = new(BloscpackFile, prefix=MAGIC, extension="." + NAME)
    joblib.register_compressor(NAME, wrapper, force=True)
    return RegisteredName(register_joblib)
