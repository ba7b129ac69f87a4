"""
Softmaxes, and batch, instance, group, layer, local response and Lp normalization.

Statistics are accumulated in f32 or f64, from differences to the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import element_types
from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.graphcore.broadcasting import reshaped
from popgraph.dialects.onnx import OnnxOp
from popgraph.dialects.onnx.record import Conflicts
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.view import NodeView, PartialShape
from popgraph.dialects.program import VariableOp
from popgraph.operators.arithmetic import cast, computing
from popgraph.operators.complaints import at_least, in_range, of_shape, positive, stretches
from popgraph.operators.node import Node
from popgraph.operators.record import (
    GRAPHCORE,
    STEPS,
    Lowered,
    follows_data_sizes,
    lowers,
    requires,
    without_gradient,
)
from popgraph.support import dtypes, shapes
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import prod

I32 = element_types.BY_NAME["i32"]


# Softmaxes


@requires("Hardmax", "LogSoftmax", "Softmax")
def an_axis(node: NodeView) -> Conflicts:
    """Before version 13, softmaxes flatten all axes from `axis` on; `axis` may equal the rank."""
    yield from in_range("axis", [node.integer("axis")], node.rank_of(0), end=node.version < 13)


def _along_axis(node: Node, make: Callable[[Operand, int], Operand]) -> Lowered:
    axis = node.integer("axis")
    if node.version >= 13:
        return make(node[0], node.axis(axis))
    axis = axis + node.rank if axis < 0 else axis
    flat = reshaped(node[0], (prod(node.shape[:axis]), prod(node.shape[axis:])))
    return reshaped(make(flat, 1), node.shape)


lowers("Softmax")(lambda node: _along_axis(node, lambda x, axis: gc.SoftmaxOp(x, axis=axis)))
lowers("LogSoftmax")(lambda node: _along_axis(node, lambda x, axis: gc.LogSoftmaxOp(x, axis=axis)))


@lowers("Hardmax")
def hardmax(node: Node) -> Lowered:
    """1 at the first maximum or NaN, found by two reductions (max, then min), which vectorize."""

    def make(x: Operand, axis: int) -> Operand:
        largest = gc.ReduceMaxOp(x, axes=[axis], keepdims=True)
        is_nan = gc.CompareOp(x, x, predicate="ne")
        is_largest = gc.OrOp(gc.CompareOp(x, largest, predicate="eq"), is_nan)
        places = gc.IotaOp(shape=shape_of(x), axis=axis, dtype=I32)
        nowhere = node.literal(np.array(shape_of(x)[axis], np.int32))
        found = gc.WhereOp(is_largest, places, nowhere)
        first = gc.ReduceMinOp(found, axes=[axis], keepdims=True)
        return cast(gc.CompareOp(first, places, predicate="eq"), node.dtype)

    return _along_axis(node, make)


without_gradient("Hardmax", STEPS)


# Batches


@requires("BatchNormalization")
def channels_of_batches(node: NodeView) -> Conflicts:
    image = node.shape_of(0)
    if image is None or len(image) < 2:
        return
    channels: PartialShape = (image[1],)
    if node.version < 9 and not node.integer("spatial", 1):
        channels = image[1:]
    for index in range(1, 5):
        yield from of_shape(node, index, *channels)


@lowers("BatchNormalization")
@lowers("BatchNormalization", domain=GRAPHCORE)
def batch_normalization(node: Node) -> Lowered:
    epsilon = node.real("epsilon", 1e-5)
    if not (_is_training(node) or _is_trained(node)):
        # Gradients never train a running statistic; fed or computed statistics do have gradients.
        old = [gc.DetachOp(one) if _is_kept(one) else one for one in (node[3], node[4])]
        values = _channels(node, [node[0], node[1], node[2], *old], node.dtype)
        return [reshaped(gc.BatchNormOp(*values, epsilon=epsilon).result, node.shape)]
    values = _channels(node, [node[0], node[1], node[2]], computing(node))
    result, *statistics = gc.BatchNormTrainOp(*values, epsilon=epsilon).results
    mean, variance = (reshaped(value, shape_of(node[1])) for value in statistics)
    running = [_running(node, 3, mean), _running(node, 4, _running_variance(node, variance))]
    return [
        reshaped(cast(result, node.dtype), node.shape),
        *running,
        *(cast(value, node.dtype) for value in (mean, variance)),
    ]


def _channels(node: Node, values: Sequence[Operand], dtype: dtypes.DType) -> list[Operand]:
    """x and per-channel values, cast to `dtype`; without `spatial`, each element is a channel."""
    x, *numbers = (cast(value, dtype) for value in values)
    if node.integer("spatial", 1):
        return [x, *numbers]
    flat = (node.shape[0], prod(node.shape[1:]), 1)
    return [reshaped(x, flat), *(reshaped(value, (prod(shape_of(value)),)) for value in numbers)]


def _is_kept(value: SSAValue) -> bool:
    """Whether a value is a weight of the model, perhaps cast or reshaped."""
    while isinstance(value.owner, gc.CastOp | gc.ReshapeOp):
        value = value.owner.operands[0]
    return isinstance(value.owner, VariableOp)


def _is_training(node: Node) -> bool:
    """Whether the node says so: by its number of outputs before opset 14, by an attribute since."""
    if node.version >= 14:
        return bool(node.integer("training_mode"))
    statistics = any(node.wants(index) for index in range(1, node.output_count))
    return statistics and not node.integer("is_test")


def _is_trained(node: Node) -> bool:
    """
    Whether a node that an exporter wrote for inference is trained now.

    It is if its running statistics may change. Exceptions stay in inference mode: PopART's own
    operator, and nodes whose result only reaches the loss through Detach.
    """
    may_move = all(node.lowering.moves(node[index]) for index in (3, 4))
    return may_move and node.op.domain != GRAPHCORE and not _is_detached(node.op.results[0])


def _is_detached(value: SSAValue) -> bool:
    """Whether every use of a value ends in a Detach, so that no gradient reaches it."""
    readers = [use.operation for use in value.uses if isinstance(use.operation, OnnxOp)]
    return bool(readers) and all(
        reader.op_type == "Detach" or all(map(_is_detached, reader.results)) for reader in readers
    )


def _running_variance(node: Node, variance: Operand) -> Operand:
    # ONNX in training mode uses the biased variance of the batch. Nodes that PyTorch exported for
    # inference, and ai.graphcore's operator, use n / (n - 1) of it, as PyTorch does.
    as_torch = node.op.domain == GRAPHCORE or not _is_training(node)
    if not node.integer("unbiased_variance", int(as_torch)):
        return variance
    count = prod(node.shape) // prod(shape_of(node[1]))
    return gc.MulOp(variance, node.scalar(count / max(count - 1, 1), dtype_of(variance)))


def _running(node: Node, index: int, batch: Operand) -> Operand:
    """The next running statistic, which also updates the old one if that is a variable."""
    old = node.lowering.current(node[index])
    dtype = dtype_of(old)
    momentum = node.real("momentum", 0.9)
    kept = gc.MulOp(old, node.scalar(momentum, dtype))
    new = gc.AddOp(kept, gc.MulOp(cast(batch, dtype), node.scalar(1 - momentum, dtype)))
    node.lowering.update(node[index], SSAValue.get(new))
    return new


def _centred(x: Operand, axes: Sequence[int]) -> tuple[Operand, Operand]:
    """
    x - mean, and the variance.

    E[(x - mean)^2], not E[x^2] - mean^2, which cancels if the mean is large. The rounding error
    of the mean is subtracted, too: the gradient of the scale would accumulate it.
    """

    def average(value: Operand) -> Operand:
        return gc.ReduceMeanOp(value, axes=axes, keepdims=True)

    centred = gc.SubOp(x, average(x))
    rest = gc.DetachOp(average(centred))
    variance = gc.SubOp(average(gc.MulOp(centred, centred)), gc.MulOp(rest, rest))
    return gc.SubOp(centred, rest), variance


# Instances and groups


@requires("InstanceNormalization")
def channels_of_instances(node: NodeView) -> Conflicts:
    yield from at_least(node, 0, 3)
    image = node.shape_of(0)
    if image is not None:
        yield from of_shape(node, 1, image[1])
        yield from of_shape(node, 2, image[1])


@lowers("InstanceNormalization")
def instance_normalization(node: Node) -> Lowered:
    axes, wide = tuple(range(2, node.rank)), computing(node)
    centred, variance = _centred(cast(node[0], wide), axes)
    deviation = gc.SqrtOp(gc.AddOp(variance, node.scalar(node.real("epsilon", 1e-5), wide)))
    channel = (1, node.shape[1], *(1 for _ in axes))
    scale, bias = (gc.ReshapeOp(cast(node[index], wide), shape=channel) for index in (1, 2))
    result = gc.AddOp(gc.MulOp(gc.DivOp(centred, deviation), scale), bias)
    return cast(result, node.dtype)


@requires("MeanVarianceNormalization")
def some_axes(node: NodeView) -> Conflicts:
    yield from in_range("axis", node.integers("axes", (0, 2, 3)), node.rank_of(0))


@lowers("MeanVarianceNormalization")
def mean_variance_normalization(node: Node) -> Lowered:
    wide = computing(node)
    axes = node.axes(node.integers("axes", (0, 2, 3)))
    centred, variance = _centred(cast(node[0], wide), axes)
    deviation = gc.AddOp(gc.SqrtOp(variance), node.scalar(1e-9, wide))
    return cast(gc.DivOp(centred, deviation), node.dtype)


@requires("GroupNormalization")
def channels_of_groups(node: NodeView) -> Conflicts:
    yield from at_least(node, 0, 2)
    yield from positive(node, "num_groups")
    image, groups = node.shape_of(0), node.integer("num_groups", 1)
    if image is None:
        return
    channels = image[1]
    if isinstance(channels, int) and channels % groups:
        yield TypeConflict(
            f"{channels} channels cannot be split into {groups} groups",
            "`num_groups` must divide the channels",
        )
    for index in (1, 2):
        yield from of_shape(node, index, groups if node.version < 21 else channels)


@lowers("GroupNormalization")
def group_normalization(node: Node) -> Lowered:
    normalized = _groups(node, node[0]).results[0]
    scale, bias = (cast(node[index], node.dtype) for index in (1, 2))
    if node.version < 21:  # Scale and bias are per group, not per channel.
        return reshaped(_scaled(cast(normalized, node.dtype), scale, bias), node.shape)
    return _scaled(cast(reshaped(normalized, node.shape), node.dtype), scale, bias)


@lowers("GroupNormalization", domain=GRAPHCORE)
def graphcore_group_normalization(node: Node) -> Lowered:
    """
    Group normalization that also returns the mean and 1 / sqrt(variance + epsilon) of each group.

    With `variances`, the third result is the variance. With `strided`, channel c is in group
    c % groups.
    """
    groups, strided = _group_count(node), node.integer("strided")
    x = _channels_transposed(node[0], node.shape[1] // groups) if strided else node[0]
    normalized, mean, inverse = _groups(node, x).results
    whole = reshaped(normalized, node.shape)
    whole = _channels_transposed(whole, groups) if strided else whole
    result = _scaled(cast(whole, node.dtype), node[1], node[2])
    if node.integer("variances"):
        epsilon = node.scalar(node.real("epsilon", 1e-5), dtype_of(inverse))
        inverse = gc.SubOp(gc.ReciprocalOp(gc.MulOp(inverse, inverse)), epsilon).result
    flat = (prod(shape_of(mean)),)
    return [result, *(cast(reshaped(value, flat), node.dtype) for value in (mean, inverse))]


def _channels_transposed(x: Operand, rows: int) -> Operand:
    """Transposes the channels, seen as a matrix of `rows` rows."""
    batch, channels, *rest = shape_of(x)
    matrix = reshaped(x, (batch, rows, channels // rows, *rest))
    transposed = gc.TransposeOp(matrix, perm=(0, 2, 1, *range(3, 3 + len(rest))))
    return reshaped(transposed, (batch, channels, *rest))


def _group_count(node: Node) -> int:
    groups = node.integer("num_groups")
    if node.rank < 2 or groups < 1 or node.shape[1] % groups:
        raise TypeMismatchError(
            f"the channels of {shapes.text(node.shape)} cannot be split into {groups} groups",
            hint="num_groups must divide the second dimension",
        )
    return groups


def _groups(node: Node, x: Operand) -> gc.LayerNormOp:
    """Normalizes every group of consecutive channels, as a row of a layer normalization."""
    groups, wide = _group_count(node), computing(node)
    rows = node.shape[0], groups, prod(node.shape[1:]) // groups
    images = reshaped(cast(x, wide), rows)
    ones = gc.BroadcastOp(node.scalar(1, wide), shape=rows[2:])
    return gc.LayerNormOp(images, ones, None, axis=2, epsilon=node.real("epsilon", 1e-5))


def _scaled(x: Operand, scale: SSAValue, bias: SSAValue) -> Operand:
    """x * scale + bias, where scale and bias are vectors along the second axis."""
    shape = (1, *shape_of(scale), *(1 for _ in shape_of(x)[2:]))
    return gc.AddOp(gc.MulOp(x, reshaped(scale, shape)), reshaped(bias, shape))


@lowers("NormalizeImage", domain=GRAPHCORE)
def normalize_image(node: Node) -> Lowered:
    """(image * scale - offsets) * scales per channel; channels are last, padded to 4 with 0."""
    target = dtype_of(node[1])
    channels = node.shape[-1]
    if channels > 4 or node.rank < 1:
        raise TypeMismatchError(
            f"NormalizeImage takes at most 4 channels, not {channels}",
            hint="channels are the last axis",
        )
    single = dtypes.BY_NAME["f32"]
    image, offsets, scales = (cast(node[index], single) for index in range(3))
    moved = gc.SubOp(gc.MulOp(image, node.scalar(node.real("scale", 1.0), single)), offsets)
    result = cast(gc.MulOp(moved, scales), target)
    none = (0,) * node.rank
    return gc.PadOp(result, low=none, high=(*none[1:], 4 - channels), interior=none, value=0.0)


# Layers, norms and responses


@requires("LpNormalization")
def order(node: NodeView) -> Conflicts:
    if (norm := node.integer("p", 2)) not in (1, 2):
        yield TypeConflict(f"`p` is {norm}", "use norm 1 or 2")


@lowers("LpNormalization")
def lp_normalization(node: Node) -> Lowered:
    axis, wide = node.axis(node.integer("axis")), computing(node)
    x = cast(node[0], wide)
    squared = node.integer("p") == 2
    terms = gc.MulOp(x, x) if squared else gc.AbsOp(x)
    total = gc.ReduceSumOp(terms, axes=(axis,), keepdims=True)
    # A zero vector is divided by 1: it stays zero, with a finite gradient.
    nothing = gc.CompareOp(total, node.scalar(0, wide), predicate="eq")
    norm: Operand = gc.WhereOp(nothing, node.scalar(1, wide), total)
    return cast(gc.DivOp(x, gc.SqrtOp(norm) if squared else norm), node.dtype)


@requires("LayerNormalization", "RMSNormalization")
def axis_and_scale(node: NodeView) -> Conflicts:
    yield from in_range("axis", [node.integer("axis", -1)], node.rank_of(0))
    for index in (1, 2):
        yield from stretches(node, index, node.shape_of(0))
    stash = node.integer("stash_type", 1)
    row = dtypes.BY_ONNX.get(stash)
    if row is None or row.name not in ("f16", "bf16", "f32", "f64"):
        yield TypeConflict(f"`stash_type` is {stash}", "use the number of a float type")


@lowers("LayerNormalization")
def layer_normalization(node: Node) -> Lowered:
    axis, wide = node.axis(node.integer("axis")), computing(node)
    normal = node.shape[axis:]
    scale, bias = node[1], node.optional(2)
    whole = all(value is None or shape_of(value) == normal for value in (scale, bias))
    made = gc.LayerNormOp(
        cast(node[0], wide),
        cast(scale, wide) if whole else gc.BroadcastOp(node.scalar(1, wide), shape=normal),
        cast(bias, wide) if whole and bias is not None else None,
        axis=axis,
        epsilon=node.real("epsilon"),
    )
    result: Operand = cast(made.results[0], node.dtype)
    if not whole:
        result = gc.MulOp(result, scale)
        result = result if bias is None else gc.AddOp(result, bias)
    stash = dtypes.BY_ONNX[node.integer("stash_type")]
    return [result, *(cast(value, stash) for value in made.results[1:])]


@requires("LRN")
def channels_and_window(node: NodeView) -> Conflicts:
    yield from at_least(node, 0, 2)
    yield from positive(node, "size")


@lowers("LRN")
def local_response(node: Node) -> Lowered:
    numbers = {name: node.real(name) for name in ("alpha", "beta", "bias")}
    return gc.LrnOp(node[0], size=node.integer("size"), **numbers)


follows_data_sizes("LayerNormalization LogSoftmax Softmax")
