"""An array, a table or a group that is open: what all three have."""

from __future__ import annotations

from .attributes import Attributes
from .writer import checked

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import TypeVar

    from .layouts.base import NodeLayout
    from .writer import SharedWriter, Writer

    Self = TypeVar("Self", bound="Node")


class Node:
    """An array, a table or a group in a folder."""

    _layout: NodeLayout

    def __init__(
        self, layout: NodeLayout, writer: Writer | SharedWriter | None = None
    ) -> None:
        self._layout = layout
        self._writer = writer
        self.path: str = layout.folder.path()
        self.layout: str = layout.name
        self.attrs = Attributes(layout, writer)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        raise NotImplementedError

    def _check_writer(self) -> Writer | SharedWriter:
        return checked(self._writer, self.path)

    def flush(self) -> None:
        """Do nothing: each change is in the files when it has been made."""
        self._check_writer()

    def close(self) -> None:
        """Close it, and let other writers in. It can't be read any more."""
        if self._writer is not None:
            self._writer.close()
        self._layout.folder.close()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()
