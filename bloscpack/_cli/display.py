"""Output of the command: lines, tables, JSON, and sizes in bytes.

Contract: no control character, and no mark that changes the direction of text, reaches
the terminal from a file name, an option or a file. `say`, `put_line` and the functions
of `log` replace unprintable characters by escape sequences (`printable`), and so
characters that the encoding of the terminal lacks. `json_text` and `say_json` use the
escape sequences of JSON, so that their output stays valid JSON.
"""

from __future__ import annotations

from math import isfinite

from ..constants import SUFFIXES
from ..log import printable
from ..pretty import pretty_size, reverse_pretty
from .console import console
from .exit_codes import for_each_file

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable, Sequence

    from ..serializers import Json, JsonObject

UNKNOWN = "-"
# Number of blanks in front of each level of JSON.
INDENT = 2


def json_text(value: object, compact: bool, encoding: str) -> str:
    """Return a value as JSON with sorted keys, on one line if `compact`.

    Unprintable characters are escaped, and all beyond ASCII if `encoding` lacks one.
    """
    import json

    def dumped(ascii_only: bool) -> str:
        return json.dumps(
            value,
            indent=None if compact else INDENT,
            separators=(",", ":") if compact else None,
            sort_keys=True,
            ensure_ascii=ascii_only,
        )

    text = dumped(ascii_only=False)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return dumped(ascii_only=True)
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == "\n" else json.dumps(c).strip('"') for c in text
    )


def say_json(value: object) -> None:
    """Print a value as JSON in ASCII; NaN and infinities become null."""
    console.put(_plain_json(value) + "\n")


def say_json_list(pieces: Iterable[list[object]]) -> None:
    """Print several lists as one, as `say_json` does, one piece after the other."""
    before = "["
    for piece in filter(None, pieces):
        # Without the brackets around the items, and the line end before the last one.
        console.put(before + _plain_json(piece)[1:-2])
        before = ","
    console.put("[]\n" if before == "[" else "\n]\n")


def _plain_json(value: object) -> str:
    import json

    try:
        return json.dumps(value, indent=INDENT, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), indent=INDENT)


def _finite(value: object) -> Json:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and not isfinite(value):
        return None
    return value


def size_text(size: int, exact: bool = False) -> str:
    """Return a size in bytes with a suffix, or as a number if `exact`."""
    return str(size) if exact else str(pretty_size(size))


def parse_size(text: str) -> int:
    """Return the number of bytes for a text such as 1.5M, 1.5MB or 1.5MiB.

    Small letters are accepted too. Raises ValueError.
    """
    try:
        if text[-1:].isalpha():
            return reverse_pretty(text.upper().replace("IB", "iB"))
        return int(text)
    except ValueError as error:
        raise ValueError(
            "expected a number of bytes, or one with a suffix from %s like 1.5M, "
            "1.5MB or 1.5MiB, found '%s'" % (" ".join(SUFFIXES), text)
        ) from error


def array_text(array: JsonObject | None) -> str:
    """Return dtype and shape in short form: ``<f8 (100, 3)``."""
    if array is None:
        return UNKNOWN
    shape = "(?)" if array["shape"] is None else str(tuple(array["shape"]))
    order = " F" if array["order"] == "F" else ""
    dtype = shorten(str(array["dtype"]), 24)
    return printable(shorten("%s %s%s" % (dtype, shape, order), 60))


def shorten(text: str, length: int) -> str:
    """Return a text of at most `length` characters; a cut text ends with ``...``."""
    return text if len(text) <= length else text[: length - 3] + "..."


def table(rows: Sequence[Sequence[str]], left: Sequence[int] = ()) -> list[str]:
    """Return rows of cells as lines; columns are right-aligned, those in `left` not.

    The last column is left-aligned and may have any width.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row[:-1], widths, strict=False))
        ]
        lines.append("  ".join([*cells, row[-1]]).rstrip())
    return lines


def dataset_array_text(described: JsonObject) -> str:
    """Return dtype, shape and layout of an array of a dataset in short form."""
    array = {"dtype": described["dtype"], "shape": described["shape"], "order": "C"}
    return "%s %s" % (array_text(array), described["layout"])


def show_files(
    args: Namespace,
    read: Callable[[str], tuple[list[JsonObject], int]],
    titles: Sequence[str],
    row: Callable[[JsonObject, bool], Sequence[str]],
    total: Callable[[list[JsonObject], bool], Sequence[str]],
    left: Sequence[int] = (),
    datasets: bool = False,
) -> int:
    """Show a row for each entry of the files in the arguments, or a list as JSON.

    Returns the exit code.

    `read` returns the entries of a file or dataset, and an exit code. `row` and `total`
    return cells, with exact sizes for ``--bytes``. See `options.add_table_options`,
    `table` and `inputs.packed_files`.
    """
    from .inputs import packed_files

    found: list[JsonObject] = []
    files = packed_files(args, datasets)

    def act(path: str) -> int:
        entries, code = read(path)
        found.extend(entries)
        return code

    worst = for_each_file(files, act)
    if args.json:
        say_json(found)
    elif found:
        rows = [titles, *(row(fields, args.bytes) for fields in found)]
        if max(len(files), len(found)) > 1:
            rows.append(total(found, args.bytes))
        for line in table(rows, left):
            console.say(line)
    return worst
