"""Run the command ``blpk`` by ``python -m bloscpack``."""

from .cli import main

main()
