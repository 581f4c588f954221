"""The settings of the functions that read and write files.

The settings are documented here, once for all functions that take them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar

from . import constants, defaults, log
from ._compat import sibling_names
from ._types import Buffer
from .abstract_objects import MutableMappingObject, parameters_of
from .checksums import check_valid_checksum
from .constants import (
    MAX_BUFFERSIZE,
    MAX_CHUNKS,
    MAX_CLEVEL,
    MAX_META_SIZE,
    MAX_TYPESIZE,
    MIN_CLEVEL,
)
from .exceptions import (
    ChunkingException,
    NoSuchCodec,
    Unsupported,
    UsageTypeError,
    UsageValueError,
)
from .headers import check_range, plain_number
from .metacodecs import CODECS_LOOKUP, MetaCodec, check_valid_codec
from .pretty import double_pretty_size, reverse_pretty
from .serializers import check_valid_serializer

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._format.automatic import Read, Setting
    from ._format.dtypes import Array
    from .abstract_io import Progress

    Sample = Buffer | Array

Settings = TypeVar("Settings", bound=MutableMappingObject)


AnyBloscArgs: TypeAlias = "BloscArgs | dict[str, Any]"


AnyBloscpackArgs: TypeAlias = "BloscpackArgs | dict[str, Any]"


AnyMetadataArgs: TypeAlias = "MetadataArgs | dict[str, Any]"


AnyLimits: TypeAlias = "Limits | dict[str, Any]"


class OtherNames(TypedDict, total=False):
    """Other names of fields of `BloscArgs`: `cname` and `clevel`."""

    codec: str
    level: int


class BloscKeywords(OtherNames, total=False):
    """The fields of `BloscArgs`, as keywords."""

    typesize: int | None
    clevel: int
    shuffle: bool | int
    cname: str


class PackKeywords(BloscKeywords, total=False):
    """The fields of all settings, as keywords of the functions that pack."""

    offsets: bool
    checksum: str | None
    max_app_chunks: int | Callable[[int], int]
    magic_format: bytes
    meta_checksum: str | None
    meta_codec: str | None
    meta_level: int
    max_meta_size: int | Callable[[int], int]


class LoopKeywords(PackKeywords, total=False):
    """The keywords of `pack`: its settings, ``nthreads`` and ``progress``."""

    nthreads: int | None
    progress: Progress | None


class AutoKeywords(LoopKeywords, total=False):
    """The keywords of a function that can look at the data before it packs them."""

    auto: bool | str


class BloscArgs(MutableMappingObject):
    """Settings for the compression of chunks with Blosc.

    Parameters
    ----------
    typesize
        Size in bytes of an item, 1 to 255, for the filter. The functions for arrays use
        the item size of the array instead. Append accepts None, which means the type
        size of the file.
    clevel
        Compression level, 0 (none) to 9 (smallest result).
    shuffle
        Filter: False or 0 for no filter, True or 1 for byte shuffle, 2 for bit shuffle.
    cname
        Name of the codec: ``'blosclz'``, ``'lz4'``, ``'lz4hc'``, ``'snappy'``,
        ``'zlib'`` or ``'zstd'``, as far as the installed Blosc has it.
    codec, level
        Other names of ``cname`` and ``clevel``. Give each setting under one name:
        ``BloscArgs`` takes a ``clevel`` or ``cname`` that has the default value for one
        that is not given.

    Notes
    -----
    The values are checked when they are used, see `check`.

    The attribute ``blocksize`` is no key: the size in bytes of the blocks into which
    Blosc divides a chunk, 0 for the size that Blosc chooses. `auto` sets it. Settings
    with different block sizes are not equal. A block is never longer than its chunk.
    The block size holds for the functions that pack; while several threads pack with
    different block sizes, a chunk may rarely get that of another thread. Append and
    repack ignore it: they use the sizes that Blosc chooses.

    Examples
    --------
    >>> BloscArgs(cname='zstd', clevel=5)
    BloscArgs(typesize=8, clevel=5, shuffle=True, cname='zstd')
    """

    blocksize = 0

    def __init__(
        self,
        typesize: int | None = defaults.DEFAULT_TYPESIZE,
        clevel: int = defaults.DEFAULT_CLEVEL,
        shuffle: bool | int = defaults.DEFAULT_SHUFFLE,
        cname: str = defaults.DEFAULT_CNAME,
        **others: Unpack[OtherNames],
    ) -> None:
        self.typesize = typesize
        self.clevel = clevel
        self.shuffle = shuffle
        self.cname = cname
        if others:
            given = {
                name: self[name]
                for name in self
                if self[name] != DEFAULT_BLOSC_ARGS[name]
            }
            for name, value in known_settings({**given, **others}, BLOSC_ARGS).items():
                self[name] = value

    _attributes = parameters_of(__init__)

    @classmethod
    def auto(cls, sample: Sample, goal: str = "balanced") -> BloscArgs:
        """Return settings that fit the data, by trials on a sample of them.

        A block size above 1 MiB needs chunks of that size: pack with ``chunk_size`` at
        least ``blocksize``.

        The same sample always gets the same settings. Up to 2 MiB of the sample are
        compressed, with several settings, which takes some hundredths of a second; the
        goal ``'ratio'`` takes up to a fifth of a second.

        Parameters
        ----------
        sample
            A part of the data, or all: a buffer of bytes, or an array, whose item size
            is the type size. Some megabytes from the whole of the data are a good
            sample. Items need not be contiguous; a masked array is refused.
        goal
            ``'balanced'`` for the least time to compress, to write and read at 100
            MB/s, and to decompress; ``'speed'`` for the same at 2 GB/s; ``'ratio'`` for
            2 MB/s, a small size.

        Raises
        ------
        UsageError
            No goal has this name. This is a ``ValueError`` too.
        UsageTypeError
            The sample is neither bytes nor an array that can be packed. This is a
            ``TypeError`` too.

        Examples
        --------
        >>> BloscArgs.auto(b'Some words, some more words. ' * 1000, 'ratio').cname
        'zstd'
        """
        from ._format.automatic import choose_for

        return cls.of_setting(choose_for(sample, goal))

    @classmethod
    def of_setting(cls, setting: Setting) -> BloscArgs:
        """Return the settings for Blosc in a setting that was chosen."""
        settings = cls(setting.typesize, setting.clevel, setting.shuffle, setting.cname)
        settings.blocksize = setting.blocksize
        return settings

    def __eq__(self, other: object) -> bool:
        equal = super().__eq__(other)
        if equal is not True:
            return equal
        return bool(self.blocksize == getattr(other, "blocksize", 0))

    def check(self) -> None:
        """Check that Blosc accepts the values.

        Raises
        ------
        UsageError
            A value is out of range. This is a ``ValueError`` too.
        UsageTypeError
            A number is no int. This is a ``TypeError`` too.
        NoSuchCodec
            The installed Blosc has no codec ``cname``.
        """
        check_range("typesize", self.typesize, 1, MAX_TYPESIZE)
        check_range("clevel", self.clevel, MIN_CLEVEL, MAX_CLEVEL)
        check_range("blocksize", self.blocksize, 0, MAX_BUFFERSIZE)
        if self.shuffle not in (0, 1, 2):
            raise UsageValueError(
                "'shuffle' must be False, True or one of 0, 1, 2, not %r" % self.shuffle
            )
        # Not imported by name: reading it imports Blosc.
        if self.cname not in constants.CNAME_AVAIL:
            raise NoSuchCodec(
                "codec '%s' is not supported by the installed Blosc, only: %s"
                % (self.cname, ", ".join(constants.CNAME_AVAIL))
            )


class BloscpackArgs(MutableMappingObject):
    """Settings for the parts of a file around its chunks.

    Parameters
    ----------
    offsets
        Whether to write an offset table, which append needs.
    checksum
        Name of the checksum of the chunks, one of
        `bloscpack.checksums.CHECKSUMS_LOOKUP`; None or ``'None'`` for no checksum.
    max_app_chunks
        Number of free entries in the offset table, at least 0: the number of chunks
        that can be appended. Or a function that returns it for the number of chunks.
        Ignored without an offset table, or if the number of chunks is unknown.
    """

    def __init__(
        self,
        offsets: bool = defaults.DEFAULT_OFFSETS,
        checksum: str | None = defaults.DEFAULT_CHECKSUM,
        max_app_chunks: int | Callable[[int], int] = defaults.DEFAULT_MAX_APP_CHUNKS,
    ) -> None:
        self.offsets = offsets
        self.checksum = "None" if checksum is None else checksum
        self.max_app_chunks = max_app_chunks

    _attributes = parameters_of(__init__)

    def check(self) -> None:
        """Raise `NoSuchChecksum`, a `UsageError`, if no checksum has the name."""
        check_valid_checksum(self.checksum)

    def effective_max_app_chunks(self, nchunks: int) -> int:
        """Return the number of free entries in the offset table.

        Parameters
        ----------
        nchunks
            Number of chunks in the file, -1 if it is unknown.

        Raises
        ------
        UsageError
            ``max_app_chunks`` is out of range, or no int.
        """
        if not self.offsets or nchunks == -1:
            return 0
        return _effective(self, "max_app_chunks", nchunks, MAX_CHUNKS)


class MetadataArgs(MutableMappingObject):
    """Settings for the metadata section.

    Parameters
    ----------
    magic_format
        Name of the metadata format; ``b'JSON'`` is the only one.
    meta_checksum
        Name of the checksum of the stored text, one of
        `bloscpack.checksums.CHECKSUMS_LOOKUP`; None or ``'None'`` for no checksum.
    meta_codec
        Name of the codec, ``'zlib'``; None or ``'None'`` for no compression. Text that
        the codec makes longer is stored uncompressed.
    meta_level
        Compression level, 0 to 9.
    max_meta_size
        Space in bytes to reserve for the stored text, below 4 GiB, so that it can be
        replaced by a longer text later. Or a function that returns it for the size in
        bytes of the uncompressed text.
    """

    def __init__(
        self,
        magic_format: bytes = defaults.DEFAULT_MAGIC_FORMAT,
        meta_checksum: str | None = defaults.DEFAULT_META_CHECKSUM,
        meta_codec: str | None = defaults.DEFAULT_META_CODEC,
        meta_level: int = defaults.DEFAULT_META_LEVEL,
        max_meta_size: int | Callable[[int], int] = defaults.DEFAULT_MAX_META_SIZE,
    ) -> None:
        self.magic_format = magic_format
        self.meta_checksum = "None" if meta_checksum is None else meta_checksum
        self.meta_codec = "None" if meta_codec is None else meta_codec
        self.meta_level = meta_level
        self.max_meta_size = max_meta_size

    _attributes = parameters_of(__init__)

    @property
    def should_compress(self) -> bool:
        """Whether the settings name a codec."""
        return self.meta_codec != "None"

    def nullify_codec(self) -> None:
        """Set the codec to ``'None'``: no compression."""
        self.meta_codec = "None"

    @property
    def meta_codec_impl(self) -> MetaCodec:
        """The codec, a `bloscpack.metacodecs.MetaCodec`."""
        return CODECS_LOOKUP[self.meta_codec]

    @property
    def meta_codec_name(self) -> str:
        """The name of the codec."""
        return self.meta_codec

    def check(self) -> None:
        """Check all settings except ``max_meta_size``.

        Raises
        ------
        UsageError
            A name is unknown, or the level is out of range.
        """
        check_valid_serializer(self.magic_format)
        check_valid_checksum(self.meta_checksum)
        check_valid_codec(self.meta_codec)
        check_range("meta_level", self.meta_level, 0, MAX_CLEVEL)

    def effective_max_meta_size(self, meta_size: int) -> int:
        """Return the space in bytes to reserve for the stored text.

        Parameters
        ----------
        meta_size
            Size in bytes of the uncompressed text.

        Raises
        ------
        UsageError
            ``max_meta_size`` is out of range, or neither an int nor a function.
        """
        return _effective(self, "max_meta_size", meta_size, MAX_META_SIZE)


class Limits(MutableMappingObject):
    """Limits on the memory or disk space that a file makes its reader use.

    A file beyond a limit is refused with a `FormatError`, before the memory is
    allocated. Limits are for files from untrusted sources.

    Parameters
    ----------
    metadata
        Maximum size in bytes of the decompressed metadata, at least 0. Or a function
        that returns it for the size in bytes of the stored metadata. By default the
        larger of 16 MiB and 32 times the stored size.
    nbytes
        Maximum number of plain bytes in all chunks together, at least 0; None for no
        limit.
    metadata_values
        Maximum number of JSON values and keys in the metadata, at least 0. Or a
        function that returns it for the size in bytes of the stored metadata. By
        default the larger of one million and the stored size.

    Examples
    --------
    >>> Limits(nbytes=10**9)["nbytes"]
    1000000000
    """

    def __init__(
        self,
        metadata: int | Callable[[int], int] = defaults.DEFAULT_METADATA_LIMIT,
        nbytes: int | None = None,
        metadata_values: int | Callable[[int], int] = defaults.DEFAULT_METADATA_VALUES,
    ) -> None:
        self.metadata = metadata
        self.nbytes = nbytes
        self.metadata_values = metadata_values

    _attributes = parameters_of(__init__)

    def check(self) -> None:
        """Raise `UsageError` if a limit is negative, or `UsageTypeError` if no int."""
        self.effective_metadata(0)
        self.effective_metadata_values(0)
        if self.nbytes is not None:
            check_range("nbytes", self.nbytes, 0, MAX_CHUNKS)

    def effective_metadata(self, stored_size: int) -> int:
        """Return the maximum size in bytes of the decompressed metadata.

        Parameters
        ----------
        stored_size
            Size in bytes of the stored metadata.
        """
        return _effective(self, "metadata", stored_size, MAX_CHUNKS)

    def effective_metadata_values(self, stored_size: int) -> int:
        """Return the maximum number of JSON values and keys in the metadata.

        Parameters
        ----------
        stored_size
            Size in bytes of the stored metadata.
        """
        return _effective(self, "metadata_values", stored_size, MAX_CHUNKS)

    def check_nbytes(self, nbytes: int) -> None:
        """Raise `Unsupported`, a `FormatError`, if a file is larger than its limit.

        Parameters
        ----------
        nbytes
            Number of plain bytes in the file.
        """
        if self.nbytes is not None and nbytes > self.nbytes:
            raise Unsupported(
                "the file holds '%d' plain bytes or more, but the limit is '%d'"
                % (nbytes, self.nbytes)
            )


def _effective(
    settings: MutableMappingObject, name: str, argument: int, maximum: int
) -> int:
    """Return a setting that is a number, or the number that its function returns."""
    value = getattr(settings, name)
    number = value(argument) if callable(value) else value
    return check_range(name, number, 0, maximum)


def settings_from(
    kind: type[Settings],
    name: str,
    given: Settings | dict[str, Any] | None,
    keywords: Mapping[str, object],
    **defaults: object,
) -> Settings:
    """Return the settings that a caller gave as an object, a dictionary or keywords.

    The values are not checked; they may be NumPy scalars.

    Parameters
    ----------
    kind
        Class of the settings.
    name
        Name of the argument `given`, for messages.
    given
        An object of this class, which may also be the result, or a dictionary of some
        of its fields.
    keywords
        Keywords of the caller, also those that are fields of other settings.
    defaults
        The values of fields that the caller did not give, if they are not the default
        values of `kind`.

    Raises
    ------
    UsageTypeError
        `given` is something else, has an unknown field, or contains a field that is a
        keyword too.
    """
    if given is None:
        if not keywords:  # the usual case, for speed
            return kind(**defaults)
        given = {}
    if not isinstance(given, (kind, dict)):
        raise UsageTypeError(
            "'%s' must be of type '%s', not '%s'"
            % (name, kind.__name__, type(given).__name__)
        )
    if isinstance(given, dict):
        given = known_settings(
            given, kind._attributes, "'%s' has no field %%r" % name, ()
        )
    fields = {key: keywords[key] for key in kind._attributes if key in keywords}
    for key in fields:
        if key in given:
            raise UsageTypeError(
                "'%s' is given twice: as a keyword and in '%s'" % (key, name)
            )
    if isinstance(given, kind):
        return given
    return kind(**{**defaults, **given, **fields})


def effective_limits(limits: AnyLimits | None) -> Limits | None:
    """Return checked limits; None for no limits.

    Parameters
    ----------
    limits
        The limits, or a dictionary of their fields.
    """
    if limits is None:
        return None
    checked = settings_from(Limits, "limits", limits, {})
    checked.check()
    return checked


# Another name of a setting → its name.
OTHER_NAMES = {"codec": "cname", "level": "clevel"}
# How alike a name and an unknown one must be to be proposed, from 0 to 1.
CLOSE = 0.65
# Parameters of most functions that take settings, which are proposed too.
PARAMETERS = (
    "auto",
    "chunk_size",
    "metadata",
    "nthreads",
    "progress",
    "storage_options",
)


def known_settings(
    given: Mapping[str, Any],
    fields: Collection[str],
    refusal: str = "unexpected keyword %r",
    others: tuple[str, ...] = PARAMETERS,
) -> dict[str, Any]:
    """Return settings under their first names: ``clevel`` also if ``level`` was given.

    Parameters
    ----------
    given
        The settings by name.
    fields
        The first names of those that are allowed.
    refusal
        The beginning of the message for any other, with a ``%%s`` for its name.
    others
        Parameters of the function, which the message may propose.

    Raises
    ------
    UsageTypeError
        A setting is not allowed, or was given under two names.
    """
    settings = {}
    for key, value in given.items():
        name = OTHER_NAMES.get(key, key)
        if name not in fields:
            raise UsageTypeError(refusal % key + _advice_for(key, fields, others))
        if name in settings:
            other = next(other for other in OTHER_NAMES if OTHER_NAMES[other] == name)
            raise UsageTypeError(
                "'%s' and '%s' are names of the same setting: give one of them"
                % (name, other)
            )
        settings[name] = value
    return settings


def similar(word: str, words: Iterable[str]) -> str:
    """Return the word that `word` may have been meant as; '' if there is none."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, [*words], 1, CLOSE)), "")


def _advice_for(key: object, fields: Collection[str], others: tuple[str, ...]) -> str:
    """Return the end of a message for an unknown setting: a similar name, or all."""
    known = [n for n, first in OTHER_NAMES.items() if first in fields]
    names = [n for n in dict.fromkeys((*fields, *known, *others)) if n != key]
    near = similar(str(key), names)
    if near:
        return ": did you mean '%s'?" % near
    return ": the settings are %s" % ", ".join(names)


def settings_of(
    blosc_args: AnyBloscArgs | None,
    bloscpack_args: AnyBloscpackArgs | None,
    metadata_args: AnyMetadataArgs | None,
    keywords: PackKeywords,
) -> tuple[BloscArgs, BloscpackArgs, MetadataArgs]:
    """Return the settings of a function that packs; see `settings_from`.

    Raises `UsageTypeError` for a keyword that is no setting.
    """
    if (
        not keywords
        and isinstance(blosc_args, BloscArgs)
        and isinstance(bloscpack_args, BloscpackArgs)
        and isinstance(metadata_args, MetadataArgs)
    ):
        return blosc_args, bloscpack_args, metadata_args
    given = known_settings(keywords, PACK_SETTINGS) if keywords else {}
    return (
        settings_from(BloscArgs, "blosc_args", blosc_args, given),
        settings_from(BloscpackArgs, "bloscpack_args", bloscpack_args, given),
        settings_from(MetadataArgs, "metadata_args", metadata_args, given),
    )


def goal_of(auto: object) -> str:
    """Return the goal that the argument ``auto`` names, an empty text for none."""
    auto = plain_number(auto)
    if auto is None or auto is False:  # the usual case, for speed
        return ""
    if isinstance(auto, str):
        return auto
    from ._format.codecs import DEFAULT_GOAL, GOALS

    if isinstance(auto, int) and auto in (0, 1):
        return DEFAULT_GOAL if auto else ""
    raise UsageTypeError(
        "'auto' must be True, False or one of the goals %s, not of type '%s'"
        % (", ".join(map(repr, GOALS)), type(auto).__name__)
    )


def fit_settings(
    keywords: dict[str, Any],
    chunk_size: int | str,
    given: AnyBloscArgs | None,
    sample: tuple[Read, int] | None,
    typesizes: Sequence[int] = (),
    *,
    is_array: bool = False,
) -> tuple[int | str, AnyBloscArgs | None]:
    """Return chunk size and settings of Blosc that fit the data, with ``auto``.

    Settings from the caller stay unchanged. Without ``auto`` all of them do.

    Parameters
    ----------
    keywords
        The keywords of the caller. ``auto`` is removed, and with it the settings of
        Blosc, which are in the result.
    chunk_size, given
        Other arguments of the caller; `given` is ``blosc_args``.
    sample
        A function that returns bytes of the data for an offset and a size, and their
        total size. It may be None without ``auto``.
    typesizes
        The type sizes of the data, if they are known.
    is_array
        Whether the data are an array, whose items have the first of these sizes: it
        takes precedence over the type size of the caller.
    """
    goal = goal_of(keywords.pop("auto", False))
    if not goal:
        return chunk_size, given
    from ._format.automatic import CHUNK_SIZE, choose

    if isinstance(given, BloscArgs):
        raise UsageTypeError(
            "'auto' chooses what a BloscArgs object states: give the settings to keep "
            "as keywords, or in a dictionary"
        )
    names = [key for key in keywords if OTHER_NAMES.get(key, key) in BLOSC_ARGS]
    given_now = known_settings({key: keywords.pop(key) for key in names}, BLOSC_ARGS)
    settings = settings_from(BloscArgs, "blosc_args", given, given_now)
    fixed = {**known_settings(given or {}, BLOSC_ARGS), **given_now}
    if settings.typesize is None and typesizes:  # append: that of the file
        settings.typesize = fixed["typesize"] = typesizes[0]
    settings.check()
    fixed = {name: plain_number(value) for name, value in fixed.items()}
    assert sample is not None
    if is_array:
        fixed.pop("typesize", None)
    if not isinstance(chunk_size, defaults.NotGiven):
        fixed["chunk_size"] = parse_chunk_size(chunk_size)
    elif keywords.get("shard"):  # the last chunk is stored twice
        fixed["chunk_size"] = CHUNK_SIZE
    setting = choose(*sample, goal, typesizes, fixed)
    if "chunk_size" not in fixed:  # a size with a suffix is rounded to whole items
        chunk_size = "%dB" % setting.chunk_size
    return chunk_size, settings.of_setting(setting)


# The chunks into which plain bytes are divided


@lru_cache(maxsize=100)  # which takes a part of the time of a short array
def _bytes_of(text: str) -> int:
    is_number = text.isascii() and text.isdecimal()
    return reverse_pretty(text + "B" * is_number)


def parse_chunk_size(chunk_size: int | str) -> int:
    """Return a chunk size in bytes.

    Parameters
    ----------
    chunk_size
        Number of bytes, or text: a number, perhaps with a suffix, such as ``'1M'`` (see
        `bloscpack.pretty.reverse_pretty`), or ``'max'`` for the largest chunk size.

    Raises
    ------
    UsageError
        The size is not in the range 1 to 2147483631. This is a ``ValueError`` too.
    """
    if chunk_size == "max":
        chunk_size = MAX_BUFFERSIZE
    elif isinstance(chunk_size, str):
        chunk_size = _bytes_of(chunk_size)
    return check_range("chunk_size", chunk_size, 1, MAX_BUFFERSIZE)


def calculate_nchunks(
    in_file_size: int, chunk_size: int | str = defaults.DEFAULT_CHUNK_SIZE
) -> tuple[int, int, int]:
    """Return number of chunks, chunk size and size of the last chunk.

    An input that is smaller than the chunk size becomes one chunk of its own size.

    Parameters
    ----------
    in_file_size
        Size of the input in bytes.
    chunk_size
        Plain bytes of a chunk, as in `parse_chunk_size`.

    Returns
    -------
    tuple
        The number of chunks, and two sizes in bytes.

    Raises
    ------
    UsageError
        A size is out of range. This is a ``ValueError`` too.
    ChunkingException
        There are more chunks than a file can have.

    Examples
    --------
    >>> calculate_nchunks(24000, '8K')
    (3, 8192, 7616)
    """
    chunk_size = parse_chunk_size(chunk_size)
    in_file_size = plain_number(in_file_size)
    if in_file_size < 0:
        raise UsageValueError(
            "'in_file_size' must be strictly positive, not %d" % in_file_size
        )
    if in_file_size == 0:
        return 1, 0, 0
    if chunk_size > in_file_size:
        if log.enabled(log.VERBOSE):
            log.verbose(
                "Input was smaller than the given 'chunk_size': %s using: %s"
                % (double_pretty_size(chunk_size), double_pretty_size(in_file_size))
            )
        chunk_size = in_file_size
    full, rest = divmod(in_file_size, chunk_size)
    nchunks, last_chunk = (full + 1, rest) if rest else (full, chunk_size)
    if nchunks > MAX_CHUNKS:
        raise ChunkingException(
            "'%d' bytes in chunks of '%d' bytes make '%d' chunks, but at most '%d' are "
            "possible" % (in_file_size, chunk_size, nchunks, MAX_CHUNKS)
        )
    if log.enabled(log.VERBOSE):
        log.verbose("nchunks: %d" % nchunks)
        log.verbose("chunk_size: %s" % double_pretty_size(chunk_size))
        log.verbose("last_chunk_size: %s" % double_pretty_size(last_chunk))
    return nchunks, chunk_size, last_chunk


BLOSC_ARGS = BloscArgs._attributes
BLOSCPACK_ARGS = BloscpackArgs._attributes
METADATA_ARGS = MetadataArgs._attributes
PACK_SETTINGS = (*BLOSC_ARGS, *BLOSCPACK_ARGS, *METADATA_ARGS)

# Names kept from 0.16

DEFAULT_BLOSC_ARGS = dict(BloscArgs())
DEFAULT_BLOSCPACK_ARGS = dict(BloscpackArgs())
DEFAULT_METADATA_ARGS = dict(MetadataArgs())

__getattr__ = sibling_names(__name__)
