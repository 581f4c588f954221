"""All checks, each in an environment of its own: ``nox``, or ``nox -s lint``.

This file alone says how a check is run. ``.ci/run`` and the workflows call it; only the
command of README.rst runs the tests without it.
"""

import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2024.4.15"
nox.options.reuse_venv = "yes"
PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]


def install(session: nox.Session, extras: str) -> None:
    """Install the package as a user would."""
    # setuptools would install modules that an earlier build left here.
    shutil.rmtree("build", ignore_errors=True)
    session.install("-q", ".[%s]" % extras)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and types."""
    install(session, "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("lint-imports", "--no-cache")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the test suite; options of pytest follow a ``--``."""
    install(session, "test")
    session.run("pytest", "-q", "-n", "auto", *session.posargs)


@nox.session(python="3.10", default=False)
def lowest(session: nox.Session) -> None:
    """Run the test suite with the oldest packages that pyproject.toml allows."""
    project = nox.project.load_toml("pyproject.toml")["project"]
    needed = list(project["dependencies"])
    for extra in ("completion", "progress", "remote", "snappy"):
        needed += project["optional-dependencies"][extra]
    oldest = [each.replace(">=", "==") + ".*" for each in needed]
    session.install("-q", ".[test]", *oldest)
    # The oldest fsspec does not close the files of a cache.
    open_files = "ignore::pytest.PytestUnraisableExceptionWarning"
    session.run("pytest", "-q", "-n", "auto", "-W", open_files, *session.posargs)


@nox.session(default=False)
def coverage(session: nox.Session) -> None:
    """Run all tests and fail if they miss more than 3 % of the branches."""
    # Editable, so that the files measured are those of this folder.
    session.install("-q", "-e", ".[coverage]")
    session.run("coverage", "erase")
    try:
        session.run("coverage", "run", "-m", "pytest", "-q", "-n", "auto")
        session.run("coverage", "combine", "-q")
        session.run("coverage", "report", "--fail-under=97")
    finally:
        session.run("coverage", "erase")


@nox.session
def integrations(session: nox.Session) -> None:
    """Run the tests with other programs, and the transcripts of the command."""
    install(session, "test-integrations")
    tests = ["test_remote.py", "test_s3.py", "test_zarr.py", "test_cmdline.py"]
    found = [str(path) for name in tests for path in Path("tests").rglob(name)]
    found.append("tests/integrations")
    chosen = ["-m", "not cluster", *found, *session.posargs]
    session.run("pytest", "-q", "-n", "auto", *chosen)
    examples = "tests/project/test_docs.py"
    chosen = "independent or datasets or gridded"
    session.run("pytest", "-q", examples, "-k", chosen, *session.posargs)


@nox.session(default=False)
def cluster(session: nox.Session) -> None:
    """Write and read datasets with the processes of a Dask cluster."""
    install(session, "test-integrations")
    session.run("pytest", "-q", "-m", "cluster", "tests/integrations", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation, with warnings as errors; the tests run its examples."""
    install(session, "docs")
    output = "docs/_build/html"
    session.run("sphinx-build", "-W", "-n", "-q", "-b", "html", "docs", output)


@nox.session
def package(session: nox.Session) -> None:
    """Build what is uploaded, check it, and install it in a fresh environment."""
    install(session, "package")
    session.run("pytest", "-q", "tests/project/test_packaging.py")


@nox.session(python="3.11", default=False)
def bigfile(session: nox.Session) -> None:
    """Compare BigFile trees with the original; this needs a network and a compiler."""
    install(session, "test")
    session.run("pytest", "-q", "tests/bigfile", env={"BLOSCPACK_BUILD_ORIGINALS": "1"})


@nox.session(python="3.11", default=False)
def mpi(session: nox.Session) -> None:
    """Write BigFile trees with the processes of MPI; this needs a network."""
    install(session, "test,mpi")
    session.install("-q", "mpich")
    session.run("pytest", "-q", "tests/bigfile/test_mpi.py", *session.posargs)


@nox.session(python="3.12", default=False)
def bcolz(session: nox.Session) -> None:
    """Read and change datasets with the genuine bcolz; this needs a network."""
    install(session, "test")
    genuine = "tests/dataset/test_genuine_bcolz.py"
    session.run("pytest", "-q", genuine, env={"BLOSCPACK_BUILD_ORIGINALS": "1"})


@nox.session(python="3.12", default=False)
def release(session: nox.Session) -> None:
    """Let release 0.16 read files in the middle of a change; this needs a network."""
    install(session, "test")
    undo = "tests/commit/test_undo.py"
    session.run("pytest", "-q", undo, env={"BLOSCPACK_BUILD_ORIGINALS": "1"})


@nox.session(python="3.12", default=False)
def releases(session: nox.Session) -> None:
    """Let other releases of zarr-python find members; this needs a network."""
    install(session, "test-integrations")
    members = "tests/integrations/test_zarr_members.py"
    session.run("pytest", "-q", members, env={"BLOSCPACK_BUILD_ORIGINALS": "1"})


@nox.session(python="3.12", default=False)
def zarrita(session: nox.Session) -> None:
    """Read datasets with zarrita.js; this needs a network."""
    install(session, "test-integrations")
    readers = "tests/integrations/test_http_readers.py"
    session.run("pytest", "-q", readers, env={"BLOSCPACK_BUILD_ORIGINALS": "1"})
