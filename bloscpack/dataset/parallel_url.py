"""A new dataset at a URL that several processes write, as `parallel` describes.

Strategy: the documents of the dataset are with each task, and no file is at the URL
that readers would take for a dataset. A task stores whole shards. The commit point is
the document of the root, which `commit` stores last.

Until then, the object `UNFINISHED`, the guard, identifies the call that writes: each
call of `begin` stores another content. A task that finds another guard, or none, or the
document of the root, is late: a writer may have changed the dataset. A shard is stored
only if it has the version that it had before these were read: so a late task can't
replace a shard of another call, in a store that compares versions.
"""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import contextmanager, suppress

from .._format.zarr_metadata import ZARR_JSON
from .._storage.upload import Conflict
from .._storage.urls import shown_name
from ..exceptions import StorageError, UsageError
from .change import UnfinishedFile, naming_dataset
from .folder import Folder
from .parallel import ShardChange, Target, set_length
from .url_create import Claim
from .url_folder import UNFINISHED, UrlFolder

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .._storage.protocols import StorageOptions
    from .array import Array
    from .change import Change
    from .table import Table

# Number of times that a shard is stored if other processes store it meanwhile.
ATTEMPTS = 10


class Late(StorageError):
    """Another call writes the dataset, or it is complete."""


class UrlTarget(Target):
    """A dataset that is being written at a URL."""

    def __init__(
        self, url: str, mode: str, storage_options: StorageOptions | None
    ) -> None:
        super().__init__(shown_name(url), mode, sync=False)
        self._folder = UrlFolder(url, storage_options=storage_options)
        self._documents: dict[str, bytes] = {}
        self._claim = Claim(self._folder, mode)

    def describe(self, made: Array | Table) -> None:
        """Note what the dataset is, and the documents that it has."""
        super().describe(made)
        if made.layout != "zarr":
            raise UsageError(
                "at a URL, only the layout 'zarr' can be written, not '%s'"
                % made.layout
            )
        self._documents = _documents(made.path)

    def claim(self) -> None:
        """Store the guard, and remove what is there."""
        self._claim.take()

    def check_free(self) -> None:
        """Raise an error if there is something that must stay."""
        self._claim.check_free()

    def _check_guard(self) -> None:
        """Raise `Late` unless the dataset still belongs to this target."""
        try:
            self._claim.check()
        except Conflict as error:
            raise self._late() from error

    def _late(self) -> Late:
        return Late(errno.ESTALE, "it is late", self.root)

    @contextmanager
    def late_is_harmless(self) -> Iterator[None]:
        """End the block without an error if the dataset is complete."""
        try:
            yield
        except Late as error:
            folder = self._folder
            guard = folder.object_version(UNFINISHED)
            # The process that committed it may have died before it removed the guard.
            is_own = guard in ("", self._claim.version)
            if not is_own or not folder.object_version(ZARR_JSON):
                raise self.replaced() from error

    @contextmanager
    def _made(self) -> Iterator[str]:
        """Yield a temporary folder with the documents of the dataset."""
        self._check_guard()
        with (
            tempfile.TemporaryDirectory() as outer,
            naming_dataset(self.root, outer),
        ):
            path = os.path.join(outer, "new")
            for name, content in self._documents.items():
                place = os.path.join(path, *name.split("/"))
                os.makedirs(os.path.dirname(place), exist_ok=True)
                with open(place, "wb") as file:
                    file.write(content)
            yield path

    @contextmanager
    def changing(self) -> Iterator[Change]:
        """Yield a change that stores shards."""
        with self._made() as path:
            hidden = Folder(os.path.dirname(path))
            yield UrlShardChange(Folder(path), hidden, self)

    def store(self, name: str, content: bytes) -> None:
        """Store an object.

        Raises `Late` if the dataset belongs to another call, or is complete: then a
        writer may have changed the object.
        """
        for attempt in range(ATTEMPTS):
            version = self._folder.object_version(name)
            self._check_guard()  # after the version: see the strategy
            if self._folder.object_version(ZARR_JSON):
                raise self._late()
            try:
                self._folder.put(name, content, version)
                return
            except Conflict:  # the same task in another process has stored it
                if attempt == ATTEMPTS - 1:
                    raise

    def commit(self, length: int) -> None:
        """Store the documents, and the document of the root last."""
        with self._made() as path:
            set_length(self, Folder(path), length)
            documents = _documents(path)
        root = documents.pop(ZARR_JSON)
        if not self._folder.object_version(ZARR_JSON):
            for name, content in documents.items():
                self.store(name, content)
        try:  # a document that was stored by this task, repeated, is no conflict
            self._claim.commit(root, "")
        except Conflict as error:
            self._check_guard()
            raise FileExistsError(
                errno.EEXIST, os.strerror(errno.EEXIST), self.root
            ) from error

    def abandon(self) -> None:
        """Remove what was stored, unless the dataset is complete."""
        with suppress(OSError):
            self._check_guard()
            if self._folder.object_version(ZARR_JSON):
                self._folder.remove(UNFINISHED, self._claim.version)
            else:
                self._claim.discard()


class UrlShardChange(ShardChange):
    """Stores shards, and nothing else."""

    def __init__(self, folder: Folder, hidden: Folder, target: UrlTarget) -> None:
        super().__init__(folder, hidden, sync=False)
        self._target = target

    def make_folder(self, name: str) -> None:
        """Do nothing: a store has no folders."""

    def finish(self, file: UnfinishedFile, *, at_once: bool) -> None:
        """Store a shard; leave out any other file."""
        file.fp.flush()
        if at_once:
            content = self._hidden.read(file.place)
            self._target.store(file.name, content)
        self.abandon(file)


def begin_at_url(target: UrlTarget, create: Callable[[str], Array | Table]) -> Target:
    """Return a new dataset at a URL without rows, as `begin` does.

    A dataset that is replaced is removed now.
    """
    with (
        tempfile.TemporaryDirectory() as outer,
        create(os.path.join(outer, "new")) as made,
    ):
        target.describe(made)
    target.claim()
    return target


def _documents(path: str) -> dict[str, bytes]:
    """Return the documents of a dataset without shards, by name."""
    found = {}
    for place, _, names in os.walk(path):
        for name in names:
            full = os.path.join(place, name)
            with open(full, "rb") as file:
                relative = os.path.relpath(full, path).replace(os.sep, "/")
                found[relative] = file.read()
    return found
