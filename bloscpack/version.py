"""The version number of Bloscpack."""

__version__ = "1.0.0rc1"
