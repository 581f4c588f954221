"""The trailer of a Zarr shard: what `verify` says about it, and `recover` restores."""

from __future__ import annotations

import io
import struct
import threading

import numpy as np
import pytest
from crash.watched_disk import WatchedDisk, replaced_disk

import bloscpack as bp
from bloscpack._format.shard import SEPARATOR
from bloscpack._storage import base
from bloscpack._storage.base import MemoryStorage
from bloscpack.exceptions import StorageError
from bloscpack.file_io import CompressedFPSource
from bloscpack.recover import recover_fp
from bloscpack.verify import verify_fp

ROWS = np.arange(70, dtype="<i4").reshape(35, 2)


def shard(rows=ROWS, **settings):
    """Return a shard of inner chunks of ten rows."""
    settings = {"chunk_size": 80, "max_app_chunks": 2, **settings}
    return bp.pack_ndarray_to_bytes(rows, shard=True, **settings)


def report(content):
    return verify_fp(io.BytesIO(content), nthreads=1)


def recovered(content):
    out = io.BytesIO()
    recover_fp(io.BytesIO(content), out, nthreads=1)
    return out.getvalue()


CASES = {
    "short": {},
    "full": {"rows": ROWS[:30]},
    "one": {"rows": ROWS[:3]},
    "empty": {"rows": ROWS[:0]},
    "no room": {"max_app_chunks": 0},
    "adler32": {"checksum": "adler32"},
}
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@cases
def test_a_shard_has_no_findings(case):
    assert [] == report(shard(**case)).findings


@pytest.mark.full
@cases
def test_every_flipped_bit_is_reported(case):
    content = shard(**case)
    start = content.index(SEPARATOR)
    for position in range(start, len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[position] ^= 1 << bit
            found = report(bytes(changed))
            assert not found.ok, (position - start, bit)
            assert found.nintact == found.nchunks
            assert {"shard"} == {f.section for f in found.findings}


@cases
def test_every_length_is_reported(case):
    content = shard(**case)
    start = content.index(SEPARATOR)
    for end in range(start + 1, len(content)):
        found = report(content[:end])
        assert not found.ok
        assert found.nintact == found.nchunks
    found = report(content[:start])
    assert found.ok
    assert ["no-trailer"] == [f.kind for f in found.findings]


def test_a_shard_that_was_cut_off_is_truncated():
    """No other program has changed the file."""
    content = shard()
    fp = io.BytesIO(content)
    CompressedFPSource(fp)  # it stops at the first chunk
    for end in range(fp.tell(), content.index(SEPARATOR)):
        found = [f for f in report(content[:end]).findings if f.section == "shard"]
        assert [("error", "truncated")] == [(f.severity, f.kind) for f in found]


@cases
def test_recover_restores_the_trailer(case):
    content = shard(**case)
    start = content.index(SEPARATOR)
    assert content == recovered(content)
    assert content == recovered(content[:start])
    assert content == recovered(content[:-1])
    changed = bytearray(content)
    changed[start + 1] ^= 1
    assert content == recovered(bytes(changed))


@cases
def test_a_wrong_entry_of_the_offset_table_hides_no_trailer(case):
    """Also if the index is damaged: the padded copy does not become a chunk."""
    content = shard(**case)
    start = content.index(SEPARATOR)
    found = CompressedFPSource(io.BytesIO(content))
    last = struct.pack("<q", found.offsets[-1])
    table = content.index(last) + 7
    wrong = content[:table] + b"\1" + content[table + 1 : -1]
    checked = report(wrong)
    errors = [f for f in checked.findings if f.severity == "error"]
    assert {"offsets", "shard"} == {f.section for f in errors}
    assert checked.nchunks == checked.nintact == len(found.offsets)
    assert content == recovered(wrong)
    assert content[:start] == recovered(wrong)[:start]


@pytest.mark.parametrize("at", [5, 20, 40])
def test_recover_with_a_damaged_beginning(at):
    """The padded copy does not become a chunk of its own."""
    content = bytearray(shard())
    content[at] ^= 0xFF
    found = recover_fp(io.BytesIO(bytes(content)), io.BytesIO(), nthreads=1)
    assert 4 == found.nsaved == found.nchunks


def test_lost_chunk_is_filled_in():
    content = bytearray(shard())
    second = struct.unpack_from("<q", content, content.index(b"\xff" * 16) - 24)[0]
    content[second + 20] ^= 1
    new = recovered(bytes(content))
    assert ["recovered"] == [finding.kind for finding in report(new).findings]


MESSAGES = {
    "separator": (
        lambda c, s: c[:s] + b"x" + c[s + 1 :],
        "expected the trailer of a Zarr shard, found bytes that begin b'xhard",
    ),
    "crc": (
        lambda c, s: c[:-1] + bytes([c[-1] ^ 1]),
        "the checksum of the shard index is '",
    ),
    "cut": (
        lambda c, s: c[: s + 12],
        "expected a shard index of '100' bytes behind the chunks, found '4'",
    ),
    "zeros behind": (lambda c, s: c + bytes(16), "the checksum of the shard index"),
    "copy": (
        lambda c, s: c[: s + 30] + bytes([c[s + 30] ^ 1]) + c[s + 31 :],
        "the padded copy of the last chunk is damaged: ",
    ),
}


@pytest.mark.parametrize(("change", "message"), MESSAGES.values(), ids=MESSAGES)
def test_messages(change, message):
    content = shard()
    found = report(change(content, content.index(SEPARATOR)))
    assert not found.ok
    assert any(f.message.startswith(message) for f in found.findings)


def test_a_stale_trailer_is_damage():
    """A program that does not know shards may leave the old one behind the chunks."""
    content = shard()
    trailer = content[content.index(SEPARATOR) :]
    longer = shard(np.concatenate([ROWS, ROWS[:3]]))
    stale = longer[: longer.index(SEPARATOR)] + trailer
    kinds = {(f.section, f.severity) for f in report(stale).findings}
    assert {("shard", "error")} == kinds


def test_another_file_behind_a_shard_is_named():
    content = shard()
    kinds = [f.kind for f in report(content + content).findings]
    assert "another" in kinds


def test_chunks_of_other_sizes():
    fp = io.BytesIO(shard(ROWS[:3]))
    packed = bp.pack_bytes_to_bytes(
        bytes(80),
        40,
        {"container": "numpy", "dtype": "'<i4'", "shape": [10, 2], "shard": 7},
    )
    fp = io.BytesIO(packed)
    found = verify_fp(fp, nthreads=1)
    assert ["no-trailer"] == [f.kind for f in found.findings]
    assert "but it has other chunks: " in found.findings[0].message


def test_recover_tells_about_a_file_behind_a_shard():
    content = shard()
    found = recover_fp(io.BytesIO(content + content), io.BytesIO(), nthreads=1)
    assert not found.complete
    assert any("byte %d" % len(content) in remark for remark in found.remarks)


def test_many_separators_take_no_time():
    """A lost header makes `verify` search for the trailer: only so many places."""
    from bloscpack._check.trailer import MAX_CANDIDATES, _search

    class Counted(MemoryStorage):
        reads = 0

        def read_into(self, view, offset):
            self.reads += 1
            return super().read_into(view, offset)

    storage = Counted(SEPARATOR * 100_000)
    assert None is _search(storage)
    assert storage.reads < 20 * MAX_CANDIDATES


def test_hostile_separators_are_read_a_few_times_only():
    """Each is followed by a possible index, which is the rest of the file."""
    from bloscpack._check.trailer import MAX_CANDIDATES, MAX_TIMES_READ, _search

    class Counted(MemoryStorage):
        nbytes = 0

        def read_into(self, view, offset):
            self.nbytes += len(view)
            return super().read_into(view, offset)

    content = bytes(600_000) + (SEPARATOR + bytes(24)) * (2 * MAX_CANDIDATES)
    middle = bytes(600_000 - 4)
    storage = Counted(content + middle)
    assert None is _search(storage)
    assert storage.nbytes < (MAX_TIMES_READ + 2) * storage.size
    # The first candidate is never left out.
    intact = shard(max_app_chunks=5000)
    storage = Counted(content + middle + intact)
    assert len(content + middle) + intact.index(SEPARATOR) == _search(storage)


def test_search_reads_a_long_index_in_parts(monkeypatch):
    from bloscpack._check import trailer

    class Counting(MemoryStorage):
        longest = 0

        def read_at(self, offset, nbytes):
            self.longest = max(self.longest, nbytes)
            return super().read_at(offset, nbytes)

    for module in (trailer, base):
        monkeypatch.setattr(module, "READ_SIZE", 100)
    content = shard(max_app_chunks=50)
    storage = Counting(content)
    assert content.index(SEPARATOR) == trailer._search(storage)
    assert storage.longest < 120


def test_search_across_blocks(monkeypatch):
    from bloscpack._check import trailer

    content = shard()
    for size in (len(content), 100, 37, 8, 1):
        monkeypatch.setattr(trailer, "READ_SIZE", size)
        found = trailer._search(MemoryStorage(content))
        assert content.index(SEPARATOR) == found


def test_a_shard_that_is_cut_off_while_it_is_checked():
    class Shrinking(MemoryStorage):
        reads = 0

        def read_into(self, view, offset):
            self.reads += offset == self.size - 4 - 6 * 16  # of the index
            return super().read_into(view[: len(view) - 5 * (self.reads > 1)], offset)

    with pytest.raises(StorageError, match="changed while it was read"):
        verify_fp(Shrinking(shard()))


def test_an_append_that_is_in_progress(tmp_path):
    """It is committed, and the file still has the undo record behind the index."""
    path = tmp_path / "a.blp"
    path.write_bytes(shard())
    found = []

    class Watching(WatchedDisk):
        def do(self, kind, call, *arguments):
            if kind != "truncate":
                return super().do(kind, call, *arguments)
            thread = threading.Thread(target=lambda: found.append(bp.verify(path)))
            thread.start()
            thread.join(0.1)
            super().do(kind, call, *arguments)
            thread.join()
            return None

    with replaced_disk(Watching()):
        bp.append_ndarray_to_file(ROWS[:3], path)
    assert [[]] == [report.findings for report in found]
