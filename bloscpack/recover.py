"""Writing a valid file from all that is intact of a damaged one."""
