"""Verify: what is sound is said to be so, and damage is found and named."""

from __future__ import annotations

import functools
import importlib.util
import io
import itertools
import json
import struct
import sys

import builders
import numpy
import pytest
from builders import text
from support import BLP, ShortReads, golden_files

import bloscpack as bp
from bloscpack import cli, headers
from bloscpack.constants import CNAME_AVAIL
from bloscpack.exceptions import FormatError, NotReadable, Unsupported, UsageError
from bloscpack.verify import verify, verify_fp

HAS_SNAPPY = "snappy" in CNAME_AVAIL or importlib.util.find_spec("cramjam") is not None
packed = functools.partial(
    builders.packed, chunk_size=300, free_entries=2, metadata_room=60
)


def report_on(data, **kwargs):
    return verify_fp(io.BytesIO(data), **kwargs)


def kinds(report, severity="error"):
    return [f.kind for f in report.findings if f.severity == severity]


def offsets_of(data, nchunks):
    """Return the entries of the offset table behind a header without metadata."""
    return struct.unpack_from("<%dq" % nchunks, data, 32)


def overwritten(data, offset, new):
    return data[:offset] + new + data[offset + len(new) :]


# What is sound


LOSSY = {
    entry["file"]
    for entry in golden_files()
    if entry["demand"].startswith("error for the array")
}
UNRELEASED = {
    entry["file"]
    for entry in golden_files()
    if entry["demand"].startswith("refuse or equal")
}


def test_golden_files():
    notes = {}
    for entry in golden_files():
        report = check_golden_file(entry)
        if entry["file"].startswith("v3/"):
            for finding in report.findings:
                notes.setdefault(finding.kind, []).append(entry["file"])
    assert {"no-checksum", "left-over"} == notes.keys()
    assert ["v3/H-leftover-tail-long.blp"] == notes["left-over"]


def check_golden_file(entry):
    """Verify a file and check the report; return None if no report is due."""
    name = entry["file"]
    try:
        report = verify(BLP / name, nthreads=1)
    except (NotReadable, Unsupported):
        assert name in UNRELEASED
        return None
    if name in LOSSY:
        assert {"lossy-writer"} <= set(kinds(report)) <= {"lossy-writer", "size"}, name
        assert any("releases" in f.message for f in report.findings), name
        return None
    if name in UNRELEASED and not report.ok:
        return None
    if "-codec-snappy" in name and not HAS_SNAPPY:
        assert ["codec"] == kinds(report), name
        return report
    assert [] == kinds(report), name
    assert entry["format_version"] == report.format_version, name
    assert entry["size"] == report.cbytes, name
    assert report.nchunks == report.nintact, name
    if "header" in entry and "nchunks" in entry["header"]:
        assert entry["header"]["nchunks"] == report.nchunks, name
    plain = entry.get("stored_plain", entry["expected"].get("plain"))
    if plain is not None:
        assert plain["size"] == report.nbytes, name
    return report


def test_leftovers_of_an_append_are_explained():
    report = verify(BLP / "v3/H-leftover-tail-long.blp")
    (note,) = report.findings
    assert ("left-over", "note") == (note.kind, note.severity)
    assert "an older one" in note.message
    assert (1390, 1390 + 738) == note.extent


@pytest.mark.skipif("snappy" in CNAME_AVAIL, reason="Blosc was built with snappy")
def test_missing_codec(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "cramjam", None)
    path = BLP / "old/0.16.0-codec-snappy.blp"
    report = verify(path)
    assert (["codec"], False) == (kinds(report), report.ok)
    assert report.nchunks == report.nintact
    with pytest.raises(SystemExit) as raised:
        cli.main(["verify", str(path)])
    assert 1 == raised.value.code
    assert "%s: not readable by this Blosc (" % path in capsys.readouterr().out
    # Other damage is more important.
    damaged = path.read_bytes()[:-1]
    assert {"codec", "truncated"} <= {*kinds(report_on(damaged))}


@pytest.mark.parametrize("nthreads", [1, 2, 4])
def test_threads_find_the_same(nthreads):
    plain = text(60_000)
    data = bytearray(packed(plain, chunk_size=5000))
    for offset in (2000, 20_000, 31_000):
        data[offset] ^= 1
    expected = report_on(bytes(data), nthreads=1).as_dict()
    assert 3 == expected["nerrors"]
    assert expected == report_on(bytes(data), nthreads=nthreads).as_dict()


def test_file_object_is_used_from_where_it_stands():
    fp = io.BytesIO(b"in front" + packed(text(1000)))
    fp.seek(8)
    report = verify_fp(fp)
    assert report.ok
    assert len(packed(text(1000))) == report.cbytes
    assert len(fp.getvalue()) == fp.tell()


def test_pipe():
    fp = ShortReads(packed(text(1000)))
    assert verify_fp(fp).ok


@pytest.mark.parametrize(
    ("size", "expected"),
    [(5, ["truncated"]), (31, ["truncated"]), (33, ["truncated", "missing"])],
)
def test_a_file_cut_off_inside_a_header_has_no_other_finding(size, expected):
    report = report_on(packed(text(1000), metadata={"a": 1})[:size])
    assert expected == [finding.kind for finding in report.findings]


@pytest.mark.parametrize("last", [8, 0, -1])
def test_unknown_lengths_without_a_chunk(last):
    header = headers.BloscpackHeader(nchunks=-1, chunk_size=-1, last_chunk=last)
    report = report_on(header.encode())
    if last < 1:
        assert (True, 0) == (report.ok, report.nchunks)
        return
    (finding,) = (f for f in report.findings if f.severity == "error")
    assert ("chunks", "missing") == (finding.section, finding.kind)
    assert (32, (0, last)) == (finding.offset, finding.span)


@pytest.mark.parametrize(
    ("nerrors", "nnotes", "shown"),
    [
        (0, 0, "0 errors, 0 notes"),
        (1, 2, "1 error, 2 notes"),
        (2, 1, "2 errors, 1 note"),
    ],
)
def test_report_counts_in_singular_and_plural(nerrors, nnotes, shown):
    report = report_on(bp.pack_bytes_to_bytes(b"plain"))
    report.filename, report.nerrors, report.nnotes = "a.blp", nerrors, nnotes
    assert "<Report a.blp: %s>" % shown == repr(report)


def test_report_of_a_sound_file(tmp_path):
    path = tmp_path / "sound.blp"
    path.write_bytes(packed(text(1000), metadata={"unit": "m"}))
    report = verify(path)
    assert {
        "filename": str(path),
        "findings": [],
        "nerrors": 0,
        "nnotes": 0,
        "nchunks": 4,
        "nintact": 4,
        "nbytes": 1000,
        "nbytes_intact": 1000,
        "cbytes": path.stat().st_size,
        "format_version": 3,
        "checksum": "adler32",
        "start": 0,
        "ok": True,
    } == report.as_dict()


# What is no Bloscpack file


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"b",
        b"blp",
        bytes(100),
        text(5000),
        b"blpk" + bytes(28),
        b"blpk\x07" + bytes(27),
    ],
    ids=["empty", "b", "blp", "zeros", "text", "version 0", "version 7"],
)
def test_no_bloscpack_file(data):
    with pytest.raises((NotReadable, Unsupported)):
        report_on(data)


def test_nthreads_is_checked():
    with pytest.raises(UsageError, match="nthreads"):
        report_on(packed(text(1000)), nthreads=0)


# Damage, bit by bit

META_LEVEL = 32 + 11


def harmless(data, position, bit):
    """Return whether the format gives that bit no meaning in such a file."""
    has_metadata, has_offsets = bool(data[5] & 2), bool(data[5] & 1)
    if position == META_LEVEL and has_metadata:
        return data[position] ^ 1 << bit <= 9
    # Without sections in front of the chunks, versions 2 and 3 say the same.
    return position == 4 and bit == 0 and not has_metadata and not has_offsets


METADATA = {"a": [1, 2, 3], "b": "cc"}


@pytest.mark.parametrize(
    ("nchunks", "checksum", "offsets", "metadata"),
    [
        # Each value meets each other value of another kind.
        (1, "adler32", True, METADATA),
        (2, "adler32", False, None),
        pytest.param(2, "crc32", True, None, marks=pytest.mark.slow),
        pytest.param(1, "crc32", False, METADATA, marks=pytest.mark.slow),
        pytest.param(2, "sha512", False, METADATA, marks=pytest.mark.slow),
        pytest.param(1, "sha512", True, None, marks=pytest.mark.slow),
    ],
)
def test_every_bit(nchunks, checksum, offsets, metadata):
    data = packed(
        text(100 * nchunks),
        chunk_size=120,
        checksum=checksum,
        offsets=offsets,
        metadata=metadata,
    )
    assert report_on(data).ok
    silent, noted = [], set()
    for position in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[position] ^= 1 << bit
            report = report_on(bytes(changed), nthreads=1)
            if report.ok and not report.findings:
                silent.append((position, bit))
            elif report.ok:
                noted.update(kinds(report, "note"))
    assert [] == [place for place in silent if not harmless(data, *place)]
    assert noted <= {"typesize", "room", "size"}


def test_every_bit_in_front_of_the_content_without_checksum():
    data = packed(text(200), chunk_size=120, checksum="None")
    first = offsets_of(data, 2)[0]
    for position in range(first):
        for bit in range(8):
            changed = bytearray(data)
            changed[position] ^= 1 << bit
            report = report_on(bytes(changed), nthreads=1)
            found = {f.kind for f in report.findings} - {"no-checksum"}
            assert found, (position, bit)


def test_cut_at_every_byte():
    for offsets, checksum in itertools.product([True, False], ["None", "adler32"]):
        data = packed(text(500), chunk_size=200, checksum=checksum, offsets=offsets)
        for size in range(4, len(data)):
            report = report_on(data[:size], nthreads=1)
            assert not report.ok, size
            assert report.nintact < 3


@pytest.mark.parametrize("nlayout", [0, 1, 2])
def test_old_layouts_are_cut(nlayout):
    name = {0: "old/rc2-", 1: "old/0.1.1-", 2: "old/0.2.1-"}[nlayout]
    for entry in golden_files(name)[:5]:
        data = (BLP / entry["file"]).read_bytes()
        report = report_on(data[:-1])
        assert not report.ok
        assert entry["format_version"] == report.format_version == nlayout


# Damage and its name


@pytest.mark.parametrize(
    ("offset", "new", "section", "kind"),
    [
        (0, b"BLPK", "header", "magic"),
        (4, b"\x09", "header", "version"),
        (5, b"\xff", "header", "header"),
        (6, b"\xff", "header", "header"),
        (6, b"\x04", "header", "checksum"),
        (8, b"\x2d", "chunks", "size"),
        (16, b"\x03", "header", "sections"),
        (24, b"\x03", "header", "sections"),
        (32, b"\xff" * 32, "offsets", "unfilled"),
        (40, b"\x00", "offsets", "offset"),
        (64, b"\x01", "offsets", "free-entry"),
    ],
)
def test_kinds_in_front_of_the_chunks(offset, new, section, kind):
    report = report_on(overwritten(packed(text(1000)), offset, new))
    assert (section, kind) in {(f.section, f.kind) for f in report.findings}
    assert not report.ok
    assert 4 == report.nintact


@pytest.mark.parametrize(
    ("at", "new", "kind"),
    [
        (0, b"\0", "chunk-header"),
        (20, b"\0\0\0\0", "digest"),
        (-1, b"\0", "digest"),
    ],
)
def test_kinds_in_chunks(at, new, kind):
    data = packed(text(1000))
    second, third = offsets_of(data, 4)[1:3]
    place = second + at if at >= 0 else third + at
    assert new != data[place : place + len(new)]
    (finding,) = report_on(overwritten(data, place, new)).findings
    assert ("chunks", kind, 1) == (finding.section, finding.kind, finding.chunk)
    assert second == finding.offset
    assert (second, third) == finding.extent
    assert (300, 600) == finding.span
    assert finding.rows is None


def test_content_that_blosc_cannot_read():
    data = packed(bytes(3000), chunk_size=1000, checksum="None", offsets=False)
    damaged = overwritten(data, 32 + 16, b"\xff" * 4)
    (finding,) = (f for f in report_on(damaged).findings if f.severity == "error")
    assert ("content", 0) == (finding.kind, finding.chunk)


@pytest.mark.parametrize(
    ("offset", "new", "kind"),
    [
        (32, b"J\0", "metadata-header"),
        (64, b"X", "digest"),
        (64 + 12, b"X", "room"),
    ],
)
def test_kinds_in_metadata(offset, new, kind):
    data = overwritten(packed(text(1000), metadata={"unit": "m"}), offset, new)
    found = [f.kind for f in report_on(data).findings if f.section == "metadata"]
    assert kind in found


def test_rows_of_an_array():
    array = numpy.arange(1000, dtype="<i8").reshape(100, 10)
    data = bytearray(bp.pack_ndarray_to_bytes(array, chunk_size=2000))
    intact = report_on(bytes(data))
    assert (True, 4) == (intact.ok, intact.nchunks)
    data[-1] ^= 1
    (finding,) = report_on(bytes(data)).findings
    assert (6000, 8000) == finding.span
    assert (75, 100) == finding.rows


def test_span_of_an_array_in_fortran_order():
    array = numpy.asfortranarray(numpy.arange(1000.0).reshape(100, 10))
    data = bytearray(bp.pack_ndarray_to_bytes(array, chunk_size=2000))
    data[-1] ^= 1
    (finding,) = report_on(bytes(data)).findings
    assert (6000, 8000) == finding.span
    assert finding.rows is None


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        ("'<i4'", [0, 2**62]),
        ("'<i4'", [2**62, 2**62, 0]),
        ("'<i4'", [2**63 - 1, 0]),
        ("'<i4'", [0, 2**40, 2**40, 2**40]),
        ("'|u1'", [0, 2**63 - 1]),
        ("'|u1'", [0, 2**63 - 1, 2]),
        ("'|S0'", [2**63 - 1]),
        ("'<U0'", [2**62, 2]),
        ("'|V0'", [0, 2**62]),
        ("'|u1'", [0] * 64),
        ("'|u1'", [0] * 65),
    ],
    ids=str,
)
def test_array_without_bytes_is_sound_where_it_can_be_read(dtype, shape):
    metadata = {"dtype": dtype, "shape": shape, "order": "C", "container": "numpy"}
    data = bp.pack_bytes_to_bytes(b"", metadata=metadata)
    try:
        bp.unpack_ndarray_from_bytes(data)
        expected = []
    except bp.FormatError as error:
        expected = [("metadata", "array", error.message)]
    findings = report_on(data).findings
    assert expected == [(f.section, f.kind, f.message) for f in findings]


def test_array_of_another_size():
    data = packed(
        bytes(1000), metadata={"dtype": "'<i8'", "shape": [124], "container": "numpy"}
    )
    (finding,) = report_on(data).findings
    assert ("metadata", "array") == (finding.section, finding.kind)
    assert "0.16.0" in finding.message


def test_bytes_that_are_gone_are_noticed_by_those_behind():
    data = packed(text(1000))
    second = offsets_of(data, 4)[1]
    report = report_on(data[: second + 30] + data[second + 40 :])
    assert [("chunks", 1), ("offsets", 2)] == [
        (f.section, f.chunk) for f in report.findings
    ]
    assert "start '10' bytes in front of" in report.findings[-1].message
    assert 3 == report.nintact


def test_missing_chunks_begin_behind_a_cut_chunk():
    data = packed(text(6000))
    offsets = offsets_of(data, 6)
    (missing,) = (
        f for f in report_on(data[: offsets[2] + 100]).findings if f.kind == "missing"
    )
    assert (3, offsets[2] + 100) == (missing.chunk, missing.offset)


def test_chunks_that_are_gone_are_counted():
    data = packed(text(3000), chunk_size=100)
    offsets = offsets_of(data, 30)
    damaged = overwritten(data, offsets[5], bytes(offsets[20] - offsets[5]))
    report = report_on(damaged)
    assert 15 == report.nintact
    assert (500, 600) == report.findings[0].span
    (missing,) = (f for f in report.findings if f.kind == "missing")
    assert (6, (600, 2000)) == (missing.chunk, missing.span)
    assert "chunks 6 to 19 are missing" in missing.message


def test_bytes_behind_the_last_chunk_are_a_note():
    report = report_on(packed(text(1000)) + b"more")
    assert (True, ["trailing"]) == (report.ok, kinds(report, "note"))


# Agreement with readers


def reads(data):
    """Return whether a file can be unpacked."""
    try:
        bp.unpack_bytes_from_bytes(data)
    except FormatError:
        return False
    return True


def test_readers_agree_on_a_wrong_room():
    data = packed(
        text(700),
        metadata={"a": 1},
        offsets=False,
        meta_checksum="None",
        metadata_room=200,
    )
    found = set()
    for room in (*range(190, 320), len(data), 2**31, 2**32 - 1):
        changed = overwritten(data, 48, struct.pack("<I", room))
        report = report_on(changed)
        assert report.ok == reads(changed), report.findings
        found.add(report.ok)
    assert {True, False} == found


@pytest.mark.parametrize("offsets", [True, False])
def test_digests_behind_a_file_without_digests(offsets):
    settings = bp.BloscpackArgs(checksum="None", offsets=offsets)
    alone = bp.pack_bytes_to_bytes(text(1000), bloscpack_args=settings)
    report = report_on(alone + packed(text(5000)))
    assert (True, "None") == (report.ok, report.checksum)
    assert "another" in kinds(report, "note")


def test_only_some_findings_are_kept():
    data = packed(text(3000), chunk_size=1, offsets=False)
    damaged = bytearray(data)
    damaged[32 + 16 :: 21] = bytes(len(damaged[32 + 16 :: 21]))
    report = report_on(bytes(damaged), nthreads=1)
    assert 1000 == len(report.findings) < report.nerrors


def test_nothing_but_beginnings_of_chunks():
    head = struct.pack("<BBBBIII", 2, 1, 2, 8, 2**18, 2**18, 2**18 + 16)
    data = packed(text(1000), offsets=False)[:32] + head * 50_000
    report = report_on(data, nthreads=1)
    # Each is a copy of what follows, as long as nobody asks for digests.
    assert 50_000 > 100 * report.nintact
    assert "search" in kinds(report)


def test_header_that_announces_more_than_can_be():
    data = packed(text(1000), offsets=False)
    damaged = overwritten(data, 16, struct.pack("<q", 2**60))
    report = report_on(damaged)
    assert (4, False) == (report.nintact, report.ok)
    assert report.nchunks < 2**17


# The command


def test_command_on_several_files(run, tmp_path):
    sound, damaged, other = (tmp_path / name for name in ("a.blp", "b.blp", "c"))
    sound.write_bytes(packed(text(1000)))
    damaged.write_bytes(packed(text(1000))[:-1])
    other.write_bytes(b"something else")
    code, out, err = run("verify", sound, damaged, other)
    assert 3 == code
    assert "%s: ok (4 chunks, 1000.0B)" % sound == out.splitlines()[0]
    assert out.splitlines()[1].startswith("%s: damaged (3 of 4 chunks" % damaged)
    assert "chunk 3" in out.splitlines()[2]
    # Three intact chunks of 300 bytes; the file holds 1000.
    assert out.splitlines()[1].endswith(" 900.0B good)")
    assert str(other) in err
    assert 0 == run("v", sound)[0]
    assert 1 == run("v", sound, other)[0]
    assert 1 == run("v", tmp_path / "missing")[0]


def test_command_as_json(run, tmp_path):
    sound, other = tmp_path / "a.blp", tmp_path / "c"
    sound.write_bytes(packed(text(1000)))
    other.write_bytes(b"something else")
    code, out, _ = run("-n", "1", "verify", "--json", sound, other)
    assert 1 == code
    first, second = json.loads(out)
    expected = {"file": str(sound), **verify(sound).as_dict(), "error": None}
    assert expected == first
    assert first.keys() == second.keys()
    assert (str(other), False) == (second["file"], second["ok"])
    assert str(other) == second["filename"]
    assert "magic" in second["error"]


def test_message_about_the_number_of_chunks():
    data = packed(text(1000), offsets=False)
    report = report_on(overwritten(data, 16, struct.pack("<q", 3)))
    (finding,) = (f for f in report.findings if f.kind == "nchunks")
    expected = "the header states the number of chunks '3', but the file has '4'"
    assert expected == finding.message


def report_on_table(change):
    """Verify a file of 100 chunks after ``change(i, entry)`` of its table."""
    data = bytearray(packed(text(30_000)))
    for i in range(100):
        at = 32 + 8 * i
        (entry,) = struct.unpack_from("<q", data, at)
        struct.pack_into("<q", data, at, change(i, entry))
    report = report_on(bytes(data))
    assert 100 == report.nintact
    errors = [f for f in report.findings if f.severity == "error"]
    return [(f.kind, f.chunk, f.message) for f in errors]


def test_equal_shifts_of_entries_are_one_finding():
    every = report_on_table(lambda i, entry: entry - 1)
    assert [("moved", 0)] == [found[:2] for found in every]
    some = report_on_table(lambda i, entry: entry + (1 if i < 50 else 2 * (i < 90)))
    assert [("moved", 0), ("moved", 50)] == [found[:2] for found in some]
    assert some[1][2] == (
        "the chunks from 50 to 89 start '2' bytes in front of where the offset table "
        "says"
    )
    mixed = report_on_table(lambda i, entry: entry + (i == 7) + 3 * (20 <= i < 30))
    assert {("moved", 20), ("offset", 7)} == {found[:2] for found in mixed}


def test_wrong_entries_are_not_a_flood_of_findings():
    found = report_on_table(lambda i, entry: entry + i)
    assert [("offset", i) for i in range(1, 21)] == [one[:2] for one in found]
    assert found[-1][2].endswith("; '79' more entries up to chunk 99 are wrong")
