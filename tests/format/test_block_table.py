"""The table of blocks of a shard: blocks are verified alone, no number is trusted."""

import itertools
import struct

import blosc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bloscpack._engine.blosc_settings import own_settings
from bloscpack._format import block_table
from bloscpack._format.block_table import (
    BlockRow,
    blocks_of,
    encode_table,
    is_table,
    raw_row,
    table_nbytes,
)
from bloscpack._format.blosc_header import BLOSC_HEADER, decode_header
from bloscpack._format.chunks import compress, read_blocks
from bloscpack._format.crc32c import crc32c
from bloscpack.args import BloscArgs

SIZE = 300_001
PLAIN = b"".join(struct.pack("<I", i * i % 9973) for i in range(80_000))[:SIZE]
CRC = crc32c(b"index").to_bytes(4, "little")


def compressed(plain=PLAIN, cname="lz4", typesize=4, shuffle=1, level=5):
    with own_settings:
        args = BloscArgs(typesize, level, shuffle, cname)
        args.blocksize = 2**15
        return compress(plain, args)


def row_of(chunk):
    """Return the row of a chunk as it is read from a table."""
    return BlockRow.decode(BlockRow.of_chunk(chunk).raw, SIZE, len(chunk))


def read_from(chunk, row, runs):
    """Return the plain bytes around the blocks that are read, None if they are not."""
    found = bytearray(b"\xaa") * SIZE

    def read(view, position):
        part = chunk[position : position + len(view)]
        view[: len(part)] = part
        return len(part)

    with own_settings:
        done = read_blocks(
            *(read, lambda size: memoryview(bytearray(size))),
            *(row, runs, memoryview(found)),
        )
    return found if done else None


@pytest.mark.parametrize("typesize", [1, 4, 17])
@pytest.mark.parametrize("cname", sorted(blosc.compressor_list()))
def test_each_run_of_blocks(cname, typesize):
    for shuffle, level in itertools.product((0, 1, 2), (0, 5)):
        chunk = compressed(PLAIN, cname, typesize, shuffle, level)
        row = row_of(chunk)
        if row is None:
            assert decode_header(chunk).nblocks < 2
            continue
        assert crc32c(chunk) == row.digests[-1]
        size, count = row.header.blocksize, row.header.nblocks
        for first, after in itertools.combinations(range(count + 1), 2):
            found = read_from(chunk, row, [(first, after)])
            part = slice(first * size, after * size)
            assert PLAIN[part] == found[part]
            assert b"\xaa" * first * size == found[: first * size]


def test_damage_in_a_block_is_found_by_the_runs_that_have_it():
    chunk = compressed()
    row = row_of(chunk)
    for block, end in enumerate(row.ends):
        damaged = bytearray(chunk)
        damaged[end - 1] ^= 1
        for other in range(len(row.ends)):
            found = read_from(damaged, row, [(other, other + 1)])
            assert (found is None) == (other == block)
    damaged = bytearray(chunk)
    damaged[17] ^= 1  # where a block starts
    assert read_from(damaged, row, [(0, 1)]) is None


def test_blocks_in_any_order_and_single_blocks_have_no_row():
    chunk = bytearray(compressed())
    assert BlockRow.of_chunk(chunk) is not None
    chunk[16:24] = chunk[20:24] + chunk[16:20]
    assert BlockRow.of_chunk(chunk) is None
    assert BlockRow.of_chunk(compressed(PLAIN[:1000])) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[(0, 3), (1, 2), (2, 0b1000), (3, 0), (4, SIZE - 1), (5, 0), (6, 15)],
        *[(5, 2**14), (5, SIZE), (6, 2**32 - 1)],
    ],
)
def test_wrong_headers_in_rows(field, value):
    chunk = compressed()
    row = BlockRow.of_chunk(chunk)
    fields = list(BLOSC_HEADER.unpack_from(row.raw))
    fields[field] = value
    wrong = BLOSC_HEADER.pack(*fields) + row.raw[16:]
    assert BlockRow.decode(wrong, SIZE, len(chunk)) is None


def test_wrong_ends_in_rows():
    chunk = compressed()
    row = BlockRow.of_chunk(chunk)
    ends = row.ends
    for wrong in [
        [row.start, *ends[1:]],
        [0, *ends[1:]],
        [ends[1], ends[0], *ends[2:]],
        [ends[0], ends[0], *ends[2:]],
        [*ends[:-1], ends[-1] - 1],
        [*ends[:-1], ends[-1] + 1],
        [*ends[:-2], 2**32 - 1, ends[-1]],
    ]:
        raw = BlockRow(row.header, wrong, row.digests).raw
        assert BlockRow.decode(raw, SIZE, len(chunk)) is None
    copy = compressed(level=0)
    row = BlockRow.of_chunk(copy)
    assert row.header.is_copy
    raw = BlockRow(row.header, [row.ends[0] + 1, *row.ends[1:]], row.digests).raw
    assert BlockRow.decode(raw, SIZE, len(copy)) is None


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_forged_rows_and_chunks(data):
    """Whatever the digests prove, Blosc gets sizes that fit, or nothing is read."""
    chunk = bytearray(compressed(shuffle=data.draw(st.sampled_from((0, 1, 2)))))
    raw = bytearray(BlockRow.of_chunk(chunk).raw)
    numbers = st.integers(0, 2**32 - 1) | st.integers(0, 2 * len(chunk))
    for _ in range(data.draw(st.integers(0, 3))):
        at = 4 * data.draw(st.integers(0, len(raw) // 4 - 1))
        struct.pack_into("<I", raw, at, data.draw(numbers))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(chunk) - 4))
        struct.pack_into("<I", chunk, at, data.draw(numbers))
    row = BlockRow.decode(bytes(raw), SIZE, len(chunk))
    if row is None:
        return
    crc, at, digests = 0, 0, []
    for end in row.ends:
        crc = crc32c(bytes(chunk[at:end]), crc)
        digests.append(crc)
        at = end
    row.digests = digests
    for block in range(len(row.ends)):
        read_from(chunk, row, [(block, block + 1)])
    read_from(chunk, row, [(0, len(row.ends))])


# The table


def test_table():
    rows = {n: BlockRow.of_chunk(compressed(level=n)).raw for n in (5, 6)}
    table = encode_table({**rows, 7: b"", 9: bytes(32)}, CRC)
    assert len(table) == table_nbytes(table[:16])
    assert is_table(table, 9, CRC)
    found = [raw_row(table, slot) for slot in range(9)]
    assert [*rows.values(), b"", b""] == found[5:]
    assert not any(map(any, found[:5]))
    for at in range(0, len(table), 7):
        wrong = bytearray(table)
        wrong[at] ^= 1
        assert not is_table(bytes(wrong), 9, CRC)
    assert not is_table(table, 9, b"1234")  # of another index
    assert not is_table(table, 6, CRC)  # with fewer entries
    assert not is_table(table[1:], 9, CRC)
    assert b"" == encode_table({}, CRC) == encode_table({3: b""}, CRC)


def test_rows_of_the_most_frequent_number_of_blocks():
    one = BlockRow.of_chunk(compressed()).raw
    table = encode_table({0: one, 1: one, 2: bytes(999)}, CRC)
    assert [one, one, b""] == [raw_row(table, slot) for slot in range(3)]


def test_limit(monkeypatch):
    row = BlockRow.of_chunk(compressed()).raw
    monkeypatch.setattr(block_table, "MAX_TABLE", 28 + 2 * len(row))
    assert encode_table({1: row}, CRC)
    assert b"" == encode_table({2: row}, CRC)


@given(st.binary(max_size=64))
def test_other_bytes_are_no_table(content):
    head = block_table.MAGIC + content
    assert 0 <= table_nbytes(head) <= block_table.MAX_TABLE
    assert not is_table(content, 9, CRC)


# The blocks of a read


@given(
    st.lists(st.tuples(st.integers(0, 999), st.integers(0, 200))), st.integers(1, 50)
)
def test_blocks_of_spans(pairs, blocksize):
    spans = sorted((start, min(1000, start + size)) for start, size in pairs)
    nblocks = -(-1000 // blocksize)
    wanted = {n // blocksize for start, stop in spans for n in range(start, stop)}
    runs = blocks_of(spans, blocksize, nblocks)
    found = [n for first, after in runs for n in range(first, after)]
    assert found == (sorted(wanted) if 2 * len(wanted) <= nblocks else [])
    assert all(one[1] < other[0] for one, other in itertools.pairwise(runs))
