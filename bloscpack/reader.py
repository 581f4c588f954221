"""Random access: the bytes or rows asked for, and only the chunks that hold them."""
