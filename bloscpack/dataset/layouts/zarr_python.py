"""Arrays of Zarr that the package zarr reads for this one: they can't be changed.

They are those of format 2, and those of format 3 with codecs or data types that
`zarr_array` does not know. Groups of format 2 need no package.

Strategy: zarr gets each document through a store that checks it first: its size, and
the names of its codecs. A codec is code that a document selects, and the codec `pickle`
runs any code.
"""

from __future__ import annotations

import errno
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import numpy

from ..._compat import import_extra
from ..._file.array_reader import ArrayReader, Needs, Room
from ..._format.array_metadata import MAX_NBYTES
from ..._format.dtypes import check_known
from ..._format.grid import Grid, lengths
from ..._format.zarr_metadata import SEPARATORS, ZARR_JSON, why_not_native
from ...constants import MAX_BUFFERSIZE
from ...exceptions import (
    BloscpackError,
    DamageError,
    Unsupported,
    UsageError,
    UsageValueError,
)
from ..folder import Folder
from ..labels import labels_of
from .array_files import ChunkFiles, placed
from .base import ArrayLayout, GroupLayout, NewArray
from .zarr_array import shard_names

if TYPE_CHECKING:
    from ..._format.dtypes import Array
    from ...serializers import Json, JsonObject

    # Returns the content of a file; None if it is missing.
    Read = Callable[[str], bytes | None]

# The documents of format 2.
ZARRAY, ZGROUP, ZATTRS = ".zarray", ".zgroup", ".zattrs"
DOCUMENTS = (ZARR_JSON, ZARRAY, ZGROUP, ZATTRS)
# The codecs and filters of zarr and numcodecs that run no code from a document or a
# chunk. Names of format 3 may begin with the prefix.
CODEC_PREFIX = "numcodecs."
CODECS = frozenset(
    (
        *("blosc", "bz2", "gzip", "lz4", "lzma", "pcodec", "zfpy", "zlib", "zstd"),
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


def check_codecs(document: JsonObject, path: str) -> None:
    """Raise `Unsupported` if the document of an array names an unknown codec."""
    left = [document]
    while left:
        holder = left.pop()
        for key in ("compressor", "filters", "codecs", "index_codecs"):
            found = holder.get(key)
            for codec in found if isinstance(found, list) else [found]:
                if codec is None:
                    continue
                left.append(_object(_object(codec).get("configuration")))
                names: list[object] = [codec]
                if isinstance(codec, dict):
                    names = [codec[k] for k in ("id", "name") if k in codec] or [None]
                for name in names:
                    if str(name).removeprefix(CODEC_PREFIX) not in CODECS:
                        raise Unsupported(
                            "the document '%s' names the codec '%.200s'. Only codecs "
                            "that run no code of their own are used: %s"
                            % (path, name, ", ".join(sorted(CODECS)))
                        )


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Turn the errors of zarr about the bytes into `DamageError` with the name."""
    try:
        with warnings.catch_warnings():
            # Data types that are no part of the standard.
            warnings.simplefilter("ignore")
            yield
    except (BloscpackError, MemoryError):
        raise
    except Exception as error:  # each codec raises errors of its own
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        text = "zarr can't read it: %s: %s" % (type(error).__name__, error)
        raise DamageError(text, filename=path) from error


def _open(folder: Folder, version: int) -> Any:
    """Return the array of zarr in a folder."""
    zarr = import_extra("zarr", "zarr")
    storage = import_extra("zarr.storage", "zarr")

    def read(name: str) -> bytes | None:
        if name not in DOCUMENTS and name.startswith((".", "zarr.json")):
            return None  # copies of documents
        try:
            if name not in DOCUMENTS:
                return folder.read(name)
            content, value = folder.read_document(name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if name != ZATTRS:
            check_codecs(_object(value), folder.path(name))
        return content

    with _named(folder.path()):
        if hasattr(storage, "DirectoryStore"):  # zarr 2
            return zarr.open_array(_files(read, bytes), mode="r")
        buffer = import_extra("zarr.core.buffer.cpu", "zarr").Buffer
        files = _files(read, buffer.from_bytes)
        store = storage.MemoryStore(files, read_only=True)
        return zarr.open_array(store, mode="r", zarr_format=version)


def _files(read: Read, convert: Callable[[bytes], object]) -> dict[str, Any]:
    """Return the files by name; zarr gets each of them converted."""

    class Files(dict[str, Any]):
        def __missing__(self, name: str) -> object:
            found = read(name)
            if found is None:
                raise KeyError(name)
            return convert(found)

        def __contains__(self, name: object) -> bool:
            return read(str(name)) is not None

    return Files()


class ZarrChunks(ChunkFiles):
    """The chunks of an array, which zarr decodes; all of them are of full size."""

    def __init__(self, folder: Folder, found: Any, grid: Grid, keys: Any) -> None:
        self._dtype = numpy.dtype(found.dtype)
        itemsize = self._dtype.itemsize
        super().__init__(folder, shard_names(grid, keys), grid, itemsize, bool)
        self.grid = grid  # full chunks, also those of rows
        self._found = found

    def load(
        self,
        numbers: Sequence[int],
        use: Callable[[int, memoryview], object],
        *,
        room: Room | None = None,
        joined: bool = False,
        needs: Needs | None = None,
    ) -> None:
        """Call ``use(number, plain)`` for chunks, as `ChunkSource.load` says."""
        for number in numbers:
            plain = self._cache.get(number)
            if plain is None:
                plain = self.items(number).tobytes()
                self._cache.put(number, plain)
            place = None if room is None else room(number)
            use(number, placed(memoryview(plain), place))

    def items(self, number: int) -> Array:
        """Return the items of a chunk, padded with zeros."""
        box = self.cut.box(number)
        with _named(self.folder.path()):
            found = numpy.asarray(self._found[box])
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
        found = _open(folder, 2 if is_old else 3)
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
        self._source = ZarrChunks(folder, found, self.grid, self._keys(is_old))
        self.reader = (
            TextReader(folder, found)
            if self.is_text
            else ArrayReader(self._source, self.dtype, self.shape)
        )

    def _keys(self, is_old: bool) -> tuple[str, str]:
        """Return how the files are named: encoding and separator."""
        encoding = _object(self._document.get("chunk_key_encoding"))
        name = "v2" if is_old else encoding.get("name", "default")
        stated = self._document if is_old else _object(encoding.get("configuration"))
        separator = stated.get("dimension_separator" if is_old else "separator")
        return name, separator or SEPARATORS.get(name, "/")

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
        return dict(self._attributes)

    @property
    def codec_settings(self) -> JsonObject:
        """The names of the codecs and filters."""
        names = []
        for key in ("filters", "compressor", "codecs"):
            found = self._document.get(key)
            for codec in found if isinstance(found, list) else [found]:
                codec = codec if isinstance(codec, dict) else {"name": codec}
                names.append(codec.get("id", codec.get("name")))
        return {"cname": ", ".join(n for n in names if n not in (None, "bytes"))}

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
            "this array can only be read, with zarr-python: %s. 'blpk convert' copies "
            "it into a dataset that can be changed: '%s'" % (reason, self.folder.path())
        )

    @classmethod
    def grid_for(cls, new: NewArray) -> NoReturn:
        """Raise `UsageError`: no new array has this layout."""
        cls.check_layout()
        raise NotImplementedError

    create = grid_for  # type: ignore[assignment]

    def stage(self, *args: Any, **kwargs: Any) -> NoReturn:
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
