"""Files and datasets that the user named, with the operations of the verbs.

`named` looks at a path once, and returns a `NamedFile` or a `NamedDataset`. Both have
the same methods, so that a verb need not know which of them it has.
"""

from __future__ import annotations

import os

from .. import exceptions, log
from .._commit.snapshot import read_snapshot
from .._format.sections import read_beginning
from .._storage.cursor import Cursor
from ..constants import MAGIC
from ..serializers import is_array, is_grid, replaced_metadata, user_metadata
from . import inputs
from .console import (
    STREAM,
    check_exists,
    console,
    descriptor_of,
    name_of_input,
    name_of_output,
    plain_name,
    warn_of_second_file,
)
from .display import chunk_rows
from .exit_codes import EXIT_OK, Refusal, WrongUsage, refuse_kinds_of_folders
from .info_text import json_text, size_text
from .options import blosc_args, blosc_settings, metadata_of_option

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable
    from typing import Any, TypeAlias

    from .._check.files import Inspection
    from .._check.findings import Report
    from .._commit.snapshot import Check
    from .._format.sections import Beginning
    from .._types import Json, JsonObject, Seekable
    from ..dataset.file_checks import DatasetRecovery
    from ..recover import Recovery
    from .named_dataset import NamedDataset
    from .progress import Bar

    Named: TypeAlias = "NamedFile | NamedDataset"


# Fields that `list` leaves out: their size is not limited, or only `info` shows them.
LEFT_OUT = (
    *("metadata", "metadata_header", "header", "offsets", "largest_cbytes"),
    "attributes",
)


def named(path: str) -> Named:
    """Return the file or the dataset of a name; a missing file is a file.

    Raises `Refusal` for any other folder, and `OSError` if it can't be read.
    """
    if inputs.is_dataset(path):
        from .named_dataset import NamedDataset

        return NamedDataset(path)
    if not os.path.isdir(path):
        return NamedFile(path)
    os.scandir(path).close()  # raises why it can't be read
    refuse_kinds_of_folders(path)
    raise Refusal(
        "expected a file or a dataset, found a folder without the files of one "
        "('zarr.json' or 'meta/storage'): '%s'" % path
    )


class NamedFile:
    """A file, an archive, or standard input. It need not exist."""

    def __init__(self, path: str) -> None:
        self.path = path

    # info and list

    def show(self) -> int:
        """Show the header and the metadata; return the exit code."""
        from .quick_answers import info

        return info(self.path)

    def describe(self) -> tuple[JsonObject, int]:
        """Return all fields, and the exit code."""
        check_exists("file", self.path)
        fields = self._described(strict=False)
        return {**fields, "file": plain_name(self.path)}, EXIT_OK

    def _described(self, *, strict: bool) -> JsonObject:
        """Return the description of the file, also of another format."""
        from ..describe import describe
        from .quick_answers import described_source

        try:
            return describe(self.path, strict=strict)
        except exceptions.NotReadable as error:
            return described_source(self.path, error)

    def chunks(self, nthreads: int) -> tuple[list[JsonObject], list[str]]:
        """Check all chunks; return their `chunk_rows`, and the other errors."""
        from .._check.files import Inspection
        from .._engine.blosc_settings import own_settings
        from .._file.archive import refuse_archive
        from .._storage.stream import positional
        from ..abstract_io import effective_nthreads

        check_exists("file", self.path)

        def read(fp: Seekable, check: Check) -> tuple[list[JsonObject], list[str]]:
            with positional(fp) as storage:
                if storage.read_at(0, len(MAGIC)) != MAGIC:
                    refuse_archive(storage)
                inspection = Inspection(storage, effective_nthreads(nthreads, None))
                found = _chunks_of(inspection)
            if inspection.sections.header is not None:
                check(inspection.sections.header)
            return found

        with own_settings:
            return read_snapshot(self.path, read)

    def entries(self) -> tuple[list[JsonObject], int]:
        """Return the fields for a line of ``list``, and the exit code."""
        fields = self._described(strict=True)
        found = {k: v for k, v in fields.items() if k not in LEFT_OUT}
        return [{**found, "file": plain_name(self.path)}], EXIT_OK

    # verify and recover

    def plain_size(self) -> int | None:
        """Return the plain bytes from the header; None if it does not tell."""
        return inputs.plain_size_of(self.path)

    def verify(self, nthreads: int, progress: Bar | None) -> Report:
        """Check the file."""
        from ..verify import verify

        report: Report = verify(self.path, nthreads=nthreads, progress=progress)
        report.filename = plain_name(self.path)
        return report

    def counts(self, report: Any, damaged: bool) -> str:
        """Return what `report` has counted, in words."""
        from .._check.findings import counted

        chunks = counted(report.nchunks, "chunk")
        if damaged:
            nbytes = size_text(report.nbytes_intact)
            return "%d of %s, %s good" % (report.nintact, chunks, nbytes)
        if report.nbytes is None:
            return chunks
        return "%s, %s" % (chunks, size_text(report.nbytes))

    def recover(
        self, args: Namespace, progress: Bar | None
    ) -> Recovery | DatasetRecovery:
        """Write an intact file from the good chunks."""
        from ..recover import recover
        from .outputs import check_free, check_no_terminal

        check_no_terminal(args.target, args)
        if args.target == STREAM:
            console.need_output()
        else:
            check_free(args.target, args)
        if args.json and descriptor_of(args.target) == 1:
            raise WrongUsage("--json and the new file can't both go to standard output")
        return recover(
            self.path,
            name_of_output(args.target),
            fill=args.fill,
            drop=args.drop,
            nthreads=args.nthreads,
            sync=args.sync,
            progress=progress,
        )

    # cat

    def cat(
        self,
        bytes_: slice | None,
        rows: slice | None,
        deliver: Callable[[bytes, bool], None],
        nthreads: int,
    ) -> None:
        """Pass plain bytes to `deliver`, and whether more may come much later."""
        from ..reader import Reader, StreamReader

        def read(fp: Seekable, check: Check) -> None:
            streamed = not fp.seekable()
            reader = StreamReader(fp) if streamed else Reader(fp)
            check(reader.header)
            if rows is None:
                selected = reader.select(bytes_ or slice(None))
            elif is_grid(reader.metadata) and not streamed:
                for block in reader._row_blocks(rows, nthreads):
                    deliver(block.tobytes(), False)
                return
            else:
                selected = reader.select_rows(rows)
            reader.deliver(
                selected, lambda plain: deliver(plain, streamed), nthreads=nthreads
            )
            if selected.stop == reader.nbytes:
                warn_of_second_file(self.path, reader._peek_behind(len(MAGIC)))

        parts = bytes_ is not None or rows is not None
        read_snapshot(self.path, read, attempts=1, parts=parts)

    # append

    def append(self, args: Namespace) -> None:
        """Append the content of another file."""
        from .._format.append_plan import UNCHANGED
        from ..append import append
        from .progress import shown

        original_file, new_file = args.original_file, args.new_file
        check_original_name(args)
        metadata = metadata_of_option(args)
        if args.delimiter is not None:
            raise WrongUsage("--delimiter is for rows of datasets, in CSV files")
        if original_file == STREAM:
            raise WrongUsage("a file to append to can't be standard input")
        check_exists("original file", original_file)
        check_exists("new file", new_file)
        if os.path.isdir(new_file):
            raise WrongUsage(
                "'%s' is a folder: 'blpk cat' writes the rows of a dataset, and append "
                "reads them with '-'" % new_file
            )
        log.verbose("original file is: '%s'" % original_file)
        log.verbose("new file is: '%s'" % new_file)
        options: dict[str, Any] = {
            **blosc_settings(args, blosc_args(args)),
            "nthreads": args.nthreads,
            "sync": args.sync is not False,
            "grow": args.grow,
            "wait": args.wait,
            "needs_offsets": False,
            "metadata": UNCHANGED if metadata is None else metadata,
        }
        with shown(new_file, None, args.progress) as bar:
            if bar is not None:
                options.update(progress=bar, expect=bar.expect)
            if args.npy:
                from ..npy_io import append_npy

                append_npy(self.path, name_of_input(new_file), **options)
            else:
                wrong = inputs.why_no_items(new_file, args)
                if wrong and self.is_array():
                    raise WrongUsage(wrong)
                source = name_of_input(new_file, seekable=True)
                append(self.path, source, **options)
                if inputs.why_not_plain(new_file, args):
                    what = inputs.other_format(new_file).partition(";")[0]
                    texts = new_file, what or "a Bloscpack file"
                    log.notice("'%s' is %s; its bytes were appended" % texts)

    # metadata

    def _beginning(self, *, needs_metadata: bool = False) -> Beginning:
        def read(fp: Seekable, check: Check) -> Beginning:
            beginning = read_beginning(Cursor(fp))
            check(beginning.header)
            if needs_metadata and beginning.metadata_header is None:
                raise exceptions.NoMetadataFound("the file has no metadata section")
            return beginning

        return read_snapshot(self.path, read, parts=True)

    def is_array(self) -> bool:
        """Return whether the metadata describe an array."""
        return is_array(self._beginning().metadata)

    def metadata(self) -> Json:
        """Return the metadata; raises `NoMetadataFound` for a file without any."""
        return self._beginning(needs_metadata=True).metadata

    def change_metadata(
        self, args: Namespace, edit: Callable[[Json, str], Json]
    ) -> None:
        """Replace the metadata of the user by what `edit` returns for them.

        In an array file, the description of the array stays. The second argument of
        `edit` is the name of the metadata in messages.
        """
        from .._format.append_plan import UNCHANGED
        from ..append import change_metadata

        def changed(old: Json) -> Json:
            noun = "metadata beside the array" if is_array(old) else "metadata"
            new = replaced_metadata(old, edit(user_metadata(old), noun))
            # Compared as text, because 1 and true are not the same in JSON.
            if json_text(new, True, "ascii") == json_text(old, True, "ascii"):
                log.verbose("the metadata are already the same")
                return UNCHANGED
            return new

        grow = args.grow or self._beginning().metadata_header is None
        try:
            change_metadata(self.path, changed, sync=args.sync is not False, grow=grow)
        except exceptions.MetadataSectionTooSmall as error:
            error.args = (
                "%s; --grow rewrites the file with more space" % error.args[0],
            )
            raise


def _chunks_of(inspection: Inspection) -> tuple[list[JsonObject], list[str]]:
    from .._check.findings import ERROR

    intact = {
        number: (nbytes, cbytes)
        for number, _, nbytes, cbytes in inspection.intact_chunks()
    }
    numbers = range(inspection.geometry.nchunks)
    damaged = set(numbers) - intact.keys()
    errors = [
        str(finding)
        for finding in inspection.report.findings
        if finding.severity == ERROR
        and not (finding.section == "chunks" and finding.chunk in damaged)
    ]
    return list(chunk_rows(numbers, intact)), errors


def check_original_name(args: Namespace) -> None:
    """Raise `Refusal` unless the file to append to has the suffix, or needs none."""
    if not args.no_check_extension:
        inputs.check_extension("original file", args.original_file)
