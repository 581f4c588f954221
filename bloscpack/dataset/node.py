"""An array, a table or a group that is open: what all three have."""

from __future__ import annotations

from contextlib import nullcontext

from .attributes import Attributes
from .writer import checked

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import TypeVar

    from .layouts.base import NodeLayout
    from .writer import Writer

    Self = TypeVar("Self", bound="Node")
    Result = TypeVar("Result")


class Node:
    """An array, a table or a group in a folder."""

    _layout: NodeLayout

    def __init__(self, layout: NodeLayout, writer: Writer | None = None) -> None:
        self._layout = layout
        self._writer = writer
        self.path: str = layout.folder.path()
        self.layout: str = layout.name
        self.attrs = Attributes(layout, writer)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        raise NotImplementedError

    def _check_writer(self) -> Writer:
        return checked(self._writer, self.path)

    def _read(self, function: Callable[[], Result]) -> Result:
        """Return the result of a function that reads items, all of one state."""
        return function() if self._writer is None else self._writer.read(function)

    def _closing(self) -> AbstractContextManager[None]:
        """Return a context that waits for the change of another thread.

        In a process that has inherited a writer, no other thread makes a change.
        """
        writer = self._writer
        return writer.turn() if writer and writer.owner.is_here else nullcontext()

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
