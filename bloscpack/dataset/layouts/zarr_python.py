"""Arrays of Zarr that the package zarr reads for this one: they can't be changed.

They are those of format 2, and those of format 3 in another form than that of
`zarr_array`. Groups of format 2 need no package.

Strategy: zarr gets each document through a store that checks it first: its size, and
the names of its codecs. A codec is code that a document selects, and the codec `pickle`
runs any code. The codec `blosc` of zarr trusts the sizes in the header of a chunk, and
reads and writes beyond it. So a document has the codec `BLOSC` in its place, by which
this package decompresses chunks.
"""

from __future__ import annotations

import asyncio
import errno
import json
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

import numpy

from ..._arrays.reader import Reader
from ..._arrays.source import Needs, Room
from ..._compat import import_extra
from ..._engine.blosc_settings import own_settings
from ..._format.array_metadata import MAX_NBYTES
from ..._format.chunks import decompress
from ..._format.dtypes import Array, check_known
from ..._format.grid import Grid, digits, lengths
from ..._format.zarr_metadata import (
    ZARR_JSON,
    decode_mask,
    why_not_native,
    with_mask,
)
from ..._storage.base import MemoryStorage, Storage
from ..._storage.store import too_long
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
from ..labels import labels_of
from .array_files import NUMBER, ChunkFiles, FileNames, placed
from .base import ArrayLayout, GroupLayout, NewArray

# The documents of format 2.
ZARRAY, ZGROUP, ZATTRS = ".zarray", ".zgroup", ".zattrs"
DOCUMENTS = (ZARR_JSON, ZARRAY, ZGROUP, ZATTRS)
# What separates the numbers in the name of a chunk, by the encoding of the names.
SEPARATORS = {"default": "/", "v2": "."}
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


def detect(folder: Folder) -> str | None:
    """Return the kind of a folder; None if it has no document of Zarr."""
    if folder.exists(ZARRAY) or folder.exists(ZARR_JSON):
        return "array"
    return "group" if folder.exists(ZGROUP) else None


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}


def safe_document(document: JsonObject, path: str) -> JsonObject:
    """Return the document of an array, or the configuration of a codec, for zarr.

    Raises `Unsupported` if it names an unknown codec.
    """
    result = dict(document)
    for key in ("compressor", "filters", "codecs", "index_codecs"):
        found = document.get(key)
        if isinstance(found, list):
            result[key] = [_safe_codec(codec, path) for codec in found]
        elif found is not None:
            result[key] = _safe_codec(found, path)
    return result


def _safe_codec(codec: Json, path: str) -> Json:
    if codec is None:
        return None
    names = [codec]
    if isinstance(codec, dict):
        names = [codec[k] for k in ("id", "name") if k in codec] or [None]
    for name in names:
        known = str(name).removeprefix(CODEC_PREFIX)
        if known not in CODECS:
            raise Unsupported(
                "the document '%s' names the codec '%.200s'. Only codecs that run no "
                "code of their own are used: %s"
                % (path, name, ", ".join(sorted(CODECS)))
            )
        if known == "blosc":
            return {"id": BLOSC, "name": BLOSC}
    if isinstance(codec, dict) and isinstance(codec.get("configuration"), dict):
        inner = safe_document(codec["configuration"], path)
        return {**codec, "configuration": inner}
    return codec


def _plain(chunk: Buffer) -> bytes:
    """Return the plain bytes of a chunk of Blosc; raise `FormatError` for damage."""
    with own_settings:
        return decompress(chunk)


@cache
def _register_blosc(is_zarr_3: bool) -> None:
    """Let numcodecs and zarr find the codec `BLOSC`."""
    numcodecs = import_extra("numcodecs", "zarr")
    compat = import_extra("numcodecs.compat", "zarr")

    class OldCodec(numcodecs.abc.Codec):  # type: ignore[misc, name-defined]
        codec_id = BLOSC

        @classmethod
        def from_config(cls, config: JsonObject) -> OldCodec:
            return cls()

        def encode(self, buf: object) -> NoReturn:
            raise NotImplementedError

        def decode(self, buf: object, out: object = None) -> object:
            return compat.ndarray_copy(_plain(compat.ensure_bytes(buf)), out)

    numcodecs.register_codec(OldCodec)
    if not is_zarr_3:
        return
    bytes_codec = import_extra("zarr.abc.codec", "zarr").BytesBytesCodec

    class Codec(bytes_codec):  # type: ignore[misc, valid-type]
        is_fixed_size = False

        @classmethod
        def from_dict(cls, data: JsonObject) -> Codec:
            return cls()

        def to_dict(self) -> JsonObject:
            return {"name": BLOSC}

        async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> object:
            plain = await asyncio.to_thread(_plain, chunk_bytes.to_bytes())
            return chunk_spec.prototype.buffer.from_bytes(plain)

        def compute_encoded_size(self, *args: object) -> NoReturn:
            raise NotImplementedError

    import_extra("zarr.registry", "zarr").register_codec(BLOSC, Codec)


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Turn the errors of zarr about the bytes into `DamageError` with the name."""
    try:
        with warnings.catch_warnings():
            # Data types that are no part of the standard.
            warnings.simplefilter("ignore")
            yield
    except DamageError as error:
        error.filename = error.filename or path
        raise
    except (BloscpackError, MemoryError):
        raise
    except Exception as error:  # each codec raises errors of its own
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        text = "zarr can't read it: %s: %s" % (type(error).__name__, error)
        raise DamageError(text, filename=path) from error


class SourceFile:
    """The bytes of a file, of which zarr 3 takes slices."""

    def __init__(self, storage: Storage, convert: Callable[[bytes], object]) -> None:
        self._storage, self._convert = storage, convert

    def __len__(self) -> int:
        return self._storage.size

    def __getitem__(self, part: slice) -> object:
        start, stop, _ = part.indices(self._storage.size)
        return self._convert(self._storage.read_at(start, max(0, stop - start)))


class Files(dict[str, object]):
    """The files of an array, which zarr takes for a dictionary in memory.

    Attributes
    ----------
    most
        Maximum number of bytes of a file that must be read whole.
    convert
        Makes what zarr 3 takes in place of bytes; None for zarr 2.
    """

    most = MAX_BUFFERSIZE
    convert: Callable[[bytes], object] | None = None

    def __init__(self, folder: Folder) -> None:
        super().__init__()
        self._folder = folder

    def __missing__(self, name: str) -> object:
        folder = self._folder
        try:
            if name in DOCUMENTS:
                content, value = folder.read_document(name)
                if name != ZATTRS:
                    value = safe_document(_object(value), folder.path(name))
                    content = json.dumps(value).encode()
                return content if self.convert is None else self.convert(content)
            if name.startswith((".", ZARR_JSON)):
                raise KeyError(name)  # copies of documents
            storage = folder.storage(name)
        except (FileNotFoundError, NotADirectoryError):
            raise KeyError(name) from None
        # A compressed member of a ZIP file. It may be very small.
        if isinstance(storage, MemoryStorage) and storage.size > self.most:
            raise too_long(self.most, folder.path(name), storage.size)
        if self.convert is not None:
            return SourceFile(storage, self.convert)
        return bytes(storage.read_at(0, storage.size))

    def __contains__(self, name: object) -> bool:
        try:
            self[str(name)]
        except KeyError:
            return False
        return True


def _open(folder: Folder, version: int) -> tuple[Any, Files]:
    """Return the array of zarr in a folder, and its files."""
    zarr = import_extra("zarr", "zarr")
    storage = import_extra("zarr.storage", "zarr")
    is_zarr_3 = not hasattr(storage, "DirectoryStore")
    if version == 3 and not is_zarr_3:
        raise UsageError(
            "this array of format 3 needs zarr 3, found zarr %s: '%s'"
            % (zarr.__version__, folder.path())
        )
    _register_blosc(is_zarr_3)
    files = Files(folder)
    with _named(folder.path()):
        if not is_zarr_3:
            return zarr.open_array(files, mode="r"), files
        files.convert = import_extra("zarr.core.buffer.cpu", "zarr").Buffer.from_bytes
        store = storage.MemoryStore(files, read_only=True)
        return zarr.open_array(store, mode="r", zarr_format=version), files


@dataclass(eq=False)
class DottedNames(FileNames):
    """Names with a number for each axis, and dots between them, in one folder."""

    def __call__(self, number: int) -> str:
        """Return the name of a file."""
        return self.before + ".".join(map(str, digits(number, self.counts)))

    def number(self, entry: str) -> int | None:
        """Return the number of a name; None for other names."""
        found = entry[len(self.before) :].split(".")
        number = 0
        for text, count in zip(found, self.counts, strict=False):
            number = number * count + int(text if re.fullmatch(NUMBER, text) else 0)
        return number if self(number) == entry else None

    def stored(self, folder: Folder, count: int) -> Sequence[int]:
        """Return the numbers below `count` of the files in `folder`, ascending."""
        if not folder.lists:
            return super().stored(folder, count)
        return sorted(n for n in self._numbers(folder, "") if n < count)


def file_names(document: JsonObject, grid: Grid, *, is_old: bool) -> FileNames:
    """Return the names of the files of an array; `is_old` says that it has format 2."""
    name, stated = "v2", document.get("dimension_separator")
    if not is_old:
        encoding = document.get("chunk_key_encoding")
        encoding = encoding if isinstance(encoding, dict) else {"name": encoding}
        name = encoding.get("name", "default")
        stated = _object(encoding.get("configuration")).get("separator")
    folder_name = "" if name == "v2" else "c"
    counts = tuple(max(1, n) for n in grid.counts)
    if not counts:
        return FileNames(folder_name or "0", counts=counts)
    if (stated or SEPARATORS.get(name, "/")) == "/":
        return FileNames(folder_name, counts=counts)
    return DottedNames("", before=folder_name and folder_name + ".", counts=counts)


class ZarrChunks(ChunkFiles):
    """The chunks of an array, which zarr decodes; all of them are of full size."""

    def __init__(
        self, folder: Folder, found: Any, grid: Grid, names: FileNames
    ) -> None:
        self._dtype = numpy.dtype(found.dtype)
        super().__init__(folder, names, grid, self._dtype.itemsize, bool)
        # All chunks are of full size.
        self.nbytes = self.nfiles * self.slots * self.chunk_size
        self._found = found

    def load(
        self,
        numbers: Sequence[int],
        use: Callable[[int, memoryview], object],
        *,
        room: Room | None = None,
        needs: Needs | None = None,
    ) -> None:
        """Call ``use(number, plain)`` for chunks, as `ChunkSource.load` says."""
        for number in numbers:
            plain = self._cache.get(number)
            if plain is None:
                plain = self.items(number).tobytes()
                self._cache.put(number, plain)
            target = None if room is None else room(number)
            use(number, placed(memoryview(plain), target))

    def items(self, number: int) -> Array:
        """Return the items of a chunk, padded with zeros."""
        box = self.cut.box(number)
        with _named(self.folder.path()):
            found = numpy.asarray(self._found[box], self._dtype)
        if found.shape == self.cut.chunk:
            return found
        padded = numpy.zeros(self.cut.chunk, self._dtype)
        padded[tuple(slice(0, n) for n in lengths(box))] = found
        return padded


class TextReader:
    """Reads items of variable size."""

    def __init__(self, folder: Folder, found: Any) -> None:
        self.closed = False
        self._path = folder.path()
        self._found = found

    def get(self, key: Any) -> Any:
        """Return the items that an index selects; only slices read a part of them."""
        if self.closed:
            raise UsageValueError("the array is closed: '%s'" % self._path)
        entries = key if isinstance(key, tuple) else (key,)
        with _named(self._path):
            if all(isinstance(e, slice) and (e.step or 1) > 0 for e in entries):
                return numpy.asarray(self._found[key])
            items = numpy.asarray(self._found[...])
        return items[key]


class OtherArray(ArrayLayout):
    """An array of Zarr that the package zarr reads."""

    name = "zarr-python"
    writable = False
    sparse = True
    may_lack_files = True
    changed_elsewhere = False
    has_digests = False
    is_column = False

    def __init__(self, folder: Folder, *, allow_pickle: bool = False) -> None:
        self.folder = folder
        is_old = folder.exists(ZARRAY)
        self.description_files = old_files(folder, ZARRAY) if is_old else (ZARR_JSON,)
        self._document = folder.read_object(self.description_files[0])
        found, files = _open(folder, 2 if is_old else 3)
        with _named(folder.path()):
            self.dtype, self.shape = numpy.dtype(found.dtype), tuple(found.shape)
            chunk = tuple(max(1, n) for n in found.chunks)
            self.shards = getattr(found, "shards", None)
            self.fill_value = found.fill_value
            self.stored_dims, self._attributes = labels_of(found)
        if not self.is_text:
            check_known(self.dtype)
        # A chunk may be much larger than the array.
        if self.shards is None:
            chunk = tuple(
                min(n, size or 1) for n, size in zip(chunk, self.shape, strict=True)
            )
        self._check_size("the array", [n or 1 for n in self.shape], MAX_NBYTES)
        self._check_size("a chunk", chunk, MAX_BUFFERSIZE)
        ratio = zip(self.shards or chunk, chunk, strict=True)
        self.chunks = chunk
        self.grid = Grid(self.shape, chunk, tuple(n // m for n, m in ratio))
        names = file_names(self._document, self.grid, is_old=is_old)
        self._source = ZarrChunks(folder, found, self.grid, names)
        if not self.is_text:  # filters may have stored longer items
            files.most = 16 * self._source.chunk_size * self._source.slots
            files.most += MAX_DOCUMENT
        self.reader = (
            TextReader(folder, found)
            if self.is_text
            else Reader(self._source, self.dtype, self.shape)
        )

    @property
    def is_text(self) -> bool:
        """Whether items have variable size."""
        return self.dtype.kind in "OT"

    def _check_size(self, what: str, shape: Sequence[int], most: int) -> None:
        nbytes = math.prod(shape) * self.dtype.itemsize
        if nbytes > most:
            raise UsageError(
                "'%s': %s has '%d' bytes, and at most '%d' are read"
                % (self.folder.path(), what, nbytes, most)
            )

    def read_attributes(self) -> JsonObject:
        """Return the attributes that the array had when it was opened."""
        return with_mask(self._attributes, self.dtype, decode_mask)

    @property
    def codec_settings(self) -> JsonObject:
        """The names of the codecs and filters, without those of shards."""
        names: list[str] = []
        codecs: list[Json] = []
        for key in ("filters", "compressor", "codecs"):
            found = self._document.get(key)
            codecs += found if isinstance(found, list) else [found]
        for codec in codecs:
            codec = codec if isinstance(codec, dict) else {"name": codec}
            name = codec.get("id", codec.get("name"))
            if name == "sharding_indexed":
                codecs += _object(codec.get("configuration")).get("codecs", [])
            elif name not in (None, "bytes"):
                names.append(name)
        return {"cname": ", ".join(names) or None}

    def new_array(self) -> NewArray:
        """Return what a copy of this array must be, apart from its attributes."""
        grid = self.grid
        if self.is_text:
            raise UsageError(
                "'%s': its items are texts of variable size: 'blpk convert' gives them "
                "a fixed size" % self.folder.path()
            )
        return NewArray(
            *(self.dtype, self.shape, grid.chunk, self.fill_value),
            shards=grid.shard,
            dims=self.stored_dims,
        )

    def check_writable(self) -> None:
        """Raise `UsageError`: the array can only be read."""
        reason = "it has format 2"
        if ZARR_JSON in self.description_files:
            reason = why_not_native(self._document) or ""
        raise UsageError(
            "this array of another program can only be read, through zarr-python: %s. "
            "'blpk convert' makes an array of it that can be changed: '%s'"
            % (reason, self.folder.path())
        )

    @classmethod
    def grid_for(cls, new: NewArray) -> NoReturn:
        """Raise `UsageError`: no new array has this layout."""
        cls.check_layout()
        raise NotImplementedError

    create = grid_for  # type: ignore[assignment]

    def stage(self, *args: object, **kwargs: object) -> NoReturn:
        """Raise an error: `check_writable` has refused the change."""
        raise NotImplementedError

    committed = stage


class OtherGroup(GroupLayout):
    """A group of Zarr format 2."""

    name = "zarr-python"
    writable = False
    description_files: tuple[str, ...] = (ZGROUP,)

    def __init__(self, folder: Folder, *, allow_pickle: bool = False) -> None:
        self.folder = folder
        folder.read_object(ZGROUP)
        self.description_files = old_files(folder, ZGROUP)

    def read_attributes(self) -> JsonObject:
        """Return the attributes in the file."""
        folder = self.folder
        return folder.read_object(ZATTRS) if folder.exists(ZATTRS) else {}


def old_files(folder: Folder, name: str) -> tuple[str, ...]:
    """Return the names of the documents of an array or group of format 2."""
    return (name, ZATTRS) if folder.exists(ZATTRS) else (name,)
