"""Which files a verb reads and which it writes, planned from the names.

One name gets its output beside it, two names are input and output, as in 0.16. More
names, or an option that says where inputs come from or outputs go, make all of them
inputs. Nothing that exists is written over unless that was asked for, and no two inputs
have the same output.
"""

from __future__ import annotations

import os
import stat
import sys

from . import journal
from .constants import EXTENSION
from .exceptions import FileNotFound, StorageError
from .outcomes import EXIT_COULD_NOT, EXIT_USAGE, Refusal

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable, Iterator
    from typing import NoReturn

    Job = tuple[str, str]

STREAM = "-"


def is_classic(args: Namespace) -> bool:
    """Return whether the names are an input and perhaps its output, as in 0.16."""
    return not (
        args.more
        or args.files_from
        or args.recursive
        or args.output is not None
        or args.output_dir is not None
    )


def plan(args: Namespace, output_name: Callable[[str], str]) -> list[Job]:
    """Return (input, output) for all the names that the arguments give.

    `output_name` makes the name of an output, which lies beside the input, from that of
    an input; it raises `Refusal` for a name that it can't work with.
    """
    given = [args.in_file, args.out_file, *args.more]
    names = [name for name in given if name is not None]
    if args.files_from is not None:
        names += _listed(args.files_from)
    found = list(_found(names, args))
    if args.output is not None and len(found) != 1:
        raise Refusal(
            "--output is for one input, but there are %d" % len(found), EXIT_USAGE
        )
    jobs = []
    inputs_of: dict[str, str] = {}
    for name, place in found:
        out_file = _output(name, place, args, output_name)
        other = inputs_of.setdefault(os.path.realpath(out_file), name)
        if other != name and out_file != STREAM:
            raise Refusal(
                "'%s' and '%s' would both be written to '%s'" % (other, name, out_file),
                EXIT_USAGE,
            )
        jobs.append((name, out_file))
    inputs = {os.path.realpath(name): name for name, _ in jobs if name != STREAM}
    for name, out_file in jobs:
        if out_file != STREAM and os.path.realpath(out_file) in inputs:
            raise Refusal(
                "the output '%s' of '%s' is an input too" % (out_file, name), EXIT_USAGE
            )
    return list(dict.fromkeys(jobs))


def _listed(list_file: str) -> list[str]:
    """Return the names in a file, ended by lines or, if there are any, zero bytes."""
    if list_file == STREAM:
        if sys.stdin is None:
            raise StorageError("standard input is closed")
        data = sys.stdin.buffer.read()
    else:
        with open(list_file, "rb") as fp:
            data = fp.read()
    mark = b"\0" if b"\0" in data else b"\n"
    return [os.fsdecode(name) for name in data.split(mark) if name]


def _found(names: Iterable[str], args: Namespace) -> Iterator[tuple[str, str]]:
    """Yield each input and where it goes below an output folder."""
    for name in names:
        if not (args.recursive and os.path.isdir(name)):
            yield name, os.path.basename(name)
            continue
        for folder, folders, files in os.walk(name, onerror=_raise):
            folders.sort()
            for file in sorted(files):
                path = os.path.join(folder, file)
                if _is_wanted(path, args):
                    yield path, os.path.relpath(path, name)


def _raise(error: OSError) -> NoReturn:
    raise error


def _is_wanted(path: str, args: Namespace) -> bool:
    """Return whether a file in a folder is one of those meant."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        return False
    of_journal = path[: -len(journal.SUFFIX)]
    if path.endswith(EXTENSION + journal.SUFFIX) and os.path.exists(of_journal):
        return False
    decompress = str(args.subcommand).startswith("d")
    return path.endswith(str(args.suffix)) == decompress


def _output(
    name: str, place: str, args: Namespace, output_name: Callable[[str], str]
) -> str:
    if args.output is not None:
        return str(args.output)
    if name == STREAM:
        return STREAM
    if args.output_dir is None:
        return output_name(name)
    out_file = os.path.join(args.output_dir, output_name(place))
    os.makedirs(os.path.dirname(out_file) or ".", exist_ok=True)
    return out_file


def compressed_name(name: str, suffix: str = EXTENSION) -> str:
    """Return the name of what an input is compressed to."""
    if name == STREAM:
        return STREAM
    # What stands for another file, like /dev/stdin, is not the place for an output.
    stands_for = name.startswith(("/dev/", "/proc/"))
    file_or_folder = os.path.isfile(name) or os.path.isdir(name)
    if os.path.lexists(name) and (stands_for or not file_or_folder):
        raise Refusal(
            "input '%s' is no regular file, so <out_file> must be given" % name,
            EXIT_USAGE,
        )
    return name + suffix


def plain_name(name: str, suffix: str = EXTENSION) -> str:
    """Return the name of what an input is decompressed to."""
    if name == STREAM:
        return STREAM
    check_extension("input file", name, suffix)
    return name[: -len(suffix)]


def check_extension(role: str, name: str, suffix: str = EXTENSION) -> None:
    """Raise `Refusal` unless a name has the suffix of compressed files."""
    if name != STREAM and not name.endswith(suffix):
        raise Refusal(
            "%s '%s' does not end with '%s'" % (role, name, suffix), EXIT_COULD_NOT
        )


def check_exists(role: str, path: str) -> None:
    """Raise `FileNotFound` unless `path` exists."""
    if path != STREAM and not os.path.exists(path):
        raise FileNotFound("%s '%s' does not exist!" % (role, path))
