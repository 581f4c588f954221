"""The documentation tells the truth: its examples run, and what it names exists."""

from __future__ import annotations

import ast
import doctest
import importlib.util
import itertools
import os
import re
import shutil
import subprocess
import sys
import warnings
from argparse import SUPPRESS
from zlib import crc32

import pytest
import samples
import support
from support import ROOT

import bloscpack
from bloscpack._cli.args import VERBS, create_parser, parsers_in

DOCS = ROOT / "docs"
PACKAGE = ROOT / "bloscpack"
PAGES = sorted(DOCS.glob("*.rst"))
# Pages on which each block is an example of its own, and may need other libraries.
INDEPENDENT = ("integrations.rst",)
# Zarr 2 uses a numcodecs that can't check digests behind the chunks.
VERSIONS = {"zarr": "3"}
MODULES = sorted(PACKAGE.rglob("*.py"))
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

DIRECTIVE = re.compile(r"^\.\. code-block:: (\w+)\n((?:   +:.*\n)*)\n")
UNDERLINE = re.compile(r"""([=\-~^"'])\1{2,}""")


def code_blocks(text):
    """Yield (language, options, line number, text) of every block, in order."""
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines):
        match = DIRECTIVE.match("".join(lines[number : number + 5]))
        if not match or not line.startswith(".. code-block"):
            continue
        start = number + match[0].count("\n")
        body = []
        for following in lines[start:]:
            if following.strip() and not following.startswith(" "):
                break
            body.append(following)
        indent = len(body[0]) - len(body[0].lstrip())
        text_of_block = "".join(part[indent:] or "\n" for part in body).rstrip() + "\n"
        yield match[1], match[2], start + 1, text_of_block


def named_block(page, name):
    """Return the text of the block with that name."""
    found = [
        text
        for _, options, _, text in code_blocks((DOCS / page).read_text("utf-8"))
        if ":name: %s\n" % name in options
    ]
    assert 1 == len(found)
    return found[0]


def titles(path):
    lines = path.read_text("utf-8").splitlines()
    return [
        title
        for title, line in itertools.pairwise(lines)
        if title and UNDERLINE.fullmatch(line) and len(line) == len(title)
    ]


# Examples


def run_python(text, page, number, names):
    test = doctest.DocTestParser().get_doctest(
        text, names, page.name, str(page), number
    )
    assert test.examples, "a block of Python without a prompt is never run"
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    output = []
    runner.run(test, out=output.append, clear_globs=False)
    names.update(test.globs)
    assert 0 == runner.failures, "".join(output)
    return len(test.examples)


MARK = "---end of command---"


def run_console(text, environment):
    """Run the commands of a block in one shell and compare what each one prints."""
    commands, expected = [], []
    for line in text.splitlines(keepends=True):
        if line.startswith("$ "):
            commands.append(line[2:].rstrip("\n"))
            expected.append("")
        else:
            expected[-1] += line
    script = "".join(
        "%s\nkept=$?; echo '%s'; (exit $kept)\n" % (command, MARK)
        for command in commands
    )
    done = subprocess.run(
        ["sh", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        encoding="utf-8",
        timeout=900,  # ends a command that hangs; a loaded machine is slow
    )
    found = done.stdout.split(MARK + "\n")[:-1]
    assert len(commands) == len(found), done.stdout
    checker = doctest.OutputChecker()
    for command, want, got in zip(commands, expected, found, strict=True):
        assert checker.check_output(want, got, OPTIONS), "%s\nwanted:\n%s\ngot:\n%s" % (
            command,
            want,
            got,
        )
    return len(commands)


@pytest.fixture
def environment(tmp_path):
    """The environment of a shell in which `blpk` is the command of this package."""
    folder = tmp_path / "bin"
    folder.mkdir()
    blpk = folder / "blpk"
    blpk.write_text(
        "#!/bin/sh\nexec '%s' -c 'from bloscpack.cli import main; main()' \"$@\"\n"
        % sys.executable
    )
    blpk.chmod(0o755)
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    return support.environment(PATH=path, LC_ALL="C")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("sh") is None, reason="there is no shell")
@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.name not in INDEPENDENT], ids=lambda page: page.name
)
def test_examples_of_page(page, tmp_path, monkeypatch, environment):
    if page.name == "cli.rst":  # it converts CSV
        pytest.importorskip("pyarrow")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    names = {"__name__": "__main__"}
    text = page.read_text("utf-8")
    count = 0
    for language, _, number, block in code_blocks(text):
        if language == "python" and missing_packages(block):
            count += block.count(">>> ")  # the session `integrations` runs it
        elif language == "python":
            count += run_python(block, page, number, names)
        elif language == "console":
            count += run_console(block, environment)
    # Nothing that looks like an example is in a block that is not run.
    assert len(re.findall(r"^ *(?:>>>|\$) ", text, re.M)) == count


def imported_packages(block):
    """Return the packages that an example imports."""
    lines = re.findall(r"^ *>>> import (.*)", block, re.M)
    return [n for names in lines for n in re.findall(r"(\w+)[\w.]*(?: as \w+)?", names)]


def missing_packages(block):
    """Return those that are not installed."""
    return [n for n in imported_packages(block) if importlib.util.find_spec(n) is None]


def independent_blocks():
    for page in INDEPENDENT:
        text = (DOCS / page).read_text("utf-8")
        for language, _, number, block in code_blocks(text):
            name = "%s:%d" % (page, number)
            if language != "text":
                yield pytest.param(page, language, number, block, id=name)


@pytest.mark.parametrize(
    ("page", "language", "number", "block"), [*independent_blocks()]
)
def test_independent_example(page, language, number, block, tmp_path, monkeypatch):
    assert "python" == language
    for name in imported_packages(block):
        reason = "%s is not installed, or too old" % name
        pytest.importorskip(name, minversion=VERSIONS.get(name), reason=reason)
    if not support.has_entry_points():
        pytest.skip("the package is not installed")
    monkeypatch.chdir(tmp_path)
    run_python(block, DOCS / page, number, {"__name__": "__main__"})


@pytest.mark.parametrize("page", INDEPENDENT)
def test_independent_examples_are_complete(page):
    text = (DOCS / page).read_text("utf-8")
    blocks = "".join(b for name, *_, b in code_blocks(text) if name != "text")
    examples = r"^ *(?:>>>|\$) "
    assert len(re.findall(examples, text, re.M)) == len(
        re.findall(examples, blocks, re.M)
    )


def test_there_are_examples():
    languages = [
        language
        for page in PAGES
        for language, *_ in code_blocks(page.read_text("utf-8"))
    ]
    assert languages.count("python") > 10
    assert languages.count("console") > 5


@pytest.mark.parametrize(
    "path",
    [path for path in MODULES if ">>> " in path.read_text("utf-8")],
    ids=lambda path: path.name,
)
def test_examples_of_module(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in missing_packages(path.read_text("utf-8")):
        pytest.skip("the examples import %s, which is not installed" % name)
    parts = path.relative_to(ROOT).with_suffix("").parts
    module = importlib.import_module(".".join(parts))
    result = doctest.testmod(module, optionflags=OPTIONS)
    assert 0 == result.failed
    assert 0 < result.attempted


# The format


def test_example_of_a_document():
    text = named_block("format.rst", "example-document").strip().encode() + b"\n"
    digest = re.search(rb"crc32=([0-9a-f]{8})", text)[1]
    assert int(digest, 16) == crc32(text.replace(digest, b"00000000"))


@pytest.mark.parametrize(
    ("title", "record", "names"),
    [
        (
            "Header",
            "HEADER_V2_V3",
            (
                "magic version options checksum typesize chunk_size last_chunk "
                "nchunks max_app_chunks"
            ),
        ),
        ("Version 1", "HEADER_V1", "magic version reserved nchunks"),
        ("Version 0", "HEADER_V0", "magic nchunks"),
        (
            "Metadata",
            "METADATA_HEADER",
            (
                "magic_format meta_options meta_checksum meta_codec meta_level "
                "meta_size max_meta_size meta_comp_size user_codec"
            ),
        ),
        (
            "Chunks",
            "BLOSC_HEADER",
            "version versionlz flags typesize nbytes blocksize ctbytes",
        ),
    ],
)
def test_field_tables_agree_with_the_records(title, record, names):
    from bloscpack import headers
    from bloscpack._format import blosc_header

    module = blosc_header if record == "BLOSC_HEADER" else headers
    text = (DOCS / "format.rst").read_text("utf-8")
    body = re.split(r"^%s\n[-~]+\n" % title, text, flags=re.M)[1]
    rows = re.findall(r"^(\d+)  +(\d+)  +(\w+)  +(\w+) ", body, re.M)
    rows = rows[: len(names.split())]
    assert names.split() == [row[3] for row in rows]
    position = 0
    for offset, size, type_, _ in rows:
        assert position == int(offset)
        if type_ != "bytes":
            assert int(size) * 8 == int(type_.removeprefix("u").removeprefix("int"))
        position += int(size)
    assert getattr(module, record).size == position


def test_table_of_checksums():
    from bloscpack.checksums import ALL_CHECKSUMS

    text = (DOCS / "format.rst").read_text("utf-8")
    body = re.split(r"^Checksums\n~+\n", text, flags=re.M)[1]
    rows = re.findall(r"^(\d+)  +(\w+)  +(\d+) ", body, re.M)
    assert [
        (str(i), hash_.name, str(hash_.size)) for i, hash_ in enumerate(ALL_CHECKSUMS)
    ] == rows, "each entry of ALL_CHECKSUMS needs a row under Checksums in format.rst"


def test_rules_are_numbered_without_gaps():
    text = samples.text()
    found = {}
    for letter, number in re.findall(r"\*\*([A-Z])(\d+)\*\*", text):
        found.setdefault(letter, []).append(int(number))
    assert len(found) > 8
    for letter, numbers in found.items():
        expected = list(range(1, len(numbers) + 1))
        assert (letter, expected) == (letter, sorted(numbers))
    assert sum(map(len, found.values())) == len(samples.rules(text))
    assert not {rule[0] for rule in durability_rules()} & set(found)


def durability_rules():
    text = (DOCS / "durability.rst").read_text("utf-8")
    return re.findall(r"^([A-Z]\d+)$", text, re.M)


def test_each_promise_names_its_tests():
    text = (DOCS / "durability.rst").read_text("utf-8")
    numbers = [int(name[1:]) for name in durability_rules()]
    assert list(range(1, len(numbers) + 1)) == numbers
    for promise in re.split(r"^(?=R\d+$)", text, flags=re.M)[1:]:
        promise = re.split(r"\n(?=\S)", promise.partition("\n")[2])[0]
        assert re.search(r"\*Tests:\*\s+``test", promise), promise


def test_rules_referred_to_exist():
    text = samples.text() + (DOCS / "format-samples.rst").read_text("utf-8")
    rules = set(re.findall(r"\*\*([A-Z]\d+)\*\*", text))
    letters = "".join({rule[0] for rule in rules})
    named = set(re.findall(r"(?<![\w|-])([%s]\d{1,2})(?![\w-])" % letters, text))
    assert set() == named - rules


# What is named


def sections_named_in_code():
    """Yield (module, section) for every mention of a section of docs/format.rst."""
    for path in MODULES:
        text = re.sub(r"\s+(# )?", " ", path.read_text("utf-8"))
        for names in re.findall(r"docs/format\.rst, ([A-Z][\w, ]*)", text):
            for name in re.split(r", | and ", names):
                yield path.name, name.strip()
        for name in re.findall(r'"([^"]+)" of docs/format\.rst', text):
            yield path.name, name


def test_sections_named_in_code_exist():
    named = list(sections_named_in_code())
    assert len(named) >= 9
    missing = [pair for pair in named if pair[1] not in titles(DOCS / "format.rst")]
    assert [] == missing


PATH_NAMES = re.compile(
    r"``((?:bloscpack|bench|docs|tests|test_cmdline)/[\w./-]*|[A-Z]+\.rst|[\w-]+\.toml)``"
)


def test_the_names_in_the_recipes_exist():
    text = (DOCS / "architecture.rst").read_text("utf-8")
    text = text.partition("Where does it go?")[2].partition("\nLayers\n")[0]
    sources = {p.as_posix(): p.read_text() for p in (ROOT / "bloscpack").rglob("*.py")}
    code = "\n".join(sources.values())
    names = set(
        re.findall(r"``(?!docs|tests|--|[A-Z]+\.rst)([\w/]+(?:\.\w+)?/?)``", text)
    )
    missing = set()
    for name in names - {"blpk", "_cli/verbs/NAME.py", "pyproject.toml"}:
        last = name.rpartition(".")[2]
        is_path = "/" in name or last == "py"
        paths = [p for p in sources if "/bloscpack/" + name in p or "/" + name in p]
        if not (paths if is_path else re.search(r"\b%s\b" % last, code)):
            missing.add(name)
    assert set() == missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_and_pages_named_exist(page):
    text = page.read_text("utf-8")
    missing = [name for name in PATH_NAMES.findall(text) if not (ROOT / name).exists()]
    missing += [
        name
        for name in re.findall(r":doc:`(\w+)`", text)
        if not (DOCS / (name + ".rst")).exists()
    ]
    assert [] == missing


def test_every_page_is_in_the_contents():
    text = (DOCS / "index.rst").read_text("utf-8")
    assert {page.stem for page in PAGES} - {"index"} <= set(
        re.findall(r"^   ([\w-]+)$", text, re.M)
    )


def test_exit_codes_are_those_of_the_command():
    from bloscpack._cli import exit_codes as outcomes

    text = (DOCS / "cli.rst").read_text("utf-8")
    table = text.partition(":name: exit-codes")[2].partition("\n.. code-block")[0]
    assert {
        value for name, value in vars(outcomes).items() if name.startswith("EXIT_")
    } == set(map(int, re.findall(r"^   \* - (\d+)$", table, re.M)))


def test_options_are_those_of_the_command():
    options, todo = set(), [create_parser()]
    for parser in todo:  # also those of the verbs and of their actions
        for action in parser._actions:
            options.update(action.option_strings)
            if isinstance(action.choices, dict):
                todo += action.choices.values()
    text = (DOCS / "cli.rst").read_text("utf-8")
    listed = re.findall(r"^``-.*$", text, re.M)
    assert set(re.findall(r"``(-[\w=-]+)``", " ".join(listed))) <= options


def test_reference_has_each_verb_with_its_options(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    import reference

    text = (DOCS / "cli.rst").read_text("utf-8")
    placed = re.findall(r"^\.\. blpk::(?: (\w+))?$", text, re.M)
    assert ["verbs", "", "others"] == [*placed[:2], *placed[-1:]]
    assert len({*placed}) == len(placed)
    assert {*placed[2:-1]} < {verb.name for verb in VERBS if verb.name != "help"}
    others = "\n".join(reference.lines_for("others"))
    for verb in VERBS:
        has_section = verb.name in (*placed, "help")
        assert has_section != ("    blpk %s " % verb.name in others), verb.name
    parsers = parsers_in(create_parser())
    for verb in VERBS:
        found = "\n".join(reference.lines_for(verb.name))
        shown = {
            name
            for a in parsers[verb.name]._actions
            for name in a.option_strings
            if a.help != SUPPRESS
        }
        assert shown - {"-h", "--help"} <= set(re.findall(r"``(-[\w=-]+)``", found))


def test_public_names_are_in_the_reference():
    text = (DOCS / "api.rst").read_text("utf-8")
    missing = [
        name
        for name in bloscpack.__all__
        if name != "__version__" and not re.search(r"\b%s\b" % name, text)
    ]
    assert [] == missing


def test_every_error_is_in_the_reference():
    from bloscpack import exceptions

    text = (DOCS / "api.rst").read_text("utf-8")
    errors = {
        name
        for name, value in vars(exceptions).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert errors == set(re.findall(r"^\.\. autoexception:: (\w+)$", text, re.M))


def test_every_bug_of_old_is_answered():
    text = (DOCS / "compatibility.rst").read_text("utf-8")
    answers = text.partition("The bugs of 0.16.0\n")[2].partition("\nPipes\n")[0]
    numbers = re.findall(r"^(\d+)\. \*", answers, re.M)
    assert list(range(1, 32)) == list(map(int, numbers))


def test_install_commands_work_in_a_clone():
    """A package index has another program: release 0.16.0 of the original."""
    texts = [*PAGES, *MODULES, *ROOT.glob("*.rst"), *ROOT.glob("bench/*.rst")]
    texts += [*ROOT.glob("tests/**/*.rst"), *ROOT.glob("test_cmdline/*.t")]
    wrong = re.compile(
        r"bloscpack\[[a-z-]+\]|pip install -?-?[a-z-]* ?\.\[|git clone http"
    )
    assert [] == [path for path in texts if wrong.search(path.read_text("utf-8"))]
    extras = (ROOT / "pyproject.toml").read_text("utf-8")
    for path in texts:
        for names in re.findall(
            r"pip install '\.\[([^]%]+)\]'", path.read_text("utf-8")
        ):
            for name in names.split(","):
                assert re.search("^%s = " % name, extras, re.M), (path, name)


# Building


@pytest.mark.slow
def test_sphinx_builds_without_warnings(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("sphinx")
    done = support.run_python(
        *("-m", "sphinx", "-W", "-n", "-q", "-b", "html"),
        *("-d", tmp_path / "trees", DOCS, tmp_path / "html"),
        encoding="utf-8",
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    format_ = (tmp_path / "html" / "format.html").read_text("utf-8")
    assert "ERROR:" not in format_, "the theme shows an error in the page"


@pytest.mark.parametrize(
    ("paths", "page", "title", "some"),
    [
        ("_check/*.py", "damage", "Kinds of findings", {"trailer", "nchunks"}),
        ("dataset/*check*.py", "damage", "Findings in datasets", {"unused", "order"}),
        ("bigfile/checking.py", "bigfile", "BigFile", {"hole", "orphan"}),
    ],
)
def test_kinds_of_findings_are_documented(paths, page, title, some):
    """Each word that the modules of a check give to a finding."""
    kinds = set()
    for path in (ROOT / "bloscpack").glob(paths):
        source = path.read_text()
        tree = ast.parse(source)
        names = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
        }
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call) or len(call.args) < 3:
                continue
            place = {"add": 1, "note": 1}.get(getattr(call.func, "attr", ""), -1)
            if place < 0:
                continue
            for node in ast.walk(call.args[place]):
                found = getattr(node, "value", names.get(getattr(node, "id", "")))
                if isinstance(found, str):
                    kinds.add(found)
    assert some < kinds
    text = (DOCS / (page + ".rst")).read_text()
    text = text[text.index(title) :]
    assert [] == sorted(kind for kind in kinds if "``%s``" % kind not in text)


def test_the_formats_of_convert_are_named():
    from bloscpack._cli.verbs.convert import HELP
    from bloscpack._format.other_formats import CALLS
    from bloscpack.dataset.conversion import WRITTEN

    for name, found in WRITTEN.items():
        assert {*found.suffixes} <= {*CALLS, ".blp"}, name
        if not found.layout:
            assert "``%s``" % name in bloscpack.dataset.convert.__doc__
            assert name in HELP or name == "bigfile"


def test_each_folder_of_tests_is_described():
    text = (ROOT / "tests" / "README.rst").read_text("utf-8")
    folders = {path.parent.name for path in ROOT.glob("tests/*/test_*.py")}
    assert folders == set(re.findall(r"^``(\w+)``  +\S", text, re.M))


def test_the_extras_that_all_leaves_out_are_named():
    text = (DOCS / "install.rst").read_text("utf-8")
    described = set(re.findall(r"^``(\w+)``  +\w", text, re.M))
    listed = (ROOT / "pyproject.toml").read_text("utf-8")
    names = re.search(r'^all = \["bloscpack\[(.*)\]"\]$', listed, re.M)
    assert names is not None
    # The extra `s3` includes `remote`.
    left_out = described - {*names[1].split(","), "remote"}
    sentence = re.search(r"of all optional features except(.*?):\n", text, re.S)
    assert sentence is not None
    assert left_out == set(re.findall(r"``(\w+)``", sentence[1]))
