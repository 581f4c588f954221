"""Checking all that a file holds, and telling of each finding what it touches."""
