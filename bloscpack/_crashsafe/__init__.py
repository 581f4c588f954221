"""All-or-nothing changes: journal, locks, replacement, snapshot reads."""
