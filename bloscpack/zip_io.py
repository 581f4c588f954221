"""Several arrays in one file, ``savez(file, a=array)`` and ``loadz(file)``.

The file is a ZIP file without compression of its own, and a store of Zarr format 3 with
a group (docs/format.rst, Several arrays in one file)::

    zarr.json                      the group
    NAME/zarr.json, NAME/c/0/...   an array; all of it is one shard, a .blp file
    NAME.blp                       an array that Zarr has no shards of, a .blp file

Strategy: an array is compressed straight into its member. When the member is complete,
its size and checksum are written into the header in front of it. A change makes a new
file, into which the stored members are copied as bytes, and which replaces the old one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import closing, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO
from weakref import WeakValueDictionary

from ._commit.replacing import replacing
from ._engine.forks import OwnLock
from ._file.archive_reading import (
    BLP,
    ArchiveFile,
    check_document,
    check_names,
    document_name,
    parents_of,
)
from ._file.archive_writing import ArchiveSettings, ArchiveWriter, write_archive
from ._file.array_reader import CACHE_NBYTES, ChunkCache
from ._file.opened import OpenedFile
from ._format.zarr_metadata import ZARR_JSON, encode_json, group_document
from ._storage.base import Closing, Storage, naming_errors
from ._storage.paths import check_place, shown_name, without_url
from ._storage.protocols import Buffer, Path, Seekable, StorageOptions, Writable
from .args import effective_limits
from .exceptions import UsageError, UsageTypeError, UsageValueError
from .lazy_array import LazyArray, full_name

if TYPE_CHECKING:
    from .args import AnyLimits
    from .lazy_array import Origin
    from .serializers import Json, JsonObject

# Number of names that ``repr`` shows.
SHOWN_NAMES = 5


def savez(
    file: Path | Writable,
    /,
    *arrays: Any,
    settings: Mapping[str, Any] | None = None,
    **named: Any,
) -> None:
    """Compress several arrays into one file, which `loadz` opens.

    The file is a ZIP file, and a store of Zarr format 3. It appears under its name only
    when it is complete.

    Parameters
    ----------
    file
        The file to write: a path, a URL, or a binary file object. No extension is added
        to the name; Zarr expects ``.zip``.
    arrays
        Arrays, or anything that `numpy.asanyarray` makes an array of. Their names are
        ``arr_0``, ``arr_1`` and so on.
    settings
        The settings, such as ``{'cname': 'zstd', 'chunk_size': '4M'}``: keywords of
        `pack_ndarray_to_file`, but not ``metadata`` and ``shard``. ``{'auto': True}``
        chooses settings for each array. The checksum is ``'crc32c'``.
    named
        Arrays by name. A name may have slashes, as in ``**{'group/a': array}``. An
        array of the name ``settings`` can be added with `loadz` later.

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
    check_place(file, "savez(file, *arrays, **named)", or_object=True)
    found = {"arr_%d" % i: array for i, array in enumerate(arrays)}
    twice = [name for name in named if name in found]
    if twice:
        raise UsageValueError(
            "the name '%s' was given, and an array without a name has it" % twice[0]
        )
    found.update(named)
    write_arrays(file, found, ArchiveSettings(settings))


def write_arrays(
    file: Path | Writable,
    arrays: Mapping[str, Any],
    checked: ArchiveSettings,
    metadata: JsonObject | None = None,
) -> None:
    """Write an archive of arrays by name; `metadata` are the attributes of its group.

    The other parameters are those of `savez`.
    """
    check_names(arrays)

    def write(writer: ArchiveWriter) -> None:
        writer.add_bytes(ZARR_JSON, encode_json(group_document(metadata)))
        for group in parents_of(arrays):
            writer.add_bytes(document_name(group), encode_json(group_document()))
        for name, array in arrays.items():
            writer.add_array(name, array, checked.packing)

    if hasattr(file, "write"):
        write_archive(file, write, new=False)
        return
    with replacing(file, checked.sync, storage_options=checked.storage_options) as fp:
        write_archive(fp, write, new=True)


class ArrayArchive(Closing, MutableMapping[str, LazyArray]):
    """The arrays in a file, by name; `loadz` makes it.

    Each array is a `LazyArray`, which reads the selected items. Closing the archive
    closes all its arrays. With the mode ``"r+"``, arrays are added and replaced by
    ``archive[name] = array``, several at once by ``archive.update(...)``, and removed
    by ``del archive[name]``. Each such change writes a new file, into which the other
    arrays are copied, and which replaces the old one when it is complete.
    Lazy arrays that were there before keep the old content. Changes of several threads
    are made one after another; a process that has inherited the archive can only read.

    Attributes
    ----------
    files
        The names of the arrays, as in an ``NpzFile`` of NumPy.
    """

    def __init__(
        self,
        file: Path | Seekable | Buffer | Storage,
        mode: str,
        settings: ArchiveSettings,
        options: dict[str, Any],
    ) -> None:
        self._mode = mode
        self._settings = settings
        self._options = options
        self._closed = False
        # By identity: the references can be listed while another thread adds one.
        self._lent: WeakValueDictionary[int, LazyArray] = WeakValueDictionary()
        self._file = ArchiveFile(file, settings.storage_options)
        # The file stays the same if the process goes to another folder.
        name = self._file.name
        self._place = None if name is None else full_name(name)
        self._owner = OwnLock(self._place or "the archive")
        # Its states that arrays still read.
        self._opened = WeakValueDictionary({id(self._file): self._file})

    @property
    def files(self) -> list[str]:
        """The names of the arrays."""
        return list(self)

    @property
    def metadata(self) -> Json:
        """The metadata that `save` got for all arrays; None without any."""
        self._check_open()
        document = self._file.json(self._file.member(ZARR_JSON))
        return document.get("attributes") or None

    def __repr__(self) -> str:
        names = [*self._file.arrays]
        shown = ", ".join(names[:SHOWN_NAMES]) + ", ..." * (len(names) > SHOWN_NAMES)
        file = "" if self._file.name is None else " %r" % shown_name(self._file.name)
        closed = "closed " if self._closed else ""
        return "<%sArrayArchive%s: %s>" % (closed, file, shown or "no arrays")

    # Closing

    def close(self) -> None:
        """Close the file and its arrays. A file object of the caller stays open.

        This waits for the change of another thread.
        """
        with self._owner if self._owner.is_here else nullcontext():
            self._closed = True
            for parts in (self._lent, self._opened):
                for reference in parts.valuerefs():
                    part: LazyArray | ArchiveFile | None = reference()
                    if part is not None:
                        part.close()

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
        limits = effective_limits(self._options["limits"])
        cache = ChunkCache(self._options["cache_nbytes"])
        nthreads = self._options["nthreads"]
        with naming_errors(label):
            member = file.chunks(name)
            members, document = [member], None
            if not member.name.endswith(BLP):
                members.append(file.member(document_name(name)))
            content, *others = file.contents(*members)
            if others:
                document = file.document(name, others[0])
            parts = OpenedFile(content, cache, limits, label, nthreads)
            array = LazyArray(parts, self._origin(name))
            if document is not None:
                check_document(document, array.shape, array.dtype, member.name)
        self._lent[id(array)] = array
        return array

    def _origin(self, name: str) -> Origin | None:
        """Return how an array is opened again, if the file was opened by name."""
        if self._place is None:
            return None
        return partial(_open_again, self._place, name, self._reading_options())

    def _reading_options(self) -> dict[str, Any]:
        return {**self._options, "storage_options": self._settings.storage_options}

    def __reduce__(self) -> tuple[object, ...]:
        """Return what opens the archive again, in any process, for reading."""
        if self._place is None:
            raise UsageError("only an archive that was opened by name can be pickled")
        return partial(loadz, self._place, **self._reading_options()), ()

    # Changes

    def __setitem__(self, name: str, array: Any) -> None:
        """Add or replace an array."""
        self._change({name: array})

    def __delitem__(self, name: str) -> None:
        """Remove an array; raise ``KeyError`` if there is none of this name."""
        self._change({}, name)

    def update(self, *given: Any, **named: Any) -> None:
        """Add or replace several arrays in one change, as ``dict.update`` does."""
        new = dict(*given, **named)
        if new:
            self._change(new)

    def _change(self, new: Mapping[str, Any], removed: str | None = None) -> None:
        """Replace the file; changes of other threads wait."""
        with self._owner:
            self._check_open()
            if self._mode != "r+":
                raise UsageError(
                    "the archive was opened for reading: use the mode 'r+'"
                )
            path = self._place
            assert path is not None
            # No other program can replace the file in the meantime, but one may have
            # done so before: it is opened again.
            with (
                replacing(path, self._settings.sync) as fp,
                closing(ArchiveFile(path)) as old,
            ):
                self._write_changed(old, fp, new, removed)
            file = ArchiveFile(path)
            file.name = self._file.name
            self._opened[id(file)] = file
            self._file = file

    def _write_changed(
        self,
        old: ArchiveFile,
        fp: BinaryIO,
        new: Mapping[str, Any],
        removed: str | None,
    ) -> None:
        if removed is not None and removed not in old.arrays:
            raise KeyError(removed)
        names = {**dict.fromkeys(old.arrays), **dict.fromkeys(new)}
        check_names(names)
        dropped = set()
        for name in (*new, *([] if removed is None else [removed])):
            if name in old.arrays:
                dropped |= {old.arrays[name], document_name(name)}
            elif any(member.startswith(name + "/") for member in old.members):
                raise UsageError(
                    "'%s' is the name of a group, or of an array that savez has not "
                    "written" % name
                )
        writer = ArchiveWriter(fp, new=True)
        for member in old.members.values():
            if member.name not in dropped:
                writer.copy(member, old.contents(member)[0])
        for group in parents_of(new):
            if document_name(group) not in old.members:
                writer.add_bytes(document_name(group), encode_json(group_document()))
        for name, array in new.items():
            writer.add_array(name, array, self._settings.packing)
        writer.finish()


def loadz(
    file: Path | Seekable | Buffer | Storage,
    mode: str = "r",
    *,
    settings: Mapping[str, Any] | None = None,
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
        the file. A file object stays open, and only the result may use it meanwhile.
    mode
        ``"r"`` to read, or ``"r+"`` to add, replace and remove arrays too, for which
        the file must have a path.
    settings
        The settings for new arrays, as for `savez`.
    cache_nbytes, nthreads, limits, storage_options
        As in `open_ndarray`, for each array.

    Raises
    ------
    FormatError
        `savez` has not written the file, or its directory is damaged.

    Examples
    --------
    >>> import numpy
    >>> savez('grown.zip', a=numpy.arange(3))
    >>> with loadz('grown.zip', 'r+') as archive:
    ...     archive['b'] = numpy.eye(2)
    ...     del archive['a']
    ...     archive
    <ArrayArchive 'grown.zip': b>
    """
    if mode not in ("r", "r+"):
        raise UsageValueError("the mode must be 'r' or 'r+', not %r" % (mode,))
    checked = ArchiveSettings(settings)
    if storage_options is not None:
        checked.storage_options = storage_options
    if mode == "r+":
        without_url(file, "changing an archive")
        if not isinstance(file, (str, os.PathLike)):
            raise UsageTypeError(
                "expected the path of the archive to be changed, found %.200r" % (file,)
            )
    options = {"cache_nbytes": cache_nbytes, "nthreads": nthreads, "limits": limits}
    return ArrayArchive(file, mode, checked, options)


def _open_again(file: str, name: str, options: dict[str, Any]) -> LazyArray:
    """Return an array of an archive, which stays open as long as the array."""
    return loadz(file, **options)[name]
