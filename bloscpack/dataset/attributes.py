"""The attributes that users give to an array, a table or a group: a mapping.

Strategy: the file is read when an attribute is first used, and replaced as a whole by
each change. A value that JSON can't represent is refused before anything is written.
The values are never changed in place: a thread that reads them has one state.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from .writer import checked

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..serializers import Json, JsonObject
    from .layouts.base import NodeLayout
    from .writer import Writer


class Attributes(MutableMapping[str, "Json"]):
    """Names and values, stored as JSON; changes are written at once.

    A value is returned as it was given, not as JSON returns it, until the dataset is
    opened again. After a change inside of a value, assign the value again.
    """

    def __init__(self, layout: NodeLayout, writer: Writer | None) -> None:
        self._layout = layout
        self._writer = writer
        # The values under the key "known", once they are read. `setdefault` does not
        # replace the values of a change by another thread.
        self._state: dict[str, JsonObject] = {}

    def _loaded(self) -> JsonObject:
        known = self._state.get("known")
        if known is None:
            known = self._state.setdefault("known", self._layout.read_attributes())
        return known

    def _change(self, edit: Callable[[JsonObject], JsonObject]) -> None:
        writer = checked(self._writer, self._layout.folder.path())

        def take_over() -> None:
            self._state["known"] = values

        with writer.change(take_over, disturbs=False) as change:
            # Other writers of a group may have changed them.
            shared = writer.shared
            values = edit(self._layout.read_attributes() if shared else self._loaded())
            self._layout.stage_attributes(change, values)

    def __getitem__(self, name: str) -> Json:
        return self._loaded()[name]

    def __setitem__(self, name: str, value: Json) -> None:
        self._change(lambda values: {**values, name: value})

    def __delitem__(self, name: str) -> None:
        def without(values: JsonObject) -> JsonObject:
            rest = dict(values)
            del rest[name]
            return rest

        self._change(without)

    def put(self, values: JsonObject) -> None:
        """Replace all attributes."""
        self._change(lambda _: dict(values))

    def update(self, *others: Json, **more: Json) -> None:
        """Set several attributes in one step."""
        new = dict(*others, **more)
        self._change(lambda values: {**values, **new})

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded())

    def __len__(self) -> int:
        return len(self._loaded())

    def __repr__(self) -> str:
        return "<Attributes %r>" % (self._loaded(),)

    def asdict(self) -> JsonObject:
        """Return the attributes as a new dictionary."""
        return dict(self._loaded())
