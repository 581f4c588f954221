"""Arrays in chunks: what an index selects, and the chunks that hold it."""
