"""Properties that hold for every input: round trips, same bytes, pieces like wholes."""

import io
import json
import math
import tempfile
from pathlib import Path

import numpy
import pytest
from fuzz import parts
from fuzz.files import run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import bloscpack as bp
from bloscpack.abstract_io import pack, unpack
from bloscpack.append import append_fp, rewrite_metadata_fp
from bloscpack.args import BloscArgs, BloscpackArgs, MetadataArgs, calculate_nchunks
from bloscpack.checksums import CHECKSUM_NAMES
from bloscpack.exceptions import FormatError
from bloscpack.file_io import CompressedFPSink, CompressedFPSource, PlainFPSource
from bloscpack.headers import BloscpackHeader, MetadataHeader
from bloscpack.memory_io import PlainMemorySink
from bloscpack.metacodecs import CODECS_AVAIL
from bloscpack.pretty import pretty_size, reverse_pretty

LARGEST = 2**31 - 17


def examples(count):
    """Return settings for so many examples, the same ones in every run."""
    return settings(
        max_examples=count,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )


# Plain data: some that compresses and some that does not.
plain_data = st.one_of(
    st.binary(max_size=300),
    st.builds(
        lambda pattern, times, end: pattern * times + end,
        st.binary(min_size=1, max_size=20),
        st.integers(0, 300),
        st.binary(max_size=10),
    ),
)
chunk_sizes = st.one_of(st.integers(1, 40), st.integers(100, 3000))
thread_numbers = st.integers(1, 4)
blosc_args = st.builds(
    BloscArgs,
    typesize=st.one_of(st.integers(1, 16), st.integers(1, 255)),
    clevel=st.integers(0, 9),
    shuffle=st.sampled_from([False, True, 0, 1, 2]),
    cname=st.sampled_from(["blosclz", "lz4", "lz4hc", "zlib", "zstd"]),
)
bloscpack_args = st.builds(
    BloscpackArgs,
    offsets=st.booleans(),
    checksum=st.sampled_from([None, *CHECKSUM_NAMES]),
    max_app_chunks=st.one_of(st.integers(0, 50), st.just(lambda nchunks: 2 * nchunks)),
)
metadata_args = st.builds(
    MetadataArgs,
    meta_checksum=st.sampled_from([None, *CHECKSUM_NAMES]),
    meta_codec=st.sampled_from([None, *CODECS_AVAIL]),
    meta_level=st.integers(0, 9),
    max_meta_size=st.sampled_from(
        [lambda size: size, lambda size: 10 * size, lambda size: size + 1]
    ),
)
json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False),
        st.text(max_size=20),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(max_size=10), inner, max_size=4),
    ),
    max_leaves=10,
)
all_settings = st.fixed_dictionaries(
    {},
    optional={
        "metadata": json_values,
        "blosc_args": blosc_args,
        "bloscpack_args": bloscpack_args,
        "metadata_args": metadata_args,
    },
)


# Round trips


@given(plain_data, chunk_sizes, all_settings, thread_numbers)
@examples(80)
def test_bytes(plain, chunk_size, arguments, nthreads):
    packed = bp.pack_bytes_to_bytes(plain, chunk_size, **arguments, nthreads=nthreads)
    expected = plain, arguments.get("metadata")
    assert expected == bp.unpack_bytes_from_bytes(packed, nthreads=nthreads)
    # The bytes don't depend on the threads.
    assert packed == bp.pack_bytes_to_bytes(plain, chunk_size, **arguments, nthreads=1)


@given(plain_data, chunk_sizes, all_settings, thread_numbers)
@examples(25)
def test_files(plain, chunk_size, arguments, nthreads):
    with tempfile.TemporaryDirectory() as folder:
        source, packed, out = (Path(folder, name) for name in ("in", "a.blp", "out"))
        source.write_bytes(plain)
        bp.pack_file_to_file(source, packed, chunk_size, **arguments, nthreads=nthreads)
        metadata = arguments.get("metadata")
        assert metadata == bp.unpack_file_from_file(packed, out, nthreads=nthreads)
        assert plain == out.read_bytes()
        assert (plain, metadata) == bp.unpack_bytes_from_file(packed)
        assert packed.read_bytes() == bp.pack_bytes_to_bytes(
            plain, chunk_size, **arguments
        )


@given(plain_data, chunk_sizes, all_settings, thread_numbers)
@examples(30)
def test_streams_of_unknown_length(plain, chunk_size, arguments, nthreads):
    fp = io.BytesIO()
    pack(
        PlainFPSource(io.BytesIO(plain)),
        CompressedFPSink(fp),
        -1,
        chunk_size,
        -1,
        **arguments,
        nthreads=nthreads,
    )
    expected = plain, arguments.get("metadata")
    assert expected == bp.unpack_bytes_from_bytes(fp.getvalue())
    fp.seek(0)
    source, sink = CompressedFPSource(fp), PlainMemorySink()
    unpack(source, sink, nthreads=nthreads)
    assert calculate_nchunks(len(plain), chunk_size) == (
        source.bloscpack_header.nchunks,
        source.bloscpack_header.chunk_size,
        source.bloscpack_header.last_chunk,
    )


# Arrays

scalar_dtypes = st.one_of(
    npst.boolean_dtypes(),
    npst.integer_dtypes(endianness="?"),
    npst.unsigned_integer_dtypes(endianness="?"),
    npst.floating_dtypes(endianness="?"),
    npst.complex_number_dtypes(endianness="?"),
    npst.datetime64_dtypes(endianness="?"),
    npst.timedelta64_dtypes(endianness="?"),
    npst.byte_string_dtypes(max_len=12),
    npst.unicode_string_dtypes(max_len=12),
)
dtypes = st.one_of(
    scalar_dtypes,
    npst.array_dtypes(scalar_dtypes, max_size=3),
    npst.nested_dtypes(scalar_dtypes, max_leaves=5),
)
shapes = npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6)


@st.composite
def arrays(draw):
    """An array of any bytes, not all of which are values that NumPy would make."""
    dtype, shape = draw(dtypes), draw(shapes)
    size = math.prod(shape) * dtype.itemsize
    data = draw(st.binary(min_size=7, max_size=7)) * (size // 7 + 1)
    order = draw(st.sampled_from("CF"))
    if dtype.subdtype is not None:
        shape, dtype = shape + dtype.shape, dtype.base
    array = numpy.empty(shape, dtype, order=order)
    if size:
        flat = numpy.frombuffer(data[: array.nbytes], numpy.uint8)
        memory = array.T if array.flags.f_contiguous else array
        memory.view(numpy.ndarray).reshape(-1).view(numpy.uint8)[:] = flat
    if draw(st.booleans()):
        array = array[..., ::-1] if array.ndim else array
    return array


def assert_same_array(expected, found):
    assert expected.dtype == found.dtype
    assert expected.shape == found.shape
    assert expected.tobytes() == found.tobytes()
    assert found.flags.writeable
    fortran = expected.flags.f_contiguous and not expected.flags.c_contiguous
    assert found.flags.f_contiguous if fortran else found.flags.c_contiguous


@given(arrays(), st.integers(1, 20), blosc_args, bloscpack_args, thread_numbers)
@examples(80)
def test_arrays(array, items, args, file_args, nthreads):
    chunk_size = max(1, items * array.dtype.itemsize)
    packed = bp.pack_ndarray_to_bytes(
        array, chunk_size, args, file_args, nthreads=nthreads
    )
    assert_same_array(array, bp.unpack_ndarray_from_bytes(packed, nthreads=nthreads))
    assert packed == bp.pack_ndarray_to_bytes(array, chunk_size, args, file_args)
    plain, metadata = bp.unpack_bytes_from_bytes(packed)
    assert array.nbytes == len(plain)
    assert list(array.shape) == metadata["shape"]


@given(arrays())
@examples(20)
def test_arrays_in_files(array):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.blp")
        bp.pack_ndarray_to_file(array, path)
        assert_same_array(array, bp.unpack_ndarray_from_file(path))


# Appending


@given(
    st.lists(plain_data, min_size=2, max_size=5),
    chunk_sizes,
    blosc_args,
    st.sampled_from([None, *CHECKSUM_NAMES]),
    json_values,
    thread_numbers,
)
@examples(40)
def test_pieces_are_like_the_whole(pieces, chunk_size, args, checksum, value, nthreads):
    fp = io.BytesIO(
        bp.pack_bytes_to_bytes(
            pieces[0],
            chunk_size,
            metadata=value,
            blosc_args=args,
            bloscpack_args=BloscpackArgs(checksum=checksum, max_app_chunks=10**4),
        )
    )
    count = CompressedFPSource(fp).nchunks
    for piece in pieces[1:]:
        count += append_fp(fp, io.BytesIO(piece), len(piece), args, nthreads=nthreads)
    assert (b"".join(pieces), value) == bp.unpack_bytes_from_bytes(fp.getvalue())
    fp.seek(0)
    source = CompressedFPSource(fp)
    assert count == source.nchunks
    found = []
    for _ in source:
        found.append(source.chunk_offset)
    assert found == source.offsets
    assert b"" == fp.read()
    assert sum(map(len, pieces)) == source.bloscpack_header.nbytes


@given(json_values.filter(lambda value: value is not None), json_values)
@examples(30)
def test_metadata_are_replaced(old, new):
    room = 2 * len(json.dumps(new)) + 2 * len(json.dumps(old)) + 20
    fp = io.BytesIO(
        bp.pack_bytes_to_bytes(
            b"plain", metadata=old, metadata_args=MetadataArgs(max_meta_size=room)
        )
    )
    size = len(fp.getvalue())
    if old != new:
        rewrite_metadata_fp(fp, new)
    assert (b"plain", new) == bp.unpack_bytes_from_bytes(fp.getvalue())
    assert size == len(fp.getvalue())


def result_or_section(function, data):
    """Return what the call returns, or the section of the FormatError it raises."""
    try:
        return function(data)
    except FormatError as error:
        return error.section


# Records

sizes = st.one_of(st.just(-1), st.integers(0, LARGEST))


@st.composite
def headers(draw):
    nchunks = draw(st.one_of(st.just(-1), st.integers(0, 2**63 - 1)))
    chunk_size = draw(sizes)
    last_chunk = draw(sizes if chunk_size == -1 else st.integers(-1, chunk_size))
    if nchunks == 0:
        last_chunk = min(last_chunk, 0)
    return BloscpackHeader(
        offsets=draw(st.booleans()),
        metadata=draw(st.booleans()),
        checksum=draw(st.sampled_from(CHECKSUM_NAMES)),
        typesize=draw(st.integers(0, 255)),
        chunk_size=chunk_size,
        last_chunk=last_chunk,
        nchunks=nchunks,
        max_app_chunks=draw(st.integers(0, 2**63 - 1 - nchunks))
        if nchunks != -1
        else 0,
    )


@given(headers())
@examples(100)
def test_headers(header):
    encoded = header.encode()
    assert 32 == len(encoded)
    assert header == BloscpackHeader.decode(encoded)
    assert encoded == BloscpackHeader.decode(encoded).encode()


@given(st.binary(min_size=28, max_size=28))
@examples(300)
def test_any_header_is_an_error_or_itself(tail):
    raw = b"blpk" + tail
    header = result_or_section(BloscpackHeader.decode, raw)
    # Layout 2 leaves the last bytes alone, those before it are shorter.
    if header != "header" and header.format_version >= 3:
        assert raw == header.encode()


magic = st.binary(max_size=8).filter(lambda name: not name.endswith(b"\0"))
numbers = st.integers(0, 2**32 - 1)


@given(
    st.builds(
        MetadataHeader,
        magic_format=magic,
        meta_options=st.integers(0, 255).map(lambda number: format(number, "08b")),
        meta_checksum=st.sampled_from(CHECKSUM_NAMES),
        meta_codec=st.sampled_from(CODECS_AVAIL),
        meta_level=st.integers(0, 9),
        meta_size=numbers,
        max_meta_size=numbers,
        meta_comp_size=numbers,
        user_codec=magic,
    )
)
@examples(100)
def test_metadata_headers(header):
    encoded = header.encode()
    assert 32 == len(encoded)
    assert header == MetadataHeader.decode(encoded)


# Any bytes


@given(st.binary(max_size=200), st.sampled_from([b"", b"blpk", b"blpk\1", b"blpk\3"]))
@examples(150)
def test_any_bytes_give_a_result_or_a_format_error(data, start):
    for function in (bp.unpack_bytes_from_bytes, bp.unpack_ndarray_from_bytes):
        assert result_or_section(function, start + data) is not None


SMALL = bp.pack_ndarray_to_bytes(
    numpy.arange(60, dtype="<i4").reshape(6, 10),
    80,
    bloscpack_args=BloscpackArgs(max_app_chunks=1),
)


@given(
    st.lists(
        st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), max_size=4
    ),
    st.integers(0, len(SMALL)),
)
@examples(150)
def test_any_damage_gives_the_data_or_a_format_error(changes, length):
    data = bytearray(SMALL)
    for position, value in changes:
        data[position] = value
    if length % 3 == 0:
        del data[length:]
    result = result_or_section(bp.unpack_ndarray_from_bytes, data)
    if not isinstance(result, str):
        assert list(range(60)) == result.reshape(-1).tolist()


# Whole files, sound and with fields changed


@st.composite
def files(draw):
    """A sound file of any kind, and its plain bytes and metadata."""
    plain, chunk_size, arguments = (
        draw(plain_data),
        draw(chunk_sizes),
        draw(all_settings),
    )
    kind = draw(st.sampled_from(["known", "unknown", "open", "array", "layout 2"]))
    if kind == "array":
        array = numpy.frombuffer(plain, numpy.uint8)
        arguments.pop("metadata", None)
        data = bp.pack_ndarray_to_bytes(array, chunk_size, **arguments)
        return data, plain, bp.unpack_bytes_from_bytes(data)[1]
    if kind == "layout 2":
        arguments.pop("metadata", None)
    data = bp.pack_bytes_to_bytes(plain, chunk_size, **arguments)
    taken = parts.take_apart(data)
    if kind == "unknown":
        taken.header.update(nchunks=-1, max_app_chunks=0)
        taken.offsets = []
    if kind in ("unknown", "open"):
        for name in draw(st.sets(st.sampled_from(["chunk_size", "last_chunk"]))):
            taken.header[name] = -1
    if kind == "layout 2":
        taken.header.update(format_version=2, max_app_chunks=0)
        del taken.offsets[len(taken.chunks) :]
    if taken.offsets:
        parts.set_offsets(taken)
    return taken.join(), plain, arguments.get("metadata")


@pytest.mark.slow
@given(files())
@examples(200)
def test_whole_files(file):
    data, plain, metadata = file
    assert (plain, metadata) == bp.unpack_bytes_from_bytes(data)
    assert data == parts.take_apart(data).join() == parts.with_right_digests(data)
    with tempfile.TemporaryDirectory() as folder:
        assert (plain, metadata) == run(data, Path(folder))


@pytest.mark.slow
@given(files(), st.integers(0, 3), st.data())
@examples(500)
def test_changed_files_give_a_result_or_a_format_error(file, changes, data):
    taken = parts.take_apart(file[0])
    for _ in range(1 + changes):
        parts.change(taken, lambda below: data.draw(st.integers(0, below - 1)))
    with tempfile.TemporaryDirectory() as folder:
        run(taken.join(), Path(folder))


@given(files(), st.integers(0, 2**20), st.integers(0, 64))
@examples(30)
def test_cut_files_are_errors(file, position, missing):
    data, plain, metadata = file
    cut = data[: position % len(data)] if missing > 32 else data[: -1 - missing]
    with tempfile.TemporaryDirectory() as folder:
        result = run(cut, Path(folder))
    if not isinstance(result, FormatError):
        # Only a file of unknown length may end between two chunks.
        assert b"\xff" * 8 == data[16:24]
        assert plain.startswith(result[0])
        assert metadata == result[1]


# Numbers


@given(st.integers(0, 2**50), st.integers(1, LARGEST))
@examples(100)
def test_cut(size, chunk_size):
    nchunks, used, last = calculate_nchunks(size, chunk_size)
    assert size == (nchunks - 1) * used + last
    assert 0 <= last <= used <= max(size, 0)
    assert used == min(chunk_size, size)


@given(st.integers(0, 2**50))
@examples(100)
def test_pretty_size_is_close(size):
    shown = pretty_size(size)
    # Two decimals of the unit, and what a float of it loses.
    assert abs(size - reverse_pretty(shown)) <= max(1, 0.0051 * max(size, 1))
    assert 8 >= len(shown)


@given(st.integers(0, 10**6), st.sampled_from("BKMGT"))
@examples(100)
def test_reverse_pretty(number, suffix):
    assert number * 1024 ** "BKMGT".index(suffix) == reverse_pretty(
        "%d%s" % (number, suffix)
    )
