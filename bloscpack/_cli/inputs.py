"""The inputs of a command, and the outputs of compress and decompress.

An argument names a file, a dataset or a folder of files. A line for each reason reports
the files in a folder that are left out. The sizes of inputs are for the progress bar.

The jobs of compress and decompress are pairs of an input name and an output name. With
one name the output is put beside it. Two names are input and output, as in 0.16. With
more names, or with an option that names inputs or outputs, all names are inputs. No two
inputs have the same output.
"""

from __future__ import annotations

import os
import re
import stat
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from .. import log
from .._storage.local import begins_with as begins_with
from .._storage.paths import is_url, local_path, shown_name
from .._storage.urls import last_part
from ..constants import EXTENSION, MAGIC, NPY_MAGIC
from ..exceptions import BloscpackError
from .console import STREAM, descriptor_of, standard_input
from .exit_codes import (
    EXIT_OK,
    Refusal,
    WrongUsage,
    for_each_file,
    kind_of_folder,
    refuse_kinds_of_folders,
)

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import BinaryIO


Job = tuple[str, str]

# Names of unfinished outputs: see `disk.create_beside`.
LEFT_OVER = re.compile(r"\..*\.\d+-\d+\.tmp", re.DOTALL)
# The first bytes of a ZIP file that is not empty.
ZIP_MAGIC = b"PK\x03\x04"
# Files whose bytes are not plain data, by their first bytes, with advice for each.
NOT_PLAIN = {
    NPY_MAGIC: ".npy file: --npy appends its rows",
    MAGIC: "Bloscpack file: 'blpk cat' and a pipe append its plain bytes",
}


def is_dataset(path: str) -> bool:
    """Return whether a path is the folder of a dataset, or a ZIP file of Zarr.

    A plain folder that contains datasets is one, too, unless it contains `.blp` files.
    """
    location = os.fsdecode(local_path(path))
    if is_url(location):
        from ..verify import is_dataset_at

        return is_dataset_at(location)
    if not os.path.isdir(location):
        outer = location  # the path of a ZIP file, and perhaps a name in it
        while outer and not os.path.exists(outer):
            outer = os.path.dirname(outer)
        return begins_with(outer, ZIP_MAGIC) and _is_zip_store(location)
    from .. import dataset

    found = dataset.find(location)
    if found is None or found[0] != "folder":
        return found is not None
    return not any(name.endswith(EXTENSION) for name in os.listdir(location))


def _is_zip_store(path: str) -> bool:
    """Return whether a ZIP file has a Zarr store that `savez` has not written."""
    from .._storage.zip_store import find_zip
    from ..dataset.conversion import source_format
    from ..dataset.conversion.array_formats import has_own_files

    try:
        found = find_zip(os.path.abspath(path))
        if found is None or has_own_files(found[0]):
            return False
        return bool(source_format(found[0]).layout)
    except BloscpackError:
        return False


def has_description(path: str) -> bool:
    """Return whether a folder has the files of a dataset itself."""
    from .. import dataset

    found = dataset.find(path)
    return found is not None and found[0] != "folder"


def is_block(path: str) -> bool:
    """Return whether a folder is a block of a BigFile tree."""
    try:
        with open(os.path.join(path, "header"), "rb") as fp:
            return b"DTYPE:" in fp.read(256)
    except OSError:
        return False


# Files


@contextmanager
def opened_input(in_file: str) -> Iterator[BinaryIO]:
    """Open an input for reading; standard input is read from its current position."""
    if in_file == STREAM:
        yield standard_input()
        return
    with open(in_file, "rb") as fp:
        yield fp


def packed_files(args: Namespace) -> list[str]:
    """Return the names in `args.files`, with the compressed files in place of a folder.

    Files in folders below it are included with ``--recursive``. The folder of a
    dataset stands for itself, and so does each folder without datasets and compressed
    files: `named` refuses that one.
    """
    left_out = LeftOut()
    found: list[str] = []
    for name in args.files:
        # A URL is not tested here: that would take requests.
        if not os.path.isdir(name) or _is_item(name, is_dataset):
            found.append(name)
            continue
        skipped = LeftOut()
        inside = walk(name, args.recursive, True, EXTENSION, skipped, has_description)
        names = list(inside)
        found += names or [name]
        if names or kind_of_folder(name) is None:  # else `-r` would not help
            left_out.include(skipped)
    left_out.report()
    return found


def walk(
    name: str,
    recursive: bool,
    packed: bool,
    suffix: str,
    left_out: LeftOut,
    is_item: Callable[[str], bool] | None = None,
) -> Iterator[str]:
    """Yield the files in a folder that end with the suffix, or that do not.

    `packed` says which of them; `left_out` notes the others. With `is_item`, archives
    are yielded too, and so are folders below for which it returns True, which are not
    entered. Folders that can't be read come last: as inputs they fail with the error of
    the system, after the others. So do folders of blocks of a BigFile tree, with the
    name of the verb that reads them.
    """
    refused: list[str] = []
    for folder, folders, files in os.walk(
        name, onerror=lambda error: refused.append(str(error.filename))
    ):
        folders.sort()
        if recursive and is_item is not None:
            others = [n for n in folders if not is_block(os.path.join(folder, n))]
            if len(others) < len(folders):
                refused.append(folder)
            folders[:] = others
        for inner in folders[:]:
            path = os.path.join(folder, inner)
            if recursive and is_item is not None and not os.path.islink(path):
                if _is_item(path, is_item):
                    folders.remove(inner)
                    yield path
            elif not recursive:
                left_out.add("a folder below, which needs -r", path)
            elif os.path.islink(path):
                left_out.add("a symbolic link to a folder", path)
        if not recursive:
            folders.clear()
        for file in sorted(files):
            path = os.path.join(folder, file)
            reason = _reason_against(path, packed, suffix)
            if reason is None or (is_item is not None and _is_archive(path)):
                yield path
            else:
                left_out.add(reason, path)
    yield from refused


def _is_item(path: str, is_item: Callable[[str], bool]) -> bool:
    """Return whether a folder is an input, as one that can't be read is."""
    try:
        return is_item(path)
    except (BloscpackError, OSError):
        return True


def _is_archive(path: str) -> bool:
    """Return whether a file begins as an archive, or can't be read."""
    from .._format.other_formats import PREFIX_LENGTH, begins_as_archive

    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as fp:
            return begins_as_archive(fp.read(PREFIX_LENGTH))
    except OSError:
        return path.endswith(".zip")  # as an input it fails with this error


def _reason_against(path: str, packed: bool, suffix: str) -> str | None:
    """Return why a file in a folder is not an input; None if it is one."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        return "no regular file"
    if path.endswith(suffix) != packed:
        return "its name %s with '%s'" % (
            "does not end" if packed else "already ends",
            suffix,
        )
    if LEFT_OVER.fullmatch(os.path.basename(path)):
        return "an unfinished file"
    return None


class LeftOut:
    """Files and folders that ``--recursive`` does not include, by reason."""

    def __init__(self) -> None:
        self._paths: dict[str, list[str]] = {}

    def add(self, reason: str, path: str) -> None:
        """Note that a file is not an input."""
        self._paths.setdefault(reason, []).append(path)

    def include(self, other: LeftOut) -> None:
        """Note what another record has."""
        for reason, paths in other._paths.items():
            self._paths.setdefault(reason, []).extend(paths)

    def report(self) -> None:
        """Show a line for each reason, or for each file with ``-v``."""
        for reason, paths in self._paths.items():
            shown = paths if log.enabled(log.VERBOSE) else paths[:1]
            more = len(paths) - len(shown)
            others = " and %d more" % more if more else ""
            for path in shown:
                log.notice("skipped '%s'%s: %s" % (path, others, reason))


# Sizes


def size_of(name: str) -> int | None:
    """Return the size of a file in bytes; 0 for a missing file, None for a stream."""
    try:
        status = os.stat(name)
    except OSError:
        return None if name == STREAM or is_url(name) else 0
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def plain_size_of(name: str) -> int | None:
    """Return the plain bytes of a file from its header; None if it has none.

    0 if the file can't be read: its error is shown later.
    """
    from .._format.sections import read_header
    from .._storage.cursor import Cursor

    if not os.path.isfile(name):
        no_size = os.path.exists(name) or name == STREAM or is_url(name)
        return None if no_size else 0
    try:
        with open(name, "rb") as fp:
            return read_header(Cursor(fp)).nbytes
    except (BloscpackError, OSError):
        return 0


# Jobs of compress and decompress

# The output of a folder that can't be read.
NO_OUTPUT = ""


def is_classic(args: Namespace) -> bool:
    """Return whether the names are one input and at most one output, as in 0.16."""
    named = args.files_from, args.output, args.output_dir
    others = args.more or args.recursive or args.skip_existing or args.update
    return not others and named == (None, None, None)


def writes_data(args: Namespace) -> bool:
    """Return whether any output goes to standard output."""
    if args.output is not None:
        return descriptor_of(args.output) == 1
    names = (args.in_file, args.out_file, *args.more)
    if STREAM in names and (args.out_file is None or not is_classic(args)):
        return True
    return args.out_file is not None and descriptor_of(args.out_file) == 1


def plan(args: Namespace, output_name: Callable[[str], str]) -> list[Job]:
    """Return (input, output) for every input that the arguments name.

    With ``--skip-existing``, inputs whose output exists are left out, and with
    ``--update`` those whose output is not older. `output_name` returns the name of the
    output beside an input; it raises `Refusal` if an input can't have one.
    """
    given = [args.in_file, args.out_file, *args.more]
    names = [name for name in given if name is not None]
    for list_file in args.files_from or ():
        names += _listed(list_file)
    if args.skip_existing + args.update + bool(args.force) > 1:
        raise WrongUsage("--skip-existing, --update and --force exclude each other")
    left_out = LeftOut()
    found = list(_found(names, args, left_out))
    if args.output is not None and len(found) != 1:
        raise WrongUsage("--output is for one input, but there are %d" % len(found))
    unreadable = [name for name, _ in found if args.recursive and os.path.isdir(name)]
    jobs = [
        (name, _output(name, relative, args, output_name))
        for name, relative in found
        if name not in unreadable
    ]
    _check_outputs_differ(jobs)
    if args.output_dir is not None:
        if os.path.exists(args.output_dir) and not os.path.isdir(args.output_dir):
            raise Refusal("'%s' of --output-dir is not a folder" % args.output_dir)
        for name, out_file in jobs:
            if name != STREAM and not os.path.exists(name) and not is_url(name):
                continue  # make no folder for a missing input
            os.makedirs(os.path.dirname(out_file) or ".", exist_ok=True)
    jobs += [(name, NO_OUTPUT) for name in unreadable]
    todo = list(dict.fromkeys(jobs))
    if args.skip_existing or args.update:
        todo = _without_existing(todo, left_out, args.update)
    left_out.report()
    if not jobs:
        log.notice("nothing to do: there are no inputs")
    return todo


def _without_existing(jobs: list[Job], left_out: LeftOut, update: bool) -> list[Job]:
    """Return the jobs without those that have an output and an input.

    With `update`, the output must not be older than the input.
    """
    left = []
    for name, out_file in jobs:
        is_there = os.path.exists(name) or is_url(name)
        if not (is_there and os.path.isfile(out_file)):
            left.append((name, out_file))
        elif not update:
            left_out.add("its output exists", name)
        elif is_url(name) or os.path.getmtime(name) > os.path.getmtime(out_file):
            left.append((name, out_file))
        else:
            left_out.add("its output is not older", name)
    return left


def _check_outputs_differ(jobs: list[Job]) -> None:
    """Raise `Refusal` if two inputs share an output, or an output is an input."""
    inputs_of: dict[str, str] = {}
    for name, out_file in jobs:
        other = inputs_of.setdefault(os.path.realpath(out_file), name)
        if other != name and out_file != STREAM:
            raise WrongUsage(
                "'%s' and '%s' would both be written to '%s'" % (other, name, out_file)
            )
    inputs = {os.path.realpath(name): name for name, _ in jobs if name != STREAM}
    for name, out_file in jobs:
        if out_file != STREAM and os.path.realpath(out_file) in inputs:
            raise WrongUsage(
                "the output '%s' of '%s' is an input too" % (out_file, name)
            )


def _listed(list_file: str) -> list[str]:
    """Return the names in a file: separated by zero bytes if it has any, or by lines.

    Raises `Refusal` for ``-``: the stream for messages was chosen before this list was
    read.
    """
    with opened_input(list_file) as fp:
        data = fp.read()
    mark = b"\0" if b"\0" in data else b"\n"
    names = [os.fsdecode(name) for name in data.split(mark) if name]
    if STREAM in names:
        raise WrongUsage(
            "'%s' lists '-', which can't be standard input there; a file of that name "
            "is './-'" % list_file
        )
    return names


def _found(
    names: Iterable[str], args: Namespace, left_out: LeftOut
) -> Iterator[tuple[str, str]]:
    """Yield each input file and its path below an output folder.

    A folder that can't be read is yielded as well.
    """
    packed = str(args.subcommand).startswith("d")
    for name in names:
        if not (args.recursive and os.path.isdir(name)):
            yield name, last_part(name) if is_url(name) else os.path.basename(name)
            continue
        for path in walk(name, True, packed, args.suffix, left_out):
            relative = name if path == name else os.path.relpath(path, name)
            yield path, relative


def _output(
    name: str, relative: str, args: Namespace, output_name: Callable[[str], str]
) -> str:
    if args.output is not None:
        return str(args.output)
    if name == STREAM:
        return STREAM
    if args.output_dir is None:
        return output_name(name)
    return os.path.join(args.output_dir, output_name(relative))


def run_jobs(
    jobs: list[Job],
    act: Callable[[str, str], None],
    size_of: Callable[[str], int | None],
    progress: bool | None,
) -> int:
    """Call `act` with every input and output; return the highest exit code.

    All share one progress bar: see `progress.shown_for_run`.
    """
    from .progress import shown_for_run

    def process(job: Job) -> None:
        name, out_file = job
        if out_file == NO_OUTPUT and os.path.isdir(name):
            os.scandir(name).close()  # raises why it can't be read
        else:
            act(name, out_file)

    if len(jobs) == 1:
        process(jobs[0])  # `main` shows the error, without the name
        return EXIT_OK
    with shown_for_run([name for name, _ in jobs], size_of, progress):
        return for_each_file(jobs, process, lambda job: job[0])


def compressed_name(name: str, suffix: str = EXTENSION) -> str:
    """Return the name of the compressed file beside an input."""
    if name == STREAM:
        return STREAM
    # Names like /dev/stdin refer to another file: no output can be put beside them.
    stands_for = name.startswith(("/dev/", "/proc/"))
    file_or_folder = os.path.isfile(name) or os.path.isdir(name)
    if os.path.lexists(name) and (stands_for or not file_or_folder):
        raise WrongUsage(
            "input '%s' is no regular file, so <out_file> must be given" % name
        )
    return name + suffix


def plain_name(name: str, suffix: str = EXTENSION) -> str:
    """Return the name of the plain file beside an input, or here if it is a URL."""
    if name == STREAM:
        return STREAM
    check_extension("input file", name, suffix)
    if is_url(name):
        name = last_part(name)
    return name[: -len(suffix)]


def check_extension(role: str, name: str, suffix: str = EXTENSION) -> None:
    """Raise `Refusal` unless a name has the suffix of compressed files."""
    end = last_part(name) if is_url(name) else name
    if name != STREAM and not end.endswith(suffix):
        refuse_kinds_of_folders(name)
        message = "%s '%s' does not end with '%s'" % (role, shown_name(name), suffix)
        found = other_format(name)
        raise Refusal(message + (found and "; it is " + found))


def other_format(name: str) -> str:
    """Return the name of the format of a file with its article; '' if unknown."""
    from .._format.other_formats import PREFIX_LENGTH, name_format

    if not os.path.isfile(name) or not os.access(name, os.R_OK):
        return ""
    with open(name, "rb") as fp:
        found = name_format(fp.read(PREFIX_LENGTH), os.path.getsize(name))
    return found or ""


def why_not_plain(new_file: str, args: Namespace) -> str:
    """Return why the bytes of a file are no plain data; '' if they are, or count."""
    for magic, advice in NOT_PLAIN.items():
        if not args.force and begins_with(new_file, magic):
            return "'%s' is a %s, --force its bytes" % (new_file, advice)
    return ""


def why_no_items(new_file: str, args: Namespace) -> str:
    """Return why the bytes of a file are no items; '' if they may be, or count."""
    if args.force:
        return ""
    found = other_format(new_file).partition(";")[0]
    if new_file.lower().endswith(".csv"):
        found = found or "a CSV file"
    text = "'%s' is %s, whose bytes are no items of an array; --force appends them"
    return why_not_plain(new_file, args) or (found and text % (new_file, found))
