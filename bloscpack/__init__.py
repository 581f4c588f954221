"""Bloscpack: a file format and a tool for large typed data, compressed with Blosc.

A public name imports its module when it is first used. Therefore ``import bloscpack``
imports neither NumPy nor Blosc.
"""

from __future__ import annotations

from .version import __version__

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from .args import BloscArgs as BloscArgs
    from .args import BloscpackArgs as BloscpackArgs
    from .args import Limits as Limits
    from .args import MetadataArgs as MetadataArgs
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
    from .numpy_io import pack_ndarray_file as pack_ndarray_file
    from .numpy_io import pack_ndarray_str as pack_ndarray_str
    from .numpy_io import pack_ndarray_to_bytes as pack_ndarray_to_bytes
    from .numpy_io import pack_ndarray_to_file as pack_ndarray_to_file
    from .numpy_io import unpack_ndarray_file as unpack_ndarray_file
    from .numpy_io import unpack_ndarray_from_bytes as unpack_ndarray_from_bytes
    from .numpy_io import unpack_ndarray_from_file as unpack_ndarray_from_file
    from .numpy_io import unpack_ndarray_str as unpack_ndarray_str

# Public module → the names that the package offers from it.
_HOMES = {
    "args": ("BloscArgs", "BloscpackArgs", "Limits", "MetadataArgs"),
    "exceptions": ("BloscpackError", "FormatError", "StorageError", "UsageError"),
    "file_io": (
        "pack_bytes_file",
        "pack_bytes_to_bytes",
        "pack_bytes_to_file",
        "pack_file",
        "pack_file_to_file",
        "unpack_bytes_file",
        "unpack_bytes_from_bytes",
        "unpack_bytes_from_file",
        "unpack_file",
        "unpack_file_from_file",
    ),
    "numpy_io": (
        "pack_ndarray_file",
        "pack_ndarray_str",
        "pack_ndarray_to_bytes",
        "pack_ndarray_to_file",
        "unpack_ndarray_file",
        "unpack_ndarray_from_bytes",
        "unpack_ndarray_from_file",
        "unpack_ndarray_str",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
# All public modules: those without a leading underscore, except `__main__`.
_MODULES = (
    "abstract_io",
    "abstract_objects",
    "append",
    "args",
    "bytes_io",
    "checksums",
    "cli",
    "constants",
    "defaults",
    "exceptions",
    "file_io",
    "headers",
    "log",
    "memory_io",
    "metacodecs",
    "npy_io",
    "numpy_io",
    "pretty",
    "reader",
    "recover",
    "repacking",
    "serializers",
    "verify",
    "version",
)
__all__ = ["__version__", *sorted(_HOME_OF)]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _HOME_OF:
        value: object = getattr(import_module("." + _HOME_OF[name], __name__), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return import_module("." + name, __name__)
    raise AttributeError("module %r has no attribute %r" % (__name__, name))


def __dir__() -> list[str]:
    special = (name for name in globals() if name.startswith("__"))
    return sorted({*special, *__all__, *_MODULES})
