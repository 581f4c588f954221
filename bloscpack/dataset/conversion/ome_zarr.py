"""Attributes of images by OME-Zarr: those of version 0.4, of Zarr format 2, as 0.5.

Strategy: in version 0.5, which is for Zarr format 3, the same attributes are inside of
the attribute ``ome``, which has the version instead of them; and the arrays have names
of axes. Attributes of older versions have another form, and are kept as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..._types import JsonObject
from .contents import Content, Members, Rows, nodes_of

OLD, NEW = "0.4", "0.5"
# The attributes of a group of an image, and those of them that state a version.
VERSIONED = ("multiscales", "omero", "image-label", "plate", "well")
KEYS = (*VERSIONED, "labels", "bioformats2raw.layout")


def with_new_images(content: Content) -> str | None:
    """Convert the attributes of images; return a notice if there are older ones."""
    groups = [node for _, node in nodes_of(content) if isinstance(node, Members)]
    parts = [part for group in groups for part in _parts(group.attrs)]
    versions = {str(part["version"]) for part in parts if "version" in part}
    if not versions or any("ome" in group.attrs for group in groups):
        return None
    if versions != {OLD}:
        return (
            "attributes of OME-Zarr of the versions %s are kept as they are; programs "
            "expect those of version %s in Zarr format 3"
            % (", ".join(sorted(versions)), NEW)
        )
    for part in parts:
        part.pop("version", None)
    for group in groups:
        _name_axes(group)
        if own := {key: group.attrs.pop(key) for key in KEYS if key in group.attrs}:
            group.attrs["ome"] = {"version": NEW, **own}
    return None


def _parts(attrs: JsonObject) -> list[JsonObject]:
    """Return the objects in attributes that may state a version."""
    values = [attrs.get(key) for key in VERSIONED]
    listed = [v if isinstance(v, list) else [v] for v in values]
    return [part for parts in listed for part in parts if isinstance(part, dict)]


def _name_axes(group: Members) -> None:
    """Give the arrays of an image the names of its axes, if they have none."""
    for image in _parts({"multiscales": group.attrs.get("multiscales")}):
        axes: Any = image.get("axes")
        levels: Any = image.get("datasets")
        if not isinstance(axes, list) or not isinstance(levels, list):
            continue
        names = [axis.get("name") for axis in axes if isinstance(axis, Mapping)]
        for level in levels:
            path = level.get("path") if isinstance(level, Mapping) else None
            array = group.members.get(path) if isinstance(path, str) else None
            if isinstance(array, Rows) and array.dims is None:
                is_fit = len(names) == len(array.shape) == len({*map(str, names)})
                if is_fit and all(isinstance(name, str) for name in names):
                    array.dims = tuple(names)
