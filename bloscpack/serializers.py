"""The formats of the metadata; JSON is the only one ever written."""

from __future__ import annotations

from .exceptions import FormatError, NoSuchSerializer, UsageError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


# Deeper values could be read, but neither shown nor compared.
MAX_NESTING = 100
# What the metadata of an array say that it is kept in.
CONTAINER = "numpy"


def is_array(metadata: Any) -> bool:
    """Return whether the metadata are those of an array."""
    return isinstance(metadata, dict) and metadata.get("container") == CONTAINER


class Serializer:
    """A metadata format: its name on disk and its two functions."""

    def __init__(
        self,
        name: bytes,
        dumps: Callable[[Any], str],
        loads: Callable[[bytes | str], Any],
    ) -> None:
        self.name = name
        self._dumps = dumps
        self._loads = loads

    def dumps(self, dict_: Any) -> str:
        """Return the value as ASCII text; raises `UsageError` if it can't be stored."""
        return self._dumps(dict_)

    def loads(self, data: bytes | str) -> Any:
        """Return the value stored in `data`; raises `FormatError` if there is none."""
        return self._loads(data)

    def __repr__(self) -> str:
        return "<Serializer %s>" % self.name.decode("ascii")


def _dump_json(value: Any) -> str:
    import json

    try:
        text = json.dumps(value, separators=(",", ":"))
        if _is_too_deep(value):
            raise ValueError("nested more than '%d' levels deep" % MAX_NESTING)
        return text
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError("the metadata can't be written as JSON: %s" % error) from error


def _load_json(data: bytes | str) -> Any:
    import json

    try:
        value = json.loads(data.decode("utf-8") if isinstance(data, bytes) else data)
        if _is_too_deep(value):
            raise FormatError(
                "the metadata are nested more than '%d' levels deep" % MAX_NESTING,
                section="metadata",
            )
    except FormatError:
        raise
    except MemoryError as error:
        raise FormatError(
            "there is no memory for the metadata of '%d' bytes" % len(data),
            section="metadata",
        ) from error
    except (ValueError, RecursionError) as error:
        raise FormatError(
            "the metadata are no valid JSON: %s" % error, section="metadata"
        ) from error
    return value


def _is_too_deep(value: Any) -> bool:
    """Return whether a value is nested too deeply to be worked with."""
    level = [value]
    for _ in range(MAX_NESTING):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list, tuple))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


SERIALIZERS = [Serializer(b"JSON", _dump_json, _load_json)]
SERIALIZERS_AVAIL = [serializer.name for serializer in SERIALIZERS]
SERIALIZERS_LOOKUP = {serializer.name: serializer for serializer in SERIALIZERS}


def check_valid_serializer(serializer: bytes) -> None:
    """Raise `NoSuchSerializer` unless `serializer` is the name of one."""
    if serializer not in SERIALIZERS_LOOKUP:
        raise NoSuchSerializer(
            "serializer '%s' does not exist"
            % (
                serializer.decode("latin-1")
                if isinstance(serializer, bytes)
                else serializer
            )
        )
