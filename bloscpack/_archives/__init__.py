"""What `bloscpack.zip_io` is made of: names, writing and reading of archives."""
