"""Names for programs written for release 0.16, and modules that can be called.

A module of 0.16 that imported a name from another module of the package had this name
too: ``bloscpack.args.check_range`` is ``bloscpack.headers.check_range``. Programs use
both. `HOMES` lists these names, and the modules of 0.16 use `sibling_names` as their
``__getattr__``, which imports a name from the module that defines it now. Each of these
modules finds all of the names: which of them it had is not listed. `HOMES` also has
functions of 0.16 that moved to a private module: ``headers.decode_blosc_flags`` is
defined in ``_format.blosc_header``. Do not use these names inside the package, and do
not add any.

Three modules of the package, such as `bloscpack.verify`, have the name of the function
that users call most often in them. Each is a `CallableModule`: a module as in 0.16, for
``bloscpack.append.append_fp``, and a function, for ``bloscpack.verify(path)``.
"""

from __future__ import annotations

import sys
from types import ModuleType

from .exceptions import DamageError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from inspect import Signature
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    T = TypeVar("T")

# Module that defines the names now → the names, separated by blanks.
HOMES = {
    "_format.blosc_header": "decode_blosc_flags",
    "_format.codecs": "CNAME_MAPPING",
    "_compat": "decode_bitfield decode_int32 decode_int64 decode_uint32 "
    "decode_uint8 encode_int32 encode_int64 encode_uint32 encode_uint8",
    "abstract_io": "CompressedSink CompressedSource PlainSink PlainSource pack unpack",
    "abstract_objects": "MutableMappingObject",
    "append": "_rewrite_metadata_fp append",
    "args": "BLOSC_ARGS BloscArgs BloscpackArgs METADATA_ARGS MetadataArgs "
    "calculate_nchunks",
    "checksums": "CHECKSUMS_AVAIL CHECKSUMS_LOOKUP check_valid_checksum",
    "constants": "BLOSCPACK_HEADER_LENGTH BLOSC_HEADER_LENGTH CNAME_AVAIL "
    "FORMAT_VERSION MAGIC MAX_CHUNKS MAX_CLEVEL MAX_FORMAT_VERSION MAX_META_SIZE "
    "METADATA_HEADER_LENGTH MIN_CLEVEL SUFFIXES",
    "defaults": "DEFAULT_CHECKSUM DEFAULT_CHUNK_SIZE DEFAULT_CLEVEL DEFAULT_CNAME "
    "DEFAULT_MAGIC_FORMAT DEFAULT_MAX_APP_CHUNKS DEFAULT_MAX_META_SIZE "
    "DEFAULT_META_CHECKSUM DEFAULT_META_CODEC DEFAULT_META_LEVEL DEFAULT_OFFSETS "
    "DEFAULT_SHUFFLE DEFAULT_TYPESIZE",
    "exceptions": "ChecksumLengthMismatch ChecksumMismatch ChunkSizeTypeSizeMismatch "
    "ChunkingException FormatVersionMismatch MetadataSectionTooSmall "
    "NoChangeInMetadata NoMetadataFound NonUniformTypesize NotANumpyArray "
    "NotEnoughSpace ObjectNumpyArrayRejection",
    "file_io": "CompressedFPSink CompressedFPSource PlainFPSource pack_file_to_file "
    "unpack_file_from_file",
    "headers": "BloscpackHeader MetadataHeader check_range decode_blosc_header",
    "metacodecs": "CODECS_AVAIL CODECS_LOOKUP check_valid_codec",
    "pretty": "double_pretty_size join_with_eol pretty_size reverse_pretty",
    "serializers": "SERIALIZERS_LOOKUP check_valid_serializer",
}


def sibling_names(module: str) -> Callable[[str], object]:
    """Return the ``__getattr__`` of the module of 0.16 with the full name `module`."""

    def find(name: str) -> object:
        if name.startswith("__"):  # each ``from module import name`` asks for __path__
            raise AttributeError("module %r has no attribute %r" % (module, name))
        from importlib import import_module

        if name == "blosc":
            return import_module("blosc")
        if name == "log":  # every module of 0.16 imported the module itself
            return import_module("bloscpack.log")
        for home, names in HOMES.items():
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

    def __repr__(self) -> str:
        return "<function and module %r>" % self.__name__

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


# Functions that encode and decode one little-endian number. The package itself decodes
# whole records. Every decoding function raises `FormatError` if the length is wrong.


def decode_uint8(byte: bytes | int) -> int:
    """Return the unsigned number in one byte; an int is returned unchanged."""
    return byte if isinstance(byte, int) else _decode("<B", byte)


def decode_uint32(fourbyte: bytes) -> int:
    """Return the unsigned number in four bytes."""
    return _decode("<I", fourbyte)


def decode_int32(fourbyte: bytes) -> int:
    """Return the signed number in four bytes."""
    return _decode("<i", fourbyte)


def decode_int64(eightbyte: bytes) -> int:
    """Return the signed number in eight bytes."""
    return _decode("<q", eightbyte)


def _decode(layout: str, data: bytes) -> int:
    import struct

    size = struct.calcsize(layout)
    if len(data) != size:
        raise DamageError(
            "expected a number of '%d' bytes, found '%d'" % (size, len(data))
        )
    return int(struct.unpack(layout, data)[0])


def decode_bitfield(byte: int) -> str:
    """Return the bits of a byte as a string of eight digits, the highest bit first."""
    return format(byte, "08b")


def encode_uint8(byte: int) -> bytes:
    """Return an unsigned number as one byte."""
    return _encode("<B", byte)


def encode_uint32(byte: int) -> bytes:
    """Return an unsigned number as four bytes."""
    return _encode("<I", byte)


def encode_int32(fourbyte: int) -> bytes:
    """Return a signed number as four bytes."""
    return _encode("<i", fourbyte)


def encode_int64(eightbyte: int) -> bytes:
    """Return a signed number as eight bytes."""
    return _encode("<q", eightbyte)


def _encode(layout: str, number: int) -> bytes:
    import struct

    return struct.pack(layout, number)


def import_extra(name: str, extra: str, text: str = "") -> ModuleType:
    """Return a module that an extra installs; raise `UsageError` without it.

    `text` is the message about the missing package.
    """
    from importlib import import_module

    from .exceptions import UsageError, install_hint

    try:
        return import_module(name)
    except ImportError as error:
        problem = "'%s' can't be imported (%s)" % (name, error)
        if text:
            problem = text % name.partition(".")[0]
        raise UsageError("%s: %s" % (problem, install_hint(extra))) from error
