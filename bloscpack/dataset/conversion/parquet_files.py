"""Parquet files, through pyarrow, and columns of text of any format.

Row groups are read in batches and written one for each block. Attributes are metadata
of the schema and of its fields: texts under their own names, and others as JSON under
the key of this package. A folder of files is one table.

Strategy: a value is the same or refused, and what gets lost is named.

A column of text becomes an array with items of one length, unless the target has text
of variable length.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from glob import glob
from itertools import accumulate
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy

from ..._compat import import_extra
from ..._format.dtypes import Array, DType, exact_up_to
from ..._format.other_formats import PARQUET
from ..._format.text import TEXT, empty_item
from ..._storage.local import begins_with
from ..._types import JsonObject
from ...exceptions import DamageError, DoesNotFit, UsageTypeError, UsageValueError
from ...log import counted
from ...serializers import parse_json
from ..arrow_arrays import (
    ARROW,
    ATTRIBUTES,
    OWN_KEYS,
    PANDAS,
    arrow_array,
    arrow_type,
    metadata_of,
)
from ..columns import MASK_OF, naming_column
from ..items import ENDS_IN_ZERO, converted, text_or
from .contents import (
    NO_NAME,
    Columns,
    Content,
    Request,
    Rows,
    Stream,
    as_table,
    check_encodable,
    field_of,
    naming_file,
    new_table,
    rows_in_block,
)

if TYPE_CHECKING:
    import pyarrow
    from pyarrow.parquet import ColumnChunkMetaData, FileMetaData, ParquetFile

# Padding all texts to the length of the longest one may make a column as large as this
# in bytes, or this multiple of the size of the texts.
MAX_PADDED = 2**34
MAX_TIMES_PADDED = 100
# Maximum size in bytes of a row of a column with more axes.
MAX_ROW_NBYTES = 2**26
# Row groups of more bytes of lists have at most this number for each stored one.
MAX_GROUP_NBYTES, MAX_RATIO = 2**28, 1032
# Maximum number of rows whose texts are measured at a time: of texts that are in the
# memory once, and of others.
SHARED_ROWS, SINGLE_ROWS = 2**16, 2**4
BOOL, FLOAT = numpy.dtype("?"), numpy.dtype("f8")
# Text of the length of the longest value.
UNSIZED = (numpy.dtype("U"), numpy.dtype("S"))
# A block of rows has about this number of bytes of text of variable length at most. The
# sizes of texts are kept for as many rows together.
BLOCK_TEXT_NBYTES, ROWS_TOGETHER = 32 * 2**20, 256
# Number of bytes that are buffered for a column while it is read.
BUFFER_NBYTES = 2**20
# The names under which pandas stores the levels of an index that have none.
UNNAMED = re.compile("__index_level_[0-9]+__")
# The types of text and of bytes of any length.
TEXT_TYPES = {
    **dict.fromkeys(("string", "large_string", "string_view"), "U"),
    **dict.fromkeys(("binary", "large_binary", "binary_view"), "S"),
}
# Types that few functions of pyarrow take, and those of the same values.
VIEWS = {"string_view": "large_string", "binary_view": "large_binary"}
# The kinds of items that can have the values of each kind.
BECOMES = {
    "b": "b", "i": "iufcm", "u": "iufcm", "f": "fc", "c": "c", "m": "m", "M": "M",
    "U": "biufM", "S": "biuf", "V": "V",
}  # fmt: skip
# Number of each unit in a second, the finest first.
UNITS = {"ns": 10**9, "us": 10**6, "ms": 1000, "s": 1}
# Maximum number of rows of a batch, which pyarrow takes as 64 bits.
MAX_ROWS = 2**31
# Files and folders that are no part of a table, the ends of those that are, and a
# missing value and an integer in the name of a folder.
HIDDEN, SUFFIXES = (".", "_"), (".parquet", ".pq")
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
WHOLE_NUMBER = re.compile("0|-?[1-9][0-9]{0,17}")
INEXACT_TEXT = "the integer '%.100s' does not fit the dtype '%s' exactly"
LEAVES_OUT = "--exclude '%s' leaves it out"


# Reading


def is_folder(path: str) -> bool:
    """Return whether the Parquet files in a folder, or in folders inside, are a table.

    They are none where a document says which of them count.
    """
    is_iceberg = bool(glob("*.metadata.json", root_dir=os.path.join(path, "metadata")))
    return not is_iceberg and next(_files_in(path), None) is not None


def _files_in(path: str) -> Iterator[str]:
    """Yield the Parquet files in a folder; names as ``_metadata`` are of no rows.

    Hive gives them names without an end.
    """
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(n for n in folders if not n.startswith(HIDDEN))
        for name in sorted(n for n in names if not n.startswith(HIDDEN)):
            file = os.path.join(folder, name)
            if name.lower().endswith(SUFFIXES) or begins_with(file, PARQUET):
                yield file


def _named(path: str) -> AbstractContextManager[None]:
    """Add the name of the file to errors, those of pyarrow among them."""
    wrong = _pyarrow().ArrowException, OSError, UnicodeDecodeError
    return naming_file(path, *wrong)


def _pyarrow(module: str = "pyarrow") -> ModuleType:
    """Return a module of pyarrow; raise `UsageError` without it."""
    return import_extra(module, "tables", "Parquet needs the package %s")


@dataclass(eq=False)
class _Column(Rows):
    """A column of a table.

    Attributes
    ----------
    file_name
        The name of the column in the source.
    is_mask
        Whether the items say which values are missing.
    has_mask
        Whether another column does so: then missing values become zero.
    """

    file_name: str = ""
    is_mask: bool = False
    has_mask: bool = False

    def items(self, array: pyarrow.Array) -> Array:
        """Return an array of Arrow as one of NumPy."""
        count, array = len(array), _stored(array)
        if self.is_mask:
            return numpy.asarray(array.is_null())
        for _ in self.shape[1:]:
            array = _stored(_whole(array, self.file_name).flatten())
        with naming_column(self.file_name):
            array = _cast(array, self.dtype)
        if self.has_mask:  # the value in the place of a missing one
            dtype = numpy.dtype(_dtype_name(array.type) or "i8")
            array = array.fill_null(numpy.array(empty_item(dtype), dtype).item())
        elif self.dtype.kind not in "fmM":
            array = _whole(array, self.file_name)
        items = _items(array, self.dtype, self.file_name)
        if items.dtype != self.dtype:
            with naming_column(self.file_name):
                items = converted(items, self.dtype)
        return items.reshape(count, *self.shape[1:])


def read(path: str, request: Request) -> Content:
    """Return the table in a file, or in the files of a folder."""
    with _named(path):
        source = _Source(path, request)
        length = source.length
        names = _names(source, request)
        all_names = {*names.values()}
        wanted = {*request.wanted_columns(names.values())}
        names = {n: name for n, name in names.items() if name in wanted}
        source.choose_unit([source.schema.names[number] for number in names])
        schema = source.schema
        has_text = not request.fixed_text
        types = {
            number: _dtype_of(
                schema.field(number), length, has_text, request.dtypes.get(name)
            )
            for number, name in names.items()
        }
        unsized = (*UNSIZED, TEXT)
        texts = {number for number, (dtype, _) in types.items() if dtype in unsized}
        # A long text that many rows refer to is in the memory once, if possible.
        shared = {
            number
            for number in texts
            if not any(
                "DELTA" in "".join(chunk.encodings)
                for _, chunk in source.chunks(schema.names[number])
            )
        }
        once = [schema.names[number] for number in shared]
        columns: dict[str, _Column] = {}
        for number, name in names.items():
            field, (dtype, inner) = schema.field(number), types[number]
            chunks = source.chunks(field.name)
            count = math.prod(inner)
            if count and any(c.num_values != rows * count for rows, c in chunks):
                raise _missing(field.name)  # before a row of nothing is made
            for _, chunk in chunks if inner else ():
                _check_group(field.name, chunk, dtype)
            # Other types have NaN or NaT for missing values.
            stored = getattr(field.type, "storage_type", field.type)
            can_mask = not _pyarrow().types.is_nested(stored)
            can_mask = can_mask and dtype.kind not in "fmM"
            has_nulls, lengths = False, Lengths()
            if number in texts or can_mask:
                nbytes = [c.total_uncompressed_size // max(1, n) for n, c in chunks]
                most = SINGLE_ROWS if number in texts - shared else SHARED_ROWS
                step = min(most, rows_in_block(max([dtype.itemsize, *nbytes])))
                for batch in source.batches(step, [field.name], once):
                    array = _stored(batch[field.name], decodes=False)
                    if number in texts and _pyarrow().types.is_decimal(array.type):
                        array = array.cast(_pyarrow().string())
                    has_nulls = has_nulls or array.null_count > 0
                    if has_nulls and not can_mask:
                        raise _missing(field.name)
                    if number in texts:
                        lengths.add_lengths(lengths_of(array, dtype.kind))
            if dtype in UNSIZED:
                dtype = lengths.dtype(field.name, dtype.kind)
            of = "the column '%s'" % field.name
            for what in _not_kept(field):
                request.note_loss("%s of %s" % (what, of))
            attrs = _attributes(field.metadata, path, of, request)
            arrays = {name: _Column(dtype, (length, *inner), attrs=attrs)}
            arrays[name].text_nbytes = lengths.text_nbytes if dtype == TEXT else 0
            if has_nulls:
                attrs = {MASK_OF: name}
                mask = request.mask_name(name, all_names)
                arrays[mask] = _Column(BOOL, (length,), attrs=attrs)
            for key, column in arrays.items():
                if not (key or key in request.rename):
                    raise UsageValueError("expected names of columns, found " + NO_NAME)
                if key in columns:
                    raise UsageValueError("there are two columns '%s'" % key)
                column.file_name, column.has_mask = field.name, has_nulls
                column.is_mask = key != name
                read_column = partial(_blocks, source, path, {key: replace(column)})
                column.array = field_of(Stream(read_column, {key: column}), key)
                columns[key] = column
        attrs = _attributes(schema.metadata, path, "the table", request)
        of_frame = source.pandas.get("attributes")
        attrs = {**(of_frame if isinstance(of_frame, dict) else {}), **attrs}
    return new_table(columns, length, partial(_blocks, source, path, columns), attrs)


class _Source:
    """A file, or the files in a folder, whose rows follow one another.

    Attributes
    ----------
    schema
        That of the first file, and behind it the columns that no file has: the numbers
        that pandas has as an index, and the values in the names of folders.
    length
        Number of rows.
    pandas
        What pandas states of its index and of its columns, if it wrote the first file.
    """

    def __init__(self, path: str, request: Request) -> None:
        self._path, self._unit, self._handle = path, "ns", None
        self._paths = [*_files_in(path)] if os.path.isdir(path) else [path]
        if len(self._paths) == 1:  # another file may replace this one meanwhile
            opened = _pyarrow().OSFile(self._paths[0])
            self._handle = request.resources.enter_context(opened)
        self._metadata: dict[str, FileMetaData] = {}
        self._leaves: dict[str, dict[str, int]] = {}
        schemas: dict[str, pyarrow.Schema] = {}
        for name in self._paths:
            with _named(name), self._opened(name) as file:
                self._metadata[name] = file.metadata
                schema = schemas[name] = file.schema_arrow
            counts = accumulate(map(_nleaves, schema.types), initial=0)
            self._leaves[name] = dict(zip(schema.names, counts, strict=False))
        self.schema: pyarrow.Schema = schemas[self._paths[0]]
        self._in_files = self.schema.names
        self.length: int = sum(m.num_rows for m in self._metadata.values())
        self.pandas = _pandas_of(self.schema)
        # Columns that are in no file: numbers of all rows, and values of each file.
        self._numbers: dict[str, range] = {}
        self._values: dict[str, dict[str, Any]] = {}
        if os.path.isdir(path):
            self._join(schemas, request)
            self._add_folders(request)

    def _join(self, schemas: Mapping[str, pyarrow.Schema], request: Request) -> None:
        """Raise `UsageError` for a file whose columns differ from those of others."""
        types, first = _pyarrow().types, self._paths[0]
        for name, schema in schemas.items():
            if sorted(schema.names) != sorted(self._in_files):
                raise UsageValueError(
                    "expected files with the same columns, found %s in '%s' and %s in "
                    "'%s'"
                    % (", ".join(self._in_files), first, ", ".join(schema.names), name)
                )
            for number, field in enumerate(self.schema):
                if not request.wants(field.name):
                    continue
                other = schema.field(field.name)
                if types.is_null(field.type):  # a column of pandas without values
                    self.schema = self.schema.set(number, other)
                elif not types.is_null(other.type) and _kind(other) != _kind(field):
                    raise UsageTypeError(
                        "the column '%s' has the type '%s' in '%s', and '%s' in '%s'; "
                        "convert %s"
                        % (
                            *(field.name, field.type, first, other.type, name),
                            LEAVES_OUT % field.name,
                        )
                    )

    def _add_folders(self, request: Request) -> None:
        """Add a column for each key in the names of folders, as in ``year=2024``."""
        pyarrow = _pyarrow()
        for name in self._paths:
            parts = os.path.relpath(name, self._path).split(os.sep)[:-1]
            pairs = [unquote(part).partition("=") for part in parts]
            self._values[name] = {key: value for key, mark, value in pairs if mark}
            if len(self._values[name]) < len(parts):
                request.note_loss("the names of folders without '='")
            if self._values[name].keys() != self._values[self._paths[0]].keys():
                raise UsageValueError(
                    "expected files in folders of the same keys, found '%s' and '%s'"
                    % (self._paths[0], name)
                )
        for key in self._values[self._paths[0]]:
            if key in self.schema.names:
                raise UsageValueError(
                    "the column '%s' is in the files, and in the names of folders" % key
                )
            all_values = self._values.values()
            for values in all_values:
                values[key] = None if values[key] == NO_VALUE else values[key]
            texts = {values[key] for values in all_values} - {None}
            kind = pyarrow.string()
            if texts and all(map(WHOLE_NUMBER.fullmatch, texts)):
                is_short = max(map(len, texts)) < len(str(2**31))
                kind = pyarrow.int32() if is_short else pyarrow.int64()
                for values in all_values:
                    values[key] = None if values[key] is None else int(values[key])
            self.schema = self.schema.append(pyarrow.field(key, kind))

    def add_numbers(self, name: str, numbers: range) -> None:
        """Add a column of numbers, which is in no file."""
        pyarrow = _pyarrow()
        self._numbers[name] = numbers
        self.schema = self.schema.append(pyarrow.field(name, pyarrow.int64()))

    def _opened(self, name: str, once: Sequence[str] = ()) -> ParquetFile:
        """Open a file; each different text of the columns `once` is read once."""
        return _pyarrow("pyarrow.parquet").ParquetFile(
            self._handle or name,
            metadata=self._metadata.get(name),
            buffer_size=BUFFER_NBYTES,
            pre_buffer=False,
            read_dictionary=list(once),
            coerce_int96_timestamp_unit=self._unit,
            page_checksum_verification=True,
        )

    def chunks(self, name: str) -> list[tuple[int, ColumnChunkMetaData]]:
        """Return the chunks of a column in the files, and their numbers of rows."""
        if name not in self._in_files:
            return []
        return [
            (group.num_rows, group.column(self._leaves[path][name]))
            for path, metadata in self._metadata.items()
            for group in map(metadata.row_group, range(metadata.num_row_groups))
        ]

    def choose_unit(self, names: Sequence[str]) -> None:
        """Choose the unit of times of 96 bits, which Arrow can't hold.

        It is the finest one that holds all of them. Raises `UsageError` for none.
        """
        first = self._paths[0]
        parquet, leaves = self._metadata[first].schema, self._leaves[first]
        names = [
            name
            for name in names
            if name in leaves
            and parquet.column(leaves[name]).physical_type == "INT96"
            and _dtype_of(self.schema.field(name), self.length, False)
        ]
        if not names:
            return
        rows = [_shape_of(self.schema.field(name).type)[0] for name in names]
        step = rows_in_block(8 * sum(map(math.prod, rows)))
        units = [*UNITS]
        in_seconds = copy(self)
        in_seconds._unit = "s"
        for exact, wrapped in zip(
            in_seconds.batches(step, names), self.batches(step, names), strict=True
        ):
            for name, inner in zip(names, rows, strict=True):
                seconds = _integers(exact[name], inner)
                numbers = _integers(wrapped[name], inner)
                rest = numbers - seconds * 10**9  # both wrap in the same way
                for unit in [*units]:
                    fits = abs(seconds) < 2**63 // UNITS[unit]
                    if unit == "ns":
                        fits = numbers // 10**9 == seconds
                    if not (fits & (rest % (10**9 // UNITS[unit]) == 0)).all():
                        units.remove(unit)
                if not units:
                    raise UsageValueError(
                        "the column '%s' has times that are too far for the units "
                        "that hold the others; convert %s" % (name, LEAVES_OUT % name)
                    )
        self._unit = units[0]
        with self._opened(first) as file:
            for name in names:
                number = self.schema.names.index(name)
                self.schema = self.schema.set(number, file.schema_arrow.field(name))

    def batches(
        self, step: int, names: Sequence[str], once: Sequence[str] = ()
    ) -> Iterator[dict[str, pyarrow.Array]]:
        """Yield arrays of at most `step` rows of some columns."""
        pyarrow, start = _pyarrow(), 0
        stored = [name for name in names if name in self._in_files]
        once = [name for name in once if name in stored]
        for path in self._paths:
            with _named(path), self._opened(path, once) as file:
                rows = range(file.metadata.num_rows)
                batches: Any = (rows[i : i + step] for i in rows[::step])
                if stored:
                    batches = file.iter_batches(min(step, MAX_ROWS), columns=stored)
                for batch in batches:
                    count, columns = len(batch), {}
                    for name in names:
                        kind = self.schema.field(name).type
                        if name in self._numbers:
                            numbers = self._numbers[name][start : start + count]
                            columns[name] = pyarrow.array(numbers, kind)
                        elif name not in stored:
                            value = pyarrow.scalar(self._values[path][name], kind)
                            columns[name] = pyarrow.repeat(value, count)
                        else:
                            columns[name] = batch.column(name)
                            columns[name].validate(full=True)
                            if pyarrow.types.is_null(columns[name].type):
                                columns[name] = columns[name].cast(kind)
                    start += count
                    yield columns


def _nleaves(stored_type: pyarrow.DataType) -> int:
    """Return the number of columns that Parquet has for a type."""
    stored_type = getattr(stored_type, "storage_type", stored_type)
    if _pyarrow().types.is_dictionary(stored_type) or not stored_type.num_fields:
        return 1
    return sum(
        _nleaves(stored_type.field(i).type) for i in range(stored_type.num_fields)
    )


def _integers(times: pyarrow.Array, inner: tuple[int, ...]) -> Array:
    """Return times as integers, zero where they are missing."""
    for _ in inner:
        times = times.flatten()
    return numbers_of(times.cast(_pyarrow().int64()).fill_null(0))


# Names, the index of pandas, and metadata


def _pandas_of(schema: pyarrow.Schema) -> JsonObject:
    """Return what pandas states in a schema; nothing if that is wrong."""
    try:
        value = parse_json((schema.metadata or {}).get(PANDAS, b"{}"))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _names(source: _Source, request: Request) -> dict[int, str]:
    """Return the names of the columns by their numbers in the source.

    pandas stores an index without a name under a name that other programs reserve, and
    one of a range in its metadata. It is left out if it just numbers the rows.
    """
    names = dict(enumerate(source.schema.names))
    if PANDAS not in (source.schema.metadata or {}):
        return names
    levels = [number for number, name in names.items() if UNNAMED.fullmatch(name)]

    def name_of(level: int) -> str:
        is_free = len(levels) < 2 and "index" not in names.values()
        return "index" if is_free else "level_%d" % level

    for level, number in enumerate(levels):
        stored = names[number]
        if len(levels) == 1 and _is_numbers(source, number):
            del names[number]
            continue
        names[number] = name_of(level)
        if request.wants(names[number]):
            text = "the name '%s', which becomes '%s'" % (stored, names[number])
            request.note_loss(text)
    for column in source.pandas.get("column_indexes") or ():
        if isinstance(column, dict) and column.get("name") is not None:
            request.note_loss("the name '%s' of the columns" % column["name"])
    for index in source.pandas.get("index_columns") or ():
        if not isinstance(index, dict) or index.get("kind") != "range":
            continue
        try:
            numbers = range(index["start"], index["stop"], index["step"])
        except (KeyError, TypeError, ValueError):
            continue
        name = index.get("name")
        if name is None and numbers == range(len(numbers)):
            continue
        name = name_of(0) if name is None else str(name)
        ends = numbers.start, numbers.stop, numbers.step
        if len(numbers) != source.length or max(map(abs, ends)) >= 2**63:
            request.note_loss("the index of pandas, %s" % numbers)
            continue
        source.add_numbers(name, numbers)
        names[len(names)] = name
    return names


def _is_numbers(source: _Source, number: int) -> bool:
    """Return whether a column has the integers 0, 1, 2 and so on."""
    field, start = source.schema.field(number), 0
    if not _pyarrow().types.is_integer(field.type):
        return False
    for batch in source.batches(SHARED_ROWS, [field.name]):
        array = batch[field.name]
        numbers = numpy.arange(start, start := start + len(array))
        if array.null_count or (numbers != numbers_of(array)).any():
            return False
    return True


def _attributes(
    metadata: dict[bytes, bytes] | None, path: str, of: str, request: Request
) -> JsonObject:
    """Return metadata of a schema or a field as attributes."""
    texts = {}
    for key, value in (metadata or {}).items():
        if key in OWN_KEYS or key.startswith(ARROW):
            continue
        try:
            texts[key.decode()] = value.decode()
        except UnicodeDecodeError:
            request.note_loss("the metadata %r of %s" % (key, of))
    try:
        ours = parse_json((metadata or {}).get(ATTRIBUTES, b"{}"))
    except ValueError as error:
        raise DamageError("attributes: %s" % error, filename=path) from error
    return {**texts, **(ours if isinstance(ours, dict) else {})}


def _not_kept(field: pyarrow.Field) -> Iterator[str]:
    """Yield what NumPy can't hold of the type of a column, in words."""
    stored_type = field.type
    if getattr(stored_type, "tz", None) is not None:
        yield "the time zone"
    if getattr(stored_type, "ordered", False):
        yield "the order of the categories"
    name = (field.metadata or {}).get(b"ARROW:extension:name", b"").decode("latin1")
    name = getattr(stored_type, "extension_name", name)
    if name:
        yield "the type '%s'" % name


# Types and items


def _shape_of(
    stored_type: pyarrow.DataType,
) -> tuple[tuple[int, ...], pyarrow.DataType]:
    """Return the shape of a row, and the type of its items."""
    types, inner = _pyarrow().types, tuple[int, ...]()
    stored_type = getattr(stored_type, "storage_type", stored_type)
    while types.is_fixed_size_list(stored_type):
        inner, stored_type = (*inner, stored_type.list_size), stored_type.value_type
        stored_type = getattr(stored_type, "storage_type", stored_type)
    return inner, stored_type


def _kind(field: pyarrow.Field) -> object:
    """Return what must be the same in all files of a table."""
    inner, stored_type = _shape_of(field.type)
    name = _dtype_name(stored_type) or str(stored_type)
    return inner, name, getattr(stored_type, "tz", None)


def _dtype_of(
    field: pyarrow.Field, length: int, has_text: bool, wanted: DType | None = None
) -> tuple[DType, tuple[int, ...]]:
    """Return type and shape of the rows of a column; fixed text has no length yet.

    `wanted` is the type that the user gave. Raises `UsageError` for other types.
    """
    types, (inner, stored_type) = _pyarrow().types, _shape_of(field.type)
    name, advice = _dtype_name(stored_type), ""
    is_null = types.is_null(stored_type)
    if is_null and not inner:  # text of pandas, if there are no rows
        text = "--dtype '%s=f8', or another type, makes them missing items of it, and "
        advice = text % field.name
        name = "U" if wanted is not None or not length else None
    elif name is None and types.is_decimal(stored_type):
        text = "--dtype '%s=f8' makes its items floats, '%s=U' text, and "
        advice = text % (field.name, field.name)
        if wanted is not None and wanted.kind in "fiuUSO":
            name = "U" if wanted.kind in "USO" else wanted.str
    elif name is None and types.is_time(stored_type):
        text = "--dtype '%s=m8[%s]' makes its items durations since midnight, and "
        advice = text % (field.name, stored_type.unit)
        name = None if wanted is None or wanted.kind != "m" else wanted.str
    if name is None or (inner and name in UNSIZED):
        of_null = ", all of whose values are missing" * is_null
        texts = field.name, field.type, of_null, advice, LEAVES_OUT % field.name
        raise UsageTypeError(
            "an array can't hold the column '%s' of type '%.200s'%s; convert %s%s"
            % texts
        )
    dtype = text_or(numpy.dtype(name), has_text)
    if wanted is not None:
        is_text = name in UNSIZED
        if is_text and wanted.kind in "USO":
            # Text of another kind is converted by the writer, if that is possible.
            dtype = wanted if wanted.itemsize and wanted.kind == name else dtype
        elif (inner and is_text) or not (
            is_null or wanted.kind in BECOMES[numpy.dtype(name).kind]
        ):
            raise UsageTypeError(
                "the column '%s' of type '%.200s' can't become items of dtype '%s'"
                % (field.name, field.type, wanted)
            )
        else:
            dtype = wanted
    _check_row(field.name, dtype, inner)
    return dtype, inner


def _check_row(name: str, dtype: DType, inner: tuple[int, ...]) -> None:
    """Raise `UsageError` for a column whose rows are too large to be read."""
    # pyarrow also makes room for lists without items.
    if math.prod(max(1, count) for count in inner) * dtype.itemsize > MAX_ROW_NBYTES:
        raise UsageTypeError(
            "column '%s': a row has more than '%d' bytes" % (name, MAX_ROW_NBYTES)
        )


def _check_group(name: str, chunk: ColumnChunkMetaData, dtype: DType) -> None:
    """Raise `UsageError` for lists of which a single row can fill the memory.

    Which row has how many items of a row group is known when they are decoded.
    """
    nbytes, stored = chunk.num_values * dtype.itemsize, chunk.total_compressed_size
    if nbytes > max(MAX_GROUP_NBYTES, MAX_RATIO * stored):
        raise UsageValueError(
            "column '%s': a row group has '%d' bytes of lists in '%d' stored bytes, "
            "expected at most '%d' times as many: write the file again, with smaller "
            "row groups" % (name, nbytes, stored, MAX_RATIO)
        )


def _dtype_name(stored_type: pyarrow.DataType) -> str | None:
    """Return the name of a dtype for a type of Arrow; None if there is none."""
    types = _pyarrow().types
    if types.is_dictionary(stored_type):
        stored_type = stored_type.value_type
    name = TEXT_TYPES.get(str(stored_type))
    if name is not None:
        return name
    if types.is_fixed_size_binary(stored_type):
        return "V%d" % stored_type.byte_width
    if types.is_date(stored_type):
        return "M8[D]" if types.is_date32(stored_type) else "M8[ms]"
    if types.is_timestamp(stored_type):
        return "M8[%s]" % stored_type.unit
    if types.is_duration(stored_type):
        return "m8[%s]" % stored_type.unit
    if (
        types.is_boolean(stored_type)
        or types.is_integer(stored_type)
        or types.is_floating(stored_type)
    ):
        return str(numpy.dtype(stored_type.to_pandas_dtype()).str)
    return None


def _blocks(
    source: _Source, path: str, columns: Mapping[str, _Column]
) -> Iterator[Columns]:
    """Yield blocks of rows of some columns."""
    step = rows_in_block(sum(column.row_nbytes for column in columns.values()))
    wanted = list({column.file_name: None for column in columns.values()})
    with _named(path):
        for batch in source.batches(step, wanted):
            yield {
                name: column.items(batch[column.file_name])
                for name, column in columns.items()
            }


def _stored(array: pyarrow.Array, decodes: bool = True) -> pyarrow.Array:
    """Return an array of Arrow without an extension type, a view or a dictionary.

    Missing values without a type become text.
    """
    array = getattr(array, "storage", array)
    if _pyarrow().types.is_null(array.type):
        array = array.cast(_pyarrow().string())
    if decodes and hasattr(array, "dictionary"):
        array = array.dictionary_decode()
    kind = VIEWS.get(str(array.type))
    return array if kind is None else array.cast(getattr(_pyarrow(), kind)())


def _cast(array: pyarrow.Array, dtype: DType) -> pyarrow.Array:
    """Return values in a type of Arrow whose items NumPy can convert to a dtype."""
    pyarrow, given = _pyarrow(), array.type
    types, kind = pyarrow.types, dtype.kind
    try:
        if types.is_time(given):
            whole = pyarrow.int32() if types.is_time32(given) else pyarrow.int64()
            array = array.cast(whole).cast(pyarrow.int64())
            return array.cast(pyarrow.duration(given.unit))
        if types.is_decimal(given) and kind == "f":
            array = array.cast(pyarrow.string())  # text is rounded once
        is_text = str(array.type) in TEXT_TYPES and kind not in "USO"
        if is_text and array.null_count == len(array):
            return _pyarrow().nulls(len(array), arrow_type(dtype, (), ""))
        if is_text or types.is_decimal(given):
            items = array.cast(arrow_type(dtype, (), ""))
            if is_text and kind == "f":
                fits = are_exact(array, items.to_numpy(zero_copy_only=False))
                if not fits.all():
                    text = array[int(numpy.argmin(fits))].as_py()
                    raise DoesNotFit(INEXACT_TEXT % (text, dtype))
            return items
        if kind == "f" and not types.is_floating(given):
            if types.is_integer(given):
                converted(numbers_of(array.drop_null()), min(dtype, FLOAT))
            return array.cast(pyarrow.float64(), safe=False)  # NaN for missing ones
    except pyarrow.ArrowException as error:
        raise DoesNotFit("a value does not fit '%s': %s" % (dtype, error)) from error
    return array


def _items(array: pyarrow.Array, dtype: DType, name: str) -> Array:
    """Return an array of Arrow as items of its own type, or as text of `dtype`."""
    if dtype.kind in "USO":
        return text_items(array, dtype, name)
    if _pyarrow().types.is_fixed_size_binary(array.type):
        kind = numpy.dtype(_dtype_name(array.type))
        return numpy.frombuffer(b"".join(array.to_pylist()), kind)
    items: Array = array.to_numpy(zero_copy_only=False)
    if items.dtype.kind in "mM" and numpy.isnat(items).sum() != array.null_count:
        raise DoesNotFit(
            "the column '%s' has a time that NumPy takes for a missing one" % name
        )
    return items


def _whole(array: pyarrow.Array, name: str) -> pyarrow.Array:
    """Return an array of Arrow; raise `UsageError` for missing values."""
    if array.null_count:
        raise _missing(name)
    return array


def _missing(name: str) -> UsageValueError:
    return UsageValueError(
        "column '%s' has missing values, which an array of its type can't hold" % name
    )


# Writing


def check_name(name: str, kind: str, request: Request) -> None:
    """Raise `UsageError` for a name that UTF-8 does not have."""
    check_encodable(name, "utf-8")


def write(content: Content, request: Request) -> None:
    """Write a table, or an array with one or two axes."""
    pyarrow = _pyarrow()
    table = as_table(content)
    fields, masks = [], table.masks
    for name, column in table.columns.items():
        if name in masks.values():
            if len(column.attrs) > 1:
                request.note_loss("the attributes of the column '%s'" % name)
            continue
        if column.dtype.kind not in "USO":
            _check_row(name, column.dtype, column.shape[1:])
        stored_type = _parquet_type(arrow_type(column.dtype, column.shape[1:], name))
        fields.append(
            pyarrow.field(name, stored_type, metadata=metadata_of(column.attrs))
        )
    schema = pyarrow.schema(fields, metadata=metadata_of(table.attrs))
    with (
        request.new_file() as out_fp,
        _pyarrow("pyarrow.parquet").ParquetWriter(out_fp, schema) as writer,
    ):
        for block in request.counted(table.read()):
            arrays = [
                arrow_array(
                    block[field.name],
                    *(field.type, field.name, block.get(masks.get(field.name, ""))),
                )
                for field in schema
            ]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))


def _parquet_type(stored_type: pyarrow.DataType) -> pyarrow.DataType:
    """Return the type that Parquet has for one of Arrow: it lacks times in seconds."""
    pyarrow = _pyarrow()
    if pyarrow.types.is_fixed_size_list(stored_type):
        return pyarrow.list_(
            _parquet_type(stored_type.value_type), stored_type.list_size
        )
    is_in_seconds = stored_type == pyarrow.timestamp("s")
    return pyarrow.timestamp("ms") if is_in_seconds else stored_type


# Text as items of one length


def lengths_of(array: pyarrow.Array, kind: str) -> Array:
    """Return the numbers of characters of text, or of bytes for the kind ``"S"``."""
    compute = _pyarrow("pyarrow.compute")
    length_of = compute.utf8_length if kind == "U" else compute.binary_length
    if hasattr(array, "dictionary"):
        lengths = length_of(array.dictionary).take(array.indices)
    else:
        lengths = length_of(array)
    return numbers_of(lengths.fill_null(0) if lengths.null_count else lengths)


def numbers_of(array: pyarrow.Array) -> Array:
    """Return numbers or booleans, none of them missing, as items.

    Any function of pyarrow for this would import pandas, which takes long.
    """
    if _pyarrow().types.is_boolean(array.type):
        return numbers_of(array.cast(_pyarrow().uint8())).astype(BOOL)
    _, data = array.buffers()
    items = numpy.frombuffer(data or b"", array.type.to_pandas_dtype())
    return items[array.offset :][: len(array)]


def bytes_of(array: pyarrow.Array) -> Array:
    """Return the bytes of all texts, without anything in between."""
    _, offsets, data = array.buffers()
    unit = "i8" if str(array.type).startswith("large") else "i4"
    ends = numpy.frombuffer(offsets, unit)[array.offset :]
    return numpy.frombuffer(data or b"", "u1")[ends[0] : ends[len(array)]]


def text_items(array: pyarrow.Array, dtype: DType, name: str) -> Array:
    """Return text or bytes as items; raise `UsageError` for a loss."""
    values = array.to_pylist()
    return numpy.array(values, TEXT) if dtype == TEXT else fixed(values, dtype, name)


def text_dtype(length: int, kind: str = "U") -> DType:
    """Return the type of text (``"U"``) or bytes (``"S"``) of this length."""
    return numpy.dtype("%s%d" % (kind, max(1, length)))


def are_exact(texts: pyarrow.Array, floats: Array) -> Array:
    """Return which of the texts of numbers are no integers, or equal to the floats."""
    exact = numpy.ones(len(texts), BOOL)
    large = abs(floats) >= exact_up_to(floats.dtype)
    for index in numpy.flatnonzero(large).tolist():
        text = texts[index].as_py().strip()
        text = text.decode("latin-1") if isinstance(text, bytes) else text
        if text.lstrip("+-").isdigit():
            number = floats[index].real
            exact[index] = numpy.isfinite(number) and int(text) == int(number)
    return exact


class Lengths:
    """The lengths of the texts in a column.

    Attributes
    ----------
    most, total
        The length of the longest text, and the sum of all lengths.
    count
        Number of texts.
    """

    def __init__(self) -> None:
        self.most = self.total = self.count = 0
        self._totals: list[float] = [0]  # of as many rows as are kept together

    def add(self, values: Sequence[str | bytes]) -> None:
        """Take texts into account."""
        self.add_lengths(numpy.fromiter(map(len, values), "i8", len(values)))

    def add_lengths(self, lengths: Array) -> None:
        """Take texts of these lengths into account."""
        rows = self.count + numpy.arange(len(lengths))
        places = rows // ROWS_TOGETHER - len(self._totals) + 1
        first, *others = numpy.bincount(places, lengths, 1).tolist()
        self._totals[-1] += first
        self._totals += others
        self.most = int(lengths.max(initial=self.most))
        self.total += int(lengths.sum())
        self.count += len(lengths)

    @property
    def text_nbytes(self) -> int:
        """A size of a text, by which no block of rows is too large; zero for any.

        No block has many more bytes than it may, or than its longest text: a mean would
        let it, where long texts follow one another.
        """
        most, totals = BLOCK_TEXT_NBYTES + self.most, numpy.array(self._totals)
        rows = ROWS_TOGETHER
        if totals.max() > most:
            return self.most
        while len(totals) > 1:
            totals = numpy.append(totals, [0.0] * (len(totals) % 2))
            totals = totals.reshape(-1, 2).sum(axis=1)
            if totals.max() > most:
                return -(-most // rows)
            rows *= 2
        return 0

    def dtype(self, name: str, kind: str = "U") -> DType:
        """Return the type for all texts.

        Raises `UsageError` if nearly all of a large array would be padding, because a
        single text is long.
        """
        dtype = text_dtype(self.most, kind)
        nbytes = self.count * dtype.itemsize
        stored = self.total * (dtype.itemsize // max(1, self.most))
        if nbytes > max(MAX_PADDED, MAX_TIMES_PADDED * stored):
            raise UsageValueError(
                "column '%s': a text has '%d' characters, and '%d' texts of this "
                "length have '%d' bytes, '%d' times those that are there; leave the "
                "column out, or make the text shorter"
                % (*(name, self.most, self.count, nbytes), nbytes // max(1, stored))
            )
        return dtype


def fixed(values: Sequence[str | bytes], dtype: DType, name: str) -> Array:
    """Return values as an array of fixed length; raise `UsageError` for a loss."""
    most = dtype.itemsize // (4 if dtype.kind == "U" else 1)
    for value in values:
        if len(value) > most:
            raise UsageValueError(
                "column '%s': expected text of at most %s, found %.100r"
                % (name, counted(most, "character"), value)
            )
        if value[-1:] in ("\0", b"\0"):
            kept = "CSV, HDF5, Parquet and Zarr keep text, and "
            if dtype.kind == "S":
                kept = "the type fixed_size_binary of Parquet keeps values of one size"
                kept += ", and "
            texts = name, ENDS_IN_ZERO, kept, LEAVES_OUT % name
            raise UsageValueError("column '%s': %s; %sconvert %s" % texts)
    return numpy.array(values, dtype)
