"""Other libraries that use `.blp` files: the backend of xarray, `xarray_backend`.

xarray finds it through an entry point, and imports it when it looks for a backend.
`docs/integrations.rst` has examples for other libraries, which need no module.
"""
