"""Scores of ai.onnx.ml's classifiers and regressors: post transforms and labels."""

from __future__ import annotations

import math

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.operators.arithmetic import cast
from popgraph.operators.node import Node
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.errors import TypeMismatchError

NAMES = "classlabels_strings"
F32 = dtypes.BY_NAME["f32"]
F64 = dtypes.BY_NAME["f64"]
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""The post transforms, in TreeEnsemble's numbering."""

NEARLY_ZERO = 1e-7
"""SOFTMAX_ZERO treats scores of at most this size as zero."""

WINITZKI = 0.147
"""The constant of Winitzki's approximation of the inverse error function."""


def computed_in(node: Node) -> DType:
    """f64 for f64 inputs, f32 for all others."""
    return F64 if node.dtype == F64 else F32


def rows_of(node: Node) -> SSAValue:
    """The first input as a matrix [samples, features], in the type of the computation."""
    value = cast(node[0], computed_in(node))
    if node.rank not in (1, 2):
        raise TypeMismatchError(
            f"the input of {node.op.op_type} has {node.rank} axes",
            hint="give [samples, features], or the features of one sample",
        )
    return value if node.rank == 2 else gc.ReshapeOp(value, shape=(1, *node.shape)).result


def reals(node: Node, name: str) -> Array:
    """A list attribute as f32; empty if absent."""
    return np.array(node.reals(name), np.float32)


def constant(node: Node, array: Array | float, like: Operand) -> SSAValue:
    """A literal in the element type of another value."""
    return node.literal(np.asarray(array).astype(dtype_of(like).numpy))


# Post transforms


def transform_of(node: Node) -> str:
    return node.text("post_transform", "NONE")


def transformed(node: Node, scores: SSAValue, transform: str = "") -> SSAValue:
    """Scores [samples, classes] after a post transform, by default the node's."""
    match transform or transform_of(node):
        case "NONE":
            return scores
        case "SOFTMAX":
            return gc.SoftmaxOp(scores, axis=1).result
        case "LOGISTIC":
            return gc.SigmoidOp(scores).result
        case "SOFTMAX_ZERO":
            return _softmax_zero(node, scores)
        case "PROBIT":
            return _probit(node, scores)
        case other:
            words = ", ".join(TRANSFORMS)
            raise node.unsupported(f"the post transform {other!r}", f"use one of {words}")


def _softmax_zero(node: Node, scores: SSAValue) -> SSAValue:
    """Softmax over nonzero scores; scores of zero stay zero."""
    largest = gc.ReduceMaxOp(scores, axes=[1], keepdims=True)
    small = constant(node, NEARLY_ZERO, scores)
    is_some = gc.CompareOp(gc.AbsOp(scores), small, predicate="gt")
    zero = constant(node, 0, scores)
    powers = gc.WhereOp(is_some, gc.ExpOp(gc.SubOp(scores, largest)), zero)
    total = gc.ReduceSumOp(powers, axes=[1], keepdims=True)
    none = gc.CompareOp(total, zero, predicate="eq")
    one = constant(node, 1, scores)
    others = gc.MulOp(scores, gc.ExpOp(gc.NegOp(largest)))
    values = gc.WhereOp(is_some, powers, others)
    return gc.DivOp(values, gc.WhereOp(none, one, total)).result


def _probit(node: Node, scores: SSAValue) -> SSAValue:
    """`sqrt(2) * erfinv(2 * score - 1)`, with Winitzki's approximation of erfinv."""

    def number(value: float) -> SSAValue:
        return constant(node, value, scores)

    x = gc.SubOp(gc.MulOp(scores, number(2)), number(1))
    log = gc.LogOp(gc.MulOp(gc.SubOp(number(1), x), gc.AddOp(number(1), x)))
    half = gc.AddOp(number(2 / (math.pi * WINITZKI)), gc.MulOp(log, number(0.5)))
    rest = gc.MulOp(log, number(1 / WINITZKI))
    root = gc.SqrtOp(gc.SubOp(gc.SqrtOp(gc.SubOp(gc.MulOp(half, half), rest)), half))
    is_low = gc.CompareOp(x, number(0), predicate="lt")
    return gc.MulOp(gc.WhereOp(is_low, gc.NegOp(root), root), number(math.sqrt(2))).result


# Labels


def labels_of(node: Node, places: Operand, classes: int, name: str) -> SSAValue:
    """The integer labels of the classes at these indices."""
    labels = np.array(node.integers(name) or range(classes), np.int64)
    if len(labels) < classes:
        raise TypeMismatchError(
            f"{node.op.op_type} has {len(labels)} labels for {classes} classes",
            hint="name every class",
        )
    wide = cast(places, dtypes.BY_NAME["u64"])
    return gc.GatherOp(node.literal(labels), wide, axis=0).result


def best(scores: SSAValue) -> SSAValue:
    """The index of the largest score of each sample; ties go to the first."""
    return gc.ArgMaxOp(scores, axis=1, keepdims=False).result


def pair_of(node: Node, score: SSAValue, is_share: bool) -> SSAValue:
    """
    The scores of two classes from that of the positive one, like onnxruntime.

    The negative score is 1 - score if `is_share` (a probability), else -score. SOFTMAX is not
    applied.
    """
    transform = transform_of(node)
    if transform == "PROBIT":
        raise node.unsupported(
            "the post transform PROBIT of one score for two classes",
            "give the scores of both classes; onnxruntime leaves one of them undefined",
        )
    if transform == "LOGISTIC":
        return two_columns(gc.SigmoidOp(gc.NegOp(score)), gc.SigmoidOp(score))
    if is_share:
        return two_columns(gc.SubOp(constant(node, 1, score), score), score)
    return two_columns(gc.NegOp(score), score)


def two_columns(first: Operand, second: Operand) -> SSAValue:
    """Concatenates the scores of the negative and of the positive class."""
    return gc.ConcatOp([first, second], axis=1).result


def one_column(scores: SSAValue) -> SSAValue:
    """[samples, 1] as [samples]."""
    return gc.ReshapeOp(scores, shape=shape_of(scores)[:1]).result
