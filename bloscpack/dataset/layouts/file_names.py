"""The names of the files of an array, by number, and which of them exist.

A description may claim any number of files. So callers visit only the stored files, and
compute with the numbers of the others.
"""

from __future__ import annotations

import re
from functools import cached_property

from ...exceptions import UsageError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..folder import Folder

# Maximum number of files that a server which lists no names is asked for.
MAX_ASKED = 10**6


class FileNames:
    """Names that differ in a number, in one folder.

    Parameters
    ----------
    place
        The folder, relative to the one of the array; empty for that one.
    before, after
        The text in front of the number, and the text behind it.
    first
        The number in the first name.
    """

    def __init__(
        self, place: str, before: str = "", after: str = "", first: int = 0
    ) -> None:
        self.place = place
        self._before = before
        self._after = after
        self._first = first

    @cached_property
    def _entry(self) -> re.Pattern[str]:
        """The names of the files, of which the first group is the number."""
        around = re.escape(self._before), re.escape(self._after.partition("/")[0])
        return re.compile("%s(0|[1-9][0-9]{0,18})%s" % around)

    def __call__(self, number: int) -> str:
        """Return the name of a file."""
        name = "%s%d%s" % (self._before, number + self._first, self._after)
        return "%s/%s" % (self.place, name) if self.place else name

    def number(self, entry: str) -> int | None:
        """Return the number in a name without its folder; None for other names."""
        match = self._entry.fullmatch(entry)
        number = -1 if match is None else int(match[1]) - self._first
        return number if number >= 0 else None

    def stored(self, folder: Folder, count: int) -> Sequence[int]:
        """Return the numbers below `count` of the files in `folder`, ascending.

        Where names can't be listed, they are all numbers below `count`.
        """
        if not folder.lists:
            if count > MAX_ASKED:
                raise UsageError(
                    "the server lists no files, and asking for each of the '%d' files "
                    "of '%s' would take too long" % (count, folder.path())
                )
            return range(count)
        numbers = map(self.number, self._entries(folder))
        return sorted({n for n in numbers if n is not None and n < count})

    def _entries(self, folder: Folder) -> Iterator[str]:
        """Yield the names in the folder, with those that a committed change adds."""
        yield from folder.names(self.place)
        start = folder.prefix + (self.place + "/" if self.place else "")
        for name in folder.pending:
            if name.startswith(start):
                yield name[len(start) :].partition("/")[0]
