"""Files of other formats: every way to read a file names the format that it found."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import sys
import tarfile
import zipfile

import blosc
import pytest

import bloscpack as bp
from bloscpack import cli, dataset, exceptions


def zipped() -> bytes:
    with io.BytesIO() as fp:
        with zipfile.ZipFile(fp, "w") as archive:
            archive.writestr("a", b"abc")
        return fp.getvalue()


def tarred() -> bytes:
    with io.BytesIO() as fp:
        with tarfile.open(fileobj=fp, mode="w") as archive:
            archive.addfile(tarfile.TarInfo("a"))
        return fp.getvalue()


ZIP = "a zip file; 'blpk convert' reads arrays in it, loadz those of savez"
NPY = "a .npy file; 'blpk compress --npy' packs its array"
PARQUET = "a Parquet file; 'blpk convert' reads it"
HDF5 = "an HDF5 file; 'blpk convert' reads it"
NETCDF = "a netCDF file of format 3; 'nccopy -k nc4' makes one of format 4"
FORMATS = {
    "a bare Blosc buffer": blosc.compress(b"abc" * 100, typesize=1),
    "a gzip file": gzip.compress(b"abc" * 9),
    "a zstd file": b"\x28\xb5\x2f\xfd\x04\x00\x19\x00\x00abc" * 4,
    "a bzip2 file": bz2.compress(b"abc"),
    "an xz file": lzma.compress(b"abc"),
    "an lz4 file": b"\x04\x22\x4d\x18" + bytes(30),
    ZIP: zipped(),
    NPY: b"\x93NUMPY\x01\x00" + bytes(30),
    HDF5: b"\x89HDF\r\n\x1a\n" + bytes(30),
    PARQUET: b"PAR1" + bytes(30),
    NETCDF: b"CDF\x02" + bytes(30),
    "a tar archive": tarred(),
    "a TIFF image": b"II*\x00" + bytes(30),
    "a frame of Blosc 2": b"\x9e\xa8b2frame\x00" + bytes(30),
}
READERS = {
    "open_ndarray": bp.open_ndarray,
    "open_ndarray of bytes": lambda path: bp.open_ndarray(path.read_bytes()),
    "verify": bp.verify,
    "references": bp.references,
    "append mode": lambda path: bp.open(path, "ab"),
    "info": bp.info,
    "unpack_file_from_file": lambda path: bp.unpack_file_from_file(path, "out"),
    "unpack_bytes_from_file": bp.unpack_bytes_from_file,
    "unpack_ndarray_from_file": bp.unpack_ndarray_from_file,
    "unpack_bytes_from_bytes": lambda p: bp.unpack_bytes_from_bytes(p.read_bytes()),
}
VERBS = {
    "decompress": ["d", "x.blp", "out"],
    "info": ["i", "x.blp"],
    "info, JSON": ["i", "--json", "x.blp"],
    "cat": ["cat", "x.blp"],
    "refs": ["refs", "x.blp"],
    "verify": ["verify", "x.blp"],
    "list": ["list", "x.blp"],
    "info, chunks": ["i", "--chunks", "x.blp"],
    "append": ["a", "x.blp", "new"],
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_functions(name, read, folder):
    path = folder / "x.blp"
    path.write_bytes(FORMATS[name])
    if read is bp.verify and name == "a bare Blosc buffer":
        # It may be the chunk of a file that has lost its header.
        assert "; this is " + name in str(read(path).findings[0])
        return
    with pytest.raises(exceptions.NotReadable) as caught:
        read(path)
    first = "the magic marker b'blpk' is missing from the bloscpack header, instead we"
    found = " found: %r; this is %s" % (FORMATS[name][:4], name)
    assert first + found == caught.value.message
    assert {path} == set(folder.iterdir())


@pytest.mark.parametrize("name", [HDF5, "a tar archive", PARQUET])
@pytest.mark.parametrize("arguments", VERBS.values(), ids=VERBS)
def test_verbs(name, arguments, folder, capfd, monkeypatch):
    # With this package, info and list describe the file, or say how it is damaged.
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "h5py", None)
    (folder / "x.blp").write_bytes(FORMATS[name])
    (folder / "new").write_bytes(b"abc")
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert 1 == caught.value.code
    lines = capfd.readouterr().err.splitlines()
    assert ["blpk: error: 'x.blp' is not a Bloscpack file: it is " + name] == lines


def test_verify_of_a_bare_buffer(folder, capfd):
    # It may be the chunk of a file that has lost its header.
    (folder / "x.blp").write_bytes(FORMATS["a bare Blosc buffer"])
    with pytest.raises(SystemExit) as caught:
        cli.main(["verify", "x.blp"])
    assert 3 == caught.value.code
    assert "; this is a bare Blosc buffer" in capfd.readouterr().out


FOLDERS = {
    "N5 data": ["attributes.json", "a/attributes.json", "a/0"],
    "a TileDB array": ["__schema/__1", "__fragments/__1/a.tdb"],
    "a TileDB group": ["__group/__1"],
    "an array of Zarr format 1": ["meta", "attrs", "0"],
    "a Delta table": ["_delta_log/0.json", "a.parquet"],
    "a Hudi table": [".hoodie/hoodie.properties", "a.parquet"],
}


@pytest.mark.parametrize("found", FOLDERS)
@pytest.mark.parametrize("verb", ["info", "verify", "list", "show", "convert"])
def test_folders_of_other_formats(verb, found, folder, capfd):
    for name in FOLDERS[found]:
        path = folder / "x" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"{}")
    with pytest.raises(SystemExit) as caught:
        cli.main([verb, "x", *(["o.npz"] if verb == "convert" else [])])
    assert 1 == caught.value.code
    assert ", found %s" % found in capfd.readouterr().err


FOREIGN = {
    "zarr.json": [
        {"zarr_format": "https://purl.org/zarr/spec/protocol/core/3.0"},
        {"zarr_format": 4, "node_type": "array"},
        {"zarr_format": 2},
        {"zarr_format": 3, "node_type": "table"},
    ],
    ".zarray": [{"zarr_format": 1}, {"zarr_format": 3, "shape": [1]}],
    ".zgroup": [{"zarr_format": 1}],
}


@pytest.mark.parametrize(
    ("name", "document"), [(n, d) for n, each in FOREIGN.items() for d in each]
)
@pytest.mark.parametrize("verb", ["info", "verify", "list", "show", "recover"])
def test_documents_of_other_versions_of_zarr(verb, name, document, folder, capfd):
    """They are no damage: the exit code is 1, and a group has them as a note."""
    dataset.create_group("g").close()
    (folder / "g" / "x").mkdir()
    (folder / "g" / "x" / name).write_text(json.dumps(document))
    with pytest.raises(SystemExit) as caught:
        cli.main([verb, "g/x", *(["out"] if verb == "recover" else [])])
    assert 1 == caught.value.code
    key = "zarr_format" if document["zarr_format"] != 3 or name != "zarr.json" else ""
    assert ", found '%s'" % (key or "node_type") in capfd.readouterr().err
    report = dataset.verify("g")
    assert report.ok
    assert ["unsupported"] == [each.kind for each in report.findings]


# Extensions of Zarr that the package zarr lacks, and what it says.
EXTENSIONS = [
    {"data_type": "bfloat17"},
    {"data_type": {"name": "struct9", "configuration": {}}},
    {"chunk_grid": {"name": "other", "configuration": {}}},
    {"chunk_key_encoding": {"name": "other"}},
    {"storage_transformers": [{"name": "other"}]},
    {"other": {"must_understand": True}},
    {"codecs": [{"name": "other"}]},
]


@pytest.mark.parametrize("changes", EXTENSIONS, ids=str)
def test_extensions_of_zarr_are_no_damage(changes, folder, capfd):
    pytest.importorskip("zarr", minversion="3.1.4", reason="needs zarr 3.1.4")
    regular = {"name": "regular", "configuration": {"chunk_shape": [2]}}
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [2],
        "data_type": "int32",
        "chunk_grid": regular,
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    }
    (folder / "x").mkdir()
    (folder / "x" / "zarr.json").write_text(json.dumps(document))
    assert 0 == dataset.open("x")[0]
    (folder / "x" / "zarr.json").write_text(json.dumps({**document, **changes}))
    for verb in ("info", "verify", "show"):
        with pytest.raises(SystemExit) as caught:
            cli.main([verb, "x"])
        assert 1 == caught.value.code
    with pytest.raises(exceptions.Unsupported):
        dataset.open("x")


def test_n5_data_in_a_group_is_no_lost_array(folder):
    dataset.create_group("g").close()
    (folder / "g" / "n5" / "c").mkdir(parents=True)
    for name in ("attributes.json", "c/attributes.json", "c/0"):
        (folder / "g" / "n5" / name).write_bytes(b"{}")
    assert dataset.verify("g").ok


def test_a_wrong_end_of_the_name(folder, capfd):
    (folder / "x.gz").write_bytes(FORMATS["a gzip file"])
    (folder / "plain").write_bytes(b"abc")
    for name, found in (("x.gz", "; it is a gzip file"), ("plain", "")):
        with pytest.raises(SystemExit):
            cli.main(["decompress", name])
        expected = "blpk: error: input file '%s' does not end with '.blp'" % name
        assert expected + found + "\n" == capfd.readouterr().err


def test_convert_names_the_format(folder, capfd):
    pytest.importorskip("h5py")
    for name, found in (("x.tiff", "a TIFF image"), ("x.nc", NETCDF)):
        (folder / name).write_bytes(FORMATS[found])
        with pytest.raises(SystemExit):
            cli.main(["convert", name, "x.zarr"])
        said = ", found %s (file '%s')" % (found, name)
        assert said in capfd.readouterr().err


def test_a_chunk_at_the_start_of_a_longer_file_is_no_bare_buffer():
    content = FORMATS["a bare Blosc buffer"] + b"more"
    with pytest.raises(exceptions.NotReadable) as caught:
        bp.unpack_bytes_from_bytes(content)
    assert "instead we found: %r" % content[:4] in caught.value.message
    assert "; this is" not in caught.value.message


def test_a_damaged_header(folder, capfd):
    content = bytearray(bp.pack_bytes_to_bytes(b"abc" * 99))
    content[0] ^= 32
    (folder / "x.blp").write_bytes(content)
    for verb in ("info", "cat"):
        with pytest.raises(SystemExit):
            cli.main([verb, "x.blp"])
        _, hint = capfd.readouterr().err.splitlines()
        assert "blpk: error: This might not be a bloscpack compressed file." == hint
    with pytest.raises(SystemExit, match="3"):
        cli.main(["recover", "x.blp", "new.blp"])
    assert "1 of 1 chunk saved" in capfd.readouterr().out


@pytest.mark.parametrize("program", ["gzip", "zstd", "bzip2", "xz", "lz4"])
def test_convert_names_the_program_that_decompresses(program, folder):
    name = next(name for name in FORMATS if name.split()[1] == program)
    (folder / "x.csv.z").write_bytes(FORMATS[name])
    with pytest.raises(
        exceptions.NotReadable, match="'%s -dc FILE . blpk convert" % program
    ):
        dataset.convert("x.csv.z", "t.zarr")
