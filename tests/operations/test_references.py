"""References to the chunks of a file: what qualifies, and what is written."""

import base64
import json

import blosc
import numpy as np
import pytest
from support import ROOT

import bloscpack as bp
from bloscpack import dataset, references

pytestmark = pytest.mark.usefixtures("folder")

ARRAY = np.arange(50 * 4 * 6, dtype="<f8").reshape(50, 4, 6)


def packed(name, array=ARRAY, chunk_size=8 * 24 * 7, **settings):
    settings.setdefault("checksum", "crc32")
    bp.pack_ndarray_to_file(array, name, chunk_size=chunk_size, **settings)


# The grid


# What is written


def test_each_chunk_has_a_reference_with_its_digest(folder):
    packed("a.blp")
    found = bp.references("a.blp")["refs"]
    assert {"zarr_format": 2} == json.loads(found.pop(".zgroup"))
    document = json.loads(found.pop("a/.zarray"))
    assert ([50, 4, 6], [7, 4, 6], "<f8", "C") == tuple(
        document[key] for key in ("shape", "chunks", "dtype", "order")
    )
    assert {"id": "crc32", "location": "end"} == document["compressor"]
    assert ["blosc"] == [codec["id"] for codec in document["filters"]]
    attributes = json.loads(found.pop("a/.zattrs"))
    assert {"_ARRAY_DIMENSIONS": ["dim_0", "dim_1", "dim_2"]} == attributes
    assert ["a/%d.0.0" % i for i in range(8)] == list(found)
    inline = found.pop("a/7.0.0")
    assert inline.startswith("base64:")  # one row of seven: padded
    data = (folder / "a.blp").read_bytes()
    digest = bp.checksums.CHECKSUMS_LOOKUP["crc32"]
    for path, offset, size in found.values():
        assert str(folder / "a.blp") == path
        content = data[offset : offset + size]
        assert content[-4:] == digest(content[:-4])
    padded = base64.b64decode(inline.removeprefix("base64:"))
    assert padded[-4:] == digest(padded[:-4])


def test_bytes_are_a_name(folder):
    bp.pack_ndarray_to_file(np.arange(5), "a.blp")
    assert bp.references("a.blp") == bp.references(b"a.blp")


def test_location_replaces_the_folder():
    packed("a.blp")
    for location in ("https://host/d", "https://host/d/"):
        found = bp.references("a.blp", location=location)["refs"]
        assert "https://host/d/a.blp" == found["a/0.0.0"][0]


def test_names_of_arrays():
    for name in ("a.blp", "b.npy.blp", ".blp"):
        packed(name)
    assert "a/.zarray" in bp.references("a.blp")["refs"]
    assert "b/.zarray" in bp.references("b.npy.blp")["refs"]
    assert "data/.zarray" in bp.references(".blp")["refs"]
    assert "t/.zarray" in bp.references("a.blp", name="t")["refs"]
    assert ".zarray" in bp.references("a.blp", name="")["refs"]


def test_user_metadata_become_attributes():
    packed("a.blp", metadata={"unit": "m"})
    found = bp.references("a.blp")["refs"]
    assert "m" == json.loads(found["a/.zattrs"])["unit"]
    packed("a.blp", metadata=[1])
    found = bp.references("a.blp", zarr_format=3)["refs"]
    assert {"metadata": [1]} == json.loads(found["a/zarr.json"])["attributes"]


def test_plain_file_is_an_array_of_bytes():
    bp.pack_bytes_to_file(bytes(range(250)), "a.blp", 100)
    document = json.loads(bp.references("a.blp")["refs"]["a/.zarray"])
    assert ("|u1", [250], [100]) == tuple(
        document[key] for key in ("dtype", "shape", "chunks")
    )


# What does not qualify


NESTED = np.zeros(3, [("a", [("b", "i4")])])
SUBARRAY = np.zeros(3, [("a", "i4", 2)])
TITLES = np.zeros(3, [(("title", "a"), "i4")])
NO_DTYPE = "Zarr has no data type for the dtype"


@pytest.mark.parametrize(
    ("message", "array", "options"),
    [
        ("no Zarr reader verifies digests of type 'sha256'", ARRAY, {}),
        (r"no regular grid in the shape \(50, 4, 6\)", ARRAY, {"chunk_size": 80}),
        ("a multiple of 192 bytes", ARRAY, {"chunk_size": 80}),
        ("a multiple of 1600 bytes", np.asfortranarray(ARRAY), {"chunk_size": 88}),
        (NO_DTYPE, np.zeros(3, "g"), {}),
        (NO_DTYPE, np.zeros(3, [("a", "g")]), {}),
        (NO_DTYPE, NESTED, {}),
        (NO_DTYPE, SUBARRAY, {}),
        (NO_DTYPE, TITLES, {}),
        (NO_DTYPE, np.ndarray(3, "V0"), {}),
    ],
)
def test_what_does_not_qualify(message, array, options):
    checksum = "sha256" if "sha256" in message else "adler32"
    packed("a.blp", array, checksum=checksum, **options)
    with pytest.raises(bp.UsageError, match=message) as caught:
        bp.references("a.blp")
    assert "'a.blp' can't be referenced" in str(caught.value)


def test_padding_has_a_limit(monkeypatch):
    packed("a.blp")
    assert bp.references("a.blp")
    monkeypatch.setattr(references, "MAX_PADDED", 8 * 24 * 7 - 1)
    with pytest.raises(bp.UsageError, match=r"last chunk is short .* smaller chunks"):
        bp.references("a.blp")
    packed("b.blp", ARRAY[:49])  # its last chunk has full size
    assert bp.references("b.blp")


def test_chunks_that_end_within_items():
    metadata = {"dtype": "'<f8'", "shape": [30], "order": "C", "container": "numpy"}
    bp.pack_bytes_to_file(bytes(240), "a.blp", 100, metadata)
    with pytest.raises(bp.UsageError, match="100 bytes end within items of 8 bytes"):
        bp.references("a.blp")


def test_a_folder(folder):
    dataset.create_array("a.zarr", ARRAY).close()
    for name in ("a.zarr", folder / "a.zarr"):
        with pytest.raises(bp.UsageError, match="it is a folder, and references"):
            bp.references(name)


def test_dtype_without_a_type_of_format_3():
    packed("a.blp", np.zeros(3, "M8[s]"))
    with pytest.raises(bp.UsageError, match="use format 2"):
        bp.references("a.blp", zarr_format=3)
    assert bp.references("a.blp")


def test_wrong_arguments():
    packed("a.blp")
    with pytest.raises(bp.UsageError, match="2 or 3, not 4"):
        bp.references("a.blp", zarr_format=4)
    with pytest.raises(bp.UsageError, match="dims: expected 3 names, found 2"):
        bp.references("a.blp", dims=["x", "y"])


def test_written_as_json(folder):
    packed("a.blp")
    bp.write_references(bp.references("a.blp"), "a.json")
    assert bp.references("a.blp") == json.loads((folder / "a.json").read_text())


OLD = sorted((ROOT / "tests/golden/blp/old").glob("*.blp"))
OLD = [path for path in OLD if "snappy" not in path.stem]  # a codec of old Bloscs


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_old_files(path):
    """All is read of one with an empty chunk at its end; others may be refused."""
    try:
        plain = bp.unpack_bytes_from_file(path)[0]
        found = bp.references(str(path))["refs"]
    except (bp.UsageError, bp.FormatError):
        return
    parts = []
    for value in found.values():
        if isinstance(value, list):
            with open(path, "rb") as file:
                file.seek(value[1])
                frame = file.read(value[2])
            size = int.from_bytes(frame[12:16], "little")  # the digest is behind it
            parts.append(blosc.decompress(frame[:size]))
    assert plain.startswith(b"".join(parts))
    padded = [v for v in found.values() if str(v).startswith("base64:")]
    assert len(padded) == (b"".join(parts) != plain)


def test_old_files_whose_last_chunk_is_empty_or_longer():
    folder = ROOT / "tests/golden/blp/old"
    for name in ("0.1.1-nchunks6-empty-last", "0.2.1-nchunks6-empty-last"):
        found = bp.references(str(folder / (name + ".blp")))["refs"]
        assert 5 == sum(isinstance(value, list) for value in found.values())
    with pytest.raises(bp.UsageError, match="its chunks have different sizes"):
        bp.references(str(folder / "rc1-nchunks258.blp"))
