"""Draws nodes of Resize, and computes them by ONNX's reference."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops import op_resize

from popgraph.support.arrays import Array

MODES = ("nearest", "linear", "cubic")
COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)
"""The modes of ONNX's reference, which lacks tf_half_pixel_for_nn of version 11."""
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
POLICIES = ("stretch", "not_larger", "not_smaller")
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
TOLERANCE = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 3e-6, "float64": 1e-11}


@dataclass(frozen=True)
class Resizing:
    """A node and its inputs, as plain data."""

    shape: tuple[int, ...]
    attributes: tuple[tuple[str, Any], ...] = ()
    axes: tuple[int, ...] = ()
    """The resized axes; an empty tuple means all."""
    scales: tuple[float, ...] = ()
    sizes: tuple[int, ...] = ()
    roi: tuple[float, ...] = ()
    dtype: str = "float32"
    opset: int = 19
    fed: bool = False
    """Whether scales, sizes and the region are inputs of the model."""
    operator: str = "Resize"

    def array(self) -> Array:
        generator = np.random.default_rng(0)
        if self.dtype in INTEGERS:
            info = np.iinfo(self.dtype)
            bounds = max(info.min, -(2**40)), min(info.max, 2**40)
            return generator.integers(*bounds, self.shape, endpoint=True).astype(self.dtype)
        kind = np.dtype(getattr(ml_dtypes, self.dtype, self.dtype))
        return np.asarray(generator.normal(size=self.shape)).astype(kind)

    def structure(self) -> dict[str, Array]:
        """The inputs that decide the structure, by name."""
        given: dict[str, Array] = {
            "roi": np.array(self.roi, np.float32),
            "scales": np.array(self.scales, np.float32),
            "sizes": np.array(self.sizes, np.int64),
        }
        must = ("roi", "scales") if self.opset in (11, 12) else ()  # possibly empty
        return {name: array for name, array in given.items() if array.size or name in must}

    def inputs(self) -> dict[str, Array]:
        return {"x": self.array(), **(self.structure() if self.fed else {})}

    def model(self, *, positive: bool = False) -> onnx.ModelProto:
        """The model; `positive` makes axes non-negative, which the reference requires."""
        given = self.structure()
        attributes = dict(self.attributes)
        if self.axes:
            rank = len(self.shape)
            attributes["axes"] = [axis % rank if positive else axis for axis in self.axes]
        names = ["roi", "scales", "sizes"] if self.opset >= 11 else ["scales"]
        if self.opset < 9:
            names, attributes["scales"] = [], list(self.scales)
        places = [name if name in given else "" for name in names]
        node = helper.make_node(self.operator, ["x", *places], ["y"], **attributes)
        inputs = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in self.inputs().items()
        ]
        weights = {} if self.fed or not names else given
        graph = helper.make_graph(
            [node],
            "g",
            inputs,
            [helper.make_empty_tensor_value_info("y")],
            [numpy_helper.from_array(array, name) for name, array in weights.items()],
        )
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def expected(self, x: Array | None = None) -> Array:
        """The result of ONNX's reference, optionally for another `x`."""
        given = self.inputs() if x is None else {**self.inputs(), "x": x.astype(self.dtype)}
        with np.errstate(all="ignore"):
            (found,) = ReferenceEvaluator(self.model(positive=True)).run(None, given)
        return np.asarray(found)


@st.composite
def resizings(draw: st.DrawFn, dtypes: tuple[str, ...] = FLOATS) -> Resizing:
    """
    Nodes of Resize.

    `disagrees_with_onnx` lists those for which ONNX's reference and ONNX's text disagree:
    - sizes differ in f32, in which ONNX's inference computes them;
    - a resized axis has one element, a special case that the reference decides differently;
    - a source position is almost an integer, which the reference rounds in one line only.
    """
    opset = draw(st.sampled_from((11, 13, 18, 19)))
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)))
    rank, mode = len(shape), draw(st.sampled_from(MODES))
    axes: tuple[int, ...] = ()
    if opset >= 18 and draw(st.booleans()):
        order = draw(st.permutations(range(rank)))
        chosen = order[: draw(st.integers(1, rank))]
        axes = tuple(axis - rank * draw(st.booleans()) for axis in chosen)
    where = draw(st.sampled_from(COORDINATES[:1] + COORDINATES[2:] if opset < 19 else COORDINATES))
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": where}
    if mode == "nearest":
        attributes["nearest_mode"] = draw(st.sampled_from(ROUNDINGS))
    else:
        attributes["exclude_outside"] = draw(st.integers(0, 1))
    if mode == "cubic":
        attributes["cubic_coeff_a"] = draw(st.sampled_from((-0.75, -0.5)))
    if opset >= 18 and mode != "nearest":
        attributes["antialias"] = draw(st.integers(0, 1))
    roi: tuple[float, ...] = ()
    count = len(axes or shape)
    if where == "tf_crop_and_resize":
        ends = st.sampled_from((-0.25, 0.0, 0.25, 0.4, 0.75, 1.0, 1.3))
        roi = tuple(draw(st.lists(ends, min_size=2 * count, max_size=2 * count)))
        attributes["extrapolation_value"] = draw(st.sampled_from((0.0, 10.0, -3.5)))
    scales: tuple[float, ...] = ()
    sizes: tuple[int, ...] = ()
    if draw(st.booleans()):
        factors = st.sampled_from((1.0, 2.0, 3.0, 4.0, 0.5, 0.3, 0.6, 1.3, 2.5, 1.7))
        scales = tuple(draw(st.lists(factors, min_size=count, max_size=count)))
    else:
        sizes = tuple(draw(st.lists(st.integers(1, 14), min_size=count, max_size=count)))
        if opset >= 18:
            attributes["keep_aspect_ratio_policy"] = draw(st.sampled_from(POLICIES))
    return Resizing(
        shape,
        tuple(attributes.items()),
        axes,
        scales,
        sizes,
        roi,
        draw(st.sampled_from([one for one in dtypes if opset > 11 or one != "bfloat16"])),
        opset,
        draw(st.booleans()),
    )


def assert_as_expected(case: Resizing, found: Array) -> None:
    """Compares type, shape and values to the type's precision."""
    wanted = case.expected()
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    mode, largest = dict(case.attributes)["mode"], np.abs(case.array().astype(np.float64)).max()
    # The reference's cubic values are about as exact as f32: 2.2e-6 off for scales of 1.3 in f64.
    exact = 4e-6 if mode == "cubic" else 1e-11
    if case.dtype in INTEGERS and mode != "nearest":
        # In halfway cases, the last bit before rounding decides.
        info = np.iinfo(case.dtype)
        wanted = np.clip(replace(case, dtype="float64").expected(case.array()), info.min, info.max)
        margin = 0.5 + exact * (1 + largest)
    else:
        margin = max(exact, TOLERANCE.get(case.dtype, 0)) * (1 + largest)
    error = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
    assert (error <= margin).all(), f"{found}, not {wanted}"


def disagrees_with_onnx(case: Resizing) -> bool:
    """Whether ONNX's reference and ONNX's text disagree: see `resizings`."""
    attributes = dict(case.attributes)
    mode = attributes["coordinate_transformation_mode"]
    rank = len(case.shape)
    axes = [axis % rank for axis in case.axes] or list(range(rank))
    before = [case.shape[axis] for axis in axes]
    for size, scale in zip(before, case.scales, strict=False):
        single = np.float32(scale)
        if math.floor(np.float32(size) * single) != math.floor(size * float(single)):
            return True
    after = [case.expected().shape[axis] for axis in axes]
    if 1 in after and mode in ("pytorch_half_pixel", "tf_crop_and_resize"):
        return True
    scales = [float(np.float32(scale)) for scale in case.scales]
    if not scales:
        scales = [size / old for size, old in zip(case.sizes, before, strict=True)]
        policy = attributes.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            scales = [min(scales) if policy == "not_larger" else max(scales)] * len(axes)
    ends = np.array(case.roi or [0] * len(axes) + [1] * len(axes), np.float32).reshape(2, -1).T
    for old, new, scale, roi in zip(before, after, scales, ends, strict=True):
        width = (np.arange(float(new)), scale, old, scale * old, new, list(roi))
        at = op_resize._compute_x_ori(mode, *width)[0]
        if ((at != np.round(at)) & (np.abs(at - np.round(at)) < 1e-9)).any():
            return True
    return False
