"""Contexts that do something with the error of a block: `on_error`, `errors_to`.

They are classes: a generator that raises another error is in a cycle with the first
one, from Python 3.12 on. That keeps all that the traceback has: a dataset stays locked,
and files stay open.
"""

from __future__ import annotations

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable


class on_error:
    """Call a function, with arguments, if the block raises an error, which goes on."""

    def __init__(self, call: Callable[..., object], *args: object) -> None:
        self._call, self._args = call, args

    def __enter__(self) -> None:
        return None

    def __exit__(self, error_type: object, error: object, traceback: object) -> None:
        if error is not None:
            self._call(*self._args)


class errors_to(on_error):
    """Call a function with the `Exception` of a block, which goes on unless it raises.

    It may raise another error in its place.
    """

    def __exit__(self, error_type: object, error: object, traceback: object) -> None:
        if isinstance(error, Exception):
            self._call(error)
