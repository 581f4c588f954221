"""The groups and tables of the layout ``zarr``.

::

    ROOT/zarr.json       a group of Zarr format 3, with the attributes of users
    ROOT/NAME/…          a member

A table is a group whose attribute ``column-order`` lists its columns: arrays of the
same length.
"""

from __future__ import annotations

from ..._format.zarr_metadata import ZARR_JSON, encode_json, group_document
from ...exceptions import DamageError, FormatError, UsageValueError
from .base import GroupLayout

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from ...serializers import JsonObject
    from ..change import Change
    from ..folder import Folder

# The attribute of a group that makes it a table.
COLUMN_ORDER = "column-order"
# A key with copies of the documents of all members, which zarr-python reads in their
# place. A change makes it wrong, so it is left out.
CONSOLIDATED = "consolidated_metadata"


def detect(folder: Folder) -> str | None:
    """Return the kind of a folder; None if it is no node of Zarr format 3."""
    if not folder.exists(ZARR_JSON):
        return None
    try:
        document = read_document(folder)
    except (FormatError, OSError):  # the error of opening it is better
        return "group"
    if document.get("node_type") == "array":
        return "array"
    return "table" if COLUMN_ORDER in document["attributes"] else "group"


def read_document(folder: Folder) -> JsonObject:
    """Return the document of a node; raise `FormatError` if it is damaged."""
    document = folder.read_json(ZARR_JSON)
    attributes = document.get("attributes", {}) if isinstance(document, dict) else None
    if (
        not isinstance(document, dict)
        or document.get("zarr_format") != 3
        or document.get("node_type") not in ("array", "group")
        or not isinstance(attributes, dict)
    ):
        raise DamageError(
            "expected the document of a Zarr node of format 3, found something else",
            section="metadata",
            filename=folder.path(ZARR_JSON),
        )
    return {**document, "attributes": attributes}


def stage_document(change: Change, folder: Folder, attributes: JsonObject) -> None:
    """Let `change` replace the attributes of a group, those of Bloscpack included."""
    document = read_document(folder)
    document.pop(CONSOLIDATED, None)
    document["attributes"] = attributes
    change.stage(folder.full(ZARR_JSON), encode_json(document))


class ZarrGroup(GroupLayout):
    """A group of Zarr."""

    name = "zarr"

    def __init__(self, folder: Folder, *, allow_pickle: bool = False) -> None:
        self.folder = folder
        read_document(folder)

    def read_attributes(self) -> JsonObject:
        """Return the attributes in the file."""
        attributes: JsonObject = read_document(self.folder)["attributes"]
        return attributes

    @classmethod
    def create(cls, change: Change, attrs: JsonObject) -> None:
        """Write a new group without members to the folder of `change`."""
        check_attributes(attrs)
        change.stage(ZARR_JSON, encode_json(group_document(attrs)))

    def stage_attributes(self, change: Change, values: JsonObject) -> None:
        """Let `change` replace all attributes."""
        check_attributes(values)
        stage_document(change, self.folder, values)


def check_attributes(attributes: JsonObject) -> None:
    """Raise `UsageError` if a name is that of Bloscpack's own attribute."""
    if COLUMN_ORDER in attributes:
        raise UsageValueError(
            "no attribute can have the name '%s': it makes a group a table"
            % COLUMN_ORDER
        )
