"""What the metadata of a file of chunks state: its array, and its place there.

::

    {"dtype": "'<f8'", "shape": [1000], "order": "C", "container": "numpy",
     "shard": 100, "place": "9f86d081884c7d65/c/3"}

The place is the identity of the array and the name of the file in it. A file that other
programs have written states none, and is accepted.
"""

from __future__ import annotations

import json
from functools import lru_cache

import numpy

from ..._format.array_metadata import Description, describe
from ..._format.sections import read_beginning
from ..._format.shard import with_rows
from ..._storage.base import StorageFile
from ..._storage.cursor import Cursor
from ...constants import BLOSCPACK_HEADER_LENGTH, METADATA_HEADER_LENGTH
from ...exceptions import DamageError
from ...serializers import PLACE, SERIALIZERS, is_array, shard_rows

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ..._format.dtypes import DType
    from ..._storage.base import Storage
    from ...serializers import Json, JsonObject
    from .shard_index import Cut

# Where the text of the metadata begins in a file.
_TEXT = BLOSCPACK_HEADER_LENGTH + METADATA_HEADER_LENGTH


class ShardPlaces:
    """The metadata of all files of an array.

    Parameters
    ----------
    identity
        The identity of the array; None if it has none, or if it is uncertain.
    cut
        How the array is cut.
    name_of
        The names of the files in the array.
    """

    def __init__(
        self, identity: str | None, cut: Cut, name_of: Callable[[int], str]
    ) -> None:
        self.identity = identity
        self._cut = cut
        self._name_of = name_of

    def metadata(self, number: int, nrows: int) -> JsonObject:
        """Return the metadata of a file that has `nrows` rows."""
        cut = self._cut
        found = _description(cut.dtype, cut.inner, cut.chunk_rows, nrows)
        if self.identity is not None:
            found[PLACE] = self._place(number)
        return found

    def _place(self, number: int) -> str:
        return "%s/%s" % (self.identity, self._name_of(number))

    def _expected(self, number: int, nrows: int) -> bytes:
        """Return the text of the metadata up to the end of the place."""
        cut = self._cut
        start, end = _text_around(cut.dtype, cut.inner, cut.chunk_rows)
        if self.identity is not None:
            place = self._place(number)
            end += ',"%s":' % PLACE
            end += '"%s"' % place if place.isascii() else json.dumps(place)
        return ("%s%d%s}" % (start, nrows, end)).encode("ascii")

    def check(self, number: int, storage: Storage, front: bytes, nrows: int) -> None:
        """Raise `FormatError` if a file belongs to another array or place.

        `front` is its beginning, whose header states `nrows` rows.
        """
        text = self._expected(number, nrows)
        if front[_TEXT : _TEXT + len(text)] == text:
            return
        metadata = read_beginning(Cursor(StorageFile(storage))).metadata
        for name, expected, found in self.differences(number, metadata):
            raise DamageError(
                "expected %s: %s, found %s" % (name, expected, found),
                section="metadata",
            )

    def differences(
        self, number: int, metadata: Json
    ) -> Iterator[tuple[str, object, object]]:
        """Yield the wrong fields of metadata: name, expected value, found value."""
        cut = self._cut
        dtype = inner = None
        if is_array(metadata):
            described = Description(metadata)
            dtype, inner = described.dtype, described.shape[1:]
        pairs: dict[str, tuple[object, object]] = {
            "dtype": (cut.dtype, dtype),
            "rows of shape": (cut.inner, inner),
            "rows in a chunk": (cut.chunk_rows, shard_rows(metadata)),
        }
        stated = place_of(metadata)
        if stated is not None:
            identity, _, name = stated.partition("/")
            pairs["the file"] = self._name_of(number), name
            if self.identity is not None:
                pairs["a file of the array"] = self.identity, identity
        for field, (expected, found) in pairs.items():
            if expected != found:
                yield field, expected, found


def _description(
    dtype: DType, inner: tuple[int, ...], chunk_rows: int, nrows: int
) -> JsonObject:
    """Return the metadata of a file without its place."""
    items: Any = numpy.empty((0, *inner), dtype)
    return with_rows({**describe(items), "shape": (nrows, *inner)}, chunk_rows)


@lru_cache(256)  # each file of an array is compared with it
def _text_around(
    dtype: DType, inner: tuple[int, ...], chunk_rows: int
) -> tuple[str, str]:
    """Return the text around the number of rows in the metadata without the place."""
    text = SERIALIZERS[0].dumps(_description(dtype, inner, chunk_rows, 0))
    start, _, rest = text.partition('"shape":[0')
    return start + '"shape":[', rest.removesuffix("}")


def place_of(metadata: Json) -> str | None:
    """Return the place that metadata state; None if they state none."""
    place = metadata.get(PLACE) if is_array(metadata) else None
    return place if isinstance(place, str) else None
