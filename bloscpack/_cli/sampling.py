"""``--auto``: settings that are chosen from a sample of each input.

A regular file is sampled in pieces from its whole length. The sample of a pipe is its
beginning, which is kept, and compressed with the rest.
"""

from __future__ import annotations

import io

from .. import log
from .._format.automatic import HEAD, choose
from .._storage.base import read_up_to
from .._storage.spool import size_of

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence
    from typing import Any, BinaryIO

    from .._format.tuning import Setting
    from .._storage.protocols import Readable

# Fields of a setting that an option, a variable or the configuration file may fix.
FIELDS = ("cname", "clevel", "shuffle", "typesize", "chunk_size")


class _Rejoined(io.RawIOBase):
    """The beginning of a pipe, which has been read, and the rest of it."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._parts: list[Readable] = [io.BytesIO(head), rest]
        self._rest = rest

    def readable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the descriptor of the pipe."""
        return self._rest.fileno()

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        """Read into a buffer; return the number of bytes."""
        while self._parts:
            data = read_up_to(self._parts[0], len(buffer))
            if data:
                buffer[: len(data)] = data
                return len(data)
            del self._parts[0]
        return 0


def sampled(args: Namespace, in_fp: BinaryIO) -> tuple[BinaryIO, Setting]:
    """Return the setting for an input, and a file object with all bytes of it.

    The file object is `in_fp` at its current position, or replaces it.
    """
    size = size_of(in_fp)
    if size is not None:
        return in_fp, chosen_at(args, in_fp, size)
    head = read_up_to(in_fp, HEAD)

    def read(start: int, size: int) -> bytes:
        return head[start : start + size]

    setting = choose(read, len(head), args.auto, fixed=_fixed(args))
    _log(setting)
    raw: Any = _Rejoined(head, in_fp)
    return io.BufferedReader(raw), setting


def chosen_at(
    args: Namespace, fp: BinaryIO, size: int, typesizes: Sequence[int] = ()
) -> Setting:
    """Return the setting for the next `size` bytes of a file that can seek.

    The position remains unchanged. `typesizes` are the type sizes of the data, if they
    are known: they take precedence over the type size of the user.
    """
    begin = fp.tell()

    def read(start: int, size: int) -> bytes:
        fp.seek(begin + start)
        return fp.read(size)

    fixed = _fixed(args)
    if typesizes:
        fixed.pop("typesize", None)
    setting = choose(read, size, args.auto, typesizes, fixed)
    fp.seek(begin)
    _log(setting)
    return setting


def _fixed(args: Namespace) -> dict[str, str | int]:
    """Return the fields of the setting that the user has made."""
    given = getattr(args, "given", ())
    return {name: getattr(args, name) for name in FIELDS if name in given}


def _log(setting: Setting) -> None:
    log.verbose("settings chosen for the data: %s" % setting)
