"""Names for programs written for release 0.16, and modules that can be called.

A module of 0.16 that imported a name from another module of the package had this name
too: ``bloscpack.args.check_range`` is ``bloscpack.headers.check_range``. Programs use
both. `SIBLINGS` lists these names, and the modules of 0.16 use `sibling_names` as their
``__getattr__``, which imports a name from the module that defines it now. It also
lists functions of 0.16 that moved to a private module: ``abstract_io.pack`` is defined
in ``_loop.packing``. Do not use these names inside the package, and do not add any.

Three modules of the package, such as `bloscpack.verify`, have the name of the function
that users call most often in them. Each is a `CallableModule`: a module as in 0.16, for
``bloscpack.append.append_fp``, and a function, for ``bloscpack.verify(path)``.
"""

from __future__ import annotations

import sys
from types import ModuleType

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from inspect import Signature
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    T = TypeVar("T")

_DEFAULTS = (
    "DEFAULT_CHECKSUM DEFAULT_CHUNK_SIZE DEFAULT_CLEVEL DEFAULT_CNAME "
    "DEFAULT_OFFSETS DEFAULT_SHUFFLE DEFAULT_TYPESIZE"
)

# Modules of 0.16 that had imported Blosc; `constants` is another one.
_HAVE_BLOSC = [
    "abstract_io",
    "append",
    "args",
    "cli",
    "file_io",
    "headers",
    "memory_io",
    "numpy_io",
]

# Module of 0.16 → module that defines the names now → names, separated by blanks.
SIBLINGS = {
    "abstract_io": {
        "_loop.packing": "pack",
        "_loop.unpacking": "unpack",
        "args": "BloscArgs BloscpackArgs MetadataArgs",
        "exceptions": "ChecksumMismatch",
        "headers": "BloscpackHeader",
        "pretty": "double_pretty_size",
    },
    "append": {
        "args": "BLOSC_ARGS METADATA_ARGS MetadataArgs calculate_nchunks",
        "checksums": "CHECKSUMS_LOOKUP check_valid_checksum",
        "constants": "BLOSCPACK_HEADER_LENGTH MAX_CLEVEL METADATA_HEADER_LENGTH",
        "defaults": "DEFAULT_CLEVEL DEFAULT_CNAME DEFAULT_META_CODEC "
        "DEFAULT_META_LEVEL DEFAULT_SHUFFLE",
        "exceptions": "ChecksumLengthMismatch NoChangeInMetadata NoMetadataFound "
        "NonUniformTypesize NotEnoughSpace",
        "fp_io": "CompressedFPSink PlainFPSource",
        "headers": "check_range",
        "metacodecs": "check_valid_codec",
        "pretty": "double_pretty_size",
        "serializers": "check_valid_serializer",
    },
    "args": {
        "abstract_objects": "MutableMappingObject",
        "constants": "MAX_CHUNKS",
        "defaults": _DEFAULTS + " DEFAULT_MAGIC_FORMAT DEFAULT_MAX_APP_CHUNKS "
        "DEFAULT_MAX_META_SIZE DEFAULT_META_CHECKSUM DEFAULT_META_CODEC "
        "DEFAULT_META_LEVEL",
        "exceptions": "ChunkingException",
        "headers": "check_range",
        "metacodecs": "CODECS_AVAIL CODECS_LOOKUP",
        "pretty": "double_pretty_size reverse_pretty",
    },
    "cli": {
        "append": "append",
        "args": "BloscArgs BloscpackArgs MetadataArgs",
        "checksums": "CHECKSUMS_AVAIL",
        "_cli.quick_answers": "log_metadata",
        "constants": "CNAME_AVAIL EXTENSION MAX_CLEVEL MIN_CLEVEL SUFFIXES",
        "defaults": _DEFAULTS,
        "exceptions": "ChecksumMismatch ChunkingException FileNotFound "
        "FormatVersionMismatch",
        "file_io": "pack_file_to_file unpack_file_from_file",
        "_format.blosc_header": "decode_blosc_flags",
        "_cli.options": "process_metadata_args",
        "_cli.outputs": "check_files",
        "_cli.help_text": "BloscPackCustomFormatter",
        "_cli.parser": "create_parser",
        "pretty": "join_with_eol reverse_pretty",
        "_cli.verbs.append": "process_append_args",
        "_cli.verbs.compress": "process_compression_args",
        "_cli.verbs.decompress": "process_decompression_args",
    },
    "constants": {"_format.codecs": "CNAME_MAPPING"},
    "file_io": {
        "abstract_io": "CompressedSink CompressedSource PlainSink PlainSource",
        "_loop.packing": "pack",
        "_loop.unpacking": "unpack",
        "args": "calculate_nchunks",
        "checksums": "CHECKSUMS_AVAIL CHECKSUMS_LOOKUP",
        "constants": "BLOSCPACK_HEADER_LENGTH BLOSC_HEADER_LENGTH FORMAT_VERSION "
        "METADATA_HEADER_LENGTH",
        "defaults": "DEFAULT_CHUNK_SIZE",
        "exceptions": "ChecksumMismatch FormatVersionMismatch MetadataSectionTooSmall",
        "headers": "BloscpackHeader MetadataHeader decode_blosc_header decode_int64 "
        "encode_int64",
        "metacodecs": "CODECS_LOOKUP",
        "pretty": "double_pretty_size pretty_size",
        "serializers": "SERIALIZERS_LOOKUP",
    },
    "headers": {
        "abstract_objects": "MutableMappingObject",
        "checksums": "CHECKSUMS_AVAIL CHECKSUMS_LOOKUP check_valid_checksum",
        "constants": "BLOSCPACK_HEADER_LENGTH CNAME_MAPPING FORMAT_VERSION MAGIC "
        "MAX_CHUNKS MAX_CLEVEL MAX_FORMAT_VERSION MAX_META_SIZE",
        "defaults": "DEFAULT_OFFSETS",
        "_format.integers": "decode_bitfield decode_int32 decode_int64 decode_uint32 "
        "decode_uint8 encode_int32 encode_int64 encode_uint32 encode_uint8",
        "metacodecs": "CODECS_AVAIL check_valid_codec",
    },
    "memory_io": {
        "abstract_io": "CompressedSink CompressedSource PlainSink PlainSource",
    },
    "numpy_io": {
        "abstract_io": "PlainSink PlainSource",
        "_loop.packing": "pack",
        "_loop.unpacking": "unpack",
        "args": "BloscArgs calculate_nchunks",
        "defaults": "DEFAULT_CHUNK_SIZE",
        "exceptions": "ChunkSizeTypeSizeMismatch NotANumpyArray "
        "ObjectNumpyArrayRejection",
        "fp_io": "CompressedFPSink CompressedFPSource",
        "pretty": "double_pretty_size",
    },
    "pretty": {"constants": "SUFFIXES"},
}


def sibling_names(module: str) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a module that 0.16 had.

    Parameters
    ----------
    module
        Full name of the module, a key of `SIBLINGS`.
    """
    # A module that runs as a program has the name "__main__", which is no sibling.
    siblings = SIBLINGS.get(module.rpartition(".")[2], {})

    def find(name: str) -> object:
        from importlib import import_module

        if name == "blosc" and module.rpartition(".")[2] in _HAVE_BLOSC:
            return import_module("blosc")
        if name == "log":  # every module of 0.16 imported the module itself
            return import_module("bloscpack.log")
        for home, names in siblings.items():
            if name in names.split():
                value: object = getattr(import_module("bloscpack." + home), name)
                return value
        raise AttributeError("module %r has no attribute %r" % (module, name))

    return find


class CallableModule(ModuleType):
    """A module that can be called: the call goes to its function of the same name."""

    def _function(self) -> Callable[..., object]:
        function: Callable[..., object] = vars(self)[self.__name__.rpartition(".")[2]]
        return function

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self._function()(*args, **kwargs)

    @property
    def __signature__(self) -> Signature:
        from inspect import signature

        return signature(self._function())

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        """Pickle the name, as pickle does for a function."""
        from importlib import import_module

        return import_module, (self.__name__,)


def make_callable(module: str) -> None:
    """Make a module, which is being imported, a `CallableModule`.

    Parameters
    ----------
    module
        Full name of the module.
    """
    sys.modules[module].__class__ = CallableModule


def deprecated_alias(old_name: str, function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that warns that `old_name` is deprecated, and calls `function`.

    Parameters
    ----------
    old_name
        Name of the function in 0.16.
    function
        The function that replaces it.
    """

    def alias(*args: P.args, **kwargs: P.kwargs) -> T:
        import warnings

        warnings.warn(
            "'%s' is deprecated since version 0.16.0, use '%s' instead"
            % (old_name, function.__name__),
            DeprecationWarning,
            stacklevel=2,
        )
        return function(*args, **kwargs)

    # functools.wraps would copy the new name. inspect.signature follows __wrapped__.
    alias.__name__ = alias.__qualname__ = old_name
    alias.__doc__ = "Deprecated name of `%s`." % function.__name__
    alias.__module__ = function.__module__
    alias.__wrapped__ = function  # type: ignore[attr-defined]
    return alias
