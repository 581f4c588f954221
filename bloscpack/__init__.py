"""Bloscpack: a file format and a tool for large typed data, compressed with Blosc.

>>> import bloscpack as bp, numpy
>>> bp.save('a.blp', numpy.arange(10), metadata={'unit': 's'})
>>> bp.load('a.blp').tolist()
[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]

A public name imports its module when it is first used; ``import bloscpack`` imports
neither NumPy nor Blosc. ``help(bp.info)`` and so on describe each name:

Arrays
    save(path, array), load(path)          settings that fit; also {name: array, ...}
    open_ndarray                                        part of an array, as a LazyArray
    savez, loadz                                        many arrays, as an ArrayArchive
    pack_ndarray_to_file, unpack_ndarray_from_file      array and file
    pack_ndarray_to_bytes, unpack_ndarray_from_bytes    array and bytes
    pack_npy_to_file, unpack_npy_from_file              .npy file and file
Files and bytes
    pack_file_to_file, unpack_file_from_file            file and file
    pack_bytes_to_file, unpack_bytes_from_file          bytes and file
    pack_bytes_to_bytes, unpack_bytes_from_bytes        bytes and bytes
Files that exist
    info(path)                             sizes, settings and metadata, as a FileInfo
    open(file, mode="rb", ...)             file object, a BloscpackFile, like gzip's
    Reader(file_object)                    part of the plain bytes or rows
    append(path, new_path)                 append the bytes of a file
    append_bytes_to_file, append_ndarray_to_file    append bytes, or rows
    verify(path)                           check all chunks
    recover(path, new_path)                save the intact chunks of a damaged file
    repack(path, clevel=9, ...)            rewrite a file with other settings
    references(path), write_references     let Zarr and xarray read chunks in place
Folders of many files
    dataset.open(path), bigfile.File(path) arrays and tables: Zarr, bcolz, BLZ, BigFile
    dataset.convert(path, new_path)        also from and to CSV, Parquet, HDF5, NumPy
Settings: BloscArgs, BloscpackArgs, MetadataArgs, also as keywords; Limits for reading.
    With auto=True, functions that pack choose settings that fit the data.
Errors: BloscpackError, the base of FormatError, StorageError and UsageError
Deprecated names: pack_file, unpack_file, pack_bytes_file, unpack_bytes_file,
    pack_ndarray_file, unpack_ndarray_file, pack_ndarray_str, unpack_ndarray_str
"""

from __future__ import annotations

import sys

from .version import __version__ as __version__

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from .append import append as append
    from .append import append_bytes_to_file as append_bytes_to_file
    from .append import append_ndarray_to_file as append_ndarray_to_file
    from .args import BloscArgs as BloscArgs
    from .args import BloscpackArgs as BloscpackArgs
    from .args import Limits as Limits
    from .args import MetadataArgs as MetadataArgs
    from .describe import FileInfo as FileInfo
    from .describe import info as info
    from .exceptions import BloscpackError as BloscpackError
    from .exceptions import FormatError as FormatError
    from .exceptions import StorageError as StorageError
    from .exceptions import UsageError as UsageError
    from .file_io import pack_bytes_file as pack_bytes_file
    from .file_io import pack_bytes_to_bytes as pack_bytes_to_bytes
    from .file_io import pack_bytes_to_file as pack_bytes_to_file
    from .file_io import pack_file as pack_file
    from .file_io import pack_file_to_file as pack_file_to_file
    from .file_io import unpack_bytes_file as unpack_bytes_file
    from .file_io import unpack_bytes_from_bytes as unpack_bytes_from_bytes
    from .file_io import unpack_bytes_from_file as unpack_bytes_from_file
    from .file_io import unpack_file as unpack_file
    from .file_io import unpack_file_from_file as unpack_file_from_file
    from .file_object import BloscpackFile as BloscpackFile
    from .file_object import open as open
    from .lazy_array import LazyArray as LazyArray
    from .lazy_array import open_ndarray as open_ndarray
    from .npy_io import pack_npy_to_file as pack_npy_to_file
    from .npy_io import unpack_npy_from_file as unpack_npy_from_file
    from .numpy_io import pack_ndarray_file as pack_ndarray_file
    from .numpy_io import pack_ndarray_str as pack_ndarray_str
    from .numpy_io import pack_ndarray_to_bytes as pack_ndarray_to_bytes
    from .numpy_io import pack_ndarray_to_file as pack_ndarray_to_file
    from .numpy_io import unpack_ndarray_file as unpack_ndarray_file
    from .numpy_io import unpack_ndarray_from_bytes as unpack_ndarray_from_bytes
    from .numpy_io import unpack_ndarray_from_file as unpack_ndarray_from_file
    from .numpy_io import unpack_ndarray_str as unpack_ndarray_str
    from .reader import Reader as Reader
    from .recover import recover as recover
    from .references import references as references
    from .references import write_references as write_references
    from .repacking import repack as repack
    from .saving import load as load
    from .saving import save as save
    from .verify import verify as verify
    from .zip_io import ArrayArchive as ArrayArchive
    from .zip_io import loadz as loadz
    from .zip_io import savez as savez

# Public module → the names that the package offers from it.
_HOMES = {
    "append": "append_bytes_to_file append_ndarray_to_file",
    "args": "BloscArgs BloscpackArgs Limits MetadataArgs",
    "describe": "FileInfo info",
    "exceptions": "BloscpackError FormatError StorageError UsageError",
    "file_io": "pack_bytes_file pack_bytes_to_bytes pack_bytes_to_file pack_file "
    "pack_file_to_file unpack_bytes_file unpack_bytes_from_bytes "
    "unpack_bytes_from_file unpack_file unpack_file_from_file",
    "file_object": "BloscpackFile open",
    "lazy_array": "LazyArray open_ndarray",
    "npy_io": "pack_npy_to_file unpack_npy_from_file",
    "numpy_io": "pack_ndarray_file pack_ndarray_str pack_ndarray_to_bytes "
    "pack_ndarray_to_file unpack_ndarray_file unpack_ndarray_from_bytes "
    "unpack_ndarray_from_file unpack_ndarray_str",
    "reader": "Reader",
    "references": "write_references",
    "repacking": "repack",
    "saving": "load save",
    "zip_io": "ArrayArchive loadz savez",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}
# Modules that are functions too: `bloscpack.verify` is also `bloscpack.verify.verify`.
_CALLABLE_MODULES = ("append", "recover", "references", "verify")
_PUBLIC = sorted(["__version__", *_HOME_OF, *_CALLABLE_MODULES])


def _imported(name: str) -> object:
    """Return a module of the package. importlib would take longer than ``blpk -V``."""
    module = "%s.%s" % (__name__, name)
    __import__(module)
    return sys.modules[module]


def __getattr__(name: str) -> object:
    if name == "__all__":
        # `open` would replace the function of Python in ``from bloscpack import *``.
        return [name for name in _PUBLIC if name != "open"]
    if name in _HOME_OF:
        value: object = getattr(_imported(_HOME_OF[name]), name)
        globals()[name] = value
        return value
    missing = "module %r has no attribute %r" % (__name__, name)
    if name.startswith("_"):
        raise AttributeError(missing)
    try:
        return _imported(name)
    except ModuleNotFoundError as error:
        if error.name != "%s.%s" % (__name__, name):
            raise
        raise AttributeError(missing) from None


def __dir__() -> list[str]:
    return list(_PUBLIC)
