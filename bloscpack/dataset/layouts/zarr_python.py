"""Arrays of Zarr that the package zarr reads for this one: they can't be changed.

They are those of format 2, and those of format 3 in another form than that of
`zarr`. Groups of format 2 need no package.

Strategy: zarr gets a document only after it was checked: its size, and the names of its
codecs. A codec is code that a document selects, and the codec `pickle` runs any code.
The codec `blosc` of zarr trusts the sizes in the header of a chunk, and reads and
writes beyond it. So a document has the codec `BLOSC` in its place, by which this
package decompresses chunks.
"""

from __future__ import annotations

import asyncio
import errno
import json
import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

import numpy

from ..._arrays.reader import PartReader
from ..._arrays.selection import ItemSelection
from ..._arrays.source import CLOSED
from ..._commit.change import Change
from ..._compat import import_extra
from ..._engine.blosc_settings import own_settings
from ..._engine.contexts import errors_to
from ..._format.blosc_header import chunk_damage
from ..._format.chunks import decompress
from ..._format.dtypes import Array, DType, check_known, shown
from ..._format.grid import Grid, digits, lengths
from ..._format.zarr_metadata import MASK, ZARR_JSON, why_not_native
from ..._storage.base import MemoryStorage, Storage
from ..._types import Buffer, Json, JsonObject
from ...constants import MAX_BUFFERSIZE, MAX_DOCUMENT
from ...exceptions import (
    BloscpackError,
    DamageError,
    Unsupported,
    UsageError,
    UsageValueError,
)
from ..folder import Folder
from ..items import check_nbytes
from ..labels import labels_of
from .array_files import NUMBER, FileNames, check_whole
from .base import ArrayLayout, GroupLayout, NewArray
from .chunk_files import SingleChunks
from .shard_files import LISTED_FROM

# The documents of format 2.
ZARRAY, ZGROUP, ZATTRS = ".zarray", ".zgroup", ".zattrs"
# The name by which zarr and numcodecs find the codec for chunks of Blosc.
BLOSC = "bloscpack.blosc"
# The codecs and filters of zarr and numcodecs that run no code from a document or a
# chunk. Names of format 3 may begin with the prefix.
CODEC_PREFIX = "numcodecs."
CODECS = frozenset(
    (
        *("blosc", "bz2", "gzip", "lz4", "lzma", "pcodec", "zlib", "zstd"),
        *("adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3"),
        *("astype", "base64", "bitround", "categorize", "delta", "fixedscaleoffset"),
        *("json2", "msgpack2", "packbits", "quantize", "shuffle"),
        *("vlen-array", "vlen-bytes", "vlen-utf8"),
        *("bytes", "cast_value", "endian", "scale_offset", "sharding_indexed"),
        *("transpose",),
    )
)

# A folder with up to this number of files for each file that is read is listed: looking
# for a file takes about as long as listing so many.
LISTED_SHARE = 64
# Files are read one by one if they are at most this part of all, which the others lack.
FEW = 4


def detect(folder: Folder) -> str | None:
    """Return the kind of a folder; None if it has no document of Zarr."""
    if folder.exists(ZARRAY) or folder.exists(ZARR_JSON):
        return "array"
    return "group" if folder.exists(ZGROUP) else None


def safe_document(document: JsonObject, path: str, names: list[str]) -> JsonObject:
    """Return the document of an array, or the configuration of a codec, for zarr.

    The names of the codecs of items are added to `names`. Raises `Unsupported` for an
    unknown codec.
    """
    safe = dict(document)
    for key in ("filters", "compressor", "codecs", "index_codecs"):
        stored = document.get(key)
        codecs: list[Json] = []
        for codec in stored if isinstance(stored, list) else [stored]:
            given = codec if isinstance(codec, dict) else {"name": codec}
            stated = [given[k] for k in ("id", "name") if k in given] or [None]
            known = {str(name).removeprefix(CODEC_PREFIX) for name in stated}
            if codec is not None and not known <= CODECS:
                raise Unsupported(
                    "the document '%s' names the codec '%.200s'. Only codecs that run "
                    "no code of their own are used: %s"
                    % (path, stated[-1], ", ".join(sorted(CODECS)))
                )
            if codec is not None and key != "index_codecs":
                names += [str(stated[0])]
            inner = given.get("configuration")
            if "blosc" in known:
                codec = {"id" if key in ("filters", "compressor") else "name": BLOSC}
            elif isinstance(inner, dict):
                inner = safe_document(inner, path, names)
                codec = {**given, "configuration": inner}
            codecs.append(codec)
        if key in document:
            safe[key] = codecs if isinstance(stored, list) else codecs[0]
    return safe


def _named(path: str, *, opens: bool = False) -> errors_to:
    """Turn the errors of zarr about the bytes into `FormatError` with the name.

    A document that zarr `opens` may have an extension that it lacks.
    """

    def translate(error: Exception) -> None:  # each codec raises errors of its own
        if isinstance(error, DamageError):
            error.filename = error.filename or path
        number = error.errno if isinstance(error, OSError) else None
        if isinstance(error, BloscpackError) or number not in (None, errno.EINVAL):
            return
        lacks = opens and isinstance(error, (ValueError, NotImplementedError))
        is_unknown = lacks or isinstance(error, MemoryError)
        kind = Unsupported if is_unknown else DamageError
        text = "zarr can't read it: %s: %s" % (type(error).__name__, error)
        raise kind(text, filename=path) from error

    return errors_to(translate)


# What zarr gets: its codec for chunks of Blosc, and files


def _plain(chunk: Buffer) -> bytes:
    """Return the plain bytes of a chunk of Blosc; raise `FormatError` for damage."""
    with own_settings:
        return decompress(chunk)


@cache
def _register_blosc(is_zarr_3: bool) -> Any:
    """Let numcodecs and zarr find the codec `BLOSC`.

    Return what makes the content of a file for zarr from bytes.
    """
    numcodecs = import_extra("numcodecs", "zarr")
    compat = import_extra("numcodecs.compat", "zarr")

    class OldCodec(numcodecs.abc.Codec):  # type: ignore[misc, name-defined]
        codec_id = BLOSC

        def encode(self, buf: object) -> NoReturn:
            raise NotImplementedError

        def decode(self, buf: object, out: object = None) -> object:
            return compat.ndarray_copy(_plain(compat.ensure_bytes(buf)), out)

    numcodecs.register_codec(OldCodec)
    if not is_zarr_3:
        return bytes
    bytes_codec = import_extra("zarr.abc.codec", "zarr").BytesBytesCodec

    @dataclass(frozen=True)
    class Codec(bytes_codec):  # type: ignore[misc, valid-type]
        name: str = BLOSC
        is_fixed_size = False

        async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> object:
            plain = await asyncio.to_thread(_plain, chunk_bytes.to_bytes())
            return chunk_spec.prototype.buffer.from_bytes(plain)

        def compute_encoded_size(self, *args: object) -> NoReturn:
            raise NotImplementedError

    import_extra("zarr.registry", "zarr").register_codec(BLOSC, Codec)
    return import_extra("zarr.core.buffer.cpu", "zarr").Buffer.from_bytes


@dataclass(eq=False)
class SourceFile:
    """The bytes of a file, of which zarr 3 takes slices, all of which must be there.

    zarr takes empty bytes for items that were never written.
    """

    path: str
    storage: Storage
    buffer: Callable[[bytes], object]

    def __len__(self) -> int:
        return self.storage.size

    def __getitem__(self, part: slice) -> object:
        start, stop, size = part.start, part.stop, self.storage.size
        # For the whole file, zarr wants one byte more than it has.
        if not 0 <= start < min(stop, size) or stop > size + 1:
            raise chunk_damage(
                "expected the bytes %d to %d of a file of '%d'" % (start, stop, size),
                filename=self.path,
            )
        return self.buffer(self.storage.read_at(start, min(stop, size) - start))


class Files(dict[str, object]):
    """The files of an array, which zarr takes for a dictionary in memory.

    It has the documents, which were checked. The others are in the folder.

    Attributes
    ----------
    most
        Maximum number of bytes of a file that must be read whole.
    slots
        Number of chunks of a file.
    """

    most = MAX_BUFFERSIZE
    slots = 1

    def __init__(self, folder: Folder, buffer: Callable[[bytes], object]) -> None:
        super().__init__()
        self._folder, self._buffer = folder, buffer

    def __missing__(self, name: str) -> object:
        if name.startswith((".", ZARR_JSON)):
            raise KeyError(name)  # documents, and copies of them
        path = self._folder.path(name)
        try:
            storage = self._folder.storage(name)
        except (FileNotFoundError, NotADirectoryError):
            raise KeyError(name) from None
        # A compressed member of a ZIP file. It may be very small.
        if isinstance(storage, MemoryStorage):
            check_whole(storage, self.slots, self.most, path)
        file = SourceFile(path, storage, self._buffer)
        return file[0 : len(file)] if self._buffer is bytes else file

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or self._folder.exists(str(name))


# Chunks and items


class DottedNames(FileNames):
    """Names with a number for each axis, and dots between them, in one folder."""

    def __call__(self, number: int) -> str:
        """Return the name of a file."""
        return self.before + ".".join(map(str, digits(number, self.counts)))

    def number(self, entry: str) -> int | None:
        """Return the number of a name; None for other names."""
        number = 0
        for text, count in zip(re.findall(NUMBER, entry), self.counts, strict=False):
            number = number * count + int(text)
        return number if self(number) == entry else None

    def stored(self, folder: Folder, count: int) -> Sequence[int]:
        """Return the numbers below `count` of the files in `folder`, ascending."""
        if not folder.store.lists:
            return super().stored(folder, count)
        return sorted(n for n in self._numbers(folder, "") if n < count)


def file_names(first: str, grid: Grid) -> FileNames:
    """Return the names of the files of an array, of which one is the first."""
    counts, start = tuple(max(1, n) for n in grid.counts), first.rstrip("/.0")
    if not counts:
        return FileNames(first, counts=())
    if "." in first:
        return DottedNames("", start and start + ".", counts=counts)
    return FileNames(start, counts=counts)


class ZarrChunks(SingleChunks):
    """The chunks of an array, which zarr decodes; all of them are of full size."""

    in_order = False  # `ZarrReader` reads neighbours

    def __init__(
        self, folder: Folder, array: Any, grid: Grid, names: FileNames
    ) -> None:
        self.dtype = numpy.dtype(array.dtype)
        super().__init__(folder, names, grid, self.dtype.itemsize, bool)
        # All chunks are of full size.
        self.nbytes = self.nfiles * self.slots * self.chunk_size
        self._found = array

    def plain(self, number: int, target: memoryview | None = None) -> Buffer:
        """Return the plain bytes of a chunk; its padding is zeros."""
        box = self.cut.box(number)
        items: Array = numpy.zeros(self.cut.chunk, self.dtype)
        items[tuple(slice(0, n) for n in lengths(box))] = self.items(box)
        plain = items.tobytes()
        if target is not None:
            target[:] = plain
        return plain

    def items(self, index: Any) -> Array:
        """Return the items that slices with positive steps select."""
        with _named(self.folder.path()):
            return numpy.asarray(self._found[index], self.dtype)

    def of_few_files(self, index: tuple[slice, ...]) -> Array | None:
        """Return the items in a box of which most files are missing; None for others.

        The folder is listed: zarr would look for each file by itself.
        """
        shard, fill = self.cut.shard, self._found.fill_value
        pairs = list(zip(index, shard, strict=True))
        count = math.prod(-(-a.stop // n) - a.start // n for a, n in pairs)
        is_listed = count > LISTED_FROM and count * LISTED_SHARE >= self.nfiles
        if self.folder.is_remote or not is_listed or any(a.step != 1 for a in index):
            return None
        parts = []
        for number in self.stored():
            box = tuple(
                slice(max(a.start, b.start), min(a.stop, b.stop))
                for a, b in zip(index, self.cut.shard_box(number), strict=True)
            )
            if all(axis.start < axis.stop for axis in box):
                parts.append(box)
        if len(parts) > count // FEW:
            return None
        items: Array = numpy.zeros(lengths(index), self.dtype)
        if fill is not None:
            items[...] = fill
        for box in parts:
            inside = zip(box, index, strict=True)
            at = tuple(slice(b.start - a.start, b.stop - a.start) for b, a in inside)
            items[at] = self.items(box)
        return items


class ZarrReader(PartReader):
    """Reads many chunks by one call of zarr, which uses several threads."""

    def __init__(self, chunks: ZarrChunks) -> None:
        super().__init__(chunks, chunks.dtype, chunks.cut.shape)
        self._chunks = chunks

    def _read(self, selection: ItemSelection, dtype: DType, offset: int = 0) -> Array:
        nbytes = math.prod(selection.counts) * dtype.itemsize
        ranges = [axis for axis in selection.axes if isinstance(axis, range)]
        is_box = len(ranges) == len(selection.axes) and dtype == self.dtype
        if not is_box or nbytes < 2 * self._chunks.chunk_size:
            return super()._read(selection, dtype, offset)
        index = tuple(slice(axis.start, axis.stop, axis.step) for axis in ranges)
        items = self._chunks.of_few_files(index)
        if items is None:
            items = self._chunks.items(index)
        ordered: Array = selection.in_order(items)
        return ordered


class TextReader:
    """Reads items of variable size."""

    def __init__(self, chunks: ZarrChunks) -> None:
        self.closed = False
        self._chunks = chunks

    def get(self, key: Any) -> Any:
        """Return the items that an index selects; only slices read a part of them."""
        if self.closed:
            raise UsageValueError(CLOSED)
        entries = key if isinstance(key, tuple) else (key,)
        if all(isinstance(e, slice) and (e.step or 1) > 0 for e in entries):
            return self._chunks.items(key)
        return self._chunks.items(...)[key]


class OtherArray(ArrayLayout):
    """An array of Zarr that the package zarr reads."""

    name = "zarr-python"
    writable = False
    sparse = True
    may_lack_files = True
    has_digests = False
    is_column = False

    def __init__(self, folder: Folder, *, allow_pickle: bool = False) -> None:
        self.folder = folder
        is_old = folder.exists(ZARRAY)
        self.description_files = old_files(folder, ZARRAY) if is_old else (ZARR_JSON,)
        documents = [folder.read_object(name) for name in self.description_files]
        if is_old:
            check_format_2(documents[0], folder, ZARRAY)
        self._document, self._codecs = documents[0], list[str]()
        path = folder.path(self.description_files[0])
        documents[0] = safe_document(documents[0], path, self._codecs)
        zarr, storage = (import_extra(n, "zarr") for n in ("zarr", "zarr.storage"))
        is_zarr_3 = not hasattr(storage, "DirectoryStore")
        if not is_old and not is_zarr_3:
            raise UsageError(
                "this array of format 3 needs zarr 3, found zarr %s: '%s'"
                % (zarr.__version__, folder.path())
            )
        files = Files(folder, _register_blosc(is_zarr_3))
        with _named(path, opens=True), warnings.catch_warnings():
            # Data types that are no part of the standard.
            warnings.simplefilter("ignore")
            if is_zarr_3:  # `open_array` would wait for another thread
                document = documents[0]
                if is_old:
                    document["attributes"] = documents[1] if documents[1:] else {}
                place = storage.StorePath(storage.MemoryStore(files))
                array = zarr.Array.from_dict(place, document)
            else:
                for name, content in zip(
                    self.description_files, documents, strict=True
                ):
                    files[name] = json.dumps(content).encode()
                array = zarr.open_array(files, mode="r")
            self.dtype, self.shape = numpy.dtype(array.dtype), tuple(array.shape)
            chunk = tuple(max(1, n) for n in array.chunks)
            self.shards = getattr(array, "shards", None)
            self.fill_value = array.fill_value
            self.stored_dims, self._attributes = labels_of(array)
            self.masks_fill_value = MASK in self._attributes.keys() - {*array.attrs}
            zeros = (0,) * len(self.shape)
            separator = self._document.get("dimension_separator") or "."
            first = separator.join(map(str, zeros)) or "0"
            if is_zarr_3:
                first = array.metadata.encode_chunk_key(zeros)
        if not self.is_text:
            check_known(self.dtype)
        if self.shards is None:  # a chunk may be much larger than the array
            pairs = zip(chunk, self.shape, strict=True)
            chunk = tuple(min(n, size or 1) for n, size in pairs)
        try:
            check_nbytes(self.shape, self.dtype)
        except UsageError as error:
            raise UsageError("'%s': %s" % (folder.path(), error)) from error
        nbytes = math.prod(chunk) * self.dtype.itemsize
        if nbytes > MAX_BUFFERSIZE:
            raise UsageError(
                "'%s': a chunk has '%d' bytes, and at most '%d' are read"
                % (folder.path(), nbytes, MAX_BUFFERSIZE)
            )
        ratio = zip(self.shards or chunk, chunk, strict=True)
        self.grid = Grid(self.shape, chunk, tuple(n // m for n, m in ratio))
        self.chunks = chunk
        names = file_names(first, self.grid)
        self._source = chunks = ZarrChunks(folder, array, self.grid, names)
        self.reader = TextReader(chunks) if self.is_text else ZarrReader(chunks)
        if not self.is_text:  # filters may have stored longer items
            files.most = 16 * chunks.chunk_size * chunks.slots + MAX_DOCUMENT
        files.slots = chunks.slots

    @property
    def is_text(self) -> bool:
        """Whether items have variable size."""
        return self.dtype.kind in "OT"

    @property
    def asks_fill(self) -> bool:
        """Whether the document has a fill value, as that of format 3 always has."""
        return self.fill_value is not None

    def read_attributes(self, change: Change | None = None) -> JsonObject:
        """Return the attributes that the array had when it was opened."""
        return self._attributes

    @property
    def codec_settings(self) -> JsonObject:
        """The names of the codecs and filters, without those of shards."""
        hidden = "bytes", "sharding_indexed"
        return {"cname": ", ".join(n for n in self._codecs if n not in hidden) or None}

    def new_array(self) -> NewArray:
        """Return what a copy of this array must be, apart from its attributes."""
        if self.is_text:
            raise UsageError(
                "'%s': its items are texts of variable size: 'blpk convert' gives them "
                "a fixed size" % self.folder.path()
            )
        return NewArray(
            *(self.dtype, self.shape, self.chunks, self.fill_value),
            shards=self.grid.shard,
            dims=self.stored_dims,
        )

    def check_writable(self) -> None:
        """Raise `UsageError`: the array can only be read."""
        reason = "it has format 2"
        if ZARR_JSON in self.description_files:
            reason = why_not_native(self._document) or ""
        raise UsageError(
            "'%s': this array of another program can only be read, through "
            "zarr-python: %s. 'blpk convert' makes an array of it that can be changed"
            % (self.folder.path(), reason)
        )

    @classmethod
    def grid_for(cls, *args: object, **kwargs: object) -> NoReturn:
        """Raise `UsageError`: no array of this layout is written."""
        cls.check_layout()
        raise NotImplementedError

    create = stage = committed = grid_for


class OtherGroup(GroupLayout):
    """A group of Zarr format 2."""

    name = "zarr-python"
    writable = False
    description_files: tuple[str, ...] = (ZGROUP, ZATTRS)

    def __init__(self, folder: Folder, *, allow_pickle: bool = False) -> None:
        self.folder = folder
        check_format_2(folder.read_object(ZGROUP), folder, ZGROUP)
        self.description_files = old_files(folder, ZGROUP)

    def read_attributes(self, change: Change | None = None) -> JsonObject:
        """Return the attributes in the file."""
        folder = self.folder
        return folder.read_object(ZATTRS) if folder.exists(ZATTRS) else {}


def check_format_2(document: JsonObject, folder: Folder, name: str) -> None:
    """Raise `Unsupported` if the document is of another format than 2."""
    found = document.get("zarr_format", 2)
    if found != 2:
        raise Unsupported(
            "expected a document of Zarr format 2, found 'zarr_format': %s"
            % shown(found),
            section="metadata",
            filename=folder.path(name),
        )


def old_files(folder: Folder, name: str) -> tuple[str, ...]:
    """Return the names of the documents of an array or group of format 2."""
    return (name, ZATTRS) if folder.exists(ZATTRS) else (name,)
