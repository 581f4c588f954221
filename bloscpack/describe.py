"""The description of a file, ``bloscpack.info(path)``, as records with attributes.

The sections in front of the chunks and the header of the first chunk are read. All
chunk headers are read only if the file header does not contain the sizes. Nothing but
the metadata is decompressed. NumPy and Blosc are not imported.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from ._commit.snapshot import read_snapshot
from ._format.blosc_header import BloscHeader, decode_header, locating_chunk
from ._format.sections import SMALLEST_CHUNK, Beginning, read_beginning
from ._storage.cursor import Cursor
from ._storage.paths import is_url, shown_name
from .constants import BLOSC_HEADER_LENGTH, MAGIC, MAX_NDIM
from .exceptions import FormatError
from .serializers import CHUNKS, is_array, is_grid, is_shard, shard_rows, user_metadata

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from ._commit.snapshot import Check
    from ._types import Json, JsonObject, Path, Seekable, StorageOptions
    from .headers import MetadataHeader


class InfoRecord:
    """Base class of the records in this module: an annotation declares a field."""

    def __init__(self, **fields: object) -> None:
        for name in type(self).__annotations__:
            object.__setattr__(self, name, fields[name])

    def __setattr__(self, name: str, *value: object) -> None:
        what = "changed" if value else "deleted"
        texts = name, type(self).__name__, what
        raise AttributeError("'%s' of %s can't be %s" % texts)

    __delattr__ = __setattr__

    def as_dict(self) -> JsonObject:
        """Return the fields as a new dictionary that can be written as JSON."""
        return {name: _as_json(value) for name, value in vars(self).items()}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, InfoRecord):
            return NotImplemented
        return type(self) is type(other) and self.as_dict() == other.as_dict()

    __hash__ = None  # type: ignore[assignment] # metadata may be lists

    def __repr__(self) -> str:
        fields = ["%s=%r" % field for field in vars(self).items()]
        return "%s(%s)" % (type(self).__name__, ", ".join(fields))

    def __str__(self) -> str:
        return "\n".join("%s: %r" % field for field in vars(self).items())


def _as_json(value: object) -> Json:
    if isinstance(value, InfoRecord):
        return value.as_dict()
    return list(value) if isinstance(value, tuple) else value


class ArrayInfo(InfoRecord):
    """The array in a file.

    Attributes
    ----------
    shape
        Tuple of the lengths of the axes; None if the stored value is invalid.
    dtype
        The dtype as text, without the quotation marks that are stored; None if it is
        missing.
    order
        ``'C'`` or ``'F'``.
    chunks
        Tuple of the lengths of a chunk, if chunks divide every axis; None for others.
    """

    shape: tuple[int, ...] | None
    dtype: str | None
    order: str
    chunks: tuple[int, ...] | None


class ChunkInfo(InfoRecord):
    """The first chunk of a file, from its header.

    Attributes
    ----------
    codec
        Name of the codec.
    filter
        ``'shuffle'``, ``'bitshuffle'`` or ``'none'``.
    copied
        Whether the plain bytes were stored unchanged.
    split
        Whether each byte of the items is compressed in a stream of its own.
    typesize
        Item size in bytes for the filter.
    blocksize
        Size of Blosc's blocks in bytes.
    nbytes, cbytes
        Size in bytes, plain and compressed.
    """

    codec: str
    filter: str
    copied: bool
    split: bool
    typesize: int
    blocksize: int
    nbytes: int
    cbytes: int


class HeaderInfo(InfoRecord):
    """The header of a file; the attributes are those of `BloscpackHeader`."""

    format_version: int
    offsets: bool
    metadata: bool
    checksum: str
    typesize: int
    chunk_size: int
    last_chunk: int
    nchunks: int
    max_app_chunks: int


class MetadataHeaderInfo(InfoRecord):
    """The header of the metadata; the attributes are those of `MetadataHeader`.

    ``magic_format`` and ``user_codec`` are text.
    """

    magic_format: str
    meta_options: str
    meta_checksum: str
    meta_codec: str
    meta_level: int
    meta_size: int
    max_meta_size: int
    meta_comp_size: int
    user_codec: str


class OffsetsInfo(InfoRecord):
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

    count: int
    free: int
    plausible: bool


class ShardInfo(InfoRecord):
    """The shard of a Zarr v3 array that a file is too.

    Attributes
    ----------
    rows
        Number of rows of an inner chunk; along the other axes it is as long as the
        array, or as `ArrayInfo.chunks` says.
    slots
        Number of inner chunks for which the index has entries, used or free.
    index
        Whether the index follows the chunks; None if the file can't be searched. It is
        not compared with the chunks: see `bloscpack.verify.verify`.
    """

    rows: int
    slots: int
    index: bool | None


class FileInfo(InfoRecord):
    """The description of a file, read from its beginning; sizes are in bytes.

    Attributes
    ----------
    file
        Name of the file.
    start
        Where it begins, if it stands behind other packed files; else 0.
    format_version
        Number of the version of the format, 0 to 3.
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

    file: str
    start: int
    format_version: int
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


# Reading

# Fields with the same names in the header of a chunk and in its description.
COMMON_FIELDS = ("codec", "filter", "typesize", "blocksize", "nbytes")


def inspect_file(
    path: Path, *, storage_options: StorageOptions | None = None, strict: bool = False
) -> FileInfo:
    """Return the description of a file, of the first one of several."""
    infos = inspect_files(
        path, strict=strict, only_beginning=True, storage_options=storage_options
    )
    return infos[0][0]


def inspect_files(
    path: Path,
    *,
    strict: bool = False,
    lenient: bool = False,
    only_beginning: bool = False,
    storage_options: StorageOptions | None = None,
) -> list[tuple[FileInfo, FormatError | None]]:
    """Return a description of each file that stands at a path, one behind the other.

    The end of the last chunk is looked for, unless `only_beginning` is given, or the
    path is a URL. If `lenient`, damage among the chunks is no error: it is returned
    beside the description. See `describe` for `strict`.
    """
    finds_end = not (only_beginning or is_url(path))

    def read(fp: Seekable, check: Check) -> list[tuple[FileInfo, FormatError | None]]:
        infos: list[tuple[FileInfo, FormatError | None]] = []
        start, cursor = 0, Cursor(fp, to_end=True)
        while True:
            try:
                item = _FileAt(cursor, start, strict, finds_end)
            except FormatError as error:
                if not (infos and lenient):
                    raise
                error.message = "behind it, from byte %d on: %s" % (
                    start,
                    error.message,
                )
                return [*infos[:-1], (infos[-1][0], error)]
            if item.damage is not None and not lenient:
                raise item.damage
            # No digest covers these bytes: check that no writer changed the file.
            check(item.beginning.header)
            infos.append((item.info(shown_name(path)), item.damage))
            if not item.is_followed:
                return infos
            start += cursor.position
            cursor = cursor.following()

    return read_snapshot(path, read, parts=True, storage_options=storage_options)


class _FileAt:
    """The file at a cursor, which is `start` bytes behind the begin of the first one.

    ``damage`` is why the chunks were not counted, or don't end where they should.
    If another file follows, the cursor is at its beginning.
    """

    def __init__(
        self, cursor: Cursor, start: int, strict: bool, finds_end: bool
    ) -> None:
        self.start, size = start, cursor.left()
        self.beginning = beginning = read_beginning(cursor)
        header, self.first_at = beginning.header, cursor.position
        self.first: BloscHeader | None = None
        self.damage: FormatError | None = None
        self.walked = header.nbytes is None or size is None
        self.nchunks = self.nbytes = self.largest = self.largest_cbytes = 0
        self.offsets = _describe_offsets(beginning, self.first_at, size)
        try:
            self._read_first_chunk(cursor, strict)
            if self.walked:
                from ._format.chunks import frames_of

                for frame in frames_of(cursor, header):
                    self.nchunks += 1
                    self.nbytes += frame.header.nbytes
                    self.largest = max(self.largest, frame.header.nbytes)
                    self.largest_cbytes = max(self.largest_cbytes, frame.header.ctbytes)
        except FormatError as error:
            if not self.walked:
                raise
            self.damage = error
        self.shard = describe_shard(cursor.fp, beginning, self.first_at, size, start)
        if not self.walked:
            self._take_sizes_of_header(size or 0)
        self.is_followed = False
        if finds_end and not self.damage and header.nchunks:
            try:
                self._move_to_end(cursor)
                has_trailer = self.shard is not None and self._skip_trailer(cursor)
                self.is_followed = bytes(cursor.peek(len(MAGIC))) == MAGIC
                cursor.restore()
                if self.is_followed and self.shard is not None:
                    rows, slots = self.shard.rows, self.shard.slots
                    self.shard = ShardInfo(rows=rows, slots=slots, index=has_trailer)
            except FormatError as error:
                self.damage = error
        is_whole = size is None or self.is_followed
        self.cbytes = cursor.position if is_whole else size or 0

    def _read_first_chunk(self, cursor: Cursor, strict: bool) -> None:
        header, head = self.beginning.header, cursor.peek(BLOSC_HEADER_LENGTH)
        if header.nchunks and not (header.nchunks == -1 and not head):
            with locating_chunk(0, self.first_at):
                if strict and header.nbytes is not None:
                    from ._format.chunks import read_chunk_header

                    self.first = read_chunk_header(cursor, header, 0)
                else:
                    self.first = decode_header(head)

    def _take_sizes_of_header(self, size: int) -> None:
        header = self.beginning.header
        self.nchunks, self.nbytes = header.nchunks, header.nbytes or 0
        if self.nchunks == 1 and self.first is not None:
            self.largest, self.largest_cbytes = self.nbytes, self.first.ctbytes
        elif self.nchunks > 1:
            self.largest = max(header.chunk_size, header.last_chunk)
            # Blosc stores incompressible bytes unchanged, after its header.
            self.largest_cbytes = min(self.largest + BLOSC_HEADER_LENGTH, size)

    def _move_to_end(self, cursor: Cursor) -> None:
        """Move behind the last chunk; raise `FormatError` if the file ends before."""
        if self.walked:
            return
        header, offsets = self.beginning.header, self.beginning.offsets
        if offsets is None or self.offsets is None or not self.offsets.plausible:
            from ._format.chunks import frames_of

            for _ in frames_of(cursor, header):
                pass
            return
        cursor.move(offsets[-1])
        with locating_chunk(len(offsets) - 1, offsets[-1]):
            chunk = decode_header(cursor.peek(BLOSC_HEADER_LENGTH))
            cursor.skip(chunk.ctbytes, "a chunk", "chunks")
            cursor.skip(header.checksum_impl.size, "a digest", "chunks")

    def _skip_trailer(self, cursor: Cursor) -> bool:
        """Move behind the trailer of a shard; return whether there is one."""
        from ._format.shard import skip_trailer

        begin, beginning = cursor.position, self.beginning
        skip_trailer(cursor, beginning.header, beginning.metadata)
        return cursor.position > begin

    def info(self, name: str) -> FileInfo:
        """Return the description of the file."""
        header, beginning = self.beginning.header, self.beginning
        return FileInfo(
            file=name,
            start=self.start,
            format_version=header.format_version,
            nbytes=self.nbytes,
            cbytes=self.cbytes,
            ratio=ratio_of(self.nbytes, self.cbytes),
            nchunks=self.nchunks,
            largest_chunk=self.largest,
            largest_cbytes=self.largest_cbytes,
            walked=self.walked,
            checksum=header.checksum,
            header=HeaderInfo(**header),
            array=describe_array(beginning.metadata),
            metadata=beginning.metadata,
            metadata_header=_describe_metadata(beginning.metadata_header),
            offsets=self.offsets,
            shard=self.shard,
            first_chunk=_describe_chunk(self.first),
        )


def ratio_of(nbytes: int, cbytes: int) -> float:
    """Return the compression ratio: plain bytes divided by compressed bytes."""
    return round(nbytes / cbytes, 4) if cbytes else 0.0


def _describe_chunk(header: BloscHeader | None) -> ChunkInfo | None:
    if header is None:
        return None
    copied, split, cbytes = header.is_copy, header.splits, header.ctbytes
    fields = {name: getattr(header, name) for name in COMMON_FIELDS}
    return ChunkInfo(copied=copied, split=split, cbytes=cbytes, **fields)


def _describe_offsets(
    beginning: Beginning, first_at: int, size: int | None
) -> OffsetsInfo | None:
    offsets = beginning.offsets
    if offsets is None:
        return None
    smallest = SMALLEST_CHUNK + beginning.header.checksum_impl.size
    plausible = (
        offsets[:1] in ([], [first_at])
        and all(after - at >= smallest for at, after in pairwise(offsets))
        and (not offsets or size is None or offsets[-1] + smallest <= size)
    )
    free = beginning.header.max_app_chunks
    return OffsetsInfo(count=len(offsets), free=free, plausible=plausible)


def describe_shard(
    fp: Seekable, beginning: Beginning, first_at: int, size: int | None, start: int = 0
) -> ShardInfo | None:
    """Return a description of the shard that a file is; None if it is no shard.

    `size` is None for a file that can't seek. The file begins at `start`.
    """
    header, metadata = beginning.header, beginning.metadata
    if not is_shard(metadata):  # usually; NumPy is not needed then
        return None
    from ._format.shard import count_slots, has_trailer, inner_size
    from ._storage.local import storage_of

    if inner_size(metadata, header) is None:
        return None
    slots = count_slots(header, metadata)
    # An array without axes has one row.
    rows, index = shard_rows(metadata), None
    if not rows:
        rows = metadata[CHUNKS][0] if metadata[CHUNKS] else 1
    if size is not None:
        position = fp.tell()
        fp.seek(start)
        index = has_trailer(storage_of(fp), header, first_at, metadata)
        fp.seek(position)
    return ShardInfo(rows=rows, slots=slots, index=index)


def describe_array(metadata: object) -> ArrayInfo | None:
    """Return shape, dtype and order from the metadata of an array.

    The values are for display: they are checked only as far as JSON needs it.
    """
    if not is_array(metadata):
        return None
    shape = metadata.get("shape")
    return ArrayInfo(
        shape=_lengths([shape] if type(shape) is int else shape),
        dtype=_dtype_text(metadata.get("dtype")),
        order=metadata.get("order", "C"),
        chunks=_lengths(metadata.get(CHUNKS)) if is_grid(metadata) else None,
    )


def _lengths(stored: Json) -> tuple[int, ...] | None:
    """Return the stored lengths of axes; None if they are invalid."""
    is_shape = (
        isinstance(stored, (list, tuple))
        and len(stored) <= MAX_NDIM
        and all(type(n) is int for n in stored)
    )
    return tuple(stored) if is_shape else None


def _dtype_text(stored: object) -> str | None:
    match stored:
        case None:
            return None
        case str():
            # 0.16 stored the repr of a string; now it is the string itself.
            quoted = stored[:1] in ("'", '"') and stored[-1:] == stored[:1]
            return stored[1:-1] if quoted and len(stored) > 1 else stored
        case [["", plain]]:  # 0.4.0 wrote a list even for a dtype without fields
            return str(plain)
    return str(stored)


def _describe_metadata(header: MetadataHeader | None) -> MetadataHeaderInfo | None:
    """Return the fields of a header, with strings for bytes, which JSON lacks."""
    if header is None:
        return None
    text = partial(str, encoding="ascii", errors="backslashreplace")
    fields = {k: text(v) if isinstance(v, bytes) else v for k, v in header.items()}
    return MetadataHeaderInfo(**fields)


# Public functions


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
    return inspect_file(path, storage_options=storage_options)


def describe(
    path: Path, *, strict: bool = True, storage_options: StorageOptions | None = None
) -> JsonObject:
    """Return what `info` returns as a dictionary that can be written as JSON.

    If `strict` is False, a first chunk whose size differs from the size in the file
    header is accepted, as `info` does: old releases wrote files like that.
    """
    return inspect_file(path, strict=strict, storage_options=storage_options).as_dict()
