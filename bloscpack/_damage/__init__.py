"""Damaged files, for `verify` and `recover`: scan, number and describe what is left."""
