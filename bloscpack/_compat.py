"""What is kept for code written against 0.16 and has no other reason to be.

A name that a module of 0.16 had imported from a sibling was reachable in both, and
code in the wild uses both. `sibling_names` finds such names where they live now,
when they are asked for.
"""

from __future__ import annotations

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_DEFAULTS = (
    "DEFAULT_CHECKSUM DEFAULT_CHUNK_SIZE DEFAULT_CLEVEL DEFAULT_CNAME "
    "DEFAULT_OFFSETS DEFAULT_SHUFFLE DEFAULT_TYPESIZE"
)

# module of 0.16 → module that has the names now → names
SIBLINGS = {
    "abstract_io": {
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
        "file_io": "CompressedFPSink PlainFPSource",
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
        "headers": "decode_blosc_flags",
        "_cli.options": "process_metadata_args",
        "_cli.outputs": "check_files",
        "_cli.parser": "BloscPackCustomFormatter create_parser",
        "pretty": "join_with_eol reverse_pretty",
        "_cli.verbs.append": "process_append_args",
        "_cli.verbs.compress": "process_compression_args",
        "_cli.verbs.decompress": "process_decompression_args",
    },
    "file_io": {
        "abstract_io": "CompressedSink CompressedSource PlainSink PlainSource "
        "pack unpack",
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
        "abstract_io": "PlainSink PlainSource pack unpack",
        "args": "BloscArgs calculate_nchunks",
        "defaults": "DEFAULT_CHUNK_SIZE",
        "exceptions": "ChunkSizeTypeSizeMismatch NotANumpyArray "
        "ObjectNumpyArrayRejection",
        "file_io": "CompressedFPSink CompressedFPSource",
        "pretty": "double_pretty_size",
    },
    "pretty": {"constants": "SUFFIXES"},
}


def sibling_names(module: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module that 0.16 had."""
    siblings = SIBLINGS[module.rpartition(".")[2]]

    def find(name: str) -> Any:
        from importlib import import_module

        if name == "log":  # the module
            return import_module("bloscpack.log")
        for home, names in siblings.items():
            if name in names.split():
                return getattr(import_module("bloscpack." + home), name)
        raise AttributeError("module %r has no attribute %r" % (module, name))

    return find


def deprecated_alias(old_name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` under a name that warns of its age."""

    def alias(*args: Any, **kwargs: Any) -> Any:
        import warnings

        warnings.warn(
            "'%s' is deprecated since version 0.16.0, use '%s' instead"
            % (old_name, function.__name__),
            DeprecationWarning,
            stacklevel=2,
        )
        return function(*args, **kwargs)

    # functools.wraps would take the new name along; the signature is what matters.
    alias.__name__ = alias.__qualname__ = old_name
    alias.__doc__ = "Deprecated name of `%s`." % function.__name__
    alias.__module__ = function.__module__
    alias.__wrapped__ = function  # type: ignore[attr-defined]
    return alias
