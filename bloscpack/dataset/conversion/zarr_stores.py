"""Zarr stores that others wrote: any that the package zarr opens, of format 2 or 3.

Strategy: zarr gets each document through a store that checks it first: its size, and
the names of its codecs. A codec is code that a document selects, and the codec `pickle`
runs any code.
"""

from __future__ import annotations

import errno
import json
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy

from ..._format.zarr_metadata import ZARR_JSON, decode_mask, with_mask
from ..._storage.paths import is_url, shown_name
from ...constants import EXTENSION
from ...exceptions import BloscpackError, DamageError, UsageError, UsageTypeError
from ...zip_io import loadz
from ..folder import MAX_JSON
from ..labels import labels_of
from .array_formats import DAMAGED, add_member, content_of, open_zip
from .contents import ArrayContent, GroupContent, import_package, rows_in_block
from .parquet_files import Lengths, fixed, longest

if TYPE_CHECKING:
    from ..._format.dtypes import Array, DType
    from ...serializers import Json, JsonObject
    from .contents import Content, Request

# The file that an array or group of each format has.
MARKERS = ("zarr.json", ".zarray", ".zgroup")
CONSOLIDATED = ".zmetadata"
DOCUMENTS = (*MARKERS, ".zattrs", CONSOLIDATED)
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


def is_store(path: str) -> bool:
    """Return whether a folder is an array or a group of Zarr; a URL may be one."""
    if is_url(path):
        return True
    return any(os.path.lexists(os.path.join(path, name)) for name in MARKERS)


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Turn the errors of zarr about the bytes into `DamageError` with the name."""
    try:
        yield
    except (BloscpackError, MemoryError):
        raise
    except Exception as error:  # each codec raises errors of its own
        # A ZIP file may state an offset that no file has.
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        text = "zarr can't read it: %s: %s" % (type(error).__name__, error)
        raise DamageError(
            DAMAGED % error if isinstance(error, BadZipFile) else text,
            filename=shown_name(path),
        ) from error


def read(path: str, request: Request) -> Content:
    """Return the contents of a store."""
    zarr = import_package("zarr", "zarr", "reading a Zarr store")
    storage = import_package("zarr.storage", "zarr", "reading a Zarr store")
    with _named(path), warnings.catch_warnings():
        store = _open_store(storage, path)
        if os.path.isfile(path):
            request.resources.callback(store.close)
        # Zarr has no shards of the arrays in these files.
        warnings.filterwarnings("ignore", r"Object at .*\.blp is not recognized")
        found = zarr.open(store, mode="r")
        content = _content(found, path)
    if os.path.isfile(path) and isinstance(content, GroupContent):
        _add_own(content, path, request)
    return content


def _add_own(group: GroupContent, path: str, request: Request) -> None:
    """Add the arrays of an archive of `savez` that Zarr has no shards of."""
    with open_zip(path, path) as opened:
        names = [name for name in opened.namelist() if name.endswith(EXTENSION)]
    if not names or ZARR_JSON not in opened.namelist():
        return
    archive = request.resources.enter_context(loadz(path, nthreads=request.nthreads))
    for name in (name.removesuffix(EXTENSION) for name in names):
        content = content_of(archive[name])
        content.may_be_lost = True
        add_member(group, name, content, path)


# Checked documents


def _open_store(storage: Any, path: str) -> Any:
    """Return a store of zarr 2 or 3 that checks each document."""
    is_version_2 = hasattr(storage, "DirectoryStore")
    if is_url(path):
        if is_version_2:
            return _checked(storage.FSStore, path)(path, mode="r")
        return _checked(storage.FsspecStore, path).from_url(path, read_only=True)
    if not os.path.isfile(path):
        if is_version_2:
            return _checked(storage.DirectoryStore, path, _file_size(path))(path)
        kind = _checked(storage.LocalStore, path, _file_size(path))
        return kind(path, read_only=True)
    with open_zip(path, path) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
    kind = _checked(storage.ZipStore, path, lambda name: sizes.get(name, 0))
    return kind(path, mode="r")


def _file_size(path: str) -> Callable[[str], int]:
    """Return a function for the size of a file in a folder, 0 for a missing one."""

    def size_of(name: str) -> int:
        try:
            return os.stat(os.path.join(path, *name.split("/"))).st_size
        except OSError:
            return 0

    return size_of


def _checked(
    kind: Any, path: str, size_of: Callable[[str], int] = lambda name: 0
) -> Any:
    """Return a subclass of a class of stores; `size_of` gives the size of a file."""

    def check_size(name: str, size: int) -> None:
        if size > MAX_JSON:
            raise DamageError(
                "expected a document of at most '%d' bytes, found '%d'"
                % (MAX_JSON, size),
                filename=shown_name("%s/%s" % (path, name)),
            )

    def check(name: str, text: bytes) -> None:
        check_size(name, len(text))
        check_codecs(name, json.loads(text.decode()), path)

    def getitem(self: Any, name: str) -> Any:
        """Return a file: how zarr 2 reads it."""
        if name.rpartition("/")[2] not in DOCUMENTS:
            return kind.__getitem__(self, name)
        check_size(name, size_of(name))
        found = kind.__getitem__(self, name)
        check(name, bytes(found))
        return found

    async def get(self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        """Return a file, or None: how zarr 3 reads it."""
        if name.rpartition("/")[2] not in DOCUMENTS:
            return await kind.get(self, name, *args, **kwargs)
        check_size(name, size_of(name))
        found = await kind.get(self, name, *args, **kwargs)
        if found is not None:
            check(name, found.to_bytes())
        return found

    reads = {"__getitem__": getitem} if hasattr(kind, "__getitem__") else {"get": get}
    return type(kind.__name__, (kind,), reads)


def check_codecs(name: str, document: Json, path: str) -> None:
    """Raise `UsageError` if a document of a store names an unknown codec."""
    for found in _with_copies(name, document):
        for codec in _codecs_in(found):
            names: list[object] = [codec]
            if isinstance(codec, dict):
                names = [codec[key] for key in ("id", "name") if key in codec] or [None]
            for wrong in names:
                if not _is_known(wrong):
                    raise UsageError(
                        "'%s': the document '%s' names the codec '%.200s'. Only codecs "
                        "that run no code of their own are used: %s"
                        % (shown_name(path), name, wrong, ", ".join(sorted(CODECS)))
                    )


def _with_copies(name: str, document: Any) -> Iterator[JsonObject]:
    """Yield a document, and all copies of other documents in it, but attributes."""
    left = [document]
    last = name.rpartition("/")[2]
    if last == ".zattrs":
        return
    if last == CONSOLIDATED:
        copies = _object_at(document, "metadata")
        left = [copies[key] for key in copies if not key.endswith(".zattrs")]
    while left:
        found = left.pop()
        if isinstance(found, dict):
            yield found
            consolidated = _object_at(found, "consolidated_metadata")
            left += _object_at(consolidated, "metadata").values()


def _object_at(document: Any, key: str) -> dict[str, Any]:
    found = document.get(key) if isinstance(document, dict) else None
    return found if isinstance(found, dict) else {}


def _codecs_in(document: JsonObject) -> Iterator[Json]:
    """Yield the codecs and filters of an array, and those inside of codecs."""
    left = [document]
    while left:
        holder = left.pop()
        for key in ("compressor", "filters", "codecs", "index_codecs"):
            found = holder.get(key)
            for codec in found if isinstance(found, list) else [found]:
                if codec is not None:
                    yield codec
                    left.append(_object_at(codec, "configuration"))


def _is_known(name: object) -> bool:
    return isinstance(name, str) and name.removeprefix(CODEC_PREFIX) in CODECS


def _content(found: Any, path: str) -> Content:
    # A copy has its own identity, and is sparse or not by itself.
    dims, attrs = labels_of(found)
    if not hasattr(found, "shape"):
        members = {
            name: _content(found[name], "%s/%s" % (path, name))
            for name in sorted(found)
        }
        return GroupContent(members, attrs)
    rows = partial(_rows, found, path)
    dtype = numpy.dtype(found.dtype)
    attrs = with_mask(attrs, dtype, decode_mask)
    fill = getattr(found, "fill_value", None)
    if dtype.kind in "OT":
        dtype = _measured(rows(), path, fill)
        rows = partial(_text_rows, found, path, dtype)
    return ArrayContent(
        dtype,
        tuple(found.shape),
        rows,
        attrs=attrs,
        fill_value=fill if _is_item(fill, dtype) else None,
        dims=dims,
    )


def _is_item(fill: Any, dtype: DType) -> bool:
    """Return whether a fill value is an item: text may have a number, or None."""
    kinds = {"U": str, "S": bytes}
    return isinstance(fill, kinds.get(dtype.kind, object))


def _rows(found: Any, path: str) -> Iterator[Array]:
    """Yield blocks of rows, of whole chunks if those are small enough."""
    with _named(path):
        if not found.shape:
            yield numpy.asarray(found[...])
            return
        length = found.shape[0]
        row = found.nbytes // max(1, length)
        # A shard is indexed once, and its chunks are read by themselves.
        step = rows_in_block(row, found.chunks[0])
        for start in range(0, length, step):
            yield numpy.asarray(found[start : start + step])


def _measured(blocks: Iterator[Array], path: str, fill: Any) -> DType:
    """Return the type for text of variable length: that of the longest value."""
    lengths, kind = Lengths(), "U"
    lengths.most = longest([fill] if isinstance(fill, (str, bytes)) else [])
    for block in blocks:
        values = block.ravel().tolist()
        for value in values:
            if not isinstance(value, (str, bytes)):
                raise UsageTypeError(
                    "'%s': an array of Python objects can't be converted, unless all "
                    "are text" % shown_name(path)
                )
        kind = "S" if values and isinstance(values[0], bytes) else kind
        lengths.add(values)
    return lengths.dtype(shown_name(path), kind)


def _text_rows(found: Any, path: str, dtype: DType) -> Iterator[Array]:
    for block in _rows(found, path):
        yield fixed(block.ravel().tolist(), dtype, path).reshape(block.shape)


def is_zip_store(names: list[str]) -> bool:
    """Return whether an archive with these members is a store."""
    return any(name in MARKERS for name in names)
