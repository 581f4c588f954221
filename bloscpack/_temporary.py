"""Stands in for the parameter `progress` of the library until the branches are merged."""

import functools

PROGRESS = None


def hear(function):
    """Add the keyword `progress` to a function."""

    @functools.wraps(function)
    def wrapper(*args, progress=None, **kwargs):
        global PROGRESS
        old, PROGRESS = PROGRESS, progress or PROGRESS
        try:
            return function(*args, **kwargs)
        finally:
            PROGRESS = old

    return wrapper
