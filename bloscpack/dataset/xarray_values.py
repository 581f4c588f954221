"""Values of variables of xarray, as groups store and return them.

Strategy: xarray itself encodes the variables, by the conventions of netCDF. Each is
decoded again: none may get another value than the given one.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy

from .._compat import import_extra
from .._format.dtypes import Array as Items
from .._format.zarr_metadata import MASK
from .._types import JsonObject
from ..exceptions import DoesNotFit, UsageTypeError, UsageValueError
from .columns import naming_column
from .items import check_truth, converted, items_of
from .node import import_dask
from .rows import READ_NBYTES

if TYPE_CHECKING:
    from xarray import Dataset, Variable

# Kinds of dtypes whose items are text, of any length, or times of xarray.
TEXT_KINDS = "OSTU"
# Attributes that xarray reads: the values of missing items, and how it stores values.
FILLS = {MASK, "missing_value"}
STORAGE = FILLS | {
    *("dtype", "units", "calendar", "scale_factor", "add_offset", "_Unsigned"),
}
# What `encoding` may have for xarray; the rest is for `create_array`.
CONVENTIONS = {*STORAGE, "coordinates", "grid_mapping"}
# Units of times, from the coarsest to the finest, and their names in NumPy.
UNITS = {
    "seconds": "s",
    "milliseconds": "ms",
    "microseconds": "us",
    "nanoseconds": "ns",
}
# The first day of the standard calendar on which it is that of NumPy.
REFORM = numpy.datetime64("1582-10-15")
# Maximum error in nanoseconds of a time that a variable of floats holds.
MAX_ERROR = 1e6


# Encoding


def without_extensions(data: Dataset) -> Dataset:
    """Return a dataset with arrays of NumPy instead of those of pandas.

    Raises `UsageError` for items that no dtype of NumPy has, such as categories.
    """
    variables = {}
    for name, variable in data.variables.items():
        dtype: Any = variable.dtype
        if isinstance(dtype, numpy.dtype):
            continue
        is_text = dtype.type is str
        # xarray returns the values of an index as objects.
        array = data.indexes.get(name, variable.data)
        items = numpy.asarray(array, object if is_text else None)
        if not is_text and (items.dtype.kind == "O" or items.dtype.kind != dtype.kind):
            raise UsageTypeError(
                "the variable '%s': the dtype '%s' of pandas has items that no dtype "
                "of NumPy has: convert them" % (name, dtype)
            )
        variables[name] = variable.dims, items, variable.attrs, variable.encoding
    return data.assign(variables)


def encode(
    data: Dataset, given: dict[str, dict[str, object]], *, checks: bool = True
) -> tuple[dict[str, Variable], JsonObject]:
    """Return the variables and attributes of a dataset as netCDF has them.

    What `given` has for xarray is removed from it.
    """
    conventions = import_extra("xarray.conventions", "xarray")
    variables, attrs = conventions.encode_dataset_coordinates(data)
    for name, settings in given.items():
        for key in CONVENTIONS & settings.keys():
            variables[name].encoding[key] = settings.pop(key)
    _choose_units(variables)
    plain = {}
    for name, variable in variables.items():
        with naming_column(str(name), "variable"):
            plain[name] = _as_numbers(_without_codes(variable), str(name))
    try:
        encoded, attrs = conventions.cf_encoder(plain, dict(attrs))
    except (
        *(ArithmeticError, AttributeError, LookupError, RuntimeError),
        *(TypeError, ValueError),
    ) as error:
        note = "".join(getattr(error, "__notes__", ())).partition(" with value")[0]
        raise UsageValueError(
            "xarray can't encode the dataset: %s: %s (%s)"
            % (type(error).__name__, error, note)
        ) from error
    for name, variable in encoded.items():
        original = data.variables[name]
        if original.dtype.kind == "m" and "dtype" in variable.attrs:
            variable.attrs["dtype"] = str(original.dtype)
        if original.dtype == bool:
            encoded[name] = variable = variable.astype(bool)
            variable.attrs.pop("dtype", None)
        if checks:
            # Bounds do not state their units.
            how = _codes(_without_codes(variables[name]).encoding) | variable.attrs
            if calendar := calendar_of(original):
                how.setdefault("calendar", calendar)
            with naming_column(str(name), "variable"):
                encoded[name] = _checked(variable, original, how, str(name))
    return encoded, attrs


def _without_codes(variable: Variable) -> Variable:
    """Return a variable without the codes that its dtype does not need.

    netCDF has no booleans, and Zarr has; none of them is missing, and no text of NumPy.
    The engine ``zarr`` of xarray opens no text with a ``_FillValue``.
    """
    kind, encoding = variable.dtype.kind, dict(variable.encoding)
    for key in {"b": STORAGE, "U": FILLS, "S": FILLS}.get(kind, ()):
        encoding.pop(key, None)
    if "_Encoding" in encoding:  # text that was stored as bytes
        encoding.pop("dtype", None)
    if kind_of(variable)[0] == "U" and encoding.get(MASK) is not None:
        encoding["missing_value"] = encoding.pop(MASK)
    copy = variable.copy(deep=False)
    copy.encoding = encoding
    return copy


def _choose_units(variables: dict[Any, Variable]) -> None:
    """Set units of times and durations that have none, which hold later ones, too.

    Each item is a whole number of them. The bounds of times get the same units. Those
    of Dask get the units of their dtype.
    """
    # Those with bounds come first.
    for variable in sorted(variables.values(), key=lambda v: "bounds" not in v.attrs):
        kind = kind_of(variable)[0]
        bounds = variables.get(variable.attrs.get("bounds"), variable)
        both = [v for v in (variable, bounds) if kind_of(v)[0] == kind]
        # xarray chooses those of lazy times of cftime.
        if kind in "mM" and not any(v.chunks and v.dtype.kind == "O" for v in both):
            units = (
                name
                for name, unit in UNITS.items()
                if all(_is_whole(v, unit) for v in both)
            )
            chosen = next(units, "nanoseconds")
            given = {"units": chosen + " since 1970-01-01" * (kind == "M")}
            given |= variable.attrs | variable.encoding
            for bound in both:
                if "units" not in bound.attrs:
                    bound.encoding.setdefault("units", given["units"])


def _is_whole(variable: Variable, unit: str) -> bool:
    """Return whether times are whole numbers of a unit; of Dask by their dtype."""
    dtype = numpy.dtype("%s8[%s]" % (variable.dtype.kind.replace("O", "M"), unit))
    if variable.chunks:
        return bool(numpy.promote_types(variable.dtype, dtype) == dtype)
    times = variable.values
    if times.dtype.kind == "O":  # of cftime, with microseconds
        step = {"s": 10**6, "ms": 10**3}.get(unit, 1)
        return not any(getattr(t, "microsecond", 0) % step for t in times.flat)
    with suppress(OverflowError):  # of newer releases of NumPy, for the first times
        return bool(((times.astype(dtype) == times) | numpy.isnat(times)).all())
    return False


def _as_numbers(variable: Variable, name: str) -> Variable:
    """Return times of NumPy, and lazy ones of cftime, as numbers in their units.

    Others are returned unchanged, for xarray, which can't encode far times: those of
    other calendars, and those for which it takes finer units, or floats.
    """
    kind, encoding = variable.dtype.kind, dict(variable.encoding)
    is_packed = {"scale_factor", "add_offset"} & encoding.keys()
    dtype = numpy.dtype(encoding.get("dtype") or "i8")
    of_cftime = (
        calendar_of(variable) if variable.chunks and "units" in encoding else None
    )
    if not (kind in "mM" or of_cftime) or is_packed or dtype.kind not in "iuf":
        return variable
    labels = {"units": encoding.pop("units", "")}
    calendar = encoding.pop("calendar", None)
    if of_cftime:
        labels["calendar"] = calendar or of_cftime
    elif kind == "M":
        labels["calendar"] = calendar or "proleptic_gregorian"
    else:
        labels["dtype"] = str(variable.dtype)
    if not labels.keys().isdisjoint(variable.attrs):
        return variable
    scale = None if of_cftime else _scale_of(**labels)
    if scale is None and not of_cftime:
        return variable

    def numbers(times: Items) -> Items:
        with naming_column(name, "variable"):
            if scale is None:
                return _numbers_of_cftime(times, dtype.kind == "f", labels)
            return _numbers_of(times, dtype.kind == "f", *scale)

    if variable.chunks:
        wide = "f8" if dtype.kind == "f" else "i8"
        meta = numpy.empty((0,) * variable.ndim, wide)
        lazy = import_dask("dask.array").map_blocks
        data = lazy(numbers, variable.data, dtype=wide, meta=meta)
    else:
        try:
            data = numbers(variable.values)
        except DoesNotFit:
            return variable
    make = import_extra("xarray", "xarray").Variable
    new: Variable = make(variable.dims, data, variable.attrs | labels, encoding)
    return new


@lru_cache
def _scale_of(
    units: str, calendar: str | None = None, dtype: str | None = None
) -> tuple[Any, Any, bool] | None:
    """Return the time that the number 0 means, a unit, and whether it is of any time.

    The calendar ``standard`` is that of NumPy only from 1582-10-15 on. Return None for
    units that NumPy does not have.
    """
    xarray = import_extra("xarray", "xarray")
    if not hasattr(xarray, "coders"):
        return None
    attrs = {"units": units, "dtype": "timedelta64[s]"}
    attrs |= {} if calendar is None else {"calendar": calendar}
    try:
        zero, one = xarray.conventions.decode_cf_variable(
            *("", xarray.Variable("x", [0, 1], attrs)),
            decode_times=xarray.coders.CFDatetimeCoder(False, time_unit="s"),
        ).values
    except (LookupError, OverflowError, TypeError, ValueError):
        return None
    if zero.dtype.kind != ("m" if calendar is None else "M"):
        return None
    return zero, one - zero, calendar in (None, "proleptic_gregorian")


def _numbers_of(
    times: Items, as_floats: bool, zero: Any, step: Any, any_time: bool
) -> Items:
    """Return times as numbers; raise `DoesNotFit` if they are no whole numbers."""
    dtype = numpy.promote_types(times.dtype, zero.dtype)
    fine, missing = converted(times, dtype), numpy.isnat(times)
    if not any_time and _before_reform(times):
        raise DoesNotFit("a time is before 1582-10-15 in the standard calendar")
    ticks, start = fine.view("i8"), int(converted(zero, dtype).view("i8"))
    ends = numpy.iinfo("i8")
    is_near = ticks > max(ends.min, ends.min + start)  # the smallest is NaT
    if not (missing | (is_near & (ticks <= min(ends.max, ends.max + start)))).all():
        raise DoesNotFit("a time is too far from %s for its units" % zero)
    deltas = ticks - start
    unit = int(step.astype("m8[%s]" % numpy.datetime_data(dtype)[0]).view("i8"))
    if as_floats:
        return numpy.where(missing, numpy.nan, deltas / unit)
    numbers: Items = numpy.where(missing, ticks, deltas // unit)
    if not ((numbers * unit == deltas) | missing).all():
        raise DoesNotFit("a time is no whole number of its units since %s" % zero)
    return numbers


def _numbers_of_cftime(times: Items, as_floats: bool, labels: JsonObject) -> Items:
    """Return times of cftime as numbers; raise `DoesNotFit` for other units."""
    xarray = import_extra("xarray", "xarray")
    encoding = {**labels, "dtype": "f8" if as_floats else "i8"}
    variable = xarray.Variable([*map(str, range(times.ndim))], times, {}, encoding)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about other units, which are refused
            encoded = xarray.conventions.encode_cf_variable(variable)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise DoesNotFit("%s" % error) from error
    units = [encoded.attrs["units"].split()[0], labels["units"].split()[0]]
    if (
        units[0].rstrip("s") != units[1].rstrip("s")
        or encoded.dtype != encoding["dtype"]
    ):
        raise DoesNotFit("a time is no whole number of '%s'" % labels["units"])
    items: Items = encoded.values
    return items


def encode_like(stored: Dataset, data: Dataset) -> Mapping[str, Variable]:
    """Return the variables of a dataset that are stored, encoded in the same way."""
    known = data.drop_encoding()
    known = known.drop_vars([n for n in data.variables if n not in stored.variables])
    given = {}
    for name, variable in known.variables.items():
        kept = {k: v for k, v in stored[name].encoding.items() if k in STORAGE}
        scales = {"scale_factor", "add_offset"} & kept.keys()
        dtype = numpy.dtype(kept.get("dtype", stored[name].dtype))
        is_whole = variable.dtype.kind in "biu"
        exact = is_whole and dtype.kind in "biu" and not scales
        if is_whole and not exact:  # xarray can't scale it, or encode a mask of NaN
            known[name] = variable.astype(float)
        if exact or kind_of(variable)[0] not in ("f", "M", "m"):
            kept.pop("dtype", None)  # `converted` finds what would be cut off
        given[str(name)] = kept
    with warnings.catch_warnings(), numpy.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # `fitting_items` compares the result
        return encode(known, given, checks=False)[0]


def fitting_items(
    encoded: Variable, variable: Variable, stored: Variable, raw: Variable
) -> Items:
    """Return the items of an encoded variable, as the dtype that is stored.

    Raises `UsageError` if they are no longer those of the variable: only packed numbers
    and floats are rounded. `raw` is the stored variable without decoding.
    """
    check_truth(numpy.empty(0, variable.dtype), stored.dtype)
    items = converted(numpy.asarray(items_of_variable(encoded)), raw.dtype)
    # The units of bounds are attributes of another variable.
    how = raw.attrs | _codes(stored.encoding)
    # xarray takes finer units where a time would be rounded.
    units = [str(labels.get("units")).split()[0] for labels in (how, encoded.attrs)]
    is_time = kind_of(variable)[0] in "mM" and "units" in encoded.attrs
    if is_time and units[0] != units[1]:
        raise DoesNotFit(
            "the values do not fit the units '%s' of the group" % how["units"]
        )
    if _may_change(raw.dtype, variable, how):
        _check_same(items, variable, how)
    return items


# Checking


def _checked(
    encoded: Variable, variable: Variable, how: Mapping[Any, Any], name: str
) -> Variable:
    """Return an encoded variable whose values were compared with the given ones.

    Those of Dask are compared when they are computed.
    """
    if not _may_change(encoded.dtype, variable, how):
        return encoded
    if not variable.chunks:
        for part in _parts(variable):
            _check_same(encoded[part].values, variable[part], how)
        return encoded

    def checked(items: Items, given: Items) -> Items:
        with naming_column(name, "variable"):
            items = converted(items, dtype)
            _check_same(items, type(encoded)(dims, given, attrs), how)
        return items

    dims, attrs, dtype = encoded.dims, variable.attrs, encoded.dtype
    lazy = encoded.data
    blocks = import_dask("dask.array").map_blocks(
        checked, lazy, variable.data, dtype=dtype, meta=lazy._meta
    )
    return encoded.copy(data=blocks)


def _may_change(stored: Any, variable: Variable, how: Mapping[Any, Any]) -> bool:
    """Return whether the values of a variable may be others when they are read."""
    codes = [value for key, value in how.items() if key in STORAGE and key != "dtype"]
    is_nan = [isinstance(v, (float, numpy.floating)) and v != v for v in codes]
    return stored != variable.dtype or not all(is_nan)


def _check_same(items: Items, variable: Variable, how: Mapping[Any, Any]) -> None:
    """Raise `DoesNotFit` if encoded items are not read as the values of a variable.

    Packed numbers are rounded to the nearest step, and floats to other floats.

    Parameters
    ----------
    how
        The attributes of the items.
    """
    given, dims = variable.values, variable.dims
    if _codes(variable.attrs):  # the values are encoded already
        given = _decode(given, dims, variable.attrs, given.dtype)
    if items.shape != given.shape:
        return
    isnull = import_extra("pandas", "xarray").isnull
    try:
        again = _decode(items, dims, how, given.dtype)
        missing = [numpy.asarray(isnull(side)) for side in (given, again)]
        kept = ~(missing[0] | missing[1])
        fits = _fits(given[kept], again[kept], items.dtype, how)
    except (ArithmeticError, AttributeError, ValueError) as error:
        raise DoesNotFit(
            "the values do not fit the dtype '%s'%s: %s"
            % (items.dtype, _shown(how), error)
        ) from error
    wrong = numpy.asarray(missing[0] != missing[1])
    wrong[kept] |= ~fits
    if wrong.any():
        values = [numpy.asarray(side[wrong]).flat[0] for side in (given, again)]
        raise DoesNotFit(
            "the value %s does not fit the dtype '%s'%s: it is read as %s"
            % (values[0], items.dtype, _shown(how), values[1])
        )


def _codes(attrs: Mapping[Any, Any]) -> JsonObject:
    """Return the attributes that say how values are stored, without the dtype."""
    return {key: attrs[key] for key in STORAGE & attrs.keys() if key != "dtype"}


def _shown(how: Mapping[Any, Any]) -> str:
    """Return the attributes that say how values are stored, for a message."""
    codes = {key: numpy.asarray(v).tolist() for key, v in _codes(how).items()}
    return " with %s" % dict(sorted(codes.items())) if codes else ""


def _decode(
    items: Items, dims: tuple[Any, ...], attrs: Mapping[Any, Any], dtype: Any
) -> Items:
    """Return items as xarray reads them for values of a dtype."""
    xarray = import_extra("xarray", "xarray")
    times: Any = dtype.kind in "MO" and "since" in str(attrs.get("units"))
    if times and hasattr(xarray, "coders"):
        coder = xarray.coders.CFDatetimeCoder
        unit = numpy.datetime_data(dtype)[0] if dtype.kind == "M" else ""
        # Far times of another unit would become those of cftime, of any calendar.
        times = coder(False, time_unit=unit) if unit else coder(use_cftime=True)
    if items.dtype.kind == "f":  # xarray changes floats that are durations
        items = items.copy()
    decoded: Items = xarray.conventions.decode_cf_variable(
        *("", xarray.Variable(dims, items, attrs)),
        concat_characters=False,
        decode_times=times,
        decode_timedelta=dtype.kind == "m",
    ).values
    return decoded


def _fits(given: Items, again: Items, stored: Any, how: Mapping[Any, Any]) -> Items:
    """Return which values, of which none is missing, are read again as they should."""
    kinds = given.dtype.kind, stored.kind
    is_packed = bool({"scale_factor", "add_offset"} & how.keys())
    fits: Items
    if kinds[0] in "mM" or ("calendar" in how and kinds[0] == "O"):
        errors = numpy.asarray(again - given)
        errors = errors.astype("m8[us]") if errors.dtype.kind == "O" else errors
        limit: Any = 0 if kinds[1] in "iu" else MAX_ERROR
        one = numpy.array(1, errors.dtype) / numpy.timedelta64(1, "ns")
        fits = abs(errors.view("i8").astype(float)) * one <= limit
        return fits
    with numpy.errstate(all="ignore"):
        if "c" in kinds:
            fits = numpy.isfinite(again) | ~numpy.isfinite(given)
            if kinds[1] != "c":
                fits &= given.imag == 0
            if kinds[1] in "iu":
                fits &= given == again
        elif kinds[0] == "f" or (is_packed and kinds[0] in "biu"):
            wide, stated = given.astype(float), again.astype(float)
            errors = numpy.where(wide == stated, 0, abs(wide - stated))
            limit = 0
            if kinds[1] == "f":
                limit = numpy.finfo(float).max
            elif is_packed:  # half a step, and the errors of the floats
                step, offset = how.get("scale_factor", 1), how.get("add_offset", 0)
                floats = [a.dtype for a in (given, again) if a.dtype.kind == "f"]
                eps = max((numpy.finfo(dtype).eps for dtype in floats), default=0)
                limit = 4 * eps * (abs(stated) + abs(float(offset)))
                limit += abs(float(step)) / 2 * (1 + 1e-6)
            fits = errors <= limit
        elif kinds[0] in "biu":
            fits = again.astype(given.dtype) == given
            fits &= ((again < 0) == (given < 0)) & numpy.isfinite(again.astype(float))
        else:
            fits = numpy.asarray(given == again)
    return fits


# Decoding


def decode_like(stored: Dataset, data: Dataset) -> Dataset:
    """Return a group decoded, with times of NumPy or of cftime, as the data have them.

    By default, xarray makes objects of cftime of those that nanoseconds can't hold,
    and refuses missing ones beside them.
    """
    xarray = import_extra("xarray", "xarray")
    coders: Any = time_coders(stored.variables)
    for name, variable in data.variables.items():
        if calendar_of(variable) and hasattr(xarray, "coders"):
            coders[name] = xarray.coders.CFDatetimeCoder(use_cftime=True)
    decoded: Dataset = xarray.decode_cf(
        # With an empty dictionary, bounds would stay numbers.
        *(stored, False),
        decode_times=coders or True,
    )
    return decoded


def time_coders(variables: Mapping[Any, Variable]) -> dict[Any, Any]:
    """Return how xarray decodes the times that nanoseconds can't hold.

    The result has coders for the finest unit that holds all times of a variable, or for
    times of cftime if NumPy has none.

    Parameters
    ----------
    variables
        All encoded variables of a dataset, whose times are read.
    """
    xarray = import_extra("xarray", "xarray")
    coders: dict[Any, Any] = {}
    if not hasattr(xarray, "coders"):
        return coders
    described: dict[Any, dict[Any, Any]] = {}
    for name, variable in variables.items():
        bounds = variable.attrs.get("bounds")
        for owned in (name, bounds if isinstance(bounds, str) else name):
            if owned in variables and "since" in str(variable.attrs.get("units")):
                described.setdefault(owned, {}).update(
                    dict(variable.attrs) | variables[owned].attrs
                )
    for name, attrs in described.items():
        units, calendar = attrs["units"], attrs.get("calendar", "standard")
        if variables[name].nbytes <= READ_NBYTES:
            variables[name].load()  # xarray does not read them again
        ends = _ends(variables[name])
        if len(ends):
            is_held = partial(_is_held, ends, units, calendar)
            unit = next(filter(is_held, reversed([*UNITS.values()])), None)
            if unit is None:
                coders[name] = xarray.coders.CFDatetimeCoder(use_cftime=True)
                try:
                    _decode(ends, ("x",), attrs, numpy.dtype("O"))
                except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                    raise UsageValueError(
                        "the variable '%s': the numbers from %s to %s are no times in "
                        "'%s' of the calendar '%s': decode_times=False returns them"
                        % (name, ends.min(), ends.max(), units, calendar)
                    ) from error
            elif unit != "ns":
                coders[name] = xarray.coders.CFDatetimeCoder(time_unit=unit)
    return coders


def _ends(variable: Variable) -> Items:
    """Return the first and the last of encoded times; none if all are missing."""
    ends: list[Any] = []
    if variable.dtype.kind not in "iuf":
        return numpy.empty(0)
    attrs = {k: v for k, v in variable.attrs.items() if k in STORAGE - {"units"}}
    fills: list[Any] = []
    if attrs.keys() <= FILLS | {"dtype", "calendar"}:
        # Without missing items, integers do not become floats, which may be too large.
        fills = [attrs.pop(name) for name in FILLS & attrs.keys()]
    for part in _parts(variable):
        items = variable[part].values.ravel()
        if items.dtype.kind == "i":  # xarray reads the smallest as NaT
            items = items[items != numpy.iinfo("i8").min]
        for fill in fills:
            items = items[~numpy.isin(items, fill)]
        numbers = _decode(items, ("x",), attrs, numpy.dtype("f8"))
        if len(numbers := numbers[numpy.isfinite(numbers)]):
            ends += [numbers.min().item(), numbers.max().item()]
    return numpy.array(ends)


def _is_held(numbers: Items, units: str, calendar: str, unit: str) -> bool:
    """Return whether a unit of NumPy holds encoded times.

    xarray takes times of the standard calendar before 1582-10-15 for those of NumPy.
    """
    attrs = {"units": units, "calendar": calendar}
    with suppress(LookupError, OverflowError, TypeError, ValueError):
        times = _decode(numbers, ("x",), attrs, numpy.dtype("M8[%s]" % unit))
        is_late = calendar == "proleptic_gregorian" or not _before_reform(times)
        return is_late and not numpy.isnat(times).any()
    return False


def _before_reform(times: Items) -> bool:
    """Return whether any time is before `REFORM`, which nanoseconds can't hold."""
    is_late = numpy.datetime_data(times.dtype)[0] == "ns"
    return not is_late and bool((times < REFORM).any())


# Parts and kinds


def _parts(variable: Variable) -> Iterator[Any]:
    """Yield the keys of parts of a variable that fit the memory."""
    count = len(variable) if variable.ndim else 0
    step = max(1, READ_NBYTES * count // max(1, variable.nbytes))
    for start in range(0, count, step):
        yield slice(start, start + step)
    if not variable.ndim:
        yield ...


def kind_of(variable: Variable) -> tuple[str, str]:
    """Return the kind of the items of a variable, and words for them.

    The kind of times of any calendar is ``'M'``, that of texts ``'U'``, and that of
    numbers ``'f'``.
    """
    kind = variable.dtype.kind
    if kind == "M":
        return "M", "times of the standard calendar"
    if calendar := calendar_of(variable):
        return "M", "times of the calendar '%s'" % calendar
    return {
        **dict.fromkeys("biuf", ("f", "numbers")),
        **dict.fromkeys(TEXT_KINDS, ("U", "text")),
        "m": ("m", "durations"),
    }.get(kind, (kind, "items of the dtype '%s'" % variable.dtype))


def calendar_of(variable: Variable) -> str | None:
    """Return the calendar of times of cftime; None for other items."""
    if variable.dtype.kind != "O" or not variable.size:
        return None
    item = variable[(0,) * variable.ndim].values.item()
    return getattr(item, "calendar", None)


def items_of_variable(variable: Variable) -> Variable | Items:
    """Return the items of an encoded variable, of which text is objects."""
    if variable.dtype.kind not in "OT":
        return variable
    objects = numpy.asarray(variable.values, object)
    items = items_of(objects, keeps_text=True)
    if items.shape != objects.shape:
        raise UsageTypeError("expected text, found %.200r" % (objects.flat[0],))
    return items
