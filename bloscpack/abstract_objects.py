"""The base class of records whose fields are also items."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping

from .pretty import double_pretty_size

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Any, TypeVar

    Self = TypeVar("Self", bound="MutableMappingObject")
    Base = MutableMapping[str, Any]
else:
    Base = MutableMapping


def parameters_of(function: Any) -> tuple[str, ...]:
    """Return the names of the parameters of a method, without ``self``."""
    code = function.__code__
    names: tuple[str, ...] = code.co_varnames[1 : code.co_argcount]
    return names


class MutableMappingObject(Base):
    """Base class of the headers and settings: a mapping with a fixed set of keys.

    Every key is an attribute too. Two records are equal if their keys and values are.
    A subclass lists its keys, the parameters of ``__init__``, in ``_attributes``, and
    those whose values are sizes in bytes in ``_bytes_attributes``.
    """

    _attributes: tuple[str, ...] = ()
    _bytes_attributes: tuple[str, ...] = ()

    @property
    def attributes(self) -> list[str]:
        """The names of the fields, in order."""
        return list(self._attributes)

    @property
    def bytes_attributes(self) -> list[str]:
        """The names of the fields that are sizes in bytes."""
        return list(self._bytes_attributes)

    def _check_key(self, key: str) -> None:
        if key not in self.attributes:
            raise KeyError("%s not in %s" % (key, type(self).__name__))

    def __getitem__(self, key: str) -> Any:
        self._check_key(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: object) -> None:
        self._check_key(key)
        setattr(self, key, value)

    def __delitem__(self, key: str) -> None:
        raise NotImplementedError(
            "%s does not support __delitem__ or derivatives" % type(self).__name__
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.attributes)

    def __len__(self) -> int:
        return len(self.attributes)

    def __str__(self) -> str:
        import pprint

        return pprint.pformat(dict(self))

    def __repr__(self) -> str:
        fields = ", ".join("%s=%r" % (key, self[key]) for key in self)
        return "%s(%s)" % (type(self).__name__, fields)

    def pformat(self, indent: int = 4) -> str:
        """Return the fields as text, one per line, sizes with a suffix.

        Parameters
        ----------
        indent
            Number of spaces before every field.
        """
        lines = ["%s:" % type(self).__name__]
        for key in self:
            value = self[key]
            is_size = key in self.bytes_attributes and value != -1
            shown = double_pretty_size(value) if is_size else repr(value)
            lines.append("%s%s: %s" % (" " * indent, key, shown))
        return "\n".join(lines)

    def copy(self: Self) -> Self:
        """Return a new record with the same fields."""
        import copy

        return copy.copy(self)
