"""Changes in place: all or nothing, whatever fails, and what the next writer does."""

from __future__ import annotations

import contextlib
import io
import os
import struct
import sys

import pytest
from builders import half_changed
from commit.steps import (
    ARRAY,
    LAST,
    OLD,
    ROWS,
    SETTINGS,
    InMemory,
    OnDisk,
    Stop,
    grow,
    has_undo_record,
    replace_metadata,
)
from crash.operations import TARGET, Operation, numbers, pack
from crash.states import check_operation
from crash.watched_disk import WatchedDisk, replaced_disk

import bloscpack as bp
from bloscpack.append import append_fp, rewrite_metadata
from bloscpack.exceptions import UsageError
from bloscpack.verify import verify_fp

# Restoring


WRITERS = {
    "append": lambda path: bp.append_ndarray_to_file(ROWS, path, **SETTINGS),
    "metadata": lambda path: rewrite_metadata(path, {"a": 3}),
    "append to a file object": lambda path: on_file_object(path, grow),
    "metadata of a file object": lambda path: on_file_object(path, replace_metadata),
    "nothing": lambda path: bp.append_bytes_to_file(b"", path),
}


def on_file_object(path, change):
    with path.open("r+b") as fp:
        change(fp)


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.filterwarnings("ignore:.*restored:RuntimeWarning")
def test_the_next_writer_goes_on_from_the_old_content(path, name):
    sound = path.with_name("sound.blp")
    sound.write_bytes(OLD)
    for each in (path, sound):
        WRITERS[name](each)
    assert sound.read_bytes() == path.read_bytes()


class Restore(Operation):
    """Restore a file, and nothing else."""

    def prepare(self, folder):
        pack(folder / TARGET, numbers(5500))
        content = (folder / TARGET).read_bytes()
        (folder / TARGET).write_bytes(half_changed(content))

    def run(self, folder, inputs):
        path = folder / TARGET
        with pytest.warns(RuntimeWarning, match="restored"):
            bp.append_bytes_to_file(b"", path)


def test_a_crash_while_the_file_is_restored(tmp_path):
    assert check_operation(Restore(), tmp_path, 6).different >= 8


# File objects of the caller, and errors


@pytest.fixture(params=["memory", "raw", "buffered"])
def steps(request, tmp_path):
    """Yield a file object over OLD, and the object that counts its steps."""
    if request.param == "memory":
        fp = InMemory(OLD)
        fp.begin()
        yield fp, fp
        return
    (tmp_path / TARGET).write_bytes(OLD)
    with OnDisk(tmp_path / TARGET, "r+") as raw:
        raw.begin()
        yield (io.BufferedRandom(raw) if request.param == "buffered" else raw), raw


@pytest.mark.parametrize("most", [7, 2**30])
@pytest.mark.parametrize("error", [OSError(28, "No space left"), Stop()], ids=repr)
@pytest.mark.parametrize("change", [grow, replace_metadata])
def test_every_step_of_a_file_object_fails(steps, change, error, most):
    fp, counting = steps
    for step in range(0, 4000, 1 if most > 7 else 61):
        counting.begin(step, most, error)
        try:
            change(fp)
        except OSError:
            assert OLD == counting.content(), step
        except Stop:  # it may come behind the commit
            if OLD != counting.content():
                break
        else:
            break
    assert counting.content() != OLD
    assert verify_content(counting.content())


def verify_content(content):
    return verify_fp(io.BytesIO(content)).ok and not has_undo_record(content)


# The module that changes a file in place.
UNDO = os.path.join("_commit", "undo.py")


def interrupted_at(line, work):
    """Return whether `Stop` was raised at a line, or a call, of `UNDO`."""
    left = line

    def trace(frame, event, argument):
        nonlocal left
        if not frame.f_code.co_filename.endswith(UNDO):
            return None
        left -= event in ("line", "call")
        if left == 0 and event in ("line", "call"):
            raise Stop
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except Stop:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:.*restored:RuntimeWarning")
@pytest.mark.parametrize("kind", ["path", "file object"])
def test_interruption_at_every_line(tmp_path, kind):
    """After Ctrl-C, wherever it comes, the file has its old content, or its new one."""
    path, line = tmp_path / TARGET, 0
    change = WRITERS["metadata" + " of a file object" * (kind == "file object")]
    path.write_bytes(OLD)
    while interrupted_at(line := line + 1, lambda: change(path)):
        found = bp.info(path).user_metadata
        assert found in ({"a": 1}, {"a": 3}), line
        assert ARRAY.tobytes() == bp.unpack_bytes_from_file(path)[0]
        assert found == {"a": 3} or OLD == path.read_bytes(), line
        path.write_bytes(OLD)
    assert line > 80
    assert {"a": 3} == bp.info(path).user_metadata


class Interrupting(WatchedDisk):
    """A disk that is interrupted after some of its calls, which are numbered."""

    def __init__(self, *numbers):
        self.numbers, self.count = numbers, 0

    def _after(self, result):
        self.count += 1
        if self.count in self.numbers:
            raise Stop
        return result

    def do(self, kind, call, *arguments):
        return self._after(super().do(kind, call, *arguments))

    def do_write(self, raw, data, call, offset):
        return self._after(call(data))


@pytest.mark.filterwarnings("ignore:.*restored:RuntimeWarning")
def test_a_second_interruption_while_the_first_is_handled(tmp_path):
    path, tried = tmp_path / TARGET, 0
    for first in range(2, 40):
        for second in range(first + 1, first + 20):
            path.write_bytes(OLD)
            disk = Interrupting(first, second)
            with replaced_disk(disk), contextlib.suppress(Stop):
                WRITERS["metadata"](path)
            assert bp.info(path).user_metadata in ({"a": 1}, {"a": 3}), (first, second)
            assert ARRAY.tobytes() == bp.unpack_bytes_from_file(path)[0]
            tried += disk.count >= second
    assert tried > 50


def test_what_can_not_be_undone_now(tmp_path):
    path = tmp_path / TARGET
    path.write_bytes(OLD)

    class Broken(WatchedDisk):
        count = 0

        def do_write(self, raw, data, call, offset):
            self.count += 1
            if self.count > 14:
                raise OSError(5, "Input/output error")
            return call(data)

    with replaced_disk(Broken()), pytest.raises(OSError, match="readers see") as raised:
        WRITERS["append"](path)
    assert 1 == str(raised.value).count("can't be undone now")
    assert has_undo_record(path.read_bytes())
    assert ARRAY.tobytes() == bp.unpack_bytes_from_file(path)[0]
    with pytest.warns(RuntimeWarning, match="restored"):
        WRITERS["append"](path)
    assert 200 == len(bp.unpack_ndarray_from_file(path))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_process_leaves_a_file_object(tmp_path):
    """An error in the child process is no error of the change in its parent."""
    (tmp_path / TARGET).write_bytes(OLD)
    parent = os.getpid()

    def fork(nbytes):
        if os.getpid() == parent and not children:
            children.append(os.fork())
            if not children[0]:
                raise Stop

    children = []
    with (tmp_path / TARGET).open("r+b") as fp:
        new = io.BytesIO(ROWS.tobytes())
        try:
            append_fp(fp, new, ROWS.nbytes, nthreads=1, progress=fork)
        except Stop:
            os._exit(0)
        os.waitpid(children[0], 0)
    assert 200 == len(bp.unpack_ndarray_from_file(tmp_path / TARGET))


@pytest.mark.parametrize("content", [OLD, LAST], ids=["sound", "interrupted"])
@pytest.mark.parametrize("buffering", [0, -1])
def test_file_that_only_takes_appends(tmp_path, content, buffering):
    path = tmp_path / TARGET
    path.write_bytes(content)
    with path.open("a+b", buffering) as fp, pytest.raises(UsageError, match="'a'"):
        grow(fp)
    assert content == path.read_bytes()


class Small:
    """A file object with the methods that a change needs, or without one of them."""

    def __init__(self, content, *methods):
        self._fp = io.BytesIO(content)
        for name in ("read", "write", "seek", "tell", "seekable", *methods):
            setattr(self, name, getattr(self._fp, name))


def test_file_objects_with_few_methods():
    small = Small(OLD, "truncate")
    grow(small)
    assert 200 == len(bp.unpack_ndarray_from_bytes(small._fp.getvalue()))
    small = Small(OLD, "flush")
    with pytest.raises(UsageError, match="'truncate'"):
        grow(small)
    assert OLD == small._fp.getvalue()


def test_many_unused_bytes_are_not_kept_in_memory(tmp_path):
    path = tmp_path / TARGET
    path.write_bytes(OLD)
    os.truncate(path, 2**30)  # sparse
    with pytest.warns(RuntimeWarning, match="dropping '1073"):
        bp.append_ndarray_to_file(ROWS, path, **SETTINGS)
    assert 200 == len(bp.unpack_ndarray_from_file(path))
    assert path.stat().st_size < 10**5


# What is changed in a copy, and names


@pytest.mark.parametrize(
    "plain", [b"", b"no length" * 500], ids=["no chunks", "unknown length"]
)
def test_files_that_are_changed_in_a_copy(tmp_path, plain):
    """A crash in the middle of a change in place would leave a damaged file."""
    path = tmp_path / TARGET
    content = bytearray(bp.pack_bytes_to_bytes(plain, 1000, [1], offsets=False))
    if plain:
        struct.pack_into("<iq", content, 12, -1, -1)
    else:
        del content[-20:]  # an empty chunk and its digest
        struct.pack_into("<iiq", content, 8, 0, 0, 0)
    path.write_bytes(content)

    class NotInPlace(WatchedDisk):
        def do_write(self, raw, data, call, offset):
            assert content == path.read_bytes()
            return call(data)

    with replaced_disk(NotInPlace()):
        bp.append_bytes_to_file(b"more", path)
        assert (plain + b"more", [1]) == bp.unpack_bytes_from_file(path)
        path.write_bytes(content)
        rewrite_metadata(path, [2])
        assert (plain, [2]) == bp.unpack_bytes_from_file(path)
    assert [TARGET] == os.listdir(tmp_path)


def test_hard_links(tmp_path):
    """A change in place is that of both names; only a copy would break the link."""
    path, link = tmp_path / TARGET, tmp_path / "link"
    path.write_bytes(OLD)
    os.link(path, link)
    WRITERS["append"](path)
    assert os.path.samefile(path, link)
    assert 200 == len(bp.unpack_ndarray_from_file(link))
    before = path.read_bytes()
    with pytest.raises(UsageError, match="'2' hard links and can't be") as raised:
        rewrite_metadata(path, list(range(9999)), grow=True)
    assert str(path) == raised.value.filename
    assert "Remove the other links" in str(raised.value)
    assert before == link.read_bytes()
    assert {TARGET, "link"} == {*os.listdir(tmp_path)}


NAMES = ["x" * 255, "ä" * 127, ".hidden", "a b\n", "-rf", "x.journal"]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name[:9])
def test_names(tmp_path, name):
    (tmp_path / name).write_bytes(OLD)
    WRITERS["append"](tmp_path / name)
    (tmp_path / "link").symlink_to(name)
    WRITERS["append"](tmp_path / "link")
    assert 270 == len(bp.unpack_ndarray_from_file(tmp_path / name))
    assert {name, "link"} == {*os.listdir(tmp_path)}
