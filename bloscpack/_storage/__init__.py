"""Where the bytes are: positional reads that trust no count."""
