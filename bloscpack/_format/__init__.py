"""Bytes to objects and back, without input or output (docs/format.rst)."""
