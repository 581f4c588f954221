"""The trailer of a Zarr shard: what `verify` says about it, and `recover` restores."""

from __future__ import annotations

import io
import struct
import threading

import numpy as np
import pytest
from crash.watched_disk import WatchedDisk, replaced_disk

import bloscpack as bp
from bloscpack.file_io import CompressedFPSource
from bloscpack.recover import recover_fp
from bloscpack.verify import verify_fp

SEPARATOR = b"shard\0\0\0"
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


@cases
@pytest.mark.parametrize("nbytes", [8, 16, 24])
def test_zeros_in_the_place_of_the_separator_are_damage(case, nbytes):
    """They are not what an append has left, if the index is intact."""
    content = shard(**case)
    start = content.index(SEPARATOR)
    nbytes = min(nbytes, len(content) - start - 20)  # an entry and the checksum
    found = report(content[:start] + bytes(nbytes) + content[start + nbytes :])
    assert {"trailer"} == {f.kind for f in found.findings}
    assert not found.ok


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
    "bytes behind": (lambda c, s: c + b"x" * 16, "'16' bytes lie behind the shard"),
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


def test_other_bytes_behind_a_shard_are_the_only_finding():
    """Neither the index nor the copy is called damaged."""
    for content in (shard(), shard(ROWS[:64])):
        found = report(content + b"hello").findings
        assert ["'5' bytes lie behind the shard index, where Zarr looks for it"] == [
            finding.message for finding in found
        ]


def test_recover_tells_about_a_file_behind_a_shard():
    content = shard()
    found = recover_fp(io.BytesIO(content + content), io.BytesIO(), nthreads=1)
    assert not found.complete
    assert any("byte %d" % len(content) in remark for remark in found.remarks)


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
    (note,) = found[0].findings
    assert ("left-over", "note") == (note.kind, note.severity)


class Counting(io.BytesIO):
    """Counts the reads and the bytes that they return."""

    reads = nbytes = 0

    def readinto(self, view):
        size = super().readinto(view)
        self.reads, self.nbytes = self.reads + 1, self.nbytes + size
        return size

    def read(self, size=-1):
        found = super().read(size)
        self.reads, self.nbytes = self.reads + 1, self.nbytes + len(found)
        return found


@pytest.mark.parametrize("end", [b"", bytes(600_000)], ids=["no end", "long end"])
@pytest.mark.parametrize("behind", [b"", bytes(24)], ids=["nothing", "an index"])
def test_many_separators_take_no_time(behind, end):
    """A lost header makes `verify` search for the trailer: only at so many places."""
    counts = []
    for count in (20_000, 40_000):
        fp = Counting(b"?" * 32 + shard()[32:] + (SEPARATOR + behind) * count + end)
        assert not verify_fp(fp, nthreads=1).ok
        counts.append((fp.reads, fp.nbytes))
    assert counts[1][0] < 2.3 * counts[0][0]
    assert counts[1][1] < 2.3 * counts[0][1]
