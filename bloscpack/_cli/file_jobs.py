"""Which files a verb reads and which it writes, planned from the names.

One name gets its output beside it, two names are input and output, as in 0.16. More
names, or an option that says where inputs come from or outputs go, make all of them
inputs. Nothing that exists is written over unless that was asked for, and no two inputs
have the same output.
"""

from __future__ import annotations

import os
import re
import stat

from .. import log
from .._crashsafe import journal
from ..constants import EXTENSION
from .exit_codes import EXIT_COULD_NOT, EXIT_OK, EXIT_USAGE, Refusal, for_each_file
from .stdio import STREAM, descriptor_of, standard_input

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable, Iterator
    from typing import NoReturn

    Job = tuple[str, str]

# What files are called that are being written: see `disk.create_beside`.
LEFT_OVER = re.compile(r"\..*\.\d+-\d+\.tmp", re.DOTALL)


def is_classic(args: Namespace) -> bool:
    """Return whether the names are an input and perhaps its output, as in 0.16."""
    return not (
        args.more
        or args.files_from is not None
        or args.recursive
        or args.output is not None
        or args.output_dir is not None
    )


def output_is_data(args: Namespace) -> bool:
    """Return whether the data go to standard output."""
    if args.output is not None:
        return descriptor_of(args.output) == 1
    names = (args.in_file, args.out_file, *args.more)
    if STREAM in names and (args.out_file is None or not is_classic(args)):
        return True
    return args.out_file is not None and descriptor_of(args.out_file) == 1


def plan(args: Namespace, output_name: Callable[[str], str]) -> list[Job]:
    """Return (input, output) for all the names that the arguments give.

    `output_name` makes the name of an output, which lies beside the input, from that of
    an input; it raises `Refusal` for a name that it can't work with.
    """
    given = [args.in_file, args.out_file, *args.more]
    names = [name for name in given if name is not None]
    for list_file in args.files_from or ():
        names += _listed(list_file)
    found = list(_found(names, args))
    if args.output is not None and len(found) != 1:
        raise Refusal(
            "--output is for one input, but there are %d" % len(found), EXIT_USAGE
        )
    jobs = [(name, _output(name, place, args, output_name)) for name, place in found]
    _check_apart(jobs)
    if args.output_dir is not None:
        for name, out_file in jobs:
            if name != STREAM and not os.path.exists(name):
                continue  # what is missing leaves nothing behind
            os.makedirs(os.path.dirname(out_file) or ".", exist_ok=True)
    return list(dict.fromkeys(jobs))


def _check_apart(jobs: list[Job]) -> None:
    """Raise `Refusal` if an output is that of another input, or an input itself."""
    inputs_of: dict[str, str] = {}
    for name, out_file in jobs:
        other = inputs_of.setdefault(os.path.realpath(out_file), name)
        if other != name and out_file != STREAM:
            raise Refusal(
                "'%s' and '%s' would both be written to '%s'" % (other, name, out_file),
                EXIT_USAGE,
            )
    inputs = {os.path.realpath(name): name for name, _ in jobs if name != STREAM}
    for name, out_file in jobs:
        if out_file != STREAM and os.path.realpath(out_file) in inputs:
            raise Refusal(
                "the output '%s' of '%s' is an input too" % (out_file, name), EXIT_USAGE
            )


def _listed(list_file: str) -> list[str]:
    """Return the names in a file, ended by lines or, if there are any, zero bytes.

    Raises `Refusal` for ``-``: where messages go is settled before the list is read.
    """
    if list_file == STREAM:
        data = standard_input().read()
    else:
        with open(list_file, "rb") as fp:
            data = fp.read()
    mark = b"\0" if b"\0" in data else b"\n"
    names = [os.fsdecode(name) for name in data.split(mark) if name]
    if STREAM in names:
        raise Refusal(
            "'%s' lists '-', which can't be standard input there; a file of that name "
            "is './-'" % list_file,
            EXIT_USAGE,
        )
    return names


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
    decompress = str(args.subcommand).startswith("d")
    if path.endswith(str(args.suffix)) != decompress:
        return False
    if _is_left_over(path):
        log.verbose("left out, as it is no data: '%s'" % path)
        return False
    return True


def _is_left_over(path: str) -> bool:
    """Return whether a file is what an interrupted command has left behind."""
    return bool(LEFT_OVER.fullmatch(os.path.basename(path))) or journal.is_journal(path)


def _output(
    name: str, place: str, args: Namespace, output_name: Callable[[str], str]
) -> str:
    if args.output is not None:
        return str(args.output)
    if name == STREAM:
        return STREAM
    if args.output_dir is None:
        return output_name(name)
    return os.path.join(args.output_dir, output_name(place))


def run(todo: list[Job], act: Callable[[str, str], None]) -> int:
    """Call `act` with every input and output; return the worst exit code."""
    if not todo:
        log.notice("nothing to do: there are no inputs")
    if len(todo) == 1:
        act(*todo[0])  # what is wrong needs no name
        return EXIT_OK
    return for_each_file(todo, lambda job: act(*job), name_of=lambda job: job[0])


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
