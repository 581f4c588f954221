"""`blpk bigfile`: its actions, their output, and their exit codes."""

from __future__ import annotations

import glob
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from support import GOLDEN, environment, run_blpk, run_python

from bloscpack import bigfile

SNAPSHOT = GOLDEN / "directories" / "bigfile" / "snapshot" / "data"
UNWRITTEN = GOLDEN / "directories" / "bigfile" / "unwritten" / "data"


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tree = bigfile.File("tree", create=True)
    array = np.arange(30, dtype="<i4").reshape(10, 3)
    with tree.create_from_array("g/x", array, Nfile=2) as column:
        column.attrs.update(a=[1.5, 2.5], s="text")
    return tree


@pytest.fixture
def good(run):
    """Run `blpk bigfile`, which must succeed; return what it prints."""

    def good(*arguments):
        code, out, err = run("bigfile", *arguments)
        assert (0, "") == (code, err)
        return out

    return good


def test_help_names_every_action(good):
    text = good("--help")
    assert all(len(line) <= 80 for line in text.splitlines())
    actions = re.findall(r"^    ([a-z-]+)(?:  +\S|$)", text, re.M)
    assert {"ls", "cat", "get-attr", "repartition", "verify"} <= {*actions}
    for action in actions:
        usage = good(action, "--help").splitlines()[0]
        assert usage.startswith("usage: blpk bigfile %s [options] <tree> " % action)


def test_ls(tree, good):
    assert "g/x\n" == good("ls", "tree")
    path = os.path.realpath("tree/g/x")
    line = "%-28s <i4 3           10 00435 2 %s\n" % ("g/x", path)
    assert line == good("ls", "-l", "tree") == good("ls", "-l", "tree", "g/x")
    (fields,) = json.loads(good("ls", "--json", "tree"))
    assert ("g/x", 10, ["a", "s"]) == (
        fields["name"],
        fields["size"],
        fields["attributes"],
    )
    assert bigfile.File(SNAPSHOT).blocks == good("ls", SNAPSHOT).split()


@pytest.mark.parametrize("option", ["-l", "--json"])
def test_ls_of_a_damaged_header_shows_the_other_blocks(tree, run, tmp_path, option):
    for name in ("a", "g/z"):
        tree.create_from_array(name, np.arange(3)).close()
    (tmp_path / "tree/g/x/header").write_bytes(b"DTYPE: <i4\n")
    code, out, err = run("bigfile", "ls", option, "tree")
    assert 3 == code
    assert "blpk: error: " in err
    assert "tree/g/x/header" in err
    shown = [fields["name"] for fields in json.loads(out)] if "j" in option else out
    assert ["a", "g/z"] == [name for name in ("a", "g/x", "g/z") if name in shown]


def test_cat(tree, good):
    assert "6 7 8 \n9 10 11 \n" == good("cat", "-o", "2", "-c", "2", "tree", "g/x")
    assert 10 == good("cat", "tree", "g/x").count("\n")
    assert [[27, 28, 29]] == json.loads(good("cat", "--json", "-o9", "tree", "g/x"))
    assert "" == good("cat", "-o", "99", "tree", "g/x")


@pytest.mark.parametrize("count", [0, 1, 7, 10])
def test_json_of_some_rows(tree, good, count):
    values = np.where(np.arange(10) == 4, np.nan, np.arange(10) / 2)
    tree.create_from_array("v", values).close()
    expected = [None if np.isnan(v) else v for v in values[:count].tolist()]
    whole = good("cat", "--json", "-c", str(count), "tree", "v")
    assert expected == json.loads(whole)


def test_cat_binary(tree):
    for option in ("-b", "-B"):
        found = run_blpk("bigfile", "cat", option, "tree", "g/x", check=True)
        assert tree["g/x"][:].tobytes() == found.stdout


def test_cat_shows_values_like_the_original(good):
    assert "1.75187 2.93546 5.32152 \n" == good(
        "cat", "-o2", "-c1", SNAPSHOT, "0/Position"
    )


@pytest.mark.parametrize(
    ("dtype", "text", "expected"),
    [
        ("i4", "<%05ld>", "<00007> \n<00008> \n"),
        ("u8", "%llu", "7 \n8 \n"),
        ("f4", "%7.2f", "   7.00 \n   8.00 \n"),
        ("f8", "%d", "7 \n8 \n"),
        ("c8", "%g %gi", "7 0i \n8 0i \n"),
        ("S2", "[%3s]", "[  7] \n[  8] \n"),
    ],
)
def test_cat_in_a_format(tree, good, dtype, text, expected):
    tree.create_from_array("v", np.arange(7, 9).astype(dtype)).close()
    assert expected == good("cat", "-f", text, "tree", "v")
    tree.create_from_array("v", np.array([b"\x1b[2J"])).close()
    assert "\\x1b[2J \n" == good("cat", "-f", "%s", "tree", "v")


@pytest.mark.parametrize(
    "text", ["%q", "%d %d", "none", "%*d", "%x", "%.999999999999f"]
)
def test_a_wrong_format_is_refused(tree, run, text):
    tree.create_from_array("v", np.array([1.5])).close()
    code, out, err = run("bigfile", "cat", "-f", text, "tree", "v")
    assert (2, "") == (code, out)
    assert "error: cat: the format '%s' can't show the item '1.5': " % text in err


def test_get_attr(tree, good):
    assert "a <f8 2 [ 1.5 2.5 ]\ns <a1 4 [ text ]\n" == good("get-attr", "tree", "g/x")
    assert "1.5 2.5\n" == good("get-attr", "tree", "g/x", "a")
    found = json.loads(good("get-attr", "--json", "tree", "g/x"))
    assert {"a": [1.5, 2.5], "s": "text"} == found


def test_json_of_numbers_of_16_bytes(tree, good):
    tree["g/x"].attrs["wide"] = np.array([0.5, 2], "f16")
    found = json.loads(good("get-attr", "--json", "tree", "g/x", "wide"))
    assert {"wide": [0.5, 2.0]} == found
    tree.create_from_array("w", np.array([0.5, np.inf], "f16")).close()
    assert [0.5, "Infinity"] == json.loads(good("cat", "--json", "tree", "w"))


def test_set_attr(tree, good):
    good("set-attr", "tree", "g/x", "a", "-1", "2")
    good("set-attr", "tree", "g/x", "n", "5")
    good("set-attr", "-t", "u8", "tree", "g/x", "u", "5")
    good("set-attr", "tree", "g/x", "t", "two words")
    good("set-attr", "tree", ".", "root", "0.5")
    attrs = tree["g/x"].attrs
    assert ("<f8", [-1, 2]) == (attrs.raw("a").dtype_name, attrs["a"].tolist())
    assert ("<i8", "<u8") == tuple(attrs.raw(name).dtype_name for name in "nu")
    assert "two words" == attrs["t"]
    assert [0.5] == tree.attrs["root"].tolist()


@pytest.mark.parametrize(
    ("options", "given", "dtype"),
    [
        ([], ["n", "1.5"], "<i8"),
        ([], ["n", "1e30"], "<i8"),
        ([], ["n", "1", "word"], "<i8"),
        (["-t", "u1"], ["n", "300"], "u1"),
        (["-t", "f4"], ["x", "a b"], "f4"),
        (["-t", "f4"], ["x", "1e300"], "f4"),
        (["-t", "c8"], ["x", "1", "1e300"], "c8"),
        (["-t", "S3"], ["x", "abcd"], "S3"),
        (["-t", "U3"], ["x", "abcd"], "U3"),
        (["-t", "b1"], ["x", "False"], "b1"),
        (["-t", "b1"], ["x", "5"], "b1"),
        (["-t", "nothing"], ["x", "5"], "nothing"),
    ],
)
def test_set_attr_refuses_what_the_type_can_not_hold(
    tree, good, run, options, given, dtype
):
    good("set-attr", "tree", "g/x", "n", "5")
    code, out, err = run("bigfile", "set-attr", *options, "tree", "g/x", *given)
    assert (2, "") == (code, out)
    fields = dtype, given[0], " ".join(given[1:])
    assert "the type '%s' of the attribute '%s' can't hold '%s'" % fields in err
    assert "5\n" == good("get-attr", "tree", "g/x", "n")


@pytest.mark.parametrize(
    ("dtype", "texts", "expected"),
    [
        ("S3", ["abc", "d"], ["abc", "d"]),
        ("b1", ["1", "0"], [True, False]),
        ("f4", ["inf", "-2"], [np.inf, -2]),
    ],
)
def test_set_attr_with_a_type(tree, good, dtype, texts, expected):
    good("set-attr", "-t", dtype, "tree", "g/x", "n", *texts)
    assert expected == list(tree["g/x"].attrs["n"])


def test_messages_about_wrong_names(tree, run, tmp_path):
    (tmp_path / "file").touch()
    for arguments, message in (
        (["ls"], "the following arguments are required: <tree>\n"),
        (["ls", "missing"], "'missing' does not exist"),
        (["ls", "file"], "'file' is not a folder"),
        (["create", "new", "y", "f9"], "'f9' is no type"),
    ):
        assert message in run("bigfile", *arguments)[2]
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("verb", ["cat", "recover", "metadata"])
def test_verbs_for_one_file_refuse_a_tree(tree, run, verb):
    more = ["x.blp"] if verb == "recover" else []
    code, out, err = run(verb, "tree", *more)
    assert (1, "") == (code, out)
    assert "blpk: error: 'tree' is a BigFile tree" in err
    assert "'blpk bigfile" in err
    os.mkdir("other")
    err = run(verb, "other", *more)[2]
    assert "without the files of one ('zarr.json' or 'meta/storage'): 'other'" in err


def test_verify_checks_a_tree(tree, run):
    code, out, _ = run("verify", "tree")
    assert 0 == code
    assert out.startswith("tree: ok (")
    os.truncate(glob.glob("tree/**/000000", recursive=True)[0], 1)
    assert 3 == run("verify", "tree")[0]


@pytest.mark.parametrize("arguments", [["info"], ["list"]])
def test_verbs_for_files_refuse_a_tree(tree, run, arguments):
    code, out, err = run(*arguments, "tree")
    assert (1, "") == (code, out)
    assert "error: 'tree' is a BigFile tree, which 'blpk bigfile' reads" in err
    run("compress", "tree/g/x/000000", "tree/file.blp")
    assert 0 == run(*arguments, "tree")[0]


@pytest.mark.parametrize("verb", ["verify", "info", "list"])
def test_a_tree_in_a_folder_is_named(tree, run, tmp_path, verb):
    """The files beside it are read, and the exit code says that it was not."""
    (tmp_path / "d" / "in").mkdir(parents=True)
    (tmp_path / "tree").rename(tmp_path / "d" / "tree")
    run("compress", "d/tree/g/x/000000", "d/a.blp")
    run("compress", "d/tree/g/x/000000", "d/tree/b.blp")
    run("compress", "d/tree/g/x/000000", "d/in/c.blp")
    code, out, err = run(verb, "-r", "d")
    if verb == "verify":
        assert 0 == code
        assert "d/tree/g: ok (" in out
    else:
        assert 1 == code
        assert "error: 'd/tree/g' is a BigFile tree, which 'blpk bigfile' reads" in err
    assert all(name in out for name in ("d/a.blp", "d/tree/b.blp", "d/in/c.blp"))
    assert "skipped" not in err


def test_options_may_stand_between_the_arguments(tree, good, tmp_path):
    (tmp_path / "raw").write_bytes(bytes(48))
    good("create", "new", "y", "--nmemb", "3", "f8", "-N", "2", "raw")
    new = bigfile.File("new")
    assert ((2, 3), 2) == (new["y"].shape, new["y"].nfile)
    good("set-attr", "new", "y", "s", "-t", "S16", "text")
    assert ["text"] == new["y"].attrs["s"]


def test_text_that_the_terminal_can_not_show_is_escaped(tree):
    tree["g/x"].attrs["name"] = "h\xe9llo"
    tree.create_from_array("names", np.array(["h\xe9".encode()])).close()
    env = environment(PYTHONIOENCODING="ascii")
    for arguments, text in (
        (("get-attr", "tree", "g/x", "name"), b"h\\xe9llo\n"),
        (("cat", "tree", "names"), b"h\\xe9 \n"),
    ):
        assert text == run_blpk("bigfile", *arguments, env=env, check=True).stdout


def test_create(tree, good, tmp_path):
    (tmp_path / "raw").write_bytes(np.arange(12, dtype="<f4").tobytes())
    good("create", "-N", "3", "--nmemb", "2", "new", "y", "f4", "raw")
    new = bigfile.File("new")
    assert ((6, 2), 3) == (new["y"].shape, new["y"].nfile)
    good("create", "--size", "7", "new", "z", "f8")
    good("create", "new", "Header")
    assert ((7,), 0) == (new["z"].shape, new["Header"].nmemb)


@pytest.mark.parametrize("nmemb", ["-1", str(2**40)])
def test_create_with_an_impossible_row(run, nmemb):
    code, _, err = run("bigfile", "create", "--nmemb=" + nmemb, "new", "x", "f8")
    assert (2, True) == (code, "--nmemb: a row can't have %s items" % nmemb in err)


def test_create_of_a_file_of_the_block(tree, good, run, tmp_path):
    """It is emptied before it is read."""
    good("create", "--size", "2", "tree", "x", "f8")
    tree["x"].write(0, np.arange(2.0))
    own = os.path.join("tree", "x", "000000")
    code, _, err = run("-f", "bigfile", "create", "tree", "x", "f4", own)
    assert (2, True) == (code, "copy it first" in err)
    assert [0, 1] == tree["x"][:].tolist()


@pytest.mark.parametrize("option", ["-n", "-N"])
def test_n_is_the_number_of_files(tree, good, tmp_path, option):
    (tmp_path / "raw").write_bytes(bytes(24))
    good("create", option, "3", "new", "x", "f4", "raw")
    assert 3 == bigfile.File("new")["x"].nfile
    good("copy", option, "5", "tree", "g/x", "y")
    good("copy", "tree", option, "4", "--to", "other")
    other = bigfile.File("other")
    assert (5, [4, 4]) == (tree["y"].nfile, [other[name].nfile for name in other])


def test_n_before_the_action_is_the_number_of_threads(tree, run, tmp_path):
    (tmp_path / "raw").write_bytes(bytes(24))
    arguments = "create", "new", "x", "f4", "raw"
    assert "using 3 threads" in run("-v", "-n", "3", "bigfile", *arguments)[1]
    assert 1 == bigfile.File("new")["x"].nfile
    assert "using 3 threads" in run("-v", "bigfile", "ls", "-n", "3", "tree")[1]
    # Between verb and action it could be either.
    assert 2 == run("bigfile", "-n", "3", *arguments)[0]


def test_create_from_a_pipe(tmp_path):
    data = np.arange(1000, dtype="<i8").tobytes()
    command = "bigfile", "create", "-N", "2", "new", "x", "<i8"
    run_blpk(*command, input=data, cwd=tmp_path, check=True)
    column = bigfile.File(tmp_path / "new")["x"]
    assert (2, data) == (column.nfile, column[:].tobytes())
    command = "bigfile", "create", "new", "y", "<i8"
    done = run_blpk(*command, input=data[:-1], cwd=tmp_path)
    assert 2 == done.returncode
    assert b"7999 bytes can't be rows of 8 bytes" in done.stderr
    assert ["x"] == bigfile.File(tmp_path / "new").blocks


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "tree", "y", "f8", "raw"),
        ("create", "tree", "y", "f8"),
        ("cat", "-b", "tree", "x"),
        ("cat", "-c", "2000000", "tree", "x"),
        ("cat", "-c", "500000", "--json", "tree", "x"),
        ("repartition", "tree", "x", "y", "5"),
        ("repartition", "tree", "5"),
        ("copy", "-t", "f4", "tree", "x", "y"),
        ("verify", "tree"),
    ],
    ids=" ".join,
)
def test_memory_does_not_grow_with_the_block(arguments, tmp_path):
    nbytes = 300 * 2**20
    bigfile.File(tmp_path / "tree", create=True).create("x", "f8", nbytes // 8).close()
    for name in ("raw", "tree/x/000000"):
        with open(tmp_path / name, "wb") as fp:
            fp.truncate(nbytes)
    program = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    command = [sys.executable, "-m", "bloscpack", "bigfile", *arguments]
    with (
        open(tmp_path / "raw", "rb") as raw,
        subprocess.Popen(["cat"], stdin=raw, stdout=subprocess.PIPE) as pipe,
    ):
        options = {"cwd": tmp_path, "stdin": pipe.stdout, "text": True, "check": True}
        done = run_python("-c", program, *command, **options)
        pipe.stdout.close()
        pipe.terminate()
    assert int(done.stdout) * 2**10 < 120 * 2**20


def test_copies(tree, good, run):
    good("repartition", "tree", "g/x", "g/y", "4")
    good("copy", "-t", "f8", "tree", "g/x", "z")
    assert (4, "text") == (tree["g/y"].nfile, tree["g/y"].attrs["s"])
    assert np.dtype("f8") == tree["z"].dtype
    tree["g/"].attrs["unit"] = "m"
    good("copy", "tree", "--to", "other")
    other = bigfile.File("other")
    assert ["g/x", "g/y", "z"] == other.blocks
    assert "m" == other["g/"].attrs["unit"]
    assert tree["g/x"][:].tolist() == other["z"][:].tolist()
    code, _, err = run("bigfile", "copy", "tree", "--to", "other")
    assert 1 == code
    assert "use --force" in err


def test_repartition_in_place(tree, good, tmp_path):
    tree.create_from_array("y", np.arange(4)).close()
    with tree.create("Header") as header:
        header.attrs["Time"] = 0.5
    os.chmod(tmp_path / "tree/g/x/000000", 0o640)
    before = tree["g/x"][:].tolist()
    good("repartition", "tree", "4")
    assert [4, 4, 0] == [tree[name].nfile for name in ("g/x", "y", "Header")]
    good("repartition", "tree", "1", "y", "g/x")
    column = tree["g/x"]
    assert (1, before, "text") == (column.nfile, column[:].tolist(), column.attrs["s"])
    assert ["000000", "attr-v2", "header"] == sorted(os.listdir(tmp_path / "tree/g/x"))
    assert 0o640 == (tmp_path / "tree/g/x/000000").stat().st_mode & 0o777
    assert ["x"] == os.listdir(tmp_path / "tree/g")
    assert bigfile.verify(tree).ok


def test_repartition_keeps_a_block_that_it_can_not_copy(tree, run, tmp_path):
    tree.create_from_array("y", np.arange(4)).close()
    os.truncate(tmp_path / "tree/g/x/000001", 10)
    tree.create_from_array("other", np.arange(4)).close()
    (tmp_path / "tree/other/notes").touch()
    header = (tmp_path / "tree/g/x/header").read_bytes()
    names = "nope", "g/x", "other", "y"
    code, _, err = run("bigfile", "repartition", "tree", "3", *names)
    assert (3, 3) == (code, tree["y"].nfile)
    assert "no block 'nope'" in err
    assert "rows 5 to 9 missing" in err
    assert "other' has files that are no files of a block" in err
    assert (tmp_path / "tree/other/notes").exists()
    assert header == (tmp_path / "tree/g/x/header").read_bytes()
    assert ["x"] == os.listdir(tmp_path / "tree/g")
    for files, message in (("0", "at least one file"), ("x", "not a number of files")):
        code, _, err = run("bigfile", "repartition", "tree", files, "y")
        assert (2, 3) == (code, tree["y"].nfile)
        assert message in err


def test_verify(tree, good, run):
    assert "tree: ok (1 block, 2 data files, 120 bytes)\n" == good("verify", "tree")
    assert json.loads(good("verify", "--json", "tree"))["ok"]
    code, out, _ = run("bigfile", "verify", UNWRITTEN)
    assert 3 == code
    assert "error: never/000000: rows 0 to 5 missing" in out
    assert 0 == run("bigfile", "verify", UNWRITTEN, "full")[0]


def test_verify_of_a_folder_without_a_tree(tmp_path, run):
    (tmp_path / "empty" / "inside").mkdir(parents=True)
    code, out, err = run("bigfile", "verify", tmp_path / "empty")
    assert (1, "") == (code, out)
    assert "has no block and no attributes, so it is no BigFile tree" in err
    bigfile.File(tmp_path / "empty").attrs["a"] = 1
    assert 0 == run("bigfile", "verify", tmp_path / "empty")[0]


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (1, ["ls", "missing"]),
        (2, ["ls"]),
        (1, ["cat", "tree", "missing"]),
        (1, ["get-attr", "tree", "g/x", "missing"]),
        (1, ["verify", "tree", "missing"]),
        (1, ["create", "tree", "g/x", "f4"]),
        (2, ["cat", "tree"]),
        (2, ["cat", "tree", "../x"]),
        (2, ["cat", "-o", "-1", "tree", "g/x"]),
        (2, ["cat", "-c", "-1", "tree", "g/x"]),
        (2, ["copy", "tree"]),
        (2, ["create", "--size", "3", "tree", "y", "U5"]),
        (2, ["create", "--size", "3", "tree", "y", "nonsense"]),
        (2, ["repartition", "tree", "g/x", "y", "many"]),
        (2, ["set-attr", "-t", "f8", "tree", "g/x", "a", "word"]),
        (2, ["set-attr", "tree", "g/x", "a b", "1"]),
        (2, ["shrink", "tree"]),
    ],
)
def test_failures(tree, run, code, arguments):
    found, out, err = run("bigfile", *arguments)
    assert (code, "") == (found, out)
    assert "error: " in err
    assert ["g/x"] == bigfile.File("tree").blocks
