"""``verify``, ``list`` and ``info`` of folders, and of several files."""

import errno
import json
import os
import zipfile

import numpy as np
import pytest
from cli.verb_support import message_of
from support import as_user, folder_for_all_users, needs_root

import bloscpack
from bloscpack import bigfile, dataset

FILES = ("a.blp", "below/b.blp", "below/c.blp")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in" / "below").mkdir(parents=True)
    for name in FILES:
        bloscpack.pack_bytes_to_file(name.encode(), tmp_path / "in" / name)
    (tmp_path / "in" / "words").write_text("some words")
    return tmp_path


SKIPPED = "blpk: skipped 'in/words': the name does not end with '.blp'\n"
BELOW = "blpk: skipped 'in/below': a folder below, which needs -r\n"


@pytest.mark.parametrize("verb", ["verify", "list", "info"])
@pytest.mark.parametrize(
    ("arguments", "expected", "skipped"),
    [
        (["-r", "in"], ["in/" + name for name in FILES], SKIPPED),
        (["in", "-r"], ["in/" + name for name in FILES], SKIPPED),
        (["in"], ["in/a.blp"], BELOW + SKIPPED),
        (["in/a.blp", "in/below"], ["in/" + name for name in FILES], ""),
    ],
)
def test_folders(run, verb, arguments, expected, skipped):
    code, said, errors = run(verb, "--json", *arguments)
    found = json.loads(said)
    key = "filename" if verb == "verify" else "file"
    assert (0, expected, skipped) == (code, [entry[key] for entry in found], errors)
    code, said, errors = run(verb, *arguments)
    assert (0, skipped) == (code, errors)
    assert [] == [name for name in expected if name not in said]


def test_info_of_several_files(run):
    single = run("info", "in/a.blp")[1]
    code, said, errors = run("info", "in/a.blp", "missing", "in/below/b.blp")
    assert said.startswith("'in/a.blp':\n%s\n'missing':\n" % single)
    assert "\n\n'in/below/b.blp':\nkind:       bytes\n" in said
    assert (1, "blpk: error: file 'missing' does not exist!\n") == (code, errors)


def test_info_of_a_file(run):
    expected = run("info", "in/a.blp")
    assert 0 == expected[0]
    assert expected[1].startswith("kind:       bytes\n")
    assert expected == run("info", "-r", "in/a.blp") == run("-n", "1", "i", "in/a.blp")
    assert "in/a.blp" == json.loads(run("info", "--json", "in/a.blp")[1])["file"]


def test_damage_in_a_folder(run, folder):
    data = (folder / "in" / "below" / "b.blp").read_bytes()
    (folder / "in" / "below" / "b.blp").write_bytes(data[:-1])
    code, said, _ = run("verify", "-r", "in")
    assert 3 == code
    states = [line.split(" (")[0] for line in said.splitlines() if line[0] != " "]
    assert ["in/a.blp: ok", "in/below/b.blp: damaged", "in/below/c.blp: ok"] == states


@pytest.mark.parametrize("verb", ["verify", "list", "info"])
def test_a_folder_without_inputs(run, folder, verb):
    (folder / "empty").mkdir()
    (folder / "other").mkdir()
    (folder / "other" / "text").write_text("no dataset")
    (folder / "other" / "inner").mkdir()
    for arguments in (["empty"], ["-r", "empty"], ["other"], ["-r", "other"]):
        code, _, errors = run(verb, *arguments)
        assert 1 == code
        name = arguments[-1]
        assert "files of one ('zarr.json' or 'meta/storage'): '%s'\n" % name in errors
    code, said, errors = run(verb, "empty", "in/a.blp")
    assert 1 == code
    assert "in/a.blp" in said
    assert (2, "") == run(verb)[:2]


SIZE = "expected a number of bytes, or one with a suffix from B K M G T like 1.5M, "
SIZE += "1.5MB or 1.5MiB, found '1Q'\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["compress", "-z", "1Q", "x"],
        ["compress", "--max-meta-size", "1Q", "x"],
        ["cat", "--bytes", "1Q:", "in/a.blp"],
    ],
)
def test_one_text_for_sizes(run, arguments):
    code, said, errors = run(*arguments)
    assert (2, "") == (code, said)
    assert errors.endswith(SIZE)


def test_the_text_for_sizes_in_a_variable(run, monkeypatch):
    monkeypatch.setenv("BLPK_DEFAULTS", "-z 1Q")
    assert SIZE.strip() + " (BLPK_DEFAULTS: '-z 1Q')" in run("compress", "in/words")[2]
    monkeypatch.setenv("BLPK_DEFAULTS", "-z 4KiB")
    assert (0, "", "") == run("compress", "in/words")


INSTEAD = [
    ("repack", "data.zarr", "a dataset, which 'blpk convert' reads"),
    ("compress", "data.zarr", "a dataset, which 'blpk convert' reads"),
    ("decompress", "data.zarr", "a dataset, which 'blpk convert' reads"),
    ("cat", "a tree", "a BigFile tree, which 'blpk bigfile' reads"),
    ("compress", "a tree", "a BigFile tree, which 'blpk bigfile' reads"),
    ("decompress", "a tree", "a BigFile tree, which 'blpk bigfile' reads"),
]


@pytest.mark.parametrize(("verb", "name", "expected"), INSTEAD)
def test_what_to_use_instead(run, verb, name, expected):
    dataset.create_array("data.zarr", [1, 2]).close()
    with bigfile.File("a tree", create=True) as tree:
        tree.create_from_array("block", np.arange(3))
    before = list(os.walk("."))
    code, said, errors = run(verb, name)
    assert (1, "", 1) == (code, said, errors.count("\n"))
    assert errors.startswith("blpk: error: '%s' is %s" % (name, expected))
    assert before == list(os.walk("."))


MISSING = [
    "info",
    "list",
    "cat",
    "verify",
    "metadata",
    "refs",
    "repack",
]


@pytest.mark.parametrize("verb", MISSING)
def test_one_wording_for_a_missing_file(run, verb):
    expected = "blpk: error: file 'missing.blp' does not exist!\n"
    assert (1, "", expected) == run(verb, "missing.blp")


# The verbs that read a file, with the other files that they need.
READERS = {
    **dict.fromkeys((*MISSING, "show", "diff", "recover", "convert"), ()),
    "append": ("new",),
    "compress": (),
    "decompress": (),
}
READERS["diff"], READERS["recover"], READERS["convert"] = ("new",), ("out",), ("o.npz",)


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")
@pytest.mark.parametrize("verb", READERS)
def test_a_link_to_a_file_that_does_not_exist(run, verb):
    os.symlink("nowhere", "link.blp")
    np.save("new", np.arange(3))
    code, _, errors = run(verb, "link.blp", *READERS[verb])
    assert (2 if verb == "diff" else 1) == code
    assert "'link.blp' is a link to 'nowhere', which does not exist!" in errors


def test_compress_names_a_link_to_a_file_that_does_not_exist(run, tmp_path):
    os.symlink("nowhere", "link")
    expected = "input file 'link' is a link to 'nowhere', which does not exist!\n"
    assert (1, "", "blpk: error: " + expected) == run("compress", "link")
    os.symlink("nowhere", "in/link")
    errors = run("compress", "-r", "in")[2]
    assert "'in/link': it is a link to 'nowhere', which does not exist" in errors


@needs_root
@pytest.mark.parametrize("verb", READERS)
@pytest.mark.parametrize("name", ["shut/a.blp", "link.blp", "shut/a.zip", "shut/a"])
def test_a_file_in_a_folder_that_one_may_not_enter(run, verb, name, monkeypatch):
    with folder_for_all_users() as folder:
        monkeypatch.chdir(folder)
        os.mkdir("shut", 0o700)
        os.symlink("shut/a.blp", "link.blp")
        np.save("shut/a.blp", np.arange(3))
        np.save("new.npy", np.arange(3))
        os.chmod(".", 0o777)
        run("info", "shut/a.blp")  # imports what the other user may not read
        with as_user(1000):
            code, output, errors = run(verb, name, *READERS[verb])
    if "does not end with '.blp'" in errors and not name.endswith(".blp"):
        return
    assert ((2 if verb == "diff" else 1), "") == (code, output)
    assert "blpk: error: '%s': Permission denied\n" % name == errors


@pytest.mark.parametrize(
    ("name", "why", "expected"),
    [
        ("no/x", "No such file or directory", "folder 'no' of 'no/x' does not exist!"),
        ("http://h/x", "404 Not Found", "file 'http://h/x' does not exist! (404 Not F"),
        ("x", "there is no dataset", "'x': there is no dataset"),
    ],
)
def test_what_is_missing(name, why, expected):
    error = FileNotFoundError(errno.ENOENT, why, name)
    assert message_of(error).startswith(expected)


@pytest.mark.parametrize("verb", ["verify", "list", "info"])
@pytest.mark.parametrize(
    "arguments", [["-r", "in"], ["in/bad", "in/a.blp", "in/below"]]
)
def test_go_on_behind_a_folder_that_cannot_be_read(run, verb, arguments):
    os.mkdir("in/bad")
    os.symlink("zarr.json", "in/bad/zarr.json")  # an endless chain of links
    code, said, errors = run(verb, *arguments)
    assert 1 == code
    assert "in/bad" in errors
    assert [] == [name for name in FILES if "in/" + name not in said]


@pytest.mark.parametrize("verb", ["verify", "list", "info"])
def test_archives_in_folders(run, verb):
    bloscpack.save("in/below/z.zip", {"x": np.arange(5)})
    np.savez("in/other.npz", x=np.arange(5))
    code, said, errors = run(verb, "-r", "in")
    assert 0 == code
    assert "in/below/z.zip" in said
    assert "skipped 'in/other.npz'" in errors


def test_a_damaged_archive_in_a_folder(run, folder):
    bloscpack.save("in/z.zip", {"x": np.arange(5)})
    content = (folder / "in/z.zip").read_bytes()
    (folder / "in/z.zip").write_bytes(content[: len(content) // 2])
    code, said, _ = run("verify", "-r", "in")
    assert (3, True) == (code, "in/z.zip: damaged" in said)


@pytest.mark.parametrize("verb", ["verify", "list", "info"])
def test_folder_of_datasets_and_files_below(run, folder, verb):
    """A dataset makes its folder a group, in which files are no members."""
    (folder / "in/a.blp").unlink()
    dataset.create_array("in/d.zarr", np.arange(5))
    bloscpack.save("in/below/z.zip", {"x": np.arange(5)})
    code, said, _ = run(verb, "-r", "in")
    assert 0 == code
    for name in ("d.zarr", "below/b.blp", "below/c.blp", "below/z.zip"):
        assert "in/" + name in said
    (folder / "in/below/b.blp").write_bytes(b"blpk")
    assert run(verb, "-r", "in")[0] != 0


def test_archive_beside_a_dataset(run):
    dataset.create_array("more/d.zarr", np.arange(5))
    bloscpack.save("more/z.zip", {"x": np.arange(5)})
    code, said, errors = run("verify", "more")
    assert (0, True) == (code, "more/z.zip: ok" in said)
    assert "skipped 'more/d.zarr': a folder below, which needs -r" in errors


def test_a_folder_of_many_files_has_a_summary(run, folder):
    for i in range(30):
        bloscpack.pack_bytes_to_file(b"%d" % i, folder / "in" / ("%d.blp" % i))
    with open("in/7.blp", "r+b") as fp:
        fp.seek(-1, os.SEEK_END)
        fp.write(b"?")
    code, out, _ = run("verify", "-r", "in")
    assert 3 == code
    assert "33 inputs: 1 damaged, 32 ok" == out.splitlines()[-1]
    assert "" == run("verify", "-q", "in/below")[1]


def test_recover_each_file_in_a_folder(run, folder):
    whole = bloscpack.pack_bytes_to_bytes(bytes(3000), chunk_size=1000)
    (folder / "in" / "bad.blp").write_bytes(whole[:-1] + b"?")
    (folder / "in" / "lost.blp").write_bytes(whole[:100])
    code, out, err = run("recover", "-r", "in", "new")
    assert 3 == code
    assert "5 inputs: 3 complete, 1 with losses, 1 not saved" == out.splitlines()[-1]
    assert "no chunk could be saved (file 'in/lost.blp'" in err
    assert b"below/c.blp" == bloscpack.unpack_bytes_from_file("new/below/c.blp")[0]
    assert 4 == len(json.loads(run("recover", "-f", "--json", "-r", "in", "new")[1]))
    code, out, err = run("recover", "-r", "in", "-")
    assert (2, "") == (code, out)
    assert "need a folder" in err


def test_a_zip_file_of_another_program_is_not_damaged(run):
    with zipfile.ZipFile("other.zip", "w") as fp:
        fp.write("in/a.blp")
    for verb, *more in (("verify",), ("recover", "new")):
        code, out, err = run(verb, "other.zip", *more)
        assert (1, "") == (code, out)
        assert "it is a zip file" in err
