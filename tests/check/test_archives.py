"""Archives: what `verify` finds, what readers notice, and that nothing is silent."""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
import zlib

import numpy as np
import pytest

import bloscpack as bp
from bloscpack import dataset
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
    "document": (lambda data: {"a/zarr.json": None}, ("missing", "a/c/0"), "a"),
    "group": (lambda d: {"group/zarr.json": None}, ("missing", "group/zarr.json"), ""),
    "no JSON": (lambda data: {"a/zarr.json": b"{"}, ("document", "a/zarr.json"), "a"),
    "no group": (
        lambda data: {"group/zarr.json": OTHER_GROUP},
        ("document", "group/zarr.json"),
        "",
    ),
    "shape": (
        lambda data: {
            "a/zarr.json": member(data, "a/zarr.json").replace(b"[50]", b"[51]", 1)
        },
        ("document", "a/zarr.json"),
        "a",
    ),
    "byte order": (
        lambda data: {
            "a/zarr.json": member(data, "a/zarr.json").replace(b"little", b"big", 1)
        },
        ("document", "a/zarr.json"),
        "a",
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
        lambda data: {"step.blp": bp.pack_bytes_to_bytes(b"plain")},
        ("chunks", "step.blp"),
        "step",
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


def test_recover_says_how(path, run, tmp_path):
    with pytest.raises(UsageError, match="is an archive of several arrays"):
        bp.recover(path, tmp_path / "out")
    code, _, said = run("recover", path, tmp_path / "out")
    assert 2 == code
    assert "extract it with 'unzip'" in said
    assert not (tmp_path / "out").exists()
    for verb, expected in ("info --chunks", 2), ("info", 0), ("list", 0):
        code, shown, said = run(*verb.split(), path)
        assert expected == code
        assert "archive" in shown + said


def test_chunks_of_a_damaged_archive_are_saved(tmp_path, run):
    """As docs/damage.rst says."""
    path, folder = tmp_path / "a.zip", tmp_path / "a"
    values = np.random.default_rng(1).random(5000)
    bp.savez(path, x=values, settings={"chunk_size": "8K"})
    content = path.read_bytes()
    damaged = content[:20000] + b"?" * 9 + content[20009:]
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        archive.extractall(folder)
    # unzip writes damaged members, too; zipfile does not.
    shard = folder / "x" / "c" / "0"
    at = content.index(shard.read_bytes())
    shard.write_bytes(damaged[at : at + shard.stat().st_size])
    code, said, _ = run("recover", folder, tmp_path / "new")
    assert 3 == code
    assert "4 of 5 chunks saved" in said
    with dataset.open(tmp_path / "new") as group:
        assert 3976 == np.count_nonzero(group["x"][:] == values)


def test_an_archive_that_was_compressed_again(path, run):
    fp = io.BytesIO()
    with (
        zipfile.ZipFile(path) as source,
        zipfile.ZipFile(fp, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            target.writestr(name, source.read(name))
    path.write_bytes(fp.getvalue())
    with pytest.raises(Unsupported, match=r"by ZIP itself.*deflate.*zip -0"):
        bp.verify(path)
    code, _, said = run("verify", path)
    assert 1 == code
    assert "deflate" in said
