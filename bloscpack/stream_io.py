"""Pipes: sources and sinks where nothing can be sought and no length is known."""
