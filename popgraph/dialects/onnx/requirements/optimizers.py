"""What optimizers that are operators ask of rates, counts and the groups of their tensors."""

from __future__ import annotations

from popgraph.dialects.onnx.requirements.frame import (
    Complaints,
    Seen,
    asks,
    of_shape,
    one_element,
)
from popgraph.dialects.onnx.type_errors import TypeConflict

PREVIEW = "ai.onnx.preview.training"

GROUPS = {"Momentum": 3, "Adagrad": 3, "Adam": 4}
"""How many tensors there are to each one that is optimized: value, gradient and state."""


@asks(*GROUPS, domain=PREVIEW)
def optimizer(node: Seen) -> Complaints:
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
        if (shape := node.shape((index - 2) % count + 2)) is not None:
            yield from of_shape(node, index, *shape)
