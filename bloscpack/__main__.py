"""``python -m bloscpack``: the command ``blpk``."""

from .cli import main

main()
