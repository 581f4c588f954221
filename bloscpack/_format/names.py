"""Names of the files in a dataset or an archive: relative, with safe parts only."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache

from ..exceptions import BloscpackError, DamageError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeGuard


# Maximum number of bytes of the name of a file or folder, in nearly all file systems.
MAX_PART = 255
# Maximum number of parts of a name, between slashes: a store takes them one by one, and
# each group around a member takes memory.
MAX_PARTS = 250


def is_safe_part(part: object) -> TypeGuard[str]:
    """Return whether text is the name of a file or folder, and no path."""
    if not isinstance(part, str) or part in ("", ".", ".."):
        return False
    if "/" in part or "\\" in part or "\0" in part or (os.name == "nt" and ":" in part):
        return False
    if part.isascii():
        return True
    try:
        # The surrogates of `os.fsdecode` represent bytes of a name that are no text. A
        # file system can't hold other surrogates, which JSON can have.
        part.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def is_too_long(part: str) -> bool:
    """Return whether a safe part is too long for the name of a file or folder."""
    return len(part.encode("utf-8", "surrogateescape")) > MAX_PART


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return the first names in quotes, and the number of others, for a message."""
    more = " and %d more" % (len(names) - most) if len(names) > most else ""
    return ", ".join(map("'%s'".__mod__, names[:most])) + more


class NoSuchName(KeyError):
    """There is nothing of a name in `path`; its message has the first of `names`.

    These are read when the message is shown, by a process that can read them: what
    should have had the name may be closed by then.
    """

    def __init__(
        self, name: str, path: str | None, names: Callable[[], Iterable[str]]
    ) -> None:
        super().__init__(name)
        self._path, self._names = path or "the archive", names

    def __str__(self) -> str:
        text = "there is no '%s' in '%s'" % (self.args[0], self._path)
        with suppress(BloscpackError, OSError):
            text += ": expected one of " + (listed([*self._names()]) or "no names")
        return text

    def __reduce__(self) -> tuple[object, ...]:
        return KeyError, (str(self),)


def is_safe_name(name: object) -> bool:
    """Return whether a relative name with slashes stays inside of its folder.

    A name of more than `MAX_PARTS` parts is none.
    """
    if not isinstance(name, str) or not is_short(name):
        return False
    return all(map(is_safe_part, name.split("/")))


def is_within(name: str, folder: str) -> bool:
    """Return whether a name is the folder, or a file or folder inside of it."""
    return (name + "/").startswith(folder + "/")


def folders_of(name: str) -> list[str]:
    """Return a name, and the folders around it, from the innermost one."""
    folders = [name]
    while name := name.rpartition("/")[0]:
        folders.append(name)
    return folders


def is_short(name: str) -> bool:
    """Return whether a name has no more parts than readers take."""
    return name.count("/") < MAX_PARTS


# The names that the code makes are checked again and again.
is_checked_name = lru_cache(1024)(is_safe_name)


def check_name(name: str) -> None:
    """Raise `DamageError` for a name that leads out of its folder.

    It is a guard: code that reads a document refuses wrong names in it.
    """
    if not is_checked_name(name):
        raise DamageError("expected a name inside of the dataset, found %.200r" % name)
