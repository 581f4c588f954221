"""Generate the data sets of the benchmarks, equal in every process."""

from __future__ import annotations

import numpy as np

NAMES = ("linspace", "walk", "stamps", "random")
MIB = 2**20


def make(name: str, nbytes: int = 256 * MIB) -> np.ndarray:
    """Return a data set of `nbytes`: smooth, noisy, regular with jitter, random.

    ``measured`` is one more, which `NAMES` does not have.
    """
    rng = np.random.default_rng(2026)
    if name == "linspace":
        return np.linspace(0, 1, nbytes // 8)
    if name == "walk":
        steps = rng.standard_normal(nbytes // 4, dtype="f4")
        return np.cumsum(steps, dtype="f4")
    if name == "stamps":
        return np.arange(nbytes // 8) * 1_000_000 + rng.integers(0, 1000, nbytes // 8)
    if name == "measured":  # a slow signal with noise, rounded as instruments do
        signal = 20 + 10 * np.sin(np.arange(nbytes // 8) / 50_000)
        return np.round(signal + rng.normal(0, 1, nbytes // 8), 2)
    if name == "random":
        return rng.integers(0, 256, nbytes, dtype="u1")
    raise ValueError("no data set %r; there are %s" % (name, ", ".join(NAMES)))
