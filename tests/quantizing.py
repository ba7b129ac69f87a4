"""Draws nodes of QuantizeLinear and DequantizeLinear, and runs them in ONNX's reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.casts import cast

REALS = ("f32", "f16", "bf16")
WHOLE = ("u8", "i8", "u16", "i16", "u4", "i4", "u2", "i2")
EIGHTS = ("f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz")
SMALL = ("f4e2m1", "f6e2m3", "f6e3m2")
NARROW = (*WHOLE, *EIGHTS, *SMALL)


@dataclass(frozen=True)
class Quantizing:
    """A node and its inputs, as plain data."""

    operator: str = "QuantizeLinear"
    shape: tuple[int, ...] = (2, 3)
    real: str = "f32"
    """The type of the unquantized side: a float type or i32."""
    scale: str = "f32"
    narrow: str = "u8"
    axis: int | None = None
    block: int = 0
    zero: bool = True
    attributes: tuple[tuple[str, int], ...] = ()
    opset: int = 28
    fed: bool = True
    """Whether scales and zero points are inputs of the model."""
    seed: int = 0

    @property
    def scales(self) -> tuple[int, ...]:
        """The shape of the scale."""
        if self.axis is None:
            return ()
        if not self.block:
            return (self.shape[self.axis],)
        axis = self.axis % len(self.shape)
        count = -(-self.shape[axis] // self.block)
        return (*self.shape[:axis], count, *self.shape[axis + 1 :])

    def arrays(self) -> dict[str, Array]:
        generator = np.random.default_rng(self.seed)
        # The reference turns an infinite quotient into an integer of any sign.
        halves_divide = {"f16", dtypes.BY_NAME["f16"].onnx} & {
            self.real,
            self.scale,
            *dict(self.attributes).values(),
        }
        least, most = (-2, 3) if halves_divide else (-4, 4)
        scale = cast(2.0 ** generator.uniform(least, 3, self.scales), _numpy("f32"))
        if self.scale == "i32":
            scale = generator.integers(1, 9, self.scales)
        given = {"s": cast(np.asarray(scale), _numpy(self.scale))}
        wide = generator.normal(size=self.shape) * 10.0 ** generator.uniform(0, most)
        halves = np.round(wide * 2) / 2 * generator.integers(0, 2, self.shape)
        given["x"] = cast(np.where(halves == 0, wide, halves), _numpy(self.real))
        if self.operator == "DequantizeLinear":
            given["x"] = elements(generator, self.narrow, self.shape)
        if self.zero:
            given["z"] = elements(generator, self.narrow, self.scales)
            ignored = "f4e2m1" if self.operator == "DequantizeLinear" else ""
            if self.narrow in (*EIGHTS, ignored):  # The reference refuses or ignores others.
                given["z"] = np.zeros_like(given["z"])
        return {name: given[name] for name in "xsz" if name in given}

    def node(self, prefix: str = "") -> onnx.NodeProto:
        attributes = {} if self.axis is None else {"axis": self.axis}
        if self.block:
            attributes["block_size"] = self.block
        attributes |= dict(self.attributes)
        if not self.zero and self.operator == "QuantizeLinear":
            attributes["output_dtype"] = dtypes.BY_NAME[self.narrow].onnx
        names = [prefix + name for name in self.arrays()]
        return helper.make_node(self.operator, names, [f"{prefix}y"], **attributes)


def _numpy(name: str) -> np.dtype[Any]:
    return dtypes.BY_NAME[name].numpy


def elements(generator: np.random.Generator, name: str, shape: Sequence[int]) -> Array:
    """Elements of a narrow type: all integers, but only small floats."""
    if dtypes.BY_NAME[name].is_float:
        return np.asarray(cast(generator.normal(size=shape), _numpy(name)))
    return np.asarray(cast(generator.integers(-(2**17), 2**17, shape), _numpy(name)))


def model_of(cases: Sequence[Quantizing]) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """One model of all cases, and its inputs."""
    constants, fed = dict[str, Array](), dict[str, Array]()
    for number, case in enumerate(cases):
        for name, array in case.arrays().items():
            (fed if case.fed or name == "x" else constants)[f"n{number}{name}"] = array
    (opset,) = {case.opset for case in cases}
    return model(
        [case.node(f"n{number}") for number, case in enumerate(cases)], fed, constants, opset
    ), fed


def model(
    nodes: Sequence[onnx.NodeProto],
    fed: Mapping[str, Array],
    constants: Mapping[str, Array],
    opset: int,
) -> onnx.ModelProto:
    def number(array: Array) -> int:
        return dtypes.from_numpy(array.dtype).onnx

    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, number(one), one.shape) for name, one in fed.items()],
        [helper.make_empty_tensor_value_info(name) for node in nodes for name in node.output],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def expected(made: onnx.ModelProto, fed: Mapping[str, Array]) -> list[Array]:
    """The results of ONNX's reference."""
    with np.errstate(all="ignore"):
        return [np.asarray(one) for one in ReferenceEvaluator(made).run(None, dict(fed))]


def assert_same(found: Array, wanted: Array, case: object) -> None:
    """Compares values exactly; all NaN are equal."""
    assert found.dtype == wanted.dtype, case
    numbers = [cast(one, np.dtype(np.float64)) for one in (found, wanted)]
    np.testing.assert_array_equal(*numbers, err_msg=str(case))


def _versions(case: Quantizing, opset: int) -> Quantizing:
    """The node with the attributes and types of an older version."""
    attributes = tuple(
        (name, value)
        for name, value in case.attributes
        if opset >= {"precision": 23, "saturate": 19, "output_dtype": 23}[name]
    )
    old = opset < 19
    return replace(
        case,
        attributes=attributes,
        opset=opset,
        axis=case.axis if opset >= 13 and (opset >= 21 or not case.block) else None,
        block=case.block if opset >= 21 else 0,
        scale="f32" if old else case.real if opset < 23 and case.real != "i32" else case.scale,
        real="f32" if old else case.real,
        zero=case.zero or opset < 21,
    )


@st.composite
def quantizings(draw: st.DrawFn, opset: int = 28, operator: str = "") -> Quantizing:
    """
    Nodes for which ONNX's text and its reference agree.

    They disagree for inputs and scales of two types: the text divides in the type of the scale.
    The reference has no DequantizeLinear before version 19.
    """
    both = ("QuantizeLinear", "DequantizeLinear")[: 1 if opset < 19 else 2]
    operator = operator or draw(st.sampled_from(both))
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)))
    axis = draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    block = 0 if axis is None else draw(st.sampled_from((0, 1, 2, 3, 9)))
    newest = {13: WHOLE[:2], 19: (*WHOLE[:2], *EIGHTS), 21: (*WHOLE[:6], *EIGHTS)}
    narrow = draw(st.sampled_from(newest.get(opset, NARROW)))
    attributes = dict[str, int]()
    if operator == "QuantizeLinear":
        real = draw(st.sampled_from((*REALS, "i32")))
        scale = real if real != "i32" or opset >= 23 else "f32"
        if real == "i32" and opset < 21:
            real = scale = "f32"
        if draw(st.booleans()):
            attributes["precision"] = dtypes.BY_NAME[draw(st.sampled_from(REALS))].onnx
        if draw(st.booleans()):
            attributes["saturate"] = draw(st.integers(0, 1))
    else:
        real, scale = "f32", draw(st.sampled_from((*REALS, "f8e8m0")))
        if opset < 24 and scale == "f8e8m0":
            scale = "f32"
        if scale == "f8e8m0" or draw(st.booleans()):
            attributes["output_dtype"] = dtypes.BY_NAME[draw(st.sampled_from(REALS))].onnx
    drawn = Quantizing(
        operator,
        shape,
        real,
        scale,
        narrow,
        axis,
        block,
        draw(st.booleans()),
        tuple(attributes.items()),
        fed=draw(st.booleans()),
        seed=draw(st.integers(0, 99)),
    )
    return _versions(drawn, opset) if opset < 28 else drawn
