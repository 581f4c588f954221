"""Another reader, written from docs/format.rst alone, agrees with this one.

It reads archives and datasets: valid and invalid samples, samples with a
flipped bit, and what a crash leaves (in tests/dataset/test_crash.py).
"""

from __future__ import annotations

import functools
import itertools
import json
import random
import re
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from format.agreement import (
    BY_OTHERS,
    Refusal,
    read_here,
    read_there,
    refusals,
    without_reasons,
)
from support import TESTS, copied_sample
from valid.make_datasets import files_of

import bloscpack as bp
from bloscpack._format.zip_format import encode_group

VALID = TESTS / "valid" / "datasets"
INVALID = TESTS / "invalid" / "datasets"
SAMPLES = [
    pytest.param(folder, entry["path"], id=name)
    for folder in (VALID, INVALID)
    for name, entry in json.loads((folder / "MANIFEST.json").read_text()).items()
]
RULES = json.loads((INVALID / "MANIFEST.json").read_text())


@pytest.mark.parametrize(("folder", "name"), SAMPLES)
def test_samples(folder, name, tmp_path):
    path = copied_sample(folder, name, tmp_path)
    assert without_reasons(read_here(path)) == without_reasons(read_there(path))


@pytest.mark.parametrize("name", [name for name in RULES if RULES[name]["refused"]])
def test_first_rule(name, tmp_path):
    path = copied_sample(INVALID, RULES[name]["path"], tmp_path)
    found = {each[:] for each in refusals(read_there(path)).values()}
    assert {(RULES[name]["rules"][0], RULES[name]["verdict"])} == found


# Documents

DATA_TYPES = ["bool", "int8", "uint16", "int64", "float16", "float32", "float64"]
DATA_TYPES += ["complex64", "complex128"]
FILL_VALUES = [0, 1, -1, 1.5, -0.0, True, None, "NaN", "-Infinity", "nan", 2**31, 2**64]
FILL_VALUES += [1e400, 10**400, "0x3c00", "0x3c0000", "0x3f800000", "0x3F80000000"]
FILL_VALUES += ["0x3f 80 00 00", "0x3f 80 00", "0x", "0X3c00", "", "AA==", "AA=", "NaT"]
FILL_VALUES += [[1, 2], [1], "12", {"NaN": 1, "Infinity": 2}, ["0x3f800000", "NaN"]]
FILL_VALUES += ["\ud800", "a\0", "abcd"]
TIMES = "numpy.datetime64", "numpy.timedelta64"
UNITS = ["D", "us", "μs", "generic", "min", "", "s]", None]
SCALES = [1, 2, 0, 1.0, True, None, 2**31 - 1, 2**31]
INDEX_CODEC = {"name": "bytes", "configuration": {"endian": "little", "other": 1}}


def extension(name, **settings):
    return {"name": name, "configuration": settings}


DATA_TYPES += [extension("null_terminated_bytes", length_bytes=3)]
DATA_TYPES += [extension("fixed_length_utf32", length_bytes=12)]
UNUSUAL = {
    "fill values": [
        {"data_type": data_type, "fill_value": value}
        for data_type, value in itertools.product(DATA_TYPES, FILL_VALUES)
    ],
    "units": [
        {"data_type": extension(name, unit=unit, scale_factor=scale), "fill_value": 5}
        for name, unit, scale in itertools.product(TIMES, UNITS, SCALES)
    ],
    "index codecs": [
        {"index_codecs": codecs}
        for codecs in (
            [INDEX_CODEC, "crc32c"],
            [INDEX_CODEC, extension("crc32c", other=1)],
            [extension("bytes", endian="big"), "crc32c"],
            ["bytes", "crc32c"],
        )
    ],
}


@pytest.mark.parametrize("endian", ["little", "big"])
@pytest.mark.parametrize("topic", UNUSUAL)
def test_documents(topic, endian, tmp_path, monkeypatch):
    """Both readers give the same items to an array of others without any shard."""
    monkeypatch.setitem(sys.modules, "zarr", None)  # the second reader has none
    document = json.loads((VALID / "zarr-array" / "zarr.json").read_text())
    del document["bloscpack"]
    sharding = document["codecs"][0]["configuration"]
    sharding["codecs"][0] = extension("bytes", endian=endian)
    for changes in UNUSUAL[topic]:
        keys = {k: v for k, v in changes.items() if k != "index_codecs"}
        sharding["index_codecs"] = changes.get("index_codecs", sharding["index_codecs"])
        (tmp_path / "zarr.json").write_text(json.dumps(document | keys))
        here, there = map(without_reasons, (read_here(tmp_path), read_there(tmp_path)))
        assert here == there, changes


# Members of archives

NAMES = ["a.blp", "a/c/0", "a/c/0/0", "a/zarr.json", "a/c/1", "a/b/c/0", "a/c/b.blp"]
NAMES += ["a/c/c/0", "a/c/b/c/1", "a/c/zarr.json", ".blp", "/c/0", "a//c/0"]


@pytest.mark.full
def test_names_of_members(tmp_path):
    """Both readers find the same arrays, whatever members the archive has or lists."""
    path = tmp_path / "sample.zip"
    group = {"zarr_format": 3, "node_type": "group", "attributes": {}}
    bp.savez(path, a=np.arange(5), b=np.int16(7))
    with zipfile.ZipFile(path) as zipped:
        contents = {name: zipped.read(name) for name in zipped.namelist()}
    texts = {".json": contents["a/zarr.json"], ".blp": contents["b.blp"]}
    texts = {n: texts.get(Path("_" + n).suffix, contents["a/c/0"]) for n in NAMES}
    pairs = [*itertools.combinations(NAMES, 2)]
    for names in [*pairs, *(("a/zarr.json", *pair) for pair in pairs)]:
        chunks = [name for name in names if not name.endswith(".json")]
        for listed, lost in itertools.product([[], chunks], [None, *names]):
            sizes = {name: len(texts[name]) for name in listed}
            with zipfile.ZipFile(path, "w") as zipped:
                for name in {*names} - {lost}:
                    zipped.writestr(name, texts[name])
                document = encode_group({}, sizes) if listed else json.dumps(group)
                zipped.writestr("zarr.json", document)
            here, there = map(without_reasons, (read_here(path), read_there(path)))
            assert here == there, (names, listed, lost)


# Flipped bits

# Messages that no sample has, or that have a second rule.
OTHER_MESSAGES = {
    "zlib can't decompress the chunk:": "V9",
    "expected a chunk of … plain bytes, found": "V9",  # in a single file C4
    "expected the index of a shard of … chunks in the first … bytes, found": "V9",
    "expected a ZIP file of savez, with the member …, found": "T1",
    # The document of a column is one of no array, or none of a node.
    "expected the document of a Zarr array of format …, found": "V1",
    "expected the document of the column …, found": "V2",
    # There is none, because the bit for the metadata in the header is zero.
    "expected dtype:": "A12",
    "expected rows of shape:": "A12",
    # The sample has only the beginning of this message.
    "the reserved bytes of a version … header must be zero, not b…; this is a version "
    "that no release of Bloscpack wrote": "L5",
}
# Rules of arrays that the package checks behind the header of the first chunk, and the
# rule of shards that includes those of chunks.
LATE, CHUNK = {"A7", "A12", "G2", "V9"}, {"C1", "C2", "C4"}


@functools.cache
def rules_by_message():
    """Return the first rules that messages of this package are about."""
    found = {message: {rule} for message, rule in OTHER_MESSAGES.items()}
    for folder in (TESTS / "invalid", INVALID):
        for entry in json.loads((folder / "MANIFEST.json").read_text()).values():
            messages = [*entry.get("refused", {}).values()]
            message = re.sub(r"\\d\+?", "0", entry.get("message", ""))
            messages.append(re.sub(r"\\(.)", r"\1", message))
            for message in filter(None, messages):
                found.setdefault(pattern_of(message), set()).add(entry["rules"][0])
    return found


def pattern_of(message):
    """Return a message without its values, in which messages of a kind differ."""
    message = re.sub(r"(?s)(found|:) .*", r"\1", message)
    message = re.sub(r"dtype '\[.*\]'", "dtype ''", message)
    message = re.sub(r"\"[^\"]*'[^\"]*\"|'[^']*'|\d+", "…", message)
    return re.sub(r"\([…, ]*\)", "(…)", message)


def flipped(files, generator):
    """Yield a file of a sample, and its content with a flipped bit."""
    # The package takes the kind from the old file, and checks that the new one agrees.
    is_old = {"meta/storage"} if ".bloscpack/1f-0" in files else set()
    names = [name for name in files if files[name] and name not in is_old]
    name = generator.choice(names)
    content = bytearray(files[name])
    content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
    return name, bytes(content)


def agree(path):
    """Check that both readers agree on a file or folder; return what they refuse."""
    here, there = read_here(path), read_there(path)
    refused = refusals(here)
    if path.suffix == ".zip" and there == Refusal("T1", "unsupported"):
        # The package tells damaged archives from other files by more than the document.
        assert isinstance(here, Refusal)
        return True
    assert without_reasons(here) == without_reasons(there), (here, there)
    for place, rule in refusals(there).items():
        message = refused[place].reason
        known = rules_by_message().get(pattern_of(message), set())
        known = known | LATE if known & CHUNK else known
        assert refused[place] == BY_OTHERS or rule.reason in known, (message, rule)
    return bool(refused)


@pytest.mark.full
@pytest.mark.parametrize("count", [1000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_flipped_bits(count, tmp_path, monkeypatch):
    """Both readers give the same verdict, the same content, and the same first rule."""
    monkeypatch.setitem(sys.modules, "zarr", None)  # the second reader has none
    generator = random.Random(count)
    entries = json.loads((VALID / "MANIFEST.json").read_text())
    paths = []
    for name, entry in entries.items():
        (tmp_path / name).mkdir()
        paths.append(copied_sample(VALID, entry["path"], tmp_path / name))
    outcomes = set()
    for number in range(count):
        path = generator.choice(paths)
        files = files_of(path)
        name, content = flipped(files, generator)
        place = path / name if path.is_dir() else path.parent / name
        place.write_bytes(content)
        try:
            outcomes.add(agree(path))
        except AssertionError as error:
            raise AssertionError((number, path.name, name, str(error)[:500])) from error
        finally:
            place.write_bytes(files[name])
    assert {True, False} == outcomes
