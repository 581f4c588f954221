"""Archives: what `verify` finds, what readers notice, and that nothing is silent."""

from __future__ import annotations

import io
import json
import re
import struct
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest

import bloscpack as bp
from bloscpack._check import rebuild
from bloscpack.exceptions import FormatError, NotReadable, Unsupported, UsageError

ARRAYS = {
    "a": np.arange(50),
    "b": np.arange(60.0),
    "step": np.array(1.5),
    "stop": np.array(2),
    "group/x": np.arange(5).reshape(5, 1),
}


@pytest.fixture(scope="module")
def content():
    fp = io.BytesIO()
    bp.savez(fp, **ARRAYS)
    return fp.getvalue()


@pytest.fixture
def path(tmp_path, content):
    (tmp_path / "a.zip").write_bytes(content)
    return tmp_path / "a.zip"


def verified(data):
    return bp.verify.verify_fp(io.BytesIO(data))


def kinds(report):
    return {(finding.kind, finding.member) for finding in report.findings}


def read(data):
    with bp.loadz(data) as archive:
        return {name: array.read().tobytes() for name, array in archive.items()}


def without_list(data):
    """Return an archive whose group has another attribute in place of the list."""
    old = member(data, "zarr.json")
    new = old.replace(b"bloscpack-members", b"another-attribute")
    for before, after in ((old, new), (crc32_of(old), crc32_of(new))):
        assert before in data
        data = data.replace(before, after)
    return data


def crc32_of(content):
    return struct.pack("<I", zlib.crc32(content))


# Sound archives


def test_sound(path, content):
    report = bp.verify(path)
    assert (True, [], 0, 0) == (
        *(report.ok, report.findings),
        *(report.nerrors, report.nnotes),
    )
    nbytes = sum(array.nbytes for array in ARRAYS.values())
    assert (5, 5, nbytes, nbytes, len(content)) == (
        *(report.nchunks, report.nintact),
        *(report.nbytes, report.nbytes_intact, report.cbytes),
    )


def test_sound_archives_of_other_forms(content):
    fp = io.BytesIO()
    bp.savez(fp)
    assert [] == verified(fp.getvalue()).findings
    assert [] == verified(without_list(content)).findings
    assert read(content) == read(without_list(content))
    assert {("gap", None)} == kinds(verified(b"in front" + content))
    assert verified(b"in front" + content).ok


def test_another_writer(content):
    """Its other fields are notes: they change no array."""
    fp = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as source,
        zipfile.ZipFile(fp, "w") as target,
    ):
        for name in source.namelist():
            target.writestr(name, source.read(name))
        target.writestr("notes.txt", "text")
        target.writestr("other/zarr.json", '{"node_type": "group", "zarr_format": 3}')
    report = verified(fp.getvalue())
    assert report.ok
    assert {("fields", "group/zarr.json"), ("fields", None)} == kinds(report)


def test_other_zip_files_are_no_archives(tmp_path):
    np.savez(tmp_path / "a.npz", a=[1])
    with pytest.raises(NotReadable):
        bp.verify(tmp_path / "a.npz")


# Damage


def rewritten(data, changes):
    """Return an archive with other members, as another program would write it."""
    fp = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as source,
        zipfile.ZipFile(fp, "w") as target,
    ):
        members = {name: source.read(name) for name in source.namelist()} | changes
        for name, content in members.items():
            if content is not None:
                target.writestr(name, content)
    return fp.getvalue()


def member(data, name):
    return zipfile.ZipFile(io.BytesIO(data)).read(name)


# The samples of tests/invalid have others.
OTHER_GROUP = b'{"zarr_format": 2, "node_type": "group"}'
CHANGES = {
    "chunks": (lambda data: {"a/c/0": None}, ("missing", "a/c/0"), "a"),
    "scalar": (lambda data: {"step.blp": None}, ("missing", "step.blp"), "step"),
    "size": (lambda data: {"a/c/0": member(data, "b/c/0")}, ("later", "a/c/0"), "a"),
    "chunks, no list": (
        lambda data: {
            "a/c/0": None,
            "zarr.json": member(without_list(data), "zarr.json"),
        },
        ("missing", "a/zarr.json"),
        "a",
    ),
    "no group": (
        lambda data: {"group/zarr.json": OTHER_GROUP},
        ("document", "group/zarr.json"),
        "",
    ),
    "exchanged": (
        lambda data: {
            "a/c/0": member(data, "b/c/0"),
            "b/c/0": member(data, "a/c/0"),
        },
        ("document", "b/zarr.json"),
        "b",
    ),
    "no shard": (
        lambda data: {"a/c/0": bp.pack_ndarray_to_bytes(ARRAYS["a"])},
        ("document", "a/zarr.json"),
        "",
    ),
    "no array": (
        lambda data: {"a/c/0": bp.pack_bytes_to_bytes(b"text")},
        ("chunks", "a/c/0"),
        "a",
    ),
    "no file": (lambda data: {"step.blp": bytes(9)}, ("chunks", "step.blp"), "step"),
}


@pytest.mark.parametrize(("change", "found", "name"), CHANGES.values(), ids=CHANGES)
def test_changed_members(content, change, found, name):
    """Findings name the member; readers of the array get an error."""
    data = rewritten(content, change(content))
    report = verified(data)
    assert not report.ok
    assert found in kinds(report)
    with bp.loadz(data) as archive:
        assert set(ARRAYS) == set(archive)
        if name:
            with pytest.raises((FormatError, UsageError)):
                archive[name].read()


def test_a_member_that_holds_bytes_is_no_damage(content):
    report = verified(rewritten(content, {"step.blp": bp.pack_bytes_to_bytes(b"text")}))
    assert report.ok
    assert ("unsupported", "step.blp") in kinds(report)
    archive = bp.loadz(rewritten(content, {"s.blp": bp.pack_bytes_to_bytes(b"text")}))
    with archive, pytest.raises(Unsupported, match="bytes and no array"):
        archive["s"].read()


def test_members_that_are_not_of_the_archive(content):
    """They may be compressed: they are not read."""
    fp = io.BytesIO(content)
    with zipfile.ZipFile(fp, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("README.md", "text" * 100)
    report = verified(fp.getvalue())
    assert report.ok
    assert ("other", "README.md") in kinds(report)


def test_a_damaged_chunk(content):
    """The chunk is named, at its offset in the archive."""
    shard = member(content, "b/c/0")
    offset, _ = struct.unpack_from("<QQ", shard, len(shard) - 20)
    at = content.index(shard) + offset + 20
    data = bytearray(content)
    data[at] ^= 1
    report = verified(bytes(data))
    assert ("crc32", "b/c/0") in kinds(report)
    found = [f for f in report.findings if f.kind == "digest"]
    assert [(0, "b/c/0", (0, 60))] == [(f.chunk, f.member, f.rows) for f in found]
    assert found[0].extent[0] <= at < found[0].extent[1]
    assert (5, 4) == (report.nchunks, report.nintact)


def test_a_name_that_is_there_twice(content):
    """The last entry counts; the other one is noted."""
    fp = io.BytesIO(content)
    with zipfile.ZipFile(fp, "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("a/c/0", file.read("a/c/0"))
    report = verified(fp.getvalue())
    assert report.ok
    assert ("replaced", "a/c/0") in kinds(report)


@pytest.mark.parametrize("kept", [10, 1000, -1, -22, -60])
def test_cut_off(content, kept):
    report = verified(content[:kept] + b"" if kept != 10 else content[:45])
    assert {("directory", None)} == kinds(report)
    assert not report.ok


def places(content):
    """Return the extents of directory and local headers, and samples of the rest."""
    start = content.index(b"PK\x01\x02")
    bits = [*range(8 * start, 8 * len(content), 29)]
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        for info in file.infolist():
            at = info.header_offset
            size = 50 + len(info.filename)
            bits += range(8 * at + len(bits) % 23, 8 * (at + size), 23)
    return sorted({*bits, *range(0, 8 * start, 2003)})


@pytest.mark.full
@pytest.mark.parametrize("listed", [True, False])
def test_flipped_bits(content, listed):
    """Each yields a finding; readers notice each that renames or changes an array."""
    data = content if listed else without_list(content)
    expected = read(data)
    for bit in places(data):
        other = bytearray(data)
        other[bit // 8] ^= 1 << bit % 8
        try:
            report = verified(bytes(other))
        except Unsupported as error:  # compressed or divided, it says
            with pytest.raises(Unsupported, match=re.escape(error.message)):
                read(bytes(other))
            continue
        assert report.findings, bit
        try:
            found = read(bytes(other))
        except (FormatError, UsageError):
            continue
        if listed or report.ok:
            assert expected == found, bit
        for name in found:
            assert expected[name] == found[name]


# The command


def test_command(path, run):
    code, said, _ = run("verify", path)
    assert 0 == code
    assert ": ok (5 chunks, " in said
    data = rewritten(path.read_bytes(), {"a/c/0": None})
    path.write_bytes(data)
    code, said, _ = run("verify", path)
    assert 3 == code
    assert ": damaged (4 of 4 chunks" in said
    assert "(member 'a/c/0', section 'archive')" in said
    code, said, _ = run("verify", "--json", path)
    assert 3 == code
    (found,) = json.loads(said)
    assert not found["ok"]
    assert "a/c/0" in {finding["member"] for finding in found["findings"]}


def test_other_verbs(path, run):
    code, _, said = run("info", "--chunks", path)
    assert 2 == code
    assert "'blpk recover' saves" in said
    for verb, expected in ("info --chunks", 2), ("info", 0), ("list", 0):
        code, shown, said = run(*verb.split(), path)
        assert expected == code
        assert "archive" in shown + said


# Recovery


def recovered(data, **settings):
    """Return the result, and the new archive, in which everything is right."""
    fp = io.BytesIO()
    result = bp.recover.recover_fp(io.BytesIO(data), fp, **settings)
    report = verified(fp.getvalue())
    assert report.ok
    assert result.nchunks == report.nchunks
    with bp.loadz(fp.getvalue()) as archive:
        assert result.narrays == len(archive)
    return result, fp.getvalue()


def header_of(data, name):
    """Return where the local header of a member begins."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.getinfo(name).header_offset


def with_size(data, name, size):
    """Return an archive without a directory whose local header states a size."""
    at = header_of(data, name) + 30 + len(name) + 4
    cut = data[: data.index(b"PK\x01\x02")]
    return cut[:at] + struct.pack("<QQ", size, size) + cut[at + 16 :]


def test_a_sound_archive_stays_the_same(content):
    result, new = recovered(content)
    assert (True, 5, []) == (result.complete, 5, result.lost_members)
    assert content == new


def test_an_archive_without_its_directory(content):
    fp = io.BytesIO()
    bp.save(fp, ARRAYS, metadata={"unit": "m"})
    data = fp.getvalue()
    for end in data.index(b"PK\x01\x02"), data.index(b"PK\x01\x02") + 9, -1:
        result, new = recovered(data[:end])
        assert result.complete
        assert data == new
    assert {"unit": "m"} == bp.load(new, return_metadata=True)[1]


def test_an_archive_that_was_cut_off(content):
    """Other arrays may have been behind the end."""
    result, new = recovered(content[: header_of(content, "group/x/c/0/0")])
    assert (4, False, False) == (result.narrays, result.complete, result.certain)
    assert "lost" == result.metadata
    expected = read(content)
    del expected["group/x"]
    assert expected == read(new)


@pytest.mark.parametrize("drop", [False, True])
def test_an_array_that_was_cut_off(drop):
    """Its intact chunks are saved, as those of a file."""
    values = np.random.default_rng(1).random((1000, 5))
    fp = io.BytesIO()
    bp.savez(fp, a=np.arange(9), x=values, settings={"chunk_size": "8K"})
    data = fp.getvalue()
    end = header_of(data, "x/c/0/0") + 25_000
    result, new = recovered(data[:end], drop=drop)
    assert (2, result.nlost) == (result.narrays, len(values) * 40 // 8160 + 1 - 3)
    assert {"x/c/0/0"} == {loss.member for loss in result.losses}
    with bp.loadz(new) as archive:
        found = archive["x"].read()
        assert (archive["a"].read() == np.arange(9)).all()
    assert (values[:612] == found[:612]).all()
    assert (612 if drop else 1000) == len(found)
    assert not found[612:].any()


def test_a_damaged_member(content):
    """The others stay; a damaged document is written again."""
    for name in "a/c/0", "a/zarr.json", "group/zarr.json", "step.blp":
        data = bytearray(content)
        at = header_of(content, name) + 30 + len(name) + 20
        size = len(member(content, name))
        data[at + size - 30 : at + size - 5] = b"?" * 25
        result, new = recovered(bytes(data))
        expected, found = read(content), read(new)
        if name in ("a/c/0", "step.blp"):
            expected.pop("a" if name == "a/c/0" else "step", None)
            found.pop("a" if name == "a/c/0" else "step", None)
        assert not result.complete
        assert expected == found
        assert ("member", name) in kinds(result.report)


FOREIGN = b"chunks that another program has written"


def test_chunks_of_another_program(content):
    """They stay a later write, which only readers of datasets support."""
    result, new = recovered(rewritten(content, {"a/c/0": FOREIGN}))
    assert (5, True, []) == (result.narrays, result.complete, result.lost_members)
    assert ("later", "a/c/0") in kinds(verified(new))
    assert [FOREIGN, member(content, "a/zarr.json")] == [
        member(new, name) for name in ("a/c/0", "a/zarr.json")
    ]


@pytest.mark.parametrize(
    ("name", "chunks", "document"),
    [("a", "a/c/0", {"a/zarr.json": None}), ("step", "step.blp", {})],
)
def test_unknown_chunks_that_no_document_describes(content, name, chunks, document):
    """They are lost: no document is made up for them."""
    data = rewritten(content, {chunks: FOREIGN, **document})
    result, new = recovered(data)
    assert (False, [chunks]) == (result.complete, result.lost_members)
    assert set(ARRAYS) - {name} == set(read(new))


def test_a_damaged_local_header(content):
    """The directory shows where the member is."""
    at = header_of(content, "b/c/0")
    data = content[:at] + b"?" * 4 + content[at + 4 :]
    result, new = recovered(data)
    assert result.complete
    assert content == new


def test_garbage_between_members(content):
    at = header_of(content, "b/c/0")
    cut = content[: content.index(b"PK\x01\x02")]
    for garbage in b"?" * 1000, b"PK\x03\x04" * 1000, b"PK\x03\x04" + bytes(60):
        result, new = recovered(cut[:at] + garbage + cut[at:])
        assert result.complete
        assert content == new
        assert ("gap", None) in kinds(result.report)


@pytest.mark.parametrize("size", [0, 10, 10**6, 2**63])
def test_a_forged_size(content, size):
    """The array is saved all the same: the next header ends it."""
    result, new = recovered(with_size(content, "b/c/0", size))
    assert read(content) == read(new)
    assert ("member", "b/c/0") in kinds(result.report)


def test_a_forged_name(content, tmp_path):
    cut = content[: content.index(b"PK\x01\x02")]
    path, out = tmp_path / "damaged", tmp_path / "in" / "out"
    out.parent.mkdir()
    for old, new in (b"b/c/0", b"../b0"), (b"step.blp", b"/../.blp"):
        path.write_bytes(cut.replace(old, new, 1))
        result = bp.recover(path, out)
        assert not result.complete
        assert new.decode() in result.lost_members
        assert ("name", new.decode()) in kinds(result.report)
        assert ["out"] == [p.name for p in out.parent.iterdir()]
        assert ["damaged", "in"] == sorted(p.name for p in tmp_path.iterdir())


def test_a_damaged_name(content):
    """Without its chunks, the document of an array is not saved either."""
    at = header_of(content, "b/c/0") + 30 + len("b/c/")
    cut = content[: content.index(b"PK\x01\x02")]
    at_chunks = cut.index(b"blpk", at) + 100
    data = cut[:at] + b"x" + cut[at + 1 : at_chunks] + b"?" + cut[at_chunks + 1 :]
    result, new = recovered(data)
    assert {"b/c/x", "b/zarr.json"} <= {*result.lost_members}
    assert set(ARRAYS) - {"b"} == set(read(new))


def test_names_that_are_there_twice(content):
    """The last member counts, as in a directory."""
    cut = content[: content.index(b"PK\x01\x02")]
    fp = io.BytesIO()
    bp.savez(fp, a=np.arange(50)[::-1])
    other = fp.getvalue()
    again = other[: header_of(other, "zarr.json")]
    result, new = recovered(cut + again)
    assert ("replaced", "a/c/0") in kinds(result.report)
    assert {**read(content), "a": ARRAYS["a"][::-1].tobytes()} == read(new)
    # An array that is in another one, and one in two forms.
    for name in b"b/c.blp", b"group.blp", b"b.blp":
        at = header_of(content, "step.blp")
        found = cut[at:].replace(b"step.blp", name, 1)
        found = found[:26] + struct.pack("<H", len(name)) + found[28:]
        result, new = recovered(cut[:at] + found)
        assert not result.complete
        found = read(new)
        assert {"a", "group/x"} <= set(found)
        assert read(content)["a"] == found["a"]


def test_a_file_full_of_local_headers():
    """Neither time nor memory nor the new file grow beyond a multiple of the file."""
    fields = 45, 0, 0, 0, 33, 0, 2**32 - 1, 2**32 - 1, 5, 0
    data = (b"PK\x03\x04" + struct.pack("<5H3I2H", *fields) + b"a/c/0") * 20_000
    tracemalloc.start()
    with pytest.raises(FormatError, match="no chunk could be saved"):
        bp.recover.recover_fp(io.BytesIO(data), io.BytesIO())
    assert tracemalloc.get_traced_memory()[1] < 50 * len(data)
    tracemalloc.stop()


def test_filled_chunks_of_all_members_are_limited(monkeypatch):
    monkeypatch.setattr(rebuild, "MIN_FILL_LIMIT", 10**6)
    monkeypatch.setattr(rebuild, "FILL_LIMIT_PER_BYTE", 0)
    values = np.random.default_rng(1).random(50_000)
    fp = io.BytesIO()
    bp.savez(fp, **dict.fromkeys("abcdef", values), settings={"chunk_size": "80K"})
    data = bytearray(fp.getvalue())
    for name in "abcdef":  # all chunks but the first
        at = header_of(fp.getvalue(), name + "/c/0") + 100_000
        data[at : at + 250_000] = bytes(250_000)
    result = bp.recover.recover_fp(io.BytesIO(data), io.BytesIO())
    filled = result.nbytes - result.report.nbytes_intact
    assert 0 < filled <= 10**6


def test_recover_command(path, run, tmp_path):
    content = path.read_bytes()
    path.write_bytes(content[: content.index(b"PK\x01\x02")])
    code, said, _ = run("recover", path, tmp_path / "new.zip")
    assert 0 == code
    assert "5 arrays, 5 of 5 chunks saved" in said
    assert content == (tmp_path / "new.zip").read_bytes()
    path.write_bytes(content[: header_of(content, "group/x/c/0/0") + 30])
    code, said, _ = run("recover", "--json", path, tmp_path / "some.zip")
    assert 3 == code
    assert (4, "lost") == (json.loads(said)["narrays"], json.loads(said)["metadata"])
    code, said, _ = run("recover", path, tmp_path / "rest.zip")
    assert "the document of the group is lost" in said


@pytest.mark.full
def test_flipped_bits_of_names_in_the_directory(tmp_path):
    """The local headers, and the list in the group, have the right names."""
    path, saved = tmp_path / "a.zip", tmp_path / "b.zip"
    arrays = {"arr_%d" % i: np.arange(20.0) + i for i in range(3)}
    bp.savez(path, **arrays, s=np.float64(5))
    raw = path.read_bytes()
    start = raw.index(b"PK\1\2")
    names = re.finditer(rb"(arr_[012]|s)[a-z0-9/.]*(json|/0|blp)", raw[start:])
    for place in [start + at for match in names for at in range(*match.span())]:
        for bit in range(0, 8, 3):
            content = bytearray(raw)
            content[place] ^= 1 << bit
            path.write_bytes(content)
            recovery = bp.recover(path, saved)
            assert recovery.certain
            found = bp.load(saved)
            assert {*arrays, "s"} == {*found}
            for name, array in arrays.items():
                assert array.tolist() == found[name].tolist()
            saved.unlink()


def test_losses_of_two_members_are_added():
    values = np.random.default_rng(1).random((1000, 5))
    fp = io.BytesIO()
    bp.savez(fp, a=values, b=values, c=np.arange(9), settings={"chunk_size": "8K"})
    data = bytearray(fp.getvalue())
    for name in "a/c/0/0", "b/c/0/0":
        at = header_of(data, name) + 20_000
        data[at : at + 4] = b"????"
    result, _ = recovered(data)
    assert (2, False) == (result.nlost, result.complete)
