"""The table of codecs: it agrees with Blosc, the format and the independent reader."""

from __future__ import annotations

import re

import blosc
import pytest
from format.independent_reader import RATIOS
from support import DOCS

from bloscpack import constants
from bloscpack._format.codecs import BY_NUMBER, CODECS, GOALS, read_by
from bloscpack.abstract_io import compress_chunk
from bloscpack.args import BloscArgs


@pytest.mark.parametrize("name", blosc.compressor_list())
def test_number_in_the_header(name):
    chunk = compress_chunk(bytes(10_000), BloscArgs(cname=name))
    assert CODECS[name].number == chunk[2] >> 5
    assert 10_000 <= CODECS[name].max_ratio * len(chunk)


def test_numbers_of_0_16_keep_their_names():
    expected = {0: "blosclz", 1: "lz4", 2: "snappy", 3: "zlib", 4: "zstd"}
    assert expected.items() <= constants.CNAME_MAPPING.items()
    assert "lz4" == BY_NUMBER[CODECS["lz4hc"].number].name


def test_the_independent_reader_has_the_same_ratios():
    expected = {codec.number: codec.max_ratio for codec in CODECS.values()}
    assert expected == RATIOS, "independent_reader.RATIOS needs an entry for each"


def test_bounds_are_those_of_the_format():
    text = (DOCS / "format.rst").read_text("utf-8")
    rule = " ".join(text.partition("* **C2**")[2].partition("* **C3**")[0].split())
    stated = {
        name: int(most)
        for most, names in re.findall(r"(\d+) for (\w+(?: and \w+)*)", rule)
        for name in names.split(" and ")
    }
    assert {codec.name: codec.max_ratio for codec in BY_NUMBER.values()} == stated


def test_facts_are_complete():
    for codec in CODECS.values():
        assert 9 == len(codec.nanoseconds)
        assert {*codec.levels, *codec.levels_for_regular} <= {*GOALS}


def test_codecs_that_a_program_reads():
    codecs = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")
    assert codecs == read_by("bcolz")
