"""The formats of the metadata text. All releases wrote JSON."""

from __future__ import annotations

from operator import index

from .constants import MAX_DOCUMENT, MAX_METADATA_DIGITS, MAX_METADATA_NESTING
from .exceptions import (
    NoSuchSerializer,
    UsageTypeError,
    UsageValueError,
    metadata_damage,
)

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeGuard

    from ._types import Json, JsonObject

# Values of the key 'container' in the metadata of an array: the plain bytes are the
# items in order, or chunks that divide every axis. The latter may have text of variable
# length, in the shards of a dataset.
CONTAINER = "numpy"
GRID = "grid"
TEXT = "vlen-utf8"
# A number of more digits, when each digit is a zero, and the table that does that.
LONG_NUMBER = b"0" * (MAX_METADATA_DIGITS + 1)
TO_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
# All bytes but brackets, and a table in which all brackets are square ones.
NO_BRACKETS = bytes(set(range(256)).difference(b"[]{}"))
TO_SQUARE_BRACKETS = bytes.maketrans(b"{}", b"[]")
TOO_DEEP = "nested more than '%d' levels deep" % MAX_METADATA_NESTING
# Key of the user's metadata in the metadata of an array.
USER_METADATA = "metadata"
# Key in the metadata of an array whose file is a Zarr shard too: the number of rows of
# an inner chunk, or in a grid the shape of the whole shard.
SHARD = "shard"
# Key of the shape of a chunk of a grid.
CHUNKS = "chunks"
# Key of the dataset that such a file belongs to, and of its name there.
PLACE = "place"


def is_array(metadata: object) -> TypeGuard[JsonObject]:
    """Return whether these are the metadata of an array (docs/format.rst, Arrays)."""
    return isinstance(metadata, dict) and metadata.get("container") in (CONTAINER, GRID)


def is_grid(metadata: object) -> TypeGuard[JsonObject]:
    """Return whether these are the metadata of an array in chunks of every axis."""
    return isinstance(metadata, dict) and metadata.get("container") == GRID


def is_text(metadata: object) -> TypeGuard[JsonObject]:
    """Return whether these are the metadata of a shard of text of variable length.

    It is no array for the functions that read single files.
    """
    return isinstance(metadata, dict) and metadata.get("container") == TEXT


def user_metadata(metadata: Json) -> Json:
    """Return the metadata of the user: in an array file they are one of the values."""
    return metadata.get(USER_METADATA) if is_array(metadata) else metadata


def replaced_metadata(old: Json, new: Json) -> Json:
    """Return `old`, the metadata of a file, with `new` as the metadata of the user.

    In an array file the description of the array stays, unless `new` describes an array
    itself; None then means no metadata of the user. A shard stays one.
    """
    if not is_array(old):
        return new
    if is_array(new):
        return {**new, **{key: old[key] for key in (SHARD, PLACE) if key in old}}
    kept = {key: old[key] for key in old if key != USER_METADATA}
    return kept if new is None else {**kept, USER_METADATA: new}


def shard_rows(metadata: Json) -> int | None:
    """Return the rows of an inner chunk of a Zarr shard; None if it says no shard."""
    is_rows = isinstance(metadata, dict) and metadata.get("container") == CONTAINER
    rows = metadata.get(SHARD) if is_rows else None
    return rows if type(rows) is int and rows > 0 else None


def is_shard(metadata: Json) -> bool:
    """Return whether metadata say that the file is a Zarr shard."""
    if not isinstance(metadata, dict) or SHARD not in metadata:
        return False
    is_cut = is_grid(metadata) or is_text(metadata)
    return is_cut or shard_rows(metadata) is not None


class Serializer:
    """A metadata format.

    Parameters
    ----------
    name
        Name of the format in a metadata header, such as ``b'JSON'``.
    dumps
        Function that returns the text of a value.
    loads
        Function that returns the value of a text.
    """

    def __init__(
        self,
        name: bytes,
        dumps: Callable[[object], str],
        loads: Callable[[bytes | str, int | None], Json],
    ) -> None:
        self.name = name
        self._dumps = dumps
        self._loads = loads

    def dumps(self, dict_: object) -> str:
        """Return a value as ASCII text.

        Parameters
        ----------
        dict_
            Any value that the format can store, not only a dictionary.

        Raises
        ------
        UsageTypeError
            The value contains an object of a type that the format cannot store. This is
            a ``TypeError`` too.
        UsageError
            The format cannot store the value.
        """
        return self._dumps(dict_)

    def loads(self, data: bytes | str, limit: int | None = None) -> Json:
        """Return the value that a text stores.

        Parameters
        ----------
        data
            The text; bytes are decoded as UTF-8.
        limit
            Maximum number of values and keys; None for no maximum. It is checked before
            memory is allocated for them.

        Raises
        ------
        FormatError
            The text does not follow the format, is nested too deeply, or has more than
            `limit` values.
        """
        return self._loads(data, limit)

    def __repr__(self) -> str:
        return "<Serializer %s>" % self.name.decode("ascii")


def _dump_json(value: object) -> str:
    import json

    try:
        text = json.dumps(value, separators=(",", ":"), default=_as_index)
        _check_nesting(text)
        check_names(value)
        return text
    except (TypeError, ValueError, RecursionError) as error:
        kind = UsageTypeError if isinstance(error, TypeError) else UsageValueError
        raise kind("the metadata can't be written as JSON: %s" % error) from error


def check_names(value: object) -> None:
    """Raise `ValueError` if two keys of a dictionary have the same name in JSON.

    Keys such as 1 and None become text there, and only one of two items would be left.
    """
    rest = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, dict):
            if {*map(type, item)} - {str}:
                _check_keys(item)
            item = item.values()
        elif not isinstance(item, (list, tuple)):
            continue
        rest.extend(each for each in item if isinstance(each, (dict, list, tuple)))


def _check_keys(value: dict[object, object]) -> None:
    import json

    keys: dict[str, object] = {}
    for key in value:
        (name,) = json.loads(json.dumps({key: 0}))
        if name in keys:
            raise ValueError(
                "the keys %r and %r have the same name there" % (keys[name], key)
            )
        keys[name] = key


def _as_index(value: object) -> int:
    """Return a number of another class, such as an integer of NumPy, as an int."""
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            "Object of type %s is not JSON serializable" % type(value).__name__
        ) from None


def has_more_values(text: bytes, limit: int) -> bool:
    """Return whether a JSON text has more than `limit` values and keys.

    Each value or key but the first follows one of ``,:[{`` outside of strings. Text
    that is no JSON may give any result, in a time that grows with its length.
    """
    if len(text) < limit or _count_separators(text) < limit:
        return False  # commas inside of strings do not matter then
    text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    count, end = 1, 0
    while count <= limit:
        start = text.find(b'"', end)
        if start < 0:
            return count + _count_separators(text[end:]) > limit
        nseparators = _count_separators(text[end:start])
        if not nseparators and end:
            return False  # two strings without anything in between
        count += nseparators
        end = text.find(b'"', start + 1) + 1
        if not end:
            return False
    return True


def _count_separators(text: bytes) -> int:
    return sum(map(text.count, (b",", b":", b"[", b"{")))


def parse_json(data: bytes | str) -> Json:
    """Return the value of a JSON text (docs/format.rst, Metadata).

    Raises `ValueError` if it is no JSON in UTF-8, or nested too deeply.
    """
    import json

    text = data.decode("utf-8") if isinstance(data, bytes) else data
    parse_int = None
    if len(text) > MAX_METADATA_DIGITS:
        raw = data if isinstance(data, bytes) else data.encode("utf-8", "replace")
        # Converting each number with a function of our own is slower.
        parse_int = _parse_int if LONG_NUMBER in raw.translate(TO_ZEROS) else None
    try:
        value = json.loads(text, parse_int=parse_int)
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error
    _check_nesting(text)
    return value


def encode_document(
    value: Json,
    indent: int | None = None,
    default: Callable[[object], Json] | None = None,
) -> bytes:
    """Return the content of a document of a dataset: JSON and a line feed.

    Raises `UsageValueError` if readers would refuse it (docs/format.rst, Metadata), and
    the errors of ``json.dumps``.
    """
    import json

    if indent == 2:
        text = json_in_lines(value, default)
    else:
        text = json.dumps(value, indent=indent, default=default)
    check_new_nesting(text)
    return finished_document(text)


WORDS: dict[object, str] = {None: "null", True: "true", False: "false"}  # of JSON


def json_in_lines(value: Json, default: Callable[[object], Json] | None = None) -> str:
    """Return what ``json.dumps`` returns with an indent of 2, in half of the time."""
    import json
    from json.encoder import encode_basestring_ascii as quoted

    def lines(value: Json, end: str) -> str:
        kind, inner = type(value), end + "  "
        if kind is str:
            return quoted(value)
        if kind is int:
            return repr(value)
        if kind is bool or value is None:
            return WORDS[value]
        if kind is dict and value:
            # `quoted` raises TypeError for a name that is no text.
            parts = [quoted(k) + ": " + lines(v, inner) for k, v in value.items()]
            return "{" + inner + ("," + inner).join(parts) + end + "}"
        if kind is list and value:
            parts = [lines(each, inner) for each in value]
            return "[" + inner + ("," + inner).join(parts) + end + "]"
        if kind in (float, dict, list):
            return json.dumps(value)
        raise TypeError

    try:
        return lines(value, "\n")
    except (TypeError, ValueError, RecursionError):  # other types, or a fault
        return json.dumps(value, indent=2, default=default)


def check_new_nesting(text: str) -> None:
    """Raise `UsageValueError` if a document, or a part of one, is nested too deeply."""
    try:
        _check_nesting(text)
    except ValueError as error:
        raise UsageValueError("the document would be %s" % error) from error


def finished_document(text: str) -> bytes:
    """Return the content of a document; raise `UsageValueError` if it is too long."""
    if len(text) >= MAX_DOCUMENT:
        raise UsageValueError(
            "a document of '%d' bytes would be written, and at most '%d' are read"
            % (len(text) + 1, MAX_DOCUMENT)
        )
    return text.encode("ascii") + b"\n"


def _check_nesting(text: str) -> None:
    """Raise `ValueError` if a text, which is JSON, is nested too deeply.

    Every array and every object is one level deeper than the one that contains it.
    """
    if text.count("[") + text.count("{") <= MAX_METADATA_NESTING:
        return
    # Without strings. They have no quotes once escaped ones are gone.
    text = text.replace("\\\\", "").replace('\\"', "")
    outside = "".join(text.split('"')[::2]).encode()
    brackets = outside.translate(TO_SQUARE_BRACKETS, NO_BRACKETS)
    for _ in range(MAX_METADATA_NESTING):
        brackets = brackets.replace(b"[]", b"")  # the innermost level
    if brackets:
        raise ValueError(TOO_DEEP)


def _load_json(data: bytes | str, limit: int | None = None) -> Json:
    cause: Exception | None = None
    try:
        raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        if limit is None or not has_more_values(raw, limit):
            return parse_json(data)
        problem = "the metadata have more than '%d' values" % limit
    except MemoryError as error:
        problem = "there is no memory for the metadata of '%d' bytes" % len(data)
        cause = error
    except ValueError as error:
        problem, cause = "the metadata are no valid JSON: %s" % error, error
    raise metadata_damage(problem) from cause


def _parse_int(digits: str) -> int:
    """Return the whole number in a JSON text; raise `ValueError` if it is too long."""
    if len(digits.lstrip("-")) > MAX_METADATA_DIGITS:
        raise ValueError("a number has more than '%d' digits" % MAX_METADATA_DIGITS)
    return int(digits)


# All metadata formats.
SERIALIZERS = [Serializer(b"JSON", _dump_json, _load_json)]
SERIALIZERS_AVAIL = [serializer.name for serializer in SERIALIZERS]
SERIALIZERS_LOOKUP = {serializer.name: serializer for serializer in SERIALIZERS}


def check_valid_serializer(serializer: bytes) -> None:
    """Raise `NoSuchSerializer`, a `UsageError`, unless a format has this name."""
    if serializer not in SERIALIZERS_LOOKUP:
        name: object = serializer
        if isinstance(serializer, bytes):
            name = serializer.decode("latin-1")
        raise NoSuchSerializer("serializer '%s' does not exist" % name)
