"""The attributes of a block, a group or a tree as a mapping.

Contract: a change is on the disk when the call returns, as a whole. Other processes may
change other attributes at the same time.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from contextlib import suppress

from ..exceptions import FormatError
from . import attributes
from .tree import ATTRIBUTES, LEGACY, locked_folder

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .attributes import Attribute, Attributes
    from .tree import Tree

    Base = MutableMapping[str, Any]
else:
    Base = MutableMapping


class AttributeSet(Base):
    """Attributes by name, sorted by the bytes of the name.

    Text is returned as ``str``, an array of strings as a list, and everything else as
    an array with one axis, so a number is an array of one item. Text, bytes, numbers
    and arrays can be stored. A matrix loses its shape.
    """

    def __init__(self, tree: Tree, folder: str) -> None:
        self._tree = tree
        self._folder = folder
        # The state of the files, and the attributes in them.
        self._known: tuple[object, Attributes] = (None, {})

    def _path(self, file: str) -> str:
        return os.path.join(self._folder, file)

    def _load(self) -> Attributes:
        """Return all attributes, from the files only if they have changed."""
        signature = (self._state(LEGACY), self._state(ATTRIBUTES))
        known = self._known
        if signature != known[0]:
            known = self._known = signature, self._read()
        return known[1]

    def _read(self) -> Attributes:
        """Return all attributes in the files."""
        found: Attributes = {}
        for file, decode in (
            (LEGACY, attributes.decode_legacy),
            (ATTRIBUTES, attributes.decode),
        ):
            with suppress(FileNotFoundError):
                found.update(self._decoded(self._path(file), decode))
        return found

    def _decoded(self, path: str, decode: Any) -> Attributes:
        try:
            found: Attributes = decode(self._tree.read_text(path))
        except FormatError as error:
            error.filename = path
            raise
        return found

    def _state(self, file: str) -> tuple[int, int, int] | None:
        try:
            status = os.stat(self._path(file))
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _change(self, removed: list[bytes], added: Attributes) -> None:
        """Remove and add attributes in one step."""
        with locked_folder(self._folder):
            found = self._read()
            for name in removed:
                if found.pop(name, None) is None:  # another thread has removed it
                    raise KeyError(name.decode("utf-8", "surrogateescape"))
            found.update(added)
            self._tree.replace_text(self._path(ATTRIBUTES), attributes.encode(found))
            if removed:  # the legacy file would bring them back
                with suppress(FileNotFoundError):
                    os.unlink(self._path(LEGACY))
            self._known = (None, {})

    def raw(self, name: str) -> Attribute:
        """Return an attribute as it is stored: type, number of items, bytes."""
        found = self._load().get(attributes.encoded_text(name))
        if found is None:
            raise KeyError(name)
        return found

    def __getitem__(self, name: str) -> Any:
        return attributes.value_of(self.raw(name))

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        self.raw(name)
        self._change([attributes.encoded_text(name)], {})

    def update(self, *others: Any, **named: Any) -> None:
        """Set several attributes in one step."""
        values = dict(*others, **named)
        self._change(
            [],
            {
                attributes.encoded_name(name): attributes.attribute_of(name, value)
                for name, value in values.items()
            },
        )

    def __iter__(self) -> Iterator[str]:
        for name in sorted(self._load()):
            yield name.decode("utf-8", "surrogateescape")

    def __len__(self) -> int:
        return len(self._load())

    def __repr__(self) -> str:
        return "AttributeSet(%r)" % dict(self)

    def copy_from(self, other: AttributeSet) -> None:
        """Add all attributes of another block, with their types."""
        self._change([], other._load())
