"""Labels of an array in its metadata: names of the axes, coordinates, attributes.

The metadata that the user stores with an array may be a JSON object with these keys, as
xarray writes them (``DataArray.to_dict``):

dims    a list with the name of each axis, all different
name    the name of the array
attrs   an object with attributes
coords  an object with coordinates; each has ``dims`` and ``data``, a list with as many
        levels as axes, and may have ``attrs`` and ``dtype``, a format string of NumPy

Every other key is an attribute, too. A value of another kind is not a label but an
attribute under its key. So any metadata can be shown, and nothing in it is lost.
"""

from __future__ import annotations

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from ..serializers import Json, JsonObject

# Key of the attribute that holds metadata that are not an object.
WHOLE = "metadata"


class Labels:
    """The labels of an array with `ndim` axes.

    ``dims`` and ``name`` are None if the metadata have none. ``attrs`` and ``coords``
    are objects, possibly empty.
    """

    def __init__(self, metadata: Json, ndim: int) -> None:
        self.dims: list[str] | None = None
        self.name: str | None = None
        self.attrs: JsonObject = {}
        self.coords: dict[str, JsonObject] = {}
        if metadata is None:
            return
        if not isinstance(metadata, dict):
            self.attrs[WHOLE] = metadata
            return
        rest = dict(metadata)
        if _are_dims(rest.get("dims"), ndim):
            self.dims = rest.pop("dims")
        if isinstance(rest.get("name"), str) and rest["name"]:
            self.name = rest.pop("name")
        if isinstance(rest.get("coords"), dict) and self.dims is not None:
            self._take_coords(rest.pop("coords"), self.dims)
        if isinstance(rest.get("attrs"), dict):
            self.attrs.update(rest.pop("attrs"))
        self.attrs = {**rest, **self.attrs}

    def _take_coords(self, coords: JsonObject, dims: list[str]) -> None:
        for name, entry in coords.items():
            if (
                isinstance(entry, dict)
                and isinstance(entry.get("data"), (list, int, float, str))
                and _are_dims(entry.get("dims"))
                and set(entry["dims"]) <= {*dims}
            ):
                self.coords[name] = entry
            else:
                self.attrs[name] = entry


def default_dims(ndim: int) -> list[str]:
    """Return the names of axes without names, which are those of xarray."""
    return ["dim_%d" % i for i in range(ndim)]


def _are_dims(names: Json, ndim: int | None = None) -> bool:
    return (
        isinstance(names, list)
        and all(isinstance(name, str) and name for name in names)
        and len(set(names)) == len(names)
        and ndim in (None, len(names))
    )
