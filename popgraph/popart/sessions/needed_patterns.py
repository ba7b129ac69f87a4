"""The patterns without which PopART cannot compile a node or its gradient."""

from __future__ import annotations

from collections.abc import Collection, Set
from dataclasses import dataclass

from popgraph.builder.opset.graphcore_operator import DOMAIN
from popgraph.dialects.onnx import OnnxOp, value_name
from popgraph.dialects.onnx.annotations import EXCLUDED, notes_in
from popgraph.dialects.onnx.op import to_python
from popgraph.popart.api.patterns import Patterns
from popgraph.popart.exceptions import popart_exception
from popgraph.popart.model.model import SessionModel

_FORWARD = {("", "Cosh"): "CoshOp"}
"""Operators that exist only until their pattern has replaced them."""

_DETACH = (DOMAIN, "Detach")

_GRADIENTS = {
    ("", "Abs", 0): "AbsGradOp",
    ("", "Cos", 0): "CosGradOp",
    ("", "ConvTranspose", 1): "ConvFlipWeightsGradOp",
    ("", "Exp", 0): "ExpGradOp",
    ("", "Reciprocal", 0): "ReciprocalGradOp",
    ("", "Sqrt", 0): "SqrtGradOp",
    ("", "Sub", 1): "SubtractArg1GradOp",
    (DOMAIN, "Atan2", 0): "Atan2Arg0GradOp",
    (DOMAIN, "Atan2", 1): "Atan2Arg1GradOp",
    (DOMAIN, "Expm1", 0): "Expm1GradOp",
    (DOMAIN, "Log1p", 0): "Log1pGradOp",
}
"""Operators whose gradient for an operand exists only until its pattern has replaced it."""


def check_needed(
    model: SessionModel, patterns: Patterns, anchors: Collection[str], sources: Collection[str]
) -> None:
    """
    Refuses a model that PopART cannot compile without a pattern that is off.

    `sources` are the tensors for which gradients are computed; none where nothing is trained.
    """
    if not patterns.insists_on_needed():
        return
    nodes = list(model.graph.nodes)
    for op in nodes:
        if (op.domain, op.op_type) in _FORWARD and not _feeding(nodes, anchors).isdisjoint(
            op.output_names
        ):
            _insist(model, patterns, _FORWARD[op.domain, op.op_type], op, op.op_type)
    if sources and model.final_loss is not None:
        wanted = Differentiated.of(model, sources)
        for op in nodes:
            for place in wanted.places(op):
                pattern = _GRADIENTS.get((op.domain, op.op_type, place))
                if pattern is not None:
                    _insist(model, patterns, pattern, op, pattern.removesuffix("Op"))


def _insist(model: SessionModel, patterns: Patterns, pattern: str, op: OnnxOp, shown: str) -> None:
    excluded = notes_in(op, model.weights).get(EXCLUDED)
    left_alone = [] if excluded is None else to_python(excluded, model.weights)
    assert isinstance(left_alone, list), "a list of names says what is excluded"
    if not patterns.isPatternEnabled(pattern) or pattern in left_alone:
        raise popart_exception(
            f"Could not create opx for '{shown}'. This op should have been removed by pattern "
            f"{pattern}",
            op.where(),
            f'patterns.enablePattern("{pattern}", True), and do not exclude it from the node',
        )


@dataclass(frozen=True)
class Differentiated:
    """What gradients of a loss reach, and what depends on tensors that have gradients."""

    loss: Set[str]
    moved: Set[str]

    @classmethod
    def of(cls, model: SessionModel, sources: Collection[str]) -> Differentiated:
        assert model.final_loss is not None, "without a loss there is no gradient"
        nodes = model.graph.nodes
        passing = [op for op in nodes if (op.domain, op.op_type) != _DETACH]
        return cls(_feeding(passing, [model.final_loss]), _moved(passing, sources))

    def places(self, op: OnnxOp) -> list[int]:
        """The places of the operands for which a gradient is computed."""
        if self.loss.isdisjoint(op.output_names):
            return []
        return [place for place, name in enumerate(_operands(op)) if name in self.moved]


def _operands(op: OnnxOp) -> list[str]:
    """The names of a node's operands, "" for one that is absent."""
    return ["" if value is None else value_name(value) for value in op.input_values()]


def _feeding(nodes: list[OnnxOp], wanted: Collection[str]) -> Set[str]:
    """What these tensors are computed from, they themselves among it."""
    found = set(wanted)
    for op in reversed(nodes):
        if not found.isdisjoint(op.output_names):
            found.update(filter(None, _operands(op)))
    return found


def _moved(nodes: list[OnnxOp], sources: Collection[str]) -> Set[str]:
    """What depends on these tensors, they themselves among it."""
    found = set(sources)
    for op in nodes:
        if not found.isdisjoint(_operands(op)):
            found.update(filter(None, op.output_names))
    return found
