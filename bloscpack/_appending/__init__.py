"""How `append` changes a file: its chunks, its metadata, and room for more."""
