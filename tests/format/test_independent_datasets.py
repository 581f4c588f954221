"""Another reader, written from docs/format.rst alone, agrees with this one.

It reads archives and datasets: valid and invalid samples, samples with a
flipped bit, and what a crash leaves (in tests/dataset/test_crash.py).
"""

from __future__ import annotations

import functools
import json
import random
import re
import sys

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
# Rules of arrays that the package checks behind the header of the first chunk.
LATE, CHUNK = {"A7", "A12", "G2"}, {"C1", "C2", "C4"}


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
        if re.search(rb"'[=|][icfU]\d", content):
            continue  # a reader may take such spellings (A5)
        place = path / name if path.is_dir() else path.parent / name
        place.write_bytes(content)
        try:
            outcomes.add(agree(path))
        except AssertionError as error:
            raise AssertionError((number, path.name, name, str(error)[:500])) from error
        finally:
            place.write_bytes(files[name])
    assert {True, False} == outcomes
