"""Checks, opens and removes the input and output files of a verb.

An output file appears under its name when it is complete, with the times and
permissions of its input. An input is removed only after its output has been synced.
Many outputs are synced together: waiting for the disk takes longer than writing one.
"""

from __future__ import annotations

import errno
import os
import stat
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from .. import log
from .._commit.locking import open_locked
from .._commit.ownership import attributes_of_input
from .._commit.replacing import check_distinct, replacing
from .._storage.disk import disk
from .._storage.paths import is_url, shown_name, without_url
from .._storage.stream import is_stream, open_stream
from .._types import BinaryFile
from ..constants import BLOSCPACK_HEADER_LENGTH, EXTENSION, MAGIC
from ..exceptions import FormatError, StorageError, UsageError
from ..headers import decode_header
from ..pretty import pretty_size
from .console import (
    OUTPUT_NAME,
    STREAM,
    check_exists,
    console,
    descriptor_of,
    name_of_output,
)
from .exit_codes import (
    EXIT_OK,
    Refusal,
    WrongUsage,
    for_each_file,
    refuse_kinds_of_folders,
)
from .inputs import begins_with, is_classic

# Maximum numbers of inputs, and of bytes in them and their outputs, that wait for the
# disk before they are removed: the disk holds both meanwhile.
WAITING_FILES = 1000
WAITING_NBYTES = 2**28
# Minimum number of outputs for which the whole system writes to its disks at once.
WORTH_SYNC = 20


def check_free(out_file: str, args: Namespace) -> None:
    """Raise `StorageError` if a file exists and no option lets it be replaced.

    A stream, such as a pipe, may exist. A symbolic link to a missing file counts as an
    existing file: another user may have made it to redirect the output.
    """
    if os.path.isdir(out_file):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), out_file)
    if _may_replace(args):
        return
    if os.path.exists(out_file) and not is_stream(out_file):
        raise StorageError("output file '%s' exists!" % out_file)
    if os.path.islink(out_file) and not os.path.exists(out_file):
        raise StorageError(
            "output file '%s' exists! It is a symbolic link to the missing file '%s'"
            % (out_file, os.path.realpath(out_file))
        )


def _may_replace(args: Namespace) -> bool:
    """Return whether ``--force`` or ``--update`` is given."""
    return bool(args.force or getattr(args, "update", False))


def check_no_terminal(
    out_file: str, args: Namespace, what: str = "compressed bytes"
) -> None:
    """Raise `Refusal` if bytes would go to a terminal."""
    descriptor = descriptor_of(out_file)
    if descriptor is not None and os.isatty(descriptor) and not args.force:
        raise WrongUsage(
            "%s are not written to a terminal; redirect them, or use --force" % what
        )


def checked_stream(out_file: str, form: str, args: Namespace) -> str:
    """Return the path of standard output for a file of a format.

    A terminal gets text only.
    """
    if form != "csv":
        check_no_terminal(out_file, args, "the bytes of '%s'" % form)
    console.need_output()
    path = name_of_output(out_file)
    console.hidden["'%s'" % path] = "standard output"
    return path


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
        check_free(out_file, args)
        log.verbose("overwriting existing file: '%s'" % out_file)
    if out_file == STREAM:
        console.need_output()
    if STREAM not in (in_file, out_file):
        check_distinct(in_file, out_file)
    log.verbose("input file is: '%s'" % shown_name(in_file))
    log.verbose("output file is: '%s'" % out_file)


def _check_no_folder(name: str, advice: str) -> None:
    """Raise `Refusal` for the name of a folder."""
    if os.path.isdir(name):
        raise Refusal("'%s': %s; %s" % (name, os.strerror(errno.EISDIR), advice))


def check_pair(out_file: str, args: Namespace, *, packs: bool) -> None:
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
    elif packs and args.force and _is_other_file(out_file):
        why = "'%s' exists and is no Bloscpack file" % out_file
    elif not packs and out_file.endswith(args.suffix):
        why = "'%s' has the name of a compressed file" % out_file
    elif not packs and args.force and begins_with(out_file, MAGIC):
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
    return not _may_replace(args) and not is_streamed(out_file)


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


def state_of(in_file: str) -> tuple[int, ...] | None:
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

    def add(self, in_file: str, before: tuple[int, ...] | None, out_file: str) -> None:
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


def remove_input(in_file: str, before: tuple[int, ...] | None) -> None:
    """Remove an input; raise `StorageError` if it has changed since `before`."""
    # The lock keeps writers away between the comparison and the removal.
    with open_locked(in_file, mode="rb"):
        if state_of(in_file) == before:
            disk.remove(in_file)
            return
    raise StorageError(
        "input '%s' was changed while it was read, and is not removed" % in_file
    )


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
