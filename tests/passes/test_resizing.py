"""
Tests Resize and Upsample against ONNX's reference, or onnxruntime where that has no definition.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from onnx import helper, numpy_helper

import popgraph
from popgraph.compiler import load, lower
from popgraph.dialects import tile
from popgraph.passes.options import Options
from popgraph.passes.structured.analysis.operand_maps import is_movement
from popgraph.support.arrays import Array
from tests import one_node
from tests.passes.test_onnx_gradients import check
from tests.peer import answers
from tests.resizings import (
    FLOATS,
    INTEGERS,
    MODES,
    Resizing,
    assert_as_expected,
    disagrees_with_onnx,
    resizings,
)
from tests.sampling import WHOLE

BACKENDS = ("reference", "c")


def found(case: Resizing, backend: str = "reference") -> Array:
    return popgraph.compile(case.model(), backend=backend)(**case.inputs())["y"]


@given(resizings(FLOATS))
@settings(max_examples=2000 if WHOLE else 60)
def test_resize_of_floats_is_that_of_the_reference(case: Resizing) -> None:
    assume(not disagrees_with_onnx(case))
    assert_as_expected(case, found(case))


@given(resizings(INTEGERS))
@settings(max_examples=500 if WHOLE else 60)
def test_resize_of_integers_rounds_as_the_reference(case: Resizing) -> None:
    assume(not disagrees_with_onnx(case))
    assert_as_expected(case, found(case))


@given(resizings(("float32", "float16", "uint8", "int64")))
def test_resize_in_c(case: Resizing) -> None:
    assume(not disagrees_with_onnx(case))
    assert_as_expected(case, found(case, "c"))


@given(resizings(("float64",)))
@settings(max_examples=500 if WHOLE else 40)
def test_resize_gradients_are_slopes(case: Resizing) -> None:
    fixed = replace(case, fed=False)
    assert check(fixed.model(), [fixed.array()], [found(fixed)])


# Cases without a definition in the reference


def old(operator: str, opset: int, mode: str, *scales: float) -> Resizing:
    return Resizing((1, 2, 5, 6), (("mode", mode),), scales=scales, opset=opset, operator=operator)


def of_coordinates(where: str, mode: str, **more: Any) -> Resizing:
    attributes = {"coordinate_transformation_mode": where, "mode": mode}
    if mode == "nearest":
        attributes["nearest_mode"] = more.pop("rounding", "floor")
    return Resizing((1, 1, 5, 6), tuple(attributes.items()), opset=13, **more)


OF_ONNXRUNTIME = [
    *(
        old("Resize", 10, mode, 1, 1, *scales)
        for mode in ("nearest", "linear")
        for scales in ((2, 3), (0.6, 0.5), (1.7, 0.35))
    ),
    *(
        old("Upsample", opset, mode, 1, 1, *scales)
        for opset in (7, 9)
        for mode in ("nearest", "linear")
        for scales in ((2.0, 3.0), (1.5, 2.6))
    ),
    *(
        of_coordinates("tf_half_pixel_for_nn", "nearest", scales=scales, rounding=rounding)
        for rounding in ("floor", "round_prefer_ceil")
        for scales in ((1, 1, 2, 3), (1, 1, 0.5, 1.3))
    ),
    *(
        of_coordinates(where, mode, sizes=(1, 1, 1, 4), roi=roi)
        for mode in ("nearest", "linear")
        for where, roi in (
            ("pytorch_half_pixel", ()),
            ("align_corners", ()),
            ("tf_crop_and_resize", (0, 0, 0.2, 0.1, 1, 1, 0.9, 0.7)),
        )
    ),
    of_coordinates("pytorch_half_pixel", "cubic", sizes=(1, 1, 1, 1)),
]


def test_resize_is_that_of_onnxruntime(tmp_path: Path) -> None:
    cases = [(case.model().SerializeToString(), case.inputs()) for case in OF_ONNXRUNTIME]
    for case, wanted in zip(OF_ONNXRUNTIME, answers(cases, tmp_path), strict=True):
        assert isinstance(wanted, dict), (case, wanted)
        np.testing.assert_allclose(
            found(case), wanted["y"], rtol=1e-5, atol=1e-5, err_msg=str(case)
        )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sizes", [(1, 8, 7, 9), (1, 8, 3, 4), (1, 8, 12, 15)], ids=str)
def test_resize_keeps_channels_last(mode: str, sizes: tuple[int, ...]) -> None:
    """Between convolutions, no copy with another order of axes is emitted."""
    resized = Resizing((1, 8, 6, 5), (("mode", mode),), sizes=sizes).model()
    graph = resized.graph
    (node,) = graph.node
    node.input[0], node.output[0] = "a", "b"
    graph.node.insert(0, helper.make_node("Conv", ["x", "w"], ["a"]))
    graph.node.append(helper.make_node("Conv", ["b", "w"], ["y"]))
    weights = np.random.default_rng(1).normal(size=(8, 8, 1, 1)).astype(np.float32)
    graph.initializer.append(numpy_helper.from_array(weights, "w"))
    x = np.random.default_rng(0).normal(size=(1, 8, 6, 5)).astype(np.float32)
    in_c, by_reference = (
        popgraph.compile(resized, backend=backend)(x=x)["y"] for backend in ("c", "reference")
    )
    np.testing.assert_allclose(in_c, by_reference, 1e-4, 1e-4)
    module = lower(*load(resized), Options(), level="structured")
    copies = [op for op in module.walk() if isinstance(op, tile.MapOp) and is_movement(op)]
    assert len([op for op in copies if len(op.sizes) == 4]) <= 2, "x comes, and y goes"


POPART = [
    ("roi", "scales16", ""),
    ("", "scales", ""),
    ("", "", "sizes"),
    ("roi", "", "sizes32"),
    ("roi", "nothing", "sizes32"),
]


@pytest.mark.parametrize("names", POPART, ids=" ".join)
@pytest.mark.parametrize("fed", [False, True])
def test_resize_11_operands_of_popart_and_exporters(names: tuple[str, ...], fed: bool) -> None:
    """Without a region, scales in half precision, sizes in 32 bits, operands without a name."""
    given = {
        "roi": np.zeros(0, np.float32),
        "nothing": np.zeros(0, np.float32),
        "scales": np.array([1, 2], np.float32),
        "scales16": np.array([1, 2], np.float16),
        "sizes": np.array([2, 6]),
        "sizes32": np.array([2, 6], np.int32),
    }
    inputs = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    inputs |= {name: given[name] for name in names if name and fed}
    graph = helper.make_graph(
        [helper.make_node("Resize", ["x", *names], ["y"])],
        "g",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in inputs.items()
        ],
        [helper.make_empty_tensor_value_info("y")],
        [] if fed else [numpy_helper.from_array(given[name], name) for name in names if name],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=6)
    for backend in BACKENDS:
        y = popgraph.compile(model, backend=backend)(**inputs)["y"]
        np.testing.assert_array_equal(y, inputs["x"].repeat(2, axis=1))


def test_resize_nearest_mode_of_popart() -> None:
    """PopART rounds down whatever the coordinates are."""
    case = of_coordinates("half_pixel", "nearest", scales=(1, 1, 0.5, 0.4), rounding="pytorch")
    wanted = case.array()[:, :, [0, 2]][..., [0, 2]]
    np.testing.assert_array_equal(found(case), wanted)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_resize_spreads_infinity_to_neighbours_only(mode: str) -> None:
    """Not in elements at integer coordinates, where its weight is 0."""
    attributes = {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
    case = Resizing((1, 1, 8), tuple(attributes.items()), scales=(1, 1, 2))
    x = np.ones((1, 1, 8), np.float32)
    x[..., 4] = np.inf
    for backend in BACKENDS:
        y = popgraph.compile(case.model(), backend=backend)(x=x)["y"][0, 0]
        assert (y[::2] == x[0, 0]).all()
        assert np.isinf(y[[7, 9]]).all()
        assert (y[[1, 3, 13, 15]] == 1).all()


def test_resize_of_named_axes_with_unknown_rank() -> None:
    x = one_node.normal((2, 3))
    inputs = {"x": x, "roi": None, "scales": np.array([2], np.float32)}
    proto = one_node.model("Resize", inputs, constants=["scales"], axes=[1])
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    y = popgraph.compile(proto, backend="reference")(x=x)["y"]
    np.testing.assert_array_equal(y, np.repeat(x, 2, axis=1))
