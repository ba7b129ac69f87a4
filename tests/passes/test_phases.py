"""
Tests lowering of gradients of strided convolutions: one convolution per phase, or one for all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import compose

from popgraph.backends.reference import evaluate
from popgraph.dialects import graphcore as gc
from popgraph.dialects import tile
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.to_structured import GraphcoreToStructured
from popgraph.support.arrays import Array
from popgraph.support.tuning import Tuning
from tests.checking import check_ir
from tests.dialects.graphcore_run import Sample, build
from tests.one_node import found, model

RUNTIME = pytest.importorskip("onnxruntime", reason="onnxruntime is what is compared with")
APART = Tuning(most_phases=10**6, least_channels=0)
TOGETHER = Tuning(most_phases=0)
Drawn = tuple[Array, Array, dict[str, Any]]


@st.composite
def transposed(draw: st.DrawFn, most_dilation: int = 3) -> Drawn:
    """Input, kernel and attributes of a ConvTranspose."""
    rank = draw(st.integers(1, 3))

    def numbers(low: int, high: int, count: int = rank) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    groups, space, kernel = draw(st.integers(1, 2)), numbers(1, 4), numbers(1, 5)
    strides, dilations = numbers(1, 4), numbers(1, most_dilation)
    extra = [min(one, stride - 1) for one, stride in zip(numbers(0, 3), strides, strict=True)]
    full = [
        stride * (size - 1) + dilation * (width - 1) + 1 + more
        for stride, size, dilation, width, more in zip(
            *(strides, space, dilations, kernel, extra), strict=True
        )
    ]
    low = [min(pad, size - 1) for pad, size in zip(numbers(0, 3), full, strict=True)]
    left = [size - before for size, before in zip(full, low, strict=True)]
    pads = low + [min(pad, size - 1) for pad, size in zip(numbers(0, 3), left, strict=True)]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    x = rng.integers(-4, 5, (2, 2 * groups, *space)).astype(np.float32)
    w = rng.integers(-4, 5, (2 * groups, draw(st.integers(1, 2)), *kernel)).astype(np.float32)
    options = {"strides": strides, "dilations": dilations, "pads": pads, "group": groups}
    return x, w, {**options, "output_padding": extra}


def as_gradient(x: Array, w: Array, options: dict[str, Any]) -> Sample:
    """The same ConvTranspose as the gradient of a convolution."""
    rank = x.ndim - 2
    low, high = options["pads"][:rank], options["pads"][rank:]
    sizes = [
        stride * (size - 1) + dilation * (width - 1) + 1 + more - before - behind
        for stride, size, dilation, width, more, before, behind in zip(
            *(options["strides"], x.shape[2:], options["dilations"], w.shape[2:]),
            *(options["output_padding"], low, high),
            strict=True,
        )
    ]
    shape = (x.shape[0], options["group"] * w.shape[1], *sizes)
    properties = {
        **{name: options[name] for name in ("strides", "dilations", "pads")},
        "groups": options["group"],
    }
    return Sample(gc.ConvInputGradOp, [x, w], {"shape": shape, **properties})


@pytest.mark.parametrize("tuning", [APART, TOGETHER], ids=["separate", "combined"])
@given(transposed())
def test_fuzz_phases_of_strided_gradients(tuning: Tuning, drawn: Drawn) -> None:
    """Integers, so that all results are exact."""
    built = build(as_gradient(*drawn))
    (expected,) = built.op.evaluate(*built.arrays)
    module = built.module()
    GraphcoreToStructured(tuning).run(Compilation(), module)
    check_ir(module)
    inputs = {f"x{at}": array for at, array in enumerate(built.arrays)}
    outputs, _ = evaluate(module, inputs, Compilation().weights)
    np.testing.assert_array_equal(outputs["y0"], expected)


def contractions(
    tuning: Tuning, channels: int, stride: int, windows: int = 3
) -> list[tile.ReduceOp]:
    """The contractions of a convolution's gradient whose windows are two strides wide."""
    x = np.zeros((1, 2, windows, windows), np.float32)
    w = np.zeros((2, channels, 2 * stride, 2 * stride), np.float32)
    attributes = {"strides": [stride] * 2, "dilations": [1, 1], "pads": [0] * 4}
    sample = as_gradient(x, w, {**attributes, "group": 1, "output_padding": [0, 0]})
    module = build(sample).module()
    GraphcoreToStructured(tuning).run(Compilation(), module)
    return [op for op in module.walk() if tile.is_contraction(op)]


def test_phases_have_no_multiplications_by_zero() -> None:
    """Each of the four phases of a 4x4 kernel has 2x2 taps."""
    found = contractions(Tuning(), 32, 2)
    assert [op.domain.data for op in found] == [(1, 32, 4, 4, 2, 2, 2)] * 4


@pytest.mark.parametrize(("channels", "stride"), [(3, 2), (32, 5)])
def test_phases_of_few_channels_are_one_convolution(channels: int, stride: int) -> None:
    found = contractions(Tuning(), channels, stride)
    domain = (1, channels * stride * stride, 4, 4, 2, 2, 2)
    assert [op.domain.data for op in found] == [domain]


@pytest.mark.parametrize(
    ("channels", "windows", "count"),
    [(1, 31, 1), (3, 14, 1), (3, 19, 1), (3, 31, 4), (4, 31, 1), (7, 31, 4)],
)
def test_phases_of_few_channels_with_long_rows_are_separate(
    channels: int, windows: int, count: int
) -> None:
    """With three channels, four phases in one convolution leave lanes empty; with four, none."""
    assert len(contractions(Tuning(), channels, 2, windows)) == count


@given(transposed(most_dilation=2))
def test_fuzz_conv_transpose_is_that_of_onnxruntime(drawn: Drawn) -> None:
    x, w, attributes = drawn
    inputs = {"x": x, "w": w}
    proto = model("ConvTranspose", inputs, **attributes)
    np.testing.assert_array_equal(found(proto, inputs)["y"], of_onnxruntime(proto, inputs)["y"])


@settings(max_examples=3)  # The first example is the simplest.
@given(st.lists(transposed(most_dilation=2), min_size=16, max_size=16))
def test_conv_transpose_in_c_is_that_of_onnxruntime(drawn: list[Drawn]) -> None:
    """Many in one program, on integers, so that all results are exact."""
    graph, inputs = onnx.GraphProto(name="many"), dict[str, Array]()
    for number, (x, w, attributes) in enumerate(drawn):
        proto = model("ConvTranspose", {"x": x, "w": w}, **attributes)
        named = compose.add_prefix(proto, f"{number}/").graph
        for field in ("node", "input", "output"):
            getattr(graph, field).extend(getattr(named, field))
        inputs |= {f"{number}/x": x, f"{number}/w": w}
    whole = onnx.helper.make_model(graph, opset_imports=proto.opset_import, ir_version=9)
    expected, computed = of_onnxruntime(whole, inputs), found(whole, inputs, "c")
    for name, value in expected.items():
        np.testing.assert_array_equal(computed[name], value)


def of_onnxruntime(proto: onnx.ModelProto, inputs: dict[str, Array]) -> dict[str, Array]:
    session = RUNTIME.InferenceSession(proto.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))
