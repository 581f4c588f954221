"""The layout of Zarr format 3, with shards that are `.blp` files: arrays.

::

    ROOT/zarr.json    shape, data type, sizes of chunks and shards, attributes
    ROOT/c/0/0        a shard, with its position along each axis
    ROOT/c/1/0        the next one; one that is missing has the fill value everywhere

``zarr.json`` has the shape, and is replaced last: items that a shard has outside of it
do not count. A shard is never changed in place: other readers see the old file or
the new one.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy

from ..._arrays.reader import Reader
from ..._commit.new_files import Change
from ..._format.array_metadata import MAX_NBYTES, Description
from ..._format.grid import Grid, Shape
from ..._format.sections import Beginning, read_beginning
from ..._format.shard import is_portable
from ..._format.zarr_metadata import (
    READ_OTHERWISE,
    ZARR_JSON,
    ArrayDocument,
    decode_array,
    decode_mask,
    encode_data_type,
    encode_fill_value,
    encode_json,
    encode_mask,
    with_mask,
)
from ..._storage.cursor import StorageCursor
from ..._storage.folder_store import replaced
from ..._types import JsonObject
from ...args import BloscArgs
from ...constants import CNAME_AVAIL
from ...exceptions import (
    DamageError,
    FormatError,
    StorageError,
    Unsupported,
    UsageValueError,
)
from ...numpy_io import typesize_of
from ..folder import Folder
from .array_files import DescriptionCheck, FileNames
from .base import ArrayLayout, Blocks, NewArray
from .chunk_choice import new_grid
from .identity import (
    KEY,
    Identity,
    check_attributes,
    identified,
    read_identity,
    seems_signed,
)
from .shard_files import ShardFiles
from .shard_grid import Sharding, place_of
from .shard_writer import ShardWriter, write_shards

# Folder of the shards.
SHARDS = "c"
# An attribute of an array of which some shards were never written, and its value. A
# shard that is missing from any other array has been lost.
MISSING_SHARDS = "missing-shards"
MISSING_READ_AS = "fill_value"
# The attributes that users do not see, and their meaning.
OWN_ATTRIBUTES = {
    MISSING_SHARDS: "says that some shards were never written",
    KEY: "says which dataset it is",
}
# Settings of Blosc that users can choose.
SETTINGS = ("cname", "clevel", "shuffle")


@dataclass(eq=False)
class OwnDocument:
    """The document of an array, and whether Bloscpack wrote it.

    Attributes
    ----------
    array
        The document, without the attribute of the identity.
    identity
        The identity in it, which is uncertain unless `is_own`; None if there is none.
    is_own
        Whether the digest is right: no other program has changed the document.
    """

    array: ArrayDocument
    identity: Identity | None
    is_own: bool

    @property
    def certain_identity(self) -> str | None:
        """The identity of the array; None if it is uncertain."""
        return self.identity.name if self.identity is not None and self.is_own else None

    def encode(self) -> bytes:
        """Return the content of the file."""
        assert self.identity is not None
        document = self.array.document()
        return identified(document, self.identity, encode_json, key="attributes")


def read_array_document(folder: Folder) -> OwnDocument:
    """Return the document of an array, which is in its file now."""
    content, value = folder.read_document(ZARR_JSON)
    document = value if isinstance(value, dict) else {}
    attributes = document.get("attributes")
    stated = attributes.pop(KEY, None) if isinstance(attributes, dict) else None
    identity, is_own = read_identity(content, stated)
    try:
        return OwnDocument(decode_array(document), identity, is_own)
    except FormatError as error:
        text, path = str(error), error.filename or folder.path(ZARR_JSON)
        error.filename = path
        is_damage = not isinstance(error, Unsupported)
        if is_damage or is_own or not seems_signed(content):
            raise
        reason = text.removesuffix(READ_OTHERWISE)  # it might be damaged
        raise DamageError(
            "the digest in '%s' is wrong, so it is damaged or another program has "
            "changed it (then remove this attribute): %s" % (KEY, reason),
            section="metadata",
            filename=path,
        ) from error


def storage_of(own: OwnDocument, known: str | None) -> tuple[object, ...]:
    """Return how the items are stored, as a value that can be compared.

    `known` is the identity to compare with, if any. One that a change has given to the
    array since, or that another program has dropped, counts as the same.
    """
    array, name = own.array, own.identity and own.identity.name
    if name is None or known is None:
        name = known
    fill = numpy.array(array.fill_value, array.dtype).tobytes()
    grid = array.grid
    cut = grid.chunk, grid.per_shard
    return array.dtype, cut, fill, name


def read_storage(folder: Folder, known: str | None) -> tuple[object, ...]:
    """Return how the items are stored, according to the file now."""
    return storage_of(read_array_document(folder), known)


def check_shape(folder: Folder, shape: Shape) -> None:
    """Raise `StorageError` if an array has become smaller than `shape`."""
    try:
        found = read_array_document(folder).array.shape
    except FileNotFoundError as error:
        raise replaced(folder.path()) from error
    if any(map(int.__lt__, found, shape)):
        raise StorageError(
            errno.ESTALE,
            "a writer has removed rows: open the array again",
            folder.path(),
        )


def mark_sparse(document: ArrayDocument) -> None:
    """Note in the document that some shards are missing because none was written."""
    document.attributes = {**document.attributes, MISSING_SHARDS: MISSING_READ_AS}


class ZarrArray(ArrayLayout):
    """An array of Zarr format 3."""

    name = "zarr"
    sparse = True
    cuts_all_axes = True
    has_dims = True
    description_files = (ZARR_JSON,)
    _own: OwnDocument
    _source: ShardFiles
    # The document that a change has staged, and what the identity of its file will be.
    _staged: tuple[OwnDocument, object] | None = None

    def __init__(self, folder: Folder, *, allow_pickle: bool = False) -> None:
        self.folder = folder
        self._open()

    def _open(self) -> None:
        """Take over the document that is in the file now."""
        check = DescriptionCheck(self.folder, ZARR_JSON)
        self._take(read_array_document(self.folder), check)

    def _take(self, own: OwnDocument, check: DescriptionCheck) -> None:
        """Take over a document, and read from the files of this state from now on."""
        known = None if own.identity is None else own.identity.name
        read = partial(read_storage, self.folder, known)
        check.expect(self.folder.path(), read, storage_of(own, known))
        document, self._own = own.array, own
        self.changed_elsewhere = not own.is_own
        # A checksum of the name, if this was made as a column of a table.
        certain = own.identity if own.is_own else None
        self.column_word = None if certain is None else certain.column
        self.is_column = self.column_word is not None if own.is_own else None
        self.dtype, self.shape = document.dtype, document.shape
        self.stored_dims = document.dimension_names
        self.fill_value = document.fill_value
        self.grid = document.grid
        self.chunks, self.shards = self.grid.chunk, self.grid.shard
        self._sharding = sharding_of(document, own.certain_identity)
        # Other programs leave out shards in which all items have the fill value.
        is_sparse = MISSING_SHARDS in document.attributes
        self.may_lack_files = is_sparse or not own.is_own
        self._check = check
        self.renew()

    def renew(self) -> None:
        """Read the files that are there now, which another writer may have replaced."""
        self._source = self._files(self._check, sparse=self.may_lack_files)
        self.reader = Reader(self._source, self.dtype, self.shape)

    def shard_name(self, number: int) -> str:
        """Return the name of a shard, relative to the dataset."""
        return self.folder.full(self._sharding.names(number))

    def _files(self, check: Callable[[], object], *, sparse: bool) -> ShardFiles:
        # No methods of this object: a cycle would keep the files open.
        return ShardFiles(
            self.folder,
            self._sharding,
            partial(check_shape, self.folder, self.shape),
            check,
            is_foreign=True,
            sparse=sparse,
        )

    def new_array(self) -> NewArray:
        """Return what a copy of this array must be, apart from its attributes."""
        document = read_array_document(self.folder).array
        args = args_of(document)
        return NewArray(
            document.dtype,
            document.shape,
            document.grid.chunk,
            document.fill_value,
            settings={name: getattr(args, name) for name in SETTINGS},
            shards=document.grid.shard,
            dims=document.dimension_names,
        )

    def _stored_shards(self) -> list[int]:
        """Return the numbers of the shards that have a file: few, if it is sparse."""
        return [*self._sharding.names.stored(self.folder, MAX_NBYTES)]

    def read_attributes(self) -> JsonObject:
        """Return the attributes of the user."""
        array = read_array_document(self.folder).array
        stored = with_mask(array.attributes, array.dtype, decode_mask).items()
        return {name: value for name, value in stored if name not in OWN_ATTRIBUTES}

    # Writing

    @classmethod
    def grid_for(cls, new: NewArray) -> Grid:
        """Return how a new array is cut; raise `UsageError` if it can't be."""
        check_dtype(new)
        return new_grid(new)

    @classmethod
    def create(cls, change: Change, prefix: str, new: NewArray, blocks: Blocks) -> None:
        """Write a new array to the folder `prefix` of the dataset of `change`."""
        check_attributes(new.attrs, OWN_ATTRIBUTES, " of an array")
        document = _document_of(new)
        own = OwnDocument(document, Identity(column=new.column), True)
        own.encode()  # wrong attributes are an error before anything is written
        if prefix:
            change.make_folder(prefix.rstrip("/"))
        sharding = sharding_of(document, own.certain_identity)
        shards = ShardWriter(change, prefix, sharding, args_of(document))
        write_shards([shards], blocks)
        document.grid = document.grid.resized(new.shape)
        if len(shards.sizes) < document.grid.nshards:
            mark_sparse(document)
        change.stage(prefix + ZARR_JSON, own.encode())

    def check_writable(self) -> None:
        """Raise `UsageError` if this array can only be read."""
        super().check_writable()
        args_of(self._own.array).check()

    def stage_attributes(self, change: Change, values: JsonObject) -> None:
        """Let `change` replace all attributes."""
        check_attributes(values, OWN_ATTRIBUTES, " of an array")
        own = self._read_for_change()
        is_sparse = MISSING_SHARDS in own.array.attributes
        own.array.attributes = with_mask(values, self.dtype, encode_mask)
        if is_sparse:
            mark_sparse(own.array)
        change.stage(self.folder.full(ZARR_JSON), own.encode())

    def _read_for_change(self) -> OwnDocument:
        """Return the document that is in the file now, to be changed.

        If another program has written it, it gets an identity, and it gets the mark of
        a sparse array if rows are missing: they are no damage. Raises `FormatError` if
        its shards are those of several arrays, of which only one could be read then.
        """
        own = read_array_document(self.folder)
        if own.is_own:
            return own
        stored = self._stored_shards()
        # At a URL, each look at a file is a round trip: one shard stands for all.
        asked = stored[:1] if self.folder.is_remote else stored
        names = {name for number in asked if (name := self._identity_in(number))}
        if len(names) > 1:
            raise DamageError(
                "expected shards of one array, found those of '%s'"
                % "' and '".join(sorted(names)),
                section="metadata",
                filename=self.folder.path(SHARDS),
            )
        own.identity = own.identity or Identity()
        if not names and not self.folder.is_remote:
            # Another program may have copied the attributes of another array.
            own.identity = Identity(column=own.identity.column)
        for name in names:
            own.identity = Identity(name, own.identity.column)
        if not self._is_complete(stored):
            mark_sparse(own.array)
        return own

    def _read_of_same_shape(self) -> OwnDocument:
        """Return the document, of which the shape is to be changed.

        Raises `StorageError` if another program has changed the shape since: its rows
        would be lost.
        """
        own = self._read_for_change()
        if own.array.shape != self.shape:
            raise replaced(self.folder.path())
        return own

    def _identity_in(self, number: int) -> str:
        """Return the identity that a shard states; empty if it states none."""
        with suppress(FormatError, FileNotFoundError, NotADirectoryError):
            metadata = self._beginning_of(number).metadata
            return (place_of(metadata) or "").partition("/")[0]
        return ""

    def _beginning_of(self, number: int) -> Beginning:
        source = self._files(bool, sparse=False)
        storage = source.storage(source.names(number))
        return read_beginning(StorageCursor(storage))

    def stated_shards(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield the names and rows of the shards that state this array and place.

        If the document has lost its identity, any identity will do.
        """
        grid, identity = self.grid, self._own.identity
        for number in self._stored_shards():
            name = self._sharding.names(number)
            with suppress(FormatError, OSError):
                beginning = self._beginning_of(number)
                known, _, place = (place_of(beginning.metadata) or "").partition("/")
                if place == name and (identity is None or identity.name == known):
                    start = grid.corner(number * grid.slots)[0] if self.shape else 0
                    shape = Description(beginning.metadata).shape
                    yield name, (start, start + (shape or (1,))[0])

    def _is_complete(self, stored: list[int]) -> bool:
        """Return whether each shard has a file with all rows; `stored` have a file.

        At a URL, only the last shard is opened.
        """
        count = self.grid.nshards
        has_all = count == sum(number < count for number in stored)
        if not self.folder.lists or not has_all:
            return False
        source = self._files(bool, sparse=False)
        with suppress(FormatError):
            for number in range(count)[-1:] if self.folder.is_remote else range(count):
                source.file(number)
            return True
        return False

    def stage(
        self,
        change: Change,
        grid: Grid,
        blocks: Blocks,
        shape: Callable[[], Shape] | None = None,
        *,
        extends: bool,
    ) -> None:
        """Let `change` write chunks, and set the shape."""
        own = self._read_of_same_shape()
        assert own.identity is not None
        source = self._source  # another thread may call `renew`
        source.prepare_copies()
        own.array.grid = grid
        shards = ShardWriter(
            change,
            self.folder.prefix,
            sharding_of(own.array, own.identity.name),
            args_of(own.array),
            source,
            at_once=extends,
        )
        write_shards([shards], blocks)
        if shape is not None:
            own.array.grid = grid.resized(shape())
        if own.array.shape != self.shape or not own.is_own:
            marked = MISSING_SHARDS in own.array.attributes
            if not marked and self._lacks_shards(own.array.grid, shards):
                mark_sparse(own.array)
            self._stage_document(change, own)

    def _stage_document(self, change: Change, own: OwnDocument) -> None:
        name = self.folder.full(ZARR_JSON)
        change.stage(name, own.encode())
        own.is_own = True
        identity = change.staged_identity(name)
        self._staged = None if identity is None else (own, identity)

    def stage_length(self, change: Change, length: int) -> None:
        """Let `change` set the number of rows, all of which are in files already."""
        own = self._read_of_same_shape()
        own.array.grid = self.grid.resized((length, *self.shape[1:]))
        self._stage_document(change, own)

    def _lacks_shards(self, grid: Grid, written: ShardWriter) -> bool:
        """Return whether a shard with new items has no file, also not from before.

        Raises `FormatError` if a shard of old items has been lost: the new state would
        have the fill value in its place.
        """
        if len(written.sizes) >= grid.count_grown(self.shape):
            return False  # as after any append
        stored = set(self._stored_shards())
        for number in range(self.grid.nshards if not self.may_lack_files else 0):
            corner = self.grid.corner(number * self.grid.slots)
            if number not in stored and all(map(int.__lt__, corner, grid.shape)):
                self._source.file(number)  # raises the error: it is lost
        listed = map(shard_names(grid), self.shards_to_fill(grid))
        # A folder may have lost its last shard.
        exists = bool if self.folder.is_remote else self.folder.exists
        found = {self.folder.full(name) for name in listed if exists(name)}
        return len(found | set(written.sizes)) < grid.nshards

    def shards_to_fill(self, grid: Grid) -> Iterable[int]:
        """Return the numbers of the shards that must get the fill value as new items.

        These are shards that have a file: those at the old ends of the axes, and those
        that an interrupted append left. Other shards stay missing.
        """
        return shard_names(grid).stored(self.folder, grid.nshards)

    def committed(self, shape: Shape) -> None:
        """Take over the shape of a change that was committed."""
        self.close_files()
        staged, self._staged = self._staged, None
        check = DescriptionCheck(self.folder, ZARR_JSON)
        # An earlier change may have staged a document, and failed.
        if staged is None or staged[1] != check.identity:
            self._open()
        else:
            self._take(staged[0], check)


def sharding_of(document: ArrayDocument, identity: str | None) -> Sharding:
    """Return how an array is stored."""
    grid = document.grid
    return Sharding(
        *(document.dtype, grid, shard_names(grid), identity, document.fill_value)
    )


def shard_names(grid: Grid) -> FileNames:
    """Return the names of the shards of an array."""
    return FileNames(SHARDS, counts=tuple(max(1, n) for n in grid.counts))


def args_of(document: ArrayDocument) -> BloscArgs:
    """Return the settings of Blosc for new chunks."""
    settings = dict(document.blosc)
    blocksize = settings.pop("blocksize")
    if settings["cname"] not in CNAME_AVAIL:
        del settings["cname"]  # a chunk names its codec: any will do
    args = BloscArgs(**settings)
    args.blocksize = blocksize
    return args


def _document_of(new: NewArray) -> ArrayDocument:
    """Return the document of a new array; raise `UsageError` if there can't be one."""
    grid = ZarrArray.grid_for(new)
    new.check_settings(SETTINGS, ZarrArray.name)
    typesize = typesize_of(new.dtype)
    args = BloscArgs(**{"typesize": typesize, **new.usual_settings, **new.settings})
    args.check()
    document = ArrayDocument(
        new.dtype,
        grid,
        fill_value=new.fill_value,
        attributes=with_mask(new.attrs, new.dtype, encode_mask),
        dimension_names=new.dims,
        blosc={
            "typesize": typesize,
            "cname": args.cname,
            "clevel": args.clevel,
            "shuffle": int(args.shuffle),
            "blocksize": new.blocksize(args, grid),
        },
    )
    encode_fill_value(new.dtype, document.fill_value)
    return document


def check_dtype(new: NewArray) -> None:
    """Raise `UsageError` if no Zarr array has the dtype, and say which layouts do."""
    dtype = new.dtype
    if is_portable(dtype) and dtype.itemsize:
        encode_data_type(dtype)
        return
    from . import layouts_for

    others = layouts_for(new, without=ZarrArray.name)
    if others:
        hint = "these layouts can: %s" % ", ".join(map("'%s'".__mod__, others))
    elif dtype.names is not None:
        hint = "create a table, which has a column for each field"
    else:
        hint = "no other layout can either"
    raise UsageValueError(
        "the layout 'zarr' can't hold items of the dtype '%s', for which Zarr has no "
        "portable data type; %s" % (dtype, hint)
    )
