"""The wheel and the source distribution: complete, accepted, and fit to be installed.

These tests download what `build` and `pip` need, so they ask for the extra ``package``.
"""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from bloscpack.version import __version__

# Not "build": a folder of that name in the current directory could be imported.
pytest.importorskip("build.__main__", reason="needs the extra 'package'")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
# Folders and files of the repository that its source distribution holds.
HELD = ("bench", "bloscpack", "docs", "test_cmdline", "tests")
HELD_FILES = (
    "CHANGELOG.rst",
    "CONTRIBUTING.rst",
    "LICENSE",
    "MANIFEST.in",
    "README.rst",
    "SECURITY.rst",
    "noxfile.py",
    "pyproject.toml",
)
# Where an installation has the files that are no modules, and where they come from.
DATA = {
    "share/man/man1/blpk.1": "docs/blpk.1",
    "share/bloscpack/bloscpack.magic": "docs/bloscpack.magic",
    "share/mime/packages/bloscpack-mime.xml": "docs/bloscpack-mime.xml",
}
# Modules with subclasses of classes of other libraries; these libraries import them.
SUBCLASSES = ("bloscpack.integrations.xarray_backend",)
# What running, testing and building leaves in the repository.
LEFT_BEHIND = ("_build", "__pycache__", "*.py[co]", "*.cram.err", ".*")
WINDOWS = os.name == "nt"


def files_in(folder):
    """Return the relative names of all files below a folder, in order."""
    return sorted(
        path.relative_to(folder).as_posix()
        for path in Path(folder).rglob("*")
        if path.is_file()
    )


def python_files():
    """Return the paths of all modules, from ``bloscpack/`` on."""
    return sorted(
        path.relative_to(ROOT).as_posix() for path in (ROOT / "bloscpack").rglob("*.py")
    )


def public_modules():
    """Return the dotted names of the modules whose path has no leading underscore."""
    parts = [Path(name).with_suffix("").parts for name in python_files()]
    return sorted(
        ".".join(path).removesuffix(".__init__")
        for path in parts
        if not any(part.startswith("_") and part != "__init__" for part in path)
    )


def run(*command, **options):
    """Run a command without settings of this environment; return its output."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PYTEST_", "VIRTUAL_ENV"))
    }
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, env=kept, **options
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Copy the repository, to build in the copy; return its path."""
    folder = tmp_path_factory.mktemp("source") / "bloscpack"
    ignore = shutil.ignore_patterns(*LEFT_BEHIND)
    folder.mkdir()
    for name in HELD:
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    for name in HELD_FILES:
        shutil.copy(ROOT / name, folder)
    return folder


def build(folder, source, *options):
    """Build with `options` into `folder`; return the files there by their suffix."""
    run(sys.executable, "-m", "build", *options, "--outdir", folder, source)
    return {path.suffix: path for path in folder.iterdir()}


@pytest.fixture(scope="module")
def built(source, tmp_path_factory):
    """Build the source distribution, and from it the wheel; return them by suffix."""
    found = build(tmp_path_factory.mktemp("dist"), source)
    assert {".gz", ".whl"} == set(found)
    return found


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """Install the wheel, with what it requires, in a fresh environment."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    run(sys.executable, "-m", "venv", folder)
    run(programs(folder) / "python", "-m", "pip", "install", "-q", built[".whl"])
    yield folder
    shutil.rmtree(folder)  # pytest would keep it, and it is large


def programs(environment):
    """Return the folder of the commands of a virtual environment."""
    return environment / ("Scripts" if WINDOWS else "bin")


def held(wheel):
    """Return the files of a wheel, name → bytes, and of RECORD only the names."""
    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    record = next(name for name in contents if name.endswith("/RECORD"))
    lines = contents[record].decode().splitlines()
    contents[record] = b"".join(sorted(line.split(",")[0].encode() for line in lines))
    return contents


def test_the_index_accepts_them(built):
    run(sys.executable, "-m", "twine", "check", "--strict", *built.values())


def test_wheel_holds_the_package_and_nothing_else(built):
    front = "bloscpack-%s." % __version__
    info = "LICENSE METADATA RECORD WHEEL entry_points.txt top_level.txt"
    expected = [
        *python_files(),
        "bloscpack/py.typed",
        *("%sdata/data/%s" % (front, installed_at) for installed_at in DATA),
        *("%sdist-info/%s" % (front, name) for name in info.split()),
    ]
    found = [name.replace("/licenses/", "/") for name in held(built[".whl"])]
    assert sorted(expected) == sorted(found)


def test_source_distribution_holds_the_repository(source, built):
    with tarfile.open(built[".gz"]) as archive:
        names = [member.name for member in archive if member.isfile()]
    front = "bloscpack-%s/" % __version__
    assert all(name.startswith(front) for name in names)
    found = {name.removeprefix(front) for name in names}
    added = {name for name in found if "bloscpack.egg-info/" in name}
    # `build` leaves its egg-info in the copy too.
    expected = {name for name in files_in(source) if "egg-info" not in name}
    assert added | {"PKG-INFO", "setup.cfg"} == found - expected
    assert set() == expected - found


def test_files_that_belong_to_no_distribution_are_known():
    """A new file at the top is either in the source distribution or named here."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    command = ("git", "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard")
    names = run(*command, cwd=ROOT).splitlines()
    top = {name.partition("/")[0] for name in names if (ROOT / name).exists()}
    assert top == {
        *(".ci", ".github", ".gitignore", ".pre-commit-config.yaml"),
        *(".readthedocs.yaml", "recipe", *HELD, *HELD_FILES),
    }


def test_wheel_is_the_same_from_the_tree_and_from_the_source_distribution(
    source, built, tmp_path
):
    from_tree = build(tmp_path, source, "--wheel")[".whl"]
    assert from_tree.name == built[".whl"].name
    assert held(from_tree) == held(built[".whl"])


def test_metadata(built):
    (text,) = (v for k, v in held(built[".whl"]).items() if k.endswith("/METADATA"))
    fields = email.message_from_bytes(text)
    assert __version__ == fields["Version"]
    assert "BSD-3-Clause" == fields["License-Expression"]
    assert ["LICENSE"] == fields.get_all("License-File")
    assert not any("License ::" in line for line in fields.get_all("Classifier"))
    required = [x for x in fields.get_all("Requires-Dist") if "extra ==" not in x]
    names = {re.match(r"[\w-]+", name)[0] for name in required}
    assert {"blosc", "google-crc32c", "numpy"} == names
    # The repository has no published home: no address would be its own.
    assert fields.get_all("Project-URL") is None


def test_installed_files_are_those_of_the_repository(installed):
    (package,) = installed.glob("**/site-packages/bloscpack")
    found = [name for name in files_in(package) if "__pycache__" not in name]
    expected = [name.removeprefix("bloscpack/") for name in python_files()]
    assert sorted([*expected, "py.typed"]) == found
    for installed_at, original in DATA.items():
        assert (ROOT / original).read_text() == (installed / installed_at).read_text()
    assert [] == [*installed.glob("**/site-packages/tests")]


def test_installed_commands_tell_their_version(installed, tmp_path):
    python = programs(installed) / "python"
    for command in ((programs(installed) / "blpk",), (python, "-m", "bloscpack")):
        output = run(*command, "--version", cwd=tmp_path)
        assert output.startswith("bloscpack: '%s' python-blosc: " % __version__)


def test_installed_modules_load_without_any_extra(installed, tmp_path):
    program = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    print(name, importlib.import_module(name).__file__)\n"
    )
    names = [name for name in public_modules() if name not in SUBCLASSES]
    assert {"bloscpack", "bloscpack.cli", "bloscpack.reader"} <= set(names)
    command = (programs(installed) / "python", "-W", "error", "-c", program)
    lines = run(*command, *names, cwd=tmp_path).splitlines()
    assert names == [line.split(" ", 1)[0] for line in lines]
    for line in lines:
        path = Path(line.split(" ", 1)[1]).resolve()
        assert path.is_relative_to(installed.resolve()), line
