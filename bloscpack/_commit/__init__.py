"""Changes that are applied as a whole or not at all."""
