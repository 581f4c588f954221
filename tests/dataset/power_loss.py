"""Every state in which a power loss may leave a folder, from a record of calls.

A `Recorder` replaces the disk while an operation runs. It knows which names and
contents are on the disk for certain: a file has its content when it was synced, and a
folder has its names when the folder was synced. Each other change of names may be on
the disk or not, whatever became of those before it. So a folder whose own name is
missing is lost with all that is in it, also if it was synced itself.
"""

from __future__ import annotations

import os
import random
import threading

from dataset.inside import Disk


class Node:
    """A file or a folder.

    Attributes
    ----------
    content
        The bytes of a file that are on the disk; None for a folder.
    names, there
        The nodes in a folder by name: as programs see them, and on the disk.
    """

    def __init__(self, content=None):
        self.content = content
        self.names, self.there = {}, {}


def read_node(path):
    """Return the node of a file or folder, all of which is on the disk."""
    if path.is_dir():
        node = Node()
        node.names = {inner.name: read_node(inner) for inner in path.iterdir()}
        node.there = dict(node.names)
        return node
    return Node(path.read_bytes())


def recorded(method):
    """Let a method call `look` first, whose own calls are not recorded."""

    def call(self, *arguments):
        with self.lock:
            if self.is_looking:
                return getattr(Disk, method.__name__)(self, *arguments)
            self.is_looking = True
            try:
                self.look(self)
            finally:
                self.is_looking = False
            return method(self, *arguments)

    return call


class Recorder(Disk):
    """Does what the disk does; calls `look` before each call, one after another."""

    def __init__(self, root, look):
        self.root, self.look = root, look
        self.lock, self.is_looking = threading.RLock(), False
        self.top = read_node(root)
        # Changes of names that may not be on the disk: lists of folder, name, node.
        self.pending = []

    def _place(self, path):
        """Return the folder of a path, and the last name."""
        *parts, last = os.path.relpath(path, self.root).split(os.sep)
        node = self.top
        for part in parts:
            node = node.names[part]
        return node, last

    def _set(self, *steps):
        """Change names; all steps of one change are on the disk, or none."""
        for folder, name, node in steps:
            if node is None:
                del folder.names[name]
            else:
                folder.names[name] = node
        self.pending.append(steps)

    @recorded
    def create(self, name, mode):
        fp = super().create(name, mode)
        self._set((*self._place(name), Node(b"")))
        return fp

    @recorded
    def make_folder(self, name, mode=0o777):
        super().make_folder(name, mode)
        self._set((*self._place(name), Node()))

    @recorded
    def remove(self, name):
        super().remove(name)
        self._set((*self._place(name), None))

    @recorded
    def remove_folder(self, name):
        super().remove_folder(name)
        self._set((*self._place(name), None))

    @recorded
    def rename(self, old, new):
        super().rename(old, new)
        (source, last), (target, name) = self._place(old), self._place(new)
        node = source.names[last]
        self._set((source, last, None), (target, name, node))

    @recorded
    def exchange(self, one, other):
        done = super().exchange(one, other)
        if done:
            (source, last), (target, name) = self._place(one), self._place(other)
            nodes = source.names[last], target.names[name]
            self._set((source, last, nodes[1]), (target, name, nodes[0]))
        return done

    @recorded
    def sync(self, fp):
        fp.flush()
        folder, name = self._place(fp.name)
        with open(fp.name, "rb") as written:
            folder.names[name].content = written.read()

    @recorded
    def sync_folder(self, path):
        synced, _ = self._place(path)
        for steps in self.pending:
            if any(folder is synced for folder, _, _ in steps):
                apply(steps)
        self.pending = [
            steps
            for steps in self.pending
            if not any(folder is synced for folder, _, _ in steps)
        ]


def apply(steps):
    """Let a change of names be on the disk."""
    for folder, name, node in steps:
        if node is None:
            folder.there.pop(name, None)
        else:
            folder.there[name] = node


def states(recorder, chance, subsets):
    """Yield what may be on the disk: the tree of `contents_of`."""
    pending = recorder.pending
    choices = [[], pending]
    choices += [[steps] for steps in pending[-subsets:]]
    choices += [
        [steps for steps in pending if chance.random() < 0.5] for _ in range(subsets)
    ]
    for chosen in choices:
        yield contents_of(recorder.top, chosen)


def contents_of(node, chosen):
    """Return the content of a file, or of a folder after some changes of names."""
    if node.content is not None:
        return node.content
    names = dict(node.there)
    for steps in chosen:
        for folder, name, inner in steps:
            if folder is node:
                names[name] = inner
    return {
        name: contents_of(inner, chosen)
        for name, inner in sorted(names.items())
        if inner is not None
    }


def lay_down(content, path):
    """Write a state to a free path."""
    if isinstance(content, bytes):
        path.write_bytes(content)
        return
    path.mkdir()
    for name, inner in content.items():
        lay_down(inner, path / name)


def check_power_loss(run, root, check, subsets=4, seed=1):
    """Call ``check(path, done)`` with each state that `run` may leave; return how many.

    `run` gets the disk. It changes the folder `root`.
    """
    chance, seen = random.Random(seed), set()
    place = root.with_name(root.name + "-state")

    def look(recorder, done=False):
        for state in states(recorder, chance, subsets):
            key = repr((state, done))
            if key not in seen:
                seen.add(key)
                lay_down(state, place)
                check(place, done)

    recorder = Recorder(root, look)
    run(recorder)
    look(recorder, done=True)
    return len(seen)
