"""Kept from 0.16: names that differed between versions of Python.

``StringIO`` is `io.BytesIO`: in Python 2 its class of this name held bytes.
"""

from __future__ import annotations

from collections import OrderedDict as OrderedDict
from io import BytesIO as StringIO

__all__ = ["OrderedDict", "StringIO"]
