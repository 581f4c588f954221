"""The meaning of a name: a file, an archive, a dataset, a tree.

`named` looks at a path once, and returns a `Named`: it has a method for each operation,
and refuses the others with the verb that reads such a thing.
"""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import contextmanager

from .. import exceptions
from .._commit.snapshot import read_snapshot
from .._format.sections import Beginning, read_beginning
from .._storage.cursor import Cursor
from .._storage.paths import is_url, public_name, shown_name
from .._storage.urls import joined_url
from ..exceptions import BloscpackError
from ..log import printable
from ..serializers import is_array
from .console import STREAM, console, descriptor_of, name_of_output, plain_name
from .exit_codes import (
    BIGFILE_TREE,
    EXIT_COULD_NOT,
    EXIT_DAMAGED,
    EXIT_OK,
    OTHER_COMMAND,
    READ_BY,
    Refusal,
    WrongUsage,
    kind_of_folder,
    refuse_kinds_of_folders,
)
from .file_info import describe_files, info
from .target import (
    check_free,
    check_no_terminal,
    is_dataset,
    packed_inside,
    plain_size_of,
    report,
)
from .text import info_lines, inner

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator
    from typing import Any, NoReturn

    from .. import dataset
    from .._check.findings import Report
    from .._commit.snapshot import Check
    from .._types import JsonObject, Seekable
    from ..dataset.file_checks import DatasetRecovery
    from ..recover import Recovery
    from .progress import Bar
    from .target import LeftOut


def named(path: str) -> NamedFile | NamedDataset:
    """Return the file or the dataset of a name; a missing file is a file.

    Raises `Refusal` for any other folder, and `OSError` if it can't be read.
    """
    item = named_any(path)
    if not isinstance(item, NamedFile | NamedDataset):
        item.refuse()
    return item


def named_any(path: str) -> Named:
    """Return the meaning of a name, of any kind."""
    for kind in KINDS:
        if kind.is_at(path):
            return kind(path)
    if not os.path.isdir(path):
        return NamedFile(path)
    names = os.listdir(path)  # raises why it can't be read
    refuse_kinds_of_folders(path)
    from .._format.other_formats import name_folder
    from ..dataset.layouts import NO_DATASET

    known = name_folder(names) or NO_DATASET
    raise Refusal("expected a file or a dataset, found %s: '%s'" % (known, path))


class Named:
    """What has a name. The methods are the operations of verbs.

    Verbs without a method here call `named`: they know files and datasets only.
    """

    # The kind in messages, and the command that reads it.
    kind, read_by = "", ""

    def __init__(self, path: str) -> None:
        self.path = path

    @classmethod
    def is_at(cls, path: str) -> bool:
        """Return whether a path is of this kind. It may be missing, or a URL."""
        return False

    def refuse(self) -> NoReturn:
        """Raise `Refusal`: a verb can't use this kind."""
        raise Refusal(OTHER_COMMAND % (self.path, self.kind, self.read_by))

    def plain_size(self) -> int | None:
        """Return the number of plain bytes; None if it is unknown."""
        return None

    def describe(self) -> JsonObject:
        """Return all fields of the description."""
        self.refuse()

    def entries(self) -> tuple[list[JsonObject], int]:
        """Return the fields of each file or array in it, and the exit code."""
        return [self.describe()], EXIT_OK

    def info(self) -> int:
        """Show the description; return the exit code."""
        described = self.describe()
        console.say_all(info_lines(described))
        return code_of(described)

    def verify(self, nthreads: int, progress: Bar | None) -> Report:
        """Return the report of the check."""
        from ..verify import verify

        return verify(self.path, nthreads=nthreads, progress=progress)

    def recover(
        self, args: Namespace, progress: Bar | None
    ) -> Recovery | DatasetRecovery:
        """Write what is intact to `args.target`."""
        self.refuse()


class NamedFile(Named):
    """A file, an archive, or standard input. It need not exist."""

    def plain_size(self) -> int | None:
        """Return the plain bytes from the header; None if it does not tell."""
        return plain_size_of(self.path)

    def describe(self) -> JsonObject:
        """Return all fields of the description, with those of files that follow."""
        first, *behind = describe_files(self.path)
        return {**first, "following": behind} if behind else first

    def entries(self) -> tuple[list[JsonObject], int]:
        """Return the fields of the file, and of each that stands behind it."""
        return describe_files(self.path, strict=True), EXIT_OK

    def info(self) -> int:
        """Show the description; return the exit code."""
        return info(self.path)

    def beginning(self, *, needs_metadata: bool = False) -> Beginning:
        """Return the sections in front of the chunks.

        With `needs_metadata`, raise `NoMetadataFound` for a file without any.
        """

        def read(fp: Seekable, check: Check) -> Beginning:
            beginning = read_beginning(Cursor(fp))
            check(beginning.header)
            if needs_metadata and beginning.metadata_header is None:
                raise exceptions.NoMetadataFound("the file has no metadata section")
            return beginning

        return read_snapshot(self.path, read, parts=True)

    def verify(self, nthreads: int, progress: Bar | None) -> Report:
        """Return the report of the check, under the name that programs know."""
        report = super().verify(nthreads, progress)
        report.filename = plain_name(self.path)
        return report

    def is_array(self) -> bool:
        """Return whether the metadata describe an array."""
        return is_array(self.beginning().metadata)

    def recover(
        self, args: Namespace, progress: Bar | None
    ) -> Recovery | DatasetRecovery:
        """Write an intact file from the good chunks."""
        from ..recover import recover

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


class NamedTree(Named):
    """A BigFile tree."""

    kind, read_by = BIGFILE_TREE, READ_BY[BIGFILE_TREE]

    @classmethod
    def is_at(cls, path: str) -> bool:
        """Return whether a path is a tree."""
        return os.path.isdir(path) and kind_of_folder(path, strict=False) == cls.kind


class NamedDataset(Named):
    """An array, a table or a group, in a folder or at a URL."""

    @classmethod
    def is_at(cls, path: str) -> bool:
        """Return whether a path is a dataset."""
        return is_dataset(path)

    def describe(self) -> JsonObject:
        """Return the description; a member that can't be opened has an error."""
        return {"path": shown_name(self.path), **self._described()}

    def _described(self) -> JsonObject:
        """Return the description, after a warning of members without folders."""
        from .. import dataset, log
        from .._format.names import listed
        from ..dataset.layouts import NO_FOLDERS

        described: JsonObject = dataset.describe(self.path)
        groups = [described]
        for group in groups:
            groups += group.get("members", ())
            if missing := group.get("missing"):
                path = self._path_of(group["name"])
                log.notice(NO_FOLDERS % (printable(path), printable(listed(missing))))
        return described

    def _path_of(self, name: str) -> str:
        """Return the path or the URL of a member."""
        path = self.path
        if name and is_url(path):
            return joined_url(public_name(path), name)
        return os.path.join(path, *name.split("/")) if name else shown_name(path)

    def entries(self) -> tuple[list[JsonObject], int]:
        """Return the fields of each array; one that can't be opened is reported."""
        from ..dataset.description import arrays_of

        entries: list[JsonObject] = []
        code = EXIT_OK
        for described in arrays_of(self._described()):
            file = self._path_of(described["name"])
            if "error" in described:
                texts = printable(file), printable(described["error"])
                console.report("'%s': %s" % texts)
                code = max(code, code_of(described))
            else:
                entries.append({"file": file, **described})
        return entries, code

    def plain_size(self) -> int | None:
        """Return the plain bytes; None if they are unknown."""
        if is_url(self.path):  # this would take many requests
            return None
        from .. import dataset

        try:
            nbytes: int = dataset.describe(self.path)["nbytes"]
        except (BloscpackError, OSError):
            return None
        return nbytes

    def verify(self, nthreads: int, progress: Bar | None) -> Report:
        """Return the report of the check."""
        from .. import dataset

        return dataset.verify(self.path, nthreads=nthreads, progress=progress)

    def recover(self, args: Namespace, progress: Bar | None) -> DatasetRecovery:
        """Write a new dataset from the intact chunks."""
        if args.target == STREAM:
            raise WrongUsage(
                "the new dataset is a folder, which can't go to standard output"
            )
        from .. import dataset

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


# The kinds but files, in the order in which a path is tried.
KINDS: tuple[type[Named], ...] = (NamedDataset, NamedTree)


def code_of(described: JsonObject) -> int:
    """Return the exit code for a dataset with all its members."""
    own = EXIT_OK
    if "error" in described:
        own = EXIT_DAMAGED if described["damaged"] else EXIT_COULD_NOT
    return max([own, *map(code_of, inner(described))])


def packed_files(args: Namespace) -> list[str]:
    """Return the names in `args.files`, with the compressed files in place of a folder.

    Files in folders below it are included with ``--recursive``, also in a plain folder
    of datasets. The folder of another dataset is returned unchanged, and so is each
    folder without datasets and compressed files: `named` refuses that one.
    """
    left_out: LeftOut = defaultdict(list)
    files: list[str] = []
    for name in args.files:
        skipped: LeftOut = defaultdict(list)
        names = packed_inside(name, args.recursive, skipped)
        files += names or [name]
        # Of a folder that is refused, `-r` would not help.
        if skipped and (names or not any(k.is_at(name) for k in KINDS)):
            for reason, paths in skipped.items():
                left_out[reason] += paths
    report(left_out)
    return files


@contextmanager
def opened_rows(
    path: str, mode: str = "r", **settings: Any
) -> Iterator[dataset.Array | dataset.Table]:
    """Open an array or a table; raise `Refusal` for a group."""
    from .. import dataset

    with dataset.open(path, mode, **settings) as node:
        if isinstance(node, dataset.Group):
            names = list(node)[:5] if node._layout.folder.store.lists else []
            text = "'%s' is a group: name an array or a table in it"
            example = ", such as '%s'" % names[0] if names else ""
            raise WrongUsage(text % shown_name(path) + example)
        yield node
