"""The names of arrays in an archive, and of the members that hold them."""

from __future__ import annotations

from .._format.zarr_metadata import ZARR_JSON
from ..exceptions import UsageValueError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Collection

# The extension of the member of an array that Zarr has no shards of.
BLP = ".blp"


def document_name(name: str) -> str:
    return "%s/%s" % (name, ZARR_JSON)


def shard_name(name: str, ndim: int) -> str:
    return name + "/c" + ndim * "/0"


def check_names(names: Collection[str]) -> None:
    """Raise `UsageError` unless arrays can have these names beside each other."""
    for name in names:
        if not isinstance(name, str) or not all(map(_is_part, name.split("/"))):
            raise UsageValueError(
                "an array can't have the name %.200r: expected text whose parts, "
                "between slashes, are neither empty, '.', '..' nor '%s', do not begin "
                "with '__' or end with '%s', and have no backslash"
                % (name, ZARR_JSON, BLP)
            )
    parents = parents_of(names)
    for name in names:
        if name in parents:
            raise UsageValueError(
                "'%s' can't be an array and a group with other arrays" % name
            )


def _is_part(part: str) -> bool:
    return (
        part not in ("", ".", "..", ZARR_JSON)
        and not part.startswith("__")
        and not part.endswith(BLP)
        and not any(c in part for c in "\\\0")
    )


def parents_of(names: Collection[str]) -> dict[str, None]:
    """Return the groups that contain the names, in order; the outermost one is not."""
    parents: dict[str, None] = {}
    for name in names:
        parts = name.split("/")
        for i in range(1, len(parts)):
            parents["/".join(parts[:i])] = None
    return parents
