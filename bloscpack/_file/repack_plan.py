"""Plan the new file from the old one and the settings, without writing anything.

`Survey` reads the sections of the old file and the headers of its chunks; `RepackPlan`
does not read.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import TypedDict

from .. import defaults, log
from .._format.append_plan import UNCHANGED, updated_metadata
from .._format.array_metadata import Description, grid_for, with_chunks
from .._format.blosc_header import BloscHeader
from .._format.chunks import frames_of
from .._format.grid import Grid
from .._format.sections import (
    Beginning,
    Section,
    check_offsets,
    encode_section,
    read_beginning,
)
from .._format.shard import (
    DEFAULT_SHARD_CHECKSUM,
    SEPARATOR,
    check_table,
    has_inner_chunks,
    row_nbytes,
    rows_for,
    rows_in,
    shard_of,
    with_rows,
)
from .._storage.base import read_up_to
from .._storage.cursor import Cursor
from .._types import BinaryFile, Json, Path
from ..abstract_io import header_for
from ..args import (
    BLOSC_ARGS,
    BloscArgs,
    BloscpackArgs,
    MetadataArgs,
    calculate_nchunks,
    parse_chunk_size,
)
from ..checksums import CHECKSUMS_LOOKUP, check_valid_checksum
from ..constants import (
    BLOSCPACK_HEADER_LENGTH,
    FORMAT_VERSION,
    MAGIC,
    METADATA_HEADER_LENGTH,
)
from ..exceptions import AnotherFileFollows, MetadataSectionTooSmall, UsageValueError
from ..headers import MetadataHeader
from ..serializers import (
    CHUNKS,
    CONTAINER,
    SHARD,
    is_array,
    is_grid,
    is_shard,
    shard_rows,
    user_metadata,
)

# Number of chunks, chunk size and size of the last chunk.
Geometry = tuple[int, int, int]


class Settings(TypedDict, total=False):
    """The settings of `repack`, which documents them."""

    auto: bool | str | None
    typesize: int | None
    clevel: int | None
    shuffle: bool | int | None
    cname: str | None
    chunk_size: int | str | None
    chunks: int | Sequence[int] | None
    checksum: str | None
    offsets: bool | None
    max_app_chunks: int | Callable[[int], int] | None
    metadata: object
    keep_array: bool
    shard: bool | None
    meta_checksum: str | None
    meta_codec: str | None
    max_meta_size: int | Callable[[int], int] | None


class RepackKeywords(Settings, total=False):
    """The settings with their other names."""

    codec: str | None
    level: int | None


SETTINGS = tuple(Settings.__annotations__)
META_SETTINGS = ("meta_checksum", "meta_codec", "max_meta_size")


class Survey:
    """The sections of a file of any version, and the sizes of its chunks.

    ``geometry`` is the number of chunks, the chunk size and the size of the last one;
    ``regular`` says whether all chunks have these sizes. ``first`` is the header of the
    first chunk, None without chunks. ``section`` is the metadata section with the text
    as stored, None without metadata.

    Raises `FormatError` if the sections, a chunk header or the offset table is wrong,
    and `AnotherFileFollows` if another file follows.
    """

    def __init__(self, fp: BinaryFile) -> None:
        fp.seek(0)
        cursor = Cursor(fp)
        self.beginning: Beginning = read_beginning(cursor)
        self.header = self.beginning.header
        self.first: BloscHeader | None = None
        self._read_chunks(cursor)
        in_shard = is_shard(self.beginning.metadata)
        log_dropped(bytes_behind(fp, cursor.position, in_shard, "would be lost"))
        self.section = self._read_section(fp)

    def _read_chunks(self, cursor: Cursor) -> None:
        offsets, sizes = [], set()
        nbytes = last = 0
        for frame in frames_of(cursor, self.header):
            if self.first is None:
                self.first = frame.header
            else:
                sizes.add(last)
            last = frame.header.nbytes
            nbytes += last
            offsets.append(frame.offset or 0)
        check_offsets(self.beginning.offsets or [], offsets)
        self.nbytes = nbytes
        chunk_size = max(sizes, default=last)
        self.regular = len(sizes) <= 1 and last <= chunk_size
        if self.header.nchunks in (0, 1):  # it may be larger than the only chunk
            chunk_size = max(chunk_size, self.header.chunk_size)
        self.geometry: Geometry = len(offsets), max(chunk_size, last), last

    def _read_section(self, fp: BinaryFile) -> Section | None:
        header = self.beginning.metadata_header
        if header is None:
            return None
        fp.seek(BLOSCPACK_HEADER_LENGTH)
        front = read_up_to(fp, METADATA_HEADER_LENGTH + header.meta_comp_size)
        room = header.max_meta_size - header.meta_comp_size
        fp.seek(room, os.SEEK_CUR)
        digest_size = CHECKSUMS_LOOKUP[header.meta_checksum].size
        digest = read_up_to(fp, digest_size)
        return Section(front, room, digest, self.beginning.metadata)


def bytes_behind(fp: BinaryFile, end: int, is_shard: bool, what: str) -> int:
    """Return the number of bytes behind the last chunk, which ends at `end`.

    It is 0 for the trailer of a shard, which is written again. Raises
    `AnotherFileFollows` if another file starts there; `what` happens to it.
    """
    fp.seek(end)
    head = read_up_to(fp, len(SEPARATOR))
    if head.startswith(MAGIC):
        raise AnotherFileFollows(
            "expected the end of the file at byte '%d', found "
            "another bloscpack file, which %s" % (end, what)
        )
    has_trailer = is_shard and head == SEPARATOR
    return 0 if has_trailer else fp.seek(0, os.SEEK_END) - end


def log_dropped(nbytes: int, path: Path | None = None) -> None:
    """Tell the user that bytes behind the last chunk are not kept."""
    if nbytes:
        name = "" if path is None else "'%s': " % os.fsdecode(path)
        log.notice(
            "%sdropping '%d' bytes behind the last chunk, which belong to none: an "
            "interrupted append may have left them" % (name, nbytes)
        )


class RepackPlan:
    """The new file: ``header``, ``geometry``, ``section`` and ``blosc_args``.

    ``section`` is the encoded metadata section, None without metadata. ``blosc_args``
    are the settings to compress with, None if the chunks are copied. ``grid`` says how
    new chunks divide every axis of the array, None if they have the plain bytes as they
    are.
    """

    def __init__(self, old: Survey, settings: Settings) -> None:
        given = {name: value for name, value in settings.items() if value is not None}
        self.old = old
        # The constructors below check the values.
        self.metadata = self._new_metadata(settings)
        # The plain size of an inner chunk if the new file is a shard, else None.
        self._inner_nbytes: int | None = None
        self.grid = self._new_grid(settings)
        if self.grid is None:
            self._choose_inner_chunks(settings)
        self.section = self._encode_section(settings)
        self.geometry = self._new_geometry(settings.get("chunk_size"))
        compress = given.keys() & {*BLOSC_ARGS}
        self.blosc_args: BloscArgs | None = None
        typesize = old.header.typesize
        if old.header.format_version < 2 and old.first is not None:
            typesize = old.first.typesize  # these versions store none in the header
        recut = self.geometry != old.geometry or self.grid is not None
        if compress or recut or not old.regular:
            self.blosc_args = self._complete(settings, typesize)
            self.blosc_args.check()
            typesize = self.blosc_args.typesize or 0
        usual = DEFAULT_SHARD_CHECKSUM if settings.get("shard") else old.header.checksum
        checksum = settings.get("checksum")
        checksum = usual if checksum is None else checksum
        check_valid_checksum(checksum)
        offsets = settings.get("offsets")
        args = BloscpackArgs(
            offsets is None or bool(offsets), checksum, self._room(settings)
        )
        room = args.effective_max_app_chunks(self.geometry[0])
        has_metadata = self.section is not None
        self.header = header_for(
            BloscArgs(typesize), args, self.geometry, room, has_metadata
        )
        check_table(self.metadata, self.header)

    def _new_metadata(self, settings: Settings) -> Json:
        """Return the new metadata, still with the old rows of inner chunks."""
        old = self.old.beginning.metadata
        kept = old if settings.get("keep_array", True) else user_metadata(old)
        new = settings.get("metadata", UNCHANGED)
        if new is UNCHANGED:
            return kept
        return updated_metadata(kept, self.old.nbytes, 0, new)

    def _new_grid(self, settings: Settings) -> Grid | None:
        """Return the wanted grid of chunks, after changing the metadata accordingly."""
        chunks, metadata = settings.get("chunks"), self.metadata
        old, size = self.old.beginning.metadata, settings.get("chunk_size")
        if is_grid(old) and not is_grid(metadata):
            raise UsageValueError(
                "the plain bytes of an array in chunks of every axis are padded: "
                "repack it with 'chunks' of whole rows before it becomes bytes"
            )
        if size is not None and (chunks is not None or is_grid(old)):
            raise UsageValueError(
                "give 'chunks', the length of a chunk along each axis, and no "
                "'chunk_size'"
            )
        if chunks is None:
            return None
        described = Description(metadata)
        described.check_nbytes(self.old.nbytes)
        grid = grid_for(described, chunks)
        wanted = settings.get("shard")
        in_shard = is_shard(metadata) if wanted is None else wanted
        kept = {k: metadata[k] for k in metadata if k not in (CHUNKS, SHARD)}
        kept.update(order="C", container=CONTAINER)
        if not (grid.is_rows or 0 in grid.shape):
            shard = shard_of(described, grid) if in_shard else None
            self.metadata = with_chunks(kept, grid.chunk, shard)
            return grid
        nbytes = math.prod(grid.chunk) * described.dtype.itemsize
        rows = rows_for(described, "C", nbytes) if in_shard else None
        self.metadata = with_rows(kept, rows)
        self._inner_nbytes = nbytes if in_shard else None
        return grid

    def _choose_inner_chunks(self, settings: Settings) -> None:
        """Set the size of inner chunks, and their rows in the metadata."""
        metadata, wanted = self.metadata, settings.get("shard")
        if wanted is False:
            if is_array(metadata) and SHARD in metadata:
                self.metadata = with_rows(metadata, None)
            return
        if is_grid(metadata):
            described = Description(metadata)
            if wanted and described.grid is not None and described.shard is None:
                shard = shard_of(described, described.grid)
                self.metadata = with_chunks(metadata, described.grid.chunk, shard)
            return
        rows = shard_rows(metadata)
        if rows is None and not wanted:
            return
        described = Description(metadata)
        new_rows = self._new_rows(described, rows, settings)
        if new_rows is None:
            return
        if new_rows != rows:
            described.check_nbytes(self.old.nbytes)
            self.metadata = with_rows(described.metadata, new_rows)
        self._inner_nbytes = new_rows * row_nbytes(described)

    def _new_rows(
        self, described: Description, old_rows: int | None, settings: Settings
    ) -> int | None:
        """Return the rows of an inner chunk; None if the file does not become a shard.

        `old_rows` are those in the metadata.
        """
        size = settings.get("chunk_size")
        fits = old_rows is not None and has_inner_chunks(described, old_rows)
        if size is None and fits:
            return old_rows
        if settings.get("shard"):
            if size is None:
                nchunks, size, _ = self.old.geometry
                if nchunks <= 1:
                    # A single chunk was cut to its own size; the next one need not be
                    # as small.
                    size = max(size, parse_chunk_size(defaults.DEFAULT_CHUNK_SIZE))
            return rows_for(described, described.order, size)
        if size is None or old_rows is None or not has_inner_chunks(described, 1):
            return None
        return rows_in(size, row_nbytes(described), described.shape[0])

    def _new_geometry(self, chunk_size: int | str | None) -> Geometry:
        old = self.old
        if self.grid is not None:
            array = Description(self.metadata)
            nbytes = math.prod(self.grid.chunk) * array.dtype.itemsize
            return calculate_nchunks(array.stored_nbytes, max(1, nbytes))
        if self._inner_nbytes is None:
            if old.geometry[0] == 0 or (chunk_size is None and old.regular):
                return old.geometry
            size = "%dB" % old.geometry[1] if chunk_size is None else chunk_size
            if is_array(self.metadata):
                from ..numpy_io import whole_items

                itemsize = Description(self.metadata).dtype.itemsize
                size = whole_items(size, max(itemsize, 1), old.nbytes)
        else:
            size = self._inner_nbytes
        new = calculate_nchunks(old.nbytes, size)
        # The chunk size of a single chunk may be larger than the chunk.
        same = old.regular and new[0] == old.geometry[0] == 1
        return old.geometry if same else new

    def _complete(self, settings: Settings, typesize: int) -> BloscArgs:
        """Return the settings of Blosc, by default the settings of the first chunk."""
        first = self.old.first
        cname, shuffle = defaults.DEFAULT_CNAME, int(defaults.DEFAULT_SHUFFLE)
        if first is not None:
            cname, shuffle = first.codec, first.shuffle
            typesize = typesize or first.typesize
        args = BloscArgs(
            typesize or defaults.DEFAULT_TYPESIZE,
            defaults.DEFAULT_CLEVEL,
            shuffle,
            cname,
        )
        for name in args:
            value = settings.get(name)
            if value is not None:
                args[name] = value
        return args

    def _room(self, settings: Settings) -> int | Callable[[int], int]:
        """Return the number of free entries of the offset table."""
        given = settings.get("max_app_chunks")
        if given is not None:
            return given
        old = self.old.header
        if not old.offsets or old.format_version != FORMAT_VERSION:
            return defaults.DEFAULT_MAX_APP_CHUNKS
        before, after = self.old.geometry[1], self.geometry[1]
        if before == after:
            return old.max_app_chunks
        return -(-old.max_app_chunks * before // max(after, 1))

    def _encode_section(self, settings: Settings) -> Section | None:
        """Return the new metadata section."""
        old = self.old.beginning
        given = {
            name: value
            for name, value in settings.items()
            if name in META_SETTINGS and value is not None
        }
        new = settings.get("metadata", UNCHANGED)
        if new is UNCHANGED and self.metadata is old.metadata:
            if not given or old.metadata_header is None:
                return self.old.section
        elif self.metadata is None:
            return None
        return _encode_like(old.metadata_header, self.metadata, given)


def _encode_like(
    old: MetadataHeader | None, metadata: object, given: dict[str, object]
) -> Section:
    """Return a section with the settings of the old one, except those that are given.

    The room grows only if the metadata need more.
    """
    args = MetadataArgs()
    if old is not None:
        args.update({name: getattr(old, name) for name in META_SETTINGS})
        if old.meta_codec != "None":
            args.meta_level = old.meta_level
    args.update(given)
    try:
        return encode_section(metadata, args)
    except MetadataSectionTooSmall:
        if old is None or "max_meta_size" in given:
            raise
    args.max_meta_size = defaults.DEFAULT_MAX_META_SIZE
    return encode_section(metadata, args)
