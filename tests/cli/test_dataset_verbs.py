"""The verbs for reading and changing, on datasets."""

from __future__ import annotations

import functools
import io
import json
import os
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from cli.verb_support import Refusal, console, run_verb
from dataset import damage_datasets as damage
from dataset import golden_directories
from dataset.layouts import LAYOUTS

import bloscpack
from bloscpack import dataset
from bloscpack._cli.exit_codes import message_of
from bloscpack.dataset import folder as dataset_folder
from bloscpack.dataset.conversion import contents
from bloscpack.dataset.layouts import array_class
from bloscpack.dataset.layouts.shard_files import ShardFiles
from bloscpack.exceptions import DamageError, NotReadable, StorageError, UsageError

run = functools.partial(run_verb, sync=False)


@pytest.fixture(autouse=True)
def quiet_console(folder):
    console.begin(owns_streams=False)


def said(capfd, name, *arguments, code=0, **more):
    assert code == run(name, *arguments, **more)
    console.flush()
    return capfd.readouterr().out


# The arrays of `make_all`: of each layout one, and two columns; two in the group.
MADE = 3 * len(LAYOUTS) + 2


def make_all():
    """Make a dataset of each layout; return their names."""
    for layout in LAYOUTS:
        damage.new_array("a-" + layout, layout)
        damage.new_table("t-" + layout, layout)
    with dataset.create_group("g", attrs={"n": 1}) as group:
        group.create_array("one", damage.numbers(), chunks=10, shards=30)
        group.create_group("in").create_table("t", {"x": [1.5, 2]})
    return sorted(os.listdir())


# info


def test_info(capfd):
    for name in make_all():
        text = said(capfd, "info", name)
        found = dataset.open(name)
        assert "layout:" in text
        assert found.layout in text
        described = json.loads(said(capfd, "info", "--json", name))
        assert dataset.describe(name) == {
            k: v for k, v in described.items() if k != "path"
        }
    text = said(capfd, "info", "a-zarr")
    for line in (
        "shape:       (100,)",
        "dtype:       <i8",
        "nchunks:     10",
        "chunk shape: (10,)",
        "shards:      (30,)",
        "fill value:  7",
        "codec:       lz4, level 5, filter shuffle",
        "files:       4",
        'attributes:  {"unit":"m"}',
    ):
        assert line + "\n" in text
    text = said(capfd, "info", "t-bcolz")
    assert "rows:       100\n" in text
    assert "  <f4 (100,) bcolz\n" in text
    lines = said(capfd, "info", "g").splitlines()
    assert [line.split()[0] for line in lines[-4:]] == ["in", "t", "x", "one"]


def test_info_about_several(capfd):
    make_all()
    bloscpack.pack_bytes_to_file(b"abc", "x.blp")
    text = said(capfd, "info", "a-zarr", "x.blp", "g")
    assert "\n\n'g':\nkind: " in text
    found = json.loads(said(capfd, "info", "--json", "a-zarr", "x.blp"))
    assert ["array", None] == [entry.get("kind") for entry in found]


def test_info_about_a_damaged_member(capfd):
    make_all()
    with open("g/one/zarr.json", "w") as fp:
        fp.write("{")
    text = said(capfd, "info", "g", code=3)
    assert "array that can't be opened: " in text.replace("group", "array")
    for names in (["g"], ["g", "a-zarr"]):
        text = said(capfd, "info", "--json", *names, code=3)
        assert '"damaged": true' in text


@pytest.mark.parametrize("verb", ["info", "list"])
def test_a_member_that_is_intact_but_not_supported(capfd, verb):
    make_all()
    with open("g/one/zarr.json") as fp:
        document = json.loads(fp.read().replace('"blosc"', '"unknown"'))
    del document["bloscpack"]  # as another program writes it
    with open("g/one/zarr.json", "w") as fp:
        json.dump(document, fp)
    for options in ([], ["--json"]):
        said(capfd, verb, *options, "g", code=1)


# list


def test_list(capfd):
    names = make_all()
    lines = said(capfd, "list", "--bytes", *names).splitlines()
    rows = {line.split()[-1]: line.split() for line in lines[1:-1]}
    assert rows["g/in/t/x"][:2] == ["16", str(dataset.open("g/in/t/x").cbytes)]
    assert rows["a-bcolz"][3:6] == ["lz4", "10", "None"]
    assert MADE == len(rows)
    assert "total of %d arrays" % MADE in lines[-1]
    found = json.loads(said(capfd, "list", "--json", "t-zarr"))
    assert ["t-zarr/x", "t-zarr/y"] == [entry["file"] for entry in found]


def test_members_whose_folders_were_renamed_are_named(capfd):
    with dataset.create_group("g") as group, group.change() as change:
        change.create_array("in/rain", [1.5])
        change.create_array("time", [1, 2])
    os.rename("g/time", "g/renamed")
    os.rename("g/in/rain", "g/in/other")
    for verb in ("list", "info"):
        run(verb, "g")
        lines = capfd.readouterr().err.splitlines()
        lost = [("g", "time"), (os.path.join("g", "in"), "rain")]
        for line, names in zip(lines, lost, strict=True):
            assert "'%s' is read without the members '%s'" % names in line


def test_list_with_files(capfd):
    make_all()
    bloscpack.pack_bytes_to_file(b"abc", "x.blp")
    text = said(capfd, "list", "x.blp", "a-zarr")
    assert "total of 1 file and 1 array\n" in text
    # A folder with files is one of files; the datasets in it are folders below.
    assert "a-zarr" not in said(capfd, "list", ".")
    text = said(capfd, "list", "-r", ".")
    assert "total of 1 file and %d arrays\n" % MADE in text
    os.remove("x.blp")
    assert "total of %d arrays\n" % MADE in said(capfd, "list", ".")


def test_list_with_a_damaged_member(capfd):
    make_all()
    with open("g/one/zarr.json", "w") as fp:
        fp.write("{")
    assert "g/in/t/x" in said(capfd, "list", "g", code=3)
    os.remove("t-bcolz/y/meta/storage")
    assert "t-bcolz/x" in said(capfd, "list", "t-bcolz", code=3)


# verify


@pytest.mark.parametrize("layout", LAYOUTS)
def test_verify(capfd, layout):
    damage.new_array("a", layout)
    files = len(damage.files_of("a", layout))
    text = said(capfd, "verify", "a")
    assert "a: ok (%s array, 10 chunks in %d files, 800.0B)" % (layout, files) in text
    assert ("there are no digests" in text) != array_class(layout).has_digests
    assert "" == said(capfd, "verify", "a", quiet=True)
    damage.flip_chunk("a", layout, 4)
    text = said(capfd, "verify", "a", code=3)
    assert "a: damaged (%s array, 9 of 10 chunks in" % layout in text
    assert "rows 40 to 50)" in text
    (found,) = json.loads(said(capfd, "verify", "--json", "a", code=3))
    assert [{"member": "", "rows": [40, 50]}] == found["losses"]
    assert ("a", False) == (found["file"], found["ok"])


def test_verify_several(capfd):
    names = make_all()
    bloscpack.pack_bytes_to_file(b"abc", "x.blp")
    os.remove("g/one/c/1")
    text = said(capfd, "verify", *names, "x.blp", code=3)
    lines = [line for line in text.splitlines() if not line.startswith(" ")]
    assert [*names, "x.blp"] == [line.partition(":")[0] for line in lines]
    text = said(capfd, "verify", "-r", ".", code=3)
    assert {"./" + name for name in [*names, "x.blp"]} == {
        line.partition(":")[0] for line in text.splitlines() if line[0] == "."
    }


def test_verify_without_the_codec(capfd, monkeypatch):
    name = next(n for n in golden_directories.entries() if "snappy" in n)
    golden_directories.extract(name, Path("d"))
    monkeypatch.setitem(sys.modules, "cramjam", None)
    assert dataset.verify("d").nintact == 0
    text = said(capfd, "verify", "d", code=1)
    assert "d: not readable by this Blosc" in text


@pytest.mark.parametrize(
    "verb", ["verify", "recover", "info", "list", "cat", "metadata", "append"]
)
def test_what_is_no_dataset(capfd, verb):
    dataset.create_array("a", [1, 2]).close()
    os.remove("a/zarr.json")
    more = {"recover": ["b"], "append": ["x.npy"]}
    np.save("x.npy", [1])

    with pytest.raises(SystemExit, match="1"):
        bloscpack.cli.main([verb, "a", *more.get(verb, [])])
    said = capfd.readouterr().err
    assert "without the files of one ('zarr.json' or 'meta/storage'): 'a'" in said
    assert "nothing to do" not in said
    assert ["a", "x.npy"] == sorted(os.listdir())


# recover


@pytest.mark.parametrize("layout", LAYOUTS)
def test_recover(capfd, layout):
    damage.new_array("a", layout)
    damage.flip_chunk("a", layout, 4)
    text = said(capfd, "recover", "a", "b", code=3)
    assert text.startswith("a: 9 of 10 chunks saved to b\n")
    assert "  lost: rows 40 to 50\n" in text
    items = damage.numbers()
    items[40:50] = damage.FILL
    assert items.tolist() == dataset.open("b")[:].tolist()
    with pytest.raises(FileExistsError):
        run("recover", "a", "b")
    text = said(capfd, "recover", "--drop", "--json", "a", "b", code=3, force=True)
    assert [{"member": "", "rows": [40, 50]}] == json.loads(text)["losses"]
    assert 90 == len(dataset.open("b"))
    assert "" == said(capfd, "recover", "b", "c", quiet=True)
    with pytest.raises(Refusal, match="standard output"):
        run("recover", "a", "-")


# Beside a writer


def change_after_reads(monkeypatch, *values):
    """Assign the next value to 'source' after each of the first reads of its shards."""
    load, left = ShardFiles.load, [*values]

    def load_and_change(self, *arguments, **more):
        load(self, *arguments, **more)
        if "source" in self.folder.path() and left:
            value = left.pop(0)
            with dataset.open("source", "r+") as found:
                is_array = isinstance(found, dataset.Array)
                found[:] = value if is_array else dict.fromkeys("xy", [value] * 40)

    monkeypatch.setattr(ShardFiles, "load", load_and_change)
    monkeypatch.setattr(contents, "BLOCK_NBYTES", 160)


def make_source(kind):
    for name in ("source", "target"):
        if kind == "array":
            dataset.create_array(name, np.ones(40), chunks=10, shards=10).close()
        else:
            columns = dict.fromkeys("xy", np.ones(40))
            dataset.create_table(name, columns, chunks=10, shards=10).close()


@pytest.mark.parametrize("kind", ["array", "table"])
@pytest.mark.parametrize("verb", ["append", "diff", "show"])
def test_one_state_is_read_beside_a_writer(capfd, monkeypatch, kind, verb):
    make_source(kind)
    change_after_reads(monkeypatch, 2, 3)
    if verb == "append":
        run("append", "target", "source")
        new = dataset.open("target")[40:]
        new = new if kind == "array" else np.concatenate([new["x"], new["y"]])
        assert {3} == set(new.tolist())
    elif verb == "diff":
        found = json.loads(said(capfd, "diff", "--json", "source", "target", code=1))
        assert {40} == {each["differing"] for each in found["items"]}
    else:
        found = json.loads(said(capfd, "show", "--json", "--stats", "source"))
        assert {(3, 3)} == {(each["min"], each["max"]) for each in found["stats"]}


@pytest.mark.parametrize("verb", ["append", "diff", "convert"])
def test_a_dataset_that_changes_all_the_time(capfd, monkeypatch, verb):
    make_source("array")
    monkeypatch.setattr(dataset_folder, "RELOAD_SECONDS", -1)
    change_after_reads(monkeypatch, 2)
    names = ("target", "source") if verb == "append" else ("source", "target.zarr")
    if verb == "diff":
        assert 2 == run("diff", "source", "target")
        text = capfd.readouterr().err
    else:
        with pytest.raises(StorageError) as caught:
            run(verb, *names)
        text = message_of(caught.value)
    assert "it was changed while it was read: " in text
    assert text.rstrip().endswith("'blpk snapshot' makes a copy of one moment")
    assert 40 == len(dataset.open("target"))


# cat


@pytest.fixture
def output(monkeypatch):
    def written(*arguments, **more):
        stream = io.TextIOWrapper(io.BytesIO())
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            assert 0 == run("cat", *arguments, **more)
        return stream.buffer.getvalue()

    return written


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cat(output, layout):
    damage.new_array("a", layout)
    damage.new_table("t", layout)
    items, rows = damage.numbers(), dataset.open("t")[:]
    for name, expected in ("a", items), ("t", rows):
        assert expected.tobytes() == output(name)
        for text, key in [("3:77:9", np.s_[3:77:9]), ("-4:", np.s_[-4:])]:
            assert expected[key].tobytes() == output("--rows=" + text, name)
        for text, key in [("3:777", np.s_[3:777]), ("-9:", np.s_[-9:]), ("5:4", ())]:
            plain = expected.tobytes()
            wanted = b"" if key == () else plain[key]
            assert wanted == output("--bytes=" + text, name)


def test_cat_of_rows_with_axes(output):
    items = np.arange(60, dtype="i2").reshape(10, 2, 3)
    dataset.create_array("a", items, chunks=3, shards=6).close()
    assert items[2:9:2].tobytes() == output("--rows", "2:9:2", "a")
    dataset.create_array("b", np.zeros((4, 0))).close()
    assert b"" == output("b")


def test_cat_of_what_has_no_bytes():
    make_all()
    with pytest.raises(Refusal, match="such as 'in'"):
        run("cat", "g", force=True)
    name = next(n for n in golden_directories.entries() if n.endswith("object"))
    golden_directories.extract(name, Path("d"))
    with pytest.raises(bloscpack.FormatError, match="Python objects"):
        run("cat", "d", force=True)


# append


def append(*arguments, **more):
    assert 0 == run("append", *arguments, **more)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_append_to_an_array(layout, monkeypatch):
    damage.new_array("a", layout)
    more = np.arange(25)
    np.save("r.npy", more)
    np.savez("r.npz", more)
    more.tofile("raw")
    more.astype("i4").tofile("short")
    bloscpack.pack_ndarray_to_file(more, "r.blp")
    dataset.create_array("d", more, layout="zarr").close()
    expected = damage.numbers()
    for name in ("r.npy", "r.npz", "raw", "r.blp", "d"):
        append("a", name)
        expected = np.append(expected, more)
        assert expected.tolist() == dataset.open("a")[:].tolist(), name
    read, write = os.pipe()
    os.write(write, more.tobytes())
    os.close(write)
    with open(read, encoding="ascii") as pipe:
        monkeypatch.setattr(sys, "stdin", pipe)
        append("a", "-")
    expected = np.append(expected, more)
    assert expected.tolist() == dataset.open("a")[:].tolist()
    with pytest.raises(UsageError, match="a multiple of '8' bytes"):
        run("append", "a", "short")
    assert dataset.verify("a").ok


@pytest.mark.parametrize("layout", LAYOUTS)
def test_append_to_a_table(layout):
    damage.new_table("t", layout)
    rows = np.array([(1, 2.5), (3, 4.5)], [("x", "i8"), ("y", "f4")])
    np.save("r.npy", rows)
    np.savez("r.npz", y=rows["y"], x=rows["x"])
    rows.tofile("raw")
    dataset.create_table("d", rows).close()
    for name in ("r.npy", "r.npz", "raw", "d"):
        append("t", name)
        assert rows.tolist() == dataset.open("t")[-2:].tolist(), name
    assert 108 == len(dataset.open("t"))
    assert dataset.verify("t").ok


def test_append_what_does_not_fit():
    make_all()
    np.save("f.npy", np.arange(3.5))
    np.savez("two.npz", a=[1], b=[2])
    np.save("order.npy", np.asfortranarray(np.arange(6).reshape(3, 2)))
    for name, target, error in [
        ("f.npy", "a-zarr", UsageError),
        ("two.npz", "a-zarr", Refusal),
        ("two.npz", "t-zarr", UsageError),
        ("t-zarr", "a-zarr", Refusal),
        ("a-zarr", "t-zarr", Refusal),
        ("g", "a-zarr", Refusal),
        ("f.npy", "g", Refusal),
    ]:
        with pytest.raises(error):
            run("append", target, name)
    for option in (["--no-grow"], ["-m", "f.npy"], ["-c", "zstd"], ["--no-shuffle"]):
        with pytest.raises(Refusal, match="is for files"):
            run("append", "a-zarr", "f.npy", *option)
    assert 100 == len(dataset.open("a-zarr")) == len(dataset.open("t-zarr"))
    dataset.create_array("two", np.zeros((1, 2), "i8")).close()
    append("two", "order.npy")
    assert [[0, 0], [0, 1], [2, 3], [4, 5]] == dataset.open("two")[:].tolist()


def test_append_from_a_damaged_archive():
    make_all()
    with zipfile.ZipFile("lzma.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("x.npy", bytes(1000))
    with zipfile.ZipFile("stored.npz", "w") as archive:
        archive.writestr("x.npy", b"text")
    for source, target, position, byte, error in [
        ("lzma.npz", "damaged.npz", 50, 255, DamageError),
        # The local header has other flags, or another method.
        ("stored.npz", "encrypted.npz", -65, 1, DamageError),
        ("stored.npz", "unknown.npz", -63, 99, DamageError),
        ("stored.npz", "text.npz", 0, 80, NotReadable),
    ]:
        content = bytearray(Path(source).read_bytes())
        # Positions from the end on are in the directory of the archive.
        content[position] = byte
        Path(target).write_bytes(content)
        calls = [(run, "append", "a-zarr", target)]
        calls += [(dataset.convert, target, "new.zarr")]
        for function, *arguments in calls:
            with pytest.raises(error) as caught:
                function(*arguments)
            assert target + "/x.npy" == caught.value.filename
    assert 100 == len(dataset.open("a-zarr"))


# metadata


def test_metadata(capfd):
    names = [*make_all(), "g/one"]
    for name in names:
        old = dataset.open(name).attrs.asdict()
        assert old == json.loads(said(capfd, "metadata", name))
        run("metadata", "--update", "new=[1, 2]", "--update", 'x="y"', name)
        run("metadata", "--remove", "new", name)
        assert {**old, "x": "y"} == dataset.open(name).attrs.asdict()
        with open("m.json", "w") as fp:
            json.dump({"only": 1}, fp)
        run("metadata", "--set", "m.json", name)
        assert '{"only":1}\n' == said(capfd, "metadata", "--compact", name)
        assert dataset.verify(name).ok
    with pytest.raises(Refusal, match="the attributes have no key 'x'") as caught:
        run("metadata", "--remove", "x", "g")
    assert 1 == caught.value.exit_code
    with open("m.json", "w") as fp:
        json.dump([1], fp)
    with pytest.raises(Refusal, match="must be a JSON object"):
        run("metadata", "--set", "m.json", "g")


# info --chunks


def test_chunks(capfd):
    names = make_all()
    for name in names:
        text = said(capfd, "info", "--chunks", name)
        nchunks = dataset.verify(name).nchunks
        assert "%d chunks, 0 damaged: %s" % (nchunks, name) in text
    damage.flip_chunk("t-zarr/y", "zarr", 3)
    lines = said(capfd, "info", "--chunks", "t-zarr", code=3).splitlines()
    rows = [line.split()[3:] for line in lines[1:21]]
    assert ["%d" % i for i in range(10)] * 2 == [row[0] for row in rows]
    assert ["x/"] * 10 + ["y/"] * 10 == [row[2][:2] for row in rows]
    assert [13] == [i for i, row in enumerate(rows) if row[1] == "damaged"]
    assert "20 chunks, 1 damaged: t-zarr" in lines[21]
    assert "error: 'y/" in lines[22]


def test_links_to_datasets_are_datasets(capfd):
    make_all()
    os.symlink("a-zarr", "link")
    assert "ok" in said(capfd, "verify", "link")
    shutil.rmtree("a-zarr")


def test_text_of_any_length(capfd):
    pytest.importorskip("pyarrow")  # CSV
    words = np.array(["x\x1b[31m", "suspicious", None], object)
    dataset.create_table("t", {"s": words, "n": [1, 2, 3]}).close()
    dataset.create_array("a", words[:2]).close()
    assert "dtype:       text" in said(capfd, "info", "a")
    shown = said(capfd, "show", "a")
    assert "suspicious" in shown
    assert r"x\x1b[31m" in shown
    with open("new.csv", "w") as fp:
        fp.write("s,s_missing,n\nmuch longer than the others,False,4\n")
    said(capfd, "append", "t", "new.csv")
    assert "much longer than the others" == dataset.open("t")["s"][3]
    said(capfd, "verify", "t", "a")
    with open("raw", "wb") as fp:
        fp.write(bytes(64))
    for name in ("a", "t"):
        for arguments in (("append", name, "raw"), ("cat", name)):
            with pytest.raises((UsageError, Refusal), match="text of any length"):
                run(*arguments)


@pytest.mark.parametrize("layout", ["zarr", "superchunk"])
def test_appending_files_with_missing_values(capfd, layout):
    """Files need no columns that say which values of others are missing."""
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    gaps = pandas.DataFrame(
        {
            "i": pandas.array([1, None, -3], "Int16"),
            "b": pandas.array([True, None, False], "boolean"),
            "s": pandas.Series(["x", None, ""], dtype=object),
            "f": [0.5, None, 2.0],
        }
    )
    whole = gaps[[True, False, True]].reset_index(drop=True)
    target = "t." + layout
    gaps.to_parquet("gaps.parquet")
    whole.to_parquet("whole.parquet")
    gaps[["f", "s", "b", "i"]].to_csv("gaps.csv", index=False)
    whole.to_csv("whole.csv", index=False)
    said(capfd, "convert", "gaps.parquet", target)
    for name in ("gaps.parquet", "whole.parquet", "gaps.csv", "whole.csv"):
        said(capfd, "append", target, name)
    plain = gaps.assign(s=["x", "", ""])  # empty text in CSV is a text
    expected = pandas.concat([gaps, gaps, whole, plain, whole], ignore_index=True)
    found = dataset.open(target).to_pandas()
    for name in expected:
        missing = expected[name].isna()
        assert missing.tolist() == found[name].isna().tolist(), name
        items = expected[name][~missing].tolist()
        assert items == found[name][~missing].tolist(), name
    with open("wrong.csv", "w") as fp:
        fp.write("i,b,s,f\n1,True,x,1\nNA,1.5,x,1\n")
    with pytest.raises(UsageError, match=r"'b', line 3: expected values .*'1.5'"):
        run("append", target, "wrong.csv")


def test_appending_the_first_missing_values(capfd):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    with dataset.create_table("t", {"s": np.array(["a"], object), "i": [1]}):
        pass
    texts = pandas.DataFrame({"s": ["b", None], "i": [2, 3]})
    texts.to_parquet("texts.parquet")
    said(capfd, "append", "t", "texts.parquet")
    assert [False, False, True] == dataset.open("t")["s_missing"][:].tolist()
    numbers = pandas.DataFrame({"s": ["c"], "i": pandas.array([None], "Int64")})
    numbers.to_parquet("numbers.parquet")
    with pytest.raises(UsageError, match=r"'i' has missing items.* no column 'i_m"):
        run("append", "t", "numbers.parquet")
    assert ["a", "b", ""] == dataset.open("t")["s"][:].tolist()
