"""The verbs that take URLs in place of files."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from cli.verb_support import VERBS
from storage import servers
from storage.servers import serving, serving_folder
from support import quick_retries

import bloscpack as bp
from bloscpack import dataset
from bloscpack.cli import create_parser

pytest.importorskip("aiohttp", reason="the extra 'remote' is not installed")
fsspec = pytest.importorskip("fsspec", reason="the extra 'remote' is not installed")

pytestmark = pytest.mark.usefixtures("folder")

ARRAY = np.arange(300_000, dtype="<i4").reshape(1000, 300)


# Rows that are text, which the tests capture.
LETTERS = (ARRAY[:, :30] % 90 + 33).astype("u1")


@pytest.fixture
def packed():
    return bp.pack_ndarray_to_bytes(ARRAY, "100K", metadata={"unit": "m"})


@pytest.fixture
def web(packed, monkeypatch):
    quick_retries(monkeypatch)
    with serving(packed) as web:
        yield web


@pytest.fixture
def secret_url(web):
    """A URL with a user, a password and a signature, none of which may be shown."""
    web.auth = "joe:t0ken"
    return "http://joe:t0ken@%s/some/data.blp?sig=hidden" % web.host


def shown(result):
    text = result[1] + result[2]
    assert not any(secret in text for secret in ("joe", "t0ken", "hidden")), text
    return result


def test_info(run, secret_url, web, packed, tmp_path):
    (tmp_path / "local.blp").write_bytes(packed)
    expected = run("info", tmp_path / "local.blp")
    assert expected == shown(run("info", secret_url))
    assert ["GET"] == web.methods()
    code, out, _ = shown(run("info", "--json", secret_url))
    assert 0 == code
    assert "http://%s/some/data.blp?..." % web.host == json.loads(out)["file"]


@pytest.mark.parametrize("nrows", [1000, 1001])
def test_info_of_a_shard_takes_two_requests(run, nrows, tmp_path):
    rows = np.random.default_rng(0).integers(0, 2**40, (nrows, 300))
    bp.pack_ndarray_to_file(rows, tmp_path / "a.blp", "240K", shard=True)
    content = (tmp_path / "a.blp").read_bytes()
    with serving(content) as web:
        assert run("info", tmp_path / "a.blp") == run("info", web.url)
        assert ["GET", "GET"] == web.methods()
        code, out, _ = run("info", "--json", web.url)
        assert (0, True) == (code, json.loads(out)["shard"]["index"])
    # Without the trailer.
    with serving(content[: content.rindex(b"shard\0\0\0")]) as web:
        code, out, _ = run("info", "--json", web.url)
        assert (0, False) == (code, json.loads(out)["shard"]["index"])


def test_list(run, secret_url):
    code, out, _ = shown(run("list", secret_url))
    assert 0 == code
    assert "/some/data.blp?..." in out


def test_cat(run, secret_url, web):
    letters = np.frombuffer(b"abcdefghij" * 30_000, "S1").reshape(1000, 300)
    web.content = servers.Content(bp.pack_ndarray_to_bytes(letters, "100K"))
    text = letters.tobytes().decode()
    assert (0, text, "") == run("cat", secret_url)
    web.requests.clear()
    assert (0, text[1000:2000], "") == run("cat", "--bytes", "1000:2000", secret_url)
    assert 2 >= len(web.requests)
    rows = letters[5:900:100].tobytes().decode()
    assert (0, rows, "") == run("cat", "--rows", "5:900:100", secret_url)


def test_verify(run, secret_url, web):
    code, out, _ = shown(run("verify", secret_url))
    assert 0 == code
    assert "/some/data.blp?...: ok (12 chunks" in out
    code, out, _ = shown(run("verify", "--json", secret_url))
    assert [True] == [report["ok"] for report in json.loads(out)]
    web.always = servers.flip
    code, out, _ = shown(run("verify", secret_url))
    assert 3 == code


def test_chunks(run, secret_url):
    code, out, _ = shown(run("info", "--chunks", secret_url))
    assert 0 == code
    assert "/some/data.blp?..." in out


@pytest.fixture
def places(tmp_path):
    """The folder of a group, and the URL of a web server that has it."""
    (tmp_path / "web").mkdir()
    with dataset.create_group(tmp_path / "web/g", attrs={"place": "Kiel"}) as group:
        group.create_array("in/a", LETTERS, chunks=100, shards=400)
        group.create_table("t", {"x": LETTERS[:9, 0], "y": LETTERS[:9, 1]})
    with serving_folder(tmp_path / "web") as web:
        yield tmp_path / "web/g", web.url + "/g"


LINES = (
    ["info"],
    ["list", "--json"],
    ["verify"],
    ["info", "--chunks"],
    ["metadata"],
    ["cat", "--rows", "2:5"],
)


@pytest.mark.parametrize("name", ["in/a", "t", ""])
def test_datasets(run, places, name):
    """The same output as for a folder; a web server can't list a group."""
    folder, url = places
    here, there = "%s/%s" % (folder, name), "%s/%s" % (url, name)
    file = "file://" + here
    for words in LINES:
        code, out, _ = run(*words, here)
        out = out.replace(str(folder), url)
        for place in (there, file):
            found = run(*words, place)
            if name or words[0] in ("metadata", "cat") or place == file:
                text = found[1].replace("file://", "").replace(str(folder), url)
                assert (code, out) == (found[0], text), words
            else:
                assert 1 == found[0]
                assert "'%s/': a server of HTTP can't list" % url in found[2]


def test_another_file_is_not_converted(run, places, tmp_path):
    folder, url = places
    np.save(folder / "data.npy", LETTERS)
    code, _, err = run("convert", url + "/data.npy", tmp_path / "a.zarr")
    assert 1 == code
    assert "expected a .blp file, a dataset or a Zarr store: download a file" in err


def test_datasets_are_converted(run, places, tmp_path):
    folder, url = places
    assert (0, "", "") == run("convert", url + "/in/a", tmp_path / "a.npy")
    assert LETTERS.tolist() == np.load(tmp_path / "a.npy").tolist()
    assert 0 == run("convert", url + "/t", tmp_path / "t.zarr")[0]
    found = dataset.open(tmp_path / "t.zarr")
    assert LETTERS[:9, 0].tolist() == found["x"][:].tolist()
    code, _, err = run("convert", url, tmp_path / "g.zarr")
    assert 1 == code
    assert "can't list" in err
    path = folder / "zarr.json"
    copies = {"metadata": {name: {} for name in ("in", "in/a", "t", "t/x", "t/y")}}
    document = {**json.loads(path.read_text()), "consolidated_metadata": copies}
    path.write_text(json.dumps(document))
    assert 0 == run("convert", url, tmp_path / "g.zarr")[0]
    found = dataset.open(tmp_path / "g.zarr")
    assert LETTERS.tolist() == found["in/a"][:].tolist()
    code, out, err = run("verify", url)
    assert (0, "%s: ok" % url) == (code, out.partition(" (")[0]), err


def test_damaged_datasets(run, places):
    folder, url = places
    shard = folder / "t/x/c/0"
    data = bytearray(shard.read_bytes())
    data[-100] ^= 1
    shard.write_bytes(data)
    (folder / "in/a/c/1/0").unlink()
    for name in ("t", "in/a"):
        code, out, _ = run("verify", "--json", "%s/%s" % (url, name))
        assert 3 == code
        _, expected, _ = run("verify", "--json", folder / name)
        assert expected.replace(str(folder), url) == out


def test_datasets_are_changed(run, tmp_path):
    """Stores other than web servers can be changed, too."""
    fs = fsspec.filesystem("memory")
    with dataset.create_group("memory://cli/g") as group:
        group.create_table("t", {"x": [1, 2]})
    try:
        (tmp_path / "new.bin").write_bytes(np.array([3, 4]).tobytes())
        line = ("append", "memory://cli/g/t", tmp_path / "new.bin")
        assert (0, "", "") == run(*line)
        assert 0 == run("append", "memory://cli/g/t", "memory://cli/g/t")[0]
        assert 0 == run("metadata", "--update", "a=1", "memory://cli/g")[0]
        group = dataset.open("memory://cli/g")
        assert [1, 2, 3, 4, 1, 2, 3, 4] == group["t/x"][:].tolist()
        assert {"a": 1} == dict(group.attrs)
        _, out, _ = run("list", "memory://cli")
        assert "memory://cli/g/t/x" in out
    finally:
        fs.rm("/cli", recursive=True)


def test_what_a_web_server_does_not_take(run, places, tmp_path):
    _, url = places
    (tmp_path / "new.bin").write_bytes(bytes(16))
    text = "'%s/t' can't be written: HTTP is for reading" % url
    for line in (
        ("append", url + "/t", tmp_path / "new.bin"),
        ("metadata", "--remove", "a", url + "/t"),
    ):
        code, _, err = run(*line)
        assert (2, True) == (code, text in err), err
    code, _, err = run("recover", url + "/t", tmp_path / "r")
    assert (2, True) == (code, "'%s/t' is a URL" % url in err), err


def _wrong_command_lines():
    """Yield command lines with the word URL, which every verb must refuse or report."""
    verbs = create_parser()._subparsers._group_actions[0].choices
    yield from (["URL"], ["-d", "URL"], ["--force=URL"], ["-n", "URL", "info", "x"])
    for verb in VERBS:
        name = verb.name
        yield from ([name, "URL", "URL", "URL"], [name, "--nope=URL"])
        yield from ([name, "--nope", "URL", "x"], [name, "--", "URL", "x"])
        verbs[name].format_help()
        actions = {id(a): a for a in verbs[name]._option_string_actions.values()}
        for action in actions.values():
            option = action.option_strings[-1]
            is_flag = action.nargs == 0
            yield [name, *([option + "=URL"] if is_flag else [option, "URL"]), "x"]


# Text of the user in the output of `refs`, and not in a message.
WANTED = ["refs", "--dims"]


@pytest.mark.full
@pytest.mark.parametrize(
    "url",
    [
        "https://joe:t0ken@127.0.0.1:9/a/x.blp?sig=hidden123",
        "zip://x.blp::https://joe:t0 k/en'@127.0.0.1:9/z?a=1&sig=hidden%2F1=23#hidden",
    ],
)
def test_wrong_arguments_show_no_credentials(url, run, tmp_path, monkeypatch):
    quick_retries(monkeypatch)
    (tmp_path / "x").write_bytes(b"abc")
    secrets = ("joe", "t0", "k/en", "hidden")
    for line in _wrong_command_lines():
        if line[:2] == WANTED:
            continue
        _, out, err = run(*[word.replace("URL", url) for word in line])
        found = [secret for secret in secrets if secret in out + err]
        assert not found, (line, out, err)


@pytest.mark.parametrize(
    "arguments", [[], ["here.bin"], ["--output", "here.bin"], ["--output-dir", "out"]]
)
def test_decompress(run, secret_url, tmp_path, arguments):
    if arguments == ["here.bin"]:
        arguments = [secret_url, "here.bin"]
    else:
        arguments = [*arguments, secret_url]
    assert 0 == shown(run("decompress", "--raw", *arguments))[0]
    (found,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert ARRAY.tobytes() == found.read_bytes()
    where = {1: "data", 3: "out/data"}.get(len(arguments), "here.bin")
    if "--output" in arguments:
        where = "here.bin"
    assert tmp_path / where == found


def test_recover(run, secret_url, packed):
    code, out, _ = shown(run("recover", secret_url, "new.blp"))
    assert (0, True) == (code, "data.blp?..." in out)
    assert (bp.unpack_ndarray_from_file("new.blp") == ARRAY).all()


def test_refs(run, web):
    """The references contain the whole URL, by which readers find the chunks."""
    url = "http://joe:t0ken@%s/some/data.blp?sig=hidden" % web.host
    web.auth = "joe:t0ken"
    web.content = servers.Content(
        bp.pack_ndarray_to_bytes(ARRAY, ARRAY[:50].nbytes, checksum="crc32")
    )
    code, out, err = run("refs", url)
    assert (0, "") == (code, err)
    refs = json.loads(out)["refs"]
    assert url == refs["data/0.0"][0]
    assert not any("t0ken" in key for key in refs)
    code, out, _ = run("refs", "--location", "https://host/d", url)
    assert "https://host/d/data.blp" == json.loads(out)["refs"]["data/0.0"][0]
    assert "t0ken" not in out
    other = bp.pack_bytes_to_bytes(bytes(10**6), checksum="sha256")
    web.content = servers.Content(other)
    code, _, err = shown(run("refs", url))
    assert (True, True) == (code in (1, 2), "sha256" in err)
    code, _, err = shown(run("refs", "-o", url, url))
    assert (True, True) == (code in (1, 2), "local file" in err)


def test_decompress_to_npy(run, web):
    assert 0 == run("decompress", "--npy", web.url, "x.npy")[0]
    assert (np.load("x.npy") == ARRAY).all()


def test_decompress_replaces_no_file(run, secret_url, tmp_path):
    (tmp_path / "data").write_bytes(b"old")
    code, _, err = shown(run("decompress", secret_url))
    assert 1 == code
    assert "exists" in err
    assert b"old" == (tmp_path / "data").read_bytes()


def test_two_urls_are_no_input_and_output(run, secret_url):
    code, _, err = shown(run("decompress", secret_url, secret_url))
    assert 2 == code
    assert "local file" in err
    assert [] == os.listdir()


def test_rm_removes_no_url(run, secret_url):
    assert 2 == shown(run("decompress", "--rm", secret_url))[0]
    assert [] == os.listdir()


@pytest.mark.parametrize(
    "verb",
    ["info", "list", "cat", "verify", "decompress", "metadata", "show"],
)
@pytest.mark.parametrize("number", [403, 404, 500])
def test_errors_name_the_url(run, secret_url, web, verb, number):
    web.always = servers.status(number)
    code, _, err = shown(run(verb, secret_url))
    assert 1 == code
    assert "'http://%s/some/data.blp?...'" % web.host in err
    assert str(number) in err
    assert [] == os.listdir()


@pytest.mark.parametrize(
    "arguments",
    [
        ["append", "URL", "new"],
        ["append", "old.blp", "URL"],
        ["compress", "URL", "x.blp"],
        ["compress", "new", "URL"],
        ["compress", "--npy", "URL", "x.blp"],
        ["repack", "URL", "x.blp"],
        ["metadata", "--set", "{}", "URL"],
        ["recover", "old.blp", "URL"],
    ],
)
def test_verbs_that_need_local_files(run, secret_url, arguments, tmp_path):
    (tmp_path / "new").write_bytes(b"new")
    bp.pack_bytes_to_file(b"old", "old.blp")
    arguments = [secret_url if name == "URL" else name for name in arguments]
    code, _, _ = shown(run(*arguments))
    assert code in (1, 2)
    assert ["new", "old.blp"] == sorted(os.listdir())


@pytest.mark.parametrize("more", [[], ["x.blp"]])
def test_compress_names_the_url_of_its_input(run, secret_url, more):
    code, _, err = shown(run("compress", secret_url, *more))
    assert 2 == code
    assert err.startswith("blpk: error: the input of compress needs a local file, ")


def test_server_without_ranges(run, web):
    """A verb that needs the whole file reads it; one that needs a part refuses."""
    web.ranges = False
    web.content = servers.Content(bp.pack_bytes_to_bytes(os.urandom(200_000)))
    assert 0 == run("verify", web.url)[0]
    assert 0 == run("decompress", web.url)[0]
    code, _, err = run("info", web.url)
    assert 1 == code
    assert "ignores ranges" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["info"],
        ["list"],
        ["cat", "--bytes", "0:0"],
        ["verify"],
        ["info", "--chunks"],
        ["info", "--chunks", "--json"],
        ["show"],
        ["show", "--stats"],
        ["metadata"],
        ["decompress"],
        ["refs", "--location", "https://host"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("harm", ["second file", "flipped bit"])
def test_findings_hide_credentials(
    run, secret_url, packed, web, arguments, harm, tmp_path
):
    content = bytearray(packed)
    content[len(content) // 2] ^= 1
    harmed = {"second file": packed * 2, "flipped bit": bytes(content)}
    web.content = servers.Content(harmed[harm])
    shown(run("--verbose", *arguments, secret_url))
    for name in os.listdir():
        assert b"t0ken" not in (tmp_path / name).read_bytes()
