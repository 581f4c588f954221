"""Default settings of the user, from environment variables and a configuration file.

An option on the command line wins over a variable, and a variable over the file. The
error for an invalid setting names its source. Without a configuration file the search
for it costs one call of `os.stat`.
"""

from __future__ import annotations

import os
import sys
from functools import partial

from .._format.codecs import BITSHUFFLE, DEFAULT_GOAL, FILTERS, GOALS
from ..constants import MAX_CLEVEL, MAX_THREADS, MAX_TYPESIZE, MIN_CLEVEL
from ..defaults import (
    DEFAULT_CHECKSUM,
    DEFAULT_CHUNK_SIZE,
    DEFAULT_CLEVEL,
    DEFAULT_CNAME,
    DEFAULT_SHUFFLE,
    DEFAULT_TYPESIZE,
    available_cpus,
)
from ..exceptions import install_hint
from ..log import printable
from .exit_codes import Refusal, WrongUsage

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from .._storage.protocols import Readable

    Value = int | str

PREFIX = "BLPK_"
CONFIG_VARIABLE = "BLPK_CONFIG"
FOLDER = "bloscpack"
FILE = "config.toml"
DEFAULT = "default"
FILTER_NAMES = list(FILTERS.values())


# Checks of the settings: each returns the value, or raises ValueError


def _number(least: int, most: int, value: object) -> int:
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if type(number) is not int or not least <= number <= most:
        raise ValueError(
            "expected a number from %d to %d, found %r" % (least, most, value)
        )
    return number


def _codec(value: object) -> str:
    from ..constants import CNAME_AVAIL

    return _one_of(CNAME_AVAIL, value)


def _checksum(value: object) -> str:
    from ..checksums import CHECKSUMS_AVAIL

    return _one_of(CHECKSUMS_AVAIL, value)


def _filter_number(name: Value) -> int:
    """Return the value of `shuffle`; False and True are those of 0.16."""
    number = FILTER_NAMES.index(str(name))
    return number if number == BITSHUFFLE else bool(number)


def _auto(value: object) -> Value:
    """Return the goal, or False."""
    if value is True or value == "true":
        return DEFAULT_GOAL
    if value is False or value == "false":
        return False
    return _one_of(["true", "false", *GOALS], value)


def _one_of(names: Sequence[str], value: object) -> str:
    if value not in names:
        raise ValueError("expected one of %s, found %r" % (", ".join(names), value))
    return str(value)


def _chunk_size(value: object) -> Value:
    """Return the size unchanged if it has a suffix, otherwise as a number."""
    try:
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise ValueError("it is no whole number and no text")
        if isinstance(value, str) and value.isdecimal():
            value = int(value)
        _in_bytes(value)
    except ValueError as error:
        raise ValueError(
            "expected a chunk size, found %r: %s" % (value, error)
        ) from error
    return value


def _in_bytes(chunk_size: Value) -> int:
    from ..args import parse_chunk_size
    from .display import parse_size

    if isinstance(chunk_size, str) and chunk_size != "max":
        chunk_size = parse_size(chunk_size)
    return parse_chunk_size(chunk_size)


# The check and the default of each setting.
SETTINGS: dict[str, tuple[Callable[[object], Value], Value]] = {
    "nthreads": (partial(_number, 1, MAX_THREADS), min(available_cpus(), MAX_THREADS)),
    "codec": (_codec, DEFAULT_CNAME),
    "clevel": (partial(_number, MIN_CLEVEL, MAX_CLEVEL), DEFAULT_CLEVEL),
    "chunk_size": (_chunk_size, DEFAULT_CHUNK_SIZE),
    "checksum": (_checksum, DEFAULT_CHECKSUM),
    "typesize": (partial(_number, 1, MAX_TYPESIZE), DEFAULT_TYPESIZE),
    "filter": (partial(_one_of, FILTER_NAMES), FILTERS[DEFAULT_SHUFFLE]),
    "auto": (_auto, False),
}
CHECKS = {name: check for name, (check, _) in SETTINGS.items()}
#: Settings whose attribute of the parsed arguments has another name.
ATTRIBUTES = {"codec": "cname", "filter": "shuffle"}
#: Functions that return the value of the parsed arguments.
CONVERSIONS: dict[str, Callable[[Value], Value]] = {
    "chunk_size": _in_bytes,
    "filter": _filter_number,
}


def variable_for(name: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + name.upper()


# The configuration file


def path() -> str:
    """Return the path of the configuration file, which need not exist."""
    return os.environ.get(CONFIG_VARIABLE) or os.path.join(_folder(), FILE)


def _folder() -> str:
    if sys.platform in ("darwin", "win32"):  # others need no platformdirs
        from importlib import import_module

        try:
            platformdirs = import_module("platformdirs")
        except ImportError:
            pass
        else:
            return str(platformdirs.user_config_dir(FOLDER, appauthor=False))
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(home, FOLDER)


def _read_file(name: str) -> dict[str, object]:
    """Return the settings in the file, none if it does not exist; raises `Refusal`."""
    try:
        os.stat(name)
    except OSError as error:
        # An unreadable home folder is no error, unless the user named the file.
        if os.environ.get(CONFIG_VARIABLE):
            raise WrongUsage(
                "%s: '%s': %s" % (CONFIG_VARIABLE, name, error.strerror)
            ) from error
        return {}
    with open(name, "rb") as fp:
        content = _parse(fp, name)
    for key in content:
        if key not in CHECKS:
            raise WrongUsage(
                "'%s': unknown setting '%s', expected one of %s"
                % (name, key, ", ".join(CHECKS))
            )
    return content


def _parse(fp: Readable, name: str) -> dict[str, object]:
    from importlib import import_module

    try:
        toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    except ImportError as error:
        raise Refusal(
            "'%s' can't be read without the package tomli: %s"
            % (name, install_hint("config"))
        ) from error
    try:
        content: dict[str, object] = toml.load(fp)
    except (ValueError, RecursionError) as error:
        raise WrongUsage("'%s' is not valid TOML: %s" % (name, error)) from error
    return content


def change(texts: dict[str, str | None]) -> None:
    """Write settings to the file in one step; None removes one. Other lines stay.

    Raises `Refusal` for an unknown setting, an invalid value, or a file that is not
    valid.
    """
    from io import BytesIO

    from .._commit.replacing import replacing

    name, content = path(), b""
    if os.path.lexists(name):
        with open(name, "rb") as fp:
            content = fp.read()
    expected = _parse(BytesIO(content), name)
    text = content.decode()
    for key, value in texts.items():
        if key not in CHECKS and (value is not None or key not in expected):
            raise WrongUsage(
                "unknown setting '%s', expected one of %s" % (key, ", ".join(CHECKS))
            )
        expected.pop(key, None)
        if value is not None:
            value, expected[key] = _in_toml(key, value)
        text = _with_line(text, key, value)
    content = text.encode()
    if _parse(BytesIO(content), name) != expected:
        raise Refusal("'%s' has lines that can't be changed: edit the file" % name)
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    with replacing(name) as out:
        out.write(content)


def _in_toml(key: str, text: str) -> tuple[str, object]:
    """Return a value in the notation of TOML, and as it is read from there."""
    import json

    try:
        value: object = CHECKS[key](text)
    except ValueError as error:
        raise WrongUsage("%s: %s" % (key, error)) from error
    if text in ("true", "false"):
        value = text == "true"
    return json.dumps(value), value


def _with_line(text: str, key: str, value: str | None) -> str:
    """Return TOML with one more or another line for a key; None removes its line."""
    import re

    line = r"(?m)^([ \t]*[\"']?%s[\"']?[ \t]*=[ \t]*)[^#\n]*?([ \t]*(?:#.*)?)$\n?"
    line %= re.escape(key)
    if value is None:
        return re.sub(line, "", text)
    text += "\n" if text and not text.endswith("\n") else ""
    changed, found = re.subn(line, r"\g<1>%s\g<2>\n" % value, text)
    return changed if found else "%s%s = %s\n" % (text, key, value)


# The settings in force


class UserSetting:
    """A setting that the user has made, and its source; errors name its `place`."""

    def __init__(self, name: str, value: object, source: str, place: str) -> None:
        self.name = name
        self.source = source
        self._value = value
        self._place = place

    def __str__(self) -> str:
        return printable(str(self._value))  # for the help

    def checked(self) -> Value:
        """Return the value; raises `Refusal` if it is invalid."""
        try:
            return CHECKS[self.name](self._value)
        except ValueError as error:
            raise WrongUsage("%s: %s" % (self._place, error)) from error

    def as_argument(self) -> Value:
        """Return the value in the form that argparse returns; raises `Refusal`."""
        value = self.checked()
        convert = CONVERSIONS.get(self.name)
        return convert(value) if convert else value


def _user_settings(names: Iterable[str]) -> Iterator[UserSetting]:
    name_of_file = path()
    content = _read_file(name_of_file)
    for name in names:
        variable = variable_for(name)
        if os.environ.get(variable):
            yield UserSetting(name, os.environ[variable], variable, variable)
        elif name in content:
            place = "'%s': %s" % (name_of_file, name)
            yield UserSetting(name, content[name], name_of_file, place)


def load(names: Iterable[str] = tuple(CHECKS)) -> dict[str, tuple[Value, str]]:
    """Return value and source of the settings among `names` that the user has made.

    The source is the variable or the path of the file. Raises `Refusal` for an invalid
    value, an unknown setting, or a file that is not valid TOML.
    """
    return {made.name: (made.checked(), made.source) for made in _user_settings(names)}


def in_force() -> dict[str, tuple[Value, str]]:
    """Return value and source of all settings; the source may be DEFAULT."""
    found = load()
    return {
        name: found.get(name, (default, DEFAULT))
        for name, (_, default) in SETTINGS.items()
    }


def as_arguments(names: Iterable[str]) -> dict[str, UserSetting]:
    """Return the user's settings among `names`, by attribute of the arguments."""
    found = _user_settings(names)
    return {ATTRIBUTES.get(made.name, made.name): made for made in found}
