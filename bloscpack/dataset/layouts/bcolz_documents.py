"""Values in the storage file of bcolz and BLZ: dtype, fill value, chunk size, settings.

bcolz takes some dtypes only with certain fill values, and finds the items in a chunk by
its type size. The values written here follow these rules.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import numpy

from ..._format.codecs import read_by
from ..._format.dtypes import DType, holds_objects
from ...args import BloscArgs
from ...constants import CNAME_AVAIL, MAX_BUFFERSIZE
from ...exceptions import UsageError, UsageValueError
from .base import NewArray

if TYPE_CHECKING:
    from ...serializers import Json, JsonObject

# Kinds of items that bcolz reads.
KINDS = "biufcSUmMV"
# Maximum size in bytes of real and of complex numbers: the size of a long double
# depends on the machine.
MAX_SIZES = {"f": 8, "c": 16}
# Number of plain bytes for which the chunk size of a smaller array is chosen.
MIN_EXPECTED = 2**20
# Size in bytes from which the chunk size of an array is computed.
CHUNK_BASE = 4096
# Settings of Blosc that users can choose, and the values that bcolz uses by default.
SETTINGS: dict[str, Any] = {"cname": "lz4", "clevel": 5, "shuffle": 1}
# The codecs and filters that bcolz reads.
CODECS = read_by("bcolz")
SHUFFLES = (0, 1, 2)


def check_dtype(dtype: DType) -> None:
    """Raise `UsageError` for items that bcolz can't read back."""
    if dtype.names is not None:
        raise UsageError(
            "bcolz can't open an array of structured items (dtype %s): create a table "
            "with a column for each field" % dtype
        )
    if holds_objects(dtype):
        raise UsageError(
            "arrays of Python objects (dtype '%s') can't be stored" % dtype
        )
    if dtype.kind in "mM" and numpy.datetime_data(dtype)[0] == "generic":
        raise UsageError("the layout 'bcolz' needs a unit of time, as in 'M8[ns]'")
    most = MAX_SIZES.get(dtype.kind, sys.maxsize)
    if dtype.kind not in KINDS or not 0 < dtype.itemsize <= most or dtype.subdtype:
        raise UsageError(
            "the layout 'bcolz' can't hold items of dtype '%s'; a '.blp' file can"
            % dtype
        )


def encode_fill_value(dtype: DType, value: Any) -> Json:
    """Return a fill value for the storage file.

    Raises `UsageError` if there is none: bcolz can't make a complex number or a time
    from what JSON can hold.
    """
    zero = numpy.zeros((), dtype)[()]
    value = zero if value is None else numpy.array(value).astype(dtype)[()]
    if dtype.kind in "cmMV":
        if value != zero:
            raise UsageValueError(
                "the layout 'bcolz' has no fill value but zero for the dtype '%s'"
                % dtype
            )
        return "\0" * dtype.itemsize if dtype.kind == "V" else 0
    if dtype.kind == "S":
        try:
            return value.decode("ascii")
        except UnicodeDecodeError as error:
            raise UsageValueError(
                "the layout 'bcolz' has fill values of ASCII only, not %r" % value
            ) from error
    return value.item()


def chunk_rows(nbytes: int, row: int) -> int:
    """Return the number of rows in a chunk, as bcolz chooses it."""
    expected = max(nbytes, MIN_EXPECTED) / 2**20
    size: int = CHUNK_BASE << math.trunc(math.log10(min(expected, 1e4))) + 6
    return max(1, min(size, MAX_BUFFERSIZE) // row)


def encode_settings(new: NewArray) -> JsonObject:
    """Return settings for the storage file; raise `UsageError` if wrong."""
    new.check_settings(SETTINGS, "bcolz")
    args = BloscArgs(typesize=1, **{**SETTINGS, **new.settings})
    args.check()
    for name, value, known in (
        ("codec", args.cname, CODECS),
        ("filter", int(args.shuffle), SHUFFLES),
    ):
        if value not in known:
            raise UsageValueError(
                "the layout 'bcolz' can't have the %s '%s', which bcolz can't read; it "
                "has %s" % (name, value, ", ".join("'%s'" % each for each in known))
            )
    return {
        "clevel": args.clevel,
        "shuffle": int(args.shuffle),
        "cname": args.cname,
        "quantize": 0,
    }


def decode_settings(stored: Json, dtype: DType) -> BloscArgs:
    """Return the settings of Blosc for new chunks; defaults for unusable values."""
    found = stored if isinstance(stored, dict) else {}
    settings = dict(SETTINGS)
    if found.get("cname") in CODECS and found["cname"] in CNAME_AVAIL:
        settings["cname"] = found["cname"]
    if found.get("clevel") in range(10):
        settings["clevel"] = int(found["clevel"])
    if found.get("shuffle") in SHUFFLES:
        settings["shuffle"] = int(found["shuffle"])
    return BloscArgs(typesize=typesize_of(dtype), **settings)


def decode_fill_value(dtype: DType, stored: Json) -> Any:
    """Return the fill value of an array; zero if the stored one does not fit.

    Old releases stored a list shaped like a row, in which all items are the same.
    """
    zero = numpy.zeros((), dtype)[()]
    while isinstance(stored, list) and dtype.names is None:
        if not stored:
            return zero
        stored = stored[0]
    if dtype.kind in "OV" or stored is None:
        return zero
    try:
        if dtype.kind in "mM":
            return numpy.array(stored, "i8").astype(dtype)[()]
        if dtype.kind == "S" and isinstance(stored, str):
            stored = stored.encode("ascii")
        return numpy.array(stored, dtype)[()]
    except (ValueError, TypeError, OverflowError):
        return zero


def typesize_of(dtype: DType) -> int:
    """Return the type size for Blosc by which bcolz finds items."""
    if dtype.kind == "S":
        return 1
    if dtype.kind == "U":
        return 4
    return dtype.itemsize if dtype.itemsize <= 255 else 1
