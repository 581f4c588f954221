"""Datasets that the user named, with the operations of the verbs: see `named`."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import Any

from .. import dataset
from .._check.findings import ERROR, counted
from .._commit.locking import waiting
from .._storage.paths import is_url, public_name, shown_name
from .._storage.urls import joined_url
from .._types import Json, JsonObject
from ..dataset.file_checks import DatasetRecovery, DatasetReport
from ..exceptions import BloscpackError
from ..log import printable
from .console import STREAM, check_exists, console
from .display import chunk_rows
from .exit_codes import EXIT_COULD_NOT, EXIT_DAMAGED, EXIT_OK, Refusal, WrongUsage
from .info_text import info_lines, inner, size_text
from .named import READ_NBYTES, deliver_rows, plain_bytes
from .options import refuse_auto
from .progress import Bar


class NamedDataset:
    """An array, a table or a group, in a folder or at a URL."""

    def __init__(self, path: str) -> None:
        self.path = path

    # info and list

    def show(self) -> int:
        """Show the description; return the exit code."""
        described, code = self.describe()
        console.say_all(info_lines(described))
        return code

    def describe(self) -> tuple[JsonObject, int]:
        """Return the description, and the exit code: some members may not open."""
        described = {"path": shown_name(self.path), **dataset.describe(self.path)}
        return described, _code_of(described)

    def chunks(self, nthreads: int) -> tuple[list[JsonObject], list[str]]:
        """Check all chunks; return their `chunk_rows`, and the other errors."""
        from ..dataset.checking import DatasetCheck

        found = DatasetCheck(self.path, nthreads, keep_sound=True)
        rows: list[JsonObject] = []
        for _, check in found.files:
            rows.extend(chunk_rows(check.numbers, check.intact, file=check.file))
        return rows, [str(f) for f in found.report.findings if f.severity == ERROR]

    def entries(self) -> tuple[list[JsonObject], int]:
        """Return the fields of each array for ``list``, and the exit code.

        An array that can't be opened is reported.
        """
        from ..dataset.description import arrays_of

        found, code = [], EXIT_OK
        for described in arrays_of(dataset.describe(self.path)):
            name = described["name"]
            file = self._member_name(name) if name else shown_name(self.path)
            if "error" in described:
                texts = printable(file), printable(described["error"])
                console.report("'%s': %s" % texts)
                code = max(code, _code_of(described))
                continue
            fields = {k: v for k, v in described.items() if k != "attributes"}
            found.append({"file": file, **fields})
        return found, code

    def _member_name(self, name: str) -> str:
        if is_url(self.path):
            return joined_url(public_name(self.path), name)
        return os.path.join(self.path, *name.split("/"))

    # verify and recover

    def plain_size(self) -> int | None:
        """Return the plain bytes; None if they are unknown."""
        if is_url(self.path):  # this would take many requests
            return None
        try:
            nbytes: int = dataset.describe(self.path)["nbytes"]
        except (BloscpackError, OSError):
            return None
        return nbytes

    def verify(self, nthreads: int, progress: Bar | None) -> DatasetReport:
        """Check everything in the dataset."""
        return dataset.verify(self.path, nthreads=nthreads, progress=progress)

    def counts(self, report: Any, damaged: bool) -> str:
        """Return what `report` has counted, in words."""
        chunks = counted(report.nchunks, "chunk")
        nbytes = size_text(report.nbytes_intact)
        if not report.ok:
            chunks, nbytes = "%d of %s" % (report.nintact, chunks), nbytes + " good"
        texts = report.layout, report.kind, chunks, counted(report.nfiles, "file")
        return "%s %s, %s in %s, %s" % (*texts, nbytes)

    def recover(self, args: Namespace, progress: Bar | None) -> DatasetRecovery:
        """Write a new dataset from the intact chunks."""
        if args.target == STREAM:
            raise WrongUsage(
                "the new dataset is a folder, which can't go to standard output"
            )
        return dataset.recover(
            self.path,
            args.target,
            fill=args.fill,
            drop=args.drop,
            mode="w" if args.force else "x",
            nthreads=args.nthreads,
            sync=args.sync is not False,
            progress=progress,
        )

    # cat, append and metadata

    @contextmanager
    def _opened_rows(
        self, mode: str = "r", wait: float = 0, **settings: Any
    ) -> Iterator[dataset.Array | dataset.Table]:
        """Open an array or a table; raise `Refusal` for a group."""
        opening = partial(dataset.open, self.path, mode, **settings)
        with waiting(opening, wait) as found:
            if isinstance(found, dataset.Group):
                names = list(found)[:5] if found._layout.folder.lists else []
                text = "'%s' is a group: name an array or a table in it"
                example = ", such as '%s'" % names[0] if names else ""
                raise WrongUsage(text % shown_name(self.path) + example)
            yield found

    def cat(
        self,
        bytes_: slice | None,
        rows: slice | None,
        deliver: Callable[[bytes, bool], None],
        nthreads: int,
    ) -> None:
        """Pass the plain bytes of rows to `deliver`, of a table as structured items."""
        with self._opened_rows() as found:
            if rows is not None:
                deliver_rows(found, rows, deliver)
                return
            row = prod(found.shape[1:]) * found.dtype.itemsize
            start, stop, _ = (bytes_ or slice(None)).indices(row * len(found))
            step = max(1, READ_NBYTES // max(1, row)) * row
            for begin in range(start - start % row if row else 0, stop, step or 1):
                plain = plain_bytes(found[begin // row : (begin + step) // row])
                deliver(plain[max(0, start - begin) : stop - begin], False)

    def append(self, args: Namespace) -> None:
        """Append the rows in a file, or in another dataset, in one step.

        The dataset keeps its settings.
        """
        from .new_rows import rows_of

        for option, given in (
            ("--metadata", args.metadata),
            ("--no-grow", not args.grow),
        ):
            if given:
                raise WrongUsage(
                    "%s is for files: '%s' is a dataset" % (option, self.path)
                )
        refuse_auto(args)
        check_exists("new file", args.new_file)
        with (
            self._opened_rows("r+", args.wait, sync=args.sync is not False) as found,
            rows_of(args, args.new_file, found) as rows,
        ):
            found.append(rows)

    def metadata(self) -> JsonObject:
        """Return the attributes."""
        with dataset.open(self.path) as found:
            return found.attrs.asdict()

    def change_metadata(
        self, args: Namespace, edit: Callable[[Json, str], Json]
    ) -> None:
        """Replace the attributes by what `edit` returns for them, in one step."""
        with dataset.open(self.path, "r+", sync=args.sync is not False) as found:
            new = edit(found.attrs.asdict(), "attributes")
            if not isinstance(new, dict):
                raise Refusal(
                    "the attributes of '%s' must be a JSON object" % self.path
                )
            found.attrs.put(new)


# Descriptions


def _code_of(described: JsonObject) -> int:
    """Return the exit code for a dataset with all its members."""
    own = EXIT_OK
    if "error" in described:
        own = EXIT_DAMAGED if described["damaged"] else EXIT_COULD_NOT
    return max([own, *map(_code_of, inner(described))])
