"""The description of a file, ``bloscpack.info(path)``, as records with attributes.

``_reading/description`` reads the file. NumPy and Blosc are not imported.
"""

from __future__ import annotations

from ._reading.description import describe
from .abstract_objects import ImmutableObject
from .headers import BloscpackHeader, MetadataHeader
from .serializers import user_metadata

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from ._storage.protocols import Path, StorageOptions
    from .serializers import Json, JsonObject


class Record(ImmutableObject):
    """Base class of the records in this module: ``_fields`` lists the fields."""

    _fields: tuple[str, ...] = ()
    __slots__ = _fields

    def __init__(self, **fields: object) -> None:
        for name in self._fields:
            setattr(self, name, fields[name])

    def __delattr__(self, name: str) -> None:
        raise AttributeError(
            "'%s' of %s can't be deleted" % (name, type(self).__name__)
        )

    def as_dict(self) -> JsonObject:
        """Return the fields as a new dictionary that can be written as JSON."""
        return {name: _as_json(getattr(self, name)) for name in self._fields}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return type(self) is type(other) and self.as_dict() == other.as_dict()

    __hash__ = None  # type: ignore[assignment] # metadata may be lists

    def __repr__(self) -> str:
        fields = ["%s=%r" % (name, getattr(self, name)) for name in self._fields]
        return "%s(%s)" % (type(self).__name__, ", ".join(fields))

    def __str__(self) -> str:
        return "\n".join("%s: %r" % (n, getattr(self, n)) for n in self._fields)


def _as_json(value: object) -> Json:
    if isinstance(value, Record):
        return value.as_dict()
    return list(value) if isinstance(value, tuple) else value


class ArrayInfo(Record):
    """The array in a file.

    Attributes
    ----------
    shape
        Tuple of the lengths of the axes; None if it is no valid shape.
    dtype
        The dtype as text, without the quotation marks that are stored; None if it is
        missing.
    order
        ``'C'`` or ``'F'``.
    """

    _fields = ("shape", "dtype", "order")
    __slots__ = _fields
    shape: tuple[int, ...] | None
    dtype: str | None
    order: str


class ChunkInfo(Record):
    """The first chunk of a file, from its header.

    Attributes
    ----------
    codec
        Name of the codec.
    filter
        ``'shuffle'``, ``'bitshuffle'`` or ``'none'``.
    copied
        Whether the plain bytes were stored unchanged.
    typesize
        Item size in bytes for the filter.
    blocksize
        Size of Blosc's blocks in bytes.
    nbytes, cbytes
        Size in bytes, plain and compressed.
    """

    _fields = (
        "codec",
        "filter",
        "copied",
        "typesize",
        "blocksize",
        "nbytes",
        "cbytes",
    )
    __slots__ = _fields
    codec: str
    filter: str
    copied: bool
    typesize: int
    blocksize: int
    nbytes: int
    cbytes: int


class HeaderInfo(Record):
    """The header of a file; the attributes are those of `BloscpackHeader`."""

    _fields = BloscpackHeader._attributes
    __slots__ = _fields
    format_version: int
    offsets: bool
    metadata: bool
    checksum: str
    typesize: int
    chunk_size: int
    last_chunk: int
    nchunks: int
    max_app_chunks: int


class MetadataHeaderInfo(Record):
    """The header of the metadata; the attributes are those of `MetadataHeader`.

    ``magic_format`` and ``user_codec`` are text.
    """

    _fields = MetadataHeader._attributes
    __slots__ = _fields
    magic_format: str
    meta_options: str
    meta_checksum: str
    meta_codec: str
    meta_level: int
    meta_size: int
    max_meta_size: int
    meta_comp_size: int
    user_codec: str


class OffsetsInfo(Record):
    """The offset table of a file.

    Attributes
    ----------
    count
        Number of entries for chunks.
    free
        Number of free entries: of chunks that can be appended.
    plausible
        Whether the entries do not contradict each other and the size of the file.
    """

    _fields = ("count", "free", "plausible")
    __slots__ = _fields
    count: int
    free: int
    plausible: bool


class ShardInfo(Record):
    """The shard of a Zarr v3 array that a file is too.

    Attributes
    ----------
    rows
        Number of rows of an inner chunk; along the other axes it is as long as the
        array.
    slots
        Number of inner chunks for which the index has entries, used or free.
    index
        Whether the index follows the chunks; None if the file can't be searched. It is
        not compared with the chunks: see `bloscpack.verify.verify`.
    """

    _fields = ("rows", "slots", "index")
    __slots__ = _fields
    rows: int
    slots: int
    index: bool | None


class FileInfo(Record):
    """The description of a file, read from its beginning; sizes are in bytes.

    Attributes
    ----------
    file
        Name of the file.
    layout
        Number of the layout, 0 to 3.
    nbytes
        Number of plain bytes.
    cbytes
        Size of the file.
    ratio
        Compression ratio: plain / compressed, rounded to four digits.
    nchunks
        Number of chunks.
    largest_chunk
        Plain size of the largest chunk.
    largest_cbytes
        Compressed size of the largest chunk; an upper bound unless `walked`.
    walked
        Whether all chunk headers were read, because the file header does not contain
        the sizes.
    checksum
        Name of the checksum of the chunks.
    header
        The file header, a `HeaderInfo`.
    array
        The array, an `ArrayInfo`; None if the file holds no array.
    metadata
        The metadata; None if there are none. In an array file they describe the array.
    metadata_header
        The metadata header, a `MetadataHeaderInfo`; None without metadata.
    offsets
        The offset table, an `OffsetsInfo`; None if there is none.
    shard
        The shard of a Zarr array, a `ShardInfo`; None if the metadata say no shard.
    first_chunk
        The first chunk, a `ChunkInfo`; None without chunks.
    """

    _fields = (
        "file",
        "layout",
        "nbytes",
        "cbytes",
        "ratio",
        "nchunks",
        "largest_chunk",
        "largest_cbytes",
        "walked",
        "checksum",
        "header",
        "array",
        "metadata",
        "metadata_header",
        "offsets",
        "shard",
        "first_chunk",
    )
    __slots__ = _fields
    file: str
    layout: int
    nbytes: int
    cbytes: int
    ratio: float
    nchunks: int
    largest_chunk: int
    largest_cbytes: int
    walked: bool
    checksum: str
    header: HeaderInfo
    array: ArrayInfo | None
    metadata: Json
    metadata_header: MetadataHeaderInfo | None
    offsets: OffsetsInfo | None
    shard: ShardInfo | None
    first_chunk: ChunkInfo | None

    @property
    def user_metadata(self) -> Json:
        """The metadata of the user, which an array file stores beside its own."""
        return user_metadata(self.metadata)


# The classes of the fields of `FileInfo` that are records themselves.
_INNER: dict[str, type[Record]] = {
    "header": HeaderInfo,
    "array": ArrayInfo,
    "metadata_header": MetadataHeaderInfo,
    "offsets": OffsetsInfo,
    "shard": ShardInfo,
    "first_chunk": ChunkInfo,
}


def info(path: Path, *, storage_options: StorageOptions | None = None) -> FileInfo:
    """Return the description of a file, read from its beginning.

    Nothing is decompressed but the metadata, and no digest of a chunk is verified: see
    `bloscpack.verify.verify`. The fields are those of ``blpk info --json``.

    Parameters
    ----------
    path
        The compressed file.
    storage_options
        Settings of fsspec for a URL, such as keys.

    Raises
    ------
    FormatError
        The beginning of the file is damaged.

    Examples
    --------
    >>> import bloscpack
    >>> bloscpack.pack_bytes_to_file(bytes(10**6), 'zeros.blp', typesize=1)
    >>> found = info('zeros.blp')
    >>> found.nbytes, found.nchunks, found.first_chunk.codec
    (1000000, 1, 'blosclz')
    """
    fields = describe(path, strict=False, storage_options=storage_options)
    array = fields["array"]
    if array is not None and array["shape"] is not None:
        array["shape"] = tuple(array["shape"])
    for name, kind in _INNER.items():
        if fields[name] is not None:
            fields[name] = kind(**fields[name])
    return FileInfo(**fields)
