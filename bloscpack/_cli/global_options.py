"""The options of every verb, as a table that the parsers of all verbs share."""

from __future__ import annotations

import argparse

from ..constants import MAX_THREADS
from ..defaults import available_cpus
from .exit_codes import EXIT_OK

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, NoReturn

# The groups of the global options.
LEVEL = "level"
GLOBAL = "global"
SYNC = "sync"
PROGRESS = "progress"
# The options that select which messages are shown: they exclude each other.
LEVELS = {"verbose": "-v/--verbose", "debug": "-d/--debug", "quiet": "-q/--quiet"}
VERSION_HELP = "show program's version number and exit"
FORCE_HELP = "disable overwrite checks for existing files\n(use with caution)"
SYNC_HELP = (
    "return only when the output is on the disk (default: where an existing "
    "file is replaced or changed)"
)
PROGRESS_HELP = "show a progress bar (default: on a terminal, after a second)"


class DefaultNumber(int):
    """The default number of threads, of another class than a number given with -n."""


class _Version(argparse.Action):
    """Show the versions of Bloscpack, python-blosc and Blosc, and exit."""

    def __call__(self, parser: argparse.ArgumentParser, *args: object) -> NoReturn:
        from .quick_answers import version

        version()
        parser.exit(EXIT_OK)


def global_options() -> Iterator[tuple[str, tuple[str, ...], dict[str, Any]]]:
    """Yield group, names and properties of the options of every verb."""
    version = {"action": _Version, "nargs": 0, "dest": argparse.SUPPRESS}
    version |= {"default": argparse.SUPPRESS, "help": VERSION_HELP}
    yield "", ("--version", "-V"), version
    for names, help_ in (
        (("-v", "--verbose"), "be verbose about actions"),
        (("-d", "--debug"), "print debugging output too"),
        (("-q", "--quiet"), "show only errors"),
    ):
        yield LEVEL, names, {"action": "store_true", "help": help_}
    yield GLOBAL, ("-f", "--force"), {"action": "store_true", "help": FORCE_HELP}
    yield (
        GLOBAL,
        ("-n", "--nthreads"),
        {
            "metavar": "[1, %d]" % MAX_THREADS,
            "type": int,
            "default": DefaultNumber(min(available_cpus(), MAX_THREADS)),
            "help": "set number of threads, (default: %(default)s (ncores))",
        },
    )
    for dest, help_, help_for_no in (
        (SYNC, SYNC_HELP, "do not wait until the output is on the disk"),
        (PROGRESS, PROGRESS_HELP, "show no progress bar"),
    ):
        yes = {"action": "store_true", "default": None, "help": help_}
        yield dest, ("--" + dest,), yes
        no = {"action": "store_false", "dest": dest, "help": help_for_no}
        yield dest, ("--no-" + dest,), no
