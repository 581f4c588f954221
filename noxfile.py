"""All checks, each in an environment of its own: ``nox``, or ``nox -s lint``."""

import nox

nox.options.reuse_existing_virtualenvs = True
PYTHONS = ["3.10", "3.11", "3.12", "3.13"]


@nox.session
def lint(session: nox.Session) -> None:
    """Style and types."""
    session.install("-q", ".[lint]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """The test suite."""
    session.install("-q", ".[test]")
    session.run("pytest", "-q", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation, warnings as errors, and its examples."""
    session.install("-q", ".[docs,test]")
    output = "docs/_build/html"
    session.run("sphinx-build", "-W", "-n", "-q", "-b", "html", "docs", output)
    session.run("pytest", "-q", "tests/test_docs.py")
