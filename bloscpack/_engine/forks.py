"""Locks that are free in a child process after a fork.

A fork copies a lock that another thread holds, but not that thread: nothing would ever
release the lock in the child process. Objects with locks are listed here, and get new
ones in each child before any other code runs there.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Protocol
    from weakref import WeakSet

    class Renewable(Protocol):
        """An object with locks."""

        def renew_locks(self) -> None:
            """Replace the locks by new ones, and repair what they guard."""


# The objects that exist; None before the first one.
_owners: WeakSet[Renewable] | None = None


def renew_after_fork(owner: Renewable) -> None:
    """Let a child process call ``owner.renew_locks()`` when it starts."""
    global _owners
    if _owners is None:
        from weakref import WeakSet

        _owners = WeakSet()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_renew_all)
    _owners.add(owner)


def _renew_all() -> None:
    for owner in list(_owners or ()):
        owner.renew_locks()
