"""Random datasets of xarray, written and read in many ways.

Each has variables of several dtypes and encodings, with missing values, and values that
are equal to the fill value. What is written is read as it was, within the rounding that
the encoding asks for, or is refused with the name of a variable. As a program, this
checks the seeds from one number to another::

    python tests/integrations/xarray_cases.py 0 5000
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import warnings

import numpy as np
import pandas as pd
import xarray as xr

from bloscpack import dataset
from bloscpack.exceptions import UsageError

NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
DTYPES = (
    *("bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", ">f4"),
    *("c8", "c16", "U3", "S2", "O", "M8[s]", "M8[ms]", "M8[us]", "M8[ns]"),
    *("m8[s]", "m8[ms]", "m8[us]", "m8[ns]", "noleap", "360_day", "standard"),
)
CALENDARS = "noleap", "360_day", "standard"
# Seconds since 1970: near times, and those up to the year 99999.
SPANS = 10**6, 10**9, 3 * 10**11, 3 * 10**12
SHAPE = 4, 3


def values_of(rng, dtype, shape):
    """Return random values, of which some are missing if the dtype has such values."""
    if not shape:
        return values_of(rng, dtype, (1,)).reshape(())
    gaps = rng.random(shape) < rng.choice([0, 0, 0.3, 1])
    if dtype in CALENDARS:
        import cftime

        start = cftime.datetime(1600, 1, 1, calendar=dtype)
        days = rng.integers(0, int(rng.choice([10**5, 10**6, 10**7])), shape)
        hours = rng.choice([0, 12.0, 0.001], shape)
        items = [
            start + pd.Timedelta(int(d), "D").to_pytimedelta() * 1
            if h == 0
            else start + np.timedelta64(int(d) * 86400000 + int(h * 1000), "ms").item()
            for d, h in zip(days.flat, hours.flat, strict=True)
        ]
        found = np.empty(len(items), object)
        found[:] = items
        return found.reshape(shape)
    dtype = np.dtype(dtype)
    if dtype.kind in "mM":
        unit = np.datetime_data(dtype)[0]
        span = int(rng.choice(SPANS[: 2 if unit == "ns" else 4]))
        step = int(rng.choice([1, 60, 86400]))
        seconds = rng.integers(-min(span, 9 * 10**9), span, shape) // step * step
        found = seconds.astype(dtype.kind + "8[s]").astype(dtype)
        if rng.random() < 0.3:
            found = found + np.timedelta64(int(rng.integers(0, 999)), unit)
        found[gaps] = "NaT"
        return found
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        most = int(rng.choice([5, 100, info.max]))
        return rng.integers(max(info.min, -most), min(info.max, most), shape, dtype)
    if dtype.kind in "fc":
        found = rng.normal(0, float(rng.choice([1, 100, 1e6])), shape)
        found = (np.round(found) if rng.random() < 0.5 else found).astype(dtype)
        found[gaps] = np.nan
        return found
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    words = np.array(["", "a", "b", "abc", "é"][: 4 if dtype.kind == "S" else 5])
    found = rng.choice(words, shape).astype(dtype)
    if dtype.kind == "O" and rng.random() < 0.2:
        found[gaps] = np.nan
    return found


def encoding_of(rng, values):
    """Return a random encoding, which may not be able to hold the values."""
    kind, found = values.dtype.kind, {}
    is_calendar = kind == "O" and values.size and hasattr(values.flat[0], "calendar")
    if rng.random() < 0.3:
        return found
    if kind in "mM" or is_calendar:
        if rng.random() < 0.6:
            units = rng.choice(["seconds", "days", "hours", "milliseconds"])
            since = rng.choice(["1970-01-01", "2000-01-01 12:00:00", "1900-01-01"])
            found["units"] = "%s since %s" % (units, since) if kind != "m" else units
        if rng.random() < 0.5:
            found["dtype"] = str(rng.choice(["i4", "i8", "f8", "i2"]))
    elif kind in "biufc" and rng.random() < 0.7:
        found["dtype"] = str(rng.choice(["i1", "u1", "i2", "i4", "i8", "f4", "f8"]))
        if rng.random() < 0.5:
            found["scale_factor"] = float(rng.choice([0.1, 0.5, 2, 1000]))
        if rng.random() < 0.3:
            found["add_offset"] = float(rng.choice([0, 10.5, -300]))
        if rng.random() < 0.1:
            found["_Unsigned"] = str(rng.choice(["true", "false"]))
    if rng.random() < 0.6:
        fill = rng.choice([-1, 0, 1, 5, -9, 127, -128, 255])
        if kind in "OUS" and not is_calendar:
            fill = rng.choice(["a", "", "zz"])
            fill = fill.encode() if kind == "S" else str(fill)
        elif rng.random() < 0.1:
            fill = np.nan
        elif kind in "iuf" and rng.random() < 0.4:
            fill = values.flat[0] if values.size else fill
        keys = rng.choice(["_FillValue", "missing_value", "both"], p=[0.7, 0.2, 0.1])
        for key in ("_FillValue", "missing_value") if keys == "both" else [keys]:
            found[str(key)] = getattr(fill, "item", lambda fill=fill: fill)()
    return found


def random_dataset(rng):
    """Return a dataset, and its encodings by the names of variables."""
    variables, encodings = {}, {}
    shape = (0, 3) if rng.random() < 0.05 else SHAPE
    for number in range(int(rng.integers(1, 4))):
        dtype = str(rng.choice(DTYPES))
        ndim = int(rng.choice([0, 1, 2], p=[0.1, 0.4, 0.5]))
        values = values_of(rng, dtype, shape[:ndim])
        name = "v%d" % number
        variables[name] = ("t", "x")[:ndim], values
        if found := encoding_of(rng, np.asarray(values)):
            encodings[name] = found
    data = xr.Dataset(variables)
    if rng.random() < 0.5:
        step = np.timedelta64(int(rng.choice([1, 3600, 86400])), "s")
        start = np.datetime64(
            str(rng.choice(["2000-01-01", "3000-01-01", "99990-01-01"])), "s"
        )
        times = start + np.arange(shape[0]) * step
        if rng.random() < 0.5 and start < np.datetime64("2200"):
            times = times.astype("M8[ns]")
        data = data.assign_coords(t=times)
        if rng.random() < 0.5:
            limits = np.stack([times, times + step], 1)
            data = data.assign_coords(limits=(("t", "n"), limits))
            data.t.attrs["bounds"] = "limits"
    return data, encodings


def _as_int(times):
    unit = np.datetime_data(times.dtype)[0]
    return times.view("i8").astype(object) * NS[unit]


def check_variable(given, found, encoding, name):
    """Raise `AssertionError` if values were not read as they were given."""
    given, found = given.values, found.values
    assert given.shape == found.shape, (name, given.shape, found.shape)
    is_lossy = "zarr" in name and given.dtype.kind in "OM" and found.dtype.kind == "M"
    if is_lossy and "units" in encoding and encoding.get("dtype", "f8") == "f8":
        return  # xarray makes NaT of floats that nanoseconds do not hold
    missing = np.asarray(pd.isnull(given))
    text = "%s: expected %r, found %r, %r" % (name, given, found, encoding)
    assert np.array_equal(missing, np.asarray(pd.isnull(found))), text
    a, b = given[~missing], found[~missing]
    if not a.size:
        return
    # xarray takes floats for times that are no whole numbers of the units.
    usual = "f8" if "units" in encoding else "i8" if a.dtype.kind in "mMO" else a.dtype
    stored = np.dtype(encoding.get("dtype", usual))
    if a.dtype.kind in "mM":
        assert b.dtype.kind == a.dtype.kind, text
        limit = 0 if stored.kind != "f" else 10**6
        assert all(
            abs(x - y) <= limit for x, y in zip(_as_int(a), _as_int(b), strict=True)
        ), text
    elif a.dtype.kind == "O" and hasattr(a[0], "calendar"):
        limit = pd.Timedelta(1, "ms").to_pytimedelta() * (
            stored.kind != "i" or "zarr" in name
        )
        if b.dtype.kind == "M":  # of the standard calendar
            import cftime

            a = cftime.date2num(a, "microseconds since 1970-01-01", "standard")
            b = _as_int(b) // 1000
            assert all(abs(x - y) <= 1000 for x, y in zip(a, b, strict=True)), text
            return
        assert all(x.calendar == y.calendar for x, y in zip(a, b, strict=True)), text
        assert all(abs(x - y) <= limit for x, y in zip(a, b, strict=True)), text
    elif {"scale_factor", "add_offset"} & encoding.keys() and a.dtype.kind in "iuf":
        step = encoding.get("scale_factor", 1)
        eps = max(
            np.finfo(x.dtype).eps
            for x in (a, b, np.ones(1, "f4"))
            if x.dtype.kind == "f"
        )
        sizes = abs(a.astype("f8")) + abs(encoding.get("add_offset", 0))
        limit = step / 2 * 1.00001 + 8 * eps * sizes
        assert (abs(a.astype("f8") - b.astype("f8")) <= limit).all(), text
    elif a.dtype.kind == "f" and stored.kind in "iu":
        limit = 0.5 + 8 * np.finfo(a.dtype).eps * abs(a.astype("f8"))
        assert (abs(a.astype("f8") - b.astype("f8")) <= limit).all(), text
    elif a.dtype.kind in "fc" and stored != a.dtype:
        assert np.allclose(a, b, rtol=1e-5, atol=1e-4), text
    elif a.dtype.kind in "iu":
        assert [int(x) for x in a] == [int(x) for x in b], text
    else:
        assert (a == b).all(), text


def readers(path, data):
    """Yield the dataset as each engine reads it."""
    with xr.open_dataset(path, engine="bloscpack") as opened:
        yield "bloscpack", opened.load()
    coder = xr.coders.CFDatetimeCoder(time_unit="s")
    with xr.open_zarr(
        path,
        consolidated=False,
        chunks=None,
        concat_characters=False,
        decode_times=coder,
    ) as opened:
        yield "zarr", opened.load()


def written(rng, path, data, encodings):
    """Write a dataset in a way that is chosen at random; return the way."""
    way = str(rng.choice(["create", "dask", "append", "region", "a", "tree", "mixed"]))
    if way in ("dask", "mixed"):
        names = [n for n in data.data_vars if way == "dask" or rng.random() < 0.5]
        data = data.assign(
            {n: data[n].chunk(dict.fromkeys(data[n].dims, 2)) for n in names}
        )
    if way in ("append", "region") and data.sizes.get("t", 0) > 2:
        first = data.isel(t=slice(0, 2)) if way == "append" else data
        dataset.from_xarray(path, first, encoding=encodings).close()
        kept = [n for n in data.variables if "t" in data[n].dims]
        rest = data[kept].isel(t=slice(2, None))
        rest = rest.drop_vars([n for n in rest.coords if "t" not in rest[n].dims])
        options = {"append_dim": "t"}
        if way == "region":
            options = {"region": {"t": slice(2, None)}}
            if "t" in data.coords and rng.random() < 0.7:
                options = {"region": "auto"}
                if "x" in rest.dims:
                    options = {"region": {"t": "auto"}}
        dataset.from_xarray(path, rest, **options).close()
    elif way == "a":
        dataset.from_xarray(path, data, encoding=encodings).close()
        dataset.from_xarray(path, data, mode="a").close()
    elif way == "tree":
        tree = xr.DataTree.from_dict({"/": xr.Dataset(), "/in": data})
        dataset.from_xarray(path, tree, encoding={"in": encodings}).close()
    else:
        dataset.from_xarray(path, data, encoding=encodings).close()
    return way


def check(seed, folder):
    """Check the dataset of a seed; return whether it was written, and the way."""
    rng = np.random.default_rng(seed)
    data, encodings = random_dataset(rng)
    path = os.path.join(folder, "g%d" % seed)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            way = written(rng, path, data, encodings)
        except UsageError as error:
            names = [n for n in data.variables if "'%s'" % n in str(error)]
            if not names and "append_dim" not in str(error):
                raise AssertionError("no name: %s" % error) from error
            return "refused: %s" % error
        except ValueError as error:
            if "Times can't be serialized" in str(error):  # by a task of xarray
                return "refused: %s" % error
            raise
        if way == "tree":
            path += "/in"
        for engine, found in readers(path, data):
            for name, variable in data.variables.items():
                where = "%s, engine %s, %s" % (name, engine, way)
                check_variable(
                    variable, found[name].variable, encodings.get(name, {}), where
                )
        assert dataset.verify(path.removesuffix("/in")).ok
    return way


def check_theirs(seed, folder):
    """Check that a group that xarray wrote is read as xarray reads it."""
    rng = np.random.default_rng(seed)
    data, encodings = random_dataset(rng)
    path = os.path.join(folder, "z%d" % seed)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            data.to_zarr(path, encoding=encodings, zarr_format=3, consolidated=False)
            options = {
                "concat_characters": False,
                "engine": "zarr",
                "consolidated": False,
            }
            with xr.open_dataset(path, **options) as opened:
                theirs = opened.load()
        except Exception:  # xarray can't write or read it
            return "not by xarray"
        with xr.open_dataset(path, engine="bloscpack") as opened:
            for name, variable in theirs.variables.items():
                ours = opened[name].variable
                if ours.dtype.kind == "M" and ours.dtype != variable.dtype:
                    continue  # far times, which xarray reads as objects, or as NaT
                check_variable(variable, ours, {}, "%s by xarray" % name)
    return "read"


def main(first, last):
    """Check seeds, and print those that fail."""
    counts, failed = {}, []
    for seed in range(first, last):
        folder = tempfile.mkdtemp(prefix="xarray-cases-")
        for call in (check, check_theirs):
            try:
                result = call(seed, folder)
            except Exception as error:
                failed.append(seed)
                print("%d: %s: %.1500s" % (seed, type(error).__name__, error))
                continue
            key = result.partition(":")[0]
            counts[key] = counts.get(key, 0) + 1
        shutil.rmtree(folder)
    print(counts, "%d failed" % len(failed), failed[:20])
    return len(failed)


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:]))))
