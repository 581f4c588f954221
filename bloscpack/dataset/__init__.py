"""Directories of superchunks: arrays and column tables in many files."""
