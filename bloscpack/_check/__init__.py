"""Damage in a file: scan, evidence, numbering, findings and recovery."""
