"""Another reader, written from docs/format.rst alone, agrees with this one.

It reads archives, datasets and journals: valid and invalid samples, samples with a
flipped bit, and what a crash leaves (in tests/dataset/test_crash.py).
"""

from __future__ import annotations

import functools
import json
import random
import re

import pytest
from format.agreement import (
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
    found = {each.reason for each in refusals(read_there(path)).values()}
    assert {RULES[name]["rules"][0]} == found


# Flipped bits


@functools.cache
def rules_by_message():
    """Return the rules by the messages of this package, without their values."""
    found = {}
    for folder in (TESTS / "invalid", INVALID):
        for entry in json.loads((folder / "MANIFEST.json").read_text()).values():
            for message in (*entry.get("refused", {}).values(), entry.get("message")):
                if message is not None:
                    found.setdefault(pattern_of(message), set()).update(entry["rules"])
    return found


def pattern_of(message):
    """Return a message without its values, in which messages of a kind differ."""
    message = re.sub(r"(?s)(found|Got|:) .*", r"\1", message)
    return re.sub(r"'[^']*'|\d+", "…", message)


def flipped(files, generator):
    """Yield a file of a sample, and its content with a flipped bit."""
    names = [name for name in files if files[name]]
    name = generator.choice(names)
    content = bytearray(files[name])
    content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
    return name, bytes(content)


def agree(path):
    """Check that both readers agree on a file or folder; return whether it is read."""
    here, there = read_here(path), read_there(path)
    assert without_reasons(here) == without_reasons(there), (here, there)
    return not isinstance(here, Refusal)


@pytest.mark.parametrize("count", [1000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_flipped_bits(count, tmp_path):
    """20,000 flipped bits: the same verdict and the same content."""
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
            raise AssertionError((number, path.name, name)) from error
        finally:
            place.write_bytes(files[name])
    assert {True, False} == outcomes
