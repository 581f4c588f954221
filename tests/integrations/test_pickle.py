"""Pickle with protocol 5: the buffers are packed one by one, next to the pickle."""

from __future__ import annotations

import pickle

import numpy as np

import bloscpack as bp


def test_buffers_out_of_band():
    value = {"x": np.arange(100_000), "y": np.linspace(0, 1, 5), "name": "run 1"}
    buffers: list[pickle.PickleBuffer] = []
    frame = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    packed = [bp.pack_bytes_to_bytes(buffer) for buffer in buffers]
    assert 2 == len(packed)
    assert value["x"].nbytes > 10 * len(packed[0])
    restored = [bp.unpack_bytes_from_bytes(data)[0] for data in packed]
    found = pickle.loads(frame, buffers=restored)
    assert np.array_equal(value["x"], found["x"])
    assert np.array_equal(value["y"], found["y"])
    assert "run 1" == found["name"]


def test_a_pickle_in_a_file(tmp_path):
    value = {"x": np.arange(100_000)}
    with bp.open(tmp_path / "value.pickle.blp", "wb") as file:
        pickle.dump(value, file, protocol=5)
    with bp.open(tmp_path / "value.pickle.blp") as file:
        assert np.array_equal(value["x"], pickle.load(file)["x"])
