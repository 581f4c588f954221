"""The verbs of ``blpk``: one module for each."""
