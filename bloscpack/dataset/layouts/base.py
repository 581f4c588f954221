"""What a layout has to do: the abstract classes between users and files.

`Array`, `Table` and `Group` know shapes, indexes and values; a layout knows files. A
layout is a subclass of `ArrayLayout`, one of `TableLayout`, perhaps one of
`GroupLayout`, and a function `detect`.

A change goes through a `Change`: the layout hands it files whose new content does not
disturb the old state, and files that must get their new content all at once. So what
makes a change safe in a crash is the same for all layouts.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeGuard, TypeVar

import numpy

from ..._commit.change import SAME_NAME, Change
from ..._engine.forks import cached_property
from ..._format.dtypes import Array, DType, Key, check_known
from ..._format.grid import Grid, Shape, digits
from ..._format.text import TEXT, encode_text, item_nbytes
from ..._format.zarr_metadata import ZARR_JSON
from ..._types import Json, JsonObject
from ...defaults import CHUNK_SIZE_NOT_GIVEN
from ...exceptions import DamageError, FormatError, UsageError, metadata_damage
from ..changed_blocks import NewState
from ..folder import Folder
from ..items import check_fill_value, check_nbytes, chunk_shape, converted, is_array
from ..labels import given_dims, name_of
from .array_files import MAX_RATIO, MOST_FILES, ChunkFiles

if TYPE_CHECKING:
    from ..._format.automatic import Read
    from ...args import BloscArgs

AnyNode = TypeVar("AnyNode", bound="NodeLayout")
AnyTable = TypeVar("AnyTable", bound="TableLayout")
Blocks = Iterable[tuple[int, Array]]
NewColumn = tuple["NewArray", Blocks]
NewColumns = Mapping[str, NewColumn]


class ItemReader(Protocol):
    """Reads items of an array; `PartReader` is one."""

    closed: bool

    def get(self, key: Key) -> Any:
        """Return the items that an index of NumPy selects."""


# The fields that lead to a part of an item, from outside to inside, and the chunks of
# this part.
FieldChunks = tuple[tuple[str, ...], ChunkFiles]

# Settings of Blosc for new datasets whose items are not known. The defaults of `.blp`
# files (blosclz) are older; they compress most data no better, and more slowly:
# bench/bench_codecs.py.
DEFAULT_SETTINGS: dict[str, Any] = {"cname": "lz4", "clevel": 5}
# Plain size in bytes from which settings are tried on the items of a new array. Trying
# takes 0.3 to 4 ms, and up to 20 ms for regular data: bench/bench_defaults.py.
FITTED_NBYTES = 2**17
# Number of times that a table is read again if one of its columns is missing or has a
# different length.
ATTEMPTS = 3
# Maximum size in bytes of a sample that is copied.
SAMPLE_NBYTES = 4 * 2**20
# Parameters of `create_array`, which messages propose.
PARAMETERS = (
    *("auto", "shape", "dtype", "chunks", "shards", "fill_value", "attrs", "mode"),
)
# The layouts that users are advised to write in place of one that can only be read, and
# the name of what a node of each kind contains.
INSTEAD = "bcolz", "zarr"
CONTENTS = {"array": "items", "table": "rows", "group": "members"}


class NewItems(NamedTuple):
    """The value of new items of an array that was not given a fill value."""

    value: object


@dataclass(eq=False)
class NewArray:
    """What a new array shall be; raises `UsageError` if no layout can hold it.

    Attributes
    ----------
    dtype, shape
        Those of the array.
    chunks, shards
        Number of rows in a chunk, and in a file of chunks, or the shapes of these; None
        lets the layout choose.
    dims
        A name for each axis, for layouts that store them; None for no names.
    fill_value
        The value of new items when the array is enlarged; None for zero. It may be
        given as `NewItems`.
    asks_fill
        Whether a fill value is given, which other programs find, too.
    sparse
        Whether items may stay unwritten, in layouts that allow it: they have the fill
        value.
    attrs
        The attributes.
    settings
        Settings of Blosc, such as ``{'cname': 'zstd', 'clevel': 9}``. ``auto`` is
        replaced by settings that fit the sample.
    sample
        The items, or None if they can't be read before they are written.
    is_fitted
        Whether settings are tried on the sample: the user has given none.
    """

    dtype: DType
    shape: tuple[int, ...]
    chunks: int | Shape | None = None
    fill_value: object = None
    attrs: JsonObject = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    shards: int | Shape | None = None
    dims: Sequence[str | None] | None = None
    sample: object = None
    sparse: bool = False
    is_fitted: bool = field(init=False)
    asks_fill: bool = field(init=False)

    def __post_init__(self) -> None:
        check_known(self.dtype)
        is_given = not isinstance(self.fill_value, NewItems)
        self.asks_fill = is_given and self.fill_value is not None
        self.fill_value = plain_fill(self.fill_value)
        check_fill_value(self.fill_value, self.dtype)
        check_nbytes(self.shape, self.dtype)
        self.chunks = chunk_shape(self.chunks, "chunks")
        self.shards = chunk_shape(self.shards, "shards")
        self.is_fitted = not self.settings.keys() - {"spare"}
        self.settings = _fitted(self.settings, self.sample, self.dtype)

    @property
    def row_nbytes(self) -> int:
        """Size of a row in bytes."""
        return math.prod(self.shape[1:]) * item_nbytes(self.dtype)

    def check_settings(self, known: Iterable[str], layout: str) -> None:
        """Raise `UsageError` for settings that a layout does not have.

        The others get their first names, and numbers of Python.
        """
        from ...args import known_settings
        from ...headers import plain_number

        refusal = "the layout '%s' has no setting %%r" % layout
        settings = known_settings(self.settings, tuple(known), refusal, PARAMETERS)
        self.settings = {name: plain_number(settings[name]) for name in settings}

    @cached_property
    def data(self) -> tuple[Read, int] | None:
        """A function that reads the sample, and its size in bytes; see `_data_of`.

        None if the sample is small, not at hand, or expensive to compute, or if
        converting it may fail.
        """
        items, dtype = self.sample, self.dtype
        graph = getattr(items, "__dask_graph__", None)
        if (
            not is_array(items)
            or math.prod(items.shape) * dtype.itemsize < FITTED_NBYTES
            or (items.dtype.hasobject or dtype.names is not None)
            or not numpy.can_cast(items.dtype, dtype, "same_kind")
            or (graph is not None and graph() is not None)
        ):
            return None
        return _data_of(items, dtype)

    @cached_property
    def usual_settings(self) -> dict[str, Any]:
        """Settings of Blosc for the items, unless the user gives others."""
        if not self.is_fitted or self.data is None:
            return DEFAULT_SETTINGS
        from ..._format.automatic import choose
        from ..._format.codecs import DEFAULT_GOAL
        from ...numpy_io import typesize_of

        typesizes = (typesize_of(self.dtype),)
        best = choose(*self.data, DEFAULT_GOAL, typesizes, for_parts=True)
        return {"cname": best.cname, "clevel": best.clevel, "shuffle": best.shuffle}

    def blocksize(self, args: BloscArgs, grid: Grid) -> int:
        """Return the size of the blocks of a chunk; 0 if Blosc chooses it."""
        nbytes = math.prod(grid.chunk) * self.dtype.itemsize
        if nbytes < FITTED_NBYTES or self.dtype == TEXT:
            return 0  # a chunk of text is never read in parts
        from ..._format.automatic import Setting, blocksize_for_parts

        settings = args.cname, args.clevel, int(args.shuffle), args.typesize or 1
        return blocksize_for_parts(Setting(*settings, nbytes), nbytes, self.data)


def wanted_fill(array: Any) -> object:
    """Return the fill value of a copy of an array, for `NewArray`.

    The array has the attributes `fill_value` and `asks_fill`.
    """
    return array.fill_value if array.asks_fill else NewItems(array.fill_value)


def plain_fill(given: object) -> object:
    """Return a fill value, which may be given as `NewItems`."""
    return given.value if isinstance(given, NewItems) else given


def _data_of(items: Any, dtype: DType) -> tuple[Read, int]:
    """Return a function that reads bytes of items as `dtype`, and their number.

    The function raises `DoesNotFit` for items that `dtype` can't hold, as writing does.
    Of items that are not in memory, or not in order there, it has a part in the middle.
    """
    from ..._format.automatic import reader_of
    from .chunk_choice import divided

    is_whole = isinstance(items, numpy.ndarray) and items.flags.c_contiguous
    if not is_whole or dtype == TEXT:
        box = divided(items.shape, item_nbytes(dtype), nbytes=SAMPLE_NBYTES)
        starts = [(n - m) // 2 for n, m in zip(items.shape, box, strict=True)]
        items = items[tuple(slice(i, i + n) for i, n in zip(starts, box, strict=True))]
    items = numpy.asarray(items).reshape(-1)
    if dtype == TEXT:
        items = numpy.frombuffer(encode_text(converted(items, TEXT)), "u1")
        dtype = items.dtype
    read = reader_of(items, dtype.itemsize, partial(converted, dtype=dtype))
    return read, items.size * dtype.itemsize


def _fitted(
    settings: Mapping[str, object], sample: Any, dtype: DType
) -> Mapping[str, object]:
    """Return settings without ``auto``: with those that fit the sample."""
    from ...args import fit_settings, goal_of

    if not goal_of(settings.get("auto")):
        return {name: settings[name] for name in settings if name != "auto"}
    if sample is None or isinstance(sample, Iterator):
        raise UsageError("'auto' needs the items as an array, to try settings on them")
    from ...numpy_io import typesize_of

    items = sample if is_array(sample) else converted(sample, dtype)
    data = _data_of(items, dtype)
    known = (typesize_of(dtype),)
    given = dict(settings)
    args: Any = fit_settings(
        given, CHUNK_SIZE_NOT_GIVEN, None, data, known, is_array=True
    )[1]
    fitted = {"cname": args.cname, "clevel": args.clevel, "shuffle": int(args.shuffle)}
    if "typesize" in settings:  # the layout refuses it
        fitted["typesize"] = settings["typesize"]
    return {**given, **fitted}


class NodeLayout(ABC):
    """An array, a table or a group on disk.

    Attributes
    ----------
    name
        The name of the layout.
    kind
        ``'array'``, ``'table'`` or ``'group'``.
    folder
        Its folder.
    allow_pickle
        Whether it was opened so that Python objects may be read.
    changed_elsewhere
        Whether another program has written the description, or it is damaged.
    has_digests
        Whether chunks have digests.
    is_column
        Whether it was made as a column of a table; None if its files do not say so.
    token
        The state of the files when Dask got an array for reading; None before.
    """

    name: str
    kind: str
    writable = True
    allow_pickle = False
    changed_elsewhere = False
    has_digests = True
    is_column: bool | None = None
    token: object = None
    folder: Folder
    # The files that describe it, relative to its folder.
    description_files: tuple[str, ...] = ()
    # The one of them that commits a change.
    document = ZARR_JSON

    @abstractmethod
    def __init__(self, folder: Folder, *, allow_pickle: bool = False) -> None:
        """Read the description; `allow_pickle` lets Python objects be read."""

    @abstractmethod
    def read_attributes(self, change: Change | None = None) -> JsonObject:
        """Return the attributes in the file, or those that `change` has staged."""

    @classmethod
    def read(cls: type[AnyNode], folder: Folder, allow_pickle: bool = False) -> AnyNode:
        """Return what is in a folder, also while a writer changes it."""
        return cls(folder, allow_pickle=allow_pickle)

    def __reduce__(self) -> tuple[object, ...]:
        """Return a function that opens it again with the same settings."""
        return partial(type(self).read, allow_pickle=self.allow_pickle), (self.folder,)

    def is_same(self, other: NodeLayout) -> bool:
        """Return whether another object may be the same dataset in another state."""
        return True

    def arrays(self) -> Mapping[str, ArrayLayout]:
        """Return the columns of a table by name; an array is one without a name."""
        return {}

    def stage_attributes(self, change: Change, values: JsonObject) -> None:
        """Let `change` replace all attributes, in a layout that can be changed."""
        raise NotImplementedError

    def close_files(self) -> None:
        """Close the files that are kept open, when no thread reads them any more."""
        for array in self.arrays().values():
            for _, source in array.parts():
                source.close()

    @classmethod
    def check_layout(cls) -> None:
        """Raise `UsageError` if this layout can only be read."""
        if not cls.writable:
            raise UsageError(
                "%ss of the layout '%s' can only be read: create one of the layout "
                "'%s' or '%s', and copy the %s"
                % (cls.kind, cls.name, *INSTEAD, CONTENTS[cls.kind])
            )

    def check_writable(self) -> None:
        """Raise `UsageError` if this dataset can only be read."""
        try:
            self.check_layout()
        except UsageError as error:
            raise UsageError("'%s': %s" % (self.folder.path(), error)) from None


class ArrayLayout(NodeLayout):
    """An array on disk.

    Attributes
    ----------
    sparse
        Whether the layout lets items that were never written have the fill value.
    has_dims
        Whether the layout stores names of axes.
    has_text
        Whether the layout stores text of variable length, objects of `str`.
    stored_dims
        The names in the file; None if there are none.
    masks_fill_value
        Whether the attributes have the fill value as that of missing items, which the
        file does not have there.
    may_lack_files
        Whether this array has such items, so that files may be missing.
    leaves_out
        Whether new items of this array are not written: it was created from a shape.
    may_wait, waiting
        Whether assigned items can wait in memory, and the chunks that do, by number:
        the reader returns their items.
    by_field
        Whether each field of an item has files of its own, as a column of a table has.
    dtype, shape, chunks, shards
        Those of the array; `shards` is None if each chunk has a file of its own.
    cuts_all_axes
        Whether the layout cuts arrays along all axes, and lets all axes change.
    grid
        How the array is cut.
    fill_value
        The value of new items when the array is enlarged.
    reader
        Reads the present state.
    """

    kind = "array"
    sparse = False
    cuts_all_axes = False
    has_dims = False
    has_text = False
    stored_dims: Sequence[str | None] | None = None
    masks_fill_value = False
    may_lack_files = False
    leaves_out = False
    may_wait = False
    waiting: dict[int, Array]
    by_field = False
    dtype: DType
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    shards: tuple[int, ...] | None = None
    grid: Grid
    fill_value: object
    reader: ItemReader
    # The chunks, unless each field of an item has files of its own.
    _source: ChunkFiles

    @property
    def dims(self) -> tuple[str | None, ...] | None:
        """The name or None for each axis; None if no axis has a name."""
        return given_dims(name_of(self.folder.path()), self.stored_dims)

    @property
    def missing_value(self) -> Any:
        """The value of items that no file has."""
        return self.fill_value

    @property
    def asks_fill(self) -> bool:
        """Whether the array was given a fill value; zero is the usual one."""
        if self.dtype == TEXT or self.fill_value is None:
            return bool(self.fill_value)
        return any(numpy.array(self.fill_value, self.dtype).tobytes())

    def arrays(self) -> Mapping[str, ArrayLayout]:
        """Return the array itself."""
        return {"": self}

    def parts(self) -> list[FieldChunks]:
        """Return where the chunks are, by the fields of an item, if they are apart."""
        return [((), self._source)]

    @property
    def cbytes(self) -> int:
        """Size in bytes of the files that hold the items."""
        return sum(
            source.folder.total_size([*map(source.names, source.stored())])
            for _, source in self.parts()
        )

    @property
    def codec_settings(self) -> Mapping[str, Any]:
        """The codec of new chunks and its settings, with the names of those of Blosc.

        Some are missing if the codec does not have them.
        """
        return self.new_array().settings

    @abstractmethod
    def new_array(self) -> NewArray:
        """Return what a copy of this array must be, apart from its attributes."""

    @classmethod
    @abstractmethod
    def create(cls, change: Change, prefix: str, new: NewArray, blocks: Blocks) -> None:
        """Write a new array to the folder `prefix` of the dataset of `change`.

        `prefix` ends in a slash, or is empty for the dataset itself. The number of rows
        in `new` is right when all blocks are written. Raises `UsageError` if the layout
        can't hold such an array.
        """

    @classmethod
    @abstractmethod
    def grid_for(cls, new: NewArray) -> Grid:
        """Return how a new array is cut; raise `UsageError` if it can't be."""

    @abstractmethod
    def stage(self, change: Change, new: NewState) -> None:
        """Let `change` write chunks, and set the shape."""

    def stage_length(self, change: Change, length: int) -> None:
        """Let `change` set the number of rows, all of which are in files already."""
        grid = self.grid.resized((length, *self.shape[1:]))
        self.stage(change, NewState(grid, [], extends=True))

    def shards_to_fill(self, grid: Grid) -> Iterable[int]:
        """Return the numbers of the shards that must get the fill value as new items.

        The array grows to the shape of `grid`. Raises `UsageError` if the file system
        has no room for them, however well they are compressed.
        """
        from shutil import disk_usage

        start, stop = self.shape[0], grid.shape[0]
        row = math.prod(self.shape[1:]) * self.dtype.itemsize
        least = (stop - start) * row // MAX_RATIO
        store = self.folder.store
        free = least if store.is_remote else disk_usage(store.root).free
        if least > free:
            raise UsageError(
                "the new rows take at least '%d' bytes, and '%d' are free: an array "
                "of the layout 'zarr' that is created with shape= does not store them"
                % (least, free)
            )
        return range(start // grid.shard[0], grid.nshards)

    @abstractmethod
    def committed(self, shape: Shape) -> None:
        """Take over the shape of a change that was committed."""

    def prepare_copies(self) -> None:
        """Open the files again before their items are written again, if others may."""

    def renew(self) -> None:
        """Read the files that are there now, which another writer may have replaced.

        This and `shard_name` are for layouts whose arrays may have several writers.
        """
        raise NotImplementedError

    def shard_name(self, number: int) -> str:
        """Return the name of a shard, relative to the dataset."""
        raise NotImplementedError

    def remove_unused(self) -> None:
        """Remove the files of items outside of the shape, which do not count.

        At a URL they stay, and new items replace them.
        """
        if self.folder.is_remote:
            return
        for _, source in self.parts():
            folder, names, counts = source.folder, source.names, source.cut.counts
            names = replace(names, counts=(MOST_FILES,) * len(names.counts))
            for number in names.stored(folder, MOST_FILES ** len(counts)):
                index = digits(number, names.counts)
                if not (all(map(int.__lt__, index, counts)) and source.nchunks):
                    with suppress(FileNotFoundError):
                        folder.remove(names(number))


def are_names(value: Json, is_name: Callable[[object], bool]) -> TypeGuard[list[str]]:
    """Return whether a value is a list of different names."""
    return (
        isinstance(value, list)
        and all(map(is_name, value))
        and len(set(value)) == len(value)
    )


class TableLayout(NodeLayout):
    """A table on disk: arrays with names, its columns.

    Attributes
    ----------
    columns
        The columns by name, in order.
    """

    kind = "table"
    columns: dict[str, ArrayLayout]

    array_class: type[ArrayLayout]
    # The errors of columns that can't be opened; None if such an error is raised.
    unopened: dict[str, Exception] | None = None

    @classmethod
    def open_damaged(cls: type[AnyTable], folder: Folder) -> AnyTable:
        """Open a table without the columns that can't be opened: see `unopened`."""
        table = cls.__new__(cls)
        table.unopened = {}
        table.__init__(folder)  # type: ignore[misc]
        return table

    def open_columns(self, folders: Mapping[str, str]) -> dict[str, ArrayLayout]:
        """Return the columns by name; `folders` has the folder of each."""
        columns = {}
        files = self.array_class.description_files
        known = self.folder.tree.state.members or ()  # their documents were read
        unread = [folder for folder in folders.values() if folder not in known]
        self.folder.prepare(folder + "/" + file for folder in unread for file in files)
        for name, folder in folders.items():
            try:
                columns[name] = self._open_column(name, folder)
            except (FormatError, UsageError, OSError) as error:
                if self.unopened is None:
                    raise
                self.unopened[name] = error
        self.folder.prepare(())
        return columns

    def _open_column(self, name: str, column_prefix: str) -> ArrayLayout:
        if not self.folder.is_folder(column_prefix):
            found = "no folder" if self.folder.exists(column_prefix) else "none"
            text = "expected the folder of the column '%s', found %s" % (name, found)
            raise self.folder.damage(text, column_prefix)
        folder = self.folder.child(column_prefix)
        try:
            return self.array_class(folder, allow_pickle=self.allow_pickle)
        except FileNotFoundError as error:
            raise metadata_damage(
                "expected the document of the column '%s', found none" % name,
                filename=error.filename or folder.path(),
            ) from error

    @classmethod
    def read(
        cls: type[AnyTable], folder: Folder, allow_pickle: bool = False
    ) -> AnyTable:
        """Return the table in a folder, also while a writer changes it.

        Between the reads of two files, the writer may have removed a column, or changed
        the lengths: the table is read again. A damaged table fails each time. Raises
        `FormatError` if another program has changed the length of a column of Zarr.
        """
        for _ in range(ATTEMPTS):
            with suppress(FileNotFoundError, DamageError):
                table = cls(folder, allow_pickle=allow_pickle)
                if len({column.shape[0] for column in table.columns.values()}) < 2:
                    return table
            folder.tree.read()
        table = cls(folder, allow_pickle=allow_pickle)
        lengths = {name: column.shape[0] for name, column in table.columns.items()}
        if folder.tree.state.members is not None and len(set(lengths.values())) > 1:
            raise folder.damage(
                "expected columns of the same length, found %s: another program has "
                "changed some of them, and each can be opened by its own path"
                % ", ".join("'%s': %d" % item for item in lengths.items())
            )
        return table

    def arrays(self) -> Mapping[str, ArrayLayout]:
        """Return the columns."""
        return self.columns

    def is_same(self, other: NodeLayout) -> bool:
        """Return whether the columns that both have are the same arrays."""
        return all(
            column.is_same(other.arrays()[name])
            for name, column in self.columns.items()
            if name in other.arrays()
        )

    # Writing

    @classmethod
    @abstractmethod
    def create(
        cls, change: Change, columns: Mapping[str, NewColumn], attrs: JsonObject
    ) -> None:
        """Write a new table to the folder of `change`."""

    @classmethod
    @abstractmethod
    def check_column_name(cls, name: str) -> None:
        """Raise `UsageError` if no column can have this name."""

    def create_column(self, change: Change, name: str, column: NewColumn) -> None:
        """Write a column, which the table does not have before `stage_columns`.

        `change` stages all files of a column that replaces another one.
        """
        self.remove_leftover(name, str)
        self.array_class.create(change, self.folder.full(name) + "/", *column)

    def remove_leftover(self, name: str, folder_of: Callable[[str], str]) -> None:
        """Remove the folder of a column that was removed, if `name` is a new column.

        `folder_of` returns the folder of a column. Raises `UsageError` if the file
        system takes the name for the name of another column.
        """
        if name in self.columns:
            return
        folder, new = self.folder, folder_of(name)
        identity = folder.identity(new)
        for other in self.columns if identity is not None else ():
            if folder.identity(folder_of(other)) == identity:
                raise UsageError(SAME_NAME % (other, name))
        folder.remove_tree(new)

    @abstractmethod
    def stage_columns(self, change: Change, names: list[str]) -> None:
        """Let `change` set the columns and their order."""

    def columns_committed(self, names: list[str]) -> None:
        """Take over the columns of a change that was committed."""
        old = self.columns
        self.columns = {
            name: old.get(name) or self._open_column(name, name) for name in names
        }


class GroupLayout(NodeLayout):
    """A group on disk. Its members are folders inside of it, of any layout."""

    kind = "group"

    @classmethod
    def create(cls, change: Change, attrs: JsonObject, prefix: str = "") -> None:
        """Write a new group to the folder `prefix` of the dataset of `change`.

        `prefix` is that of `ArrayLayout.create`.
        """
        cls.check_layout()


class PlainFolder(GroupLayout):
    """A folder of datasets without a file that describes it: it can only be read."""

    name = "folder"
    writable = False

    def __init__(self, folder: Folder, *, allow_pickle: bool = False) -> None:
        self.folder = folder

    def read_attributes(self, change: Change | None = None) -> JsonObject:
        """Return no attributes."""
        return {}

    @classmethod
    def check_layout(cls) -> None:
        """Raise `UsageError`: a plain folder has no file for attributes."""
        raise UsageError(
            "a plain folder of datasets can only be read as a group; open_group with "
            "the mode 'a' makes it one of the layout 'zarr'"
        )
