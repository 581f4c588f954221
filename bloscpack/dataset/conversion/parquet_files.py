"""Parquet files, through pyarrow, and columns of text of any format.

Row groups are read in batches and written one for each block. Attributes are in the
metadata of the schema and of its fields, under the key of this package.

A column of text becomes an array with items of one length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

import numpy

from ..._compat import import_extra
from ..._format.dtypes import Array, DType
from ..._format.zarr_metadata import encode_attributes
from ..._types import JsonObject
from ...exceptions import DamageError, UsageTypeError, UsageValueError
from ..arrow_arrays import arrow_array, arrow_type
from ..rows import ENDS_IN_ZERO, MASK_NAME, MASK_OF, masks_of
from .contents import (
    Columns,
    Content,
    Request,
    Rows,
    Stream,
    as_table,
    naming_file,
    new_table,
    rows_in_block,
)

if TYPE_CHECKING:
    import pyarrow
    from pyarrow.parquet import ParquetFile

# The key of attributes in metadata.
ATTRIBUTES = b"bloscpack.attributes"
# Number of bytes that are buffered for a column while it is read.
BUFFER_NBYTES = 2**20
# The names under which pandas stores the levels of an index that have none.
UNNAMED = re.compile("__index_level_[0-9]+__")


# Reading


def _named(path: str) -> AbstractContextManager[None]:
    """Add the name of the file to errors, those of pyarrow among them."""
    return naming_file(path, _pyarrow().ArrowException, OSError)


def _pyarrow(module: str = "pyarrow") -> ModuleType:
    """Return a module of pyarrow; raise `UsageError` without it."""
    return import_extra(module, "tables", "Parquet needs the package %s")


def read(path: str, request: Request) -> Content:
    """Return the table in a file."""
    with _named(path):
        opened = _pyarrow("pyarrow.parquet").ParquetFile(
            path, buffer_size=BUFFER_NBYTES, pre_buffer=False
        )
        request.resources.enter_context(opened)
        file = _File(path, opened)
        columns: dict[str, Rows] = {}
        for number, name in file.names(request).items():
            field = file.schema.field(number)
            masks = file.mask(name, field) if request.layout else {}
            for twice in columns.keys() & {name, *masks}:
                raise UsageValueError("there are two columns '%s'" % twice)
            if getattr(field.type, "tz", None) is not None:
                request.note_loss("the time zone of the column '%s'" % field.name)
            columns |= {name: file.column(name, field), **masks}
        attrs = _attributes(file.schema.metadata, path)
    return new_table(columns, file.length, partial(file.blocks, columns), attrs)


class _File:
    """An open file, and the names that its columns have there."""

    def __init__(self, path: str, file: ParquetFile) -> None:
        self.schema = file.schema_arrow
        self.length = file.metadata.num_rows
        self._path = path
        self._file = file
        self._stored: dict[str, str] = {}
        # The names in the file of columns with missing items, by those of their masks.
        self._masks: dict[str, str] = {}

    def _batches(self, stored: str) -> Iterator[pyarrow.Array]:
        """Yield the rows of a column in parts, as arrays of Arrow."""
        for batch in self._file.iter_batches(columns=[stored]):
            yield batch.column(0)

    def names(self, request: Request) -> dict[int, str]:
        """Return the names of the columns by their numbers in the file.

        pandas stores an index without a name under a name that other programs reserve.
        It is left out if it just numbers the rows.
        """
        names = dict(enumerate(self.schema.names))
        if b"pandas" not in (self.schema.metadata or {}):
            return names
        levels = [number for number, name in names.items() if UNNAMED.fullmatch(name)]
        for level, number in enumerate(levels):
            stored = names[number]
            if len(levels) == 1 and self._is_numbers(stored):
                del names[number]
                continue
            is_free = len(levels) == 1 and "index" not in names.values()
            names[number] = "index" if is_free else "level_%d" % level
            request.note_loss(
                "the name '%s', which becomes '%s'" % (stored, names[number])
            )
        return names

    def _is_numbers(self, stored: str) -> bool:
        """Return whether a column has integers that follow one another."""
        first, done = None, 0
        for batch in self._batches(stored):
            found = batch.to_numpy(zero_copy_only=False)
            if found.dtype.kind not in "iu":  # missing ones make them floats
                return False
            first = int(found[0]) if first is None and len(found) else first or 0
            expected = numpy.arange(first + done, first + done + len(found))
            if not numpy.array_equal(expected, found):
                return False
            done += len(found)
        return True

    def column(self, name: str, field: pyarrow.Field) -> Rows:
        """Return a column, whose rows can be read without the others."""
        self._stored[name] = field.name
        dtype, inner = self._dtype_of(field)
        attrs = _attributes(field.metadata, self._path)
        return self._content(name, dtype, inner, attrs)

    def mask(self, name: str, field: pyarrow.Field) -> dict[str, Rows]:
        """Return the column that says which items are missing, if any, by its name."""
        types, stored, mask = _pyarrow().types, field.name, MASK_NAME % name
        kinds = types.is_floating, types.is_temporal, types.is_nested, types.is_null
        if any(is_kind(field.type) for is_kind in kinds) or not any(
            _decoded(batch).null_count for batch in self._batches(stored)
        ):
            return {}
        self._stored[mask] = self._masks[mask] = stored
        return {mask: self._content(mask, numpy.dtype("?"), (), {MASK_OF: name})}

    def _content(
        self, name: str, dtype: DType, inner: tuple[int, ...], attrs: JsonObject
    ) -> Rows:
        column = Rows(dtype, (self.length, *inner), attrs=attrs)
        items = Stream(
            lambda: (block[name] for block in self.blocks({name: column})),
            *(dtype, column.shape),
        )
        return replace(column, array=items)

    def _dtype_of(self, field: pyarrow.Field) -> tuple[DType, tuple[int, ...]]:
        """Return type and shape of the rows of a column."""
        types, found = _pyarrow().types, field.type
        inner: tuple[int, ...] = ()
        while types.is_fixed_size_list(found):
            inner, found = (*inner, found.list_size), found.value_type
        if types.is_dictionary(found):
            found = found.value_type
        if types.is_null(found) and not inner:  # text of pandas without rows
            if self.length:
                raise _missing(field.name)
            return text_dtype(0), ()
        if not inner and (types.is_string(found) or types.is_large_string(found)):
            return self._measured(field.name, "U"), ()
        if not inner and (types.is_binary(found) or types.is_large_binary(found)):
            return self._measured(field.name, "S"), ()
        name = _dtype_name(found, types)
        if name is None:
            raise UsageTypeError(
                "an array can't hold the column '%s' of type '%s'"
                % (field.name, field.type)
            )
        return numpy.dtype(name), inner

    def _measured(self, stored: str, kind: str) -> DType:
        """Return the type for a column of text or bytes: that of the longest value."""
        compute = _pyarrow("pyarrow.compute")
        length_of = compute.utf8_length if kind == "U" else compute.binary_length
        lengths = Lengths()
        for batch in self._batches(stored):
            is_masked = stored in self._masks.values()
            found = length_of(_decoded(batch if is_masked else _whole(batch, stored)))
            lengths.most = max(lengths.most, compute.max(found).as_py() or 0)
            lengths.total += compute.sum(found).as_py() or 0
            lengths.count += len(found)
        return lengths.dtype(stored, kind)

    def blocks(self, columns: dict[str, Rows]) -> Iterator[Columns]:
        """Yield blocks of rows of some columns."""
        step = rows_in_block(sum(column.row_nbytes for column in columns.values()))
        wanted = list({self._stored[name] for name in columns})
        with _named(self._path):
            for batch in self._file.iter_batches(batch_size=step, columns=wanted):
                yield {
                    name: self._items(batch.column(self._stored[name]), name, column)
                    for name, column in columns.items()
                }

    def _items(self, array: pyarrow.Array, name: str, column: Rows) -> Array:
        if name in self._masks:
            return numpy.asarray(_decoded(array).is_null())
        if self._stored[name] in self._masks.values():
            array = _decoded(array).fill_null(numpy.zeros((), column.dtype).item())
        return _items(array, column.dtype, column.shape[1:], name)


def _attributes(metadata: dict[bytes, bytes] | None, path: str) -> JsonObject:
    text = (metadata or {}).get(ATTRIBUTES)
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise DamageError("attributes: %s" % error, filename=path) from error
    return found if isinstance(found, dict) else {}


def _dtype_name(found: pyarrow.DataType, types: ModuleType) -> str | None:
    """Return the name of a dtype for a type of Arrow; None if there is none."""
    if types.is_fixed_size_binary(found):
        return "V%d" % found.byte_width
    if types.is_date(found):
        return "M8[D]" if types.is_date32(found) else "M8[ms]"
    if types.is_timestamp(found):
        return "M8[%s]" % found.unit
    if types.is_duration(found):
        return "m8[%s]" % found.unit
    if types.is_boolean(found) or types.is_integer(found) or types.is_floating(found):
        name: str = numpy.dtype(found.to_pandas_dtype()).str
        return name
    return None


def _decoded(array: pyarrow.Array) -> pyarrow.Array:
    """Return an array of Arrow without a dictionary of its values."""
    return array.dictionary_decode() if hasattr(array, "dictionary") else array


def _whole(array: pyarrow.Array, name: str) -> pyarrow.Array:
    """Return an array of Arrow; raise `UsageError` for missing values."""
    if array.null_count:
        raise _missing(name)
    return array


def _missing(name: str) -> UsageValueError:
    return UsageValueError(
        "column '%s' has missing values, which an array of its type can't hold" % name
    )


def _items(
    array: pyarrow.Array, dtype: DType, inner: tuple[int, ...], name: str
) -> Array:
    """Return an array of Arrow as one of NumPy."""
    array, pyarrow = _decoded(array), _pyarrow()
    if inner:
        length = len(array)
        while pyarrow.types.is_fixed_size_list(array.type):
            array = _whole(array, name).flatten()
        return _items(array, dtype, (), name).reshape(length, *inner)
    if dtype.kind == "V":
        joined = b"".join(_whole(array, name).to_pylist())
        return numpy.frombuffer(joined, dtype)
    if dtype.kind in "US":
        return _text(_whole(array, name), dtype, name)
    if dtype.kind in "mM":
        missing = numpy.asarray(array.is_null())
        integer = pyarrow.int32() if dtype == "M8[D]" else pyarrow.int64()
        items: Array = numpy.asarray(array.view(integer).fill_null(0)).astype("i8")
        items = items.view(dtype)
        items[missing] = "NaT"
        return items
    if dtype.kind == "f":
        found: Array = array.to_numpy(zero_copy_only=False).astype(dtype, copy=False)
        return found
    result: Array = _whole(array, name).to_numpy(zero_copy_only=False)
    return result


def _text(array: pyarrow.Array, dtype: DType, name: str) -> Array:
    """Return text or bytes as items of fixed length."""
    pyarrow = _pyarrow()
    large = array.cast(
        pyarrow.large_string() if dtype.kind == "U" else pyarrow.large_binary()
    )
    _, offsets, data = large.buffers()
    ends = numpy.frombuffer(offsets, "i8")[large.offset : large.offset + len(large) + 1]
    letters = numpy.frombuffer(data or b"", "u1")[ends[0] : ends[-1]]
    if dtype.kind == "U" and letters.max(initial=0) >= 128:
        return fixed(array.to_pylist(), dtype, name)
    return fixed_from(letters, numpy.diff(ends), dtype, name)


# Writing


def write(content: Content, request: Request) -> None:
    """Write a table, or an array with one or two axes."""
    pyarrow = _pyarrow()
    table = as_table(content)
    fields, masks = [], masks_of(table.columns)
    for name, column in table.columns.items():
        if name in masks.values():
            if len(column.attrs) > 1:
                request.note_loss("the attributes of the column '%s'" % name)
            continue
        found = arrow_type(column.dtype, column.shape[1:], name)
        fields.append(pyarrow.field(name, found, metadata=_metadata(column.attrs)))
    schema = pyarrow.schema(fields, metadata=_metadata(table.attrs))
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


def _metadata(attrs: JsonObject) -> dict[bytes, bytes] | None:
    return {ATTRIBUTES: encode_attributes(attrs).strip()} if attrs else None


# Padding all texts to the length of the longest one may make a column as large as this
# in bytes, or this multiple of the size of the texts.
MAX_PADDED = 2**34
MAX_TIMES_PADDED = 100


def longest(values: Iterable[str | bytes], most: int = 0) -> int:
    """Return the length of the longest value, at least `most`."""
    return max(most, max(map(len, values), default=0))


def text_dtype(length: int, kind: str = "U") -> DType:
    """Return the type of text (``"U"``) or bytes (``"S"``) of this length."""
    return numpy.dtype("%s%d" % (kind, max(1, length)))


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

    def add(self, values: Sequence[str | bytes]) -> None:
        """Take texts into account."""
        self.most = longest(values, self.most)
        self.total += sum(map(len, values))
        self.count += len(values)

    def dtype(self, name: str, kind: str = "U") -> DType:
        """Return the type for all texts.

        Raises `UsageError` if nearly all of a large array would be padding, because a
        single text is long.
        """
        found = text_dtype(self.most, kind)
        nbytes = self.count * found.itemsize
        unit = found.itemsize // max(1, self.most)
        stored = self.total * unit
        if nbytes > max(MAX_PADDED, MAX_TIMES_PADDED * stored):
            raise UsageValueError(
                "column '%s': a text has '%d' characters, and '%d' texts of this "
                "length have '%d' bytes, '%d' times those that are there; leave the "
                "column out, or make the text shorter"
                % (*(name, self.most, self.count, nbytes), nbytes // max(1, stored))
            )
        return found


def fixed(values: Sequence[str | bytes], dtype: DType, name: str) -> Array:
    """Return values as an array of fixed length; raise `UsageError` for a loss."""
    array: Array = numpy.array(values, dtype)
    _check_length(longest(values), dtype, name)
    if any(value[-1:] in ("\0", b"\0") for value in values):
        raise UsageValueError("column '%s': %s" % (name, ENDS_IN_ZERO))
    return array


def fixed_from(letters: Array, lengths: Array, dtype: DType, name: str) -> Array:
    """Return values as `fixed` does, from the bytes of all, in ASCII, and lengths."""
    _check_length(int(lengths.max(initial=0)), dtype, name)
    ends = numpy.cumsum(lengths)[lengths > 0] - 1
    if not letters[ends].all():
        raise UsageValueError("column '%s': %s" % (name, ENDS_IN_ZERO))
    unit = numpy.dtype("u4" if dtype.kind == "U" else "u1")
    width = dtype.itemsize // unit.itemsize
    table: Array = numpy.zeros((len(lengths), width), unit)
    table[numpy.arange(width) < lengths[:, numpy.newaxis]] = letters
    result: Array = table.view(dtype.newbyteorder("=")).reshape(-1)
    return result


def _check_length(found: int, dtype: DType, name: str) -> None:
    most = dtype.itemsize // (4 if dtype.kind == "U" else 1)
    if found > most:
        raise UsageValueError(
            "column '%s': expected text of at most %d characters, found '%d'"
            % (name, most, found)
        )
