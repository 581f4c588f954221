"""The layouts that tests write; a new layout gets these tests by its entry."""

from bloscpack.dataset import layouts

LAYOUTS = tuple(name for name, known in layouts.LAYOUTS.items() if not known.instead)
