"""The damage of the soak is what it says, and an undamaged file is judged as such."""

from __future__ import annotations

import random

import pytest
from check.harm import KINDS, DamagedFile, damaged_file
from check.judge import intact_copies, judge
from check.samples import make_sample


@pytest.mark.parametrize("kind", KINDS)
def test_each_byte_has_the_origin_it_is_said_to_have(kind):
    changed = 0
    for seed in range(10):
        _, damaged = damaged_file(seed, kind)
        whole, pairs = (
            damaged.sample.whole,
            zip(damaged.data, damaged.origin, strict=True),
        )
        assert all(at == -1 or byte == whole[at] for byte, at in pairs), seed
        assert damaged_file(seed, kind)[1].data == damaged.data
        changed += damaged.data != whole
    assert changed > 2


def test_undamaged_files_are_complete():
    for seed in range(20):
        damaged = DamagedFile(make_sample(random.Random(seed)))
        outcome = judge(damaged)
        numbers = [*range(len(damaged.sample.frames))]
        assert numbers == outcome["intact"] == outcome["saved"] == outcome["placed"]
        assert (True, True, []) == (
            outcome["certain"],
            outcome["complete"],
            outcome["wrong"],
        )


def test_copies_of_a_repeated_chunk_are_found():
    sample = make_sample(random.Random(1), nchunks=3, checksum="crc32")
    damaged = DamagedFile(sample)
    (start, stop, _), end = sample.frames[1], len(sample.whole)
    damaged.rearrange([(0, stop), (start, stop), (stop, end - 1)])
    copies = intact_copies(sample.frames, damaged.origin)
    assert [[sample.first], [start, stop], []] == copies
