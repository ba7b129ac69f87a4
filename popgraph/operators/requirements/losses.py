"""What losses ask of scores, labels and weights."""

from __future__ import annotations

from popgraph.dialects.onnx.record import Complaints
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.complaints import at_least, of_shape
from popgraph.operators.record import chooses, requires


@requires("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def cross_entropy(node: NodeView) -> Complaints:
    yield from at_least(node, 0, 2)
    scores = node.shape_of(0)
    if scores is not None:
        yield from of_shape(node, 1, scores[0], *scores[2:])
        yield from of_shape(node, 2, scores[1])


chooses("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", reduction=("none", "mean", "sum"))
