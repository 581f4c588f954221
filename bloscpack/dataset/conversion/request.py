"""The settings of one conversion, and what it could not carry over."""

from __future__ import annotations

from contextlib import ExitStack
from importlib import import_module

from ..._crashsafe.replace import replacing
from ...exceptions import UsageError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from typing import Any, BinaryIO

    from ..._crashsafe.ownership import Limits
    from ..._format.dtypes import DType
    from ...abstract_io import Progress


class Request:
    """How to convert.

    Attributes
    ----------
    target
        The file or folder to write.
    force
        Whether to replace an existing target.
    sync
        Whether the target is on the disk in the end; None: if it replaces another one.
    nthreads
        Number of threads for `.blp` files; None for the default.
    settings
        Settings of Blosc: ``cname``, ``clevel``, ``shuffle``.
    dtypes
        The types of columns of text files, by name.
    limits
        The attributes of the source, which limit the readers of the target.
    resources
        Files to be closed after the conversion.
    lost
        What the target can't hold, in words.
    """

    def __init__(
        self,
        target: str,
        *,
        force: bool = False,
        sync: bool | None = None,
        nthreads: int | None = None,
        progress: Progress | None = None,
        settings: Mapping[str, Any] | None = None,
        dtypes: Mapping[str, DType] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.target = target
        self.force = force
        self.sync = sync
        self.nthreads = nthreads
        self.progress = progress
        self.settings: Mapping[str, Any] = {} if settings is None else settings
        self.dtypes: Mapping[str, DType] = {} if dtypes is None else dtypes
        self.limits = limits
        self.resources = ExitStack()
        self.lost: list[str] = []

    def new_file(self) -> AbstractContextManager[BinaryIO]:
        """Return the context of the target, a file that is there when it ends."""
        return replacing(
            self.target,
            self.sync,
            exclusive=not self.force,
            like=None if self.limits is None else self.limits.whole(),
        )

    def lose(self, what: str) -> None:
        """Note something that the target can't hold."""
        if what not in self.lost:
            self.lost.append(what)


def import_package(name: str, extra: str, purpose: str) -> Any:
    """Return a package that is not always installed; raise `UsageError` without it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError(
            "%s needs the package %s: pip install 'bloscpack[%s]'"
            % (purpose, name.partition(".")[0], extra)
        ) from error
