"""Values in the storage file of bcolz and BLZ: dtype, fill value, chunk size, settings.

The genuine programs take some dtypes only with certain fill values, and find the items
in a chunk by its type size. The values written here follow these rules.
"""

from __future__ import annotations

import math
import sys

import numpy

from ..._format.blosc_header import BLOSC_FLAG_SPLIT, unpack_header
from ..._format.codecs import read_by
from ..._format.dtypes import holds_objects
from ...args import BloscArgs
from ...constants import CNAME_AVAIL, MAX_BUFFERSIZE
from ...exceptions import UsageError, UsageValueError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from ..._format.dtypes import DType
    from ...serializers import Json, JsonObject

# Kinds of items that the genuine readers take.
KINDS = "biufcSUmMV"
# Maximum size in bytes of real and of complex numbers: the size of a long double
# depends on the machine.
MAX_SIZES = {"f": 8, "c": 16}
# Number of plain bytes for which the chunk size of a smaller array is chosen.
MIN_EXPECTED = 2**20


# Maximum number of items of a row in whose shape BLZ stores the fill value. Its reader
# takes a single value, too, and a longer list would fill the file.
MAX_NESTED = 2**16


class Rules:
    """How one of the two programs describes an array.

    Attributes
    ----------
    layout
        The name of the layout.
    key
        The key of the settings of Blosc in the storage file.
    settings
        The settings of Blosc that the program uses unless it is told otherwise.
    codecs, shuffles
        The codecs and filters that its Blosc reads right.
    shuffle_type
        The type of the filter in the storage file.
    more_settings
        Other settings in the storage file.
    chunk_base
        Size in bytes of the chunks of the smallest arrays.
    overhead
        Number of bytes that the program adds to the size of a chunk.
    nested
        Whether the fill value has the shape of a row.
    always_splits
        Whether its Blosc ignores the flag for blocks that are not split.
    """

    def __init__(
        self,
        layout: str,
        key: str,
        settings: Mapping[str, Any],
        codecs: tuple[str, ...],
        shuffles: tuple[int, ...],
        *,
        shuffle_type: type[int] = int,
        more_settings: JsonObject | None = None,
        chunk_base: int,
        overhead: int = 0,
        nested: bool = False,
        always_splits: bool = False,
    ) -> None:
        self.layout = layout
        self.key = key
        self.settings = settings
        self.codecs = codecs
        self.shuffles = shuffles
        self.shuffle_type = shuffle_type
        self.more_settings = more_settings or {}
        self.chunk_base = chunk_base
        self.overhead = overhead
        self.nested = nested
        self.always_splits = always_splits

    def check_dtype(self, dtype: DType) -> None:
        """Raise `UsageError` for items that the program can't read back."""
        if dtype.names is not None:
            raise UsageError(
                "%s can't open an array of structured items (dtype %s): create a table "
                "with a column for each field" % (self.layout, dtype)
            )
        if holds_objects(dtype):
            raise UsageError(
                "arrays of Python objects (dtype '%s') can't be stored" % dtype
            )
        if dtype.kind in "mM" and numpy.datetime_data(dtype)[0] == "generic":
            raise UsageError(
                "the layout '%s' needs a unit of time, as in 'M8[ns]'" % self.layout
            )
        most = MAX_SIZES.get(dtype.kind, sys.maxsize)
        if dtype.kind not in KINDS or not 0 < dtype.itemsize <= most or dtype.subdtype:
            raise UsageError(
                "the layout '%s' can't hold items of dtype '%s'; a '.blp' file can"
                % (self.layout, dtype)
            )

    def encode_fill_value(
        self, dtype: DType, inner: tuple[int, ...], value: Any
    ) -> Json:
        """Return a fill value for the storage file; `inner` is the shape of a row.

        Raises `UsageError` if there is none: the genuine readers can't make a complex
        number or a time from what JSON can hold.
        """
        stored = self._encode_item(dtype, value)
        if self.nested and math.prod(inner) <= MAX_NESTED:
            for count in reversed(inner):
                stored = [stored] * count
        return stored

    def _encode_item(self, dtype: DType, value: Any) -> Json:
        zero = numpy.zeros((), dtype)[()]
        value = zero if value is None else numpy.array(value).astype(dtype)[()]
        if dtype.kind in "cmMV":
            if value != zero:
                raise UsageValueError(
                    "the layout '%s' has no fill value but zero for the dtype '%s'"
                    % (self.layout, dtype)
                )
            return "\0" * dtype.itemsize if dtype.kind == "V" else 0
        if dtype.kind == "S":
            try:
                return value.decode("ascii")
            except UnicodeDecodeError as error:
                raise UsageValueError(
                    "the layout '%s' has fill values of ASCII only, not %r"
                    % (self.layout, value)
                ) from error
        return value.item()

    def chunk_rows(self, nbytes: int, row: int) -> int:
        """Return the number of rows in a chunk, as the program chooses it."""
        expected = max(nbytes, MIN_EXPECTED) / 2**20
        size: int = self.chunk_base << math.trunc(math.log10(min(expected, 1e4))) + 6
        return max(1, min(size, MAX_BUFFERSIZE) // row)

    def encode_settings(self, settings: Mapping[str, Any]) -> JsonObject:
        """Return settings for the storage file; raise `UsageError` if wrong."""
        unknown = set(settings) - set(self.settings)
        if unknown:
            raise UsageError(
                "unknown settings: %s; the layout '%s' has %s"
                % (", ".join(sorted(unknown)), self.layout, ", ".join(self.settings))
            )
        args = BloscArgs(typesize=1, **{**self.settings, **settings})
        args.check()
        self._check_readable("codec", args.cname, self.codecs)
        self._check_readable("filter", int(args.shuffle), self.shuffles)
        return {
            "clevel": args.clevel,
            "shuffle": self.shuffle_type(args.shuffle),
            "cname": args.cname,
            **self.more_settings,
        }

    def _check_readable(
        self, name: str, value: object, known: Sequence[object]
    ) -> None:
        if value not in known:
            raise UsageValueError(
                "the layout '%s' can't have the %s '%s', which the genuine program "
                "can't read; it has %s"
                % (self.layout, name, value, ", ".join("'%s'" % each for each in known))
            )

    def decode_settings(self, stored: Json, dtype: DType) -> BloscArgs:
        """Return the settings of Blosc for new chunks; defaults for unusable values."""
        stored = stored if isinstance(stored, dict) else {}
        found = {key: stored.get(key) for key in self.settings}
        settings: dict[str, Any] = dict(self.settings)
        if found["cname"] in self.codecs and found["cname"] in CNAME_AVAIL:
            settings["cname"] = found["cname"]
        if found["clevel"] in range(10):
            settings["clevel"] = int(found["clevel"])
        if found["shuffle"] in self.shuffles:
            settings["shuffle"] = int(found["shuffle"])
        return BloscArgs(typesize=typesize_of(dtype), **settings)

    def check_chunk(self, chunk: memoryview) -> None:
        """Raise `UsageError` for a chunk that the program would read wrong."""
        if not self.always_splits:
            return
        header = unpack_header(chunk)
        if not header.is_copy and header.flags & BLOSC_FLAG_SPLIT and header.can_split:
            raise UsageError(
                "Blosc did not split the blocks of a chunk (codec '%s'), and the "
                "genuine BLZ would read the chunk wrong: unset BLOSC_SPLITMODE, or use "
                "the compression level 0" % header.codec
            )


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
    """Return the type size for Blosc by which the genuine reader finds items."""
    if dtype.kind == "S":
        return 1
    if dtype.kind == "U":
        return 4
    return dtype.itemsize if dtype.itemsize <= 255 else 1


BCOLZ = Rules(
    "bcolz",
    "cparams",
    {"cname": "lz4", "clevel": 5, "shuffle": 1},
    read_by("bcolz"),
    (0, 1, 2),
    more_settings={"quantize": 0},
    chunk_base=4096,
)
# The key of the codec is an addition: BLZ ignores it, and writes with blosclz.
BLZ = Rules(
    "blz",
    "bparams",
    {"cname": "blosclz", "clevel": 5, "shuffle": 1},
    read_by("blz"),
    (0, 1),
    shuffle_type=bool,
    chunk_base=1024,
    overhead=128,
    nested=True,
    always_splits=True,
)
