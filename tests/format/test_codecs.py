"""The table of codecs: it agrees with Blosc, with chunks and with release 0.16."""

from __future__ import annotations

import blosc
import pytest
from format.independent_reader import RATIOS

from bloscpack import constants
from bloscpack._engine.blosc_settings import own_settings
from bloscpack._format.blosc_header import decode_header
from bloscpack._format.chunks import compress
from bloscpack._format.codecs import BY_NUMBER, CODECS, GOALS, codec_named, read_by
from bloscpack.args import BloscArgs


def test_every_codec_of_blosc_is_known():
    assert {*blosc.compressor_list()} <= {*CODECS}


@pytest.mark.parametrize("name", blosc.compressor_list())
def test_number_in_the_header(name):
    with own_settings:
        chunk = compress(bytes(10_000), BloscArgs(cname=name))
    header = decode_header(chunk)
    assert CODECS[name].number == header.codec_number
    assert header.nbytes <= CODECS[name].max_ratio * header.ctbytes


def test_numbers_of_0_16_keep_their_names():
    expected = {0: "blosclz", 1: "lz4", 2: "snappy", 3: "zlib", 4: "zstd"}
    assert expected.items() <= constants.CNAME_MAPPING.items()
    assert "lz4" == BY_NUMBER[CODECS["lz4hc"].number].name


def test_the_independent_reader_has_the_same_ratios():
    expected = {codec.number: codec.max_ratio for codec in CODECS.values()}
    assert expected == RATIOS, "independent_reader.RATIOS needs an entry for each"


def test_facts_are_complete():
    for codec in CODECS.values():
        assert 9 == len(codec.nanoseconds)
        assert {*codec.levels, *codec.levels_for_regular} <= {*GOALS}
    assert "blosclz" == codec_named("new").name


def test_codecs_that_a_program_reads():
    codecs = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")
    assert codecs == read_by("bcolz")
