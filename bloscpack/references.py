"""References, ``bloscpack.references(files)``: let Zarr read the chunks in place.

A reference file maps the keys of a Zarr store to extents of other files, as kerchunk
writes it. A chunk of a `.blp` file is what the Blosc codec of Zarr reads, and the
digest behind it is what its checksum codecs expect. So each chunk becomes one
reference, and Zarr verifies it. Nothing is copied but a short last chunk, which Zarr
wants in full size: it is stored in the references, padded with zeros.
"""

from __future__ import annotations

import base64
import errno
import itertools
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ._compat import make_callable
from ._file.opened import OpenedFile, open_parts
from ._format.array_metadata import Description, Labels, default_dims
from ._format.chunks import compress
from ._format.dtypes import decode_dtype
from ._format.reference_documents import (
    BLOSC,
    CHECKSUM_CODECS,
    Format2,
    Format3,
    Part,
    unfit,
)
from ._format.rows import grid_chunk_shape
from ._storage.paths import MARK, is_url, local_path, shown_name, without_url
from ._storage.protocols import Path, StorageOptions
from ._storage.urls import last_part, with_lower_schemes
from .dataset.chunk_references import ArrayInPlace
from .exceptions import UsageError, UsageValueError, install_hint
from .serializers import is_array

if TYPE_CHECKING:
    from .serializers import JsonObject

# A file, or an array in a folder.
Source = Path | ArrayInPlace

# Maximum size in bytes of a short last chunk with its padding, which is made in memory
# and stored in the references.
MAX_PADDED = 256 * 2**20
# How a chunk begins that is stored in the references.
INLINE = "base64:"


def references(
    files: Path | Sequence[Path] | Mapping[str, Path],
    *,
    zarr_format: int = 2,
    concat: bool = False,
    flat: bool = False,
    unverified: bool = False,
    name: str | None = None,
    dims: Sequence[str] | None = None,
    location: str | None = None,
    storage_options: StorageOptions | None = None,
) -> JsonObject:
    """Return references through which Zarr and xarray read chunks in place.

    The result is a dictionary in the format of kerchunk, ready for ``json.dump``. Its
    references make up a Zarr group with one array for each file.

    Parameters
    ----------
    files
        One file, several, or a mapping of array names to files; each is a path or a
        URL. By default an array has the name of its file without folder and extension.
        A folder with an array of bcolz or BLZ is like a file. A folder with a table is
        a group of its columns: the root of the store if there is nothing else.
    zarr_format
        2 or 3.
    concat
        Whether the files become one array, joined along the first axis, in this order.
    flat
        Whether each array becomes one-dimensional, which any chunk size fits.
    unverified
        Whether to accept checksums that no Zarr reader knows: their digests are left
        out, and readers don't notice damage.
    name
        Name of the array of one file, or with `concat`. An empty name makes the array
        the root of the store.
    dims
        Names of the axes for xarray; by default those in the metadata, or ``dim_0`` and
        so on.
    location
        Folder or URL to be written in front of the file names, instead of the folder
        where they are now. A URL is written with its user name, password and query.
    storage_options
        Settings of fsspec for reading URLs, such as keys; the references don't contain
        them.

    Raises
    ------
    UsageError
        If a file does not qualify; the message says why. See docs/zarr.rst.
    FormatError
        If a file is damaged.
    """
    if zarr_format not in (2, 3):
        raise UsageValueError("zarr_format must be 2 or 3, not %r" % (zarr_format,))
    describe = Format2 if zarr_format == 2 else Format3
    named = _named(files, name, concat)
    groups: dict[str, JsonObject] = {"": {}}
    is_only = name is None and not isinstance(files, Mapping) and len(named) == 1
    arrays = _with_datasets(named, groups, is_only)
    refs: JsonObject = {}
    for group, attributes in groups.items():
        refs.update(describe.group(group, attributes))
    for array_name, sources in arrays:
        parts = [
            _read(source, location, flat, unverified, dims, storage_options)
            if isinstance(source, (str, bytes, os.PathLike))
            else _read_in_place(source, location, flat, dims)
            for source in sources
        ]
        refs.update(describe.array(array_name, _joined(parts)))
    return {"version": 1, "refs": refs}


def write_references(
    refs: JsonObject, out: Path, *, storage_options: StorageOptions | None = None
) -> None:
    """Write references to a file, for ``engine='kerchunk'`` of xarray and for fsspec.

    Parameters
    ----------
    refs
        What `references` returned.
    out
        Name of the output. If it ends in ``.parq`` or ``.parquet``, it becomes a folder
        of Parquet files, from which readers load only what they need; this needs
        fsspec, pandas and fastparquet, and Zarr format 2. Otherwise it becomes a JSON
        file, which may be at a URL.
    storage_options
        Settings of fsspec for a URL.

    Raises
    ------
    UsageError
        If the references can't be stored as Parquet files.
    """
    if os.fsdecode(out).endswith((".parq", ".parquet")):
        _write_parquet(refs["refs"], os.fsdecode(out))
        return
    from ._commit.replacing import replacing

    with replacing(out, None, storage_options=storage_options) as fp:
        fp.write(json.dumps(refs, separators=(",", ":")).encode())


def _write_parquet(refs: JsonObject, out: str) -> None:
    if not any(key.endswith((".zgroup", ".zarray")) for key in refs):
        raise UsageError("references of Zarr format 3 can't be stored as Parquet files")
    without_url(out, "a folder of Parquet files")
    if os.path.lexists(out):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), out)
    try:
        import fastparquet  # noqa: F401
        import fsspec
        from fsspec.implementations.reference import LazyReferenceMapper
    except ImportError as error:
        raise UsageError(
            "Parquet files need fsspec, pandas and fastparquet: %s"
            % install_hint("parquet")
        ) from error
    import shutil
    from uuid import uuid4

    folder, base = os.path.split(os.path.abspath(out))
    # Beside the output, so that renaming is atomic.
    unfinished = os.path.join(folder, ".%s%s.tmp" % (base, uuid4().hex))
    os.mkdir(unfinished)
    try:
        local = fsspec.filesystem("file")
        mapper = LazyReferenceMapper.create(unfinished, fs=local)
        for key, value in refs.items():
            is_text = isinstance(value, str) and not value.startswith(INLINE)
            mapper[key] = value.encode() if is_text else value
        mapper.flush()
        os.rename(unfinished, out)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def _named(
    files: Path | Sequence[Path] | Mapping[str, Path], name: str | None, concat: bool
) -> list[tuple[str, list[Path]]]:
    """Return the name of each array, and the files that it consists of."""
    named: list[tuple[str, list[Path]]]
    if isinstance(files, Mapping):
        named = [(key, [path]) for key, path in files.items()]
    else:
        if isinstance(files, (str, bytes, os.PathLike)):
            files = [files]
        paths = list(files)
        if not paths:
            raise UsageError("expected at least one file")
        named = [(_stem(path), [path]) for path in paths]
        if concat:
            named = [(named[0][0], paths)]
    if name is not None:
        if len(named) > 1:
            raise UsageError("one name was given for %d arrays" % len(named))
        named = [(name, named[0][1])]
    _check_different(named)
    return named


def _check_different(named: Sequence[tuple[str, object]]) -> None:
    names = [key for key, _ in named]
    for key in names:
        if names.count(key) > 1:
            raise UsageError(
                "two arrays have the name '%s': give a mapping of names to files, "
                "or write the references of each file with --name and -o" % key
            )


def _with_datasets(
    named: list[tuple[str, list[Path]]], groups: dict[str, JsonObject], is_only: bool
) -> list[tuple[str, list[Source]]]:
    """Return the names and sources of all arrays, those in folders among them.

    `groups` gets the name and the attributes of the group of each table. With `is_only`
    nothing else was given, and the table is the root.
    """
    found: list[tuple[str, list[Source]]] = []
    for key, paths in named:
        sources: list[Source] = []
        for path in paths:
            if not _is_folder(path):
                sources.append(path)
                continue
            from .dataset.chunk_references import DatasetInPlace

            dataset = DatasetInPlace(local_path(path))
            if dataset.attributes is None:
                sources.append(dataset.arrays[""])
                continue
            if len(paths) > 1:
                raise UsageError(
                    "'%s' is a table, and only arrays can be joined"
                    % shown_name(os.fsdecode(path))
                )
            group = "" if is_only or not key else key + "/"
            groups[group] = dataset.attributes
            found += [(group + name, [array]) for name, array in dataset.arrays.items()]
        if sources:
            found.append((key, sources))
    _check_different(found)
    return found


def _is_folder(path: Path) -> bool:
    return not is_url(local_path(path)) and os.path.isdir(local_path(path))


def _stem(path: Path) -> str:
    base = _base(os.fsdecode(path))
    if _is_folder(path):
        base = os.path.basename(os.path.abspath(os.fsdecode(local_path(path))))
    for ending in (".blp", ".npy", ".bcolz", ".blz"):
        base = base.removesuffix(ending)
    return base or "data"


def _base(path: str) -> str:
    """Return the last part of a path or URL."""
    return last_part(path) if is_url(path) else os.path.basename(path)


def _read(
    path: Path,
    location: str | None,
    flat: bool,
    unverified: bool,
    dims: Sequence[str] | None,
    storage_options: StorageOptions | None,
) -> Part:
    name = os.fsdecode(path)  # bytes, too, are a name here
    with open_parts(name, cache_nbytes=0, storage_options=storage_options) as opened:
        part = Part()
        part.path = os.fsdecode(local_path(name))
        part.shown_name = shown_name(part.path)
        _describe(part, opened, flat)
        part.checksum = opened.header.checksum
        if part.checksum not in ("None", *CHECKSUM_CODECS):
            if not unverified:
                raise unfit(
                    part,
                    "no Zarr reader verifies digests of type '%s': repack it with "
                    "adler32, crc32 or crc32c, or use unverified=True or --unverified"
                    % part.checksum,
                )
            part.checksum = "None"
        labels = Labels(opened.user_metadata, len(part.shape))
        part.dims = _dims(part, labels.dims if dims is None else dims)
        part.attributes = labels.attrs
        _refer_to_chunks(part, opened, _place(part.path, location))
        return part


def _read_in_place(
    array: ArrayInPlace, location: str | None, flat: bool, dims: Sequence[str] | None
) -> Part:
    part = Part()
    part.path = part.shown_name = array.path
    part.dtype, part.order = array.dtype, "C"
    part.shape, part.chunk_shape = array.shape, array.chunk_shape
    _check_dtype(part)
    if flat:
        part.shape = (math.prod(part.shape),)
        part.chunk_shape = (math.prod(part.chunk_shape),)
    own_dims = array.dims if array.dims is None or not flat else array.dims[:1]
    part.dims = _dims(part, own_dims if dims is None else dims)
    part.checksum, part.blosc = "None", dict(BLOSC)
    part.attributes = array.attributes
    folder = array.path
    if location is not None:
        folder = "%s/%s" % (location.rstrip("/"), array.name)
    part.chunks = [
        ["%s/%s" % (folder, name), start, size] for name, start, size in array.chunks
    ]
    part.full = not array.rest
    if array.rest:
        full = math.prod(part.chunk_shape) * part.dtype.itemsize
        _check_padded(full, part)
        part.chunks.append(_inline(array.rest.ljust(full, b"\0"), part))
    return part


def _describe(part: Part, opened: OpenedFile, flat: bool) -> None:
    """Set dtype, shape, order and chunk shape of the array in a file."""
    grid = None
    if is_array(opened.metadata):
        array = Description(opened.metadata)
        array.check_source(opened)
        grid = array.grid
        part.dtype, part.shape, part.order = array.dtype, array.shape, array.order
    else:
        part.dtype, part.shape, part.order = decode_dtype("|u1"), (opened.nbytes,), "C"
    if len(part.shape) < 2:
        part.order = "C"
    _check_dtype(part)
    itemsize = part.dtype.itemsize
    if grid is not None:
        if flat:
            raise unfit(part, "its chunks divide every axis, so it can't become flat")
        part.chunk_shape = grid.chunk
        return
    if flat:
        part.shape, part.order = (opened.nbytes // itemsize,), "C"
    chunk_size = opened.span(0)[1] if opened.nchunks else 0
    sizes_differ = any(
        stop - start != chunk_size
        for start, stop in map(opened.span, range(1, opened.nchunks - 1))
    )
    if sizes_differ:
        raise unfit(part, "its chunks have different sizes")
    if not opened.nbytes:
        part.chunk_shape = tuple(max(1, n) for n in part.shape)
        return
    if chunk_size % itemsize:
        raise unfit(
            part,
            "its chunks of %d bytes end within items of %d bytes: repack it with a "
            "multiple as chunk size" % (chunk_size, itemsize),
        )
    shape = grid_chunk_shape(part.shape, chunk_size // itemsize, part.order)
    if shape is None:
        raise unfit(
            part,
            "its chunks of %d items form no regular grid in the shape %s: repack it "
            "with whole rows as chunk size, a multiple of %d bytes, or use flat=True "
            "or --flat"
            % (
                chunk_size // itemsize,
                part.shape,
                opened.nbytes // part.shape[-1 if part.order == "F" else 0],
            ),
        )
    part.chunk_shape = shape


def _check_dtype(part: Part) -> None:
    """Raise `UsageError` if Zarr can't represent the dtype."""
    dtype = part.dtype
    fields = [] if dtype.fields is None else list(dtype.fields.values())
    if not dtype.itemsize:
        why = "items without bytes"
    elif any(dtype.char in "gG" or f[0].base.char in "gG" for f in [(dtype,), *fields]):
        why = "long doubles"
    elif any(field[0].shape for field in fields):
        why = "fields that are arrays"
    elif any(field[0].names for field in fields):
        why = "nested structures"
    elif any(len(field) > 2 for field in fields):
        why = "fields with titles"
    else:
        return
    raise unfit(part, "Zarr has no %s (dtype %s)" % (why, dtype))


def _dims(part: Part, dims: Sequence[str] | None) -> list[str]:
    found = default_dims(len(part.shape)) if dims is None else [*dims]
    if len(found) != len(part.shape):
        raise unfit(
            part,
            "%d names were given for the %d axes of its array"
            % (len(found), len(part.shape)),
        )
    return found


def _place(path: str, location: str | None) -> str:
    """Return the name of a file in the references."""
    if location is not None:
        path = location.rstrip("/") + "/" + _base(path)
        return with_lower_schemes(path) if MARK in path else path
    return with_lower_schemes(path) if is_url(path) else os.path.abspath(path)


def _refer_to_chunks(part: Part, opened: OpenedFile, place: str) -> None:
    digest_size = opened.header.checksum_impl.size
    kept = digest_size if part.checksum != "None" else 0
    extents = opened.extents() if opened.nbytes else []
    part.chunks = [
        [place, start, stop - start - digest_size + kept] for start, stop in extents
    ]
    part.blosc = dict(BLOSC)
    full = math.prod(part.chunk_shape) * part.dtype.itemsize
    start, stop = opened.span(opened.nchunks - 1) if opened.nchunks else (0, 0)
    part.full = not extents or stop - start == full
    if not part.full:
        _check_padded(full, part)
        plain = opened.read(start, stop).ljust(full, b"\0")
        part.chunks[-1] = _inline(plain, part)


def _check_padded(full: int, part: Part) -> None:
    if full > MAX_PADDED:
        raise unfit(
            part,
            "its last chunk is short and would be padded to '%d' bytes, but at most "
            "'%d' are: repack it with smaller chunks" % (full, MAX_PADDED),
        )


def _inline(plain: bytes, part: Part) -> str:
    """Return a chunk as text, for the references."""
    from ._engine.blosc_settings import own_settings
    from .args import BloscArgs
    from .checksums import CHECKSUMS_LOOKUP

    with own_settings:
        chunk = compress(plain, BloscArgs(typesize=min(part.dtype.itemsize, 255)))
    digest = CHECKSUMS_LOOKUP[part.checksum](chunk)
    return INLINE + base64.b64encode(chunk + digest).decode("ascii")


def _joined(parts: list[Part]) -> Part:
    """Return the array whose rows are those of all parts."""
    first, *others = parts
    for part in others:
        if part.order == "F" or first.order == "F":
            raise unfit(part, "arrays in Fortran order can't be joined by rows")
        names = ("dtype", "chunk_shape", "checksum")
        differing = [n for n in names if getattr(part, n) != getattr(first, n)]
        if part.shape[1:] != first.shape[1:] or not part.shape:
            differing.append("shape")
        for name in differing:
            values = getattr(part, name), first.shown_name, getattr(first, name)
            text = "is %s, but that of '%s' is %s" % values
            raise unfit(part, "its %s %s" % (name.replace("_", " "), text))
    for part in parts[:-1]:
        if others and (not part.full or part.shape[0] % part.chunk_shape[0]):
            raise unfit(
                part,
                "another file follows, but its last chunk is shorter than the others",
            )
    if others:
        first.shape = (sum(part.shape[0] for part in parts), *first.shape[1:])
        first.chunks = list(itertools.chain.from_iterable(p.chunks for p in parts))
    return first


make_callable(__name__)
