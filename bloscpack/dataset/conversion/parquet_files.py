"""Parquet files, through pyarrow, and columns of text of any format.

Row groups are read in batches and written one for each block. Attributes are in the
metadata of the schema and of its fields, under the key of this package.

A column of text becomes an array with items of one length, unless the target has text
of variable length.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

import numpy

from ..._compat import import_extra
from ..._format.dtypes import Array, DType
from ..._format.text import TEXT, empty_item
from ..._format.zarr_metadata import encode_attributes
from ..._types import JsonObject
from ...exceptions import DamageError, UsageTypeError, UsageValueError
from ...serializers import parse_json
from ..arrow_arrays import arrow_array, arrow_type
from ..rows import ENDS_IN_ZERO, MASK_NAME, MASK_OF, text_or
from .contents import (
    Columns,
    Content,
    Field,
    Request,
    Rows,
    Stream,
    as_table,
    check_encodable,
    naming_file,
    new_table,
    rows_in_block,
)

if TYPE_CHECKING:
    import pyarrow
    from pyarrow.parquet import ParquetFile

# The key of attributes in metadata.
ATTRIBUTES = b"bloscpack.attributes"
# Padding all texts to the length of the longest one may make a column as large as this
# in bytes, or this multiple of the size of the texts.
MAX_PADDED = 2**34
MAX_TIMES_PADDED = 100
# Maximum size in bytes of a row of a column with more axes.
MAX_ROW_NBYTES = 2**30
# Maximum number of rows whose texts are measured at a time: of texts that are in the
# memory once, and of others.
SHARED_ROWS, SINGLE_ROWS = 2**16, 2**8
BOOL = numpy.dtype("?")
# Text of the length of the longest value.
UNSIZED = (numpy.dtype("U"), numpy.dtype("S"))
# A block of rows has about this number of bytes of text of variable length at most. The
# sizes of texts are kept for as many rows together.
BLOCK_TEXT_NBYTES, ROWS_TOGETHER = 32 * 2**20, 256
# Number of bytes that are buffered for a column while it is read.
BUFFER_NBYTES = 2**20
# The names under which pandas stores the levels of an index that have none.
UNNAMED = re.compile("__index_level_[0-9]+__")


# Reading


def _named(path: str) -> AbstractContextManager[None]:
    """Add the name of the file to errors, those of pyarrow among them."""
    wrong = _pyarrow().ArrowException, OSError, UnicodeDecodeError
    return naming_file(path, *wrong)


def _pyarrow(module: str = "pyarrow") -> ModuleType:
    """Return a module of pyarrow; raise `UsageError` without it."""
    return import_extra(module, "tables", "Parquet needs the package %s")


@dataclass(eq=False)
class _Column(Rows):
    """A column of a file.

    Attributes
    ----------
    file_name
        The name of the column in the file.
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
        count, array = len(array), _decoded(array)
        if self.is_mask:
            return numpy.asarray(array.is_null())
        if self.has_mask:
            fill = numpy.array(empty_item(self.dtype), self.dtype)
            array = array.fill_null(fill.item())
        for _ in self.shape[1:]:
            array = _decoded(_whole(array, self.file_name).flatten())
        kind = self.dtype.kind
        if kind not in "fmM":
            array = _whole(array, self.file_name)
        if kind in "USO":
            return text_items(array, self.dtype, self.file_name)
        items: Array
        if kind == "V":
            items = numpy.frombuffer(b"".join(array.to_pylist()), self.dtype)
        else:
            items = array.to_numpy(zero_copy_only=False).astype(self.dtype, copy=False)
        return items.reshape(count, *self.shape[1:])


def read(path: str, request: Request) -> Content:
    """Return the table in a file."""
    with _named(path):
        file = _opened(path, request)
        schema, length = file.schema_arrow, file.metadata.num_rows
        groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
        names = _names(file, request)
        has_text = not request.fixed_text
        types = {n: _dtype_of(schema.field(n), length, has_text) for n in names}
        unsized = (*UNSIZED, TEXT)
        texts = {number for number, (dtype, _) in types.items() if dtype in unsized}
        # A long text that many rows refer to is in the memory once, if possible.
        shared = {
            number
            for number in texts
            if not any("DELTA" in "".join(g.column(number).encodings) for g in groups)
        }
        measured = _opened(path, request, [schema.names[number] for number in shared])
        columns: dict[str, _Column] = {}
        for number, name in names.items():
            field, (dtype, inner) = schema.field(number), types[number]
            chunks = [(group.num_rows, group.column(number)) for group in groups]
            count = math.prod(inner)
            if count and any(c.num_values != rows * count for rows, c in chunks):
                raise _missing(field.name)  # before a row of nothing is made
            can_mask = _can_mask(field.type)
            has_nulls, lengths = False, Lengths()
            if number in texts or can_mask:
                nbytes = [c.total_uncompressed_size // max(1, n) for n, c in chunks]
                most = SINGLE_ROWS if number in texts - shared else SHARED_ROWS
                step = min(most, rows_in_block(max([dtype.itemsize, *nbytes])))
                for batch in measured.iter_batches(step, columns=[field.name]):
                    has_nulls = has_nulls or batch.column(0).null_count > 0
                    if has_nulls and not can_mask:
                        raise _missing(field.name)
                    if number in texts:
                        lengths.add_lengths(lengths_of(batch.column(0), dtype.kind))
            if dtype in UNSIZED:
                dtype = lengths.dtype(field.name, dtype.kind)
            if getattr(field.type, "tz", None) is not None:
                request.note_loss("the time zone of the column '%s'" % field.name)
            attrs = _attributes(field.metadata, path)
            found = {name: _Column(dtype, (length, *inner), attrs=attrs)}
            found[name].text_nbytes = lengths.text_nbytes if dtype == TEXT else 0
            if has_nulls:
                attrs = {MASK_OF: name}
                found[MASK_NAME % name] = _Column(BOOL, (length,), attrs=attrs)
            for key, column in found.items():
                if not key:
                    raise UsageValueError("there is a column without a name")
                if key in columns:
                    raise UsageValueError("there are two columns '%s'" % key)
                column.file_name, column.has_mask = field.name, has_nulls
                column.is_mask = key != name
                read_column = partial(_blocks, file, path, {key: replace(column)})
                column.array = Field(Stream(read_column, {key: column}), key)
                columns[key] = column
        attrs = _attributes(schema.metadata, path)
    blocks = partial(_blocks, file, path, columns)
    return new_table(columns, length, blocks, attrs)


def _opened(path: str, request: Request, texts: Sequence[str] = ()) -> ParquetFile:
    """Open a file; each different text of the columns `texts` is read once."""
    file: ParquetFile = _pyarrow("pyarrow.parquet").ParquetFile(
        path,
        buffer_size=BUFFER_NBYTES,
        pre_buffer=False,
        read_dictionary=texts,
    )
    request.resources.enter_context(file)
    return file


def _names(file: ParquetFile, request: Request) -> dict[int, str]:
    """Return the names of the columns by their numbers in the file.

    pandas stores an index without a name under a name that other programs reserve. It
    is left out if it just numbers the rows.
    """
    names = dict(enumerate(file.schema_arrow.names))
    if b"pandas" not in (file.schema_arrow.metadata or {}):
        return names
    levels = [number for number, name in names.items() if UNNAMED.fullmatch(name)]
    for level, number in enumerate(levels):
        stored = names[number]
        if len(levels) == 1 and _is_numbers(file, number):
            del names[number]
            continue
        is_free = len(levels) == 1 and "index" not in names.values()
        names[number] = "index" if is_free else "level_%d" % level
        request.note_loss("the name '%s', which becomes '%s'" % (stored, names[number]))
    return names


def _is_numbers(file: ParquetFile, number: int) -> bool:
    """Return whether a column has integers that follow one another."""
    field = file.schema_arrow.field(number)
    if not _pyarrow().types.is_integer(field.type):
        return False
    last = None
    for batch in file.iter_batches(columns=[field.name]):
        array = batch.column(0)
        items = array.fill_null(0).to_numpy()
        follows = last is None or int(items[0]) == last + 1
        if array.null_count or not follows or (numpy.diff(items) != 1).any():
            return False
        last = int(items[-1])
    return True


def _can_mask(found: pyarrow.DataType) -> bool:
    """Return whether missing values become a column: other types have NaN or NaT."""
    types = _pyarrow().types
    kinds = types.is_floating, types.is_temporal, types.is_nested, types.is_null
    return not any(is_kind(found) for is_kind in kinds)


def _dtype_of(
    field: pyarrow.Field, length: int, has_text: bool
) -> tuple[DType, tuple[int, ...]]:
    """Return type and shape of the rows of a column; fixed text has no length yet."""
    types, found = _pyarrow().types, field.type
    inner: tuple[int, ...] = ()
    while types.is_fixed_size_list(found):
        inner, found = (*inner, found.list_size), found.value_type
    if types.is_null(found) and not inner:  # text of pandas without rows
        if length:
            raise _missing(field.name)
        return TEXT if has_text else text_dtype(0), ()
    name = _dtype_name(found, types)
    if name is None or (inner and name in UNSIZED):
        raise UsageTypeError(
            "an array can't hold the column '%s' of type '%.200s'"
            % (field.name, field.type)
        )
    dtype = text_or(numpy.dtype(name), has_text)
    # pyarrow also makes room for lists without items.
    if math.prod(max(1, count) for count in inner) * dtype.itemsize > MAX_ROW_NBYTES:
        raise UsageTypeError(
            "column '%s': a row has more than '%d' bytes" % (field.name, MAX_ROW_NBYTES)
        )
    return dtype, inner


def _dtype_name(found: pyarrow.DataType, types: ModuleType) -> str | None:
    """Return the name of a dtype for a type of Arrow; None if there is none."""
    if types.is_dictionary(found):
        found = found.value_type
    if types.is_string(found) or types.is_large_string(found):
        return "U"
    if types.is_binary(found) or types.is_large_binary(found):
        return "S"
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


def _blocks(
    file: ParquetFile, path: str, columns: Mapping[str, _Column]
) -> Iterator[Columns]:
    """Yield blocks of rows of some columns."""
    step = rows_in_block(sum(column.row_nbytes for column in columns.values()))
    wanted = list({column.file_name for column in columns.values()})
    with _named(path):
        for batch in file.iter_batches(batch_size=step, columns=wanted):
            yield {
                name: column.items(batch.column(column.file_name))
                for name, column in columns.items()
            }


def _attributes(metadata: dict[bytes, bytes] | None, path: str) -> JsonObject:
    try:
        found = parse_json((metadata or {}).get(ATTRIBUTES, b"{}"))
    except ValueError as error:
        raise DamageError("attributes: %s" % error, filename=path) from error
    return found if isinstance(found, dict) else {}


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
        found = _parquet_type(arrow_type(column.dtype, column.shape[1:], name))
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


def _parquet_type(found: pyarrow.DataType) -> pyarrow.DataType:
    """Return the type that Parquet has for one of Arrow: it lacks times in seconds."""
    pyarrow = _pyarrow()
    if pyarrow.types.is_fixed_size_list(found):
        return pyarrow.list_(_parquet_type(found.value_type), found.list_size)
    return pyarrow.timestamp("ms") if found == pyarrow.timestamp("s") else found


def _metadata(attrs: JsonObject) -> dict[bytes, bytes] | None:
    return {ATTRIBUTES: encode_attributes(attrs).strip()} if attrs else None


# Text as items of one length


def lengths_of(array: pyarrow.Array, kind: str) -> Array:
    """Return the numbers of characters of text, or of bytes for the kind ``"S"``."""
    compute = _pyarrow("pyarrow.compute")
    length_of = compute.utf8_length if kind == "U" else compute.binary_length
    if hasattr(array, "dictionary"):
        found = length_of(array.dictionary).take(array.indices)
    else:
        found = length_of(array)
    return numbers_of(found.fill_null(0) if found.null_count else found)


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
    if dtype == TEXT:
        return numpy.array(array.to_pylist(), TEXT)
    lengths = lengths_of(array, dtype.kind)
    width = _check_length(int(lengths.max(initial=0)), dtype, name)
    letters = bytes_of(array)
    if dtype.kind == "U" and letters.max(initial=0) >= 128:
        text = letters.tobytes().decode("utf-8")
        letters = numpy.frombuffer(text.encode("utf-32-le"), "<u4")
    if not letters[numpy.cumsum(lengths)[lengths > 0] - 1].all():
        raise UsageValueError("column '%s': %s" % (name, ENDS_IN_ZERO))
    items: Array = numpy.zeros((len(array), width), "u4" if dtype.kind == "U" else "u1")
    items[numpy.arange(width) < lengths[:, numpy.newaxis]] = letters
    return items.view(dtype.newbyteorder("=")).reshape(-1).astype(dtype, copy=False)


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
    _check_length(max(map(len, values), default=0), dtype, name)
    if any(value[-1:] in ("\0", b"\0") for value in values):
        raise UsageValueError("column '%s': %s" % (name, ENDS_IN_ZERO))
    return array


def _check_length(found: int, dtype: DType, name: str) -> int:
    """Return the length of the items; raise `UsageError` for a longer text."""
    most = dtype.itemsize // (4 if dtype.kind == "U" else 1)
    if found > most:
        raise UsageValueError(
            "column '%s': expected text of at most %d characters, found '%d'"
            % (name, most, found)
        )
    return most
