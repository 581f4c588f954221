"""Archives: files of several arrays, which `savez` writes and `loadz` opens.

Strategy: an array is compressed straight into its member. When the member is complete,
its size and checksum are written into the local header in front of it. The document of
the group is the last member, because it lists the sizes of the others. Reading takes
members in place, and compares directory, list, local headers and documents.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from zlib import crc32

from .._engine.blosc_settings import own_settings
from .._engine.contexts import on_error
from .._format.array_metadata import describe, grid_for
from .._format.chunks import compress
from .._format.dtypes import Array, DType, exact_array
from .._format.grid import Grid
from .._format.names import NoSuchName, is_safe_name, is_short
from .._format.other_formats import PREFIX_LENGTH, begins_as_archive
from .._format.sections import encode_offsets, encode_section
from .._format.shard import Trailer, count_slots, row_nbytes, trailer_of, with_rows
from .._format.zarr_metadata import (
    ZARR_JSON,
    ArrayDocument,
    decode_array,
    encode_json,
    group_document,
)
from .._format.zip_format import (
    MAX_ARRAY_PARTS,
    MAX_DIRECTORY,
    MAX_NAME,
    MEMBERS,
    VERSION,
    begins_one,
    document_name,
    encode_group,
    encode_local,
    join_crc,
    parents_of,
)
from .._storage.base import PartStorage, Storage, naming_errors, write_all
from .._storage.local import whole_file
from .._storage.paths import shown_name
from .._storage.zip_store import Directory
from .._types import (
    BinaryFile,
    Buffer,
    JsonObject,
    Path,
    Seekable,
    StorageOptions,
    Writable,
)
from ..constants import MAGIC, OFFSET_LENGTH
from ..exceptions import (
    DamageError,
    FormatError,
    NotReadable,
    Unsupported,
    UsageError,
    UsageTypeError,
    UsageValueError,
)
from ..file_io import CompressedFPSink, is_seekable
from ..numpy_io import as_shard, pack_ndarray, storable
from ..serializers import parse_json
from .opened import open_source

if TYPE_CHECKING:
    from zipfile import ZipInfo

# The extension of the member of an array that Zarr has no shards of.
BLP = ".blp"
# What is between the name of an array and the name of a chunk, of which it has several.
OTHER_CHUNK = re.compile(r"/c(?=/(?!0(?:/0)*\Z))")
# Numbers of bytes that are read at a URL with the end records, which have the directory
# and the list of most archives in front of them, and with the header of a member.
END_NBYTES = 2**16 + 64 * 2**10
BEGIN_NBYTES = 64 * 2**10
# The only checksum of a shard in an archive: every Zarr reader verifies it.
CHECKSUM = "crc32c"
# Number of plain bytes from which an array is compressed straight into its member.
KEPT_NBYTES = 2**16
# Maximum number of shapes of short arrays whose sections are kept.
KEPT_SHAPES = 1024
# Number of bytes that are copied from a temporary file at a time.
COPY_NBYTES = 2**20
# Keywords of the functions that pack a single array which are no settings here.
NO_SETTINGS = ("metadata", "shard")


def is_archive(storage: Storage) -> bool:
    """Return whether `savez` may have written the bytes, which may be damaged.

    They begin as an archive does, or the directory has the document of the group. The
    caller has found out that they don't begin as an array file.
    """
    if begins_as_archive(storage.read_at(0, PREFIX_LENGTH)):
        return True
    try:
        return ZARR_JSON in Directory(storage).members
    except FormatError:
        return False


def refuse_archive(storage: Storage) -> None:
    """Raise `UsageError` for an archive, where a single file is expected.

    The bytes do not begin as one.
    """
    if is_archive(storage):
        raise UsageError(
            "the file is an archive of several arrays: 'blpk verify' checks their "
            "chunks, and 'blpk recover' saves those that are intact"
        )


# Reading


class ArchiveFile(Directory):
    """An open archive: its directory and its arrays.

    ``arrays`` has, by the name of each array, the name of the member with its chunks.
    """

    def __init__(
        self,
        file: Path | Seekable | Buffer | Storage,
        storage_options: StorageOptions | None = None,
    ) -> None:
        source, self.name = open_source(
            file, storage_options=storage_options, end=END_NBYTES
        )
        # The file below the buffer: a fork may copy the locked lock of a buffer.
        close: Callable[[], None] = getattr(source, "raw", source).close
        self._close = None if self.name is None else close
        with on_error(self.close):
            storage = source if isinstance(source, Storage) else whole_file(source)
            with naming_errors(self.name):
                super().__init__(storage)
                self.read_list()
                self.arrays = self._find_arrays()

    def close(self) -> None:
        """Close the file, unless the caller opened it."""
        if self._close is not None:
            self._close()

    def __del__(self) -> None:
        if hasattr(self, "_close"):
            self.close()

    def label(self, name: str) -> str:
        """Return the name of an array with the name of the file, for messages."""
        return name if self.name is None else "%s/%s" % (self.name, name)

    def open(self, name: str) -> tuple[PartStorage, ArrayDocument | None]:
        """Return the chunks of an array, and its document if it is a shard.

        At a URL both are requested together. Raises ``KeyError`` if there is no array
        of this name.
        """
        if name not in self.arrays:
            raise NoSuchName(name, self.name, self.arrays.keys)
        chunks = self.arrays[name]
        if chunks == document_name(name):
            raise DamageError(
                "no member of the archive has the chunks of %.200r" % name
            )
        members = [self.member(chunks)]
        if not chunks.endswith(BLP):
            members.append(self.member(document_name(name)))
        most = BEGIN_NBYTES if self.storage.is_remote else 0
        parts = [
            PartStorage(self.storage, start, stop, self, head)
            for start, stop, head in self.extents(*members, most=most)
        ]
        self.check_has_own_chunks(chunks, parts[0])
        document = self.document(name, parts[1]) if parts[1:] else None
        return parts[0], document

    def check_has_own_chunks(self, member: str, content: Storage) -> None:
        """Raise `Unsupported` for a shard that another program has written later."""
        if member.endswith(BLP) or content.read_at(0, len(MAGIC)) == MAGIC:
            return
        if self.is_later(member):
            raise Unsupported(
                "a program that knows only Zarr has written %.200r later: open the "
                "archive as a dataset" % member
            )

    def document(self, name: str, content: Storage | None = None) -> ArrayDocument:
        """Return the description of an array in its ``zarr.json``."""
        try:
            return decode_array(self.json(document_name(name), content))
        except Unsupported as error:
            error.filename = shown_name(self.label(name))
            raise

    def json(self, name: str, content: Storage | None = None) -> JsonObject:
        """Return the content of a document, which may be open already."""
        text = self.read(self.member(name), content)
        try:
            document = parse_json(text)
        except ValueError as error:
            raise DamageError(
                "expected JSON in %.200r: %.200s" % (name, error)
            ) from error
        return document if isinstance(document, dict) else {}

    def _find_arrays(self) -> dict[str, str]:
        """Return the name of the member with the chunks of each array.

        An array of which the document or the chunks are missing is one of them: reading
        it raises an error. Raises `FormatError` if `savez` can't have written the file.
        """
        members = self.members
        if ZARR_JSON not in members:
            npy = any(name.endswith(".npy") for name in members)
            raise NotReadable(
                "expected a ZIP file of savez, with the member '%s', found %s"
                % (ZARR_JSON, "arrays of NumPy: numpy.load reads it" if npy else "none")
            )
        arrays: dict[str, str] = {}
        others = set()
        for name in filter(is_short, {**members, **self.sizes}):
            for match in OTHER_CHUNK.finditer(name):
                if document_name(name[: match.start()]) in members:
                    others.add(name[: match.start()])
            array = array_of(name)
            if array is None:
                continue
            known = arrays.setdefault(array, name)
            # A missing member counts only without others.
            if known != name and (name in members or known not in members):
                raise DamageError(
                    "the members %.200r and %.200r are the same array" % (known, name)
                )
        end = "/" + ZARR_JSON
        documents = [
            name.removesuffix(end)
            for name in members
            if name.endswith(end) and is_short(name)
        ]
        left = set(documents).difference(arrays, others)
        names = sorted([*documents, *arrays]) if left else []
        for name in documents:
            if (
                name in left
                and not begins_one(name, names)
                and self._lacks_chunks(name)
            ):
                arrays[name] = document_name(name)
        shown = {n: m for n, m in arrays.items() if m.endswith(BLP) or n not in others}
        for name in shown:
            # A program that makes a file for each array must not leave its folder.
            if not is_safe_name(name):
                raise DamageError("no array can have the name %.200r" % name)
        return shown

    def _lacks_chunks(self, name: str) -> bool:
        """Return whether a document without chunks may describe an array."""
        try:
            if self.json(document_name(name)).get("node_type") == "group":
                return False
            self.document(name)
        except Unsupported:  # an array that savez can't have written
            return False
        except FormatError:
            pass
        return True


def array_of(member: str) -> str | None:
    """Return the name of the array whose chunks are in a member; None for others."""
    if member.endswith(BLP):
        return member.removesuffix(BLP)
    array, mark, chunk = member.rpartition("/c/")
    return array if mark and set(chunk.split("/")) == {"0"} else None


def check_document(
    document: ArrayDocument, shape: tuple[int, ...], dtype: DType, member: str
) -> None:
    """Raise `FormatError` unless ``zarr.json`` describes the array in a member."""
    in_place = member.endswith("/c" + "/0" * len(shape))
    if (document.grid.shape, document.dtype) != (shape, dtype) or not in_place:
        raise DamageError(
            "'%s' describes an array of shape %s and dtype '%s', but '%s' has one of "
            "shape %s and dtype '%s': another program has changed it"
            % (ZARR_JSON, document.grid.shape, document.dtype, member, shape, dtype)
        )


# Writing


def check_names(names: Collection[str], attributes: JsonObject | None) -> None:
    """Raise `UsageError` unless arrays can have these names beside each other.

    Their group has the `attributes`.
    """
    if MEMBERS in (attributes or ()):
        raise UsageValueError(
            "no metadata can have the name '%s': it lists the members" % MEMBERS
        )
    for name in names:
        if not isinstance(name, str) or not all(map(_is_part, name.split("/"))):
            raise UsageValueError(
                "an array can't have the name %.200r: expected text whose parts, "
                "between slashes, are neither empty, '.', '..' nor '%s', do not begin "
                "with '__' or end with '%s', and have no backslash"
                % (name, ZARR_JSON, BLP)
            )
        try:
            size = len(document_name(name).encode())
        except UnicodeEncodeError as error:
            raise UsageValueError("%r is no name in Unicode" % name) from error
        if size > MAX_NAME:
            raise UsageValueError(
                "a name in a ZIP file has at most %d bytes, found '%d'"
                % (MAX_NAME, size)
            )
        if name.count("/") >= MAX_ARRAY_PARTS:
            raise UsageValueError(
                "a name has at most %d parts between slashes, found '%d'"
                % (MAX_ARRAY_PARTS, name.count("/") + 1)
            )
    parents = parents_of(names)
    for name in names:
        if name in parents:
            raise UsageValueError(
                "'%s' can't be an array and a group with other arrays" % name
            )


def _is_part(part: str) -> bool:
    return (
        part not in ("", ".", "..", ZARR_JSON)
        and not part.startswith("__")
        and not part.endswith(BLP)
        and not any(c in part for c in "\\\0")
    )


class ArchiveSettings:
    """The settings of an archive.

    ``packing`` are keywords of `pack_ndarray`, the others those of `replacing`.
    """

    def __init__(self, given: Mapping[str, Any] | None) -> None:
        if given is not None and not isinstance(given, Mapping):
            raise UsageTypeError(
                "settings: expected a dictionary of settings, found %r; save(file, "
                "{'settings': array}) stores an array of this name"
                % type(given).__name__
            )
        self.packing = dict(given or {})
        for name in NO_SETTINGS:
            if name in self.packing:
                raise UsageValueError("'%s' is no setting of save and savez" % name)
        self.sync: bool | None = self.packing.pop("sync", None)
        self.storage_options: StorageOptions | None = self.packing.pop(
            "storage_options", None
        )


class MemberSink(CompressedFPSink):
    """Writes a `.blp` file as the member of an archive, and computes its crc32.

    The bytes in front of the first chunk are kept in memory: some of them, the entries
    of the offset table, are written again at the end.
    """

    def __init__(self, output_fp: Writable) -> None:
        super().__init__(output_fp)
        self._front = bytearray()
        self._rest_crc = 0

    def _write(self, data: Buffer) -> None:
        if not self._nput:
            self._front += data
        else:
            self._rest_crc = crc32(data, self._rest_crc)
        super()._write(data)

    def _overwrite(self, back: int, data: bytes) -> None:
        start = self._position - back
        assert start + len(data) <= len(self._front)
        self._front[start : start + len(data)] = data
        super()._overwrite(back, data)

    @property
    def size(self) -> int:
        """Number of bytes of the member."""
        return self._position

    @property
    def crc(self) -> int:
        """The crc32 of the member."""
        rest = self._position - len(self._front)
        return join_crc(crc32(self._front), self._rest_crc, rest)


def write_archive(
    fp: Any,
    arrays: Mapping[str, object],
    settings: Mapping[str, Any],
    attributes: JsonObject | None,
) -> None:
    """Write an archive to a file object, in one go if it can't seek.

    `settings` are keywords of `pack_ndarray`; the group gets the `attributes`.
    """
    with archive_writer(fp) as writer:
        writer.write(arrays, settings)
        writer.finish(attributes)


@contextmanager
def archive_writer(fp: Any) -> Iterator[ArchiveWriter]:
    """Yield a writer; all is written when the block ends if `fp` can't seek."""
    if is_seekable(fp):
        yield ArchiveWriter(fp)
        return
    from tempfile import TemporaryFile

    with TemporaryFile() as spool:
        yield ArchiveWriter(spool)
        spool.seek(0)
        for block in iter(lambda: spool.read(COPY_NBYTES), b""):
            write_all(fp, block)


class ShortShards:
    """Packs short arrays of one dtype in few steps, each into a shard of one chunk.

    All have the settings of the first one, which `sink` has got, and its `document`.
    """

    def __init__(
        self, array: Array, sink: CompressedFPSink, document: ArrayDocument
    ) -> None:
        self._described, self._itemsize = describe(array), array.itemsize
        self._sink, self._header = sink, copy(sink.bloscpack_header)
        self._document = document
        # By number of axes: the first shape, and its document.
        self._texts: dict[int, tuple[tuple[int, ...], bytes]] = {}
        # By shape: the sections in front of the chunk, the trailer, and the document.
        self._known: dict[tuple[int, ...], tuple[bytes, Trailer, bytes]] = {}

    def pack(self, array: Array) -> tuple[bytes, bytes]:
        """Return the shard of an array, and the document of the array."""
        shape, sink = array.shape, self._sink
        if shape not in self._known:
            if len(self._known) >= KEPT_SHAPES:
                self._known.clear()
            self._known[shape] = self._parts(shape)
        front, trailer, text = self._known[shape]
        with own_settings:
            chunk = compress(array.tobytes(), sink.blosc_args)
        digest, trailer = sink.checksum_impl(chunk), replace(trailer)  # without chunks
        trailer.add_frame(len(front), chunk)
        end = trailer.blocks(len(front) + len(chunk) + len(digest))
        return b"".join((front, chunk, digest, *end)), text

    def _parts(self, shape: tuple[int, ...]) -> tuple[bytes, Trailer, bytes]:
        header, rows, ndim = self._header, shape[0], len(shape)
        header.chunk_size = header.last_chunk = math.prod(shape) * self._itemsize
        metadata = with_rows({**self._described, "shape": shape}, rows)
        section = encode_section(metadata, self._sink.metadata_args)
        front = b"".join((header.encode(), *section.blocks()))
        front += encode_offsets([len(front) + OFFSET_LENGTH])
        trailer = trailer_of(header.chunk_size, header, metadata)
        if ndim not in self._texts:
            self._document.grid = Grid.of_rows(shape, rows, 1)
            self._texts[ndim] = shape, encode_compactly(self._document)
        first, text = self._texts[ndim]  # the shape is also that of chunk and shard
        return front, trailer, text.replace(_stated(first), _stated(shape))


def _stated(shape: tuple[int, ...]) -> bytes:
    """Return how a compact document states a shape."""
    return b'shape":[%s]' % ",".join(map(str, shape)).encode()


def encode_compactly(document: ArrayDocument) -> bytes:
    """Return the content of the document of an array.

    It is compact JSON: ten times as fast as `encode_json`, and without attributes it
    can't exceed the limits.
    """
    content = document.document()
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()


class ArchiveWriter:
    """Writes an archive to a file object that can seek, from its position on."""

    def __init__(self, fp: BinaryFile) -> None:
        self._short: dict[DType, ShortShards] = {}
        self._fp = fp
        self._start = fp.tell()
        self._members: list[ZipInfo] = []
        self._sizes: dict[str, int] = {}

    def write(self, arrays: Mapping[str, object], settings: Mapping[str, Any]) -> None:
        """Write all arrays; raise the errors of `pack_ndarray` with a name in front."""
        self.add_groups(parents_of(arrays))
        self._short.clear()  # they had other settings
        for name, array in arrays.items():
            try:
                if isinstance(array, Mapping):
                    raise UsageTypeError(
                        "expected an array, found %r: arrays in groups have names with "
                        "slashes, such as '%s/NAME'" % (type(array).__name__, name)
                    )
                self._add_array(name, storable(exact_array(array)), settings)
            except UsageError as error:
                error.args = ("array '%s': %s" % (name, error.args[0]),)
                raise

    def finish(self, attributes: JsonObject | None) -> None:
        """Write the document of the group, and the directory."""
        self._add_bytes(ZARR_JSON, encode_group(attributes, self._sizes))
        directory = encode_directory(self._members, self._fp.tell() - self._start)
        if len(directory) > MAX_DIRECTORY:
            raise UsageValueError(
                "the directory of the ZIP file would have '%d' bytes, more than '%d': "
                "store fewer arrays in it" % (len(directory), MAX_DIRECTORY)
            )
        write_all(self._fp, directory)

    def add_groups(self, groups: Iterable[str]) -> None:
        """Write the documents of groups."""
        for group in groups:
            self._add_bytes(document_name(group), encode_json(group_document()))

    def add_document(self, name: str, document: ArrayDocument) -> None:
        """Write the document of an array."""
        self._add_bytes(document_name(name), encode_compactly(document))

    def add_copy(self, name: str, content: Storage, listed: int | None = None) -> None:
        """Copy a member; `listed` is the size in the list, None for no entry."""
        info = new_info(name, self._fp.tell() - self._start)
        info.file_size = info.compress_size = content.size
        for block in content.read_blocks(0, content.size):
            info.CRC = crc32(block, info.CRC)
        self._members.append(info)
        write_all(self._fp, encode_local(info))
        for block in content.read_blocks(0, content.size):
            write_all(self._fp, block)
        if listed is not None:
            self._sizes[name] = listed

    def _add_bytes(self, name: str, content: bytes) -> None:
        info = new_info(name, self._fp.tell() - self._start, content)
        self._members.append(info)
        write_all(self._fp, encode_local(info) + content)

    def _add_listed(self, name: str, content: bytes) -> None:
        self._add_bytes(name, content)
        self._sizes[name] = len(content)

    def _add_array(self, name: str, array: Array, settings: Mapping[str, Any]) -> None:
        """Compress an array into a shard and its document, or into a `.blp` file."""
        shard = name + "/c" + array.ndim * "/0"
        # `auto` depends on the items, and `progress` is called for each array.
        is_usual = not any(
            map(settings.get, ("auto", "progress", "chunk_size", "chunks"))
        )
        is_usual = is_usual and array.dtype.names is None and not array.flags.fnc
        is_usual = is_usual and 0 < array.nbytes < KEPT_NBYTES and array.ndim > 0
        short = self._short.get(array.dtype)
        if is_usual and short is not None:
            content, text = short.pack(array)
            self._add_listed(shard, content)
            self._add_bytes(document_name(name), text)
            return
        array, settings = as_shard(array, settings)
        # An archive is written once: nothing needs room for more.
        if settings.get("bloscpack_args") is None:
            settings.setdefault("max_app_chunks", 0)
        if settings.get("metadata_args") is None:
            settings.setdefault("max_meta_size", lambda nbytes: nbytes)
        if not settings["shard"]:
            self._pack(name + BLP, array, settings)
            return
        sink = self._pack(shard, array, settings)
        header, used = sink.bloscpack_header, sink.blosc_args
        if header.checksum != CHECKSUM:
            raise UsageValueError(
                "the checksum of arrays in an archive is '%s', which Zarr verifies; "
                "found the setting '%s'" % (CHECKSUM, header.checksum)
            )
        if "chunks" in settings:
            grid = grid_for(array, settings["chunks"])
        else:
            rows = settings["chunk_size"] // row_nbytes(array)
            grid = Grid.of_rows(array.shape, rows, count_slots(header))
        document = ArrayDocument(
            array.dtype,
            grid,
            blosc={
                "cname": used.cname,
                "clevel": used.clevel,
                "shuffle": int(used.shuffle),
            },
        )
        self.add_document(name, document)
        if is_usual and header.nchunks + header.max_app_chunks == 1:
            self._short[array.dtype] = ShortShards(array, sink, document)

    def _pack(
        self, name: str, array: Array, settings: Mapping[str, Any]
    ) -> CompressedFPSink:
        if array.nbytes < KEPT_NBYTES:  # one write: a seek would flush the buffer
            out = io.BytesIO()
            short = CompressedFPSink(out)
            pack_ndarray(array, short, **settings)
            self._add_listed(name, out.getvalue())
            return short
        info = new_info(name, self._fp.tell() - self._start)
        self._members.append(info)
        write_all(self._fp, encode_local(info))
        sink = MemberSink(self._fp)
        pack_ndarray(array, sink, **settings)
        info.file_size = info.compress_size = self._sizes[name] = sink.size
        info.CRC = sink.crc
        header = encode_local(info)
        back = sink.size + len(header)
        self._fp.seek(-back, os.SEEK_CUR)
        write_all(self._fp, header)
        self._fp.seek(back - len(header), os.SEEK_CUR)
        return sink


def new_info(name: str, offset: int, content: bytes = b"") -> ZipInfo:
    """Return the entry of a member that begins at an offset in the ZIP file."""
    from zipfile import ZipInfo

    info = ZipInfo(name)  # of 1 January 1980
    info.create_system = 3
    info.create_version = info.extract_version = VERSION
    info.external_attr = 0o100644 << 16
    info.header_offset = offset
    info.CRC, info.file_size, info.compress_size = (
        crc32(content),
        len(content),
        len(content),
    )
    return info


class _Offset(io.BytesIO):
    """Bytes to be written at an offset in a file."""

    def __init__(self, start: int) -> None:
        super().__init__()
        self._start = start

    def tell(self) -> int:
        return self._start + super().tell()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        raise io.UnsupportedOperation("seek")


def encode_directory(infos: Collection[ZipInfo], start: int) -> bytes:
    """Return the directory that begins at `start`, and the end records behind it."""
    from zipfile import ZipFile

    out = _Offset(start)
    with ZipFile(out, "w") as archive:
        archive.filelist.extend(infos)
    return out.getvalue()
