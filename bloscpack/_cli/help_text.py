"""The help of the command, in the width of the terminal."""

from __future__ import annotations

import argparse
import os
import re
import sys

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Any

# The smallest width of the help, in columns.
LEAST_WIDTH = 20
# The indentation of a continued line of a usage or an example, in columns.
CONTINUED = 4


class BloscPackCustomFormatter(argparse.HelpFormatter):
    """Formats help in the width of the terminal; lines that fit keep their line end."""

    def __init__(self, prog: str, **kwargs: Any) -> None:
        if "width" not in kwargs:
            kwargs["width"] = max(LEAST_WIDTH, columns() - 2)
        super().__init__(prog, **kwargs)

    def _format_usage(self, *args: Any) -> str:
        # argparse leaves blanks in place of a group of hidden options.
        usage = re.sub(r"(?<=\S) {2,}(?=\S)", " ", super()._format_usage(*args))
        if all(len(line) <= self._width + 2 for line in usage.splitlines()):
            return usage
        first, *rest = usage.rstrip("\n").splitlines()
        lines = [p for line in rest for p in wrapped(line, self._width - CONTINUED)]
        return "\n".join([first, *(" " * CONTINUED + line for line in lines)]) + "\n\n"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = text.splitlines()
        if len(lines) == 1 or any(len(line) > width + 2 for line in lines):
            lines = _filled(lines, width - len(indent))
        end = "\n" * text.endswith("\n")
        return "\n".join(indent + line for line in lines) + end

    def _split_lines(self, text: str, width: int) -> list[str]:
        if "\n" not in text:
            return wrapped(text, width)
        return [
            piece
            for line in text.splitlines()
            for piece in ([line] if len(line) <= width else wrapped(line, width))
        ]


def columns() -> int:
    """Return the columns of the terminal on standard output, or 80.

    argparse would import shutil to find them, even if no help is shown.
    """
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (AttributeError, OSError, ValueError):
        return 80


def _filled(lines: list[str], width: int) -> list[str]:
    """Return lines of at most `width` columns.

    Adjacent lines that begin with a word are prose, and are joined. An indented line,
    such as an example, is continued with a larger indentation.
    """
    filled: list[str] = []
    prose: list[str] = []
    for line in [*lines, ""]:
        if line and not line.startswith(" "):
            prose.append(line)
            continue
        if prose:
            filled += wrapped(" ".join(prose), width)
            prose = []
        indent = " " * (len(line) - len(line.lstrip()))
        if len(line) <= width:
            filled.append(line)
        else:
            first, *rest = wrapped(line, width - len(indent) - CONTINUED)
            filled += [indent + first, *(indent + " " * CONTINUED + r for r in rest)]
    return filled[:-1]


def wrapped(text: str, width: int) -> list[str]:
    """Return text as lines. Importing textwrap would take longer than this loop."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] += " " * bool(lines[-1]) + word
    return lines


# Names kept from 0.16

BloscPackCustomFormatter.__module__ = "bloscpack.cli"
