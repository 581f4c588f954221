"""Random tables of pandas, through every pair of formats, compared with pandas.

A table is written by pandas, or by `create_table`, converted to one format and from
there to another. The files of both are read with another library where there is one.
Each value is the same, or the conversion refuses the table and names a column, or a
notice names the column. A notice about missing values, and one about empty text, is no
reason for other values to differ.

``python tests/fuzz/tables.py --tables 2000 --seed 1`` prints what failed.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import itertools
import os
import random
import re
import sys
import tempfile
import warnings
from collections import Counter
from fractions import Fraction

import numpy as np

import bloscpack as bp
from bloscpack import dataset
from bloscpack._cli.contents import opened
from bloscpack.dataset.conversion.comparison import Comparison
from bloscpack.exceptions import UsageError

ENDS = (
    "parquet",
    "csv",
    "h5",
    "nc",
    "npz",
    "npy",
    "blp",
    "zarr",
    "superchunk",
    "bcolz",
)
PAIRS = [*itertools.permutations((*ENDS, "bigfile"), 2)]
ORIGINS = ("parquet", "csv", "table")
NAMES = (
    *("a", "A", "b c", "é", "日本", "x.y", "a_missing", "0", "1", "index", "km h⁻¹"),
    *("a,b", 'in "quotes"', "-", "_", "%20", " lead", "trail ", "NA", "nan", "COM1"),
    *("zarr.json", ".dot", "data", "x=1", "semi;colon", "new\nline", "tab\t", "ü" * 30),
)
WORDS = (
    "",
    "w",
    "NA",
    "nan",
    "None",
    "007",
    "1.5",
    "true",
    "é",
    "日本語",
    "a,b",
    'q"q',
)
WORDS += (
    "two\nlines",
    " x ",
    "-",
    "\U0001f600",
    "2020-01-01",
    "long" * 20,
    "a\rb",
    "'",
)
UNITS = {
    "D": 86400 * 10**9, "h": 3600 * 10**9, "m": 60 * 10**9, "s": 10**9,
    "ms": 10**6, "us": 10**3, "ns": 1,
}  # fmt: skip
PANDAS_UNITS = ("s", "ms", "us", "ns")
INTEGERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
# A name in a notice or in an error.
MASKED = re.compile("missing values of the column '(.*?)' \\(", re.DOTALL)
NO_TEXT = re.compile("which texts of the column '(.*?)' are missing", re.DOTALL)


class Failure(Exception):
    """A value that is another one without a notice, or another error."""


# Tables


def random_table(rng: random.Random, origin: str):
    """Return a DataFrame, and the kind of each column."""
    import pandas

    count = rng.choice([0, 1, 2, 5, 20, 60])
    names = rng.sample(rng.choice([NAMES, "abcdefg"]), rng.randint(1, 5))
    data, kinds = {}, {}
    for name in names:
        makers = [maker for maker in MAKERS if origin not in maker[2]]
        kind, make, _ = rng.choice(makers)
        share = rng.choice([0, 0, 0.1, 0.5, 1])
        missing = [rng.random() < share for _ in range(count)]
        items = make(rng, pandas, count, missing)
        if origin == "csv" and kind == "U":  # pandas writes this end of a line as it is
            items = pandas.Series(items).astype(object)
            items = items.map(
                lambda v: v.replace("\r", "") if isinstance(v, str) else v
            )
        data[name] = items
        kinds[name] = kind
    return pandas.DataFrame(data), kinds


def integers(rng, pandas, count, missing, nullable=True):
    dtype = rng.choice(INTEGERS)
    info = np.iinfo(dtype)
    edges = [info.min, info.max, info.min + 1, 0, 1]
    items = [rng.choice([*edges, rng.randint(info.min, info.max)]) for _ in missing]
    if not nullable:
        return np.array(items, dtype)
    values = [None if m else item for item, m in zip(items, missing, strict=True)]
    name = {"i": "Int", "u": "UInt"}[dtype[0]] + str(8 * int(dtype[1]))
    return pandas.array(values, name)


def all_bytes(rng, pandas, count, missing):
    """Return all values of one byte, so that no value is free for missing ones."""
    dtype = rng.choice(["Int8", "UInt8"])
    low = -128 if dtype == "Int8" else 0
    values = [low + i % 256 for i in range(count)]
    return pandas.array(
        [None if m else v for v, m in zip(values, missing, strict=True)], dtype
    )


def floats(rng, pandas, count, missing):
    dtype = rng.choice(["f4", "f8"])
    edges = [0.0, -0.0, 1.5, float("inf"), -float("inf"), 1e-30, 1e30, 0.1]
    items = [rng.choice([*edges, rng.gauss(0, 1)]) for _ in missing]
    array = np.array(items, dtype)
    array[np.array(missing, bool)] = np.nan
    if rng.random() < 0.3:
        return pandas.array(array, {"f4": "Float32", "f8": "Float64"}[dtype])
    return array


def booleans(rng, pandas, count, missing):
    items = [rng.random() < 0.5 for _ in missing]
    values = [None if m else item for item, m in zip(items, missing, strict=True)]
    return pandas.array(values, "boolean")


def plain_booleans(rng, pandas, count, missing):
    return np.array([rng.random() < 0.5 for _ in missing], bool)


def texts(rng, pandas, count, missing):
    items = ["word", *(rng.choice(WORDS) for _ in missing)][:count]
    values = [None if m else item for item, m in zip(items, missing, strict=True)]
    values[:1] = ["word"] * min(1, count)  # CSV: the others may be numbers
    found = pandas.Series(values, dtype=object)
    return found.astype("string") if rng.random() < 0.4 else found


def bytes_(rng, pandas, count, missing):
    items = [bytes(rng.choice(b"ab \x01z") for _ in range(rng.randint(0, 5)))] * count
    items = [i[: rng.randint(0, 5)] for i in items]
    values = [None if m else item for item, m in zip(items, missing, strict=True)]
    return pandas.Series(values, dtype=object)


def times(kind):
    def make(rng, pandas, count, missing):
        unit = rng.choice(PANDAS_UNITS)
        most = 2 * 10**18 // UNITS[unit]
        items = [rng.choice([0, -1, rng.randint(-most, most)]) for _ in missing]
        array = np.array(items, "i8").view("%s8[%s]" % (kind, unit))
        array[np.array(missing, bool)] = "NaT"
        return array

    return make


def zoned(rng, pandas, count, missing):
    found = pandas.Series(times("M")(rng, pandas, count, missing))
    return found.dt.tz_localize("UTC")


def categories(rng, pandas, count, missing):
    items = [rng.choice(["red", "green", "blue"]) for _ in missing]
    items[:1] = ["red"] * min(1, count)
    values = [None if m else item for item, m in zip(items, missing, strict=True)]
    return pandas.Categorical(values, categories=["red", "green", "blue"])


# Kind, function, and the origins that do not have it: pandas writes other text there.
MAKERS = (
    ("i", integers, ()),
    ("i", integers, ()),
    ("i", lambda *given: integers(*given, nullable=False), ()),
    ("i", all_bytes, ()),
    ("f", floats, ()),
    ("b", booleans, ()),
    ("b", plain_booleans, ()),
    ("U", texts, ()),
    ("U", texts, ()),
    ("S", bytes_, ("csv",)),
    ("M", times("M"), ()),
    ("m", times("m"), ("csv",)),
    ("M", zoned, ("csv",)),
    ("U", categories, ()),
)


def plain_values(column, kind: str) -> list[object]:
    """Return the values of a column of pandas, None if missing, exact times in ns."""
    if kind in "Mm":
        if getattr(column.dtype, "tz", None) is not None:
            column = column.dt.tz_localize(None)
        return from_array(column.to_numpy())
    missing = column.isna().tolist()
    values = column.astype(object).tolist()
    found = [None if m else v for v, m in zip(values, missing, strict=True)]
    if kind == "f" and "32" in str(column.dtype):
        return [None if v is None else float(np.float32(v)) for v in found]
    return found


def from_array(items) -> list[object]:
    """Return the items of an array of NumPy as plain values, None if missing."""
    kind = items.dtype.kind
    if kind in "mM":
        unit, count = np.datetime_data(items.dtype)
        numbers = items.astype("%s8[%s]" % (kind, unit)).view("i8").tolist()
        lost = np.isnat(items).tolist()
        pairs = zip(numbers, lost, strict=True)
        return [None if m else n * count * UNITS[unit] for n, m in pairs]
    return [None if v != v else v for v in items.tolist()]


# Files


def read_parquet(path):
    import pyarrow.parquet

    found = {}
    table = pyarrow.parquet.read_table(path)
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pyarrow.types.is_temporal(column.type):
            found[name] = from_array(column.to_numpy())
        else:
            values = column.to_pylist()
            found[name] = [None if v != v else v for v in values]
    return found


def read_csv(path):
    with open(path, newline="", encoding="utf-8") as fp:
        names, *rows = csv.reader(fp)
    found = {name: [] for name in names}
    for row in rows:
        if not row:
            row = [""]
        for name, value in zip(names, row, strict=True):
            found[name].append(value)
    return found


def read_hdf5(path):
    import h5py

    found = {}
    with h5py.File(path) as file:
        for name, stored in file.items():
            items = stored[()]
            if items.dtype == "S1" and items.ndim > 1:  # characters of netCDF
                items = items.view("S%d" % items.shape[1])[:, 0]
            if items.dtype.kind == "O":
                items = np.array([text.decode() for text in items.tolist()], object)
            values = from_array(items)
            if "_FillValue" in stored.attrs:
                fill = stored.attrs["_FillValue"]
                fill = fill.item() if hasattr(fill, "item") else fill
                values = [None if v == fill else v for v in values]
            words = str(stored.attrs.get("units", "")).split()[:1]
            units = {unit: 10**9 // 10**9 * UNITS[unit] for unit in UNITS}
            for unit, word in (
                ("D", "days"),
                ("s", "seconds"),
                ("ms", "milliseconds"),
                ("us", "microseconds"),
                ("ns", "nanoseconds"),
            ):
                if words == [word]:
                    values = [None if v is None else v * units[unit] for v in values]
            found[name] = values
        masks = {n: d.attrs.get("mask-of") for n, d in file.items()}
    return with_masks(found, masks)


def read_npz(path):
    with np.load(path) as archive:
        if archive.files == ["arr_0"]:
            return fields(archive["arr_0"])
        return {name: from_array(archive[name]) for name in archive.files}


def fields(items):
    """Return the fields of an array; a single column of a group has no name."""
    if items.dtype.names is None:
        return {None: from_array(items)}
    return {name: from_array(items[name]) for name in items.dtype.names}


def read_npy(path):
    return fields(np.load(path))


def read_blp(path):
    return fields(bp.unpack_ndarray_from_file(path))


def read_zarr(path):
    zarr = None
    with contextlib.suppress(ImportError):
        import zarr
    if zarr is None or not zarr.__version__.startswith("3"):
        return read_own(path)
    group = zarr.open(path, mode="r")
    found, masks = {}, {}
    if isinstance(group, zarr.Array):
        return {None: from_array(group[:])}
    with dataset.open(path) as own:
        names = own.names if hasattr(own, "names") else list(own)
    for name in names:
        array = group[name]
        if not isinstance(array, zarr.Array):
            return {n: from_array(np.asarray(a[:])) for n, a in array.arrays()}
        masks[name] = array.attrs.get("mask-of")
        found[name] = from_array(np.asarray(array[:]))
    return with_masks(found, masks)


def read_own(path):
    with dataset.open(path) as table:
        if isinstance(table, dataset.Array):
            return fields(table[:])
        is_group = not hasattr(table, "names")
        columns = {n: table[n] for n in table} if is_group else table.columns
        if [*columns] == ["arr_0"]:
            return fields(columns["arr_0"][:])
        masks = {n: c.attrs.get("mask-of") for n, c in columns.items()}
        found = {name: from_array(column[:]) for name, column in columns.items()}
    return with_masks(found, masks)


def read_bigfile(path):
    from bloscpack import bigfile

    found, masks = {}, {}
    tree = bigfile.File(path)
    for name in tree.blocks:
        with tree.open(name) as block:
            found[name] = from_array(block[:])
            masks[name] = block.attrs.get("mask-of")
    return with_masks(found, masks)


def with_masks(found, masks):
    """Return columns with None where another column, which is left out, says so."""
    for mask, name in masks.items():
        if name is not None:
            name = name if isinstance(name, str) else str(name)
            marks = found.pop(mask)
            pairs = zip(found[name], marks, strict=True)
            found[name] = [None if m else v for v, m in pairs]
    return found


READERS = {
    "parquet": read_parquet, "csv": read_csv, "h5": read_hdf5, "nc": read_hdf5,
    "npz": read_npz, "npy": read_npy, "blp": read_blp, "zarr": read_zarr,
    "superchunk": read_own, "bcolz": read_own, "bigfile": read_bigfile,
}  # fmt: skip


# Comparison


def as_kind(value, kind: str, is_text: bool):
    """Return a value in the form of a kind, from what CSV or another type makes it."""
    if value is None or (is_text and value == "" and kind not in "US"):
        return None
    if kind == "U" and isinstance(value, bytes):
        return value.decode()
    if kind == "S" and isinstance(value, str):
        return value.encode()
    if not isinstance(value, str):
        return Fraction(value) if kind == "i" and value == value else value
    if kind == "i":
        return Fraction(value)
    if kind == "f":
        return float(value)
    if kind == "b":
        return {"True": True, "False": False}.get(value, value)
    if kind == "M":
        return from_array(np.array([value], "M8"))[0]
    return value


def is_same(a, b, kind: str) -> bool:
    if kind == "f" and None not in (a, b):
        with np.errstate(over="ignore"):
            return a == b or (np.float32(a) == np.float32(b) and np.float32(a) == a)
    return a == b and (a is None) == (b is None)


def compare(expected, kinds, found, lost, is_text: bool) -> None:
    """Raise `Failure` for a difference that no notice explains."""
    text = "\n".join(lost)
    masked, no_text = {*MASKED.findall(text)}, {*NO_TEXT.findall(text)}
    others = "\n".join(x for x in lost if not (MASKED.search(x) or NO_TEXT.search(x)))
    for name, values in expected.items():
        kind = kinds[name]
        is_named = "'%s'" % name in others or "'/%s'" % name in others
        if [*found] == [None] and len(expected) == 1:
            found = {name: found[None]}
        if name not in found:
            if is_named:
                continue
            raise Failure("column %r is gone; notices: %r" % (name, lost))
        if len(found[name]) != len(values):
            raise Failure("%r has %d rows" % (name, len(found[name])))
        for number, (a, b) in enumerate(zip(values, found[name], strict=True)):
            if a is None and (name in masked or name in no_text):
                continue
            with contextlib.suppress(ValueError, TypeError, KeyError):
                b = as_kind(b, kind, is_text)
            a = as_kind(a, kind, False)
            if not is_same(a, b, kind) and not is_named:
                raise Failure(
                    "column %r (%s), row %d: expected %r, found %r; notices: %r"
                    % (name, kind, number, a, b, lost)
                )


def check_diff(path: str, target: str) -> None:
    """Raise `Failure` if `diff` finds another item after a conversion without notices.

    Types may differ, and an array may be a column of a table.
    """
    found = Comparison(False, False)
    with opened(path, 1) as a, opened(target, 1) as b:
        found.compare(a.content, b.content)
    # CSV has no types: its floats are those of 64 bits.
    wrong: list[object] = [
        (items.name, index, x, y)
        for items in found.items
        for index, x, y in items.first
        if not x.dtype.kind == y.dtype.kind == "f"
        or not (np.float32(x) == np.float32(y)).all()
    ]
    wrong += [note for note in found.notes if note["what"] in ("columns", "rows")]
    if wrong:
        raise Failure("diff: %r" % (wrong,))


def refused(error: Exception, names) -> None:
    """Raise `Failure` unless an error names a column."""
    if not any(name in str(error) or repr(name) in str(error) for name in names):
        raise Failure("refused without a name: %r" % error) from error


def one_case(number: int, seed: int, folder: str) -> str:
    """Take a table through a pair of formats; return what happened."""
    rng = random.Random("%d %d" % (seed, number))
    first, second = PAIRS[number % len(PAIRS)]
    origin = ORIGINS[number // len(PAIRS) % len(ORIGINS)]
    frame, kinds = random_table(rng, origin)
    expected = {name: plain_values(frame[name], kinds[name]) for name in frame}
    path = os.path.join(folder, "%d-origin.%s" % (number, origin))
    try:
        if origin == "table":
            path = path.removesuffix("table") + "zarr"
            dataset.create_table(path, frame).close()
        elif origin == "parquet":
            frame.to_parquet(path, index=False)
        else:
            frame.to_csv(path, index=False)
            expected = csv_values(expected, kinds)
    except UsageError as error:
        refused(error, frame)
        return "refused by create_table"
    lost: list[str] = []
    is_text = origin == "csv"
    for end in (first, second):
        target = os.path.join(folder, "%d-%s.%s" % (number, end == second, end))
        try:
            now = dataset.convert(path, target).lost
        except UsageError as error:
            refused(error, frame)
            return "refused by %s" % end
        lost = lost + now
        if not now:
            check_diff(path, target)
        is_text = is_text or end == "csv"
        compare(expected, kinds, READERS[end](target), lost, is_text)
        path = target
    return "noticed" if lost else "equal"


def csv_values(expected, kinds):
    """Return what pandas writes to CSV: empty text for missing text."""
    return {
        name: ["" if v is None and kinds[name] == "U" else v for v in values]
        for name, values in expected.items()
    }


def main() -> int:
    """Run the cases, and print what failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    found: Counter[str] = Counter()
    nfailed = 0
    numbers = range(args.first, args.first + args.tables)
    for number, result in run(numbers, args.seed):
        found[result if isinstance(result, str) else "failed"] += 1
        if not isinstance(result, str):
            nfailed += 1
            pair = "%s to %s" % PAIRS[number % len(PAIRS)]
            origin = ORIGINS[number // len(PAIRS) % len(ORIGINS)]
            print("%d (%s, from %s): %r" % (number, pair, origin, result), flush=True)
    print(dict(found))
    return min(nfailed, 1)


def run(numbers, seed: int):
    """Yield each number with what happened, or with an exception."""
    for number in numbers:
        with (
            tempfile.TemporaryDirectory() as folder,
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            try:
                result: object = one_case(number, seed, folder)
            except Exception as error:
                result = error
        yield number, result


if __name__ == "__main__":
    sys.exit(main())
