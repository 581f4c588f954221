"""The layout of BLZ 0.6: ``barray`` and ``btable``, the predecessors of bcolz.

The files are those of bcolz, with other rules for what is in them (`BLZ`). A table may
have a column in a folder of another name. Chunks are written so that the genuine BLZ,
whose Blosc is 1.3, reads them: only with the codecs and filters that it has.
"""

from __future__ import annotations

from ...exceptions import FormatError, UsageValueError
from ..folder import encode_json, is_safe_part
from . import bcolz
from .bcolz_storage import BLZ

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...serializers import JsonObject
    from ..folder import Folder


def detect(folder: Folder) -> str | None:
    """Return ``'array'`` or ``'table'``; None for a folder of another kind."""
    kind = bcolz.detect(folder)
    try:
        if kind == "array":
            storage = folder.read_json(bcolz.STORAGE)
            return kind if "bparams" in storage and "cparams" not in storage else None
        if kind == "table":
            stored = folder.read_json(bcolz.COLUMNS)
            return kind if _is_table(folder, stored) else None
    except (FormatError, FileNotFoundError, TypeError, KeyError):
        pass  # the error of opening it is better
    return None


def _is_table(folder: Folder, stored: JsonObject) -> bool:
    """Return whether the first column is an array of BLZ: bcolz had ``dirs``, too."""
    if "dirs" not in stored:
        return False
    for name in stored["names"]:
        place = find_folder(stored, name)
        return not is_safe_part(place) or detect(folder.child(place)) == "array"
    return True


def find_folder(stored: JsonObject, name: str) -> str:
    """Return the name of the folder of a column.

    Old files have longer paths, of which only the last part counts.
    """
    places = stored.get("dirs")
    place = places.get(name) if isinstance(places, dict) else None
    if not isinstance(place, str):
        return name
    return place.replace("\\", "/").rstrip("/").rpartition("/")[2]


class BlzArray(bcolz.BcolzArray):
    """A ``barray``."""

    name = "blz"
    rules = BLZ


class BlzTable(bcolz.BcolzTable):
    """A ``btable``."""

    name = "blz"
    array_class = BlzArray

    def find_folder(self, stored: JsonObject, name: str) -> str:
        """Return the name of the folder of a column."""
        place = find_folder(stored, name)
        if not is_safe_part(place):
            bcolz.refuse(self.folder, bcolz.COLUMNS, "'dirs' to be folders", place)
        return place

    # Writing

    def folder_of(self, name: str) -> str:
        """Return the name of the folder of a column, which may be a new one."""
        places = {
            column: layout.folder.prefix.rstrip("/").rpartition("/")[2]
            for column, layout in self.columns.items()
        }
        place = places.get(name)
        if place is None:
            place = name
            while place in places.values():
                place += "_"
        return place

    @classmethod
    def encode_columns(cls, places: Mapping[str, str]) -> bytes:
        """Return the file that lists the columns; `places` has the folder of each.

        The genuine reader opens each folder in ``dirs``, so that no removed column may
        remain there.
        """
        return encode_json({"names": list(places), "dirs": dict(places)})

    @classmethod
    def check_column_name(cls, name: str) -> None:
        """Raise `UsageError` unless the genuine BLZ can show a column of this name."""
        super().check_column_name(name)
        if name.startswith("_"):
            raise UsageValueError(
                "BLZ can't show the rows of a table with the column '%s': its name "
                "begins with an underscore" % name
            )
