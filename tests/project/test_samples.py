"""The samples of the format, and its rules: each rule names a sample."""

from __future__ import annotations

import pytest
import samples
from samples import TABLE

TEXT = samples.text()
RULES = samples.rules(TEXT)
SAMPLES = samples.samples()
# Rules that no file can break or show, and where they are tested.
WITHOUT = {
    **dict.fromkeys(("B1", "B2", "B3", "B4", "B5"), "format/test_blosc_decoder.py"),
    "A23": "an item as text: endpoints/test_numpy_io.py",
    "A24": "plain bytes of files that break A4 to A7",
    "A25": "what a reader may do: endpoints/test_numpy_io.py",
    "C11": "depends on the Blosc that is installed: format/test_snappy.py",
    "F5": "limits of a reader: format/test_limits.py",
    "I3": "I4, I5",
    "I19": "what a checker does at a URL: integrations",
    "J12": "owners of files: dataset",
    "J19": "moved datasets: dataset/test_united.py",
    "O8": "this implementation does not use the table",
    "S17": "what a reader may do: dataset/test_blocks.py",
    "Z26": "check/test_archives.py",
    "X11": "pipes: valid/test_valid.py",
}


def test_table_and_page_are_made_again():
    assert TABLE.read_text("ascii") == samples.table(SAMPLES)
    assert TEXT == samples.named(TEXT, SAMPLES)


def test_every_rule_has_a_sample():
    """Only what writers do has none."""
    broken = {rule: set() for rule in RULES}
    for sample in SAMPLES:
        for rule in sample.rules.split(","):
            broken[rule].add(sample.path.partition("/")[0])
    without = set()
    for rule, (duty, _) in RULES.items():
        kinds = {"valid", "invalid"} if duty in "ANC" else {"invalid"}
        if duty != "W" and not broken[rule] & kinds:
            without.add(rule)
    assert without == {*WITHOUT}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.path)
def test_outcome_fits_the_duty_of_the_first_rule(sample):
    duty = RULES[sample.rules.partition(",")[0]][0]
    refused = sample.outcome.removeprefix("array ")
    if sample.path.startswith("invalid"):
        expected = {"U": "unsupported", "W": "append", "C": "checker"}
        if "I8" not in sample.rules:  # there, all is damage
            assert expected.get(duty, "damage") == refused
    else:
        assert refused in ("read", "note", "checker")
