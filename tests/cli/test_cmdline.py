"""Runs the transcripts of `blpk` in test_cmdline, each in an empty folder."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import support

pytest.importorskip("cram")

TRANSCRIPTS = sorted(support.ROOT.glob("test_cmdline/*.t"))
# What a change is most likely to break; the others start many more processes.
QUICK = {"info"}
CASES = [
    pytest.param(
        path, id=path.stem, marks=[pytest.mark.slow] * (path.stem not in QUICK)
    )
    for path in TRANSCRIPTS
]

BLPK = """\
#!/bin/sh
exec %s -W error -c 'from bloscpack.cli import main; main()' "$@"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return variables with which `blpk` and `python3` mean what is tested here."""
    folder = tmp_path / "bin"
    folder.mkdir()
    blpk = folder / "blpk"
    blpk.write_text(BLPK % shlex.quote(sys.executable))
    blpk.chmod(0o755)
    paths = [str(folder), str(Path(sys.executable).parent), os.environ["PATH"]]
    return support.environment(PATH=os.pathsep.join(paths), PYTHONUTF8="1")


@pytest.mark.full
@pytest.mark.parametrize("transcript", CASES)
def test_transcript(
    tmp_path: Path, environment: dict[str, str], transcript: Path
) -> None:
    # Beside a transcript that fails cram leaves a file.
    copy = shutil.copy(transcript, tmp_path)
    result = subprocess.run(
        [sys.executable, "-m", "cram", "--shell=/bin/sh", copy],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == result.returncode, result.stdout + result.stderr


def test_there_are_transcripts() -> None:
    assert {path.stem for path in TRANSCRIPTS} > QUICK
