"""The jobs of compress and decompress: pairs of an input name and an output name.

With one name the output is put beside it. Two names are input and output, as in 0.16.
With more names, or with an option that names inputs or outputs, all names are inputs.
No two inputs have the same output.

An output file appears under its name when it is complete, with the times and
permissions of its input. An input is removed only after its output has been synced.
Many outputs are synced together: waiting for the disk takes longer than writing one.
"""

from __future__ import annotations

import errno
import os
import stat
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

from .. import log
from .._commit.locking import open_locked
from .._commit.ownership import attributes_of_input
from .._commit.replacing import check_distinct, replacing
from .._storage.disk import disk
from .._storage.paths import is_url, shown_name, without_url
from .._storage.stream import is_stream, open_stream
from .._storage.urls import last_part
from .._types import BinaryFile
from ..constants import BLOSCPACK_HEADER_LENGTH, EXTENSION, MAGIC
from ..exceptions import FormatError, StorageError, UsageError
from ..headers import decode_header
from ..pretty import pretty_size
from . import target
from .console import OUTPUT_NAME, STREAM, check_exists, console, descriptor_of
from .exit_codes import (
    EXIT_OK,
    Refusal,
    WrongUsage,
    for_each_file,
    refuse_kinds_of_folders,
)
from .progress import SizeOf, shown_for_run

Job = tuple[str, str]
# The values of a file that show a change of it; None for what can't be removed.
State = tuple[int, ...] | None

# The output of a folder that can't be read.
NO_OUTPUT = ""
# Maximum numbers of inputs, and of bytes in them and their outputs, that wait for the
# disk before they are removed: the disk holds both meanwhile.
WAITING_FILES = 1000
WAITING_NBYTES = 2**28
# Minimum number of outputs for which the whole system writes to its disks at once.
WORTH_SYNC = 20

# The plan


def is_classic(args: Namespace) -> bool:
    """Return whether the names are one input and at most one output, as in 0.16."""
    named = args.files_from, args.output, args.output_dir
    others = args.more or args.recursive or args.skip_existing or args.update
    return not others and named == (None, None, None)


def _packs(args: Namespace) -> bool:
    return args.subcommand in ("compress", "c")


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
    if is_classic(args):
        if args.out_file is None:
            return [(args.in_file, output_name(args.in_file))]
        return [(args.in_file, args.out_file)]
    given = [args.in_file, args.out_file, *args.more]
    names = [name for name in given if name is not None]
    for list_file in args.files_from or ():
        names += _listed(list_file)
    if args.output is not None and args.output_dir is not None:
        raise WrongUsage("--output and --output-dir exclude each other")
    if args.skip_existing + args.update + bool(args.force) > 1:
        raise WrongUsage("--skip-existing, --update and --force exclude each other")
    left_out: target.LeftOut = defaultdict(list)
    jobs: list[Job] = []
    unreadable: list[Job] = []

    def add(name: str, relative: str) -> None:
        out_file = name if args.output is None else args.output
        if args.output is None and name != STREAM:
            out_file = output_name(name if args.output_dir is None else relative)
            out_file = os.path.join(args.output_dir or "", out_file)
        jobs.append((name, out_file))

    for name in names:
        if not (args.recursive and os.path.isdir(name)):
            add(name, last_part(name) if is_url(name) else os.path.basename(name))
            continue
        for path in target.walk(name, True, not _packs(args), args.suffix, left_out):
            if os.path.isdir(path):
                unreadable.append((path, NO_OUTPUT))
            else:
                add(path, os.path.relpath(path, name))
    if args.output is not None and len(jobs + unreadable) != 1:
        count = len(jobs + unreadable)
        raise WrongUsage("--output is for one input, but there are %d" % count)
    _check_outputs_differ(jobs)
    if args.output_dir is not None:
        if os.path.exists(args.output_dir) and not os.path.isdir(args.output_dir):
            raise Refusal("'%s' of --output-dir is not a folder" % args.output_dir)
        for name, out_file in jobs:  # make no folder for a missing input
            if name == STREAM or os.path.exists(name) or is_url(name):
                os.makedirs(os.path.dirname(out_file) or ".", exist_ok=True)
    todo = []
    for name, out_file in dict.fromkeys(jobs + unreadable):
        is_done = args.skip_existing or args.update
        is_done = is_done and (os.path.exists(name) or is_url(name))
        if not (is_done and os.path.isfile(out_file)):
            todo.append((name, out_file))
        elif not args.update:
            left_out["its output exists"].append(name)
        elif is_url(name) or os.path.getmtime(name) > os.path.getmtime(out_file):
            todo.append((name, out_file))
        else:
            left_out["its output is not older"].append(name)
    target.report(left_out)
    if not jobs and not unreadable:
        log.notice("nothing to do: there are no inputs")
    return todo


def _check_outputs_differ(jobs: list[Job]) -> None:
    """Raise `Refusal` if two inputs share an output, or an output is an input."""
    inputs = {os.path.realpath(name) for name, _ in jobs if name != STREAM}
    inputs_of: dict[str, str] = {}
    for name, out_file in jobs:
        if out_file == STREAM:
            continue
        path = os.path.realpath(out_file)
        other = inputs_of.setdefault(path, name)
        if other != name:
            raise WrongUsage(
                "'%s' and '%s' would both be written to '%s'" % (other, name, out_file)
            )
        if path in inputs:
            raise WrongUsage(
                "the output '%s' of '%s' is an input too" % (out_file, name)
            )


def _listed(list_file: str) -> list[str]:
    """Return the names in a file: separated by zero bytes if it has any, or by lines.

    Raises `Refusal` for ``-``: the stream for messages was chosen before this list was
    read.
    """
    with target.opened_input(list_file) as fp:
        data = fp.read()
    mark = b"\0" if b"\0" in data else b"\n"
    names = [os.fsdecode(name) for name in data.split(mark) if name]
    if STREAM in names:
        raise WrongUsage(
            "'%s' lists '-', which can't be standard input there; a file of that name "
            "is './-'" % list_file
        )
    return names


def compressed_name(name: str, suffix: str = EXTENSION) -> str:
    """Return the name of the compressed file beside an input."""
    if name == STREAM:
        return STREAM
    # Names like /dev/stdin refer to another file: no output can be put beside them.
    stands_for = name.startswith(("/dev/", "/proc/"))
    file_or_folder = os.path.isfile(name) or os.path.isdir(name)
    if os.path.exists(name) and (stands_for or not file_or_folder):
        raise WrongUsage(
            "input '%s' is no regular file, so <out_file> must be given" % name
        )
    return name + suffix


def plain_name(name: str, suffix: str = EXTENSION) -> str:
    """Return the name of the plain file beside an input, or here if it is a URL."""
    if name == STREAM:
        return STREAM
    target.check_extension("input file", name, suffix)
    if is_url(name):
        name = last_part(name)
    return name[: -len(suffix)]


# Running jobs


def run(
    args: Namespace, todo: list[Job], act: Callable[[str, str], int], size_of: SizeOf
) -> int:
    """Call `act` with every input and output; return the highest exit code.

    `act` returns the number of plain bytes, 0 if it is unknown.
    """
    removals = Removals(args)

    def work(in_file: str, out_file: str) -> None:
        if _packs(args):
            without_url(in_file, "the input of compress")
        check_pair(out_file, args)
        check_files(in_file, out_file, args)
        before = state_of(in_file)
        clock = Clock()
        clock.log(act(in_file, out_file))
        removals.add(in_file, before, out_file)

    return max(run_jobs(todo, work, size_of, args.progress), removals.finish())


def run_jobs(
    jobs: list[Job],
    act: Callable[[str, str], None],
    size_of: SizeOf,
    progress: bool | None,
) -> int:
    """Call `act` with every input and output; return the highest exit code.

    All share one progress bar: see `progress.shown_for_run`.
    """

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


class Clock:
    """Measures the time and the speed of an operation."""

    def __init__(self) -> None:
        self._begin = perf_counter()

    def log(self, nbytes: int) -> None:
        """Show the time, and the speed in plain bytes per second unless they are 0."""
        if not log.enabled(log.VERBOSE):
            return
        seconds = perf_counter() - self._begin
        text = "took: %.2f s" % seconds
        if nbytes:
            text += ", %s/s" % pretty_size(round(nbytes / max(seconds, 1e-9)))
        # Standard output is that of 0.16, word for word.
        log.notice(text)


# What may be written


def check_files(in_file: str, out_file: str, args: Namespace) -> None:
    """Raise unless the input exists and the output may be written."""
    check_exists("input file", in_file)
    refuse_kinds_of_folders(in_file)
    _check_no_folder(in_file, "-r is for the files in a folder")
    if not out_file:
        raise UsageError(
            "the name '%s' without its suffix is empty: give the output a name"
            % in_file
        )
    without_url(out_file, "an output of the command")
    if args.rm:
        _check_removable(in_file, out_file)
    if out_file != STREAM and os.path.lexists(out_file):
        _check_no_folder(out_file, "--output-dir names a folder for outputs")
        target.check_free(out_file, args)
        log.verbose("overwriting existing file: '%s'" % out_file)
    if out_file == STREAM:
        console.need_output()
    for read in (in_file, getattr(args, "metadata", None)):
        if read is not None and STREAM not in (read, out_file):
            check_distinct(read, out_file)
    log.verbose("input file is: '%s'" % shown_name(in_file))
    log.verbose("output file is: '%s'" % out_file)


def _check_no_folder(name: str, advice: str) -> None:
    """Raise `Refusal` for the name of a folder."""
    if os.path.isdir(name):
        raise Refusal("'%s': %s; %s" % (name, os.strerror(errno.EISDIR), advice))


def check_pair(out_file: str, args: Namespace) -> None:
    """Raise `WrongUsage` if two names were probably meant as two inputs.

    They are an input and its output, as in 0.16. A pattern of the shell that matches
    two files must not make the first replace the second.
    """
    if (
        args.out_file is None
        or not is_classic(args)
        or not os.path.exists(args.in_file)
        or is_streamed(out_file)
    ):
        return  # another check finds what is missing
    if os.path.exists(out_file) and os.path.samefile(args.in_file, out_file):
        return
    if args.rm and state_of(args.in_file) is None:
        return  # another check says why it can't be removed
    if args.rm or args.suffix != EXTENSION:
        option = "--rm" if args.rm else "--suffix"
        why = "%s is for names that are all inputs" % option
    elif _packs(args) and args.force and _is_other_file(out_file):
        why = "'%s' exists and is no Bloscpack file" % out_file
    elif not _packs(args) and out_file.endswith(args.suffix):
        why = "'%s' has the name of a compressed file" % out_file
    elif not _packs(args) and args.force and target.begins_with(out_file, MAGIC):
        why = "'%s' is a Bloscpack file" % out_file
    else:
        return
    raise WrongUsage("%s; --output names an output, --output-dir its folder" % why)


def _is_other_file(out_file: str) -> bool:
    """Return whether a file is neither empty nor a Bloscpack file."""
    if not os.path.isfile(out_file) or not os.access(out_file, os.R_OK):
        return False
    with open(out_file, "rb") as fp:
        prefix = fp.read(BLOSCPACK_HEADER_LENGTH)
    try:
        if prefix:
            decode_header(prefix)
    except FormatError:
        return True
    return False


def is_streamed(out_file: str) -> bool:
    """Return whether an output is a stream: bytes written to it can't be undone."""
    return out_file == STREAM or is_stream(out_file)


def is_exclusive(out_file: str, args: Namespace) -> bool:
    """Return whether no file may be replaced, also one that has been made just now."""
    return not target.may_replace(args) and not is_streamed(out_file)


def _check_removable(in_file: str, out_file: str) -> None:
    """Raise `Refusal` or `StorageError` if removing the input could lose data."""
    if is_streamed(out_file):
        raise WrongUsage(
            "--rm removes nothing whose output is not in a file: '%s'" % out_file
        )
    if state_of(in_file) is None:
        raise WrongUsage(
            "--rm removes nothing but regular files, no links and no streams: '%s'"
            % shown_name(in_file)
        )


@contextmanager
def opened_output(
    in_fp: BinaryFile, out_file: str, args: Namespace, *, exclusive: bool = False
) -> Iterator[BinaryFile]:
    """Open an output that appears when complete, with the attributes of its input.

    With `exclusive` it never replaces a file: see `is_exclusive`.
    """
    if out_file == STREAM:
        with open_stream(os.dup(1), OUTPUT_NAME) as stream:
            yield stream
        return
    with replacing(
        out_file,
        args.sync,
        attributes_of_input(in_fp),
        access=args.preserve,
        times=args.preserve,
        exclusive=exclusive,
    ) as fp:
        yield fp


# Removing inputs


def state_of(in_file: str) -> State:
    """Return values that show a change of an input; None if it can't be removed."""
    if in_file == STREAM or is_url(in_file):
        return None
    status = os.lstat(in_file)
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


class Removals:
    """Inputs that ``--rm`` removes, when their outputs are safe on the disk."""

    def __init__(self, args: Namespace) -> None:
        self._wanted = bool(args.rm)
        self._pending: list[tuple[str, str, tuple[int, ...]]] = []
        self._nbytes, self._worst = 0, EXIT_OK

    def add(self, in_file: str, before: State, out_file: str) -> None:
        """Remove an input later, whose output is complete.

        `before` is the result of `state_of` before the input was read.
        """
        if not self._wanted or before is None:
            return
        self._pending.append((in_file, out_file, before))
        self._nbytes += os.path.getsize(in_file) + os.path.getsize(out_file)
        if self._nbytes > WAITING_NBYTES or len(self._pending) >= WAITING_FILES:
            self.finish()

    def finish(self) -> int:
        """Sync the outputs, then remove their inputs; return the worst exit code.

        Removing between the syncs would make each of them several times as long.
        """
        pending, self._pending, self._nbytes = self._pending, [], 0
        if len(pending) >= WORTH_SYNC and hasattr(os, "sync"):
            os.sync()  # then each file has less to wait for
        safe: list[tuple[str, tuple[int, ...]]] = []
        folders: set[str] = set()

        def sync(job: tuple[str, str, tuple[int, ...]]) -> None:
            in_file, out_file, before = job
            target = os.path.realpath(out_file)
            with disk.open(target, "r+b" if os.name == "nt" else "rb") as fp:
                disk.sync(fp)
            if os.path.dirname(target) not in folders:
                disk.sync_folder(target)
                folders.add(os.path.dirname(target))
            safe.append((in_file, before))

        codes = (
            for_each_file(pending, sync, lambda job: job[0]),
            for_each_file(safe, lambda item: remove_input(*item), lambda item: item[0]),
        )
        self._worst = max(self._worst, *codes)
        return self._worst


def remove_input(in_file: str, before: State) -> None:
    """Remove an input; raise `StorageError` if it has changed since `before`."""
    # The lock keeps writers away between the comparison and the removal.
    with open_locked(in_file, mode="rb"):
        if state_of(in_file) == before:
            try:
                disk.remove(in_file)
            except OSError as error:
                raise StorageError(
                    error.errno,
                    "its output is complete, but it can't be removed: %s"
                    % error.strerror,
                    in_file,
                ) from error
            return
    raise StorageError(
        "input '%s' was changed while it was read, and is not removed" % in_file
    )
