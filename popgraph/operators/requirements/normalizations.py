"""What normalizations, softmaxes and reductions ask of axes, scales and statistics."""

from __future__ import annotations

from popgraph.dialects.onnx.record import Complaints
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.view import NodeView, PartialShape
from popgraph.operators.complaints import (
    at_least,
    in_range,
    of_shape,
    positive,
    stretches,
)
from popgraph.operators.record import requires
from popgraph.support import dtypes


@requires("Hardmax", "LogSoftmax", "Softmax")
def softmax(node: NodeView) -> Complaints:
    """Before version 13, all axes from `axis` on counted as one: there may be none."""
    axis = [node.integer("axis")]
    yield from in_range("axis", axis, node.rank_of(0), end=node.version < 13)


@requires("MeanVarianceNormalization")
def mean_variance(node: NodeView) -> Complaints:
    axes = node.given_integers("axes")
    yield from in_range("axis", [0, 2, 3] if axes is None else axes, node.rank_of(0))


@requires("BatchNormalization")
def batch_normalization(node: NodeView) -> Complaints:
    image = node.shape_of(0)
    if image is None or len(image) < 2:
        return
    channels: PartialShape = (image[1],)
    if node.version < 9 and not node.integer("spatial", 1):
        channels = image[1:]
    for index in range(1, 5):
        yield from of_shape(node, index, *channels)


@requires("InstanceNormalization")
def instance_normalization(node: NodeView) -> Complaints:
    yield from at_least(node, 0, 3)
    image = node.shape_of(0)
    if image is not None:
        yield from of_shape(node, 1, image[1])
        yield from of_shape(node, 2, image[1])


@requires("GroupNormalization")
def group_normalization(node: NodeView) -> Complaints:
    yield from at_least(node, 0, 2)
    yield from positive(node, "num_groups")
    image, groups = node.shape_of(0), node.integer("num_groups", 1)
    if image is None:
        return
    channels = image[1]
    if isinstance(channels, int) and channels % groups:
        yield TypeConflict(f"{channels} channels do not fall into {groups} groups", "it divides")
    for index in (1, 2):
        yield from of_shape(node, index, groups if node.version < 21 else channels)


@requires("LpNormalization")
def norm(node: NodeView) -> Complaints:
    order = node.integer("p", 2)
    if order not in (1, 2):
        yield TypeConflict(f"`p` is {order}", "a norm is of order 1 or 2")


@requires("LayerNormalization", "RMSNormalization")
def layer_normalization(node: NodeView) -> Complaints:
    yield from in_range("axis", [node.integer("axis", -1)], node.rank_of(0))
    yield from stretches(node, 1, node.shape_of(0))
    yield from stretches(node, 2, node.shape_of(0))

    stash = node.integer("stash_type", 1)
    row = dtypes.BY_ONNX.get(stash)
    if row is None or row.name not in ("f16", "bf16", "f32", "f64"):
        yield TypeConflict(f"`stash_type` is {stash}", "it is the number of a type of floats")


@requires("LRN")
def local_response(node: NodeView) -> Complaints:
    yield from at_least(node, 0, 2)
    yield from positive(node, "size")
