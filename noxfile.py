"""All checks, each in an environment of its own: ``nox``, or ``nox -s lint``."""

import shutil

import nox

nox.options.reuse_existing_virtualenvs = True
PYTHONS = ["3.10", "3.11", "3.12", "3.13"]


def install(session: nox.Session, extras: str) -> None:
    """Install the package as a user would."""
    # Modules that are gone would stay in there, and be installed for ever.
    shutil.rmtree("build", ignore_errors=True)
    session.install("-q", ".[%s]" % extras)


@nox.session
def lint(session: nox.Session) -> None:
    """Style and types."""
    install(session, "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """The test suite."""
    install(session, "test")
    session.run("pytest", "-q", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation, warnings as errors, and its examples."""
    install(session, "docs,test")
    output = "docs/_build/html"
    session.run("sphinx-build", "-W", "-n", "-q", "-b", "html", "docs", output)
    session.run("pytest", "-q", "tests/test_docs.py")
