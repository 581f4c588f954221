"""Plan the new file from the old one and the settings, without writing anything."""

from __future__ import annotations

from .._format.append_plan import UNCHANGED, updated_metadata
from .._format.chunk_sizes import calculate_nchunks, parse_chunk_size
from .._format.metadata import Section, encode_section
from .._format.shard import (
    DEFAULT_SHARD_CHECKSUM,
    has_inner_chunks,
    row_nbytes,
    rows_for,
    rows_in,
    with_rows,
)
from ..args import (
    BLOSC_ARGS,
    BLOSCPACK_ARGS,
    BloscArgs,
    BloscpackArgs,
    MetadataArgs,
)
from ..checksums import check_valid_checksum
from ..constants import FORMAT_VERSION
from ..defaults import (
    DEFAULT_CHUNK_SIZE,
    DEFAULT_CLEVEL,
    DEFAULT_CNAME,
    DEFAULT_MAX_APP_CHUNKS,
    DEFAULT_MAX_META_SIZE,
    DEFAULT_SHUFFLE,
    DEFAULT_TYPESIZE,
)
from ..exceptions import MetadataSectionTooSmall
from ..headers import BloscpackHeader, MetadataHeader
from ..serializers import SHARD, is_array, shard_rows, user_metadata

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypedDict

    from .._format.array_metadata import Description
    from ..serializers import Json
    from .survey import Cut, Survey

    class Settings(TypedDict, total=False):
        """The settings of `repack`, which documents them."""

        typesize: int | None
        clevel: int | None
        shuffle: bool | int | None
        cname: str | None
        chunk_size: int | str | None
        checksum: str | None
        offsets: bool | None
        max_app_chunks: int | Callable[[int], int] | None
        metadata: object
        keep_array: bool
        shard: bool | None
        meta_checksum: str | None
        meta_codec: str | None
        max_meta_size: int | Callable[[int], int] | None


META_SETTINGS = ("meta_checksum", "meta_codec", "max_meta_size")
SETTINGS = (
    *BLOSC_ARGS,
    "chunk_size",
    *BLOSCPACK_ARGS,
    "metadata",
    "keep_array",
    "shard",
    *META_SETTINGS,
)


class Plan:
    """The new file: ``header``, ``cut``, ``section`` and ``blosc_args``.

    ``section`` is the encoded metadata section, None without metadata. ``blosc_args``
    are the settings to compress with, None if the chunks are copied.
    """

    def __init__(self, old: Survey, settings: Settings) -> None:
        given = {name: value for name, value in settings.items() if value is not None}
        self._old = old
        # The constructors below check the values.
        self.metadata = self._new_metadata(settings)
        # The plain size of an inner chunk if the new file is a shard, else None.
        self._inner_nbytes: int | None = None
        self._choose_inner_chunks(settings)
        self.section = self._encode_section(settings)
        self.cut = self._new_cut(settings.get("chunk_size"))
        compress = given.keys() & {*BLOSC_ARGS}
        self.blosc_args: BloscArgs | None = None
        typesize = old.header.typesize
        if old.header.format_version < 2 and old.first is not None:
            typesize = old.first.typesize  # these layouts store none in the header
        if compress or self.cut != old.cut or not old.regular:
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
        self.header = BloscpackHeader(
            offsets=args.offsets,
            metadata=self.section is not None,
            checksum=checksum,
            typesize=typesize,
            chunk_size=self.cut[1],
            last_chunk=self.cut[2],
            nchunks=self.cut[0],
            max_app_chunks=args.effective_max_app_chunks(self.cut[0]),
        )

    def _new_metadata(self, settings: Settings) -> Json:
        """Return the new metadata, still with the old rows of inner chunks."""
        old = self._old.beginning.metadata
        kept = old if settings.get("keep_array", True) else user_metadata(old)
        new = settings.get("metadata", UNCHANGED)
        if new is UNCHANGED:
            return kept
        return updated_metadata(kept, self._old.nbytes, 0, new)

    def _choose_inner_chunks(self, settings: Settings) -> None:
        """Set the size of inner chunks, and their rows in the metadata."""
        metadata, wanted = self.metadata, settings.get("shard")
        if wanted is False:
            if is_array(metadata) and SHARD in metadata:
                self.metadata = with_rows(metadata, None)
            return
        rows = shard_rows(metadata)
        if rows is None and not wanted:
            return
        from .._format.array_metadata import Description

        described = Description(metadata)
        new_rows = self._new_rows(described, rows, settings)
        if new_rows is None:
            return
        if new_rows != rows:
            described.check_nbytes(self._old.nbytes)
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
            size = self._usual_chunk_size() if size is None else size
            return rows_for(described, described.order, size)
        if size is None or old_rows is None or not has_inner_chunks(described, 1):
            return None
        return rows_in(size, row_nbytes(described), described.shape[0])

    def _usual_chunk_size(self) -> int:
        """Return the chunk size of a new shard, in bytes, for which none is given."""
        nchunks, chunk_size, _ = self._old.cut
        if nchunks > 1:
            return chunk_size
        # A single chunk was cut to its own size; the next one need not be as small.
        return max(chunk_size, parse_chunk_size(DEFAULT_CHUNK_SIZE))

    def _new_cut(self, chunk_size: int | str | None) -> Cut:
        old = self._old
        if self._inner_nbytes is not None:
            cut = calculate_nchunks(old.nbytes, self._inner_nbytes)
            return old.cut if old.regular and cut[0] == old.cut[0] == 1 else cut
        if old.cut[0] == 0:
            return old.cut
        if chunk_size is None and old.regular:
            return old.cut
        size = "%dB" % old.cut[1] if chunk_size is None else chunk_size
        if is_array(self.metadata):
            from .._format.array_metadata import Description
            from ..numpy_io import whole_items

            itemsize = Description(self.metadata).dtype.itemsize
            size = whole_items(size, max(itemsize, 1), old.nbytes)
        cut = calculate_nchunks(old.nbytes, size)
        # The chunk size of a single chunk may be larger than the chunk.
        same = old.regular and cut[0] == old.cut[0] == 1
        return old.cut if same else cut

    def _complete(self, settings: Settings, typesize: int) -> BloscArgs:
        """Return the settings of Blosc, by default the settings of the first chunk."""
        first = self._old.first
        cname, shuffle = DEFAULT_CNAME, int(DEFAULT_SHUFFLE)
        if first is not None:
            cname, shuffle = first.codec, first.shuffle
            typesize = typesize or first.typesize
        args = BloscArgs(typesize or DEFAULT_TYPESIZE, DEFAULT_CLEVEL, shuffle, cname)
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
        old = self._old.header
        if not old.offsets or old.format_version != FORMAT_VERSION:
            return DEFAULT_MAX_APP_CHUNKS
        before, after = self._old.cut[1], self.cut[1]
        if before == after:
            return old.max_app_chunks
        return -(-old.max_app_chunks * before // max(after, 1))

    def _encode_section(self, settings: Settings) -> Section | None:
        """Return the new metadata section."""
        old = self._old.beginning
        given = {
            name: value
            for name, value in settings.items()
            if name in META_SETTINGS and value is not None
        }
        new = settings.get("metadata", UNCHANGED)
        if new is UNCHANGED and self.metadata is old.metadata:
            if not given or old.metadata_header is None:
                return self._old.section
        elif self.metadata is None:
            return None
        return _encode_like(old.metadata_header, self.metadata, given)


def _encode_like(
    old: MetadataHeader | None, metadata: object, given: dict[str, object]
) -> Section:
    """Return a section with the settings of the old one, except those that are given.

    The room grows only if the metadata need more.
    """
    kept: dict[str, object] = {}
    if old is not None:
        kept["meta_checksum"] = old.meta_checksum
        kept["meta_codec"] = old.meta_codec
        if old.meta_codec != "None":
            kept["meta_level"] = old.meta_level
        kept["max_meta_size"] = old.max_meta_size
    args = MetadataArgs()
    args.update({**kept, **given})
    try:
        return encode_section(metadata, args)
    except MetadataSectionTooSmall:
        if old is None or "max_meta_size" in given:
            raise
    args.max_meta_size = DEFAULT_MAX_META_SIZE
    return encode_section(metadata, args)
