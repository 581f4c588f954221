"""The loop: plain source → compressed sink, compressed source → plain sink.

The calling thread iterates over the source and writes to the sink, in order. A pool of
threads compresses, decompresses and digests the chunks.
"""
