"""Several arrays in one file, ``savez(file, a=array)`` and ``loadz(file)``.

The file is a ZIP file without compression of its own, and a store of Zarr format 3 with
a group (docs/format.rst, Several arrays in one file)::

    NAME/c/0/..., NAME/zarr.json   an array; all of it is one shard, a .blp file
    NAME.blp                       an array that Zarr has no shards of, a .blp file
    zarr.json                      the group, which lists the members with chunks

Strategy: an archive is written once, and replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

from numpy.typing import ArrayLike

from ._arrays.loader import CACHE_NBYTES
from ._commit.replacing import replacing
from ._engine.forks import ForkSafeLock, WeakValues
from ._file.archive import (
    ArchiveFile,
    ArchiveSettings,
    check_document,
    check_names,
    write_archive,
)
from ._file.opened import OpenedFile
from ._format.dtypes import Array
from ._format.names import NoSuchName
from ._format.other_formats import CALLS, ZIP
from ._format.zarr_metadata import ZARR_JSON
from ._format.zip_format import MEMBERS
from ._storage.base import (
    Closing,
    Storage,
    naming_errors,
    release_views,
    releasing_views,
)
from ._storage.paths import check_ending, check_is_path, shown_name
from ._types import Buffer, Json, JsonObject, Path, Seekable, StorageOptions, Writable
from .args import AnyLimits
from .exceptions import FormatError, NotReadable, UsageError, UsageValueError
from .lazy_array import LazyArray, full_name

# Number of names that ``repr`` shows.
SHOWN_NAMES = 5


def savez(
    file: Path | Writable,
    /,
    *arrays: ArrayLike,
    settings: Mapping[str, object] | None = None,
    **named: Any,
) -> None:
    """Compress several arrays into one file, which `loadz` opens.

    The file is a ZIP file, and a store of Zarr format 3. It appears under its name only
    when it is complete.

    Parameters
    ----------
    file
        The file to write: a path, a URL, or a binary file object. No extension is added
        to the name; Zarr expects ``.zip``, and those of other formats are refused.
    arrays
        Arrays, or anything that `numpy.asanyarray` makes an array of. Their names are
        ``arr_0``, ``arr_1`` and so on.
    settings
        The settings, such as ``{'cname': 'zstd', 'chunk_size': '4M'}``: keywords of
        `pack_ndarray_to_file`, but not ``metadata`` and ``shard``. ``{'auto': True}``
        chooses settings for each array. The checksum is ``'crc32c'``.
    named
        Arrays by name. A name may have slashes, as in ``**{'group/a': array}``. `save`
        also stores an array of the name ``settings``.

    Raises
    ------
    ObjectNumpyArrayRejection
        An array contains Python objects.
    UsageError
        A name is given twice or can't be used, a setting is invalid, or an array is
        masked.

    Examples
    --------
    >>> import numpy
    >>> savez('two.zip', numpy.arange(3), ones=numpy.ones((1000, 1000)))
    >>> with loadz('two.zip') as archive:
    ...     archive.files, archive['ones'][999, 998:].tolist()
    (['arr_0', 'ones'], [1.0, 1.0])
    """
    check_is_path(file, "savez(file, *arrays, **named)", or_object=True)
    by_name = {"arr_%d" % i: array for i, array in enumerate(arrays)}
    twice = [name for name in named if name in by_name]
    if twice:
        raise UsageValueError(
            "the name '%s' was given, and an array without a name has it" % twice[0]
        )
    by_name.update(named)
    write_arrays(file, by_name, ArchiveSettings(settings))


def write_arrays(
    file: Path | Writable,
    arrays: Mapping[str, object],
    checked: ArchiveSettings,
    metadata: JsonObject | None = None,
) -> None:
    """Write an archive of arrays by name; `metadata` are the attributes of its group.

    The other parameters are those of `savez`.
    """
    check_ending(file, "several arrays become an archive, a ZIP file", ".zip", CALLS)
    check_names(arrays, metadata)
    given = arrays, checked.packing, metadata
    if hasattr(file, "write"):
        write_archive(file, *given)
        return
    with replacing(file, checked.sync, storage_options=checked.storage_options) as fp:
        write_archive(fp, *given)


def _shown(names: Iterable[str]) -> str:
    first = [*islice(names, SHOWN_NAMES + 1)]
    first[SHOWN_NAMES:] = ["..."] * (len(first) > SHOWN_NAMES)
    return ", ".join(first) or "no arrays"


class ArrayArchive(Closing, Mapping[str, LazyArray]):
    """The arrays in a file, by name; `loadz` makes it.

    Each array is a `LazyArray`, which reads the selected items. Closing the archive
    closes all its arrays. An archive can only be read: `savez` and `save` replace it
    as a whole.

    Attributes
    ----------
    files
        The names of the arrays, as in an ``NpzFile`` of NumPy.
    """

    def __init__(
        self, file: Path | Seekable | Buffer | Storage, options: dict[str, Any]
    ) -> None:
        self._options = options
        self._closed = False
        # By identity: the references can be listed while another thread adds one.
        self._lent = WeakValues()
        self._file = ArchiveFile(file, options["storage_options"])
        # The file stays the same if the process goes to another folder.
        name = self._file.name
        self._path = None if name is None else full_name(name)

    @property
    def files(self) -> list[str]:
        """The names of the arrays."""
        return list(self)

    @property
    def metadata(self) -> Json:
        """The metadata that `save` got for all arrays; None without any."""
        self._check_open()
        attributes = self._file.json(ZARR_JSON).get("attributes")
        if isinstance(attributes, dict):
            attributes = {key: attributes[key] for key in attributes if key != MEMBERS}
        return attributes or None

    def __repr__(self) -> str:
        shown = _shown(self._file.arrays)
        file = "" if self._file.name is None else " %r" % shown_name(self._file.name)
        closed = "closed " if self._closed else ""
        return "<%sArrayArchive%s: %s>" % (closed, file, shown)

    # Closing

    def close(self) -> None:
        """Close the file and its arrays. A file object of the caller stays open."""
        self._closed = True
        for _, array in self._lent.items():
            array.close()
        self._file.close()

    def _check_open(self) -> None:
        if self._closed:
            raise UsageValueError("the archive is closed")

    # Reading

    def __len__(self) -> int:
        return len(self._file.arrays)

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.arrays)

    def __contains__(self, name: object) -> bool:
        return name in self._file.arrays

    def __getitem__(self, name: str) -> LazyArray:
        """Return an array; raise ``KeyError`` if there is none of this name."""
        self._check_open()
        file = self._file
        label = file.label(name)
        names = "cache_nbytes", "limits", "nthreads"
        options = {each: self._options[each] for each in names}
        origin = None  # how the array is opened again, if the file has a name
        if self._path is not None:
            origin = partial(_open_again, self._path, name, self._options)
        with naming_errors(label):
            content, document = file.open(name)
            parts = OpenedFile(content, name=label, **options)
            array = LazyArray(parts, origin)
            if document is not None:
                check_document(document, array.shape, array.dtype, file.arrays[name])
        self._lent[id(array)] = array
        return array

    def __reduce__(self) -> tuple[object, ...]:
        """Return what opens the archive again, in any process, for reading."""
        if self._path is None:
            raise UsageError("only an archive that was opened by name can be pickled")
        return partial(loadz, self._path, **self._options), ()


class LoadedArrays(Closing, Mapping[str, Array]):
    """The arrays in a file, by name; `load` makes it.

    Each array is read when it is first used, and kept. The file is closed when all
    arrays have been read, by `close`, and when nothing refers to this any more.
    """

    def __init__(self, archive: ArrayArchive) -> None:
        self._archive = archive
        self._names = dict.fromkeys(archive)
        self._arrays: dict[str, Array] = {}
        self._damage: dict[str, FormatError] = {}
        self._reading = ForkSafeLock()

    def close(self) -> None:
        """Close the file. The arrays that have been read stay."""
        self._archive.close()

    def __repr__(self) -> str:
        return "<LoadedArrays: %s>" % _shown(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def read_all(self) -> Mapping[str, Array]:
        """Read all arrays; return them, in a dictionary unless one is damaged."""
        with self:
            for name in self:
                try:
                    self[name]
                except FormatError as error:
                    release_views(error)
                    self._damage[name] = error
        return self if self._damage else dict(self)

    def __getitem__(self, name: str) -> Array:
        """Return an array; raise ``KeyError`` if there is none of this name."""
        if name in self._damage:
            raise self._damage[name]
        if name not in self._arrays:
            if name not in self._names:
                raise NoSuchName(name, self._archive._file.name, self.keys)
            with self._reading.current:  # another thread may read the last one
                if name not in self._arrays:
                    self._arrays[name] = self._archive[name].read()
                    if len(self._arrays) == len(self._names):
                        self.close()
        return self._arrays[name]

    def __reduce__(self) -> tuple[object, ...]:
        """Return all arrays: the file may be another one where they are unpickled."""
        return dict, (dict(self),)


def load_arrays(archive: ArrayArchive, begin: int) -> Mapping[str, Array]:
    """Return the arrays of an archive, which is closed when they have been read.

    They are read at once if the caller of `load` has opened the file, and may close it.
    Raises `FormatError` if an archive at `begin` is another one.
    """
    file = archive._file
    first = min(file.limits, default=begin)
    if begin not in (first, file.shift) and file.storage.read_at(begin, 2) == ZIP[:2]:
        archive.close()
        raise NotReadable(
            "expected one archive from byte '%d' to the end, found that the last one "
            "begins at '%d': loadz opens the last one" % (begin, first)
        )
    arrays = LoadedArrays(archive)
    return arrays if arrays and archive._path is not None else arrays.read_all()


@releasing_views
def loadz(
    file: Path | Seekable | Buffer | Storage,
    *,
    cache_nbytes: int = CACHE_NBYTES,
    nthreads: int | None = None,
    limits: AnyLimits | None = None,
    storage_options: StorageOptions | None = None,
) -> ArrayArchive:
    """Open a file of `savez`; the result is a mapping of names to lazy arrays.

    Parameters
    ----------
    file
        A path, a URL, a binary file object that can seek, or a buffer with the bytes of
        the file. A file object, whose last archive is opened, stays open, and only the
        result may use it meanwhile.
    cache_nbytes, nthreads, limits, storage_options
        As in `open_ndarray`, for each array.

    Raises
    ------
    FormatError
        `savez` has not written the file, or its directory is damaged.

    Examples
    --------
    >>> import numpy
    >>> savez('several.zip', a=numpy.arange(3), b=numpy.eye(2))
    >>> with loadz('several.zip') as archive:
    ...     archive
    ...     archive['b'][1].tolist()
    <ArrayArchive 'several.zip': a, b>
    [0.0, 1.0]
    """
    options = {
        "cache_nbytes": cache_nbytes,
        "nthreads": nthreads,
        "limits": limits,
        "storage_options": storage_options,
    }
    return ArrayArchive(file, options)


def _open_again(file: str, name: str, options: dict[str, Any]) -> LazyArray:
    """Return an array of an archive, which stays open as long as the array."""
    return loadz(file, **options)[name]
