"""The contents of a file or folder, between a reader and a writer of another format.

Strategy: a reader returns `Rows`, an array or a table, or `Members`, a group of these.
The items of `Rows` are any array-like, which is read by slices of rows; `Stream` is one
for a source that can only be read in order, such as text. A table is an array with
fields, of which each column may have attributes.

A column with missing items has zeros or empty text in their place, and a mask: another
column, of booleans, that says which these are. `Rows.masks` knows the masks, and
`Rows.masked` makes masked arrays of both. A writer either uses these, or writes the
mask as any other column: see `Format.holds`.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from operator import index
from typing import Any, BinaryIO, ClassVar, TypeAlias, TypeVar

import numpy

from ..._commit.ownership import AccessLimits
from ..._commit.pin import Pin, ReadChanged
from ..._commit.replacing import replacing
from ..._engine.contexts import errors_to
from ..._format.dtypes import Array, DType
from ..._format.text import TEXT, item_nbytes
from ..._format.zarr_metadata import MASK
from ..._storage.base import add_filename
from ..._storage.stream import is_stream
from ..._types import Json, JsonObject
from ...abstract_io import Progress
from ...exceptions import (
    DamageError,
    FormatError,
    StorageError,
    UsageError,
    UsageTypeError,
    UsageValueError,
)
from ...log import printable
from ..columns import MASK_NAME, MASK_OF, dtype_of_rows, masks_of
from ..rows import joined

Columns = dict[str, Array]
Content: TypeAlias = "Rows | Members"
Block = TypeVar("Block", Array, Columns)
Result = TypeVar("Result")

# Number of plain bytes in a block of rows.
BLOCK_NBYTES = 8 * 2**20
# Names of the tab as a delimiter.
TAB_NAMES = {"tab": "\t", "\\t": "\t"}
# The characters that may be in front of the fraction of a number.
DECIMALS = (".", ",")
# Blocks of rows of an array in Fortran order are larger by this factor: each of them
# reads from all parts of the file.
FORTRAN_FACTOR = 4
NO_COLUMN = "a table must have a column"
NO_NAME = "a column without a name, which --rename =NAME gives it"
# In front of the name of a mask whose name another column has until it is renamed.
NAME_TAKEN = "\0"
# The attribute in which a BigFile tree states its files.
RECORD = "bigfile"
STORED_NUMBERS = "'%s' keeps its stored numbers: %s"
# What a format can't hold for which a list of one item is this item.
LIST = "the list around the only item of the attribute '%s' of '%s'"
# What a format can't hold that has no missing values, and keeps the mask as a column.
MASKS = "the missing values of the column '%s' (the column '%s' marks them)"
# Attributes of netCDF: the values of missing items, and how numbers are stored.
FILLS, PACKING = (MASK, "missing_value"), ("scale_factor", "add_offset")
UNSIGNED = "_Unsigned"
# The name of an array that has none, in the formats that need one.
NO_NAMES = {"npz": "arr_0", "hdf5": "data"}
# Maximum number of columns that a table gets from an array with two axes.
MAX_COLUMNS = 2**20


@dataclass(eq=False)
class Request:
    """The settings of one conversion, and what it could not carry over.

    Attributes
    ----------
    target
        The file or folder to write.
    force
        Whether to replace an existing target.
    sync
        Whether the target is on the disk in the end; None: if it replaces another one.
    nthreads
        Number of threads for `.blp` files; None for the default.
    settings
        Settings of Blosc: ``cname``, ``clevel``, ``shuffle``.
    chunks, shards
        Those of the arrays of a dataset, as for `create_array`; None for the default.
    dtypes
        The types of columns of text files and of Parquet, by name.
    masks
        Columns of text files that may have missing values, and the name of the column
        that says which these are, also if the file has none of this name.
    delimiter
        The character between the values of text files.
    decimal
        The character in front of the fraction of a number in text files.
    encoding
        The encoding of text files.
    skip_lines
        Number of lines in front of the names in a text file.
    times
        Whether ISO dates and times in a text file become times.
    columns
        The columns of a table, or the members of a group, that are wanted, in this
        order; None for all. Slashes separate a member and the groups around it.
    exclude
        Those that are not wanted.
    rename
        The new names of some of them.
    raw
        The type and the shape of raw items; None for a file that states its own.
    limits
        The attributes of the source, which limit the readers of the target.
    layout
        The layout of the target; empty unless it is a dataset.
    fixed_text
        Whether the target has no text of variable length: it gets the length of the
        longest one.
    progress
        Called with the plain bytes of each block that has been read; None for nothing.
    resources
        Files to be closed after the conversion.
    lost
        What the target can't hold, in words.
    missing
        Whether the fill value of Zarr format 2 becomes the value of missing items.
    masked
        The paths of arrays of which it does.
    pin
        Notes the files that are read of a dataset, which must all be of one state; None
        at a URL, and for another source.
    """

    target: str
    force: bool = False
    sync: bool | None = None
    nthreads: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    chunks: int | tuple[int, ...] | None = None
    shards: int | tuple[int, ...] | None = None
    dtypes: Mapping[str, DType] = field(default_factory=dict)
    masks: Mapping[str, str] = field(default_factory=dict)
    delimiter: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    skip_lines: int = 0
    times: bool = False
    columns: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    raw: tuple[DType, tuple[int, ...]] | None = None
    limits: AccessLimits | None = None
    layout: str = ""
    fixed_text: bool = False
    progress: Progress | None = None
    resources: ExitStack = field(default_factory=ExitStack)
    lost: list[str] = field(default_factory=list)
    missing: bool = True
    masked: list[str] = field(default_factory=list)
    pin: Pin | None = None

    def __post_init__(self) -> None:
        given = self.delimiter
        self.delimiter = TAB_NAMES.get(given, given)
        is_one = len(self.delimiter) == 1 and self.delimiter.isascii()
        if not is_one or self.delimiter in '"\r\n\0':
            raise UsageValueError(
                "a delimiter is an ASCII character other than quotes and line ends, or "
                "'tab', not '%s'" % printable(given)
            )
        if self.decimal not in DECIMALS:
            text = "a decimal point is '.' or ',', not '%s'"
            raise UsageValueError(text % printable(self.decimal))
        try:
            "".encode(self.encoding)
        except (LookupError, ValueError) as error:
            text = "there is no encoding '%s' of text"
            raise UsageValueError(text % printable(self.encoding)) from error
        if index(self.skip_lines) < 0:
            raise UsageValueError("can't skip '%d' lines" % self.skip_lines)
        # The paths that are known, and the places of the wanted ones, also of the
        # groups around them.
        self._known: dict[str, None] = {}
        self._places: dict[str, int] = {}
        for number, name in enumerate(self.columns or ()):
            for path in (name, *accumulate(name.split("/"), inside)):
                self._places.setdefault(path, number)
        self._columns, self._exclude = {*(self.columns or ())}, {*self.exclude}

    def wants(self, *names: str) -> bool:
        """Return whether a column or a member is wanted, or perhaps a part of it.

        `names` are those of the groups around it, and its own. A reader need not read
        or check what is not wanted: `chosen` leaves it out. The mask of a column, which
        is read before, is wanted with it.
        """
        *outer, path = accumulate(names, inside)
        column = path.removesuffix(MASK_NAME % "")
        is_mask = column != path and column in self._known
        self._known.update(dict.fromkeys((*outer, path)))
        return self._wants(*outer, path) or (is_mask and self._wants(*outer, column))

    def _wants(self, *paths: str) -> bool:
        if not self._exclude.isdisjoint(paths):
            return False
        is_wanted = self.columns is None or not self._columns.isdisjoint(paths)
        return is_wanted or paths[-1] in self._places

    def wanted_columns(self, names: Iterable[str]) -> list[str]:
        """Return the wanted ones of the columns of a table.

        Raises `UsageError` if there are none, or if others are wanted or get a type.
        """
        self._known.update(dict.fromkeys(names := [*names]))
        wanted = [name for name in names if self._wants(name)]
        self._check_known("column", self.dtypes.keys() - {*self.masks.values()})
        if not wanted:
            raise UsageValueError(NO_COLUMN)
        return wanted

    def mask_name(self, name: str, names: Collection[str]) -> str:
        """Return the name of a new mask of a column of a table with columns `names`.

        Raises `UsageError` if another column has the name. A column that gets a new
        name, or is left out, leaves it to the mask: `chosen` renames the mask.
        """
        mask, new = MASK_NAME % name, MASK_NAME % self.rename.get(name, name)
        if mask not in names:
            return mask
        if new in {self.rename.get(n, n) for n in names if self._wants(n)}:
            raise UsageValueError(
                "the column '%s' has missing values, and another column has the name "
                "'%s' of the one that says which; convert --rename '%s=NAME' gives it "
                "another name, and --exclude '%s' leaves it out" % (name, new, new, new)
            )
        return NAME_TAKEN + mask

    def _check_known(self, what: str, typed: Iterable[str] = ()) -> None:
        for name in (*(self.columns or ()), *self.exclude, *self.rename, *typed):
            if name not in self._known:
                texts = what, name, what, ", ".join(self._known)
                text = "there is no %s '%s'; the %ss are %.1000s"
                raise UsageValueError(text % texts)

    def chosen(self, content: Content) -> Content:
        """Return the wanted columns or members of contents, with their new names."""
        if self.columns is None and not self.exclude and not self.rename:
            return content
        if is_table(content):
            content = as_table(content)
        if content.kind == "array":
            raise UsageTypeError("an array has no columns to choose or to rename")
        chosen = self._chosen(content, "", self.columns is None)
        self._check_known("member" if content.kind == "group" else "column")
        if chosen is None:
            raise UsageValueError(NO_COLUMN)
        return chosen

    def _chosen(self, content: Content, where: str, is_whole: bool) -> Content | None:
        """Return the wanted part of a group or a table; None for a table of nothing."""
        paths = {name: inside(where, name) for name in content.members}
        self._known.update(dict.fromkeys(paths.values()))
        masks = content.masks
        members: dict[str, Content] = {}
        olds: dict[str, str] = {}

        def add(new: str, old: str, member: Content) -> None:
            if not new or new in members:
                fault = "two of the name '%s'" % new if new else "one without a name"
                raise UsageValueError(
                    "expected different names of columns and members, found " + fault
                )
            members[new], olds[new] = member, old

        of_mask = {mask: name for name, mask in masks.items()}
        for name in sorted(paths, key=lambda n: self._places.get(paths[n], 0)):
            path, member = paths[name], content.members[name]
            is_given = path in self._columns
            of = inside(where, str(of_mask.get(name) or member.attrs.get(MASK_OF)))
            if path in self._exclude or (of in self._known and not is_given):
                continue  # a mask is added with its column
            if name in of_mask and of in self._columns:
                continue
            if isinstance(member, Members) or member.columns:
                inner = self._chosen(member, path, is_whole or is_given)
                if inner is None or not (inner.members or is_whole or is_given):
                    continue
                member = inner
            elif not (is_whole or is_given):
                continue
            new = self.rename.get(path, name)
            add(new, name, member)
            if name in masks:
                mask = masks[name]
                if paths[mask] in self._exclude:
                    text = "'%s' says which items of '%s' are missing: exclude both"
                    raise UsageValueError(text % (mask, name))
                column = content.members[mask]
                attrs = {**column.attrs, MASK_OF: new}
                add(MASK_NAME % new, mask, replace(column, attrs=attrs))
        if isinstance(content, Members):
            return replace(content, members=members)
        if not members:
            return None
        table = content.only(olds)
        for new, column in table.columns.items():
            column.attrs = members[new].attrs
        return table

    @property
    def syncs_folder(self) -> bool:
        """Whether a target that is a folder is on the disk in the end."""
        return os.path.lexists(self.target) if self.sync is None else self.sync

    def new_file(self) -> AbstractContextManager[BinaryIO]:
        """Return the context of the target, a file that is there when it ends.

        A stream, such as a pipe, is written directly.
        """
        target = replacing(
            self.target,
            self.sync,
            exclusive=not self.force and not is_streamed(self.target),
            like=None if self.limits is None else self.limits.whole(),
        )
        return self.compared(target)

    def telling_change(self) -> errors_to:
        """Raise `ReadChanged` for an error of a source that has changed meanwhile."""

        def translate(error: Exception) -> None:
            may_be = isinstance(error, (FormatError, StorageError, FileNotFoundError))
            if may_be and self.pin is not None and self.pin.has_changed:
                raise ReadChanged(self.pin.path) from error

        return errors_to(translate)

    @contextmanager
    def compared(self, target: AbstractContextManager[Result]) -> Iterator[Result]:
        """Enter the context of a target; compare the source before it is committed.

        Raises `ReadChanged` if another program has changed it meanwhile.
        """
        with target as opened, self.pin.at_end() if self.pin else nullcontext():
            yield opened

    def counted(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yield blocks of rows, also by columns, and report the progress."""
        for block in blocks:
            yield block
            if self.progress is not None:
                columns = block.values() if isinstance(block, dict) else (block,)
                self.progress(sum(rows.nbytes for rows in columns))

    def note_loss(self, what: str) -> None:
        """Note something that the target can't hold."""
        if what not in self.lost:
            self.lost.append(what)


def is_same_json(a: Json, b: Json) -> bool:
    """Return whether values are equal: NaN is NaN, 1 is 1.0, but no truth value."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(is_same_json(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(is_same_json, a, b))
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    return bool(a == b or (a != a and b != b))


def check_encodable(name: str, encoding: str) -> None:
    """Raise `UsageError` for a name that an encoding does not have."""
    try:
        name.encode(encoding)
    except UnicodeEncodeError as error:
        raise no_character(error, encoding) from error


def no_character(error: UnicodeEncodeError, encoding: str) -> UsageValueError:
    """Return the error about text that an encoding does not have."""
    text = "text in %s has no character %a"
    return UsageValueError(text % (encoding.upper(), error.object[error.start]))


def is_streamed(target: str) -> bool:
    """Return whether a target is a stream, such as a pipe."""
    return is_stream(target) and not os.path.isdir(target)


def naming_file(path: str, *wrong: type[Exception]) -> errors_to:
    """Add the name of a file to errors; those of the classes `wrong` are damage.

    An error of the system is none, whatever its class.
    """

    def translate(error: Exception) -> None:
        add_filename(path, error)
        if isinstance(error, UsageError) and error.filename is None:
            # The cause stays: a missing package is no wrong call.
            raise type(error)("'%s': %s" % (path, error)) from error.__cause__ or error
        is_of_system = isinstance(error, OSError) and error.errno is not None
        if isinstance(error, wrong) and not is_of_system:
            raise DamageError(str(error), filename=path) from error

    return errors_to(translate)


def rows_in_block(row_nbytes: int, unit: int = 1, factor: int = 1) -> int:
    """Return the number of rows in a block: a multiple of `unit`, if those fit.

    A block has `factor` times the usual size. Rows of no bytes are one block.
    """
    if not row_nbytes:
        return sys.maxsize
    rows = max(1, factor * BLOCK_NBYTES // row_nbytes)
    return rows - rows % unit if rows > unit else rows


@dataclass(eq=False)
class ByFunction:
    """An array-like whose rows a function returns for a slice."""

    get: Callable[[Any], Array]
    chunks: tuple[int, ...] = ()

    def __getitem__(self, key: Any) -> Array:
        return self.get(key)


@dataclass(eq=False)
class ByColumns:
    """The rows of a table, of which each column is read by itself."""

    arrays: Mapping[str, Any]
    chunks: tuple[int, ...]

    def __getitem__(self, key: slice) -> Columns:
        return {name: array[key] for name, array in self.arrays.items()}


def field_of(whole: Any, name: str) -> ByFunction:
    """Return an array-like of a column, or of a field of another one."""
    return ByFunction(lambda key: whole[key][name], getattr(whole, "chunks", ()))


class Stream:
    """Columns that are read in order; a slice before the last one starts again.

    `read` yields blocks of rows by the names of `columns`. An array is a column without
    a name (`array_stream`). It is always read to its end, where a source may find that
    it is damaged.
    """

    def __init__(
        self, read: Callable[[], Iterable[Columns]], columns: Mapping[str, Rows]
    ) -> None:
        self._read = read
        # Copies: the columns may know this stream, and a cycle would keep files open.
        self._columns = {n: replace(c, array=None) for n, c in columns.items()}
        shapes = [column.shape or (1,) for column in columns.values()]
        self._length = shapes[0][0]
        self._empty = {
            name: numpy.empty((0, *shape[1:]), column.dtype)
            for (name, column), shape in zip(columns.items(), shapes, strict=True)
        }
        self._most = rows_in_block(sum(c.row_nbytes for c in columns.values()))
        self._blocks: Iterator[Columns] | None = None
        self._rest = self._empty
        self._position = 0

    def __getitem__(self, key: slice) -> Columns:
        start, stop, step = key.indices(self._length)
        if self._blocks is None or start < self._position:
            self._blocks, self._rest = iter(self._read()), self._empty
            self._position = 0
        while start > self._position:
            self._take(min(self._most, start - self._position))
        columns = self._take(max(0, stop - start))
        if self._position == self._length:
            self._fill()
            self._blocks = None
            if _length_of(self._rest):
                raise DamageError("expected '%d' rows, found more" % self._length)
        return {name: rows[::step] for name, rows in columns.items()}

    def only(self, names: Mapping[str, str]) -> Stream:
        """Return some columns, whose names here are the values of `names`."""

        def read() -> Iterator[Columns]:
            for block in self._read():
                yield {new: block[old] for new, old in names.items()}

        return Stream(read, {new: self._columns[old] for new, old in names.items()})

    def _fill(self) -> bool:
        """Read the next rows if there are none left; return whether there are some."""
        assert self._blocks is not None
        while not _length_of(self._rest):
            block = next(self._blocks, None)
            if block is None:
                return False
            self._rest = block
        return True

    def _take(self, count: int) -> Columns:
        """Return the next rows of each column."""
        parts: list[Columns] = []
        end = self._position + count
        while self._position < end:
            if not self._fill():
                text = "expected '%d' rows, found '%d'"
                raise DamageError(text % (self._length, self._position))
            count = end - self._position
            parts.append({n: rows[:count] for n, rows in self._rest.items()})
            self._rest = {n: rows[count:] for n, rows in self._rest.items()}
            self._position += _length_of(parts[-1])
        return {
            name: joined([part[name] for part in parts], empty.dtype, empty.shape[1:])
            for name, empty in self._empty.items()
        }


def _length_of(block: Columns) -> int:
    return len(next(iter(block.values())))


def array_stream(read: Callable[[], Iterable[Array]], array: Rows) -> Any:
    """Return an array-like of blocks of rows, or one item, that are read in order."""
    if not array.shape:
        return ByFunction(lambda _: joined([*read()], array.dtype, ()))
    stream = Stream(lambda: ({"": block} for block in read()), {"": array})
    return field_of(stream, "")


@dataclass(eq=False)
class Rows:
    """An array, or a table, that is read in blocks of rows.

    Attributes
    ----------
    dtype, shape
        Those of the array. A table has a field for each column, and one axis.
    array
        What reads the rows of a slice.
    attrs
        The attributes.
    fill_value
        The value of new items if the array is enlarged; None for zero.
    dims
        The names of the axes; None for no names.
    order
        ``"C"`` or ``"F"``, the order in which the source has the items. With ``"F"``,
        `array` reads slices of the last axis, too.
    columns
        The columns of a table by name; empty for an array.
    may_be_lost
        Whether the array is left out, and named, if the target can't hold it.
    text_nbytes
        About the number of bytes of a text of variable length; zero if unknown.
    asks_fill
        Whether other programs find the fill value in the source.
    """

    dtype: DType
    shape: tuple[int, ...]
    array: Any = None
    attrs: JsonObject = field(default_factory=dict)
    fill_value: object = None
    dims: Sequence[str | None] | None = None
    order: str = "C"
    columns: dict[str, Rows] = field(default_factory=dict)
    may_be_lost: bool = False
    text_nbytes: int = 0
    asks_fill: bool = True

    @property
    def kind(self) -> str:
        """``'array'`` or ``'table'``."""
        return "table" if self.columns else "array"

    @property
    def members(self) -> dict[str, Content]:
        """The columns of a table."""
        return {**self.columns}

    @property
    def masks(self) -> dict[str, str]:
        """The columns of a table with missing items, and the names of the masks."""
        masks, columns = masks_of(self.columns), self.columns.items()
        taken = {n: c for n, c in columns if n.startswith(NAME_TAKEN)}
        return {**masks, **{c.attrs[MASK_OF]: n for n, c in taken.items()}}

    @property
    def visible(self) -> dict[str, Rows]:
        """The columns of a table without masks."""
        masks = {*self.masks.values()}
        return {n: column for n, column in self.columns.items() if n not in masks}

    def masked(self, block: Any) -> Columns:
        """Return a block of rows by visible columns; those with a mask are masked."""
        columns = {name: block[name] for name in self.visible}
        for name, mask in self.masks.items():
            if name in columns:
                columns[name] = numpy.ma.array(columns[name], mask=block[mask])
        return columns

    @property
    def missing(self) -> Array:
        """The numbers that stand for missing items, by the attributes of netCDF."""
        dtype = self.dtype.newbyteorder("=")
        given = [numpy.array(self.attrs.get(n), "O").ravel() for n in FILLS]
        values = [
            v for v in chain(*given) if isinstance(v, (int, float)) and v - v == 0
        ]
        if dtype.kind in "iu":
            low, count = int(numpy.iinfo(dtype).min), 2 ** (8 * dtype.itemsize)
            values = [int(v) for v in values if v == int(v)]
            if UNSIGNED in self.attrs:
                values = [(v - low) % count + low for v in values]
            values = [v for v in values if low <= v < low + count]
        with numpy.errstate(over="ignore"):
            return numpy.unique(
                numpy.array(values if dtype.kind in "iuf" else [], dtype)
            )

    @property
    def codes(self) -> str:
        """How the numbers are stored by the attributes of netCDF, in words.

        Other programs know it of HDF5 and Zarr only. Empty for plain numbers.
        """
        if self.dtype.kind not in "iuf":
            return ""
        attrs, units = self.attrs, str(self.attrs.get("units"))
        packing = ["%s %s" % (name, attrs[name]) for name in PACKING if name in attrs]
        is_duration = str(attrs.get("dtype")).startswith("timedelta")
        words = ["packed (%s)" % ", ".join(packing)] * bool(packing)
        words += ["unsigned"] * (str(attrs.get(UNSIGNED)).lower() == "true")
        words += ["times ('%s')" % units] * (" since " in units)
        words += ["durations ('%s')" % units] * is_duration
        words += ["%s for a missing item" % n for n in self.missing.tolist()]
        return ", ".join(words)

    @property
    def fortran(self) -> bool:
        """Whether the items are in Fortran order in the source."""
        return self.order == "F" and len(self.shape) > 1

    @property
    def row_nbytes(self) -> int:
        """Number of plain bytes of a row, or about that number for text."""
        if self.columns:
            return sum(column.row_nbytes for column in self.columns.values())
        size = max(item_nbytes(self.dtype), self.text_nbytes)
        return math.prod(self.shape[1:]) * size

    @property
    def nbytes(self) -> int:
        """Number of plain bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def chunk_rows(self) -> int:
        """Number of rows that are compressed together; 1 if unknown."""
        chunks: tuple[int, ...] = getattr(self.array, "chunks", ())
        return max([1, *chunks[:1]])

    @property
    def has_fill_value(self) -> bool:
        """Whether the fill value is anything but zero."""
        if self.fill_value is None or self.dtype == TEXT:
            return bool(self.fill_value)
        return bool(numpy.array(self.fill_value, self.dtype).tobytes().strip(b"\0"))

    def __getitem__(self, key: Any) -> Array:
        items: Array = self.array[key]
        return items

    def blocks(self) -> Iterator[Array]:
        """Yield blocks of rows; an array without axes is one block."""
        if not self.shape:
            yield numpy.asarray(self.array[...])
            return
        factor = FORTRAN_FACTOR if self.fortran else 1
        step = rows_in_block(self.row_nbytes, self.chunk_rows, factor)
        for start in range(0, self.shape[0], step):
            rows = self.array[start : min(start + step, self.shape[0])]
            yield packed(rows, self.dtype) if self.columns else rows

    def read(self, step: int = 0) -> Iterator[Columns]:
        """Yield blocks of the columns of a table, of `step` rows if that is given."""
        step = step or rows_in_block(self.row_nbytes, self.chunk_rows)
        for start in range(0, self.shape[0], step):
            rows = self.array[start : min(start + step, self.shape[0])]
            yield {name: rows[name] for name in self.columns}

    def stored(self) -> Iterable[Array]:
        """Return blocks in the order of the source: in Fortran order, transposed."""
        if not self.fortran:
            return self.blocks()
        length = self.shape[-1]
        step = rows_in_block(self.nbytes // max(1, length))
        return (self.array[..., i : i + step].T for i in range(0, length, step))

    def part(self, rows: range) -> Rows:
        """Return some of the rows; the others are not read if that is possible."""

        def get(key: slice) -> Array:
            some = rows[key]
            items: Array = self.array[some.start : some.stop : some.step]
            return items

        shape = len(rows), *self.shape[1:]
        return replace(self, shape=shape, array=ByFunction(get), order="C")

    def only(self, names: Iterable[str] | Mapping[str, str]) -> Rows:
        """Return a table of some columns; the others are not read if possible.

        A mapping gives columns new names, which are its keys. The masks of these
        columns are behind the others.
        """
        olds = dict(names) if isinstance(names, Mapping) else {n: n for n in names}
        taken = {*olds.values()}
        for name, mask in self.masks.items():
            if name in taken and mask not in taken:
                olds[mask] = mask
        columns = {new: self.columns[old] for new, old in olds.items()}
        table = new_table(columns, self.shape[0], None, self.attrs)
        if isinstance(self.array, Stream):
            table.array = self.array.only(olds)
        elif not isinstance(self.array, ByColumns):
            array = self.array

            def get(key: Any) -> Any:
                rows = array[key]
                return {new: rows[old] for new, old in olds.items()}

            table.array = ByFunction(get, getattr(array, "chunks", ()))
        return table


@dataclass(eq=False)
class Members:
    """A group: arrays, tables and groups by name."""

    members: dict[str, Content]
    attrs: JsonObject = field(default_factory=dict)

    kind: ClassVar[str] = "group"

    @property
    def masks(self) -> dict[str, str]:
        """The arrays with missing items, and the names of the masks."""
        return masks_of({n: m for n, m in self.members.items() if m.kind == "array"})

    @property
    def nbytes(self) -> int:
        """Number of plain bytes of all members."""
        return sum(member.nbytes for member in self.members.values())


def new_table(
    columns: Mapping[str, Rows],
    length: int,
    read: Callable[[], Iterable[Columns]] | None,
    attrs: JsonObject | None = None,
) -> Rows:
    """Return a table of columns.

    `read` yields blocks of rows, by the names of columns. If it is None, each column is
    read by itself.
    """
    if not columns:
        raise UsageValueError(NO_COLUMN)
    # Copies, and no functions that know the table: a cycle would keep files open.
    table = Rows(dtype_of_rows(columns), (length,), attrs=attrs or {})
    table.columns = {name: replace(column) for name, column in columns.items()}
    if read is not None:
        table.array = Stream(read, columns)
    else:
        arrays = {name: column.array for name, column in columns.items()}
        chunks = [getattr(array, "chunks", ()) for array in arrays.values()]
        table.array = ByColumns(arrays, max((n[:1] for n in chunks), default=()))
    return table


def packed(rows: Any, dtype: DType) -> Array:
    """Return rows of columns, some of which may be left out, as items with fields."""
    if isinstance(rows, numpy.ndarray) and rows.dtype == dtype:
        return rows
    columns = {name: rows[name] for name in dtype.names or ()}
    items: Array = numpy.empty(max(map(len, columns.values()), default=0), dtype)
    for name in columns:
        items[name] = columns[name]
    return items


def nodes_of(
    content: Content, name: str = "", *, splits: bool = False
) -> Iterator[tuple[str, Content]]:
    """Yield the contents and all members and columns, with slashes in their names.

    With `splits`, an array with fields has columns, too.
    """
    if splits and is_table(content):
        content = as_table(content)
    yield name, content
    for inner, member in content.members.items():
        yield from nodes_of(member, inside(name, inner), splits=splits)


def member_of(content: Content, name: str) -> Content:
    """Return a member; one with missing items as a table, which has its mask, too."""
    if name not in content.masks:
        return content.members[name]
    if isinstance(content, Rows):
        return content.only([name])
    columns = {n: content.members[n] for n in (name, content.masks[name])}
    return joined_arrays(Members(columns)) or content.members[name]


def inside(name: str, inner: str) -> str:
    """Return the name of a member or a field of something; its name may be empty."""
    return "%s/%s" % (name, inner) if name else inner


# From kind to kind


def with_rows(rows: Rows) -> Rows:
    """Return an array; one without axes gets an axis of length 1."""
    if rows.shape:
        return rows
    array = ByFunction(lambda key: numpy.reshape(rows.array[...], 1)[key])
    return replace(rows, shape=(1,), array=array)


def is_table(content: Content) -> bool:
    """Return whether the content is a table, or an array with fields and one axis."""
    if not isinstance(content, Rows):
        return False
    return content.dtype.names is not None and len(content.shape) == 1


def as_table(content: Content) -> Rows:
    """Return an array as a table.

    Each field becomes a column, with the fill value of the field. An array without
    fields has one column, ``"0"``, and with two axes as many columns as items in a row.
    Raises `UsageError` for others.
    """
    assert isinstance(content, Rows)
    if content.columns:
        return content
    dtype, shape, width = content.dtype, content.shape, math.prod(content.shape[1:])
    if len(shape) not in (1, 2) or (dtype.names and len(shape) == 2):
        raise UsageTypeError(
            "an array of shape %s and dtype '%s' can't become a table: expected one or "
            "two axes" % (shape, dtype)
        )
    if dtype.names == ():
        raise UsageValueError(NO_COLUMN)
    if not width:
        raise UsageValueError("an array without items in a row can't become a table")
    if dtype.names is None:
        if width > MAX_COLUMNS:
            raise UsageValueError(
                "expected at most '%d' items in a row of an array that becomes a "
                "table, found '%d'" % (MAX_COLUMNS, width)
            )
        dtype = numpy.dtype([(str(number), dtype) for number in range(width)])

    def get(key: Any) -> Array:
        block = numpy.ascontiguousarray(content.array[key])
        block = block.reshape(len(block), width)
        if dtype.hasobject and content.dtype.names is None:
            return packed(dict(zip(dtype.names or (), block.T, strict=True)), dtype)
        return block.view(dtype).reshape(-1)

    table = replace(content, dtype=dtype, shape=shape[:1], dims=None, columns={})
    fill: Array | None = None
    if dtype != content.dtype:
        chunks = getattr(content.array, "chunks", ())
        table.array, table.order = ByFunction(get, chunks), "C"
    elif content.fill_value is not None:
        fill = numpy.zeros((), dtype)
        fill[...] = content.fill_value
    for name in dtype.names or ():
        base, inner = dtype[name].base, dtype[name].shape
        column = Rows(base, (*shape[:1], *inner), field_of(table.array, name))
        column.fill_value = None if fill is None else fill[name]
        column.asks_fill = content.asks_fill
        table.columns[name] = column
    return table


def without_group(
    content: Content,
    note_loss: Callable[[str], object] = str,
    unnamed: str | None = None,
) -> Content:
    """Return contents for a format that can't hold groups, if there are any.

    A group of one member becomes that member, and a group of arrays of the same length
    a table. If `unnamed` is given, the name of an array that has none, a group of one
    array with one axis and another name becomes a table, too. `note_loss` is told if
    the attributes of a group are left out.
    """
    while isinstance(content, Members) and len(content.members) == 1:
        ((name, member),) = content.members.items()
        is_array = isinstance(member, Rows) and len(member.shape) == 1
        has_name = unnamed is not None and name != unnamed
        if has_name and is_array and not is_table(member):
            break
        if content.attrs:
            note_loss("the attributes of the group")
        content = member
    return joined_arrays(content) or content


def joined_arrays(content: Content) -> Rows | None:
    """Return a group of arrays of the same length as a table; None for others."""
    arrays = {
        name: member
        for name, member in content.members.items()
        if isinstance(member, Rows) and not member.columns and member.shape
    }
    lengths = {array.shape[0] for array in arrays.values()}
    is_group = isinstance(content, Members) and len(arrays) == len(content.members)
    if not is_group or len(lengths) != 1:
        return None
    return new_table(arrays, lengths.pop(), None, content.attrs)
