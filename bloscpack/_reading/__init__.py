"""Read parts of a file: where each chunk is, loading chunks, caching them."""
