"""Tests the error messages for shapes, element types and axes that do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import IndexType, TensorType, f32, i64
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects import element_types
from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import GraphcoreOp
from popgraph.passes.base import Compilation
from popgraph.support import dtypes
from popgraph.support.errors import TypeMismatchError
from tests.dialects.graphcore_run import Sample, build


def zeros(*shape: int, dtype: str = "f32") -> Any:
    return np.zeros(shape, dtypes.BY_NAME[dtype].numpy)


PLAIN_CONV = {"strides": (1, 1), "dilations": (1, 1), "pads": (0,) * 4, "groups": 1}
PLAIN_POOL = {
    "kernel": (2, 2),
    "strides": (2, 2),
    "dilations": (1, 1),
    "pads": (0,) * 4,
    "sizes": (2, 2),
}
X, W = zeros(1, 4, 4, 4), zeros(2, 4, 3, 3)

CASES: list[tuple[type[GraphcoreOp], Sequence[Any], dict[str, Any], str]] = [
    (
        gc.AddOp,
        [zeros(2, 3), zeros(2, 4)],
        {},
        "shapes 2x3 and 2x4 do not broadcast together\n"
        "  try: aligned from the right, dimensions must be equal, or 1",
    ),
    (
        gc.AddOp,
        [zeros(2), zeros(2, dtype="f64")],
        {},
        "add needs operands of one element type, not f32 and f64\n  try: cast one of them first",
    ),
    (
        gc.AddOp,
        [zeros(2, dtype="bool"), zeros(2, dtype="bool")],
        {},
        "add needs float or integer elements, not bool\n  try: cast the operand first",
    ),
    (
        gc.ExpOp,
        [zeros(2, dtype="i32")],
        {},
        "exp needs float elements, not i32\n  try: cast the operand first",
    ),
    (
        gc.NotOp,
        [zeros(2)],
        {},
        "not needs bool or integer elements, not f32\n  try: cast the operand first",
    ),
    (
        gc.CompareOp,
        [zeros(2), zeros(2)],
        {"predicate": "near"},
        "compare does not support predicate 'near'\n  try: use one of eq, ne, lt, le, gt, ge",
    ),
    (
        gc.WhereOp,
        [zeros(2), zeros(2), zeros(2)],
        {},
        "where needs a bool condition, not f32\n  try: compare it with zero first",
    ),
    (
        gc.CastOp,
        [zeros(2, dtype="c64")],
        {"to": f32},
        "cast needs real elements, not c64\n  try: cast the operand first",
    ),
    (gc.CastOp, [zeros(2)], {"to": IndexType()}, "cast does not support element type index"),
    (
        gc.ReduceSumOp,
        [zeros(2, 3)],
        {"axes": (2,), "keepdims": False},
        "reduce_sum has no axis 2 in a tensor of rank 2\n  try: axes count from 0 to 1",
    ),
    (
        gc.ReduceSumOp,
        [zeros()],
        {"axes": (0,), "keepdims": False},
        "reduce_sum has no axis 0 in a tensor of rank 0\n  try: a scalar has no axes",
    ),
    (
        gc.ReduceSumOp,
        [zeros(2, 3)],
        {"axes": (1, 1), "keepdims": False},
        "reduce_sum has a duplicate axis in [1, 1]\n  try: list every axis once",
    ),
    (
        gc.ReduceMaxOp,
        [zeros(0, 3)],
        {"axes": (0,), "keepdims": True},
        "reduce_max has no value along axes [0] of a tensor of shape 0x3\n"
        "  try: there must be at least one element to reduce",
    ),
    (
        gc.ReduceMeanOp,
        [zeros(0, 3).astype(np.int32)],
        {"axes": (0,), "keepdims": True},
        "reduce_mean has no value along axes [0] of a tensor of shape 0x3\n"
        "  try: there must be at least one element to reduce",
    ),
    (
        gc.ArgTopKOp,
        [zeros(2, 3)],
        {"axis": 1, "count": 4},
        "arg_top_k cannot choose 4 of the 3 elements along axis 1\n"
        "  try: choose between 0 and 3 elements",
    ),
    (
        gc.ArgMaxOp,
        [zeros(3, 0)],
        {"axis": 1, "keepdims": False},
        "arg_max has no value along axis 1 of a tensor of shape 3x0\n"
        "  try: there must be at least one element to choose from",
    ),
    (
        gc.MatMulOp,
        [zeros(2, 3), zeros(2, 3)],
        {},
        "mat_mul cannot multiply 2x3 by 2x3\n"
        "  try: the last dimension of lhs must equal the second-to-last of rhs",
    ),
    (
        gc.MatMulOp,
        [zeros(3), zeros(3, 2)],
        {},
        "mat_mul cannot multiply 3 by 3x2\n"
        "  try: the last dimension of lhs must equal the second-to-last of rhs",
    ),
    (
        gc.ConvOp,
        [zeros(4, 4), W],
        PLAIN_CONV,
        "conv cannot slide weights 2x4x3x3 over 4x4\n"
        "  try: both need the same rank, 3 or more: batch, channels, space",
    ),
    (
        gc.ConvOp,
        [X, W],
        {**PLAIN_CONV, "groups": 3},
        "conv with 3 groups cannot take 4 channels with weights 2x4x3x3\n"
        "  try: channels must be groups times the weights' second dimension, "
        "and groups must divide their first",
    ),
    (
        gc.ConvOp,
        [X, W],
        {**PLAIN_CONV, "dilations": (2, 2)},
        "conv cannot fit a kernel of 3x3 into 4x4\n"
        "  try: increase pads, or reduce dilations or the kernel",
    ),
    (gc.ConvOp, [X, W], {**PLAIN_CONV, "pads": (1, 1)}, "conv needs 4 values in pads, not 2"),
    (
        gc.ConvOp,
        [X, W],
        {**PLAIN_CONV, "strides": (0, 1)},
        "conv needs strides, dilations and groups of at least 1 and pads of at least 0",
    ),
    (
        gc.ConvInputGradOp,
        [zeros(1, 2, 3, 3), W],
        {**PLAIN_CONV, "shape": (1, 4, 4, 4)},
        "conv_input_grad needs a gradient of shape 1x2x2x2, not 1x2x3x3",
    ),
    (
        gc.MaxPoolOp,
        [X],
        {**PLAIN_POOL, "sizes": (3, 2)},
        "max_pool cannot place 3x2 windows of 2x2 on 4x4\n"
        "  try: every window must hold at least one element; pad less or use fewer windows",
    ),
    (
        gc.MaxPoolOp,
        [zeros(4, 4)],
        PLAIN_POOL,
        "max_pool needs batch, channels and space, not a tensor of shape 4x4",
    ),
    (
        gc.AveragePoolOp,
        [X],
        {**PLAIN_POOL, "kernel": (2,), "include_pad": False},
        "average_pool needs 2 values in kernel, not 1",
    ),
    (
        gc.ReshapeOp,
        [zeros(2, 3)],
        {"shape": (4,)},
        "reshape cannot give 2x3 the shape 4\n  try: the number of elements, 6, must not change",
    ),
    (
        gc.ReshapeOp,
        [zeros(2, 3)],
        {"shape": (-2, -3)},
        "reshape cannot give 2x3 the shape -2x-3\n"
        "  try: the number of elements, 6, must not change",
    ),
    (
        gc.TransposeOp,
        [zeros(2, 3)],
        {"perm": (0, 0)},
        "transpose cannot permute 2 axes by [0, 0]\n  try: perm must list every axis once",
    ),
    (
        gc.BroadcastOp,
        [zeros(2, 3)],
        {"shape": (3,)},
        "broadcast cannot stretch 2x3 to 3\n"
        "  try: aligned from the right, dimensions must be equal, or 1 in the operand",
    ),
    (
        gc.ConcatOp,
        [[zeros(2, 3), zeros(3, 3)]],
        {"axis": 1},
        "concat cannot concatenate 2x3 and 3x3 along axis 1\n"
        "  try: all other dimensions must be equal",
    ),
    (gc.ConcatOp, [[]], {"axis": 0}, "concat needs at least one operand"),
    (
        gc.SliceOp,
        [zeros(5)],
        {"starts": (3,), "sizes": (3,), "steps": (1,)},
        "slice reads elements 3 to 5 of axis 0, which has 5",
    ),
    (
        gc.SliceOp,
        [zeros(5)],
        {"starts": (0,), "sizes": (3,), "steps": (0,)},
        "slice cannot step by 0 along axis 0",
    ),
    (
        gc.PadOp,
        [zeros(5)],
        {"low": (-1,), "high": (0,), "interior": (0,), "value": 0.0},
        "pad cannot add fewer than 0 elements\n  try: slice to remove elements",
    ),
    (
        gc.GatherOp,
        [zeros(0, 3), zeros(2, dtype="i64")],
        {"axis": 0},
        "gather cannot select from the empty axis 0 of 0x3",
    ),
    (
        gc.GatherOp,
        [zeros(3), zeros(2)],
        {"axis": 0},
        "gather needs integer elements, not f32\n  try: cast the operand first",
    ),
    (
        gc.GatherGradOp,
        [zeros(3, 2), zeros(2, dtype="i64")],
        {"axis": 0, "size": 4},
        "gather_grad needs a gradient of shape 2x2, not 3x2",
    ),
    (
        gc.IotaOp,
        [],
        {"shape": (3,), "axis": 0, "dtype": element_types.BY_NAME["bool"]},
        "iota produces float or integer elements, not bool",
    ),
    (
        gc.RandomUniformOp,
        [zeros(1, dtype="i64")],
        {"shape": (3,), "dtype": f32, "stream": 0},
        "random_uniform needs a state of seed and step, tensor<2xi64>, not tensor<1xi64>",
    ),
    (
        gc.SoftmaxGradOp,
        [zeros(2, 3), zeros(3, 2)],
        {"axis": 0},
        "softmax_grad needs a gradient of shape 2x3, not 3x2",
    ),
    (
        gc.LayerNormOp,
        [zeros(2, 3), zeros(2), None],
        {"axis": 1, "epsilon": 1e-5},
        "layer_norm cannot broadcast a scale or bias of 2 over 2x3\n"
        "  try: give them the shape of the normalized axes",
    ),
    (
        gc.BatchNormTrainOp,
        [zeros(2, 3), zeros(2), zeros(3)],
        {"epsilon": 1e-5},
        "batch_norm_train needs one number per channel, not 2 for 2x3",
    ),
    (
        gc.DropoutOp,
        [zeros(2, 3), zeros(2, dtype="i64")],
        {"ratio": 1.0, "stream": 0},
        "dropout cannot drop a share of 1.0. Please use a value in the interval [0,1)",
    ),
    (
        gc.NllLossOp,
        [zeros(2, 4, 3), zeros(2, 5, dtype="i32")],
        {"reduction": "mean", "log_probabilities": False},
        "nll_loss needs labels of shape 2x4, not 2x5\n"
        "  try: pass one label for every row of probabilities",
    ),
    (
        gc.L1LossOp,
        [zeros(2)],
        {"scale": 1.0, "reduction": "median"},
        'l1_loss does not support reduction \'median\'\n  try: use one of "mean", "sum", "none"',
    ),
]


@pytest.mark.parametrize(
    ("op", "operands", "properties", "message"), CASES, ids=[case[3][:60] for case in CASES]
)
def test_illegal_operands_and_properties_are_refused(
    op: type[GraphcoreOp], operands: Sequence[Any], properties: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeMismatchError) as caught:
        build(Sample(op, operands, properties))
    assert str(caught.value) == message


TEXTS = [
    (
        "graphcore.neg %x : (tensor<2xf32>) -> tensor<3xf32>",
        "the result of graphcore.neg is tensor<2xf32>, not tensor<3xf32>",
    ),
    (
        "graphcore.neg %x : (tensor<2xf32>) -> tensor<?xf32>",
        "graphcore.neg requires static shapes, not tensor<?xf32>",
    ),
    (
        "graphcore.cast %x {to = index} : (tensor<2xf32>) -> tensor<2xindex>",
        "graphcore.cast does not support elements of tensor<2xindex>",
    ),
    (
        "graphcore.reshape %x {shape = [3]} : (tensor<2xf32>) -> tensor<3xf32>",
        "reshape cannot give 2 the shape 3",
    ),
]


@pytest.mark.parametrize(("text", "message"), TEXTS)
def test_text_with_wrong_types_does_not_verify(text: str, message: str) -> None:
    source = f"""
        pg.graph @main inputs [#pg.bytes<"x">] {{
        ^bb0(%x: tensor<2xf32>):
          %y = {text}
          pg.return []
        }}"""
    module = Parser(Compilation(), source).parse_module()
    with pytest.raises(VerifyException) as caught:
        module.verify()
    assert message in str(caught.value)


def test_pad_keeps_large_integers_exact() -> None:
    built = build(
        Sample(
            gc.PadOp,
            [zeros(1, dtype="i64")],
            {"low": (1,), "high": (0,), "interior": (0,), "value": 2**62 + 1},
        )
    )
    (result,) = built.op.evaluate(*built.arrays)
    assert result.tolist() == [2**62 + 1, 0]
    assert built.op.results[0].type == TensorType(i64, [2])
