"""Tests random operators against the distributions that ONNX defines."""

from __future__ import annotations

import numpy as np

from tests.one_node import model, of_both


def test_multinomial_frequencies() -> None:
    """Multinomial takes the log-probabilities of classes and draws class numbers."""
    x = np.log(np.array([[1, 2, 5], [6, 1, 1]], np.float32))
    y = of_both(model("Multinomial", {"x": x}, sample_size=4000), {"x": x})["y"]
    assert y.dtype == np.int32 and y.shape == (2, 4000)
    shares = np.stack([(y == one).mean(axis=1) for one in range(3)], axis=1)
    np.testing.assert_allclose(shares, np.exp(x) / 8, atol=0.03)
