"""
Tests RoiAlign and MaxRoiPool against ONNX's reference and onnxruntime, also outside of images.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

import popgraph
from popgraph.support.arrays import Array
from popgraph.support.errors import IndicesError
from tests.one_node import close, found, model, normal, of_both, of_peer
from tests.passes.test_onnx_gradients import check

Case = tuple[dict[str, Array], dict[str, Any]]
MODES = ("avg", "max")
SHIFTS = ("half_pixel", "output_half_pixel")


@st.composite
def regions(draw: st.DrawFn) -> Case:
    """Regions, some of them outside of the image, empty or reversed."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count, space = draw(st.integers(1, 3)), [draw(st.integers(1, 5)) for _ in range(2)]
    reach = draw(st.sampled_from([3.0, 8.0, 30.0]))
    corners = generator.uniform(-reach / 2, reach, (count, 4))
    if draw(st.booleans()):
        corners = np.round(corners)
    if draw(st.booleans()):  # with ordered corners
        corners = np.sort(corners.reshape(count, 2, 2), axis=1).reshape(count, 4)
    inputs = {
        "x": normal((2, 2, *space), "float64", draw(st.integers(0, 9))),
        "rois": corners,
        "batch": generator.integers(0, 2, count),
    }
    attributes = {
        "output_height": draw(st.integers(1, 3)),
        "output_width": draw(st.integers(1, 3)),
        "sampling_ratio": draw(st.integers(0, 3)),
        "spatial_scale": draw(st.sampled_from([1.0, 0.5])),
        "mode": draw(st.sampled_from(MODES)),
        "coordinate_transformation_mode": draw(
            st.sampled_from(["half_pixel", "output_half_pixel"])
        ),
    }
    return inputs, attributes


@given(regions())
def test_roi_align_is_that_of_the_reference(case: Case) -> None:
    inputs, attributes = case
    proto = model("RoiAlign", inputs, **attributes)
    (wanted,) = ReferenceEvaluator(proto).run(None, dict(inputs))
    close(found(proto, inputs)["y"], wanted)


@given(regions())
def test_roi_align_gradients_are_slopes(case: Case) -> None:
    inputs, attributes = case
    proto = model("RoiAlign", inputs, constants=("rois", "batch"), **attributes)
    assert check(proto, [inputs["x"]], [found(proto, inputs)["y"]])


@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("mode", MODES)
def test_roi_align_gradients_of_regions_are_slopes(mode: str, ratio: int) -> None:
    """Regions decide sample positions and weights; the number of samples is constant."""
    corners = np.random.default_rng(0).uniform(0, 8, (3, 2, 2))
    rois = np.sort(corners, axis=1).reshape(3, 4)
    inputs = {"x": normal((2, 2, 7, 8), "float64"), "rois": rois, "batch": np.array([0, 1, 1])}
    attributes = {"sampling_ratio": ratio, "output_height": 2, "output_width": 2}
    proto = model("RoiAlign", inputs, constants=("batch",), mode=mode, **attributes)
    assert check(proto, [inputs["x"], rois], [found(proto, inputs)["y"]])


def regions_of_an_image(dtype: str) -> dict[str, Array]:
    corners = np.array([[0, 0, 6.5, 9], [2.25, 3, 4, 4.5], [-3, 1, 14, 12]])
    x = normal((2, 3, 9, 10), dtype)
    return {"x": x, "rois": corners.astype(x.dtype), "batch": np.array([1, 0, 1])}


@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("opset", "dtype"), [(10, "float32"), (16, "float16"), (22, "bfloat16"), (22, "float64")]
)
def test_roi_align_versions_and_types(opset: int, dtype: str, mode: str, ratio: int) -> None:
    inputs, attributes = regions_of_an_image(dtype), {"mode": mode, "sampling_ratio": ratio}
    proto = model("RoiAlign", inputs, opset=opset, output_height=3, output_width=4, **attributes)
    y = of_both(proto, inputs)["y"]
    if opset == 10:
        attributes["coordinate_transformation_mode"] = "output_half_pixel"
    wide = {name: array.astype(np.float64) for name, array in inputs.items()}
    wide["batch"] = inputs["batch"]
    same = model("RoiAlign", wide, output_height=3, output_width=4, **attributes)
    (wanted,) = ReferenceEvaluator(same).run(None, wide)
    close(y, wanted.astype(y.dtype))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ratio", [0, 2])
def test_roi_align_is_that_of_onnxruntime(mode: str, ratio: int, tmp_path: Path) -> None:
    inputs = regions_of_an_image("float32")
    attributes: dict[str, Any] = {"mode": mode, "sampling_ratio": ratio, "spatial_scale": 0.5}
    proto = model("RoiAlign", inputs, opset=16, output_height=3, output_width=4, **attributes)
    close(found(proto, inputs, "c")["y"], of_peer(proto, inputs, tmp_path)["y"])


@pytest.mark.parametrize("ratio", [0, 2])
def test_roi_align_batch_indices_out_of_range(ratio: int) -> None:
    inputs = {**regions_of_an_image("float32"), "batch": np.array([0, 2, 1])}
    proto = model("RoiAlign", inputs, sampling_ratio=ratio)
    with pytest.raises(IndicesError, match="image 2"):
        popgraph.compile(proto, backend="c", indices="error")(**inputs)


def test_roi_align_without_regions() -> None:
    inputs = {name: array[:0] for name, array in regions_of_an_image("float32").items()}
    inputs["x"] = normal((1, 3, 4, 4))
    assert of_both(model("RoiAlign", inputs), inputs)["y"].shape == (0, 3, 1, 1)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_roi_align_with_batch_indices_in_32_bits(dtype: str) -> None:
    """PopART has batch indices in 32 bits."""
    inputs = regions_of_an_image(dtype)
    wanted = found(model("RoiAlign", inputs), inputs)["y"]
    inputs["batch"] = inputs["batch"].astype(np.int32)
    close(found(model("RoiAlign", inputs), inputs)["y"], wanted)


BOXES = np.array(
    [[0, 0, 0, 5, 6], [1, 1, 2, 4, 4], [0, 3, 3, 3, 3], [1, 4, 4, 9, 9], [0, 7, 7, 8, 8]],
    np.float32,
)


@pytest.mark.parametrize("scale", [1.0, 0.5])
@pytest.mark.parametrize("bins", [(2, 3), (1, 1), (4, 2)])
def test_max_roi_pool_is_that_of_onnxruntime(
    bins: tuple[int, int], scale: float, tmp_path: Path
) -> None:
    inputs = {"x": normal((2, 3, 7, 6)), "rois": BOXES}
    proto = model("MaxRoiPool", inputs, opset=21, pooled_shape=list(bins), spatial_scale=scale)
    close(of_both(proto, inputs)["y"], of_peer(proto, inputs, tmp_path)["y"])


def test_max_roi_pool_of_an_empty_bin_is_zero() -> None:
    inputs = {"x": normal((1, 2, 4, 4)) - 9, "rois": BOXES[4:]}
    y = of_both(model("MaxRoiPool", inputs, pooled_shape=[2, 2]), inputs)["y"]
    np.testing.assert_array_equal(y, np.zeros((1, 2, 2, 2)))
