"""What losses ask of scores, labels and weights."""

from __future__ import annotations

from popgraph.dialects.onnx.requirements.frame import Complaints, Seen, asks, at_least, of_shape


@asks("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def cross_entropy(node: Seen) -> Complaints:
    yield from at_least(node, 0, 2)
    scores = node.shape(0)
    if scores is not None:
        yield from of_shape(node, 1, scores[0], *scores[2:])
        yield from of_shape(node, 2, scores[1])
