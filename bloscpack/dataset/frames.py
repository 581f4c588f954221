"""Rows of several columns at once: structured arrays, DataFrames, and text.

Strategy: nothing is lost when a DataFrame of pandas, or a partition of Dask, becomes
columns. An index with a name becomes a column, and one without a name is refused unless
it just numbers the rows: 0, 1, 2 and so on, or the numbers that appended rows get.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy

from .._engine.threads import ordered
from .._format.dtypes import Array as Items
from .._format.dtypes import Key, check_text, foreign_items
from ..exceptions import UsageTypeError, UsageValueError
from ..log import counted
from .array import Array
from .arrow_arrays import arrow_array, arrow_type, fitting_unit, metadata_of, native
from .columns import check_different, dtype_of_rows, items_of_pandas, naming_column
from .items import converted
from .layouts.array_files import REMOTE_FILES

if TYPE_CHECKING:
    import pyarrow
    from pandas import DataFrame, Index
    from pandas.api.extensions import ExtensionArray

# Number of rows at each end of a table, of columns, and of characters of an item that
# the repr of a table shows at most.
SHOWN_ROWS = 3
SHOWN_COLUMNS = 12
MAX_SHOWN = 32
NO_NUMBERS = (
    "the index has no name, and does not just number the rows, but begins with "
    "%.100r: %s"
)
ADVICE = (
    "give it one with frame.rename_axis('name'), and it becomes a column, or leave it "
    "out with frame.reset_index(drop=True)"
)


def columns_of(rows: object, starts: Collection[int] = (0,)) -> object:
    """Return a DataFrame as arrays by name, and anything else as it is.

    `starts` is as for `items_by_name`.
    """
    is_frame = hasattr(rows, "iloc") and hasattr(rows, "columns")
    if hasattr(rows, "divisions") and hasattr(rows, "columns"):  # of Dask
        raise UsageTypeError(
            "expected columns in memory, found a DataFrame of Dask: from_dask stores "
            "it, and appends it with append=True"
        )
    return items_by_name(rows, starts=starts) if is_frame else rows


def items_by_name(
    frame: DataFrame, *, starts: Collection[int] = (0,), any_numbers: bool = False
) -> dict[str, Items]:
    """Return the columns of a DataFrame, and in front of them named index levels.

    Parameters
    ----------
    frame
        The DataFrame.
    starts
        The numbers with which an index that numbers the rows may begin.
    any_numbers
        Whether any integers in the index are numbers of rows, also if some are missing
        or repeated, as in the partitions of Dask.

    Raises
    ------
    UsageError
        If something would get lost or changed.
    """
    if not hasattr(frame, "iloc"):
        raise UsageTypeError("expected a DataFrame, found %.200r" % (frame,))
    if not hasattr(frame, "columns"):
        raise UsageTypeError(
            "expected a DataFrame, found a %s: call to_frame()" % type(frame).__name__
        )
    _check_index(frame.index, starts, any_numbers)
    levels = [i for i, name in enumerate(frame.index.names) if name is not None]
    series = [frame.index.get_level_values(level).to_series() for level in levels]
    series += [frame.iloc[:, number] for number in range(frame.shape[1])]
    check_different([column.name for column in series])
    columns = {}
    for column in series:
        with naming_column(column.name), foreign_items():
            columns[column.name] = items_of_pandas(column)
    return columns


def _check_index(index: Index, starts: Collection[int], any_numbers: bool) -> None:
    """Raise `UsageError` if a level without a name does not just number the rows."""
    unnamed = [i for i, name in enumerate(index.names) if name is None]
    if not unnamed:
        return
    if index.nlevels > 1:
        raise UsageValueError(
            "level '%d' of the index has no name: %s" % (unnamed[0], ADVICE)
        )
    is_numbered = index.dtype.kind in "iu"
    if is_numbered and not any_numbers and len(index):
        numbers, first = index.to_numpy(), int(index[0])
        is_numbered = first in starts and numpy.array_equal(
            numbers, numpy.arange(first, first + len(numbers))
        )
    if len(index) and not is_numbered:
        raise UsageValueError(NO_NUMBERS % (index[:1].tolist()[0], ADVICE))


def next_number(rows: Any) -> int:
    """Return the number that follows those in the index of a DataFrame; 0 for others.

    A DataFrame that is read in parts goes on with it in the next part.
    """
    index: Any = getattr(rows, "index", None)
    is_numbered = getattr(getattr(index, "dtype", None), "kind", "O") in "iu"
    return int(index[-1]) + 1 if is_numbered and len(rows) else 0


def check_divisions(frame: Any, start: int) -> None:
    """Raise `UsageError` if the index of a DataFrame of Dask does not number its rows.

    Its first row gets the number `start`. Dask knows the first item of the index only.
    """
    first = frame.divisions[0]
    is_number = isinstance(first, (int, numpy.integer))
    if frame._meta.index.names == [None] and is_number and first not in (0, start):
        raise UsageValueError(NO_NUMBERS % (first, ADVICE))


def read_rows(columns: Mapping[str, Array], count: int, key: Any) -> Any:
    """Return rows of a table as a structured array, or one row.

    Parameters
    ----------
    columns
        The columns to read.
    count
        The number of rows of the table; a column may have more.
    key
        The number of a row, a slice, row numbers, booleans, or ``...`` for all.
    """
    if isinstance(key, tuple):
        raise IndexError("a table has one axis: expected one index, found a tuple")
    if isinstance(key, Array):
        key = key[:]
    elif key is ...:
        key = slice(None)
    if not isinstance(key, (slice, list, numpy.ndarray)):
        number = operator.index(key)
        if not -count <= number < count:
            raise IndexError(
                "row %d is out of bounds of a table of %s"
                % (number, counted(count, "row"))
            )
        start = number % count
        return read_rows(columns, count, slice(start, start + 1))[0]
    key, nrows = in_all_columns(key, count)
    result: Items = numpy.empty(nrows, dtype_of_rows(columns))
    sources = {name: (column, None) for name, column in columns.items()}
    _read_each(sources, key, lambda name, items, _: result.__setitem__(name, items))
    return result


def in_all_columns(key: Key, count: int) -> tuple[slice | Items, int]:
    """Return an index that counts from the end of the table, and its number of rows.

    The end of a column may be another one.
    """
    if isinstance(key, slice):
        rows = range(*key.indices(count))
        stop = rows.stop if rows.stop >= 0 else None
        return slice(rows.start, stop, rows.step) if rows else slice(0), len(rows)
    selected = numpy.asarray(key)
    if not selected.size and selected.dtype.kind == "f":
        selected = selected.astype("i8")  # an empty list
    if selected.ndim != 1:
        raise IndexError("expected row numbers or booleans in one axis")
    numbers: Items = numpy.arange(count)[selected]
    return numbers, len(numbers)


# A column to read, and the one that says which of its items are missing, if any.
MaskedColumn = tuple[Array, Array | None]


def _read_each(
    columns: Mapping[str, MaskedColumn],
    rows: slice | Items,
    use: Callable[[str, Items, Items | None], None],
) -> None:
    """Call ``use(name, items, mask)`` for rows of each column, in order.

    Columns at a URL are read at the same time: each read waits for answers.
    """

    def read(name: str) -> tuple[str, Items, Items | None]:
        column, mask = columns[name]
        return name, column[rows], None if mask is None else mask[rows]

    waits = any(column._layout.folder.is_remote for column, _ in columns.values())
    nthreads = min(len(columns), REMOTE_FILES) if waits else 1
    ordered(columns, read, lambda result: use(*result), nthreads, waits=waits)


def read_frame(columns: Mapping[str, MaskedColumn], rows: slice | Items) -> DataFrame:
    """Return rows as a DataFrame; raise `UsageError` if a column has several axes."""
    import pandas

    data: dict[str, object] = {}
    for name, (column, _) in columns.items():
        if column.ndim > 1:
            raise UsageValueError(
                "a DataFrame has no columns with several axes, such as '%s' of "
                "shape %s: name the columns to read" % (name, column.shape)
            )

    def use(name: str, items: Items, mask: Items | None) -> None:
        with naming_column(name):
            data[name] = _series_items(items, mask)

    _read_each(columns, rows, use)
    return pandas.DataFrame(data, columns=list(columns))


def _series_items(items: Items, mask: Items | None) -> Items | ExtensionArray:
    """Return what pandas makes the column of; `mask` says which items are missing."""
    if items.dtype.kind not in "biufcmM":
        items = items.astype(object)
    elif items.dtype.kind in "mM":  # pandas would cut off what is finer than its units
        items = converted(items, numpy.dtype(fitting_unit(items.dtype)))
    else:  # pandas wants the order of the machine
        items = items.astype(items.dtype.newbyteorder("="), copy=False)
    if mask is None:
        return items
    if items.dtype.kind in "biu":
        from pandas import arrays

        is_bool = items.dtype.kind == "b"
        return (arrays.BooleanArray if is_bool else arrays.IntegerArray)(items, mask)
    items[mask] = None  # NaN for floats, NaT for times
    return items


def read_arrow(
    columns: Mapping[str, MaskedColumn], rows: slice | Items
) -> pyarrow.Table:
    """Return rows as a table of Arrow."""
    import pyarrow

    data: dict[str, object] = {}
    types = {n: arrow_type(c.dtype, c.shape[1:], n) for n, (c, _) in columns.items()}

    def use(name: str, items: Items, mask: Items | None) -> None:
        data[name] = arrow_array(items, types[name], name, mask)

    _read_each(columns, rows, use)
    fields = [
        pyarrow.field(name, types[name], metadata=metadata_of(dict(column.attrs)))
        for name, (column, _) in columns.items()
    ]
    return pyarrow.table(data, pyarrow.schema(fields))


def shown_rows(all_columns: Mapping[str, Array], count: int) -> list[str]:
    """Return the first and last of `count` rows as lines, below names and dtypes."""
    first = range(min(SHOWN_ROWS, count))
    last = range(max(len(first), count - SHOWN_ROWS), count)
    has_gap = len(first) + len(last) < count
    columns = [["", "", *map(str, first), *["..."] * has_gap, *map(str, last)]]
    for name, column in list(all_columns.items())[:SHOWN_COLUMNS]:
        inner = "" if column.ndim == 1 else str(list(column.shape[1:]))
        head = [name, str(column.dtype) + inner, *shown_items(column[: len(first)])]
        tail = shown_items(column[last.start : last.stop]) if last else []
        columns.append([*head, *["..."] * has_gap, *tail])
    if len(all_columns) > SHOWN_COLUMNS:
        more = "(%s)" % counted(len(all_columns) - SHOWN_COLUMNS, "more column")
        columns.append([more] + [""] * (len(columns[0]) - 1))
    widths = [max(map(len, cells)) for cells in columns]
    rows = zip(*columns, strict=True)
    return ["  ".join(map(str.rjust, row, widths)).rstrip() for row in rows]


def time_texts(items: Items) -> list[str]:
    """Return times in one axis as texts.

    Those of NumPy are wrong, or errors, for far times in a unit such as ten seconds.
    """
    unit, count = numpy.datetime_data(items.dtype)
    number = numpy.iinfo("i8").max // count
    is_far = numpy.zeros(len(items), bool)
    if count > 1:
        numbers = native(items).view("i8")
        is_far = ((numbers > number) | (numbers < -number)) & ~numpy.isnat(items)
    word = str(numpy.array(2, "m8[%s]" % unit)).partition(" ")[2]
    word += " since 1970" * (items.dtype.kind == "M")
    return [
        "%d %s" % (int(item.astype("i8")) * count, word) if far else str(item)
        for item, far in zip(items, is_far.tolist(), strict=True)
    ]


def shown_items(items: Items) -> list[str]:
    """Return short texts of items, for the repr of a table."""
    check_text(items)
    items = items.astype(object) if items.dtype.kind in "SU" else items
    with numpy.printoptions(
        threshold=6,
        edgeitems=2,
        precision=6,
        formatter={"datetime": lambda time: repr(time_texts(numpy.array([time]))[0])},
    ):
        if items.ndim > 1:
            texts = [" ".join(str(item).split()) for item in items]
        elif items.dtype.kind in "mM":
            texts = time_texts(items)
        else:  # repr escapes what a terminal would obey
            texts = [*map(repr if items.dtype.kind == "O" else str, items)]
    return [t if len(t) <= MAX_SHOWN else t[: MAX_SHOWN - 3] + "..." for t in texts]
