"""The layout ``superchunk``, the one that Bloscpack's header was designed for.

::

    ROOT/meta/sizes             shape, plain and compressed size
    ROOT/meta/storage           dtype, sizes of chunks and files, settings of Blosc
    ROOT/meta/attributes        attributes of users
    ROOT/meta/columns           attributes of the columns of a table
    ROOT/data/__1__.bin …       superchunks: files of chunks, each a `.blp` file
    ROOT/data/FIELD/__1__.bin   the same for an item with fields, nested to any depth

``meta/sizes`` has the number of rows, and is replaced last (docs/format.rst,
Superchunks).

Items with fields, read from the files of their leaves (see `superchunk`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy

from ..._engine.blosc_settings import own_settings
from ..._engine.threads import for_each
from ..._file.array_reader import ArrayReader
from ..._file.indexing import ArrayIndex, PositionList, Steps
from ..._format.array_metadata import MAX_NBYTES
from ..._format.dtypes import DType, refuse
from ..._loop import effective_nthreads
from ..._storage.base import naming_errors
from ...exceptions import FormatError, UsageError, UsageValueError
from ..change import Change
from ..folder import MAX_JSON, Folder, encode_attributes, encode_json
from .array_files import DescriptionCheck, allocate_checked
from .base import ArrayLayout, FieldChunks, NewArray, NodeLayout
from .identity import KEY, Identity, check_identity, identified
from .shard_files import ShardFiles
from .shard_writer import ShardWriter, write_shards
from .superchunk_documents import (
    DATA,
    VERSION,
    Leaf,
    Storage,
    decode_storage,
    new_storage,
    with_spare,
)

if TYPE_CHECKING:
    from ..._file.array_reader import Allocate, ArrayReader
    from ...serializers import JsonObject
    from .base import Blocks, Length

    # Rows of the result and their positions; a leaf, its reader and its further axes.
    Task = tuple[
        tuple[slice, Steps | PositionList], tuple[Leaf, ArrayReader, Sequence[Steps]]
    ]

META = "meta"
STORAGE = "meta/storage"
SIZES = "meta/sizes"
ATTRIBUTES = "meta/attributes"
COLUMNS = "meta/columns"
# Words of the description: one of them remains if the other is damaged.
WORDS = b'"superchunk"', b'"superchunklen"'
TABLE = re.compile(rb'"kind"\s*:\s*"table"')


def detect(folder: Folder) -> str | None:
    """Return ``'array'`` or ``'table'``; None for a folder of another layout."""
    if not folder.exists(STORAGE):
        return None
    with suppress(FileNotFoundError):
        try:
            content = folder.detect_document(STORAGE)[0]
        except FormatError:  # also in a damaged document
            content = folder.read(STORAGE, MAX_JSON)
        if any(word in content for word in WORDS):
            return "table" if TABLE.search(content) else "array"
    return None


# Values in the files


def read_storage(folder: Folder, kind: str | None = None) -> JsonObject:
    """Return the description of a dataset, whose `KEY` is its identity.

    `kind` and version are checked if `kind` is given.
    """
    stored = Documents(folder, None).read(STORAGE)
    if kind is None:
        return stored
    if stored.get("superchunk") != VERSION:
        raise UsageError(
            "this version reads superchunks of version '%d', found '%.200s': '%s'"
            % (VERSION, stored.get("superchunk"), folder.path(STORAGE))
        )
    if stored.get("kind") != kind:
        refuse("'kind' to be '%s'" % kind, stored.get("kind"))
    return stored


class Documents:
    """The documents of a dataset, which state its identity, if it has one."""

    def __init__(self, folder: Folder, identity: str | None) -> None:
        self.folder = folder
        self.identity = identity

    def read(self, name: str) -> JsonObject:
        """Return the object in a document.

        Raises `FormatError` if the file is missing, damaged, or not of this dataset.
        """
        is_first = name == STORAGE
        check = partial(check_identity, expected=self.identity, is_first=is_first)
        with naming_errors(self.folder.path(name)):
            return self.folder.read_description(name, check)

    def encode(self, document: JsonObject) -> bytes:
        """Return the content of a document."""
        if self.identity is None:
            return encode_json(document)
        return identified(document, Identity(self.identity), encode_json)

    def read_attributes(self, name: str = ATTRIBUTES) -> JsonObject:
        """Return the attributes in a document.

        In a dataset without identity it may be missing, and is the attributes itself.
        """
        if self.identity is None:
            return self.read(name) if self.folder.exists(name) else {}
        found = self.read(name).get(name.rpartition("/")[2])
        if not isinstance(found, dict):
            refuse("the attributes", found)
        return found

    def encode_attributes(self, values: JsonObject, name: str = ATTRIBUTES) -> bytes:
        """Return the content of a document of attributes."""
        content = encode_attributes(values)  # raises the errors
        if self.identity is None:
            return content
        return self.encode({name.rpartition("/")[2]: values})

    def read_length(self, inner: tuple[int, ...] = ()) -> int:
        """Return the number of rows, which have the shape `inner`."""
        shape = self.read(SIZES).get("shape")
        if (
            not isinstance(shape, list)
            or len(shape) != 1 + len(inner)
            or tuple(shape[1:]) != inner
            or type(shape[0]) is not int
            or not 0 <= shape[0] <= MAX_NBYTES
        ):
            with naming_errors(self.folder.path(SIZES)):
                refuse("'shape' to be a number of rows, and %s" % (inner,), shape)
        length: int = shape[0]
        return length

    def encode_sizes(self, shape: tuple[int, ...], nbytes: int, cbytes: int) -> bytes:
        """Return the content of the sizes file."""
        return self.encode({"shape": list(shape), "nbytes": nbytes, "cbytes": cbytes})


# Arrays


class SuperchunkNode(NodeLayout):
    """An array or a table, with its documents."""

    _documents: Documents

    def read_attributes(self) -> JsonObject:
        """Return the attributes in the file."""
        return self._documents.read_attributes()

    def stage_attributes(self, change: Change, values: JsonObject) -> None:
        """Let `change` replace all attributes."""
        content = self._documents.encode_attributes(values)
        change.stage(self.folder.full(ATTRIBUTES), content)


class SuperchunkArray(SuperchunkNode, ArrayLayout):
    """An array in superchunks."""

    name = "superchunk"
    description_files: tuple[str, ...] = (STORAGE, SIZES, ATTRIBUTES)
    by_field = True

    def __init__(self, folder: Folder, *, allow_pickle: bool = False) -> None:
        self.folder = folder
        self._check = DescriptionCheck(folder, STORAGE)
        with naming_errors(folder.path(STORAGE)):
            stored = read_storage(folder, self.kind)
            self.storage = decode_storage(stored)
        self.storage.identity = stored.get(KEY)
        self._documents = Documents(folder, self.storage.identity)
        self._check.expect(folder.path(), partial(read_storage, folder), stored)
        with naming_errors(folder.path(SIZES)):
            self._take(self._documents.read_length(self.storage.inner))

    def _take(self, length: int) -> None:
        """Read from the files of this number of rows from now on."""
        storage = self.storage
        self.dtype = storage.dtype
        self.shape = (length, *storage.inner)
        nbytes = math.prod(n or 1 for n in self.shape) * self.dtype.itemsize
        if nbytes > MAX_NBYTES:
            refuse("at most '%d' bytes" % MAX_NBYTES, nbytes)
        self.fill_value = storage.fill_value
        self.block_rows = storage.chunk_rows
        self.chunks = (storage.chunk_rows, *storage.inner)
        self.shards = (storage.chunk_rows * storage.slots, *storage.inner)
        # No methods of this object: a cycle would keep the files open.
        self._sources = [
            ShardFiles(
                self.data_folder,
                storage.grid_of(leaf),
                length,
                None,
                check_description=self._check,
            )
            for leaf in storage.leaves
        ]
        allocate = partial(allocate_checked, self._sources)
        readers = [
            ArrayReader(
                source, leaf.dtype, (*self.shape, *leaf.shape), allocate=allocate
            )
            for leaf, source in zip(storage.leaves, self._sources, strict=True)
        ]
        if self.dtype.names is None:
            self.reader = readers[0]
        else:
            parts = list(zip(storage.leaves, readers, strict=True))
            count = max(source.chunks_in_run for source in self._sources)
            self.reader = LeafReader(
                self.dtype, self.shape, parts, allocate, storage.chunk_rows * count
            )

    @property
    def data_folder(self) -> Folder:
        """The folder of the shards."""
        return self.folder.child(DATA)

    def parts(self) -> list[FieldChunks]:
        """Return where the chunks are, by the fields of an item."""
        return [
            (leaf.fields, source)
            for leaf, source in zip(self.storage.leaves, self._sources, strict=True)
        ]

    def new_array(self) -> NewArray:
        """Return what a copy of this array must be, apart from its attributes."""
        storage = self.storage
        return NewArray(
            storage.dtype,
            self.shape,
            storage.chunk_rows,
            storage.fill_value,
            settings=storage.settings,
            shards=storage.chunk_rows * storage.slots,
        )

    # Writing

    @classmethod
    def block_rows_for(cls, new: NewArray) -> int:
        """Return the number of rows in a chunk of a new array."""
        return new_storage(new).chunk_rows

    @classmethod
    def create(cls, change: Change, prefix: str, new: NewArray, blocks: Blocks) -> None:
        """Write a new array to the folder `prefix` of the dataset of `change`."""
        storage = new_storage(new)
        documents = Documents(change.folder, storage.identity)
        head = {"superchunk": VERSION, "kind": cls.kind}
        content = documents.encode({**head, **storage.encode()})
        attributes = documents.encode_attributes(new.attrs)
        for name in (prefix.rstrip("/"), prefix + META, prefix + DATA):
            if name:
                change.make_folder(name)
        written = write_leaves(change, prefix + DATA + "/", storage, blocks)
        nbytes = math.prod(new.shape) * storage.dtype.itemsize
        sizes = documents.encode_sizes(new.shape, nbytes, sum(written.values()))
        change.write(prefix + STORAGE, content)
        change.write(prefix + ATTRIBUTES, attributes)
        change.write(prefix + SIZES, sizes)

    def stage(
        self, change: Change, blocks: Blocks, length: Length, *, extends: bool
    ) -> None:
        """Let `change` write blocks of rows, and set the number of rows."""
        data = self.data_folder
        written = write_leaves(
            change, data.prefix, self.storage, blocks, self._sources, at_once=extends
        )
        nrows = length()
        cbytes = count_cbytes(data, self.storage, nrows, written)
        self.stage_sizes(change, nrows, cbytes)

    def stage_sizes(self, change: Change, length: int, cbytes: int) -> None:
        """Let `change` set the number of rows."""
        shape = (length, *self.storage.inner)
        nbytes = math.prod(shape) * self.dtype.itemsize
        sizes = self._documents.encode_sizes(shape, nbytes, cbytes)
        change.stage(self.folder.full(SIZES), sizes)

    def committed(self, length: int) -> None:
        """Take over the number of rows of a change that was committed."""
        self.close_files()
        self._take(length)


def count_cbytes(
    data: Folder,
    storage: Storage,
    length: int,
    written: Mapping[str, int] | None = None,
) -> int:
    """Return the size of the files; `written` has those that are not in place."""
    total = 0
    for leaf in storage.leaves:
        grid = storage.grid_of(leaf)
        with suppress(FileNotFoundError):  # damaged sizes: do not try all names
            for name in map(grid.names, range(grid.count_files(length))):
                size = written.get(data.full(name)) if written else None
                total += data.size(name) if size is None else size
    return total


def write_leaves(
    change: Change,
    prefix: str,
    storage: Storage,
    blocks: Blocks,
    old: Sequence[ShardFiles | None] | None = None,
    *,
    at_once: bool = True,
) -> dict[str, int]:
    """Write blocks of rows, each leaf to its files; return the sizes by file name.

    `old` is the files of the leaves now. The first block says which fields all have:
    the leaves of other fields are not written.
    """
    blocks, fields = fields_of(blocks, storage.dtype)
    sources = [None] * len(storage.leaves) if old is None else old

    def finish_chunk(chunk: bytes) -> bytes:
        return with_spare(chunk, storage.settings["spare"])

    writers = [
        ShardWriter(
            change,
            prefix,
            storage.grid_of(leaf),
            storage.args_of(leaf),
            source,
            at_once=at_once,
            part_of=leaf.of,
            finish_chunk=finish_chunk,
        )
        for leaf, source in zip(storage.leaves, sources, strict=True)
        if leaf.fields[:1] in fields
    ]
    write_shards(writers, blocks)
    return {name: size for each in writers for name, size in each.sizes.items()}


def fields_of(blocks: Blocks, dtype: DType) -> tuple[Blocks, set[tuple[str, ...]]]:
    """Return the same blocks, and the fields that they have: ``()`` without fields."""
    remaining = iter(blocks)
    first = list(islice(remaining, 1))
    names = first[0][1].dtype.names if first else dtype.names
    return chain(first, remaining), {(name,) for name in names} if names else {()}


@dataclass(eq=False)
class LeafReader:
    """Reads items whose leaves are in different files.

    Attributes
    ----------
    dtype, shape
        Those of the array.
    parts
        The leaves and their readers.
    allocate
        Returns the array for a result; it may refuse a size that comes from a file.
    block_rows
        Number of rows of all leaves that a thread reads at a time.
    closed
        Whether reading is an error.
    """

    dtype: DType
    shape: tuple[int, ...]
    parts: list[tuple[Leaf, ArrayReader]]
    allocate: Allocate
    block_rows: int
    closed: bool = False

    def get(self, key: Any) -> Any:
        """Return the items that an index selects, or fields of all items.

        Only the files of the leaves that are needed are read.
        """
        if self.closed:
            raise UsageValueError("the array is closed")
        names = [key] if isinstance(key, str) else key
        if isinstance(names, list) and names and isinstance(names[0], str):
            numpy.empty(0, self.dtype)[key]  # raises the error for an unknown name
            return self._read(ArrayIndex(..., self.shape), set(names))[key]
        return self._read(ArrayIndex(key, self.shape), None)

    def _read(self, index: ArrayIndex, names: set[str] | None) -> Any:
        counts = tuple(axis.count for axis in index.axes)
        items = self.allocate(counts, self.dtype)
        first, *others = index.axes
        parts = [
            (leaf, reader, [Steps(n, 0, 1, n) for n in leaf.shape])
            for leaf, reader in self.parts
            if names is None or leaf.fields[0] in names
        ]
        tasks = ((block, part) for block in self._blocks(first) for part in parts)

        def work(task: Task) -> None:
            (rows, axis), (leaf, reader, rest) = task
            leaf.of(items[rows])[...] = reader.read_axes([axis, *others, *rest])

        def deliver(_: None) -> None:
            pass

        nthreads = effective_nthreads(None, None)
        with own_settings:
            for_each(tasks, work, deliver, nthreads, quick=True)
        return index.finish(items)

    def _blocks(
        self, axis: Steps | PositionList
    ) -> Iterator[tuple[slice, Steps | PositionList]]:
        """Yield parts of the first axis that are read together, and their rows.

        All leaves of a block are put into the items while these are in the cache of
        the processor.
        """
        if not isinstance(axis, Steps) or axis.reversed:
            yield slice(0, axis.count), axis
            return
        start = 0
        while start < axis.count:
            position = axis.at(start)
            stop = axis.count_before(
                (position // self.block_rows + 1) * self.block_rows
            )
            steps = Steps(axis.size, position, axis.step, stop - start)
            yield slice(start, stop), steps
            start = stop
