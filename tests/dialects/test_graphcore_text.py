"""Tests printing and parsing of graphcore operations, exact to the last bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp, StringAttr, f32
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError, VerifyException

from popgraph.dialects import graphcore as gc
from popgraph.passes.base import Compilation
from tests.dialects.graphcore_run import Sample, build

X = np.zeros((2, 3), np.float32)
W = np.zeros((4, 3), np.float32)


def line(op: Any, *operands: Any, **properties: Any) -> str:
    """The line of the operation in a printed module."""
    text = str(build(Sample(op, operands, properties)).module())
    return next(line.strip() for line in text.splitlines() if "graphcore." in line)


LINES = [
    (
        line(gc.AddOp, X, X),
        "%2 = graphcore.add %0, %1 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
    ),
    (
        line(gc.ReduceSumOp, X, axes=(0,), keepdims=True),
        "%1 = graphcore.reduce_sum %0 {axes = [0], keepdims = true} : "
        "(tensor<2x3xf32>) -> tensor<1x3xf32>",
    ),
    (
        line(gc.CompareOp, X, X, predicate="lt"),
        '%2 = graphcore.compare %0, %1 {predicate = "lt"} : '
        "(tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>",
    ),
    (
        line(gc.LeakyReluOp, X, alpha=0.01),
        "%1 = graphcore.leaky_relu %0 {alpha = 1.000000e-02} : "
        "(tensor<2x3xf32>) -> tensor<2x3xf32>",
    ),
    (
        line(gc.IotaOp, shape=(2, 3), axis=1, dtype=f32),
        "%0 = graphcore.iota {shape = [2, 3], axis = 1, dtype = f32} : () -> tensor<2x3xf32>",
    ),
    (
        line(gc.ConcatOp, [X, W], axis=0),
        "%2 = graphcore.concat %0, %1 {axis = 0} : "
        "(tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<6x3xf32>",
    ),
]


@pytest.mark.parametrize(("written", "expected"), LINES)
def test_the_text_of_operations(written: str, expected: str) -> None:
    assert written == expected


def reread(module: ModuleOp) -> ModuleOp:
    again = Parser(Compilation(), str(module)).parse_module()
    again.verify()
    assert again.is_structurally_equivalent(module)
    assert str(again) == str(module)
    return again


@given(st.floats())
def test_every_float_is_read_back(number: float) -> None:
    module = build(Sample(gc.LeakyReluOp, [X], {"alpha": number})).module()
    (op,) = (op for op in reread(module).walk() if isinstance(op, gc.LeakyReluOp))
    back = op.alpha.value.data
    assert back == number or (math.isnan(back) and math.isnan(number))
    assert math.copysign(1, back) == math.copysign(1, number) or math.isnan(number)


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_integer_is_read_back(number: int) -> None:
    options = {"low": (1, 0), "high": (0, 0), "interior": (0, 0), "value": number}
    module = build(Sample(gc.PadOp, [X.astype(np.int64)], options)).module()
    (op,) = (op for op in reread(module).walk() if isinstance(op, gc.PadOp))
    assert op.fill == number


def test_foreign_attributes_are_read_back() -> None:
    built = build(Sample(gc.AddOp, [X, X]))
    built.op.attributes["pipeline.stage"] = StringAttr("first")
    module = built.module()
    assert 'attributes {pipeline.stage = "first"}' in str(module)
    reread(module)


@pytest.mark.parametrize(
    "text",
    [
        "graphcore.add %x : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>",
        "graphcore.neg %x (tensor<2xf32>) -> tensor<2xf32>",
        "graphcore.neg %x {3 = 4} : (tensor<2xf32>) -> tensor<2xf32>",
        "graphcore.softmax %x {axis = [1} : (tensor<2xf32>) -> tensor<2xf32>",
        "graphcore.softmax %x {axis = } : (tensor<2xf32>) -> tensor<2xf32>",
        "graphcore.softmax %x : (tensor<2xf32>) -> tensor<2xf32>",
        "graphcore.softmax %x {axis = 0.5} : (tensor<2xf32>) -> tensor<2xf32>",
        "graphcore.softmax %x {axis = 0, spice = 1} : (tensor<2xf32>) -> tensor<2xf32>",
        "graphcore.neg %x : (tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>)",
        "graphcore.neg %x : (tensor<2xf32>) -> f32",
        "graphcore.neg %x, %x : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>",
        "graphcore.reduce_sum %x {axes = [0], keepdims = 1} : (tensor<2xf32>) -> tensor<f32>",
    ],
)
def test_wrong_text_is_refused(text: str) -> None:
    source = f"""
        pg.graph @main inputs [#pg.bytes<"x">] {{
        ^bb0(%x: tensor<2xf32>):
          %y = {text}
          pg.return []
        }}"""
    with pytest.raises((ParseError, VerifyException)):
        Parser(Compilation(), source).parse_module().verify()
