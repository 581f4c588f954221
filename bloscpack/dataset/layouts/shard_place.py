"""What the metadata of a file of chunks state: its array, and its place there.

::

    {"dtype": "'<f8'", "shape": [1000], "order": "C", "container": "numpy",
     "shard": 100, "place": "9f86d081884c7d65/c/3"}

The place is the identity of the array and the name of the file in it. A file that other
programs have written states none, and is accepted.
"""

from __future__ import annotations

import json

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
        self._text: tuple[str, str] | None = None

    def metadata(self, number: int, nrows: int) -> JsonObject:
        """Return the metadata of a file that has `nrows` rows."""
        cut = self._cut
        items: Any = numpy.empty((0, *cut.inner), cut.dtype)
        found = {**describe(items), "shape": (nrows, *cut.inner)}
        found = with_rows(found, cut.chunk_rows)
        if self.identity is not None:
            found[PLACE] = "%s/%s" % (self.identity, self._name_of(number))
        return found

    def _expected(self, number: int, nrows: int) -> bytes:
        """Return the text of the metadata up to the end of the place.

        The text around the number of rows is kept: each file is compared with it.
        """
        if self._text is None:
            text = SERIALIZERS[0].dumps({**self.metadata(0, 0), PLACE: None})
            start, _, rest = text.partition('"shape":[0')
            self._text = start + '"shape":[', rest.removesuffix("null}")
        start, end = self._text
        place = "%s/%s" % (self.identity, self._name_of(number))
        place = '"%s"' % place if place.isascii() else json.dumps(place)
        return ("%s%d%s%s}" % (start, nrows, end, place)).encode("ascii")

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


def place_of(metadata: Json) -> str | None:
    """Return the place that metadata state; None if they state none."""
    place = metadata.get(PLACE) if is_array(metadata) else None
    return place if isinstance(place, str) else None
