"""What gradients and optimizers that are operators ask of names, and of groups of tensors."""

from __future__ import annotations

from popgraph.dialects.onnx.record import Complaints
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.complaints import of_shape, one_element
from popgraph.operators.record import requires

PREVIEW = "ai.onnx.preview.training"

GROUPS = {"Momentum": 3, "Adagrad": 3, "Adam": 4}
"""How many tensors there are to each one that is optimized: value, gradient and state."""


@requires("Gradient", domain=PREVIEW)
def gradient(node: NodeView) -> Complaints:
    xs, zs = node.texts("xs"), node.texts("zs")
    if len({*xs, *zs}) < len(xs) + len(zs):
        yield TypeConflict("`xs` and `zs` name a tensor twice", "name every tensor once")
    if len(node) != len(xs) + len(zs) or not all(map(node.has, range(len(node)))):
        yield TypeConflict(
            f"{sum(map(node.has, range(len(node))))} inputs for {len(xs) + len(zs)} names",
            "there is a value for each name of `xs`, then for each of `zs`",
        )
    if len(node.op.output_names) > len(xs):
        yield TypeConflict(
            f"{len(node.op.output_names)} outputs for {len(xs)} names",
            "there is a gradient for each name of `xs`",
        )


@requires(*GROUPS, domain=PREVIEW)
def optimizer(node: NodeView) -> Complaints:
    groups = GROUPS[node.op.op_type]
    for index in (0, 1):
        yield from one_element(node, index)
    count, rest = divmod(len(node) - 2, groups)
    if rest or not count:
        yield TypeConflict(
            f"{len(node) - 2} tensors are no groups of {groups}",
            "all values come first, then all gradients, then all states of a kind",
        )
    outputs = count * (groups - 1)
    if len(node.op.output_names) > outputs:
        yield TypeConflict(
            f"{len(node.op.output_names)} outputs of {outputs}",
            "there is a new one for each value, and for each of its states",
        )
    for index in range(2 + count, len(node)):
        if (shape := node.shape_of((index - 2) % count + 2)) is not None:
            yield from of_shape(node, index, *shape)
