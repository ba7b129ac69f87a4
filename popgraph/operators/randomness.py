"""
Random operators: Dropout, RandomUniform, RandomNormal, Multinomial, Bernoulli.

Each has a random stream of its own, seeded by the run or by its `seed` attribute.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import element_types
from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand
from popgraph.dialects.onnx.record import Conflicts
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.view import NodeView
from popgraph.dialects.program import constant_array
from popgraph.operators.arithmetic import cast
from popgraph.operators.complaints import of_rank, one_element, positive, wrong_sizes
from popgraph.operators.movement import reshaped
from popgraph.operators.node import Node
from popgraph.operators.record import (
    DRAWN,
    GRAPHCORE,
    Lowered,
    follows_data_sizes,
    lowers,
    requires,
    without_gradient,
)
from popgraph.support import dtypes
from popgraph.support.dtypes import DType
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import Shape, broadcast


@dataclass(frozen=True)
class Source:
    """The random state of a node: [seed, step], and an iterator of unused streams."""

    state: Operand
    streams: Iterator[int]

    @staticmethod
    def of(node: Node) -> Source:
        """Nodes of equal `seed` attributes draw the same numbers, whatever the session's seed."""
        state = node.lowering.seed()
        if not node.has("seed"):
            return Source(state, node.lowering.streams)
        seed = np.array(node.real("seed"), np.float64).view(np.int64)
        step = gc.MulOp(state, node.literal(np.array([0, 1], np.int64)))
        own = gc.AddOp(step, node.literal(np.array([seed, 0], np.int64)))
        return Source(own, count(gc.OWN_STREAMS))

    def uniform(self, shape: Shape, dtype: DType) -> Operand:
        kind = element_types.to_ir(dtype)
        stream = next(self.streams)
        return gc.RandomUniformOp(self.state, shape=shape, dtype=kind, stream=stream)

    def dropout(self, x: Operand, ratio: float) -> gc.DropoutOp:
        return gc.DropoutOp(x, self.state, ratio=ratio, stream=next(self.streams))


@requires("Dropout")
def require_dropout(node: NodeView) -> Conflicts:
    yield from one_element(node, 1)
    yield from one_element(node, 2)
    ratio = node.elements_of(1)
    if ratio is not None and ratio.size and not 0 <= float(ratio.reshape(-1)[0]) < 1:
        yield TypeConflict(f"`ratio` is {ratio.reshape(-1)[0]}", "it must be in [0, 1)")


@lowers("Dropout", structural=[2])
def dropout(node: Node) -> Lowered:
    """Training drops elements, unless an option, an attribute or an input disables it."""
    ratio: float | None = node.real("ratio", 0.5)
    training = node.lowering.drops and not node.integer("is_test")
    given = node.optional(1)
    if node.version >= 12:
        known = np.array(0.5) if given is None else constant_array(given, node.lowering.weights)
        ratio = None if known is None else float(known.item())
        if node.optional(2) is not None:
            training = bool(node.array(2, "training_mode").item())
    result: Operand
    mask: Operand
    if training and ratio is None:
        assert given is not None, "an unknown ratio is an input"
        result, mask = _dropped(node, given)
    elif training and ratio:
        result, mask = Source.of(node).dropout(node[0], ratio).results
    else:
        result = node[0]
        mask = gc.BroadcastOp(node.literal(np.array(True)), shape=node.shape)
    if not node.wants(1):
        return [result]
    return [result, mask if node.version >= 10 else cast(mask, node.dtype)]


def _dropped(node: Node, ratio: SSAValue) -> tuple[Operand, Operand]:
    """
    Dropout by a ratio that is only known at run time, and its mask.

    The ratio has no gradient, even if it is a weight that the host may write.
    """
    single, wide = dtypes.BY_NAME["f32"], _drawn_in(node.dtype)
    share = gc.DetachOp(reshaped(ratio, ())).result
    kept = gc.CompareOp(Source.of(node).uniform(node.shape, single), cast(share, single), "ge")
    one, taken = node.scalar(1.0, wide), cast(share, wide)
    # A ratio of 1 scales by 1 instead of infinity: 0 times infinity is NaN.
    rest = gc.WhereOp(gc.CompareOp(taken, one, "lt"), gc.SubOp(one, taken), one)
    scale = gc.DivOp(one, rest)
    scaled = gc.MulOp(node[0], cast(scale, node.dtype))
    return gc.WhereOp(kept, scaled, node.scalar(0.0)), kept


@lowers("ShapedDropout", domain=GRAPHCORE)
def shaped_dropout(node: Node) -> Lowered:
    """Dropout with a mask of `shape` that broadcasts to the input."""
    ratio = node.real("ratio", 0.5)
    shape = node.integers("shape")
    if broadcast(node.shape, shape) != node.shape:
        raise TypeMismatchError(
            f"`shape` {list(shape)} does not broadcast to the input's {list(node.shape)}"
        )
    if not node.lowering.drops or not ratio:
        return node[0]
    ones = gc.BroadcastOp(node.scalar(1.0), shape=shape)
    return gc.MulOp(node[0], Source.of(node).dropout(ones, ratio).results[0])


# Random tensors


@requires("RandomNormal", "RandomUniform")
def require_random(node: NodeView) -> Conflicts:
    yield from wrong_sizes(node.given_integers("shape") or [])


def _kind(node: Node) -> tuple[Shape, DType]:
    """The shape and element type of the result; by default the input's, if any."""
    if len(node):
        return node.shape, _element(node, node.dtype)
    return node.integers("shape"), _element(node, dtypes.BY_NAME["f32"])


def _element(node: Node, usual: DType) -> DType:
    number = node.integer("dtype")
    return dtypes.BY_ONNX[number] if number else usual


def _drawn_in(dtype: DType) -> DType:
    """The type to draw in: f32 for f16 and bf16, which have too few numbers in [0, 1)."""
    return dtype if dtype.name == "f64" else dtypes.BY_NAME["f32"]


@lowers("RandomUniform", "RandomUniformLike")
def random_uniform(node: Node) -> Lowered:
    shape, dtype = _kind(node)
    wide = _drawn_in(dtype)
    low, high = node.real("low", 0.0), node.real("high", 1.0)
    spread = gc.MulOp(Source.of(node).uniform(shape, wide), node.scalar(high - low, wide))
    return cast(gc.AddOp(spread, node.scalar(low, wide)), dtype)


@lowers("RandomNormal", "RandomNormalLike")
def random_normal(node: Node) -> Lowered:
    """Box-Muller: sqrt(-2 log u) * cos(2 pi v), of uniform u in (0, 1] and v in [0, 1)."""
    shape, dtype = _kind(node)
    wide = _drawn_in(dtype)
    mean, deviation = node.real("mean", 0.0), node.real("scale", 1.0)
    source = Source.of(node)
    above_zero = gc.SubOp(node.scalar(1.0, wide), source.uniform(shape, wide))
    radius = gc.SqrtOp(gc.MulOp(gc.LogOp(above_zero), node.scalar(-2.0, wide)))
    angle = gc.MulOp(source.uniform(shape, wide), node.scalar(2 * math.pi, wide))
    normal = gc.MulOp(gc.MulOp(radius, gc.CosOp(angle)), node.scalar(deviation, wide))
    return cast(gc.AddOp(normal, node.scalar(mean, wide)), dtype)


@requires("Multinomial")
def require_multinomial(node: NodeView) -> Conflicts:
    yield from of_rank(node, 0, 2)
    yield from positive(node, "sample_size")


@lowers("Multinomial")
def multinomial(node: Node) -> Lowered:
    """Inverse transform sampling: counts the cumulative weights that a uniform number passes."""
    count, (batch, classes) = node.integer("sample_size", 1), node.shape
    target, wide = _element(node, dtypes.BY_NAME["i32"]), _drawn_in(node.dtype)
    weights = gc.SoftmaxOp(cast(node[0], wide), axis=1)
    earlier = node.literal(np.triu(np.ones((classes, classes), wide.numpy)))
    sums = gc.MatMulOp(weights, earlier)
    total = gc.SliceOp(sums, starts=[0, classes - 1], sizes=[batch, 1], steps=[1, 1])
    drawn = gc.MulOp(Source.of(node).uniform((batch, count), wide), total)
    own, limits = reshaped(drawn, (batch, count, 1)), reshaped(sums, (batch, 1, classes))
    passed = gc.CompareOp(own, limits, predicate="ge")
    found = gc.ReduceSumOp(cast(passed, target), axes=(2,), keepdims=False)
    return gc.MinOp(found, node.scalar(classes - 1, target))


@lowers("Bernoulli")
def bernoulli(node: Node) -> Lowered:
    shape, target = _kind(node)
    wide = _drawn_in(node.dtype)
    drawn = Source.of(node).uniform(shape, wide)
    return cast(gc.CompareOp(drawn, cast(node[0], wide), predicate="lt"), target)


without_gradient("Bernoulli RandomNormalLike RandomUniformLike", DRAWN)

follows_data_sizes("Dropout")
