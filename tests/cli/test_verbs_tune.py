"""`blpk tune`: what is chosen depends on the data, the goal and the time."""

import json
import os
import shlex

import numpy as np
import pytest
from cli.verb_support import assert_help_fits, parser_of, run_verb

import bloscpack
from bloscpack import dataset
from bloscpack._cli.exit_codes import EXIT_COULD_NOT, EXIT_USAGE, Refusal
from bloscpack._cli.samples import opened_sample
from bloscpack._cli.verbs import tune
from bloscpack._cli.verbs.tune import (
    FIELDS,
    Search,
    Trial,
    command,
    pareto,
)
from bloscpack._format import automatic
from bloscpack._format.automatic import CHUNK_SIZE, DEFAULT, Setting, chunk_text
from bloscpack.cli import main
from bloscpack.exceptions import StorageError

NBYTES = 2**18
REPEATS = tune.REPEATS


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tune, "REPEATS", 1)  # most tests do not depend on speeds
    return tmp_path


def linspace():
    np.linspace(0, 1, NBYTES // 8).tofile("data")
    return "data"


def tuned(capsys, *arguments, nthreads=2):
    assert 0 == run_verb("tune", "--json", *arguments, nthreads=nthreads)
    said = capsys.readouterr()
    assert "" == said.err
    return json.loads(said.out)


def best_of(found):
    (best,) = [trial for trial in found["trials"] if trial["best"]]
    return best


# The choice


@pytest.mark.parametrize(
    ("goal", "typesizes"),
    [
        pytest.param("balanced", {8}, marks=pytest.mark.slow),
        pytest.param("speed", {4, 8, 16}, marks=pytest.mark.slow),
        pytest.param("ratio", {8, 16}, marks=pytest.mark.slow),
    ],
)
def test_numbers_are_shuffled(capsys, monkeypatch, goal, typesizes):
    monkeypatch.setattr(tune, "REPEATS", REPEATS)  # the choice depends on the speeds
    np.linspace(0, 1, 1_000_000).tofile("data")
    found = tuned(capsys, "--goal", goal, "--sample", "1M", "data")
    best = best_of(found)
    assert found["pays"]
    assert best["shuffle"] in ("shuffle", "bitshuffle")
    assert best["typesize"] in typesizes
    assert best["ratio"] > 5
    assert " -t %d " % best["typesize"] in found["command"]
    assert "--no-shuffle" not in found["command"]
    unfiltered = [t["ratio"] for t in found["trials"] if t["shuffle"] == "none"]
    assert best["ratio"] > 5 * max(unfiltered)


def test_noise_is_not_worth_it(capsys, monkeypatch):
    with open("data", "wb") as fp:
        fp.write(np.random.default_rng(1).bytes(NBYTES))
    found = tuned(capsys, "data")
    assert not found["pays"]
    assert None is found["command"]
    assert 1.01 > max(trial["ratio"] for trial in found["trials"])
    assert 0 == run_verb("tune", "--seconds", "1", "data")
    last = capsys.readouterr().out.splitlines()[-1]
    assert "compressing does not pay: the best for 'balanced' has the ratio 1.0" in last


def test_goals_differ(capsys):
    # Text is where codecs do.
    words = np.random.default_rng(1).integers(0, 500, NBYTES // 16)
    with open("data", "w") as fp:
        fp.write("".join("%03d " % word for word in words))
    small = best_of(tuned(capsys, "--goal", "ratio", "--typesize", "1", "data"))
    quick = best_of(tuned(capsys, "--goal", "speed", "--typesize", "1", "data"))
    assert small["ratio"] > 1.1 * quick["ratio"]
    assert small["pack_bytes_per_s"] < quick["pack_bytes_per_s"]


def test_the_command_does_what_the_table_says(capsys):
    found = tuned(capsys, "--goal", "ratio", linspace())
    name, *arguments = shlex.split(found["command"])
    assert "blpk" == name
    main(arguments)
    plain, _ = bloscpack.unpack_bytes_from_file("data.blp")
    with open("data", "rb") as fp:
        assert fp.read() == plain
    ratio = NBYTES / os.path.getsize("data.blp")
    assert best_of(found)["ratio"] == pytest.approx(ratio, rel=0.1)


# What is tried


@pytest.mark.parametrize("goal", ["speed", "balanced", "ratio"])
def test_the_setting_of_auto_is_tried(capsys, goal):
    with open("data", "wb") as fp:
        fp.write(b"".join(b"%d,%d,abc\n" % (i, i * i % 1000) for i in range(90_000)))
    with open("data", "rb") as fp:
        data = fp.read()
    wanted = automatic.choose(lambda at, size: data[at : at + size], len(data), goal)
    found = tuned(capsys, "--goal", goal, "--seconds", "0.01", "data")
    made = found["trials"][1]
    assert (wanted.cname, wanted.clevel) == (made["cname"], made["clevel"])
    assert (wanted.typesize, wanted.chunk_size) == (
        made["typesize"],
        made["chunk_size"],
    )
    rates = [(trial["ratio"], trial["best"]) for trial in found["trials"]]
    if goal == "ratio":
        assert max(rates)[1]


def test_command_for_a_block_size_leaves_it_to_auto():
    setting = Setting("zstd", 2, 0, 1, 2**21, 2**21)
    end = "-c zstd -l 2 --no-shuffle -t 1 -z 2M "
    assert "blpk compress --auto " + end + "x" == command(setting, "x")
    for verb in ("compress", "repack"):
        expected = "blpk %s --auto=ratio %s-" % (verb, end)
        assert expected == command(setting, "/dev/stdin", verb, "ratio")


def test_the_search_narrows_down(capsys):
    found = tuned(capsys, linspace())
    made = found["trials"]
    assert found["complete"]
    assert ("blosclz", 7) == (made[0]["cname"], made[0]["clevel"])
    # Type sizes are tried with one codec; the others take over what was good.
    filters = {name: set() for name in ("lz4", "zstd", "zlib")}
    for trial in made:
        if trial["cname"] in filters:
            filters[trial["cname"]].add((trial["shuffle"], trial["typesize"]))
    assert 16 == len(filters["lz4"]) == len(filters["zstd"])
    assert 2 <= len(filters["zlib"]) <= 5
    assert ("none", 1) in filters["zlib"]
    # Unlike speeds, ratios are the same every time.
    (first,) = [
        trial
        for trial in made
        if (trial["cname"], trial["shuffle"]) == ("zstd", "shuffle")
        and trial["typesize"] == 8
        and trial["clevel"] == 5
    ]
    assert first["ratio"] > 5
    assert len(made) < 80
    keys = [tuple(trial[name] for name in FIELDS) for trial in made]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("seconds", ["0", "10"])
def test_type_size_that_is_given(capsys, seconds):
    # 8 bytes are the default, and the size of the items.
    found = tuned(capsys, "--typesize", "4", "--seconds", seconds, linspace())
    assert {4} == {trial["typesize"] for trial in found["trials"]}
    assert " -t 4 " in found["command"]


def test_default_of_a_type_size_that_is_given(capsys):
    assert 0 == run_verb("tune", "--typesize", "4", "--seconds", "0", linspace())
    rows = [line for line in capsys.readouterr().out.splitlines() if line[2:3] == "d"]
    assert 1 == len(rows)
    assert ["blosclz", "7", "4", "1M", "shuffle"] == rows[0].split()[-5:]


def test_time_is_limited(capsys):
    found = tuned(capsys, "--seconds", "0", linspace())
    assert not found["complete"]
    assert 2 == len(found["trials"])  # the default, and the choice of --auto
    assert best_of(found) is found["trials"][1]


def test_setting_that_takes_too_long(monkeypatch):
    linspace()
    with opened_sample("data", NBYTES, 8) as sample:
        search = Search(sample, "balanced", 1e-9)
        search._start = 0.0
        monkeypatch.setattr(sample, "pieces", lambda size: [bytes(10), bytes(10)])
        assert None is search._measure(DEFAULT)


@pytest.mark.parametrize(
    ("size", "chunk_size", "starts"),
    [
        (100, 10, [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]),
        (50, 10, [10, 30, 50, 70, 90]),
        (10, 10, [50]),
        (1, 10, [50]),
        (100, 100, [0]),
        (100, 1000, [0]),
        (100, 30, [0, 30, 60]),
    ],
)
def test_sample_is_made_of_chunks(folder, size, chunk_size, starts):
    data = bytes(range(100))
    (folder / "data").write_bytes(data)
    with opened_sample("data", size, None) as sample:
        expected = [data[start : start + chunk_size] for start in starts]
        assert expected == sample.pieces(chunk_size)


@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [
        ((8,), "f8"),
        ((2,), ">i2"),
        ((16,), "c16"),
        ((12,), [("a", "i4"), ("b", "f8")]),
        ((4,), "U100"),
        ((1,), "S300"),
        ((8,), [("\xe9", "f8")]),  # a header in UTF-8
    ],
)
@pytest.mark.filterwarnings("ignore:Stored array in format 3.0")
def test_npy(sizes, dtype):
    array = np.zeros(3, dtype=dtype)
    np.save("data.npy", array)
    bloscpack.pack_ndarray_to_file(array, "data.blp")
    for name in ("data.npy", "data.blp"):
        with opened_sample(name, 10_000, None) as sample:
            assert sizes == tuple(sample.typesizes)
            assert [array.tobytes()] == sample.pieces(10_000)


def test_npy_that_is_none(folder, capsys):
    for data in (b"\x93NUMPY", b"\x93NUMPY\x01\x00\xff\xff{", b"\x93NUMPY\x09\x00ab"):
        (folder / "data").write_bytes(data)
        found = tuned(capsys, "--seconds", "0", "data")
        assert len(data) == found["nbytes"]


def write_kinds():
    """Write an array as plain bytes, and in other forms."""
    cents = np.round(np.random.default_rng(1).normal(100, 20, 9999), 2)
    cents.tofile("data")
    np.save("data.npy", cents)
    bloscpack.pack_ndarray_to_file(cents, "data.blp", 8000)
    bloscpack.pack_bytes_to_file(cents.tobytes(), "bytes.blp", chunk_size=8000)
    dataset.create_array("data.zarr", cents.reshape(3333, 3))
    dataset.create_table("table.zarr", {"cents": cents})
    dataset.create_array("one.bcolz", cents, layout="bcolz")


@pytest.mark.parametrize(
    ("name", "start", "end", "written"),
    [
        ("data", "blpk compress -c ", " -t 1 -z 64K data", "data.blp"),
        ("data.npy", "blpk compress --npy -c ", " -z 64K data.npy", "data.npy.blp"),
        ("data.blp", "blpk repack -c ", " -t 8 -z 64K data.blp", "data.blp"),
        ("bytes.blp", "blpk repack -c ", " -t 1 -z 64K bytes.blp", "bytes.blp"),
        ("data.zarr", "blpk convert -c ", " data.zarr new.zarr", None),
        ("table.zarr/cents", "blpk convert -c ", " table.zarr/cents new.zarr", None),
        ("one.bcolz", "blpk convert -c ", " one.bcolz new.bcolz", None),
    ],
)
def test_the_command_suits_the_kind_of_data(
    capsys, monkeypatch, name, start, end, written
):
    write_kinds()
    setting = Setting("zstd", 2, 0, 1, 2**16)

    def choose(read, nbytes, goal, typesizes):
        return setting.but(typesize=typesizes[0] if typesizes else 1)

    monkeypatch.setattr(tune, "choose", choose)
    found = tuned(capsys, "--seconds", "0", name)
    assert 9999 * 8 == found["nbytes"]
    assert start + "zstd -l 2 --no-shuffle" + end == found["command"]
    assert best_of(found)["ratio"] > 2
    main(["-f", *shlex.split(found["command"])[1:]])
    if written is None:
        assert 9999 == dataset.open("new" + os.path.splitext(end)[1])[...].size
    else:
        assert 2**16 == bloscpack.info(written).header.chunk_size


def test_packed_data_are_tried_with_the_blocks_of_auto(capsys):
    """Reading the sample must not reset the block size."""
    data = b"".join(b"%d,%d,abc\n" % (i, i * i % 1000) for i in range(90_000))
    bloscpack.pack_bytes_to_file(data, "data.blp")
    with open("data", "wb") as fp:
        fp.write(data)
    ratios = [
        best_of(tuned(capsys, "--seconds", "0", name))["ratio"]
        for name in ("data", "data.blp")
    ]
    assert ratios[0] == ratios[1]


@pytest.mark.parametrize("name", ["table.zarr", "."])
def test_a_table_is_no_array(name):
    write_kinds()
    os.unlink("data.blp")
    os.unlink("bytes.blp")
    with pytest.raises(Refusal, match="is no array: name one of its arrays"):
        run_verb("tune", name)


def test_the_choice_of_auto_is_recommended_unless_another_is_clearly_better():
    linspace()
    with opened_sample("data", NBYTES, 8) as sample:
        search = Search(sample, "balanced", 10)
    auto = Trial(search.automatic, 4, 1e9, 1e9)
    for pack, expected in ((1.2e9, auto), (1e12, None)):
        other = Trial(DEFAULT.but(clevel=1), 4.1, pack, pack)
        search.trials = {trial.setting: trial for trial in (auto, other)}
        assert (expected or other) is search.best


# What is said


def test_table(capsys):
    assert 0 == run_verb("tune", "--all", linspace())
    lines = capsys.readouterr().out.splitlines()
    titles = "ratio pack M/s unpack M/s codec level type size chunk filter"
    assert titles.split() == lines[2].split()
    rows = lines[3 : lines.index("", 3)]
    ratios = [float(row[3:].split()[0]) for row in rows]
    assert sorted(ratios, reverse=True) == ratios
    assert 1 == sum(row[0] == ">" for row in rows)
    assert 1 == sum(row[2] == "d" for row in rows)
    starred = sum(row[1] == "*" for row in rows)
    assert 1 <= starred < len(rows)
    assert lines[-1].startswith("blpk compress -c ")
    assert lines[-1].endswith(" data")


@pytest.mark.parametrize(
    ("expected", "setting", "name"),
    [
        ("-c zstd -l 5 -t 8 -z 1M x", Setting("zstd", 5, 1, 8, 2**20), "x"),
        ("-c lz4 -l 1 --no-shuffle -t 1 -z 64K x", Setting("lz4", 1, 0, 1, 2**16), "x"),
        ("-c lz4 -l 1 --bitshuffle -t 2 -z 16M 'a b'",
         Setting("lz4", 1, 2, 2, 2**24), "a b"),
        ("-c lz4 -l 1 -t 2 -z 1M ./-x", Setting("lz4", 1, 1, 2, 2**20), "-x"),
    ],
)  # fmt: skip
def test_command(expected, setting, name):
    assert "blpk compress " + expected == command(setting, name)


def test_chunk_sizes_in_words():
    assert ["1M", "64K", "1000"] == [chunk_text(n) for n in (2**20, 2**16, 1000)]


def test_pareto():
    made = [Trial(DEFAULT, *values) for values in [
        (2, 10, 10), (3, 5, 10), (3, 5, 9), (1, 20, 20), (1, 20, 20), (2, 9, 99),
    ]]  # fmt: skip
    assert [(3, 5, 10), (2, 10, 10), (2, 9, 99), (1, 20, 20), (1, 20, 20)] == [
        (trial.ratio, trial.pack, trial.unpack) for trial in pareto(made)
    ]


# What can't be


@pytest.mark.parametrize(
    ("message", "code", "arguments"),
    [
        ("--sample: expected a number of bytes", EXIT_USAGE, ["--sample", "x"]),
        (
            "--sample: expected at least 1 byte, found '0'",
            EXIT_USAGE,
            ["--sample", "0"],
        ),
        ("--typesize must be from 1 to 255", EXIT_USAGE, ["--typesize", "256"]),
        ("'/dev/null' is no regular file", EXIT_COULD_NOT, ["/dev/null"]),
        ("'empty' is empty", EXIT_COULD_NOT, ["empty"]),
    ],
)
def test_refusals(folder, message, code, arguments):
    linspace()
    (folder / "empty").write_bytes(b"")
    name = [] if arguments[0][:2] != "--" else ["data"]
    with pytest.raises(Refusal, match=message) as caught:
        run_verb("tune", *arguments, *name)
    assert code == caught.value.exit_code


def test_file_that_is_not_there():
    with pytest.raises(FileNotFoundError):
        run_verb("tune", "missing")


def test_file_that_gets_shorter(folder):
    linspace()
    with opened_sample("data", NBYTES, None) as sample:
        (folder / "data").write_bytes(b"")
        with pytest.raises(StorageError, match="became shorter"):
            sample.pieces(CHUNK_SIZE)


def test_either_all_or_json(capsys):
    parser, _ = parser_of("tune")
    with pytest.raises(SystemExit):
        parser.parse_args(["--all", "--json", "data"])
    assert "not allowed with argument" in capsys.readouterr().err


def test_help():
    assert_help_fits("tune")
