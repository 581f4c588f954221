"""A plain folder that has datasets inside of it: a group that can only be read."""

from __future__ import annotations

from ...exceptions import UsageError
from .base import GroupLayout

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from ...serializers import JsonObject
    from ..folder import Folder


class PlainFolder(GroupLayout):
    """A folder without a file that describes it, and so without attributes."""

    name = "folder"
    writable = False

    def __init__(self, folder: Folder, *, allow_pickle: bool = False) -> None:
        self.folder = folder

    def read_attributes(self) -> JsonObject:
        """Return no attributes."""
        return {}

    @classmethod
    def check_layout(cls) -> None:
        """Raise `UsageError`: a plain folder has no file for attributes."""
        raise UsageError(
            "a plain folder of datasets can only be read as a group; open_group with "
            "the mode 'a' makes it one of the layout 'zarr'"
        )
