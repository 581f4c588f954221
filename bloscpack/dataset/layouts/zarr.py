"""The layout of Zarr format 3, with shards that are `.blp` files.

::

    ROOT/zarr.json    of an array: shape, data type, sizes of chunks and shards,
                      attributes; of a group: the attributes
    ROOT/c/0/0        a shard of an array, with its position along each axis
    ROOT/c/1/0        the next one; one that is missing has the fill value everywhere
    ROOT/NAME/…       a member of a group

A table is a group whose attribute ``column-order`` lists its columns: arrays of the
same length. ``zarr.json`` has the shape, and is replaced last: items that a shard has
outside of it do not count. A shard is never changed in place: other readers see the
old file or the new one. Each document of this package has an identity and a digest; a
document without them is one of another program, and a change of it takes over what that
program has written (docs/format.rst, Identities).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy

from ..._arrays.reader import PartReader
from ..._commit.change import Change
from ..._commit.objects import UNFINISHED
from ..._commit.writer import Writer
from ..._format.array_metadata import MAX_NBYTES, Description, is_whole
from ..._format.committed import PENDING, Root, missed_by_others, no_members
from ..._format.dtypes import shown
from ..._format.grid import Grid, Shape
from ..._format.identity import (
    CONSOLIDATED,
    KEY,
    MISSING_SHARDS,
    Identity,
    check_attributes,
    column_word,
    holder_of,
    identified,
    is_copy,
    read_identity,
    seems_signed,
    take_identity,
)
from ..._format.sections import read_beginning
from ..._format.shard import is_portable
from ..._format.text import TEXT
from ..._format.zarr_metadata import (
    COLUMN_ORDER,
    NEW_ITEMS,
    OWN,
    READ_OTHERWISE,
    ZARR_JSON,
    ArrayDocument,
    decode_array,
    decode_mask,
    encode_data_type,
    encode_fill_value,
    encode_json,
    encode_mask,
    group_document,
    is_unsharded,
    unlikely_item,
    why_not_native,
    with_mask,
    zero,
)
from ..._format.zip_format import MEMBERS
from ..._storage.cursor import StorageCursor
from ..._storage.folder_store import NoFileFound, StaleDataset
from ..._types import Json, JsonObject
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
from ...serializers import encode_document
from ..changed_blocks import NewState
from ..folder import Folder, Joined, check_member_name, is_member_name, rows_removed
from ..labels import ROW, stored_dims
from .array_files import FileNames, description_check
from .base import (
    ArrayLayout,
    Blocks,
    GroupLayout,
    NewArray,
    NewColumn,
    NewColumns,
    NodeLayout,
    TableLayout,
    are_names,
    wanted_fill,
)
from .chunk_choice import new_grid
from .shard_files import ShardFiles
from .shard_grid import Sharding, place_of
from .shard_writer import ShardWriter, write_shards

if TYPE_CHECKING:
    from . import Found

# Folder of the shards.
SHARDS = "c"
# The value of `MISSING_SHARDS`.
MISSING_READ_AS = "fill_value"
# Kinds of items that have no such value: a missing shard may be one that another
# program has left out.
ALL_LIKELY = "bmM"
# The attributes that users do not see, and their effect.
OF_DATASET = {KEY: "says which dataset it is", PENDING: "lists the files of a change"}
OF_ARRAYS = {MISSING_SHARDS: "says that some shards were never written", **OF_DATASET}
OF_GROUPS = {
    COLUMN_ORDER: "makes a group a table",
    **OF_DATASET,
    MEMBERS: "lists the members of an archive",
    UNFINISHED: "says that the group is not complete",
}
# What ``zarr_format`` has in drafts of the format.
DRAFT = "purl.org/zarr/spec/"
# Errors that leave the copies in a group: this user may not write it, or another group
# commits it.
KEEPS = PermissionError, Joined
# Settings of Blosc that users can choose.
SETTINGS = ("cname", "clevel", "shuffle")


# Documents


def detect(folder: Folder) -> str | None:
    """Return the kind of a folder; None if it has no document of Zarr format 3.

    It is empty if the dataset is not complete.
    """
    try:
        content, document = folder.read_document(ZARR_JSON)
        node = _seen_node(folder, content, document)
        kind = node.kind
        if kind == "array" and not node.is_own and why_not_native(document):
            # A program may have copied the attributes of one of our arrays.
            is_copied = is_unsharded(document) or not seems_signed(content)
            kind = "" if is_copied else kind
    except FormatError:  # the error of opening it is better
        return "group"
    except (FileNotFoundError, NotADirectoryError):
        return None
    if kind == "group" and UNFINISHED in node.attributes:
        return ""
    return kind or None  # for another layout


@dataclass(eq=False)
class NodeDocument:
    """The document of a node, which nothing may change: all that read it have it.

    Attributes
    ----------
    kind
        ``'array'``, ``'table'`` or ``'group'``.
    document, attributes
        The document and the attributes in it, without the identity and the list of an
        archive.
    identity
        The identity in it, which is uncertain unless `is_own`; None if there is none.
    is_own
        Whether the digest is right: no other program has changed the document.
    array
        The document of an array, if `read_array_document` has read it.
    """

    kind: str
    document: JsonObject
    attributes: JsonObject
    identity: Identity | None
    is_own: bool
    array: ArrayDocument = field(init=False)

    @property
    def name(self) -> str:
        """The name in the identity; empty if another program may have written it."""
        return self.identity.name if self.identity and self.is_own else ""

    def encode_array(self) -> bytes:
        """Return the content of the file of an array."""
        return encode_node(self.array.document(), self.identity)


def read_node(folder: Folder) -> NodeDocument:
    """Return the document that is in the file now, which nothing may change.

    Raises `StaleDataset` if the folder has lost the dataset that was opened in it.
    """
    try:
        node = _seen_node(folder, *folder.read_document(ZARR_JSON))
    except FileNotFoundError:
        if folder.node == ("", ""):
            raise
    else:
        kind, name = folder.node
        if kind in ("", node.kind) and (name == node.name or "" in (name, node.name)):
            return node
    raise StaleDataset(folder.path())


def _seen_node(folder: Folder, content: bytes, value: Json) -> NodeDocument:
    """Return `decode_node` of a document, which nothing may change.

    The last one is kept: a document is looked at to find out what it is, and opened.
    """
    root = folder.tree.state.root
    seen = root.seen
    if seen[0] is not value:
        seen = root.seen = value, decode_node(folder, content, value)
    node: NodeDocument = seen[1]
    return node


def decode_node(folder: Folder, content: bytes, value: Json) -> NodeDocument:
    """Return the document of a node; raise `FormatError` for any other.

    A document that was never signed may be one of another format, and no damage.
    """
    wrong, is_other = None if isinstance(value, dict) else shown(value), False
    members = value if isinstance(value, dict) else {}
    kind, attributes = members.get("node_type"), members.get("attributes", {})
    for name, is_right, may_be_other in (
        ("zarr_format", is_whole(members.get("zarr_format"), 3, 3), True),
        ("node_type", kind in ("array", "group"), isinstance(kind, str)),
        ("attributes", isinstance(attributes, dict), False),
    ):
        if wrong is None and not is_right:
            wrong = "'%s': %s" % (name, shown(members.get(name, "nothing")))
            is_other = may_be_other and name in members and not seems_signed(content)
    if wrong is not None:
        wrong += ", as in an early draft of the format" if DRAFT in wrong else ""
        message = "expected the document of a Zarr node of format 3, found %s" % wrong
        raise (Unsupported if is_other else DamageError)(
            message, section="metadata", filename=folder.path(ZARR_JSON)
        )
    document, stored = take_identity(value)
    attributes = document["attributes"]
    attributes.pop(MEMBERS, None)  # a document that is changed lists no members
    attributes.pop(PENDING, None)
    identity, is_own = read_identity(content, stored)
    if not is_own:
        document.pop(CONSOLIDATED, None)
    kind = "table" if kind == "group" and COLUMN_ORDER in attributes else str(kind)
    return NodeDocument(kind, document, attributes, identity, is_own)


def encode_node(document: JsonObject, identity: Identity | None = None) -> bytes:
    """Return the content of ``zarr.json``, with this identity or a new one."""
    key = holder_of(document)
    return identified(document, identity or Identity(), encode_json, key=key)


def read_array_document(folder: Folder) -> NodeDocument:
    """Return the document of an array that is in its file now; see `read_node`."""
    node = read_node(folder)
    try:
        if not hasattr(node, "array"):
            node.array = decode_array(node.document)
        return node
    except FormatError as error:
        text, path = str(error), error.filename or folder.path(ZARR_JSON)
        error.filename = path
        is_damage = not isinstance(error, Unsupported)
        content = folder.read_document(ZARR_JSON)[0]
        if is_damage or node.is_own or not seems_signed(content):
            raise
        reason = text.removesuffix(READ_OTHERWISE)  # it might be damaged
        raise DamageError(
            "the digest in '%s' is wrong, so it is damaged or another program has "
            "changed it (then remove this key): %s" % (KEY, reason),
            section="metadata",
            filename=path,
        ) from error


def is_stored_alike(one: NodeDocument, other: NodeDocument) -> bool:
    """Return whether two documents are of the same array, with items stored alike.

    An identity that a change has given to the array since, or that another program has
    dropped, counts as the same.
    """
    names = {own.identity.name for own in (one, other) if own.identity is not None}
    return len(names) < 2 and _storage_of(one.array) == _storage_of(other.array)


def _storage_of(array: ArrayDocument) -> tuple[object, ...]:
    fill, dtype = array.fill_value, array.dtype
    stored = fill if dtype == TEXT else numpy.array(fill, dtype).tobytes()
    return dtype, array.grid.chunk, array.grid.per_shard, stored


def check_present(
    folder: Folder,
    known: NodeDocument,
    shape: Shape,
    is_member: bool,
    stops: Sequence[int] | None = None,
) -> None:
    """Raise `StorageError` if an array has lost rows, or another one is in its place.

    Only rows before `stops` count, if that is given.

    In a folder `description_check` compares them; at a URL, the document is read again
    for it. Raises `Joined` if a group commits an array that was not `is_member` before.
    """
    try:
        if folder.is_remote:
            folder.tree.read()
        own = read_array_document(folder)
    except (FormatError, FileNotFoundError) as error:
        if not folder.is_remote:
            raise
        raise StaleDataset(folder.path()) from error
    if folder.is_remote and not is_stored_alike(known, own):
        raise StaleDataset(folder.path())
    if any(map(int.__lt__, own.array.grid.shape, stops or shape)):
        raise rows_removed(folder.path())
    if not is_member and folder.tree.state.is_committed_around:
        raise Joined(folder.path())


def mark_sparse(document: ArrayDocument) -> None:
    """Note in the document that some shards are missing because none was written."""
    own = {**document.others[OWN], MISSING_SHARDS: MISSING_READ_AS}
    document.others = {**document.others, OWN: own}


# Arrays


class ZarrArray(ArrayLayout):
    """An array of Zarr format 3."""

    name = "zarr"
    sparse = True
    cuts_all_axes = True
    has_dims = True
    has_text = True
    may_wait = True
    description_files = (ZARR_JSON,)
    _source: ShardFiles

    def __init__(self, folder: Folder, *, allow_pickle: bool = False) -> None:
        self.folder = folder
        self.waiting = {}
        self._open()

    def _open(self) -> None:
        """Take over the document in the file, and read the files of this state."""
        folder, seen = self.folder, self.folder.seen(ZARR_JSON, looks=False)
        own = read_array_document(folder)
        certain = own.identity if own.is_own else None
        folder.node = self.kind, "" if certain is None else certain.name
        document, self._own = own.array, own
        # Without this object: a cycle would keep the files open.
        self._check = description_check(
            *(folder, ZARR_JSON, seen),
            lambda: is_stored_alike(own, read_array_document(folder)),
        )
        self.changed_elsewhere = not own.is_own
        # A checksum of the name, if this was made as a column of a table.
        self.column_word = None if certain is None else certain.column
        self.is_column = self.column_word is not None if own.is_own else None
        self.dtype, self.shape = document.dtype, document.grid.shape
        self.stored_dims = document.dimension_names
        self.fill_value = document.new_items
        self.grid = document.grid
        self.chunks, self.shards = self.grid.chunk, self.grid.shard
        self._sharding = sharding_of(document, certain)
        # Other programs leave out shards in which all items have the fill value.
        is_sparse = MISSING_SHARDS in document.others[OWN]
        self.may_lack_files = is_sparse or not own.is_own
        self.leaves_out = NEW_ITEMS not in document.others[OWN]
        is_member = folder.tree.state.is_committed_around
        self._check_present = partial(check_present, folder, own, self.shape, is_member)
        self.renew()

    @property
    def asks_fill(self) -> bool:
        """Whether the fill value is in the document, for other programs, too."""
        stored = encode_fill_value(self.dtype, self.missing_value)
        return bool(stored == encode_fill_value(self.dtype, self.fill_value))

    @property
    def missing_value(self) -> Any:
        """The value of items that no file has."""
        return self._own.array.fill_value

    def renew(self) -> None:
        """Read the files that are there now, which another writer may have replaced."""
        self._source = self._files(self._check, sparse=self.may_lack_files)
        self.reader = PartReader(self._source, self.dtype, self.shape)

    def prepare_copies(self) -> None:
        self._source.prepare_copies()

    def is_same(self, other: NodeLayout) -> bool:
        """Return whether another object is the same array in another state."""
        assert isinstance(other, ZarrArray)
        return is_stored_alike(self._own, other._own)

    def shard_name(self, number: int) -> str:
        """Return the name of a shard, relative to the dataset."""
        return self.folder.full(self._sharding.names(number))

    def _files(self, check: Callable[[], object], *, sparse: bool) -> ShardFiles:
        # No methods of this object: a cycle would keep the files open.
        return ShardFiles(
            self.folder,
            self._sharding,
            self._check_present,
            check,
            is_foreign=True,
            sparse=sparse,
            waiting=self.waiting,
        )

    def new_array(self) -> NewArray:
        """Return what a copy of this array must be, apart from its attributes."""
        document = self._own.array
        args = args_of(document)
        return NewArray(
            *(self.dtype, self.shape, self.chunks, wanted_fill(self)),
            settings={name: getattr(args, name) for name in SETTINGS},
            shards=self.shards,
            dims=document.dimension_names,
        )

    def _stored_shards(self) -> list[int]:
        """Return the numbers of the shards that have a file: few, if it is sparse."""
        return [*self._sharding.names.stored(self.folder, MAX_NBYTES)]

    def read_attributes(self, change: Change | None = None) -> JsonObject:
        """Return the attributes of the user, now or as a change leaves them."""
        if change is None:
            self.folder.renew()
        folder = self.folder if change is None else self.folder.within(change)
        array = read_array_document(folder).array
        return deepcopy(with_mask(array.attributes, array.dtype, decode_mask))

    # Writing

    @classmethod
    def grid_for(cls, new: NewArray) -> Grid:
        """Return how a new array is cut; raise `UsageError` if it can't be."""
        check_dtype(new)
        return new_grid(new)

    @classmethod
    def create(cls, change: Change, prefix: str, new: NewArray, blocks: Blocks) -> None:
        """Write a new array to the folder `prefix` of the dataset of `change`."""
        check_attributes(new.attrs, OF_ARRAYS, " of an array")
        document = _document_of(new)
        identity = _member_identity(prefix)
        # Wrong attributes are an error before anything is written.
        content, shape = encode_node(document.document(), identity), document.grid.shape
        if prefix:
            change.make_folder(prefix.rstrip("/"))
        sharding = sharding_of(document, identity)
        shards = ShardWriter(
            *(change, prefix, sharding, args_of(document)), leaves_out=new.sparse
        )
        write_shards([shards], blocks)
        document.grid = document.grid.resized(new.shape)
        is_sparse = len(shards.sizes) < document.grid.nshards
        if is_sparse:
            mark_sparse(document)
        if is_sparse or document.grid.shape != shape:
            content = encode_node(document.document(), identity)
        change.stage(prefix + ZARR_JSON, content)

    def check_writable(self) -> None:
        """Raise `UsageError` if this array can only be read."""
        super().check_writable()
        args_of(self._own.array).check()

    def stage_attributes(self, change: Change, values: JsonObject) -> None:
        """Let `change` replace all attributes."""
        check_attributes(values, OF_ARRAYS, " of an array")
        own = self._read_for_change(self.folder.within(change))
        own.array.attributes = with_mask(values, self.dtype, encode_mask)
        change.stage(self.folder.full(ZARR_JSON), own.encode_array())

    def _read_for_change(self, folder: Folder) -> NodeDocument:
        """Return the document that is in a folder, `self.folder.within(change)`.

        If another program has written it, it gets an identity, and it gets the mark of
        a sparse array if rows are missing: they are no damage. Raises `FormatError` if
        its shards are those of several arrays, of which only one could be read then.
        """
        own = copy(read_array_document(folder))  # which is changed
        own.array = copy(own.array)
        own.identity = _member_identity(self.folder.prefix, own.identity)
        if own.is_own:
            return own
        stored = self._stored_shards()
        # At a URL, each look at a file is a round trip: one shard stands for all.
        asked = stored[:1] if self.folder.is_remote else stored
        names = {name for number in asked if (name := self._stated_by(number)[0])}
        if len(names) > 1:
            text = "expected shards of one array, found those of '%s'"
            raise self.folder.damage(text % "' and '".join(sorted(names)), SHARDS)
        if names or not self.folder.is_remote:
            # Another program may have copied the attributes of another array.
            name = names.pop() if names else Identity().name
            own.identity = replace(own.identity, name=name)
        count = self.grid.nshards
        has_all = count == sum(n < count for n in stored)
        is_complete = self.folder.store.lists and has_all
        numbers = range(count)[-1:] if self.folder.is_remote else range(count)
        source = self._files(bool, sparse=False)
        try:  # each shard must have all its rows
            for number in numbers if is_complete else ():
                source.file(number)
        except FormatError:
            is_complete = False
        if not is_complete:
            mark_sparse(own.array)
        return own

    def _read_of_same_shape(self, change: Change) -> NodeDocument:
        """Return the document, of which the shape is to be changed.

        Raises `StorageError` if another program has changed the shape since: its rows
        would be lost.
        """
        own = self._read_for_change(self.folder.within(change))
        if own.array.grid.shape != self.shape:
            raise StorageError(
                errno.ESTALE,
                "another program has changed its shape from %s to %s: open the dataset "
                "again" % (self.shape, own.array.grid.shape),
                self.folder.path(),
            )
        return own

    def _stated_by(self, number: int) -> tuple[str, str, Json]:
        """Return the identity and the name that a shard states, and its metadata.

        They are empty if it states none, or if there is no such shard.
        """
        source = self._files(bool, sparse=False)
        with suppress(FormatError, FileNotFoundError, NotADirectoryError):
            storage = source.storage(source.names(number))
            metadata = read_beginning(StorageCursor(storage)).metadata
            identity, _, name = (place_of(metadata) or "").partition("/")
            return identity, name, metadata
        return "", "", None

    def stated_shards(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield the names and rows of the shards that state this array and place.

        If the document has lost its identity, any identity will do.
        """
        grid, identity = self.grid, self._own.identity
        for number in self._stored_shards():
            name = self._sharding.names(number)
            with suppress(FormatError, OSError):
                known, place, metadata = self._stated_by(number)
                if place == name and (identity is None or identity.name == known):
                    start = grid.corner(number * grid.slots)[0] if self.shape else 0
                    shape = Description(metadata).shape
                    yield name, (start, start + (shape or (1,))[0])

    def stage(self, change: Change, new: NewState) -> None:
        """Let `change` write chunks, and set the shape."""
        own = self._read_of_same_shape(change)
        source = self._source  # another thread may call `renew`
        source.prepare_copies()
        own.array.grid, prefix = new.grid, self.folder.prefix
        at_once = new.extends and prefix not in change.disturbed
        shards = ShardWriter(
            change,
            prefix,
            sharding_of(own.array, own.identity),
            args_of(own.array),
            source,
            at_once=at_once,
            leaves_out=self.leaves_out and MISSING_SHARDS in own.array.others[OWN],
        )
        write_shards([shards], new.blocks)
        if new.shape is not None:
            own.array.grid = new.grid.resized(new.shape())
        if not new.extends or any(map(int.__lt__, own.array.grid.shape, self.shape)):
            change.disturbed.add(prefix)
        if own.array.grid.shape != self.shape or not own.is_own:
            marked = MISSING_SHARDS in own.array.others[OWN]
            if not marked and self._lacks_shards(own.array.grid, shards):
                mark_sparse(own.array)
            change.stage(self.folder.full(ZARR_JSON), own.encode_array())

    def stage_length(self, change: Change, length: int) -> None:
        """Let `change` set the number of rows, all of which are in files already."""
        own = self._read_of_same_shape(change)
        own.array.grid = self.grid.resized((length, *self.shape[1:]))
        change.stage(self.folder.full(ZARR_JSON), own.encode_array())

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
        present = {self.folder.full(name) for name in listed if exists(name)}
        return len(present | set(written.sizes)) < grid.nshards

    def shards_to_fill(self, grid: Grid) -> Iterable[int]:
        """Return the numbers of the shards that must get the fill value as new items.

        In an array that is created from a shape, these are shards that have a file:
        those at the old ends of the axes, and those that an interrupted append left.
        Other shards stay missing.
        """
        if not self.leaves_out:
            numbers = super().shards_to_fill(grid)
            is_longer = grid.shape[1:] == self.shape[1:]
            return numbers if is_longer else range(grid.nshards)
        return shard_names(grid).stored(self.folder, grid.nshards)

    def committed(self, shape: Shape) -> None:
        """Take over the shape of a change that was committed."""
        self.close_files()
        self._open()


def sharding_of(document: ArrayDocument, identity: Identity | None) -> Sharding:
    """Return how an array is stored."""
    grid, known = document.grid, None if identity is None else identity.name
    return Sharding(
        *(document.dtype, grid, shard_names(grid), known, document.fill_value)
    )


def shard_names(grid: Grid) -> FileNames:
    """Return the names of the shards of an array."""
    return FileNames(SHARDS, counts=tuple([max(1, n) for n in grid.counts]))


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
    fill = zero(new.dtype) if new.fill_value is None else new.fill_value
    stored: Json = encode_fill_value(new.dtype, fill)
    # Other programs leave out what has the fill value: it is better if no data have it.
    unlikely = unlikely_item(new.dtype)
    is_likely = new.dtype.kind in ALL_LIKELY
    if new.asks_fill:
        is_likely = is_likely or stored != encode_fill_value(new.dtype, unlikely)
        unlikely = fill
    document = ArrayDocument(
        new.dtype,
        grid,
        fill_value=fill if new.sparse else unlikely,
        attributes=with_mask(new.attrs, new.dtype, encode_mask),
        dimension_names=new.dims,
        blosc={
            "typesize": typesize,
            "cname": args.cname,
            "clevel": args.clevel,
            "shuffle": int(args.shuffle),
            "blocksize": new.blocksize(args, grid),
        },
        others={OWN: {"must_understand": False}},
    )
    if not new.sparse:
        document.others[OWN][NEW_ITEMS] = stored
        if is_likely:
            mark_sparse(document)
    return document


def check_dtype(new: NewArray) -> None:
    """Raise `UsageError` if no Zarr array has the dtype, and say which layouts do."""
    dtype = new.dtype
    if dtype == TEXT or (is_portable(dtype) and dtype.itemsize):
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


# Groups and tables


def stage_document(change: Change, folder: Folder, attributes: JsonObject) -> None:
    """Let `change` replace the attributes of a group, those of Bloscpack included.

    The document of a table gets the documents of its columns if it has none, as after
    another program has written it.
    """
    node = read_node(folder.within(change))
    document = {**node.document, "attributes": attributes}
    if CONSOLIDATED in document:
        document[CONSOLIDATED] = no_members()  # the commit puts the present ones there
    is_root = not folder.prefix
    if is_root and COLUMN_ORDER in attributes and CONSOLIDATED not in document:
        document[CONSOLIDATED] = no_members()
        for name in attributes[COLUMN_ORDER]:
            with suppress(FileNotFoundError):  # of a column that is going to be written
                _stage_column(change, folder.child(name), name)
    identity = _member_identity(folder.prefix, node.identity)
    change.stage(folder.full(ZARR_JSON), encode_node(document, identity))


def _stage_column(change: Change, folder: Folder, full: str) -> None:
    """Let `change` commit the document of a column, which it signs if it can."""
    content = folder.read_document(ZARR_JSON)[0]
    with suppress(FormatError):
        content = ZarrArray(folder)._read_for_change(folder).encode_array()
    change.stage(full + "/" + ZARR_JSON, content)


def prepare(
    folder: Folder, writer_of: Callable[[Folder], Writer], change: Change | None = None
) -> None:
    """Prepare the first change of a node, which has locked it.

    The copies of documents that another program has made are removed, also from the
    groups around: readers would take a copy for the document of the node that changes.
    Only nodes with copies are written, and of those around only groups whose documents
    are to be trusted (`Folder.is_trusted`). Without a `change`, the node gets a new
    member.
    """
    while True:
        try:
            content, value = folder.read_document(ZARR_JSON)
            node = _seen_node(folder, content, value)
        except (FormatError, FileNotFoundError, NotADirectoryError, NoFileFound):
            return  # not in a group of Zarr
        has_copies = value.get(CONSOLIDATED) is not None
        if has_copies and CONSOLIDATED not in node.document:
            if change is not None:
                stage_document(change, folder, node.attributes)
            else:
                with suppress(*KEEPS), writer_of(folder).change() as own:
                    # Another writer may have changed the attributes until now.
                    stage_document(own, folder, read_node(folder).attributes)
        elif change is not None:
            copies = node.document.get(CONSOLIDATED, {}).get("metadata", {})
            gets_copies = COLUMN_ORDER in node.attributes and not has_copies
            if gets_copies or missed_by_others(copies):
                stage_document(change, folder, node.attributes)
        change, outer = None, folder.around()
        if outer is None:
            return
        folder = outer[0]
        # Most often there is no document, and no owner has to be looked up.
        if not (folder.is_remote or (folder.exists(ZARR_JSON) and folder.is_trusted)):
            return


def unite(
    change: Change, folder: Folder, hold: Callable[[Found], object], only: str = ""
) -> None:
    """Let the document of a group commit all that is in it from now on.

    `hold` keeps other writers away from a member until the change is made. With `only`,
    the name of a member, the document commits that, and all other ones already.
    """
    from . import find_member, find_members

    if not only:
        node = read_node(folder)
        document: JsonObject = {**node.document, CONSOLIDATED: no_members()}
        change.stage(ZARR_JSON, encode_node(document, node.identity))
    groups = [(folder.prefix, folder)]
    for prefix, group in groups:
        found: Found | None
        for name, found in find_members(group):
            if only and only != name and group is folder:
                continue
            # A member of its own may be replaced until it is held.
            while found and found.layout == "zarr" and not found.folder.prefix:
                try:
                    hold(found)
                    break
                except StaleDataset:
                    found = find_member(group, name)
            if found is None:
                continue
            full, inner = prefix + name, found.folder
            # Other programs see the copies only; those of format 2 are not theirs.
            if found.layout == "zarr-python" and inner.exists(ZARR_JSON):
                change.stage(full + "/" + ZARR_JSON, inner.read(ZARR_JSON))
            if found.layout != "zarr":
                continue
            if found.kind == "array":
                own = ZarrArray(inner)._read_for_change(inner)
                own.identity = _member_identity(full, own.identity)
                change.stage(full + "/" + ZARR_JSON, own.encode_array())
                continue
            node = read_node(inner)
            document = {**node.document}
            document.pop(CONSOLIDATED, None)
            if found.kind == "table" and inner.is_remote:
                # If the rest is never written, readers use no copies of columns.
                content = encode_node(document, node.identity)
                change.write(full + "/" + ZARR_JSON, content)
            elif inner.is_remote and inner.read_object(ZARR_JSON).get(CONSOLIDATED):
                change.outdated.append(full + "/" + ZARR_JSON)
            content = encode_node(document, _member_identity(full, node.identity))
            change.stage(full + "/" + ZARR_JSON, content)
            for column in node.attributes.get(COLUMN_ORDER, ()):
                _stage_column(change, inner.child(column), full + "/" + column)
            if found.kind == "group":
                groups.append((full + "/", inner))


def release(change: Change, folder: Folder) -> None:
    """Let a member of a group commit itself, and its own members, from now on.

    A document that is damaged, or that another program has written, stays; the member
    may have been removed or replaced meanwhile.
    """
    prefix, content = folder.prefix, None
    with suppress(FormatError, FileNotFoundError, NotADirectoryError):
        stored, value = folder.read_document(ZARR_JSON)
        if is_copy(stored, value):
            node = decode_node(folder, stored, value)
            if node.kind != "array":
                node.document[CONSOLIDATED] = no_members()
            identity = replace(node.identity or Identity(), column=None)
            inside = {
                path.removeprefix(prefix): encode_document(member, 2)
                for path, member in (folder.tree.state.members or {}).items()
                if path.startswith(prefix)
            }
            content = Root(encode_node(node.document, identity)).changed(inside).content
    change.release_member(prefix[:-1], content)


def _member_identity(full: str, identity: Identity | None = None) -> Identity:
    """Return the identity of a member, which says that a group commits it.

    That of the dataset itself, whose path is empty, does not.
    """
    name = full.strip("/").rpartition("/")[2]
    return replace(identity or Identity(), column=column_word(name) if name else None)


class ZarrNode(NodeLayout):
    """A group or a table, with the attributes of users in its document."""

    name = "zarr"
    description_files = (ZARR_JSON,)

    def read_attributes(self, change: Change | None = None) -> JsonObject:
        """Return the attributes of the user, now or as a change leaves them."""
        folder = self.folder if change is None else self.folder.within(change)
        attributes = deepcopy(read_node(folder).attributes)  # the user may change them
        attributes.pop(COLUMN_ORDER, None)
        return attributes

    def stage_attributes(self, change: Change, values: JsonObject) -> None:
        """Let `change` replace all attributes of the user."""
        check_attributes(values, OF_GROUPS)
        order = {COLUMN_ORDER: [*self.columns]} if isinstance(self, ZarrTable) else {}
        stage_document(change, self.folder, {**order, **values})


class ZarrGroup(ZarrNode, GroupLayout):
    """A group of Zarr."""

    def __init__(self, folder: Folder, *, allow_pickle: bool = False) -> None:
        self.folder = folder
        node = read_node(folder)
        if node.kind == "array":
            message = "expected the document of a group, found one of an array"
            raise folder.damage(message, ZARR_JSON)
        folder.node, self.changed_elsewhere = (self.kind, node.name), not node.is_own

    @classmethod
    def create(
        cls,
        change: Change,
        attrs: JsonObject,
        prefix: str = "",
        *,
        commits: bool = False,
    ) -> None:
        """Write a new group without members to the folder `prefix` of `change`.

        `commits` says that its document commits what is in it.
        """
        check_attributes(attrs, OF_GROUPS)
        document = group_document(attrs)
        if commits:
            document[CONSOLIDATED] = no_members()
        content = encode_node(document, _member_identity(prefix))
        if prefix:
            change.make_folder(prefix[:-1])
        change.stage(prefix + ZARR_JSON, content)


class ZarrTable(ZarrNode, TableLayout):
    """A group of Zarr whose members are the columns of a table."""

    array_class = ZarrArray

    def __init__(self, folder: Folder, *, allow_pickle: bool = False) -> None:
        self.folder = folder
        node = read_node(folder)
        self.changed_elsewhere = not node.is_own
        names = node.attributes.get(COLUMN_ORDER)
        if not are_names(names, is_member_name):
            message = "expected '%s' to be different names of members, found %s"
            raise folder.damage(message % (COLUMN_ORDER, shown(names)), ZARR_JSON)
        self.columns = self.open_columns({name: name for name in names})
        folder.node = self.kind, node.name
        self.identity = node.identity

    def _open_column(self, name: str, column_prefix: str) -> ArrayLayout:
        column = super()._open_column(name, column_prefix)
        assert isinstance(column, ZarrArray)
        if column.column_word not in (None, column_word(name)):
            message = "expected the document of the member '%s', found one of another"
            raise column.folder.damage(message % name, ZARR_JSON)
        if not column.shape:
            message = "expected a column of rows, found an array without axes"
            raise column.folder.damage(message, ZARR_JSON)
        return column

    def is_same(self, other: NodeLayout) -> bool:
        """Return whether another object is the same table, perhaps of other columns."""
        assert isinstance(other, ZarrTable)
        if self.identity is not None and other.identity is not None:
            return self.identity.name == other.identity.name
        return super().is_same(other)

    # Writing

    @classmethod
    def create(
        cls, change: Change, columns: NewColumns, attrs: JsonObject, prefix: str = ""
    ) -> None:
        """Write a new table to the folder `prefix` of the dataset of `change`."""
        check_attributes(attrs, OF_GROUPS)
        document = group_document({COLUMN_ORDER: list(columns), **attrs})
        if not prefix:
            document[CONSOLIDATED] = no_members()
        content = encode_node(document, _member_identity(prefix))
        # A wrong name is an error before anything is written.
        for folder in (prefix[:-1], *(prefix + name for name in columns)):
            if folder:
                change.make_folder(folder)
        for name, (new, blocks) in columns.items():
            prepare_column(name, new)
            cls.array_class.create(change, prefix + name + "/", new, blocks)
        change.stage(prefix + ZARR_JSON, content)

    @classmethod
    def check_column_name(cls, name: str) -> None:
        """Raise `UsageError` unless a member of a group can have the name."""
        check_member_name("column", name)

    def create_column(self, change: Change, name: str, column: NewColumn) -> None:
        """Write a column, which the table does not have before `stage_columns`."""
        rows = next((c.stored_dims or [None])[0] for c in self.columns.values())
        column[0].dims = [rows, *(column[0].dims or [None])[1:]]
        prepare_column(name, column[0])
        full = self.folder.full(name)
        if not change.make_room(full):
            self.remove_leftover(name, str)
            change.new_folders.add(full)
        self.array_class.create(change, full + "/", *column)

    def stage_columns(self, change: Change, names: list[str]) -> None:
        """Let `change` set the columns and their order.

        A column that is removed loses its document: readers that don't know of
        `COLUMN_ORDER` must not find it either.
        """
        attributes = {COLUMN_ORDER: names, **self.read_attributes(change)}
        stage_document(change, self.folder, attributes)
        for name in set(self.columns) - set(names):
            change.remove_member(self.folder.full(name))


def prepare_column(name: str, new: NewArray) -> None:
    """Let a new array be a column: with names of axes, and its identity.

    xarray needs a name for each axis, and the same length of all axes of that name.
    """
    new.dims = stored_dims(name, len(new.shape), new.dims or [ROW])
