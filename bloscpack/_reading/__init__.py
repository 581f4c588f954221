"""Read parts of a file: its description, single chunks, and items of an array."""
