"""Resize and Upsample compute what ONNX's reference does, or onnxruntime where that has no say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import assume, given, settings

import popgraph
from popgraph.support.arrays import Array
from tests.passes.test_onnx_gradients import check
from tests.peer import answers
from tests.resizings import (
    FLOATS,
    INTEGERS,
    Resizing,
    assert_as_expected,
    is_told_apart,
    resizings,
)
from tests.sampling import WHOLE

BACKENDS = ("reference", "c")


def found(case: Resizing, backend: str = "reference") -> Array:
    return popgraph.compile(case.model(), backend=backend)(**case.inputs())["y"]


@given(resizings(FLOATS))
@settings(max_examples=2000 if WHOLE else 150)
def test_floats_are_those_of_the_reference(case: Resizing) -> None:
    assume(not is_told_apart(case))
    assert_as_expected(case, found(case))


@given(resizings(INTEGERS))
@settings(max_examples=500 if WHOLE else 60)
def test_integers_are_rounded_as_in_the_reference(case: Resizing) -> None:
    assume(not is_told_apart(case))
    assert_as_expected(case, found(case))


@given(resizings(("float32", "float16", "uint8", "int64")))
def test_kernels_compute_the_same(case: Resizing) -> None:
    assume(not is_told_apart(case))
    assert_as_expected(case, found(case, "c"))


@given(resizings(("float64",)))
@settings(max_examples=500 if WHOLE else 40)
def test_gradients_are_slopes(case: Resizing) -> None:
    fixed = replace(case, fed=False)
    assert check(fixed.model(), [fixed.array()], [found(fixed)])


# Where the reference has no say


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


def test_what_the_reference_lacks_is_as_in_onnxruntime(tmp_path: Path) -> None:
    cases = [(case.model().SerializeToString(), case.inputs()) for case in OF_ONNXRUNTIME]
    for case, wanted in zip(OF_ONNXRUNTIME, answers(cases, tmp_path), strict=True):
        assert isinstance(wanted, dict), (case, wanted)
        np.testing.assert_allclose(
            found(case), wanted["y"], rtol=1e-5, atol=1e-5, err_msg=str(case)
        )
