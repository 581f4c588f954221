"""Threads, Blosc's process-wide settings, and memory to fill in place."""
