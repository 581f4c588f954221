"""The attributes that users give to an array, a table or a group: a mapping.

Strategy: the file is read when an attribute is first used, and replaced as a whole by
each change. A value that JSON can't represent is refused before anything is written.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from ..exceptions import UsageTypeError, UsageValueError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..serializers import Json, JsonObject


class Attributes(MutableMapping[str, "Json"]):
    """Names and values, stored as JSON; changes are written at once.

    A value is returned as it was given, not as JSON returns it, until the dataset is
    opened again. After a change inside of a value, assign the value again.
    """

    def __init__(
        self,
        read: Callable[[], JsonObject],
        write: Callable[[JsonObject], object],
    ) -> None:
        self._read = read
        self._write = write
        self._values: JsonObject | None = None

    def _loaded(self) -> JsonObject:
        if self._values is None:
            self._values = self._read()
        return self._values

    def _replace(self, values: JsonObject) -> None:
        self._write(values)
        self._values = values

    def __getitem__(self, name: str) -> Json:
        return self._loaded()[name]

    def __setitem__(self, name: str, value: Json) -> None:
        self._replace({**self._loaded(), _checked(name): value})

    def __delitem__(self, name: str) -> None:
        values = dict(self._loaded())
        del values[name]
        self._replace(values)

    def put(self, values: JsonObject) -> None:
        """Replace all attributes."""
        self._replace({_checked(name): value for name, value in values.items()})

    def update(self, *others: Json, **more: Json) -> None:
        """Set several attributes in one step."""
        new = dict(*others, **more)
        self._replace({**self._loaded(), **{_checked(n): v for n, v in new.items()}})

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded())

    def __len__(self) -> int:
        return len(self._loaded())

    def __repr__(self) -> str:
        return "<Attributes %r>" % (self._loaded(),)

    def asdict(self) -> JsonObject:
        """Return the attributes as a new dictionary."""
        return dict(self._loaded())


def _checked(name: object) -> str:
    if not isinstance(name, str):
        raise UsageTypeError("the name of an attribute must be text, not %.200r" % name)
    return name


def encode_attributes(values: JsonObject) -> bytes:
    """Return attributes as a line of JSON; raise `UsageError` if that is impossible."""
    from .folder import encode_json

    try:
        return encode_json(values)
    except TypeError as error:
        raise UsageTypeError("attributes must be JSON: %s" % error) from error
    except (ValueError, RecursionError) as error:
        raise UsageValueError("attributes must be JSON: %s" % error) from error
