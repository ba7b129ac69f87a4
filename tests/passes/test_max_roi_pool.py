"""Tests MaxRoiPool: both backends against onnxruntime, and against ONNX's definition in NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.one_node import close, model, normal, of_both, of_peer

REGIONS = np.array(
    [[0, 0, 0, 5, 6], [1, 1, 2, 4, 4], [0, 3, 3, 3, 3], [1, 4, 4, 9, 9], [0, 7, 7, 8, 8]],
    np.float32,
)


@pytest.mark.parametrize("scale", [1.0, 0.5])
@pytest.mark.parametrize("bins", [(2, 3), (1, 1), (4, 2)])
def test_bins_are_those_of_onnxruntime(bins: tuple[int, int], scale: float, tmp_path: Path) -> None:
    inputs = {"x": normal((2, 3, 7, 6)), "rois": REGIONS}
    proto = model("MaxRoiPool", inputs, opset=21, pooled_shape=list(bins), spatial_scale=scale)
    close(of_both(proto, inputs)["y"], of_peer(proto, inputs, tmp_path)["y"])


def test_a_bin_without_elements_is_zero() -> None:
    inputs = {"x": normal((1, 2, 4, 4)) - 9, "rois": REGIONS[4:]}
    y = of_both(model("MaxRoiPool", inputs, pooled_shape=[2, 2]), inputs)["y"]
    np.testing.assert_array_equal(y, np.zeros((1, 2, 2, 2)))


def test_powers_of_the_whole_image_are_added() -> None:
    """GlobalLpPool is the p-th root of all that an image holds."""
    x = normal((2, 3, 4, 5))
    for p in (1, 2, 3):
        y = of_both(model("GlobalLpPool", {"x": x}, p=p), {"x": x})["y"]
        wanted = (np.abs(x).astype(np.float64) ** p).sum(axis=(2, 3), keepdims=True) ** (1 / p)
        np.testing.assert_allclose(y, wanted, rtol=1e-5)


def test_classes_are_drawn_as_often_as_they_weigh() -> None:
    """Multinomial draws the numbers of classes, whose logarithms are given."""
    x = np.log(np.array([[1, 2, 5], [6, 1, 1]], np.float32))
    y = of_both(model("Multinomial", {"x": x}, sample_size=4000), {"x": x})["y"]
    assert y.dtype == np.int32 and y.shape == (2, 4000)
    shares = np.stack([(y == one).mean(axis=1) for one in range(3)], axis=1)
    np.testing.assert_allclose(shares, np.exp(x) / 8, atol=0.03)
