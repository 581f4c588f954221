"""`blpk map`: each chunk in its place, the damaged ones marked."""

import io
import os
import sys
import threading

import numpy as np
import pytest
from cli.verb_support import assert_help_fits, run_verb

import bloscpack
from bloscpack import BloscArgs, FormatError, StorageError
from bloscpack._cli.exit_codes import EXIT_DAMAGED, Refusal
from bloscpack._cli.verbs.map import (
    ASCII,
    BLOCKS,
    COLOURS,
    RATIOS,
    Chunks,
    draw,
    group,
    picture,
    ranges_of,
    shade,
)
from bloscpack._crashsafe import ownership
from bloscpack.exceptions import NotReadable

CHUNK_SIZE = 4096
# Zeros, noise, and again.
KINDS = [0] * 5 + [1] * 10 + [0] * 5 + [1] * 30


def plain_of(kinds):
    noise = np.random.default_rng(1)
    return b"".join(
        noise.bytes(CHUNK_SIZE) if kind else bytes(CHUNK_SIZE) for kind in kinds
    )


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    args = BloscArgs(typesize=1, cname="lz4")
    bloscpack.pack_bytes_to_file(plain_of(KINDS), "a.blp", CHUNK_SIZE, None, args)
    return tmp_path


def damage(path, chunks):
    """Change a byte within some chunks."""
    from bloscpack.reader import Reader

    data = bytearray(path.read_bytes())
    with open(path, "rb") as fp:
        for number in chunks:
            data[Reader(fp)._chunks.index.offset(number) + 20] ^= 1
    path.write_bytes(data)


def drawn(capsys, *arguments, code=0, **options):
    """Return the lines of a picture and, without their margin, its cells."""
    assert code == run_verb("map", *arguments, **options)
    lines = capsys.readouterr().out.splitlines()
    end = lines.index("", 2)
    return lines, "".join(line.split("  ", 1)[1] for line in lines[2:end])


@pytest.mark.parametrize("quick", [[], ["--quick"]])
@pytest.mark.parametrize("nthreads", [1, 2])
def test_one_cell_for_each_chunk(capsys, nthreads, quick):
    lines, cells = drawn(capsys, *quick, "a.blp", nthreads=nthreads)
    assert "".join("█" if kind else "▁" for kind in KINDS) == cells
    assert "a.blp: 50 chunks, 200.0K in " in lines[0]
    assert lines[0].endswith(", none damaged")
    legend = lines[lines.index("", 2) + 1]
    assert "ratio: █ below 1.1  ▇ 1.1  ▆ 1.5" in legend
    assert "damaged" not in legend


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("quick", [[], ["--quick"]])
def test_pipe(folder, capsys, quick):
    run_verb("map", *quick, "a.blp")
    expected = capsys.readouterr().out
    os.mkfifo("pipe")
    data = (folder / "a.blp").read_bytes()
    writer = threading.Thread(target=(folder / "pipe").write_bytes, args=(data,))
    writer.start()
    run_verb("map", *quick, "pipe")
    writer.join()
    assert expected == capsys.readouterr().out.replace("pipe", "a.blp")


def test_damaged_chunks(folder, capsys):
    damage(folder / "a.blp", [3, 7, 8, 9, 49])
    lines, cells = drawn(capsys, "a.blp", code=EXIT_DAMAGED)
    assert [3, 7, 8, 9, 49] == [i for i, cell in enumerate(cells) if cell == "X"]
    assert "5 damaged" in lines[0]
    assert "X damaged" in lines[-2]
    assert "damaged chunks: 3, 7-9, 49" == lines[-1]


def test_missing_chunks(folder, capsys):
    data = (folder / "a.blp").read_bytes()
    (folder / "a.blp").write_bytes(data[:-10_000])
    lines, cells = drawn(capsys, "a.blp", code=EXIT_DAMAGED)
    assert "damaged chunks: 47-49" == lines[-1]
    assert "█XXX" == cells[-4:]


def test_quick_sees_headers_alone(folder, capsys):
    damage(folder / "a.blp", [3])
    _, cells = drawn(capsys, "--quick", "a.blp")
    assert "X" not in cells
    (folder / "a.blp").write_bytes((folder / "a.blp").read_bytes()[:-10])
    with pytest.raises(FormatError, match=r"chunk 49"):
        run_verb("map", "--quick", "a.blp")


def test_damage_in_front_of_the_chunks(folder, capsys):
    array = np.arange(1000.0)
    bloscpack.pack_ndarray_to_file(array, "b.blp", "2K")
    data = bytearray((folder / "b.blp").read_bytes())
    data[70] ^= 1
    (folder / "b.blp").write_bytes(data)
    lines, cells = drawn(capsys, "b.blp", code=EXIT_DAMAGED)
    assert "X" not in cells
    assert "none damaged" in lines[0]
    assert "section 'metadata'" in lines[-1]


def test_what_is_no_bloscpack_file(folder):
    (folder / "plain").write_bytes(bytes(1000))
    for quick in ([], ["--quick"]):
        with pytest.raises(NotReadable, match="magic marker"):
            run_verb("map", *quick, "plain")
    with pytest.raises(FileNotFoundError):
        run_verb("map", "missing")


def test_file_of_one_empty_chunk(capsys):
    bloscpack.pack_bytes_to_file(b"", "empty.blp")
    lines, cells = drawn(capsys, "empty.blp")
    assert "empty.blp: 1 chunk, 0B in 16.0B" in lines[0]
    assert "█" == cells


# Cells


def chunks_of(sizes, bad=()):
    chunks = Chunks(len(sizes))
    for number, (nbytes, cbytes) in enumerate(sizes):
        if number not in bad:
            chunks.put(number, nbytes, cbytes)
    return chunks


@pytest.mark.parametrize(
    ("nchunks", "most", "step", "ncells"),
    [
        (0, 10, 1, 0),
        (1, 10, 1, 1),
        (10, 10, 1, 10),
        (11, 10, 2, 6),
        (1000, 10, 100, 10),
    ],
)
def test_chunks_share_cells(nchunks, most, step, ncells):
    found, cells = group(chunks_of([(100, 50)] * nchunks), most)
    assert (step, ncells) == (found, len(cells))
    assert {2.0} >= {cell.ratio for cell in cells}


def test_cell_of_several_chunks():
    chunks = chunks_of([(100, 100), (100, 10), (100, 50), (100, 50)], bad=[0, 2, 3])
    _, cells = group(chunks, 2)
    assert [(10.0, True), (None, True)] == [(c.ratio, c.damaged) for c in cells]
    assert "XX" == draw(cells, BLOCKS, False)


def test_shades():
    assert len(BLOCKS) == len(ASCII) == len(COLOURS) == len(RATIOS) + 1
    assert [0, 0, 1, 2, 3, 4, 5, 6, 7, 7] == [
        shade(ratio) for ratio in (0, 1.09, 1.1, 1.5, 2, 4, 8, 16, 64, 1e9)
    ]


def test_ranges():
    cases = [("", []), ("0", []), ("1", [(0, 0)]), ("0110", [(1, 2)])]
    cases += [("1101", [(0, 1), (3, 3)]), ("0111", [(1, 3)])]
    for bits, expected in cases:
        assert expected == list(ranges_of(bytearray(map(int, bits))))


def test_many_damaged_places(capsys):
    chunks = chunks_of([(100, 50)] * 100, bad=range(0, 100, 2))
    last = list(picture(chunks, "file", "never"))[-1]
    assert last.startswith("damaged chunks: 0, 2, 4, ")
    assert last.endswith(", 38 and 30 more places")


@pytest.mark.parametrize("columns", [1, 40, 80, 300])
@pytest.mark.parametrize("nchunks", [1, 79, 5000, 100_000])
def test_picture_fits(monkeypatch, columns, nchunks):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = list(picture(chunks_of([(100, 50)] * nchunks), "file", "never"))
    cells = lines[2 : lines.index("", 2)]
    assert len(cells) <= 16
    assert max(map(len, cells)) <= max(columns, 20)
    per_cell = [line for line in lines if line.startswith("each character shows")]
    assert bool(per_cell) == (nchunks > 16 * max(8, columns - len(str(nchunks)) - 3))


# Terminals


def test_terminal_without_blocks(monkeypatch):
    shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", shown)
    run_verb("map", "a.blp")
    shown.flush()
    lines = shown.buffer.getvalue().decode("ascii").splitlines()
    assert " 0  " + "".join("@" if kind else "." for kind in KINDS) == lines[2]


def test_colour():
    _, cells = group(chunks_of([(9, 9), (9, 9), (900, 9), (9, 9)], bad=[3]), 4)
    assert (
        "\x1b[38;5;226m██\x1b[0m\x1b[38;5;26m▁\x1b[0m\x1b[1;97;41mX\x1b[0m"
    ) == draw(cells, BLOCKS, True)


@pytest.mark.parametrize(
    ("coloured", "option", "variables"),
    [
        (True, "always", {"NO_COLOR": "1"}),
        (False, "never", {}),
        (True, "auto", {}),
        (False, "auto", {"NO_COLOR": "1"}),
        (True, "auto", {"NO_COLOR": ""}),
        (False, "auto", {"TERM": "dumb"}),
    ],
)
def test_who_gets_colours(monkeypatch, coloured, option, variables):
    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", terminal)
    run_verb("map", "--color", option, "a.blp")
    assert coloured == ("\x1b[" in terminal.getvalue())


def test_no_colour_in_a_file(capsys):
    _, cells = drawn(capsys, "a.blp")
    assert "\x1b" not in cells


# PNG


def test_png_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(Refusal, match=r"needs matplotlib.*bloscpack\[plot\]"):
        run_verb("map", "--png", "a.png", "a.blp")
    assert ["a.blp"] == os.listdir()


def test_png_does_not_overwrite(folder):
    (folder / "a.png").write_bytes(b"precious")
    with pytest.raises(StorageError, match=r"'a\.png' exists"):
        run_verb("map", "--png", "a.png", "a.blp")
    assert b"precious" == (folder / "a.png").read_bytes()


def test_png(folder, capsys):
    pytest.importorskip("matplotlib")
    (folder / "a.png").write_bytes(b"old")
    damage(folder / "a.blp", [3, 4])
    assert EXIT_DAMAGED == run_verb("map", "--png", "a.png", "a.blp", force=True)
    assert "damaged chunks: 3-4" == capsys.readouterr().out.splitlines()[-1]
    assert b"\x89PNG\r\n" == (folder / "a.png").read_bytes()[:6]


def test_help():
    assert_help_fits("map")


def test_png_gets_the_permissions_of_the_file_that_was_read(folder, monkeypatch):
    """A file that takes the name of the input meanwhile has no part in them."""
    pytest.importorskip("matplotlib")
    (folder / "a.blp").chmod(0o600)
    opened = []
    attributes = ownership.attributes_of_input

    def attributes_of(fp):
        opened.append(os.fstat(fp.fileno()).st_ino)
        (folder / "b").write_bytes(b"")
        (folder / "b").chmod(0o644)
        os.replace(folder / "b", folder / "a.blp")
        return attributes(fp)

    monkeypatch.setattr(ownership, "attributes_of_input", attributes_of)
    inode = (folder / "a.blp").stat().st_ino
    run_verb("map", "--png", "a.png", "a.blp")
    assert [inode] == opened
    assert 0o600 == (folder / "a.png").stat().st_mode & 0o777
