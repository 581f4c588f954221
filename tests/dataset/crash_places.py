"""Places where a program that changes a dataset can be stopped at any call.

A `CrashPlace` counts the calls of a store that change something: system calls for a
local folder, objects that are stored or removed for an object store and for memory. The
call after the last one that may happen raises `Stop`, which no code handles, and so
does every call after that: the process is dead.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from contextlib import contextmanager

import pytest
from dataset.inside import Conflict, Disk, MemoryStore, object_store, replace_disk

# What the names of all files of changes contain.
MARK = ".bloscpack"


class Stop(BaseException):
    """The process has died."""


class Counter:
    """Lets a number of calls happen, and records them; -1 for any number."""

    def __init__(self, count):
        self.left = count
        self.calls = []

    def step(self, name, *arguments):
        if not self.left:
            raise Stop
        self.left -= 1
        self.calls.append((name, *arguments))


class StoppingDisk(Disk):
    """The disk, whose calls are counted."""

    def __init__(self, counter):
        self.step = counter.step

    def create(self, name, mode):
        self.step("create", name)
        return super().create(name, mode)

    def sync(self, fp):
        self.step("sync", fp.name)
        fp.flush()

    def sync_folder(self, path):
        self.step("sync_folder", path)

    def rename(self, old, new):
        self.step("rename", old, new)
        super().rename(old, new)

    def exchange(self, one, other):
        self.step("exchange", one, other)
        return super().exchange(one, other)

    def remove(self, name):
        self.step("remove", name)
        super().remove(name)

    def make_folder(self, name, mode=0o777):
        self.step("make_folder", name)
        super().make_folder(name, mode)

    def remove_folder(self, name):
        self.step("remove_folder", name)
        super().remove_folder(name)


class CrashPlace:
    """A place for one dataset.

    Attributes
    ----------
    name
        The path or the URL of the dataset.
    replaces_at_once
        Whether a dataset is replaced in one step. In a store of objects, the old one is
        removed before the new one is there.
    """

    name: object
    replaces_at_once = False

    def run(self, operation, count):
        """Run an operation until call `count`; return the calls, and if it ended."""
        counter = Counter(count)
        with self.counting(counter):
            try:
                operation(self.name)
            except Stop:
                return counter.calls, False
        return counter.calls, True

    def remove(self):
        """Remove the dataset, but nothing that a crash has left beside it."""
        self.put_back({})

    def counting(self, counter):
        """Return a context in which the calls of the store are counted."""
        raise NotImplementedError

    def files(self):
        """Return the content of each file by name; a folder has the content None."""
        raise NotImplementedError

    def leftovers(self):
        """Return the members that have files of a change; '' is the dataset."""
        inside = [n.removeprefix("data/") for n in self._names() if n[:5] == "data/"]
        return sorted({n.rpartition("/" + MARK)[0] for n in inside if MARK in n})

    def siblings(self):
        """Return the names of the files beside the dataset."""
        return [name for name in self._names() if not (name + "/").startswith("data/")]

    def _names(self):
        names = [str(name).replace(os.sep, "/") for name in self.files()]
        return [name.removeprefix("/crash/") for name in names]

    def put_back(self, files):
        """Let the place have the files that `files` has returned, and no others."""
        raise NotImplementedError


class LocalFolder(CrashPlace):
    """A folder on this machine."""

    replaces_at_once = True

    def __init__(self, folder):
        self.name = folder / "work" / "data"
        self.name.parent.mkdir()

    @contextmanager
    def counting(self, counter):
        with pytest.MonkeyPatch.context() as context:
            replace_disk(context, StoppingDisk(counter))
            yield

    def files(self):
        top = self.name.parent
        return {
            place.relative_to(top): None if place.is_dir() else place.read_bytes()
            for place in sorted(top.rglob("*"))
        }

    def put_back(self, files):
        top = self.name.parent
        shutil.rmtree(top)
        top.mkdir()
        for name, content in files.items():
            if content is None:
                (top / name).mkdir()
            else:
                (top / name).write_bytes(content)

    def remove(self):
        shutil.rmtree(self.name)


class Objects(CrashPlace):
    """An object store: the one of fsspec in memory."""

    name = "memory://crash/data"

    def __init__(self, folder):
        fsspec = pytest.importorskip(
            "fsspec", reason="the extra 'remote' is not installed"
        )
        self.fs = fsspec.filesystem("memory")
        self.put_back({})

    @contextmanager
    def counting(self, counter):
        put, call_each = object_store.ObjectStore.put, object_store._call_each
        remove_if = object_store._remove_if

        def counted_put(store, name, content, version):
            counter.step("put", store.path(name))
            return put(store, name, content, version)

        def counted_remove(fs, path, version):
            counter.step("remove", path)
            return remove_if(fs, path, version)

        def counted_calls(fs, method, paths):
            if method != "rm_file":
                return call_each(fs, method, paths)
            for path in paths:
                counter.step("remove", path)
                call_each(fs, method, [path])
            return []

        with pytest.MonkeyPatch.context() as context:
            context.setattr(object_store.ObjectStore, "put", counted_put)
            context.setattr(object_store, "_remove_if", counted_remove)
            context.setattr(object_store, "_call_each", counted_calls)
            yield

    def files(self):
        return {path: self.fs.cat_file(path) for path in self.fs.find("/crash")}

    def put_back(self, files):
        if self.fs.exists("/crash"):
            self.fs.rm("/crash", recursive=True)
        for path, content in files.items():
            self.fs.pipe_file(path, content)

    def close(self):
        """Remove all objects."""
        self.put_back({})


class ObjectsInMemory(MemoryStore):
    """A store of objects in a dictionary, which compares versions as S3 does."""

    is_remote = is_writable = compares_versions = True

    def __init__(self, root, files):
        super().__init__(root, files)
        self._versions, self._lock = {}, threading.Lock()

    def check(self):
        """Accept the URL."""

    def below(self, name):
        """Return the names of all files in a folder."""
        start = self._prefix + (name + "/" if name else "")
        return [full[len(start) :] for full in self.files if full.startswith(start)]

    def content_version(self):
        return [(name, self.object_version(name)) for name in self.below("")]

    def object_version(self, name):
        full = self._prefix + name
        return str(self._versions.get(full, 0) + 1) if full in self.files else ""

    def put(self, name, content, version):
        full = self._prefix + name
        with self._lock:
            is_same = self.files.get(full) == content
            if version not in (None, self.object_version(name)) and not is_same:
                raise Conflict(errno.EAGAIN, "it has another version", self.path(name))
            self.files[full] = content
            self._versions[full] = self._versions.get(full, 0) + 1
            return self.object_version(name)

    def remove(self, name, version=None):
        with self._lock:
            if version in (None, self.object_version(name)):
                self.files.pop(self._prefix + name, None)

    def remove_tree(self, name):
        for inner in self.below(name):
            self.remove(name + "/" + inner)

    def remove_all(self, check, *, but):
        check()
        for name in self.below(""):
            if name != but:
                self.remove(name)


class Memory(CrashPlace):
    """The store that is a dictionary, under URLs that it gets for the test."""

    name = "dictionary://crash/data"

    def __init__(self, folder):
        self.counter = Counter(-1)
        place, self.top = self, None

        class CountedStore(ObjectsInMemory):
            def put(self, name, content, version):
                place.counter.step("put", self.path(name))
                return super().put(name, content, version)

            def remove(self, name, version=None):
                place.counter.step("remove", self.path(name))
                super().remove(name, version)

        def open_store(url, storage_options=None):
            if not url.startswith("dictionary://"):
                return genuine(url, storage_options)
            name = url.removeprefix("dictionary://crash").strip("/")
            return self.top.subfolder(name) if name else self.top

        self.top = CountedStore("dictionary://crash", {})
        genuine = object_store.ObjectStore
        self.context = pytest.MonkeyPatch()
        self.context.setattr(object_store, "ObjectStore", open_store)

    @contextmanager
    def counting(self, counter):
        self.counter = counter
        try:
            yield
        finally:
            self.counter = Counter(-1)

    def files(self):
        return dict(self.top.files)

    def put_back(self, files):
        self.top.files.clear()
        self.top.files.update(files)

    def close(self):
        """Let URLs be opened as before."""
        self.context.undo()


PLACES = {"folder": LocalFolder, "objects": Objects, "memory": Memory}


@contextmanager
def crash_place(kind, folder):
    """Yield an empty place of a kind."""
    place = PLACES[kind](folder)
    try:
        yield place
    finally:
        getattr(place, "close", lambda: None)()
