"""The two directions of `bloscpack.BloscpackFile`: reading and writing plain bytes."""
