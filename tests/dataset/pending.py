"""Documents of changes that were committed and are not complete."""

from __future__ import annotations

from bloscpack._format.committed import Root


def with_pending(content, files):
    """Return the content of a document with another list of files, or without one."""
    return Root(content).with_files(files).content
